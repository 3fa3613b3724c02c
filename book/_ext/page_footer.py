"""Page footer: citation, ways to run the chapter, error reports, next chapter.

The templates beside this file lay it out: `icl-aids.html`, and `components/prev-next.html`, which is the theme's own
with one line more.
"""

import re
import subprocess
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import chapters
import descriptions
import yaml
from sphinx.application import Sphinx

TEMPLATES = Path(__file__).with_name("templates")


@cache
def _work() -> dict[str, Any]:
    """Contents of CITATION.cff."""
    return yaml.safe_load(chapters.words(chapters.ROOT / "CITATION.cff"))


@cache
def _state() -> tuple[str, str]:
    """The commit that is built and its day; of a copy without a history, none and the day of the release."""
    command = ["git", "log", "-1", "--format=%h %cs"]
    done = subprocess.run(command, cwd=chapters.ROOT, capture_output=True, text=True, check=False)
    commit, _, day = done.stdout.strip().partition(" ")
    return (commit, day) if done.returncode == 0 and day else ("", str(_work()["date-released"]))


def citation(page: str, title: str, address: str = "") -> tuple[str, str]:
    """Citation of a chapter: as a sentence, and in BibTeX.

    Args:
        page: its name.
        title: its title, in plain text.
        address: its public address, if it is known.
    """
    work, (commit, day) = _work(), _state()
    authors = [a.get("name") or f"{a['given-names']} {a['family-names']}" for a in work["authors"]]
    state = f"version {work['version']}" + (f", commit {commit}" if commit else "")
    fields = {
        "author": " and ".join(f"{{{name}}}" for name in authors),
        "title": title,
        "booktitle": work["title"],
        "year": day[:4],
        "note": f"{state[0].upper()}{state[1:]}, {day}",
        "url": address,
    }
    listed = ",\n".join(f"  {key} = {{{words}}}" for key, words in fields.items() if words)
    sentence = f"{', '.join(authors)} ({day[:4]}). {title}. In: {work['title']}, {state}, {day}."
    return sentence, f"@incollection{{icl-{Path(page).name},\n{listed}\n}}"


def _foot(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the templates their words."""
    root = app.config.html_baseurl
    _, before, after = (getattr(app.builder, "relations", {}).get(page) or (None, None, None))[:3]
    context["icl_lines"] = {
        side: descriptions.description(name)
        for side, name in (("prev", before), ("next", after))
        if name and (chapters.ROOT / f"{name}.md").exists()
    }
    if page not in chapters.with_cells():
        return
    title = unescape(re.sub(r"<[^>]+>", "", context["title"]))
    sentence, bibtex = citation(page, title, f"{root}{page}.html" if root else "")
    options, file = app.config.html_theme_options, f"{page}.md"
    query = {
        "title": f"{title}: ",
        "body": f"Page: {file}, commit {_state()[0]}\n\nWhat it says:\n\nWhat it should say:\n",
    }
    context["icl_aids"] = {
        "sentence": sentence,
        "bibtex": bibtex,
        "name": Path(page).name,
        "short": page.removeprefix("book/"),
        "notebook": context["pathto"](f"_sources/{page}.ipynb", 1),
        "title": query["title"],
        "file": file,
        # The address has a default, which is another project's.
        "issue": f"{options['repository_url']}/issues/new?{urlencode(query)}"
        if options.get("use_repository_button")
        else "",
    }


def _templates(app: Sphinx, config: Any) -> None:
    config.templates_path = [str(TEMPLATES), *config.templates_path]
    config.html_theme_options |= {"article_footer_items": ["icl-aids.html"]}


def setup(app: Sphinx) -> None:
    """Register it."""
    app.connect("config-inited", _templates)
    app.connect("html-page-context", _foot)
