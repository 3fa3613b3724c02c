"""Floors of first-order methods on random quadratics: moments by pairings, least squares, prompts that are drawn.

Properties: d to 8, n to 40. Where a risk can equal its floor the tolerance is 1e-9 of the risk.
"""

import functools
from fractions import Fraction
from math import comb, factorial, prod

import chance
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import polynomial
from scipy import integrate, linalg, optimize
from shared import covariance, wishart

from icl.theory import lfom
from icl.theory.lfom import _recursion, polynomial_floor

# Oracles


def wick(d, n, k):
    """E tr (G G')^k over all ways to pair its 2k normal entries: d and n to the number of indices left free."""
    # Entry 2i is G[row_i, column_i], entry 2i+1 is G[row_{i+1}, column_i].
    rows, columns = [(i + 1) // 2 % k for i in range(2 * k)], [i // 2 for i in range(2 * k)]

    def pairings(rest):
        if not rest:
            yield []
        for i in range(1, len(rest)):
            yield from ([(rest[0], rest[i]), *more] for more in pairings(rest[1:i] + rest[i + 1 :]))

    def free(labels, pairs):
        groups = {label: {label} for label in labels}
        for a, b in pairs:
            joined = groups[labels[a]] | groups[labels[b]]
            groups.update(dict.fromkeys(joined, joined))
        return len({id(group) for group in groups.values()})

    return sum(d ** free(rows, p) * n ** free(columns, p) for p in pairings(list(range(2 * k))))


def bartlett(n, degree):
    """E tr W^k, W ~ Wishart_2(I, n), exactly: its trace is a + b + z^2 and its determinant a b, with independent
    a ~ chi-square_n, b ~ chi-square_{n-1}, z ~ N(0, 1), and tr W^k = tr W tr W^{k-1} - det W tr W^{k-2}.
    """

    def chi(f, k):
        return prod(f + 2 * i for i in range(k))

    def mean(i, j):
        """E trace^i det^j, multinomially."""
        return sum(
            factorial(i) // (factorial(p) * factorial(q) * factorial(i - p - q))
            * chi(n, p + j) * chi(n - 1, q + j) * chi(1, i - p - q)
            for p in range(i + 1)
            for q in range(i + 1 - p)
        )  # fmt: skip

    powers = [{(0, 0): 2}, {(1, 0): 1}]
    while len(powers) <= degree:
        last, before = powers[-1], powers[-2]
        power = {(i + 1, j): c for (i, j), c in last.items()}
        for (i, j), c in before.items():
            power[i, j + 1] = power.get((i, j + 1), 0) - c
        powers.append(power)
    return [sum(c * mean(i, j) for (i, j), c in power.items()) for power in powers[: degree + 1]]


def multiplied(steps):
    """Coefficients of the product of all 1 - step t."""
    return functools.reduce(polynomial.polymul, ([1, -step] for step in steps))


def powers_of(matrix):
    """Sigma^(1/2) and Sigma^(-1/2)."""
    values, U = np.linalg.eigh(matrix)
    return (U * values**0.5) @ U.T, (U / values**0.5) @ U.T


@pytest.mark.parametrize(("d", "n"), [(1, 1), (3, 1), (1, 4), (2, 5), (5, 20), (7, 3)])
def test_moments_are_sums_over_pairings(d, n):
    """E tr W^k is the sum over all pairings of 2k normal entries (945 of them at k = 5), exactly, d > n included."""
    assert _recursion.mean_traces(d, n, 5) == (d, *(wick(d, n, k) for k in range(1, 6)))
    assert _recursion.mean_traces(d, n, 2)[1:] == (n * d, n * d * (n + d + 1))
    np.testing.assert_allclose(
        polynomial_floor.wishart_moments(d, n, 5), [d, *(wick(d, n, k) / n**k for k in range(1, 6))], rtol=1e-15
    )


def test_moments_of_high_degree():
    """To degree 40: of one dimension they are chi-square's, n (n+2) .. (n+2k-2); to 16 of two those of Bartlett's
    factors, and of any those of integration by parts, over all partitions. All as integers.
    """
    for n in (1, 2, 20):
        assert _recursion.mean_traces(1, n, 40) == tuple(prod(n + 2 * i for i in range(k)) for k in range(41))
        assert _recursion.mean_traces(2, n, 16) == tuple(bartlett(n, 16))
    for d, n in ((5, 20), (10, 20), (3, 7), (7, 3)):
        mean = _recursion.mean_trace_products(d, n)
        assert _recursion.mean_traces(d, n, 16) == tuple(mean(k) for k in range(17))


@pytest.mark.parametrize(
    ("refused", "says"),
    [
        (lambda: polynomial_floor.optimal_risks(5, 20, 61), "layers must be an integer >= 1 and <= 60, got 61"),
        (lambda: polynomial_floor.optimal_registers(5, 20, 61), "layers must be at most 60, got 61"),
        (lambda: polynomial_floor.wishart_moments(5, 20, 121), "degree must be an integer >= 0 and <= 120, got 121"),
    ],
)
def test_what_takes_minutes_is_refused(refused, says):
    """Thirty layers take a second, which was over a minute; of more than sixty the digits are too many."""
    assert polynomial_floor.optimal_risks(5, 20, 30)[-1] == pytest.approx(1.67748460738e-06, rel=1e-11)
    with pytest.raises(ValueError, match=says):
        refused()


SIZES = [(1, 1), (1, 20), (5, 20), (10, 20), (3, 2), (4, 200)]


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_optimal_polynomials_solve_the_normal_equations(d, n):
    """The best polynomial solves, in fractions, sum_j c_j m_{i+j} = -m_i (i, j >= 1) for the moments m, by Gauss's
    elimination; coefficients and risks are equal to it in all digits, degrees 1 to 8.
    """
    moments = [Fraction(trace, n**k) for k, trace in enumerate(_recursion.mean_traces(d, n, 16))]
    expected = [moments[0]]
    for degree in range(1, 9):
        rows = [[moments[i + j] for j in range(1, degree + 1)] + [-moments[i]] for i in range(1, degree + 1)]
        for i in range(degree):
            rows[i] = [v / rows[i][i] for v in rows[i]]
            for k in range(degree):
                if k != i:
                    rows[k] = [v - rows[k][i] * u for v, u in zip(rows[k], rows[i], strict=True)]
        c = [Fraction(1), *(row[-1] for row in rows)]
        expected.append(sum(a * m for a, m in zip(c, moments, strict=False)))
        assert polynomial_floor.optimal_polynomial(d, n, degree).tolist() == [float(v) for v in c]
    assert polynomial_floor.optimal_risks(d, n, 8).tolist() == [float(v) for v in expected]


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_one_layer(d, n):
    """Degree 1 has a closed form, step and risk; it is the minimum of d - 2 a d + a^2 E tr (W/n)^2."""
    a, risk = polynomial_floor.best_single_step(d, n)
    assert (a, risk) == (n / (n + d + 1), d * (d + 1) / (n + d + 1))
    (alpha,), (gamma,) = polynomial_floor.optimal_registers(d, n, 1)
    np.testing.assert_allclose([alpha, *polynomial_floor.optimal_steps(d, n, 1)], a, rtol=1e-14)
    np.testing.assert_allclose(polynomial_floor.optimal_risks(d, n, 1), [d, risk], rtol=1e-14)
    np.testing.assert_allclose(lfom.table_risks(lfom.gradient_descent_table(a, 1), d, n), [d, risk], rtol=1e-14)
    assert gamma == 0
    for step in (0.9 * a, 1.1 * a):
        assert d - 2 * step * d + step**2 * polynomial_floor.wishart_moments(d, n, 2)[2] > risk


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_registers_steps_and_polynomial_are_one(d, n):
    """The table of the optimal register has the optimal polynomial of every degree (1e-9 of its largest coefficient)
    and the least risk at every layer; the roots' steps multiply to the last of them. Six layers.
    """
    alpha, gamma = polynomial_floor.optimal_registers(d, n, 6)
    Gamma = lfom.registers(alpha, gamma)
    for p, degree in zip(lfom.polynomials(Gamma)[1:], range(1, 7), strict=True):
        c = polynomial_floor.optimal_polynomial(d, n, degree)
        np.testing.assert_allclose(p[: degree + 1], c, rtol=0, atol=1e-9 * np.abs(c).max())
        assert not p[degree + 1 :].any()
    np.testing.assert_allclose(lfom.table_risks(Gamma, d, n), polynomial_floor.optimal_risks(d, n, 6), rtol=1e-9)
    shorter = polynomial_floor.optimal_registers(d, n, 3)
    assert alpha[:3].tolist() == shorter[0].tolist()
    assert gamma[:3].tolist() == shorter[1].tolist()

    steps = polynomial_floor.optimal_steps(d, n, 6)
    assert (np.diff(steps) > 0).all()
    product = multiplied(steps)
    c = polynomial_floor.optimal_polynomial(d, n, 6)
    np.testing.assert_allclose(product, c, rtol=0, atol=1e-9 * np.abs(c).max())
    np.testing.assert_allclose(lfom.polynomials(np.eye(6), steps)[-1], product, rtol=1e-12)
    np.testing.assert_allclose(
        lfom.table_risks(np.eye(6), d, n, steps)[[0, -1]], polynomial_floor.optimal_risks(d, n, 6)[[0, -1]], rtol=1e-9
    )


@pytest.mark.parametrize(("d", "n"), [(5, 20), (10, 20), (1, 5)])
def test_shared_floor_of_two_layers(d, n):
    """At two layers the least risk is found by elimination.

    p_2 = 1 - (2 c_0 + c_1) t + c_0 c_1 t^2, so for a given c_0 the best c_1 solves a line, and what is left is a
    function of one number, searched on a grid of 2001 and then by Brent's method. Depth 1 is free of the restriction.
    """
    m = polynomial_floor.wishart_moments(d, n, 4)
    moments = linalg.hankel(m[:3], m[2:])

    def risk(c_0):
        # p_2 = u - c_1 v with u = 1 - 2 c_0 t and v = t - c_0 t^2.
        u, v = np.array([1, -2 * c_0, 0]), np.array([0, 1, -c_0])
        return u @ moments @ u - (u @ moments @ v) ** 2 / (v @ moments @ v)

    grid = np.linspace(-5, 5, 2001)
    start = grid[np.argmin([risk(c) for c in grid])]
    least = optimize.minimize_scalar(risk, bracket=(start - 0.005, start, start + 0.005), tol=1e-12).fun
    risks, c = polynomial_floor.shared_floor(d, n, 2)
    np.testing.assert_allclose(risks, [d, polynomial_floor.best_single_step(d, n)[1], least], rtol=1e-9)
    np.testing.assert_allclose(lfom.table_risks(np.tri(2) * c, d, n)[-1], least, rtol=1e-9)


@pytest.mark.usefixtures("as_installed")
def test_shared_floor_is_that_of_its_coefficients_and_least():
    """Its c, as the table Gamma_j for all layers, has the risk that is returned; 5 searches a depth by a method
    without slopes, from starts of another law, find none lower (to 1e-9) and come within 1 %; from two layers on it is
    more than twice the floor, which no memory at all reaches.

    d = 5, n = 20, to four layers.
    """
    d, n = 5, 20
    by_depth = {depth: polynomial_floor.shared_floor(d, n, depth) for depth in (2, 3, 4)}
    risks = by_depth[4][0]
    floor = polynomial_floor.optimal_risks(d, n, 4)
    assert (risks[2:] > 2 * floor[2:]).all()
    assert (np.diff(risks) < 0).all()
    rng = np.random.default_rng(0)
    for depth in (2, 3, 4):
        prefix, c = by_depth[depth]
        assert prefix[-1] == risks[depth]
        np.testing.assert_allclose(lfom.table_risks(np.tri(depth) * c, d, n)[-1], risks[depth], rtol=1e-9)
        moments = polynomial_floor.wishart_moments(d, n, 2 * depth)
        form = linalg.hankel(moments[: depth + 1], moments[depth:])

        def risk(c, form=form):
            p = lfom.polynomials(np.tri(len(c)) * c)[-1]
            return p @ form @ p

        found = [optimize.minimize(risk, rng.normal(size=depth), method="Nelder-Mead").fun for _ in range(5)]
        assert min(found) >= risks[depth] * (1 - 1e-9)
        assert min(found) <= risks[depth] * 1.01


@pytest.mark.parametrize(("d", "n", "batch", "layers"), [(5, 20, 200, 5), (3, 2, 40, 4), (1, 4, 10, 3)])
def test_fitted_registers_are_least_squares(d, n, batch, layers):
    """The register's error at every layer is that of the least-squares fit of the powers of all whitened prompts,
    stacked: ||I - sum_j c_j H^j||, to 1e-9; and no small change of its numbers lowers the last.

    The register is run in the original coordinates, as it is written, on each prompt.
    """
    Sigma = covariance(d, 1, 0.1)
    root, inverse = powers_of(Sigma)
    H = wishart(d, n, batch, 2, root)
    alpha, gamma = polynomial_floor.fitted_registers(H, Sigma, layers)
    assert gamma[0] == 0

    def run(alpha, gamma):
        e, s, means = np.broadcast_to(np.eye(d), H.shape), 0.0, []
        for layer in range(layers):
            s = -np.linalg.inv(Sigma) @ H @ e + gamma[layer] * s
            e = e + alpha[layer] * s
            means.append(((root @ e @ inverse) ** 2).sum() / batch)
        return means

    whitened = inverse @ H @ inverse
    stacked, columns, expected = np.broadcast_to(np.eye(d), H.shape), [], []
    target = stacked.ravel()
    for _ in range(layers):
        stacked = whitened @ stacked
        columns.append(stacked.ravel())
        c = np.linalg.lstsq(np.stack(columns, axis=1), target, rcond=None)[0]
        expected.append(((target - np.stack(columns, axis=1) @ c) ** 2).sum() / batch)
    np.testing.assert_allclose(run(alpha, gamma), expected, rtol=1e-9)
    for bump in np.eye(layers) * 1e-3:
        for sign in (-1, 1):
            assert run(alpha + sign * bump, gamma)[-1] > expected[-1]


def test_fitted_registers_stop_when_all_is_solved():
    """One prompt of d distinct eigenvalues is solved in d layers; what comes after is 0, and so it is for a prompt of
    zeros and for one of equal eigenvalues.
    """
    H = wishart(3, 9, 1, 5)
    alpha, gamma = polynomial_floor.fitted_registers(H, None, 6)
    assert (alpha[:3] > 0).all()
    assert not alpha[3:].any()
    assert not gamma[3:].any()
    p = lfom.polynomials(lfom.registers(alpha, gamma))[-1]
    np.testing.assert_allclose(polynomial.polyval(np.linalg.eigvalsh(H[0]), p), 0, atol=1e-9)
    assert not np.any(polynomial_floor.fitted_registers(np.zeros((2, 3, 3)), None, 2))
    alpha, _ = polynomial_floor.fitted_registers(np.eye(3)[None] * 4, None, 2)
    assert alpha.tolist() == [0.25, 0]


def narayana(c, degree):
    """Moments of the limiting law, exactly: of degree k they count non-crossing partitions of k by their blocks."""
    rows = [[Fraction(comb(k, r) * comb(k - 1, r), r + 1) * c**r for r in range(k)] for k in range(1, degree + 1)]
    return [Fraction(1), *(sum(row) for row in rows)]


def law(c, p):
    """The integral of p(t) over the limiting law by adaptive quadrature: its density, and the mass at t = 0."""
    density = lambda t: ((1 + c**0.5) ** 2 - t) ** 0.5 * (t - (1 - c**0.5) ** 2) ** 0.5 / (2 * np.pi * c * t)  # noqa: E731
    ends = (1 - c**0.5) ** 2, (1 + c**0.5) ** 2
    inside, _ = integrate.quad(lambda t: p(t) * density(t), *ends, epsabs=1e-13, epsrel=1e-12, limit=500)
    return inside + max(1 - 1 / c, 0) * p(0.0)


RATIOS = [Fraction(1, 8), Fraction(1, 4), Fraction(4, 5), Fraction(1), Fraction(3, 2), Fraction(4)]


@pytest.mark.parametrize("c", RATIOS)
def test_limits_are_least_squares_under_the_limiting_law(c):
    """In fractions, from the law's moments: the register has the numbers of conjugate gradients in its inner product,
    their polynomials are orthogonal to all t q of lower degree, and the floors are their squares; degrees 0 to 6.

    The steps' product is that polynomial, to 1e-9 of its largest coefficient. At c = 1 the floor is 1/(l+1).
    """
    m, layers = narayana(c, 13), 6

    def under(p, q, shift=0):
        return sum(u * v * m[i + j + shift] for i, u in enumerate(p) for j, v in enumerate(q))

    p, s, before = [Fraction(1)], [Fraction()], None
    risks, alphas, gammas = [m[0]], [], []
    for _ in range(layers):
        energy = under(p, p, 1)
        gammas.append(energy / before if before else Fraction())
        s = [gammas[-1] * u - v for u, v in zip([*s, 0], [0, *p], strict=True)]
        alphas.append(energy / under(s, s))
        p, before = [u + alphas[-1] * v for u, v in zip([*p, 0], s, strict=True)], energy
        # No t q of lower degree takes anything from p: so it is the least.
        assert not any(under(p, [0] * k + [1]) for k in range(1, len(p)))
        risks.append(under(p, p))
    assert polynomial_floor.limit_risks(float(c), layers) == pytest.approx([float(v) for v in risks], rel=1e-14)
    for found, expected in zip(polynomial_floor.limit_registers(float(c), layers), (alphas, gammas), strict=True):
        assert found == pytest.approx([float(v) for v in expected], rel=1e-14)
    steps = polynomial_floor.limit_steps(float(c), layers)
    assert (np.diff(steps) > 0).all()
    product = multiplied(steps)
    coefficients = np.array([float(v) for v in p])
    np.testing.assert_allclose(product, coefficients, rtol=0, atol=1e-9 * np.abs(coefficients).max())
    if c == 1:
        assert risks == [Fraction(1, degree + 1) for degree in range(layers + 1)]


@pytest.mark.parametrize("c", [0.125, 0.25, 0.8, 1.5, 4.0])
def test_limits_by_quadrature(c):
    """The floor is the integral of its polynomial's square over Marchenko and Pastur's density, by adaptive quadrature,
    to 1e-9. So is the risk of equal steps, and a quarter more or less of the step is worse. Depths 1, 2 and 5.
    """
    assert law(c, lambda t: 1.0) == pytest.approx(1, rel=1e-9)
    floor = polynomial_floor.limit_risks(c, 5)
    step, risks = polynomial_floor.limit_equal_steps(c, 5)
    assert step == 1 / (1 + c)
    for layers in (1, 2, 5):
        a = polynomial_floor.limit_steps(c, layers)
        assert law(c, lambda t, a=a: np.prod(1 - a * t) ** 2) == pytest.approx(floor[layers], rel=1e-9)
        tried = [
            law(c, lambda t, a=a, layers=layers: (1 - a * t) ** (2 * layers)) for a in step * np.array([1, 0.75, 1.25])
        ]
        assert tried[0] == pytest.approx(risks[layers], rel=1e-9)
        assert min(tried[1:]) > tried[0] * 1.001
    # One layer has one step: it is the floor's.
    np.testing.assert_allclose(risks[:2], floor[:2], rtol=1e-14)
    assert (risks[2:] > floor[2:]).all()


@pytest.mark.parametrize("c", [0.25, 1.0, 2.0])
def test_the_best_equal_step_is_one_for_all_depths(c):
    """Brent's method finds 1/(1+c) at depths 1 to 6, to 1e-6, from the law's moments."""
    m = np.array([float(v) for v in narayana(Fraction(c), 12)])
    for layers in range(1, 7):

        def risk(a, layers=layers):
            p = polynomial.polypow([1, -a], 2 * layers)
            return p @ m[: len(p)]

        found = optimize.minimize_scalar(risk, bracket=(0.8 / (1 + c), 1.1 / (1 + c)), tol=1e-12)
        assert found.x == pytest.approx(polynomial_floor.limit_equal_steps(c, layers)[0], rel=1e-6)
        assert found.fun == pytest.approx(polynomial_floor.limit_equal_steps(c, layers)[1][-1], rel=1e-9)


@pytest.mark.parametrize("c", [0.25, 1.0, 2.0])
def test_floors_approach_their_limits(c):
    """Exact floors per coordinate, registers and steps go to their limits as 1/d, four layers: twice the values at
    d = 160 less those at d = 80 are the limits, to 1 %, and from 80 to 160 the floors' distance halves (1.9 to 2.2).
    """

    def joined(risks, registers, steps):
        return np.concatenate([risks[1:], registers[0], registers[1][1:], steps])

    at = {}
    for d in (80, 160):
        of = d, round(d / c), 4
        registers, steps = polynomial_floor.optimal_registers(*of), polynomial_floor.optimal_steps(*of)
        at[d] = joined(polynomial_floor.optimal_risks(*of) / d, registers, steps)
    limits = polynomial_floor.limit_risks, polynomial_floor.limit_registers, polynomial_floor.limit_steps
    limit = joined(*(of(c, 4) for of in limits))
    np.testing.assert_allclose(2 * at[160] - at[80], limit, rtol=0.01)
    halved = (at[80] - limit)[:4] / (at[160] - limit)[:4]
    assert 1.9 < halved.min() <= halved.max() < 2.2


@pytest.mark.statistical
@pytest.mark.parametrize("c", [0.25, 1.0, 2.0])
def test_a_sample_in_high_dimension_has_the_limits_floor(c):
    """`floor` of 24 prompts of 160 dimensions, per coordinate, is the limit but for the 6 % that are left of order 1/d,
    at each of four layers.
    """
    H = curvatures(160, round(160 / c), 24, 3)
    risks, se = polynomial_floor.floor(H, None, 4)
    limit = 160 * polynomial_floor.limit_risks(c, 4)
    far = np.maximum(0, np.abs(risks - limit) - 0.06 * limit)[1:]
    chance.assert_z(far / se[1:], of=24)
    assert (se <= 0.05 * limit).all()


def halves(H, Sigma, layers, A):
    """`floor` by powers and least squares: fitted on one half, judged on the other, each way."""
    root, inverse = powers_of(Sigma)
    K = root @ A @ H @ inverse
    d, split, values = K.shape[-1], len(K) // 2, []
    powers = [np.broadcast_to(np.eye(d), K.shape)]
    for _ in range(layers):
        powers.append(K @ powers[-1])
    for fit, judge in ((slice(split), slice(split, None)), (slice(split, None), slice(split))):
        columns = [np.full(len(K[judge]), float(d))]
        for degree in range(1, layers + 1):
            design = np.stack([power[fit].ravel() for power in powers[1 : degree + 1]], axis=1)
            c = np.linalg.lstsq(design, powers[0][fit].ravel(), rcond=None)[0]
            error = powers[0][judge] - sum(u * power[judge] for u, power in zip(c, powers[1:], strict=False))
            columns.append((error**2).sum((1, 2)))
        values.append(np.stack(columns, axis=1))
    values = np.concatenate(values)
    return values.mean(0), values.std(0, ddof=1) / len(values) ** 0.5


@pytest.mark.parametrize("batch", [60, 61])
@pytest.mark.parametrize("kind", ["identity", "inverse", "any"])
def test_floor_is_cross_fitted_least_squares(batch, kind):
    """Risks and standard errors equal those of a least-squares fit of plain powers, to 1e-9 at four layers; for A the
    identity, Sigma^-1 and a matrix without symmetry; batches even and odd.
    """
    Sigma = covariance(4, 3, 0.1)
    A = {"identity": None, "inverse": np.linalg.inv(Sigma), "any": np.random.default_rng(4).normal(size=(4, 4))}[kind]
    H = wishart(4, 10, batch, 5, powers_of(Sigma)[0])
    expected = halves(H, Sigma, 4, np.eye(4) if A is None else A)
    np.testing.assert_allclose(polynomial_floor.floor(H, Sigma, 4, A), expected, rtol=1e-9, atol=1e-12)


def test_floor_does_not_change_with_white_coordinates():
    """For A = Sigma^-1 the floor of a sample is that of its whitened prompts; when nothing is left to fit it stays."""
    Sigma = covariance(4, 6, 0.1)
    root, inverse = powers_of(Sigma)
    H = wishart(4, 10, 50, 7, root)
    white = inverse @ H @ inverse
    value = polynomial_floor.floor(H, Sigma, 5, np.linalg.inv(Sigma))
    other = polynomial_floor.floor((white + white.swapaxes(1, 2)) / 2, None, 5)
    np.testing.assert_allclose(value, other, rtol=1e-9)
    risks, se = polynomial_floor.floor(np.eye(3)[None].repeat(4, axis=0), None, 3)
    np.testing.assert_allclose(risks, [3, 0, 0, 0], atol=1e-25)
    np.testing.assert_allclose(se, 0, atol=1e-25)
    np.testing.assert_array_equal(polynomial_floor.floor(np.zeros((2, 3, 3)), None, 2)[0], [3, 3, 3])


# Properties

few = settings(max_examples=20)
dims, examples = st.integers(1, 8), st.integers(1, 40)


@given(dims, examples)
@few
def test_least_risks_fall(d, n):
    """The floor starts at d and falls strictly with every layer and with every example; it is never 0, nor below
    d - n, of what n < d inputs cannot show.
    """
    risks = polynomial_floor.optimal_risks(d, n, 6)
    assert risks[0] == d
    assert (np.diff(risks) < 0).all()
    assert (risks > max(d - n, 0)).all()
    assert (polynomial_floor.optimal_risks(d, n + 1, 6)[1:] < risks[1:]).all()


@given(dims)
@few
def test_floors_vanish_with_many_examples(d):
    """As n grows the floor of degree L goes to 0 as n^-L: ten times the examples, 10^-L of the risk, to 2 % at
    n = 10^6, four layers; all steps and roots go to 1.
    """
    ratio = polynomial_floor.optimal_risks(d, 10**7, 4) / polynomial_floor.optimal_risks(d, 10**6, 4)
    np.testing.assert_allclose(ratio, 10.0 ** -np.arange(5), rtol=0.02)
    np.testing.assert_allclose(polynomial_floor.optimal_steps(d, 10**7, 4), 1, atol=0.01)


@pytest.mark.usefixtures("as_installed")
@given(dims, examples, st.integers(1, 3))
@settings(max_examples=8)
def test_shared_floor_lies_between(d, n, layers):
    """Scalars that all layers share are never below the floor, equal to it at depth 1, above it from depth 2 on, and
    never worse with a layer more; what they reach is theirs: `risks` of their table.
    """
    risks, c = polynomial_floor.shared_floor(d, n, layers)
    floor = polynomial_floor.optimal_risks(d, n, layers)
    np.testing.assert_allclose(risks[:2], floor[:2], rtol=1e-9)
    assert (risks[2:] > floor[2:]).all()
    assert (np.diff(risks) <= 1e-9 * risks[:-1]).all()
    np.testing.assert_allclose(lfom.table_risks(np.tri(layers) * c, d, n)[-1], risks[-1], rtol=1e-9)


@given(st.integers(1, 4), st.integers(1, 8), st.integers(1, 4), st.integers(0, 2**20))
@few
def test_fitted_registers_do_not_depend_on_coordinates(d, n, layers, seed):
    """Prompts in other coordinates, H -> T H T' with Sigma -> T Sigma T', have the same register, to 1e-6: T has
    condition numbers to 10, and there are 12 prompts, so that four layers do not solve them.
    """
    H, rng = wishart(d, n, 12, seed), np.random.default_rng(seed + 1)
    T = np.linalg.qr(rng.normal(size=(d, d)))[0] * rng.uniform(0.3, 3, size=d)
    moved = T @ H @ T.T
    one = polynomial_floor.fitted_registers(H, None, layers)
    other = polynomial_floor.fitted_registers((moved + moved.swapaxes(1, 2)) / 2, T @ T.T, layers)
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


# Statistics

D = np.array([1.0, 1.0, 0.5, 0.25, 1.0])


def curvatures(d, n, batch, seed, scales=1.0):
    """X X'/n of so many prompts; where n >= d from the triangle that X is times a rotation [Bartlett 1933]."""
    rng = chance.rng(seed)
    X = rng.normal(size=(batch, d, min(n, d)))
    if n >= d:
        X *= np.tri(d, k=-1)
        X[:, range(d), range(d)] = np.sqrt(rng.chisquare(n - np.arange(d), size=(batch, d)))
    X *= np.broadcast_to(scales, (d,))[:, None]
    return X @ X.swapaxes(1, 2) / n


@pytest.mark.statistical
@pytest.mark.usefixtures("as_installed")
def test_fitted_registers_approach_the_optimal():
    """The register fitted to 1000 prompts, averaged over 200 such fits, is the optimal one: d = 5, n = 20, four
    layers, inputs of covariance diag(1, 1, 1/2, 1/4, 1).

    A fit's bias falls as 1/prompts: twice the fit less the mean of its halves' is free of the first order. It detects
    shifts of 1 % in the first layers' and 7 % in the last's.
    """
    alpha, gamma = polynomial_floor.optimal_registers(5, 20, 4)
    fits = []
    for seed in range(200):
        H = curvatures(5, 20, 1000, seed, D**0.5)
        whole, *parts = (
            np.concatenate(polynomial_floor.fitted_registers(h, np.diag(D), 4)) for h in (H, H[:500], H[500:])
        )
        fits.append(2 * whole - np.mean(parts, axis=0))
    counts = np.arange(8) != 4  # gamma_0 is 0 in every fit
    expected = np.concatenate([alpha, gamma])[counts]
    chance.assert_mean(np.array(fits)[:, counts], expected, error=0.01 * expected)
    assert not np.array(fits)[:, 4].any()


@pytest.mark.statistical
@pytest.mark.parametrize(("d", "n", "error"), [(5, 20, (0.0012, 0.003, 0.008)), (3, 2, (0.001, 0.0025))])
def test_floor_of_a_sample_is_that_of_the_law(d, n, error):
    """`floor` of 100,000 prompts with A = Sigma^-1 is `optimal_risks`, at each of three layers, or of two where three
    have a standard error that no sample shows; what the fit adds is two orders of size below it. It detects 1, 2 and 6
    %.
    """
    scales = np.linspace(0.5, 2, d)
    H = curvatures(d, n, 100_000, 1, scales)
    layers = len(error)
    risks, se = polynomial_floor.floor(H, np.diag(scales**2), layers, np.diag(scales**-2.0))
    expected = polynomial_floor.optimal_risks(d, n, layers)
    assert risks[0] == expected[0]
    assert se[0] == 0
    chance.assert_near(risks[1:], expected[1:], se[1:], error=error * expected[1:])
