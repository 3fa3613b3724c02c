"""How many labels and coefficients fall into their 90% intervals, on tasks drawn from the model."""

import chance
import numpy as np
import pytest

from icl import TVPRegression

NINETY = 1.6448536269514722
DRIFT, NOISE = np.array([0.1, 0.05, 0.0, 0.2]), 0.5


def shares(seed, known, n=200, **settings):
    """Share of the later labels, and of the later coefficients, that are inside, of one drawn task with gaps.

    Inputs are centred on the known rows, as the intercept drifts where inputs have their known means.
    """
    rng = chance.rng([seed, 47])
    x = rng.standard_normal((n, 3))
    x -= x[:known].mean(0)
    w = 3 * rng.standard_normal(4) + (DRIFT * rng.standard_normal((n, 4))).cumsum(0)
    y = w[:, 0] + (w[:, 1:] * x).sum(1) + NOISE * rng.standard_normal(n)
    seen = np.where(rng.random(n) < 0.2, np.nan, y)
    model = TVPRegression(known=known, **settings).fit(x, seen)
    rows = slice(max(known % n, 20), None)
    label = abs(y - model.predictions_)[rows] <= NINETY * model.predictions_sd_[rows]
    coefficient = abs(w - model.coefficients_)[rows] <= NINETY * model.coefficients_sd_[rows]
    return label.mean(), coefficient.mean()


@pytest.mark.statistical(1)
def test_with_given_variances_nine_of_ten_are_inside():
    """Exactly 90% of labels to come, missing ones too, and of coefficients, over 60 tasks; rate 1e-9.

    Standard errors are .003 and .0075; half as much again is allowed for, as shares are skewed.
    """
    found = [shares(seed, 200, drift=DRIFT, noise=NOISE) for seed in range(60)]
    chance.assert_z((np.mean(found, axis=0) - 0.9) / [0.005, 0.012])


@pytest.mark.statistical(1)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_with_learnt_variances_nearly_nine_of_ten_are_inside():
    """Variances learnt from 300 rows leave 90% of later labels within 2 in a hundred, of coefficients within 8 (a drift
    that is taken for none has intervals that are too short), and chance; rate 1e-9.
    """
    found = np.array([shares(seed, 300, n=400) for seed in range(24)])
    allowed = np.array([0.02, 0.08])
    beyond = np.maximum(abs(found.mean(0) - 0.9) - allowed, 0)
    chance.assert_z(beyond / [0.012, 0.03])
