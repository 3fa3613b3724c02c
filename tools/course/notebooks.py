"""Each chapter as a pair of notebooks: for students without the solutions, for instructors with all of it.

Both are the notebook that the chapter's page offers for download. The student's has lost the solutions and what only
they needed, and has no outputs. The instructor's has the solutions marked, the teaching notes of
`book/course/notes/<chapter>.md` under the headings they are keyed by, and the outputs of the book's own run of the
chapter, which is not run again.
"""

import copy
import json
import re
from collections.abc import Iterator
from functools import lru_cache
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


def pages() -> list[str]:
    """The chapters of the book's parts that have cells, in the reader's order."""
    return chapters.in_parts()


def student(page: str) -> nbformat.NotebookNode:
    """A chapter for students: hints, blanks and their checks, and no solutions."""
    notebook = full_notebook(page)
    notebook.cells = for_students(notebook.cells)
    return _finished(notebook, page, "student")


def instructor(page: str) -> nbformat.NotebookNode:
    """A chapter for instructors: all of it, as the book ran it; Missing if it was not run as it is now."""
    notebook, run = full_notebook(page), runs.cached(page)
    if run is None:
        raise Missing(f"needs the run of {page}.md as it is now: `make book` runs it")
    for proof in transclude.proofs(_notes(page)):
        try:
            transclude.sentence(proof, transclude.run_of(transclude.page_of(proof)))
        except chapters.Broken as error:
            raise chapters.Broken(f"book/course/notes/{Path(page).name}.md: {error}") from None
    runs.with_outputs(notebook, run)
    notebook.cells = with_notes(list(_marked(notebook.cells, labels(page))), page, notes(page))
    return _finished(notebook, page, "instructor")


def full_notebook(page: str) -> nbformat.NotebookNode:
    """The download of a chapter; Broken if a solution in it does not begin and end with a mark of its own."""
    text = chapters.source(page)
    solutions = len(notebooks.SOLUTION.findall(text))
    if solutions != len(re.findall(r"\{solution(?:-start)?\}", text)) or solutions != text.count("{solution-end}"):
        raise chapters.Broken(f"{page}.md: every solution has a solution-start and a solution-end")
    return copy.deepcopy(_download(page, text))


@lru_cache(maxsize=64)
def _download(page: str, text: str) -> nbformat.NotebookNode:
    return runs.download(page, nested=True)


def labels(page: str) -> list[str]:
    """The labels of a chapter's solutions, in order."""
    return [match["label"] for match in notebooks.SOLUTION.finditer(chapters.source(page))]


def _finished(notebook: nbformat.NotebookNode, page: str, edition: str) -> nbformat.NotebookNode:
    """With a first cell that says what this is; valid."""
    other = {
        "student": "Solutions are in the instructor's edition.",
        "instructor": "With solutions, teaching notes and the book's own outputs; students get the other edition.",
    }[edition]
    head = (
        f"**{chapters.title(page)}**, {edition}'s edition. Page `{page}.html` of *Learning to Adapt*, "
        f"version {notebooks.version()}.\n\n{notebooks.how_to_run(page)} {other}\n\n{notebooks.LICENCES}"
    )
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell(head, id="about"))
    notebook.metadata["icl"] = {"edition": edition, "page": page, "version": notebooks.version()}
    nbformat.validate(notebook)
    return notebook


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
            heading, _, rest = cell.source.partition("\n")
            cell.source = rest.strip()
            yield _bar(heading.strip("# "), f"solution-of-{current}")
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
    by_heading: dict[str, str] = {}
    for part in [f"{chapters.title(page)}\n{preface}"] * bool(preface) + parts:
        heading, _, body = part.partition("\n")
        if _same(heading) in map(_same, by_heading):
            raise chapters.Broken(f"book/course/notes/{Path(page).name}.md: {heading.strip()!r} has two notes")
        by_heading[heading.strip()] = notebooks.plain(runs.filled(body))
    return by_heading


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
        matches = (
            [] if cell.cell_type == "code" else [m for m in _HEADING.finditer(rest) if _same(m["words"]) in wanted]
        )
        start = 0
        for match in matches:
            heading = _same(match["words"])
            used.append(heading)
            above = rest[start : match.end()].strip()
            out.append(nbformat.v4.new_markdown_cell(above, id=f"{cell.id}-{part}", metadata=cell.metadata))
            lines = ["**For the instructor**", "", *wanted[heading].split("\n")]
            body = "\n".join(f"> {line}".rstrip() for line in lines)
            name = f"note-{len(used)}"
            out.append(nbformat.v4.new_markdown_cell(body, id=name, metadata={"tags": ["instructor"]}))
            start, part = match.end(), part + 1
        if not matches:
            out.append(cell)
        elif rest[start:].strip():
            below = rest[start:].strip()
            out.append(nbformat.v4.new_markdown_cell(below, id=f"{cell.id}-{part}", metadata=cell.metadata))
    path = f"book/course/notes/{Path(page).name}.md"
    for heading in by_heading:
        if (times := used.count(_same(heading))) != 1:
            count = "no heading" if not times else f"{times} headings"
            raise chapters.Broken(f"{path}: {page}.md has {count} {heading!r}")
    return out


def text_of(notebook: nbformat.NotebookNode) -> bytes:
    """A notebook as the text of its file."""
    return (json.dumps(notebook, sort_keys=True, indent=1, ensure_ascii=False) + "\n").encode()


def make(out: Path) -> list[Path]:
    """Write student/<part>/<chapter>.ipynb and instructor/<part>/<chapter>.ipynb for every chapter."""
    if stale := [page for page in pages() if runs.cached(page) is None]:
        rest = f" and of {len(stale) - 1} other chapters" if len(stale) > 1 else ""
        raise Missing(f"needs the run of {stale[0]}.md{rest} as they are now: `make book` runs them")
    paths = []
    for edition, of in (("student", student), ("instructor", instructor)):
        for page in pages():
            path = out / edition / f"{page.removeprefix('book/')}.ipynb"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text_of(of(page)))
            paths.append(path)
    return paths
