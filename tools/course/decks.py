"""Decks of slides as text, and checks that their figures and numbers are the chapters'.

A deck is `book/course/slides/<deck>.md`: settings (title, minutes, the chapters it teaches, reasons for its own words),
then one slide a heading `# A claim, in a sentence`, with options below it:

    :minutes: 3        how long it takes; the slides' minutes add up to the deck's
    :kind: question    one of KINDS; `claim` if not said
    :notes: adaptation/depth#In short    the section of the teaching notes for the speaker

A slide borrows as pages do (`transclude.py`): `{figure-of}` a chapter's figure, `{said}` and `{measured}` its words;
`{code-of}` some lines of a chapter's cell, `{exercise-of}` an exercise by its label. `{say}` is what the speaker says,
`{answer}` appears at the next key.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import chapters
import nbformat
import prose
import runs
import transclude
import yaml

SOURCES = chapters.ROOT / "book" / "course" / "slides"
NOTES = chapters.ROOT / "book" / "course" / "notes"
#: What a slide is for.
KINDS = {
    "claim": "says one thing, and shows it",
    "question": "asks the room; a minute, then hands",
    "play": "a figure with sliders: a prediction first, then the sliders",
    "exercise": "the room works",
    "limits": "what the lecture does not say",
}
DIRECTIVES = ("figure-of", "code-of", "exercise-of", "say", "answer")
_BLOCK = re.compile(
    r"^(?P<fence>`{3,}|:{3,})\{(?P<name>[\w-]+)\}[ ]*(?P<argument>[^\n]*)\n(?P<body>.*?)^(?P=fence)[ ]*$", re.M | re.S
)
_DECIMAL = re.compile(r"\d+\.\d+")
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$]+)\$", re.S)


#: The book's contents are read for each name otherwise.
page_of, proof = cache(transclude.chapter), cache(transclude.proof)


@dataclass(frozen=True)
class Block:
    """A directive of a slide: its name, what stands on its first line, its options, and the text within."""

    name: str
    argument: str
    options: dict[str, str]
    text: str


@dataclass(frozen=True)
class Slide:
    """One slide.

    Attributes:
        title: the claim, in a sentence.
        kind: one of KINDS.
        minutes: how long it takes.
        notes: chapter and heading of the teaching note, such as `adaptation/depth#In short`; empty for none.
        text: its Markdown, directives included.
    """

    title: str
    kind: str
    minutes: float
    notes: str
    text: str

    def blocks(self, *names: str) -> list[Block]:
        """Its directives of these names, or all of them, in order."""
        return [block(match) for match in _BLOCK.finditer(self.text) if not names or match["name"] in names]

    def speaker_notes(self) -> str:
        """Speaker notes, as text."""
        return " ".join(" ".join(one.text.split()) for one in self.blocks("say"))


@dataclass(frozen=True)
class Deck:
    """A lecture.

    Attributes:
        name: of its file.
        title: of the lecture.
        subtitle: what it answers, in a sentence.
        minutes: its length.
        chapters: the chapters that it teaches, by room and file.
        reasons: pieces of its text whose numbers no chapter says, by reason, as in book/prose.
        slides: in order.
    """

    name: str
    title: str
    subtitle: str
    minutes: float
    chapters: tuple[str, ...]
    reasons: dict[str, list[str]]
    slides: tuple[Slide, ...]


def names() -> list[str]:
    """The decks that there are."""
    return sorted(path.stem for path in SOURCES.glob("*.md"))


def block(found: re.Match[str]) -> Block:
    """A directive that was found."""
    lines = found["body"].splitlines()
    options = {}
    while lines and (option := re.match(r":([\w-]+):[ ]*(.*)$", lines[0])):
        options[option[1]] = option[2].strip()
        lines.pop(0)
    return Block(found["name"], found["argument"].strip(), options, "\n".join(lines).strip("\n"))


def read(name: str) -> Deck:
    """A deck; Broken, with file and slide, if it is not written as decks are."""
    return parse(name, chapters.words(SOURCES / f"{name}.md"))


def parse(name: str, source: str) -> Deck:
    """A deck from its text."""
    parts = re.fullmatch(r"---\n(.*?)\n---\n(.*)", source, re.S)
    try:
        about = yaml.safe_load(parts[1]) if parts else None
        header = {key: about[key] for key in ("title", "subtitle", "minutes", "chapters")} if about else {}
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise chapters.Broken(f"{name}.md: its settings lack something ({' '.join(str(error).split())})") from error
    if parts is None or about is None or not header:
        raise chapters.Broken(f"{name}.md: it must begin with its settings, between lines of ---")
    reasons = about.get("reasons") or {}
    if not set(reasons) <= set(prose.REASONS):
        raise chapters.Broken(f"{name}.md: reasons are among {', '.join(prose.REASONS)}, got {sorted(reasons)}")
    for chapter in header["chapters"]:
        page_of(chapter)
    pieces = re.split(r"^# (.+)$", _shielded(parts[2]), flags=re.M)
    if pieces[0].strip():
        raise chapters.Broken(f"{name}.md: text stands before the first slide")
    slides = tuple(
        _slide(name, title.strip(), text.replace("\0", "#"))
        for title, text in zip(pieces[1::2], pieces[2::2], strict=True)
    )
    return Deck(name, **header | {"chapters": tuple(header["chapters"])}, reasons=reasons, slides=slides)


def _shielded(text: str) -> str:
    """Text in which a # that begins a line within a fence begins no slide."""
    return re.sub(r"^(`{3,}).*?^\1[ ]*$", lambda m: re.sub(r"^#", "\0", m[0], flags=re.M), text, flags=re.S | re.M)


def _slide(deck: str, title: str, text: str) -> Slide:
    lines, options = text.strip("\n").splitlines(), dict[str, str]()
    while lines and (option := re.match(r":(\w+):[ ]*(.*)$", lines[0])):
        options[option[1]] = option[2].strip()
        lines.pop(0)
    where = f"{deck}.md, {title!r}"
    if unknown := set(options) - {"minutes", "kind", "notes"}:
        raise chapters.Broken(f"{where}: an option {sorted(unknown)[0]!r} is not known")
    if not re.fullmatch(r"\d+(\.5)?", options.get("minutes", "")):
        raise chapters.Broken(f"{where}: minutes must be a number such as 3 or 2.5, got {options.get('minutes')!r}")
    if (kind := options.get("kind", "claim")) not in KINDS:
        raise chapters.Broken(f"{where}: kind must be one of {', '.join(KINDS)}, got {kind!r}")
    slide = Slide(title, kind, float(options["minutes"]), options.get("notes", ""), "\n".join(lines).strip())
    if strange := [one.name for one in slide.blocks() if one.name not in DIRECTIVES]:
        raise chapters.Broken(f"{where}: there is no directive {{{strange[0]}}}")
    return slide


@cache
def _sections(page: str) -> dict[str, str]:
    """The teaching notes of a chapter, by heading; Broken if there are none."""
    path = NOTES / f"{Path(page).name}.md"
    parts = re.split(r"^## (.+)$", chapters.words(path), flags=re.M)
    return {head.strip(): text.strip() for head, text in zip(parts[1::2], parts[2::2], strict=True)}


def note(where: str) -> str:
    """The teaching note of a section, `room/chapter#heading`; Broken, by name, if there is none."""
    name, _, heading = where.partition("#")
    page = page_of(name)
    if heading not in (sections := _sections(page)):
        available = "; ".join(sections)
        raise chapters.Broken(f"notes/{Path(page).name}.md: no section {heading!r}; it has: {available}")
    return sections[heading]


def code(page: str, begins: str, lines: int) -> str:
    """So many lines of a chapter's cells, from the one line that begins so; Broken if there is not just one."""
    cells = [cell.splitlines() for cell in chapters.code_cells(chapters.source(page))]
    places = [(cell, at) for cell in cells for at, line in enumerate(cell) if line.strip().startswith(begins)]
    if len(places) != 1:
        raise chapters.Broken(f"{page}: {len(places) or 'no'} line of its cells begins {begins!r}")
    cell, at = places[0]
    if at + lines > len(cell):
        raise chapters.Broken(f"{page}: after {begins!r} its cell has {len(cell) - at} lines, not {lines}")
    chosen = cell[at : at + lines]
    margin = min(len(line) - len(line.lstrip()) for line in chosen if line.strip())
    return "\n".join(line[margin:] for line in chosen)


def exercise(page: str, label: str) -> str:
    """The title of a chapter's exercise; Broken if it has none of this label."""
    match = re.search(
        rf"^[`:]{{3,}}\{{exercise(?:-start)?\}} *([^\n]*)\n(?::[^\n]*\n)*?:label: *{re.escape(label)}$",
        chapters.source(page),
        re.M,
    )
    if match is None:
        raise chapters.Broken(f"{page}: it has no exercise {label!r}")
    return match[1].strip()


def faults(deck: Deck, executed: dict[str, nbformat.NotebookNode] | None = None, *, notes: bool = True) -> list[str]:
    """Problems of a deck, in sentences.

    Args:
        deck: the deck.
        executed: runs by chapter; None to leave figures and numbers unlooked at, where no chapter was run.
        notes: whether each slide's teaching note has to be there.
    """
    wrong = []
    if (total := sum(slide.minutes for slide in deck.slides)) != deck.minutes:
        wrong.append(f"its slides take {total:g} minutes, the lecture {deck.minutes:g}")
    figures = [one.options.get("which", "") for s in deck.slides for one in s.blocks("figure-of")]
    wrong += [f"figure {one!r} stands twice" for one in sorted({f for f in figures if figures.count(f) > 1})]
    for slide in deck.slides:
        for fault in _slide_faults(slide, executed, notes=notes):
            wrong.append(f"{slide.title!r}: {fault}")
    return [f"{deck.name}.md: {fault}" for fault in wrong + _unproved(deck)]


def _slide_faults(slide: Slide, executed: dict[str, nbformat.NotebookNode] | None, *, notes: bool) -> list[str]:
    wrong = []

    def attempt(check: Any, *arguments: Any) -> Any:
        try:
            return check(*arguments)
        except chapters.Broken as fault:
            wrong.append(str(fault))

    def run(page: str) -> nbformat.NotebookNode:
        return executed[page] if executed and page in executed else transclude.run_of(page)

    if not slide.speaker_notes():
        wrong.append("nothing is said: {say} is missing")
    for one in slide.blocks():
        if one.name == "figure-of" and (page := attempt(page_of, one.argument)) and executed is not None:
            attempt(lambda page=page, one=one: transclude.figure(page, one.options.get("which", ""), run(page)))
        elif one.name == "code-of" and (page := attempt(page_of, one.argument)):
            attempt(code, page, one.options.get("from", ""), int(one.options.get("lines", "1")))
        elif one.name == "exercise-of" and (page := attempt(page_of, one.argument)):
            attempt(exercise, page, one.options.get("label", ""))
    for role in transclude._ROLE.finditer(slide.title + "\n" + slide.text):
        if (proved := attempt(proof, role["name"], role["body"])) and executed is not None:
            attempt(lambda proved=proved: transclude.sentence(proved, run(transclude.page_of(proved))))
    if executed is not None:
        attempt(runs.filled, slide.title + "\n" + slide.text)
    if slide.notes and notes:
        attempt(note, slide.notes)
    elif slide.notes:
        attempt(page_of, slide.notes.partition("#")[0])
    return wrong


def own_words(deck: Deck) -> str:
    """Own text of a deck, in one line: without transcluded words and code, and with only the decimals of formulas."""
    pieces = []
    for slide in deck.slides:
        text = _BLOCK.sub(lambda m: "" if m["name"] in ("figure-of", "code-of") else block(m).text, slide.text)
        pieces += [slide.title, re.sub(r"^\d+\. ", "", text, flags=re.M)]
    text = runs.GLUE.sub(" ", transclude._ROLE.sub(" ", "\n".join([deck.subtitle, *pieces])))
    text = _FORMULA.sub(lambda m: " ".join(_DECIMAL.findall(m[0])), text)
    return prose.flat(re.sub(r"\]\([^)]*\)|\{cite[\w:]*\}`[^`]*`", "", text))


def _unproved(deck: Deck) -> list[str]:
    """Numbers that are not borrowed, and have no reason."""
    text = own_words(deck)
    listed = [str(piece) for pieces in deck.reasons.values() for piece in pieces]
    wrong = [f"{piece!r} has a reason but is not in the text" for piece in listed if prose.flat(piece) not in text]
    numbers = list(transclude.NUMBER.finditer(text))
    return wrong + [
        f"no chapter says {number!r} in: …{around}…" for number, around in prose.uncovered(text, numbers, listed)
    ]


def lenders(deck: Deck) -> list[str]:
    """The chapters whose runs a deck shows or repeats, each once."""
    named = [page_of(one.argument) for slide in deck.slides for one in slide.blocks("figure-of")]
    for slide in deck.slides:
        text = slide.title + "\n" + slide.text
        named += [transclude.page_of(proof(role["name"], role["body"])) for role in transclude._ROLE.finditer(text)]
        named += runs.glued_pages(text)
    return list(dict.fromkeys(named))


def runs_of(deck: Deck) -> dict[str, nbformat.NotebookNode]:
    """The runs that a deck borrows from; Broken if a chapter was not run as it is now."""
    return {page: transclude.run_of(page) for page in lenders(deck)}


def fresh(deck: Deck) -> bool:
    """True if the runs of the chapters that a deck transcludes are current."""
    return all(runs.cached(page) is not None for page in lenders(deck))
