"""Self-checks: a stub fails, a solution passes, and nothing that an attempt does stops the notebook."""

import functools
import json
import re
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from icl_book import exercises
from icl_book.exercises import EXERCISE_MIME, SelfCheck, check, seal

CASES = [{"lam": 0.5, "n": 3}, {"lam": 0.9, "n": 1}]


def reference(lam, n):
    return lam ** np.arange(n, 0, -1)


def exact(value):
    return value


def attempt(result):
    """An attempt that returns `result`, or calls it if it can be called."""

    def weights(lam, n):
        return result(lam, n) if callable(result) else result

    return weights


def test_a_solution_passes():
    """An attempt that gives the reference's numbers on every case passes, as array or as list, and says on how many."""
    for solution in (reference, lambda lam, n: [lam**k for k in range(n, 0, -1)]):
        outcome = check(solution, reference, CASES, name="weights")
        assert outcome == SelfCheck("weights", True, "right on all 2 cases")
    assert check(attempt(reference), reference, CASES).name == "weights"


class Powers(nn.Module):
    """An answer with a parameter, whose output requires a gradient."""

    def __init__(self):
        super().__init__()
        self.one = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, lam, n):
        return self.one * torch.tensor(reference(lam, n))


@pytest.mark.parametrize(
    ("solution", "name"),
    [
        (functools.partial(lambda shift, lam, n: reference(lam, n) + shift, 0.0), "<lambda>"),
        (functools.partial(reference), "reference"),
        (Powers(), "Powers"),
        (functools.partial(Powers()), "Powers"),
        (lambda lam, n: [*Powers()(lam, n)], "<lambda>"),
        (lambda lam, n: [Fraction(number) for number in reference(lam, n)], "<lambda>"),
        (lambda lam, n: pd.Series(reference(lam, n)), "<lambda>"),
        (lambda lam, n: reference(lam, n) * (1 + 1e-15j), "<lambda>"),
        (lambda lam, n: torch.tensor(reference(lam, n), dtype=torch.bfloat16), "<lambda>"),
    ],
)
def test_a_solution_may_be_anything_that_can_be_called(solution, name):
    """Partials, modules, and what returns tensors with a gradient, fractions, frames and round-off beside 0j."""
    coarse = {"rtol": 1e-2} if name == "<lambda>" else {}
    outcome = check(solution, reference, CASES, **coarse)
    assert outcome == SelfCheck(name, True, "right on all 2 cases")


@pytest.mark.parametrize("of", [np.float32, lambda a: torch.tensor(a, dtype=torch.float32), lambda a: [*np.float32(a)]])
def test_a_rounded_answer_is_told_its_dtype(of):
    """At a tolerance that float32 misses, the message says that rounding may be all; to its own precision it is right,
    and what is wrong by more is not excused.
    """
    said = ". Its numbers are float32, and rounding may be all that is wrong: compute in float64."
    cases = CASES[1:]
    assert check(lambda lam, n: of(reference(lam, n)), reference, cases, rtol=1e-9).message.endswith(said)
    assert check(lambda lam, n: of(reference(lam, n)), reference, cases).passed
    assert "float32" not in check(lambda lam, n: of(reference(lam, n) * 1.01), reference, cases).message
    assert "float32" not in check(lambda lam, n: reference(lam, n) * (1 + 1e-8), reference, cases, rtol=1e-9).message


def test_a_function_of_numpy_that_was_replaced_judges_nothing(monkeypatch):
    """A cell's own `np.allclose`, `np.isclose`, `np.asarray` or `abs` does not make a wrong answer right."""
    for name in ("allclose", "isclose", "array_equal", "all"):
        monkeypatch.setattr(np, name, lambda *given, **named: True)
    monkeypatch.setattr("builtins.abs", lambda value: value * 0)
    assert not check(lambda lam, n: reference(lam, n) * 2, reference, CASES).passed
    assert check(reference, reference, CASES).passed


def test_what_an_attempt_does_to_its_arguments_stays_with_it():
    """An attempt that works in place passes if its answer is right, and leaves the cases as they were."""
    cases = [{"table": np.arange(6.0).reshape(3, 2)}, {"table": np.eye(3)}]

    def differences(table):
        return np.diff(table, axis=0, prepend=0)

    def in_place(table):
        table[1:] -= table[:-1].copy()
        return table

    assert check(in_place, differences, cases).passed
    assert check(in_place, differences, cases).passed
    assert (cases[1]["table"] == np.eye(3)).all()


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (None, "returned nothing"),
        (..., "raised TypeError"),
        (lambda lam, n: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (lambda lam, n: [[]], r"returned shape \(1, 0\), shape \(3,\) is wanted"),
        (lambda lam, n: reference(lam, n + 1), r"returned shape \(4,\), shape \(3,\) is wanted"),
        (lambda lam, n: 0.5, r"returned a number, shape \(3,\) is wanted"),
        (lambda lam, n: reference(lam, n)[::-1], r"off by 300%, most at entry \(0,\)"),
        (lambda lam, n: reference(lam, n) * (1 + 1e-5), r"off by 0.001%, most at entry \(2,\)"),
        (lambda lam, n: reference(lam, n) * np.nan, "not finite"),
        (lambda lam, n: [*reference(lam, n)[1:], np.inf], "not finite"),
        ("text", "returned text, a number is wanted"),
        (lambda lam, n: [str(number) for number in reference(lam, n)], "returned text, numbers are wanted"),
        (lambda lam, n: [str(reference(lam, n)[0]), *reference(lam, n)[1:]], "returned text"),
        (lambda lam, n: np.array([str(reference(lam, n)[0]), 0.25, 0.5], dtype=object), "returned text"),
        (lambda lam, n: reference(lam, n) + 3j, "returned complex numbers, whose imaginary part is not 0"),
        (lambda lam, n: torch.tensor(reference(lam, n)) + 3j, "returned complex numbers"),
    ],
)
def test_a_stub_fails_and_is_told_why(result, why):
    """What is not a solution fails without an error, and the message says on which case and how.

    Returning nothing, raising, another shape, numbers that are off by more than 1e-6, NaN and infinity.
    """
    outcome = check(attempt(result), reference, CASES)
    assert not outcome.passed
    assert outcome.message.startswith("not yet: with lam=0.5, n=3 it ")
    assert re.search(why, outcome.message)


def test_the_second_case_counts_too():
    """An attempt that is right on the first case alone fails, and is shown the second."""
    outcome = check(attempt(lambda lam, n: reference(0.5, n)), reference, CASES)
    assert not outcome.passed
    assert "lam=0.9, n=1" in outcome.message


def test_rounding_is_forgiven_as_far_as_asked():
    """Numbers within rtol of the answer pass, however small they all are; those beyond do not."""
    cases = [{"value": 1e-30}]
    assert check(lambda value: value * (1 + 9e-4), exact, cases, rtol=1e-3).passed
    assert not check(lambda value: value * (1 + 2e-3), exact, cases, rtol=1e-3).passed
    assert not check(lambda value: 0.0, exact, cases).passed


def test_rounding_of_a_zero_is_forgiven():
    """Where the answer is 0, rounding passes on the scale of the other answers or as asked."""
    cases = [{"value": 0.0}, {"value": 100.0}]

    def nearly(rounding):
        return lambda value: value + rounding

    assert check(nearly(6e-15), exact, cases, name="a").passed
    assert check(nearly(0.99e-8), exact, cases, name="a").passed
    off = check(nearly(1.5e-8), exact, cases, name="a")
    assert off.message == "not yet: with value=0.0 it is off by 1.5e-08"
    assert not check(nearly(6e-15), exact, cases[:1], name="a").passed
    assert check(nearly(6e-15), exact, cases[:1], atol=1e-14, name="a").passed


def test_an_infinite_answer_is_compared():
    """Where the right answer is infinite a finite one is told so, and where it is not an infinite one."""
    cases = [{"values": np.array([1.0, np.inf])}]
    for given, how in (([1, np.inf], None), ([1, 2], "finite, and should not be"), ([np.nan, np.inf], "not finite")):
        outcome = check(lambda values, given=given: given, lambda values: values, cases, name="a")
        assert outcome.passed == (how is None)
        assert how is None or outcome.message.endswith(f"(case 1 of 1) it is {how}")
    assert check(lambda values: [2, np.inf], lambda values: values, cases, name="a").message.endswith("it is wrong")


def test_large_arguments_are_told_by_their_shape():
    """A message names arrays by shape and their case by its number, so that no argument goes untold."""
    cases = [{"x": np.eye(2), "rule": max}, {"x": np.eye(3), "rule": max}]
    outcome = check(lambda x, rule: 2.0, lambda x, rule: len(x), cases, name="size")
    assert outcome.message == (
        "not yet: with x of shape (3, 3), rule=<built-in function max> (case 2 of 2) it is off by 33.3%"
    )


@pytest.fixture
def book(monkeypatch, tmp_path):
    """The folder of a book without answers, for this test alone."""
    monkeypatch.setattr(exercises, "folder", lambda name: tmp_path / "book" / name)
    (tmp_path / "book" / "answers").mkdir(parents=True)
    return tmp_path / "book"


def seal_anew(*given):
    """Seal as the command does that seals all answers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ICL_SEAL", "1")
        seal(*given)


@pytest.fixture
def answers(book):
    """Its folder of answers, with those of one exercise."""
    seal_anew("ex-weights", reference, CASES)
    return book / "answers"


def sealed(answers, label="ex-weights"):
    """What is written down of an exercise."""
    return json.loads((answers / f"{label}.json").read_text())


def test_a_first_sealing_passes_by_the_stub(book, monkeypatch):
    """While answers are sealed a check waits that comes before them, or has more cases; without sealing it raises."""
    with pytest.raises(ValueError, match="no answers are sealed"):
        check(reference, "ex", CASES)
    monkeypatch.setenv("ICL_SEAL", "1")
    for cases in (CASES, [*CASES, {"lam": 0.7, "n": 2}]):
        assert check(reference, "ex", cases).message == "not yet: its answers are sealed further down"
        seal("ex", reference, cases)
        assert check(reference, "ex", cases).passed


def test_sealed_answers_stand_for_the_function(answers):
    """A check against a label is the check against the function that was sealed."""
    for attempt in (reference, lambda lam, n: reference(lam, n) + 1, lambda lam, n: None):
        assert check(attempt, "ex-weights", CASES, name="a") == check(attempt, reference, CASES, name="a")
    assert sealed(answers) == {"right": [[0.125, 0.25, 0.5], [0.9]], "wrong": {}}


MISTAKES = {
    "with the newest first": lambda lam, n: lam ** np.arange(1.0, n + 1),
    "with their sum": lambda lam, n: sum(lam ** np.arange(n, 0, -1)),
    "with ages from 0": lambda lam, n: (lam ** np.arange(n - 1, -1, -1)) / (n > 1 or np.nan),
}


@pytest.mark.parametrize("why", MISTAKES)
def test_a_sealed_wrong_answer_is_named(answers, why):
    """An attempt with a wrong answer's numbers on all cases is told so: of another shape too, and where there are none.

    An attempt that agrees with it on one case alone, up to more than the check's tolerance, or that is right, is not.
    """
    seal_anew("ex-weights", reference, CASES, MISTAKES)
    seal("ex-weights", reference, CASES)
    known = f". This is what comes out {why}."
    wrong = MISTAKES[why]
    for attempt in (wrong, lambda lam, n: np.asarray(wrong(lam, n)).tolist()):
        message = check(attempt, "ex-weights", CASES).message
        assert message.startswith("not yet: with lam=0.5, n=3 it ")
        assert message.endswith(known)
    off = check(lambda lam, n: np.multiply(wrong(lam, n), 1 + 9e-7), "ex-weights", CASES, rtol=1e-6)
    assert off.message.endswith(known)
    for attempt in (
        lambda lam, n: np.multiply(wrong(lam, n), 1 + 2e-6),
        lambda lam, n: wrong(lam, n) if n > 1 else 7.0,
        reference,
    ):
        assert "comes out" not in check(attempt, "ex-weights", CASES, rtol=1e-6).message


def test_wrong_answers_stay_sealed_with_right_ones(answers):
    """A chapter's run that seals the same right numbers leaves the wrong ones; other right numbers take them away."""
    seal_anew("ex-weights", reference, CASES, MISTAKES)
    written = (answers / "ex-weights.json").read_text()
    assert sealed(answers)["wrong"] == {
        "with the newest first": [[0.5, 0.25, 0.125], [0.9]],
        "with their sum": [0.875, 0.9],
        "with ages from 0": [[0.25, 0.5, 1.0], None],
    }
    assert written.count("\n") == 6
    seal_anew("ex-weights", reference, CASES)
    assert (answers / "ex-weights.json").read_text() == written
    seal_anew("ex-weights", MISTAKES["with the newest first"], CASES)
    assert sealed(answers)["wrong"] == {}


def test_rounding_is_not_sealed(answers):
    """An answer, right or wrong, that inputs moved by 1e-12 change is refused by label, misconception and case.

    Refused are lost digits, a tie and a pole. What a check forgives is sealed: a rounded zero beside
    larger answers. Equal numbers move alike, so that a symmetric matrix stays symmetric.
    """
    b = np.random.default_rng(0).standard_normal((5, 3))
    cases = [{"b": b[:2], "q": 0.3}, {"b": b, "q": 0.1}]
    unstable = {
        "with digits that are lost": lambda b, q: b * np.sin(1e12 * q) * (len(b) > 2),
        "with a tie": lambda b, q: np.ceil(len(b) * (1 / q - 1)),
        "with a pole": lambda b, q: 1 / (q - 0.1),
    }
    stable = {"with a rounded zero": lambda b, q: [len(b), (q + 0.2) - (q + 0.1) - 0.1]}
    seal_anew("ex-b", lambda b, q: b.sum(), cases, stable)
    for why, mistake in unstable.items():
        with pytest.raises(ValueError, match=f"what comes out of 'ex-b' {why} is rounding in case 2"):
            seal_anew("ex-b", lambda b, q: b.sum(), cases, stable | {why: mistake})
    with pytest.raises(ValueError, match="the right answer to 'ex-c' is rounding in case 2"):
        seal_anew("ex-c", unstable["with a tie"], cases)
    assert [*sealed(answers, "ex-b")["wrong"]] == [*stable]
    assert not (answers / "ex-c.json").exists()
    seal_anew("ex-c", lambda S: float((S == S.T).all()), [{"S": b @ b.T + (b @ b.T).T}])
    assert sealed(answers, "ex-c")["right"] == [1.0]


def test_a_broken_seal_is_an_error(answers):
    """Answers of another function, of other cases or of none are the book's fault: raised, where they are sealed."""
    seal("ex-weights", reference, CASES)
    with pytest.raises(ValueError, match="'ex-weights' is sealed with other answers"):
        seal("ex-weights", lambda lam, n: reference(lam, n) * (1 + 1e-5), CASES)
    with pytest.raises(ValueError, match="'ex-weights' is sealed with other answers"):
        seal("ex-weights", lambda lam, n: reference(lam, n + 1), CASES)
    with pytest.raises(ValueError, match="is sealed with 2 answers, there are 1 cases"):
        seal("ex-weights", reference, CASES[:1])
    with pytest.raises(ValueError, match="is sealed with 2 answers, there are 3 cases"):
        check(reference, "ex-weights", [*CASES, CASES[0]])
    with pytest.raises(ValueError, match="no answers are sealed as 'ex-other'"):
        check(reference, "ex-other", CASES)


def test_a_wrong_reference_is_an_error():
    """If the reference itself fails, that is the book's fault and not the reader's: it is raised."""
    with pytest.raises(ZeroDivisionError):
        check(reference, lambda lam, n: 1 / 0, CASES)


def test_outcomes_show_themselves():
    """A notebook shows an outcome as text and as HTML, in which what an attempt said is text and not markup."""

    def attempt(lam, n):
        raise ValueError("<script>alert(1)</script>")

    shown = check(attempt, reference, CASES, name="<b>")._repr_mimebundle_()
    assert shown["text/plain"].startswith("✗ <b>: not yet")
    assert "<script>" not in shown["text/html"]
    assert "&lt;script&gt;" in shown["text/html"]
    assert "data-passed='false'" in shown["text/html"]
    assert shown[EXERCISE_MIME]["passed"] is False
    passed = check(reference, reference, CASES)._repr_mimebundle_()
    assert passed["text/plain"] == "✓ reference: right on all 2 cases"
    assert "data-passed='true'" in passed["text/html"]
    assert passed[EXERCISE_MIME] == {"name": "reference", "passed": True, "message": "right on all 2 cases"}
