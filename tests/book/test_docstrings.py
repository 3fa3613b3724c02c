"""What reference pages make of docstrings."""

from typing import Annotated

import docstrings
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
    docstrings._write_bounds(None, "function", "name", documented, None, lines)
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


def test_formulas_keep_their_lines():
    """Indented lines after a paragraph, in a list too; not arguments, nor what is marked already."""
    lines = [
        *("A law.", "", "    a = b", "", "    c = d", "", "- Of a list,", "  e:", "", "      e = f", ""),
        *("As code::", "", "    g = h", "", "Args:", "    x: inputs.", "", "    y: labels."),
    ]
    marked = lines.copy()
    docstrings._set_off_formulas(None, "function", "name", written, None, marked)
    assert [line for line in marked if line not in lines] == [".. code-block:: text", "  .. code-block:: text"]
    assert marked[2:5] == [".. code-block:: text", "", "    a = b"]
    assert marked[11:15] == ["  .. code-block:: text", "", "      e = f", ""]
