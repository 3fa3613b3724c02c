"""Steady-state errors of decayed fast weights as d grows, and the Kalman floor in closed form (not in the papers).

In that limit the layers of :mod:`icl.theory.steady.fast_weights` and the floor depend on two numbers: s = d (1 -
gamma^2), d over the weights' memory, and v = sigma_y^2 / (d k), the labels' noise over their signal. The floor follows
from the error of the smoother, which sees past and future labels (`smoother_large_d`, `kalman_large_d`; proved in
*The price of not knowing the future*, and for drifts of any spectrum in :mod:`icl.theory.steady.spectra`);
:func:`kalman_floor` corrects it for finite d.
"""

from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le
from scipy.optimize import minimize_scalar

from icl._bounds import Count, NonNegative, NonNegatives, Positive, Positives, validated
from icl.theory.steady.fast_weights import DriftLaw


@validated
def _sv(s: Annotated[Any, Gt(0), Le(1e140)], v: Annotated[Any, Ge(0), Le(1e145)]) -> tuple[np.ndarray, np.ndarray]:
    s = np.asarray(s, dtype=np.float64)
    v = np.asarray(v, dtype=np.float64)
    try:
        arrays = np.broadcast_arrays(s, v)
    except ValueError:
        raise ValueError(f"s and v must broadcast against each other, got {s.shape}, {v.shape}") from None
    return arrays[0], arrays[1]


@validated
def eps_gla(s: Positives, v: NonNegatives) -> Any:
    """Gated attention's error over d k0 for d -> infinity: s (1 - eps) = eps^2 / (1 + v). Arrays broadcast."""
    s, v = _sv(s, v)
    return (2 / (1 + np.sqrt(1 + 4 / (s * (1 + v)))))[()]


@validated
def eps_delta(s: Positives, v: NonNegatives) -> Any:
    """Delta rule's error over d k0 for d -> infinity, unit keys or not: s (1 - eps) = eps^2 / (eps + v)."""
    s, v = _sv(s, v)
    if (s < 1e-150).any() or (s * (1 + v) > 1e150).any():
        raise ValueError("s and s (1 + v) must be from 1e-150 to 1e150, whose squares float64 holds")
    half = s * (1 - v)
    root = np.sqrt(half**2 + 4 * (1 + s) * s * v)
    # The form without cancellation on either side of half = 0.
    low = np.where(half < 0, root - half, 1.0)
    return np.where(half < 0, 2 * s * v / low, (half + root) / (2 * (1 + s)))[()]


@validated
def touching_point(s: Positives, v: NonNegatives) -> Any:
    """Double root of the floor's equation (:func:`touching`): the one positive zeta with

    zeta^3 + (2 - s - v s) zeta^2 - (s + 3 v s) zeta - 2 v s = 0;    zeta = (s - 2 + sqrt(s^2 + 4)) / 2 without noise.
    """
    s, v = _sv(s, v)
    # One sign change, so one positive root (Descartes); bisection in its logarithm.
    low, high = np.full(s.shape, -60.0), np.log(1 + 3 * (1 + s + s * v)) + 1
    for _ in range(80):
        middle = (low + high) / 2
        t = np.exp(middle)
        # Divided by zeta, so that v = 0 is no special case.
        above = t**2 + (2 - s - v * s) * t - (s + 3 * v * s) - 2 * v * s / t > 0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.exp((low + high) / 2)[()]


@validated
def touching(zeta: Positives, eps: Positives, s: Positives, v: NonNegatives) -> Any:
    """H(zeta), whose sign decides if the resolvent's equation has real roots at z = -zeta: two if H > 0, none if H < 0.

        H = s (1 + v) / zeta + s v / zeta^2 - 1 + log[zeta^2 / (s (1 + zeta) (v + eps))]

    The resolvent m(z) = tr (P - z)^-1 / d of the floor's covariance (k0 = 1) solves, in the limit d -> infinity,

        s [(1 - z) m - 1] + log[(v - z - z^2 m) / (v + eps)] = 0.

    Far to the left m is one root of it and at z = 0 the other, and on the way, left of all eigenvalues, it is real:
    the two must meet, H >= 0 with equality somewhere. That fixes eps (:func:`kalman_large_d`).
    """
    s, v = _sv(s, v)
    zeta = np.asarray(zeta, dtype=np.float64)
    eps = np.asarray(eps, dtype=np.float64)
    return (s * (1 + v) / zeta + s * v / zeta**2 - 1 + np.log(zeta**2 / (s * (1 + zeta) * (v + eps))))[()]


@validated
def smoother_large_d(s: Positives, v: NonNegatives) -> Any:
    """Smoother's error over d k0 for d -> infinity, from the labels before and after: S in (0, 1) with

    S^2 [1 + 4 / (s (S + v))] = 1;    S = (sqrt(4 + s^2) - 2) / s without noise. Arrays broadcast.
    """
    s, v = _sv(s, v)
    # One sign change of the cubic s (1 - S^2) (S + v) - 4 S^2; bisection in log S.
    low, high = np.full(s.shape, -800.0), np.zeros(s.shape)
    with np.errstate(over="ignore"):
        for _ in range(64):
            t = (low + high) / 2
            below = -np.expm1(2 * t) * s * (1 + v / np.exp(t)) > 4 * np.exp(t)
            low, high = np.where(below, t, low), np.where(below, high, t)
    return np.exp((low + high) / 2)[()]


@validated
def kalman_large_d(s: Positives, v: NonNegatives) -> Any:
    """Kalman floor over d k0 for d -> infinity, in closed form, from S of :func:`smoother_large_d`:

        (eps + v) / (S + v) = exp[S (1 - S) / ((S + v) (1 + S))]

    Without noise the filter's error is up to e times the smoother's. Found a second time, with H = H' = 0,
    by :func:`touching_point`. Taking P for p I instead would give :func:`eps_delta`. Arrays broadcast.
    """
    s, v = _sv(s, v)
    S = smoother_large_d(s, v)
    return (S + (S + v) * np.expm1(S * (1 - S) / ((S + v) * (1 + S))))[()]


#: Fitted to Monte Carlo, not derived.
_SHIFT = 0.8


@validated
def kalman_floor(law: DriftLaw) -> float:
    """Floor for finite d: :func:`kalman_large_d` with d' = d + 0.8 gamma^4 + 2 v / (v + eps) in place of d, a fit.

    s' = d' (1 - gamma^2) / gamma^2, v' = sigma_y^2 / (d' k0), and eps that of s and v. Where noise dominates, d + 2 is
    the delta rule's, exact as P is then nearly p I; the rest is fitted. Within 1 % of Monte Carlo for d >= 5 in the
    cases tried; :func:`~icl.theory.floors.filtering.kalman_errors` is exact.

    Raises:
        ValueError: if d < 5: below, the fit is too high, by up to 22 % at d = 1.

    >>> from icl.theory.steady import DriftLaw, best_delta
    >>> from icl.theory.steady.large_d import kalman_floor
    >>> law = DriftLaw(d=10, gamma=0.99, sigma_e=0.1, sigma_y=0.5)
    >>> round(kalman_floor(law), 3), round(best_delta(law).error, 3)
    (0.916, 1.126)
    """
    # gamma near 0: weights are almost independent from step to step, and cannot be estimated.
    if law.gamma**2 < 1e-17:
        return law.zero_error
    if law.d < 5:
        raise ValueError(
            f"law must have d >= 5 for this fit, got d = {law.d}: average `theory.kalman_errors`, exact for any d (at "
            "d = 1 without noise the floor is sigma_e^2)"
        )
    d = (
        law.d
        + _SHIFT * law.gamma**4
        + 2 * law.noise_ratio / (law.noise_ratio + kalman_large_d(law.drift_rate, law.noise_ratio))
    )
    s, v = d * law.renewed / law.gamma**2, law.sigma_y**2 / (d * law.k0)
    return float(law.zero_error * kalman_large_d(s, v))


@validated
def kalman_random_walk(nu: NonNegatives) -> Any:
    """Kalman floor's p / (d q) for slow drift in many dimensions, nu = s2 / (d^2 q): e / 4 without noise.

    z^2 exp(1/z - 1 + nu / z^2) - nu = z^2 (exp(1/(2 z)) - 1) + z/2,    z = (1 + sqrt(1 + 16 nu)) / 4
    """
    nu = np.asarray(nu, dtype=np.float64)
    z = (1 + np.sqrt(1 + 16 * nu)) / 4
    return (z**2 * np.expm1(1 / (2 * z)) + z / 2)[()]


@validated
def delta_random_walk(nu: NonNegatives) -> Any:
    """Delta rule's p / (d q) for slow drift in many dimensions: (1 + sqrt(1 + 4 nu)) / 2, 1 without noise."""
    nu = np.asarray(nu, dtype=np.float64)
    return ((1 + np.sqrt(1 + 4 * nu)) / 2)[()]


@validated
def rls_random_walk(nu: NonNegative, theta: Annotated[float, Ge(1e-7), Le(1e3)]) -> float:
    """p / (d q) of RLS with lam = 1 - theta / d for slow drift in many dimensions (mean field).

        [int_0^1 theta u (1 - u) / (1 - e^(-theta u)) du + nu (theta - 1 + e^-theta)] / (1 - e^-theta)

    RLS is a Kalman filter that takes (1/lam - 1) P for the innovations' covariance q I. theta is from 1e-7 to 1e3:
    below, the last difference is rounding, and above, the integrand has a corner that the quadrature does not resolve.
    """
    nu, theta = float(nu), float(theta)
    nodes, weight = np.polynomial.legendre.leggauss(60)
    u = (nodes + 1) / 2
    drift = weight / 2 @ (theta * u * (1 - u) / -np.expm1(-theta * u))
    return float((drift + nu * (theta + np.expm1(-theta))) / -np.expm1(-theta))


@validated
def rls_optimal_forgetting(d: Count, *, drift: Positive, noise: NonNegative) -> float:
    """Forgetting factor of recursive least squares with the least error on a slow random walk: 1 - theta / d.

    theta minimises :func:`rls_random_walk`; the factor is right where it is near 1, that is where the drift is slow.

    Args:
        d: number of coefficients, of inputs of variance 1.
        drift: standard deviation that each coefficient gains a step, in units of y/x.
        noise: standard deviation of the labels' noise, in units of y.

    >>> from icl.theory.steady.large_d import rls_optimal_forgetting
    >>> round(rls_optimal_forgetting(5, drift=0.01, noise=0.3), 3)
    0.968
    """
    nu = (noise / drift / d) ** 2
    optimum: Any = minimize_scalar(
        lambda log: rls_random_walk(nu, float(np.exp(log))), bounds=(-13.8, 6.2), method="bounded"
    )
    return max(1 - float(np.exp(optimum.x)) / d, 0.0)
