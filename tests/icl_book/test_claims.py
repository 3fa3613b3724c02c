"""The ledger says what was found, and only the numbers can make it say so."""

import html
import itertools
from datetime import date

import numpy as np
import pandas as pd
import pytest
import torch

from icl_book import claims
from icl_book.claims import CHECK_MIME, QUALIFIED, VERDICTS, Check, Claim, VerdictChanged, residue


def claim(verdict="reproduced", tolerance=None, **fields):
    told = ("blog", "it is so, lambda < 1", "by test")
    return Claim("gla.test", "paper", *told, verdict, "because", tolerance, chapter="book/x", **fields)


def outcome(settle):
    """The verdict that a check arrives at, or 'refused'."""
    try:
        return settle().verdict
    except VerdictChanged:
        return "refused"


# A program that a record is made by.
RUNNING = ["from icl.tasks import blocks\nblocks"]

# What the numbers say, before the ledger is asked: None is a verdict that no ledger can hold. Of a claim that holds
# with something beside it the ledger says how much that weighs.
WITH_MORE = ("reproduced", *QUALIFIED)
NUMBERS = {
    # (the claim agrees, the mended form agrees, the caveat is true)
    (True, None, None): "reproduced",
    (True, None, True): WITH_MORE,
    (True, None, False): None,
    (True, True, None): "reproduced",
    (True, True, False): None,
    (True, False, None): None,
    (True, False, True): None,
    (True, False, False): None,
    (False, None, None): "not reproduced",
    (False, None, True): "not reproduced",
    (False, None, False): None,
    (False, True, None): "misprint",
    (False, True, True): "misprint",
    (False, True, False): None,
    (False, False, None): None,
    (False, False, True): None,
    (False, False, False): None,
}


def fitting(verdicts):
    """As a tuple."""
    return (verdicts,) if isinstance(verdicts, str) else verdicts or ()


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("numbers", NUMBERS, ids=str)
def test_numbers_lead_to_their_verdict(numbers, verdict):
    """`agrees` gives a check exactly if the verdict that follows from the numbers is the ledger's, else VerdictChanged.

    Every ledger verdict against every combination of: the claim's number agrees or not; its mended form is not given,
    agrees or not; a caveat is not given, true or false. Within the tolerance is reproduced, with a true caveat perhaps
    more narrowly, for another reason, or answered here; outside it is not reproduced, and a misprint if the mended form
    agrees; what should hold beside it and does not fits no verdict.
    """
    agrees, mended, caveat = numbers
    number = {True: 1.0, False: 2.0, None: None}

    def settle():
        return claim(verdict, {"absolute": 0.5}).agrees(number[agrees], 1.0, mended=number[mended], caveat=caveat)

    expected = verdict if verdict in fitting(NUMBERS[numbers]) else "refused"
    assert outcome(settle) == expected


STATEMENTS = {
    # (the claim is true, the caveat is true, what is said instead is true)
    (True, None, None): "reproduced",
    (True, True, None): WITH_MORE,
    (True, False, None): None,
    (True, None, True): None,
    (True, None, False): None,
    (False, None, None): "not reproduced",
    (False, True, None): "not reproduced",
    (False, False, None): None,
    (False, None, True): "not reproduced",
    (False, None, False): None,
}


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("statement", STATEMENTS, ids=str)
def test_truths_lead_to_their_verdict(statement, verdict):
    """`holds` gives a check exactly if the verdict that follows from what is true is the ledger's, else VerdictChanged.

    Every ledger verdict against every combination of: the claim is true or not; a caveat, or a statement in the claim's
    place, is not given, true or false. A claim that holds although another was to stand in its place is refused.
    """
    condition, caveat, instead = statement

    def settle():
        return claim(verdict, {"truth": True}).holds(condition, note="", caveat=caveat, instead=instead)

    expected = verdict if verdict in fitting(STATEMENTS[statement]) else "refused"
    assert outcome(settle) == expected


@pytest.mark.parametrize("truth", [np.bool_(True), np.bool_(False)])
def test_numpy_truths_are_truths(truth):
    """A comparison of numpy numbers is taken for what it is."""
    verdict = "reproduced" if truth else "not reproduced"
    assert claim(verdict, {"truth": True}).holds(truth, note="").verdict == verdict


@pytest.mark.parametrize(
    ("tolerance", "inside", "outside"),
    [
        ({"absolute": 0.5}, (1.5, 1.0), (1.5625, 1.0)),
        ({"absolute": 0.0}, (1.0, 1.0), (np.nextafter(1.0, 2), 1.0)),
        ({"relative": 0.25}, (5.0, 4.0), (5.0, 3.9)),
        ({"relative": 0.25}, (-3.0, -4.0), (3.0, -4.0)),
        ({"relative": 0.25}, (0.0, 0.0), (1e-300, 0.0)),
        ({"absolute": 0.5}, ([1.0, 2.5], [1.0, 2.0]), ([1.0, 2.0], [1.0, 1.25])),
        ({"relative": 0.25}, ([[1.0], [1.25]], 1.0), ([[1.0], [1.5]], 1.0)),
    ],
)
def test_tolerances_mean_what_they_say(tolerance, inside, outside):
    """A deviation of the tolerance itself agrees and a larger one does not; of arrays the worst entry counts.

    Absolute: the distance. Relative: the distance over the expected number's size; 0 agrees with 0 and nothing else.
    """
    assert claim("reproduced", tolerance).agrees(*inside).verdict == "reproduced"
    assert claim("not reproduced", tolerance).agrees(*outside).verdict == "not reproduced"


@pytest.mark.parametrize("size", [2.5, 5.9])
def test_rounding_is_shown_as_a_bound(size):
    """A residue has the same text on machines whose digits differ; what is no rounding has two digits, or its limit."""
    assert residue(size * 1e-15) == residue(-size * 1e-12) == residue(0.0) == residue(0.0, 1e-3) == "less than 1e-09"
    assert residue(size * 1e-15, limit=1e-13) == "less than 1e-13"
    assert residue(0.0, limit=0) == "0"
    assert residue(2e-11, limit=1e-12) == "2e-11"
    assert residue(0.00312) == "0.0031"
    assert residue(np.nan) == "nan"


def test_z_is_counted_in_standard_errors():
    """A tolerance in z compares the distance with the standard error given, entry by entry."""
    four = {"z": 4}
    assert claim("reproduced", four).agrees([1.0, 4.0], 0.0, standard_error=[0.25, 1.0]).verdict == "reproduced"
    assert claim("not reproduced", four).agrees([1.0, 4.0], 0.0, standard_error=[1.0, 0.9]).verdict == "not reproduced"


@pytest.mark.parametrize("standard_error", [None, 0.0, -1.0, np.nan, np.inf, [1.0, 0.0], [1.0, np.inf]])
def test_z_without_a_standard_error_is_refused(standard_error):
    """A tolerance in z needs standard errors that are positive and finite: an infinite one would make
    everything agree.
    """
    with pytest.raises(ValueError, match="standard_error must be positive"):
        claim(tolerance={"z": 4}).agrees(1.0, 2.0, standard_error=standard_error)


@pytest.mark.parametrize("verdict", ["reproduced", "not reproduced"])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, [1.0, np.nan]])
@pytest.mark.parametrize("place", ["measured", "expected", "mended"])
def test_numbers_that_are_not_finite_are_refused(place, number, verdict):
    """NaN and infinity settle nothing, whichever way the ledger stands, wherever they turn up."""
    numbers = {"measured": 1.0, "expected": 1.0} | {place: number}
    with pytest.raises(ValueError, match="must be finite"):
        claim(verdict, {"absolute": 0.5}).agrees(numbers.pop("measured"), numbers.pop("expected"), **numbers)


TABLE = pd.DataFrame({"simulated": [1.0, 2.0], "(16)": [1.0, 2.0]})


@pytest.mark.parametrize("numbers", [np.float64(2.0), [1.0, 2.0], np.eye(2), torch.eye(2), TABLE["(16)"]], ids=str)
def test_a_claim_that_compares_a_thing_with_itself_is_refused(numbers):
    """One object on both sides, as the mended value too, and one part of memory under two names; equal numbers that
    were computed twice are compared, and plain numbers, which may be one constant.
    """
    row = claim("not reproduced", {"absolute": 1e-9})
    with pytest.raises(ValueError, match="are the same numbers in memory: a claim needs two computations"):
        row.agrees(numbers, numbers)
    with pytest.raises(ValueError, match="the same numbers in memory"):
        row.agrees(3.0, numbers, mended=numbers)
    if np.ndim(numbers) and not isinstance(numbers, list):
        with pytest.raises(ValueError, match="the same numbers in memory"):
            row.agrees(numbers, numbers[:2])
    assert claim(tolerance={"absolute": 1e-9}).agrees(numbers, np.asarray(numbers).copy()).verdict == "reproduced"
    assert claim(tolerance={"absolute": 1e-9}).agrees(TABLE["(16)"], TABLE["simulated"]).verdict == "reproduced"
    assert claim(tolerance={"absolute": 1e-9}).agrees(3.0, 3.0).verdict == "reproduced"


def test_a_limit_is_read_by_name():
    """A statement's threshold comes from its row; a name that the row lacks is refused, as is what is no number."""
    row = claim(tolerance={"truth": True}, limits={"gap": 0.2})
    assert row.limit("gap") == 0.2
    with pytest.raises(ValueError, match=r"no limit 'gab' in the ledger, only \['gap'\]"):
        row.limit("gab")
    for wrong in (True, "0.2", float("nan")):
        with pytest.raises(ValueError, match="limit 'gap' must be a finite number"):
            claim(tolerance={"truth": True}, limits={"gap": wrong})


def test_a_claim_is_checked_the_way_its_tolerance_says():
    """Numbers cannot settle a truth, nor a truth a tolerance; a claim without a tolerance cannot be settled at all."""
    with pytest.raises(ValueError, match=r"checked with \.holds"):
        claim(tolerance={"truth": True}).agrees(1.0, 1.0)
    with pytest.raises(ValueError, match=r"checked with \.agrees"):
        claim(tolerance={"absolute": 1.0}).holds(True, note="")
    unsettled = Claim("gla.test", "paper", "paper", "it is so", "by test", "not yet")
    for settle in (lambda: unsettled.agrees(1.0, 1.0), lambda: unsettled.holds(True, note="")):
        with pytest.raises(VerdictChanged, match="give it a tolerance"):
            settle()


def test_a_check_says_what_was_measured():
    """A check carries the claim's name, the deviation with its limit, the reader's note and how many draws of what
    are behind it; the line shows the claim itself, and whom it judges if that is not the paper.
    """
    check = claim(tolerance={"relative": 0.1}).agrees(1.05, 1.0, note="a < b", samples=12_000, of="flows")
    assert check == Check(
        *("gla.test", "reproduced", "it is so, lambda < 1", "blog"),
        *("relative deviation 0.05 (limit 0.1); a < b", "12,000 flows"),
    )
    shown = check._repr_mimebundle_()
    assert shown["text/plain"] == f"gla.test: reproduced. {check.measured}"
    assert html.escape(check.measured) in shown["text/html"]
    assert "a < b" not in shown["text/html"]
    assert "12,000 flows" in shown["text/html"]
    assert "<b>Claim (blog).</b> it is so, λ &lt; 1 " in shown["text/html"]
    assert shown[CHECK_MIME] == {
        "id": "gla.test",
        "verdict": "reproduced",
        "claim": "it is so, lambda < 1",
        "judges": "blog",
        "measured": check.measured,
        "samples": "12,000 flows",
        "changed": None,
    }
    assert "changed" not in shown["text/html"]
    exact = claim(tolerance={"absolute": 1e-9}).agrees([1.0, 2.0], [1.0, 2.0 + 2e-15])
    assert exact.measured == "deviation less than 1e-09 (limit 1e-09)"
    moved = claim(
        tolerance={"truth": True},
        changed=[{"date": date(2026, 11, 23), "from": "a bar of 2", "to": "a bar of 1", "why": "it was too wide"}],
    )
    assert "</code> · changed 2026-11-23</span>" in moved.holds(True, note="")._repr_mimebundle_()["text/html"]
    misprint = claim("misprint", {"absolute": 0.1}).agrees(2.0, 1.0, mended=1.05)
    assert misprint.measured == "deviation 1 (limit 0.1); mended: 0.05"
    assert "prompts" not in misprint._repr_mimebundle_()["text/html"]


ROW = """
- id: gla.one
  source: paper
  judges: paper
  claim: it is so
  how: by test
  verdict: reproduced
  reason: because
  chapter: book/x
  tolerance: {absolute: 1.0e-3}
"""


def test_the_ledger_is_read_row_by_row(book):
    """Every row of every file is found by its name; a name that is in none is refused."""
    (book / "claims" / "a.yml").write_text(ROW)
    (book / "claims" / "b.yml").write_text(ROW.replace("gla.one", "mem.two"))
    assert list(claims.ledger()) == ["gla.one", "mem.two"]
    assert claims.claim("mem.two").tolerance == {"absolute": 1e-3}
    with pytest.raises(ValueError, match=r"no claim 'gla\.two'"):
        claims.claim("gla.two")


MALFORMED = {
    "another verdict": ROW.replace("reproduced", "confirmed"),
    "an unknown field": ROW + "  colour: red\n",
    "judging nobody we know": ROW.replace("judges: paper", "judges: rumour"),
    "no source": ROW.replace("source", "reason_too"),
    "settled without a reason": ROW.replace("  reason: because\n", ""),
    "settled without a chapter": ROW.replace("  chapter: book/x\n", ""),
    "settled without a tolerance": ROW.replace("  tolerance: {absolute: 1.0e-3}\n", ""),
    "an unknown tolerance": ROW.replace("absolute", "roughly"),
    "two tolerances": ROW.replace("1.0e-3", "1.0e-3, relative: 1.0e-3"),
    "a number that YAML reads as text": ROW.replace("1.0e-3", "1e-3"),
    "a negative tolerance": ROW.replace("1.0e-3", "-1.0e-3"),
    "a tolerance that is not a number": ROW.replace("1.0e-3", ".nan"),
    "an infinite tolerance": ROW.replace("1.0e-3", ".inf"),
    "a truth that is false": ROW.replace("absolute: 1.0e-3", "truth: false"),
    "a row that is no mapping": "- gla.one\n",
    "a verdict said twice": ROW + "  verdict: not reproduced\n",
    "an empty file": "",
    "no YAML": ROW.replace("{absolute", "{{absolute"),
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_ledger_is_refused(book, text):
    """A row that says too little, contradicts itself or cannot be read is refused with the name of its file."""
    (book / "claims" / "broken.yml").write_text(text)
    with pytest.raises(ValueError, match=r"^broken\.yml: "):
        claims.ledger()


def test_a_claim_stands_in_the_ledger_once(book):
    """Two rows of one name are refused, in one file or in two."""
    (book / "claims" / "a.yml").write_text(ROW)
    (book / "claims" / "b.yml").write_text(ROW)
    with pytest.raises(ValueError, match=r"b\.yml: gla\.one stands in the ledger twice"):
        claims.ledger()
    (book / "claims" / "b.yml").write_text(ROW.replace("one", "two") * 2)
    with pytest.raises(ValueError, match=r"gla\.two stands in the ledger twice"):
        claims.ledger()


def test_the_books_own_ledger_is_sound():
    """The ledger of the book reads without complaint, and every name begins with that of its paper."""
    rows = claims.ledger()
    assert len(rows) > 50
    assert all(id.split(".")[0] in ("gla", "mem", "mamba") for id in rows)


def test_folders_are_looked_for_by_name():
    """A folder of the book is found beside the sources; one that is nowhere is refused by its name."""
    assert (claims.folder("claims") / "adaptation.yml").is_file()
    with pytest.raises(ValueError, match="no folder 'nothing'"):
        claims.folder("nothing")


def test_all_combinations_are_looked_at():
    """The tables of verdicts above leave no combination out that has a meaning of its own.

    Of `agrees` one is left open: a claim that agrees, whose mended form does too, under a caveat. Of `holds`, a caveat
    and a statement in the claim's place together.
    """
    three = (None, True, False)
    assert set(itertools.product((True, False), three, three)) - set(NUMBERS) == {(True, True, True)}
    together = {(a, b, c) for a, b, c in itertools.product((True, False), three, three) if None not in (b, c)}
    assert set(itertools.product((True, False), three, three)) - set(STATEMENTS) == together
