"""The room of real series against joint Gaussian laws and sums written out."""

import warnings

import mpmath
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from icl import filters
from icl.experiments.evaluation import series_risks
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


def exact(x, y, drift):
    """Log likelihood, and the weights given all labels, as one joint Gaussian in 60 digits."""
    n, d = x.shape
    with mpmath.workdps(60):
        gamma, q, s2 = (mpmath.mpf(float(value)) for value in (drift.gamma, drift.q, drift.s2))
        rows = [[mpmath.mpf(float(value)) for value in row * np.asarray(drift.scale)] for row in x]
        variance = [mpmath.mpf(1)]
        for _ in range(n - 1):
            variance.append(gamma**2 * variance[-1] + q)
        k = [[gamma ** abs(s - t) * variance[min(s, t)] for t in range(n)] for s in range(n)]
        products = [[mpmath.fdot(one, other) for other in rows] for one in rows]
        joint = mpmath.matrix(n, n)
        for s in range(n):
            for t in range(n):
                joint[s, t] = k[s][t] * products[s][t] + (s2 if s == t else 0)
        labels = mpmath.matrix([mpmath.mpf(float(value)) for value in y])
        solved = mpmath.lu_solve(joint, labels)
        likelihood = -(n * mpmath.log(2 * mpmath.pi) + mpmath.log(mpmath.det(joint)) + mpmath.fdot(labels, solved)) / 2
        mean = [[mpmath.fsum(k[t][s] * rows[s][j] * solved[s] for s in range(n)) for j in range(d)] for t in range(n)]
        return float(likelihood), np.array(mean, dtype=float) * drift.scale


@pytest.mark.parametrize(
    "drift",
    [
        *(Drift(1, 0, s2) for s2 in (1e-8, 1e-12, 1e-16)),
        *(Drift(0.9, 1e-12, s2) for s2 in (1e-8, 1e-16, 1e-24)),
        *(Drift(1, 1e-16, 1e-16), Drift(1, 0, 1e-4, scale=1e5), Drift(0.95, 1e-9, 1e-6, scale=(1e5, 1.0))),
        *(Drift(0, 0, 1), Drift(0, 0, 1e-16), Drift(0.5, 0, 1e-4)),
    ],
)
def test_precise_labels_and_wide_priors_lose_no_digits(drift):
    """Where labels are up to 1e16 times as precise as the prior, and where weights are known to be 0, likelihood and
    smoothed weights are those of 60 digits. rtol 1e-9, and what float64 leaves of s where q = 0: 1e-16 / s.
    """
    rng = np.random.default_rng(0)
    x = rng.standard_normal((10, 2))
    y = x @ np.array([1.0, 2.0]) + min(drift.s2**0.5, 0.1) * rng.standard_normal(10)
    likelihood, mean = exact(x, y, drift)
    path = smoothed(x, y, drift)
    width = np.max(drift.scale) / drift.s2**0.5
    rtol = max(1e-9, 1e-16 * width if drift.q == 0 else 0.0)
    assert path.log_likelihood == pytest.approx(likelihood, rel=rtol)
    np.testing.assert_allclose(path.mean, mean, rtol=rtol, atol=rtol)
    assert (np.linalg.eigvalsh(path.covariance) >= 0).all()


def test_three_labels_of_one_direction():
    """After labels 1 and 0 of a direction of wide prior, the third is expected at their mean, 1/2, however wide the
    prior, and beside a direction that is not seen at all. abs 1e-3 s.
    """
    x = np.array([[1.0, 0.0]] * 3)
    for drift in (Drift(1.0, 0.0, 1e-6, scale=1e3), Drift(1.0, 0.0, 1e-6, scale=1e5), Drift(1.0, 0.0, 1e-14)):
        answers = (filtered(x, np.array([1.0, 0.0, 0.0]), drift).mean * x).sum(1)
        np.testing.assert_allclose(answers, [0.0, 1.0, 0.5], atol=1e-6)


@pytest.mark.parametrize(("kappa", "sigma"), [(1e6, 0.01), (1e8, 0.01), (1e8, 0.1), (1e10, 1.0)])
def test_one_constant_weight_is_the_mean_of_its_labels(kappa, sigma):
    """After n labels 1 + noise of one direction, the weight is sum y / (n + sigma^2 / kappa). rtol 1e-9."""
    y = 1 + sigma * np.random.default_rng(0).standard_normal(2000)
    x = np.tile([1.0, 0.0], (2001, 1))
    path = filtered(x, np.append(y, 0.0), Drift(1.0, 0.0, sigma**2, scale=kappa**0.5))
    assert path.mean[-1, 0] == pytest.approx(y.sum() / (2000 + sigma**2 / kappa), rel=1e-9)


def test_noise_that_float64_cannot_tell_from_none_is_refused():
    """Noise of 1e-22 of the prior's, with weights that stand still, by name."""
    with pytest.raises(ValueError, match=r"^drift must have s2 of at least 1e-20 .* got Drift"):
        filtered(X, Y, Drift(1.0, 0.0, 1e-22))


def test_scales_are_units_of_the_weights():
    """Scales are taken out by inputs in these units: one number or one for each weight, mean, covariance. rtol 1e-9."""
    scale = np.array([0.01, 1.0, 30.0])
    for law in (filtered, smoothed):
        inside = law(X * scale, Y, Drift(0.9, 0.2, 0.3))
        path = law(X, Y, Drift(0.9, 0.2, 0.3, scale=tuple(scale)))
        assert path.log_likelihood == pytest.approx(inside.log_likelihood, rel=1e-9)
        np.testing.assert_allclose(path.mean, inside.mean * scale, rtol=1e-9)
        np.testing.assert_allclose(path.covariance, inside.covariance * np.outer(scale, scale), rtol=1e-9, atol=1e-15)
        once = law(X, Y, Drift(0.9, 0.2, 0.3, scale=30.0))
        np.testing.assert_array_equal(once.mean, law(X, Y, Drift(0.9, 0.2, 0.3, scale=(30.0,) * 3)).mean)


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


def returns():
    """A year of daily returns as decimals: an intercept, the market, and labels of slope 1.2 to it."""
    rng = np.random.default_rng(0)
    market = 0.01 * rng.standard_normal(250)
    return np.column_stack([np.ones(250), market]), 1.2 * market + 0.005 * rng.standard_normal(250)


def test_decimals_are_searched_as_well_as_percents():
    """Of daily returns as decimals the likeliest drift has at least the likelihood of weights that stand still under
    N(0, I), about 955.7 (a search from fixed starts ended at 727.9), and so has that of the same in ten-thousandths.
    """
    x, y = returns()
    still = max(filtered(x, y, Drift(1.0, 0.0, s2)).log_likelihood for s2 in np.linspace(2e-5, 3e-5, 11))
    assert still == pytest.approx(955.7, abs=0.05)
    for factor in (1.0, 1e4):
        likelihood = filtered(x, factor * y, most_likely(x, factor * y)).log_likelihood
        assert likelihood + len(y) * np.log(factor) >= still


def wandering():
    """Labels of two weights that drift, of about unit scale."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((80, 2))
    w = np.cumsum(np.vstack([rng.standard_normal(2), 0.2 * rng.standard_normal((79, 2))]), 0)
    return x, (x * w).sum(1) + 0.5 * rng.standard_normal(80)


@pytest.mark.parametrize("series", [returns, wandering])
@pytest.mark.parametrize(("labels", "inputs"), [(1e4, 1.0), (1.0, 1e-2), (1e4, 1e-2), (1e-6, (1e3, 1e-5))])
def test_units_do_not_change_the_likeliest_drift(series, labels, inputs):
    """Other units of labels, of all inputs, of each: the same gamma and q, s2 and scale in these units, and a density
    of labels by the change of units. rtol 1e-4, the search's own; of the likelihood 1e-9.
    """
    x, y = (values[:80] for values in series())
    inputs = np.broadcast_to(inputs, 2)
    drift, other = most_likely(x, y), most_likely(x * inputs, y * labels)
    assert (other.gamma, other.q) == pytest.approx((drift.gamma, drift.q), rel=1e-4)
    assert other.s2 == pytest.approx(labels**2 * drift.s2, rel=1e-4)
    np.testing.assert_allclose(other.scale, labels / inputs * drift.scale, rtol=1e-9)
    likelihoods = (
        filtered(x, y, drift).log_likelihood - len(y) * np.log(labels),
        filtered(x * inputs, y * labels, other).log_likelihood,
    )
    assert likelihoods[1] == pytest.approx(likelihoods[0], rel=1e-9)


def test_weights_that_stand_still_are_found_as_such():
    """Of labels by constant weights the search returns a drift without any that lasts, and no noise warns by name."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((200, 2))
    y = x @ np.array([1.0, -0.5]) + 0.3 * rng.standard_normal(200)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drift = most_likely(x, y)
    best = filtered(x, y, drift).log_likelihood
    for s2 in np.linspace(0.07, 0.12, 11):
        assert filtered(x, y, Drift(1.0, 0.0, s2, drift.scale)).log_likelihood <= best + 1e-6
    with pytest.warns(RuntimeWarning, match=r"^s2 = 1e-08.*edge of the search"):
        most_likely(x, x @ np.array([1.0, -0.5]))
    with pytest.raises(ValueError, match=r"^y must not be 0 throughout"):
        most_likely(x, 0 * y)


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


def test_white_inputs_are_a_function_of_the_inputs_alone():
    """Columns in another order or with another sign give white columns in this order, with this sign; other units give
    the same. No eigenvectors would. rtol 1e-9.
    """
    rng = np.random.default_rng(6)
    inputs = rng.standard_normal((60, 4)) @ rng.standard_normal((4, 4)) + 3
    labels = rng.standard_normal(60)
    x = prepare(inputs, labels, 0.5).x[:, 1:]
    order, signs, units = [2, 0, 3, 1], np.array([-1.0, 1.0, -1.0, -1.0]), np.array([1e-3, 1.0, 50.0, 1e4])
    np.testing.assert_allclose(prepare(inputs[:, order], labels, 0.5).x[:, 1:], x[:, order], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(prepare(inputs * signs, labels, 0.5).x[:, 1:], x * signs, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(prepare(inputs * units, labels, 0.5).x[:, 1:], x, rtol=1e-9, atol=1e-9)


def test_white_inputs_are_stable_where_eigenvalues_are_equal():
    """Inputs whose correlations have equal eigenvalues, moved by 1e-12, move x by less than 1e-6; x is near inputs."""
    rng = np.random.default_rng(7)
    apart = np.linalg.qr(np.column_stack([np.ones(40), rng.standard_normal((40, 3))]))[0][:, 1:]
    inputs = np.vstack([apart, rng.standard_normal((20, 3))])
    labels = rng.standard_normal(60)
    x = prepare(inputs, labels, 2 / 3).x
    for _ in range(5):
        moved = prepare(inputs + 1e-12 * rng.standard_normal((60, 3)), labels, 2 / 3).x
        assert np.abs(moved - x).max() < 1e-6
    np.testing.assert_allclose(x[:, 1:], inputs * 40**0.5, atol=1e-9)


TABLE = pd.DataFrame(
    {"hot": RNG.standard_normal(30), "count": RNG.integers(0, 9, 30), "working": RNG.integers(0, 2, 30).astype(bool)}
)
LABELS = pd.Series(RNG.standard_normal(30))


@pytest.mark.parametrize(
    "form",
    [
        lambda table: table,
        lambda table: table.convert_dtypes(),
        lambda table: table.convert_dtypes(dtype_backend="pyarrow"),
        lambda table: table.to_numpy(float),
        lambda table: torch.as_tensor(table.to_numpy(float, copy=True)),
    ],
    ids=["numpy and bool", "nullable", "arrow", "array", "tensor"],
)
def test_frames_of_every_kind_are_arrays(form):
    """Numbers in a frame's columns of any numeric type, in an array and in a tensor are the same series, and the same
    drift, path, errors. Exact.
    """
    inputs, labels = form(TABLE), form(LABELS)
    series, expected = prepare(inputs, labels, 0.6), prepare(TABLE.to_numpy(float), LABELS.to_numpy(), 0.6)
    np.testing.assert_array_equal(series.x, expected.x)
    np.testing.assert_array_equal(series.y, expected.y)
    values, truth = TABLE.to_numpy(float), LABELS.to_numpy()
    for law in (filtered, smoothed):
        np.testing.assert_array_equal(law(inputs, labels, DRIFTS[0]).mean, law(values, truth, DRIFTS[0]).mean)
    assert most_likely(inputs, labels) == most_likely(values, truth)
    assert mean_and_error(labels, lags=2) == mean_and_error(truth, lags=2)
    risks = [series_risks(y, {"zero": 0 * y, "half": y / 2}, since=3, against="zero") for y in (labels, truth)]
    pd.testing.assert_frame_equal(*risks)


def test_what_is_wrong_with_a_table_is_said_by_column():
    """Missing values, texts, an intercept, a constant and a sum of others, by the column's name, in one short line."""
    late = TABLE.assign(late=[0.0] * 20 + [1.0] * 10)
    cases = {
        r"inputs must be finite, got 2 missing in column 'hot'": TABLE.assign(hot=[np.nan, np.nan, *TABLE.hot[2:]]),
        r"inputs must be finite, got 1 missing in column 'count'": TABLE.assign(
            count=pd.array([None, *TABLE["count"][1:]], dtype="Int64")
        ),
        r"inputs must be real, got dtype \w+ in column 'name'": TABLE.assign(name=["1"] * 30),
        r"inputs must have no intercept, column 'one' is constant: prepare adds the intercept itself, drop it": (
            TABLE.assign(one=0.1)
        ),
        r"known must reach rows where every column varies, got 0.6: column 'late' is constant there": late,
        r"known must reach rows that tell .*: of columns 'hot', 'count', 'both' one is a sum of others there": (
            TABLE.assign(both=TABLE.hot + TABLE["count"])
        ),
    }
    for message, table in cases.items():
        with pytest.raises(ValueError, match=f"^{message}") as refused:
            prepare(table, LABELS, 0.6)
        assert "\n" not in str(refused.value)
        assert len(str(refused.value)) < 200
    with pytest.raises(ValueError, match=r"^inputs must be real, got a ndarray of shape"):
        prepare(TABLE.astype(object).to_numpy(), LABELS, 0.6)
    with pytest.raises(ValueError, match=r"^inputs must have no intercept, column 1 is constant"):
        prepare(np.column_stack([TABLE.hot, np.full(30, 0.1)]), LABELS, 0.6)


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
