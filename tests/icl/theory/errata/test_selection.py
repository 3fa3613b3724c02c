"""The Mamba paper's misprint against prompts that are drawn, at the sizes of the paper."""

import chance
import numpy as np
import pytest

from icl.theory import s6
from icl.theory.errata import selection
from icl.theory.s6 import Coefficients

D, N, D_H = 4, 50, 6
KNOWN = Coefficients(D, N, s6.assumed_alpha(N))


@pytest.mark.statistical(2)
def test_prompts_tell_the_two_beta2_apart(s6_prompts):
    """The mean of (sum_l omega_l y_l^2)^2 over 100,000 prompts is `Coefficients.beta2`, and more than 20 standard
    errors from the beta2 that is printed.
    """
    squares = s6_prompts[0].g[:, -1].numpy() ** 2
    chance.assert_mean(squares, KNOWN.beta2)
    chance.assert_above(squares - selection.printed_beta2(D, N, KNOWN.alpha), by=20)


def test_beta2_is_what_independent_squares_would_give():
    """The printed form, from sums over positions: y_i^2 y_j^2 has the mean d^2 for i != j, and 3 d^2 + 6 d for i = j.

    omega_l = (1 - alpha) alpha^(N + 1 - l), whose sum is beta3. rtol 1e-12.
    """
    d, count, alpha = 3, 4, 0.7
    omega = (1 - alpha) * alpha ** np.arange(count, 0, -1)
    mean = np.where(np.eye(count) == 1, 3 * d**2 + 6 * d, d**2)
    np.testing.assert_allclose(selection.printed_beta2(d, count, alpha), omega @ mean @ omega, rtol=1e-12)
