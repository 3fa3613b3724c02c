"""Labels of a prompt as one Gaussian vector: prediction errors under the true and under a misspecified model.

Given the inputs, labels of Gaussian weights with the kernel k have the covariance

    K_ij = k_ij x_i'x_j + sigma_y^2 [i = j] = (L L')_ij,

L lower triangular. L_ii^2 is the variance of label i once the labels before it are known. One factor answers for all
positions and for any kernel, at the cost of n^3 / 3 a prompt; :mod:`icl.theory.floors.filtering` has recursions, which
keep more digits, average over the last input and know drifts that are not Gaussian. Errors are those of the clean
label.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular

from icl import _checks
from icl._bounds import Count, NonNegative, validated
from icl.tasks import Task
from icl.tasks.noise import noise_level

# Least share of a label's variance that rounding leaves accurate to 1e-6.
_LEAST = 1e-9


def _products(x: Float[np.ndarray, "batch time d"]) -> Float[np.ndarray, "batch time time"]:
    """Gram matrix of all x_i'x_j; a transposed view in place of the copy would be ten times slower."""
    return x @ np.ascontiguousarray(x.swapaxes(1, 2))


def _covariance(
    products: Float[np.ndarray, "batch time time"], kernel: Float[np.ndarray, "time time"], noise: float
) -> Float[np.ndarray, "batch time time"]:
    """Covariance of the labels, given the inputs' Gram matrix."""
    K, diagonal = kernel * products, np.arange(len(kernel))
    K[:, diagonal, diagonal] += noise
    return K


def _factor(K: Float[np.ndarray, "batch time time"]) -> Float[np.ndarray, "batch time time"]:
    try:
        return np.linalg.cholesky(K)
    except np.linalg.LinAlgError as error:
        raise ValueError("labels must not follow from those before them, got a singular covariance") from error


def _refuse_lost_digits(errors: Float[np.ndarray, "*shape"], variances: Float[np.ndarray, "*shape"]) -> None:
    """Raise if errors are lost in the rounding of the variances that they are differences of."""
    if (errors < _LEAST * variances).any():
        raise ValueError(
            "labels must not follow from those before them, got one of which less than 1e-9 is left: "
            "icl.theory.floors.filtering has recursions that keep its digits"
        )


@validated  # of a task among several, which no signature declares
def _inputs(x: object, task: Task) -> Float[np.ndarray, "batch time d"]:
    _checks.isotropic(getattr(task, "task", task))
    inputs = np.asarray(_checks.real("x", x), dtype=np.float64)
    _checks.shape("x", inputs, (None, task.n + 1, task.d), "to match the task")
    if not len(inputs):
        raise ValueError(f"x must hold at least one sequence, got shape {inputs.shape}")
    return inputs


@validated
def label_errors(x: Float[np.ndarray, "batch time d"], task: Task) -> Float[np.ndarray, "batch time"]:
    """Prediction error of each clean label, given the earlier labels and all inputs: L_ii^2 - sigma_y^2.

    Computed as k_ii x_i'x_i less the squares left of the diagonal, so that no large noise is subtracted again. The
    least error of any predictor where the weights are Gaussian; where they are not, that of the best predictor
    linear in the labels (:mod:`icl.theory.floors.filtering`).

    Args:
        x: inputs, one sequence of n + 1 a row.
        task: gives the kernel, and the noise of the labels (:class:`~icl.tasks.noise.Noisy`).

    Raises:
        ValueError: if x does not match the task, or a label follows, to rounding, from those before it.

    >>> import numpy as np
    >>> from icl.tasks import DriftingRegression, Noisy
    >>> from icl.theory.floors.joint import label_errors
    >>> x = np.ones((1, 6, 1))
    >>> label_errors(x, Noisy(DriftingRegression(d=1, n=5, gamma=1.0), sigma_y=0.5)).round(3)
    array([[1.01 , 0.21 , 0.124, 0.093, 0.078, 0.069]])
    """
    x = _inputs(x, task)
    kernel = np.asarray(task.weight_kernel())
    L = _factor(_covariance(_products(x), kernel, noise_level(task) ** 2))
    prior = np.diagonal(kernel) * (x**2).sum(-1)
    errors = prior - (np.tril(L, -1) ** 2).sum(-1)
    _refuse_lost_digits(errors, prior)
    return np.asarray(errors)


@validated
def misspecified_errors(
    x: Float[np.ndarray, "batch time d"],
    tasks: Sequence[Task],
    *,
    kernel: Float[np.ndarray, "time time"],
    noise: NonNegative,
    last: Count,
) -> Float[np.ndarray, "tasks batch last"]:
    """Errors on some tasks, at the last positions, of the optimal predictor for another kernel and noise.

    Linear in the labels, it answers y - y_hat = R y with R = diag(L) L^-1, L the factor of the assumed
    covariance; with K the true one its error is (R K R')_ii - sigma_y^2. With the mean kernel and the mean noise of
    several tasks, it is the best predictor linear in the labels when the task is unknown: on
    average over tasks only second moments count, and those of a mixture are means (:func:`label_errors` of a
    :class:`~icl.tasks.mixtures.Mixture` is that average).

    Args:
        x: inputs, one sequence of n + 1 a row, the same for all tasks.
        tasks: the true tasks, at least one.
        kernel: assumed covariance of w_i and w_j.
        noise: assumed variance of the labels' noise, in units of y^2.
        last: number of positions, counted from the end.

    Raises:
        ValueError: if x or kernel does not match the tasks, or, under the assumed covariance, a label follows from
            those before it.
    """
    if not len(tasks):
        raise ValueError("tasks must be at least one, got none")
    for task in tasks:
        x = _inputs(x, task)
    time = x.shape[1]
    _checks.shape("kernel", kernel, (time, time), "to match the tasks")
    if last > time:
        raise ValueError(f"last must be at most the {time} positions of the tasks, got {last}")
    products = _products(x)
    L = _factor(_covariance(products, kernel, noise))
    _refuse_lost_digits(np.diagonal(L, axis1=1, axis2=2) ** 2, (L**2).sum(-1))
    # Rows of L^-1 are columns of L'^-1.
    ends = np.eye(time)[:, -last:]
    R = np.stack([solve_triangular(one.T, ends, lower=False).T for one in L])
    R *= np.diagonal(L, axis1=1, axis2=2)[:, -last:, None]
    # A label's own noise is no part of its error: leave it out on the diagonal, where R is 1, instead of subtracting
    # it.
    others = (np.where(ends.T == 1, 0.0, R) ** 2).sum(-1)
    errors = []
    for task in tasks:
        K = products * np.asarray(task.weight_kernel())
        noiseless, variances = ((R @ K) * R).sum(-1), np.diagonal(K, axis1=1, axis2=2)[..., None]
        _refuse_lost_digits(noiseless, (R**2 @ variances)[..., 0])
        errors.append(noiseless + others * noise_level(task) ** 2)
    return np.stack(errors)
