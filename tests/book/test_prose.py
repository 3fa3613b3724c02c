"""The lint of numbers: a decimal or a percentage of a chapter's text is said by a cell, quoted, or has a reason."""

import json

import chapters
import nbformat
import prose
import pytest
import runs

SOURCE = """---
kernelspec:
  name: python3
---

# Page

All starts arrive, as (2.11) and `every_one` say, 14.7% above in $\\gamma = 0.85$. At all sizes *it is 1.4 times* more.

```{code-cell}
never = 0.5
```
"""


@pytest.mark.parametrize(
    ("said", "listed", "wrong"),
    [
        (["14.7% above", "it is 1.4 times more"], [], []),
        (["14.7% above"], ["is 1.4 times"], []),
        (["14.7% above"], [], ["no cell says '1.4'"]),
        (["Never a start arrives", "14.7% above"], ["1.4"], ["'Never a start arrives'"]),
        (["14.8% above"], ["1.4"], ["a cell says '14.8% above'", "'14.7%'"]),
        (["14.7% above"], ["1.4", "9.9"], ["'9.9' has a reason but"]),
    ],
)
def test_text_says_what_cells_found(said, listed, wrong):
    """A wrong word, a wrong digit, a number no cell says and a reason for nothing are reported, and nothing else.

    Words need no computation, nor do numbers of equations, formulas and code.
    """
    found = prose.faults(SOURCE, said, listed)
    assert len(found) == len(wrong)
    for fault, start in zip(found, wrong, strict=True):
        assert start in fault


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('They say "it is 1.4 times more" and stop.', []),
        ("They say “it is 1.4 times more” and stop.", []),
        ('They say "more" at 1.4 times "less".', ["1.4"]),
        ('A quotation that "does not end is 1.4 times more.', ["1.4"]),
        ("Figure 2.1, Section 3.2, (4.1) and arXiv 2410.07799 at 3 of 40.", []),
        ("# At 0.9\n\n- by 5 %\n", ["0.9", "5 %"]),
    ],
)
def test_what_is_a_number_of_the_text(text, found):
    """Decimals and percentages, in headings and lists too; none of a quotation, and none that names a place."""
    assert [number.group() for number in prose.numbers(prose.text_of(text))] == found


@pytest.fixture
def page(monkeypatch, tmp_path):
    """A book of one page, and a run of it whose cells said what is asked, given to the build's check."""
    (tmp_path / "book/prose").mkdir(parents=True)
    (tmp_path / "book/page.md").write_text(SOURCE)
    monkeypatch.setattr(chapters, "ROOT", tmp_path)

    def examined(*said, reasons=None, title="A figure"):
        why = tmp_path / "book/prose/page.yml"
        why.unlink(missing_ok=True) if reasons is None else why.write_text(reasons)
        data = [nbformat.v4.new_output("display_data", {runs.SAID: words}) for words in said]
        chart = json.dumps({"title": {"text": title, "subtitle": ["setting"]}})
        html = f'<script type="application/json">{chart}</script>'
        data.append(nbformat.v4.new_output("display_data", {"text/html": html}))
        run = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("never = 0.5", outputs=data)])
        prose.examine(["book/page"], {"book/page": run})

    return examined


def test_a_page_that_says_otherwise_is_not_built(page):
    """The build stops, with the page's name, over a wrong digit, a wrong word, and reasons that are none."""
    page("14.7% above", "1.4 times")
    page("14.7% above", "1.4 times", "It never ends", title="It never ends")
    page("14.7% above", reasons="setting: [1.4 times]")
    with pytest.raises(chapters.Broken, match=r"book/page.md: a cell says '14.8% above', the text does not"):
        page("14.8% above", "1.4 times")
    with pytest.raises(chapters.Broken, match=r"book/page.md: a cell says 'No start arrives'"):
        page("No start arrives", "14.7% above", "1.4 times")
    with pytest.raises(chapters.Broken, match=r"book/page.md: no cell says '1.4' in"):
        page("14.7% above")
    for reasons in ("luck: [All starts]", "setting: 1.4", "setting: ['']", "- a", "a: [b", ""):
        with pytest.raises(chapters.Broken, match=r"book/prose/page.yml: "):
            page("14.7% above", "1.4 times", reasons=reasons)


def test_reasons_are_of_chapters_and_in_their_text():
    """Every file of reasons is a chapter's, and every piece covers a number of its text that has no other cover."""
    names = {page.rsplit("/", 1)[-1]: page for page in chapters.with_cells()}
    for path in (chapters.ROOT / "book/prose").iterdir():
        text = prose.text_of(chapters.source(names[path.stem]))
        for piece in prose.reasons(names[path.stem]):
            assert len(prose.uncovered(text, prose.numbers(text), [piece])) < len(prose.numbers(text)), piece


def glued(**values):
    """A run whose cell gave values to texts, as `icl_book.prose.glue` does."""
    outputs = [
        nbformat.v4.new_output("display_data", {runs.GLUED: repr(value)}, metadata={"scrapbook": {"name": name}})
        for name, value in values.items()
    ]
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("glue()", outputs=outputs)])


def test_a_text_inserts_values_of_runs(monkeypatch):
    """Of its own page and of another, as formatted; a name that no cell gives is Broken, a page without run waits."""
    made = {"book/a": glued(turn=13, late=0.966, change=-0.5), "book/part/b": glued(worst=2.345, name="GLA")}
    monkeypatch.setattr(runs, "cached", made.get)
    text = "At {glue:text}`turn`, {glue:text}`late:.0%`, {glue:text}`change` and {glue:text}`part/b::worst:.1f`."
    assert runs.glued_pages(text, "book/a") == ["book/a", "book/part/b"]
    assert runs.filled(text, "book/a") == "At 13, 97%, \N{MINUS SIGN}0.5 and 2.3."
    assert runs.filled("{glue:text}`c::x:.1f` {glue:text}`part/b::name`") == "{glue:text}`c::x:.1f` GLA"
    with pytest.raises(chapters.Broken, match="no cell of book/part/b glues 'none'"):
        runs.filled("{glue:text}`part/b::none`")


def test_an_inserted_value_needs_no_reason(page, monkeypatch):
    """It covers its decimal; a name that no cell gives, and a decimal typed beside it, stop the build."""
    text = "# A\n\nIt is {glue:text}`worst:.1f`, not {glue:text}`none`, and 0.25 is typed.\n"
    monkeypatch.setattr(chapters, "source", lambda page: text)
    with pytest.raises(chapters.Broken) as fault:
        prose.examine(["book/page"], {"book/page": glued(worst=2.345)})
    assert str(fault.value).split("\n") == [
        "book/page.md: no cell says '0.25' in: …`worst:.1f`, not {glue:text}`none`, and 0.25 is typed.…",
        "book/page.md: no cell glues 'none'",
    ]
