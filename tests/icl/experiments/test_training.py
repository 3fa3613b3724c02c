"""The training loop is the one anybody would write with torch, bit for bit."""

import dataclasses
import functools
import inspect
import math
import os

import numpy as np
import pytest
import torch
from torch import nn

from icl.experiments import training
from icl.experiments.training import AdamW, Config, Diverged, fit
from icl.profile import make_generator
from icl.tasks import DriftingRegression, SmoothDrift

TASK = DriftingRegression(d=3, n=8, gamma=0.9, sigma_e=0.3, Lambda=np.diag([2.0, 1.0, 0.5]))


def network(dtype=torch.float64):
    """Two layers, one parameter frozen, one never used, one laid out the other way round."""
    model = nn.Module()
    draw = {"generator": make_generator("network"), "dtype": dtype}
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
    "plain": Config(12, 8),
    "Adam": Config(12, 8, AdamW(lr=0.05, weight_decay=0.0, momentum=0.5, beta2=0.9)),
    "warm-up": Config(12, 8, AdamW(lr=0.05), warm_up=7),
    "annealed": Config(12, 8, AdamW(lr=0.05), anneal_to=0.1),
    "clipped": Config(12, 8, AdamW(lr=0.05), clip=0.3),
    "everything": Config(12, 8, AdamW(lr=0.05), warm_up=5, anneal_to=0.0, clip=0.3),
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
    run = fit(model, loss, TASK, config, generator=make_generator("prompts"))

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
    generator, losses = make_generator("prompts"), []
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
    fit(other, loss, TASK, dataclasses.replace(config, optimiser=slightly), generator=make_generator("prompts"))
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


def test_settings_are_the_papers_unless_told_otherwise():
    """Step size 0.01, weight decay 0.05 and momentum 0.9 are printed in the paper (sec. 4; claim
    `gla.exp.adamw-protocol`), at a constant step size without clipping. It names no beta_2, so that is PyTorch's.
    """
    rule, config = AdamW(), Config(1, 1)
    assert (rule.lr, rule.weight_decay, rule.momentum) == (1e-2, 0.05, 0.9)
    assert (rule.momentum, rule.beta2) == inspect.signature(torch.optim.AdamW).parameters["betas"].default
    assert (config.optimiser, config.warm_up, config.anneal_to, config.clip) == (rule, 0, 1.0, math.inf)


def test_deep_stacks_are_trained_as_the_recorded_ones_were():
    """The recipe behind the table of *Depth*: another would leave its records' numbers without their settings."""
    assert training.deep(4) == Config(550, 32, AdamW(0.02, 0.0, 0.9, 0.99), warm_up=20, anneal_to=0.0, clip=0.5)


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
        fit(model, loss, TASK, Config(9, 8), generator=make_generator("prompts"), callback=kept)
    assert len(seen) == 4
    assert {k: v.tolist() for k, v in model.state_dict().items()} == {k: v.tolist() for k, v in seen[2].items()}
    run = fit(network(), square, TASK, Config(3, 8), generator=make_generator("prompts"))
    assert str(stop.value).endswith(f"before it {run.losses[-1]}")


def test_parameters_that_are_not_finite_at_the_end_stop_a_training():
    """Parameters that overflow in the last step, which no batch would see, are not handed out as trained."""
    model, start = network(), network()
    with pytest.raises(Diverged, match=r"diverged at step 1: parameters not finite after it"):
        fit(model, square, TASK, Config(1, 8, AdamW(lr=1e308, weight_decay=10.0)), generator=make_generator("prompts"))
    assert torch.equal(model.first, start.first)
    assert torch.equal(model.second, start.second)


def test_states_are_copied_as_often_as_asked(monkeypatch, tmp_path):
    """With `snapshot_every` a training ends where it does without, to the bit, on fewer copies; a model that diverges
    is set back to the newest of them, and a checkpoint has the states that it is to have.

    Planted: a state that is no copy taken for proven, and no copy where one is to be written, are seen.
    """
    taken = []
    capture = training.TrainingState.capture
    monkeypatch.setattr(training.TrainingState, "capture", lambda state: taken.append(1) or capture(state))

    def run(steps=9, loss=square, **options):
        taken.clear()
        model, seen = network(), []
        callback = lambda step, model: seen.append({k: v.clone() for k, v in model.state_dict().items()})  # noqa: E731
        try:
            fit(model, loss, TASK, Config(steps, 8), generator=make_generator("prompts"), callback=callback, **options)
        except Diverged:
            return model.state_dict(), seen
        return model.state_dict(), len(taken)

    def same(one, two):
        return all(torch.equal(one[name], two[name]) for name in one)

    (plain, often), (sparing, seldom) = run(), run(snapshot_every=4)
    assert same(plain, sparing)
    assert often - seldom == 6
    _, written = run(snapshot_every=4, checkpoint=tmp_path / "state", checkpoint_every=2)
    assert written - seldom == 2

    def bad(model, prompt):
        value = square(model, prompt)
        return value * math.nan if model.calls == 8 else value

    # Seven steps are done, and copies taken of 0, 3 and 6.
    model, seen = run(loss=bad, snapshot_every=3)
    assert same(model, seen[6])
    assert not same(model, seen[7])


def test_the_fused_rule_is_torchs_own():
    """Bit for bit torch's fused AdamW, which is the other one to rounding."""
    model, reference, other = network(), network(), network()
    fit(model, square, TASK, Config(20, 8), generator=make_generator("prompts"), fused=True)
    fit(other, square, TASK, Config(20, 8), generator=make_generator("prompts"))
    trained = [parameter for parameter in reference.parameters() if parameter.requires_grad]
    settings = AdamW()
    betas = (settings.momentum, settings.beta2)
    rule = torch.optim.AdamW(trained, lr=settings.lr, weight_decay=settings.weight_decay, betas=betas, fused=True)
    generator = make_generator("prompts")
    for _ in range(20):
        rule.zero_grad()
        square(reference, TASK.sample(8, generator=generator, dtype=torch.float64)).backward()
        rule.step()
    for name in ("first", "second"):
        assert torch.equal(getattr(model, name), getattr(reference, name))
        torch.testing.assert_close(getattr(model, name), getattr(other, name), rtol=1e-12, atol=1e-12)


def test_the_bar_says_where_the_loss_stands(monkeypatch, capfd):
    """The progress bar goes to standard output, in words, beside the floor; with TQDM_DISABLE=1, as in all tests,
    nothing is put out.
    """

    def train():
        model = nn.Linear(2, 1, bias=False)
        loss = lambda model, prompt: (model(prompt.x[:, -1])[:, 0] - prompt.y[:, -1]).square().mean()  # noqa: E731
        fit(model, loss, SmoothDrift(d=2, n=3), Config(3, 4), generator=make_generator("x"), floor=0.5)
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
