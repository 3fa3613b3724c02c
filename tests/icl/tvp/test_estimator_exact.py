"""Regression with time-varying coefficients against conditioning of the joint Gaussian law, and against statsmodels."""

from types import SimpleNamespace

import mpmath as mp
import numpy as np
import pytest
import torch
from statsmodels.regression.recursive_ls import RecursiveLS
from statsmodels.tsa.statespace.mlemodel import MLEModel

from icl import TVPRegression, filters
from icl.tasks import DriftingRegression
from icl.tasks.series import prepare
from icl.tvp._state_space import FACTORS

PRIOR = 100.0  # the estimator's default prior_scale
MODELS = {
    "random walk": {},
    "shared": {"drift": "shared"},
    "given": {"drift": [0.3, 0.0, 0.02], "noise": 1.2},
    "stationary": {"process": "stationary"},
    "about 0": {"process": "stationary", "drift": "shared", "prior_scale": 0.0},
    "given, about 0": {"process": "stationary", "drift": 0.2, "gamma": 0.9, "noise": 1.2, "prior_scale": 0.0},
    "constant": {"drift": "none"},
    "without intercept": {"fit_intercept": False},
    "units of the first rows": {"known": 0.6},
}
on_all = pytest.mark.parametrize("name", MODELS)


def table(n=32, labels=2, seed=0):
    """Inputs, labels with gaps, and uneven times, some of them twice; columns of different units."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 2)) * [1, 30] + [2, 100]
    w = rng.standard_normal((n, labels, 2)).cumsum(0) * [0.3, 0.01]
    y = np.einsum("tmi,ti->tm", w, x) + 7 + 1.5 * rng.standard_normal((n, labels))
    y[rng.random(y.shape) < 0.15] = np.nan
    return x, y, 40 + rng.choice([0, 1, 1, 2.5], n).cumsum() * 3.0


def standardised(model, x, y, time, known, label):
    """Rows, labels and variances in the units of the known rows, and the matrix and offset that lead back."""
    intercept, first = model.fit_intercept, slice(0, int(known * len(x)))
    centre = x[first].mean(0) * intercept
    scale = np.sqrt(((x[first] - centre) ** 2).mean(0))
    label_centre = np.nanmean(y[first]) * intercept
    label_scale = np.sqrt(np.nanmean((y[first] - label_centre) ** 2))
    z = (x - centre) / scale
    T = np.diag(label_scale / scale)
    offset = np.zeros(len(scale) + intercept)
    if intercept:
        z = np.column_stack([np.ones(len(z)), z])
        T = np.block([[np.full((1, 1), label_scale), -(label_scale / scale * centre)[None]], [np.zeros((2, 1)), T]])
        offset[0] = label_centre
    step = np.median([s for s in np.diff(time[first]) if s > 0])
    pick = (lambda value: value[label]) if model._several else (lambda value: value)
    return SimpleNamespace(
        x=z,
        y=(y - label_centre) / label_scale,
        T=T,
        offset=offset,
        label_centre=label_centre,
        label_scale=label_scale,
        drift=(pick(model.drift_sd_) / np.diag(T)) ** 2,
        noise=(pick(model.noise_sd_) / label_scale) ** 2,
        gamma=pick(model.gamma_) if model.process == "stationary" else None,
        time=(time - time[0]) / step,
        prior=model.prior_scale,
    )


def conditioned(s):
    """All of the model's results for one label by forward substitution in the covariance of its labels, to 50 digits.

    Row s of L^-1 Cov(y, .) is what the s-th innovation tells, so that sums over s < t, s <= t and all s give what is
    known before a row, after it, and at last.
    """
    n, k = s.x.shape
    here = np.flatnonzero(np.isfinite(s.y))
    exact = np.frompyfunc(mp.mpf, 1, 1)
    time, noise = exact(s.time), mp.mpf(float(s.noise))
    if s.gamma is None:
        kernel = np.minimum.outer(time, time)
    else:
        kernel = np.frompyfunc(lambda lag: mp.mpf(float(s.gamma)) ** lag, 1, 1)(abs(np.subtract.outer(time, time)))
    x = exact(s.x)
    C = exact(np.full((n, n, k), s.prior**2)) + kernel[..., None] * exact(s.drift)  # of b_s[i] with b_t[i]
    labels = (C * x[:, None] * x[None]).sum(-1)[np.ix_(here, here)] + noise * np.eye(len(here), dtype=int)
    # Columns: the labels' covariance, that with the coefficients at all rows, and the labels.
    right = np.concatenate([labels, (x[:, None] * C)[here].reshape(len(here), -1), exact(s.y[here])[:, None]], axis=1)
    for i in range(len(here)):
        right[i] = right[i] / mp.sqrt(right[i, i])
        right[i + 1 :] -= np.outer(right[i, i + 1 : len(here)], right[i])
    G, e = right[:, len(here) : -1].reshape(-1, n, k), right[:, -1]

    def law(rows):
        """Coefficients at rows, and their covariances, each given the first labels."""
        mean = np.array([(e[:told, None] * G[:told, t]).sum(0) for t, told in rows])
        covariance = [np.diag(C[t, t]) - G[:told, t].T @ G[:told, t] for t, told in rows]
        return mean, np.array(covariance)

    def in_table(mean, covariance):
        sd = np.sqrt(np.einsum("ij,tjk,ik->ti", s.T, covariance.astype(float), s.T))
        return mean.astype(float) @ s.T.T + s.offset, sd

    before = np.searchsorted(here, np.arange(n))
    mean, covariance = law(list(zip(range(n), before, strict=True)))
    variance = np.einsum("ti,tij,tj->t", x, covariance, x) + noise
    pivots = np.diag(right).astype(float)
    after = np.searchsorted(here, np.arange(n), side="right")
    return SimpleNamespace(
        after=in_table(*law(list(zip(range(n), after, strict=True)))),
        smooth=in_table(*law([(t, len(here)) for t in range(n)])),
        predictions=(x * mean).sum(1).astype(float) * s.label_scale + s.label_centre,
        predictions_sd=np.sqrt(variance.astype(float)) * s.label_scale,
        log_likelihood=-(e.astype(float) ** 2 + np.log(2 * np.pi * (pivots * s.label_scale) ** 2)).sum() / 2,
    )


def close(found, right, tolerance):
    """Equal to a tolerance of each column's largest value."""
    right = np.asarray(right)
    assert (np.abs(np.asarray(found) - right) <= tolerance * np.abs(right).max(0)).all()


@pytest.mark.parametrize("labels", [1, 2])
@on_all
def test_it_is_the_joint_laws_conditional(name, labels):
    """Coefficients, predictions, likelihood and smoother at 32 uneven times with gaps, by exact conditioning: 1e-9.

    To 50 digits, as the prior's variance is 1e4 times the labels'. About 0 it is that of no means.
    """
    x, y, time = table(labels=labels)
    model = TVPRegression(**MODELS[name]).fit(x, y if labels > 1 else y[:, 0], time)
    pick = (lambda a, i: a[:, i]) if labels > 1 else (lambda a, _: a)
    back = model.smooth()
    for i in range(labels):
        with mp.workdps(50):
            right = conditioned(standardised(model, x, y[:, i], time, MODELS[name].get("known", 1), i))
        close(pick(model.coefficients_, i), right.after[0], 1e-9)
        close(pick(model.coefficients_sd_, i), right.after[1], 1e-9)
        close(pick(model.predictions_, i), right.predictions, 1e-9)
        close(pick(model.predictions_sd_, i), right.predictions_sd, 1e-9)
        close(pick(back.mean, i), right.smooth[0], 1e-9)
        close(pick(back.sd, i), right.smooth[1], 1e-9)
        close(np.atleast_1d(model.log_likelihood_)[i], right.log_likelihood, 1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        *({"drift": "none", "noise": s, "prior_scale": 1.0} for s in (1e-4, 1e-6, 1e-8)),
        *({"drift": 1e-6, "noise": s, "prior_scale": 1.0} for s in (1e-4, 1e-8, 1e-12)),
        *({"drift": "none", "noise": 1e-2, "prior_scale": 1e5}, {"drift": 1e-8, "noise": 1e-8, "prior_scale": 1.0}),
        *({"drift": d, "gamma": 0.9, "noise": 1e-8, "prior_scale": 0.0} for d in (1e-6, 1.0)),
    ],
)
def test_precise_labels_and_wide_priors_lose_no_digits(settings):
    """Where labels are up to 1e24 times as precise as the prior, likelihood and smoothed coefficients are those of 60
    digits: 1e-9, and what float64 leaves of the noise s where nothing drifts, 1e-16 / s of the prior.
    """
    rng = np.random.default_rng(0)
    x, s = rng.standard_normal((12, 2)), settings["noise"]
    y = x @ np.array([1.0, 2.0]) + min(s, 0.1) * rng.standard_normal(12)
    process = "stationary" if "gamma" in settings else "random walk"
    model = TVPRegression(**settings, process=process, fit_intercept=False).fit(x, y)
    with mp.workdps(60):
        right = conditioned(standardised(model, x, y, np.arange(12.0), 1, 0))
    tolerance = max(1e-9, 1e-16 * settings["prior_scale"] / s if settings["drift"] == "none" else 0.0)
    close(model.smooth().mean, right.smooth[0], tolerance)
    assert model.log_likelihood_ == pytest.approx(right.log_likelihood, rel=tolerance)


@pytest.mark.parametrize(("prior", "noise"), [(1e3, 0.01), (1e4, 0.01), (1e4, 0.1), (1e5, 1.0)])
def test_one_constant_coefficient_is_the_mean_of_its_labels(prior, noise):
    """After n labels 1 + noise of one direction, beside another that is not seen, the coefficient is
    sum y / (n + (noise / prior)^2): 1e-9.
    """
    y = 1 + noise * np.random.default_rng(0).standard_normal(2000)
    x = np.tile([1.0, 0.0], (2000, 1))
    with pytest.warns(RuntimeWarning, match="Column 1 is 0"):
        model = TVPRegression("none", noise=noise, prior_scale=prior, fit_intercept=False).fit(x, y)
    share = (noise / prior) ** 2 / np.mean(y**2)
    assert model.coefficients_[-1, 0] == pytest.approx(y.sum() / (2000 + share), rel=1e-9)


@pytest.mark.parametrize(("gamma", "variance", "noise"), [(0.95, 0.3, 0.5), (0.5, 0.02, 0.9), (None, 0.01, 0.5)])
def test_predictions_are_those_of_the_librarys_kalman_filter(gamma, variance, noise):
    """On white inputs, about 0 or of a random walk from N(0, I), they are those of `filters.kalman`: 1e-9."""
    rng = np.random.default_rng(0)
    s = prepare(rng.standard_normal((90, 3)), rng.standard_normal(90).cumsum(), 0.4)
    walk = gamma is None
    settings = {"prior_scale": 1.0} if walk else {"process": "stationary", "gamma": gamma, "prior_scale": 0.0}
    model = TVPRegression(np.sqrt(variance), noise=np.sqrt(noise), known=s.known, **settings).fit(s.x[:, 1:], s.y)
    gain = variance if walk else variance * (1 - gamma**2)
    task = DriftingRegression(4, 89, gamma=gamma or 1.0, sigma_e=gain**0.5)
    peer = filters.kalman(task, sigma_y=noise**0.5, P_0=1.0 if walk else variance)
    expected = filters.run_filter(peer, torch.as_tensor(s.x), torch.as_tensor(s.y))
    np.testing.assert_allclose(model.predictions_, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("factor", [0.8, 0.97, 1.0])
def test_a_forgetting_factor_is_weighted_least_squares(factor):
    """Coefficients after each row minimise the squared errors weighted by factor^age and the prior's share: 1e-9."""
    x, y, time = table(labels=1)
    model = TVPRegression(forgetting=factor, drift="none").fit(x, y[:, 0], time)
    model_of = SimpleNamespace(**vars(model), drift_sd_=np.zeros(3), noise_sd_=model.noise_sd_)
    s = standardised(model_of, x, y[:, 0], time, 1, 0)
    for t in range(len(x)):
        seen = np.flatnonzero(np.isfinite(s.y[: t + 1]))
        weight = factor ** (s.time[t] - s.time[seen]) / s.noise
        P = np.linalg.inv((s.x[seen].T * weight) @ s.x[seen] + factor ** s.time[t] / PRIOR**2 * np.eye(3))
        if t > 5:
            close(model.coefficients_[t], s.T @ P @ (s.x[seen].T * weight) @ s.y[seen] + s.offset, 1e-9)
            close(model.coefficients_sd_[t], np.sqrt(np.diag(s.T @ P @ s.T.T)), 1e-9)


def test_self_tuned_forgetting_mixes_its_factors_by_time():
    """Predictions at uneven times are those of the single factors, mixed by weights that rise with the density of each
    label and fall to the power .99 a unit of time [Raftery, Karny & Ettler 2010], and so are those ahead: 1e-9.
    """
    x, y, time = table(n=60, labels=1)
    y, known = y[:, 0], 50
    model = TVPRegression(forgetting="self-tuned").fit(x[:known], y[:known], time[:known])
    single = [TVPRegression(forgetting=f, drift="none").fit(x[:known], y[:known], time[:known]) for f in FACTORS]
    laws = [(one.predictions_, one.predictions_sd_**2) for one in single]
    steps, weight = np.diff(time, prepend=time[0]) / model.time_unit_, np.zeros(len(FACTORS))

    def mixed(means, variances, weight):
        share = np.exp(weight) / np.exp(weight).sum()
        mean = share @ means
        return mean, np.sqrt(share @ (variances + (means - mean) ** 2))

    for t in range(known):
        weight = weight * 0.99 ** steps[t]
        means, variances = (np.array([law[i][t] for law in laws]) for i in (0, 1))
        found = model.predictions_[t], model.predictions_sd_[t]
        np.testing.assert_allclose(found, mixed(means, variances, weight), rtol=1e-9)
        if np.isfinite(y[t]):
            weight = weight - np.log(variances) / 2 - (y[t] - means) ** 2 / variances / 2
    for ahead in (0.5, 20.0):
        ones = [one.predict(x[known:], return_std=True, ahead=ahead) for one in single]
        means, sd = (np.array([law[i] for law in ones]) for i in (0, 1))
        right = [mixed(*each, weight * 0.99**ahead) for each in zip(means.T, sd.T**2, strict=True)]
        np.testing.assert_allclose(
            model.predict(x[known:], return_std=True, ahead=ahead), np.transpose(right), rtol=1e-9
        )


@pytest.mark.filterwarnings("ignore:Column . is . in all known rows:RuntimeWarning")
@pytest.mark.parametrize("factor", [0.95, 0.6])
def test_forgetting_does_not_explode(factor):
    """A column that is 0 for 2,000 rows, and two constant ones: predictions as without them, and finite coefficients.

    Without a bound variances overflow at .6 after 1,400 rows.
    """
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2100, 3))
    x[:2000, 2] = 0
    y = x @ [1, 2, 3] + 0.1 * rng.standard_normal(2100)
    model = TVPRegression(forgetting=factor, known=500).fit(x, y)
    small = TVPRegression(forgetting=factor, known=500).fit(x[:2000, :2], y[:2000])
    np.testing.assert_allclose(model.predictions_[50:2000], small.predictions_[50:], rtol=1e-6, atol=1e-6)
    assert abs(model.coefficients_[-1, 3] - 3) < 0.5
    ones = np.column_stack([np.ones(2100), 2 * np.ones(2100), x[:, 0]])
    model = TVPRegression(forgetting=factor, fit_intercept=False).fit(ones, y)
    small = TVPRegression(forgetting=factor, fit_intercept=False).fit(ones[:, [0, 2]], y)
    np.testing.assert_allclose(model.predictions_[50:], small.predictions_[50:], rtol=1e-3, atol=1e-3)
    assert abs(model.coefficients_[50:]).max() < 1e3


def test_constant_coefficients_are_statsmodels_recursive_least_squares():
    """Without drift and almost without a prior, coefficients and their errors are RecursiveLS's, to 1e-8.

    Its noise is the squared errors' sum by n - k, as is the likeliest one under a diffuse prior.
    """
    x, y, _ = table(n=60, labels=1)
    y = np.nan_to_num(y[:, 0], nan=9.0)
    right = RecursiveLS(y, np.column_stack([np.ones(len(x)), x])).fit()
    free = TVPRegression(drift="none", prior_scale=1e7).fit(x, y)
    np.testing.assert_allclose(free.noise_sd_**2, right.scale, rtol=1e-3)  # as near as the search goes
    model = TVPRegression(drift="none", prior_scale=1e6, noise=np.sqrt(right.scale)).fit(x, y)
    rows = slice(5, None)
    close(model.coefficients_[rows], right.recursive_coefficients.filtered[:, rows].T, 1e-8)
    covariance = right.recursive_coefficients.filtered_cov[..., rows]
    close(model.coefficients_sd_[rows], np.sqrt(np.einsum("iit->ti", covariance)), 1e-8)


class Varying(MLEModel):
    """Coefficients in statsmodels' state-space form, from a known law."""

    def __init__(self, s):
        k = s.x.shape[1]
        super().__init__(s.y, k_states=k)
        self["design"], self["transition"], self["selection"] = s.x.T[None], np.eye(k), np.eye(k)
        self["state_cov"], self["obs_cov"] = np.diag(s.drift), np.full((1, 1), s.noise)
        self.ssm.initialize_known(np.zeros(k), PRIOR**2 * np.eye(k))


def test_varying_coefficients_are_statsmodels_state_space():
    """Filter, smoother, predictions and likelihood are those of statsmodels' Kalman filter, with gaps: 1e-8."""
    x, y, _ = table(n=80, labels=1)
    model = TVPRegression().fit(x, y[:, 0])
    s = standardised(model, x, y[:, 0], np.arange(80.0), 1, 0)
    right = Varying(s).ssm.smooth()
    back = model.smooth()
    for found, mean, covariance in (
        ((model.coefficients_, model.coefficients_sd_), right.filtered_state, right.filtered_state_cov),
        (back, right.smoothed_state, right.smoothed_state_cov),
    ):
        rows = slice(4, None)  # with covariances kept, its first rows round at the prior's 1e4
        close(found[0][rows], (mean.T @ s.T.T + s.offset)[rows], 1e-8)
        close(found[1][rows], np.sqrt(np.einsum("ij,jkt,ik->ti", s.T, covariance, s.T))[rows], 1e-8)
    close(model.predictions_[4:], right.forecasts[0, 4:] * s.label_scale + s.label_centre, 1e-8)
    close(model.predictions_sd_[4:], np.sqrt(right.forecasts_error_cov[0, 0, 4:]) * s.label_scale, 1e-8)
    close(model.log_likelihood_, right.llf - np.isfinite(s.y).sum() * np.log(s.label_scale), 1e-8)


def test_time_ahead_is_time_without_labels():
    """A prediction h steps ahead is that of a row after h - 1 rows without a label, as are stationary ones: 1e-12."""
    x, y, _ = table(n=40, labels=1)
    for process in ("random walk", "stationary"):
        model = TVPRegression(process=process, drift=[0.5, 0.3, 0.01]).fit(x[:30], y[:30, 0])
        found = model.predict(x[30:], ahead=np.arange(1, 11), return_std=True)
        model.partial_fit(x[30:], np.full(10, np.nan))
        np.testing.assert_allclose(found, (model.predictions_[30:], model.predictions_sd_[30:]), rtol=1e-12)
