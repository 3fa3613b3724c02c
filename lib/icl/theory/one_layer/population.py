"""Exact population loss of one layer in all its parameters: gradient, Hessian, stationary points.

Only the last row r = (p, v) of W_V and the first d columns W = (U; q') of W_KQ matter (9). They are kept in one array,

    theta = [W | r],   (d+1, d+1):      first d columns W = W_KQ[:, :d], last column r = W_V[-1]

With G_xx = sum_{i<=n} a_i x_i x_i' + x x', g = sum_{i<=n} a_i y_i x_i, s = sum_{i<=n} a_i y_i^2 and a_i = lam^(n+1-i),

    y_hat = g'(v U + p q') x  +  (p' G_xx U + v s q') x.

Under w -> -w the first part and the label change sign and the second does not, so the loss splits (not in the paper):

    2 L = E (g'A x - y)^2 + E (p' G_xx U x + v s q' x)^2,    A = v U + p q'.

The first part is the risk of Theorem 2, which depends on A alone and is least at A = D1 Lambda~^-1; the second is never
negative, and 0 at p = q = 0. So (14) is a global minimum. Both are polynomials in theta; the second needs moments of
Gaussian inputs up to the sixth.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Complex, Float
from scipy.integrate import solve_ivp

from icl import _checks
from icl._bounds import Positive, validated
from icl.tasks import Task
from icl.tasks.core import GAUSSIAN, square_root
from icl.theory import moments
from icl.theory.one_layer import closed_forms
from icl.theory.one_layer._canonical import canonical_eigenvectors, first_largest

_Theta = Float[np.ndarray, "*batch tokens tokens"] | Complex[np.ndarray, "*batch tokens tokens"]


def _square(name: str, matrix: Any, *, least: int) -> np.ndarray:
    _checks.real(name, matrix)
    matrix = np.asarray(matrix, dtype=np.float64)
    _checks.shape(name, matrix, (None, None))
    if len(matrix) < least or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must be square, ({least}, {least}) or larger, got {matrix.shape}")
    return matrix


@validated
def pack(W_V: Float[np.ndarray, "tokens tokens"], W_KQ: Float[np.ndarray, "tokens tokens"]) -> np.ndarray:
    """Return theta = [W | r], the entries of the merged weights that enter the loss."""
    W_V, W_KQ = _square("W_V", W_V, least=2), _square("W_KQ", W_KQ, least=2)
    _checks.shape("W_KQ", W_KQ, W_V.shape, "to match W_V")
    return np.concatenate([W_KQ[:, :-1], W_V[-1][:, None]], axis=1)


@validated
def unpack(theta: Float[np.ndarray, "tokens tokens"]) -> tuple[np.ndarray, np.ndarray]:
    """Return W_V and W_KQ of theta, both (d+1, d+1), every other entry 0."""
    theta = _square("theta", theta, least=2)
    W_V, W_KQ = np.zeros(theta.shape), np.zeros(theta.shape)
    W_V[-1], W_KQ[:, :-1] = theta[:, -1], theta[:, :-1]
    return W_V, W_KQ


# Of single vectors and matrices numpy makes scalars, which are no arrays: hence Any.
def _dot(a: np.ndarray, b: np.ndarray) -> Any:
    return (a * b).sum(-1)


def _inner(a: np.ndarray, b: np.ndarray) -> Any:
    return (a * b).sum((-2, -1))


def _apply(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return (matrix @ vector[..., None])[..., 0]


def _outer(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[..., :, None] * b[..., None, :]


def _scale(a: Any, matrix: np.ndarray) -> np.ndarray:
    return a[..., None, None] * matrix


@dataclass(frozen=True)
class PopulationLoss:
    """Population loss L(theta) = E (y_hat - y)^2 / 2 of (12), a polynomial, from :func:`layer_loss`. Values in y^2.

    Computed in white coordinates (x = R z with R R = Lambda), where all moments are those of standard normal vectors.

    Attributes:
        D: moments D1 .. D4 of the task.
        R: square root of Lambda, (d, d).
        Lambda_tilde: effective covariance, (d, d).
        S1, S2: sum of a_i, and of a_i^2.
        E1: sum of a_i k_ii, so that E s = E1 tr(Lambda).
        E2: E s^2.
    """

    D: moments.Moments
    R: Float[np.ndarray, "d d"]
    Lambda_tilde: Float[np.ndarray, "d d"]
    S1: float
    S2: float
    E1: float
    E2: float

    @property
    def d(self) -> int:
        """Dimension of the inputs."""
        return len(self.R)

    def _white(self, theta: Any) -> tuple[np.ndarray, Any, np.ndarray, np.ndarray]:
        """p, v, U, q in whitened coordinates, in which y_hat depends on moments of z only."""
        _checks.detached("theta", theta)
        theta = np.asarray(theta)
        if theta.dtype.kind not in "fiuc":
            raise ValueError(f"theta must be numbers, got {theta!r}")
        if theta.shape[-2:] != (self.d + 1, self.d + 1):
            raise ValueError(f"theta must have shape (..., {self.d + 1}, {self.d + 1}), got {theta.shape}")
        R = self.R
        return theta[..., :-1, -1] @ R, theta[..., -1, -1], R @ theta[..., :-1, :-1] @ R, theta[..., -1, :-1] @ R

    def parts(self, theta: _Theta) -> tuple[Any, Any]:
        """Two squares that sum to 2 L: the error of A, and the nonnegative contribution of p and q.

        Args:
            theta: (..., d+1, d+1), leading axes for many at once.
        """
        p, v, U, q = self._white(theta)
        Lambda, V = self.R @ self.R, (U + U.swapaxes(-1, -2)) / 2
        trace = np.trace(Lambda)
        A = v[..., None, None] * U + _outer(p, q)
        odd = _inner(A, self.Lambda_tilde @ A) - 2 * self.D.D1 * _inner(A, Lambda) + self.D.D4 * trace

        pp, qq, pq = _dot(p, p), _dot(q, q), _dot(p, q)
        tau, Vp, Uq = np.trace(U, axis1=-2, axis2=-1), _apply(V, p), _apply(U, q)
        pUp, Up = _dot(p, Vp), _apply(U.swapaxes(-1, -2), p)
        past = (self.S1**2 + self.S2) * _dot(Up, Up) + self.S2 * _inner(U, U) * pp
        past_and_query = 2 * self.S1 * (tau * pUp + 2 * _dot(Up, Vp))
        query = pp * (tau**2 + 2 * _inner(V, V)) + 4 * tau * pUp + 8 * _dot(Vp, Vp)
        labels = v**2 * self.E2 * qq
        B = self.E1 * self.S1 * trace * np.eye(self.d) + 2 * self.D.D2 * Lambda
        mixed = 2 * v * (_dot(p @ B, Uq) + self.E1 * trace * (tau * pq + 2 * _dot(Vp, q)))
        return odd, past + past_and_query + query + labels + mixed

    def value(self, theta: _Theta) -> Any:
        """L(theta), (...) for theta (..., d+1, d+1)."""
        odd, even = self.parts(theta)
        return (odd + even) / 2

    def gradient(self, theta: _Theta) -> np.ndarray:
        """Gradient of L, the shape of theta."""
        p, v, U, q = self._white(theta)
        Lambda, V = self.R @ self.R, (U + U.swapaxes(-1, -2)) / 2
        trace, eye = np.trace(Lambda), np.eye(self.d)
        one, two = v[..., None], v[..., None, None]
        A_slope = 2 * (self.Lambda_tilde @ (two * U + _outer(p, q)) - self.D.D1 * Lambda)
        d_U, d_v = two * A_slope, _inner(A_slope, U)
        d_p, d_q = _apply(A_slope, q), _apply(A_slope.swapaxes(-1, -2), p)

        pp, qq, pq = _dot(p, p), _dot(q, q), _dot(p, q)
        tau, Vp, Vq = np.trace(U, axis1=-2, axis2=-1), _apply(V, p), _apply(V, q)
        Up, VVp, pUp = _apply(U.swapaxes(-1, -2), p), _apply(V, Vp), _dot(p, Vp)
        # past: the examples alone
        both = self.S1**2 + self.S2
        d_p = d_p + 2 * both * _apply(U, Up) + 2 * self.S2 * _inner(U, U)[..., None] * p
        d_U = d_U + 2 * both * _outer(p, Up) + 2 * self.S2 * _scale(pp, U)
        # past_and_query: their product with the query's own token
        UVp = _apply(U, Vp) + _apply(V, Up)
        d_p = d_p + 2 * self.S1 * (2 * tau[..., None] * Vp + 2 * UVp)
        turned = _outer(p, Vp) + (_outer(Up, p) + _outer(p, Up)) / 2
        d_U = d_U + 2 * self.S1 * (_scale(tau, _outer(p, p)) + _scale(pUp, eye) + 2 * turned)
        # query: its own token alone
        spread = tau**2 + 2 * _inner(V, V)
        d_p = d_p + 2 * spread[..., None] * p + 8 * tau[..., None] * Vp + 16 * VVp
        d_U = d_U + _scale(pp, 2 * _scale(tau, eye) + 4 * V) + 4 * _scale(pUp, eye) + 4 * _scale(tau, _outer(p, p))
        d_U = d_U + 8 * (_outer(Vp, p) + _outer(p, Vp))
        # labels, squared
        d_v = d_v + 2 * v * self.E2 * qq
        d_q = d_q + 2 * one**2 * self.E2 * q
        # mixed: labels with inputs
        B, e = self.E1 * self.S1 * trace * eye + 2 * self.D.D2 * Lambda, self.E1 * trace
        d_v = d_v + 2 * (_dot(p @ B, _apply(U, q)) + e * (tau * pq + 2 * _dot(Vp, q)))
        d_p = d_p + 2 * one * (_apply(U, q) @ B + e * (tau[..., None] * q + 2 * Vq))
        d_q = d_q + 2 * one * (_apply(U.swapaxes(-1, -2), p @ B) + e * (tau[..., None] * p + 2 * Vp))
        d_U = d_U + 2 * two * (_outer(p @ B, q) + e * (_scale(pq, eye) + _outer(p, q) + _outer(q, p)))

        R = self.R
        columns = np.concatenate([R @ d_U @ R, (d_q @ R)[..., None, :]], axis=-2)
        row = np.concatenate([d_p @ R, one * 0 + d_v[..., None]], axis=-1)
        return np.concatenate([columns, row[..., None]], axis=-1) / 2

    @validated
    def hessian(self, theta: Float[np.ndarray, "tokens tokens"]) -> Float[np.ndarray, "entries entries"]:
        """Hessian of L over the entries of theta in C order, ((d+1)^2, (d+1)^2).

        The gradient's derivative by complex steps: a polynomial's is exact to rounding, whatever the step.
        """
        theta = np.asarray(theta, dtype=np.float64)
        _checks.shape("theta", theta, (self.d + 1, self.d + 1))
        size, step = theta.size, 1e-30
        moved = theta + 1j * step * np.eye(size).reshape(size, *theta.shape)
        slopes = self.gradient(moved).imag.reshape(size, size) / step
        return (slopes + slopes.T) / 2


@validated
def layer_loss(task: Task, *, lam: Positive) -> PopulationLoss:
    """Return the population loss of a one-layer model with forgetting factor lam on a task with Gaussian inputs.

    Raises:
        ValueError: if lam is not positive, or the inputs are not Gaussian: the second square needs their sixth moments.
    """
    if task.inputs is not GAUSSIAN:
        raise ValueError(f"inputs must be Gaussian for the loss of all parameters, got {task.inputs.name}")
    Lambda, kernel = np.asarray(task.Lambda), task.weight_kernel()[:-1, :-1]
    a, k = float(lam) ** np.arange(task.n, 0, -1.0), kernel.diagonal()
    D, trace, square = moments.task_moments(task, lam), np.trace(Lambda), np.trace(Lambda @ Lambda)
    # Wick's theorem for y_i^2 y_j^2: i and j apart, then what i = j adds.
    apart = (a @ k) ** 2 * trace**2 + 2 * (a @ kernel**2 @ a) * square
    same = 2 * (a**2 @ k**2) * (trace**2 + 2 * square)
    tilde = closed_forms.lambda_tilde(task, lam=lam)
    scalars = (float(s) for s in (a.sum(), a @ a, a @ k, apart + same))
    return PopulationLoss(D, square_root(Lambda), tilde, *scalars)


@validated
def global_minimum(task: Task, *, lam: Positive) -> Float[np.ndarray, "tokens tokens"]:
    """Global minimum (14) as theta, where gradient flow from Assumption 1 converges."""
    best = closed_forms.optimum(task, lam=lam)
    return pack(best.W_V, best.W_KQ)


@validated
def rank_one_trap(task: Task, *, lam: Positive) -> Float[np.ndarray, "tokens tokens"]:
    """Spurious rank-one stationary point (not in the paper): v = 0, U = 0 and A = p q' of rank one.

    p and q lie along the eigendirection of Lambda that explains most of (16), with equal norms. At v = 0 and U = 0 the
    second square vanishes with its slope, so that A only has to be the best matrix of rank one. Whether it is a local
    minimum or a saddle is decided by its Hessian.
    """
    s, vectors = canonical_eigenvectors(task.Lambda)
    # y_hat = (p'g)(q'x) with A = p q'; least risk along one direction: D1 / s~, as in the optimum's A.
    A = np.einsum("ij,ik,kj->j", vectors, closed_forms.optimum(task, lam=lam).A, vectors)
    best = first_largest(s**2 * A)
    theta = np.zeros((task.d + 1, task.d + 1))
    theta[:-1, -1] = theta[-1, :-1] = np.sqrt(A[best]) * vectors[:, best]
    return theta


@validated
def trap_curvature(task: Task, *, lam: Positive) -> float:
    """Curvature of 2 L that makes the rank-one point a local minimum (>= 0) or a saddle (< 0), for Lambda = I.

    Not in the paper. There p and q lie along e, and the loss does not depend on v and U to first order. In the
    second, v couples only to the part of U that rotations around e leave as it is, diag(alpha, beta, .., beta): three
    numbers decide, v, alpha and sqrt(d - 1) beta, and their form is a matrix of moments. Returned is its least
    eigenvalue. In all other directions of U the curvature is never negative, though it may be the smaller one.

    Raises:
        ValueError: if Lambda is not I, or the dimension is 1: the point is then the optimum.
    """
    loss = layer_loss(task, lam=lam)
    if task.d == 1:
        raise ValueError("d must be 2 or more: in one dimension a matrix of rank one is any matrix")
    if not np.array_equal(task.Lambda, np.eye(task.d)):
        raise ValueError("Lambda must be the identity for three numbers to decide")
    D, rest = loss.D, task.d - 1
    size = float(D.D1) / ((task.d + 2) * float(D.D2) + float(D.D3))  # |p|^2 = |q|^2
    labels = loss.E1 * task.d  # E s, the weighted sum of squared labels
    form = np.empty((3, 3))
    form[0, 0] = size * loss.E2
    form[1, 1] = size * (loss.S1**2 + 2 * loss.S2 + 6 * loss.S1 + 15)
    form[2, 2] = size * (loss.S2 + rest + 2)
    form[0, 1] = form[1, 0] = size * (labels * loss.S1 + 2 * D.D2 + 3 * labels)
    form[0, 2] = form[2, 0] = np.sqrt(rest) * (size * labels - D.D1)
    form[1, 2] = form[2, 1] = np.sqrt(rest) * size * (loss.S1 + 3)
    return float(np.linalg.eigvalsh(form)[0])


@validated
def sigma_bound(D1: Positive, matrix: Float[np.ndarray, "d d"]) -> float:
    """Upper bound of Theorem 1 on the initial scale, sqrt(2 D1 / (sqrt(d) ||matrix||)), in the spectral norm.

    The paper prints Lambda for the matrix; the proof it follows [Zhang et al. 2024] has Lambda~ there.
    """
    matrix = _square("matrix", matrix, least=1)
    norm = np.linalg.norm(matrix, 2)
    if not norm > 0:
        raise ValueError(f"matrix must not be 0, got {matrix}")
    return float(np.sqrt(2 * D1 / (np.sqrt(len(matrix)) * norm)))


@validated
def assumption_1(Theta: Float[np.ndarray, "d d"], *, sigma: Positive) -> Float[np.ndarray, "tokens tokens"]:
    """Initialisation of Assumption 1, (13), as theta: v = sigma, U = sigma Theta Theta', p = q = 0.

    Theta may be any matrix but 0, singular ones too; it is scaled to ||Theta Theta'||_F = 1.
    """
    Theta = _square("Theta", Theta, least=1)
    square = Theta @ Theta.T
    norm = np.linalg.norm(square)
    if not norm > 0:
        raise ValueError(f"Theta must not be 0, got {Theta}")
    theta = np.zeros((len(Theta) + 1, len(Theta) + 1))
    theta[:-1, :-1], theta[-1, -1] = sigma * square / norm, sigma
    return theta


@dataclass(frozen=True)
class Flow:
    """Trajectory of gradient flow.

    Attributes:
        time: (steps,), in units of 1/y^2 (theta counted as pure numbers).
        theta: (steps, d+1, d+1).
        loss: L along the path, (steps,).
        settled: whether the gradient's norm fell below the tolerance before the end of the time.
    """

    time: Float[np.ndarray, " steps"]
    theta: Float[np.ndarray, "steps tokens tokens"]
    loss: Float[np.ndarray, " steps"]
    settled: bool


@validated
def gradient_flow(
    loss: PopulationLoss,
    start: Float[np.ndarray, "tokens tokens"],
    *,
    until: Positive = 1e9,
    slope: Positive = 1e-9,
    rtol: Positive = 1e-9,
) -> Flow:
    """Integrate d theta / dt = -grad L from `start` with an implicit solver (the flow is stiff).

    Args:
        loss: from :func:`layer_loss`.
        start: initial theta.
        until: time at which to stop.
        slope: norm of the gradient below which a point counts as stationary; the path ends there.
        rtol: error of the solver in each step, relative to theta; 1e-6 is enough to see where a path leads.

    Raises:
        ValueError: for a start of another shape or not finite.
        RuntimeError: if the solver fails, with its message and the time it had reached.
    """
    _checks.shape("start", start, (loss.d + 1, loss.d + 1))

    def downhill(_: float, flat: np.ndarray) -> np.ndarray:
        return -loss.gradient(flat.reshape(start.shape)).ravel()

    def curvature(_: float, flat: np.ndarray) -> np.ndarray:
        return -loss.hessian(flat.reshape(start.shape))

    def still_moving(_: float, flat: np.ndarray) -> float:
        return float(np.linalg.norm(downhill(0.0, flat))) - slope

    if still_moving(0.0, start.ravel()) <= 0:
        return Flow(np.zeros(1), start[None], loss.value(start[None]), True)
    still_moving.terminal = True  # type: ignore[attr-defined]
    path = solve_ivp(
        downhill,
        (0.0, until),
        start.ravel(),
        method="BDF",
        jac=curvature,
        events=still_moving,
        rtol=rtol,
        atol=rtol / 1e3,
    )
    if path.status < 0:
        raise RuntimeError(f"gradient flow stopped at time {path.t[-1]:g}: {path.message}")
    theta = path.y.T.reshape(-1, *start.shape)
    return Flow(path.t, theta, loss.value(theta), bool(path.status == 1))


@validated
def linear_rate(loss: PopulationLoss, minimum: Float[np.ndarray, "tokens tokens"]) -> float:
    """Asymptotic rate at which L converges to its minimum: twice the smallest nonzero eigenvalue of the Hessian.

    Eigenvalues that are 0 belong to directions along which minima go on: (v, U) -> (c v, U / c) leaves A unchanged.
    """
    _checks.shape("minimum", np.asarray(minimum), (loss.d + 1, loss.d + 1))
    values = np.linalg.eigvalsh(loss.hessian(minimum))
    if values[0] < -1e-9 * values[-1]:
        raise ValueError(f"minimum must have a positive semi-definite Hessian, got the eigenvalue {values[0]:.3g}")
    return float(2 * values[values > 1e-9 * values[-1]].min())
