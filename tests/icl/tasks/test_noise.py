"""Labels with noise: it is added to prompts that are the task's own."""

import chance
import pandas as pd
import pytest
import torch
from scipy import stats

from icl.profile import make_generator
from icl.tasks import DriftingRegression, Mixture, Noisy, clean
from icl.tasks.noise import noise_level

DRIFT = DriftingRegression(d=3, n=12, gamma=0.9, sigma_w=0.25)


@pytest.mark.statistical
def test_noise_is_drawn_after_the_prompt():
    """Inputs and weights are the task's own to the bit, whatever the noise; labels differ by sigma_y times one draw, of
    78 normal numbers, among which half or twice the noise is seen.
    """
    plain = DRIFT.sample(6, generator=make_generator("n"), dtype=torch.float64)
    drawn = {}
    for sigma_y in (0.0, 0.5, 2.0):
        prompt = Noisy(DRIFT, sigma_y).sample(6, generator=make_generator("n"), dtype=torch.float64)
        assert torch.equal(prompt.x, plain.x)
        assert torch.equal(prompt.w, plain.w)
        assert torch.equal(clean(prompt), plain.y)
        drawn[sigma_y] = prompt.y - plain.y
    assert not drawn[0.0].any()
    chance.assert_within((drawn[0.5] / 0.5).square().sum(), stats.chi2(drawn[0.5].numel()))
    torch.testing.assert_close(drawn[2.0], 4 * drawn[0.5], rtol=1e-9, atol=1e-12)
    pd.testing.assert_frame_equal(
        pd.DataFrame(Noisy(DRIFT, 1.0).weight_kernel()), pd.DataFrame(DRIFT.weight_kernel()), check_exact=True
    )


def test_the_level_is_that_of_the_task():
    """Labels without noise have level 0, whatever the task."""
    assert noise_level(DRIFT) == 0.0
    assert noise_level(Noisy(DRIFT, 0.7)) == 0.7
    assert noise_level(Mixture([DRIFT, Noisy(DRIFT, 0.6)])) == pytest.approx(0.6 / 2**0.5, rel=1e-12)
