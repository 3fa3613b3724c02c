"""Take the problem sets through nbgrader as a class would, without a hub, and compare every point with what is due.

    python tools/course/nbgrader_round_trip.py             all problem sets
    python tools/course/nbgrader_round_trip.py ps1 ps3     some
    python tools/course/nbgrader_round_trip.py --venv DIR --to DIR

Needs an environment of its own, .venvs/nbgrader, which sees the packages of the one that runs this and has nbgrader
beside them; the first run makes it. The sets are released, a class of students hands in, nbgrader collects, grades and
writes feedback. What is released and what is fed back is searched for solutions and tests. The exit status is 1 if a
point or a leak is found that should not be there. A set takes two to four minutes.
"""

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "book" / "_ext"))

import nbformat

from course import ROOT, assignments

#: Working answers that call what is not allowed, one a problem set: the exercise, its cell, and package, module and
#: function of what is called. {before} binds a name, {call} is it.
FORBIDDEN = {
    "ps1": (
        "best_factor",
        """{before}
from icl.tasks import DriftingRegression

def best_factor(gamma, n, d, noise):
    task = DriftingRegression(d=d, n=n, gamma=gamma, sigma_w=1.0, sigma_e=(1 - gamma**2) ** 0.5)
    return {call}(task)
""",
        ("icl.theory", "one_layer", "optimal_forgetting"),
    ),
    "ps2": (
        "learning_curve",
        """{before}
from icl.tasks import DriftingRegression

def learning_curve(d, n, gamma, mu, lam):
    task = DriftingRegression(d=d, n=n, gamma=gamma, sigma_w=1.0, sigma_e=(1 - gamma**2) ** 0.5)
    return {call}(task, mu, lam=lam, normalised=True)
""",
        ("icl.theory.steady", "lms_family", "errors"),
    ),
    "ps3": (
        "greedy_register",
        """{before}

def greedy_register(t, gamma):
    p, s, alphas = np.ones_like(t), np.zeros_like(t), []
    for g in gamma:
        s = g * s - t * p
        alpha = {call}(s[:, None], -p, rcond=None)[0][0]
        p = p + alpha * s
        alphas.append(alpha)
    return np.array(alphas)
""",
        ("numpy", "linalg", "lstsq"),
    ),
    "ps4": (
        "gated_delta",
        """{before}
import torch

def gated_delta(q, k, v, g, beta):
    length = np.linalg.norm(k, axis=1, keepdims=True)
    k = k / np.where(length > 0, length, 1.0)
    heads = [torch.tensor(z)[None, :, None] for z in (q, k, v)]
    gates = [torch.tensor(z)[None, :, None] for z in (g, beta)]
    return {call}(*heads, *gates)[0, :, 0].numpy()
""",
        ("icl.models", "operators", "delta_recurrent"),
    ),
}
#: Ways to a function that is not allowed: what stands before, its name, and a cell of its own before the answer's.
WAYS = {
    "by name": ("import {package}", "{package}.{module}.{function}", ""),
    "by alias": ("import {package}.{module} as tidy", "tidy.{function}", ""),
    "by import": ("from {package}.{module} import {function} as tidy", "tidy", ""),
    "by getattr": ("import {package} as tidy", 'getattr(tidy.{module}, "{function}")', ""),
    "by parts": ("import {package} as tidy", 'getattr(tidy.{module}, "{first}" + "{rest}")', ""),
    "from a list": ("", "kept[0]", "import {package}\nkept = [{package}.{module}.{function}]"),
}


@dataclass(frozen=True)
class Student:
    """Simulated student: cells with answers, additional cells, and the points due for every exercise."""

    name: str
    answers: dict[str, str]
    due: dict[str, int]
    added: str = ""


def forbidden(name: str, way: str) -> tuple[str, str, str]:
    """A set's forbidden answer in one of the WAYS: the exercise, its cell, and a cell that is added."""
    exercise, template, (package, module, function) = FORBIDDEN[name]
    words = {"package": package, "module": module, "function": function, "first": function[:3], "rest": function[3:]}
    before, call, added = (part.format(**words) for part in WAYS[way])
    return exercise, template.format(before=before, call=call), added


def endless(exercise: str, inside: str) -> str:
    """An answer that never ends."""
    return f"def {exercise}(**case):\n    while True:\n        {inside}\n"


def copied(name: str, exercise: str) -> str:
    """An answer that returns what the case in sight wants, whatever it is asked."""
    cell = next(c for c in assignments.cells(name) if c.role == "shown" and c.exercise == exercise)
    call = next(node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Call))
    wanted = call.args[2]
    assert isinstance(wanted, ast.List)
    return f"def {exercise}(**case):\n    return np.array({ast.unparse(wanted.elts[0])})\n"


def zero(exercise: str, first: str = "") -> str:
    """An answer that returns 0, after another line."""
    return f"def {exercise}(**case):\n    {first or 'pass'}\n    return 0.0\n"


#: Attacks on the grader by students whose answers are all 0: what stands before the first answer, in a cell that is
#: added, and in every answer.
ATTACKS = {
    "rebinds": ("np.allclose = lambda *a, **k: True", "", ""),
    "rebinds-apart": ("", "np.allclose = lambda *a, **k: True", ""),
    "rebinds-in-dict": ("", "vars(np)['allclose'] = lambda *a, **k: True", ""),
    "rebinds-right": ("", "vars(np)['prod'] = lambda *a, **k: 0.0; vars(np)['where'] = lambda *a, **k: 0.0", ""),
    "mocks": ("", "from unittest import mock\nmock.patch('numpy.allclose', return_value=True).start()", ""),
    "climbs": (
        *("", ""),
        "g = (g.gi_frame.f_back.f_back for _ in [0]); next(g).f_globals['_fault'] = lambda *a: ''",
    ),
}


def students(name: str) -> list[Student]:
    """A class for one problem set."""
    worth, right = assignments.points(name), assignments.solutions(name)
    stub = {exercise: assignments.released(source) for exercise, source in right.items()}
    first, *_, last = worth
    nothing, rest = dict.fromkeys(worth, 0), worth | {first: 0}
    stubborn = endless(first, "try:\n            sum(range(9))\n        except:\n            pass")
    loud = "print('so'); print(1 / np.zeros(1))\n    ### BEGIN SOLUTION"
    talks = {exercise: source.replace("### BEGIN SOLUTION", loud) for exercise, source in right.items()}
    pretend = "staticmethod(lambda *given, **named: None)"
    people = [
        Student("right", right, worth),
        Student("empty", stub, nothing),
        Student("copied", {exercise: copied(name, exercise) for exercise in worth}, nothing),
        Student("one-right", stub | {last: right[last]}, nothing | {last: worth[last]}),
        Student("misspelt", right | {first: f"def {first}(:\n"}, rest),
        Student("talks", talks, worth),
        Student("endless", right | {first: endless(first, "pass")}, rest),
        Student("stubborn", right | {first: stubborn}, rest),
        Student("hangs", right | {first: "while True:\n    pass"}, rest),
        Student("tampers", stub, nothing, "grading.earn = grading.judge = lambda *given, **named: None"),
        Student("shadows", stub, nothing, f"class grading:\n    earn = judge = seeded = {pretend}"),
    ]
    for attack, (before, added, within) in ATTACKS.items():
        answers = {exercise: zero(exercise, within) for exercise in worth}
        answers[first] = f"{before}\n{answers[first]}"
        people.append(Student(attack, answers, nothing, added))
    for way in WAYS:
        exercise, source, added = forbidden(name, way)
        due = worth | {exercise: 0}
        people.append(Student(f"calls-{way.replace(' ', '-')}", right | {exercise: source}, due, added))
    return people


def handed_in(name: str, released: Path, student: Student) -> nbformat.NotebookNode:
    """The released notebook with a student's answers in it, and a cell of the student's own after the first."""
    notebook = nbformat.read(released, as_version=4)
    for cell in notebook.cells:
        settings = cell.metadata.get("nbgrader", {})
        if settings.get("solution"):
            exercise = settings["grade_id"].removeprefix(f"{name}-").removesuffix("-answer")
            cell.source = student.answers[exercise]
    if student.added:
        place = next(i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code") + 1
        notebook.cells.insert(place, nbformat.v4.new_code_cell(student.added, id="mine"))
    return notebook


def leaks(name: str, text: str) -> list[str]:
    """Lines of a problem set's solutions and hidden tests that stand in a text, of twenty letters and more.

    Lines that stand outside of them too, in a statement or a test in sight, are not counted.
    """
    secret, shown = set[str](), set[str]()
    for cell in assignments.notebook(name).cells:
        inside = False
        for line in cell.source.splitlines():
            inside |= "### BEGIN" in line
            (secret if inside else shown).add(line.strip())
            inside &= "### END" not in line
    hidden = secret - shown - set(assignments.FRESH.splitlines())
    return sorted(line for line in hidden if len(line) >= 20 and line in text)


def environment(folder: Path) -> Path:
    """The folder of an environment's programs, made if it is not there: this one's packages, and nbgrader."""
    programs = folder / "bin"
    if not (programs / "nbgrader").is_file():
        print(f"making {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        site = next(path for path in sys.path if path.endswith("site-packages"))
        packages = next((folder / "lib").glob("python*/site-packages"))
        (packages / "book.pth").write_text(f"import site; site.addsitedir({site!r})\n", encoding="utf-8")
        wanted = ["-r", str(assignments.SOURCES / "requirements.txt")]
        pip = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *wanted], check=True)
    return programs


@dataclass(frozen=True)
class Trip:
    """Result of one problem set: points by student and exercise, leaks, and seconds."""

    earned: dict[str, dict[str, float]]
    leaked: list[str]
    seconds: dict[str, float]


def trip(name: str, course: Path, programs: Path, timeout: int) -> Trip:
    """One problem set, from its source to the feedback."""
    environ = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    # nbconvert's templates lie with nbconvert, in the environment that this one sees.
    environ |= {"JUPYTER_PATH": str(Path(sys.prefix) / "share" / "jupyter")}
    environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    seconds: dict[str, float] = {}

    def run(step: str, *arguments: str) -> str:
        began = time.monotonic()
        command = [str(programs / "nbgrader"), step, name, *arguments]
        done = subprocess.run(command, cwd=course, env=environ, capture_output=True, text=True)
        seconds[step] = time.monotonic() - began
        if done.returncode:
            raise SystemExit(f"nbgrader {step} {name} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        return done.stderr

    run("generate_assignment", "--force")
    release = course / "release" / name / f"{name}.ipynb"
    leaked = [f"release: {line}" for line in leaks(name, _all_text(release))]
    given = nbformat.read(release, as_version=4)
    ours = [assignments.released(cell.source).strip() for cell in assignments.notebook(name).cells]
    leaked += ["release: not what `released` says"] * ([cell.source.strip() for cell in given.cells] != ours)
    archive = course / "downloaded" / name / "archive"
    archive.mkdir(parents=True, exist_ok=True)
    people = students(name)
    for student in people:
        nbformat.write(handed_in(name, release, student), archive / f"{student.name}_{name}.ipynb")
    run("zip_collect", "--force")
    run("autograde", "--force", f"--Execute.timeout={timeout}")
    run("generate_feedback", "--force")
    ask = (
        "import json, sys; from nbgrader.api import Gradebook; book = Gradebook('sqlite:///gradebook.db');"
        "print(json.dumps({s.student.id: {g.name: g.score for n in s.notebooks for g in n.grades}"
        f" for s in book.assignment_submissions({name!r})}}))"
    )
    done = subprocess.run(
        [str(programs / "python"), "-c", ask], cwd=course, env=environ, capture_output=True, text=True, check=True
    )
    earned: dict[str, dict[str, float]] = {}
    for who, cells in json.loads(done.stdout).items():
        earned[who] = {
            exercise: sum(score for cell, score in cells.items() if cell.startswith(f"{name}-{exercise}-"))
            for exercise in assignments.points(name)
        }
    for student in people:
        page = course / "feedback" / student.name / name / f"{name}.html"
        answer_lines = {line.strip() for source in student.answers.values() for line in source.splitlines()}
        leaked_lines = [line for line in leaks(name, _without_marks(page)) if line not in answer_lines]
        leaked += [f"feedback of {student.name}: {line}" for line in leaked_lines]
    return Trip(earned, leaked, seconds)


def _all_text(path: Path) -> str:
    return "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)


def _without_marks(page: Path) -> str:
    from bs4 import BeautifulSoup

    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser").get_text()


def report(name: str, outcome: Trip) -> bool:
    """Print a table of a problem set; whether all is as it should be."""
    worth = assignments.points(name)
    print(f"\n{name}: {', '.join(f'{step} {took:.0f} s' for step, took in outcome.seconds.items())}")
    print(f"  {'student':22}{''.join(f'{exercise:>20}' for exercise in worth)}{'sum':>8}{'due':>6}")
    good = not outcome.leaked
    for student in students(name):
        earned = outcome.earned.get(student.name, {})
        fits = earned == {exercise: float(due) for exercise, due in student.due.items()}
        good &= fits
        row = "".join(f"{f'{earned.get(exercise, -1):g} of {worth[exercise]}':>20}" for exercise in worth)
        print(
            f"  {student.name:22}{row}{sum(earned.values()):8g}{sum(student.due.values()):6}{'' if fits else '  WRONG'}"
        )
    print(f"  leaks: {len(outcome.leaked)}")
    for line in outcome.leaked[:20]:
        print(f"    {line}")
    return good


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", default=assignments.names(), help="problem sets; all if none is named")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venvs" / "nbgrader")
    parser.add_argument("--to", type=Path, default=ROOT / "_build" / "nbgrader", help="a folder, emptied first")
    parser.add_argument("--timeout", type=int, default=20, help="seconds a cell may take")
    options = parser.parse_args(arguments)
    programs = environment(options.venv.resolve())
    course = options.to.resolve()
    shutil.rmtree(course, ignore_errors=True)
    course.mkdir(parents=True)
    assignments.make(course)
    (course / "secret.txt").write_text("a class of our own", encoding="utf-8")
    outcomes = [report(name, trip(name, course, programs, options.timeout)) for name in options.sets]
    return int(not all(outcomes))


if __name__ == "__main__":
    sys.exit(main())
