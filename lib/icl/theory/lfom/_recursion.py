"""Exact recursion behind the polynomial floor, in fractions, and what the modules of this package compute with it.

:mod:`icl.theory.lfom.polynomial_floor` derives it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import lcm
from typing import Any

import numpy as np

from icl._bounds import Count, Positive


@cache
def mean_trace_products(d: int, n: int) -> Callable[..., int]:
    """Memoised map from powers k to E of the product of tr W^k over them, W ~ Wishart_d(I, n).

    With p_k = tr W^k, p_0 = d, and W = G G', Gaussian integration by parts of E tr(G (W^k G)') f gives, for f a product
    of further traces p_m (their set is mu),

        E p_{k+1} f = (n + k) E p_k f + sum_{m=1..k} E p_m p_{k-m} f + sum_{m in mu} 2 m E p_{k+m} f/p_m

    in integers, over the partitions of all numbers up to the sum of the powers.
    """
    memo: dict[tuple[int, ...], int] = {(): 1}

    def mean(*powers: int) -> int:
        """E of the product of tr W^k over these k, by integrating the factor with the largest by parts."""
        key = tuple(sorted((power for power in powers if power), reverse=True))
        if key not in memo:
            k, rest = key[0] - 1, key[1:]
            memo[key] = (
                (n + k) * mean(k, *rest)
                + sum(mean(m, k - m, *rest) for m in range(1, k + 1))
                + sum(2 * m * mean(k + m, *rest[:j], *rest[j + 1 :]) for j, m in enumerate(rest))
            )
        return d ** powers.count(0) * memo[key]

    return mean


#: Fractions of more layers have so many digits that they take minutes.
_LAYERS = 60


@cache
def mean_traces(d: int, n: int, degree: int) -> tuple[int, ...]:
    """E tr W^k for k = 0 .. degree, W ~ Wishart_d(I, n).

    Of Jack's polynomials at alpha = 2 a power sum p_k has those of the partitions (a, b, 1, .., 1) alone, c of them 1:
    a box (i, j) stands for s = 2 (j - 1) - (i - 1), which is 0 at (3, 2). With products over boxes and over hooks
    [Macdonald 1995, VI.10]

        E p_k = 2 k sum_lambda prod_{not (1, 1)} s prod (d + s) (n + s) / hooks(lambda)
    """
    if degree > 2 * _LAYERS:
        raise ValueError(f"layers must be at most {_LAYERS}, got {(degree + 1) // 2}")
    factorial = [1]
    for k in range(1, 2 * degree + 1):
        factorial.append(k * factorial[-1])

    def row(start: int, step: int) -> list[int]:
        """Products of (d + s) (n + s) over the first boxes of a row or a column, the first of which is `start`."""
        products = [1]
        for s in range(start, start + step * degree, step):
            products.append((d + s) * (n + s) * products[-1])
        return products

    first, second, column = row(0, 2), row(-1, 2), row(-2, -1)
    odd = [0, -1]  # of the second row: -1, 1, 3, ..
    for b in range(2, degree + 1):
        odd.append((2 * b - 3) * odd[-1])
    traces = [d]
    for k in range(1, degree + 1):
        total = Fraction(2 ** (k - 1) * factorial[k - 1] * first[k], factorial[2 * k])
        for b in range(1, k // 2 + 1):
            for a in range(b, k - b + 1):
                c = k - a - b
                boxes = 2 ** (a - 1) * factorial[a - 1] * odd[b] * (-1) ** c * factorial[c + 1]
                corners = (2 * a + c) * (2 * a + c + 1) * (2 * b + c - 1) * (2 * b + c)
                rows = factorial[2 * a - 1] // (2 * (a - b) + 1) * factorial[2 * b - 2]
                hooks = corners * rows * factorial[c] * factorial[c + 1]
                total += Fraction(boxes * first[a] * second[b] * column[c], hooks)
        traces.append((2 * k * total).numerator)
    return tuple(traces)


@dataclass(frozen=True)
class Register:
    """Recursion of `polynomial_floor` for dm, exactly.

    Attributes:
        risks: least risk of each degree 0 .. L.
        alpha, gamma: coefficients, one a layer.
        norms: <s, s> of each layer's direction.
    """

    risks: tuple[Fraction, ...]
    alpha: tuple[Fraction, ...]
    gamma: tuple[Fraction, ...]
    norms: tuple[Fraction, ...]


@dataclass(frozen=True)
class Optimum(Register):
    """Recursion of `polynomial_floor` with its final residual.

    Attributes:
        residual: ascending coefficients of the best polynomial of degree L.
    """

    residual: tuple[Fraction, ...]


@cache
def wishart_recursion(d: int, n: int, layers: int) -> Optimum:
    return least_risk_recursion([Fraction(trace, n**k) for k, trace in enumerate(mean_traces(d, n, 2 * layers))])


def _over_one(values: Sequence[Fraction]) -> tuple[list[int], int]:
    """Numerators over the least common denominator, and that denominator."""
    least = lcm(*(value.denominator for value in values))
    return [value.numerator * (least // value.denominator) for value in values], least


def least_risk_recursion(moments: Sequence[Fraction]) -> Optimum:
    """Recursion of `polynomial_floor` under any measure, from its moments of degree 0 .. 2 L.

    Of a measure on few points a low degree leaves nothing: what follows has steps of 0.
    """
    layers = len(moments) // 2
    numerators, least = _over_one(moments)

    def inner(p: list[Fraction], q: list[Fraction]) -> Fraction:
        # In integers: fractions would be reduced at every operation.
        (u, of_p), (v, of_q) = _over_one(p), _over_one(q)
        total = sum(a * b * numerators[i + j] for i, a in enumerate(u) for j, b in enumerate(v))
        return Fraction(total, of_p * of_q * least)

    risks, alphas, gammas, norms = [moments[0]], [], [], []
    residual, direction, energy = [Fraction(1)], [Fraction()], Fraction()
    for _ in range(layers):
        # The gradient's polynomial: t times the residual.
        gradient = [Fraction(), *residual]
        before, energy = energy, inner(residual, gradient)
        gamma = energy / before if before else Fraction()
        direction = [gamma * s - g for s, g in zip([*direction, Fraction()], gradient, strict=True)]
        norm = inner(direction, direction)
        alpha = energy / norm if norm else Fraction()
        residual = [e + alpha * s for e, s in zip([*residual, Fraction()], direction, strict=True)]
        risks.append(risks[-1] - alpha * energy)
        alphas.append(alpha)
        gammas.append(gamma)
        norms.append(norm)
    return Optimum(tuple(risks), tuple(alphas), tuple(gammas), tuple(norms), tuple(residual))


def floats(values: tuple[Fraction, ...]) -> np.ndarray:
    return np.array([float(value) for value in values])


def rounded(optimum: Optimum) -> tuple[np.ndarray, ...]:
    """Risks, polynomial, alpha and gamma in float64."""
    return tuple(floats(part) for part in (optimum.risks, optimum.residual, optimum.alpha, optimum.gamma))


def limit_recursion(c: Positive, layers: Count) -> Register:
    """Closed forms of `polynomial_floor` for d/n = c, as sums of fractions, well defined at c = 1."""
    ratio = Fraction(c)
    power, sums = [Fraction(1)], [Fraction(1)]
    for _ in range(layers):
        power.append(ratio * power[-1])
        sums.append(sums[-1] + power[-1])
    return Register(
        risks=tuple(at / g for at, g in zip(power, sums, strict=True)),
        alpha=tuple(sums[j] / sums[j + 1] for j in range(layers)),
        gamma=tuple(ratio * (sums[j - 1] / sums[j]) ** 2 if j else Fraction() for j in range(layers)),
        norms=tuple(power[j] * sums[j + 1] / sums[j] ** 3 for j in range(layers)),
    )


def register_basis(optimum: Register) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Multiplication by t in the basis (1, s_0, .., s_{L-1}), the best coordinates, and the squared norms; float64.

    From s_l = -t p_l + gamma_l s_{l-1} and p_{l+1} = p_l + alpha_l s_l,

        t 1 = -s_0,    t s_l = ((1 + gamma_{l+1}) s_l - s_{l+1} - gamma_l s_{l-1}) / alpha_l

    whose last column, of a degree that no p_l times t has, stays 0.
    """
    alpha, gamma, norms = (floats(values) for values in (optimum.alpha, optimum.gamma, optimum.norms))
    layers = len(alpha)
    times = np.zeros((layers + 1, layers + 1))
    times[1, 0] = -1.0
    for j in range(layers - 1):
        times[j + 1, j + 1] = (1 + gamma[j + 1]) / alpha[j]
        times[j + 2, j + 1] = -1 / alpha[j]
        if j:
            times[j, j + 1] = -gamma[j] / alpha[j]
    return times, alpha, norms


def squared_errors(K: np.ndarray, fitted: np.ndarray, layers: int, start: np.ndarray | None = None) -> np.ndarray:
    """||p_l(K) start||_F^2 of every prompt and degree, (batch, layers + 1), each p_l optimal on those in `fitted`.

    Without a start it is the identity.
    """

    def inner(U: np.ndarray, V: np.ndarray) -> Any:
        return np.vdot(U[fitted], V[fitted])

    direction = error = np.broadcast_to(np.eye(K.shape[-1]) if start is None else start, K.shape)
    basis: list[np.ndarray] = []
    squares = [(error**2).sum((1, 2))]
    for _ in range(layers):
        direction = K @ direction
        size = inner(direction, direction) ** 0.5
        # Gram-Schmidt twice, against rounding.
        for other in basis * 2:
            direction = direction - inner(other, direction) * other
        norm = inner(direction, direction) ** 0.5
        # Krylov space exhausted: the fitted prompts are solved, or lie in an invariant subspace.
        if norm <= 1e-12 * size:
            break
        direction = direction / norm
        basis.append(direction)
        error = error - inner(direction, error) * direction
        squares.append((error**2).sum((1, 2)))
    return np.stack(squares + squares[-1:] * (layers + 1 - len(squares)), axis=1)


def solve_exactly(G: list[list[Fraction]], S: list[list[Fraction]]) -> list[list[Fraction]]:
    """Solution X of G X = S for a symmetric, semi-definite G and an S in its range; 0 in free rows."""
    rows = [[*g, *s] for g, s in zip(G, S, strict=True)]
    size, pivots = len(G), list[int]()
    for k in range(size):
        # A zero pivot has a zero row, as G is semi-definite.
        if not rows[k][k]:
            continue
        rows[k] = [value / rows[k][k] for value in rows[k]]
        for i in range(size):
            if i != k and rows[i][k]:
                rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[k], strict=True)]
        pivots.append(k)
    return [rows[k][size:] if k in pivots else [Fraction()] * len(S[0]) for k in range(size)]
