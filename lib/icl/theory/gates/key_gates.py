"""Bound for gates that depend on the current key: averaged Riccati map, its fixed point, a layer that attains it.

The weights are a linear function of a hidden linear-Gaussian state, w_i = H z_i, z_i = F z_(i-1) + noise of covariance
Q; keys x_i ~ N(0, Lambda) are independent, labels are y_i = w_i'x_i + noise of variance sigma_y^2. Let a layer keep a
state of any size,

    h <- A(x) h + b(x) y,      answer c(x)'h,

A, b and c any functions of the current key. Then the error covariance P of the best linear estimate of z from h
converges no lower, in the Loewner order, than the fixed point of

    P -> F (P - E_x[P H'x x'H P / (x'H P H'x + sigma_y^2)]) F' + Q,

and one state of the size of z attains it. The chapter *What gating can buy* has the proof. Coefficients that do not
depend on the key at all have a bound of their own (:func:`data_free_bound`), and gates of K earlier keys a lower one
(:func:`windowed_errors`, :func:`one_earlier_key`). The map is a modified Riccati equation (De Koning 1984, Sinopoli et
al. 2004), whose coefficients are the keys; none of the papers has it for layers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge
from jaxtyping import Float
from scipy.linalg import solve_discrete_lyapunov
from scipy.optimize import brentq
from scipy.sparse.linalg import LinearOperator, gmres
from scipy.special import roots_jacobi

from icl import _checks
from icl._bounds import Count, Natural, NonNegative, Positive, Reals, UnitInterval, validate_fields, validated
from icl.theory.gates._kalman import joseph_step, kalman_gains, riccati_step
from icl.theory.steady.fast_weights import DriftLaw


def _matrix(name: str, value: Any, size: int) -> np.ndarray:
    """A required covariance."""
    _checks.numbers(name, value)
    _checks.shape(name, np.asarray(value), (size, size))
    return _checks.covariance(name, value, size)


@dataclass(frozen=True, eq=False)
class MovingWeights:
    """Linear state-space model of the weights, observed through Gaussian keys and noisy labels.

    Attributes:
        F: (m, m), transition matrix of the state.
        H: (d, m), observation matrix, the weights being H z.
        Q: (m, m), covariance of the state's innovations.
        Lambda: (d, d), covariance of the keys.
        sigma_y: standard deviation of the labels' noise; errors are those of the clean label.
    """

    F: Float[np.ndarray, "m m"]
    H: Float[np.ndarray, "d m"]
    Q: Float[np.ndarray, "m m"]
    Lambda: Float[np.ndarray, "d d"]
    sigma_y: NonNegative = 0.0

    def __post_init__(self) -> None:
        """Validate the shapes and covariances."""
        validate_fields(self)
        if not self.H.size:
            raise ValueError(f"H must have a row for each weight and a column for each state, got {self.H.shape}")
        for name, size in (("Q", len(self.F)), ("Lambda", len(self.H))):
            object.__setattr__(self, name, _matrix(name, getattr(self, name), size))

    @validated
    def error(self, P: Float[np.ndarray, "m m"]) -> float:
        """Mean squared error of the clean label at the state's error covariance P."""
        P = _matrix("P", P, len(self.F))
        return float(np.einsum("ij,jk,ik->", self.Lambda @ self.H, P, self.H))


@dataclass(frozen=True, eq=False)
class GateBound:
    """Lower bound on the error of a class of layers.

    Attributes:
        error: E (w'x - answer)^2 in steady state, in units of y^2.
        P: (m, m), error covariance of the state before a label.
    """

    error: float
    P: Float[np.ndarray, "m m"]


@validated
def per_coordinate(
    F: Float[np.ndarray, "r r"],
    *,
    q: Positive,
    d: Count,
    sigma_y: NonNegative = 0.0,
    spectrum: Float[np.ndarray, " d"] | None = None,
) -> MovingWeights:
    """State-space model with independent, identical coordinates: z <- F z + (e, 0, .., 0), the weight first.

    Args:
        F: (r, r); drift of first order is [[gamma]], a random walk [[1.0]].
        q: variance of e, in units of (y/x)^2.
        d: dimension of the keys.
        sigma_y: standard deviation of the labels' noise, in units of y.
        spectrum: eigenvalues of Lambda, (d,), > 0; default: all 1.
    """
    r = len(np.atleast_1d(F))
    spectrum = np.ones(d) if spectrum is None else _checks.real("spectrum", spectrum, above=0)
    _checks.shape("spectrum", spectrum, (d,), "to match d")
    first, eye = np.eye(r)[:1], np.eye(d)
    return MovingWeights(
        np.kron(F, eye), np.kron(first, eye), q * np.kron(first.T @ first, eye), np.diag(spectrum), sigma_y
    )


@validated
def from_drift_law(law: DriftLaw, spectrum: Float[np.ndarray, " d"] | None = None) -> MovingWeights:
    """State-space model w <- gamma w + e of a :class:`~icl.theory.steady.fast_weights.DriftLaw`, for keys of any
    spectrum.

    Args:
        law: its d, drift and noise.
        spectrum: eigenvalues of Lambda, (d,), > 0; default: all 1.
    """
    return per_coordinate(np.array([[law.gamma]]), q=law.q, d=law.d, sigma_y=law.sigma_y, spectrum=spectrum)


@validated
def ratio_moments(
    sizes: Float[np.ndarray, " d"], noise: NonNegative
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
    """Moments E u_j^2 / D and E u_i^2 u_j^2 / D^2 of D = sum_j sizes_j u_j^2 + noise, u standard normal.

    1/D is the integral of exp(-t D) over t > 0, and the mean of that a product of (1 + 2 t size)^(-1/2): one integral
    each, by the trapezoidal rule in log t, whose error falls exponentially, to 1e-12 of the result.

    Args:
        sizes: (d,), > 0.
        noise: >= 0, in the units of sizes.
    """
    _checks.real("sizes", sizes, above=0)
    if not sizes.size:
        raise ValueError("sizes must be at least one, got none")
    low = -np.log(sizes.max() + noise) - 42
    # The slowest fall is that of a single size without noise, t^(-1/2).
    high = 160 / len(sizes) + 10 - np.log(sizes.min())
    if noise:
        high = min(high, np.log(800 / noise))
    step = 0.25
    log_t = np.arange(low, high + step, step)
    t = np.exp(log_t)[:, None]
    shrunk = 1 / (1 + 2 * t * sizes)
    weight = step * t[:, 0] * np.exp(-t[:, 0] * noise + np.log(shrunk).sum(1) / 2)
    second = (shrunk * (weight * t[:, 0])[:, None]).T @ shrunk
    second[np.diag_indices(len(sizes))] *= 3
    return weight @ shrunk, second


@dataclass(frozen=True, eq=False)
class _GainMoments:
    """Key-averaged gain at some P: columns G of P H'V, x = V u, and the moments of u that the average needs."""

    V: np.ndarray
    G: np.ndarray
    one: np.ndarray
    two: np.ndarray


def _root(Lambda: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(Lambda)
    return np.asarray(vectors * np.sqrt(values.clip(min=0)))


def _gain_moments(P: np.ndarray, drift: MovingWeights) -> _GainMoments:
    root = _root(drift.Lambda)
    sizes, U = np.linalg.eigh(root.T @ drift.H @ P @ drift.H.T @ root)
    # Directions of zero error variance carry no information: P H'V is 0 there.
    alive = sizes > 1e-14 * max(sizes[-1], 1e-300)
    if not alive.any():
        return _GainMoments(root[:, :0], np.zeros((len(P), 0)), np.zeros(0), np.zeros((0, 0)))
    V = root @ U[:, alive]
    return _GainMoments(V, P @ drift.H.T @ V, *ratio_moments(sizes[alive], drift.sigma_y**2))


def _covariance(P: Any, drift: Any, name: str = "P") -> np.ndarray:
    _checks.instance("drift", drift, MovingWeights)
    return _matrix(name, P, len(drift.F))


@validated
def averaged_step(P: Float[np.ndarray, "m m"], drift: MovingWeights) -> Float[np.ndarray, "m m"]:
    """Averaged Riccati map: F (P - E_x[P H'x x'H P / (x'H P H'x + sigma_y^2)]) F' + Q for x ~ N(0, Lambda).

    It is increasing and concave in P, in the Loewner order.

    Args:
        P: (m, m), error covariance of the state before a label.
        drift: gives F, H, Q, Lambda and sigma_y.
    """
    P = _covariance(P, drift)
    moments = _gain_moments(P, drift)
    return np.asarray(drift.F @ (P - moments.G * moments.one @ moments.G.T) @ drift.F.T + drift.Q)


@validated
def data_free_step(P: Float[np.ndarray, "m m"], drift: MovingWeights) -> Float[np.ndarray, "m m"]:
    """Averaged Riccati map of layers with constant coefficients: matrices multiply the states, and x x' times each.

    F (P - P H'L [2 L S L + (tr L S + sigma_y^2) L]^-1 L H P) F' + Q with S = H P H' and L = Lambda.

    Args:
        P: (m, m), error covariance of the state before a label.
        drift: gives F, H, Q, Lambda and sigma_y.
    """
    P = _covariance(P, drift)
    K = _fixed_gain(P, drift)
    return np.asarray(drift.F @ (P - K @ drift.Lambda @ drift.H @ P) @ drift.F.T + drift.Q)


def _key_fourth_moment(S: np.ndarray, drift: MovingWeights) -> np.ndarray:
    """E x x'S x x' for Gaussian keys."""
    L = drift.Lambda
    return np.asarray(2 * L @ S @ L + np.trace(L @ S) * L)


def _fixed_gain(P: np.ndarray, drift: MovingWeights) -> np.ndarray:
    """Optimal K of the update K (y - guess) x."""
    S, L = drift.H @ P @ drift.H.T, drift.Lambda
    second_moment = _key_fourth_moment(S, drift) + drift.sigma_y**2 * L
    return np.asarray(P @ drift.H.T @ L @ np.linalg.pinv(second_moment, hermitian=True))


def _key_gated_slope(P: np.ndarray, drift: MovingWeights) -> Callable[[np.ndarray], np.ndarray]:
    moments = _gain_moments(P, drift)
    G, N = moments.G, moments.V.T @ drift.H

    def slope(X: np.ndarray) -> np.ndarray:
        Y = N @ X @ N.T
        spread = 2 * moments.two * Y
        spread[np.diag_indices(len(Y))] = moments.two @ Y.diagonal()
        cross = G * moments.one @ (N @ X)
        return np.asarray(drift.F @ (X - cross - cross.T + G @ spread @ G.T) @ drift.F.T)

    return slope


def _data_free_slope(P: np.ndarray, drift: MovingWeights) -> Callable[[np.ndarray], np.ndarray]:
    K = _fixed_gain(P, drift)

    def slope(X: np.ndarray) -> np.ndarray:
        cross = K @ drift.Lambda @ drift.H @ X
        spread = K @ _key_fourth_moment(drift.H @ X @ drift.H.T, drift) @ K.T
        return np.asarray(drift.F @ (X - cross - cross.T + spread) @ drift.F.T)

    return slope


_Step = Callable[[Any, MovingWeights], np.ndarray]
_Slope = Callable[[np.ndarray, MovingWeights], Callable[[np.ndarray], np.ndarray]]


def _settle(drift: MovingWeights, step: _Step, slope: _Slope) -> GateBound:
    """Fixed point of an increasing concave map, by Newton's method from above, which converges monotonically."""
    m = len(drift.F)
    if np.abs(np.linalg.eigvals(drift.F)).max() < 1:
        P = np.asarray(solve_discrete_lyapunov(drift.F, drift.Q))
    else:
        P = drift.Q + 1e-3 * np.trace(drift.Q) * np.eye(m) / m
        for _ in range(100 + 10 * m):
            P = step(P, drift)
    last = np.inf
    for _ in range(100):
        off = step(P, drift) - P
        size = np.abs(off).max() / np.abs(P).max()
        if size < 1e-13 or (size < 1e-9 and size >= last):
            return GateBound(drift.error(P), P)
        last, moves = size, slope(P, drift)

        def linear_map(X: np.ndarray, moves: Callable[[np.ndarray], np.ndarray] = moves) -> np.ndarray:
            X = X.reshape(m, m)
            X = (X + X.T) / 2
            return (X - moves(X)).ravel()

        newton_step, _ = gmres(
            LinearOperator((m * m, m * m), matvec=linear_map, dtype=float), off.ravel(), rtol=1e-8, atol=0.0
        )
        P = P + (newton_step.reshape(m, m) + newton_step.reshape(m, m).T) / 2
        # From below the first Newton step may overshoot; a step of the map itself leads back.
        if not np.isfinite(P).all() or np.linalg.eigvalsh(P)[0] < -1e-9 * np.abs(P).max():
            break
    raise ValueError(f"drift must settle under its best gains, which it does not with F = {drift.F}")


@validated
def key_gated_bound(drift: MovingWeights) -> GateBound:
    """Least error of any layer h <- A(x) h + b(x) y of any size with gates of the current key: a fixed point.

    For drift of first order and Lambda = I it is :func:`~icl.theory.steady.fast_weights.best_unit_delta`.

    Args:
        drift: F inside the unit circle, or on it where the keys make the growing directions observable.

    Raises:
        ValueError: if the iteration does not converge.
    """
    return _settle(drift, averaged_step, _key_gated_slope)


@validated
def data_free_bound(drift: MovingWeights) -> GateBound:
    """Least error of layers whose coefficients are constant matrices: h_j <- A h + B y x + C x x'h.

    For drift of first order and a diagonal Lambda it is :func:`~icl.theory.steady.fast_weights.delta_diagonal`.

    Args:
        drift: how the weights move.

    Raises:
        ValueError: if the iteration does not converge.
    """
    return _settle(drift, data_free_step, _data_free_slope)


@validated
def best_layer_answers(
    x: Float[np.ndarray, "batch time d"],
    y: Float[np.ndarray, "batch time"],
    drift: MovingWeights,
    P: Float[np.ndarray, "m m"],
) -> Float[np.ndarray, "batch time"]:
    """Predictions, before each label, of the one state that attains the bound: z <- F (z + k(x) (y - x'H z)), from 0.

    k(x) = P H'x / (x'H P H'x + sigma_y^2): the layer h <- A(x) h + b(x) y with A = F (I - k x'H) and b = F k.

    Args:
        x: keys.
        y: labels, in the order of x.
        drift: gives F, H and sigma_y.
        P: (m, m), `key_gated_bound(drift).P` for the layer that is best in the long run.
    """
    P = _covariance(P, drift)
    x = _sequences(x, drift)
    z, answers = np.zeros((len(x), len(P))), np.zeros(y.shape)
    for i in range(x.shape[1]):
        seen = x[:, i] @ drift.H
        answers[:, i] = (seen * z).sum(1)
        k = kalman_gains(P, seen, drift.sigma_y)
        z = (z + k * (y[:, i] - answers[:, i])[:, None]) @ drift.F.T
    return answers


@validated
def _sequences(x: Reals, drift: MovingWeights) -> np.ndarray:
    x = np.asarray(x, dtype=np.float64)
    _checks.shape("x", x, (None, None, len(drift.H)), "to match drift")
    return x


@validated
def windowed_errors(
    x: Float[np.ndarray, "batch time d"], drift: MovingWeights, window: Natural, prior: Float[np.ndarray, "m m"]
) -> Float[np.ndarray, "batch time"]:
    """Error at each position of one state whose gain depends on the current and the `window` previous keys.

    The gain is Kalman's at the covariance that Riccati's recursion reaches from `prior` over these keys. The error is
    exact given the keys, and averaged over them an upper bound of what gates with that window can reach; with 0 keys
    and the bound's own P it is the bound. The first positions have fewer keys, and start at an error of `prior`.

    Args:
        x: keys, one sequence a row.
        drift: how the weights move.
        window: number of earlier keys the gates depend on.
        prior: (m, m), error covariance assumed before the window.
    """
    prior = _covariance(prior, drift, "prior")
    x = _sequences(x, drift)
    P = np.broadcast_to(prior, (len(x), *prior.shape))
    errors = np.zeros(x.shape[:2])
    weigh, seen = drift.H.T @ drift.Lambda @ drift.H, x @ drift.H
    for i in range(x.shape[1]):
        errors[:, i] = np.einsum("ij,cij->c", weigh, P)
        R = np.broadcast_to(prior, P.shape)
        for j in range(max(0, i - window), i):
            R = riccati_step(R, seen[:, j], drift)
        P = joseph_step(P, kalman_gains(R, seen[:, i], drift.sigma_y), seen[:, i], drift)
    return errors


@validated
def one_earlier_key(d: Annotated[int, Ge(2)], gamma: UnitInterval, q: Positive) -> float:
    """Least error of gates that depend on the current and the previous key: clean labels, Lambda = I, exact.

    After a clean label the error variance is q along its key, and t in every other direction:

        t = q + gamma^2 (t - b / d - E[b^2 c (1 - c) / (t - b c)] / (d - 1)),    b = t - q,

    with c, the squared cosine between two keys, of law Beta(1/2, (d - 1)/2); the error is (d - 1) t + q.

    Args:
        d: dimension of the keys.
        gamma: autoregressive coefficient; 1 is a random walk.
        q: variance of each coordinate of the innovations, in units of (y/x)^2.
    """
    nodes, weight = roots_jacobi(200, (d - 3) / 2, -0.5)
    c, weight = (1 + nodes) / 2, weight / weight.sum()

    def off(t: float) -> float:
        b = t - 1
        rest = weight @ (b**2 * c * (1 - c) / (t - b * c))
        return float(1 + gamma**2 * (t - b / d - rest / (d - 1)) - t)

    # In units of q; t = 1 is zero error before the step, and t <= d, that of unit keys.
    t = brentq(off, 1.0, 2.0 * d, xtol=1e-14, rtol=1e-14) if gamma else 1.0
    return q * ((d - 1) * t + 1)
