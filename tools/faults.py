"""Small faults, made in a program's syntax tree, with which `tools/library_mutants.py` tries the library.

A fault is another operator or number, a term or a statement less, two arguments swapped, or a condition turned round.
"""

import ast
import copy
from collections.abc import Iterator
from typing import Any

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


Way = tuple[tuple[str, int | None], ...]


def nodes(node: ast.AST, path: Way) -> Iterator[tuple[Way, ast.AST, ast.AST]]:
    """The nodes below one, each with its way there and the node above; no signature, decorator or note of a type."""
    for field, value in ast.iter_fields(node):
        if field in ("args", "returns", "annotation", "decorator_list") and isinstance(node, ast.FunctionDef | ast.arg):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST):
                way = (*path, (field, index))
                yield way, child, node
                yield from nodes(child, way)


def _at(tree: ast.AST, path: Way) -> Any:
    for field, index in path:
        below = getattr(tree, field)
        tree = below if index is None else below[index]
    return tree


def put(tree: ast.AST, path: Way, other: ast.AST) -> None:
    tree, (field, index) = _at(tree, path[:-1]), path[-1]
    if index is None:
        setattr(tree, field, other)
    else:
        getattr(tree, field)[index] = other


def _like(node: ast.AST, **fields: Any) -> Any:
    twin = copy.copy(node)  # what is below is shared: a tree is changed by what stands in it, and is read as it stands
    for field, value in fields.items():
        setattr(twin, field, value)
    return twin


def instead(node: ast.AST) -> Iterator[ast.AST]:
    """Mutations of a node."""
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            yield from (_like(node, op=other()) for other in OPERATORS.get(type(op), ()))
            yield from (left, right)
            if isinstance(op, ORDERED):
                yield _like(node, left=right, right=left)
            if isinstance(op, ast.MatMult):
                turned = [s if isinstance(s, ast.Attribute) and s.attr == "T" else _transpose(s) for s in (left, right)]
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
                for field, value in (("lower", lower), ("upper", upper), ("step", step))
                if value is not None
            )
        case ast.IfExp(body=body, orelse=orelse):
            yield from (body, orelse)
        case ast.If(test=test) | ast.While(test=test):
            yield _like(node, test=ast.UnaryOp(ast.Not(), test))
            if isinstance(node, ast.If):
                yield from (_like(node, test=ast.Constant(value)) for value in (True, False))
        case ast.Assign() | ast.Expr():
            yield ast.Pass()


def _transpose(node: ast.expr) -> ast.expr:
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
