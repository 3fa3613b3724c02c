"""The floor's closed forms against Monte Carlo."""

import chance
import numpy as np
import pytest
import torch
from shared import drift_law

from icl import filters
from icl.profile import make_generator
from icl.tasks import DriftingRegression
from icl.theory import floors
from icl.theory.steady import large_d

#: |z| < 4, of one draw: seeds are fixed.
LIMIT = 4.0


def sampled_floor(d, s, v, batch, late, name):
    """eps of the floor by Riccati's recursion over `late` positions of `batch` sequences, after 6 d positions."""
    law = drift_law(d, s, v)
    generator = make_generator(f"floor, {name}, {d}, {s}, {v}")
    x = torch.randn((batch, 6 * d + late, d), generator=generator, dtype=torch.float64).numpy()
    means = floors.kalman_errors(x, law)[:, 6 * d :].mean(-1) / law.zero_error
    return means.mean(), means.std(ddof=1) / np.sqrt(batch), law


@pytest.mark.one_draw("four sequences at d = 100")
def test_floor_in_many_dimensions():
    """At s = 1, v = 0 the floor by Riccati's recursion at d = 5, 10, 20, 50, 100 falls on a line in 1/d whose value at
    0 is the closed form.

    4 to 64 sequences of 200 positions after the start; weighted least squares of a + b/d + c/d^2, |z| < 4 for a, whose
    standard error is below 0.1 % of it: the naive closure's s / (1 + s) = 0.5 is 14 % away. The line alone, fitted to
    d >= 10, leaves no residual above 0.3 %. Planted: the floor's e^(s / zeta - 1) without its 1.
    """
    sizes = (5, 10, 20, 50, 100)
    found = [
        sampled_floor(d, 1.0, 0.0, batch, 200, "line") for d, batch in zip(sizes, (64, 48, 32, 10, 4), strict=True)
    ]
    means, errors = np.array([f[0] for f in found]), np.array([f[1] for f in found])
    design = np.stack([np.ones(5), 1 / np.array(sizes), 1 / np.array(sizes) ** 2], -1) / errors[:, None]
    covariance = np.linalg.inv(design.T @ design)
    at_0 = covariance[0] @ design.T @ (means / errors)
    assert np.sqrt(covariance[0, 0]) < 1e-3 * at_0
    assert abs(at_0 - large_d.kalman_large_d(1.0, 0.0)) / np.sqrt(covariance[0, 0]) < LIMIT
    line = np.polyfit(1 / np.array(sizes[1:]), means[1:], 1, w=1 / errors[1:])
    assert np.abs(np.polyval(line, 1 / np.array(sizes[1:])) / means[1:] - 1).max() < 3e-3
    assert 0.42 < line[0] < 0.46


@pytest.mark.parametrize(
    ("s", "v"), [(0.2, 0.0), (0.2, 0.03), (0.2, 0.5), (1.0, 0.3), (1.0, 2.0), (3.0, 0.0), (3.0, 1.0)]
)
def test_floor_for_a_given_dimension(s, v):
    """The corrected closed form is within 1 % of Riccati's recursion at d = 5 and 20, noisy labels too.

    48 sequences, 300 positions after the start; standard errors below 0.25 %. The limit d -> infinity is further away
    at d = 5 wherever learning pays. Planted: a shift of 0.5 in place of 0.8; noise without its share of the shift.
    """
    for d in (5, 20):
        mean, error, law = sampled_floor(d, s, v, 48, 300, "correction")
        assert error < 0.0025 * mean
        assert abs(large_d.kalman_floor(law) / law.zero_error / mean - 1) < 0.01
        if d == 5 and mean < 0.9:
            assert abs(large_d.kalman_large_d(s, v) / mean - 1) > 2 * abs(
                large_d.kalman_floor(law) / law.zero_error / mean - 1
            )


@pytest.mark.statistical
@pytest.mark.parametrize(("nu", "theta"), [(0.0, 2.0), (0.5, 1.0)])
def test_rls_on_a_random_walk(nu, theta):
    """RLS with lam = 1 - theta / d errs on a random walk, in 40 dimensions, as the mean-field form says to 4 %.

    56 sequences, positions 240 to 840 of 40 dimensions; a standard error is below 1 %, so that 12 % are seen. The
    form's own error is of order 1/d. Planted: the drift's integral without its theta.
    """
    d, late = 40, 240
    task = DriftingRegression(d=d, n=839, gamma=1.0, sigma_w=0.0, sigma_e=1.0)
    generator = make_generator(f"RLS on a random walk {nu}")
    p = task.sample(56, generator=generator, dtype=torch.float64)
    noise = torch.randn(p.y.shape, generator=generator, dtype=torch.float64) * np.sqrt(nu) * d
    track = filters.track(filters.rls(1 - theta / d, eps=0.01), p.x, p.y + noise)
    miss = (track.w_hat[:, :-1] - p.w).square().sum(-1)[:, late:].mean(-1).numpy() / d**2
    form = large_d.rls_random_walk(nu, theta)
    chance.assert_mean(miss, np.clip(miss.mean(), 0.96 * form, 1.04 * form), normal=True)


@pytest.mark.parametrize(("d", "drift", "noise"), [(20, 0.01, 0.5), (10, 0.01, 0.1), (20, 0.002, 0.3)])
def test_the_best_forgetting_of_rls(d, drift, noise):
    """On drawn random walks no factor of a grid, 0.6 to 1.6 times as far from 1, errs less by more than 2 %.

    200 sequences, the last 400 of 800 positions; both ends of the grid err more by at least 1 %. The form's own error
    is of order 1/d. Planted: nu = noise / drift / d without its square.
    """
    best = large_d.rls_optimal_forgetting(d, drift=drift, noise=noise)
    task = DriftingRegression(d=d, n=799, gamma=1.0, sigma_w=0.0, sigma_e=drift)
    generator = make_generator(f"best forgetting {d} {drift}")
    p = task.sample(200, generator=generator, dtype=torch.float64)
    y = p.y + noise * torch.randn(p.y.shape, generator=generator, dtype=torch.float64)
    lam = 1 - (1 - best) * torch.tensor([0.6, 0.8, 1.0, 1.25, 1.6], dtype=torch.float64)
    track = filters.track(filters.rls(lam[:, None], eps=0.01), p.x, y)
    miss = (track.w_hat[..., 400:-1, :] - p.w[:, 400:]).square().sum(-1).mean((1, 2))
    assert miss[2] < 1.02 * miss.min()
    assert (miss[[0, -1]] > 1.01 * miss[2]).all()
