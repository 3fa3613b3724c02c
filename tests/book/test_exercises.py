"""Self-checks tell right from wrong: what readers are tempted to answer is refused and named, a right answer is not.

An attempt is checked against the sealed numbers on the chapter's own cases. Of a chapter runs only what these cases and
the solutions need.
"""

import ast
import re
from pathlib import Path

import chapters
import pytest
import solutions

ROOT = Path(__file__).resolve().parents[2]

LABELS = solutions.labels()
WRONG = solutions.mistakes()
#: Right answers that rounding or a naive formula could have turned away.
RIGHT = {
    "ex-orbit": "def other(M): return np.diag(np.full(len(M), np.diag(M).mean()))",
    "ex-pole": """
def other(gamma, d):
    q = (1 - gamma**2) / (d + 1)
    return 2 * gamma / (1 + gamma**2 + q + np.sqrt(((1 - gamma) ** 2 + q) * ((1 + gamma) ** 2 + q)))
""",
    "ex-figure-seeds": "def other(sd, gap): return np.ceil(round(8 * sd**2 / gap**2, 6))",
    "ex-gdpp-newton": """
def other(H, b, a, steps):
    w = np.zeros(len(b))
    for _ in range(2**steps):
        w = w + a * (b - H @ w)
    return w
""",
    "ex-increments": """
def other(Lambda):
    for row in range(len(Lambda) - 1, 0, -1):
        Lambda[row] -= Lambda[row - 1]
    return Lambda
""",
    "ex-scalars-polynomial": """
def other(alpha, gamma):
    t = np.linspace(0, 3, len(alpha) + 1)
    p, s = np.ones_like(t), np.zeros_like(t)
    values = [p]
    for a, g in zip(alpha, gamma):
        s = g * s - t * p
        p = p + a * s
        values.append(p)
    return np.linalg.solve(np.vander(t, increasing=True), np.array(values).T).T
""",
}


#: Whose solution takes seconds; the build sees it pass.
SLOW = {"ex-flow-safe"}


@pytest.mark.usefixtures("as_installed")  # a reader's attempts meet the library without checks of its annotations
@pytest.mark.parametrize("page", LABELS)
def test_self_checks_tell_right_from_wrong(page):
    """A chapter's solutions pass, written otherwise too; each of three or more wrong answers is refused and named.

    A wrong answer whose text is not in the solution, or is there twice, is named: the solution has changed since.
    """
    chapter, found = solutions.Page(page), []
    for label in LABELS[page]:
        solution = chapter.source(label)
        for right in (*([] if label in SLOW else [solution]), *([RIGHT[label]] if label in RIGHT else [])):
            outcome = chapter.outcome(label, right)
            if not outcome.passed or "comes out" in outcome.message:
                found.append(f"{label}: a right answer is refused: {outcome.message}")
        assert len(WRONG[label]) >= 3, label
        for why, texts in WRONG[label].items():
            try:
                outcome = chapter.outcome(label, solutions.replaced(solution, *texts))
            except ValueError as error:
                found.append(f"{label}, {why}: {error}")
                continue
            if outcome.passed:
                found.append(f"{label}: a wrong answer passes: {why}")
            elif (
                not outcome.message.endswith(f" This is what comes out {why}.") and " it raised " not in outcome.message
            ):
                found.append(f"{label}: tools/freeze_answers.py {page}: {outcome.message}, and not {why}")
    assert found == []


def test_each_self_check_has_its_wrong_answers():
    """The tables name the book's labels: each in that of wrong answers, some in that of right ones."""
    labels = [label for page in LABELS for label in LABELS[page]]
    assert sorted(WRONG) == sorted(labels)
    assert set(RIGHT) <= set(labels)


def test_misconceptions_end_a_sentence():
    """What follows "This is what comes out" begins as such words do, and ends without a stop."""
    strange = [
        why
        for mistakes in WRONG.values()
        for why in mistakes
        if not re.fullmatch(r"(with|without|when|for) .*[^.]", why)
    ]
    assert strange == []


def in_sight(text):
    """Self-checks that show what they compare an attempt with; a sealed answer is named by a label."""
    found = []
    for cell in chapters.code_cells(text):
        for node in chapters.nodes(cell) if "check" in cell else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "check":
                answer = node.args[1] if len(node.args) > 1 else None
                if not (isinstance(answer, ast.Constant) and isinstance(answer.value, str)):
                    found.append(ast.unparse(node)[:80])
    return found


@pytest.mark.parametrize("page", chapters.with_cells())
def test_answers_are_not_in_plain_sight(page):
    """Every self-check compares with sealed answers, and every label is sealed in the page and is a file."""
    text = chapters.source(page)
    assert in_sight(text) == []
    cells = "\n".join(chapters.code_cells(text))
    sealed = set(re.findall(r"""\bseal\(\s*["']([^"']+)["']""", cells))
    assert sealed == set(LABELS.get(page, ()))
    assert all((ROOT / "book/answers" / f"{label}.json").is_file() for label in sealed)


def test_an_answer_in_sight_is_found():
    """A lambda, a library function or a named reference beside the blank is reported; a label is not."""
    calls = ["check(mine, lambda d: d + 1, [{}])", "check(mine, theory.risk, [{}])", "check(mine, 'ex', [{}])"]
    cell = "\n".join(["```{code-cell}", *calls, "```\n"])
    assert len(in_sight(cell)) == 2
