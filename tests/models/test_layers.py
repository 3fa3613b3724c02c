"""The layers of `icl.models.layers` against filters, operators and loops that compute the same elsewhere.

Everything is in float64. Values are products and sums over at most 40 tokens, so that 1e-12 of the largest covers the
rounding of a layer without a matrix to solve for; the others have their own bound, stated where it is used.
"""

import math

import numpy as np
import pytest
import torch
from torch import nn

from icl import filters
from icl.models import operators, s6
from icl.models.counting import cost
from icl.models.estimating import LFOM, DeltaRule, GatedDelta, Kalman, Longhorn, Mesa, UnitKeys
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
    Weights,
    retention,
)
from icl.models.memformer import Fixed, Memformer, OneRegister
from icl.profile import streams
from icl.runs.judging import one_step_ahead
from icl.runs.training import AdamW, Config, fit
from icl.tasks import DriftingRegression, Prompt
from icl.theory import one_layer as theory
from icl.theory import polynomial_floor

F64 = {"dtype": torch.float64}
ROUNDING = 1e-12
D = 4


def data(d=D, time=40, batch=6, dtype=torch.float64):
    generator = streams("fast weights", seed=d)
    x = torch.randn(batch, time, d, generator=generator, dtype=dtype)
    return x, torch.randn(batch, time, generator=generator, dtype=dtype)


def answers(layer, x, y):
    with torch.no_grad():
        return y - layer.errors(x, y)


def close(got, expected, rounding=ROUNDING):
    return got.shape == expected.shape and bool((got - expected).abs().max() <= rounding * expected.abs().max())


def stirred(layer, size=0.4):
    """The layer with noise on every parameter, so that none has a value that hides it."""
    generator = streams("stir")
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator, **F64)
    return layer


def mixed(gate):
    """A gate with coefficients that are not 0."""
    return stirred(gate, 0.3)


DRIFT = DriftingRegression(d=D, n=39, gamma=0.93, sigma_e=0.2)
PEERS = {
    "GLA": (GLA(D, lam=0.9, mu=0.11, **F64), filters.gla(0.11 * np.eye(D), lam=0.9), ROUNDING),
    "GLA, a setting a channel": (
        GLA(D, lam=[0.9] * D, mu=[0.1, 0.2, 0.3, 0.4], **F64),
        filters.gla(np.diag([0.1, 0.2, 0.3, 0.4]), lam=0.9),
        ROUNDING,
    ),
    "delta rule": (DeltaRule(D, lam=0.95, mu=0.12, **F64), filters.delta_rule(0.12, lam=0.95), ROUNDING),
    "delta rule, unit keys": (
        UnitKeys(DeltaRule(D, lam=0.95, mu=0.7, **F64)),
        filters.normalised_delta_rule(0.7, lam=0.95, eps=0),
        ROUNDING,
    ),
    "gated delta rule, no gates": (
        GatedDelta(D, Gate(), Gate(), lam=0.95, beta=0.7, **F64),
        filters.normalised_delta_rule(0.7, lam=0.95, eps=0),
        ROUNDING,
    ),
    "Longhorn": (Longhorn(D, lam=0.95, eps=0.3, **F64), filters.normalised_delta_rule(1.0, lam=0.95, eps=0.3), 1e-12),
    # Two ways of solving systems whose condition number, at most trace / eps, stays below 1e3 here.
    "Mesa": (Mesa(D, lam=0.9, eps=0.2, **F64), filters.faded_ridge(0.9, eps=0.2), 1e-12),
    # The filter updates P in Joseph's form.
    "Kalman": (
        Kalman(D, gamma=0.93, sigma_e=0.2, sigma_y=0.3, P_0=0.93**2 + 0.2**2, **F64),
        filters.kalman(DRIFT, sigma_y=0.3),
        1e-12,
    ),
}


@pytest.mark.parametrize("name", PEERS)
def test_layers_equal_their_filters(name):
    """A layer with the settings of a filter of `icl.filters` gives its predictions, at every position."""
    layer, peer, rounding = PEERS[name]
    x, y = data()
    assert close(answers(layer, x, y), filters.run_filter(peer, x, y), rounding)


def test_gla_is_the_field_s_operator():
    """GLA's answers are linear attention with keys and queries x, values mu y and decay lam, less what a token says
    about itself; with decay 1 they are linear attention's.
    """
    x, y = data()
    key, value = x.unsqueeze(2), (0.3 * y)[..., None, None]
    own = value[:, :, 0, 0] * x.square().sum(-1)
    for layer, lam in ((GLA(D, lam=0.8, mu=0.3, **F64), 0.8), (LinearAttention(D, mu=0.3, **F64), 1.0)):
        read = operators.recurrent(key, key, value, torch.full((1, 1, 1), lam, **F64))[:, :, 0, 0]
        assert close(answers(layer, x, y), read - own)


def test_decay_a_channel_is_gla_a_channel():
    """With a decay and a write strength for each coordinate, the answer is the sum of one-dimensional GLA layers'
    estimates times x.
    """
    x, y = data()
    lam, mu = [0.5, 0.7, 0.9, 0.99], [0.1, 0.2, 0.3, 0.4]
    got = answers(GLA(D, lam=lam, mu=mu, **F64), x, y)
    parts = [
        answers(GLA(1, lam=a, mu=b, **F64), x[..., j : j + 1], y) for j, (a, b) in enumerate(zip(lam, mu, strict=True))
    ]
    assert close(got, sum(parts))


def test_the_gated_delta_rule_is_the_field_s_operator():
    """GatedDelta's answers are `delta.recurrent` on keys and queries x / |x| and values y / |x|, its gates given."""
    x, y = data()
    layer = stirred(GatedDelta(D, LinearGate(D, **F64), LengthGate(D, **F64), lam=0.9, beta=0.8, **F64))
    length = x.square().sum(-1).sqrt()
    with torch.no_grad():
        gates = [torch.stack([g(a, b) for a, b in zip(x, y, strict=True)]) for g in (layer.lam, layer.beta)]
    key = (x / length.unsqueeze(-1)).unsqueeze(2)
    read = operators.delta_recurrent(key, key, (y / length)[..., None, None], *(g.unsqueeze(-1) for g in gates))
    assert gates[0].std() > 0.01
    assert gates[1].std() > 0.01
    assert close(answers(layer, x, y), length * read[:, :, 0, 0])


def test_gated_gla_is_the_field_s_operator():
    """GatedGLA's answers are linear attention with a decay and a value strength for each token, where a token's decay
    acts after its own write: the next token's decay in the operator.
    """
    x, y = data()
    layer = stirred(GatedGLA(D, LinearGate(D, **F64), LengthGate(D, **F64), lam=0.9, mu=0.2, **F64))
    with torch.no_grad():
        lam, mu = (torch.stack([g(a, b) for a, b in zip(x, y, strict=True)]) for g in (layer.lam, layer.mu))
    decay = torch.cat([torch.ones_like(lam[:, :1]), lam[:, :-1]], dim=1).unsqueeze(-1)
    key, value = x.unsqueeze(2), (mu * y)[..., None, None]
    read = operators.recurrent(key, key, value, decay)[:, :, 0, 0]
    assert close(answers(layer, x, y), read - mu * y * x.square().sum(-1))


def test_retnet_is_a_sum_of_gla_layers():
    """RetNet's answer is the sum over its heads of GLA layers with its decays and mu = c_h, also where c_h < 0; its
    own decays are the paper's.
    """
    assert np.allclose(retention(3), [1 - 1 / 32, 1 - 1 / 64, 1 - 1 / 128], rtol=1e-15)
    x, y = data()
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
    x, y = (part[:, 0].numpy() for part in data())
    linear, length = mixed(LinearGate(D, **F64)), LengthGate(D, **F64)
    with torch.no_grad():
        length.c.fill_(-0.8)
        w, c = linear.w.detach().numpy(), -0.8
        one = np.array([sum(w[j] * row[j] for j in range(D)) + w[D] * label for row, label in zip(x, y, strict=True)])
        two = c * np.log(1 + (x**2).sum(1) / D)
        inputs = torch.as_tensor(x), torch.as_tensor(y)
        free = GatedGLA(D, linear, length, lam=0.8, mu=0.3, **F64)
        rule = GatedDelta(D, length, linear, lam=0.8, beta=0.3, **F64)
        held = Mamba2(D, linear, A=1.0, Delta=0.2, mu=1.0, **F64)
        for got, expected in (
            (linear(*inputs), one),
            (length(*inputs), two),
            (free.lam(*inputs), 1 / (1 + (0.2 / 0.8) * np.exp(-one))),
            (free.mu(*inputs), 0.3 * np.exp(two)),
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
        step.w.copy_(0.2 * torch.randn(d + 1, generator=streams("step"), **F64))
    return kind(*parts, step, torch.tensor([-0.7], **F64))


def as_mamba2(d, scale, layer):
    gate = LinearGate(d, **F64)
    mine = Mamba2(d, gate, A=0.7, Delta=0.3, mu=scale, **F64)
    with torch.no_grad():
        gate.w.copy_(layer.step.w)
    return mine


def test_mamba_2_is_s6_with_euler_s_rule():
    """With W_B and W_C that pick x, one rate and a step that looks at the token, the last channel of an S6 layer at the
    last token is Mamba-2's answer to the query, if S6 writes Delta B; at every length of the prompt.
    """
    layer = selecting(D, 0.4, Euler)
    mine = as_mamba2(D, 0.4, layer)
    x, y = data()
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
    x, y = data()
    prompt = Prompt(x, y, torch.zeros_like(x))
    with torch.no_grad():
        assert close(mine(prompt), layer.predictions(prompt))


def test_longhorn_takes_the_proximal_step():
    """What Longhorn writes before it fades is the least of |v - w|^2 + (y - v'x)^2 / eps: the gradient of that is 0."""
    layer = Longhorn(D, lam=0.8, eps=0.3, **F64)
    x, y = data()
    state = Weights(x[:, 3])
    with torch.no_grad():
        v = layer.step(state, x[:, 0], y[:, 0]).w_hat / layer.lam
    gradient = (v - state.w_hat) - x[:, 0] * ((y[:, 0] - (v * x[:, 0]).sum(-1)) / 0.3).unsqueeze(-1)
    assert gradient.abs().max() < 1e-11


def test_mesa_is_the_least_of_its_objective():
    """Mesa's answer is c v'x for the v at which the gradient of sum_i lam^(n+1-i) (y_i - v'x_i)^2 + eps v'v is 0."""
    layer = Mesa(D, lam=0.8, eps=0.3, **F64)
    with torch.no_grad():
        layer.c.fill_(0.7)
    x, y = data()
    ages = 0.8 ** torch.arange(39, 0, -1, **F64)
    X, Y = x[:, :-1] * ages.sqrt()[:, None], y[:, :-1] * ages.sqrt()
    rows = torch.cat([X, math.sqrt(0.3) * torch.eye(D, **F64).expand(len(x), D, D)], dim=1)
    v = torch.linalg.lstsq(rows, torch.cat([Y, torch.zeros(len(x), D, **F64)], dim=1).unsqueeze(-1)).solution
    assert close(answers(layer, x, y)[:, -1], 0.7 * (v.squeeze(-1) * x[:, -1]).sum(-1), 1e-11)


@pytest.mark.parametrize("layers", [1, 2, 3, 5])
def test_a_first_order_method_is_a_memformer(layers):
    """With the coefficients of the best polynomial, LFOM predicts what a Memformer of so many layers does whose one
    register has the best numbers, at the length that they are best for and at others.

    A polynomial with alternating signs, summed in powers there and in steps here: 1e-11 of the largest.
    """
    n = 12
    alpha, gamma = polynomial_floor.optimal_registers(D, n, layers)
    memory = OneRegister(layers)
    with torch.no_grad():
        memory.alpha.copy_(torch.as_tensor(alpha))
        memory.gamma.copy_(torch.as_tensor(gamma[1:]))
    peer = Memformer(Fixed(torch.eye(D, **F64).repeat(layers, 1, 1)), memory)
    layer = LFOM(D, c=-polynomial_floor.optimal_polynomial(D, n, layers)[1:], **F64)
    x, y = data()
    for examples in (1, 5, n, 39):
        prompt = Prompt(x[:, : examples + 1], y[:, : examples + 1], torch.zeros_like(x[:, : examples + 1]))
        with torch.no_grad():
            assert close(layer(prompt), peer(prompt), 1e-11), examples


def test_a_first_order_method_is_its_sum_of_powers():
    """LFOM answers x' sum_k c_k H^k b, H and b means over the examples so far; before the first, 0."""
    c = (0.7, -0.4, 0.2)
    x, y = data()
    got = answers(LFOM(D, c=c, **F64), x, y)
    assert bool((got[:, 0] == 0).all())
    for n in (1, 2, 17, 39):
        H, b = x[:, :n].mT @ x[:, :n] / n, (x[:, :n] * y[:, :n, None]).mean(1).unsqueeze(-1)
        w = sum(weight * torch.linalg.matrix_power(H, k) @ b for k, weight in enumerate(c)).squeeze(-1)
        assert close(got[:, n], (w * x[:, n]).sum(-1)), n


def test_the_caller_s_coefficients_stay_as_they_are():
    """Training changes no number but the layer's own: not the array that c came from, nor another layer's from it."""
    c = np.array([0.5, -0.1])
    one, other = LFOM(D, c=c, **F64), LFOM(D, c=c, **F64)
    x, y = data()
    one.errors(x, y).square().mean().backward()
    torch.optim.SGD(one.parameters(), lr=0.1).step()
    assert c.tolist() == other.c.tolist() == [0.5, -0.1]
    assert bool((one.c != other.c).all())


def test_normalised_keys_keep_the_labels_true():
    """UnitKeys(GLA) writes mu y x / x'x, and an input of length 0 is answered 0 and teaches nothing."""
    x, y = data()
    x[:, 7] = 0
    layer = UnitKeys(GLA(D, lam=0.8, mu=0.3, **F64))
    w_hat, expected = torch.zeros(len(x), D, **F64), []
    for xt, yt in zip(x.unbind(1), y.unbind(1), strict=True):
        expected.append((w_hat * xt).sum(-1))
        power = xt.square().sum(-1, keepdim=True).clamp(min=1e-300)
        w_hat = 0.8 * (w_hat + 0.3 * yt.unsqueeze(-1) * xt / power)
    assert close(answers(layer, x, y), torch.stack(expected, dim=1))


EVERY = {
    "linear attention": lambda d: LinearAttention(d, mu=0.1, **F64),
    "GLA": lambda d: GLA(d, lam=0.9, mu=0.1, **F64),
    "GLA by channel": lambda d: GLA(d, lam=[0.9] * d, mu=[0.1] * d, **F64),
    "RetNet": lambda d: RetNet(d, lam=retention(3), mu=0.1, **F64),
    "Mamba-2": lambda d: Mamba2(d, mixed(LinearGate(d, **F64)), A=1.0, Delta=0.1, mu=1.0, **F64),
    "gated GLA": lambda d: GatedGLA(
        d, mixed(LengthGate(d, **F64)), mixed(LinearGate(d, **F64)), lam=0.9, mu=0.1, **F64
    ),
    "delta rule": lambda d: DeltaRule(d, lam=0.9, mu=0.1, **F64),
    "delta rule by channel": lambda d: DeltaRule(d, lam=[0.9] * d, mu=[0.1] * d, **F64),
    "gated delta rule": lambda d: GatedDelta(
        d, mixed(LinearGate(d, **F64)), mixed(LengthGate(d, **F64)), lam=0.9, beta=0.8, **F64
    ),
    "Longhorn": lambda d: Longhorn(d, lam=0.9, eps=0.5, **F64),
    "LFOM": lambda d: LFOM(d, c=[0.7, -0.4, 0.2], **F64),
    "Mesa": lambda d: Mesa(d, lam=0.9, eps=0.5, **F64),
    "Kalman": lambda d: Kalman(d, gamma=0.95, sigma_e=0.1, sigma_y=0.3, P_0=1.0, **F64),
    "unit keys": lambda d: UnitKeys(DeltaRule(d, lam=0.9, mu=0.8, **F64)),
}


@pytest.mark.parametrize("name", EVERY)
def test_gradients_are_those_of_differences(name):
    """The gradient of a layer's loss, in each of its parameters, is what finite differences give (`gradcheck`)."""
    layer = EVERY[name](2)
    x, y = data(d=2, time=5, batch=2)
    names, values = zip(*layer.named_parameters(), strict=True)

    def loss(*parameters):
        return torch.func.functional_call(
            _Errors(layer), dict(zip(["layer." + n for n in names], parameters, strict=True)), (x, y)
        )

    assert torch.autograd.gradcheck(loss, tuple(v.detach().requires_grad_() for v in values), eps=1e-6, atol=1e-7)


class _Errors(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, y):
        return self.layer.errors(x, y)


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
    "unit keys": (2, d, 2 * (DOT + 1 + d) + 2 + 2 * DOT + 2 + 3 * d),
}


@pytest.mark.parametrize("name", HAND)
def test_costs_are_those_counted_by_hand(name):
    """Parameters, numbers in the state and operations a token at d = 10, against counts made on paper."""
    counted = cost(EVERY[name](d))
    assert (counted.parameters, counted.state, counted.flops) == HAND[name]


def test_elimination_costs_what_a_loop_over_it_says():
    """The rule for a linear system is the number of divisions, products and differences in elimination without pivots
    and two triangular solves, counted one by one.
    """
    for n in range(1, 9):
        count = 0
        for k in range(n):
            count += n - 1 - k  # factors of the rows below
            count += 2 * (n - 1 - k) ** 2  # those rows
        for k in range(n):
            count += 2 * k  # forward, the diagonal being 1
            count += 2 * k + 1  # backward
        bare, solving = cost(_Bare(n)).flops, cost(_Solving(n)).flops
        assert solving - bare == count


PRODUCTS = {
    "mm": lambda x, M: x @ M,
    "mm, the prompts on the right": lambda x, M: M.T @ x.T,
    "bmm": lambda x, M: torch.bmm(x.unsqueeze(1), M.repeat(len(x), 1, 1)),
    "bmm, the prompts on the right": lambda x, M: torch.bmm(M.T.repeat(len(x), 1, 1), x.unsqueeze(2)),
    "tokens of three axes": lambda x, M: x.unsqueeze(1) @ M,
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_of_matrices_costs_what_a_loop_over_it_says(name):
    """The rule for products of matrices is the number of products and sums, counted one by one, on either side."""
    for n in range(1, 5):
        for columns in range(1, 5):
            count = 0
            for _ in range(columns):
                count += n  # products
                count += n - 1  # sums
            assert cost(_Multiplying(n, columns, PRODUCTS[name])).flops - cost(_Bare(n)).flops == count


def test_a_product_with_a_vector_costs_what_a_loop_over_it_says():
    """The same for a matrix, a row a prompt, times one vector."""
    for n in range(1, 9):
        assert cost(_Multiplying(n, 1, lambda x, M: x @ M[:, 0])).flops - cost(_Bare(n)).flops == n + (n - 1)


class _Bare(FastWeights[Weights]):
    """A layer that answers with a product and learns nothing."""

    def __init__(self, d):
        super().__init__(d)
        self.one = nn.Parameter(torch.ones((), **F64))

    def _start(self, w_hat):
        return Weights(w_hat)

    def _write(self, state, x, y):
        return state

    def _read(self, state, x):
        return (state.w_hat * x).sum(-1)


class _Solving(_Bare):
    """The same with a linear system in between."""

    def __init__(self, d):
        super().__init__(d)
        self.register_buffer("system", torch.eye(d, **F64))

    def _read(self, state, x):
        return (torch.linalg.solve(self.system.repeat(len(x), 1, 1), state.w_hat) * x).sum(-1)


class _Multiplying(_Bare):
    """The same after a product of the inputs with a fixed matrix, which no one looks at."""

    def __init__(self, d, columns, product):
        super().__init__(d)
        self.register_buffer("matrix", torch.ones(d, columns, **F64))
        self.product = product

    def _read(self, state, x):
        self.product(x, self.matrix)
        return super()._read(state, x)


class _Unheard(_Bare):
    """The same with an operation that no layer uses."""

    def _read(self, state, x):
        return (state.w_hat * torch.special.bessel_j0(x)).sum(-1)


def test_an_operation_without_a_rule_is_refused_by_name():
    """An operation that the count does not know is no free operation."""
    with pytest.raises(NotImplementedError, match="cost has no rule for the operation special_bessel_j0"):
        cost(_Unheard(3))


@pytest.mark.usefixtures("as_installed")
def test_training_finds_the_best_forgetting_factor():
    """Trained on prompts of 30 examples by the loss at the query, GLA ends at the theory's lam* and mu.

    lam is within .02 and the layer's exact risk within 1e-3 (relative) of the least: 250 steps of 128 prompts from
    lam = .7 and mu = .02, where the risk is more than a tenth above the least.
    """
    task = DriftingRegression(d=3, n=30, gamma=0.95, sigma_e=0.3)
    layer = GLA(3, lam=0.7, mu=0.02, **F64)
    recipe = Config(250, 128, AdamW(lr=5e-2, weight_decay=0.0, beta2=0.99), anneal_to=0.0)
    fit(layer, lambda model, prompt: model.loss(prompt, since=30), task, recipe, generator=streams("fit GLA"))
    lam, mu = layer.lam.item(), layer.mu.item()
    best = theory.optimal_forgetting(task)
    risk = theory.layer_risk(mu * np.eye(3), task, lam=lam)
    least = theory.layer_risk(theory.optimum(task, lam=best).A, task, lam=best)
    assert theory.layer_risk(0.02 * np.eye(3), task, lam=0.7) / least > 1.1
    assert abs(lam - best) < 0.02
    assert risk / least - 1 < 1e-3


@pytest.mark.usefixtures("as_installed")
def test_training_leaves_the_truth_where_it_is():
    """At the drift's own law the Kalman layer's gradient, over 2000 prompts, is 0 within 4 standard errors, in gamma
    and in the share of noise; off it, at gamma - .1, it is not.

    sigma_e, sigma_y and P_0 have a direction in which they do nothing to the answers: the two deviations
    twice as large and the variance four times. In it the gradient is 0 up to rounding.
    """
    task = DriftingRegression(d=3, n=30, gamma=0.9, sigma_e=0.3, sigma_w=1.0)
    prompt = task.sample(2000, generator=streams("truth"), dtype=torch.float64)
    noise = 0.5 * torch.randn(prompt.y.shape, generator=streams("truth noise"), **F64)
    noisy = Prompt(prompt.x, prompt.y + noise, prompt.w)

    def z(gamma):
        layer = Kalman(3, gamma=gamma, sigma_e=0.3, sigma_y=0.5, P_0=0.9**2 + 0.3**2, **F64)
        gradients = []
        for part in zip(*(t.split(40) for t in (noisy.x, noisy.y, noisy.w)), strict=True):
            layer.zero_grad()
            layer.loss(Prompt(*part)).backward()
            gradients.append([p.grad.item() for p in (layer.log_gamma, layer.log_sigma_e, layer.log_sigma_y)])
            assert abs(sum(gradients[-1][1:]) + 2 * layer.log_P_0.grad.item()) < 1e-10
        gradients = np.array(gradients)
        return gradients.mean(0) / (gradients.std(0, ddof=1) / math.sqrt(len(gradients)))

    assert np.abs(z(0.9)).max() < 4
    assert abs(z(0.8)[0]) > 8


def test_layers_are_predictors():
    """`runs.judging.one_step_ahead` reads a layer as it reads the filter that it is."""
    prompt = DRIFT.sample(5, generator=streams("as predictors"), dtype=torch.float64)
    layer, peer, _ = PEERS["delta rule"]
    assert close(one_step_ahead(layer, prompt), one_step_ahead(peer, prompt))
