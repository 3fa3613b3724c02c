"""On paper: a page printed from a dark screen, and the book as one PDF."""

import io
import re
import sys

import chapters
import pytest

sys.path.insert(0, str(chapters.ROOT / "tools"))

import pdf
from pypdf import PdfReader

HTML = chapters.built() / "html"
PARTS = [pdf.Part("", ("book/index",)), pdf.Part("Start", ("book/start/how-to-read", "book/start/notation"))]
# One page with sliders, exercises and derivations; one with rows to filter; one with wide tables of formulas.
PAGES = ["book/adaptation/gated-linear-attention", "book/evidence/claims", "book/evidence/errata"]

PRINTED = """() => {
    const article = document.querySelector('.bd-article'), all = [...article.querySelectorAll('*')];
    const inside = article.getBoundingClientRect();
    const name = e => `${e.localName}.${e.className} ${e.textContent.trim().slice(0, 40)}`;
    const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b) / 255;
    const behind = e => {
        for (; e; e = e.parentElement) {
            const colour = numbers(getComputedStyle(e).backgroundColor);
            if (colour.length === 3 || colour[3] > 0.5) return light(colour);
        }
        return 1;
    };
    const shown = all.filter(e => e.checkVisibility() && e.getClientRects().length);
    const texts = shown.filter(e => [...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.data.trim()));
    const around = '.bd-sidebar, header, footer, .bd-header-article, .prev-next-footer, dialog, #jb-print-docs-body';
    return {
        page: document.documentElement.scrollWidth,
        wide: shown.filter(e => e.matches('p, li, td, th, img, table, pre, code, mjx-container, figure, h1, h2, h3') &&
            e.getBoundingClientRect().right > inside.right + 1).map(name),
        cut: shown.filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth && !e.closest('mjx-container') &&
            (e.matches('pre') || getComputedStyle(e).overflowX !== 'visible')).map(name),
        screen: shown.filter(e => e.matches(
            'summary:not(.sd-summary-title), details:not([open], .icl-answer) *, .toggle-hidden, ' +
            '.icl-controls, .icl-readout, .icl-filter, button, input, .headerlink')).map(name),
        around: [...document.querySelectorAll(around)].filter(e => e.checkVisibility()).map(name),
        pale: texts.filter(e => light(numbers(getComputedStyle(e).color)) > 0.5 || behind(e) < 0.85).map(name),
        pictures: [...article.querySelectorAll('figure.icl-chart')].map(figure =>
            [...figure.querySelectorAll('img, svg')].filter(e => e.checkVisibility() && e.clientWidth > 300).length),
        unread: [...article.querySelectorAll('.icl-chart img')].filter(i => !i.complete || !i.naturalWidth).length,
        unanswered: [...article.querySelectorAll('.icl-answer p')].filter(p => !p.checkVisibility()).length,
        headings: shown.filter(e => e.matches('h1')).length,
    };
}"""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_on_paper(visit, name):
    """From a dark screen, a slider moved, folds opened: black on white, whole, without bars, each figure once."""
    page = visit(name, theme="dark").page
    page.evaluate("window.MathJax?.startup?.promise.then(() => 0)")
    if name == PAGES[0]:
        figure = page.locator("figure[id^='explore-']").first
        figure.scroll_into_view_if_needed()
        slider = figure.locator("input").first
        slider.focus()
        slider.press("ArrowRight")
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    page.evaluate("document.querySelectorAll('.toggle-button').forEach(button => button.click())")
    if name == PAGES[0]:  # pictures that nobody came near are loaded when the page prints
        sheets = PdfReader(io.BytesIO(page.pdf(prefer_css_page_size=True))).pages
        assert {tuple(round(float(side)) for side in sheet.mediabox) for sheet in sheets} == {(0, 0, 595, 842)}
    page.set_viewport_size({"width": pdf.WIDTH, "height": 900})
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("document.getAnimations().forEach(a => a.finish())")
    page.wait_for_function("() => [...document.querySelectorAll('article .icl-chart img')].every(i => i.complete)")
    state = page.evaluate(PRINTED)
    assert state["page"] <= pdf.WIDTH
    assert state["headings"] == 1
    for fault in ("wide", "cut", "screen", "around", "pale"):
        assert not state[fault], f"{fault}: {state[fault][:5]}"
    assert set(state["pictures"]) <= {1}
    assert state["unread"] == 0
    assert state["unanswered"] == 0


def test_paper_shows_what_is_open(visit):
    """Of hints, solutions and code, what the reader has opened; what is folded leaves nothing, not even its bar."""
    page = visit(PAGES[0]).page
    kinds = ["details.hide .cell_input", "details.sd-dropdown .sd-summary-content", "div.solution > section"]
    page.evaluate(
        """() => {
            document.querySelector('.bd-article details.hide').open = true;
            document.querySelector('.bd-article details.sd-dropdown').open = true;
            document.querySelector('.bd-article .solution .toggle-button').click();
        }"""
    )
    page.pdf()  # what scripts do when a page is printed is done
    page.emulate_media(media="print")
    for kind in kinds:
        shown = page.locator(f".bd-article :is({kind})").evaluate_all("all => all.map(e => e.checkVisibility())")
        assert shown[0], kind
        assert not any(shown[1:]), kind
    assert page.locator(".bd-article details.hide summary:visible").count() == 0
    assert page.locator(".bd-article details.sd-dropdown summary:visible").count() == 1
    assert page.locator(".bd-article div.solution:visible").count() == 1


@pytest.fixture(scope="module")
def book(browser):
    """A few pages of the site as a book, and what reads it."""
    page = HTML.parent / "pdf" / "some-pages.html"
    page.parent.mkdir(exist_ok=True)
    page.write_text(pdf.assemble(PARTS, HTML, pdf.front(HTML)), encoding="utf-8")
    return PdfReader(io.BytesIO(pdf.print_(page, browser)))


@pytest.fixture(scope="module")
def texts(book):
    return [sheet.extract_text() for sheet in book.pages]


def test_the_book_is_tagged(book):
    """It says its language and title, has a tree of tags with headings, and its formulas and figures are described."""
    root = book.trailer["/Root"]
    assert root["/MarkInfo"]["/Marked"]
    assert root["/Lang"].startswith("en")
    assert book.metadata.title
    kinds, todo = dict[str, int](), [root["/StructTreeRoot"]["/K"]]
    described = True
    while todo:
        node = todo.pop()
        node = node.get_object() if hasattr(node, "get_object") else node
        if isinstance(node, list):
            todo += node
        elif isinstance(node, dict):
            kinds[kind := node.get("/S", "")] = kinds.get(node.get("/S", ""), 0) + 1
            described &= kind != "/Figure" or bool(node.get("/Alt"))
            todo.append(node.get("/K", []))
    assert kinds["/Figure"] > 20
    assert kinds["/P"] > 20
    assert {"/H1", "/H2", "/H3"} <= set(kinds) or kinds.get("/H", 0) > 5
    assert described


def test_contents_tell_the_sheet(book, texts):
    """The number beside each page's name is that of the sheet with its heading; bookmarks lead there too."""
    places = pdf.targets_of(book)
    names = [name for part in PARTS for name in part.pages]
    titles = [pdf.article(HTML, name)[1].h1.find(string=True) for name in names]
    marks = {
        mark.title: book.get_destination_page_number(mark) + 1
        for entry in book.outline
        for mark in (entry if isinstance(entry, list) else [entry])
        if not isinstance(mark, list)
    }
    for name, title in zip(names, titles, strict=True):
        sheet = places[pdf.key(name)]
        assert re.search(rf"^{re.escape(title)}\s+{sheet}$", texts[1], re.MULTILINE)
        assert title in texts[sheet - 1]
        assert str(sheet) in texts[sheet - 1].split()
        assert marks[title] == sheet


def test_links_lead_into_the_book(book, texts):
    """Every link within the book has its target, and no other leads anywhere but to the web."""
    links = [a.get_object() for sheet in book.pages for a in sheet.get("/Annots", [])]
    there = book.named_destinations
    assert len([link for link in links if "/Dest" in link]) >= 3
    assert all(link["/Dest"] in there for link in links if "/Dest" in link)
    assert all(link["/A"]["/URI"].startswith("http") for link in links if "/A" in link)
    assert not any("Solution to" in text or "Show code cell" in text for text in texts)


def test_what_is_left_out_leaves_words():
    """A link to a page that is not printed is text; one to a page that is, leads to it or to its section."""
    documents = {name: pdf.article(HTML, name) for name in PARTS[1].pages}
    for name, (document, body) in documents.items():
        pdf.prepare(document, body, name)
    first, second = (body for _, body in documents.values())
    second.append(pdf.BeautifulSoup('<p id="here">here</p>', "html.parser"))
    first.append(
        pdf.BeautifulSoup(
            '<p class="planted"><a href="notation.html#here">a</a><a href="notation.html#gone">b</a>'
            '<a href="../reference/library.html#x">c</a><a href="https://example.org/">d</a></p>',
            "html.parser",
        )
    )
    pdf.connect({name: body for name, (_, body) in documents.items()})
    planted = first.select_one(".planted")
    assert [link["href"] for link in planted.select("a")] == [
        "#start-notation--here",
        "#start-notation",
        "https://example.org/",
    ]
    assert planted.get_text() == "abcd"


def test_what_is_missing_is_said(tmp_path, monkeypatch, capsys):
    """Without the site, with a page missing from it, and without Chromium, one line says what to do."""
    (tmp_path / "html").mkdir()
    with pytest.raises(chapters.Broken, match="make book"):
        pdf.make(PARTS, tmp_path / "html", tmp_path / "out.pdf")
    (tmp_path / "html" / "index.html").touch()
    with pytest.raises(chapters.Broken, match=r"book/index.html is not there.*make book"):
        pdf.make(PARTS, tmp_path / "html", tmp_path / "out.pdf")
    monkeypatch.setattr(chapters, "built", lambda: tmp_path)
    monkeypatch.setattr(pdf, "parts_of", lambda toc: PARTS)
    assert pdf.main(["--to", str(tmp_path / "out.pdf")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.setattr(pdf, "assemble", lambda *how: "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert pdf.main(["--to", str(tmp_path / "out.pdf")]) == 1
    assert capsys.readouterr().err.startswith("no Chromium found")
