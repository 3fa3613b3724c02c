"""The examples that newcomers copy first print what stands below them."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
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
