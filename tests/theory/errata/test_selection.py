"""The Mamba paper's misprint against prompts that are drawn, at the sizes of the paper."""

import numpy as np
import pytest
import torch
from scipy import stats

from icl.models import s6 as model
from icl.profile import streams
from icl.tasks import StationaryRegression, blocks
from icl.theory import s6
from icl.theory.errata import selection
from icl.theory.s6 import Coefficients

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


def judged(values, expected):
    """z of a mean, and its standard error as a part of what is expected."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    return (values.mean() - expected) / error, error / expected


def test_prompts_tell_the_two_beta2_apart(prompts):
    """The mean of (sum_l omega_l y_l^2)^2 over 100,000 prompts is `Coefficients.beta2`, |z| below 6.1 (failing by
    chance with probability 1e-9), and more than 20 standard errors from the beta2 that is printed.
    """
    squares = prompts[0].g[:, -1].numpy() ** 2
    assert abs(judged(squares, KNOWN.beta2)[0]) < LIMIT
    assert judged(squares, selection.printed_beta2(D, N, KNOWN.alpha))[0] > 20
