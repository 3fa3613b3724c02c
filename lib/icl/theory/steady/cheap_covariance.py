"""Kalman filters with a compressed error covariance, and their errors (not in the papers).

The task is the drift of :mod:`icl.theory.steady.fast_weights`. The Kalman filter keeps P, the d x d covariance of its
error; a layer with unit keys keeps p I in its place. Between them lie filters that use Kalman's gain with a summary
of P,

    w_hat <- gamma (w_hat + (y - w_hat'x) g),    g = P x / (x'P x + s2),
    P <- gamma^2 kept[P - P x x'P / (x'P x + s2)] + q I,

and differ in what is kept: :class:`Blocks` of the diagonal (`Blocks(1)` is a diagonal P), the r best known directions
(:class:`LowRank`), the keys since the last restart (:class:`Restarted`), every m-th key (:class:`Thinned`), all of P in
few bits (:class:`Rounded`), or nothing but fixed variances (:class:`Frozen`). :func:`summary_errors` runs one, without
labels: it propagates the true error covariance beside the filter's own P. Where P is the conditional mean of the true
covariance given the summary, it is unbiased and the filter optimal for that summary (proof in the chapter *A cheaper
covariance*); blocks, low rank and restarts are of that kind for white Gaussian keys.

As d grows the error depends on one number, the spread of P's eigenvalues (:func:`eps_spread`); for three kinds it is
known in the mean field, checked by Monte Carlo (`eps_blocks`, `eps_low_rank`, `eps_thinned`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le
from jaxtyping import Float
from scipy.optimize import brentq, minimize_scalar

from icl import _checks
from icl._bounds import (
    Count,
    Natural,
    NonNegative,
    NonNegatives,
    Positive,
    Positives,
    Reals,
    UnitInterval,
    validate_fields,
    validated,
)
from icl.kalman_updates import downdate, innovation
from icl.theory.steady import large_d
from icl.theory.steady.fast_weights import DriftLaw

# Outside of these a share of the matrix changes nothing that float64 could tell.
_Drift = Annotated[float, Ge(1e-3), Le(10)]
_Noise = Annotated[float, Ge(0), Le(10)]


@dataclass(frozen=True)
class Blocks:
    """Block-diagonal approximation of P.

    Attributes:
        size: of a block; the last is smaller where it does not divide d.
    """

    size: Count

    def __post_init__(self) -> None:
        """Validate the block size."""
        validate_fields(self)


@dataclass(frozen=True)
class LowRank:
    """Low-rank approximation of P: the r directions of smallest variance, and one variance for all others.

    Attributes:
        rank: number of directions; from d - 1 on P is exact.
    """

    rank: Natural

    def __post_init__(self) -> None:
        """Validate the rank."""
        validate_fields(self)


@dataclass(frozen=True)
class Restarted:
    """Full P, reset to its mean variance times I at regular intervals.

    Attributes:
        every: number of labels between two restarts.
    """

    every: Count

    def __post_init__(self) -> None:
        """Validate the interval."""
        validate_fields(self)


@dataclass(frozen=True)
class Thinned:
    """Full P, updated exactly with a subset of the keys and in expectation with the others.

    Attributes:
        every: one key in so many is used exactly.
    """

    every: Count

    def __post_init__(self) -> None:
        """Validate the interval."""
        validate_fields(self)


@dataclass(frozen=True)
class Rounded:
    """Quantised P: every entry rounded to one of 2^bits equal steps from -k0 to k0.

    Attributes:
        bits: of an entry.
    """

    bits: Count

    def __post_init__(self) -> None:
        """Validate the number of bits."""
        validate_fields(self)


@dataclass(frozen=True)
class Frozen:
    """Constant diagonal P, independent of the keys.

    Attributes:
        variances: the diagonal, each > 0; one for all coordinates, or one each.
    """

    variances: tuple[float, ...]

    def __post_init__(self) -> None:
        """Validate the variances."""
        values = np.atleast_1d(np.asarray(_checks.real("variances", self.variances, above=0), dtype=np.float64))
        _checks.shape("variances", values, (max(1, values.size),))
        object.__setattr__(self, "variances", tuple(float(each) for each in values))


Kept = Blocks | LowRank | Restarted | Thinned | Rounded | Frozen


@dataclass(frozen=True, eq=False)
class Tracked:
    """Errors of a filter on given keys, actual and as its P predicts them.

    Attributes:
        errors: (batch, time), expected squared errors of the clean label given the keys before, in y^2.
        believed: the same as predicted by the filter's own P.
    """

    errors: Float[np.ndarray, "batch time"]
    believed: Float[np.ndarray, "batch time"]


@validated
def _keys(x: Reals, law: DriftLaw) -> np.ndarray:
    x = np.asarray(x, dtype=np.float64)
    _checks.shape("x", x, (None, None, law.d), "to match law")
    if not x.size:
        raise ValueError(f"x must hold at least one key, got shape {x.shape}")
    return x


def _joseph_update(Sigma: np.ndarray, x: np.ndarray, g: np.ndarray, law: DriftLaw) -> np.ndarray:
    """Error covariance after a label and a step of drift, for any gain g (Joseph form)."""
    h, S = innovation(Sigma, x, law.sigma_y**2)
    half = g * S[:, None] / 2 - h
    # Joseph form, (I - g x') Sigma (I - g x')' + s2 g g', kept exactly symmetric.
    crossed = g[:, :, None] * half[:, None, :]
    Sigma = law.gamma**2 * (Sigma + crossed + crossed.swapaxes(1, 2))
    Sigma[:, np.arange(law.d), np.arange(law.d)] += law.q
    return Sigma


@validated
def errors_with_gains(
    x: Float[np.ndarray, "batch time d"],
    gains: Float[np.ndarray, "batch time d"],
    law: DriftLaw,
    Lambda: Float[np.ndarray, "d d"] | None = None,
) -> Float[np.ndarray, "batch time"]:
    """Expected squared error at each position of w_hat <- gamma (w_hat + (y - w_hat'x) g), exact given keys and gains.

    Sigma <- gamma^2 [(I - g x') Sigma (I - g x')' + s2 g g'] + q I from Sigma = k0 I, error tr(Lambda Sigma): Joseph's
    form, valid for any gain; the Kalman gain minimises it.

    Args:
        x: keys, one sequence a row.
        gains: gain applied to each innovation y - w_hat'x; the last is not used.
        law: its d has to be x's.
        Lambda: covariance of the keys, white if None.
    """
    x = _keys(x, law)
    Lambda = _checks.covariance("Lambda", Lambda, law.d)
    Sigma = np.broadcast_to(law.k0 * np.eye(law.d), (len(x), law.d, law.d)).copy()
    errors = np.empty(x.shape[:2])
    for i in range(x.shape[1]):
        errors[:, i] = np.einsum("bij,ij->b", Sigma, Lambda)
        Sigma = _joseph_update(Sigma, x[:, i], gains[:, i], law)
    if not np.isfinite(errors).all():
        raise ValueError("gains must keep all errors within float64, got one that is larger")
    return errors


class _Whole:
    """P as a matrix, compressed after each label."""

    def __init__(self, law: DriftLaw, kind: Blocks | Restarted | Thinned | Rounded | Frozen, batch: int) -> None:
        self.law, self.kind, self.seen, self.eye = law, kind, 0, np.eye(law.d)
        start = np.full(law.d, law.k0)
        if isinstance(kind, Frozen):
            start = start * 0 + np.array(kind.variances)
        if isinstance(kind, Blocks):
            block = np.arange(law.d) // kind.size
            self.inside = block[:, None] == block
        self.P = np.broadcast_to(np.diag(start), (batch, law.d, law.d)).copy()

    def gain(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return innovation(self.P, x, self.law.sigma_y**2)

    def believed(self, Lambda: np.ndarray) -> np.ndarray:
        return np.einsum("bij,ij->b", self.P, Lambda)

    def take(self, x: np.ndarray, Px: np.ndarray, S: np.ndarray) -> None:
        law, kind, d = self.law, self.kind, self.law.d
        self.seen += 1
        if isinstance(kind, Frozen):
            return
        if isinstance(kind, Thinned) and self.seen % kind.every:
            # Expected update over an unused key, with x'P x replaced by its mean.
            total = np.einsum("bjj->b", self.P) + law.sigma_y**2
            P = self.P - self.P @ self.P / total[:, None, None]
        else:
            P = downdate(self.P, Px, S)
        if isinstance(kind, Blocks):
            P = P * self.inside
        elif isinstance(kind, Restarted) and self.seen % kind.every == 0:
            P = np.einsum("bjj->b", P)[:, None, None] / d * self.eye
        P = law.gamma**2 * P + law.q * self.eye
        if isinstance(kind, Rounded):
            step = 2 * law.k0 / 2.0**kind.bits
            P = np.rint(P / step) * step
        self.P = P


class _Thin:
    """P = V diag(l - p) V' + p I with few orthonormal columns V; its update is of V and l, without the matrix."""

    def __init__(self, law: DriftLaw, kind: LowRank, batch: int) -> None:
        self.law, self.rank = law, min(kind.rank, law.d - 1)
        self.V = np.broadcast_to(np.eye(law.d, self.rank), (batch, law.d, self.rank)).copy()
        self.variances, self.rest = np.full((batch, self.rank), law.k0), np.full(batch, law.k0)

    def gain(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        along = np.einsum("bdr,bd->br", self.V, x)
        Px = self.rest[:, None] * x + np.einsum("bdr,br->bd", self.V, (self.variances - self.rest[:, None]) * along)
        return Px, np.einsum("bi,bi->b", x, Px) + self.law.sigma_y**2

    def believed(self, Lambda: np.ndarray) -> np.ndarray:
        along = ((Lambda @ self.V) * self.V).sum(1)
        return self.rest * np.trace(Lambda) + (along * (self.variances - self.rest[:, None])).sum(1)

    def take(self, x: np.ndarray, Px: np.ndarray, S: np.ndarray) -> None:
        law, r = self.law, self.rank
        across, along = x, np.zeros((len(x), r))
        for _ in range(2):  # Gram-Schmidt twice, against rounding
            more = np.einsum("bdr,bd->br", self.V, across)
            across, along = across - np.einsum("bdr,br->bd", self.V, more), along + more
        length = np.sqrt((across**2).sum(1))
        new = across / np.where(length > 0, length, 1.0)[:, None]
        basis = np.concatenate([self.V, new[:, :, None]], axis=2)
        variances = np.concatenate([self.variances, self.rest[:, None]], axis=1)
        u = variances * np.concatenate([along, length[:, None]], axis=1) / np.sqrt(S)[:, None]
        inside = variances[:, :, None] * np.eye(r + 1) - u[:, :, None] * u[:, None, :]
        variances, turn = np.linalg.eigh(inside)
        # The largest of the r + 1 variances joins the rest, which keeps the trace.
        self.V, self.variances = basis @ turn[:, :, :r], variances[:, :r]
        complement = law.d - r
        self.rest = ((complement - 1) * self.rest + variances[:, r]) / complement
        self.variances, self.rest = law.gamma**2 * self.variances + law.q, law.gamma**2 * self.rest + law.q


@validated
def summary_errors(
    x: Float[np.ndarray, "batch time d"],
    law: DriftLaw,
    kind: Kept,
    Lambda: Float[np.ndarray, "d d"] | None = None,
) -> Tracked:
    """Run a filter with a compressed P on given keys, from P = k0 I (:class:`Frozen` from its own).

    Errors are exact given the keys, as by :func:`errors_with_gains`. On white Gaussian keys the mean predicted error of
    :class:`Blocks`, :class:`LowRank` and :class:`Restarted` is their mean error, and averages some times faster.

    Args:
        x: keys, one sequence a row; the last is not used.
        law: its d has to be x's.
        kind: the approximation of P.
        Lambda: covariance of the keys, which errors are weighted with; white if None.

    Raises:
        ValueError: if arguments do not fit together, or a rounded P is so coarse that errors diverge.
    """
    x = _keys(x, law)
    _checks.instance("kind", kind, Blocks, LowRank, Restarted, Thinned, Rounded, Frozen)
    if isinstance(kind, Frozen) and len(kind.variances) not in (1, law.d):
        raise ValueError(f"variances must be one or {law.d} to match law, got {len(kind.variances)}")
    Lambda = _checks.covariance("Lambda", Lambda, law.d)
    state = _Thin(law, kind, len(x)) if isinstance(kind, LowRank) else _Whole(law, kind, len(x))
    Sigma = np.broadcast_to(law.k0 * np.eye(law.d), (len(x), law.d, law.d)).copy()
    errors, believed = np.empty(x.shape[:2]), np.empty(x.shape[:2])
    for i in range(x.shape[1]):
        errors[:, i], believed[:, i] = np.einsum("bij,ij->b", Sigma, Lambda), state.believed(Lambda)
        Px, S = state.gain(x[:, i])
        if not (np.isfinite(errors[:, i]) & (errors[:, i] < 1e6 * law.k0 * np.trace(Lambda)) & (S > 0)).all():
            raise ValueError(f"kind must keep errors bounded and P positive on these keys, got {kind!r}")
        Sigma = _joseph_update(Sigma, x[:, i], Px / S[:, None], law)
        state.take(x[:, i], Px, S)
    return Tracked(errors, believed)


@validated
def numbers_kept(kind: Kept, d: Count) -> int:
    """Number of floats in the filter's covariance state: entries of P, or of a smaller form where there is one.

    A symmetric d x d matrix is d (d + 1) / 2 numbers; r directions are r vectors, r variances and one for the rest; P
    since a restart is one number and a vector a label, up to the matrix.

    Args:
        kind: the approximation of P.
        d: dimension of the keys.
    """
    _checks.instance("kind", kind, Blocks, LowRank, Restarted, Thinned, Rounded, Frozen)
    full = d * (d + 1) // 2
    if isinstance(kind, Blocks):
        b = min(kind.size, d)
        last = d % b
        return d // b * (b * (b + 1) // 2) + last * (last + 1) // 2
    if isinstance(kind, LowRank):
        return kind.rank * (d + 1) + 1 if kind.rank < d - 1 else full
    if isinstance(kind, Restarted):
        return min((kind.every - 1) * d + 1, full)
    return len(kind.variances) if isinstance(kind, Frozen) else full


@validated
def eps_spread(
    spread: Annotated[Any, Ge(0), Le(1e6)], s: Annotated[Any, Gt(0), Le(1e6)], v: Annotated[Any, Ge(0), Le(1e6)]
) -> Any:
    """Error over d k0 for d -> infinity of a filter with this eigenvalue spread of P; arrays broadcast.

        s (1 - eps) = eps^2 (1 + spread) / (eps + v),    spread = mean of l^2 / (mean of l)^2 - 1

    A label takes x'P^2 x / (x'P x + s2) from the trace of P, tr P^2 / (tr P + s2) in the limit: unequal eigenvalues l
    lower the error. Spread 0 is the delta rule.

    Args:
        spread: relative variance of the eigenvalues.
        s: dimensions over memory, d (1 - gamma^2).
        v: label noise over signal.
    """
    spread = np.asarray(spread, dtype=np.float64)
    s = np.asarray(s, dtype=np.float64)
    v = np.asarray(v, dtype=np.float64)
    b = s * (1 - v)
    root = np.sqrt(b**2 + 4 * (1 + spread + s) * s * v)
    # The form without cancellation on either side of b = 0.
    low = np.where(b < 0, root - b, 1.0)
    return np.where(b < 0, 2 * s * v / low, (b + root) / (2 * (1 + spread + s)))[()]


@validated
def spread_needed(eps: Positives, s: Positives, v: NonNegatives) -> Any:
    """Eigenvalue spread at which :func:`eps_spread` has this error: s (1 - eps) (eps + v) / eps^2 - 1.

    Args:
        eps: error over d k0.
        s: dimensions over memory.
        v: label noise over signal.
    """
    eps = np.asarray(eps, dtype=np.float64)
    # Each factor over its own eps, whose square float64 may not hold.
    return (np.asarray(s) * ((1 - eps) / eps) * ((eps + np.asarray(v)) / eps) - 1)[()]


@validated
def diagonal_spread(d: Count, s: Positive, v: NonNegative) -> float:
    """Spread of a diagonal P to first order in 1 / d: h^2 / (d (s + 2 h)), h = eps / (eps + v) of the delta rule.

    A variance moves by chance as x_j^2 does, by the share h (x_j^2 - 1) / d a label, and returns at the rate
    (s + 2 h) / d: the chance of a key is forgotten as fast as it comes, and 1 / d is left.

    Args:
        d: dimension of the keys.
        s: dimensions over memory.
        v: label noise over signal.
    """
    s, v = float(s), float(v)
    eps = float(large_d.eps_delta(s, v))
    h = eps / (eps + v)
    return h**2 / (d * (s + 2 * h))


@validated
def eps_blocks(share: UnitInterval, s: _Drift, v: _Noise) -> float:
    """Error over d k0 for d -> infinity of `Blocks(share d)`: eps = kalman(share s, (v + (1 - share) eps) / share).

    A block of share d weights is a Kalman filter of its own, to which the other blocks' error is noise.

    Args:
        share: size of a block over d; 0 is the delta rule, 1 Kalman.
        s: dimensions over memory.
        v: label noise over signal.
    """
    if share < 1e-6:
        return float(large_d.eps_delta(s, v))

    def over(eps: float) -> float:
        return float(large_d.kalman_large_d(share * s, (v + (1 - share) * eps) / share)) - eps

    low, high = float(large_d.kalman_large_d(s, v)), float(large_d.eps_delta(s, v))
    return low if share == 1 else float(brentq(over, low * (1 - 1e-6), high * (1 + 1e-6), xtol=1e-14))


def _least(H: Callable[[Any], Any], low: float, high: float) -> float:
    """Minimum of H on an interval: grid search, refined about its best point."""
    grid = np.linspace(low, high, 101)
    best = int(np.argmin(H(grid)))
    bounds = (grid[max(best - 1, 0)], grid[min(best + 1, 100)])
    return float(minimize_scalar(H, bounds=bounds, method="bounded", options={"xatol": 1e-10}).fun)


@validated
def eps_thinned(share: UnitInterval, s: _Drift, v: _Noise) -> float:
    """Error over d k0 for d -> infinity of `Thinned(1 / share)`, by a double root as in `large_d.touching`.

    The resolvent of P solves, with D = eps + v,

        s [(1 - z) m - 1] - (1 - share) (eps + z + z^2 m) / D + share log[(v - z - z^2 m) / D] = 0,

    and left of all eigenvalues, z = -zeta, its two real roots meet in one point.

    Args:
        share: of the keys that are used exactly; 0 is the delta rule, 1 Kalman.
        s: dimensions over memory.
        v: label noise over signal.
    """
    low, high = float(large_d.kalman_large_d(s, v)), float(large_d.eps_delta(s, v))
    if share < 1e-6 or share == 1:
        return low if share else high

    def least(eps: float) -> float:
        D = eps + v
        # Roots can meet only where a = s (1 + zeta) - (1 - share) zeta^2 / D is positive.
        b = s * D / (1 - share)
        last = (b + np.sqrt(b**2 + 4 * b)) / 2

        def H(t: Any) -> Any:
            zeta = last / (1 + np.exp(-t))
            a = s * (1 + zeta) - (1 - share) * zeta**2 / D
            level = a * (v + zeta) / zeta**2 - s - share - (1 - share) * (eps - zeta) / D
            return level + share * np.log(share * zeta**2 / (a * D))

        return _least(H, -20.0, 20.0)

    return float(brentq(least, low * (1 - 1e-6), high * (1 + 1e-6), xtol=1e-14))


@validated
def eps_low_rank(share: UnitInterval, s: _Drift, v: _Noise) -> float:
    """Error over d k0 for d -> infinity of `LowRank(share d)`.

    Let l be the kept eigenvalues, a share of all, p the variance of the rest, and m = (1/d) sum 1 / (l - z). A label
    moves each l down and makes one new eigenvalue c between them and p, which is the one given up, so that

        (1 - share) s (1 - p) = p - c,
        s [(1 - z) m - share] + log[(v - z - z^2 (m + (1 - share) / (p - z))) (p - z) / ((eps + v) (c - z))] = 0.

    The second has two real roots m, which have to meet once left of all eigenvalues, z < 0, and once right of them,
    p < z < 1. Each meeting gives eps for a given p (it enters by its logarithm alone), and p is where they agree.

    Args:
        share: directions kept over d; 0 is the delta rule, 1 Kalman.
        s: dimensions over memory.
        v: label noise over signal.
    """
    low, high = float(large_d.kalman_large_d(s, v)), float(large_d.eps_delta(s, v))
    if share < 1e-6 or share > 1 - 1e-6:
        return high if share < 0.5 else low
    lost = (1 - share) * s

    def at(p: float) -> tuple[float, float]:
        c = p - lost * (1 - p)

        def H(z: Any) -> Any:
            A, B = (v - z) * (p - z) - z**2 * (1 - share), z**2 * (p - z)
            return s * (1 - z) * A / B - 1 - s * share + np.log(B / (s * (1 - z) * (c - z)))

        left = _least(lambda t: H(-np.exp(t)), np.log(1e-9), np.log(1e3 * (1 + s)))
        right = _least(lambda t: H(p + (1 - p) / (1 + np.exp(-t))), -16.0, 16.0)
        return left, right

    def apart(p: float) -> float:
        left, right = at(p)
        return left - right

    # From c = 0 to a rest that nothing is known of.
    bounds = (lost / (1 + lost) * (1 + 1e-9), 1 - 1e-9)
    p = float(brentq(apart, *bounds, xtol=1e-14))
    return float(np.exp(at(p)[0]) - v)
