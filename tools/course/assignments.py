"""Problem sets as a course folder of nbgrader, from the text notebooks in book/course/assignments.

A code cell of a problem set says in its options what it is: `given` is handed out as it stands, `answer` is where a
student writes the named function, `shown` tries it on a case in sight and earns nothing, `hidden` earns its `points` on
cases that are taken out before the set is handed out. `graded` runs a set in this process, as nbgrader's kernel does.
"""

import ast
import builtins
import contextlib
import copy
import functools
import hashlib
import io
import linecache
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chapters
import nbformat
from nbformat import NotebookNode

from course import ROOT

SOURCES = ROOT / "book" / "course" / "assignments"
#: What a student finds where the answer belongs.
STUB = 'raise NotImplementedError("not written yet")'
#: A hidden test begins with these lines: what students did to the names, or to the module, is undone.
RELOAD = """import numpy as np
from importlib import reload
from icl_book import grading
grading = reload(grading)"""
#: Then an answer known to be wrong must earn nothing, whatever `grading.earn` now is.
CANARY = """try:
    grading.earn(lambda: 0.0, [{}], [1.0])
except AssertionError:
    pass
else:
    raise AssertionError("no marks: an answer known to be wrong passes, so the grader was changed")"""
FRESH = f"{RELOAD}\n{CANARY}"
BEGIN, END = "### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"
_SOLUTION = re.compile(r"^( *)### BEGIN SOLUTION\n.*?^ *### END SOLUTION$", re.M | re.S)
_HIDDEN = re.compile(rf"^{BEGIN}\n.*?^{END}$\n?", re.M | re.S)


@dataclass(frozen=True)
class Cell:
    """A code cell of a problem set: what it is ("given", "answer", "shown", "hidden"), of which exercise, its code."""

    role: str
    exercise: str
    source: str
    points: int = 0


def names() -> list[str]:
    """The problem sets, in order."""
    return sorted(path.stem for path in SOURCES.glob("ps*.md"))


def notebook(name: str) -> NotebookNode:
    """A problem set as nbgrader's source notebook, always the same; Broken if a cell is not as it must be."""
    return copy.deepcopy(_notebook(name, (SOURCES / f"{name}.md").read_text(encoding="utf-8")))


@functools.cache
def _notebook(name: str, text: str) -> NotebookNode:
    read = chapters.read(text)
    cells, counts = [], dict[str, int]()
    for cell in read.cells:
        role, exercise, points = _role(name, cell)
        kind = f"{name}-{exercise}-{role}" if exercise else f"{name}-{role}"
        counts[kind] = counts.get(kind, 0) + 1
        grade_id = kind if role in ("answer", "shown") else f"{kind}-{counts[kind]}"
        settings: dict[str, Any] = {
            "grade": role == "hidden",
            "grade_id": grade_id,
            "locked": role != "answer",
            "schema_version": 3,
            "solution": role == "answer",
            "task": False,
        }
        source = cell.source.strip("\n")
        if role == "hidden":
            settings["points"] = points
            source = source.replace(BEGIN, f"{BEGIN}\n{FRESH}")
        make = nbformat.v4.new_markdown_cell if role == "text" else nbformat.v4.new_code_cell
        built = make(source, metadata={"nbgrader": settings})
        built["id"] = hashlib.sha256(grade_id.encode()).hexdigest()[:12]
        cells.append(built)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    built = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})
    nbformat.validate(built)
    return built


def _role(name: str, cell: NotebookNode) -> tuple[str, str, int]:
    """Role, exercise and points of a cell; Broken if it has none, or its markers do not match its role."""
    if cell.cell_type != "code":
        return "text", "", 0
    roles = [role for role in ("given", "answer", "shown", "hidden") if role in cell.metadata]
    if len(roles) != 1:
        raise chapters.Broken(f"{name}: a code cell must be one of given, answer, shown, hidden: {cell.source[:60]!r}")
    role = roles[0]
    hidden, solution = _HIDDEN.findall(cell.source), _SOLUTION.findall(cell.source)
    points = int(cell.metadata.get("points", 0))
    if len(hidden) != (role == "hidden") or len(solution) != (role == "answer") or (points > 0) != (role == "hidden"):
        raise chapters.Broken(f"{name}: markers or points do not fit a cell that is {role}: {cell.source[:60]!r}")
    return role, "" if role == "given" else str(cell.metadata[role]), points


def cells(name: str) -> tuple[Cell, ...]:
    """The code cells of a problem set in order, with the options that they say."""
    return _cells(name, (SOURCES / f"{name}.md").read_text(encoding="utf-8"))


@functools.cache
def _cells(name: str, text: str) -> tuple[Cell, ...]:
    notebook_cells = []
    for cell in _notebook(name, text).cells:
        if cell.cell_type == "code":
            settings = cell.metadata["nbgrader"]
            role = "given"
            exercise = settings["grade_id"].removeprefix(f"{name}-")
            if found_role := re.fullmatch(r"(\w+)-(answer|shown|hidden)(-\d+)?", exercise):
                exercise, role = found_role[1], found_role[2]
            notebook_cells.append(
                Cell(role, exercise if role != "given" else "", cell.source, settings.get("points", 0))
            )
    return tuple(notebook_cells)


def points(name: str) -> dict[str, int]:
    """The points of each exercise of a problem set, in order."""
    by_exercise: dict[str, int] = {}
    for cell in cells(name):
        if cell.role == "hidden":
            by_exercise[cell.exercise] = by_exercise.get(cell.exercise, 0) + cell.points
    return by_exercise


def solutions(name: str) -> dict[str, str]:
    """The solved answer cell of each exercise."""
    return {cell.exercise: cell.source for cell in cells(name) if cell.role == "answer"}


def released(source: str) -> str:
    """A cell as students get it: a stub in the solution's place, and no hidden test."""
    return _HIDDEN.sub("", _SOLUTION.sub(lambda match: f"{match[1]}{STUB}", source))


def graded(
    name: str, answers: Mapping[str, str] | None = None, added: str = "", only: Sequence[str] = ()
) -> dict[str, int]:
    """Points of every exercise, with these cells in place of the answers; by default the solutions.

    A cell may be added after the first, and all exercises but some may be left out. Run in this process and in one
    namespace of its own, cell by cell. What a cell raises ends that cell alone.
    """
    names_: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins, "In": []}
    earned = {exercise: 0 for exercise in points(name) if exercise in only or not only}
    for number, cell in enumerate(cells(name)):
        if cell.exercise and cell.exercise not in earned:
            continue
        source = (answers or {}).get(cell.exercise, cell.source) if cell.role == "answer" else cell.source
        source += f"\n{added}" if cell.role == "given" else ""
        source = source.replace(f"{RELOAD}\n", "")  # a module of a process that goes on is not to be reloaded
        try:
            _run(source, f"<{name}, cell {number}>", names_)
        except Exception:
            continue
        if cell.role == "hidden":
            earned[cell.exercise] += cell.points
    return earned


def _run(source: str, file: str, names_: dict[str, Any]) -> Any:
    """Run a cell as IPython does, its source where a traceback and `linecache` find it; the value of its last line."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names_.get("In", []).append(source)
    tree = ast.parse(source)
    last = tree.body[-1] if tree.body else None
    tree.body = tree.body[:-1] if isinstance(last, ast.Expr) else tree.body
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(tree, file, "exec"), names_)
        if isinstance(last, ast.Expr):
            return eval(compile(ast.Expression(last.value), file, "eval"), names_)
    return None


def shown(name: str, answers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Result of the visible self-test for every answer: a SelfCheck."""
    names_: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    results: dict[str, Any] = {}
    for number, cell in enumerate(cells(name)):
        if cell.role == "hidden":
            continue
        source = (answers or {}).get(cell.exercise, cell.source) if cell.role == "answer" else cell.source
        value = _run(source, f"<{name}, shown {number}>", names_)
        if cell.role == "shown":
            results[cell.exercise] = value
    return results


def function(name: str, exercise: str) -> types.FunctionType:
    """The solution of an exercise, with what the cells before it give."""
    names_: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    for cell in cells(name):
        if cell.role in ("given", "answer"):
            _run(cell.source, f"<{name}, {cell.exercise}>", names_)
    solution = names_[exercise]
    assert isinstance(solution, types.FunctionType)
    return solution


def table(sets: Sequence[str]) -> str:
    """Exercises, points and what is not allowed, as Markdown."""
    lines = ["| set | exercise | points | not allowed |", "|---|---|---|---|"]
    for name in sets:
        for exercise, worth in points(name).items():
            barred = ", ".join(f"`{one}`" for one in not_allowed(name, exercise))
            lines.append(f"| {name} | `{exercise}` | {worth} | {barred or '-'} |")
    return "\n".join(lines)


def not_allowed(name: str, exercise: str) -> list[str]:
    """Names that the visible self-test of an exercise forbids."""
    for cell in cells(name):
        if cell.role == "shown" and cell.exercise == exercise:
            call = next(node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Call))
            return next((ast.literal_eval(k.value) for k in call.keywords if k.arg == "not_allowed"), [])
    raise KeyError(exercise)


def make(out: Path) -> list[Path]:
    """Write a course folder of nbgrader: source notebooks, settings, what to install, and a teacher's README."""
    sets = names()
    paths = []
    for name in sets:
        path = out / "source" / name / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(nbformat.writes(notebook(name)) + "\n", encoding="utf-8")
        paths.append(path)
    worth = {name: points(name) for name in sets}
    values = {
        "COUNT": sum(map(len, worth.values())),
        "SETS": len(sets),
        "POINTS": sum(sum(one.values()) for one in worth.values()),
        "EACH": ", ".join(f"{name} {sum(worth[name].values())}" for name in sets),
        "TABLE": table(sets),
    }
    readme = (SOURCES / "teacher.md").read_text(encoding="utf-8")
    for word, value in values.items():
        readme = readme.replace(f"{{{word}}}", str(value))
    texts = {"README.md": readme}
    texts |= {file: (SOURCES / file).read_text(encoding="utf-8") for file in ("nbgrader_config.py", "requirements.txt")}
    texts["requirements.lock"] = chapters.words(chapters.ROOT / "requirements.lock")
    for file, text in texts.items():
        (out / file).write_text(text, encoding="utf-8")
        paths.append(out / file)
    return paths
