"""The slides' sources: minutes that add up, notes and figures that are there, and no number that no chapter says.

What needs the chapters' runs is tried on a run made here; the decks themselves are written, and every figure and number
of them looked up, where they are built (`make course`, tests/browser/test_slides.py).
"""

import re

import chapters
import nbformat
import pytest
import runs
from course import decks, slides

from icl_book import charts

PAGE = "book/adaptation/how-much-to-forget"
DECK = """---
title: "A lecture"
subtitle: "What it answers"
minutes: 6
chapters: [adaptation/how-much-to-forget]
reasons:
  setting: ["a gate of 0.9"]
---

# The valley has one lowest point
:minutes: 4
:notes: adaptation/how-much-to-forget#Exercises

A gate of {said}`0.896 is best <adaptation/how-much-to-forget>`, not a gate of 0.9.

```{figure-of} adaptation/how-much-to-forget
:which: There is a best
```

```{say}
Look at the valley.
```

# What does this not say, and to whom?
:minutes: 2
:kind: limits

```{code-of} adaptation/gated-linear-attention
:from: def layer(q, k, v, lam):
:lines: 3
```

```{exercise-of} adaptation/how-much-to-forget
:label: ex-pole
Find the smaller root.
```

```{answer}
It is below $\\gamma$.
```

```{say}
Think for a minute.
```
"""


def _figure():
    return charts.curves(
        [0, 1],
        {"GLA": [0.0, 1.0], "LMS": [0.0, 0.99]},
        x_title="time",
        y_title="error, in multiples of the Kalman floor",
        direct=True,
        title="There is a best amount to forget",
        subtitle="one line\nanother",
        alt="two lines that rise from nought to one side by side",
    )


@pytest.fixture(scope="module")
def executed():
    """A run of a chapter, with one figure and one sentence."""
    data = [_figure()._repr_mimebundle_(), {runs.SAID: "A gate of 0.896 is best"}]
    cell = nbformat.v4.new_code_cell("pass")
    cell.outputs = [nbformat.v4.new_output("display_data", data=one) for one in data]
    return {PAGE: nbformat.v4.new_notebook(cells=[cell])}


def faults(source, executed=None, notes=False):
    return decks.faults(decks.parse("deck", source), executed, notes=notes)


DECKS = {name: decks.read(name) for name in decks.names()}


@pytest.mark.parametrize("name", DECKS)
def test_a_deck_is_sound(name):
    """Minutes add up, notes, code and exercises are there, and numbers are borrowed or have a reason."""
    assert not decks.faults(DECKS[name])


@pytest.mark.parametrize("name", DECKS)
def test_a_decks_figures_are_named_as_their_chapters_name_them(name):
    """Each figure's title, or the function that moves it, stands in the chapter's cells."""
    for slide in DECKS[name].slides:
        for one in slide.blocks("figure-of"):
            cells = " ".join("".join(chapters.code_cells(chapters.source(decks.page_of(one.argument)))).split())
            assert one.options["which"] in re.sub(r'"\s*f?"', "", cells), f"{slide.title}: {one.options['which']}"


def test_a_sound_deck_has_no_faults(executed):
    """The one here has none; nor has it any with its teaching note."""
    assert faults(DECK, executed) == []
    assert faults(DECK, executed, notes=True) == []


@pytest.mark.parametrize(
    ("was", "planted", "told"),
    [
        ("0.896 is", "0.869 is", "says '0.869 is best'"),
        ("Look at the valley", "Its error is 0.674", "no chapter says '0.674'"),
        ("a gate of 0.9.", "a gate of $\\lambda = 0.95$.", "no chapter says '0.95'"),
        ("There is a best", "There is a worst", "no figure 'There is a worst'; it has: There is a best amount"),
        (":minutes: 4", ":minutes: 5", "its slides take 7 minutes, the lecture 6"),
        ("def layer(q, k, v, lam):", "def layer(q, k):", "no line of its cells begins 'def layer(q, k):'"),
        (":lines: 3", ":lines: 60", "lines, not 60"),
        ("ex-pole", "ex-stick", "it has no exercise 'ex-stick'"),
        ("Think for a minute.", "", "nothing is said"),
        ("setting: [", 'setting: ["ten men", ', "'ten men' has a reason but is not in the text"),
        ("```{figure-of} adaptation/how-much-to-forget", "```{figure-of} adaptation/no", "no chapter 'adaptation/no'"),
    ],
)
def test_what_is_wrong_with_a_deck_is_said(executed, was, planted, told):
    """A wrong digit, a typed one, a figure, code or exercise that is not there, minutes that do not add up."""
    assert was in DECK
    found = faults(DECK.replace(was, planted, 1), executed)
    assert any(told in fault for fault in found), found
    assert all(fault.startswith("deck.md: ") for fault in found)


def test_a_figure_stands_once(executed):
    """The same figure twice is a fault."""
    slide = DECK[DECK.index("# The valley") : DECK.index("# What does")]
    twice = DECK.replace(slide, slide + slide).replace("minutes: 6", "minutes: 10", 1)
    assert faults(twice, executed) == ["deck.md: figure 'There is a best' stands twice"]


@pytest.mark.parametrize(
    ("was", "planted", "told"),
    [
        ("---\ntitle", "title", "must begin with its settings"),
        ("minutes: 6", "length: 6", "lack something"),
        ("setting:", "because:", "reasons are among"),
        (":minutes: 4", ":minutes: soon", "minutes must be a number"),
        (":kind: limits", ":kind: joke", "kind must be one of"),
        (":kind: limits", ":colour: red", "option 'colour' is not known"),
        ("{answer}", "{solution}", "there is no directive {solution}"),
        ("# The valley", "Before.\n\n# The valley", "text stands before the first slide"),
    ],
)
def test_what_is_no_deck_is_said(was, planted, told):
    """A deck that is not written as decks are."""
    with pytest.raises(chapters.Broken, match=re.escape(told)):
        decks.parse("deck", DECK.replace(was, planted, 1))


def test_notes_that_are_missing_are_named():
    """The section, and those that there are; and without notes the deck is as it was."""
    planted = DECK.replace("#Exercises", "#No such section")
    assert any("no section 'No such section'; it has: " in fault for fault in faults(planted, notes=True))
    assert faults(planted) == []


def test_a_deck_as_a_page(executed):
    """Titles, what the speaker sees, code in colours, borrowed words with their place, and nothing from elsewhere."""
    deck = decks.parse("deck", DECK)
    page = slides.document(deck, executed)
    assert page == slides.document(decks.parse("deck", DECK), executed)
    assert page.count("<section") == 2
    assert '<span class="proved" title="How much to forget">0.896 is best</span>' in page
    assert "<b>6 minutes on 2 slides:</b> claim 4, limits 2." in page
    assert "<b>Minute 4 to 6</b>" in page
    assert decks.note("adaptation/how-much-to-forget#Exercises").split("**")[1] in page
    assert "two lines that rise" in page
    assert "one line · another" in page
    assert '<span class="k">def</span>' in page
    assert "Goes on in Exercise 4.2, “The pole”, of" in page
    assert '<div class="fragment answer">' in page
    loaded = re.findall(r'<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)="([^"]+)"', page)
    assert loaded
    assert all(address.startswith(("../_shared/", "data:image/svg+xml")) for address in loaded)
    assert "Exercises</h2>" not in slides.document(deck, executed, notes=False)


def test_a_chart_for_a_room():
    """Letters of twenty pixels and more, names at the ends of lines apart, long names of axes broken, no title."""
    spec = slides.enlarged(_figure().spec, 240)
    assert "title" not in spec
    assert spec["height"] == 240
    config = spec["config"]
    sizes = [config["text"]["fontSize"], config["legend"]["labelFontSize"]]
    sizes += [config["axis"][f"{part}FontSize"] for part in ("label", "title")]
    assert min(sizes) >= slides.LETTERS >= 18
    (labels,) = [layer for layer in spec["layer"] if layer.get("name") == "labels"]
    low, high = labels["encoding"]["y"]["scale"]["domain"]
    first, second = sorted(row["y"] for row in spec["datasets"][labels["data"]["name"]])
    assert (second - first) / (high - low) * 240 >= slides.LETTERS
    titles = [layer["encoding"]["y"]["title"] for layer in spec["layer"]]
    assert titles[0] == ["error, in multiples", "of the Kalman floor"]
