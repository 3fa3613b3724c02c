"""Teaching notes: one file a chapter, its headings the chapter's, its numbers the chapter's own words."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import chapters
import prose
import pytest
import transclude

NOTES = chapters.ROOT / "book/course/notes"
PARTS = ("book/adaptation/", "book/memory/", "book/selection/", "book/synthesis/")
CHAPTERS = [page for page in chapters.pages() if page.startswith(PARTS)]
#: What a paragraph of a section is for.
KINDS = ("Goal", "On the board", "Misconception", "Ask", "Skip")
WHOLE = ["In one breath", "Before", "Time"]
EXERCISES = ["Which", "Wrong answers", "Open"]
_KIND = re.compile(r"\*\*([^*]+)\.\*\* \S")
#: Names of figures, exercises and chapters, and what is stressed; no formula, no kind of a paragraph.
_ITALIC = re.compile(r"(?<!\*)\*([^*\n]+)\*(?!\*)")
_FORMULA = re.compile(r"\$[^$]+\$")
_ROLE = re.compile(r"\{(said|measured)\}`([^`]*)`")
_DECIMAL = re.compile(r"\d*\.\d+")


@dataclass(frozen=True)
class Chapter:
    """What notes are held to: a chapter's headings, what it says, its source, and the titles of its exercises."""

    page: str
    headings: list[str]
    text: str
    source: str
    exercises: list[str]


@cache
def chapter(page):
    source = chapters.source(page)
    outside = re.sub(r"^(`{3,})\{code-cell\}.*?^\1[ ]*$", "", source, flags=re.S | re.M)
    headings = re.findall(r"^## (.+?) *$", outside, re.M)
    exercises = re.findall(r"^`{3,}\{exercise(?:-start)?\} *([^\n]*\S) *$", source, re.M)
    return Chapter(page, headings, prose.text_of(source), prose.flat(source), exercises)


@cache
def titles():
    """Titles of the chapters, as notes may shorten them to their first words."""
    return [chapters.title(page) for page in CHAPTERS]


def kinds(section):
    """What each paragraph of a section is for; a question mark for one that does not say."""
    paragraphs = [text for text in section.strip().split("\n\n") if text.strip()]
    return [match[1] if (match := _KIND.match(text)) else "?" for text in paragraphs]


def faults(notes, about):
    """What is wrong with a chapter's notes, in sentences."""
    whole, *rest = re.split(r"^## (.+)$", notes, flags=re.M)
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    wrong = [f"before the first heading stand {', '.join(WHOLE)}"] if kinds(whole) != WHOLE else []
    wrong += _shape(list(rest[::2]), sections, about)
    names = [name for name in about.exercises if f"*{name}*" not in sections.get("Exercises", "")]
    wrong += [f"no word on the exercise {name!r}" for name in names]
    wrong += [f"the chapter does not say {words!r}" for words in _not_said(notes, about)]
    body = re.sub(r"^## .+$", "", notes, flags=re.M)
    wrong += [f"{name!r} is no figure, exercise or chapter" for name in _unknown(body, about)]
    text = prose.text_of(_ITALIC.sub(lambda name: " " if _named(name[1], about) else name[1], body))
    wrong += [f"{found.group()!r} is not in the chapter's words" for found in prose.numbers(text)]
    settings = {number for formula in _FORMULA.findall(body) for number in _DECIMAL.findall(formula)}
    wrong += [f"the setting {number} is not the chapter's" for number in sorted(settings) if number not in about.source]
    return wrong


def _shape(headings, sections, about):
    """Whether the sections are the chapter's, in its order, each with paragraphs that say what they are for."""
    wrong = [f"the chapter has no heading {name!r}" for name in headings if about.headings.count(name) != 1]
    if headings != sorted(set(headings), key=lambda name: (about.headings + headings).index(name)):
        wrong.append("the headings are not in the chapter's order, each once")
    for name, body in sections.items():
        found, allowed = kinds(body), EXERCISES if name == "Exercises" else KINDS
        wrong += [f"{name}: a paragraph is {kind!r}" for kind in found if kind not in allowed]
    if "Exercises" in sections and kinds(sections["Exercises"]) != EXERCISES:
        wrong.append(f"of the exercises the notes say {', '.join(EXERCISES)}")
    return wrong


def _not_said(notes, about):
    """Borrowed words that the chapter's text, which its cells say, does not have."""
    for role, body in _ROLE.findall(notes):
        found = transclude.proof(role, body)
        if transclude.page_of(found) != about.page or role != "said" or prose.flat(found.words) not in about.text:
            yield found.words


def _named(name, about):
    """Whether these words are a name in the chapter, or the title of a chapter or its beginning."""
    words = prose.flat(name)
    starts = any(re.match(rf"{re.escape(words)}\b", title) for title in titles())
    return starts or words in about.source or words[:1].lower() + words[1:] in about.source


def _unknown(body, about):
    """Italics of four words and more that name nothing; shorter ones may stress."""
    spans = _ITALIC.findall(_FORMULA.sub("", body))
    return [name for name in spans if len(name.split()) >= 4 and not _named(name, about)]


@pytest.mark.parametrize("page", CHAPTERS)
def test_notes_keep_to_their_chapter(page):
    """Headings and names that the chapter has, paragraphs that say what they are for, no number of their own."""
    assert faults(chapters.words(NOTES / f"{Path(page).name}.md"), chapter(page)) == []


def test_each_chapter_has_notes():
    """One file for each chapter of Parts I to IV, and none besides."""
    assert {path.stem for path in NOTES.iterdir()} == {Path(page).name for page in CHAPTERS}


GOOD = """**In one breath.** A gate fades.

**Before.** Sums.

**Time.** A half for each.

## What fades?

**Goal.** Says what fades.

**On the board.** Write $0.95$, then *A gate that shuts hides what was written*.

**Misconception.** "A gate deletes." It {said}`keeps 57 of 60 <adaptation/depth>`.

**Ask.** "When?"

**Skip.** The rest.

## What stays?

**Goal.** Says what stays.

**Ask.** "Why?"

## What moves?

**Goal.** Says what moves.

**Skip.** The proof.

## Exercises

**Which.** *The gate, closed* for the class.

**Wrong answers.** One too many.

**Open.** Nothing is.
"""
ABOUT = Chapter(
    "book/adaptation/depth",
    ["What fades?", "What stays?", "What moves?", "In short", "Exercises"],
    "It keeps 57 of 60, and stays.",
    "title='A gate that shuts hides what was written before' gamma = 0.95",
    ["The gate, closed"],
)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("## What stays?", "## What stays", "the chapter has no heading 'What stays'"),
        ("## What stays?", "## In short", "not in the chapter's order"),
        ("## What moves?", "## What stays?", "not in the chapter's order"),
        ("**Time.** A half for each.\n\n", "", "before the first heading stand"),
        ('**Ask.** "Why?"', '**Asks.** "Why?"', "What stays?: a paragraph is 'Asks'"),
        ('**Ask.** "Why?"', "And so on.", "What stays?: a paragraph is '?'"),
        ("**Open.** Nothing is.", "**Skip.** Nothing.", "Exercises: a paragraph is 'Skip'"),
        ("*The gate, closed*", "One", "no word on the exercise 'The gate, closed'"),
        ("57 of 60", "58 of 60", "the chapter does not say 'keeps 58 of 60'"),
        ("{said}`keeps 57 of 60 <adaptation/depth>`", "keeps 95%", "'95%' is not in the chapter's words"),
        ("<adaptation/depth>", "<adaptation/gradient-flow>", "the chapter does not say"),
        ("$0.95$", "$0.96$", "the setting 0.96 is not the chapter's"),
        ("that shuts hides", "that opens shows", "'A gate that opens shows what was written' is no figure"),
    ],
)
def test_a_fault_is_named(old, new, fault):
    """Each thing that may go wrong is reported, and good notes have no fault."""
    assert faults(GOOD, ABOUT) == []
    assert old in GOOD
    found = faults(GOOD.replace(old, new, 1), ABOUT)
    assert any(fault in one for one in found), found
