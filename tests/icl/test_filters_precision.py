"""Filters where rounding or units decide: diffuse starts, small regularisation, inputs that do not excite all
directions, missing labels; every prediction is right, or refused with those before it at hand.
"""

import mpmath as mp
import numpy as np
import pytest
import torch
from shared import read

from icl import filters
from icl.profile import make_generator
from icl.tasks import DriftingRegression


def tensors(*arrays):
    return (torch.as_tensor(np.asarray(a, dtype=np.float64)) for a in arrays)


def constant(d):
    """Weights that do not move."""
    return DriftingRegression(d=d, n=9, gamma=1.0, sigma_e=0.0)


# Kalman: what counts as known


def test_a_diffuse_direction_does_not_hide_the_others():
    """With sigma_y = 1e-3 and P_0 = 1e6 I, an input seen three times is predicted by the mean of its labels, however
    large the variance of a direction never seen is; and without noise a direction of variance 1e-6 beside one of 1e8
    is known after one label, and not before.

    Right values by hand: 0, 1, (1 + 0) / 2, to the prior's share sigma_y^2 / P_0 = 1e-12; and 0, 1e-3.
    """
    x, y = tensors([[1, 0], [1, 0], [1, 0]], [1, 0, 0])
    found = filters.run_filter(filters.kalman(constant(2), sigma_y=1e-3, P_0=1e6), x, y)
    np.testing.assert_allclose(found, [0, 1, 0.5], rtol=1e-9)
    x, y = tensors([[0, 1], [0, 1]], [1e-3, 1e-3])
    found = filters.run_filter(filters.kalman(constant(2), P_0=np.diag([1e8, 1e-6])), x, y)
    np.testing.assert_allclose(found, [0, 1e-3], rtol=1e-9)


@pytest.mark.parametrize("sigma_y", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("kappa", [1e6, 1e8, 1e10])
def test_a_diffuse_mean_is_the_mean(kappa, sigma_y):
    """The mean of noisy labels from a start of variance kappa, beside a direction never seen: sum y / (n + sigma_y^2 /
    kappa), to 1e-9, at each of 2,000 positions.
    """
    n = 2000
    y = 1 + sigma_y * np.random.default_rng(0).normal(size=n)
    x, labels = tensors(np.stack([np.ones(n), np.zeros(n)], 1), y)
    found = filters.run_filter(filters.kalman(constant(2), sigma_y=sigma_y, P_0=kappa), x, labels)
    right = np.cumsum(y)[:-1] / (np.arange(1, n) + sigma_y**2 / kappa)
    np.testing.assert_allclose(found[1:], right, rtol=1e-9)


@pytest.mark.parametrize("kappa", [1.0, 1e4, 1e8])
@pytest.mark.parametrize("design", ["repeated", "sums", "a category that never comes", "rotated plane"])
def test_without_noise_dependent_inputs_are_recognised(design, kappa):
    """Without noise, from P_0 = kappa I, every prediction is that of the least-norm weights that explain the labels so
    far, by the pseudo-inverse, on inputs that repeat what others said.

    40 examples in 5 dimensions; 1e-9 of the largest label.
    """
    rng = np.random.default_rng(1)
    free = rng.normal(size=(40, 5))
    x = {
        "repeated": free[:3][rng.integers(0, 3, 40)],
        "sums": rng.integers(-2, 3, size=(40, 2)) @ free[:2],
        "a category that never comes": np.eye(5)[rng.integers(0, 4, 40)],
        "rotated plane": free[:, :2] @ np.linalg.qr(rng.normal(size=(5, 5)))[0][:2],
    }[design]
    y = x @ rng.normal(size=5)
    right = [x[i] @ np.linalg.pinv(x[:i], rcond=1e-10) @ y[:i] if i else 0.0 for i in range(40)]
    found = filters.run_filter(filters.kalman(constant(5), P_0=kappa), *tensors(x, y))
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-9 * np.abs(y).max())


def posterior_means(x, y, kappa, noise):
    """Predictions of a constant weight with variance kappa from labels with noise of variance `noise`, in full
    precision.
    """
    d, found = x.shape[1], []
    G, b = mp.eye(d) * (mp.mpf(noise) / mp.mpf(kappa)), mp.zeros(d, 1)
    for row, label in zip(x, y, strict=True):
        h = mp.matrix(row.tolist())
        found.append(float((mp.lu_solve(G, b).T * h)[0]))
        G, b = G + h * h.T, b + h * mp.mpf(float(label))
    return np.array(found)


@pytest.mark.parametrize("ratio", [1e4, 1e8, 1e10])
@pytest.mark.parametrize("design", ["white", "intercept", "a column twice"])
@pytest.mark.parametrize("d", [2, 5])
def test_a_diffuse_start_loses_what_is_said(d, design, ratio):
    """Kalman on inputs of variance 1 is off by at most 1e-15 P_0 / sigma_y^2 of the largest label, as its docstring
    says, or 1e-11 if that is more.
    """
    rng = np.random.default_rng(d)
    x = rng.normal(size=(60, d))
    if design == "intercept":
        x[:, 0] = 1
    if design == "a column twice":
        x[:, 1] = x[:, 0]
    y = x @ rng.normal(size=d) + 0.1 * rng.normal(size=60)
    with mp.workdps(60):
        right = posterior_means(x, y, ratio * 0.01, 0.01)
    found = filters.run_filter(filters.kalman(constant(d), sigma_y=0.1, P_0=ratio * 0.01), *tensors(x, y))
    assert np.abs(found.numpy() - right).max() <= max(1e-15 * ratio, 1e-11) * np.abs(y).max()


@pytest.mark.parametrize(("gamma", "sigma_e"), [(1.0, 0.0), (0.95, 0.3)])
def test_a_missing_label_is_an_input_of_zeros(gamma, sigma_e):
    """Where labels are missing, x = 0 and y = 0 make Kalman's step one of prediction alone: the estimate is the
    Gaussian conditional mean on the labels that were seen.

    60 positions in 3 dimensions, 60 % of the labels seen, noise 0.2; 1e-9 of the largest estimate. Planted: with the
    rows dropped instead, the drift between them is forgotten, and estimates differ where weights drift.
    """
    task = DriftingRegression(d=3, n=59, gamma=gamma, sigma_e=sigma_e)
    p = task.sample(1, generator=make_generator("missing"), dtype=torch.float64)
    x, y = p.x[0].numpy(), p.y[0].numpy() + 0.2 * np.random.default_rng(0).normal(size=60)
    seen = np.random.default_rng(1).random(60) < 0.6
    kernel = task.weight_kernel()
    labels = kernel * (x @ x.T) + 0.04 * np.eye(60)

    def conditional(i):
        past = np.flatnonzero(seen[:i])
        return (kernel[i, past] * x[past].T) @ np.linalg.solve(labels[np.ix_(past, past)], y[past])

    right = np.array([conditional(i) for i in range(60)])
    filter = filters.kalman(task, sigma_y=0.2)
    found = filters.track(filter, *tensors(seen[:, None] * x, seen * y)).w_hat[:-1].numpy()
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-9 * np.abs(right).max())
    dropped = filters.track(filter, *tensors(x[seen], y[seen])).w_hat[:-1].numpy()
    assert (np.abs(dropped - right[seen]).max() > 1e-2) == (gamma < 1)
    gone = torch.as_tensor(np.where(seen, y, np.nan))
    with pytest.raises(ValueError, match="got nan: for a missing label give x = 0 and y = 0"):
        filters.run_filter(filter, torch.as_tensor(x), gone)


# RLS: inputs that do not excite all directions


def sinusoid(n, noise=0.0):
    """Six taps of sin 0.3 t, which excite two directions, and labels with noise."""
    rng = np.random.default_rng(0)
    s = np.sin(0.3 * np.arange(n + 5)) + noise * rng.normal(size=n + 5)
    x = np.lib.stride_tricks.sliding_window_view(s, 6)[:, ::-1].copy()
    return x, x @ rng.normal(size=6) + 0.01 * rng.normal(size=n)


def columns(n, *kinds, wait=0):
    """Constant, white, or first constant and then white columns."""
    rng = np.random.default_rng(0)
    white = rng.normal(size=(n, len(kinds)))
    x = np.stack([c if k == "white" else np.full(n, float(k)) for k, c in zip(kinds, white.T, strict=True)], 1)
    if wait:
        x[wait:, -1] += rng.normal(size=n - wait)
    return x, x @ rng.normal(size=len(kinds)) + 0.1 * rng.normal(size=n)


def turned(x, y):
    """The same in other axes."""
    return x @ np.linalg.qr(np.random.default_rng(3).normal(size=(x.shape[1],) * 2))[0], y


UNEXCITED = {
    "sinusoid, 0.9": (*sinusoid(320), 0.9, 1e-2),
    "sinusoid, 0.99": (*sinusoid(2800), 0.99, 1e-2),
    "a little noise": (*sinusoid(400, 1e-7), 0.9, 1e-2),
    "intercept and constant": (*columns(820, 1, 1 / 3), 0.95, 1e-2),
    "three constants": (*columns(3210, 0.3, 0.7, 1.1, "white"), 0.99, 1e-2),
    "moves late": (*columns(560, 1, 0.7, wait=500), 0.95, 1e-2),
    "comes late": (*turned(*columns(560, "white", "white", 0, wait=500)), 0.95, 1e-2),
    "small eps": (*columns(30, *["white"] * 5), 0.99, 1e-12),
    "short memory": (*columns(30, *["white"] * 10), 0.05, 1e-2),
    "constants, small eps": (*columns(600, 1, 1 / 3), 1.0, 1e-8),
}
EXCITED = {
    "a thousandth of noise": (*sinusoid(600, 1e-3), 0.9, 1e-2),
    "moves in time": (*columns(360, 1, 0.7, wait=300), 0.95, 1e-2),
    "white": (*columns(100, *["white"] * 10), 0.5, 1e-6),
    "constants": (*columns(600, 1, 1 / 3), 1.0, 1e-6),
    "of late": (*turned(*columns(260, "white", "white", 0, wait=200)), 0.95, 1e-2),
}


def discounted(x, y, lam, eps):
    """RLS in full precision."""
    d = x.shape[1]
    P, w, found = [[mp.mpf(i == j) / mp.mpf(eps) for j in range(d)] for i in range(d)], [mp.mpf(0)] * d, []
    for row, label in zip(x, y, strict=True):
        h = [mp.mpf(float(v)) for v in row]
        found.append(mp.fdot(w, h))
        Px = [mp.fdot(p, h) for p in P]
        scale = mp.mpf(lam) + mp.fdot(Px, h)
        w = [a + b * (mp.mpf(float(label)) - found[-1]) / scale for a, b in zip(w, Px, strict=True)]
        P = [[(P[i][j] - Px[i] * Px[j] / scale) / mp.mpf(lam) for j in range(d)] for i in range(d)]
    return np.array(found, dtype=float)


@pytest.mark.parametrize("name", [*UNEXCITED, *EXCITED])
def test_rls_is_right_or_refuses(name):
    """Every prediction that RLS returns or hands over in its error is within 1e-6 of the largest label of the same
    recursion in full precision; on inputs that leave directions unexcited for long it refuses, on others it does not.

    120 digits; lam^-n is 1e14 to 1e40 and rounding multiplies by it. The error says what to do.
    """
    x, y, lam, eps = {**UNEXCITED, **EXCITED}[name]
    with mp.workdps(120):
        right = discounted(x, y, lam, eps)
    filter = filters.rls(lam, eps=eps)
    if name in UNEXCITED:
        with pytest.raises(filters.FilterFailure, match=r"covariance wind-up.*use faded_ridge") as failed:
            filters.run_filter(filter, *tensors(x, y))
        found, position = failed.value.y_hat.numpy(), failed.value.position
        assert f"at position {position} is not finite" in str(failed.value)
        assert np.isfinite(found[:position]).all()
        assert np.isnan(found[position:]).all()
    else:
        found = filters.run_filter(filter, *tensors(x, y)).numpy()
    assert np.nanmax(np.abs(found - right)) <= 1e-6 * np.abs(y).max()


def test_a_refusal_leaves_the_other_series():
    """Of three series of which one leaves a direction unexcited, the error names it and holds the others complete, as
    they are alone; so it does with two forgetting factors at once.
    """
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3, 820, 2)), rng.normal(size=(3, 820))
    x[1] = [1.0, 3.0]
    x, y = tensors(x, y)
    with pytest.raises(filters.FilterFailure, match="of series 1 is not finite") as failed:
        filters.run_filter(filters.rls(0.95, eps=0.01), x, y)
    alone = filters.run_filter(filters.rls(0.95, eps=0.01), x[[0, 2]], y[[0, 2]])
    torch.testing.assert_close(failed.value.y_hat[[0, 2]], alone, rtol=1e-12, atol=1e-12)
    assert failed.value.series == (1,)
    two = filters.rls(torch.tensor([[1.0], [0.95]], dtype=torch.float64), eps=0.01)
    with pytest.raises(filters.FilterFailure, match=r"of series \(1, 1\) is not finite") as failed:
        filters.run_filter(two, x, y)
    torch.testing.assert_close(failed.value.y_hat[1, [0, 2]], alone, rtol=1e-12, atol=1e-12)
    assert failed.value.y_hat[0].isfinite().all()


# Small regularisation


@pytest.mark.parametrize("eps", [1e-8, 1e-12, 1e-16, 1e-20])
@pytest.mark.parametrize("K", [1, 3, 6, 10])
def test_a_window_shorter_than_the_dimensions_interpolates(K, eps):
    """With little regularisation the window's predictions are the least-norm ones on its examples, by the
    pseudo-inverse, while there are fewer than d = 6, and least squares from there on.

    30 noise-free examples with labels up to 8; 1e-9 of the largest and what eps itself costs.
    """
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(30, 6)), rng.normal(size=6)
    y = x @ w
    right = [x[i] @ np.linalg.pinv(x[max(i - K, 0) : i]) @ y[max(i - K, 0) : i] if i else 0.0 for i in range(30)]
    found = filters.run_filter(filters.window(K, eps=eps), *tensors(x, y)).numpy()
    np.testing.assert_allclose(found, right, rtol=0, atol=(1e-9 + 1e3 * eps) * np.abs(y).max())


def test_a_singular_problem_is_named():
    """A column twice, with an eps below rounding, is refused by window and faded ridge with the remedy."""
    x, y = tensors(np.ones((4, 2)), np.ones(4))
    for filter in (filters.window(3, eps=1e-20), filters.faded_ridge(0.5, eps=1e-20)):
        with pytest.raises(filters.FilterFailure, match="singular to rounding; choose a larger eps: its prediction at"):
            filters.run_filter(filter, x, y)


# Units


@pytest.mark.parametrize("unit", [1e2, 1.0, 1e-2, 1e-6])
def test_regularisation_in_proportion_keeps_the_slope(unit):
    """On an intercept and daily returns as decimals, in any unit, filters regularised by a hundredth of the mean square
    of the smaller column find the slope that least squares finds, 1.192 on the last 60 of 250 rows.

    To 0.1 %; planted: an eps of 1e-2, which does not follow the unit, takes more than half of it.
    """
    rng = np.random.default_rng(0)
    m = 0.01 * rng.normal(size=250)
    y = 1.2 * m + 0.005 * rng.normal(size=250)
    x = np.stack([np.ones(250), m], 1)
    root = np.sqrt(0.99 ** np.arange(249.0, -1.0, -1.0))
    last = np.linalg.lstsq(x[-60:], y[-60:])[0][1]
    faded = np.linalg.lstsq(root[:, None] * x, root * y)[0][1]
    assert last == pytest.approx(1.192, abs=1e-3)
    inputs, labels = tensors(unit * x, y)
    eps = 1e-2 * inputs.square().mean(0).min().item()

    def slope(filter):
        return unit * filters.track(filter, inputs, labels).w_hat[-1, 1].item()

    assert slope(filters.window(60, eps=eps)) == pytest.approx(last, rel=1e-3)
    assert slope(filters.rls(0.99, eps=eps)) == pytest.approx(faded, rel=1e-3)
    assert slope(filters.faded_ridge(0.99, eps=eps)) == pytest.approx(faded, rel=1e-3)
    if unit == 1:
        assert slope(filters.window(60, eps=1e-2)) < 0.5 * last


def test_a_refused_setting_is_printed_plainly():
    """The message about a setting prints a number, not numpy's name for its type."""
    with pytest.raises(ValueError, match=r"mu must be finite and > 0, got nan$"):
        filters.lms(np.float64("nan"))


def test_rls_state_is_symmetric_up_to_its_refusal():
    """Up to the position where RLS is refused its P is symmetric to the last bit, and NaN, with the estimate, after."""
    x, y = tensors(*(a[None] for a in columns(400, 1, 3)))
    states = list(read(filters.rls(0.95, eps=0.01), x, y))
    stop = next(i for i, state in enumerate(states) if state.w_hat.isnan().any())
    assert 200 < stop < 376
    assert all(torch.equal(state.P, state.P.transpose(0, 1)) for state in states[:stop])
    assert all(state.w_hat.isnan().all() and state.P.isnan().all() for state in states[stop:])
