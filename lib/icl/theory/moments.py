"""Moments D1 .. D4: the four scalars through which drift and forgetting enter every result of Part I.

With a_i = lam^(n+1-i), the weight that gated attention gives to example i, and k_ij the covariance of w_i and w_j in
each coordinate:

    D1 = sum_i a_i k_{i,n+1}                covariance of the weighted past with the query's weight
    D2 = sum_i a_i^2 k_ii                   crosstalk of the examples
    D3 = sum_{i != j} a_i a_j k_ij          covariance between different examples
    D4 = k_{n+1,n+1}                        variance of the query's weight

Sums over i run from 1 to n. The paper prints closed forms (Theorem 1); :func:`recursion` needs none, is exact for every
lam >= 0 and gamma >= 0, and, adding only terms of one sign, loses no digits.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from icl import _checks
from icl._bounds import Count, NonNegatives, Positives, Reals, validated
from icl.tasks import DriftingRegression, Task

#: The least number above 0, which keeps 0 / 0 at 0.
_LEAST = 5e-324


@dataclass(frozen=True)
class Moments:
    """Moments D1 .. D4, each a float64 array of the broadcast shape of lam, gamma and the scales; in units of (y/x)^2.

    `residual`, D2 + D3 - D1^2 / D4, is the variance that sum_i a_i w_i has given w_{n+1}; 0 where D4 is.
    """

    D1: Float[np.ndarray, "*shape"]
    D2: Float[np.ndarray, "*shape"]
    D3: Float[np.ndarray, "*shape"]
    D4: Float[np.ndarray, "*shape"]
    residual: Float[np.ndarray, "*shape"]


def _moments(*values: Any) -> Moments:
    # numpy turns 0-d arrays into scalars in arithmetic; a field is an array whatever its shape.
    return Moments(*(np.asarray(value) for value in values))


@validated
def recursion(
    lam: NonNegatives, *, gamma: NonNegatives, n: Count, sigma_w: NonNegatives = 1.0, sigma_e: NonNegatives = 0.1
) -> Moments:
    """D1 .. D4 for the drift (3), by recursion over time steps.

    Appending an example to a prompt of length m ages the past by one step, so with k = k_mm

        D3 <- lam^2 (D3 + 2 D1)    D2 <- lam^2 (D2 + k)    D1 <- lam gamma (D1 + k)    k <- gamma^2 k + sigma_e^2

    (in this order), from D1 = D2 = D3 = 0; at the end D4 = k. With the new k and V = D2 + D3, the residual is

        R <- (lam^2 gamma^2 (the old k) R + sigma_e^2 V) / k

    where D2 + D3 - D1^2 / D4 would cancel for slowly drifting weights. Arrays broadcast.

    Args:
        lam: forgetting factor, dimensionless (the paper's (0, 1], and beyond for its Theorem 4).
        gamma: autoregressive coefficient.
        n: number of examples.
        sigma_w: standard deviation of w_0.
        sigma_e: standard deviation of the innovations.

    Raises:
        ValueError: if an argument is negative, not finite, or n is no positive integer.

    >>> from icl.theory import moments
    >>> D = moments.recursion(0.9, gamma=0.95, n=50)
    >>> round(float(D.D1), 3), round(float(D.D2), 3), round(float(D.D4), 3)
    (0.685, 0.479, 0.107)
    """
    lam, gamma, sigma_w, sigma_e = np.broadcast_arrays(
        *(np.asarray(v, dtype=np.float64) for v in (lam, gamma, sigma_w, sigma_e))
    )
    D1, D2, D3, R = (np.zeros(lam.shape) for _ in range(4))
    squares, step, fade, q = lam**2, lam * gamma, gamma**2, sigma_e**2
    k = fade * sigma_w**2 + q
    for _ in range(n):
        D3 = squares * (D3 + 2 * D1)
        D2 = squares * (D2 + k)
        D1 = step * (D1 + k)
        decayed, k = fade * k, fade * k + q
        R = (decayed * squares * R + q * (D2 + D3)) / np.maximum(k, _LEAST)
    return _moments(D1, D2, D3, k, R)


@validated
def from_kernel(weights: Reals, kernel: Float[np.ndarray, "time time"]) -> Moments:
    """D1 .. D4 for any drift and any weights on the past, from the definition.

    Args:
        weights: a_i, shape (..., n).
        kernel: k_ij, shape (n+1, n+1), as from `task.weight_kernel()`.
    """
    a = np.asarray(weights, dtype=np.float64)
    n = len(kernel) - 1
    if a.shape[-1:] != (n,):
        raise ValueError(f"weights must have {n} entries on their last axis to match kernel, got shape {a.shape}")
    past, variance = kernel[:n, :n], np.diag(kernel)
    D1, D2, D4 = a @ kernel[:n, n], a**2 @ variance[:n], variance[n]
    total = np.einsum("...i,ij,...j->...", a, past, a)
    residual = (total - (D1**2 / D4 if D4 > 0 else total)).clip(min=0)
    return _moments(D1, D2, total - D2, np.full(D2.shape, D4), residual)


@validated
def task_moments(task: Task, lam: NonNegatives) -> Moments:
    """D1 .. D4 of a task at forgetting factor(s) lam: by recursion for the drift (3), from the kernel otherwise."""
    if isinstance(task, DriftingRegression):
        return recursion(lam, gamma=task.gamma, n=task.n, sigma_w=task.sigma_w, sigma_e=task.sigma_e)
    _checks.isotropic(task)
    powers = np.asarray(lam, dtype=np.float64)[..., None] ** np.arange(task.n, 0, -1)
    return from_kernel(powers, task.weight_kernel())


@validated
def relative(task: Task, lam: Positives) -> Moments:
    """D1 .. D4 in scaled units that neither overflow nor underflow, for any lam > 0, gamma and n.

    D1^2 / (D2 D4) and D3 / D2 are those of :func:`task_moments`: the a_i and the weights have units of their own, which
    no share of the error depends on. Appending an example to m of them, with u = min(lam, 1), g = max(gamma, 1) and the
    new example's a_i sqrt(k_ii) f, in units that grow by h = max(g / max(lam, 1), 1),

        D3 <- (u^2 D3 + 2 u f D1) / h^2    D2 <- (u^2 D2 + f^2 k) / h^2    D1 <- gamma (u D1 + f k) / (g h)
        f <- f min(g / max(lam, 1), 1)     k <- (gamma^2 k + sigma_e^2 / g^(2 m)) / g^2

    Args:
        task: gives the drift.
        lam: forgetting factor(s).

    Raises:
        ValueError: if lam is not positive, or a kernel is not finite.
    """
    lam = np.asarray(lam, dtype=np.float64)
    small, large = np.minimum(lam, 1), np.maximum(lam, 1)
    with np.errstate(under="ignore"):
        if not isinstance(task, DriftingRegression):
            _checks.isotropic(task)
            kernel = task.weight_kernel()
            powers = small[..., None] ** np.arange(task.n - 1, -1, -1) / large[..., None] ** np.arange(task.n)
            return from_kernel(powers, kernel / (np.abs(kernel).max() or 1.0))
        D1, D2, D3, R, fresh = *(np.zeros(lam.shape) for _ in range(4)), np.ones(lam.shape)
        unit, grows = np.hypot(task.gamma * task.sigma_w, task.sigma_e), max(task.gamma, 1.0)
        k, decay, pushed = float(unit > 0), task.gamma / grows, task.sigma_e / (unit or 1.0) / grows
        units, later = np.maximum(grows / large, 1), np.minimum(grows / large, 1)
        for _ in range(task.n):
            D3 = (small / units) ** 2 * D3 + 2 * small / units * fresh * (D1 / units)
            D2 = (small / units) ** 2 * D2 + (fresh / units) ** 2 * k
            D1 = decay * (small * D1 + fresh * k) / units
            aged, k = decay**2 * k, decay**2 * k + pushed**2
            R = (aged * (small / units) ** 2 * R + pushed**2 * (D2 + D3)) / max(k, _LEAST)
            fresh, pushed = fresh * later, pushed / grows
    return _moments(D1, D2, D3, np.full(lam.shape, k), R)
