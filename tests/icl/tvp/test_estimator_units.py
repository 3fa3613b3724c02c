"""Units of columns, labels and times change predictions by these units alone."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from icl import TVPRegression

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 3))
Y = (X * (1 + 0.1 * RNG.standard_normal((120, 3)).cumsum(0))).sum(1) + 4 + 0.3 * RNG.standard_normal(120)
Y[::9] = np.nan
TIME = RNG.choice([1, 1, 3], 120).cumsum().astype(float)
DRIFT, NOISE = np.array([0.02, 0.1, 0.1, 0.0]), 0.3
MODELS = {
    "given": {"drift": DRIFT, "noise": NOISE},
    "factor": {"forgetting": 0.97},
    "self-tuned": {"forgetting": "self-tuned"},
    "constant": {"drift": "none", "known": 60},
    "learnt": {},
    "stationary": {"process": "stationary"},
}
#: Of a prediction's error: the search stops at a small win in likelihood, where rounding decides how soon.
ERROR = {"learnt": 2e-3, "stationary": 3e-2}
powers = st.floats(-8, 8).map(lambda power: 10.0**power)
five = {"min_size": 5, "max_size": 5}


@pytest.mark.parametrize("name", MODELS)
@given(by=st.lists(powers, **five), shift=st.lists(st.floats(-100, 100), **five))
@settings(max_examples=4, deadline=None, derandomize=True, phases=[Phase.generate])
def test_units_change_nothing_else(name, by, shift):
    """Columns, labels and time times 1e-8 to 1e8, and shifted by up to 100 spreads: predictions, their errors, slopes
    and the likelihood change as the units do, to 1e-6, as a shift of 100 spreads costs 2 of 16 digits and the prior's
    variance of 1e4 four.

    With variances that are learnt, to 2 thousandths of a prediction's error, and 3 hundredths where the drift is
    stationary: the time constant of a walk that never turns is any long one.
    """
    by, shift, change = np.array(by), np.array(shift), dict(MODELS[name])
    if name == "given":
        change = {"drift": DRIFT * by[3] / np.append(1, by[:3]), "noise": NOISE * by[3]}
    model = TVPRegression(**MODELS[name]).fit(X, Y, TIME)
    other = TVPRegression(**change).fit((X + shift[:3]) * by[:3], (Y + shift[3]) * by[3], (TIME + shift[4]) * by[4])
    error = ERROR.get(name, 1e-6)
    scale, slope = model.predictions_sd_[8:], model.coefficients_sd_[8:, 1:]
    assert (abs(other.predictions_[8:] / by[3] - shift[3] - model.predictions_[8:]) <= error * scale).all()
    assert (abs(other.predictions_sd_[8:] / by[3] - scale) <= error * scale).all()
    assert (abs(other.coefficients_[8:, 1:] * by[:3] / by[3] - model.coefficients_[8:, 1:]) <= error * slope).all()
    likelihood = other.log_likelihood_ + np.isfinite(Y).sum() * np.log(by[3])
    np.testing.assert_allclose(likelihood, model.log_likelihood_, rtol=2e-4 if name == "stationary" else 1e-6)


def test_daily_returns_as_decimals_have_the_slope_of_least_squares():
    """Returns of 1%, not in percent: without drift the slope is that of least squares, to the prior's share."""
    market, stock = returns()
    model = TVPRegression("none").fit(market, stock)
    right = np.linalg.lstsq(np.column_stack([np.ones(250), market]), stock, rcond=None)[0]
    np.testing.assert_allclose(model.coefficients_[-1], right, rtol=1e-5)


def returns():
    """A year of daily returns as decimals: the market, and labels of slope 1.2 to it."""
    rng = np.random.default_rng(0)
    market = 0.01 * rng.standard_normal((250, 1))
    return market, 1.2 * market[:, 0] + 0.005 * rng.standard_normal(250)


def wandering():
    """Labels of two coefficients that drift, of about unit scale."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((80, 2))
    w = np.cumsum(np.vstack([rng.standard_normal(2), 0.2 * rng.standard_normal((79, 2))]), 0)
    return x, (x * w).sum(1) + 0.5 * rng.standard_normal(80)


@pytest.mark.parametrize("series", [returns, wandering])
@pytest.mark.parametrize(("labels", "inputs"), [(1e4, 1.0), (1.0, 1e-2), (1e4, 1e-2), (1e-6, (1e3, 1e-5))])
def test_units_do_not_change_the_likeliest_drift_about_0(series, labels, inputs):
    """Other units of labels, of all inputs, of each: the same gamma, drift and noise in these units, and a density of
    labels by the change of units, which is no less than that of coefficients that stand still. rtol 1e-4, the search's
    own; of the likelihood 1e-9.
    """
    x, y = series()
    inputs = np.resize(inputs, x.shape[1])
    about_0 = {"drift": "shared", "process": "stationary", "prior_scale": 0.0}
    model, other = (TVPRegression(**about_0).fit(x * a, y * b) for a, b in ((1.0, 1.0), (inputs, labels)))
    assert other.gamma_ == pytest.approx(model.gamma_, rel=1e-4)
    assert other.noise_sd_ == pytest.approx(labels * model.noise_sd_, rel=1e-4)
    np.testing.assert_allclose(other.drift_sd_, labels / np.append(1, inputs) * model.drift_sd_, rtol=1e-4)
    density = other.log_likelihood_ + len(y) * np.log(labels)
    assert density == pytest.approx(model.log_likelihood_, rel=1e-9)
    sizes = y.std() / np.append(1, x.std(0))
    still = [
        TVPRegression(s * sizes, process="stationary", gamma=np.exp(-1e-5), prior_scale=0.0).fit(x, y).log_likelihood_
        for s in (0.1, 1.0, 10.0)
    ]
    assert density >= max(still)
