"""Floors at other variances, with gates and of fits: by elimination, quadrature, grids, least squares, drawn prompts.

Tolerances. What is computed in fractions is compared at 1e-9 with float64; samples fitted by orthogonal directions, at
1e-9 with least squares of plain powers, of three layers at most.
"""

import itertools
from fractions import Fraction
from math import prod

import chance
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import polynomial
from scipy import integrate, linalg, stats
from shared import wishart

from icl.profile import make_generator
from icl.tasks.components import GaussianComponents
from icl.tasks.quadratics import hessians
from icl.theory import lfom
from icl.theory.floors import gaussian_mixtures
from icl.theory.lfom import _recursion, gated_floor, polynomial_floor

# Oracles

TRAINED = np.array([1.0, 2.0, 3.0])
SIZES = [(1, 4), (5, 20), (3, 2)]


def hankel(d, n, layers, scale=1.0):
    """E of t^{i+j} summed over the eigenvalues of scale W/n."""
    m = polynomial_floor.wishart_moments(d, n, 2 * layers) * scale ** np.arange(2 * layers + 1)
    return linalg.hankel(m[: layers + 1], m[layers:])


def stretched(p, ratio):
    """Coefficients of p(ratio t)."""
    return p * ratio ** np.arange(len(p))


@pytest.mark.parametrize(("d", "n"), SIZES)
@pytest.mark.parametrize("layers", [1, 2, 4])
def test_a_rescaled_method_is_its_polynomial_stretched(d, n, layers):
    """The risk at a ratio is the quadratic form of p(ratio t) in the moments; at 1 it is the floor, elsewhere more.

    A number, a list and a table of ratios have risks of their shape. Planted: 1/ratio for the ratio is seen.
    """
    p, M = polynomial_floor.optimal_polynomial(d, n, layers), hankel(d, n, layers)
    ratios = np.array([[0.3, 0.9, 1.0], [1.1, 2.0, 3.0]])
    risks = gated_floor.rescaled_risk(ratios, d, n, layers)
    for ratio, risk in zip(ratios.ravel(), risks.ravel(), strict=True):
        q = stretched(p, ratio)
        assert risk == pytest.approx(q @ M @ q, rel=1e-9)
    floor = polynomial_floor.optimal_risks(d, n, layers)[-1]
    assert risks[0, 2] == pytest.approx(floor, rel=1e-12)
    assert (risks.ravel()[[0, 1, 3, 4, 5]] > floor).all()
    assert gated_floor.rescaled_risk([0.3], d, n, layers).tolist() == risks[0, :1].tolist()
    assert gated_floor.rescaled_risk(2, d, n, layers) == risks[1, 1]


@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("variance", [0.5, 1.0, 1.7, 3.0, 3.5, 8.0])
def test_simplex_gates_against_a_grid(variance, layers):
    """Of 231 gates on the simplex none has less risk than the one returned, whose own risk is what is returned.

    Between the experts it is the floor; beyond them the gate is all on the nearest. Planted: the last expert for the
    first beyond them, and gates that do not sum to 1, are seen.
    """
    d, n = 5, 20
    risk, alpha = gated_floor.simplex_gate(variance, TRAINED, d, n, layers)
    assert (alpha >= 0).all()
    assert alpha.sum() == pytest.approx(1, abs=1e-14)
    ratio = variance * (alpha / TRAINED).sum()
    assert risk == pytest.approx(gated_floor.rescaled_risk(ratio, d, n, layers), rel=1e-9)
    grid = [np.array([i, j, 20 - i - j]) / 20 for i in range(21) for j in range(21 - i)]
    ratios = np.unique(np.round([variance * (each / TRAINED).sum() for each in grid], 12))
    assert (gated_floor.rescaled_risk(ratios, d, n, layers) >= risk * (1 - 1e-9)).all()
    floor = polynomial_floor.optimal_risks(d, n, layers)[-1]
    if 1 <= variance <= 3:
        assert risk == pytest.approx(floor, rel=1e-9)
    else:
        assert risk > 1.001 * floor
        assert alpha.max() == 1


def test_simplex_gates_of_one_variance_and_of_many_layers():
    """One expert, or several of one variance, has the rescaled risk. With many layers and a variance far beyond, an end
    of the reach is not always the least: of 2000 ratios within it none is better.
    """
    for trained in ([2.0], [2.0, 2.0]):
        risk, alpha = gated_floor.simplex_gate(3.0, trained, 5, 20, 3)
        assert risk == pytest.approx(gated_floor.rescaled_risk(1.5, 5, 20, 3), rel=1e-12)
        assert alpha.sum() == 1
    for variance, trained in ((0.01, [1.0, 9.0]), (0.1, [1.0, 2.0]), (40.0, [1.0, 9.0])):
        risk, _ = gated_floor.simplex_gate(variance, trained, 5, 20, 4)
        reach = np.linspace(variance / max(trained), variance / min(trained), 200)
        assert (gated_floor.rescaled_risk(reach, 5, 20, 4) >= risk * (1 - 1e-9)).all()


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
@pytest.mark.parametrize("experts", [1, 2, 3])
@pytest.mark.parametrize("variance", [0.5, 2.0, 3.5])
def test_output_gates_against_least_squares(variance, experts, layers):
    """Gates are the least-squares solution on a square root of the moments, and the risk is that of the mix.

    As many experts as layers reach the floor and fewer do not, but at a variance of their own, where one gate is 1 and
    the others 0. Planted: s_h / s for s / s_h, and the constant left out, are seen.
    """
    d, n = 5, 20
    trained = TRAINED[:experts]
    risk, alpha = gated_floor.output_gate(variance, trained, d, n, layers)
    p, M = polynomial_floor.optimal_polynomial(d, n, layers), hankel(d, n, layers)
    mixed = np.eye(layers + 1)[0] * (1 - alpha.sum()) + alpha @ [stretched(p, variance / s) for s in trained]
    assert mixed @ M @ mixed == pytest.approx(risk, rel=1e-7)
    floor = polynomial_floor.optimal_risks(d, n, layers)[-1]
    own = variance in trained
    if experts >= layers or own:
        assert risk == pytest.approx(floor, rel=1e-12)
    else:
        assert risk > 1.01 * floor
    if own and experts <= layers:
        np.testing.assert_allclose(alpha, trained == variance, atol=1e-12)
    root = np.linalg.cholesky(M).T
    features = root @ np.array([stretched(p, variance / s) - np.eye(layers + 1)[0] for s in trained]).T
    fitted, *_ = np.linalg.lstsq(features, -root[:, 0], rcond=None)
    assert ((root[:, 0] + features @ fitted) ** 2).sum() == pytest.approx(risk, rel=1e-7)


def test_output_gates_of_more_experts_than_layers():
    """What is more than the layers, or of the same variance as another, is no help and has a gate of 0."""
    for trained, layers in (([1.0, 2.0, 3.0, 4.0], 2), ([2.0, 2.0, 3.0], 3)):
        risk, alpha = gated_floor.output_gate(0.5, trained, 5, 20, layers)
        kept = np.unique(trained)[:layers]
        assert risk == pytest.approx(gated_floor.output_gate(0.5, kept, 5, 20, layers)[0], rel=1e-12)
        assert (alpha != 0).sum() == len(kept)


@pytest.mark.parametrize("weights", [None, np.array([1.0, 2.0, 5.0])])
def test_a_mixture_of_variances_is_least_squares(weights):
    """The polynomial solves the normal equations of the mixture's moments, to 1e-9; its register has, at each variance,
    the quadratic form there, and the weighted mean of those are the risks of every depth. Planted: s^k without the
    weights, and weights that are not divided by their sum, are seen.
    """
    d, n, layers = 5, 20, 4
    best = gated_floor.least_over_variances(TRAINED, d, n, layers, weights)
    shares = np.ones(3) / 3 if weights is None else weights / weights.sum()
    M = sum(share * hankel(d, n, layers, s) for share, s in zip(shares, TRAINED, strict=True))
    c = np.linalg.solve(M[1:, 1:], -M[1:, 0])
    np.testing.assert_allclose(best.polynomial, [1, *c], rtol=1e-7)
    assert best.risks[-1] == pytest.approx(M[0, 0] + M[0, 1:] @ c, rel=1e-7)
    table = lfom.registers(best.alpha, best.gamma)
    each = np.array([lfom.table_risks(table, d, n, s) for s in TRAINED])
    np.testing.assert_allclose(shares @ each, best.risks, rtol=1e-9)
    for s, risks in zip(TRAINED, each, strict=True):
        assert best.polynomial @ hankel(d, n, layers, s) @ best.polynomial == pytest.approx(risks[-1], rel=1e-7)


def test_a_mixture_of_one_variance_is_that_variance():
    """One variance, or several equal ones, has the floor, and its register with steps divided by the variance."""
    alpha, gamma = polynomial_floor.optimal_registers(5, 20, 4)
    for variances in ([2.5], [2.5, 2.5, 2.5]):
        best = gated_floor.least_over_variances(variances, 5, 20, 4)
        np.testing.assert_allclose(best.risks, polynomial_floor.optimal_risks(5, 20, 4), rtol=1e-12)
        np.testing.assert_allclose(best.alpha * 2.5, alpha, rtol=1e-12)
        np.testing.assert_allclose(best.gamma, gamma, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("n", [2, 3, 20])
def test_the_trace_gate_in_two_dimensions_by_quadrature(n):
    """Of two dimensions the eigenvalues over their mean are 2u and 2(1-u), u in [1/2, 1] of density proportional to
    (u (1-u))^((n-3)/2) (2u-1); moments by adaptive quadrature, normal equations by numpy, to 1e-7.

    Substituted v = (2u-1)^2: a beta law with exponent (n-3)/2 in 1 - v, integrated with its weight. Planted:
    nd (nd+1) .. for nd (nd+2) .. is seen.
    """
    layers = 3
    moments = []
    for k in range(2 * layers + 1):
        weight = {"weight": "alg", "wvar": (0.0, (n - 3) / 2)}
        total, _ = integrate.quad(lambda v: 1.0, 0, 1, **weight)
        value, _ = integrate.quad(lambda v, k=k: (1 + v**0.5) ** k + (1 - v**0.5) ** k, 0, 1, epsabs=1e-12, **weight)
        moments.append(value / total)
    M = linalg.hankel(moments[: layers + 1], moments[layers:])
    best = gated_floor.least_by_trace(2, n, layers)
    for degree in range(1, layers + 1):
        c = np.linalg.solve(M[1 : degree + 1, 1 : degree + 1], -M[1 : degree + 1, 0])
        assert best.risks[degree] == pytest.approx(M[0, 0] + M[0, 1 : degree + 1] @ c, rel=1e-7)
    assert best.polynomial @ M @ best.polynomial == pytest.approx(best.risks[-1], rel=1e-7)
    p = lfom.polynomials(lfom.registers(best.alpha, best.gamma))[-1]
    np.testing.assert_allclose(p, best.polynomial, rtol=1e-9)


def test_the_trace_gate_where_it_is_exact():
    """One number, or one example, is solved by a layer: the eigenvalue that is not 0 is the trace. What follows is 0.

    The other d - 1 directions of one example stay as they are.
    """
    for d, n, left in ((1, 4, 0.0), (3, 1, 2.0)):
        best = gated_floor.least_by_trace(d, n, 3)
        assert best.risks.tolist() == [d, left, left, left]
        assert best.alpha.tolist() == [1 / d, 0, 0]
        assert best.polynomial.tolist() == [1, -1 / d, 0, 0]


def bracketed(K, start, layers):
    """Least-squares fits of the powers of K times the start, on all prompts and across halves of even and odd ones."""
    powers = [start]
    for _ in range(layers):
        powers.append(K @ powers[-1])

    def judged(fit, judge, degree):
        error = powers[0][judge]
        if degree:
            design = np.stack([power[fit].ravel() for power in powers[1 : degree + 1]], axis=1)
            c = np.linalg.lstsq(design, -powers[0][fit].ravel(), rcond=None)[0]
            error = error + sum(u * power[judge] for u, power in zip(c, powers[1:], strict=False))
        return (error**2).sum((1, 2))

    everything, even, odd = slice(None), slice(0, None, 2), slice(1, None, 2)
    own, crossed = np.empty((2, len(K), layers + 1))
    for degree in range(layers + 1):
        own[:, degree] = judged(everything, everything, degree)
        crossed[even, degree] = judged(odd, even, degree)
        crossed[odd, degree] = judged(even, odd, degree)
    return own, crossed


def definite(d, seed, *batch):
    root = np.random.default_rng(seed).normal(size=(*batch, d, d))
    return root @ root.swapaxes(-1, -2) / d + 0.2 * np.eye(d)


@pytest.mark.parametrize("kind", ["white", "scaled", "one law", "each its own", "weights of their own", "singular"])
def test_a_sample_is_bracketed_by_least_squares(kind):
    """Both ends, their standard errors and the largest prompt's share are those of fits of plain powers, to 1e-9.

    White prompts with a scale and without; one law for all prompts with A; a law for each; weights that are not the
    inverse of the inputs; weights that never point in a direction. Planted: S_w for its root, the scale squared, halves
    that judge themselves are seen.
    """
    d, layers, batch = 3, 3, 21
    H, rng = wishart(d, 8, batch, 3), np.random.default_rng(1)
    scale = None if kind == "white" else rng.uniform(0.5, 2, size=batch)
    read = np.ones(batch) if scale is None else scale
    A = rng.normal(size=(d, d)) if kind == "one law" else None
    S_x = {"one law": definite(d, 4), "each its own": definite(d, 4, batch)}.get(kind)
    S_w = {"each its own": definite(d, 5, batch), "weights of their own": definite(d, 5)}.get(kind)
    if kind == "singular":
        S_w = np.diag([1.0, 2.0, 0.0])
    bracket = gated_floor.least_by_sample(H, layers, scale, S_x, S_w, A)
    inputs = np.eye(d) if S_x is None else S_x
    factor = np.linalg.cholesky(inputs).swapaxes(-1, -2)  # S_x = factor' factor: any root will do
    weights = np.linalg.inv(inputs) if S_w is None else S_w
    root = weights**0.5 if kind == "singular" else np.linalg.cholesky(weights)
    K = factor @ (np.eye(d) if A is None else A) @ (H / read[:, None, None]) @ np.linalg.inv(factor)
    own, crossed = bracketed(K, np.broadcast_to(factor @ root, H.shape), layers)
    ends = (own, bracket.lower, bracket.lower_error), (crossed, bracket.upper, bracket.upper_error)
    for values, mean, error in ends:
        np.testing.assert_allclose(mean, values.mean(0), rtol=1e-9)
        np.testing.assert_allclose(error, values.std(0, ddof=1) / batch**0.5, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(bracket.share, crossed.max(0) / crossed.sum(0), rtol=1e-9)


def test_what_rounding_leaves_unsymmetric_is_averaged():
    """Curvatures of float32 are symmetric to 1e-7: the risks are those of their symmetric parts, rtol 1e-12."""
    H = wishart(3, 8, 20, 4)
    uneven = H + 1e-7 * np.triu(np.ones((3, 3)), 1) - 1e-7 * np.tril(np.ones((3, 3)), -1)
    for of in (lambda H: gated_floor.least_by_sample(H, 2).lower, lambda H: gated_floor.least_by_spectrum(H, 2)[0]):
        np.testing.assert_allclose(of(uneven), of(H), rtol=1e-12)


def test_a_polynomial_for_each_prompt():
    """`least_by_spectrum` is the mean of each prompt's least squares, to 1e-9; it is 0 from d layers on, and d - n with
    fewer examples; equal eigenvalues are solved at once. Planted: one basis for all prompts is seen.
    """
    for d, n, layers in ((4, 9, 3), (3, 2, 1)):
        H = wishart(d, n, 30, 2)
        each = np.zeros((30, layers + 1))
        for i, t in enumerate(np.linalg.eigvalsh(H).clip(min=0)):
            each[i, 0] = d
            for degree in range(1, layers + 1):
                powers = t[:, None] ** np.arange(1, degree + 1)
                each[i, degree] = ((1 - powers @ np.linalg.lstsq(powers, np.ones(d), rcond=None)[0]) ** 2).sum()
        risks, error = gated_floor.least_by_spectrum(H, layers)
        np.testing.assert_allclose(risks, each.mean(0), rtol=1e-9)
        np.testing.assert_allclose(error, each.std(0, ddof=1) / 30**0.5, rtol=1e-9, atol=1e-15)
    risks, _ = gated_floor.least_by_spectrum(wishart(4, 9, 30, 2), 6)
    np.testing.assert_allclose(risks[4:], 0, atol=1e-12)
    risks, _ = gated_floor.least_by_spectrum(wishart(3, 2, 30, 2), 4)
    np.testing.assert_allclose(risks[2:], 1, rtol=1e-9)
    risks, _ = gated_floor.least_by_spectrum(np.stack([2.5 * np.eye(3), np.zeros((3, 3))]), 2)
    np.testing.assert_allclose(risks, [3, 1.5, 1.5], rtol=1e-12)


def by_quadrature(n):
    """Eigenvalues of W/n, W ~ Wishart_2(I, n) with odd n >= 3, and weights exact for polynomials of degree 30.

    Density proportional to (a b)^((n-3)/2) (a - b) e^{-(a+b)/2}, a = b + z: a polynomial times exponentials in b and z.
    """
    nodes, weights = np.polynomial.laguerre.laggauss(24)
    b, z = nodes[:, None], 2 * nodes[None]  # e^{-(2b+z)/2}
    density = weights[:, None] * weights[None] * ((b + z) * b) ** ((n - 3) // 2) * z
    return np.stack([b + z, b + 0 * z]).reshape(2, -1) / n, (density / density.sum()).ravel()


@pytest.mark.parametrize("n", [5, 11])
def test_excess_constants_in_two_dimensions_by_quadrature(n):
    """Expectations over prompts by Gauss and Laguerre, over x_q w* by enumeration of a law with its moments: 0 or -+3,
    with a mean square of 1 and a fourth moment of 9. To 1e-6, three layers.

    Planted: 8 for 6, 1 for 2, and G of one degree less are seen.
    """
    (first, second), weight = by_quadrature(n)
    values = [(0.0, 8 / 9), (3.0, 1 / 18), (-3.0, 1 / 18)]
    for layers in (1, 2, 3):
        p = polynomial_floor.optimal_polynomial(2, n, layers)
        t = np.stack([first, second])
        powers, error = t ** np.arange(1, layers + 1)[:, None, None], polynomial.polyval(t, p)
        G = np.einsum("jin,kin,n->jk", powers, powers, weight)
        dots = np.einsum("jin,in->jn", powers, error)
        labels = 0
        for (u, a), (v, b) in itertools.product(values, values):
            phi, r = powers[:, 0] * u + powers[:, 1] * v, error[0] * u + error[1] * v
            labels = labels + a * b * np.einsum("jn,kn,n->jk", phi, phi, r**2 * weight)
        expected = [np.trace(np.linalg.solve(G, S)) for S in (labels, np.einsum("jn,kn,n->jk", dots, dots, weight))]
        found = gated_floor.excess_constants(2, n, 3)
        assert [each[layers - 1] for each in found] == pytest.approx(expected, rel=1e-6)


def test_excess_constants_in_one_dimension():
    """Of one dimension both are chi-square's: the labels' is 9 times the prompts'. In fractions, one and two layers."""
    n = 6
    m = [Fraction(prod(n + 2 * i for i in range(k)), n**k) for k in range(9)]
    labels, prompts = gated_floor.excess_constants(1, n, 2)
    np.testing.assert_allclose(labels, 9 * prompts, rtol=1e-14)
    a = m[1] / m[2]  # p = 1 - a t
    assert prompts[0] == pytest.approx(float((m[2] - 2 * a * m[3] + a**2 * m[4]) / m[2]), rel=1e-14)


# Properties


@given(st.integers(1, 6), st.integers(1, 30), st.integers(1, 4), st.floats(0.1, 10))
@settings(max_examples=12)
def test_a_gate_never_undercuts_the_floor(d, n, layers, variance):
    """No gate on heads of shared coefficients is below the floor, nor above the nearest head; one that reads the trace
    is no worse than the floor, and one polynomial for two variances no better. All to 1e-9.
    """
    floor = polynomial_floor.optimal_risks(d, n, layers)
    simplex, _ = gated_floor.simplex_gate(variance, [1.0, 3.0], d, n, layers)
    outputs, _ = gated_floor.output_gate(variance, [1.0, 3.0], d, n, layers)
    nearest = gated_floor.rescaled_risk(variance / np.array([1.0, 3.0]), d, n, layers).min()
    assert floor[-1] <= simplex * (1 + 1e-9)
    assert simplex <= nearest * (1 + 1e-9)
    assert floor[-1] <= outputs * (1 + 1e-9)
    assert outputs <= nearest * (1 + 1e-9)
    assert (gated_floor.least_by_trace(d, n, layers).risks <= floor * (1 + 1e-12)).all()
    assert (gated_floor.least_over_variances([1.0, variance], d, n, layers).risks >= floor * (1 - 1e-12)).all()


@given(st.integers(0, 2**20))
@settings(max_examples=5)
def test_a_scale_takes_the_units_away(seed):
    """Prompts of any variances with scales to match have one bracket, the same as without either; and the spectrum's
    polynomials are no worse than the shared ones.
    """
    H = wishart(3, 7, 16, seed)
    units = np.random.default_rng(seed).uniform(0.1, 10, size=16)
    plain, scaled = gated_floor.least_by_sample(H, 3), gated_floor.least_by_sample(H * units[:, None, None], 3, units)
    for one, other in zip(vars(plain).values(), vars(scaled).values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-12)
    assert (gated_floor.least_by_spectrum(H, 3)[0] <= plain.lower * (1 + 1e-9)).all()


# Statistics


@pytest.mark.statistical(3)
def test_the_trace_gate_does_what_it_says():
    """Its polynomial of t / (tr H / d) on 40,000 prompts of variances .5 to 4 has its risk, at each of three layers.

    d = 3, n = 8. Standard errors are below 1 %: 7 % are seen.
    """
    H = wishart(3, 8, 40_000, 6, rng=chance.rng) * chance.rng(7).uniform(0.5, 4, size=(40_000, 1, 1))
    t = np.linalg.eigvalsh(H)
    t = t / t.mean(1, keepdims=True)
    for layers in (1, 2, 3):
        best = gated_floor.least_by_trace(3, 8, layers)
        values = (polynomial.polyval(t, best.polynomial) ** 2).sum(1)
        chance.assert_mean(values, best.risks[-1], error=0.01 * best.risks[-1])


@pytest.mark.statistical
@pytest.mark.usefixtures("as_installed")
def test_a_bracket_is_around_the_floor():
    """On each of 800 samples of 16 prompts the lower end is below what the best polynomial of the law has there, which
    is the floor in the mean; the upper end is above it in seven of ten.

    Gates that read the trace, d = 3, n = 8, two layers. Planted: one fit for both ends is seen.
    """
    above, p = np.empty(800), gated_floor.least_by_trace(3, 8, 2).polynomial
    for seed in range(800):
        H = wishart(3, 8, 16, 1000 + seed, rng=chance.rng)
        scale = np.trace(H, axis1=1, axis2=2) / 3
        bracket = gated_floor.least_by_sample(H, 2, scale)
        there = (polynomial.polyval(np.linalg.eigvalsh(H) / scale[:, None], p) ** 2).sum(1).mean()
        assert bracket.lower[2] < there
        above[seed] = bracket.upper[2] - there
    chance.assert_mostly(above > 0, by=10)


@pytest.mark.one_draw("tails, as its docstring says")
def test_a_mixture_is_bracketed_at_four_and_five_layers():
    """30 samples of 2,000 prompts of a mixture with means, scalar inputs, whose floor is known in fractions.

    The exact polynomial's risk is the floor in the mean, |z| < 3 over the 30 means; on each sample the lower end is
    below it, and in the mean the floor is between the ends. Single samples have tails: the z of a bracket by its own
    error goes to -5.6 at five layers, so that means of samples are asked, which have tails too (the draws are fixed).
    Planted: the inverse of S_x for S_w is seen.
    """
    task = GaussianComponents(1, 20, [2.5, 0, -1], [0.5, 1, 2], [0.2, 0.3, 0.5])
    best = [gaussian_mixtures.least_over_components(task, layers) for layers in (4, 5)]
    found = np.empty((30, 3, 2))
    for seed in range(30):
        prompt = task.sample(2_000, generator=make_generator("mixture floor", seed=seed), dtype=torch.float64)
        H, m = hessians(prompt).numpy(), prompt.component.numpy()
        bracket = gated_floor.least_by_sample(H, 5, None, task.S_x[m], task.S_w[m])
        size = (task.S_x * task.S_w)[m, 0, 0]
        there = [(size * polynomial.polyval(H[:, 0, 0], each.polynomial) ** 2).mean() for each in best]
        found[seed] = bracket.lower[4:], there, bracket.upper[4:]
        assert (bracket.lower[4:] < there).all()
    floor, mean = np.array([each.risks[-1] for each in best]), found.mean(0)
    assert (abs(mean[1] - floor) < 3 * found[:, 1].std(0, ddof=1) / 30**0.5).all()
    assert (mean[0] < floor).all()
    assert (floor < mean[2]).all()


@pytest.mark.statistical
def test_fits_exceed_the_floor_by_the_constant():
    """400 fits of 3,000 prompts' labels, and of their risks: the mean excess is C/N.

    d = 2, n = 40, one layer, whose fit is a single number that is nearly normal: the excess of 400 is chi-square with
    400 degrees of freedom, so that a constant twice as large is seen, and the one of the other kind, ten times off.
    """
    d, n, N, fits = 2, 40, 3000, 400
    rng, M = chance.rng(8), hankel(d, n, 1)
    floor, constants = polynomial_floor.optimal_risks(d, n, 1), gated_floor.excess_constants(d, n, 1)
    excess = np.empty((2, fits))
    for i in range(fits):
        a, c = rng.chisquare(n, size=N), rng.chisquare(n - 1, size=N)  # Bartlett's factors
        z = rng.normal(size=N)
        trace, root = (a + c + z**2) / n, np.sqrt((a + z**2 - c) ** 2 + 4 * c * z**2) / n
        t = np.stack([trace + root, trace - root]) / 2
        labels = rng.normal(size=(2, N)) * rng.normal(size=(2, N))
        features = (t * labels).sum(0)
        for kind, step in enumerate(((features @ labels.sum(0)) / (features @ features), t.sum() / (t**2).sum())):
            excess[kind, i] = np.array([1, -step]) @ M @ [1, -step] - floor[1]
    ratio = excess * N / np.array(constants)
    chance.assert_within(ratio.sum(1), stats.chi2(fits))
    assert constants[0] > 10 * constants[1]


def test_a_row_that_is_left_free_is_zero():
    """Of a singular system with one column the dependent row of the solution is 0, and has that column."""
    one, three = Fraction(1), Fraction(3)
    assert _recursion.solve_exactly([[one, one], [one, one]], [[three], [three]]) == [[three], [Fraction()]]
