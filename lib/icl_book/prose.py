"""Sentences of a page's text, checked against the computation.

    said(f"{lost} of {starts} small starts are lost", lost > 0)

The sentence must appear in the page's text verbatim, with its digits from the computation: the build compares the two.
A false condition fails the cell.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from icl._bounds import validated
from icl_book.claims import VerdictChanged

#: MIME type of a sentence in a notebook's output, hidden, for the build to look up in the page's text.
SAID_MIME = "application/vnd.icl.said+json"


@dataclass(frozen=True)
class Said:
    """Sentence required in the page's text."""

    words: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/html": "<!-- checked -->", "text/plain": f"checked: {self.words}", SAID_MIME: self.words}


@validated
def said(words: str, condition: bool | np.bool_ = True) -> None:
    """Assert that the page's text contains these words and that they are true.

    Args:
        words: part of a sentence of this page, with numbers formatted from computed values.
        condition: its truth, where digits alone are not enough.

    Raises:
        ValueError: if there are no words, or the condition is neither True nor False.
        VerdictChanged: if the condition does not hold.
    """
    if not words.strip():
        raise ValueError("words must not be empty")
    if not isinstance(condition, bool | np.bool_):
        raise ValueError(f"condition must be True or False, got {condition!r}")
    if not condition:
        raise VerdictChanged(f"the page says {words!r}, and it is not so")
    # Lazy import: the benchmark uses this package's charts without IPython.
    from IPython.display import display

    display(Said(words))  # type: ignore[no-untyped-call]
