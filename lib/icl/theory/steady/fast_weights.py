"""Steady-state errors of decayed fast-weight layers, from one equation, and their floor (not in the papers).

The task is the drift w_i = gamma w_{i-1} + e_i with labels y_i = <w_i, x_i> + noise, after an infinitely long prompt. A
layer that learns by fixed rules leaves in every coordinate of the weights a variance p that solves

    p = q + gamma^2 (p - p^2 / D),        error = d p,        q = sigma_e^2,

in which only D, its effective observation noise, depends on the layer (k = q / (1 - gamma^2), s2 = sigma_y^2, r = x'x):

    gated linear attention, w <- lam (w + mu y x)          D = p + (d + 1) k + s2
    the same with y x / r                                  D = p + (d - 1) k + s2 d / (d - 2)
    delta rule, w <- lam (w + mu (y - w'x) x)              D = (d + 2) p + s2
    unit keys or Longhorn, w <- lam (w + (y - w'x) x / (r + eps))       1/D = (1/d) E r / (r p + s2)

The first two have the crosstalk of the whole signal, k, the last two that of the residual, p. All four are
exact for Gaussian inputs with Lambda = I. The Kalman filter keeps a matrix: its error is exact given the inputs
(:func:`~icl.theory.floors.filtering.kalman_errors`), and in the limit of many dimensions it has a closed form
(:mod:`icl.theory.steady.large_d`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Lt
from jaxtyping import Float
from scipy.optimize import brentq, minimize_scalar
from scipy.special import roots_jacobi

from icl import _checks
from icl._bounds import Count, NonNegative, Positive, validate_fields, validated
from icl.theory._common import eigenvalues, mean_shrinkage


@dataclass(frozen=True)
class DriftLaw:
    """Drifting regression in steady state, Lambda = I, Gaussian inputs.

    Attributes:
        d: dimension of the inputs.
        gamma: autoregressive coefficient, dimensionless.
        sigma_e: standard deviation of each coordinate of the innovations, in units of y/x.
        sigma_y: standard deviation of the labels' noise, in units of y; errors are those of the clean label.

    >>> from icl.theory.steady import DriftLaw
    >>> law = DriftLaw(d=10, gamma=0.99, sigma_e=0.1, sigma_y=0.5)
    >>> round(law.drift_rate, 3), round(law.noise_ratio, 3), round(law.zero_error, 3)
    (0.199, 0.05, 5.025)
    """

    d: Count
    gamma: Annotated[float, Ge(0), Lt(1)]
    sigma_e: Positive
    sigma_y: NonNegative = 0.0

    def __post_init__(self) -> None:
        """Validate the parameters of a stationary drift."""
        validate_fields(self)
        # Squares of variances enter, and float64 has to hold them.
        for name, value in (("sigma_e", self.sigma_e), ("sigma_y", self.sigma_y)):
            if value and not 1e-20 <= value <= 1e20:
                raise ValueError(f"{name} must be from 1e-20 to 1e20, or 0 for sigma_y, got {value!r}")

    @property
    def q(self) -> float:
        """Variance of an innovation, sigma_e^2."""
        return self.sigma_e**2

    @property
    def k0(self) -> float:
        """Steady-state variance of a weight's coordinate, sigma_e^2 / (1 - gamma^2)."""
        return self.sigma_e**2 / self.renewed

    @property
    def renewed(self) -> float:
        """Innovation share of a weight's variance, 1 - gamma^2, in full precision close to gamma = 1."""
        return (1 - self.gamma) * (1 + self.gamma)

    @property
    def drift_rate(self) -> float:
        """Dimension over memory length, d (1 - gamma^2); small for slow drift."""
        return self.d * self.renewed

    @property
    def noise_ratio(self) -> float:
        """Noise-to-signal ratio of the labels, sigma_y^2 / (d k0)."""
        return self.sigma_y**2 / (self.d * self.k0)

    @property
    def zero_error(self) -> float:
        """Error of the zero predictor, d k0; also linear attention's, whose best readout of an infinite prompt is 0."""
        return self.d * self.k0


@dataclass(frozen=True)
class SteadyOptimum:
    """Optimal layer of a family in steady state.

    Attributes:
        error: E (<w, x> - y_hat)^2 in steady state, in units of y^2.
        p: the same for a coordinate of the weights, error / d.
        lam: decay, dimensionless.
        mu: step size, in 1/x^2 where the key is raw and dimensionless where it is divided by r.
        eps: what Longhorn adds to r, in x^2; 0 elsewhere.
    """

    error: float
    p: float
    lam: float
    mu: float
    eps: float = 0.0


def _positive_root(law: DriftLaw, slope: Any, other: Any) -> Any:
    """Positive root p of the steady-state equation for D = slope p + other, a quadratic; `other` may be an array."""
    A, B, C = slope * law.renewed + law.gamma**2, other * law.renewed - slope * law.q, other * law.q
    root = np.sqrt(B**2 + 4 * A * C)
    # The form without cancellation on either side of B = 0.
    return np.where(B > 0, 2 * C / np.where(B > 0, B + root, 1.0), (root - B) / (2 * A))


@validated
def best_gla(law: DriftLaw) -> SteadyOptimum:
    """Optimal gated linear attention (a RetNet head) w <- lam (w + mu y x): D = p + (d + 1) k0 + s2.

    y x is w plus white noise of variance (d + 1) k0 + s2, observed by the scalar Kalman filter of gain K = p / D:
    lam = gamma (1 - K), mu = K / (1 - K). Without noise the error is that of
    :func:`~icl.theory.one_layer.closed_forms.steady_identity_error`.

    >>> from icl.theory.steady import DriftLaw, best_gla
    >>> law = DriftLaw(d=10, gamma=0.99, sigma_e=0.1)
    >>> layer = best_gla(law)
    >>> round(layer.error / law.zero_error, 3), round(layer.lam, 3)
    (0.379, 0.957)
    """
    noise = (law.d + 1) * law.k0 + law.sigma_y**2
    p = float(_positive_root(law, 1.0, noise))
    return SteadyOptimum(law.d * p, p, law.gamma * noise / (p + noise), p / noise)


@validated
def best_normalised_gla(law: DriftLaw) -> SteadyOptimum:
    """Optimal normalised linear attention w <- lam (w + mu y x / r): D = p + (d - 1) k0 + s2 d / (d - 2).

    Raises:
        ValueError: if d = 1, where y x / r is the weight itself and mu would be infinite; or if d = 2 and labels are
            noisy: the mean of 1 / r is then infinite.
    """
    if law.d <= (2 if law.sigma_y else 1):
        raise ValueError(f"d must be > 1, and > 2 for noisy labels, for y x / r to have a best weight, got {law.d}")
    noise = (law.d - 1) * law.k0 + (law.sigma_y**2 * law.d / (law.d - 2) if law.sigma_y else 0.0)
    p = float(_positive_root(law, 1.0, noise))
    # y x / r has mean w / d; mu rescales it.
    return SteadyOptimum(law.d * p, p, law.gamma * noise / (p + noise), law.d * p / noise)


@validated
def best_delta(law: DriftLaw) -> SteadyOptimum:
    """Optimal gated delta rule w <- lam (w + mu (y - w'x) x): D = (d + 2) p + s2, lam = gamma, mu = p / D.

    Without noise the error is that of :func:`~icl.theory.steady.lms_family.best_steady`.

    >>> from icl.theory.steady import DriftLaw, best_delta
    >>> law = DriftLaw(d=10, gamma=0.99, sigma_e=0.1)
    >>> layer = best_delta(law)
    >>> round(layer.error / law.zero_error, 3), layer.lam, round(layer.mu, 3)
    (0.196, 0.99, 0.083)
    """
    noise = law.sigma_y**2
    p = float(_positive_root(law, law.d + 2.0, noise))
    return SteadyOptimum(law.d * p, p, law.gamma, p / ((law.d + 2) * p + noise))


@validated
def linear_bound(law: DriftLaw) -> float:
    """Lower bound for any layer whose states move by fixed sums of h_j, y x and x x'h_j: the delta rule's error.

    Proved in the chapter *Every model is a decayed fast weight*, for any number of states and coefficients that may
    change in time but not with the data.
    """
    return best_delta(law).error


@validated
def squared_lengths(d: Count, *, nodes: Count = 64) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, " nodes"]]:
    """Quadrature over r = x'x, chi-square with d degrees of freedom: nodes and weights that sum to 1.

    Gauss's rule for the weight t^(d/2 - 1) e^-t, r = 2 t, from the eigenvalues of its Jacobi matrix
    [Golub & Welsch 1969, Calculation of Gauss quadrature rules]: exact for polynomials of degree 2 nodes - 1.
    """
    _checks.fits_memory("nodes", nodes, 8 * nodes**2)
    k, alpha = np.arange(nodes), d / 2 - 1
    beside = np.sqrt(k[1:] * (k[1:] + alpha))
    values, vectors = np.linalg.eigh(np.diag(2 * k + alpha + 1) + np.diag(beside, 1) + np.diag(beside, -1))
    return 2 * values.clip(min=0), vectors[0] ** 2


def _solve_p(law: DriftLaw, reduction: Any) -> float:
    """Root p in [q, k0] of p = q + gamma^2 (p - reduction(p)), reduction(p) = p^2 / D."""
    if not law.gamma:
        return law.q

    def gap(share: float) -> float:
        p = share * law.k0
        return float((law.q + law.gamma**2 * (p - reduction(p)) - p) / law.k0)

    # At p = q the right side is at least q, and at p = k0 at most k0.
    return float(brentq(gap, law.renewed, 1.0, xtol=1e-15, rtol=1e-14)) * law.k0


def _solve_p_stable(law: DriftLaw, reduction: Any) -> float:
    """Root p of (1 - gamma^2) p + gamma^2 reduction(p) = q, the same equation without cancellation."""

    def gap(p: float) -> float:
        return float(law.renewed * p + law.gamma**2 * reduction(p) - law.q)

    # Clip to the bounds, which rounding may cross where labels carry almost all or no information.
    if gap(law.q) >= 0:
        return law.q
    return law.k0 if gap(law.k0) <= 0 else float(brentq(gap, law.q, law.k0, xtol=1e-15 * law.q, rtol=1e-15))


def _unit_delta(law: DriftLaw) -> float:
    """p of `best_unit_delta` for noisy labels, by exponential integrals."""
    return _solve_p_stable(law, lambda p: p * mean_shrinkage(law.d, law.sigma_y**2 / p)[0] / law.d)


@validated
def best_unit_delta(law: DriftLaw) -> SteadyOptimum:
    """Delta rule with unit keys, and its generalisation to noisy labels, Longhorn: 1/D = (1/d) E r / (r p + s2).

        w <- lam (w + (y - w'x) x / (r + eps)),    lam = gamma,    eps = s2 / p

    is the best of all gains that see r and p alone. Without noise eps = 0 and D = d p, a closed form. With it, the
    mean over r is a quadrature where that is right to 1e-12, and exponential integrals elsewhere: in few dimensions
    and low noise lengths near 0 dominate, and close to gamma = 1 digits are lost.

    >>> from icl.theory.steady import DriftLaw, best_unit_delta
    >>> law = DriftLaw(d=10, gamma=0.99, sigma_e=0.1, sigma_y=0.5)
    >>> layer = best_unit_delta(law)
    >>> round(layer.error / law.zero_error, 3), round(layer.eps, 3)
    (0.207, 2.407)
    """
    noise = law.sigma_y**2
    if not noise:
        p = float(_positive_root(law, float(law.d), 0.0))
        return SteadyOptimum(law.d * p, p, law.gamma, 1.0)
    r, weight = squared_lengths(law.d, nodes=128)
    p = _solve_p(law, lambda p: p**2 / law.d * (weight @ (r / (r * p + noise))))
    exact = _unit_delta(law)
    if not abs(p / exact - 1) <= 1e-12:
        p = exact
    return SteadyOptimum(law.d * p, p, law.gamma, 1.0, noise / p)


@dataclass(frozen=True)
class Gates:
    """Optimal layer w <- a(r) w + b(r) y x with gates of the input's length.

    Attributes:
        error: in steady state, in units of y^2.
        p: error / d.
        r: squared lengths, the nodes of :func:`squared_lengths`.
        a: decay at each, dimensionless.
        b: write gate at each, in 1/x^2.
    """

    error: float
    p: float
    r: Float[np.ndarray, " nodes"]
    a: Float[np.ndarray, " nodes"]
    b: Float[np.ndarray, " nodes"]


@validated
def free_gates(law: DriftLaw) -> Gates:
    """Optimal unconstrained gates a(r), b(r): 1/D = E (r/d) / (r ((d - 1) k0 + p) / d + s2).

    b = gamma p / (r ((d - 1) k0 + p) / d + s2) and a = gamma - b r / d. Without noise D = p + (d - 1) k0 and a does not
    depend on r: of all data-dependent gates the best is :func:`best_normalised_gla`, a constant decay with y x divided
    by r.
    """
    r, _ = squared_lengths(law.d)
    noise = law.sigma_y**2

    def crosstalk(p: float) -> float:
        return (law.d - 1) * law.k0 + p

    def reduction(p: float) -> float:
        share = mean_shrinkage(law.d, noise * law.d / crosstalk(p))[0] if noise else 1.0
        return p**2 / crosstalk(p) * share

    p = _solve_p_stable(law, reduction)
    b = law.gamma * p / (r / law.d * crosstalk(p) + noise)
    return Gates(law.d * p, p, r, law.gamma - b * r / law.d, b)


@validated
def channel_gates_error(law: DriftLaw) -> float:
    """Error of the best w_j <- a_j w_j + b_j y x_j with per-channel gates of the whole x: no label noise.

    With p = error / d the gates are b_j = gamma p / (r k0 - x_j^2 (k0 - p)) and a_j = gamma - b_j x_j^2, and
    1/D = E u / (k0 - u (k0 - p)) over u = x_1^2 / r, which is Beta(1/2, (d - 1)/2): Gauss-Jacobi.

    Raises:
        ValueError: if labels are noisy, or d = 1, where there is a single channel.
    """
    if law.sigma_y or law.d < 2:
        raise ValueError(f"law must have d > 1 and labels without noise here, got d = {law.d}, {law.sigma_y}")
    nodes, weight = roots_jacobi(200, (law.d - 3) / 2, -0.5)
    u, weight = (1 + nodes) / 2, weight / weight.sum()
    return law.d * _solve_p(law, lambda p: p**2 * (weight @ (u / (law.k0 - u * (law.k0 - p)))))


@validated
def zoh_gates(law: DriftLaw) -> Gates:
    """Optimal zero-order-hold gates (S6, Mamba-2), a = alpha(r) in [0, 1] and b = scale (1 - alpha(r)).

    Second moments c = E w w_hat and A = E w_hat^2 move linearly, so that the effect of one step's alpha on all later
    errors is an adjoint's inner product, quadratic in alpha: alpha(r) is set to its minimum at every r, and the scale
    to the best readout, until convergence. alpha varies steeply near r = 0, which 64 nodes resolve to 1e-6 of the error
    at d = 3 and 1e-8 at d = 5, and worse in fewer dimensions.

    Raises:
        ValueError: if d < 3.
        RuntimeError: if they do not converge within 10,000 iterations.
    """
    if law.d < 3:
        raise ValueError(f"d must be at least 3 for 64 lengths to tell how alpha turns near 0, got {law.d}")
    r, weight = squared_lengths(law.d)
    k, signal = law.k0, r / law.d
    square = (r**2 * k + r * law.sigma_y**2) / law.d  # E |x y|^2 / d given r
    if not law.gamma:
        return Gates(law.zero_error, law.k0, r, np.zeros_like(r), np.zeros_like(r))
    best = best_gla(law)
    alpha, scale = np.full(r.shape, best.lam), best.lam * best.mu / (1 - best.lam)
    p = np.inf
    for _ in range(10_000):
        b = scale * (1 - alpha)
        c = law.gamma * (weight @ (b * signal)) * k / (1 - law.gamma * (weight @ alpha))
        A = (2 * (weight @ (alpha * b * signal)) * c + weight @ (b**2 * square)) / (1 - weight @ alpha**2)
        before, p = p, k - c**2 / A
        scale, c, A = scale * c / A, c**2 / A, c**2 / A
        if abs(p - before) <= 1e-15 * k:
            return Gates(float(law.d * p), float(p), r, alpha, scale * (1 - alpha))
        to_A = 1 / (1 - weight @ alpha**2)
        to_c = (-2 + 2 * to_A * (weight @ (alpha * scale * (1 - alpha) * signal))) / (1 - law.gamma * (weight @ alpha))
        curve = to_A * (A - 2 * scale * signal * c + scale**2 * square)
        slope = to_c * law.gamma * (c - scale * signal * k) + 2 * to_A * scale * (signal * c - scale * square)
        alpha = (alpha + (-slope / (2 * curve)).clip(0, 1)) / 2
    raise RuntimeError(f"the gates of {law} did not settle")


@dataclass(frozen=True)
class Update:
    """Linear joint step of the weights and a layer's states, z <- keep z + look x x'z + noise.

    z holds m vectors of d numbers, the weights first; the matrices mix them, each the same in every coordinate.

    Attributes:
        keep: (m, m).
        look: (m, m), the part multiplied by x x'.
        noise: (m, m), covariance of the additive noise, per coordinate.
    """

    keep: Float[np.ndarray, "m m"]
    look: Float[np.ndarray, "m m"]
    noise: Float[np.ndarray, "m m"]

    def __post_init__(self) -> None:
        """Validate that the matrices' shapes match."""
        validate_fields(self)


@validated
def update(
    law: DriftLaw, keep: Float[np.ndarray, "K K"], write: Float[np.ndarray, " K"], correct: Float[np.ndarray, "K K"]
) -> Update:
    """Joint step of a layer with K states, h_j <- sum_k keep_jk h_k + write_j y x + sum_k correct_jk x x'h_k.

    Gated attention has keep = lam, write = lam mu, correct = 0; the delta rule correct = -lam mu. Several heads,
    momentum and gradients at a chunk's first weights have the same form.
    """
    K = len(np.atleast_1d(keep))
    joint, look, noise = np.zeros((3, K + 1, K + 1))
    joint[0, 0], joint[1:, 1:] = law.gamma, keep
    look[1:, 0], look[1:, 1:] = write, correct
    noise[0, 0], noise[1:, 1:] = law.q, law.sigma_y**2 * np.outer(write, write)
    return Update(joint, look, noise)


@validated
def second_moments(updates: Sequence[Update], d: Count) -> Float[np.ndarray, "phases m m"]:
    """Steady-state E z_a'z_b / d before each update of a periodic sequence; Gaussian x, Lambda = I.

        G <- keep G keep' + keep G look' + look G keep' + (d + 2) look G look' + noise

    because E x x' = I, E x x'x x' = (d + 2) I, and x is independent of the past.

    Raises:
        ValueError: if updates is empty, they differ in size, or a period of them diverges.
    """
    if not updates or not all(isinstance(u, Update) for u in updates):
        raise ValueError(f"updates must be a non-empty sequence of Update, got {updates!r}")
    m = len(updates[0].keep)
    for one in updates:
        _checks.shape("updates", one.keep, (m, m), "as the first has")
    product, added = np.eye(m * m), np.zeros(m * m)
    maps = []
    for one in updates:
        A, C = one.keep, one.look
        step = np.kron(A, A) + np.kron(A, C) + np.kron(C, A) + (d + 2) * np.kron(C, C)
        maps.append((step, one.noise.ravel()))
        product, added = step @ product, step @ added + one.noise.ravel()
    radius = np.abs(np.linalg.eigvals(product)).max()
    if not radius < 1:
        raise ValueError(f"updates must settle, got a round of them of spectral radius {radius:.6g}")
    G = np.linalg.solve(np.eye(m * m) - product, added)
    moments = []
    for step, noise in maps:
        moments.append(G.reshape(m, m))
        G = step @ G + noise
    return np.stack(moments)


@validated
def readout_errors(
    moments: Float[np.ndarray, "phases m m"], d: Count, *, hidden: Count = 1
) -> Float[np.ndarray, " phases"]:
    """Error of the best linear readout of the states, from :func:`second_moments`: d (G_ww - G_wh G_hh^-1 G_hw).

    Args:
        moments: (phases, m, m).
        d: dimension of the inputs.
        hidden: how many of the m vectors are the weights' own (2 for weights of second order); the rest are states.
    """
    if hidden >= moments.shape[-1]:
        raise ValueError(f"hidden must leave a state among the {moments.shape[-1]} vectors, got {hidden}")
    with_states = moments[:, 0, hidden:]
    inner = np.linalg.pinv(moments[:, hidden:, hidden:], hermitian=True)
    return d * (moments[:, 0, 0] - np.einsum("pi,pij,pj->p", with_states, inner, with_states))


def _own_error(law: DriftLaw, step: Update) -> float:
    G = second_moments([step], law.d)[0]
    error = float(G[0, 0] - 2 * G[0, 1] + G[1, 1])
    if error < 1e-6 * G[0, 0]:
        raise ValueError(
            f"gamma must be farther from 1: of a weight's variance {G[0, 0]:.3g} so little is left, {error:.3g}, that "
            f"the difference is rounding, got {law.gamma!r}"
        )
    return law.d * error


@validated
def gla_error(law: DriftLaw, *, lam: NonNegative, mu: NonNegative) -> float:
    """Error of w <- lam (w + mu y x) at any lam and mu, its state as the readout.

    Off by some 1e-16 / (1 - gamma) + 1e-16 / (1 - lam) of itself, as it would be by the rounding of gamma and lam.

    Raises:
        ValueError: if it diverges (lam >= 1).
    """
    lam, mu = float(lam), float(mu)
    return _own_error(law, update(law, np.array([[lam]]), np.array([lam * mu]), np.zeros((1, 1))))


@validated
def delta_error(law: DriftLaw, *, lam: NonNegative, mu: NonNegative) -> float:
    """Error of w <- lam (w + mu (y - w'x) x) at any lam and mu; without noise `theory.lms_family.steady_error`.

    Raises:
        ValueError: if it diverges.
    """
    lam, mu = float(lam), float(mu)
    return _own_error(law, update(law, np.array([[lam]]), np.array([lam * mu]), np.array([[-lam * mu]])))


def _observation_noise(law: DriftLaw, spectrum: np.ndarray) -> np.ndarray:
    """Noise variance of the observation (y x)_j / s_j of w_j: crosstalk and label noise."""
    return law.k0 * (1 + spectrum.sum() / spectrum) + law.sigma_y**2 / spectrum


@validated
def gla_per_channel(law: DriftLaw, spectrum: Float[np.ndarray, " d"]) -> float:
    """Error of gated attention with a decay for every eigendirection of Lambda: a scalar Riccati equation each.

    p_j solves the module's equation with D_j = p_j + k0 (1 + tr Lambda / s_j) + s2 / s_j; error = sum_j s_j p_j.

    Args:
        law: its d, drift and noise.
        spectrum: eigenvalues s_j of Lambda, (d,), > 0, in x^2.
    """
    s = eigenvalues(law.d, spectrum)
    return float(s @ _positive_root(law, 1.0, _observation_noise(law, s)))


@validated
def gla_shared(law: DriftLaw, spectrum: Float[np.ndarray, " d"]) -> tuple[float, float]:
    """Error of gated attention with one decay and the best readout matrix, and that decay: (error, lam).

    Direction j's best readout at decay lam leaves k0 - c^2 / (2 c + k0 + R_j) (1 - lam^2) / lam^2 with
    c = lam gamma k0 / (1 - lam gamma) and R_j its noise; lam is found by minimising the sum.
    """
    s = eigenvalues(law.d, spectrum)
    noise = _observation_noise(law, s)

    def error(lam: float) -> float:
        c = lam * law.gamma * law.k0 / (1 - lam * law.gamma)
        return float(s @ (law.k0 - c**2 * (1 - lam**2) / (lam**2 * (2 * c + law.k0 + noise))))

    optimum = minimize_scalar(error, bounds=(1e-6, 1 - 1e-9), method="bounded", options={"xatol": 1e-12})
    # Bracket: memory up to 1e9 steps; slower drift at high noise, and no memory at all, lie beyond.
    grid = np.unique(np.append(1 - np.geomspace(1e-15, 1 - 1e-12, 401), optimum.x))
    at = int(np.argmin([error(lam) for lam in grid]))
    low, high = np.log1p(-grid[min(at + 1, 401)]), np.log1p(-grid[max(at - 1, 0)])
    wider = minimize_scalar(
        lambda u: error(-np.expm1(u)), bounds=(low, high), method="bounded", options={"xatol": 1e-9}
    )
    if wider.fun < optimum.fun * (1 - 1e-12):
        return float(wider.fun), float(-np.expm1(wider.x))
    return float(optimum.fun), float(optimum.x)


@validated
def delta_shared(law: DriftLaw, spectrum: Float[np.ndarray, " d"]) -> tuple[float, float]:
    """Error of the delta rule with one step size for all directions and lam = gamma, and its mu: (error, mu).

    With T = sum_j s_j V_j, V_j = q + gamma^2 [V_j - 2 mu s_j V_j + mu^2 (2 s_j^2 V_j + s_j (T + s2))].
    """
    s = eigenvalues(law.d, spectrum)
    g2 = law.gamma**2

    def error(mu: float) -> float:
        left = 1 - g2 * (1 - 2 * mu * s + 2 * mu**2 * s**2)
        of_T = g2 * mu**2 * float(s @ (s / left))
        if of_T >= 1:
            return float("inf")
        return float(s @ ((law.q + g2 * mu**2 * s * law.sigma_y**2) / left)) / (1 - of_T)

    # A grid finds the valley, golden section its floor; at 1 / s_max the largest direction takes its residual whole,
    # and less than the least no direction wants, however loud the noise.
    least = law.q / (3 * s.sum() * law.k0 + law.sigma_y**2)
    grid = np.unique(np.append(np.linspace(0, 1 / s.max(), 202), np.geomspace(least, 1 / s.max(), 202)[:-1]))
    best = int(np.argmin([error(mu) for mu in grid]))
    bounds = (grid[max(best - 1, 0)], grid[best + 1])  # by 1 / s_max the error rises
    optimum = minimize_scalar(error, bounds=bounds, method="bounded", options={"xatol": 1e-10 * bounds[1]})
    return float(optimum.fun), float(optimum.x)


@validated
def delta_diagonal(law: DriftLaw, spectrum: Float[np.ndarray, " d"]) -> float:
    """Error of the delta rule with the best step size for each direction, lam = gamma.

    V_j = q + gamma^2 [V_j - s_j V_j^2 / (2 s_j V_j + T + s2)], T = sum_j s_j V_j: for a given T each V_j solves a
    quadratic, and T is where they add up to it.
    """
    s = eigenvalues(law.d, spectrum)

    def total(T: float) -> float:
        # The module's equation with D_j = 2 V_j + (T + s2) / s_j.
        return float(s @ _positive_root(law, 2.0, (T + law.sigma_y**2) / s))

    # Every V_j is from q to k0, bounds that rounding may cross at high noise or gamma near 0.
    least, most = law.q * s.sum(), law.k0 * s.sum()
    if total(most) >= most:
        return float(most)
    if total(least) <= least:
        return float(least)
    return float(brentq(lambda T: total(T) - T, least, most, xtol=1e-15 * least, rtol=1e-15))
