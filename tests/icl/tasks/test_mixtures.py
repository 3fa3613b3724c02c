"""Prompts of several laws in one batch: each task's own, to the bit, and second moments that are means."""

import chance
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from icl.profile import make_generator
from icl.tasks import DriftingRegression, ManyDrifts, Mixture, Noisy, SmoothDrift, clean

FAST = DriftingRegression(2, 5, 0.5, sigma_w=1.0, sigma_e=0.9)
TASKS = [FAST, Noisy(FAST, 0.3), SmoothDrift(2, 5, 2, 0.7)]


def test_a_mixture_is_its_tasks_one_after_another():
    """The batch is what the tasks draw in turn from the same generator, to the bit; its law is the mean of theirs."""
    mixture, generator = Mixture(TASKS), make_generator("mixture")
    prompt = mixture.sample(12, generator=make_generator("mixture"), dtype=torch.float64)
    for i, task in enumerate(TASKS):
        own = task.sample(4, generator=generator, dtype=torch.float64)
        for part in "xyw":
            assert torch.equal(getattr(prompt, part)[4 * i : 4 * i + 4], getattr(own, part))
    kernels = [task.weight_kernel() for task in TASKS]
    np.testing.assert_allclose(mixture.weight_kernel(), sum(kernels) / 3, rtol=1e-12)
    np.testing.assert_array_equal(mixture.Lambda, np.eye(2))
    assert (mixture.d, mixture.n, mixture.inputs) == (2, 5, FAST.inputs)
    assert mixture.sigma_y == pytest.approx(0.3 / np.sqrt(3), rel=1e-12)


def recurrence(batch, d, n, generator):
    """The same drifts written out for one prompt and step at a time, from draws in the same order."""
    draw = {"generator": generator, "dtype": torch.float64}
    u, v = torch.rand(batch, 1, **draw).numpy(), torch.rand(batch, 1, **draw).numpy()
    normal = [torch.randn(batch, d, **draw).numpy() for _ in range(n + 1)]
    x, e = torch.randn(batch, n + 1, d, **draw).numpy().copy(), torch.randn(batch, n + 1, **draw).numpy()
    x[:, :, 0], w = 1.0, np.empty((batch, n + 1, d))
    gamma, noise = 1 - 0.1 / 100 ** u[:, 0], 10**-0.1 / 10 ** (2.4 * v[:, 0])
    for b in range(batch):
        k = (1 - noise[b]) / d
        w[b, 0] = np.sqrt(k) * normal[0][b]
        for i in range(1, n + 1):
            w[b, i] = gamma[b] * w[b, i - 1] + np.sqrt(k * (1 - gamma[b] ** 2)) * normal[i][b]
    return x, np.einsum("btd,btd->bt", w, x) + np.sqrt(noise)[:, None] * e, w, gamma, noise


def test_many_drifts_are_the_recurrence_written_out():
    """Inputs, labels and weights of 6 prompts against a loop over prompts and steps, rtol 1e-9; and speed and noise lie
    where they are said to.
    """
    prompt = ManyDrifts(3, 7).sample(6, generator=make_generator("many"), dtype=torch.float64)
    x, y, w, gamma, noise = recurrence(6, 3, 7, make_generator("many"))
    for got, expected in ((prompt.x, x), (prompt.y, y), (prompt.w, w)):
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-9, atol=1e-12)
    assert ((gamma >= 0.9) & (gamma <= 0.999)).all()
    assert ((noise >= 0.0031) & (noise <= 0.8)).all()


@pytest.mark.statistical
def test_labels_of_many_drifts_have_variance_1():
    """The mean square of 20,000 prompts' middle labels is 1; the first input is 1 throughout."""
    prompt = ManyDrifts(4, 8).sample(20_000, generator=make_generator("many, variance"), dtype=torch.float64)
    square = prompt.y[:, 4].square()
    chance.assert_mean(square, 1, error=0.0135)
    assert bool((prompt.x[..., 0] == 1).all())


@given(st.sampled_from([torch.float32, torch.float64]), st.integers(1, 4), st.integers(1, 3))
def test_dtype_and_sizes_are_those_asked_for(dtype, share, d):
    for task in (Mixture([DriftingRegression(d, 3, 0.9)] * 2), ManyDrifts(d, 3)):
        prompt = task.sample(2 * share, generator=make_generator("sizes"), dtype=dtype)
        assert prompt.x.shape == (2 * share, 4, d)
        assert prompt.x.dtype == prompt.y.dtype == dtype
    assert torch.equal(
        clean(Mixture([FAST]).sample(2, generator=make_generator("s"))), FAST.sample(2, generator=make_generator("s")).y
    )
