"""One S6 layer with a fixed step on regression prompts: exact loss, gradient, descent, optimum, bounds.

The layer is :mod:`icl.models.s6` with A = -I and Delta fixed [Jiang et al. 2025, Assumption 4.1], alpha = exp(-Delta).
Prompts are w, x_i, x_q ~ N(0, I_d), y = w'x without noise. With W_B = (B b), W_C = (C c), the query's token (x_q, 0)
and

    omega_l = (1 - alpha) alpha^(N+1-l),   g = sum omega_l y_l x_l,   q = sum omega_l y_l^2,   s = sum omega_l y_l,

the prediction is bilinear in K = (C b_C)'(B b b_B), (d+1, d+2), and does not see c at all:

    y_hat = (x_q, 1)' K (g, q, s).

Averaging over x_q and over the signs of w and of the inputs leaves no mixed terms: g is odd in w and even in the
inputs, q even in both, s odd in both. What remains are the moments E g w' = beta3 I, E g g' = beta1 I, E q^2 = beta2
and E s^2 = d kappa, with beta3 = sum omega_l and kappa = sum omega_l^2; from E (w'x)^2 x x' = ||w||^2 I + 2 w w'
comes beta1 = beta3^2 + (d + 1) kappa, from E (w'x)^4 = 3 ||w||^4 and E ||w||^4 = d^2 + 2 d comes beta2. So

    L = 1/2 E (y_hat - y)^2 = L* + 1/2 sum_ij m_j (K - K*)_ij^2,    m = (beta1, .., beta1, beta2, d kappa),

with K* = beta I in the first d rows and columns and 0 elsewhere, beta = beta3 / beta1, L* = d/2 (1 - beta3^2 / beta1):
the population loss for all parameters, biases included, and with it everything below. In blocks of K it reads

    2 L = beta1 ||P||^2 - 2 beta3 tr P + d + beta2 ||v||^2 + d kappa ||p||^2 + beta1 ||r||^2 + beta2 u^2 + d kappa t^2,
    P = C'B, v = C'b, p = C'b_B, r = B'b_C, u = b_C'b, t = b_C'b_B,

all norms those of Frobenius. Biases that are 0, as the paper's are at the start, stay 0 and leave the first four terms.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Lt
from jaxtyping import Float
from scipy.integrate import solve_ivp

from icl import _checks
from icl._bounds import Count, NonNegative, Positive, Real, validate_fields, validated

#: Below it squares of alpha leave the range of floating point numbers; nothing is remembered long before.
_LEAST_ALPHA = 1e-100


@validated
def _decay(alpha: Annotated[float, Ge(_LEAST_ALPHA)]) -> float:
    value = float(alpha)
    if value >= 1:
        raise ValueError(f"alpha must be < 1, got {value!r}")
    return value


@validated
def assumed_alpha(N: Count) -> float:
    """Decay of a step that halves the initial state over the prompt, 2^(-1/N), Delta = ln(2) / N (Assumption 4.1)."""
    return 2.0 ** (-1 / N)


@dataclass(frozen=True)
class Coefficients:
    """Moments of the layer's state after a prompt, the loss's only dependence on the task and the step.

    Attributes:
        d: dimension of the inputs.
        N: examples in a prompt.
        alpha: decay a token, exp(-Delta).
    """

    d: Count
    N: Count
    alpha: Annotated[float, Ge(1e-100), Lt(1)]

    def __post_init__(self) -> None:
        """Validate sizes and decay."""
        validate_fields(self)
        _decay(self.alpha)

    @property
    def beta3(self) -> float:
        """Sum of omega_l, alpha (1 - alpha^N), with E g w' = beta3 I."""
        return -self.alpha * math.expm1(self.N * math.log(self.alpha))

    @property
    def kappa(self) -> float:
        """Sum of omega_l^2, alpha^2 (1 - alpha) (1 - alpha^(2 N)) / (1 + alpha)."""
        rest = -math.expm1(2 * self.N * math.log(self.alpha))
        return self.alpha**2 * (1 - self.alpha) * rest / (1 + self.alpha)

    @property
    def beta1(self) -> float:
        """Coefficient of E g g' = beta1 I."""
        return self.beta3**2 + (self.d + 1) * self.kappa

    @property
    def beta2(self) -> float:
        """E q^2 = (d^2 + 2 d) (beta3^2 + 2 kappa), as y_i and y_j share their w and E y_i^2 y_j^2 = d^2 + 2 d."""
        return (self.d**2 + 2 * self.d) * (self.beta3**2 + 2 * self.kappa)

    @property
    def beta(self) -> float:
        """Limit beta3 / beta1 of training, where P = C'B tends to beta I."""
        return self.beta3 / self.beta1


@dataclass(frozen=True, eq=False)
class S6Weights:
    """Trained parameters of the layer, or the gradient of the loss with respect to them.

    Attributes:
        W_B: (B b), write projection.
        W_C: (C c), readout; c meets the query's label, which is 0, and does nothing.
        b_B: bias of the write projection.
        b_C: bias of the readout.
    """

    W_B: Float[np.ndarray, "d_h d_e"]
    W_C: Float[np.ndarray, "d_h d_e"]
    b_B: Float[np.ndarray, " d_h"]
    b_C: Float[np.ndarray, " d_h"]

    def __post_init__(self) -> None:
        """Copy to float64 and validate shapes and finite values."""
        validate_fields(self)
        d_h, d_e = self.W_B.shape
        if d_h < 1 or d_e < 2:
            raise ValueError(f"W_B must have shape (d_h, d + 1) with d_h, d >= 1, got {self.W_B.shape}")


# X = (B b b_B) and Y = (C b_C): K = Y'X is all that the loss sees of them.
def _pack(weights: S6Weights) -> tuple[np.ndarray, np.ndarray]:
    return np.column_stack([weights.W_B, weights.b_B]), np.column_stack([weights.W_C[:, :-1], weights.b_C])


def _unpack(X: np.ndarray, Y: np.ndarray, c: np.ndarray) -> S6Weights:
    return S6Weights(X[:, :-1], np.column_stack([Y[:, :-1], c]), X[:, -1], Y[:, -1])


def _check(weights: S6Weights, coefficients: Coefficients) -> None:
    if weights.W_B.shape[1] != coefficients.d + 1:
        raise ValueError(
            f"weights must have {coefficients.d + 1} columns to match coefficients, got {weights.W_B.shape[1]}"
        )


class _Bowl:
    """Loss L = floor + 1/2 sum m_j (K - aim)_ij^2, with its constants precomputed."""

    def __init__(self, coefficients: Coefficients) -> None:
        d = coefficients.d
        self.d, self.aim = d, np.zeros((d + 1, d + 2))
        self.aim[:d, :d] = coefficients.beta * np.eye(d)
        self.m = np.append(np.full(d, coefficients.beta1), [coefficients.beta2, d * coefficients.kappa])
        self.floor = least_loss(d, coefficients.N, coefficients.alpha)

    def off(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        return Y.T @ X - self.aim

    def value(self, off: np.ndarray) -> float:
        return float(self.floor + (self.m * off**2).sum() / 2)

    def distance(self, off: np.ndarray) -> float:
        return float(np.sqrt((off[: self.d, : self.d] ** 2).sum()))

    def slopes(self, X: np.ndarray, Y: np.ndarray, off: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        G = self.m * off
        return Y @ G, X @ G.T


@validated
def population_loss(weights: S6Weights, coefficients: Coefficients) -> float:
    """Population loss L = 1/2 E (y_hat - y)^2, in units of y^2, for any weights and biases."""
    _check(weights, coefficients)
    bowl = _Bowl(coefficients)
    return bowl.value(bowl.off(*_pack(weights)))


@validated
def gradient(weights: S6Weights, coefficients: Coefficients) -> S6Weights:
    """Gradient of :func:`population_loss` with respect to every parameter; that of c is 0.

    dL/d(B b b_B) = (C b_C) G and dL/d(C b_C) = (B b b_B) G', with G_ij = m_j (K - K*)_ij. For biases 0 these are the
    updates of Lemma 5.1, with the beta2 of :class:`Coefficients`.
    """
    _check(weights, coefficients)
    bowl, (X, Y) = _Bowl(coefficients), _pack(weights)
    return _unpack(*bowl.slopes(X, Y, bowl.off(X, Y)), np.zeros(len(X)))


@dataclass(frozen=True, eq=False)
class DescentPath:
    """Trajectory of gradient descent or gradient flow.

    Attributes:
        time: times of the entries below: steps, or time in units of 1/y^2 (weights counted as pure numbers).
        losses: population loss L there, in units of y^2.
        distances: ||P - beta I||_F there.
        weights: at the end.
    """

    time: Float[np.ndarray, " looks"]
    losses: Float[np.ndarray, " looks"]
    distances: Float[np.ndarray, " looks"]
    weights: S6Weights


@validated
def descend(
    weights: S6Weights, coefficients: Coefficients, eta: Positive, steps: Count, every: Count = 1
) -> DescentPath:
    """Gradient descent on the population loss, (7), without sampling.

    Args:
        weights: where to start.
        coefficients: the task and the step of the layer.
        eta: learning rate.
        steps: how many.
        every: loss and distance are looked at every so many steps, at the start and at the end.

    Raises:
        FloatingPointError: if the weights or the loss stop being finite, with the step and the last finite loss.
    """
    _check(weights, coefficients)
    bowl, (X, Y) = _Bowl(coefficients), _pack(weights)
    time, losses, distances = [], [], []
    last = math.nan
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(steps + 1):
            off = bowl.off(X, Y)
            loss = bowl.value(off)
            if not math.isfinite(loss):
                raise FloatingPointError(
                    f"descent diverged: the loss is not finite at step {step} (eta = {eta:g}), before it was {last:g}"
                )
            last = loss
            if step % every == 0 or step == steps:
                time.append(float(step))
                losses.append(loss)
                distances.append(bowl.distance(off))
            if step < steps:
                down, along = bowl.slopes(X, Y, off)
                X, Y = X - eta * down, Y - eta * along
    return DescentPath(np.array(time), np.array(losses), np.array(distances), _unpack(X, Y, weights.W_C[:, -1]))


@validated
def flow(
    weights: S6Weights, coefficients: Coefficients, time: Float[np.ndarray, " looks"], *, rtol: Positive = 1e-9
) -> DescentPath:
    """Gradient flow, d theta / dt = -grad L: the limit of :func:`descend` for small eta, at time eta times steps.

    It conserves (B b b_B)(B b b_B)' - (C b_C)(C b_C)'.

    Args:
        weights: where to start, at time 0.
        coefficients: the task and the step of the layer.
        time: when to look, increasing, >= 0; the last, > 0, is the end.
        rtol: error of the solver in each step, relative to the weights.

    Raises:
        RuntimeError: if the solver fails, with its message and the time it had reached.
    """
    _check(weights, coefficients)
    time = np.array(_checks.real("time", time, at_least=0), dtype=np.float64)
    if time.ndim != 1 or not len(time) or not time[-1] > 0 or (np.diff(time) <= 0).any():
        raise ValueError(f"time must be one increasing row that ends above 0, got {time}")
    bowl, (X, Y) = _Bowl(coefficients), _pack(weights)
    shapes, cut = (X.shape, Y.shape), X.size

    def apart(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return flat[:cut].reshape(shapes[0]), flat[cut:].reshape(shapes[1])

    def downhill(_: float, flat: np.ndarray) -> np.ndarray:
        X, Y = apart(flat)
        down, along = bowl.slopes(X, Y, bowl.off(X, Y))
        return -np.concatenate([down.ravel(), along.ravel()])

    start = np.concatenate([X.ravel(), Y.ravel()])
    atol = rtol * np.abs(start).max()
    # The solver rejects trial steps that overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        path = solve_ivp(downhill, (0.0, time[-1]), start, method="DOP853", t_eval=time, rtol=rtol, atol=atol)
    if path.status < 0:
        raise RuntimeError(f"gradient flow stopped at time {path.t[-1] if len(path.t) else 0:g}: {path.message}")
    offs = [bowl.off(*apart(flat)) for flat in path.y.T]
    losses, distances = np.array([bowl.value(o) for o in offs]), np.array([bowl.distance(o) for o in offs])
    return DescentPath(time, losses, distances, _unpack(*apart(path.y[:, -1]), weights.W_C[:, -1]))


@validated
def effective_samples(N: Count, alpha: Annotated[float, Ge(1e-100), Lt(1)]) -> float:
    """Effective sample size N_eff = beta3^2 / kappa of N examples with decaying weights, between 1 and N.

    With Delta = -ln(alpha) it is tanh(N Delta / 2) / tanh(Delta / 2), which grows with alpha from 1 towards N.

    >>> from icl.theory import s6
    >>> [round(s6.effective_samples(100, alpha), 1) for alpha in (0.9, 0.99, 0.999)]
    [19.0, 92.4, 99.9]
    """
    half = -math.log(_decay(alpha)) / 2
    return math.tanh(N * half) / math.tanh(half)


@validated
def optimal_beta(d: Count, N: Count, alpha: Annotated[float, Ge(1e-100), Lt(1)]) -> tuple[float, float]:
    """Least population loss of a layer with d_h >= d: (beta, L), at C'B = beta I and the rest of K 0.

    L = d (d + 1) / (2 (d + 1 + N_eff)) is d/2 (1 - beta3^2 / beta1), written without a difference.

    >>> from icl.theory import s6
    >>> beta, loss = s6.optimal_beta(d=4, N=30, alpha=s6.assumed_alpha(30))
    >>> round(beta, 3), round(loss, 3), round(s6.bound(4, 30), 3)
    (1.744, 0.295, 1.0)
    """
    coefficients = Coefficients(d, N, alpha)
    return coefficients.beta, d * (d + 1) / (2 * (d + 1 + effective_samples(N, alpha)))


@validated
def least_loss(d: Count, N: Count, alpha: Annotated[float, Ge(1e-100), Lt(1)], d_h: Count | None = None) -> float:
    """Least population loss of a layer with states of size d_h: 1/2 (d - min(d, d_h) beta3^2 / beta1).

    C'B has rank d_h at most, and the nearest such matrix to beta I leaves d - d_h of its directions at 0. None stands
    for states as large as can be of use, d_h >= d.
    """
    beta, loss = optimal_beta(d, N, alpha)
    missing = 0 if d_h is None else max(0, d - d_h)
    return loss + missing * beta * Coefficients(d, N, alpha).beta3 / 2


@validated
def bound(d: Count, N: Count) -> float:
    """Upper bound of the paper on the loss after training, 3 d (d + 1) / (2 N) (Theorem 4.1 (c)).

    It is above d/2, the zero predictor's loss, for N < 3 (d + 1).
    """
    return 3 * d * (d + 1) / (2 * N)


@validated
def sharper_bound(d: Count, N: Count) -> float:
    """Bound d (d + 1) / (2 (d + 1 + 2 N / (3 ln 2))) on :func:`least_loss` at alpha = 2^(-1/N) (not in the paper).

    There N_eff = coth(ln(2) / (2 N)) / 3 >= 2 N / (3 ln 2), as coth(z) > 1/z. It lies below d/2 for all N.
    """
    return d * (d + 1) / (2 * (d + 1 + 2 * N / (3 * math.log(2))))


@validated
def linear_attention_loss(d: Count, N: Count) -> float:
    """Least loss of one layer of linear attention, with equal weights on all examples: d (d + 1) / (2 (N + d + 1)).

    It is what :func:`least_loss` tends to as alpha -> 1.
    """
    return d * (d + 1) / (2 * (N + d + 1))


@validated
def lms_loss(d: Count, N: Count, mu: NonNegative | None = None) -> float:
    """Loss of LMS from w_hat = 0 after N examples: d/2 (1 - 2 mu + (d + 2) mu^2)^N; inf where that overflows.

    This is online gradient descent on the squared error, an error-correcting update; the layer's is Hebbian.
    None stands for the best step at every N, mu = 1 / (d + 2), in units of 1/x^2.
    """
    mu = 1 / (d + 2) if mu is None else _checks.number("mu", mu, at_least=0)
    with np.errstate(over="ignore"):
        return float(d / 2 * np.float64(1 - 2 * mu + (d + 2) * mu**2) ** N)


@validated
def shifted_loss(d: Count, N_test: Count, alpha: Annotated[float, Ge(1e-100), Lt(1)], beta: Real) -> float:
    """Loss of the frozen weights C'B = beta I, the rest of K 0, on prompts of N_test examples at the decay alpha.

    d/2 (1 - 2 beta beta3 + beta^2 beta1), with the coefficients of N_test.
    """
    coefficients = Coefficients(d, N_test, alpha)
    return least_loss(d, N_test, alpha) + d * coefficients.beta1 * (beta - coefficients.beta) ** 2 / 2


@validated
def rate(weights: S6Weights, coefficients: Coefficients, eta: Positive) -> float:
    """Asymptotic convergence rate of ||P - beta I|| a step, -ln(1 - eta beta1 (lmin(B'B) + lmin(C'C))).

    Close to the optimum a step of :func:`descend` takes E = P - beta I to E - eta beta1 (C'C E + E B'B), whose slowest
    direction this is. It is 0 where d_h < d.

    Args:
        weights: those at the end of training, where B'B and C'C have converged.
        coefficients: the task and the step of the layer.
        eta: learning rate.

    Raises:
        ValueError: if eta is so large that the slowest direction would overshoot.
    """
    _check(weights, coefficients)
    B, C = weights.W_B[:, :-1], weights.W_C[:, :-1]
    slowest = coefficients.beta1 * sum(max(0.0, float(np.linalg.eigvalsh(M.T @ M)[0])) for M in (B, C))
    if eta * slowest >= 1:
        raise ValueError(f"eta must be < {1 / slowest:g} for these weights, got {eta!r}")
    return -math.log1p(-eta * slowest)
