"""State of a training: captured, restored, and written to a checkpoint (:mod:`icl.experiments.checkpoint`)."""

import contextlib
import platform
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from icl.experiments.checkpoint import check_compatible, read, to_jsonable, write


class TrainingState:
    """State of a training, as tensors by name: model, optimiser, random generators."""

    def __init__(
        self, model: nn.Module, optimiser: torch.optim.Optimizer, generators: Mapping[str, torch.Generator]
    ) -> None:
        self.model, self.optimiser, self.generators = model, optimiser, generators

    def capture(self) -> dict[str, Tensor]:
        """Return copies of all tensors."""
        names: dict[Tensor, str] = {parameter: name for name, parameter in self.model.named_parameters()}
        tensors = {f"model/{name}": tensor for name, tensor in self.model.state_dict().items()}
        for parameter, slots in self.optimiser.state.items():
            tensors |= {f"optimiser/{names[parameter]}/{slot}": tensor for slot, tensor in slots.items()}
        copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        return copies | {f"stream/{name}": generator.get_state() for name, generator in self.generators.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Set model, optimiser and generators to what `capture` returned."""
        self.restore_model(tensors)
        trained = [name for name, parameter in self.model.named_parameters() if parameter.requires_grad]
        slots = {index: _part(tensors, f"optimiser/{name}/") for index, name in enumerate(trained)}
        # AdamW changes its slots in place; the captured tensors must stay as they are.
        slots = {
            index: {slot: value.clone() for slot, value in state.items()} for index, state in slots.items() if state
        }
        self.optimiser.load_state_dict({"state": slots, "param_groups": self.optimiser.state_dict()["param_groups"]})
        for name, generator in self.generators.items():
            generator.set_state(tensors[f"stream/{name}"])

    def restore_model(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the model alone to what `capture` returned."""
        self.model.load_state_dict(_part(tensors, "model/"))

    def identity(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Notes required of a checkpoint to resume from, in the order in which they are compared."""
        trained = {name for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        plain = bool | int | float | str
        return {
            "torch": torch.__version__,
            "device": next(self.model.parameters()).device.type,
            **{name: to_jsonable(value) for name, value in settings.items()},
            "model": {
                "class": to_jsonable(type(self.model)),
                "tensors": {
                    name: f"{tensor.dtype} {tuple(tensor.shape)}{' trained' * (name in trained)}"
                    for name, tensor in self.model.state_dict().items()
                },
                # Plain numbers, such as a fixed forgetting factor, are part of a model as well.
                "settings": {
                    name: {key: to_jsonable(value) for key, value in vars(module).items() if isinstance(value, plain)}
                    for name, module in self.model.named_modules()
                },
            },
            "streams": {name: generator.device.type for name, generator in self.generators.items()},
        }


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


class Checkpointer:
    """Snapshots of a training in memory and its checkpoint on disk; resumes from the checkpoint on construction.

    A snapshot is good once loss and gradient of the next step are finite. The newest good one is kept: it is written
    when a training is interrupted, and restored when it diverges.

    Args:
        state: copied and restored.
        path: the file; None writes nothing.
        settings: of the training, by name, which the file's must equal.
        every: steps between writes.
        snapshot_every: steps between snapshots, beside those that are to be written.

    Attributes:
        start: steps that the checkpoint had done, 0 without one.
        losses: float64, () or (models,), of every step so far.
    """

    def __init__(
        self, state: TrainingState, path: Path | None, settings: Mapping[str, Any], every: int, snapshot_every: int
    ) -> None:
        if path is not None and not path.parent.is_dir():
            raise ValueError(f"checkpoint must be a pathlib.Path in a folder that exists, got {path!r}")
        self._state, self._path, self._every, self._snapshot_every = state, path, every, snapshot_every
        self._identity = state.identity(settings) if path else {}
        self.start, self._seconds_before, self.losses = 0, 0.0, list[np.ndarray]()
        if path and path.exists():
            tensors, notes = read(path)
            check_compatible(path, notes, self._identity)
            self.start, self._seconds_before = notes["step"], notes["seconds"]
            self.losses = [*map(np.asarray, tensors.pop("losses").numpy())]
            state.restore(tensors)
        self._good = self.start, state.capture()
        self._candidate: tuple[int, dict[str, Tensor]] | None = None
        self._clock = time.monotonic()

    def seconds(self) -> float:
        """Return the wall time of the training, that before the checkpoint included."""
        return self._seconds_before + time.monotonic() - self._clock

    def rewind(self) -> None:
        """Set model, optimiser and generators back to the newest good snapshot."""
        self._state.restore(self._good[1])

    def rewind_model(self) -> None:
        """Set the model alone back to the newest good snapshot."""
        self._state.restore_model(self._good[1])

    def snapshot(self, step: int) -> None:
        """Copy the state after this many steps if a copy is due, before anything of the next step is drawn."""
        due = step % self._snapshot_every == 0 or (self._path is not None and step % self._every == 0)
        self._candidate = (step, self._state.capture()) if due else None

    def confirm(self, losses: np.ndarray) -> None:
        """Record the finite losses of a step; the snapshot that it began from is good, and written if due."""
        if self._candidate is not None:
            self._good = self._candidate
            if self._good[0] % self._every == 0 and self._good[0] > self.start:
                self._write(*self._good)
        self.losses.append(losses)

    def finish(self) -> None:
        """Write the state after the last step, if any was taken."""
        if len(self.losses) > self.start:
            self._write(len(self.losses), self._state.capture())

    def _write(self, step: int, tensors: dict[str, Tensor]) -> None:
        if self._path is not None:
            losses = torch.from_numpy(np.stack(self.losses[:step]))
            now = {"step": step, "seconds": self.seconds(), "python": platform.python_version()}
            write(self._path, tensors | {"losses": losses}, self._identity | now)

    @contextlib.contextmanager
    def write_on_interrupt(self) -> Iterator[None]:
        """Write the newest good snapshot if the steps inside are interrupted from the keyboard."""
        try:
            yield
        except KeyboardInterrupt:
            if self._good[0] > self.start:
                self._write(*self._good)
            raise
