"""A real series as one long prompt: causal standardisation, drift by maximum likelihood, standard errors.

Rows are one step of time each, labels come after inputs, and a method predicts y_t from x_t and the rows before t. Its
settings, and the means and scales of all columns, come from the first `known` rows; it is judged on the rest. The drift

    w_{t+1} = gamma w_t + N(0, q I),    y_t = x_t'w_t + N(0, s2),    w_1 ~ N(0, I),

is (3) with noise in the labels, and what its parameters are is asked of the known rows through their likelihood. In
float64 numpy, without sampling.
"""

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Gt
from jaxtyping import Float
from scipy.optimize import minimize

from icl import _checks
from icl._bounds import Natural, NonNegative, OpenUnit, Positive, UnitInterval, validate_fields, validated
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


@dataclass(frozen=True)
class Drift:
    """Drift of a series and its label noise.

    Attributes:
        gamma: autoregressive coefficient, dimensionless.
        q: variance added to each weight at each step, in units of scale^2.
        s2: variance of the noise in labels, in units of y^2.
        scale: standard deviation of the weights in the first row, in units of y/x: one number, or one for each.
    """

    gamma: UnitInterval
    q: NonNegative
    s2: Positive
    scale: Annotated[float | tuple[float, ...], Gt(0)] = 1.0

    def __post_init__(self) -> None:
        """Validate the parameters' ranges."""
        validate_fields(self)
        if np.ndim(_checks.real("scale", self.scale, above=0)) > 1:
            raise ValueError(f"scale must be one number or one for each weight, got shape {np.shape(self.scale)}")


@dataclass(frozen=True, eq=False)
class WeightPath:
    """Gaussian distributions of the weights, one a row of the series.

    Attributes:
        mean: (time, d), in units of y/x.
        covariance: (time, d, d).
        log_likelihood: log density of all labels given all inputs.
    """

    mean: Float[np.ndarray, "time d"]
    covariance: Float[np.ndarray, "time d d"]
    log_likelihood: float


def _checked(x: Any, y: Any) -> tuple[_Inputs, _Labels]:
    x, y = (_checks.numbers(name, value).astype(np.float64) for name, value in (("x", x), ("y", y)))
    _checks.shape("x", _checks.real("x", x), (None, None))
    _checks.shape("y", _checks.real("y", y), (len(x),), "to match x")
    if not len(x):
        raise ValueError("x must have at least one row, got none")
    return x, y


def _array_filter(x: _Inputs, y: _Labels, gamma: Any, q: Any, s2: Any) -> Iterator[tuple[np.ndarray, ...]]:
    """Square-root Kalman filters, one for each entry of gamma; by row w and R of N(w, R'R), and -2 log density of y.

    Square-root form, where :mod:`icl.linear_gaussian` has covariances: one QR decomposition takes in the label and adds
    the drift, and no variance is a difference of others, which would lose its digits where a precise label meets a wide
    prior [Kailath, Sayed & Hassibi 2000, ch. 12]:

        (s, 0; R x, gamma R; 0, sqrt(q) I) = Q (sqrt(S), gamma x'P / sqrt(S); 0, R of the next row),    S = x'P x + s2.
    """
    d, gamma = x.shape[1], np.reshape(gamma, (-1, 1))
    w, R = np.zeros((len(gamma), d)), np.tile(np.eye(d), (len(gamma), 1, 1))
    array = np.zeros((len(gamma), 1 + 2 * d, 1 + d))
    array[:, 0, 0] = np.sqrt(s2)
    array[:, 1 + d :, 1:] = np.sqrt(q)[:, None, None] * np.eye(d)
    for xt, yt in zip(x, y, strict=True):
        array[:, 1 : 1 + d, 0] = R @ xt
        array[:, 1 : 1 + d, 1:] = gamma[..., None] * R
        after: Any = np.linalg.qr(array, mode="r")
        root = after[:, 0, :1]
        error = (yt - w @ xt)[:, None] / root
        yield w, R, (np.log(2 * np.pi * root**2) + error**2)[:, 0]
        w, R = gamma * w + after[:, 0, 1:] * error, after[:, 1:, 1:]


def _before_labels(x: Any, y: Any, drift: Drift) -> Any:
    """x and w in units of the weights' scales, y, R of the predicted w by row, scales, likelihood."""
    x, y = _checked(x, y)
    _checks.broadcasts("drift.scale", drift.scale, x.shape[1:])
    scale = np.broadcast_to(drift.scale, x.shape[1:])
    x = x * scale
    size = (x**2).sum(1).max()
    if drift.s2 + drift.q * size < 1e-20 * size:
        raise ValueError(
            f"drift must have s2 of at least 1e-20 of labels' variance in advance, {size:.3g}, if q is so small: "
            f"float64 does not tell it from 0, got {drift!r}"
        )
    rows = _array_filter(x, y, [drift.gamma], [drift.q], [drift.s2])
    w, R, minus = (np.concatenate(part) for part in zip(*rows, strict=True))
    return x, y, w, R, scale, -minus.sum() / 2


@validated
def filtered(x: _Inputs | Any, y: _Labels | Any, drift: Drift) -> WeightPath:
    """Kalman filter: distribution of the weights at each row given the earlier labels, and the likelihood.

    A label's law given those before is N(x'w, S), S = x'P x + s2, and the densities of all multiply up
    [Schweppe 1965].

    Raises:
        ValueError: if x and y do not fit together or are not finite, or s2 and q are too small for float64 to tell.
    """
    _, _, w, R, scale, likelihood = _before_labels(x, y, drift)
    return WeightPath(w * scale, (R.mT @ R) * np.outer(scale, scale), float(likelihood))


@validated
def smoothed(x: _Inputs | Any, y: _Labels | Any, drift: Drift) -> WeightPath:
    """Kalman smoother: distribution of the weights at each row given all labels [Rauch, Tung & Striebel 1965].

    Not causal: its estimates must not be used for prediction.

    Raises:
        ValueError: if x and y do not fit together or are not finite, or s2 and q are too small for float64 to tell.
    """
    x, y, w, R, scale, likelihood = _before_labels(x, y, drift)
    d = x.shape[1]
    means, covariances = np.empty_like(w), np.empty_like(R)
    array = np.zeros((1 + 2 * d, 1 + 2 * d))
    array[0, 0] = np.sqrt(drift.s2)
    array[1 + d :, 1 : 1 + d] = np.sqrt(drift.q) * np.eye(d)
    for t in range(len(x) - 1, -1, -1):
        # The filter's decomposition with the weights of this row beside those of the next [Park & Kailath 1995].
        array[1 : 1 + d] = np.column_stack([R[t] @ x[t], drift.gamma * R[t], R[t]])
        after: Any = np.linalg.qr(array, mode="r")
        ahead, shared, own = after[1 : 1 + d, 1 : 1 + d], after[1 : 1 + d, 1 + d :], after[1 + d :, 1 + d :]
        mean = w[t] + after[0, 1 + d :] * ((y[t] - w[t] @ x[t]) / after[0, 0])
        if t + 1 == len(x):
            covariance = shared.T @ shared
        else:
            # Least squares (pseudo-inverse): a weight of zero variance carries no information.
            gain = np.linalg.lstsq(ahead, shared)[0].T
            mean = mean + gain @ (means[t + 1] - w[t + 1])
            covariance = gain @ covariances[t + 1] @ gain.T
        means[t], covariances[t] = mean, covariance + own.T @ own
    return WeightPath(means * scale, covariances * np.outer(scale, scale), float(likelihood))


def most_likely(x: _Inputs | Any, y: _Labels | Any) -> Drift:
    """Maximum-likelihood drift of a series.

    Searched in units of the labels' and of every input's root mean square, so that units do not matter; the first
    weights have a standard deviation of 1 in these units. From the best of a grid on, L-BFGS-B on the logarithms of
    1 - gamma from 1e-6 to 1, q from 1e-12 to 1e3 and s2 from 1e-8 to 1e3; gamma = 1 and q = 0 are taken where they are
    as likely. At gamma = 0 weights are drawn anew in every row and teach nothing: likeliest where labels do not pay for
    weights that last.

    Raises:
        ValueError: if x and y do not fit together or are not finite, or y is 0 throughout.

    Warns:
        RuntimeWarning: if the search ends at the least s2 or the largest q: labels without noise, or too large for x.
    """
    x, y = _checked(x, y)
    unit, sizes = np.sqrt(np.mean(y**2)), np.sqrt((x**2).mean(0))
    if not unit > 0:
        raise ValueError("y must not be 0 throughout: no noise is then small enough to be likeliest")
    # A weight whose input is 0 throughout is in the units of the others.
    sizes[sizes == 0] = np.sqrt(np.mean(sizes**2)) or 1.0
    x, y = x / sizes, y / unit

    def unlikely(gamma: Any, q: Any, s2: Any) -> np.ndarray:
        return np.asarray(sum(minus for _, _, minus in _array_filter(x, y, gamma, q, s2))) / len(y)

    def sloped(z: np.ndarray) -> tuple[float, np.ndarray]:
        """Value at z and its gradient by central differences, from filters run in parallel."""
        leak, q, s2 = np.exp(z + 1e-4 * np.concatenate([np.zeros((1, 3)), np.eye(3), -np.eye(3)])).T
        values = unlikely(1 - leak, q, s2)
        return float(values[0]), (values[1:4] - values[4:]) / 2e-4

    bounds = np.log([[1e-6, 1.0], [1e-12, 1e3], [1e-8, 1e3]])
    starts = np.array(list(itertools.product([1e-3, 1e-2, 0.1, 1.0], [1e-6, 1e-4, 1e-2, 1.0], [1e-4, 0.01, 0.1, 0.8])))
    best = starts[unlikely(1 - starts[:, 0], starts[:, 1], starts[:, 2]).argmin()]
    options: Any = {"ftol": 1e-14, "gtol": 1e-8}
    end: Any = minimize(sloped, np.log(best), jac=True, method="L-BFGS-B", bounds=bounds.tolist(), options=options)
    for name, value, edge in (("s2", end.x[2], bounds[2, 0]), ("q", end.x[1], bounds[1, 1])):
        if abs(value - edge) < 1e-3:
            warnings.warn(
                f"{name} = {np.exp(edge):.0e}, in units of the labels and inputs, is the edge of the search: a {name} "
                "beyond it may be likelier",
                RuntimeWarning,
                stacklevel=2,
            )
    leak, q, s2 = np.exp(end.x)
    gammas, qs = np.array([1.0, 1.0, 1 - leak, 1 - leak]), np.array([0.0, q, 0.0, q])
    at = int(unlikely(gammas, qs, np.full(4, s2)).argmin())
    return Drift(float(gammas[at]), float(qs[at]), float(s2 * unit**2), tuple((unit / sizes).tolist()))


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
