"""What the Markdown of a page would lose without a word is named: fences, pictures, raw HTML."""

import chapters
import markup
import pytest


def test_the_books_pages_lose_nothing():
    """Every fence has its end, every picture its words, and HTML leads nowhere but to the ledger's own files."""
    markup.examine(chapters.pages())


FAULTS = {
    "a fence without an end": ("````{note}\nText.\n```\n", "the fence '````{note}' of line 3 has no end"),
    "a cell without an end": ("```{code-cell}\nx = 1\n", "has no end"),
    "an inner fence without an end": ("````{note}\n```{tip}\nText.\n````\n", "the fence '```{tip}' of line 4"),
    "colons without an end": (":::{note}\nText.\n", "the fence ':::{note}' of line 3 has no end"),
    "an end too many": (":::{note}\nText.\n:::\n:::\n", "line 6 closes a fence that is not open"),
    "a picture without words": ("![](a.png)\n", "'a.png' needs words for those who cannot see it, got ''"),
    "its file's name": ("![a.png](figs/a.png)\n", "got 'a.png'"),
    "its file's name, shorter": ("![axes-of-a-page](figs/axes-of-a-page.png)\n", "got 'axes-of-a-page'"),
    "two words": ("![a figure](figs/a.png)\n", "got 'a figure'"),
    "from elsewhere": ("![three words here](https://x.org/a.png)\n", "is from elsewhere"),
    "a directive without words": ("```{image} a.png\n:width: 3\n```\n", "line 3 needs words"),
    "in a dropdown": ("```{dropdown} More\n![](a.png)\n```\n", "'a.png' needs words"),
    "srcset": ('<img src="a.png" srcset="https://x.org/b.png 2x" alt="three words here">\n', "raw HTML"),
    "a raw link": ('See <a href="nowhere.html">this</a>.\n', "raw HTML, whose links nobody follows"),
    "a script": ("<script>alert(1)</script>\n", "raw HTML"),
    "an order turned": ("```{code-cell}\nx = 1  # \u202e}\n```\n", "line 4 has the invisible character U+202E"),
    "an invisible space": ("All\u200b runs.\n", "line 3 has the invisible character U+200B"),
    "a comment": ("<!-- hidden -->\n", "raw HTML"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(fault, monkeypatch, tmp_path):
    """Each ends the build with the page's name, in one line or in one for each part of it."""
    text, says = FAULTS[fault]
    monkeypatch.setattr(chapters, "ROOT", tmp_path)
    (tmp_path / "a.md").write_text(f"# A page\n\n{text}")
    with pytest.raises(chapters.Broken) as broken:
        markup.examine(["a"])
    assert all(line.startswith("a.md: ") for line in str(broken.value).splitlines())
    assert says in str(broken.value)


def test_what_is_right_is_let_through():
    """Formulas, code, roles and links of Markdown are none of these; nor is what a cell holds."""
    text = """---
kernelspec: x
---

# A page

If $a<b$ and `<a href>`, {py:func}`text <icl.x>`, 1 < 2, [words](other.md), <https://x.org>:

```{code-cell}
html = '<a href="x">'  # ![](a.png)
```

````{note} Title
:class: dropdown
```python
<div>
```
![what the axes show](a.png)
````

:::{grid} 2
::::{card}
Text.
::::
:::

$$
a <b> c
$$

The ledger: <a href="claims.json" download>claims.json</a>.
"""
    assert markup.faults(text.replace(":::{grid}", ":::::{grid}").replace("::::\n:::\n", "::::\n:::::\n")) == []
