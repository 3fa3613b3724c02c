"""Argument validation by hand: a ValueError names the argument, its value and the allowed values."""

import dataclasses
import itertools
import math
import os
import sys
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch


def shown(value: Any) -> str:
    """Representation of a value for an error message: its repr, or kind and shape where that takes many lines."""
    text = repr(value)
    if len(text) <= 200 and "\n" not in text:
        return text
    size = f"of shape {tuple(value.shape)}" if hasattr(value, "shape") else f"that starts {text[:60]!r}"
    return f"a {type(value).__name__} {size}"


def unmasked(name: str, value: Any) -> None:
    """Refuse a masked array: converted to an ordinary one, it would expose the masked values."""
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(f"{name} must not be a masked array: fill or drop what is masked")


def detached(name: str, value: Any) -> None:
    """Refuse masked arrays and tensors that require a gradient, which numpy cannot convert."""
    if isinstance(value, torch.Tensor) and value.requires_grad:
        raise ValueError(f"{name} must be real numbers, detached from what they are a gradient's, got {shown(value)}")
    unmasked(name, value)


def numbers(name: str, value: Any) -> np.ndarray:
    """Return `value` as an array of real numbers; ValueError if it is none, is masked, or requires a gradient."""
    detached(name, value)
    if hasattr(value, "isna") and hasattr(value, "to_numpy"):
        return _pandas(name, value)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:  # a ragged list; a tensor on another device
        raise ValueError(f"{name} must be real, got {shown(value)}") from error
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be real, got {shown(value)}")
    return array


def _pandas(name: str, value: Any) -> np.ndarray:
    """Convert a DataFrame or a Series, nullable, Arrow-backed and boolean columns too; errors name the column."""
    columns = [(f" in column {label!r}", value.iloc[:, at]) for at, label in enumerate(getattr(value, "columns", ()))]
    for where, column in columns if value.ndim == 2 else [("", value)]:
        if column.dtype.kind not in "fiub":
            raise ValueError(f"{name} must be real, got dtype {column.dtype}{where}")
        if missing := int(column.isna().sum()):
            raise ValueError(f"{name} must be finite, got {missing} missing{where}: fill them, or drop their rows")
    return np.asarray(value.to_numpy(dtype=np.float64))


def _qualified_name(kind: type) -> str:
    """Public qualified name of a class: torch.nn.Module, not torch.nn.modules.module.Module."""
    if kind.__module__ == "builtins":
        return kind.__qualname__
    packages = itertools.accumulate(kind.__module__.split("."), "{}.{}".format)
    exporters = (name for name in packages if getattr(sys.modules.get(name), kind.__qualname__, None) is kind)
    return f"{next(exporters, kind.__module__)}.{kind.__qualname__}"


def _article(noun: str) -> str:
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


def instance(name: str, value: Any, *kinds: type) -> None:
    """Refuse a value that is no instance of these kinds, such as the class itself."""
    if isinstance(value, type) or not isinstance(value, kinds):
        wanted = " or ".join("None" if kind is type(None) else _article(_qualified_name(kind)) for kind in kinds)
        raise ValueError(f"{name} must be {wanted}, got {shown(value)}")


def text(name: str, value: Any, what: str = "a text") -> str:
    """Return `value` if it is a non-empty string; ValueError otherwise."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} must be {what}, not empty, got {value!r}")
    return value


def integer(name: str, value: Any, *, at_least: int, at_most: float = math.inf) -> int:
    """Return `value` if it is an integer in range; ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not at_least <= value <= at_most:
        number = value.item() if isinstance(value, np.generic) else value
        most = f" and <= {at_most}" * (at_most < math.inf)
        raise ValueError(f"{name} must be an integer >= {at_least}{most}, got {number!r}")
    return int(value)


def one_of(name: str, value: Any, choices: Collection[Any]) -> None:
    """Refuse a value that is none of these names or numbers, unhashable ones such as a list too."""
    if isinstance(value, bool) or not isinstance(value, str | int) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}")


def names(name: str, value: Any) -> None:
    """Refuse anything but a sequence of strings; a plain string would be taken for its letters."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{name} must be a sequence of names, got {value!r}")


def broadcasts(name: str, value: Any, shape: tuple[int, ...]) -> None:
    """Refuse an array that does not broadcast to a shape."""
    actual = np.shape(value)
    if len(actual) > len(shape) or any(a not in (1, e) for a, e in zip(actual[::-1], shape[::-1], strict=False)):
        raise ValueError(f"{name} must broadcast to {shape}, got shape {actual}")


def function(name: str, value: Any) -> None:
    """Refuse a value that is neither callable nor None."""
    if value is not None and not callable(value):
        raise ValueError(f"{name} must be a function, got {value!r}")


def fits_memory(name: str, value: Any, size: float) -> None:
    """Refuse a setting whose arrays, of `size` bytes in all, are larger than this machine's memory.

    Windows has no `os.sysconf` to ask: there the allocation itself fails, if it does.
    """
    if not hasattr(os, "sysconf"):
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory:
        raise ValueError(
            f"{name} must be smaller, {value} takes at least {size:.3g} bytes and there are {memory:.3g}, got {value}"
        )


def flag(name: str, value: Any) -> bool:
    """Return `value` as a bool if it is Python's or numpy's True or False; ValueError for merely truthy values."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def flags(name: str, value: Any) -> np.ndarray:
    """Return `value` as an array of booleans; ValueError otherwise."""
    detached(name, value)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:  # a ragged list
        raise ValueError(f"{name} must be True and False, got {shown(value)}") from error
    if array.dtype != np.bool_:
        raise ValueError(f"{name} must be True and False, got {shown(value)}")
    return array


def real(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    below: float = math.inf,
) -> Any:
    """Return `value` (a number or an array) if every entry is finite and in range; ValueError otherwise."""
    array = numbers(name, value)
    # `not (in range)` rather than `out of range`: NaN fails every comparison and must be refused.
    wrong = ~(np.isfinite(array) & (array > above) & (array >= at_least) & (array <= at_most) & (array < below))
    if wrong.any():
        bounds = [f"> {above:g}"] * (above > -math.inf) + [f">= {at_least:g}"] * (at_least > -math.inf)
        bounds += [f"<= {at_most:g}"] * (at_most < math.inf) + [f"< {below:g}"] * (below < math.inf)
        worst = array[wrong].flat[0].item()
        raise ValueError(f"{name} must be finite{''.join(f' and {b}' for b in bounds)}, got {worst!r}")
    return value


def number(name: str, value: Any, **bounds: float) -> float:
    """Return `value` as a float if it is one real number, finite and in range; ValueError otherwise."""
    if np.ndim(value) != 0:
        raise ValueError(f"{name} must be one number, got {shown(value)}")
    return float(real(name, value, **bounds))


def covariance(name: str, value: Any, d: int) -> np.ndarray:
    """Return a symmetric positive semi-definite (d, d) float64 array; None stands for the identity."""
    fits_memory("d", d, 8 * d**2)
    if value is None:
        return np.eye(d)
    matrix = np.array(numbers(name, value), dtype=np.float64)
    if matrix.shape != (d, d):
        raise ValueError(f"{name} must have shape ({d}, {d}), got {matrix.shape}")
    real(name, matrix)
    scale = np.abs(matrix).max()
    if not np.allclose(matrix, matrix.T, rtol=0, atol=1e-12 * scale):
        raise ValueError(f"{name} must be symmetric, its largest asymmetry is {np.abs(matrix - matrix.T).max():.3g}")
    smallest = np.linalg.eigvalsh(matrix)[0]
    if smallest < -1e-12 * scale:
        raise ValueError(f"{name} must be positive semi-definite, its smallest eigenvalue is {smallest:.3g}")
    return (matrix + matrix.T) / 2


def positive_definite(name: str, value: Any) -> np.ndarray:
    """Return a symmetric positive definite float64 matrix of any size."""
    detached(name, value)
    if isinstance(value, torch.Tensor):
        numbers(name, value)
    matrix = np.asarray(value)
    if matrix.ndim != 2 or not matrix.size:
        raise ValueError(f"{name} must be a (d, d) covariance, got {value!r}")
    matrix = covariance(name, matrix, len(matrix))
    values = np.linalg.eigvalsh(matrix)
    if values[0] <= 1e-12 * values[-1]:
        raise ValueError(f"{name} must be positive definite, its smallest eigenvalue: got {values[0]:.3g}")
    return matrix


def well_scaled(name: str, matrix: np.ndarray) -> None:
    """Refuse an ill-conditioned covariance: a variance above rounding, but below 1e-14 of the largest."""
    values, vectors = np.linalg.eigh(matrix)
    # Rounding relative to the variances that this one is a difference of, not to the largest of all.
    lost = (values <= 1e-14 * values[-1]) & (values > 1e-14 * (vectors**2).T @ matrix.diagonal())
    if lost.any():
        raise ValueError(
            f"{name} must have variances within a factor of 1e14, or 0, got {values[lost][0]:.3g} and {values[-1]:.3g}"
        )


def isotropic(task: Any) -> None:
    """Refuse a task with correlated or unequal weight coordinates, which `task.weight_kernel()` does not describe."""
    Sigma_w = getattr(task, "Sigma_w", None)
    if Sigma_w is not None and not np.array_equal(Sigma_w, np.eye(task.d)):
        raise ValueError(
            f"Sigma_w must be the identity here: the theory is for independent, equal weights, got {Sigma_w}"
        )


def shape(name: str, value: Any, expected: tuple[int | None, ...], why: str = "") -> None:
    """Refuse an array whose shape is not `expected` (None matches any size)."""
    wanted = "(" + ", ".join("any" if e is None else str(e) for e in expected) + ")"
    # A tuple of classes: torch.compile does not join them by |.
    if not isinstance(value, (np.ndarray, np.generic, torch.Tensor)):
        raise ValueError(f"{name} must have shape {wanted}{' ' + why if why else ''}, got {shown(value)}")
    actual = tuple(value.shape)
    if len(actual) != len(expected) or any(e is not None and a != e for a, e in zip(actual, expected, strict=True)):
        raise ValueError(f"{name} must have shape {wanted}{' ' + why if why else ''}, got {actual}")


def tensor(name: str, value: Any, axes: int | None = None) -> None:
    """Refuse anything but a tensor with this number of axes."""
    if not isinstance(value, torch.Tensor) or (axes is not None and value.dim() != axes):
        wanted = "a torch.Tensor" if axes is None else f"a torch.Tensor of {axes} axes"
        raise ValueError(f"{name} must be {wanted}, got {value.shape if isinstance(value, torch.Tensor) else value!r}")


def generator(name: str, value: Any) -> torch.Generator:
    """Return `value` if it is a torch.Generator; ValueError otherwise."""
    if not isinstance(value, torch.Generator):
        raise ValueError(f"{name} must be a torch.Generator (see icl.profile.make_generator), got {value!r}")
    return value


def is_readable(value: torch.Tensor, *, waits: bool = False) -> bool:
    """Test whether a check may read a tensor's values: not in vmap or compile, nor, unless it `waits`, on a GPU."""
    if torch.compiler.is_compiling() or not (value.is_cpu or (waits and not value.is_meta)):
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(value)


def gate(name: str, value: torch.Tensor, *, at_most: float) -> None:
    """Refuse a gate with values outside [0, at_most] or not finite, where they may be read."""
    if is_readable(value) and value.numel():
        low, high = torch.aminmax(value.detach())
        if not (low >= 0 and high <= at_most and high < math.inf):
            raise ValueError(f"{name} must lie in [0, {at_most:g}], got values from {low.item():g} to {high.item():g}")


def check_generator(source: Any, dtype: Any) -> None:
    """Refuse a missing generator, and a dtype other than float32 and float64."""
    generator("generator", source)
    precision("dtype", dtype)


def precision(name: str, value: Any) -> torch.dtype:
    """Return `value` if it is torch.float32 or torch.float64; ValueError otherwise."""
    if value not in (torch.float32, torch.float64):
        raise ValueError(f"{name} must be torch.float32 or torch.float64, got {value}")
    return value


def has_query(Z: Any) -> None:
    """Refuse tokens (batch, n + 1, ...) that are no prompt's."""
    if Z.shape[1] < 2:
        raise ValueError(f"Z must hold at least one example and the query, got {Z.shape[1]} token(s)")


def scales(dtype: Any, **deviations: float) -> None:
    """Refuse standard deviations whose squares underflow or overflow in a dtype."""
    least, most = (1e3 * torch.finfo(dtype).tiny) ** 0.5, (1e-3 * torch.finfo(dtype).max) ** 0.5
    for name, value in deviations.items():
        if value and not least <= value <= most:
            raise ValueError(f"{name} must be 0 or from {least:.2g} to {most:.2g} in {dtype}, got {value!r}")


def finite_weights(task: Any, w: torch.Tensor) -> None:
    """Refuse weights that are not finite; the message gives the task's settings."""
    # Tensors on the meta device have no values.
    if not w.is_meta and not bool(torch.isfinite(w).all()):
        settings = {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
        listing = ", ".join(f"{name} = {value}" for name, value in settings.items() if isinstance(value, int | float))
        worst = w[~torch.isfinite(w)][0].item()
        raise ValueError(
            f"weights must be finite in {w.dtype}, got {worst} from a {type(task).__name__} with {listing}"
        )


def dtype(name: str, value: Any, expected: Any, why: str = "") -> None:
    """Refuse an array of another dtype than `expected`."""
    actual = getattr(value, "dtype", value)
    if actual != expected:
        raise ValueError(f"{name} must have dtype {expected}{' ' + why if why else ''}, got {actual!r}")
