"""Which modules a piece of Python reaches, and that their hash changes with each of them and with no other."""

import subprocess
import sys

import pytest

from icl_book import closure

FLOORS = {"icl.theory.floors.filtering", "icl.theory.steady.fast_weights", "icl.tasks", "icl.tasks.core", "icl._checks"}


@pytest.mark.parametrize(
    "code",
    [
        "from icl.theory import floors",
        "import icl.theory.floors.filtering as f",
        "from icl.theory.floors.filtering import riccati",
        "def later():\n    from icl.theory.floors.filtering import riccati as r\n    return r",
        "import numpy\nfrom pathlib import Path\nfrom icl.theory import floors",
    ],
)
def test_what_is_imported_and_what_that_imports_is_reached(code):
    """However it is imported; and no module beside it in its package, nor anything of another package."""
    found = set(closure.modules(code))
    assert found >= FLOORS
    assert not found & {"icl.theory.errata", "icl.models", "icl.filters", "icl_book.charts", "numpy"}
    assert list(closure.modules(code)) == sorted(found)


def test_a_package_stands_for_all_in_it():
    """Its names may come from any of its modules."""
    of_theory = closure.modules("from icl import theory\ntheory.riccati")
    assert {"icl.theory", "icl.theory.floors.filtering", "icl.theory.errata.memory", "icl.tasks"} <= set(of_theory)
    assert closure.modules("from icl.theory import riccati") == of_theory
    assert {"icl_book.charts", "icl_book.records", "icl._files"} <= set(closure.modules("import icl_book"))


def test_what_reaches_nothing_of_ours():
    """Other packages, names that only look like ours, and no import at all."""
    assert closure.modules("import numpy, iclx.theory\nfrom os import path\nx = 1") == ()


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A copy of the files that `from icl.theory import floors` reaches, and of one that it does not."""
    code = "from icl.theory import floors"
    root = closure._ROOT
    for name in [*closure.modules(code), "icl.filters"]:
        place = root.joinpath(*name.split("."))
        path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        target = tmp_path / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    monkeypatch.setattr(closure, "_ROOT", tmp_path)
    return code, tmp_path / "icl"


def test_a_digest_changes_with_what_is_reached_alone(library):
    """A byte of the module itself or of one that it imports at second hand counts; one of another module does not."""
    code, files = library
    before = closure.digest(code)
    with (files / "filters.py").open("a") as out:
        out.write("# another word\n")
    assert closure.digest(code) == before
    for name in ("theory/floors/filtering.py", "tasks/core.py", "_checks.py"):
        whole = (files / name).read_bytes()
        (files / name).write_bytes(whole + b"\n")
        assert closure.digest(code) != before, name
        (files / name).write_bytes(whole)
    assert closure.digest(code) == before


def test_a_module_that_is_gone_has_no_hash():
    """Nor one that never was; a package has that of its own file."""
    assert closure.file_hash("icl.gone") == ""
    assert closure.file_hash("icl") == closure.file_hash("icl.__init__") != ""


def test_it_is_quick_to_import():
    """Neither PyTorch nor Altair is loaded: a build asks before any chapter runs."""
    code = "import sys, icl_book.closure; print(*{'torch', 'altair', 'pandas', 'numpy'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
