"""Diagonal linear-Gaussian state space of regression coefficients: the laws of the states from row to row.

A root R of the covariance is kept, P = R'R. A label takes Potter's update [Bierman 1977, ch. II.3]

    f = R x,    S = f'f + s2,    w <- w + R'f (y - x'w) / S,    R <- R - f (R'f)' / (S + sqrt(S s2)),

and time a QR decomposition of (R; diag(q D)^(1/2)); no variance is a difference of others. The first axis is of labels,
or of several settings of each.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

Array = npt.NDArray[Any]

#: Standard deviation, in those of the prior, up to which forgetting widens a law.
WIDEST = 1e3

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
    _stacks: dict[float, tuple[Array | None, Array | None]] = field(default_factory=dict, compare=False, repr=False)

    def stack(self, elapsed: float) -> tuple[Array | None, Array | None]:
        """What each state keeps, None for all, and (0; diag(gain)^(1/2)) (batch, 2 K, K), None for no gain; kept."""
        if elapsed not in self._stacks:
            if len(self._stacks) > 1000:
                self._stacks.clear()
            keep, gain = self.drift(elapsed)
            K = gain.shape[-1]
            stack = np.zeros((len(gain), 2 * K, K))
            i = np.arange(K)
            stack[:, K + i, i] = np.sqrt(gain)
            self._stacks[elapsed] = keep, stack if gain.any() else None
        return self._stacks[elapsed]

    def drift(self, elapsed: float) -> tuple[Array | None, Array]:
        """What each state keeps, None for all, and the variance that it gains."""
        if self.gamma is None:
            return None, self.q * elapsed
        k = self.q.shape[-1] // 2
        kept = self.gamma[..., None] ** elapsed
        keep, gain = np.ones_like(self.q), np.zeros_like(self.q)
        keep[..., :k] = kept
        gain[..., :k] = self.q[..., :k] * -np.expm1(2 * elapsed * np.log(self.gamma[..., None]))
        return keep, gain


def design(model: Model, x: Array) -> Array:
    """Inputs of the model's states: deviations and means of a stationary drift have the same."""
    return x if model.gamma is None else np.concatenate([x, x], axis=-1)


def _triangle(stack: Array) -> Array:
    """Upper triangular R with R'R = A'A, A (batch, rows, K); LAPACK's own call for one matrix, for speed."""
    if len(stack) > 1:
        return np.asarray(np.linalg.qr(stack, mode="r"))
    K = stack.shape[-1]
    return np.asarray(lapack.dgeqrf(stack[0])[0][:K] * _upper(K))[None]


_UPPER: dict[int, Array] = {}


def _upper(K: int) -> Array:
    if K not in _UPPER:
        _UPPER[K] = np.triu(np.ones((K, K)))
    return _UPPER[K]


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
        most = WIDEST * float(np.sqrt(model.prior.max()))
        if abs(R).max() > most:
            # Inputs that do not excite a direction: its variance would grow without bound.
            _, spread, directions = np.linalg.svd(R)
            R = np.minimum(spread, most)[..., None] * directions
        return State(w, R, log_weight, time)
    keep, stack = model.stack(elapsed)
    if keep is not None:
        w, R = w * keep, R * keep[:, None]
    if stack is not None:
        stack = stack.copy()
        stack[:, : R.shape[-1]] = R
        R = _triangle(stack)
    return State(w, R, log_weight, time)


def learn(model: Model, state: State, x: Array, y: Array, known: bool) -> tuple[State, Array, Array]:
    """State after the labels y (batch,) of an input x (K,), and their predictive means and variances (batch,).

    A label that is missing (NaN) changes nothing; `known` is that none is.
    """
    w, R, log_weight, time = state
    f = np.matvec(R, x)
    mean, S = np.vecdot(w, x), np.vecdot(f, f) + model.noise
    gain, shrink = (y - mean) / S, 1 / (S + np.sqrt(S * model.noise))
    if not known:
        missing = np.isnan(y)
        gain, shrink = np.where(missing, 0.0, gain), np.where(missing, 0.0, shrink)
    u = np.vecmat(f, R)
    w = w + u * gain[:, None]
    R = R - (f * shrink[:, None])[:, :, None] * u[:, None]
    return State(w, R, log_weight, time), mean, S
