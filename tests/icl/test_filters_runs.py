"""The scan that runs every filter: initial weights, what is kept on the way, blocks, layouts and gradients."""

import doctest
import functools
import pickle

import numpy as np
import pytest
import torch
from shared import EVERY_FILTER, UNEQUAL_DRIFT, read, streamed

from icl import filters
from icl.profile import make_generator

every_filter = pytest.mark.parametrize("filter", EVERY_FILTER.values(), ids=EVERY_FILTER)
several = torch.tensor([[0.05], [0.1], [0.02]], dtype=torch.float64)
MANY = {
    "LMS": filters.lms(several),
    "delta rule": filters.delta_rule(several, lam=several[:, None] + 0.9),
    "normalised delta rule": filters.normalised_delta_rule(several, lam=several[:2, None] + 0.9),
    "APA": filters.apa(several, K=2, eps=1e-6),
    "RLS": filters.rls(several + 0.5, eps=0.01),
    "faded ridge": filters.faded_ridge(several + 0.5, eps=several[:2, None]),
}


def prompts(batch=7):
    p = UNEQUAL_DRIFT.sample(batch, generator=make_generator("filters"), dtype=torch.float64)
    return p.x, p.y


def agrees(one, other, rtol=1e-12):
    """Arrays that are equal to `rtol` of the largest entry."""
    assert one.shape == other.shape
    assert ((one - other).abs() <= rtol * other.abs().max()).all()


# What feeds its own error back is indifferent to where the origin of weights lies; so is zero.
@pytest.mark.parametrize("name", ["LMS", "NLMS", "APA", "RLS", "ridge"])
@pytest.mark.parametrize("one_a_trial", [False, True])
def test_initial_weights_shift_the_origin(name, one_a_trial):
    """From w_0 the filters that do not fade predict what they do from 0 on labels less w_0'x, plus w_0'x.

    One w_0 for all 7 trials and one for each; 1e-12 of the largest prediction. The first prediction is w_0'x itself.
    """
    x, y = prompts()
    w_0 = torch.randn((7, 3) if one_a_trial else (3,), generator=make_generator("w_0"), dtype=torch.float64)
    known = (x * (w_0[:, None] if one_a_trial else w_0)).sum(-1)
    y_hat = filters.run_filter(EVERY_FILTER[name], x, y, w_0=w_0)
    agrees(y_hat, filters.run_filter(EVERY_FILTER[name], x, y - known) + known)
    agrees(y_hat[:, 0], known[:, 0])
    if one_a_trial:
        agrees(filters.run_filter(EVERY_FILTER[name], x[2], y[2], w_0=w_0[2]), y_hat[2])
    else:
        assert torch.equal(filters.run_filter(EVERY_FILTER[name], x, y, w_0=w_0.expand(7, 3)), y_hat)


@pytest.mark.parametrize(
    ("name", "lam"),
    [("delta rule", 0.9), ("normalised delta rule", 0.9), ("Kalman", 0.95), ("steady Kalman", 0.95)],
)
def test_initial_weights_fade_where_estimates_do(name, lam):
    """From w_0 the filters that fade predict what they do from 0 on labels less w_0' x lam^i, plus that.

    7 trials of 30 positions; 1e-12 of the largest prediction. For steady Kalman, whose feedback is Lambda w and not
    x x'w, the shifted label's pseudo-observation is not known, and the share of w_0 is computed in numpy.
    """
    x, y = prompts()
    w_0 = torch.randn(7, 3, generator=make_generator("w_0"), dtype=torch.float64)
    y_hat = filters.run_filter(EVERY_FILTER[name], x, y, w_0=w_0)
    if name == "steady Kalman":
        alone = filters.run_filter(EVERY_FILTER[name], x, 0 * y, w_0=w_0)
        eye = torch.eye(3, dtype=torch.float64)
        F = EVERY_FILTER[name].step(filters.Estimate(eye), 0 * eye, 0 * eye[0], 0 * eye[0]).w_hat.numpy()
        powers = np.stack([np.linalg.matrix_power(F, i) for i in range(30)])
        agrees(alone, torch.as_tensor(np.einsum("bti,tij,bj->bt", x, powers, w_0)))
        agrees(y_hat, filters.run_filter(EVERY_FILTER[name], x, y) + alone)
        return
    known = (x * w_0[:, None]).sum(-1) * lam ** torch.arange(30, dtype=torch.float64)
    agrees(y_hat, filters.run_filter(EVERY_FILTER[name], x, y - known) + known)


@pytest.mark.parametrize("name", ["GLA", "window", "zero"])
def test_initial_weights_without_feedback(name):
    """What does not feed errors back adds lam^i w_0'x to its predictions (attention), forgets w_0 with the first
    example (window), or keeps it for ever (zero).

    7 trials of 30 positions; 1e-12 of the largest prediction.
    """
    x, y = prompts()
    w_0 = torch.randn(7, 3, generator=make_generator("w_0"), dtype=torch.float64)
    lam = {"GLA": 0.9, "window": 0.0, "zero": 1.0}[name]
    added = (x * w_0[:, None]).sum(-1) * lam ** torch.arange(30, dtype=torch.float64)
    agrees(filters.run_filter(EVERY_FILTER[name], x, y, w_0=w_0), filters.run_filter(EVERY_FILTER[name], x, y) + added)


@every_filter
def test_a_track_is_what_happened(filter):
    """A track holds the predictions of `run`, bit for bit, errors y - y_hat, bit for bit, and the estimate before every
    label and after all: y_hat_i = w_hat_i'x_i, to 1e-12 of the largest, from w_0 on.

    The estimates are those of the filter stepped by hand, to 1e-12. 7 trials, and one alone.
    """
    x, y = prompts()
    w_0 = torch.randn(7, 3, generator=make_generator("w_0"), dtype=torch.float64)
    track = filters.track(filter, x, y, w_0=w_0)
    assert track.w_hat.shape == (7, 31, 3)
    assert torch.equal(track.y_hat, filters.run_filter(filter, x, y, w_0=w_0))
    assert torch.equal(track.error, y - track.y_hat)
    assert torch.equal(track.w_hat[:, 0], w_0)
    agrees((track.w_hat[:, :-1] * x).sum(-1), track.y_hat)
    for i, state in enumerate(read(filter, x, y, w_0.T)):
        agrees(track.w_hat[:, i], state.w_hat.expand(3, 7).T)
    one = filters.track(filter, x[2], y[2], w_0=w_0[2])
    for part in ("y_hat", "error", "w_hat"):
        agrees(getattr(one, part), getattr(track, part)[2])


@pytest.mark.parametrize("filter", MANY.values(), ids=MANY)
def test_a_track_of_many_settings(filter):
    """With settings, a track has their axes before those of trials; before the first label all estimates are w_0.

    7 trials; bit for bit against `run`, and 1e-12 of the largest between w_hat'x and predictions.
    """
    x, y = prompts()
    w_0 = torch.randn(3, generator=make_generator("w_0"), dtype=torch.float64)
    track = filters.track(filter, x, y, w_0=w_0)
    assert track.y_hat.shape == track.error.shape == (*filter.settings, 7, 30)
    assert track.w_hat.shape == (*filter.settings, 7, 31, 3)
    assert torch.equal(track.y_hat, filters.run_filter(filter, x, y, w_0=w_0))
    assert torch.equal(track.error, y - track.y_hat)
    assert torch.equal(track.w_hat[..., 0, :], w_0.expand(*filter.settings, 7, 3))
    agrees((track.w_hat[..., :-1, :] * x).sum(-1), track.y_hat)


one_or_many = pytest.mark.parametrize(
    "filter", [*EVERY_FILTER.values(), *MANY.values()], ids=[*EVERY_FILTER, *(f"many {name}" for name in MANY)]
)


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("cache", [1, 10, 40])
@one_or_many
def test_blocks_make_no_difference(filter, cache, monkeypatch):
    """However little the cache is said to hold, and so however few trials and steps make a block, a run and a track are
    the same.

    4 trials of 12 positions, in blocks of one trial and one step upwards, with w_0 of their own; 1e-12 of the largest,
    because short sums may be added up in another order.
    """
    x, y = (a[:, :12] for a in prompts(4))
    w_0 = torch.randn(4, 3, generator=make_generator("w_0"), dtype=torch.float64)
    whole = filters.track(filter, x, y, w_0=w_0)
    monkeypatch.setattr(filters, "_CACHE", cache)
    parts = filters.track(filter, x, y, w_0=w_0)
    agrees(parts.y_hat, whole.y_hat)
    agrees(parts.w_hat, whole.w_hat)
    agrees(filters.run_filter(filter, x, y, w_0=w_0), whole.y_hat)


@every_filter
def test_layout_in_memory_makes_no_difference(filter):
    """Arrays with trials last in memory, as results have them, are predicted like arrays with trials first, and so are
    views of larger arrays; none of them is changed.

    Bit for bit: blocks are copied to one layout.
    """
    x, y = prompts()
    before = x.clone(), y.clone()
    y_hat = filters.run_filter(filter, x, y)
    last = x.permute(1, 2, 0).contiguous().permute(2, 0, 1), y.T.contiguous().T
    assert not last[0].is_contiguous()
    assert torch.equal(filters.run_filter(filter, *last), y_hat)
    views = torch.stack([x, -x], -1)[..., 0], torch.stack([y, -y], -1)[..., 0]
    assert torch.equal(filters.run_filter(filter, *views), y_hat)
    assert torch.equal(filters.run_filter(filter, x, y_hat), filters.run_filter(filter, x, y_hat.contiguous()))
    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])


def test_settings_on_two_axes():
    """Settings of shapes (2, 1, 1) and (3, 1) are tried in all pairs: (2, 3, trials, time), each as it is alone, with
    the same trials for all and with trials for each.

    7 trials, 1e-12 of the largest prediction.
    """
    x, y = prompts()
    lam = torch.tensor([[[0.8]], [[0.95]]], dtype=torch.float64)
    mu = torch.tensor([[0.01], [0.05], [0.1]], dtype=torch.float64)
    filter = filters.delta_rule(mu, lam=lam)
    assert filter.settings == (2, 3)
    shared = filters.run_filter(filter, x, y)
    p = UNEQUAL_DRIFT.sample(42, generator=make_generator("own"), dtype=torch.float64)
    own_x, own_y = p.x.reshape(2, 3, 7, 30, 3), p.y.reshape(2, 3, 7, 30)
    own = filters.run_filter(filter, own_x, own_y)
    assert shared.shape == own.shape == (2, 3, 7, 30)
    for at in np.ndindex(2, 3):
        alone = filters.delta_rule(mu[at[1]].item(), lam=lam[at[0]].item())
        agrees(shared[at], filters.run_filter(alone, x, y))
        agrees(own[at], filters.run_filter(alone, own_x[at], own_y[at]))
    half = filters.run_filter(filter, own_x[:, :1], own_y[:, :1])
    assert half.shape == (2, 3, 7, 30)
    agrees(half[1, 2], filters.run_filter(filters.delta_rule(0.1, lam=lam[1].item()), own_x[1, 0], own_y[1, 0]))


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    "make",
    [
        filters.lms,
        filters.nlms,
        functools.partial(filters.delta_rule, lam=0.9),
        functools.partial(filters.delta_rule, 0.05),
        functools.partial(filters.normalised_delta_rule, 0.5),
        functools.partial(filters.apa, K=2, eps=0.1),
        functools.partial(filters.rls, eps=0.01),
    ],
    ids=["LMS", "NLMS", "delta mu", "delta lam", "normalised lam", "APA", "RLS"],
)
def test_gradients_flow_through_a_run(make):
    """The gradient of the squared error with respect to a setting, the labels and the initial weights is what central
    differences give.

    torch.autograd.gradcheck at its own tolerances (steps 1e-6, absolute error 1e-5) on 2 trials of 5 positions; the
    setting's gradient is not 0.
    """
    x, y = (a[:2, :5] for a in prompts())
    keyword = "lam" if "lam" not in getattr(make, "keywords", {}) and getattr(make, "args", ()) else None

    def loss(setting, y, w_0):
        filter = make(**{keyword: setting}) if keyword else make(setting)
        return (filters.run_filter(filter, x, y, w_0=w_0) - y).square().mean()

    setting = torch.tensor([[0.3]], dtype=torch.float64, requires_grad=True)
    w_0 = torch.ones(3, dtype=torch.float64, requires_grad=True)
    leaves = (setting, y.clone().requires_grad_(), w_0)
    assert torch.autograd.gradcheck(loss, leaves)
    assert all(gradient.abs().max() > 1e-3 for gradient in torch.autograd.grad(loss(*leaves), leaves))


@every_filter
def test_gradients_with_respect_to_inputs(filter):
    """The gradient of the squared error with respect to the inputs is what central differences give.

    torch.autograd.gradcheck at its own tolerances on one trial of 4 positions.
    """
    x, y = (a[:1, :4] for a in prompts())
    assert torch.autograd.gradcheck(
        lambda x: (filters.run_filter(filter, x, y) - y).square().mean() + 0 * x.sum(), x.clone().requires_grad_()
    )


@every_filter
def test_one_position_and_one_dimension(filter):
    """A single position is predicted from w_0 alone, whatever its label; in one dimension a run goes through."""
    x, y = (a[:, :1] for a in prompts())
    w_0 = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    agrees(filters.run_filter(filter, x, y, w_0=w_0), (x * w_0).sum(-1))
    assert filters.track(filter, x, y, w_0=w_0).w_hat.shape == (7, 2, 3)
    if filter not in (EVERY_FILTER["Kalman"], EVERY_FILTER["steady Kalman"], EVERY_FILTER["GLA"]):
        assert filters.run_filter(filter, x[..., :1], y).shape == (7, 1)


def test_a_divergence_hidden_by_blocks_is_found(monkeypatch):
    """A diverging trial in a late block is named with its position, the first over all blocks; finite predictions whose
    sum overflows are not taken for a divergence.

    6 trials in blocks of one; the planted sum is of predictions of 1e308.
    """
    monkeypatch.setattr(filters, "_CACHE", 1)
    x, y = prompts(6)
    x[4, 10], y[4, 10:] = 1e200, 1e200
    with pytest.raises(FloatingPointError, match="diverged: its prediction at position 11 of series 4 is not finite"):
        filters.run_filter(filters.lms(0.05), x, y)
    large = filters.run_filter(
        filters.zero(), torch.ones_like(x), 0 * y, w_0=torch.tensor([1e308, 0, 0], dtype=x.dtype)
    )
    assert (large == 1e308).all()


def test_what_is_not_finite_and_unread_is_refused():
    """An x that is not finite is refused though no label after it is predicted wrongly, at the last position too, and a
    y at the last position though no one reads it.
    """
    for position in (0, 12, 29):
        for bad in (float("nan"), float("inf")):
            for name in "xy":
                given = dict(zip("xy", prompts(3), strict=True))
                given[name][1, position] = bad
                with pytest.raises(ValueError, match=f"{name} must be finite, got {bad}"):
                    filters.run_filter(filters.lms(0.05), **given)


# Streaming


@every_filter
def test_a_stream_is_a_run(filter):
    """One example after another, `update` gives the predictions of `run_filter`, for one series and for four side by
    side; 1e-12 of the largest.
    """
    p = UNEQUAL_DRIFT.sample(4, generator=make_generator("stream"), dtype=torch.float64)
    right = filters.run_filter(filter, p.x, p.y)
    for x, y, expected in ((p.x[0], p.y[0], right[0]), (p.x.permute(1, 2, 0), p.y.T, right.T)):
        assert (streamed(filter, x, y)[0] - expected).abs().max() <= 1e-12 * right.abs().max()


@pytest.mark.usefixtures("as_installed")
@every_filter
def test_a_stream_refuses_what_would_spoil_its_state(filter):
    """`update` refuses an input or label that is not finite, an input of another length or dtype, and labels of
    another shape, all by name; the state is as it was.
    """
    x, y = torch.ones(3, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)
    state = filter.init(0 * x)
    *_, state = filter.update(state, x, y)
    before = state.w_hat.clone()
    nan = float("nan")
    for bad_x, bad_y, says in (
        (x[:1], y, r"x must have shape \(3, \*trials\) to match the state, got \(1,\)"),
        (x[0], y, r"x must have shape \(3, \*trials\)"),
        (x[:, None], y[None], "x must have shape"),
        (x.float(), y.float(), "x must have dtype torch.float64 to match the state"),
        (x.tolist(), y, "x must be a torch.Tensor"),
        (x * nan, y, "x must be finite, got nan"),
        (x, y * nan, "y must be finite, got nan: for a missing label"),
        (x, y[None], r"y must have shape \(\) to match x"),
        (x, y.float(), "y must have dtype torch.float64 to match x"),
        (x, 1.0, "y must be a torch.Tensor"),
    ):
        with pytest.raises(ValueError, match=says):
            filter.update(state, bad_x, bad_y)
    assert torch.equal(state.w_hat, before)


def test_the_example_of_update():
    """The example in the docstring of `Filter.update` says what comes out."""
    (example,) = doctest.DocTestFinder().find(filters.Filter.update, "update", globs=dict(vars(filters)))
    assert doctest.DocTestRunner().run(example).failed == 0


def test_a_stream_that_diverges_is_refused():
    """In streaming use too a prediction that is not finite is an error that says why."""
    one = torch.ones(2, dtype=torch.float64)
    for filter, says in ((filters.lms(1e200), "the filter diverged"), (filters.rls(0.5, eps=1e-2), "faded_ridge")):
        with pytest.raises(filters.FilterFailure, match=says):
            functools.reduce(lambda state, _: filter.update(state, one, one[0])[1], range(60), filter.init(0 * one))


@one_or_many
@pytest.mark.parametrize("cache", [filters._CACHE, 30])
def test_a_run_goes_on_where_another_stopped(filter, cache, monkeypatch):
    """From a pickled filter and its pickled last state, in blocks of trials too: the same to the last bit."""
    monkeypatch.setattr(filters, "_CACHE", cache)
    x, y = prompts()
    whole = filters.run_filter(filter, x, y)
    begun = filters.track(filter, x[:, :11], y[:, :11])
    filter, state = pickle.loads(pickle.dumps((filter, begun.state)))
    assert torch.equal(filters.run_filter(filter, x[:, 11:], y[:, 11:], state=state), whole[..., 11:])


@every_filter
def test_a_missing_label_teaches_nothing(filter):
    """Whatever stands there: estimates are those of zero inputs there, and its own prediction is of its own input."""
    x, y = prompts()
    mask = torch.rand(y.shape, generator=make_generator("mask")) > 0.3
    run = filters.track(filter, x, torch.where(mask, y, torch.nan), mask=mask)
    agrees(run.w_hat, filters.track(filter, x * mask[..., None], y * mask).w_hat)
    agrees(run.y_hat, (run.w_hat[..., :-1, :] * x).sum(-1))
