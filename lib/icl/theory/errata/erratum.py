"""One entry of a paper's list of errata."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Erratum:
    """An erratum: the equation as printed and as meant.

    Attributes:
        kind: 'misprint', or 'clash' for one letter with two meanings, each right in its place.
        where: the place in the paper, Markdown.
        printed: what stands there, LaTeX.
        corrected: what should, LaTeX.
    """

    kind: Literal["misprint", "clash"]
    where: str
    printed: str
    corrected: str
