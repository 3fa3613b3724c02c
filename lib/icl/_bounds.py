"""Argument validation from annotations: bounds of numbers, classes, and shapes of tensors.

    @validated
    def riccati(d: Count, *, lam: PositiveUnit, mu: PositiveArray) -> ...

raises a ValueError with the argument's name, its value and the allowed values. A number carries bounds of
`annotated_types`, which Hypothesis and the reference pages read too; a class asks for an instance; a tensor of floats
has the axes that jaxtyping names (:mod:`icl._axes`), of one length and dtype throughout a call; so has a numpy array,
for which lists, tensors and frames are taken too: the function gets finite numbers in float64, or booleans. Dataclasses
call :func:`validate_fields` in `__post_init__`. Other checks are in :mod:`icl._checks`.
"""

import collections.abc
import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import annotated_types
import jaxtyping
import numpy as np
import torch
from annotated_types import Ge, Gt, Interval, Le, Lt

from icl import _axes, _checks

Count = Annotated[int, Ge(1)]
Natural = Annotated[int, Ge(0)]
Real = Annotated[float, Gt(-float("inf"))]  # any finite number
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
UnitInterval = Annotated[float, Interval(ge=0, le=1)]
PositiveUnit = Annotated[float, Interval(gt=0, le=1)]
OpenUnit = Annotated[float, Interval(gt=0, lt=1)]
# One number, or an array of them.
Reals = Annotated[Any, Gt(-float("inf"))]
Positives = Annotated[Any, Gt(0)]
NonNegatives = Annotated[Any, Ge(0)]
UnitIntervals = Annotated[Any, Interval(ge=0, le=1)]
PositiveUnits = Annotated[Any, Interval(gt=0, le=1)]

_Check = Callable[[str, Any], Any]  # of a name and a value to the value, an int or a float where that is asked for


@dataclasses.dataclass(frozen=True)
class Bound:
    """An interval of numbers, open or closed at either end."""

    low: float = -np.inf
    high: float = np.inf
    low_in: bool = False
    high_in: bool = False

    def __str__(self) -> str:
        """Interval in a docstring's notation: in (0, 1], > 0."""
        if np.isinf(self.high):
            return "any number" if np.isinf(self.low) else f"{'>=' if self.low_in else '>'} {self.low:g}"
        if np.isinf(self.low):
            return f"{'<=' if self.high_in else '<'} {self.high:g}"
        return f"in {'(['[self.low_in]}{self.low:g}, {self.high:g}{')]'[self.high_in]}"


def members(annotation: Any) -> list[Any]:
    """Members of a union, or the annotation itself."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [member for part in typing.get_args(annotation) for member in members(part)]
    return [annotation]


def bound_of(annotation: Any) -> tuple[Any, Bound] | None:
    """Type and bound declared by an annotation; None without one."""
    for member in members(annotation):
        if typing.get_origin(member) is Annotated:
            kind, *marks = typing.get_args(member)
            ends: dict[str, Any] = {}
            for mark in _ends(marks):
                if isinstance(mark, Ge | Gt):
                    ends |= {"low": mark.ge if isinstance(mark, Ge) else mark.gt, "low_in": isinstance(mark, Ge)}
                else:
                    ends |= {"high": mark.le if isinstance(mark, Le) else mark.lt, "high_in": isinstance(mark, Le)}
            if ends:
                return kind, Bound(**ends)
    return None


def _ends(marks: list[Any]) -> Iterator[Ge | Gt | Le | Lt]:
    for mark in marks:
        if isinstance(mark, annotated_types.GroupedMetadata):
            yield from _ends(list(mark))
        elif isinstance(mark, Ge | Gt | Le | Lt):
            yield mark


def _of_number(kind: Any, bound: Bound) -> _Check:
    low, high, low_in, high_in = bound.low, bound.high, bound.low_in, bound.high_in
    if kind is int:
        least, most = int(low if low_in else low + 1), high if high_in else high - 1
        return lambda name, value: _checks.integer(name, value, at_least=least, at_most=most)
    ends = {("at_least" if low_in else "above"): low, ("at_most" if high_in else "below"): high}
    check = _checks.number if kind is float else _checks.real
    if torch.Tensor in members(kind):  # a setting, which may be learnt

        def setting(name: str, value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                check(name, value, **ends)
            elif _checks.is_readable(value):
                check(name, value.detach().numpy(), **ends)
            return value

        return setting

    def number(name: str, value: Any) -> Any:
        # Fast path without an array: Python's own numbers, in range.
        return value if type(value) is float and low < value < high else check(name, value, **ends)

    return number


def _of_class(kinds: list[Any]) -> _Check:
    def instance(name: str, value: Any) -> Any:
        _checks.instance(name, value, *kinds)
        return value

    return instance


def _of_function(name: str, value: Any) -> Any:
    if not callable(value):
        raise ValueError(f"{name} must be a function, got {_checks.shown(value)}")
    return value


def _of_numpy(kind: Any) -> _Check:
    if kind.dtype is jaxtyping.Bool:
        return _checks.flags
    return lambda name, value: np.asarray(_checks.real(name, value), dtype=np.float64)


def _is_checked(kind: Any) -> bool:
    """Test whether arguments of this class are checked: the library's classes, and those listed here."""
    if not inspect.isclass(kind) or issubclass(kind, jaxtyping.AbstractArray):
        return False
    if getattr(kind, "_is_protocol", False) and not getattr(kind, "_is_runtime_protocol", False):
        return False
    return kind.__module__.startswith(("icl", "pandas")) or kind in _NAMED


_NAMED = (str, dict, Path, torch.nn.Module, collections.abc.Sequence, collections.abc.Mapping)


@functools.cache
def check_of(annotation: Any) -> _Check | None:
    """Check declared by an annotation: a function of name and value that raises ValueError; None without one."""
    options = [option for option in members(annotation) if option is not types.NoneType]
    kinds = [typing.get_origin(option) or option for option in options]
    if declared := bound_of(annotation):
        check = _of_number(*declared)
    elif options and all(map(_axes.is_numpy, options)):
        check = _of_numpy(options[0])
    elif kinds in ([bool], [bool, np.bool_]):
        check = _checks.flag
    elif kinds == [torch.Generator]:
        check = _checks.generator
    elif kinds == [torch.dtype]:
        check = _checks.precision
    elif kinds == [collections.abc.Callable]:
        check = _of_function
    elif all(map(_is_checked, kinds)):
        return _of_class([*kinds, *(option for option in members(annotation) if option is types.NoneType)])
    else:
        return None
    if len(options) == len(members(annotation)):
        return check
    return lambda name, value: None if value is None else check(name, value)


def checks(function: Callable[..., Any]) -> dict[str, _Check]:
    """Checks declared by the annotations of a function's arguments or a dataclass's fields, by name."""
    hints = typing.get_type_hints(function, include_extras=True)
    hints.pop("return", None)
    if not inspect.isclass(function):
        parameters = inspect.signature(function).parameters.values()
        variadic = {p.name for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
        hints = {name: hint for name, hint in hints.items() if name not in variadic}
    return {name: check for name, hint in hints.items() if (check := check_of(hint))}


F = TypeVar("F", bound=Callable[..., Any])


def validated(function: F) -> F:
    """Decorator: check a function's arguments against its annotations before it runs."""
    # Now, and not at the first call: a barred function (`icl_book.grading`) has another signature for a while.
    parameters = inspect.signature(function).parameters
    names = list(parameters)
    resolved: list[tuple[dict[str, _Check], list[tuple[int, str, _Check]], tuple[_axes.Shaped, ...]]] = []

    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        if not resolved:  # at the first call: annotations may be forward references
            by_name = checks(function)
            placed = [(at, name, by_name[name]) for at, name in enumerate(names) if name in by_name]
            resolved.append((by_name, placed, _axes.shaped(parameters, typing.get_type_hints(function))))
        by_name, placed, arrays = resolved[0]
        values = list(args)
        for at, name, check in placed:
            if at < len(values):
                values[at] = check(name, values[at])
        for name in kwargs:
            if name in by_name:
                kwargs[name] = by_name[name](name, kwargs[name])
        if arrays:
            _axes.agree(arrays, values, kwargs)
        return function(*values, **kwargs)

    return typing.cast(F, inner)


@functools.cache
def _field_checks(kind: Any) -> tuple[dict[str, _Check], tuple[_axes.Shaped, ...]]:
    by_name = checks(kind)
    bounds = {field.name: by_name[field.name] for field in dataclasses.fields(kind) if field.name in by_name}
    return bounds, _axes.shaped(inspect.signature(kind).parameters, typing.get_type_hints(kind))


def validate_fields(instance: Any) -> None:
    """Check the fields of a dataclass against their annotations; numpy arrays become its own, in float64."""
    kind: Any = type(instance)
    bounds, arrays = _field_checks(kind)
    values = vars(instance) | {name: check(name, getattr(instance, name)) for name, check in bounds.items()}
    if arrays:
        _axes.agree(arrays, (), values)
    for each in arrays:
        if each.kind is np.ndarray and values[each.name] is not None:
            object.__setattr__(instance, each.name, values[each.name].copy())
