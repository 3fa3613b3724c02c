"""Write down what the ledger promises, for the next release to be compared with.

python tools/snapshot_claims.py    at a release, once the changelog's section has its number

From then on a row that is deleted, and a verdict, tolerance, limit or printed value that is another, need a line in the
changelog that names the row: `tests/book/test_ledger.py` asks for it.
"""

import json
import sys
from pathlib import Path
from typing import Any

from icl_book import claims

RELEASED = Path(__file__).resolve().parents[1] / "tests" / "book" / "released_ledger.json"
PROMISED = ("verdict", "judges", "tolerance", "limits", "printed")


def promises(ledger: dict[str, claims.Claim]) -> dict[str, dict[str, Any]]:
    """Promises of every row, by id, JSON-serialisable."""
    promised = {row.id: {name: getattr(row, name) for name in PROMISED} for row in ledger.values()}
    plain: dict[str, dict[str, Any]] = json.loads(json.dumps(promised))
    return plain


def changed(released: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Rows that do not promise what they did, with what differs; a new row promises more, and is none of them."""
    found = {}
    for id, before in released.items():
        names = [name for name in PROMISED if now[id][name] != before[name]] if id in now else ["deleted"]
        if names:
            found[id] = names
    return found


def main() -> int:
    """Write the file."""
    lines = [f"{json.dumps(id)}: {json.dumps(row, sort_keys=True)}" for id, row in promises(claims.ledger()).items()]
    RELEASED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{len(lines)} rows in {RELEASED.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
