"""The book as a course: what each chapter's card asks for, its exercises in minutes, and syllabi that put it in order.

Everything is read from the chapters and from `book/course/syllabi.yml`; a syllabus that names what is not there, or
puts a chapter before one that its card asks for, is refused by name.
"""

import ast
import posixpath
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import chapters
import measurements
import numbering
import yaml

SYLLABI = "book/course/syllabi.yml"
SETS, QUESTIONS = "book/course/assignments", "book/course/questions"
#: Minutes of work on an exercise, a rule and no measurement: on paper so many, and five times what its solution takes
#: to be read; in code so many, and two a line of the solution's function; an open one has no end, and gets an hour.
PAPER, A_SOLUTION, CODE, A_LINE, OPEN = 10.0, 5.0, 10.0, 2.0, 60.0
#: To this many minutes an exercise's are rounded.
STEP = 5

_CARD = re.compile(
    r"^```\{page-card\}\n\*\*You will be able to\*\* (?P<able>.*?)\n\n\*\*You should know\*\* (?P<know>.*?)\n```$",
    re.M | re.S,
)
_EXERCISE = re.compile(
    r"^```\{exercise-start\} *(?P<title>[^\n]*)\n:label: (?P<label>\S+)\n```\n\((?P<kind>[^)]*)\)(?P<task>.*?)"
    r"^```\{exercise-end\}",
    re.M | re.S,
)
_CELL = re.compile(r"^```\{code-cell\}\n(.*?)^```", re.M | re.S)
_SOLVED = re.compile(r"^ *### BEGIN SOLUTION\n(.*?)^ *### END SOLUTION$", re.M | re.S)
#: The question bank's parts, in the order of their sheets, which are numbered so.
PARTS = {"adaptation": "I", "memory": "II", "selection": "III", "synthesis": "IV"}


@dataclass(frozen=True)
class Card:
    """Contents of a chapter's card.

    Attributes:
        able: what a reader will be able to do, in Markdown.
        know: what a reader should know, in Markdown.
        asks: the chapters that it links there, in its order.
    """

    able: str
    know: str
    asks: tuple[str, ...]


@dataclass(frozen=True)
class Exercise:
    """An exercise of a chapter.

    Attributes:
        label: its name.
        title: its heading.
        page: the chapter.
        kind: `paper`, `code` or `open`.
        minutes: that it takes, by the rule above.
    """

    label: str
    title: str
    page: str
    kind: str
    minutes: int

    @property
    def number(self) -> str:
        """The number that the page shows."""
        return numbering.exercises(self.page)[self.label]


@dataclass(frozen=True)
class Session:
    """A meeting, or a week, of a syllabus: what is read for it and done after it.

    Attributes:
        title: what it is called.
        time: how long the class meets.
        chapters: the pages to read, in order.
        exercises: labels of the exercises that are set.
        decks: names of slides.
        problem_set: a problem set handed out, if any.
        milestone: what the project owes by then, if anything.
    """

    title: str
    time: str
    chapters: tuple[str, ...]
    exercises: tuple[str, ...] = ()
    decks: tuple[str, ...] = ()
    problem_set: str = ""
    milestone: str = ""


@dataclass(frozen=True)
class Syllabus:
    """An order through the book.

    Attributes:
        name: its key in the file.
        title: what it is called.
        whom: for whom it is.
        sessions: its meetings.
        bridges: chapters that a card asks for and the syllabus leaves out, with what the teacher says instead.
    """

    name: str
    title: str
    whom: str
    sessions: tuple[Session, ...]
    bridges: dict[str, str]

    @property
    def chapters(self) -> tuple[str, ...]:
        """All its chapters, in order."""
        return tuple(page for session in self.sessions for page in session.chapters)


def taught_chapters() -> list[str]:
    """The chapters that may be taught, in the reader's order."""
    return chapters.in_parts()


def card(page: str, text: str | None = None) -> Card:
    """A chapter's card; Broken if it has none, or says no prerequisites."""
    match = _CARD.search(chapters.source(page) if text is None else text)
    if match is None:
        raise chapters.Broken(f"{page}.md: no card with what one will be able to do and what one should know")
    links = re.findall(r"\]\(([^)#\s]+)\.md\)", match["know"])
    asks = [posixpath.normpath(posixpath.join(posixpath.dirname(page), link)) for link in links]
    return Card(" ".join(match["able"].split()), " ".join(match["know"].split()), tuple(dict.fromkeys(asks)))


def graph() -> dict[str, tuple[str, ...]]:
    """The chapters, in the reader's order, and those that each one's card asks for."""
    return {page: card(page).asks for page in taught_chapters()}


def behind(asks: dict[str, tuple[str, ...]], page: str) -> set[str]:
    """Everything a chapter rests on, directly or not; Broken if it rests on itself."""
    pages, open_ = set[str](), list(asks.get(page, ()))
    while open_:
        if (one := open_.pop()) not in pages:
            pages.add(one)
            open_ += asks.get(one, ())
    if page in pages:
        raise chapters.Broken(f"{page}.md: by its card and those it links, it asks for itself")
    return pages


def bare(asks: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The same graph without the links that others imply."""
    rests = {page: behind(asks, page) for page in asks}
    return {
        page: tuple(one for one in ones if not any(one in rests[other] for other in ones if other != one))
        for page, ones in asks.items()
    }


def faults(asks: dict[str, tuple[str, ...]]) -> list[str]:
    """Problems of the cards' links: a cycle, a link to no chapter or to a later one, a chapter without a link."""
    order, wrong = list(asks), []
    for number, (page, ones) in enumerate(asks.items()):
        for one in ones:
            if one not in asks:
                wrong.append(f"{page}: asks for {one}, which is no chapter")
            elif order.index(one) >= number:
                wrong.append(f"{page}: asks for {one}, which comes later")
        if not ones and number:
            wrong.append(f"{page}: asks for no chapter")
        try:
            behind(asks, page)
        except chapters.Broken as fault:
            wrong.append(str(fault))
    return wrong


def reading(page: str) -> int:
    """Minutes to read a chapter, as its card says them."""
    return _reading(chapters.source(page))


@cache
def _reading(text: str) -> int:
    return max(1, round(measurements.minutes(measurements.reading(text))))


def exercises(page: str) -> list[Exercise]:
    """A chapter's exercises, in its order; Broken if one has no solution."""
    return list(_exercises(page, chapters.source(page)))


@cache  # a page asks for all of them with each of its sessions
def _exercises(page: str, text: str) -> tuple[Exercise, ...]:
    return tuple(_worked_out(page, text))


def _worked_out(page: str, text: str) -> list[Exercise]:
    page_exercises = []
    for each in _EXERCISE.finditer(text):
        solution = re.search(
            rf"^```\{{solution-start\}} {re.escape(each['label'])}\n.*?^```\{{solution-end\}}", text, re.M | re.S
        )
        if solution is None:
            raise chapters.Broken(f"{page}.md: {each['label']} has no solution")
        kind_name = each["kind"].lower()
        kind = "open" if "open" in kind_name else "paper" if "paper" in kind_name else "code"
        work = {
            "paper": PAPER + A_SOLUTION * _read(_CELL.sub("", solution[0])),
            "code": CODE + A_LINE * _lines(solution[0]),
            "open": OPEN,
        }[kind]
        minutes = STEP * max(1, round((_read(each["task"]) + work) / STEP))
        page_exercises.append(Exercise(each["label"], each["title"].strip(), page, kind, minutes))
    return page_exercises


def _read(text: str) -> float:
    """Minutes to read a piece of a page, at the rates of `measurements`."""
    return measurements.minutes(measurements.counted(text))


def _lines(solution: str) -> int:
    """Lines of the functions that solve it."""
    cells = ["\n".join(x for x in cell.split("\n") if not x.startswith(":")) for cell in _CELL.findall(solution)]
    nodes = [node for cell in cells for node in ast.parse(cell).body if isinstance(node, ast.FunctionDef)]
    return sum(n.end_lineno - n.lineno + 1 for n in nodes if n.name.endswith("_solution") and n.end_lineno)


def every_exercise() -> dict[str, Exercise]:
    """All exercises of the book by label."""
    return {each.label: each for page in taught_chapters() for each in exercises(page)}


def syllabi() -> dict[str, Syllabus]:
    """The syllabi by name, each of them sound; Broken if one is not."""
    try:
        written = chapters.loaded(chapters.words(chapters.ROOT / SYLLABI))
        by_name = {name: _syllabus(name, entry) for name, entry in written["syllabi"].items()}
        about = {name: tuple(f"book/{page}" for page in pages) for name, pages in written["problem_sets"].items()}
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise chapters.Broken(f"{SYLLABI}: not a list of syllabi ({' '.join(str(error).split())})") from error
    for syllabus in by_name.values():
        if wrong := unsound(syllabus, about):
            raise chapters.Broken(f"{SYLLABI}: {syllabus.name}: {'; '.join(wrong)}")
    return by_name


def _syllabus(name: str, entry: dict[str, Any]) -> Syllabus:
    sessions = tuple(
        Session(
            **each
            | {"chapters": tuple(f"book/{page}" for page in each.get("chapters", []))}
            | {key: tuple(each.get(key, [])) for key in ("exercises", "decks")}
        )
        for each in entry["sessions"]
    )
    bridges = {f"book/{page}": " ".join(words.split()) for page, words in entry.get("bridges", {}).items()}
    return Syllabus(name, entry["title"], " ".join(entry["whom"].split()), sessions, bridges)


def unsound(syllabus: Syllabus, about: dict[str, tuple[str, ...]]) -> list[str]:
    """Problems of a syllabus: unknown or repeated chapters, the order, exercises before their chapter, bridges.

    Args:
        syllabus: it.
        about: the chapters that each problem set is about.
    """
    asks, all_exercises, wrong = graph(), every_exercise(), []
    placed, missing = list[str](), dict[str, None]()
    taught = set(syllabus.chapters)
    for session in syllabus.sessions:
        for page in session.chapters:
            if page not in asks:
                wrong.append(f"the book has no chapter {page}")
                continue
            wrong += [f"{page} stands twice"] if page in placed else []
            wrong += [f"{page} comes before {one}" for one in asks[page] if one in taught and one not in placed]
            missing |= {one: None for one in asks[page] if one not in taught}
            placed.append(page)
        for label in session.exercises:
            if label not in all_exercises:
                wrong.append(f"the book has no exercise {label}")
            elif all_exercises[label].page not in placed:
                wrong.append(f"{label} is set before {all_exercises[label].page}")
        if session.problem_set and session.problem_set not in about:
            wrong.append(f"there is no problem set {session.problem_set}")
        for deck in session.decks:
            shown = shown_in(deck)
            wrong += [f"there are no slides {deck}"] if shown is None else []
            wrong += [f"slides {deck} come before {page}" for page in shown or () if page not in placed]
        late = [page for page in about.get(session.problem_set, ()) if page not in placed]
        wrong += [f"{session.problem_set} is handed out before {page}" for page in late]
    set_ = [label for session in syllabus.sessions for label in session.exercises]
    wrong += [f"{label} is set twice" for label in dict.fromkeys(set_) if set_.count(label) > 1]
    wrong += [f"{one} is asked for and left out, without a bridge" for one in missing if one not in syllabus.bridges]
    wrong += [f"a bridge for {one}, which nobody misses" for one in syllabus.bridges if one not in missing]
    return wrong


def shown_in(deck: str) -> tuple[str, ...] | None:
    """The chapters that slides show, from the head of their file; None if there is no such file."""
    path = chapters.ROOT / "book/course/slides" / f"{deck}.md"
    if not path.is_file():
        return None
    head = chapters.loaded(chapters.words(path).split("\n---", 1)[0])
    return tuple(f"book/{page}" for page in head["chapters"])


def minutes(session: Session, known: dict[str, Exercise]) -> tuple[int, int]:
    """Minutes of a session's reading, and of the exercises that are set, given all the book's by label."""
    return sum(map(reading, session.chapters)), sum(known[label].minutes for label in session.exercises)


def problem_set(name: str) -> int:
    """Minutes of a problem set: those to read its text, and its exercises' by the rule for code."""
    text = chapters.words(chapters.ROOT / SETS / f"{name}.md").split("\n---\n", 1)[1]
    work = [CODE + A_LINE * len(lines.strip("\n").split("\n")) for lines in _SOLVED.findall(text)]
    return STEP * round((_read(_CELL.sub("", text)) + sum(work)) / STEP)


def questions_about(pages: tuple[str, ...]) -> dict[str, list[int]]:
    """The questions of the bank about these chapters: by part (I to IV), their numbers on its sheet."""
    numbers: dict[str, list[int]] = {}
    for name, part in PARTS.items():
        each = _about(chapters.words(chapters.ROOT / QUESTIONS / f"{name}.yml"))
        about = [number for number, page in enumerate(each, 1) if page in pages]
        numbers |= {part: about} if about else {}
    return numbers


@cache  # a page asks for all of them with each of its sessions
def _about(text: str) -> tuple[str, ...]:
    """The chapter of each question of a part, from its file's text."""
    return tuple(f"book/{entry['chapter']}" for entry in chapters.loaded(text))


def title(page: str) -> str:
    """A chapter's title."""
    return chapters.title(page)
