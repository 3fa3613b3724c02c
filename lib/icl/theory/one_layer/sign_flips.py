"""One layer of gated attention on labelled rows whose sign flips: weights, error, accuracy, forgetting factor.

For :class:`~icl.tasks.sentences.Demonstrations` with independent rows. Not in the paper, whose weights are Gaussian and
whose labels are exactly linear; what is left of both is one number. Write rho for the share of the labels' square that
the best linear fit w = Lambda^-1 m explains, and D1 .. D4 for the moments of the signs (:mod:`icl.theory.moments`),
which are those of the drift (3) with gamma = 1 - 2 flip, from its stationary distribution. Then

    E g y x' = D1 m m',    E g g' = D2 Lambda + D3 m m'    with g = sum_i lam^(n+1-i) y_i x_i,

the best matrix is A = c w w' with c = D1 / (D2 + rho D3), and the least error 1 - rho^2 D1^2 / (D2 + rho D3). No law
of the features is assumed. (16) in one dimension, with inputs of the kurtosis 1 / rho, has the same minimum over lam.
"""

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le
from jaxtyping import Float
from scipy.special import ndtr

from icl import _checks
from icl._bounds import (
    Count,
    NonNegatives,
    OpenUnit,
    Positive,
    PositiveUnit,
    PositiveUnits,
    UnitInterval,
    validated,
)
from icl.tasks import DriftingRegression
from icl.tasks.core import GAUSSIAN, InputLaw
from icl.tasks.sentences import Demonstrations, LabelledRows
from icl.theory import moments
from icl.theory.one_layer import closed_forms
from icl.theory.one_layer._range import within_float64


@validated
def sign_moments(lam: NonNegatives, *, flip: Annotated[Any, Ge(0), Le(0.5)], n: Count) -> moments.Moments:
    """D1 .. D4 of signs that flip with probability `flip` a step: k_ij = (1 - 2 flip)^|i-j|. Arrays broadcast.

    Args:
        lam: forgetting factor.
        flip: in [0, 0.5].
        n: number of demonstrations.
    """
    flip = np.asarray(flip, dtype=np.float64)
    return moments.recursion(lam, gamma=1 - 2 * flip, n=n, sigma_w=1.0, sigma_e=2 * np.sqrt(flip * (1 - flip)))


@validated
def sign_error(m: moments.Moments, explained: PositiveUnit) -> Any:
    """Mean squared error of the optimal layer, 1 - rho^2 D1^2 / (D2 + rho D3), with labels of square 1.

    Args:
        m: moments of the signs, from any kernel.
        explained: rho.
    """
    rho = float(explained)
    # 1 is D4; as a sum of what is positive.
    return (rho * m.D4 * m.residual + (1 - rho) * (rho * m.D1**2 + m.D2 * m.D4)) / (m.D2 + rho * m.D3)


@validated
def sign_layer(
    rows: LabelledRows, *, lam: Positive, flip: Annotated[float, Ge(0), Le(0.5)], n: Count
) -> Float[np.ndarray, "d d"]:
    """Optimal matrix A of y_hat = g'A x for this table: c w w', a classifier times its agreement with the labels.

    Args:
        rows: the table that demonstrations and queries of the training come from.
        lam: forgetting factor.
        flip: in [0, 0.5].
        n: number of demonstrations.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        m = sign_moments(lam, flip=flip, n=n)
    if not within_float64(m):
        raise ValueError(f"lam must keep D1 .. D4 within float64, which {lam!r} does not for {n} demonstrations")
    w = rows.fit
    return np.asarray(m.D1 / (m.D2 + rows.explained * m.D3) * np.outer(w, w))


@validated
def sign_layer_error(A: Float[np.ndarray, "d d"], task: Demonstrations, *, lam: NonNegatives) -> Any:
    """Exact mean squared error of y_hat = g'A x with any A; lam may be an array.

        E (y_hat - y)^2 = 1 - 2 D1 m'A m_q + tr(A Lambda_q A' (D2 Lambda + D3 m m')),

    m and Lambda those of the demonstrations' table, m_q and Lambda_q those of the queries'.

    Args:
        A: any matrix.
        task: with independent rows.
        lam: forgetting factor(s).

    Raises:
        ValueError: if A does not fit the task, or its topics persist: rows are then not independent.
    """
    _checks.shape("A", A, (task.d, task.d), "to match the task")
    if task.turn < 1:
        raise ValueError(f"task must have independent rows, turn = 1, got {task.turn!r}")
    assert task.queries is not None
    m = sign_moments(lam, flip=task.flip, n=task.n)
    spread, product = A @ task.queries.second_moment @ A.T, task.rows.product
    trace, pairs = np.trace(spread @ task.rows.second_moment), product @ spread @ product
    return 1 - 2 * m.D1 * (product @ A @ task.queries.product) + m.D2 * trace + m.D3 * pairs


@validated
def sign_drift(*, flip: Annotated[float, Ge(0), Le(0.5)], n: Count, explained: PositiveUnit) -> DriftingRegression:
    """One-dimensional drift (3) with the same optimal forgetting factor: gamma = 1 - 2 flip, kurtosis 1 / rho.

    Args:
        flip: in [0, 0.5].
        n: number of demonstrations.
        explained: rho.

    Returns:
        A task for closed forms; its sampler still draws Gaussian inputs.
    """
    rho = explained
    sigma_e = float(2 * np.sqrt(flip * (1 - flip)))
    inputs: InputLaw = replace(GAUSSIAN, name="of the kurtosis 1 / rho", kurtosis=1 / rho)
    return DriftingRegression(1, n, gamma=1 - 2 * flip, sigma_w=1.0, sigma_e=sigma_e, inputs=inputs)


@validated
def sign_forgetting(*, flip: Annotated[float, Ge(0), Le(0.5)], n: Count, explained: PositiveUnit) -> float:
    """Return lam*, the forgetting factor in (0, 1] of least error; 1 for signs that do not flip.

    For long prompts it is `one_layer.kalman_pole(1 - 2 flip, crosstalk=1 / rho - 1)`.

    Args:
        flip: in [0, 0.5].
        n: number of demonstrations.
        explained: rho.
    """
    return closed_forms.optimal_forgetting(sign_drift(flip=flip, n=n, explained=explained))


@validated
def reordered(kernel: Float[np.ndarray, "time time"]) -> Float[np.ndarray, "time time"]:
    """Kernel of the same demonstrations in random order, the query last: averaged over permutations."""
    n = len(kernel) - 1
    if n < 1:
        raise ValueError(f"kernel must hold at least one demonstration and the query, got {kernel.shape}")
    past = kernel[:n, :n]
    diagonal = past.diagonal().mean()
    pairs = (past.sum() - n * diagonal) / max(n * (n - 1), 1)
    mean_kernel = np.full(kernel.shape, pairs)
    mean_kernel[np.arange(n), np.arange(n)] = diagonal
    mean_kernel[:n, n] = mean_kernel[n, :n] = kernel[:n, n].mean()
    mean_kernel[n, n] = kernel[n, n]
    return mean_kernel


@validated
def sign_ceiling(explained: PositiveUnits) -> Any:
    """Accuracy of the fit's sign, Phi(sqrt(rho / (1 - rho))), where agreement v = y w'x is Gaussian.

    v has the mean rho and the second moment rho, whatever the table.

    Args:
        explained: rho.
    """
    rho = np.asarray(explained, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return ndtr(np.sqrt(rho / (1 - rho)))


@validated
def memory_right(
    lam: PositiveUnits, *, flip: Annotated[float, Ge(0), Le(0.5)], n: Count, explained: OpenUnit
) -> Float[np.ndarray, "*shape"]:
    """Probability that the memory sum_i lam^(n+1-i) s_i v_i has the query's sign, v_i being N(rho, rho - rho^2).

    T, the memory times the current sign, decays, may flip, and adds v: its characteristic function phi goes to
    Re phi + i (1 - 2 flip) Im phi when the sign may flip, and P(T > 0) = 1/2 + (1/pi) int Im phi(u) / u du over u > 0
    [Gil-Pelaez 1951], by the midpoint rule, to 1e-9 and better.

    Args:
        lam: forgetting factor(s).
        flip: in [0, 0.5].
        n: number of demonstrations.
        explained: rho.
    """
    rho, lam = explained, np.asarray(lam, dtype=np.float64)
    variance = rho - rho**2
    step = np.pi / (n * rho + 9 * np.sqrt(n * variance))
    u = step * (np.arange(int(9 / np.sqrt(variance) / step) + 2) + 0.5)
    turns, phi = 1 - 2 * flip, np.ones((*lam.shape, len(u)), dtype=np.complex128)
    for age in range(n - 1, -1, -1):
        at = u * lam[..., None] ** age
        phi = phi * np.exp(1j * rho * at - variance * at**2 / 2)
        phi.imag *= turns
    return np.asarray(0.5 + (phi.imag / (u / step)).sum(-1) / np.pi)


@validated
def sign_accuracy(
    lam: PositiveUnits,
    *,
    flip: Annotated[float, Ge(0), Le(0.5)],
    n: Count,
    explained: OpenUnit,
    known: UnitInterval | None = None,
) -> Any:
    """Accuracy of the optimal layer: 1/2 + 2 (known - 1/2) (memory_right - 1/2).

    Its answer is the memory times w'x of the query, two independent factors, and has the right sign if both or neither
    do.

    Args:
        lam: forgetting factor(s).
        flip: in [0, 0.5].
        n: number of demonstrations.
        explained: rho.
        known: accuracy of the fit's sign on the queries; None is :func:`sign_ceiling`.
    """
    right = memory_right(lam, flip=flip, n=n, explained=explained)
    most = sign_ceiling(explained) if known is None else known
    return 0.5 + 2 * (most - 0.5) * (right - 0.5)
