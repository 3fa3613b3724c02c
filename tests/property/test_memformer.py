"""What Memformers keep to, whatever their parts, parameters and sizes.

Float64 unless said otherwise. Where a value is said to be the same up to rounding, 1e-9 of the largest value (at least
1) covers it: sums of products over at most 13 tokens and four layers.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icl.models import memformer, token_form
from icl.models.memformer import Fixed, Free, Full, Memformer, OneRegister, Scaled, Shared, TokenWise, Without
from icl.profile import streams
from icl.tasks import Prompt

ROUNDING = 1e-9
#: Nine models times each law, so a few examples for each pair.
few = settings(max_examples=10)
KINDS = {
    "without": lambda d, n, L, kind: Memformer(Full(d, L, dtype=kind), Without(L)),
    "scaled": lambda d, n, L, kind: Memformer(Scaled(torch.eye(d, dtype=kind), L), Without(L)),
    "fixed": lambda d, n, L, kind: Memformer(Fixed(torch.ones(L, d, d, dtype=kind).tril() / d), Free(L, dtype=kind)),
    "one register": lambda d, n, L, kind: Memformer(Full(d, L, dtype=kind), OneRegister(L, dtype=kind)),
    "shared": lambda d, n, L, kind: Memformer(Full(d, L, dtype=kind), Shared(L, dtype=kind)),
    "free": lambda d, n, L, kind: Memformer(Full(d, L, dtype=kind), Free(L, dtype=kind)),
    "token-wise": lambda d, n, L, kind: Memformer(Full(d, L, dtype=kind), TokenWise(L, n, dtype=kind)),
    "GD++": lambda d, n, L, kind: Memformer(Full(d, L, dtype=kind), Without(L), Full(d, L, dtype=kind)),
    "GD++, rows": lambda d, n, L, kind: Memformer(
        Full(d, L, dtype=kind), Free(L, rows=d + 1, dtype=kind), Full(d, L, dtype=kind)
    ),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
sizes = st.tuples(st.integers(1, 4), st.integers(1, 12), st.integers(1, 4), st.integers(0, 2**20))


def drawn(kind, size, dtype=torch.float64):
    """A model whose parameters are all drawn, small enough not to blow up, and prompts of three for it."""
    d, n, L, seed = size
    generator = streams("memformer laws", seed=seed)
    model = KINDS[kind](d, n, L, dtype)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=dtype) / (2 * d))
    x, w = (torch.randn(3, *shape, generator=generator, dtype=dtype) for shape in ((n + 1, d), (1, d)))
    w = w.expand_as(x)
    return model, Prompt(x, (x * w).sum(-1), w)


def close(got, expected):
    """Whether two arrays are the same up to rounding of the largest value."""
    return got.shape == expected.shape and bool(
        (got - expected).abs().max() <= ROUNDING * expected.abs().max().clamp(min=1)
    )


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
    assert close(model(prompt), ((w - error) * query).sum(-1))
    assert close(-model.states(prompt)[:, -1, -1, -1], model(prompt))
    d = prompt.d
    risks = model.risks(X, torch.eye(d, dtype=torch.float64) + torch.ones(d, d, dtype=torch.float64))
    assert risks.shape == (3, model.layers + 1)
    assert close(risks[:, 0], torch.full((3,), float(d), dtype=torch.float64))
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
        assert close(read(alone), read(prompt)[:1])
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
    assert close(model(turned), predictions)
    assert close(model.errors(turned.x[:, :-1]), M)


@every_kind
@given(sizes, st.floats(-3, 3))
@few
def test_predictions_are_linear_in_labels(kind, size, factor):
    """With labels c y the prediction is c times as large. Planted: labels squared are seen."""
    model, prompt = drawn(kind, size)
    scaled = Prompt(prompt.x, factor * prompt.y, prompt.w)
    assert close(model(scaled), factor * model(prompt))


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_dtype_is_kept(kind, dtype):
    """Predictions, states, M_l, risks and gradients are in the dtype of model and prompt; the two must agree.

    In float32 predictions are those of float64 to 1e-4. Planted: a table of weights left in float64 is seen.
    """
    size = (3, 5, 3, 0)
    model, prompt = drawn(kind, size, dtype)
    X = prompt.x[:, :-1]
    for value in (model(prompt), model.states(prompt), model.errors(X), model.risks(X, torch.eye(3))):
        assert value.dtype == dtype
    model.risks(X, torch.eye(3)).sum().backward() if list(model.parameters()) else None
    assert all(p.grad is None or p.grad.dtype == dtype for p in model.parameters())
    double, wide = (
        KINDS[kind](*size[:3], torch.float64),
        Prompt(prompt.x.double(), prompt.y.double(), prompt.w.double()),
    )
    double.load_state_dict({name: tensor.double() for name, tensor in model.state_dict().items()})
    torch.testing.assert_close(model(prompt).double(), double(wide), rtol=1e-4, atol=1e-4)


@given(sizes)
@few
def test_functions_keep_the_dtype(size):
    """Every function returns float32 for float32. Planted: a start in float64 is seen."""
    d, n, L, seed = size
    generator = streams("dtypes", seed=seed)
    Z, A, scalars, table = (
        torch.randn(shape, generator=generator) / 4 for shape in ((2, n + 1, d + 1), (L, d, d), (2, L), (L, L))
    )
    X, (P, Q) = Z[:, :-1, :-1], token_form.parameters(A)
    H = X.transpose(1, 2) @ X / n
    tokens = table.unsqueeze(-1).expand(L, L, n + 1)
    for value in (
        token_form.transformer(Z, P, Q),
        token_form.one_register(Z, P, Q, scalars, scalars[0]),
        token_form.many_registers(Z, P, Q, table[:, :, None, None]),
        memformer.error_matrices(H, A, table, A),
        memformer.iterates(H, Z[:, 0, :-1], A, table),
        token_form.token_errors(X, A, tokens),
        memformer.risks(memformer.error_matrices(H, A, table), torch.eye(d)),
    ):
        assert value.dtype == torch.float32
        assert value.isfinite().all()
