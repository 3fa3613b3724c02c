"""What is new, from the changelog: lines for the page of that name, and an Atom feed of them, whats-new.xml."""

import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import chapters
import descriptions
import yaml
from sphinx.application import Sphinx

FILE, TITLE = "whats-new.xml", "Learning to Adapt: what is new"
PAGE = "book/evidence/whats-new.html"
ATOM = "http://www.w3.org/2005/Atom"
_VERSION = re.compile(r"^## \[([^\]]+)\](?: - (\S+))?\n(.*?)(?=^## |\Z)", re.M | re.S)
_BULLET = re.compile(r"^- (.*(?:\n  .*)*)", re.M)


@dataclass(frozen=True)
class Entry:
    """A line under Added.

    Attributes:
        version: the version that it came with.
        day: that version's, as YYYY-MM-DD.
        title: the line up to where its detail begins, in Markdown.
        text: the line with its detail, in Markdown.
    """

    version: str
    day: str
    title: str
    text: str


def entries(changelog: str, unreleased: str) -> list[Entry]:
    """All lines under Added in a changelog, the newest version's first; Broken if that has none.

    Args:
        changelog: its text, as Keep a Changelog has it.
        unreleased: the day of a version that is not released yet.
    """
    additions = list[Entry]()
    for version, day, changes in _VERSION.findall(changelog):
        added = re.search(r"^### Added\n(.*?)(?=^### |\Z)", changes, re.S | re.M)
        for bullet in _BULLET.findall(added[1]) if added else ():
            text = " ".join(bullet.split())
            title = re.split(r"; |\. |\.$| \(`", text)[0]
            if not title.startswith("Changed verdicts"):
                additions.append(Entry(version, unreleased if day in ("", "unreleased") else day, title, text))
        if not additions:
            raise chapters.Broken("CHANGELOG.md: its newest version has nothing under Added")
    return additions


def of_book() -> list[Entry]:
    """Entries of the book's own changelog."""
    cited = yaml.safe_load(chapters.words(chapters.ROOT / "CITATION.cff"))
    return entries(chapters.words(chapters.ROOT / "CHANGELOG.md"), str(cited["date-released"]))


def newest(count: int) -> list[str]:
    """The first titles of the newest version."""
    additions = of_book()
    return [entry.title for entry in additions if entry.version == additions[0].version][:count]


def feed(found: list[Entry], author: str, root: str) -> bytes:
    """An Atom feed of these entries.

    An entry's id is made of its version and title: it is the same in every build, and wherever the site lies.

    Args:
        found: the entries, the newest first.
        author: of the book.
        root: the site's public address; links are relative to the feed if it is empty.
    """
    top = ElementTree.Element("feed", xmlns=ATOM)

    def add(parent: ElementTree.Element, name: str, text: str = "", **attributes: str) -> ElementTree.Element:
        node = ElementTree.SubElement(parent, name, attributes)
        node.text = text or None
        return node

    name = lambda *words: f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, ' '.join((TITLE, *words)))}"  # noqa: E731
    add(top, "id", name())
    add(top, "title", TITLE)
    add(top, "updated", f"{max(entry.day for entry in found)}T00:00:00Z")
    add(add(top, "author"), "name", author)
    add(top, "link", rel="alternate", type="text/html", href=f"{root}{PAGE}")
    if root:
        add(top, "link", rel="self", type="application/atom+xml", href=f"{root}{FILE}")
    for entry in found:
        node = add(top, "entry")
        add(node, "id", name(entry.version, entry.title))
        add(node, "title", descriptions.plain(entry.title))
        add(node, "updated", f"{entry.day}T00:00:00Z")
        add(node, "link", rel="alternate", type="text/html", href=f"{root}{PAGE}")
        add(node, "content", descriptions.plain(entry.text), type="text")
    ElementTree.indent(top)
    return ElementTree.tostring(top, encoding="utf-8", xml_declaration=True)


def _lay(app: Sphinx, fault: Exception | None) -> None:
    """Lay the feed into the site."""
    if fault is None:
        (Path(app.outdir) / FILE).write_bytes(feed(of_book(), app.config.author, app.config.html_baseurl or ""))


def _head(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Announce the feed in the head of the page that links to it."""
    if f'{FILE}"' in context.get("body", ""):
        address = context["pathto"](FILE, 1)
        link = f'<link rel="alternate" type="application/atom+xml" title="{TITLE}" href="{address}" />'
        context["metatags"] = f"{context.get('metatags', '')}\n{link}"


def setup(app: Sphinx) -> None:
    """Register it."""
    app.connect("build-finished", _lay)
    app.connect("html-page-context", _head)
