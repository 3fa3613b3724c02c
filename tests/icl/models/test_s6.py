"""The S6 layer against the equations it is made from, Theorem 4.1 and mambapy, other people's code: their parallel
scan, with a backward pass of its own. Its forms agree, the future never changes the past, and what collapses is the
layer.

Tolerances of the properties. Outputs and gradients are sums of at most 40 x 5 products of at most 45 factors below 1,
computed in float64: rounding is within 1e-12 of the same sums over absolute values, which for outputs is `scan` of |u|,
|B|, |C|. Gradients of A and Delta are differences of such sums, and are held to 1e-9 of the largest entry or of the
same gradient at absolute values, whichever is larger.
"""

import copy
import functools
import math

import numpy as np
import pytest
import shared
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mambapy.mamba import MambaBlock, MambaConfig
from scipy.linalg import expm

from icl.models import operators, s6
from icl.models.s6 import S6, FixedStep, S6Stack, Selective, Static, Step
from icl.profile import make_generator
from icl.tasks import StationaryRegression
from icl.theory import s6 as theory

# Oracles


normal = functools.partial(shared.normal, name="mamba")


def filled(layer, seed=0):
    """The layer with every parameter that is trained drawn anew, biases and w_Delta too."""
    generator = make_generator("filled", seed=seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            if parameter.requires_grad:
                parameter.copy_(0.7 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return layer


def by_hand(u, A, B, C, Delta):
    """(1) and (2) channel by channel. Zero-order hold is the flow of h' = A h + b u with u held for a time Delta:
    the exponential of ((Delta A, Delta b), (0, 0)) has exp(Delta A) and what multiplies u in its first row.
    """
    u, A, B, C, Delta = (t.numpy() for t in (u, A, B, C, Delta))
    batch, time, channels = u.shape
    d_h = B.shape[2]
    rates = np.diag(np.broadcast_to(A, (d_h,)))
    out = np.empty(u.shape)
    for p, i in np.ndindex(batch, channels):
        h = np.zeros(d_h)
        for t in range(time):
            step = Delta[p % len(Delta), t]
            joint = np.zeros((d_h + 1, d_h + 1))
            joint[:-1, :-1], joint[:-1, -1] = step * rates, step * B[p, t]
            flow = expm(joint)
            h = flow[:-1, :-1] @ h + flow[:-1, -1] * u[p, t, i]
            out[p, t, i] = C[p, t] @ h
    return torch.as_tensor(out)


@pytest.mark.parametrize("rates", ["one", "several"])
@pytest.mark.parametrize("each", [False, True], ids=["one row of steps", "steps of each prompt"])
def test_scan_is_zero_order_hold_by_hand(rates, each):
    """`scan` is a loop over prompts, channels and tokens with the matrix exponential of the system that is held, for
    steps from 0.05 to 2 that differ from token to token, and for one rate or several.

    Tolerance 1e-12 of the largest output. Planted: with the gain Delta B of Euler's rule it is off by a tenth.
    """
    u, B, C = normal(2, 9, 3), normal(2, 9, 4, seed=1), normal(2, 9, 4, seed=2)
    A = torch.tensor([-1.3], dtype=torch.float64) if rates == "one" else -(normal(4, seed=3).abs() + 0.1)
    Delta = 0.05 + 1.95 * torch.rand(2 if each else 1, 9, generator=make_generator("steps"), dtype=torch.float64)
    expected = by_hand(u, A, B, C, Delta)
    found = s6.scan(u, A, B, C, Delta)
    assert (found - expected).abs().max() <= 1e-12 * expected.abs().max()


def test_layer_selects_by_hand():
    """A layer with all parts drawn, w_Delta among them, is the hand-made loop with B, C and Delta from (3) - (5).

    softplus is written as log(1 + exp) by numpy. Tolerance 1e-12 of the largest output.
    """
    layer = filled(S6(Selective(3, 4), Selective(3, 4), Step(3, 0.3), -torch.arange(1.0, 5, dtype=torch.float64)))
    u = normal(2, 8, 3)
    w = {name: p.detach().numpy() for name, p in layer.named_parameters()}
    B, C = u.numpy() @ w["B.W"].T + w["B.b"], u.numpy() @ w["C.W"].T + w["C.b"]
    Delta = np.log1p(np.exp(u.numpy() @ w["step.w"] + w["step.b"]))
    assert Delta.std() > 0.1
    expected = by_hand(u, layer.A, *(torch.as_tensor(t) for t in (B, C, Delta)))
    assert (layer(u) - expected).abs().max() <= 1e-12 * expected.abs().max()


def test_gradients_are_those_of_finite_differences():
    """Gradients of `chunked` for several rates and of `dual` for one, with respect to all five arguments, are what
    central differences give (torch.autograd.gradcheck, 1e-6 steps, error 1e-5; the properties below settle the
    digits).
    """
    u, B, C = normal(2, 5, 2), normal(2, 5, 3, seed=1), normal(2, 5, 3, seed=2)
    for rates, form in ((3, lambda *a: s6.scan_chunked(*a, size=2)), (1, s6.dual)):
        leaves = (u, -normal(rates, seed=3).abs() - 0.2, B, C, normal(2, 5, seed=4).abs() + 0.1)
        assert torch.autograd.gradcheck(form, tuple(t.clone().requires_grad_() for t in leaves))


def test_short_steps_after_a_long_one_keep_their_digits():
    """Steps of a millionth after one of a million: all forms still agree with `scan` to 1e-12 of the largest output.

    Differences of times since the start would leave none of their digits.
    """
    u, B, C = normal(1, 12, 2), normal(1, 12, 3, seed=1), normal(1, 12, 3, seed=2)
    Delta = torch.full((1, 12), 1e-6, dtype=torch.float64)
    Delta[0, 2] = 1e6
    for rates in (1, 3):
        A = -1e5 * (normal(rates, seed=3).abs() + 0.1)
        expected = s6.scan(u, A, B, C, Delta)
        assert (s6.scan_chunked(u, A, B, C, Delta) - expected).abs().max() <= 1e-12 * expected.abs().max()


@pytest.mark.parametrize("rates", [1, 3])
def test_a_step_that_underflows_leaves_the_state_alone(rates):
    """One token at z = -120, where softplus is 0 in float32: all forms give the output of float64, where it is
    8e-53, to 1e-6 of the largest, with a finite gradient; later tokens read what they would if this one were not there.
    """
    layer = S6(Selective(3, 3), Selective(3, 3), Step(3, 0.3), -normal(rates, seed=5).abs() - 0.2)
    with torch.no_grad():
        for part in (layer.B, layer.C):
            part.W.copy_(normal(3, 3, seed=6))
        layer.step.w[0] = 1.0
    u = normal(2, 20, 3)
    u[:, 4, 0] = -120.0
    expected = layer(u)
    single = copy.deepcopy(layer).float()
    single.log_rate.requires_grad_(True)
    arguments = (u.float(), single.A, single.B(u.float()), single.C(u.float()), single.step(u.float()))
    assert bool((arguments[-1][:, 4] == 0).all())
    forms = [s6.scan, s6.scan_chunked, lambda *a: s6.scan_chunked(*a, size=3), *([s6.dual] if rates == 1 else [])]
    for form in forms:
        found = form(*arguments)
        assert (found - expected).abs().max() <= 1e-6 * expected.abs().max()
        shorter = form(*(each if each.dim() == 1 else each[:, torch.arange(20) != 4] for each in arguments))
        torch.testing.assert_close(found[:, 5:], shorter[:, 4:], rtol=1e-4, atol=1e-6 * expected.abs().max().item())
        single.zero_grad()
        found.square().sum().backward(retain_graph=True)
        assert all(bool(p.grad.isfinite().all()) for p in single.parameters())


@pytest.mark.parametrize("Delta", [1e-8, 0.01, 1.0, 20.5, 1e4])
def test_steps_start_where_they_are_told(Delta):
    """`Step` starts with the step it is given, to 1e-12, small or large; `FixedStep` has exactly it.

    Planted: with the threshold of 20 that Torch has by default for softplus 20.5 is 6e-11 off.
    """
    u = normal(2, 3, 4)
    assert (Step(4, Delta)(u) / Delta - 1).abs().max() <= 1e-12
    assert (FixedStep(Delta)(u) == Delta).all()


@pytest.mark.parametrize("A", [-1.0, -2.5])
def test_what_is_left_of_each_example(A):
    """omega_l is what the query finds of an impulse at l, by `scan`; for A = -1 it is (1 - alpha) alpha^(N+1-l).

    Tolerance 1e-12.
    """
    N, Delta = 7, 0.3
    layer = S6(Selective(2, 1), Selective(2, 1), FixedStep(Delta), torch.tensor([A], dtype=torch.float64))
    omega = s6.weights(N, layer)
    ones = torch.ones(N, N + 1, 1, dtype=torch.float64)
    impulses = torch.eye(N, N + 1, dtype=torch.float64).unsqueeze(2)
    found = s6.scan(impulses, layer.A, ones, ones, layer.step(ones))[:, -1, 0]
    assert (found - omega).abs().max() <= 1e-12 * omega.max()
    if A == -1:
        alpha = math.exp(-Delta)
        expected = np.array([(1 - alpha) * alpha ** (N + 1 - l) for l in range(1, N + 1)])  # noqa: E741
        assert np.abs(omega.numpy() - expected).max() <= 1e-12


def fixed(d, d_h, *, A=-1.0, Delta=0.2, seed=0):
    parts = Selective(d + 1, d_h), Selective(d + 1, d_h)
    return filled(S6(*parts, FixedStep(Delta), torch.tensor([A], dtype=torch.float64)), seed)


@pytest.mark.parametrize(("d", "d_h", "N", "A"), [(1, 1, 1, -1.0), (3, 8, 12, -1.0), (4, 2, 37, -0.6)])
def test_statistics_say_all_about_the_prediction(d, d_h, N, A):
    """The statistics are their sums taken term by term, and `read` makes from them the layer's own predictions.

    Biases included. Tolerance 1e-12 of the largest.
    """
    layer = fixed(d, d_h, A=A)
    prompt = StationaryRegression(d, N).sample(6, generator=make_generator("prompts"), dtype=torch.float64)
    known = s6.statistics(prompt, layer)
    e = prompt.tokens().numpy()
    omega, y = s6.weights(N, layer).numpy(), prompt.y.numpy()
    for b in range(6):
        g = sum(omega[j] * y[b, j] * e[b, j] for j in range(N))
        assert np.abs(known.g[b].numpy() - g).max() <= 1e-12 * np.abs(g).max()
        s = [omega[j] * y[b, j] for j in range(N)]
        assert abs(known.s[b].item() - sum(s)) <= 1e-12 * np.abs(s).sum()
        assert np.array_equal(known.e[b].numpy(), [*prompt.x[b, -1], 0.0])
    expected = layer.predictions(prompt)
    assert (s6.read_out(layer, known) - expected).abs().max() <= 1e-12 * expected.abs().max()


@pytest.mark.parametrize(("d", "d_h", "time", "A"), [(1, 1, 1, -1.0), (3, 8, 12, -1.0), (4, 2, 37, -0.6)])
def test_features_say_all_about_the_layer(d, d_h, time, A):
    """`collapsed`, from `features`, is what the layer gives at every token and channel, for any tokens.

    Tolerance 1e-12 of the largest output.
    """
    layer, u = fixed(d, d_h, A=A), normal(3, time, d + 1)
    states, expected = s6.s6_features(u, layer), layer(u)
    assert states.shape == (3, time, d + 1, d + 2)
    assert (s6.collapsed(layer, u, states) - expected).abs().max() <= 1e-12 * expected.abs().max()


def equilibrium(d, d_h, N):
    """The layer of Assumption 4.1 where training ends: C'B = beta I and C'b = 0, C and c anything, biases 0."""
    layer = s6.assumed(d, d_h, N, generator=make_generator("equilibrium"))
    beta = theory.optimal_beta(d, N, theory.assumed_alpha(N))[0]
    C = layer.C.W.detach()[:, :d]
    inverse = torch.linalg.pinv(C).T
    with torch.no_grad():
        layer.B.W[:, :d] = beta * inverse
        layer.B.W[:, d] -= inverse @ (C.T @ layer.B.W[:, d])
    return layer, beta


@pytest.mark.parametrize(("d", "d_h", "N"), [(2, 2, 5), (3, 7, 20), (4, 16, 50)])
def test_theorem_4_1(d, d_h, N):
    """Where training ends, the projected state of the last channel is h~ = alpha h~ + (1 - alpha) beta y x from token
    to token, the query adds one more decay, and the prediction is x_q' sum_i (1 - alpha) alpha^(i+1) beta y_(N-i)
    x_(N-i).

    The states are read off `scan` with the columns of C in place of C_l. Tolerance 1e-12 of the largest. Planted: the
    sum without the query's decay, alpha^i, is off by the factor 1/alpha.
    """
    layer, beta = equilibrium(d, d_h, N)
    prompt = StationaryRegression(d, N).sample(4, generator=make_generator("prompts"), dtype=torch.float64)
    u = prompt.tokens()
    with torch.no_grad():
        B, step = layer.B(u), layer.step(u)
        reads = [layer.C.W[:, i].expand(*u.shape[:2], -1) for i in range(d)]
        h = torch.stack([s6.scan(u, layer.A, B, C, step)[:, :, -1] for C in reads], dim=2)
        predicted = layer.predictions(prompt)
    alpha = 2 ** (-1 / N)
    x, y, scale = prompt.x, prompt.y, h.abs().max()
    state = torch.zeros_like(h[:, 0])
    for l in range(N):  # noqa: E741
        state = alpha * state + (1 - alpha) * beta * y[:, l, None] * x[:, l]
        assert (h[:, l] - state).abs().max() <= 1e-12 * scale
    assert (h[:, N] - alpha * state).abs().max() <= 1e-12 * scale
    terms = [(1 - alpha) * alpha ** (i + 1) * beta * y[:, N - 1 - i, None] * x[:, N - 1 - i] for i in range(N)]
    expected = (x[:, -1] * sum(terms)).sum(1)
    assert (predicted - expected).abs().max() <= 1e-11 * expected.abs().max()


@pytest.mark.parametrize("static", ["B", "C"])
def test_without_selection_only_labels_count(static):
    """With a static B the prediction reads the examples' labels alone, by a sum that is the same for all prompts up to
    a factor from the query; with a static C it is the same whatever the query's input.

    So either way it knows nothing of w'x_q: theory/test_s6.py has the least loss, d/2. Bit for bit.
    """
    d, d_h, N = 3, 5, 8
    parts = {name: Static(d_h) if name == static else Selective(d + 1, d_h) for name in "BC"}
    layer = filled(S6(parts["B"], parts["C"], FixedStep(0.1), -torch.ones(1, dtype=torch.float64)))
    prompt = StationaryRegression(d, N).sample(5, generator=make_generator("prompts"), dtype=torch.float64)
    tokens = prompt.tokens()
    other = tokens.clone()
    changed = slice(0, N) if static == "B" else slice(N, N + 1)
    other[:, changed, :d] = normal(5, N if static == "B" else 1, d, seed=9)
    assert torch.equal(layer(tokens)[:, -1, -1], layer(other)[:, -1, -1])
    kept = slice(N, N + 1) if static == "B" else slice(0, N)
    other[:, kept, :d] = normal(5, 1 if static == "B" else N, d, seed=10)
    assert not torch.equal(layer(tokens)[:, -1, -1], layer(other)[:, -1, -1])


def test_the_assumed_layer():
    """A = -1, Delta = ln(2) / N by softplus of the paper's bias, alpha^N = 1/2; weights of the scale asked for from
    one generator, biases 0; nothing but W_B, b_B, W_C, b_C is trained.
    """
    d, d_h, N = 4, 6, 30
    layer = s6.assumed(d, d_h, N, generator=make_generator("start"))
    small = s6.assumed(d, d_h, N, generator=make_generator("start"), scale=0.5)
    u = torch.zeros(1, N, d + 1, dtype=torch.float64)
    Delta = layer.step(u)
    assert layer.A.tolist() == [-1.0]
    assert abs(Delta[0, 0].item() - math.log1p(math.expm1(math.log(2) / N))) <= 1e-15
    assert abs(math.exp(-Delta.sum().item()) - 0.5) <= 1e-14
    for ours, other in ((layer.B, small.B), (layer.C, small.C)):
        assert ours.W.shape == (d_h, d + 1)
        assert torch.equal(other.W, 0.5 * ours.W)
        assert not ours.b.any()
    assert not torch.equal(layer.B.W, layer.C.W)
    assert {name for name, p in layer.named_parameters() if p.requires_grad} == {"B.W", "B.b", "C.W", "C.b"}


def test_a_stack_is_its_layers_with_residuals():
    """u <- u + W S6(u), then u <- u + f(u), layer by layer, written out; at the start only labels move.

    Tolerance 1e-13 of the largest.
    """
    layers = [fixed(2, 3, seed=1), fixed(2, 4, seed=2)]
    networks = [torch.nn.Linear(3, 3, dtype=torch.float64) for _ in layers]
    prompt = StationaryRegression(2, 6).sample(3, generator=make_generator("prompts"), dtype=torch.float64)
    u = prompt.tokens()
    plain = S6Stack(layers, 3)
    first = u.clone()
    first[..., -1] += layers[0](u)[..., -1]
    second = first.clone()
    second[..., -1] += layers[1](first)[..., -1]
    assert (plain(u) - second).abs().max() <= 1e-13 * second.abs().max()
    assert torch.equal(plain.predictions(prompt), plain(u)[:, -1, -1])
    full = S6Stack(layers, 3, networks)
    assert {name.partition(".")[0] for name, _ in full.named_parameters()} == {"layers", "networks", "W"}
    with torch.no_grad():
        full.W.copy_(normal(2, 3, 3, seed=5))
    v = u
    for layer, network, W in zip(layers, networks, full.W, strict=True):
        v = v + torch.einsum("ij,btj->bti", W, layer(v))
        v = v + network(v)
    assert (full(u) - v).abs().max() <= 1e-13 * v.abs().max()


@pytest.mark.parametrize(("batch", "time", "channels", "d_h"), [(1, 1, 2, 1), (2, 17, 4, 3), (3, 64, 6, 8)])
@pytest.mark.parametrize("rates", ["one", "several"])
def test_scan_is_mambapys(batch, time, channels, d_h, rates):
    """`scan` and `chunked` are mambapy's selective scan, in value and in the gradients of all five arguments.

    It holds B by Euler's rule, Delta B u: it is given the B for which that is zero-order hold, B (exp(Delta A) - 1) /
    (A Delta), which is a number a state only if rates are one number, and otherwise differs between states as its B
    may. 1e-10 of the largest entry, float64. Planted: given B itself it is hundredths away.
    """
    generator = make_generator("mambapy", seed=time)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    u, B, C, seen = normal(batch, time, channels), *normal(2, batch, time, d_h), normal(batch, time, channels)
    A = -(normal(1 if rates == "one" else d_h).abs() + 0.2)
    Delta = normal(batch, time).abs() + 0.05
    block = MambaBlock(MambaConfig(d_model=channels, n_layers=1, d_state=d_h, expand_factor=1))

    def theirs(u, A, B, C, Delta):
        exponent = Delta.unsqueeze(-1) * A
        held = B * torch.expm1(exponent) / exponent
        steps, rate = Delta.unsqueeze(-1).expand(-1, -1, channels), A.expand(channels, d_h)
        skipped = torch.zeros(channels, dtype=torch.float64)
        # Their scan works in place on what it is given.
        return block.selective_scan(u, steps.clone(), rate.clone(), held, C, skipped)

    def both(form):
        leaves = [t.clone().requires_grad_() for t in (u, A, B, C, Delta)]
        out = form(*leaves)
        return [out.detach(), *torch.autograd.grad((out * seen).sum(), leaves)]

    expected = both(theirs)
    for form in (s6.scan, s6.scan_chunked):
        for got, want in zip(both(form), expected, strict=True):
            assert want.abs().max() > 1e-3 or time == 1
            assert (got - want).abs().max() <= 1e-10 * want.abs().max()


# Properties

ROUNDING = 1e-12
LENGTHS = st.one_of(st.integers(1, 40), st.sampled_from([1, 2, 15, 16, 17, 31, 32, 33]))


@st.composite
def inputs(draw):
    """(u, A, B, C, Delta) of awkward sizes; steps from 1e-3 to 10, one row for all prompts or one each."""
    batch, time = draw(st.integers(1, 3)), draw(LENGTHS)
    channels, d_h = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    generator = make_generator("s6", seed=draw(st.integers(0, 2**20)))

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    A = -torch.exp(normal(1 if draw(st.booleans()) else d_h))
    rows = draw(st.sampled_from([1, batch]))
    Delta = 10 ** (4 * torch.rand(rows, time, generator=generator, dtype=torch.float64) - 3)
    return normal(batch, time, channels), A, normal(batch, time, d_h), normal(batch, time, d_h), Delta


def forms(arguments, size):
    found = [s6.scan_chunked(*arguments), s6.scan_chunked(*arguments, size=size)]
    return [*found, s6.dual(*arguments)] if arguments[1].shape == (1,) else found


@given(inputs(), st.integers(1, 50))
def test_forms_agree(arguments, size):
    """`chunked`, at its own size and at any other, and for one rate `dual`, give what `scan` gives.

    Tolerance: rounding, see the file's head.
    """
    u, A, B, C, Delta = arguments
    expected = s6.scan(*arguments)
    limit = ROUNDING * s6.scan(u.abs(), A, B.abs(), C.abs(), Delta)
    for found in forms(arguments, size):
        assert ((found - expected).abs() <= limit).all()


def gradients(form, arguments, seen):
    leaves = [a.clone().requires_grad_() for a in arguments]
    return torch.autograd.grad((form(*leaves) * seen).sum(), leaves)


@settings(max_examples=20)
@given(inputs(), st.integers(1, 50))
def test_gradients_agree(arguments, size):
    """The forms agree in the gradients of all five arguments too. Tolerance: see the file's head."""
    u, A, B, C, Delta = arguments
    seen = torch.randn(u.shape, generator=make_generator("seen"), dtype=torch.float64)
    expected = gradients(s6.scan, arguments, seen)
    limits = gradients(s6.scan, (u.abs(), A, B.abs(), C.abs(), Delta), seen.abs())
    several = [s6.scan_chunked, lambda *a: s6.scan_chunked(*a, size=size)]
    for form in [*several, s6.dual] if A.shape == (1,) else several:
        for got, want, limit in zip(gradients(form, arguments, seen), expected, limits, strict=True):
            assert torch.isfinite(got).all()
            assert (got - want).abs().max() <= 1e-9 * max(want.abs().max(), limit.abs().max())


@given(inputs(), st.data())
def test_the_future_never_changes_the_past(arguments, data):
    """Replacing every token after time t, steps included, leaves outputs up to t as they were, bit for bit."""
    u, A, B, C, Delta = (a.clone() for a in arguments)
    t = data.draw(st.integers(1, u.shape[1]))
    for a in (u, B, C):
        a[:, t:] = 100 * torch.randn(a[:, t:].shape, generator=make_generator("another future"), dtype=a.dtype)
    Delta[:, t:] = 3.0
    for before, after in zip(forms(arguments, 7), forms((u, A, B, C, Delta), 7), strict=True):
        assert torch.equal(before[:, :t], after[:, :t])


@given(inputs(), st.data())
def test_prompts_and_channels_are_independent(arguments, data):
    """Replacing one prompt leaves the others as they were; replacing a channel of u in `scan` leaves the other
    channels. To rounding: the width of a product may change the order of its sums.
    """
    u, A, B, C, Delta = arguments
    row = data.draw(st.integers(0, len(u) - 1))
    channel = data.draw(st.integers(0, u.shape[2] - 1))
    limit = ROUNDING * s6.scan(u.abs(), A, B.abs(), C.abs(), Delta)
    other_row, other_channel = u.clone(), u.clone()
    other_row[row] = 0.5
    other_channel[:, :, channel] = 0.5
    keep = torch.arange(len(u)) != row
    kept = torch.arange(u.shape[2]) != channel
    for before, rows, channels in zip(
        forms(arguments, 5),
        forms((other_row, A, B, C, Delta), 5),
        forms((other_channel, A, B, C, Delta), 5),
        strict=True,
    ):
        assert ((before - rows).abs() <= limit)[keep].all()
        assert ((before - channels).abs() <= limit)[..., kept].all()


@pytest.mark.parametrize("size", [1, 5, 16, 40])
def test_blocks_are_as_long_as_asked_for(size, monkeypatch):
    """With one rate, too, `chunked` works in blocks of the size it is given, 16 by default."""
    asked = []
    inner = operators.chunked
    monkeypatch.setattr(
        operators, "chunked", lambda *a, size: (asked.append(size), inner(*a, size=size))[1], raising=True
    )
    u = torch.ones(1, 20, 2, dtype=torch.float64)
    arguments = (u, -torch.ones(1, dtype=torch.float64), u, u, torch.ones(1, 20, dtype=torch.float64))
    s6.scan_chunked(*arguments, size=size)
    s6.scan_chunked(*arguments)
    assert asked == [size, 16]


@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 20), st.floats(0.01, 3), st.floats(-3, -0.1), st.data())
def test_what_collapses_is_the_layer(d, d_h, N, Delta, A, data):
    """`collapsed` and `read` give what the layer gives, biases included, whatever the sizes, step and rate.

    Tolerance 1e-9 of the largest output.
    """
    generator = make_generator("collapse", seed=data.draw(st.integers(0, 2**20)))
    layer = S6(Selective(d + 1, d_h), Selective(d + 1, d_h), FixedStep(Delta), torch.tensor([A], dtype=torch.float64))
    with torch.no_grad():
        for part in (layer.B, layer.C):
            part.W.copy_(torch.randn(part.W.shape, generator=generator, dtype=torch.float64))
            part.b.copy_(torch.randn(part.b.shape, generator=generator, dtype=torch.float64))
    prompt = StationaryRegression(d, N).sample(3, generator=generator, dtype=torch.float64)
    u = prompt.tokens()
    whole = layer(u)
    limit = 1e-9 * whole.abs().max()
    assert (s6.collapsed(layer, u, s6.s6_features(u, layer)) - whole).abs().max() <= limit
    assert (s6.read_out(layer, s6.statistics(prompt, layer)) - layer.predictions(prompt)).abs().max() <= limit


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_layers_keep_their_dtype(dtype):
    """With a static part and several rates, and as assumed."""
    u = torch.ones(2, 20, 3, dtype=dtype)
    layer = S6(
        Static(4, dtype=dtype), Selective(3, 4, dtype=dtype), Step(3, 0.1, dtype=dtype), -torch.ones(4, dtype=dtype)
    )
    assert layer(u).dtype == dtype
    assert s6.assumed(2, 3, 4, generator=make_generator("x"), dtype=dtype)(u).dtype == dtype


# Bad input


@pytest.mark.parametrize(("A", "Delta"), [(1.0, 0.1), (0.0, 0.1), (-np.nan, 0.1), (-1.0, -0.1), (-1.0, np.inf)])
def test_a_hold_needs_a_decay(A, Delta):
    """Zero-order hold refuses rates that do not decay and steps back."""
    with pytest.raises(ValueError, match="must be finite and"):
        s6.zero_order_hold(torch.tensor([A]), torch.tensor([[Delta]]))
