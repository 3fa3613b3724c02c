"""Checkpoints: the state of a training in one file, written atomically and verified by its hash.

A checkpoint is a safetensors file. Its header holds metadata in JSON (notes), and a sha256 over every byte of the file
(its own digits read as zeros), so that a single changed bit is detected. Loading runs no code: there is no pickle.
:func:`~icl.experiments.training.fit` writes checkpoints and resumes from them.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

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
