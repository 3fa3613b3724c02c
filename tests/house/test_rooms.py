"""Rooms have doors: a package names what is inside it, and a public name means one thing in the whole library."""

import ast
import collections
import importlib
import re
from pathlib import Path

import pytest

import icl

ROOT = Path(icl.__file__).parent
PACKAGES = sorted(path.parent for path in ROOT.rglob("__init__.py") if path.parent != ROOT)


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
    return [name for name in names if not name.startswith("_")]


def inside(package):
    """Modules and packages in a package, by name."""
    files = {path.stem: path for path in package.glob("[!_]*.py")}
    return files | {path.parent.name: path for path in package.glob("*/__init__.py")}


def dotted(package):
    return ".".join(("icl", *package.relative_to(ROOT).parts))


@pytest.mark.parametrize("package", PACKAGES, ids=dotted)
def test_a_door_names_what_is_inside(package):
    """A package's docstring has a line for each of its modules, and it exports them and every public name in them."""
    door = importlib.import_module(dotted(package))
    rooms = inside(package)
    assert re.findall(r"^- `(\w+)`: \S", door.__doc__, re.M) == sorted(rooms)
    names = [name for name, path in rooms.items() if path.name != "__init__.py" for name in public(path)]
    assert sorted(door.__all__) == sorted([*rooms, *names])
    assert all(hasattr(door, name) for name in door.__all__)


def test_the_library_names_its_rooms():
    """The docstring of `icl` names every room."""
    rooms = [name for name in inside(ROOT)]
    assert len(rooms) >= 8
    for name in rooms:
        assert f"`{name}`" in icl.__doc__


def test_a_public_name_means_one_thing():
    """No public function, class or constant of the library is defined twice, nor has the name of a module.

    Modules of two rooms may share a name, where one has the models and the other their theory: `one_layer` and `s6`.
    """
    files = [path for path in ROOT.rglob("[!_]*.py")]
    homes = collections.defaultdict(list)
    for path in files:
        for name in public(path):
            homes[name].append(path.relative_to(ROOT).as_posix())
    assert len(homes) > 300
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}
    assert set(homes) & {path.stem for path in files} == set()
    stems = collections.Counter(path.stem for path in files)
    assert {stem for stem, count in stems.items() if count > 1} == {"one_layer", "s6"}
