"""Each chapter as a pair of notebooks: for students without the solutions, for instructors with all of it.

Both are the notebook that the chapter's page offers for download. The student's has lost the solutions and what only
they needed, and has no outputs. The instructor's has the solutions marked, the teaching notes of
`book/course/notes/<chapter>.md` under the headings they are keyed by, and the outputs of the book's own run of the
chapter, which is not run again.
"""

import copy
import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path

import chapters
import nbformat
import notebooks
import runs
import transclude

from course import ROOT, Missing
from course.cells import Cells, for_students

#: A heading in plain Markdown.
_HEADING = re.compile(r"^#{1,6} +(?P<words>.+?) *$", re.M)
_HINT = re.compile(r"^> \*\*Hint\*\*\n>\n(?P<body>(?:^>.*\n?)+)", re.M)
#: Functions in the cells of an appendix that hold the answer to an exercise; these cells are for instructors.
BACK = {"book/adaptation/adaptive-filters": frozenset({"best_scaled"})}
_LICENCES = (
    "Text: [CC BY 4.0](https://creativecommons.org/licenses/by/4.0/), code: MIT, by the authors of *Learning to Adapt*."
)


def pages() -> list[str]:
    """The chapters of the book's parts that have cells, in the reader's order."""
    return chapters.in_parts()


def version() -> str:
    """The package's version."""
    return _project(chapters.words(ROOT / "pyproject.toml"))["version"]


@cache
def _project(text: str) -> dict[str, str]:
    project = tomllib.loads(text)["project"]
    return {name: str(project[name]) for name in ("version", "requires-python")}


def student(page: str) -> nbformat.NotebookNode:
    """A chapter for students: hints, blanks and their checks, and no solutions."""
    notebook = whole(page)
    notebook.cells = for_students(notebook.cells, BACK.get(page, frozenset()))
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _folded(cell.source)
    return _finished(notebook, page, "student")


def instructor(page: str) -> nbformat.NotebookNode:
    """A chapter for instructors: all of it, as the book ran it; Missing if it was not run as it is now."""
    notebook, run = whole(page), runs.cached(page)
    if run is None:
        raise Missing(f"needs the run of {page}.md as it is now: `make book` runs it")
    for found in transclude.proofs(_notes(page)):
        try:
            transclude.sentence(found, transclude.run_of(transclude.page_of(found)))
        except chapters.Broken as error:
            raise chapters.Broken(f"book/course/notes/{Path(page).name}.md: {error}") from None
    ran = (cell for cell in run.cells if cell.cell_type == "code")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            twin = next(ran)
            # What a cell says of the text is for the build: there is nothing of it to see.
            cell.outputs = [output for output in twin.outputs if runs.SAID not in output.get("data", {})]
            for output in cell.outputs:  # where something lay in memory is another place at each run
                if plain := output.get("data", {}).get("text/plain"):
                    output["data"]["text/plain"] = re.sub(r" at 0x[0-9a-f]+", "", plain)
            cell.execution_count = twin.execution_count
    notebook.cells = with_notes(list(_marked(notebook.cells, labels(page))), page, notes(page))
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _folded(cell.source)
    return _finished(notebook, page, "instructor")


def whole(page: str) -> nbformat.NotebookNode:
    """The download of a chapter; Broken if a solution in it does not begin and end with a mark of its own."""
    text = chapters.source(page)
    solutions = len(notebooks.SOLUTION.findall(text))
    if solutions != len(re.findall(r"\{solution(?:-start)?\}", text)) or solutions != text.count("{solution-end}"):
        raise chapters.Broken(f"{page}.md: every solution has a solution-start and a solution-end")
    notebook = copy.deepcopy(_download(page, text))
    notebook.cells = [cell for cell in notebook.cells if cell.id != "how-to-run"]
    return notebook


@lru_cache(maxsize=64)
def _download(page: str, text: str) -> nbformat.NotebookNode:
    return runs.download(page)


def labels(page: str) -> list[str]:
    """The labels of a chapter's solutions, in order."""
    return [match["label"] for match in notebooks.SOLUTION.finditer(chapters.source(page))]


def _title(page: str) -> str:
    (title, *_) = re.findall(r"^# +(.+?) *$", chapters.source(page), re.M)
    return str(title)


def _finished(notebook: nbformat.NotebookNode, page: str, edition: str) -> nbformat.NotebookNode:
    """With a first cell that says what this is; valid."""
    other = {
        "student": "Solutions are in the instructor's edition.",
        "instructor": "With solutions, teaching notes and the book's own outputs; students get the other edition.",
    }[edition]
    head = (
        f"**{_title(page)}**, {edition}'s edition. Page `{page}.html` of *Learning to Adapt*, version {version()}.\n\n"
        f"To run it, install the book's package into Python {_python()} (`pip install .` in the book's repository, or "
        f"`pip install icl_book-{version()}-py3-none-any.whl` from its release) and open this file in Jupyter. "
        f"It needs no data and no network. {other}\n\n{_LICENCES}"
    )
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell(head, id="about"))
    notebook.metadata["icl"] = {"edition": edition, "page": page, "version": version()}
    nbformat.validate(notebook)
    return notebook


def _python() -> str:
    needed = _project(chapters.words(ROOT / "pyproject.toml"))["requires-python"]
    return f"{needed.removeprefix('>=')} or newer"


def _folded(text: str) -> str:
    """Hints shut, as on the page."""

    def shut(match: re.Match[str]) -> str:
        body = re.sub(r"^> ?", "", match["body"], flags=re.M).strip()
        return f"<details><summary>Hint</summary>\n\n{body}\n\n</details>\n"

    return _HINT.sub(shut, f"{text}\n").strip()


def _marked(cells: Cells, names: list[str]) -> Iterator[nbformat.NotebookNode]:
    """The cells, with a bar above and below each solution."""
    left, current = iter(names), None
    for cell in cells:
        inside = "solution" in cell.metadata.get("tags", [])
        begins = inside and cell.source.startswith("#### Solution")
        if current and (begins or not inside):
            yield _bar("End of the solution", f"end-of-{current}")
            current = None
        if begins:
            current = next(left)
            cell.source = cell.source.removeprefix("#### Solution").strip()
            yield _bar("Solution", f"solution-of-{current}")
        if inside and cell.cell_type == "code":
            cell.metadata.pop("jupyter", None)
        if cell.source:
            yield cell
    if current:
        yield _bar("End of the solution", f"end-of-{current}")


def _bar(words: str, name: str) -> nbformat.NotebookNode:
    source = f'<div class="alert alert-block alert-success"><b>{words}</b></div>'
    return nbformat.v4.new_markdown_cell(source, id=name[:64], metadata={"tags": ["solution"]})


def _notes(page: str) -> str:
    path = ROOT / "book/course/notes" / f"{Path(page).name}.md"
    return chapters.words(path) if path.is_file() else ""


def notes(page: str) -> dict[str, str]:
    """A chapter's teaching notes by heading; empty if there are none. Broken if a heading has two.

    What stands before the first heading is of the whole chapter: it is the title's.
    """
    preface, *parts = re.split(r"^## +", _notes(page), flags=re.M)
    preface = re.sub(r"^# .*$", "", preface, flags=re.M).strip()
    found: dict[str, str] = {}
    for part in [f"{_title(page)}\n{preface}"] * bool(preface) + parts:
        heading, _, body = part.partition("\n")
        if _same(heading) in map(_same, found):
            raise chapters.Broken(f"book/course/notes/{Path(page).name}.md: {heading.strip()!r} has two notes")
        found[heading.strip()] = notebooks.plain(body)
    return found


def _same(heading: str) -> str:
    """Normalised heading for comparison: its words, without emphasis and links."""
    return " ".join(notebooks.plain(heading).replace("*", "").replace("`", "").split())


def with_notes(cells: Cells, page: str, by_heading: dict[str, str]) -> Cells:
    """The cells, each note in one of its own under its heading; Broken if the chapter has no such heading, or two."""
    wanted = {_same(heading): body for heading, body in by_heading.items()}
    out: Cells = []
    used: list[str] = []
    for cell in cells:
        rest, part = cell.source, 0
        found = [] if cell.cell_type == "code" else [m for m in _HEADING.finditer(rest) if _same(m["words"]) in wanted]
        start = 0
        for match in found:
            heading = _same(match["words"])
            used.append(heading)
            above = rest[start : match.end()].strip()
            out.append(nbformat.v4.new_markdown_cell(above, id=f"{cell.id}-{part}", metadata=cell.metadata))
            lines = ["**For the instructor**", "", *wanted[heading].split("\n")]
            body = "\n".join(f"> {line}".rstrip() for line in lines)
            name = f"note-{len(used)}"
            out.append(nbformat.v4.new_markdown_cell(body, id=name, metadata={"tags": ["instructor"]}))
            start, part = match.end(), part + 1
        if not found:
            out.append(cell)
        elif rest[start:].strip():
            below = rest[start:].strip()
            out.append(nbformat.v4.new_markdown_cell(below, id=f"{cell.id}-{part}", metadata=cell.metadata))
    path = f"book/course/notes/{Path(page).name}.md"
    for heading in by_heading:
        if (times := used.count(_same(heading))) != 1:
            there = "no heading" if not times else f"{times} headings"
            raise chapters.Broken(f"{path}: {page}.md has {there} {heading!r}")
    return out


def text_of(notebook: nbformat.NotebookNode) -> bytes:
    """A notebook as the text of its file."""
    return (json.dumps(notebook, sort_keys=True, indent=1, ensure_ascii=False) + "\n").encode()


def make(out: Path) -> list[Path]:
    """Write student/<part>/<chapter>.ipynb and instructor/<part>/<chapter>.ipynb for every chapter."""
    if stale := [page for page in pages() if runs.cached(page) is None]:
        others = f" and of {len(stale) - 1} other chapters" if len(stale) > 1 else ""
        raise Missing(f"needs the run of {stale[0]}.md{others} as they are now: `make book` runs them")
    made = []
    for edition, of in (("student", student), ("instructor", instructor)):
        for page in pages():
            path = out / edition / f"{page.removeprefix('book/')}.ipynb"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text_of(of(page)))
            made.append(path)
    return made
