"""A number of an equation is one that the page shows, or a page that it links beside the number."""

import chapters
import equations
import prose
import pytest


def test_the_books_numbers_are_of_equations_that_it_shows():
    """Each page's numbers stand in a tag of its own, of a page it links, or in the list of those that nobody shows."""
    equations.examine()


SHOWN = "$$\na = b\n\\tag{16}\n$$\n\n$$\nc\n\\tag{2.3 to 2.5}\n$$\n"
OTHER = "$$\nd\n\\tag{7}\n$$\n"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("By (16) and (2.4), with `f(61)` and $f(61)$, 3.1 (12) and (0.5).", []),
        ("By (61) it falls.", ["61"]),
        ("By (16), (2.6) and (5).", ["2.6", "5"]),
        ("The class (1.1) is not shown.", []),
        ("By (16) and (7), see [the other](two.md).", []),
        ("By [(7)](two.md#so).\n\nBy (7) again.", []),
        ("By (7), which a neighbour shows.", ["7"]),
        ("See [the other](two.md).\n\nBy (7).", ["7"]),
        ("It is (8) of [another part](../b/page.md).", []),
        ("It is (8) of [the other](two.md).", ["8"]),
    ],
)
def test_a_wrong_number_is_named(text, wrong):
    """What neither the page nor one linked beside it shows is reported with the words around; no other number is."""
    texts = {
        "book/a/one": f"# One\n\n{SHOWN}\n\nThe class (1.1).\n\n{text}\n",
        "book/a/two": OTHER,
        "book/b/page": "$$\nd\n\\tag{8}\n$$\n",
    }
    found = equations.faults(texts, {"book/a/one": {"1.1": "a class"}})
    assert len(found) == len(wrong)
    for fault, number in zip(found, wrong, strict=True):
        assert fault.startswith(f"book/a/one.md: this page does not show equation ({number}), nor does one that it lin")


def test_a_mistyped_tag_is_found_by_those_who_name_it():
    """With another number in the tag, the text's is shown nowhere."""
    assert len(equations.faults({"book/a/one": f"{SHOWN.replace('16', '61')}\n\nBy (16)."}, {})) == 1


def test_a_number_of_another_chapter_is_no_number_of_this_one():
    """In the book itself: a chapter's (1) typed as (15), which others of its part show, is red."""
    page = "book/adaptation/how-much-to-forget"
    texts = {each: chapters.source(each) for each in chapters.pages()}
    texts[page] += "\n\nBy (15).\n"
    assert len(equations.faults(texts, equations.untold())) == 1


def test_the_list_has_what_is_shown_nowhere(tmp_path, monkeypatch):
    """A number that is shown or not named is no longer listed, nor a page that is gone; another form is refused."""
    told = {"book/a/one": {"16": "x", "3": "y"}, "book/a/gone": {"4": "z"}}
    assert equations.faults({"book/a/one": f"{SHOWN}\n\nBy (16)."}, told) == [
        "book/equations.yml: (16) of book/a/one is shown",
        "book/equations.yml: book/a/one does not name (3)",
        "book/equations.yml: there is no page book/a/gone",
    ]
    monkeypatch.setattr(chapters, "ROOT", tmp_path)
    (tmp_path / "book").mkdir()
    for broken in ("- a", "a: [16]", "a: {16: x}", "a: ["):
        (tmp_path / "book/equations.yml").write_text(broken)
        with pytest.raises(chapters.Broken, match=r"book/equations.yml: "):
            equations.untold()


def test_paragraphs_are_the_text():
    """Together they are what `text_of` has, cells and displays left out."""
    source = f"---\nx: y\n---\n\n# One\n\n{SHOWN}\nBy (16),\n*so*.\n\n```{{code-cell}}\n# (3)\n\nx\n```\n\n- a\n- b\n"
    assert prose.paragraphs(source) == ["# One", "By (16), so.", "- a - b"]
    assert " ".join(prose.paragraphs(source)) == prose.text_of(source)
