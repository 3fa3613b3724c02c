"""Directives of the page for teachers; what they show is counted and drawn from the chapters (`courses`).

{syllabus}      an order through the book, by its name in `book/course/syllabi.yml`
{prerequisites} what chapter asks for what: a picture, and the same as a list
{workload}      minutes of reading and of exercises, a chapter a row
{binder}        where Binder opens this version of the book, if its public address is known
"""

import html
from collections.abc import Callable
from pathlib import Path

import chapters
import courses
import measurements
import yaml
from courses import Exercise, Session, Syllabus
from directives import Generated, Watching, table
from docutils import nodes
from sphinx.application import Sphinx

OWN = [Path(__file__), Path(courses.__file__), Path(measurements.__file__)]
#: How a kind of exercise is called.
KINDS = {"paper": "on paper", "code": "in code", "open": "open"}


def span(minutes: int) -> str:
    """Minutes as hours and minutes: 95 is 1 h 35 min."""
    hours, rest = divmod(minutes, 60)
    return " ".join(filter(None, [f"{hours}\u00a0h" if hours else "", f"{rest}\u00a0min" if rest or not hours else ""]))


def linked(page: str) -> str:
    """A chapter as a link, in Markdown."""
    return f"[{courses.title(page)}](/{page}.md)"


def of_session(session: Session, known: dict[str, Exercise]) -> str:
    """A session in Markdown: its times, what to read, what is set, and what comes with it."""
    read, work = courses.minutes(session, known)
    times = [session.time, *([f"reading {span(read)}"] if read else []), *([f"exercises {span(work)}"] if work else [])]
    lines = [f"**{session.title}** · {' · '.join(times)}", ""]
    if session.chapters:
        lines += [
            "Read: " + ", ".join(f"{linked(page)} ({courses.reading(page)}\u00a0min)" for page in session.chapters),
            "",
        ]
    if session.exercises:
        each = [known[label] for label in session.exercises]
        titles = [f"{{ref}}`{e.number} {e.title} <{e.label}>` ({KINDS[e.kind]}, {e.minutes}\u00a0min)" for e in each]
        lines += ["Exercises: " + ", ".join(titles), ""]
    if session.chapters:
        questions = courses.questions_about(session.chapters)
        lines += ["Questions: " + "; ".join(f"{part} {', '.join(map(str, ns))}" for part, ns in questions.items()), ""]
    extras = [f"slides `{name}`" for name in session.decks]
    if session.problem_set:
        extras += [f"problem set `{session.problem_set}`, {span(courses.problem_set(session.problem_set))}"]
    extras += [session.milestone] if session.milestone else []
    return "\n".join([*lines, *(["With it: " + "; ".join(extras) + ".", ""] if extras else [])])


def of_syllabus(syllabus: Syllabus) -> str:
    """A whole syllabus in Markdown: for whom, the sums, its sessions, what it leaves out, and its objectives."""
    exercises = courses.every_exercise()
    sums = [courses.minutes(session, exercises) for session in syllabus.sessions]
    read, work = sum(r for r, _ in sums), sum(w for _, w in sums)
    lines = [syllabus.whom, ""]
    lines += [
        f"**In all** {len(syllabus.chapters)} chapters · reading {span(read)}"
        + (f" · {sum(len(s.exercises) for s in syllabus.sessions)} exercises {span(work)}" if work else ""),
        "",
    ]
    for session in syllabus.sessions:
        lines += [":::{container} icl-session", of_session(session, exercises), ":::", ""]
    if syllabus.bridges:
        lines += ["Left out, though a chapter's card asks for it; what to say instead:", ""]
        lines += [f"- {linked(page)}: {words}" for page, words in syllabus.bridges.items()] + [""]
    lines += ["````{dropdown} Objectives: afterwards students will be able to", ":class-container: icl-screen", ""]
    for session in syllabus.sessions:
        if session.chapters:
            lines += [f"**{session.title}**", ""]
            lines += [f"- {courses.card(page).able}" for page in session.chapters] + [""]
    return "\n".join([*lines, "````"])


class ShowSyllabus(Generated):
    """A syllabus, its minutes summed and its objectives taken from the chapters' cards."""

    required_arguments, optional_arguments, has_content = 1, 0, False

    def shown(self) -> list[Path]:
        """The syllabi, and every chapter: its card, its words, its exercises; problem sets and questions."""
        sources = [chapters.ROOT / courses.SYLLABI, *sorted((chapters.ROOT / courses.SETS).glob("ps*.md"))]
        sources += sorted((chapters.ROOT / courses.QUESTIONS).glob("*.yml"))
        return [*OWN, *sources, *(chapters.ROOT / f"{page}.md" for page in courses.taught_chapters())]

    def markdown(self) -> str:
        """Of the syllabus that is named."""
        try:
            syllabi = courses.syllabi()
        except chapters.Broken as fault:
            raise self.error(str(fault)) from fault
        if self.arguments[0] not in syllabi:
            raise self.error(f"syllabus: none is called {self.arguments[0]!r}; there are {', '.join(syllabi)}")
        return of_syllabus(syllabi[self.arguments[0]])


class Workload(Generated):
    """Workload of every chapter."""

    has_content, optional_arguments = False, 0

    def shown(self) -> list[Path]:
        """Every chapter."""
        return [*OWN, *(chapters.ROOT / f"{page}.md" for page in courses.taught_chapters())]

    def markdown(self) -> str:
        """A row a chapter: minutes to read it, and of its exercises by kind; the last row is the sum."""
        rows, sums = [], [0, 0, 0, 0]
        for page in courses.taught_chapters():
            each = courses.exercises(page)
            numbers = [courses.reading(page), *(sum(e.minutes for e in each if e.kind == kind) for kind in KINDS)]
            sums = [a + b for a, b in zip(sums, numbers, strict=True)]
            rows.append([linked(page), *map(str, numbers)])
        rows.append(["**all chapters**", *(f"**{number}**" for number in sums)])
        return table(["Chapter", "reading", *(f"exercises {words}" for words in KINDS.values())], rows)


# The picture: a row a chapter, in the reader's order. A chapter has a dot in a lane of its own; from a chapter that
# others ask for a line goes down its lane, with a branch to each of them. Lanes that have ended are used again.
ROW, LANE, LEFT, TEXT = 24, 11, 9, 12  # pixels


def lanes(asks: dict[str, tuple[str, ...]]) -> dict[str, int]:
    """A lane for each chapter, such that no line runs through another chapter's dot."""
    order = list(asks)
    last = {page: max([order.index(p) for p, ones in asks.items() if page in ones], default=-1) for page in order}
    free_from, lane_of = list[int](), dict[str, int]()
    for row, page in enumerate(order):
        lane = next((number for number, free in enumerate(free_from) if free <= row), len(free_from))
        free_from += [0] if lane == len(free_from) else []
        free_from[lane] = max(last[page], row) + 1
        lane_of[page] = lane
    return lane_of


def captions() -> dict[str, str]:
    """The first chapter of each part that has chapters, and the part's name."""
    contents = yaml.safe_load(chapters.words(chapters.ROOT / "_toc.yml"))
    taught = set(courses.taught_chapters())
    heads = (
        (next((c["file"] for c in p["chapters"] if c["file"] in taught), None), p["caption"]) for p in contents["parts"]
    )
    return {page: caption for page, caption in heads if page}


def picture(asks: dict[str, tuple[str, ...]], heads: dict[str, str], uri: Callable[[str], str]) -> str:
    """The graph as SVG: titles are links, lines and dots have the colour of their part."""
    drawn, place = courses.bare(asks), lanes(courses.bare(asks))
    start = LEFT + LANE * (max(place.values()) + 1)
    rows, part, y, number, names = dict[str, float](), dict[str, int](), 0.0, 0, list[str]()
    for page in asks:
        if page in heads:
            number += 1
            y += ROW * (1.4 if y else 0.6)
            where = f'class="icl-graph__part icl-part{number}" x="{start}" y="{y + 4:g}"'
            names.append(f"<text {where}>{html.escape(heads[page])}</text>")
        y += ROW
        rows[page], part[page] = y, number
    x = {page: LEFT + LANE * place[page] for page in asks}
    trunks, gaps, branches = list[str](), list[str](), list[str]()
    for page, ones in drawn.items():
        for one in ones:
            across, down, colour = x[page] - x[one], rows[page], f"icl-part{part[one]}"
            turn = LANE - 1 if across > 0 else 1 - LANE
            trunks.append(f'<path class="{colour}" d="M{x[one]} {rows[one]:g}V{down - abs(turn):g}"/>')
            gaps.append(f'<path class="icl-graph__gap" d="M{x[one] + turn} {down:g}H{x[page]}"/>')
            corner = f"M{x[one]} {down - abs(turn):g}Q{x[one]} {down:g} {x[one] + turn} {down:g}H{x[page]}"
            branches.append(f'<path class="{colour}" d="{corner}"/>')
    lines = [*trunks, *gaps, *branches]  # a branch passes over the trunks that it crosses
    dots = [f'<circle class="icl-part{part[page]}" cx="{x[page]}" cy="{rows[page]:g}" r="4"/>' for page in asks]
    titles = [
        f'<a href="{html.escape(uri(page))}">'
        f'<text x="{start}" y="{rows[page] + 4:g}">{html.escape(courses.title(page))}</text></a>'
        for page in asks
    ]
    widest = max(len(courses.title(page)) for page in asks)
    size = f"{start + widest * TEXT * 0.52:.0f} {y + ROW / 2:.0f}"
    return (
        f'<svg class="icl-graph" viewBox="0 0 {size}" role="group" '
        'aria-label="Which chapter asks for which; the same stands below as a list">'
        f'<g aria-hidden="true" fill="none">{"".join(lines)}</g><g aria-hidden="true">{"".join(dots)}</g>'
        f"{''.join(names)}{''.join(titles)}</svg>"
    )


class Prerequisites(Watching):
    """Prerequisite graph of the chapters, from the cards: a figure, and a list."""

    has_content, optional_arguments = False, 0

    def shown(self) -> list[Path]:
        """Every chapter, and the order of parts."""
        return [*OWN, chapters.ROOT / "_toc.yml", *(chapters.ROOT / f"{page}.md" for page in courses.taught_chapters())]

    def run(self) -> list[nodes.Node]:
        """The picture, then the list, folded."""
        self.watch()
        try:
            asks = courses.graph()
            wrong = courses.faults(asks)
        except chapters.Broken as fault:
            raise self.error(str(fault)) from fault
        if wrong:
            raise self.error("prerequisites: " + "; ".join(wrong))
        uri = lambda page: self.env.app.builder.get_relative_uri(self.env.docname, page)  # noqa: E731
        svg = picture(asks, captions(), uri)
        container = nodes.container()
        self.render(as_list(asks), container)
        return [nodes.raw("", f'<figure class="icl-graph-box">{svg}</figure>', format="html"), *container.children]


def as_list(asks: dict[str, tuple[str, ...]]) -> str:
    """The graph as a folded list, in Markdown."""
    lines = ["````{dropdown} The same as a list", ""]
    for page, ones in asks.items():
        lines.append(f"- {linked(page)}: " + (", ".join(map(linked, ones)) if ones else "asks for no other chapter"))
    return "\n".join([*lines, "````"])


_SLOW = """Binder builds the book's environment, PyTorch included, when a version is first asked for. That takes long:
open it well before the class. We could not try it."""
_NO_ADDRESS = """Binder opens a tagged version of a public repository from its `environment.yml`. This copy of the book
was built without a public address, so it has no link to give."""


def in_binder(repository: str, version: str) -> str:
    """Binder link to a tagged version, with its words; without a repository, no link."""
    if not repository.startswith("https://github.com/"):
        return f"{_NO_ADDRESS} {_SLOW}"
    place = repository.removeprefix("https://github.com/")
    address = f"https://mybinder.org/v2/gh/{place}/v{version}?urlpath=lab%2Ftree%2Fbook"
    return f"[Open version {version} in Binder]({address}). {_SLOW}"


class Binder(Generated):
    """A link that opens the tagged version in Binder."""

    has_content, optional_arguments = False, 0

    def shown(self) -> list[Path]:
        """The version."""
        return [*OWN, chapters.ROOT / "CITATION.cff"]

    def markdown(self) -> str:
        """A link on a public host, words elsewhere."""
        given = self.config.html_theme_options  # the address has a default, which is another project's
        repository = given["repository_url"] if given.get("use_repository_button") else ""
        version = yaml.safe_load(chapters.words(chapters.ROOT / "CITATION.cff"))["version"]
        return in_binder(repository, str(version))


def setup(app: Sphinx) -> None:
    """Register them."""
    for name, directive in (
        ("syllabus", ShowSyllabus),
        ("workload", Workload),
        ("prerequisites", Prerequisites),
        ("binder", Binder),
    ):
        app.add_directive(name, directive)
