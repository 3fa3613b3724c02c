"""The quadratics of prompts against sums over examples, and their covariances against their eigenvalues."""

import numpy as np
import pytest
import torch

from icl.profile import streams
from icl.tasks import quadratics


def test_hessians_are_means_over_examples():
    """H is the mean of x_i x_i' over the labelled examples, one at a time; the query is not among them."""
    prompt = quadratics.regression(quadratics.covariance([1.0, 0.5, 2.0]), 4).sample(
        3, generator=streams("hessians"), dtype=torch.float64
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
        5, generator=streams("loss"), dtype=torch.float64
    )
    w = torch.randn(5, 5, generator=streams("loss, w"), dtype=torch.float64)
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
    U = quadratics.rotation(len(D), generator=streams("axes"))
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
    Sigma = quadratics.covariance(quadratics.SQUARED, quadratics.rotation(5, generator=streams("task")))
    task = quadratics.regression(Sigma, 20)
    assert (task.d, task.n) == (5, 20)
    np.testing.assert_array_equal(task.Lambda, Sigma)
    np.testing.assert_allclose(task.Lambda @ task.Sigma_w, np.eye(5), rtol=0, atol=1e-13)
    np.testing.assert_array_equal(task.Sigma_w, task.Sigma_w.T)


@pytest.mark.parametrize(("d", "n"), [(1, 1), (4, 1), (4, 3), (4, 9)])
def test_sampled_hessians_are_what_they_say(d, n):
    """Symmetric, positive semi-definite, of rank min(d, n), in the dtype asked for, the same from the same stream."""
    Sigma = quadratics.covariance(np.linspace(0.5, 2, d))
    for dtype in (torch.float32, torch.float64):
        H, again, other = (
            quadratics.sample_hessians(Sigma, n, 6, generator=streams("ranks", seed=s), dtype=dtype) for s in (0, 0, 1)
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
    H = quadratics.sample_hessians(np.eye(2), 3, 7, generator=streams("parts"))
    assert H.shape == (7, 2, 2)
    assert len(H[:, 0, 0].unique()) == 7
