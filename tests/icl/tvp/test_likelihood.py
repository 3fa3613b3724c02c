"""The likelihood that the search climbs, and where it ends."""

import numpy as np
import pytest

from icl import TVPRegression
from icl.tvp._likelihood import Likeliest


def table(n=150, labels=1, seed=0, drift=(0.0, 0.2)):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 2))
    w = rng.standard_normal((n, labels, 2)).cumsum(0) * drift
    y = np.einsum("tmi,ti->tm", w, x) + [2] * labels + 0.5 * rng.standard_normal((n, labels))
    y[rng.random(y.shape) < 0.1] = np.nan
    return x, y if labels > 1 else y[:, 0], rng.choice([1, 1, 2], n).cumsum()


@pytest.mark.parametrize("prior_scale", [1.0, 100.0, 1000.0])
@pytest.mark.parametrize("process", ["random walk", "stationary"])
def test_the_search_and_the_filter_have_one_likelihood(process, prior_scale):
    """Covariances of the search and roots of the filter give the same log-likelihood, with gaps and times, to 1e-8."""
    x, y, time = table(labels=2)
    model = TVPRegression(process=process, prior_scale=prior_scale).fit(x, y, time)
    s = model._units
    z, labels = s.inputs(x), (y - s.label_mean) / s.label_scale
    q, gamma = model._model.q[:, :3], model._model.gamma
    elapsed = np.diff(time, prepend=time[0]).astype(float)
    search = Likeliest(z, labels, elapsed, "per coefficient", gamma is not None, prior_scale**2, None)
    rate = [] if gamma is None else [-np.log(gamma)[:, None]]
    with np.errstate(divide="ignore"):
        if rate:  # what a stationary drift gains a unit of time
            q = q * -np.expm1(-2 * rate[0])
        theta = np.log(np.concatenate([q, *rate, model._model.noise[:, None]], axis=1))
    found = search.run(theta[:, None])[0][:, 0] - np.isfinite(y).sum(0) * np.log(s.label_scale)
    np.testing.assert_allclose(found, model.log_likelihood_, rtol=1e-8)


def log_likelihood(drift, data, noise):
    return TVPRegression(drift, noise=noise).fit(*data).log_likelihood_


@pytest.mark.parametrize("seed", range(3))
def test_it_ends_at_a_maximum(seed):
    """A Newton step from where the search ends would win less than 1e-5 in log-likelihood, and no drift of 0 would win
    by drifting; 200 random settings, from a tenth to ten times what was found, are no better.
    """
    data = table(seed=seed, drift=(0.1, 0.2))
    model = TVPRegression().fit(*data)
    found, best = np.append(model.drift_sd_, model.noise_sd_), model.log_likelihood_
    np.testing.assert_allclose(log_likelihood(found[:-1], data, found[-1]), best, rtol=1e-12)
    for i in range(len(found)):
        if not found[i]:
            small = found.copy()
            small[i] = 1e-3
            assert log_likelihood(small[:-1], data, small[-1]) < best
            continue
        low, high = (found * np.where(np.arange(len(found)) == i, f, 1) for f in (0.99, 1.01))
        low, high = (log_likelihood(each[:-1], data, each[-1]) for each in (low, high))
        slope, bend = (high - low) / 0.02, (2 * best - high - low) / 0.01**2
        assert bend > 0
        assert slope**2 / bend / 2 < 1e-5
    rng = np.random.default_rng(seed)
    for _ in range(200):
        other = np.maximum(found, 1e-2) * 10 ** rng.uniform(-1, 1, len(found))
        assert log_likelihood(other[:-1], data, other[-1]) < best


@pytest.mark.parametrize("seed", range(3))
def test_a_stationary_search_ends_where_no_neighbour_is_likelier(seed):
    """About 0, no drift 20% away in its rate, its variance or the noise is likelier, nor is the truth."""
    rng, truth = np.random.default_rng(seed), (0.97, 0.4, 0.3)
    x, w = rng.standard_normal((200, 2)), truth[1] * rng.standard_normal(2)
    y = np.empty(200)
    for t, row in enumerate(x):
        y[t] = row @ w + truth[2] * rng.standard_normal()
        w = truth[0] * w + truth[1] * np.sqrt(1 - truth[0] ** 2) * rng.standard_normal(2)
    x, y = x / np.sqrt((x**2).mean(0)), y / (unit := np.sqrt((y**2).mean()))
    about_0 = {"process": "stationary", "prior_scale": 0.0, "fit_intercept": False}
    model = TVPRegression("shared", **about_0).fit(x, y)

    def likelihood(gamma, drift, noise):
        return TVPRegression(drift, gamma=gamma, noise=noise, **about_0).fit(x, y).log_likelihood_

    found = model.gamma_, model.drift_sd_[0], model.noise_sd_
    assert likelihood(*found) == pytest.approx(best := model.log_likelihood_, rel=1e-12)
    for factor in (0.8, 1.25):
        assert likelihood(np.exp(factor * np.log(found[0])), *found[1:]) < best
        assert likelihood(found[0], factor * found[1], found[2]) < best
        assert likelihood(*found[:2], factor * found[2]) < best
    assert likelihood(truth[0], truth[1] / unit, truth[2] / unit) < best
    one = TVPRegression("shared", gamma=0.9, **about_0).fit(x, y)
    assert one.gamma_ == 0.9
    assert likelihood(0.9, 1.1 * one.drift_sd_[0], one.noise_sd_) < one.log_likelihood_ < best
    assert likelihood(0.9, one.drift_sd_[0], 1.1 * one.noise_sd_) < one.log_likelihood_


@pytest.mark.one_draw("tables")
def test_a_drift_that_is_none_is_none():
    """Of coefficients that stand still more than a third are found to, exactly, and are named; those that move move."""
    still = []
    for seed in range(12):
        model = TVPRegression().fit(*table(seed=seed))
        assert model.drift_sd_[2] > 0.05
        still += (model.drift_sd_[:2] == 0).tolist()
        assert all(model.drift_sd_[:2][[name in model.notes_[0] for name in ("intercept", "x0")]] < 0.1)
    assert np.mean(still) > 1 / 3


def test_a_bound_is_told():
    """Labels without noise leave the search at its least noise, and it says so."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 2))
    with pytest.warns(RuntimeWarning, match="The noise is the least that is searched, 1e-05 of"):
        model = TVPRegression(drift="none").fit(x, x @ [1, 2])
    assert any("noise" in note for note in model.notes_)
