"""Exact errors of the first-order filters LMS and NLMS, with and without leakage (not in the paper).

The recurrence w_hat <- lam (w_hat + mu M (w - w_hat)) with M = x x', or x x' / x'x when normalised, is linear in the
weights, so two numbers an eigendirection j of Lambda carry its mean square: c_j = E w_j w_hat_j, a_j = E w_hat_j^2.
With the weights' own variance k,

    c_j <- gamma lam (c_j + mu s_j (k - c_j))
    a_j <- lam^2 (a_j + 2 mu s_j (c_j - a_j) + mu^2 [(kurtosis - 1) s_j^2 e_j + s_j sum_i s_i e_i]),
    e_j  = k - 2 c_j + a_j,    error = sum_j s_j e_j

for M = x x'; and s_j = 1 / d, with [e_j / d], for the normalised form, whose M is a projection. Inputs are independent
of one another, and so of the estimate: no approximation is made. [Sayed 2011, ch. 20-23] treats the same filters.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from icl._bounds import NonNegatives, Positives, validated
from icl.tasks import DriftingRegression
from icl.theory._common import drift_increment


@dataclass(frozen=True)
class _Settings:
    """Step size and leakage with a last axis for directions, and the moments of M in each of these."""

    mu: np.ndarray
    lam: np.ndarray
    s: np.ndarray  # E M
    diagonal: np.ndarray  # E M D M = diagonal D + s tr(across D), D diagonal
    across: np.ndarray
    out: np.ndarray  # error = sum_j out_j e_j


def _settings(task: Any, mu: NonNegatives, lam: Positives, normalised: bool) -> _Settings:
    if not isinstance(task, DriftingRegression):
        raise ValueError(f"task must be a DriftingRegression, whose errors these are, got {task!r}")
    mu = np.asarray(mu, dtype=np.float64)[..., None]
    lam = np.asarray(lam, dtype=np.float64)[..., None]
    try:
        np.broadcast_shapes(mu.shape, lam.shape)
    except ValueError:
        raise ValueError(
            f"mu and lam must broadcast against each other, got {mu[..., 0].shape}, {lam[..., 0].shape}"
        ) from None
    s = np.linalg.eigvalsh(task.Lambda).clip(min=0)
    if not normalised:
        return _Settings(mu, lam, s, (task.inputs.kurtosis - 1) * s**2, s, s)
    if not np.array_equal(task.Lambda, s[0] * np.eye(task.d)) or not s[0]:
        raise ValueError(f"Lambda must be a multiple of the identity for the normalised form, got {task.Lambda}")
    share = np.full(task.d, 1 / task.d)
    return _Settings(mu, lam, share, share, np.zeros(task.d), s)


def _refuse_lost_digits(error: Any, zero: Any) -> None:
    """Raise if errors are lost in the rounding of the weights' variance, which they are differences of."""
    if (error < 1e-9 * zero).any():
        raise ValueError(
            "task must leave errors of 1e-9 of the zero predictor's, below which they are rounding, got one of "
            f"{error[error < 1e-9 * zero].flat[0]:.2g}: shorten the prompt, or let the weights move more"
        )


@validated
def errors(
    task: DriftingRegression, mu: NonNegatives, *, lam: Positives = 1.0, normalised: bool = False
) -> Float[np.ndarray, "*shape time"]:
    """Mean squared a-priori error at each of the n + 1 positions, from w_hat = 0; entry i has seen i examples.

    Args:
        task: gives d, n, gamma, sigma_w, sigma_e, Lambda and the inputs' kurtosis.
        mu: step size(s): of :func:`~icl.filters.lms` in units of 1/x^2, dimensionless when normalised.
        lam: leakage factor(s); 1 for LMS and NLMS. mu and lam may be arrays that broadcast against each other.
        normalised: whether steps are divided by x'x (with eps = 0); for Lambda = s I only.

    Raises:
        ValueError: if an argument is out of range, or an error so far below the zero predictor's that it is rounding.

    >>> from icl.tasks import DriftingRegression
    >>> from icl.theory.steady.lms_family import errors
    >>> task = DriftingRegression(d=5, n=100, gamma=0.99)
    >>> errors(task, mu=0.1)[[0, 10, 100]].round(3)
    array([4.95 , 1.237, 0.361])
    """
    f = _settings(task, mu, lam, normalised)
    shape = np.broadcast_shapes(f.mu.shape, f.lam.shape)
    k, c, a = task.gamma**2 * task.sigma_w**2 + task.sigma_e**2, np.zeros((*shape[:-1], task.d)), 0.0
    mse, zero = np.empty((*shape[:-1], task.n + 1)), np.empty(task.n + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        for i in range(task.n + 1):
            e = k - 2 * c + a
            mse[..., i], zero[i] = (f.out * e).sum(-1), f.out.sum() * k
            square = f.diagonal * e + f.s * (f.across * e).sum(-1, keepdims=True)
            a = f.lam**2 * (a + 2 * f.mu * f.s * (c - a) + f.mu**2 * square)
            c = task.gamma * f.lam * (c + f.mu * f.s * (k - c))
            k = task.gamma**2 * k + task.sigma_e**2
    _refuse_lost_digits(mse, zero)
    # Overflow leaves inf - inf = nan.
    return np.where(np.isnan(mse), np.inf, mse)


@validated
def steady_error(task: DriftingRegression, mu: NonNegatives, *, lam: Positives = 1.0, normalised: bool = False) -> Any:
    """Limit of :func:`errors` as n -> infinity, in closed form; infinite where the step is too large to converge.

    The fixed point of e_j itself, a diagonal plus a rank-one system, solved by hand; the contribution of drift and
    leakage is a sum of positive terms. For Lambda = I and lam = 1 the limit on mu is 2 / (d + kurtosis - 1), 2 when
    normalised.

    Raises:
        ValueError: if gamma >= 1: such weights have no steady state.
    """
    f = _settings(task, mu, lam, normalised)
    if task.gamma >= 1:
        raise ValueError(f"gamma must be < 1: only stationary drift has a steady state, got {task.gamma!r}")
    k = task.sigma_e**2 / ((1 - task.gamma) * (1 + task.gamma))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        step, square = f.mu * f.s, f.lam**2 * f.mu**2
        left = (1 - f.lam) * (1 + f.lam) + f.lam**2 * f.mu * (2 * f.s - f.mu * f.diagonal)
        added = drift_increment(k, task.gamma, f.lam, step)
        # Without step and leakage w_hat stays 0: the formula's 0/0.
        still = (step == 0) & (f.lam == 1)
        left, added = np.where(still, 1.0, left), np.where(still, k, added)
        shared = 1 - square * (f.across * f.s / left).sum(-1, keepdims=True)
        total = (f.across * added / left).sum(-1, keepdims=True) / shared
        error = (f.out * (added + square * f.s * total) / left).sum(-1)
        settles = (left > 0).all(-1) & (shared > 0)[..., 0] & (np.abs(task.gamma * f.lam * (1 - step)) < 1).all(-1)
    return np.where(settles, error, np.inf)[()]


@validated
def best_steady(task: DriftingRegression, *, normalised: bool = False) -> tuple[float, float, float]:
    """Optimal step size, leakage and steady-state error of the leaky filter for Lambda = I, in closed form.

        lam = gamma,  mu = 1 / (d + kurtosis - 1),  error = d sigma_e^2 / (1 - gamma^2 (1 - mu));
        normalised:   mu = 1,                       error = d sigma_e^2 / (1 - gamma^2 (1 - 1/d)).

    The posterior mean decays by gamma too. The step is that of a Kalman filter whose covariance is replaced by p I.

    >>> from icl.tasks import DriftingRegression
    >>> from icl.theory.steady.lms_family import best_steady
    >>> mu, lam, error = best_steady(DriftingRegression(d=5, n=100, gamma=0.99))
    >>> round(mu, 3), lam, round(error, 3)
    (0.143, 0.99, 0.313)
    """
    _settings(task, 0.0, 1.0, normalised)
    if task.gamma >= 1:
        raise ValueError(f"gamma must be < 1: only stationary drift has a steady state, got {task.gamma!r}")
    if not np.array_equal(task.Lambda, np.eye(task.d)):
        raise ValueError("Lambda must be the identity here: each eigendirection would want a step of its own")
    mu, learnt = (1.0, 1 / task.d) if normalised else (1 / (task.d + task.inputs.kurtosis - 1),) * 2
    left = (1 - task.gamma) * (1 + task.gamma) + task.gamma**2 * learnt
    return mu, task.gamma, task.d * task.sigma_e**2 / left
