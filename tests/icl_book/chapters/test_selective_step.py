"""Exact risk of an S6 layer with a selective step: a fixed step, quadrature, drawn prompts, the least risk."""

import functools
import math
from dataclasses import replace

import chance
import numpy as np
import pytest
import torch

from icl.models.s6 import S6, Selective, Static, Step
from icl.profile import make_generator
from icl.theory import s6
from icl_book.chapters import selective_step
from icl_book.chapters.selective_step import StepGate

D, N = 4, 20
HALVES = [(True, True), (True, False), (False, True), (False, False)]
#: A layer with a static C that gains, in three digits: slope and b of its step, and C'W_B, C'b_B along the slope.
KNOWN = {"slope": 1.672, "b": 2.826, "write": (-0.70, 0.13)}


@functools.cache
def best(B, C):
    """The gate of least risk at d = 4 and N = 20: a search of seconds, which several tests look at."""
    return selective_step.best_gate(D, N, selects_B=B, selects_C=C)


def known_layer():
    """The layer of :data:`KNOWN`, with a state of one number."""
    layer = S6(Selective(D + 1, 1), Static(1), Step(D + 1, 1.0), -torch.ones(1, dtype=torch.float64))
    with torch.no_grad():
        layer.step.w[0], layer.B.W[0, 0] = KNOWN["slope"], KNOWN["write"][0]
        layer.step.b.fill_(KNOWN["b"])
        layer.B.b.fill_(KNOWN["write"][1])
        layer.C.b.fill_(1.0)
    return layer


@pytest.mark.parametrize(("d", "n"), [(1, 1), (4, 20), (7, 3)])
def test_a_fixed_step_has_the_known_risk(d, n):
    """With slope 0 the whole layer has the least risk of theory.s6, with one half static that of the zero predictor."""
    for Delta in (0.01, math.log(2) / n, 3.0):
        b = math.log(math.expm1(Delta))
        whole = StepGate(d, n, True, True, 0.0, b)
        assert whole.risk == pytest.approx(s6.least_loss(d, n, math.exp(-Delta)), rel=1e-12)
        for B, C in HALVES[1:]:
            assert abs(replace(whole, selects_B=B, selects_C=C).gain) < 1e-12


def quadrature(along, across=4):
    """Prompts of two examples in two dimensions, w = +-e_1 and +-e_2, with weights: (tokens, labels, weights).

    The error is a quadratic form in w, and of degree at most 4 in each input's second coordinate.
    """
    (z, by), (x, bx) = (np.polynomial.hermite_e.hermegauss(k) for k in (along, across))
    grid = np.meshgrid(z, z, z, x, x, x, indexing="ij")
    weight = np.prod(np.meshgrid(by, by, by, bx, bx, bx, indexing="ij"), axis=0).ravel()
    inputs = np.stack([np.stack([grid[k].ravel(), grid[k + 3].ravel()], 1) for k in range(3)], 1)
    tokens, labels = [], []
    for sign, coordinate in ((1, 0), (-1, 0), (1, 1), (-1, 1)):
        y = sign * inputs[:, :, coordinate]
        labels.append(y[:, -1].copy())
        y[:, -1] = 0
        tokens.append(np.concatenate([inputs, y[:, :, None]], axis=2))
    weight = np.tile(weight / (2 * weight.sum()), 4)  # E w w' = I
    return (torch.as_tensor(each) for each in (np.concatenate(tokens), np.concatenate(labels), weight))


@pytest.mark.parametrize(("B", "C"), HALVES)
def test_risk_is_the_layers_by_quadrature_and_the_least(B, C):
    """To 1e-5 the risk of `layer` over all prompts of two examples, where its gradient in every weight of B, C is 0.

    The weights of labels are among them: there, too, the layer is at rest.
    """
    gate = StepGate(2, 2, B, C, 0.8, 0.4)
    layer, (tokens, labels, weight) = gate.layer(), quadrature(14, across=3)
    risk = ((layer(tokens)[:, -1, -1] - labels).square() / 2) @ weight
    risk.backward()
    assert risk.item() == pytest.approx(gate.risk, abs=1e-5)
    for part in (layer.B, layer.C):
        for p in part.parameters():
            assert p.grad.abs().max() < 1e-4
    assert abs(layer.step.w.grad[-1]) < 1e-4


@pytest.mark.statistical(1)
@pytest.mark.parametrize(("B", "C"), HALVES)
def test_gain_is_that_on_drawn_prompts(B, C):
    """Paired gains of the best layers at d = 4, N = 20 on 40,000 prompts; their skewness is at most 5."""
    gate = best(B, C)
    drawn = make_generator(f"selective step, test {B} {C}")
    mean, se = selective_step.paired_gain(gate.layer(), 40_000, d=D, N=N, generator=drawn)
    chance.assert_z((mean - gate.gain) / se, skewed=0.03)
    assert 8 * se < gate.gain


@pytest.mark.parametrize(
    ("B", "C", "gain", "b"),
    [(True, False, 0.04346, 2.66), (False, True, 0.28462, -3.37), (False, False, 0.03305, -1.48)],
)
def test_best_gate_beside_a_static_half(B, C, gain, b):
    """Every half static, a selective step gains, at d = 4 and N = 20; beside a static C with a memory of one token.

    A grid of 41 x 41 steps finds none better, and every one is within the bound.
    """
    found = best(B, C)
    assert found.gain == pytest.approx(gain, abs=1e-5)
    assert found.b == pytest.approx(b, abs=0.01)
    grid = [replace(found, slope=slope, b=at) for slope in np.linspace(0, 8, 41) for at in np.linspace(-10, 10, 41)]
    assert max(each.gain for each in grid) <= found.gain + 1e-12
    assert found.risk > selective_step.lower_bound(D, selects_C=C)


def test_without_static_halves_the_best_step_forgets_nothing():
    """The risk is that of equal weights: d/2 (1 - N / (N + d + 1)), 0.4 at d = 4 and N = 20."""
    assert best(True, True).risk == pytest.approx(D / 2 * (1 - N / (N + D + 1)), abs=1e-7)


@pytest.mark.statistical(1)
def test_a_known_layer_with_a_static_C_gains():
    """0.0429 at these three-digit weights, on 50,000 prompts compared one by one."""
    mean, se = selective_step.paired_gain(known_layer(), 50_000, d=D, N=N, generator=make_generator("known static C"))
    gate = StepGate(D, N, True, False, KNOWN["slope"], KNOWN["b"])
    (_, r), F, s, M, _ = gate._moments()
    write = np.array(KNOWN["write"])
    exact = float(r * s @ write - F[1, 1] * write @ M @ write / 2)
    assert exact == pytest.approx(0.0429, abs=1e-4)
    assert exact < gate.gain
    chance.assert_z((mean - exact) / se, skewed=0.03)
    assert mean > 8 * se


def test_the_bound_is_approached():
    """As N grows, d = 1: a static B gets near (d - 1) / 2 = 0 no nearer than the bound, a static C stays above 1/4."""
    for C in (True, False):
        risks = [selective_step.best_gate(1, n, selects_B=not C, selects_C=C).risk for n in (5, 50)]
        assert risks[1] < risks[0]
        assert risks[1] > selective_step.lower_bound(1, selects_C=C)


def test_bad_input():
    """Sizes below 1, and a bias that is not finite, are rejected by name."""
    with pytest.raises(ValueError, match="N must"):
        StepGate(4, 0, True, True, 0.0, 0.0)
    with pytest.raises(ValueError, match="b must"):
        StepGate(4, 1, True, True, 0.0, math.nan)
    with pytest.raises(ValueError, match="d must"):
        selective_step.lower_bound(0, selects_C=True)


def test_the_best_gate_has_one_sign(monkeypatch):
    """Starts of the other sign end at the same gate: z and -z are alike, and a layer is one of the two."""
    found = best(False, True)
    assert found.slope > 0
    monkeypatch.setattr(selective_step, "STARTS", tuple((-slope, b) for slope, b in selective_step.STARTS))
    again = selective_step.best_gate(D, N, selects_B=False, selects_C=True)
    assert (again.slope, again.b) == pytest.approx((found.slope, found.b), rel=1e-4)
