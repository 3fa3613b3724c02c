"""The pages before the chapters: a result a screen, figures that are the chapters' own and move, cards that lead on."""

import re
from xml.etree import ElementTree

import chapters
import news
import pytest
import runs
import transclude

TEN, LANDING = "book/start/ten-results", "book/index"
HTML = chapters.ROOT / "_build" / "html"
RESULTS = "section:has(> .icl-door)"


def drawn(page):
    """The specifications of a built page's figures, as text."""
    return runs.specifications((HTML / f"{page}.html").read_text(encoding="utf-8"))


def test_a_result_is_a_screen(visit):
    """On a usual screen each of ten results is whole: heading, figure, paragraph, claims and door, none taller."""
    watched = visit(TEN)
    watched.read_through()
    found = watched.page.locator(RESULTS)
    assert found.count() == 10
    for result in found.all():
        result.scroll_into_view_if_needed()
        assert result.bounding_box()["height"] <= 900
        assert result.locator("h2").count() == result.locator(".icl-chart__view svg").count() == 1
        door, badge = result.locator(".icl-door__way"), result.locator(".icl-verdict")
        assert re.search(r"/book/(adaptation|memory|selection|synthesis)/[\w-]+\.html$", door.evaluate("a => a.href"))
        assert badge.evaluate("a => a.href").startswith(f"{door.evaluate('a => a.href')}#check-")
    assert not watched.faults


@pytest.mark.parametrize("page", [TEN, LANDING])
def test_figures_are_the_chapters(page):
    """Each borrowed figure stands in its chapter too, number for number."""
    source = chapters.source(page)
    lent = {spec for lender in transclude.lenders(source) for spec in drawn(lender)}
    own = set(runs.charts(runs.cached(page))) if chapters.is_chapter(source) else set()
    assert set(drawn(page)) - own <= lent
    assert len(drawn(page)) == transclude.pictures(source) + len(own)


def test_a_borrowed_figure_moves(visit):
    """Sliders of a borrowed figure recompute what they say, as on the chapter's page."""
    watched = visit(TEN)
    watched.read_through()
    page = watched.page
    moving = page.locator(f"{RESULTS} figure:has(.icl-controls)")
    assert moving.count() >= 5
    for figure in moving.all():
        readout = figure.locator(".icl-readout")
        before = readout.inner_text()
        figure.locator("input[type=range]").first.evaluate(
            "s => { s.value = s.value === s.min ? s.max : s.min; s.dispatchEvent(new Event('input')); }"
        )
        page.wait_for_function("([e, old]) => e.innerText !== old", arg=[readout.element_handle(), before])


@pytest.mark.parametrize(("width", "across"), [(1280, 4), (390, 1)])
def test_cards_lead_to_the_parts(visit, width, across):
    """Four cards with a picture and its description each, side by side or one a row; a click anywhere leads on."""
    page = visit(LANDING, width=width).page
    cards = page.locator(".icl-parts:not(.icl-doors) .sd-card")
    boxes = [card.bounding_box() for card in cards.all()]
    assert len(boxes) == 4
    assert sum(abs(box["y"] - boxes[0]["y"]) < 1 for box in boxes) == across
    for card in cards.all():
        picture = card.locator("img")
        assert len(picture.get_attribute("alt").split()) >= 8
        picture.scroll_into_view_if_needed()
        assert picture.evaluate("i => i.complete && i.naturalWidth > 0")
    last = cards.last
    target = last.get_by_role("link").evaluate("a => a.href")
    last.click(position={"x": 20, "y": 60})
    page.wait_for_url(target)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_path_is_marked(visit, theme):
    """Its chapters have a dot in the sidebar, and each one's foot leads to the next; another chapter's leads to all."""
    page = visit("book/adaptation/how-much-to-forget", theme=theme).page
    marked = page.locator(".bd-sidebar-primary a[data-path]")
    assert marked.evaluate_all("links => links.map(link => link.dataset.path)") == ["1", "2", "3", "4", "5", "6", "7"]
    assert marked.first.evaluate("link => getComputedStyle(link, '::after').content") == '"•"'
    assert page.locator(".icl-path").inner_text().startswith("Chapter 3 of 7 on the short path. Next on it: Adaptive")
    page.locator(".icl-path a").last.click()
    page.wait_for_url("**/adaptive-filters.html")
    page = visit("book/adaptation/gradient-flow").page
    page.locator(".icl-path a").click()
    page.wait_for_url("**/book/index.html#the-short-path")
    assert page.locator("#the-short-path ol li").count() == 7


def test_the_landing_figure_is_at_once_in_sight(visit):
    """The first figure begins in the upper half of a usual screen, as wide as the page's text; its code is below it."""
    watched = visit(LANDING)
    watched.read_through()
    figure = watched.page.locator(".icl-chart").first
    watched.page.evaluate("scrollTo(0, 0)")
    box, article = figure.bounding_box(), watched.page.locator(".bd-article").bounding_box()
    assert box["y"] < 450
    assert box["width"] > 0.9 * article["width"] > 850
    assert watched.page.locator("details:has(summary)").first.bounding_box()["y"] > box["y"]


def test_the_feed_has_the_news(visit, site):
    """It is announced in the page's head and linked below the lines, which are those of its first entries."""
    page = visit("book/evidence/whats-new").page
    announced = page.locator("head link[type='application/atom+xml']")
    lines = page.locator("#what-is-new")
    assert announced.get_attribute("rel") == "alternate"
    assert announced.evaluate("link => link.href") == f"{site}/{news.FILE}"
    assert lines.locator("a[type='application/atom+xml']").evaluate("link => link.href") == f"{site}/{news.FILE}"
    titles = ElementTree.parse(HTML / news.FILE).findall(f".//{{{news.ATOM}}}entry/{{{news.ATOM}}}title")
    shown = [" ".join(line.split()).replace("’", "'") for line in lines.locator("li").all_inner_texts()]
    assert shown == [title.text for title in titles[:12]]
    assert len(shown) > 4
