"""The floor: the exact posterior mean's error, which no causal predictor of any kind can beat."""

import numpy as np
from jaxtyping import Float

from icl import _checks
from icl.tasks import DriftingRegression, Task, square_root


def expected_errors(x: Float[np.ndarray, "batch time d"], task: DriftingRegression) -> Float[np.ndarray, "batch time"]:
    """Error of the posterior mean at each position of each sequence, given the inputs before it.

    Riccati's recursion for the drift (3) observed without noise [Sayed 2011, ch. 7]; labels do not enter it:

        P <- gamma^2 (P - P x_i x_i' P / x_i' P x_i) + sigma_e^2 I,    from P = (gamma^2 sigma_w^2 + sigma_e^2) I

    The error at position i is tr(Lambda P): the input x_i and the label are averaged over exactly, so that only the
    spread of the earlier inputs is left. A direction already known (x_i' P x_i = 0, when sigma_e = 0) teaches nothing.

    Args:
        x: inputs, one sequence a row; the last input is not used.
        task: gives gamma, sigma_w, sigma_e and Lambda; x may have any length.
    """
    _checks.instance("task", task, DriftingRegression)
    x = _checks.numbers("x", x).astype(np.float64)
    _checks.shape("x", x, (None, None, task.d))
    _checks.real("x", x)
    batch, time, d = x.shape
    start = task.gamma**2 * task.sigma_w**2 + task.sigma_e**2
    P = np.broadcast_to(start * np.eye(d), (batch, d, d)).copy()
    innovation = task.sigma_e**2 * np.eye(d)
    errors = np.empty((batch, time))
    for i in range(time):
        errors[:, i] = np.einsum("ij,bji->b", task.Lambda, P)
        Px = np.einsum("bij,bj->bi", P, x[:, i])
        s = np.einsum("bi,bi->b", x[:, i], Px)
        # Below this, s is the rounding left over from a direction that is already known.
        known = s <= 1e-12 * (x[:, i] ** 2).sum(-1) * P.diagonal(axis1=1, axis2=2).max(-1).clip(min=1e-300)
        # u u' rather than (P x)(P x)' / s: the update stays symmetric to the last bit, as stability needs.
        u = np.where(known[:, None], 0.0, Px / np.sqrt(np.where(known, 1.0, s))[:, None])
        P -= u[:, :, None] * u[:, None, :]
        P *= task.gamma**2
        P += innovation
    return errors


def risk(task: DriftingRegression, x: Float[np.ndarray, "batch time d"]) -> tuple[np.ndarray, np.ndarray]:
    """Mean over sequences of the floor at each position, and its standard error; both of shape (time,)."""
    errors = expected_errors(x, task)
    if len(errors) < 2:
        raise ValueError(f"x must hold at least two sequences for a standard error, got {len(errors)}")
    return errors.mean(0), errors.std(0, ddof=1) / np.sqrt(len(errors))


def query_errors(x: Float[np.ndarray, "batch time d"], task: Task) -> Float[np.ndarray, " batch"]:
    """Error of the posterior mean at the query of each sequence, given its inputs, for any Gaussian drift.

    The kernel is F F', so that w_i = sum_r F_ir c_r with standard normal c_r, and label i is their product with the
    row F_i x_i': what is left of the query's weight is what no combination of these rows gives. Slower than
    `expected_errors`, which it equals for the drift (3), and as general as `task.weight_kernel()`. A combination of
    rows that is 0 to rounding (1e-9 of the largest) teaches nothing.

    Args:
        x: inputs, one sequence of n + 1 a row; the last is averaged over and not used.
        task: gives the kernel and Lambda.
    """
    _checks.instance("task", task, Task)
    _checks.isotropic(task)
    x = _checks.numbers("x", x).astype(np.float64)
    _checks.shape("x", x, (None, task.n + 1, task.d), "to match the task")
    _checks.real("x", x)
    if not len(x):
        raise ValueError("x must hold at least one sequence, got 0")
    values, vectors = np.linalg.eigh(task.weight_kernel())
    lives = values > 1e-15 * len(values) * values[-1]
    F = vectors[:, lives] * np.sqrt(values[lives])
    rows = np.einsum("ir,bic->birc", F[:-1], x[:, :-1]).reshape(len(x), task.n, -1)
    query = np.einsum("r,cd->drc", F[-1], square_root(task.Lambda)).reshape(task.d, -1)
    # From the rows themselves, not from the labels' covariance, whose condition number is the square of theirs.
    _, size, seen = np.linalg.svd(rows, full_matrices=False)
    seen = np.where((size > 1e-9 * size[:, :1])[..., None], seen, 0.0)
    left = query - (query @ seen.swapaxes(1, 2)) @ seen
    return (left**2).sum((1, 2))
