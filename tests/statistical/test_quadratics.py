"""The samplers of quadratics against their laws, each failing by chance with probability 1e-9 at most."""

import numpy as np
import pytest
import torch
from scipy import stats

from icl.profile import streams
from icl.tasks import quadratics

N = 20_000
FALSE_FAILURE = 1e-9
SIGMA = quadratics.covariance([2.0, 0.5, 1.0], quadratics.rotation(3, generator=streams("a covariance")))


def assert_standard_normal(z, share=FALSE_FAILURE):
    """Refuse z (N, p) as independent standard normal numbers, with probability `share` if they are."""
    rows, columns = z.shape
    share = share / 4
    squares = (z**2).sum(0)
    low, high = stats.chi2.ppf([share / columns / 2, 1 - share / columns / 2], rows)
    assert low < squares.min()
    assert squares.max() < high
    low, high = stats.chi2.ppf([share / 2, 1 - share / 2], rows * columns)
    assert low < squares.sum() < high
    pairs = (z.T @ z / np.sqrt(squares)[:, None])[np.triu_indices(columns, 1)]
    assert np.abs(pairs).max() < stats.norm.isf(share / len(pairs) / 2)
    assert stats.kstest(z.ravel(), "norm").pvalue > share


def drawn_alone(n):
    return quadratics.sample_hessians(SIGMA, n, N, generator=streams(f"Hessians alone {n}"))


def of_prompts(n):
    task = quadratics.regression(SIGMA, n)
    return quadratics.hessians(task.sample(N, generator=streams(f"Hessians of prompts {n}"), dtype=torch.float64))


@pytest.mark.parametrize("n", [3, 20])
@pytest.mark.parametrize("source", [drawn_alone, of_prompts])
def test_hessians_are_wishart(source, n):
    """Whitened, n H has a Cholesky factor of independent entries [Bartlett 1933]: standard normal ones below the
    diagonal, roots of chi-squares of n, n - 1, .. degrees of freedom on it. The two ways to draw H have one law.

    The chi-squares become normal by their distribution function, each half from its own tail. With 20,000 Hessians an
    entry's variance 7 % off is seen, all together 1 %, a correlation of 0.05.
    """
    white = np.linalg.inv(np.linalg.cholesky(SIGMA))
    L = np.linalg.cholesky(n * white @ source(n).numpy() @ white.T)
    columns = [L[:, 1, 0], L[:, 2, 0], L[:, 2, 1]]
    for i in range(3):
        square = L[:, i, i] ** 2
        below, above = stats.chi2.cdf(square, n - i), stats.chi2.sf(square, n - i)
        columns.append(np.where(below < 0.5, stats.norm.ppf(below), stats.norm.isf(above)))
    assert_standard_normal(np.stack(columns, 1))


def test_prompts_have_white_inputs_and_weights_once_whitened():
    """Sigma^(-1/2) x and Sigma^(1/2) w* are standard normal and independent, so that the labels' variance is d."""
    prompt = quadratics.regression(SIGMA, 2).sample(N, generator=streams("whitened"), dtype=torch.float64)
    L = np.linalg.cholesky(SIGMA)
    x, w = prompt.x.numpy() @ np.linalg.inv(L).T, prompt.w.numpy()[:, 0] @ L
    assert_standard_normal(np.concatenate([x.reshape(N, -1), w], axis=1))


@pytest.mark.parametrize("d", [2, 3, 5])
def test_rotations_are_uniform(d):
    """Orthogonal to rounding; each entry q of a uniform one has (q + 1) / 2 ~ Beta((d-1)/2, (d-1)/2), as a coordinate
    of a point of the sphere has, and half of them are reflections.

    Kolmogorov and Smirnov's test of every entry, and of u'Qv for two directions u, v that are no axes, on 4,000
    rotations, each at its share of the failure rate: sees a distribution function 0.06 off, where a QR decomposition
    whose signs are left as they come has a diagonal entry of one sign.
    """
    g = streams(f"rotations {d}")
    Q = np.stack([quadratics.rotation(d, generator=g) for _ in range(4000)])
    assert np.abs(Q @ Q.swapaxes(1, 2) - np.eye(d)).max() < 1e-14
    u, v = np.ones(d) / np.sqrt(d), np.arange(1, d + 1) / np.linalg.norm(np.arange(1, d + 1))
    entries = np.column_stack([Q.reshape(4000, -1), Q @ v @ u])
    share = FALSE_FAILURE / (entries.shape[1] + 1)
    law = stats.beta((d - 1) / 2, (d - 1) / 2)
    assert min(stats.kstest((q + 1) / 2, law.cdf).pvalue for q in entries.T) > share
    reflections = int((np.linalg.det(Q) < 0).sum())
    assert stats.binomtest(reflections, 4000, 0.5).pvalue > share


def test_in_one_dimension_a_rotation_is_a_sign():
    """d = 1: 1 and -1, as often as one another."""
    g = streams("signs")
    Q = np.concatenate([quadratics.rotation(1, generator=g) for _ in range(2000)])
    assert (np.abs(Q) == 1).all()
    assert stats.binomtest(int((Q > 0).sum()), 2000, 0.5).pvalue > FALSE_FAILURE
