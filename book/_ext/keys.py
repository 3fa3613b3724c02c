"""Has the program changed? What a chapter's run depends on beyond its own cells, as one hash; and what its cells do.

Everything is a function of the files as they are: nothing is remembered but what a given text says.
"""

import ast
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import chapters
import yaml


def key(text: str) -> str:
    """Hash of what a chapter depends on beyond its own cells: library, ledger rows, records and the lock."""
    root = chapters.ROOT
    digest = hashlib.sha256((root / "requirements.lock").read_bytes())
    for path in library_files(chapters.code_cells(text)):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    mine = set(chapters.claims_of(text))
    rows = [row for path in sorted((root / "book/claims").glob("*.yml")) for row in ledger_rows(path)]
    digest.update(json.dumps([row for row in rows if row["id"] in mine], sort_keys=True, default=str).encode())
    for name in sorted(chapters.records_of(text)):
        path = root / "book/results" / f"{name}.json"
        digest.update(path.read_bytes() if path.exists() else b"")
    return digest.hexdigest()[:20]


def program(cells: list[str]) -> str:
    """Hash of code cells, comments and layout apart."""
    return hashlib.sha256("\0".join(ast.unparse(ast.parse(cell)) for cell in cells).encode()).hexdigest()


def library_files(sources: list[str]) -> list[Path]:
    """Every file of the library that these sources import, directly or through one another."""
    modules = _modules(chapters.ROOT / "lib" / "icl")
    todo = {name for source in sources for name in _imports(source)}
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen or name not in modules:
            continue
        seen.add(name)
        todo |= _imports(modules[name].read_text(encoding="utf-8"))
        # Importing a.b.c runs a and a.b too.
        todo |= {name.rsplit(".", 1)[0]} if "." in name else set()
    return sorted(modules[name] for name in seen)


def _modules(library: Path) -> dict[str, Path]:
    def dotted(path: Path) -> str:
        parts = ("icl", *path.relative_to(library).with_suffix("").parts)
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    return {dotted(path): path for path in library.rglob("*.py")}


@cache
def _imports(source: str) -> frozenset[str]:
    """Dotted names under `icl` that a piece of Python imports; `from icl import x` may mean a module or a name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(name for name in names if name == "icl" or name.startswith("icl."))


def ledger_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of one of the ledger's files as they are written; Broken if it is not a list of rows with an id."""
    try:
        return _rows(chapters.words(path))
    except (yaml.YAMLError, ValueError) as error:
        name = path.relative_to(chapters.ROOT).as_posix()
        raise chapters.Broken(f"{name}: not a ledger ({' '.join(str(error).split())})") from error


@cache
def _rows(text: str) -> list[dict[str, Any]]:
    rows = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "id" in row for row in rows):
        raise ValueError("every entry of its list needs an id")
    return rows
