"""D1 .. D4 against their definition, and the paper's printed forms against them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icl.tasks import DriftingRegression, SmoothDrift, StationaryRegression
from icl.theory import moments, one_layer
from icl.theory.errata import adaptation

ALL = frozenset(adaptation.ADAPTATION)


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


def deviation(name, lam, gamma, n, sigma_w, sigma_e, mend):
    """Relative distance of a printed form from the recursion, of D2's size where D3 is empty (n = 1)."""
    m = moments.recursion(lam, gamma=gamma, n=n, sigma_w=sigma_w, sigma_e=sigma_e)
    options = {"mend": mend} if name in ("D2", "D3") else {}
    lam_too = {} if name == "D4" else {"lam": lam}
    value = getattr(adaptation, name)(**lam_too, gamma=gamma, n=n, sigma_w=sigma_w, sigma_e=sigma_e, **options)
    size = m.D2 if name == "D3" and n == 1 else getattr(m, name)
    return float(abs(value - getattr(m, name)) / size)


@pytest.mark.parametrize("case", ["lam = 1", "lam = gamma", "lam != gamma"])
@pytest.mark.parametrize("name", ["D1", "D2", "D3", "D4"])
def test_printed_forms_once_mended(name, case):
    """With errata 1 to 5 mended, the paper's closed forms of D1 .. D4 are the recursion's, in all three cases.

    rtol 1e-11, for |lam - gamma| >= 0.1: the forms divide by its square and by (1 - gamma)^2, which costs four digits.
    """
    for gamma in (0.3, 0.8, 0.95, 1.05):
        factors = {"lam = 1": [1.0], "lam = gamma": [gamma], "lam != gamma": [0.2, 0.55, 0.7, 1.2]}[case]
        for lam in (factor for factor in factors if case == "lam = gamma" or abs(factor - gamma) >= 0.1 or factor == 1):
            for n in (1, 2, 10, 100):
                for sigma_w, sigma_e in ((1.0, 0.1), (1.0, 1.0), (0.0, 1.0), (1.5, 0.0)):
                    assert deviation(name, lam, gamma, n, sigma_w, sigma_e, ALL) < 1e-11, (lam, gamma, n)


@pytest.mark.parametrize("gamma", [0.5, 2.0, 3.0])
def test_d4_asks_for_no_forgetting_factor(gamma):
    """The printed D4 knows no lam and is right for every gamma but 1, 2 among them. rtol 1e-12."""
    for n in (1, 5, 40):
        expected = moments.recursion(0.5, gamma=gamma, n=n, sigma_w=1.5, sigma_e=0.3).D4
        np.testing.assert_allclose(adaptation.D4(gamma=gamma, n=n, sigma_w=1.5, sigma_e=0.3), expected, rtol=1e-12)


# D1 and D4 have no misprint; in the other forms each is left out in turn, where the forms it concerns are in force.
@pytest.mark.parametrize(
    ("erratum", "name", "lam"), [(1, "D2", 0.9), (2, "D3", 0.7), (3, "D3", 0.7), (4, "D3", 0.7), (5, "D3", 0.7)]
)
def test_each_erratum_tells_printed_from_mended(erratum, name, lam):
    """Mending all errata but one leaves a printed form more than 10 % from the recursion; mending all, less than 1e-11.

    So the comparison sees every one of the errata 1 to 5, at ten billion times its tolerance (gamma = 0.9, n = 10,
    sigma_w = 1, sigma_e = 0.3; lam = 0.9 and 0.7).
    """
    assert deviation(name, lam, 0.9, 10, 1.0, 0.3, ALL) < 1e-11
    assert deviation(name, lam, 0.9, 10, 1.0, 0.3, ALL - {erratum}) > 0.1
    # The other two cases of the same form do not need it.
    for elsewhere in {0.7, 0.9, 1.0} - {lam}:
        assert deviation(name, elsewhere, 0.9, 10, 1.0, 0.3, ALL - {erratum}) < 1e-11


@pytest.mark.parametrize("d", [1, 2, 10])
def test_the_sixth_erratum_tells_printed_from_mended(d):
    """The printed error for Lambda = I, with erratum 6 mended, is (16); as printed it is right for d = 1 alone.

    rtol 1e-11 when mended; as printed more than 5 % off for d > 1 (gamma = 0.9, n = 10, lam = 0.8).
    """
    task = DriftingRegression(d=d, n=10, gamma=0.9, sigma_w=1.0, sigma_e=0.3)
    m, expected = moments.task_moments(task, 0.8), one_layer.training_error(task, lam=0.8)
    assert abs(adaptation.printed_identity_error(m, d=d) / expected - 1) < 1e-11
    off = abs(adaptation.printed_identity_error(m, d=d, mend=ALL - {6}) / expected - 1)
    assert off < 1e-11 if d == 1 else off > 0.05
