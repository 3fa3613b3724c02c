"""The one tuning of any layer: against searches written out for each layer of the benchmark, and on its own terms."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icl import filters
from icl.experiments.evaluation import one_step_ahead
from icl.experiments.tuning import LAYERS, GridResult, Tunable, evaluate_grid, simplex, tune
from icl.models.delta_layers import DeltaRule
from icl.models.fast_weights import retention
from icl.profile import make_generator
from icl.tasks import DriftingRegression, Noisy, clean

D, N, LAST = 4, 24, 9
TASKS = [
    DriftingRegression(D, N, 0.95, sigma_w=0.5, sigma_e=0.15),
    Noisy(DriftingRegression(D, N, 0.8, sigma_w=0.5, sigma_e=0.3), 0.3),
]
END = slice(-LAST, None)


def prompt_of(task, batch=10):
    return task.sample(batch, generator=make_generator("tuning"), dtype=torch.float64)


# The searches as the chapter had them, a layer at a time; RetNet's and GLA's decays in float64.


def search(loss, *axes):
    """Least loss on a grid, then on one as fine again between the neighbours of the best."""
    for _ in range(2):
        found = loss(*axes)
        best = np.unravel_index(int(found.argmin()), found.shape)
        chosen = [axis[i] for axis, i in zip(axes, best, strict=True)]
        axes = [
            np.geomspace(a[max(i - 1, 0)], a[min(i + 1, len(a) - 1)], len(a)) for a, i in zip(axes, best, strict=True)
        ]
    return [float(value) for value in chosen]


def written_out(prompt):
    """Settings of every layer, each found in its own way."""
    truth, forget = clean(prompt)[:, END], np.geomspace(0.004, 0.8, 12)
    seen = (prompt.x[:, END] @ prompt.x.mT) * prompt.y[:, None]
    age = torch.arange(N + 1 - LAST, N + 1)[:, None] - torch.arange(N + 1)

    def error(made):
        y_hat = filters.run_filter(made, prompt.x, prompt.y)[..., END]
        return (y_hat - truth).square().mean((-1, -2))

    def features(lams):
        powers = [torch.tensor(lam, dtype=torch.float64) ** age.clamp(min=0) * (age > 0) for lam in lams]
        return torch.einsum("bij,hij->bih", seen, torch.stack(powers)).flatten(0, 1)

    def read_out(f):
        return torch.linalg.lstsq(f, truth.reshape(-1, 1)).solution[:, 0]

    def of_gla(forget):
        made = [features([lam]) for lam in 1 - forget]
        return torch.stack([(f @ read_out(f) - truth.flatten()).square().mean() for f in made])

    def t(axis, *shape):
        return torch.as_tensor(axis).reshape(*shape)

    def of_delta(f, mu):
        return error(filters.delta_rule(t(mu, 1, -1, 1), lam=t(1 - f, -1, 1, 1)))

    def of_longhorn(f, eps):
        rules = [filters.normalised_delta_rule(1.0, lam=t(1 - f, -1, 1), eps=e) for e in eps]
        return torch.stack([error(rule) for rule in rules], dim=-1)

    def of_mesa(f, eps):
        return error(filters.faded_ridge(t(1 - f, -1, 1, 1), eps=t(eps, 1, -1, 1)))

    found = {"linear attention": {"mu": read_out(features([1.0])).item()}}
    (f,) = search(of_gla, forget)
    found["GLA"] = {"lam": 1 - f, "mu": read_out(features([1 - f])).item()}
    count = torch.arange(N + 1, dtype=torch.float64)[END, None]
    G = (prompt.x.unsqueeze(-1) * prompt.x.unsqueeze(-2)).cumsum(1)[:, -LAST - 1 : -1] / count[..., None]
    w, powers = (prompt.x * prompt.y.unsqueeze(-1)).cumsum(1)[:, -LAST - 1 : -1] / count, []
    for _ in range(4):
        powers.append((w * prompt.x[:, END]).sum(-1).flatten())
        w = (G @ w.unsqueeze(-1)).squeeze(-1)
    found["LFOM"] = {f"c_{k}": c for k, c in enumerate(read_out(torch.stack(powers, -1)).tolist())}
    heads = read_out(features([float(lam) for lam in retention(4)]))
    found["RetNet"] = {f"c_{h}": c for h, c in enumerate(heads.tolist())}
    f, mu = search(of_delta, np.append(1e-6, forget), np.geomspace(0.01, 0.25, 8))
    found["delta rule"] = {"lam": 1 - f, "mu": mu}
    f, eps = search(of_longhorn, np.append(1e-6, forget), np.geomspace(0.01, 100, 7))
    found["Longhorn"] = {"lam": 1 - f, "eps": eps}
    (f,) = search(lambda f: error(filters.rls(t(1 - f, -1, 1), eps=0.01)), np.geomspace(0.002, 0.4, 10))
    found["RLS"] = {"lam": 1 - f}
    f, eps = search(of_mesa, np.geomspace(0.002, 0.8, 7), np.geomspace(0.03, 30, 6))
    return found | {"Mesa": {"lam": 1 - f, "eps": eps}}


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("task", TASKS)
def test_every_layer_is_tuned_as_by_a_search_of_its_own(task):
    """All settings of the eight layers, rtol 1e-9; RetNet's, whose four decays are nearly one, 1e-5."""
    prompt = prompt_of(task)
    expected = written_out(prompt)
    assert set(expected) == set(LAYERS)
    for method, layer in LAYERS.items():
        found = tune(layer, prompt, positions=END, rounds=2)
        assert list(found.settings) == list(expected[method])
        rtol = 1e-5 if method == "RetNet" else 1e-9
        np.testing.assert_allclose([*found.settings.values()], [*expected[method].values()], rtol=rtol)
        y_hat = one_step_ahead(found.predictor, prompt)
        np.testing.assert_allclose((y_hat - clean(prompt))[:, END].square().mean().item(), found.loss, rtol=1e-9)


def test_any_layer_is_tuned_by_the_same_function():
    """A layer of `icl.models`, its settings tried one by one, ends where the filter it is ends, tried all at once."""
    prompt = prompt_of(TASKS[0])
    layer = Tunable(
        lambda d, lam, mu: DeltaRule(d, lam=lam, mu=mu, dtype=torch.float64),
        {"lam": [0.8, 0.9, 0.97], "mu": [0.05, 0.1, 0.2]},
        log_scale=("lam",),
    )
    rule = replace(LAYERS["delta rule"], axes=layer.axes)
    one, other = (tune(each, prompt, positions=END, rounds=2) for each in (layer, rule))
    assert one.settings == pytest.approx(other.settings, rel=1e-12)
    assert one.loss == pytest.approx(other.loss, rel=1e-9)


def test_attempts_are_every_combination_run_by_itself():
    """Answers and losses of a grid of two settings against a filter for each, rtol 1e-12; the best is the least, and
    fewer settings are found by their values.
    """
    prompt = prompt_of(TASKS[1])
    tried = evaluate_grid(LAYERS["Mesa"], prompt)
    truth, losses = clean(prompt), tried.losses(clean(prompt), END)
    for i, lam in enumerate(tried.axes["lam"]):
        for j, eps in enumerate(tried.axes["eps"]):
            own = filters.run_filter(filters.faded_ridge(float(lam), eps=float(eps)), prompt.x, prompt.y)
            torch.testing.assert_close(tried.answers[i, j], own, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(losses[i, j], (own - truth)[:, END].square().mean().item(), rtol=1e-12)
    settings, answers = tried.best(truth, END)
    assert (answers - truth)[:, END].square().mean().item() == pytest.approx(losses.min(), rel=1e-12)
    alone = tried.only(**settings)
    assert torch.equal(alone.answers.flatten(0, 2), answers)
    assert tried.only(eps=settings["eps"]).best(truth, END)[0] == settings


def test_linear_settings_are_solved_for():
    """Beside each decay the scale of attention is the regression of the labels on what it multiplies, rtol 1e-9; no
    other scale errs less.
    """
    prompt = prompt_of(TASKS[0])
    tried, truth = evaluate_grid(LAYERS["GLA"], prompt), clean(prompt)
    losses = tried.losses(truth, END)
    for lam, parts, loss in zip(tried.axes["lam"], tried.answers[..., 0], losses, strict=True):
        own = one_step_ahead(filters.gla(np.eye(D), lam=float(lam)), prompt)
        torch.testing.assert_close(parts, own, rtol=1e-12, atol=1e-12)
        a, b = own[:, END].flatten(), truth[:, END].flatten()
        mu = (a @ b) / (a @ a)
        assert loss == pytest.approx((mu * a - b).square().mean().item(), rel=1e-9)
        assert loss < ((1.01 * mu) * a - b).square().mean().item()


def test_what_diverges_is_left_out():
    """Of step sizes tried at once those that diverge have NaN for answers, and the others what they have alone."""
    prompt = DriftingRegression(2, 400, 0.9).sample(3, generator=make_generator("steps"), dtype=torch.float64)
    lms = Tunable(lambda d, mu: filters.lms(mu), {"mu": [0.01, 50.0, 0.1]}, at_once=("mu",))
    tried = evaluate_grid(lms, prompt)
    losses = tried.losses(clean(prompt))
    assert np.isnan(losses).tolist() == [False, True, False]
    torch.testing.assert_close(tried.answers[2], filters.run_filter(filters.lms(0.1), prompt.x, prompt.y))
    assert tried.best(clean(prompt))[0]["mu"] in (0.01, 0.1)
    with pytest.raises(FloatingPointError, match="the predictor diverged with all of 1 settings"):
        tune(replace(lms, axes={"mu": [50.0]}), prompt)


@settings(max_examples=20)
@given(st.integers(1, 3), st.integers(0, N))
def test_a_finer_grid_never_leaves_the_neighbours_of_the_best(rounds, since):
    """Each round is as many values between the neighbours of the last best; one axis, any positions."""
    prompt, lams = prompt_of(TASKS[0], 3), 1 - np.geomspace(0.01, 0.5, 5)
    layer = Tunable(lambda d, lam: filters.rls(lam, eps=0.01), {"lam": lams}, log_scale=("lam",), at_once=("lam",))
    settings = tune(layer, prompt, positions=slice(since, None), rounds=rounds).settings
    first = tune(layer, prompt, positions=slice(since, None)).settings
    at = int(np.flatnonzero(lams == first["lam"])[0])
    low, high = lams[min(at + 1, 4)], lams[max(at - 1, 0)]
    assert low - 1e-12 <= settings["lam"] <= high + 1e-12
    assert rounds > 1 or settings == first


def test_labels_may_be_what_is_aimed_at():
    """With the noisy labels for truth it is their error that is least."""
    prompt = prompt_of(TASKS[1])
    found = tune(LAYERS["RLS"], prompt, truth=prompt.y)
    losses = evaluate_grid(LAYERS["RLS"], prompt).losses(prompt.y)
    assert found.loss == pytest.approx(losses.min(), rel=1e-12)


def test_a_simplex_finds_the_least_of_a_bowl():
    """The minimum of a quadratic to 1e-4, and beside where there is no error: larger ones count as the ceiling."""
    point, least = simplex(lambda z: (z[0] - 1) ** 2 + 3 * (z[1] + 2) ** 2 + 0.5, (0.0, 0.0))
    np.testing.assert_allclose(point, [1, -2], atol=1e-4)
    assert least == pytest.approx(0.5, abs=1e-7)
    edge = simplex(lambda z: np.inf if z[0] < 0.3 else z[0], [0.29])
    assert edge[1] == pytest.approx(0.3, abs=1e-4)
    assert simplex(lambda z: np.inf, [1.0], ceiling=7.0)[1] == 7.0


@pytest.mark.usefixtures("as_installed")
def test_a_simplex_turns_back_from_what_is_no_number():
    """An error of NaN counts as the ceiling, wherever it lies, as an infinite one does."""
    for nowhere in (math.nan, math.inf):
        found, least = simplex(lambda z, far=nowhere: (z[0] - 1) ** 2 if z[0] < 1.5 else far, [0.2])
        assert abs(found[0] - 1) < 1e-4
        assert least < 1e-8
    assert simplex(lambda z: math.nan, [0.2], ceiling=7.0)[1] == 7.0


def test_settings_that_were_not_tried_are_refused_by_name():
    tried = GridResult({"lam": [0.9, 0.8]}, torch.zeros(2, 3, 4))
    with pytest.raises(ValueError, match=r"lam must be one of the values tried, \[0.9, 0.8\], got 0.7"):
        tried.only(lam=0.7)
    with pytest.raises(ValueError, match="settings must be among lam, got 'mu'"):
        tried.only(mu=0.7)
