"""The paper's printed forms of D1 .. D4 and of the error against the recursion, as printed and once mended."""

import numpy as np
import pytest

from icl.tasks import DriftingRegression
from icl.theory import moments, one_layer
from icl.theory.errata import adaptation

ALL = frozenset(adaptation.ADAPTATION)


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


@pytest.mark.parametrize("gamma", [0.3, 0.9, 1.2])
def test_what_the_third_erratum_changes(gamma):
    """1 / gamma stands where gamma should, of a term in sigma_e^2 alone: printed less mended, written out.

    rtol 1e-10: a difference of the two.
    """
    lam, n, sigma_e = 0.7, 10, 0.3
    printed, mended = (
        adaptation.D3(lam=lam, gamma=gamma, n=n, sigma_w=1.0, sigma_e=sigma_e, mend=mend) for mend in (ALL - {3}, ALL)
    )
    expected = 2 * sigma_e**2 * (lam**4 - lam ** (2 * n + 2)) / (gamma * (lam - gamma) * (1 - lam**2))
    np.testing.assert_allclose(printed - mended, expected, rtol=1e-10)


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
