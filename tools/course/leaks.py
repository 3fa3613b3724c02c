"""What of the solutions is left in the students' notebooks: compared by structure, not by spelling.

A solution gives away: its sentences, every eight words of them in a row, its displayed formulas; the body of every
function in it and of the reference that `seal` holds, as a whole, and each expression in them of `SIZE` nodes or more.
Sentences are compared without marks of emphasis, signs and capitals. Code is compared as trees, without the names of
variables, comments, docstrings and the order of sums and products; what a `return` gives counts from `RETURNED` nodes.

What a reader may see is no secret: whatever the chapter's own text or cells have shown before the exercise, what the
exercise itself shows in its question, hint and code to start (not in cells with a check), and what any chapter shows
that comes earlier in the book. All else in a notebook is searched, of the same chapter and of every
other: text, code with its strings and comments, code within text, metadata, outputs, attachments. Names count too:
`seal` and what solutions define are left nowhere, and no import or function stands in a chapter for solutions alone.
"""

import ast
import builtins
import contextlib
import hashlib
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import nbformat

from course import cells as editions

#: Nodes from which an expression of a solution is its own, and not what any program has.
SIZE, RETURNED = 12, 8
#: Words in a row that no other text has by chance.
WORDS = 8
_KEPT = frozenset(dir(builtins))


@dataclass(frozen=True)
class Leak:
    """A piece of an exercise's solution in a student's notebook."""

    label: str
    kind: str
    piece: str
    page: str


def shown(cell: nbformat.NotebookNode) -> frozenset[str]:
    """What a cell shows, with all that it carries: sentences, runs of words, formulas and trees."""
    rest = {key: value for key, value in cell.items() if key not in ("source", "id", "cell_type")}
    carried = frozenset[str]().union(*(_of_words(words) for words in _strings(rest)))
    seen = _shown(cell.cell_type, cell.source)
    return seen | carried if carried else seen


@lru_cache(maxsize=8192)
def _shown(kind: str, source: str) -> frozenset[str]:
    if kind != "code":
        return _of_words(source)
    words = frozenset[str]().union(*(_of_words(words) for words in _words_in(source)))
    return words | {tree.shape for tree in trees_of(source)}


@lru_cache(maxsize=32768)
def _of_words(words: str) -> frozenset[str]:
    """What a text shows: what it says, and the code within it."""
    fenced = re.findall(r"^```[^\n]*\n(.*?)^```", words, re.S | re.M) if "```" in words else []
    quoted = [code for code in re.findall(r"`([^`\n]+)`", words) if len(code) > 16]
    pieces = pieces_of(words)
    for code in [*fenced, *quoted, words]:
        # Words in a row are no Python, and most strings are neither.
        if len(code) > 16 and re.search(r"[(\[=]|return|lambda", code):
            with contextlib.suppress(SyntaxError, ValueError):
                pieces |= {tree.shape for tree in trees_of(textwrap.dedent(code))}
    return pieces


def _asked(cell: nbformat.NotebookNode) -> frozenset[str]:
    """What a cell of an exercise shows: of code to start not what it says when it has run, which is the answer."""
    if cell.cell_type != "code":
        return shown(cell)
    return frozenset(tree.shape for tree in trees_of(cell.source))


@lru_cache(maxsize=2048)
def _given_away(kind: str, source: str) -> dict[str, tuple[str, str]]:
    """What a solution's cell gives away: kind and wording of each piece by how it is compared."""
    if kind != "code":
        return {piece: ("text", piece) for piece in pieces_of(source)}
    trees = [t for t in trees_of(source) if t.size >= (RETURNED if t.returned else SIZE) or t.shape.startswith("body ")]
    return {t.shape: ("code", ast.unparse(t.node)) for t in trees}


@dataclass(frozen=True)
class Chapter:
    """A chapter: its page, its cells with the solutions, and its exercises."""

    page: str
    cells: editions.Cells
    exercises: list[editions.Exercise]


@dataclass(frozen=True)
class Secret:
    """A piece of an exercise's solution that nothing shows before the exercise: as compared, its kind, as written."""

    label: str
    piece: str
    kind: str
    told: str


def secrets(book: list[Chapter]) -> list[Secret]:
    """What solutions give away that the book has not shown before; chapters in the reader's order."""
    found: list[Secret] = []
    earlier: set[str] = set()
    for chapter in book:
        solving = {n for exercise in chapter.exercises for n in exercise.solution}
        here: set[str] = set()
        reached = 0
        for exercise in chapter.exercises:
            asked = [n for n in exercise.own if not list(editions.calls_of(chapter.cells[n], "check", "seal"))]
            begun = exercise.own[0] if exercise.own else exercise.solution[0]
            here.update(*(shown(chapter.cells[n]) for n in range(reached, begun) if n not in solving))
            known = here.union(*(_asked(chapter.cells[n]) for n in asked))
            reached = begun
            given = {k: v for n in exercise.solution for k, v in _given_away(*_about(chapter.cells[n])).items()}
            found += [
                Secret(exercise.label, piece, *told)
                for piece, told in given.items()
                if piece not in known and piece not in earlier
            ]
        earlier.update(*(shown(cell) for cell in chapter.cells if not editions.solves(cell)))
    return found


def _about(cell: nbformat.NotebookNode) -> tuple[str, str]:
    return cell.cell_type, cell.source


def leaks(book: list[Chapter], hidden: list[Secret], students: Mapping[str, editions.Cells]) -> list[Leak]:
    """What the students' notebooks of these chapters give away of the solutions; `hidden` are the book's secrets."""
    wanted = {secret.piece for secret in hidden}
    where: dict[str, set[str]] = {}
    for page, cells in students.items():
        for piece in set().union(*(shown(cell) & wanted for cell in cells)):
            where.setdefault(piece, set()).add(page)
    found = [Leak(s.label, s.kind, s.told, page) for s in hidden for page in sorted(where.get(s.piece, ()))]
    return found + [leak for chapter in book for leak in _by_name(chapter, students.get(chapter.page, []))]


def _by_name(chapter: Chapter, student: editions.Cells) -> Iterator[Leak]:
    """What names give away: `seal`, what solutions define, references, and helpers for solutions alone."""
    sources = editions.code(student)
    read, bound = editions.read(sources), editions.bound(sources)
    elsewhere = editions.bound(editions.code(cell for cell in chapter.cells if not editions.solves(cell)))
    own_cells = {cell.id: cell for cell in student if cell.cell_type == "code"}
    texts = _flat(student)
    said = [words for source in sources for words in _said(source) if words not in texts]
    for exercise in chapter.exercises:
        solution = editions.code(chapter.cells[n] for n in exercise.solution)
        reads, mine = editions.read(solution), editions.bound(solution) - elsewhere
        named = {name for name in mine if name.endswith("_solution") or name in editions.functions(solution)}
        named |= {"seal"} & reads
        yield from (Leak(exercise.label, "name", name, chapter.page) for name in sorted(named & (read | bound)))
        own = {chapter.cells[n].id for n in exercise.own} & set(own_cells)
        references = {ast.unparse(call.args[1]) for source in solution for _, call in editions.calls(source, "seal")}
        for node in (node for name in own if references for node in editions.nodes(own_cells[name].source)):
            if isinstance(node, ast.Name | ast.Attribute | ast.Lambda) and ast.unparse(node) in references:
                yield Leak(exercise.label, "reference", ast.unparse(node), chapter.page)
        texts = _flat(chapter.cells[n] for n in exercise.solution)
        yield from (Leak(exercise.label, "said", words, chapter.page) for words in said if words in texts)
        others = [cell.source for name, cell in own_cells.items() if name not in own]
        for name in sorted((editions.functions(others) | editions.imported(others)) & reads - read):
            yield Leak(exercise.label, "helper", name, chapter.page)


def _flat(some: Iterable[nbformat.NotebookNode]) -> str:
    return " ".join(" ".join(cell.source.replace("*", "") for cell in some if cell.cell_type != "code").split())


def _said(source: str) -> Iterator[str]:
    """Words that calls of `said` hold between their numbers."""
    for _, call in editions.calls(source, "said"):
        for node in ast.walk(call):
            if isinstance(node, ast.Constant) and len(words := " ".join(str(node.value).replace("*", "").split())) > 12:
                yield words


def hinted(chapter: Chapter) -> list[Leak]:
    """What of an exercise's solution stands in its hint; of code any expression of `RETURNED` nodes or more."""
    found = []
    for exercise in chapter.exercises:
        own = [chapter.cells[n].source for n in exercise.own if chapter.cells[n].cell_type != "code"]
        hints = [text[text.index("> **Hint**") :].replace("\n> ", "\n") for text in own if "> **Hint**" in text]
        held = set[str]().union(*map(_of_words, hints))
        for cell in (chapter.cells[n] for n in exercise.solution):
            pieces = {t.shape: ast.unparse(t.node) for t in trees_of(cell.source)} if cell.cell_type == "code" else {}
            pieces |= {piece: piece for piece in pieces_of(cell.source)} if cell.cell_type != "code" else {}
            found += [Leak(exercise.label, "hint", pieces[piece], chapter.page) for piece in sorted(held & set(pieces))]
    return found


def _strings(node: object) -> Iterator[str]:
    """All text within JSON."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, Mapping):
        for value in node.values():
            yield from _strings(value)
    elif isinstance(node, list):
        for value in node:
            yield from _strings(value)


def _words_in(source: str) -> Iterator[str]:
    """Strings and comments of a cell; of a formatted string its words."""
    for node in editions.nodes(source):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else " 0 " for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    # Lines of comments in one piece; with what stands behind a # in a string, so that none is missed.
    for block in re.findall(r"(?:^ *#.*\n?)+|#.*", source, re.M):
        yield re.sub(r"^ *# ?", "", block, flags=re.M)


@lru_cache(maxsize=32768)
def pieces_of(words: str) -> frozenset[str]:
    """The sentences of a text, its runs of `WORDS` words and its displayed formulas, each as it is compared."""
    if len(words) < 12:
        return frozenset()
    displayed = {"$$" + squeezed for f in re.findall(r"\$\$(.*?)\$\$", words, re.S) if len(squeezed := _tight(f)) >= 24}
    words = re.sub(r"\$\$.*?\$\$", ". ", words, flags=re.S)
    words = re.sub(r"^#+ .*$|^>? ?\*\*[^*\n]+\*\*$|</?\w+[^>]*>", ". ", words, flags=re.M)
    sentences = {s for part in _sentences(words) if len((s := _plain(part)).split()) >= 4}
    row = re.findall(r"[^\W\d_]{2,}", re.sub(r"\$[^$]+\$|`[^`]*`", " ", words).lower())
    runs = {"…" + " ".join(row[k : k + WORDS]) for k in range(len(row) - WORDS + 1)}
    return frozenset(displayed | sentences | runs)


def _sentences(words: str) -> list[str]:
    """Sentences; a point within a formula ends none."""
    formulas: list[str] = []

    def put_by(match: re.Match[str]) -> str:
        formulas.append(match[0])
        return f"\0{len(formulas) - 1}\0"

    hidden = re.sub(r"\$[^$]+\$", put_by, words)
    parts = re.split(r"(?<=[.?!:;])\s+|\n\s*\n", hidden)
    return [re.sub(r"\0(\d+)\0", lambda m: formulas[int(m[1])], part) for part in parts]


def _plain(sentence: str) -> str:
    """A sentence as it is compared: words, numbers and formulas, the latter in one piece."""
    tight = re.sub(r"\$([^$]+)\$", lambda m: " " + re.sub(r"[^\w+\-=<>/^]", "", m[1]) + " ", sentence)
    return " ".join(re.findall(r"[\w+\-=<>/^]+", tight.lower().replace("*", "")))


def _tight(formula: str) -> str:
    return re.sub(r"\s|\\[,;!]|\\quad|[.,]$", "", formula)


@dataclass(frozen=True)
class Tree:
    """An expression, or a function's body: how it is compared, its nodes, whether a `return` gives it."""

    shape: str
    size: int
    returned: bool
    node: ast.AST


# Tuples, not unions, with which `isinstance` takes several times as long: all nodes of the book are asked.
_NAMED = (ast.operator, ast.unaryop, ast.boolop)
_GIVING = (ast.Return, ast.Lambda)
_TOLD = (ast.Attribute, ast.keyword)


@lru_cache(maxsize=8192)
def trees_of(source: str) -> list[Tree]:
    """The expressions of a cell of `RETURNED` nodes or more, and the bodies of its functions."""
    found: list[Tree] = []

    def look(node: ast.AST, returned: bool = False) -> tuple[str, int]:
        if isinstance(node, ast.Name):
            return (node.id if node.id in _KEPT else "_"), 1
        if isinstance(node, ast.JoinedStr):
            return "text", 1
        if isinstance(node, ast.Constant):
            return ("text" if isinstance(node.value, str) else repr(node.value)), 1
        parts: list[str] = []
        body: list[tuple[str, int]] = []
        size = 1
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, _NAMED):
                parts.append(type(value).__name__)
            elif isinstance(value, ast.expr_context):
                pass
            elif isinstance(value, ast.AST):
                shape, nodes = look(value, isinstance(node, _GIVING) and name in ("value", "body"))
                parts.append(shape)
                size += nodes
            elif isinstance(value, list):
                inside = [look(v) for v in value if isinstance(v, ast.AST) and not _docstring(v)]
                parts.append("[" + ",".join(shape for shape, _ in inside) + "]")
                size += sum(nodes for _, nodes in inside)
                body = inside if name == "body" else body
            elif isinstance(value, str) and isinstance(node, _TOLD):
                parts.append(value)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult)):
            parts = sorted(parts)
        shape = _short(f"{type(node).__name__}({';'.join(parts)})")
        if isinstance(node, ast.expr) and size >= RETURNED:
            found.append(Tree(shape, size, returned, node))
        if isinstance(node, ast.FunctionDef) and body:
            found.append(Tree("body " + ",".join(shape for shape, _ in body), size, True, node))
        return shape, size

    for node in editions.tree(source).body:
        call = node.value if isinstance(node, ast.Expr) else None
        name = getattr(call.func, "id", "") if isinstance(call, ast.Call) else ""
        # Of what a solution calls to be checked only the reference counts.
        for part in call.args[1:2] if isinstance(call, ast.Call) and name in ("check", "seal") else [node]:
            if name != "said":
                look(part, True)
    return found


def _short(shape: str) -> str:
    """A name of a shape, of a length that does not grow with it."""
    return shape if len(shape) < 60 else hashlib.sha256(shape.encode()).hexdigest()[:24]


def _docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
