"""The library's files as one hash, and the program that runs."""

import sys
from types import SimpleNamespace

import pytest

from icl import _source


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Two packages of two files each, in the library's place."""
    for name in ("one/__init__.py", "one/a/b.py", "two/__init__.py", "two/c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    monkeypatch.setattr(_source, "__file__", str(tmp_path / "one" / "_source.py"))
    return tmp_path


def digest(*packages):
    """As in a process that has just begun."""
    return _source.digest.__wrapped__(*packages)


def test_a_digest_is_of_every_byte_and_name(package):
    """A comment, a file more, another name: another digest; what is no Python, and another package, does not count."""
    before, both = digest("one"), digest("one", "two")
    assert len({before, both, digest("two")}) == 3
    (package / "one" / "py.typed").touch()
    (package / "two" / "c.py").write_text("x = 2\n")
    assert digest("one") == before
    assert digest("one", "two") != both
    deep = package / "one" / "a" / "b.py"
    deep.write_text("x = 1  # why\n")
    commented = digest("one")
    deep.rename(deep.with_name("c.py"))
    renamed = digest("one")
    deep.write_text("")
    assert len({before, commented, renamed, digest("one")}) == 4


def test_the_program_that_runs(monkeypatch, tmp_path):
    """In a notebook it is the cells run so far, each once; else the file that was started, whole; else nothing."""
    shell = SimpleNamespace(user_ns={"In": ["", "x = 1", "y = x", "x = 1", "z = y"]})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert _source.program() == "x = 1\ny = x\nz = y"
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    (tmp_path / "run.py").write_text("print(1)  # whole\n")
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__=str(tmp_path / "run.py")))
    assert _source.program() == "print(1)  # whole\n"
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace())
    assert _source.program() == ""
