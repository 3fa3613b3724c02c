"""Least error at unknown drift parameters, and the best fixed layer (not in the papers).

The task is :class:`~icl.tasks.unknown_drift.UnknownDrift`. From below to above there are four levels:

- the oracle's, with known member: its Kalman filter (:attr:`Bank.each_error`);
- the posterior mean's, which no causal predictor beats: a bank of Kalman filters, one a member, weighted by their
  likelihoods [Magill 1965] (:func:`bank_predictions`);
- that of the best predictor linear in the labels (:func:`linear_predictions`): gates of keys only, however many
  states and earlier keys they have, make coefficients of labels out of keys, and so cannot be below it;
- one fixed layer's, unit keys with the best single step size and decay (:func:`best_fixed_unit_delta`, exact in the
  long run).
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from icl import _checks
from icl._bounds import NonNegative, Positive, Reals, UnitInterval, validated
from icl.kalman_updates import kalman_update
from icl.tasks.unknown_drift import UnknownDrift
from icl.theory._common import drift_increment, mean_shrinkage
from icl.theory.steady.fast_weights import DriftLaw, SteadyOptimum, best_unit_delta, squared_lengths


@dataclass(frozen=True, eq=False)
class Bank:
    """Predictions of a bank of Kalman filters, each position from the examples before it.

    Attributes:
        y_hat: posterior mean of the clean label, (batch, time).
        error: its expected squared error given the same labels, the input averaged over.
        weights: posterior probability of each member, (batch, time, m).
        each_y_hat: prediction of each member's filter, (batch, time, m).
        each_error: tr(Lambda P_j), its error if it is the true one: the oracle's.
        evidence: log density of each label given inputs and earlier labels, (batch, time).
    """

    y_hat: Float[np.ndarray, "batch time"]
    error: Float[np.ndarray, "batch time"]
    weights: Float[np.ndarray, "batch time m"]
    each_y_hat: Float[np.ndarray, "batch time m"]
    each_error: Float[np.ndarray, "batch time m"]
    evidence: Float[np.ndarray, "batch time"]


@validated
def _read(x: Reals, y: Reals, task: Any) -> tuple[np.ndarray, np.ndarray]:
    _checks.instance("task", task, UnknownDrift)
    if not np.size(x):
        raise ValueError(f"x must hold at least one sequence, got shape {np.shape(x)}")
    x = np.asarray(x, dtype=np.float64)
    _checks.shape("x", x, (None, None, task.d), "to match the task")
    y = np.asarray(y, dtype=np.float64)
    _checks.shape("y", y, x.shape[:2], "to match x")
    if task.gammas.max() > 1 - 1e-8:
        raise ValueError(
            f"task must have gammas of at most 1 - 1e-8, or rounding hides its steps: got {task.gammas.max()!r}"
        )
    return x, y


@validated
def bank_predictions(
    x: Float[np.ndarray, "batch time d"], y: Float[np.ndarray, "batch time"], task: UnknownDrift
) -> Bank:
    """Posterior mean of each clean label given the earlier examples, for a drift with one of several parameter sets.

    One Kalman filter for each member, with means m_j, covariances P_j and weights p_j [Magill 1965]:

        y_hat = x'm,  m = sum_j p_j m_j,    error = tr(Lambda sum_j p_j (P_j + (m_j - m)(m_j - m)'))
        p_j <- p_j N(y; x'm_j, x'P_j x + sigma_y_j^2), made to add up to 1

    `error` has the mean of (y_hat - <w, x>)^2 without the noise of x and y: averaged over prompts it is the floor.

    Args:
        x: inputs, one sequence a row.
        y: labels, noisy as the task has them; y_i enters results from position i + 1 on.
        task: gives the members and Lambda; x may have any length.

    Raises:
        ValueError: if x and y do not fit together, or a member drifts too slowly for float64.

    >>> import torch
    >>> from icl.profile import make_generator
    >>> from icl.tasks import UnknownDrift
    >>> from icl.theory.floors.unknown_drift import bank_predictions
    >>> task = UnknownDrift(d=2, n=100, gammas=[0.5, 0.99], steps=[0.866, 0.141], noises=0.1)
    >>> prompt, member = task.reveal(1, generator=make_generator("example"), dtype=torch.float64)
    >>> bank = bank_predictions(prompt.x.numpy(), prompt.y.numpy(), task)
    >>> int(member), bank.weights[0, -1].round(3)
    (1, array([0., 1.]))
    """
    x, y = _read(x, y, task)
    (batch, time, d), m = x.shape, len(task.gammas)
    mean, P = np.zeros((batch, m, d)), np.empty((batch, m, d, d))
    P[:] = task.k0[:, None, None] * np.eye(d)
    lp = np.tile(np.log(task.weights), (batch, 1))
    bank = Bank(*(np.empty((batch, time, *tail)) for tail in ((), (), (m,), (m,), (m,), ())))
    diagonal, gamma = np.arange(d), task.gammas
    for i in range(time):
        p = np.exp(lp)
        middle = np.einsum("bj,bjc->bc", p, mean)
        apart = mean - middle[:, None]
        within = np.einsum("ce,bjce->bj", task.Lambda, P)
        bank.y_hat[:, i], bank.weights[:, i] = (x[:, i] * middle).sum(-1), p
        bank.each_y_hat[:, i], bank.each_error[:, i] = np.einsum("bjc,bc->bj", mean, x[:, i]), within
        bank.error[:, i] = (p * (within + np.einsum("bjc,ce,bje->bj", apart, task.Lambda, apart))).sum(-1)

        mean, P, error, S = kalman_update(mean, P, x[:, i, None], y[:, i, None], task.noises**2)
        # An input of 0 without noise: its label tells nothing.
        lp = lp - np.where(np.isfinite(S), (np.log(2 * np.pi * S) + error**2 / S) / 2, 0.0)
        top = lp.max(1, keepdims=True)
        log_evidence = top + np.log(np.exp(lp - top).sum(1, keepdims=True))
        lp, bank.evidence[:, i] = lp - log_evidence, log_evidence[:, 0]
        mean *= gamma[:, None]
        P *= gamma[:, None, None] ** 2
        P[..., diagonal, diagonal] += task.steps[:, None] ** 2
    return bank


@validated
def linear_predictions(
    x: Float[np.ndarray, "batch time d"], y: Float[np.ndarray, "batch time"], task: UnknownDrift
) -> tuple[Float[np.ndarray, "batch time"], Float[np.ndarray, "batch time"]]:
    """Best predictor linear in the labels, and its expected squared error given the inputs, at each position.

    It is the posterior mean of Gaussian weights with the task's kernel (:mod:`icl.tasks.drifts`), a sum of first-order
    drifts, one a member, of variance weight_j k0_j: the Kalman filter of m d numbers. Averaged over prompts of all
    members its squared error is the second result; of one member's prompts it is not.

    Args:
        x: inputs, one sequence a row.
        y: labels, noisy as the task has them; they do not enter the second result.
        task: gives the members and Lambda; x may have any length.

    Raises:
        ValueError: if x and y do not fit together, or a member drifts too slowly for float64.
    """
    x, y = _read(x, y, task)
    (batch, time, d), gammas = x.shape, np.unique(task.gammas)
    # Members with equal gamma merge into one drift for a linear predictor.
    share = np.array([(task.weights * task.k0)[task.gammas == gamma].sum() for gamma in gammas])
    m = len(gammas)
    mean, P = np.zeros((batch, m * d)), np.empty((batch, m * d, m * d))
    P[:] = np.diag(np.repeat(share, d))
    fade, added = np.repeat(gammas, d), np.repeat(share * (1 - gammas) * (1 + gammas), d)
    y_hat, errors, diagonal = np.empty(y.shape), np.empty(y.shape), np.arange(m * d)
    for i in range(time):
        errors[:, i] = np.einsum("bjckf,cf->b", P.reshape(batch, m, d, m, d), task.Lambda)
        H = np.tile(x[:, i], (1, m))
        y_hat[:, i] = np.vecdot(mean, H)
        mean, P, *_ = kalman_update(mean, P, H, y[:, i], task.sigma_y**2)
        mean *= fade
        P *= fade[:, None] * fade
        P[:, diagonal, diagonal] += added
    return y_hat, errors


@functools.cache
def _lengths(d: int) -> tuple[np.ndarray, np.ndarray]:
    return squared_lengths(d, nodes=128)


def _in_closed_form(d: int, eps: float) -> tuple[float, float, float]:
    """b1, b2 and b3 of `unit_delta_error` by exponential integrals; for eps up to 100, above which b3 cancels.

    d b3 = E r / (r + eps)^2 = (d/4) (e^x E_{d/2}(x) - e^x E_{d/2 + 1}(x)), x = eps / 2.
    """
    if not eps:
        return 1 / d, 1 / d, 1 / (d * (d - 2)) if d > 2 else np.inf
    share, left = mean_shrinkage(d, eps)
    b3 = left / (2 * eps) - share / (2 * d)
    return share / d, share / d - eps * b3, b3


def _apart(law: DriftLaw, eps: float) -> float:
    """Relative quadrature error of the moments that enter the error; 0 where r near 0 cannot matter."""
    # From d = 20 on there is nothing near 0; without noise b3 does not enter, and a large eps is seen by all.
    if law.d >= 20 or eps >= 100:
        return 0.0
    ratios = np.array(_moments_by_nodes(*_lengths(law.d), eps, law.d)) / _in_closed_form(law.d, eps)
    return float(np.abs(ratios - 1)[: 3 if law.sigma_y else 2].max())


def _unit_delta_error_by_nodes(law: DriftLaw, *, lam: UnitInterval, eps: NonNegative) -> float:
    """`unit_delta_error` by quadrature, inaccurate for an eps near 0 in few dimensions."""
    lam, eps = float(lam), float(eps)
    return _error(law, lam, _moments_by_nodes(*_lengths(law.d), eps, law.d))


@validated
def unit_delta_error(law: DriftLaw, *, lam: UnitInterval, eps: NonNegative) -> float:
    """Exact steady-state error of unit keys, w <- lam (w + (y - w'x) x / (r + eps)), at any lam and eps.

    With b = 1 / (r + eps), b1 = E b r / d, b2 = E b^2 r^2 / d, b3 = E b^2 r / d, C = E w w_hat and H = E w_hat^2 a
    coordinate move by

        C <- gamma lam (C + b1 (k - C)),    H <- lam^2 (H + 2 b1 (C - H) + b2 (k - 2 C + H) + b3 s2)

    and the error is d (k - 2 C + H). At the same k it falls as gamma grows, whatever lam and eps: the same layer
    follows the slower world better, so that the size of its errors tells how fast its world is. At
    :func:`~icl.theory.steady.fast_weights.best_unit_delta`'s lam and eps it is that error.

    Args:
        law: the drift; its gamma need not be what lam is made for.
        lam: decay, dimensionless.
        eps: added to r, in x^2.

    Raises:
        ValueError: if an argument is out of range, eps is above 0 and below 1e-300, or it is 0 for noisy labels in up
            to two dimensions, where the error is infinite.
    """
    lam, eps = float(lam), float(eps)
    if 0 < eps < 1e-300:  # such numbers have few digits
        raise ValueError(f"eps must be 0 or at least 1e-300, got {eps!r}")
    if law.sigma_y and not eps and law.d < 3:
        raise ValueError(f"eps must be > 0 for noisy labels in {law.d} dimensions, where E 1 / r is infinite")
    if _apart(law, eps) <= 1e-12:
        return _unit_delta_error_by_nodes(law, lam=lam, eps=eps)
    return _error(law, lam, _in_closed_form(law.d, eps))


def _moments_by_nodes(r: np.ndarray, weight: np.ndarray, eps: float, d: int) -> tuple[float, float, float]:
    """b1, b2 and b3 of `unit_delta_error`."""
    b = 1 / (r + eps)
    return float(weight @ (b * r)) / d, float(weight @ (b * r) ** 2) / d, float(weight @ (b**2 * r)) / d


def _error(law: DriftLaw, lam: float, moments: tuple[float, float, float]) -> float:
    b1, b2, b3 = moments
    noise_term = b3 * law.sigma_y**2 if law.sigma_y else 0.0
    left = (1 - lam) * (1 + lam) + lam**2 * (2 * b1 - b2)
    # k - 2 C + H, where nothing cancels.
    return float(law.d * (drift_increment(law.k0, law.gamma, lam, b1) + lam**2 * noise_term) / left)


def _gates_at_by_nodes(law: DriftLaw, p: Positive) -> tuple[float, float]:
    """`gates_at` by quadrature, inaccurate for faint noise in few dimensions."""
    p, noise = float(p), law.sigma_y**2
    if p > law.k0:
        raise ValueError(f"p must be at most the weights' variance, {law.k0:g}, got {p!r}")
    r, weight = _lengths(law.d)
    reduction = p**2 / law.d * float(weight @ (r / (r * p + noise)))
    lam = (law.k0 - p) / (law.k0 - p + reduction)
    return float(np.sqrt(lam)), float(noise / p)


@validated
def gates_at(law: DriftLaw, p: Positive) -> tuple[float, float]:
    """Decay and eps at which the layer of unit keys would be optimal if its error variance were p: (lam, eps).

    The equation p = q + gamma^2 (p - p^2 / D) with q = (1 - gamma^2) k0, solved for gamma, which is the decay:

        lam^2 = (k0 - p) / (k0 - p + p^2 / D),    eps = s2 / p,    1/D = (1/d) E r / (r p + s2)

    so that p determines the drift rate, given the weights' variance and the noise.

    Args:
        law: its d, k0 and noise; its gamma does not matter.
        p: what the layer leaves in a coordinate, at most law.k0.

    Raises:
        ValueError: if p is not in (0, law.k0].
    """
    gates = _gates_at_by_nodes(law, p)
    # Without noise the mean is 1, to rounding.
    share = mean_shrinkage(law.d, gates[1])[0] if law.sigma_y else 1.0
    r, weight = _lengths(law.d)
    if abs(float(weight @ (r / (r + gates[1]))) / share - 1) <= 1e-12:
        return gates
    left = law.k0 - p
    return float(np.sqrt(left / (left + p / law.d * share))), gates[1]


@validated
def best_fixed_unit_delta(laws: Sequence[DriftLaw], weights: Any = None) -> SteadyOptimum:
    """Unit keys with the one decay and the one eps that minimise the mean error over several drifts.

    Minimises the mean of :func:`unit_delta_error` over the laws by Nelder and Mead's search, from the best settings of
    each.

    Args:
        laws: at least one.
        weights: probability of each law, > 0; None is the same for all.

    Returns: the mean error, its share p = error / d of one coordinate, lam and eps.

    Raises:
        ValueError: if laws and weights do not fit together, or the quadrature over lengths does not see to 1e-5 how
            the eps found acts, or that of a law for itself (:func:`~icl.theory.steady.fast_weights.best_unit_delta`).
    """
    if not laws or not all(isinstance(law, DriftLaw) for law in laws):
        raise ValueError(f"laws must be at least one DriftLaw, got {laws!r}")
    if len({law.d for law in laws}) > 1:
        raise ValueError(f"laws must have one d, got {sorted({law.d for law in laws})}")
    share = np.asarray(_checks.real("weights", np.ones(len(laws)) if weights is None else weights, above=0))
    _checks.shape("weights", share, (len(laws),), "to match laws")
    share = share / share.sum()

    lengths = _lengths(laws[0].d)

    def settings(z: np.ndarray) -> dict[str, float]:
        return {"lam": float(1 - np.exp(min(z[0], 0.0))), "eps": float(np.exp(z[1]))}

    def error(z: np.ndarray) -> float:
        at = settings(z)
        moments = _moments_by_nodes(*lengths, at["eps"], laws[0].d)
        return float(share @ [_error(law, at["lam"], moments) for law in laws])

    options: Any = {"xatol": 1e-7, "fatol": 1e-12 * max(law.zero_error for law in laws), "maxfev": 2_000}
    starts = [best_unit_delta(law) for law in laws]
    first = [np.log([max(1 - at.lam, 1e-12), max(at.eps, 1e-6 * at.p)]) for at in starts]
    optimum = minimize(error, min(first, key=error), method="Nelder-Mead", options=options)
    at = settings(optimum.x)
    if any(not _apart(law, at["eps"]) <= 1e-5 for law in laws):
        raise ValueError(
            f"laws must have more than {laws[0].d} dimensions, no noise or more of it: the quadrature does "
            f"not see how the eps found, {at['eps']:.3g}, acts near 0"
        )
    return SteadyOptimum(float(optimum.fun), float(optimum.fun) / laws[0].d, at["lam"], 1.0, at["eps"])
