"""First-order methods on random quadratics: moments by pairings, floors by least squares, tables by their loops."""

import itertools
from fractions import Fraction
from math import comb, factorial, prod

import numpy as np
import pytest
from numpy.polynomial import polynomial
from scipy import optimize

from icl.theory import lfom, polynomial_floor


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


def exact_risk(p, d, n):
    """E ||p(W/n)||_F^2 of ascending coefficients that are taken at their exact binary values."""
    moments = [Fraction(trace, n**k) for k, trace in enumerate(polynomial_floor._traces(d, n, 2 * len(p) - 2))]
    p = [Fraction(float(c)) for c in p]
    return float(sum(a * b * moments[i + j] for i, a in enumerate(p) for j, b in enumerate(p)))


def wishart(d, n, batch, seed, root=None):
    """Curvatures X X'/n of so many prompts; root: (d, d) with Sigma = root root'."""
    X = np.random.default_rng(seed).normal(size=(batch, d, n))
    X = X if root is None else root @ X
    return X @ X.swapaxes(1, 2) / n


def covariance(d, seed):
    root = np.random.default_rng(seed).normal(size=(d, d))
    return root @ root.T / d + 0.1 * np.eye(d)


def powers_of(matrix):
    """Sigma^(1/2) and Sigma^(-1/2)."""
    values, U = np.linalg.eigh(matrix)
    return (U * values**0.5) @ U.T, (U / values**0.5) @ U.T


@pytest.mark.parametrize(("d", "n"), [(1, 1), (3, 1), (1, 4), (2, 5), (5, 20), (7, 3)])
def test_moments_are_sums_over_pairings(d, n):
    """E tr W^k is the sum over all pairings of 2k normal entries (945 of them at k = 5), exactly, d > n included."""
    assert polynomial_floor._traces(d, n, 5) == (d, *(wick(d, n, k) for k in range(1, 6)))
    assert polynomial_floor._traces(d, n, 2)[1:] == (n * d, n * d * (n + d + 1))
    np.testing.assert_allclose(
        polynomial_floor.wishart_moments(d, n, 5), [d, *(wick(d, n, k) / n**k for k in range(1, 6))], rtol=1e-15
    )


def test_moments_of_high_degree():
    """To degree 16: of one dimension they are chi-square's, n (n+2) .. (n+2k-2); of two those of Bartlett's factors;
    and G'G has the traces of GG' for k >= 1, which the recursion does not know. All as integers.
    """
    for n in (1, 2, 20):
        assert polynomial_floor._traces(1, n, 16) == tuple(prod(n + 2 * i for i in range(k)) for k in range(17))
        assert polynomial_floor._traces(2, n, 16) == tuple(bartlett(n, 16))
    for d, n in ((5, 20), (10, 20), (3, 7)):
        assert polynomial_floor._traces(d, n, 16)[1:] == polynomial_floor._traces(n, d, 16)[1:]


SIZES = [(1, 1), (1, 20), (5, 20), (10, 20), (3, 2), (4, 200)]


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_optimal_polynomials_solve_the_normal_equations(d, n):
    """The best polynomial solves, in fractions, sum_j c_j m_{i+j} = -m_i (i, j >= 1) for the moments m, by Gauss's
    elimination; coefficients and risks are equal to it in all digits, degrees 1 to 8.
    """
    moments = [Fraction(trace, n**k) for k, trace in enumerate(polynomial_floor._traces(d, n, 16))]
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
    product = [1.0]
    for step in steps:
        product = polynomial.polymul(product, [1, -step])
    c = polynomial_floor.optimal_polynomial(d, n, 6)
    np.testing.assert_allclose(product, c, rtol=0, atol=1e-9 * np.abs(c).max())
    np.testing.assert_allclose(lfom.polynomials(np.eye(6), steps)[-1], product, rtol=1e-12)
    np.testing.assert_allclose(
        lfom.table_risks(np.eye(6), d, n, steps)[[0, -1]], polynomial_floor.optimal_risks(d, n, 6)[[0, -1]], rtol=1e-9
    )


@pytest.mark.parametrize(("d", "n"), [(1, 3), (5, 20), (3, 2)])
def test_risks_of_any_table(d, n):
    """The risk of a random table, from the squares above the floor, is that of its polynomials' coefficients in exact
    arithmetic, to 1e-9 at five layers of moderate numbers; a number a layer scales the columns.
    """
    rng = np.random.default_rng(d)
    for _ in range(5):
        Gamma, a = np.tril(rng.normal(size=(5, 5))), rng.uniform(0.2, 2, size=5)
        expected = [exact_risk(p, d, n) for p in lfom.polynomials(Gamma, a)]
        np.testing.assert_allclose(lfom.table_risks(Gamma, d, n, a), expected, rtol=1e-9)
        np.testing.assert_allclose(lfom.table_risks(Gamma * a, d, n), expected, rtol=1e-9)
        np.testing.assert_allclose(lfom.table_risks(Gamma, d, n, 0.5), lfom.table_risks(Gamma / 2, d, n), rtol=1e-12)


@pytest.mark.parametrize(("d", "n"), [(5, 20), (10, 20), (1, 5)])
def test_shared_floor_of_two_layers(d, n):
    """At two layers the least risk is found by elimination.

    p_2 = 1 - (2 c_0 + c_1) t + c_0 c_1 t^2, so for a given c_0 the best c_1 solves a line, and what is left is a
    function of one number, searched on a grid of 2001 and then by Brent's method. Depth 1 is free of the restriction.
    """
    m = polynomial_floor.wishart_moments(d, n, 4)

    def risk(c_0):
        # p_2 = u - c_1 v with u = 1 - 2 c_0 t and v = t - c_0 t^2.
        u, v = np.array([1, -2 * c_0, 0]), np.array([0, 1, -c_0])
        moments = np.array([[m[i + j] for j in range(3)] for i in range(3)])
        return u @ moments @ u - (u @ moments @ v) ** 2 / (v @ moments @ v)

    grid = np.linspace(-5, 5, 2001)
    start = grid[np.argmin([risk(c) for c in grid])]
    least = optimize.minimize_scalar(risk, bracket=(start - 0.005, start, start + 0.005), tol=1e-12).fun
    risks, c = polynomial_floor.shared_floor(d, n, 2)
    np.testing.assert_allclose(risks, [d, polynomial_floor.best_single_step(d, n)[1], least], rtol=1e-9)
    np.testing.assert_allclose(lfom.table_risks(np.tri(2) * c, d, n)[-1], least, rtol=1e-9)


def test_shared_floor_is_that_of_its_coefficients_and_least():
    """Its c, as the table Gamma_j for all layers, has the risk that is returned; 10 searches a depth by a method
    without slopes, from starts of another law, find none lower (to 1e-9) and come within 1 %; from two layers on it is
    more than twice the floor, which no memory at all reaches.

    d = 5, n = 20, to four layers.
    """
    d, n = 5, 20
    risks, _ = polynomial_floor.shared_floor(d, n, 4)
    floor = polynomial_floor.optimal_risks(d, n, 4)
    assert (risks[2:] > 2 * floor[2:]).all()
    assert (np.diff(risks) < 0).all()
    rng = np.random.default_rng(0)
    for depth in (2, 3, 4):
        prefix, c = polynomial_floor.shared_floor(d, n, depth)
        assert prefix[-1] == risks[depth]
        np.testing.assert_allclose(lfom.table_risks(np.tri(depth) * c, d, n)[-1], risks[depth], rtol=1e-9)
        moments = polynomial_floor.wishart_moments(d, n, 2 * depth)
        hankel = np.array([[moments[i + j] for j in range(depth + 1)] for i in range(depth + 1)])

        def risk(c, hankel=hankel):
            p = lfom.polynomials(np.tri(len(c)) * c)[-1]
            return p @ hankel @ p

        found = [optimize.minimize(risk, rng.normal(size=depth), method="Nelder-Mead").fun for _ in range(10)]
        assert min(found) >= risks[depth] * (1 - 1e-9)
        assert min(found) <= risks[depth] * 1.01


@pytest.mark.parametrize(("d", "n", "batch", "layers"), [(5, 20, 200, 5), (3, 2, 40, 4), (1, 4, 10, 3)])
def test_fitted_registers_are_least_squares(d, n, batch, layers):
    """The register's error at every layer is that of the least-squares fit of the powers of all whitened prompts,
    stacked: ||I - sum_j c_j H^j||, to 1e-9; and no small change of its numbers lowers the last.

    The register is run in the original coordinates, as it is written, on each prompt.
    """
    Sigma = covariance(d, 1)
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
    Sigma = covariance(4, 3)
    A = {"identity": None, "inverse": np.linalg.inv(Sigma), "any": np.random.default_rng(4).normal(size=(4, 4))}[kind]
    H = wishart(4, 10, batch, 5, powers_of(Sigma)[0])
    expected = halves(H, Sigma, 4, np.eye(4) if A is None else A)
    for value, other in zip(polynomial_floor.floor(H, Sigma, 4, A), expected, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-9, atol=1e-12)


def test_floor_does_not_change_with_white_coordinates():
    """For A = Sigma^-1 the floor of a sample is that of its whitened prompts; when nothing is left to fit it stays."""
    Sigma = covariance(4, 6)
    root, inverse = powers_of(Sigma)
    H = wishart(4, 10, 50, 7, root)
    white = inverse @ H @ inverse
    for value, other in zip(
        polynomial_floor.floor(H, Sigma, 5, np.linalg.inv(Sigma)),
        polynomial_floor.floor((white + white.swapaxes(1, 2)) / 2, None, 5),
        strict=True,
    ):
        np.testing.assert_allclose(value, other, rtol=1e-9)
    risks, se = polynomial_floor.floor(np.eye(3)[None].repeat(4, axis=0), None, 3)
    np.testing.assert_allclose(risks, [3, 0, 0, 0], atol=1e-25)
    np.testing.assert_allclose(se, 0, atol=1e-25)
    np.testing.assert_array_equal(polynomial_floor.floor(np.zeros((2, 3, 3)), None, 2)[0], [3, 3, 3])


ETA, BETA, LAYERS = 0.3, 0.7, 6


def quadratic():
    rng = np.random.default_rng(8)
    H = wishart(4, 9, 1, 9)[0]
    return H, rng.normal(size=4)


def through_cumulative(Gamma, grad):
    """(1.1): w_{k+1} = w_0 + sum_j Gamma_j^k grad f(w_j), with minus the cumulative table for coefficients; w_0 = 0."""
    w = [np.zeros(4)]
    for row, k in zip(lfom.cumulative(Gamma), itertools.count()):
        w.append(w[0] - sum(row[j] * grad(w[j]) for j in range(k + 1)))
    return np.array(w)


def test_tables_are_the_methods():
    """(1.1) with each cumulative table repeats, on one quadratic, the loop of its method as it is written: gradient
    descent, the heavy ball, Nesterov's method (whose last state is the w-iterate, and whose others are the points at
    which gradients are taken) and conjugate gradients with that quadratic's own numbers. To 1e-12 over six layers.
    """
    H, b = quadratic()

    def grad(w):
        return H @ w - b

    descent, ball, nesterov = [np.zeros(4)], [np.zeros(4), -ETA * grad(np.zeros(4))], [np.zeros(4)]
    for _ in range(LAYERS):
        descent.append(descent[-1] - ETA * grad(descent[-1]))
        ball.append(ball[-1] - ETA * grad(ball[-1]) + BETA * (ball[-1] - ball[-2]))
    w = v = np.zeros(4)
    for _ in range(LAYERS):
        w, before = v - ETA * grad(v), w
        v = w + BETA * (w - before)
        nesterov.append(v)
    nesterov[-1] = w

    conjugate, alpha, gamma = [np.zeros(4)], [], []
    g, s = grad(conjugate[0]), np.zeros(4)
    for layer in range(3):
        fresh = grad(conjugate[-1])
        gamma.append(fresh @ fresh / (g @ g) if layer else 0.0)
        g, s = fresh, -fresh + gamma[-1] * s
        alpha.append(g @ g / (s @ H @ s))
        conjugate.append(conjugate[-1] + alpha[-1] * s)

    for Gamma, expected in (
        (lfom.gradient_descent_table(ETA, LAYERS), descent),
        (lfom.momentum_table(ETA, BETA, LAYERS), ball[:-1]),
        (lfom.nesterov_table(ETA, BETA, LAYERS), nesterov),
        (lfom.registers(np.array(alpha), np.array(gamma)), conjugate),
    ):
        np.testing.assert_allclose(through_cumulative(Gamma, grad), expected, rtol=0, atol=1e-12)
        # And the error is the polynomial of H that the table is said to have, times the first error.
        w_star = np.linalg.solve(H, b)
        for p, state in zip(lfom.polynomials(Gamma), expected, strict=True):
            value = sum(c * np.linalg.matrix_power(H, k) for k, c in enumerate(p)) @ -w_star
            np.testing.assert_allclose(state - w_star, value, rtol=0, atol=1e-9)


def test_register_by_its_loop():
    """A register's table with any numbers is the loop s <- -grad + gamma s, w <- w + alpha s; gamma_0 is unread."""
    H, b = quadratic()
    rng = np.random.default_rng(10)
    alpha, gamma = rng.normal(size=(2, LAYERS))
    w, s, states = np.zeros(4), np.zeros(4), [np.zeros(4)]
    for layer in range(LAYERS):
        s = b - H @ w + gamma[layer] * s
        w = w + alpha[layer] * s
        states.append(w)
    Gamma = lfom.registers(alpha, gamma)
    np.testing.assert_allclose(through_cumulative(Gamma, lambda w: H @ w - b), states, rtol=1e-12)
    assert Gamma.tolist() == lfom.registers(alpha, np.append(99.0, gamma[1:])).tolist()


def test_shared_memory_is_the_heavy_ball_without_friction():
    """Gamma_j that all later layers share is the heavy ball with beta = 1: p_{l+1} = 2 p_l - p_{l-1} - c_l t p_l.

    So it cannot be gradient descent from two layers on: c_0 = c_1 = eta moves by eta (g_0 + g_1) where descent moves by
    eta g_1; with one number for all j it is `momentum(eta, 1)`.
    """
    c = np.random.default_rng(11).normal(size=LAYERS)
    p = lfom.polynomials(np.tri(LAYERS) * c)
    before, now = np.eye(1, LAYERS + 1)[0], np.eye(1, LAYERS + 1)[0]
    for layer in range(LAYERS):
        before, now = now, 2 * now - before - c[layer] * np.append(0, now[:-1])
        np.testing.assert_allclose(p[layer + 1], now, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(lfom.momentum_table(ETA, 1.0, LAYERS), ETA * np.tri(LAYERS))
    np.testing.assert_allclose(
        lfom.polynomials(ETA * np.tri(2))[2] - lfom.polynomials(lfom.gradient_descent_table(ETA, 2))[2],
        [0, -ETA, 0],
        atol=1e-15,
    )


def test_tables_at_the_edges():
    """One layer of every method is one step; momentum of 0 is gradient descent, Nesterov's too; a step is summed once
    for every layer that adds it.
    """
    for Gamma in (
        lfom.momentum_table(ETA, BETA, 1),
        lfom.nesterov_table(ETA, BETA, 1),
        lfom.registers(np.array([ETA]), np.zeros(1)),
    ):
        assert Gamma.tolist() == [[ETA]]
    for Gamma in (
        lfom.momentum_table(ETA, 0.0, 4),
        lfom.nesterov_table(ETA, 0.0, 4),
        lfom.registers(np.full(4, ETA), np.zeros(4)),
    ):
        np.testing.assert_array_equal(Gamma, lfom.gradient_descent_table(ETA, 4))
    np.testing.assert_array_equal(lfom.cumulative(np.tri(3)), [[1, 0, 0], [2, 1, 0], [3, 2, 1]])
    # (1 - t)^4 by one step of 1 a layer.
    np.testing.assert_array_equal(lfom.polynomials(np.eye(4))[-1], [(-1) ** k * comb(4, k) for k in range(5)])
