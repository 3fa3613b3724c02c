"""The symbol table and the code agree on the names."""

import ast
import functools
from pathlib import Path

import pytest

import icl
from icl_book.notation import SYMBOLS

ROOT = Path(icl.__file__).parents[1]
MODULES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(ROOT.rglob("*.py"))
    if path.name != "notation.py"
}
NAMES = {symbol.code for symbol in SYMBOLS}

# What the papers' letters are called here, and every other Greek letter.
PAPERS = {"lam", "gamma", "sigma_w", "sigma_e", "Lambda", "Sigma_w", "W_V", "W_KQ", "decay"}
GREEK = {
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "iota",
    "kappa",
    "lambda",
    "lam",
    "mu",
    "nu",
    "xi",
    "pi",
    "rho",
    "sigma",
    "tau",
    "phi",
    "chi",
    "psi",
    "omega",
}


@functools.cache
def identifiers():
    """Every name that the library's code gives to anything: variables, attributes, arguments, functions."""
    found = set()
    for tree in MODULES.values():
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.FunctionDef(name=name):
                    found.add(name)
    return found


def arguments():
    """(where, name) of every argument of a public function or method and every field of a public class."""
    for file, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") or node.name == "__init__"):
                named = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                yield from ((f"{file}:{node.name}", a.arg) for a in named)
            elif isinstance(node, ast.ClassDef):
                fields = (
                    n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
                )
                yield from ((f"{file}:{node.name}", field) for field in fields)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_symbol_is_a_name_in_the_code(name):
    """The name that the symbol table gives to a symbol is one that the library's code uses, not its prose alone."""
    assert name in identifiers()


def test_every_letter_of_the_papers_is_in_the_table():
    """Every argument or field of the library that is called by a letter of the papers, Greek ones above all, is
    explained.

    A name counts as Greek if it is a Greek letter's, capital or not, with or without an index.
    """
    taken = {name: where for where, name in arguments()}
    letters = {name: where for name, where in taken.items() if name in PAPERS or name.split("_")[0].lower() in GREEK}
    assert set(letters) >= PAPERS
    assert {name: where for name, where in letters.items() if name not in NAMES} == {}


def test_symbols_are_complete_and_distinct():
    """No code name and no LaTeX stands in the table twice, and every row says what the symbol is and where it comes
    from.
    """
    assert len(NAMES) == len(SYMBOLS)
    assert len({symbol.latex for symbol in SYMBOLS}) == len(SYMBOLS)
    for symbol in SYMBOLS:
        assert symbol.code.isidentifier()
        assert symbol.code.isascii()
        assert all(text.strip() for text in (symbol.latex, symbol.shape, symbol.meaning, symbol.defined))
