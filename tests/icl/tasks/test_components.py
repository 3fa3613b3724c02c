"""Gaussian mixtures with means: moments against samples, posteriors against Bayes by scipy, bad input."""

import chance
import numpy as np
import pytest
import torch
from scipy import stats

from icl.profile import make_generator
from icl.tasks.components import ComponentPrompt, GaussianComponents

ROOT = np.array([[1.0, 0.0], [0.6, 0.8]])
TWO = {"means": [[1.0, -2.0], [0.5, 0.0]], "covariances": [ROOT @ ROOT.T, 2 * np.eye(2)], "shares": [1.0, 3.0]}


@pytest.mark.statistical(7)
@pytest.mark.parametrize("per_token", [False, True])
def test_second_moments_are_those_of_samples(per_token):
    """40,000 prompts of two correlated components: shares, E x x' and E w* w*' of each. Entries off by 5 % are seen.

    Planted: the covariance's root transposed, w* of covariance Sigma, shares not divided by their sum are seen.
    """
    task = GaussianComponents(2, 3, **TWO, per_token=per_token)
    prompt = task.sample(40_000, generator=make_generator("components"), dtype=torch.float64)
    component, x, w = prompt.component.numpy(), prompt.x[:, -1].numpy(), prompt.w[:, -1].numpy()
    chance.assert_counts([(component == 1).sum(), (prompt.of_inputs[:, 1] == 1).sum()], 40_000, 0.75)
    for m in range(2):
        mine = component == m
        chance.assert_mean(x[mine][:, :, None] * x[mine][:, None], task.S_x[m])
        chance.assert_mean(w[mine][:, :, None] * w[mine][:, None], task.S_w[m])
        chance.assert_mean(w[mine], task.means[m])
    assert torch.equal(prompt.y, (prompt.w * prompt.x).sum(-1))
    assert per_token != torch.equal(prompt.of_inputs, prompt.component[:, None].expand(-1, 4))


def test_multiples_are_vectors_and_matrices():
    """A number times ones, and times I, is the same task as what it stands for: the same draws, to the bit."""
    short = GaussianComponents(2, 3, [2.5, -1], [0.5, 2], [0.2, 0.8])
    long = GaussianComponents(2, 3, [[2.5, 2.5], [-1, -1]], [0.5 * np.eye(2), 2 * np.eye(2)], [1, 4])
    one, other = (task.sample(9, generator=make_generator("same"), dtype=torch.float64) for task in (short, long))
    for part in ("x", "y", "w", "component"):
        assert torch.equal(getattr(one, part), getattr(other, part))
    np.testing.assert_allclose(short.S_x[0], 0.5 * np.eye(2) + 6.25, rtol=1e-15)
    np.testing.assert_allclose(short.S_w[0], 2 * np.eye(2) + 6.25, rtol=1e-15)
    alone = short.only(1)
    assert (alone.count, alone.shares.tolist(), alone.means[0].tolist()) == (1, [1.0], [-1.0, -1.0])
    assert alone.sample(2, generator=make_generator("same")).x.dtype == torch.float32


def test_the_posterior_is_bayes():
    """Against scipy's densities of all inputs, to 1e-9; rows sum to 1. By token the inputs say nothing.

    Planted: a factor 2 at the determinant is seen.
    """
    task = GaussianComponents(2, 3, **TWO)
    X = task.sample(20, generator=make_generator("posterior"), dtype=torch.float64).x[:, :-1]
    dense = np.stack(
        [
            np.log(share) + stats.multivariate_normal(mean, covariance).logpdf(X.numpy()).sum(1)
            for share, mean, covariance in zip(task.shares, task.means, task.covariances, strict=True)
        ],
        axis=1,
    )
    expected = np.exp(dense) / np.exp(dense).sum(1, keepdims=True)
    np.testing.assert_allclose(task.posterior(X).numpy(), expected, rtol=1e-9)
    tokens = GaussianComponents(2, 3, **TWO, per_token=True)
    np.testing.assert_allclose(tokens.posterior(X).numpy(), np.tile([0.25, 0.75], (20, 1)), rtol=1e-12)


@pytest.mark.statistical
def test_the_posterior_is_calibrated():
    """Over 40,000 prompts the mean of what is said of a component less whether it was one is 0."""
    task = GaussianComponents(1, 4, [0.5, 0.0, -0.5], [0.5, 1, 2], [0.2, 0.3, 0.5])
    prompt = task.sample(40_000, generator=make_generator("calibrated"), dtype=torch.float64)
    said = task.posterior(prompt.x[:, :-1]).numpy()
    chance.assert_mean(said - np.eye(3)[prompt.component.numpy()], 0)


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"covariances": [1.0, 0.0]}, "covariances must be positive definite"),
        ({"covariances": [np.eye(3)] * 2}, r"covariances must have shape \(components,\) or \(components, 2, 2\)"),
        ({"covariances": [[[1, 0.5], [0, 1]], np.eye(2)]}, "covariances must be symmetric"),
        ({"means": [1.0]}, r"means must have shape \(2,\) or \(2, 2\) to match covariances, got \(1,\)"),
        ({"shares": [1.0, 0.0]}, "shares must be finite and > 0"),
        ({"shares": [1.0]}, r"shares must have shape \(2,\)"),
    ],
)
def test_impossible_mixtures_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        GaussianComponents(2, 3, **TWO | change)


@pytest.mark.usefixtures("as_installed")
def test_components_that_do_not_fit_are_refused_by_name():
    prompt = GaussianComponents(2, 3, **TWO).sample(2, generator=make_generator("bad"))
    with pytest.raises(ValueError, match="component must have shape"):
        ComponentPrompt(prompt.x, prompt.y, prompt.w, prompt.component[:1], prompt.of_inputs)
    with pytest.raises(ValueError, match="of_inputs must have dtype"):
        ComponentPrompt(prompt.x, prompt.y, prompt.w, prompt.component, prompt.of_inputs.float())
