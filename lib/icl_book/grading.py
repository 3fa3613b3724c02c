"""Graded exercises: test cases from a secret seed, forbidden calls, time limits.

Used by a problem set's visible and hidden tests. An answer that is wrong, too slow or not allowed costs only its own
points, and the message says why without revealing the right answer.

Limitation: an answer runs in the same process as its tests, so this stops convenient shortcuts but not a determined
attacker. No marks are given once a function that judges was replaced (`icl_book._compare`), if a cell of the
notebook assigns to a module, or if a known wrong answer passes. Other attacks on the grader are found by reading the
notebook, added cells too.
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
from numpy.typing import NDArray

from icl import _checks
from icl._bounds import NonNegative, Positive, validated
from icl_book._compare import NotReal, differ, numbers, rebound, spoiled
from icl_book.exercises import SelfCheck

#: Environment variable with the teacher's secret.
SECRET_VARIABLE = "ICL_GRADING_SECRET"
#: Default secret.
DEFAULT_SECRET = "learning to adapt"
#: Builtins through which an answer could look up a forbidden function dynamically, or read the tests.
DYNAMIC = frozenset(
    ("eval", "exec", "compile", "__import__", "globals", "vars", "builtins", "importlib", "inspect", "gc", "sys")
) | {"ctypes", "linecache", "pickle", "attrgetter", "methodcaller", "get_ipython", "In", "Out", "grading"}
#: Attributes that lead from a generator, a traceback or a frame to the tests.
_FRAMES = frozenset(("gi_frame", "cr_frame", "ag_frame", "tb_frame", "f_back", "f_globals", "f_locals", "f_builtins"))

#: Harmless dunder names.
_PLAIN = frozenset({"__init__", "__call__", "__len__", "__name__", "__doc__", "__version__"})


class Refused(AssertionError):
    """Answer without points. A notebook shows the message alone, not the traceback."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class _Late(BaseException):
    """Timeout raised inside an answer; not caught by `except Exception`."""


@validated
def seeded(label: str, secret: str | None = None) -> np.random.Generator:
    """Random generator for a hidden test's cases, seeded by its label and the class's secret.

    Args:
        label: of the test.
        secret: the teacher's; by default the environment variable `ICL_GRADING_SECRET`, or a public default.
    """
    secret = os.environ.get(SECRET_VARIABLE) or DEFAULT_SECRET if secret is None else secret
    return np.random.default_rng(list(hashlib.sha256(f"{label}|{secret}".encode()).digest()))


@validated
def earn(
    attempt: Callable[..., Any],
    cases: Sequence[dict[str, Any]],
    right: Callable[..., Any] | Sequence[Any],
    *,
    not_allowed: Sequence[str] = (),
    seconds: Positive = 5.0,
    rtol: NonNegative = 1e-6,
    atol: NonNegative = 1e-9,
) -> None:
    """Print a confirmation if an attempt is right, and raise Refused otherwise; arguments as for `judge`.

    Raises:
        Refused: if the attempt is not right on all cases, takes too long, or uses a forbidden name.
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
    """Compare a student's function with the right answers, within a time limit.

    Nothing passes while the judge can be doubted: if functions of numpy and the like were replaced, or if answers known
    to be wrong pass, before or after the student's function runs.

    Args:
        attempt: the student's function, written with `def`.
        cases: keyword arguments of the calls, dicts.
        right: the right answer of every case, or a reference function; it is called before the attempt.
        not_allowed: dotted names of forbidden functions and modules, as "numpy.linalg.lstsq".
        seconds: time limit for all cases together.
        rtol: relative tolerance.
        atol: absolute tolerance.

    Raises:
        ValueError: if there are no cases, not as many right answers, or a name of `not_allowed` does not exist.
    """
    if not cases:
        raise ValueError("cases must hold at least one dict of arguments")
    _checks.names("not_allowed", not_allowed)
    if not callable(right):
        _checks.instance("right", right, Sequence)
    name = getattr(attempt, "__name__", "the answer")
    with _quiet():
        if replaced := rebound():
            return SelfCheck(name, False, _REPLACED.format(replaced))
        answers = [right(**copy.deepcopy(case)) for case in cases] if callable(right) else list(right)
        if len(answers) != len(cases):
            raise ValueError(f"right must hold {len(cases)} answers, one a case, got {len(answers)}")
        answers = [numbers(answer) for answer in answers]
        reason = breach(attempt, not_allowed) or _doubt(cases, answers, rtol, atol)
        if reason:
            return SelfCheck(name, False, reason)
        with barred(not_allowed):
            outcome = _run_cases(name, attempt, cases, answers, seconds, rtol, atol)
        if outcome.passed and (reason := _doubt(cases, answers, rtol, atol)):
            return SelfCheck(name, False, reason)
        return outcome


_REPLACED = "no marks: {} was replaced, and judges nothing any more; take the line out, restart and run all cells"


def _doubt(cases: Sequence[dict[str, Any]], answers: Sequence[NDArray[np.float64]], rtol: float, atol: float) -> str:
    """Reason not to trust the judge; empty if its functions are as they were, and answers known to be wrong fail."""
    if replaced := rebound():
        return _REPLACED.format(replaced)
    wrong = map(spoiled, answers)
    canary = _run_cases("canary", lambda **case: next(wrong), cases, answers, 60.0, rtol, atol)
    return "no marks: an answer known to be wrong passes, so the grader was changed" if canary.passed else ""


def _run_cases(
    name: str,
    attempt: Callable[..., Any],
    cases: Sequence[dict[str, Any]],
    answers: Sequence[NDArray[np.float64]],
    seconds: float,
    rtol: float,
    atol: float,
) -> SelfCheck:
    """Run an attempt on all cases and compare."""
    until = time.monotonic() + seconds
    for number, (case, answer) in enumerate(zip(cases, answers, strict=True), 1):
        which = f"{_describe_case(case)}, case {number} of {len(cases)}"
        try:
            got = _call_with_deadline(attempt, copy.deepcopy(case), until)
            fault = _fault(got, answer, rtol, atol)
        except _Late:
            fault = f"takes longer than the {seconds:g} seconds that all cases may take together"
        except NotImplementedError:
            return SelfCheck(name, False, "not yet: it is not written")
        except Exception as error:
            fault = f"raised {type(error).__name__}: {error}"
        if fault:
            return SelfCheck(name, False, f"not yet: {which}: it {fault}")
    return SelfCheck(name, True, f"right on {len(cases)} cases" if len(cases) > 1 else "right on this case")


@validated
def breach(attempt: Callable[..., Any], not_allowed: Sequence[str] = ()) -> str:
    """Static check of an attempt's source for forbidden names: a description of the first, empty if none.

    It reads the cell of the definition and those of the functions and classes that it names. It finds names, aliased
    imports, attributes, `getattr`, and aliases assigned in other cells. In all cells of the notebook, added ones too,
    it finds assignments to what was imported, and patching by `unittest.mock`.

    Args:
        attempt: the student's function.
        not_allowed: dotted names of functions and modules, as those of :func:`judge`.

    Raises:
        ValueError: if one of them does not exist.
    """
    _checks.names("not_allowed", not_allowed)
    targets = _targets(not_allowed)
    if not isinstance(attempt, types.FunctionType):
        return "not yet: the answer must be a function written with def"
    if replaced := _replacement(attempt.__globals__.get("In", ())):
        return f"a cell of the notebook has {replaced}, and no cell may replace a part of what it imports"
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
            if use := _forbidden_use(node, targets, bound, function.__globals__):
                return f"line {getattr(node, 'lineno', '?')} of the answer uses {use}"
            if isinstance(node, ast.Name) and node.id in function.__globals__:
                waiting += _own_functions(function.__globals__[node.id], function.__globals__)
    return ""


def _replacement(cells: Sequence[str]) -> str:
    """Code in a notebook's cells, as IPython keeps them, that replaces an attribute of something imported; else ""."""
    nodes: list[ast.AST] = []
    for cell in cells:
        with contextlib.suppress(SyntaxError):  # such a cell did not run
            nodes += ast.walk(ast.parse(cell))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {(alias.asname or alias.name).partition(".")[0] for node in imports for alias in node.names}
    for node in nodes:
        match node:
            case ast.Attribute(ctx=ast.Store() | ast.Del()) if _root(node) in names:
                return f"{ast.unparse(node)} = ..."
            case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[thing, *_]) if _root(thing) in names:
                return ast.unparse(node)
            case ast.Import() | ast.ImportFrom() if "mock" in ast.unparse(node).replace(".", " ").split():
                return ast.unparse(node)
    return ""


def _root(node: ast.AST) -> str:
    """Name that a chain of attributes begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


@contextlib.contextmanager
@validated
def barred(not_allowed: Sequence[str] = ()) -> Iterator[None]:
    """Context in which calls of these functions, and of all functions of these modules, raise PermissionError.

    A function keeps its identity but gets other code, so that it is barred under any alias. A function that is not
    written in Python is replaced wherever a module names it.

    Args:
        not_allowed: dotted names of functions and modules, as those of :func:`judge`.

    Raises:
        ValueError: if one of them does not exist.
    """
    codes, places = [], []
    for dotted, target in _targets(not_allowed).items():
        for name, function in _functions(dotted, target):
            plain = getattr(function, "_implementation", None) or inspect.unwrap(function)
            if isinstance(plain, types.FunctionType):
                codes.append((plain, plain.__code__, _raising_code(name, plain.__code__)))
            else:
                stand_in = types.FunctionType(_raising_code(name), {})
                for module in list(sys.modules.values()):
                    keys = [key for key, value in list(getattr(module, "__dict__", {}).items()) if value is function]
                    places += [(module, key, function, stand_in) for key in keys]
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
    """Resolve dotted names to objects."""
    targets = {}
    for dotted in names:
        head, _, last = dotted.rpartition(".")
        try:
            try:
                targets[dotted] = importlib.import_module(dotted)
            except ImportError:
                targets[dotted] = getattr(importlib.import_module(head), last)
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            raise ValueError(f"not_allowed must name functions and modules, got {dotted!r}") from error
    return targets


def _functions(dotted: str, target: Any) -> Iterator[tuple[str, Any]]:
    """A function with its name; for a module, all functions that it and its submodules define."""
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
                initialiser = vars(thing).get("__init__")
                if isinstance(initialiser, types.FunctionType):
                    yield f"{module}.{name}", initialiser
            elif callable(thing) and hasattr(thing, "__code__"):
                yield f"{module}.{name}", thing


#: Source of a function that raises; SAID is its message.
_REFUSE = next(
    constant
    for constant in compile("def refuse(*a, **k):\n    raise PermissionError('SAID')", "<barred>", "exec").co_consts
    if isinstance(constant, types.CodeType)
)


def _raising_code(name: str, code: types.CodeType | None = None) -> types.CodeType:
    """Code object of a function that raises, to replace another's code."""
    message = f"{name} is not allowed in this exercise"
    constants = tuple(message if constant == "SAID" else constant for constant in _REFUSE.co_consts)
    return _REFUSE.replace(co_consts=constants, co_freevars=code.co_freevars if code is not None else ())


def _forbidden_name(thing: Any, targets: dict[str, Any]) -> str:
    """Forbidden name of an object; empty if it is allowed."""
    home = thing.__name__ if isinstance(thing, types.ModuleType) else getattr(thing, "__module__", None) or ""
    for dotted, target in targets.items():
        if thing is target:
            return dotted
        if isinstance(target, types.ModuleType) and (home == dotted or str(home).startswith(f"{dotted}.")):
            return dotted
    return ""


def _forbidden_use(node: ast.AST, targets: dict[str, Any], bound: set[str], names: dict[str, Any]) -> str:
    """Description of a forbidden use in one syntax node; empty if none."""
    last = {dotted.rpartition(".")[2]: dotted for dotted in targets}
    not_allowed = "{}, which this exercise does not allow"
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            if name in DYNAMIC and name not in bound:
                return f"{name}, which no answer may"
            if name.startswith("_") and name not in bound | _PLAIN:
                return f"{name}, which it does not define"
            if name in names and name not in bound and (forbidden := _forbidden_name(names[name], targets)):
                return not_allowed.format(forbidden)
        case ast.Attribute(attr=name):
            if (name.startswith("__") and name not in _PLAIN) or name in (DYNAMIC | _FRAMES) - {"compile", "eval"}:
                return f"{name}, which no answer may"
            if name in last:
                return not_allowed.format(last[name])
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            module = getattr(node, "module", None) or ""
            for alias in aliases:
                full_name = f"{module}.{alias.name}".strip(".")
                if alias.name == "*":
                    return "a star import: import what is needed by name"
                if full_name.partition(".")[0] in DYNAMIC or alias.name in DYNAMIC:
                    return f"{full_name}, which no answer may"
                if module and alias.name in last:
                    return not_allowed.format(last[alias.name])
                for dotted in targets:
                    if full_name == dotted or full_name.startswith(f"{dotted}."):
                        return not_allowed.format(dotted)
        case ast.Call(func=ast.Name(id="getattr" | "setattr"), args=[_, second, *_]):
            if not (isinstance(second, ast.Constant) and isinstance(second.value, str)):
                return "getattr or setattr with a name that is not written out"
            return _forbidden_use(ast.Attribute(ast.Name("_"), second.value), targets, bound, names)
        case ast.Name(id="getattr" | "setattr"):
            return ""  # checked at the call; an alias is forbidden, below
        case ast.Assign(value=ast.Name(id="getattr" | "setattr" as name)):
            return f"{name} under another name"
    return ""


def _own_functions(thing: Any, names: dict[str, Any]) -> list[types.FunctionType]:
    """Python functions of a student's function or class."""
    if isinstance(thing, functools.partial):
        thing = thing.func
    if isinstance(thing, types.FunctionType):
        return [thing] if thing.__globals__ is names else []
    inside = vars(thing).values() if inspect.isclass(thing) else ()
    return [member for member in inside if isinstance(member, types.FunctionType) and member.__globals__ is names]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress warnings and output of an answer: nbgrader counts text on stderr as a failure."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield


def _call_with_deadline(attempt: Callable[..., Any], case: dict[str, Any], until: float) -> Any:
    """Call an attempt and return its result, or raise its exception; _Late after the deadline.

    It runs in a separate thread, which is interrupted and, if that fails, abandoned.
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


def _fault(got: Any, right: NDArray[np.float64], rtol: float, atol: float) -> str:
    """Describe an error without revealing the right answer; empty if correct."""
    if got is None:
        return "returned nothing"
    try:
        actual = numbers(got)
    except NotReal as error:
        return str(error)
    if actual.shape != right.shape:
        shapes = [f"shape {shape}" if shape else "a number" for shape in (actual.shape, right.shape)]
        return f"returned {shapes[0]}, {shapes[1]} is wanted"
    wrong = differ(actual, right, rtol, atol, equal_nan=True)
    if not wrong.any():
        return ""
    if not actual.ndim:
        return "is wrong: another number is right" if np.isfinite(actual) or not np.isfinite(right) else "is not finite"
    first = tuple(int(index) for index in np.argwhere(wrong)[0])
    return f"is wrong in {int(wrong.sum())} of {wrong.size} numbers, first at {first if len(first) > 1 else first[0]}"


def _describe_case(case: dict[str, Any]) -> str:
    """Format a case in the exercise's notation; large arrays by shape."""
    parts = []
    for key, value in case.items():
        shape = np.shape(value) if not callable(value) else ()
        parts.append(f"{key} of shape {tuple(shape)}" if shape else f"{key}={value:.6g}" if _real(value) else key)
    return f"with {', '.join(parts)}" if parts else "without arguments"


def _real(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
