"""What is talked about has an address: ids, the links to them, and the same numbers on page, notebook and slides."""

import re
from html import unescape

import chapters
import chromium
import nbformat
import notebooks
import numbering
import pytest
import runs
from bs4 import BeautifulSoup

HTML = chapters.ROOT / "_build" / "html"
NUMBERED = [page for page in chapters.pages() if numbering.chapter(page)]


def article(page):
    """The article of a page of the site."""
    return BeautifulSoup((HTML / f"{page}.html").read_text(encoding="utf-8"), "html.parser").select_one(".bd-article")


@pytest.fixture(scope="module", params=NUMBERED)
def chapter(request):
    """A chapter's name and article."""
    return request.param, article(request.param)


def test_an_id_stands_once_on_its_page():
    """On every page of the site."""
    twice = []
    for path in HTML.rglob("*.html"):
        ids = re.findall(r"""\bid=["']([^"']+)["']""", path.read_text(encoding="utf-8"))
        twice += [f"{path.relative_to(HTML)}: {one}" for one in set(ids) if ids.count(one) > 1]
    assert not twice, "\n".join(twice)


def test_what_is_talked_about_has_a_link_to_itself(chapter):
    """Every figure, exercise and check, and every displayed equation but a number that the page shows a second time."""
    _, body = chapter
    owners = body.select("figure.icl-figure, .exercise, .icl-check")
    assert len(body.select("figure.icl-chart")) == len(body.select("figure.icl-figure > * figure.icl-chart")) > 0
    for owner in owners:
        assert owner.select(f'a.headerlink[href="#{owner["id"]}"]'), owner["id"]
    seen = set()
    for formula in body.select("div.math"):
        if (box := formula.parent) and "icl-equation" in box.get("class", ()):
            assert box.find("a", href=f"#{box['id']}", recursive=False)
        else:
            assert formula.get_text() in seen
            assert r"\tag{" in formula.get_text()
        seen.add(formula.get_text())


def test_numbers_are_those_of_the_sources(chapter):
    """Figures and exercises are counted by chapter, in their order; a solution names its exercise's number."""
    page, body = chapter
    figures = [one.get_text().strip() for one in body.select("figure.icl-figure .caption-number")]
    assert figures == [f"Figure {numbering.number(page, count)}" for count in range(1, len(figures) + 1)]
    exercises = {
        one["id"]: one.select_one(".caption-number").get_text().strip().removeprefix("Exercise ")
        for one in body.select(".exercise")
    }
    assert list(exercises.items()) == list(numbering.exercises(page).items())
    for solution in body.select(".solution"):
        label = solution["id"].removesuffix("-solution")
        assert solution.select_one("a")["href"] == f"#{label}"
        assert f"Exercise {exercises[label]} " in solution.select_one(".admonition-title").get_text()
    heading = body.select_one("h1 .section-number")
    assert heading.get_text().strip() == f"{numbering.chapter(page)}."


def test_notebooks_have_the_numbers_of_pages(chapter):
    """Both downloads' exercises, their solutions or the links to them, and their figures."""
    page, body = chapter
    exercises = list(numbering.exercises(page).values())
    solution = {
        page: r"\[Solution of Exercise (\S+)\]\(",
        page + notebooks.SOLUTIONS: r"#### Solution of Exercise (\S+)",
    }
    for name in notebooks.files(page):
        notebook = nbformat.read(HTML / "_sources" / f"{name}.ipynb", as_version=4)
        text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        assert re.findall(r"^#### Exercise (\S+)", text, re.M) == exercises
        assert re.findall(f"^{solution[name]}", text, re.M) == exercises
        figures = body.select("figure.icl-figure .caption-number")
        shown = [one.get_text().strip() for one in figures if name != page or not one.find_parent(class_="solution")]
        outputs = "".join(runs.outputs(notebook, "text/html"))
        assert re.findall(r"<figcaption>(Figure [^<]+)</figcaption>", outputs) == shown


def test_the_sidebar_and_teachers_lists_have_the_numbers():
    """Chapters in the list of pages; exercises where syllabi set them."""
    page = BeautifulSoup((HTML / f"{NUMBERED[0]}.html").read_text(encoding="utf-8"), "html.parser")
    listed = [link.get_text() for link in page.select(".bd-sidebar-primary li.toctree-l1 > a")]
    numbers = [int(number) for text in listed if (number := text.partition(". ")[0]).isdigit()]
    assert numbers == list(range(1, len(NUMBERED) + 1))
    known = {label: number for page in NUMBERED for label, number in numbering.exercises(page).items()}
    links = article("book/course/teach").select("a[href*='#ex-']")
    assert links
    for link in links:
        assert link.get_text().split()[0] == known[link["href"].rpartition("#")[2]]


def test_a_borrowed_figure_leads_to_its_own_page():
    """On a page before the chapters, by the number that it has there."""
    links = article("book/start/ten-results").select(".icl-borrowed > p > a")
    assert links
    for link in links:
        path, _, place = link["href"].partition("#")
        target = (HTML / "book/start" / path).resolve().relative_to(HTML.resolve()).with_suffix("").as_posix()
        there = article(target).find(id=unescape(place))
        assert there.select_one(".caption-number").get_text().strip() == link.get_text()


@pytest.mark.parametrize("thing", ["figure.icl-figure", ".icl-equation", ".exercise", ".icl-check", "h2"])
def test_the_link_shows_under_pointer_and_keyboard(visit, thing):
    """And not before."""
    page = visit("book/adaptation/how-much-to-forget").page
    owner = page.locator(f".bd-article {thing}").first
    owner.scroll_into_view_if_needed()
    link = owner.locator("a.headerlink").first
    page.mouse.move(0, 0)
    shown = "link => getComputedStyle(link).opacity === '1' && getComputedStyle(link).visibility === 'visible'"
    assert not link.evaluate(shown)
    (owner.locator(".admonition-title") if thing == ".exercise" else owner).hover()
    assert link.evaluate(shown)
    page.mouse.move(0, 0)
    page.keyboard.press("Tab")  # from here on the focus is the keyboard's
    link.focus()
    assert link.evaluate(shown)
    link.press("Enter")
    assert page.url.endswith(link.get_attribute("href"))


def test_one_button_opens_and_closes_all_code(visit):
    """It says what it will do, follows a fold that a reader opens, and moves nothing else."""
    page = visit("book/adaptation/depth").page
    folds = page.locator(".bd-article details.hide")
    opened = "folds => folds.filter(fold => fold.open).length"
    assert folds.count() > 1
    button = page.get_by_role("button", name="Show all code")
    button.click()
    assert folds.evaluate_all(opened) == folds.count()
    assert page.locator(".bd-article details.sd-dropdown[open]").count() == 0
    button = page.get_by_role("button", name="Hide all code")
    button.press("Enter")
    assert folds.evaluate_all(opened) == 0
    folds.evaluate_all("folds => folds.forEach(fold => { fold.open = true; })")
    page.get_by_role("button", name="Hide all code").wait_for()


SCROLLING = """() => [...document.querySelectorAll('.bd-article :is(div.math, .icl-scroll, .icl-long)')].map(box => {
    const style = getComputedStyle(box), edge = name => parseFloat(style.getPropertyValue(name));
    return {
        scrolls: box.scrollWidth > box.clientWidth + 1, cued: edge('--on') + edge('--from') > 0,
        reached: box.tabIndex === 0 && box.getAttribute('role') === 'group' && !!box.getAttribute('aria-label'),
        shown: box.checkVisibility(),
    };
}).filter(box => box.shown)"""


def test_formulas_that_scroll_say_so_and_are_reached_by_keyboard(visit):
    """On a phone: the edge fades, and the arrow keys scroll; a formula that fits is no stop on the way."""
    page = visit("book/memory/one-register", width=320).page
    page.evaluate("window.MathJax.startup.promise.then(() => 0)")
    boxes = page.evaluate(SCROLLING)
    assert {box["scrolls"] for box in boxes} == {True, False}
    assert all(box["scrolls"] == box["cued"] == box["reached"] for box in boxes)
    formula = page.locator("div.math[tabindex]").first
    formula.focus()
    formula.press("ArrowRight")
    page.wait_for_function("document.activeElement.scrollLeft > 0 && document.activeElement.matches('.icl-came-from')")


class Missing(chromium.Quiet):
    """Serves the page for missing addresses, as hosts do."""

    def send_error(self, code, *how, **more):
        if code != 404:
            super().send_error(code, *how, **more)
            return
        text = (HTML / "404.html").read_bytes()
        self.send_response(404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@pytest.mark.parametrize("folder", ["", "books/learning"])
@pytest.mark.parametrize("missing", ["gone", "book/adaptation/deep/gone"])
def test_a_missing_address_finds_the_book(visit, tmp_path, monkeypatch, folder, missing):
    """Whatever folder of a host the book is in, and however deep the address: the page has its style and its links."""
    root = tmp_path / "host"
    place = root / folder
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(HTML)
    if folder:
        (root / "index.html").touch()
    monkeypatch.setattr(chromium, "Quiet", Missing)
    with chromium.served(root) as origin:
        page = visit(f"{folder}/{missing}".strip("/"), origin=origin).page
        assert page.get_by_role("heading", name="Page not found").is_visible()
        assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--icl-accent')")
        assert page.locator("a[href$='#main-content']").first.evaluate("link => link.pathname === location.pathname")
        page.locator(".bd-sidebar-primary a", has_text="Depth").first.click()
        assert page.locator(".bd-article h1").inner_text().startswith("8. Depth")
