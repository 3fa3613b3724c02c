"""How readers find their way: search by symbol and name, what a page's head and foot say, links to every heading."""

import re
from html import unescape

import chapters
import descriptions
import pytest
from PIL import Image

HTML = chapters.ROOT / "_build" / "html"
CHAPTERS = chapters.with_cells()

#: What a reader types, and places that must be among the first ten results; the first of a symbol says what it is.
QUERIES = {
    "λ": ["book/start/glossary.html#term-forgetting-factor", "book/start/notation.html#symbol-lam"],
    "lambda": ["book/start/glossary.html#term-forgetting-factor", "book/adaptation/"],
    "σ_w": ["book/start/notation.html#symbol-sigma-w", "book/adaptation/"],
    "sigma_w": ["book/start/notation.html#symbol-sigma-w"],
    r"\gamma": ["book/start/glossary.html#term-persistence", "book/adaptation/"],
    "γ": ["book/start/glossary.html#term-persistence", "book/start/notation.html#symbol-gamma"],
    "D₃": ["book/adaptation/"],
    "D3": ["book/start/notation.html#symbol-capital-d3"],
    "λ*": ["book/adaptation/how-much-to-forget.html"],
    "optimal_forgetting": ["book/reference/library/theory.html#icl.theory.one_layer.closed_forms.optimal_forgetting"],
    "Ribiere": ["book/reference/bibliography.html"],
    "icl.filters.rls": ["book/reference/library/filters-and-solvers.html#icl.filters.rls"],
}


@pytest.fixture(scope="module")
def searching(browser, site):
    """The page of the search, which finds what it is given."""
    page = browser.new_page()
    page.goto(f"{site}/search.html")
    page.wait_for_function("() => typeof Search === 'object' && Search.hasIndex()")
    yield page
    page.close()


@pytest.mark.parametrize("query", QUERIES)
def test_search_finds_symbols_and_names(searching, query):
    """Among the first ten results of a query are the places that define or use it, as a reader sees them."""
    found = searching.evaluate(
        """query => {
            const results = Search._performSearch(...Search._parseQuery(query));
            return results.reverse().slice(0, 10).map(([page, title, anchor]) => `${page}.html${anchor}`);
        }""",
        query,
    )
    missing = [place for place in QUERIES[query] if not any(one.startswith(place) for one in found)]
    assert not missing, found
    if "#" in QUERIES[query][0]:
        assert found[0] == QUERIES[query][0]


def test_a_result_shows_what_was_found(visit):
    """A letter typed into the dialog leads to results; the first link goes to the place, which says what it is."""
    watched = visit("book/adaptation/depth")
    watched.page.keyboard.press("Control+k")
    watched.page.locator("#pst-search-dialog input").fill("σ_w")
    watched.page.keyboard.press("Enter")
    first = watched.page.locator("#search-results li").first
    first.locator("p.context").wait_for()
    assert "standard deviation" in first.inner_text()
    watched.page.wait_for_load_state("networkidle")  # every result shows a piece of its page
    first.locator("a").click()
    assert watched.page.url.endswith("notation.html#symbol-sigma-w")
    watched.page.locator("#symbol-sigma-w").wait_for()
    assert not watched.faults


def test_the_search_is_not_heavy():
    """Its index is less than a megabyte, and no page of the library's reference more than a quarter."""
    assert (HTML / "searchindex.js").stat().st_size < 800_000
    sizes = {path.stem: path.stat().st_size for path in (HTML / "book/reference/library").glob("*.html")}
    assert {page: size for page, size in sizes.items() if size > 250_000} == {}


def meta(html):
    """What a page's head says, by name."""
    return {k: unescape(v) for k, v in re.findall(r'<meta (?:name|property)="([^"]+)" content="([^"]*)"', html)}


def test_every_page_has_a_preview():
    """Title, description and picture in every head; the picture is there, of its size, and a chapter's is its own."""
    pictures = {}
    for page in chapters.pages():
        path = HTML / f"{page}.html"
        said = meta(path.read_text(encoding="utf-8"))
        assert said["og:description"] == said["description"] == descriptions.description(page)
        assert said["og:title"]
        assert len(said["og:image:alt"]) > 20
        assert said["twitter:card"] == "summary_large_image"
        assert ("og:url" in said) == said["og:image"].startswith("https:")
        pictures[page] = HTML / "_images/previews" / said["og:image"].rpartition("/")[2]
        with Image.open(pictures[page]) as picture:
            assert [*map(str, picture.size)] == [said["og:image:width"], said["og:image:height"]]
        assert pictures[page].stat().st_size < 60_000
    assert len({pictures[page] for page in CHAPTERS}) == len(CHAPTERS)
    assert len(set(pictures.values())) == len(CHAPTERS) + 1
    assert set((HTML / "_images/previews").iterdir()) == set(pictures.values())


def test_every_heading_has_a_link_to_itself():
    """Of all h1 to h3 of every page, generated ones too; the place is there."""
    bare = []
    for page in chapters.pages():
        html = (HTML / f"{page}.html").read_text(encoding="utf-8")
        article = html[html.index('<article class="bd-article">') : html.index("</article>")]
        places = set(re.findall(r'\bid="([^"]+)"', article))
        for heading in re.findall(r"<h[1-3]\b.*?</h[1-3]>", article, re.S):
            link = re.search(r'class="headerlink" href="#([^"]+)"', heading)
            if not link or link[1] not in places:
                bare.append(f"{page}: {heading[:80]}")
    assert not bare, "\n".join(bare)


def test_neighbours_say_what_they_are_about():
    """The links to the pages before and after have a line each: that page's own description."""
    names = chapters.pages()
    for before, page, after in zip([None, *names], names, [*names[1:], None], strict=False):
        html = (HTML / f"{page}.html").read_text(encoding="utf-8")
        lines = [unescape(line) for line in re.findall(r'<p class="icl-line">(.*?)</p>', html)]
        assert lines == [descriptions.description(name) for name in (before, after) if name], page


def test_a_chapter_says_how_to_cite_run_and_mend_it(visit):
    """Folds at the foot: a citation with a button that copies it, the download, and where faults are reported."""
    page = visit("book/memory/one-register").page
    aids = page.locator(".icl-aids")
    assert aids.count() == 1
    aids.locator("summary", has_text="Cite").click()
    assert re.match(r"@incollection\{icl-one-register,\n  author = \{\{", aids.locator("pre").first.inner_text())
    assert aids.locator("button.copybtn").first.is_visible()
    aids.locator("summary", has_text="Run it").click()
    assert "make page PAGE=memory/one-register" in aids.inner_text()
    assert aids.locator("a[download]").get_attribute("href").endswith("/one-register.ipynb")
    assert aids.get_by_text("Report a fault").is_visible()
    page.emulate_media(media="print")
    assert not aids.is_visible()


def test_all_chapters_have_their_aids():
    """Chapters have them once, other pages not."""
    with_aids = [p for p in chapters.pages() if 'class="icl-aids"' in (HTML / f"{p}.html").read_text(encoding="utf-8")]
    assert with_aids == CHAPTERS
