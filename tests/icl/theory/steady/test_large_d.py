"""The floor in many dimensions against second derivations: touching roots, limits, 60 digits and more."""

from decimal import Decimal, localcontext

import mpmath as mp
import numpy as np
import pytest
from scipy import optimize
from shared import drift_law

from icl.theory import floors
from icl.theory import steady as fw
from icl.theory.steady import large_d, mesa

GRID = [(s, v) for s in (0.01, 0.3, 1.0, 5.0, 80.0) for v in (0.0, 0.01, 1.0, 30.0)]


@pytest.mark.parametrize(("s", "v"), GRID)
def test_touching_roots(s, v):
    """zeta is the positive root of the cubic, where H is least, and eps makes H = 0 there: found anew by a bounded
    search for the least H and by bisection of eps. rtol 1e-8 of eps + v: a minimum is flat.

    Planted: a sign of 2 s v in the cubic, and 1 + zeta without its 1, are seen.
    """
    t, eps = large_d.touching_point(s, v), large_d.kalman_large_d(s, v)
    roots = np.roots([1, 2 - s - v * s, -(s + 3 * v * s), -2 * v * s])
    positive = roots[(np.abs(roots.imag) < 1e-9) & (roots.real > 1e-12)].real
    np.testing.assert_allclose(positive, [t], rtol=1e-9)
    least = optimize.minimize_scalar(
        lambda u: large_d.touching(np.exp(u), 0.5, s, v), bounds=(np.log(t) - 3, np.log(t) + 3), method="bounded"
    )
    # H moves with -log(v + eps) as a whole.
    np.testing.assert_allclose((v + 0.5) * np.exp(least.fun) - v, eps, rtol=1e-8, atol=1e-8 * v)
    np.testing.assert_allclose(large_d.touching(t, eps, s, v), 0, atol=1e-9)
    assert (large_d.touching(np.geomspace(1e-4, 1e4, 400) * t, eps, s, v) > -1e-12).all()
    if not v:
        np.testing.assert_allclose(t, (s - 2 + np.sqrt(s**2 + 4)) / 2, rtol=1e-10)


def test_two_roots_of_the_resolvent_meet():
    """At z = -zeta the resolvent's equation has one root m, a double one; to its left the smaller u and to its right
    the larger u = v - z - z^2 m, of the two that exist there, is the branch that goes on to z -> -infinity and z = 0.
    """
    s, v = 1.0, 0.2
    t, eps = large_d.touching_point(s, v), large_d.kalman_large_d(s, v)

    def equation(u, z):
        return s * ((1 - z) * (v - z - u) / z**2 - 1) + np.log(u / (v + eps))

    def turn(z):
        return z**2 / (s * (1 - z))

    np.testing.assert_allclose(equation(turn(-t), -t), 0, atol=1e-12)
    far, near = -1e4 * t, -1e-3 * t
    low = optimize.brentq(equation, 1e-12 * turn(far), turn(far), args=(far,))
    high = optimize.brentq(equation, turn(near), 1e9 * turn(near), args=(near,))
    # There u = v - z - z^2 m is what m = -1/z - eps/z^2 and a finite m leave of it.
    np.testing.assert_allclose((low, high), (v + eps, v), rtol=1e-2)
    for z in (-3 * t, -1.5 * t, -0.6 * t, -0.3 * t):
        assert equation(turn(z), z) > 0


def test_limits_of_the_floor():
    """Fast drift or much noise: all answer 0. Slow drift: the random-walk forms, e / 4, 1 and (4 / e) between delta and
    floor. Everywhere floor < delta < gated attention, and their equations in s hold. Stated tolerances.
    """
    for f in (large_d.kalman_large_d, large_d.eps_delta, large_d.eps_gla):
        np.testing.assert_allclose(f(1e6, 0.0), 1, rtol=1e-5)
        np.testing.assert_allclose(f(1.0, 1e6), 1, rtol=1e-5)
    s = 1e-6
    for nu in (0.0, 0.3, 5.0):
        np.testing.assert_allclose(large_d.kalman_large_d(s, nu * s) / s, large_d.kalman_random_walk(nu), rtol=1e-4)
        np.testing.assert_allclose(large_d.eps_delta(s, nu * s) / s, large_d.delta_random_walk(nu), rtol=1e-4)
    np.testing.assert_allclose(large_d.kalman_random_walk(0.0), np.e / 4, rtol=1e-14)
    S, V = (a.ravel() for a in np.meshgrid(np.geomspace(0.01, 100, 30), [0, 0.01, 0.3, 3]))
    floor, rule, gated = large_d.kalman_large_d(S, V), large_d.eps_delta(S, V), large_d.eps_gla(S, V)
    assert (floor < rule).all()
    assert (rule < gated).all()
    np.testing.assert_allclose(S * (1 - rule), rule**2 / (rule + V), rtol=1e-9)
    np.testing.assert_allclose(S * (1 - gated), gated**2 / (1 + V), rtol=1e-9)


def test_many_dimensions():
    """At d = 20,000 gated attention, the delta rule and unit keys are their limits; rtol 1e-3."""
    for s, v in ((0.3, 0.0), (3.0, 0.2)):
        law = drift_law(20_000, s, v)
        np.testing.assert_allclose((law.drift_rate, law.noise_ratio), (s, v), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(fw.best_gla(law).p / law.k0, large_d.eps_gla(s, v), rtol=1e-3)
        for layer in (fw.best_delta, fw.best_unit_delta):
            np.testing.assert_allclose(layer(law).p / law.k0, large_d.eps_delta(s, v), rtol=1e-3)
        np.testing.assert_allclose(large_d.kalman_floor(law) / law.zero_error, large_d.kalman_large_d(s, v), rtol=1e-3)


def test_rls_on_a_random_walk():
    """Without noise the best theta is 1.9905 and leaves 0.8023, between the floor's e / 4 and the delta rule's 1; for
    small theta it averages over 1 / theta, whose weights lie 1 / (2 theta) behind. rtol 1e-3.
    """
    found = optimize.minimize_scalar(
        lambda theta: large_d.rls_random_walk(0.0, theta), bounds=(0.1, 10), method="bounded"
    )
    np.testing.assert_allclose((found.x, found.fun), (1.9905, 0.8023), rtol=1e-3)
    np.testing.assert_allclose(large_d.rls_random_walk(0.0, 1e-4) * 1e-4, 0.5, rtol=1e-3)


@pytest.fixture(autouse=True)
def digits():
    """120 digits: squares of 1e8 over 1e-8, grown by 1.4 a step, leave more than 60 of them."""
    with mp.workdps(120):
        yield


def precisely(s, v):
    """The floor from the one positive root of its cubic, to which Newton's method falls from above."""
    with localcontext(prec=120):
        s, v = Decimal(s), Decimal(v)
        a, b, c = 2 - s - v * s, -(s + 3 * v * s), -2 * v * s
        t, before = 1 + max(abs(a), abs(b), abs(c)), Decimal("Infinity")
        while t < before:
            before, t = t, t - (((t + a) * t + b) * t + c) / ((3 * t + 2 * a) * t + b)
        return t * t / (s * (1 + t)) * (s * (1 + v) / t + s * v / t**2 - 1).exp() - v


@pytest.mark.parametrize("s", [1e-12, 1e-9, 1e-6, 1e-3, 0.3, 5.0, 80.0, 1e4])
def test_the_floor_in_many_dimensions_under_any_noise(s):
    """`kalman_large_d` for noise from 1e-9 to 1e30 of the signal, by the touching roots in 120 digits, to 1e-12."""
    for v in (1e-9, 1e-3, 1.0, 30.0, 900.0, 1100.0, 1e5, 1e8, 1e12, 1e20, 1e30):
        assert large_d.kalman_large_d(s, v) == pytest.approx(float(precisely(s, v)), rel=1e-12)
        half = mp.mpf(s) * (1 - mp.mpf(v))
        delta = (half + mp.sqrt(half**2 + 4 * (1 + mp.mpf(s)) * s * v)) / (2 * (1 + mp.mpf(s)))
        assert large_d.eps_delta(s, v) == pytest.approx(float(delta), rel=1e-12)


def test_slow_drift_under_any_noise():
    """`kalman_random_walk` for nu from 0 to 1e100 is its formula in 240 digits, to 1e-13."""
    with mp.workdps(240):
        for nu in (0.0, 1e-6, 1.0, 1e6, 1e20, 1e32, 1e100):
            z = (1 + mp.sqrt(1 + 16 * mp.mpf(nu))) / 4
            right = z**2 * mp.exp(1 / z - 1 + mp.mpf(nu) / z**2) - mp.mpf(nu)
            assert large_d.kalman_random_walk(nu) == pytest.approx(float(right), rel=1e-13)


def test_what_leaves_float64_is_refused():
    """The delta rule's error for drifts so slow or so fast that squares vanish or overflow, which made it half or none
    of what is right.
    """
    for s, v in ((1e-200, 0.0), (1e100, 1e100), (1e140, 1e20)):
        with pytest.raises(ValueError, match=r"s and s \(1 \+ v\) must be from 1e-150 to 1e150"):
            large_d.eps_delta(s, v)
    assert large_d.eps_delta(1e-150, 0.0) == pytest.approx(1e-150, rel=1e-12)
    assert large_d.eps_delta(1e100, 1e49) == pytest.approx(1.0, rel=1e-12)
    for theta in (1e-12, 1e4):  # where a difference is rounding or the integrand a corner
        with pytest.raises(ValueError, match="theta must be finite and >= 1e-07 and <= 1000"):
            large_d.rls_random_walk(1.0, theta)


def test_the_fit_is_refused_below_the_dimensions_it_is_for():
    """At d = 1 and gamma = 0.99 it was 20 % above the floor, sigma_e^2 without noise, where a label tells the weight.

    So says `kalman_errors`, which the refusal names, to rounding. A weight without memory is known to nobody.
    """
    for d in (1, 2, 3, 4):
        law = fw.DriftLaw(d, 0.99, 0.3)
        for fit in (large_d.kalman_floor, mesa.mesa_for):
            with pytest.raises(
                ValueError, match=f"law must have d >= 5 for this fit, got d = {d}: average `theory.kalm"
            ):
                fit(law)
        assert large_d.kalman_floor(fw.DriftLaw(d, 0.0, 0.3)) == fw.DriftLaw(d, 0.0, 0.3).zero_error
    law = fw.DriftLaw(1, 0.99, 0.3)
    x = np.random.default_rng(1).standard_normal((3, 20, 1))
    np.testing.assert_allclose(floors.kalman_errors(x, law)[:, 1:], law.q, rtol=1e-12)
    assert large_d.kalman_floor(fw.DriftLaw(5, 0.99, 0.3)) > 0


@pytest.mark.parametrize("gamma", [0.5, 0.99, 1 - 1e-10, 1 - 1e-15], ids=str)
def test_a_slow_drift_keeps_its_digits(gamma):
    """The weights' variance and the errors that follow from it in 60 digits, to 1e-14: 1 - gamma^2 lost 3e-7 of itself
    at 1 - 1e-10.
    """
    law = fw.DriftLaw(5, gamma, 0.3, 0.2)
    with mp.workdps(60):
        g, q, s2 = mp.mpf(gamma), mp.mpf(law.sigma_e) ** 2, mp.mpf(law.sigma_y) ** 2
        k = q / (1 - g**2)
        right = [k, 5 * (1 - g**2)]
        # p = q + g^2 (p - p^2 / D), a quadratic for D = own p + noise.
        for own, noise in ((1, 6 * k + s2), (7, s2)):
            a, b = own * (1 - g**2) + g**2, noise * (1 - g**2) - own * q
            right.append(5 * (mp.sqrt(b**2 + 4 * a * noise * q) - b) / (2 * a))
    found = [law.k0, law.drift_rate, fw.best_gla(law).error, fw.best_delta(law).error]
    np.testing.assert_allclose(found, [float(each) for each in right], rtol=1e-14)
