"""What the executed chapters measured: one small file a page, rewritten only if it says something new."""

import ast
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import borrowed
import chapters
import nbformat
import prose
import runs

#: Minutes that one of each takes a careful reader. Three of them, a part each, noted theirs for 24 chapters: these
#: constants give 0.95 of those on average (0.46 to 1.6 by chapter, for readers differ); words alone gave 0.44.
MINUTES = {"words": 1 / 150, "formulas": 0.15, "displayed": 0.5, "figures": 0.67, "lines": 1 / 40}


def place(page: str) -> Path:
    """The file of a page's measurements."""
    return chapters.built() / "measurements" / f"{page}.json"


def collect(pages: list[str], executed: dict[str, nbformat.NotebookNode]) -> None:
    """Write down words, records, seconds, checks and charts of these pages, given those that were executed."""
    for page in pages:
        text = chapters.source(page)
        entry: dict[str, Any] = {
            "reading": reading(text),
            "records": chapters.records_of(text) if chapters.is_chapter(text) else [],
        }
        if page in executed:
            cells = [cell for cell in executed[page].cells if cell.cell_type == "code"]
            put_out = json.dumps([[cell.source, cell.outputs] for cell in cells], sort_keys=True)
            entry |= {
                "seconds": executed[page].metadata.icl.seconds,
                "checks": runs.outputs(executed[page], runs.CHECK),
                "charts": len(runs.charts(executed[page])),
                "outputs": hashlib.sha256(put_out.encode()).hexdigest()[:16],
            }
        # What a kernel has just said and the same read from its file have their keys in other orders.
        new, path = json.dumps(entry, indent=1, ensure_ascii=False, sort_keys=True) + "\n", place(page)
        if not path.exists() or path.read_text(encoding="utf-8") != new:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(".part")
            draft.write_text(new, encoding="utf-8")
            draft.replace(path)


@cache
def reading(text: str) -> Mapping[str, int]:
    """What there is to read in a page's main line: words, formulas, displayed ones, figures, lines of code in sight.

    The main line ends where the exercises begin; what stands in a dropdown or after the exercises is beside it.
    """
    return counted(text)


def counted(text: str) -> Mapping[str, int]:
    """The same, computed: for pieces of a page, too many to remember each."""
    figures = pace(text)["figures"] + borrowed.pictures(text)
    text = _main_line(borrowed.told(text))
    cells = re.findall(_CELL, text, flags=re.S | re.M)
    shown = [cell for cell in cells if not re.match(r":tags:.*(hide|remove)-(input|cell)", cell)]
    words = re.sub(_CELL, "", text, flags=re.S | re.M)
    words, displayed = re.subn(_DISPLAY, "", words, flags=re.S)
    words, formulas = re.subn(r"\$[^$]+\$", "", words)
    return {
        "words": len(re.findall(r"\w+", words)),
        "formulas": formulas,
        "displayed": displayed,
        "figures": figures,
        "lines": sum(bool(line.strip()) for cell in shown for line in cell.split("\n") if not line.startswith(":")),
    }


@cache
def pace(text: str) -> Mapping[str, int]:
    """How far apart the figures of a page's main line stand, and what else there is to look at.

    Words are those of its sentences and headings: a formula, a table, a link's target and what a directive writes count
    for nothing. A figure is a chart that a cell draws, by itself or by a function of its page. `explorables` are those
    figures that have sliders; `displays` are equations that stand alone; `tables` are tables of the text and cells that
    end in a table. `stretch` is the longest run of words without a figure.
    """
    pieces = re.split(_CELL, _main_line(text), flags=re.S | re.M)
    counts = dict.fromkeys(("words", "figures", "explorables", "displays", "tables", "stretch"), 0)
    since, drawing = 0, set(_CHARTS)
    for said, cell in zip(pieces[::2], [*pieces[1::2], ""], strict=True):
        here = _words(said)
        counts["words"] += here
        counts["displays"] += len(re.findall(_DISPLAY, said, flags=re.S))
        counts["tables"] += len(re.findall(r"^\|[-:| ]+\|$", said, flags=re.M))
        since += here
        counts["stretch"] = max(counts["stretch"], since)
        for kind, found in _shown(cell, drawing).items():
            counts[kind] += found
            since = 0 if kind == "figures" and found else since
    return counts


_CELL = r"^```\{code-cell\}\n(.*?)^```"
_DISPLAY = r"\$\$.*?\$\$|\\begin\{equation\*?\}.*?\\end\{equation\*?\}"
_CHARTS = ("charts.lines", "charts.heatmap", "charts.dots")
#: Calls at the end of a cell that show no table.
_NO_TABLE = re.compile(r"check|print|record|said|seal|(?:claim|.*\.)(?:holds|agrees)?")


def _main_line(text: str) -> str:
    """A page up to its exercises, without its dropdowns."""
    text = text.partition("\n## Exercises\n")[0]
    return re.sub(r"^(`{3,})\{dropdown\}.*?^\1$", "", text, flags=re.S | re.M)


def _words(said: str) -> int:
    """Words of sentences and headings."""
    told = prose.text_of(re.sub(r"^\|.*$", "", said, flags=re.M))
    told = re.sub(r"\{[\w:-]+\}(?=`)|\$[^$]+\$|(?<=\])\([^)]*\)", "", told)
    return sum(bool(re.search(r"\w", word)) for word in told.split())


def _shown(cell: str, drawing: set[str]) -> dict[str, int]:
    """Figures, explorables and tables of a cell; functions of it that draw are added to `drawing`."""
    body = ast.parse("\n".join(line for line in cell.split("\n") if not line.startswith(":"))).body

    def called(node: ast.stmt) -> list[str]:
        return [ast.unparse(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)]

    calls: list[str] = []
    for node in body:
        if not isinstance(node, ast.FunctionDef):
            calls += called(node)
        elif drawing & set(called(node)):
            drawing.add(node.name)
    figures = sum(name in drawing for name in calls)
    last = body[-1].value if body and isinstance(body[-1], ast.Expr) else None
    called_last = "" if last is None else ast.unparse(last).split("(")[0]
    table = last is not None and not isinstance(last, ast.Constant) and not _NO_TABLE.fullmatch(called_last)
    return {
        "figures": figures,
        "explorables": calls.count("charts.Explorable"),
        "tables": int(table and not figures),
    }


def minutes(of_page: Mapping[str, int]) -> float:
    """Minutes that this takes a careful reader."""
    return sum(MINUTES[kind] * count for kind, count in of_page.items())


def of(page: str) -> dict[str, Any]:
    """What a page measured; nothing in a build that did not come to it."""
    path = place(page)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"reading": {}, "records": []}


def of_all() -> dict[str, dict[str, Any]]:
    """What every page measured, in the reader's order."""
    return {page: of(page) for page in chapters.pages()}


def _print_paces() -> None:
    """A line a chapter: minutes and pace of its main line."""
    print(f"{'':36}min  words figures sliders displays tables stretch  words a figure, a look")
    for page in chapters.with_cells():
        text = chapters.source(page)
        found = pace(text)
        look = found["figures"] + found["displays"] + found["tables"]
        row = [f"{found[k]:7d}" for k in ("words", "figures", "explorables", "displays", "tables", "stretch")]
        ratios = f"{found['words'] / max(1, found['figures']):9.0f} {found['words'] / max(1, look):7.0f}"
        print(f"{page.removeprefix('book/'):34}{minutes(reading(text)):5.1f}", *row, ratios)


if __name__ == "__main__":
    _print_paces()
