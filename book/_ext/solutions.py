"""Chapters' self-checks outside their pages: their cases, their solutions, and what becomes of other attempts.

Of a chapter runs only what the self-checks' cases and the solutions need.
"""

import ast
import contextlib
import dis
import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import chapters
import yaml

from icl_book import exercises

#: The usual wrong answers, by label.
MISTAKES = chapters.ROOT / "book/course/misconceptions.yml"


def labels() -> dict[str, list[str]]:
    """Labels of the sealed exercises, by page."""
    by_page = {page: chapters.answers_of(chapters.source(page)) for page in chapters.with_cells()}
    return {page: names for page, names in by_page.items() if names}


def mistakes() -> dict[str, dict[str, tuple[str, str]]]:
    """By label and misconception, a text of the solution and what stands in its place."""
    read: dict[str, dict[str, tuple[str, str]]] = yaml.safe_load(MISTAKES.read_text(encoding="utf-8"))
    return read


def replaced(source: str, text: str, instead: str) -> str:
    """A solution with one text replaced; ValueError if the text does not stand there once."""
    if source.count(text) != 1:
        raise ValueError(f"{text!r} stands {source.count(text)} times in the solution")
    return source.replace(text, instead)


#: What sets a name, and what reads one, with the bits below the number of the name. To look at each byte here takes a
#: tenth of the time of `dis.get_instructions`, and a chapter has thousands.
_STORE, _LOADS = dis.opmap["STORE_NAME"], {dis.opmap["LOAD_NAME"]: 0, dis.opmap["LOAD_GLOBAL"]: 1}


class Statement:
    """A statement of a chapter, and the chapter's names that it reads, sets, sets before it reads, and changes."""

    IN_PLACE = ("append", "backward", "copy_", "extend", "fill_", "load_state_dict", "pop", "update")

    def __init__(self, node: ast.stmt) -> None:
        self.node = node
        self.defines = isinstance(node, ast.FunctionDef | ast.ClassDef)
        self.code = compile(ast.Module([node], []), "chapter", "exec")
        self.first: dict[str, bool] = {}
        self.reads: set[str] = set()
        self.words: set[str] = set()  # all names in it, be they of modules
        self.sets: set[str] = set()
        self._look(self.code)
        self.sets |= set() if self.defines else self._changes()

    def _look(self, code: CodeType) -> None:
        """At what the bytecode does to names: that of functions only reads the chapter's."""
        self.words.update(code.co_names)
        high = 0
        for kind, low in zip(code.co_code[::2], code.co_code[1::2], strict=True):
            place, high = high | low, (high | low) << 8 if kind == dis.EXTENDED_ARG else 0
            if kind == _STORE and code is self.code:
                self.first.setdefault(code.co_names[place], True)
                self.sets.add(code.co_names[place])
            elif kind in _LOADS:
                name = code.co_names[place >> _LOADS[kind]]
                self.first.setdefault(name, False)
                self.reads.add(name)
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self._look(inner)

    def _changes(self) -> set[str]:
        """Names of what is written into or changed by a method."""
        changed: set[str] = set()
        for node in ast.walk(self.node):
            inside: ast.expr | None = None
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
        """True if a name is assigned here, independently of its old value."""
        return self.first.get(name, False) and not isinstance(self.node, ast.If)


def label_of(node: ast.AST) -> str | None:
    """The label with which a statement is a self-check."""
    call = getattr(node, "value", None)
    if (
        isinstance(call, ast.Call)
        and getattr(call.func, "id", "") == "check"
        and isinstance(call.args[1], ast.Constant)
    ):
        return str(call.args[1].value)
    return None


def required_statements(statements: list[Statement]) -> list[int]:
    """Numbers of the statements without which the self-checks do not run, or run on other cases."""
    numbers: set[int] = set()
    queue: list[tuple[str, int]] = []
    for number, statement in enumerate(statements):
        if label_of(statement.node):
            numbers.add(number)
            queue += [(name, number) for name in statement.reads]
    # A generator's numbers depend on all that drew from it before.
    streams = {
        name for s in statements if isinstance(s.node, ast.Assign) and "default_rng" in s.words for name in s.sets
    }
    drawing = {name: s.reads & streams for s in statements if s.defines for name in s.sets}
    seen: set[tuple[str, int]] = set()
    while queue:
        name, before = queue.pop()
        if (name, before) in seen:
            continue
        seen.add((name, before))
        for number in range(before - 1, -1, -1):
            s = statements[number]
            touched = s.reads.union(*(drawing.get(read, ()) for read in s.reads))
            if name in s.sets or (name in streams and name in touched and not s.defines):
                numbers.add(number)
                # What a function reads it reads when it is called.
                queue += [(read, before if s.defines else number) for read in s.reads]
                if s.anew(name):
                    break
    return sorted(numbers)


class Page:
    """A chapter's self-checks, with what they need."""

    def __init__(self, page: str) -> None:
        cells = chapters.code_cells(chapters.source(page))
        parts = [(cell, node) for cell in cells for node in ast.parse(cell).body]
        statements = [Statement(node) for _, node in parts]
        self.checks = {label: s.node for s in statements if (label := label_of(s.node))}
        self.functions = {node.name: (cell, node) for cell, node in parts if isinstance(node, ast.FunctionDef)}
        self.names: dict[str, Any] = {"__name__": "a chapter"}
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(), _no_checks():
            warnings.simplefilter("ignore")
            for number in required_statements(statements):
                exec(statements[number].code, self.names)
        self.names["check"] = exercises.check

    def solution(self, label: str) -> str:
        """The name of the function that solves an exercise."""
        (name,) = {n.id for n in ast.walk(self.checks[label]) if isinstance(n, ast.Name) and n.id.endswith("_solution")}
        return name

    def source(self, label: str) -> str:
        """The text of the function that solves an exercise."""
        return ast.get_source_segment(*self.functions[self.solution(label)]) or ""

    def define(self, source: str) -> Callable[..., Any]:
        """The function that a text defines, among the chapter's names."""
        local: dict[str, Any] = {}
        exec(source, dict(self.names), local)
        function: Callable[..., Any] = local.popitem()[1]
        return function

    def cases(self, label: str) -> list[dict[str, Any]]:
        """The cases of a self-check."""
        cases: list[dict[str, Any]] = self._evaluate_check(label, lambda _attempt, _label, cases, **_: list(cases))
        return cases

    def attempt(self, label: str, source: str) -> Callable[..., Any]:
        """Values to compare with the sealed answers if the solution is the function that `source` defines."""
        attempt: Callable[..., Any] = self._evaluate_check(
            label, lambda attempt, *_, **__: attempt, self.define(source)
        )
        return attempt

    def outcome(self, label: str, source: str) -> exercises.SelfCheck:
        """Of the self-check, if the solution is the function that `source` defines."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a wrong answer may divide by zero
            outcome: exercises.SelfCheck = self._evaluate_check(label, exercises.check, self.define(source))
        return outcome

    def _evaluate_check(self, label: str, check: Callable[..., Any], solution: Callable[..., Any] | None = None) -> Any:
        """Result of a self-check's call, with `check` and the solution replaced by other functions."""
        names = self.names | {"check": check}
        if solution is not None:
            names[self.solution(label)] = solution
        call = self.checks[label]
        assert isinstance(call, ast.Expr)
        return eval(compile(ast.Expression(call.value), "check", "eval"), names)


@contextmanager
def _no_checks() -> Iterator[None]:
    """While a chapter's statements run, self-checks among them do nothing."""
    check = exercises.check
    exercises.check = lambda *_, **__: None  # type: ignore[assignment]
    try:
        yield
    finally:
        exercises.check = check
