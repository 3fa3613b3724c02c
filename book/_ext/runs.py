"""The chapters' runs: every chapter is executed once, in an empty folder, and kept by jupyter-cache.

jupyter-cache knows a run by the notebook's code cells and its kernelspec, into which `as_page` writes a digest of all
else that the outputs depend on. So a chapter runs again when its cells have changed, a module that they import, its
claims, records or sealed answers, or the lock.
"""

import ast
import asyncio
import contextlib
import copy
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import chapters
import joblib
import nbformat
import notebooks
import numbering
import yaml
from joblib.externals.loky import get_reusable_executor
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from icl_book import closure

CHECK, EXERCISE = "application/vnd.icl.check+json", "application/vnd.icl.exercise+json"
SAID = "application/vnd.icl.said+json"
GLUED = "application/papermill.record/text/plain"
#: A value in a text: `name`, of another page `page::name`, and how it is written.
GLUE = re.compile(r"\{glue:text\}`(?:(?P<page>[\w/-]+)::)?(?P<name>\w+)(?::(?P<form>[^`]+))?`")
_SPECIFICATION = re.compile(r'<script type="application/json">(.*?)</script>', re.S)
FIGURE = '<figure class="icl-chart"'
WORKERS = 2
TIMEOUT = {"quick": 120, "paper": 24 * 3600}  # seconds a cell
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


# What a run depends on.


def inputs_digest(text: str) -> str:
    """A digest of what a chapter's outputs depend on beyond its own cells."""
    root, cells = chapters.ROOT, chapters.code_cells(text)
    code, imports = "\n".join(cells), "\n".join(cell for cell in cells if "import" in cell)
    digest = hashlib.sha256((root / "requirements.lock").read_bytes() + closure.digest(imports).encode())
    rows = [row for path in sorted((root / "book/claims").glob("*.yml")) for row in ledger_rows(path)]
    if _all_literal("claim", code) and "ledger(" not in code:
        ids = set(chapters.claims_of(text))
        rows = [row for row in rows if row["id"] in ids]
    digest.update(json.dumps(rows, sort_keys=True, default=str).encode())
    for path in _data_files(text, code):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:20]


def _all_literal(function: str, code: str) -> bool:
    """True if each use of a function is a call with a string literal: what `recorded(name)` reads may be any record."""
    literal = rf"""\b{function}\(\s*["']|^ *from .* import .*\b{function}\b(?! as)"""
    return len(re.findall(rf"\b{function}\b", code)) == len(re.findall(literal, code, re.M))


def _data_files(text: str, code: str) -> list[Path]:
    """The records, rows of the leaderboard and sealed answers that a chapter reads."""
    results, answers = chapters.ROOT / "book/results", chapters.ROOT / "book/answers"
    paths = [results / f"{name}.json" for name in chapters.records_of(text)]
    if not _all_literal("recorded", code):
        paths = sorted(results.glob("*.json"))
    if "read_rows(" in code:
        paths += sorted((results / "leaderboard").glob("*.json"))
    paths += [answers / f"{label}.json" for label in chapters.answers_of(text)]
    return [path for path in paths if path.exists()]


def ledger_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of one of the ledger's files as they are written; Broken if it is not a list of rows with an id."""
    try:
        return _rows(chapters.words(path))
    except (yaml.YAMLError, ValueError) as error:
        name = path.relative_to(chapters.ROOT).as_posix()
        raise chapters.Broken(f"{name}: not a ledger ({' '.join(str(error).split())})") from error


@cache
def _rows(text: str) -> list[dict[str, Any]]:
    rows = chapters.loaded(text)
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "id" in row for row in rows):
        raise ValueError("every entry of its list needs an id")
    return rows


# What is kept.


def folder() -> Path:
    """Folder of jupyter-cache."""
    return chapters.built() / ".jupyter_cache"


def as_page(text: str) -> nbformat.NotebookNode:
    """Read a chapter as myst-nb does, with a digest of what it depends on in its kernelspec."""
    notebook = chapters.read(text)
    notebook.metadata["kernelspec"]["needs"] = inputs_digest(text)
    return notebook


def download(page: str, **how: Any) -> nbformat.NotebookNode:
    """A chapter as a notebook without outputs, its text with the values of the run; see `notebooks.notebook`."""
    text = chapters.source(page)
    try:
        return notebooks.notebook(page, text=filled(text, page), **how)
    except Exception as error:  # whatever the converter stumbles over, it is over this page
        raise chapters.Broken(f"{page}.md: {' '.join(str(error).split())}") from error


def offer(page: str, citation: str, site: str = "", solutions: bool = False) -> nbformat.NotebookNode:
    """A notebook that a chapter's page offers: with what its run put out, and what to know before running it."""
    run = cached(page)
    if run is None:
        raise chapters.Broken(f"{page}.md: it was not run as it is now")
    notebook = with_outputs(download(page, site=site), run)
    number_figures(notebook, page)
    notebook.metadata["language_info"] = run.metadata["language_info"]
    return notebooks.handed_on(notebook, page, citation, site, solutions)


def with_outputs(notebook: nbformat.NotebookNode, run: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A chapter's notebook with the outputs of its run, as far as Jupyter shows them.

    Of a figure that is its picture and alternative text: Jupyter has no program that draws our specifications.
    """
    for cell, ran in zip(notebooks.page_cells(notebook), notebooks.page_cells(run), strict=True):
        # What a cell says of the text or gives to it is for the build: there is nothing of it to see.
        cell.outputs = [_shown(output) for output in ran.outputs if not {SAID, GLUED} & {*output.get("data", {})}]
        cell.execution_count = ran.execution_count
    return notebook


def number_figures(notebook: nbformat.NotebookNode, page: str) -> None:
    """Give a notebook's figures the numbers that a numbered chapter's page has."""
    figures = [
        output["data"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output.get("data", {}).get("text/html", "").startswith(FIGURE)
    ]
    for count, data in enumerate(figures if numbering.chapter(page) else (), 1):
        caption = f"<figcaption>Figure {numbering.number(page, count)}</figcaption>"
        data["text/html"] = data["text/html"].replace(">", f">{caption}", 1)


def _shown(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    output = copy.deepcopy(output)
    data = output.get("data", {})
    for mime in (CHECK, EXERCISE):
        data.pop(mime, None)
    if "text/html" in data:
        data["text/html"] = _SPECIFICATION.sub("", data["text/html"])
    if "text/plain" in data:  # where something lay in memory is another place at each run
        data["text/plain"] = re.sub(r" at 0x[0-9a-f]+", "", data["text/plain"])
    return output


def cached(page: str) -> nbformat.NotebookNode | None:
    """A chapter's code cells with their outputs, if it was run as it is now; its time is in `metadata.icl.seconds`."""
    try:
        record = get_cache(str(folder())).match_cache_notebook(as_page(chapters.source(page)))
    except KeyError:
        return None
    try:
        return _loaded(record.pk, record.hashkey, record.data["execution_seconds"])
    except (KeyError, ValueError):  # a build was killed as it stored it
        shutil.rmtree(folder() / "executed" / record.hashkey, ignore_errors=True)
        return None


@cache
def _loaded(pk: int, key: str, seconds: float) -> nbformat.NotebookNode:
    run = get_cache(str(folder())).get_cache_bundle(pk).nb
    run.metadata["icl"] = {"seconds": round(seconds, 1)}
    return run


def store(page: str, notebook: nbformat.NotebookNode, seconds: float) -> None:
    """Store an executed chapter in the cache."""
    bundle = CacheBundleIn(notebook, page, data={"execution_seconds": seconds})
    get_cache(str(folder())).cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


# How a notebook is run.


def kernel_environment(profile: str = "quick", package: Path | None = None) -> dict[str, str]:
    """A kernel's environment: the profile, one thread, no progress bars, and the package, by default the repository's.

    With one thread two chapters run side by side, and sums come out the same on any number of cores.
    """
    settings = {"ICL_PROFILE": profile, "TQDM_DISABLE": "1", "PYTHONPATH": str(package or chapters.ROOT / "lib")}
    return os.environ | dict.fromkeys(THREADS, "1") | settings


@contextlib.contextmanager
def unpacked_wheel() -> Iterator[Path]:
    """The package as a reader installs it: its wheel, built now and unpacked."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", place]
        done = subprocess.run(command, cwd=chapters.ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise chapters.Broken(f"pyproject.toml: the package cannot be built: {done.stderr.strip()[-500:]}")
        (wheel,) = Path(place).glob("*.whl")
        zipfile.ZipFile(wheel).extractall(Path(place, "site"))
        yield Path(place, "site")


def execute(
    notebook: nbformat.NotebookNode,
    environment: Mapping[str, str],
    place: Path | None = None,
    timeout: int = TIMEOUT["quick"],
) -> tuple[nbformat.NotebookNode, float, str]:
    """Run a notebook in an empty folder, or in `place`; return it with its outputs, seconds, and the error or ""."""
    began, error = time.monotonic(), ""
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as sockets:
        client = NotebookClient(
            notebook,
            timeout=timeout,
            shutdown_kernel="immediate",
            resources={"metadata": {"path": str(place or empty)}},
            extra_arguments=["--IPKernelApp.log_level=50"],  # it would log that it is shut down
            record_timing=False,
        )
        # Sockets in a folder of its own: two kernels that start at the same moment may choose the same port.
        manager = client.create_kernel_manager()
        manager.transport, manager.ip = "ipc", f"{sockets}/kernel"
        try:
            asyncio.run(client.async_execute(env=dict(environment)))
        except (CellExecutionError, CellTimeoutError) as failure:
            error = _plain(str(failure))
        except (DeadKernelError, RuntimeError) as failure:
            error = f"The kernel died, most likely for want of memory ({failure})."
    return notebook, time.monotonic() - began, error


def _plain(trace: str) -> str:
    """A traceback without colours, from the failing cell on."""
    trace = re.sub(r"\x1b\[[0-9;]*m", "", trace)
    return trace[max(trace.find("An error occurred while executing"), 0) :].strip()


def execute_in_parallel(
    work: Mapping[str, nbformat.NotebookNode], environment: Mapping[str, str], workers: int = WORKERS, **how: Any
) -> Iterator[tuple[str, nbformat.NotebookNode, float, str]]:
    """Execute notebooks by name in processes of their own, begun in this order; yield name and `execute`'s answer."""
    jobs = (joblib.delayed(_execute_named)(name, notebook, environment, how) for name, notebook in work.items())
    try:
        for name, notebook, seconds, error in joblib.Parallel(workers, return_as="generator_unordered")(jobs):
            print(f"{'   FAILED' if error else ' executed'}  {seconds:6.1f} s  {name}", flush=True)
            if error:
                print(error, flush=True)
            yield name, notebook, seconds, error
    finally:
        # joblib would keep its workers for the next call, and a process forked from this one would wait for them.
        get_reusable_executor().shutdown(kill_workers=True)


def _execute_named(
    name: str, notebook: nbformat.NotebookNode, environment: Mapping[str, str], how: Mapping[str, Any]
) -> Any:
    return name, *execute(notebook, environment, **how)


def run_stale(pages: list[str]) -> dict[str, nbformat.NotebookNode]:
    """Run those of these chapters that were not run as they are now, the longest first; return all runs.

    Raises:
        Broken: with their names, if some failed; what has run is kept.
    """
    runs = {page: cached(page) for page in pages}
    stale = {page: as_page(chapters.source(page)) for page, run in runs.items() if run is None}
    failed = []
    for page, notebook, seconds, error in execute_in_parallel(
        dict(sorted(stale.items(), key=_length)), kernel_environment()
    ):
        if error:
            failed.append(f"{page}.md")
        else:
            store(page, notebook, seconds)
    if failed:
        raise chapters.Broken(f"{', '.join(failed)}: a cell failed, see above")
    runs |= {page: cached(page) for page in stale}
    if changed := [page for page, run in runs.items() if run is None]:
        raise chapters.Broken(f"{', '.join(changed)}: changed while it ran; build again")
    return {page: run for page, run in runs.items() if run is not None}


def _length(item: tuple[str, nbformat.NotebookNode]) -> int:
    """A chapter's code, the longest first: what it took the last time is not known of one that has changed."""
    return -sum(len(cell.source) for cell in item[1].cells if cell.cell_type == "code")


# What a run holds.


def outputs(notebook: nbformat.NotebookNode, mime: str) -> list[Any]:
    """Everything of one MIME type that a notebook's cells put out, in order."""
    return [
        output["data"][mime]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if mime in output.get("data", {})
    ]


def specifications(html: str) -> list[str]:
    """The chart specifications within some HTML, as JSON text."""
    return _SPECIFICATION.findall(html)


def charts(notebook: nbformat.NotebookNode) -> list[str]:
    """The chart specifications of an executed notebook."""
    return [spec for html in outputs(notebook, "text/html") for spec in specifications(html)]


def heading(spec: dict[str, Any]) -> str:
    """The title of a figure, in one line."""
    text = spec["title"] if isinstance(spec["title"], str) else spec["title"]["text"]
    return text if isinstance(text, str) else " ".join(text)


def values(notebook: nbformat.NotebookNode) -> dict[str, Any]:
    """The values that a notebook's cells gave to texts (`icl_book.prose.glue`), by name."""
    return {
        output["metadata"]["scrapbook"]["name"]: ast.literal_eval(output["data"][GLUED])
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if GLUED in output.get("data", {})
    }


def glued_pages(text: str, page: str = "") -> list[str]:
    """The chapters whose values a page's text inserts, each once."""
    return list(dict.fromkeys(f"book/{m['page']}" if m["page"] else page for m in GLUE.finditer(text)))


def filled(text: str, page: str = "") -> str:
    """A page's text with the values of the chapters that were run as they are now; Broken if one has no such value."""
    ran = {lender: run for lender in glued_pages(text, page) if (run := cached(lender))}
    glued = {lender: values(run) for lender, run in ran.items()}

    def value(role: re.Match[str]) -> str:
        lender = f"book/{role['page']}" if role["page"] else page
        if lender not in glued:
            return role[0]
        if role["name"] not in glued[lender]:
            raise chapters.Broken(f"no cell of {lender} glues {role['name']!r}")
        return format(glued[lender][role["name"]], role["form"] or "").replace("-", "\N{MINUS SIGN}")

    return GLUE.sub(value, text)
