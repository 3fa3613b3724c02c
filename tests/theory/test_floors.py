"""The floors beyond first-order drift against posteriors by brute force."""

import functools
import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from icl import filters
from icl.profile import streams
from icl.tasks import (
    LAPLACE,
    DriftingRegression,
    HeavyTailedDrift,
    LinearDrift,
    RegimeSwitching,
    ar2,
    sinusoids,
    two_timescales,
)
from icl.theory import floors, moments, one_layer

LAMBDA = np.array([[2.0, 0.6], [0.6, 0.5]])


def posterior(x, y, kernel):
    """Mean and covariance of w_i, and the log density of the labels before it, for each i: one joint Gaussian."""
    time, d = x.shape
    for i in range(time):
        cross = (kernel[i, :i, None] * x[:i]).T
        labels = kernel[:i, :i] * (x[:i] @ x[:i].T)
        gain = cross @ np.linalg.pinv(labels, rcond=1e-10, hermitian=True)
        density = stats.multivariate_normal.logpdf(y[:i], cov=labels, allow_singular=True) if i else 0.0
        yield gain @ y[:i], kernel[i, i] * np.eye(d) - gain @ cross.T, density


def drawn(task, batch, name):
    prompt = task.sample(batch, generator=streams(name), dtype=torch.float64)
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
    error before any label; at the query it is also `kalman.query_errors`, to 1e-8.
    """
    x, y = drawn(task, 5, "linear")
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
    errors = floors.linear_drift_errors(x, task)
    for row, labels, found in zip(x, y, errors, strict=True):
        expected = [np.trace(LAMBDA @ P) for _, P, _ in posterior(row, 0 * labels, kernel)]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * scale)
    np.testing.assert_allclose(errors[:, -1], floors.query_errors(x, task), rtol=0, atol=1e-8 * scale)


@pytest.mark.parametrize("sigma_e", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0, 1.02])
def test_first_order_is_the_special_case(gamma, sigma_e):
    """A state of one number is the drift (3): its kernel to rounding, its floor by all three routes to 1e-10."""
    known = DriftingRegression(d=3, n=20, gamma=gamma, sigma_w=1.5, sigma_e=sigma_e)
    task = LinearDrift(3, 20, F=[[gamma]], Q=[[sigma_e**2]], h=[1.0], P_0=[[1.5**2]])
    np.testing.assert_allclose(task.weight_kernel(), known.weight_kernel(), rtol=1e-13, atol=1e-300)
    x, _ = drawn(known, 20, "first order")
    expected = floors.expected_errors(x, known)
    np.testing.assert_allclose(floors.linear_drift_errors(x, task), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(floors.best_linear_errors(x, known), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        floors.genie_errors(x, HeavyTailedDrift(3, 20, gamma, 1.5, sigma_e), np.full(x.shape[:2], sigma_e**2)),
        expected,
        rtol=0,
        atol=1e-10,
    )


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
    """After 100 labels the recursion still has the error at the query that one linear system gives, to 1e-8 of d.

    A rotation is known after 2 d labels, and stays so: its recursion holds nothing but rounding from there on.
    """
    x, _ = drawn(task, 10, "long")
    errors = floors.linear_drift_errors(x, task)
    assert (errors >= 0).all()
    np.testing.assert_allclose(errors[:, -1], floors.query_errors(x, task), rtol=0, atol=1e-8 * 4)
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
    found_y, found = floors.switching_predictions(x, y, task)
    for row, labels, y_hat, errors in zip(x, y, found_y, found, strict=True):
        ways = [(p, list(posterior(row, labels, kernel))) for p, _, kernel in patterns(task)]
        for i in range(task.n + 1):
            logs = np.array([np.log(p) + way[i][2] for p, way in ways])
            weight = np.exp(logs - logs.max())
            weight /= weight.sum()
            means = np.array([way[i][0] for _, way in ways])
            mean = weight @ means
            apart = means - mean
            spread = np.einsum("j,jab->ab", weight, [way[i][1] for _, way in ways]) + (weight * apart.T) @ apart
            assert abs(y_hat[i] - row[i] @ mean) < 1e-9
            assert abs(errors[i] - np.trace(task.Lambda @ spread)) < 1e-9


@every_switching
def test_what_switching_costs_who_does_not_know(task):
    """The genie's error is that of the pattern's own joint Gaussian; the best linear one that of the mean kernel's.

    The kernel that the task states is the mean over all 64 patterns, to rounding. Tolerance 1e-9 for the errors.
    """
    x, y = drawn(task, 64, "genie")
    ways = list(patterns(task))
    kernel = sum(p * k for p, _, k in ways)
    np.testing.assert_allclose(task.weight_kernel(), kernel, rtol=1e-13)
    restart = np.array([flags for _, flags, _ in ways])
    variance = np.where(restart, task.sigma_w**2, task.sigma_e**2)
    genie, linear = floors.genie_errors(x, task, variance, restart), floors.best_linear_errors(x, task)
    np.testing.assert_allclose(linear[:, -1], floors.query_errors(x, task), rtol=0, atol=1e-9)
    for row, labels, told, unaware, (_, _, given) in zip(x, y, genie, linear, ways, strict=True):
        for law, errors in ((given, told), (kernel, unaware)):
            expected = [np.trace(task.Lambda @ P) for _, P, _ in posterior(row, labels, law)]
            np.testing.assert_allclose(errors, expected, rtol=0, atol=1e-9)


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
    x, y = drawn(RegimeSwitching(d=3, n=20, gamma=0.9, switch=0.1), 20, "edges")
    never, known = RegimeSwitching(d=3, n=20, gamma=0.9, switch=0.0), DriftingRegression(d=3, n=20, gamma=0.9)
    y_hat, errors = floors.switching_predictions(x, y, never)
    np.testing.assert_allclose(errors, floors.expected_errors(x, known), rtol=1e-9)
    expected = filters.run_filter(filters.kalman(known), torch.as_tensor(x), torch.as_tensor(y)).numpy()
    np.testing.assert_allclose(y_hat, expected, rtol=0, atol=1e-9)
    always = RegimeSwitching(d=3, n=20, gamma=0.9, sigma_w=2.0, switch=1.0)
    y_hat, errors = floors.switching_predictions(x, y, always)
    np.testing.assert_allclose(y_hat, 0, atol=1e-12)
    np.testing.assert_allclose(errors, 4.0 * 3, rtol=1e-12)
    often = RegimeSwitching(d=3, n=20, gamma=0.9, switch=0.3)
    first = floors.switching_predictions(x, y, often)[1][:, 0]
    np.testing.assert_allclose(first, often.weight_kernel()[0, 0] * 3, rtol=1e-12)


def test_floors_know_the_past_alone():
    """Later inputs and labels change nothing before them, nor one sequence another; an input of 0 tells nothing."""
    task = RegimeSwitching(d=2, n=8, gamma=0.9, switch=0.2)
    x, y = drawn(task, 40, "past")
    later_x, later_y = x.copy(), y.copy()
    later_x[:, 5:], later_y[:, 4:] = 7.0, -9.0
    before = floors.switching_predictions(x, y, task)
    after = floors.switching_predictions(later_x, later_y, task)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one[:, :5], other[:, :5])
        assert (one[:, 5:] != other[:, 5:]).all()
    for one, alone in zip(before, floors.switching_predictions(x[17:18], y[17:18], task), strict=True):
        np.testing.assert_allclose(one[17:18], alone, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(
        floors.best_linear_errors(x, task)[:, :5], floors.best_linear_errors(later_x, task)[:, :5]
    )
    dark_x, dark_y = np.delete(x, 3, axis=1), np.delete(y, 3, axis=1)
    x[:, 3], y[:, 3] = 0.0, 0.0
    told, untold = floors.switching_predictions(x, y, task), floors.switching_predictions(dark_x, dark_y, task)
    assert (told[1][:, 4] > untold[1][:, 3]).mean() > 0.9
    assert np.isfinite(told).all()


@functools.cache
def compared(switch):
    """Genie's, posterior mean's and best linear errors at each position of 1,500 prompts, and squared errors."""
    task = RegimeSwitching(d=5, n=40, gamma=0.95, sigma_w=1.0, sigma_e=0.1, switch=switch)
    prompt, hidden = task.reveal(1500, generator=streams("compared"), dtype=torch.float64)
    x, y = prompt.x.numpy(), prompt.y.numpy()
    y_hat, bayes = floors.switching_predictions(x, y, task)
    genie = floors.genie_errors(x, task, hidden.variance.numpy(), hidden.restart.numpy())
    return genie, bayes, floors.best_linear_errors(x, task), (y - y_hat) ** 2


def z_of(rows):
    """Mean over prompts of what each has on average over its positions from 10 on, in standard errors."""
    each = rows[:, 10:].mean(1)
    return each.mean() / (each.std(ddof=1) / np.sqrt(len(each)))


@pytest.mark.parametrize("switch", [0.02, 0.1])
def test_the_three_floors_stand_in_order(switch):
    """Genie below posterior mean below best linear, and the posterior mean's expected error is its squared error.

    1,500 prompts, paired. |z| below 6.1 for the equality, failing by chance with probability 1e-9 (by the central limit
    theorem); z above 8 for the order, which these tasks have by far.
    """
    genie, bayes, linear, squared = compared(switch)
    assert abs(z_of(squared - bayes)) < stats.norm.isf(1e-9 / 2)
    assert z_of(bayes - genie) > 8
    assert z_of(linear - bayes) > 8
    assert bayes[:, 10:].std() < squared[:, 10:].std()


def test_the_genie_of_heavy_tails_is_below_the_linear_floor():
    """Told the size of each innovation one errs less than the best linear predictor: 3,000 prompts, z above 8.

    The mean of the innovations' variances is known, sigma_e^2; what it happens to be in a prompt is taken out by
    regression. With nu = 6, where it has a variance.
    """
    task = HeavyTailedDrift(d=5, n=40, gamma=0.95, nu=6.0)
    prompt, hidden = task.reveal(3000, generator=streams("tails"), dtype=torch.float64)
    x, variance = prompt.x.numpy(), hidden.variance.numpy()
    linear = floors.best_linear_errors(x, task)
    gain = (linear - floors.genie_errors(x, task, variance))[:, 10:].mean(1)
    luck = variance.mean(1) - 0.01
    gain -= np.cov(gain, luck)[0, 1] / luck.var(ddof=1) * luck
    assert gain.mean() / (gain.std(ddof=1) / np.sqrt(len(gain))) > 8
    known = DriftingRegression(d=5, n=40, gamma=0.95)
    np.testing.assert_allclose(linear, floors.expected_errors(x, known), rtol=1e-10)


def test_inputs_of_another_law_change_no_floor():
    """A floor is a function of the inputs, not of their law: tasks that differ in it alone agree, bit for bit."""
    tasks = [RegimeSwitching(d=2, n=5, gamma=0.9), RegimeSwitching(d=2, n=5, gamma=0.9, inputs=LAPLACE)]
    x, y = drawn(tasks[1], 3, "laws")
    one, other = (floors.switching_predictions(x, y, task) for task in tasks)
    np.testing.assert_array_equal(one, other)
