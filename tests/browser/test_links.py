"""Links inside the built site: each leads to a file that is there, and to a place in it that is there."""

import re
from html import unescape
from urllib.parse import unquote

import chapters

HTML = chapters.ROOT / "_build" / "html"
LINK, PLACE = re.compile(r'<a\b[^>]*?\bhref="([^"]*)"'), re.compile(r"""\bid=["']([^"']+)["']""")
ELSEWHERE = re.compile(r"[a-z]+:|//")


def test_links_inside_the_site_lead_somewhere():
    """Every link from a page of the site to the site finds its file and, if it names one, its place: raw HTML, tests
    and source pages too, which Sphinx does not look after.
    """
    texts = {page: page.read_text(encoding="utf-8") for page in HTML.rglob("*.html")}
    places = {page: set(map(unescape, PLACE.findall(text))) for page, text in texts.items()}
    links = {(page, unescape(href)) for page, text in texts.items() for href in LINK.findall(text)}
    inside = [(page, *map(unquote, href.partition("#")[::2])) for page, href in links if not ELSEWHERE.match(href)]
    assert len(inside) > 1000
    dead = []
    for page, path, place in inside:
        path = path.partition("?")[0]
        start = HTML if path.startswith("/") else page.parent
        target = (start / path.lstrip("/")).resolve() if path else page
        target = target / "index.html" if target.is_dir() else target
        if not target.exists() or (place and target in places and place not in places[target]):
            dead.append(f"{page.relative_to(HTML)}: {path}#{place}")
    assert not dead, "\n".join(dead)
