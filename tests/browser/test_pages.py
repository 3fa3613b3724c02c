"""Every page, wide and narrow, light and dark: what a reader would stumble over."""

import chapters
import pytest
from axe_playwright_python.base import AXE_SCRIPT

HTML = chapters.ROOT / "_build" / "html"
# A source page stands for all: one template makes them.
MADE = ["404", "genindex", "py-modindex", "search", "_modules/index", "_modules/icl/filters"]
PAGES = [*chapters.pages(), *MADE]
ILLUSTRATED = [page for page in PAGES if 'class="icl-chart' in (HTML / f"{page}.html").read_text(encoding="utf-8")]
# One page of each kind that a template or a generator makes: axe sees these in both themes at both widths.
KINDS = {
    "book/index",
    "book/adaptation/gated-linear-attention",
    "book/evidence/claims",
    "book/reference/library/filters-and-solvers",
    "book/reference/bibliography",
    *MADE,
}
# What axe finds depends on the theme in contrast only, and on the width in what scrolls: the rest is in the markup.
SEEN = ["color-contrast", "scrollable-region-focusable"]

# Contrast is what takes axe its time, and it is the same for all text of one look: three of each are enough. A look is
# what stands behind the text (of its ancestors those that put something there, or change it) and the text's own style.
# Of a single character axe does not say that its contrast is too low.
AXE = """async only => {
    const TRANSPARENT = {
        position: 'static', backgroundColor: 'rgba(0, 0, 0, 0)', backgroundImage: 'none', opacity: '1',
        mixBlendMode: 'normal', filter: 'none',
    };
    const behind = new Map(), numbers = new Map(), met = new Map();
    const numberOf = look => numbers.get(look) ?? numbers.set(look, numbers.size + 1).get(look);
    for (const e of document.querySelectorAll('*')) {
        const style = getComputedStyle(e), above = behind.get(e.parentElement);
        const puts = Object.keys(TRANSPARENT).filter(s => style[s] !== TRANSPARENT[s]).map(s => style[s]);
        behind.set(e, puts.length ? numberOf([above, e.localName, e.className, ...puts].join()) : above);
        const text = [...e.childNodes].map(n => n.nodeType === Node.TEXT_NODE ? n.data : '').join('').trim();
        if (text.length < 2) continue;
        // Some of the punctuation axe does not judge: it stands for nothing but itself.
        const words = /[\\p{L}\\p{N}]/u.test(text) ? 'words' : text;
        const {display, color, textShadow, fontSize, fontWeight} = style;
        const own = [e.localName, e.className, e.disabled, words, e.checkVisibility()];
        const look = numberOf([behind.get(e), own, display, color, textShadow, fontSize, fontWeight].join());
        met.set(look, (met.get(look) ?? 0) + 1);
        if (met.get(look) <= 3) e.dataset.look = '';
    }
    axe.configure({rules: [{id: 'color-contrast', selector: '[data-look]'}]});
    const rules = only ? {runOnly: only} : {};
    const {violations} = await axe.run({...rules, resultTypes: ['violations'], preload: {assets: ['media']}});
    document.querySelectorAll('[data-look]').forEach(e => delete e.dataset.look);
    return violations.map(v => `${v.id} (${v.impact}): ${v.nodes[0].html.slice(0, 160)} [${v.nodes.length}]`);
}"""
STATE = """() => ({
    width: document.documentElement.scrollWidth,
    errors: document.querySelectorAll('mjx-merror').length,
    untyped: document.querySelectorAll('.math').length - document.querySelectorAll('mjx-container').length,
    figures: [...document.querySelectorAll('.icl-chart')].map(
        figure => [figure.dataset.drawn, figure.querySelectorAll('.icl-chart__view svg path').length > 0]),
    cut: [...document.querySelectorAll('.bd-article :is(.icl-scroll, div.math)')].filter(
        box => box.scrollWidth > box.clientWidth + 1).map(box => box.textContent.trim().slice(0, 40)),
    uncued: [...document.querySelectorAll('.bd-article :is(.icl-scroll, div.math, pre, .icl-long)')].filter(
        box => box.scrollWidth > box.clientWidth + 1 && !getComputedStyle(box).maskImage.includes('gradient')
    ).map(box => box.textContent.trim().slice(0, 40)),
    beyond: [...document.querySelectorAll('.bd-article :is(figure.icl-chart svg, pre, mjx-container, table)')].filter(
        e => e.checkVisibility() && !e.closest('.icl-scroll, div.math, .highlight') &&
            e.getBoundingClientRect().right > document.querySelector('.bd-article').getBoundingClientRect().right + 1
    ).map(e => e.textContent.trim().slice(0, 40)),
})"""


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("place", ["served, wide", "folder, narrow"])
def test_page(visit, subtests, name, place):
    """Nothing from elsewhere, cut off or scrolling sideways, no error, all drawn, axe content: light and dark.

    Wide pages come from a server and start light; narrow ones are opened as files and start dark. Axe judges a page
    once in each theme, and what neither theme nor width decides when it is wide. How theme and width act together the
    style sheets decide, and no page's text: it is judged in full on one page of each kind, the button that leads back
    to the top shown where there is one.
    """
    # Only a server ever shows the page for missing addresses, at any depth: its links start at the root.
    origin = HTML.as_uri() if place.startswith("folder") and name != "404" else None
    width, themes = (1280, ["light", "dark"]) if "wide" in place else (390, ["dark", "light"])
    watched = visit(name, width=width, theme=themes[0], origin=origin)
    page = watched.page
    watched.read_through()
    page.evaluate(AXE_SCRIPT)
    if name in KINDS and page.evaluate("document.documentElement.scrollHeight > 2 * innerHeight"):
        page.wait_for_function(
            "() => { scrollBy(0, -10); return document.querySelector('#pst-back-to-top').style.display === 'block'; }",
            polling=50,
        )
    for theme in themes:
        with subtests.test(theme=theme):
            if theme != themes[0]:
                watched.turn(theme)
            assert not watched.faults
            state = page.evaluate(STATE)
            assert state["width"] <= width
            assert state["errors"] == 0
            # Formulas, tables and figures fit a screen; on a phone they may scroll, and code anywhere: edges show it.
            assert width == 390 or not state["cut"]
            assert not state["uncued"]
            assert not state["beyond"]
            assert state["untyped"] <= 0
            assert all(figure == [theme, True] for figure in state["figures"]), state["figures"]
            if theme == themes[0] or name in KINDS:
                found = page.evaluate(AXE, None if "wide" in place or name in KINDS else SEEN)
                assert not found, "\n".join(found)


@pytest.mark.parametrize("name", ILLUSTRATED)
def test_without_javascript(visit, name):
    """Without JavaScript every figure is a picture with a description."""
    figures = visit(name, java_script_enabled=False).page.locator(".icl-chart")
    assert figures.count() > 0
    for figure in figures.all():
        picture = figure.locator("img")
        assert picture.is_visible()
        assert len(picture.get_attribute("alt").split()) >= 8
        assert picture.bounding_box()["height"] > 100
