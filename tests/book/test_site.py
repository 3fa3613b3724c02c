"""What the site's build is spared: headings that no sidebar lists, documents within documents, Python's own source."""

import pickle
from types import SimpleNamespace

import book_site
import pytest
import sidebar
from docutils import nodes
from docutils.utils import new_document
from sphinx import addnodes


def contents(title, *below):
    """A page's contents as Sphinx keeps them: a list of its title, and a list of what stands below it."""
    item = nodes.list_item("", addnodes.compact_paragraph("", "", nodes.Text(title)))
    if below:
        item += nodes.bullet_list("", *below)
    return nodes.bullet_list("", item)


HEADINGS = contents("Page", contents("Heading"), contents("Another"))
LISTING = contents("Part", contents("Heading", addnodes.toctree(entries=[(None, "a")])), contents("Another"))


class Environment:
    """What Sphinx knows, as far as it goes here."""

    def __init__(self):
        self.tocs = {"page": HEADINGS, "part": LISTING}


def wrapped(whole):
    """What templates call for lists of pages, in place of `whole`, which is given all contents; and the environment."""
    environment = Environment()
    context = {"toctree": lambda **_: whole(environment.tocs)}
    sidebar._short(SimpleNamespace(env=environment), "page", "page.html", context, None)
    return context["toctree"], environment


def test_a_list_of_titles_reads_titles_and_lists_of_pages():
    """As Sphinx does by itself, of a copy; what a page lists in its sidebar is thus the same, and sooner found."""
    toctree, environment = wrapped(dict)
    found = toctree(titles_only=True)
    assert [node.astext().strip() for node in found.values()] == ["Page", "Part"]
    assert [len(list(node.findall(addnodes.toctree))) for node in found.values()] == [0, 1]
    assert environment.tocs == {"page": HEADINGS, "part": LISTING}  # only meanwhile
    assert HEADINGS.astext().split() == ["Page", "Heading", "Another"]


def test_another_list_has_all_headings():
    """The contents of one page are not cut short."""
    toctree, _ = wrapped(dict)
    assert toctree() == toctree(titles_only=False) == {"page": HEADINGS, "part": LISTING}


def test_a_fault_leaves_all_headings_there():
    """What goes wrong within a template does not leave pages without headings."""

    def fails(tocs):
        raise ValueError("no such page")

    toctree, environment = wrapped(fails)
    with pytest.raises(ValueError, match="no such page"):
        toctree(titles_only=True)
    assert environment.tocs == {"page": HEADINGS, "part": LISTING}


def test_a_page_is_kept_without_what_its_parts_came_from():
    """A paragraph made in a document of its own, whose settings hold megabytes, is the page's."""
    page, other = new_document("page"), new_document("other")
    other.settings.everything = "x" * 1_000_000
    paragraph = nodes.paragraph("", "Words.")
    other += paragraph
    page += paragraph
    book_site._one_document(None, page)
    assert all(node.document is page for node in page.findall())
    page.reporter = None
    assert len(pickle.dumps(page)) < 100_000


def test_pages_of_code_are_the_librarys():
    """Python's modules, whose functions wrap some of the library's, have none."""
    environment = SimpleNamespace(_viewcode_modules={"icl.filters": (), "functools": (), "iclones": False})
    book_site._own_code(None, environment)
    assert list(environment._viewcode_modules) == ["icl.filters"]
    book_site._own_code(None, SimpleNamespace())
