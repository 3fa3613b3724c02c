"""The least error of a task, as far as it is known exactly, and prompts that keep what a genie is told.

Between the genie's floor and that of the best predictor linear in the labels lies the posterior mean's, Bayes', which
no predictor beats. Where weights are Gaussian all three are one. Elsewhere (:mod:`icl.theory.floors.filtering`,
:mod:`icl.theory.floors.unknown_drift`) the genie has to be told what the task hides: a task of :func:`revealing` keeps
it with the prompt.
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
    """Prompts with what decided them, which no model may see: floors of who knows more than a prompt holds need it.

    Attributes:
        told: what the task's `reveal` tells: the steps, or which law each prompt is of.
    """

    told: DrawnSteps | Int[Tensor, " batch"]


class _Revealing:
    """A task that keeps with its prompts what its `reveal` tells of them; the prompts are those of the task without."""

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
        prompt, told = reveal(batch, generator=generator, dtype=dtype, device=device)
        return RevealedPrompt(prompt.x, prompt.y, prompt.w, told)


@dataclass(frozen=True, eq=False)
class _RevealingSwitches(_Revealing, RegimeSwitching):
    """Switches."""


@dataclass(frozen=True, eq=False)
class _RevealingLeaps(_Revealing, HeavyTailedDrift):
    """Leaps."""


@dataclass(frozen=True, eq=False)
class _RevealingSpeeds(_Revealing, UnknownDrift):
    """Drift of unknown speed."""


_REVEALING: dict[type, Any] = {
    RegimeSwitching: _RevealingSwitches,
    HeavyTailedDrift: _RevealingLeaps,
    UnknownDrift: _RevealingSpeeds,
}


@validated
def revealing(task: Task) -> Task:
    """The same task, with prompts that keep what decided them (:class:`RevealedPrompt`), if it hides anything.

    Args:
        task: one that switches, leaps or has one of several speeds is made anew; any other is given back.
    """
    if isinstance(task, RegimeSwitching | HeavyTailedDrift | UnknownDrift) and type(task) in _REVEALING:
        return _REVEALING[type(task)](**{each.name: getattr(task, each.name) for each in fields(task)})
    return task


def _revealed(prompt: Prompt) -> Any:
    if not isinstance(prompt, RevealedPrompt):
        raise ValueError(f"prompt must be one that the task drew, which knows what decided it, got {type(prompt)}")
    return prompt.told


def _arrays(prompt: Prompt) -> tuple[np.ndarray, np.ndarray]:
    return prompt.x.numpy(force=True).astype(np.float64), prompt.y.numpy(force=True).astype(np.float64)


def _genie(task: RegimeSwitching, prompt: Prompt) -> np.ndarray:
    steps = _revealed(prompt)
    variance = steps.variance.numpy(force=True).astype(np.float64)
    return floors.genie_errors(_arrays(prompt)[0], task, variance, steps.restart.numpy(force=True))


def _speed_genie(task: UnknownDrift, prompt: Prompt) -> np.ndarray:
    each = unknown_drift.bank_predictions(*_arrays(prompt), task).each_error
    return np.take_along_axis(each, _revealed(prompt).numpy(force=True)[:, None, None], axis=-1)[..., 0]


def _speed_bayes(task: UnknownDrift, prompt: Prompt) -> np.ndarray:
    return unknown_drift.bank_predictions(*_arrays(prompt), task).error


def _switching_bayes(task: RegimeSwitching, prompt: Prompt) -> np.ndarray:
    return floors.switching_predictions(*_arrays(prompt), task)[1]


#: Numbers in a block of covariances: larger ones are slow to come by than to work with.
_TOGETHER = 500_000


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """On several, factors differ in their last bits, and those of small matrices take a hundred times as long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _some(task: Task, prompt: Prompt) -> Iterator[tuple[slice, Tensor]]:
    """Prompts that are worked on together, and all their x_i'x_j."""
    _checks.shape("x", prompt.x, (None, task.n + 1, task.d), "to match the task")
    x = prompt.x.detach().cpu().double()
    share = max(1, _TOGETHER // x.shape[1] ** 2)
    for at in range(0, len(x), share):
        some = slice(at, at + share)
        yield some, x[some] @ x[some].mT


def _linear(task: Task, prompt: Prompt) -> np.ndarray:
    """`icl.theory.floors.joint.label_errors`, the same on any number of threads."""
    kernel, noise = torch.as_tensor(task.weight_kernel()), noise_level(task) ** 2
    found = []
    with _one_thread():
        for _, products in _some(task, prompt):
            K = kernel * products
            # Clean variances, before the noise is put on them: taken off again it would leave its rounding.
            own = K.diagonal(dim1=1, dim2=2).clone()
            found.append(own - _root(K, noise).tril(-1).square().sum(-1))
    return torch.cat(found).clamp(min=0).numpy()


def _root(K: Tensor, noise: float = 0.0) -> Tensor:
    K.diagonal(dim1=1, dim2=2).add_(noise)
    L, failed = torch.linalg.cholesky_ex(K)
    if failed.any():
        raise ValueError("labels must not follow from those before them, got a singular covariance")
    return L


def _leaping(task: HeavyTailedDrift, variance: Tensor) -> Tensor:
    """Covariance of w_i and w_j in each coordinate, of each prompt, given how large its steps were."""
    kernel = variance.new_empty((*variance.shape, variance.shape[1]))
    own = torch.full_like(variance[:, 0], task.sigma_w**2)
    for i in range(variance.shape[1]):
        own = task.gamma**2 * own + variance[:, i]
        kernel[:, i, i] = own
        if i:
            kernel[:, i, :i] = kernel[:, :i, i] = task.gamma * kernel[:, i - 1, :i]
    return kernel


def _leap_genie(task: HeavyTailedDrift, prompt: Prompt) -> np.ndarray:
    variance = _revealed(prompt).variance.detach().cpu().double()
    with _one_thread():
        roots = [_root(_leaping(task, variance[some]) * products) for some, products in _some(task, prompt)]
    return torch.cat([L.diagonal(dim1=1, dim2=2).square() for L in roots]).numpy()


def _leap_linear(task: HeavyTailedDrift, prompt: Prompt) -> np.ndarray:
    """The error of the best predictor linear in the labels, given how large the steps were.

    Linear in the labels, it answers y - y_hat = R y with R = diag(L) L^-1, L L' the labels' covariance over all
    prompts, so that its error is (R K R')_ii, K that of the prompt. Its mean over prompts is `joint.label_errors`. A
    prompt's errors are as large as its leaps, and so is this: what is left of their difference settles soon.
    """
    variance, believed = _revealed(prompt).variance.detach().cpu().double(), torch.as_tensor(task.weight_kernel())
    found = []
    with _one_thread():
        for some, products in _some(task, prompt):
            L = _root(believed * products)
            K = _leaping(task, variance[some]) * products
            inverse = torch.linalg.solve_triangular(L, torch.eye(L.shape[1], dtype=L.dtype), upper=False)
            R = L.diagonal(dim1=1, dim2=2)[..., None] * inverse
            found.append(((R @ K) * R).sum(-1))
    return torch.cat(found).numpy()


def known_floors(task: Any) -> dict[str, Expected]:
    """What is known exactly of a task's least error, from prompts to expected squared errors against the clean label.

    By name, the lowest first: "genie", "Bayes" and "best linear", each only where it is known; where weights are
    Gaussian all three are one, and only "Bayes" is there. A drift of one's own (:class:`~icl.tasks.core.Regression`) is
    known by its kernel, which tells the best linear predictor. Of what is no drift nothing is known, nor where labels
    follow from those before them: the least error is then 0, and has no multiples.

    Each is an expectation given a part of the prompt: its inputs; Bayes', where the law is not Gaussian, its labels,
    too; the genie's, and both of leaps, what decided it. Their averages over prompts are the floors.

    Args:
        task: any; there is a genie for one of :func:`revealing`, whose floors need prompts that it drew.
    """
    inner = task.task if isinstance(task, Noisy) else task
    if not _lawful(inner, noisy=inner is not task) or _follows(task):
        return {}
    found: dict[str, Callable[..., np.ndarray]]
    told = isinstance(task, _Revealing)
    if isinstance(inner, UnknownDrift):
        found = {"genie": _speed_genie, "Bayes": _speed_bayes, "best linear": _linear}
    elif isinstance(inner, RegimeSwitching):
        found = {"genie": _genie, "Bayes": _switching_bayes, "best linear": _linear}
    elif isinstance(inner, HeavyTailedDrift):
        found = {"genie": _leap_genie, "best linear": _leap_linear if told else _linear}
    else:
        found = {"Bayes" if type(inner) in _GAUSSIAN else "best linear": _linear}
    if not told:
        found.pop("genie", None)
    if isinstance(inner, RegimeSwitching) and not (inner is task and _has_density(inner)):
        found.pop("Bayes")
    return {name: Expected(partial(errors, task)) for name, errors in found.items()}


#: Tasks whose weights are Gaussian.
_GAUSSIAN = (DriftingRegression, SmoothDrift, LinearDrift, StationaryRegression)


def _lawful(inner: Any, *, noisy: bool) -> bool:
    """Whether this is a drift whose kernel and noise say all that a predictor linear in the labels sees."""
    if not isinstance(inner, Regression) or (isinstance(inner, UnknownDrift) and noisy):
        return False
    own = (Regression.sample, UnknownDrift.sample, _Revealing.sample)
    Sigma_w = getattr(inner, "Sigma_w", None)
    return type(inner).sample in own and (Sigma_w is None or np.array_equal(Sigma_w, np.eye(inner.d)))


def _has_density(task: RegimeSwitching) -> bool:
    """Whether labels have the density that the posterior over switches is made of (`switching_predictions`)."""
    largest = task.sigma_w * max(task.gamma, 1.0) ** task.d
    return task.sigma_w > 0 and task.sigma_e > 0 and largest <= 1e4 * task.sigma_e


def _follows(task: Task) -> bool:
    """Whether the last labels follow from those before them: as many as there are unknown numbers."""
    kernel = np.asarray(task.weight_kernel())
    return noise_level(task) == 0 and int(np.linalg.matrix_rank(kernel, hermitian=True)) * task.d <= task.n
