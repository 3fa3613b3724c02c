"""The built files: nothing from elsewhere, exercises that tell stub from solution, notebooks that stand alone."""

import re

import chapters
import nbformat
import pytest
import runs

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
    if page != "book/index":
        assert sum(not o["passed"] for o in outcomes) >= 2


@pytest.mark.parametrize("page", CHAPTERS)
def test_downloads_are_offered(page):
    """The download menu of a chapter links to its notebook, and the file is there."""
    html = (HTML / f"{page}.html").read_text(encoding="utf-8")
    (link,) = set(re.findall(r'href="([^"]+\.ipynb)"', html))
    assert (HTML / f"{page}.html").parent.joinpath(link).resolve() == (HTML / "_sources" / f"{page}.ipynb").resolve()


@pytest.mark.parametrize("page", CHAPTERS)
def test_downloads_are_plain(page):
    """No MyST directive, role or target is left in a downloaded notebook's text."""
    notebook = nbformat.read(HTML / "_sources" / f"{page}.ipynb", as_version=4)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert not re.findall(r"^[`:]{3,}\{.*|\{[\w:-]+\}`|^\([\w:.-]+\)=", text, flags=re.M)


def test_claims_can_be_sifted(visit):
    """The page of claims shows those of one verdict, or with some words, and says how many; and all of them again."""
    page = visit("book/evidence/claims").page
    shown = page.locator("div.icl-claim:visible")
    told = page.locator(".icl-filter output")
    total = page.locator("div.icl-claim").count()
    assert told.inner_text() == f"{total} of {total} claims"
    page.locator(".icl-filter select").select_option("misprint")
    verdicts = shown.locator("p:first-child strong").all_inner_texts()
    assert set(verdicts) == {"misprint"}
    assert told.inner_text() == f"{len(verdicts)} of {total} claims"
    page.locator(".icl-filter select").select_option("")
    page.locator(".icl-filter input").fill("gla.thm1.d3.general")
    assert shown.count() == 1
    page.locator(".icl-filter input").fill("")
    assert told.inner_text() == f"{total} of {total} claims"
