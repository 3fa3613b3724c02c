"""Rooms have doors: a package names what is inside it and computes nothing, a public name means one thing in the whole
library, few rooms touch files, and every module has its tests at its own place.
"""

import ast
import collections
import functools
import importlib
import re
from pathlib import Path

import pytest

import icl

ROOT = Path(icl.__file__).parents[1]
PACKAGES = sorted(path.parent for path in ROOT.rglob("__init__.py") if path.parent != ROOT / "icl")
TESTS = Path(__file__).resolve().parents[1]
#: Tests of the house, of the book and of its pages in a browser; all others are about one module.
OF_NO_MODULE = ("gpu", "house", "book", "browser", "course")


@functools.cache
def public(path):
    """Public names that a file defines."""
    names = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                names.append(node.name)
            case ast.Assign():
                names += [target.id for target in node.targets if isinstance(target, ast.Name)]
            case ast.AnnAssign():
                names.append(node.target.id)
    return tuple(name for name in names if not name.startswith("_"))


def inside(package):
    """Modules and packages in a package, by name."""
    files = {path.stem: path for path in package.glob("[!_]*.py")}
    return files | {path.parent.name: path for path in package.glob("*/__init__.py")}


def dotted(package):
    return ".".join(package.relative_to(ROOT).parts)


@pytest.mark.parametrize("package", PACKAGES, ids=dotted)
def test_a_door_names_what_is_inside(package):
    """A package's docstring has a line for each of its modules; what it exports are these, or names in them."""
    door = importlib.import_module(dotted(package))
    rooms = inside(package)
    assert re.findall(r"^- `(\w+)`: \S", door.__doc__, re.M) == sorted(rooms)
    names = {name for path in package.rglob("[!_]*.py") for name in public(path)}
    exported = getattr(door, "__all__", [])
    assert set(exported) - names - set(rooms) == set()
    assert all(hasattr(door, name) for name in exported)


def subject(file):
    """The module that a file of tests is about, by place and name; None if there is none.

    `theory/test_s6.py` is about `theory/s6.py`, `test_files.py` about `_files.py`, and `test_filters_kalman.py`,
    which has one aspect more in its name, about `filters.py`.
    """
    folder = ROOT / file.parent.relative_to(TESTS)
    modules = {path.stem.lstrip("_"): path for path in folder.glob("*.py") if path.name != "__init__.py"}
    name = file.stem.removeprefix("test_")
    fitting = [stem for stem in modules if f"{name}_".startswith(f"{stem}_")]
    return modules[max(fitting, key=len)] if fitting else None


def test_tests_lie_as_the_library_does():
    """Every public module has tests at its own place, and every file of tests there is about a module that exists."""
    files = [path for path in TESTS.rglob("test_*.py") if path.relative_to(TESTS).parts[0] not in OF_NO_MODULE]
    assert [file.relative_to(TESTS).as_posix() for file in files if subject(file) is None] == []
    tested = {subject(file) for file in files if any(name.startswith("test_") for name in public(file))}
    assert {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("[!_]*.py") if path not in tested} == set()


def test_the_quick_tests_are_there():
    """`make quick` names files, which move."""
    named = re.search(r"^QUICK := ((?:.*\\\n)*.*)", (TESTS.parent / "Makefile").read_text(encoding="utf-8"), re.M)[1]
    paths = named.replace("\\\n", " ").split()
    several = [re.fullmatch(r"(.*){(.*)}(.*)", path) for path in paths]
    files = [
        f"{match[1]}{each}{match[3]}" if match else path
        for path, match in zip(paths, several, strict=True)
        for each in (match[2].split(",") if match else [""])
    ]
    assert len(files) > 10
    assert [path for path in files if not (TESTS.parent / path).exists()] == []


def test_the_library_names_its_rooms():
    """The docstring of `icl` names every room."""
    rooms = [name for name in inside(ROOT / "icl")]
    assert len(rooms) >= 8
    for name in rooms:
        assert f"`{name}`" in icl.__doc__


def test_a_public_name_means_one_thing():
    """No public function, class or constant of the library is defined twice, nor has the name of a module.

    Modules of two rooms may share a name, where one has the models or the task and the other their theory. What a
    page alone calls, icl_book/chapters/<part>/<page>.py, may be named as another page's.
    """
    files = [path for path in ROOT.rglob("[!_]*.py") if not path.match("icl_book/chapters/*/*.py")]
    homes = collections.defaultdict(list)
    for path in files:
        for name in public(path):
            homes[name].append(path.relative_to(ROOT).as_posix())
    assert len(homes) > 300
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}
    assert set(homes) & {path.stem for path in files} == set()
    stems = collections.Counter(path.stem for path in files)
    assert {stem for stem, count in stems.items() if count > 1} == {"fast_weights", "s6", "unknown_drift"}


@functools.cache
def calls_of(source):
    """Every dotted call and every import of a module."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name)):
                found.add(name)
            case ast.Call(func=ast.Attribute()):
                found.add(ast.unparse(node.func))
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {f"import {getattr(node, 'module', '')}.{alias.name}" for alias in names}
    return found


IO = ("open", "read_text", "read_bytes", "write_text", "write_bytes", "mkdir", "unlink", "save", "save_file", "to_csv")


def touches_files(source):
    return {call for call in calls_of(source) if call.rsplit(".", 1)[-1] in IO}


def unpickles(source):
    wrong = ("pickle", "joblib", "dill", "shelve", "marshal")
    return {
        call
        for call in calls_of(source)
        if call in ("torch.save", "torch.load", "np.save", "np.load") or any(word in call for word in wrong)
    }


def test_files_are_touched_in_few_rooms_and_nothing_is_unpickled():
    """Of the library's files only those named here read or write files, and none imports pickle
    or calls torch.save, torch.load, np.save or np.load. joblib is there for its processes. Planted lines are found.
    """
    sources = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}
    assert {name for name, source in sources.items() if touches_files(source)} == {
        *("icl/_files.py", "icl/_source.py"),
        *(f"icl_book/{name}.py" for name in ("charts", "claims", "closure", "exercises", "records")),
        *(f"icl_bench/{name}.py" for name in ("imports", "leaderboard", "results", "runner", "training_jobs")),
        *(f"icl/{name}.py" for name in ("experiments/checkpoint", "experiments/grid", "tasks/text")),
        "icl_book/chapters/attention_swap.py",
    }
    processes = {"import .joblib", "joblib.Parallel", "joblib.delayed"}
    expected = {name: set() for name in sources} | {"icl/experiments/grid.py": processes}
    expected["icl_bench/runner.py"] = processes | {"joblib.parallel_config"}
    assert {name: unpickles(source) for name, source in sources.items()} == expected
    for line in (
        "torch.save(x, f)",
        "import pickle",
        "from pickle import loads",
        "torch.load(f)",
        "import a.pickle.b",
        "joblib.load(f)",
    ):
        assert unpickles(line)
    for line in ("open(f)", "path.open('wb')", "Path(f).write_text('')", "table.to_csv(f)"):
        assert touches_files(line)


def test_packages_compute_nothing():
    """Every `__init__.py` holds words, imports and names, and no code: it is a door and not a room.

    The library's own imports `TVPRegression` when it is asked for, and tells type checkers so.
    """
    inits = sorted(ROOT.rglob("__init__.py"))
    assert len(inits) >= 3
    for init in inits:
        for node in ast.parse(init.read_text(encoding="utf-8")).body:
            words = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            names = isinstance(node, ast.Assign) and all(t.id in ("__all__", "__version__") for t in node.targets)
            late = isinstance(node, ast.FunctionDef) and node.name == "__getattr__"
            late |= isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            imports = isinstance(node, ast.Import | ast.ImportFrom) or (late and init.parent == ROOT / "icl")
            assert words or names or imports, f"{init}: line {node.lineno}"
