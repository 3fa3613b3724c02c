"""What the build says of pages: a sentence each, a picture, how to cite one; and what the search makes of text."""

import io
import json
import re
import subprocess
from types import SimpleNamespace

import chapters
import descriptions
import page_footer
import previews
import pytest
import searching
from PIL import Image

from icl_book import notation

SVG = (
    '<svg version="1.1" xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
    'class="marks" width="300" height="150" viewBox="0 0 300 150"><path d="M0 0L300 150" stroke="red"/></svg>'
)


def test_every_page_says_what_it_is_about():
    """Plain text without marks of Markdown or TeX, and no other page's."""
    about = {page: descriptions.description(page) for page in chapters.pages()}
    marked = [page for page, said in about.items() if not said or re.search(r"[$\\{}*`\[\]]", said)]
    assert marked == []
    assert len(set(about.values())) == len(about)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("# A\n\nFirst, $\\beta\\mathbf I$ at [a page](b.md). Then a longer one, " + 185 * "!", "First, βI at a page."),
        ("# A\n\nFirst, at `b`. Then another.\n\nA third.", "First, at b. Then another."),
        (
            "# A\n\nLong ago.\n\n## In short\n\n**Loss** falls\nlike $\\lambda^{\\,j} \\le 1/2$. Next one.\n",
            "Loss falls like λ^j ≤ 1/2. Next one.",
        ),
        ("---\ndescription: Its own.\n---\n\n# A\n\nText.\n", "Its own."),
        ("# A\n\n```{page-card}\nNot this.\n```\n\nThis, {term}`risk <r>` too.\n", "This, risk too."),
        ("# A\n\nOne clause: " + "and more words " * 20 + "at last.\n", "One clause."),
    ],
)
def test_a_page_is_described_by_its_first_sentence(source, said):
    """Of its In short, else of its first paragraph; formulas in plain letters; what is too long ends with a clause."""
    assert descriptions._describe(source) == said


def test_a_picture_is_drawn_once(tmp_path, monkeypatch):
    """Of the size that is announced and small; drawn again if the figure changes, and the old one goes."""
    card = previews.card("A title of several words", SVG)
    path = tmp_path / previews.lay(tmp_path, "book/part/a", card)
    drawn = Image.open(io.BytesIO(path.read_bytes())).convert("RGB")
    assert drawn.size == previews.SIZE
    assert path.stat().st_size < 60_000
    assert {(255, 255, 255), (11, 95, 158)} <= {colour for _, colour in drawn.getcolors(1 << 20)}
    assert any(r > 180 and g < 90 and b < 90 for _, (r, g, b) in drawn.getcolors(1 << 20))  # the figure is in it
    monkeypatch.setattr(previews, "png", lambda svg: svg.encode())
    assert previews.lay(tmp_path, "book/part/a", card) == path.relative_to(tmp_path).as_posix()
    assert path.read_bytes().startswith(b"\x89PNG")
    other = tmp_path / previews.lay(tmp_path, "book/part/a", card + " ")
    assert other.read_bytes() == (card + " ").encode()
    assert list(path.parent.iterdir()) == [other]


def test_a_card_without_a_figure_names_the_book():
    """The picture that pages without a figure share."""
    drawn = Image.open(io.BytesIO(previews.png(previews.card(previews.BOOK, None))))
    assert drawn.size == previews.SIZE
    assert previews.SUBTITLE in previews.card(previews.BOOK, None)


def test_a_chapter_is_cited_with_its_state(monkeypatch):
    """Authors and title of CITATION.cff, the chapter, version, commit and day; without a history the release's day."""
    page_footer._state.cache_clear()
    monkeypatch.setattr(
        subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 0, stdout="abc1234 2031-02-03\n", stderr="")
    )
    sentence, bibtex = page_footer.citation("book/part/depth", "Depth & <more>", "https://a.b/c.html")
    assert sentence == (
        "The authors of Learning to Adapt (2031). Depth & <more>. In: "
        f"{page_footer._work()['title']}, version {page_footer._work()['version']}, commit abc1234, 2031-02-03."
    )
    assert bibtex.startswith("@incollection{icl-depth,\n  author = {{The authors of Learning to Adapt}},\n")
    assert "  year = {2031},\n" in bibtex
    assert bibtex.endswith("  url = {https://a.b/c.html}\n}")
    page_footer._state.cache_clear()
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 128, stdout="", stderr=""))
    assert page_footer._state() == ("", str(page_footer._work()["date-released"]))
    page_footer._state.cache_clear()


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (r"2\lambda^{\star}", ["2", "lambda", "lambda_star"]),
        ("λ* and σₑ", ["lambda", "lambda_star", "and", "sigma", "sigma_e"]),
        (r"\sigma_{\mathrm w}^2", ["sigma", "sigma_w", "2"]),
        (r"\tilde{\mathbf\Lambda}\beta_3", ["lambda", "beta", "beta3"]),
        (r"\frac{D_1^2}{D_2}", ["D1", "2", "D2"]),
        ("optimal_forgetting(D3)", ["optimal_forgetting", "D3"]),
        ("Plain words, a b.", ["Plain", "words", "a", "b"]),
        ("Polak and Ribière", ["Polak", "and", "Ribiere"]),
    ],
)
def test_symbols_have_one_spelling(written, words):
    """TeX, Greek letters and names in code give the same words of the index; other text gives its own."""
    assert searching.words(written) == words


def test_a_symbol_is_found_by_letter_and_name():
    """Each row of the notation table has a place of its own, and is listed under what a reader may type for it."""
    places = [searching.anchor(symbol.code) for symbol in notation.SYMBOLS]
    assert len(set(places)) == len(places)
    assert searching.forms(r"\sigma_w", "sigma_w") == [r"\sigma_w", "sigma_w", "σ_w"]
    assert searching.forms(r"\lambda", "lam") == [r"\lambda", "lam", "lambda", "λ"]
    assert searching.forms("D_3", "D3") == ["d3", "d_3"]
    assert searching.forms(r"\bar{\mathbf\Lambda}", "Lambda_bar") == ["lambda_bar"]
    assert searching.forms(r"$\mathbf R_\ell$") == []


def test_the_search_keeps_index_entries_of_pages_that_stay(tmp_path):
    """Those that the last build wrote down are known again, once, and no others, such as of a page that is gone or of
    one that has lost an entry; a first build knows none, and so does one whose index is damaged.
    """
    app = SimpleNamespace(outdir=tmp_path)
    kept = {"a": [("older", "older", "")], "gone": [("x", "x", "")]}
    environment = SimpleNamespace(all_docs={"a": 0, "b": 0}, found_docs={"a"}, _search_index_index_entries=kept)
    assert searching._know_again(app, environment) == []
    assert kept == {}
    entries = {"lms": [[0, "lms", True], [1, "x", True]], "rls": [[0, "r", False]]}
    index = {"docnames": ["a", "gone"], "indexentries": entries}
    (tmp_path / "searchindex.js").write_text(f"Search.setIndex({json.dumps(index)})")
    for _ in range(2):
        searching._know_again(app, environment)
        assert kept == {"a": [("lms", "lms", "main"), ("rls", "r", "")]}
    (tmp_path / "searchindex.js").write_text("Search.setIndex({")
    searching._know_again(app, environment)
    assert kept == {}
    environment.found_docs.add(searching.GLOSSARY)
    assert searching._know_again(app, environment) == [searching.GLOSSARY]
