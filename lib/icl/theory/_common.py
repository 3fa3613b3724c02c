"""Pieces of steady-state errors that several modules of the theory share."""

from typing import Any

import numpy as np
from scipy.special import erfcx, exp1

from icl import _checks
from icl._bounds import Positives, validated


@validated
def eigenvalues(d: int, spectrum: Positives) -> np.ndarray:
    """Eigenvalues of Lambda, one for each of a drift law's d directions."""
    s = np.asarray(spectrum, dtype=np.float64)
    _checks.shape("spectrum", s, (d,), "to match law")
    return s


def drift_increment(k: Any, gamma: Any, lam: Any, taken: Any) -> Any:
    """Per-step increment of E (w - w_hat)^2 in a coordinate from drift and decay, `taken` the mean share corrected.

        k [(1 - lam)^2 (1 + gamma b) + 2 lam (1 - gamma) (1 - b)] / (1 - gamma b),    b = lam (1 - taken)

    All terms are positive for lam <= 1: no cancellation.
    """
    less = (1 - lam) + lam * taken  # 1 - b
    moves = (1 - gamma) + gamma * less  # 1 - gamma b
    return k * ((1 - lam) ** 2 * (2 - moves) / moves + 2 * lam * ((1 - gamma) / moves) * less)


def mean_shrinkage(d: int, a: float) -> tuple[float, float]:
    """E r / (r + a) and E a / (r + a) over `squared_lengths`, a > 0, both to rounding however small they are.

    With x = a / 2 they are (d/2) e^x E_{d/2 + 1}(x) and x e^x E_{d/2}(x), exponential integrals [DLMF 8.19]: by the
    recurrence in their order where x is small, by their continued fraction elsewhere.
    """
    x, order = a / 2, d / 2
    if x > 1:
        current, above = _fraction(order, x), _fraction(order + 1, x)
    else:
        above, at = (np.sqrt(np.pi / x) * erfcx(np.sqrt(x)), 0.5) if d % 2 else (np.exp(x) * exp1(x), 1.0)
        while at <= order:
            current, above, at = above, (1 - x * above) / at, at + 1
    return float(order * above), float(x * current)


def _fraction(order: float, x: float) -> float:
    """e^x E_order(x), x > 1: 1/(x + s - 1 s / (x + s + 2 - 2 (s + 1) / (x + s + 4 - ...))), s = order, by Lentz."""
    below = x + order
    ratio = fraction = 1 / below
    top = np.inf
    for k in range(1, 500):
        term, step = k * (order + k - 1), x + order + 2 * k
        ratio, top = 1 / (step - term * ratio), step - term / top
        fraction *= top * ratio
        if abs(top * ratio - 1) < 1e-16:
            break
    return float(fraction)
