"""Every page, wide and narrow, light and dark: what a reader would stumble over."""

import chapters
import pytest
from axe_playwright_python.sync_playwright import Axe

HTML = chapters.ROOT / "_build" / "html"
PAGES = [*chapters.pages(), "404", "genindex", "py-modindex", "search"]


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_page(visit, name, theme, width):
    """No external or failed request, no console error, no sideways scrolling, all drawn, axe content."""
    watched = visit(name, width=width, theme=theme)
    page = watched.page
    watched.read_through()
    assert not watched.faults
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("mjx-merror").count() == 0
    math = page.locator(".math").count()
    assert page.locator("mjx-container").count() >= math
    for figure in page.locator(".icl-chart").all():
        assert figure.get_attribute("data-drawn") == theme
        assert figure.locator(".icl-chart__view svg path").count() > 0
    found = [
        f"{v['id']} ({v['impact']}): {v['nodes'][0]['html'][:160]} [{len(v['nodes'])}]"
        for v in Axe().run(page).response["violations"]
    ]
    assert not found, "\n".join(found)


# Only a server ever shows the page for missing addresses, and it may stand at any depth: its links start at the root.
@pytest.mark.parametrize("name", [name for name in PAGES if name != "404"])
def test_from_a_folder(visit, name):
    """The site works opened as a file, without any server: nothing missing, charts and mathematics drawn."""
    watched = visit(name, origin=HTML.as_uri())
    watched.read_through()
    assert not watched.faults
    assert watched.page.locator(".icl-chart[data-drawn=failed]").count() == 0
    assert watched.page.locator("mjx-merror").count() == 0


@pytest.mark.parametrize("name", PAGES)
def test_without_javascript(visit, name):
    """Without JavaScript every figure is a picture with a description."""
    watched = visit(name, java_script_enabled=False)
    for picture in watched.page.locator(".icl-chart img").all():
        assert picture.is_visible()
        assert len(picture.get_attribute("alt").split()) >= 8
        assert picture.bounding_box()["height"] > 100
