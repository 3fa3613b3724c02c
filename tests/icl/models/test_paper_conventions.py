"""Stacks with full matrices under a stated reading, against matrices, prompts asked one by one and one literal layer.

Float64. Values are sums of products over at most 50 tokens and three layers, so that 1e-11 of the largest value covers
the rounding.
"""

import functools
import itertools

import pytest
import shared
import torch

from icl.models import one_layer, operators
from icl.models.paper_conventions import BEST, LITERAL, Convention, FullStack, predictions
from icl.models.stacks import Stack
from icl.profile import make_generator

# Oracles

ROUNDING = 1e-11
stirred, prompt = shared.stirred, shared.deep_prompt
close = functools.partial(shared.close, rounding=ROUNDING)


def data(time):
    return shared.sequences("deep data", 3, time, 4, seed=time)


READINGS = [Convention(*switches) for switches in itertools.product((False, True), (False, True), (1, -1))]


def test_the_matrices_of_the_stack():
    """With W_V = -diag(s_x, .., s_x, s_y) (1 - lam) and W_KQ = diag(1, .., 1, 0) in every layer, read strictly, with
    the residual and a negative read-out, full matrices are the stack.

    Three layers, 50 tokens. Tolerance: see the file's head. Planted: every other reading is something else.
    """
    plain, (x, y) = stirred(Stack(3, 3, dtype=torch.float64)), data(50)
    expected = plain.errors(x, y)
    s_x = torch.cat([plain.s_x, torch.ones(1, dtype=torch.float64)]).detach()
    for reading in READINGS:
        full = FullStack(3, 3, reading=reading, scale=1.0, generator=make_generator("start"), dtype=torch.float64)
        with torch.no_grad():
            full.log_odds.copy_(plain.log_odds)
            for layer in range(3):
                values = torch.stack([s_x[layer]] * 3 + [plain.s_y[layer]])
                full.W_V[layer] = -torch.diag(values) * (1 - plain.lam[layer])
                full.W_KQ[layer] = torch.diag(torch.tensor([1.0, 1, 1, 0]))
        assert close(full.errors(x, y), expected) == (reading == BEST)


@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_the_query_stream_is_the_prefixes(reading):
    """The prediction at j is that of the layers run, by the recurrent form, on (x_1, y_1), .., (x_j, 0) alone.

    Three layers with full matrices, eight readings, 36 positions of which six. Rounding is measured against the same
    layers on absolute values: ROUNDING of that. Planted: an example that reads itself in the query's place.
    """
    x, y = data(36)
    W_V, W_KQ = 0.3 * torch.randn(2, 3, 4, 4, generator=make_generator("weights"), dtype=torch.float64)
    lam = torch.tensor([0.7, 0.9, 1.0], dtype=torch.float64)

    def layers(Z, W_V, W_KQ, minus=-1):
        for value, key_query, factor in zip(W_V, W_KQ, lam, strict=True):
            q, k, v = (Z @ key_query.T).unsqueeze(2), Z.unsqueeze(2), (Z @ value.T).unsqueeze(2)
            read = operators.recurrent(q, k, v, factor.view(1, 1, 1))
            if reading.strict:
                read = read + minus * (q * k).sum(-1, keepdim=True) * v
            Z = read[:, :, 0] + (Z if reading.residual else 0)
        return Z[:, -1, -1]

    together = predictions(x, y, W_V, W_KQ, lam, reading)
    for j in (0, 1, 2, 17, 32, 35):
        Z = torch.cat([x[:, : j + 1], y[:, : j + 1, None]], dim=-1)
        Z[:, -1, -1] = 0
        limit = ROUNDING * layers(Z.abs(), W_V.abs(), W_KQ.abs(), minus=1)
        assert ((together[:, j] - reading.sign * layers(Z, W_V, W_KQ)).abs() <= limit).all()


def test_one_literal_layer_is_the_papers():
    """One layer of the literal reading is `icl.models.one_layer.predict`, the paper's own, on every prompt."""
    p = prompt(34)
    model = FullStack(3, 1, reading=LITERAL, scale=0.5, generator=make_generator("weights"), dtype=torch.float64)
    assert close(model(p), one_layer.predict(p.tokens(), model.W_V[0], model.W_KQ[0], model.lam[0]))


# Properties


@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_the_streams_never_leak(reading):
    """Other labels from position j on, or other inputs after it, change no prediction at or before j, bit for bit: the
    query's stream never holds a label, and examples are read strictly.

    Eight readings, three layers with full matrices, positions around the block of 32; labels of 1e6, of which any
    rounding would show. Planted: a label read and taken away again.
    """
    x, y = data(41)
    W_V, W_KQ = 0.3 * torch.randn(2, 3, 4, 4, generator=make_generator("weights"), dtype=torch.float64)
    lam = torch.tensor([0.7, 0.9, 1.0], dtype=torch.float64)
    before = predictions(x, y, W_V, W_KQ, lam, reading)
    for j in (0, 1, 31, 32, 33, 40):
        labels, inputs = y.clone(), x.clone()
        labels[:, j:], inputs[:, j + 1 :] = 1e6, -3.0
        for changed in ((x, labels), (inputs, y)):
            after = predictions(*changed, W_V, W_KQ, lam, reading)
            assert torch.equal(after[:, : j + 1], before[:, : j + 1])
            assert j == 40 or not torch.equal(after[:, j + 1 :], before[:, j + 1 :])
