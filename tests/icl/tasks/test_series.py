"""The room of real series against sums written out."""

import numpy as np
import pandas as pd
import pytest
import torch

from icl.experiments.evaluation import series_risks
from icl.tasks.series import as_prompt, mean_and_error, prepare

RNG = np.random.default_rng(0)
Y = RNG.standard_normal(9)


def test_error_of_the_mean_is_the_weighted_double_sum():
    """n^2 times the variance is the sum over all pairs of (1 - |s - t| / (lags + 1)) z_s z_t; with no lags the error is
    the usual one, standard deviation over sqrt(n). rtol 1e-12.
    """
    off = Y - Y.mean()
    apart = np.abs(np.subtract.outer(np.arange(9), np.arange(9)))
    for lags in (0, 1, 4, 8):
        weights = np.clip(1 - apart / (lags + 1), 0, None)
        mean, error = mean_and_error(Y, lags=lags)
        assert mean == pytest.approx(Y.mean(), rel=1e-12)
        assert error == pytest.approx(np.sqrt(off @ weights @ off) / 9, rel=1e-12)


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
    errors. Exact.
    """
    inputs, labels = form(TABLE), form(LABELS)
    series, expected = prepare(inputs, labels, 0.6), prepare(TABLE.to_numpy(float), LABELS.to_numpy(), 0.6)
    np.testing.assert_array_equal(series.x, expected.x)
    np.testing.assert_array_equal(series.y, expected.y)
    truth = LABELS.to_numpy()
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
