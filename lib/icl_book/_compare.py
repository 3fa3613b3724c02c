"""Comparison of answers with the right numbers, which no rebinding of numpy's functions changes.

Functions that are called by name were bound when this module was first imported, so import it before code of others
runs, and do not reload it. The rest is operators and methods of arrays: they belong to the type, where nobody can
replace them.
"""

import sys
import types
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_abs, _asarray, _errstate, _float64, _inf = abs, np.asarray, np.errstate, np.float64, float("inf")
#: Floating dtypes of less precision than the right answers have.
_COARSE = frozenset({"float32", "float16", "bfloat16", "complex64"})
#: Packages whose functions judge an answer, or compute the right one; icl itself is compared by its tests.
_JUDGES = frozenset({"builtins", "copy", "hashlib", "math", "numpy", "scipy"})


class NotReal(ValueError):
    """An answer that does not consist of real numbers; the message completes "it ..."."""


def numbers(answer: Any) -> NDArray[np.float64]:
    """Convert an answer to float64: numbers, arrays, tensors (detached), frames, and nested lists of these.

    Raises:
        NotReal: if it is text, or has an imaginary part beyond round-off.
    """
    array = _asarray(_plain(answer))
    entries = array.ravel().tolist() if array.dtype.kind == "O" else []
    if array.dtype.kind in "SUMm" or any(isinstance(entry, str | bytes) for entry in entries):
        raise NotReal("returned text, numbers are wanted" if array.shape else "returned text, a number is wanted")
    if array.dtype.kind == "c":
        if (_abs(array.imag) > 1e-12 * _abs(array)).any():
            raise NotReal("returned complex numbers, whose imaginary part is not 0")
        array = array.real
    return array.astype(_float64)


def _plain(answer: Any) -> Any:
    """Arrays in place of tensors, in lists too."""
    if isinstance(answer, list | tuple):
        return [_plain(entry) for entry in answer]
    if isinstance(answer, torch.Tensor):
        plain = answer.detach().cpu().resolve_conj().resolve_neg()
        return (plain.double() if plain.is_floating_point() else plain).numpy()
    return answer


def coarse_dtype(answer: Any) -> str:
    """Name of the first floating dtype in an answer that is less precise than float64, "" if there is none."""
    if isinstance(answer, list | tuple):
        return next((name for entry in answer if (name := coarse_dtype(entry))), "")
    name = str(getattr(answer, "dtype", "")).removeprefix("torch.")
    return name if name in _COARSE else ""


def differ(
    actual: NDArray[np.float64], right: NDArray[np.float64], rtol: float, atol: float, *, equal_nan: bool = False
) -> NDArray[np.bool_]:
    """Entries in which two arrays of one shape differ by more than atol + rtol * abs(right), as `~numpy.isclose`."""
    with _errstate(all="ignore"):
        gap = _abs(actual - right)
        near = (actual == right) | ((gap < _inf) & (gap <= atol + rtol * _abs(right)))
        if equal_nan:
            near = near | ((actual != actual) & (right != right))
    return _asarray(~near)


def spoiled(right: NDArray[np.float64]) -> NDArray[np.float64]:
    """An answer that is wrong in every number, whatever the tolerance."""
    wrong = [_inf if _abs(number) < _inf else 0.0 for number in right.ravel().tolist()]
    return _asarray(wrong).reshape(right.shape) if wrong else _asarray([0.0])


def _code(value: Any) -> Any:
    """Code of a function written in Python, also of the one that numpy's dispatcher calls."""
    return getattr(getattr(value, "_implementation", value), "__code__", None)


def _bindings() -> dict[tuple[str, str], tuple[Any, Any]]:
    """Functions and classes of `_JUDGES` by module and name, each with its code if it is written in Python."""
    bindings = {}
    for module in sorted(name for name in sys.modules if name.partition(".")[0] in _JUDGES):
        for name, value in list(getattr(sys.modules[module], "__dict__", {}).items()):
            from_page = module != "builtins" or isinstance(
                value, type | types.BuiltinFunctionType
            )  # IPython adds its own
            if callable(value) and from_page:
                bindings[module, name] = value, _code(value)
    return bindings


_BOUND = _bindings()


def rebound() -> str:
    """Dotted name of a function of `_JUDGES` that is not what it was at this module's first import, "" if all are."""
    for (module, name), (value, code) in _BOUND.items():
        if vars(sys.modules.get(module, object)).get(name) is not value or (code and _code(value) is not code):
            return f"{module}.{name}"
    return ""
