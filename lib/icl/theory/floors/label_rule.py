"""Floor of a language whose label rule drifts (:mod:`icl.tasks.rules`): the exact posterior (not in the papers).

A label word says only the sign of a score, so that the Kalman filter, which wants the score, does not apply. The rule
w_t has d numbers, and for d = 1 and 2 the recursion of Bayes can be carried out as it stands [Jazwinski 1970, ch. 6]:

    p(w_t | labels before t)  =  integral of N(w_t; gamma w, sigma_e^2 I) p(w | labels before t)
    P(label t is positive)    =  integral of Phi(<w_t, x_t> / sigma_y) p(w_t | labels before t)
    p(w_t | labels to t)      ~  P(label t | w_t) p(w_t | labels before t)

Integrals of smooth functions that vanish at both ends are sums over an even grid, up to an error that falls like
exp(-2 pi^2 s^2 / h^2) with the spacing h, s the narrowest width there is [Trefethen & Weideman 2014]. It is bounded
from below, since a label word cannot tell more than its score would.
"""

from typing import Annotated

import numpy as np
from annotated_types import Gt, Le
from jaxtyping import Bool, Float
from scipy.special import ndtr

from icl import _checks
from icl._bounds import Positive, validated
from icl.tasks import DriftingRegression

#: The grid reaches so many standard deviations of the rule to each side.
_REACH = 6.5
#: The largest number of points along an axis of the grid.
_MOST = 800
#: Numbers in memory at once.
_ENTRIES = 4_000_000


@validated
def positive_probability(
    x: Float[np.ndarray, "batch time d"],
    positive: Bool[np.ndarray, "batch time"],
    rule: DriftingRegression,
    *,
    sigma_y: Positive,
    spacing: Annotated[float, Gt(0), Le(2)] = 1.0,
) -> Float[np.ndarray, "batch time"]:
    """Probability that each label word is positive, given its sentence and all earlier labelled sentences.

    No causal predictor has a lower expected log loss, or more answers right. Errors are below 1e-7 with the spacing
    that stands here, most often 1e-9, and below 1e-9 with 0.8.

    Args:
        x: what sentences mean, one prompt a row.
        positive: whether label words are positive; a label has no part in the answers up to its own.
        rule: gives gamma, sigma_w and sigma_e; its d is 1 or 2, and x may have any length.
        sigma_y: standard deviation of the noise in scores.
        spacing: of the grid, in units of a lower bound on the posterior's width. For a slow rule also a step has
            to span the grid's: gamma times the spacing is at most sigma_e.

    Raises:
        ValueError: if arguments are out of range or do not fit together, the spacing is wider than a step, or widths
            are so unequal that a grid of 800 points an axis is too coarse.
    """
    if rule.d > 2:
        raise ValueError(f"rule must have d = 1 or 2 for a grid, got {rule.d}")
    _checks.shape("x", x, (None, None, rule.d), "to match rule")
    time = x.shape[1]
    spreads = _spreads(rule, time)
    if not spreads[0] > 0:
        raise ValueError(f"rule must not start at 0 for sure, got sigma_w = {rule.sigma_w}, sigma_e = {rule.sigma_e}")
    if not rule.sigma_e and rule.gamma != 1:
        raise ValueError(f"rule must have innovations or gamma = 1, got sigma_e = 0 and gamma = {rule.gamma}")
    side = _REACH * spreads.max()
    with np.errstate(over="ignore"):
        # 1e300 is far past what any grid can follow, and its inverse is still a number.
        information = min(float(((x / sigma_y) ** 2).sum(-1).max(initial=0.0)), 1e300)
    width = _least_width(rule, information, time)
    if rule.sigma_e and spacing * width * rule.gamma > rule.sigma_e:
        raise ValueError(
            f"spacing must be at most {int(999 * rule.sigma_e / (rule.gamma * width)) / 1000} for a rule whose steps, "
            f"sigma_e = {rule.sigma_e}, are narrower than what these labels leave open, {width:.2g}, got {spacing!r}"
        )
    if 2 * side > (_MOST - 1) * spacing * width:
        raise ValueError(f"sigma_y must leave widths less unequal than {width:.2g} and {side:.2g}, got {sigma_y!r}")
    count = int(np.ceil(2 * side / (spacing * width))) + 1
    z = np.linspace(-side, side, count)
    first = np.exp(-((z / spreads[0]) ** 2) / 2)
    if rule.d == 2:
        first = np.multiply.outer(first, first)
    move = np.exp(-(((z[:, None] - rule.gamma * z) / rule.sigma_e) ** 2) / 2) if rule.sigma_e else None
    size = max(1, _ENTRIES // first.size)
    blocks = (slice(start, start + size) for start in range(0, len(x), size))
    answers = [_grid_filter(x[block], positive[block], z, first / first.sum(), move, sigma_y) for block in blocks]
    return np.concatenate(answers) if answers else np.empty(x.shape[:2])


def _grid_filter(
    x: np.ndarray, positive: np.ndarray, z: np.ndarray, first: np.ndarray, move: np.ndarray | None, sigma_y: float
) -> np.ndarray:
    """Grid filter for some prompts: z the grid along each axis, move the transition kernel, None for the identity."""
    d, answers = x.shape[2], np.empty(x.shape[:2])
    grid = np.stack(np.meshgrid(*[z] * d, indexing="ij"), axis=-1)
    axes = tuple(range(1, d + 1))
    belief = np.broadcast_to(first, (len(x), *first.shape))
    for t in range(x.shape[1]):
        if t and move is not None:
            for axis in axes:
                belief = np.moveaxis(np.tensordot(belief, move, (axis, 1)), -1, axis)
            belief = belief / belief.sum(axes, keepdims=True)
        # Sentences repeat; cache their likelihoods, the most expensive part.
        met, which = np.unique(x[:, t], axis=0, return_inverse=True)
        says = ndtr(np.tensordot(met, grid, (1, d)) / sigma_y)[which.reshape(-1)]
        both = belief * says
        answers[:, t] = both.sum(axes)
        belief = np.where(positive[:, t].reshape(-1, *[1] * d), both, belief - both)
        belief /= belief.sum(axes, keepdims=True)
    return answers


def _least_width(rule: DriftingRegression, information: float, time: int) -> float:
    """Lower bound on the posterior's width: every label at the Fisher information of the longest sentence.

    The logarithm of Phi(a w / sigma_y) has a curvature of at most a^2 / sigma_y^2, the information.
    """
    variance, least = rule.sigma_w**2, np.inf
    for _ in range(time):
        variance = rule.gamma**2 * variance + rule.sigma_e**2
        variance = 1 / (1 / variance + information)
        least = min(least, variance)
    return float(np.sqrt(least))


def _spreads(rule: DriftingRegression, time: int) -> np.ndarray:
    """Standard deviation of each coordinate of w_1 .. w_time."""
    variance, variances = rule.sigma_w**2, []
    for _ in range(time):
        variance = rule.gamma**2 * variance + rule.sigma_e**2
        variances.append(variance)
    return np.sqrt(variances)
