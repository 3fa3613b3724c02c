"""Chapters as plain notebooks for download: MyST directives and roles turned into Markdown that Jupyter shows.

Code cells stay as they are. What only the site can show (generated tables, page cards) becomes a sentence that says so.
"""

import re

import jupytext
import nbformat

_FENCE = re.compile(r"^(?P<indent>\s*)(?P<fence>`{3,}|:{3,})\{(?P<name>[\w:-]+)\}\s*(?P<argument>.*)$")
_GENERATED = {
    "claims",
    "errata",
    "timings",
    "notation",
    "terms",
    "tests",
    "bibliography",
    "verdict-counts",
    "whats-new",
    "tableofcontents",
}
#: A solution from its first mark to its last.
SOLUTION = re.compile(
    r"^(?P<fence>[`:]{3,})\{solution-start\} *(?P<label>\S+).*?^(?P=fence)\{solution-end\}\n(?P=fence)$", re.S | re.M
)
_EXERCISE = re.compile(r"^[`:]{3,}\{exercise-start\}", re.M)
_TITLES = {"exercise-start": "Exercise", "solution-start": "Solution", "exercise": "Exercise", "solution": "Solution"}


def _role(match: re.Match[str]) -> str:
    role, body = match["role"], match["body"]
    titled = re.match(r"(?P<text>.*?)\s*<(?P<target>[^>]+)>$", body, re.S)
    text = titled["text"] if titled else body.lstrip("~!")
    if role == "math":
        return f"${body}$"
    if role in ("doc", "ref", "numref", "prf:ref", "abbr", "said", "measured"):
        return text
    if role.startswith("cite"):
        return f"[{body}]"
    return f"`{text}`"


def _inline(text: str) -> str:
    text = re.sub(r"^\([\w:.-]+\)=\s*\n", "", text, flags=re.M)
    text = re.sub(r"\{(?P<role>[\w:-]+)\}`(?P<body>[^`]+)`", _role, text)
    # Links to other pages of the book keep their words; the notebook stands alone.
    text = re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", text)
    return re.sub(r"^%.*\n?", "", text, flags=re.M)


def _quoted(lines: list[str]) -> list[str]:
    return [f"> {line}".rstrip() for line in lines]


def plain(text: str) -> str:
    """Turn one Markdown cell's MyST into plain Markdown."""
    return _inline("\n".join(_blocks(text.split("\n")))).strip()


def _blocks(lines: list[str]) -> list[str]:
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
        body = lines[i + 1 : end]
        while body and re.match(r"^\s*:[\w-]+:", body[0]):
            body = body[1:]
        i = end + 1
        if name in _GENERATED:
            out += [f"*(The {name.replace('-', ' ')} table is on the book's page.)*"]
        elif name in ("exercise-end", "solution-end", "figure-of", "door"):
            continue
        elif name == "grid":
            out += _blocks(body)
        elif name == "math":
            out += ["$$", *body, "$$"]
        elif name in _TITLES:
            out += [f"#### {_TITLES[name]}{': ' + argument if argument and not name.startswith('solution') else ''}"]
            out += _blocks(body)
        elif name == "page-card":
            out += ["**In this chapter**", "", *_blocks(body)]
        else:
            title = argument or name.capitalize()
            out += _quoted([f"**{title}**", "", *_blocks(body)])
    return out


def notebook(text: str) -> nbformat.NotebookNode:
    """Convert a chapter's MyST source to a notebook that stands alone, without outputs.

    An exercise begins with a cell. A solution's cells hold nothing else, and have the tag `solution`.
    """
    text = _EXERCISE.sub("+++\n\n\\g<0>", SOLUTION.sub("+++\n\n\\g<0>\n\n+++\n", text))
    converted = jupytext.reads(text, fmt="md:myst")
    cells, solving = [], False
    for cell in converted.cells:
        tags = cell.metadata.get("tags", [])
        solving = solving or (cell.cell_type == "markdown" and "{solution-start}" in cell.source)
        ends = cell.cell_type == "markdown" and "{solution-end}" in cell.source
        if solving:
            cell.metadata["tags"] = [*tags, "solution"]
        # What the page folds away, the notebook does too.
        if cell.cell_type == "code" and (solving or "hide-input" in tags):
            cell.metadata["jupyter"] = {"source_hidden": True}
        solving = solving and not ends
        if cell.cell_type == "markdown":
            cell.source = plain(cell.source)
            if not cell.source:
                continue
        cell.metadata.pop("lines_to_next_cell", None)
        cells.append(cell)
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    hint = "Runs anywhere the package `icl` of this book is installed (`pip install .` in the book's repository)."
    cells.insert(0, nbformat.v4.new_markdown_cell(hint, id="how-to-run"))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
