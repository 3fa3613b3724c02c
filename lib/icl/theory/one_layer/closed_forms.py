"""One layer of gated linear attention on drifting regression: optimum, errors, optimal forgetting factor.

Everything depends on the task only through D1 .. D4 (:mod:`icl.theory.moments`) and the spectrum of Lambda, because
Lambda~ is a polynomial in Lambda and shares its eigenvectors. Prediction: y_hat = (sum_i a_i y_i x_i)' A x_{n+1}.

The paper's inputs are Gaussian. Other laws of independent coordinates (:class:`~icl.tasks.core.InputLaw`) change one
number in all of it: the 2 of Lambda~, which is E z^4 - 1 for Gaussian z, becomes kurtosis - 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Gt, Lt
from jaxtyping import Float
from scipy.optimize import minimize_scalar

from icl import _checks
from icl._bounds import NonNegatives, Positive, Positives, validated
from icl.tasks import DriftingRegression, Task
from icl.theory import moments
from icl.theory.one_layer._range import within_float64


def _spectrum(task: Task) -> Float[np.ndarray, " d"]:
    """Eigenvalues of Lambda, ascending."""
    return np.linalg.eigvalsh(task.Lambda)


def _in_range(task: Task, lam: Any) -> moments.Moments:
    """D1 .. D4; rescaled by the largest weight, on which no error depends, where lam^n or its square leaves float64."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        m = moments.task_moments(task, lam)
        _checks.real("the variance of the query's weight", m.D4)
        terms = (m.D1**2, m.D2, m.D1**2 + m.D2 + m.D3)
    if ((np.asarray(lam) > 0) & (m.D4 > 0) & ~((m.D4 > 1e-140) & (m.D4 < 1e140))).any():
        raise ValueError(
            "the variance of the query's weight must be from 1e-140 to 1e140, for squares to be within float64, got "
            f"{float(m.D4.max()):.3g}"
        )
    # Twenty digits from either end of float64: sums over directions and their products have to fit as well.
    least = np.minimum(terms[1], np.where(terms[0] > 0, terms[0], terms[1]))
    lost = ~((terms[2] < 1e288) & (least > 1e-288)) & (np.asarray(lam) > 0) & (m.D4 > 0)
    if not lost.any():
        return m
    other = moments.relative(task, np.where(lost, lam, 1.0))
    with np.errstate(under="ignore"):
        unit = m.D4 / other.D4
        pairs = ((m.D1, other.D1), (m.D2, other.D2), (m.D3, other.D3), (m.residual, other.residual))
        D1, D2, D3, residual = (np.where(lost, theirs * unit, ours) for ours, theirs in pairs)
    return moments.Moments(D1, D2, D3, m.D4, residual)


@validated
def lambda_tilde(task: Task, *, lam: Positive) -> Float[np.ndarray, "d d"]:
    """Effective covariance of Theorem 1: Lambda~ = D2 (2 Lambda + tr(Lambda) I) + D3 Lambda for Gaussian inputs."""
    m = moments.task_moments(task, float(lam))
    Lambda: np.ndarray = task.Lambda
    if not within_float64(m):
        raise ValueError(f"lam must keep Lambda~ within float64, which {lam!r} does not for {task.n} examples")
    return m.D2 * ((task.inputs.kurtosis - 1) * Lambda + np.trace(Lambda) * np.eye(task.d)) + m.D3 * Lambda


@dataclass(frozen=True)
class Optimum:
    """Global minimum (14) of the population loss.

    Attributes:
        W_V: merged value matrix, (d+1, d+1): one non-zero entry, sqrt(D1 ||Lambda~^-1||_F), in its last corner.
        W_KQ: merged key-query matrix, (d+1, d+1): Lambda~^-1, scaled to balance W_V, in its first d x d block.
        A: their product D1 Lambda~^-1, (d, d), which is all that the prediction sees.
    """

    W_V: Float[np.ndarray, "tokens tokens"]
    W_KQ: Float[np.ndarray, "tokens tokens"]
    A: Float[np.ndarray, "d d"]


@validated
def optimum(task: Task, *, lam: Positive) -> Optimum:
    """Global minimum of Theorem 1, (14), the limit of gradient flow.

    Raises:
        ValueError: if lam is not positive, or if Lambda~ is singular (Lambda = 0 or weights that are all zero, or lam^n
            below what float64 can hold) or not finite.
    """
    m = moments.task_moments(task, float(lam))
    tilde = lambda_tilde(task, lam=lam)
    if np.linalg.cond(tilde) > 1e15:
        raise ValueError("Lambda~ is singular for this task: the optimum is not unique")
    inverse = np.linalg.inv(tilde)
    norm = np.linalg.norm(inverse)
    W_V, W_KQ = np.zeros((task.d + 1, task.d + 1)), np.zeros((task.d + 1, task.d + 1))
    W_V[-1, -1] = np.sqrt(m.D1 * norm)
    W_KQ[:-1, :-1] = np.sqrt(m.D1 / norm) * inverse
    return Optimum(W_V, W_KQ, m.D1 * inverse)


@validated
def layer_risk(A: Float[np.ndarray, "d d"], task: Task, *, lam: NonNegatives) -> Any:
    """Mean squared error of the one-layer predictor with any A, optimal or not, trained on this task or another.

        E (y_hat - y)^2 = tr(A Lambda A' Lambda Lambda~) - 2 D1 tr(A Lambda^2) + D4 tr(Lambda)

    (16) is this at A = D1 Lambda~^-1; (19) is this with A from one task and everything else from another. Infinite
    where it is larger than float64 can hold.
    """
    Lambda: np.ndarray = task.Lambda
    _checks.shape("A", A, Lambda.shape)
    quadratic, trace = A @ Lambda @ A.T, np.trace(Lambda)
    signal = np.trace(quadratic @ Lambda @ Lambda)
    crosstalk = np.trace(quadratic @ Lambda) * trace
    with np.errstate(over="ignore", invalid="ignore"):
        m = moments.task_moments(task, lam)
        risk = (
            m.D2 * ((task.inputs.kurtosis - 1) * signal + crosstalk)
            + m.D3 * signal
            - 2 * m.D1 * np.trace(A @ Lambda @ Lambda)
            + m.D4 * trace
        )
    # Overflow leaves inf - inf = nan.
    return np.where(np.isnan(risk), np.inf, risk)[()]


@validated
def testing_error(train: Task, test: Task, *, lam: Positive, test_lam: NonNegatives) -> Any:
    """Theorem 3, (19): error on `test`, with forgetting factor(s) test_lam, of the layer trained on `train` at lam.

    >>> from icl.tasks import DriftingRegression
    >>> from icl.theory.one_layer import testing_error, training_error
    >>> slow = DriftingRegression(d=5, n=50, gamma=0.99, sigma_e=0.1)
    >>> fast = DriftingRegression(d=5, n=50, gamma=0.9, sigma_e=0.1)
    >>> round(float(testing_error(slow, fast, lam=0.95, test_lam=0.95)), 3)
    0.229
    >>> round(float(training_error(fast, lam=0.95)), 3)
    0.217
    """
    if test.d != train.d:
        raise ValueError(f"test must have the d of train, {train.d}, got {test.d}")
    return layer_risk(optimum(train, lam=lam).A, test, lam=test_lam)


@validated
def error_by_direction(task: Task, *, lam: NonNegatives) -> Float[np.ndarray, "*shape d"]:
    """Summands of (16) by eigendirection j of Lambda, in the order of its eigenvalues s_j, ascending.

        D4 s_j - D1^2 s_j^2 / s~_j,    s~_j = D2 (2 s_j + tr Lambda) + D3 s_j                 (Gaussian inputs)

    lam may be an array, whose axes come first. At lam = 0 it is the zero predictor's error; for
    lam -> 0 that of the last example alone, whose weight A rescales.

    Raises:
        ValueError: if lam is negative, or the weights' variance at the query or its square leaves float64.
    """
    return _by_direction(task, _in_range(task, lam))


def _by_direction(task: Task, m: moments.Moments) -> np.ndarray:
    D2, D3, D4, residual = (D[..., None] for D in (m.D2, m.D3, m.D4, m.residual))
    s = _spectrum(task)
    crosstalk = D2 * ((task.inputs.kurtosis - 2) * s + s.sum())
    tilde = crosstalk + (D2 + D3) * s
    # D4 - D1^2 s / s~ as a sum of positive terms: no cancellation, however small.
    return D4 * s * np.divide(crosstalk + residual * s, tilde, out=np.ones(tilde.shape), where=tilde > 0)


@validated
def training_error(task: Task, *, lam: NonNegatives) -> Any:
    """Theorem 2, (16), reduced to a sum over the eigenvalues of Lambda. lam may be an array.

    The literal traces stay in :func:`~icl.theory.errata.adaptation.printed_training_error`; the two agree to rounding.

    >>> from icl.tasks import DriftingRegression
    >>> from icl.theory.one_layer import training_error, zero_predictor
    >>> task = DriftingRegression(d=5, n=50, gamma=0.95, sigma_e=0.3)
    >>> round(float(training_error(task, lam=0.9)), 3), round(zero_predictor(task), 3)
    (2.613, 4.617)
    """
    return _by_direction(task, _in_range(task, lam)).sum(-1)


@validated
def identity_error(task: Task, *, lam: Positives) -> Any:
    """(16) for Lambda = I, corrected and simplified: d (D4 - D1^2 / a) with a = (d + 2) D2 + D3 (erratum 6)."""
    if not np.array_equal(task.Lambda, np.eye(task.d)):
        raise ValueError("Lambda must be the identity here; training_error takes any")
    m = _in_range(task, lam)
    crosstalk = (task.d + task.inputs.kurtosis - 2) * m.D2
    a = crosstalk + m.D2 + m.D3
    return task.d * m.D4 * np.where(a > 0, (crosstalk + m.residual) / np.where(a > 0, a, 1.0), 1.0)


@validated
def zero_predictor(task: Task) -> float:
    """Error of the zero predictor: D4 tr(Lambda)."""
    return float(_in_range(task, 0.0).D4 * np.trace(task.Lambda))


@validated
def xi(task: Task, *, lam: Positives) -> Any:
    """Large-d proxy D1^2 / D2 for the explained variance: for Lambda = I, error -> d D4 - xi."""
    m = _in_range(task, lam)
    return m.D1**2 / np.where(m.D2 > 0, m.D2, 1.0)


def _valley(errors: Callable[[Any], np.ndarray], upper: Positive) -> float:
    """Minimiser of the error in (0, upper]: grid search, refined by golden section."""
    grid = np.linspace(0, min(upper, 2.0), 401)[1:]
    if upper > 2:
        # Keep the grid fine near the minima, however large `upper` is.
        grid = np.append(grid, np.geomspace(2.0, upper, 401)[1:])
    on_grid = errors(grid)
    best = int(on_grid.argmin())
    low, high = (grid[best - 1] if best else 0.0), grid[min(best + 1, len(grid) - 1)]
    result = minimize_scalar(
        lambda lam: float(errors(lam)), bounds=(low, high), method="bounded", options={"xatol": 1e-10}
    )
    # With one example A undoes any lam: the error is constant, and differences are rounding.
    return float(upper if on_grid[-1] <= result.fun * (1 + 1e-13) else result.x)


def _any_unit(task: Task) -> Callable[[Any], np.ndarray]:
    """`error_by_direction`, rescaled where weights overflow float64, which moves no minimum."""
    with np.errstate(over="ignore", invalid="ignore"):
        if not isinstance(task, DriftingRegression) or np.isfinite(moments.task_moments(task, 0.0).D4):
            return lambda lam: error_by_direction(task, lam=lam)
    return lambda lam: _by_direction(task, moments.relative(task, lam))


@validated
def optimal_forgetting(task: Task, *, upper: Positive = 1.0) -> float:
    """Return lam*, the forgetting factor in (0, upper] of least training error (16).

    `upper` itself is returned when nothing inside is better. Let it exceed 1 for growing weights (gamma > 1), whose
    best lam does (Theorem 4).

    >>> from icl.tasks import DriftingRegression
    >>> from icl.theory.one_layer import optimal_forgetting
    >>> [round(optimal_forgetting(DriftingRegression(d=5, n=50, gamma=gamma)), 3) for gamma in (0.9, 0.99, 1.0)]
    [0.807, 0.955, 0.977]
    """
    errors = _any_unit(task)
    return _valley(lambda lam: errors(lam).sum(-1), upper)


@validated
def forgetting_by_direction(task: Task, *, upper: Positive = 1.0) -> Float[np.ndarray, " d"]:
    """Optimal forgetting factor of each eigendirection of Lambda, eigenvalues ascending, as per-channel gates allow.

    Least summands of (16), each for itself (not in the paper, whose lam is one for all).
    """

    errors = _any_unit(task)

    def best(j: int) -> float:
        return _valley(lambda lam: errors(lam)[..., j], upper)

    return np.array([best(j) for j in range(task.d)])


@validated
def crosstalk(task: Task) -> Float[np.ndarray, " d"]:
    """Noise-to-signal variance ratio of a pseudo-observation, by eigenvalue of Lambda, ascending.

    y_i x_i = x_i x_i' w_i is Lambda w_i plus white noise. Along the eigendirection of s_j the noise has
    1 + tr(Lambda) / s_j times the variance of the signal (Gaussian inputs; d + 1 for Lambda = I).

    Raises:
        ValueError: if Lambda is singular: a direction without input variance has no signal.
    """
    _checks.isotropic(task)
    s = _spectrum(task)
    if s[0] <= 1e-15 * s[-1]:
        raise ValueError(f"Lambda must be positive definite here, its smallest eigenvalue is {s[0]:.3g}")
    return task.inputs.kurtosis - 2 + s.sum() / s


@validated
def position_weights(task: Task) -> Float[np.ndarray, "d n"]:
    """Optimal position weights a_i, unconstrained, one row an eigendirection of Lambda (eigenvalues ascending).

    The Wiener filter on the pseudo-observations y_i x_i (not in the paper): (K + c diag K) a = k, with K the weights'
    kernel on the examples, k its column at the query and c the direction's :func:`crosstalk`. Rows are scaled so that A
    = I.
    """
    kernel = task.weight_kernel()
    past, query = kernel[:-1, :-1], kernel[:-1, -1]
    noisy = past + crosstalk(task)[:, None, None] * np.diag(past.diagonal())
    if np.linalg.cond(noisy).max() > 1e15:
        raise ValueError("K + c diag K is singular for this task: the best weights are not unique")
    return np.linalg.solve(noisy, query[:, None])[..., 0] / _spectrum(task)[:, None]


@validated
def position_error(task: Task) -> float:
    """Error with the optimal position weights: a lower bound for any data-independent gate (not in the paper)."""
    kernel, s = task.weight_kernel(), _spectrum(task)
    explained = (position_weights(task) * s[:, None]) @ kernel[:-1, -1]
    return float(s @ (kernel[-1, -1] - explained))


@validated
def kalman_pole(gamma: Annotated[Any, Gt(0), Lt(1)], *, crosstalk: Positives) -> Any:
    """Return lam* in closed form (not in the paper): the pole of a scalar steady-state Kalman filter.

    For stationary weights and n -> infinity, y_i x_i = Lambda w_i + white noise, and one layer of attention is a Wiener
    filter on these pseudo-observations. Its optimal weights are exactly geometric, with ratio the smaller root of

        lam^2 - b lam + 1 = 0,    b = [(1 + gamma^2) + (1 - gamma^2) / crosstalk] / gamma.

    Args:
        gamma: autoregressive coefficient.
        crosstalk: variance of that noise over the variance of the signal: d + 1 for Lambda = I, and an entry of
            `crosstalk(task)` in each eigendirection of Lambda, for the best decay of that channel.

    >>> from icl.tasks import DriftingRegression
    >>> from icl.theory.one_layer import kalman_pole, optimal_forgetting
    >>> task = DriftingRegression(d=5, n=1000, gamma=0.9)
    >>> round(float(kalman_pole(0.9, crosstalk=6)), 3), round(optimal_forgetting(task), 3)
    (0.807, 0.807)
    """
    gamma = np.asarray(gamma, dtype=np.float64)
    crosstalk = np.asarray(crosstalk, dtype=np.float64)
    # gamma (b - 2), a sum of what b is above 2 by: b^2 - 4 would lose 1 - lam where gamma is close to 1.
    above = (1 - gamma) ** 2 + (1 - gamma) * (1 + gamma) / crosstalk
    return 2 * gamma / (2 * gamma + above + np.sqrt(above) * np.sqrt(above + 4 * gamma))


@validated
def steady_identity_error(task: DriftingRegression) -> float:
    """Error at lam* for Lambda = I, stationary drift and n -> infinity, in closed form (not in the paper).

    The scalar Riccati equation p = q + gamma^2 p r / (p + r), with q = sigma_e^2 and the noise r = c q / (1 - gamma^2)
    of crosstalk c, is quadratic: error = d p = (d q / 2) [sqrt((c - 1)^2 + 4 c / (1 - gamma^2)) - (c - 1)].
    """
    if not np.array_equal(task.Lambda, np.eye(task.d)):
        raise ValueError("Lambda must be the identity here: each eigendirection has a steady state of its own")
    if task.gamma >= 1:
        raise ValueError(f"gamma must be < 1: only stationary drift has a steady state, got {task.gamma!r}")
    q, c = task.sigma_e**2, crosstalk(task)[0]
    # The form without cancellation: sqrt(..) and c - 1 are nearly equal in many dimensions.
    inside = 4 * c / ((1 - task.gamma) * (1 + task.gamma))
    root = np.sqrt((c - 1) ** 2 + inside)
    return task.d * q / 2 * (inside / (root + c - 1) if c > 1 else root + 1 - c)
