"""The decks in Chromium: as files and from a server, at two sizes, and as a PDF."""

import re
import unicodedata

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from course import decks, slides
from pypdf import PdfReader

import chromium  # isort: skip

# What is wrong with the slide that is shown: what stands beyond its edge, or is cut off within a figure.
STATE = """() => {
    const slide = Reveal.getCurrentSlide(), edge = slide.getBoundingClientRect(), scale = Reveal.getScale();
    const name = e => `${e.tagName.toLowerCase()} ${e.textContent.trim().slice(0, 40)}`;
    const seen = [...slide.querySelectorAll('*')].filter(e =>
        !e.closest('aside, mjx-assistive-mml, mjx-container *') && !e.parentElement.closest('svg') &&
        e.checkVisibility());
    const beyond = seen.filter(e => {
        const {width, right, bottom, left} = e.getBoundingClientRect();
        return width && (right > edge.right - 20 * scale || bottom > edge.bottom - 2 * scale || left < edge.left);
    }).map(name);
    const cut = [], small = [];
    for (const svg of slide.querySelectorAll('svg.marks')) {
        const frame = svg.getBoundingClientRect();
        for (const text of svg.querySelectorAll('text')) {
            const box = text.getBoundingClientRect();
            if (!box.width || !text.textContent.trim()) continue;
            if (box.right > frame.right + 2 || box.left < frame.left - 2 ||
                box.bottom > frame.bottom + 2 || box.top < frame.top - 2) cut.push(name(text));
            if (parseFloat(getComputedStyle(text).fontSize) < 18) small.push(name(text));
        }
    }
    const tiny = seen.filter(e => [...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.data.trim()) &&
        !e.closest('svg') && parseFloat(getComputedStyle(e).fontSize) < 18).map(name);
    return {beyond, cut, small, tiny,
        unset: slide.querySelectorAll('mjx-merror').length
            + slide.querySelectorAll('.math').length - slide.querySelectorAll('mjx-container').length,
        undescribed: [...slide.querySelectorAll('.icl-chart')].filter(figure => {
            const words = figure.querySelector('.icl-chart__view[aria-label], .icl-chart__view [role][aria-label]');
            return words?.getAttribute('aria-label') !== figure.querySelector('img').alt;
        }).length};
}"""
# Of a chart's marks axe has judged those of the pages, which the same script draws; of them it takes its time.
AXE = """async () => (await axe.run({exclude: ['svg.marks']}, {resultTypes: ['violations'], preload: false})).violations
    .map(v => `${v.id} (${v.impact}): ${v.nodes[0].html.slice(0, 160)} [${v.nodes.length}]`)"""
#: Kinds of slides that axe has seen, in whichever deck: the same styles make them all.
LOOKS = set()
SOUND = {"beyond": [], "cut": [], "small": [], "tiny": [], "unset": 0, "undescribed": 0}


@pytest.fixture(scope="session")
def kit(tmp_path_factory):
    """The folder of the decks, each written when it is asked for."""
    out = tmp_path_factory.mktemp("slides")
    slides.share(out / slides.SHARED)
    (out / "index.html").touch()  # what is served is a site
    return out


@pytest.fixture(scope="session")
def served(kit):
    """Its address."""
    with chromium.served(kit) as address:
        yield address


@pytest.mark.parametrize("name", decks.names())
@pytest.mark.parametrize("place", ["file, 1280 by 720", "served, 1024 by 768"])
def test_deck(visit, kit, served, name, place):
    """Slide by slide: nothing from elsewhere, no error, nothing beyond the slide's edge or cut off, letters of charts
    and text as large as a room needs, formulas set, figures drawn and described. Axe sees a slide of each kind.
    """
    path = kit / name / "index.html"
    if not path.exists():
        slides.write(decks.read(name), kit)
    files = place.startswith("file")
    width, height = re.findall(r"\d+", place)
    watched = visit(f"{name}/index", origin=kit.as_uri() if files else served)
    page = watched.page
    page.set_viewport_size({"width": int(width), "height": int(height)})
    page.wait_for_function("window.Reveal?.isReady()", polling=50)
    page.evaluate(AXE_SCRIPT)
    wrong = {}
    deck = decks.read(name)
    assert page.evaluate("Reveal.getTotalSlides()") == len(deck.slides)
    for number, slide in enumerate(deck.slides):
        page.evaluate("at => Reveal.slide(at, 0, 9)", number)
        assert page.evaluate("slides.settled(Reveal.getCurrentSlide())") == []
        if (state := page.evaluate(STATE)) != SOUND:
            wrong[slide.title] = {what: found for what, found in state.items() if found}
        look = (slide.kind, frozenset(one.name for one in slide.blocks()))
        if look not in LOOKS:
            LOOKS.add(look)
            if found := page.evaluate(AXE):
                wrong[f"{slide.title}, axe"] = found
    assert not wrong
    assert not watched.faults


def test_what_does_not_fit_is_found(visit, kit):
    """A slide with too much on it, a letter that is too small, and a request that leaves are told."""
    source = decks.SOURCES / "day-1.md"
    deck = decks.parse("planted", source.read_text(encoding="utf-8"))
    path = slides.write(deck, kit)
    text = path.read_text(encoding="utf-8").replace(
        "</h1>",
        '</h1><p style="margin-top: 700px; font-size: 17px">low</p><img src="http://example.org/x.png">',
    )
    path.write_text(text, encoding="utf-8")
    watched = visit("planted/index", origin=kit.as_uri())
    watched.page.set_viewport_size({"width": 1280, "height": 720})
    watched.page.wait_for_function("window.Reveal?.isReady()", polling=50)
    state = watched.page.evaluate(STATE)
    assert "p low" in state["beyond"]
    assert state["tiny"] == ["p low"]
    assert any("example.org" in fault for fault in watched.faults)


@pytest.mark.parametrize("place", ["file", "served"])
def test_the_speaker_sees_notes(browser, kit, served, place):
    """S opens a window with what is said, the teaching note, the clock and the next slide; it follows the deck."""
    name = "day-1"
    deck = decks.read(name)
    if not (kit / name / "index.html").exists():
        slides.write(deck, kit)
    context = browser.new_context()
    page = context.new_page()
    page.goto((kit / name / "index.html").as_uri() if place == "file" else f"{served}/{name}/index.html")
    page.wait_for_function("window.Reveal?.isReady()", polling=50)
    with context.expect_page() as opened:
        page.keyboard.press("s")
    notes = opened.value.locator(".speaker-controls-notes .value")
    notes.get_by_text(" ".join(deck.slides[0].speaker_notes().split()[:5])).wait_for()
    assert "60 minutes on" in notes.inner_text()
    page.keyboard.press("ArrowRight")
    notes.get_by_text(" ".join(deck.slides[1].speaker_notes().split()[:5])).wait_for()
    context.close()


def test_a_deck_prints(browser, kit):
    """A sheet for each slide, as wide as the screen, with its words, tagged."""
    name = "day-1"
    deck = decks.read(name)
    if not (kit / name / "index.html").exists():
        slides.write(deck, kit)
    sheets = PdfReader(slides.print_(kit / name / "index.html", browser))
    assert len(sheets.pages) == len(deck.slides)
    assert {(round(p.mediabox.width), round(p.mediabox.height)) for p in sheets.pages} == {(960, 540)}
    for sheet, slide in zip(sheets.pages, deck.slides, strict=True):
        words, title = (re.sub(r"[\s’']+", "", text) for text in (sheet.extract_text(), slide.title))
        assert title in unicodedata.normalize("NFKC", words)  # which takes ligatures apart
    assert sheets.trailer["/Root"]["/MarkInfo"]["/Marked"]
