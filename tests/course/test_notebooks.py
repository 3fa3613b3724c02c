"""Students' notebooks hold no solution, whatever is looked at; instructors' hold all, and their notes."""

import ast
import contextlib
import copy
import functools
import importlib
import os
import re
from pathlib import Path

import chapters
import course
import nbformat
import pytest
import runs
from course import cells, notebooks, student_runs

SOLUTIONS = re.compile(r"^```\{solution-start\}.*?^```\{solution-end\}", re.S | re.M)
PAGES = notebooks.pages()


@functools.cache
def students() -> dict[str, nbformat.NotebookNode]:
    return {page: notebooks.student(page) for page in PAGES}


@functools.cache
def parts(page):
    """A chapter's solutions, as its source marks them, and the rest of its source."""
    text = chapters.source(page)
    return "\n".join(SOLUTIONS.findall(text)), SOLUTIONS.sub("", text)


def lines(text):
    """Lines long enough that no other text has them by chance."""
    return {short for line in text.split("\n") if len(short := line.strip(" #>")) >= 24}


@functools.cache
def secret():
    """Lines of solutions that stand outside of solutions nowhere in the book."""
    solved, rest = (set().union(*(lines(parts(page)[side]) for page in PAGES)) for side in (0, 1))
    return solved - rest


def leaks(some):
    """Names and lines of solutions in the cells of a student's notebook, by page.

    A name is that of a function that only the chapter's solutions define, or `seal`.
    """
    found = []
    for page, inside in some.items():
        solved, rest = parts(page)
        names = {"seal", *re.findall(r"^def (\w+)", solved, re.M)} - {*re.findall(r"\bdef (\w+)", rest)}
        read = set(re.findall(r"\w+", "\n".join(cells.code(inside))))
        found += [(page, name) for name in sorted(names & read)]
        found += [(page, line) for line in sorted(secret() & lines("\n".join(cell.source for cell in inside)))]
    return found


def test_nothing_of_a_solution_is_left():
    """No name and no line of any solution, in any chapter, and no outputs."""
    assert leaks({page: notebook.cells for page, notebook in students().items()}) == []
    for page, notebook in students().items():
        for cell in notebook.cells:
            assert cell.cell_type == "markdown" or (cell.outputs == [] and cell.execution_count is None), page
            assert "attachments" not in cell
            assert "solution" not in cell.metadata.get("tags", [])


@pytest.mark.parametrize("kind", ["code", "markdown"])
def test_a_solution_that_is_left_is_found(kind):
    """Of each exercise in turn a cell of the solution that has lost its tag."""
    for page in PAGES:
        whole = notebooks.full_notebook(page).cells
        for number, cell in enumerate(whole):
            if cells.solves(cell) and cell.cell_type == kind and lines(cell.source) & lines(parts(page)[0]):
                untagged = nbformat.from_dict({**cell, "metadata": {}})
                planted = cells.for_students([*whole[:number], untagged, *whole[number + 1 :]])
                assert leaks({page: planted}), cell.source


def test_every_blank_can_be_filled():
    """As many blanks as checks in the students' notebooks; a filled one defines the blank's name and checks it."""
    total = 0
    for page, notebook in students().items():
        twin = student_runs.filled(page, notebook)
        mine = [c for c in twin.cells if not c.id.startswith("filled-")]
        assert [c.source for c in mine] == [c.source for c in notebook.cells]
        solved = [c.source for c in twin.cells if c.id.startswith("filled-") and c.id.endswith("-0")]
        asked = [call for source in cells.code(notebook.cells) for _, call in cells.calls(source, "check")]
        assert len(solved) == len(asked) >= 1, page
        for source, call in zip(solved, asked, strict=True):
            assert cells.read([ast.unparse(call.args[0])]) & cells.functions([source])
            assert not cells.read([source]) & {"seal"}
            assert not any(name.endswith("_solution") for name in cells.read([source]) | cells.bound([source]))
        total += len(solved)
    assert total >= 77


def test_links_lead_to_notebooks_of_the_kit():
    """Those of other parts lie in other folders."""
    kit = {f"{page}.ipynb" for page in PAGES}
    for page, notebook in students().items():
        text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        for link in re.findall(r"\]\((?!http|#)([^)\s]*)\)", text):
            assert os.path.normpath(os.path.join(os.path.dirname(page), link)) in kit, (page, link)


def test_notes_stand_under_headings_that_are_there():
    """Each teaching note has its heading in its chapter."""
    for page in PAGES:
        notes = notebooks.notes(page)
        longer = notebooks.with_notes(notebooks.full_notebook(page).cells, page, notes)
        assert sum("instructor" in cell.metadata.get("tags", []) for cell in longer) == len(notes)


def displayed(data):
    return nbformat.v4.new_output("display_data", data=data)


def told(passed, message):
    """What a check of the page's exercise puts out."""
    return displayed({runs.EXERCISE: {"name": "twice", "passed": passed, "message": message}, "text/plain": message})


def cell_of(notebook, name):
    """The cell of an id."""
    return next(cell for cell in notebook.cells if cell.id == name)


PAGE = """---
kernelspec:
  display_name: Python 3
  name: python3
---

# A *title*

Words.

## A heading

More words.

```{code-cell}
from math import cos, sin

from icl_book.exercises import check, seal

print(cos(0.0))
```

```{exercise-start} Twice
:label: ex-twice
```
Double it.
```{exercise-end}
```

```{code-cell}
def twice(x): ...  # your code


said("It is the sum of the number and itself")
check(twice, "ex-twice", cases)
```

```{dropdown} Hint
Add.
```

```{solution-start} ex-twice
:class: dropdown
```
It is the sum of the number and itself.

```{code-cell}
def twice_solution(x):
    return sin(x - x) + x + x


seal("ex-twice", lambda x: 2 * x, cases)
check(twice_solution, "ex-twice", cases, name="twice")
```
```{solution-end}
```

## The end

Last words.
"""


@pytest.fixture
def one(tmp_path, monkeypatch):
    """A book of one page, with that page's name and its file for notes."""
    page = "book/part/one"
    path = tmp_path / f"{page}.md"
    path.parent.mkdir(parents=True)
    path.write_text(PAGE)
    (tmp_path / "_toc.yml").write_text(f"format: jb-book\nroot: {page}\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2"\nrequires-python = ">=3.11"\n')
    monkeypatch.setattr(chapters, "ROOT", tmp_path)
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    notes = tmp_path / "book/course/notes/one.md"
    notes.parent.mkdir(parents=True)
    return page, path, notes


def code_ids(page):
    """Ids of the chapter's code cells that are no solution's: the first one and the blank."""
    return [c.id for c in notebooks.full_notebook(page).cells if c.cell_type == "code" and not cells.solves(c)]


def test_a_student_gets_the_blank_and_the_hint(one):
    """Out are the solution, the import and the sentence that only it needed; the hint is shut."""
    notebook = notebooks.student(one[0])
    text = notebooks.text_of(notebook).decode()
    assert "def twice(x): ...  # your code\\n\\n\\ncheck(twice" in text
    assert "from math import cos\\n\\nfrom icl_book.exercises import check\\n\\nprint" in text
    assert "<details><summary>Hint</summary>\\n\\nAdd.\\n\\n</details>" in text
    assert "version 1.2" in text
    for gone in ("sin", "seal", "itself", "twice_solution", "Solution", "2 * x"):
        assert gone not in text.replace("Solutions are in", "")
    assert [cell.id for cell in notebook.cells if cell.cell_type == "code"] == code_ids(one[0])


def test_an_instructor_gets_all_of_it(one, monkeypatch):
    """Solutions between bars, notes under their headings, outputs of the book's run but for what tells the build."""
    page, _, notes = one
    notes.write_text("# Notes\n\nBegin here.\n\n## A heading\n**Goal.** See it.\n")
    run = notebooks.full_notebook(page)
    ran = [cell for cell in run.cells if cell.cell_type == "code"]
    ran[0].outputs = [nbformat.v4.new_output("stream", text="1.0\n")]
    ran[1].outputs = [displayed({runs.SAID: "It is"}), told(False, "not yet")]
    monkeypatch.setattr(runs, "cached", lambda page: run)
    made = notebooks.instructor(page)
    sources = [cell.source for cell in made.cells]
    assert sources[1:5] == ["# A *title*", "> **For the instructor**\n>\n> Begin here.", "Words.\n\n## A heading", NOTE]
    outputs = [c.outputs for c in made.cells if c.cell_type == "code"]
    assert outputs[:2] == [ran[0].outputs, [displayed({"text/plain": "not yet"})]]
    begins, ends = (made.cells.index(cell_of(made, f"{at}-ex-twice")) for at in ("solution-of", "end-of"))
    assert [c.source[:6] for c in made.cells[begins + 1 : ends]] == ["It is ", "def tw"]
    assert chapters.code_cells(PAGE) == cells.code(made.cells)
    assert notebooks.text_of(made) == notebooks.text_of(notebooks.instructor(page))
    for text, fault in (
        ("## A hedging\nWords.\n", "no heading 'A hedging'"),
        ("## A heading\nWords.\n\n## *A heading*\nMore.\n", "has two notes"),
        ("## A heading\n{said}`It was <part/one>`.\n", r"notes/one\.md: no cell of book/part/one says 'It was'"),
    ):
        notes.write_text(text)
        with pytest.raises(chapters.Broken, match=fault):
            notebooks.instructor(page)
    notes.write_text("## A heading\n{said}`It is <part/one>`.\n")
    assert "It is." in notebooks.text_of(notebooks.instructor(page)).decode()
    monkeypatch.setattr(runs, "cached", lambda page: None)
    with pytest.raises(course.Missing, match=r"part/one\.md as it is now"):
        notebooks.instructor(page)


NOTE = "> **For the instructor**\n>\n> **Goal.** See it."


def test_a_solution_without_its_end_is_refused(one):
    """It would go on to the end of the student's notebook, or not be seen as one."""
    for broken in (PAGE.replace("```{solution-end}\n```\n", ""), PAGE.replace("{solution-start}", "{solution}")):
        one[1].write_text(broken)
        with pytest.raises(chapters.Broken, match=r"one\.md: every solution has"):
            notebooks.student(one[0])


def test_a_run_is_judged(one):
    """A blank that does not say so and a solution that does not pass are named, and so is a check too few."""
    page = one[0]
    run = student_runs.filled(page, notebooks.student(page))
    first, second = code_ids(page)
    blank, solved = cell_of(run, second), cell_of(run, "filled-0-0")
    assert "return sin(x - x) + x + x" in solved.source
    assert "from math import cos, sin" in solved.source
    blank.outputs, solved.outputs = [told(False, "not yet: so")], [told(True, "right")]
    assert student_runs.assess(page, run) == student_runs.Outcome(1, 1, 1, ())
    assert student_runs.differences(run, run) == []
    blank.outputs, solved.outputs = solved.outputs, blank.outputs
    faults = student_runs.assess(page, run).faults
    assert faults == ("twice: a blank says 'right'", "twice: its solution says 'not yet: so'")
    solved.outputs = []
    assert "0 checks for 1 blanks" in student_runs.assess(page, run).faults
    other = copy.deepcopy(run)
    cell_of(other, first).outputs = [nbformat.v4.new_output("stream", text="1")]
    assert len(student_runs.differences(other, run)) == 1


def test_the_kit_names_what_is_missing(tmp_path, monkeypatch, capsys):
    """Parts are made in folders of their own; one that cannot be made is named and stays as it was, others are made.

    What a command that was killed has left half made goes.
    """
    main = importlib.import_module("course.__main__")
    monkeypatch.setattr(chapters, "ROOT", tmp_path)

    class Part:
        def __init__(self, error=None):
            self.error = error

        def make(self, out):
            if self.error:
                raise self.error
            (out / "file").write_text("text")
            return [out / "file"]

    parts = {
        "course.notebooks": Part(course.Missing("needs a run")),
        "course.slides": Part(),
        "course.questions": Part(ModuleNotFoundError("no", name="text2qti")),
        "course.projects": Part(FileNotFoundError(2, "no", str(main.ROOT / "book/course/projects"))),
    }
    monkeypatch.setattr(main, "is_written", lambda part: f"course.{part}" in parts)
    monkeypatch.setattr(main.importlib, "import_module", parts.get)
    for name in ("slides", "notebooks", "slides.part"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old").write_text("old")
    assert main.main(["--to", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert "notebooks: not made: needs a run\n" in told
    assert "questions: not made: needs the package text2qti" in told
    assert "projects: not made: needs book/course/projects, which is not there" in told
    assert "slides: 1 files, 0.0 kB" in told
    assert [path.name for path in (tmp_path / "slides").iterdir()] == ["file"]
    assert [path.name for path in (tmp_path / "notebooks").iterdir()] == ["old"]
    assert not list(tmp_path.glob("*.part"))
    assert main.main(["slides", "--to", str(tmp_path)]) == 0
    with pytest.raises(SystemExit):
        main.main(["feedback"])


def test_students_notebooks_run(one, monkeypatch, capsys):
    """A solution that does not pass is a fault; with `--apart` so is a cell that puts out something else."""
    page, _, _ = one
    monkeypatch.setattr(student_runs.runs, "unpacked_wheel", lambda: contextlib.nullcontext(Path()))
    right, noisy = True, False
    first, second = code_ids(page)

    def side_by_side(work, *how):
        for name, notebook in work.items():
            cell_of(notebook, second).outputs = [told(False, "not yet: it returned nothing")]
            if "filled-0-0" in {cell.id for cell in notebook.cells}:
                cell_of(notebook, "filled-0-0").outputs = [told(right, "right")]
            elif noisy:
                cell_of(notebook, first).outputs.append(nbformat.v4.new_output("stream", text="other"))
            yield name, notebook, 1.0, ""

    monkeypatch.setattr(student_runs.runs, "execute_in_parallel", side_by_side)
    assert student_runs.run([page], apart=True) == 0
    assert "1 blanks: 1 say not yet, 1 pass when filled, in 1 of 1 chapters nothing is wrong" in capsys.readouterr().out
    right = False
    assert student_runs.run([page]) == 1
    right, noisy = True, True
    assert student_runs.run([page], apart=True) == 1
    assert f"{first} puts out something else beside the solutions" in capsys.readouterr().out
