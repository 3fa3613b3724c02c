"""Laws that filters keep whatever the data, the sizes and the settings."""

import functools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icl import filters
from icl.profile import streams
from icl.tasks import DriftingRegression
from icl.theory import lms_family as theory

#: A dozen filters times a dozen laws, so a few examples for each pair.
few = settings(max_examples=5)
KINDS = {
    "LMS": lambda d, a, b: filters.lms(0.2 * a / d),
    "NLMS": lambda d, a, b: filters.nlms(1.9 * a, eps=b),
    "delta rule": lambda d, a, b: filters.delta_rule(0.2 * a / d, lam=0.5 + 0.5 * b),
    "normalised delta rule": lambda d, a, b: filters.normalised_delta_rule(1.9 * a, lam=0.5 + 0.5 * b, eps=0.01),
    "APA": lambda d, a, b: filters.apa(a, K=1 + int(4 * b), eps=0.1),
    "RLS": lambda d, a, b: filters.rls(0.5 + 0.5 * a, eps=b),
    "window": lambda d, a, b: filters.window(1 + int(8 * a), eps=b),
    "ridge": lambda d, a, b: filters.ridge(a),
    "faded ridge": lambda d, a, b: filters.faded_ridge(a, eps=b),
    "Kalman": lambda d, a, b: filters.kalman(drift(d, a), sigma_y=b),
    "steady Kalman": lambda d, a, b: filters.steady_kalman(drift(d, 0.99 * a, np.diag(np.linspace(1, 1 + b, d)))),
    "GLA": lambda d, a, b: filters.gla(b * np.tri(d) / d, lam=a),
    "zero": lambda d, a, b: filters.zero(),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def drift(d, gamma, Lambda=None):
    return DriftingRegression(d=d, n=5, gamma=gamma, sigma_e=0.3, Lambda=Lambda)


@st.composite
def data(draw, trials=None):
    """(settings a and b, inputs (trials, time, d), labels (trials, time)) of awkward sizes."""
    d, time = draw(st.integers(1, 5)), draw(st.integers(1, 20))
    trials = trials or draw(st.integers(1, 4))
    generator = streams("properties", seed=draw(st.integers(0, 2**20)))
    x = torch.randn(trials, time, d, generator=generator, dtype=torch.float64)
    y = torch.randn(trials, time, generator=generator, dtype=torch.float64)
    a, b = (draw(st.floats(0.1, 1.0)) for _ in range(2))
    return a, b, x, y


def close(one, other, size=None, rtol=1e-9):
    """Arrays equal to `rtol` of the largest entry of `other`, or of `size`."""
    size = (other if size is None else size).abs().max()
    assert one.shape == other.shape
    assert ((one - other).abs() <= rtol * size).all()


@every_kind
@given(data(), st.floats(-3, 3))
@few
def test_predictions_are_linear_in_labels(kind, drawn, factor):
    """The predictions for y + c z are those for y plus c times those for z, to 1e-9 of the largest of them.

    1 to 5 dimensions, 1 to 20 positions, 1 to 4 trials.
    """
    a, b, x, y = drawn
    run = functools.partial(filters.run_filter, KINDS[kind](x.shape[-1], a, b), x)
    z = torch.flip(y, [0, 1])
    parts = run(y), factor * run(z)
    close(run(y + factor * z), sum(parts), torch.cat(parts))


@every_kind
@given(data(), st.data())
@few
def test_predictions_are_causal_and_trials_independent(kind, drawn, more):
    """Other labels from a position on leave predictions up to it, and other trials, as they were, bit for bit.

    So do other inputs from the next position on.
    """
    a, b, x, y = drawn
    filter = KINDS[kind](x.shape[-1], a, b)
    trial, t = more.draw(st.integers(0, len(x) - 1)), more.draw(st.integers(0, x.shape[1] - 1))
    inputs, labels = x.clone(), y.clone()
    labels[trial, t:], inputs[trial, t + 1 :] = 5.0, -0.5
    before, after = filters.run_filter(filter, x, y), filters.run_filter(filter, inputs, labels)
    assert torch.equal(after[trial, : t + 1], before[trial, : t + 1])
    others = torch.arange(len(x)) != trial
    assert torch.equal(after[others], before[others])


@every_kind
@given(data(trials=2), st.sampled_from([torch.float32, torch.float64]))
@few
def test_predictions_keep_their_dtype_and_shape(kind, drawn, dtype):
    """Predictions have the dtype and the shape of the labels, the estimates one position more; the first prediction is
    0, and what float32 predicts is near what float64 does, to 1e-3 of the largest.
    """
    a, b, x, y = drawn
    filter = KINDS[kind](x.shape[-1], a, max(b, 0.2))
    track = filters.track(filter, x.to(dtype), y.to(dtype))
    assert track.y_hat.dtype == track.w_hat.dtype == track.error.dtype == dtype
    assert track.y_hat.shape == y.shape
    assert track.w_hat.shape == (2, y.shape[1] + 1, x.shape[-1])
    assert not track.y_hat[:, 0].any()
    exact = filters.run_filter(filter, x.to(dtype).double(), y.to(dtype).double())
    close(track.y_hat.double(), exact, torch.cat([exact, y]), rtol=1e-3)


@every_kind
@given(data(), st.sampled_from([-2, -1, 1, 3]))
@few
def test_predictions_do_not_know_the_units_of_labels(kind, drawn, power):
    """Labels in another unit give predictions in that unit, bit for bit for a power of two; so do labels of another
    sign.
    """
    a, b, x, y = drawn
    run = functools.partial(filters.run_filter, KINDS[kind](x.shape[-1], a, b), x)
    assert torch.equal(run(2.0**power * y), 2.0**power * run(y))
    assert torch.equal(run(-y), -run(y))


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("GLA", "steady Kalman")])
@given(data())
@few
def test_predictions_do_not_know_the_axes(kind, drawn):
    """Inputs turned by a rotation are predicted alike, to 1e-9 of the largest: no filter knows the axes, attention and
    the steady filter aside, whose matrices do.
    """
    a, b, x, y = drawn
    d = x.shape[-1]
    turn = torch.as_tensor(np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))[0])
    filter = KINDS[kind](d, a, b)
    expected = filters.run_filter(filter, x, y)
    close(filters.run_filter(filter, x @ turn, y), expected, torch.cat([expected, y]))


LIMITS = {
    "delta rule at lam = 1 is LMS": lambda d, a, b: (
        filters.delta_rule(0.2 * a / d, lam=1.0),
        filters.lms(0.2 * a / d),
    ),
    "normalised delta rule at lam = 1 is NLMS": lambda d, a, b: (
        filters.normalised_delta_rule(a, lam=1.0, eps=b),
        filters.nlms(a, eps=b),
    ),
    "APA of one is NLMS": lambda d, a, b: (filters.apa(a, K=1, eps=b), filters.nlms(a, eps=b)),
    "RLS at lam = 1 is ridge": lambda d, a, b: (filters.rls(1.0, eps=b), filters.ridge(b)),
    "a window without end is ridge": lambda d, a, b: (filters.window(25, eps=b), filters.ridge(b)),
    "Kalman of still weights and noisy labels is ridge": lambda d, a, b: (
        filters.kalman(DriftingRegression(d=d, n=5, gamma=1.0, sigma_w=a, sigma_e=0.0), sigma_y=b),
        filters.ridge((b / a) ** 2),
    ),
    "Kalman sure of its start is zero": lambda d, a, b: (
        filters.kalman(DriftingRegression(d=d, n=5, gamma=a, sigma_e=0.0), sigma_y=b, P_0=0.0),
        filters.zero(),
    ),
    "Kalman of white weights is zero": lambda d, a, b: (filters.kalman(drift(d, 0.0), sigma_y=b), filters.zero()),
    "the steady filter of white weights is zero": lambda d, a, b: (
        filters.steady_kalman(drift(d, 0.0)),
        filters.zero(),
    ),
    "a growing drift so slow that it is still": lambda d, a, b: (
        filters.kalman(drift(d, 1 + 1e-13), sigma_y=b),
        filters.kalman(drift(d, 1.0), sigma_y=b),
    ),
}


@pytest.mark.parametrize("limit", LIMITS)
@given(data())
@few
def test_limits(limit, drawn):
    """Filters that are one at the edge of a setting predict alike there, to 1e-9 of the largest prediction or label."""
    a, b, x, y = drawn
    one, other = (filters.run_filter(filter, x, y) for filter in LIMITS[limit](x.shape[-1], a, b))
    close(one, other, torch.cat([other, y]))


@pytest.mark.parametrize(("form", "mu"), [("delta rule", 0.1), ("normalised delta rule", 0.7)])
@given(data())
@few
def test_fading_comes_on_without_a_jump(form, mu, drawn):
    """Predictions with lam = 1 - 1e-9 are within 1e-6 of those with lam = 1, in units of the largest number.

    At most 20 positions, each losing 1e-9 of estimates, times what errors are amplified in 20 steps.
    """
    *_, x, y = drawn
    make = filters.delta_rule if form == "delta rule" else filters.normalised_delta_rule
    near, at = (
        filters.run_filter(make(mu / (x.shape[-1] if mu < 0.5 else 1), lam=lam), x, y) for lam in (1 - 1e-9, 1.0)
    )
    close(near, at, torch.cat([at, y]), rtol=1e-6)


@given(data())
@few
def test_in_one_dimension_least_squares_is_a_ratio(drawn):
    """In one dimension ridge predicts x_i sum x y / (eps + sum x^2), and the window the same over its last examples.

    To 1e-9 of the largest prediction or label.
    """
    a, b, x, y = drawn
    x = x[..., :1]
    xy, xx = (torch.nn.functional.pad(v[:, :-1], (1, 0)) for v in (x[..., 0] * y, x[..., 0] ** 2))
    expected = x[..., 0] * xy.cumsum(1) / (b + xx.cumsum(1))
    close(filters.run_filter(filters.ridge(b), x, y), expected, torch.cat([expected, y]))
    K = 1 + int(8 * a)
    recent = [torch.stack([v[:, max(i - K + 1, 0) : i + 1].sum(1) for i in range(v.shape[1])], 1) for v in (xy, xx)]
    expected = x[..., 0] * recent[0] / (b + recent[1])
    close(filters.run_filter(filters.window(K, eps=b), x, y), expected, torch.cat([expected, y]))


@given(st.integers(1, 12), st.floats(0.0, 0.99), st.floats(0.05, 2.0), st.floats(0.01, 1.0), st.floats(0.3, 1.0))
@few
def test_settled_errors_keep_their_laws(d, gamma, sigma_e, share, lam):
    """No step and no fading errs less than the closed form of the best, nor than sigma_e^2 d, the spread of what is not
    known yet; the best normalised filter errs less than the best other; and errors scale with sigma_e^2 and Lambda.

    Gaussian inputs, steps up to the limit; rtol 1e-12.
    """
    task = DriftingRegression(d=d, n=3, gamma=gamma, sigma_e=sigma_e)
    *_, normalised = theory.best_steady(task, normalised=True)
    *_, other = theory.best_steady(task)
    assert d * sigma_e**2 * (1 - 1e-12) <= normalised <= other * (1 + 1e-12)
    mu = share * 2 / (d + 2)
    found = theory.steady_error(task, mu, lam=lam)
    assert found >= other * (1 - 1e-12)
    assert theory.steady_error(task, 2 * share, lam=lam, normalised=True) >= normalised * (1 - 1e-12)
    scaled = DriftingRegression(d=d, n=3, gamma=gamma, sigma_e=sigma_e / 2, Lambda=16 * np.eye(d))
    np.testing.assert_allclose(theory.steady_error(scaled, mu / 16, lam=lam), 4 * found, rtol=1e-12)
