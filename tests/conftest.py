"""What every test shares: one thread, shape annotations that are enforced, and a Hypothesis that repeats itself."""

import functools
import os
import subprocess
import sys
import typing
import zipfile
from pathlib import Path
from types import ModuleType

# No progress bars, here and in what tests start; tqdm reads this when it is imported, which torch does.
os.environ["TQDM_DISABLE"] = "1"

import beartype
import hypothesis
import jaxtyping
import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]

# Their asserts say what they compared, as those of tests do.
pytest.register_assert_rewrite("chance", "shared")

# One thread: sums are then added in one order, and parallel test runs do not fight for cores.
torch.set_num_threads(1)

# Modules imported before the hook would go unchecked, and silently.
if early := sorted(name for name in sys.modules if name.split(".")[0] == "icl"):
    raise RuntimeError(f"imported before the hook that checks their annotations: {early}")

# PEP 484's numeric tower, as mypy has it: an int is welcome where an annotation says float.
_checker = ModuleType("icl_checker")
_check = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))


_alike: dict[tuple[object, ...], object] = {}


def _checked(function):
    """Check a signature's annotations; jaxtyping hands them over as a function that has nothing else.

    An inner function is defined anew at each call of the outer one, thousands of times: one check does for all of them.
    """
    if "<locals>" not in function.__qualname__:
        return _check(function)
    names, annotations = function.__code__.co_varnames, tuple(function.__annotations__.items())
    signature = (function.__module__, function.__qualname__, names, annotations)
    if signature not in _alike:
        _alike[signature] = _check(function)
    return _alike[signature]


_checker.check = _checked
sys.modules["icl_checker"] = _checker


def _has_shapes(annotation) -> bool:
    """Whether there is a shape anywhere in an annotation; a string may hold one."""
    if isinstance(annotation, str | typing.ForwardRef):
        return True
    parts = typing.get_args(annotation)
    array = isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray)
    return array or any(map(_has_shapes, parts))


def _jaxtyped(*, typechecker):
    """jaxtyping's decorator where there are shapes to compare.

    All else is beartype's alone: a gradient flow calls its small helpers by the hundred thousand.
    """
    with_shapes = _shapes(typechecker=typechecker)

    def decorate(function):
        inner = "<locals>" in function.__qualname__  # made anew at each call: see `_checked`
        if isinstance(function, type) or inner or any(map(_has_shapes, function.__annotations__.values())):
            return with_shapes(function)
        checked = _check(function)

        @functools.wraps(function)
        def called(*args, **kwargs):
            return (function if jaxtyping.config.jaxtyping_disable else checked)(*args, **kwargs)

        return called

    return decorate


_shapes = jaxtyping.jaxtyped
jaxtyping.jaxtyped = _jaxtyped
# All modules but one: it reads programs, in hundreds of thousands of small calls, and there is no array in it.
_UNCHECKED = {"_identity"}
_modules = {path.stem for path in (ROOT / "lib" / "icl").iterdir() if not path.name.startswith("__")}
jaxtyping.install_import_hook([f"icl.{name}" for name in sorted(_modules - _UNCHECKED)], "icl_checker.check")

import chance  # noqa: E402

if chance.FRESH:
    chance.freshen()


def pytest_report_header():
    """Say under which seeds a failure is seen again."""
    return f"fresh seeds: ICL_FRESH={chance.FRESH}" if chance.FRESH else None


def pytest_collection_modifyitems(config, items):
    """Under fresh seeds run the tests that state what chance does to them; others hold for the numbers they draw."""
    if chance.FRESH:
        statistical = [item for item in items if item.get_closest_marker("statistical")]
        config.hook.pytest_deselected(items=[item for item in items if item not in statistical])
        items[:] = statistical


def pytest_report_collectionfinish(items):
    """Say how often chance fails the run."""
    count, rate = chance.total(items)
    return f"{count} assertions that chance could fail: at most {rate:.1e} a run" if count else None


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
