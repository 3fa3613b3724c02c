"""Reference pages show the bound of a number beside its argument."""

from typing import Annotated

import argument_bounds
from annotated_types import Ge, Lt

from icl import filters
from icl._bounds import Count, PositiveUnit, validated


@validated
def _documented(gamma: Annotated[float, Ge(0), Lt(1)], d: Count, n: Count, *, lam: PositiveUnit | None = None) -> None:
    """Documented.

    Args:
        gamma: decay of the weights.
        d, n: sizes.
        lam: forgetting factor; 1: none.
        other: none of it.
    """


def written(documented):
    """The lines of a docstring as the pages get them."""
    lines = documented.__doc__.splitlines()
    argument_bounds._write(None, "function", "name", documented, None, lines)
    return [line.strip() for line in lines]


def test_a_bound_stands_before_what_is_said():
    """Once for arguments told together, and not where none is declared."""
    assert written(_documented)[3:7] == [
        "gamma: (in [0, 1)) decay of the weights.",
        "d, n: (>= 1) sizes.",
        "lam: (in (0, 1]) forgetting factor; 1: none.",
        "other: none of it.",
    ]


def test_the_librarys_pages_have_them():
    """A filter's forgetting factor, as a reader looks it up."""
    assert any(line.startswith("lam: (in (0, 1]) forgetting factor") for line in written(filters.rls))
