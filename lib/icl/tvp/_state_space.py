"""Diagonal linear-Gaussian state space of regression coefficients: the laws of the states from row to row.

A root R of the covariance is kept, P = R'R. A label takes Potter's update [Bierman 1977, ch. II.3]

    f = R x,    S = f'f + s2,    w <- w + R'f (y - x'w) / S,    R <- R - f (R'f)' / (S + sqrt(S s2)),

and time a QR decomposition of (diag(q D)^(1/2); R); no variance is a difference of others. The first axis is of labels,
or of several settings of each. One alone, as in a stream, is taken through in calls of BLAS and LAPACK.
"""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas, lapack

Array = npt.NDArray[Any]

#: Standard deviation, in those of the prior, up to which forgetting widens a law.
WIDEST = 1e3

#: Factor a unit of time by which the log weights of mixed factors fall: another may be the best one later.
WEIGHTS = 0.99

#: Forgetting factors that are mixed, or tried.
FACTORS = (1.0, 0.999, 0.998, 0.995, 0.99, 0.98, 0.95, 0.9, 0.8, 0.6)


@dataclass(frozen=True)
class Model:
    """Diagonal linear-Gaussian model of several labels, or of several settings of one (first axis).

    Attributes:
        q: variance added to each state a unit of time (batch, K); of a stationary drift the stationary variance.
        gamma: what a stationary drift keeps a unit of time (batch,); None for a random walk.
        noise: variance of labels (batch,).
        prior: variance of each state in the first row (batch, K).
        forget: factor by which a unit of time divides all covariances (batch,); None without.
    """

    q: Array
    gamma: Array | None
    noise: Array
    prior: Array
    forget: Array | None = None
    _roots: dict[float, tuple[Array | None, Array | None]] = field(default_factory=dict, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the roots that were kept."""
        return Model, (self.q, self.gamma, self.noise, self.prior, self.forget)

    def roots(self, elapsed: float) -> tuple[Array | None, Array | None]:
        """What each state keeps, None for all, and diag(gain)^(1/2) (batch, K, K), None for no gain; kept."""
        if elapsed not in self._roots:
            if len(self._roots) > 1000:
                self._roots.clear()
            keep, gain = self.drift(elapsed)
            self._roots[elapsed] = keep, np.sqrt(gain)[..., None] * np.eye(gain.shape[-1]) if gain.any() else None
        return self._roots[elapsed]

    def drift(self, elapsed: Any) -> tuple[Array | None, Array]:
        """What each state keeps, None for all, and the variance that it gains; elapsed a number, or (batch, ..., 1)."""
        if self.gamma is None:
            return None, self.q * elapsed
        k = self.q.shape[-1] // 2
        decay = self.gamma[..., None] ** elapsed
        keep, gain = np.ones_like(self.q), np.zeros_like(self.q)
        keep[..., :k] = decay
        gain[..., :k] = self.q[..., :k] * -np.expm1(2 * elapsed * np.log(self.gamma[..., None]))
        return keep, gain


def design(model: Model, x: Array) -> Array:
    """Inputs of the model's states: deviations and means of a stationary drift have the same."""
    return x if model.gamma is None else np.concatenate([x, x], axis=-1)


def _triangle(upper: Array, rows: Array) -> Array:
    """Upper triangular R with R'R = U'U + A'A, U upper triangular and A (batch, K, K)."""
    if len(rows) > 1:
        return np.asarray(np.linalg.qr(np.concatenate([rows, upper], axis=1), mode="r"))
    return np.asarray(lapack.dtpqrt(0, rows.shape[-1], upper[0], rows[0])[0])[None]


class State(NamedTuple):
    """Gaussian laws of the states after a row: mean (batch, K), root of the covariance, log weights, time."""

    w: Array
    R: Array
    log_weight: Array
    time: float


def start(model: Model, time: float) -> State:
    """Laws of the states before the first row."""
    K = model.prior.shape[-1]
    batch = len(model.prior)
    return State(np.zeros((batch, K)), np.sqrt(model.prior)[:, None] * np.eye(K), np.zeros(batch), time)


def pass_time(model: Model, state: State, elapsed: float, time: float) -> State:
    """Law of the states a while later, at a time."""
    w, R, log_weight, _ = state
    if elapsed == 0:
        return state
    if model.forget is not None:
        R = R * model.forget[:, None, None] ** (-elapsed / 2)
        entries, most = R.ravel(), WIDEST * math.sqrt(model.prior.item(0))
        if abs(entries.item(blas.idamax(entries))) > most:
            # Inputs that do not excite a direction: its variance would grow without bound.
            _, spread, directions = np.linalg.svd(R)
            R = np.minimum(spread, most)[..., None] * directions
        return State(w, R, log_weight * WEIGHTS**elapsed, time)
    keep, roots = model.roots(elapsed)
    if keep is not None:
        w, R = w * keep, R * keep[:, None]
    if roots is not None:
        R = _triangle(roots, R)
    return State(w, R, log_weight, time)


def learn(model: Model, state: State, x: Array, y: Any, observed: bool) -> tuple[State, Any, Any]:
    """State after the labels y (batch,) of an input x (K,), and their predictive means and variances (batch,).

    A batch of one has its label, mean and variance as floats. A label that is missing (NaN) changes nothing; `observed`
    is that none is.
    """
    w, R, log_weight, time = state
    if len(w) == 1:
        v, root, noise = w[0], R[0], model.noise.item()
        f = root.dot(x)
        mean, S = v.dot(x).item(), f.dot(f).item() + noise
        if observed:
            u = f.dot(root)
            v = blas.daxpy(u, v.copy(), a=(y - mean) / S)
            root = blas.dger(-1 / (S + math.sqrt(S * noise)), f, u, a=root)
        return State(v[None], root[None], log_weight, time), mean, S
    f = np.matvec(R, x)
    mean, S = np.vecdot(w, x), np.vecdot(f, f) + model.noise
    gain, shrink = (y - mean) / S, 1 / (S + np.sqrt(S * model.noise))
    if not observed:
        missing = np.isnan(y)
        gain, shrink = np.where(missing, 0.0, gain), np.where(missing, 0.0, shrink)
    u = np.vecmat(f, R)
    w = w + u * gain[:, None]
    R = R - (f * shrink[:, None])[:, :, None] * u[:, None]
    return State(w, R, log_weight, time), mean, S


def forecast(model: Model, state: State, elapsed: Any, x: Array, spread: bool = True) -> tuple[Array, Array]:
    """Means and variances (rows, batch) of the labels of inputs (rows, K), a while after the state, or (rows,) each.

    Without `spread` variances may be left out, as 0.
    """
    if model.gamma is None and not spread:  # means stay where they are
        return (means := x.dot(state.w.T)), 0 * means
    if isinstance(elapsed, float):
        variance: Any = model.noise
        if model.gamma is None and model.forget is None:  # a random walk's variances add
            variance = variance + (x * x).dot(model.q.T * elapsed)
        else:
            state = pass_time(model, state, elapsed, 0.0)
        f = state.R.dot(x.T)
        return x.dot(state.w.T), np.vecdot(f.mT, f.mT).T + variance
    means, variances = np.empty((2, len(x), len(model.noise)))
    for each in set(elapsed.tolist()):
        at = elapsed == each
        means[at], variances[at] = forecast(model, state, each, x[at])
    return means, variances
