"""What every test shares: one thread, shape annotations that are enforced, and a Hypothesis that repeats itself."""

import dataclasses
import functools
import gc
import random
import subprocess
import sys
import typing
import zipfile
from collections.abc import Collection
from pathlib import Path
from types import FunctionType, ModuleType

import beartype
import beartype._check.code.codemain as beartype_code
import hypothesis
import jaxtyping
import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("icl", "icl_bench", "icl_book")

# What importing and collecting make is there until the end: it is not looked through for garbage again and again.
gc.disable()

# One thread: sums are then added in one order, and parallel test runs do not fight for cores.
torch.set_num_threads(1)

# Which item of a list beartype looks at is drawn: not from `random`, which no strategy of Hypothesis may touch.
beartype_code.getrandbits = random.Random(0).getrandbits

# Modules imported before the hook would go unchecked, and silently.
if early := sorted(name for name in sys.modules if name.split(".")[0] in PACKAGES):
    raise RuntimeError(f"imported before the hook that checks their annotations: {early}")

# PEP 484's numeric tower, as mypy has it: an int is welcome where an annotation says float.
_checker = ModuleType("icl_checker")
_checker.check = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))
sys.modules["icl_checker"] = _checker


class _AnyKind(Exception):
    """A collection whose items an annotation may look at, and `_kind` does not."""


def _kind(value):
    """All that an annotation can see of a value."""
    kind = type(value)
    if kind is torch.Tensor or kind is np.ndarray or kind is torch.nn.Parameter:
        return kind, value.dtype, tuple(value.shape)
    if kind is tuple or kind is list:
        return kind, *map(_kind, value)
    if kind is dict:
        return kind, *((key, _kind(each)) for key, each in value.items())
    if kind in (str, bool, range) or isinstance(value, type):
        return kind, value
    if issubclass(kind, Collection):
        raise _AnyKind
    return kind


class _Checked:
    """What checks the annotations of one signature, and {kinds of arguments: kinds of results} that it let pass.

    An inner function is defined anew at each call of the outer one, thousands of times: one of these does for all.
    """

    def __init__(self, function, typechecker):
        self.passed = {}
        self.calls = calls = []  # what is to be called between the checks of the arguments and of the result

        @functools.wraps(function)
        def call(*args, **kwargs):
            return calls.pop()()

        # Annotations that are strings are read where the function stands.
        call_there = FunctionType(call.__code__, function.__globals__, call.__name__, None, call.__closure__)
        self.check = _shapes(functools.update_wrapper(call_there, function), typechecker=typechecker)

    def __call__(self, call, args, kwargs):
        """The result of a call, both checked."""
        depth = len(self.calls)
        self.calls.append(call)
        try:
            return self.check(*args, **kwargs)
        finally:
            del self.calls[depth:]  # arguments that were refused leave it there


_signatures: dict[tuple[object, ...], _Checked] = {}


def _remembering(function, typechecker):
    """A function with its annotations checked, once for arguments and results of the same kinds.

    To check binds arguments, remembers dimensions and looks at each array twice, and a filter's step is called by the
    hundred thousand.
    """
    names, annotations = function.__code__.co_varnames, tuple(function.__annotations__.items())
    signature = (function.__module__, function.__qualname__, names, annotations)

    @functools.wraps(function)
    def called(*args, **kwargs):
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        if signature not in _signatures:
            _signatures[signature] = _Checked(function, typechecker)
        checked = _signatures[signature]
        try:
            given = _kind(args), _kind(kwargs)
        except _AnyKind:
            return checked(functools.partial(function, *args, **kwargs), args, kwargs)
        if given not in checked.passed:
            result = checked(functools.partial(function, *args, **kwargs), args, kwargs)
            checked.passed[given] = set()
        else:
            result = function(*args, **kwargs)
        try:
            found = _kind(result)
        except _AnyKind:
            return checked(lambda: result, args, kwargs)
        if found not in checked.passed[given]:
            checked(lambda: result, args, kwargs)
            checked.passed[given].add(found)
        return result

    return called


def _has_shapes(annotation) -> bool:
    """Whether there is a shape anywhere in an annotation; a string may hold one."""
    if isinstance(annotation, str | typing.ForwardRef):
        return True
    parts = typing.get_args(annotation)
    array = isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray)
    return array or any(map(_has_shapes, parts))


def _jaxtyped(*, typechecker):
    """jaxtyping's decorator where there are shapes to compare, with a memory.

    All else is beartype's alone: a gradient flow calls its small helpers by the hundred thousand.
    """

    def decorate(function):
        if isinstance(function, type):
            if dataclasses.is_dataclass(function) and "__init__" in vars(function):
                function.__init__ = _remembering(function.__init__, typechecker)
            return function
        inner = "<locals>" in function.__qualname__  # made anew at each call: see `_Checked`
        if inner or any(map(_has_shapes, function.__annotations__.values())):
            return _remembering(function, typechecker)
        checked = typechecker(function)

        @functools.wraps(function)
        def called(*args, **kwargs):
            return (function if jaxtyping.config.jaxtyping_disable else checked)(*args, **kwargs)

        return called

    return decorate


_shapes = jaxtyping.jaxtyped
jaxtyping.jaxtyped = _jaxtyped
_modules = {path.stem for path in (ROOT / "lib" / "icl").iterdir() if not path.name.startswith("__")}
_checked = [*(f"icl.{name}" for name in sorted(_modules)), "icl_bench", "icl_book"]
jaxtyping.install_import_hook(_checked, "icl_checker.check")

import chance  # noqa: E402

if chance.FRESH:
    chance.freshen()


def pytest_collection_modifyitems(config, items):
    """Under fresh seeds run the tests that state what chance does to them; others hold for the numbers they draw."""
    if chance.FRESH:
        statistical = [item for item in items if item.get_closest_marker("statistical")]
        config.hook.pytest_deselected(items=[item for item in items if item not in statistical])
        items[:] = statistical


def pytest_report_collectionfinish(items):
    """Say how often chance fails the run."""
    count, rate = chance.total(items)
    of_one = sum(1 for item in items if item.get_closest_marker("one_draw"))
    said = [f"{count} assertions that chance could fail: at most {rate:.1e} a run"] if count else []
    return said + ([f"{of_one} tests that hold for what they draw, outside of this sum"] if of_one else [])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Hold a test to the number of statistical assertions that it states."""
    chance.made.clear()
    result = yield
    marker = item.get_closest_marker("statistical")
    stated = chance.assertions(marker) if marker else 0
    if len(chance.made) > stated:
        raise AssertionError(f"{item.name} makes {len(chance.made)} statistical assertions and states {stated}")
    return result


# The same examples on every machine and in every run; and a busy machine is not a failure.
hypothesis.settings.register_profile("icl", derandomize=True, deadline=None, database=None, max_examples=50)
hypothesis.settings.load_profile("icl")


def pytest_collection_finish():
    """From here on there is garbage to collect, of what the tests make.

    Seldom: a chapter is read as a tree of ten thousand nodes, none of which is garbage before a test has ended.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


@pytest.fixture
def as_installed():
    """The library as a reader runs it: the annotations are not checked.

    So its own checks have to speak; and thousands of small steps, whose shapes other tests check, cost what they cost.
    """
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def installed(tmp_path_factory) -> Path:
    """The package as a reader installs it: its wheel, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"
