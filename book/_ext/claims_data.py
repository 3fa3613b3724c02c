"""The whole ledger as data, JSON and CSV: what a row says, what was measured, and the line of code that checks it."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import chapters
import markup

from icl_book import claims

#: The papers whose claims the ledger holds, by how its names begin.
PAPERS = {"gla": "Learning to Adapt", "mem": "Memformers", "mamba": "Mamba as online gradient descent"}
NAMES = markup.LAID


def line(claim: claims.Claim) -> int | None:
    """The line of its chapter that names a claim, from 1: a settled one is named there once, where it is checked."""
    if not claim.chapter:
        return None
    text = chapters.source(claim.chapter)
    named = re.search(rf"(['\"]){re.escape(claim.id)}\1", text)
    return text.count("\n", 0, named.start()) + 1 if named else None


def rows(measured: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a claim, in the ledger's order; `measured` is every check of the build by claim."""
    table = []
    for claim in claims.ledger().values():
        check = measured.get(claim.id, {})
        table.append(
            {
                "id": claim.id,
                "paper": PAPERS[claim.id.split(".")[0]],
                "source": claim.source,
                "judges": claim.judges,
                "claim": claim.claim,
                "printed": claim.printed,
                "verdict": claim.verdict,
                "measured": check.get("measured"),
                "samples": check.get("samples"),
                "tolerance": claim.tolerance,
                "limits": claim.limits,
                "reason": claim.reason,
                "how": claim.how,
                "quote": claim.quote,
                "changed": [change | {"date": change["date"].isoformat()} for change in claim.changed] or None,
                "chapter": claim.chapter,
                "line": line(claim),
            }
        )
    return table


def as_json(table: list[dict[str, Any]]) -> str:
    """A list of objects, with nested values as they are."""
    return json.dumps(table, ensure_ascii=False, indent=1) + "\n"


def as_csv(table: list[dict[str, Any]]) -> str:
    """A header and a line a claim; nested values as JSON, what is missing as nothing."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(table[0]), lineterminator="\n")
    writer.writeheader()
    for row in table:
        writer.writerow({k: _flat(v) for k, v in row.items()})
    return out.getvalue()


def _flat(value: Any) -> Any:
    if value is None or value == {}:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def lay(folder: Path, measured: dict[str, dict[str, Any]]) -> None:
    """Write both files into a folder of the site."""
    table = rows(measured)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip(NAMES, (as_json(table), as_csv(table)), strict=True):
        (folder / name).write_text(text, encoding="utf-8")
