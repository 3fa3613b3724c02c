"""The ledger and the chapters agree: every settled claim is checked once, where it says, and nothing else is."""

import ast
import copy
import csv
import itertools
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import chapters
import claims_data
import directives
import pandas as pd
import pytest
import snapshot_claims as promises
import yaml
from markdown_it.renderer import RendererHTML
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

from icl.theory import errata
from icl_book import claims as evidence
from icl_book import records

ROOT = Path(__file__).resolve().parents[2]

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
    ("drop", "add", "unsettled", "kind"),
    [
        ("gla.eq6.unroll", None, None, "claims without a check"),
        (None, None, "gla.eq6.unroll", "checks without a claim"),
        (None, "gla.no.such", None, "checks without a claim"),
        (None, "gla.thm1.d1", None, "checked more than once"),
    ],
)
def test_a_planted_mismatch_is_found(drop, add, unsettled, kind):
    """Removing a check, checking an unsettled or unknown row, or checking twice is reported as what it is."""
    checked = {page: [c for c in chapters.claims_of(text) if c != drop] for page, text in CHAPTERS.items()}
    if add:
        checked["book/adaptation/gated-linear-attention"].append(add)
    ledger = {c.id: replace(c, verdict="not yet") if c.id == unsettled else c for c in evidence.ledger().values()}
    assert mismatches(ledger, checked)[kind]


def typed_limits(text):
    """Numbers typed into what settles a claim: `(id, number)`; thresholds belong into the ledger's row.

    Read are a statement's condition, `instead` and `caveat`, and the comparisons among the names that these use. 0 and
    1 compare two measurements with each other, exponents and indices are no thresholds, nor are a call's whole numbers.
    """
    cells = [ast.parse(cell) for cell in chapters.code_cells(text)]
    tests = {}
    for node in (n for cell in cells for n in ast.walk(cell)):
        if isinstance(node, ast.Assign) and any(isinstance(n, ast.Compare | ast.BoolOp) for n in ast.walk(node.value)):
            tests |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
    return [
        (claim, number)
        for cell in cells
        for claim, settled in _settled(cell)
        for value in settled
        for number in _thresholds(value, tests, frozenset())
    ]


def _settled(cell):
    """Each claim's id with what must be true for it, in one cell."""
    rows, inside = {}, list(ast.walk(cell))
    for node in inside:
        if isinstance(node, ast.Assign):
            many = isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)
            pairs = zip(node.targets[0].elts, node.value.elts, strict=True) if many else [(node.targets[0], node.value)]
            rows |= {to.id: _id(value) for to, value in pairs if isinstance(value, ast.Call) and _id(value)}
    for node in inside:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr not in ("holds", "agrees"):
            continue
        row = node.func.value
        claim = _id(row) if isinstance(row, ast.Call) else rows.get(row.id) if isinstance(row, ast.Name) else None
        if claim:
            told = [k.value for k in node.keywords if k.arg in ("caveat", "instead")]
            yield claim, told + (node.args[:1] if node.func.attr == "holds" else [])


def shown(text):
    """Claims whose check is what a cell of the page ends in, outside any condition: those that a page shows settled."""
    before, found = [], []
    for source in chapters.code_cells(text):
        if "claim(" not in source and "holds(" not in source and "agrees(" not in source:
            continue
        cell = ast.parse(source)
        # A row may be read in an earlier cell than it is settled in.
        before += [node for node in cell.body if isinstance(node, ast.Assign)]
        last = cell.body[-1:] if cell.body and isinstance(cell.body[-1], ast.Expr) else []
        found += [claim for claim, _ in _settled(ast.Module([*before, *last], []))]
    return found


@pytest.mark.parametrize("page", CHAPTERS)
def test_a_claim_that_is_named_is_settled(page):
    """Every row that a chapter names is settled once, by a check at the end of a cell, which the page then shows."""
    assert sorted(shown(CHAPTERS[page])) == sorted(chapters.claims_of(CHAPTERS[page]))


UNSETTLED = {
    "no check": 'row = claim("a")\nrow.limit("x")',
    "under a condition": 'if False:\n    claim("a").holds(x, note="")',
    "not at the end": 'claim("a").holds(x, note="")\ny = 1',
    "within a function": 'def f():\n    return claim("a").holds(x, note="")',
}


@pytest.mark.parametrize("name", UNSETTLED)
def test_an_unsettled_claim_is_found(name):
    """A row that is named and not settled, or where no page shows it, is none; one of an earlier cell is."""
    assert shown(CELL.format(UNSETTLED[name])) == []
    assert shown(CELL.format('row, d = claim("a"), 2') + "\n" + CELL.format('row.holds(x, note="")')) == ["a"]


def _id(call):
    known = isinstance(call.func, ast.Name) and call.func.id == "claim"
    return call.args[0].value if known else None


def _thresholds(node, tests, within):
    if isinstance(node, ast.Constant):
        number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
        return [node.value] if number and node.value not in (0, 1) else []
    if isinstance(node, ast.Name):
        more = node.id in tests and node.id not in within
        return _thresholds(tests[node.id], tests, within | {node.id}) if more else []
    if isinstance(node, ast.Subscript):
        return _thresholds(node.value, tests, within)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return _thresholds(node.left, tests, within)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "limit":
        return []
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call):
        children = [c for c in children if not (isinstance(c, ast.Constant) and isinstance(c.value, int))]
    return [number for child in children for number in _thresholds(child, tests, within)]


@pytest.mark.parametrize("page", CHAPTERS)
def test_thresholds_stand_in_the_ledger(page):
    """No number but 0 and 1 is typed into what settles a claim; it is a limit of the row, fixed before the run."""
    assert typed_limits(CHAPTERS[page]) == []


CELL = """```{{code-cell}}
{}
```
"""
HIDDEN = {
    "in the condition": 'claim("a").holds(gap < 0.3, note="")',
    "as a factor": 'row = claim("a")\nrow.holds(gap > 5 * spread[2], note="")',
    "in a name": 'near = gap < 0.3\nclaim("a").holds(near, note="")',
    "in a caveat": 'claim("a").agrees(x, y, caveat=bool(z**2 > 2))',
    "in place of the claim": 'claim("a").holds(False, instead=np.allclose(x, y, 0.1), note="")',
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_typed_threshold_is_found(name):
    """Wherever a threshold hides, it is found; a limit of the row, an index and an exponent are none."""
    assert [claim for claim, _ in typed_limits(CELL.format(HIDDEN[name]))] == ["a"]
    said = 'row = claim("a")\nrow.holds(gap[0.3] ** 2 < row.limit("gap") * first(3), note=f"{0.2}")'
    assert typed_limits(CELL.format(said)) == []


def empty_checks(text):
    """What a chapter's cells check that is true whatever was computed.

    Equal expressions on the two sides of `agrees`, of a comparison or of a closeness, with names that are assigned once
    in the chapter spelt out; and constants as the condition of an `assert`, a `holds` or a `said`.
    """
    cells = [ast.parse(cell) for cell in chapters.code_cells(text)]
    nodes = [node for cell in cells for node in ast.walk(cell)]
    stored = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    stored.update(node.arg for node in nodes if isinstance(node, ast.arg))
    once = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and stored[node.targets[0].id] == 1:
            once[node.targets[0].id] = node.value

    def spelt(node, depth=3):
        class Spell(ast.NodeTransformer):
            def visit_Name(self, name):
                return spelt(once[name.id], depth - 1) if depth and name.id in once else name

        return Spell().visit(copy.deepcopy(node))

    def constant(node):
        if isinstance(node, ast.Name):
            return node.id in once and constant(once[node.id])
        parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        logic = ast.Compare | ast.BoolOp | ast.UnaryOp | ast.BinOp
        return isinstance(node, ast.Constant) or (isinstance(node, logic) and all(map(constant, parts)))

    def same(one, other):
        return ast.dump(spelt(one)) == ast.dump(spelt(other))

    found = []
    for node in nodes:
        match node:
            case ast.Compare(left=left, comparators=[*others]):
                sides = [left, *others]
                empty = any(same(one, other) for one, other in itertools.pairwise(sides))
            case ast.Call(func=ast.Attribute(attr="agrees" | "allclose" | "isclose" | "assert_allclose"), args=args):
                args = args + [k.value for k in node.keywords if k.arg in ("measured", "expected")]
                empty = len(args) > 1 and same(args[0], args[1])
            case ast.Call(func=ast.Attribute(attr="holds"), args=args):
                conditions = args[:1] + [k.value for k in node.keywords if k.arg in ("condition", "caveat", "instead")]
                empty = any(map(constant, conditions))
            case ast.Call(func=ast.Name(id="said"), args=args):
                conditions = args[1:2] + [k.value for k in node.keywords if k.arg == "condition"]
                empty = any(map(constant, conditions))
            case ast.Assert(test=test):
                empty = constant(test)
            case _:
                continue
        if empty:
            found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("page", CHAPTERS)
def test_no_check_is_true_whatever_was_computed(page):
    """No claim, assertion or sentence compares a thing with itself, or has a constant for its condition."""
    assert empty_checks(CHAPTERS[page]) == []


EMPTY = {
    "a name with itself": 'claim("a").agrees(x, x)',
    "a call with itself": 'claim("a").agrees(stack(x), stack(x), note="")',
    "by keywords": 'claim("a").agrees(measured=x / s, expected=x / s)',
    "by another name": 'y = x / s\nclaim("a").agrees(y, x / s)',
    "by two other names": 'y = stack(x)\nz = y\nclaim("a").agrees(z, stack(x))',
    "in a condition": 'claim("a").holds(bool((x <= x).all()), note="")',
    "in a chain": "assert 0 < x == x",
    "a closeness": "assert np.allclose(f(x), f(x))",
    "a truth": 'claim("a").holds(True, note="")',
    "a truth by name": 'fine = 1 < 2\nclaim("a").holds(x > 1, caveat=fine, note="")',
    "a sentence": 'said("all of them", True)',
    "an assertion": "assert True",
}


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_check_is_found(name):
    """Wherever it is; of two different expressions, and of names that mean something else by then, none is."""
    assert len(empty_checks(CELL.format(EMPTY[name]))) == 1
    honest = 'y = f(x)\nfor y in z:\n    claim("a").agrees(y, f(x))\nsaid(f"{x} of them")\nassert x[0] < x[1]'
    assert empty_checks(CELL.format(honest)) == []


def test_every_limit_is_compared_with():
    """Each limit of a row is read by the chapter that settles it."""
    for row in evidence.ledger().values():
        for name in row.limits:
            assert f'.limit("{name}")' in CHAPTERS[row.chapter], (row.id, name)


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


def unsaid(released, now, changelog):
    """Rows that promise something else than at the last release, and are not named in the changelog since."""
    since = changelog.partition("\n## [")[2].partition("\n## [")[0]
    return {id: what for id, what in promises.changed(released, now).items() if f"`{id}`" not in since}


def test_a_changed_promise_stands_in_the_changelog():
    """A row deleted since the last release, with its check or not, and another verdict, tolerance, limit or printed
    value, are named in the changelog; `tools/snapshot_claims.py` writes down a release's ledger.
    """
    released = json.loads(promises.RELEASED.read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert unsaid(released, promises.promises(evidence.ledger()), changelog) == {}


ROW = "gla.eq6.unroll"
LOOSENED = {
    "deleted": lambda now: now.pop(ROW),
    "tolerance": lambda now: now[ROW].update(tolerance={"relative": 1e9}),
    "printed": lambda now: now[ROW].update(printed=0.5),
    "verdict": lambda now: now[ROW].update(verdict="misprint"),
    "limits": lambda now: now[ROW].update(limits={"gain": 2.0}),
}


def loosened(what):
    """What the ledger promises today, and the same with one row changed."""
    released = promises.promises(evidence.ledger())
    now = json.loads(json.dumps(released))
    LOOSENED[what](now)
    return released, now


@pytest.mark.parametrize("what", LOOSENED)
def test_a_promise_changed_in_silence_is_found(what):
    """Each is found by the row's name, until the newest section of the changelog names it; a new row is none."""
    released, now = loosened(what)
    now["gla.new"] = released[ROW]
    log = f"# Changelog\n\n## [2.0]\n\n- {{}}\n\n## [1.0]\n\n- `{ROW}` is new.\n"
    assert unsaid(released, now, log.format("Nothing.")) == {ROW: [what]}
    assert unsaid(released, now, log.format(f"`{ROW}` allows more, because.")) == {}


def test_a_changed_bar_says_why_in_its_row():
    """Another verdict, tolerance or limit than at the last release has a new entry of `changed`; none is taken away."""
    released = json.loads(promises.RELEASED.read_text(encoding="utf-8"))
    assert promises.unexplained(released, promises.promises(evidence.ledger())) == {}


@pytest.mark.parametrize("what", ["verdict", "tolerance", "limits"])
def test_a_bar_changed_in_silence_is_found(what):
    """Until the row has one more entry than at the release; an entry that is gone is found too."""
    released, now = loosened(what)
    assert promises.unexplained(released, now) == {ROW: [what]}
    now[ROW]["changes"] += 1
    assert promises.unexplained(released, now) == {}
    now["mem.fig1.competitive"]["changes"] -= 1
    assert promises.unexplained(released, now) == {"mem.fig1.competitive": []}


def test_a_malformed_change_or_quotation_is_refused():
    """A change has a date, from, to and why, the oldest first, and ends in the row's verdict; a quotation its place."""
    row = evidence.ledger()["mem.fig1.competitive"]
    last = row.changed[-1]
    for changed in (
        [last | {"date": "2026-11-28"}],
        [last | {"why": " "}],
        [{k: v for k, v in last.items() if k != "from"}],
        [last, row.changed[0]],
        [last | {"to": "reproduced"}],
    ):
        with pytest.raises(ValueError, match=r"mem.fig1.competitive: changed"):
            replace(row, changed=changed)
    for quote in ({"words": "remains competitive"}, {"words": "", "place": "sec. 3.3"}):
        with pytest.raises(ValueError, match=r"mem.fig1.competitive: quote"):
            replace(row, quote=quote)


def test_a_row_shows_what_changed_after_a_run():
    """On the page of claims, with day, verdicts and reason; not on the chapter's."""
    row = evidence.ledger()["mem.fig1.competitive"]
    told, there = (directives.Claims.block(None, row, None, link) for link in (True, False))
    assert r"28 November 2026\, from holds more narrowly to not reproduced\: judged again" in told
    assert "Changed after a run" not in there


#: The widest tolerance of each kind: a row that allows more would agree with nearly anything.
WIDEST = {"relative": 0.15, "absolute": 0.1, "z": 5}


def too_wide(ledger):
    """Rows that allow more than the widest tolerance of their kind; those of the last release are named above too."""
    kinds = {row.id: next(iter(row.tolerance.items())) for row in ledger if row.tolerance}
    return [id for id, (kind, limit) in kinds.items() if kind != "truth" and limit > WIDEST[kind]]


def test_no_tolerance_is_wide():
    """A new row cannot allow more than the widest of today either, and each of these is some row's."""
    ledger = evidence.ledger().values()
    assert too_wide(ledger) == []
    row = next(row for row in ledger if row.tolerance and "z" in row.tolerance)
    assert too_wide([replace(row, tolerance={"z": 1e9})]) == [row.id]
    assert {kind: max(r.tolerance[kind] for r in ledger if kind in (r.tolerance or {})) for kind in WIDEST} == WIDEST


def test_each_misprint_is_on_trial_in_a_row():
    """Rows name the errata they are about by numbers that there are, and each erratum is named by a row."""
    listed = {"gla": errata.ADAPTATION, "mem": errata.MEMORY, "mamba": errata.SELECTION}
    named = {(row.id.split(".")[0], number) for row in evidence.ledger().values() for number in row.errata}
    assert named == {(paper, number) for paper, numbers in listed.items() for number in numbers}
    assert all(row.errata for row in evidence.ledger().values() if row.verdict == "misprint")


def test_a_row_shows_the_formula_on_trial():
    """A misprint's row prints both forms; one with a list of them links to it; another row prints nothing."""
    ledger = evidence.ledger()
    (line,) = directives.on_trial(ledger["gla.thm1.d2.equal"])
    assert errata.ADAPTATION[1].printed in line
    assert errata.ADAPTATION[1].corrected in line
    assert len(directives.on_trial(ledger["gla.thm1.d3.general"])) == 4
    assert "errata.md" in directives.on_trial(ledger["mem.errata.displayed"])[0]
    assert directives.on_trial(ledger["gla.eq6.unroll"]) == []


def test_the_page_of_claims_follows_the_lines_it_names():
    """It names the line of the chapter that checks a claim: prose above that moves the line is no new measurement."""
    of_a_paper = directives.Claims.shown(SimpleNamespace(arguments=["gla"], env=None))
    assert {ROOT / f"{page}.md" for page in CHAPTERS} <= {*of_a_paper}


def test_the_ledger_as_data(tmp_path):
    """JSON and CSV hold every row, its nested values too; a row's line is the one that names it in its chapter."""
    first = next(c for c in evidence.ledger().values() if c.limits and isinstance(c.printed, dict))
    measured = {first.id: {"id": first.id, "measured": 'a, "b"\nλ', "samples": "3 prompts"}}
    claims_data.lay(tmp_path, measured)
    table = json.loads((tmp_path / "claims.json").read_text(encoding="utf-8"))
    with (tmp_path / "claims.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [row["id"] for row in table] == [line["id"] for line in lines] == list(evidence.ledger())
    row, line = (next(each for each in side if each["id"] == first.id) for side in (table, lines))
    assert row["measured"] == line["measured"] == measured[first.id]["measured"]
    assert (row["printed"], row["limits"]) == (first.printed, first.limits)
    assert json.loads(line["limits"]) == first.limits
    for row in table:
        if row["line"]:
            assert f'"{row["id"]}"' in chapters.source(row["chapter"]).splitlines()[row["line"] - 1]
    assert all(row["line"] for row in table if row["verdict"] not in UNCHECKED)


#: What would do something on a page if it were read as anything but text: HTML, a substitution, which Jinja computes, a
#: role, a link, a formula, and whatever begins a block of Markdown.
EVIL = (
    "<script>alert(1)</script> {{ 7 * 7 }} {raw}`<b>` [a](javascript:b) ![c](d) $x$ **e** `f` {#g} &lt; \\[h\\] |i| @j"
)
BEGINNINGS = [
    # of Markdown
    *("# ", "- ", "1. ", "> ", "---\n", "    ", "\n\n", "a\n===\n", "[a]: b\n", "<!-- "),
    # of what the book's settings add to it
    *(":::{raw} html\n", "```{raw} html\n", "{{ x }}", "+++ ", "% ", "(a)=\n", "| a |\n|---|\n", "a\n: ", "$$"),
    "\\begin{a}\n",
]
TEXT = {"text", "text_special"}


def read_as_myst(text):
    """The tokens of a text as pages are read, all that the book's settings switch on, and what is within lines."""
    settings = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["parse"]
    reader = create_md_parser(MdParserConfig(enable_extensions={*settings["myst_enable_extensions"]}), RendererHTML)
    tokens = reader.parse(text)
    return [t.type for t in tokens], [child for t in tokens for child in t.children or []]


@pytest.mark.parametrize("beginning", ["", *BEGINNINGS])
def test_what_a_row_or_a_record_says_is_text(beginning):
    """Markdown reads one paragraph of nothing but text, letter for letter; as it stands it would read more."""
    text = beginning + EVIL
    blocks, parts = read_as_myst(directives._literal(text))
    assert blocks == ["paragraph_open", "inline", "paragraph_close"]
    assert {part.type for part in parts} <= TEXT
    assert "".join(part.content for part in parts) == " ".join(text.split())
    bare, within = read_as_myst(text)
    assert bare != blocks or {part.type for part in within} - TEXT


def test_a_planted_row_is_shown_as_text():
    """Every field of a row that a page shows, and every number that a check brings, is text where it is shown."""
    said = {field: f"{field} {EVIL}" for field in ("source", "claim", "how", "reason", "printed")}
    row = replace(next(c for c in evidence.ledger().values() if c.verdict == "reproduced"), **said, limits={EVIL: 1.0})
    check = evidence.Check(row.id, row.verdict, row.claim, EVIL, f"measured {EVIL}", f"samples {EVIL}")
    blocks, parts = read_as_myst(directives.Claims.block(None, row, vars(check), link=False))
    assert set(blocks) == {"paragraph_open", "inline", "paragraph_close"}
    marks = {"strong_open", "strong_close", "em_open", "em_close", "code_inline"}
    assert {part.type for part in parts} <= TEXT | marks
    assert [part.content for part in parts if part.type == "code_inline"] == [row.id]
    shown = "".join(part.content for part in parts)
    for field in ("source", "claim", "reason", "printed", "measured", "samples"):
        assert f"{field} {EVIL}" in shown
    html = check._repr_mimebundle_()["text/html"]
    assert set(re.findall(r"<(\w+)", html)) == {"p", "b", "span", "code", "br"}
    assert "&lt;script&gt;" in html


@pytest.mark.parametrize(("field", "text"), [("id", "gla.x' onclick='y"), ("chapter", "book/x.md)![](y")])
def test_a_name_that_is_no_name_is_refused(field, text):
    row = next(c for c in evidence.ledger().values() if c.chapter)
    with pytest.raises(ValueError, match="must be"):
        replace(row, **{field: text})


def test_a_planted_record_is_shown_as_text():
    """Its device, its day, its command and its settings, in the caption, in the table and on the page's card."""
    provenance = {"command": EVIL, "config": {EVIL: EVIL}, "code": {}, "versions": {}, "seconds": 1.0}
    provenance |= {"device": f"device {EVIL}", "date": f"date {EVIL}"}
    html = records.Record("x", pd.DataFrame({EVIL: [EVIL]}), provenance)._repr_html_()
    assert set(re.findall(r"<(\w+)", html)) == {"table", "thead", "tbody", "tr", "th", "td", "p", "code"}
    (line,) = directives._recorded_runs([provenance])
    _, parts = read_as_myst(line)
    assert {part.type for part in parts} <= TEXT | {"strong_open", "strong_close"}
    assert f"device {EVIL}, date {EVIL}" in "".join(part.content for part in parts)


def test_the_times_of_records_are_theirs(monkeypatch):
    """A row a chapter with records of `make paper`, the longest first, each record once in the sum; and whether a GPU
    made one.
    """
    text = directives.recorded_times()
    minutes = [int(row) for row in re.findall(r"^\| \[\]\(\S+\) \| \d+ \| (\d+) \|$", text, re.M)]
    assert minutes == sorted(minutes, reverse=True)
    assert len(minutes) > 20
    every = [records.recorded(path.stem).provenance for path in (ROOT / "book/results").glob("*.json")]
    made = [each for each in every if each["command"] == "make paper"]
    seconds = [each["seconds"] for each in made]
    assert f"**{len(seconds)}** | **{sum(seconds) / 60:.0f}**" in text
    assert all(each["device"].startswith("CPU") for each in made)
    assert "None of them on a GPU." in text
    of_a_gpu = records.Record("x", pd.DataFrame(), made[0] | {"device": "A GPU"})
    monkeypatch.setattr(directives.evidence, "recorded", lambda name: of_a_gpu)
    assert "Some of them on a GPU." in directives.recorded_times()
