"""Exact lower bounds on a task's error, and prompts that keep the latent variables for genie-aided bounds.

The Bayes error, that of the posterior mean, is a lower bound for every predictor; it lies between the genie-aided bound
and the error of the best predictor linear in the labels. For Gaussian weights all three coincide. Otherwise
the genie (:mod:`icl.theory.floors.filtering`, :mod:`icl.theory.floors.unknown_drift`) needs the task's latent
variables, which a task of :func:`revealing` keeps with the prompt.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from icl import _checks
from icl._bounds import validated
from icl.experiments.grid import Expected
from icl.tasks import (
    DriftingRegression,
    HeavyTailedDrift,
    LinearDrift,
    Noisy,
    Prompt,
    RegimeSwitching,
    Regression,
    SmoothDrift,
    StationaryRegression,
    Task,
    UnknownDrift,
)
from icl.tasks.drifts import DrawnSteps
from icl.tasks.noise import noise_level
from icl.theory import floors
from icl.theory.floors import unknown_drift


@dataclass(frozen=True, eq=False)
class RevealedPrompt(Prompt):
    """Prompts with their latent variables, hidden from models, for genie-aided bounds.

    Attributes:
        latent: latent variables from the task's `reveal`: the steps, or the law of each prompt.
    """

    latent: DrawnSteps | Int[Tensor, " batch"]


class _Revealing:
    """Mix-in for a task whose prompts keep the latent variables that its `reveal` returns; the draws are unchanged."""

    def sample(
        self,
        batch: int,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> RevealedPrompt:
        """Draw `batch` independent prompts from `generator`, in `dtype`, on `device` (default: the generator's)."""
        reveal: Callable[..., Any] = self.reveal  # type: ignore[attr-defined]
        prompt, latent = reveal(batch, generator=generator, dtype=dtype, device=device)
        return RevealedPrompt(prompt.x, prompt.y, prompt.w, latent)


@dataclass(frozen=True, eq=False)
class _RevealingSwitches(_Revealing, RegimeSwitching):
    """Regime switching with latent variables."""


@dataclass(frozen=True, eq=False)
class _RevealingLeaps(_Revealing, HeavyTailedDrift):
    """Heavy-tailed drift with latent variables."""


@dataclass(frozen=True, eq=False)
class _RevealingSpeeds(_Revealing, UnknownDrift):
    """Drift of unknown speed with latent variables."""


_REVEALING: dict[type, Any] = {
    RegimeSwitching: _RevealingSwitches,
    HeavyTailedDrift: _RevealingLeaps,
    UnknownDrift: _RevealingSpeeds,
}


@validated
def revealing(task: Task) -> Task:
    """Copy of a task whose prompts keep their latent variables (:class:`RevealedPrompt`), if it has any.

    Args:
        task: with regime switching, heavy-tailed or unknown drift, it is copied; any other is returned unchanged.
    """
    if isinstance(task, RegimeSwitching | HeavyTailedDrift | UnknownDrift) and type(task) in _REVEALING:
        return _REVEALING[type(task)](**{each.name: getattr(task, each.name) for each in fields(task)})
    return task


def _latents(prompt: Prompt) -> Any:
    if not isinstance(prompt, RevealedPrompt):
        raise ValueError(f"prompt must be one that the task drew, which knows what decided it, got {type(prompt)}")
    return prompt.latent


def _arrays(prompt: Prompt) -> tuple[np.ndarray, np.ndarray]:
    return prompt.x.numpy(force=True).astype(np.float64), prompt.y.numpy(force=True).astype(np.float64)


def _genie(task: RegimeSwitching, prompt: Prompt) -> np.ndarray:
    steps = _latents(prompt)
    variance = steps.variance.numpy(force=True).astype(np.float64)
    return floors.genie_errors(_arrays(prompt)[0], task, variance, steps.restart.numpy(force=True))


def _speed_genie(task: UnknownDrift, prompt: Prompt) -> np.ndarray:
    each = unknown_drift.bank_predictions(*_arrays(prompt), task).each_error
    return np.take_along_axis(each, _latents(prompt).numpy(force=True)[:, None, None], axis=-1)[..., 0]


def _speed_bayes(task: UnknownDrift, prompt: Prompt) -> np.ndarray:
    return unknown_drift.bank_predictions(*_arrays(prompt), task).error


def _switching_bayes(task: RegimeSwitching, prompt: Prompt) -> np.ndarray:
    return floors.switching_predictions(*_arrays(prompt), task)[1]


#: Numbers in a block of covariances; larger blocks take longer to allocate than to process.
_TOGETHER = 500_000


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Run on one thread: on several, factors differ in their last bits, and small matrices take 100 times as long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _gram_blocks(task: Task, prompt: Prompt) -> Iterator[tuple[slice, Tensor]]:
    """Blocks of prompts, each with its Gram matrices x_i'x_j."""
    _checks.shape("x", prompt.x, (None, task.n + 1, task.d), "to match the task")
    x = prompt.x.detach().cpu().double()
    share = max(1, _TOGETHER // x.shape[1] ** 2)
    for at in range(0, len(x), share):
        some = slice(at, at + share)
        yield some, x[some] @ x[some].mT


def _linear(task: Task, prompt: Prompt) -> np.ndarray:
    """`icl.theory.floors.joint.label_errors`, bitwise independent of the number of threads."""
    kernel, noise = torch.as_tensor(task.weight_kernel()), noise_level(task) ** 2
    errors = []
    with _one_thread():
        for _, products in _gram_blocks(task, prompt):
            K = kernel * products
            # Clean variances, before the noise is added: subtracting it again would leave rounding errors.
            variance = K.diagonal(dim1=1, dim2=2).clone()
            errors.append(variance - _root(K, noise).tril(-1).square().sum(-1))
    return torch.cat(errors).clamp(min=0).numpy()


def _root(K: Tensor, noise: float = 0.0) -> Tensor:
    K.diagonal(dim1=1, dim2=2).add_(noise)
    L, failed = torch.linalg.cholesky_ex(K)
    if failed.any():
        raise ValueError("labels must not follow from those before them, got a singular covariance")
    return L


def _leaping(task: HeavyTailedDrift, variance: Tensor) -> Tensor:
    """Covariance of w_i and w_j in each coordinate, of each prompt, given its step sizes."""
    kernel = variance.new_empty((*variance.shape, variance.shape[1]))
    diagonal = torch.full_like(variance[:, 0], task.sigma_w**2)
    for i in range(variance.shape[1]):
        diagonal = task.gamma**2 * diagonal + variance[:, i]
        kernel[:, i, i] = diagonal
        if i:
            kernel[:, i, :i] = kernel[:, :i, i] = task.gamma * kernel[:, i - 1, :i]
    return kernel


def _leap_genie(task: HeavyTailedDrift, prompt: Prompt) -> np.ndarray:
    variance = _latents(prompt).variance.detach().cpu().double()
    with _one_thread():
        roots = [_root(_leaping(task, variance[some]) * products) for some, products in _gram_blocks(task, prompt)]
    return torch.cat([L.diagonal(dim1=1, dim2=2).square() for L in roots]).numpy()


def _leap_linear(task: HeavyTailedDrift, prompt: Prompt) -> np.ndarray:
    """Error of the best predictor linear in the labels, given the step sizes.

    Its residuals are y - y_hat = R y with R = diag(L) L^-1 and L L' the labels' covariance over all prompts, so its
    error is (R K R')_ii with K the covariance of the prompt. The mean over prompts is `joint.label_errors`. It is a
    control variate: a prompt's errors grow with its leaps, and this does too, so their difference converges quickly.
    """
    variance, believed = _latents(prompt).variance.detach().cpu().double(), torch.as_tensor(task.weight_kernel())
    errors = []
    with _one_thread():
        for some, products in _gram_blocks(task, prompt):
            L = _root(believed * products)
            K = _leaping(task, variance[some]) * products
            inverse = torch.linalg.solve_triangular(L, torch.eye(L.shape[1], dtype=L.dtype), upper=False)
            R = L.diagonal(dim1=1, dim2=2)[..., None] * inverse
            errors.append(((R @ K) * R).sum(-1))
    return torch.cat(errors).numpy()


def known_floors(task: Any) -> dict[str, Expected]:
    """Exact lower bounds of a task: functions from prompts to expected squared errors against the clean label.

    By name, the lowest first: "genie", "Bayes" and "best linear", each only where it is known. For Gaussian weights
    all three coincide, and only "Bayes" is returned. For a user's own :class:`~icl.tasks.core.Regression` the kernel
    determines the best linear predictor. No bound is known for a task that is not a drift, nor where labels are
    determined by those before them: the least error is then 0, and has no multiples.

    Each is a conditional expectation: given the inputs; for the Bayes error of non-Gaussian weights, given the labels
    too; for the genie's, and for both bounds of heavy-tailed drift, given the latent variables. Their averages over
    prompts are the floors.

    Args:
        task: any; "genie" needs a task of :func:`revealing` and prompts that it drew.
    """
    inner = task.task if isinstance(task, Noisy) else task
    if not _is_known_drift(inner, noisy=inner is not task) or _is_determined(task):
        return {}
    bounds: dict[str, Callable[..., np.ndarray]]
    reveals = isinstance(task, _Revealing)
    if isinstance(inner, UnknownDrift):
        bounds = {"genie": _speed_genie, "Bayes": _speed_bayes, "best linear": _linear}
    elif isinstance(inner, RegimeSwitching):
        bounds = {"genie": _genie, "Bayes": _switching_bayes, "best linear": _linear}
    elif isinstance(inner, HeavyTailedDrift):
        bounds = {"genie": _leap_genie, "best linear": _leap_linear if reveals else _linear}
    else:
        bounds = {"Bayes" if type(inner) in _GAUSSIAN else "best linear": _linear}
    if not reveals:
        bounds.pop("genie", None)
    if isinstance(inner, RegimeSwitching) and not (inner is task and _has_density(inner)):
        bounds.pop("Bayes")
    return {name: Expected(partial(errors, task)) for name, errors in bounds.items()}


#: Tasks with Gaussian weights.
_GAUSSIAN = (DriftingRegression, SmoothDrift, LinearDrift, StationaryRegression)


def _is_known_drift(inner: Any, *, noisy: bool) -> bool:
    """True for a drift whose kernel and noise determine its best linear predictor."""
    if not isinstance(inner, Regression) or (isinstance(inner, UnknownDrift) and noisy):
        return False
    samplers = (Regression.sample, UnknownDrift.sample, _Revealing.sample)
    Sigma_w = getattr(inner, "Sigma_w", None)
    return type(inner).sample in samplers and (Sigma_w is None or np.array_equal(Sigma_w, np.eye(inner.d)))


def _has_density(task: RegimeSwitching) -> bool:
    """True if labels have the density that the posterior over switches needs (`switching_predictions`)."""
    largest = task.sigma_w * max(task.gamma, 1.0) ** task.d
    return task.sigma_w > 0 and task.sigma_e > 0 and largest <= 1e4 * task.sigma_e


def _is_determined(task: Task) -> bool:
    """True if the last labels are determined by the earlier ones: at least as many as there are unknowns."""
    kernel = np.asarray(task.weight_kernel())
    return noise_level(task) == 0 and int(np.linalg.matrix_rank(kernel, hermitian=True)) * task.d <= task.n
