"""Checkpoints: the state of a training in one file, written atomically and verified by its hash.

A checkpoint is a safetensors file. Its header holds metadata in JSON (notes), and a sha256 over every byte of the file
(its own digits read as zeros), so that a single changed bit is detected. Loading runs no code: there is no pickle.
:func:`~icl.experiments.training.fit` writes checkpoints and resumes from them.
"""

import contextlib
import hashlib
import json
import math
import platform
import time
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from icl import _files
from icl._bounds import validated

_FORMAT = "icl checkpoint 1"
_BLANK = "0" * 64


@validated
def write(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
    """Write tensors and notes to `path` atomically: a temporary file beside it, fsync, rename.

    Until the rename, the old file at `path` is untouched. The temporary file, `<name>.*.part`, is never read.

    Args:
        path: the file; its folder must exist.
        tensors: of any shape, dtype and device.
        notes: JSON-serialisable (see :func:`to_jsonable`).

    Raises:
        ValueError: if the notes are not JSON.
        OSError: if the disk refuses; `path` is then as it was.
    """
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        text = json.dumps(notes, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"notes must be what JSON can hold (see icl.experiments.checkpoint.to_jsonable), got {notes!r}"
        ) from error
    blank = safetensors.torch.save(plain, {"icl": _FORMAT, "notes": text, "sha256": _BLANK})
    digest = hashlib.sha256(blank).hexdigest()
    content = blank.replace(_entry(_BLANK), _entry(digest), 1)
    _files.write(path, content)


@validated
def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors (on the CPU) and the notes of a checkpoint.

    Raises:
        ValueError: with the path and the reason, if the file cannot be read, is no safetensors file, is another
            program's, is cut short or is damaged.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise checkpoint_error(path, f"it cannot be read: {error.strerror}") from error
    size = int.from_bytes(data[:8], "little")
    try:
        # Every safetensors file has a header that begins with a brace and ends inside the file.
        if not data[8:9] == b"{" or 8 + size > len(data):
            raise ValueError("no header")
        header = json.loads(data[8 : 8 + size])
        marks = header.get("__metadata__", {})
        end = 8 + size + max((t["data_offsets"][1] for name, t in header.items() if name != "__metadata__"), default=0)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise checkpoint_error(path, "it is no safetensors file, or cut short or damaged in its header") from error
    if not isinstance(marks, dict) or marks.get("icl") != _FORMAT or not {"notes", "sha256"} <= marks.keys():
        raise checkpoint_error(path, "it is a safetensors file of another program, or its header is damaged")
    if len(data) < end:
        raise checkpoint_error(path, f"it is cut short: {len(data)} of {end} bytes")
    blank = data.replace(_entry(marks["sha256"]), _entry(_BLANK), 1)
    if hashlib.sha256(blank).hexdigest() != marks["sha256"]:
        raise checkpoint_error(path, "it is damaged: its bytes are not those that its sha256 was taken of")
    return safetensors.torch.load(data), json.loads(marks["notes"])


def _entry(digest: str) -> bytes:
    return f'"sha256":"{digest}"'.encode()


def checkpoint_error(path: Path, reason: str) -> ValueError:
    """Return the error of a checkpoint that cannot be resumed from: its path, the reason, and the remedy."""
    return ValueError(f"cannot go on from the checkpoint {path}: {reason} (remove it, or name another, to start anew)")


@validated
def check_compatible(path: Path, found: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that was written with other settings.

    Args:
        path: the file, for the message.
        found: its notes.
        here: the required notes, in the order in which they are compared; its other notes are ignored.

    Raises:
        ValueError: naming the first field that differs, with both values.
    """
    if difference := _difference({name: found[name] for name in here if name in found}, here, ""):
        raise checkpoint_error(path, difference)


def _difference(saved: Any, here: Any, where: str) -> str | None:
    if isinstance(saved, Mapping) and isinstance(here, Mapping):
        for name in [*here, *(name for name in saved if name not in here)]:
            inner = f"{where}.{name}" if where else name
            if name not in saved:
                return f"{inner} is {_shortened(here[name])} here and not in the file"
            if name not in here:
                return f"{inner} is {_shortened(saved[name])} in the file and not here"
            if difference := _difference(saved[name], here[name], inner):
                return difference
        return None
    # 1 == True in Python, but they are different settings.
    same = saved == here and isinstance(saved, bool) == isinstance(here, bool)
    return None if same else f"{where} is {_shortened(saved)} in the file and {_shortened(here)} here"


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:100]} ... {text[-80:]}"


def to_jsonable(value: Any) -> Any:
    """Convert settings to JSON-serialisable values; two results are equal exactly if the settings are.

    Numbers, text, None, arrays, tensors, sequences, mappings and dataclasses of these, to any depth; functions and
    classes are converted to their names, so two functions of one name count as the same.

    Raises:
        ValueError: for anything else.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return float(value) if math.isfinite(value) else repr(float(value))
        case np.generic() | np.ndarray() | Tensor():
            return to_jsonable(value.tolist())
        case torch.dtype() | torch.device():
            return str(value)
        case list() | tuple():
            return [to_jsonable(each) for each in value]
        case Mapping():
            return {str(name): to_jsonable(each) for name, each in value.items()}
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {"class": _name(type(value))} | {f.name: to_jsonable(getattr(value, f.name)) for f in fields(value)}
        case _ if hasattr(value, "__qualname__"):
            return _name(value)
    raise ValueError(f"value must be numbers, text, arrays or dataclasses of these to be written down, got {value!r}")


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


class _State:
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


class _Checkpointer:
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
        self, state: _State, path: Path | None, settings: Mapping[str, Any], every: int, snapshot_every: int
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
