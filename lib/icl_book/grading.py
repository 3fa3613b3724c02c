"""Graded exercises: cases drawn from a secret seed, calls that are not allowed, and limits of time.


A problem set's tests use it, those that students see and those that they do not. An answer that is wrong, late or not
allowed costs its own points and no others, and the message says why without showing what is right.

What it cannot do: an answer runs in the same process as its tests, so it keeps out what is convenient and not what is
determined. Who attacks the grader itself is found by reading the answer.
"""

import ast
import contextlib
import copy
import ctypes
import functools
import hashlib
import importlib
import inspect
import io
import linecache
import os
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from icl import _checks
from icl._bounds import NonNegative, Positive, validated
from icl_book.exercises import SelfCheck

#: The environment variable that holds the teacher's secret.
SECRET_VARIABLE = "ICL_GRADING_SECRET"
#: The secret of somebody who sets none.
DEFAULT_SECRET = "learning to adapt"
#: With these an answer could fetch by a made-up name what it may not call, or read the tests.
DYNAMIC = frozenset(
    ("eval", "exec", "compile", "__import__", "globals", "vars", "builtins", "importlib", "inspect", "gc", "sys")
) | {"ctypes", "linecache", "pickle", "attrgetter", "methodcaller", "get_ipython", "In", "Out", "grading"}

#: Names with two underscores that lead nowhere.
_PLAIN = frozenset({"__init__", "__call__", "__len__", "__name__", "__doc__", "__version__"})


class Refused(AssertionError):
    """An answer that earns nothing. A notebook shows its message alone, not the test that raised it."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class _Late(BaseException):
    """Raised inside an answer that takes too long; no `except Exception` holds it."""


def seeded(label: str, secret: str | None = None) -> np.random.Generator:
    """A generator for the cases of a hidden test: the same for a class, and another for another class's secret.

    Args:
        label: which test it is.
        secret: the teacher's; by default the environment variable `ICL_GRADING_SECRET`, or what stands for it.
    """
    secret = os.environ.get(SECRET_VARIABLE) or DEFAULT_SECRET if secret is None else secret
    return np.random.default_rng(list(hashlib.sha256(f"{label}|{secret}".encode()).digest()))


def earn(
    attempt: Callable[..., Any],
    cases: Sequence[dict[str, Any]],
    right: Callable[..., Any] | Sequence[Any],
    *,
    not_allowed: Sequence[str] = (),
    seconds: float = 5.0,
    rtol: float = 1e-6,
    atol: float = 1e-9,
) -> None:
    """Do nothing but say so if an attempt is right, and raise Refused otherwise; the arguments are those of `judge`.

    Raises:
        Refused: if the attempt is not right on all cases, takes too long, or uses what is not allowed.
        ValueError: as :func:`judge`.
    """
    outcome = judge(attempt, cases, right, not_allowed=not_allowed, seconds=seconds, rtol=rtol, atol=atol)
    if not outcome.passed:
        raise Refused(outcome.message)
    print(outcome.message)


@validated
def judge(
    attempt: Callable[..., Any],
    cases: Sequence[dict[str, Any]],
    right: Callable[..., Any] | Sequence[Any],
    *,
    not_allowed: Sequence[str] = (),
    seconds: Positive = 5.0,
    rtol: NonNegative = 1e-6,
    atol: NonNegative = 1e-9,
) -> SelfCheck:
    """Compare a student's function with the right answers; whatever it does, this returns in time.

    Args:
        attempt: the student's function, written with `def`.
        cases: arguments to try, dicts.
        right: the right answer of each case, or a function that gives them; it is called before the attempt.
        not_allowed: dotted names of functions and modules that the attempt may not use, as "numpy.linalg.lstsq".
        seconds: time for all cases together.
        rtol: how far from a right number an answer may be, as a part of it.
        atol: how far besides.

    Raises:
        ValueError: if there are no cases, not as many right answers, or a name of `not_allowed` is of nothing.
    """
    if not cases:
        raise ValueError("cases must hold at least one dict of arguments")
    _checks.names("not_allowed", not_allowed)
    if not callable(right):
        _checks.instance("right", right, Sequence)
    name = getattr(attempt, "__name__", "the answer")
    with _quiet():
        answers = [right(**copy.deepcopy(case)) for case in cases] if callable(right) else list(right)
        if len(answers) != len(cases):
            raise ValueError(f"right must hold {len(cases)} answers, one a case, got {len(answers)}")
        if found := breach(attempt, not_allowed):
            return SelfCheck(name, False, found)
        with barred(not_allowed):
            return _judged(name, attempt, cases, answers, seconds, rtol, atol)


def _judged(
    name: str,
    attempt: Callable[..., Any],
    cases: Sequence[dict[str, Any]],
    answers: Sequence[Any],
    seconds: float,
    rtol: float,
    atol: float,
) -> SelfCheck:
    """What an attempt makes of the cases."""
    until = time.monotonic() + seconds
    for number, (case, answer) in enumerate(zip(cases, answers, strict=True), 1):
        told = f"{_told(case)}, case {number} of {len(cases)}"
        try:
            got = _called(attempt, copy.deepcopy(case), until)
            fault = _fault(got, np.asarray(answer, dtype=np.float64), rtol, atol)
        except _Late:
            fault = f"takes longer than the {seconds:g} seconds that all cases may take together"
        except NotImplementedError:
            return SelfCheck(name, False, "not yet: it is not written")
        except Exception as error:
            fault = f"raised {type(error).__name__}: {error}"
        if fault:
            return SelfCheck(name, False, f"not yet: {told}: it {fault}")
    return SelfCheck(name, True, f"right on {len(cases)} cases" if len(cases) > 1 else "right on this case")


def breach(attempt: Callable[..., Any], not_allowed: Sequence[str] = ()) -> str:
    """What an attempt uses that it may not, by its source; empty if nothing.

    Read are the cell in which it is defined, and those of the functions and classes that this one names. Found are a
    name, an import under another name, an attribute, `getattr`, and what another cell had kept under a name of its own.

    Args:
        attempt: the student's function.
        not_allowed: dotted names of functions and modules, as those of :func:`judge`.

    Raises:
        ValueError: if one of them is the name of nothing.
    """
    _checks.names("not_allowed", not_allowed)
    targets = _targets(not_allowed)
    if not isinstance(attempt, types.FunctionType):
        return "not yet: the answer must be a function written with def"
    files, waiting = set[str](), [attempt]
    while waiting:
        function = waiting.pop()
        file = function.__code__.co_filename
        if file in files:
            continue
        files.add(file)
        try:
            tree = ast.parse("".join(linecache.getlines(file)))
        except SyntaxError:
            tree = ast.Module([], [])
        if not tree.body:
            return "the answer's code cannot be read; it must stand in a cell of the notebook"
        bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        bound |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        for node in ast.walk(tree):
            if found := _used(node, targets, bound, function.__globals__):
                return f"line {getattr(node, 'lineno', '?')} of the answer uses {found}"
            if isinstance(node, ast.Name) and node.id in function.__globals__:
                waiting += _own(function.__globals__[node.id], function.__globals__)
    return ""


@contextlib.contextmanager
def barred(not_allowed: Sequence[str] = ()) -> Iterator[None]:
    """While it is open, calls of these functions, and of all functions of these modules, raise PermissionError.

    A function keeps its identity and loses its code, so that it is barred by whatever name it was kept. What has no
    code in Python is replaced wherever a module names it.

    Args:
        not_allowed: dotted names of functions and modules, as those of :func:`judge`.

    Raises:
        ValueError: if one of them is the name of nothing.
    """
    codes, places = [], []
    for dotted, target in _targets(not_allowed).items():
        for name, function in _functions(dotted, target):
            plain = getattr(function, "_implementation", None) or inspect.unwrap(function)
            if isinstance(plain, types.FunctionType):
                codes.append((plain, plain.__code__, _refusing(name, plain.__code__)))
            else:
                stand_in = types.FunctionType(_refusing(name), {})
                for module in list(sys.modules.values()):
                    found = [key for key, value in list(getattr(module, "__dict__", {}).items()) if value is function]
                    places += [(module, key, function, stand_in) for key in found]
    try:
        for plain, _, refusing in codes:
            plain.__code__ = refusing
        for module, key, _, stand_in in places:
            setattr(module, key, stand_in)
        yield
    finally:
        for plain, code, _ in codes:
            plain.__code__ = code
        for module, key, function, _ in places:
            setattr(module, key, function)


def _targets(names: Sequence[str]) -> dict[str, Any]:
    """What dotted names stand for."""
    found = {}
    for dotted in names:
        head, _, last = dotted.rpartition(".")
        try:
            try:
                found[dotted] = importlib.import_module(dotted)
            except ImportError:
                found[dotted] = getattr(importlib.import_module(head), last)
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            raise ValueError(f"not_allowed must name functions and modules, got {dotted!r}") from error
    return found


def _functions(dotted: str, target: Any) -> Iterator[tuple[str, Any]]:
    """A function with its name; of a module all that it and the modules inside it define."""
    if not isinstance(target, types.ModuleType):
        yield dotted, target
        return
    below = f"{dotted}."
    inside = [name for name in list(sys.modules) if name == dotted or name.startswith(below)]
    for module in inside:
        for name, thing in list(vars(sys.modules[module]).items()):
            if getattr(thing, "__module__", None) != module or name.startswith("__"):
                continue
            if inspect.isclass(thing):
                made = vars(thing).get("__init__")
                if isinstance(made, types.FunctionType):
                    yield f"{module}.{name}", made
            elif callable(thing) and hasattr(thing, "__code__"):
                yield f"{module}.{name}", thing


#: A function that refuses; it says SAID.
_REFUSE = next(
    constant
    for constant in compile("def refuse(*a, **k):\n    raise PermissionError('SAID')", "<barred>", "exec").co_consts
    if isinstance(constant, types.CodeType)
)


def _refusing(name: str, code: types.CodeType | None = None) -> types.CodeType:
    """The code of a function that refuses, to stand in for another code."""
    said = f"{name} is not allowed in this exercise"
    constants = tuple(said if constant == "SAID" else constant for constant in _REFUSE.co_consts)
    return _REFUSE.replace(co_consts=constants, co_freevars=code.co_freevars if code is not None else ())


def _belongs(thing: Any, targets: dict[str, Any]) -> str:
    """The name under which something is not allowed; empty if it is."""
    home = thing.__name__ if isinstance(thing, types.ModuleType) else getattr(thing, "__module__", None) or ""
    for dotted, target in targets.items():
        if thing is target:
            return dotted
        if isinstance(target, types.ModuleType) and (home == dotted or str(home).startswith(f"{dotted}.")):
            return dotted
    return ""


def _used(node: ast.AST, targets: dict[str, Any], bound: set[str], names: dict[str, Any]) -> str:
    """What one node of an answer uses that it may not, in words; empty if nothing."""
    last = {dotted.rpartition(".")[2]: dotted for dotted in targets}
    not_allowed = "{}, which this exercise does not allow"
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            if name in DYNAMIC and name not in bound:
                return f"{name}, which no answer may"
            if name.startswith("_") and name not in bound | _PLAIN:
                return f"{name}, which it does not define"
            if name in names and name not in bound and (found := _belongs(names[name], targets)):
                return not_allowed.format(found)
        case ast.Attribute(attr=name):
            if (name.startswith("__") and name not in _PLAIN) or name in DYNAMIC - {"compile", "eval"}:
                return f"{name}, which no answer may"
            if name in last:
                return not_allowed.format(last[name])
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            module = getattr(node, "module", None) or ""
            for alias in aliases:
                whole = f"{module}.{alias.name}".strip(".")
                if alias.name == "*":
                    return "a star import: import what is needed by name"
                if whole.partition(".")[0] in DYNAMIC or alias.name in DYNAMIC:
                    return f"{whole}, which no answer may"
                if module and alias.name in last:
                    return not_allowed.format(last[alias.name])
                for dotted in targets:
                    if whole == dotted or whole.startswith(f"{dotted}."):
                        return not_allowed.format(dotted)
        case ast.Call(func=ast.Name(id="getattr" | "setattr"), args=[_, second, *_]):
            if not (isinstance(second, ast.Constant) and isinstance(second.value, str)):
                return "getattr or setattr with a name that is not written out"
            return _used(ast.Attribute(ast.Name("_"), second.value), targets, bound, names)
        case ast.Name(id="getattr" | "setattr"):
            return ""  # seen where it is called; by another name it is not allowed, below
        case ast.Assign(value=ast.Name(id="getattr" | "setattr" as name)):
            return f"{name} under another name"
    return ""


def _own(thing: Any, names: dict[str, Any]) -> list[types.FunctionType]:
    """The functions of a student's own function or class."""
    if isinstance(thing, functools.partial):
        thing = thing.func
    if isinstance(thing, types.FunctionType):
        return [thing] if thing.__globals__ is names else []
    inside = vars(thing).values() if inspect.isclass(thing) else ()
    return [member for member in inside if isinstance(member, types.FunctionType) and member.__globals__ is names]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Warnings and what an answer prints stay with it: nbgrader takes a word on stderr for a failure."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield


def _called(attempt: Callable[..., Any], case: dict[str, Any], until: float) -> Any:
    """What an attempt returns, or raises; _Late if it has not by then.

    It runs in a thread of its own, which is told to stop and, if it does not listen, left behind.
    """
    box: dict[str, Any] = {}

    def run() -> None:
        try:
            box["got"] = attempt(**case)
        except BaseException as error:
            box["error"] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(max(0.0, until - time.monotonic()))
    if thread.is_alive():
        for _ in range(10):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_Late))
            thread.join(0.05)
            if not thread.is_alive():
                break
        raise _Late
    if isinstance(error := box.get("error"), Exception):
        raise error
    if "error" in box:
        raise RuntimeError(f"{type(box['error']).__name__} instead of an answer")
    return box["got"]


def _fault(got: Any, right: np.ndarray, rtol: float, atol: float) -> str:
    """What is wrong with an answer, without the right one; empty if nothing."""
    if got is None:
        return "returned nothing"
    actual = np.asarray(got, dtype=np.float64)
    if actual.shape != right.shape:
        told = [f"shape {shape}" if shape else "a number" for shape in (actual.shape, right.shape)]
        return f"returned {told[0]}, {told[1]} is wanted"
    if np.allclose(actual, right, rtol=rtol, atol=atol, equal_nan=True):
        return ""
    wrong = ~np.isclose(actual, right, rtol=rtol, atol=atol, equal_nan=True)
    if not actual.ndim:
        return "is wrong: another number is right" if np.isfinite(actual) or not np.isfinite(right) else "is not finite"
    first = tuple(int(index) for index in np.argwhere(wrong)[0])
    return f"is wrong in {int(wrong.sum())} of {wrong.size} numbers, first at {first if len(first) > 1 else first[0]}"


def _told(case: dict[str, Any]) -> str:
    """A case in the exercise's own letters; of what is too large to print, its shape."""
    parts = []
    for key, value in case.items():
        shape = np.shape(value) if not callable(value) else ()
        parts.append(f"{key} of shape {tuple(shape)}" if shape else f"{key}={value:.6g}" if _real(value) else key)
    return f"with {', '.join(parts)}" if parts else "without arguments"


def _real(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
