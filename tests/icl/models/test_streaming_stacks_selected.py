"""S6 on a stream of examples against the S6 layer on prompts, and what a token costs it against a count on paper."""

import pytest
import shared
import torch

from icl.models.fast_weights import FastWeights
from icl.models.flops import cost
from icl.models.s6 import S6, FixedStep, Selective, Step
from icl.models.streaming_stacks import Selected, selected_at_random
from icl.profile import make_generator
from icl.tasks import Prompt

F64 = {"dtype": torch.float64}
# Sums of products over 40 tokens, in another order.
ROUNDING = 1e-12
D, D_H = 3, 5


def stirred(step):
    """A layer with such a step whose parameters are all drawn, its rate among those that are trained."""
    layer = S6(Selective(D + 1, D_H), Selective(D + 1, D_H), step, torch.tensor([-0.7], **F64))
    layer.log_rate.requires_grad_(True)
    return shared.stirred(layer, 0.4)


STEPS = {"selective": lambda: Step(D + 1, 0.3), "long": lambda: Step(D + 1, 3.0), "fixed": lambda: FixedStep(0.3)}


@pytest.mark.parametrize("step", STEPS)
def test_every_position_is_a_prompt_of_its_own(step):
    """At once, token by token, and by the layer itself on each prompt of the examples before: the same predictions.

    Where there is no example before, it is 0.
    """
    layer, (x, y) = stirred(STEPS[step]()), shared.sequences("selected data", D, 40, 4, seed=0)
    with torch.no_grad():
        prompts = (Prompt(x[:, : n + 1], y[:, : n + 1], torch.zeros_like(x[:, : n + 1])) for n in range(1, 40))
        expected = torch.stack([layer.predictions(prompt) for prompt in prompts], dim=1)
        for errors in (Selected(layer).errors(x, y), FastWeights.errors(Selected(layer), x, y)):
            assert torch.equal(errors[:, 0], y[:, 0])
            assert ((y - errors)[:, 1:] - expected).abs().max() <= ROUNDING * expected.abs().max()
    assert expected.abs().min() > 1e-5


@pytest.mark.parametrize("step", STEPS)
def test_gradients_are_those_of_the_recurrence(step):
    """By every parameter, the rate too. They are sums over 160 errors: 1e-10 of the largest."""
    layer, (x, y) = stirred(STEPS[step]()), shared.sequences("selected data", D, 40, 4, seed=0)
    names, parameters = zip(*layer.named_parameters(), strict=True)
    one, other = (
        torch.autograd.grad(errors.square().sum(), parameters)
        for errors in (Selected(layer).errors(x, y), FastWeights.errors(Selected(layer), x, y))
    )
    for name, mine, theirs in zip(names, one, other, strict=True):
        assert mine.abs().max() > 1e-3, name
        assert (mine - theirs).abs().max() <= 1e-10 * mine.abs().max(), name


d, d_h = 10, 16
# A row of d + 1 numbers times the token's, and its bias; softplus too.
ROW = 2 * (d + 1) - 1 + 1
STEP = ROW + 1
# Delta A, its exponential; expm1 and its quotient.
HELD = 4
# Written: gain B, decay h, and y times the first added to the second. Read: C'h and the decay; that takes HELD as well,
# whose gain a query does not need.
WRITE = STEP + HELD + d_h * ROW + d_h + d_h + 2 * d_h
READ = STEP + HELD + d_h * ROW + (2 * d_h - 1) + 1


def test_costs_are_those_counted_by_hand():
    """Parameters, numbers in the state and operations a token at d = 10, d_h = 16, against a count made on paper."""
    layer = S6(Selective(d + 1, d_h), Selective(d + 1, d_h), Step(d + 1, 0.3), -torch.ones(1, **F64))
    counted = cost(Selected(layer))
    assert (counted.parameters, counted.state) == (2 * d_h * (d + 2) + d + 2, d_h)
    assert counted.flops == WRITE + READ
    layer.log_rate.requires_grad_(True)
    assert cost(Selected(layer)).parameters == counted.parameters + 1


def test_an_s6_layer_to_train_starts_at_random():
    """Matrices are 0.3 times the stream's own draws, B first; step 0.03 at every token, rate 1, biases 0; float32."""
    layer = selected_at_random(3, 5, generator=make_generator("start"))
    generator = make_generator("start")
    for part in (layer.layer.B, layer.layer.C):
        assert torch.equal(part.W.detach(), 0.3 * torch.randn(5, 4, generator=generator))
        assert not part.b.any()
    assert layer.layer.A.tolist() == [-1.0]
    steps = layer.layer.step(torch.randn(2, 6, 4, generator=generator))
    torch.testing.assert_close(steps, torch.full_like(steps, 0.03))
    assert (layer.d, layer.d_h) == (3, 5)
    assert {parameter.dtype for parameter in layer.parameters()} == {torch.float32}
