"""Training side by side is training: the steps of torch's AdamW on the model itself, one model after another."""

import dataclasses

import numpy as np
import pytest
import torch

from icl.models.gla import OneLayerGLA
from icl.profile import streams
from icl.tasks import UNIFORM, DriftingRegression, SmoothDrift, StationaryRegression
from icl.theory import gla, population
from icl.training import AdamW, one_layer

TASK = DriftingRegression(d=3, n=8, gamma=0.9, sigma_e=0.3, Lambda=np.diag([2.0, 1.0, 0.5]))
LAMS = np.array([0.8, 1.0, 0.8, 0.5])


def starts(models=4, dtype=torch.float64):
    return 0.3 * torch.randn(models, 4, 4, generator=streams("starts"), dtype=dtype)


def trained(theta, lam, steps=5, task=TASK, optimiser=None, seed=0, watch=None):
    options = {"steps": steps, "batch": 16, "optimiser": optimiser or AdamW(), "watch": watch}
    return one_layer(task, theta, lam=lam, generator=streams("training prompts", seed=seed), **options)


def by_hand(theta, lam, steps, task, optimiser):
    """The model itself, its loss half a mean of squares, torch's AdamW; every parameter at every step, as theta."""
    model = OneLayerGLA(task.d, lam=lam, scale=0.0, generator=streams("unused"), dtype=theta.dtype)
    model.set_weights(*population.unpack(theta.numpy()))
    rule = torch.optim.AdamW(
        model.parameters(),
        lr=optimiser.lr,
        weight_decay=optimiser.weight_decay,
        betas=(optimiser.momentum, optimiser.beta2),
    )
    generator = streams("training prompts")
    for _ in range(steps):
        prompt = task.sample(16, generator=generator, dtype=theta.dtype)
        loss = ((model(prompt) - prompt.y[:, -1]) ** 2).mean() / 2
        rule.zero_grad()
        loss.backward()
        rule.step()
    return population.pack(model.W_V.detach().numpy(), model.W_KQ.detach().numpy())


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize(
    "optimiser",
    [AdamW(), AdamW(lr=0.1, weight_decay=0.0, momentum=0.5, beta2=0.9), AdamW(weight_decay=10.0)],
    ids=["the paper's", "without decay", "much decay"],
)
@pytest.mark.parametrize(
    "task",
    [TASK, SmoothDrift(d=3, n=5), StationaryRegression(d=3, n=5, inputs=UNIFORM)],
    ids=["drifting", "smooth", "uniform"],
)
def test_a_step_is_torchs_adamw_on_the_model(task, optimiser, steps):
    """Each of several models trained side by side is the model itself, trained by torch's AdamW on the same prompts.

    Forgetting factors in no order, two of them equal. Tolerance 1e-11 of the largest parameter: AdamW divides slopes by
    their own size, so that rounding stays as small. Planted: with the weight decay or the step size a tenth larger,
    training ends more than a thousand tolerances away.
    """
    theta = starts()
    found = trained(theta, LAMS, steps, task, optimiser).numpy()
    expected = np.stack(
        [by_hand(each, float(lam), steps, task, optimiser) for each, lam in zip(theta, LAMS, strict=True)]
    )
    limit = 1e-11 * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=limit)
    faster = dataclasses.replace(optimiser, lr=1.1 * optimiser.lr)
    assert np.abs(trained(theta, LAMS, steps, task, faster).numpy() - expected).max() > 1000 * limit
    if optimiser.weight_decay:
        shrunk = dataclasses.replace(optimiser, weight_decay=1.1 * optimiser.weight_decay)
        assert np.abs(trained(theta, LAMS, steps, task, shrunk).numpy() - expected).max() > 1000 * limit


def test_models_do_not_feel_each_other():
    """Trained side by side, every model ends where it ends alone, and where it ends beside others.

    Tolerance 1e-11 of the largest parameter, as sums may be taken in another order.
    """
    theta = starts()
    together = trained(theta, LAMS, steps=20)
    for i in range(4):
        alone = trained(theta[i : i + 1], LAMS[i : i + 1], steps=20)[0]
        torch.testing.assert_close(together[i], alone, rtol=0, atol=1e-11)
    backwards = trained(theta.flip(0), LAMS[::-1].copy(), steps=20).flip(0)
    torch.testing.assert_close(together, backwards, rtol=0, atol=1e-11)
    # The first and the third have one forgetting factor and starts of their own; the same start ends in one place.
    assert not torch.equal(together[0], together[2])
    twins = trained(theta[:1].repeat(2, 1, 1), LAMS[:2] * 0 + 0.8, steps=20)
    assert torch.equal(twins[0], twins[1])


def test_the_start_is_left_alone():
    """The starts handed in are not changed, nor made part of a graph; what comes back is new and needs no gradient."""
    theta = starts()
    before = theta.clone()
    ended = trained(theta, LAMS)
    assert torch.equal(theta, before)
    assert not theta.requires_grad
    assert not ended.requires_grad
    assert ended.untyped_storage().data_ptr() != theta.untyped_storage().data_ptr()
    assert not torch.isin(ended, before).any()
    leaf = before.clone().requires_grad_()
    assert torch.equal(trained(leaf, LAMS), ended)
    assert leaf.grad is None


def test_the_generator_decides():
    """The same generator gives the same result, bit for bit, another another; torch's global generator does not move.

    Steps continue: the first of several are those of a shorter training.
    """
    state = torch.get_rng_state()
    one, same, other = (trained(starts(), LAMS, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.isin(one, other).any()
    seen = []
    longer = trained(starts(), LAMS, steps=8, seed=1, watch=lambda step, theta: seen.append(theta))
    assert torch.equal(seen[5], one)
    assert torch.equal(seen[8], longer)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_watcher_sees_every_step():
    """The watcher is called with 0 and the start, then after each step with its number and the parameters then.

    What it keeps stays as it was, and what it does to it changes nothing.
    """
    seen = []

    def watch(step, theta):
        seen.append((step, theta.clone(), theta))

    ended = trained(starts(), LAMS, watch=watch)
    assert [step for step, _, _ in seen] == [0, 1, 2, 3, 4, 5]
    assert all(torch.equal(then, now) for _, then, now in seen)
    assert torch.equal(seen[0][1], starts())
    assert torch.equal(seen[-1][1], ended)
    assert len({then.sum().item() for _, then, _ in seen}) == 6
    for step in range(1, 5):
        assert torch.equal(seen[step][1], trained(starts(), LAMS, steps=step))
    spoilt = trained(starts(), LAMS, watch=lambda step, theta: theta.zero_())
    assert torch.equal(spoilt, ended)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_of_the_start_is_that_of_the_training(dtype):
    """Training has the dtype of the starts, prompts too: it ends where the model itself does in that dtype.

    Tolerance 1e-4 of parameters of size 1, for float32.
    """
    theta = starts(dtype=dtype)
    ended = trained(theta, LAMS)
    assert ended.dtype == dtype
    expected = [by_hand(each, float(lam), 5, TASK, AdamW()) for each, lam in zip(theta, LAMS, strict=True)]
    np.testing.assert_allclose(ended.numpy(), np.stack(expected), rtol=0, atol=1e-4)


def test_training_approaches_the_minimum():
    """Trained from small weights without decay, the population loss falls to half the training error (16) and not below
    it.

    800 steps of 500 prompts (d = 2, n = 6, lam = 0.8), the step size falling from one training to the next: within 2 %
    at the end, where the start was more than 20 % away. Deterministic: the streams are named.
    """
    task = DriftingRegression(d=2, n=6, gamma=0.9, sigma_e=0.3)
    loss = population.of(task, lam=0.8)
    least = float(gla.training_error(task, lam=0.8)) / 2
    theta = 0.3 * torch.randn(1, 3, 3, generator=streams("small"), dtype=torch.float64)
    theta[:, 2, :2] = theta[:, :2, 2] = 0
    theta[:, 2, 2] = theta[:, 2, 2].abs()
    losses, generator = [loss.value(theta[0].numpy())], streams("falling")
    for lr in (3e-2, 1e-2, 3e-3, 1e-3):
        optimiser = AdamW(lr=lr, weight_decay=0.0)
        theta = one_layer(
            task, theta, lam=np.array([0.8]), steps=200, batch=500, optimiser=optimiser, generator=generator
        )
        losses.append(loss.value(theta[0].numpy()))
    assert losses[0] > 1.2 * least
    assert least < losses[-1] < 1.02 * least


def test_weight_decay_alone_shrinks_all_parameters():
    """Where no prompt has a label other than 0 and theta predicts 0, each step multiplies it by 1 - lr * weight_decay.

    Weights that are all 0 and parameters without p, v and q give no slope at all: only U is left, and only the decay.
    rtol 1e-12.
    """
    still = DriftingRegression(d=3, n=8, gamma=0.9, sigma_w=0.0, sigma_e=0.0)
    theta = starts()
    theta[:, -1] = 0
    theta[..., -1] = 0
    ended = trained(theta, LAMS, task=still, optimiser=AdamW(lr=0.1, weight_decay=0.5))
    torch.testing.assert_close(ended, theta * (1 - 0.1 * 0.5) ** 5, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("size", "lr", "step"), [(1e200, 0.01, 1), (1.0, 1e80, 2)])
def test_a_diverging_training_stops(size, lr, step):
    """A loss that is not finite stops the training with the number of the step, all losses there and the last finite
    ones.

    Parameters of 1e200 overflow at once, before there was a finite loss; an lr of 1e80 makes the second step overflow.
    """
    theta = starts(2)
    theta[1] *= size
    with pytest.raises(
        RuntimeError, match=rf"training diverged at step {step}: losses \[.*(inf|nan).*\], before it \["
    ) as refusal:
        trained(theta, LAMS[:2], optimiser=AdamW(lr=lr))
    before = str(refusal.value).split("before it ")[1]
    finite = [float(number) for number in before.strip("[]").split(",") if number]
    assert len(finite) == (0 if step == 1 else 2)
    assert np.isfinite(finite).all()
