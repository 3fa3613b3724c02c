"""Numbers typed beside a computation: into reasons of the ledger, notes of checks, descriptions of figures."""

import ast
import re
from dataclasses import replace

import chapters
import prose
import pytest

from icl_book import claims

LEDGER = claims.ledger()
_NUMBER = re.compile(r"(?<![\w.^])(?:\d[\d,]*\.\d+|\d[\d,]*\d|\d(?=\s?%))(?!\w)")
CHARTS = ("curves", "dots", "heatmap", "intervals", "strip", "tiles")
#: What is told of a computation: arguments by the methods and functions that take them.
TOLD = {"holds": {"note"}, "agrees": {"note"}, **{name: {"alt", "subtitle"} for name in CHARTS}}


def numbers(text):
    """Decimals, percentages and numbers of two digits and more, but for those of equations and formulas."""
    plain = re.sub(r"\(\d+\)", " ", prose.without_asides(text))
    return [number.replace(",", "") for number in _NUMBER.findall(plain)]


def known(*texts):
    """All numbers of some texts."""
    return set(re.findall(r"\d+(?:\.\d+)?", " ".join(map(str, texts)).replace(",", "")))


def unbacked(row, text):
    """Numbers of a row's reason that neither the row nor its chapter has: in its words, its settings or its limits."""
    own = (row.claim, row.how, row.source, row.printed, row.limits, row.tolerance)
    cells = " ".join(chapters.code_cells(text)).replace("_", "")
    there = known(prose.text_of(text), cells, *own)
    return [number for number in numbers(row.reason) if number not in there]


def typed(text):
    """Numbers typed into notes and descriptions that are neither in the page's words nor a setting of its cells."""
    nodes = [node for cell in chapters.code_cells(text) for node in chapters.nodes(cell)]
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    told = [k.value for call in calls for k in call.keywords if k.arg in TOLD.get(call.func.attr, ())]
    words = {id(each) for value in told for each in ast.walk(value) if isinstance(getattr(each, "value", 0), str)}
    settings = [n.value for n in nodes if isinstance(n, ast.Constant) and id(n) not in words]
    settings += [f"{value:g}" for value in settings if isinstance(value, float)]
    there = known(prose.text_of(text), *settings)
    return [number for value in told for words in _words(value) for number in numbers(words) if number not in there]


def _words(node):
    """The typed parts of a text, without what is computed within it."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.FormattedValue | ast.Subscript):
        return []
    return [words for child in ast.iter_child_nodes(node) for words in _words(child)]


#: Numbers of a reason that the chapter does not have, by row: why nobody computes them there.
FROM_ELSEWHERE = {
    ("gla.nlp.sizes", "124"): "what the authors of the model corrected their number to",
    ("mem.fig5.batch-1", "26"): "one more than the 25 that the chapter has",
    ("mamba.fig1b.alignment", "0.15"): "in words of the chapter: below 0",
    ("mamba.rate-one-over-n", "0.96"): "25/26, which the chapter has",
}


def test_numbers_of_reasons_are_the_chapters():
    """A number of a row's reason is one of its chapter's, or of the row; or it is listed."""
    rows = [row for row in LEDGER.values() if row.chapter and row.reason]
    found = {(row.id, number) for row in rows for number in unbacked(row, chapters.source(row.chapter))}
    assert found == set(FROM_ELSEWHERE)


def test_a_number_changed_in_a_reason_is_found():
    """97% of a chapter that says 98%, and a decimal that it has not; its own limits and words are none."""
    row = next(c for c in LEDGER.values() if c.verdict == "reproduced")
    text = "# A\n\nOf 1,000 runs 98% arrive.\n\n```{code-cell}\nruns = 1_000\n```\n"
    row = replace(row, reason="Of 1,000 runs 97% arrive within 0.31 of it, as (16) says.", limits={"near": 0.31})
    assert unbacked(row, text) == ["97"]
    assert unbacked(replace(row, limits={}), text) == ["97", "0.31"]


@pytest.mark.parametrize("page", chapters.with_cells())
def test_notes_and_descriptions_are_computed(page):
    """A number typed into the note of a check or the description of a figure is a setting of the page or its text's."""
    assert typed(chapters.source(page)) == []


@pytest.mark.parametrize(
    "call",
    [
        """claim("a").holds(x, note=f"{gap:.2f} at n = 40, {', '.join(f'{v:.20f}' for v in c)}; 0.31 before")""",
        """charts.curves(x, data, alt=f"Error against {n} examples, 40 of them: from {a:.2f} to 0.31.")""",
    ],
)
def test_a_typed_number_is_found(call):
    """What was computed, and what is a setting, is let through."""
    assert typed(f"# A\n\n```{{code-cell}}\nn = 40\n{call}\n```\n") == ["0.31"]
