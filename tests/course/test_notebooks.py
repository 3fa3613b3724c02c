"""Students' notebooks hold no solution, whatever is looked at; instructors' hold all, and their notes."""

import ast
import builtins
import contextlib
import copy
import functools
import gc
import importlib
from pathlib import Path

import chapters
import course
import nbformat
import pytest
import runs
from course import cells, leaks, notebooks, student_runs

#: Pieces of solutions that a notebook may show all the same: where, and why.
SHOWN = {
    "gamma * (w_hat + mu * (y - w_hat @ x) * x)": ("depth", "a layer of that chapter is this rule, and says so"),
    "kalman_pole(1 - 2 * p, crosstalk=1 / rho - 1)": ("when-text-drifts", "the text before it names all of it"),
    "moments[0] - right @ np.linalg.solve(hankel, right)": (
        "heads-and-experts",
        "it needs this floor of other moments",
    ),
    "(gap.mean(), gap.std(ddof=1) / len(gap) ** 0.5)": ("one-benchmark", "a mean and its error, which any study takes"),
    "1 - 2 * beta * b3 + beta ** 2 * b1": ("past-the-assumptions", "asked are the coefficients of the parabola"),
    "d / 2 * (1 - 2 * beta * b3 + beta ** 2 * b1)": ("past-the-assumptions", "asked are the coefficients"),
    "1 - 2 * learnt * beta3 + learnt ** 2 * beta1": ("past-the-assumptions", "the hint displays it"),
    "d / 2 * (1 - 2 * learnt * beta3 + learnt ** 2 * beta1)": ("past-the-assumptions", "the hint displays it"),
    "there the query enters through its own decay alone": ("why-selection", "what follows; asked is the proof"),
}


@pytest.fixture(scope="module", autouse=True)
def nothing_is_collected():
    """A million nodes of trees live until the end: to look through them again and again takes seconds."""
    gc.disable()
    yield
    for kept in (book, secrets, students, cells.tree, cells.nodes, leaks.trees_of):
        kept.cache_clear()
    gc.enable()


@functools.cache
def book() -> list[leaks.Chapter]:
    found = []
    for page in notebooks.pages():
        whole = notebooks.whole(page).cells
        found.append(leaks.Chapter(page, whole, cells.exercises(whole, notebooks.labels(page))))
    return found


@functools.cache
def secrets() -> list[leaks.Secret]:
    return leaks.secrets(book())


@functools.cache
def students() -> dict[str, nbformat.NotebookNode]:
    return {page: notebooks.student(page) for page in notebooks.pages()}


def found(editions):
    """The leaks of these editions' cells, but for what may be shown."""
    return [leak for leak in leaks.leaks(book(), secrets(), editions) if not may_be_shown(leak)]


def may_be_shown(leak):
    """Of a sentence its runs of words, too."""
    told = leak.piece.removeprefix("…") if leak.kind == "text" else leak.piece
    return any(
        told == piece or (leak.kind == "text" and told in piece) for piece in SHOWN if at(leak) == SHOWN[piece][0]
    )


def at(leak):
    return leak.page.rsplit("/", 1)[-1]


def test_nothing_of_a_solution_is_left():
    """No sentence, formula, expression, function or reference of any solution, in any chapter; and no outputs."""
    assert found({page: notebook.cells for page, notebook in students().items()}) == []
    for page, notebook in students().items():
        for cell in notebook.cells:
            assert cell.cell_type == "markdown" or (cell.outputs == [] and cell.execution_count is None), page
            assert "attachments" not in cell
            assert "solution" not in cell.metadata.get("tags", [])


def test_what_may_be_shown_is_shown():
    """Each exception is one; and what an appendix keeps back is a leak, and nothing else needs it."""
    editions = {page: notebook.cells for page, notebook in students().items()}
    left = {(leak.piece, at(leak)) for leak in leaks.leaks(book(), secrets(), editions)}
    assert {(piece, page) for piece, (page, _) in SHOWN.items()} <= left
    for page, names in notebooks.BACK.items():
        whole = notebooks.whole(page).cells
        kept = cells.for_students(whole)
        assert {leak.page for leak in found({page: kept})} == {page}
        assert not names & cells.read(cells.code(cells.for_students(whole, names)))


def asks(cell):
    return cell.cell_type == "code" and list(cells.calls(cell.source, "check"))


def everything(chapter):
    """No solution is taken out."""
    return chapter.cells


def without_code(chapter):
    """The code of solutions is out, their text is not."""
    return [c for c in chapter.cells if not (cells.solves(c) and c.cell_type == "code")]


def without_text(chapter):
    """The text of solutions is out, their code is not."""
    return [c for c in chapter.cells if not (cells.solves(c) and c.cell_type == "markdown")]


def first_cells_only(chapter):
    """Of each solution the cell with its mark is out, and what follows is not."""
    first = {exercise.solution[0] for exercise in chapter.exercises}
    return [c for n, c in enumerate(chapter.cells) if n not in first]


def seals(chapter):
    """Of the solutions' code the references and their `seal` are left."""
    out = []
    for cell in chapter.cells:
        if cells.solves(cell) and cell.cell_type == "code":
            sealed = [node for node, _ in cells.calls(cell.source, "seal")]
            asked = {name for node in sealed for name in cells.read([ast.unparse(node)])}
            kept = [n for n in ast.parse(cell.source).body if getattr(n, "name", "") in asked]
            out += [nbformat.v4.new_code_cell("\n\n".join(map(ast.unparse, [*kept, *sealed])))] if sealed else []
        elif not cells.solves(cell):
            out.append(cell)
    return out


def references(chapter):
    """Checks compare with the reference itself, as they once did."""
    out = [nbformat.from_dict(dict(c)) for c in chapter.cells if not cells.solves(c)]
    by_id = {c.id: c for c in out}
    for exercise in chapter.exercises:
        code = cells.code(chapter.cells[n] for n in exercise.solution)
        for source in code:
            for _, call in cells.calls(source, "seal"):
                inner = ast.unparse(call.args[1])
                functions = [n for s in code for n in ast.parse(s).body if getattr(n, "name", None) == inner]
                (own,) = (
                    by_id[chapter.cells[n].id]
                    for n in exercise.own
                    if asks(chapter.cells[n]) and repr(call.args[0].value)[1:-1] in chapter.cells[n].source
                )
                label = ast.unparse(call.args[0]).replace("'", '"')
                assert label in own.source
                own.source = "\n\n".join([*map(ast.unparse, functions), own.source.replace(label, inner)])
    return out


class Disguise(ast.NodeTransformer):
    """Other names, and the sums and products the other way round."""

    def visit_Name(self, node):
        known = node.id in dir(builtins) or node.id in ("check", "seal", "said")
        return node if known else ast.copy_location(ast.Name(f"{node.id}_1", node.ctx), node)

    def visit_arg(self, node):
        return ast.arg(f"{node.arg}_1")

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        node.name = f"{node.name}_1"
        node.body = [ast.Expr(ast.Constant("Other words.")), *node.body]
        return node

    def visit_BinOp(self, node):
        self.generic_visit(node)
        if isinstance(node.op, ast.Add | ast.Mult):
            node.left, node.right = node.right, node.left
        return node


def disguised(chapter):
    """The code of solutions is left, with other names."""
    out = []
    for cell in without_text(chapter):
        if cells.solves(cell):
            calls = {ast.unparse(node) for node, _ in cells.calls(cell.source, "seal", "check")}
            tree = Disguise().visit(ast.parse(cell.source))
            source = ast.unparse(ast.fix_missing_locations(tree))
            gone = {node for node, _ in cells.calls(source, "seal", "check")} if calls else set()
            source = "\n".join(
                ast.unparse(n) for n in ast.parse(source).body if ast.unparse(n) not in map(ast.unparse, gone)
            )
            cell = nbformat.v4.new_code_cell(source)
        out.append(cell)
    return out


def tucked_away(chapter):
    """Solutions stand where nobody looks: text in a cell's metadata or output, code in comments and in fences."""
    out = [copy.deepcopy(c) for c in chapter.cells if not cells.solves(c)]
    code = [c for c in out if c.cell_type == "code"]
    for number, cell in enumerate(c for c in chapter.cells if cells.solves(c)):
        if cell.cell_type == "code" and number % 2:
            code[0].source += "\n" + "\n".join(f"# {line}" for line in cell.source.split("\n"))
        elif cell.cell_type == "code":
            out[0].source += f"\n\n```python\n{cell.source}\n```\n"
        elif number % 2:
            out[0].metadata[f"alt {number}"] = {"text": cell.source}
        else:
            code[0].outputs.append(nbformat.v4.new_output("stream", text=cell.source))
    return out


def has_text(exercise, chapter):
    texts = [chapter.cells[n].source for n in exercise.solution if chapter.cells[n].cell_type == "markdown"]
    return bool("".join(texts).replace("#### Solution", "").strip())


def has_code(exercise, chapter):
    return any(chapter.cells[n].cell_type == "code" for n in exercise.solution)


def is_sealed(exercise, chapter):
    return any(list(cells.calls_of(chapter.cells[n], "seal")) for n in exercise.solution)


def is_any(exercise, chapter):
    return True


@pytest.mark.parametrize(
    ("naive", "concerns", "least"),
    [
        (everything, is_any, 130),
        (first_cells_only, has_code, 70),
        (without_code, has_text, 100),
        (without_text, has_code, 70),
        (seals, is_sealed, 70),
        (references, is_sealed, 70),
        (disguised, has_code, 70),
        (tucked_away, is_any, 130),
    ],
)
def test_a_naive_edition_is_found_out_at_every_exercise(naive, concerns, least):
    """An edition that leaves some of the solutions leaks at each exercise that has what it leaves."""
    wanted = {e.label for chapter in book() for e in chapter.exercises if concerns(e, chapter)}
    caught = {leak.label for leak in found({chapter.page: naive(chapter) for chapter in book()})}
    assert sorted(wanted - caught) == []
    assert len(wanted) >= least


#: Hints that hold a piece of their solution: why they may.
HINTED = {
    "ex-layer": "the update is the chapter's own; asked is the order of reading and writing, and what is subtracted",
    "ex-text-sorted": "the library's call is given; asked is what the fit shows",
    "ex-gate": "an open question; what the gate sees is where the answer begins",
}


def test_hints_hold_no_solution():
    """Of no other hint does a sentence, or an expression of eight nodes, stand in its solution."""
    assert {leak.label for chapter in book() for leak in leaks.hinted(chapter)} <= set(HINTED)


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


def test_notes_stand_under_headings_that_are_there():
    """Each teaching note has its heading in its chapter."""
    for chapter in book():
        notes = notebooks.notes(chapter.page)
        longer = notebooks.with_notes(chapter.cells, chapter.page, notes)
        assert sum("instructor" in cell.metadata.get("tags", []) for cell in longer) == len(notes)


def executed(source, *outputs):
    return nbformat.v4.new_code_cell(source, outputs=list(outputs), execution_count=1)


def told(name, passed, message):
    data = {runs.EXERCISE: {"name": name, "passed": passed, "message": message}}
    return nbformat.v4.new_output("display_data", data=data)


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
    assert [cell.id for cell in notebook.cells if cell.cell_type == "code"] == ["cell-1", "cell-3"]


def test_an_instructor_gets_all_of_it(one, monkeypatch):
    """Solutions between bars, notes under their headings, outputs of the book's run but for what tells the build."""
    page, _, notes = one
    notes.write_text("# Notes\n\nBegin here.\n\n## A heading\n**Goal.** See it.\n")
    run = notebooks.whole(page)
    ran = [cell for cell in run.cells if cell.cell_type == "code"]
    ran[0].outputs = [nbformat.v4.new_output("stream", text="1.0\n")]
    ran[1].outputs = [
        nbformat.v4.new_output("display_data", data={runs.SAID: "It is"}),
        told("twice", False, "not yet"),
    ]
    monkeypatch.setattr(runs, "cached", lambda page: run)
    made = notebooks.instructor(page)
    sources = [cell.source for cell in made.cells]
    assert sources[1:5] == ["# A *title*", "> **For the instructor**\n>\n> Begin here.", "Words.\n\n## A heading", NOTE]
    assert [c.outputs for c in made.cells if c.cell_type == "code"][:2] == [ran[0].outputs, ran[1].outputs[1:]]
    begins, ends = (
        next(k for k, c in enumerate(made.cells) if c.id == f"{at}-ex-twice") for at in ("solution-of", "end-of")
    )
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
    blank, solved = (next(c for c in run.cells if c.id == name) for name in ("cell-3", "filled-0-0"))
    assert "return sin(x - x) + x + x" in solved.source
    assert "from math import cos, sin" in solved.source
    blank.outputs, solved.outputs = [told("twice", False, "not yet: so")], [told("twice", True, "right")]
    assert student_runs.judged(page, run) == student_runs.Outcome(1, 1, 1, ())
    assert student_runs.differences(run, run) == []
    blank.outputs, solved.outputs = [told("twice", True, "right")], [told("twice", False, "not yet: so")]
    assert student_runs.judged(page, run).faults == (
        "twice: a blank says 'right'",
        "twice: its solution says 'not yet: so'",
    )
    solved.outputs = []
    assert "0 checks for 1 blanks" in student_runs.judged(page, run).faults
    other = copy.deepcopy(run)
    next(c for c in other.cells if c.id == "cell-1").outputs = [nbformat.v4.new_output("stream", text="1")]
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
    monkeypatch.setattr(main, "there", lambda part: f"course.{part}" in parts)
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
    monkeypatch.setattr(student_runs.runs, "wheel", lambda: contextlib.nullcontext(Path()))
    right, noisy = True, False

    def side_by_side(work, *how):
        for name, notebook in work.items():
            for cell in notebook.cells:
                if cell.id == "cell-3":
                    cell.outputs = [told("twice", False, "not yet: it returned nothing")]
                elif cell.id == "filled-0-0":
                    cell.outputs = [told("twice", right, "right")]
                elif cell.id == "cell-1" and noisy and "filled-0-0" not in {c.id for c in notebook.cells}:
                    cell.outputs.append(nbformat.v4.new_output("stream", text="other"))
            yield name, notebook, 1.0, ""

    monkeypatch.setattr(student_runs.runs, "side_by_side", side_by_side)
    assert student_runs.run([page], apart=True) == 0
    assert "1 blanks: 1 say not yet, 1 pass when filled, in 1 of 1 chapters nothing is wrong" in capsys.readouterr().out
    right = False
    assert student_runs.run([page]) == 1
    right, noisy = True, True
    assert student_runs.run([page], apart=True) == 1
    assert "cell-1 puts out something else beside the solutions" in capsys.readouterr().out
