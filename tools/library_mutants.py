"""Mutants of the library: python tools/library_mutants.py [icl/theory/s6 ...] [-n 1000] [--part 1/8 or week]

A mutant is the library with one small fault (`tools/faults.py`) in the body of one function. It is killed if a test
fails, or runs for far longer than it should. Tried on it are the tests that lie at the module's own place, and those of
the house that give every public function bad input; of these the ones that reach the faulty statement, the quickest
first, until one fails. What survives them is tried by the tests of modules that import this one, for some seconds.

A sample of a size is the same at every run: each mutant has its rank from a hash of what it is, so that a larger sample
holds the smaller one, and an edit leaves the sample of other functions alone. Each module has a share of it by how many
mutants it has. What was tried is kept in `.mutants/`, a line each: a run that was stopped goes on, a kill holds as long
as the function and the test that killed stand as they stood, a survival until a test of the module changes.

Not made are faults in what is said and not computed: messages, f-strings, whole `raise` statements and warnings;
annotations, signatures and what stands outside functions; another variable in place of one; a conversion that leaves
the number as it is (`float`, `list`, `np.asarray`, `.item()` and the like); the arguments `device`, `strict`,
`stacklevel` and `encoding`; the two arguments of `min` and its like exchanged. Nor can code be exchanged in a
method that would lose its `super`: such a fault is said, and not counted. Mutants that survive with a reason stand in
`tests/mutants.yml`; the status is 1 if one survives that is not listed, or a listed one is killed.

Two libraries were looked at. mutmut (3.8.1, tried) writes all mutants of a module beside one another into its file,
11,335 lines for 144: tests of what a room's door names then fail without any fault, and nothing ran while the library
lay in `lib` and not in `src`. cosmic-ray (8.7.0, not run) writes each fault into the file and starts the tests anew:
that is seconds each before the first test, and tests that read the library's text would see the fault.
"""

import argparse
import ast
import contextlib
import copy
import datetime
import difflib
import functools
import gc
import hashlib
import importlib
import itertools
import json
import math
import os
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent))

import faults
import hypothesis
import pytest
import yaml
from _pytest.runner import runtestprotocol
from _pytest.warnings import catch_warnings_for_item
from jaxtyping._import_hook import JaxtypingTransformer

#: Bytes that a mutant may take beyond what is there; seconds that a test may take, and all those of other modules.
SPACE, LEAST, MOST = 4 * 2**30, 2.0, 20.0
#: Bytes that tests need on the disk; and what ends a test that is no fault's doing: it is tried again the next time.
ROOM, OUTSIDE = 2**20, ("ended from outside, most likely for want of memory", "no space is left on the disk")
ROOT = Path(__file__).resolve().parents[1]
LISTED, KEPT = "tests/mutants.yml", ".mutants/tried.jsonl"
#: Tests of the house that call every public function.
HOUSE = ("house/test_bad_input.py", "house/test_out_of_range.py", "house/test_refusals.py")
#: Where modules that are nobody's to call have their tests.
ELSEWHERE = {
    "icl/_checks": ("icl/test_filters.py", "icl/tasks/test_drifts.py", "icl_book/test_claims.py"),
    "icl/_files": (
        *("icl/test_files.py", "icl/experiments/test_checkpoint.py"),
        *("icl_book/test_records.py", "icl_bench/test_results.py"),
    ),
    "icl/_source": ("icl/test_source.py",),
    "icl/experiments/_training_state": ("icl/experiments/test_checkpoint.py", "icl/experiments/test_training.py"),
    "icl_bench/_markup": ("icl_bench/test_report.py",),
}

CONVERSIONS = {"array", "as_tensor", "asarray", "bool", "float", "int", "list", "str", "tensor", "tuple"}
UNWRAPPED = {"contiguous", "cpu", "item", "numpy", "tolist"}
#: Functions that take two arguments in any order.
SYMMETRIC = {"hypot", "isclose", "logaddexp", "max", "maximum", "min", "minimum", "swapaxes", "transpose"}
SAID = {"warn", "print"}
KEYWORDS = {"device", "encoding", "stacklevel", "strict"}


@dataclass(frozen=True)
class Mutant:
    """One fault: `way` leads to the node of the function, and `place` counts what may stand there instead."""

    module: str
    function: str
    line: int
    way: faults.Way
    place: int
    statement: tuple[int, int]

    @property
    def rank(self) -> str:
        """Rank in the order in which mutants are tried."""
        return _hash(self.module, self.function, repr(self.way), str(self.place))


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


class Source:
    """A module's text, its functions, and the mutants of them."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.functions = {(name, node.lineno): node for name, node in _functions(self.tree.body, "")}

    @functools.cached_property
    def mutants(self) -> list[Mutant]:
        """All mutants, by rank."""
        mutants = []
        for (name, line), function in self.functions.items():
            for way, place, statement in _places(function):
                mutants.append(Mutant(self.name, name, line, way, place, statement))
        return sorted(mutants, key=lambda mutant: mutant.rank)

    def function(self, mutant: Mutant) -> ast.FunctionDef:
        """The function in which a mutant has its fault."""
        return self.functions[mutant.function, mutant.line]

    def changed(self, mutant: Mutant, use: Callable[[], Any]) -> Any:
        """Result of `use` while the fault is in the tree."""
        function = self.function(mutant)
        node, _ = _at(function, mutant.way)
        other = ast.copy_location(copy.copy(_instead(node)[mutant.place]), node)
        if hasattr(node, "ctx") and hasattr(other, "ctx"):
            other.ctx = node.ctx  # x for x[0], also where something is put there
        ast.fix_missing_locations(other)
        faults.put(function, mutant.way, other)
        try:
            return use()
        finally:
            faults.put(function, mutant.way, node)

    def alone(self, mutant: Mutant) -> ast.Module:
        """The function with the fault, in the classes that it is in, and nothing else of the module."""
        node = self.changed(mutant, lambda: copy.deepcopy(self.function(mutant)))
        for name in reversed(mutant.function.split(".")[:-1]):
            node = ast.copy_location(ast.ClassDef(name, [], [], [node], []), node)
        return ast.Module([node], [])

    def texts(self, mutant: Mutant) -> tuple[str, str]:
        """The function as it is and with the fault."""
        function = self.function(mutant)
        return ast.unparse(function), self.changed(mutant, lambda: ast.unparse(function))


def sources(names: list[str]) -> list[Source]:
    """The modules that are named, or that lie in the rooms that are; all of them if none is."""
    lib, modules = ROOT / "lib", []
    for path in sorted(lib.rglob("*.py")):
        name = path.relative_to(lib).with_suffix("").as_posix()
        is_selected = not names or any(f"{name}/".startswith(f"{one.removesuffix('.py')}/") for one in names)
        if path.name != "__init__.py" and is_selected:
            modules.append(Source(name, path))
    if not modules:
        raise SystemExit(
            f"no module of lib is called {' or '.join(names)}: icl/theory/s6, say, or icl/theory for a room"
        )
    return modules


def _functions(body: list[ast.stmt], above: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield above + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{above}{node.name}.")


def _called(node: ast.AST) -> str:
    """The last name of what a call calls."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _unsaid(node: ast.AST, above: ast.AST, field: str) -> bool:
    """True if a node, and all below it, is a message, a string or an annotation."""
    match node:
        case ast.Raise() | ast.JoinedStr() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=value) if _called(value) in SAID:
            return True
        case ast.keyword(arg=arg) if arg in KEYWORDS:
            return True
    return isinstance(above, ast.AnnAssign) and field == "annotation"


def _instead(node: ast.AST) -> list[ast.AST]:
    """Mutations of a node, without equivalent ones and those of types, devices or redundant guards."""
    mutations = list(faults.instead(node))
    if not isinstance(node, ast.Call):
        return mutations
    name, named = _called(node), {keyword.arg for keyword in node.keywords}
    dull: list[ast.AST] = []
    if name in CONVERSIONS:
        dull += node.args[:1]
    if name in UNWRAPPED and isinstance(node.func, ast.Attribute):
        dull.append(node.func.value)
    for other in mutations:
        if isinstance(other, ast.Call) and other.func is node.func:
            without = named - {keyword.arg for keyword in other.keywords}
            turned = len(node.args) == 2 and other.args == node.args[::-1]
            if without & KEYWORDS or (turned and name in SYMMETRIC):
                dull.append(other)
    return [other for other in mutations if not any(other is one for one in dull)]


def _places(function: ast.FunctionDef) -> Iterator[tuple[faults.Way, int, tuple[int, int]]]:
    """Ways to the nodes of a function that may be faulty, a number for each fault, and the statement it is in."""
    original = ast.dump(function)
    left_out: list[faults.Way] = []
    statements: dict[faults.Way, tuple[int, int]] = {}
    for way, node, above in faults.nodes(function, ()):
        if any(way[: len(one)] == one for one in left_out):
            continue
        if _unsaid(node, above, way[-1][0]):
            left_out.append(way)
            continue
        if isinstance(node, ast.stmt):
            statements[way] = (node.lineno, node.col_offset)
        seen = {ast.dump(node)}  # one less than 1 is 0 too
        for place, other in enumerate(_instead(node)):
            fits = not isinstance(getattr(node, "ctx", None), ast.Store) or hasattr(other, "ctx")
            if fits and ast.dump(other) not in seen:
                seen.add(ast.dump(other))
                longest = max((one for one in statements if way[: len(one)] == one), key=len)
                yield way, place, statements[longest]
    assert ast.dump(function) == original


def _at(node: ast.AST, way: faults.Way) -> tuple[ast.AST, ast.AST]:
    above = node
    for field, index in way:
        above, value = node, getattr(node, field)
        node = value if index is None else value[index]
    return node, above


def sample(of: list[Source], size: int) -> dict[str, list[Mutant]]:
    """Mutants by module, each with its share of the sample, and three at least."""
    counts = {source.name: len(source.mutants) for source in of}
    total = sum(counts.values())
    shares = {name: min(count, max(3, round(size * count / max(1, total)))) for name, count in counts.items()}
    return {source.name: source.mutants[: shares[source.name]] for source in of if shares[source.name]}


def change(before: str, after: str) -> str:
    """A fault in a line: what stands there, and what instead."""
    lines = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    old, new = (" ".join(line[2:].strip() for line in lines if line[:2] == sign) for sign in ("- ", "+ "))
    return f"{old} => {new}"


# How faults get into a library that is loaded: a function's code is exchanged, so that whoever imported it has it.


def _compiled(source: Source, tree: ast.Module) -> types.CodeType:
    """A module's code as the hook of the tests has it made, annotations checked."""
    loader = importlib.import_module(_dotted(source.name)).__spec__.loader
    if hasattr(loader, "_typechecker"):
        tree = JaxtypingTransformer(typechecker=loader._typechecker).visit(tree)
    return compile(ast.fix_missing_locations(tree), str(source.path), "exec", dont_inherit=True)


def _dotted(name: str) -> str:
    return name.replace("/", ".")


def _inner(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _inner(constant)


Alive = dict[str, dict[tuple[str, int], list[types.FunctionType]]]


def alive() -> Alive:
    """The functions that are there, by file, name and line."""
    functions: Alive = defaultdict(lambda: defaultdict(list))
    for function in gc.get_objects():
        if type(function) is types.FunctionType:
            code = function.__code__
            functions[code.co_filename][code.co_qualname, code.co_firstlineno].append(function)
    return functions


def exchange(code: types.CodeType, functions: dict[tuple[str, int], list[types.FunctionType]], name: str = "") -> int:
    """Give a module's functions, or the one of a name with what is inside it, new code; say how many took it."""
    done = 0
    for new in _inner(code):
        if name and new.co_qualname != name and not new.co_qualname.startswith(f"{name}.<locals>."):
            continue
        for function in functions.get((new.co_qualname, new.co_firstlineno), ()):
            if function.__code__.co_freevars == new.co_freevars:
                function.__code__ = new
                done += 1
    return done


def memories() -> list[Any]:
    """The functions of the library and of the tests that remember what they returned."""
    caches = [cache for cache in gc.get_objects() if type(cache) is functools._lru_cache_wrapper]
    homes = ("icl", "test", "shared", "harness")
    return [cache for cache in caches if (getattr(cache, "__module__", None) or "").startswith(homes)]


class _Marked(ast.NodeTransformer):
    """A note before each statement of a function that it was reached."""

    def __init__(self, number: Callable[[ast.stmt], int]) -> None:
        self.number = number

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            old = getattr(node, field, None)
            if isinstance(old, list) and old and isinstance(old[0], ast.stmt) and not isinstance(node, ast.ClassDef):
                setattr(node, field, [new for one in old for new in (self._note(one), one)])
        return node

    def _note(self, node: ast.stmt) -> ast.stmt:
        note = ast.parse(f"__reached__.add({self.number(node)})").body[0]
        for below in ast.walk(note):
            ast.copy_location(below, node)
        return note


class Marks:
    """The library's code with a note at each statement, and the statements' numbers."""

    def __init__(self, of: list[Source]) -> None:
        self.of = of
        self.numbers: dict[tuple[str, int, int], int] = {}
        for source in of:
            for node in ast.walk(source.tree):
                if isinstance(node, ast.stmt):
                    self.numbers.setdefault((source.name, node.lineno, node.col_offset), len(self.numbers))

    @functools.cached_property
    def codes(self) -> dict[str, types.CodeType]:
        """Code by module."""
        codes = {}
        for source in self.of:
            marked = Source(source.name, source.path)
            for function in marked.functions.values():
                _Marked(lambda node, name=source.name: self.numbers[name, node.lineno, node.col_offset]).visit(function)
            codes[source.name] = _compiled(source, marked.tree)
        return codes

    def put(self, functions: Alive, reached: set[int]) -> None:
        """Let the library note which statements are reached. For good: in a process of its own."""
        for source in self.of:
            vars(importlib.import_module(_dotted(source.name)))["__reached__"] = reached
            exchange(self.codes[source.name], functions[str(source.path)])


# Tests, each in a process that is split off.


@dataclass(frozen=True)
class Test:
    """A test, and what it does if there is no fault: seconds of the processor and the clock, statements as bits."""

    item: pytest.Item
    seconds: float
    wall: float
    reached: int


@dataclass(frozen=True)
class Outcome:
    """Outcome of a mutant (killed, timed out, survived or not tried), the deciding test, and the number of tests."""

    kind: str
    by: str = ""
    tests: int = 0


def _failed(item: pytest.Item, following: pytest.Item | None) -> bool:
    with catch_warnings_for_item(item.config, item.ihook, "runtest", item=item):  # as its marks would have it
        return any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))


def full() -> bool:
    """True if a test may have failed for lack of disk space."""
    return shutil.disk_usage(tempfile.gettempdir()).free < ROOM


def _split(work: Callable[[int], int]) -> tuple[bytes, int]:
    """Do something in a process of its own, silently; what it wrote, and how it ended."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        status = 70
        try:
            os.setpgid(0, 0)
            os.close(reading)
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
            status = work(writing)
        finally:
            os._exit(status)
    os.close(writing)
    try:
        output = b""
        while some := os.read(reading, 2**16):
            output += some
        return output, os.waitpid(child, 0)[1]
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)  # also what a test has started and left


class Bench:
    """Tests that are collected, and a library that is loaded."""

    def __init__(self, items: list[pytest.Item], everything: list[Source], folder: Path) -> None:
        self.by_file: dict[Path, list[pytest.Item]] = defaultdict(list)
        for item in items:
            self.by_file[item.path].append(item)
        for source in everything:
            importlib.import_module(_dotted(source.name))
        self.marks = Marks(everything)
        self.folder = folder
        self.library = _hash(*(source.path.read_text(encoding="utf-8") for source in everything))
        gc.unfreeze()  # what tests/harness.py has set aside is not among the objects that are looked through
        gc.collect()
        self.alive, self.memories = alive(), memories()
        if lost := [one.name for one in everything if one.functions and str(one.path) not in self.alive]:
            raise SystemExit(f"no function is found of the modules that are loaded: {', '.join(lost)}")
        gc.freeze()

    def forget(self) -> None:
        """Empty what was remembered."""
        for one in self.memories:
            one.cache_clear()

    @functools.cache  # noqa: B019 - one bench lives as long as the process
    def without_fault(self, path: Path, about: str = "") -> list[Test]:
        """Coverage and duration of every test of a file; failing tests are left out, and reported.

        Of the tests of the house those with the name of a module alone, if they are named so.
        """
        items = [item for item in self.by_file[path] if not about or "[icl" not in item.nodeid or about in item.nodeid]
        file = self.folder / f"{_hash(str(path.relative_to(ROOT)), about)}.json"
        now = _hash(path.read_text(encoding="utf-8"), self.library)
        cached = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
        lines: list[Any] = cached["tests"] if cached and cached["of"] == now else []
        if len(lines) != len(items):
            self.marks.codes  # noqa: B018 - made here, once, and not in each process

            def work(writing: int) -> int:
                reached: set[int] = set()
                self.marks.put(self.alive, reached)
                with os.fdopen(writing, "w") as stream:
                    for item in items:
                        self.forget()
                        reached.clear()
                        wall, seconds = time.monotonic(), time.process_time()
                        failed = _failed(item, None)  # with its own fixtures: what they reach is its own too
                        spent = time.process_time() - seconds, time.monotonic() - wall
                        bits = sum(1 << number for number in reached)
                        print(json.dumps([item.nodeid, failed, *spent, f"{bits:x}"]), file=stream, flush=True)
                return 0

            output, status = _split(work)
            lines = [json.loads(line) for line in output.decode().splitlines()]
            if status or len(lines) != len(items):
                raise SystemExit(f"{path}: without a fault status {status} after {len(lines)} of {len(items)} tests")
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_suffix(".part")
            part.write_text(json.dumps({"of": now, "tests": lines}), encoding="utf-8")
            part.replace(file)
        tests = []
        for item, (nodeid, failed, seconds, wall, bits) in zip(items, lines, strict=True):
            if failed or nodeid != item.nodeid:
                print(f"    fails without any fault, and is left out: {item.nodeid}")
            else:
                tests.append(Test(item, seconds, wall, int(bits, 16)))
        return tests

    def run_tests(self, source: Source, mutant: Mutant, tests: list[Test], most: float = math.inf) -> Outcome:
        """Run the tests that reach a fault, quickest first, until one fails or `most` seconds would be spent."""
        bit = 1 << self.marks.numbers[source.name, *mutant.statement]
        chosen = sorted((test for test in tests if test.reached & bit), key=lambda test: test.seconds)
        spent = list(itertools.accumulate(test.seconds for test in chosen))
        chosen = [test for test, until in zip(chosen, spent, strict=True) if until <= most]
        if not chosen:
            return Outcome("survived")
        functions = self.alive[str(source.path)]

        def work(writing: int) -> int:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + SPACE, resource.getrlimit(resource.RLIMIT_AS)[1]))
            if not exchange(_compiled(source, source.alone(mutant)), functions, mutant.function):
                return 3
            self.forget()
            for place, test in enumerate(chosen):
                os.write(writing, struct.pack("i", place))
                signal.setitimer(signal.ITIMER_PROF, LEAST + 10 * test.seconds)
                signal.setitimer(signal.ITIMER_REAL, 60 + 20 * test.wall)
                following = chosen[place + 1].item if place + 1 < len(chosen) else None
                if _failed(test.item, following):
                    return 4 if full() else 1
            return 0

        output, status = _split(work)
        count = len(output) // 4
        by = chosen[struct.unpack("i", output[-4:])[0]].item.nodeid if count else ""
        if os.WIFSIGNALED(status):
            late = os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM)
            if os.WTERMSIG(status) == signal.SIGKILL:
                return Outcome("not tried", OUTSIDE[0], count)
            return Outcome("too long" if late else "killed", by, count)
        code = os.WEXITSTATUS(status)
        if code == 0:
            return Outcome("survived", "", count)
        if code == 4:
            return Outcome("not tried", OUTSIDE[1], count)
        return Outcome("killed", by, count) if code == 1 else Outcome("not tried", f"status {code}", count)


def own_tests(name: str) -> list[Path]:
    """Files of tests that are about a module; those of the house are about all."""
    tests = ROOT / "tests"
    if name in ELSEWHERE:
        return [tests / file for file in ELSEWHERE[name]]
    folder, stem = (tests / name).parent, Path(name).name.lstrip("_")
    siblings = {path.stem for path in (ROOT / "lib" / name).parent.glob("*.py")} - {stem, Path(name).name}
    files = []
    for file in sorted(folder.glob(f"test_{stem}*.py")):
        aspect = file.stem.removeprefix("test_")
        longer = any(len(other) > len(stem) and f"{aspect}_".startswith(f"{other}_") for other in siblings)
        if f"{aspect}_".startswith(f"{stem}_") and not longer:
            files.append(file)
    return files


@functools.cache
def _text_of(path: Path) -> dict[str, str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name: ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _test_text(nodeid: str) -> str:
    """The text of a test, "" if it is gone."""
    path, _, name = nodeid.partition("::")
    if not (ROOT / path).is_file():
        return ""
    return _text_of(ROOT / path).get(name.split("::")[-1].split("[")[0], "")


class Kept:
    """Cache of earlier outcomes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, dict[str, Any]] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            try:
                row = json.loads(line)
            except ValueError:  # the last line of a run that was killed while writing
                continue
            self.rows[row["key"]] = row

    def lookup(self, key: str, tests: str) -> tuple[Outcome, bool] | None:
        """A mutant's outcome, if nothing has changed that could change it, and whether tests of others were asked."""
        row = self.rows.get(key)
        if row is None or row["kind"] == "not tried":
            return None
        holds = row["tests"] == tests if row["kind"] == "survived" else row["test"] == _hash(_test_text(row["by"]))
        return (Outcome(row["kind"], row["by"], row["count"]), row["wide"]) if holds else None

    def keep(self, key: str, tests: str, mutant: Mutant, outcome: Outcome, wide: bool) -> None:
        """Write one line, at once."""
        row = {
            "key": key,
            "module": mutant.module,
            "function": mutant.function,
            "kind": outcome.kind,
            "by": outcome.by,
            "count": outcome.tests,
            "test": _hash(_test_text(outcome.by)) if outcome.by else "",
            "tests": tests,
            "wide": wide,
        }
        self.rows[key] = row
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")


def allowed_survivors() -> dict[str, dict[str, list[str]]]:
    """Changes of the mutants that may survive, by module and reason."""
    path = ROOT / LISTED
    return (yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None) or {}


def importers(names: set[str], everything: list[Source]) -> set[str]:
    """Modules that import one of these, or whose tests do."""
    importing = set()
    for source in everything:
        text = "\n".join(path.read_text(encoding="utf-8") for path in (source.path, *own_tests(source.name)))
        for name in names:
            room, _, module = _dotted(name).rpartition(".")
            within = rf"^from {re.escape(room)} import (?:.*|\([^)]*)\b{module}\b"
            if re.search(rf"^from {re.escape(_dotted(name))} import|{within}", text, re.M):
                importing.add(source.name)
    return importing


class Run:
    """The work, in the place of pytest's own loop over its tests."""

    def __init__(self, of: list[Source], chosen: dict[str, list[Mutant]], cache: Kept, wide: bool) -> None:
        self.everything = sources([])
        self.of = {source.name: source for source in of}
        self.sample = chosen
        self.kept, self.wide = cache, wide
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self.status = 0
        about = set(self.sample)
        if wide:
            about |= importers(about, self.everything)
        self.house = [path for file in HOUSE if (path := ROOT / "tests" / file).is_file()]
        self.files = sorted({file for name in about for file in own_tests(name)} | set(self.house))

    def pytest_configure(self) -> None:
        """A failure is enough: no smaller example is looked for."""
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile(
            "mutants",
            hypothesis.settings(),
            phases=phases,
            report_multiple_bugs=False,
            suppress_health_check=list(hypothesis.HealthCheck),  # a busy machine kills no mutant
        )
        hypothesis.settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try the mutants of one module after another; then on survivors the tests of modules that import theirs."""
        bench = Bench(session.items, self.everything, self.kept.path.parent)
        left = {name: self._module(bench, name) for name in self.sample}
        for name, survivors in left.items():
            if survivors and self.wide:
                start, before = time.monotonic(), self.counts[name].copy()
                self._try_other_tests(bench, name, survivors)
                if before != self.counts[name]:
                    self._report(name, time.monotonic() - start)
        for name, survivors in left.items():
            for mutant, label, outcome in survivors:
                self.status = 1
                reach = f"{outcome.tests} tests" if outcome.tests else "no test gets there"
                print(f"  survives ({name}.py:{mutant.statement[0]}, {reach}): {label}")
        return True

    def _key(self, mutant: Mutant) -> tuple[str, str, str]:
        before, after = self.of[mutant.module].texts(mutant)
        files = [*own_tests(mutant.module), *self.house]
        tests = _hash(*(path.read_text(encoding="utf-8") for path in files))
        return (
            _hash(mutant.module, mutant.function, before, after),
            tests,
            f"{mutant.function}: {change(before, after)}",
        )

    def _module(self, bench: Bench, name: str) -> list[tuple[Mutant, str, Outcome]]:
        """Try a module's mutants by its own tests; those that survive without a reason."""
        start, survivors = time.monotonic(), []
        reasons = {one: why for why, changes in allowed_survivors().get(name, {}).items() for one in changes}
        for mutant in self.sample[name]:
            key, tests, label = self._key(mutant)
            earlier = self.kept.lookup(key, tests)
            if earlier is None:
                tests_to_run = [test for path in own_tests(name) for test in bench.without_fault(path)]
                about = "" if Path(name).name.startswith("_") else f"[{_dotted(name)}."
                tests_to_run += [test for path in self.house for test in bench.without_fault(path, about)]
                outcome = bench.run_tests(self.of[name], mutant, tests_to_run)
                self.kept.keep(key, tests, mutant, outcome, wide=False)
            else:
                outcome = earlier[0]
                self.counts[name]["elsewhere"] += earlier[1] and outcome.kind in ("killed", "too long")
            self.counts[name][outcome.kind] += 1
            if outcome.kind == "survived" and label in reasons:
                self.counts[name]["listed"] += 1
            elif outcome.kind == "survived":
                survivors.append((mutant, label, outcome))
            elif outcome.kind == "not tried":
                self.status |= outcome.by in OUTSIDE
                print(f"    not tried ({outcome.by}): {label}")
            elif label in reasons:
                self.status = 1
                print(f"    listed, but killed: {label}")
        self._report(name, time.monotonic() - start)
        return survivors

    def _try_other_tests(self, bench: Bench, name: str, survivors: list[tuple[Mutant, str, Outcome]]) -> None:
        """Try what has survived by the tests of others, as far as they are quick."""
        near = {path for other in importers({name}, self.everything) for path in own_tests(other)}
        files = sorted(near - {*own_tests(name), *self.house})
        for one in list(survivors):
            mutant, _, first = one
            key, tests, _ = self._key(mutant)
            earlier = self.kept.lookup(key, tests)
            if earlier is None or not earlier[1]:
                tests_to_run = [test for path in files for test in bench.without_fault(path)]
                outcome = bench.run_tests(self.of[name], mutant, tests_to_run, most=MOST)
                outcome = Outcome(outcome.kind, outcome.by, outcome.tests + first.tests)
                self.kept.keep(key, tests, mutant, outcome, wide=True)
            else:
                outcome = earlier[0]
            if outcome.kind in ("killed", "too long"):
                self.counts[name]["survived"] -= 1
                self.counts[name][outcome.kind] += 1
                self.counts[name]["elsewhere"] += 1
                survivors.remove(one)
            else:
                survivors[survivors.index(one)] = (mutant, one[1], outcome)

    def _report(self, name: str, seconds: float) -> None:
        print(f"{name:28} {_line(self.counts[name])} {seconds:6.0f} s", flush=True)


def _line(count: Counter[str]) -> str:
    dead, tries = count["killed"] + count["too long"], sum(count[kind] for kind in ("killed", "too long", "survived"))
    return (
        f"{dead:4}/{tries:<4} killed ({count['too long']} too long, {count['elsewhere']} by others' tests), "
        f"{count['survived']:3} survive, {count['listed']:3} of them listed"
    )


def run(of: list[Source], chosen: dict[str, list[Mutant]], cache: Kept, wide: bool) -> int:
    """Try a sample; the exit status."""
    work = Run(of, chosen, cache, wide)
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        options = ["-qq", "-s", "--tb=native", "--no-header", "--no-summary", "-pno:cacheprovider"]
        status = pytest.main([*options, f"--basetemp={folder}/tests", *map(str, work.files)], plugins=[work])
    total: Counter[str] = sum(work.counts.values(), Counter())
    dead, tries = total["killed"] + total["too long"], sum(total[kind] for kind in ("killed", "too long", "survived"))
    print(f"{'all':28} {_line(total)}")
    if total["not tried"]:
        print(f"{total['not tried']} could not be tried")
    real = max(1, tries - total["listed"])
    print(f"{100 * dead / max(1, tries):.1f}% of all are killed, {100 * dead / real:.1f}% of those not listed")
    return work.status or int(status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED))


def main() -> int:
    """Try; return an exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "modules", nargs="*", metavar="module", help="icl/theory/s6, or icl/theory for a room; all if none is"
    )
    parser.add_argument("-n", type=int, default=1000, help="so many mutants, shared out among the modules")
    parser.add_argument(
        "--part", default="1/1", help="1/8: of the sample that of every eighth module; week: this one's"
    )
    parser.add_argument("--own", action="store_true", help="ask no tests but a module's own and the house's")
    given = parser.parse_args()
    week = f"{datetime.date.today().isocalendar().week % 8 + 1}/8"
    part, parts = map(int, (week if given.part == "week" else given.part).split("/"))
    of = sources(given.modules)
    chosen = sample(of, given.n)
    chosen = {name: chosen[name] for name in list(chosen)[part - 1 :: parts]}
    try:
        (ROOT / KEPT).parent.mkdir(exist_ok=True)
        (ROOT / KEPT).touch()
    except OSError as error:
        print(f"{error.filename}: {error.strerror}: what was tried could not be kept", file=sys.stderr)
        return 1
    return run(of, chosen, Kept(ROOT / KEPT), not given.own)


if __name__ == "__main__":
    sys.exit(main())
