"""Tasks and prompts: repeatable, hiding what must be hidden, and with the kernels they state."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import icl
from icl.profile import streams
from icl.tasks import (
    GAUSSIAN,
    LAPLACE,
    RADEMACHER,
    UNIFORM,
    DriftingRegression,
    InputLaw,
    Prompt,
    SmoothDrift,
    StationaryRegression,
    Task,
    blocks,
    square_root,
)

TASKS = {
    "stationary": StationaryRegression(d=3, n=5, Sigma_w=np.diag([1.0, 2.0, 3.0]), Lambda=np.diag([3.0, 2.0, 1.0])),
    "drifting": DriftingRegression(d=3, n=5, gamma=0.9, Lambda=np.diag([3.0, 2.0, 1.0])),
    "without innovations": DriftingRegression(d=3, n=5, gamma=0.9, sigma_e=0.0),
    "smooth": SmoothDrift(d=3, n=5),
    "stationary, Laplace": StationaryRegression(d=3, n=5, Sigma_w=np.diag([1.0, 2.0, 3.0]), inputs=LAPLACE),
    "drifting, uniform": DriftingRegression(d=3, n=5, gamma=0.9, Lambda=np.diag([3.0, 2.0, 1.0]), inputs=UNIFORM),
    "smooth, Laplace": SmoothDrift(d=3, n=5, Lambda=np.diag([3.0, 2.0, 1.0]), inputs=LAPLACE),
}
every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
# Signs repeat themselves, so that draws cannot be told apart by their numbers.
WITH_SIGNS = TASKS | {"drifting, signs": DriftingRegression(d=3, n=5, gamma=0.9, inputs=RADEMACHER)}
every_task_and_signs = pytest.mark.parametrize("task", WITH_SIGNS.values(), ids=WITH_SIGNS)


def same(a, b):
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in ("x", "y", "w"))


@every_task
def test_same_seed_same_prompt(task):
    """A task drawn twice from the same stream gives the same prompts, bit for bit; from another stream, others."""
    first, again, other = (task.sample(4, generator=streams("prompts", seed=s)) for s in (1, 1, 2))
    assert same(first, again)
    assert not torch.isin(first.x, other.x).any()
    assert not torch.isin(first.w, other.w).any()


@every_task_and_signs
def test_a_task_is_a_task(task):
    """Every task offers what the protocol asks for, and prompts of the sizes it was asked for."""
    assert isinstance(task, Task)
    prompt = task.sample(4, generator=streams("sizes"))
    assert (prompt.batch, prompt.n, prompt.d) == (4, 5, 3)
    assert prompt.x.shape == prompt.w.shape == (4, 6, 3)
    assert prompt.y.shape == (4, 6)
    assert task.weight_kernel().shape == (6, 6)


@every_task
def test_rows_of_a_batch_are_different(task):
    """No two prompts of a batch share their inputs or their weights, and no two positions share their inputs."""
    prompt = task.sample(50, generator=streams("rows"), dtype=torch.float64)
    assert len(prompt.x.reshape(-1, 3).unique(dim=0)) == 50 * 6
    assert len(prompt.w[:, -1].unique(dim=0)) == 50


@every_task_and_signs
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_device_are_those_asked_for(task, dtype):
    """Prompts have the dtype and the device that were asked for; by default float32, on the generator's device.

    The device is torch's "meta", which every machine has and which holds no numbers.
    """
    for device, expected in ((None, "cpu"), ("cpu", "cpu"), ("meta", "meta")):
        prompt = task.sample(2, generator=streams("dtype"), dtype=dtype, device=device)
        for array in (prompt.x, prompt.y, prompt.w, prompt.tokens()):
            assert array.dtype == dtype
            assert array.device.type == expected
    assert task.sample(2, generator=streams("dtype")).x.dtype == torch.float32


@every_task_and_signs
def test_sampling_leaves_the_global_generator_alone(task):
    """Sampling draws from the generator it is given and from no other: torch's global state does not move."""
    before = torch.get_rng_state()
    task.sample(3, generator=streams("not global"))
    assert torch.equal(before, torch.get_rng_state())


def test_gaussian_inputs_are_the_two_draws_they_were():
    """Gaussian inputs are normal numbers drawn right after the weights, coloured by the root of Lambda, bit for bit.

    So a task that names no law of its inputs draws what tasks drew before there was a choice, as does one that names
    the Gaussian law.
    """
    Lambda, Sigma_w = np.diag([3.0, 2.0, 1.0]), np.diag([1.0, 2.0, 3.0])
    Lambda[0, 1] = Lambda[1, 0] = 0.7
    values, vectors = np.linalg.eigh(Lambda)
    root = torch.as_tensor((vectors * np.sqrt(values)) @ vectors.T)
    weights = {"stationary": (4, 1, 3), "drifting": (7, 4, 3), "smooth": (4, 8, 3)}
    for name, shape in weights.items():
        for law in ({}, {"inputs": GAUSSIAN}):
            task = {
                "stationary": functools.partial(StationaryRegression, Sigma_w=Sigma_w),
                "drifting": functools.partial(DriftingRegression, gamma=0.9),
                "smooth": SmoothDrift,
            }[name](d=3, n=5, Lambda=Lambda, **law)
            generator = streams("before")
            torch.randn(shape, generator=generator, dtype=torch.float64)
            expected = torch.randn((4, 6, 3), generator=generator, dtype=torch.float64) @ root
            drawn = task.sample(4, generator=streams("before"), dtype=torch.float64)
            assert torch.equal(drawn.x, expected)


def test_a_law_of_inputs_leaves_the_weights_alone():
    """Tasks that differ in the law of their inputs alone draw the same weights from the same stream, bit for bit."""
    for make in (
        StationaryRegression,
        SmoothDrift,
        functools.partial(DriftingRegression, gamma=0.9),
    ):
        one, *others = (
            make(d=3, n=5, inputs=law).sample(4, generator=streams("weights"))
            for law in (GAUSSIAN, UNIFORM, RADEMACHER, LAPLACE)
        )
        for other in others:
            assert torch.equal(other.w, one.w)
            assert not torch.equal(other.x, one.x)


def test_a_law_of_ones_own_is_drawn_from():
    """A law written by the reader is asked for as many numbers as there are inputs, and its numbers become the inputs.

    It gets the generator, the dtype and the device of the sample; here it answers with the numbers 0, 1, 2, ...
    """
    asked = []

    def draw(shape, generator, dtype, device):
        asked.append((shape, generator, dtype, device))
        return torch.arange(np.prod(shape), dtype=dtype).reshape(shape)

    task = SmoothDrift(d=2, n=3, Lambda=np.diag([4.0, 1.0]), inputs=InputLaw("counting", 2.0, draw))
    generator = streams("own")
    prompt = task.sample(5, generator=generator, dtype=torch.float64, device="cpu")
    assert asked == [((5, 4, 2), generator, torch.float64, "cpu")]
    white = torch.arange(40, dtype=torch.float64).reshape(5, 4, 2)
    assert torch.equal(prompt.x, white * torch.tensor([2.0, 1.0], dtype=torch.float64))
    torch.testing.assert_close(prompt.y, (prompt.x * prompt.w).sum(-1), rtol=1e-14, atol=1e-12)


def test_signs_are_signs(monkeypatch):
    """Of all numbers that a float32 generator can draw, exactly half become -1 and half +1; none becomes 0.

    torch draws the multiples of 2^-24 in [0, 1), each with the same probability, one half among them, where a sign
    function would answer 0. All 16,777,216 of them are tried, and the float64 numbers next to the edges.
    """
    every = torch.arange(2**24) / 2**24
    assert every.dtype == torch.float32
    assert every.max() < 1
    monkeypatch.setattr(torch, "rand", lambda shape, **options: every)
    signs = RADEMACHER.draw((2**24,), streams("unused"), torch.float32, None)
    assert signs.dtype == torch.float32
    assert torch.count_nonzero(signs.abs() != 1) == 0
    assert signs.sum(dtype=torch.float64) == 0
    edges = torch.tensor([0, 0.5 - 2**-53, 0.5, 1 - 2**-53], dtype=torch.float64)
    monkeypatch.setattr(torch, "rand", lambda shape, **options: edges)
    assert RADEMACHER.draw((4,), streams("unused"), torch.float64, None).tolist() == [-1, -1, 1, 1]


@pytest.mark.parametrize(("dtype", "step"), [(torch.float32, 2**-24), (torch.float64, 2**-53)])
def test_edges_of_the_generator_stay_inside_the_laws(monkeypatch, dtype, step):
    """The least and the largest number that a generator draws become uniform inputs within the root of 3, and finite
    Laplace inputs.

    Uniform: -sqrt 3 itself, and one step of the generator, twice sqrt 3, short of sqrt 3. Laplace: the largest is the
    logarithm of that step, over sqrt 2. Tolerance: four roundings of the dtype.
    """
    rounding = 4 * torch.finfo(dtype).eps
    edges = torch.tensor([0.0, 1 - step], dtype=dtype)
    monkeypatch.setattr(torch, "rand", lambda shape, **options: edges.expand(shape))
    low, high = UNIFORM.draw((2,), streams("unused"), dtype, None).tolist()
    assert abs(low + 3**0.5) <= rounding
    assert high <= 3**0.5
    assert abs(high - 3**0.5) <= 2 * 3**0.5 * step + rounding
    pairs = torch.tensor([[0.0, 1 - step], [1 - step, 0.0]], dtype=dtype)
    monkeypatch.setattr(torch, "rand", lambda shape, **options: pairs)
    low, high = sorted(LAPLACE.draw((2,), streams("unused"), dtype, None).tolist())
    assert low == -high
    np.testing.assert_allclose(high, -np.log(step) / 2**0.5, rtol=rounding)


@pytest.mark.parametrize(("total", "size", "expected"), [(7, 3, [3, 3, 1]), (6, 3, [3, 3]), (2, 3, [2]), (1, 1, [1])])
def test_blocks_add_up_and_do_not_repeat(total, size, expected):
    """Blocks hold as many prompts as were asked for, none twice; other seeds give other blocks."""
    task = TASKS["drifting"]
    drawn = list(blocks(task, total, size=size, generator=streams("blocks", seed=1)))
    assert [b.batch for b in drawn] == expected
    inputs = torch.cat([b.x for b in drawn]).reshape(-1, 3)
    assert len(inputs.unique(dim=0)) == len(inputs)
    for b, other in zip(drawn, blocks(task, total, size=size, generator=streams("blocks", seed=2)), strict=True):
        assert not torch.isin(b.x, other.x).any()


def test_blocks_pass_on_dtype_and_device():
    """Blocks are drawn in the dtype and on the device asked for."""
    (block,) = blocks(TASKS["smooth"], 2, generator=streams("blocks"), dtype=torch.float64, device="meta")
    assert (block.x.dtype, block.x.device.type) == (torch.float64, "meta")


def assert_is_a_covariance(kernel):
    np.testing.assert_array_equal(kernel, kernel.T)
    values = np.linalg.eigvalsh(kernel)
    assert values[0] >= -1e-13 * len(kernel) * max(values[-1], 0)


@given(
    st.integers(1, 30), st.sampled_from([0.0, 0.3, 0.9, 1.0, 1.1]) | st.floats(0, 1.2), st.floats(0, 3), st.floats(0, 3)
)
def test_drifting_kernel_is_its_formula(n, gamma, sigma_w, sigma_e):
    """The drift's kernel is gamma^|i-j| k_mm, m = min(i, j), k_mm = gamma^2m sigma_w^2 + sigma_e^2 (1 + .. +
    gamma^(2m-2)).

    It is symmetric and positive semi-definite. rtol 1e-12: at most 60 products and sums of positive terms.
    """
    kernel = DriftingRegression(d=1, n=n, gamma=gamma, sigma_w=sigma_w, sigma_e=sigma_e).weight_kernel()
    k = [gamma ** (2 * m) * sigma_w**2 + sigma_e**2 * sum(gamma ** (2 * j) for j in range(m)) for m in range(1, n + 2)]
    expected = [[gamma ** abs(i - j) * k[min(i, j)] for j in range(n + 1)] for i in range(n + 1)]
    # Numbers too small for float64 to hold in full lose digits; none of them is ever asked for.
    np.testing.assert_allclose(kernel, expected, rtol=1e-12, atol=1e-300)
    assert_is_a_covariance(kernel)


@given(st.integers(1, 30), st.integers(0, 6), st.floats(0, 3))
def test_smooth_kernel_is_its_formula(n, harmonics, sigma_w):
    """The smooth drift's kernel is sigma_w^2 / (K+1) sum_k cos(pi k (i-j) / (n+1)): variance sigma_w^2 everywhere.

    It is symmetric and positive semi-definite, of rank 2 K + 1 at most. Tolerance 1e-14 of sigma_w^2 a harmonic:
    cosines of angles up to pi K, rounded.
    """
    kernel = SmoothDrift(d=1, n=n, harmonics=harmonics, sigma_w=sigma_w).weight_kernel()
    lag = np.subtract.outer(np.arange(n + 1), np.arange(n + 1)) / (n + 1)
    expected = sigma_w**2 / (harmonics + 1) * sum(np.cos(np.pi * k * lag) for k in range(harmonics + 1))
    rounding = 1e-14 * (harmonics + 1) * sigma_w**2
    np.testing.assert_allclose(kernel, expected, rtol=0, atol=rounding)
    np.testing.assert_allclose(np.diag(kernel), sigma_w**2, rtol=0, atol=rounding)
    np.testing.assert_allclose(kernel, kernel.T, rtol=0, atol=rounding)
    values = np.linalg.eigvalsh(kernel)
    assert np.abs(values[: max(n - 2 * harmonics, 0)]).max(initial=0) <= (n + 1) * rounding
    assert values[0] >= -(n + 1) * rounding


def test_stationary_is_the_drift_that_does_not_move():
    """The stationary task's kernel is that of the drift with gamma = 1 and sigma_e = 0, and of smooth
    drift with K = 0.
    """
    expected = StationaryRegression(d=2, n=7).weight_kernel()
    np.testing.assert_array_equal(DriftingRegression(d=2, n=7, gamma=1.0, sigma_e=0.0).weight_kernel(), expected)
    np.testing.assert_array_equal(SmoothDrift(d=2, n=7, harmonics=0).weight_kernel(), expected)


def test_a_task_keeps_its_own_covariance():
    """Changing the array that a task was made with does not change the task."""
    Lambda = np.eye(2)
    task = StationaryRegression(d=2, n=3, Sigma_w=Lambda, Lambda=Lambda)
    Lambda[0, 0] = 9
    np.testing.assert_array_equal(task.Lambda, np.eye(2))
    np.testing.assert_array_equal(task.Sigma_w, np.eye(2))


@given(st.integers(1, 6), st.integers(0, 6), st.integers(0, 2**32 - 1), st.floats(-6, 6))
def test_square_root_is_the_root(d, rank, seed, power):
    """The square root of a covariance, singular ones too, is symmetric, has no negative eigenvalue, and its square is
    the covariance.

    Tolerance 1e-13 of the largest entry for the square; for eigenvalues 1e-8 of the largest, the square root of
    rounding.
    """
    factor = np.random.default_rng(seed).normal(size=(d, rank)) * 10.0**power
    root = square_root(factor @ factor.T)
    square = factor @ factor.T
    np.testing.assert_allclose(root @ root, square, rtol=0, atol=1e-13 * np.abs(square).max())
    np.testing.assert_allclose(root, root.T, rtol=0, atol=1e-13 * np.abs(root).max())
    values = np.linalg.eigvalsh(root)
    assert values[0] >= -1e-8 * abs(values[-1])


def test_tokens_hide_the_querys_label():
    """Tokens are the rows (x_i, y_i) with 0 for the query's label, and share no memory with the prompt's labels."""
    prompt = TASKS["drifting"].sample(4, generator=streams("tokens"))
    labels = prompt.y.clone()
    Z = prompt.tokens()
    assert Z.shape == (4, 6, 4)
    assert torch.equal(Z[..., :3], prompt.x)
    assert torch.equal(Z[:, :-1, 3], prompt.y[:, :-1])
    assert not Z[:, -1, 3].any()
    Z.fill_(7)
    assert torch.equal(prompt.y, labels)
    other = Prompt(prompt.x, torch.cat([labels[:, :-1], labels[:, -1:] + 1], 1), prompt.w)
    assert torch.equal(other.tokens(), prompt.tokens())


@pytest.mark.parametrize("m", [1, 2, 5])
def test_last_keeps_the_newest_examples(m):
    """The last m examples and the query are kept, in order; the last n are the prompt itself."""
    prompt = TASKS["drifting"].sample(4, generator=streams("last"))
    short = prompt.last(m)
    assert (short.n, short.batch, short.d) == (m, 4, 3)
    for name in ("x", "y", "w"):
        assert torch.equal(getattr(short, name), getattr(prompt, name)[:, 5 - m :])


def draw(*arguments, **named):
    return torch.randn(8, generator=streams(*arguments, **named))


def test_streams_repeat_and_do_not_overlap():
    """A stream's draws depend on its name and its seed and on nothing else: same name and seed, same draws; else
    others.

    Names that end in a number and seeds that continue them are told apart.
    """
    assert torch.equal(draw("prompts"), draw("prompts", seed=0))
    names = ["prompts", "weights", "prompts/1", "prompts/", "p"]
    drawn = torch.stack([draw(name, seed=seed) for name in names for seed in (0, 1, 2, 10, 11, 12)])
    assert len(drawn.flatten().unique()) == drawn.numel()


def test_streams_are_the_same_in_every_process():
    """A stream starts at the same seed in another process, whatever Python's own hashes are there."""
    here = streams("prompts", seed=3).initial_seed()
    code = "from icl.profile import streams; print(streams('prompts', seed=3).initial_seed())"
    environment = os.environ | {"PYTHONHASHSEED": "1234", "PYTHONPATH": str(Path(icl.__file__).parents[1])}
    there = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(there.stdout) == here
