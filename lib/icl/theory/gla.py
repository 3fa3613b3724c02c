"""One layer of gated linear attention on drifting regression: its optimum, its error, how much it should forget.

Everything depends on the task only through D1 .. D4 (`icl.theory.moments`) and the spectrum of Lambda, because Lambda~
is a polynomial in Lambda and shares its eigenvectors. Prediction: y_hat = (sum_i a_i y_i x_i)' A x_{n+1}.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize_scalar

from icl import _checks
from icl.tasks import DriftingRegression, Task
from icl.theory import moments as _moments


def _spectrum(task: Task) -> Float[np.ndarray, " d"]:
    """Eigenvalues of Lambda, ascending."""
    return np.linalg.eigvalsh(task.Lambda)


def lambda_tilde(task: Task, *, lam: float) -> Float[np.ndarray, "d d"]:
    """Effective covariance of Theorem 1: Lambda~ = D2 (2 Lambda + tr(Lambda) I) + D3 Lambda."""
    m = _moments.of(task, _checks.number("lam", lam, above=0))
    Lambda: np.ndarray = task.Lambda
    return m.D2 * (2 * Lambda + np.trace(Lambda) * np.eye(task.d)) + m.D3 * Lambda


@dataclass(frozen=True)
class Optimum:
    """The global minimum (14) of the population loss.

    Attributes:
        W_V: merged value matrix, (d+1, d+1): one non-zero entry, sqrt(D1 ||Lambda~^-1||_F), in its last corner.
        W_KQ: merged key-query matrix, (d+1, d+1): Lambda~^-1, scaled to balance W_V, in its first d x d block.
        A: their product D1 Lambda~^-1, (d, d), which is all that the prediction sees.
    """

    W_V: Float[np.ndarray, "tokens tokens"]
    W_KQ: Float[np.ndarray, "tokens tokens"]
    A: Float[np.ndarray, "d d"]


def optimum(task: Task, *, lam: float) -> Optimum:
    """Theorem 1, (14): where gradient flow ends.

    Raises:
        ValueError: if lam is not positive, or if Lambda~ is singular (Lambda = 0 or weights that are all zero).
    """
    m = _moments.of(task, _checks.number("lam", lam, above=0))
    tilde = lambda_tilde(task, lam=lam)
    if np.linalg.cond(tilde) > 1e15:
        raise ValueError("Lambda~ is singular for this task: the optimum is not unique")
    inverse = np.linalg.inv(tilde)
    norm = np.linalg.norm(inverse)
    W_V, W_KQ = np.zeros((task.d + 1, task.d + 1)), np.zeros((task.d + 1, task.d + 1))
    W_V[-1, -1] = np.sqrt(m.D1 * norm)
    W_KQ[:-1, :-1] = np.sqrt(m.D1 / norm) * inverse
    return Optimum(W_V, W_KQ, m.D1 * inverse)


def risk(A: Float[np.ndarray, "d d"], task: Task, *, lam: Any) -> Any:
    """Mean squared error of the one-layer predictor with any A, at its optimum or not, trained for this task or not.

        E (y_hat - y)^2 = tr(A Lambda A' Lambda Lambda~) - 2 D1 tr(A Lambda^2) + D4 tr(Lambda)

    (16) is this at A = D1 Lambda~^-1; (19) is this with A from one task and everything else from another.
    """
    Lambda: np.ndarray = task.Lambda
    _checks.shape("A", A, Lambda.shape)
    _checks.real("A", A)
    m = _moments.of(task, _checks.real("lam", lam, at_least=0))
    quadratic, trace = A @ Lambda @ A.T, np.trace(Lambda)
    signal = np.trace(quadratic @ Lambda @ Lambda)
    crosstalk = np.trace(quadratic @ Lambda) * trace
    return m.D2 * (2 * signal + crosstalk) + m.D3 * signal - 2 * m.D1 * np.trace(A @ Lambda @ Lambda) + m.D4 * trace


def training_error(task: Task, *, lam: Any) -> Any:
    """Theorem 2, (16), reduced: D4 tr(Lambda) - D1^2 sum_j s_j^2 / s~_j over the eigenvalues of Lambda and Lambda~.

    The literal traces stay in `icl.theory.printed.training_error`; the two agree to rounding. lam may be an array.
    At lam = 0 nothing is remembered and the error is that of the zero predictor.
    """
    m = _moments.of(task, _checks.real("lam", lam, at_least=0))
    s = _spectrum(task)
    tilde = m.D2[..., None] * (2 * s + s.sum()) + m.D3[..., None] * s
    gain = np.divide(s**2 * m.D1[..., None] ** 2, tilde, out=np.zeros(tilde.shape), where=tilde > 0).sum(-1)
    return m.D4 * s.sum() - gain


def identity_error(task: Task, *, lam: Any) -> Any:
    """(16) for Lambda = I, mended and simplified: d (D4 - D1^2 / a) with a = (d + 2) D2 + D3 (erratum 6)."""
    if not np.array_equal(task.Lambda, np.eye(task.d)):
        raise ValueError("Lambda must be the identity here; training_error takes any")
    m = _moments.of(task, _checks.real("lam", lam, above=0))
    return task.d * (m.D4 - m.D1**2 / ((task.d + 2) * m.D2 + m.D3))


def zero_predictor(task: Task) -> float:
    """Error of answering 0 always: D4 tr(Lambda)."""
    return float(_moments.of(task, 0.0).D4 * np.trace(task.Lambda))


def xi(task: Task, *, lam: Any) -> Any:
    """D1^2 / D2, the large-d stand-in for how much the layer explains: for Lambda = I, error -> d D4 - xi."""
    m = _moments.of(task, _checks.real("lam", lam, above=0))
    return m.D1**2 / m.D2


def optimal_forgetting(task: Task, *, upper: float = 1.0) -> float:
    """Return lam*, the forgetting factor in (0, upper] of least training error (16).

    A grid finds the valley, golden section its floor; `upper` itself is returned when nothing inside is better. Let
    `upper` exceed 1 for growing weights (gamma > 1), whose best lam does (Theorem 4).
    """
    _checks.number("upper", upper, above=0)
    grid = np.linspace(0, upper, 401)[1:]
    errors = training_error(task, lam=grid)
    best = int(errors.argmin())
    low, high = (grid[best - 1] if best else 0.0), grid[min(best + 1, len(grid) - 1)]
    found = minimize_scalar(
        lambda lam: float(training_error(task, lam=lam)), bounds=(low, high), method="bounded", options={"xatol": 1e-10}
    )
    # With a single example lam only rescales it, A undoes that, and the valley is flat: differences are then rounding.
    return float(upper if errors[-1] <= found.fun * (1 + 1e-13) else found.x)


def kalman_pole(gamma: Any, *, crosstalk: Any) -> Any:
    """Return lam* in closed form (not in the paper): the pole of a scalar steady-state Kalman filter.

    For stationary weights and n -> infinity, y_i x_i = Lambda w_i + white noise, and one layer of attention is a Wiener
    filter on these pseudo-observations. Its optimal weights are exactly geometric, with ratio the smaller root of

        lam^2 - b lam + 1 = 0,    b = [(1 + gamma^2) + (1 - gamma^2) / crosstalk] / gamma.

    Args:
        gamma: autoregressive coefficient, in (0, 1).
        crosstalk: variance of that noise over the variance of the signal: d + 1 for Lambda = I, and
            1 + tr(Lambda) / s_j in the eigendirection j of Lambda, where a decay per channel would be best.
    """
    gamma = np.asarray(_checks.real("gamma", gamma, above=0), dtype=np.float64)
    if (gamma >= 1).any():
        raise ValueError(f"gamma must be < 1: only stationary drift has a steady state, got {gamma.max()!r}")
    crosstalk = np.asarray(_checks.real("crosstalk", crosstalk, above=0), dtype=np.float64)
    b = ((1 + gamma**2) + (1 - gamma**2) / crosstalk) / gamma
    return 2 / (b + np.sqrt(b**2 - 4))  # the smaller root, without cancellation


def steady_error(task: DriftingRegression) -> float:
    """Error at lam* for Lambda = I, stationary drift and n -> infinity, in closed form (not in the paper).

    The scalar Riccati equation p = q + gamma^2 p c / (p + c), with q = sigma_e^2 and crosstalk variance
    c = (d + 1) q / (1 - gamma^2), is quadratic: error = d p = (d q / 2) [sqrt(d^2 + 4 (d + 1) / (1 - gamma^2)) - d].
    """
    if not np.array_equal(task.Lambda, np.eye(task.d)):
        raise ValueError("Lambda must be the identity here: each eigendirection has a steady state of its own")
    if task.gamma >= 1:
        raise ValueError(f"gamma must be < 1: only stationary drift has a steady state, got {task.gamma!r}")
    d, q = task.d, task.sigma_e**2
    return d * q / 2 * (np.sqrt(d**2 + 4 * (d + 1) / (1 - task.gamma**2)) - d)
