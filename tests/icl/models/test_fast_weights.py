"""The layers of `icl.models.fast_weights` against operators and loops that compute the same elsewhere, and what every
layer, and every model that is one, has to be: causal, batched, equivariant.

Everything is in float64 unless said otherwise. Values are products and sums over at most 40 tokens, so that 1e-12 of
the largest covers the rounding of a layer without a matrix to solve for; the others have their own bound, stated where
it is used. For the properties of all of them, 1e-11 of the largest value covers at most 30 tokens.
"""

import copy
import functools
import importlib
import math
import pickle
import pkgutil

import numpy as np
import pytest
import shared
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icl import filters, models
from icl.experiments.training import AdamW, Config, fit
from icl.models import operators, s6
from icl.models.causal import Normalised
from icl.models.delta_layers import LFOM, DeltaRule, GatedDelta, Kalman, Longhorn, Mesa
from icl.models.fast_weights import (
    GLA,
    FastWeights,
    Gate,
    LengthGate,
    LinearAttention,
    LinearGate,
    Mamba2,
    RetNet,
    retention,
)
from icl.models.flops import cost
from icl.models.s6 import S6, Selective, Step
from icl.models.stacks import DeltaStack, GatedDeltaStack, Stack
from icl.models.streaming_stacks import LayeredDelta, LayeredGLA, Selected
from icl.profile import make_generator
from icl.tasks import DriftingRegression, Prompt
from icl.theory import one_layer as theory

# Oracles

F64 = {"dtype": torch.float64}
ROUNDING = 1e-12
D = 4


def data(d=3, time=30, batch=4, seed=0, dtype=torch.float64):
    return shared.sequences("fast weights", d, time, batch, seed=seed, dtype=dtype)


forty = functools.partial(data, D, 40, 6, seed=D)


def answers(layer, x, y):
    with torch.no_grad():
        return y - layer.errors(x, y)


def close(got, expected, rounding=ROUNDING):
    return got.shape == expected.shape and bool((got - expected).abs().max() <= rounding * expected.abs().max())


def test_gla_is_the_field_s_operator():
    """GLA's answers are linear attention with keys and queries x, values mu y and decay lam, less what a token says
    about itself; with decay 1 they are linear attention's.
    """
    x, y = forty()
    key, value = x.unsqueeze(2), (0.3 * y)[..., None, None]
    own = value[:, :, 0, 0] * x.square().sum(-1)
    for layer, lam in ((GLA(D, lam=0.8, mu=0.3, **F64), 0.8), (LinearAttention(D, mu=0.3, **F64), 1.0)):
        read = operators.recurrent(key, key, value, torch.full((1, 1, 1), lam, **F64))[:, :, 0, 0]
        assert close(answers(layer, x, y), read - own)


def test_decay_a_channel_is_gla_a_channel():
    """With a decay and a write strength for each coordinate, the answer is the sum of one-dimensional GLA layers'
    estimates times x.
    """
    x, y = forty()
    lam, mu = [0.5, 0.7, 0.9, 0.99], [0.1, 0.2, 0.3, 0.4]
    got = answers(GLA(D, lam=lam, mu=mu, **F64), x, y)
    parts = [
        answers(GLA(1, lam=a, mu=b, **F64), x[..., j : j + 1], y) for j, (a, b) in enumerate(zip(lam, mu, strict=True))
    ]
    assert close(got, sum(parts))


def test_retnet_is_a_sum_of_gla_layers():
    """RetNet's answer is the sum over its heads of GLA layers with its decays and mu = c_h, also where c_h < 0; its
    own decays are the paper's.
    """
    assert np.allclose(retention(3), [1 - 1 / 32, 1 - 1 / 64, 1 - 1 / 128], rtol=1e-15)
    x, y = forty()
    layer = RetNet(D, lam=retention(3), mu=0.6, **F64)
    assert layer.c.tolist() == pytest.approx([0.2] * 3)
    c = (0.5, -0.3, 0.2)
    with torch.no_grad():
        layer.c.copy_(torch.tensor(c, **F64))
    heads = [
        answers(GLA(D, lam=lam, mu=abs(weight), **F64), x, y) * math.copysign(1, weight)
        for lam, weight in zip(retention(3), c, strict=True)
    ]
    assert close(answers(layer, x, y), sum(heads), 1e-11)  # 1 - lam = 2^-7 comes back from log-odds


def test_gates_are_their_formulas():
    """A linear gate is w'(x, y), a length gate c log(1 + x'x / d), written out; decays, write strengths and steps are
    their sigmoids, exponentials and softplus, at gates far from 0.
    """
    x, y = (part[:, 0].numpy() for part in forty())
    linear, length = shared.stirred(LinearGate(D, **F64)), LengthGate(D, **F64)
    with torch.no_grad():
        length.c.fill_(-0.8)
        w, c = linear.w.detach().numpy(), -0.8
        one = np.array([sum(w[j] * row[j] for j in range(D)) + w[D] * label for row, label in zip(x, y, strict=True)])
        two = c * np.log(1 + (x**2).sum(1) / D)
        inputs = torch.as_tensor(x), torch.as_tensor(y)
        rule = GatedDelta(D, length, linear, lam=0.8, beta=0.3, **F64)
        held = Mamba2(D, linear, A=1.0, Delta=0.2, mu=1.0, **F64)
        for got, expected in (
            (linear(*inputs), one),
            (length(*inputs), two),
            (rule.lam(*inputs), 1 / (1 + (0.2 / 0.8) * np.exp(-two))),
            (rule.beta(*inputs), 2 / (1 + (1.7 / 0.3) * np.exp(-one))),
            (held.Delta(*inputs), np.log(1 + np.expm1(0.2) * np.exp(one))),
        ):
            assert expected.std() > 0.01
            assert np.allclose(got.numpy(), expected, rtol=1e-12, atol=1e-14)


class Euler(s6.S6):
    """S6 whose write is Euler's, Delta B in place of (exp(Delta A) - 1) / A B: what Mamba-2 does."""

    def forward(self, u):
        step = self.step(u)
        written = self.B(u) * step.unsqueeze(-1)
        keep = (step * self.A).unsqueeze(-1).exp()
        return operators.recurrent(
            self.C(u).unsqueeze(2), written.unsqueeze(2), u.unsqueeze(2), keep.expand(-1, -1, 1)
        ).squeeze(2)


def selecting(d, scale, kind=s6.S6):
    """An S6 whose W_B picks x, whose W_C picks `scale` x, and whose step looks at the token."""
    parts = s6.Selective(d + 1, d), s6.Selective(d + 1, d)
    step = s6.Step(d + 1, 0.3)
    with torch.no_grad():
        for part, size in zip(parts, (1.0, scale), strict=True):
            part.W[:, :d] = size * torch.eye(d, **F64)
        step.w.copy_(0.2 * torch.randn(d + 1, generator=make_generator("step"), **F64))
    return kind(*parts, step, torch.tensor([-0.7], **F64))


def test_mamba_2_is_s6_with_euler_s_rule():
    """With W_B and W_C that pick x, one rate and a step that looks at the token, the last channel of an S6 layer at the
    last token is Mamba-2's answer to the query, if S6 writes Delta B; at every length of the prompt.
    """
    layer = selecting(D, 0.4, Euler)
    mine, (x, y) = Mamba2(D, LinearGate(D, **F64), A=0.7, Delta=0.3, mu=0.4, **F64), forty()
    with torch.no_grad():
        mine.gate.w.copy_(layer.step.w)
    for n in (1, 2, 17, 39):
        prompt = Prompt(x[:, : n + 1], y[:, : n + 1], torch.zeros_like(x[:, : n + 1]))
        with torch.no_grad():
            assert close(mine(prompt), layer.predictions(prompt))


def test_mamba_2_is_s6_at_a_fixed_step():
    """With the same step at every token, zero-order hold and Euler's rule differ by a factor, and Mamba-2 is
    `mamba.S6` itself.
    """
    layer = selecting(D, 0.4)
    with torch.no_grad():
        layer.step.w.zero_()
    gain = -math.expm1(-0.7 * 0.3) / 0.7
    mine = Mamba2(D, LinearGate(D, **F64), A=0.7, Delta=0.3, mu=0.4 * gain / 0.3, **F64)
    x, y = forty()
    prompt = Prompt(x, y, torch.zeros_like(x))
    with torch.no_grad():
        assert close(mine(prompt), layer.predictions(prompt))


@pytest.mark.one_draw("one training")
@pytest.mark.usefixtures("as_installed")
def test_training_finds_the_best_forgetting_factor():
    """Trained on prompts of 30 examples by the loss at the query, GLA ends at the theory's lam* and mu.

    lam is within .02 and the layer's exact risk within 1e-3 (relative) of the least: 120 steps of 256 prompts from
    lam = .7 and mu = .02, where the risk is more than a tenth above the least.
    """
    task = DriftingRegression(d=3, n=30, gamma=0.95, sigma_e=0.3)
    layer = GLA(3, lam=0.7, mu=0.02, **F64)
    recipe = Config(120, 256, AdamW(lr=0.1, weight_decay=0.0, beta2=0.99), anneal_to=0.0)
    fit(layer, lambda model, prompt: model.loss(prompt, since=30), task, recipe, generator=make_generator("fit GLA"))
    lam, mu = layer.lam.item(), layer.mu.item()
    best = theory.optimal_forgetting(task)
    risk = theory.layer_risk(mu * np.eye(3), task, lam=lam)
    least = theory.layer_risk(theory.optimum(task, lam=best).A, task, lam=best)
    assert theory.layer_risk(0.02 * np.eye(3), task, lam=0.7) / least > 1.1
    assert abs(lam - best) < 0.02
    assert risk / least - 1 < 1e-3


# Properties


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
    below, kinds = [FastWeights], {type(layer) for layer in layers(1).values()}
    while below:
        kind = below.pop()
        below += kind.__subclasses__()
        public = kind.__module__.startswith("icl.") and not kind.__name__.startswith("_") and kind is not FastWeights
        assert kind in kinds or not public, f"{kind.__name__} has no example in layers(): give it one"


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
