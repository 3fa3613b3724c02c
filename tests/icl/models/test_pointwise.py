"""Layers with a pointwise map: tokens against d numbers, against Memformers, and what no layer without a map can do."""

import pytest
import shared
import torch

from icl import convex
from icl.models import memformer, token_form
from icl.models.memformer import FullTable, NoMemory, OneRegister
from icl.models.pointwise import (
    EqualSteps,
    HeavyBall,
    Mapped,
    StepALayer,
    mapped_attention,
    mapped_iterates,
    mapped_parameters,
    mapped_registers,
    mapped_tokens,
)
from icl.profile import make_generator
from icl.tasks import Prompt
from icl.tasks.objectives import Cauchy, Huber, Logistic, Quartic, Square
from icl.theory import lfom

L, D, N = 4, 3, 9
KINDS = {
    "square": Square(D, N, ridge=0.0),
    "ridge": Square(D, N),
    "logistic": Logistic(D, N),
    "huber": Huber(D, N),
    "cauchy": Cauchy(D, N),
    "quartic": Quartic(D, N),
    "any": Logistic(D, N),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def parts(kind, batch=5):
    """A map, its ridge, prompts, and a table of small weights of no method."""
    objective = KINDS[kind]
    prompt = objective.sample(batch, generator=make_generator(f"pointwise {kind}"))
    psi = (lambda y, s: torch.sin(y) - y * s**2) if kind == "any" else objective.slope
    return psi, objective.ridge, prompt, 0.05 * shared.normal(L, L, name="Gamma").tril()


def tokens_of(psi, ridge, prompt, Gamma):
    eye = torch.eye(D).double().repeat(L, 1, 1)
    return mapped_registers(mapped_tokens(prompt), *mapped_parameters(eye), Gamma, psi, ridge)


@every_kind
def test_tokens_hold_what_the_weights_predict(kind):
    """Each token's last number is <w_l, x_i> at each layer, examples and query; the rest stays as it was."""
    psi, ridge, prompt, Gamma = parts(kind)
    for table in (Gamma, torch.linspace(0.2, 1, prompt.batch).double()[:, None, None] * Gamma):
        Z, w = tokens_of(psi, ridge, prompt, table), mapped_iterates(prompt, table, psi, ridge)
        assert shared.close(Z[..., -1], torch.einsum("bld,btd->blt", w, prompt.x), 1e-12)
        assert bool((Z[..., :-1] == Z[:, :1, :, :-1]).all())
        assert w[:, -1].abs().max() > 0.01
    model = Mapped(FullTable(L), psi, ridge)
    with torch.no_grad():
        model.memory.weights.copy_(Gamma)
    assert shared.close(model(prompt), tokens_of(psi, ridge, prompt, Gamma)[:, -1, -1, -1], 1e-12)
    assert shared.close(model.states(prompt), tokens_of(psi, ridge, prompt, Gamma), 1e-15)


def test_a_map_changes_the_last_value_alone():
    """With dense blocks: a map that hands on the prediction is linear attention, another adds keys times its change."""
    Z = mapped_tokens(KINDS["logistic"].sample(4, generator=make_generator("dense"))) + shared.normal(4, N + 1, D + 2)
    P, Q = shared.normal(2, D + 2, D + 2, name="dense")
    plain = token_form.attention(Z, P, Q)
    assert shared.close(mapped_attention(Z, P, Q, lambda y, s: s), plain, 1e-12)
    keys = Z @ Q.T @ (Z[:, :-1].mT @ (Z[:, :-1, -2] * Z[:, :-1, -1].square())[..., None])
    assert shared.close(mapped_attention(Z, P, Q, lambda y, s: s + y * s**2), plain + keys * P[:, -1], 1e-12)


def test_with_the_residual_for_a_map_it_is_the_memformer():
    """Its tokens, layer by layer, with y - s in one slot; and its reduced form."""
    psi, ridge, prompt, Gamma = parts("square")
    X, y = prompt.x[:, :-1], prompt.y[:, :-1]
    eye = torch.eye(D).double().repeat(L, 1, 1)
    w = memformer.iterates(X.mT @ X / N, (y[:, None] @ X)[:, 0] / N, eye, Gamma)
    assert shared.close(mapped_iterates(prompt, Gamma, psi, ridge), w, 1e-12)
    Z = token_form.many_registers(prompt.tokens(), *token_form.parameters(eye), Gamma[:, :, None, None])
    mine = tokens_of(psi, ridge, prompt, Gamma)
    assert shared.close(mine[..., -2] * (torch.arange(N + 1) < N) - mine[..., -1], Z[..., -1], 1e-12)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "any"])
def test_a_register_is_the_gradient(kind):
    """Steps are the table's sums of the objective's gradients, and those are automatic derivatives of its value."""
    psi, ridge, prompt, Gamma = parts(kind)
    w = mapped_iterates(prompt, Gamma, psi, ridge).requires_grad_()
    (gradients,) = torch.autograd.grad(KINDS[kind].value(prompt, w).sum(), w)
    steps = torch.einsum("lj,bjd->bld", Gamma, gradients[:, :-1])
    assert shared.close(w.diff(dim=1), -steps, 1e-12)


def test_conjugate_gradients_are_a_table_a_prompt():
    """Nonlinear conjugate gradients' steps, written as weights of their own gradients, are run by the layers."""
    objective = KINDS["logistic"]
    prompt = objective.sample(6, generator=make_generator("tables"))
    walk = convex.nonlinear_conjugate_gradients(objective, prompt, D)
    gradients = objective.gradient(prompt, walk[:, :-1])
    Gamma = torch.zeros(6, D, D).double()
    for layer in range(D):
        step = walk[:, layer + 1] - walk[:, layer]
        table = torch.linalg.lstsq(gradients[:, : layer + 1].mT, -step[..., None]).solution
        Gamma[:, layer, : layer + 1] = table[..., 0]
    assert shared.close(mapped_iterates(prompt, Gamma, objective.slope, objective.ridge), walk, 1e-9)


def test_without_a_map_layers_are_linear_in_the_labels():
    """Superposition, for full blocks, memory and GD++: and a logistic layer breaks it."""
    generator = make_generator("superposition")
    x = torch.randn(4, N + 1, D, generator=generator).double()
    one, two = torch.randn(2, 4, N + 1, generator=generator).double()
    w = torch.zeros_like(x)
    model = memformer.Memformer(memformer.Full(D, L), FullTable(L), memformer.Full(D, L))
    memformer.init_normal_(model, 0.2, generator=generator)

    def both(answer):
        return answer(Prompt(x, one, w)) + 2 * answer(Prompt(x, two, w)), answer(Prompt(x, one + 2 * two, w))

    assert shared.close(*both(model), 1e-12)
    assert not shared.close(*both(Mapped(StepALayer(L), KINDS["logistic"].slope)), 1e-2)


def test_linear_attention_sees_second_moments_only():
    """With dense blocks and memory the query's token depends on the examples through their Gram matrix alone: examples
    mixed by an orthogonal matrix change nothing. They do once there is a map, even where labels stay as they are.
    """
    prompt = KINDS["logistic"].sample(5, generator=make_generator("moments"))
    Z, n = prompt.tokens(), N
    # A reflection that leaves the first prompt's labels alone, and mixes the inputs.
    y = prompt.y[:1, :-1]
    v = shared.normal(1, n, name="mirror")
    v = v - (v * y).sum() / n * y
    mirror = torch.eye(n).double() - 2 * v.T @ v / v.square().sum()
    other = Z.clone()
    other[:, :-1] = mirror @ Z[:, :-1]
    P, Q = 0.3 * shared.normal(2, L, D + 1, D + 1, name="dense")
    Gamma = 0.3 * shared.normal(L, L, name="Gamma").tril()[:, :, None, None]
    mine, theirs = (token_form.many_registers(tokens, P, Q, Gamma)[:, :, -1] for tokens in (Z, other))
    assert mine.abs().max() > 0.1
    assert shared.close(mine, theirs, 1e-12)
    twin = Prompt(other[:1, :, :D], prompt.y[:1], prompt.w[:1])
    first = Prompt(prompt.x[:1], prompt.y[:1], prompt.w[:1])
    assert shared.close(other[0, :-1, -1], y[0], 1e-12)
    for kind, same in (("square", True), ("logistic", False)):
        psi, table = KINDS[kind].slope, torch.eye(L).double()
        assert shared.close(*(mapped_iterates(p, table, psi) for p in (first, twin)), 1e-12) == same
    assert not shared.close(*(convex.minimiser(KINDS["logistic"], p) for p in (first, twin)), 1e-2)


@every_kind
def test_the_query_label_is_hidden_and_order_does_not_count(kind):
    psi, ridge, prompt, Gamma = parts(kind)
    order = torch.cat([torch.randperm(N, generator=make_generator("order")), torch.tensor([N])])
    y = prompt.y.clone()
    y[:, -1] = 5.0
    Z = tokens_of(psi, ridge, prompt, Gamma)
    assert torch.equal(tokens_of(psi, ridge, Prompt(prompt.x, y, prompt.w), Gamma), Z)
    shuffled = Prompt(prompt.x[:, order], prompt.y[:, order], prompt.w)
    assert shared.close(tokens_of(psi, ridge, shuffled, Gamma), Z[:, :, order], 1e-12)


def test_memories_are_the_tables_of_their_methods():
    for memory in (EqualSteps(L), HeavyBall(L), StepALayer(L), OneRegister(L), FullTable(L)):
        assert torch.equal(memory.Gamma(), NoMemory(L).Gamma())
    ball, steps = HeavyBall(L), StepALayer(L)
    with torch.no_grad():
        ball.eta.fill_(0.3)
        ball.beta.fill_(0.6)
        steps.eta.copy_(torch.arange(1.0, L + 1))
    assert shared.close(ball.Gamma(), lfom.momentum_table(0.3, 0.6, L), 1e-15)
    assert steps.Gamma().diag().tolist() == [1, 2, 3, 4]
    ball.beta.data.zero_()
    ball.Gamma().sum().backward()
    # At beta = 0 the first lag alone moves with beta: L - 1 entries of eta.
    assert (ball.eta.grad.item(), ball.beta.grad.item()) == pytest.approx((L, 0.3 * (L - 1)))


@pytest.mark.usefixtures("as_installed")
def test_what_does_not_match_is_refused():
    psi, _, prompt, Gamma = parts("logistic")
    with pytest.raises(
        ValueError, match=r"Gamma must have shape \(4, 4\) or \(5 or 1, 4, 4\) to match Z and P, got \(3, 3\)"
    ):
        tokens_of(psi, 0.0, prompt, Gamma[:3, :3])
