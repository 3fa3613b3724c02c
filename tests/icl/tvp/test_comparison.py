"""The table of methods, judged on rows that none has learnt from."""

import numpy as np
import pandas as pd
import pytest

from icl import TVPRegression
from icl.tvp.comparison import rolling

N, KNOWN = 90, 40
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 2))
Y = 3 + X[:, 0] * (1 + 0.2 * RNG.standard_normal(N).cumsum()) - X[:, 1] + 0.5 * RNG.standard_normal(N)
Y[::11] = np.nan


def test_errors_are_those_of_later_labels():
    """Each method once; a model's error, the last label's and constant coefficients' by hand; later labels choose no
    setting.
    """
    model = TVPRegression(known=KNOWN).fit(X, Y)
    table = model.compare()
    assert table.index.tolist()[0] == "last label"
    assert table.index.is_unique
    later, variance = slice(KNOWN, None), np.nanvar(Y[:KNOWN])
    still = TVPRegression("none", known=KNOWN).fit(X, Y)
    last = pd.Series(Y).shift().ffill().to_numpy()
    for name, mean in (
        ("this model", model.predictions_),
        ("constant coefficients", still.predictions_),
        ("last label", last),
    ):
        np.testing.assert_allclose(table["error"][name], np.nanmean((Y - mean)[later] ** 2) / variance, rtol=1e-12)
    other = TVPRegression(known=KNOWN).fit(X, np.where(np.arange(N) < KNOWN, Y, Y[::-1]))
    assert other.compare()["setting"].tolist() == table["setting"].tolist()


def test_a_rolling_window_is_least_squares_on_its_rows():
    """Ten labelled rows before each row, or all there are, by numpy's lstsq: 1e-9."""
    mean, sd = rolling(X, Y, 10)
    for t in range(6, N):
        rows = np.flatnonzero(np.isfinite(Y[:t]))[-10:]
        w = np.linalg.lstsq(X[rows], Y[rows], rcond=None)[0]
        noise = ((Y[rows] - X[rows] @ w) ** 2).sum() / (len(rows) - 2)
        P = np.linalg.inv(X[rows].T @ X[rows])
        np.testing.assert_allclose((mean[t], sd[t]), (X[t] @ w, (noise * (1 + X[t] @ P @ X[t])) ** 0.5), rtol=1e-9)


def test_too_few_labels_are_refused():
    """Nothing to judge on, or nothing to tune on."""
    model = TVPRegression("none").fit(X, Y)
    for known in (0.05, 1.0):
        with pytest.raises(ValueError, match="known must leave labels to judge on"):
            model.compare(known=known)
