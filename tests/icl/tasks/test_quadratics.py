"""The quadratics of prompts against sums over examples, and their covariances against their eigenvalues; their samplers
against their laws, each test failing by chance with probability 1e-9 at most.
"""

import chance
import numpy as np
import pytest
import torch
from chance import assert_standard_normal
from scipy import stats

from icl.profile import make_generator
from icl.tasks import quadratics

# Oracles


def test_hessians_are_means_over_examples():
    """H is the mean of x_i x_i' over the labelled examples, one at a time; the query is not among them."""
    prompt = quadratics.regression(quadratics.covariance([1.0, 0.5, 2.0]), 4).sample(
        3, generator=make_generator("hessians"), dtype=torch.float64
    )
    H = quadratics.hessians(prompt)
    expected = np.zeros((3, 3, 3))
    for k, x in enumerate(prompt.x.numpy()):
        for i in range(4):
            expected[k] += np.outer(x[i], x[i]) / 4
    np.testing.assert_allclose(H.numpy(), expected, rtol=1e-12, atol=1e-14)
    assert H.dtype == torch.float64


def test_the_loss_of_a_prompt_is_its_quadratic():
    """R(w) of (2.11), a sum over examples, is (w - w*)'H (w - w*) / 2 for any w."""
    prompt = quadratics.regression(np.diag(quadratics.SQUARED), 20).sample(
        5, generator=make_generator("loss"), dtype=torch.float64
    )
    w = torch.randn(5, 5, generator=make_generator("loss, w"), dtype=torch.float64)
    e = w - prompt.w[:, 0]
    residual = (prompt.x[:, :-1] * w[:, None]).sum(-1) - prompt.y[:, :-1]
    expected = residual.square().sum(-1) / 40
    torch.testing.assert_close(
        torch.einsum("bi,bij,bj->b", e, quadratics.hessians(prompt), e) / 2, expected, rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("D", [quadratics.SECTION_3_3, quadratics.SQUARED, [3.0]])
def test_covariances_have_their_axes(D):
    """Rows of U are eigenvectors of U' diag(D) U with eigenvalues D; symmetric to the last bit; U can be missing."""
    D = np.asarray(D)
    U = quadratics.rotation(len(D), generator=make_generator("axes"))
    Sigma = quadratics.covariance(D, U)
    np.testing.assert_array_equal(Sigma, Sigma.T)
    for direction, value in zip(U, D, strict=True):
        np.testing.assert_allclose(Sigma @ direction, value * direction, rtol=0, atol=1e-14 * D.max())
    np.testing.assert_array_equal(quadratics.covariance(D), np.diag(D))


def test_the_papers_numbers():
    """Sec. 3.3 has variances 1, 1, 1/2, 1/4, 1; taken for standard deviations they are 1, 1, 1/4, 1/16, 1 (App. D)."""
    np.testing.assert_array_equal(quadratics.SECTION_3_3, [1, 1, 1 / 2, 1 / 4, 1])
    np.testing.assert_array_equal(quadratics.SQUARED, [1, 1, 1 / 4, 1 / 16, 1])


def test_the_task_is_the_papers():
    """Inputs have Sigma, weights its inverse, so that whitened inputs meet white weights."""
    Sigma = quadratics.covariance(quadratics.SQUARED, quadratics.rotation(5, generator=make_generator("task")))
    task = quadratics.regression(Sigma, 20)
    assert (task.d, task.n) == (5, 20)
    np.testing.assert_array_equal(task.Lambda, Sigma)
    np.testing.assert_allclose(task.Lambda @ task.Sigma_w, np.eye(5), rtol=0, atol=1e-13)
    np.testing.assert_array_equal(task.Sigma_w, task.Sigma_w.T)


def test_scales_of_a_prompt_are_those_of_its_eigenvalues():
    """Their mean, their mean weighed by themselves and the largest, each prompt in numpy; twice the inputs have
    four times each; the dtype is kept. Planted: tr H without the 1/d, and the root of tr H^2, are seen.
    """
    H = quadratics.sample_hessians(quadratics.covariance([1.0, 0.5, 2.0]), 4, 6, generator=make_generator("scales"))
    t = np.linalg.eigvalsh(H.numpy())
    for scale, expected in (
        (quadratics.mean_curvature, t.mean(1)),
        (quadratics.weighted_curvature, (t**2).sum(1) / t.sum(1)),
        (quadratics.largest_curvature, t.max(1)),
    ):
        np.testing.assert_allclose(scale(H).numpy(), expected, rtol=1e-12)
        np.testing.assert_allclose(scale(4 * H).numpy(), 4 * expected, rtol=1e-12)
        assert scale(H.float()).dtype == torch.float32


@pytest.mark.parametrize(("d", "n"), [(1, 1), (4, 1), (4, 3), (4, 9)])
def test_sampled_hessians_are_what_they_say(d, n):
    """Symmetric, positive semi-definite, of rank min(d, n), in the dtype asked for, the same from the same stream."""
    Sigma = quadratics.covariance(np.linspace(0.5, 2, d))
    for dtype in (torch.float32, torch.float64):
        H, again, other = (
            quadratics.sample_hessians(Sigma, n, 6, generator=make_generator("ranks", seed=s), dtype=dtype)
            for s in (0, 0, 1)
        )
        assert H.dtype == dtype
        assert H.shape == (6, d, d)
        assert torch.equal(H, again)
        assert not torch.isin(H, other).any()
        values = torch.linalg.eigvalsh(H.double())
        large = values > 1e-6 * values[:, -1:]
        assert (large.sum(-1) == min(d, n)).all()
        assert (values >= -1e-6 * values[:, -1:]).all()
        torch.testing.assert_close(H, H.mT, rtol=1e-5, atol=1e-6)


def test_many_are_drawn_in_parts(monkeypatch):
    """More Hessians than are drawn at once are as many as asked for, and all different."""
    monkeypatch.setattr(quadratics, "_BLOCK", 12)
    H = quadratics.sample_hessians(np.eye(2), 3, 7, generator=make_generator("parts"))
    assert H.shape == (7, 2, 2)
    assert len(H[:, 0, 0].unique()) == 7


# Statistics

N = 20_000
SIGMA = quadratics.covariance([2.0, 0.5, 1.0], quadratics.rotation(3, generator=chance.fixed("a covariance")))


def drawn_alone(n):
    return quadratics.sample_hessians(SIGMA, n, N, generator=make_generator(f"Hessians alone {n}"))


def of_prompts(n):
    task = quadratics.regression(SIGMA, n)
    return quadratics.hessians(
        task.sample(N, generator=make_generator(f"Hessians of prompts {n}"), dtype=torch.float64)
    )


@pytest.mark.statistical
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


@pytest.mark.statistical
def test_prompts_have_white_inputs_and_weights_once_whitened():
    """Sigma^(-1/2) x and Sigma^(1/2) w* are standard normal and independent, so that the labels' variance is d."""
    prompt = quadratics.regression(SIGMA, 2).sample(N, generator=make_generator("whitened"), dtype=torch.float64)
    L = np.linalg.cholesky(SIGMA)
    x, w = prompt.x.numpy() @ np.linalg.inv(L).T, prompt.w.numpy()[:, 0] @ L
    assert_standard_normal(np.concatenate([x.reshape(N, -1), w], axis=1))


@pytest.mark.statistical(2)
@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("d", [2, 3, 5])
def test_rotations_are_uniform(d):
    """Orthogonal to rounding; each entry q of a uniform one has (q + 1) / 2 ~ Beta((d-1)/2, (d-1)/2), as a coordinate
    of a point of the sphere has, and half of them are reflections.

    Kolmogorov and Smirnov's test of every entry, and of u'Qv for two directions u, v that are no axes, on 4,000
    rotations: sees a distribution function 0.06 off, where a QR decomposition
    whose signs are left as they come has a diagonal entry of one sign.
    """
    g = make_generator(f"rotations {d}")
    Q = np.stack([quadratics.rotation(d, generator=g) for _ in range(4000)])
    assert np.abs(Q @ Q.swapaxes(1, 2) - np.eye(d)).max() < 1e-14
    u, v = np.ones(d) / np.sqrt(d), np.arange(1, d + 1) / np.linalg.norm(np.arange(1, d + 1))
    entries = np.column_stack([Q.reshape(4000, -1), Q @ v @ u])
    law = stats.beta((d - 1) / 2, (d - 1) / 2)
    chance.assert_p([stats.kstest((q + 1) / 2, law.cdf).pvalue for q in entries.T])
    reflections = int((np.linalg.det(Q) < 0).sum())
    chance.assert_counts(reflections, 4000, 0.5)


@pytest.mark.statistical
def test_in_one_dimension_a_rotation_is_a_sign():
    """d = 1: 1 and -1, as often as one another."""
    g = make_generator("signs")
    Q = np.concatenate([quadratics.rotation(1, generator=g) for _ in range(2000)])
    assert (np.abs(Q) == 1).all()
    chance.assert_counts((Q > 0).sum(), 2000, 0.5)


@pytest.mark.statistical(3)
@pytest.mark.parametrize("variance", [0.5, 3.5])
def test_white_inputs_may_have_any_variance(variance):
    """`regression(s I, n)` is the task of inputs N(0, s I) and weights N(0, I/s): n d tr H / (s d) is chi-square of n d
    degrees of freedom and s w*'w* of d, both by Kolmogorov and Smirnov; labels have variance d whatever s is.
    """
    d, n = 3, 4
    prompt = quadratics.regression(variance * np.eye(d), n).sample(
        N, generator=make_generator(f"variance {variance}"), dtype=torch.float64
    )
    traces = n * d * quadratics.mean_curvature(quadratics.hessians(prompt)) / variance
    chance.assert_p(stats.kstest(traces.numpy(), stats.chi2(n * d).cdf).pvalue)
    lengths = variance * prompt.w[:, 0].square().sum(-1)
    chance.assert_p(stats.kstest(lengths.numpy(), stats.chi2(d).cdf).pvalue)
    chance.assert_mean(prompt.y[:, -1].square(), d, error=0.05)
