"""A real series as one long prompt: what may be known of it in advance, drift by maximum likelihood, honest errors.

Rows are one step of time each, labels come after inputs, and a method predicts y_t from x_t and the rows before t. Its
settings, and the means and scales of all columns, come from the first `known` rows; it is judged on the rest. The drift

    w_{t+1} = gamma w_t + N(0, q I),    y_t = x_t'w_t + N(0, s2),    w_1 ~ N(0, I),

is (3) with noise in the labels, and what its parameters are is asked of the known rows through their likelihood. In
float64 numpy, without sampling.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize

from icl import _checks
from icl.tasks.core import Prompt

_Inputs = Float[np.ndarray, "time d"]
_Labels = Float[np.ndarray, " time"]


@dataclass(frozen=True, eq=False)
class Series:
    """A series in units of its known part.

    Attributes:
        x: inputs: first 1, then columns that over the known rows have mean 0 and covariance I.
        y: labels, of mean 0 and variance 1 over the known rows.
        known: number of rows from the start that settings may be chosen on.
        turn: matrix that makes x of inputs less their mean: x = (1, turn'(inputs - mean)).
        scale: standard deviation of the known labels, in units of y.
    """

    x: _Inputs
    y: _Labels
    known: int
    turn: Float[np.ndarray, "columns columns"]
    scale: float


def prepare(inputs: Float[np.ndarray, "rows columns"], labels: Float[np.ndarray, " rows"], known: float) -> Series:
    """Centre, scale and whiten a series by what its first rows say, and by nothing else.

    Args:
        inputs: columns in any units; none constant, and none a sum of others, over the known rows.
        labels: in any units.
        known: share of the rows that is known in advance, in (0, 1).

    Raises:
        ValueError: if sizes do not fit, numbers are not finite, or the known rows do not tell inputs apart.
    """
    inputs = np.asarray(_checks.real("inputs", inputs), dtype=np.float64)
    labels = np.asarray(_checks.real("labels", labels), dtype=np.float64)
    _checks.shape("inputs", inputs, (None, None))
    _checks.shape("labels", labels, (len(inputs),), "to match inputs")
    count = int(_checks.number("known", known, above=0, at_most=1) * len(inputs))
    if not inputs.shape[1] + 1 < count < len(inputs):
        raise ValueError(f"known must leave more rows than columns before it and some after it, got {known!r}")
    mean, centre, scale = inputs[:count].mean(0), labels[:count].mean(), labels[:count].std()
    spread = inputs[:count].std(0)
    if not (scale > 0 and (spread > 0).all()):
        raise ValueError(f"known must reach rows where every column varies, got {known!r}")
    # Eigenvectors of the correlations: those of the covariance would depend on the columns' units.
    values, U = np.linalg.eigh(np.cov((inputs[:count] / spread).T, ddof=0).reshape(len(mean), len(mean)))
    if values[0] < 1e-9 * values[-1]:
        raise ValueError(f"known must reach rows that tell inputs apart, got {known!r}: one is a sum of others there")
    turn = U / spread[:, None] / np.sqrt(values)
    x = np.concatenate([np.ones((len(inputs), 1)), (inputs - mean) @ turn], axis=1)
    return Series(x, (labels - centre) / scale, count, turn, float(scale))


def as_prompt(series: Series, *, dtype: torch.dtype = torch.float64) -> Prompt:
    """The series as one prompt, for any filter or model; the weights behind it, which nobody knows, are NaN."""
    _checks.instance("series", series, Series)
    _checks.precision(dtype)
    x, y = (torch.as_tensor(part, dtype=dtype)[None] for part in (series.x, series.y))
    return Prompt(x, y, torch.full_like(x, torch.nan))


@dataclass(frozen=True)
class Drift:
    """The drift of a series and the noise of its labels.

    Attributes:
        gamma: autoregressive coefficient in [0, 1], dimensionless.
        q: variance added to each weight at each step, >= 0, in units of (y/x)^2.
        s2: variance of the noise in labels, > 0, in units of y^2.
    """

    gamma: float
    q: float
    s2: float

    def __post_init__(self) -> None:
        """Refuse parameters out of range, by name."""
        _checks.number("gamma", self.gamma, at_least=0, at_most=1)
        _checks.number("q", self.q, at_least=0)
        _checks.number("s2", self.s2, above=0)


@dataclass(frozen=True, eq=False)
class WeightPath:
    """Gaussian laws of the weights, one a row of the series.

    Attributes:
        mean: (time, d), in units of y/x.
        covariance: (time, d, d).
        log_likelihood: log density of all labels given all inputs.
    """

    mean: Float[np.ndarray, "time d"]
    covariance: Float[np.ndarray, "time d d"]
    log_likelihood: float


def _checked(x: np.ndarray, y: np.ndarray, drift: Drift) -> None:
    for name, value in (("x", x), ("y", y)):
        _checks.instance(name, value, np.ndarray)
        _checks.real(name, value)
    _checks.shape("x", x, (None, None))
    _checks.shape("y", y, (len(x),), "to match x")
    if not isinstance(drift, Drift):
        raise ValueError(f"drift must be an icl.tasks.series.Drift, got {drift!r}")


def filtered(x: _Inputs, y: _Labels, drift: Drift) -> WeightPath:
    """The Kalman filter: the weights' law at each row given the labels before it, and the likelihood it hands out.

    A label's law given those before is N(x'w, S), S = x'P x + s2, and the densities of all multiply up
    [Schweppe 1965].
    """
    _checked(x, y, drift)
    d = x.shape[1]
    w, P, total = np.zeros(d), np.eye(d), len(x) * np.log(2 * np.pi)
    means, covariances = np.empty((len(x), d)), np.empty((len(x), d, d))
    square, added = drift.gamma**2, drift.q * np.eye(d)
    for t, (xt, yt) in enumerate(zip(x, y, strict=True)):
        means[t], covariances[t] = w, P
        Px = P @ xt
        S = xt @ Px + drift.s2
        error = yt - w @ xt
        total += np.log(S) + error * error / S
        w = drift.gamma * (w + Px * (error / S))
        P = square * (P - np.outer(Px, Px / S)) + added
    return WeightPath(means, covariances, float(-total / 2))


def smoothed(x: _Inputs, y: _Labels, drift: Drift) -> WeightPath:
    """The weights' law at each row given all labels, past and future [Rauch, Tung & Striebel 1965].

    For looking back only: nothing here may predict a label.
    """
    path = filtered(x, y, drift)
    means, covariances = path.mean.copy(), path.covariance.copy()
    later_mean, later = None, None
    for t in range(len(x) - 1, -1, -1):
        P, xt = path.covariance[t], x[t]
        Px = P @ xt
        S = xt @ Px + drift.s2
        mean = path.mean[t] + Px * ((y[t] - path.mean[t] @ xt) / S)
        P = P - np.outer(Px, Px / S)
        if later is not None:
            ahead = path.covariance[t + 1]
            gain = drift.gamma * np.linalg.solve(ahead, P).T
            mean = mean + gain @ (later_mean - path.mean[t + 1])
            P = P + gain @ (later - ahead) @ gain.T
        means[t], covariances[t] = mean, P
        later_mean, later = mean, P
    return WeightPath(means, covariances, path.log_likelihood)


def most_likely(x: _Inputs, y: _Labels) -> Drift:
    """The drift under which these labels are likeliest, by a simplex search from several starts.

    1 - gamma runs from 1e-6 to 1, q from 1e-12 and s2 from 1e-8: a random walk, and weights that stand still, are as
    near as makes no difference. At gamma = 0 weights are drawn anew in every row and teach nothing: likeliest where
    labels do not pay for weights that last.

    Raises:
        ValueError: if x and y do not fit together or are not finite.
    """
    _checked(x, y, Drift(1.0, 0.0, 1.0))

    def drift(z: np.ndarray) -> Drift:
        leak, q, s2 = np.exp(np.clip(z, np.log([1e-6, 1e-12, 1e-8]), np.log([1.0, 1e3, 1e6])))
        return Drift(float(1 - leak), float(q), float(s2))

    def unlikely(z: np.ndarray) -> Any:
        return -filtered(x, y, drift(z)).log_likelihood

    def search(start: np.ndarray) -> Any:
        options: Any = {"xatol": 1e-2, "fatol": 1e-3, "maxfev": 250}
        return minimize(unlikely, start, method="Nelder-Mead", options=options)

    starts = np.log([[1e-3, 1e-4, 0.3], [1e-2, 1e-2, 0.03]])
    ends = [search(start) for start in starts]
    best = min(ends, key=lambda end: float(end.fun))
    # A simplex can shrink before it has arrived; a new one around its end goes on, or stays.
    return drift(search(best.x).x)


def mean_and_error(z: Float[np.ndarray, " time"], *, lags: int) -> tuple[float, float]:
    """Mean of a series and its standard error, neighbours being alike [Newey & West 1987].

    The variance of the mean is (c_0 + 2 sum_k (1 - k / (lags + 1)) c_k) / n, c_k the covariance k rows apart. With no
    lags it is that of independent rows.

    Args:
        z: the series, stationary.
        lags: how many rows apart two may still be alike, >= 0.
    """
    _checks.real("z", z)
    _checks.shape("z", z, (None,))
    if _checks.integer("lags", lags, at_least=0) >= len(z):
        raise ValueError(f"lags must be less than the {len(z)} rows of z, got {lags}")
    off, n = z - z.mean(), len(z)
    total = float(off @ off)
    for k in range(1, lags + 1):
        total += 2 * (1 - k / (lags + 1)) * float(off[k:] @ off[:-k])
    return float(z.mean()), float(np.sqrt(max(total, 0.0)) / n)
