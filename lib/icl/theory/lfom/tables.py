"""Linear first-order methods on random quadratics: coefficient tables, their polynomials and risks.

A prompt of n inputs x ~ N(0, Sigma) has the curvature H = X X'/n, and its weights are w* ~ N(0, Sigma^-1), labels
without noise. A method that combines past gradients with numbers Gamma[layer, j], and preconditions layer j with
A_j = a_j A, makes the error w_l - w* a polynomial of A H [Dutta & Sra 2025, (3.4)]:

    w_l - w* = -p_l(A H) w*,    p_0 = 1,    p_{l+1}(t) = p_l(t) - sum_{j<=l} Gamma[l, j] a_j t p_j(t),    p_l(0) = 1

For A = Sigma^-1, whitening takes Sigma away, and over prompts, query and w* the mean squared error is
E ||p_l(W/n)||_F^2 with W ~ Wishart_d(I, n). :mod:`icl.theory.lfom.polynomial_floor` has the least that any method can
have.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from icl import _checks
from icl._bounds import Count, NonNegative, Positive, Reals, validated
from icl.theory.lfom._recursion import Register, limit_recursion, register_basis, wishart_recursion


@validated
def _triangular(Gamma: Reals) -> np.ndarray:
    Gamma = np.asarray(Gamma, dtype=np.float64)
    _checks.shape("Gamma", Gamma, (None, None))
    if Gamma.shape[0] != Gamma.shape[1] or not len(Gamma):
        raise ValueError(f"Gamma must be square, with at least one layer, got shape {Gamma.shape}")
    if (ahead := np.triu(Gamma, 1)).any():
        worst = ahead.flat[np.abs(ahead).argmax()]
        raise ValueError(f"Gamma must be lower triangular (no layer reads a later one), got {worst} above the diagonal")
    return Gamma


def _one_a_layer(name: str, value: Any, layers: int) -> np.ndarray:
    value = np.asarray(_checks.real(name, value), dtype=np.float64)
    if value.ndim:
        _checks.shape(name, value, (layers,), "to have one number a layer")
    return np.broadcast_to(value, (layers,))


def _powers(base: float, layers: int) -> np.ndarray:
    """base^(l - j) for j <= l, 0 elsewhere."""
    lag = np.subtract.outer(np.arange(layers), np.arange(layers))
    return np.where(lag >= 0, base ** np.maximum(lag, 0), 0.0)


@validated
def gradient_descent_table(eta: Positive, layers: Count) -> Float[np.ndarray, "layers layers"]:
    """Gamma of w <- w - eta grad: eta on the diagonal.

    All tables hold increments, w_{l+1} = w_l - sum_{j<=l} Gamma[l, j] A_j grad f(w_j); their sums are
    :func:`cumulative`.

    >>> from icl.theory.lfom.tables import gradient_descent_table, polynomials
    >>> polynomials(gradient_descent_table(0.5, layers=2))
    array([[ 1.  ,  0.  ,  0.  ],
           [ 1.  , -0.5 ,  0.  ],
           [ 1.  , -1.  ,  0.25]])
    """
    _checks.fits_memory("layers", layers, 8 * layers**2)
    return float(eta) * np.eye(layers)


@validated
def momentum_table(eta: Positive, beta: NonNegative, layers: Count) -> Float[np.ndarray, "layers layers"]:
    """Gamma of the heavy ball, w_{l+1} = w_l - eta grad f(w_l) + beta (w_l - w_{l-1}): eta beta^(l-j).

    At beta = 1 every later layer weighs a gradient as the first did: what a Gamma_j that all layers share amounts to.
    """
    _checks.fits_memory("layers", layers, 8 * layers**2)
    return eta * _powers(float(beta), layers)


@validated
def nesterov_table(eta: Positive, beta: NonNegative, layers: Count) -> Float[np.ndarray, "layers layers"]:
    """Gamma of Nesterov's method, w_{l+1} = v_l - eta grad f(v_l), v_{l+1} = w_{l+1} + beta (w_{l+1} - w_l).

    Gradients are taken at v, so the layers' states are v_0 .. v_{L-1} and, last, w_L. With D[l, j] = eta beta^(l-j), of
    w_{l+1} - w_l, the rows are D[l] + beta (D[l] - D[l-1]), and eta alone on the diagonal in the last.
    """
    _checks.fits_memory("layers", layers, 8 * layers**2)
    D = momentum_table(eta, beta, layers)
    Gamma = D + beta * np.diff(D, axis=0, prepend=0.0)
    Gamma[-1] = 0.0
    Gamma[-1, -1] = eta
    return Gamma


@validated
def registers(
    alpha: Float[np.ndarray, "layers"], gamma: Float[np.ndarray, "layers"]
) -> Float[np.ndarray, "layers layers"]:
    """Gamma of a one-register method, s <- -A_l grad + gamma_l s, w <- w + alpha_l s: alpha_l prod_{m=j+1..l} gamma_m.

    [Dutta & Sra 2025, (3.1), (3.2)]; gamma_0 has nothing to act on.
    """
    layers = len(alpha)
    if not layers:
        raise ValueError(f"alpha must have at least one layer, got shape {alpha.shape}")
    # Coefficients of the gradients in the register, a row for each layer.
    held = np.eye(layers)
    for layer in range(1, layers):
        held[layer] += gamma[layer] * held[layer - 1]
    return alpha[:, None] * held


@validated
def cumulative(Gamma: Float[np.ndarray, "layers layers"]) -> Float[np.ndarray, "layers layers"]:
    """Cumulative sums Lambda[k, j] = sum_{l=j..k} Gamma[l, j]: w_{k+1} = w_0 - sum_{j<=k} Lambda[k, j] A_j grad f(w_j).

    With the opposite sign these are the coefficients of [Dutta & Sra 2025, (1.1)].
    """
    return np.asarray(_triangular(Gamma).cumsum(0))


@validated
def polynomials(Gamma: Float[np.ndarray, "layers layers"], a: Reals = 1.0) -> Float[np.ndarray, "depths depths"]:
    """Ascending coefficients of p_0 .. p_L, one a row: the error after l layers is p_l(A H) times that at the start.

    Args:
        Gamma: increments, lower triangular.
        a: A_l = a_l A, one number or one a layer.
    """
    Gamma = _triangular(Gamma)
    layers = len(Gamma)
    steps = Gamma * _one_a_layer("a", a, layers)
    p = np.eye(1, layers + 1).repeat(layers + 1, axis=0)
    for layer in range(layers):
        p[layer + 1] = p[layer]
        p[layer + 1, 1:] -= (steps[layer] @ p[:-1])[:-1]
    return p


def _above(optimum: Register, steps: np.ndarray) -> np.ndarray:
    """Risks of the table Gamma a, as the floor plus the sum of squares that opens `polynomial_floor`.

    Nothing cancels at any depth: rounding leaves 1e-32 of the first risk, and of each risk what its own digits are.
    """
    times, alpha, norms = register_basis(optimum)
    y = np.eye(1, len(steps) + 1).repeat(len(steps) + 1, axis=0)
    for layer, row in enumerate(steps):
        y[layer + 1] = y[layer] - times @ (row @ y[:-1])
    return np.asarray(float(optimum.risks[-1]) + (y[:, 1:] - alpha) ** 2 @ norms)


@validated
def table_risks(
    Gamma: Float[np.ndarray, "layers layers"], d: Count, n: Count, a: Reals = 1.0
) -> Float[np.ndarray, "depths"]:
    """E ||p_l(W/n)||_F^2 after every layer of a table, A_l = a_l Sigma^-1: its exact mean squared error, any Sigma.

    Args:
        Gamma: increments, lower triangular.
        d: dimension.
        n: examples in a prompt.
        a: one number or one a layer.

    Returns:
        shape (layers + 1,), in units of y^2; d first.

    >>> from icl.theory.lfom.tables import gradient_descent_table, momentum_table, table_risks
    >>> table_risks(gradient_descent_table(0.8, layers=3), d=5, n=20).round(3)
    array([5.   , 1.16 , 0.525, 0.335])
    >>> table_risks(momentum_table(0.6, 0.3, layers=3), d=5, n=20).round(3)
    array([5.   , 1.34 , 0.534, 0.21 ])
    """
    Gamma = _triangular(Gamma)
    return _above(wishart_recursion(d, n, len(Gamma)), Gamma * _one_a_layer("a", a, len(Gamma)))


@validated
def limit_table_risks(
    Gamma: Float[np.ndarray, "layers layers"], c: Positive, a: Reals = 1.0
) -> Float[np.ndarray, "depths"]:
    """Limit of `table_risks` / d as d and n grow with d/n = c: integrals of p_l^2 over the Marchenko-Pastur law.

    Args:
        Gamma: increments, lower triangular.
        c: dimensions per example, d/n.
        a: one number or one a layer.

    Returns:
        shape (layers + 1,), per coordinate, in units of y^2; 1 first.
    """
    Gamma = _triangular(Gamma)
    return _above(limit_recursion(c, len(Gamma)), Gamma * _one_a_layer("a", a, len(Gamma)))
