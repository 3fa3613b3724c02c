"""Many series in one call, against a loop over them."""

import warnings

import numpy as np
import pandas as pd
import pytest

from icl import TVPRegression
from icl.tvp._likelihood import Likeliest

LENGTHS = {"north": 90, "south": 60, 7: 120}


def series(labels=1, seed=0):
    """Rows of three series of unlike length and scale, mixed, with gaps and uneven times: X, y, by, time."""
    rng = np.random.default_rng(seed)
    parts = []
    for scale, (name, n) in zip((1.0, 1e3, 1e-3), LENGTHS.items(), strict=True):
        x = scale * rng.standard_normal((n, 2))
        w = rng.standard_normal((n, labels, 2)).cumsum(0) * (0.0, 0.2)
        y = np.einsum("tmi,ti->tm", w, x) + scale * rng.standard_normal((n, labels))
        y[rng.random(y.shape) < 0.1] = np.nan
        parts.append((x, y, np.full(n, name, object), rng.choice([1, 1, 3], n).cumsum()))
    x, y, by, time = (np.concatenate(part) for part in zip(*parts, strict=True))
    rows = np.argsort(time, kind="stable")
    return x[rows], y[rows] if labels > 1 else y[rows, 0], by[rows], time[rows]


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("labels", [1, 2])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"drift": "shared", "known": 0.6},
        {"drift": 0.1},
        {"drift": [0.1, 0.0, 0.2], "noise": 0.5},
        {"process": "stationary"},
        {"process": "stationary", "gamma": 0.9, "noise": 0.5, "prior_scale": 0.0},
        {"fit_intercept": False, "drift": "none"},
        {"forgetting": "self-tuned"},
    ],
    ids=str,
)
def test_it_is_a_loop(settings, labels, timed):
    """Each series ends as if it had been fitted alone: variances to 1e-9, predictions to 1e-9 of their sd; and so do
    the notes.
    """
    x, y, by, time = series(labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        many = TVPRegression(**settings).fit_each(x, y, by, time if timed else None)
        assert list(many) == list(dict.fromkeys(by))
        for name, model in many.items():
            own = by == name
            alone = TVPRegression(**settings).fit(x[own], y[own], time[own] if timed else None)
            assert model.n_rows_ == LENGTHS[name]
            np.testing.assert_allclose(model.noise_sd_, alone.noise_sd_, rtol=1e-9)
            if not model.forgetting:
                np.testing.assert_allclose(model.drift_sd_, alone.drift_sd_, rtol=1e-9)
            apart = (model.predictions_ - alone.predictions_) / alone.predictions_sd_
            assert abs(apart).max() < 1e-9
            np.testing.assert_allclose(model.predictions_sd_, alone.predictions_sd_, rtol=1e-9)
            assert model.notes_ == alone.notes_


def test_more_series_than_go_side_by_side():
    """Of seventy series, more than one search takes, each gets its own settings."""
    rng = np.random.default_rng(1)
    by = np.repeat(np.arange(70), 20)
    x = rng.standard_normal((1400, 1))
    y = x[:, 0] + (1 + by) * rng.standard_normal(1400)
    many = TVPRegression("none").fit_each(x, y, by)
    for name in (0, 35, 63, 64, 69):
        alone = TVPRegression("none").fit(x[by == name], y[by == name])
        assert many[name].noise_sd_ == pytest.approx(alone.noise_sd_, rel=1e-9)


def test_a_search_that_does_not_settle_is_told_of_its_series(monkeypatch):
    """Only the series whose search did not settle says so."""
    find = Likeliest.find

    def unsettled(search):
        found = find(search)
        search.settled[1] = False  # the shortest series comes first
        return found

    monkeypatch.setattr(Likeliest, "find", unsettled)
    with pytest.warns(RuntimeWarning, match="Series 'north': The search for the likeliest variances did not settle"):
        many = TVPRegression("shared").fit_each(*series()[:3])
    assert [name for name, model in many.items() if any("settle" in note for note in model.notes_)] == ["north"]


def test_frames_keep_their_index_and_series_go_on():
    """Frames come back with the rows' own index; each model goes on by itself, and the one that was asked stays as it
    was.
    """
    x, y, by, time = series()
    table = pd.DataFrame(x, columns=["heat", "wind"], index=pd.Timestamp("2024-01-01") + pd.to_timedelta(time, "D"))
    table = table.set_index(table.index + pd.to_timedelta(np.arange(len(table)), "s"))
    labels, names = pd.Series(y, index=table.index), pd.Series(by, index=table.index)
    settings = TVPRegression("shared", known=40)
    many = settings.fit_each(table, labels, names, time=table.index)
    assert not hasattr(settings, "noise_sd_")
    part = table[by == "south"]
    pd.testing.assert_index_equal(many["south"].coefficients_.index, part.index)
    begun = TVPRegression("shared", known=40).fit_each(table[:150], labels[:150], names[:150], table.index[:150])
    rest = part[part.index > table.index[149]]
    begun["south"].partial_fit(rest, labels[rest.index], rest.index)
    pd.testing.assert_frame_equal(begun["south"].coefficients_, many["south"].coefficients_, check_exact=True)


def test_lists_are_taken():
    """Lists give what arrays give."""
    x, y, by, time = series()
    one = TVPRegression(0.1, noise=1.0).fit_each(x, y, by, time)
    other = TVPRegression(0.1, noise=1.0).fit_each(x.tolist(), y.tolist(), by.tolist(), time.tolist())
    for name in LENGTHS:
        np.testing.assert_array_equal(one[name].coefficients_, other[name].coefficients_)


def test_series_that_cannot_be_fitted_are_left_out_if_asked():
    """With errors="warn" the others are fitted as without them; with "raise" it is said how many are like the first."""
    x, y, by, _ = series()
    bad = np.where((by == "south") | (by == 7), np.nan, y)
    with pytest.raises(ValueError, match=r"label 0 has 0 \(1 others cannot be fitted either\)"):
        TVPRegression("none").fit_each(x, bad, by)
    with pytest.warns(RuntimeWarning, match="Series .* is left out: y must have at least three labels") as told:
        many = TVPRegression("none").fit_each(x, bad, by, errors="warn")
    assert len(told) == 2
    assert list(many) == ["north"]
    alone = TVPRegression("none").fit(x[by == "north"], y[by == "north"])
    np.testing.assert_allclose(many["north"].coefficients_, alone.coefficients_, rtol=1e-9)


def test_refusals_and_warnings_name_the_series():
    """A series that cannot be fitted is named, and so is one that its caller is warned of; labels of other rows and
    names that are missing are refused.
    """
    x, y, by, time = series()
    model = TVPRegression("none")
    few, frame, back = np.where(by == "south", np.nan, y), pd.DataFrame(x), pd.RangeIndex(len(x))[::-1]
    for given, says in (
        ((x, y, "site"), r"of each of 270 rows, as table\['site'\] does, got 'site'"),
        ((x, y, by[1:]), r"by must name the series of each of 270 rows, got shape \(269,\)"),
        ((x, y, np.where(by == 7, None, by)), f"by must name .* each row, row {(by == 7).argmax()} has no name"),
        ((x, y[1:], by), "y must have 270 rows to match X"),
        ((x, few, by), "'south': y must have at least three labels .* label 0 has 0; errors='warn'"),
        ((x, y, by, np.where(by == 7, -time, time)), "series 7: time must not go back"),
        ((frame, pd.Series(y, index=back), by), "y must have the index of X"),
        ((frame, y, pd.Series(by, index=back)), "by must have the index of X"),
        ((frame, y, by, pd.Series(time, index=back)), "time must have the index of X"),
    ):
        with pytest.raises(ValueError, match=says):
            model.fit_each(*given)
    with pytest.raises(ValueError, match="errors must be one of raise, warn"):
        model.fit_each(x, y, by, errors="ignore")
    x[by == "north", 1] = 0
    with pytest.warns(RuntimeWarning, match="Series 'north': Column 1 is 0 in all known rows"):
        model.fit_each(x, y, by)
