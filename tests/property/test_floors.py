"""Floors over a wide range of settings: between 0 and the zero predictor, falling with each label, blind to turns."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from icl.tasks import DriftingRegression, RegimeSwitching, SmoothDrift, two_timescales
from icl.theory import floors, steady

scales = st.floats(-8, 8).map(lambda power: 10.0**power)
spreads = st.one_of(st.just(0.0), scales)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def drifts(draw, most=1.4):
    """(task, inputs (4, n + 1, d)) with inputs along their own axes, of sizes up to 1e6 apart."""
    d, n = draw(st.integers(1, 4)), draw(st.integers(1, 40))
    roots = 10.0 ** np.array(draw(st.lists(st.floats(-6, 0), min_size=d, max_size=d)))
    task = DriftingRegression(d, n, draw(st.floats(0, most)), draw(spreads), draw(spreads), Lambda=np.diag(roots**2))
    return task, np.random.default_rng(draw(seeds)).normal(size=(4, n + 1, d)) * roots


@given(drifts())
@settings(max_examples=80)
def test_floors_lie_between_nothing_and_the_zero_predictor(case):
    """Every floor of every sequence is at least 0 and at most D4 tr(Lambda) at its position, to 1e-8 of that; the
    same by all routes, to 1e-8.
    """
    task, x = case
    zero = np.diag(task.weight_kernel()) * np.trace(task.Lambda)
    found = floors.expected_errors(x, task)
    assert (found >= 0).all()
    assert (found <= zero * (1 + 1e-8)).all()
    switching = RegimeSwitching(task.d, task.n, task.gamma, task.sigma_w, task.sigma_e, 0.0, Lambda=task.Lambda)
    np.testing.assert_allclose(floors.best_linear_errors(x, switching), found, rtol=2e-8)
    np.testing.assert_array_equal(floors.query_errors(x, task), found[:, -1])


@settings(max_examples=50)
@given(drifts(most=1.0), st.floats(0, 0.999), spreads)
def test_floors_fall_with_every_label_of_a_drift_that_has_settled(case, gamma, noise):
    """Weights begun in their steady law are the harder to know the fewer of their labels were seen: leaving out the
    first changes no law, and the floor at a position is at most that of the same position seen from one later, to 2e-8.
    """
    task, x = case
    law = steady.Steady(task.d, gamma, 1.0, noise)
    whole, shorter = floors.kalman_errors(x, law), floors.kalman_errors(x[:, 1:], law)
    assert (whole[:, 1:] <= shorter * (1 + 2e-8)).all()
    assert (whole <= law.zero * (1 + 1e-8)).all()


@settings(max_examples=50)
@given(drifts(), seeds)
def test_floors_know_no_axes(case, seed):
    """Turning the inputs and Lambda together, and exchanging sequences, leaves the floors as they are, to 1e-6 (a turn
    rounds what is small in Lambda; so of one size here), and the order of sequences to the bit.
    """
    task, x = case
    turn, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(task.d, task.d)))
    plain = DriftingRegression(task.d, task.n, task.gamma, task.sigma_w, task.sigma_e)
    x = x / np.sqrt(np.diag(task.Lambda))
    found = floors.expected_errors(x, plain)
    nothing = 1e-24 * found.max()
    np.testing.assert_allclose(floors.expected_errors(x @ turn, plain), found, rtol=1e-6, atol=nothing)
    np.testing.assert_array_equal(floors.expected_errors(x[::-1], plain), found[::-1])
    axes = np.random.default_rng(seed).permutation(task.d)
    np.testing.assert_allclose(floors.expected_errors(x[..., axes], plain), found, rtol=1e-6, atol=nothing)


@settings(max_examples=50)
@given(drifts(), scales)
def test_floors_have_the_units_of_weights(case, scale):
    """Weights twice as large err four times as much, and inputs twice as large tell what they told: to 1e-7."""
    task, x = case
    found = floors.expected_errors(x, task)
    larger = DriftingRegression(
        task.d, task.n, task.gamma, task.sigma_w * scale, task.sigma_e * scale, Lambda=task.Lambda
    )
    np.testing.assert_allclose(floors.expected_errors(x, larger), scale**2 * found, rtol=1e-7, atol=0)
    np.testing.assert_allclose(floors.expected_errors(scale * x, task), found, rtol=1e-7, atol=0)


@given(st.integers(1, 2), st.integers(1, 20), scales, scales, st.floats(0, 1), seeds)
@settings(max_examples=40)
def test_hidden_floors_lie_between_nothing_and_the_zero_predictor(d, n, slow, fast, gamma, seed):
    """Two speeds of variances from 1e-16 to 1e16, and smooth curves: at least 0, at most the weights' own spread."""
    x = np.random.default_rng(seed).normal(size=(2, n + 1, d))
    for task in (
        two_timescales(d, n, gammas=(1.0, gamma), variances=(slow**2, fast**2)),
        SmoothDrift(d, n, seed % 4, slow),
    ):
        found = floors.gaussian_errors(x, task)
        assert (found >= 0).all()
        assert (found <= d * np.diag(task.weight_kernel()) * (1 + 1e-9)).all()
