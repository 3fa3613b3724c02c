"""Steady errors of linear layers against their second moments, carried step by step, and against closed forms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icl.theory import steady as fw
from icl.theory.steady import linear_layers as ll

LAWS = [fw.DriftLaw(10, 0.95, 0.1), fw.DriftLaw(3, 0.9, 0.2, 0.3)]


def error(layer, law, **kind):
    F = np.array([[law.gamma]])
    return ll.settled_error(layer, F, q=law.q, d=law.d, sigma_y=law.sigma_y, **kind)


@pytest.mark.parametrize("law", LAWS)
def test_layers_with_a_closed_form_have_it(law):
    """One head at its best fade is `best_gla`, the delta rule at its best is `best_delta`; rtol 1e-9."""
    gla, rule = fw.best_gla(law), fw.best_delta(law)
    np.testing.assert_allclose(error(ll.attention_heads(np.array([gla.lam])), law), gla.error, rtol=1e-9)
    np.testing.assert_allclose(error(ll.heavy_ball(rule.lam, rule.mu), law), rule.error, rtol=1e-9)
    if not law.sigma_y:
        unit = fw.best_unit_delta(law)
        np.testing.assert_allclose(error(ll.heavy_ball(unit.lam, 1 / law.d), law, unit=True), unit.error, rtol=1e-9)


def carried(layer, F, q, d, sigma_y, steps=600):
    """Second moments of weights and states from 0, one step after another, and the best read-out of the last."""
    r, K = len(F), len(layer.keep)
    A, C = np.zeros((2, r + K, r + K))
    A[:r, :r], A[r:, r:] = F, layer.keep
    C[r:, 0], C[r:, r:] = layer.write, layer.correct
    N = np.zeros((r + K, r + K))
    N[0, 0], N[r:, r:] = q, sigma_y**2 * np.outer(layer.write, layer.write)
    G = np.zeros((r + K, r + K))
    for _ in range(steps):
        G = A @ G @ A.T + A @ G @ C.T + C @ G @ A.T + (d + 2) * C @ G @ C.T + N
    return d * (G[0, 0] - G[0, r:] @ np.linalg.solve(G[r:, r:], G[r:, 0]))


@pytest.mark.parametrize("eta", [0.0, 0.3])
def test_the_heavy_ball_is_its_two_lines(eta):
    """In one dimension a step of the layer is m <- eta m + mu (y - w x) x, w <- keep (w + m). rtol 1e-12."""
    keep, mu, w, m, x, y = 0.85, 0.05, 0.7, -1.2, 1.3, 0.4
    layer = ll.heavy_ball(keep, mu, eta=eta)
    before = np.array([w, m])[: len(layer.keep)]
    m = eta * m + mu * (y - w * x) * x
    after = layer.keep @ before + layer.write * y * x + layer.correct @ before * x**2
    np.testing.assert_allclose(after, np.array([keep * (w + m), m])[: len(before)], rtol=1e-12)


SECOND = np.array([[1.5, -0.6], [1.0, 0.0]])
LAYERS = {
    "two heads": ll.attention_heads(np.array([0.6, 0.9])),
    "turning": ll.turning_head(0.8, 0.4),
    "delta": ll.heavy_ball(0.9, 0.05),
    "momentum": ll.heavy_ball(0.85, 0.05, eta=0.3),
    "forward model": ll.forward_model(SECOND, np.array([0.05, 0.03])),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("sigma_y", [0.0, 0.4])
def test_errors_are_those_carried_step_by_step(name, sigma_y):
    """On weights of second order, rtol 1e-8; planted: d + 1 in place of d + 2 is seen."""
    layer = LAYERS[name]
    found = ll.settled_error(layer, SECOND, q=0.02, d=6, sigma_y=sigma_y)
    np.testing.assert_allclose(found, carried(layer, SECOND, 0.02, 6, sigma_y), rtol=1e-8)
    assert abs(found / carried(layer, SECOND, 0.02, 5, sigma_y) - 1) > 1e-4


def test_heads_are_their_divided_differences():
    """The same error as of heads side by side, where fades are apart, rtol 1e-9; where they meet it is the limit, in
    which heads side by side are lost to rounding.
    """
    law = LAWS[0]

    def beside(fades):
        K = len(fades)
        return error(ll.LinearLayer(np.diag(fades), np.ones(K), np.zeros((K, K))), law)

    for fades in (np.array([0.5, 0.8]), np.array([0.9, 0.3, 0.7])):
        np.testing.assert_allclose(error(ll.attention_heads(fades), law), beside(fades), rtol=1e-9)
    together = error(ll.attention_heads(np.array([0.8, 0.8])), law)
    for gap in (1e-3, 1e-6, 1e-9):
        np.testing.assert_allclose(error(ll.attention_heads(np.array([0.8, 0.8 + gap])), law), together, rtol=10 * gap)


def test_a_turning_head_is_a_complex_fade():
    """Without an angle its second state stays 0 and it is one head."""
    law = LAWS[1]
    np.testing.assert_allclose(error(ll.turning_head(0.7, 0.0), law), error(ll.attention_heads(np.array([0.7])), law))


@pytest.mark.parametrize("law", LAWS)
def test_chunks_of_one_are_the_delta_rule(law):
    """For any settings, rtol 1e-9; longer chunks at the same settings err more."""
    for lam, mu in ((0.9, 0.05), (0.95, 0.02)):
        rule = error(ll.heavy_ball(lam, mu), law)
        np.testing.assert_allclose(ll.chunked_error(law, 1, lam=lam, mu=mu), rule, rtol=1e-9)
    best = fw.best_delta(law)
    errors = [ll.chunked_error(law, size, lam=best.lam, mu=best.mu) for size in (1, 4)]
    assert errors[0] < errors[1]


@given(st.floats(0.1, 0.98), st.floats(0.0, 0.1), st.floats(0.0, 0.6), st.sampled_from([0.0, 0.1, 0.5]))
def test_no_layer_is_better_than_the_bound(keep, mu, eta, sigma_y):
    """A linear layer settles no lower than `linear_bound` and, as its best read-out may be 0, no higher than answering
    0; or it does not settle.
    """
    law = fw.DriftLaw(4, 0.9, 0.2, sigma_y)
    found = error(ll.heavy_ball(keep, mu, eta=eta), law)
    assert np.isinf(found) or fw.linear_bound(law) * (1 - 1e-6) <= found <= law.zero_error * (1 + 1e-6)


def test_what_does_not_settle_has_no_error():
    law = LAWS[0]
    assert error(ll.attention_heads(np.array([1.0])), law) == np.inf
    assert error(ll.heavy_ball(0.99, 1.0), law) == np.inf
    assert ll.chunked_error(law, 4, lam=1.2, mu=0.1) == np.inf
