"""Polynomial floor: least risk of any linear first-order method with shared coefficients, and its one-register form.

With the error polynomials p of :mod:`icl.theory.lfom.tables` the mean squared error is E ||p(W/n)||_F^2, W ~
Wishart_d(I, n): an integral of p^2 over the mean spectrum dm of W/n. What is least, and how it is reached at every
layer at once (not in the paper):

- Of all p of degree L with p(0) = 1 the best is orthogonal, under t dm, to every polynomial of lower degree.
- So the best ones follow conjugate gradients' recursion, in the inner product whose energy is the plain square. With
  e = p_l, one direction s, integrals <,> over dm, and gamma_0 = 0:

      s <- -t e + gamma_l s,    e <- e + alpha_l s,
      alpha_l = <e, t e> / <s, s>,    gamma_l = <e, t e> / <e, t e> of the layer before

- The directions s_l are orthogonal under dm. Any p = 1 + sum_j y_j s_j therefore has the risk

      E ||p(W/n)||_F^2 = least risk of degree L + sum_j (y_j - alpha_j)^2 <s_j, s_j>

Moments of the spectrum are exact integers, and this recursion runs in fractions: in float64 it would lose all digits
within a dozen layers.

As d and n grow with d/n = c the spectrum settles, per coordinate, on the law of Marchenko and Pastur [1967]. It has the
density sqrt((b - t)(t - a)) / (2 pi c t) between a, b = (1 -+ sqrt c)^2, for c > 1 also the mass 1 - 1/c at 0. t dm is
Wigner's semicircle, whose orthogonal polynomials are Chebyshev's of the second kind, and all of the above has closed
forms, the functions `limit_..` (each says where its own comes from). With g_l = 1 + c + .. + c^l,

    least risk = c^l / g_l,              alpha_l = g_l / g_{l+1},
    gamma_l = c (g_{l-1} / g_l)^2,       <s_l, s_l> = c^l g_{l+1} / g_l^3
"""

from fractions import Fraction
from math import comb
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le
from jaxtyping import Float
from scipy.linalg import eigvalsh_tridiagonal
from scipy.optimize import least_squares, minimize

from icl import _checks
from icl._bounds import Count, Positive, Reals, validated
from icl.theory.lfom._recursion import (
    floats,
    limit_recursion,
    mean_traces,
    register_basis,
    squared_errors,
    wishart_recursion,
)


@validated
def wishart_moments(d: Count, n: Count, degree: Annotated[int, Ge(0), Le(120)]) -> Float[np.ndarray, "powers"]:
    """E tr (W/n)^k for k = 0 .. degree, W ~ Wishart_d(I, n); dimensionless.

    Integers, by sums over partitions of two rows and a column: see `_recursion.mean_traces`.

    Args:
        d: dimension.
        n: degrees of freedom; fewer than d is fine.
        degree: largest power.

    Returns:
        shape (degree + 1,), each rounded once.
    """
    return np.array([float(Fraction(trace, n**k)) for k, trace in enumerate(mean_traces(d, n, degree))])


@validated
def optimal_risks(d: Count, n: Count, layers: Annotated[int, Ge(1), Le(60)]) -> Float[np.ndarray, "depths"]:
    """Least E ||p(W/n)||_F^2 over polynomials p of degree 0 .. layers with p(0) = 1, exact and rounded once.

    No method with scalar coefficients that all prompts share is better in that many layers, if its preconditioners are
    a_l Sigma^-1 with any a_l; for any Sigma.

    Args:
        d: dimension.
        n: examples in a prompt.
        layers: largest degree; 30 take a second, 60 a quarter of a minute.

    Returns:
        shape (layers + 1,), in units of y^2; d first.

    >>> from icl.theory.lfom.polynomial_floor import optimal_risks
    >>> optimal_risks(d=5, n=20, layers=3).round(3)
    array([5.   , 1.154, 0.361, 0.134])
    """
    return floats(wishart_recursion(d, n, layers).risks)


@validated
def optimal_polynomial(d: Count, n: Count, layers: Count) -> Float[np.ndarray, "depths"]:
    """Ascending coefficients (1, c_1, ..) of the least-risk polynomial of degree `layers`.

    In float64, where values of a polynomial near its large roots suffer from cancellation; for steps that do not, see
    :func:`optimal_registers` and :func:`optimal_steps`. Arguments as in :func:`optimal_risks`.
    """
    return floats(wishart_recursion(d, n, layers).residual)


@validated
def optimal_registers(
    d: Count, n: Count, layers: Count
) -> tuple[Float[np.ndarray, "layers"], Float[np.ndarray, "layers"]]:
    """Coefficients of the one-register method that has the least risk at every depth.

    s <- -A H e + gamma_l s, e <- e + alpha_l s [Dutta & Sra 2025, (3.1), (3.2)] with A = Sigma^-1; the module docstring
    derives them. Fewer layers want the first of the same numbers. Arguments as in :func:`optimal_risks`.

    Returns:
        alpha and gamma, each of shape (layers,) and dimensionless; gamma_0 = 0.

    >>> from icl.theory.lfom.polynomial_floor import optimal_registers
    >>> from icl.theory.lfom.tables import registers, table_risks
    >>> alpha, gamma = optimal_registers(d=5, n=20, layers=3)
    >>> table_risks(registers(alpha, gamma), d=5, n=20).round(3)
    array([5.   , 1.154, 0.361, 0.134])
    """
    optimum = wishart_recursion(d, n, layers)
    return floats(optimum.alpha), floats(optimum.gamma)


@validated
def optimal_steps(d: Count, n: Count, layers: Count) -> Float[np.ndarray, "layers"]:
    """Step sizes a_l with prod_l (1 - a_l t) the least-risk polynomial: memoryless steps A_l = a_l Sigma^-1.

    They reach the floor after the last layer only; in what order they are taken matters before it.
    Arguments as in :func:`optimal_risks`.

    Returns:
        shape (layers,), ascending, dimensionless.
    """
    # The polynomial is orthogonal to all lower degrees under t dm, a positive measure on t > 0: its roots are real,
    # simple and positive, the eigenvalues of the measure's Jacobi matrix, which alpha and gamma make up.
    alpha, gamma = optimal_registers(d, n, layers)
    diagonal = 1 / alpha
    diagonal[1:] += gamma[1:] / alpha[:-1]
    roots = eigvalsh_tridiagonal(diagonal, np.sqrt(gamma[1:]) / alpha[:-1])
    return 1 / roots[::-1]


@validated
def best_single_step(d: Count, n: Count) -> tuple[float, float]:
    """Optimal step of one layer and its risk: a = n/(n+d+1) and d(d+1)/(n+d+1).

    E tr(I - a H)^2 = d - 2 a d + a^2 d (n+d+1)/n, as E W = n I and E W^2 = n (n+d+1) I.
    """
    return n / (n + d + 1), d * (d + 1) / (n + d + 1)


@validated
def limit_risks(c: Positive, layers: Count) -> Float[np.ndarray, "depths"]:
    """Limit of :func:`optimal_risks` / d as d and n grow with d/n = c: r_l = 1 / (1 + 1/c + .. + c^-l).

    The least integral of p^2 with p(0) = 1 is one over the sum of phi_k(0)^2, phi_k the law's orthonormal polynomials
    (Christoffel). These are U_k + sqrt(c) U_{k-1} at (t - 1 - c) / (2 sqrt c), and phi_k(0)^2 = c^-k. In the long run
    the risk goes to 0 for c <= 1, at c = 1 as 1/(l+1), and for c > 1 to 1 - 1/c, the part of w* that no example shows.

    Args:
        c: dimensions per example, d/n.
        layers: largest degree.

    Returns:
        shape (layers + 1,), per coordinate, in units of y^2; 1 first.
    """
    return floats(limit_recursion(c, layers).risks)


@validated
def limit_registers(c: Positive, layers: Count) -> tuple[Float[np.ndarray, "layers"], Float[np.ndarray, "layers"]]:
    """Limit of :func:`optimal_registers`: alpha_l = (1 - c^(l+1)) / (1 - c^(l+2)), gamma_l = c alpha_{l-1}^2.

    Under the semicircle t dm the best polynomials are p_l = U_l(x) / U_l(x_0), x = (t - 1 - c) / (2 sqrt c) and x_0
    its value at t = 0. Their <p_l, t p_l> = 1 / U_l(x_0)^2 = c^l / g_l^2 gives both numbers.

    Arguments as in :func:`limit_risks`.

    Returns:
        alpha and gamma, each of shape (layers,) and dimensionless; gamma_0 = 0.
    """
    limit = limit_recursion(c, layers)
    return floats(limit.alpha), floats(limit.gamma)


@validated
def limit_steps(c: Positive, layers: Count) -> Float[np.ndarray, "layers"]:
    """Limit of :func:`optimal_steps`: reciprocals of the roots 1 + c + 2 sqrt(c) cos(k pi / (L+1)) of U_L.

    Arguments as in :func:`limit_risks`.

    Returns:
        shape (layers,), ascending, dimensionless.
    """
    root = np.sqrt(float(c))
    k = np.arange(1, layers + 1)
    # 1 + c - 2 sqrt(c) is small near c = 1, and so is 1 + cos: as squares neither is a difference.
    return np.asarray(1 / ((1 - root) ** 2 + 4 * root * np.cos(k * np.pi / (2 * (layers + 1))) ** 2))


@validated
def limit_equal_steps(c: Positive, layers: Count) -> tuple[float, Float[np.ndarray, "depths"]]:
    """Optimal step a of gradient descent with equal steps, and its risks: a = 1/(1+c) = n/(n+d), at every depth.

    The slope of the risk of (1 - a t)^l is -2 l times the integral of (1 - a t)^(2l-1) under t dm, the semicircle. This
    is even about 1 + c, and at that a the integrand is odd about it. With u = 1 - a t, a step takes u^(2l) (1 - u^2) =
    u^(2l) a t (1 + u) from the integrand of the risk; u^(2l+1) is odd, and u^(2l) leaves a Catalan number C_l:

        r_{l+1} = r_l - C_l z^l / (1+c),    z = c / (1+c)^2

    In the long run a layer multiplies the risk by 4 z if c < 1; if c > 1 it goes to 1 - 1/c, as the floor does.
    Arguments as in :func:`limit_risks`.

    Returns:
        the step, dimensionless, and shape (layers + 1,), per coordinate, in units of y^2; 1 first.
    """
    ratio = Fraction(c)
    step, risks = 1 / (1 + ratio), [Fraction(1)]
    for j in range(layers):
        risks.append(risks[-1] - step * (ratio * step**2) ** j * comb(2 * j, j) / (j + 1))
    return float(step), floats(tuple(risks))


@validated
def _prompts(H: Reals, Sigma: Any, least: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """H in float64, the root of Sigma and its inverse."""
    H = np.asarray(H, dtype=np.float64)
    _checks.shape("H", H, (None, None, None))
    batch, rows, d = H.shape
    if rows != d:
        raise ValueError(f"H must be square, (batch, d, d), got shape {H.shape}")
    if batch < least or d < 1:
        raise ValueError(f"H must hold at least {least} matrices, (1, 1) or larger, got shape {H.shape}")
    # float32 products of inputs are symmetric to 1e-7.
    if (gap := np.abs(H - H.swapaxes(1, 2)).max()) > 1e-6 * np.abs(H).max():
        raise ValueError(f"H must be symmetric, its largest asymmetry is {gap:.3g}")
    Sigma = _checks.covariance("Sigma", Sigma, d)
    spread, U = np.linalg.eigh(Sigma)
    if spread[0] <= 1e-12 * spread[-1]:
        raise ValueError(f"Sigma must be positive definite, its smallest eigenvalue is {spread[0]:.3g}")
    return (H + H.swapaxes(1, 2)) / 2, (U * spread**0.5) @ U.T, (U / spread**0.5) @ U.T


@validated
def floor(
    H: Float[np.ndarray, "batch d d"],
    Sigma: Float[np.ndarray, "d d"] | None,
    layers: Count,
    A: Float[np.ndarray, "d d"] | None = None,
) -> tuple[Float[np.ndarray, "depths"], Float[np.ndarray, "depths"]]:
    """Least mean of ||Sigma^(1/2) p(A H) Sigma^(-1/2)||_F^2 over polynomials p with p(0) = 1, from a sample of prompts.

    The mean is quadratic in the coefficients. They are fitted to one half of the prompts and evaluated on the other,
    and vice versa (two-fold cross-validation), so that the value is an unbiased estimate of the fitted polynomial's
    risk: its mean is above the floor, by a term of order layers/batch, and never below. In place of powers of A H,
    nearly dependent, stand Arnoldi's directions, orthonormal on the half that is fitted.

    Args:
        H: curvatures X X'/n of at least two prompts, in x^2.
        Sigma: covariance of the inputs, positive definite; None is the identity.
        layers: largest degree.
        A: preconditioner, in 1/x^2; None is the identity.

    Returns:
        risks of degrees 0 .. layers, in units of y^2, and their standard errors over prompts; (layers + 1,) each.
    """
    H, root, inverse = _prompts(H, Sigma, least=2)
    batch, d, _ = H.shape
    A = np.eye(d) if A is None else A
    K = root @ A @ H @ inverse
    first = np.arange(batch) < batch // 2
    values = np.empty((batch, layers + 1))
    for half in (first, ~first):
        values[~half] = squared_errors(K, half, layers)[~half]
    return values.mean(0), values.std(0, ddof=1) / np.sqrt(batch)


@validated
def fitted_registers(
    H: Float[np.ndarray, "batch d d"], Sigma: Float[np.ndarray, "d d"] | None, layers: Count
) -> tuple[Float[np.ndarray, "layers"], Float[np.ndarray, "layers"]]:
    """`optimal_registers` for a sample of prompts in place of their distribution: least mean risk at every layer.

    The same recursion with the mean over the eigenvalues of all Sigma^(-1/2) H Sigma^(-1/2) in place of the integral,
    which is conjugate gradients on the block-diagonal system of all prompts at once. Inputs of any law will do.

    Args:
        H: curvatures X X'/n, positive semi-definite, in x^2.
        Sigma: covariance of the inputs, positive definite; None is the identity.
        layers: number of layers.

    Returns:
        alpha and gamma, each of shape (layers,) and dimensionless; both 0 once all prompts are solved.
    """
    H, _, inverse = _prompts(H, Sigma, least=1)
    t = np.linalg.eigvalsh(inverse @ H @ inverse)
    if t.min() < -1e-6 * np.abs(t).max():
        raise ValueError(f"H must be positive semi-definite, its smallest whitened eigenvalue is {t.min():.3g}")
    t = t.clip(min=0).ravel()
    alpha, gamma = np.zeros(layers), np.zeros(layers)
    error, direction, energy = np.ones(t.shape), np.zeros(t.shape), float(t.sum())
    solved = 1e-30 * energy  # rounding, squared
    for layer in range(layers):
        before, energy = energy, float(error @ (t * error))
        if energy <= solved:
            break
        gamma[layer] = energy / before if layer else 0.0
        direction = gamma[layer] * direction - t * error
        alpha[layer] = energy / (direction @ direction)
        error = error + alpha[layer] * direction
    return alpha, gamma


@validated
def shared_floor(d: Count, n: Count, layers: Count) -> tuple[Float[np.ndarray, "depths"], Float[np.ndarray, "layers"]]:
    """Least risk of scalars Gamma_j shared by all later layers, for A_l = a_l Sigma^-1, at each depth.

    Gamma[l, j] = Gamma_j for every l >= j is what [Dutta & Sra 2025, sec. 3.3] runs. Only c_j = Gamma_j a_j counts, so
    that free a_l are no help, and

        p_{l+1} = p_l + (p_l - p_{l-1}) - c_l t p_l

    is the heavy ball with beta = 1: some polynomials of degree 2 and more it cannot be. The risk is not convex in c. It
    is the floor plus a sum of squares, which Levenberg and Marquardt's method lowers from 8 starts a layer; the best
    end is polished. Should all have missed the least, what is returned is a bound from above.

    Args:
        d: dimension.
        n: examples in a prompt.
        layers: largest depth.

    Returns:
        the risk at depths 0 .. layers, in units of y^2, and the c (layers,) that has the last of them.
    """
    from scipy.stats import qmc  # slow to import and rarely needed

    optimum = wishart_recursion(d, n, layers)
    times, alpha, norms = register_basis(optimum)
    scales = np.sqrt(norms)

    def excess(c: np.ndarray) -> np.ndarray:
        """Square roots of the summands of the excess over the floor, at depth len(c)."""
        depth = len(c)
        now = np.eye(layers + 1)[0].astype(c.dtype)
        change = np.zeros_like(now)
        for step in c:
            change = change - step * (times @ now)
            now = now + change
        return (now[1 : depth + 1] - alpha[:depth]) * scales[:depth]

    def jacobian(c: np.ndarray) -> np.ndarray:
        # Complex-step derivative: exact for a real polynomial.
        return np.stack([excess(c + 1e-30j * unit).imag / 1e-30 for unit in np.eye(len(c))], axis=1)

    def squares(c: np.ndarray) -> float:
        return float(excess(c) @ excess(c))

    def slope(c: np.ndarray) -> np.ndarray:
        return np.asarray(2 * jacobian(c).T @ excess(c))

    least, c = [float(optimum.risks[0])], np.zeros(0)
    for depth in range(1, layers + 1):
        # c_0 = 0 makes the first layer the identity: the previous depth's optimum is a start, so risks cannot rise.
        starts = [np.append(0.0, c), *(3 * qmc.Halton(depth, scramble=False).random(8 * depth + 1)[1:] - 1)]
        best = min(
            (least_squares(excess, start, jacobian, method="lm", max_nfev=50) for start in starts),
            key=lambda run: float(run.cost),
        )
        polished = minimize(squares, best.x, jac=slope, options={"gtol": 1e-12})
        c = min(polished.x, best.x, key=squares)
        least.append(float(optimum.risks[depth]) + squares(c))
    return np.array(least), c
