"""Lines that figures compare with: in order, exact where a closed form is known, and the same from the same stream."""

import numpy as np
import pytest

from icl.experiments.baselines import baseline_risks
from icl.profile import make_generator
from icl.theory import lfom
from icl.theory.lfom import polynomial_floor

D, N, LAYERS = 5, 20, 4


@pytest.fixture(scope="module")
def risks():
    return baseline_risks(D, N, LAYERS, generator=make_generator("known"))


def test_all_begin_at_d_and_take_one_best_step(risks):
    """Before the first layer the error is d; after one layer three of the methods are the best single step."""
    assert all(values.shape == (LAYERS + 1,) and values[0] == D for values in risks.values())
    one = polynomial_floor.best_single_step(D, N)[1]
    for name in ("gradient descent", "momentum", "polynomial floor"):
        assert abs(risks[name][1] / one - 1) < 1e-10


def test_methods_stand_in_order(risks):
    """Momentum is between the floor and gradient descent; conjugate gradients, which see the prompt, are below it."""
    descent, heavy, floor, conjugate = (risks[name][1:] for name in risks)
    assert (descent >= heavy - 1e-12).all()
    assert (heavy >= floor - 1e-12).all()
    assert (conjugate < floor).all()
    assert descent[-1] > 2 * heavy[-1] > 2 * floor[-1]


def test_momentum_of_two_steps_is_the_best_polynomial(risks):
    """Two numbers make every polynomial of degree two with real roots: at two layers momentum is on the floor."""
    assert abs(risks["momentum"][2] / risks["polynomial floor"][2] - 1) < 1e-8


def test_equal_steps_are_the_best_equal_steps(risks):
    """No equal step of a fine grid is better, at any depth, and the best of the grid is as good to its spacing."""
    grid = [lfom.table_risks(lfom.gradient_descent_table(a, LAYERS), D, N) for a in np.linspace(0.02, 1.5, 297)]
    least = np.min(grid, axis=0)
    assert (risks["gradient descent"] <= least + 1e-12).all()
    assert np.abs(risks["gradient descent"] / least - 1).max() < 1e-3


def test_in_one_dimension_conjugate_gradients_are_done_after_a_step():
    """With one eigenvalue one step of the prompt's own length leaves nothing, and a shared step leaves something."""
    risks = baseline_risks(1, 3, 2, 50, generator=make_generator("known"))
    assert risks["preconditioned CG"][1] < 1e-25 < risks["polynomial floor"][1]


def test_conjugate_gradients_follow_the_stream(risks):
    """The same stream gives the same mean; another one agrees to a few standard errors, not digit for digit."""
    few, same, other = (baseline_risks(D, N, 2, 2_000, generator=make_generator(name)) for name in ("a", "a", "b"))
    assert np.array_equal(few["preconditioned CG"], same["preconditioned CG"])
    assert not np.array_equal(few["preconditioned CG"], other["preconditioned CG"])
    assert np.abs(few["preconditioned CG"] / risks["preconditioned CG"][:3] - 1).max() < 0.1
