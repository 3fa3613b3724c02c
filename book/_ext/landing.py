"""Directives and roles of the pages that stand before the chapters: what they show and say is the chapters' own.

{figure-of} a chapter's figure: `:which:` is the function that moves it, or how its title starts; `:small:` is a
            picture for a card
{door}      the way from a result to the chapter that shows it; with `:proved:`, that proves it
{said}      words that a cell of a chapter says, {measured} words that a check measured: `words <place>`
{reading}   how much this page is to read, counted: `words`, `figures` or `minutes`
{whats-new} the first lines of the changelog, and the way to the feed of all of them
"""

import base64
import html
from pathlib import Path
from typing import Any, ClassVar

import addresses
import chapters
import measurements
import news
import numbering
import transclude
from directives import Generated, Watching
from docutils import nodes
from docutils.parsers.rst import directives as options
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

logger = logging.getLogger(__name__)
#: A page is read again when what makes its pieces has changed.
OWN = [Path(__file__), Path(transclude.__file__)]


class FigureOf(Watching):
    """A figure as the chapter's run drew it, so that page and chapter cannot differ."""

    required_arguments, optional_arguments = 1, 0
    option_spec: ClassVar[dict[str, Any]] = {"which": options.unchanged_required, "small": options.flag}

    def shown(self) -> list[Path]:
        """The chapter's run, and how it is shown."""
        return [measurements.place(transclude.chapter(self.arguments[0])), *OWN]

    def run(self) -> list[nodes.Node]:
        """Output of the cell, or a thumbnail of it."""
        try:
            page = transclude.chapter(self.arguments[0])
            self.watch()
            drawn = transclude.figure(page, self.options.get("which", ""), transclude.run_of(page))
        except chapters.Broken as fault:
            raise self.error(f"figure-of: {fault}") from fault
        if "small" not in self.options:
            box = nodes.container(classes=["icl-borrowed"])
            if numbering.chapter(page):
                self.render(f"{{numref}}`{addresses.figure_name(page, drawn.spec)}`", box)
            box += nodes.raw("", drawn.html, format="html")
            return [box]
        data = base64.b64encode(transclude.small_picture(drawn.spec).encode()).decode()
        alt = html.escape(drawn.spec["description"])
        picture = f'<img class="icl-small" alt="{alt}" width="280" height="165" src="data:image/svg+xml;base64,{data}">'
        return [nodes.raw("", picture, format="html")]


class Door(Watching):
    """The way from a result to the chapter that shows it, or with `:proved:` proves it."""

    required_arguments, optional_arguments = 1, 0
    option_spec: ClassVar[dict[str, Any]] = {"proved": options.flag}

    def shown(self) -> list[Path]:
        """The chapter, for its title."""
        return [*OWN, chapters.ROOT / f"{transclude.chapter(self.arguments[0])}.md"]

    def run(self) -> list[nodes.Node]:
        """One line."""
        try:
            page = transclude.chapter(self.arguments[0])
        except chapters.Broken as fault:
            raise self.error(f"door: {fault}") from fault
        self.watch()
        way = f'<a class="icl-door__way" href="{self.env.app.builder.get_relative_uri(self.env.docname, page)}">'
        way += f"{'Proved' if 'proved' in self.options else 'Shown'} in <b>{html.escape(chapters.title(page))}</b>"
        return [nodes.raw("", f'<p class="icl-door">{way}\u00a0→</a></p>', format="html")]


class Proved(SphinxRole):
    """Words that a chapter says or a check measured, leading there; what was said in full shows at the pointer."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """The words, as a link."""
        try:
            proof = transclude.proof(self.name, self.text)
            page = transclude.page_of(proof)
            self.env.note_dependency(str(measurements.place(page)))
            sentence = transclude.sentence(proof, transclude.run_of(page))
        except chapters.Broken as fault:
            logger.warning("%s", fault, location=self.get_location())
            return [nodes.inline("", self.text)], []
        target = self.env.app.builder.get_relative_uri(self.env.docname, page)
        place = f"#check-{proof.where}" if proof.role == "measured" else ""
        link = nodes.reference("", "", internal=True, refuri=target + place, classes=["icl-proved"])
        link["reftitle"] = f"{chapters.title(page)}: “{sentence}”"
        link += nodes.Text(proof.words)
        return [link], []


class Reading(SphinxRole):
    """Reading load of this page: number of `words` or `figures`, or `minutes`."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """The number."""
        counted: dict[str, float] = dict(measurements.reading(chapters.source(self.env.docname)))
        counted["minutes"] = measurements.minutes(measurements.reading(chapters.source(self.env.docname)))
        if self.text not in ("words", "figures", "minutes"):
            logger.warning("reading: %r is not counted", self.text, location=self.get_location())
            return [nodes.inline("", self.text)], []
        return [nodes.Text(f"{counted[self.text]:.0f}")], []


class WhatsNew(Generated):
    """The first lines of the changelog, up to where their details begin; a chapter that one names is linked."""

    option_spec: ClassVar[dict[str, Any]] = {"lines": options.positive_int}

    def shown(self) -> list[Path]:
        """The changelog, and what reads it."""
        return [chapters.ROOT / "CHANGELOG.md", Path(news.__file__), *OWN]

    def run(self) -> list[nodes.Node]:
        """The lines, then the feed."""
        up = "../" * self.env.docname.count("/")
        feed = f'<a href="{up}{news.FILE}" type="application/atom+xml">Atom feed</a>'
        link = f'<p class="icl-screen">Follow these lines as an {feed}.</p>'
        return [*super().run(), nodes.raw("", link, format="html")]

    def markdown(self) -> str:
        """A list."""
        pages = {chapters.title(page): page for page in chapters.with_cells()}
        lines = news.newest(self.options.get("lines", 4))
        for name, page in pages.items():
            lines = [line.replace(f"*{name}*", f"[{name}](/{page}.md)") for line in lines]
        return "\n".join(f"- {line}" for line in lines)


def setup(app: Sphinx) -> None:
    """Register them."""
    for name, directive in (("figure-of", FigureOf), ("door", Door), ("whats-new", WhatsNew)):
        app.add_directive(name, directive)
    for name, role in (("said", Proved()), ("measured", Proved()), ("reading", Reading())):
        app.add_role(name, role)
