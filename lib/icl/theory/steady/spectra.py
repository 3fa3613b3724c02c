"""Errors on any stationary drift from its spectrum: layers, the Kalman floor, the smoother (not in the papers).

A coordinate of the weights is a stationary process of spectrum f(omega), whose mean over omega is its variance k. A
layer or a filter observes it through a channel, w + white noise of variance R, and two means over omega give the
error of prediction from its past and of smoothing from all of it [Kolmogorov 1941; Wiener 1949]:

    L(R) = mean log(1 + f / R),    predicted p = R (exp(L(R)) - 1),    smoothed = mean f / (1 + f / R).

What differs is R. Exact at every d, for white Gaussian inputs (:func:`layer_error`; s2 = sigma_y^2):

    gated linear attention, any number of heads    R = (d + 1) k + s2
    delta rule on raw keys                         R = (d + 1) p + s2
    any gates of the current key (Longhorn)        R = D - p,  1/D = (1/d) E r / (r p + s2);  (d - 1) p without noise

As d grows, for inputs with eigenvalues l_j (:func:`filter_error`): with e the smoother's error and R = s2 + e,

    e = sum_j l_j smoothed_j(R / l_j),    log(s2 + error) = log R + sum_j L_j(R / l_j) - e / R,

which is proved for noisy labels in the chapter *The price of not knowing the future*, with an error of order 1/d.
"""

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge
from jaxtyping import Float
from scipy.optimize import brentq

from icl import _checks
from icl._bounds import Count, NonNegative, NonNegatives, Positive, Positives, validated
from icl.kalman_updates import downdate, innovation
from icl.theory._common import eigenvalues, mean_shrinkage
from icl.theory.steady.fast_weights import DriftLaw

_LAYERS = ("gla", "delta", "key-gated")


@validated
def frequencies(n: Annotated[int, Ge(8)]) -> Float[np.ndarray, " n"]:
    """Frequency grid of all spectra here, 2 pi j / n for j = 0 .. n - 1, in radians a step.

    Args:
        n: number of points.
    """
    return 2 * np.pi * np.arange(n) / n


@validated
def pole_spectrum(poles: Any, *, k: Positive = 1.0, n: Annotated[int, Ge(8)] = 4096) -> Float[np.ndarray, " n"]:
    """Spectrum of an autoregressive drift with these poles, of variance k.

    One pole gamma is the drift of Part I; a pair rho exp(+-i omega) oscillates. Sums of spectra belong to sums of
    independent drifts.

    Args:
        poles: real or in conjugate pairs, all inside the unit circle, (order,).
        k: variance of a weight.
        n: points of the grid; more where a pole is closer to the circle than some 30 / n.

    Raises:
        ValueError: if poles do not pair up, or the grid is too coarse for them.
    """
    omega = frequencies(n)
    _checks.detached("poles", poles)
    roots = np.atleast_1d(np.asarray(poles))
    if not roots.size or roots.dtype.kind not in "fiuc" or roots.ndim != 1 or not np.isfinite(roots).all():
        raise ValueError(f"poles must be a list of finite numbers, got {poles!r}")
    if not (np.abs(roots) < 1).all():
        raise ValueError(f"poles must be inside the unit circle, got {roots[np.abs(roots) >= 1][0]:g}")
    whitens = np.poly(roots)
    if np.abs(np.imag(whitens)).max() > 1e-12 * np.abs(whitens).max():
        raise ValueError(f"poles must be real or in conjugate pairs, got {poles!r}")
    size = np.abs(roots).max()
    if size**n > 1e-13:
        raise ValueError(f"n must be larger for a pole of size {size:g}, got {n}")
    f = 1 / np.abs(np.polyval(np.real(whitens), np.exp(1j * omega))) ** 2
    return np.asarray(k * f / f.mean())


@validated
def _drift(f: NonNegatives) -> np.ndarray:
    f = np.asarray(f, dtype=np.float64)
    if f.ndim not in (1, 2) or f.shape[-1] < 8 or not (f.max(-1) > 0).all():
        raise ValueError(
            f"f must be one spectrum (n,) or one a direction (d, n), n >= 8, none of them 0, got {f.shape}"
        )
    return f


def _one(f: Any) -> np.ndarray:
    f = _drift(f)
    if f.ndim > 1:
        raise ValueError(f"f must be one spectrum, (n,), for white inputs, got {f.shape}")
    return f


@validated
def log_gain(f: Float[np.ndarray, "*directions n"], R: Positive) -> Any:
    """Log gain L(R) = mean log(1 + f / R): twice the information rate of a channel of noise R, in nats a step.

    Args:
        f: the drift's spectrum on a uniform grid, >= 0.
        R: variance of the channel's noise.
    """
    return np.log1p(_drift(f) / R).mean(-1)[()]


@validated
def predicted(f: Float[np.ndarray, "*directions n"], R: Positive) -> Any:
    """One-step prediction error of a weight from the past of a channel of noise R: R (exp(L(R)) - 1) [Kolmogorov 1941].

    Args:
        f: the drift's spectrum on a uniform grid, >= 0.
        R: variance of the channel's noise.
    """
    return R * np.expm1(log_gain(f, R))


@validated
def smoothed_weight(f: Float[np.ndarray, "*directions n"], R: Positive) -> Any:
    """Smoothing error of a weight from the past and future of a channel of noise R: mean f / (1 + f / R).

    Args:
        f: the drift's spectrum on a uniform grid, >= 0.
        R: variance of the channel's noise.
    """
    f = _drift(f)
    return (R * f / (R + f)).mean(-1)[()]


def _meets(gap: Callable[[float], float], low: float, high: float) -> float:
    """Root of a gap that is positive at low and not at high, on a log scale; low if it is nowhere positive."""
    a, b = np.log(low), np.log(high)
    if gap(low) <= 0:
        return low
    return float(np.exp(brentq(lambda u: gap(np.exp(u)), a, b, xtol=1e-14, rtol=1e-14)))


@validated
def layer_error(f: Float[np.ndarray, " n"], d: Count, *, layer: str, sigma_y: NonNegative = 0.0) -> float:
    """Least error of a layer on a drift of any spectrum, exact at every d for inputs N(0, I): d p.

        p = R (exp(L(R)) - 1),    R as in the module docstring.

    It has as many states as the drift needs (infinitely many for some spectra). "gla" and "delta" are the least errors
    of all layers with fixed coefficients, without and with x x'h in their step; "key-gated" of all whose coefficients
    are functions of the current key.

    Args:
        f: spectrum of one weight on a uniform grid, >= 0.
        d: dimension of the inputs.
        layer: "gla", "delta" or "key-gated".
        sigma_y: standard deviation of the labels' noise.

    Raises:
        ValueError: if there is no such layer.
    """
    f = _one(f)
    noise = sigma_y**2
    if layer not in _LAYERS:
        raise ValueError(f"layer must be one of {', '.join(_LAYERS)}, got {layer!r}")
    k = float(f.mean())
    if layer == "gla":
        return float(d * predicted(f, (d + 1) * k + noise))
    if layer == "delta":

        def hears(p: float) -> float:
            return (d + 1) * p + noise
    elif not noise:

        def hears(p: float) -> float:
            return (d - 1) * p
    else:

        def hears(p: float) -> float:
            # d p / E r / (r + a) less p, without the difference.
            shrinkage, left = mean_shrinkage(d, noise / p)
            return p * (d - 1 + left) / shrinkage

    if d == 1 and layer == "key-gated" and not noise:
        # One weight, known after each label: the error is its innovation variance (Kolmogorov-Szego).
        with np.errstate(divide="ignore"):
            return float(np.exp(np.log(f).mean()))
    # p over what the past tells of it: concave over linear, so that they meet once.
    return d * _meets(lambda p: float(predicted(f, hears(p))) - p, 1e-15 * k, k)


@validated
def _scaled(f: Any, spectrum: Positives) -> tuple[np.ndarray, np.ndarray]:
    """Spectra of the weights in directions of unit inputs, and their multiplicities."""
    f = _drift(f)
    values = np.asarray(spectrum, dtype=np.float64)
    _checks.shape("spectrum", values, (f.shape[0] if f.ndim == 2 else None,), "to match f")
    if not values.size:
        raise ValueError(f"spectrum must hold at least one eigenvalue, got shape {values.shape}")
    if f.ndim == 2:
        return f * values[:, None], np.ones(len(values))
    each, count = np.unique(values, return_counts=True)
    return f * each[:, None], count.astype(np.float64)


def _levels(g: np.ndarray, count: np.ndarray, R: float) -> tuple[float, float]:
    """Sums over directions of L(R) and of the smoothing error."""
    return float(count @ np.log1p(g / R).mean(-1)), float(count @ (g / (1 + g / R)).mean(-1))


def _smoother(g: np.ndarray, count: np.ndarray, noise: float) -> float:
    zero = float(count @ g.mean(-1))
    if not noise and float(count @ (g > 0).mean(-1)) <= 1:
        return 0.0
    # Without noise e / R falls from the number of directions that move to 0: it is 1 once.
    return _meets(lambda e: _levels(g, count, noise + e)[1] - e, 1e-18 * zero, zero)


@validated
def smoother_error(
    f: Float[np.ndarray, "*directions n"], spectrum: Float[np.ndarray, " d"], *, sigma_y: NonNegative = 0.0
) -> float:
    """Smoother's error as d grows, from the labels before and after: e of the module docstring.

    Args:
        f: spectrum of the drift on a uniform grid, >= 0: of one weight, or one a direction.
        spectrum: eigenvalues l_j of Lambda, (d,), > 0; ones for white inputs.
        sigma_y: standard deviation of the labels' noise.

    Returns: the clean squared error; 0 where noise-free labels determine all moving directions.
    """
    g, count = _scaled(f, spectrum)
    return _smoother(g, count, sigma_y**2)


@validated
def filter_error(
    f: Float[np.ndarray, "*directions n"], spectrum: Float[np.ndarray, " d"], *, sigma_y: NonNegative = 0.0
) -> float:
    """Kalman filter's error as d grows, the floor of the module docstring.

    Args:
        f: spectrum of the drift on a uniform grid, >= 0: of one weight, or one a direction.
        spectrum: eigenvalues l_j of Lambda, (d,), > 0; ones for white inputs.
        sigma_y: standard deviation of the labels' noise.

    Returns: the clean squared error; 0 where :func:`smoother_error` is.
    """
    g, count = _scaled(f, spectrum)
    noise = sigma_y**2
    e = _smoother(g, count, noise)
    if not noise + e:
        return 0.0
    L, _ = _levels(g, count, noise + e)
    # expm1 form: e may be far below the noise.
    return float(e + (noise + e) * np.expm1(L - e / (noise + e)))


@validated
def key_gated_large_d(
    f: Float[np.ndarray, "*directions n"], spectrum: Float[np.ndarray, " d"], *, sigma_y: NonNegative = 0.0
) -> float:
    """Least error of all layers with gates of the current key, as d grows: error = R L(R) with R = s2 + error.

    Args:
        f: spectrum of the drift on a uniform grid, >= 0: of one weight, or one a direction.
        spectrum: eigenvalues l_j of Lambda, (d,), > 0; ones for white inputs.
        sigma_y: standard deviation of the labels' noise.
    """
    g, count = _scaled(f, spectrum)
    noise = sigma_y**2
    zero = float(count @ g.mean(-1))

    def gap(error: float) -> float:
        return (noise + error) * _levels(g, count, noise + error)[0] - error

    return _meets(gap, 1e-18 * zero, zero)


@validated
def gla_large_d(
    f: Float[np.ndarray, "*directions n"], spectrum: Float[np.ndarray, " d"], *, sigma_y: NonNegative = 0.0
) -> float:
    """Error of gated linear attention with a bank of decays for every direction, as d grows: R L(R), R = s2 + zero.

    Args:
        f: spectrum of the drift on a uniform grid, >= 0: of one weight, or one a direction.
        spectrum: eigenvalues l_j of Lambda, (d,), > 0; ones for white inputs.
        sigma_y: standard deviation of the labels' noise.
    """
    g, count = _scaled(f, spectrum)
    R = sigma_y**2 + float(count @ g.mean(-1))
    return R * _levels(g, count, R)[0]


@validated
def log_det_bias(
    f: Float[np.ndarray, "*directions n"], spectrum: Float[np.ndarray, " d"], *, sigma_y: NonNegative = 0.0
) -> float:
    """Finite-d bias of E log(s2 + x'P x), to first order in 1/d: half the mean of log(1 - a).

        a(theta) = R^-2 sum over lags t of exp(i theta t) sum_j (l_j C_j(t))^2

    with C_j the covariance, at lag t, of the smoother's error of a weight. It is the known bias of the log
    determinant of a real Gaussian matrix [Hachem, Loubaton & Najim 2008, for its size], not proved here.

    Args:
        f: spectrum of the drift on a uniform grid, >= 0: of one weight, or one a direction.
        spectrum: eigenvalues l_j of Lambda, (d,), > 0; ones for white inputs.
        sigma_y: standard deviation of the labels' noise.

    Raises:
        ValueError: if the smoother's error is 0: noise-free labels that determine all moving directions.
    """
    g, count = _scaled(f, spectrum)
    noise = sigma_y**2
    e = _smoother(g, count, noise)
    if not noise + e:
        raise ValueError(f"sigma_y must be > 0 for a drift that the smoother follows exactly, got {sigma_y!r}")
    R = noise + e
    C = np.fft.ifft(g / (1 + g / R)).real
    a = np.fft.fft(count @ C**2).real / R**2
    return float(np.log1p(-a).mean() / 2)


@validated
def corrected_floor(
    law: DriftLaw, spectrum: Float[np.ndarray, " d"] | None = None, *, n: Annotated[int, Ge(8)] = 4096
) -> float:
    """:func:`filter_error` of an AR(1) drift to first order in 1/d (not proved): (s2 + error) (1 + B + V) - s2.

    B is :func:`log_det_bias`; V = tr(Lambda P Lambda P) / (s2 + error)^2 is what the spread of x'P x takes from a
    logarithm, known from the balance of one step: V gamma^2 (s2 + error) = q tr Lambda - (1 - gamma^2) error.
    The drift's own spectrum at this d is in all three, so that no limit's convention of s enters. Alternatively, with
    :func:`~icl.theory.steady.large_d.kalman_large_d` in their place, s has to be -d log gamma^2.

    Args:
        law: its d, drift and noise.
        spectrum: eigenvalues l_j of Lambda, (d,), > 0; default: white inputs.
        n: points of the grid; more where gamma is closer to 1 than some 30 / n.

    Raises:
        ValueError: if the grid is too coarse.
    """
    values = np.ones(law.d) if spectrum is None else eigenvalues(law.d, spectrum)
    f = pole_spectrum([law.gamma], k=law.k0, n=n)
    noise = law.sigma_y**2
    error = filter_error(f, values, sigma_y=law.sigma_y)
    if not noise + error:
        return 0.0
    B = log_det_bias(f, values, sigma_y=law.sigma_y)
    V = (law.q * values.sum() - law.renewed * error) / (noise + error)
    return float(error + (noise + error) * (B + V))


@validated
def state_space_errors(
    x: Float[np.ndarray, "batch time d"],
    F: Float[np.ndarray, "r r"],
    Q: Float[np.ndarray, "r r"],
    h: Float[np.ndarray, " r"],
    *,
    spectrum: Float[np.ndarray, " d"] | None = None,
    sigma_y: NonNegative = 0.0,
) -> tuple[Float[np.ndarray, "batch time"], Float[np.ndarray, "batch time"]]:
    """Floor and its spread on given inputs, for weights h'z, z <- F z + N(0, Q) in every coordinate.

    Riccati's recursion from the stationary covariance of z. The first result is tr(Lambda P_i), the error given the
    inputs before position i; the second tr(Lambda P_i Lambda P_i), half the variance of x'P_i x given them. Labels do
    not enter. Plain covariances: for drifts so smooth that rounding matters,
    :func:`~icl.theory.floors.filtering.linear_drift_errors` has a root.

    Args:
        x: inputs, one sequence a row, in the axes of Lambda; the last input is not used.
        F: transition of the state, of spectral radius below 1.
        Q: covariance of the innovations.
        h: observation vector, the weight being h'z.
        spectrum: eigenvalues l_j of Lambda, (d,), > 0; default: white inputs.
        sigma_y: standard deviation of the labels' noise.

    Raises:
        ValueError: if the state is not stationary.
    """
    if not x.size:
        raise ValueError(f"x must hold at least one sequence, got shape {x.shape}")
    batch, time, d = x.shape
    r = len(h)
    Q = _checks.covariance("Q", Q, r)
    values = np.ones(d) if spectrum is None else _checks.real("spectrum", spectrum, above=0)
    noise = sigma_y**2
    radius = np.abs(np.linalg.eigvals(F)).max()
    if not radius < 1:
        raise ValueError(f"F must have a spectral radius below 1, got {radius:.6g}")
    start = np.linalg.solve(np.eye(r * r) - np.kron(F, F), Q.ravel()).reshape(r, r)
    P = np.broadcast_to(np.kron(start, np.eye(d)), (batch, r * d, r * d)).copy()
    push = np.kron(Q, np.eye(d))
    errors, spread = np.empty((batch, time)), np.empty((batch, time))
    for i in range(time):
        grid = P.reshape(batch, r, d, r, d)
        W = np.einsum("r,briqj,q->bij", h, grid, h, optimize=True)
        errors[:, i] = np.einsum("bii,i->b", W, values)
        spread[:, i] = np.einsum("bij,i,j->b", W**2, values, values)
        if i == time - 1:
            break
        seen = np.einsum("r,bd->brd", h, x[:, i]).reshape(batch, r * d)
        Px, S = innovation(P, seen, noise)
        P = downdate(P, Px, np.where(S > 0, S, np.inf))
        # F on the left, twice, as P is symmetric; F does not look at the d coordinates.
        for _ in range(2):
            P = (F @ P.reshape(batch, r, -1)).reshape(batch, r * d, r * d).swapaxes(1, 2)
        P = P + push
    return errors, spread
