"""Faulty solutions are made as small faults are made, and one that never ends is stopped."""

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import faults
import solution_mutants as mutants

SOLUTION = """
def weights(x, lam, n):
    total = x @ x
    if lam <= 0:
        return -x.T
    for k in range(n):
        total += lam**k
    return np.sum(x[1:], axis=0) / total
"""

NESTED = """
def weights(x, n):
    def half(a):
        '''Half of it,
        and no more.'''
        return a / 2
    if n > 2:
        y = half(x)
    elif n > 1:
        y = 'a' + f'{x!r}\\n'
    else:

        def third(a):
            return a / 3
        y = third(x)
    return y
"""


@pytest.mark.parametrize(
    "change",
    [
        "total = x * x",
        "total = x",
        "total = x.T @ x",
        "if lam < 0:",
        "if lam > 0:",
        "if lam <= 1:",
        "if not lam <= 0:",
        "return x.T",
        "return -x",
        "for k in range(n + 1):",
        "for k in range(n - 1):",
        "total -= lam ** k",
        "total += k ** lam",
        "total += lam ** n",
        "without total += lam ** k",
        "return np.mean(x[1:], axis=0) / total",
        "return np.sum(x[1:]) / total",
        "return np.sum(x[1:], axis=1) / total",
        "return np.sum(x[2:], axis=0) / total",
        "return np.sum(x, axis=0) / total",
        "return np.sum(x[1:], axis=0) * total",
        "return total / np.sum(x[1:], axis=0)",
        "return np.sum(x[1:], axis=0) / n",
    ],
)
def test_small_faults_are_made(change):
    """An operator, a number, a term, a statement, a condition, an axis, an order, an end, a name or a transpose."""
    assert change in {mutant.change for mutant in mutants.mutants(SOLUTION)}


def test_each_mutant_is_another_function():
    """Mutants differ from the solution and from one another, can be compiled, and keep the arguments."""
    found = mutants.mutants(SOLUTION)
    texts = [mutant.source for mutant in found]
    assert len(set(texts)) == len(texts)
    assert ast.unparse(ast.parse(SOLUTION)) not in texts
    assert all(text.startswith("def weights(x, lam, n):") for text in texts)
    assert mutants.sample(SOLUTION, 5, "a") == mutants.sample(SOLUTION, 5, "a") != mutants.sample(SOLUTION, 5, "b")


@pytest.mark.parametrize("source", [SOLUTION, NESTED])
def test_a_mutant_is_the_whole_function_with_one_fault(source):
    """Its lines are those of the whole syntax tree, wherever in it the statement with the fault stands.

    Planted: a fault in the `elif` made an `if` of it.
    """
    tree, texts = ast.parse(source), set()
    for path, node, above in [*faults.nodes(tree, ())]:
        for other in [*faults.instead(node, above, faults._names(tree))]:
            faults.put(tree, path, other)
            texts.add(ast.unparse(tree))
            faults.put(tree, path, node)
    made = {mutant.source for mutant in faults.mutants(source)}
    assert len(made) > 20
    assert made <= texts
    for text in texts - made - {ast.unparse(tree)}:
        with pytest.raises(SyntaxError):
            compile(text, "mutant", "exec")


def test_an_endless_mutant_is_refused():
    """A self-check that takes longer than the limit is stopped, though it catches all that an attempt may raise."""

    class Page:
        def outcome(self, label, source):
            while True:
                try:
                    while True:
                        pass
                except Exception:
                    continue

    assert not mutants.passes(Page(), "ex", mutants.mutants(SOLUTION)[0], limit=0.05)
