"""Values of a page's text, inserted from its computation, and sentences checked against it.

    glue(turn=13, late=0.966)

The text inserts them, {glue:text}`turn` examples and {glue:text}`late:.0%`, and so do the notebook that the page
offers, slides, and other pages, {glue:text}`adaptation/why-stationarity-fails::turn`.

    said(f"{lost} of {starts} small starts are lost", lost > 0)

The sentence must appear in the page's text verbatim, with its digits from the computation: the build compares the two.
A false condition fails the cell.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from icl_book.claims import VerdictChanged

#: MIME type of a sentence in a notebook's output, hidden, for the build to look up in the page's text.
SAID_MIME = "application/vnd.icl.said+json"
#: MIME type under which MyST-NB and Papermill keep a named value, out of sight.
GLUE_MIME = "application/papermill.record/text/plain"


def glue(**values: Any) -> None:
    """Name values for the page's text.

    Args:
        values: finite numbers or texts, by name.

    Raises:
        ValueError: if a value is neither, or not finite.
    """
    # Lazy import: the benchmark uses this package's charts without IPython.
    from IPython.display import display

    for name, value in values.items():
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(f"{name} must be a number or a text, got {value!r}")
        if isinstance(value, float) and not np.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value!r}")
        scrapbook = {"name": name, "mime_prefix": "application/papermill.record/"}
        display({GLUE_MIME: repr(value)}, raw=True, metadata={"scrapbook": scrapbook})  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Said:
    """Sentence required in the page's text."""

    words: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/html": "<!-- checked -->", "text/plain": f"checked: {self.words}", SAID_MIME: self.words}


def said(words: str, condition: bool | np.bool_ = True) -> None:
    """Assert that the page's text contains these words and that they are true.

    Args:
        words: part of a sentence of this page, with numbers formatted from computed values.
        condition: its truth, where digits alone are not enough.

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
    # Lazy import: the benchmark uses this package's charts without IPython.
    from IPython.display import display

    display(Said(words))  # type: ignore[no-untyped-call]
