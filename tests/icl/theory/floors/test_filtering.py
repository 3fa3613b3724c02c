"""The floors against the posterior itself, by brute force, for drifts of first order and beyond; and over a wide range
of settings between 0 and the zero predictor, falling with each label, blind to turns.
"""

import functools
import itertools

import chance
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icl import filters
from icl.models.one_layer import features
from icl.profile import make_generator
from icl.tasks import (
    DriftingRegression,
    HeavyTailedDrift,
    LinearDrift,
    RegimeSwitching,
    SmoothDrift,
    StationaryRegression,
)
from icl.tasks.core import LAPLACE
from icl.tasks.drifts import ar2, sinusoids, two_timescales
from icl.theory import moments, one_layer
from icl.theory import steady as fw
from icl.theory.floors import filtering

# Oracles

SPECTRUM = np.array([0.2, 0.7, 2.1])


def test_floor_given_the_inputs():
    """Riccati's recursion is theory.floors' without noise (rtol 1e-9); with it, and with a spectrum, the posterior
    variance of jointly Gaussian labels and weights, written out in full; rtol 1e-9.
    """
    rng = np.random.default_rng(3)
    law = fw.DriftLaw(3, 0.9, 0.3)
    x = rng.normal(size=(4, 12, 3))
    # That room starts a step later: from gamma^2 sigma_w^2 + sigma_e^2, which in steady state is k0 again.
    task = DriftingRegression(d=3, n=5, gamma=0.9, sigma_w=law.k0**0.5, sigma_e=0.3)
    np.testing.assert_allclose(filtering.kalman_errors(x, law), filtering.expected_errors(x, task), rtol=1e-9)
    law = fw.DriftLaw(3, 0.9, 0.3, 0.5)
    one = rng.normal(size=(1, 7, 3)) * np.sqrt(SPECTRUM)
    found = filtering.kalman_errors(one, law, SPECTRUM)[0]
    K = law.k0 * law.gamma ** np.abs(np.subtract.outer(np.arange(7), np.arange(7)))
    for i in range(7):
        X = one[0, :i]
        labels = K[:i, :i] * (X @ X.T) + 0.25 * np.eye(i)
        cross = K[i, :i, None] * X
        P = law.k0 * np.eye(3) - cross.T @ np.linalg.solve(labels, cross)
        np.testing.assert_allclose(found[i], SPECTRUM @ np.diag(P), rtol=1e-9)


LAMBDA = np.array([[2.0, 0.6], [0.6, 0.5]])


def gains(x, kernel):
    """Gain and covariance of w_i given the labels before it, for each i: Gaussian conditioning on all of them at once.

    Written over the stacked weights, cov(w_i, y_j) = k_ij x_j and cov(y_j, y_l) = k_jl x_j'x_l; the pseudo-inverse
    takes labels that repeat what others said. Kernels may be many, (..., time, time), and x of many sequences.
    """
    products, eye = x @ x.swapaxes(-1, -2), np.eye(x.shape[-1])
    for i in range(x.shape[-2]):
        cross = kernel[..., i, None, :i] * x[..., :i, :].swapaxes(-1, -2)
        labels = kernel[..., :i, :i] * products[..., :i, :i]
        gain = cross @ np.linalg.pinv(labels, rcond=1e-10, hermitian=True)
        yield gain, kernel[..., i, i, None, None] * eye - gain @ cross.swapaxes(-1, -2)


def posterior_errors(x, kernel, Lambda):
    """tr(Lambda P) of each sequence's weight given the labels before it, at each position."""
    return np.stack([np.einsum("ij,bji->b", Lambda, P) for _, P in gains(x, kernel)], axis=1)


def densities(x, y, kernel):
    """Log density of the labels (time,) before each i, under each of many kernels."""
    labels = kernel * (x @ x.T)
    for i in range(len(x)):
        size, vectors = np.linalg.eigh(labels[..., :i, :i])
        yield -(np.log(2 * np.pi * size) + (y[:i] @ vectors) ** 2 / size).sum(-1) / 2


def drawn(task, batch, name):
    prompt = task.sample(batch, generator=make_generator(name), dtype=torch.float64)
    return prompt.x.numpy(), prompt.y.numpy()


def random_drift(r, seed, **others):
    """A hidden state of r numbers with nothing special about it; half of its innovations' directions are empty."""
    rng = np.random.default_rng(seed)
    F, h = rng.normal(size=(r, r)) / r**0.5, rng.normal(size=r)
    Q, P_0 = (np.einsum("ik,jk->ij", B, B) for B in (rng.normal(size=(r, (r + 1) // 2)), rng.normal(size=(r, r))))
    return LinearDrift(d=2, n=6, F=F, Q=Q, h=h, P_0=P_0, Lambda=LAMBDA, **others)


LINEAR = {
    "r = 1": random_drift(1, 0),
    "r = 2": random_drift(2, 1),
    "r = 3": random_drift(3, 2),
    "AR(2)": ar2(2, 6, rho=0.9, omega=0.5, Lambda=LAMBDA),
    "two timescales": two_timescales(2, 6, gammas=(0.99, 0.3), variances=(0.3, 2.0), Lambda=LAMBDA),
    "a part stands still": two_timescales(2, 6, gammas=(1.0, 0.3), Lambda=LAMBDA),
    "rotation": sinusoids(2, 6, omega=0.7, Lambda=LAMBDA),
}


@pytest.mark.parametrize("task", LINEAR.values(), ids=LINEAR)
def test_linear_drift_errors_are_the_joint_posterior(task):
    """At every position the error is the trace of Lambda times the covariance of w_i given all labels before.

    The posterior conditions one joint Gaussian whose kernel is built from powers of F. Tolerance 1e-9 of the largest
    error before any label.
    """
    x, _ = drawn(task, 5, "linear")
    covariances = [task.P_0]
    for _ in range(7):
        covariances.append(task.F @ covariances[-1] @ task.F.T + task.Q)
    kernel = np.zeros((7, 7))
    for i, j in itertools.product(range(7), repeat=2):
        if i >= j:
            power = np.linalg.matrix_power(task.F, i - j)
            kernel[i, j] = kernel[j, i] = task.h @ power @ covariances[j + 1] @ task.h
    scale = np.diag(kernel).max() * np.trace(LAMBDA)
    np.testing.assert_allclose(task.weight_kernel(), kernel, rtol=0, atol=1e-13 * np.diag(kernel).max())
    errors = filtering.linear_drift_errors(x, task)
    np.testing.assert_allclose(errors, posterior_errors(x, kernel, LAMBDA), rtol=0, atol=1e-9 * scale)


@pytest.mark.parametrize("sigma_e", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0, 1.02])
def test_first_order_is_the_special_case(gamma, sigma_e):
    """A state of one number is the drift (3): its kernel to rounding, its floor by all routes to 1e-10."""
    known = DriftingRegression(d=3, n=20, gamma=gamma, sigma_w=1.5, sigma_e=sigma_e)
    task = LinearDrift(3, 20, F=[[gamma]], Q=[[sigma_e**2]], h=[1.0], P_0=[[1.5**2]])
    np.testing.assert_allclose(task.weight_kernel(), known.weight_kernel(), rtol=1e-13, atol=1e-300)
    x, _ = drawn(known, 20, "first order")
    expected = filtering.expected_errors(x, known)
    genie = HeavyTailedDrift(3, 20, gamma, 1.5, sigma_e), np.full(x.shape[:2], sigma_e**2)
    for found in (
        filtering.linear_drift_errors(x, task),
        filtering.best_linear_errors(x, known),
        filtering.best_linear_errors(x, task),
        filtering.genie_errors(x, *genie),
    ):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "task",
    [
        ar2(4, 100, rho=0.98, omega=0.1),
        ar2(4, 100, rho=0.999, omega=0.02),
        two_timescales(4, 100, gammas=(0.99, 0.5)),
        sinusoids(4, 100, omega=0.05),
        ar2(4, 100, rho=1.0, omega=0.3),
    ],
    ids=["AR(2)", "AR(2), slow", "two timescales", "rotation", "AR(2) on the circle"],
)
def test_long_prompts_lose_no_digits(task):
    """After 100 labels the recursion still has the error at the query that the joint Gaussian gives, to 1e-8 of d.

    A rotation is known after 2 d labels, and stays so: its recursion holds nothing but rounding from there on.
    """
    x, _ = drawn(task, 10, "long")
    errors = filtering.linear_drift_errors(x, task)
    assert (errors >= 0).all()
    *_, (_, P) = gains(x, task.weight_kernel())
    np.testing.assert_allclose(errors[:, -1], np.trace(P, axis1=1, axis2=2), rtol=0, atol=1e-8 * 4)
    if not task.Q.any():
        assert (errors[:, 20:] < 1e-8).all()


def patterns(task):
    """(probability, switches, kernel given them) of all ways in which n + 1 steps can switch."""
    for flags in itertools.product([False, True], repeat=task.n + 1):
        probability = np.prod([task.switch if flag else 1 - task.switch for flag in flags])
        kernel = np.zeros((task.n + 2, task.n + 2))
        kernel[0, 0] = task.sigma_w**2
        for i, flag in enumerate(flags, start=1):
            if flag:
                kernel[i, i] = task.sigma_w**2
            else:
                kernel[i, :i] = kernel[:i, i] = task.gamma * kernel[i - 1, :i]
                kernel[i, i] = task.gamma**2 * kernel[i - 1, i - 1] + task.sigma_e**2
        yield probability, np.array(flags), kernel[1:, 1:]


SWITCHING = [
    RegimeSwitching(d=2, n=5, gamma=0.9, sigma_w=1.5, sigma_e=0.4, switch=0.2, Lambda=LAMBDA),
    RegimeSwitching(d=2, n=5, gamma=1.0, sigma_w=0.7, sigma_e=0.05, switch=0.6, Lambda=LAMBDA),
    RegimeSwitching(d=1, n=5, gamma=0.95, sigma_w=1.0, sigma_e=0.1, switch=0.05),
]
every_switching = pytest.mark.parametrize("task", SWITCHING, ids=["often", "mostly", "rarely"])


@every_switching
def test_switching_predictions_are_the_posterior_over_all_patterns(task):
    """Mean and expected error at each position are those of the 64-fold mixture of Gaussians over all patterns.

    Each pattern is a joint Gaussian on all labels, weighted by its probability and its density of them, where the
    library has one filter a run length. Tolerance 1e-9 of the label's and the error's scale.
    """
    x, y = drawn(task, 6, "patterns")
    found_y, found = filtering.switching_predictions(x, y, task)
    probabilities, _, kernels = (np.array(each) for each in zip(*patterns(task), strict=True))
    for row, labels, y_hat, errors in zip(x, y, found_y, found, strict=True):
        each = zip(gains(row, kernels), densities(row, labels, kernels), strict=True)
        for i, ((gain, covariances), density) in enumerate(each):
            logs = np.log(probabilities) + density
            weight = np.exp(logs - logs.max())
            weight /= weight.sum()
            means = gain @ labels[:i]
            mean = weight @ means
            apart = means - mean
            spread = np.einsum("j,jab->ab", weight, covariances) + (weight * apart.T) @ apart
            assert abs(y_hat[i] - row[i] @ mean) < 1e-9
            assert abs(errors[i] - np.trace(task.Lambda @ spread)) < 1e-9


@every_switching
def test_what_switching_costs_who_does_not_know(task):
    """The genie's error is that of the pattern's own joint Gaussian; the best linear one that of the mean kernel's.

    The kernel that the task states is the mean over all 64 patterns, to rounding. Tolerance 1e-9 for the errors.
    """
    x, _ = drawn(task, 64, "genie")
    probabilities, restart, kernels = (np.array(each) for each in zip(*patterns(task), strict=True))
    kernel = np.einsum("p,pij->ij", probabilities, kernels)
    np.testing.assert_allclose(task.weight_kernel(), kernel, rtol=1e-13)
    variance = np.where(restart, task.sigma_w**2, task.sigma_e**2)
    genie, linear = filtering.genie_errors(x, task, variance, restart), filtering.best_linear_errors(x, task)
    for law, errors in ((kernels, genie), (kernel, linear)):
        np.testing.assert_allclose(errors, posterior_errors(x, law, task.Lambda), rtol=0, atol=1e-9)
    np.testing.assert_allclose(filtering.query_errors(x, task), linear[:, -1], rtol=0, atol=1e-9)


@every_switching
def test_a_linear_predictor_sees_the_kernel_alone(task):
    """The error of one layer of attention under switching is the mean of its errors under each of the 64 patterns.

    Given a pattern the weights are Gaussian and `gla`'s error is proven for them; it is linear in the kernel, whose
    mean over patterns is the task's. So an error from the task's kernel alone is exact for a law that is not Gaussian.
    A is arbitrary; rtol 1e-12.
    """
    A = np.random.default_rng(0).normal(size=(task.d, task.d))

    def error(kernel):
        m = moments.from_kernel(0.8 ** np.arange(task.n, 0, -1), kernel)
        L = task.Lambda
        quadratic = A @ L @ A.T
        signal, crosstalk = np.trace(quadratic @ L @ L), np.trace(quadratic @ L) * np.trace(L)
        return m.D2 * (2 * signal + crosstalk) + m.D3 * signal - 2 * m.D1 * np.trace(A @ L @ L) + m.D4 * np.trace(L)

    errors = [p * error(k) for p, _, k in patterns(task)]
    np.testing.assert_allclose(one_layer.layer_risk(A, task, lam=0.8), np.sum(errors), rtol=1e-12)


def test_switching_at_its_edges():
    """Without switches the bank is the Kalman filter and its floor; switching at every step nothing is ever known.

    rtol 1e-9. And the first label's error is the variance of w_1, whatever the law.
    """
    x, y = drawn(RegimeSwitching(d=3, n=20, gamma=0.9, switch=0.1), 5, "edges")
    never, known = RegimeSwitching(d=3, n=20, gamma=0.9, switch=0.0), DriftingRegression(d=3, n=20, gamma=0.9)
    y_hat, errors = filtering.switching_predictions(x, y, never)
    np.testing.assert_allclose(errors, filtering.expected_errors(x, known), rtol=1e-9)
    expected = filters.run_filter(filters.kalman(known), torch.as_tensor(x), torch.as_tensor(y)).numpy()
    np.testing.assert_allclose(y_hat, expected, rtol=0, atol=1e-9)
    always = RegimeSwitching(d=3, n=20, gamma=0.9, sigma_w=2.0, switch=1.0)
    y_hat, errors = filtering.switching_predictions(x, y, always)
    np.testing.assert_allclose(y_hat, 0, atol=1e-12)
    np.testing.assert_allclose(errors, 4.0 * 3, rtol=1e-12)
    often = RegimeSwitching(d=3, n=20, gamma=0.9, switch=0.3)
    first = filtering.switching_predictions(x, y, often)[1][:, 0]
    np.testing.assert_allclose(first, often.weight_kernel()[0, 0] * 3, rtol=1e-12)


def test_floors_know_the_past_alone():
    """Later inputs and labels change nothing before them, nor one sequence another; an input of 0 tells nothing."""
    task = RegimeSwitching(d=2, n=8, gamma=0.9, switch=0.2)
    x, y = drawn(task, 40, "past")
    later_x, later_y = x.copy(), y.copy()
    later_x[:, 5:], later_y[:, 4:] = 7.0, -9.0
    before = filtering.switching_predictions(x, y, task)
    after = filtering.switching_predictions(later_x, later_y, task)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one[:, :5], other[:, :5])
        assert (one[:, 5:] != other[:, 5:]).all()
    for one, alone in zip(before, filtering.switching_predictions(x[17:18], y[17:18], task), strict=True):
        np.testing.assert_allclose(one[17:18], alone, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(
        filtering.best_linear_errors(x, task)[:, :5], filtering.best_linear_errors(later_x, task)[:, :5]
    )
    dark_x, dark_y = np.delete(x, 3, axis=1), np.delete(y, 3, axis=1)
    x[:, 3], y[:, 3] = 0.0, 0.0
    told, untold = filtering.switching_predictions(x, y, task), filtering.switching_predictions(dark_x, dark_y, task)
    assert (told[1][:, 4] > untold[1][:, 3]).mean() > 0.9
    assert np.isfinite(told).all()


@functools.cache
def compared(switch):
    """Genie's, posterior mean's and best linear errors at each position of 700 prompts, and squared errors."""
    task = RegimeSwitching(d=5, n=40, gamma=0.95, sigma_w=1.0, sigma_e=0.1, switch=switch)
    prompt, hidden = task.reveal(700, generator=make_generator("compared"), dtype=torch.float64)
    x, y = prompt.x.numpy(), prompt.y.numpy()
    y_hat, bayes = filtering.switching_predictions(x, y, task)
    genie = filtering.genie_errors(x, task, hidden.variance.numpy(), hidden.restart.numpy())
    return genie, bayes, filtering.best_linear_errors(x, task), (y - y_hat) ** 2


def late(rows):
    """What each prompt has on average over its positions from 10 on."""
    return rows[:, 10:].mean(1)


@pytest.mark.statistical(3)
@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("switch", [0.04, 0.1])
def test_the_three_floors_stand_in_order(switch):
    """Genie below posterior mean below best linear, and the posterior mean's expected error is its squared error.

    700 prompts, paired. Squared errors have a standard error below 4 % of what is expected.
    """
    genie, bayes, linear, squared = compared(switch)
    chance.assert_mean(late(squared - bayes), 0, error=0.04 * late(bayes).mean())
    chance.assert_above(late(bayes - genie), by=9)
    chance.assert_above(late(linear - bayes), by=9)
    assert bayes[:, 10:].std() < squared[:, 10:].std()


@pytest.mark.statistical
def test_the_genie_of_heavy_tails_is_below_the_linear_floor():
    """Told the size of each innovation one errs less than the best linear predictor: 3,000 prompts.

    The mean of the innovations' variances is known, sigma_e^2; what it happens to be in a prompt is taken out by
    regression. With nu = 6, where it has a variance.
    """
    task = HeavyTailedDrift(d=5, n=40, gamma=0.95, nu=6.0)
    prompt, hidden = task.reveal(3000, generator=make_generator("tails"), dtype=torch.float64)
    x, variance = prompt.x.numpy(), hidden.variance.numpy()
    linear = filtering.best_linear_errors(x, task)
    gain = (linear - filtering.genie_errors(x, task, variance))[:, 10:].mean(1)
    luck = variance.mean(1) - 0.01
    gain -= np.cov(gain, luck)[0, 1] / luck.var(ddof=1) * luck
    chance.assert_above(gain, by=9)
    known = DriftingRegression(d=5, n=40, gamma=0.95)
    np.testing.assert_allclose(linear, filtering.expected_errors(x, known), rtol=1e-10)


def test_inputs_of_another_law_change_no_floor():
    """A floor is a function of the inputs, not of their law: tasks that differ in it alone agree, bit for bit."""
    tasks = [RegimeSwitching(d=2, n=5, gamma=0.9), RegimeSwitching(d=2, n=5, gamma=0.9, inputs=LAPLACE)]
    x, y = drawn(tasks[1], 3, "laws")
    one, other = (filtering.switching_predictions(x, y, task) for task in tasks)
    np.testing.assert_array_equal(one, other)


LAMBDA_3 = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.4]])


@pytest.mark.parametrize("sigma_e", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 1.0, 1.02])
def test_floor_is_the_brute_force_posterior(gamma, sigma_e):
    """The floor at every position is the trace of Lambda times the posterior covariance of its weight given all labels
    before.

    The posterior conditions one joint Gaussian on all labels at once. With sigma_e = 0 everything is known after d
    examples. Tolerance 1e-9 of the error before any label: both sides are differences from it.
    """
    task = DriftingRegression(d=3, n=7, gamma=gamma, sigma_w=1.5, sigma_e=sigma_e, Lambda=LAMBDA_3)
    x, _ = drawn(task, 5, "floor")
    floor, kernel = filtering.expected_errors(x, task), task.weight_kernel()
    expected = posterior_errors(x, kernel, LAMBDA_3)
    np.testing.assert_allclose(floor, expected, rtol=0, atol=1e-9 * max(np.diag(kernel)) * np.trace(LAMBDA_3))
    if sigma_e == 0:
        assert (floor[:, 3:] <= 1e-9 * floor[:, :1]).all()


@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_an_input_that_repeats_teaches_nothing(gamma):
    """With sigma_e = 0, an input along a direction already known changes nothing: the error is that of the other two.

    2,000 random directions, each seen 12 times at random lengths. rtol 1e-14: one factor gamma^2 a step, and no
    rounding taken for news, which would cost a hundred times as much.
    """
    task = DriftingRegression(d=3, n=11, gamma=gamma, sigma_w=2.0, sigma_e=0.0)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(2000, 1, 3)) * generator.normal(size=(2000, 12, 1))
    unknown = np.where(np.arange(12) == 0, 3, 2) * 4.0 * gamma ** (2 * np.arange(1, 13))
    errors = filtering.expected_errors(x, task)
    np.testing.assert_allclose(errors, np.broadcast_to(unknown, errors.shape), rtol=1e-14)


def test_the_floor_knows_the_past_inputs_alone():
    """The floor at a position does not depend on the inputs from there on, nor on other sequences, bit for bit."""
    task = DriftingRegression(d=3, n=7, gamma=0.9, Lambda=LAMBDA_3)
    x, _ = drawn(task, 4, "past")
    changed = x.copy()
    changed[:, 4:] = 7.0
    changed[2] = 1.0
    before, after = filtering.expected_errors(x, task), filtering.expected_errors(changed, task)
    np.testing.assert_array_equal(before[[0, 1, 3], :5], after[[0, 1, 3], :5])
    assert (before[:, 5:] != after[:, 5:]).all()
    mean, error = filtering.kalman_risk(task, x)
    np.testing.assert_allclose(mean, before.mean(0), rtol=1e-14)
    np.testing.assert_allclose(error**2 * 4 * 3, ((before - before.mean(0)) ** 2).sum(0), rtol=1e-9, atol=1e-30)


def waves(task):
    """The cosines and sines of a smooth drift at each position, (n + 1, 2 K + 2): w_i is their product with N(0, I)."""
    angles = np.pi * np.outer(np.arange(1, task.n + 2) / (task.n + 1), np.arange(task.harmonics + 1))
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * task.sigma_w / np.sqrt(task.harmonics + 1)


@pytest.mark.parametrize("n", [2, 7, 20, 40])
@pytest.mark.parametrize("harmonics", [0, 1, 3, 6])
def test_query_errors_of_a_smooth_drift(harmonics, n):
    """For smooth drift, the error at the query is the posterior variance of a regression on the curve's own
    coefficients.

    Labels are linear in the 2 (K + 1) d coefficients, standard normal beforehand: afterwards they vary in the
    directions that the design lacks, and in no other. Tolerance 1e-9 of the error before any label, 6 harmonics
    included, whose 13 directions have a condition number of 1e9; with d (2 K + 1) labels or more, as many as there are
    unknowns, the curve is known and the error 0, to 1e-15 of it.
    """
    task = SmoothDrift(d=3, n=n, harmonics=harmonics, sigma_w=1.5, Lambda=LAMBDA_3)
    x, _ = drawn(task, 10, "smooth query")
    basis, before = waves(task), 1.5**2 * np.trace(LAMBDA_3)
    errors = filtering.query_errors(x, task)
    for row, error in zip(x, errors, strict=True):
        design = (basis[:-1, :, None] * row[:-1, None, :]).reshape(n, -1)
        _, size, directions = np.linalg.svd(design)
        unseen = directions[(size > 1e-10 * size[0]).sum() :].reshape(-1, basis.shape[1], 3)
        query = np.einsum("k,ukc->uc", basis[-1], unseen)
        np.testing.assert_allclose(error, np.trace(query @ LAMBDA_3 @ query.T), rtol=0, atol=1e-9 * before)
    assert (errors >= 0).all()
    assert (errors <= before).all()
    if n >= 3 * (2 * harmonics + 1):
        assert (errors <= 1e-15 * before).all()


def test_query_errors_are_the_brute_force_posterior():
    """The error at a stationary query is the trace of Lambda times the posterior covariance of its weight given all
    labels.

    The posterior conditions one joint Gaussian. Tolerance 1e-9 of the error before any label; planted: without the
    oldest label it is more than a thousandth of that larger.
    """
    task = StationaryRegression(d=3, n=2, Lambda=LAMBDA_3)
    x, _ = drawn(task, 10, "joint")
    kernel, errors = task.weight_kernel(), filtering.query_errors(x, task)
    before = kernel[-1, -1] * np.trace(LAMBDA_3)
    np.testing.assert_allclose(errors, posterior_errors(x, kernel, LAMBDA_3)[:, -1], rtol=0, atol=1e-9 * before)
    assert (posterior_errors(x[:, 1:], kernel[1:, 1:], LAMBDA_3)[:, -1] > errors + 1e-3 * before).all()


def test_query_errors_know_the_past_inputs_alone():
    """The error at the query does not depend on its own input, nor on other sequences; labels do not enter at all.

    Bit for bit in the query's input, rtol 1e-12 in the company.
    """
    task = SmoothDrift(d=3, n=7, Lambda=LAMBDA_3)
    x, _ = drawn(task, 4, "past")
    changed = x.copy()
    changed[:, -1] = 7.0
    before = filtering.query_errors(x, task)
    np.testing.assert_array_equal(filtering.query_errors(changed, task), before)
    np.testing.assert_allclose(filtering.query_errors(x[2:3], task), before[2:3], rtol=1e-12)
    changed[:, 0] = 1.0
    assert (filtering.query_errors(changed, task) != before).all()


def test_query_errors_without_anything_to_learn():
    """Weights that are all 0 are known; inputs that are all 0 tell nothing; inputs without variance ask for nothing."""
    x = np.random.default_rng(0).normal(size=(3, 5, 2))
    still = DriftingRegression(d=2, n=4, gamma=0.9, sigma_w=0.0, sigma_e=0.0)
    assert not filtering.query_errors(x, still).any()
    task = DriftingRegression(d=2, n=4, gamma=0.9)
    np.testing.assert_allclose(filtering.query_errors(0 * x, task), [one_layer.zero_predictor(task)] * 3, rtol=1e-12)
    dark = DriftingRegression(d=2, n=4, gamma=0.9, Lambda=np.zeros((2, 2)))
    assert not filtering.query_errors(x, dark).any()


@functools.cache
def simulated(gamma):
    """(prompts, floor at their queries) of a small task, 50,000 of them."""
    task = DriftingRegression(d=3, n=6, gamma=gamma, sigma_w=1.0, sigma_e=0.3, Lambda=LAMBDA_3)
    prompt = task.sample(50_000, generator=make_generator(f"floor {gamma}"), dtype=torch.float64)
    return task, prompt, filtering.expected_errors(prompt.x.numpy(), task)[:, -1]


@pytest.mark.statistical
@pytest.mark.parametrize("gamma", [0.8, 1.0])
def test_the_posterior_mean_attains_the_floor(gamma):
    """The posterior mean's squared error on simulated prompts is the floor: the floor is not only a bound.

    50,000 prompts, each one's floor as its control; it sees a floor that is off by 8 %.
    """
    task, prompt, floor = simulated(gamma)
    x, y = prompt.x.numpy(), prompt.y.numpy()
    kernel = task.weight_kernel()
    past = kernel[:-1, :-1] * (x[:, :-1] @ x[:, :-1].swapaxes(1, 2))
    cross = kernel[-1, :-1] * np.einsum("bti,bi->bt", x[:, :-1], x[:, -1])
    y_hat = (np.linalg.solve(past, y[:, :-1, None])[..., 0] * cross).sum(-1)
    chance.assert_mean((y_hat - y[:, -1]) ** 2 - floor, 0, error=0.0055 if gamma < 1 else 0.0082)


@pytest.mark.statistical(3)
@pytest.mark.parametrize("gamma", [0.8, 1.0])
def test_no_predictor_beats_it(gamma):
    """Gated linear attention at its best, ridge regression and answering zero are all above the floor.

    50,000 simulated prompts, each one's floor as its control. In these tasks they lose 10 % at least.
    """
    task, prompt, floor = simulated(gamma)
    x, y = prompt.x.numpy(), prompt.y.numpy()
    lam = one_layer.optimal_forgetting(task)
    A = one_layer.optimum(task, lam=lam).A
    attention = np.einsum("bi,ij,bj->b", features(prompt, lam).numpy(), A, x[:, -1])
    gram = x[:, :-1].swapaxes(1, 2) @ x[:, :-1] + 0.3 * np.eye(3)
    ridge = np.linalg.solve(gram, np.einsum("bt,bti->bi", y[:, :-1], x[:, :-1])[..., None])[..., 0]
    for y_hat in (attention, (ridge * x[:, -1]).sum(-1), np.zeros(len(y))):
        chance.assert_above((y_hat - y[:, -1]) ** 2 - floor, by=9)


def test_a_layer_pays_more_than_the_posterior_on_a_rotation():
    """The posterior mean knows a rotation after 2 d labels; the layer that is minimax on the sphere does not."""
    task = sinusoids(3, 30, omega=0.1)
    x, _ = drawn(task, 5, "minimax")
    assert filtering.query_errors(x, task).max() < 1e-9
    assert one_layer.training_error(task, lam=one_layer.optimal_forgetting(task)) > 0.1


# Properties

scales = st.floats(-8, 8).map(lambda power: 10.0**power)
spreads = st.one_of(st.just(0.0), scales)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def drifts(draw, most=1.4):
    """(task, inputs (4, n + 1, d)) with inputs along their own axes, of sizes up to 1e6 apart."""
    d, n = draw(st.integers(1, 4)), draw(st.integers(1, 20))
    roots = 10.0 ** np.array(draw(st.lists(st.floats(-6, 0), min_size=d, max_size=d)))
    task = DriftingRegression(d, n, draw(st.floats(0, most)), draw(spreads), draw(spreads), Lambda=np.diag(roots**2))
    return task, np.random.default_rng(draw(seeds)).normal(size=(4, n + 1, d)) * roots


@given(drifts())
@settings(max_examples=50)
def test_floors_lie_between_nothing_and_the_zero_predictor(case):
    """Every floor of every sequence is at least 0 and at most D4 tr(Lambda) at its position, to 1e-8 of that; the
    same by all routes, to 1e-8.
    """
    task, x = case
    zero = np.diag(task.weight_kernel()) * np.trace(task.Lambda)
    found = filtering.expected_errors(x, task)
    assert (found >= 0).all()
    assert (found <= zero * (1 + 1e-8)).all()
    switching = RegimeSwitching(task.d, task.n, task.gamma, task.sigma_w, task.sigma_e, 0.0, Lambda=task.Lambda)
    np.testing.assert_allclose(filtering.best_linear_errors(x, switching), found, rtol=2e-8)
    np.testing.assert_array_equal(filtering.query_errors(x, task), found[:, -1])


@settings(max_examples=50)
@given(drifts(most=1.0), st.floats(0, 0.999), spreads)
def test_floors_fall_with_every_label_of_a_drift_that_has_settled(case, gamma, noise):
    """Weights begun in their steady law are the harder to know the fewer of their labels were seen: leaving out the
    first changes no law, and the floor at a position is at most that of the same position seen from one later, to 2e-8.
    """
    task, x = case
    law = fw.DriftLaw(task.d, gamma, 1.0, noise)
    whole, shorter = filtering.kalman_errors(x, law), filtering.kalman_errors(x[:, 1:], law)
    assert (whole[:, 1:] <= shorter * (1 + 2e-8)).all()
    assert (whole <= law.zero_error * (1 + 1e-8)).all()


@settings(max_examples=50)
@given(drifts(), seeds)
def test_floors_know_no_axes(case, seed):
    """Turning the inputs and Lambda together, and exchanging sequences, leaves the floors as they are, to 1e-6 (a turn
    rounds what is small in Lambda; so of one size here), and the order of sequences to the bit.
    """
    task, x = case
    turn, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(task.d, task.d)))
    plain = DriftingRegression(task.d, task.n, task.gamma, task.sigma_w, task.sigma_e)
    x = x / np.sqrt(np.diag(task.Lambda))
    found = filtering.expected_errors(x, plain)
    nothing = 1e-24 * found.max()
    np.testing.assert_allclose(filtering.expected_errors(x @ turn, plain), found, rtol=1e-6, atol=nothing)
    np.testing.assert_array_equal(filtering.expected_errors(x[::-1], plain), found[::-1])
    axes = np.random.default_rng(seed).permutation(task.d)
    np.testing.assert_allclose(filtering.expected_errors(x[..., axes], plain), found, rtol=1e-6, atol=nothing)


@settings(max_examples=50)
@given(drifts(), scales)
def test_floors_have_the_units_of_weights(case, scale):
    """Weights twice as large err four times as much, and inputs twice as large tell what they told: to 1e-7."""
    task, x = case
    found = filtering.expected_errors(x, task)
    larger = DriftingRegression(
        task.d, task.n, task.gamma, task.sigma_w * scale, task.sigma_e * scale, Lambda=task.Lambda
    )
    np.testing.assert_allclose(filtering.expected_errors(x, larger), scale**2 * found, rtol=1e-7, atol=0)
    np.testing.assert_allclose(filtering.expected_errors(scale * x, task), found, rtol=1e-7, atol=0)


@given(st.integers(1, 2), st.integers(1, 20), scales, scales, st.floats(0, 1), seeds)
@settings(max_examples=40)
def test_hidden_floors_lie_between_nothing_and_the_zero_predictor(d, n, slow, fast, gamma, seed):
    """Two speeds of variances from 1e-16 to 1e16, and smooth curves: at least 0, at most the weights' own spread."""
    x = np.random.default_rng(seed).normal(size=(2, n + 1, d))
    for task in (
        two_timescales(d, n, gammas=(1.0, gamma), variances=(slow**2, fast**2)),
        SmoothDrift(d, n, seed % 4, slow),
    ):
        found = filtering.gaussian_errors(x, task)
        assert (found >= 0).all()
        assert (found <= d * np.diag(task.weight_kernel()) * (1 + 1e-9)).all()


def test_an_old_error_shrinks_by_the_share_of_what_is_added():
    """What rounding did before shrinks by `added` over the trace, and what the step does is far smaller. rtol 1e-12."""
    found = filtering._propagate_error(
        1.0, np.eye(2)[None], np.array([2.0]), np.array([0.5]), np.array([3.0]), np.array([1.0])
    )
    np.testing.assert_allclose(found, [1 - 0.5 / (4 * 2 + 2 * 0.5)], rtol=1e-12)
