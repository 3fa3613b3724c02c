"""Which chapters have made their records: run with the profile `paper`, they need not make the same ones again."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import chapters
import nbformat

from icl import _files
from icl_book import closure
from icl_book import records as evidence


def _note(page: str) -> Path:
    return chapters.built() / "recordings" / f"{page.replace('/', '.')}.json"


def _results() -> dict[str, tuple[int, int]]:
    """Every record by its id, with what changes whenever it is written."""
    files = {path.stem: path.stat() for path in (chapters.ROOT / "book/results").glob("*.json")}
    return {name: (file.st_ino, file.st_mtime_ns) for name, file in files.items()}


def _digest(name: str) -> str:
    return hashlib.sha256((chapters.ROOT / "book/results" / f"{name}.json").read_bytes()).hexdigest()


def _program(cells: list[str]) -> str:
    text = "\n".join(cells)
    return hashlib.sha256(f"{closure.digest(text)}\n{text}".encode()).hexdigest()


def keep(
    page: str,
    notebook: nbformat.NotebookNode,
    run: Callable[[Callable[[int], None]], tuple[float, str | None]],
) -> tuple[float, str | None]:
    """Run a chapter that makes records; keep which it wrote, and the cells that ran up to the last.

    `run` executes the notebook, calls its argument with the index of each code cell that has run, and returns the
    seconds it took and the error, if any. Records are told by watching `book/results`, so one such chapter may run at
    a time.
    """
    before, written, made_by = _results(), set[str](), list[str]()

    def after(index: int) -> None:
        nonlocal before, made_by
        now = _results()
        if new := {name for name, state in now.items() if before.get(name) != state}:
            written.update(new)
            made_by = [cell.source for cell in notebook.cells[: index + 1] if cell.cell_type == "code"]
        before = now

    note = _note(page)
    note.unlink(missing_ok=True)
    seconds, error = run(after)
    if not error and written:
        kept = {
            "cells": len(made_by),
            "program": _program(made_by),
            "records": {name: _digest(name) for name in sorted(written)},
        }
        note.parent.mkdir(parents=True, exist_ok=True)
        _files.write(note, (json.dumps(kept, indent=1) + "\n").encode())
    return seconds, error


def seconds_behind(page: str) -> float | None:
    """Seconds behind a chapter's records if running it now would only make them again, None if it has to be run.

    It need not run if it ran here to its end, the cells up to the one that recorded last are the same, every record it
    wrote is still there as written, and the library that made them has not changed.
    """
    try:
        kept = json.loads(_note(page).read_text(encoding="utf-8"))
        cells = chapters.code_cells(chapters.source(page))
        if _program(cells[: kept["cells"]]) != kept["program"]:
            return None
        records = [evidence.recorded(name) for name, digest in kept["records"].items() if _digest(name) == digest]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if len(records) < len(kept["records"]) or not all(record.current for record in records):
        return None
    return float(sum(record.provenance["seconds"] for record in records))
