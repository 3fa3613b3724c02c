"""The layers of `icl.models.fast_weights` against operators and loops that compute the same elsewhere.

Everything is in float64. Values are products and sums over at most 40 tokens, so that 1e-12 of the largest covers the
rounding of a layer without a matrix to solve for; the others have their own bound, stated where it is used.
"""

import functools
import math

import numpy as np
import pytest
import shared
import torch
from hypothesis import given
from hypothesis import strategies as st

from icl.experiments.training import AdamW, Config, fit
from icl.models import operators, s6
from icl.models.delta_layers import DeltaRule, GatedDelta, Kalman, Longhorn, Mesa
from icl.models.fast_weights import (
    GLA,
    Gate,
    LengthGate,
    LinearAttention,
    LinearGate,
    Mamba2,
    RetNet,
    retention,
)
from icl.profile import make_generator
from icl.tasks import DriftingRegression, Prompt
from icl.theory import one_layer as theory

F64 = {"dtype": torch.float64}
ROUNDING = 1e-12
D = 4


forty = functools.partial(shared.sequences, "fast weights", D, 40, 6, seed=D)


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
