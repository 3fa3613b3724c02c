"""Measured errors and their standard errors against exact ones."""

import numpy as np
import torch
from scipy import stats

from icl.models.one_layer import features, predict_from_features
from icl.profile import streams
from icl.runs.judging import squared_error
from icl.tasks import DriftingRegression
from icl.theory import one_layer


def test_measured_errors_are_the_theorys():
    """The measured errors of answering 0 and of the best layer are the theory's, and their standard errors say how far
    off they are.

    200 measurements of 500 prompts each. Pooled, |z| is below 6.1 against the closed form, failing by chance with
    probability 1e-9 by the central limit theorem; a standard error is below 0.8 % of the error, so that 5 % are seen.
    The variance of the 200 means over the mean of their squared standard errors lies between 0.5 and 1.75, which
    chi-square with 199 degrees of freedom leaves with probability 1e-9: standard errors off by half are seen.
    """
    task = DriftingRegression(d=3, n=8, gamma=0.9, sigma_e=0.3)
    lam = one_layer.optimal_forgetting(task)
    A = one_layer.optimum(task, lam=lam).A

    def predict(prompt):
        layer = predict_from_features(features(prompt, lam), A, prompt.x[:, -1])
        return torch.stack([torch.zeros_like(layer), layer])

    generator = streams("measured")
    runs = np.array([squared_error(predict, task, 500, generator=generator) for _ in range(200)])
    means, errors = runs[:, 0], runs[:, 1]
    pooled = np.sqrt((errors**2).mean(0) / 200)
    z = (means.mean(0) - [one_layer.zero_predictor(task), one_layer.training_error(task, lam=lam)]) / pooled
    assert (np.abs(z) < stats.norm.isf(1e-9 / 2)).all()
    assert (pooled < 0.008 * means.mean(0)).all()
    ratio = means.var(0, ddof=1) / (errors**2).mean(0)
    low, high = stats.chi2.ppf([0.5e-9, 1 - 0.5e-9], 199) / 199
    assert ((low < ratio) & (ratio < high)).all()
