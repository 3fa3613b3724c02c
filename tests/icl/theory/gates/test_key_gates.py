"""The bound for gates of the current key against other rooms, means over keys, and layers that are run over
prompts; the ladder of earlier keys against an exact table in two dimensions.
"""

import functools

import chance
import numpy as np
import pytest
from scipy import integrate, linalg

from icl.theory.gates import finite_key_gates
from icl.theory.gates import key_gates as kg
from icl.theory.steady import fast_weights as fw
from icl.theory.steady import spectra

WALK = np.array([[1.0]])
SWING = np.array([[1.9 * np.cos(0.3), -(0.95**2)], [1.0, 0.0]])
LAWS = [fw.DriftLaw(d, gamma, 0.3, y) for d in (1, 2, 3, 10) for gamma in (0.6, 0.95) for y in (0.0, 0.5)]
SPECTRUM = np.array([0.2, 0.7, 2.1])


def uneven(sigma_y=0.4):
    """A drift of no special form: dense matrices, fewer weights than numbers in the state."""
    rng = np.random.default_rng(4)
    F = rng.normal(size=(4, 4))
    Q, Lambda = (M @ M.T + 0.1 * np.eye(len(M)) for M in (rng.normal(size=(4, 4)), rng.normal(size=(2, 2))))
    return kg.MovingWeights(0.9 * F / np.abs(np.linalg.eigvals(F)).max(), rng.normal(size=(2, 4)), Q, Lambda, sigma_y)


def at_fixed_point(bound, step, drift):
    np.testing.assert_allclose(step(bound.P, drift), bound.P, rtol=0, atol=1e-10 * np.abs(bound.P).max())
    np.testing.assert_allclose(bound.error, np.trace(drift.Lambda @ drift.H @ bound.P @ drift.H.T), rtol=1e-12)


# Oracles


@pytest.mark.parametrize("law", LAWS)
def test_on_first_order_drift_it_is_longhorn(law):
    """Lambda = I, first order: the bound is best_unit_delta's error, at every d and noise; rtol 1e-9.

    Planted: d in place of d + 2 in the product's power is seen.
    """
    found = kg.key_gated_bound(kg.from_drift_law(law))
    np.testing.assert_allclose(found.error, fw.best_unit_delta(law).error, rtol=1e-9)
    np.testing.assert_allclose(found.P, found.error / law.d * np.eye(law.d), rtol=0, atol=1e-10 * found.error)


@pytest.mark.parametrize("sigma_y", [0.0, 0.4])
def test_the_map_is_the_mean_of_kalmans_step(sigma_y):
    """A drift of no special form: the map is the mean of Kalman's step over a grid of Gaussian keys in the plane, 1e-8.

    Planted: H left out of the denominator, and F of the last factor, are seen.
    """
    drift = uneven(sigma_y)
    P = np.eye(4) + 0.3
    found = kg.averaged_step(P, drift)

    def step(x):
        s = x @ drift.H
        k = s @ P
        told = k[:, :, None] * k[:, None, :] / ((k * s).sum(1) + sigma_y**2)[:, None, None]
        return drift.F @ (P - told) @ drift.F.T + drift.Q

    root = linalg.cholesky(drift.Lambda, lower=True)
    angle = np.arange(400) * np.pi / 200
    around = np.stack([np.cos(angle), np.sin(angle)], 1)
    nodes, weight = np.polynomial.legendre.leggauss(200)
    r, weight = 5 * (nodes + 1), 5 * weight
    mean = sum(w * s * np.exp(-(s**2) / 2) * step(s * around @ root.T).mean(0) for s, w in zip(r, weight, strict=True))
    np.testing.assert_allclose(found, mean, rtol=1e-8)


def test_ratios_of_squares():
    """E u_j^2 / D by quadrature over an angle for two sizes, and the sums that hold for any: sum l_j E u_j^2 / D = 1
    without noise, sum l_i l_j E u_i^2 u_j^2 / D^2 = 1; rtol 1e-11.
    """
    for sizes in (np.array([2.0]), np.array([1.0, 5.0]), np.geomspace(1e-4, 3, 7), np.ones(40)):
        one, two = kg.ratio_moments(sizes, 0.0)
        np.testing.assert_allclose((sizes @ one, sizes @ two @ sizes), 1.0, rtol=1e-11)
        one, two = kg.ratio_moments(sizes, 0.7)
        assert sizes @ one < 1
        assert (two < kg.ratio_moments(sizes, 0.0)[1]).all()
    one, _ = kg.ratio_moments(np.array([1.0, 5.0]), 0.0)
    mean = integrate.quad(lambda a: np.cos(a) ** 2 / (np.cos(a) ** 2 + 5 * np.sin(a) ** 2), 0, np.pi)[0] / np.pi
    np.testing.assert_allclose(one[0], mean, rtol=1e-11)


@pytest.mark.parametrize("sigma_y", [0.0, 0.5])
def test_without_sight_of_the_key_it_is_the_diagonal_delta_rule(sigma_y):
    """First order, diagonal Lambda: delta_diagonal, rtol 1e-9; white keys: linear_bound; not below gates that see.

    Planted: 1 in place of 2 before Lambda S Lambda is seen.
    """
    law = fw.DriftLaw(3, 0.9, 0.3, sigma_y)
    drift = kg.from_drift_law(law, SPECTRUM)
    blind = kg.data_free_bound(drift)
    np.testing.assert_allclose(blind.error, fw.delta_diagonal(law, SPECTRUM), rtol=1e-9)
    np.testing.assert_allclose(kg.data_free_bound(kg.from_drift_law(law)).error, fw.linear_bound(law), rtol=1e-9)
    assert kg.key_gated_bound(drift).error < blind.error


@pytest.mark.parametrize("d", [3, 10])
def test_any_drift_of_a_coordinate_by_its_spectrum(d):
    """White keys, clean labels: p solves L((d - 1) p) = log (d / (d - 1)) for the mean of log (1 + f / R) over the
    spectrum f of a coordinate; second order with turning poles, rtol 1e-9.
    """
    drift = kg.per_coordinate(SWING, q=1.0, d=d)
    p = kg.key_gated_bound(drift).error / d
    w = np.arange(4096) * 2 * np.pi / 4096
    f = 1 / np.abs(1 - SWING[0, 0] * np.exp(1j * w) - SWING[0, 1] * np.exp(2j * w)) ** 2
    np.testing.assert_allclose(np.log1p(f / ((d - 1) * p)).mean(), np.log(d / (d - 1)), rtol=1e-9)
    blind = kg.data_free_bound(drift).error / d
    R = (d + 1) * blind
    np.testing.assert_allclose(blind, R * np.expm1(np.log1p(f / R).mean()), rtol=1e-9)


def test_many_dimensions():
    """d times the distance to `spectra.key_gated_large_d` hardly changes from d = 40 to 80: a term in 1/d; 10%."""
    w = np.arange(2048) * 2 * np.pi / 2048
    off = []
    for d in (40, 80):
        gamma = np.sqrt(1 - 1 / d)
        drift = kg.per_coordinate(np.array([[gamma]]), q=1 / d, d=d, sigma_y=np.sqrt(0.1 * d))
        f = (1 / d) / np.abs(1 - gamma * np.exp(1j * w)) ** 2
        large = spectra.key_gated_large_d(f, np.ones(d), sigma_y=np.sqrt(0.1 * d))
        off.append((kg.key_gated_bound(drift).error - large) * d / d)
    assert off[0] == pytest.approx(off[1], rel=0.1)


@pytest.mark.parametrize("drift", [uneven(), uneven(0.0), kg.per_coordinate(WALK, q=2.0, d=4, sigma_y=3.0)])
def test_bounds_are_fixed_points_between_the_floor_and_blindness(drift):
    """Each bound is a fixed point of its map, 1e-10; in the order of matrices seeing gates lie below blind ones."""
    seeing, blind = kg.key_gated_bound(drift), kg.data_free_bound(drift)
    at_fixed_point(seeing, kg.averaged_step, drift)
    at_fixed_point(blind, kg.data_free_step, drift)
    assert np.linalg.eigvalsh(blind.P - seeing.P)[0] > -1e-9 * np.trace(blind.P)


@pytest.mark.parametrize("step", [kg.averaged_step, kg.data_free_step])
def test_the_map_increases_and_is_concave(step):
    """On 20 pairs of random covariances of any rank, in the order of matrices, to rounding."""
    drift, rng = uneven(), np.random.default_rng(2)
    for _ in range(20):
        P, more = (M @ M.T for M in rng.normal(size=(2, 4, 2)))
        low, high, middle = step(P, drift), step(P + more, drift), step(P + more / 2, drift)
        assert np.linalg.eigvalsh(high - low)[0] > -1e-9
        assert np.linalg.eigvalsh(middle - (low + high) / 2)[0] > -1e-9


# Layers


def simulated(drift, batch, time, seed):
    rng = chance.rng(seed)
    m, d = len(drift.F), len(drift.H)
    root_x, root_q = np.linalg.cholesky(drift.Lambda), np.linalg.cholesky(drift.Q + 1e-14 * np.eye(m))
    x = rng.normal(size=(batch, time, d)) @ root_x.T
    z, clean = np.zeros((batch, m)), np.zeros((batch, time))
    for i in range(time):
        z = z @ drift.F.T + rng.normal(size=(batch, m)) @ root_q.T
        clean[:, i] = (x[:, i] @ drift.H * z).sum(1)
    return x, clean, clean + drift.sigma_y * rng.normal(size=clean.shape)


@pytest.mark.statistical(2)
@pytest.mark.parametrize("drift", [uneven(), kg.per_coordinate(SWING, q=1.0, d=3)])
def test_one_state_attains_the_bound(drift):
    """The layer of the proof, run over 1,500 sequences: its error is the bound's in the mean of sequences; with another
    P it is larger in most of them.

    Planted: the gain of P^2, and F left out of the state's move, are seen.
    """
    x, clean, y = simulated(drift, 1_500, 160, 3)
    bound = kg.key_gated_bound(drift)
    squares = (kg.best_layer_answers(x, y, drift, bound.P) - clean)[:, 80:] ** 2
    chance.assert_mean(squares.mean(1), bound.error, error=0.01 * bound.error)
    spoilt = np.diag(np.arange(1.0, len(drift.F) + 1)) ** 2
    worse = (kg.best_layer_answers(x, y, drift, spoilt) - clean)[:, 80:] ** 2
    chance.assert_mostly((worse - squares).mean(1) > 0, by=12)


# Earlier keys


@functools.cache
def directions(n=12):
    angle = np.arange(n) * np.pi / n
    return np.sqrt(2) * np.stack([np.cos(angle), np.sin(angle)], 1)


def test_one_earlier_key_is_the_fixed_point_in_two_dimensions():
    """On a random walk (5 + sqrt 5) / 2 q, rtol 1e-10; and for other drifts what the exact table over twelve directions
    gives, rtol 1e-4 (a grid of angles).
    """
    np.testing.assert_allclose(kg.one_earlier_key(2, 1.0, 0.7), 0.7 * (5 + np.sqrt(5)) / 2, rtol=1e-10)
    assert kg.one_earlier_key(5, 0.0, 0.3) == pytest.approx(5 * 0.3)
    for gamma in (0.8, 0.97):
        table = finite_key_gates.finite_ladder(directions(), kg.per_coordinate(np.array([[gamma]]), q=1.0, d=2), 1)
        np.testing.assert_allclose(kg.one_earlier_key(2, gamma, 1.0), table, rtol=1e-4)


@pytest.mark.statistical(3)
def test_one_earlier_key_is_reached():
    """In 6 dimensions the restarted layer with the start that makes R = S has that error over 300 sequences, and two
    other starts err more on the same.
    """
    d, q, gamma = 6, 1.0, 0.95
    drift = kg.per_coordinate(np.array([[gamma]]), q=q, d=d)
    x = chance.rng(5).normal(size=(300, 90, d))
    exact = kg.one_earlier_key(d, gamma, q)
    t = (exact - q) / (d - 1)

    def run(prior):
        return kg.windowed_errors(x, drift, 1, prior * np.eye(d))[:, 45:].mean(1)

    best = run((t - q) / gamma**2)
    chance.assert_mean(best, exact)
    for prior in (0.3 * t, 3 * t):
        chance.assert_above(run(prior) - best, by=9)
    assert exact < kg.key_gated_bound(drift).error


@pytest.mark.statistical(4)
def test_the_restarted_layer_is_near_the_best_in_two_dimensions():
    """Random walk, 0 to 3 earlier keys: over 3,000 sequences at most half a per cent above the exact table, and not
    below.
    """
    walk = kg.per_coordinate(WALK, q=1.0, d=2)
    x = chance.rng(6).normal(size=(3_000, 40, 2))
    for window in range(4):
        best = finite_key_gates.finite_ladder(directions(), walk, window)
        errors = kg.windowed_errors(x, walk, window, 2.0 * np.eye(2))[:, 20:].mean(1)
        chance.assert_mean(errors, np.clip(errors.mean(), best, 1.005 * best))


def test_a_window_of_everything_is_the_kalman_filter():
    """With a window as long as the sequence: Riccati's step for one key at a time, rtol 1e-9. Noisy labels; dense
    matrices, of which no two change places.
    """
    drift = uneven()
    x = np.random.default_rng(8).normal(size=(2, 12, 2))
    prior = np.diag([0.5, 1.0, 2.0, 0.7]) + 0.2
    found = kg.windowed_errors(x, drift, 12, prior)
    for keys, errors in zip(x, found, strict=True):
        P = prior
        for key, error in zip(keys, errors, strict=True):
            np.testing.assert_allclose(error, np.trace(drift.Lambda @ drift.H @ P @ drift.H.T), rtol=1e-9)
            s = drift.H.T @ key
            P = drift.F @ (P - np.outer(P @ s, P @ s) / (s @ P @ s + drift.sigma_y**2)) @ drift.F.T + drift.Q
