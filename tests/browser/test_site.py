"""The built files: nothing from elsewhere, exercises that tell stub from solution, notebooks that stand alone."""

import csv
import json
import re

import chapters
import nbformat
import notebooks
import pictures
import pytest
import runs

from icl_book import claims

ROOT = chapters.ROOT
HTML = ROOT / "_build" / "html"
CHAPTERS = chapters.with_cells()
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=["'](?P<url>(?:https?:)?//[^"']+)["']""", re.I
)
ANCHOR = re.compile(r"""<link\b[^>]*\brel=["'](?:canonical|license)["']""", re.I)


def external(html: str) -> list[str]:
    """Addresses of other hosts that this page's elements would load."""
    return [m["url"] for m in LOADED.finditer(html) if not ANCHOR.match(m.group(0))]


def test_no_page_loads_anything_from_elsewhere():
    """No script, style, font or image of a page or style sheet comes from another host; a planted one is found."""
    assert external('<script src="https://unpkg.com/thebe">') == ["https://unpkg.com/thebe"]
    found = {str(page): urls for page in HTML.rglob("*.html") if (urls := external(page.read_text(encoding="utf-8")))}
    styles = [
        s for s in HTML.rglob("*.css") if re.search(r"url\(\s*[\"']?(?:https?:)?//", s.read_text(encoding="utf-8"))
    ]
    assert not found
    assert not styles


#: Bytes of a page and the pictures beside it, without the scripts, styles and fonts that all pages share.
HEAVIEST = 1_000_000


def test_pages_are_light():
    """No page weighs more than a phone should have to load. Its charts' pictures are files beside it, each in use."""
    weights = {}
    for page in HTML.rglob("*.html"):
        own = HTML / pictures.FOLDER / page.relative_to(HTML).with_suffix("")
        beside, text = list(own.glob("*.svg")), page.read_text(encoding="utf-8")
        assert all(picture.name in text for picture in beside)
        assert not pictures.EMBEDDED.search(text)
        assert bool(re.search(r'<script src="[^"]*searchindex\.js"', text)) == (page.name == "search.html")
        weights[str(page.relative_to(HTML))] = page.stat().st_size + sum(p.stat().st_size for p in beside)
    assert {page: weight for page, weight in weights.items() if weight > HEAVIEST} == {}


@pytest.fixture(scope="module", params=CHAPTERS)
def chapter(request):
    """A chapter's name and its run, read once for all tests of it."""
    return request.param, runs.cached(request.param)


def test_the_build_ran_this_chapter_as_it_is(chapter):
    """There is a run of the chapter in its present state: cells, library, ledger rows, records and versions."""
    _, run = chapter
    assert run is not None


def test_every_check_ran_and_is_shown(chapter):
    """The verdicts among a chapter's outputs are those of the claims it names, each once."""
    page, run = chapter
    shown = [check["id"] for check in runs.outputs(run, runs.CHECK)]
    text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
    assert shown == chapters.claims_of(text)


def test_exercises_tell_a_stub_from_a_solution(chapter):
    """Of every self-check with a stub in the page, the stub fails and the solution passes."""
    page, run = chapter
    outcomes = runs.outputs(run, runs.EXERCISE)
    names = {o["name"] for o in outcomes}
    for name in names:
        passed = [o["passed"] for o in outcomes if o["name"] == name]
        assert passed in ([False, True], [True]), f"{name}: {passed}"
    if page in chapters.in_parts():
        assert sum(not o["passed"] for o in outcomes) >= 2


@pytest.mark.parametrize("page", CHAPTERS)
def test_downloads_are_offered(page):
    """Menu and foot of a chapter have links that save its notebook, the menu also its source and its solutions.

    The notebooks are there, with the outputs of the page's run; where a browser saves nothing, as in a folder of files,
    a link opens a tab of its own.
    """
    html = (HTML / f"{page}.html").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"<a\b[^>]*>", html) if re.search(r'href="[^"]*_sources/', link)]
    names = notebooks.files(page)
    assert len(links) == 2 + len(names)
    assert all(re.search(r" download\b(?!=)", link) and 'target="_blank"' in link for link in links)
    offered = [HTML / "_sources" / f"{name}.ipynb" for name in names]
    for path in offered:
        notebook = nbformat.read(path, as_version=4)
        assert any("<img alt=" in html for html in runs.outputs(notebook, "text/html"))
    found = set(re.findall(r'href="([^"]+\.ipynb)"', html))
    assert {(HTML / f"{page}.html").parent.joinpath(link).resolve() for link in found} == {p.resolve() for p in offered}


@pytest.mark.parametrize("page", CHAPTERS)
def test_downloads_are_plain(page):
    """No MyST directive, role or target is left in the text of the download with solutions, which has it all."""
    notebook = nbformat.read(HTML / "_sources" / f"{notebooks.files(page)[-1]}.ipynb", as_version=4)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert not re.findall(r"^[`:]{3,}\{.*|\{[\w:-]+\}`|^\([\w:.-]+\)=", text, flags=re.M)


#: What somebody may ask of the claims, the fields that answer it, and a row that has to be among the answers.
QUESTIONS = {
    "what became of Figure 2 of the second paper, and why": (
        {"paper": "Memformers", "words": '"Figure 2"'},
        "mem.fig2.choices",
    ),
    "which formulas of the first paper are misprinted": (
        {"paper": "Learning to Adapt", "verdict": "misprint"},
        "gla.thm1.d3.general",
    ),
    "what does Depth settle": ({"chapter": "Depth"}, None),
    "what was not reproduced": ({"verdict": "not reproduced"}, "mem.fig7.final-loss"),
    "what of Theorem 2": ({"words": '"theorem 2"'}, "gla.thm2.training-error"),
    "what says the third paper of the learning rate": (
        {"paper": "Mamba as online gradient descent", "words": "rate"},
        None,
    ),
    "what did the book answer that a paper left open": ({"verdict": "answered here"}, None),
    "what holds for another reason, by chapter": ({"verdict": "holds for another reason", "sort": "chapter"}, None),
    "what is said of the Kalman filter": ({"words": "kalman"}, None),
    "one row whose name is known": ({"words": "gla.eq6.unroll"}, "gla.eq6.unroll"),
}


@pytest.fixture(scope="module")
def ledger(browser, site):
    """The page of all claims, opened once: a question begins where `show all` has taken the one before it back."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(120_000)
    page.goto(f"{site}/book/evidence/claims.html")
    yield page
    page.close()


@pytest.mark.parametrize("question", QUESTIONS)
def test_claims_answer_questions(ledger, question):
    """At most three fields answer a question; the address gives the answer again, and `show all` takes it back."""
    asked, known = QUESTIONS[question]
    assert len(asked) <= 3
    page = ledger
    shown, told = page.locator("div.icl-claim[id]:visible"), page.locator(".icl-filter output")
    total = page.locator("div.icl-claim[id]").count()
    assert told.inner_text() == f"{total} of {total} claims"
    for field, value in asked.items():
        element = page.locator(f".icl-filter [name={field}]")
        element.fill(value) if field == "words" else element.select_option(value)
    found = [row.get_attribute("id") for row in shown.all()]
    assert 0 < len(found) < total
    assert known is None or known in found
    assert told.inner_text() == f"{len(found)} of {total} claims"
    if "verdict" in asked:
        assert set(shown.locator("p:first-child strong").all_inner_texts()) == {asked["verdict"]}
    address = page.url
    page.locator(".icl-filter button").click()
    assert told.inner_text() == f"{total} of {total} claims"
    assert "#" not in page.url
    page.goto("about:blank")
    page.goto(address)
    assert [row.get_attribute("id") for row in page.locator("div.icl-claim[id]:visible").all()] == found
    page.locator(".icl-filter button").click()
    assert told.inner_text() == f"{total} of {total} claims"


def test_a_row_of_the_claims_leads_to_its_check(visit):
    """A row has an address of its own; its link opens the chapter where the check is, in a fold or not."""
    page = visit("book/evidence/claims").page
    row = page.locator('[id="gla.thm1.d3.general"]')
    row.get_by_role("link", name="link to this row").click()
    assert page.url.endswith("#gla.thm1.d3.general")
    assert row.is_visible()
    row.get_by_role("link", name="its check").click()
    check = page.locator('[id="check-gla.thm1.d3.general"]')
    check.wait_for(state="visible")
    assert "gla.thm1.d3.general" in check.inner_text()


def test_the_ledger_is_offered_as_data(visit):
    """The page links to both files; they hold the same rows, with what this build measured."""
    page = visit("book/evidence/claims").page
    links = {link.get_attribute("href") for link in page.locator("a[download]").all()}
    assert {"claims.json", "claims.csv"} <= links
    table = json.loads((HTML / "book/evidence/claims.json").read_text(encoding="utf-8"))
    with (HTML / "book/evidence/claims.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [row["id"] for row in table] == [line["id"] for line in lines] == list(claims.ledger())
    settled = [row for row in table if row["verdict"] not in ("not yet", "beyond our means")]
    assert all(row["measured"] for row in settled)
    for row in settled:
        assert row["id"] in chapters.source(row["chapter"]).splitlines()[row["line"] - 1]
