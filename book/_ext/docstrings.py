"""Docstrings on the reference pages: bounds beside the arguments they are declared for, formulas line by line."""

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


def _write_bounds(app: Sphinx, what: str, name: str, documented: Any, options: Any, lines: list[str]) -> None:
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


def _set_off_formulas(app: Sphinx, what: str, name: str, documented: Any, options: Any, lines: list[str]) -> None:
    """Mark indented formulas as preformatted text: as quotations their lines would be filled and lose their columns."""
    marked: list[str] = []
    text = ""
    for line in lines:
        indent = " " * (len(text) - len(text.lstrip()))
        after_text = text and not marked[-1].strip() and not text.endswith("::") and len(indent) < 4
        if after_text and line.strip() and line.startswith(indent + "    "):
            marked += [indent + ".. code-block:: text", ""]
        marked.append(line)
        text = line if line.strip() else text
    lines[:] = marked


def setup(app: Sphinx) -> None:
    """Read docstrings before napoleon does, at priority 500."""
    app.connect("autodoc-process-docstring", _write_bounds, priority=400)
    app.connect("autodoc-process-docstring", _set_off_formulas, priority=400)
