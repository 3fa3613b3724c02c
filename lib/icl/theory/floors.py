"""Exact floors beyond first-order Gaussian drift, at every position, given the inputs (not in the papers).

For one law of the weights there are up to three, of expected squared error, each below the next:

- the genie's, who is told where switches fall and how large each innovation is (`genie_errors`);
- the posterior mean's, which no causal predictor beats (`linear_drift_errors`, `switching_predictions`);
- that of the best predictor linear in the labels (`best_linear_errors`), which is the posterior mean of the Gaussian
  weights with the same kernel: errors of such predictors depend on the kernel alone (see `icl.drifts`).

For Gaussian weights all three are one. Errors at position i are averages over the input x_i, tr(Lambda P), so that only
the spread of the earlier inputs is left in them, and in the case of `switching_predictions` of the labels.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from icl import _checks
from icl.drifts import HeavyTailedDrift, LinearDrift, RegimeSwitching
from icl.tasks import Task


def _sequences(x: Any, time: int | None, d: int) -> np.ndarray:
    x = _checks.numbers("x", x).astype(np.float64)
    _checks.shape("x", x, (None, time, d), "to match the task")
    return np.asarray(_checks.real("x", x))


def _news(P: np.ndarray, Px: np.ndarray, s: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Root u of what a label teaches, P <- P - u u', and whether it teaches nothing; the trailing axis is the state's.

    A label without noise whose variance s is rounding, 1e-12 of `size` and of the largest variance in P, was known.
    """
    largest = P.diagonal(axis1=-2, axis2=-1).max(-1).clip(min=1e-300)
    known = s <= 1e-12 * size * largest
    return np.where(known[..., None], 0.0, Px / np.sqrt(np.where(known, 1.0, s))[..., None]), known


def _take(P: np.ndarray, u: np.ndarray) -> None:
    # u u' rather than (P x)(P x)' / s: the update stays symmetric to the last bit, as stability needs.
    P -= u[..., :, None] * u[..., None, :]


def linear_drift_errors(x: Float[np.ndarray, "batch time d"], task: LinearDrift) -> Float[np.ndarray, "batch time"]:
    """Error of the posterior mean at each position of each sequence, for a hidden state of any order.

    Riccati's recursion on all d r numbers of the state, observed without noise through H = h (x) x_i
    [Anderson & Moore 1979, ch. 3]; labels do not enter it:

        P <- F (P - P H H'P / H'P H) F' + Q,    from P = F P_0 F' + Q,    error tr(Lambda h'P h)

    with F, Q, h standing for their Kronecker products with I. For r = 1 it is `kalman.expected_errors`. With Q = 0
    (`drifts.rotation`) errors that should reach 0 stop at rounding, 1e-9 of the first at most in what was tried.

    Args:
        x: inputs, one sequence a row; the last input is not used.
        task: gives F, Q, h, P_0 and Lambda; x may have any length.

    Raises:
        ValueError: if x does not have three axes, the last of size d, or is not finite.
    """
    _checks.instance("task", task, LinearDrift)
    x = _sequences(x, None, task.d)
    batch, time, d = x.shape
    eye, r = np.eye(d), len(task.h)
    F, Q = np.kron(task.F, eye), np.kron(task.Q, eye)
    P = np.broadcast_to(F @ np.kron(task.P_0, eye) @ F.T + Q, (batch, r * d, r * d)).copy()
    asked = np.kron(np.outer(task.h, task.h), task.Lambda)
    errors = np.empty((batch, time))
    for i in range(time):
        errors[:, i] = np.einsum("ij,bji->b", asked, P)
        H = (task.h[:, None] * x[:, i, None]).reshape(batch, r * d)
        PH = np.einsum("bij,bj->bi", P, H)
        u, _ = _news(P, PH, np.einsum("bi,bi->b", H, PH), (H**2).sum(-1))
        _take(P, u)
        P = F @ P @ F.T + Q
        # Two products round differently on either side of the diagonal.
        P = (P + P.swapaxes(1, 2)) / 2
    return errors.clip(min=0)


def _first_order(x: np.ndarray, Lambda: np.ndarray, start: float, gain: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Riccati's recursion for w_i = gain_i w_{i-1} + N(0, variance_i I) from cov w_0 = start I; all (batch, time)."""
    batch, time, d = x.shape
    P = np.broadcast_to(start * np.eye(d), (batch, d, d)).copy()
    errors = np.empty((batch, time))
    diagonal = np.arange(d)
    for i in range(time):
        P *= gain[:, i, None, None] ** 2
        P[:, diagonal, diagonal] += variance[:, i, None]
        errors[:, i] = np.einsum("ij,bji->b", Lambda, P)
        Px = np.einsum("bij,bj->bi", P, x[:, i])
        u, _ = _news(P, Px, np.einsum("bi,bi->b", x[:, i], Px), (x[:, i] ** 2).sum(-1))
        _take(P, u)
    return errors


def genie_errors(
    x: Float[np.ndarray, "batch time d"],
    task: RegimeSwitching | HeavyTailedDrift,
    variance: Float[np.ndarray, "batch time"],
    restart: Bool[np.ndarray, "batch time"] | None = None,
) -> Float[np.ndarray, "batch time"]:
    """Error at each position of the Kalman filter that is told each step's variance, and which steps start afresh.

    It knows more than the posterior mean does, so that on average over prompts it is at most as wrong: a lower bound of
    the floor, and for heavy tails, whose posterior has no finite form, the only exact one here.

    Args:
        x: inputs, one sequence a row; the last input is not used.
        task: gives gamma, sigma_w and Lambda; x may have any length.
        variance: of what each step adds to each coordinate, the one to position 1 included, >= 0, in (y/x)^2
            (`drifts.Hidden.variance`).
        restart: whether a step forgets what was before it (`drifts.Hidden.restart`); default: none does.

    Raises:
        ValueError: if x, variance and restart do not fit together, or variance is negative or not finite.
    """
    _checks.instance("task", task, RegimeSwitching, HeavyTailedDrift)
    x = _sequences(x, None, task.d)
    told = np.asarray(_checks.real("variance", variance, at_least=0), dtype=np.float64)
    _checks.shape("variance", told, x.shape[:2], "to match x")
    fresh = np.zeros(told.shape, dtype=bool) if restart is None else np.asarray(restart)
    _checks.dtype("restart", fresh, np.dtype(bool))
    _checks.shape("restart", fresh, x.shape[:2], "to match x")
    return _first_order(x, task.Lambda, task.sigma_w**2, np.where(fresh, 0.0, task.gamma), told)


def best_linear_errors(x: Float[np.ndarray, "batch time d"], task: Task) -> Float[np.ndarray, "batch time"]:
    """Error at each position of the best predictor linear in the labels before it, given all inputs.

    It is the Kalman filter of the Gaussian weights with the task's kernel. The kernel has to be of first order,
    k_ij = g_i k_{i-1,j} for i > j, as that of every first-order recursion is whose steps are uncorrelated: with
    g_i = k_{i,i-1} / k_{i-1,i-1} each step adds the variance k_ii - g_i^2 k_{i-1,i-1}. For `RegimeSwitching` g is
    (1 - switch) gamma; for `HeavyTailedDrift` and `tasks.DriftingRegression` it is gamma.

    Args:
        x: inputs, one sequence of n + 1 a row; the last input is not used.
        task: gives the kernel and Lambda.

    Raises:
        ValueError: if the kernel is not of first order (`kalman.query_errors` takes any, at the query), or x does not
            match the task.
    """
    _checks.instance("task", task, Task)
    _checks.isotropic(task)
    x = _sequences(x, task.n + 1, task.d)
    kernel = task.weight_kernel()
    own = np.diag(kernel)
    gain = np.append(0.0, np.divide(np.diag(kernel, -1), own[:-1], out=np.zeros(task.n), where=own[:-1] > 0))
    for i in range(1, task.n + 1):
        off = np.abs(kernel[i, :i] - gain[i] * kernel[i - 1, :i]).max()
        if off > 1e-9 * np.sqrt(own[i] * own[:i].max()):
            raise ValueError(f"task must have a kernel of first order, got one that is not at position {i + 1}")
    variance = (own - gain**2 * np.append(0.0, own[:-1])).clip(min=0)
    shape = x.shape[:2]
    return _first_order(x, task.Lambda, 0.0, np.broadcast_to(gain, shape), np.broadcast_to(variance, shape))


# Sequences worked on together, so that the covariances of all their run lengths stay in a core's own cache.
_TOGETHER = 16


def switching_predictions(
    x: Float[np.ndarray, "batch time d"], y: Float[np.ndarray, "batch time"], task: RegimeSwitching
) -> tuple[Float[np.ndarray, "batch time"], Float[np.ndarray, "batch time"]]:
    """Posterior mean of each label given the examples before it, and its expected squared error given the same.

    One Kalman filter for each position that the last switch can have had, and one for none so far; their weights are
    the probabilities of these run lengths given the labels [Adams & MacKay 2007, (2)-(3)], so that with means m_j and
    covariances P_j

        y_hat_i = x_i' m,  m = sum_j p_j m_j,    error_i = tr(Lambda sum_j p_j (P_j + (m_j - m)(m_j - m)'))

    Nothing is pruned: the cost grows with the square of the length. The second result has the mean of
    (y_i - y_hat_i)^2 without the noise of y_i and x_i: its average over prompts is the floor. A label that is 0 because
    its input is tells nothing.

    Args:
        x: inputs, one sequence a row.
        y: labels without noise; y_i enters results from position i + 1 on.
        task: gives gamma, sigma_w, sigma_e, switch and Lambda; x may have any length.

    Raises:
        ValueError: if sigma_w or sigma_e is 0: labels without noise then have probability 0 under all run lengths but
            those that explain them exactly, which rounding cannot tell; or if x and y do not fit together.
    """
    _checks.instance("task", task, RegimeSwitching)
    x = _sequences(x, None, task.d)
    y = np.asarray(_checks.real("y", y), dtype=np.float64)
    _checks.shape("y", y, x.shape[:2], "to match x")
    for name in ("sigma_w", "sigma_e"):
        if not getattr(task, name):
            raise ValueError(f"{name} must be > 0 for labels that have a density, got {getattr(task, name)!r}")
    y_hat, errors = np.empty(y.shape), np.empty(y.shape)
    for at in range(0, len(x), _TOGETHER):
        block = slice(at, at + _TOGETHER)
        y_hat[block], errors[block] = _run_lengths(x[block], y[block], task)
    return y_hat, errors


def _run_lengths(x: np.ndarray, y: np.ndarray, task: RegimeSwitching) -> tuple[np.ndarray, np.ndarray]:
    batch, time, d = x.shape
    with np.errstate(divide="ignore"):
        stay, leave = np.log1p(-task.switch), np.log(task.switch)
    # Run j began with the switch to position j, run 0 with w_0: a position adds one run.
    mean, P = np.zeros((batch, time + 1, d)), np.zeros((batch, time + 1, d, d))
    weight = np.full((batch, time + 1), -np.inf)
    P[:, 0], weight[:, 0] = task.sigma_w**2 * np.eye(d), 0.0
    y_hat, errors = np.empty((batch, time)), np.empty((batch, time))
    diagonal = np.arange(d)
    for i in range(time):
        old = P[:, : i + 1]
        old *= task.gamma**2
        old[..., diagonal, diagonal] += task.sigma_e**2
        mean[:, : i + 1] *= task.gamma
        weight[:, : i + 1] += stay
        P[:, i + 1], weight[:, i + 1] = task.sigma_w**2 * np.eye(d), leave
        m, V, lp = mean[:, : i + 2], P[:, : i + 2], weight[:, : i + 2]

        p = np.exp(lp)
        middle = np.einsum("bj,bjc->bc", p, m)
        apart = m - middle[:, None]
        spread = (p[:, None] @ V.reshape(batch, i + 2, d * d)).reshape(batch, d, d)
        spread += (p[..., None] * apart).swapaxes(1, 2) @ apart
        y_hat[:, i] = (x[:, i] * middle).sum(-1)
        errors[:, i] = np.einsum("ij,bji->b", task.Lambda, spread)

        Px = (V.reshape(batch, -1, d) @ x[:, i, :, None]).reshape(batch, i + 2, d)
        s = np.einsum("bjc,bc->bj", Px, x[:, i])
        dark = ~(s > 0)
        s = np.where(dark, 1.0, s)
        surprise = np.where(dark, 0.0, y[:, i, None] - np.einsum("bjc,bc->bj", m, x[:, i]))
        m += Px * (surprise / s)[..., None]
        _take(V, np.where(dark[..., None], 0.0, Px / np.sqrt(s)[..., None]))
        # A factor common to all runs does not matter: an input of 0 leaves all of them as they were.
        lp -= np.where(dark, 0.0, (np.log(s) + surprise**2 / s) / 2)
        lp -= lp.max(1, keepdims=True)
        lp -= np.log(np.exp(lp).sum(1, keepdims=True))
    return y_hat, errors
