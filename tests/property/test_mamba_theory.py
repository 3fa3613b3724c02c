"""What the loss of the S6 layer cannot be changed by, and what it cannot fall below."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icl.theory import s6
from icl.theory.s6 import Coefficients, S6Weights

SIZES = {"d": st.integers(1, 5), "N": st.integers(1, 100), "d_h": st.integers(1, 7)}
ALPHA = st.one_of(st.floats(1e-6, 0.999999), st.sampled_from([1e-100, 0.5, 1 - 1e-12]))
SEED = st.integers(0, 2**20)


def drawn(d, d_h, seed):
    g = np.random.default_rng(seed)
    scale = 10 ** g.uniform(-2, 1)
    return S6Weights(*(scale * g.normal(size=s) for s in ((d_h, d + 1), (d_h, d + 1), d_h, d_h)))


@given(alpha=ALPHA, seed=SEED, **SIZES)
def test_no_weights_are_below_the_rank_floor(d, N, d_h, alpha, seed):
    """No weights and biases have a loss below `least_loss` of their d_h, which falls with d_h to `optimum`, to 1e-12.

    All lie below the loss d/2 of answering 0.
    """
    loss = s6.population_loss(drawn(d, d_h, seed), Coefficients(d, N, alpha))
    floors = [s6.least_loss(d, N, alpha, size) for size in range(1, d + 2)]
    assert loss >= s6.least_loss(d, N, alpha, d_h) * (1 - 1e-12)
    assert all(more <= less * (1 + 1e-12) for less, more in pairwise(floors))
    assert floors[-1] == s6.optimal_beta(d, N, alpha)[1]
    assert 0 < floors[-1] <= floors[0] <= d / 2


@given(alpha=st.floats(0.01, 0.9999), seed=SEED, **SIZES)
def test_states_may_be_turned_and_rescaled(d, N, d_h, alpha, seed):
    """Writing M h in place of h and reading M^-T changes no loss; c changes nothing either. Tolerance 1e-9."""
    weights, known = drawn(d, d_h, seed), Coefficients(d, N, alpha)
    g = np.random.default_rng(seed + 1)
    Q, R = (np.linalg.qr(g.normal(size=(d_h, d_h)))[0] for _ in range(2))
    s = np.exp(g.uniform(-1, 1, size=d_h))
    M, back = (Q * s) @ R, (Q / s) @ R
    W_C = back @ weights.W_C
    W_C[:, -1] = g.normal(size=d_h)
    turned = S6Weights(M @ weights.W_B, W_C, M @ weights.b_B, back @ weights.b_C)
    np.testing.assert_allclose(s6.population_loss(turned, known), s6.population_loss(weights, known), rtol=1e-9)


@given(alpha=st.floats(0.01, 0.9999), seed=SEED, **SIZES)
def test_turning_the_inputs_turns_the_gradient(d, N, d_h, alpha, seed):
    """Prompts look the same from all sides: with B Q and C Q for B and C, Q orthogonal, the loss is the same and the
    gradient turns along. Tolerance 1e-9 of the largest entry.
    """
    weights, known = drawn(d, d_h, seed), Coefficients(d, N, alpha)
    Q = np.eye(d + 1)
    Q[:d, :d] = np.linalg.qr(np.random.default_rng(seed + 1).normal(size=(d, d)))[0]
    turned = S6Weights(weights.W_B @ Q, weights.W_C @ Q, weights.b_B, weights.b_C)
    np.testing.assert_allclose(s6.population_loss(turned, known), s6.population_loss(weights, known), rtol=1e-9)
    slope, other = s6.gradient(weights, known), s6.gradient(turned, known)
    for name, matrix in (("W_B", Q), ("W_C", Q), ("b_B", 1), ("b_C", 1)):
        ours = getattr(slope, name) @ matrix if name[0] == "W" else getattr(slope, name)
        size = max(np.abs(ours).max(), np.abs(slope.W_B).max())
        np.testing.assert_allclose(getattr(other, name), ours, rtol=0, atol=1e-9 * size)


@given(alpha=st.floats(0.05, 0.9999), seed=SEED, **SIZES)
def test_small_steps_go_down(d, N, d_h, alpha, seed):
    """A step a thousandth of the weights' length along the gradient lowers the loss, by what the slope says to a half.

    Where the slope is nothing against the loss (1e-6), rounding is all there would be to see.
    """
    weights, known = drawn(d, d_h, seed), Coefficients(d, N, alpha)
    names = ("W_B", "W_C", "b_B", "b_C")
    slope = s6.gradient(weights, known)
    power = sum((getattr(slope, name) ** 2).sum() for name in names)
    length = np.sqrt(sum((getattr(weights, name) ** 2).sum() for name in names))
    eta = 1e-4 * length / max(np.sqrt(power), 1e-300)
    path = s6.descend(weights, known, eta, 1)
    told = eta * power
    if told > 1e-6 * path.losses[0]:
        assert 0.5 * told <= path.losses[0] - path.losses[1] <= 1.5 * told
