"""Recipes: Memformers' minima in closed form, the published recipe written out with torch's optimisers, and training
side by side, which is one model after another, bit for bit.
"""

import dataclasses
import functools
import math

import numpy as np
import pytest
import torch
from torch import nn

from icl.experiments import training_variants
from icl.experiments.training import AdamW, Config, Diverged, fit
from icl.experiments.training_variants import FixedBatch, memformer_recipe, minimise, train_side_by_side
from icl.models.memformer import Full, Memformer, NoMemory, OneRegister, ScaledBlocks
from icl.models.one_layer import OneLayerGLA, gram
from icl.profile import make_generator
from icl.tasks import DriftingRegression, SmoothDrift, StationaryRegression
from icl.tasks.core import UNIFORM
from icl.theory import one_layer
from icl.theory.one_layer import population

D, N = 3, 8
SIGMA = np.diag([2.0, 1.0, 0.5]) + 0.2
TASK = StationaryRegression(d=D, n=N, Lambda=SIGMA, Sigma_w=np.linalg.inv(SIGMA))


def inputs(batch=50):
    return TASK.sample(batch, generator=make_generator("fitting inputs"), dtype=torch.float64).x[:, :-1]


def roots():
    values, vectors = np.linalg.eigh(SIGMA)
    return ((vectors * values**power) @ vectors.T for power in (0.5, -0.5))


def expected_loss(model, X):
    return model.risks(X, SIGMA)[:, -1].mean()


def squares(model, prompt):
    return (model(prompt) - prompt.y[:, -1]).square().mean()


def model_of(layers=2):
    return Memformer(Full(D, layers), OneRegister(layers))


def state(model):
    return torch.cat([p.detach().ravel() for p in model.parameters()])


@pytest.mark.parametrize("kind", ["scaled", "full"])
def test_one_layer_ends_at_its_minimum(kind):
    """`minimise` finds the least mean risk of one layer on fixed inputs: quadratic, so known from sample moments.

    With G = Sigma^(1/2) K H Sigma^(-1/2) of the fixed matrix K the scale is mean tr G over mean tr G G'. For a full A,
    whitened H~ = Sigma^(-1/2) H Sigma^(-1/2) and A~ = Sigma^(1/2) A Sigma^(1/2), A~' = E H~ (E H~^2)^-1. Parameters to
    1e-7 and the least loss to 1e-12 of it: where the gradient is 1e-9 a quadratic's parameters are as near. Planted:
    one iteration in place of many is seen.
    """
    X = inputs()
    H = np.einsum("bni,bnj->bij", X.numpy(), X.numpy()) / N
    root, inverse = roots()
    if kind == "scaled":
        K = np.eye(D) + 0.3 * np.tri(D)
        model = Memformer(ScaledBlocks(torch.tensor(K), 1), NoMemory(1))
        G = root @ K.T @ H @ inverse
        best = np.trace(G, axis1=1, axis2=2).mean() / (G**2).sum((1, 2)).mean() * K
    else:
        model = Memformer(Full(D, 1), NoMemory(1))
        white = inverse @ H @ inverse
        best = (inverse @ white.mean(0) @ np.linalg.inv((white @ white).mean(0)) @ inverse).T
    least = ((root @ (np.eye(D) - best.T @ H) @ inverse) ** 2).sum((1, 2)).mean()
    found = minimise(model, lambda: expected_loss(model, X))
    assert 0 <= found.seconds < 600
    np.testing.assert_allclose(model.preconditioner.A()[0].detach().numpy(), best, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(found.losses[-1], least, rtol=1e-12)


def test_it_ends_at_the_tolerance_or_at_the_last_iteration():
    """The gradient's largest entry ends below the tolerance, loosely for a loose one; few iterations end far above.

    The gradient and the last loss that are reported are those of the parameters as they are left: the norm is
    Euclidean. Planted: a tolerance that is not handed on is seen.
    """
    X, K = inputs(), torch.tensor(np.linalg.inv(SIGMA))
    ends = {}
    for tolerance, iterations in ((1e-6, 200), (1e-2, 200), (1e-6, 2)):
        model = Memformer(ScaledBlocks(K, 3), NoMemory(3))
        found = minimise(model, lambda m=model: expected_loss(m, X), tolerance=tolerance, iterations=iterations)
        model.zero_grad()
        loss = expected_loss(model, X)
        loss.backward()
        gradient = torch.cat([p.grad.ravel() for p in model.parameters()])
        assert found.losses[-1] == loss.item()
        assert found.gradient == pytest.approx(gradient.norm().item(), rel=1e-12)
        assert found.losses.dtype == np.float64
        assert found.seconds > 0
        ends[tolerance, iterations] = gradient.abs().max().item(), len(found.losses), found.losses[-1]
    (tight, most, least), (loose, fewer, more), (early, _, _) = ends.values()
    assert tight <= 1e-6
    assert 1e-6 < loose <= 1e-2 < early
    assert fewer < most
    assert least < more


def test_the_last_loss_is_that_of_the_parameters():
    """At a kink the line search gives up on a point that it looked at before others: the loss told is that point's.

    Planted: the loss that was looked at last is seen.
    """
    model = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    nn.init.constant_(model.weight, 8.0)

    def loss():
        return (3 * (model.weight - 0.3).abs() + model.weight.square()).sum()

    found = minimise(model, loss)
    assert found.losses[-1] == loss().item() != found.losses[-2]
    assert model.weight.item() == pytest.approx(0.3, abs=1e-6)


def test_only_what_requires_a_gradient_is_trained():
    """Frozen parameters stay bit for bit, and the others find the minimum that is left to them."""
    X, model = inputs(), model_of()
    model.memory.requires_grad_(False)
    kept = state(model.memory)
    found = minimise(model, lambda: expected_loss(model, X))
    assert torch.equal(state(model.memory), kept)
    assert found.gradient < 1e-5
    assert found.losses[-1] < found.losses[0] / 2


def test_a_loss_that_is_not_finite_is_refused():
    """An infinite or NaN loss at the start or at the end is an error with the last finite loss, the model as it was.

    Planted: NaN compared with > in place of isfinite, and parameters left where the search went, are seen.
    """
    model = nn.Linear(2, 1, bias=False, dtype=torch.float64)
    start = state(model)
    for value in (math.inf, -math.inf, math.nan):
        with pytest.raises(
            FloatingPointError, match=rf"the loss is {value} where the minimisation starts, before it \[\]"
        ):
            minimise(model, lambda v=value: model.weight.sum() * 0 + v)
        assert torch.equal(state(model), start)
    calls = []

    def breaking():
        calls.append(1)
        return model.weight.square().sum() + (0.0 if len(calls) < 3 else math.nan)

    with pytest.raises(FloatingPointError, match=r"the loss is nan where the minimisation ended, before it \[\d"):
        minimise(model, breaking)
    assert torch.equal(state(model), start)


def test_a_search_turns_back_where_the_loss_is_not_finite():
    """x - log x is NaN below 0, or infinite, where the second step from 8 leads.

    The minimum is found all the same, x = 1. Planted: NaN handed to torch's line search, which breaks off, is seen.
    """
    for wrong in (math.nan, math.inf):
        model = nn.Linear(1, 1, bias=False, dtype=torch.float64)
        nn.init.constant_(model.weight, 8.0)

        def loss(x=model.weight, wrong=wrong):
            return torch.where(x > 0, x - torch.log(x.clamp(min=1e-300)), x * 0 + wrong).sum()

        found = minimise(model, loss)
        assert not np.isfinite(found.losses).all()
        assert model.weight.item() == pytest.approx(1.0, abs=1e-7)


@pytest.mark.parametrize("every", [1, 2, 5])
def test_held_prompts_are_those_of_the_task_and_the_same_object(every):
    """A draw is handed out `every` times, the very object, then a new one: what the task draws from the same stream.

    The stream is not touched in between, so that draw k is the task's k-th. Sizes and laws are the task's. Planted: one
    time too many is seen.
    """
    held, generator, plain = FixedBatch(TASK, every), make_generator("held"), make_generator("held")
    for _ in range(3):
        expected = TASK.sample(4, generator=plain, dtype=torch.float64)
        first = held.sample(4, generator=generator, dtype=torch.float64)
        for name in ("x", "y", "w"):
            assert torch.equal(getattr(first, name), getattr(expected, name))
        for _ in range(every - 1):
            assert held.sample(4, generator=generator, dtype=torch.float64, device="cpu") is first
        assert torch.equal(generator.get_state(), plain.get_state())
    assert (held.d, held.n, held.inputs) == (TASK.d, TASK.n, TASK.inputs)
    assert held.Lambda is TASK.Lambda
    np.testing.assert_array_equal(held.weight_kernel(), TASK.weight_kernel())


def test_held_prompts_cannot_go_with_a_checkpoint(tmp_path):
    """What is held is not in a checkpoint, so that a training on it that keeps one is refused."""
    with pytest.raises(ValueError, match="FixedBatch object"):
        fit(
            model_of(),
            squares,
            FixedBatch(TASK, 2),
            Config(1, 2),
            generator=make_generator("x"),
            checkpoint=tmp_path / "kept.safetensors",
        )


def test_the_published_recipe_written_out():
    """`memformer_recipe` is ten steps of AdamW on one batch, gradients clipped to a norm of 0.01, then Adam on another.

    torch's AdamW (0.01, decay 0.01, momentum 0.99, 0.9) and Adam (0.01), by hand on the same two batches: parameters
    and losses to 1e-12. Planted: a new batch every step, gradients not clipped, the decay left out are seen.
    """
    steps, batch = 6, 20
    model, other, generator, plain = model_of(), model_of(), make_generator("published"), make_generator("published")
    run, last = memformer_recipe(model, squares, TASK, batch=batch, steps=steps, generator=generator)
    losses, parameters = [], list(other.parameters())
    for count, rule, clip in (
        (10, torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.01, betas=(0.99, 0.9)), 0.01),
        (steps, torch.optim.Adam(parameters, lr=0.01), math.inf),
    ):
        prompt = TASK.sample(batch, generator=plain, dtype=torch.float64)
        for _ in range(count):
            rule.zero_grad()
            loss = squares(other, prompt)
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, clip)
            rule.step()
            losses.append(loss.item())
    torch.testing.assert_close(state(model), state(other), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(run.losses, losses[10:], rtol=1e-12)
    assert torch.equal(last.x, prompt.x)
    assert torch.equal(generator.get_state(), plain.get_state())


def test_the_published_recipe_returns_its_batch():
    """The batch returned is the one trained on: the last loss is that of the model one step before, bit for bit.

    The same stream gives the same run twice, another stream another. Planted: a fresh batch returned is seen.
    """
    published = functools.partial(memformer_recipe, loss=squares, task=TASK, batch=20)
    longer, before = model_of(), model_of()
    run, prompt = published(longer, steps=5, generator=make_generator("published"))
    published(before, steps=4, generator=make_generator("published"))
    assert run.losses[-1] == squares(before, prompt).item()
    assert prompt.batch == 20
    again, other = model_of(), model_of()
    assert np.array_equal(published(again, steps=5, generator=make_generator("published"))[0].losses, run.losses)
    assert torch.equal(state(again), state(longer))
    assert published(other, steps=5, generator=make_generator("published", seed=1))[0].losses[0] != run.losses[0]


@pytest.mark.one_draw("one start")
@pytest.mark.usefixtures("as_installed")
def test_few_evaluations_where_adam_needs_many():
    """On a fixed batch of inputs L-BFGS is at its minimum after fewer than 50 evaluations; Adam is not after 100.

    Three scaled layers on Sigma^-1, whose best steps are all found; Adam's loss is then still above by a thousandth of
    it and more, and after 300 steps it is the same to 1e-9: that was the minimum.
    """
    X, K = inputs(), torch.tensor(np.linalg.inv(SIGMA))
    quick, slow = (Memformer(ScaledBlocks(K, 3), NoMemory(3)) for _ in range(2))
    with torch.no_grad():
        for model in (quick, slow):
            model.preconditioner.a.copy_(torch.linspace(0.4, 1.0, 3))
    found = minimise(quick, lambda: expected_loss(quick, X))
    rule, losses = torch.optim.Adam(slow.parameters(), lr=training_variants.THEN.optimiser.lr), []
    for _ in range(300):
        rule.zero_grad()
        loss = expected_loss(slow, X)
        loss.backward()
        rule.step()
        losses.append(loss.item())
    assert len(found.losses) < 50
    assert losses[100] > 1.001 * found.losses[-1]
    assert losses[-1] == pytest.approx(found.losses[-1], rel=1e-9)


DRIFT = DriftingRegression(d=3, n=8, gamma=0.9, sigma_e=0.3, Lambda=np.diag([2.0, 1.0, 0.5]))
LAMS = np.array([0.8, 1.0, 0.8, 0.5])


def starts(models=4, dtype=torch.float64):
    return 0.3 * torch.randn(models, 4, 4, generator=make_generator("starts"), dtype=dtype)


def trained(theta, lam, steps=5, task=DRIFT, optimiser=None, seed=0, callback=None):
    options = {"steps": steps, "batch": 16, "optimiser": optimiser or AdamW(), "callback": callback}
    return train_side_by_side(task, theta, lam=lam, generator=make_generator("training prompts", seed=seed), **options)


def by_hand(theta, lam, steps, task, optimiser):
    """The model itself, its loss half a mean of squares, torch's AdamW; every parameter at every step, as theta."""
    model = OneLayerGLA(task.d, lam=lam, scale=0.0, generator=make_generator("unused"), dtype=theta.dtype)
    model.set_weights(*population.unpack(theta.numpy()))
    rule = torch.optim.AdamW(
        model.parameters(),
        lr=optimiser.lr,
        weight_decay=optimiser.weight_decay,
        betas=(optimiser.momentum, optimiser.beta2),
    )
    generator = make_generator("training prompts")
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
    [DRIFT, SmoothDrift(d=3, n=5), StationaryRegression(d=3, n=5, inputs=UNIFORM)],
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
    """The same generator gives the same result, bit for bit, another another."""
    one, same, other = (trained(starts(), LAMS, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.isin(one, other).any()


def test_a_watcher_sees_every_step():
    """The watcher is called with 0 and the start, then after each step with its number and the parameters then.

    What it keeps stays as it was, and what it does to it changes nothing.
    """
    seen = []

    def callback(step, theta):
        seen.append((step, theta.clone(), theta))

    ended = trained(starts(), LAMS, callback=callback)
    assert [step for step, _, _ in seen] == [0, 1, 2, 3, 4, 5]
    assert all(torch.equal(then, now) for _, then, now in seen)
    assert torch.equal(seen[0][1], starts())
    assert torch.equal(seen[-1][1], ended)
    assert len({then.sum().item() for _, then, _ in seen}) == 6
    for step in range(1, 5):
        assert torch.equal(seen[step][1], trained(starts(), LAMS, steps=step))
    spoilt = trained(starts(), LAMS, callback=lambda step, theta: theta.zero_())
    assert torch.equal(spoilt, ended)


@pytest.mark.one_draw("one training")
@pytest.mark.usefixtures("as_installed")
def test_training_approaches_the_minimum():
    """Trained from small weights without decay, the population loss falls to half the training error (16) and not below
    it.

    240 steps of 500 prompts (d = 2, n = 6, lam = 0.8), the step size falling from one training to the next: within 2 %
    at the end, where the start was more than 20 % away. Deterministic: the streams are named.
    """
    task = DriftingRegression(d=2, n=6, gamma=0.9, sigma_e=0.3)
    loss = population.layer_loss(task, lam=0.8)
    least = float(one_layer.training_error(task, lam=0.8)) / 2
    theta = 0.3 * torch.randn(1, 3, 3, generator=make_generator("small"), dtype=torch.float64)
    theta[:, 2, :2] = theta[:, :2, 2] = 0
    theta[:, 2, 2] = theta[:, 2, 2].abs()
    losses, generator = [loss.value(theta[0].numpy())], make_generator("falling")
    for lr in (1e-1, 3e-2, 1e-2, 3e-3):
        optimiser = AdamW(lr=lr, weight_decay=0.0)
        theta = train_side_by_side(
            task, theta, lam=np.array([0.8]), steps=60, batch=500, optimiser=optimiser, generator=generator
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
    generator = make_generator("training prompts")
    for _ in range(steps):
        prompt = DRIFT.sample(16, generator=generator, dtype=theta.dtype)
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
    ended = trained(theta, LAMS, 20, optimiser=optimiser, callback=lambda step, now: seen.append(now))
    expected = list(plainly(theta, LAMS, 20, optimiser))
    assert all(torch.equal(now, then) for now, then in zip(seen[1:], expected, strict=True))
    assert torch.equal(ended, expected[-1])
