"""Text from files stays text: in the glossary, in projects and in the notation, nothing is HTML, a role or a script."""

import re
from pathlib import Path

import chapters
import directives
import projects
import pytest
import yaml

from icl_book import notation

ROOT = Path(__file__).parents[2]

#: What does something on a page if it is read as more than words.
HOSTILE = [
    "<script>alert(1)</script>",
    "see <img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}",
    "{raw}`<b>`",
    "[here](javascript:alert(1))",
    "![](http://elsewhere.example/a.png)",
    "first\n```{raw} html\n<b>\n```",
    "first\n::::{raw} html\n<b>\n::::",
    "[a]: javascript:b\n[a]",
    "before $x$ <b onclick=f()> after $y$",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_word_of_the_glossary_is_no_more_than_words(text):
    """HTML, roles, blocks and links by a scheme are refused by name in the words of the glossary and in projects."""
    with pytest.raises(chapters.Broken, match=r"terms\.yml: drift: more than words"):
        directives.only_words(text, "terms.yml: drift")


@pytest.mark.parametrize(
    "text", ["$a<b$", "`{{ x }}` and `<b>`", "*so* [it is](/book/a.md)", "a < b", "$\\{x\\}$ {here}"]
)
def test_words_formulas_code_and_links_pass(text):
    """What the texts are written in passes unchanged."""
    assert directives.only_words(text, "here") == text


@pytest.mark.parametrize("text", HOSTILE)
def test_a_project_is_no_more_than_words(text):
    """A hostile text is named with its project wherever it stands: in its brief, among its pitfalls, in the rubric."""
    source = yaml.safe_load((ROOT / projects.SOURCE).read_text(encoding="utf-8"))
    one = source["projects"][0]
    for plant in ({"brief": text}, {"pitfalls": [text]}, {"words": {"mean": text}}):
        planted = {"projects": [one | plant]}
        with pytest.raises(chapters.Broken, match=f"{one['name']}: more than words"):
            projects.load(yaml.safe_dump(planted))


@pytest.mark.parametrize("text", [*HOSTILE, "a | b", "w* and v* of *x*"])
def test_a_row_of_the_notation_is_text(monkeypatch, text):
    """Meaning, shape, unit and place of a symbol are shown letter for letter; a bar ends no cell."""
    symbol = notation.Symbol("d", "d", text, text, text, text)
    monkeypatch.setattr(notation, "SYMBOLS", [symbol])
    row = directives.Notation.markdown(None).splitlines()[-1]
    cells = re.split(r"(?<!\\)\|", row)[3:-1]
    plain = " ".join(text.split())
    assert [re.sub(r"\\(.)", r"\1", cell.strip()) for cell in cells] == [plain] * 4
    assert all(re.fullmatch(r"(?:[\w\s]|\\[!-/:-@\[-`{-~])*", cell) for cell in cells)
