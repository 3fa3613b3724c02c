"""Diagonal coefficients: known methods are among them, the derivatives are autograd's, and L (L - 1) / 2 are idle."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import polynomial

from icl import solvers
from icl.models import memformer
from icl.models.first_order import diagonal_errors, diagonal_jacobian
from icl.theory import lfom


def drawn(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def curvature(seed, batch=4, d=3, n=7):
    X = drawn(seed, batch, n, d)
    return X.mT @ X / n


def triangle(seed, L=4, d=3, scale=0.4):
    return scale * drawn(seed, L, L, d) * torch.ones(L, L, dtype=torch.float64).tril()[..., None]


def eyes(H):
    return torch.eye(H.shape[-1], dtype=H.dtype).expand_as(H)


@pytest.mark.parametrize(
    ("solver", "table"),
    [
        (solvers.gradient_descent(0.3), lfom.gradient_descent_table(0.3, 4)),
        (solvers.momentum(0.3, 0.6), lfom.momentum_table(0.3, 0.6, 4)),
    ],
    ids=["gradient descent", "momentum"],
)
def test_known_methods_are_rows_of_equal_numbers(solver, table):
    """The errors of two solvers, from the cumulative tables of icl.theory.lfom. Planted: increments in their place."""
    H, w = curvature(1), drawn(2, 4, 3)
    Lambda = torch.as_tensor(lfom.cumulative(table))[..., None].repeat(1, 1, 3)
    walk = solvers.run_solver(solver, H, (H @ w[..., None])[..., 0], 4)
    torch.testing.assert_close(
        diagonal_errors(H, Lambda, -w[..., None])[..., 0], walk - w[:, None], rtol=1e-9, atol=1e-12
    )


def test_scalars_are_polynomials_of_the_curvature():
    """Equal numbers make p(H), p from the increments' recursion (icl.theory.lfom.tables.polynomials)."""
    H, table = curvature(3), np.random.default_rng(4).normal(size=(4, 4)) * np.tri(4)
    M = diagonal_errors(H, torch.as_tensor(lfom.cumulative(table))[..., None].repeat(1, 1, 3), eyes(H))
    t, V = torch.linalg.eigh(H)
    for state, p in enumerate(lfom.polynomials(table)):
        wanted = (V * torch.as_tensor(polynomial.polyval(t.numpy(), p))[:, None]) @ V.mT
        torch.testing.assert_close(M[:, state], wanted, rtol=1e-9, atol=1e-11)


def test_a_memformer_of_diagonal_preconditioners_is_one():
    """Increments Gamma[l, j] diag(a_j) in the other room's recurrence. Planted: a_k for a_j."""
    H, a, Gamma = curvature(5), drawn(6, 4, 3), drawn(7, 4, 4).tril()
    M = memformer.error_matrices(H, torch.diag_embed(a), Gamma)
    Lambda = (Gamma[..., None] * a).cumsum(0)
    torch.testing.assert_close(diagonal_errors(H, Lambda, eyes(H)), M, rtol=1e-9, atol=1e-11)


@given(st.integers(0, 2**20), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=10)
def test_derivatives_are_autograds(seed, L, columns, rows):
    """Of rows M_L start, by every coefficient. Planted: one H too few in what is felt."""
    H, Lambda = curvature(seed), triangle(seed + 1, L)
    start, measured = drawn(seed + 2, 4, 3, columns), drawn(seed + 3, 4, rows, 3)
    wanted = torch.autograd.functional.jacobian(lambda at: measured @ diagonal_errors(H, at, start)[:, -1], Lambda)
    lower = torch.ones(L, L, dtype=torch.float64).tril()[..., None]
    found = diagonal_jacobian(H, Lambda, start, measured)
    torch.testing.assert_close(found, wanted * lower, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("d", "L"), [(1, 3), (2, 4), (3, 2), (5, 4)])
def test_one_coefficient_a_pair_of_steps_is_idle(d, L):
    """The Jacobian of M_L has rank d L (L + 1) / 2 - L (L - 1) / 2 at random coefficients: at d = 1 that is L."""
    H, Lambda = curvature(8, 60, d, 9), 0.5 + triangle(9, L, d, 0.1)
    Lambda = Lambda * torch.ones(L, L, dtype=torch.float64).tril()[..., None]
    J = diagonal_jacobian(H, Lambda, eyes(H), eyes(H))[..., torch.ones(L, L, dtype=torch.bool).tril(), :]
    values = torch.linalg.svdvals(J.flatten(0, 2).flatten(1))
    wanted = d * L * (L + 1) // 2 - L * (L - 1) // 2
    assert int((values > 1e-10 * values[0]).sum()) == wanted
    assert len(values) <= wanted or values[wanted - 1] > 1e6 * values[wanted]


@pytest.mark.usefixtures("as_installed")
def test_a_table_of_nothing_is_refused():
    H = curvature(1)
    with pytest.raises(ValueError, match="Lambda must have shape"):
        diagonal_errors(H, torch.zeros(0, 0, 3, dtype=torch.float64), eyes(H))
