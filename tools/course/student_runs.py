"""Run the students' notebooks as a student would, and again with the solutions filled in.

    python tools/course/student_runs.py adaptation/depth    these
    python tools/course/student_runs.py --sample            two, which the commit draws
    python tools/course/student_runs.py --all               every chapter (the weekly check)
    python tools/course/student_runs.py --apart ...         the two versions in two runs, and not in one

A student's notebook runs in an empty folder with the package from its wheel. No cell may fail; each blank says "not
yet", and with the exercise's solution under the blank's name the same check passes. One run shows both: after a blank's
cell follow its solution and the check once more, and then the names are put back as they were. With --apart that run is
compared with one of the student's notebook alone: every cell has to put out the same.
"""

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "book" / "_ext"))

import chapters
import check_reproducible
import nbformat
import runs

from course import cells, notebooks

_FILLED, _APART = "filled-", ", alone"
_BEFORE = "__names = dict(globals())\n"
_AFTER = """
for __name in set(globals()) - set(__names):
    if not __name.startswith("_"):
        del globals()[__name]
globals().update({k: v for k, v in __names.items() if not k.startswith("_")})
del __names, __name
"""


@dataclass(frozen=True)
class Outcome:
    """Counts of a chapter's blanks: in total, unsolved ("not yet"), and passing once filled."""

    blanks: int
    not_yet: int
    passed: int
    faults: tuple[str, ...]


def filled(page: str, student: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A student's notebook with a cell behind each blank's that solves it, checks it, and takes the solution back."""
    full = notebooks.full_notebook(page).cells
    lost = cells.imports_lost(full)
    behind: dict[str, list[nbformat.NotebookNode]] = {}
    for number, blank in enumerate(cells.blanks(full, notebooks.labels(page))):
        # Names are put back in a cell of its own, for a cell shows what its last line gives.
        parts = (f"{_BEFORE}{lost}\n{blank.solution}\n{blank.check}", _AFTER)
        behind[full[blank.cell].id] = behind.get(full[blank.cell].id, []) + [
            nbformat.v4.new_code_cell(part, id=f"{_FILLED}{number}-{half}") for half, part in enumerate(parts)
        ]
    twin = nbformat.from_dict(json.loads(json.dumps(student)))
    twin.cells = [cell for mine in twin.cells for cell in (mine, *behind.get(mine.id, ()))]
    return twin


def assess(page: str, run: nbformat.NotebookNode) -> Outcome:
    """Results of the blanks in an executed notebook."""
    blanks = cells.blanks(notebooks.full_notebook(page).cells, notebooks.labels(page))
    halves = [_checks(run, solved) for solved in (False, True)]
    yet = [c for c in halves[0] if not c["passed"] and c["message"].startswith("not yet")]
    right = [c for c in halves[1] if c["passed"]]
    faults = [f"{c['name']}: a blank says {c['message']!r}" for c in halves[0] if c not in yet]
    faults += [f"{c['name']}: its solution says {c['message']!r}" for c in halves[1] if c not in right]
    faults += [f"{len(half)} checks for {len(blanks)} blanks" for half in halves if len(half) != len(blanks)]
    return Outcome(len(blanks), len(yet), len(right), tuple(faults))


def _checks(run: nbformat.NotebookNode, solved: bool) -> list[dict[str, Any]]:
    mine = [cell for cell in run.cells if cell.id.startswith(_FILLED) == solved]
    return runs.outputs(nbformat.v4.new_notebook(cells=mine), runs.EXERCISE)


def differences(alone: nbformat.NotebookNode, together: nbformat.NotebookNode) -> list[str]:
    """Cells that put out something else beside the filled blanks than in the student's notebook."""
    other = {cell.id: cell for cell in together.cells}
    return [
        f"{cell.id} puts out something else beside the solutions"
        for cell in alone.cells
        if cell.cell_type == "code" and plain(cell) != plain(other[cell.id])
    ]


def plain(cell: nbformat.NotebookNode) -> str:
    """Normalised output of a cell: printed text joined, cell numbers and memory addresses removed."""
    text = "".join(output.text for output in cell.outputs if output.output_type == "stream")
    rest = [output.data for output in cell.outputs if "data" in output]
    return re.sub(r" at 0x\w+", "", json.dumps([text, rest], sort_keys=True))


def run(pages: list[str], apart: bool = False, workers: int = 2) -> int:
    """Run these chapters' students' notebooks; return an exit status."""
    students = {page: notebooks.student(page) for page in pages}
    work = {page: filled(page, student) for page, student in students.items()}
    work |= {f"{page}{_APART}": student for page, student in students.items() if apart}
    outcomes: dict[str, Outcome] = {}
    ran, wrong = dict[str, nbformat.NotebookNode](), dict[str, list[str]]()
    with runs.unpacked_wheel() as package:
        for name, notebook, _, error in runs.execute_in_parallel(
            work, runs.kernel_environment(package=package), workers
        ):
            ran[name] = notebook
            if error:
                wrong.setdefault(name.removesuffix(_APART), []).append(error)
    for page in pages:
        if page not in wrong:
            outcomes[page] = assess(page, ran[page])
            wrong[page] = list(outcomes[page].faults)
            wrong[page] += differences(ran[page + _APART], ran[page]) if apart else []
        if wrong[page]:
            print(f"{page}:", *wrong[page], sep="\n")

    faultless = [page for page in pages if not wrong[page]]
    counts = [sum(getattr(o, name) for o in outcomes.values()) for name in ("blanks", "not_yet", "passed")]
    print("{} blanks: {} say not yet, {} pass when filled".format(*counts), end=", ")
    print(f"in {len(faultless)} of {len(pages)} chapters nothing is wrong")
    return int(len(faultless) < len(pages))


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", metavar="page", help="such as adaptation/depth")
    parser.add_argument("--sample", action="store_true", help="those that the commit draws")
    parser.add_argument("--all", action="store_true", help="every chapter")
    parser.add_argument("--apart", action="store_true", help="the two versions in two runs, compared with one")
    parser.add_argument("--workers", type=int, default=2, help="kernels at a time")
    options = parser.parse_args(arguments)
    if not (options.pages or options.sample or options.all):
        parser.error("name pages, or ask for --sample or --all")

    def work() -> int:
        named = [f"book/{page.removeprefix('book/').removesuffix('.md')}" for page in options.pages]
        if unknown := set(named) - set(notebooks.pages()):
            raise chapters.Broken(f"{min(unknown)}: there is no such chapter")
        if options.sample:
            named = check_reproducible.sample(notebooks.pages(), check_reproducible.commit())
        return run(named or notebooks.pages(), options.apart, options.workers)

    return chapters.run_command(work)


if __name__ == "__main__":
    sys.exit(main())
