"""The one equation of decayed fast weights against second derivations (moments in full, other rooms, direct search) and
against the literal layers, run over prompts.
"""

import functools
from decimal import Decimal, localcontext
from fractions import Fraction

import chance
import mpmath as mp
import numpy as np
import pytest
import torch
from scipy import integrate, linalg, optimize, special, stats

from icl import filters
from icl.profile import make_generator
from icl.tasks import DriftingRegression
from icl.theory import one_layer
from icl.theory._common import mean_shrinkage
from icl.theory.steady import fast_weights as fw
from icl.theory.steady import large_d, lms_family, spectra

# Oracles

LAWS = [fw.DriftLaw(d, gamma, 0.3, y) for d in (3, 10) for gamma in (0.6, 0.95, 0.995) for y in (0.0, 0.5)]
QUIET, NOISY = LAWS[::2], LAWS[1::2]
SPECTRUM = np.array([0.2, 0.7, 2.1])


def task(law, Lambda=None, n=5):
    return DriftingRegression(d=law.d, n=n, gamma=law.gamma, sigma_w=law.k0**0.5, sigma_e=law.sigma_e, Lambda=Lambda)


def solves(law, p, D):
    """The one equation, to rounding."""
    np.testing.assert_allclose(p, law.q + law.gamma**2 * (p - p**2 / D), rtol=1e-12)


@pytest.mark.parametrize("law", LAWS)
def test_every_layer_solves_the_one_equation(law):
    """p = q + gamma^2 (p - p^2 / D) with the D of the table, and fades and strengths as stated; rtol 1e-12.

    Planted: d + 1 in place of d + 2 in the delta rule's D, and d in place of d + 1 in gated attention's, are seen.
    """
    d, k, s2, g = law.d, law.k0, law.sigma_y**2, law.gamma
    one = fw.best_gla(law)
    solves(law, one.p, one.p + (d + 1) * k + s2)
    K = one.p / (one.p + (d + 1) * k + s2)
    np.testing.assert_allclose((one.lam, one.mu), (g * (1 - K), K / (1 - K)), rtol=1e-12)
    np.testing.assert_allclose(one.error, d * one.p, rtol=1e-15)
    unit = fw.best_normalised_gla(law)
    noise = (d - 1) * k + s2 * d / (d - 2)
    solves(law, unit.p, unit.p + noise)
    np.testing.assert_allclose((unit.lam, unit.mu), (g * noise / (unit.p + noise), d * unit.p / noise), rtol=1e-12)
    rule = fw.best_delta(law)
    solves(law, rule.p, (d + 2) * rule.p + s2)
    np.testing.assert_allclose((rule.lam, rule.mu), (g, rule.p / ((d + 2) * rule.p + s2)), rtol=1e-12)
    assert fw.linear_bound(law) == rule.error
    assert fw.best_unit_delta(law).error < rule.error < law.zero_error
    assert rule.error < one.error or d == 3 or s2 or g < 0.8


@pytest.mark.parametrize("law", QUIET)
def test_without_noise_other_rooms_agree(law):
    """Gated attention's error and pole are those of theory.one_layer, the delta rules' those of theory.lms_family;
    rtol 1e-12.

    At arbitrary settings the delta rule's error is theory.lms_family.steady_error; rtol 1e-9.
    """
    np.testing.assert_allclose(fw.best_gla(law).error, one_layer.steady_identity_error(task(law)), rtol=1e-12)
    best = fw.best_gla(law)
    np.testing.assert_allclose(fw.gla_error(law, lam=best.lam, mu=best.mu), best.error, rtol=1e-9)
    np.testing.assert_allclose(fw.best_gla(law).lam, one_layer.kalman_pole(law.gamma, crosstalk=law.d + 1), rtol=1e-12)
    for found, normalised in ((fw.best_delta(law), False), (fw.best_unit_delta(law), True)):
        mu, lam, error = lms_family.best_steady(task(law), normalised=normalised)
        np.testing.assert_allclose((found.mu, found.lam, found.error), (mu, lam, error), rtol=1e-12)
    for lam, mu in ((0.9, 0.05), (1.0, 0.1), (0.7, 0.02)):
        np.testing.assert_allclose(
            fw.delta_error(law, lam=lam, mu=mu), lms_family.steady_error(task(law), mu, lam=lam), rtol=1e-9
        )


@pytest.mark.parametrize("gamma", [0.5, 0.95, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12, 1 - 1e-14])
def test_gated_attention_s_error_is_as_near_as_it_says(gamma):
    """E w w_hat and E w_hat^2 by hand, in fractions: float64 loses what the docstring says, and no more."""
    law, g, q, s2 = fw.DriftLaw(5, gamma, 0.1, 0.2), Fraction(gamma), Fraction(0.1) ** 2, Fraction(0.2) ** 2
    k = q / (1 - g**2)
    for lam in (0.0, 0.5, 0.999, 1 - 1e-6, 1 - 1e-9):
        for mu in (0.0, 1e-3, 0.3, 1 - lam):
            fade, write = Fraction(lam), Fraction(lam) * Fraction(mu)
            c = write * g * k / (1 - fade * g)
            left = k - 2 * c + (2 * fade * write * c + write**2 * (7 * k + s2)) / (1 - fade**2)
            off = abs(Fraction(fw.gla_error(law, lam=lam, mu=mu)) / (5 * left) - 1)
            assert off < 2e-16 / (1 - gamma) + 2e-16 / (1 - lam) + 1e-14


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("law", LAWS)
def test_settings_are_the_best(law):
    """Errors at the stated lam and mu are the optimum's, rtol 1e-9, and a search from elsewhere comes down to it, 1e-5,
    and not below.

    Gated attention's error at any setting is also what E w w_hat and E w_hat^2, solved by hand, give; the normalised
    write's optimum is found by a search over their counterparts.
    """
    d, k, s2, g = law.d, law.k0, law.sigma_y**2, law.gamma

    def by_hand(lam, mu, noise):
        c = lam * mu * g * k / (1 - lam * g)
        return d * (k - 2 * c + lam**2 * (2 * mu * c + mu**2 * (k + noise)) / (1 - lam**2))

    for lam, mu in ((0.8, 0.1), (0.5, 0.02)):
        np.testing.assert_allclose(fw.gla_error(law, lam=lam, mu=mu), by_hand(lam, mu, (d + 1) * k + s2), rtol=1e-9)
    options = {"xatol": 1e-4, "fatol": 1e-7, "maxiter": 150}
    noise = (d - 1) * k + s2 * d / (d - 2)
    for best, error in (
        (fw.best_gla(law), lambda lam, mu: fw.gla_error(law, lam=lam, mu=mu)),
        (fw.best_delta(law), lambda lam, mu: fw.delta_error(law, lam=lam, mu=mu) if mu < 1.9 / (d + 2) else 1e9),
        (fw.best_normalised_gla(law), lambda lam, mu: by_hand(lam, mu / d, noise)),
    ):
        np.testing.assert_allclose(error(best.lam, best.mu), best.error, rtol=1e-9)

        def inside(at, error=error):
            return error(*at) if 0 < at[0] < 0.99999 and at[1] > 0 else 1e9

        found = optimize.minimize(inside, (0.95 * best.lam, 0.8 * best.mu), method="Nelder-Mead", options=options)
        np.testing.assert_allclose(found.fun, best.error, rtol=1e-5)
        assert found.fun >= best.error * (1 - 1e-9)


@pytest.mark.parametrize("d", [1, 2, 3, 10, 400])
def test_quadrature_over_lengths(d):
    """Means of r, r^2 and e^(-r/d) are those of a chi-square law, rtol 1e-12; E 1/(r + c) for even d is an exponential
    integral, rtol 1e-9 from d = 4 on.
    """
    r, weight = fw.squared_lengths(d)
    for found, exact in (
        (weight.sum(), 1),
        (weight @ r, d),
        (weight @ r**2, d * (d + 2)),
        (weight @ np.exp(-r / d), (1 + 2 / d) ** (-d / 2)),
    ):
        np.testing.assert_allclose(found, exact, rtol=1e-12)
    if d >= 4 and d % 2 == 0:
        r, weight = fw.squared_lengths(d, nodes=128)
        c = 0.3 * d
        np.testing.assert_allclose(weight @ (1 / (r + c)), np.exp(c / 2) * special.expn(d // 2, c / 2) / 2, rtol=1e-9)


@pytest.mark.parametrize("law", NOISY)
def test_longhorn_by_adaptive_integration(law):
    """Longhorn's p solves the one equation with 1/D by scipy's adaptive integral over the chi-square law, rtol 1e-9; no
    other eps is better.
    """
    best = fw.best_unit_delta(law)
    s2, d = law.sigma_y**2, law.d

    def mean(f):
        density = stats.chi(d).pdf
        return integrate.quad(lambda u: f(u * u) * density(u), 0, 60, epsabs=1e-14, epsrel=1e-12, limit=200)[0]

    np.testing.assert_allclose(best.eps, s2 / best.p, rtol=1e-12)
    heard = mean(lambda r: r / (r * best.p + s2)) / d
    np.testing.assert_allclose(best.p, law.q + law.gamma**2 * best.p * (1 - best.p * heard), rtol=1e-9)
    for eps in (best.eps / 1.2, 1.2 * best.eps):
        first, noise = (mean(lambda r, k=k: r / (r + eps) ** k) for k in (1, 2))  # noqa: B023
        second = first - eps * noise  # r^2 = r (r + eps) - eps r
        p = (law.q + law.gamma**2 * s2 * noise / d) / (1 - law.gamma**2 * (1 - 2 * first / d + second / d))
        assert p > best.p


def gated_error(law, r, weight, a, b):
    """Error of w <- a(r) w + b(r) y x at its best scale, by hand."""
    k, signal = law.k0, r / law.d
    c = law.gamma * (weight @ (b * signal)) * k / (1 - law.gamma * (weight @ a))
    square = weight @ (b**2 * (r**2 * k + r * law.sigma_y**2)) / law.d
    A = (2 * (weight @ (a * b * signal)) * c + square) / (1 - weight @ a**2)
    return law.d * (k - c**2 / A)


@pytest.mark.parametrize("law", [law for law in LAWS if law.d == 10 and law.gamma == 0.95])
def test_gates_that_see_the_length(law):
    """Both optima have the error that their gates have by hand (rtol 1e-9), no direct search does better, and they are
    in order: free gates, zero-order hold, a constant gate. Without noise the free gates are the normalised write.

    The search for alpha(r) is a gradient method over the 64 values from alpha = 1/2; rtol 1e-6.
    """
    free, held = fw.free_gates(law), fw.zoh_gates(law)
    weight = fw.squared_lengths(law.d)[1]
    for gates in (free, held):
        np.testing.assert_allclose(gated_error(law, gates.r, weight, gates.a, gates.b), gates.error, rtol=1e-9)
        rng = np.random.default_rng(1)
        for size in (1e-3, 1e-2):
            a = gates.a + size * rng.normal(size=64)
            b = gates.b * (1 + size * rng.normal(size=64))
            if gates is held:
                b = (1 - a) * gates.b[0] / (1 - gates.a[0])
            assert gated_error(law, gates.r, weight, a, b) > gates.error
    assert free.error <= held.error * (1 + 1e-12)
    assert held.error < fw.best_gla(law).error
    lengths, mass = torch.from_numpy(free.r), torch.from_numpy(weight)

    def searched(u):
        at = torch.from_numpy(u).requires_grad_()
        alpha = torch.sigmoid(at)
        error = gated_error(law, lengths, mass, alpha, 1 - alpha)
        error.backward()
        return float(error.detach()), at.grad.numpy()

    options = {"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-10, "maxcor": 40}
    found = optimize.minimize(searched, np.zeros(64), jac=True, method="L-BFGS-B", options=options)
    np.testing.assert_allclose(found.fun, held.error, rtol=1e-6)
    assert found.fun >= held.error * (1 - 1e-9)
    if not law.sigma_y:
        np.testing.assert_allclose(free.error, fw.best_normalised_gla(law).error, rtol=1e-12)
        np.testing.assert_allclose(free.a, fw.best_normalised_gla(law).lam, rtol=1e-10)
    else:
        assert free.error < fw.best_normalised_gla(law).error


@pytest.mark.parametrize("law", [fw.DriftLaw(d, gamma, 0.3) for d in (2, 3, 10) for gamma in (0.0, 0.8, 0.99)])
def test_a_gate_per_channel_by_adaptive_integration(law):
    """The error solves the one equation with 1/D = E u / (k - u (k - p)), u = x_1^2 / r, integrated adaptively over the
    angle of x_1; rtol 1e-9. It gains on one gate and stays above unit keys. Planted: (d - 1) in place of d - 2 is seen.
    """
    p = fw.channel_gates_error(law) / law.d

    def heard(power):
        # x_1 = |x| cos t, whose density is sin(t)^(d - 2).
        def at(t):
            return np.sin(t) ** power * np.cos(t) ** 2 / (law.k0 - np.cos(t) ** 2 * (law.k0 - p))

        whole = special.beta((power + 1) / 2, 0.5) / 2
        return integrate.quad(at, 0, np.pi / 2, epsrel=1e-12, limit=200)[0] / whole

    np.testing.assert_allclose(p, law.q + law.gamma**2 * (p - p**2 * heard(law.d - 2)), rtol=1e-9)
    assert not law.gamma or abs(law.q + law.gamma**2 * (p - p**2 * heard(law.d - 1)) - p) > 1e-4 * p
    if law.gamma and law.d > 2:
        assert fw.best_unit_delta(law).error < law.d * p < fw.free_gates(law).error


def two_states(law, rng, K):
    """A random layer of K states."""
    keep = np.diag(rng.uniform(0.3, 0.95, K)) + 0.1 * rng.normal(size=(K, K))
    return keep, rng.normal(size=K), -rng.uniform(0, 0.3, (K, K)) / law.d


@pytest.mark.parametrize("d", [1, 2])
def test_moments_are_those_carried_in_full(d):
    """Second moments of a random layer of two states, in two alternating phases, are the traces of the full covariance
    of (w, h_1, h_2), iterated 4,000 times with means of T (x) T from a quadrature exact to degree 7; and what the best
    read-out of the states misses is what these leave of w; rtol 1e-9.

    Planted: d + 1 in place of d + 2 is seen.
    """
    law, rng = fw.DriftLaw(d, 0.9, 0.3, 0.4), np.random.default_rng(5)
    phases = [fw.update(law, *two_states(law, rng, 2)) for _ in range(2)]
    nodes, weights = np.polynomial.hermite_e.hermegauss(4)
    points = np.stack(np.meshgrid(*[nodes] * d, indexing="ij"), -1).reshape(-1, d)
    mass = np.stack(np.meshgrid(*[weights / weights.sum()] * d, indexing="ij"), -1).reshape(-1, d).prod(-1)
    m, eye = 3 * d, np.eye(d)
    maps = []
    for one in phases:
        T = np.stack([np.kron(one.keep, eye) + np.kron(one.look, np.outer(x, x)) for x in points])
        square = np.einsum("m,mij,mkl->ikjl", mass, T, T).reshape(m * m, m * m)
        maps.append((square, np.kron(one.noise, eye).ravel()))
    S = np.zeros(m * m)
    for _ in range(2000):
        for square, noise in maps:
            S = square @ S + noise
    full = []
    for square, noise in maps:
        full.append(np.einsum("aibi->ab", S.reshape(3, d, 3, d)) / d)
        S = square @ S + noise
    np.testing.assert_allclose(fw.second_moments(phases, d), full, rtol=1e-9)
    left = [d * (G[0, 0] - G[0, 1:] @ np.linalg.solve(G[1:, 1:], G[1:, 0])) for G in full]
    np.testing.assert_allclose(fw.readout_errors(fw.second_moments(phases, d), d), left, rtol=1e-9)


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("law", [fw.DriftLaw(10, 0.95, 0.1), fw.DriftLaw(3, 0.9, 0.2, 0.3)])
def test_no_linear_layer_beats_the_delta_rule(law):
    """100 random layers of one to three states are all worse than the bound; for d = 3 a search over all coefficients
    of two states comes down to it, to 1e-3, and not below, to rounding.
    """
    rng, bound = np.random.default_rng(0), fw.linear_bound(law)

    def error(K, keep, write, correct):
        try:
            return float(fw.readout_errors(fw.second_moments([fw.update(law, keep, write, correct)], law.d), law.d)[0])
        except ValueError:
            return np.inf

    for i in range(100):
        K = 1 + i % 3
        assert error(K, *two_states(law, rng, K)) > bound
    if law.d == 3:
        found = optimize.minimize(
            lambda z: min(error(2, z[:4].reshape(2, 2), z[4:6], z[6:].reshape(2, 2)), 1e3),
            np.concatenate([part.ravel() for part in two_states(law, np.random.default_rng(1), 2)]),
            method="L-BFGS-B",
        )
        assert bound * (1 - 1e-9) <= found.fun < bound * (1 + 1e-3)
    own = fw.best_delta(law)
    one = error(1, np.array([[own.lam]]), np.array([own.lam * own.mu]), np.array([[-own.lam * own.mu]]))
    np.testing.assert_allclose(one, bound, rtol=1e-9)


@pytest.mark.usefixtures("as_installed")
def test_chunks_lie_between_the_delta_rule_and_gated_attention():
    """Gradients at a chunk's first weights, tuned: chunks of one are the delta rule, and errors rise with the chunk
    towards gated attention's, which a chunk of 128 has to 1 %.
    """
    law = fw.DriftLaw(10, 0.95, 0.1)

    def chunk(size, start, exact):
        def error(at):
            lam, mu = at
            # States: the chunk's first weights, fading too, and the weights; a chunk begins by taking these for those.
            begun = fw.Update(np.array([[1.0, 0, 0], [0, 0, 1], [0, 0, 1]]), np.zeros((3, 3)), np.zeros((3, 3)))
            keep, correct = np.diag([lam, lam]), np.array([[0, 0], [-lam * mu, 0.0]])
            inside = fw.update(law, keep, np.array([0, lam * mu]), correct)
            try:
                G = fw.second_moments([begun] + [inside] * size, law.d)[1:]
            except ValueError:
                return 1e3
            return float(np.mean(G[:, 0, 0] - 2 * G[:, 0, 2] + G[:, 2, 2]) * law.d)

        options = {"fatol": exact * law.zero_error, "xatol": 100 * exact}
        return optimize.minimize(error, start, method="Nelder-Mead", options=options).fun

    gla = fw.best_gla(law)
    # A long chunk is best set as gated attention is, and is looked at to a hundredth of what is asked of it.
    errors = [chunk(1, (0.9, 0.05), 1e-8), chunk(8, (0.9, 0.05), 1e-7), chunk(128, (gla.lam, gla.mu), 1e-4)]
    np.testing.assert_allclose(errors[0], fw.best_delta(law).error, rtol=1e-6)
    assert errors[0] < errors[1] < errors[2] < gla.error < 1.01 * errors[2]


def test_a_direction_of_its_own():
    """Gated attention with a decay a direction is a matrix Riccati equation solved as a whole (rtol 1e-9), a white
    spectrum gives the isotropic answers back, one decay is worse than many, one gain than many; the shared gain is
    theory.lms_family's search without noise. rtol 1e-9.
    """
    for noise in (0.0, 0.4):
        law = fw.DriftLaw(3, 0.95, 0.2, noise)
        R = np.diag(fw._observation_noise(law, SPECTRUM))
        P = linalg.solve_discrete_are(law.gamma * np.eye(3), np.eye(3), law.q * np.eye(3), R)
        np.testing.assert_allclose(fw.gla_per_channel(law, SPECTRUM), SPECTRUM @ np.diag(P), rtol=1e-9)
        white = np.ones(3)
        np.testing.assert_allclose(fw.gla_per_channel(law, white), fw.best_gla(law).error, rtol=1e-12)
        np.testing.assert_allclose(fw.gla_shared(law, white)[0], fw.best_gla(law).error, rtol=1e-9)
        np.testing.assert_allclose(fw.delta_diagonal(law, white), fw.best_delta(law).error, rtol=1e-9)
        np.testing.assert_allclose(fw.delta_shared(law, white)[0], fw.best_delta(law).error, rtol=1e-9)
        assert fw.gla_per_channel(law, SPECTRUM) < fw.gla_shared(law, SPECTRUM)[0]
        assert fw.delta_diagonal(law, SPECTRUM) < fw.delta_shared(law, SPECTRUM)[0]
    # An error is flat where it is least: its decay is found as well as float64 can tell it.
    law = fw.DriftLaw(3, 0.8, 0.1, 0.5)
    np.testing.assert_allclose(fw.gla_shared(law, np.ones(3))[1], fw.best_gla(law).lam, rtol=1e-7)
    law = fw.DriftLaw(3, 0.95, 0.2)
    one = task(law, np.diag(SPECTRUM))
    found = optimize.minimize_scalar(
        lambda mu: float(lms_family.steady_error(one, mu, lam=law.gamma)), bounds=(0.01, 0.4), method="bounded"
    )
    np.testing.assert_allclose(fw.delta_shared(law, SPECTRUM)[0], found.fun, rtol=1e-9)
    crosstalk = one_layer.crosstalk(one) * law.k0
    np.testing.assert_allclose(fw._observation_noise(law, SPECTRUM), crosstalk, rtol=1e-12)


def test_gains_a_direction_by_search():
    """The delta rule's best gains a direction, found by a search over the moments that three gains leave; rtol 1e-8."""
    law, s = fw.DriftLaw(3, 0.95, 0.2, 0.4), SPECTRUM
    g2, s2 = law.gamma**2, 0.4**2

    def error(log):
        mu = np.exp(log)
        A = np.diag(1 - g2 * (1 - 2 * mu * s + 2 * mu**2 * s**2)) - g2 * np.outer(mu**2 * s, s)
        V = np.linalg.solve(A, law.q + g2 * mu**2 * s * s2)
        return float(s @ V) if (V > 0).all() else 1e3

    options = {"xatol": 1e-9, "fatol": 1e-13, "maxiter": 5000}
    found = optimize.minimize(error, np.full(3, -3.0), method="Nelder-Mead", options=options)
    np.testing.assert_allclose(fw.delta_diagonal(law, s), found.fun, rtol=1e-8)


def test_weights_without_a_past():
    """gamma = 0: nothing can be known, every layer errs like answering 0; rtol 1e-12."""
    law = fw.DriftLaw(4, 0.0, 0.3, 0.2)
    for found in (fw.best_gla, fw.best_normalised_gla, fw.best_delta, fw.best_unit_delta, fw.free_gates, fw.zoh_gates):
        np.testing.assert_allclose(found(law).error, law.zero_error, rtol=1e-12)
    assert large_d.kalman_floor(law) == law.zero_error
    assert not fw.zoh_gates(law).b.any()


def test_steady_errors_under_heavy_noise():
    """Labels of noise 1 over innovations of 1e-10 leave next to nothing to learn: every layer answers 0, and so does
    the floor, to 1e-12. Nor does a weight that hardly outlasts a step tell of the next.
    """
    law = fw.DriftLaw(5, 0.9, 1e-10, 1.0)
    layers = [fw.best_gla(law).error, fw.best_delta(law).error, fw.best_unit_delta(law).error]
    np.testing.assert_allclose([*layers, large_d.kalman_floor(law)], law.zero_error, rtol=1e-12)
    forgetful = fw.DriftLaw(3, 1e-200, 1.0)
    assert large_d.kalman_floor(forgetful) == fw.best_gla(forgetful).error == 3.0
    for name, value in (("sigma_e", 1e-200), ("sigma_e", 1e21), ("sigma_y", 1e-21), ("sigma_y", 1e200)):
        with pytest.raises(ValueError, match=f"{name} must be from 1e-20 to 1e20"):
            fw.DriftLaw(1, 0.9, **{"sigma_e": 1.0, name: value})


# Statistics

TRIALS = 1_000
#: Positions of a sequence, and the first that is looked at.
LATE = {0.8: (100, 20), 0.95: (200, 80)}


@functools.lru_cache(maxsize=1)
def sequences(law):
    """1,000 sequences and their labels' noise, the same for every layer."""
    generator = make_generator(f"fast weights, {law}")
    p = task(law, n=LATE[law.gamma][0] - 1).sample(TRIALS, generator=generator, dtype=torch.float64)
    return p, law.sigma_y * torch.randn(p.y.shape, generator=generator, dtype=torch.float64)


def simulated(law, filter):
    """Mean squared errors of the clean label over the late positions of 1,000 sequences.

    Weights start from their steady spread; a sequence's mean counts once. By then what the start left has sunk below
    1e-3 of the error in all settings used here (gamma^40 and gamma^160 < 3e-4).
    """
    p, noise = sequences(law)
    return (filters.run_filter(filter, p.x, p.y + noise) - p.y).square().numpy()[:, LATE[law.gamma][1] :].mean(-1)


def estimate(step):
    """A filter whose estimate moves by `step(w, x, y, r)`."""

    def moved(state, x, y, y_hat):
        return filters.Estimate(step(state.w_hat, x, y, x.square().sum(0)))

    return filters.Filter(filters.Estimate, moved)


def gated(law):
    best = fw.best_gla(law)
    return filters.gla(best.mu * np.eye(law.d), lam=best.lam), best


def normalised(law):
    best = fw.best_normalised_gla(law)
    return estimate(lambda w, x, y, r: best.lam * (w + best.mu * y * x / r)), best


def delta(law):
    best = fw.best_delta(law)
    return filters.delta_rule(best.mu, lam=best.lam), best


def longhorn(law):
    best = fw.best_unit_delta(law)
    return filters.normalised_delta_rule(best.mu, lam=best.lam, eps=best.eps), best


def free(law):
    best = fw.free_gates(law)

    def step(w, x, y, r):
        b = law.gamma * best.p / (r * ((law.d - 1) * law.k0 + best.p) / law.d + law.sigma_y**2)
        return (law.gamma - b * r / law.d) * w + b * y * x

    return estimate(step), best


def held(law):
    best = fw.zoh_gates(law)
    order = np.argsort(best.r)

    def step(w, x, y, r):
        a, b = (torch.from_numpy(np.interp(r.numpy(), best.r[order], of[order])) for of in (best.a, best.b))
        return a * w + b * y * x

    return estimate(step), best


SIMULATED = [fw.DriftLaw(d, gamma, 0.1, y) for d in (6, 12) for gamma in (0.8, 0.95) for y in (0.0, 0.3)]
EVERY = (gated, normalised, delta, longhorn)
# By law: the sequences of one are kept at a time.
SETTINGS = [(layer, law) for law in SIMULATED for layer in (*EVERY, *((free, held) if law.d == 12 else ()))]


@pytest.mark.statistical
@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("layer", "law"), SETTINGS, ids=[f"{f.__name__}-{w.d}-{w.gamma}-{w.sigma_y}" for f, w in SETTINGS]
)
def test_the_one_equation_against_the_layer_itself(layer, law):
    """Each layer's error is that of its own recurrence run over 1,000 sequences at its optimum: 40 settings of layer,
    dimension, drift and noise.

    A standard error is below 0.7 % of the error, so that 5 % is seen; planted: the delta rule's D with d in
    place of d + 2, 8 % at d = 12, is. (Settings that are a little off hardly cost: those are in the oracle tests.)
    """
    filter, best = layer(law)
    chance.assert_mean(simulated(law, filter), best.error)


def in_digits(d, a):
    """E r / (r + a) and E a / (r + a) in 40 digits: e^x E_s(x) is Tricomi's U(1, 2 - s, x)."""
    with mp.workdps(40):
        x, s = mp.mpf(float(a)) / 2, mp.mpf(d) / 2
        return s * mp.hyperu(1, 1 - s, x), x * mp.hyperu(1, 2 - s, x)


@pytest.mark.parametrize("d", [1, 2, 3, 6, 19, 200])
def test_means_over_lengths_in_closed_form(d):
    """From a = 1e-40 to 1e20, on either side of the change of forms: 1e-14 of each, however small it is."""
    for a in (*np.geomspace(1e-40, 1e20, 13), 1.99, 2.01, 5.0, 30.0):
        for found, right in zip(mean_shrinkage(d, float(a)), in_digits(d, a), strict=True):
            assert found == pytest.approx(float(right), rel=1.5e-14)


@pytest.mark.parametrize("sigma_y", [1e-3, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 10])
def test_lengths_near_nothing_are_seen(d, sigma_y):
    """Faint noise in few dimensions: the p found solves the one equation in 40 digits, to 1e-11. Planted: 128 nodes
    alone, as once, are off by 2% of p in one dimension.
    """
    law = fw.DriftLaw(d, 0.99, 1.0, sigma_y)
    p = fw.best_unit_delta(law).p
    share = in_digits(d, sigma_y**2 / p)[0]
    assert law.q + law.gamma**2 * (p - p * float(share) / d) == pytest.approx(p, rel=1e-11)


@pytest.mark.parametrize("sigma_y", [1e-6, 0.1, 1.0, 1e6])
@pytest.mark.parametrize("d", [1, 2, 5, 200])
def test_gates_and_layers_under_any_noise(d, sigma_y):
    """The best gates of the length solve their equation in 40 digits, 1e-12; a layer that hears keys, on the spectrum
    of one pole, is the layer of unit keys, 1e-9. Faint noise in few dimensions included.
    """
    law = fw.DriftLaw(d, 0.9, 1.0, sigma_y)
    p = fw.free_gates(law).p
    hears = (d - 1) * law.k0 + p
    share = float(in_digits(d, sigma_y**2 * d / hears)[0])
    assert p == pytest.approx(law.q + law.gamma**2 * (p - p**2 / hears * share), rel=1e-12)
    f = spectra.pole_spectrum([law.gamma]) * law.k0
    assert spectra.layer_error(f, d, layer="key-gated", sigma_y=sigma_y) == pytest.approx(
        d * fw._unit_delta(law), rel=1e-9
    )


def test_a_steady_error_below_rounding_is_right_or_refused():
    """So close to gamma = 1 that the error is rounding beside the weights' variance; with loud noise it is not.

    Gates and unit keys keep it, as nothing cancels in their equation: of gated attention, of one weight and no noise,
    it is q.
    """
    for close in (fw.DriftLaw(20, 1 - 1e-15, 1.0, 1.0), fw.DriftLaw(20, 1 - 1e-9, 1.0, 1e3)):
        p = fw.best_unit_delta(close).p
        share = in_digits(20, close.sigma_y**2 / p)[0]
        assert close.q == pytest.approx(float((1 - mp.mpf(close.gamma) ** 2) * p + close.gamma**2 * p * share / 20))
    still = fw.DriftLaw(5, 1 - 1e-12, 1.0)
    with pytest.raises(ValueError, match="gamma must be farther from 1: of a weight's variance"):
        fw.delta_error(still, lam=still.gamma, mu=1 / 7)
    assert fw.free_gates(fw.DriftLaw(1, 1 - 1e-12, 1.0)).p == pytest.approx(1.0, rel=1e-12)


def one_gain_each(law, s):
    """`delta_diagonal` in 50 digits, T by bisection."""
    with localcontext(prec=50):
        g2, q, noise = Decimal(law.gamma) ** 2, Decimal(law.sigma_e) ** 2, Decimal(law.sigma_y) ** 2
        s = [Decimal(float(one)) for one in s]
        low, high = q * sum(s), q / (1 - g2) * sum(s)
        for _ in range(150):
            T, found = (low * high).sqrt(), Decimal(0)
            for one in s:
                R, A = (T + noise) / one, 2 - g2
                B = R * (1 - g2) - 2 * q
                found += one * ((B**2 + 4 * A * R * q).sqrt() - B) / (2 * A)
            low, high = (T, high) if found > T else (low, T)
        return float(high)


@pytest.mark.parametrize("sigma_y", [0.0, 1.0, 1e6])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 1 - 1e-9])
def test_gains_of_channels_under_any_noise(gamma, sigma_y):
    """One gain for each direction is right to 1e-9 (to what rounding leaves of 1 - gamma^2), variances down to 1e-12,
    and one for all is between it and answering 0, which a search left by a factor of 800 where noise was loud.
    """
    law, spectrum = fw.DriftLaw(20, gamma, 1e-6, sigma_y), np.geomspace(1, 1e-12, 20)
    own, shared = fw.delta_diagonal(law, spectrum), fw.delta_shared(law, spectrum)[0]
    assert own == pytest.approx(one_gain_each(law, spectrum), rel=max(1e-9, 2e-16 / (1 - gamma**2)))
    # As noise grows all three meet, to the digits of the search.
    assert own * (1 - 1e-7) <= shared <= law.k0 * spectrum.sum() * (1 + 1e-9)


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1 - 1e-6, 1 - 1e-12])
def test_one_decay_for_white_inputs_under_any_noise(gamma):
    """A decay for all directions is one for each where all are alike, to 1e-7 or what rounding leaves of 1 - gamma^2: a
    search up to 1 - 1e-9 once left seven times the error where drift is slow and noise loud.
    """
    for sigma_y in (0.0, 1.0, 1e6):
        law = fw.DriftLaw(3, gamma, 1e-3, sigma_y)
        found, white = fw.gla_shared(law, np.ones(3))[0], np.ones(3)
        for right in (fw.gla_per_channel(law, white), fw.best_gla(law).error):
            assert found == pytest.approx(right, rel=max(1e-7, 2e-16 / (1 - gamma**2)))


def test_alpha_near_no_length_is_seen_or_refused():
    """64 nodes lose up to 1e-2 of the best alpha's error in one dimension, 4e-5 in two."""
    for d in (1, 2):
        with pytest.raises(ValueError, match="d must be at least 3 for 64 lengths"):
            fw.zoh_gates(fw.DriftLaw(d, 0.95, 0.3))
