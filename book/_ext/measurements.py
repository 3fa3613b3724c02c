"""Measurements of the executed chapters: one small file a page, rewritten only if it changes."""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import chapters
import nbformat
import runs
import transclude

#: Minutes that one of each takes a careful reader. Three of them, a part each, noted theirs for 24 chapters: these
#: constants give 0.95 of those on average (0.46 to 1.6 by chapter, for readers differ); words alone gave 0.44.
MINUTES = {"words": 1 / 150, "formulas": 0.15, "displayed": 0.5, "figures": 0.67, "lines": 1 / 40}


def place(page: str) -> Path:
    """The file of a page's measurements."""
    return chapters.built() / "measurements" / f"{page}.json"


def sources_digest(alone: str = "") -> str:
    """Digest of all that examining and running the chapters depends on, or the one page that is built alone."""
    digest = hashlib.sha256(alone.encode())
    for top in map(chapters.ROOT.joinpath, ("_config.yml", "_toc.yml", "requirements.lock", "book", "lib", "tests")):
        for path in [top, *sorted(top.rglob("*"))]:
            if path.is_file() and path.parent.name != "__pycache__":
                content = path.read_bytes()
                digest.update(f"{path.relative_to(chapters.ROOT)} {len(content)} ".encode() + content)
    return digest.hexdigest()


def _mark() -> Path:
    return place("sources").with_suffix(".sha256")


def are_of(digest: str) -> bool:
    """True if the measurements were collected from sources of this digest."""
    return _mark().exists() and _mark().read_text(encoding="utf-8") == digest


def finish(digest: str) -> None:
    """Write down which sources the measurements are of."""
    _mark().write_text(digest, encoding="utf-8")


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
    """Counts of a page's main text: words, formulas, displayed formulas, figures, visible lines of code.

    The main line ends where the claims' checks or the exercises begin; what stands in a dropdown or after is beside it.
    """
    return counted(text)


def counted(text: str) -> Mapping[str, int]:
    """The same, computed: for pieces of a page, too many to remember each."""
    pictures = transclude.pictures(text)
    text = _main_line(transclude.visible_text(text))
    cells = re.findall(_CELL, text, flags=re.S | re.M)
    shown = [cell for cell in cells if not re.match(r":tags:.*(hide|remove)-(input|cell)", cell)]
    words = re.sub(_CELL, "", text, flags=re.S | re.M)
    words, displayed = re.subn(_DISPLAY, "", words, flags=re.S)
    words, formulas = re.subn(r"\$[^$]+\$", "", words)
    return {
        "words": len(re.findall(r"\w+", words)),
        "formulas": formulas,
        "displayed": displayed,
        "figures": pictures + len(_CHART.findall("\n".join(cells))),
        "lines": sum(bool(line.strip()) for cell in shown for line in cell.split("\n") if not line.startswith(":")),
    }


_CELL = r"^```\{code-cell\}\n(.*?)^```"
_DISPLAY = r"\$\$.*?\$\$|\\begin\{equation\*?\}.*?\\end\{equation\*?\}"
_CHART = re.compile(r"\bcharts\.(?:curves|heatmap|tiles|dots|intervals|strip)\(")


def _main_line(text: str) -> str:
    """A page up to the checks of its claims and its exercises, without its dropdowns."""
    text = re.split(r"\n## (?:Exercises|What the paper says, what we measured)\n", text)[0]
    return re.sub(r"^(`{3,})\{dropdown\}.*?^\1$", "", text, flags=re.S | re.M)


def minutes(of_page: Mapping[str, int]) -> float:
    """Minutes that this takes a careful reader."""
    return sum(MINUTES[kind] * count for kind, count in of_page.items())


def of(page: str) -> dict[str, Any]:
    """Measurements of a page; empty if the build has not reached it."""
    path = place(page)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"reading": {}, "records": []}


def of_all() -> dict[str, dict[str, Any]]:
    """Measurements of all pages, in the reader's order."""
    return {page: of(page) for page in chapters.pages()}
