"""Deep stacks as recurrences against the stacks themselves, and what a token costs them against counts on paper."""

import functools

import pytest
import shared
import torch

from icl.models.causal import Normalised
from icl.models.fast_weights import FastWeights
from icl.models.flops import cost
from icl.models.stacks import DeltaStack, GatedDeltaStack, Stack
from icl.models.streaming_stacks import LayeredDelta, LayeredGLA

F64 = {"dtype": torch.float64}
# Sums of products over 40 tokens and three layers, in another order.
ROUNDING = 1e-12
stirred = functools.partial(shared.stirred, size=0.2)


MODELS = {
    "one layer": lambda: Stack(3, 1, **F64),
    "GLA": lambda: Stack(3, 3, **F64),
    "one factor for all": lambda: Stack(3, 3, lam=0.8, **F64),
    "normalised GLA": lambda: Normalised(Stack(3, 3, **F64)),
    "one delta layer": lambda: DeltaStack(3, 1, **F64),
    "delta rule": lambda: DeltaStack(3, 3, **F64),
    "gated delta rule": lambda: GatedDeltaStack(3, 3, **F64),
}


def layered(model):
    return LayeredDelta(model) if isinstance(model, DeltaStack) else LayeredGLA(model)


@pytest.mark.parametrize("name", MODELS)
def test_a_stack_token_by_token_is_the_stack(name):
    """Errors at 40 positions, inputs of length 0 among them, and their gradients by every parameter are the stack's.

    Gradients are sums over all of them: 1e-10 of the largest.
    """
    model, (x, y) = stirred(MODELS[name]()), shared.sequences("layered", 3, 40, 4, seed=0)
    x[0, 7] = 0
    names, parameters = zip(*((name, p) for name, p in model.named_parameters() if p.numel()), strict=True)
    found = []
    for errors in (model.errors(x, y), FastWeights.errors(layered(model), x, y)):
        found.append((errors.detach(), torch.autograd.grad(errors.square().sum(), parameters)))
    (errors, gradients), (others, theirs) = found
    assert (errors - others).abs().max() <= ROUNDING * errors.abs().max()
    for which, one, other in zip(names, gradients, theirs, strict=True):
        assert (one - other).abs().max() <= 1e-10 * one.abs().max(), which


@pytest.mark.parametrize("memory", ["mu", "mu_x"])
def test_a_memory_with_a_negative_write_strength_is_not_written(memory):
    """A write strength below 0 counts as 0 here too: errors are the stack's, and those of a strength of 0."""
    model, (x, y) = stirred(DeltaStack(3, 3, **F64)), shared.sequences("layered", 3, 20, 2, seed=0)
    with torch.no_grad():
        found = []
        for strength in (-0.3, 0.0, 0.3):
            getattr(model, memory)[1] = strength
            found.append(FastWeights.errors(LayeredDelta(model), x, y))
            assert (found[-1] - model.errors(x, y)).abs().max() <= ROUNDING * found[-1].abs().max()
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[1], found[2])


d = 10
DOT = 2 * d - 1
# One layer of GLA with both memories, on paper. Asked: b'x and B'x. Moved: s (1 - lam) is made for all prompts at once,
# so that y and x take a product and a difference a number. Written: b + y x and B + x x', each then faded.
READ_ONE, READ_TWO = DOT, DOT + d * DOT
MOVE_ONE, MOVE_TWO = 2, 2 + 2 * d
WRITE_ONE, WRITE_TWO = 3 * d, 3 * d + 3 * d**2
GLA_3 = 2 * (2 * (READ_TWO + MOVE_TWO) + READ_ONE + MOVE_ONE) + 2 * WRITE_TWO + WRITE_ONE
# Twice, for the query and for the token: x'x, its root, over sqrt(d), x over it. Then y over it, the answer times it.
NORMALISED = 2 * (DOT + 2 + d) + 2
# The delta rule: u costs x'x, its root and d quotients; the share of what is read is multiplied by |x| too. Written:
# y / |x|, the difference, mu times it, b + .. u and lam; the same for u, whose error has d numbers.
UNIT = DOT + 1 + d
ASK = UNIT + READ_ONE + 3
ASK_TWO = UNIT + READ_TWO + 3 + 1 + 2 * d
LEARN, LEARN_TWO = 3 + 3 * d, 3 + 3 * d + 2 * d + 3 * d**2
DELTA_3 = 2 * (2 * ASK_TWO + ASK) + 2 * LEARN_TWO + LEARN
# Each layer's y^2 and log(1 + ..), then c times it, the sum and the sigmoid for one memory or for two.
GATES = 2 * (2 + 6) + (2 + 3)
HAND = {
    "GLA": (LayeredGLA(Stack(d, 3)), 3 + 3 + 2, 3 * d + 2 * d**2, GLA_3),
    "normalised GLA": (LayeredGLA(Normalised(Stack(d, 3))), 3 + 3 + 2, 3 * d + 2 * d**2, GLA_3 + NORMALISED),
    "delta rule": (LayeredDelta(DeltaStack(d, 3)), 3 * (3 + 2), 3 * d + 2 * d**2, DELTA_3),
    "gated": (LayeredDelta(GatedDeltaStack(d, 3)), 4 * (3 + 2), 3 * d + 2 * d**2, DELTA_3 + GATES),
}


@pytest.mark.parametrize("name", HAND)
def test_costs_are_those_counted_by_hand(name):
    """Parameters, numbers in the state and operations a token of three layers at d = 10, against counts on paper."""
    layer, *expected = HAND[name]
    counted = cost(layer)
    assert [counted.parameters, counted.state, counted.flops] == expected
