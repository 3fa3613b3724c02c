"""Check of a chapter's figures: names and units on their axes, and the floor of an error.

Read are the calls of `icl_book.charts` in a chapter's cells, before any of them runs. Figures that have no floor to
draw are listed in `book/figures.yml` by their titles, with the reason.
"""

import ast
import re
from functools import cache
from typing import Any, NamedTuple

import chapters
import yaml

#: What has a unit, and what names it. Inputs, labels and weights of made-up tasks have none.
_PHYSICAL = re.compile(r"\b(?<!at )(?<!at test )(time|duration|seconds|minutes|hours|bytes|energy)\b", re.I)
_UNIT = re.compile(
    r"%|\bin units?\b|\bunits of\b|\(µs|\bmilliseconds\b|\byears\b|\bbytes\b|\bof the flow\b|\brescaled\b"
    r"|\btest time\b",
    re.I,
)
_ERROR = re.compile(r"\b(errors?|risks?|loss(es)?|misfit|excess)\b", re.I)
#: Titles of axes that begin at the floor, or are measured in it.
_FROM_THE_FLOOR = re.compile(r"\b(floors?|bounds?|minimum|min f|least|smoother('s)?|Kalman('s)?|formula)\b")
_CALLS = {
    "curves": ("x_title", "y_title"),
    "dots": ("x_title",),
    "intervals": ("x_title",),
    "heatmap": ("x_title", "y_title", "value_title"),
    "tiles": ("x_title", "y_title", "value_title"),
}
#: In place of what is computed, in a text that is read without computing it.
COMPUTED = "\N{HORIZONTAL ELLIPSIS}"


class Figure(NamedTuple):
    """Static arguments of a call of `icl_book.charts`."""

    line: int
    title: str
    axes: dict[str, str | None]
    measured: str
    limits: bool


@cache
def find_figures(text: str) -> tuple[Figure, ...]:
    """The figures that a chapter's cells draw."""
    figures, assigned = list[Figure](), dict[str, ast.expr]()
    for source, line in chapters.cells(text):
        for node in (inside := chapters.nodes(source)):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                assigned[node.targets[0].id] = node.value
        figures += [_figure(node, line, assigned) for node in inside if _kind(node)]
    return tuple(figures)


def _kind(node: ast.AST) -> str | None:
    """Name of the called function of `charts`, if any."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name("charts"), attr=name)) if name in _CALLS:
            return name
    return None


def _figure(node: Any, line: int, assigned: dict[str, ast.expr]) -> Figure:
    arguments: dict[str, Any] = {}
    for keyword in node.keywords:
        value = _read(keyword.value, assigned)
        arguments |= {keyword.arg: value} if keyword.arg else value if isinstance(value, dict) else {}
    kind = _kind(node) or ""
    names = _CALLS[kind]
    axes = {name: arguments[name] if isinstance(arguments.get(name), str) else None for name in names}
    title = arguments.get("title")
    measured = "value_title" if "value_title" in names else names[-1]
    limits = any(arguments.get(name, ()) not in ((), None) for name in ("floors", "stars", "best"))
    return Figure(line, title if isinstance(title, str) else COMPUTED, axes, axes[measured] or "", limits)


def _read(node: ast.expr, assigned: dict[str, ast.expr], depth: int = 0) -> Any:
    """A text or a dict of them as it is written; `COMPUTED` for what is computed."""
    match node:
        case _ if depth > 9:
            return COMPUTED
        case ast.Constant():
            return node.value
        case ast.JoinedStr():
            return "".join(str(each.value) if isinstance(each, ast.Constant) else COMPUTED for each in node.values)
        case ast.Name() if node.id in assigned:
            return _read(assigned[node.id], assigned, depth + 1)
        case ast.List() | ast.Tuple():
            return tuple(_read(each, assigned, depth + 1) for each in node.elts)
        case ast.Dict():
            pairs = zip(node.keys, node.values, strict=True)
            return {
                key.value: _read(value, assigned, depth + 1) for key, value in pairs if isinstance(key, ast.Constant)
            }
        case ast.BinOp(op=ast.BitOr() | ast.Add()):
            left, right = _read(node.left, assigned, depth + 1), _read(node.right, assigned, depth + 1)
            if isinstance(left, dict) and isinstance(right, dict):
                return left | right
            return left + right if isinstance(left, str) and isinstance(right, str) else COMPUTED
        case ast.Subscript(slice=ast.Constant()):
            mapping = _read(node.value, assigned, depth + 1)
            return mapping.get(node.slice.value, COMPUTED) if isinstance(mapping, dict) else COMPUTED
    return COMPUTED


def has_unit(title: str) -> bool:
    """True if the title of an axis names the unit of its quantity, if that has one."""
    return not _PHYSICAL.search(title) or bool(_UNIT.search(title))


def faults(text: str, without_floor: set[str]) -> list[str]:
    """Problems of a chapter's figures, in sentences; `without_floor` are titles of figures that have none."""
    wrong = []
    for figure in find_figures(text):
        where = f"the figure {figure.title!r}, cell at line {figure.line}"
        for name, title in figure.axes.items():
            if title is None or title.strip() in ("", COMPUTED):
                wrong.append(f"{where}: {name} must name the axis in a text that is read before the cell runs")
            elif not has_unit(title):
                wrong.append(f"{where}: {name} {title!r} does not say in what it is measured, as in 'time (µs)'")
        bare = _ERROR.search(figure.measured) and not _FROM_THE_FLOOR.search(figure.measured) and not figure.limits
        if bare and figure.title not in without_floor:
            wrong.append(
                f"{where}: it draws an error without floor or optimum; draw it, or say why in book/figures.yml"
            )
        if not bare and figure.title in without_floor:
            wrong.append(f"{where}: book/figures.yml says that it has no floor, and it has")
    return wrong


def without_floor() -> dict[str, str]:
    """Titles of the figures that have no floor to draw, with the reason; Broken if the list is not that."""
    path = chapters.ROOT / "book/figures.yml"
    try:
        listed = yaml.safe_load(chapters.words(path)) if path.exists() else {}
    except yaml.YAMLError as error:
        raise chapters.Broken(f"book/figures.yml: {' '.join(str(error).split())}") from error
    texts = isinstance(listed, dict) and all(isinstance(each, str) and each for pair in listed.items() for each in pair)
    if not texts:
        raise chapters.Broken("book/figures.yml: under each title of a figure stands why it has no floor")
    return dict(listed)


def examine(pages: list[str]) -> None:
    """Broken, with all that is wrong, if a figure of these chapters does not say what it shows."""
    listed = without_floor()
    problems: list[str] = []
    for page in pages:
        problems += [f"{page}.md: {fault}" for fault in faults(chapters.source(page), set(listed))]
    if problems:
        raise chapters.Broken("\n".join(problems))
