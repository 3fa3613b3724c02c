"""A number of an equation is one that a page of the part shows."""

import chapters
import equations
import pytest


def test_the_books_numbers_are_of_equations_that_it_shows():
    """Each page's numbers stand in a tag of its part, or in the list of those that nobody shows."""
    equations.examine()


SHOWN = "$$\na = b\n\\tag{16}\n$$\n\n$$\nc\n\\tag{2.3 to 2.5}\n$$\n"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("By (16) and (2.4), with `f(61)` and $f(61)$, 3.1 (12) and (0.5).", []),
        ("By (61) it falls.", ["61"]),
        ("By (16), (2.6) and (5).", ["2.6", "5"]),
        ("The class (1.1) is not shown.", []),
        ("It is (7) of [another part](../b/page.md).", []),
        ("It is (7) of another part.", ["7"]),
    ],
)
def test_a_wrong_number_is_named(text, wrong):
    """What no tag of the part has is reported with the page and the words around; numbers of other kinds are not."""
    texts = {"book/a/one": SHOWN, "book/a/two": f"# Two\n\n{text}\n", "book/b/page": "$$\nd\n\\tag{7}\n$$\n"}
    found = equations.faults(texts, {"a": {"1.1": "a class"}})
    assert len(found) == len(wrong)
    for fault, number in zip(found, wrong, strict=True):
        assert fault.startswith(f"book/a/two.md: no page of this part shows equation ({number}), in: …")


def test_a_mistyped_tag_is_found_by_those_who_name_it():
    """With another number in the tag, the text's is shown nowhere."""
    texts = {"book/a/one": SHOWN.replace("16", "61"), "book/a/two": "By (16)."}
    assert len(equations.faults(texts, {})) == 1


def test_the_list_has_what_is_shown_nowhere(tmp_path, monkeypatch):
    """A number that a page shows is no longer listed; a list of another form is refused."""
    assert equations.faults({"book/a/one": SHOWN}, {"a": {"16": "x"}}) == ["book/equations.yml: (16) of a is shown"]
    monkeypatch.setattr(chapters, "ROOT", tmp_path)
    (tmp_path / "book").mkdir()
    for broken in ("- a", "a: [16]", "a: {16: x}", "a: ["):
        (tmp_path / "book/equations.yml").write_text(broken)
        with pytest.raises(chapters.Broken, match=r"book/equations.yml: "):
            equations.untold()
