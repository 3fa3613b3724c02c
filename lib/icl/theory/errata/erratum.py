"""One entry of a list of errata, of any of the papers."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Erratum:
    """What a paper prints and what is meant.

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
