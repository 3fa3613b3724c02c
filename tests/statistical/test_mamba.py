"""The closed forms of the S6 layer against prompts that are drawn, at the sizes of the paper.

oracle/test_mamba_theory.py has them exactly, for prompts of two or three examples; here the sampler, the tokens and the
statistics of `icl.models.s6` are walked through at d = 4, N = 50.
"""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from icl import filters
from icl.models import s6 as model
from icl.models.s6 import S6, FixedStep, Selective
from icl.profile import streams
from icl.tasks import StationaryRegression, blocks
from icl.theory import s6
from icl.theory.errata import selection
from icl.theory.s6 import Coefficients, S6Weights

#: |z| that a standard normal number passes with probability 1e-9.
LIMIT = stats.norm.isf(1e-9 / 2)
TOTAL = 100_000
D, N, D_H = 4, 50, 6
KNOWN = Coefficients(D, N, s6.assumed_alpha(N))


@pytest.fixture(scope="module")
def prompts():
    """Statistics and labels of 100,000 prompts; they do not depend on the weights."""
    layer = model.assumed(D, D_H, N, generator=streams("unused"))
    known, labels = [], []
    for prompt in blocks(StationaryRegression(D, N), TOTAL, generator=streams("S6"), dtype=torch.float64):
        known.append(model.statistics(prompt, layer))
        labels.append(prompt.y[:, -1])
    joint = (torch.cat([getattr(k, name) for k in known]) for name in ("g", "s", "e"))
    return model.Statistics(*joint), torch.cat(labels)


def layer_of(weights):
    d_h = len(weights.b_B)
    parts = Selective(D + 1, d_h), Selective(D + 1, d_h)
    with torch.no_grad():
        for part, W, b in zip(parts, (weights.W_B, weights.W_C), (weights.b_B, weights.b_C), strict=True):
            part.W.copy_(torch.as_tensor(W))
            part.b.copy_(torch.as_tensor(b))
    return S6(*parts, FixedStep(-math.log(KNOWN.alpha)), -torch.ones(1, dtype=torch.float64))


def judged(values, expected):
    """z of a mean, and its standard error as a part of what is expected."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    return (values.mean() - expected) / error, error / expected


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_population_loss_against_prompts(prompts, seed):
    """`population_loss` is half the mean squared error on 100,000 prompts of layers with weights and biases all drawn.

    |z| below 6.1: by the central limit theorem it fails by chance with probability 1e-9. A standard error is below 1 %
    of the loss, so that 6 % are seen.
    """
    generator = np.random.default_rng(seed)
    weights = S6Weights(*(0.5 * generator.normal(size=s) for s in ((D_H, D + 1), (D_H, D + 1), D_H, D_H)))
    with torch.no_grad():
        errors = (model.read_out(layer_of(weights), prompts[0]) - prompts[1]).numpy()
    z, part = judged(errors**2 / 2, s6.population_loss(weights, KNOWN))
    assert part < 0.01
    assert abs(z) < LIMIT


def test_prompts_tell_the_two_beta2_apart(prompts):
    """The mean of (sum_l omega_l y_l^2)^2 over 100,000 prompts is `Coefficients.beta2`, |z| below 6.1 (failing by
    chance with probability 1e-9), and more than 20 standard errors from the beta2 that is printed.
    """
    squares = prompts[0].g[:, -1].numpy() ** 2
    assert abs(judged(squares, KNOWN.beta2)[0]) < LIMIT
    assert judged(squares, selection.printed_beta2(D, N, KNOWN.alpha))[0] > 20


@pytest.mark.parametrize("N_test", [10, 50, 200])
def test_shifted_loss_against_prompts(N_test):
    """The layer whose step and beta are made for N = 50, on 40,000 prompts of 10, 50 and 200 examples: `shifted_loss`.

    |z| below 6.1, failing by chance with probability 1e-9; a standard error is below 1.5 % of the loss, so that 9 % are
    seen. The losses differ from one another by a third and more.
    """
    beta, least = s6.optimal_beta(D, N, KNOWN.alpha)
    W = np.hstack([math.sqrt(beta) * np.eye(D), np.zeros((D, 1))])
    layer = layer_of(S6Weights(W, W, np.zeros(D), np.zeros(D)))
    losses = []
    task = StationaryRegression(D, N_test)
    for prompt in blocks(task, 40_000, size=5_000, generator=streams("shifted", seed=N_test), dtype=torch.float64):
        with torch.no_grad():
            errors = model.read_out(layer, model.statistics(prompt, layer)) - prompt.y[:, -1]
        losses.append(errors.numpy() ** 2 / 2)
    expected = s6.shifted_loss(D, N_test, KNOWN.alpha, beta)
    z, part = judged(np.concatenate(losses), expected)
    assert part < 0.015
    assert abs(z) < LIMIT
    assert N_test == N or expected > 1.3 * least


def test_lms_loss_against_the_filter():
    """`icl.filters.lms` with mu = 1 / (d + 2) after 4 examples, on 100,000 prompts: `lms_loss`.

    |z| below 6.1, failing by chance with probability 1e-9; a standard error is below 1.5 %, so that 9 % are seen, and
    one example more or less is 17 %.
    """
    prompt = StationaryRegression(D, 4).sample(100_000, generator=streams("lms"), dtype=torch.float64)
    y_hat = filters.run_filter(filters.lms(1 / (D + 2)), prompt.x, prompt.y)[:, -1]
    z, part = judged((y_hat - prompt.y[:, -1]).numpy() ** 2 / 2, s6.lms_loss(D, 4))
    assert part < 0.015
    assert abs(z) < LIMIT
