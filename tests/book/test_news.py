"""What is new: the changelog's lines on the landing page and in the feed."""

import re
from xml.etree import ElementTree

import chapters
import news
import pytest

CHANGES = """# Changelog

## [2] - 2026-12-01

### Added

- One thing: *a*, `b`
  and c; more of it.
- Changed verdicts: x.
- Two.

### Fixed

- A thing.

## [1] - unreleased

### Added

- Older.
"""
ATOM = {"a": news.ATOM}


def read(root="", changelog=CHANGES):
    """The feed of a changelog, parsed."""
    return ElementTree.fromstring(news.feed(news.entries(changelog, "2026-11-20"), "Somebody", root))


def test_entries_begin_as_the_changelog_does():
    """Lines under Added, the newest first, cut where their detail begins; a newest version without any is refused."""
    found = news.entries(CHANGES, "2026-11-20")
    assert [(entry.version, entry.day, entry.title) for entry in found] == [
        ("2", "2026-12-01", "One thing: *a*, `b` and c"),
        ("2", "2026-12-01", "Two"),
        ("1", "2026-11-20", "Older"),
    ]
    assert found[0].text == "One thing: *a*, `b` and c; more of it."
    with pytest.raises(chapters.Broken, match="nothing under Added"):
        news.entries("# Changelog\n\n## [3]\n\n### Changed\n\n- A.\n\n" + CHANGES, "2026-11-20")


def test_the_feed_is_atom():
    """What RFC 4287 asks of a feed and of each entry, once each: id, title and time; text without marks; an author."""
    top = read("https://example.org/book/")
    assert top.tag == f"{{{news.ATOM}}}feed"
    assert top.findtext("a:author/a:name", None, ATOM) == "Somebody"
    assert top.findtext("a:updated", None, ATOM) == "2026-12-01T00:00:00Z"
    assert {link.get("rel"): link.get("href") for link in top.iterfind("a:link", ATOM)} == {
        "alternate": f"https://example.org/book/{news.PAGE}",
        "self": f"https://example.org/book/{news.FILE}",
    }
    entries = top.findall("a:entry", ATOM)
    for node in (top, *entries):
        for name in ("id", "title", "updated"):
            assert len(node.findall(f"a:{name}", ATOM)) == 1
    assert len({node.findtext("a:id", None, ATOM) for node in (top, *entries)}) == 4
    assert [node.findtext("a:title", None, ATOM) for node in entries] == ["One thing: a, b and c", "Two", "Older"]
    assert entries[0].findtext("a:content", None, ATOM) == "One thing: a, b and c; more of it."
    assert entries[2].findtext("a:updated", None, ATOM) == "2026-11-20T00:00:00Z"
    assert [link.get("href") for link in read().iterfind("a:link", ATOM)] == [news.PAGE]


def test_an_entry_keeps_its_id():
    """Whatever comes before it, wherever the site lies, and when its version gets its day."""
    ids = lambda top: [node.text for node in top.iterfind("a:entry/a:id", ATOM)]  # noqa: E731
    later = "## [3]\n\n### Added\n\n- New.\n\n" + CHANGES.replace("unreleased", "2026-11-28")
    assert ids(read("https://example.org/", later))[1:] == ids(read())


def test_the_page_has_the_newest():
    """Its lines are the first of the feed."""
    titles = [entry.title for entry in news.of_book()]
    assert news.newest(12) == titles[:12]
    assert re.search(r"^```\{whats-new\}\n:lines: 12\n```$", chapters.source("book/evidence/whats-new"), re.M)
