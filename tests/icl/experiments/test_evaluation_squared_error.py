"""Measured errors against plain means over the very prompts they were measured on, and against exact ones."""

import chance
import numpy as np
import pytest
import torch
from scipy import stats
from shared import Replay

from icl.experiments.evaluation import squared_error
from icl.models.one_layer import features, predict_from_features
from icl.profile import make_generator
from icl.tasks import DriftingRegression
from icl.theory import one_layer

# Oracles

TASK = DriftingRegression(d=3, n=8, gamma=0.9, sigma_e=0.3)


def zero(prompt):
    return torch.zeros_like(prompt.y[:, -1])


def several(prompt):
    """Predictions with two leading axes: four forgetting factors, and three scales."""
    y_hat = predict_from_features(features(prompt, [0.3, 0.6, 0.9, 1.0]), np.eye(3), prompt.x[:, -1])
    return torch.tensor([0.0, 0.1, 0.2], dtype=y_hat.dtype)[:, None, None] * y_hat


@pytest.mark.parametrize("size", [1, 7, 300, 999, 1000, 20_000])
def test_squared_error_is_a_plain_mean(size):
    """The error and its standard error are the mean over all prompts and its standard error, however many prompts are
    held at once.

    1,000 prompts in blocks of 1 to 1,000, last blocks of one prompt and half-full ones among them: each prompt counts
    the same. rtol 1e-12 for the mean, 1e-9 for the standard error, which is a difference.
    """
    task = Replay(1000)
    mean, error = squared_error(zero, task, 1000, generator=make_generator("unused"), size=size)
    squares = task.pool.y[:, -1].numpy() ** 2
    asked = [batch for batch, _ in task.asked]
    assert max(asked) <= size
    assert sum(asked) == 1000
    np.testing.assert_allclose(mean, squares.mean(), rtol=1e-12)
    np.testing.assert_allclose(error, stats.sem(squares), rtol=1e-9)


@pytest.mark.parametrize("size", [300, 20_000])
def test_several_predictors_share_their_prompts(size):
    """Predictors on leading axes are measured on the same prompts, each as it is alone.

    Three by four of them on 1,000 prompts; rtol 1e-12, 1e-9 for the standard error. The four that answer 0 have the
    same error, bit for bit.
    """
    mean, error = squared_error(several, Replay(1000), 1000, generator=make_generator("unused"), size=size)
    assert mean.shape == error.shape == (3, 4)
    assert (mean[0] == mean[0, 0]).all()
    for at in np.ndindex(3, 4):
        alone = squared_error(
            lambda p, at=at: several(p)[at], Replay(1000), 1000, generator=make_generator("unused"), size=size
        )
        np.testing.assert_allclose(mean[at], alone[0], rtol=1e-12)
        np.testing.assert_allclose(error[at], alone[1], rtol=1e-9)


def test_two_prompts_are_enough():
    """Of two prompts with squared errors a and b the mean is (a + b) / 2 and its standard error |a - b| / 2.

    rtol 1e-12.
    """
    task = Replay(2)
    a, b = task.pool.y[:, -1].numpy() ** 2
    mean, error = squared_error(zero, task, 2, generator=make_generator("unused"), size=1)
    np.testing.assert_allclose([mean, error], [(a + b) / 2, abs(a - b) / 2], rtol=1e-12)


def test_the_same_error_everywhere_has_no_standard_error():
    """A predictor that misses every label by the same number has a standard error of 0 and not NaN, where rounding puts
    the difference of two sums below 0.

    40 numbers from 0.1 to 5 on 1,000 prompts; at most 1e-8 of the error, the root of the rounding of a sum of squares.
    Planted: without a guard several of them give NaN.
    """
    for miss in np.linspace(0.1, 5, 40):
        task = Replay(1000)
        mean, error = squared_error(
            lambda p, m=miss: p.y[:, -1] + m, task, 1000, generator=make_generator("unused"), size=300
        )
        np.testing.assert_allclose(mean, miss**2, rtol=1e-12)
        assert 0 <= error <= 1e-8 * mean


def test_prompts_come_from_the_generator():
    """The same stream measures the same error, bit for bit, and another stream another; predictions see prompts of the
    asked dtype, float64 unless told otherwise, and no gradient is kept.
    """
    seen = []

    def predict(prompt):
        seen.append((prompt.x.dtype, torch.is_grad_enabled(), prompt.batch))
        return zero(prompt)

    one, same, other = (
        squared_error(predict, TASK, 50, generator=make_generator("x", seed=s), size=20) for s in (0, 0, 1)
    )
    assert one == same
    assert one[0] != other[0]
    assert seen[:3] == [(torch.float64, False, batch) for batch in (20, 20, 10)]
    squared_error(predict, TASK, 50, generator=make_generator("x"), dtype=torch.float32)
    assert seen[-1] == (torch.float32, False, 50)


# Statistics


@pytest.mark.statistical(2)
def test_measured_errors_are_the_theorys():
    """The measured errors of answering 0 and of the best layer are the theory's, and their standard errors say how far
    off they are.

    200 measurements of 500 prompts each. A standard error of all of them is below 0.8 % of the error, so that 6 % are
    seen. The variance of the 200 means over the mean of their squared standard errors is chi-square with 199 degrees of
    freedom, over 199: between 0.5 and 1.75, so that standard errors off by half are seen.
    """
    task = DriftingRegression(d=3, n=8, gamma=0.9, sigma_e=0.3)
    lam = one_layer.optimal_forgetting(task)
    A = one_layer.optimum(task, lam=lam).A

    def predict(prompt):
        layer = predict_from_features(features(prompt, lam), A, prompt.x[:, -1])
        return torch.stack([torch.zeros_like(layer), layer])

    generator = make_generator("measured")
    runs = np.array([squared_error(predict, task, 500, generator=generator) for _ in range(200)])
    means, errors = runs[:, 0], runs[:, 1]
    pooled = np.sqrt((errors**2).mean(0) / 200)
    z = (means.mean(0) - [one_layer.zero_predictor(task), one_layer.training_error(task, lam=lam)]) / pooled
    chance.assert_z(z, skewed=0.03)
    assert (pooled < 0.009 * means.mean(0)).all()
    ratio = means.var(0, ddof=1) / (errors**2).mean(0)
    chance.assert_within(199 * ratio, stats.chi2(199))
