"""The pages before the chapters: what they show and say is the chapters' own, and the build sees when it is not."""

import re
from pathlib import Path

import chapters
import nbformat
import notebooks
import pytest
import runs
import short_path
import transclude

from icl_book import claims

ROOT = Path(__file__).resolve().parents[2]

TEN, LANDING = "book/start/ten-results", "book/index"
RESULTS = chapters.source(TEN).split("\n## ")[1:]
CARDS = re.findall(r"^:::\{grid-item-card\} (.*?)\n(.*?)^:::$", chapters.source(LANDING), re.M | re.S)
DEPTH, CLAIM = "adaptation/depth", "gla.depth.gating-stabilises"


@pytest.mark.parametrize("result", RESULTS, ids=lambda text: text.partition("\n")[0][:40])
def test_a_result_has_a_picture_and_a_door(result):
    """A figure of a chapter, what a paper says and what we find with its verdict, and a door to the chapter."""
    body = result.partition("\n")[2]
    (figure,) = re.findall(r"^```\{figure-of\} (\S+)\n:which: \S.*\n```$", body, re.M)
    (door,) = re.findall(r"^```\{door\} (\S+)\n(?::proved:\n)?```$", body, re.M)
    (claim,) = re.findall(r"^\*\*.*paper.*:\*\* .* \*\*We find:\*\* .* \{claim\}`(\S+)`$", body, re.M)
    assert transclude.chapter(figure)
    assert transclude.chapter(door) == claims.ledger()[claim].chapter


def test_cards_are_the_parts():
    """Four cards, a part each: a small picture of one of its chapters, a sentence, and its first chapter."""
    parts = re.findall(r'caption: "(Part .*)"\n(?:.*\n)*?\s+- file: (\S+)', chapters.words(ROOT / "_toc.yml"))
    cards = [card for card in CARDS if card[0].startswith("Part")]
    assert [title for title, _ in cards] == [title for title, _ in parts]
    for (_, body), (_, first) in zip(cards, parts, strict=True):
        (figure,) = re.findall(r"^```\{figure-of\} (\S+)\n:which: .*\n:small:\n```$", body, re.M)
        assert transclude.chapter(figure).split("/")[1] == first.split("/")[1]
        assert f"[{chapters.title(first)}]({first.removeprefix('book/')}.md)" in body


SAID = "Of 105 trainings of *normalised* stacks none was lost; 24 of the plain"
SPEC = '{"title": {"text": "A finding, drawn"}, "usermeta": {"icl": {"explorable": {"function": "moves"}}}}'
STILL = '{"title": "A finding that stays", "usermeta": {"icl": {}}}'


def run(*specs, said=(SAID,), measured="error 0.5321 at 12 of 15, 14.7% above"):
    """A run that drew these figures, said these words and settled a claim."""
    data = [{"text/html": f'<figure><script type="application/json">{spec}</script></figure>'} for spec in specs]
    data += [{runs.SAID: words} for words in said]
    data.append({runs.CHECK: {"id": CLAIM, "measured": measured, "samples": "1,234 prompts"}})
    outputs = [nbformat.v4.new_output("display_data", each) for each in data]
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x = 1", outputs=outputs)])


def test_a_figure_is_named():
    """By the function that moves it or the start of its title; one that is not there, or not alone, is refused."""
    drawn = run(SPEC, STILL)
    assert runs.heading(transclude.figure("depth", "moves", drawn).spec) == "A finding, drawn"
    assert runs.heading(transclude.figure("depth", "A finding that", drawn).spec) == "A finding that stays"
    for asked, says in (
        ("gone", "depth has no figure 'gone'; it has: moves; A finding that stays"),
        ("", "no figure ''"),
    ):
        with pytest.raises(chapters.Broken, match=says):
            transclude.figure("depth", asked, drawn)
    with pytest.raises(chapters.Broken, match="depth has 2 figure 'A finding'"):
        transclude.figure("depth", "A finding", drawn)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (f"{{said}}`Of 105 trainings of normalised stacks <{DEPTH}>` went well.", []),
        (
            f"{{said}}`Of 106 trainings of normalised stacks <{DEPTH}>`",
            ["no cell of book/adaptation/depth says 'Of 106"],
        ),
        (f"{{said}}`5 trainings <{DEPTH}>`", ["no cell of book/adaptation/depth says '5 trainings'"]),
        ("{said}`24 of the <adaptation/deep>`", ["the book has no chapter 'adaptation/deep'"]),
        ("{said}`24 of the plain`", ["must be words, then their place"]),
        (f"{{measured}}`0.5321 at 12 of 15 <{CLAIM}>` of {{measured}}`1,234 prompts <{CLAIM}>`", []),
        (f"{{measured}}`0.532 <{CLAIM}>`", [f"the check of {CLAIM} did not measure '0.532'"]),
        (f"{{measured}}`14.7 <{CLAIM}>`", ["did not measure '14.7'"]),
        (f"{{measured}}`12 of 1 <{CLAIM}>`", ["did not measure '12 of 1'"]),
        ("{measured}`0.5 <gla.nothing>`", ["no claim 'gla.nothing' in the ledger"]),
        ("It is 12 times, $0.4$ or `7`.", ["no chapter says '12'", "no chapter says '0.4'", "no chapter says '7'"]),
        ("See [The S6 layer](../a9.md), {cite}`mamba2025`.", []),
        ("See [every 5th](../a.md).", ["says '5'"]),
        (f"```{{figure-of}} {DEPTH}\n:which: moves\n```\n```{{door}} {DEPTH}\n:proved:\n```\n{{claim}}`{CLAIM}`", []),
        (f"```{{figure-of}} {DEPTH}\n:which: gone\n```\n", ["has no figure 'gone'"]),
        ("```{figure-of} adaptation/deep\n:which: gone\n```\n", ["the book has no chapter 'adaptation/deep'"]),
        ("```{door} start/how-to-read\n```\n", ["the book has no chapter 'start/how-to-read'"]),
    ],
)
def test_words_are_borrowed(text, wrong):
    """A changed digit, a cut one, an unknown place, a number of the page's own: each is seen."""
    found = transclude.faults("book/start/nowhere", text, {f"book/{DEPTH}": run(SPEC)})
    assert len(found) == len(wrong)
    for fault, says in zip(found, wrong, strict=True):
        assert says in fault


def test_a_page_that_says_otherwise_is_not_built(monkeypatch):
    """The build stops with the page's name; one that borrows nothing is left alone."""
    texts = {"book/a": f"{{said}}`106 trainings <{DEPTH}>`", "book/b": "No 7 is never borrowed."}
    own = chapters.source
    monkeypatch.setattr(chapters, "source", lambda page: texts.get(page) or own(page))
    with pytest.raises(chapters.Broken, match=r"^book/a\.md: no cell of book/adaptation/depth says '106 trainings'$"):
        transclude.examine(list(texts), {f"book/{DEPTH}": run(SPEC)})


def test_lenders_are_the_chapters_named():
    """A page alone is built after the chapters that it borrows from: by figure, door, word or check, each once."""
    text = f"```{{figure-of}} {DEPTH}\n```\n{{said}}`x <memory/one-register>` {{measured}}`y <{CLAIM}>`"
    assert transclude.lenders(text) == ["book/adaptation/depth", "book/memory/one-register"]


def test_a_small_picture_is_drawn_of_any_figure():
    """Without title, legend and names; the same bytes each time; what it is drawn from stays as it was."""
    from icl_book import charts

    drawn = charts.curves(
        [1, 2],
        {"GLA": [1, 2], "Kalman": [2, 1]},
        x_title="steps",
        y_title="error",
        title="A finding",
        alt="Two lines that cross between one step and two, of one error each.",
    )
    before = str(drawn.spec)
    svg = transclude.small_picture(drawn.spec)
    assert str(drawn.spec) == before
    assert svg == transclude.small_picture(drawn.spec)
    assert "A finding" not in svg
    assert "steps" not in svg
    assert svg.count("mark-line") >= 1


def test_the_landing_notebook_is_plain():
    """Its download has the cards' words, and nothing of how the page lays them out."""
    text = "\n".join(c.source for c in notebooks.notebook(LANDING).cells if c.cell_type == "markdown")
    assert "**Part IV: Synthesis**" in text
    assert not re.search(r"grid|figure-of|which:|gutter", text)


def test_the_short_path_is_in_order():
    """It follows the table of contents and begins with the first chapter."""
    (path,) = re.findall(r"^    icl_path:\n((?:      - \S+\n)+)", chapters.words(ROOT / "_config.yml"), re.M)
    pages = re.findall(r"- (\S+)", path)
    assert [page for page in chapters.in_parts() if page in pages] == pages
    assert pages[0] == chapters.in_parts()[0]


def test_the_sidebar_marks_the_path():
    """Links to its chapters say their place, the page's own too; no other link does."""
    link = '<li><a class="reference internal" href="{}">A</a></li>'
    sidebar = link.format("depth.html") + link.format("#").replace("reference", "current reference")
    marked = short_path.mark(sidebar + link.format("other.html"), {"depth.html": 5, "#": 1})
    assert re.findall(r'href="(\S+)" data-path="(\d)"', marked) == [("depth.html", "5"), ("#", "1")]
    assert marked.count("data-path") == marked.count("title=") == 2
