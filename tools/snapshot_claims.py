"""Write down what the ledger promises, for the next release to be compared with.

python tools/snapshot_claims.py    at a release, once the changelog's section has its number

From then on a row that is deleted, and a verdict, tolerance, limit or printed value that is another, need a line in the
changelog that names the row; a verdict, tolerance or limit needs one more entry of the row's `changed` too:
`tests/book/test_ledger.py` asks for both.
"""

import json
import sys
from pathlib import Path
from typing import Any

from icl_book import claims

RELEASED = Path(__file__).resolve().parents[1] / "tests" / "book" / "released_ledger.json"
BARS = ("verdict", "tolerance", "limits")
PROMISED = ("judges", "printed", *BARS)


def promises(ledger: dict[str, claims.Claim]) -> dict[str, dict[str, Any]]:
    """Promises of every row, and the number of its changes, by id, JSON-serialisable."""
    promised = {
        row.id: {name: getattr(row, name) for name in PROMISED} | {"changes": len(row.changed)}
        for row in ledger.values()
    }
    plain: dict[str, dict[str, Any]] = json.loads(json.dumps(promised))
    return plain


def changed(released: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Rows that do not promise what they did, with what differs; a new row promises more, and is none of them."""
    differences = {}
    for id, before in released.items():
        names = [name for name in PROMISED if now[id][name] != before[name]] if id in now else ["deleted"]
        if names:
            differences[id] = names
    return differences


def unexplained(released: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Rows with another verdict, tolerance or limit and no new entry of `changed`, or with an entry that is gone."""
    bars = {id: [name for name in names if name in BARS] for id, names in changed(released, now).items()}
    fewer = {id: now[id]["changes"] - row["changes"] for id, row in released.items() if id in now}
    return {id: bars.get(id, []) for id, more in fewer.items() if more < (1 if bars.get(id) else 0)}


def main() -> int:
    """Write the file."""
    lines = [f"{json.dumps(id)}: {json.dumps(row, sort_keys=True)}" for id, row in promises(claims.ledger()).items()]
    RELEASED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{len(lines)} rows in {RELEASED.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
