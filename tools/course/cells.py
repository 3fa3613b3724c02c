"""Cells of a student's notebook: kept cells, removed lines, and filling in of blanks.

A chapter's cells are those of its download: a solution's have the tag `solution` (`book/_ext/notebooks.py`).
"""

import ast
import re
import symtable
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import nbformat
import prose
from notebooks import solves

Cells = list[nbformat.NotebookNode]


def code(cells: Iterable[nbformat.NotebookNode]) -> list[str]:
    """Sources of the code cells."""
    return [cell.source for cell in cells if cell.cell_type == "code"]


def text(cells: Iterable[nbformat.NotebookNode]) -> str:
    """Text of the Markdown cells, in one line."""
    return prose.flat(" ".join(cell.source for cell in cells if cell.cell_type == "markdown"))


def for_students(cells: Cells) -> Cells:
    """The cells that are no solution's, without the lines that only solutions need.

    Gone with the solutions are imports that nothing else reads, and calls of `said` with a sentence of a solution's.
    """
    remaining, out = [cell for cell in cells if not solves(cell)], []
    solutions = [cell for cell in cells if solves(cell)]
    remaining_text, answered = text(remaining), text(solutions)
    idle = read(code(solutions)) - read(code(remaining))
    for cell in remaining:
        if cell.cell_type == "code":
            drop = [
                node for node in tree(cell.source).body if _says(node, answered) and not _says(node, remaining_text)
            ]
            lines = _without(cell.source, drop)
            lines = _without_imports(lines, idle)
            if not lines.strip():
                continue
            cell = nbformat.from_dict({**cell, "source": lines})
        out.append(cell)
    return out


@lru_cache(maxsize=8192)
def tree(source: str) -> ast.Module:
    """A cell's tree, not to be changed."""
    return ast.parse(source)


@lru_cache(maxsize=8192)
def _names(source: str) -> tuple[frozenset[str], frozenset[str]]:
    """Names that a cell reads, and those that it imports, defines or assigns outside of functions."""
    top = symtable.symtable(source, "cell", "exec")
    bound = (symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported())
    return frozenset(_read(top)), frozenset(bound)


def _read(table: symtable.SymbolTable) -> Iterator[str]:
    yield from (symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced())
    for inner in table.get_children():
        yield from _read(inner)


def functions(sources: Iterable[str]) -> set[str]:
    """Functions that some cells define."""
    return {node.name for source in sources for node in tree(source).body if isinstance(node, ast.FunctionDef)}


def read(sources: Iterable[str]) -> set[str]:
    """Names that some cells read."""
    return set().union(*(_names(source)[0] for source in sources))


def bound(sources: Iterable[str]) -> set[str]:
    """Names that some cells import, define or assign."""
    return set().union(*(_names(source)[1] for source in sources))


def _says(node: ast.stmt, words: str) -> bool:
    """True if a statement asserts a sentence contained in these words, up to its numbers."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not (isinstance(call, ast.Call) and getattr(call.func, "id", "") == "said" and call.args):
        return False
    first = call.args[0]
    parts = first.values if isinstance(first, ast.JoinedStr) else [first]
    if not all(isinstance(part, ast.Constant | ast.FormattedValue) for part in parts):
        return False
    pieces = [re.escape(prose.flat(f"|{p.value!s}|")[1:-1]) if isinstance(p, ast.Constant) else r"\S+" for p in parts]
    return re.search("".join(pieces), words) is not None


def _without(source: str, nodes: Iterable[ast.stmt]) -> str:
    """A cell's source without some of its statements, each on lines of its own."""
    numbers = {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return "\n".join(line for number, line in enumerate(source.split("\n"), 1) if number not in numbers)


def _without_imports(source: str, names: set[str]) -> str:
    """A cell's source without the imports of these names."""
    obsolete, instead = [], {}
    if not names & bound([source]):
        return source
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            aliases = [alias for alias in node.names if (alias.asname or alias.name).split(".")[0] not in names]
            if len(aliases) < len(node.names):
                obsolete.append(node)
                node.names = aliases
                if aliases:
                    instead[node.lineno] = ast.unparse(node)
    if not obsolete:
        return source
    lines: list[str] = source.split("\n")
    for node in obsolete:
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            lines[line - 1] = "\0"
        if node.lineno in instead:
            lines[node.lineno - 1] = instead[node.lineno]
    # An import that is gone leaves no second empty line behind it.
    left = "\n".join(line for line in lines if line != "\0")
    return re.sub(r"\n{3,}(?=(?:from|import) )", "\n\n", left).strip("\n")


def calls_of(cell: nbformat.NotebookNode, *names: str) -> Iterator[tuple[ast.stmt, ast.Call]]:
    """The statements of a cell, be it code or text, that are a call of one of these functions."""
    yield from calls(cell.source, *names) if cell.cell_type == "code" else ()


@dataclass(frozen=True)
class Exercise:
    """An exercise: its label, its own cells up to the solution's first, the solution's cells, all by number."""

    label: str
    own: tuple[int, ...]
    solution: tuple[int, ...]


def exercises(cells: Cells, labels: list[str]) -> list[Exercise]:
    """The exercises of a chapter's cells, in order; `labels` are those of the solutions."""
    solved: list[Exercise] = []
    start: int | None = None
    for number, cell in enumerate(cells):
        if cell.cell_type == "markdown" and cell.source.startswith("#### Exercise"):
            start = number
        if solves(cell) and cell.source.startswith("#### Solution"):
            end = number
            while end < len(cells) and solves(cells[end]) and (end == number or not _begins(cells[end])):
                end += 1
            begun = number if start is None else start
            solved.append(Exercise(labels[len(solved)], tuple(range(begun, number)), tuple(range(number, end))))
            start = None
    if len(solved) != len(labels):
        raise ValueError(f"{len(solved)} solutions are marked, there are {len(labels)} labels")
    return solved


def _begins(cell: nbformat.NotebookNode) -> bool:
    return cell.cell_type == "markdown" and str(cell.source).startswith("#### Solution")


@dataclass(frozen=True)
class Blank:
    """A function for students to write: the number of its cell, its name, its check, and code that solves it."""

    cell: int
    name: str
    check: str
    solution: str


def blanks(cells: Cells, labels: list[str]) -> list[Blank]:
    """The blanks of a chapter's exercises, in order.

    Raises:
        ValueError: if a check has no solution of its name.
    """
    all_blanks = []
    for exercise in exercises(cells, labels):
        solved = [cells[n].source for n in exercise.solution if cells[n].cell_type == "code"]
        answered = {ast.unparse(call.args[1]) for source in solved for _, call in calls(source, "check")}
        # A solution has the blank's name, and `_solution` behind it.
        body = "\n\n".join(_without(source, [node for node, _ in calls(source, "seal", "check")]) for source in solved)
        body = re.sub(r"\b(\w+)_solution\b", r"\1", body)
        for number in exercise.own:
            for statement, call in calls_of(cells[number], "check"):
                against, names = ast.unparse(call.args[1]), read([ast.unparse(call.args[0])])
                if against not in answered or not (named := sorted(names & functions([body]))):
                    raise ValueError(f"{exercise.label}: no solution of {ast.unparse(call.args[0])} against {against}")
                all_blanks.append(Blank(number, named[0], ast.unparse(statement), body))
    return all_blanks


def calls(source: str, *names: str) -> Iterator[tuple[ast.stmt, ast.Call]]:
    """The statements of a cell that are a call of one of these functions."""
    for node in tree(source).body:
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in names:
            yield node, call


def imports_lost(cells: Cells) -> str:
    """The imports that a student's notebook is without, for those who solve it."""
    before, after = ([n for s in code(c) for n in tree(s).body] for c in (cells, for_students(cells)))
    still_imported = {name for node in after for name in _imported(node)}
    lost = [ast.unparse(node) for node in before if _imported(node) - still_imported and "seal" not in _imported(node)]
    return "\n".join(lost)


def _imported(node: ast.AST) -> set[str]:
    names = node.names if isinstance(node, ast.Import | ast.ImportFrom) else []
    return {(alias.asname or alias.name).split(".")[0] for alias in names}
