"""Sample complexity of learning scalar coefficients, computed [Dutta & Sra 2025, Thm 5.1, App. A.5].

The prompts are those of :mod:`icl.theory.lfom.tables`, in white coordinates. Methods of L layers with shared scalar
coefficients have the error x_q' p(H) w*, p(0) = 1. About the best polynomial, with residual r and features phi_k = x_q'
H^k w*, G = E phi phi', psi = G^(-1/2) phi, every other is a vector u with

    loss = (r + psi'u)^2,    risk = floor + ||u||^2,    E r psi = 0,    E psi psi' = I

The theorem wants a compact set of parameters. Here it is all methods of at most some risk: the ball ||u|| <= rho, with
rho^2 = that risk - floor. Without `times` they are those no worse than the zero predictor, whose risk is d; with it,
those of at most `times` the floor. Over the ball the loss of one prompt is at most (||r|| + rho ||psi||)^2 and has
slopes of at most 2 (||r|| + rho ||psi||) ||psi||: :func:`worst_losses`. What the best of the ball on N prompts risks
beyond the floor:

- If no loss exceeded a number, and no slope another: Hoeffding's inequality on a cover of the ball.
  :func:`covering_excess`
- For Gaussian prompts there are no such numbers. But what is the largest on each prompt has a mean, and by Minkowski's
  inequality at most (sqrt floor + sqrt(L) rho)^2, which is all that a uniform law of large numbers asks for [Jennrich
  1969, Thm 2]: :func:`mean_worst_loss`. And the three means that make the empirical risk, of r^2, r psi and psi psi',
  have finite variances that are known, which bounds the excess by K / sqrt(N delta): :func:`moment_constants`
- In the mean over samples it is C/N + ..: :func:`~icl.theory.lfom.gated_floor.excess_constants`.
"""

import math
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt
from jaxtyping import Float
from scipy.optimize import brentq, minimize_scalar

from icl._bounds import Count, OpenUnit, Positive, validated
from icl.theory.lfom._recursion import mean_trace_products, solve_exactly, wishart_recursion
from icl.theory.lfom.gated_floor import excess_constants
from icl.theory.lfom.polynomial_floor import optimal_polynomial, optimal_risks, wishart_moments


@validated
def ball(
    d: Count, n: Count, layers: Count, times: Annotated[float, Gt(1)] | None = None
) -> Float[np.ndarray, "layers"]:
    """Radius rho of the module docstring, for 1 .. layers layers.

    Args:
        d: dimension.
        n: examples in a prompt.
        layers: >= 1.
        times: largest risk in the ball over the floor; None is that of the zero predictor.

    Returns:
        shape (layers,), in units of y.
    """
    floor = optimal_risks(d, n, layers)[1:]
    # With small d and many layers the floor is 0 but for rounding.
    highest = d if times is None else times * floor
    return np.asarray(np.sqrt(highest - floor))


@validated
def covering_excess(
    N: Annotated[Any, Ge(1)],
    parameters: Count,
    radius: Positive,
    largest: Positive,
    slope: Positive,
    delta: OpenUnit = 0.05,
) -> Float[np.ndarray, "..."]:
    """Bound on the excess risk of the empirical minimiser over a ball, with probability 1 - delta.

    A ball of this radius in p dimensions has a cover by (1 + 2 radius/s)^p balls of any radius s. At their centres
    Hoeffding's inequality and a union bound hold the two means together within e_s, between them the slope does:

        excess <= 2 (e_s + 2 slope s),    e_s = largest sqrt((p ln(1 + 2 radius/s) + ln(2/delta)) / 2N)

    at the best s; the first 2 is there because both the minimiser's mean and the best method's may be off
    [Shalev-Shwartz & Ben-David 2014, sec. 4.2].

    Args:
        N: prompts; one number or any shape.
        parameters: p.
        radius: of the ball of parameters.
        largest: bound of the loss over all prompts and parameters, in y^2; its least value is 0.
        slope: bound of the loss's slope over the same, in y^2 per unit of the parameters.
        delta: probability of failure.

    Returns:
        The bound, of N's shape, in y^2.
    """
    counts = np.asarray(N, dtype=np.float64)
    p = parameters
    largest, slope = float(largest), float(slope)

    def at(ln: float, count: float) -> float:
        cover = p * math.log1p(2 * math.exp(math.log(radius) - ln)) + math.log(2 / delta)
        return 2 * (largest * math.sqrt(cover / (2 * count)) + 2 * slope * math.exp(ln))

    def best(count: float) -> float:
        # The bound first falls and then rises in ln s: where the slope's part alone is that of the cheapest cover.
        equal = math.log(largest) - math.log(slope) - math.log(count) / 2
        low, high = min(math.log(radius), equal) - 60, max(math.log(radius), equal) + 60
        return float(minimize_scalar(at, args=(count,), bounds=(low, high), method="bounded").fun)

    return np.array([best(count) for count in counts.ravel()]).reshape(counts.shape)


@validated
def prompts_needed(
    excess: Positive,
    parameters: Count,
    radius: Positive,
    largest: Positive,
    slope: Positive,
    delta: OpenUnit = 0.05,
) -> float:
    """Least number of prompts from which :func:`covering_excess` is at most that.

    Args:
        excess: > 0, in y^2.
        parameters: p.
        radius: of the ball of parameters.
        largest: bound of the loss, in y^2.
        slope: bound of its slope.
        delta: probability of failure.

    Returns:
        A number >= 1, not rounded up: it may be 1e10 and more.

    Raises:
        ValueError: if an argument is out of range, or it takes more than e^709 prompts.
    """

    def gap(ln: float) -> float:
        return math.log(float(covering_excess(math.exp(ln), parameters, radius, largest, slope, delta)) / excess)

    if gap(0.0) <= 0:
        return 1.0
    high = 1.0
    while high < 709 and gap(high) > 0:
        high = min(2 * high, 709.0)
    if gap(high) > 0:
        raise ValueError(f"excess must leave a number of prompts that float64 holds, got {excess!r}")
    return math.exp(float(brentq(gap, 0.0, high, xtol=1e-12, rtol=1e-13)))


@validated
def mean_worst_loss(
    d: Count, n: Count, layers: Count, times: Annotated[float, Gt(1)] | None = None
) -> Float[np.ndarray, "layers"]:
    """Bound on E max over the ball of the loss, (sqrt floor + sqrt(L) rho)^2, for 1 .. layers layers.

    Jennrich's condition in closed form: a prompt's worst loss over the ball has a mean. E r^2 = floor, E ||psi||^2 = L,
    and Minkowski's inequality.

    Args:
        d: dimension.
        n: examples in a prompt.
        layers: >= 1.
        times: as in :func:`ball`.

    Returns:
        shape (layers,), in units of y^2.
    """
    rho = ball(d, n, layers, times)
    return np.asarray((np.sqrt(optimal_risks(d, n, layers)[1:]) + np.sqrt(np.arange(1, layers + 1)) * rho) ** 2)


@validated
def moment_constants(
    d: Count, n: Count, layers: Count, times: Annotated[float, Gt(1)] | None = None
) -> Float[np.ndarray, "layers"]:
    """K with excess <= K / sqrt(N delta) with probability 1 - delta, for Gaussian prompts, whose loss is unbounded.

    The empirical risk is off by mean(r^2) - floor + 2 u'mean(r psi) + u'(mean(psi psi') - I) u, in the ball by at most
    ||a|| + 2 rho ||b|| + rho^2 ||C||_F. With Minkowski's inequality for the three, Chebyshev's, and twice for the
    minimiser and the best method,

        K = 2 (sqrt(E r^4 - floor^2) + 2 rho sqrt(E r^2 ||psi||^2) + rho^2 sqrt(E ||psi||^4 - L))

    where E r^2 ||psi||^2 is the C of :func:`~icl.theory.lfom.gated_floor.excess_constants`. Fourth moments of x_q' a(H)
    w* are exact: with f.g = sum over eigenvalues of f g, E of a product of four is (a.b)(c.d) + (a.c)(b.d) + (a.d)(b.c)
    + 6 sum a b c d in the mean.

    Four layers take a tenth of a second, six some seconds.

    Args:
        d: dimension.
        n: examples in a prompt.
        layers: >= 1.
        times: as in :func:`ball`.

    Returns:
        shape (layers,), in units of y^2.
    """
    mean = mean_trace_products(d, n)

    def m(*powers: int) -> Fraction:
        return Fraction(mean(*powers), n ** sum(powers))

    C, rho = excess_constants(d, n, layers)[0], ball(d, n, layers, times)
    constants = list[float]()
    for degree in range(1, layers + 1):
        p = wishart_recursion(d, n, degree).residual
        square = [Fraction()] * (2 * degree + 1)
        for i, a in enumerate(p):
            for j, b in enumerate(p):
                square[i + j] += a * b
        fourth = sum(
            (a * b * (3 * m(i, j) + 6 * m(i + j)) for i, a in enumerate(square) for j, b in enumerate(square)),
            Fraction(),
        )
        powers = range(1, degree + 1)
        unit = [[Fraction(int(j == k)) for k in powers] for j in powers]
        inverse = solve_exactly([[m(j + k) for k in powers] for j in powers], unit)
        lengths = sum(
            (
                inverse[i - 1][j - 1]
                * inverse[k - 1][q - 1]
                * (m(i + j, k + q) + 2 * m(i + k, j + q) + 6 * m(i + j + k + q))
                for i in powers
                for j in powers
                for k in powers
                for q in powers
            ),
            Fraction(),
        )
        spreads = (fourth - wishart_recursion(d, n, degree).risks[-1] ** 2, lengths - degree)
        of_r, of_psi = (math.sqrt(float(value)) for value in spreads)
        radius = float(rho[degree - 1])
        constants.append(2 * (of_r + 2 * radius * math.sqrt(C[degree - 1]) + radius**2 * of_psi))
    return np.array(constants)


@validated
def worst_losses(
    features: Float[np.ndarray, "batch depths"], d: Count, n: Count, times: Annotated[float, Gt(1)] | None = None
) -> tuple[Float[np.ndarray, " batch"], Float[np.ndarray, " batch"], Float[np.ndarray, " batch"]]:
    """Loss of each prompt at the best polynomial, and the largest loss and slope in the ball (module docstring).

    Args:
        features: x_q' H^k w* of each prompt for k = 0 .. L, L >= 1, in white coordinates; in y.
        d: dimension.
        n: examples in a prompt.
        times: as in :func:`ball`.

    Returns:
        three arrays of shape (batch,), in units of y^2.
    """
    if (layers := features.shape[1] - 1) < 1:
        raise ValueError(f"features must have at least two powers, got shape {features.shape}")
    moments = wishart_moments(d, n, 2 * layers)
    G = moments[np.add.outer(np.arange(1, layers + 1), np.arange(1, layers + 1))]
    r = features @ optimal_polynomial(d, n, layers)
    psi = np.linalg.norm(np.linalg.solve(np.linalg.cholesky(G), features[:, 1:].T), axis=0)
    size = np.abs(r) + ball(d, n, layers, times)[-1] * psi
    return r**2, size**2, 2 * size * psi
