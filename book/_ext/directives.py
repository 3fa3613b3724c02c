"""Directives and roles whose text is generated: from the ledger, the notation table, the tests and what was measured.

Directives: page-card, claims, verdict-counts, errata, statements, notation, terms, timings, recorded-times, tests.
Roles: claim, test.
"""

import abc
import ast
import importlib.metadata
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import chapters
import claims_data
import dates
import measurements
import prose
import searching
from claims_data import PAPERS
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from icl_book import claims, notation
from icl_book import records as evidence

logger = logging.getLogger(__name__)
TESTS = "book/reference/tests"
TIMINGS = "book/evidence/timings"


def checks() -> dict[str, dict[str, Any]]:
    """Every check of the build by claim."""
    return {check["id"]: check for page in measurements.of_all().values() for check in page.get("checks", [])}


def _ledger() -> list[Path]:
    return sorted((chapters.ROOT / "book/claims").glob("*.yml"))


def _all_measured() -> list[Path]:
    return [measurements.place(page) for page in chapters.pages()]


class Watching(SphinxDirective, abc.ABC):
    """A directive that writes Markdown for MyST to read; its page follows the files that it shows."""

    has_content = True
    optional_arguments = 1
    final_argument_whitespace = True

    @abc.abstractmethod
    def shown(self) -> list[Path]:
        """Return the files whose contents it shows."""

    def watch(self) -> None:
        """Have Sphinx read this page again when what it shows has changed."""
        for path in self.shown():
            self.env.note_dependency(str(path))

    def render(self, markdown: str, into: nodes.Element) -> None:
        """Let MyST read a piece of Markdown."""
        self.state.nested_parse(StringList(markdown.split("\n"), self.env.doc2path(self.env.docname)), 0, into)


class Generated(Watching):
    """One piece of Markdown, in place."""

    @abc.abstractmethod
    def markdown(self) -> str:
        """Return the Markdown to render."""

    def run(self) -> list[nodes.Node]:
        """Render it."""
        self.watch()
        container = nodes.container()
        self.render(self.markdown(), container)
        return container.children


def table(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table; bars inside cells are escaped."""
    line = lambda cells: "| " + " | ".join(c.replace("\n", " ").replace("|", "\\|") for c in cells) + " |"  # noqa: E731
    return "\n".join([line(header), "|" + "---|" * len(header), *map(line, rows)])


class PageCard(Generated):
    """Card of a chapter: objectives, prerequisites and cost; the numbers are measured or counted."""

    def run(self) -> list[nodes.Node]:
        """Put the rendered card into a box."""
        box = nodes.container(classes=["icl-card"])
        box += super().run()
        return [box]

    def shown(self) -> list[Path]:
        """Files of this page's measurements and records."""
        records = measurements.of(self.env.docname)["records"]
        return [
            measurements.place(self.env.docname),
            *(chapters.ROOT / "book/results" / f"{name}.json" for name in records),
        ]

    def markdown(self) -> str:
        """The author's objectives and prerequisites, then the facts."""
        me = measurements.of(self.env.docname)
        facts = [f"**Reading time** {max(1, round(measurements.minutes(me['reading'])))} min without exercises"]
        if "seconds" in me and not dates.of_release():
            facts.append(f"**Runs in** {me['seconds']:.0f} s on this build's CPU, one core")
        facts += _recorded_runs([evidence.recorded(name).provenance for name in me["records"]])
        if me.get("checks"):
            facts.append(f"**Claims settled** {len(me['checks'])}")
        return "\n".join([*self.content, "", " · ".join(facts)])


def _recorded_runs(provenances: list[dict[str, Any]]) -> list[str]:
    """One line a device: how many runs, how long, and when."""
    lines = []
    for device in dict.fromkeys(p["device"] for p in provenances):
        mine = [p for p in provenances if p["device"] == device]
        days = sorted({p["date"] for p in mine})
        when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
        seconds = sum(p["seconds"] for p in mine)
        lines.append(f"**Recorded runs** {len(mine)} ({seconds:.0f} s; {_literal(f'{device}, {when}')})")
    return lines


def _printed(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return "; ".join(f"{k}: {_printed(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


class Verdict(SphinxRole):
    """Badge of a claim in a chapter's story: its verdict, leading to its check."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """The badge."""
        for path in _ledger():
            self.env.note_dependency(str(path))
        row = claims.ledger().get(self.text)
        if row is None or row.chapter is None:
            logger.warning("claim: no chapter checks %r", self.text, location=self.get_location())
            return [nodes.inline("", self.text)], []
        page = self.env.app.builder.get_relative_uri(self.env.docname, row.chapter)
        look = ["icl-verdict", row.verdict.replace(" ", "-")]
        link = nodes.reference("", "", internal=True, refuri=f"{page}#check-{row.id}", classes=look)
        link["reftitle"] = f"{_spelt_out(row.source)}: {claims.readable(row.claim)}"
        link += nodes.Text(row.verdict)
        return [link], []


class Claims(Watching):
    """The ledger's rows: this page's without an argument; all of a paper's with `gla`, `mem` or `mamba`."""

    def shown(self) -> list[Path]:
        """The ledger, the formulas on trial, and what settles its rows; of a paper, the lines that do, too."""
        if not self.arguments:
            return [*_ledger(), *_misprints(), measurements.place(self.env.docname)]
        lines = [chapters.ROOT / f"{page}.md" for page in chapters.with_cells()]
        return [*_ledger(), *_misprints(), *_all_measured(), *lines]

    def run(self) -> list[nodes.Node]:
        """One block a claim, in the ledger's order, coloured by its verdict."""
        paper = self.arguments[0] if self.arguments else None
        if paper and paper not in PAPERS:
            raise self.error(f"claims: no paper {paper!r}; one of {sorted(PAPERS)}")
        self.watch()
        measured, blocks = checks(), []
        for claim in claims.ledger().values():
            if claim.id.split(".")[0] == paper if paper else claim.chapter == self.env.docname:
                block = nodes.container(classes=["icl-claim", claim.verdict.replace(" ", "-")])
                self.render(self.block(claim, measured.get(claim.id), bool(paper)), block)
                if paper:
                    block["ids"].append(claim.id)  # a permanent link
                    block += self.proof(claim, claim.id in measured)
                blocks.append(block)
        if not blocks:
            raise self.error("claims: the ledger has no row for this page")
        return blocks

    def proof(self, claim: claims.Claim, checked: bool) -> list[nodes.Node]:
        """Links to the row itself, to its check on the chapter page, and to the line of code on a public host."""
        builder, links = self.env.app.builder, nodes.paragraph(classes=["icl-claim__links"])
        links += nodes.reference("", "link to this row", refid=claim.id)
        if checked:
            page = builder.get_relative_uri(self.env.docname, claim.chapter)
            links += nodes.Text(" · ")
            links += nodes.reference("", "its check", refuri=f"{page}#check-{claim.id}", internal=True)
            code = f"{claim.chapter}.md, line {claims_data.line(claim)}"
            links += nodes.Text(" · ")
            links += self.code(code, f"{claim.chapter}.md?plain=1#L{claims_data.line(claim)}")
        return [links]

    def code(self, text: str, place: str) -> nodes.Node:
        """A place in the repository: a link on a public host, words elsewhere."""
        options = self.config.html_theme_options
        if not options["use_repository_button"]:  # the address has a default, which is another project's
            return nodes.inline("", text)
        branch = options["repository_branch"]
        return nodes.reference("", text, refuri=f"{options['repository_url']}/blob/{branch}/{place}")

    def block(self, claim: claims.Claim, check: dict[str, Any] | None, link: bool) -> str:
        """Markdown of one claim: what is said, what was measured, why."""
        where = f" · [](/{claim.chapter}.md)" if link and claim.chapter else ""
        printed = f" Printed: {_literal(_printed(claim.printed))}." if claim.printed else ""
        lines = [
            f"**{claim.verdict}** · {claim.judges} · `{claim.id}` · {_pretty(_spelt_out(claim.source))}{where}",
            f"{_pretty(claim.claim)}{printed}",
        ]
        if claim.quote and link:
            lines.append(f"*In its words:* “{_literal(claim.quote['words'])}” ({_literal(claim.quote['place'])}).")
        lines += on_trial(claim)
        if claim.limits:
            limits = ", ".join(f"{name.replace('_', ' ')} {limit:g}" for name, limit in claim.limits.items())
            lines.append(f"*Limits of the statement:* {_literal(limits)}.")
        if check:
            draws = f" ({_literal(check['samples'])})" if check["samples"] else ""
            lines.append(f"*Measured:* {_literal(check['measured'])}{draws}.")
        lines.append(
            f"*To check:* {_pretty(claim.how)}" if claim.verdict == "not yet" else f"*Why:* {_pretty(claim.reason)}"
        )
        if claim.changed and link:
            lines.append(f"*Changed after a run:* {' '.join(map(_change, claim.changed))}")
        return "\n\n".join(lines)


def _change(change: dict[str, Any]) -> str:
    """One change of a row's verdict or bar, as a sentence."""
    day = f"{change['date'].day} {change['date']:%B %Y}"
    return _pretty(f"{day}, from {change['from']} to {change['to']}: {change['why']}")


def _pretty(text: str) -> str:
    """Greek letters and relation signs in place of their ASCII names."""
    return _literal(claims.readable(text))


#: Short forms of the ledger, which nobody would search for.
_SHORT = {r"Figs?": "Figure", r"Thm": "Theorem", r"App\.?": "Appendix", r"eqs?\.?": "equation", r"sec\.": "section"}


def _spelt_out(source: str) -> str:
    """The place in a paper, in whole words."""
    for short, full in _SHORT.items():
        source = re.sub(rf"\b{short}(?= )", full, source)
    return source.replace("§", "section ")


def _literal(text: str) -> str:
    """Escape one line of plain text, from the ledger or a record, for Markdown."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(text.split()))


def _in_a_table(text: str) -> str:
    """Plain text for `table`, which escapes bars by itself."""
    return _literal(text).replace(r"\|", "|")


#: What a sentence of Markdown has no need of: HTML, roles, blocks, what Jinja computes, links by anything but a path
#: or the web, pictures.
_MORE_THAN_WORDS = re.compile(
    r"<[A-Za-z/!?]|\{\{|\{%|\{[A-Za-z][\w:.-]*\}`|^\s*(?:`{3,}|~{3,}|:{3,})|!\[|\]\((?!/|https?://)|\]:", re.M
)


def only_words(text: str, where: str) -> str:
    """The text, if it is no more than words, emphasis, code, formulas and links; Broken names what more there is."""
    # What stands in a formula or in code is shown as it is.
    around = re.sub(r"\$[^$]*\$|(?<![}`])`[^`\n]+`(?!`)", " ", text)
    if match := _MORE_THAN_WORDS.search(around):
        rest = " ".join(around[match.start() :].split())
        raise chapters.Broken(f"{where}: more than words, formulas and links: {rest[:40]!r}")
    return text


#: More formulas than these a row does not show: they stand on the page of errata.
_ON_TRIAL = 4


def on_trial(claim: claims.Claim) -> list[str]:
    """The printed formulas that a row is about, each with what it should be, in Markdown."""
    if len(claim.errata) > _ON_TRIAL:
        return [f"*On trial:* {len(claim.errata)} displays, [each with its correction](/book/evidence/errata.md)."]
    listed = {row[0]: row for row in errata(claim.id.split(".")[0])[1]} if claim.errata else {}
    return [
        f"*On trial:* {where}. Printed: {printed}; it should be {corrected}."
        for _, _, where, printed, corrected in (listed[str(number)] for number in claim.errata)
    ]


def _misprints() -> list[Path]:
    """The modules that hold the lists of errata."""
    return sorted((chapters.ROOT / "lib/icl/theory/errata").glob("*.py"))


class VerdictCounts(Generated):
    """Number of claims by paper and verdict."""

    def shown(self) -> list[Path]:
        """The ledger."""
        return _ledger()

    def markdown(self) -> str:
        """One row a verdict that there is, one column a paper."""
        verdicts = {
            prefix: [c.verdict for c in claims.ledger().values() if c.id.split(".")[0] == prefix] for prefix in PAPERS
        }
        counts = {v: [mine.count(v) for mine in verdicts.values()] for v in claims.VERDICTS}
        rows = [[v, *map(str, by_paper)] for v, by_paper in counts.items() if any(by_paper)]
        rows.append(["all", *(str(len(mine)) for mine in verdicts.values())])
        return table(["Verdict", *PAPERS.values()], rows)


def errata(paper: str) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of a paper's errata, those of `icl.theory.errata`."""
    # Loads torch, which a build where nothing changed has no need of.
    from icl.theory.errata import ADAPTATION, MEMORY, SELECTION

    listed = {"gla": ADAPTATION, "mem": MEMORY, "mamba": SELECTION}[paper]
    return ["No.", "Kind", "Where", "Printed", "Corrected"], [
        [str(k), e.kind, e.where, f"${e.printed}$", f"${e.corrected}$"] for k, e in listed.items()
    ]


def statements(paper: str) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of a paper's statements that do not hold, with the rows of the ledger."""
    from icl.theory.errata import ADAPTATION_STATEMENTS, MEMORY_STATEMENTS, SELECTION_STATEMENTS

    listed = {"gla": ADAPTATION_STATEMENTS, "mem": MEMORY_STATEMENTS, "mamba": SELECTION_STATEMENTS}[paper]
    return ["Where", "The paper says", "What holds", "Claim"], [
        [s.where, s.says, s.holds, f"`{s.claim}`, [](/{claims.ledger()[s.claim].chapter}.md)" if s.claim else ""]
        for s in listed
    ]


class Errata(Generated):
    """Misprints with printed and corrected form, of the paper named: `gla`, `mem` or `mamba`."""

    listed = staticmethod(errata)

    def shown(self) -> list[Path]:
        """The modules that hold the lists."""
        return _misprints()

    def markdown(self) -> str:
        """One row an erratum."""
        paper = self.arguments[0] if self.arguments else None
        if paper not in PAPERS:
            raise self.error(f"{self.name}: no list of {paper!r}; one of {sorted(PAPERS)}")
        return table(*self.listed(paper))


class Statements(Errata):
    """Statements that do not hold, of the paper named, with what holds."""

    listed = staticmethod(statements)


class Notation(Generated):
    """The symbol table of `icl_book.notation`, each row a place that a link or the search may lead to."""

    def run(self) -> list[nodes.Node]:
        """Name the rows."""
        content = super().run()
        rows = [row for node in content for body in node.findall(nodes.tbody) for row in body.findall(nodes.row)]
        for row, symbol in zip(rows, notation.SYMBOLS, strict=True):
            row["ids"].append(searching.anchor(symbol.code))
        return content

    def shown(self) -> list[Path]:
        """The module that holds it."""
        return [Path(notation.__file__)]

    def markdown(self) -> str:
        """One row a symbol."""
        rows = [
            [f"${s.latex}$", f"`{s.code}`", *map(_in_a_table, (s.meaning, s.shape, s.unit, s.defined))]
            for s in notation.SYMBOLS
        ]
        return table(["Symbol", "In code", "Meaning", "Shape", "Unit", "Defined"], rows)


def first_use(names: list[str], texts: dict[str, str]) -> str | None:
    """The first page, in the reader's order, whose text uses one of these names."""
    pattern = re.compile("|".join(rf"(?<!\w){re.escape(name)}s?(?!\w)" for name in names), re.I)
    return next((page for page, text in texts.items() if pattern.search(text)), None)


class Terms(Generated):
    """The book's words, from `terms.yml` beside the page: a glossary, with the page of each one's first use."""

    def shown(self) -> list[Path]:
        """The list, and the chapters, for a first use may move."""
        return [self._list(), *(chapters.ROOT / f"{page}.md" for page in chapters.with_cells())]

    def _list(self) -> Path:
        return (chapters.ROOT / self.env.docname).with_name("terms.yml")

    def markdown(self) -> str:
        """A glossary in the order of the alphabet."""
        # The book's own words, those of evidence, stand where it says how to read it.
        pages = [*chapters.in_parts(), "book/start/how-to-read"]
        texts = {page: prose.text_of(chapters.source(page)) for page in pages}
        lines = ["```{glossary}"]
        for entry in sorted(chapters.loaded(chapters.words(self._list())), key=lambda entry: entry["term"].lower()):
            try:
                for field, text in entry.items():
                    only_words(text, f"{self._list().name}: {entry['term']}: {field}")
            except chapters.Broken as fault:
                raise self.error(f"terms: {fault}") from fault
            names = [entry["term"], *filter(None, [entry.get("also")])]
            page = first_use(names, texts)
            if page is None:
                raise self.error(f"terms: no page uses {entry['term']!r}")
            letter = f" Letter: {entry['letter']}." if "letter" in entry else ""
            lines += [*names, f"  {entry['meaning']}{letter} First in [](/{page}.md).", ""]
        return "\n".join([*lines, "```"])


class Timings(Generated):
    """Seconds a chapter, and the versions that ran it."""

    def shown(self) -> list[Path]:
        """Files of all pages' measurements."""
        return _all_measured()

    def markdown(self) -> str:
        """A table of times, a table of versions; of a release, the versions."""
        measured = measurements.of_all()
        rows = [
            [f"[](/{page}.md)", f"{m['seconds']:.1f}", str(len(m["checks"])), str(m["charts"])]
            for page, m in measured.items()
            if "seconds" in m
        ]
        total = sum(m.get("seconds", 0) for m in measured.values())
        rows.append(["**all chapters**", f"**{total:.1f}**", "", ""])
        names = ("torch", "numpy", "scipy", "pandas", "altair", "jupyter-book", "myst-nb")
        versions = [[name, importlib.metadata.version(name).split("+")[0]] for name in names]
        versions.insert(0, ["python", sys.version.split()[0]])
        packages = table(["Package", "Version"], versions)
        if dates.of_release():  # so that two builds of it are the same
            counts = table(["Chapter", "claims checked", "figures"], [[row[0], *row[2:]] for row in rows[:-1]])
            return f"{counts}\n\nA release has no times in it; `make book` measures yours.\n\n{packages}"
        return "\n\n".join(
            [
                table(["Chapter", "seconds, one core", "claims checked", "figures"], rows),
                f"Machine: {os.cpu_count()} cores, {os.uname().machine}, {os.uname().sysname}.",
                packages,
            ]
        )


def recorded_times() -> str:
    """A table of what the records of each chapter took, the longest first, and on what device they were made."""
    rows, every = [], dict[str, dict[str, Any]]()
    for page in chapters.pages():
        used = {name: evidence.recorded(name).provenance for name in chapters.records_of(chapters.source(page))}
        timed = {name: each for name, each in used.items() if each["command"] == "make paper"}
        every |= timed
        if timed:
            rows.append((sum(each["seconds"] for each in timed.values()), page, len(timed)))
    shown = [[f"[](/{page}.md)", str(count), f"{seconds / 60:.0f}"] for seconds, page, count in sorted(rows)[::-1]]
    total = sum(each["seconds"] for each in every.values())
    shown.append(["**all, each once**", f"**{len(every)}**", f"**{total / 60:.0f}**"])
    devices = dict.fromkeys(each["device"] for each in every.values())
    some = "None" if all(device.startswith("CPU") for device in devices) else "Some"
    on = "; ".join(map(_literal, devices))
    return f"Made on: {on}. {some} of them on a GPU.\n\n{table(['Chapter', 'records', 'minutes'], shown)}"


class RecordedTimes(Generated):
    """Minutes behind the records of each chapter."""

    def shown(self) -> list[Path]:
        """All records."""
        return sorted((chapters.ROOT / "book/results").glob("*.json"))

    def markdown(self) -> str:
        """The table."""
        return recorded_times()


def _test_files() -> list[Path]:
    return sorted((chapters.ROOT / "tests").rglob("test_*.py"))


@cache  # a build is one process: 100 roles ask, and the answer takes half a second
def test_functions() -> dict[str, tuple[str, str]]:
    """Every test of the library: `file::name` -> (anchor, docstring)."""
    tests = {}
    for path in _test_files():
        where = path.relative_to(chapters.ROOT / "tests").as_posix()
        for name, summary in _tests(chapters.words(path)):
            anchor = f"{where}-{name}".replace("/", "-").replace(".py", "").replace("_", "-").lower()
            tests[f"{where}::{name}"] = (anchor, summary)
    return tests


def _tests(text: str) -> list[tuple[str, str]]:
    """Names and docstrings of a file's tests."""
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return [(node.name, ast.get_docstring(node) or "") for node in functions if node.name.startswith("test_")]


class Tests(Generated):
    """Docstring of every test."""

    def shown(self) -> list[Path]:
        """The files of tests."""
        return _test_files()

    def markdown(self) -> str:
        """A heading a file, an entry a test."""
        lines, current = [], None
        for name, (anchor, doc) in test_functions().items():
            where, function = name.split("::")
            if where != current:
                lines += ["", f"**`tests/{where}`**", ""]
                current = where
            first = _literal(" ".join(doc.split("\n\n")[0].split()))
            lines.append(f"- []{{#{anchor}}} `{function}`: {first or '(its name says it)'}")
        return "\n".join(lines)


class TestRole(SphinxRole):
    """{test}`icl/theory/test_moments.py::test_name`: a link to the test that holds an equation; it must exist."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Link to the entry on the page of tests."""
        tests = test_functions()
        if self.text not in tests:
            logger.warning("no test %r under tests/", self.text, location=self.get_location())
            return [nodes.literal(self.text, self.text)], []
        self.env.note_dependency(str(chapters.ROOT / "tests" / self.text.split("::")[0]))
        target = self.env.app.builder.get_relative_uri(self.env.docname, TESTS)
        link = nodes.reference("", "", internal=True, refuri=f"{target}#{tests[self.text][0]}")
        link += nodes.literal("", self.text.split("::")[1])
        return [link], []


def _follow_tests(app: Sphinx, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """The page of tests is read again when a file of tests has come; Sphinx sees only those that changed or went."""
    before = getattr(env, "icl_tests", None)
    env.icl_tests = [str(path) for path in _test_files()]
    return [TESTS] if env.icl_tests != before else []


def _follow_release(app: Sphinx, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Pages with times are read again when a release is built after a build that is none, or the other way round."""
    before = getattr(env, "icl_release", None)
    env.icl_release = dates.of_release()
    return [] if before in (None, env.icl_release) else [*chapters.with_cells(), TIMINGS]


def setup(app: Sphinx) -> None:
    """Register them."""
    for name, directive in (
        ("page-card", PageCard),
        ("claims", Claims),
        ("verdict-counts", VerdictCounts),
        ("errata", Errata),
        ("statements", Statements),
        ("notation", Notation),
        ("terms", Terms),
        ("timings", Timings),
        ("recorded-times", RecordedTimes),
        ("tests", Tests),
    ):
        app.add_directive(name, directive)
    app.add_role("claim", Verdict())
    app.add_role("test", TestRole())
    app.connect("env-get-outdated", _follow_tests)
    app.connect("env-get-outdated", _follow_release)
