"""Tables of first-order methods against their loops, and their risks against prompts that are drawn.

Properties: tables have up to five layers, entries up to 3 in size; d to 8, n to 40. Where a risk can equal its floor
the tolerance is 1e-9 of the risk.
"""

import itertools
from fractions import Fraction
from math import comb

import chance
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg
from shared import wishart

from icl.theory import lfom
from icl.theory.lfom import _recursion, polynomial_floor

# Oracles


def exact_risk(p, d, n):
    """E ||p(W/n)||_F^2 of ascending coefficients that are taken at their exact binary values."""
    moments = [Fraction(trace, n**k) for k, trace in enumerate(_recursion.mean_traces(d, n, 2 * len(p) - 2))]
    p = [Fraction(float(c)) for c in p]
    return float(sum(a * b * moments[i + j] for i, a in enumerate(p) for j, b in enumerate(p)))


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


@pytest.mark.one_draw("the tables, whose next term is left out")
@pytest.mark.parametrize("c", [Fraction(1, 4), Fraction(1), Fraction(2)])
def test_risks_of_any_table_in_high_dimension(c):
    """The limiting risk of a random table is that of its polynomials' coefficients under the law's moments (Narayana's
    numbers), in exact arithmetic, to 1e-9 at five layers; and the exact risks per coordinate at d = 80 and 160 go to it
    as 1/d: twice the one less the other is it to 1 %.
    """
    rng = np.random.default_rng(7)
    m = [1] + [sum(Fraction(comb(k, r) * comb(k - 1, r), r + 1) * c**r for r in range(k)) for k in range(1, 11)]
    for _ in range(5):
        Gamma, a = np.tril(rng.normal(size=(5, 5))), rng.uniform(0.2, 1, size=5)
        expected = []
        for p in lfom.polynomials(Gamma, a):
            p = [Fraction(float(v)) for v in p]
            expected.append(float(sum(u * v * m[i + j] for i, u in enumerate(p) for j, v in enumerate(p))))
        np.testing.assert_allclose(lfom.limit_table_risks(Gamma, float(c), a), expected, rtol=1e-9)
        near, far = (lfom.table_risks(Gamma, d, round(d / c), a) / d for d in (160, 80))
        np.testing.assert_allclose(2 * near - far, expected, rtol=0.01)


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


# Properties

dims, examples = st.integers(1, 8), st.integers(1, 40)


@st.composite
def tables(draw):
    """A lower-triangular table of any numbers, and a number a layer."""
    layers = draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    return np.tril(rng.uniform(-3, 3, size=(layers, layers))), rng.uniform(-2, 2, size=layers)


@given(tables(), dims, examples)
def test_no_table_is_below_the_floor(drawn, d, n):
    """At every layer the risk, as the quadratic form of the moments in the coefficients, is at least the least of that
    degree; and `risks` says the same. To 1e-9 of the form at the coefficients' absolute values, which bounds rounding.
    """
    Gamma, a = drawn
    layers, moments = len(Gamma), polynomial_floor.wishart_moments(d, n, 2 * len(Gamma))
    p, form = lfom.polynomials(Gamma, a), linalg.hankel(moments[: layers + 1], moments[layers:])
    values = np.einsum("li,ij,lj->l", p, form, p)
    rounding = 1e-9 * np.einsum("li,ij,lj->l", abs(p), form, abs(p))
    assert (values >= polynomial_floor.optimal_risks(d, n, layers) - rounding).all()
    assert (np.abs(lfom.table_risks(Gamma, d, n, a) - values) <= rounding).all()


@given(tables(), st.floats(-2, 2))
def test_tables_and_their_sums(drawn, scale):
    """`cumulative` is undone by differences, is linear, and every residual polynomial is 1 at 0 with the slope that the
    sum of all steps so far gives.
    """
    Gamma, a = drawn
    Lambda = lfom.cumulative(Gamma)
    np.testing.assert_allclose(np.diff(Lambda, axis=0, prepend=0.0), Gamma, atol=1e-12)
    np.testing.assert_allclose(lfom.cumulative(scale * Gamma), scale * Lambda, atol=1e-12)
    p = lfom.polynomials(Gamma, a)
    assert (p[:, 0] == 1).all()
    np.testing.assert_allclose(p[1:, 1], -(Lambda * a).sum(1), atol=1e-12)


# Statistics


@pytest.mark.statistical(3)
def test_risks_of_tables_against_prompts():
    """`risks` of gradient descent, the heavy ball and Nesterov's method is the mean of ||p(H)||_F^2 over 40,000 prompts
    run layer by layer, at each of three layers. It detects 2 %.
    """
    H = wishart(5, 20, 40_000, 2, rng=chance.rng)
    for Gamma in (
        lfom.gradient_descent_table(0.5, 3),
        lfom.momentum_table(0.5, 0.3, 3),
        lfom.nesterov_table(0.4, 0.5, 3),
    ):
        errors = [np.broadcast_to(np.eye(5), H.shape)]
        for row in Gamma:
            errors.append(errors[-1] - sum(g * H @ error for g, error in zip(row, errors, strict=False)))
        squares = np.stack([(error**2).sum((1, 2)) for error in errors[1:]], axis=1)
        chance.assert_mean(squares, lfom.table_risks(Gamma, 5, 20)[1:])
