"""Floors against the same in 60 digits and more, at settings far apart."""

import functools
import itertools
from decimal import Decimal, localcontext

import mpmath as mp
import numpy as np
import pytest

from icl.tasks import (
    DriftingRegression,
    HeavyTailedDrift,
    LinearDrift,
    RegimeSwitching,
    SmoothDrift,
    StationaryRegression,
)
from icl.tasks.drifts import ar2, sinusoids, two_timescales
from icl.theory import floors, steady


@pytest.fixture(autouse=True)
def digits():
    """120 digits: squares of 1e8 over 1e-8, grown by 1.4 a step, leave more than 60 of them.

    Python's own decimals, which add and multiply ten times as fast as mpmath's numbers.
    """
    with localcontext(prec=120), mp.workdps(120):
        yield


def exact(array):
    """The numbers of an array as decimals, to the last bit."""
    return np.vectorize(Decimal, otypes=[object])(np.asarray(array, dtype=np.float64))


def recursion(H, P, move, asked, noise=0.0):
    """Variance tr(asked_i P) at each position, then P after the label of H_i, moved on; all in decimals.

    A label whose variance is below 1e-72 of what it could be was known.
    """
    found, noise, nothing = [], Decimal(noise) ** 2, Decimal("1e-72")
    for i, h in enumerate(H):
        found.append((asked(i) * P).sum())
        Ph = P @ h
        s = h @ Ph + noise
        if s > nothing * max(P.diagonal()) * (h @ h):
            P = P - np.outer(Ph, Ph / s)
        P = move(P)
    return found


def first_order(x, roots, start, gain, added, noise=0.0):
    """Errors for w_i = gain w_{i-1} + N(0, added^2 I) and inputs x (time, d) of covariance diag(roots)^2."""
    g, q = Decimal(gain) ** 2, Decimal(added) ** 2
    Lambda, eye = exact(np.diag(roots)) ** 2, exact(np.eye(x.shape[1]))
    start = (g * Decimal(start) ** 2 + q) * eye
    return recursion(exact(x), start, lambda P: g * P + q * eye, lambda i: Lambda, noise)


def linear_drift(x, task):
    """Errors of `tasks.drifts.LinearDrift` for Lambda = I."""
    eye = np.eye(task.d)
    F, Q, C = (exact(np.kron(m, eye)) for m in (task.F, task.Q, task.h[:, None]))
    P, asked = F @ exact(np.kron(task.P_0, eye)) @ F.T + Q, C @ C.T
    return recursion(exact(x) @ C.T, P, lambda P: F @ P @ F.T + Q, lambda i: asked)


def smooth(x, task):
    """Errors of `tasks.core.SmoothDrift` for Lambda = I, from its waves."""
    K, eye = task.harmonics + 1, exact(np.eye(task.d))

    def C(i):
        angles = [mp.pi * k * (i + 1) / (task.n + 1) for k in range(K)]
        waves = [wave(angle) * mp.mpf(task.sigma_w) / mp.sqrt(K) for wave in (mp.cos, mp.sin) for angle in angles]
        return np.kron(np.array([[Decimal(mp.nstr(wave, 120))] for wave in waves]), eye)

    each = [C(i) for i in range(task.n + 1)]
    H = [C @ row for C, row in zip(each, exact(x), strict=True)]
    return recursion(H, exact(np.eye(2 * K * task.d)), lambda P: P, lambda i: each[i] @ each[i].T)


def relative(found, right):
    """Largest deviation, relative to each right value; where that is 0 to all its digits, relative to the first."""
    nothing = Decimal("1e-36") * right[0]
    return max(
        float(abs(a - b) / b) if b > nothing else float(abs(a) / (right[0] or 1))
        for a, b in zip(exact(found), right, strict=True)
    )


ROOTS = {"I": np.ones(3), "far apart": np.array([1.0, 1e-3, 1e-6])}
SIGMA_W, SIGMA_E, GAMMA = (1e-8, 1.0, 1e8), (0.0, 1e-8, 0.1, 1e8), (0.0, 0.9, 1.4)


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("roots", ROOTS.values(), ids=ROOTS)
def test_floors_at_settings_far_apart(roots, d):
    """The floor of the drift at each of 10 positions is right to 1e-8 of itself at 36 settings: spreads from 1e-8 to
    1e8, innovations from none to 1e8, gamma from 0 to 1.4, inputs of one size or of three a thousand times apart.

    What is known exactly is 0. All four routes go there: `expected_errors`, `best_linear_errors`, `genie_errors` and
    the query's. The genie's innovations come as variances, whose roots agree to 1e-12.
    """
    roots = roots[:d]
    rng = np.random.default_rng(d)
    for sigma_w, sigma_e, gamma in itertools.product(SIGMA_W, SIGMA_E, GAMMA):
        task = DriftingRegression(d, 9, gamma, sigma_w, sigma_e, Lambda=np.diag(roots**2))
        x = rng.normal(size=(1, 10, d)) * roots
        right = first_order(x[0], roots, sigma_w, gamma, sigma_e)
        found = floors.expected_errors(x, task)
        assert relative(found[0], right) < 1e-8, task
        np.testing.assert_array_equal(floors.best_linear_errors(x, task), found)
        assert floors.query_errors(x, task)[0] == found[0, -1]
        tails = HeavyTailedDrift(d, 9, gamma, sigma_w, sigma_e, Lambda=task.Lambda)
        told = floors.genie_errors(x, tails, np.full((1, 10), sigma_e**2))
        np.testing.assert_allclose(told, found, rtol=1e-7, atol=0)


@pytest.mark.parametrize(
    ("setting", "n"),
    [
        ((2, 100, 1.2), 100),
        ((2, 100, 1.4), 100),
        ((2, 40, 0.9, 1.0, 1e-6), 40),
        ((2, 40, 0.9, 1e6), 40),
        ((3, 20, 0.9, 1e8), 20),
        ((3, 20, 0.9, 1e7, 0.0), 20),
        ((2, 100, 1.0, 1e8, 1e-8), 100),
    ],
)
def test_floors_that_vanished(setting, n):
    """Where floors came out negative or as rounding once: 1e-9 of the right value, by every route and everywhere."""
    task = DriftingRegression(*setting)
    x = np.random.default_rng(n).normal(size=(3, n + 1, task.d))
    for row, *found in zip(
        x,
        floors.expected_errors(x, task),
        floors.best_linear_errors(x, task),
        floors.query_errors(x, task),
        strict=True,
    ):
        right = first_order(row, np.ones(task.d), task.sigma_w, task.gamma, task.sigma_e)
        assert relative(found[0], right) < 1e-9
        assert relative(found[1], right) < 1e-9
        assert relative([found[2]], right[-1:]) < 1e-9 if right[-1] > Decimal("1e-40") else found[2] == 0


@pytest.mark.parametrize("noise", [1e-8, 1e-3, 1.0, 1e8])
@pytest.mark.parametrize("gamma", [0.3, 0.999, 1 - 1e-9])
def test_noisy_floors_at_settings_far_apart(gamma, noise):
    """`kalman_errors` with innovations of 1e-6, 1 and 1e6 and noise from 1e-8 to 1e8, to 1e-8 of itself."""
    for sigma_e in (1e-6, 1.0, 1e6):
        law = steady.DriftLaw(2, gamma, sigma_e, noise)
        x = np.random.default_rng(0).normal(size=(1, 20, 2))
        # The first position has the steady spread, which is that of w_0 once more.
        right = first_order(x[0], np.ones(2), np.sqrt(law.k0), gamma, sigma_e, noise)
        assert relative(floors.kalman_errors(x, law)[0], right) < 1e-8


STATES = {
    "AR(2)": functools.partial(ar2, rho=0.98, omega=0.1),
    "AR(2), large": functools.partial(ar2, rho=0.9, omega=0.5, variance=1e16),
    "AR(2), slow": functools.partial(ar2, rho=0.9999, omega=1e-3),
    "two timescales, 1e20 apart": functools.partial(two_timescales, gammas=(0.9, 0.5), variances=(1e10, 1e-10)),
    "one stands, 1e32 apart": functools.partial(two_timescales, gammas=(1.0, 0.5), variances=(1e16, 1e-16)),
    "rotation": functools.partial(sinusoids, omega=0.7),
    "rotation, slow": functools.partial(sinusoids, omega=1e-5),
    "growing": functools.partial(
        LinearDrift, F=[[1.4, 0.3], [0.0, 1.2]], Q=np.diag([0.0, 1e-2]), h=[1.0, 0.0], P_0=np.diag([1e16, 1.0])
    ),
    "of one number": functools.partial(LinearDrift, F=[[-1.2]], Q=[[0.01]], h=[2.0], P_0=[[1e16]]),
}


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("make", STATES.values(), ids=STATES)
def test_hidden_states_at_settings_far_apart(make, d):
    """`linear_drift_errors` at each of 31 positions is right to 1e-9 of itself, and 0 where all is known."""
    task = make(d, 30)
    x = np.random.default_rng(d).normal(size=(1, 31, d))
    found = floors.linear_drift_errors(x, task)
    assert relative(found[0], linear_drift(x[0], task)) < 1e-9
    assert floors.query_errors(x, task)[0] == pytest.approx(found[0, -1], rel=1e-9)


@pytest.mark.parametrize(("harmonics", "d", "n"), [(1, 2, 12), (3, 2, 16), (3, 1, 5), (6, 1, 20), (12, 1, 12)])
def test_smooth_drift_is_right_to_itself(harmonics, d, n):
    """The floor of a smooth curve at each position to 1e-8 of itself, down to 1e-12 of the first, and then 0: of seven
    waves a kernel in float64 would tell half the digits.
    """
    task = SmoothDrift(d, n, harmonics, 2.0)
    x = np.random.default_rng(n).normal(size=(1, n + 1, d))
    found = floors.gaussian_errors(x, task)
    assert relative(found[0], smooth(x[0], task)) < 1e-8
    assert floors.query_errors(x, task)[0] == found[0, -1]


class Bare:
    """A task that tells its kernel and no more."""

    def __init__(self, task):
        self.d, self.n, self.Lambda, self.inputs = task.d, task.n, task.Lambda, task.inputs
        self.weight_kernel, self.sample = task.weight_kernel, task.sample


@pytest.mark.parametrize(
    "task",
    [
        DriftingRegression(2, 20, 0.9),
        DriftingRegression(2, 20, 1.2),
        StationaryRegression(2, 20),
        DriftingRegression(2, 20, 0.9, sigma_e=0.0),
        RegimeSwitching(2, 20, 0.9, switch=0.3),
    ],
    ids=["fading", "growing", "still", "fading, still", "switching"],
)
def test_a_kernel_alone_tells_nine_digits_of_its_variance(task):
    """Known by their kernel alone weights have the floor of their own steps, to 1e-9 of the variance at a position."""
    x = np.random.default_rng(0).normal(size=(2, 21, 2))
    right = floors.best_linear_errors(x, task)
    scale = 2 * np.diag(task.weight_kernel())
    for found in (floors.gaussian_errors(x, Bare(task)), floors.best_linear_errors(x, Bare(task))):
        assert (np.abs(found - right) <= 1e-9 * scale).all()
        assert (found >= 0).all()


def test_a_kernel_that_has_lost_its_steps_is_refused():
    """At gamma = 1.2 and n = 100 the kernel ends at 1e16 and the innovations are below its rounding."""
    x = np.random.default_rng(0).normal(size=(1, 101, 2))
    with pytest.raises(ValueError, match="task must say how large its steps are"):
        floors.best_linear_errors(x, Bare(DriftingRegression(2, 100, 1.2)))


def test_floors_beyond_float64_are_refused():
    """An error that float64 cannot hold is refused, whichever route asks for it."""
    x = np.random.default_rng(0).normal(size=(1, 6, 3))
    task = DriftingRegression(3, 5, 1e60, 1e100)
    for errors in (floors.expected_errors, floors.best_linear_errors, floors.query_errors):
        with pytest.raises(ValueError, match="must keep all errors within float64"):
            errors(x, task)
    with pytest.raises(ValueError, match="must keep all errors within float64"):
        floors.linear_drift_errors(x, LinearDrift(3, 5, [[1e100]], [[1.0]], [1.0], [[1.0]]))
    with pytest.raises(ValueError, match=r"sigma_w gamma\^d must be at most 1e4 sigma_e"):
        floors.switching_predictions(x, x[..., 0], RegimeSwitching(3, 5, 0.9, sigma_w=1.2e3, sigma_e=0.1))
