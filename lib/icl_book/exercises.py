"""Self-checking exercises: compare an attempt with the right answer, without raising in the notebook.

The right answers are not in plain sight: their numbers are sealed in `book/answers`, and the code that made them is in
the exercise's collapsed solution. The numbers of common wrong answers are sealed beside them, so that the message can
name the mistake.
"""

import copy
import html
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icl import _files
from icl._bounds import NonNegative, validated
from icl_book._compare import NotReal, coarse_dtype, differ, numbers
from icl_book.claims import folder

#: MIME type of a self-check in a notebook's output, from which the book's tests collect it.
EXERCISE_MIME = "application/vnd.icl.exercise+json"
#: Relative to the largest number among the answers; a smaller difference from 0 is round-off.
_ROUNDING = 1e-10
#: Relative difference that a recursion in float32 may amount to.
_COARSE = 1e-3


@dataclass(frozen=True)
class SelfCheck:
    """Result of one attempt."""

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


@validated
def check(
    attempt: Callable[..., Any],
    answer: str | Callable[..., Any],
    cases: Sequence[dict[str, Any]],
    *,
    rtol: NonNegative = 1e-6,
    atol: NonNegative | None = None,
    name: str | None = None,
) -> SelfCheck:
    """Compare a reader's function with the right answer on every case (a dict of keyword arguments).

    An attempt that raises, returns nothing or returns other numbers is not an error here but an unsolved exercise; the
    message says which case failed and how, and names the dtype if rounding in float32 may be all that is wrong. If its
    numbers are those of a sealed wrong answer on all cases (two mistakes may agree on one), the message names the
    mistake.

    Args:
        attempt: the reader's function, or anything else that can be called, such as an `nn.Module`.
        answer: the label of answers sealed by :func:`seal`, or a reference function.
        cases: keyword arguments of the calls.
        rtol: relative tolerance.
        atol: absolute tolerance; by default round-off, 1e-10 of the largest right number of all cases.
        name: display name of the attempt; by default the function's own name, or its class's.

    Raises:
        ValueError: if there are no cases, or their number differs from that of the sealed answers.
    """
    _refuse(attempt, answer, cases, {"rtol": rtol, "atol": 0 if atol is None else atol}, name)
    name = name or _name(attempt)
    try:
        sealed = _read_sealed(answer, len(cases)) if isinstance(answer, str) else _Sealed(_answers(answer, cases), {})
    except ValueError:
        if not (isinstance(answer, str) and _should_reseal()):
            raise
        return SelfCheck(name, False, "not yet: its answers are sealed further down")
    if atol is None:
        atol = _round_off(sealed.right)
    given: list[NDArray[np.float64] | None] = []
    for number, (case, right) in enumerate(zip(cases, sealed.right, strict=True), 1):
        prefix = f"not yet: {_describe_case(case, number, len(cases))} it"
        try:
            got = attempt(**copy.deepcopy(case))  # the attempt may modify its arguments
            actual = numbers(got)
        except NotReal as error:
            return SelfCheck(name, False, f"{prefix} {error}")
        except Exception as error:
            return SelfCheck(name, False, f"{prefix} raised {type(error).__name__}: {error}")
        if got is None:
            return SelfCheck(name, False, f"{prefix} returned nothing, {_shape(right)} is wanted")
        given.append(_finite(actual))
        if _same(actual, right, rtol, atol):
            continue
        shaped = actual.shape == right.shape
        wanted = f"returned {_shape(actual)}, {_shape(right)} is wanted"
        how = f"is {_describe_deviation(actual, right)}" if shaped else wanted
        if sealed.wrong:
            given += _numbers(attempt, cases[number:])
        mistake = next((why for why, wrong in sealed.wrong.items() if _all_same(given, wrong, rtol, atol)), None)
        more = f". This is what comes out {mistake}." if mistake else ""
        if not more and shaped and (dtype := coarse_dtype(got)) and _same(actual, right, _COARSE, atol):
            more = f". Its numbers are {dtype}, and rounding may be all that is wrong: compute in float64."
        return SelfCheck(name, False, f"{prefix} {how}{more}")
    return SelfCheck(name, True, f"right on all {len(cases)} cases")


def _name(attempt: Any) -> str:
    """Name of a function, of what a partial calls, or of an instance's class."""
    called = getattr(attempt, "func", attempt)
    return str(getattr(called, "__name__", type(called).__name__))


def _refuse(attempt: Any, answer: Any, cases: Any, near: dict[str, Any], name: Any) -> None:
    """Check the arguments of `check`; errors name the argument."""
    if not callable(attempt):
        raise ValueError(f"attempt must be a function, got {attempt!r}")
    if not callable(answer) and not isinstance(answer, str):
        raise ValueError(f"answer must be a label or a function, got {answer!r}")
    if not isinstance(cases, Sequence) or not all(isinstance(case, dict) for case in cases):
        raise ValueError(f"cases must be dicts of keyword arguments, in a list, got {cases!r}")
    if not cases:
        raise ValueError("cases must hold at least one dict of keyword arguments")
    for bound, value in near.items():
        if not isinstance(value, int | float) or not value >= 0:
            raise ValueError(f"{bound} must be a number >= 0, got {value!r}")
    if name is not None and not isinstance(name, str):
        raise ValueError(f"name must be a text, got {name!r}")


@validated
def seal(
    label: str,
    reference: Callable[..., Any],
    cases: Sequence[dict[str, Any]],
    mistakes: Mapping[str, Callable[..., Any]] | None = None,
) -> None:
    """Verify the sealed answers of an exercise against the function that made them.

    With the environment variable `ICL_SEAL` they are rewritten (`tools/freeze_answers.py` does it for a chapter),
    together with the numbers of `mistakes`, if given.

    Args:
        label: of the exercise.
        reference: a right answer.
        cases: keyword arguments of the calls.
        mistakes: common wrong answers, by the words that follow "This is what comes out".

    Raises:
        ValueError: if there are no cases, the sealed numbers are not the function's, or numbers to be sealed are
            ill-conditioned: relative changes of 1e-12 in the inputs must not change them beyond the tolerance of
            :func:`check`.
    """
    if not cases:
        raise ValueError("cases must hold at least one dict of keyword arguments")
    answers = _answers(reference, cases)
    if _should_reseal():
        atol = _round_off(answers)
        _refuse_unstable(f"the right answer to {label!r}", reference, cases, atol)
        for why, mistake in (mistakes or {}).items():
            _refuse_unstable(f"what comes out of {label!r} {why}", mistake, cases, atol)
        wrong = {why: _numbers(mistake, cases) for why, mistake in (mistakes or {}).items()}
        if mistakes is not None or not _matches_sealed(label, answers):
            path = folder("answers") / f"{label}.json"
            _files.write(path, _serialise(answers, wrong))
    if not _matches_sealed(label, answers):
        raise ValueError(f"{label!r} is sealed with other answers: tools/freeze_answers.py writes them anew")


def _refuse_unstable(what: str, function: Callable[..., Any], cases: Sequence[dict[str, Any]], atol: float) -> None:
    """Check that answers are insensitive to rounding and to the order of summation."""
    moved = _numbers(function, [_perturb(case) for case in cases])
    for number, (one, other) in enumerate(zip(_numbers(function, cases), moved, strict=True), 1):
        if not _same(other, one, 1e-6, atol):
            raise ValueError(f"{what} is rounding in case {number}: inputs moved by 1e-12 change it")


def _perturb(value: Any) -> Any:
    """Perturb every float towards 0 by up to 1e-12 of itself; equal floats stay equal."""
    if isinstance(value, dict):
        return {key: _perturb(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_perturb, value))
    if isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype == np.float64):
        return value * (1 - 1e-12 * np.sin(1e3 * value) ** 2)
    return value


def _round_off(right: list[NDArray[np.float64]]) -> float:
    """Absolute tolerance for round-off: 1e-10 of the largest number of all cases."""
    return _ROUNDING * max(float(np.abs(one[np.isfinite(one)]).max(initial=0)) for one in right)


@dataclass(frozen=True)
class _Sealed:
    """Sealed answers of one label, case by case: right ones, and wrong ones by mistake (None: no numbers)."""

    right: list[NDArray[np.float64]]
    wrong: dict[str, list[NDArray[np.float64] | None]]


def _should_reseal() -> bool:
    return bool(os.environ.get("ICL_SEAL"))


def _answers(reference: Callable[..., Any], cases: Sequence[dict[str, Any]]) -> list[NDArray[np.float64]]:
    return [np.asarray(reference(**case), dtype=np.float64) for case in cases]


def _numbers(function: Callable[..., Any], cases: Sequence[dict[str, Any]]) -> list[NDArray[np.float64] | None]:
    """Values of a function on every case; None where it raises, or its value is not finite numbers."""
    values: list[NDArray[np.float64] | None] = []
    for case in cases:
        try:
            got = numbers(function(**copy.deepcopy(case)))
        except Exception:
            values.append(None)
        else:
            values.append(_finite(got))
    return values


def _finite(numbers: NDArray[np.float64]) -> NDArray[np.float64] | None:
    return numbers if np.isfinite(numbers).all() else None


def _all_same(
    given: list[NDArray[np.float64] | None], wrong: list[NDArray[np.float64] | None], rtol: float, atol: float
) -> bool:
    return all(_same(one, other, rtol, atol) for one, other in zip(given, wrong, strict=True))


def _same(one: NDArray[np.float64] | None, other: NDArray[np.float64] | None, rtol: float, atol: float) -> bool:
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and not differ(one, other, rtol, atol).any()


def _read_sealed(label: str, cases: int) -> _Sealed:
    path = folder("answers") / f"{label}.json"
    if not path.is_file():
        raise ValueError(f"no answers are sealed as {label!r}: tools/freeze_answers.py writes them")
    held = json.loads(path.read_text(encoding="utf-8"))
    right = [np.asarray(answer, dtype=np.float64) for answer in held["right"]]
    if len(right) != cases:
        raise ValueError(f"{label!r} is sealed with {len(right)} answers, there are {cases} cases")
    wrong = {
        why: [None if numbers is None else np.asarray(numbers, dtype=np.float64) for numbers in answers]
        for why, answers in held["wrong"].items()
    }
    return _Sealed(right, wrong)


def _matches_sealed(label: str, answers: list[NDArray[np.float64]]) -> bool:
    """True if these equal the sealed right answers."""
    try:
        sealed = _read_sealed(label, len(answers)).right
    except ValueError:
        if _should_reseal():
            return False
        raise
    return all(
        one.shape == other.shape and np.allclose(one, other, rtol=1e-7, atol=1e-12, equal_nan=True)
        for one, other in zip(sealed, answers, strict=True)
    )


def _serialise(right: list[NDArray[np.float64]], wrong: dict[str, list[NDArray[np.float64] | None]]) -> bytes:
    """Serialise a label's answers, one line each: right numbers exactly, wrong ones to ten digits."""
    lines = [f'"right": {json.dumps([answer.tolist() for answer in right])},', '"wrong": {']
    for why, answers in wrong.items():
        short = [None if a is None else _round_digits(a.tolist()) for a in answers]
        comma = "" if why == [*wrong][-1] else ","
        lines.append(f"{json.dumps(why)}: {json.dumps(short)}{comma}")
    return ("{" + "\n".join([*lines, "}}"]) + "\n").encode()


def _round_digits(values: Any) -> Any:
    return [_round_digits(value) for value in values] if isinstance(values, list) else float(f"{values:.10g}")


def _shape(numbers: NDArray[np.float64]) -> str:
    return f"shape {numbers.shape}" if numbers.shape else "a number"


def _describe_case(case: dict[str, Any], number: int, cases: int) -> str:
    """Format a case in the exercise's notation; large arrays by shape."""
    parts = []
    for key, value in case.items():
        shape = np.shape(value) if not callable(value) else ()
        parts.append(f"{key} of shape {tuple(shape)}" if shape else f"{key}={value!r}")
    which = f" (case {number} of {cases})" if any(np.ndim(v) for v in case.values() if not callable(v)) else ""
    return f"with {', '.join(parts)}{which}"


def _describe_deviation(actual: NDArray[np.float64], right: NDArray[np.float64]) -> str:
    """Describe the deviation from the right answer without revealing it."""
    if not np.isfinite(actual[np.isfinite(right)]).all():
        return "not finite"
    if not np.isfinite(right).all():
        return "finite, and should not be" if np.isfinite(actual).all() else "wrong"
    gap = np.abs(actual - right)
    where = np.unravel_index(gap.argmax(), gap.shape)
    entry = f", most at entry {tuple(int(i) for i in where)}" if gap.ndim else ""
    size = abs(float(right[where]))
    return f"off by {100 * float(gap[where]) / size:.3g}%{entry}" if size else f"off by {float(gap[where]):.3g}{entry}"
