"""What every layer, and every model that is one, has to be: causal, batched, equivariant; and what it costs.

Everything is in float64 unless said otherwise; 1e-11 of the largest value covers the rounding of at most 30 tokens.
"""

import copy
import functools
import importlib
import pickle
import pkgutil

import pytest
import shared
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icl import filters, models
from icl.models.causal import Normalised
from icl.models.delta_layers import LFOM, DeltaRule, GatedDelta, Kalman, Longhorn, Mesa
from icl.models.fast_weights import (
    GLA,
    DecayingWeights,
    FastWeights,
    Gate,
    LengthGate,
    LinearAttention,
    LinearGate,
    LinearReadout,
    Mamba2,
    RetNet,
    retention,
)
from icl.models.flops import cost
from icl.models.s6 import S6, Selective, Step
from icl.models.stacks import DeltaStack, GatedDeltaStack, Stack
from icl.models.streaming_stacks import LayeredDelta, LayeredGLA, Selected
from icl.profile import make_generator

F64 = {"dtype": torch.float64}


def data(d=3, time=30, batch=4, seed=0, dtype=torch.float64):
    return shared.sequences("fast weights", d, time, batch, seed=seed, dtype=dtype)


def answers(layer, x, y):
    with torch.no_grad():
        return y - layer.errors(x, y)


@functools.cache
def layers(d, dtype=torch.float64):
    """Every layer, its gates open; no test changes their parameters."""
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
        "delta rule": DeltaRule(d, lam=0.9, mu=0.1, **kind),
        "delta rule by channel": DeltaRule(d, lam=[0.9] * d, mu=[0.1] * d, **kind),
        "gated delta rule": GatedDelta(d, *gates(), lam=0.9, beta=0.8, **kind),
        "Longhorn": Longhorn(d, lam=0.9, eps=0.5, **kind),
        "Mesa": Mesa(d, lam=0.9, eps=0.5, **kind),
        "Kalman": Kalman(d, gamma=0.95, sigma_e=0.1, sigma_y=0.3, P_0=1.0, **kind),
        "LFOM": LFOM(d, c=[0.7, -0.4, 0.2], **kind),
        "S6": Selected(s6),
        "stack": LayeredGLA(Stack(d, 2, **kind)),
        "normalised stack": LayeredGLA(Normalised(Stack(d, 3, **kind))),
        "delta stack": LayeredDelta(DeltaStack(d, 2, **kind)),
        "gated delta stack": LayeredDelta(GatedDeltaStack(d, 3, **kind)),
    }
    return {name: shared.stirred(layer, 0.2) for name, layer in made.items()}


def test_every_layer_of_the_library_is_among_these():
    """Every public layer that a module of `icl.models` defines has an example in `layers`."""
    for module in pkgutil.iter_modules(models.__path__, "icl.models."):
        importlib.import_module(module.name)
    bases, kinds = {FastWeights, LinearReadout, DecayingWeights}, {type(layer) for layer in layers(1).values()}
    below = [FastWeights]
    while below:
        kind = below.pop()
        below += kind.__subclasses__()
        public = kind.__module__.startswith("icl.") and not kind.__name__.startswith("_")
        assert kind in kinds | bases or not public, f"{kind.__name__} has no example in layers(): give it one"


NAMES = list(layers(1))
LAYERS = layers(3)
# Those whose gates do not look at the label.
LINEAR = sorted(set(NAMES) - {"Mamba-2", "gated delta rule", "S6", "gated delta stack"})
# Those that look at some coordinates of x more than at others: by settings a channel, linear gates, or matrices.
DIRECTED = ["GLA by channel", "delta rule by channel", "Mamba-2", "gated delta rule", "S6"]
# Those that answer all positions of a prompt at once, by sums in another order.
AT_ONCE = ["S6", "stack", "normalised stack", "delta stack", "gated delta stack"]
near = functools.partial(shared.close, rounding=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_differences(name):
    """The gradient of a layer's loss, in each of its parameters, is what finite differences give (`gradcheck`)."""
    errors, (x, y) = shared.Errors(layers(2)[name]), data(d=2, time=5, batch=2)
    names, values = zip(*errors.named_parameters(), strict=True)

    def loss(*parameters):
        return torch.func.functional_call(errors, dict(zip(names, parameters, strict=True)), (x, y))

    leaves = tuple(v.detach().clone().requires_grad_() for v in values)
    assert torch.autograd.gradcheck(loss, leaves, eps=1e-6, atol=1e-7)


d = 10
# By hand. A product of d numbers with d others costs d multiplications and d - 1 additions.
DOT = 2 * d - 1
HAND = {
    # mu y, then w + (mu y) x.
    "linear attention": (1, d, DOT + 1 + 2 * d),
    "GLA": (2, d, DOT + 1 + 2 * d + d),
    # mu y is a vector now.
    "GLA by channel": (2 * d, d, DOT + d + 2 * d + d),
    # y x once; w + y x and its decay in each of three heads; three products, three c_h, two additions.
    "RetNet": (3, 3 * d, d + 3 * (d + d) + 3 * DOT + 3 + 2),
    # Step: w'x, w_y y, their sum, b +, softplus: DOT + 4. It is made twice, as is its decay: two operations. Then
    # Delta y, mu (Delta y), a w, w + .. x; and a times what was read.
    "Mamba-2": (d + 1 + 4 - 1, d, 2 * (DOT + 4 + 2) + 2 + 3 * d + DOT + 1),
    # The error: a product and a difference; mu e, w + (mu e) x, lam w.
    "delta rule": (2, d, DOT + DOT + 1 + 1 + 2 * d + d),
    "delta rule by channel": (2 * d, d, DOT + DOT + 1 + d + 2 * d + d),
    # The error over eps + x'x, which is DOT + 1 more, and its quotient.
    "Longhorn": (2, d, DOT + DOT + 1 + DOT + 1 + 1 + 2 * d + d),
    # G + x x', b + y x and one more example. Read: b over their number, x'v and c_0; then twice G v, over their number,
    # x'v, its c_k and the sum.
    "LFOM": (3, d**2 + d + 1, 2 * d**2 + 2 * d + 1 + d + DOT + 1 + 2 * (d * DOT + d + DOT + 1 + 1)),
    # G + x x' and b + y x, each faded; eps on the diagonal, elimination (a third of 2 n^3 to leading order), x'w, c.
    "Mesa": (3, d**2 + d, 3 * d**2 + 3 * d + d + (d * (d - 1) * (4 * d + 1) // 6 + 2 * d**2 - d) + DOT + 1),
    # P x; x'P x + s2; the error and its quotient; w + P x e and gamma; 1 / sqrt, u; P - u u', gamma^2, the diagonal.
    "Kalman": (4, d**2 + d, DOT + d * DOT + DOT + 1 + DOT + 2 + 3 * d + 1 + d + 3 * d**2 + d),
    # Twice: x'x, its root, x / |x|; then y / |x| and |x| y_hat, and the delta rule.
}


@pytest.mark.parametrize("name", HAND)
def test_costs_are_those_counted_by_hand(name):
    """Parameters, numbers in the state and operations a token at d = 10, against counts made on paper."""
    counted = cost(layers(d)[name])
    assert (counted.parameters, counted.state, counted.flops) == HAND[name]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6)
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


@pytest.mark.parametrize("name", NAMES)
def test_the_past_matters(name):
    """Another label at the start changes the answer at the next position: what never changes is not merely nothing."""
    x, y = data()
    other = y.clone()
    other[:, 0] += 1
    assert (answers(LAYERS[name], x, y)[:, 1] - answers(LAYERS[name], x, other)[:, 1]).abs().min() > 1e-5


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6)
@given(d=st.integers(1, 4), time=st.integers(1, 12), batch=st.integers(1, 5))
def test_steps_are_the_scan(name, d, time, batch):
    """`start`, `read` and `step`, one token after another, are `errors` bit for bit, or up to rounding where a layer
    answers all at once; the state given to `step` stays as it was, and no answer depends on the rest of the batch.
    """
    layer, (x, y) = layers(d)[name], data(d, time, batch)
    assert (type(layer).errors is FastWeights.errors) == (name not in AT_ONCE)
    with torch.no_grad():
        expected = y - FastWeights.errors(layer, x, y)
        assert near(answers(layer, x, y), expected)
        state, got = layer.start(batch), []
        for xt, yt in zip(x.unbind(1), y.unbind(1), strict=True):
            before = {part: value.clone() for part, value in vars(state).items()}
            got.append(yt - (yt - layer.read(state, xt)))
            following = layer.step(state, xt, yt)
            assert all(torch.equal(vars(state)[part], value) for part, value in before.items())
            state = following
    assert torch.equal(torch.stack(got, dim=1), expected)
    assert near(answers(layer, x[:1], y[:1]), expected[:1])


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, of a derivative
@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("name", NAMES)
def test_no_check_stops_a_transformation(name):
    """vmap over prompts, and torch.compile of all positions as one graph, give the plain errors.

    A stack's derivative is written out as torch.func takes none: its recurrence is mapped.
    """
    layer, (x, y) = LAYERS[name], data(time=5)
    errors = functools.partial(FastWeights.errors, layer) if name in ("stack", "normalised stack") else layer.errors
    torch.compiler.reset()  # it counts how often it compiles one function
    with torch.no_grad():
        plain = layer.errors(x, y)
        assert near(torch.vmap(lambda a, b: errors(a[None], b[None])[0])(x, y), plain)
        assert near(torch.compile(layer.errors, backend="eager", fullgraph=True)(x, y), plain)


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("name", NAMES)
def test_no_check_reads_a_number_on_another_device(name):
    """A meta tensor has no numbers: reading one, as a GPU would be waited for, is an error."""
    layer, (x, y) = copy.deepcopy(LAYERS[name]).to("meta"), (part.to("meta") for part in data())
    assert layer.errors(x, y).shape == y.shape
    state = layer.step(layer.start(len(x)), x[:, 0], y[:, 0])
    assert layer.read(state, x[:, 1]).shape == y[:, 1].shape


@pytest.mark.parametrize("name", NAMES)
def test_no_prompts_give_no_errors(name):
    """A batch of none, as a filtered table may leave, is answered by none."""
    x, y = data()
    assert LAYERS[name].errors(x[:0], y[:0]).shape == (0, 30)


@pytest.mark.parametrize("name", NAMES)
def test_copies_answer_alike(name):
    """deepcopy and pickle give layers with the same errors, bit for bit; autocast those of float32 within 2% of the
    largest, as products in bfloat16 round to 0.4%.
    """
    layer, (x, y) = layers(3, torch.float32)[name], data(time=12, dtype=torch.float32)
    with torch.no_grad():
        plain = layer.errors(x, y)
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert torch.equal(other.errors(x, y), plain)
        with torch.autocast("cpu", torch.bfloat16):
            cast = layer.errors(x, y)
    assert cast.dtype == torch.float32
    assert (cast - plain).abs().max() <= 0.02 * plain.abs().max()


@pytest.mark.parametrize("name", LINEAR)
def test_answers_are_linear_in_the_labels(name):
    """Layers whose gates, if any, do not look at labels answer a sum of labels with the sum of their answers."""
    layer, (x, y), (_, other) = LAYERS[name], data(), data(seed=1)
    both = answers(layer, x, 2 * y - other)
    assert near(both, 2 * answers(layer, x, y) - answers(layer, x, other))


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(LINEAR)))
def test_the_others_are_not_linear(name):
    """Where a gate looks at labels, the answer to a sum of labels is another: the list of linear layers is complete."""
    layer, (x, y), (_, other) = LAYERS[name], data(), data(seed=1)
    both = answers(layer, x, 2 * y - other)
    assert not near(both, 2 * answers(layer, x, y) - answers(layer, x, other))


@pytest.mark.parametrize("name", NAMES)
def test_answers_turn_with_the_inputs(name):
    """A rotation of all inputs changes no answer of a layer without a preferred direction; of one with, it does."""
    layer, (x, y) = LAYERS[name], data()
    turn = torch.linalg.qr(torch.randn(3, 3, generator=make_generator("turn"), **F64))[0]
    assert near(answers(layer, x @ turn, y), answers(layer, x, y)) == (name not in DIRECTED)


@pytest.mark.parametrize("name", ["normalised stack", "delta stack"])
def test_unit_keys_know_no_lengths(name):
    """With unit keys an example says the same at any length, and its answer scales with it: f(c X, c y) = c f(X, y) for
    every c, one a position too.
    """
    layer, (x, y) = LAYERS[name], data()
    c = torch.rand(y.shape, generator=make_generator("lengths"), **F64) + 0.1
    assert near(answers(layer, c.unsqueeze(-1) * x, c * y), c * answers(layer, x, y))


@given(gate=st.sampled_from([Gate, LinearGate, LengthGate]))
def test_gated_layers_start_as_those_without(gate):
    """With gates that have not been trained, the gated delta rule is the filter without gates."""

    def fresh():
        return gate() if gate is Gate else gate(3, **F64)

    x, y = data()
    plain = filters.run_filter(filters.normalised_delta_rule(0.7, lam=0.9, eps=0), x, y)
    assert near(answers(GatedDelta(3, fresh(), fresh(), lam=0.9, beta=0.7, **F64), x, y), plain)


@pytest.mark.parametrize("name", NAMES)
def test_layers_keep_the_dtype(name):
    """States, answers and gradients are float32 where the parameters are, but for the covariance of Kalman and the
    sums of Mesa, which are float64.
    """
    layer, (x, y) = layers(3, torch.float32)[name], data(dtype=torch.float32)
    assert layer.errors(x, y).dtype == torch.float32
    wide = {"Kalman": {"P"}, "Mesa": {"G", "b"}}.get(name, set())
    for part, value in vars(layer.step(layer.start(4), x[:, 0], y[:, 0])).items():
        assert value.dtype == (torch.float64 if part in wide else torch.float32), part
    layer.errors(x, y).square().mean().backward()
    trained = [parameter.grad for parameter in layer.parameters()]
    assert all(grad is not None and grad.dtype == torch.float32 and bool(grad.isfinite().all()) for grad in trained)
