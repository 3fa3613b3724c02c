"""The ledger and the chapters agree: every settled claim is checked once, where it says, and nothing else is."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from icl.page import claims as evidence
from icl.page import records

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import chapters  # noqa: E402

CHAPTERS = {
    page: text
    for page in chapters.pages()
    if chapters.is_chapter(text := (ROOT / f"{page}.md").read_text(encoding="utf-8"))
}
UNCHECKED = ("not yet", "beyond our means")


def mismatches(ledger, checked):
    """Claims without a check, checks without a claim, checks on the wrong page, claims checked twice."""
    settled = {c.id: c.chapter for c in ledger.values() if c.verdict not in UNCHECKED}
    seen = {claim: page for page, claims in checked.items() for claim in claims}
    counts = Counter(claim for claims in checked.values() for claim in claims)
    return {
        "claims without a check": sorted(set(settled) - set(seen)),
        "checks without a claim": sorted(set(seen) - set(settled)),
        "checked on another page": sorted(c for c in set(seen) & set(settled) if seen[c] != settled[c]),
        "checked more than once": sorted(c for c, k in counts.items() if k > 1),
    }


def test_ledger_and_chapters_agree():
    """Every settled row is checked exactly once, by the chapter it names, and no chapter checks anything else."""
    found = mismatches(evidence.ledger(), {page: chapters.claims_of(text) for page, text in CHAPTERS.items()})
    assert not any(found.values()), found


@pytest.mark.parametrize(
    ("drop", "add", "kind"),
    [
        ("gla.eq6.unroll", None, "claims without a check"),
        (None, next(c.id for c in evidence.ledger().values() if c.verdict == "not yet"), "checks without a claim"),
        (None, "gla.no.such", "checks without a claim"),
        (None, "gla.thm1.d1", "checked more than once"),
    ],
)
def test_a_planted_mismatch_is_found(drop, add, kind):
    """Removing a check, checking an unsettled or unknown row, or checking twice is reported as what it is."""
    checked = {page: [c for c in chapters.claims_of(text) if c != drop] for page, text in CHAPTERS.items()}
    if add:
        checked["book/adaptation/gated-linear-attention"].append(add)
    assert mismatches(evidence.ledger(), checked)[kind]


def test_every_seed_claim_has_a_row():
    """The ledger covers all three papers, with sources and ways to check for every row."""
    ledger = evidence.ledger().values()
    assert Counter(c.id.split(".")[0] for c in ledger).keys() == {"gla", "mem", "mamba"}
    assert all(c.source and c.claim and c.how for c in ledger)


def test_records_are_whole():
    """Every record in book/results can be read, and is read by some chapter."""
    read = {name for text in CHAPTERS.values() for name in chapters.records_of(text)}
    there = {path.stem for path in (ROOT / "book/results").glob("*.json")}
    assert read == there
    for name in there:
        assert len(records.recorded(name).table) > 0
