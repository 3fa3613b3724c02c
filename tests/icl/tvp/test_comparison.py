"""The comparison of a regression with simpler methods."""

import numpy as np
import pytest

from icl import TVPRegression
from icl.tvp._comparison import rolling
from icl.tvp._state_space import FACTORS


def drawn(n=300):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 2))
    y = 1 + x[:, 0] * (1 + 0.1 * rng.standard_normal(n).cumsum()) - x[:, 1] + 0.2 * rng.standard_normal(n)
    y[40:44] = np.nan
    return x, y


def test_a_rolling_window_is_least_squares_on_the_last_labels():
    """Row by row, with the textbook's interval, rtol 1e-9; missing labels are not counted."""
    x, y = drawn(60)
    x = np.column_stack([np.ones(60), x])
    mean, sd = rolling(x, y, 10)
    for t in (5, 30, 45, 59):  # five rows are two more than there are coefficients, the fewest
        seen = np.flatnonzero(np.isfinite(y[:t]))[-10:]
        w, (rss,), _, _ = np.linalg.lstsq(x[seen], y[seen])
        spread = rss / (len(seen) - 3) * (1 + x[t] @ np.linalg.inv(x[seen].T @ x[seen]) @ x[t])
        np.testing.assert_allclose((mean[t], sd[t]), (x[t] @ w, np.sqrt(spread)), rtol=1e-9)


def test_methods_are_judged_on_the_rows_that_none_has_learnt_from():
    """Last label by hand: error, gap from the model, and coverage; the model's own predictions from a fit so far."""
    x, y = drawn()
    model = TVPRegression(known=100).fit(x, y)
    table = model.compare()
    last = np.array([y[:t][np.isfinite(y[:t])][-1] for t in range(1, 300)])
    errors, variance = (y[100:] - last[99:]) ** 2, np.nanvar(y[:100])
    row = table.loc["last label"]
    assert row["error"] == pytest.approx(errors.mean() / variance)
    own = (y - model.predictions_)[100:] ** 2
    assert table.loc["this model", "error"] == pytest.approx(own.mean() / variance, rel=1e-6)
    assert row["gap"] == pytest.approx((errors - own).mean() / variance, rel=1e-6)
    assert (table.loc["this model", ["gap", "gap s.e."]] == 0).all()
    assert table["error"].idxmin() == "this model"
    assert 0.8 < table.loc["this model", "coverage"] <= 1


def test_without_rows_to_judge_on_there_is_no_comparison():
    """Nor without known ones."""
    x, y = drawn()
    for known in (0.001, 0.999):
        with pytest.raises(ValueError, match=r"^known must"):
            TVPRegression().fit(x, y).compare(known=known)


def test_later_labels_choose_no_setting():
    """Window and factor are tuned on the known rows: other labels afterwards leave them as they are."""
    x, y = drawn()
    settings = [
        TVPRegression(known=100).fit(x, labels).compare()["setting"].tolist()
        for labels in (y, np.where(np.arange(300) < 100, y, y[::-1]))
    ]
    assert settings[0] == settings[1]


def test_window_and_factor_are_those_of_least_error_on_the_known_rows():
    """The choice is the same as with every candidate run over the whole table."""
    x, y = drawn()
    table = TVPRegression(known=100).fit(x, y).compare()
    judged = np.isfinite(y) & (np.arange(300) > 6) & (np.arange(300) < 100)
    lengths = np.unique(np.geomspace(5, 50, 12).astype(int)).tolist()
    windows = {n: rolling(np.column_stack([np.ones(300), x]), y, n)[0] for n in lengths}
    plain = {"known": 100, "drift": "none", "process": "random walk", "noise": None}
    faded = {lam: TVPRegression(**plain, forgetting=lam).fit(x, y).predictions_ for lam in FACTORS[1:]}
    for method, predictions in (("rolling window", windows), ("forgetting factor", faded)):
        errors = {setting: ((y - mean)[judged] ** 2).mean() for setting, mean in predictions.items()}
        assert table.loc[method, "setting"] == min(errors, key=lambda setting: errors[setting])
