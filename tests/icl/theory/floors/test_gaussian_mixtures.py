"""Floors of mixtures of scalar inputs: by quadrature of the densities, by grids, by samples."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import minimize

from icl.profile import make_generator
from icl.tasks.components import GaussianComponents
from icl.theory.floors import gaussian_mixtures
from icl.theory.lfom import polynomial_floor

PAPER = GaussianComponents(1, 20, [2.5, 0, -1], [0.5, 1, 2], [0.2, 0.3, 0.5])
TOKENS = GaussianComponents(1, 20, [2.5, 0, -1], [0.5, 1, 2], [0.2, 0.3, 0.5], per_token=True)


@pytest.mark.parametrize("task", [PAPER, TOKENS, PAPER.only(0)])
def test_moments_of_the_curvature(task):
    """E h^k by quadrature of noncentral chi-square densities, k to 6, 1e-9; by token, of a multinomial mixture of three
    inputs.

    Planted: cumulants of the sum that are not n times those of one are seen.
    """
    if task.per_token:
        small = GaussianComponents(1, 3, [2.5, 0, -1], [0.5, 1, 2], [0.2, 0.3, 0.5], per_token=True)
        single = [sum(s * stats.norm(m[0], v[0, 0] ** 0.5).expect(lambda x, k=k: x ** (2 * k)) for s, m, v in zip(
            small.shares, small.means, small.covariances, strict=True)) for k in range(4)]  # fmt: skip
        third = (3 * single[3] + 18 * single[2] * single[1] + 6 * single[1] ** 3) / 27
        second = (3 * single[2] + 6 * single[1] ** 2) / 9
        np.testing.assert_allclose(
            gaussian_mixtures.curvature_moments(small, 3), [[1, single[1], second, third]] * 3, rtol=1e-9
        )
        return
    found = gaussian_mixtures.curvature_moments(task, 6)
    for m in range(task.count):
        mean, v = task.means[m, 0], task.covariances[m, 0, 0]
        # The central law has its own formula: scipy's noncentral one is for a parameter > 0.
        law = stats.ncx2(task.n, task.n * mean**2 / v) if mean else stats.chi2(task.n)
        h, weight = np.polynomial.legendre.leggauss(400)
        h, weight = 500 * (1 + h), 500 * weight * law.pdf(500 * (1 + h))
        expected = [weight @ h**k * (v / task.n) ** k for k in range(7)]
        np.testing.assert_allclose(found[m], expected, rtol=1e-9)


def test_a_component_about_zero_is_the_polynomial_floor():
    """One component without a mean: risks and register of `polynomial_floor` at d = 1, any variance; to 1e-12."""
    task = GaussianComponents(1, 7, [0.0], [3.0])
    best = gaussian_mixtures.least_over_components(task, 4)
    np.testing.assert_allclose(best.risks, polynomial_floor.optimal_risks(1, 7, 4), rtol=1e-12)
    alpha, gamma = polynomial_floor.optimal_registers(1, 7, 4)
    np.testing.assert_allclose(best.alpha * 3, alpha, rtol=1e-12)
    np.testing.assert_allclose(best.gamma, gamma, rtol=1e-12)
    shared, _ = gaussian_mixtures.least_shared_over_components(task, 3)
    assert shared == pytest.approx(polynomial_floor.shared_floor(1, 7, 3)[0][-1], rel=1e-7)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_floor_by_quadrature(layers):
    """Least squares at 40,000 equal steps of the noncentral chi-square densities; to 1e-7. Answering 0 to 1e-12.

    Planted: 1/v for S_w is seen.
    """
    h = np.linspace(1e-6, 40, 40_001)
    weight, zero = np.zeros_like(h), 0.0
    for m in range(3):
        mean, v, n = PAPER.means[m, 0], PAPER.covariances[m, 0, 0], PAPER.n
        size = PAPER.shares[m] * (v + mean**2) * (1 / v + mean**2)
        law = stats.ncx2(n, n * mean**2 / v, scale=v / n) if mean else stats.chi2(n, scale=v / n)
        weight, zero = weight + size * law.pdf(h), zero + size
    root = np.sqrt(weight * (h[1] - h[0]))
    powers = h[:, None] ** np.arange(1, layers + 1)
    c = np.linalg.lstsq(root[:, None] * powers, -root, rcond=None)[0]
    best = gaussian_mixtures.least_over_components(PAPER, layers)
    assert best.risks[0] == pytest.approx(zero, rel=1e-12)
    assert best.risks[-1] == pytest.approx(((root * (1 + powers @ c)) ** 2).sum(), rel=1e-7)
    np.testing.assert_allclose(best.polynomial[1:], c, rtol=1e-5)


def test_nodes_are_exact_for_polynomials():
    """E h^k by the nodes are the exact moments, k to 10; and E of the mean; to 1e-9. Planted: n - 1 for n - 3."""
    nodes = gaussian_mixtures.input_nodes(PAPER, 24)
    powers = (nodes.weight[..., None] * nodes.h[..., None] ** np.arange(11)).sum(1)
    np.testing.assert_allclose(powers, gaussian_mixtures.curvature_moments(PAPER, 10), rtol=1e-9)
    np.testing.assert_allclose((nodes.weight * nodes.mean).sum(1), PAPER.means[:, 0], rtol=1e-9, atol=1e-12)


def test_the_posterior_by_two_numbers():
    """That of the task, from all inputs; a prompt's h and mean for nodes; to 1e-9."""
    X = PAPER.sample(30, generator=make_generator("two numbers"), dtype=torch.float64).x[:, :-1]
    h, mean = X.square().mean((1, 2)).numpy(), X.mean((1, 2)).numpy()
    nodes = gaussian_mixtures.InputNodes(h[None], mean[None], np.ones((1, 30)) / 30)
    np.testing.assert_allclose(
        gaussian_mixtures.component_posterior(PAPER, nodes)[0], PAPER.posterior(X).numpy(), rtol=1e-9, atol=1e-15
    )


@pytest.mark.parametrize("task", [PAPER, TOKENS])
def test_shared_weights_are_a_heavy_ball(task):
    """The risk returned is that of its c, by the recursion on nodes of a grid search's neighbour: nothing nearby, and
    no start of Nelder and Mead's, is lower. Three layers; 1e-6. And it is not below the floor.
    """
    layers = 3
    risk, c = gaussian_mixtures.least_shared_over_components(task, layers)
    moments = gaussian_mixtures.curvature_moments(task, 2 * layers)
    total = (task.shares * task.S_x[:, 0, 0] * task.S_w[:, 0, 0]) @ moments

    def of(c):
        now = before = np.eye(layers + 1)[0]
        for step in c:
            before, now = now, 2 * now - before - step * np.append(0, now[:-1])
        return np.convolve(now, now) @ total

    assert of(c) == pytest.approx(risk, rel=1e-9)
    assert risk >= gaussian_mixtures.least_over_components(task, layers).risks[-1]
    rng = np.random.default_rng(0)
    for _ in range(6):
        end = minimize(of, c * rng.normal(1, 1, size=layers), method="Nelder-Mead", options={"maxiter": 2000})
        assert end.fun >= risk * (1 - 1e-6)


def test_moments_of_the_lowest_and_of_too_high_a_degree():
    """E h^0 is 1, and degree 0 raised an IndexError; one beyond float64 is refused by the degree, no OverflowError."""
    for task in (PAPER, TOKENS):
        np.testing.assert_array_equal(gaussian_mixtures.curvature_moments(task, 0), np.ones((3, 1)))
    small = GaussianComponents(1, 2, [0.5], [1.0], [1.0])
    assert np.isfinite(gaussian_mixtures.curvature_moments(small, 120)).all()
    with pytest.raises(ValueError, match="degree must leave moments that float64 holds, got 300"):
        gaussian_mixtures.curvature_moments(small, 300)
