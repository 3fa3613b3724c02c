"""Gated heads on scalar inputs: against the token equations of many heads, to 1e-9."""

import pytest
import torch

from icl.models.experts import FreeGate, MultiHead
from icl.models.memformer import Full, Memformer, NoMemory, Shared, TokenWise, init_normal_
from icl.models.scalar_heads import ScalarHeads, scalar_weights
from icl.models.token_form import many_heads, parameters
from icl.profile import make_generator
from icl.tasks.components import GaussianComponents

TASK = GaussianComponents(1, 6, [1.0, 0.0], [0.5, 1.0])
L = 3


def drawn(heads, tokens, name="scalar heads"):
    model = ScalarHeads(heads, L, 6, tokens=tokens)
    init_normal_(model, 0.4, generator=make_generator(name))
    return model


def prompt(batch=5):
    return TASK.sample(batch, generator=make_generator("scalar prompts"), dtype=torch.float64)


@pytest.mark.parametrize("tokens", [0, 1, 7])
def test_it_is_the_token_equations(tokens):
    """Predictions are those of `many_heads` with the same blocks, weights and gates, to 1e-9.

    Planted: a register used once more, gates left out, and an example's weight for the query's are seen.
    """
    model, met = drawn(3, tokens), prompt()
    blocks = [parameters(steps.view(L, 1, 1)) for steps in model.steps]
    P, Q = (torch.stack(part) for part in zip(*blocks, strict=True))
    if tokens:
        lower = torch.ones(L, L, dtype=torch.float64).tril()
        Gamma = lower[None, :, :, None] * model.memory[:, None]
    else:
        Gamma = torch.eye(L, dtype=torch.float64)[None, :, :, None].expand(3, L, L, 1)
    states = many_heads(met.tokens(), P, Q, Gamma.unsqueeze(-1), model.gates[None])
    torch.testing.assert_close(model(met), -states[:, -1, -1, -1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("tokens", [0, 1, 7])
def test_it_is_many_heads_of_one_dimension(tokens):
    """`MultiHead` of the same numbers has the same predictions and errors, to 1e-9."""
    model, heads, met = drawn(2, tokens), [], prompt()
    for h in range(2):
        memory = {0: NoMemory(L), 1: Shared(L), 7: TokenWise(L, 6)}[tokens]
        head = Memformer(Full(1, L), memory)
        with torch.no_grad():
            head.preconditioner.matrices.copy_(model.steps[h].view(L, 1, 1))
            if tokens:
                memory.weights.copy_(model.memory[h].view_as(memory.weights))
        heads.append(head)
    gate = FreeGate(2)
    with torch.no_grad():
        gate.alpha.copy_(model.gates)
    whole = MultiHead(heads, gate)
    torch.testing.assert_close(model(met), whole(met), rtol=1e-9, atol=1e-12)
    X = met.x[:, :-1]
    torch.testing.assert_close(model.errors(X), whole.errors(X)[:, -1, 0, 0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("tokens", [0, 1, 7])
def test_models_gathered_are_their_mean(tokens):
    """With gates of 1/heads, coefficients are the mean of those of the models gathered; nothing is shared."""
    parts = [drawn(1, tokens, f"part {i}") for i in range(3)]
    whole = ScalarHeads.gathered(parts)
    expected = torch.stack([part.coefficients() for part in parts]).mean(0)
    torch.testing.assert_close(whole.coefficients(), expected, rtol=1e-12, atol=1e-15)
    with torch.no_grad():
        parts[0].steps.fill_(9)
    torch.testing.assert_close(whole.coefficients(), expected, rtol=1e-12, atol=1e-15)


def test_models_side_by_side_and_labels_of_any_kind():
    """A stack of models is each of them; the query's label is never read."""
    c = torch.randn(2, L, 7, dtype=torch.float64, generator=make_generator("c"))
    met = prompt(8)
    X, y = met.x[:, :-1, 0].view(2, 4, 6), met.y[:, :-1].view(2, 4, 6)
    both = scalar_weights(X, y, c, memory=True)
    for m in range(2):
        torch.testing.assert_close(both[m], scalar_weights(X[m], y[m], c[m], memory=True), rtol=1e-12, atol=1e-15)


@pytest.mark.usefixtures("as_installed")
def test_models_that_do_not_gather_are_refused_by_name():
    with pytest.raises(ValueError, match="heads must have one number of layers"):
        ScalarHeads.gathered([drawn(1, 0), drawn(1, 1)])
    with pytest.raises(ValueError, match="heads must be at least one ScalarHeads"):
        ScalarHeads.gathered([])
