"""Training Memformers: minima known in closed form, and the published recipe written out with torch's optimisers."""

import functools
import math

import numpy as np
import pytest
import torch
from torch import nn

from icl.models.memformer import Full, Memformer, OneRegister, Scaled, Without
from icl.profile import streams
from icl.runs import recipes
from icl.runs.recipes import Held, as_published, minimise
from icl.runs.training import Config, fit
from icl.tasks import StationaryRegression

D, N = 3, 8
SIGMA = np.diag([2.0, 1.0, 0.5]) + 0.2
TASK = StationaryRegression(d=D, n=N, Lambda=SIGMA, Sigma_w=np.linalg.inv(SIGMA))


def inputs(batch=50):
    return TASK.sample(batch, generator=streams("fitting inputs"), dtype=torch.float64).x[:, :-1]


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
        model = Memformer(Scaled(torch.tensor(K), 1), Without(1))
        G = root @ K.T @ H @ inverse
        best = np.trace(G, axis1=1, axis2=2).mean() / (G**2).sum((1, 2)).mean() * K
    else:
        model = Memformer(Full(D, 1), Without(1))
        white = inverse @ H @ inverse
        best = (inverse @ white.mean(0) @ np.linalg.inv((white @ white).mean(0)) @ inverse).T
    least = ((root @ (np.eye(D) - best.T @ H) @ inverse) ** 2).sum((1, 2)).mean()
    found = minimise(model, lambda: expected_loss(model, X))
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
        model = Memformer(Scaled(K, 3), Without(3))
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
    held, generator, plain = Held(TASK, every), streams("held"), streams("held")
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
    with pytest.raises(ValueError, match="Held object"):
        fit(
            model_of(),
            squares,
            Held(TASK, 2),
            Config(1, 2),
            generator=streams("x"),
            checkpoint=tmp_path / "kept.safetensors",
        )


def test_the_published_recipe_written_out():
    """`as_published` is ten steps of AdamW on one batch, gradients clipped to a norm of 0.01, then Adam on another.

    torch's AdamW (0.01, decay 0.01, momentum 0.99, 0.9) and Adam (0.01), by hand on the same two batches: parameters
    and losses to 1e-12. Planted: a new batch every step, gradients not clipped, the decay left out are seen.
    """
    steps, batch = 6, 20
    model, other, generator, plain = model_of(), model_of(), streams("published"), streams("published")
    run, last = as_published(model, squares, TASK, batch=batch, steps=steps, generator=generator)
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
    published = functools.partial(as_published, loss=squares, task=TASK, batch=20)
    longer, before = model_of(), model_of()
    run, prompt = published(longer, steps=5, generator=streams("published"))
    published(before, steps=4, generator=streams("published"))
    assert run.losses[-1] == squares(before, prompt).item()
    assert prompt.batch == 20
    again, other = model_of(), model_of()
    assert np.array_equal(published(again, steps=5, generator=streams("published"))[0].losses, run.losses)
    assert torch.equal(state(again), state(longer))
    assert published(other, steps=5, generator=streams("published", seed=1))[0].losses[0] != run.losses[0]


@pytest.mark.usefixtures("as_installed")
def test_few_evaluations_where_adam_needs_many():
    """On a fixed batch of inputs L-BFGS is at its minimum after fewer than 50 evaluations; Adam is not after 100.

    Four scaled layers on Sigma^-1, whose best steps are all found; Adam's loss is then still above by a thousandth of
    it and more, and after 1,000 steps it is the same to 1e-9: that was the minimum.
    """
    X, K = inputs(), torch.tensor(np.linalg.inv(SIGMA))
    quick, slow = (Memformer(Scaled(K, 4), Without(4)) for _ in range(2))
    with torch.no_grad():
        for model in (quick, slow):
            model.preconditioner.a.copy_(torch.linspace(0.4, 1.0, 4))
    found = minimise(quick, lambda: expected_loss(quick, X))
    rule, losses = torch.optim.Adam(slow.parameters(), lr=recipes.THEN.optimiser.lr), []
    for _ in range(1_000):
        rule.zero_grad()
        loss = expected_loss(slow, X)
        loss.backward()
        rule.step()
        losses.append(loss.item())
    assert len(found.losses) < 50
    assert losses[100] > 1.001 * found.losses[-1]
    assert losses[-1] == pytest.approx(found.losses[-1], rel=1e-9)
