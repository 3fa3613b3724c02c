"""Transitive imports: the library modules that a piece of Python code depends on.

Dynamic imports are not found.
"""

import ast
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("icl", "icl_bench", "icl_book")


def modules(code: str) -> tuple[str, ...]:
    """Return the dotted names of all modules of icl, icl_bench and icl_book that source code depends on, sorted.

    A package that is imported itself stands for all that is in it.

    Raises:
        SyntaxError: if the source does not parse.
    """
    graph = _graph()
    names: set[str] = set()
    for name in _imported_names(code):
        while name and name not in graph.modules:  # a function of a module, or a third-party module
            name = name.rpartition(".")[0]
        if name:
            names |= {name} | graph.find_descendants(name) | graph.find_upstream_modules(name, as_package=True)
    return tuple(sorted(names))


def digest(code: str) -> str:
    """Return a hash of the modules that source code depends on: names and file contents."""
    listing = "".join(f"{name} {file_hash(name)}\n" for name in modules(code))
    return hashlib.sha256(listing.encode()).hexdigest()[:16]


def file_hash(module: str) -> str:
    """Return a hash of a module's current file, "" if there is none."""
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
    import grimp  # of the extra `book`, not needed to read a record

    return grimp.build_graph(*_PACKAGES, cache_dir=None)


def _imported_names(code: str) -> list[str]:
    """Dotted names of all imports in source code, those inside functions too."""
    names = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names
