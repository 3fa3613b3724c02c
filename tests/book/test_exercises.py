"""Self-checks tell right from wrong: what readers are tempted to answer is refused, a right answer is not.

An attempt is checked against the sealed numbers on the chapter's own cases. Of a chapter runs only what these cases and
the solutions need.
"""

import ast
import contextlib
import dis
import io
import sys
import warnings
from pathlib import Path
from types import CodeType

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import chapters  # noqa: E402

from icl.page import exercises  # noqa: E402

LABELS = {page: chapters.answers_of(chapters.source(page)) for page in chapters.with_cells()}
LABELS = {page: labels for page, labels in LABELS.items() if labels}
WRONG = yaml.safe_load(Path(__file__).with_name("wrong_answers.yml").read_text(encoding="utf-8"))
#: Right answers that rounding or a naive formula could have turned away.
RIGHT = {
    "ex-orbit": "def other(M): return np.diag(np.full(len(M), np.diag(M).mean()))",
    "ex-pole": """
def other(gamma, d):
    q = (1 - gamma**2) / (d + 1)
    return 2 * gamma / (1 + gamma**2 + q + np.sqrt(((1 - gamma) ** 2 + q) * ((1 + gamma) ** 2 + q)))
""",
    "ex-figure-seeds": "def other(sd, gap): return np.ceil(round(8 * sd**2 / gap**2, 6))",
    "ex-gdpp-newton": """
def other(H, b, a, steps):
    w = np.zeros(len(b))
    for _ in range(2**steps):
        w = w + a * (b - H @ w)
    return w
""",
    "ex-increments": """
def other(Lambda):
    for row in range(len(Lambda) - 1, 0, -1):
        Lambda[row] -= Lambda[row - 1]
    return Lambda
""",
    "ex-scalars-polynomial": """
def other(alpha, gamma):
    t = np.linspace(0, 3, len(alpha) + 1)
    p, s = np.ones_like(t), np.zeros_like(t)
    values = [p]
    for a, g in zip(alpha, gamma):
        s = g * s - t * p
        p = p + a * s
        values.append(p)
    return np.linalg.solve(np.vander(t, increasing=True), np.array(values).T).T
""",
}


#: Whose solution takes seconds; the build sees it pass.
SLOW = {"ex-flow-safe"}


class Statement:
    """A statement of a chapter, and the chapter's names that it reads, sets, sets before it reads, and changes."""

    IN_PLACE = ("append", "backward", "copy_", "extend", "fill_", "load_state_dict", "pop", "update")

    def __init__(self, node: ast.stmt) -> None:
        self.node = node
        self.defines = isinstance(node, ast.FunctionDef | ast.ClassDef)
        self.code = compile(ast.Module([node], []), "chapter", "exec")
        self.first: dict[str, bool] = {}
        self.reads: set[str] = set()
        self.sets: set[str] = set()
        self._look(self.code)
        self.sets |= set() if self.defines else self._changes()

    def _look(self, code: CodeType) -> None:
        """At what the bytecode does to names: that of functions only reads the chapter's."""
        for step in dis.get_instructions(code):
            if step.opname == "STORE_NAME" and code is self.code:
                self.first.setdefault(step.argval, True)
                self.sets.add(step.argval)
            elif step.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
                self.first.setdefault(step.argval, False)
                self.reads.add(step.argval)
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self._look(inner)

    def _changes(self) -> set[str]:
        """Names of what is written into or changed by a method."""
        changed = set()
        for node in ast.walk(self.node):
            inside = None
            if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
                inside = node.value
            elif (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in self.IN_PLACE
            ):
                inside = node.func.value
            while isinstance(inside, ast.Subscript | ast.Attribute):
                inside = inside.value
            if isinstance(inside, ast.Name):
                changed.add(inside.id)
        return changed

    def anew(self, name: str) -> bool:
        """Whether a name is set here whatever it was."""
        return self.first.get(name, False) and not isinstance(self.node, ast.If)


def label_of(node: ast.AST) -> str | None:
    """The label with which a statement is a self-check."""
    call = getattr(node, "value", None)
    if (
        isinstance(call, ast.Call)
        and getattr(call.func, "id", "") == "check"
        and isinstance(call.args[1], ast.Constant)
    ):
        return call.args[1].value
    return None


def needed(statements: list[Statement]) -> list[int]:
    """Numbers of the statements without which the self-checks do not run, or run on other cases."""
    kept, asked = set(), []
    for number, statement in enumerate(statements):
        if label_of(statement.node):
            kept.add(number)
            asked += [(name, number) for name in statement.reads]
    # A generator's numbers depend on all that drew from it before.
    streams = {
        name
        for s in statements
        if isinstance(s.node, ast.Assign) and "default_rng" in ast.unparse(s.node.value)
        for name in s.sets
    }
    drawing = {name: s.reads & streams for s in statements if s.defines for name in s.sets}
    seen = set()
    while asked:
        name, before = asked.pop()
        if (name, before) in seen:
            continue
        seen.add((name, before))
        for number in range(before - 1, -1, -1):
            s = statements[number]
            touched = s.reads.union(*(drawing.get(read, ()) for read in s.reads))
            if name in s.sets or (name in streams and name in touched and not s.defines):
                kept.add(number)
                # What a function reads it reads when it is called.
                asked += [(read, before if s.defines else number) for read in s.reads]
                if s.anew(name):
                    break
    return sorted(kept)


class Page:
    """A chapter's self-checks, with what they need."""

    def __init__(self, page: str) -> None:
        cells = chapters.code_cells(chapters.source(page))
        parts = [(cell, node) for cell in cells for node in ast.parse(cell).body]
        statements = [Statement(node) for _, node in parts]
        self.checks = {label: s.node for s in statements if (label := label_of(s.node))}
        self.functions = {
            node.name: ast.get_source_segment(cell, node) for cell, node in parts if isinstance(node, ast.FunctionDef)
        }
        self.names = {"__name__": "a chapter"}
        with (
            contextlib.redirect_stdout(io.StringIO()),
            warnings.catch_warnings(),
            pytest.MonkeyPatch.context() as patch,
        ):
            warnings.simplefilter("ignore")
            patch.setattr(exercises, "check", lambda *_, **__: None)
            for number in needed(statements):
                exec(statements[number].code, self.names)
        self.names["check"] = exercises.check

    def solution(self, label: str) -> str:
        """The name of the function that solves an exercise."""
        (name,) = {n.id for n in ast.walk(self.checks[label]) if getattr(n, "id", "").endswith("_solution")}
        return name

    def outcome(self, label: str, source: str) -> exercises.SelfCheck:
        """Of the self-check, if the solution is the function that `source` defines."""
        names, made = dict(self.names), {}
        exec(source, names, made)
        names[self.solution(label)] = made.popitem()[1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a wrong answer may divide by zero
            return eval(compile(ast.Expression(self.checks[label].value), "check", "eval"), names)


@pytest.mark.parametrize("page", LABELS)
def test_self_checks_tell_right_from_wrong(page):
    """A chapter's solutions pass, written otherwise too; each of three or more wrong answers to an exercise does not.

    A wrong answer whose text is not in the solution, or is there twice, is named: the solution has changed since.
    """
    chapter, found = Page(page), []
    for label in LABELS[page]:
        solution = chapter.functions[chapter.solution(label)]
        for right in (*([] if label in SLOW else [solution]), *([RIGHT[label]] if label in RIGHT else [])):
            outcome = chapter.outcome(label, right)
            found += [] if outcome.passed else [f"{label}: a right answer is refused: {outcome.message}"]
        assert len(WRONG[label]) >= 3, label
        for why, (text, instead) in WRONG[label].items():
            if solution.count(text) != 1:
                found.append(f"{label}, {why}: {text!r} stands {solution.count(text)} times in the solution")
            elif chapter.outcome(label, solution.replace(text, instead)).passed:
                found.append(f"{label}: a wrong answer passes: {why}")
    assert found == []


def test_each_self_check_has_its_wrong_answers():
    """The tables name the book's labels: each in that of wrong answers, some in that of right ones."""
    labels = [label for page in LABELS for label in LABELS[page]]
    assert sorted(WRONG) == sorted(labels)
    assert set(RIGHT) <= set(labels)
