"""Exact error floors by position, given the inputs, for all drifts of `icl.tasks` (not in the papers).

For a given distribution of the weights there are up to three, of expected squared error, each below the next:

- the oracle's, with known switch times and innovation variances (:func:`genie_errors`);
- the posterior mean's, which no causal predictor beats (:func:`linear_drift_errors`, :func:`switching_predictions`);
- that of the best predictor linear in the labels (:func:`best_linear_errors`), which is the posterior mean of the
  Gaussian weights with the same kernel: errors of such predictors depend on the kernel alone (see
  :mod:`icl.tasks.drifts`).

For Gaussian weights all three are one. Errors at position i are averages over the input x_i, tr(Lambda P), so that only
the spread of the earlier inputs is left in them, and in the case of :func:`switching_predictions` of the labels.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from icl import _checks
from icl._bounds import NonNegative, NonNegatives, Reals, validated
from icl.kalman_updates import downdate, innovation, kalman_update
from icl.tasks import (
    DriftingRegression,
    HeavyTailedDrift,
    LinearDrift,
    RegimeSwitching,
    SmoothDrift,
    StationaryRegression,
    Task,
)
from icl.tasks.core import square_root
from icl.theory._common import eigenvalues
from icl.theory.steady.fast_weights import DriftLaw


@validated
def kalman_errors(
    x: Float[np.ndarray, "batch time d"], law: DriftLaw, spectrum: Float[np.ndarray, " d"] | None = None
) -> Float[np.ndarray, "batch time"]:
    """Kalman filter's error at each position given the earlier inputs, tr(Lambda P_i), with noisy labels.

        P <- gamma^2 (P - P x x'P / (x'P x + s2)) + q I,    from P = k0 I, the weights' own spread

    :func:`expected_errors` is the same without noise. The traces of one long sequence, averaged after its
    start, have a standard error some 30 times smaller than squared errors of predictions would.

    Args:
        x: inputs, one sequence a row.
        law: its d has to be x's.
        spectrum: eigenvalues of Lambda, (d,), if the inputs are not white; x has to have them along its axes.

    >>> import numpy as np
    >>> from icl.theory.floors import kalman_errors
    >>> from icl.theory.steady import DriftLaw
    >>> x = np.tile(np.eye(2), (5, 1))[None]
    >>> kalman_errors(x, DriftLaw(d=2, gamma=0.95, sigma_e=0.1, sigma_y=0.1))[0, ::3].round(3)
    array([0.205, 0.043, 0.041, 0.041])
    """
    _checks.shape("x", x, (None, None, law.d), "to match law")
    Lambda = np.eye(law.d) if spectrum is None else np.diag(eigenvalues(law.d, spectrum))
    # The first position has the stationary covariance k0 I.
    time = x.shape[1]
    gain, added = np.full(time, law.gamma), np.full(time, law.sigma_e)
    gain[:1], added[:1] = 0.0, np.sqrt(law.k0)
    return riccati(x, Lambda, start=0.0, gain=gain, added=added, noise=law.sigma_y)


@validated
def _sequences(x: Reals, time: int | None, d: int) -> np.ndarray:
    if not np.size(x):
        raise ValueError(f"x must hold at least one sequence, got shape {np.shape(x)}")
    x = np.asarray(x, dtype=np.float64)
    _checks.shape("x", x, (None, time, d), "to match the task")
    return np.asarray(_checks.real("x", x))


# Largest relative rounding error of a floor by `riccati`; beyond it use the square-root form.
_TOLERANCE = 1e-8
_EPS = float(np.finfo(np.float64).eps)


def _root(matrix: np.ndarray) -> np.ndarray:
    """Square root B of a matrix, B B' = matrix, with as many columns as its rank."""
    values, vectors = np.linalg.eigh(matrix)
    # Rounding of an eigenvalue is relative to the variances it is a difference of, not to the largest eigenvalue.
    lives = values > 1e-14 * (vectors**2).T @ matrix.diagonal()
    return np.asarray(vectors[:, lives] * np.sqrt(values[lives]))


def _propagate_error(off: Any, P: np.ndarray, gain: Any, added: Any, size: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Relative rounding error of gain^2 (P after a label) + added I, from that of P: `off`, in the Loewner order.

    Taking the label in rounds P by about eps |P| (1 + |x|^2 |P| / s), s the label's variance; against `added` I, which
    is below all that follows, this is the new error. The old one cannot grow, because the recursion is monotone and
    concave, and shrinks by the share of `added` in the largest variance.
    """
    variances = P.diagonal(axis1=-2, axis2=-1)
    largest, trace = variances.max(-1), gain**2 * variances.sum(-1) + P.shape[-1] * added
    return off * (1 - added / trace) + gain**2 * _EPS * largest * (1 + size * largest / s) / added


def _by_covariance(
    x: np.ndarray, Lambda: np.ndarray, start: float, gain: np.ndarray, added: np.ndarray, noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Errors by `riccati` in covariance form, and a bound on the relative rounding error of each."""
    batch, time, d = x.shape
    P = np.broadcast_to(start**2 * np.eye(d), (batch, d, d)).copy()
    errors, rounding, off = np.empty((batch, time)), np.empty((batch, time)), np.zeros(batch)
    diagonal, size = np.arange(d), (x**2).sum(-1)
    for i in range(time):
        P *= gain[:, i, None, None] ** 2
        P[:, diagonal, diagonal] += added[:, i, None] ** 2
        errors[:, i], rounding[:, i] = np.einsum("ij,bji->b", Lambda, P), off
        if i == time - 1:
            break
        Px, S = innovation(P, x[:, i], noise**2)
        off = _propagate_error(off, P, gain[:, i + 1], added[:, i + 1] ** 2, size[:, i], S)
        P = downdate(P, Px, np.where(S > 0, S, np.inf))
    return errors, rounding


def _householder(W: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Householder reflection of W's rows that gathers all of a in one of them: (that row, W without it).

    It is the row of a's largest entry, which keeps what large rows lose from reaching small ones, however unequal
    [Cox & Higham 1998]. Where a = 0 nothing is turned and the row is 0. W is overwritten.
    """
    each = np.arange(len(a))
    at = np.abs(a).argmax(1)
    top = a[each, at][:, None]
    v = a / np.where(top == 0, 1.0, top)
    length = np.sqrt((v**2).sum(1, keepdims=True))
    v[each, at] += length[:, 0]
    along = np.einsum("bk,bkm->bm", v, W) / np.where(top == 0, np.inf, length * (1 + length))
    W -= v[:, :, None] * along[:, None]
    row = np.where(top == 0, 0.0, W[each, at])
    if top.all():
        W[each, at] = W[:, -1]
        return row, W[:, :-1]
    W[each, at] -= row
    return row, W


def _triangle(W: np.ndarray) -> np.ndarray:
    """R factor of W (QR): as few rows as columns with the same W'W, to rounding of the largest row."""
    return np.asarray(np.linalg.qr(W, mode="r"))


def _pivoted_triangle(W: np.ndarray) -> np.ndarray:
    """R factor of W with column pivoting, each row to its own rounding: the largest entries are eliminated first."""
    batch, _, m = W.shape
    each, R = np.arange(batch), np.empty((batch, m, m))
    for j in range(m):
        pivot = np.abs(W).reshape(batch, -1).argmax(1) % m
        R[:, j], W = _householder(W, W[each, :, pivot])
        W[each, :, pivot] = 0.0
    return R


def _by_root(
    x: Float[np.ndarray, "batch time d"],
    Lambda: Float[np.ndarray, "d d"],
    W: Float[np.ndarray, "batch rows m"],
    c: Float[np.ndarray, "time r"],
    move: Callable[[int, np.ndarray], np.ndarray],
    *,
    noise: float = 0.0,
    fold: Callable[[np.ndarray], np.ndarray] = _pivoted_triangle,
) -> tuple[np.ndarray, np.ndarray]:
    """Square-root Riccati recursion, P = W'W the covariance of r vectors s_i of d numbers, w_i = sum_j c_ij s_ij.

    The rows of W times independent standard normal numbers add up to the estimation error. A reflection gathers all
    that a label depends on in one row, which is then dropped: no variance is ever computed by subtraction. A row that
    meets an input to 1e-12 of what the two could be to each other is taken to be orthogonal to it: it learns nothing.

    Args:
        x: inputs.
        Lambda: covariance of the inputs that errors are averaged over.
        W: root of the states' covariance at position 1, m = r d; overwritten.
        c: coefficients of the weight in the states at each position.
        move: (i, W) -> root of the covariance at position i, from that after the label before it.
        noise: standard deviation of the noise in labels.
        fold: reduces more rows to m (QR).

    Returns: errors and the largest ||W|| so far over the root of each, which `fold` multiplies rounding by.
    """
    batch, time, d = x.shape
    r, colour = c.shape[1], square_root(Lambda)
    errors, spread, largest = np.empty((batch, time)), np.empty((batch, time)), np.zeros(batch)
    for i in range(time):
        V = np.einsum("bkrd,r->bkd", W.reshape(batch, -1, r, d), c[i])
        errors[:, i] = ((V @ colour) ** 2).sum((1, 2))
        largest = np.maximum(largest, np.abs(W).max((1, 2), initial=0.0))
        spread[:, i] = largest * np.sqrt(np.trace(Lambda) / errors[:, i])
        if i == time - 1:
            break
        reach = np.einsum("bkrd,r,bd->bk", np.abs(W).reshape(batch, -1, r, d), np.abs(c[i]), np.abs(x[:, i]))
        a = np.einsum("bkd,bd->bk", V, x[:, i])
        a[np.abs(a) <= 1e-12 * reach] = 0.0
        if noise:
            W = np.concatenate([W, np.zeros((batch, 1, r * d))], axis=1)
            a = np.append(a, np.full((batch, 1), noise), axis=1)
        if a.size:
            _, W = _householder(W, a)
        W = move(i + 1, W)
        if W.shape[1] > r * d:
            W = fold(W)
    return errors, spread


def _require_finite(errors: np.ndarray, what: str) -> np.ndarray:
    if not np.isfinite(errors).all():
        raise ValueError(f"{what} must keep all errors within float64, got one that is larger")
    return errors


@validated
def riccati(
    x: Float[np.ndarray, "batch time d"],
    Lambda: Float[np.ndarray, "d d"],
    *,
    start: NonNegative,
    gain: Reals,
    added: NonNegatives,
    noise: NonNegative = 0.0,
) -> Float[np.ndarray, "batch time"]:
    """Error at each position of the posterior mean of w_i = gain_i w_{i-1} + N(0, added_i^2 I), given earlier inputs.

    Riccati's recursion [Sayed 2011, ch. 7]; labels y_i = <w_i, x_i> + N(0, noise^2) do not enter it:

        P <- gain_i^2 P + added_i^2 I,    error tr(Lambda P),    P <- P - P x_i x_i'P / (x_i'P x_i + noise^2)

    from P = start^2 I. A bound on rounding is propagated. Where it could reach 1e-8 of an error (a large spread that a
    label takes away, a direction that is known), the sequence is run again on a root of P, whose rows do not mix
    scales: some ten times slower, right to 1e-8 for a start, innovations and noise as unequal as float64 can hold them.

    Args:
        x: inputs, one sequence a row; the last input is not used.
        Lambda: covariance of the inputs that errors are averaged over.
        start: standard deviation of each coordinate of w_0.
        gain: broadcasts to (batch, time), its first the step to position 1.
        added: standard deviation of each coordinate of a step; broadcasts to (batch, time).
        noise: standard deviation of the noise in labels.

    Raises:
        ValueError: if arguments are out of range or do not fit together, or an error is larger than float64 can hold.
    """
    batch, time, d = x.shape
    for name, value in (("gain", gain), ("added", added)):
        _checks.broadcasts(name, value, (batch, time))
    gain, added = (np.broadcast_to(np.asarray(v, dtype=np.float64), (batch, time)) for v in (gain, added))
    with np.errstate(all="ignore"):
        errors, rounding = _by_covariance(x, Lambda, start, gain, added, noise)
        again = ~((rounding <= _TOLERANCE) & np.isfinite(errors)).all(1)
        if again.any():
            x, gain, added, eye = x[again], gain[again], added[again], np.eye(d)

            def move(i: int, W: np.ndarray) -> np.ndarray:
                W = W * gain[:, i, None, None]
                new = added[:, i, None, None]
                return np.concatenate([W, new * eye], axis=1) if new.any() else W

            first = np.hypot(gain[:, 0] * start, added[:, 0])[:, None, None] * eye
            errors[again] = _by_root(x, Lambda, first, np.ones((time, 1)), move, noise=noise)[0]
    return _require_finite(errors, "the drift")


@validated
def linear_drift_errors(x: Float[np.ndarray, "batch time d"], task: LinearDrift) -> Float[np.ndarray, "batch time"]:
    """Posterior-mean error at each position of each sequence, for a hidden state of any order.

    Riccati's recursion on all d r numbers of the state, observed without noise through H = h (x) x_i
    [Anderson & Moore 1979, ch. 3]; labels do not enter it:

        P <- F (P - P H H'P / H'P H) F' + Q,    from P = F P_0 F' + Q,    error tr(Lambda h'P h)

    with F, Q, h standing for their Kronecker products with I, on a root of P; once more with pivots where P has a root
    1e5 times that of an error. For r = 1 it is :func:`expected_errors`.

    Args:
        x: inputs, one sequence a row; the last input is not used.
        task: gives F, Q, h, P_0 and Lambda; x may have any length.

    Raises:
        ValueError: if x does not have three axes, the last of size d, or is not finite; or if an error is larger than
            float64 can hold.
    """
    x = _sequences(x, None, task.d)
    _, time, d = x.shape
    eye, c = np.eye(d), np.broadcast_to(task.h, (time, len(task.h)))
    F, push, first = (np.kron(matrix.T, eye) for matrix in (task.F, _root(task.Q), _root(task.P_0)))

    def errors(x: np.ndarray, fold: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        def move(i: int, W: np.ndarray) -> np.ndarray:
            return np.concatenate([W @ F, np.broadcast_to(push, (len(x), *push.shape))], axis=1)

        W = move(0, np.broadcast_to(first, (len(x), *first.shape)))
        return _by_root(x, task.Lambda, fold(W) if W.shape[1] > len(F) else W, c, move, fold=fold)

    with np.errstate(all="ignore"):
        posterior_errors, spread = errors(x, _triangle)
        again = ~(spread < 1e5).all(1)
        if again.any():
            posterior_errors[again] = errors(x[again], _pivoted_triangle)[0]
    return _require_finite(posterior_errors, "F, Q and P_0")


@validated
def genie_errors(
    x: Float[np.ndarray, "batch time d"],
    task: RegimeSwitching | HeavyTailedDrift,
    variance: Float[np.ndarray, "batch time"],
    restart: Bool[np.ndarray, "batch time"] | None = None,
) -> Float[np.ndarray, "batch time"]:
    """Oracle Kalman filter's error at each position, with known step variances and switch times.

    It conditions on more than the posterior mean, so that its mean error over prompts is at most as large: a lower
    bound on the floor, and for heavy tails, whose posterior has no finite form, the only exact one here.

    Args:
        x: inputs, one sequence a row; the last input is not used.
        task: gives gamma, sigma_w and Lambda; x may have any length.
        variance: of what each step adds to each coordinate, the one to position 1 included, >= 0, in (y/x)^2
            (:attr:`~icl.tasks.drifts.DrawnSteps.variance`).
        restart: whether a step forgets what was before it (:attr:`~icl.tasks.drifts.DrawnSteps.restart`); default: none
            does.

    Raises:
        ValueError: if x, variance and restart do not fit together, or variance is negative or not finite.
    """
    x = _sequences(x, None, task.d)
    _checks.real("variance", variance, at_least=0)
    fresh = np.zeros(variance.shape, dtype=bool) if restart is None else restart
    gain = np.where(fresh, 0.0, task.gamma)
    return riccati(x, task.Lambda, start=task.sigma_w, gain=gain, added=np.sqrt(variance))


def _inner(task: Any) -> Any:
    """Innermost task, unwrapping those that add noise to a task or reuse its prompts (their `task`)."""
    return getattr(task, "task", task)


def _first_order_steps(task: Any) -> tuple[float, np.ndarray, np.ndarray] | None:
    """Spread of w_0, gains and spreads of the steps to positions 1 .. n + 1 for AR(1) weights; else None.

    From the task's own numbers: in a kernel that grows the innovations are soon below rounding.
    """
    match task:
        case StationaryRegression():
            start, gain, added = 1.0, 1.0, np.zeros(task.n + 1)
        case DriftingRegression() | HeavyTailedDrift():
            start, gain, added = task.sigma_w, task.gamma, np.full(task.n + 1, task.sigma_e)
        case RegimeSwitching():
            # Uncorrelated, not Gaussian steps: a switch adds sigma_w^2 and the variance of the weights it discards.
            stay, spread, added = 1 - task.switch, task.sigma_w, np.empty(task.n + 1)
            start, gain = task.sigma_w, stay * task.gamma
            for i in range(task.n + 1):
                lost = np.sqrt(task.switch) * np.hypot(task.sigma_w, np.sqrt(stay) * task.gamma * spread)
                added[i] = np.hypot(np.sqrt(stay) * task.sigma_e, lost)
                spread = np.hypot(gain * spread, added[i])
        case LinearDrift() if len(task.h) == 1:
            h, P_0, Q = abs(task.h[0]), task.P_0[0, 0], task.Q[0, 0]
            start, gain, added = h * np.sqrt(P_0), task.F[0, 0], np.full(task.n + 1, h * np.sqrt(Q))
        case _:
            return None
    return start, np.full(task.n + 1, gain), added


def _steps_of_kernel(kernel: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    diagonal, n = np.diag(kernel), len(kernel) - 1
    gain = np.append(0.0, np.divide(np.diag(kernel, -1), diagonal[:-1], out=np.zeros(n), where=diagonal[:-1] > 0))
    for i in range(1, n + 1):
        off = np.abs(kernel[i, :i] - gain[i] * kernel[i - 1, :i]).max()
        if not off <= 1e-9 * np.sqrt(diagonal[i] * diagonal[:i].max()):
            raise ValueError(f"task must have a kernel of first order, got one that is not at position {i + 1}")
    variance = diagonal - gain**2 * np.append(0.0, diagonal[:-1])
    # Innovation variances below the kernel's rounding: 0 for constant or decaying weights, unknown otherwise.
    tiny = np.abs(variance) <= 1e-14 * diagonal
    untold = (variance < 1e-7 * diagonal) & ~(tiny & (gain <= 1))
    if untold.any():
        i = int(untold.argmax())
        raise ValueError(
            f"task must say how large its steps are: at position {i + 1} its kernel, {diagonal[i]:.3g}, has lost an "
            f"innovation of {variance[i]:.3g} to rounding"
        )
    return 0.0, gain, np.sqrt(np.where(tiny, 0.0, variance))


@validated
def best_linear_errors(x: Float[np.ndarray, "batch time d"], task: Task) -> Float[np.ndarray, "batch time"]:
    """Error at each position of the best predictor linear in the earlier labels, given all inputs.

    It is the Kalman filter of the Gaussian weights with the task's kernel. The kernel has to be of first order,
    k_ij = g_i k_{i-1,j} for i > j, as that of every first-order recursion is whose steps are uncorrelated: with
    g_i = k_{i,i-1} / k_{i-1,i-1} each step adds the variance k_ii - g_i^2 k_{i-1,i-1}. For
    :class:`~icl.tasks.drifts.RegimeSwitching` g is (1 - switch) gamma; for :class:`~icl.tasks.drifts.HeavyTailedDrift`
    and :class:`~icl.tasks.core.DriftingRegression` it is gamma. Their steps are taken from their settings, those of
    other tasks from the kernel, where it tells them.

    Args:
        x: inputs, one sequence of n + 1 a row; the last input is not used.
        task: gives the steps, or the kernel, and Lambda.

    Raises:
        ValueError: if the kernel is not of first order (:func:`query_errors` takes any, at the query) or its rounding
            hides the innovations; if x does not match the task; or if an error is larger than float64 can hold.

    >>> from icl.profile import make_generator
    >>> from icl.tasks import RegimeSwitching
    >>> from icl.theory.floors import best_linear_errors
    >>> task = RegimeSwitching(d=2, n=20, gamma=1.0, switch=0.05)
    >>> x = task.sample(1000, generator=make_generator("example")).x.double().numpy()
    >>> best_linear_errors(x, task).mean(0)[[0, 5, 20]].round(2)
    array([2.02, 0.37, 0.38])
    """
    _checks.isotropic(_inner(task))
    x = _sequences(x, task.n + 1, task.d)
    steps = _first_order_steps(_inner(task)) or _steps_of_kernel(task.weight_kernel())
    start, gain, added = steps
    return riccati(x, task.Lambda, start=start, gain=gain, added=added)


def _coefficients(task: Any) -> np.ndarray:
    """C with w_i = sum_r C_ir N(0, I), for any Gaussian weights: their own basis, or a root of their kernel."""
    if isinstance(task, SmoothDrift):
        phases = task._phases()
        return np.concatenate([np.cos(phases), np.sin(phases)], axis=1) * task.sigma_w / np.sqrt(task.harmonics + 1)
    return _root(task.weight_kernel())


@validated
def gaussian_errors(x: Float[np.ndarray, "batch time d"], task: Task) -> Float[np.ndarray, "batch time"]:
    """Posterior-mean error at each position for Gaussian weights with the task's kernel, given all inputs.

    By :func:`riccati` for steps of first order, by :func:`linear_drift_errors` for its tasks. Others are written as
    w_i = sum_r C_ir c_r with c_r ~ N(0, I) drawn once, and what labels tell of the c_r is the recursion without drift:
    slow, as C has up to n + 1 columns, and for tasks that are known by their kernel alone right to 1e-9 of the variance
    at a position, not of the error. The waves of :class:`~icl.tasks.core.SmoothDrift` are taken as they are.

    Args:
        x: inputs, one sequence of n + 1 a row; the last input is not used.
        task: gives the law of the weights and Lambda.

    Raises:
        ValueError: if x does not match the task, or an error is larger than float64 can hold.
    """
    inner = _inner(task)
    _checks.isotropic(inner)
    x = _sequences(x, task.n + 1, task.d)
    if isinstance(inner, LinearDrift):
        return linear_drift_errors(x, inner)
    if (steps := _first_order_steps(inner)) is not None:
        start, gain, added = steps
        return riccati(x, task.Lambda, start=start, gain=gain, added=added)
    C = _coefficients(inner)
    m = C.shape[1] * task.d
    W = np.broadcast_to(np.eye(m), (len(x), m, m)).copy()
    with np.errstate(all="ignore"):
        return _require_finite(_by_root(x, task.Lambda, W, C, lambda i, W: W)[0], "the kernel")


# Sequences per block, so that the covariances of all run lengths fit in a core's cache.
_TOGETHER = 16


@validated
def switching_predictions(
    x: Float[np.ndarray, "batch time d"], y: Float[np.ndarray, "batch time"], task: RegimeSwitching
) -> tuple[Float[np.ndarray, "batch time"], Float[np.ndarray, "batch time"]]:
    """Posterior mean of each label given the earlier examples, and its expected squared error given the same.

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
            those that explain them exactly, which rounding cannot tell; if they are so far apart that rounding could
            reach 1e-6 of a run's covariance, sigma_w gamma^d > 1e4 sigma_e; or if x and y do not fit together.
    """
    x = _sequences(x, None, task.d)
    for name in ("sigma_w", "sigma_e"):
        if not getattr(task, name):
            raise ValueError(f"{name} must be > 0 for labels that have a density, got {getattr(task, name)!r}")
    if not task.sigma_w * max(task.gamma, 1.0) ** task.d <= 1e4 * task.sigma_e:
        raise ValueError(
            "sigma_w gamma^d must be at most 1e4 sigma_e, or rounding hides what a label leaves of a run's spread: got "
            f"sigma_w = {task.sigma_w:g}, gamma = {task.gamma:g}, d = {task.d}, sigma_e = {task.sigma_e:g}"
        )
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

        m[:], V[:], error, S = kalman_update(m, V, x[:, i, None], y[:, i, None])
        # A factor common to all runs does not matter: an input of 0 leaves all of them as they were.
        lp -= np.where(np.isfinite(S), (np.log(S) + error**2 / S) / 2, 0.0)
        lp -= lp.max(1, keepdims=True)
        lp -= np.log(np.exp(lp).sum(1, keepdims=True))
    return y_hat, errors


@validated
def expected_errors(x: Float[np.ndarray, "batch time d"], task: DriftingRegression) -> Float[np.ndarray, "batch time"]:
    """Posterior-mean error at each position of each sequence, given the earlier inputs.

    Riccati's recursion (:func:`riccati`) for the drift (3) observed without noise; labels do not enter it:

        P <- gamma^2 (P - P x_i x_i' P / x_i' P x_i) + sigma_e^2 I,    from P = (gamma^2 sigma_w^2 + sigma_e^2) I

    The error at position i is tr(Lambda P): the input x_i and the label are averaged over exactly, so that only the
    spread of the earlier inputs is left. A known direction (x_i' P x_i = 0, when sigma_e = 0) carries no information.

    Args:
        x: inputs, one sequence a row; the last input is not used.
        task: gives gamma, sigma_w, sigma_e and Lambda; x may have any length.

    >>> from icl.profile import make_generator
    >>> from icl.tasks import DriftingRegression
    >>> from icl.theory.floors import expected_errors
    >>> task = DriftingRegression(d=2, n=20, gamma=0.95)
    >>> x = task.sample(1, generator=make_generator("example")).x.double().numpy()
    >>> expected_errors(x, task)[0, [0, 5, 20]].round(3)
    array([1.825, 0.124, 0.029])
    """
    _checks.shape("x", x, (None, None, task.d))
    return riccati(x, task.Lambda, start=task.sigma_w, gain=task.gamma, added=task.sigma_e)


@validated
def kalman_risk(task: DriftingRegression, x: Float[np.ndarray, "batch time d"]) -> tuple[np.ndarray, np.ndarray]:
    """Mean over sequences of the floor at each position, and its standard error; both of shape (time,)."""
    errors = expected_errors(x, task)
    if len(errors) < 2:
        raise ValueError(f"x must hold at least two sequences for a standard error, got {len(errors)}")
    return errors.mean(0), errors.std(0, ddof=1) / np.sqrt(len(errors))


@validated
def query_errors(x: Float[np.ndarray, "batch time d"], task: Task) -> Float[np.ndarray, " batch"]:
    """Posterior-mean error at the query of each sequence, given its inputs, for any Gaussian drift.

    :func:`gaussian_errors` at the last position; for the drift (3) what :func:`expected_errors` gives there.

    Args:
        x: inputs, one sequence of n + 1 a row; the last is averaged over and not used.
        task: gives the law of the weights and Lambda.

    Raises:
        ValueError: if x does not match the task, or an error is larger than float64 can hold.
    """
    return gaussian_errors(x, task)[:, -1]
