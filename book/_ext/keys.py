"""What a chapter's run depends on beyond its own cells, as one hash.

Everything is a function of the files as they are: nothing is remembered but what a given text says.
"""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import chapters
import remembered
import yaml

from icl_book import closure


def key(text: str) -> str:
    """Hash of what a chapter depends on beyond its own cells: library, ledger, records, sealed answers and lock."""
    root = chapters.ROOT
    digest = hashlib.sha256((root / "requirements.lock").read_bytes())
    digest.update("".join(remembered.of("what it reaches", text, _reached)).encode())
    mine = set(chapters.claims_of(text))
    rows = [row for path in sorted((root / "book/claims").glob("*.yml")) for row in ledger_rows(path)]
    if not chapters.by_name("claim", text):  # of any row, then
        mine = {row["id"] for row in rows}
    digest.update(json.dumps([row for row in rows if row["id"] in mine], sort_keys=True, default=str).encode())
    records = [root / "book/results" / f"{name}.json" for name in sorted(chapters.records_of(text))]
    if not chapters.by_name("recorded", text):
        records = sorted((root / "book/results").glob("*.json"))
    for path in records:
        digest.update(path.read_bytes() if path.exists() else b"")
    if chapters.reads_leaderboard(text):
        for path in sorted((root / "book/results/leaderboard").glob("*.json")):
            digest.update(path.name.encode() + path.read_bytes())
    for label in sorted(chapters.answers_of(text)):
        path = root / "book/answers" / f"{label}.json"
        digest.update(path.read_bytes() if path.exists() else b"")
    return digest.hexdigest()[:20]


def _reached(text: str) -> list[str]:
    """Hash of the modules of the library that a chapter's cells reach."""
    return [closure.digest("\n".join(chapters.code_cells(text)))]


def ledger_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of one of the ledger's files as they are written; Broken if it is not a list of rows with an id."""
    try:
        return _rows(chapters.words(path))
    except (yaml.YAMLError, ValueError) as error:
        name = path.relative_to(chapters.ROOT).as_posix()
        raise chapters.Broken(f"{name}: not a ledger ({' '.join(str(error).split())})") from error


class _Once(chapters.LOADER):  # type: ignore[misc]
    """The quicker loader; it refuses a row that says a thing twice, as the library does.

    The library's own check is not imported: that would load PyTorch before any chapter runs.
    """

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Build a dict, once it is clear that no key stands there twice."""
        names = [key.value for key, _ in node.value]
        if twice := [name for name in names if names.count(name) > 1]:
            raise yaml.YAMLError(f"line {node.start_mark.line + 1}: {twice[0]!r} stands there twice")
        return super().construct_mapping(node, deep)


@cache
def _rows(text: str) -> list[dict[str, Any]]:
    rows = yaml.load(text, Loader=_Once)
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "id" in row for row in rows):
        raise ValueError("every entry of its list needs an id")
    return rows
