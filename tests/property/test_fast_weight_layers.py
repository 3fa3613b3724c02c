"""What every layer of `icl.models.layers`, and every model that is one, has to be: causal, batched, equivariant.

Everything is in float64 unless said otherwise; 1e-11 of the largest value covers the rounding of at most 30 tokens.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icl.models.causal import Normalised
from icl.models.estimating import LFOM, DeltaRule, GatedDelta, Kalman, Longhorn, Mesa, UnitKeys
from icl.models.layered import LayeredDelta, LayeredGLA, Selected
from icl.models.layers import (
    GLA,
    FastWeights,
    Gate,
    GatedGLA,
    LengthGate,
    LinearAttention,
    LinearGate,
    Mamba2,
    RetNet,
    retention,
)
from icl.models.s6 import S6, Selective, Step
from icl.models.stacks import DeltaStack, GatedDeltaStack, Stack
from icl.profile import streams

ROUNDING = 1e-11
F64 = {"dtype": torch.float64}


def stirred(module):
    """The module with noise on every parameter, so that none has a value that hides it."""
    generator = streams("stir")
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(parameter)
    return module


def layers(d, dtype=torch.float64):
    """Every layer, its gates open."""
    kind = {"dtype": dtype}

    def gates():
        return LinearGate(d, **kind), LengthGate(d, **kind)

    s6 = S6(Selective(d + 1, 5, **kind), Selective(d + 1, 5, **kind), Step(d + 1, 0.3, **kind), -torch.ones(1, **kind))
    s6.log_rate.requires_grad_(True)
    made = {
        "linear attention": LinearAttention(d, mu=0.1, **kind),
        "GLA": GLA(d, lam=0.9, mu=0.1, **kind),
        "GLA by channel": GLA(d, lam=[0.9] * d, mu=[0.1] * d, **kind),
        "RetNet": RetNet(d, lam=retention(3), mu=0.1, **kind),
        "Mamba-2": Mamba2(d, LinearGate(d, **kind), A=1.0, Delta=0.1, mu=1.0, **kind),
        "gated GLA": GatedGLA(d, *gates(), lam=0.9, mu=0.1, **kind),
        "delta rule": DeltaRule(d, lam=0.9, mu=0.1, **kind),
        "delta rule by channel": DeltaRule(d, lam=[0.9] * d, mu=[0.1] * d, **kind),
        "gated delta rule": GatedDelta(d, *gates(), lam=0.9, beta=0.8, **kind),
        "Longhorn": Longhorn(d, lam=0.9, eps=0.5, **kind),
        "Mesa": Mesa(d, lam=0.9, eps=0.5, **kind),
        "Kalman": Kalman(d, gamma=0.95, sigma_e=0.1, sigma_y=0.3, P_0=1.0, **kind),
        "unit keys": UnitKeys(DeltaRule(d, lam=0.9, mu=0.8, **kind)),
        "unit keys, Mesa": UnitKeys(Mesa(d, lam=0.9, eps=0.8, **kind)),
        "LFOM": LFOM(d, c=[0.7, -0.4, 0.2], **kind),
        "S6": Selected(s6),
        "stack": LayeredGLA(Stack(d, 2, **kind)),
        "normalised stack": LayeredGLA(Normalised(Stack(d, 3, **kind))),
        "delta stack": LayeredDelta(DeltaStack(d, 2, **kind)),
        "gated delta stack": LayeredDelta(GatedDeltaStack(d, 3, **kind)),
    }
    return {name: stirred(layer) for name, layer in made.items()}


NAMES = list(layers(1))
# Those whose gates do not look at the label.
LINEAR = sorted(set(NAMES) - {"Mamba-2", "gated GLA", "gated delta rule", "S6", "gated delta stack"})
# Those that look at some coordinates of x more than at others: by settings a channel, linear gates, or matrices.
DIRECTED = ["GLA by channel", "delta rule by channel", "Mamba-2", "gated GLA", "gated delta rule", "S6"]
# Those that answer all positions of a prompt at once, by sums in another order.
AT_ONCE = ["S6", "stack", "normalised stack", "delta stack", "gated delta stack"]


def data(d=3, time=30, batch=4, seed=0, dtype=torch.float64):
    generator = streams("fast weights", seed=seed)
    x = torch.randn(batch, time, d, generator=generator, dtype=torch.float64)
    return x.to(dtype), torch.randn(batch, time, generator=generator, dtype=torch.float64).to(dtype)


def answers(layer, x, y):
    with torch.no_grad():
        return y - layer.errors(x, y)


def close(got, expected):
    scale = expected.abs().max().clamp(min=1)
    return got.shape == expected.shape and bool((got - expected).abs().max() <= ROUNDING * scale)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15)
@given(j=st.integers(0, 29))
def test_the_future_never_changes_the_past(name, j):
    """Other labels from position j on and other inputs after it leave earlier errors as they were, bit for bit, and the
    prediction at j up to the rounding of its own label.
    """
    layer, (x, y) = LAYERS[name], data()
    other_x, other_y = x.clone(), y.clone()
    other_x[:, j + 1 :], other_y[:, j:] = 0.5, 100.0
    with torch.no_grad():
        before, after = layer.errors(x, y), layer.errors(other_x, other_y)
    assert torch.equal(before[:, :j], after[:, :j])
    assert ((y[:, j] - before[:, j]) - (100.0 - after[:, j])).abs().max() < 8 * 100 * 2.3e-16


LAYERS = layers(3)


@pytest.mark.parametrize("name", NAMES)
def test_the_past_matters(name):
    """Another label at the start changes the answer at the next position: what never changes is not merely nothing."""
    x, y = data()
    other = y.clone()
    other[:, 0] += 1
    assert (answers(LAYERS[name], x, y)[:, 1] - answers(LAYERS[name], x, other)[:, 1]).abs().min() > 1e-5


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15)
@given(d=st.integers(1, 4), time=st.integers(1, 12), batch=st.integers(1, 5))
def test_steps_are_the_scan(name, d, time, batch):
    """`start`, `read` and `step`, one token after another, are `errors` bit for bit, or up to rounding where a layer
    answers all at once; the state given to `step` stays as it was, and no answer depends on the rest of the batch.
    """
    layer, (x, y) = layers(d)[name], data(d, time, batch)
    assert (type(layer).errors is FastWeights.errors) == (name not in AT_ONCE)
    with torch.no_grad():
        expected = y - FastWeights.errors(layer, x, y)
        assert close(answers(layer, x, y), expected)
        state, got = layer.start(batch), []
        for xt, yt in zip(x.unbind(1), y.unbind(1), strict=True):
            before = {part: value.clone() for part, value in vars(state).items()}
            got.append(yt - (yt - layer.read(state, xt)))
            following = layer.step(state, xt, yt)
            assert all(torch.equal(vars(state)[part], value) for part, value in before.items())
            state = following
    assert torch.equal(torch.stack(got, dim=1), expected)
    assert close(answers(layer, x[:1], y[:1]), expected[:1])


@pytest.mark.parametrize("name", LINEAR)
def test_answers_are_linear_in_the_labels(name):
    """Layers whose gates, if any, do not look at labels answer a sum of labels with the sum of their answers."""
    layer, (x, y), (_, other) = LAYERS[name], data(), data(seed=1)
    both = answers(layer, x, 2 * y - other)
    assert close(both, 2 * answers(layer, x, y) - answers(layer, x, other))


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(LINEAR)))
def test_the_others_are_not_linear(name):
    """Where a gate looks at labels, the answer to a sum of labels is another: the list of linear layers is complete."""
    layer, (x, y), (_, other) = LAYERS[name], data(), data(seed=1)
    both = answers(layer, x, 2 * y - other)
    assert not close(both, 2 * answers(layer, x, y) - answers(layer, x, other))


@pytest.mark.parametrize("name", NAMES)
def test_answers_turn_with_the_inputs(name):
    """A rotation of all inputs changes no answer of a layer without a preferred direction; of one with, it does."""
    layer, (x, y) = LAYERS[name], data()
    turn = torch.linalg.qr(torch.randn(3, 3, generator=streams("turn"), **F64))[0]
    assert close(answers(layer, x @ turn, y), answers(layer, x, y)) == (name not in DIRECTED)


@pytest.mark.parametrize("name", ["unit keys", "unit keys, Mesa", "normalised stack", "delta stack"])
def test_unit_keys_know_no_lengths(name):
    """With unit keys an example says the same at any length, and its answer scales with it: f(c X, c y) = c f(X, y) for
    every c, one a position too.
    """
    layer, (x, y) = LAYERS[name], data()
    c = torch.rand(y.shape, generator=streams("lengths"), **F64) + 0.1
    assert close(answers(layer, c.unsqueeze(-1) * x, c * y), c * answers(layer, x, y))


@given(gate=st.sampled_from([Gate, LinearGate, LengthGate]))
def test_gated_layers_start_as_those_without(gate):
    """With a gate that has not been trained, gated GLA is GLA and the gated delta rule the one with unit keys."""

    def fresh():
        return gate() if gate is Gate else gate(3, **F64)

    x, y = data()
    pairs = (
        (GatedGLA(3, fresh(), fresh(), lam=0.9, mu=0.2, **F64), GLA(3, lam=0.9, mu=0.2, **F64)),
        (GatedDelta(3, fresh(), fresh(), lam=0.9, beta=0.7, **F64), UnitKeys(DeltaRule(3, lam=0.9, mu=0.7, **F64))),
    )
    for gated, plain in pairs:
        assert close(answers(gated, x, y), answers(plain, x, y))


@pytest.mark.parametrize("name", NAMES)
def test_layers_keep_the_dtype(name):
    """States, answers and gradients are float32 where the parameters are."""
    layer, (x, y) = layers(3, torch.float32)[name], data(dtype=torch.float32)
    assert layer.errors(x, y).dtype == torch.float32
    assert all(part.dtype == torch.float32 for part in vars(layer.step(layer.start(4), x[:, 0], y[:, 0])).values())
    layer.errors(x, y).square().mean().backward()
    trained = [parameter.grad for parameter in layer.parameters()]
    assert all(grad is not None and grad.dtype == torch.float32 and bool(grad.isfinite().all()) for grad in trained)


@given(lam=st.floats(1e-3, 0.999), mu=st.floats(1e-3, 5.0))
def test_natural_values_come_back(lam, mu):
    """What a constructor was given is what the layer's properties show, and its parameters are trained in any value."""
    layer, law = DeltaRule(2, lam=lam, mu=mu, **F64), Kalman(2, gamma=lam, sigma_e=mu, sigma_y=lam, P_0=mu, **F64)
    pairs = [(layer.lam, lam), (layer.mu, mu), (law.gamma, lam), (law.sigma_e, mu), (law.sigma_y, lam), (law.P_0, mu)]
    mesa, longhorn = Mesa(2, lam=lam, eps=mu, **F64), Longhorn(2, lam=lam, eps=mu, **F64)
    pairs += [(mesa.lam, lam), (mesa.eps, mu), (longhorn.lam, lam), (longhorn.eps, mu)]
    mamba = Mamba2(2, Gate(), A=mu, Delta=lam, mu=mu, **F64)
    pairs += [(mamba.A, mu), (mamba.mu, mu), (mamba.Delta(torch.zeros(1, 2, **F64), torch.zeros(1, **F64)), lam)]
    for got, given_value in pairs:
        assert abs(got.item() - given_value) < 1e-12 * max(1.0, given_value)
