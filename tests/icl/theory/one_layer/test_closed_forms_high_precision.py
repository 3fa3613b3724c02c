"""Forgetting factors of one layer against the same in 60 digits and more, at settings far apart."""

from decimal import Decimal, localcontext

import numpy as np
import pytest

from icl.tasks import DriftingRegression
from icl.theory import one_layer
from icl.theory.one_layer import sign_flips


@pytest.fixture(autouse=True)
def digits():
    """60 digits, in Python's own decimals, which add and multiply ten times as fast as mpmath's numbers."""
    with localcontext(prec=60):
        yield


def moments(task, lam):
    """D1 .. D4 by their recursion."""
    lam, g, q = Decimal(lam), Decimal(task.gamma), Decimal(task.sigma_e) ** 2
    D1 = D2 = D3 = Decimal(0)
    k = g**2 * Decimal(task.sigma_w) ** 2 + q
    for _ in range(task.n):
        D3, D2, D1, k = lam**2 * (D3 + 2 * D1), lam**2 * (D2 + k), lam * g * (D1 + k), g**2 * k + q
    return D1, D2, D3, k


def share_left(task, lam):
    """Error of one layer with Gaussian inputs and Lambda = I over that of answering 0."""
    D1, D2, D3, D4 = moments(task, lam)
    return 1 - D1**2 / (((task.d + 2) * D2 + D3) * D4)


def best_forgetting(task, low, high):
    """Where the error is least between the two, by golden section in many digits."""
    ratio = (Decimal(5).sqrt() - 1) / 2
    inner = [high - ratio * (high - low), low + ratio * (high - low)]
    values = [share_left(task, lam) for lam in inner]
    for _ in range(20):
        if values[0] < values[1]:
            high, inner = inner[1], [inner[1] - ratio * (inner[1] - low), inner[0]]
            values = [share_left(task, inner[0]), values[0]]
        else:
            low, inner = inner[0], [inner[1], inner[0] + ratio * (high - inner[0])]
            values = [values[1], share_left(task, inner[1])]
    return (low + high) / 2


@pytest.mark.parametrize(
    ("d", "n", "gamma", "upper"),
    [
        (10, 500, 1.02, 2.0),
        (10, 300, 1.1, 2.0),
        (10, 150, 1.5, 1e4),
        (5, 50, 1.05, 1e200),
        (2, 200, 0.99, 1e6),
        (3, 200, 0.5, 1e3),
        (10, 100, 0.9, 1.0),
        (10, 100, 1.0, 1.0),
        (10, 150, 1.0, 1e3),
        (3, 100, 2.0, 4.0),
        (20, 30, 3.0, 1e9),
        (3, 400, 3.0, 4.0),
    ],
)
def test_no_overflow_chooses_the_forgetting_factor(d, n, gamma, upper):
    """lam* has no larger error than 30 forgetting factors in (0, upper], and is where golden section in 60 digits
    ends from a hundredth around it, to 1e-6.
    """
    task = DriftingRegression(d, n, gamma)
    best = Decimal(one_layer.optimal_forgetting(task, upper=upper))
    least = share_left(task, best)
    tried = np.append(np.linspace(0, min(upper, 2 * max(gamma, 1.0)), 25)[1:], np.geomspace(0.5, upper, 6))
    assert all(least <= share_left(task, lam) * (1 + Decimal("1e-12")) for lam in tried)
    if gamma:
        found = best_forgetting(task, best * Decimal("0.99"), best * Decimal("1.01"))
        assert abs(found - best) < Decimal("1e-6") * best


@pytest.mark.parametrize(
    ("d", "n", "gamma", "lam", "near"), [(10, 4_000, 1.0, 0.9953, 1e-4), (5, 2_500, 1.2, 1.2, 1e-6)]
)
def test_long_prompts_choose_their_forgetting_factor(d, n, gamma, lam, near):
    """At n = 4,000 and upper = 2, where lam^(2 n) is 1e2408: 1e-4 of what golden section finds in 60 digits; at gamma =
    1.2, whose weights themselves outgrow float64, lam* tends to gamma, 1e-6.
    """
    assert abs(one_layer.optimal_forgetting(DriftingRegression(d, n, gamma), upper=2.0) - lam) < near


@pytest.mark.parametrize("lam", [1e-300, 1e-200, 1e-150, 1e-8, 0.5, 1.5, 1e20, 1e200])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 1.1])
def test_no_forgetting_factor_leaves_float64(gamma, lam):
    """The training error, mended (16) for Lambda = I and xi at forgetting factors from 1e-300 to 1e200, to 1e-9.

    One array holds one that fits and one that does not: each is what it is alone.
    """
    task = DriftingRegression(3, 60, gamma)
    D1, D2, _, D4 = moments(task, lam)
    right = float(3 * D4 * share_left(task, lam))
    assert one_layer.training_error(task, lam=lam) == pytest.approx(right, rel=1e-9, abs=0)
    assert one_layer.identity_error(task, lam=lam) == pytest.approx(right, rel=1e-9, abs=0)
    both = one_layer.training_error(task, lam=np.array([lam, 0.9]))
    np.testing.assert_array_equal(both, [one_layer.training_error(task, lam=v) for v in (lam, 0.9)])
    assert one_layer.xi(task, lam=lam) == pytest.approx(float(D1**2 / D2), rel=1e-9, abs=0)


def test_forgetting_that_does_not_fit_is_refused():
    """Weights that outgrow float64 have no error there, nor has Lambda~ at such a lam; a risk that does is infinite."""
    with pytest.raises(ValueError, match="variance of the query's weight must be finite"):
        one_layer.training_error(DriftingRegression(3, 10_000, 1.2), lam=0.5)
    with pytest.raises(ValueError, match="variance of the query's weight must be finite"):
        one_layer.zero_predictor(DriftingRegression(3, 10_000, 1.2))
    with np.errstate(over="ignore", invalid="ignore"):
        for function in (one_layer.lambda_tilde, one_layer.optimum):
            with pytest.raises(ValueError, match="lam must keep Lambda~ within float64"):
                function(DriftingRegression(3, 10, 0.9), lam=1e200)
    errors = one_layer.layer_risk(np.eye(3), DriftingRegression(3, 10_000, 0.9), lam=np.array([0.5, 2.0]))
    assert np.isfinite(errors[0])
    assert errors[1] == np.inf


@pytest.mark.parametrize("crosstalk", [0.01, 1.0, 11.0, 1e6])
@pytest.mark.parametrize(
    "gamma", [5e-324, 1e-300, 1e-10, 0.5, 0.9, 1 - 1e-6, 1 - 1e-10, 1 - 1e-12, 1 - 2.0**-53], ids=str
)
def test_the_pole_near_one_and_near_zero(gamma, crosstalk):
    """The smaller root in 60 digits, to a few roundings of lam: with b^2 - 4 it was off by 2e-6 of 1 - lam at gamma =
    1 - 1e-10, 1.0 at 1 - 2^-53 and 0 at 1e-300.
    """
    g, c = Decimal(gamma), Decimal(crosstalk)
    b = ((1 + g**2) + (1 - g**2) / c) / g
    right = 2 / (b + (b**2 - 4).sqrt())
    lam = one_layer.kalman_pole(gamma, crosstalk=crosstalk)
    assert abs(Decimal(float(lam)) - right) <= max(Decimal(2.0**-51) * right, Decimal("5e-324"))


@pytest.mark.parametrize("d", [1, 10, 300])
@pytest.mark.parametrize("gamma", [0.0, 0.9, 1 - 1e-10], ids=str)
def test_the_settled_error_in_60_digits(d, gamma):
    """`steady_identity_error` to 1e-14: 1 - gamma^2 lost 3e-7 of itself at gamma = 1 - 1e-10."""
    task = DriftingRegression(d, 5, gamma, sigma_e=0.3)
    q, c = Decimal(task.sigma_e) ** 2, Decimal(d + 1)
    right = d * q / 2 * (((c - 1) ** 2 + 4 * c / (1 - Decimal(gamma) ** 2)).sqrt() - (c - 1))
    assert one_layer.steady_identity_error(task) == pytest.approx(float(right), rel=1e-14, abs=0)


@pytest.mark.parametrize(
    ("n", "gamma", "lam", "sigma_e"),
    [(100_000, 1.0, 1.0, 1e-4), (10_000, 1.0, 1.0, 1e-7), (3_000, 1 - 1e-9, 0.9999, 1e-5), (50, 0.9, 0.8, 0.1)],
)
def test_errors_far_below_the_labels_variance(n, gamma, lam, sigma_e):
    """What a long prompt of weights that hardly move leaves, 1e-9 of what 60 digits say; as D4 - D1^2 / .. it was off
    by 5e-9 with 100,000 examples.
    """
    task = DriftingRegression(10, n, gamma, sigma_e=sigma_e)
    zero = one_layer.zero_predictor(task)
    right = float(share_left(task, lam)) * zero
    assert one_layer.training_error(task, lam=lam) == pytest.approx(right, rel=1e-9, abs=0)
    assert one_layer.identity_error(task, lam=lam) == pytest.approx(right, rel=1e-9, abs=0)


@pytest.mark.parametrize("flip", [1e-12, 1e-5, 0.1])
@pytest.mark.parametrize("rho", [0.3, 1.0])
def test_errors_of_signs_that_hardly_turn(flip, rho):
    """1 - rho^2 D1^2 / (D2 + rho D3) of a long prompt in 60 digits, to 1e-9."""
    lam, g = Decimal("0.9999"), 1 - 2 * Decimal(flip)
    D1 = D2 = D3 = Decimal(0)
    for _ in range(3_000):
        D3, D2, D1 = lam**2 * (D3 + 2 * D1), lam**2 * (D2 + 1), lam * g * (D1 + 1)
    right = 1 - Decimal(rho) ** 2 * D1**2 / (D2 + Decimal(rho) * D3)
    found = sign_flips.sign_error(sign_flips.sign_moments(float(lam), flip=flip, n=3_000), rho)
    assert found == pytest.approx(float(right), rel=1e-9, abs=0)
