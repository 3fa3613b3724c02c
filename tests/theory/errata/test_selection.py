"""The Mamba paper's misprint against prompts that are drawn, at the sizes of the paper."""

import chance
import numpy as np
import pytest

from icl.theory import s6
from icl.theory.errata import selection
from icl.theory.s6 import Coefficients

TOTAL = 100_000
D, N, D_H = 4, 50, 6
KNOWN = Coefficients(D, N, s6.assumed_alpha(N))


def judged(values, expected):
    """z of a mean, and its standard error as a part of what is expected."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    return (values.mean() - expected) / error, error / expected


@pytest.mark.statistical(2)
def test_prompts_tell_the_two_beta2_apart(s6_prompts):
    """The mean of (sum_l omega_l y_l^2)^2 over 100,000 prompts is `Coefficients.beta2`, and more than 20 standard
    errors from the beta2 that is printed.
    """
    squares = s6_prompts[0].g[:, -1].numpy() ** 2
    chance.assert_mean(squares, KNOWN.beta2)
    chance.assert_above(squares - selection.printed_beta2(D, N, KNOWN.alpha), by=20)
