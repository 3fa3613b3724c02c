"""The question bank as it is written, and the questions that are read from it.

A bank is a file a part, book/course/questions/<part>.yml, a list of questions:

    id: forget-pole                       unlike any other
    chapter: adaptation/how-much-to-forget
    kind: choice                          or several, number
    level: apply                          or recall, understand, analyse
    minutes: 2
    settings: {d: 10, gamma: 0.95}        {=d} in the text, and d in every expression
    values: {error: "EXPRESSION => .2f"}  {=error} in the text
    ask: ...
    right: ...                            of several: a list
    answer: {compute: EXPRESSION, tolerance: 0.01, show: .2f}      of number, in the place of right; {=answer} in texts;
                                          without: [n] are settings that only mislead
    formula: d * (1 - gamma**2)           of number: the answer once more, set in `because` as {=formula}
    because: ...                          why, in one sentence
    wrong:                                a list; of number each has `compute` in the place of `say`
      - say: ...
        believes: ...                     what one would have to believe to choose it
        read: a-heading                   what cures it: a heading of the chapter, or part/page#heading

Text is Markdown with formulas in $...$ and *emphasis*, and no more. An expression is Python over `np`, `tasks`,
`theory` and the settings, so no result is typed. A setting is written once: of a number, `ask` says every setting and
no other number, the answer depends on every setting, and no expression repeats its value. A formula is set by SymPy, so
what is set is what was computed. What a reader is sent to has to be there: a page, and a heading on it.
"""

import ast
import hashlib
import html
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import chapters
import numpy as np
import sympy
import yaml
from docutils.nodes import make_id

from course import ROOT
from icl import tasks, theory

SOURCES = ROOT / "book" / "course" / "questions"
PARTS = ("adaptation", "memory", "selection", "synthesis")
KINDS = ("choice", "several", "number")
LEVELS = ("recall", "understand", "apply", "analyse")
LETTERS = "ABCDEF"
_WORDS = "(?:three|four|five|six|seven|eight|nine|ten|twenty|hundred|thousand)"
_T = TypeVar("_T")
_KEYS = {
    "id",
    "chapter",
    "kind",
    "level",
    "minutes",
    "settings",
    "values",
    "ask",
    "right",
    "answer",
    "formula",
    "because",
    "wrong",
}


@dataclass(frozen=True)
class Heading:
    """A heading of a page, and the page's title, both as Markdown; without a heading the page itself."""

    page: str
    title: str
    heading: str = ""

    @property
    def text(self) -> str:
        """Reference for readers."""
        return f"{self.title} › {self.heading}" if self.heading else self.title


@dataclass(frozen=True)
class Option:
    """One answer that can be given: its text, and if it is wrong, the belief behind it and what to read.

    Of questions that ask for a number it has the number too.
    """

    text: str
    right: bool
    believes: str = ""
    read: Heading | None = None
    value: float = float("nan")


@dataclass(frozen=True)
class Question:
    """One question, its text as Markdown with numbers filled in, its options in the order of the sheet.

    `margin` is how far a given number may be from the right one; of other kinds it is 0.
    """

    id: str
    part: str
    chapter: Heading
    kind: str
    level: str
    minutes: int
    ask: str
    options: tuple[Option, ...]
    because: str
    margin: float = 0.0

    @property
    def right(self) -> tuple[int, ...]:
        """Places of the right options, from 0."""
        return tuple(place for place, option in enumerate(self.options) if option.right)

    def feedback(self, option: Option) -> str:
        """Feedback on this answer."""
        if option.right:
            return self.because
        assert option.read is not None
        return f"Belief behind this answer: {option.believes} Read: {option.read.text}"


def computed(expression: str, settings: Mapping[str, Any]) -> float:
    """Value of an expression over `np`, `tasks`, `theory` and the settings; Broken if it cannot be computed."""
    try:
        return float(eval(expression, {"np": np, "tasks": tasks, "theory": theory} | settings))
    except Exception as error:
        raise chapters.Broken(f"{expression}: cannot be computed ({error})") from error


def formula(expression: str, settings: Mapping[str, float]) -> tuple[str, float]:
    """Set a formula in LaTeX, and compute it; Broken if it has other names than the settings."""
    letters = {name: sympy.Symbol(name) for name in settings}
    with sympy.evaluate(False):
        parsed = sympy.sympify(expression, locals=letters, evaluate=False)
    if unknown := {str(name) for name in parsed.free_symbols} - set(settings):
        raise chapters.Broken(f"{expression}: cannot be computed ({', '.join(sorted(unknown))} is no setting)")
    return sympy.latex(parsed, order="none", ln_notation=True), float(parsed.doit().subs(settings))


@cache
def headings(page: str) -> Mapping[str, Heading]:
    """The headings of a page by their ids, the page itself under the empty one; Broken if there is no such page."""
    if f"book/{page}" not in chapters.pages():
        raise chapters.Broken(f"{page}: there is no such page")
    by_id, title, fence = dict[str, Heading](), "", ""
    for line in chapters.source(f"book/{page}").splitlines():
        if mark := re.match(r"`{3,}", line):
            fence = "" if fence and line.startswith(fence) else fence or mark[0]
        elif not fence and (head := re.match(r"(#{1,4}) (.+)", line)):
            title = title or head[2].strip()
            by_id[make_id(re.sub(r"[$*`]", "", head[2]))] = Heading(page, title, head[2].strip())
    return {"": Heading(page, title)} | by_id


def heading(read: str, page: str) -> Heading:
    """Target of a question's `read` on this page; Broken if it is not there."""
    at, sharp, name = read.partition("#") if "/" in read else (page, "#", read)
    if not sharp or not name or name not in headings(at):
        raise chapters.Broken(f"{read}: no heading of {at}")
    return headings(at)[name]


def load(folder: Path = SOURCES) -> list[Question]:
    """All questions, part by part; Broken, with the question's id, if one is not as it should be."""
    questions = list[Question]()
    for part in PARTS:
        listed = yaml.safe_load((folder / f"{part}.yml").read_text(encoding="utf-8"))
        choices = 0
        for entry in listed:
            try:
                questions.append(_question(entry, part, choices))
            except (chapters.Broken, KeyError, TypeError, ValueError) as fault:
                raise chapters.Broken(f"{part}.yml: {entry.get('id', entry)}: {fault}") from fault
            choices += questions[-1].kind == "choice"
    if len({question.id for question in questions}) < len(questions):
        raise chapters.Broken("two questions share an id")
    return questions


def _question(entry: dict[str, Any], part: str, count: int) -> Question:
    """A question as it is written; `count` is how many of the part's choices stand before it."""
    if unknown := set(entry) - _KEYS:
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
    if entry["kind"] not in KINDS or entry["level"] not in LEVELS or not isinstance(entry["minutes"], int):
        raise ValueError("kind, level or minutes is none of those there are")
    if not re.fullmatch(r"[a-z][a-z0-9-]+", entry["id"]) or entry["chapter"].partition("/")[0] != part:
        raise ValueError("its id or its chapter does not fit")
    settings = entry.get("settings", {})
    values = {name: _shown(value) for name, value in settings.items()}
    for name, value in entry.get("values", {}).items():
        expression, _, shape = value.rpartition("=>")
        values[name] = format(computed(expression.strip(), settings), shape.strip())
    if entry["kind"] == "number":
        _complain_of_settings(entry, settings)
        key = computed(entry["answer"]["compute"], settings)
        values["answer"] = format(key, entry["answer"]["show"])
        if "formula" in entry:
            values["formula"], again = formula(entry["formula"], settings)
            if "{=formula}" not in entry["because"] or not math.isclose(again, key, rel_tol=1e-6):
                raise ValueError(f"its formula is {again:.6g} and not {key:.6g}, or `because` does not show it")
    mentions = set(re.findall(r"\{=(\w+)\}", str(entry)))
    if unsaid := set(settings) - mentions:
        raise ValueError(f"{', '.join(sorted(unsaid))}: settings that no text says")

    def filled(text: str) -> str:
        text = re.sub(r"\{=(\w+)\}", lambda match: values[match[1]], " ".join(text.split()))
        _complain_of(text, values.values())
        return text

    chapter = headings(entry["chapter"])[""]
    cure = [(filled(wrong["believes"]), heading(wrong["read"], entry["chapter"])) for wrong in entry["wrong"]]
    margin = 0.0
    if entry["kind"] == "number":
        answer = entry["answer"]
        value, shape = key, answer["show"]
        margin = answer["tolerance"] * abs(value)
        if abs(float(format(value, shape)) - value) > margin + 1e-12:
            raise ValueError("the number as it is shown would be refused")
        options = [Option(format(value, shape), True, value=value)]
        for wrong, (believes, read) in zip(entry["wrong"], cure, strict=True):
            other = computed(wrong["compute"], settings)
            if abs(other - value) <= 2 * margin or any(abs(other - o.value) <= 2 * margin for o in options):
                raise ValueError(f"the wrong answer {other:.6g} is too near another")
            options.append(Option(f"{other:.4g}", False, believes, read, other))
    else:
        right = entry["right"] if entry["kind"] == "several" else [entry["right"]]
        options = [Option(filled(text), True) for text in right]
        for wrong, (believes, read) in zip(entry["wrong"], cure, strict=True):
            options.append(Option(filled(wrong["say"]), False, believes, read))
        options = _shuffled(entry["id"], options)
        if entry["kind"] == "choice":
            if len(options) != 4:
                raise ValueError("a choice has one right and three wrong answers")
            # The right one comes to each place once in four questions.
            place = _shuffled(f"{part} {count // 4}", list(range(4)))[count % 4]
            first = next(option for option in options if option.right)
            options.remove(first)
            options.insert(place, first)
        elif len(right) < 2 or len(options) < 4:
            raise ValueError("several: at least two right answers, and four in all")
    ask, because = filled(entry["ask"]), filled(entry["because"])
    return Question(
        *(entry["id"], part, chapter, entry["kind"], entry["level"], entry["minutes"]),
        *(ask, tuple(options), because, margin),
    )


def _shown(setting: Any) -> str:
    """A setting in a text: a number, or a list of them."""
    return ", ".join(map(str, setting)) if isinstance(setting, list) else str(setting)


def _complain_of_settings(entry: dict[str, Any], settings: Mapping[str, Any]) -> None:
    """ValueError if a question for a number says in its text or its expressions what only its settings should."""
    # Within a formula a number that follows a comma or =, elsewhere any number or word for one; 0 and 1 may be there.
    for place, piece in enumerate(re.sub(r"\{=\w+\}", "", " ".join(entry["ask"].split())).split("$")):
        typed = re.findall(r"(?:=|,)\s*-?\d+(?:\.\d+)?" if place % 2 else rf"\d+(?:\.\d+)?|\b{_WORDS}\b", piece)
        if typed := [number for number in typed if number.strip("=,- ") not in ("0", "1")]:
            raise ValueError(f"{', '.join(typed)}: typed in the text, not a setting")
    expressions = [entry["answer"]["compute"], *(wrong["compute"] for wrong in entry["wrong"])]
    inside = [node for expression in expressions for node in ast.walk(ast.parse(expression.strip()))]
    named = {node.id for node in ast.walk(ast.parse(expressions[0].strip())) if isinstance(node, ast.Name)}
    mentions = set(re.findall(r"\{=(\w+)\}", entry["ask"]))
    if astray := set(settings) - ((named | set(entry["answer"].get("without", []))) & mentions):
        raise ValueError(
            f"{', '.join(sorted(astray))}: settings that the text does not say, or the answer does not use"
        )
    values = {number for value in settings.values() for number in (value if isinstance(value, list) else [value])}
    again = {node.value for node in inside if isinstance(node, ast.Constant)} & (values - {0, 1, 2})
    if again:
        raise ValueError(f"{', '.join(map(str, sorted(again)))}: typed in an expression, and a setting already")


def _complain_of(text: str, values: Collection[str]) -> None:
    """ValueError if a formula does not end, or a decimal or a percentage is neither a setting nor computed."""
    if text.count("$") % 2 or any(f.count("{") != f.count("}") for f in text.split("$")[1::2]):
        raise ValueError(f"a formula is not closed: {text}")
    plain = re.sub(r"\(\d+\.\d+[a-z]?\)", "", text)  # numbers of equations
    for number in re.findall(r"(?<![\w.])\d+\.\d+|\d+(?:\.\d+)?\s?\\?%", plain):
        if number not in values:
            raise ValueError(f"{number} is neither computed nor a setting")


def _shuffled(seed: str, things: Sequence[_T]) -> list[_T]:
    """In an order that depends on the seed and on nothing else."""
    draws = [hashlib.sha256(f"{seed} {place}".encode()).digest() for place in range(len(things))]
    return [thing for _, thing in sorted(zip(draws, things, strict=True), key=lambda pair: pair[0])]


def marked(text: str) -> str:
    r"""Markdown as HTML, formulas as \(...\)."""
    pieces = text.split("$")
    for place, piece in enumerate(pieces):
        piece = html.escape(piece, quote=False)
        pieces[place] = rf"\({piece}\)" if place % 2 else re.sub(r"\*([^*]+)\*", r"<em>\1</em>", piece)
    return "".join(pieces)
