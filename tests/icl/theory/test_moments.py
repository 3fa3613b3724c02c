"""D1 .. D4 against their definition."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icl.tasks import DriftingRegression, SmoothDrift, StationaryRegression
from icl.theory import moments


def definition(lam, kernel):
    """(D1, D2, D3, D4) as double sums over the kernel, one term after another, without rounding of the sums."""
    n = len(kernel) - 1
    a = [lam ** (n - i) for i in range(n)]
    D1 = math.fsum(a[i] * kernel[i][n] for i in range(n))
    D2 = math.fsum(a[i] ** 2 * kernel[i][i] for i in range(n))
    D3 = math.fsum(a[i] * a[j] * kernel[i][j] for i in range(n) for j in range(n) if i != j)
    return D1, D2, D3, kernel[n][n]


def drift_kernel(gamma, n, sigma_w, sigma_e):
    """k_ij = gamma^|i-j| k_mm with the geometric sum for k_mm written out."""
    k = [gamma ** (2 * m) * sigma_w**2 + sigma_e**2 * sum(gamma ** (2 * j) for j in range(m)) for m in range(1, n + 2)]
    return [[gamma ** abs(i - j) * k[min(i, j)] for j in range(n + 1)] for i in range(n + 1)]


def values(m):
    return [float(v) for v in (m.D1, m.D2, m.D3, m.D4)]


@pytest.mark.parametrize("n", [1, 2, 5, 40])
@pytest.mark.parametrize("gamma", [0.0, 0.8, 0.95, 1.0, 1.02, 1.25])
def test_recursion_is_the_definition(gamma, n):
    """D1 .. D4 by recursion are the double sums that define them, for lam and gamma on both sides of 1, lam = 0 and n =
    1.

    lam * gamma = 1 and lam = gamma, where the printed forms change their shape, are among them. rtol 1e-12: a chain of
    40 steps of products and sums of positive terms.
    """
    for lam in (0.0, 0.3, 0.8, 0.95, 1.0, 1.1):
        for sigma_w, sigma_e in ((1.0, 0.1), (0.5, 1.3), (0.0, 1.0), (1.0, 0.0)):
            m = moments.recursion(lam, gamma=gamma, n=n, sigma_w=sigma_w, sigma_e=sigma_e)
            expected = definition(lam, drift_kernel(gamma, n, sigma_w, sigma_e))
            np.testing.assert_allclose(values(m), expected, rtol=1e-12)


def test_every_task_has_its_moments():
    """`of` gives the definition's D1 .. D4 for every task: by recursion for the drift, from the kernel for the others.

    rtol 1e-12 of the sums over absolute values, since a smooth drift's kernel has both signs.
    """
    tasks = (
        DriftingRegression(d=2, n=9, gamma=0.9, sigma_w=1.5, sigma_e=0.3),
        StationaryRegression(d=2, n=9),
        SmoothDrift(d=2, n=9, harmonics=2, sigma_w=1.5),
    )
    for task in tasks:
        kernel = task.weight_kernel()
        for lam in (0.0, 0.6, 1.0, 1.1):
            limit = 1e-12 * np.array(definition(lam, np.abs(kernel)))
            assert (
                np.abs(np.subtract(values(moments.task_moments(task, lam)), definition(lam, kernel))) <= limit
            ).all()


def test_any_weights_on_the_past_have_their_moments():
    """`from_kernel` takes any weights on the past, signs included, and leading axes of them.

    Against the definition as matrix products, rtol 1e-9 (the sums' terms have both signs but do not cancel here).
    """
    kernel = np.array(drift_kernel(0.9, 6, 1.0, 0.3))
    weights = np.random.default_rng(1).normal(size=(4, 3, 6))
    m = moments.from_kernel(weights, kernel)
    assert m.D1.shape == m.D2.shape == m.D3.shape == m.D4.shape == (4, 3)
    for index in np.ndindex(4, 3):
        a = weights[index]
        outer = np.outer(a, a) * kernel[:6, :6]
        expected = [a @ kernel[:6, 6], np.trace(outer), outer.sum() - np.trace(outer), kernel[6, 6]]
        np.testing.assert_allclose([v[index] for v in (m.D1, m.D2, m.D3, m.D4)], expected, rtol=1e-9)


def test_arrays_broadcast():
    """Arrays of lam, gamma and the scales broadcast, and each entry is what the scalars give. rtol
    1e-14: one rounding.
    """
    lam, gamma = np.array([[0.0], [0.7], [1.0]]), np.array([0.0, 0.9, 1.0, 1.1])
    sigma_e = np.array([0.1, 0.2, 0.0, 1.0])
    m = moments.recursion(lam, gamma=gamma, n=7, sigma_w=0.5, sigma_e=sigma_e)
    for name in ("D1", "D2", "D3", "D4"):
        table = getattr(m, name)
        assert table.shape == (3, 4)
        for i, j in np.ndindex(3, 4):
            one = moments.recursion(lam[i, 0], gamma=gamma[j], n=7, sigma_w=0.5, sigma_e=sigma_e[j])
            assert getattr(one, name).shape == ()
            np.testing.assert_allclose(table[i, j], getattr(one, name), rtol=1e-14)


@given(st.floats(0, 1.1), st.floats(0, 1.1), st.floats(0, 1.1), st.integers(1, 60), st.floats(0, 2), st.floats(0, 2))
def test_moments_increase_in_the_forgetting_factor(lam, other, gamma, n, sigma_w, sigma_e):
    """D1, D2 and D3 never fall as lam grows: every term is a power of lam with a coefficient that is not negative.

    D4 does not know lam. Slack 1e-12: rounding of 60 steps of positive terms.
    """
    low, high = (
        moments.recursion(value, gamma=gamma, n=n, sigma_w=sigma_w, sigma_e=sigma_e) for value in sorted((lam, other))
    )
    for name in ("D1", "D2", "D3"):
        assert getattr(low, name) <= getattr(high, name) * (1 + 1e-12)
    assert low.D4 == high.D4


@pytest.mark.parametrize("gamma", [0.0, 0.8, 1.0, 1.3])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_relative_moments_have_the_shares_of_the_moments(gamma, n):
    """D1^2 / (D2 D4) and D3 / D2 are the same in both units, for lam on both sides of 1 and of gamma. rtol 1e-11."""
    lam = np.array([0.3, 0.8, 1.0, 1.2, 1.5])
    tasks = [DriftingRegression(2, n, gamma, sigma_w=w, sigma_e=e) for w, e in ((0.7, 0.4), (0.0, 1.5), (1.3, 0.0))]
    for task in [*tasks, SmoothDrift(2, n, 2, 0.7)]:
        own, other = moments.task_moments(task, lam), moments.relative(task, lam)
        if not own.D4.all():  # weights that are gone with the first step
            continue
        np.testing.assert_allclose(other.D1**2 / (other.D2 * other.D4), own.D1**2 / (own.D2 * own.D4), rtol=1e-11)
        np.testing.assert_allclose(other.D3 / other.D2, own.D3 / own.D2, rtol=1e-11, atol=1e-13)
