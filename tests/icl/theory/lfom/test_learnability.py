"""Bounds for N prompts: by grids over the cover, by drawn prompts, and by sums over quadratures where one is small.

Tolerances. What is computed in fractions is compared at 1e-9 with float64 quadratures; minima over the cover's radius
at 1e-6 with a grid.
"""

import itertools
import math

import chance
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl.theory.lfom import gated_floor, learnability, polynomial_floor


@pytest.mark.parametrize(("N", "p", "radius", "largest", "slope"), [(10, 1, 1.0, 1.0, 2.0), (1e9, 4, 2.2, 1e5, 1e4)])
def test_the_bound_is_the_least_over_covers(N, p, radius, largest, slope):
    """On a grid of 200,001 radii of the cover, the formula written out. Planted: delta for delta/2 is seen."""
    s = radius * np.exp(np.linspace(-40, 5, 200_001))
    union = p * np.log(1 + 2 * radius / s) + math.log(2 / 0.1)
    values = 2 * (largest * np.sqrt(union / 2 / N) + 2 * slope * s)
    bound = float(learnability.covering_excess(N, p, radius, largest, slope, 0.1))
    assert bound <= values.min() * (1 + 1e-12)
    assert bound == pytest.approx(values.min(), rel=1e-6)


def test_of_one_method_it_is_hoeffdings():
    """A ball of no size needs no cover: 2 largest sqrt(ln(2/delta) / 2N), and excesses fall as 1/sqrt(N)."""
    N = np.array([[1.0, 100.0], [1e4, 1e6]])
    bound = learnability.covering_excess(N, 1, 1e-12, 3.0, 1e-6, 0.05)
    np.testing.assert_allclose(bound, 6 * np.sqrt(math.log(40) / 2 / N), rtol=1e-6)


@given(st.floats(1e-3, 1e3), st.integers(1, 50), st.floats(0.1, 10), st.floats(0.1, 1e6), st.floats(0.1, 1e6))
@settings(max_examples=30)
def test_prompts_needed_are_the_bounds_inverse(excess, p, radius, largest, slope):
    """At that many prompts the bound is the excess; where one prompt is enough, it is 1."""
    N = learnability.prompts_needed(excess, p, radius, largest, slope)
    bound = float(learnability.covering_excess(N, p, radius, largest, slope))
    assert bound <= excess * (1 + 1e-9)
    assert N == 1 or bound == pytest.approx(excess, rel=1e-9)


def test_the_bound_holds_where_its_conditions_do():
    """Losses (x - u)^2 of signs x with mean 0.2 over |u| <= 1: 2,000 samples of 50, of which none exceeds it.

    At delta = .05 it may be exceeded by 5 %; the bound is loose, and 1 in 1e9 would be a surprise.
    """
    rng, N = np.random.default_rng(0), 50
    means = np.where(rng.random((2000, N)) < 0.6, 1.0, -1.0).mean(1)
    excess = (means - 0.2) ** 2
    assert excess.max() < learnability.covering_excess(N, 1, 1.0, 4.0, 4.0)


def test_the_ball_is_of_the_risks_it_says():
    """floor + rho^2 is d, or a multiple of the floor, at each number of layers."""
    floor = polynomial_floor.optimal_risks(5, 20, 4)[1:]
    np.testing.assert_allclose(floor + learnability.ball(5, 20, 4) ** 2, 5, rtol=1e-12)
    np.testing.assert_allclose(floor + learnability.ball(5, 20, 4, 3) ** 2, 3 * floor, rtol=1e-12)


def drawn(d, n, batch, seed):
    """H, query, weights, and x_q' H^k w* for k = 0 .. 3; n >= d, H from the triangle that inputs are times a rotation
    [Bartlett 1933].
    """
    rng = chance.rng(seed)
    L = rng.normal(size=(batch, d, d)) * np.tri(d, k=-1)
    L[:, range(d), range(d)] = np.sqrt(rng.chisquare(n - np.arange(d), size=(batch, d)))
    H = L @ L.swapaxes(1, 2) / n
    x, w = rng.normal(size=(2, batch, d))
    powers = [w]
    for _ in range(3):
        powers.append((H @ powers[-1][..., None])[..., 0])
    return H, x, w, np.stack([(x * v).sum(1) for v in powers], axis=1)


@pytest.mark.parametrize("times", [None, 4.0])
def test_the_worst_loss_of_the_ball_is_reached(times):
    """No method on the ball's surface, of 4,000 drawn ones, is worse on a prompt; the one along psi is as bad.

    d = 2, two layers; methods as polynomials applied to matrices. Planted: a ball of radius rho^2 is seen.
    """
    d, n, L = 2, 9, 2
    H, x, w, features = drawn(d, n, 5, 1)
    loss, worst, slope = learnability.worst_losses(features[:, : L + 1], d, n, times)
    moments = polynomial_floor.wishart_moments(d, n, 2 * L)
    G = np.array([[moments[j + k] for k in (1, 2)] for j in (1, 2)])
    best, rho = polynomial_floor.optimal_polynomial(d, n, L), learnability.ball(d, n, L, times)[-1]
    angles = np.linspace(0, 2 * np.pi, 4001)
    # Steps c with c'Gc = rho^2.
    steps = rho * np.linalg.solve(np.linalg.cholesky(G).T, np.stack([np.cos(angles), np.sin(angles)]))
    for prompt in range(5):
        powers = [x[prompt] @ np.linalg.matrix_power(H[prompt], k) @ w[prompt] for k in range(3)]
        errors = np.dot(powers, best) + np.dot(powers[1:], steps)
        assert loss[prompt] == pytest.approx(np.dot(powers, best) ** 2, rel=1e-9)
        assert (errors**2).max() <= worst[prompt] * (1 + 1e-12)
        assert (errors**2).max() == pytest.approx(worst[prompt], rel=1e-5)
        # The loss along the surface, per length in u, changes by no more than the slope.
        around = np.abs(np.diff(errors**2)).max() / (rho * (angles[1] - angles[0]))
        assert around <= slope[prompt]


@pytest.mark.statistical(2)
def test_its_mean_is_below_the_bound():
    """100,000 prompts, d = 5, n = 20, one and two layers: below, and within 25 %, by standard errors below 2.5 %."""
    features = drawn(5, 20, 100_000, 2)[-1]
    for layers in (1, 2):
        worst = learnability.worst_losses(features[:, : layers + 1], 5, 20)[1]
        bound = learnability.mean_worst_loss(5, 20, layers)[-1]
        chance.assert_mean(worst, np.clip(worst.mean(), 0.75 * bound, bound), error=0.025 * bound)


def quadrature(nodes):
    x, weights = np.polynomial.hermite_e.hermegauss(nodes)
    return x, weights / weights.sum()


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_moments_by_quadrature(layers):
    """d = 1, n = 2: H = (a^2 + b^2) / 2, a query and a weight, all normal: a product of Gauss quadratures is exact.

    Planted: the weight 6 of the last term at 5 is seen.
    """
    nodes, weights = quadrature(4 * layers + 6)
    few, few_weights = quadrature(4)
    t, x, w = np.meshgrid((nodes[:, None] ** 2 + nodes**2).ravel() / 2, few, few, indexing="ij")
    mass = np.einsum("i,j,k->ijk", np.outer(weights, weights).ravel(), few_weights, few_weights).ravel()
    z, t = (x * w).ravel(), t.ravel()
    powers = np.stack([z * t**k for k in range(layers + 1)])
    r = polynomial_floor.optimal_polynomial(1, 2, layers) @ powers
    G = (powers[1:] * mass) @ powers[1:].T
    lengths = np.einsum("kb,kb->b", powers[1:], np.linalg.solve(G, powers[1:]))
    floor = mass @ r**2
    rho = math.sqrt(1 - floor)
    wanted = 2 * (
        math.sqrt(mass @ r**4 - floor**2)
        + 2 * rho * math.sqrt(mass @ (r**2 * lengths))
        + rho**2 * math.sqrt(mass @ lengths**2 - layers)
    )
    assert learnability.moment_constants(1, 2, layers)[-1] == pytest.approx(wanted, rel=1e-8)


def test_the_moments_bound_holds_for_gaussian_prompts():
    """400 fits of 200 prompts' labels, one layer, d = 5, n = 20: the excess exceeds K / sqrt(N delta) in none.

    With delta = .05 it may in 20; the bound is a hundred times the mean excess.
    """
    d, n, N = 5, 20, 200
    features = drawn(d, n, 400 * N, 3)[-1]
    target, feature = features[:, :2].T.reshape(2, 400, N)
    steps = (target * feature).sum(1) / (feature**2).sum(1)
    a, least = polynomial_floor.best_single_step(d, n)
    excess = (steps - a) ** 2 * d * (n + d + 1) / n
    bound = learnability.moment_constants(d, n, 1)[0] / math.sqrt(N * 0.05)
    assert excess.max() < bound
    mean = gated_floor.excess_constants(d, n, 1)[0][0] / N
    assert 0.5 * mean < excess.mean() < 2 * mean < bound / 10
    assert least == pytest.approx(polynomial_floor.optimal_risks(d, n, 1)[1], rel=1e-12)


def test_bounds_grow_with_the_ball():
    """Mean worst losses and constants of larger balls are larger, at each depth."""
    for bound in (learnability.mean_worst_loss, learnability.moment_constants, learnability.ball):
        for small, large in itertools.pairwise((1.5, 2.0, 4.0)):
            assert (bound(3, 8, 3, small) < bound(3, 8, 3, large)).all()


@pytest.mark.parametrize("excess", [1e-8, 1e-30, 1e-150])
def test_prompts_for_next_to_no_excess(excess):
    """For each radius s of the cover the number of prompts is a formula; its least over s, on a grid, to 1e-7. The
    search over s ended at e^-60 of the ball's radius, and the one over numbers in an OverflowError.
    """
    p, radius, largest, slope, delta = 3, 2.0, 5.0, 0.7, 0.05
    s = excess / (4 * slope) * np.linspace(1e-4, 0.2, 20_001)
    cover = p * np.log1p(2 * radius / s) + np.log(2 / delta)
    least = (np.log(cover / 2) - 2 * np.log((excess / 2 - 2 * slope * s) / largest)).min()
    found = learnability.prompts_needed(excess, p, radius, largest, slope, delta)
    assert np.log(found) == pytest.approx(least, abs=1e-7)
    with pytest.raises(ValueError, match="excess must leave a number of prompts that float64 holds, got 1e-160"):
        learnability.prompts_needed(1e-160, p, radius, largest, slope)
