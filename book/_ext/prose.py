"""Lint of the numbers in a chapter's text: each decimal and each percentage is computed, quoted, or has a reason.

A chapter's cells repeat sentences of its text with their own digits (`icl_book.prose.said`): each must stand in the
text, or in the title of a figure. A decimal or a percentage of the text is within such a sentence, within quotation
marks, or within a piece of text that `book/prose/<page>.yml` lists under the reason why no cell says it.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chapters
import nbformat
import runs
import yaml

#: Why a number needs no computation beside it.
REASONS = {
    "definition": "what a thing is, or how something is built or run here",
    "setting": "a number that was chosen",
    "algebra": "follows from the equations of the page, or a proof or test that it names",
    "source": "what a paper or another author says, told as theirs",
    "advice": "what a reader is asked or told to do",
}
_NUMBER = re.compile(r"(?<![\w.,^])(?:\d*\.?\d+\s?%|\d*\.\d+(?![\w.]*\w))")
_NAMED = (
    "Sections?|Sec\\.|Theorem|Lemma|Figures?|Tables?|Appendix|App\\.|Remark|Definition|Equations?|Eq\\.|Propositions?"
)
#: Places in a paper, and what is not the text's own: quotations, code, roles, targets of links, formulas.
_PLACE = rf"\(\d+\.\d+[a-z]?\)|\b(?:{_NAMED}|arXiv:?)\s\(?[A-Z]?\.?\d+\.\d+(?:(?: and |, | to )\(?\d+\.\d+\)?)*"
_QUOTED = r"“[^”]*”|(?<![^\s(])\"(?=\S)[^\"]*(?<=\S)\"(?!\w)"
_ASIDE = re.compile(rf"\{{[\w:-]+\}}`[^`]*`|`[^`]*`|\]\([^)]*\)|\$[^$]+\$|{_PLACE}|{_QUOTED}", re.S | re.I)


def text_of(source: str) -> str:
    """A page's words and formulas in one line, without its cells, options and displays."""
    return flat(_without_displays(source))


def paragraphs(source: str) -> list[str]:
    """The same, in one line for every paragraph, list or table."""
    return [flat(part) for part in re.split(r"\n\s*\n", _without_displays(source)) if part.strip()]


def _without_displays(source: str) -> str:
    text = re.sub(r"\A---\n.*?\n---\n", "", source, flags=re.S)
    text = re.sub(r"^`{3,}\{code-cell\}[^\n]*\n.*?^`{3,}", "", text, flags=re.S | re.M)
    text = re.sub(r"\$\$.*?\$\$|\\begin\{(equation\*?|align\*?)\}.*?\\end\{\1\}", "", text, flags=re.S)
    return re.sub(r"^[`:]{3,}(?:\{[\w:-]+\})?|^:[\w-]+:.*$|^%.*$", "", text, flags=re.M)


def without_asides(text: str) -> str:
    """A text of the same length with blanks for formulas, code, roles, quotations and places in a paper."""
    return _ASIDE.sub(lambda m: " " * len(m.group()), text)


def numbers(text: str) -> list[re.Match[str]]:
    """The decimals and percentages that need a computation or a reason."""
    return list(_NUMBER.finditer(without_asides(text)))


def uncovered(text: str, found: list[re.Match[str]], pieces: list[str]) -> list[tuple[str, str]]:
    """The matches that lie in none of these pieces of a text, each with the text around it."""
    covered = [m.span() for piece in pieces for m in re.finditer(re.escape(flat(piece)), text)]
    return [
        (match.group(), text[max(0, match.start() - 40) : match.end() + 40])
        for match in found
        if not any(start <= match.start() and match.end() <= end for start, end in covered)
    ]


def flat(words: str) -> str:
    """Words in one line, without emphasis."""
    return " ".join(words.replace("*", "").split())


def reasons(page: str) -> list[str]:
    """Pieces of a page's text that no cell says; Broken if the file is not a list of pieces by reason."""
    path = chapters.ROOT / "book/prose" / f"{Path(page).name}.yml"
    name = path.relative_to(chapters.ROOT).as_posix()
    if not path.exists():
        return []
    try:
        listed = chapters.loaded(chapters.words(path))
    except yaml.YAMLError as error:
        raise chapters.Broken(f"{name}: {' '.join(str(error).split())}") from error
    if not isinstance(listed, dict) or not set(listed) <= set(REASONS):
        raise chapters.Broken(f"{name}: its keys are among {', '.join(REASONS)}")
    for pieces in listed.values():
        if not isinstance(pieces, list) or not all(isinstance(piece, str) and piece.strip() for piece in pieces):
            raise chapters.Broken(f"{name}: under each reason stands a list of pieces of text")
    return [piece for pieces in listed.values() for piece in pieces]


def faults(source: str, sayings: list[str], listed: list[str], titles: Sequence[str] = ()) -> list[str]:
    """Numbers of a page's text that nothing covers, and covers that are not in the text, in sentences.

    `listed` are the pieces that have a reason, `titles` those of the figures that the page's run drew.
    """
    text = text_of(source)
    texts = "\n".join([text, *titles])
    wrong = [f"a cell says {words!r}, the text does not" for words in sayings if flat(words) not in texts]
    wrong += [f"{piece!r} has a reason but is not in the text" for piece in listed if flat(piece) not in text]
    wrong += [
        f"no cell says {number!r} in: …{around}…"
        for number, around in uncovered(text, numbers(text), [*sayings, *listed])
    ]
    return wrong


def examine(pages: list[str], executed: dict[str, nbformat.NotebookNode]) -> None:
    """Broken, with all that is wrong, if a number of an executed chapter's text is not what its cells computed."""
    problems: list[Any] = []
    for page in pages:
        if page in executed:
            sayings = runs.outputs(executed[page], runs.SAID)
            titles = [flat(runs.heading(json.loads(chart))) for chart in runs.charts(executed[page])]
            wrong = faults(chapters.source(page), sayings, reasons(page), titles)
            named = [m["name"] for m in runs.GLUE.finditer(chapters.source(page)) if not m["page"]]
            wrong += [f"no cell glues {name!r}" for name in named if name not in runs.values(executed[page])]
            problems += [f"{page}.md: {fault}" for fault in wrong]
    if problems:
        raise chapters.Broken("\n".join(problems))
