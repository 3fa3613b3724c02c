"""Layers whose gates are tables over a finite law of keys: their error against a run, its slope against differences."""

import chance
import numpy as np
import pytest

from icl.theory.gates import finite_key_gates
from icl.theory.gates import key_gates as kg


def layer(n, N, seed=0):
    rng = np.random.default_rng(seed)
    return 0.5 * np.eye(N) + 0.1 * rng.normal(size=(n, N, N)), 0.3 * rng.normal(size=(n, N))


KEYS = np.random.default_rng(1).normal(size=(6, 2)) * [2.0, 0.7]
DRIFT = kg.per_coordinate(np.array([[1.2, -0.5], [1.0, 0.0]]), q=0.3, d=2, sigma_y=0.4)


def test_the_slope_is_that_of_differences():
    """Central differences in every entry of one key's A and b, 1e-6 of the largest.

    Planted: a factor of 2 before the noise's term, and M for M', are seen.
    """
    A, b = layer(6, 3)
    _, of_A, of_b = finite_key_gates.gated_error(A, b, KEYS, DRIFT)
    h = 1e-5
    for values, slope in ((A, of_A), (b, of_b)):
        for at in np.ndindex(*values.shape[1:]):
            here, found = (2, *at), []
            for sign in (1, -1):
                values[here] += sign * h
                found.append(finite_key_gates.gated_error(A, b, KEYS, DRIFT)[0])
                values[here] -= sign * h
            assert (found[0] - found[1]) / (2 * h) == pytest.approx(slope[here], abs=1e-6 * np.abs(slope).max())


@pytest.mark.statistical
def test_the_error_is_that_of_a_run():
    """40,000 sequences of 40 steps, the read-out fitted on them; a standard error is 0.6%."""
    A, b = layer(6, 3)
    rng = chance.rng(2)
    z, h = np.zeros((40_000, 4)), np.zeros((40_000, 3))
    for _ in range(40):
        z = z @ DRIFT.F.T
        z[:, :2] += np.sqrt(0.3) * rng.normal(size=(40_000, 2))
        before, which = h, rng.integers(6, size=40_000)
        x = KEYS[which]
        y = (x * z[:, :2]).sum(1) + 0.4 * rng.normal(size=40_000)
        h = np.einsum("nij,nj->ni", A[which], h) + b[which] * y[:, None]
    guess = before @ np.linalg.lstsq(before, z[:, :2], rcond=None)[0]
    missed = z[:, :2] - guess
    each = np.einsum("ni,ij,nj->n", missed, KEYS.T @ KEYS / 6, missed)
    chance.assert_mean(each, finite_key_gates.gated_error(A, b, KEYS, DRIFT)[0])


@pytest.mark.parametrize(("N", "sigma_y"), [(2, 0.0), (4, 0.3)])
def test_no_search_gets_below_the_bound(N, sigma_y):
    """First-order drift, uneven keys, a state as large as the weights and twice that: from a random start down to the
    bound, 1e-6, and not below by rounding, 1e-9.
    """
    drift = kg.per_coordinate(np.array([[0.9]]), q=0.19, d=2, sigma_y=sigma_y)
    bound = finite_key_gates.finite_bound(KEYS, drift)
    A, b = layer(6, N, seed=N)
    found = finite_key_gates.search_gates(KEYS, drift, A, b, evaluations=600)
    assert -1e-9 < found / bound.error - 1 < 1e-6


def test_the_layer_of_the_proof_attains_it():
    """A = F (I - k x'H), b = F k at the fixed point: its exact error is the bound, rtol 1e-10; second order."""
    bound = finite_key_gates.finite_bound(KEYS, DRIFT)
    seen = KEYS @ DRIFT.H
    k = seen @ bound.P / ((seen @ bound.P * seen).sum(1) + 0.16)[:, None]
    A = DRIFT.F @ (np.eye(4) - k[:, :, None] * seen[:, None, :])
    np.testing.assert_allclose(finite_key_gates.gated_error(A, k @ DRIFT.F.T, KEYS, DRIFT)[0], bound.error, rtol=1e-10)


def test_earlier_keys_only_help():
    """The exact table of 0, 1, 2 earlier keys falls, strictly for noisy labels and uneven keys too; with 0 it is the
    bound.
    """
    drift = kg.per_coordinate(np.array([[0.95]]), q=0.1, d=2, sigma_y=0.3)
    errors = [finite_key_gates.finite_ladder(KEYS, drift, window) for window in range(3)]
    assert errors[0] == finite_key_gates.finite_bound(KEYS, drift).error
    assert errors[0] > errors[1] > errors[2]


def test_many_keys_are_gaussian_ones():
    """4,000 drawn keys: the bound for their law is within 2% of that for Gaussian keys."""
    drift = kg.per_coordinate(np.array([[0.9]]), q=0.19, d=2, sigma_y=0.3)
    keys = np.random.default_rng(3).normal(size=(4_000, 2))
    assert finite_key_gates.finite_bound(keys, drift).error == pytest.approx(kg.key_gated_bound(drift).error, rel=0.04)
