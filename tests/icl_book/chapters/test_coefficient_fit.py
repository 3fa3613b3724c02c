"""Fits: least squares has gradient 0 and goes to the best polynomial of the law; diagonals end where they are flat."""

import chance
import numpy as np
import pytest
import torch
from scipy import stats

from icl.models import memformer
from icl.profile import make_generator
from icl.tasks import quadratics
from icl.theory import lfom
from icl.theory.lfom import gated_floor, polynomial_floor
from icl_book.chapters import coefficient_fit

d, n = 3, 12


def stream(seed):
    return torch.Generator().manual_seed(seed)


def prompts(batch, seed, Sigma=None):
    task = quadratics.regression(np.eye(d) if Sigma is None else Sigma, n)
    return task.sample(batch, generator=stream(seed), dtype=torch.float64)


def started(L, eta=0.5):
    return torch.as_tensor(lfom.cumulative(lfom.gradient_descent_table(eta, L)))[..., None].repeat(1, 1, d)


def test_what_is_asked_is_what_is_meant():
    """Labels' errors by predictions, values by the examples' labels, and the expected risk by another room.

    Two steps of gradient descent, anisotropic prompts. Planted: f without its half.
    """
    Sigma = np.diag([1.0, 0.5, 0.25])
    prompt = prompts(6, 1, Sigma)
    H, w = quadratics.hessians(prompt), prompt.w[:, 0]
    X, y = prompt.x[:, :-1], prompt.y[:, :-1]
    b = (y[:, None] @ X)[:, 0] / n
    after = memformer.iterates(H, b, 0.5 * torch.eye(d).double().repeat(2, 1, 1), torch.eye(2).double())[:, -1]
    labels = ((after * prompt.x[:, -1]).sum(-1) - prompt.y[:, -1]) ** 2
    values = ((X @ after[..., None])[..., 0] - y).square().sum(1) / (2 * n)
    M = memformer.error_matrices(H, 0.5 * torch.eye(d).double().repeat(2, 1, 1), torch.eye(2).double())[:, -1]
    wanted = {"labels": labels, "values": values, "risks": memformer.risks(M, Sigma)}
    given = {
        "labels": coefficient_fit.label_targets(prompt),
        "values": coefficient_fit.value_targets(prompt),
        "risks": coefficient_fit.risk_targets(H, Sigma),
    }
    for kind, asked in given.items():
        for found in (
            coefficient_fit.prompt_losses(asked, started(2)),
            coefficient_fit.polynomial_losses(asked, np.array([1, -1, 0.25])),
        ):
            torch.testing.assert_close(found, wanted[kind], rtol=1e-9, atol=1e-12)
    assert (w - prompt.w[:, 3]).abs().max() == 0
    # Diagonals that differ make M unsymmetric, so that Sigma's roots cannot change sides.
    a = torch.tensor([[1.0, 0.2, 0.5], [0.3, 0.9, 0.1]]).double()
    M = memformer.error_matrices(H, torch.diag_embed(a), torch.eye(2).double())[:, -1]
    found = coefficient_fit.prompt_losses(given["risks"], torch.diag_embed(a.T).permute(1, 2, 0).cumsum(0))
    torch.testing.assert_close(found, memformer.risks(M, Sigma), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["labels", "values", "risks"])
def test_the_fitted_polynomial_is_flat_and_least(kind):
    """The gradient of the mean loss by its coefficients is 0, and steps to all sides cost. Planted: a ridge."""
    prompt, rng = prompts(40, 2), np.random.default_rng(3)
    asked = {"labels": coefficient_fit.label_targets, "values": coefficient_fit.value_targets}.get(
        kind, lambda p: coefficient_fit.risk_targets(quadratics.hessians(p), np.eye(d))
    )(prompt)
    p = coefficient_fit.fit_polynomial(asked, 3)
    least = coefficient_fit.polynomial_losses(asked, p).mean().item()
    assert p[0] == 1
    for _ in range(5):
        step = np.append(0.0, rng.normal(size=3))
        ahead, back = (coefficient_fit.polynomial_losses(asked, p + s * step).mean().item() for s in (1e-3, -1e-3))
        assert min(ahead, back) > least
        assert abs(ahead - back) < 1e-6 * (ahead + back - 2 * least)


def test_few_equations_are_solved_by_the_shortest_polynomial():
    """Two labels and four coefficients: loss 0, and orthogonal to what changes nothing."""
    asked = coefficient_fit.label_targets(prompts(2, 4))
    p = coefficient_fit.fit_polynomial(asked, 4)
    assert coefficient_fit.polynomial_losses(asked, p).max() < 1e-20
    powers = [asked.start]
    for _ in range(4):
        powers.append(asked.H @ powers[-1])
    features = torch.stack([(asked.rows @ each).flatten() for each in powers[1:]], 1).numpy()
    idle = np.eye(4) - np.linalg.pinv(features) @ features
    assert np.abs(idle @ p[1:]).max() < 1e-9 * np.abs(p).max()


@pytest.mark.statistical
def test_many_prompts_have_the_polynomial_of_the_law():
    """Fits of 2,000 labels, d = 3, n = 12, two layers: N excess / C is that of a sum of squares of mean C.

    The excess of a fit is a quadratic form in two nearly normal numbers, a weighted sum of two chi-squares, and widest
    where all weight is on one: 60 fits' sum is within what chi-square with 60 degrees of freedom leaves, from 0.2 to
    2.5 times its mean, and a fit of the wrong sign is 1e4 off.
    """
    N, fits = 2_000, 60
    moments = polynomial_floor.wishart_moments(d, n, 4)
    hankel = moments[np.add.outer(range(3), range(3))]
    floor, C = polynomial_floor.optimal_risks(d, n, 2)[-1], gated_floor.excess_constants(d, n, 2)[0][-1]
    task = quadratics.regression(np.eye(d), n)
    generator = make_generator("fits")
    excess = np.empty(fits)
    for k in range(fits):
        prompt = task.sample(N, generator=generator, dtype=torch.float64)
        p = coefficient_fit.fit_polynomial(coefficient_fit.label_targets(prompt), 2)
        excess[k] = p @ hankel @ p - floor
    ratio = excess * N / C
    chance.assert_within(ratio.sum(), stats.chi2(fits))


def test_diagonals_end_where_the_loss_is_flat():
    """By autograd, at 1e-6 of the loss; equal to the fitted polynomial's for one coordinate, and below it for three.

    Planted: a Jacobian of the other sign does not end.
    """
    asked = coefficient_fit.label_targets(prompts(300, 6, np.diag([1.0, 0.5, 0.1])))
    end = coefficient_fit.fit_diagonals(asked, started(3))
    at = end.Lambda.clone().requires_grad_()
    loss = (asked.rows @ coefficient_fit.diagonal_errors(asked.H, at, asked.start)[:, -1]).square().sum((1, 2)).mean()
    (gradient,) = torch.autograd.grad(loss, at)
    gradient = gradient[torch.ones(3, 3, dtype=torch.bool).tril()]
    assert loss.item() == pytest.approx(end.loss, rel=1e-9)
    assert gradient.norm().item() == pytest.approx(end.gradient, abs=1e-9)
    assert end.gradient < 1e-5 * end.loss
    assert end.loss < coefficient_fit.polynomial_losses(asked, coefficient_fit.fit_polynomial(asked, 3)).mean()


def test_of_one_coordinate_diagonals_are_polynomials():
    """d = 1: the least loss is the fitted polynomial's, for which one number a layer is enough."""
    prompt = quadratics.regression(np.eye(1), 6).sample(50, generator=stream(7), dtype=torch.float64)
    asked = coefficient_fit.label_targets(prompt)
    end = coefficient_fit.fit_diagonals(asked, started(3)[..., :1])
    least = coefficient_fit.polynomial_losses(asked, coefficient_fit.fit_polynomial(asked, 3)).mean().item()
    assert end.loss == pytest.approx(least, rel=1e-8)


@pytest.mark.parametrize(("kind", "stored"), [("labels", 12), ("values", 4), ("risks", 1)])
def test_few_equations_are_stored(kind, stored):
    """18 coefficients, 15 of which act: so many prompts of 1, 3 and 9 equations are met exactly, 20 / 7 / 3 are not.

    Planted: labels asked for twice are still stored; risks of a second prompt are not.
    """
    for batch, met in ((stored, True), ({"labels": 20, "values": 7, "risks": 3}[kind], False)):
        prompt = prompts(batch, 8)
        asked = {"labels": coefficient_fit.label_targets, "values": coefficient_fit.value_targets}.get(
            kind, lambda p: coefficient_fit.risk_targets(quadratics.hessians(p), np.eye(d))
        )(prompt)
        end = coefficient_fit.fit_diagonals(asked, started(3))
        assert (end.loss < 1e-15) == met


@pytest.mark.usefixtures("as_installed")
def test_weights_that_move_are_refused():
    """A task that drifts has no one w*; nor is float32 fitted."""
    prompt = prompts(2, 9)
    moved = type(prompt)(prompt.x, prompt.y, prompt.w + torch.arange(n + 1).double()[:, None])
    with pytest.raises(ValueError, match="prompt must have weights that stay"):
        coefficient_fit.label_targets(moved)
    single = coefficient_fit.label_targets(quadratics.regression(np.eye(d), n).sample(2, generator=stream(1)))
    with pytest.raises(ValueError, match="problem must have dtype"):
        coefficient_fit.fit_diagonals(single, started(2).float())
