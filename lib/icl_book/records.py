"""Records of long runs: their tables, and where they come from.

A record is written once, at the profile `paper`, and read at every build. It names the code that made it by identities
that a move or a rename does not change, and says so when that code has changed since. A seal over its table and its
provenance, written by the run, shows whether a hand has changed either.
"""

import datetime
import hashlib
import html
import json
import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from icl import _files, _identity
from icl_book.claims import _REPOSITORY, VerdictChanged, folder

#: Modules that show and judge what others computed: a record does not get older with them.
_APART = ("icl_book",)


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a record with the seal over the rest of it: a hash of what JSON makes of all its values."""
    kept = {name: value for name, value in content.items() if name != "seal"}
    plain = json.dumps(json.loads(json.dumps(kept)), sort_keys=True, separators=(",", ":"))
    return kept | {"seal": hashlib.sha256(plain.encode()).hexdigest()[:32]}


def _device() -> str:
    torch = sys.modules.get("torch")
    # A GPU that is there and was not used made no number.
    if torch is not None and torch.cuda.is_initialized():
        return str(torch.cuda.get_device_name())
    return f"CPU, {os.cpu_count()} cores, {platform.machine()}"


@dataclass(frozen=True)
class Record:
    """A long run: its table, and where it comes from."""

    id: str
    table: pd.DataFrame
    provenance: dict[str, Any]

    @property
    def current(self) -> bool:
        """Whether the code that made it still stands in the library, wherever and under whatever name."""
        return not self.outdated

    @property
    def outdated(self) -> list[str]:
        """What of the code that made it has changed since, by the names it had then."""
        code = self.provenance["code"]
        moved = [name for name, identity in code.items() if _identity.identity(name) != identity]
        return [name for name in moved if code[name] not in _identity.everything()] if moved else []

    @property
    def origin(self) -> "Record":
        """The same record without its table, to be shown where a page draws the table its own way."""
        return Record(self.id, self.table.iloc[:0], self.provenance)

    def covers(self, live: pd.DataFrame, *, on: list[str], value: str, standard_error: str, sigmas: float = 5) -> float:
        """Refuse a quick run that strays from the recorded one by more than `sigmas` standard errors; return the worst.

        The tables are matched on the columns `on`; both carry `value` and its `standard_error`.
        """
        both = live.merge(self.table, on=on, suffixes=("", "_recorded"), validate="one_to_one")
        if len(both) != len(live):
            raise ValueError(f"{self.id}: the quick run has rows that the record lacks, matched on {on}")
        spread = np.hypot(both[standard_error], both[f"{standard_error}_recorded"])
        # skipna=False: a NaN must stray, not vanish.
        worst = float(((both[value] - both[f"{value}_recorded"]).abs() / spread).max(skipna=False))
        if not worst <= sigmas:
            raise VerdictChanged(f"{self.id}: the quick run strays {worst:.1f} standard errors from the record")
        return worst

    def _repr_html_(self) -> str:
        p = self.provenance
        age = "" if self.current else f" The library has changed since (commit {(p.get('commit') or 'unknown')[:8]})."
        sizes = ", ".join(f"{k} {v:,}" if isinstance(v, int) else f"{k} {v}" for k, v in p["config"].items())
        source = (
            f"<p class='icl-record'>Recorded {html.escape(p['date'])} by <code>{html.escape(p['command'])}</code> on "
            f"{html.escape(p['device'])} in {p['seconds']:.0f} s{'; ' * bool(sizes)}{html.escape(sizes)}.{age}</p>"
        )
        if self.table.empty:
            return source
        return self.table.to_html(index=False, border=0, float_format=lambda v: f"{v:.5g}") + source


def record(
    id: str, table: pd.DataFrame, *, config: dict[str, Any], seconds: float, command: str = "make paper"
) -> Path:
    """Write a long run to `book/results/<id>.json` with its provenance; whole, then renamed.

    Args:
        id: the file's name.
        table: a small tidy table (numbers and strings).
        config: sizes, seeds and settings that made it.
        seconds: wall time of the run.
        command: what a reader types to make it again.

    Raises:
        ValueError: if id or seconds are none, or this is a run of the profile quick.
    """
    if os.environ.get("ICL_PROFILE") == "quick":
        raise ValueError("record must be called at the profile paper alone: sizes of the profile quick are no long run")
    if not 0 < seconds < float("inf"):
        raise ValueError(f"seconds must be positive and finite, got {seconds!r}")
    if not re.fullmatch(r"[\w.-]*\w[\w.-]*", id):
        raise ValueError(f"id must be a file's name of letters, digits, '.', '_' and '-', got {id!r}")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=_REPOSITORY, capture_output=True, text=True, check=False)
    provenance = {
        "command": command,
        "config": config,
        "code": _identity.reached(_identity.running(), but=_APART),
        "commit": commit.stdout.strip() or None,
        "versions": {p: metadata.version(p) for p in ("torch", "numpy", "scipy", "pandas")}
        | {"python": platform.python_version()},
        "device": _device(),
        "seconds": round(seconds, 1),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    path = folder("results") / f"{id}.json"
    content = sealed({"id": id, "provenance": provenance, "table": table.to_dict(orient="records")})
    _files.write(path, (json.dumps(content, indent=1) + "\n").encode())
    return path


def recorded(id: str) -> Record:
    """Read a long run; ValueError with its path and the reason if it is missing, unreadable, foreign or not as made."""
    path = folder("results") / f"{id}.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["id"] != id:
            raise ValueError(f"it holds the record {content['id']!r}")
        needed = {"command", "config", "code", "versions", "device", "seconds", "date"}
        missing = needed - set(content["provenance"])
        if missing:
            raise ValueError(f"its provenance lacks {sorted(missing)}")
        if content.get("seal") != sealed(content)["seal"]:
            raise ValueError("its seal is not that of its table and provenance: a hand changed it, or there is none")
        return Record(id, pd.DataFrame(content["table"]), content["provenance"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"cannot read the record {path}: {error}") from error
