"""Self-checks for the book's exercises: a stub fails them, a solution passes, and neither stops the notebook."""

import html
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

#: How a self-check is shown in a notebook's output so that the book's tests can collect it.
EXERCISE_MIME = "application/vnd.icl.exercise+json"


@dataclass(frozen=True)
class SelfCheck:
    """The outcome of one attempt."""

    name: str
    passed: bool
    message: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        sign = "✓" if self.passed else "✗"
        return {
            "text/plain": f"{sign} {self.name}: {self.message}",
            "text/html": (
                f"<p class='icl-selfcheck' data-passed='{str(self.passed).lower()}'>"
                f"<b>{sign} {html.escape(self.name)}</b> {html.escape(self.message)}</p>"
            ),
            EXERCISE_MIME: asdict(self),
        }


def check(
    attempt: Callable[..., Any],
    reference: Callable[..., Any],
    cases: Sequence[dict[str, Any]],
    *,
    rtol: float = 1e-6,
    name: str | None = None,
) -> SelfCheck:
    """Compare a reader's function with a reference on each case (a dict of keyword arguments).

    An attempt that raises, returns nothing or returns other numbers is not an error here: it is an exercise not yet
    solved, and the message says on which case and how.

    Raises:
        ValueError: if there are no cases.
    """
    if not cases:
        raise ValueError("cases must hold at least one dict of keyword arguments")
    name = name or attempt.__name__
    for case in cases:
        shown = ", ".join(f"{k}={v!r}" for k, v in case.items() if np.ndim(v) == 0)
        expected = np.asarray(reference(**case), dtype=np.float64)
        try:
            got = attempt(**case)
            actual = np.asarray(got, dtype=np.float64)
        except Exception as error:
            return SelfCheck(name, False, f"not yet: with {shown} it raised {type(error).__name__}: {error}")
        if got is None or actual.shape != expected.shape:
            what = "nothing" if got is None else f"shape {actual.shape}"
            wanted = f"shape {expected.shape}" if expected.shape else "a number"
            return SelfCheck(name, False, f"not yet: with {shown} it returned {what}, {wanted} is wanted")
        if not np.allclose(actual, expected, rtol=rtol, atol=0):
            worst = np.abs(actual - expected).max()
            return SelfCheck(name, False, f"not yet: with {shown} it is off by {worst:.3g}")
    return SelfCheck(name, True, f"right on all {len(cases)} cases")
