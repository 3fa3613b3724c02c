"""Filters at their analytically optimal hyperparameters, with the error that the closed form predicts.

:data:`OPTIMAL_FILTERS` maps names to functions from a law (:class:`~icl.theory.steady.fast_weights.DriftLaw`) to the
filter and its predicted error. :func:`steady_task` draws prompts of that law in steady state.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from icl import filters
from icl._bounds import Count, validated
from icl.tasks import DriftingRegression, Noisy, Task
from icl.theory.steady import fast_weights

_Found = tuple[filters.Filter, float]


@validated
def steady_task(law: fast_weights.DriftLaw, n: Count) -> Task:
    """Task of a drift law in steady state: stationary weights, labels with its noise.

    Args:
        law: drift and noise.
        n: labelled examples a prompt.

    >>> from icl.experiments.evaluation import clean_risk
    >>> from icl.profile import make_generator
    >>> law = fast_weights.DriftLaw(4, 0.95, 0.3)
    >>> delta_rule, predicted = OPTIMAL_FILTERS["delta rule"](law)
    >>> prompts = steady_task(law, 100).sample(400, generator=make_generator("example"), dtype=torch.float64)
    >>> risk, se = clean_risk(delta_rule, prompts, last=50)
    >>> bool(abs(risk - predicted) < 5 * se)
    True
    """
    drift = DriftingRegression(law.d, n, law.gamma, sigma_w=law.k0**0.5, sigma_e=law.sigma_e)
    return Noisy(drift, law.sigma_y) if law.sigma_y else drift


def _filter_from_step(step: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> filters.Filter:
    """Filter with the update w <- step(w, x, y, x'x)."""

    def moved(state: filters.Estimate, x: Tensor, y: Tensor, y_hat: Tensor) -> filters.Estimate:
        return filters.Estimate(step(state.w_hat, x, y, x.square().sum(0)))

    return filters.Filter(filters.Estimate, moved)


def _gla(law: fast_weights.DriftLaw) -> _Found:
    best = fast_weights.best_gla(law)
    return filters.gla(best.mu * np.eye(law.d), lam=best.lam), best.error


def _normalised_gla(law: fast_weights.DriftLaw) -> _Found:
    best = fast_weights.best_normalised_gla(law)
    return _filter_from_step(lambda w, x, y, r: best.lam * (w + best.mu * y * x / r)), best.error


def _interpolated_gates(best: fast_weights.Gates) -> _Found:
    """Gates tabulated at nodes r = x'x, interpolated between them."""
    order = np.argsort(best.r)

    def gate(values: np.ndarray, r: Tensor) -> Tensor:
        return torch.from_numpy(np.interp(r.numpy(), best.r[order], values[order]))

    return _filter_from_step(lambda w, x, y, r: gate(best.a, r) * w + gate(best.b, r) * y * x), best.error


def _channels(law: fast_weights.DriftLaw) -> _Found:
    error = fast_weights.channel_gates_error(law)
    p = error / law.d

    def step(w: Tensor, x: Tensor, y: Tensor, r: Tensor) -> Tensor:
        b = law.gamma * p / (r * law.k0 - x.square() * (law.k0 - p))
        return (law.gamma - b * x.square()) * w + b * y * x

    return _filter_from_step(step), error


def _delta(law: fast_weights.DriftLaw) -> _Found:
    best = fast_weights.best_delta(law)
    return filters.delta_rule(best.mu, lam=best.lam), best.error


def _longhorn(law: fast_weights.DriftLaw) -> _Found:
    best = fast_weights.best_unit_delta(law)
    return filters.normalised_delta_rule(1.0, lam=best.lam, eps=best.eps), best.error


#: From a law to the optimal layer and its predicted error; prompts in float64. The gates of the third, fourth and last
#: depend on the current key; those of the last assume noise-free labels.
OPTIMAL_FILTERS: dict[str, Callable[[fast_weights.DriftLaw], tuple[filters.Filter, float]]] = {
    "GLA, RetNet head": _gla,
    "GLA writing yx/r": _normalised_gla,
    "Mamba-2's form": lambda law: _interpolated_gates(fast_weights.zoh_gates(law)),
    "best gates": lambda law: _interpolated_gates(fast_weights.free_gates(law)),
    "delta rule": _delta,
    "Longhorn": _longhorn,
    "a gate per channel": _channels,
}
