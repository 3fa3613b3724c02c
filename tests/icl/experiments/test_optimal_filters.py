"""Layers at their best as filters: each is the recurrence of its closed form, run over prompts of the law."""

import functools

import chance
import numpy as np
import pytest
import torch

from icl import filters
from icl.experiments.evaluation import clean_risk
from icl.experiments.optimal_filters import OPTIMAL_FILTERS, steady_task
from icl.profile import make_generator
from icl.tasks import Noisy
from icl.theory.steady import fast_weights

QUIET, NOISY = fast_weights.DriftLaw(5, 0.9, 0.2), fast_weights.DriftLaw(5, 0.9, 0.2, 0.3)


@functools.cache
def best_of(search, law):
    """What a search of the theory finds for a law."""
    return search(law)


def written(w, x, y, law, name):
    """One step of a layer, in the letters of `icl.theory.steady.fast_weights`."""
    r, g = x @ x, law.gamma
    match name:
        case "GLA, RetNet head":
            best = best_of(fast_weights.best_gla, law)
            return best.lam * (w + best.mu * y * x)
        case "GLA writing yx/r":
            best = best_of(fast_weights.best_normalised_gla, law)
            return best.lam * (w + best.mu * y * x / r)
        case "delta rule":
            best = best_of(fast_weights.best_delta, law)
            return best.lam * (w + best.mu * (y - w @ x) * x)
        case "Longhorn":
            best = best_of(fast_weights.best_unit_delta, law)
            return best.lam * (w + (y - w @ x) * x / (r + best.eps))
        case "best gates" | "Mamba-2's form":
            best = best_of(fast_weights.free_gates if name == "best gates" else fast_weights.zoh_gates, law)
            order = np.argsort(best.r)
            a, b = (np.interp(r, best.r[order], gate[order]) for gate in (best.a, best.b))
            return a * w + b * y * x
    p = best_of(fast_weights.channel_gates_error, law) / law.d
    b = g * p / (r * law.k0 - x**2 * (law.k0 - p))
    return (g - b * x**2) * w + b * y * x


@pytest.mark.parametrize("name", OPTIMAL_FILTERS)
@pytest.mark.parametrize("law", [QUIET, NOISY], ids=["quiet", "noisy"])
def test_each_is_its_recurrence_written_out(name, law):
    """Predictions over two prompts of 40 positions, rtol 1e-9. Channel gates are for clean labels."""
    if name == "a gate per channel" and law.sigma_y:
        with pytest.raises(ValueError, match="law must have d > 1 and labels without noise"):
            OPTIMAL_FILTERS[name](law)
        return
    filter, expected = OPTIMAL_FILTERS[name](law)
    assert best_of(fast_weights.best_unit_delta, law).error <= expected < law.zero_error
    prompt = steady_task(law, 39).sample(2, generator=make_generator("at best"), dtype=torch.float64)
    found = filters.run_filter(filter, prompt.x, prompt.y).numpy()
    for x, y, y_hat in zip(prompt.x.numpy(), prompt.y.numpy(), found, strict=True):
        w, by_hand = np.zeros(law.d), []
        for xt, yt in zip(x, y, strict=True):
            by_hand.append(w @ xt)
            w = written(w, xt, yt, law, name)
        np.testing.assert_allclose(y_hat, by_hand, rtol=1e-9, atol=1e-12)


@pytest.mark.statistical
@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("name", ["a gate per channel", "GLA writing yx/r"])
def test_the_error_is_the_one_expected(name):
    """Over the second half of 600 prompts of 200 positions: sees 10 %. The other
    layers are run against their formulas in the tests of `icl.theory.steady.fast_weights`.
    """
    filter, expected = OPTIMAL_FILTERS[name](QUIET)
    prompt = steady_task(QUIET, 199).sample(600, generator=make_generator("at best, error"), dtype=torch.float64)
    mean, error = clean_risk(filter, prompt, last=100)
    assert error < 0.015 * expected
    chance.assert_z((mean - expected) / error, skewed=0.04)


def test_tasks_start_in_the_steady_state():
    """The variance of a weight is k0 at every position, and noise is there where the law has some."""
    for law in (QUIET, NOISY):
        task = steady_task(law, 7)
        np.testing.assert_allclose(np.diag(task.weight_kernel()), law.k0, rtol=1e-12)
        assert isinstance(task, Noisy) == bool(law.sigma_y)
