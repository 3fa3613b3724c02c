"""Which modules of the library a piece of Python reaches: what it imports, what these import, and so on.

Modules that are imported by a name made at run time are not seen.
"""

import ast
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("icl", "icl_bench", "icl_book")


def modules(code: str) -> tuple[str, ...]:
    """Return the dotted names of all modules of icl, icl_bench and icl_book that Python source reaches, in order.

    A package that is imported itself stands for all that is in it.

    Raises:
        SyntaxError: if the source is no Python.
    """
    graph = _graph()
    found: set[str] = set()
    for name in _imported(code):
        while name and name not in graph.modules:  # a function of a module, or somebody else's
            name = name.rpartition(".")[0]
        if name:
            found |= {name} | graph.find_descendants(name) | graph.find_upstream_modules(name, as_package=True)
    return tuple(sorted(found))


def digest(code: str) -> str:
    """Return a hash of the modules that Python source reaches: their names and files."""
    told = "".join(f"{name} {file_hash(name)}\n" for name in modules(code))
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def file_hash(module: str) -> str:
    """Return a hash of a module's file as it is now, "" if there is none."""
    place = _ROOT.joinpath(*module.split("."))
    for path in (place / "__init__.py", place.with_suffix(".py")):
        if path.is_file():
            return _hash(path, path.stat().st_mtime_ns)
    return ""


@cache
def _hash(path: Path, written: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


@cache
def _graph() -> Any:
    import grimp  # of the extra `book`: whoever reads a record can do without

    return grimp.build_graph(*_PACKAGES, cache_dir=None)


def _imported(code: str) -> list[str]:
    """All that Python source imports, dotted; in functions too."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found
