"""Self-checks for the book's exercises: a stub fails them, a solution passes, and neither stops the notebook.

What an attempt is compared with is not in plain sight: the numbers of a right answer lie sealed in `book/answers`, and
the code that made them stands in the exercise's solution, which opens when it is asked for.
"""

import copy
import html
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icl import _files
from icl.page.claims import _REPOSITORY, folder

#: How a self-check is shown in a notebook's output so that the book's tests can collect it.
EXERCISE_MIME = "application/vnd.icl.exercise+json"
#: Of the largest number among the answers: what differs by less from a 0 is rounding.
_ROUNDING = 1e-10


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
    answer: str | Callable[..., Any],
    cases: Sequence[dict[str, Any]],
    *,
    rtol: float = 1e-6,
    atol: float | None = None,
    name: str | None = None,
) -> SelfCheck:
    """Compare a reader's function with the right answer on each case (a dict of keyword arguments).

    An attempt that raises, returns nothing or returns other numbers is not an error here: it is an exercise not yet
    solved, and the message says on which case and how.

    Args:
        attempt: the reader's function.
        answer: the label under which `seal` keeps the right numbers, or a function that gives them.
        cases: arguments to try.
        rtol: how far from a right number an attempt may be, as a part of it.
        atol: how far besides; by default rounding, 1e-10 of the largest right number of all cases.
        name: what to call the attempt; the function's own name by default.

    Raises:
        ValueError: if there are no cases, or not as many as there are sealed answers.
    """
    if not cases:
        raise ValueError("cases must hold at least one dict of keyword arguments")
    name = name or attempt.__name__
    try:
        expected = _opened(answer, len(cases)) if isinstance(answer, str) else _answers(answer, cases)
    except ValueError:
        if not (isinstance(answer, str) and _sealing()):
            raise
        return SelfCheck(name, False, "not yet: its answers are sealed further down")
    if atol is None:
        atol = _ROUNDING * max(float(np.abs(right[np.isfinite(right)]).max(initial=0)) for right in expected)
    for number, (case, right) in enumerate(zip(cases, expected, strict=True), 1):
        told = f"not yet: {_told(case, number, len(cases))} it"
        try:
            got = attempt(**copy.deepcopy(case))  # what it does to its arguments stays with it
            actual = np.asarray(got, dtype=np.float64)
        except Exception as error:
            return SelfCheck(name, False, f"{told} raised {type(error).__name__}: {error}")
        if got is None or actual.shape != right.shape:
            what = "nothing" if got is None else f"shape {actual.shape}" if actual.shape else "a number"
            wanted = f"shape {right.shape}" if right.shape else "a number"
            return SelfCheck(name, False, f"{told} returned {what}, {wanted} is wanted")
        if not np.allclose(actual, right, rtol=rtol, atol=atol):
            return SelfCheck(name, False, f"{told} is {_off(actual, right)}")
    return SelfCheck(name, True, f"right on all {len(cases)} cases")


def seal(label: str, reference: Callable[..., Any], cases: Sequence[dict[str, Any]]) -> None:
    """Hold the answers sealed under an exercise's label against the function that made them.

    With the environment variable `ICL_SEAL` they are written anew (`tools/seal.py` does it for a chapter).

    Raises:
        ValueError: if there are no cases, or the sealed numbers are not the function's.
    """
    if not cases:
        raise ValueError("cases must hold at least one dict of keyword arguments")
    answers = _answers(reference, cases)
    if _sealing():
        _sealed(label).parent.mkdir(exist_ok=True)
        _files.write(_sealed(label), (json.dumps([answer.tolist() for answer in answers]) + "\n").encode())
    for sealed, answer in zip(_opened(label, len(cases)), answers, strict=True):
        if sealed.shape != answer.shape or not np.allclose(sealed, answer, rtol=1e-7, atol=1e-12, equal_nan=True):
            raise ValueError(f"{label!r} is sealed with other answers: tools/seal.py writes them anew")


def _sealing() -> bool:
    return bool(os.environ.get("ICL_SEAL"))


def _sealed(label: str) -> Path:
    """Where the repository keeps the answers of a label."""
    return _REPOSITORY / "book" / "answers" / f"{label}.json"


def _answers(reference: Callable[..., Any], cases: Sequence[dict[str, Any]]) -> list[NDArray[np.float64]]:
    return [np.asarray(reference(**case), dtype=np.float64) for case in cases]


def _opened(label: str, cases: int) -> list[NDArray[np.float64]]:
    path = folder("answers") / f"{label}.json"
    if not path.is_file():
        raise ValueError(f"no answers are sealed as {label!r}: tools/seal.py writes them")
    answers = [np.asarray(answer, dtype=np.float64) for answer in json.loads(path.read_text(encoding="utf-8"))]
    if len(answers) != cases:
        raise ValueError(f"{label!r} is sealed with {len(answers)} answers, there are {cases} cases")
    return answers


def _told(case: dict[str, Any], number: int, cases: int) -> str:
    """A case in the exercise's own letters; of what is too large to print, its shape."""
    parts = []
    for key, value in case.items():
        shape = np.shape(value) if not callable(value) else ()
        parts.append(f"{key} of shape {tuple(shape)}" if shape else f"{key}={value!r}")
    which = f" (case {number} of {cases})" if any(np.ndim(v) for v in case.values() if not callable(v)) else ""
    return f"with {', '.join(parts)}{which}"


def _off(actual: NDArray[np.float64], right: NDArray[np.float64]) -> str:
    """How far an answer is from the right one, without the right one."""
    if not np.isfinite(actual).all():
        return "not finite"
    gap = np.abs(actual - right)
    where = np.unravel_index(gap.argmax(), gap.shape)
    entry = f", most at entry {tuple(int(i) for i in where)}" if gap.ndim else ""
    size = abs(float(right[where]))
    return f"off by {100 * float(gap[where]) / size:.3g}%{entry}" if size else f"off by {float(gap[where]):.3g}{entry}"
