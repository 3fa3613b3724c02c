"""The exact floors of first-order methods against prompts that are drawn."""

import numpy as np
import pytest
from scipy import stats

from icl.theory import lfom, polynomial_floor

#: |z| that a standard normal number passes with probability 1e-9.
LIMIT = stats.norm.isf(1e-9 / 2)
D = np.array([1.0, 1.0, 0.5, 0.25, 1.0])


def curvatures(d, n, batch, seed, scales=1.0):
    X = np.random.default_rng(seed).normal(size=(batch, d, n)) * np.broadcast_to(scales, (d,))[:, None]
    return X @ X.swapaxes(1, 2) / n


def test_fitted_registers_approach_the_optimal():
    """The register fitted to 1000 prompts, averaged over 200 such fits, is the optimal one: d = 5, n = 20, four
    layers, inputs of covariance diag(1, 1, 1/2, 1/4, 1).

    A fit's bias falls as 1/prompts: twice the fit less the mean of its halves' is free of the first order. Each of the
    seven numbers is within the standard errors that t with 199 degrees of freedom passes with probability 1e-9. It
    detects shifts of 1 % in the first layers' and 6 % in the last's.
    """
    limit = stats.t.isf(1e-9 / 2, 199)
    alpha, gamma = polynomial_floor.optimal_registers(5, 20, 4)
    fits = []
    for seed in range(200):
        H = curvatures(5, 20, 1000, seed, D**0.5)
        whole, *parts = (
            np.concatenate(polynomial_floor.fitted_registers(h, np.diag(D), 4)) for h in (H, H[:500], H[500:])
        )
        fits.append(2 * whole - np.mean(parts, axis=0))
    means, se = np.mean(fits, axis=0), np.std(fits, axis=0, ddof=1) / 200**0.5
    expected = np.concatenate([alpha, gamma])
    counts = np.arange(8) != 4  # gamma_0 is 0 in every fit
    assert (np.abs(means - expected)[counts] <= limit * se[counts]).all()
    assert (se[counts] <= 0.008 * expected[counts]).all()
    assert means[4] == 0


@pytest.mark.parametrize(("d", "n"), [(5, 20), (3, 2)])
def test_floor_of_a_sample_is_that_of_the_law(d, n):
    """`floor` of 100,000 prompts with A = Sigma^-1 is `optimal_risks`, at each of three layers within LIMIT of its own
    standard errors: 1e-9 each, and what the fit adds is two orders of size below them. It detects 5 %.
    """
    scales = np.linspace(0.5, 2, d)
    H = curvatures(d, n, 100_000, 1, scales)
    risks, se = polynomial_floor.floor(H, np.diag(scales**2), 3, np.diag(scales**-2.0))
    expected = polynomial_floor.optimal_risks(d, n, 3)
    assert risks[0] == expected[0]
    assert se[0] == 0
    assert (np.abs(risks - expected)[1:] <= LIMIT * se[1:]).all()
    assert (se[1:] <= 0.01 * expected[1:]).all()


def test_risks_of_tables_against_prompts():
    """`risks` of gradient descent, the heavy ball and Nesterov's method is the mean of ||p(H)||_F^2 over 40,000 prompts
    run layer by layer, at each of three layers within LIMIT standard errors (1e-9 each). It detects 5 %.
    """
    H = curvatures(5, 20, 40_000, 2)
    for Gamma in (
        lfom.gradient_descent_table(0.7, 3),
        lfom.momentum_table(0.5, 0.3, 3),
        lfom.nesterov_table(0.4, 0.5, 3),
    ):
        errors = [np.broadcast_to(np.eye(5), H.shape)]
        for row in Gamma:
            errors.append(errors[-1] - sum(g * H @ error for g, error in zip(row, errors, strict=False)))
        squares = np.array([(error**2).sum((1, 2)) for error in errors[1:]])
        expected, se = lfom.table_risks(Gamma, 5, 20)[1:], squares.std(1, ddof=1) / 200
        assert (np.abs(squares.mean(1) - expected) <= LIMIT * se).all()
        assert (se <= 0.01 * expected).all()
