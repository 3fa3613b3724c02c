"""The page of errata shows all lists, whole."""

import re
from pathlib import Path

import directives

from icl.theory.errata import (
    adaptation,
    memory,
    selection,
)
from icl_book import claims

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_shows_all_lists():
    """The page of errata asks for the lists of all papers; each has a row for every erratum, printed and corrected
    forms apart and as formulas.
    """
    text = (ROOT / "book/evidence/errata.md").read_text(encoding="utf-8")
    assert re.findall(r"^```\{errata\} (\w+)$", text, re.M) == ["gla", "mem", "mamba"]
    for paper, listed in (("gla", adaptation.ADAPTATION), ("mem", memory.MEMORY), ("mamba", selection.SELECTION)):
        header, rows = directives.errata(paper)
        assert [int(row[0]) for row in rows] == list(listed) == list(range(1, len(listed) + 1))
        wrong, right = header.index("Printed"), header.index("Corrected")
        for row in rows:
            assert len(row) == len(header)
            assert row[wrong] != row[right]
            assert all(cell[0] == cell[-1] == "$" and cell.count("$") == 2 for cell in (row[wrong], row[right]))
            # A bar would end the cell, and a dollar sign alone would start a formula.
            assert not any("|" in cell or cell.count("$") % 2 for cell in row)


def test_the_page_shows_all_statements_that_do_not_hold():
    """The page asks for those of all papers; rows lead to claims that did not simply hold."""
    text = (ROOT / "book/evidence/errata.md").read_text(encoding="utf-8")
    assert re.findall(r"^```\{statements\} (\w+)$", text, re.M) == ["gla", "mem", "mamba"]
    for paper in ("gla", "mem", "mamba"):
        header, rows = directives.statements(paper)
        assert rows
        for row in rows:
            assert len(row) == len(header)
            assert not any("|" in cell or cell.count("$") % 2 for cell in row)
            for id in re.findall(r"`([\w.-]+)`", row[-1]):
                assert claims.ledger()[id].verdict != "reproduced"
