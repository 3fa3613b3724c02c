"""Labels as one Gaussian vector against conditional variances written out, and a recursion in many digits."""

import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from icl.profile import make_generator
from icl.tasks import DriftingRegression, Mixture, Noisy, SmoothDrift
from icl.tasks.drifts import ar2
from icl.tasks.noise import noise_level
from icl.theory.floors import joint

TASKS = [
    DriftingRegression(3, 8, 0.9, sigma_w=0.6, sigma_e=0.3),
    Noisy(DriftingRegression(3, 8, 0.8, sigma_w=0.6, sigma_e=0.3), 0.4),
    Noisy(SmoothDrift(3, 8, 2, 0.7), 0.3),
    ar2(3, 8, rho=0.9, omega=0.5),
]


def inputs(task, batch=5, seed=0):
    return task.sample(batch, generator=make_generator("joint", seed=seed), dtype=torch.float64).x.numpy()


def covariance(x, kernel, noise):
    return kernel * (x @ x.T) + noise * np.eye(len(x))


@pytest.mark.parametrize("task", TASKS)
def test_errors_are_conditional_variances(task):
    """Each position's variance given the labels before it, by a solve of its own, less the noise; rtol 1e-9."""
    x, noise = inputs(task), noise_level(task) ** 2
    found = joint.label_errors(x, task)
    for own, row in zip(x, found, strict=True):
        K = covariance(own, task.weight_kernel(), noise)
        expected = [K[i, i] - K[i, :i] @ np.linalg.solve(K[:i, :i], K[:i, i]) - noise for i in range(len(K))]
        np.testing.assert_allclose(row, expected, rtol=1e-9, atol=1e-12)


def test_inputs_of_single_precision_are_computed_with_in_double():
    """Of float32 inputs the errors are those of the same numbers in float64, bit for bit."""
    x = inputs(TASKS[1]).astype(np.float32)
    np.testing.assert_array_equal(joint.label_errors(x, TASKS[1]), joint.label_errors(x.astype(np.float64), TASKS[1]))


@pytest.mark.parametrize("task", TASKS)
def test_who_believes_the_truth_has_the_least_error(task):
    """Told the task's own law the predictor has `label_errors`; told another it is worse on average of every prompt."""
    x, noise = inputs(task), noise_level(task) ** 2
    least = joint.label_errors(x, task)[:, -4:]
    told = joint.misspecified_errors(x, [task], kernel=task.weight_kernel(), noise=noise, last=4)[0]
    np.testing.assert_allclose(told, least, rtol=1e-9, atol=1e-12)
    other = joint.misspecified_errors(x, [task], kernel=0.5 * task.weight_kernel() + 0.2, noise=noise + 0.3, last=4)[0]
    assert (other >= least - 1e-12).all()


def test_a_mistaken_predictor_is_run():
    """Its error is E (w'x - y_hat)^2 of the predictor that solves with what it believes, written out with both
    covariances; rtol 1e-9.
    """
    task, believed, noise = TASKS[1], TASKS[0].weight_kernel(), 0.05
    x = inputs(task, 3)
    found = joint.misspecified_errors(x, TASKS[:2], kernel=believed, noise=noise, last=3)[1]
    for own, row in zip(x, found, strict=True):
        B, K = covariance(own, believed, noise), covariance(own, task.weight_kernel(), 0.0)
        for i, got in zip(range(6, 9), row, strict=True):
            g = np.linalg.solve(B[:i, :i], B[:i, i])
            seen = K[:i, :i] + 0.4**2 * np.eye(i)
            np.testing.assert_allclose(got, K[i, i] - 2 * g @ K[:i, i] + g @ seen @ g, rtol=1e-9)


def test_of_a_mixture_the_mean_law_is_the_best_to_believe():
    """Over two tasks in equal parts no other of 20 random mixtures of kernels and noise has a smaller mean error."""
    tasks = TASKS[:2]
    x, rng = inputs(tasks[0], 4), np.random.default_rng(0)

    def mean(kernel, noise):
        return joint.misspecified_errors(x, tasks, kernel=kernel, noise=noise, last=1).mean(0)

    mixture = Mixture(tasks)
    least = mean(mixture.weight_kernel(), noise_level(mixture) ** 2)
    np.testing.assert_allclose(least, joint.label_errors(x, mixture)[:, -1:], rtol=1e-9)
    for share, noise in zip(rng.uniform(0, 1, 20), rng.uniform(0.001, 0.3, 20), strict=True):
        kernel = share * tasks[0].weight_kernel() + (1 - share) * tasks[1].weight_kernel()
        assert (mean(kernel, noise) >= least - 1e-12).all()


@given(st.integers(1, 3), st.integers(1, 6), st.floats(0.05, 1.0), st.floats(0.1, 2.0))
def test_errors_lie_between_nothing_and_the_zero_predictor(d, n, sigma_y, scale):
    task = Noisy(DriftingRegression(d, n, 0.9, sigma_w=scale, sigma_e=0.3 * scale), sigma_y)
    x = inputs(task, 2)
    found = joint.label_errors(x, task)
    assert (found >= 0).all()
    assert (found <= np.diag(task.weight_kernel()) * (x**2).sum(-1) * (1 + 1e-9)).all()


def one_label_after_another(x, task):
    """x_i'P_i x_i by Riccati's recursion in 60 digits."""
    with mp.workdps(60):
        q, g2, noise = mp.mpf(task.task.sigma_e) ** 2, mp.mpf(task.task.gamma) ** 2, mp.mpf(task.sigma_y) ** 2
        P, found = (g2 * mp.mpf(task.task.sigma_w) ** 2 + q) * mp.eye(task.d), []
        for row in x:
            h = mp.matrix(row.tolist())
            Ph = P * h
            found.append((h.T * Ph)[0])
            P = g2 * (P - Ph * Ph.T / (found[-1] + noise)) + q * mp.eye(task.d)
        return [float(value) for value in found]


@pytest.mark.parametrize("sigma_y", [1e-8, 1.0, 1e4, 1e8])
@pytest.mark.parametrize(("gamma", "sigma_w", "sigma_e"), [(0.9, 1.0, 0.1), (1.2, 1.0, 1e-6), (0.0, 1.0, 1e-6)])
def test_errors_far_below_or_above_the_noise_are_right_or_refused(gamma, sigma_w, sigma_e, sigma_y):
    """Noise from 1e-8 to 1e8 times the weights: 1e-6 of the right value by both routes, or refused; none is rounding.

    Planted: an error taken as L_ii^2 less the noise has lost all digits at 1e8.
    """
    task = Noisy(DriftingRegression(2, 12, gamma, sigma_w, sigma_e), sigma_y)
    x, kernel = inputs(task, 1), task.weight_kernel()
    right = one_label_after_another(x[0], task)
    calls = [
        lambda: joint.label_errors(x, task)[0],
        lambda: joint.misspecified_errors(x, [task], kernel=kernel, noise=sigma_y**2, last=13)[0, 0],
    ]
    for call in calls:
        if min(right) < 1e-7 * max(right):
            with pytest.raises(ValueError, match="labels must not follow from those before them"):
                call()
        else:
            np.testing.assert_allclose(call(), right, rtol=1e-6)
