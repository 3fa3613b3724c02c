"""The book's one training loop: fresh prompts each step, AdamW, a bar, checkpoints that a killed run goes on from.

:func:`fit` trains any module on any task; :mod:`icl.experiments.training_variants` has what is built on it.
"""

import math
import platform
import sys
import time
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
from icl.experiments import checkpoint as files


@dataclass(frozen=True)
class AdamW:
    """The paper's optimiser and its settings (sec. 4): weight decay acts on all parameters; without any it is Adam.

    Attributes:
        lr: step size.
        weight_decay: decoupled from the gradient: each step shrinks the parameters by lr * weight_decay.
        momentum: beta_1, the paper's "momentum parameter".
        beta2: memory of the squared gradient; the paper names none, PyTorch's default.
    """

    lr: Positive = 1e-2
    weight_decay: NonNegative = 0.05
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    beta2: Annotated[float, Ge(0), Lt(1)] = 0.999

    def __post_init__(self) -> None:
        """Refuse settings that AdamW does not have."""
        validate_fields(self)


@dataclass(frozen=True)
class Config:
    """How a training goes.

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
        """Refuse sizes and schedules that cannot be."""
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
    """A recipe that trains stacks of 1 to 12 layers (:mod:`icl.models.stacks`) from their own starts.

    Adam with a short memory of squared gradients, a warm-up, a cosine to 0, clipped gradients; 250 + 75 L steps of 32
    prompts (chapter *Depth*).
    """
    optimiser = AdamW(lr=2e-2, weight_decay=0.0, beta2=0.99)
    return Config(250 + 75 * layers, 32, optimiser, warm_up=20, anneal_to=0.0, clip=0.5)


@dataclass(frozen=True, eq=False)
class Run:
    """What a training leaves behind beside the model.

    Attributes:
        losses: float64, (steps,) or (steps, models): each of the batch and parameters that its step began with.
        resumed_from: steps that a checkpoint had done before; 0 if the training began here.
        seconds: wall time of the steps, those before the checkpoint included.
    """

    losses: np.ndarray
    resumed_from: int
    seconds: float


@runtime_checkable
class Samples(Protocol):
    """What :func:`fit` asks of a task: prompts, whatever they hold."""

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
    """A training that cannot go on: says at which step, at which losses, and what the losses before were."""


@validated
def fit(
    model: nn.Module,
    loss: Callable[[nn.Module, Any], Tensor],
    task: Samples,
    config: Config,
    *,
    generator: torch.Generator,
    also: Mapping[str, torch.Generator] | None = None,
    floor: Positive | None = None,
    checkpoint: Path | None = None,
    every: Count = 100,
    copies: Count = 1,
    fused: bool = False,
    watch: Callable[[int, nn.Module], None] | None = None,
    bar: bool = True,
) -> Run:
    """Train a model in place, each step on fresh prompts in the dtype and on the device of its parameters.

    With a checkpoint, a training that was killed at any moment and is called again with the same arguments ends, on the
    CPU, bit for bit where it would have ended: parameters, AdamW's state, losses and random streams. A state is written
    only once it is proven: loss and gradient of its next batch are finite (at the last step: its parameters).

    Args:
        model: what is trained: every parameter that requires a gradient. On return, random streams and parameters are
            where the last step left them.
        loss: (model, prompt) -> scalar, or (models,) for models side by side, whose sum is differentiated; `clip` then
            acts on the gradient of all of them together.
        task: where prompts come from.
        config: steps, prompts a step, AdamW, schedule.
        generator: the stream that prompts are drawn from.
        also: further streams that model, loss or watcher draw from, by name; kept in the checkpoint with the first.
            Torch's global stream is not.
        floor: > 0; the least loss there can be, for the progress bar to compare with.
        checkpoint: the file to go on from if it exists, and to write; None keeps nothing. It is compared with the
            arguments except `loss`, `watch`, `floor`, `every`, `copies`: what those compute is the caller's to keep.
        every: steps from one writing to the next; the last step is always written.
        copies: steps from one copy of the state to the next. Only states that were copied are proven; what
            is written, and what a diverged model is set back to, is the newest of them. For models so large that the
            copy takes as long as a step.
        fused: take AdamW's step in one pass over a tensor, torch's own way for large models: rounded otherwise.
        watch: called with the number of steps done and the model, before the first step taken here and after each.
        bar: whether a progress bar is shown; not where there is one over several trainings.

    Raises:
        ValueError: if arguments do not fit together, or the checkpoint is damaged, foreign or another training's; it is
            left as it is.
        Diverged: if the loss or the gradient's norm is not finite. The model is set back to its last proven state; the
            checkpoint is an earlier proven state.
        KeyboardInterrupt: passed on, the newest proven state having been written.
    """
    if also is not None:
        _streams(also)
    parameters, streams = _checked(model, loss, task, config, generator, also or {}, floor, checkpoint, every)
    _checks.function("watch", watch)
    settings = config.optimiser
    rule = torch.optim.AdamW(
        parameters,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        betas=(settings.momentum, settings.beta2),
        fused=_checks.flag("fused", fused) or None,
    )
    identity = _identity(model, task, config, streams) if checkpoint else {}
    start, earlier, history = 0, 0.0, list[np.ndarray]()
    if checkpoint and checkpoint.exists():
        saved, notes = files.read(checkpoint)
        files.agree(checkpoint, notes, identity)
        start, earlier, history = notes["step"], notes["seconds"], [*map(np.asarray, saved.pop("losses").numpy())]
        _restore(saved, model, rule, streams)
    proven, state = start, _captured(model, rule, streams)
    clock = time.monotonic()

    def keep(step: int, state: dict[str, Tensor]) -> None:
        if checkpoint:
            so_far = {"step": step, "seconds": earlier + time.monotonic() - clock, "python": platform.python_version()}
            files.write(checkpoint, state | {"losses": torch.from_numpy(np.stack(history[:step]))}, identity | so_far)

    def diverged(step: int, what: str) -> Diverged:
        model.load_state_dict(_part(state, "model/"))
        return Diverged(
            f"training diverged at step {step}: {what}, before it {history[step - 2].tolist() if step > 1 else []}"
        )

    if watch:
        watch(start, model)
        if start:
            # What the watcher draws at this step it had drawn when the state was written.
            _restore(state, model, rule, streams)
    quiet: dict[str, Any] = {} if bar else {"disable": True}  # False would overrule what the environment says of bars
    with tqdm(total=config.steps, initial=start, file=sys.stdout, leave=False, unit=" steps", **quiet) as shown:
        try:
            for step in range(start + 1, config.steps + 1):
                written = checkpoint is not None and (step - 1) % every == 0
                here = _captured(model, rule, streams) if written or (step - 1) % copies == 0 else None
                prompt = task.sample(
                    config.batch, generator=generator, dtype=parameters[0].dtype, device=parameters[0].device
                )
                losses = _checked_losses(loss(model, prompt), history)
                rule.zero_grad(set_to_none=True)
                losses.sum().backward()
                norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
                now = losses.detach().double().cpu().numpy().copy()
                if not np.isfinite(now).all():
                    raise diverged(step, f"losses {now.tolist()}")
                if not bool(norm.isfinite()):
                    raise diverged(step, f"a gradient of norm {norm.item()} at losses {now.tolist()}")
                if here is not None:
                    proven, state = step - 1, here
                    if proven % every == 0 and proven > start:
                        keep(proven, state)
                if config.clip < math.inf:
                    nn.utils.clip_grads_with_norm_(parameters, config.clip, norm)
                for group in rule.param_groups:
                    group["lr"] = config.step_size(step)
                rule.step()
                history.append(now)
                if watch:
                    watch(step, model)
                if not shown.disable:
                    shown.set_postfix_str(_progress(history[-20:], floor), refresh=False)
                shown.update()
            if start < config.steps:
                if not all(bool(p.isfinite().all()) for p in parameters):
                    raise diverged(config.steps, f"parameters not finite after it, losses {history[-1].tolist()}")
                keep(config.steps, _captured(model, rule, streams))
        except KeyboardInterrupt:
            if proven > start:
                keep(proven, state)
            raise
    return Run(np.stack(history), start, earlier + time.monotonic() - clock)


def _captured(
    model: nn.Module, rule: torch.optim.Optimizer, streams: Mapping[str, torch.Generator]
) -> dict[str, Tensor]:
    """Copies of all that a training goes on from, by names that say what is whose."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    for parameter, slots in rule.state.items():
        tensors |= {f"optimiser/{names[parameter]}/{slot}": tensor for slot, tensor in slots.items()}
    copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    return copies | {f"stream/{name}": stream.get_state() for name, stream in streams.items()}


def _restore(
    state: Mapping[str, Tensor],
    model: nn.Module,
    rule: torch.optim.Optimizer,
    streams: Mapping[str, torch.Generator],
) -> None:
    """Undo everything since `_captured` returned this."""
    model.load_state_dict(_part(state, "model/"))
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    slots = {index: _part(state, f"optimiser/{name}/") for index, name in enumerate(trained)}
    # AdamW changes its slots in place; the state must stay as it is.
    slots = {index: {slot: tensor.clone() for slot, tensor in mine.items()} for index, mine in slots.items() if mine}
    rule.load_state_dict({"state": slots, "param_groups": rule.state_dict()["param_groups"]})
    for name, stream in streams.items():
        stream.set_state(state[f"stream/{name}"])


def _part(state: Mapping[str, Tensor], whose: str) -> dict[str, Tensor]:
    return {name.removeprefix(whose): tensor for name, tensor in state.items() if name.startswith(whose)}


def _identity(
    model: nn.Module, task: Samples, config: Config, streams: Mapping[str, torch.Generator]
) -> dict[str, Any]:
    """What a checkpoint must have been written by to be gone on from here, in the order in which it is compared."""
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    kept = bool | int | float | str
    return {
        "torch": torch.__version__,
        "device": next(model.parameters()).device.type,
        "config": files.described(config),
        "task": files.described(task),
        "model": {
            "class": files.described(type(model)),
            "tensors": {
                name: f"{tensor.dtype} {tuple(tensor.shape)}{' trained' * (name in trained)}"
                for name, tensor in model.state_dict().items()
            },
            # A forgetting factor kept as a plain number is as much part of a model as its weights.
            "settings": {
                name: {key: files.described(value) for key, value in vars(module).items() if isinstance(value, kept)}
                for name, module in model.named_modules()
            },
        },
        "streams": {name: stream.device.type for name, stream in streams.items()},
    }


def _streams(also: Any) -> None:
    """Refuse what does not name streams."""
    if not isinstance(also, Mapping) or not all(isinstance(stream, torch.Generator) for stream in also.values()):
        raise ValueError(f"also must map names to torch.Generators, got {also!r}")


def _checked(
    model: Any,
    loss: Any,
    task: Any,
    config: Any,
    generator: Any,
    also: Any,
    floor: Any,
    checkpoint: Any,
    every: Any,
) -> tuple[list[nn.Parameter], dict[str, torch.Generator]]:
    """Refuse what `fit` cannot work with; return the parameters that are trained and every stream by its name."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch.nn.Module, got {model!r}")
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    kinds = {f"{parameter.dtype} on {parameter.device}" for parameter in parameters}
    if len(kinds) != 1:
        raise ValueError(f"model must have parameters to train, of one dtype and on one device, got {sorted(kinds)}")
    for name, tensor in model.state_dict().items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"model must hold its state in tensors, got {name} = {tensor!r}")
    if not callable(loss):
        raise ValueError(f"loss must be a function of model and prompt, got {loss!r}")
    if isinstance(task, type) or not callable(getattr(task, "sample", None)):
        raise ValueError(f"task must be one of icl.tasks, got {task!r}")
    if not isinstance(config, Config):
        raise ValueError(f"config must be an icl.experiments.training.Config, got {config!r}")
    _checks.check_generator(generator, parameters[0].dtype)
    _streams(also)
    if not all(isinstance(name, str) and name and name != "generator" for name in also):
        raise ValueError(f"also must name its streams, and none 'generator', got {list(also)}")
    if floor is not None:
        _checks.number("floor", floor, above=0)
    if checkpoint is not None and not (isinstance(checkpoint, Path) and checkpoint.parent.is_dir()):
        raise ValueError(f"checkpoint must be a pathlib.Path in a folder that exists, got {checkpoint!r}")
    _checks.integer("every", every, at_least=1)
    return parameters, {"generator": generator, **also}


def _checked_losses(losses: Any, history: list[np.ndarray]) -> Tensor:
    """Refuse what `loss` must not return."""
    if not isinstance(losses, Tensor) or losses.ndim > 1 or not losses.numel() or not losses.requires_grad:
        raise ValueError(f"loss must return a scalar or (models,) that depends on the parameters, got {losses!r}")
    if history and losses.shape != history[-1].shape:
        raise ValueError(f"loss must return the shape of its steps before, {history[-1].shape}, got {losses!r}")
    return losses


def _progress(recent: list[np.ndarray], floor: float | None) -> str:
    """The progress bar's words: the mean of the last losses, of models side by side the best and the worst."""
    mean = np.mean(recent, axis=0)
    best, worst = float(mean.min()), float(mean.max())
    text = f"losses {best:.4g} to {worst:.4g}" if mean.ndim else f"loss {best:.4g}"
    return text if floor is None else f"{text}, at best {best / floor:.3g} times the floor"
