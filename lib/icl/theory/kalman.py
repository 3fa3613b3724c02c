"""The floor: the exact posterior mean's error, which no causal predictor of any kind can beat."""

import numpy as np
from jaxtyping import Float

from icl import _checks
from icl.tasks import DriftingRegression, Task
from icl.theory import floors


def expected_errors(x: Float[np.ndarray, "batch time d"], task: DriftingRegression) -> Float[np.ndarray, "batch time"]:
    """Error of the posterior mean at each position of each sequence, given the inputs before it.

    Riccati's recursion (`floors.riccati`) for the drift (3) observed without noise; labels do not enter it:

        P <- gamma^2 (P - P x_i x_i' P / x_i' P x_i) + sigma_e^2 I,    from P = (gamma^2 sigma_w^2 + sigma_e^2) I

    The error at position i is tr(Lambda P): the input x_i and the label are averaged over exactly, so that only the
    spread of the earlier inputs is left. A direction already known (x_i' P x_i = 0, when sigma_e = 0) teaches nothing.

    Args:
        x: inputs, one sequence a row; the last input is not used.
        task: gives gamma, sigma_w, sigma_e and Lambda; x may have any length.
    """
    _checks.instance("task", task, DriftingRegression)
    x = np.asarray(_checks.real("x", x), dtype=np.float64)
    _checks.shape("x", x, (None, None, task.d))
    return floors.riccati(x, task.Lambda, start=task.sigma_w, gain=task.gamma, added=task.sigma_e)


def risk(task: DriftingRegression, x: Float[np.ndarray, "batch time d"]) -> tuple[np.ndarray, np.ndarray]:
    """Mean over sequences of the floor at each position, and its standard error; both of shape (time,)."""
    errors = expected_errors(x, task)
    if len(errors) < 2:
        raise ValueError(f"x must hold at least two sequences for a standard error, got {len(errors)}")
    return errors.mean(0), errors.std(0, ddof=1) / np.sqrt(len(errors))


def query_errors(x: Float[np.ndarray, "batch time d"], task: Task) -> Float[np.ndarray, " batch"]:
    """Error of the posterior mean at the query of each sequence, given its inputs, for any Gaussian drift.

    `floors.gaussian_errors` at the last position; for the drift (3) what `expected_errors` gives there.

    Args:
        x: inputs, one sequence of n + 1 a row; the last is averaged over and not used.
        task: gives the law of the weights and Lambda.

    Raises:
        ValueError: if x does not match the task, or an error is larger than float64 can hold.
    """
    _checks.instance("task", task, Task)
    return floors.gaussian_errors(x, task)[:, -1]
