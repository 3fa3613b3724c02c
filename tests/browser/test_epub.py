"""The e-book of some pages of the site: MathJax's formulas, XHTML, and how a page looks on a phone."""

from functools import partial

import chapters
import epub
import pdf
import pytest

HTML = chapters.built() / "html"
# The page before all others; one with sliders, exercises and derivations; one with wide formulas; one with a drawing.
PARTS = [
    pdf.Part("", ("book/index",)),
    pdf.Part("Some", ("book/adaptation/gated-linear-attention", "book/memory/one-register", "book/course/teach")),
]
SHOWN = """() => ({
    wide: document.documentElement.scrollWidth - innerWidth,
    cut: [...document.querySelectorAll('div.math, math')]
        .filter(f => f.getBoundingClientRect().right > innerWidth || f.scrollWidth > f.clientWidth + 1 && f.clientWidth)
        .map(f => f.textContent.trim().slice(0, 60)),
    flat: [...document.querySelectorAll('math')].filter(f => !f.getBoundingClientRect().height).length,
    unread: [...document.images].filter(image => !image.naturalWidth).map(image => image.src),
})"""


@pytest.fixture(scope="module")
def files(browser):
    return epub.bind(PARTS, HTML, partial(epub.Converter, browser, HTML))


def test_no_formula_is_left(files):
    """As many as the articles have beside what is for a screen alone, in MathML; those of hints and solutions too."""
    for part in PARTS:
        for page in part.pages:
            read = [
                place
                for place in pdf.article(HTML, page)[1].select(".math")
                if not place.find_parent(class_="icl-screen")
            ]
            assert files[f"{pdf.key(page)}.xhtml"].count(b"<math ") == len(read)


def test_a_wrong_formula_is_refused(browser):
    """MathJax would set the name of an unknown command in red."""
    with pytest.raises(chapters.Broken, match=r"cannot read \\frac\{1\}"):
        epub.Converter(browser, HTML, []).mathml([("\\frac{1}", False)])


@pytest.mark.parametrize("width", [390, 800])
def test_pages_fit(files, tmp_path, browser, width):
    """On a phone and a tablet, with pictures loaded, and no formula cut."""
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    tab = browser.new_page(viewport={"width": width, "height": 900})
    faults = list[str]()
    tab.on("requestfailed", lambda request: faults.append(request.url))
    for part in PARTS:
        for page in part.pages:
            tab.goto((tmp_path / f"{pdf.key(page)}.xhtml").as_uri())
            assert tab.evaluate(SHOWN) == {"wide": 0, "cut": [], "flat": 0, "unread": []}, page
    assert faults == []
    tab.close()
