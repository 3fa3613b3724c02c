"""What the text of a page says, beside the computation that says it.

    said(f"{lost} of {starts} small starts are lost", lost > 0)

The sentence stands in the page's text, letter for letter, and its digits are the computation's: the build compares the
two. A condition that does not hold stops the cell.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from icl_book.claims import VerdictChanged

#: How a sentence is kept in a notebook's output, unseen, so that the build can look for it in the page's text.
SAID_MIME = "application/vnd.icl.said+json"


@dataclass(frozen=True)
class Said:
    """Words that must stand in the page's text."""

    words: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/html": "<!-- checked -->", "text/plain": f"checked: {self.words}", SAID_MIME: self.words}


def said(words: str, condition: bool | np.bool_ = True) -> None:
    """Claim that the page's text holds these words, and that they are true.

    Args:
        words: a piece of a sentence of this page, its numbers formatted from what was computed.
        condition: what makes it true, where digits alone do not.

    Raises:
        ValueError: if there are no words, or the condition is neither True nor False.
        VerdictChanged: if the condition does not hold.
    """
    if not isinstance(words, str):
        raise ValueError(f"words must be a text, got {words!r}")
    if not words.strip():
        raise ValueError("words must not be empty")
    if not isinstance(condition, bool | np.bool_):
        raise ValueError(f"condition must be True or False, got {condition!r}")
    if not condition:
        raise VerdictChanged(f"the page says {words!r}, and it is not so")
    # Not above: the benchmark draws with the charts of this room where no IPython is installed.
    from IPython.display import display

    display(Said(words))  # type: ignore[no-untyped-call]
