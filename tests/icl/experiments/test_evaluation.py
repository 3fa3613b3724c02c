"""Predictors one step ahead, and their risks, against plain numpy over the very trials they were measured on."""

import functools

import numpy as np
import pandas as pd
import pytest
import shared
import torch
from scipy import stats

from icl import filters
from icl.experiments.evaluation import clean_risk, one_step_ahead, risk_curve, series_risks, settled_risk, squared_error
from icl.models.one_layer import OneLayerGLA, features, predict_from_features
from icl.profile import make_generator
from icl.tasks import DriftingRegression, Noisy, Prompt
from icl.tasks.series import mean_and_error

TASK = DriftingRegression(d=3, n=8, gamma=0.9, sigma_e=0.3)
LAM = torch.tensor([[0.5], [0.8], [1.0]], dtype=torch.float64)
TOTAL = 300
Replay = functools.partial(shared.Replay, TOTAL)


def layer(prompt, lam=0.8):
    """One layer of attention with A = I / 10, asked for the query's label."""
    return predict_from_features(features(prompt, lam), np.eye(3) / 10, prompt.x[:, -1])


METHODS = {
    "RLS": filters.rls(0.9, eps=0.01),
    "layer": layer,
    "zero": filters.zero(),
    "layers": functools.partial(layer, lam=[0.5, 0.9]),
    "RLS of three": filters.rls(LAM, eps=0.01),
}
unused = functools.partial(make_generator, "unused")


def squares(predictor, prompt):
    """Squared errors (*settings, trials, time), each position of each trial by itself."""
    if isinstance(predictor, filters.Filter):
        y_hat = filters.run_filter(predictor, prompt.x, prompt.y).numpy()
    else:
        y_hat = []
        for i in range(1, prompt.n + 1):
            y_hat.append(predictor(Prompt(prompt.x[:, : i + 1], prompt.y[:, : i + 1], prompt.w[:, : i + 1])).numpy())
        y_hat = np.stack([0 * y_hat[0], *y_hat], -1)
    return (y_hat - prompt.y.numpy()) ** 2


def naive(predictors, prompt, against=None, last=None):
    """Rows (method, setting, position, risk, se, difference, difference_se) of a plain table."""
    values = {name: squares(predictor, prompt) for name, predictor in predictors.items()}
    if last is not None:
        values = {name: v[..., -last:].mean(-1, keepdims=True) for name, v in values.items()}
    rows = []
    for name, v in values.items():
        less = v - values[against] if against else v
        numbers = [v.mean(-2), stats.sem(v, axis=-2), less.mean(-2), stats.sem(less, axis=-2)]
        for *setting, position in np.ndindex(numbers[0].shape):
            rows.append((name, tuple(setting), position, *(each[(*setting, position)] for each in numbers)))
    columns = ["method", "setting", "position", "risk", "se", "difference", "difference_se"]
    return pd.DataFrame(rows, columns=columns)


def same(found, expected):
    """Tables with the same rows: means to 1e-12, standard errors to 1e-9 of their largest, as differences are."""
    assert len(found) == len(expected)
    for column in found:
        if column in ("method", "setting", "position"):
            assert list(found[column]) == list(expected[column])
        else:
            scale = np.abs(expected[column]).max()
            atol = (1e-9 if column.endswith("se") else 1e-12) * scale
            np.testing.assert_allclose(found[column], expected[column], rtol=0, atol=atol)


@pytest.mark.parametrize("size", [7, 299, 300, 5000])
def test_risks_are_plain_means(size):
    """Risks and standard errors at every position, and those of differences from one method, are plain means over all
    trials and their standard errors, however many trials are held at once.

    300 trials of 9 positions; filters and models, with one and several settings. Means to 1e-12, standard errors to
    1e-9 of their largest. Every method is given each trial once, in float64.
    """
    task = Replay()
    found = risk_curve(METHODS, task, TOTAL, generator=unused(), against="layer", size=size)
    same(found, naive(METHODS, task.pool, "layer"))
    assert list(found) == ["method", "setting", "position", "risk", "se", "difference", "difference_se"]
    assert sum(asked for asked, _ in task.asked) == TOTAL
    assert max(asked for asked, _ in task.asked) <= size
    assert {dtype for _, dtype in task.asked} == {torch.float64}


@pytest.mark.parametrize("last", [1, 4, 9])
def test_settled_risks_are_means_of_each_trials_end(last):
    """The settled risk is the mean over trials of each trial's mean over its last positions, and its standard error
    that of independent trials: the positions of one are not.

    300 trials, last 1, 4 and all of 9 positions; means to 1e-12, standard errors to 1e-9 of their largest. Planted:
    standard errors of independent positions are smaller by a twentieth, with several of them.
    """
    task = Replay()
    found = settled_risk(METHODS, task, TOTAL, last=last, generator=unused(), against="zero", size=70)
    same(found, naive(METHODS, task.pool, "zero", last).drop(columns="position"))
    assert "position" not in found
    if last > 1:
        independent = stats.sem(squares(METHODS["zero"], task.pool)[:, -last:], axis=None)
        assert found.set_index("method").se["zero"] > 1.05 * independent


def test_one_last_position_is_the_curves_end():
    """With last = 1 the settled risk is the last row of the curve, bit for bit."""
    curve = risk_curve({"RLS": METHODS["RLS"]}, Replay(), TOTAL, generator=unused())
    end = settled_risk({"RLS": METHODS["RLS"]}, Replay(), TOTAL, last=1, generator=unused())
    assert end.risk[0] == curve.risk.iloc[-1]
    assert end.se[0] == curve.se.iloc[-1]


def test_differences_are_paired():
    """A difference is known much better than the risks are: with two filters that are nearly alike its standard error
    is less than a hundredth of the one that independent trials would give, and a method differs from itself by 0.

    300 trials; RLS at lam = 0.9 and 0.901.
    """
    methods = {"one": filters.rls(0.9, eps=0.01), "other": filters.rls(0.901, eps=0.01)}
    found = risk_curve(methods, Replay(), TOTAL, generator=unused(), against="one").set_index(["method", "position"])
    one, other = found.loc["one"], found.loc["other"]
    assert not one.difference.any()
    assert not one.difference_se.any()
    independent = np.hypot(one.se, other.se)[2:]
    assert (other.difference_se[2:] > 0).all()
    assert (other.difference_se[2:] < 0.01 * independent).all()
    np.testing.assert_allclose(other.difference, other.risk - one.risk, rtol=0, atol=1e-12)


def test_tables_have_the_columns_that_are_needed():
    """Without `against` there are no differences, without settings no column for them; rows keep the order of methods,
    also when the one compared with is not the first, and of positions.
    """
    methods = {"b": filters.zero(), "a": filters.rls(0.9, eps=0.01)}
    plain = risk_curve(methods, Replay(), 5, generator=unused())
    assert list(plain) == ["method", "position", "risk", "se"]
    assert list(plain.method) == ["b"] * 9 + ["a"] * 9
    assert list(plain.position) == [*range(9)] * 2
    compared = risk_curve(methods, Replay(), 5, generator=unused(), against="a")
    assert list(compared) == ["method", "position", "risk", "se", "difference", "difference_se"]
    pd.testing.assert_frame_equal(compared[["method", "position", "risk", "se"]], plain)
    settled = settled_risk(methods, Replay(), 5, last=2, generator=unused())
    assert list(settled) == ["method", "risk", "se"]
    several = settled_risk({"RLS": filters.rls(LAM[:, None], eps=0.01)}, Replay(), 5, last=2, generator=unused())
    assert list(several.setting) == [(0, 0), (1, 0), (2, 0)]


def test_against_a_method_with_settings():
    """Compared with a method that tries several settings, one with the same settings differs setting by setting; one
    with others, or none, is refused by name.
    """
    methods = {"RLS": filters.rls(LAM, eps=0.01), "again": filters.rls(LAM, eps=0.01), "other": filters.lms(0.1 * LAM)}
    found = settled_risk(methods, Replay(), TOTAL, last=3, generator=unused(), against="RLS")
    same(found, naive(methods, Replay().pool, "RLS", 3).drop(columns="position"))
    assert not found.difference[:6].any()
    assert found.difference[6:].all()
    for name, filter, shape in (("none", filters.zero(), r"\(\)"), ("two", filters.rls(LAM[:2], eps=0.01), r"\(2,\)")):
        with pytest.raises(ValueError, match=rf"^against must be one .* {name}, {shape}, got 'RLS' with \(3,\)"):
            risk_curve({name: filter, "RLS": filters.rls(LAM, eps=0.01)}, TASK, 5, generator=unused(), against="RLS")


def test_trials_come_from_the_generator():
    """The same stream gives the same table, bit for bit, and another stream another; trials have the asked dtype, and a
    model runs without gradients.
    """
    seen = []

    def model(prompt):
        seen.append((prompt.x.dtype, torch.is_grad_enabled()))
        return 0 * prompt.y[:, -1]

    def measured(seed, dtype=torch.float64):
        return risk_curve({"m": model}, TASK, 20, generator=make_generator("x", seed=seed), dtype=dtype)

    pd.testing.assert_frame_equal(measured(0), measured(0))
    assert (measured(0).risk != measured(1).risk).all()
    assert set(seen) == {(torch.float64, False)}
    measured(0, torch.float32)
    assert seen[-1] == (torch.float32, False)


def test_the_same_error_everywhere_has_no_standard_error():
    """A method that misses every label by the same number has a standard error of 0 and not NaN: at most 1e-8 of the
    error, the root of the rounding of a sum of squares.

    20 numbers from 0.1 to 5 at the 8 positions that a model answers. Planted: without a guard some give NaN.
    """
    for miss in np.linspace(0.1, 5, 20):
        found = risk_curve({"m": lambda p, m=miss: p.y[:, -1] + m}, Replay(), 100, generator=unused())[1:]
        np.testing.assert_allclose(found.risk, miss**2, rtol=1e-12)
        assert ((found.se >= 0) & (found.se <= 1e-8 * found.risk)).all()


def test_a_model_is_asked_on_prefixes():
    """A model is called once for 1, 2, .., n examples, with exactly the prompt up to that query, and its answers stand
    at these positions; before any example the prediction is 0.

    5 prompts of 9 positions, or of 2; bit for bit. A module with parameters is as good as a function.
    """
    prompt, lengths = Replay().sample(5, generator=unused(), dtype=torch.float64), []

    def model(seen):
        lengths.append(seen.n)
        for part, whole in zip(vars(seen).values(), vars(prompt).values(), strict=True):
            assert torch.equal(part, whole[:, : seen.n + 1])
        return seen.n + seen.x[:, -1, 0]

    y_hat = one_step_ahead(model, prompt)
    assert lengths == [*range(1, 9)]
    assert torch.equal(y_hat, torch.cat([torch.zeros(5, 1), torch.arange(1.0, 9) + prompt.x[:, 1:, 0]], 1))
    shortest = Prompt(*(part[:, :2] for part in vars(prompt).values()))
    assert torch.equal(one_step_ahead(model, shortest), y_hat[:, :2])
    module = OneLayerGLA(3, lam=0.8, scale=0.1, generator=make_generator("layer"), dtype=torch.float64)
    module.set_weights(np.diag([0, 0, 0, 1.0]), np.diag([0.1, 0.1, 0.1, 0]))
    answers = one_step_ahead(module, prompt)
    assert not answers.requires_grad
    torch.testing.assert_close(answers, one_step_ahead(layer, prompt), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_future_labels_never_change_the_past(name):
    """Other labels and weights from position 4 on leave predictions up to position 4 as they were, bit for bit, and so
    do other inputs from position 5 on; later ones change, unless nothing is read at all.

    5 prompts of 9 positions.
    """
    prompt = Replay().sample(5, generator=unused(), dtype=torch.float64)
    before = one_step_ahead(METHODS[name], prompt)
    x, y, w = (a.clone() for a in vars(prompt).values())
    x[:, 5:], y[:, 4:], w[:, 4:] = 0.5, 7.0, 3.0
    after = one_step_ahead(METHODS[name], Prompt(x, y, w))
    assert torch.equal(after[..., :5], before[..., :5])
    assert name == "zero" or (after[..., 5:] != before[..., 5:]).all()
    last = prompt.y.clone()
    last[:, -1] = 1e6
    assert torch.equal(one_step_ahead(METHODS[name], Prompt(prompt.x, last, prompt.w)), before)


def test_risk_against_clean_labels():
    """Mean and standard error over prompts of the last positions' mean square against <w, x>, by numpy, rtol 1e-12; a
    filter of three settings has three of each.
    """
    prompt = Noisy(TASK, 0.7).sample(20, generator=make_generator("clean"), dtype=torch.float64)
    mean, error = clean_risk(filters.rls(LAM, eps=0.01), prompt, last=4)
    for i, lam in enumerate(LAM.flatten().tolist()):
        y_hat = one_step_ahead(filters.rls(lam, eps=0.01), prompt).numpy()
        squares = ((y_hat - (prompt.w * prompt.x).sum(-1).numpy()) ** 2)[:, -4:].mean(1)
        np.testing.assert_allclose((mean[i], error[i]), (squares.mean(), squares.std(ddof=1) / 20**0.5), rtol=1e-12)
    whole = ((one_step_ahead(filters.rls(0.9, eps=0.01), prompt) - (prompt.w * prompt.x).sum(-1)) ** 2).mean().item()
    np.testing.assert_allclose(clean_risk(filters.rls(0.9, eps=0.01), prompt, last=prompt.n + 1)[0], whole, rtol=1e-12)


def test_risks_on_a_series():
    """Errors, correlations and gaps of three methods against sums written out, rtol 1e-12: rows before `since` do not
    count, and a method has no gap to itself.
    """
    rng = np.random.default_rng(4)
    y = rng.normal(size=60).cumsum()
    answers = {"last": np.append(0, y[:-1]), "zero": np.zeros(60), "half": y / 2}
    found = series_risks(y, answers, since=20, against="zero")
    base, lags = y[20:] ** 2, int(1.5 * 40 ** (1 / 3))
    for method, y_hat in answers.items():
        e = (y - y_hat)[20:]
        expected = [*mean_and_error(e**2, lags=lags), np.corrcoef(e[1:], e[:-1])[0, 1]]
        expected += mean_and_error(e**2 - base, lags=lags)
        np.testing.assert_allclose(found.loc[method].tolist(), expected, rtol=1e-12)
    assert found.loc["zero", ["gap", "gap s.e."]].tolist() == [0, 0]
    assert list(found.columns) == ["error", "s.e.", "neighbours", "gap", "gap s.e."]


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize(("size", "dtype"), [(1e80, torch.float64), (1e160, torch.float64), (1e25, torch.float32)])
def test_errors_that_overflow_are_refused(size, dtype):
    """Finite predictions whose squared errors, or squares of these, are not: no risk is NaN or infinite in silence."""

    def far(prompt):
        return size * prompt.x.sum((1, 2))

    how = {"generator": make_generator("overflow"), "dtype": dtype}
    with pytest.raises(FloatingPointError, match="squared errors of far overflow"):
        risk_curve({"far": far}, TASK, 10, **how)
    with pytest.raises(FloatingPointError, match="squared errors of far overflow"):
        settled_risk({"far": far}, TASK, 10, last=2, **how)
    with pytest.raises((FloatingPointError, ValueError), match=r"squared errors of predict overflow|finite numbers"):
        squared_error(far, TASK, 10, **how)
    with pytest.raises(FloatingPointError, match="squared errors of the predictor overflow"):
        clean_risk(far, TASK.sample(10, generator=make_generator("overflow"), dtype=dtype), last=2)
