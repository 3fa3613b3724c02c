"""The room of real series against joint Gaussian laws and sums written out."""

import numpy as np
import pytest
import torch
from scipy import stats

from icl import filters
from icl.tasks import DriftingRegression
from icl.tasks.series import Drift, as_prompt, filtered, mean_and_error, most_likely, prepare, smoothed

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((9, 3)), RNG.standard_normal(9)
DRIFTS = [Drift(0.9, 0.2, 0.3), Drift(1.0, 0.05, 1.5), Drift(0.0, 0.4, 0.7), Drift(1.0, 0.0, 0.2)]


def kernel(drift, time):
    """Covariance of w_s and w_t in each coordinate: var_t = gamma^2 var_{t-1} + q from var_1 = 1."""
    variance = [1.0]
    for _ in range(time - 1):
        variance.append(drift.gamma**2 * variance[-1] + drift.q)
    return np.array([[drift.gamma ** abs(s - t) * variance[min(s, t)] for t in range(time)] for s in range(time)])


@pytest.mark.parametrize("drift", DRIFTS)
def test_likelihood_is_the_joint_density(drift):
    """The product of one-step densities is the density of all labels at once, N(0, k_st x_s'x_t + s2 I). rtol 1e-9."""
    joint = kernel(drift, len(Y)) * (X @ X.T) + drift.s2 * np.eye(len(Y))
    expected = stats.multivariate_normal(np.zeros(len(Y)), joint).logpdf(Y)
    assert filtered(X, Y, drift).log_likelihood == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("drift", DRIFTS)
def test_paths_are_conditional_gaussians(drift):
    """Filtered and smoothed weights are the joint Gaussian conditioned on the labels before, and on all. rtol 1e-9."""
    k = kernel(drift, len(Y))
    joint = k * (X @ X.T) + drift.s2 * np.eye(len(Y))
    before, all_of_them = filtered(X, Y, drift), smoothed(X, Y, drift)
    for path, seen in ((before, range(len(Y))), (all_of_them, [len(Y)] * len(Y))):
        for t, count in enumerate(seen):
            cross = (k[t, :count, None] * X[:count]).T
            gain = np.linalg.solve(joint[:count, :count], cross.T).T
            np.testing.assert_allclose(path.mean[t], gain @ Y[:count], rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(path.covariance[t], k[t, t] * np.eye(3) - gain @ cross.T, rtol=1e-9, atol=1e-12)


def test_the_filter_is_the_librarys():
    """The same predictions as `filters.kalman` with noise in the labels and P_0 = I, a second program. rtol 1e-9."""
    drift = DRIFTS[0]
    task = DriftingRegression(3, 8, gamma=drift.gamma, sigma_e=drift.q**0.5)
    peer = filters.kalman(task, sigma_y=drift.s2**0.5, P_0=1.0)
    expected = filters.run_filter(peer, torch.as_tensor(X), torch.as_tensor(Y))
    np.testing.assert_allclose((filtered(X, Y, drift).mean * X).sum(1), expected, rtol=1e-9, atol=1e-12)


def test_error_of_the_mean_is_the_weighted_double_sum():
    """n^2 times the variance is the sum over all pairs of (1 - |s - t| / (lags + 1)) z_s z_t. rtol 1e-9."""
    off = Y - Y.mean()
    apart = np.abs(np.subtract.outer(np.arange(9), np.arange(9)))
    for lags in (0, 1, 4, 8):
        weights = np.clip(1 - apart / (lags + 1), 0, None)
        mean, error = mean_and_error(Y, lags=lags)
        assert mean == pytest.approx(Y.mean(), rel=1e-12)
        assert error == pytest.approx(np.sqrt(off @ weights @ off) / 9, rel=1e-9)


def test_without_lags_it_is_the_usual_error():
    """With no lags: standard deviation over sqrt(n). rtol 1e-12."""
    assert mean_and_error(Y, lags=0)[1] == pytest.approx(Y.std() / 3, rel=1e-12)


def test_the_search_ends_where_no_neighbour_is_likelier():
    """On a series of its own making, no drift 20% away in one parameter is likelier, nor is the truth."""
    rng, truth = np.random.default_rng(1), Drift(0.98, 0.01, 0.1)
    x, w, y = rng.standard_normal((100, 2)), rng.standard_normal(2), []
    for row in x:
        y.append(row @ w + truth.s2**0.5 * rng.standard_normal())
        w = truth.gamma * w + truth.q**0.5 * rng.standard_normal(2)
    y = np.array(y)
    found = most_likely(x, y)
    best = filtered(x, y, found).log_likelihood
    for factor in (0.8, 1.25):
        others = [
            Drift(max(0.0, 1 - factor * (1 - found.gamma)), found.q, found.s2),
            Drift(found.gamma, factor * found.q, found.s2),
            Drift(found.gamma, found.q, factor * found.s2),
        ]
        assert all(filtered(x, y, other).log_likelihood < best + 1e-2 for other in others)
    assert filtered(x, y, truth).log_likelihood < best


def test_the_known_part_is_white_and_the_rest_does_not_touch_it():
    """Over known rows x has second moments I and y variance 1; labels are answered by turned-back weights alike; later
    rows may be anything without a change before. rtol 1e-9.
    """
    rng = np.random.default_rng(2)
    inputs = rng.standard_normal((50, 3)) @ rng.standard_normal((3, 3)) + 5
    labels = inputs @ np.array([1.0, -2.0, 0.5]) + 3
    series = prepare(inputs, labels, 0.4)
    assert series.known == 20
    known = series.x[:20]
    np.testing.assert_allclose(known.T @ known / 20, np.eye(4), atol=1e-9)
    assert series.y[:20].std() == pytest.approx(1.0, rel=1e-12)
    # Weights go back to the inputs' units through whitening and scale.
    w = np.linalg.lstsq(series.x, series.y)[0]
    np.testing.assert_allclose(series.scale * series.whitening @ w[1:], [1.0, -2.0, 0.5], rtol=1e-9)
    later = inputs.copy()
    later[20:] = 1e6
    np.testing.assert_array_equal(prepare(later, labels, 0.4).x[:20], series.x[:20])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_series_is_one_prompt(dtype):
    """Inputs and labels are the series' own, to rounding of the dtype, and what nobody knows is NaN."""
    rng = np.random.default_rng(3)
    series = prepare(rng.normal(size=(30, 2)), rng.normal(size=30), 0.5)
    prompt = as_prompt(series, dtype=dtype)
    assert (prompt.batch, prompt.n, prompt.d, prompt.x.dtype) == (1, 29, 3, dtype)
    assert torch.equal(prompt.x[0], torch.as_tensor(series.x, dtype=dtype))
    assert torch.equal(prompt.y[0], torch.as_tensor(series.y, dtype=dtype))
    assert bool(prompt.w.isnan().all())
