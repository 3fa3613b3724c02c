"""Filters that estimate the drift's speed from their own errors (not in the papers).

For :class:`~icl.tasks.unknown_drift.UnknownDrift`. Each is a :class:`~icl.filters.Filter` and sees labels by its errors
alone; it is given a table of steady-state layers, one row a speed: p, the error variance per weight coordinate, and
lam, the decay (:func:`~icl.theory.steady.fast_weights.best_unit_delta`). A row is a whole layer,

    w <- lam (w + (y - w'x) x / (r + eps)),    eps = sigma_y^2 / p,    r = x'x

and a filter here selects rows online:

- :func:`gauged_delta`: p estimated from the mean square of its own errors; one number more than a layer;
- :func:`meta_delta`: p by gradient descent on its own squared errors [Sutton 1992]; one vector more;
- :func:`mixed_deltas`: a layer for every row, weighted by their past likelihoods;
- :func:`bank`: the same of Kalman filters, the posterior mean [Magill 1965], which no filter beats.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl import _checks
from icl._bounds import NonNegative, NonNegatives, Positive, Positives, PositiveUnit, UnitIntervals, validated
from icl._device import DeviceCache
from icl._pickling import picklable
from icl.filters import Filter
from icl.kalman_updates import kalman_update
from icl.tasks.unknown_drift import UnknownDrift


@dataclass(frozen=True)
class Gauged:
    """State of :func:`gauged_delta`: the estimate, and the running mean of its squared errors."""

    w_hat: Float[Tensor, "d *trials"]
    size: Float[Tensor, " *trials"]


@dataclass(frozen=True)
class Meta:
    """State of :func:`meta_delta`: the estimate, log p, and the estimate's derivative by log p."""

    w_hat: Float[Tensor, "d *trials"]
    log_p: Float[Tensor, " *trials"]
    slope: Float[Tensor, "d *trials"]


@dataclass(frozen=True)
class Mixed:
    """State of :func:`mixed_deltas`: the mean estimate, every layer's, and their log weights."""

    w_hat: Float[Tensor, "d *trials"]
    each: Float[Tensor, "m d *trials"]
    log_weight: Float[Tensor, "m *trials"]


@dataclass(frozen=True)
class KalmanBank:
    """State of :func:`bank`: the posterior mean, every member's estimate and covariance, and log weights."""

    w_hat: Float[Tensor, "d *trials"]
    each: Float[Tensor, "m d *trials"]
    P: Float[Tensor, "m d d *trials"]
    log_weight: Float[Tensor, "m *trials"]


def _table(p: Any, lam: Any) -> tuple[np.ndarray, np.ndarray]:
    """Validated table of layers, slow ones first."""
    ps = np.array(p, dtype=np.float64)
    if ps.ndim != 1 or len(ps) < 2 or (np.diff(ps) <= 0).any():
        raise ValueError(f"p must be at least two numbers that rise, in one row, got {p!r}")
    lams = np.array(lam, dtype=np.float64)
    _checks.shape("lam", lams, (len(ps),), "to match p")
    return ps, lams


def _column(values: DeviceCache, like: Tensor, axes: int) -> Tensor:
    """Numbers along the first axis, broadcast against `axes` more."""
    return values.to(like).reshape(-1, *[1] * axes)


def _interpolate(at: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Piecewise linear interpolation of y(x), and its slope."""
    i = (torch.searchsorted(x, at.contiguous(), right=True) - 1).clamp(0, len(x) - 2)
    slope = (y[i + 1] - y[i]) / (x[i + 1] - x[i])
    return y[i] + slope * (at - x[i]), slope


def _length(x: Tensor) -> Tensor:
    """x'x, infinite for a zero input, which then has no update."""
    r = x.square().sum(0)
    return torch.where(r == 0, torch.inf, r)


@picklable
@validated
def gauged_delta(
    p: Positives, lam: UnitIntervals, *, sigma_y: NonNegative, beta: PositiveUnit, start: Positive | None = None
) -> Filter:
    """Delta rule on unit keys, with step size and decay estimated from its mean squared error.

        size <- size + beta ((y - w'x)^2 - size),    p = (size - sigma_y^2) / d, kept within the table

    In steady state a layer's mean squared error is d p + sigma_y^2, from which p follows. The mean over time has one
    fixed point, the row of its own speed: with the gates of a faster row slower weights are tracked better than that
    row's p, and p falls; with those of a slower one it rises
    (:func:`~icl.theory.floors.unknown_drift.unit_delta_error`).

    Args:
        p: what the rows leave, at least two numbers > 0 that rise, in (y/x)^2.
        lam: their fades, in [0, 1].
        sigma_y: standard deviation of the noise in the labels, in units of y.
        beta: weight of the newest squared error in the mean.
        start: p before the first label; None is the geometric mean of the table's ends.
    """
    ps, lams = _table(p, lam)
    noise = sigma_y**2
    first = float(np.sqrt(ps[0] * ps[-1])) if start is None else start
    places, fades = DeviceCache(ps), DeviceCache(lams)

    def init(w_hat: Tensor) -> Gauged:
        return Gauged(w_hat, torch.full_like(w_hat[0], len(w_hat) * first + noise))

    def step(state: Gauged, x: Tensor, y: Tensor, y_hat: Tensor) -> Gauged:
        p = ((state.size - noise) / len(x)).clamp(ps[0], ps[-1])
        fade, _ = _interpolate(p, places.to(x), fades.to(x))
        error = y - y_hat
        w_hat = fade * torch.addcmul(state.w_hat, x, error / (_length(x) + noise / p))
        return Gauged(w_hat, state.size + beta * (error.square() - state.size))

    return Filter(init, step)


@picklable
@validated
def meta_delta(
    p: Positives, lam: UnitIntervals, *, sigma_y: NonNegative, theta: NonNegative, start: Positive | None = None
) -> Filter:
    """Delta rule on unit keys, with log p tuned by gradient descent on its squared errors, as in IDBD [Sutton 1992].

        log p <- log p + theta (y - w'x) x'g / (r p + sigma_y^2),    g = dw / d log p

    g follows the derivative of the update, as if earlier rows had been the present one. One p for all coordinates,
    where IDBD has a step size for each.

    Args:
        p: what the rows leave, at least two numbers > 0 that rise, in (y/x)^2; log p is kept within them.
        lam: their fades, in [0, 1].
        sigma_y: standard deviation of the noise in the labels, in units of y.
        theta: step size of log p, dimensionless; with 0, p stays at `start`.
        start: p before the first label; None is the geometric mean of the table's ends.
    """
    ps, lams = _table(p, lam)
    noise = sigma_y**2
    first = float(np.sqrt(ps[0] * ps[-1])) if start is None else start
    ends = np.log(ps)
    places, fades = DeviceCache(ends), DeviceCache(lams)

    def init(w_hat: Tensor) -> Meta:
        return Meta(w_hat, torch.full_like(w_hat[0], float(np.log(first).clip(ends[0], ends[-1]))), 0 * w_hat)

    def step(state: Meta, x: Tensor, y: Tensor, y_hat: Tensor) -> Meta:
        r, error, ahead = _length(x), y - y_hat, (x * state.slope).sum(0)
        # Of an input of 0 neither the error nor the sum is finite over r.
        lit = torch.where(torch.isfinite(r), r, 0.0) * state.log_p.exp() + noise
        pull = torch.where(lit > 0, error * ahead / torch.where(lit > 0, lit, 1.0), 0.0)
        log_p = (state.log_p + theta * pull).clamp(ends[0], ends[-1])
        fade, bend = _interpolate(log_p, places.to(x), fades.to(x))
        eps = noise / log_p.exp()
        gain = 1 / (r + eps)
        written = torch.addcmul(state.w_hat, x, error * gain)
        slope = fade * torch.addcmul(state.slope, x, gain * (error * eps * gain - ahead)) + bend * written
        return Meta(fade * written, log_p, slope)

    return Filter(init, step)


@picklable
@validated
def mixed_deltas(p: Positives, lam: UnitIntervals, *, sigma_y: NonNegatives, keep: PositiveUnit = 1.0) -> Filter:
    """Mixture of delta rules on unit keys, one for every row, weighted by their past likelihoods.

        log weight_j <- keep log weight_j - (log s_j + (y - w_j'x)^2 / s_j) / 2,    s_j = r p_j + sigma_y_j^2

    Every layer models its error as normal with variance s_j; the weights follow from Bayes' rule, with exponential
    forgetting for `keep` < 1. It is :func:`bank` with a number p_j in place of each covariance matrix.

    Args:
        p: what the rows leave, at least two numbers > 0 that rise, in (y/x)^2.
        lam: their fades, in [0, 1].
        sigma_y: standard deviation of the noise in the labels, >= 0, in units of y: one number, or one for each row.
        keep: forgetting factor of the log weights; 1 forgets nothing.
    """
    ps, lams = _table(p, lam)
    noise = np.array(sigma_y, dtype=np.float64) ** 2
    noise = np.full(len(ps), noise) if not noise.ndim else noise
    _checks.shape("sigma_y", noise, (len(ps),), "to match p")
    rows = [DeviceCache(values) for values in (ps, lams, noise)]

    def init(w_hat: Tensor) -> Mixed:
        each = w_hat.expand(len(ps), *w_hat.shape)
        return Mixed(w_hat, each, torch.full_like(each[:, 0], -float(np.log(len(ps)))))

    def step(state: Mixed, x: Tensor, y: Tensor, y_hat: Tensor) -> Mixed:
        p, fade, s2 = (_column(values, x, y.dim()) for values in rows)
        r = x.square().sum(0)
        error, s = y - (state.each * x).sum(1), r * p + s2
        uncertain = s > 0
        s = torch.where(uncertain, s, 1.0)
        nll = torch.where(uncertain, (s.log() + error.square() / s) / 2, 0.0)
        gain = torch.where(uncertain, error * p / s, 0.0)
        each = fade[:, None] * torch.addcmul(state.each, gain[:, None], x)
        return Mixed(*_average(each, keep * state.log_weight - nll))

    return Filter(init, step)


def _average(each: Tensor, log_weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted mean of the estimates, the estimates, and the normalised log weights."""
    log_weight = log_weight - log_weight.logsumexp(0)
    return (log_weight.exp()[:, None] * each).sum(0), each, log_weight


@picklable
@validated
def bank(task: UnknownDrift) -> Filter:
    """Kalman filter bank: the posterior mean for a finite set of candidate drifts, weighted by Bayes [Magill 1965].

    The weights are the probabilities of the members given the labels so far;
    :func:`~icl.theory.floors.unknown_drift.bank_predictions` has them, and the expected error. An input along a
    direction that is known exactly changes neither estimates nor weights.

    Args:
        task: gives d, the members and their probabilities; the inputs' law does not matter to it.

    >>> from icl.filters import run_filter
    >>> from icl.profile import make_generator
    >>> from icl.self_tuning import bank
    >>> from icl.tasks import UnknownDrift
    >>> task = UnknownDrift(d=5, n=50, gammas=(0.9, 0.99), steps=(0.5, 0.05))
    >>> prompt = task.sample(100, generator=make_generator("example"))
    >>> y_hat = run_filter(bank(task), prompt.x, prompt.y)
    >>> bool((y_hat - prompt.y)[:, -1].square().mean() < prompt.y[:, -1].square().mean())  # beats the zero predictor
    True
    """
    m, d = len(task.gammas), task.d
    members = [DeviceCache(values) for values in (task.gammas, task.steps**2, task.noises**2)]

    def init(w_hat: Tensor) -> KalmanBank:
        _checks.shape("x", w_hat, (d, *[None] * (w_hat.dim() - 1)), "as (d, *trials) to match the task")
        start = torch.as_tensor(task.k0[:, None, None] * np.eye(d), device=w_hat.device)
        trials = w_hat.shape[1:]
        P = start.reshape(m, d, d, *[1] * len(trials)).expand(m, d, d, *trials).contiguous()
        log_weight = _column(DeviceCache(np.log(task.weights)), P, len(trials)).expand(m, *trials)
        return KalmanBank(w_hat, w_hat.to(P).expand(m, *w_hat.shape), P, log_weight)

    def step(state: KalmanBank, x: Tensor, y: Tensor, y_hat: Tensor) -> KalmanBank:
        X, axes = x.to(state.P), y.dim()
        gamma, q, noise = (_column(values, X, axes) for values in members)
        each, P, error, S = kalman_update(state.each, state.P, X[None], y.to(X), noise, dim=1)
        nll = torch.where(S.isfinite(), (S.log() + error.square() / S) / 2, 0.0)
        P.mul_(gamma[:, None, None] ** 2).diagonal(dim1=1, dim2=2).add_(q[..., None])
        w_hat, each, log_weight = _average(gamma[:, None] * each, state.log_weight - nll)
        return KalmanBank(w_hat.to(x), each, P, log_weight)

    return Filter(init, step)
