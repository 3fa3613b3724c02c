"""Newton's method and nonlinear conjugate gradients against scipy's roots and line searches, and against what they are
on squares.
"""

from functools import partial

import numpy as np
import pytest
import shared
import torch
from scipy import optimize

from icl import convex, solvers
from icl.profile import make_generator
from icl.tasks import Prompt
from icl.tasks.objectives import Huber, Logistic, Quartic, Square

KINDS = {
    "square": Square(3, 8),
    "logistic": Logistic(3, 8),
    "huber": Huber(3, 8),
    "quartic": Quartic(3, 8),
    "fewer examples": Logistic(4, 2, ridge=0.2),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
PSI = {
    Square: lambda y, s: s - y,
    Logistic: lambda y, s: 1 / (1 + np.exp(-s)) - (y + 1) / 2,
    Huber: lambda y, s: np.sign(s - y) * np.minimum(abs(s - y), 1.0),
    Quartic: lambda y, s: (s - y) ** 3,
}


def drawn(kind, batch=6):
    return KINDS[kind].sample(batch, generator=make_generator(f"convex {kind}"))


def by_hand(kind, prompt, i):
    """The gradient of one prompt's objective, written down a second time in numpy."""
    objective, X, y = KINDS[kind], prompt.x[i, :-1].numpy(), prompt.y[i, :-1].numpy()
    psi = PSI[type(objective)]
    return lambda w: X.T @ psi(y, X @ w) / len(y) + objective.ridge * w


@every_kind
def test_the_minimiser_is_scipys_root(kind):
    """The gradient's root by Powell's hybrid method, from another start."""
    prompt = drawn(kind)
    found = convex.minimiser(KINDS[kind], prompt)
    for i in range(prompt.batch):
        root = optimize.root(by_hand(kind, prompt, i), prompt.w[i, 0].numpy() + 0.1, tol=1e-14)
        np.testing.assert_allclose(found[i], root.x, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("unit", [1e-3, 1e-9, 1e9])
def test_a_line_search_finds_steps_of_any_length(unit):
    """On squares whose inputs are in other units the best step is 1 over a curvature in those units squared, up to
    1e18: a bracket that doubles reaches it in 60 tries of the 200, one that grows by a constant does not. Three steps
    of conjugate gradients solve the normal equations, to 1e-6 as conjugacy wears off.
    """
    prompt = drawn("square")
    small = Prompt(unit * prompt.x, prompt.y, prompt.w)
    objective = Square(3, 8, ridge=1e-3 * unit**2)
    walk = convex.nonlinear_conjugate_gradients(objective, small, 3)
    for i in range(prompt.batch):
        X, y = prompt.x[i, :-1].numpy(), prompt.y[i, :-1].numpy()
        slope = X.T @ y / len(y)
        step = slope @ slope / (slope @ (X.T @ X / len(y) + 1e-3 * np.eye(3)) @ slope)
        np.testing.assert_allclose(unit * walk[i, 1], step * slope, rtol=1e-9)
        root = np.linalg.solve(X.T @ X / len(y) + 1e-3 * np.eye(3), slope)
        np.testing.assert_allclose(unit * walk[i, -1], root, rtol=1e-6)


@every_kind
def test_the_gradient_vanishes_at_the_minimiser(kind):
    """To 1e-12 of the first one, over 500 prompts, and no other point near is lower."""
    objective, prompt = KINDS[kind], drawn(kind, 500)
    w = convex.minimiser(objective, prompt)
    first = objective.gradient(prompt, torch.zeros_like(w)).abs().amax(1)
    assert bool((objective.gradient(prompt, w).abs().amax(1) <= 2e-12 * first).all())
    least = objective.value(prompt, w)
    for size in (1e-3, 1.0):
        assert bool((objective.value(prompt, w + size * shared.normal(*w.shape)) > least).all())


def test_on_squares_it_is_ridge_regression():
    prompt = drawn("square")
    X, y = prompt.x[:, :-1], prompt.y[:, :-1, None]
    expected = torch.linalg.solve(X.mT @ X / 8 + 0.05 * torch.eye(3).double(), X.mT @ y / 8)[..., 0]
    assert shared.close(convex.minimiser(KINDS["square"], prompt), expected, 1e-12)
    assert shared.close(convex.newton(KINDS["square"], prompt, 1)[:, 1], expected, 1e-12)


def test_on_squares_they_are_the_conjugate_gradients_of_the_solvers():
    objective, prompt = Square(6, 9), Square(6, 9).sample(5, generator=make_generator("conjugate"))
    X, y = prompt.x[:, :-1], prompt.y[:, :-1, None]
    H, b = X.mT @ X / 9 + 0.05 * torch.eye(6).double(), (X.mT @ y / 9)[..., 0]
    expected = solvers.run_solver(solvers.conjugate_gradients(), H, b, 5)
    assert shared.close(convex.nonlinear_conjugate_gradients(objective, prompt, 5), expected, 1e-9)


@every_kind
def test_conjugate_gradients_written_out(kind):
    """Prompt by prompt in numpy, with scipy's line search on the slope; the first three steps."""
    prompt = drawn(kind, 3)
    walk = convex.nonlinear_conjugate_gradients(KINDS[kind], prompt, 3)
    for i in range(prompt.batch):
        gradient = by_hand(kind, prompt, i)
        w, p, before = np.zeros(prompt.d), None, None
        for k in range(3):
            g = gradient(w)
            beta = 0.0 if before is None else max(0.0, g @ (g - before) / (before @ before))
            p = -g if before is None else -g + beta * p
            along = partial(lambda t, w, p, gradient: gradient(w + t * p) @ p, w=w, p=p, gradient=gradient)
            far = 1.0
            while along(far) < 0:
                far *= 2
            w = w + optimize.brentq(along, 0, far, xtol=1e-15, rtol=1e-14) * p
            before = g
            np.testing.assert_allclose(walk[i, k + 1], w, rtol=1e-7, atol=1e-9)


@every_kind
@pytest.mark.parametrize(("method", "steps"), [(convex.newton, 12), (convex.nonlinear_conjugate_gradients, 40)])
def test_steps_descend_and_end_at_the_minimiser(kind, method, steps):
    """No step raises f beyond rounding; along the step nothing is left to gain; rows start at 0."""
    objective, prompt = KINDS[kind], drawn(kind, 50)
    walk = method(objective, prompt, steps)
    values = objective.value(prompt, walk)
    assert not walk[:, 0].any()
    assert bool((values.diff(dim=1) <= 1e-15 * values[:, :1]).all())
    assert shared.close(walk[:, -1], convex.minimiser(objective, prompt), 1e-6)
    step = walk[:, 1] - walk[:, 0]
    slopes = (objective.gradient(prompt, walk[:, :2]) * step[:, None]).sum(-1)
    assert bool((slopes[:, 1].abs() <= 1e-12 * slopes[:, 0].abs()).all())
    assert torch.equal(method(objective, prompt, 2), walk[:, :3])


@every_kind
def test_shared_coefficients_are_the_best(kind):
    """The gradient of the mean in theta vanishes; for one prompt and all directions theta is its own minimiser."""
    objective, prompt = KINDS[kind], drawn(kind, 40)
    basis = shared.normal(40, prompt.d, 2, name="basis")
    theta = convex.shared_minimiser(objective, prompt, basis).requires_grad_()
    objective.value(prompt, basis @ theta).mean().backward()
    assert theta.grad.abs().max() < 1e-10
    one = Prompt(prompt.x[:1], prompt.y[:1], prompt.w[:1])
    eye = torch.eye(prompt.d).double()[None]
    assert shared.close(convex.shared_minimiser(objective, one, eye), convex.minimiser(objective, one)[0], 1e-9)
