"""Comparison of answers: as numpy's, on every kind of number, and by what was bound before anybody could replace it."""

import math

import numpy as np
import pytest

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
