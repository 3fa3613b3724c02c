"""Mutants of the exercises' solutions: python tools/mutants.py [label ...] [--survivors] [--jobs 2]

A mutant is a chapter's solution with one small fault: another operator or number, a term or a statement less, two
arguments swapped, one name for another. A self-check whose cases are well chosen refuses it. Those that pass stand with
a reason in `book/course/mutants.yml`; the tool counts all, and its status is 1 if one passes that is not listed, or
one is listed that is refused.
"""

import argparse
import ast
import copy
import os
import random
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))

import attempts
import chapters
import numpy as np
import yaml

#: Mutants that pass, by label and reason.
LISTED = chapters.ROOT / "book/course/mutants.yml"
#: Seconds of the processor after which a mutant is taken to run for ever.
LIMIT = 1.0

OPERATORS: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add, ast.Div),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult, ast.Sub),
    ast.FloorDiv: (ast.Div, ast.Mult),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult, ast.Div),
    ast.MatMult: (ast.Mult, ast.Add),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
#: Functions and methods that are taken for one another.
RELATED = {
    name: other
    for pair in (
        ("sum", "mean"),
        ("min", "max"),
        ("minimum", "maximum"),
        ("std", "var"),
        ("log", "exp"),
        ("zeros", "ones"),
        ("zeros_like", "ones_like"),
        ("cumsum", "cumprod"),
        ("floor", "ceil"),
        ("sin", "cos"),
        ("solve", "lstsq"),
        ("argmin", "argmax"),
        ("any", "all"),
    )
    for name, other in (pair, pair[::-1])
}
ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult)


@dataclass(frozen=True)
class Mutant:
    """A faulty solution; `change` has the lines that are new in it, or says which are gone."""

    source: str
    change: str


@cache
def mutants(source: str) -> tuple[Mutant, ...]:
    """All mutants of a function, each once, in the order of its text."""
    tree = ast.parse(source)
    original = ast.unparse(tree)
    names = _names(tree)
    found: dict[str, Mutant] = {}
    for path, node, above in [*_nodes(tree, ())]:
        for instead in [*_instead(node, above, names)]:
            _put(tree, path, instead)
            text = ast.unparse(tree)
            _put(tree, path, node)
            if text == original or text in found:
                continue
            try:
                compile(text, "mutant", "exec")
            except SyntaxError:
                continue
            found[text] = Mutant(text, _change(original, text))
    return tuple(found.values())


def _names(tree: ast.Module) -> list[str]:
    """What a solution calls its arguments and its own variables."""
    names = [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]
    names += [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return sorted({name for name in names if name != "_"})


Path_ = tuple[tuple[str, int | None], ...]


def _nodes(node: ast.AST, path: Path_) -> Iterator[tuple[Path_, ast.AST, ast.AST]]:
    """The nodes below one, each with its way there and the node above; no signature, decorator or note of a type."""
    for field, value in ast.iter_fields(node):
        if field in ("args", "returns", "annotation", "decorator_list") and isinstance(node, ast.FunctionDef | ast.arg):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST):
                way = (*path, (field, index))
                yield way, child, node
                yield from _nodes(child, way)


def _put(tree: ast.AST, path: Path_, instead: ast.AST) -> None:
    for field, index in path[:-1]:
        below = getattr(tree, field)
        tree = below if index is None else below[index]
    field, index = path[-1]
    if index is None:
        setattr(tree, field, instead)
    else:
        getattr(tree, field)[index] = instead


def _like(node: ast.AST, **fields: Any) -> Any:
    made = copy.deepcopy(node)
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def _instead(node: ast.AST, above: ast.AST, names: list[str]) -> Iterator[ast.AST]:
    """What may stand in a node's place."""
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            yield from (_like(node, op=other()) for other in OPERATORS.get(type(op), ()))
            yield from (left, right)
            if isinstance(op, ORDERED):
                yield _like(node, left=right, right=left)
            if isinstance(op, ast.MatMult):
                turned = [s if isinstance(s, ast.Attribute) and s.attr == "T" else _turned(s) for s in (left, right)]
                yield from (_like(node, left=turned[0]), _like(node, right=turned[1]))
        case ast.AugAssign(op=op):
            yield from (_like(node, op=other()) for other in OPERATORS.get(type(op), ()))
            yield ast.Pass()
        case ast.BoolOp(op=op, values=values):
            yield _like(node, op=OPERATORS[type(op)][0]())
            yield from values
        case ast.Compare(ops=[op]):
            yield from (_like(node, ops=[other()]) for other in OPERATORS.get(type(op), ()))
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                for other in OPERATORS.get(type(op), ()):
                    yield _like(node, ops=[*ops[:place], other(), *ops[place + 1 :]])
        case ast.UnaryOp(operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield from (ast.Constant(other) for other in (value + 1, value - 1, type(value)(0)) if other != value)
        case ast.Attribute(value=value, attr="T"):
            yield value
        case ast.Attribute(attr=attr) if attr in RELATED:
            yield _like(node, attr=RELATED[attr])
        case ast.Call(args=args):
            yield from _calls(node, args)
        case ast.Subscript(value=value):
            yield value
        case ast.Slice(lower=lower, upper=upper, step=step):
            yield from (
                _like(node, **{field: None})
                for field, there in (("lower", lower), ("upper", upper), ("step", step))
                if there is not None
            )
        case ast.IfExp(body=body, orelse=orelse):
            yield from (body, orelse)
        case ast.If(test=test) | ast.While(test=test):
            yield _like(node, test=ast.UnaryOp(ast.Not(), test))
            if isinstance(node, ast.If):
                yield from (_like(node, test=ast.Constant(value)) for value in (True, False))
        case ast.Assign() | ast.Expr():
            yield ast.Pass()
        case ast.Return(value=value) if value is not None:
            yield from (_like(node, value=ast.Name(name)) for name in names)
        case ast.Name(id=name, ctx=ast.Load()) if name in names:
            yield from (ast.Name(other) for other in names if other != name)
            if not _signless(above):
                yield ast.UnaryOp(ast.USub(), node)


def _signless(above: ast.AST) -> bool:
    """Whether the sign of what stands below a node makes no difference: in a square, or where a length is asked for."""
    match above:
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=2)):
            return True
        case ast.Call(func=ast.Name(id="len") | ast.Attribute(attr="zeros_like" | "ones_like")):
            return True
        case ast.Attribute(attr="shape"):
            return True
    return False


def _turned(node: ast.expr) -> ast.expr:
    return ast.Attribute(node, "T", ast.Load())


def _calls(node: ast.Call, args: list[ast.expr]) -> Iterator[ast.AST]:
    for place in range(len(args) - 1):
        yield _like(node, args=[*args[:place], args[place + 1], args[place], *args[place + 2 :]])
    if len(args) == 1 and not isinstance(args[0], ast.Starred | ast.GeneratorExp):
        yield args[0]
    if isinstance(node.func, ast.Attribute) and not isinstance(node.func.value, ast.Name):
        yield node.func.value  # a method's result for what it is called on
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in ("range", "arange") and args:
        ends = args[:1] if len(args) == 1 else args[:2]
        for place, end in enumerate(ends):
            for op in (ast.Add(), ast.Sub()):
                further = ast.BinOp(end, op, ast.Constant(1))
                yield _like(node, args=[*args[:place], further, *args[place + 1 :]])
    for keyword in node.keywords:
        yield _like(node, keywords=[other for other in node.keywords if other.arg != keyword.arg])


def _change(original: str, text: str) -> str:
    before, after = original.splitlines(), text.splitlines()
    blocks = [b for b in SequenceMatcher(None, before, after, autojunk=False).get_opcodes() if b[0] != "equal"]
    new = [line.strip() for _, _, _, a, b in blocks for line in after[a:b]]
    gone = [line.strip() for _, a, b, _, _ in blocks for line in before[a:b]]
    return "; ".join(new) if new and new != ["pass"] else f"without {'; '.join(gone)}"


class Endless(BaseException):  # no `except Exception` on its way stops it
    """A mutant has run for as long as one may."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise Endless in what takes longer."""

    def stop(*_: Any) -> None:
        raise Endless(f"not done in {seconds} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def passes(page: attempts.Page, label: str, mutant: Mutant, limit: float = LIMIT) -> bool:
    """Whether a self-check takes a mutant for right."""
    try:
        with limited(limit):
            return page.outcome(label, mutant.source).passed
    except Endless:
        return False


def sample(source: str, size: int, seed: str) -> list[Mutant]:
    """Some mutants of a function, the same for the same seed."""
    found = mutants(source)
    return random.Random(seed).sample(found, min(size, len(found)))


def reasons(label: str) -> dict[str, str]:
    """Why mutants of an exercise's solution pass, by their changes."""
    return {change: why for why, changes in listed().get(label, {}).items() for change in changes}


@cache
def listed() -> dict[str, dict[str, list[str]]]:
    """Changes of the mutants that pass, by label and reason."""
    read: dict[str, dict[str, list[str]]] = yaml.safe_load(LISTED.read_text(encoding="utf-8"))
    return read


def tells_apart(page: attempts.Page, label: str, mutant: Mutant, draws: int = 20) -> bool | None:
    """Whether a mutant and the solution differ on cases near the self-check's own; None if the solution takes none."""
    rng, right, wrong = (
        np.random.default_rng(0),
        *(page.attempt(label, source) for source in (page.source(label), mutant.source)),
    )
    tried = False
    for case in page.cases(label) * draws:
        near = {name: _near(value, rng) for name, value in case.items()}
        with warnings.catch_warnings(), limited(LIMIT):
            warnings.simplefilter("ignore")
            try:
                one = np.asarray(right(**copy.deepcopy(near)), dtype=np.float64)
            except (Exception, Endless):
                continue
            tried = True
            try:
                other = np.asarray(wrong(**copy.deepcopy(near)), dtype=np.float64)
            except (Exception, Endless):
                return True
        if one.shape != other.shape or not np.allclose(one, other, rtol=1e-6, atol=1e-12, equal_nan=True):
            return True
    return False if tried else None


def _near(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return max(1, int(value + rng.integers(-1, 3)))
    if isinstance(value, float):
        return float(value * rng.uniform(0.6, 1.0 if 0.5 < value < 1 else 1.6))
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        if value.ndim > 1 and value.shape[-1] == value.shape[-2] and np.allclose(value, np.swapaxes(value, -1, -2)):
            sizes = rng.uniform(0.8, 1.2, value.shape[-1])
            return value * np.multiply.outer(sizes, sizes)  # symmetric still
        return value * (1 + 0.3 * rng.uniform(-1, 1, value.shape))
    return value


@dataclass(frozen=True)
class Count:
    """Of one exercise: mutants tried, the changes of those that pass, and seconds."""

    label: str
    tried: int
    passed: list[tuple[str, bool | None]]
    seconds: float


def of_page(name: str, labels: list[str], look: bool) -> list[Count]:
    """The counts of a page's exercises."""
    page, counts = attempts.Page(name), []
    for label in labels:
        start, tried, passed = time.monotonic(), 0, []
        spent = time.process_time()
        page.outcome(label, page.source(label))
        limit = LIMIT + 5 * (time.process_time() - spent)
        for mutant in mutants(page.source(label)):
            tried += 1
            if passes(page, label, mutant, limit):
                passed.append((mutant.change, tells_apart(page, label, mutant) if look else None))
        counts.append(Count(label, tried, passed, time.monotonic() - start))
    return counts


def main() -> int:
    """Count; return an exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("labels", nargs="*", metavar="label", help="such as ex-kernel; all if none is given")
    parser.add_argument("--survivors", action="store_true", help="show those that pass, and whether near cases tell")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    pages = {
        page: [label for label in labels if not given.labels or label in given.labels]
        for page, labels in attempts.labels().items()
    }
    pages = {page: labels for page, labels in pages.items() if labels}
    status, total = 0, Counter[str]()
    with ProcessPoolExecutor(given.jobs) as pool:
        for count in chain.from_iterable(pool.map(of_page, pages, pages.values(), repeat(given.survivors))):
            known = reasons(count.label)
            passed = [change for change, _ in count.passed]
            strange, gone = sorted(set(passed) - set(known)), sorted(set(known) - set(passed))
            total.update(tried=count.tried, passed=len(passed), strange=sum(change in strange for change in passed))
            refused = count.tried - len(passed)
            numbers = f"{count.tried:4} tried {refused:4} refused {len(passed):3} pass {count.seconds:5.0f} s"
            print(f"{count.label:20} {numbers}")
            for change, told in count.passed if given.survivors else ():
                print(f"    {'?' if told is None else 'told apart near by' if told else 'the same near by'}: {change}")
            for kind, changes in (("passes without a reason", strange), ("listed, but does not pass", gone)):
                for change in changes:
                    print(f"    {kind}: {change}")
                    status = 1
            sys.stdout.flush()
    refused = total["tried"] - total["passed"]
    print(
        f"{total['tried']} mutants, {refused} refused ({100 * refused / max(1, total['tried']):.1f}%), "
        f"{total['passed'] - total['strange']} pass with a reason, {total['strange']} without"
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
