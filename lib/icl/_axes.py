"""Shape and dtype checks of tensors and arrays, from jaxtyping annotations, consistent over the arguments of a call.

jaxtyping's own check says neither which argument is wrong nor what would be right, and takes five times as long.
"""

import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jaxtyping
import numpy as np
import torch

from icl import _checks


class Axes(NamedTuple):
    """Parsed axes of one annotation: names (lengths; None for any), each with a flag for # (broadcastable)."""

    first: tuple[tuple[str | int | None, bool], ...]
    several: tuple[str, bool] | None  # variadic axes, * and ...; `last` are the axes after them
    last: tuple[tuple[str | int | None, bool], ...]


class Shaped(NamedTuple):
    """An argument annotated as a tensor of floats or a numpy array: name, position and possible axes."""

    name: str
    place: int
    options: tuple[Axes, ...]
    optional: bool
    kind: Any = torch.Tensor


def axes_of(annotation: Any) -> Axes:
    """Parse the axes of `Float[Tensor, "*batch n d"]`; an expression or an anonymous axis has any length."""
    parts: list[list[Any]] = [[], []]
    several = None
    for word in annotation.dim_str.split():
        name = word.lstrip("*#")
        if "*" in word or word == "...":
            several = name, "#" in word
        else:
            length = int(name) if name.isdigit() else name if name.isidentifier() and name != "_" else None
            parts[several is not None].append((length, "#" in word))
    return Axes(tuple(parts[0]), several, tuple(parts[1]))


def shaped(parameters: Mapping[str, inspect.Parameter], hints: dict[str, Any]) -> tuple[Shaped, ...]:
    """Arguments of a function that are annotated as tensors of floats or numpy arrays, optional ones included."""
    arguments = []
    for place, (name, parameter) in enumerate(parameters.items()):
        given = typing.get_args(hints.get(name)) if typing.get_origin(hints.get(name)) in _UNIONS else [hints.get(name)]
        options = [option for option in given if option is not types.NoneType]
        kind = np.ndarray if options and all(map(is_numpy, options)) else torch.Tensor
        if options and (kind is np.ndarray or all(map(_is_tensor, options))):
            place = place if parameter.kind is not parameter.KEYWORD_ONLY else 1 << 30
            arguments.append(Shaped(name, place, tuple(map(axes_of, options)), len(options) < len(given), kind))
    return tuple(arguments)


_UNIONS = (typing.Union, types.UnionType)


def _is_tensor(annotation: Any) -> bool:
    array = inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray)
    return array and annotation.array_type is torch.Tensor and annotation.dtype is jaxtyping.Float


def is_numpy(annotation: Any) -> bool:
    """Test for a numpy array of floats or booleans."""
    array = inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray)
    return array and annotation.array_type is np.ndarray and annotation.dtype in (jaxtyping.Float, jaxtyping.Bool)


def agree(arguments: Sequence[Shaped], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Refuse arguments that do not match their annotations' axes, or differ in dtype."""
    sizes: dict[str, Any] = {}
    dtype = None
    for each in arguments:
        value = args[each.place] if each.place < len(args) else kwargs.get(each.name, inspect.Parameter.empty)
        if value is inspect.Parameter.empty or (value is None and each.optional):
            continue
        if not isinstance(value, each.kind) or not _fits(each.options, value.shape, sizes):
            raise ValueError(_refusal(each, value, arguments, args, kwargs))
        if each.kind is np.ndarray:
            continue
        if dtype is None and not value.is_floating_point():
            raise ValueError(f"{each.name} must have a floating dtype, got {value.dtype}")
        if value.dtype is not (dtype := dtype or value.dtype):
            first = next(other.name for other in arguments if other.kind is torch.Tensor)
            raise ValueError(f"{each.name} must have dtype {dtype} to match {first}, got {value.dtype}")


def _fits(options: tuple[Axes, ...], shape: Sequence[int], sizes: dict[str, Any]) -> bool:
    """Match a shape against alternative axes and the lengths known so far; record the lengths it fixes."""
    if len(options) == 1:
        return _has(options[0], shape, sizes)
    for axes in options:
        trial_sizes = dict(sizes)
        if _has(axes, shape, trial_sizes):
            sizes.update(trial_sizes)
            return True
    return False


def _has(axes: Axes, shape: Sequence[int], sizes: dict[str, Any]) -> bool:
    named, several, last = axes
    if several is not None:
        start, stop = len(named), len(shape) - len(last)
        if stop < start or not _has_several(*several, tuple(shape[start:stop]), sizes):
            return False
        named, shape = named + last, (*shape[:start], *shape[stop:])
    if len(shape) != len(named):
        return False
    for (name, broadcasts), size in zip(named, shape, strict=True):
        if name is None or (broadcasts and size == 1):
            continue
        if size != (sizes.setdefault(name, size) if isinstance(name, str) else name):
            return False
    return True


def _has_several(name: str, broadcasts: bool, shape: tuple[int, ...], sizes: dict[str, Any]) -> bool:
    if not name.isidentifier():
        return True
    if not broadcasts:
        return bool(sizes.setdefault("*" + name, shape) == shape)
    lengths = sizes.get("*" + name)
    pairs = zip(reversed(shape), reversed(lengths or ()), strict=False)
    return lengths is None or (len(shape) <= len(lengths) and all(a in (1, b) for a, b in pairs))


def _refusal(
    wrong: Shaped, value: Any, arguments: Sequence[Shaped], args: Sequence[Any], kwargs: dict[str, Any]
) -> str:
    """Error message: the expected shape, given the arguments before this one."""
    sizes: dict[str, Any] = {}
    like = []
    for each in arguments[: arguments.index(wrong)]:
        before = args[each.place] if each.place < len(args) else kwargs.get(each.name)
        if before is not None:
            fixed = set(sizes)
            _fits(each.options, before.shape, sizes)
            like += [each.name] * bool((sizes.keys() - fixed) & _names(wrong))
    wanted = " or ".join(_describe(axes, sizes) for axes in wrong.options)
    match = f" to match {' and '.join(like)}" if like else ""
    if not isinstance(value, wrong.kind):
        kind = "torch.Tensor" if wrong.kind is torch.Tensor else "numpy array"
        return f"{wrong.name} must be a {kind} of shape {wanted}{match}, got {_checks.shown(value)}"
    return f"{wrong.name} must have shape {wanted}{match}, got {tuple(value.shape)}"


def _names(argument: Shaped) -> set[Any]:
    axes = [axis for option in argument.options for axis in (*option.first, *option.last)]
    several = {"*" + option.several[0] for option in argument.options if option.several}
    return {name for name, _ in axes if isinstance(name, str)} | several


def _describe(axes: Axes, sizes: dict[str, Any]) -> str:
    """Describe axes for a message: lengths where they are known, names elsewhere."""

    def one(name: str | int | None, broadcasts: bool) -> str:
        length = "any" if name is None else str(sizes.get(str(name), name))
        return f"{length} or 1" if broadcasts and length not in ("1", "any") else length

    words, also = [one(*axis) for axis in axes.first], ""
    if axes.several:
        name, broadcasts = axes.several
        lengths = sizes.get("*" + name)
        if lengths is not None and broadcasts:
            also = f" with {name} that broadcast to {lengths}"
        words += [f"*{name}" if name.isidentifier() else "..."] if lengths is None or broadcasts else map(str, lengths)
    words += [one(*axis) for axis in axes.last]
    return f"({', '.join(words)}){also}"
