"""Steady-state error of the Mesa layer as d grows, and its optimal settings (mean field, not in the papers).

Mesa answers x'w_hat, where w_hat is the minimum of an exponentially weighted ridge regression over all examples, the
latest having t = 1:

    w_hat = argmin_w sum_t lam^t (y_t - w'x_t)^2 + rho w'w.

In many dimensions its decay and its ridge enter as theta and ridge, lam = exp(-theta / d) and rho = d ridge, and the
drift as s = d (1 - gamma^2) and v = sigma_y^2 / (d k), as in :mod:`icl.theory.steady.large_d`. The inverse G of the
weighted sum of x x' has the trace e that solves

    1 = ridge e + log(1 + e) / theta,

and an example of weight a is seen through the factor 1 / (1 + a e), because G knows it. With sums over the examples as
integrals over their weights, a from 0 to 1, da / (theta a) being their number over d,

    m1 = E w'w_hat / (d k)  = (e / theta) int a^(s / (2 theta)) / (1 + a e) da,
    S  = int a / (1 + a e)^2 da / theta,
    m2 = E w_hat'w_hat / (d k) = e^2 [C + (1 + v) S] / (1 - e^2 S),
    C  = (2 / theta^2) int int_(b < a) (b / a)^(s / (2 theta)) (1 - a b e^2) / ((1 + a e) (1 + b e))^2 db da,

and the error over d k is 1 - 2 m1 + m2. Mean field: quadratic forms of an input are replaced by their means (Sherman
and Morrison's formula takes an example or a pair of them out of G first), which is right to order 1 / d and not proved
here. Without ridge and for slow drift it is recursive least squares on a random walk,
:func:`~icl.theory.steady.large_d.rls_random_walk`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le
from jaxtyping import Float
from scipy.optimize import minimize

from icl import _checks
from icl._bounds import Positive, validated
from icl.theory.steady.fast_weights import DriftLaw
from icl.theory.steady.large_d import eps_delta, eps_gla, kalman_floor, kalman_large_d


def _power(n: int, power: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes on (0, 1) in x with z = x^power, which smooths a singularity at z = 0."""
    x, weight = np.polynomial.legendre.leggauss(n)
    x, weight = (x + 1) / 2, weight / 2
    return x**power, weight * power * x ** (power - 1)


_Rules = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

#: Rules of the outer and the inner integrals. The outer have no singularity, the inner the power s / (2 theta) at 0.
_FINE: _Rules = (_power(32, 1), _power(40, 4))
#: Good to 1e-7, for searches.
_COARSE: _Rules = (_power(14, 1), _power(16, 4))


def _log_excess(e: np.ndarray) -> np.ndarray:
    """log(1 + e) - e / (1 + e), e^2 / 2 for small e, without cancellation."""
    small = sum((-1) ** k * (k - 1) / k * e**k for k in range(2, 11))
    return np.where(e < 0.01, small, np.log1p(e) - e / (1 + e))


def _moments(
    s: np.ndarray, v: np.ndarray, theta: np.ndarray, e: np.ndarray, rules: _Rules = _FINE
) -> tuple[np.ndarray, np.ndarray]:
    """Moments m1 and m2 of the module docstring, arrays of points (P,).

    1 + a e = (1 + e)^z and 1 + b e = (1 + a e)^y carry the integrals over a and b to (0, 1): the nodes then
    resolve all weights, however large e is.
    """
    (z, outer), (y, inner) = rules
    sigma, log1p = s / (2 * theta), np.log1p(e)
    L = log1p[:, None] * z  # log(1 + a e), (P, outer)
    reach = L[:, :, None] * y  # log(1 + b e), (P, outer, inner)
    share = np.expm1(reach) / np.expm1(L)[:, :, None]  # b / a
    # db / (1 + b e)^2 = L exp(-reach) dy / e, and likewise for a; 1 - (a e) (b e).
    kernel = share ** sigma[:, None, None] * (1 - np.expm1(L)[:, :, None] * np.expm1(reach)) * np.exp(-reach)
    within = (kernel @ inner) * L * np.exp(-L)
    C = 2 / theta**2 * log1p / e**2 * (within @ outer)
    first = np.expm1(log1p[:, None] * y) / e[:, None]  # a itself, by the nodes that bear a power at 0
    m1 = log1p / theta * ((first ** sigma[:, None]) @ inner)
    excess = _log_excess(e) / theta  # e^2 S
    return m1, (e**2 * C + (1 + v) * excess) / (1 - excess)


def _trace(theta: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """Root e > 0 of 1 = ridge e + log(1 + e) / theta, whose right side increases; by bisection of log(1 + e)."""
    low, high = np.zeros_like(theta), np.minimum(theta, np.log1p(1 / np.maximum(ridge, 1e-300)))
    for _ in range(60):
        middle = (low + high) / 2
        above = ridge * np.expm1(middle) + middle / theta > 1
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.expm1((low + high) / 2)


def _points(**given: tuple[Any, dict[str, float]]) -> list[np.ndarray]:
    """Arguments as float64, broadcast against each other."""
    arrays = {name: np.asarray(_checks.real(name, value, **bounds)) for name, (value, bounds) in given.items()}
    try:
        return [np.asarray(a, dtype=np.float64) for a in np.broadcast_arrays(*arrays.values())]
    except ValueError:
        shapes = ", ".join(str(a.shape) for a in arrays.values())
        raise ValueError(f"{' and '.join(given)} must broadcast against each other, got {shapes}") from None


@validated
def mesa_large_d(
    s: Annotated[Any, Gt(0), Le(1e06)],
    v: Annotated[Any, Ge(0), Le(1e12)],
    theta: Annotated[Any, Ge(0.0001), Le(30)],
    ridge: Annotated[Any, Ge(0), Le(1e06)],
) -> Any:
    """Mesa's error over d k as d grows, at any settings: 1 - 2 m1 + m2 of the module's formulas. Arrays broadcast.

    Mean field, off by order 1 / d; the integrals are good to 1e-9 for s <= 100 theta.

    Args:
        s: dimensions over memory, d (1 - gamma^2), at most 1e6.
        v: the labels' noise over their signal, sigma_y^2 / (d k), at most 1e12.
        theta: dimensions over Mesa's own memory, d log(1 / lam), at most 30.
        ridge: rho / d, at most 1e6.
    """
    s, v, theta, ridge = _points(
        s=(s, {"above": 0, "at_most": 1e6}),
        v=(v, {"at_least": 0, "at_most": 1e12}),
        theta=(theta, {"at_least": 1e-4, "at_most": 30}),
        ridge=(ridge, {"at_least": 0, "at_most": 1e6}),
    )
    e = _trace(theta.ravel(), ridge.ravel())
    error = np.empty(e.shape)
    for part in np.array_split(np.arange(e.size), 1 + e.size // 256):
        m1, m2 = _moments(s.ravel()[part], v.ravel()[part], theta.ravel()[part], e[part])
        error[part] = 1 - 2 * m1 + m2
    return error.reshape(s.shape)[()]


@dataclass(frozen=True)
class BestMesa:
    """Optimal Mesa layer on a drift, as d grows.

    Attributes:
        error: over d k, dimensionless; mean field.
        theta: its decay, d log(1 / lam).
        ridge: rho / d, in units of x^2.
    """

    error: float
    theta: float
    ridge: float


@validated
def best_mesa(
    s: Annotated[float, Ge(1e-4), Le(10)], v: Annotated[float, Ge(0), Le(100)], *, near: BestMesa | None = None
) -> BestMesa:
    """Decay and ridge of least Mesa error as d grows, by a grid and a simplex search.

    The error is flat around them: it is accurate to 1e-8, they to 1e-3. Under fast drift the settings matter little.

    Args:
        s: dimensions over memory, at most 10.
        v: the labels' noise over their signal, at most 100.
        near: the best settings of a neighbouring drift, to start from in place of the grid; a sweep is then faster.
    """
    s, v = float(s), float(v)

    def at(fade: float, free: float, rules: _Rules) -> float:
        point = [np.array([value]) for value in (s, v, fade, np.expm1(fade * free))]
        m1, m2 = _moments(point[0], point[1], point[2], point[3], rules)
        return float(1 - 2 * m1[0] + m2[0])

    # Coordinates: log theta, and log(1 + e) / theta, which is 1 without ridge.
    def error(place: np.ndarray) -> float:
        fade, free = float(np.exp(place[0])), float(place[1])
        if not (1e-4 <= fade <= 30 and 1e-6 <= free <= 1):
            return 2.0
        return at(fade, free, _COARSE)

    if near is None:
        fades, frees = np.meshgrid(np.geomspace(0.001, 20, 16), (0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.85, 0.95))
        theta, e = fades.ravel(), np.expm1(fades * frees).ravel()
        m1, m2 = _moments(np.full(e.shape, s), np.full(e.shape, v), theta, e, _COARSE)
        least = int(np.argmin(m2 - 2 * m1))
        start = (float(np.log(theta[least])), float(frees.ravel()[least]))
    else:
        e = float(_trace(np.array([near.theta]), np.array([near.ridge]))[0])
        start = (float(np.log(near.theta)), float(np.log1p(e)) / near.theta)
    first = np.array([start, (start[0] + 0.1, start[1]), (start[0], 0.95 * start[1])])
    optimum = minimize(
        error, start, method="Nelder-Mead", options={"initial_simplex": first, "xatol": 1e-4, "fatol": 1e-10}
    )
    best, left = float(np.exp(optimum.x[0])), float(optimum.x[1])
    return BestMesa(at(best, left, _FINE), best, float((1 - left) / np.expm1(best * left)))


@validated
def mesa_over_floor(s: Float[np.ndarray, " m"], v: Float[np.ndarray, " n"]) -> Float[np.ndarray, "m n"]:
    """Ratio of Mesa's least error to the floor's as d grows, at every s and v; both mean field.

    Args:
        s: dimensions over memory, (m,), >= 0.0001, at most 10.
        v: the labels' noise over their signal, (n,), >= 0, at most 100; a sweep along it is fastest in order.
    """
    _checks.real("s", s, at_least=1e-4, at_most=10)
    _checks.real("v", v, at_least=0, at_most=100)
    errors = np.empty((s.size, v.size))
    for i, here in enumerate(s):
        near = None
        for j, noise in enumerate(v):
            near = best_mesa(float(here), float(noise), near=near)
            errors[i, j] = near.error
    return errors / kalman_large_d(s[:, None], v)


#: The map's layers from the cheapest on, attention, any gates of the current key, a ridge regression.
CHEAP_LAYERS = ("GLA", "gates of the key", "Mesa")


@validated
def least_noise(
    s: Float[np.ndarray, " m"], within: Positive, v: Float[np.ndarray, " n"], mesa: Float[np.ndarray, "m n"]
) -> dict[str, Float[np.ndarray, " m"]]:
    """Least noise v, within a range, from which on a layer is within a given factor of the floor, as d grows.

    A layer's error over the floor's falls as v grows, so that these are the borders of a map over s and v. Those of
    gated attention and of the layers with gates of the key (:func:`~icl.theory.steady.large_d.eps_delta`) come from
    closed forms, Mesa's from a table, between whose columns the logarithm of its excess runs straight over log v.

    Args:
        s: dimensions over memory, (m,), > 0.
        within: share of the floor: 0.1 is 10 %.
        v: noises of the table's columns, (n,), > 0, increasing; the first and the last are the range.
        mesa: Mesa's error over the floor's there, (m, n), > 1, as :func:`mesa_over_floor` has it.

    Returns: (m,) for each of :data:`CHEAP_LAYERS`; an end of the range where the border is beyond it.
    """
    _checks.real("s", s, above=0)
    _checks.real("v", v, above=0)
    _checks.real("mesa", mesa, above=1)
    if v.size < 2 or (np.diff(v) <= 0).any():
        raise ValueError(f"v must be increasing, got {v.tolist()}")
    log_v, excess = np.log(v), np.log(mesa - 1)

    def mesa_at(log_noise: np.ndarray) -> np.ndarray:
        return np.array([np.interp(at, log_v, row) for at, row in zip(log_noise, excess, strict=True)])

    def of(error: Callable[[Any, Any], Any]) -> Callable[[np.ndarray], np.ndarray]:
        def excess_at(log_noise: np.ndarray) -> np.ndarray:
            noise = np.exp(log_noise)
            return np.log(np.asarray(error(s, noise) / kalman_large_d(s, noise)) - 1)

        return excess_at

    borders = {}
    for layer, excess_at in zip(CHEAP_LAYERS, (of(eps_gla), of(eps_delta), mesa_at), strict=True):
        low, high = np.full(s.shape, log_v[0]), np.full(s.shape, log_v[-1])
        for _ in range(50):
            middle = (low + high) / 2
            above = excess_at(middle) > np.log(within)
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        borders[layer] = np.exp((low + high) / 2)
    return borders


@validated
def mesa_for(law: DriftLaw) -> float:
    """Least error of Mesa in d dimensions, a fit: `kalman_floor` times Mesa's ratio to the floor as d grows.

    That ratio hardly depends on d: within 2 % of Monte Carlo for d >= 5 in what was tried, at the settings that
    :func:`best_mesa` finds for d -> infinity.

    Args:
        law: drift and noise, with d >= 5, s from 1e-4 to 10 and v at most 100.
    """
    times = best_mesa(law.drift_rate, law.noise_ratio).error / kalman_large_d(law.drift_rate, law.noise_ratio)
    return float(kalman_floor(law) * times)
