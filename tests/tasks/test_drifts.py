"""Drifts beyond the first order: repeatable, of the sizes and dtypes asked for, and with the kernels they state."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from icl.profile import streams
from icl.tasks import (
    LAPLACE,
    RADEMACHER,
    UNIFORM,
    DriftingRegression,
    HeavyTailedDrift,
    LinearDrift,
    RegimeSwitching,
    Task,
    ar2,
    sinusoids,
    two_timescales,
)

DIAGONAL = np.diag([3.0, 2.0, 1.0])
TASKS = {
    "AR(2)": ar2(3, 5, rho=0.9, omega=0.4, Lambda=DIAGONAL),
    "two timescales": two_timescales(3, 5, gammas=(0.99, 0.5), Lambda=DIAGONAL, inputs=UNIFORM),
    "rotation": sinusoids(3, 5, omega=0.3),
    "switching": RegimeSwitching(d=3, n=5, gamma=0.9, switch=0.3, Lambda=DIAGONAL),
    "heavy tails": HeavyTailedDrift(d=3, n=5, gamma=0.9, nu=2.5, Lambda=DIAGONAL, inputs=LAPLACE),
}
every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
hidden_tasks = pytest.mark.parametrize("name", ["switching", "heavy tails"])


def same(a, b):
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in ("x", "y", "w"))


@every_task
def test_a_task_is_a_task_and_repeats_itself(task):
    """It offers what the protocol asks for; the same stream gives the same prompts bit for bit, another one others."""
    assert isinstance(task, Task)
    before = torch.get_rng_state()
    first, again, other = (task.sample(4, generator=streams("prompts", seed=s)) for s in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert (first.batch, first.n, first.d) == (4, 5, 3)
    assert task.weight_kernel().shape == (6, 6)
    assert same(first, again)
    assert not torch.isin(first.x, other.x).any()
    assert not torch.isin(first.w, other.w).any()
    assert len(first.w.flatten().unique()) == first.w.numel()


@every_task
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_device_are_those_asked_for(task, dtype):
    """Prompts have the dtype and the device that were asked for; "meta" is a device that every machine has."""
    for device, expected in ((None, "cpu"), ("cpu", "cpu"), ("meta", "meta")):
        prompt = task.sample(2, generator=streams("dtype"), dtype=dtype, device=device)
        for array in (prompt.x, prompt.y, prompt.w):
            assert array.dtype == dtype
            assert array.device.type == expected


@every_task
def test_labels_are_products_without_noise(task):
    """Every label is <w_i, x_i>, the query's included. Tolerance: rounding of a sum of d products."""
    prompt = task.sample(50, generator=streams("labels"), dtype=torch.float64)
    assert ((prompt.y - (prompt.w * prompt.x).sum(-1)).abs() <= 4e-15 * (prompt.w * prompt.x).abs().sum(-1)).all()


@hidden_tasks
def test_what_is_revealed_belongs_to_the_prompts_that_sample_draws(name):
    """`reveal` draws what `sample` draws, bit for bit, and tells of each position; signs as inputs draw no less."""
    for task in (TASKS[name], type(TASKS[name])(d=2, n=4, gamma=0.9, inputs=RADEMACHER)):
        prompt, hidden = task.reveal(7, generator=streams("reveal"))
        assert same(prompt, task.sample(7, generator=streams("reveal")))
        assert hidden.variance.shape == hidden.restart.shape == prompt.y.shape
        assert hidden.variance.dtype == torch.float32
        assert hidden.restart.dtype == torch.bool


def test_where_switches_fall_does_not_hang_on_the_dtype():
    """Switches are drawn in float64 whatever the dtype: as probable as stated, and none at all for probability 0."""
    for dtype in (torch.float32, torch.float64):
        for switch, expected in ((0.0, False), (1.0, True)):
            task = RegimeSwitching(d=1, n=50, gamma=0.9, sigma_w=2.0, switch=switch)
            _, hidden = task.reveal(200, generator=streams("edges"), dtype=dtype)
            assert (hidden.restart == expected).all()
            np.testing.assert_allclose(hidden.variance.numpy(), 4.0 if expected else 0.01, rtol=1e-6)


def assert_is_a_covariance(kernel):
    np.testing.assert_array_equal(kernel, kernel.T)
    values = np.linalg.eigvalsh(kernel)
    assert values[0] >= -1e-12 * len(kernel) * max(values[-1], 0)


lags = np.abs(np.subtract.outer(np.arange(21), np.arange(21)))


@given(st.floats(0, 1), st.floats(0, np.pi), st.just(0.0) | st.floats(1e-6, 9))
def test_second_order_drift_obeys_yule_and_walker(rho, omega, variance):
    """Its kernel depends on the lag alone, c(l) = a_1 c(l-1) + a_2 c(l-2), with variance c(0) and c(1) = a_1 c(0) +
    a_2 c(1). Tolerance 1e-11 of the variance: fifty steps of a recursion that forgets nothing for rho = 1.
    """
    a_1, a_2 = 2 * rho * np.cos(omega), -(rho**2)
    c = [variance, variance * a_1 / (1 - a_2)]
    for _ in range(19):
        c.append(a_1 * c[-1] + a_2 * c[-2])
    kernel = ar2(1, 20, rho=rho, omega=omega, variance=variance).weight_kernel()
    np.testing.assert_allclose(kernel, np.array(c)[lags], rtol=0, atol=1e-11 * variance)
    assert_is_a_covariance(kernel)


@given(st.floats(0, np.pi), st.just(0.0) | st.floats(1e-6, 9))
def test_a_pole_on_the_circle_is_a_rotation(omega, variance):
    """Second-order drift with rho = 1 has the kernel of the rotation, variance cos(omega lag), and no innovations.

    Tolerance 1e-11 of the variance.
    """
    expected = variance * np.cos(omega * lags)
    turned = sinusoids(1, 20, omega=omega, variance=variance)
    assert not turned.Q.any()
    for task in (turned, ar2(1, 20, rho=1.0, omega=omega, variance=variance)):
        np.testing.assert_allclose(task.weight_kernel(), expected, rtol=0, atol=1e-11 * variance)
        np.testing.assert_allclose(task.Q, 0, atol=1e-13 * variance)


@given(st.tuples(st.floats(0, 1), st.floats(0, 1)), st.tuples(st.floats(0, 4), st.floats(0, 4)))
def test_two_timescales_add_up(gammas, variances):
    """Its kernel is the sum of two first-order ones in their stationary law, variance gamma^lag each. rtol 1e-12."""
    expected = sum(v * g**lags for g, v in zip(gammas, variances, strict=True))
    kernel = two_timescales(1, 20, gammas=gammas, variances=variances).weight_kernel()
    np.testing.assert_allclose(kernel, expected, rtol=0, atol=1e-12 * max(sum(variances), 1e-300))
    assert_is_a_covariance(kernel)


@given(st.floats(0, 1.2), st.floats(0, 3), st.floats(0, 3), st.floats(2.01, 50))
def test_first_order_laws_share_their_kernel(gamma, sigma_w, sigma_e, nu):
    """Heavy tails, switches of probability 0 and a hidden state of one number have the kernel of the drift (3)."""
    scales = {"sigma_w": sigma_w, "sigma_e": sigma_e}
    expected = DriftingRegression(d=1, n=20, gamma=gamma, **scales).weight_kernel()
    state = LinearDrift(1, 20, F=[[gamma]], Q=[[sigma_e**2]], h=[1.0], P_0=[[sigma_w**2]])
    for task in (
        HeavyTailedDrift(1, 20, gamma, **scales, nu=nu),
        RegimeSwitching(1, 20, gamma, **scales, switch=0.0),
        state,
    ):
        np.testing.assert_allclose(task.weight_kernel(), expected, rtol=1e-12, atol=1e-300)


@given(st.floats(0, 1.2), st.floats(0, 3), st.floats(0, 3), st.floats(0, 1))
def test_switching_kernel_is_its_formula(gamma, sigma_w, sigma_e, switch):
    """k_ij = ((1-s) gamma)^lag k_mm, and k_mm the mean over when the last switch was; rtol 1e-11, terms >= 0."""
    kernel = RegimeSwitching(1, 20, gamma, sigma_w, sigma_e, switch).weight_kernel()
    own = []
    for m in range(1, 22):
        ran = [gamma ** (2 * t) * sigma_w**2 + sigma_e**2 * sum(gamma ** (2 * j) for j in range(t)) for t in range(22)]
        chance = [switch * (1 - switch) ** t for t in range(m)] + [(1 - switch) ** m]
        own.append(np.dot(chance, ran[: m + 1]))
    expected = [[((1 - switch) * gamma) ** abs(i - j) * own[min(i, j)] for j in range(21)] for i in range(21)]
    np.testing.assert_allclose(kernel, expected, rtol=1e-11, atol=1e-300)
    assert_is_a_covariance(kernel)


def test_a_task_keeps_its_own_matrices():
    """Changing the arrays that a task was made with does not change the task."""
    F, h, P = np.eye(2), np.ones(2), np.eye(2)
    task = LinearDrift(2, 3, F=F, Q=P, h=h, P_0=P)
    F[0, 0], h[0], P[0, 0] = 9, 9, 9
    np.testing.assert_array_equal(task.F, np.eye(2))
    np.testing.assert_array_equal(task.h, np.ones(2))
    np.testing.assert_array_equal(task.P_0, np.eye(2))
    np.testing.assert_array_equal(task.Q, np.eye(2))
