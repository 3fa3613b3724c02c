"""Prompts with a drift of their own, which nobody tells: the sampler against its recursion and its kernel."""

import chance
import numpy as np
import pytest
import torch

from icl.profile import make_generator
from icl.tasks import DriftingRegression, UnknownDrift
from icl.tasks.noise import noise_level

GAMMAS, STEPS, NOISES, WEIGHTS = (0.9, 0.5, 0.0), (0.3, 0.6, 1.2), (0.5, 0.0, 1.0), (0.5, 0.3, 0.2)
TASK = UnknownDrift(2, 4, GAMMAS, STEPS, NOISES, weights=WEIGHTS)


def test_each_prompt_follows_its_member():
    """Weights and labels of 40 prompts against the recursion written out from the same draws, in their order, 1e-12."""
    prompt, member = TASK.reveal(40, generator=make_generator("speeds"), dtype=torch.float64)
    generator = make_generator("speeds")
    draw = {"generator": generator, "dtype": torch.float64}
    e, u = torch.randn(6, 40, 2, **draw).numpy(), torch.rand(40, **draw).numpy()
    x, noise = torch.randn(40, 5, 2, **draw).numpy(), torch.randn(40, 5, **draw).numpy()
    for b in range(40):
        j = 0 if u[b] < 0.5 else 1 if u[b] < 0.8 else 2
        w = e[0, b] * STEPS[j] / np.sqrt(1 - GAMMAS[j] ** 2)
        for i in range(5):
            w = GAMMAS[j] * w + STEPS[j] * e[i + 1, b]
            np.testing.assert_allclose(prompt.w[b, i], w, rtol=1e-12)
            np.testing.assert_allclose(prompt.y[b, i], w @ x[b, i] + NOISES[j] * noise[b, i], rtol=1e-9, atol=1e-12)
        assert member[b] == j
    again = TASK.sample(40, generator=make_generator("speeds"), dtype=torch.float64)
    assert torch.equal(again.y, prompt.y)


def test_the_kernel_is_the_mean_of_the_members():
    """Each member's kernel is that of `DriftingRegression` from its steady spread; 1e-12. One number stands for all."""
    kernels = [
        DriftingRegression(2, 4, gamma, sigma_w=float(np.sqrt(k)), sigma_e=sigma_e).weight_kernel()
        for gamma, sigma_e, k in zip(GAMMAS, STEPS, TASK.k0, strict=True)
    ]
    np.testing.assert_allclose(TASK.weight_kernel(), np.tensordot(WEIGHTS, kernels, 1), rtol=1e-12)
    assert noise_level(TASK) == pytest.approx(np.sqrt(0.5 * 0.25 + 0.2))
    alike = UnknownDrift(2, 4, GAMMAS, 0.3)
    np.testing.assert_array_equal(alike.steps, [0.3] * 3)
    np.testing.assert_allclose(alike.weights, [1 / 3] * 3)
    assert noise_level(alike) == 0


@pytest.mark.statistical(2)
def test_second_moments_of_samples():
    """20,000 prompts: E w_1 w_4 in a coordinate against the kernel, to 1% of the kernel's largest, and the members'
    counts, which are binomial.
    """
    prompt, member = TASK.reveal(20_000, generator=make_generator("moments"), dtype=torch.float64)
    product = (prompt.w[:, 0] * prompt.w[:, 3]).mean(1).numpy()
    chance.assert_mean(product, TASK.weight_kernel()[0, 3])
    chance.assert_counts(np.bincount(member.numpy(), minlength=3), 20_000, WEIGHTS)


def test_without_noise_labels_are_exact():
    prompt = UnknownDrift(2, 4, GAMMAS, STEPS).sample(3, generator=make_generator("clean"))
    assert torch.equal(prompt.y, (prompt.w * prompt.x).sum(-1))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"gammas": (1.0, 0.5)}, r"gammas must be at least one number in \[0, 1\)"),
        ({"gammas": ()}, "gammas must be at least one number"),
        ({"gammas": 0.5}, "gammas must be at least one number"),
        ({"steps": (0.1, 0.2)}, r"steps must have shape \(3\) to match gammas"),
        ({"steps": 0.0}, "steps must be finite and > 0"),
        ({"noises": (0.1, -0.2, 0.0)}, "noises must be finite and >= 0"),
        ({"weights": (0.5, 0.5)}, r"weights must have shape \(3\)"),
        ({"weights": (0.5, 0.4, 0.2)}, "weights must add up to 1, got 1.1"),
        ({"weights": (0.5, 0.5, 0.0)}, "weights must be finite and > 0"),
    ],
)
def test_priors_that_are_none_are_refused(wrong, says):
    with pytest.raises(ValueError, match=says):
        UnknownDrift(**{"d": 2, "n": 4, "gammas": GAMMAS, "steps": STEPS} | wrong)
