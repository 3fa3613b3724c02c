"""Bounds declared in annotations: what they let in, what they refuse, and that nothing else of a function changes."""

import copy
import importlib
import inspect
import math
import pickle
import pkgutil
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pytest
import torch
from annotated_types import Ge, Gt, Interval, Lt
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Bool, Float

import icl
from icl import _bounds, tasks
from icl._bounds import (
    Bound,
    Count,
    NonNegatives,
    PositiveUnit,
    Real,
    bound_of,
    check_of,
    checks,
    validate_fields,
    validated,
)
from icl.tasks import core

pytestmark = pytest.mark.usefixtures("as_installed")


def declared():
    """Every number with a bound in the library: its annotation, by the name of function and argument."""
    found = {}
    for room in pkgutil.walk_packages(icl.__path__, "icl."):
        for function in vars(importlib.import_module(room.name)).values():
            if inspect.isfunction(function) and function.__module__ == room.name:
                hints = typing.get_type_hints(function, include_extras=True)
                found |= {
                    f"{room.name}.{function.__name__}.{name}": hint for name, hint in hints.items() if bound_of(hint)
                }
    return found


DECLARED = declared()
KINDS = {str(hint): hint for hint in DECLARED.values()}


def numbers_in(hint):
    """Hypothesis' numbers for an annotation; of arrays and settings, one number."""
    kind, bound = bound_of(hint)
    return st.from_type(Annotated[int if kind is int else float, _marks(bound)])


def _marks(bound):
    ends = {("ge" if bound.low_in else "gt"): bound.low} if math.isfinite(bound.low) else {}
    ends |= {("le" if bound.high_in else "lt"): bound.high} if math.isfinite(bound.high) else {}
    return Interval(**ends)


@pytest.mark.parametrize("hint", KINDS.values(), ids=KINDS)
@given(data=st.data())
def test_what_an_annotation_allows_is_let_in(hint, data):
    """Numbers that Hypothesis makes from an annotation pass its check unchanged."""
    number = data.draw(numbers_in(hint).filter(math.isfinite))
    assert check_of(hint)("x", number) == number


@pytest.mark.parametrize("hint", KINDS.values(), ids=KINDS)
@given(data=st.data())
def test_what_an_annotation_excludes_is_refused_by_name(hint, data):
    """Finite numbers beyond an end, an open end itself, NaN and infinities raise ValueError with name and value."""
    kind, bound = bound_of(hint)
    finite = {"allow_nan": False, "allow_infinity": False}
    beyond = [st.sampled_from([math.nan, math.inf, -math.inf, "1", 1j])]
    if kind is int:
        beyond += [st.integers(max_value=int(bound.low) - 1), st.just(bound.low + 1.5), st.booleans()]
    else:
        if math.isfinite(bound.low):
            beyond.append(st.floats(max_value=bound.low, exclude_max=bound.low_in, **finite))
        if math.isfinite(bound.high):
            beyond.append(st.floats(min_value=bound.high, exclude_min=bound.high_in, **finite))
    wrong = data.draw(st.one_of(beyond))
    with pytest.raises(ValueError, match=r"^x must be .*got "):
        check_of(hint)("x", wrong)


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (bool, [True, np.False_], [1, "no", None]),
        (torch.Generator, [torch.Generator()], [0, np.random.default_rng(0), torch.Generator, None]),
        (torch.dtype, [torch.float32, torch.float64], [torch.float16, torch.int64, "float32", None]),
        (Callable[..., Any], [len], [1.5, "len", None]),
        (str, ["text"], [3, None]),
        (Path | None, [Path("a"), None], ["a", Path]),
        (Mapping[str, Any], [{}], [[], 1.5, None]),
        (Sequence[str], [(), ["a"]], [{}, 1.5, None]),
        (pd.DataFrame, [pd.DataFrame()], [{}, pd.DataFrame, None]),
        (core.InputLaw, [core.GAUSSIAN], [core.InputLaw, "normal", None]),
        (
            Float[np.ndarray, " d"],
            [[1, 2], np.ones(2), torch.ones(2), pd.Series([1.0])],
            [
                "text",
                [math.nan],
                [1j],
                [[1.0], 2.0],
                [[1.0, "a"]],
                object(),
                np.ma.masked,
                torch.ones(2).requires_grad_(),
            ],
        ),
        (Bool[np.ndarray, " d"] | None, [[True, False], np.ones(2) > 0, None], [[1.0], "text", [[True], 1], object()]),
    ],
    ids=lambda value: "" if isinstance(value, list) else str(value),
)
def test_other_kinds_are_checked_too(kind, right, wrong):
    """Flags, generators, dtypes, functions, classes and arrays: arrays become numpy's, in float64 or booleans."""
    for value in right:
        found = check_of(kind)("x", value)
        assert np.array_equal(found, value) if isinstance(found, np.ndarray) else found is value or found == value
        assert not isinstance(found, np.ndarray) or found.dtype in (np.float64, np.bool_)
    for value in wrong:
        with pytest.raises(ValueError, match=r"^x must "):
            check_of(kind)("x", value)


def test_the_library_declares_its_bounds():
    """The walk finds them: several hundred numbers, of a few dozen kinds."""
    assert len(DECLARED) > 300
    assert len(KINDS) > 20


@validated
def _scaled(x: NonNegatives, n: Count, *, lam: PositiveUnit = 0.5, task: tasks.Task | None = None, **rest: Real) -> Any:
    """What it was given."""
    return x, n, lam, task, rest


def test_arguments_reach_the_function_as_they_are():
    """By place and by name; defaults and further keywords are left alone, numbers of numpy become Python's."""
    array = np.array([0.0, 2.0])
    x, n, lam, task, rest = _scaled(array, np.int64(3), other="free")
    assert x is array
    assert (n, lam, task, rest) == (3, 0.5, None, {"other": "free"})
    assert type(n) is int
    assert type(_scaled(1.0, 1, lam=np.float64(0.25))[2]) is float


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"x": np.array([1.0, -1.0])}, r"x must be finite and >= 0, got -1.0"),
        ({"x": torch.tensor([1.0, math.nan])}, r"x must be finite and >= 0, got nan"),
        ({"n": 0}, r"n must be an integer >= 1, got 0"),
        ({"lam": 0.0}, r"lam must be finite and > 0 and <= 1, got 0.0"),
        ({"task": "drift"}, r"task must be an icl.tasks.Task or None, got 'drift'"),
    ],
)
def test_a_refusal_names_argument_value_and_bound(wrong, message):
    """One sentence, whether the argument is given by place or by name."""
    with pytest.raises(ValueError, match=f"^{message}"):
        _scaled(**{"x": 1.0, "n": 1} | wrong)


def test_places_are_checked_as_names_are():
    """The second argument is the second's bound."""
    with pytest.raises(ValueError, match=r"^n must be"):
        _scaled(1.0, 0)
    with pytest.raises(TypeError, match="positional argument"):
        _scaled(1.0, 1, 0.5)


@dataclass(frozen=True)
class _Law:
    gamma: Annotated[float, Ge(0), Lt(1)]
    size: Count = 1
    note: str | None = None

    def __post_init__(self):
        validate_fields(self)


def test_fields_of_a_dataclass_are_arguments():
    """Refused when it is made, and when it is copied with a change."""
    assert _Law(0.0).gamma == 0
    for wrong in ({"gamma": 1.0}, {"gamma": 0.5, "size": 0}, {"gamma": 0.5, "note": 3}):
        with pytest.raises(ValueError, match=f"^{list(wrong)[-1]} must be"):
            _Law(**wrong)


@dataclass(frozen=True, eq=False)
class _Table:
    F: Float[np.ndarray, "d d"]
    h: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"] | None = None

    def __post_init__(self):
        validate_fields(self)


def test_fields_that_are_arrays_become_its_own():
    """Lists are taken, in float64, and copied; shapes agree from field to field."""
    h = np.ones(2)
    table = _Table([[1, 0], [0, 1]], h)
    h[0] = 5.0
    assert (table.F.dtype, table.h.tolist(), table.scale) == (np.float64, [1.0, 1.0], None)
    with pytest.raises(ValueError, match=r"^h must have shape \(2\) to match F, got \(3,\)$"):
        _Table(np.eye(2), np.ones(3))


@pytest.mark.parametrize(
    ("hint", "bound", "said"),
    [
        (Count, Bound(1, low_in=True), ">= 1"),
        (PositiveUnit | None, Bound(0, 1, high_in=True), "in (0, 1]"),
        (Annotated[float, Gt(0), Lt(1)], Bound(0, 1), "in (0, 1)"),
        (Annotated[Any, Interval(le=3)], Bound(high=3, high_in=True), "<= 3"),
        (Real, Bound(), "any number"),
    ],
)
def test_a_bound_is_read_and_said(hint, bound, said):
    """As the reference pages write it."""
    assert bound_of(hint)[1] == bound
    assert str(bound) == said


def test_what_declares_nothing_is_not_checked():
    """A float without a bound, Any, an array without axes: the function's own to say."""
    assert all(check_of(hint) is None for hint in (float, Any, np.ndarray, torch.Tensor, int | np.ndarray))
    assert bound_of(float) is None


def _halved(x: torch.Tensor, share: PositiveUnit) -> torch.Tensor:
    return share * x


def test_a_checked_function_is_traced_mapped_copied_and_pickled():
    """vmap, torch.compile, deepcopy and pickle treat it as the function that it wraps."""
    x = torch.arange(4.0)
    half = validated(_halved)
    mapped = torch.vmap(lambda row: half(row, 0.5))(x.view(2, 2))
    assert torch.equal(mapped, x.view(2, 2) / 2)
    assert torch.equal(torch.compile(half, backend="eager", fullgraph=True)(x, 0.5), x / 2)
    assert copy.deepcopy(half) is half
    assert pickle.loads(pickle.dumps(_scaled)) is _scaled
    assert checks(_bounds.validated(_halved)).keys() == {"share"}
