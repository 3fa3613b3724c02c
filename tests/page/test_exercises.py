"""Self-checks: a stub fails, a solution passes, and nothing that an attempt does stops the notebook."""

import re

import numpy as np
import pytest

from icl.page.exercises import EXERCISE_MIME, SelfCheck, check

CASES = [{"lam": 0.5, "n": 3}, {"lam": 0.9, "n": 1}]


def reference(lam, n):
    return lam ** np.arange(n, 0, -1)


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


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (None, "returned nothing"),
        (..., "raised TypeError"),
        (lambda lam, n: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (lambda lam, n: [[]], r"returned shape \(1, 0\), shape \(3,\) is wanted"),
        (lambda lam, n: reference(lam, n + 1), r"returned shape \(4,\), shape \(3,\) is wanted"),
        (lambda lam, n: reference(lam, n)[::-1], "off by 0.375"),
        (lambda lam, n: reference(lam, n) * (1 + 1e-5), "off by 5e-06"),
        (lambda lam, n: reference(lam, n) * np.nan, "off by nan"),
        (lambda lam, n: [*reference(lam, n)[1:], np.inf], "off by inf"),
        ("text", "raised ValueError"),
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
    """Numbers within rtol of the reference pass, however small they are; those beyond do not."""
    cases = [{"value": 1e-30}]

    def exact(value):
        return value

    assert check(lambda value: value * (1 + 9e-4), exact, cases, rtol=1e-3).passed
    assert not check(lambda value: value * (1 + 2e-3), exact, cases, rtol=1e-3).passed
    assert not check(lambda value: 0.0, exact, cases).passed


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
