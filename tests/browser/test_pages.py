"""Every page, wide and narrow, light and dark: what a reader would stumble over."""

import chapters
import pytest
from axe_playwright_python.base import AXE_SCRIPT

HTML = chapters.ROOT / "_build" / "html"
PAGES = [*chapters.pages(), "404", "genindex", "py-modindex", "search"]


# Contrast is what takes axe its time, and it is the same for all elements of one look: three of each are enough.
AXE = """async () => {
    const STYLES = [
        'display', 'position', 'color', 'backgroundColor', 'backgroundImage', 'opacity', 'mixBlendMode', 'filter',
        'textShadow', 'fontSize', 'fontWeight',
    ];
    const looks = new Map(), numbers = new Map();
    for (const e of document.querySelectorAll('*')) {
        const text = [...e.childNodes].map(n => n.nodeType === Node.TEXT_NODE ? n.data : '').join('').trim();
        // Single characters and some of the punctuation axe does not judge: they stand for nothing but themselves.
        const words = text.length > 1 && /[\\p{L}\\p{N}]/u.test(text) ? 'words' : text;
        const style = getComputedStyle(e), own = [e.localName, e.className, e.disabled, words, e.checkVisibility()];
        const look = [looks.get(e.parentElement), ...own, ...STYLES.map(s => style[s])].join();
        if (!numbers.has(look)) numbers.set(look, {number: numbers.size, met: 0});
        looks.set(e, numbers.get(look).number);
        if (numbers.get(look).met++ < 3) e.dataset.look = '';
    }
    axe.configure({rules: [{id: 'color-contrast', selector: '[data-look]'}]});
    const {violations} = await axe.run({resultTypes: ['violations'], preload: {assets: ['media']}});
    return violations.map(v => `${v.id} (${v.impact}): ${v.nodes[0].html.slice(0, 160)} [${v.nodes.length}]`);
}"""


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("place", ["served, wide", "folder, narrow"])
def test_page(visit, subtests, name, place):
    """No external or failed request, no console error, no sideways scrolling, all drawn, axe content: light and dark.

    Wide pages come from a server and start light; narrow ones are opened as files and start dark.
    """
    # Only a server ever shows the page for missing addresses, at any depth: its links start at the root.
    origin = HTML.as_uri() if place.startswith("folder") and name != "404" else None
    width, themes = (1280, ["light", "dark"]) if "wide" in place else (390, ["dark", "light"])
    watched = visit(name, width=width, theme=themes[0], origin=origin)
    page = watched.page
    watched.read_through()
    page.evaluate(AXE_SCRIPT)
    for theme in themes:
        with subtests.test(theme=theme):
            page.emulate_media(color_scheme=theme)
            page.wait_for_function("theme => document.documentElement.dataset.theme === theme", arg=theme)
            watched.settle(theme)
            assert not watched.faults
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.locator("mjx-merror").count() == 0
            math = page.locator(".math").count()
            assert page.locator("mjx-container").count() >= math
            for figure in page.locator(".icl-chart").all():
                assert figure.get_attribute("data-drawn") == theme
                assert figure.locator(".icl-chart__view svg path").count() > 0
            found = page.evaluate(AXE)
            assert not found, "\n".join(found)


@pytest.mark.parametrize("name", PAGES)
def test_without_javascript(visit, name):
    """Without JavaScript every figure is a picture with a description."""
    watched = visit(name, java_script_enabled=False)
    for picture in watched.page.locator(".icl-chart img").all():
        assert picture.is_visible()
        assert len(picture.get_attribute("alt").split()) >= 8
        assert picture.bounding_box()["height"] > 100
