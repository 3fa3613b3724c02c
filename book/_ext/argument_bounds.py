"""On the reference pages, the bound of a number beside the argument that it is declared for."""

import inspect
import re
import typing
from typing import Any

from sphinx.application import Sphinx


def bounds(documented: Any) -> dict[str, str]:
    """The bounds that the annotations of a function or class declare, as a page writes them."""
    from icl import _bounds  # with it comes PyTorch, which a page that is built alone does not load

    callables = [documented, documented.__init__] if inspect.isclass(documented) else [inspect.unwrap(documented)]
    hints: dict[str, Any] = {}
    for annotated in callables:
        hints |= typing.get_type_hints(annotated, include_extras=True)
    return {name: str(bound[1]) for name, hint in hints.items() if (bound := _bounds.bound_of(hint))}


def _write(app: Sphinx, what: str, name: str, documented: Any, options: Any, lines: list[str]) -> None:
    """Write each bound before what the docstring says of the argument; arguments told together are told apart."""
    if not (inspect.isclass(documented) or inspect.isfunction(documented)):
        return
    bound_by_name = bounds(documented)
    for place, line in enumerate(lines):
        if (entry := re.match(r"(\s+)([\w, ]+): ", line)) and (names := entry[2].split(", ")):
            declared = [
                bound_by_name[one] for one in names if one in bound_by_name and bound_by_name[one] != "any number"
            ]
            if declared:
                lines[place] = f"{entry[0]}({', '.join(dict.fromkeys(declared))}) {line[entry.end() :]}"


def setup(app: Sphinx) -> None:
    """Read docstrings before napoleon does, at priority 500."""
    app.connect("autodoc-process-docstring", _write, priority=400)
