"""Rows one by one, in blocks, and after a break: the same, to the last bit, as all at once."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest

from icl import TVPRegression

N, KNOWN = 60, 30
MODELS = {
    "random walk": {},
    "stationary": {"process": "stationary", "noise": 1.0},
    "factor": {"forgetting": 0.97},
    "self-tuned": {"forgetting": "self-tuned"},
}
on_all = pytest.mark.parametrize("name", MODELS)


def table(labels, timed, seed=0):
    """Inputs, labels with gaps, and times or none."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((N, 2)) * [1, 1e4] + [0, 3e4]
    y = rng.standard_normal((N, labels)) + x @ [[1.0] * labels, [1e-4] * labels]
    y[rng.random(y.shape) < 0.2] = np.nan
    time = 0.1 * rng.integers(0, 4, N).cumsum() if timed else None
    return x, y if labels > 1 else y[:, 0], time


def rows(data, part):
    return [None if each is None else each[part] for each in data]


def results(model):
    """All that a model tells, as one tuple of arrays."""
    ahead = model.predict([[0.3, 2e4], [1.0, 1e4]], return_std=True, ahead=[1, 3.5])
    last = vars(model)["_state"]
    told = (model.coefficients_, model.coefficients_sd_, model.predictions_, model.predictions_sd_)
    return [np.asarray(each) for each in (*told, model.log_likelihood_, *ahead, *last, model.summary())]


def assert_same(model, other):
    for ours, theirs in zip(results(model), results(other), strict=True):
        assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("labels", [1, 3])
@on_all
def test_row_by_row_is_all_at_once(name, labels, timed):
    """Single rows, blocks, and `fit` of all rows end with the same bits; so do a pickled and a copied model."""
    data = table(labels, timed)
    whole = TVPRegression(**MODELS[name], known=KNOWN).fit(*data)
    single = TVPRegression(**MODELS[name], known=KNOWN).fit(*rows(data, slice(0, KNOWN)))
    blocks, resumed = copy.deepcopy(single), copy.deepcopy(single)
    for t in range(KNOWN, N):
        single.partial_fit(*rows(data, t))
        if t % 7 == 0:
            resumed = pickle.loads(pickle.dumps(resumed))
        resumed.partial_fit(*rows(data, slice(t, t + 1)))
    for part in (slice(KNOWN, 41), slice(41, 42), slice(42, N)):
        blocks.partial_fit(*rows(data, part))
    for other in (single, blocks, resumed):
        assert_same(whole, other)


@pytest.mark.parametrize("labels", [1, 3])
@on_all
def test_a_row_is_predicted_as_it_will_be_learnt(name, labels):
    """What `predict` says of the next row, at its time or so many units ahead, `partial_fit` then expects: 1e-12."""
    x, y, time = table(labels, True)
    model = TVPRegression(**MODELS[name], known=KNOWN).fit(x[:KNOWN], y[:KNOWN], time[:KNOWN])
    for t in range(KNOWN, N):
        found = model.predict(x[t], return_std=True, time=time[t])
        np.testing.assert_allclose(model.predict(x[t], time=time[t]), found[0], rtol=1e-12)
        ahead = (time[t] - time[t - 1]) / model.time_unit_
        np.testing.assert_allclose(model.predict(x[[t, t]], return_std=True, ahead=ahead), np.repeat(found, 2, 1))
        model.partial_fit(x[t], y[t], time[t])
        expected = model.predictions_[[-1]], model.predictions_sd_[[-1]]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("labels", [1, 3])
@on_all
def test_a_late_label_is_learnt_from_a_copy_that_was_kept(name, labels):
    """The copy from before its row takes the rows since again, and is, to the last bit, what it would be by then."""
    (x, y, time), late = table(labels, True), KNOWN + 5
    y[late] = 7.0
    whole = TVPRegression(**MODELS[name], known=KNOWN).fit(x, y, time)
    model = TVPRegression(**MODELS[name], known=KNOWN).fit(x[:late], y[:late], time[:late])
    kept = copy.deepcopy(model)
    for t in range(late, N):
        model.partial_fit(x[t], y[t] if t > late else np.nan * y[t], time[t])
    assert (np.asarray(model.summary()) != np.asarray(whole.summary())).any()
    assert_same(kept.partial_fit(x[late:], y[late:], time[late:]), whole)


def test_a_stream_may_keep_nothing():
    """Without a path the state is the same, no row is kept, and what needs one says so."""
    data = table(1, True)
    whole, short = (TVPRegression(known=KNOWN, keep_path=keep) for keep in (True, False))
    whole.fit(*rows(data, slice(0, KNOWN)))
    short.fit(*rows(data, slice(0, KNOWN)))
    for t in range(KNOWN, N):
        whole.partial_fit(*rows(data, t))
        short.partial_fit(*rows(data, t))
    assert len(pickle.dumps(short)) < 5000 < len(pickle.dumps(whole))
    np.testing.assert_array_equal(whole.predict(data[0]), short.predict(data[0]))
    for ask in ("coefficients_", "predictions_", "log_likelihood_"):
        with pytest.raises(ValueError, match="keep_path must be True"):
            getattr(short, ask)
    with pytest.raises(ValueError, match="keep_path must be True"):
        short.smooth()


BAD = {
    "no input": (lambda x, y, t: (np.where(np.eye(2)[[1, 0]] > 0, np.nan, x), y, t), r"X must be finite, row .*'b'"),
    "no input in a column": (lambda x, y, t: (x.assign(b=np.nan), y, t), "row 130 has none in column 'b'"),
    "no number": (lambda x, y, t: (x.assign(b="text"), y, t), "column 'b'"),
    "a column less": (lambda x, y, t: (x[["a"]], y, t), "columns a, b"),
    "columns swapped": (lambda x, y, t: (x[["b", "a"]], y, t), "columns a, b"),
    "infinite label": (lambda x, y, t: (x, y.mask(y.index == y.index[1], np.inf), t), "y must be finite or missing"),
    "text label": (lambda x, y, t: (x, y.astype(str) + "!", t), "y must"),
    "labels too few": (lambda x, y, t: (x, y[:1], t), "y must have 2 rows"),
    "time back": (lambda x, y, t: (x, y, t - 1000), "time must not go back"),
    "time back inside": (lambda x, y, t: (x, y, t[::-1] + np.array([5, 0])), "time must not go back, row 1"),
    "no time": (lambda x, y, t: (x, y, None), "time must be given"),
    "no such time": (lambda x, y, t: (x, y, t * [1, np.nan]), "time must be finite"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_changes_nothing(name):
    """Two rows of which one is bad are refused by name of row and column, and the state is as before, to the bit."""
    x, y, time = table(1, True)
    x, y = pd.DataFrame(x, columns=["a", "b"], index=range(100, 100 + N)), pd.Series(y, index=range(100, 100 + N))
    y = y.fillna(0.0)
    first, then = slice(0, KNOWN), slice(KNOWN, KNOWN + 2)
    model = TVPRegression(known=KNOWN).fit(x[first], y[first], time[first])
    before = copy.deepcopy(model)
    bad, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        model.partial_fit(*bad(x[then], y[then], time[then]))
    assert pickle.dumps(results(model)) == pickle.dumps(results(before))
    model.partial_fit(x[then], y[then], time[then])
    before.partial_fit(x[then], y[then], time[then])
    assert_same(model, before)


SCALARS = {
    "no input": (([1.0, np.nan], 1.0, 9.0), "X must be finite, row 0 has none in column 1"),
    "infinite input": (([1.0, np.inf], 1.0, 9.0), "X must be finite, row 0 has none in column 1"),
    "infinite label": (([1.0, 2.0], -np.inf, 9.0), "y must be finite or missing"),
    "no time": (([1.0, 2.0], 1.0, np.nan), "time must be finite"),
    "time back": (([1.0, 2.0], 1.0, 0.0), "time must not go back"),
}


@pytest.mark.parametrize("name", SCALARS)
def test_a_bad_row_of_plain_numbers_changes_nothing(name):
    """A vector, a label and a time, which take the shortest way: refused by name, and the state is as before."""
    model = TVPRegression(known=KNOWN, keep_path=False).fit(*rows(table(1, True), slice(0, KNOWN)))
    before = copy.deepcopy(model)
    (x, y, time), message = SCALARS[name]
    with pytest.raises(ValueError, match=message):
        model.partial_fit(np.array(x), y, time)
    for each in (model, before):
        each.partial_fit(np.array([1.0, 2e4]), 3.0, 9.0)
    assert pickle.dumps(model) == pickle.dumps(before)
