"""What the executed chapters measured: one small file a page, rewritten only if it says something new."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import chapters
import nbformat
import runs


def place(page: str) -> Path:
    """The file of a page's measurements."""
    return chapters.built() / "measurements" / f"{page}.json"


def collect(pages: list[str], executed: dict[str, nbformat.NotebookNode]) -> None:
    """Write down words, records, seconds, checks and charts of these pages, given those that were executed."""
    for page in pages:
        text = chapters.source(page)
        prose = re.sub(r"```\{code-cell\}.*?```", "", text, flags=re.S)
        entry: dict[str, Any] = {
            "words": len(re.findall(r"\w+", prose)),
            "records": chapters.records_of(text) if chapters.is_chapter(text) else [],
        }
        if page in executed:
            entry |= {
                "seconds": executed[page].metadata.icl.seconds,
                "checks": runs.outputs(executed[page], runs.CHECK),
                "charts": [hashlib.sha256(s.encode()).hexdigest()[:16] for s in runs.charts(executed[page])],
            }
        new, path = json.dumps(entry, indent=1, ensure_ascii=False) + "\n", place(page)
        if not path.exists() or path.read_text(encoding="utf-8") != new:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(".part")
            draft.write_text(new, encoding="utf-8")
            draft.replace(path)


def of(page: str) -> dict[str, Any]:
    """What a page measured; nothing in a build that did not come to it."""
    path = place(page)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"words": 0, "records": []}


def of_all() -> dict[str, dict[str, Any]]:
    """What every page measured, in the reader's order."""
    return {page: of(page) for page in chapters.pages()}
