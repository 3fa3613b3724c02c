"""Has the program changed? What code does, as a hash that names, place, words and refusals do not enter.

Longer than most files, because it is one reading of Python, a case for each kind of statement.

The identity of a definition is a hash of its statement, in which every other definition of this library that it uses is
replaced by that one's identity. So it changes with anything it computes with, however deep, and not with a move to
another file or another name, an import line, a comment, a docstring, an annotation or the layout. Nor does it change
with a refusal (`if ...: raise`, or a bare call of `_checks`), which can end a run, and no run that it ended gave
numbers; nor with how a checkpoint is stored, which gives back what it was given or refuses.

One reading of code serves records, the pages' cache, benchmarks and recordings.
"""

import ast
import contextlib
import hashlib
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("icl", "icl_bench", "icl_book")
_CHECKS = "icl._checks"
# Of the checks, the one that returns something else than what it was given: the identity for None.
_COMPUTES = "icl._checks.covariance"
# What hands through what it is given, and what code is called by: they count by name alone.
_HANDS_ON = (_CHECKS, "icl.runs.checkpoint", "icl._identity")


class _Module:
    """A file of the library, or cells of a notebook: what its names stand for."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.imports: dict[str, str] = {}
        self.statements: dict[str, list[ast.stmt]] = {}
        self._lines = source.splitlines()
        for node in ast.parse(source).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self.imports |= _imported(node)
            for bound in _bound([node]):
                self.statements.setdefault(bound, []).append(node)
        for bound in self.imports:
            self.statements.pop(bound, None)

    def fresh(self, node: ast.stmt) -> ast.stmt:
        """The statement read anew, for a reader to take apart; in the library it has its lines for itself."""
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        (alone,) = ast.parse("\n".join(self._lines[first - 1 : node.end_lineno])).body
        return alone


def _imported(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """What each name bound by an import stands for, dotted."""
    if isinstance(node, ast.ImportFrom):
        return {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return {
        alias.asname or alias.name.partition(".")[0]: alias.name if alias.asname else alias.name.partition(".")[0]
        for alias in node.names
    }


def _bound(body: Iterable[ast.AST]) -> Iterator[str]:
    """Names that statements bind in the scope they stand in, those of comprehensions and inner functions apart."""
    ahead = list(body)[::-1]
    while ahead:
        node = ahead.pop()
        match node:
            case ast.Name(id=name, ctx=context):  # by far the most
                if not isinstance(context, ast.Load):
                    yield name
                continue
            case ast.Constant() | ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                continue
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
                continue
            case ast.Import() | ast.ImportFrom():
                yield from _imported(node)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name
        ahead += list(ast.iter_child_nodes(node))[::-1]


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Statements of a block and of the blocks inside it, those of inner functions and classes apart."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, ast.expr):
            yield from _statements(ast.iter_child_nodes(node))


@cache
def _module(name: str) -> _Module | None:
    """A module of the library by its dotted name, None if there is no such file."""
    parts = name.split(".")
    if parts[0] not in _PACKAGES:
        return None
    place = _ROOT.joinpath(*parts)
    for path in (place / "__init__.py", place.with_suffix(".py")):
        if path.is_file() and (path.name == "__init__.py" or len(parts) > 1):
            return _Module(name, path.read_text(encoding="utf-8"))
    return None


@cache
def modules() -> tuple[str, ...]:
    """Return the dotted names of all files of the library, packages' own apart."""
    paths = sorted(path.relative_to(_ROOT) for path in _ROOT.rglob("*.py") if path.name != "__init__.py")
    return tuple(".".join(path.with_suffix("").parts) for path in paths)


def files() -> str:
    """Return a hash of all files of the library as they are written, words, names and places included."""
    digest = hashlib.sha256()
    for path in sorted(_ROOT.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(_ROOT).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _names(module: str) -> list[str]:
    """Names that a module of the library defines."""
    found = _module(module)
    return list(found.statements) if found else []


def _home(dotted: str) -> str:
    """Where a dotted name of the library is defined, through re-exports."""
    owner, _, name = dotted.rpartition(".")
    if _module(dotted) is None and (module := _module(owner)) and name in module.imports:
        return _home(module.imports[name])
    return dotted


def _name(dotted: str) -> ast.Name:
    return ast.Name(dotted.replace(".", "_"), ast.Load())


class _Reader(ast.NodeTransformer):
    """Rewrites statements so that only what they do is left, and notes what of the library they use, in order."""

    def __init__(self, module: _Module, itself: str = "") -> None:
        self.module, self.itself = module, itself
        self.used: list[str] = []
        self.scopes: list[tuple[str, dict[str, str]]] = []

    # Names

    def _stands_for(self, name: str) -> str | None:
        """The dotted name behind a name of this scope; None for a local one or a built-in."""
        for depth, (kind, names) in enumerate(reversed(self.scopes)):
            # A method does not see the names of its class.
            if name in names and (kind != "class" or depth == 0):
                return names[name] or None
        if name in self.module.imports:
            return self.module.imports[name]
        return f"{self.module.name}.{name}" if name in self.module.statements else None

    def _refer(self, dotted: str) -> ast.expr:
        if dotted == self.itself:
            return _name("itself")
        if not dotted.startswith("icl."):
            return _name(dotted)
        if dotted.startswith(tuple(f"{each}." for each in _HANDS_ON)):
            return _name(dotted.rpartition(".")[2])
        if dotted not in self.used:
            self.used.append(dotted)
        return _name(f"used.{self.used.index(dotted)}")

    def visit_Name(self, node: ast.Name) -> ast.expr:
        dotted = self._stands_for(node.id)
        return self._refer(_home(dotted)) if dotted else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        chain, base = [node.attr], node.value
        while isinstance(base, ast.Attribute):
            chain.append(base.attr)
            base = base.value
        dotted = self._stands_for(base.id) if isinstance(base, ast.Name) else None
        if dotted is None or not (_module(dotted) or dotted == "icl"):
            return self.generic_visit(node)
        # As far as there are modules, and one name in the last of them.
        dotted = _home(dotted)
        while chain and (_module(dotted) or dotted == "icl"):
            dotted = _home(f"{dotted}.{chain.pop()}")
        result = self._refer(dotted)
        while chain:
            result = ast.Attribute(result, chain.pop(), node.ctx)
        return result

    # Scopes

    def _inside(self, kind: str, body: Iterable[ast.AST], names: Iterable[str] = ()) -> dict[str, str]:
        """Enter a scope: what it binds, and what its own imports stand for."""
        scope = dict.fromkeys([*names, *_bound(body)], "")
        for inner in _statements(body):
            if isinstance(inner, ast.Import | ast.ImportFrom):
                scope |= _imported(inner)
            if isinstance(inner, ast.Global):
                for name in inner.names:
                    scope.pop(name, None)
        self.scopes.append((kind, scope))
        return scope

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> ast.AST:
        arguments = node.args
        everyone = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        everyone += [each for each in (arguments.vararg, arguments.kwarg) if each]
        for each in everyone:
            each.annotation = None
        arguments.defaults = [self.visit(each) for each in arguments.defaults]
        arguments.kw_defaults = [each and self.visit(each) for each in arguments.kw_defaults]
        names = [each.arg for each in everyone]
        if isinstance(node, ast.Lambda):
            self._inside("function", [node.body], names)
            node.body = self.visit(node.body)
        else:
            node.decorator_list = [self.visit(each) for each in node.decorator_list]
            node.returns = None
            self._inside("function", node.body, names)
            node.body = self._block(node.body)
        self.scopes.pop()
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _function

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.bases = [self.visit(each) for each in node.bases]
        node.keywords = [self.visit(each) for each in node.keywords]
        node.decorator_list = [self.visit(each) for each in node.decorator_list]
        self._inside("class", node.body)
        # A method that only refuses does nothing.
        node.body = [
            each
            for each in self._block(node.body)
            if not (isinstance(each, ast.FunctionDef) and each.name == "__post_init__" and _idle(each.body))
        ] or [ast.Pass()]
        self.scopes.pop()
        return node

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> ast.AST:
        self._inside("function", [each.target for each in node.generators])
        self.generic_visit(node)
        self.scopes.pop()
        return node

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _comprehension

    # Statements

    def _block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """What is left of a block: no words, no refusals, no imports."""
        kept: list[ast.stmt] = []
        for node in body:
            if isinstance(node, ast.Expr) and (isinstance(node.value, ast.Constant) or self._refuses(node.value)):
                continue
            if isinstance(node, ast.Import | ast.ImportFrom):
                continue
            if isinstance(node, ast.If) and not node.orelse and all(isinstance(each, ast.Raise) for each in node.body):
                continue
            if isinstance(node, ast.AnnAssign) and not (self.scopes and self.scopes[-1][0] == "class"):
                if node.value is None:
                    continue
                node = ast.Assign([node.target], node.value, lineno=node.lineno)
            done = self.visit(node)
            if isinstance(done, ast.For | ast.If) and _idle(done.body) and not done.orelse:
                continue
            # How numpy warns is no part of what it computes.
            if isinstance(done, ast.With) and all(map(_warns, done.items)):
                kept += done.body
                continue
            kept.append(done)
        return kept or [ast.Pass()]

    def _refuses(self, value: ast.expr) -> bool:
        """Whether an expression is a call that can only refuse: one of `_checks`, or of a function of nothing else."""
        if not isinstance(value, ast.Call):
            return False
        dotted = self._dotted(value.func)
        if dotted is None:
            return False
        if dotted.startswith(f"{_CHECKS}."):
            return True
        owner, _, name = _home(dotted).rpartition(".")
        module = _module(owner)
        found = module.statements.get(name, []) if module else []
        return len(found) == 1 and isinstance(found[0], ast.FunctionDef) and _only_refuses(owner, name)

    def _dotted(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return self._stands_for(node.id)
        if isinstance(node, ast.Attribute) and (base := self._dotted(node.value)):
            return f"{base}.{node.attr}"
        return None

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                setattr(node, name, self._block(block))
        for name, value in ast.iter_fields(node):
            if name in ("body", "orelse", "finalbody") and isinstance(value, list):
                continue
            if isinstance(value, list):
                value[:] = [self.visit(each) if isinstance(each, ast.AST) else each for each in value]
            elif isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        dotted = self._dotted(node.func)
        if dotted and dotted.startswith(f"{_CHECKS}.") and len(node.args) > 1:
            # What it lets through is what it was given; the name and the bounds are words.
            value = self.visit(node.args[1])
            return ast.Call(_name("covariance"), [value], []) if dotted == _COMPUTES else value
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return ast.Raise()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        # A field of a dataclass: that it is one counts, and not of which type.
        plain = not any(word in ast.unparse(node.annotation) for word in ("ClassVar", "InitVar", "KW_ONLY"))
        node.annotation = _name("field") if plain else self.visit(node.annotation)
        node.value = node.value and self.visit(node.value)
        return node


def _warns(item: ast.withitem) -> bool:
    return ast.unparse(item).startswith("numpy.errstate(")


def _idle(body: list[ast.stmt]) -> bool:
    return all(isinstance(each, ast.Pass) for each in body)


@cache
def _only_refuses(module: str, name: str) -> bool:
    found = _module(module)
    assert found is not None
    (node,) = found.statements[name]
    done = _Reader(found, f"{module}.{name}").visit(found.fresh(node))
    return _idle(done.body)


@cache
def _read(dotted: str) -> tuple[str, tuple[str, ...]] | None:
    """What a definition does, with what it uses numbered, and what that is; None if there is no such definition."""
    owner, _, name = dotted.rpartition(".")
    module = _module(owner)
    if module is None or name not in module.statements:
        return None
    reader = _Reader(module, dotted)
    texts = []
    for node in module.statements[name]:
        (done,) = reader._block([module.fresh(node)])
        if isinstance(done, ast.FunctionDef | ast.ClassDef):
            done.name = "itself"
        else:
            # Of several names bound at once, which.
            texts.append(str([each == name for each in _bound([node])]))
            for target in ast.walk(done):
                if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store):
                    target.id = "itself"
        texts.append(ast.unparse(done))
    return "\n".join(texts), tuple(reader.used)


_known: dict[str, str] = {}


def _hashed(dotted: str, above: tuple[str, ...] = ()) -> tuple[str, int]:
    """The identity of a definition seen from those `above` it, and the highest of them that it refers to."""
    if dotted in _known:
        return _known[dotted], len(above)
    if dotted in above:
        return f"above {len(above) - above.index(dotted)}", above.index(dotted)
    reading = _read(dotted)
    whole = reading is None
    if reading is None:
        # A module handed on as a whole, or a name that nobody knows: all that it may be.
        parts = [name for name in modules() if name == dotted or name.startswith(f"{dotted}.")]
        inner = tuple(f"{part}.{name}" for part in parts for name in _names(part))
        reading = ("all of these" if parts else f"nothing of this library: {dotted}"), inner
    text, used = reading
    inside = (*above, dotted)
    found = [_hashed(each, inside) for each in used]
    hashes = [each for each, _ in found]
    # The order of definitions in a module is no part of what it is.
    digest = hashlib.sha256("\0".join([text, *(sorted(hashes) if whole else hashes)]).encode()).hexdigest()[:16]
    highest = min((top for _, top in found), default=len(inside))
    # Within a circle of definitions the hash depends on where one came in.
    if highest >= len(above):
        _known[dotted] = digest
    return digest, min(highest, len(above))


def identity(dotted: str) -> str:
    """Return the identity of a definition of the library, or of a whole module, by its dotted name."""
    return _hashed(_home(dotted))[0]


def reached(cells: Iterable[str], *, but: Iterable[str] = ()) -> dict[str, str]:
    """Return what of the library these pieces of one program name, each with its identity.

    Args:
        cells: sources, read as one module after another in one namespace.
        but: dotted names of modules or packages that are left out.
    """
    source = "\n".join(cells)
    reader = _Reader(_Module("", source))
    reader._block(ast.parse(source).body)
    apart = tuple(but)
    names = [each for each in reader.used if not any(each == a or each.startswith(f"{a}.") for a in apart)]
    return {name: identity(name) for name in sorted(names)}


def running() -> list[str]:
    """Return the program that runs now: the cells this notebook has run, each once, or the file that was started."""
    with contextlib.suppress(AttributeError, KeyError):
        return list(dict.fromkeys(sys.modules["IPython"].get_ipython().user_ns["In"][1:]))
    started = getattr(sys.modules["__main__"], "__file__", None) or ""
    return [Path(started).read_text(encoding="utf-8")] if started.endswith(".py") else []


def program(cells: Iterable[str]) -> str:
    """Return a hash of pieces of a program, comments and layout apart; of the library, what it names counts too."""
    parts = list(cells)
    texts = [ast.unparse(ast.parse(cell)) for cell in parts]
    return hashlib.sha256("\0".join([*texts, *reached(parts).values()]).encode()).hexdigest()[:16]


@cache
def everything() -> frozenset[str]:
    """Return the identities of all definitions and modules that there are."""
    names = modules()
    return frozenset(identity(each) for name in names for each in (name, *(f"{name}.{b}" for b in _names(name))))
