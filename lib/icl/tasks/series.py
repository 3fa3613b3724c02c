"""A real series as one long prompt: causal standardisation, standard errors.

Rows are one step of time each, labels come after inputs, and a method predicts y_t from x_t and the rows before t. Its
settings, and the means and scales of all columns, come from the first `known` rows; it is judged on the rest. The drift
that these rows make likeliest, its filter and its smoother are :class:`~icl.tvp.estimator.TVPRegression`'s, of the
columns after the first, which is 1: `TVPRegression("shared", known=series.known).fit(series.x[:, 1:], series.y)`.
In float64 numpy, without sampling.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from icl import _checks
from icl._bounds import Natural, OpenUnit, validated
from icl.tasks.core import Prompt

_Inputs = Float[np.ndarray, "time d"]
_Labels = Float[np.ndarray, " time"]


@dataclass(frozen=True, eq=False)
class Series:
    """Standardised series, in units estimated from its first rows.

    Attributes:
        x: inputs: first 1, then columns that over the known rows have mean 0 and covariance I.
        y: labels, of mean 0 and variance 1 over the known rows.
        known: number of rows from the start that settings may be chosen on.
        whitening: matrix that makes x of inputs less their mean: x = (1, (inputs - mean) @ whitening).
        scale: standard deviation of the known labels, in units of y.
    """

    x: _Inputs
    y: _Labels
    known: int
    whitening: Float[np.ndarray, "columns columns"]
    scale: float


@validated
def prepare(
    inputs: Float[np.ndarray, "rows columns"] | Any, labels: Float[np.ndarray, " rows"] | Any, known: OpenUnit
) -> Series:
    """Centre, scale and whiten a series with statistics of its first rows only.

    Whitened by the symmetric inverse root of the correlation matrix (ZCA-cor), which unlike eigenvectors has no signs
    or rotations to choose, and leaves every column as near to its own input as white columns can be [Kessy, Lewin &
    Strimmer 2018].

    Args:
        inputs: an array, a tensor or a DataFrame of columns in any units; none constant, and none a sum of others, over
            the known rows.
        labels: in any units.
        known: share of the rows that is known in advance.

    Raises:
        ValueError: if sizes do not fit, numbers are missing or not finite, or the known rows do not tell inputs apart.

    >>> import numpy as np
    >>> from icl.tasks.series import prepare
    >>> rows = np.arange(8.0)
    >>> series = prepare(rows[:, None] ** 2, rows, known=0.5)
    >>> series.known, series.y.round(2)
    (4, array([-1.34, -0.45,  0.45,  1.34,  2.24,  3.13,  4.02,  4.92]))
    """
    columns = getattr(inputs, "columns", None)
    inputs = _checks.numbers("inputs", inputs).astype(np.float64)
    labels = _checks.numbers("labels", labels).astype(np.float64)
    _checks.shape("inputs", _checks.real("inputs", inputs), (None, None))
    _checks.shape("labels", _checks.real("labels", labels), (len(inputs),), "to match inputs")
    count = int(float(known) * len(inputs))
    if not inputs.shape[1] + 1 < count < len(inputs):
        raise ValueError(f"known must leave more rows than columns before it and some after it, got {known!r}")
    names = [repr(column) for column in (range(inputs.shape[1]) if columns is None else columns)]
    if still := [name for name, varies in zip(names, np.ptp(inputs, axis=0), strict=True) if not varies]:
        raise ValueError(
            f"inputs must have no intercept, column {still[0]} is constant: prepare adds the intercept itself, drop it"
        )
    x, y = inputs[:count], labels[:count]
    still = [f"column {name} is" for name, varies in zip(names, np.ptp(x, axis=0), strict=True) if not varies]
    if still := still + ["labels are"] * (not np.ptp(y)):
        raise ValueError(f"known must reach rows where every column varies, got {known!r}: {still[0]} constant there")
    mean, spread = x.mean(0), x.std(0)
    z = (x - mean) / spread
    values, U = np.linalg.eigh(z.T @ z / count)
    lost = values < 1e-9 * values[-1]
    if lost.any():
        among = [name for name, share in zip(names, (U[:, lost] ** 2).sum(1), strict=True) if share > 1e-6]
        raise ValueError(
            f"known must reach rows that tell inputs apart, got {known!r}: of columns {', '.join(among)} one is a "
            "sum of others there"
        )
    whitening = (U / np.sqrt(values)) @ U.T / spread[:, None]
    x = np.concatenate([np.ones((len(inputs), 1)), (inputs - mean) @ whitening], axis=1)
    return Series(x, (labels - y.mean()) / y.std(), count, whitening, float(y.std()))


@validated
def as_prompt(series: Series, *, dtype: torch.dtype = torch.float64) -> Prompt:
    """Series as one prompt, for any filter or model; its unknown true weights are NaN."""
    x, y = (torch.as_tensor(part, dtype=dtype)[None] for part in (series.x, series.y))
    return Prompt(x, y, torch.full_like(x, torch.nan))


@validated
def mean_and_error(z: _Labels | Any, *, lags: Natural) -> tuple[float, float]:
    """Mean of an autocorrelated series and its standard error [Newey & West 1987].

    The variance of the mean is (c_0 + 2 sum_k (1 - k / (lags + 1)) c_k) / n, c_k the covariance k rows apart. With no
    lags it is that of independent rows.

    Args:
        z: the series, stationary.
        lags: how many rows apart two may still be alike.
    """
    z = _checks.numbers("z", z)
    _checks.shape("z", _checks.real("z", z), (None,))
    if lags >= len(z):
        raise ValueError(f"lags must be less than the {len(z)} rows of z, got {lags}")
    off, n = z - z.mean(), len(z)
    total = float(off @ off)
    for k in range(1, lags + 1):
        total += 2 * (1 - k / (lags + 1)) * float(off[k:] @ off[:-k])
    return float(z.mean()), float(np.sqrt(max(total, 0.0)) / n)
