"""Examples in docstrings and on the pages that newcomers read first print what stands below them."""

import contextlib
import doctest
import importlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIB = ROOT / "lib"
MODULES = [
    ".".join(path.relative_to(LIB).with_suffix("").parts)
    for path in sorted(LIB.rglob("[!_]*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize("page", ["README.md", "book/reference/architecture.md"])
def test_examples_print_what_is_shown(page):
    """Every Python block of the page is followed by its output, which is that of running it now."""
    text = (ROOT / page).read_text(encoding="utf-8")
    examples = EXAMPLE.findall(text)
    assert len(examples) == text.count("```python") > 0
    for code, shown in examples:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, page, "exec"), {"__name__": "example"})
        assert printed.getvalue() == shown


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_print_what_they_say(module):
    """Every `>>>` in the library, each docstring on its own."""
    failed, run = doctest.testmod(importlib.import_module(module), report=True)
    assert run > 0
    assert failed == 0
