"""The library's reference has a page a room: every public module stands on one of them, under its own heading."""

import re
from collections import Counter

import chapters

FRONT = "book/reference/library"
PAGES = [page for page in chapters.pages() if page.startswith(f"{FRONT}/")]


def modules():
    """Public modules of the library, by dotted name."""
    lib = chapters.ROOT / "lib"
    files = [path for path in lib.rglob("[!_]*.py")]
    return {".".join(path.relative_to(lib).with_suffix("").parts) for path in files}


def test_every_module_stands_on_one_page():
    """No module is left out or told twice, each follows a heading that names it, and no page has another name."""
    told = Counter()
    for page in PAGES:
        text = chapters.source(page)
        named = re.findall(r"^\.\. automodule:: (\S+)$", text, re.M)
        assert re.findall(r"^## `(\S+)`$", text, re.M) == named, page
        told.update(named)
    assert modules() - set(told) == set()
    assert set(told) - modules() == set()
    assert [name for name, times in told.items() if times > 1] == []
    assert "automodule" not in chapters.source(FRONT)


def test_the_front_page_lists_what_each_page_holds():
    """One row a page, in the order of the contents, with the page's modules in their order."""
    rows = re.findall(r"^\| \[\]\(/(\S+)\.md\) \| .* \| (.*) \|$", chapters.source(FRONT), re.M)
    assert [page for page, _ in rows] == PAGES
    for page, listed in rows:
        named = re.findall(r"^\.\. automodule:: (\S+)$", chapters.source(page), re.M)
        assert re.findall(r"\{py:mod\}`\w+ <(\S+)>`", listed) == named, page
