"""Memformers against what they are, written out, such as textbook conjugate gradients; what they keep to, whatever
their parts, parameters and sizes; exact risks against measured ones.

Tolerances. Everything is in float64 unless said otherwise. Values are sums of products over at most 20 tokens and five
layers, so that 1e-10 of the largest value (at least 1) covers the rounding; for the properties it is 1e-9, over at most
13 tokens and four layers.
"""

import copy
import functools

import chance
import numpy as np
import pytest
import shared
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from icl.models import memformer, token_form
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
    init_normal_,
)
from icl.profile import make_generator
from icl.tasks import Prompt, StationaryRegression, batches

# Oracles

ROUNDING = 1e-10
normal, prompts, stirred = shared.normal, shared.memory_prompts, shared.stirred
close = functools.partial(shared.close, rounding=ROUNDING)
L = 3
# (d, n): n + 1 other than d, more and fewer examples than dimensions, one dimension.
SIZES = [(3, 7), (4, 2), (1, 4)]


def preconditioners(d):
    return {
        "fixed": FixedBlocks(normal(L, d, d, name="A") / 3),
        "scaled": ScaledBlocks(normal(d, d, name="matrix") / 3, L),
        "full": Full(d, L),
    }


@functools.cache
def models(d, n):
    """Every memory over every preconditioner, with matrices B and without; no test changes their parameters."""
    memories = {
        "without": lambda: NoMemory(L),
        "one register": lambda: OneRegister(L),
        "shared": lambda: Shared(L),
        "free": lambda: FullTable(L),
        "free rows": lambda: FullTable(L, rows=d + 1),
        "token-wise": lambda: TokenWise(L, n),
    }
    found = {}
    for kind, block in preconditioners(d).items():
        for name, memory in memories.items():
            found[f"{kind}, {name}"] = stirred(Memformer(block, memory()))
            found[f"{kind}, {name}, GD++"] = stirred(Memformer(block, memory(), Full(d, L)))
    return found


NAMES = list(models(1, 1))
every_model = pytest.mark.parametrize("name", NAMES)
every_size = pytest.mark.parametrize(("d", "n"), SIZES)


def gram(X, y=None):
    """H, and b from labels."""
    H = X.transpose(1, 2) @ X / X.shape[1]
    return H if y is None else (H, (X.transpose(1, 2) @ y.unsqueeze(-1)).squeeze(-1) / X.shape[1])


@every_size
@every_model
def test_the_reduced_form_is_the_token_form(name, d, n):
    """At every layer the query's token holds -<w_l, x_q>, and w_l - w* = -M_l w*: `states`, `errors`, `iterates`, call.

    Every preconditioner with every memory, with B and without; inputs are moved by B as T_l says, so that example i
    holds y_i - <w_l, x_i> throughout, but for the token-wise memory. Planted: A for A', B' for B, A' for T' A' T, the
    labels' weight for the inputs' rows, 1/n left out, the query's input moved by an example's weight are seen.
    """
    model, prompt = models(d, n)[name], prompts(d, n)
    states = model.states(prompt)
    X, query, w_star = prompt.x[:, :-1], prompt.x[:, -1], prompt.w[:, 0]
    w = w_star.unsqueeze(1) - (model.errors(X) @ w_star[:, None, :, None]).squeeze(-1)
    assert close(-states[:, :, -1, -1], (w * query.unsqueeze(1)).sum(-1))
    assert close(model(prompt), -states[:, -1, -1, -1])
    A, Gamma, B = model.blocks()
    if "token-wise" in name:
        assert close(token_form.token_iterates(X, prompt.y[:, :-1], A, Gamma, B), w)
    else:
        assert close(states[:, :, :-1, -1], prompt.y[:, None, :-1] - (w @ X.transpose(1, 2)))
        assert close(memformer.iterates(*gram(X, prompt.y[:, :-1]), A, Gamma, B), w)


@every_model
def test_the_label_of_the_query_is_never_read(name):
    """With another label of the query all states and the prediction stay as they were, bit for bit.

    Labels far from it, the largest of their dtype among them. Planted: tokens with the label in place of 0 are seen.
    """
    model, prompt = models(3, 5)[name], prompts(3, 5)
    for label in (1e6, torch.finfo(prompt.y.dtype).max):
        y = prompt.y.clone()
        y[:, -1] = label
        other = Prompt(prompt.x, y, prompt.w)
        assert torch.equal(model(other), model(prompt))
        assert torch.equal(model.states(other), model.states(prompt))


def conjugate_gradients(H, b, steps):
    """Textbook CG from 0 on one system: weights, steps alpha and shares gamma of the last direction."""
    w, r, before = [np.zeros_like(b)], b, np.inf
    s, alphas, gammas = np.zeros_like(b), [], []
    for _ in range(steps):
        gammas.append(r @ r / before)
        s = r + gammas[-1] * s
        alphas.append(r @ r / (s @ H @ s))
        w.append(w[-1] + alphas[-1] * s)
        before, r = r @ r, r - alphas[-1] * H @ s
    return np.array(w), np.array(alphas), np.array(gammas)


def test_one_register_with_a_prompts_own_scalars_is_conjugate_gradients():
    """Theorem 3.1 with alpha and gamma a prompt each: the states are textbook CG's, and after d = 5 layers solved.

    Labels left at all tokens, and the weights of the reduced form with a table of weights for each prompt. In numpy,
    prompt by prompt. Scalars of one prompt for all leave others unsolved. Planted: gamma one layer late is seen.
    """
    d, n = 5, 20
    prompt = prompts(d, n)
    X, query = prompt.x[:, :-1], prompt.x[:, -1]
    H, b = gram(X, prompt.y[:, :-1])
    w, alpha, gamma = (
        torch.tensor(np.array(a))
        for a in zip(*(conjugate_gradients(*p, d) for p in zip(H.numpy(), b.numpy(), strict=True)), strict=True)
    )
    A = torch.eye(d, dtype=torch.float64).repeat(d, 1, 1)
    states = token_form.one_register(prompt.tokens(), *token_form.parameters(A), alpha, gamma)
    assert close(states[:, :, -1, -1], -(w * query.unsqueeze(1)).sum(-1))
    assert close(states[:, :, :-1, -1], prompt.y[:, None, :-1] - w @ X.transpose(1, 2))
    assert shared.close(w[:, -1], prompt.w[:, 0], 1e-8)
    Gamma = torch.zeros(len(H), d, d, 1, dtype=torch.float64)
    for layer, j in zip(*np.tril_indices(d), strict=True):
        Gamma[:, layer, j, 0] = alpha[:, layer] * gamma[:, j + 1 : layer + 1].prod(1)
    assert close(memformer.iterates(H, b, A, Gamma), w)
    M = memformer.error_matrices(H, A, Gamma)
    assert close((M @ prompt.w[:, :1].unsqueeze(-1)).squeeze(-1), prompt.w[:, :1] - w)
    one = token_form.one_register(prompt.tokens(), *token_form.parameters(A), alpha[0], gamma[0])
    left = one[:, -1, :-1, -1].abs().amax(1)
    assert left[0] < 1e-8
    assert left[1:].min() > 1e-3


@pytest.mark.parametrize("curved", [False, True])
def test_a_register_is_its_table_of_registers(curved):
    """(3.1), (3.2) with alpha and gamma are (3.3), (3.4) with the weights of `OneRegister.Gamma`, with B and without.

    The first gamma, of an empty register, has no effect. Planted: gamma squared in the product is seen.
    """
    d, layers = 3, 4
    memory, prompt = stirred(OneRegister(layers), 0.5), prompts(d, 5)
    A, B = normal(2, layers, d, d, name="A") / 3
    blocks = token_form.parameters(A, B if curved else None)
    Z, Gamma = prompt.tokens(), memory.Gamma()
    many = token_form.many_registers(Z, *blocks, Gamma[:, :, None, None])
    for first in (0.0, 2.0):
        gamma = torch.cat([torch.tensor([first]).double(), memory.gamma])
        assert close(token_form.one_register(Z, *blocks, memory.alpha, gamma), many)
    assert torch.equal(Gamma, Gamma.tril())


def test_memories_start_as_they_say():
    """One register and a free table start as no memory, token-wise weights as shared ones, at (1, 0, ..).

    Without memory the table is the identity; that of shared weights has a column for each of them, and the token-wise
    one as well.
    """
    eye = torch.eye(L, dtype=torch.float64)
    for memory in (NoMemory(L), OneRegister(L), FullTable(L)):
        assert torch.equal(memory.Gamma(), eye)
    assert torch.equal(FullTable(L, rows=4).Gamma(), eye.unsqueeze(-1).expand(L, L, 4))
    for table in (FullTable(L), FullTable(L, rows=4)):
        table.weights.data.fill_(1.0)
        lower = torch.ones(L, L, dtype=torch.float64).tril()
        assert torch.equal(table.Gamma(), lower if table.weights.dim() == 2 else lower.unsqueeze(-1).expand(L, L, 4))
    first = torch.zeros(L, L, dtype=torch.float64)
    first[:, 0] = 1
    assert torch.equal(Shared(L).Gamma(), first)
    assert torch.equal(TokenWise(L, 5).Gamma(), first.unsqueeze(-1).expand(L, L, 6))
    weights, tokens = stirred(Shared(L)), stirred(TokenWise(L, 5))
    for layer, j in np.ndindex(L, L):
        assert weights.Gamma()[layer, j] == weights.weights[j] * (j <= layer)
        assert torch.equal(tokens.Gamma()[layer, j], tokens.weights[j] * (j <= layer))


def test_parts_start_at_the_identity_and_keep_copies():
    """Full matrices start at the identity and scaled ones at the matrix itself; a matrix changed later changes none.

    Planted: no copy is seen.
    """
    A, matrix = normal(L, 2, 2, name="A"), normal(2, 2, name="matrix")
    fixed, scaled, kept = FixedBlocks(A), ScaledBlocks(matrix, L), (A.clone(), matrix.clone())
    A.zero_()
    matrix.zero_()
    assert torch.equal(fixed.A(), kept[0])
    assert torch.equal(scaled.A(), kept[1].expand(L, 2, 2))
    assert torch.equal(Full(2, L).A(), torch.eye(2, dtype=torch.float64).expand(L, 2, 2))
    assert [len(list(block.parameters())) for block in (fixed, scaled, Full(2, L))] == [0, 1, 1]


@pytest.mark.parametrize("curved", [False, True])
def test_rows_of_a_register_act_through_b_alone(curved):
    """Weights of rows 1 .. d change no label and no M_l where B = 0, bit for bit; beside a B they do.

    Planted: the first row's weight for the labels is seen.
    """
    d, n = 3, 5
    prompt, A, B = prompts(d, n), normal(L, d, d, name="A") / 3, normal(L, d, d, name="B") / 3 if curved else None
    Gamma = normal(2, L, L, d + 1, name="rows")
    Gamma[1, :, :, -1] = Gamma[0, :, :, -1]
    blocks, H = token_form.parameters(A, B), gram(prompt.x[:, :-1])
    one, other = (token_form.many_registers(prompt.tokens(), *blocks, G.unsqueeze(2))[..., -1] for G in Gamma)
    M, N = (memformer.error_matrices(H, A, G, B) for G in Gamma)
    if curved:
        assert (one - other).abs().max() > 1e-2
        assert (M - N).abs().max() > 1e-2
    else:
        assert torch.equal(one, other)
        assert torch.equal(M, N)
        assert close(M, memformer.error_matrices(H, A, Gamma[0, :, :, -1]))


def test_token_wise_weights():
    """Equal for all tokens they are shared weights; weights that vary leave labels that no single w explains.

    Least squares of y_i minus the label left on x_i, over the examples: for shared weights nothing stays, for
    token-wise ones 1e-3 and more in every prompt from the first layer on. Yet the query is still <w_l, x_q>: the test
    of the reduced form, which sees the query's weight planted for every token.
    """
    d, n = 3, 8
    shared, equal, varied = stirred(Shared(L)), TokenWise(L, n), stirred(TokenWise(L, n))
    with torch.no_grad():
        equal.weights.copy_(shared.weights.unsqueeze(-1).expand(L, n + 1))
    block, prompt = FixedBlocks(normal(L, d, d, name="A") / 3), prompts(d, n)
    X = prompt.x[:, :-1]
    assert close(Memformer(block, equal).errors(X), Memformer(block, shared).errors(X))
    left = {}
    for name, memory in (("shared", shared), ("varied", varied)):
        kept = Memformer(block, memory).states(prompt).detach()[:, 1:, :-1, -1]
        taken = (prompt.y[:, None, :-1] - kept).transpose(1, 2)
        w = torch.linalg.lstsq(X, taken).solution
        left[name] = torch.linalg.vector_norm(taken - X @ w, dim=1)
    assert left["shared"].max() < ROUNDING
    assert left["varied"].min() > 1e-3


def covariance(d):
    half = normal(d, d, name="covariance") + torch.eye(d, dtype=torch.float64)
    return half @ half.T / d


def test_the_risk_is_its_trace():
    """`risks` is tr(Sigma M Sigma^-1 M'), whichever way Sigma is given; twice Sigma changes nothing.

    M_l of three layers, and of one of them. Planted: Sigma in place of its root is seen.
    """
    d = 4
    Sigma, M = covariance(d), Memformer(stirred(Full(d, L)), stirred(FullTable(L))).errors(normal(5, 6, d)).detach()
    S, inverse = Sigma.numpy(), np.linalg.inv(Sigma.numpy())
    expected = torch.tensor([[np.trace(S @ m @ inverse @ m.T) for m in prompt] for prompt in M.numpy()])
    for taken in (Sigma, S, 2 * S, S.tolist()):
        assert close(memformer.risks(M, taken), expected)
    assert close(memformer.risks(M[:, 1], Sigma), expected[:, 1])
    model = Memformer(Full(d, L), NoMemory(L))
    assert torch.equal(model.risks(normal(5, 6, d), S), memformer.risks(model.errors(normal(5, 6, d)), S))
    assert close(memformer.risks(M, S)[:, 0], torch.full((5,), float(d)).double())


@pytest.mark.parametrize("curved", [False, True])
@pytest.mark.parametrize("memory", [OneRegister, Shared, FullTable])
def test_whitening_leaves_the_risk(memory, curved):
    """The risks of A and B on X under Sigma are those of S A S and S^-1 B S on X S^-1 under I, S = Sigma^(1/2).

    Planted: the inverse root left out of `risks` is seen.
    """
    d, n = 4, 9
    Sigma = covariance(d)
    values, vectors = torch.linalg.eigh(Sigma)
    S, inverse = ((vectors * values**power) @ vectors.T for power in (0.5, -0.5))
    X, (A, B) = normal(5, n, d) @ S, normal(2, L, d, d, name="A") / 5
    parts = stirred(memory(L))
    curvature, white_curvature = (FixedBlocks(B), FixedBlocks(inverse @ B @ S)) if curved else (None, None)
    coloured = Memformer(FixedBlocks(A), parts, curvature).risks(X, Sigma)
    white = Memformer(FixedBlocks(S @ A @ S), parts, white_curvature).risks(X @ inverse, np.eye(d))
    assert close(coloured, white)


def test_scaled_identities_make_polynomials():
    """With A_l = a_l I, M_l is a polynomial of degree l in H, p(0) = 1: that of the recurrence in scalars.

    On the eigenvalues of H, with free weights: p_{l+1}(h) = p_l(h) - sum_j Gamma[l, j] a_j h p_j(h), in numpy.
    Planted: steps from the start in place of the last state are seen.
    """
    d, layers = 4, 5
    H, Gamma, a = gram(normal(3, 6, d)), normal(layers, layers, name="Gamma"), normal(layers, name="a")
    M = memformer.error_matrices(H, a[:, None, None] * torch.eye(d, dtype=torch.float64), Gamma)
    p = [np.polynomial.Polynomial([1.0])]
    h = np.polynomial.Polynomial([0.0, 1.0])
    for layer in range(layers):
        p.append(p[-1] - sum(Gamma[layer, j].item() * a[j].item() * h * p[j] for j in range(layer + 1)))
    assert [each.degree() for each in p] == list(range(layers + 1))
    values, vectors = np.linalg.eigh(H.numpy())
    for layer, each in enumerate(p):
        assert close(M[:, layer], vectors * each(values)[:, None] @ vectors.transpose(0, 2, 1))


def test_the_degree_with_curvature():
    """With B, M_l has degree (3^l - 1) / 2 in H: 0, 1, 4, 13, 40, and with multiples of I it is a polynomial in H.

    In one dimension M_l grows like h^degree at h = 1e6: M_l(2h) / M_l(h) is 2^degree to 1e-4. Up to degree 13 it is
    interpolated at Chebyshev's points of [0, 2] with room for eight degrees more: those coefficients are 0 up to 1e-12
    of the largest, and that of the degree itself is not, 1e-6. In four dimensions it is the same polynomial of the
    eigenvalues. Planted: A' for T' A' T in the labels' step is seen.
    """
    layers = 4
    A, Gamma = torch.ones(layers, 1, 1).double(), torch.eye(layers).double()
    B = A

    def scalar(h, layer):
        H = torch.as_tensor(h, dtype=torch.float64).reshape(-1, 1, 1)
        return memformer.error_matrices(H, A, Gamma, B)[:, layer, 0, 0].numpy()

    for layer in range(layers + 1):
        degree = (3**layer - 1) // 2
        near, far = scalar([1e6, 2e6], layer)
        assert np.log2(np.abs(far / near)) == pytest.approx(degree, abs=1e-4)
        if layer < layers:
            c = np.abs(np.polynomial.chebyshev.chebinterpolate(lambda t, k=layer: scalar(1 + t, k), degree + 8))
            assert c[degree + 1 :].max() <= 1e-12 * c.max()
            assert c[degree] > 1e-6 * c.max()
    H, eye = gram(normal(3, 6, 4)) / 2, torch.eye(4).double()
    values, vectors = np.linalg.eigh(H.numpy())
    M = memformer.error_matrices(H, A * eye, Gamma, B * eye)
    for layer in range(layers + 1):
        expected = scalar(values.ravel(), layer).reshape(values.shape)
        assert close(M[:, layer], vectors * expected[:, None] @ vectors.transpose(0, 2, 1))


def test_gradients_are_those_of_finite_differences():
    """Derivatives of `errors`, `iterates` and their token-wise forms by every argument are central differences.

    torch.autograd.gradcheck at its own tolerances (steps 1e-6, absolute error 1e-5); weights a row with B, two layers.
    """
    d, n, layers = 2, 3, 2
    X = normal(2, n, d).requires_grad_()
    A, B = ((normal(layers, d, d, name=name) / 2).requires_grad_() for name in "AB")
    rows, tokens = (normal(layers, layers, size, name="rows").requires_grad_() for size in (d + 1, n + 1))
    H, b = gram(X.detach()).requires_grad_(), normal(2, d, name="b").requires_grad_()
    assert torch.autograd.gradcheck(memformer.error_matrices, (H, A, rows, B))
    assert torch.autograd.gradcheck(memformer.iterates, (H, b, A, rows, B))
    assert torch.autograd.gradcheck(token_form.token_errors, (X, A, tokens))
    every = normal(1, layers, layers, n + 1, d + 1, name="every").requires_grad_()
    X, y = X[:1].detach().requires_grad_(), normal(1, n, name="y").requires_grad_()
    assert torch.autograd.gradcheck(token_form.token_iterates, (X, y, A, every, B))


# Properties

near = functools.partial(shared.close, rounding=1e-9)
#: Nine models times each law, so a few examples for each pair.
few = settings(max_examples=5)
KINDS = {
    "without": lambda d, n, L, kind: Memformer(Full(d, L, dtype=kind), NoMemory(L)),
    "scaled": lambda d, n, L, kind: Memformer(ScaledBlocks(torch.eye(d, dtype=kind), L), NoMemory(L)),
    "fixed": lambda d, n, L, kind: Memformer(
        FixedBlocks(torch.ones(L, d, d, dtype=kind).tril() / d), FullTable(L, dtype=kind)
    ),
    "one register": lambda d, n, L, kind: Memformer(Full(d, L, dtype=kind), OneRegister(L, dtype=kind)),
    "shared": lambda d, n, L, kind: Memformer(Full(d, L, dtype=kind), Shared(L, dtype=kind)),
    "free": lambda d, n, L, kind: Memformer(Full(d, L, dtype=kind), FullTable(L, dtype=kind)),
    "token-wise": lambda d, n, L, kind: Memformer(Full(d, L, dtype=kind), TokenWise(L, n, dtype=kind)),
    "GD++": lambda d, n, L, kind: Memformer(Full(d, L, dtype=kind), NoMemory(L), Full(d, L, dtype=kind)),
    "GD++, rows": lambda d, n, L, kind: Memformer(
        Full(d, L, dtype=kind), FullTable(L, rows=d + 1, dtype=kind), Full(d, L, dtype=kind)
    ),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
sizes = st.tuples(st.integers(1, 4), st.integers(1, 12), st.integers(1, 4), st.integers(0, 2**20))


def drawn(kind, size, dtype=torch.float64):
    """A model whose parameters are all drawn, small enough not to blow up, and prompts of three for it."""
    d, n, L, seed = size
    generator = make_generator("memformer laws", seed=seed)
    model = KINDS[kind](d, n, L, dtype)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=dtype) / (2 * d))
    x, w = (torch.randn(3, *shape, generator=generator, dtype=dtype) for shape in ((n + 1, d), (1, d)))
    w = w.expand_as(x)
    return model, Prompt(x, (x * w).sum(-1), w)


@every_kind
@given(sizes)
@few
def test_predictions_tokens_and_errors_agree(kind, size):
    """The prediction, the last token state and w* - M_L w* are one number, at d = 1, n = 1 and one layer too.

    The first risk is d, whatever the covariance: nothing has been learnt at layer 0. Planted: n + 1 for n is seen.
    """
    model, prompt = drawn(kind, size)
    X, query, w = prompt.x[:, :-1], prompt.x[:, -1], prompt.w[:, 0]
    M = model.errors(X)
    error = (M[:, -1] @ w.unsqueeze(-1)).squeeze(-1)
    assert near(model(prompt), ((w - error) * query).sum(-1))
    assert near(-model.states(prompt)[:, -1, -1, -1], model(prompt))
    d = prompt.d
    risks = model.risks(X, torch.eye(d, dtype=torch.float64) + torch.ones(d, d, dtype=torch.float64))
    assert risks.shape == (3, model.layers + 1)
    assert near(risks[:, 0], torch.full((3,), float(d), dtype=torch.float64))
    assert (risks >= 0).all()


@every_kind
@given(sizes)
@few
def test_prompts_are_independent(kind, size):
    """Other prompts in a batch change nothing in one: predictions, states and M_l of it alone are the same.

    Up to rounding: products of batches are not summed in one order. Other values beside it change no bit. Planted: a
    mean over the batch in H is seen.
    """
    model, prompt = drawn(kind, size)
    alone = Prompt(prompt.x[:1], prompt.y[:1], prompt.w[:1])
    other = Prompt(*(torch.cat([a[:1], 2 * a[1:]]) for a in (prompt.x, prompt.y, prompt.w)))
    for read in (model, model.states, lambda p: model.errors(p.x[:, :-1])):
        assert near(read(alone), read(prompt)[:1])
        assert torch.equal(read(other)[:1], read(prompt)[:1])


@every_kind
@given(sizes)
@few
def test_examples_have_no_order(kind, size):
    """Examples in another order change no prediction and no M_l; token-wise weights have to move along.

    Planted: the first example counted twice is seen.
    """
    model, prompt = drawn(kind, size)
    predictions, M = model(prompt), model.errors(prompt.x[:, :-1])
    order = [*reversed(range(prompt.n)), prompt.n]
    if kind == "token-wise":
        with torch.no_grad():
            model.memory.weights.copy_(model.memory.weights[:, order])
    turned = Prompt(*(a[:, order] for a in (prompt.x, prompt.y, prompt.w)))
    assert near(model(turned), predictions)
    assert near(model.errors(turned.x[:, :-1]), M)


@every_kind
@given(sizes, st.floats(-3, 3))
@few
def test_predictions_are_linear_in_labels(kind, size, factor):
    """With labels c y the prediction is c times as large. Planted: labels squared are seen."""
    model, prompt = drawn(kind, size)
    scaled = Prompt(prompt.x, factor * prompt.y, prompt.w)
    assert near(model(scaled), factor * model(prompt))


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_dtype_is_kept(kind, dtype):
    """Predictions, states, M_l and risks are in the dtype of model and prompt.

    In float32 predictions are those of float64 to 1e-4. Planted: a table of weights left in float64 is seen.
    """
    size = (3, 5, 3, 0)
    model, prompt = drawn(kind, size, dtype)
    X = prompt.x[:, :-1]
    for value in (model(prompt), model.states(prompt), model.errors(X), model.risks(X, torch.eye(3))):
        assert value.dtype == dtype
    double, wide = copy.deepcopy(model).double(), Prompt(prompt.x.double(), prompt.y.double(), prompt.w.double())
    torch.testing.assert_close(model(prompt).double(), double(wide), rtol=1e-4, atol=1e-4)


# Statistics

DRAWS = 200_000


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["one register", "token-wise", "GD++"])
def test_measured_errors_are_the_risks(kind):
    """Given a prompt's inputs, (prediction - label)^2 over queries and weights has the mean that `risks` says.

    200,000 draws of x_q ~ N(0, Sigma) and w* ~ N(0, Sigma^-1) for one set of two inputs, predictions read off the
    tokens. A standard error is below 1 % of the risk, so that 7 % are seen at every layer. Planted: Sigma^-1 for Sigma
    in `risks` is seen.
    """
    d, n, L = 3, 2, 2
    design, generator = (made("measured risks") for made in (chance.fixed, make_generator))
    Sigma = np.diag([3.0, 1.0, 0.3]) + 0.2
    A = torch.randn(2, L, d, d, generator=design, dtype=torch.float64) / 4
    model = {
        "one register": Memformer(FixedBlocks(A[0]), OneRegister(L)),
        "token-wise": Memformer(FixedBlocks(A[0]), TokenWise(L, n)),
        "GD++": Memformer(FixedBlocks(A[0]), FullTable(L), FixedBlocks(A[1])),
    }[kind]
    with torch.no_grad():
        for p in model.parameters():
            p += 0.3 * torch.randn(p.shape, generator=design, dtype=p.dtype)
    law = {"d": d, "Lambda": Sigma, "Sigma_w": np.linalg.inv(Sigma)}
    X = StationaryRegression(n=n, **law).sample(1, generator=generator, dtype=torch.float64).x[:, :-1]
    squares = []
    with torch.no_grad():
        # The same inputs for all; queries and weights, hence labels, their own.
        for p in batches(StationaryRegression(n=1, **law), DRAWS, size=5_000, generator=generator, dtype=torch.float64):
            x = torch.cat([X.expand(p.batch, n, d), p.x[:, -1:]], 1)
            w = p.w[:, -1:].expand_as(x)
            prompt = Prompt(x, (x * w).sum(-1), w)
            squares.append((-model.states(prompt)[:, :, -1, -1] - prompt.y[:, -1:]).square())
        risks = model.risks(X, Sigma)[0]
    chance.assert_mean(torch.cat(squares), risks.numpy(), error=0.01 * risks.numpy())


@pytest.mark.statistical(3)
def test_scattered_parameters_are_normal():
    """Drawn parameters have the law N(0, scale^2): mean and variance of 40,000 of them, and their whole distribution.

    A mean off by 4 % of the scale, a variance off by 5 %, another law off by 2 % somewhere are seen.
    """
    model, scale = Full(100, 4), 1e-4
    init_normal_(model, scale, generator=make_generator("scattered"))
    z = model.matrices.detach().numpy().ravel() / scale
    chance.assert_z(z.mean() * len(z) ** 0.5)
    chance.assert_within((z**2).sum(), stats.chi2(len(z)))
    chance.assert_p(stats.kstest(z, "norm").pvalue)


def test_scatter_draws_the_parameters_named():
    """Names choose parameters by any part of theirs; others stay bit for bit. All are drawn without a name.

    The draws are those of the stream, in the parameters' order, and no parameter gets another's.
    """
    L = 3

    def scattered(names, scale=0.5):
        model = Memformer(Full(2, L), OneRegister(L))
        init_normal_(model, scale, generator=make_generator("scattered"), names=names)
        return dict(model.named_parameters())

    start = dict(Memformer(Full(2, L), OneRegister(L)).named_parameters())
    assert set(start) == {"preconditioner.matrices", "memory.alpha", "memory.gamma"}
    for names, drawn in (
        (("alpha",), {"memory.alpha"}),
        (("memory",), {"memory.alpha", "memory.gamma"}),
        (("gamma", "matrices"), {"preconditioner.matrices", "memory.gamma"}),
        ((), set(start)),
    ):
        generator, found = make_generator("scattered"), scattered(names)
        for name, parameter in found.items():
            if name in drawn:
                expected = 0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                assert torch.equal(parameter, expected)
            else:
                assert torch.equal(parameter, start[name])
    single = nn.Linear(2, 3)
    init_normal_(single, 1.0, generator=make_generator("scattered"))
    assert torch.equal(single.weight, torch.randn(3, 2, generator=make_generator("scattered")))
