"""The training loop: fresh prompts at every step, AdamW, checkpoints, a progress bar.

:func:`fit` trains any module on any task; :mod:`icl.experiments.training_variants` builds on it.
"""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn
from tqdm import tqdm

from icl import _checks
from icl._bounds import Count, Natural, NonNegative, Positive, UnitInterval, validate_fields, validated
from icl.experiments._training_state import Checkpointer, TrainingState


@dataclass(frozen=True)
class AdamW:
    """Settings of AdamW, the paper's optimiser (sec. 4): weight decay acts on all parameters; without any it is Adam.

    Attributes:
        lr: step size.
        weight_decay: decoupled from the gradient: each step shrinks the parameters by lr * weight_decay.
        momentum: beta_1, the paper's "momentum parameter".
        beta2: decay of the squared gradient's running mean; the paper names none, PyTorch's default.
    """

    lr: Positive = 1e-2
    weight_decay: NonNegative = 0.05
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    beta2: Annotated[float, Ge(0), Lt(1)] = 0.999

    def __post_init__(self) -> None:
        """Validate the settings."""
        validate_fields(self)


@dataclass(frozen=True)
class Config:
    """Training settings: steps, batch size, optimiser, learning-rate schedule, gradient clipping.

    Attributes:
        steps: number of steps.
        batch: fresh prompts a step.
        optimiser: settings of AdamW.
        warm_up: steps over which the step size rises, linearly, from lr / warm_up to lr; 0 .. steps.
        anneal_to: share of lr that a half cosine reaches at the last step, from where the warm-up ends; 1
            keeps the step size.
        clip: largest Euclidean norm of the gradient of all parameters; a longer one is shortened to it. > 0, infinite
            for none.
    """

    steps: Count
    batch: Count
    optimiser: AdamW = AdamW()
    warm_up: Natural = 0
    anneal_to: UnitInterval = 1.0
    clip: float = math.inf

    def __post_init__(self) -> None:
        """Validate sizes and schedule."""
        validate_fields(self)
        if self.warm_up > self.steps:
            raise ValueError(f"warm_up must be at most steps = {self.steps}, got {self.warm_up}")
        if np.ndim(self.clip) != 0 or self.clip != math.inf:
            _checks.number("clip", self.clip, above=0)

    @validated
    def step_size(self, step: Count) -> float:
        """Return the step size of the step with this number, 1 .. steps."""
        if not 1 <= step <= self.steps:
            raise ValueError(f"step must be at most steps = {self.steps}, got {step}")
        if step <= self.warm_up:
            return self.optimiser.lr * (step / self.warm_up)
        fall = (1 + math.cos(math.pi * (step - self.warm_up) / (self.steps - self.warm_up))) / 2
        return self.optimiser.lr * (self.anneal_to + (1 - self.anneal_to) * fall)


@validated
def deep(layers: Count) -> Config:
    """Training settings for stacks of 1 to 12 layers (:mod:`icl.models.stacks`) from their own initial parameters.

    Adam with a short memory of squared gradients, a warm-up, a cosine to 0, clipped gradients; 250 + 75 L steps of 32
    prompts (chapter *Depth*).
    """
    optimiser = AdamW(lr=2e-2, weight_decay=0.0, beta2=0.99)
    return Config(250 + 75 * layers, 32, optimiser, warm_up=20, anneal_to=0.0, clip=0.5)


@dataclass(frozen=True, eq=False)
class Run:
    """Result of a training, beside the model.

    Attributes:
        losses: float64, (steps,) or (steps, models): at every step the loss of its batch before the update.
        resumed_from: steps that a checkpoint had done before; 0 without one.
        seconds: wall time of the steps, those before the checkpoint included.
    """

    losses: np.ndarray
    resumed_from: int
    seconds: float


@runtime_checkable
class Samples(Protocol):
    """Protocol of a task that :func:`fit` trains on: it samples prompts of any kind."""

    def sample(
        self,
        batch: int,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> Any:
        """Draw `batch` independent prompts."""
        ...


class Diverged(RuntimeError):
    """Divergence of a training: the step, the losses that are not finite, and the last finite ones."""


@validated
def fit(
    model: nn.Module,
    loss: Callable[[nn.Module, Any], Tensor],
    task: Samples,
    config: Config,
    *,
    generator: torch.Generator,
    extra_generators: Mapping[str, torch.Generator] | None = None,
    floor: Positive | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: Count = 100,
    snapshot_every: Count = 1,
    fused: bool = False,
    callback: Callable[[int, nn.Module], None] | None = None,
    progress: bool = True,
) -> Run:
    """Train a model in place, on fresh prompts at every step, in the dtype and on the device of its parameters.

    A training that was killed and is called again with the same arguments resumes from its checkpoint. On the CPU it
    ends in the same bits as an uninterrupted one: parameters, AdamW's state, losses and random streams. Only good
    states are written: loss and gradient of the next batch are finite (after the last step: the parameters).

    Args:
        model: every parameter that requires a gradient is trained. On return, generators and parameters are where the
            last step left them.
        loss: (model, prompt) -> scalar, or (models,) for models trained side by side, whose sum is differentiated;
            `clip` then acts on the gradient of all of them together.
        task: where prompts come from.
        config: steps, prompts a step, AdamW, schedule.
        generator: the random stream that prompts are drawn from.
        extra_generators: further generators that model, loss or callback draw from, by name; their states are part of
            the checkpoint. That of torch's global generator is not.
        floor: > 0; the least possible loss, which the progress bar compares the loss with.
        checkpoint: file to resume from if it exists, and to write; None writes nothing. A file of other arguments is
            refused; `loss`, `callback`, `floor`, `checkpoint_every` and `snapshot_every` are not compared.
        checkpoint_every: steps between writes; the state after the last step is always written.
        snapshot_every: steps between copies of the state in memory. The newest good copy is what is written on an
            interrupt and what a diverged model is set back to. Raise it for models so large that a copy takes as long
            as a step.
        fused: use torch's fused AdamW kernel, faster for large models and different in rounding.
        callback: called with the number of steps done and the model, before the first step taken here and after each.
        progress: show a progress bar.

    Raises:
        ValueError: if arguments do not fit together, or the checkpoint is damaged, foreign or another training's; it is
            left as it is.
        Diverged: if the loss or the gradient's norm is not finite. The model is set back to its last good state; the
            checkpoint is an earlier good state.
        KeyboardInterrupt: passed on, after the newest good state is written.

    >>> from icl.experiments import Config, fit
    >>> from icl.models.fast_weights import GLA
    >>> from icl.profile import make_generator
    >>> from icl.tasks import DriftingRegression
    >>> task = DriftingRegression(d=3, n=20, gamma=0.95, sigma_w=1.0, sigma_e=0.3)
    >>> model = GLA(3, lam=0.5, mu=0.01)
    >>> config = Config(steps=30, batch=32)
    >>> run = fit(model, GLA.loss, task, config, generator=make_generator("example"), progress=False)
    >>> run.losses.shape, bool(model.mu > 0.01)
    ((30,), True)
    """
    _checks.function("task.sample", task.sample)
    parameters = _trainable(model)
    first = parameters[0]
    generators = _generators(generator, extra_generators, first.dtype)
    optimiser = _adamw(config.optimiser, parameters, fused=fused)
    state = TrainingState(model, optimiser, generators)
    checkpointer = Checkpointer(state, checkpoint, {"config": config, "task": task}, checkpoint_every, snapshot_every)
    start, history = checkpointer.start, checkpointer.losses
    if callback:
        callback(start, model)
        if start:
            checkpointer.rewind()  # what the callback drew here, it had drawn before the state was written
    with _progress_bar(config.steps, start, shown=progress) as bar, checkpointer.write_on_interrupt():
        for step in range(start + 1, config.steps + 1):
            checkpointer.snapshot(step - 1)
            prompt = task.sample(config.batch, generator=generator, dtype=first.dtype, device=first.device)
            losses = _check_losses(loss(model, prompt), history)
            optimiser.zero_grad(set_to_none=True)
            losses.sum().backward()
            norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
            values = losses.detach().double().cpu().numpy().copy()
            _check_finite(step, values, norm, checkpointer)
            checkpointer.confirm(values)
            if config.clip < math.inf:
                nn.utils.clip_grads_with_norm_(parameters, config.clip, norm)
            for group in optimiser.param_groups:
                group["lr"] = config.step_size(step)
            optimiser.step()
            if callback:
                callback(step, model)
            _advance(bar, history, floor)
        if not all(bool(p.isfinite().all()) for p in parameters):
            last = history[-1].tolist()
            raise _diverged(config.steps, f"parameters not finite after it, losses {last}", checkpointer)
        checkpointer.finish()
    return Run(np.stack(history), start, checkpointer.seconds())


def _adamw(settings: AdamW, parameters: list[nn.Parameter], *, fused: bool) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        parameters,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        betas=(settings.momentum, settings.beta2),
        fused=fused or None,
    )


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    """Return the trainable parameters; refuse a model that `fit` cannot train or a checkpoint cannot hold."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    kinds = {f"{parameter.dtype} on {parameter.device}" for parameter in parameters}
    if len(kinds) != 1:
        raise ValueError(f"model must have parameters to train, of one dtype and on one device, got {sorted(kinds)}")
    for name, tensor in model.state_dict().items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"model must hold its state in tensors, got {name} = {tensor!r}")
    return parameters


def _generators(
    generator: torch.Generator, extra: Mapping[Any, Any] | None, dtype: torch.dtype
) -> dict[str, torch.Generator]:
    """Return all generators by name; refuse empty and duplicate names."""
    extra = extra or {}
    _checks.check_generator(generator, dtype)
    if not all(isinstance(each, torch.Generator) for each in extra.values()):
        raise ValueError(f"extra_generators must map names to torch.Generators, got {extra!r}")
    if not all(isinstance(name, str) and name and name != "generator" for name in extra):
        raise ValueError(f"extra_generators must name its generators, and none 'generator', got {list(extra)}")
    return {"generator": generator, **extra}


def _check_losses(losses: Any, history: list[np.ndarray]) -> Tensor:
    """Return the losses; refuse another shape than before, and losses that depend on no parameter."""
    if not isinstance(losses, Tensor) or losses.ndim > 1 or not losses.numel() or not losses.requires_grad:
        raise ValueError(f"loss must return a scalar or (models,) that depends on the parameters, got {losses!r}")
    if history and losses.shape != history[-1].shape:
        raise ValueError(f"loss must return the shape of its steps before, {history[-1].shape}, got {losses!r}")
    return losses


def _check_finite(step: int, losses: np.ndarray, norm: Tensor, checkpointer: Checkpointer) -> None:
    """Raise `Diverged` if a loss or the gradient's norm is not finite."""
    if not np.isfinite(losses).all():
        raise _diverged(step, f"losses {losses.tolist()}", checkpointer)
    if not bool(norm.isfinite()):
        raise _diverged(step, f"a gradient of norm {norm.item()} at losses {losses.tolist()}", checkpointer)


def _diverged(step: int, what: str, checkpointer: Checkpointer) -> Diverged:
    """Set the model back to its last good state and return the error, which quotes the last finite losses."""
    checkpointer.rewind_model()
    before = checkpointer.losses[step - 2].tolist() if step > 1 else []
    return Diverged(f"training diverged at step {step}: {what}, before it {before}")


def _progress_bar(steps: int, start: int, *, shown: bool) -> Any:
    """A progress bar on standard output."""
    hidden: dict[str, Any] = {} if shown else {"disable": True}  # False would override the environment's TQDM_DISABLE
    return tqdm(total=steps, initial=start, file=sys.stdout, leave=False, unit=" steps", **hidden)


def _advance(bar: Any, history: list[np.ndarray], floor: float | None) -> None:
    """Advance the bar one step; it shows the mean of the last 20 losses, of several models the best and the worst."""
    if not bar.disable:
        mean = np.mean(history[-20:], axis=0)
        best, worst = float(mean.min()), float(mean.max())
        text = f"losses {best:.4g} to {worst:.4g}" if mean.ndim else f"loss {best:.4g}"
        bar.set_postfix_str(
            text if floor is None else f"{text}, at best {best / floor:.3g} times the floor", refresh=False
        )
    bar.update()
