"""Numbers and ids of chapters, figures, equations and exercises: from what they are called, not from where they are."""

import hashlib
import re
from types import SimpleNamespace

import addresses
import chapters
import nbformat
import numbering
import pytest
import runs
from docutils import nodes
from docutils.core import publish_doctree
from docutils.utils import SystemMessage, new_document
from sphinx_exercise.nodes import solution_node

NUMBERED = [page for page in chapters.pages() if numbering.chapter(page)]
TOC = """
format: jb-book
root: book/index
parts:
  - caption: Start
    chapters: [{file: book/start}]
  - caption: One
    numbered: 1
    chapters: [{file: book/a}, {file: book/b}]
  - caption: Two
    numbered: 1
    chapters: [{file: book/c}]
"""


def test_chapters_are_counted_through_the_parts():
    """What a part marks as numbered is counted on in the next; other pages have no number."""
    assert numbering._chapters(TOC) == {"book/a": 1, "book/b": 2, "book/c": 3}
    assert [numbering.chapter(page) for page in NUMBERED] == list(range(1, len(NUMBERED) + 1))
    assert set(NUMBERED) == set(chapters.in_parts())


def test_exercises_are_numbered_by_chapter(tiny):
    """In their order on the page, by label; on a page without a number the chapter's is left out."""
    text = "# A\n\n```{exercise-start} One\n:label: ex-one\n```\n\n:::{exercise} Two\n:class: x\n:label: ex-two\n:::\n"
    (tiny.root / "_toc.yml").write_text(TOC)
    for page in ("b", "start"):
        (tiny.root / f"book/{page}.md").write_text(text)
    assert numbering.exercises("book/b") == {"ex-one": "2.1", "ex-two": "2.2"}
    assert numbering.exercises("book/start") == {"ex-one": "1", "ex-two": "2"}


@pytest.mark.parametrize(
    ("tex", "ids"),
    [
        (r"a = b \tag{16}", ["eq-16"]),
        (r"a = b \tag{2.11}", ["eq-2.11"]),
        (r"a \tag{6, 7}", ["eq-6", "eq-7"]),
        (r"a \tag{2.3 to 2.5}", ["eq-2.3", "eq-2.4", "eq-2.5"]),
        (r"a \tag{3.1} \\ b \tag{3.2}", ["eq-3.1", "eq-3.2"]),
        (r"a \tag{Thm 1}", ["eq-thm-1"]),
    ],
)
def test_an_equation_is_named_by_its_numbers(tex, ids):
    """Every number under its tags is an id."""
    assert addresses.equation_ids(tex) == ids


def test_a_figure_is_named_by_what_moves_it_or_by_its_title():
    """A long title is cut between words."""
    moved = {"title": "It falls", "usermeta": {"icl": {"explorable": {"function": "fastWeights"}}}}
    assert addresses.figure_id(moved) == "fig-fastweights"
    assert addresses.figure_id({"title": {"text": ["It falls,", "and more"]}}) == "fig-it-falls-and-more"
    assert addresses.figure_id({"title": "word " * 20}) == "fig" + "-word" * 9
    assert addresses.figure_name("book/part/depth", moved) == "depth/fig-fastweights"


FIGURE = '<figure class="icl-chart"><script type="application/json">{"title": "It falls"}</script></figure>'
CHECK = "<p class='icl-check' id='check-a.b' data-verdict='x'><b>Claim.</b> <code>a.b</code></span></p>"


def page(*parts, name="book/adaptation/depth"):
    """A document of these parts with its addresses."""
    document = new_document("page")
    document.settings.env = SimpleNamespace(docname=name, config=SimpleNamespace(html_permalinks_icon="#"))
    document += parts
    addresses.Addresses(document).apply()
    return document


def raw(html):
    """HTML that a cell put out."""
    return nodes.raw("", html, format="html", classes=["output"])


def test_figures_equations_and_checks_have_a_link_to_themselves():
    """A figure becomes one that Sphinx numbers, with its title as caption; the others get a link to their id."""
    document = page(raw(FIGURE), nodes.math_block("", r"a \tag{16}"), raw(CHECK))
    figure, box, check = document.children
    assert (figure["ids"], figure["names"]) == (["fig-it-falls"], ["depth/fig-it-falls"])
    assert [type(part) for part in figure.children] == [nodes.raw, nodes.caption]
    assert figure[1].astext() == "It falls"
    assert box["ids"] == ["eq-16"]
    assert 'href="#eq-16"' in box[1].astext()
    assert "</code><a class='headerlink' href='#check-a.b'" in check.astext()


def test_a_page_without_a_number_has_addresses_too():
    """Its figures have an id and a link, and no number."""
    (box,) = page(raw(FIGURE), name="book/index").children
    assert box["ids"] == ["fig-it-falls"]
    assert 'href="#fig-it-falls"' in box[1].astext()


def test_two_of_one_name_are_told():
    """Two figures of one title would have one address: the build says so. Of two same equations the first has it."""
    with pytest.raises(SystemMessage, match="Duplicate ID"):
        page(raw(FIGURE), raw(FIGURE))
    document = page(nodes.math_block("", r"a \tag{1}"), nodes.math_block("", r"a \tag{1}"))
    assert [type(part) for part in document.children] == [nodes.container, nodes.math_block]


def boxes(*formulas, before=("first", "a = 1")):
    """Ids of the equations of a section, behind another section with one."""
    sections = [nodes.section("", nodes.title("", "A"), nodes.math_block("", before[1]), ids=[before[0]])]
    sections += [nodes.section("", *(nodes.math_block("", tex) for tex in formulas), ids=["the-pole"])]
    return [box["ids"] for box in page(*sections)[-1].children]


def test_an_equation_without_a_number_keeps_its_address_when_it_is_edited():
    """It is named by its section and its place there, nothing elsewhere moves it, and its old address leads to it."""
    (first, tagged, second) = boxes("a = b", r"b \tag{3}", "a\n = b + c")
    assert (first[0], tagged, second[0]) == ("eq-the-pole-1", ["eq-3"], "eq-the-pole-3")
    assert first[1] == "eq-" + hashlib.sha256(b"a=b").hexdigest()[:6]
    edited = boxes("a = 2b", r"b + 1 \tag{3}", "a = c", before=("renamed", "a = 7"))
    assert [ids[0] for ids in edited] == ["eq-the-pole-1", "eq-3", "eq-the-pole-3"]
    assert boxes("a", "a")[1] == ["eq-the-pole-2"]  # the first of two has the old address, as it had


def test_an_equation_in_an_exercise_is_named_by_it():
    """By its label, not by its heading."""
    content = nodes.section("", nodes.math_block("", "a = b"), ids=["solution-content"])
    solution = solution_node("", content, target_label="ex-pole", ids=["book/a-solution-3"])
    page(solution)
    assert content[0]["ids"][0] == "eq-ex-pole-solution-1"


def test_an_author_may_name_an_equation():
    """With a target above it, as above a heading; it is the only id of that name."""
    document = publish_doctree("A\n=\n\n.. _eq-gap:\n\n.. math:: a = b\n")
    document.settings.env = SimpleNamespace(docname="book/a", config=SimpleNamespace(html_permalinks_icon="#"))
    addresses.Addresses(document).apply()
    (box,) = document.findall(nodes.container)
    assert box["ids"][0] == "eq-gap"
    assert document.ids["eq-gap"] is box
    assert not box[0]["ids"]


def test_a_solution_has_its_exercises_name():
    """Its old id, which was its place, still leads to it; what is inside has an id of its own."""
    solution = solution_node(target_label="ex-pole", ids=["book/a-solution-3"])
    solution += nodes.section(ids=["solution-content"])
    page(solution)
    assert solution["ids"] == ["ex-pole-solution", "book/a-solution-3"]
    assert solution[0]["ids"] == ["ex-pole-solution-content"]


def test_a_notebooks_figures_have_the_pages_numbers():
    """In the order of its outputs; on a page without a number they have none."""
    for name, captions in (("book/adaptation/depth", ["Figure 8.1", "Figure 8.2"]), ("book/index", [])):
        outputs = [nbformat.v4.new_output("display_data", {"text/html": html}) for html in (FIGURE, CHECK, FIGURE)]
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("draw()", outputs=outputs)])
        runs.number_figures(notebook, name)
        shown = "".join(runs.outputs(notebook, "text/html"))
        assert re.findall(r'<figure class="icl-chart"><figcaption>(.*?)</figcaption>', shown) == captions
