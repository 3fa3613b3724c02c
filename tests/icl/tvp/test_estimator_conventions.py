"""Conventions of scikit-learn and of tables, notes on columns, and settings and tables that are refused."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from icl import TVPRegression

N = 60
RNG = np.random.default_rng(0)
INDEX = pd.date_range("2024-03-01", periods=N, freq="D")
X = pd.DataFrame(RNG.standard_normal((N, 2)), columns=["heat", "wind"], index=INDEX)
Y = pd.Series(3 + X["heat"] * (1 + 0.2 * RNG.standard_normal(N).cumsum()) - X["wind"], index=INDEX, name="load")
Y += 0.5 * RNG.standard_normal(N)
GIVEN = {"drift": 0.1, "noise": 0.5}


def fitted(x=X, y=Y, time=None, **settings):
    return TVPRegression(**GIVEN | settings).fit(x, y, time)


def test_settings_are_scikit_learns():
    """Settings are kept as given, cloned, changed by name, and shown where they are no defaults."""
    model = fitted(drift=np.array([0.1, 0.2, 0.3]))
    other = clone(model)
    assert not hasattr(other, "noise_sd_")
    np.testing.assert_array_equal(other.get_params()["drift"], [0.1, 0.2, 0.3])
    assert "drift=array([0.1, 0.2, 0.3])" in repr(model)
    assert repr(TVPRegression()) == "TVPRegression()"
    assert repr(TVPRegression("none", noise=2.0)) == "TVPRegression(drift='none', noise=2.0)"
    assert model.set_params(noise=2.0) is model
    assert model.noise == 2.0
    with pytest.raises(ValueError, match="colour must be one of drift, process"):
        model.set_params(colour=1)
    assert model.fit(X, Y) is model
    assert model.partial_fit(X[:0:-1][:1], [np.nan]) is model


@pytest.mark.parametrize("kind", [np.asarray, lambda a: torch.tensor(np.asarray(a)), lambda a: np.asarray(a).tolist()])
def test_tables_of_all_kinds_are_alike(kind):
    """Frames, arrays, tensors and lists give the same numbers; frames come back as frames of the table's index."""
    frame, other = fitted(), fitted(kind(X), kind(Y))
    assert frame.feature_names_in_.tolist() == ["heat", "wind"]
    assert not hasattr(other, "feature_names_in_")
    assert frame.n_features_in_ == other.n_features_in_ == 2
    for name in ("coefficients_", "coefficients_sd_", "predictions_", "predictions_sd_", "log_likelihood_"):
        np.testing.assert_array_equal(getattr(frame, name), getattr(other, name))
    assert frame.coefficients_.index.equals(INDEX)
    assert list(frame.coefficients_) == ["intercept", "heat", "wind"] == frame.summary().index.tolist()
    assert frame.predictions_.index.equals(INDEX)
    assert other.coefficient_names_ == ["intercept", "x0", "x1"]
    np.testing.assert_array_equal(frame.predict(X[:3]), other.predict(kind(X[:3])))
    assert frame.smooth().sd.index.equals(INDEX)


def test_several_labels_are_each_by_itself():
    """A frame of two labels gives each what it has alone, under (label, coefficient)."""
    y = pd.DataFrame({"a": Y, "b": -2 * Y + X["wind"]})
    both = TVPRegression("shared").fit(X, y)
    for name in y:
        one = TVPRegression("shared").fit(X, y[name])
        np.testing.assert_allclose(both.coefficients_[name], one.coefficients_, rtol=1e-3)
        np.testing.assert_allclose(both.predictions_[name], one.predictions_, rtol=1e-3)
    assert both.predict(X[:3]).shape == (3, 2)
    assert both.summary().index[0] == ("a", "intercept")


def test_a_loop_over_series_is_several_labels_where_inputs_are_the_same():
    """Two sites in one long table, with one site's inputs for both: what the two labels have as columns, to 1e-9."""
    y = pd.DataFrame({"a": Y, "b": X["wind"] - 2 * Y})
    long = pd.concat({site: X.assign(label=y[site]) for site in y}, names=["site"])
    both = TVPRegression(**GIVEN).fit(X, y)
    for site, part in long.sample(frac=1, random_state=0).sort_index(level=1).groupby("site"):
        one = TVPRegression(**GIVEN).fit(part[list(X)], part["label"])
        np.testing.assert_allclose(one.coefficients_, both.coefficients_[site], rtol=1e-9)
        np.testing.assert_allclose(one.predictions_sd_, both.predictions_sd_[site], rtol=1e-9)


def test_dates_are_numbers_of_time():
    """Dates, their text, days as numbers and seconds give the same; a gap of three days is three missing rows."""
    days = np.arange(N) + 5.0
    for time in (INDEX, INDEX.astype(str), days, days * 86400):
        found = fitted(time=time)
        np.testing.assert_allclose(found.coefficients_, fitted().coefficients_, rtol=1e-12)
        np.testing.assert_allclose(found.predict(X[:2], time=time[-1:].repeat(2)), fitted().predict(X[:2], ahead=0))
    kept = (np.arange(N) < 20) | (np.arange(N) > 22)
    gap, missing = fitted(X[kept], Y[kept], INDEX[kept], known=20), fitted(y=Y.where(kept), known=20)
    np.testing.assert_allclose(gap.coefficients_, missing.coefficients_[kept], rtol=1e-12)
    np.testing.assert_allclose(gap.coefficients_sd_, missing.coefficients_sd_[kept], rtol=1e-12)
    with pytest.raises(ValueError, match="time must not go back, row 1"):
        fitted(time=INDEX[::-1])


def test_bool_dummies_and_late_categories_are_taken():
    """pandas' dummies are bool, and a category may first come after the known rows: taken, with a note by name."""
    kind = pd.Series(["a", "b"] * 15 + ["b", "c"] * 15, index=INDEX)
    dummies = pd.get_dummies(kind, drop_first=True)
    assert dummies.dtypes.eq("bool").all()
    with pytest.warns(RuntimeWarning, match="Column 'c' is 0 in all known rows"):
        model = fitted(X.join(dummies), Y + 5 * dummies["c"], known=30)
    assert "'b'" not in str(model.notes_)
    np.testing.assert_allclose(model.coefficients_["c"].iloc[-1], 5, atol=1.5)


def test_columns_that_tell_nothing_are_noted():
    """Collinear columns are named, and predictions are those without the column that adds nothing."""
    double = X.assign(double=2 * X["heat"])
    with pytest.warns(RuntimeWarning, match="Columns 'heat', 'double' are collinear"):
        model = fitted(double, drift="none")
    np.testing.assert_allclose(model.predictions_[10:], fitted(drift="none").predictions_[10:], rtol=1e-3)
    with pytest.raises(ValueError, match=r"column .one. is 1 in all known rows.* fit_intercept=False"):
        fitted(X.assign(one=1.0))
    own = fitted(X.assign(one=1.0), fit_intercept=False)
    assert list(own.coefficients_) == ["heat", "wind", "one"]
    with pytest.warns(RuntimeWarning, match="Column 'late' is 0 in all known rows"):
        fitted(X.assign(late=0.0))


REFUSED = {
    "text column": ({"x": X.assign(day="Monday")}, "column 'day' has dtype .*pandas.get_dummies"),
    "missing input": ({"x": X.assign(heat=X["heat"].where(X.index != INDEX[7]))}, "row 2024-03-08.* column 'heat'"),
    "numbers as text": ({"x": X.astype(str)}, "column 'heat' has dtype .*pandas.to_numeric"),
    "one column as a vector": ({"x": X["heat"]}, r"X must have shape \(rows, columns\).* of one column as of several"),
    "labels in another order": ({"y": Y[::-1]}, "y must have the index of X"),
    "times in another order": ({"time": pd.Series(range(N), INDEX[::-1])}, "time must have the index of X"),
    "no rows": ({"x": X[:0], "y": Y[:0]}, "X must have shape"),
    "one axis": ({"x": Y, "y": Y}, "X must have shape"),
    "lengths": ({"y": Y[:-1]}, "y must have 60 rows to match X"),
    "lengths of two labels": ({"y": pd.concat([Y, Y], axis=1)[:-1]}, "y must have 60 rows of 2 labels to match X"),
    "labels that stand still": ({"y": Y * 0 + 1}, "y must vary"),
    "no labels": ({"y": Y * np.nan}, "y must have at least three labels"),
    "infinite label": ({"y": Y.mask(Y.index == INDEX[7], np.inf)}, "y must be finite or missing"),
    "times too few": ({"time": INDEX[1:]}, "time must have a number"),
    "times missing": ({"time": INDEX.where(INDEX[3] != INDEX)}, "time must be finite, row 3"),
    "process": ({"process": "walk"}, "process must be"),
    "drift by name": ({"drift": "some"}, "drift must be"),
    "drift below 0": ({"drift": -1.0}, "drift must be"),
    "drifts too few": ({"drift": [0.1, 0.2]}, "drift must have one standard deviation for each of 3"),
    "noise": ({"noise": 0.0}, "noise must be"),
    "forgetting above 1": ({"forgetting": 1.1}, "forgetting must be"),
    "forgetting 0": ({"forgetting": 0.0}, "forgetting must be"),
    "forgetting by name": ({"forgetting": "fast"}, "forgetting must be"),
    "known share": ({"known": 1.5}, "known must be"),
    "known count": ({"known": 61}, "known must be"),
    "known too few": ({"known": 3}, "known must leave more rows"),
    "prior": ({"prior_scale": -1.0}, "prior_scale must be"),
    "prior of a walk": ({"prior_scale": 0.0}, "prior_scale must be > 0 without a stationary drift"),
    "prior of a factor": ({"prior_scale": 0.0, "process": "stationary", "forgetting": 0.9}, "prior_scale must be > 0"),
    "gamma": ({"gamma": 1.0, "process": "stationary"}, "gamma must be"),
    "gamma 0": ({"gamma": 0.0, "process": "stationary"}, "gamma must be"),
    "gamma of a walk": ({"gamma": 0.9}, "gamma must be None without process"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_by_name(name):
    """A ValueError names the argument, and row and column where there are."""
    change, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        fitted(**change)


@pytest.mark.parametrize("ask", ["predict", "smooth", "summary", "plot", "compare", "coefficients_", "predictions_"])
def test_before_fit_it_says_so(ask):
    """In place of a private attribute that is missing; what `fit` finds is not there, as `hasattr` sees."""
    with pytest.raises(AttributeError, match="fit must be called first"):
        getattr(TVPRegression(), ask)(*[X] * (ask == "predict"))


def test_questions_that_cannot_be_answered_are_refused():
    """Ahead below 0, times of the past, both, another width; the past under a forgetting factor."""
    model = fitted()
    for x, change, says in (
        *((X[:1], change, "ahead must be") for change in ({"ahead": -1}, {"ahead": np.nan}, {"time": [3.0]})),
        (X[:1], {"ahead": 1, "time": [99.0]}, "ahead or time"),
        (X[["wind", "heat"]], {}, "X must have the columns heat, wind"),
        ([1.0], {}, r"X must have shape \(rows, 2\)"),
    ):
        with pytest.raises(ValueError, match=says):
            model.predict(x, **change)
    fading = fitted(forgetting=0.9)
    with pytest.raises(ValueError, match="forgetting must be None"):
        fading.smooth()
    with pytest.raises(AttributeError, match="no drift"):
        _ = fading.drift_sd_


def test_the_chart_has_a_panel_for_each_coefficient():
    """The coefficients after each row, or smoothed, by name; along dates if the rows have them."""
    for smooth, x, kind in (
        (False, X, "temporal"),
        (True, X, "temporal"),
        (False, X.reset_index(drop=True), "quantitative"),
    ):
        drawn = fitted(x, Y.to_numpy()).plot(smooth=smooth).to_dict()
        values = pd.DataFrame(next(iter(drawn["datasets"].values())))
        assert set(values["coefficient"]) == {"intercept", "heat", "wind"}
        assert [layer["encoding"]["x"]["type"] for layer in drawn["spec"]["layer"]] == [kind] * 2
