"""Layers, floor and smoother on a drift of any spectrum against second derivations and drawn inputs."""

import chance
import numpy as np
import pytest
import torch
from scipy import linalg, optimize

from icl.profile import make_generator
from icl.tasks import LinearDrift
from icl.theory import floors
from icl.theory.steady import fast_weights as fw
from icl.theory.steady import large_d, spectra
from icl.theory.steady import linear_layers as ll

SWING = 0.95 * np.exp(0.3j)
#: poles of a drift, and innovations' coefficients of the same
DRIFTS = {"first": [0.9], "swings": [SWING, SWING.conjugate()], "real": [0.95, 0.8]}

ONE = np.eye(1)


def companion(poles):
    """F, Q and h of an autoregressive drift of variance 1, from its coefficients."""
    a = np.real(np.poly(poles))[1:]
    F = np.diag(np.ones(len(a) - 1), -1)
    F[0] = -a
    Q = np.zeros(F.shape)
    Q[0, 0] = 1.0
    return F, Q / linalg.solve_discrete_lyapunov(F, Q)[0, 0], np.eye(len(a))[0]


def riccati_p(poles, R):
    """h'P h of the steady Kalman filter of one weight heard through noise R(p), by iteration of the matrix equation."""
    F, Q, h = companion(poles)
    P = linalg.solve_discrete_lyapunov(F, Q)
    for _ in range(5_000):
        p = h @ P @ h
        P, before = F @ (P - np.outer(P @ h, P @ h) / (p + R(p))) @ F.T + Q, P
        if np.abs(P - before).max() < 1e-15:
            break
    return h @ P @ h


@pytest.mark.parametrize("poles", DRIFTS.values(), ids=DRIFTS)
@pytest.mark.parametrize("sigma_y", [0.0, 0.7])
def test_one_function_for_every_layer(poles, sigma_y):
    """Each layer is a scalar channel: its error is d times that of a matrix Riccati equation for one weight, whose
    noise is the layer's crosstalk, to 1e-9; of first order it is the closed form of `theory.steady`.

    Planted: (d + 1) for (d - 1) in the unit keys' noise; L without its exponential.
    """
    d, f = 10, spectra.pole_spectrum(poles)
    r, weight = fw.squared_lengths(d, nodes=128)
    s2 = sigma_y**2

    def unit(p):
        return 1 / (weight @ (r / d / (r * p + s2))) - p

    hears = {"gla": lambda p: (d + 1) + s2, "delta": lambda p: (d + 1) * p + s2, "key-gated": unit}
    for layer, R in hears.items():
        found = spectra.layer_error(f, d, layer=layer, sigma_y=sigma_y)
        np.testing.assert_allclose(found, d * riccati_p(poles, R), rtol=1e-9, err_msg=layer)
    if len(poles) == 1:
        law = fw.DriftLaw(d, poles[0], np.sqrt(1 - poles[0] ** 2), sigma_y)
        best = (fw.best_gla(law).error, fw.best_delta(law).error, fw.best_unit_delta(law).error)
        np.testing.assert_allclose(
            [spectra.layer_error(f, d, layer=layer, sigma_y=sigma_y) for layer in hears], best, rtol=1e-9
        )


def test_second_order_layers_run_to_their_formula():
    """A state that moves as swinging weights do, its two gains searched for, ends at the formula from above, 1e-4."""
    F, Q, _ = companion(DRIFTS["swings"])
    f = spectra.pole_spectrum(DRIFTS["swings"])

    def error(z):
        return ll.settled_error(ll.forward_model(F, z), F, q=Q[0, 0], d=10)

    found = optimize.minimize(error, (0.05, 0.05), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-10}).fun
    bound = spectra.layer_error(f, 10, layer="delta")
    assert bound * (1 - 1e-9) < found < bound * (1 + 1e-4)


def test_one_weight():
    """d = 1, clean labels, unit keys: after each label the weight is known, and its innovation is left."""
    f = spectra.pole_spectrum([0.8], k=2.0)
    np.testing.assert_allclose(spectra.layer_error(f, 1, layer="key-gated"), 2 * (1 - 0.64), rtol=1e-9)


def test_closed_form_of_first_order():
    """At d = 2,000 and s = -d log gamma^2 the general formulas are the closed forms in s and v, to 1e-6.

    Planted: e / R without its R; L with f / (2 R).
    """
    d = 2_000
    for s, v in ((1.0, 0.0), (3.0, 0.1), (8.0, 2.0)):
        f, ones = spectra.pole_spectrum([np.exp(-s / (2 * d))], n=2**17), np.ones(d)
        sigma_y = np.sqrt(v * d)
        for general, closed in (
            (spectra.filter_error, large_d.kalman_large_d),
            (spectra.smoother_error, large_d.smoother_large_d),
            (spectra.key_gated_large_d, large_d.eps_delta),
            (spectra.gla_large_d, large_d.eps_gla),
        ):
            np.testing.assert_allclose(general(f, ones, sigma_y=sigma_y) / d, closed(s, v), rtol=1e-6)


def test_smoother_solves_its_cubic():
    """S of first-order drift by the roots of its cubic, and its limits s / 4 and 1. Planted: 4 for 2 in the cubic."""
    for s in (1e-6, 0.1, 1.0, 30.0, 1e5):
        for v in (0.0, 1e-3, 1.0, 50.0):
            roots = np.roots([s, s * v + 4, -s, -s * v])
            (S,) = roots[(np.abs(roots.imag) < 1e-9) & (roots.real > 1e-14)].real
            np.testing.assert_allclose(large_d.smoother_large_d(s, v), S, rtol=1e-8)
    np.testing.assert_allclose(large_d.smoother_large_d(1e-8, 0.0), 0.25e-8, rtol=1e-6)
    np.testing.assert_allclose(large_d.kalman_large_d(1e-8, 0.0), np.e / 4 * 1e-8, rtol=1e-6)


@pytest.mark.parametrize("sigma_y", [0.3, 2.0])
def test_slope_law(sigma_y):
    """d log(s2 + error) / d s2 = 1 / (s2 + e), by differences, for unequal inputs and directions that drift apart; and
    the sandwich e < R L(R) at the smoother's R < error < the key-gated layers' < GLA's. rtol 1e-6.

    Planted: the sign of e / R.
    """
    values = np.array([0.5, 1.0, 1.0, 4.0, 2.0])
    f = np.stack(
        [spectra.pole_spectrum([g], k=k) for g, k in zip((0.9, 0.5, 0.97, 0.8, 0.0), range(1, 6), strict=True)]
    )
    s2, h = sigma_y**2, 1e-4

    def log_R(s2):
        return np.log(s2 + spectra.filter_error(f, values, sigma_y=np.sqrt(s2)))

    e = spectra.smoother_error(f, values, sigma_y=sigma_y)
    np.testing.assert_allclose((log_R(s2 + h) - log_R(s2 - h)) / (2 * h), 1 / (s2 + e), rtol=1e-6)
    R = s2 + e
    direct = sum(R * spectra.log_gain(f[j] * values[j], R) for j in range(5))
    np.testing.assert_allclose(e, sum(spectra.smoothed_weight(f[j] * values[j], R) for j in range(5)), rtol=1e-9)
    levels = [
        g(f, values, sigma_y=sigma_y) for g in (spectra.filter_error, spectra.key_gated_large_d, spectra.gla_large_d)
    ]
    assert e < direct < levels[0] < levels[1] < levels[2] < (values * f.mean(1)).sum()


def test_slope_law_on_drawn_inputs():
    """The same at d = 3 for given inputs, exact: d log det K / d s2 is the sum of one over what all other labels leave,
    each by conditioning of its own. rtol 1e-6."""
    n, s2 = 25, 0.4
    x = torch.randn((n, 3), generator=make_generator("slope law"), dtype=torch.float64).numpy()
    clean = x @ x.T * 0.9 ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))

    def log_det(s2):
        return np.linalg.slogdet(clean + s2 * np.eye(n))[1]

    left = []
    for i in range(n):
        o = np.arange(n) != i
        K = clean[np.ix_(o, o)] + s2 * np.eye(n - 1)
        left.append(s2 + clean[i, i] - clean[i, o] @ np.linalg.solve(K, clean[o, i]))
    np.testing.assert_allclose((log_det(s2 + 1e-5) - log_det(s2 - 1e-5)) / 2e-5, (1 / np.array(left)).sum(), rtol=1e-6)
    law = fw.DriftLaw(3, 0.9, np.sqrt(1 - 0.81), np.sqrt(s2))
    P, spread = spectra.state_space_errors(x[None], 0.9 * ONE, law.q * ONE, ONE[0], sigma_y=law.sigma_y)
    np.testing.assert_allclose(P, floors.kalman_errors(x[None], law), rtol=1e-9)
    assert (spread <= P**2 * (1 + 1e-12)).all()
    assert (spread >= P**2 / 3 * (1 - 1e-12)).all()


def test_orders_of_slow_drift():
    """Spectra as omega^(-2m), clean: filter over smoother e^(2m - 1), gates of the key over it (2m)^2m / e^(2m - 1).
    A grid cuts them off. Planted: 2m for 2m - 1.
    """
    d, n = 50, 2**17
    omega = np.minimum(spectra.frequencies(n), 2 * np.pi - spectra.frequencies(n))
    for m in (1, 2):
        f = 1 / np.maximum(omega, 5e-5) ** (2 * m)
        ones = np.ones(d)
        floor, smooth = spectra.filter_error(f, ones), spectra.smoother_error(f, ones)
        np.testing.assert_allclose(floor / smooth, np.exp(2 * m - 1), rtol=0.02)
        worth = (2 * m) ** (2 * m) / np.exp(2 * m - 1)
        np.testing.assert_allclose(spectra.key_gated_large_d(f, ones) / floor, worth, rtol=0.02)


def test_drift_that_stops():
    """A flat band of delta numbers a label, clean: nothing is left for delta < 1; beyond, (delta - 1) / delta and
    (delta / (delta - 1))^(delta - 1) / e, closed forms. rtol 1e-9.
    """
    d, n = 8, 1024
    for delta in (0.5, 2.0, 4.0):
        f = np.zeros(n)
        f[: int(n * delta / d)] = d / delta
        smooth, floor = (e(f, np.ones(d)) / d for e in (spectra.smoother_error, spectra.filter_error))
        if delta < 1:
            assert smooth == floor == 0.0
            with pytest.raises(ValueError, match="sigma_y must be > 0"):
                spectra.log_det_bias(f, np.ones(d))
        else:
            np.testing.assert_allclose(smooth, (delta - 1) / delta, rtol=1e-9)
            np.testing.assert_allclose(floor, (delta / (delta - 1)) ** (delta - 1) / np.e, rtol=1e-9)


def test_term_in_one_over_d():
    """First order: B = sqrt(kk^2 - kk^2 S^2 / (S + v) ..) in closed form, V = s (1 - eps) / (v + eps), and both make
    `corrected_floor`, at d = 1,000 to 1e-2 of the term. On slow clean drift (sqrt 2 - 2 + 4 / e) / d.

    With a(theta) a Lorentz curve of width 2 kk / d, kk = s / (2 S), and height rho at 0, half the mean of log(1 - a) is
    (sqrt(kk^2 - kk rho^2) - kk) / d, rho = S / (S + v). Planted: the half; V without its square.
    """
    d = 1_000
    for s, v in ((1.0, 0.0), (2.0, 0.3)):
        law = fw.DriftLaw(d, np.exp(-s / (2 * d)), np.sqrt(-np.expm1(-s / d)), np.sqrt(v * d))
        S, eps = large_d.smoother_large_d(s, v), large_d.kalman_large_d(s, v)
        kk, rho = s / (2 * S), S / (S + v)
        B, V = np.sqrt(kk**2 - kk * rho**2) - kk, s * (1 - eps) / (v + eps)
        f = spectra.pole_spectrum([law.gamma], n=2**16)
        np.testing.assert_allclose(spectra.log_det_bias(f, np.ones(d), sigma_y=law.sigma_y) * d, B, rtol=1e-2)
        found = spectra.corrected_floor(law, n=2**16) / d
        np.testing.assert_allclose((found - eps) * d, (eps + v) * (B + V), rtol=1e-2)


def test_the_corrected_floor_is_in_units_of_the_labels():
    """With weights and noise twice as large the floor is four times as large; rtol 1e-9."""
    small, large = (fw.DriftLaw(10, 0.9, 0.2 * unit, 0.3 * unit) for unit in (1, 2))
    np.testing.assert_allclose(spectra.corrected_floor(large), 4 * spectra.corrected_floor(small), rtol=1e-9)


# Statistics


@pytest.mark.parametrize("name", ["first", "swings"])
def test_floor_on_drawn_inputs(name):
    """At d = 12 under noise and unequal inputs the formula with its term in 1/d, V from the same run, is within 1 % and
    4 standard errors of Riccati's recursion; without that term it is more than 2 % off. 24 sequences of 300 positions.

    Planted: Lambda left out of the formula; B with the other sign.
    """
    d, sigma_y = 12, 1.2
    F, Q, h = companion(DRIFTS[name])
    values = 8 ** np.linspace(0, 1, d)
    values *= d / values.sum()
    x = torch.randn((24, 420, d), generator=make_generator(f"spectra {name}"), dtype=torch.float64).numpy() * np.sqrt(
        values
    )
    errors, spread = (
        a[:, 120:].mean(1) for a in spectra.state_space_errors(x, F, Q, h, spectrum=values, sigma_y=sigma_y)
    )
    mean, error = errors.mean(), errors.std(ddof=1) / np.sqrt(24)
    f = spectra.pole_spectrum(DRIFTS[name])
    limit = spectra.filter_error(f, values, sigma_y=sigma_y)
    B, R = spectra.log_det_bias(f, values, sigma_y=sigma_y), limit + sigma_y**2
    found = limit + R * (B + spread.mean() / (mean + sigma_y**2) ** 2)
    assert abs(found / mean - 1) < 0.01
    assert limit < 0.98 * mean
    assert error < 0.005 * mean
    if name == "first":
        law = fw.DriftLaw(d, 0.9, np.sqrt(1 - 0.81), sigma_y)
        np.testing.assert_allclose(spectra.corrected_floor(law, values), mean, rtol=0.015)


@pytest.mark.statistical
def test_smoother_on_drawn_inputs():
    """The smoother's error, by conditioning one weight vector on all other labels, at d = 10 and 20 under noise, and
    from both at 1/d = 0: the formula, with a standard error below 1.5 %. 150 sequences each.

    Planted: half of the labels, the past, in place of all.
    """
    found = {}
    for d in (10, 20):
        gamma, sigma_y, n = np.exp(-1 / d), np.sqrt(0.2 * d), 6 * d
        i, others, each = 3 * d, np.arange(6 * d) != 3 * d, []
        x = torch.randn((150, n, d), generator=make_generator(f"smoother {d}"), dtype=torch.float64).numpy()
        r = gamma ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
        for key in x:
            K = (key @ key.T * r + sigma_y**2 * np.eye(n))[np.ix_(others, others)]
            cross = r[i, others, None] * key[others]
            each.append(d - (cross * np.linalg.solve(K, cross)).sum())
        e = spectra.smoother_error(spectra.pole_spectrum([gamma]), np.ones(d), sigma_y=sigma_y)
        found[d] = (np.mean(each) / e, np.std(each, ddof=1) / np.sqrt(150) / e)
    limit = 2 * found[20][0] - found[10][0]
    error = np.hypot(2 * found[20][1], found[10][1])
    chance.assert_z((limit - 1) / error, of=150)
    assert error < 0.015


def test_states_are_those_of_other_rooms():
    """Without noise `state_space_errors` is `floors.linear_drift_errors`, to 1e-7, from the stationary start."""
    d, n = 4, 30
    F, Q, h = companion(DRIFTS["real"])
    task = LinearDrift(d, n, F=F, Q=Q, h=h, P_0=linalg.solve_discrete_lyapunov(F, Q))
    x = torch.randn((3, n + 1, d), generator=make_generator("states"), dtype=torch.float64).numpy()
    found = spectra.state_space_errors(x, F, Q, h)[0]
    np.testing.assert_allclose(found, floors.linear_drift_errors(x, task), rtol=1e-7)
