"""How the chapters read: their length, their words, and what a self-check gives away."""

import ast
import json
import re
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import chapters  # noqa: E402
import measurements  # noqa: E402
import prose  # noqa: E402
import runs  # noqa: E402

#: Chapters that nobody has yet read this way. None comes in again.
WAITING: set[str] = set()
CHAPTERS = [page for page in chapters.with_cells() if page != "book/index"]
READ = [page for page in CHAPTERS if page not in WAITING]
#: Chapters and the pages around them: what people wrote, in words. One of the projects has its two memories in a layer.
TOLD = [
    page
    for page in chapters.pages()
    if not page.startswith("book/reference/library") and page != "book/course/projects"
]
FARTHEST = 300  # words of main line a picture
#: The picture that every chapter of a part draws again with a line more. Four chapters have it on axes of their own:
#: with the trained models' dots, in multiples of the error of answering 0, and the two on language, whose answers are
#: right or wrong.
RUNNING = {
    "book/adaptation/": "charts.BY_EXAMPLES",
    "book/memory/": "charts.BY_LAYERS",
    "book/selection/": "charts.BY_LENGTH",
    "book/synthesis/": "charts.BY_DRIFT",
}
OWN_AXES = {
    "book/memory/polynomial-floor",
    "book/selection/real-data",
    "book/adaptation/from-regression-to-language",
    "book/adaptation/when-text-drifts",
}

_EACH = "token|layer|prompt|step|chapter|coordinate|direction|channel|iteration|example|query|depth|head|pair|entry"
#: What a page does not say, and what it says in its place: one name for a thing, and plain words.
WORDS = {
    r"\bheld by\b": "checked by",
    r"\bsilence\b": "answering 0, or the zero predictor",
    r"\b(predicting|answering) zero\b|\bnull predictor\b": "answering 0, or the zero predictor",
    r"\blinear self-attention\b|\bungated attention\b|\bplain attention\b": "linear attention",
    r"\b(population|expected) loss\b": "population risk",
    r"\b(told|given) (Σ|\$\\(mathbf|boldsymbol)?\{?\\?Sigma\}?\$|(its|the) inverse)": "preconditioned conjugate …",
    r"\bas published\b": "by the published recipe",
    r"\b(loses?|lost) (\d|at most|less|more|only|little|nothing)": "has … times the error",
    rf"\b(?:a|an|one|two|three|four|each|\d+) (?:\w+ ){{1,2}}an? (?:{_EACH})\b": "per",
    r"\bwhoever\b": "who, or a method that",
    r"(?<!\\mathbf)(?<!\\boldsymbol)(?<!\{)(?-i:\\Sigma)(?![a-zA-Z])": "the bold letter of a matrix",
    r"\bnothing forbids\b|\blies aslant\b|\bA word on\b": "plain words",
}


def slips(text: str) -> list[str]:
    """What of the word list a page's text still says, with what it should say."""
    return [
        f"{found.group()!r} in …{text[max(0, found.start() - 30) : found.end() + 30]}…: {better}"
        for pattern, better in WORDS.items()
        for found in re.finditer(pattern, text, re.I)
    ]


def in_sight(text: str) -> list[str]:
    """Self-checks that show what they compare an attempt with; a sealed answer is named by a label."""
    found = []
    for cell in chapters.code_cells(text):
        for node in chapters.nodes(ast.parse(cell)) if "check" in cell else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "check":
                answer = node.args[1] if len(node.args) > 1 else None
                if not (isinstance(answer, ast.Constant) and isinstance(answer.value, str)):
                    found.append(ast.unparse(node)[:80])
    return found


def test_only_those_that_wait_are_unread():
    """A chapter has its reasons in book/prose, or is listed as waiting; the list names no other page."""
    assert {page for page in CHAPTERS if not prose.reasons_at(page).exists()} == WAITING


@pytest.mark.parametrize("page", READ)
def test_main_line_has_a_figure_every_300_words(page):
    """Words of its sentences over the figures and explorables that its cells draw; equations and tables are none."""
    found = measurements.pace(chapters.source(page))
    assert found["words"] <= FARTHEST * (found["figures"] + found["explorables"])


def test_too_few_figures_are_found():
    """A page of 290 words and a figure passes, with 20 words more it does not; nor if its figure is in a dropdown."""
    figure = "```{code-cell}\ncharts.lines(table)\n```\n"
    enough, few = (f"# Page\n\n{'word ' * count}\n\n{figure}" for count in (289, 309))
    folded = f"# Page\n\n{'word ' * 289}\n\n````{{dropdown}} Beside\n{figure}````\n"
    paces = [measurements.pace(text) for text in (enough, few, folded)]
    assert [found["words"] for found in paces] == [290, 310, 290]
    assert [found["words"] <= FARTHEST * found["figures"] for found in paces] == [True, False, False]


@pytest.mark.parametrize("page", [page for page in READ if page.startswith(tuple(RUNNING)) and page not in OWN_AXES])
def test_a_part_has_one_running_figure(page):
    """Each chapter draws its part's picture, on the same axes, in its main line."""
    main_line = chapters.source(page).partition("\n## Exercises\n")[0]
    axes = next(axes for part, axes in RUNNING.items() if page.startswith(part))
    assert axes in main_line


@pytest.mark.parametrize("page", TOLD)
def test_words_are_the_books(page):
    """One name for a thing, and none of the slips that readers tripped over."""
    assert slips(prose.text_of(chapters.source(page))) == []


@pytest.mark.parametrize("page", READ)
def test_answers_are_not_in_plain_sight(page):
    """Every self-check compares with sealed answers, and every label is sealed in the page and is a file."""
    text = chapters.source(page)
    assert in_sight(text) == []
    cells = "\n".join(chapters.code_cells(text))
    sealed = set(re.findall(r"""\bseal\(\s*["']([^"']+)["']""", cells))
    assert sealed == set(chapters.answers_of(text))
    assert all((ROOT / "book/answers" / f"{label}.json").is_file() for label in sealed)


@pytest.mark.parametrize("page", READ)
def test_idea_is_stated_at_the_end(page):
    """Before its table of claims a chapter says in short what it found."""
    headings = re.findall(r"^## (.*)$", chapters.source(page), re.M)
    assert headings.index("In short") + 1 == headings.index("What the paper says, what we measured")
    assert headings.index("What the paper says, what we measured") + 1 == headings.index("Exercises")


def test_a_slip_is_found():
    """Each entry of the word list finds what it is for, and leaves the better words alone."""
    text = "One vector a token, held by a test; it loses 1.2 times as much as silence, whoever asks for expected loss."
    assert len(slips(text)) == 6
    assert slips("One vector per token, checked by a test; it has 1.2 times the error of the zero predictor.") == []
    assert len(slips("$\\Sigma^{-1}$ and $\\mathbf\\Sigma^{-1}$")) == 1


def test_an_answer_in_sight_is_found():
    """A lambda, a library function or a named reference beside the blank is reported; a label is not."""
    calls = ["check(mine, lambda d: d + 1, [{}])", "check(mine, theory.risk, [{}])", "check(mine, 'ex', [{}])"]
    cell = "\n".join(["```{code-cell}", *calls, "```\n"])
    assert len(in_sight(cell)) == 2


SOURCE = """---
kernelspec: x
---

# Page

All starts arrive, as (2.11) and `every_one` say, 14.7% above in $\\gamma = 0.85$. At all sizes *it is 1.4 times* more.

```{code-cell}
never = 0.5
```
"""


@pytest.mark.parametrize(
    ("said", "why", "wrong"),
    [
        (["All starts arrive", "14.7% above", "it is 1.4 times more"], {}, []),
        (["All starts arrive", "14.7% above"], {"setting": ["is 1.4 times"]}, []),
        (["All starts arrive", "14.7% above"], {}, ["no cell says '1.4'"]),
        (["Never a start arrives", "14.7% above"], {"setting": ["1.4"]}, ["'Never a start arrives'", "'All' in"]),
        (["All starts arrive", "14.8% above"], {"setting": ["1.4"]}, ["a cell says '14.8% above'", "'14.7%'"]),
        (["All starts arrive", "14.7% above"], {"setting": ["1.4", "9.9"]}, ["'9.9' has a reason but"]),
        (["14.8% above"], None, ["a cell says '14.8% above'"]),
    ],
)
def test_text_says_what_cells_found(said, why, wrong):
    """A wrong word, a wrong digit, a number no cell says and a reason for nothing are each reported, and nothing else.

    Numbers of equations, code and idioms like "at all" need no computation; pages not yet read are held to what their
    cells say.
    """
    found = prose.faults("book/page", SOURCE, said, why)
    assert len(found) == len(wrong)
    for fault, start in zip(found, wrong, strict=True):
        assert start in fault


TITLES = ["All starts arrive here", "At γ = 0.9 none is lost"]


@pytest.mark.parametrize(
    ("said", "why", "wrong"),
    [
        (["All starts arrive here", "none is lost"], {}, []),
        (["At γ = 0.9 none is lost"], {"algebra": ["All starts"]}, []),
        (["none is lost"], {}, ["'All' in the title of a figure: 'All starts arrive here'"]),
        (["All starts arrive here", "all are lost"], {}, ["a cell says 'all are lost'", "'none' in the title"]),
        (["All starts arrive here", "none is lost"], {"source": ["never"]}, ["'never' has a reason but"]),
    ],
)
def test_titles_of_figures_say_what_cells_found(said, why, wrong):
    """A strong word of a title is within what a cell says, or has a reason; their numbers are read elsewhere."""
    found = prose.faults("book/page", "# Page\n\nNothing.\n", said, why, TITLES)
    assert len(found) == len(wrong)
    for fault, start in zip(found, wrong, strict=True):
        assert start in fault


@pytest.mark.parametrize("word", ["only", "no", "cannot", "nothing", "any"])
def test_titles_are_held_to_more_words_than_the_text(word):
    """A title has no room to say of what it is true; the text around it has, and may use these words freely."""
    title = f"Of these {word} start arrives"
    (found,) = prose.faults("book/page", f"# Page\n\n{title}.\n", [], {}, [title])
    assert found == f"no cell says {word!r} in the title of a figure: {title!r}"
    assert prose.faults("book/page", f"# Page\n\n{title}.\n", [title], {}, [title]) == []
    assert prose.faults("book/page", "# Page\n\nNothing.\n", [], {}, ["Nobody knows a company"]) == []


def test_headings_are_read():
    """They are a page's text as its paragraphs are."""
    found = prose.faults("book/page", "# All of it\n\n## At a price\n\n### It never ends\n", [], {})
    assert [fault.split("'")[1] for fault in found] == ["All", "never"]


@pytest.fixture
def page(monkeypatch, tmp_path):
    """A book of one page, and a run of it whose cells said what is asked; what the build thinks of it."""
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
    page("14.7% above")
    page("All starts arrive", "14.7% above", "1.4 times", reasons="{}")
    with pytest.raises(chapters.Broken, match=r"book/page.md: a cell says '14.8% above', the text does not"):
        page("14.8% above")
    with pytest.raises(chapters.Broken, match=r"book/page.md: a cell says 'No start arrives'"):
        page("No start arrives", "14.7% above", "1.4 times", reasons="{}")
    with pytest.raises(chapters.Broken, match=r"book/page.md: no cell says '1.4' in"):
        page("All starts arrive", "14.7% above", reasons="{}")
    with pytest.raises(
        chapters.Broken, match=r"book/page.md: no cell says 'never' in the title of a figure: 'It never"
    ):
        page("All starts arrive", "14.7% above", "1.4 times", reasons="{}", title="It never ends")
    page("All starts arrive", "14.7% above", "1.4 times", "It never ends", reasons="{}", title="It never ends")
    for reasons in ("luck: [All starts]", "setting: 1.4", "setting: ['']", "- a", "a: [b"):
        with pytest.raises(chapters.Broken, match=r"book/prose/page.yml: "):
            page("All starts arrive", "14.7% above", "1.4 times", reasons=reasons)
