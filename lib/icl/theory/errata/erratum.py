"""One entry of a paper's lists: an erratum, or a statement that does not hold."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Erratum:
    """An erratum: the equation as printed and as meant.

    Attributes:
        kind: 'misprint'; 'clash' for one letter or word with two meanings, each right in its place; or 'error' for a
            formula that is derived wrongly.
        where: the place in the paper, Markdown.
        printed: what stands there, LaTeX.
        corrected: what should, LaTeX.
    """

    kind: Literal["misprint", "clash", "error"]
    where: str
    printed: str
    corrected: str


@dataclass(frozen=True)
class Statement:
    """A statement of a paper that does not hold, whatever its letters.

    Attributes:
        where: the place in the paper, Markdown.
        says: the statement, Markdown.
        holds: what holds in its place, Markdown.
        claim: the row of the ledger that judges it; None if no row does.
    """

    where: str
    says: str
    holds: str
    claim: str | None = None
