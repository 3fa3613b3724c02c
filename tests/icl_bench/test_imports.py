"""What is brought along is found by file and by module, hashed with what lies beside it, or refused with the reason."""

import sys
from pathlib import Path

import pytest
import torch

from icl_bench import imports
from icl_bench.imports import load, nearest, package_root, source_hash

pytestmark = pytest.mark.usefixtures("as_installed")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a file, what it imports, a package, and files that cannot be imported; one is in it."""
    files = {
        "mine.py": "import beside\nclass Layer:\n    class Inner:\n        pass\nvalue = beside.value\n",
        "beside.py": "value = 1\n",
        "torch.py": "class Own:\n    pass\n",
        "lacks.py": "import no_such_package\n",
        "wrong.py": "def f(:\n",
        "fails.py": "x = 1\ny = x / 0\n",
        "kit/__init__.py": "",
        "kit/core.py": "from .parts import Part\nclass Kit(Part):\n    pass\n",
        "kit/parts.py": "class Part:\n    size = 1\n",
        "bare/inner.py": "x = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]
    imports._loaded.clear()


def test_a_file_a_module_and_a_part_of_a_class_are_found(folder):
    """By a path from here, a whole path, and a module's name; a file called torch.py leaves torch as it was."""
    found, file = load("mine.py:Layer")
    assert (found.__name__, file) == ("Layer", folder / "mine.py")
    assert load(f"{folder}/mine.py:Layer")[0] is found
    assert load("mine:Layer.Inner")[0].__qualname__ == "Layer.Inner"
    assert load("kit.core:Kit")[1] == folder / "kit" / "core.py"
    assert load("kit/core.py:Kit")[0] is load("kit.core:Kit")[0]
    assert load("torch.py:Own")[0].__name__ == "Own"
    assert sys.modules["torch"] is torch


def test_another_process_finds_a_file_by_the_folder(folder, monkeypatch, tmp_path_factory):
    """From elsewhere, with the folder on `sys.path` alone."""
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    assert load("mine.py:Layer")[1] == folder / "mine.py"


def test_a_file_that_changed_is_loaded_anew_and_a_module_is_refused(folder):
    """Also where only what it imports has changed; the hash of what runs is the hash that is told."""
    assert load("mine.py:value")[0] == 1
    (folder / "beside.py").write_text("value = 22\n")
    assert load("mine.py:value")[0] == 22
    load("kit.core:Kit")
    (folder / "kit" / "parts.py").write_text("class Part:\n    size = 2\n")
    with pytest.raises(ValueError, match=r"spec must be as it was when it was first imported, got 'kit.core:Kit'"):
        load("kit.core:Kit")


def test_the_hash_is_of_all_that_is_ones_own(folder):
    """It changes with the file, with what it imports from beside it, and with its package, and with nothing else; of an
    installed package it is that of its name and version.
    """
    before = source_hash(folder / "mine.py"), source_hash(folder / "kit" / "core.py")
    (folder / "fails.py").write_text("x = 2\n")
    assert (source_hash(folder / "mine.py"), source_hash(folder / "kit" / "core.py")) == before
    (folder / "beside.py").write_text("value = 3\n")
    (folder / "kit" / "parts.py").write_text("class Part:\n    size = 3\n")
    after = source_hash(folder / "mine.py"), source_hash(folder / "kit" / "core.py")
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert source_hash(folder / "kit" / "__init__.py") == after[1]
    assert source_hash(Path(pytest.__file__)) == source_hash(Path(pytest.__file__).with_name("__main__.py"))
    assert (package_root(folder / "mine.py"), package_root(folder / "kit" / "core.py")) == (folder, folder)
    with pytest.raises(ValueError, match="file must be a Python file that is there"):
        source_hash(folder / "gone.py")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mine.py", "spec must be file.py:Name or package.module:Name, got 'mine.py'"),
        ("mine.py:", "spec must be file.py:Name"),
        (":Layer", "spec must be file.py:Name"),
        ("my layer:Layer", "spec must be file.py:Name"),
        ("mine.py:Laier", r"something that is in mine.py, got 'Laier'; did you mean Layer\?"),
        ("mine.py:Layer.Other", "something that is in mine.py, got 'Layer.Other'"),
        ("mime.py:Layer", r"a file that is there, got 'mime.py:Layer': no .*mime.py; did you mean mine.py"),
        ("kit/beside.txt:x", "a file that is there"),
        ("lacks.py:x", "spec must be importable, got 'lacks.py:x': it needs no_such_package, which is not here"),
        ("lacks:x", "spec must be importable, got 'lacks:x': it needs no_such_package"),
        ("wrong.py:f", r"spec must be importable, got 'wrong.py:f': SyntaxError: .*wrong.py, line 1"),
        ("fails.py:x", r"spec must be importable, got 'fails.py:x': ZeroDivisionError: .*fails.py, line 2"),
        ("fails:x", r"spec must be importable, got 'fails:x': ZeroDivisionError: .*fails.py, line 2"),
        ("nothing.here:x", "a module that is installed or lies in .*, got 'nothing.here:x': no nothing"),
        ("bare.outer:x", "got 'bare.outer:x': no bare.outer"),
        ("bare:inner", "written in a file, got|something that is in bare"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_is_not_there_is_refused_with_the_reason(spec, message):
    with pytest.raises(ValueError, match=message):
        load(spec)


def test_the_nearest_names_are_told():
    assert nearest("gla", ["gla2", "mamba"]) == "; did you mean gla2?"
    assert nearest("zzz", ["gla2", "mamba"]) == ""
