"""The short path: chapters, in their order, for whoever will not read all.

`icl_path` in _config.yml names them. They are listed by {short-path}, marked in the sidebar, and lead on to each other
at their foot.
"""

import re
from pathlib import Path
from typing import Any

import chapters
import descriptions
import measurements
from directives import Generated
from sphinx.application import Sphinx


class ShortPath(Generated):
    """The chapters, each with its minutes and what it is about, and the time that all take."""

    def path(self) -> list[str]:
        """Their names."""
        return list(self.config.icl_path)

    def shown(self) -> list[Path]:
        """The chapters, for titles and minutes."""
        return [*(chapters.ROOT / f"{page}.md" for page in self.path()), Path(__file__)]

    def markdown(self) -> str:
        """A numbered list."""
        lines, total = [], 0.0
        for k, page in enumerate(self.path(), 1):
            source = chapters.source(page)
            minutes = measurements.minutes(measurements.reading(source))
            total += minutes
            lines.append(
                f"{k}. [{chapters.title(page)}](/{page}.md) ({minutes:.0f} min). {descriptions.description(page)}"
            )
        return "\n".join(lines) + f"\n\nAbout {total / 60:.1f} hours in all, by the times on the chapters' cards."


def mark(toctree: str, places: dict[str, int]) -> str:
    """The sidebar's HTML, in which links to chapters of the path say where on it they stand."""

    def marked(link: re.Match[str]) -> str:
        at = places.get(link[1])
        return link[0] + (f' data-path="{at}" title="Chapter {at} of the short path"' if at else "")

    return re.sub(r'<a class="(?:current )?reference internal" href="([^"]*)"', marked, toctree)


def _page(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Mark the path in the sidebar, and give a chapter's foot its place on it and the next one."""
    path, link, toctree = app.config.icl_path, app.builder.get_relative_uri, context.get("toctree")
    if toctree is None or not path:
        return
    places = {"#" if name == page else link(page, name): at for at, name in enumerate(path, 1)}
    context["toctree"] = lambda **options: mark(toctree(**options), places)
    if page in chapters.in_parts():
        at = places.get("#", 0)
        after = path[at] if 0 < at < len(path) else None
        context["icl_path"] = {
            "at": at,
            "of": len(path),
            "all": link(page, "book/index") + "#the-short-path",
            "next": {"link": link(page, after), "title": chapters.title(after)} if after else None,
        }


def setup(app: Sphinx) -> None:
    """Register it."""
    app.add_config_value("icl_path", [], "env")
    app.add_directive("short-path", ShortPath)
    app.connect("html-page-context", _page)
