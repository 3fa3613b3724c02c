"""The runs that the pages show: of each chapter the notebook that is offered for download, executed.

One file a chapter, `_build/runs/<page>.ipynb`. Its metadata say what it depended on, how long it took, and what its
outputs were: a file that was cut short or altered is thrown away, and the chapter is run again.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import chapters
import keys
import nbformat
import notebooks

from icl import _files

CHECK, EXERCISE = "application/vnd.icl.check+json", "application/vnd.icl.exercise+json"
SAID = "application/vnd.icl.said+json"


def place(page: str) -> Path:
    """The file of a chapter's run."""
    return chapters.built() / "runs" / f"{page}.ipynb"


def store(page: str, notebook: nbformat.NotebookNode, key: str, seconds: float) -> None:
    """Keep an executed chapter, in place of its older run; `key` is what it depended on when it began."""
    notebook.metadata["icl"] = {"key": key, "seconds": round(seconds, 1), "outputs": _digest(notebook)}
    path = place(page)
    path.parent.mkdir(parents=True, exist_ok=True)
    _files.write(path, (nbformat.writes(notebook) + "\n").encode())


def _digest(notebook: nbformat.NotebookNode) -> str:
    put_out = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(put_out, sort_keys=True).encode()).hexdigest()


def _load(page: str) -> nbformat.NotebookNode | None:
    """A chapter's last run; None if there is none. A damaged one is thrown away, with a line that says so."""
    path = place(page)
    try:
        notebook = nbformat.read(path, as_version=4)
        about = notebook.metadata["icl"]
        if not isinstance(about["seconds"], float) or about["outputs"] != _digest(notebook):
            raise ValueError("its outputs are not what was stored")
        return notebook
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, nbformat.ValidationError) as error:
        path.unlink()
        shown = " ".join(str(error).split())[:100]
        print(f"  damaged  {path.relative_to(chapters.ROOT)} is thrown away ({shown})", flush=True)
        return None


def cached(page: str) -> nbformat.NotebookNode | None:
    """The executed chapter, if it was run as it is now: the same cells, and all else that it depends on."""
    notebook, text = _load(page), chapters.source(page)
    if notebook is None or notebook.metadata.icl.key != keys.key(text):
        return None
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return notebook if cells == chapters.code_cells(text) else None


def seconds_of(page: str) -> float | None:
    """How long a chapter's last run took, be it as it is now or not."""
    notebook = _load(page)
    return None if notebook is None else float(notebook.metadata.icl.seconds)


def as_page(text: str, page: str) -> nbformat.NotebookNode:
    """Read a chapter for its page, with the outputs that its download has put out; Broken if it was not run."""
    notebook, run = chapters.read(text, chapters.ROOT / f"{page}.md"), cached(page)
    if run is None:
        raise chapters.Broken(f"{page}.md: it was not run as it is now")
    notebook.metadata["language_info"] = run.metadata["language_info"]  # it names the colours of the code
    ran = (cell for cell in run.cells if cell.cell_type == "code")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            twin = next(ran)
            # What a cell says of the text is for the build: there is nothing of it to see.
            cell.outputs = [output for output in twin.outputs if SAID not in output.get("data", {})]
            cell.execution_count = twin.execution_count
    return notebook


def download(page: str) -> nbformat.NotebookNode:
    """The notebook that a chapter's page offers, which is also the one that is run for it."""
    text = chapters.source(page)
    try:
        return notebooks.notebook(text)
    except Exception as error:  # whatever the converter stumbles over, it is over this page
        raise chapters.Broken(f"{page}.md: {' '.join(str(error).split())}") from error


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
    return re.findall(r'<script type="application/json">(.*?)</script>', html, re.S)


def charts(notebook: nbformat.NotebookNode) -> list[str]:
    """The chart specifications of an executed notebook."""
    return [spec for html in outputs(notebook, "text/html") for spec in specifications(html)]


def heading(spec: dict[str, Any]) -> str:
    """The title of a figure, in one line."""
    text = spec["title"] if isinstance(spec["title"], str) else spec["title"]["text"]
    return text if isinstance(text, str) else " ".join(text)
