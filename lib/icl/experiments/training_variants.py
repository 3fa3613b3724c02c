"""Training recipes: that of the Memformer notebooks, L-BFGS, and many one-layer models at once.

:func:`memformer_recipe` is the recipe of the public notebooks (GitHub, SanchayanDutta/NeurIPS-2025) on
:func:`~icl.experiments.training.fit`; :class:`FixedBatch` gives it the same prompts at every step.
:func:`minimise` is for a loss that draws nothing, such as the expected squared error of
:func:`~icl.models.memformer.risks` on fixed inputs: there L-BFGS can end at the minimum after tens of evaluations where
Adam needs hundreds. :func:`train_side_by_side` trains one-layer models of several forgetting factors on the same
prompts.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks
from icl._bounds import Count, Positive, validated
from icl.experiments.training import AdamW, Config, Run, fit
from icl.models import one_layer as gla
from icl.tasks import Prompt, Task
from icl.tasks.core import InputLaw

#: First phase of the notebooks, few steps with a long memory of gradients. (One of them has no decay here.)
FIRST = Config(10, 1_000, AdamW(lr=1e-2, weight_decay=1e-2, momentum=0.99, beta2=0.9), clip=1e-2)
#: Second phase of the notebooks, all steps on one batch.
THEN = Config(1_000, 1_000, AdamW(lr=1e-2, weight_decay=0.0))
#: The recipe in the paper's text (sec. 3.3), Adam with batches of 1,000 held for 100 steps, gradients clipped to 0.01.
DESCRIBED = Config(1_000, 1_000, AdamW(lr=1e-2, weight_decay=0.0), clip=1e-2)


class FixedBatch:
    """Task with repeated batches: a new batch is drawn every so many calls, and returned again in between.

    A checkpoint cannot hold the batch, so :func:`~icl.experiments.training.fit` refuses a checkpoint with this task.

    Args:
        task: draws the prompts.
        every: number of calls for which a batch is returned.

    Attributes:
        task: as given; its d, n, Lambda and inputs are this one's.
        every: as given.
    """

    @validated
    def __init__(self, task: Task, every: Count) -> None:
        """Start without a batch."""
        self.task, self.every = task, every
        self.d, self.n, self.Lambda = task.d, task.n, task.Lambda
        self.inputs: InputLaw = task.inputs
        self._current: Prompt | None = None
        self._times = 0

    def weight_kernel(self) -> Any:
        """Return the kernel of the task."""
        return self.task.weight_kernel()

    @validated
    def sample(
        self,
        batch: int,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> Prompt:
        """Return the current batch, or draw a new one; `generator` is used only for a draw.

        Raises:
            ValueError: if the current batch has another size, dtype or device than is asked for.
        """
        if self._current is None or self._times % self.every == 0:
            self._current = self.task.sample(batch, generator=generator, dtype=dtype, device=device)
        elif (self._current.batch, self._current.x.dtype) != (batch, dtype):
            raise ValueError(
                f"batch must stay {self._current.batch} in {self._current.x.dtype} while prompts are held, "
                f"got {batch} in {dtype}"
            )
        elif device is not None and torch.empty(0, device=device).device != self._current.x.device:
            raise ValueError(f"device must stay {self._current.x.device} while prompts are held, got {device}")
        self._times += 1
        return self._current


@validated
def memformer_recipe(
    model: nn.Module,
    loss: Callable[[nn.Module, Prompt], Tensor],
    task: Task,
    *,
    batch: Count = 1_000,
    steps: Count = 1_000,
    generator: torch.Generator,
) -> tuple[Run, Prompt]:
    """Train in place by the recipe of the public notebooks; return the run and the batch that most steps used.

    The steps of :data:`FIRST`, on one batch, then those of :data:`THEN` on another. The notebooks clip every matrix's
    gradient separately, here that of all parameters together. The paper's figures show the error on the second batch or
    on a fresh one, by figure.

    Args:
        model: its parameters that require a gradient are trained, from where they are.
        loss: (model, prompt) -> scalar.
        task: draws the two batches.
        batch: prompts in each.
        steps: number of steps of the second phase.
        generator: the stream that prompts are drawn from.

    Returns:
        The run of the second phase, and its batch.

    Raises:
        ValueError: if arguments do not fit together.
        icl.experiments.training.Diverged: if the loss or the gradient's norm is not finite.
    """
    fit(model, loss, FixedBatch(task, FIRST.steps), replace(FIRST, batch=batch), generator=generator)
    # One more than there are steps: the last is for the caller.
    held = FixedBatch(task, steps + 1)
    run = fit(model, loss, held, replace(THEN, steps=steps, batch=batch), generator=generator)
    trained = next(p for p in model.parameters() if p.requires_grad)
    return run, held.sample(batch, generator=generator, dtype=trained.dtype, device=trained.device)


@dataclass(frozen=True, eq=False)
class Minimum:
    """Result of a minimisation.

    Attributes:
        losses: float64, of every evaluation; the last is at the final parameters.
        gradient: Euclidean norm of the gradient there.
        seconds: wall time.
    """

    losses: np.ndarray
    gradient: float
    seconds: float


@validated
def minimise(
    model: nn.Module, loss: Callable[[], Tensor], *, iterations: Count = 200, tolerance: Positive = 1e-9
) -> Minimum:
    """Train in place by L-BFGS with a strong Wolfe line search, on a deterministic loss.

    Args:
        model: its parameters that require a gradient are trained; use float64, float32 stops early.
        loss: a deterministic scalar function of them. The line search backtracks from losses that are not finite.
        iterations: at most; after twice as many evaluations none is begun.
        tolerance: ends when the gradient's largest entry is at most that; earlier when an iteration moves the
            loss, or every parameter, by less than 1e-14: near a loss of 1, from gradients of 1e-7 on.

    Raises:
        ValueError: if nothing is to be trained, or the loss is no scalar that depends on it.
        FloatingPointError: if the loss is not finite at the start or at the end, with the last finite one; the
            parameters are then as they were.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError("model must have a parameter that requires a gradient, got none")
    begin = [p.detach().clone() for p in parameters]
    rule = torch.optim.LBFGS(
        parameters,
        max_iter=iterations,
        max_eval=2 * iterations,
        tolerance_grad=tolerance,
        tolerance_change=1e-14,
        history_size=20,
        line_search_fn="strong_wolfe",
    )
    losses = list[float]()

    def diverged(where: str) -> FloatingPointError:
        finite = [value for value in losses if math.isfinite(value)]
        with torch.no_grad():
            for parameter, start in zip(parameters, begin, strict=True):
                parameter.copy_(start)
        return FloatingPointError(f"the loss is {losses[-1]} where the minimisation {where}, before it {finite[-1:]}")

    def closure() -> Tensor:
        rule.zero_grad(set_to_none=True)
        value: Any = loss()
        if not isinstance(value, Tensor) or value.ndim or not value.requires_grad:
            raise ValueError(f"loss must return a scalar that depends on the parameters, got {value!r}")
        value.backward()
        losses.append(value.item())
        if len(losses) == 1 and not math.isfinite(losses[0]):
            raise diverged("starts")
        if not math.isfinite(losses[-1]):
            # Torch's line search halves the step where slopes are NaN, and aborts where losses are.
            value = torch.full_like(value, math.inf)
            for parameter in parameters:
                parameter.grad = torch.full_like(parameter, math.nan)
        return value

    clock = time.monotonic()
    rule.step(closure)
    # The line search may end on a point before its last evaluation: evaluate at the final parameters.
    closure()
    if not math.isfinite(losses[-1]):
        raise diverged("ended")
    gradient = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]).item()
    return Minimum(np.array(losses), gradient, time.monotonic() - clock)


class _SideBySide(nn.Module):
    """Parameters [W | r] of several one-layer models, stacked into one tensor."""

    def __init__(self, theta: Float[Tensor, "models tokens tokens"]) -> None:
        super().__init__()
        self.theta = nn.Parameter(theta.detach().clone())


@validated
def train_side_by_side(
    task: Task,
    theta: Float[Tensor, "models tokens tokens"],
    *,
    lam: Float[np.ndarray, " models"],
    steps: Count,
    batch: Count,
    optimiser: AdamW,
    generator: torch.Generator,
    callback: Callable[[int, Float[Tensor, "models tokens tokens"]], None] | None = None,
) -> Float[Tensor, "models tokens tokens"]:
    """Train one-layer models side by side on the same fresh prompts; return their final parameters.

    Each has its own forgetting factor and start; AdamW acts on every entry separately, so the models are independent.

    Args:
        task: draws the prompts.
        theta: starts [W | r]: first d columns of W_KQ, last row of W_V as last column
            (:mod:`icl.theory.one_layer.population`). Its dtype and device are those of the training.
        lam: forgetting factor of each model, > 0.
        steps: number of steps.
        batch: prompts a step.
        optimiser: settings of AdamW.
        generator: the stream that prompts are drawn from.
        callback: called with the number of steps done and the parameters, before the first step and after each.

    Raises:
        ValueError: if arguments do not fit together.
        Diverged: if a loss or the gradient is not finite, with the step and the last finite losses.
    """
    _checks.shape("theta", theta, (None, task.d + 1, task.d + 1), "to match the task")
    _checks.check_generator(generator, theta.dtype)
    if not len(theta) or not bool(torch.isfinite(theta).all()):
        raise ValueError(f"theta must hold at least one model, every entry finite, got {theta}")
    config = Config(steps=steps, batch=batch, optimiser=optimiser)
    factors = np.asarray(_checks.real("lam", lam, above=0), dtype=np.float64)
    _checks.shape("lam", factors, (len(theta),), "to match theta")
    # One Gram matrix serves all models of a forgetting factor; `order` puts their losses back in the models' order.
    groups = [
        (float(factor), torch.as_tensor(np.flatnonzero(factors == factor), device=theta.device))
        for factor in np.unique(factors)
    ]
    order = torch.cat([members for _, members in groups]).argsort()
    layers = _SideBySide(theta)

    def losses(_: nn.Module, prompt: Prompt) -> Tensor:
        Z = prompt.tokens()
        parts = []
        for factor, members in groups:
            G, mine = gla.gram(Z, factor), layers.theta[members]
            left = torch.einsum("bij,mj->mbi", G, mine[..., -1])
            right = torch.einsum("mij,bj->mbi", mine[..., :-1], prompt.x[:, -1])
            parts.append(((left * right).sum(-1) - prompt.y[:, -1]).square().mean(1) / 2)
        return torch.cat(parts)[order]

    def record(step: int, _: nn.Module) -> None:
        if callback:
            callback(step, layers.theta.detach().clone())

    fit(layers, losses, task, config, generator=generator, callback=record)
    return layers.theta.detach()
