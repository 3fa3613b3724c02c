"""Floors beyond the polynomial floor: input scales, gates, prompt-dependent coefficients, and estimation cost.

A prompt of n inputs x ~ N(0, s I) with w* ~ N(0, I/s) has the curvature H = s W/n, W ~ Wishart_d(I, n), and an error
polynomial p with p(0) = 1 has the mean squared error E ||p(s W/n)||_F^2 over prompts, query and w*. What follows holds
for inputs N(0, s Sigma) with A = Sigma^-1 as well. None of it is in the paper but the gates of [Dutta & Sra 2025, sec.
4.2, Thm 4.1]; :mod:`icl.theory.lfom.polynomial_floor` has the one variance.

- Experts of variances s_h with gates alpha_h on their layers are one polynomial p(r t), r = s sum_h alpha_h / s_h, of
  prompts of variance 1: p is the best polynomial, and r = 1 is the floor. :func:`rescaled_risk`, :func:`simplex_gate`
- Gates on final outputs mix error polynomials, 1 - sum_h alpha_h + sum_h alpha_h p(t s / s_h). :func:`output_gate`
- Coefficients that read a scale of the prompt, p(t / scale), may lie below the floor of shared ones. For tr H / d the
  least is exact: W / tr W and tr W are independent and tr W is chi-square_{nd}, so that
  E tr (W / tr W)^k = E tr W^k / (nd (nd+2) .. (nd+2k-2)). :func:`least_by_trace`; for other scales
  :func:`least_by_sample`
- Coefficients fitted on N prompts have the excess risk C/N: with residuals r, features phi_k = t^k and G = E phi phi',
  C = tr(G^-1 E r^2 phi phi'), exact by moments of products of traces. :func:`excess_constants`
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from jaxtyping import Float

from icl import _checks
from icl._bounds import Count, Positive, Positives, Reals, validated
from icl.theory.lfom._recursion import (
    floats,
    least_risk_recursion,
    mean_trace_products,
    mean_traces,
    rounded,
    solve_exactly,
    squared_errors,
    wishart_recursion,
)
from icl.theory.lfom.polynomial_floor import optimal_registers
from icl.theory.lfom.tables import registers, table_risks


@dataclass(frozen=True, eq=False)
class LeastRisk:
    """Least risks over polynomials p with p(0) = 1, and the one-register method that attains them at every layer.

    Attributes:
        risks: of degrees 0 .. L, in units of y^2.
        polynomial: ascending coefficients of that of degree L.
        alpha: steps along the register, one a layer.
        gamma: how much of it a layer keeps; the first is 0.
    """

    risks: Float[np.ndarray, "depths"]
    polynomial: Float[np.ndarray, "depths"]
    alpha: Float[np.ndarray, "layers"]
    gamma: Float[np.ndarray, "layers"]


def _moments(d: int, n: int, degree: int) -> list[Fraction]:
    """E tr (W/n)^k for k = 0 .. degree."""
    return [Fraction(trace, n**k) for k, trace in enumerate(mean_traces(d, n, degree))]


def _positive_fractions(name: str, values: Any) -> list[Fraction]:
    """Check for at least one number > 0; return them as fractions."""
    array = np.asarray(_checks.real(name, values, above=0), dtype=np.float64)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name} must have shape (count,) with count >= 1, got {array.shape}")
    return [Fraction(value) for value in array.tolist()]


@validated
def rescaled_risk(ratio: Positives, d: Count, n: Count, layers: Count) -> Float[np.ndarray, "..."]:
    """E ||p(ratio W/n)||_F^2 of the p of degree `layers` that is optimal at ratio 1: risk at another input variance.

    The ratio is that of the prompts' variance to the one it was made for, or for A = a I, that of a to 1/variance. At 1
    it is :func:`~icl.theory.lfom.polynomial_floor.optimal_risks`; everywhere else it is more.

    Args:
        ratio: one number or any shape, dimensionless.
        d: dimension.
        n: examples in a prompt.
        layers: degree.

    Returns:
        risks of the shape of `ratio`, in units of y^2.
    """
    ratios = np.asarray(ratio, dtype=np.float64)
    table = registers(*optimal_registers(d, n, layers))
    return np.array([table_risks(table, d, n, each)[-1] for each in ratios.ravel()]).reshape(ratios.shape)


@validated
def simplex_gate(
    variance: Positive, trained: Any, d: Count, n: Count, layers: Count
) -> tuple[float, Float[np.ndarray, " experts"]]:
    """Least risk at a variance of simplex gates on layers, >= 0 and of sum 1, over experts optimal at theirs.

    They reach every r = variance sum_h alpha_h / s_h between variance / max s_h and variance / min s_h, and nothing
    beyond: the floor at variances between the experts', :func:`rescaled_risk` elsewhere. Free gates reach r = 1 always.

    Args:
        variance: of the prompts, in x^2.
        trained: (experts,) variances s_h that experts were made for, > 0.
        d: dimension.
        n: examples in a prompt.
        layers: of each expert.

    Returns:
        the risk, in units of y^2, and gates that have it: two experts' at most.
    """
    experts = np.array([float(value) for value in _positive_fractions("trained", trained)])
    optimum = wishart_recursion(d, n, layers)
    low, high = variance / experts.max(), variance / experts.min()
    if low <= 1 <= high:
        best = 1.0
    else:
        # The risk is a polynomial in r: it is least at an end or where its slope is 0.
        p, moments = optimum.residual, _moments(d, n, 2 * layers)
        slope = [Fraction()] * (2 * layers)
        for i, a in enumerate(p):
            for j, b in enumerate(p):
                if i + j:
                    slope[i + j - 1] += (i + j) * a * b * moments[i + j]
        flat = np.roots([float(value) for value in reversed(slope)])
        inside = flat.real[(np.abs(flat.imag) < 1e-9) & (flat.real > low) & (flat.real < high)]
        candidates = np.array([low, high, *inside])
        best = float(candidates[rescaled_risk(candidates, d, n, layers).argmin()])
    alpha = np.zeros(len(experts))
    share = (best - low) / (high - low) if high > low else 1.0
    alpha[experts.argmax()] += 1 - share
    alpha[experts.argmin()] += share
    return float(rescaled_risk(best, d, n, layers)), alpha


@validated
def output_gate(
    variance: Positive, trained: Any, d: Count, n: Count, layers: Count
) -> tuple[float, Float[np.ndarray, " experts"]]:
    """Least risk at a variance of unconstrained gates on final outputs, over experts optimal at theirs.

    The form of [Dutta & Sra 2025, Thm 4.1] for one component. The mixed polynomial 1 - sum_h alpha_h + sum_h alpha_h
    p(t s / s_h) has `layers` coefficients: as many experts of different variances reach the floor, fewer do only at
    their own. Exact: normal equations in fractions. Arguments as in :func:`simplex_gate`.

    Returns:
        the risk, in units of y^2, and gates that have it, of any sign and sum; dimensionless.
    """
    s = Fraction(float(variance))
    experts = _positive_fractions("trained", trained)
    p = wishart_recursion(d, n, layers).residual
    moments = _moments(d, n, 2 * layers)
    # p(t s / s_h) - 1, from degree 1 on.
    features = [[c * (s / expert) ** k for k, c in enumerate(p)][1:] for expert in experts]

    def inner(u: Sequence[Fraction], v: Sequence[Fraction]) -> Fraction:
        return sum((a * b * moments[i + j + 2] for i, a in enumerate(u) for j, b in enumerate(v)), Fraction())

    G = [[inner(u, v) for v in features] for u in features]
    b = [sum((a * moments[i + 1] for i, a in enumerate(u)), Fraction()) for u in features]
    alpha = [-row[0] for row in solve_exactly(G, [[value] for value in b])]
    risk = moments[0] + sum((a * value for a, value in zip(alpha, b, strict=True)), Fraction())
    return float(risk), floats(tuple(alpha))


@validated
def least_over_variances(
    variances: Any, d: Count, n: Count, layers: Count, weights: Float[np.ndarray, " count"] | None = None
) -> LeastRisk:
    """Optimal polynomial of prompts with one of several unknown input variances: a mixture without a gate.

    Moments of the mixture's spectrum are sums, sum_s weight_s s^k E tr (W/n)^k. What it risks at one of the variances
    is :func:`~icl.theory.lfom.tables.table_risks` of its register with a = variance.

    Args:
        variances: (count,) numbers > 0, in x^2.
        d: dimension.
        n: examples in a prompt.
        layers: largest degree.
        weights: shares of prompts, > 0; they are divided by their sum. None is equal shares.

    Returns:
        Mean risks over the mixture, and the register, whose alpha is in 1/x^2.
    """
    each = _positive_fractions("variances", variances)
    if weights is None:
        shares = [Fraction(1)] * len(each)
    else:
        shares = _positive_fractions("weights", weights)
        if len(shares) != len(each):
            raise ValueError(f"weights must have shape ({len(each)},) to match variances, got ({len(shares)},)")
    moments = _moments(d, n, 2 * layers)
    total = sum(shares)
    scaled = [
        sum((w * s**k for w, s in zip(shares, each, strict=True)), Fraction()) / total for k in range(len(moments))
    ]
    return LeastRisk(*rounded(least_risk_recursion([m * scale for m, scale in zip(moments, scaled, strict=True)])))


@validated
def least_by_trace(d: Count, n: Count, layers: Count) -> LeastRisk:
    """Optimal coefficients as functions of s = tr H / d, p(t / s): one error at every variance, without labels.

    Exact (module docstring). In the register, A is I / s.

    Args:
        d: dimension.
        n: examples in a prompt.
        layers: largest degree.

    Returns:
        Risks in units of y^2; polynomial and register of t / s, dimensionless.
    """
    moments, power = list[Fraction](), Fraction(1)
    for k, trace in enumerate(mean_traces(d, n, 2 * layers)):
        moments.append(trace * power)
        power *= Fraction(d, n * d + 2 * k)
    return LeastRisk(*rounded(least_risk_recursion(moments)))


@dataclass(frozen=True, eq=False)
class Bracket:
    """Floor bracketed by two estimates from one sample of prompts.

    Attributes:
        lower: the best polynomials of all prompts on these prompts, degrees 0 .. L: in the mean below the floor.
        upper: those of each half on the other half: in the mean above it.
        lower_error: standard error of `lower` over prompts.
        upper_error: that of `upper`.
        share: of the sum that `upper` is, the part of its largest prompt: where it is not small, as for shared
            coefficients of four layers and more, a rare prompt decides, and no standard error of the sample knows it.
    """

    lower: Float[np.ndarray, "depths"]
    upper: Float[np.ndarray, "depths"]
    lower_error: Float[np.ndarray, "depths"]
    upper_error: Float[np.ndarray, "depths"]
    share: Float[np.ndarray, "depths"]


def _symmetric(name: str, values: Any, batch: int, d: int) -> np.ndarray:
    """Symmetric matrices, one for all prompts or one each: (1 or batch, d, d), float64."""
    matrices = np.asarray(_checks.real(name, values), dtype=np.float64)
    if matrices.shape not in ((d, d), (batch, d, d)):
        raise ValueError(f"{name} must have shape ({d}, {d}) or ({batch}, {d}, {d}) to match H, got {matrices.shape}")
    matrices = matrices.reshape(-1, d, d)
    # float32 products of inputs are symmetric to 1e-7.
    if (gap := np.abs(matrices - matrices.swapaxes(1, 2)).max()) > 1e-6 * np.abs(matrices).max():
        raise ValueError(f"{name} must be symmetric, its largest asymmetry is {gap:.3g}")
    return np.asarray((matrices + matrices.swapaxes(1, 2)) / 2)


def _roots(name: str, matrices: np.ndarray, *, definite: bool) -> tuple[np.ndarray, np.ndarray]:
    """Square roots of positive semi-definite matrices, and their inverses where they have to be definite."""
    values, vectors = np.linalg.eigh(matrices)
    least, largest = values[:, 0], values[:, -1]
    if definite and (least <= 1e-12 * largest).any():
        raise ValueError(f"{name} must be positive definite, its smallest eigenvalue is {least.min():.3g}")
    if (least < -1e-6 * np.abs(largest)).any():
        raise ValueError(f"{name} must be positive semi-definite, its smallest eigenvalue is {least.min():.3g}")
    roots = np.sqrt(values.clip(min=0))[:, None]
    inverses = (vectors / roots) @ vectors.swapaxes(1, 2) if definite else np.zeros_like(matrices)
    return (vectors * roots) @ vectors.swapaxes(1, 2), inverses


@validated
def _curvatures(H: Reals, least: int) -> np.ndarray:
    H = np.asarray(H, dtype=np.float64)
    _checks.shape("H", H, (None, None, None))
    batch, d, columns = H.shape
    if columns != d or batch < least or d < 1:
        raise ValueError(f"H must hold at least {least} square matrices, (1, 1) or larger, got shape {H.shape}")
    return _symmetric("H", H, batch, d)


@validated
def least_by_sample(
    H: Float[np.ndarray, "batch d d"],
    layers: Count,
    scale: Float[np.ndarray, " batch"] | None = None,
    S_x: Float[np.ndarray, "..."] | None = None,
    S_w: Float[np.ndarray, "..."] | None = None,
    A: Float[np.ndarray, "d d"] | None = None,
) -> Bracket:
    """Least mean of tr(S_x p(A H / scale) S_w p(A H / scale)') over shared polynomials p, p(0) = 1, from a sample.

    That is the error (<w_L - w*, x_q>)^2, exact over queries and w*, of coefficients that may read `scale`. Inputs and
    weights have any second moments E x x' = S_x and E w* w*' = S_w, the same for all prompts or each its own: those of
    a mixture's component, whose mean need not be 0. What is random beside H is not sampled, and the floor lies, in the
    mean over samples, between `lower` and `upper`.

    With scales such as the largest eigenvalue or tr H^2 / tr H the eigenvalues of H / scale are bounded, and standard
    errors can be trusted. Without a scale they cannot from four layers on (:attr:`Bracket.share`): of 30 samples of
    2,000 prompts of a mixture of scalar inputs one is 3.4 of its own standard errors below the floor at four layers,
    and one 5.6 at five, where a sample has no rare prompt and does not know it.

    Args:
        H: curvatures X X'/n of at least four prompts, in x^2.
        layers: largest degree.
        scale: one number a prompt that may be read, > 0, such as tr H / d; in any unit. None is 1.
        S_x: second moment of the query, (d, d) or (batch, d, d), positive definite; None is the identity.
        S_w: that of w*, (d, d) or (batch, d, d), positive semi-definite; None is the inverse of S_x.
        A: preconditioner for all prompts; None is the identity.

    Returns:
        Five arrays of shape (layers + 1,), risks in units of y^2.
    """
    H = _curvatures(H, least=4)
    batch, d, _ = H.shape
    read = np.ones(batch) if scale is None else _checks.real("scale", scale, above=0)
    if S_x is None and S_w is None and A is None:
        # In the eigenbasis every coordinate is a scalar problem.
        K, start, columns = (np.linalg.eigvalsh(H) / read[:, None]).reshape(-1, 1, 1), None, d
    else:
        A = np.eye(d) if A is None else A
        S_x = np.eye(d) if S_x is None else S_x
        root, inverse = _roots("S_x", _symmetric("S_x", S_x, batch, d), definite=True)
        weights = inverse if S_w is None else _roots("S_w", _symmetric("S_w", S_w, batch, d), definite=False)[0]
        K = root @ A @ (H / read[:, None, None]) @ inverse
        start, columns = root @ weights, 1
    everything, even = np.ones(batch, dtype=bool), np.arange(batch) % 2 == 0
    in_sample, odd_judged, even_judged = (
        squared_errors(K, np.repeat(fitted, columns), layers, start).reshape(batch, columns, layers + 1).sum(1)
        for fitted in (everything, even, ~even)
    )
    crossed = np.where(even[:, None], even_judged, odd_judged)
    sums = crossed.sum(0)
    share = np.divide(crossed.max(0), sums, out=np.zeros(layers + 1), where=sums > 0)
    own_error, crossed_error = (each.std(0, ddof=1) / np.sqrt(batch) for each in (in_sample, crossed))
    return Bracket(in_sample.mean(0), crossed.mean(0), own_error, crossed_error, share)


@validated
def least_by_spectrum(
    H: Float[np.ndarray, "batch d d"], layers: Count
) -> tuple[Float[np.ndarray, "depths"], Float[np.ndarray, "depths"]]:
    """Mean of min_p ||p(H)||_F^2, a polynomial for each prompt, p(0) = 1: a bound on any gate that reads inputs alone.

    For white inputs and weights. What is projected out is orthogonal: the powers t, t^2, .. of a prompt's eigenvalues.

    Args:
        H: curvatures X X'/n of at least two prompts.
        layers: largest degree; from the number of different eigenvalues on the risk is that of eigenvalues 0.

    Returns:
        risks of degrees 0 .. layers, in units of y^2, and their standard errors over prompts; (layers + 1,) each.
    """
    t = np.linalg.eigvalsh(_curvatures(H, least=2)).clip(min=0)
    largest = t[:, -1:]
    t = np.divide(t, largest, out=np.zeros_like(t), where=largest > 0)
    direction = error = np.ones_like(t)
    basis: list[np.ndarray] = []
    squares = [(error**2).sum(1)]
    for _ in range(layers):
        direction = t * direction
        size = (direction**2).sum(1, keepdims=True)
        # Gram-Schmidt twice, against rounding.
        for other in basis * 2:
            direction = direction - (other * direction).sum(1, keepdims=True) * other
        norm = (direction**2).sum(1, keepdims=True)
        # Krylov space exhausted: the prompt is solved.
        new = norm > 1e-24 * size
        direction = np.divide(direction, np.sqrt(norm), out=np.zeros_like(direction), where=new)
        basis.append(direction)
        error = error - (direction * error).sum(1, keepdims=True) * direction
        squares.append((error**2).sum(1))
    values = np.stack(squares, axis=1)
    return values.mean(0), values.std(0, ddof=1) / np.sqrt(len(values))


@validated
def excess_constants(
    d: Count, n: Count, layers: Count
) -> tuple[Float[np.ndarray, "layers"], Float[np.ndarray, "layers"]]:
    """C with mean risk = floor + C/N + .. for coefficients fitted on N prompts: on their labels, and on their risks.

    Rare prompts hold most of C where layers are many, and an N that does not meet them has less. For d = 5, n = 20 fits
    of 1,000 labels exceed the floor by C/N with one layer, by nine tenths of it with two and a tenth of it with four.

    Least squares on N labels minimises the mean of r^2 with r = x_q' p(H) w* and features phi_k = x_q' H^k w*, k = 1 ..
    degree, and has C = tr(G^-1 E r^2 phi phi') with G = E phi phi'. Given H the products are sums over eigenvalues with
    weights of mean square 1 and fourth moment 9:

        E r^2 phi_j phi_k = E (p.p)(t^j.t^k) + 2 E (p.t^j)(p.t^k) + 6 E p^2.t^{j+k}

    A fit of the risks themselves, exact over query and w*, has C = tr(G^-1 E (p.t^j)(p.t^k)). Exact in fractions. Were
    the residual independent of phi, the first would be the degree times the floor: tails make it many times that.

    Args:
        d: dimension.
        n: examples in a prompt.
        layers: largest degree; five take a tenth of a second, eight several.

    Returns:
        C of degrees 1 .. layers for labels and for risks, in units of y^2; (layers,) each.
    """
    mean = mean_trace_products(d, n)

    def m(*powers: int) -> Fraction:
        return Fraction(mean(*powers), n ** sum(powers))

    constants = list[tuple[Fraction, Fraction]]()
    for degree in range(1, layers + 1):
        p = wishart_recursion(d, n, degree).residual
        pairs = [(a, b, u * v) for a, u in enumerate(p) for b, v in enumerate(p)]
        powers = range(1, degree + 1)
        G = [[m(j + k) for k in powers] for j in powers]
        prompts = [[sum((c * m(a + j, b + k) for a, b, c in pairs), Fraction()) for k in powers] for j in powers]
        labels = [
            [
                sum((c * (m(a + b, j + k) + 6 * m(a + b + j + k)) for a, b, c in pairs), 2 * prompts[j - 1][k - 1])
                for k in powers
            ]
            for j in powers
        ]
        each = (solve_exactly(G, S) for S in (labels, prompts))
        first, second = (sum((row[k] for k, row in enumerate(X)), Fraction()) for X in each)
        constants.append((first, second))
    return floats(tuple(c for c, _ in constants)), floats(tuple(c for _, c in constants))
