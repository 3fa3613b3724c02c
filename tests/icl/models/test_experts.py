"""Heads and gates against their token equations, what they merge into and when they do not, and what training knows.

Tolerances. Everything is in float64 unless said otherwise. Values are sums of products over at most 20 tokens, four
layers and three heads: 1e-12 of the largest value (at least 1) covers the rounding.
"""

import itertools
from functools import partial

import numpy as np
import pytest
import shared
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icl.models import memformer
from icl.models.experts import ConvexGate, FreeGate, MultiHead, OutputMixture, PromptGate, merge
from icl.models.memformer import (
    FixedBlocks,
    Full,
    FullTable,
    Memformer,
    NoMemory,
    OneRegister,
    ScaledBlocks,
    Shared,
    TokenWise,
)
from icl.profile import make_generator
from icl.tasks import Prompt, quadratics

# Oracles

normal, prompts, stirred = shared.normal, shared.memory_prompts, shared.stirred
close = partial(shared.close, rounding=1e-12)
L, HEADS = 3, 3
# (d, n): n + 1 other than d, more and fewer examples than dimensions, one dimension.
SIZES = [(3, 7), (4, 2), (1, 4)]
SCALES = [quadratics.mean_curvature, quadratics.weighted_curvature, quadratics.largest_curvature]


def heads(d, kind, n=7):
    """Three heads, no two alike: their blocks' kinds and their memories differ, and all parameters are drawn."""
    blocks = [FixedBlocks(normal(L, d, d, name="A") / 4), ScaledBlocks(normal(d, d, name="matrix") / 4, L), Full(d, L)]
    memories = {
        "without": [NoMemory(L)] * HEADS,
        "one register": [OneRegister(L) for _ in range(HEADS)],
        "of every kind": [Shared(L), FullTable(L), FullTable(L, rows=d + 1)],
        "one shared": [Shared(L)] * HEADS,
        "token-wise": [TokenWise(L, n) for _ in range(HEADS)],
        "one token-wise": [TokenWise(L, n)] * HEADS,
        "token-wise and others": [TokenWise(L, n), OneRegister(L), FullTable(L, rows=d + 1)],
        "GD++": [NoMemory(L), FullTable(L), FullTable(L, rows=d + 1)],
        "GD++, token-wise": [FullTable(L), TokenWise(L, n), FullTable(L, rows=d + 1)],
    }[kind]
    curved = [None, Full(d, L), ScaledBlocks(torch.eye(d).double(), L)] if "GD++" in kind else [None] * HEADS
    parts = zip(blocks, memories, curved, strict=True)
    return [stirred(Memformer(*each), 0.2, seed) for seed, each in enumerate(parts)]


KINDS = ["without", "one register", "of every kind", "one shared", "GD++"]
TOKEN_WISE = ["token-wise", "one token-wise", "token-wise and others", "GD++, token-wise"]
GATES = {
    "none": lambda: None,
    "free": lambda: stirred(FreeGate(HEADS)),
    "convex": lambda: stirred(ConvexGate(HEADS)),
    "exp": lambda: PromptGate(*normal(2, HEADS, name="gate") / 3, quadratics.mean_curvature),
    "softmax": lambda: PromptGate(
        *normal(2, HEADS, name="gate"), quadratics.largest_curvature, partial(torch.softmax, dim=-1)
    ),
}
every_kind = pytest.mark.parametrize("kind", KINDS + TOKEN_WISE)
every_gate = pytest.mark.parametrize("gate", GATES)
every_size = pytest.mark.parametrize(("d", "n"), SIZES)
# Every gate at the first size, and one that reads the prompt at the others.
every_form = pytest.mark.parametrize(
    ("gate", "d", "n"), [(gate, *SIZES[0]) for gate in GATES] + [("exp", *size) for size in SIZES[1:]]
)


def gram(X):
    return X.transpose(1, 2) @ X / X.shape[1]


@every_form
@every_kind
def test_the_reduced_form_is_the_token_form(kind, gate, d, n):
    """At every layer the query's token holds -<w_l, x_q>, and w_l - w* = -M_l w*: `states`, `errors` and the call.

    Heads with B beside heads without; gates of each prompt. With a weight a token in some heads or all no one w
    explains what is left at the examples. Planted: the gates left out of one form, a head's registers read a layer
    late, the tokens moved at each head's turn, one memory's weights for another's, the query's weight for all tokens,
    and the query's input moved by an example's weight are seen.
    """
    model, prompt = MultiHead(heads(d, kind, n), GATES[gate]()), prompts(d, n)
    states = model.states(prompt)
    X, query, w_star = prompt.x[:, :-1], prompt.x[:, -1], prompt.w[:, 0]
    M = model.errors(X)
    w = w_star.unsqueeze(1) - (M @ w_star[:, None, :, None]).squeeze(-1)
    assert M.shape == (len(X), L + 1, d, d)
    assert close(-states[:, :, -1, -1], (w * query.unsqueeze(1)).sum(-1))
    left, explained = states[:, :, :-1, -1], prompt.y[:, None, :-1] - w @ X.transpose(1, 2)
    if kind in KINDS:
        assert close(left, explained)
    elif n > d:
        assert (left - explained)[:, -1].abs().max() > 1e-3
    assert close(model(prompt), -states[:, -1, -1, -1])
    assert torch.equal(model.risks(X, np.eye(d)), memformer.risks(M, np.eye(d)))


def test_labels_that_no_weights_explain_are_read_too():
    """`forward` follows the labels themselves: for labels that are noise it is the token equations as well."""
    d, n = 3, 7
    met = prompts(d, n)
    noisy = Prompt(met.x, normal(*met.y.shape, name="noise"), met.w)
    for kind in TOKEN_WISE:
        model = MultiHead(heads(d, kind), GATES["exp"]())
        assert close(model(noisy), -model.states(noisy)[:, -1, -1, -1])


def test_equal_weights_for_all_tokens_are_a_shared_memory():
    """Token-wise heads whose tokens all have one weight are heads of `Shared` memory: the same errors and predictions.

    With gates of each prompt; heads that share a memory are summed, for one head's layers.
    """
    d, n = 3, 7
    plain, spread = [stirred(Shared(L), 0.3, h) for h in range(HEADS)], [TokenWise(L, n) for _ in range(HEADS)]
    with torch.no_grad():
        for one, each in zip(plain, spread, strict=True):
            each.weights.copy_(one.weights[:, None].expand(L, n + 1))
    A = [FixedBlocks(normal(L, d, d, name=f"A{h}") / 4) for h in range(HEADS)]
    alike, wide = (
        MultiHead([Memformer(*each) for each in zip(A, memories, strict=True)], GATES["exp"]())
        for memories in (plain, spread)
    )
    X = prompts(d, n).x[:, :-1]
    assert close(wide.errors(X), alike.errors(X))
    assert close(wide(prompts(d, n)), alike(prompts(d, n)))
    one = MultiHead(heads(d, "one token-wise"), GATES["free"]())
    assert len(one.blocks(gram(X))[0]) == L


@every_gate
@every_kind
def test_outputs_are_mixed_as_the_theorem_says(kind, gate):
    """The prediction is the sum of the heads' own, read off their tokens, each times its gate; M_l is that of the sum.

    At every layer, for every prompt. Planted: gates that do not reach M_l, and I left out of it, are seen.
    """
    d, n = 3, 7
    alone, prompt = heads(d, kind), prompts(d, n)
    model, X = OutputMixture(alone, GATES[gate]()), prompt.x[:, :-1]
    alpha = model.gates(gram(X)).expand(len(X), HEADS)
    mixed = sum(alpha[:, h, None] * -head.states(prompt)[:, :, -1, -1] for h, head in enumerate(alone))
    w_star = prompt.w[:, 0]
    w = w_star.unsqueeze(1) - (model.errors(X) @ w_star[:, None, :, None]).squeeze(-1)
    assert close((w * prompt.x[:, -1:]).sum(-1), mixed)
    assert close(model(prompt), mixed[:, -1])


@every_kind
def test_a_gate_of_one_head_is_that_head(kind):
    """Gates (0, 1, 0) make either mixture the second head alone: the content of Thm 4.1.

    Planted: gates in another order than heads are seen.
    """
    d, n = 3, 7
    alone, prompt = heads(d, kind), prompts(d, n)
    for make in (MultiHead, OutputMixture):
        gate = FreeGate(HEADS)
        with torch.no_grad():
            gate.alpha.copy_(torch.tensor([0.0, 1.0, 0.0]))
        model = make(alone, gate)
        assert close(model(prompt), alone[1](prompt))
        # With B of the others 0 their tokens stay, so that the states are the head's as well.
        assert close(model.errors(prompt.x[:, :-1]), alone[1].errors(prompt.x[:, :-1]))


def test_heads_of_one_memory_cost_one_head():
    """Heads that share a memory are added before the layers run, unless gates differ from prompt to prompt; the same
    weights in memories of their own give the same errors from three times the layers.
    """
    d, memory = 3, stirred(Shared(L))
    X = prompts(d, 7).x[:, :-1]
    A = [normal(L, d, d, name=f"A{h}") / 4 for h in range(HEADS)]
    copies = [Shared(L) for _ in A]
    for other in copies:
        other.load_state_dict(memory.state_dict())
    one = MultiHead([Memformer(FixedBlocks(a), memory) for a in A], stirred(FreeGate(HEADS)))
    three = MultiHead([Memformer(FixedBlocks(a), each) for a, each in zip(A, copies, strict=True)], one.gate)
    read = MultiHead(one._members(), GATES["exp"]())
    assert [len(model.blocks(gram(X))[0]) for model in (one, three, read)] == [L, 3 * L, 3 * L]
    assert close(one.errors(X), three.errors(X))


# Merging


def same(merged, several, d, n):
    """Whether a head does what several do together, on prompts of their own."""
    prompt = prompts(d, n, seed=1)
    X = prompt.x[:, :-1]
    return close(merged.errors(X), several.errors(X)) and close(merged(prompt), several(prompt))


def gated(alpha):
    gate = FreeGate(len(alpha))
    with torch.no_grad():
        gate.alpha.copy_(alpha)
    return gate


@every_size
@pytest.mark.parametrize("memory", [NoMemory, OneRegister, Shared, FullTable])
def test_heads_of_equal_weights_are_one(memory, d, n):
    """With B = 0 it is the head with A = sum_h alpha_h A_h, entry by entry, and their memory, copied.

    Without gates and with. Planted: gates left out, and the mean for the sum, are seen.
    """
    kept = stirred(memory(L))
    alone = [Memformer(FixedBlocks(normal(L, d, d, name=f"A{h}") / 4), kept) for h in range(HEADS)]
    blocks = torch.stack([head.preconditioner.A() for head in alone])
    alpha = normal(HEADS, name="alpha")
    for gates in (None, alpha):
        merged, weights = merge(alone, gates), torch.ones(HEADS).double() if gates is None else gates
        assert shared.close(merged.preconditioner.A(), (weights[:, None, None, None] * blocks).sum(0), 1e-15)
        assert torch.equal(merged.memory.Gamma(), kept.Gamma())
        assert merged.memory is not kept
        assert same(merged, MultiHead(alone, None if gates is None else gated(gates)), d, n)


@pytest.mark.parametrize("proportional", ["weights", "matrices"])
def test_heads_in_proportion_are_one(proportional):
    """Shared memories with weights of their own make A_j = sum_h alpha_h Gamma_j^h A_j^h under weights 1; multiples of
    one matrix make one table. A register that no head uses is none. Planted: one head's weights for all are seen.
    """
    d, n, alpha = 3, 7, normal(HEADS, name="alpha")
    if proportional == "weights":
        parts = [Memformer(FixedBlocks(normal(L, d, d, name=f"A{h}") / 4), Shared(L)) for h in range(HEADS)]
        alone = [stirred(part, 0.3, h) for h, part in enumerate(parts)]
        with torch.no_grad():
            for head in alone:
                head.memory.weights[1] = 0
    else:
        matrix = normal(d, d, name="matrix") / 4
        parts = [Memformer(ScaledBlocks(matrix, L), FullTable(L, rows=rows)) for rows in (1, d + 1, 1)]
        alone = [stirred(part, 0.3, h) for h, part in enumerate(parts)]
    merged = merge(alone, alpha)
    assert same(merged, MultiHead(alone, gated(alpha)), d, n)
    if proportional == "weights":
        each = [head.memory.weights[:, None, None] * head.preconditioner.A() for head in alone]
        summed = (alpha[:, None, None, None] * torch.stack(each)).sum(0)
        assert close(merged.preconditioner.A(), summed)
        assert close(merged.memory.Gamma()[:, [0, 2]], torch.ones(L, L).tril()[:, [0, 2]].double())


def test_a_merged_head_does_not_depend_on_an_svd(monkeypatch):
    """With weights of one size and both signs, another LAPACK's signs and last digits give the same head."""
    svd, generator = torch.linalg.svd, make_generator("another svd")
    matrix = normal(2, 2, name="matrix")
    alone = [Memformer(ScaledBlocks(matrix, L), FullTable(L)) for _ in range(HEADS)]
    with torch.no_grad():
        for factor, head in enumerate(alone, 1):
            head.preconditioner.a.fill_(factor)
            head.memory.weights.copy_((-1.0) ** torch.arange(L)[:, None].expand(L, L))
        alone[0].memory.weights.mul_(2)

    def another(*given):
        U, sizes, V = svd(*given)
        sign = -1 if torch.rand((), generator=generator) < 0.5 else 1
        return sign * U * (1 + 1e-15 * torch.randn(U.shape, generator=generator, dtype=U.dtype)), sizes, sign * V

    merged = merge(alone)
    monkeypatch.setattr(torch.linalg, "svd", another)
    for _ in range(10):
        again = merge(alone)
        assert close(again.memory.Gamma(), merged.memory.Gamma())
        assert close(again.preconditioner.A(), merged.preconditioner.A())


def test_heads_with_scalar_b_are_one():
    """Multiples a_h of one A and b_h of one B move tokens as one head of sum_h a_h and sum_h a_h b_h / sum_h a_h does.

    A head without B counts with b_h = 0. Planted: the sum of b_h is seen.
    """
    d, n = 3, 7
    A, B = (normal(d, d, name=name) / 4 for name in "AB")
    a, b = normal(2, HEADS, L, name="multiples")
    b[2] = 0
    memory = stirred(FullTable(L, rows=d + 1))
    curved = [FixedBlocks(b[h, :, None, None] * B) for h in range(2)] + [None]
    alone = [Memformer(FixedBlocks(a[h, :, None, None] * A), memory, curved[h]) for h in range(HEADS)]
    merged = merge(alone)
    assert close(merged.preconditioner.A(), a.sum(0)[:, None, None] * A)
    assert close(merged.curvature.A(), ((a * b).sum(0) / a.sum(0))[:, None, None] * B)
    assert same(merged, MultiHead(alone), d, n)


def test_heads_that_are_not_one_are_refused():
    """Matrices and weights that are both out of proportion, matrices B of a rank above one beside those A, and weights
    that differ beside B, are what no single head does: refused by name, with the layer.
    """
    d = 3
    A, B = normal(2, HEADS, L, d, d, name="heads") / 4
    free = [stirred(Memformer(FixedBlocks(each), FullTable(L)), 0.3, h) for h, each in enumerate(A)]
    with pytest.raises(ValueError, match=r"heads must have weights or matrices in proportion .* layer 0 has two"):
        merge(free)
    curved = [Memformer(FixedBlocks(a), NoMemory(L), FixedBlocks(b)) for a, b in zip(A, B, strict=True)]
    with pytest.raises(ValueError, match="heads must move the inputs as one head"):
        merge(curved)
    assert same(merge(curved[:1]), MultiHead(curved[:1]), d, 7)
    unequal = [Memformer(FixedBlocks(a), FullTable(L), FixedBlocks(b)) for a, b in zip(A, B, strict=True)]
    unequal = [stirred(head, 0.3, h) for h, head in enumerate(unequal)]
    with pytest.raises(ValueError, match="heads must have equal weights beside a curvature"):
        merge(unequal)


def test_experts_of_several_variances_are_one_polynomial():
    """Heads that are one method with A = I/s_h, gated on layers, are that method with A = r I, r = sum_h alpha_h / s_h:
    other gates of the same r are the same head. Gated on outputs they are not.
    """
    d, n, variances = 4, 9, torch.tensor([1.0, 2.0, 3.0]).double()
    memory, eye = stirred(OneRegister(L)), torch.eye(4).double()
    alone = [Memformer(FixedBlocks((eye / s).repeat(L, 1, 1)), memory) for s in variances]
    X = prompts(d, n).x[:, :-1]
    one = Memformer(FixedBlocks((0.7 * eye).repeat(L, 1, 1)), memory).errors(X)
    for alpha in ([0.7, 0.0, 0.0], [0.0, 1.4, 0.0], [-0.3, 1.0, 1.5]):
        alpha = torch.tensor(alpha, dtype=torch.float64)
        assert (alpha / variances).sum().item() == pytest.approx(0.7)
        assert close(MultiHead(alone, gated(alpha)).errors(X), one)
    assert (OutputMixture(alone, gated(alpha)).errors(X) - one).abs().max() > 0.01


# Gates


def test_gates_start_as_they_say():
    """Free and convex gates are the mean; free ones follow their numbers, convex ones stay positive with sum 1."""
    H = gram(prompts(3, 7).x[:, :-1])
    for kind in (FreeGate, ConvexGate):
        assert torch.equal(kind(4)(H), torch.full((1, 4), 0.25).double())
    free, convex = stirred(FreeGate(4)), stirred(ConvexGate(4), 3.0)
    assert torch.equal(free(H)[0], free.alpha)
    assert (convex(H) > 0).all()
    assert convex(H).sum().item() == pytest.approx(1, abs=1e-14)
    assert close(convex(H)[0], convex.logits.exp() / convex.logits.exp().sum())
    u, v = normal(2, 4, name="starts")
    gate, scale = PromptGate(u, v, quadratics.mean_curvature), quadratics.mean_curvature(H)
    u.zero_()
    assert close(gate(H), scale[:, None] ** gate.u * v.exp())
    # On another device the check of the scale would wait for it: a meta tensor has no numbers to read.
    assert gate.to("meta")(H.to("meta")).shape == (len(H), 4)


@pytest.mark.parametrize("scale", SCALES, ids=lambda scale: scale.__name__)
@given(st.floats(0.01, 100))
@settings(max_examples=10)
def test_a_gate_that_reads_the_scale_takes_it_away(scale, factor):
    """With u = -1 a head that is one polynomial errs in the same way whatever the unit of the inputs, in either form.

    Planted: the standard deviation for the variance is seen.
    """
    d, X = 3, prompts(3, 7).x[:, :-1]
    head = Memformer(FixedBlocks(torch.eye(d).double().repeat(L, 1, 1)), stirred(OneRegister(L)))
    gate = PromptGate(-torch.ones(1).double(), torch.zeros(1).double(), scale)
    model = MultiHead([head], gate)
    assert shared.close(model.errors(factor * X), model.errors(X), 1e-9)
    ratio = scale(gram(X))
    assert shared.close(model.errors(X)[:1], head.errors(X[:1] / ratio[0].sqrt()), 1e-9)


# Training


def trained(model, X, rates, steps=100):
    """The losses of Adam's steps on the mean risk, one rate for each group of parameters."""
    optimiser, losses = torch.optim.Adam([{"params": list(p), "lr": lr} for p, lr in rates]), []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = model.errors(X)[:, -1].square().sum() / len(X)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return np.array(losses)


@pytest.mark.usefixtures("as_installed")
def test_heads_are_a_rate_for_adam():
    """100 steps of rate eta on three heads, B = 0, one memory trained along, are 100 steps of rate 3 eta on their sum.

    Losses, the blocks' sum and the memory agree to 1e-9. One head of rate eta is off by more than 1 % within 50 steps.

    Adam's steps do not depend on a gradient's size but for its eps, and every head's gradient is the sum's.
    """
    d, n, eta = 2, 6, 0.003
    X, memory = normal(12, n, d, name="Adam"), stirred(Shared(2), 0.1)
    alone = [Memformer(Full(d, 2), memory) for _ in range(HEADS)]
    with torch.no_grad():
        for h, head in enumerate(alone):
            head.preconditioner.matrices.div_(3).add_(normal(2, d, d, name=f"start {h}") / 10)
    one, slow = merge(alone), merge(alone)
    blocks = (head.preconditioner.matrices for head in alone)
    several = trained(MultiHead(alone), X, [(blocks, eta), (memory.parameters(), eta)])
    losses = trained(one, X, [(one.preconditioner.parameters(), HEADS * eta), (one.memory.parameters(), eta)])
    np.testing.assert_allclose(losses, several, rtol=1e-9)
    summed = sum(head.preconditioner.matrices for head in alone)
    assert shared.close(one.preconditioner.matrices, summed, 1e-9)
    assert shared.close(one.memory.weights, memory.weights, 1e-9)
    behind = trained(slow, X, [(slow.preconditioner.parameters(), eta), (slow.memory.parameters(), eta)], 50)
    assert abs(behind - several[:50]).max() > 0.01 * several.max()


@every_gate
def test_gradients_reach_every_parameter(gate):
    """Every parameter of heads and of gates has a gradient, finite and not 0."""
    d, n = 3, 7
    X = prompts(d, n).x[:, :-1]
    for make, kind in itertools.product((MultiHead, OutputMixture), ("GD++", "GD++, token-wise")):
        model = make(heads(d, kind), GATES[gate]())
        model.risks(X, np.eye(d))[:, -1].mean().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all()
            assert parameter.grad.abs().max() > 0, name


def test_gradients_are_those_of_finite_differences():
    """Derivatives of predictions by a gate that reads the prompt and a head's weights: torch.autograd.gradcheck."""
    d, layers = 2, 2
    A, batch = normal(2, layers, d, d, name="blocks") / 2, prompts(d, 3)
    gate = PromptGate(*normal(2, 2, name="gate"), quadratics.weighted_curvature)
    model = MultiHead([Memformer(FixedBlocks(a), FullTable(layers)) for a in A], gate)

    def predictions(u, table):
        return torch.func.functional_call(model, {"gate.u": u, "heads.1.memory.weights": table}, (batch,))

    u, table = normal(2, name="u").requires_grad_(), normal(layers, layers, name="table").requires_grad_()
    assert torch.autograd.gradcheck(predictions, (u, table))


# Properties


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@every_gate
def test_the_dtype_is_kept(gate, dtype):
    """Predictions, states, M_l and a merged head are in the dtype of heads and prompts; float32 is right to 1e-4."""
    d, n = 3, 7
    wide = prompts(d, n)
    prompt = Prompt(*(part.to(dtype) for part in (wide.x, wide.y, wide.w)))
    made = GATES[gate]()
    parts = heads(d, "of every kind")
    expected = MultiHead(parts, made)(wide)
    model = MultiHead(parts, made).to(dtype)
    for value in (model(prompt), model.states(prompt), model.errors(prompt.x[:, :-1])):
        assert value.dtype == dtype
    torch.testing.assert_close(model(prompt).double(), expected, rtol=1e-4, atol=1e-4)
    one = merge([Memformer(Full(d, L, dtype=dtype), Shared(L, dtype=dtype)) for _ in range(2)])
    assert one(prompt).dtype == dtype


@every_gate
def test_prompts_are_independent_and_the_label_of_the_query_is_not_read(gate):
    """Other prompts beside one change no bit of it, and neither does its own label.

    Planted: the batch's mean scale in a gate is seen.
    """
    d, n = 3, 7
    prompt = prompts(d, n)
    other = Prompt(*(torch.cat([part[:1], 2 * part[1:]]) for part in (prompt.x, prompt.y, prompt.w)))
    told = prompt.y.clone()
    told[:, -1] = 1e6
    for make, kind in itertools.product((MultiHead, OutputMixture), ("of every kind", "token-wise and others")):
        model = make(heads(d, kind), GATES[gate]())
        assert torch.equal(model(other)[:1], model(prompt)[:1])
        assert torch.equal(model(Prompt(prompt.x, told, prompt.w)), model(prompt))


def test_one_head_is_a_memformer():
    """A single head without a gate is that head, in every form: the same numbers up to rounding."""
    d, n = 3, 7
    prompt = prompts(d, n)
    for kind in KINDS + TOKEN_WISE:
        for head in heads(d, kind):
            for make in (MultiHead, OutputMixture):
                assert close(make([head])(prompt), head(prompt))
            assert close(MultiHead([head]).states(prompt), head.states(prompt))


def test_the_module_keeps_its_promises_to_torch():
    """Parameters of heads, of a memory that two share and of the gate are found once; a state is saved and restored."""
    memory = Shared(L)
    model = MultiHead([Memformer(Full(2, L), memory), Memformer(Full(2, L), memory)], FreeGate(2))
    assert sum(1 for _ in model.parameters()) == 4
    other = MultiHead([Memformer(Full(2, L), memory), Memformer(Full(2, L), memory)], FreeGate(2))
    stirred(model)
    other.load_state_dict(model.state_dict())
    prompt = prompts(2, 5)
    assert torch.equal(other(prompt), model(prompt))
