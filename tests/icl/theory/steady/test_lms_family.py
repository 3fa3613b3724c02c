"""Exact errors of the filters without a matrix against second moments that are carried in full, and their laws.

The independent way: weights and estimate together, z = (w, w_hat), move by a random matrix T(x), and the covariance of
z by the mean of T(x) (x) T(x), its Kronecker square. That mean is a sum over a quadrature rule which is exact for the
polynomials of degree 4 that it takes, and nothing is diagonalised.
"""

import dataclasses

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from icl.tasks import DriftingRegression
from icl.tasks.core import GAUSSIAN, LAPLACE, RADEMACHER, UNIFORM, square_root
from icl.theory import one_layer
from icl.theory.steady import lms_family

# Oracles


def rule(law):
    """Nodes and weights of a number of mean 0 and variance 1, exact up to degree 5 at least."""
    nodes, weights = {
        GAUSSIAN: np.polynomial.hermite_e.hermegauss(4),
        UNIFORM: np.polynomial.legendre.leggauss(4) * np.array([[3**0.5], [1.0]]),
        LAPLACE: np.polynomial.laguerre.laggauss(4) / np.array([[2**0.5], [1.0]]),
        RADEMACHER: np.ones((2, 1)),
    }[law]
    if law in (LAPLACE, RADEMACHER):
        nodes, weights = np.concatenate([-nodes, nodes]), np.tile(weights, 2)
    return nodes, weights / weights.sum()


def inputs(task):
    """Quadrature over x: points (m, d) and their weights."""
    nodes, weights = rule(task.inputs)
    points = np.stack(np.meshgrid(*[nodes] * task.d, indexing="ij"), -1).reshape(-1, task.d)
    mass = np.stack(np.meshgrid(*[weights] * task.d, indexing="ij"), -1).reshape(-1, task.d).prod(-1)
    return points @ square_root(task.Lambda), mass


def directions(d):
    """Quadrature over the sphere, exact up to degree 5, for d = 1, 2, 3."""
    if d == 1:
        return np.array([[-1.0], [1.0]]), np.full(2, 0.5)
    angle = 2 * np.pi * np.arange(8) / 8
    circle = np.stack([np.cos(angle), np.sin(angle)], -1)
    if d == 2:
        return circle, np.full(8, 1 / 8)
    height, weights = np.polynomial.legendre.leggauss(4)
    points = [np.append(np.sqrt(1 - z**2) * c, z) for z in height for c in circle]
    return np.array(points), np.repeat(weights / 2, 8) / 8


def projections(task, normalised):
    """The matrices M = x x' or x x' / x'x and their weights."""
    x, mass = directions(task.d) if normalised else inputs(task)
    return x[:, :, None] * x[:, None, :], mass


def brute(task, mu, lam, normalised):
    """The error at each position: the covariance of (w, w_hat), from the mean of T (x) T."""
    M, mass = projections(task, normalised)
    eye, d = np.eye(task.d), task.d
    T = np.block([[np.broadcast_to(task.gamma * eye, M.shape), 0 * M], [lam * mu * M, lam * (eye - mu * M)]])
    square = np.einsum("m,mij,mkl->ikjl", mass, T, T).reshape(4 * d * d, 4 * d * d)
    drift = np.zeros((2 * d, 2 * d))
    drift[:d, :d] = task.sigma_e**2 * eye
    moments, found = np.zeros((2 * d, 2 * d)), []
    moments[:d, :d] = (task.gamma**2 * task.sigma_w**2 + task.sigma_e**2) * eye
    miss = np.concatenate([eye, -eye])
    for _ in range(task.n + 1):
        found.append(np.trace(task.Lambda @ miss.T @ moments @ miss))
        moments = (square @ moments.ravel()).reshape(2 * d, 2 * d) + drift
    return np.array(found)


def radius(task, mu, lam, normalised):
    """Spectral radius of the mean of T (x) T for what the estimate does by itself, T = lam (I - mu M): of
    any settings, (*settings).
    """
    M, mass = projections(task, normalised)
    mu, lam, eye = np.asarray(mu)[..., None, None], np.asarray(lam)[..., None, None], np.eye(task.d)
    once, square = np.tensordot(mass, M, 1), np.einsum("m,mij,mkl->ikjl", mass, M, M).reshape(task.d**2, task.d**2)
    mean = np.eye(task.d**2) - mu * (np.kron(once, eye) + np.kron(eye, once)) + mu**2 * square
    return np.abs(np.linalg.eigvals(lam**2 * mean)).max(-1)


def drift(d, gamma, *, n=12, sigma_e=0.3, **options):
    return DriftingRegression(d=d, n=n, gamma=gamma, sigma_w=1.3, sigma_e=sigma_e, **options)


TILTED = np.array([[1.5, 0.4], [0.4, 0.6]])
UNEQUAL = np.diag([0.3, 1.0, 1.6])
LMS = {
    "d = 1": drift(1, 0.9, Lambda=[[0.7]]),
    "isotropic": drift(3, 0.95),
    "tilted": drift(2, 0.9, Lambda=TILTED),
    "unequal": drift(3, 0.9, Lambda=UNEQUAL),
    "singular": drift(2, 0.9, Lambda=np.diag([1.0, 0.0])),
    "uniform": drift(2, 0.9, Lambda=np.diag([0.5, 1.5]), inputs=UNIFORM),
    "signs": drift(3, 0.9, Lambda=UNEQUAL, inputs=RADEMACHER),
    "Laplace": drift(2, 0.9, Lambda=np.diag([0.5, 1.5]), inputs=LAPLACE),
    "white": drift(2, 0.0),
    "random walk": drift(2, 1.0),
    "growing": drift(2, 1.02),
    "still": drift(2, 1.0, sigma_e=0.0),
}
NORMALISED = {
    "d = 1": drift(1, 0.9, Lambda=[[0.7]]),
    "d = 2": drift(2, 0.95, Lambda=2.5 * np.eye(2)),
    "d = 3": drift(3, 0.95),
    "random walk": drift(2, 1.0),
    "white": drift(3, 0.0),
}
CASES = [pytest.param(t, False, id=name) for name, t in LMS.items()]
CASES += [pytest.param(t, True, id=f"normalised {name}") for name, t in NORMALISED.items()]
on_every = pytest.mark.parametrize(("task", "normalised"), CASES)
SETTLING = [case for case in CASES if case.values[0].gamma < 1]


@on_every
def test_errors_are_the_full_second_moments(task, normalised):
    """The error at every position, fading or not, is what the covariance of weights and estimate together gives.

    13 positions, steps up to the edge of stability and beyond it, fading 0.5 to 1.02; rtol 1e-10: sums of positive
    terms up to a cancellation. Planted: one more fourth moment, a kurtosis that is 1 larger, is seen (LMS; the
    normalised form has none).
    """
    for mu in (0.0, 0.05, 0.3, 1.0):
        for lam in (0.5, 0.9, 1.0, 1.02):
            expected = brute(task, mu, lam, normalised)
            np.testing.assert_allclose(
                lms_family.errors(task, mu, lam=lam, normalised=normalised), expected, rtol=1e-10
            )
    if not normalised and task.sigma_e and task.Lambda is not LMS["tilted"].Lambda:
        other = dataclasses.replace(task, inputs=dataclasses.replace(task.inputs, kurtosis=task.inputs.kurtosis + 1))
        found = lms_family.errors(other, 0.3, lam=0.9)
        assert np.abs(found / brute(task, 0.3, 0.9, False) - 1).max() > 1e-3


def test_errors_of_many_settings_are_each_of_them():
    """Step sizes and fadings as arrays are broadcast, positions coming last; steady errors too.

    Bit for bit, sums over two directions being added in one order.
    """
    task = drift(2, 0.9, Lambda=TILTED)
    mu, lam = np.array([0.05, 0.1, 0.2]), np.array([[0.8], [1.0]])
    found, settled = lms_family.errors(task, mu, lam=lam), lms_family.steady_error(task, mu, lam=lam)
    assert found.shape == (2, 3, 13)
    assert settled.shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        np.testing.assert_array_equal(found[i, j], lms_family.errors(task, mu[j], lam=lam[i, 0]))
        assert settled[i, j] == lms_family.steady_error(task, mu[j], lam=lam[i, 0])
    assert lms_family.errors(task, 0.1).shape == (13,)
    assert lms_family.errors(task, mu, lam=0.9).shape == lms_family.errors(task, 0.1, lam=mu).shape == (3, 13)
    assert np.ndim(lms_family.steady_error(task, 0.1)) == 0
    assert lms_family.steady_error(task, mu, lam=0.9).shape == lms_family.steady_error(task, 0.1, lam=mu).shape == (3,)


@pytest.mark.parametrize(("task", "normalised"), SETTLING)
def test_steady_error_is_where_errors_settle(task, normalised):
    """The closed form of the settled error is the error after 1,100 examples, wherever it has settled by then.

    A grid of 5 steps and 4 fadings, those left out whose slowest memory has not sunk below 1e-14; rtol 1e-10.
    """
    long, compared = dataclasses.replace(task, n=1100), 0
    mu, lam = np.array([0.01, 0.05, 0.1, 0.2, 0.5])[:, None], np.array([0.3, 0.8, 0.95, 1.0])
    with np.errstate(over="ignore", invalid="ignore"):
        late = lms_family.errors(long, mu, lam=lam, normalised=normalised)[..., -1]
    settled = lms_family.steady_error(task, mu, lam=lam, normalised=normalised)
    slowest = radius(task, mu, lam, normalised)
    for at in np.ndindex(5, 4):
        if slowest[at] < 0.97:
            np.testing.assert_allclose(settled[at], late[at], rtol=1e-10)
            compared += 1
    assert compared >= 15


@pytest.mark.parametrize(("task", "normalised"), SETTLING)
def test_a_step_too_large_never_settles(task, normalised):
    """The settled error is infinite exactly where the mean of T (x) T has an eigenvalue above 1; elsewhere positive.

    A grid of 25 steps from 0.01 to 4 and 6 fadings from 0.3 to 1.3; left out are spectral radii within 1e-6 of 1.
    Directions that no input probes stay still at lam = 1 and are left out with them.
    """
    kinds = set()
    for lam in (0.3, 0.8, 0.95, 1.0, 1.05, 1.3):
        mu = np.geomspace(0.01, 4, 25)
        settled = lms_family.steady_error(task, mu, lam=lam, normalised=normalised)
        for step, size, error in zip(mu, radius(task, mu, lam, normalised), settled, strict=True):
            if abs(size - 1) > 1e-6:
                assert np.isfinite(error) == (size < 1), (step, lam, size)
                assert error > 0
                kinds.add(bool(size < 1))
    assert kinds == {True, False}


@pytest.mark.parametrize(("d", "law"), [(1, None), (3, None), (3, UNIFORM), (4, RADEMACHER), (2, LAPLACE)])
def test_limits_on_the_step_are_known(d, law):
    """For Lambda = I and lam = 1, LMS settles below mu = 2 / (d + kurtosis - 1), 2 / (d + 2) for Gaussian inputs, and
    NLMS below 2; not at the limit nor above it.

    A millionth below and above; just below, the error is at least a thousand times that at half the limit.
    """
    task = drift(d, 0.9) if law is None else drift(d, 0.9, inputs=law)
    limit = 2 / (d + (3 if law is None else law.kurtosis) - 1)
    for edge, normalised in ((limit, False), (2.0, True)):
        half, below, above = lms_family.steady_error(
            task, edge * np.array([0.5, 1 - 1e-6, 1 + 1e-6]), normalised=normalised
        )
        assert 1e3 * half < below < np.inf
        assert above == np.inf
    assert lms_family.steady_error(task, 2.0, normalised=True) == np.inf


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("d", [1, 2, 7])
def test_lms_settles_as_the_textbook_has_it(d, gamma):
    """For Lambda = I, Gaussian inputs and lam = 1, LMS settles at d times the fixed point of a scalar recurrence,

        v <- (I - mu M) v + (gamma - 1) w + noise,    v = w - w_hat.

    Its mean square e and cross-moment u = E w v solve two linear equations, in which the estimate does not occur. Steps
    of 0.1, 0.5 and 0.9 of the limit; rtol 1e-12.
    """
    task = drift(d, gamma)
    k, q = task.sigma_e**2 / (1 - gamma**2), task.sigma_e**2
    for mu in np.array([0.1, 0.5, 0.9]) * 2 / (d + 2):
        u = (q - gamma * (1 - gamma) * k) / (1 - gamma * (1 - mu))
        shrink = 1 - 2 * mu + mu**2 * (d + 2)
        e = ((1 - gamma) ** 2 * k + q - 2 * (1 - gamma) * (1 - mu) * u) / (1 - shrink)
        np.testing.assert_allclose(lms_family.steady_error(task, mu), d * e, rtol=1e-12)


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize(
    "task",
    [drift(1, 0.9), drift(3, 0.95), drift(10, 0.99), drift(3, 0.5, inputs=UNIFORM), drift(3, 0.9, inputs=LAPLACE)],
    ids=["d = 1", "d = 3", "d = 10", "uniform", "Laplace"],
)
def test_best_is_what_a_minimiser_finds(task, normalised):
    """The closed form of the best step, fading and error is where a minimiser over both ends.

    Nelder and Mead from another point, to 1e-6 in each (a minimum is flat) and 1e-10 in the error; the closed form's
    error is that of its settings, rtol 1e-12, and 1,000 random neighbours do no better.
    """
    mu, lam, error = lms_family.best_steady(task, normalised=normalised)

    def steady(at):
        return lms_family.steady_error(task, abs(at[0]), lam=abs(at[1]), normalised=normalised)

    np.testing.assert_allclose(steady((mu, lam)), error, rtol=1e-12)
    options = {"xatol": 1e-8, "fatol": 1e-13, "maxfev": 2000}
    found = optimize.minimize(steady, (0.6 * mu, 0.9 * lam), method="Nelder-Mead", options=options)
    np.testing.assert_allclose(found.fun, error, rtol=1e-10)
    np.testing.assert_allclose(found.x, (mu, lam), rtol=1e-6)
    near = np.random.default_rng(0).normal(size=(2, 1000)) * 0.1 + 1
    assert (lms_family.steady_error(task, mu * near[0], lam=lam * near[1], normalised=normalised) >= error).all()


def test_special_settings():
    """A filter that does not step errs like answering 0, whether it fades or not, and so does one for weights without a
    past (gamma = 0) at best; inputs that are all 0 ask for nothing; a filter that grows by itself never settles.

    rtol 1e-12.
    """
    task = drift(3, 0.9)
    nothing = one_layer.zero_predictor(dataclasses.replace(task, n=3000))
    for lam in (0.5, 1.0):
        np.testing.assert_allclose(lms_family.steady_error(task, 0.0, lam=lam), nothing, rtol=1e-12)
        np.testing.assert_allclose(lms_family.steady_error(task, 0.0, lam=lam, normalised=True), nothing, rtol=1e-12)
    variance = np.diag(task.weight_kernel())
    np.testing.assert_allclose(lms_family.errors(task, 0.0), 3 * variance, rtol=1e-12)
    assert lms_family.steady_error(task, 0.0, lam=1.1) == np.inf
    white = drift(3, 0.0)
    steps = lms_family.steady_error(white, np.array([0.0, 0.01, 0.1, 0.2]))
    np.testing.assert_allclose(steps[0], 3 * 0.09, rtol=1e-12)
    assert (np.diff(steps) > 0).all()
    np.testing.assert_allclose(lms_family.steady_error(white, 0.1), 3 * 0.09 * (1 + 0.5 / 1.5), rtol=1e-12)
    assert lms_family.best_steady(white) == (0.2, 0.0, pytest.approx(3 * 0.09, rel=1e-12))
    dark = drift(2, 0.9, Lambda=np.zeros((2, 2)))
    assert not lms_family.errors(dark, 0.1).any()
    assert lms_family.steady_error(dark, 0.1, lam=0.9) == 0


@pytest.mark.parametrize(("task", "normalised"), [*CASES[:3], *CASES[-4:-2]])
def test_what_diverges_becomes_infinite(task, normalised):
    """Where a step is too large, errors grow beyond what a float holds and are infinite from there on, never NaN and
    without a warning.

    601 positions with steps of 5 and of 1e200; a small step beside them stays finite.
    """
    found = lms_family.errors(dataclasses.replace(task, n=600), np.array([5.0, 1e200, 0.1]), normalised=normalised)
    assert (found[:2, -1] == np.inf).all()
    assert not np.isnan(found).any()
    assert (np.diff(np.isinf(found[:2]).astype(int)) >= 0).all()
    assert np.isfinite(found[2]).all()


def test_best_of_one_dimension_is_known_at_once():
    """In one dimension the normalised filter with mu = 1 sees the weight itself: its best error is sigma_e^2 Lambda,
    the least there is. rtol 1e-12.
    """
    task = drift(1, 0.9)
    assert lms_family.best_steady(task, normalised=True) == (1.0, 0.9, pytest.approx(0.09, rel=1e-12))
    np.testing.assert_allclose(lms_family.steady_error(task, 1.0, lam=0.9, normalised=True), 0.09, rtol=1e-12)


# Properties

#: A search for the best step in each, so a few examples.
few = settings(max_examples=5)


@given(st.integers(1, 12), st.floats(0.0, 0.99), st.floats(0.05, 2.0), st.floats(0.01, 1.0), st.floats(0.3, 1.0))
@few
def test_settled_errors_keep_their_laws(d, gamma, sigma_e, share, lam):
    """No step and no fading errs less than the closed form of the best, nor than sigma_e^2 d, the spread of what is not
    known yet; the best normalised filter errs less than the best other; and errors scale with sigma_e^2 and Lambda.

    Gaussian inputs, steps up to the limit; rtol 1e-12.
    """
    task = DriftingRegression(d=d, n=3, gamma=gamma, sigma_e=sigma_e)
    *_, normalised = lms_family.best_steady(task, normalised=True)
    *_, other = lms_family.best_steady(task)
    assert d * sigma_e**2 * (1 - 1e-12) <= normalised <= other * (1 + 1e-12)
    mu = share * 2 / (d + 2)
    found = lms_family.steady_error(task, mu, lam=lam)
    assert found >= other * (1 - 1e-12)
    assert lms_family.steady_error(task, 2 * share, lam=lam, normalised=True) >= normalised * (1 - 1e-12)
    scaled = DriftingRegression(d=d, n=3, gamma=gamma, sigma_e=sigma_e / 2, Lambda=16 * np.eye(d))
    np.testing.assert_allclose(lms_family.steady_error(scaled, mu / 16, lam=lam), 4 * found, rtol=1e-12)


def test_errors_below_rounding_are_refused():
    """Weights that stand still are learnt beyond what differences of their variance can tell: refused, not answered
    with rounding. A last error of 2e-9 of the first still is what 60 digits say, to 1e-6; the next is half of it.
    """
    with pytest.raises(ValueError, match=r"task must leave errors of 1e-9 of the zero predictor's"):
        lms_family.errors(DriftingRegression(2, 30, 1.0, sigma_w=2.0, sigma_e=0.0), 1.0, normalised=True)
    found = lms_family.errors(DriftingRegression(2, 29, 1.0, sigma_w=2.0, sigma_e=0.0), 1.0, normalised=True)
    np.testing.assert_allclose(found, 8.0 * 0.5 ** np.arange(30), rtol=1e-6)
    np.testing.assert_allclose(found[:20], 8.0 * 0.5 ** np.arange(20), rtol=1e-9)


def in_digits(task, mu, lam, normalised):
    """The recurrence's own fixed point, c_j and then a_j, in digits enough for the smallest step."""
    with mp.workdps(400):
        d, g, mu, lam = task.d, mp.mpf(task.gamma), mp.mpf(mu), mp.mpf(lam)
        k, size = mp.mpf(task.sigma_e) ** 2 / (1 - g**2), [mp.mpf(v) for v in np.diag(task.Lambda)]
        s = [mp.mpf(1) / d] * d if normalised else size
        own = s if normalised else [(mp.mpf(task.inputs.kurtosis) - 1) * each**2 for each in size]
        across = [mp.mpf(0)] * d if normalised else size
        c = [g * lam * mu * each * k / (1 - g * lam * (1 - mu * each)) for each in s]
        without = [k - 2 * each for each in c]
        system, right = mp.matrix(d, d), mp.matrix(d, 1)
        for j in range(d):
            for i in range(d):
                system[j, i] = -(lam**2) * mu**2 * s[j] * across[i]
            system[j, j] += 1 - lam**2 * (1 - 2 * mu * s[j] + mu**2 * own[j])
            shared = sum(a * e for a, e in zip(across, without, strict=True))
            right[j] = lam**2 * (2 * mu * s[j] * c[j] + mu**2 * (own[j] * without[j] + s[j] * shared))
        a = mp.lu_solve(system, right)
        return float(sum(v * (e + each) for v, e, each in zip(size, without, a, strict=True)))


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.99, 1 - 1e-9, 1 - 1e-12], ids=str)
@pytest.mark.parametrize("mu", [1e-300, 1e-17, 1e-12, 1e-6, 1e-3, 0.1, 1.0])
def test_steps_of_any_size_in_many_digits(mu, gamma):
    """1e-12 of the fixed point from the smallest step on, which leaves d k, and for drift however slow.

    1 - lam^2 (1 - 2 mu s + ..) was 0, and the error infinite, below mu = 1e-16; and errors that are a small share of
    the weights' variance were refused, or off by 6e-8.
    """
    tasks = [DriftingRegression(3, 2, gamma), DriftingRegression(3, 2, gamma, Lambda=np.diag([0.1, 1.0, 2.0]))]
    settled = 0
    for task, normalised in ((tasks[0], False), (tasks[0], True), (tasks[1], False)):
        for lam in {1.0, 0.99, gamma} - {0.0}:
            found = lms_family.steady_error(task, mu, lam=lam, normalised=normalised)
            if not normalised and mu == 1.0:
                assert found == np.inf
                continue
            settled += 1
            assert found == pytest.approx(in_digits(task, mu, lam, normalised), rel=1e-12, abs=0)
    assert settled
    if mu <= 1e-17 and gamma < 0.999:
        assert lms_family.steady_error(tasks[0], mu) == pytest.approx(3 * 0.01 / (1 - gamma**2), rel=1e-12, abs=0)


def test_a_direction_without_inputs_does_not_keep_the_others_from_settling():
    """Nothing moves along it and no input asks for it, so that the error is that of one dimension less."""
    flat = DriftingRegression(3, 2, 0.9, Lambda=np.diag([0.0, 1.0, 2.0]))
    whole = DriftingRegression(2, 2, 0.9, Lambda=np.diag([1.0, 2.0]))
    for lam in (1.0, 0.95):
        assert lms_family.steady_error(flat, 0.1, lam=lam) == pytest.approx(
            lms_family.steady_error(whole, 0.1, lam=lam), rel=1e-12
        )


@pytest.mark.parametrize("gamma", [0.9, 1 - 1e-10], ids=str)
def test_the_best_settled_error_of_slow_drift(gamma):
    """Its closed form in 60 digits, to 1e-14."""
    task = DriftingRegression(4, 2, gamma)
    for normalised, learnt in ((False, mp.mpf(1) / 6), (True, mp.mpf(1) / 4)):
        with mp.workdps(60):
            right = 4 * mp.mpf(task.sigma_e) ** 2 / (1 - mp.mpf(gamma) ** 2 * (1 - learnt))
        assert lms_family.best_steady(task, normalised=normalised)[2] == pytest.approx(float(right), rel=1e-14, abs=0)
