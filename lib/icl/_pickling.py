"""Pickling of what a function makes from its arguments: the call is stored, and made again."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def remade(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make it again."""
    return function(*args, **kwargs)


def picklable(make: F) -> F:
    """Decorator of a function that makes a dataclass with a field `recipe`: keep the call there."""

    @functools.wraps(make)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return dataclasses.replace(make(*args, **kwargs), recipe=(inner, args, kwargs))

    return cast(F, inner)
