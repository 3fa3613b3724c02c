"""Exact errors of linear layers with several states: heads, momentum, chunks, a model of the drift.

A linear layer of K states moves by

    h_j <- sum_k keep_jk h_k + write_j y x + sum_k correct_jk x x'h_k

and is read by the best linear combination of its states. Its steady-state error follows from second moments
(:func:`~icl.theory.steady.fast_weights.second_moments`), for weights of any order: w_i is the first of r vectors that
move by a matrix F, drift of first order being F = [[gamma]]. Not in the papers; the chapter *Every model is a decayed
fast weight* proves that on drift of first order none of these layers is better than the decayed delta rule.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from icl import _checks
from icl._bounds import Count, NonNegative, Positive, Real, validate_fields, validated
from icl.theory.steady.fast_weights import DriftLaw, Update, readout_errors, second_moments, update


@dataclass(frozen=True, eq=False)
class LinearLayer:
    """Layer whose states move by fixed linear combinations of themselves, of y x, and of x x' times each.

    Attributes:
        keep: (K, K).
        write: (K,), in units of 1/x^2.
        correct: (K, K), in units of 1/x^2; 0 for attention.
    """

    keep: Float[np.ndarray, "K K"]
    write: Float[np.ndarray, " K"]
    correct: Float[np.ndarray, "K K"]

    def __post_init__(self) -> None:
        """Validate that the matrices' shapes match."""
        validate_fields(self)


@validated
def attention_heads(fades: Float[np.ndarray, " K"]) -> LinearLayer:
    """Gated attention with a head for each decay, h_j <- fade_j h_j + y x.

    Its states are the heads' divided differences over the decays, g_1 = h_1 and g_j <- fade_j g_j + g_(j-1): they span
    the same space as the heads, and stay well conditioned for nearly equal decays, where the heads do not.

    Args:
        fades: one decay a head; it converges if they are in (-1, 1).
    """
    K = len(fades)
    if not K:
        raise ValueError("fades must be at least one, got none")
    return LinearLayer(np.diag(fades) + np.eye(K, k=-1), np.eye(K)[0], np.zeros((K, K)))


@validated
def turning_head(radius: NonNegative, angle: Real) -> LinearLayer:
    """Gated attention with the complex decay radius e^(i angle): two real states, rotated and decayed.

    Args:
        radius: >= 0; it converges below 1.
        angle: any number, in radians a token.
    """
    radius, angle = float(radius), float(angle)
    c, s = radius * np.cos(angle), radius * np.sin(angle)
    return LinearLayer(np.array([[c, -s], [s, c]]), np.array([1.0, 0.0]), np.zeros((2, 2)))


@validated
def heavy_ball(keep: Real, mu: Real, *, eta: Real = 0.0) -> LinearLayer:
    """Delta rule with momentum: m <- eta m + mu (y - w'x) x, w <- keep (w + m); eta = 0 is the delta rule.

    Args:
        keep: decay, any number.
        mu: step size, any number, in units of 1/x^2.
        eta: momentum, any number.
    """
    keep, mu, eta = float(keep), float(mu), float(eta)
    if not eta:
        return LinearLayer(np.array([[keep]]), np.array([keep * mu]), np.array([[-keep * mu]]))
    moves = np.array([[keep, keep * eta], [0, eta]])
    return LinearLayer(moves, np.array([keep * mu, mu]), np.array([[-keep * mu, 0], [-mu, 0]]))


@validated
def forward_model(F: Float[np.ndarray, "r r"], gain: Float[np.ndarray, " r"]) -> LinearLayer:
    """Constant-gain Kalman filter with the drift's own dynamics: h <- F (h + gain (y - h_1'x) x).

    Args:
        F: transition matrix of the weights' r vectors, the weights first.
        gain: gain of each, in units of 1/x^2.
    """
    moved, correct = F @ gain, np.zeros(F.shape)
    correct[:, 0] = -moved
    return LinearLayer(F, moved, correct)


@validated
def settled_error(
    layer: LinearLayer,
    F: Float[np.ndarray, "r r"],
    *,
    q: Positive,
    d: Count,
    sigma_y: NonNegative = 0.0,
    unit: bool = False,
) -> float:
    """Steady-state error of the best readout of a layer, in units of y^2; infinite if it diverges.

    Args:
        layer: its update.
        F: transition matrix of the weights' r vectors, the weights themselves first: z <- F z + (e, 0, .., 0).
        q: variance of each coordinate of the innovations, in units of (y/x)^2.
        d: dimension of the inputs.
        sigma_y: standard deviation of the labels' noise, in units of y.
        unit: whether keys are x (d / x'x)^(1/2), of length sqrt(d), in place of x; labels without noise only.

    Raises:
        ValueError: if arguments do not fit together, or unit keys are asked for with noisy labels.
    """
    r, K = len(np.atleast_1d(F)), len(layer.keep)
    if _checks.flag("unit", unit) and (sigma_y or d < 3):
        raise ValueError(f"unit must be False for noisy labels and below d = 3, got sigma_y = {sigma_y!r}, d = {d}")
    keep, look, noise = np.zeros((3, r + K, r + K))
    keep[:r, :r], keep[r:, r:] = F, layer.keep
    look[r:, 0], look[r:, r:] = layer.write, layer.correct
    noise[0, 0], noise[r:, r:] = q, sigma_y**2 * np.outer(layer.write, layer.write)
    # Keys of length sqrt(d) have E x x'x x' = d I where Gaussian ones have (d + 2) I.
    return _read_out([Update(keep, look, noise)], d - 2 if unit else d, d, hidden=r)


@validated
def chunked_error(law: DriftLaw, size: Count, *, lam: Real, mu: Real) -> float:
    """Mean error over a chunk of the delta rule with all gradients taken at the weights before the chunk.

    A chunk of one is the delta rule, a long one tends to gated attention. Infinite if it diverges.

    Args:
        law: the drift.
        size: tokens a chunk.
        lam: decay, any number.
        mu: step size, any number, in units of 1/x^2.
    """
    lam, mu = float(lam), float(mu)
    # States: the chunk's initial weights (also decayed) and the current ones, copied to the first at its start.
    begin = Update(np.array([[1.0, 0, 0], [0, 0, 1], [0, 0, 1]]), *np.zeros((2, 3, 3)))
    inside = update(law, np.diag([lam, lam]), np.array([0, lam * mu]), np.array([[0, 0], [-lam * mu, 0.0]]))
    return _read_out([begin] + [inside] * size, law.d, law.d, skip=1)


def _read_out(phases: list[Update], moments_d: int, d: int, *, hidden: int = 1, skip: int = 0) -> float:
    """Error of the best readout, averaged over the phases from a given one; infinite if the layer diverges."""
    try:
        moments = second_moments(phases, moments_d)[skip:]
    except ValueError:
        return float("inf")
    return float(readout_errors(moments, d, hidden=hidden).mean())
