"""Numbers of chapters and of exercises, from the sources alone: the site, the notebooks and the course share them.

A chapter is a page under a part that `_toc.yml` marks as `numbered`, counted through the parts; its exercises are
counted in their order. Sphinx counts in the same way (`numfig`, `use_multitoc_numbering`).
"""

import re
from functools import cache

import chapters

_EXERCISE = re.compile(r"^[`:]{3,}\{exercise(?:-start)?\}[^\n]*\n(?::[^\n]*\n)*?:label: *(\S+)", re.M)


def chapter(page: str) -> int | None:
    """The number of a chapter; None for a page that has none."""
    return _chapters(chapters.words(chapters.ROOT / "_toc.yml")).get(page)


@cache
def _chapters(toc: str) -> dict[str, int]:
    """The number of every numbered page of a table of contents."""
    parts = [part for part in chapters.loaded(toc).get("parts", ()) if part.get("numbered")]
    return {entry["file"]: n for n, entry in enumerate((e for part in parts for e in part["chapters"]), 1)}


def number(page: str, count: int) -> str:
    """The number of the figure or exercise that is the count-th of a page: "5.2", or "2" where the page has none."""
    place = chapter(page)
    return str(count) if place is None else f"{place}.{count}"


def exercises(page: str) -> dict[str, str]:
    """The number of each exercise of a page, by label, in their order."""
    labels = _EXERCISE.findall(chapters.source(page))
    return {label: number(page, count) for count, label in enumerate(labels, 1)}
