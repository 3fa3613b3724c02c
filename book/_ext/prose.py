"""Whether the text of a page says what was computed.

A chapter's cells say sentences of its text again, with their own digits (`icl_book.said`): each must stand in the text,
or in the title of a figure. And each of the words always, never, all, none and every, each decimal and each percentage
of the text must be within such a sentence, or within a piece of it that `book/prose/<page>.yml` lists under the reason
why no cell says it; so must each of these words in the title of a figure, and there only, no, cannot, nothing and any
too. (Numbers of titles: `figures.py`.)
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

#: Why a word or a number needs no computation beside it.
REASONS = {
    "definition": "what a thing is, or how something is built or run here",
    "setting": "a number that was chosen",
    "algebra": "follows from the equations of the page, or a proof or test that it names",
    "source": "what a paper or another author says, told as theirs",
    "advice": "what a reader is asked or told to do",
}
_IDIOM = r"(?<!\bat )(?<!\babove )(?<!\bafter )(?<!\bof )"
_WORD = rf"{_IDIOM}\b(?:always|never|all|none|every)\b(?! the same\b)"
#: In a title, which has no room to say of what, these say as much.
_IN_TITLE = rf"{_WORD}|\b(?:only|no|cannot|nothing|any)\b"
_NUMBER = r"(?<![\w.,^])(?:\d*\.?\d+\s?%|\d*\.\d+(?![\w.]*\w))"
_WEIGHTY = re.compile(f"{_WORD}|{_NUMBER}", re.I)
#: Places in a paper, and what is not the text's own: code, roles, targets of links, formulas.
_NAMED = (
    "Sections?|Sec\\.|Theorem|Lemma|Figures?|Tables?|Appendix|App\\.|Remark|Definition|Equations?|Eq\\.|Propositions?"
)
_PLACE = rf"\(\d+\.\d+[a-z]?\)|\b(?:{_NAMED}|arXiv:?)\s\(?[A-Z]?\.?\d+\.\d+(?:(?: and |, | to )\(?\d+\.\d+\)?)*"
_ASIDE = re.compile(rf"\{{[\w:-]+\}}`[^`]*`|`[^`]*`|\]\([^)]*\)|\$[^$]+\$|{_PLACE}", re.S | re.I)


def text_of(source: str) -> str:
    """What a page says in words and formulas, in one line; its cells, options and displays gone."""
    return flat(_without_displays(source))


def paragraphs(source: str) -> list[str]:
    """The same, in one line for each paragraph, list or table."""
    return [flat(part) for part in re.split(r"\n\s*\n", _without_displays(source)) if part.strip()]


def _without_displays(source: str) -> str:
    text = re.sub(r"\A---\n.*?\n---\n", "", source, flags=re.S)
    text = re.sub(r"^`{3,}\{code-cell\}[^\n]*\n.*?^`{3,}", "", text, flags=re.S | re.M)
    text = re.sub(r"\$\$.*?\$\$|\\begin\{(equation\*?|align\*?)\}.*?\\end\{\1\}", "", text, flags=re.S)
    return re.sub(r"^[`:]{3,}(?:\{[\w:-]+\})?|^:[\w-]+:.*$|^%.*$", "", text, flags=re.M)


def weighty(text: str) -> list[re.Match[str]]:
    """The words and numbers that need a computation beside them, or a reason."""
    return list(_WEIGHTY.finditer(_ASIDE.sub(lambda m: " " * len(m.group()), text)))


def spans(text: str, pieces: list[str]) -> list[tuple[int, int]]:
    """Where in a page's text these pieces of it stand."""
    return [(m.start(), m.end()) for p in pieces for m in re.finditer(re.escape(flat(p)), text)]


def flat(words: str) -> str:
    """Words as `text_of` has them: in one line, and not emphasised."""
    return " ".join(words.replace("*", "").split())


def reasons_at(page: str) -> Path:
    """The file with a page's reasons; a page without one is not yet read this way."""
    return chapters.ROOT / "book/prose" / f"{Path(page).name}.yml"


def reasons(page: str) -> dict[str, list[str]]:
    """Pieces of a page's text that no cell says, by reason; Broken if the file is not that."""
    path = reasons_at(page)
    name = path.relative_to(chapters.ROOT).as_posix()
    try:
        listed = chapters.loaded(chapters.words(path)) or {}
    except yaml.YAMLError as error:
        raise chapters.Broken(f"{name}: {' '.join(str(error).split())}") from error
    if not isinstance(listed, dict) or not set(listed) <= set(REASONS):
        raise chapters.Broken(f"{name}: its keys are among {', '.join(REASONS)}")
    for pieces in listed.values():
        if not isinstance(pieces, list) or not all(isinstance(piece, str) and piece.strip() for piece in pieces):
            raise chapters.Broken(f"{name}: under each reason stands a list of pieces of text")
    return listed


def faults(
    page: str, source: str, said: list[str], why: dict[str, list[str]] | None, titles: Sequence[str] = ()
) -> list[str]:
    """What is wrong with a page's text, in sentences; `why` is None for a page that is not yet read this way.

    `titles` are those of the figures that its run drew.
    """
    text = text_of(source)
    texts = "\n".join([text, *titles])
    wrong = [f"a cell says {words!r}, the text does not" for words in said if flat(words) not in texts]
    if why is None:
        return wrong
    listed = [piece for pieces in why.values() for piece in pieces]
    wrong += [f"{piece!r} has a reason but is not in the text" for piece in listed if flat(piece) not in texts]
    covered = spans(text, [*said, *listed])
    for found in weighty(text):
        if not any(start <= found.start() and found.end() <= end for start, end in covered):
            around = text[max(0, found.start() - 40) : found.end() + 40]
            wrong.append(f"no cell says {found.group()!r} in: …{around}…")
    for title in dict.fromkeys(titles):
        covered = spans(title, [*said, *listed])
        for found in re.finditer(_IN_TITLE, title, re.I):
            if not any(start <= found.start() and found.end() <= end for start, end in covered):
                wrong.append(f"no cell says {found.group()!r} in the title of a figure: {title!r}")
    return wrong


def examine(pages: list[str], executed: dict[str, nbformat.NotebookNode]) -> None:
    """Broken, with all that is wrong, if the text of a chapter that was run says what no cell of it found."""
    found: list[Any] = []
    for page in pages:
        if page in executed:
            why = reasons(page) if reasons_at(page).exists() else None
            said = runs.outputs(executed[page], runs.SAID)
            titles = [flat(runs.heading(json.loads(chart))) for chart in runs.charts(executed[page])]
            asked = json.dumps([page, chapters.source(page), said, why, titles])
            found += [f"{page}.md: {fault}" for fault in _faults(asked)]
    if found:
        raise chapters.Broken("\n".join(found))


def _faults(asked: str) -> list[str]:
    return faults(*json.loads(asked))
