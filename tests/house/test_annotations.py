"""The hook that checks the library's annotations in these tests is alive."""

import random
import sys

import jaxtyping
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from icl import solvers
from icl.models.s6 import zero_order_hold
from icl.tasks import Prompt


def test_wrong_shapes_are_caught_by_the_annotations():
    """In tests, an array whose shape or dtype contradicts a function's annotation is refused before the function runs.

    One function and one dataclass stand for all: without the hook of harness.py these calls would reach the library's
    own checks, which raise another error.
    """
    x = torch.zeros(2, 3, 4)
    with pytest.raises(jaxtyping.TypeCheckError):
        Prompt(x, torch.zeros(2, 4), x)
    with pytest.raises(jaxtyping.TypeCheckError):
        zero_order_hold(-torch.ones(2), torch.ones(1, 3, 4, 5))


def test_the_hook_can_be_stood_down(as_installed):
    """With the hook stood down, as the tests of bad input do, the library's own refusal is what a caller meets."""
    x = torch.zeros(2, 3, 4)
    with pytest.raises(ValueError, match="y must have shape"):
        Prompt(x, torch.zeros(2, 4), x)


def test_inner_functions_are_checked_each_time_they_are_made():
    """A solver's step is defined anew with each solver: the second one's is refused as the first one's."""
    for solver in (solvers.conjugate_gradients(), solvers.conjugate_gradients()):
        with pytest.raises(jaxtyping.TypeCheckError):
            solver.init([[1.0]], torch.zeros(1, 1), torch.zeros(1, 1))


@pytest.fixture
def halves():
    """A function under the hook: the first half of each row, of odd rows one more than it promises; and its calls."""
    ran = []

    @jaxtyping.jaxtyped(typechecker=sys.modules["icl_checker"].check)
    def first(x: Float[Tensor, "rows width"], parts: list[int] | None = None) -> Float[Tensor, "rows half"]:
        ran.append(x.shape)
        return x[:, : x.shape[1] // 2] if x.sum() == 0 else x[0]

    return first, ran


def test_checks_draw_nothing_from_random(halves):
    """A strategy of Hypothesis may call the library, and touch no global generator."""
    first, before = halves[0], random.getstate()
    first(torch.zeros(2, 4), [1, 2, 3])
    assert random.getstate() == before


def test_what_was_right_once_is_looked_at_again_where_it_differs(halves):
    """Another shape, dtype or item among the arguments, or another result of the same arguments: each is refused."""
    first, ran = halves
    for _ in range(2):
        assert first(torch.zeros(2, 4)).shape == (2, 2)
    for wrong in (torch.zeros(2), torch.zeros(2, 4, dtype=torch.int64), [[0.0]], None):
        with pytest.raises(jaxtyping.TypeCheckError):
            first(wrong)
    with pytest.raises(jaxtyping.TypeCheckError):
        first(torch.zeros(2, 4), [1.5])
    assert ran == [(2, 4)] * 2  # what is refused does not run
    with pytest.raises(jaxtyping.TypeCheckError):
        first(torch.ones(2, 4))
    assert ran == [(2, 4)] * 3  # and nothing runs twice
    assert first(torch.zeros(2, 4), [1]).shape == (2, 2)
