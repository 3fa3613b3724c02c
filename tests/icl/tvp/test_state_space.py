"""The laws of the states from row to row, against the covariances that they are roots of."""

import numpy as np
import pytest

from icl.kalman_updates import kalman_update
from icl.tvp._state_space import Model, design, forecast, learn, pass_time, start

RNG = np.random.default_rng(0)
WALK = Model(np.array([[0.1, 0.0, 0.3]]), None, np.array([0.2]), np.array([[4.0, 1.0, 2.0]]))
STATIONARY = Model(np.array([[0.1, 0.3, 0.0, 0.0]]), np.array([0.9]), np.array([0.2]), np.array([[0.1, 0.3, 2.0, 2.0]]))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("model", [WALK, STATIONARY], ids=["random walk", "stationary"])
def test_roots_are_those_of_the_covariances(model, batch):
    """Labels, one missing, and uneven times, of one setting and of three side by side, rtol 1e-9; forecasts too.

    Planted: the root of twice the gained variance, in the filter and in the forecast.
    """
    gamma = None if model.gamma is None else model.gamma.repeat(batch)
    many = Model(model.q.repeat(batch, 0), gamma, model.noise.repeat(batch), model.prior.repeat(batch, 0))
    state = start(many, 0.0)
    w, P = state.w[0], np.diag(model.prior[0])
    for elapsed in (0.0, 1.0, 2.5, 0.5, 1.0):
        x = design(model, RNG.standard_normal(3 if model is WALK else 2))
        y = np.nan if elapsed == 0.5 else RNG.standard_normal()
        expected = forecast(many, state, elapsed, x[None])
        state = pass_time(many, state, elapsed, 0.0)
        keep, gain = model.drift(elapsed)
        F = np.eye(len(w)) if keep is None else np.diag(keep[0])
        w, P = F @ w, F @ P @ F + np.diag(gain[0])
        told = (x @ w, x @ P @ x + model.noise[0])
        if np.isfinite(y):
            w, P, _, _ = kalman_update(w, P, x, y, model.noise[0])
        state, *found = learn(many, state, x, y if batch == 1 else np.full(batch, y), bool(np.isfinite(y)))
        for law in (expected, found):
            for ours, right in zip(law, told, strict=True):
                np.testing.assert_allclose(np.ravel(ours), np.full(batch, right), rtol=1e-9)
        for i in range(batch):
            np.testing.assert_allclose(state.w[i], w, rtol=1e-9)
            np.testing.assert_allclose(state.R[i].T @ state.R[i], P, rtol=1e-9, atol=1e-12)


def test_a_forgetting_factor_divides_the_covariance():
    """By lambda a unit of time: two units are lambda^2."""
    model = Model(0 * WALK.q, None, WALK.noise, WALK.prior, np.array([0.9]))
    later = pass_time(model, start(model, 0.0), 2.0, 2.0)
    np.testing.assert_allclose(later.R[0].T @ later.R[0], np.diag(WALK.prior[0]) / 0.81, rtol=1e-12)
    assert later.time == 2.0


def test_a_missing_label_changes_nothing():
    """Beside another label that is there."""
    model = Model(np.repeat(WALK.q, 2, 0), None, np.repeat(WALK.noise, 2), np.repeat(WALK.prior, 2, 0))
    state = start(model, 0.0)
    after, _, _ = learn(model, state, np.ones(3), np.array([np.nan, 1.0]), False)
    assert np.array_equal(after.w[0], state.w[0])
    assert np.array_equal(after.R[0], state.R[0])
    assert (after.w[1] != state.w[1]).all()
