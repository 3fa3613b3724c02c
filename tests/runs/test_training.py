"""The training loop is the one anybody would write with torch, bit for bit; side by side is one model after another."""

import dataclasses
import functools
import math
import os

import numpy as np
import pytest
import torch
from torch import nn

from icl.models.one_layer import OneLayerGLA, gram
from icl.profile import streams
from icl.runs import training
from icl.runs.recipes import train_side_by_side
from icl.runs.training import AdamW, Config, Diverged, fit
from icl.tasks import UNIFORM, DriftingRegression, SmoothDrift, StationaryRegression
from icl.theory import one_layer, population

TASK = DriftingRegression(d=3, n=8, gamma=0.9, sigma_e=0.3, Lambda=np.diag([2.0, 1.0, 0.5]))
LAMS = np.array([0.8, 1.0, 0.8, 0.5])


def starts(models=4, dtype=torch.float64):
    return 0.3 * torch.randn(models, 4, 4, generator=streams("starts"), dtype=dtype)


def trained(theta, lam, steps=5, task=TASK, optimiser=None, seed=0, watch=None):
    options = {"steps": steps, "batch": 16, "optimiser": optimiser or AdamW(), "watch": watch}
    return train_side_by_side(task, theta, lam=lam, generator=streams("training prompts", seed=seed), **options)


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


@pytest.mark.usefixtures("as_installed")
def test_training_approaches_the_minimum():
    """Trained from small weights without decay, the population loss falls to half the training error (16) and not below
    it.

    800 steps of 500 prompts (d = 2, n = 6, lam = 0.8), the step size falling from one training to the next: within 2 %
    at the end, where the start was more than 20 % away. Deterministic: the streams are named.
    """
    task = DriftingRegression(d=2, n=6, gamma=0.9, sigma_e=0.3)
    loss = population.layer_loss(task, lam=0.8)
    least = float(one_layer.training_error(task, lam=0.8)) / 2
    theta = 0.3 * torch.randn(1, 3, 3, generator=streams("small"), dtype=torch.float64)
    theta[:, 2, :2] = theta[:, :2, 2] = 0
    theta[:, 2, 2] = theta[:, 2, 2].abs()
    losses, generator = [loss.value(theta[0].numpy())], streams("falling")
    for lr in (3e-2, 1e-2, 3e-3, 1e-3):
        optimiser = AdamW(lr=lr, weight_decay=0.0)
        theta = train_side_by_side(
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


def test_the_losses_of_a_diverged_training_are_in_the_models_order():
    """Each loss that the error names is that of the model in its place, whatever the order of forgetting factors."""
    theta = starts(3)
    theta[0] *= 1e200
    with pytest.raises(Diverged, match=r"step 1: losses \[(inf|nan), \d[^,]*, \d[^,]*\], before it \[\]$"):
        trained(theta, np.array([1.0, 0.5, 0.8]))


def plainly(theta, lam, steps, optimiser):
    """The side-by-side training as a loop of its own: the parameters after each step."""
    factors = np.unique(lam)
    groups = [(float(factor), torch.as_tensor(np.flatnonzero(lam == factor))) for factor in factors]
    order = torch.cat([members for _, members in groups]).argsort()
    theta = theta.detach().clone().requires_grad_()
    betas = (optimiser.momentum, optimiser.beta2)
    rule = torch.optim.AdamW([theta], lr=optimiser.lr, weight_decay=optimiser.weight_decay, betas=betas)
    generator = streams("training prompts")
    for _ in range(steps):
        prompt = TASK.sample(16, generator=generator, dtype=theta.dtype)
        parts = []
        for factor, members in groups:
            left = torch.einsum("bij,mj->mbi", gram(prompt.tokens(), factor), theta[members][..., -1])
            right = torch.einsum("mij,bj->mbi", theta[members][..., :-1], prompt.x[:, -1])
            parts.append(((left * right).sum(-1) - prompt.y[:, -1]).square().mean(1) / 2)
        rule.zero_grad(set_to_none=True)
        torch.cat(parts)[order].sum().backward()
        rule.step()
        yield theta.detach().clone()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_side_by_side_is_a_plain_loop_bit_for_bit(dtype):
    """Side-by-side training ends at every step where a plain loop of PyTorch ends, in every bit."""
    theta, optimiser = starts(dtype=dtype), AdamW(lr=0.03, momentum=0.8)
    seen = []
    ended = trained(theta, LAMS, 20, optimiser=optimiser, watch=lambda step, now: seen.append(now))
    expected = list(plainly(theta, LAMS, 20, optimiser))
    assert all(torch.equal(now, then) for now, then in zip(seen[1:], expected, strict=True))
    assert torch.equal(ended, expected[-1])


def network(dtype=torch.float64):
    """Two layers, one parameter frozen, one never used, one laid out the other way round."""
    model = nn.Module()
    draw = {"generator": streams("network"), "dtype": dtype}
    model.first = nn.Parameter(torch.randn(3, 5, **draw).T)
    model.second = nn.Parameter(torch.randn(5, **draw))
    model.frozen = nn.Parameter(torch.ones(5, dtype=dtype), requires_grad=False)
    model.idle = nn.Parameter(torch.ones(2, dtype=dtype))
    model.register_buffer("calls", torch.zeros((), dtype=dtype))
    return model


def square(model, prompt):
    """Half a mean of squares of a prediction from the query alone."""
    model.calls += 1
    y_hat = torch.tanh(prompt.x[:, -1] @ model.first.T + model.frozen) @ model.second
    return (y_hat - prompt.y[:, -1]).square().mean() / 2


def each(model, prompt):
    """Losses of the five hidden units, each on its own."""
    y_hat = torch.tanh(prompt.x[:, -1] @ model.first.T + model.frozen) * model.second
    return (y_hat - prompt.y[:, -1:]).square().mean(0) / 2


CONFIGS = {
    "plain": Config(30, 8),
    "Adam": Config(30, 8, AdamW(lr=0.05, weight_decay=0.0, momentum=0.5, beta2=0.9)),
    "warm-up": Config(30, 8, AdamW(lr=0.05), warm_up=7),
    "annealed": Config(30, 8, AdamW(lr=0.05), anneal_to=0.1),
    "clipped": Config(30, 8, AdamW(lr=0.05), clip=0.3),
    "everything": Config(30, 8, AdamW(lr=0.05), warm_up=5, anneal_to=0.0, clip=0.3),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("loss", [square, each])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_loop_is_torchs_own_bit_for_bit(config, loss, dtype):
    """Parameters and losses are those of a plain loop with torch's AdamW (Adam, without decay), LambdaLR and
    clip_grad_norm_, in every bit, buffers and parameters that are frozen or never used among them.

    With a step size a millionth larger no trained parameter is the same.
    """
    model, reference = network(dtype), network(dtype)
    run = fit(model, loss, TASK, config, generator=streams("prompts"))

    chosen = {"lr": config.optimiser.lr, "betas": (config.optimiser.momentum, config.optimiser.beta2)}
    trainable = [parameter for parameter in reference.parameters() if parameter.requires_grad]
    if config.optimiser.weight_decay:
        rule = torch.optim.AdamW(trainable, weight_decay=config.optimiser.weight_decay, **chosen)
    else:
        rule = torch.optim.Adam(trainable, **chosen)

    def share(done):
        if done < config.warm_up:
            return (done + 1) / config.warm_up
        angle = math.pi * (done + 1 - config.warm_up) / (config.steps - config.warm_up)
        return config.anneal_to + (1 - config.anneal_to) * ((1 + math.cos(angle)) / 2)

    schedule = torch.optim.lr_scheduler.LambdaLR(rule, share)
    generator, losses = streams("prompts"), []
    for step in range(config.steps):
        now = loss(reference, TASK.sample(config.batch, generator=generator, dtype=dtype))
        losses.append(now.detach().double().numpy())
        rule.zero_grad()
        now.sum().backward()
        if config.clip < math.inf:
            nn.utils.clip_grad_norm_(trainable, config.clip)
        rule.step()
        if step + 1 < config.steps:
            schedule.step()

    assert run.losses.dtype == np.float64
    assert np.array_equal(run.losses, np.stack(losses))
    assert run.resumed_from == 0
    assert run.seconds > 0
    for name, tensor in reference.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name
    other = network(dtype)
    slightly = dataclasses.replace(config.optimiser, lr=config.optimiser.lr * (1 + 1e-6))
    fit(other, loss, TASK, dataclasses.replace(config, optimiser=slightly), generator=streams("prompts"))
    assert not torch.equal(other.first, model.first)
    assert not torch.equal(other.second, model.second)


def test_the_schedule_is_as_described():
    """The step size rises in equal steps from lr / warm_up to lr and falls along half a cosine to its share, exactly at
    both ends; without warm-up and annealing it is lr at every step.
    """
    config = Config(10, 1, AdamW(lr=0.3), warm_up=4, anneal_to=0.25)
    sizes = np.array([config.step_size(step) for step in range(1, 11)])
    np.testing.assert_allclose(sizes[:4], 0.3 * np.arange(1, 5) / 4, rtol=1e-15)
    assert sizes[3] == 0.3
    assert sizes[9] == 0.3 * 0.25
    assert sizes[6] == pytest.approx(0.3 * (1 + 0.25) / 2, rel=1e-15)
    assert (np.diff(sizes[3:]) < 0).all()
    assert {Config(10, 1, AdamW(lr=0.3)).step_size(step) for step in range(1, 11)} == {0.3}
    assert Config(3, 1, warm_up=3).step_size(3) == AdamW().lr


def test_a_gradient_that_is_not_finite_stops_a_training():
    """Where the loss is finite and its gradient is not, training stops with the step and the last finite losses; the
    model is set back, buffers too, to the last state whose loss and gradient were finite.

    The square root of 0 has an infinite slope, met at the fourth step. Planted: without the check, or without the way
    back, parameters are NaN.
    """
    seen = []

    def loss(model, prompt):
        value = square(model, prompt)
        return value + torch.sqrt(model.second.sum() * 0) if model.calls == 4 else value

    model = network()
    kept = lambda step, model: seen.append({k: v.clone() for k, v in model.state_dict().items()})  # noqa: E731
    with pytest.raises(
        Diverged, match=r"diverged at step 4: a gradient of norm nan at losses \d.*, before it \d"
    ) as stop:
        fit(model, loss, TASK, Config(9, 8), generator=streams("prompts"), watch=kept)
    assert len(seen) == 4
    assert {k: v.tolist() for k, v in model.state_dict().items()} == {k: v.tolist() for k, v in seen[2].items()}
    run = fit(network(), square, TASK, Config(3, 8), generator=streams("prompts"))
    assert str(stop.value).endswith(f"before it {run.losses[-1]}")


def test_parameters_that_are_not_finite_at_the_end_stop_a_training():
    """Parameters that overflow in the last step, which no batch would see, are not handed out as trained."""
    model, start = network(), network()
    with pytest.raises(Diverged, match=r"diverged at step 1: parameters not finite after it"):
        fit(model, square, TASK, Config(1, 8, AdamW(lr=1e308, weight_decay=10.0)), generator=streams("prompts"))
    assert torch.equal(model.first, start.first)
    assert torch.equal(model.second, start.second)


def test_the_bar_says_where_the_loss_stands(monkeypatch, capfd):
    """The progress bar goes to standard output, in words, beside the floor; with TQDM_DISABLE=1, as in all tests,
    nothing is put out.
    """

    def train():
        model = nn.Linear(2, 1, bias=False)
        loss = lambda model, prompt: (model(prompt.x[:, -1])[:, 0] - prompt.y[:, -1]).square().mean()  # noqa: E731
        fit(model, loss, SmoothDrift(d=2, n=3), Config(3, 4), generator=streams("x"), floor=0.5)
        return capfd.readouterr()

    assert os.environ["TQDM_DISABLE"] == "1"
    assert train() == ("", "")
    # Without the variable, and drawn at every step: by default tqdm draws ten times a second, and this is over sooner.
    monkeypatch.setattr(training, "tqdm", functools.partial(training.tqdm, disable=False, mininterval=0))
    out, err = train()
    assert err == ""
    assert "loss " in out
    assert "times the floor" in out
    assert "3/3" in out
