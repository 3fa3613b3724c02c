"""Chapters as programs: what each depends on, running those that changed, collecting what they measured.

Used by tools/build.py, which runs the chapters, and by the Sphinx extension, which renders them. The execution cache
is jupyter-cache's. It knows a chapter's code cells and its kernel; so the state of everything else that a chapter
depends on (modules of the library, its rows of the ledger, its records, the locked versions) is written into its
kernelspec as a key.
"""

import ast
import hashlib
import json
import re
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import yaml
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from myst_nb.core.read import read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "lib" / "icl"
CACHE = ROOT / "_build" / ".jupyter_cache"
MEASUREMENTS = ROOT / "_build" / "measurements.json"
RECORDINGS = ROOT / "_build" / "recordings"
CHECK, EXERCISE = "application/vnd.icl.check+json", "application/vnd.icl.exercise+json"


def pages() -> list[str]:
    """Document names of the whole book, in the reader's order, from `_toc.yml`."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))

    def walk(node: Any) -> list[str]:
        if isinstance(node, list):
            return [name for item in node for name in walk(item)]
        here = [node["file"]] if "file" in node else []
        return here + [n for key in ("parts", "chapters", "sections") for n in walk(node.get(key, []))]

    return [toc["root"], *walk(toc)]


def is_chapter(text: str) -> bool:
    """Whether a page has cells to run."""
    return text.startswith("---") and "\nkernelspec:" in text.split("\n---", 1)[0]


def code_cells(text: str) -> list[str]:
    """Sources of a chapter's code cells."""
    return [cell.source for cell in read(text, Path("chapter.md")).cells if cell.cell_type == "code"]


def read(text: str, path: Path) -> nbformat.NotebookNode:
    """Read a chapter just as myst-nb does."""
    config = MdParserConfig(enable_extensions={"colon_fence", "dollarmath", "amsmath"})
    return read_myst_markdown_notebook(text, config, path=path)


def _imports(source: str, package: str = "") -> set[str]:
    """Dotted names under `icl` that a piece of Python imports; `from icl import x` may mean a module or a name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name == "icl" or name.startswith("icl.")}


@cache
def _modules() -> dict[str, Path]:
    def dotted(path: Path) -> str:
        parts = ("icl", *path.relative_to(LIBRARY).with_suffix("").parts)
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    return {dotted(path): path for path in LIBRARY.rglob("*.py")}


def library_files(sources: list[str]) -> list[Path]:
    """Every file of the library that these sources import, directly or through one another."""
    todo = {name for source in sources for name in _imports(source)}
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen or name not in _modules():
            continue
        seen.add(name)
        todo |= _imports(_modules()[name].read_text(encoding="utf-8"))
        # Importing a.b.c runs a and a.b too.
        todo |= {name.rsplit(".", 1)[0]} if "." in name else set()
    return sorted(_modules()[name] for name in seen)


def claims_of(text: str) -> list[str]:
    """Ids of the claims that a chapter checks, in order."""
    return [m for source in code_cells(text) for m in re.findall(r"""\bclaim\(\s*["']([^"']+)["']""", source)]


def records_of(text: str) -> list[str]:
    """Ids of the records that a chapter reads, each once, in the order of their first reading."""
    found = [m for source in code_cells(text) for m in re.findall(r"""\brecorded\(\s*["']([^"']+)["']""", source)]
    return list(dict.fromkeys(found))


def makes_records(text: str) -> bool:
    """Whether a chapter records a long run when it is run with the profile `paper`."""
    return any(re.search(r"\brecord\(", source) for source in code_cells(text))


def key(text: str) -> str:
    """Hash of what a chapter depends on beyond its own cells."""
    sources = code_cells(text)
    digest = hashlib.sha256((ROOT / "requirements.lock").read_bytes())
    for path in library_files(sources):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    rows = [
        row for path in sorted((ROOT / "book/claims").glob("*.yml")) for row in yaml.safe_load(path.read_text("utf-8"))
    ]
    mine = set(claims_of(text))
    digest.update(json.dumps([row for row in rows if row["id"] in mine], sort_keys=True, default=str).encode())
    for name in sorted(records_of(text)):
        path = ROOT / "book/results" / f"{name}.json"
        digest.update(path.read_bytes() if path.exists() else b"")
    return digest.hexdigest()[:20]


def stamped(text: str) -> str:
    """The chapter with its key in the kernelspec, where jupyter-cache sees it."""
    return text.replace("\nkernelspec:\n", f"\nkernelspec:\n  icl: {key(text)}\n", 1) if is_chapter(text) else text


def prepared(page: str) -> nbformat.NotebookNode:
    """The chapter as a notebook, not yet run, its key in the kernelspec."""
    path = ROOT / f"{page}.md"
    return read(stamped(path.read_text(encoding="utf-8")), path)


def cached(page: str) -> nbformat.NotebookNode | None:
    """The executed chapter, if the cache holds it as it is now."""
    try:
        _, merged = get_cache(str(CACHE)).merge_match_into_notebook(prepared(page))
    except KeyError:
        return None
    return merged


def execute(
    notebook: nbformat.NotebookNode, folder: Path, timeout: int, after: Callable[[int], None] | None = None
) -> tuple[float, str | None]:
    """Run a notebook's cells in a folder, in place; return the seconds it took and the error, if any.

    `after` is called with the index of each code cell that has run.
    """
    start, error = time.monotonic(), None
    client = NotebookClient(
        notebook,
        timeout=timeout,
        resources={"metadata": {"path": str(folder)}},
        # The kernel's own start-up notices would land between the lines of progress.
        extra_arguments=["--IPKernelApp.log_level=40"],
        # Timings would go into the cells, and so into what the cache compares.
        record_timing=False,
        on_cell_executed=lambda cell, cell_index, execute_reply: after(cell_index) if after else None,
    )
    try:
        client.execute()
    except DeadKernelError:
        error = "The kernel died, most likely for want of memory."
    except (CellExecutionError, CellTimeoutError) as failure:
        error = _plain(str(failure))
    return time.monotonic() - start, error


def _plain(trace: str) -> str:
    """A traceback without colours, from the failing cell on."""
    trace = re.sub(r"\x1b\[[0-9;]*m", "", trace)
    return trace[max(trace.find("An error occurred while executing"), 0) :].strip()


def _program(cells: list[str]) -> str:
    """Hash of code cells, comments and layout apart."""
    return hashlib.sha256("\0".join(ast.unparse(ast.parse(cell)) for cell in cells).encode()).hexdigest()


def _results() -> dict[str, tuple[int, int]]:
    """Every record by its id, with what changes whenever it is written."""
    files = {path.stem: path.stat() for path in (ROOT / "book/results").glob("*.json")}
    return {name: (file.st_ino, file.st_mtime_ns) for name, file in files.items()}


def _digest(name: str) -> str:
    return hashlib.sha256((ROOT / "book/results" / f"{name}.json").read_bytes()).hexdigest()


def execute_recording(page: str, notebook: nbformat.NotebookNode, timeout: int) -> tuple[float, str | None]:
    """Run a chapter that makes records, as `execute` does; keep which it wrote, and the cells that ran up to the last.

    Records are told by watching `book/results`, so one such chapter may run at a time.
    """
    before, written, made_by = _results(), set[str](), list[str]()

    def after(index: int) -> None:
        nonlocal before, made_by
        now = _results()
        if new := {name for name, state in now.items() if before.get(name) != state}:
            written.update(new)
            made_by = [cell.source for cell in notebook.cells[: index + 1] if cell.cell_type == "code"]
        before = now

    note = RECORDINGS / f"{page.replace('/', '.')}.json"
    note.unlink(missing_ok=True)
    seconds, error = execute(notebook, (ROOT / page).parent, timeout, after)
    if not error and written:
        kept = {
            "cells": len(made_by),
            "program": _program(made_by),
            "records": {name: _digest(name) for name in sorted(written)},
        }
        note.parent.mkdir(parents=True, exist_ok=True)
        draft = note.with_suffix(".part")
        draft.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        draft.replace(note)
    return seconds, error


def recording(page: str) -> float | None:
    """Seconds behind a chapter's records if running it now would only make them again, None if it has to be run.

    It need not run if it ran here to its end, the cells up to the one that recorded last are the same, every record it
    wrote is still there as written, and the library that made them has not changed.
    """
    from icl.page import records as evidence

    try:
        kept = json.loads((RECORDINGS / f"{page.replace('/', '.')}.json").read_text(encoding="utf-8"))
        cells = code_cells((ROOT / f"{page}.md").read_text(encoding="utf-8"))
        if _program(cells[: kept["cells"]]) != kept["program"]:
            return None
        records = [evidence.recorded(name) for name, digest in kept["records"].items() if _digest(name) == digest]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if len(records) < len(kept["records"]) or not all(record.current for record in records):
        return None
    return float(sum(record.provenance["seconds"] for record in records))


def store(page: str, notebook: nbformat.NotebookNode, seconds: float) -> None:
    """Put an executed chapter into the cache, in place of its older runs."""
    stock = get_cache(str(CACHE))
    uri = str(ROOT / f"{page}.md")
    for record in stock.list_cache_records():
        if record.uri == uri:
            stock.remove_cache(record.pk)
    bundle = CacheBundleIn(notebook, uri, data={"execution_seconds": seconds})
    stock.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def seconds_of(page: str) -> float:
    """How long the cached run took."""
    uri = str(ROOT / f"{page}.md")
    times = [r.data["execution_seconds"] for r in get_cache(str(CACHE)).list_cache_records() if r.uri == uri]
    return float(times[0]) if times else 0.0


def outputs(notebook: nbformat.NotebookNode, mime: str) -> list[Any]:
    """Everything of one MIME type that a notebook's cells put out, in order."""
    return [
        output["data"][mime]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if mime in output.get("data", {})
    ]


def specifications(notebook: nbformat.NotebookNode) -> list[str]:
    """The chart specifications of an executed notebook, as JSON text."""
    pages_html = [h if isinstance(h, str) else "".join(h) for h in outputs(notebook, "text/html")]
    found = [re.findall(r'<script type="application/json">(.*?)</script>', h, re.S) for h in pages_html]
    return [spec for specs in found for spec in specs]


def collect() -> dict[str, Any]:
    """Gather what the executed chapters measured into `_build/measurements.json`; rewrite it only if it changed."""
    gathered = {}
    for page in pages():
        text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
        prose = re.sub(r"```\{code-cell\}.*?```", "", text, flags=re.S)
        entry: dict[str, Any] = {
            "words": len(re.findall(r"\w+", prose)),
            "records": records_of(text) if is_chapter(text) else [],
        }
        if is_chapter(text) and (notebook := cached(page)) is not None:
            entry |= {
                "seconds": round(seconds_of(page), 1),
                "checks": outputs(notebook, CHECK),
                "charts": [hashlib.sha256(s.encode()).hexdigest()[:16] for s in specifications(notebook)],
            }
        gathered[page] = entry
    new = json.dumps(gathered, indent=1, ensure_ascii=False) + "\n"
    if not MEASUREMENTS.exists() or MEASUREMENTS.read_text(encoding="utf-8") != new:
        MEASUREMENTS.parent.mkdir(exist_ok=True)
        MEASUREMENTS.write_text(new, encoding="utf-8")
    return gathered
