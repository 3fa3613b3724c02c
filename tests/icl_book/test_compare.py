"""Comparison of answers: as numpy's, on every kind of number, and by what was bound before anybody could replace it."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch

from icl_book import _compare

NUMBERS = [0.0, -0.0, 1.0, 1 + 1e-7, -1.0, 1e-300, 1e300, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("equal_nan", [False, True])
@pytest.mark.parametrize(("rtol", "atol"), [(0.0, 0.0), (1e-6, 0.0), (0.0, 1e-9), (1e-3, 1.0)])
def test_differences_are_numpys(rtol, atol, equal_nan):
    """Every pair of numbers, zeros of both signs, infinities and nan, against `numpy.isclose`, as arrays and alone."""
    one, other = np.meshgrid(NUMBERS, NUMBERS)
    with np.errstate(all="ignore"):
        expected = ~np.isclose(one, other, rtol=rtol, atol=atol, equal_nan=equal_nan)
    assert (_compare.differ(one, other, rtol, atol, equal_nan=equal_nan) == expected).all()
    for a, b, differs in zip(one.flat, other.flat, expected.flat, strict=True):
        alone = _compare.differ(np.asarray(a), np.asarray(b), rtol, atol, equal_nan=equal_nan)
        assert (alone.shape, bool(alone)) == ((), differs)


@pytest.mark.parametrize(
    "answer",
    [
        [1, 2.5],
        (np.float32(1), torch.tensor(2.5, requires_grad=True)),
        torch.tensor([1, 2.5], dtype=torch.bfloat16, requires_grad=True),
        np.array([1 + 1e-13j, 2.5]),
        [complex(1), 2.5 - 1e-13j],
        pd.Series([Fraction(1), Fraction(5, 2)]),
    ],
    ids=str,
)
def test_numbers_of_every_dress_are_float64(answer):
    """Lists, tensors with a gradient, fractions and round-off beside a real number; the same numbers, to 1e-12."""
    found = _compare.numbers(answer)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, [1, 2.5], rtol=1e-12)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("1.5", "returned text, a number is wanted"),
        (b"1", "returned text"),
        (["1", 2.5], "returned text, numbers are wanted"),
        (np.array([1, "2"], dtype=object), "returned text, numbers are wanted"),
        (np.datetime64("2020-01-01"), "returned text"),
        (1 + 1e-9j, "returned complex numbers, whose imaginary part is not 0"),
        (torch.tensor([1.0, 2j]), "returned complex numbers"),
    ],
)
def test_what_is_no_real_number_is_named(answer, said):
    """Text, dates, and imaginary parts beyond round-off, wherever they stand."""
    with pytest.raises(_compare.NotReal, match=said):
        _compare.numbers(answer)


def test_coarse_dtypes_are_named():
    """The first dtype in an answer that is less precise than float64; whole numbers and lists of floats have none."""
    assert [_compare.coarse_dtype(one) for one in (1.5, [1, 2], np.zeros(2), torch.ones(1).long(), "a", None)] == [
        ""
    ] * 6
    assert _compare.coarse_dtype([1.5, [np.float64(1), torch.ones(1)]]) == "float32"
    assert _compare.coarse_dtype(np.zeros(1, dtype=np.complex64)) == "complex64"


def test_a_spoiled_answer_differs_everywhere():
    """At any tolerance, infinities and nan too; of no numbers, by its shape."""
    right = np.asarray(NUMBERS)
    assert _compare.differ(_compare.spoiled(right), right, 1e9, 1e9, equal_nan=True).all()
    assert _compare.spoiled(np.zeros((0, 2))).shape == (1,)


def test_what_is_replaced_is_named_until_it_is_back(monkeypatch):
    """A function, a class, a module's built-in, and a name that is gone; what is added is not looked at."""
    assert _compare.rebound() == ""
    for place in ("numpy.allclose", "numpy.ndarray", "math.sqrt", "builtins.abs"):
        with monkeypatch.context() as restored:
            restored.setattr(place, len)
            assert _compare.rebound() == place
            restored.delattr(place)
            assert _compare.rebound() == place
    monkeypatch.setattr(np, "of_ones_own", len, raising=False)
    assert _compare.rebound() == ""
