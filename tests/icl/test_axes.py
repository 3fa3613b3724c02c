"""Axes of tensors: what an annotation lets in and refuses as jaxtyping does, and the sentence that says so."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Float
from jaxtyping._decorator import jaxtyped  # as it is without this suite's memory
from torch import Tensor

from icl._bounds import Count, validated

KINDS = ["batch n d", "#batch n", "*batch d", "*#batch d", "n n", "batch 1 d", "... d", "d", "", "_ n"]
SHAPES = [size for axes in range(4) for size in itertools.product((1, 2, 3), repeat=axes)]


@given(st.tuples(*[st.sampled_from(KINDS)] * 2), st.tuples(*[st.sampled_from(SHAPES)] * 2))
def test_shapes_are_let_in_as_jaxtyping_lets_them_in(kinds, shapes):
    """Two arguments of any annotations and shapes, with axes in common: refused here if jaxtyping's check refuses.

    Not asked: two axes of any number that broadcast, whose result it remembers; the library has one of them in a call.
    """
    if all("*#" in kind for kind in kinds) or kinds[0].startswith("*#"):
        return
    first, second = (Float[Tensor, kind] for kind in kinds)

    def given_to(x, y):
        return None

    given_to.__annotations__ = {"x": first, "y": second}
    x, y = (torch.zeros(shape) for shape in shapes)
    with jaxtyped("context"):
        wanted = isinstance(x, first) and isinstance(y, second)
    try:
        validated(given_to)(x, y)
    except ValueError:
        found = False
    else:
        found = True
    assert found == wanted


# The library's own checks speak, not the suite's.
installed = pytest.mark.usefixtures("as_installed")


@validated
def _accepted(
    x: Float[Tensor, "*batch n d"],
    y: Float[Tensor, "*batch n"],
    w: Float[Tensor, " d"] | Float[Tensor, "n d"] | None = None,
    *,
    gate: Float[Tensor, "#n"] | None = None,
    start: Float[Tensor, "*#batch d"] | None = None,
    size: Count = 1,
) -> str:
    return "let in"


X, Y = torch.zeros(4, 3, 2), torch.zeros(4, 3)


@installed
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"x": X[0, 0]}, "x must have shape (*batch, n, d), got (2,)"),
        ({"x": X.long()}, "x must have a floating dtype, got torch.int64"),
        ({"x": None}, "x must be a torch.Tensor of shape (*batch, n, d), got None"),
        ({"y": Y[:2]}, "y must have shape (4, 3) to match x, got (2, 3)"),
        ({"y": [0.0]}, "y must be a torch.Tensor of shape (4, 3) to match x, got [0.0]"),
        ({"y": Y.double()}, "y must have dtype torch.float32 to match x, got torch.float64"),
        ({"w": Y}, "w must have shape (2) or (3, 2) to match x, got (4, 3)"),
        ({"gate": Y[0, :2]}, "gate must have shape (3 or 1) to match x, got (2,)"),
        ({"start": X}, "start must have shape (*batch, 2) with batch that broadcast to (4,) to match x, got (4, 3, 2)"),
        ({"size": 0}, "size must be an integer >= 1, got 0"),
    ],
)
def test_a_refusal_names_argument_shape_and_what_fits(wrong, message):
    """By place and by name; lengths that other arguments have told are said as numbers."""
    with pytest.raises(ValueError, match="must") as refused:
        _accepted(**{"x": X, "y": Y} | wrong)
    assert str(refused.value) == message


@installed
def test_what_fits_is_let_in():
    """None where it is allowed, either member of a union, sizes of one, no trials."""
    for more in ({}, {"w": X[0, 0]}, {"w": X[0]}, {"gate": Y[0, :1], "start": X[0, 0], "w": None}, {"start": X[:, 0]}):
        assert _accepted(X, Y, **more) == "let in"
    assert _accepted(X[0], Y[0]) == _accepted(X[:0], y=Y[:0]) == "let in"
    with pytest.raises(TypeError, match="required positional argument"):
        _accepted(X)


@installed
def test_a_length_that_one_of_several_shapes_fixes_holds_for_what_follows():
    """Annotations with alternatives fix lengths as one alone does; one that did not fit fixes none."""

    @validated
    def f(x: Float[Tensor, "n 2"] | Float[Tensor, "m n"], y: Float[Tensor, " n"], z: Float[Tensor, " m"]) -> None: ...

    f(torch.zeros(4, 3), torch.zeros(3), torch.zeros(4))
    f(torch.zeros(4, 2), torch.zeros(4), torch.zeros(1))
    with pytest.raises(ValueError, match=r"y must have shape \(3\) to match x, got \(4,\)"):
        f(torch.zeros(4, 3), torch.zeros(4), torch.zeros(4))
    with pytest.raises(ValueError, match=r"z must have shape \(4\) to match x, got \(3,\)"):
        f(torch.zeros(4, 3), torch.zeros(3), torch.zeros(3))


@installed
def test_a_checked_function_is_mapped_and_compiled():
    """In vmap shapes are those without the mapped axis; a compiled graph has no break."""
    half = validated(_halved)
    assert torch.equal(torch.vmap(half)(X, X), X / 2)
    assert torch.equal(torch.compile(half, backend="eager", fullgraph=True)(X, X), X / 2)


def _halved(x: Float[Tensor, "*batch d"], y: Float[Tensor, "*batch d"]) -> Tensor:
    return (x + y + 1) / 2 - 0.5 + x / 2 - y / 2
