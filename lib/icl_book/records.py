"""Records of long runs: results tables with provenance.

A record is written once, at the profile `paper`, and read at every build. It names the library modules that made it,
each with a hash of its file, and reports if one of them has changed since. A checksum shows that the file is intact.
`python -m icl_book.records` lists the stale records.
"""

import datetime
import html
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from icl import _files, _source
from icl_book import closure
from icl_book.claims import VerdictChanged, folder


def _computes(module: str) -> bool:
    """True unless a module only displays, checks or writes files, whose changes make no record stale."""
    shows = module.startswith("icl_book") and not module.startswith("icl_book.chapters.")
    return not shows and module not in ("icl._files", "icl._source")


def _device() -> str:
    torch = sys.modules.get("torch")
    # A GPU that is present but was not used produced no number.
    if torch is not None and torch.cuda.is_initialized():
        return str(torch.cuda.get_device_name())
    return f"CPU, {os.cpu_count()} cores, {platform.machine()}"


@dataclass(frozen=True)
class Record:
    """Results table of a long run, with its provenance."""

    id: str
    table: pd.DataFrame
    provenance: dict[str, Any]

    @property
    def current(self) -> bool:
        """True if the modules that made it are unchanged; False if the record does not name them."""
        made_by = self.provenance.get("modules")
        return made_by is not None and all(closure.file_hash(name) == was for name, was in made_by.items())

    @property
    def origin(self) -> "Record":
        """Provenance alone, for pages that display the table themselves."""
        return Record(self.id, self.table.iloc[:0], self.provenance)

    def covers(self, live: pd.DataFrame, *, on: list[str], value: str, standard_error: str, sigmas: float = 5) -> float:
        """Check that a quick run agrees with the record within `sigmas` standard errors; return the largest z-score.

        The tables are matched on the columns `on`; both carry `value` and its `standard_error`. A recorded column that
        is named by an equation, such as "(16)", holds values of a formula: the quick run computes them again, and they
        must be equal.

        Raises:
            ValueError: if the record lacks rows of the quick run, or the quick run a formula of the record.
            VerdictChanged: if they disagree.
        """
        both = live.merge(self.table, on=on, suffixes=("", "_recorded"), validate="one_to_one")
        if len(both) != len(live):
            raise ValueError(f"{self.id}: the quick run has rows that the record lacks, matched on {on}")
        for formula in (column for column in map(str, self.table) if re.fullmatch(r"\(\d+\w?\)", column)):
            if formula not in live:
                raise ValueError(f"{self.id}: the quick run must compute {formula}, as the record has it")
            if not np.allclose(both[formula], both[f"{formula}_recorded"], rtol=1e-9, atol=0):
                raise VerdictChanged(f"{self.id}: the recorded {formula} is not what the formula gives")
        spread = np.hypot(both[standard_error], both[f"{standard_error}_recorded"])
        # skipna=False: a NaN must fail the check, not vanish.
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
    """Write a long run with its provenance to `book/results/<id>.json`, atomically.

    Args:
        id: the file's name.
        table: a small tidy table (numbers and strings).
        config: sizes, seeds and settings that made it.
        seconds: wall time of the run.
        command: shell command that reproduces it.

    Raises:
        ValueError: if id or seconds are invalid, or the profile is quick.
    """
    if os.environ.get("ICL_PROFILE") == "quick":
        raise ValueError("record must be called at the profile paper alone: sizes of the profile quick are no long run")
    if not 0 < seconds < float("inf"):
        raise ValueError(f"seconds must be positive and finite, got {seconds!r}")
    if not re.fullmatch(r"[\w.-]*\w[\w.-]*", id):
        raise ValueError(f"id must be a file's name of letters, digits, '.', '_' and '-', got {id!r}")
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder("results"), capture_output=True, text=True, check=False
    )
    provenance = {
        "command": command,
        "config": config,
        "modules": {name: closure.file_hash(name) for name in closure.modules(_source.program()) if _computes(name)},
        "commit": commit.stdout.strip() or None,
        "versions": {p: metadata.version(p) for p in ("torch", "numpy", "scipy", "pandas")}
        | {"python": platform.python_version()},
        "device": _device(),
        "seconds": round(seconds, 1),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    path = folder("results") / f"{id}.json"
    content = {"id": id, "provenance": provenance, "table": table.to_dict(orient="records")}
    content["checksum"] = _files.checksum(content)
    _files.write(path, (json.dumps(content, indent=1) + "\n").encode())
    return path


def recorded(id: str) -> Record:
    """Read a record; ValueError with its path and the reason if it is missing, unreadable, foreign or damaged."""
    path = folder("results") / f"{id}.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["id"] != id:
            raise ValueError(f"it holds the record {content['id']!r}")
        needed = {"command", "config", "versions", "device", "seconds", "date"}
        missing = needed - set(content["provenance"])
        if missing:
            raise ValueError(f"its provenance lacks {sorted(missing)}")
        if content.pop("checksum", None) != _files.checksum(content):
            raise ValueError("its checksum is not that of its content: it is not as the run wrote it")
        return Record(id, pd.DataFrame(content["table"]), content["provenance"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"cannot read the record {path}: {error}") from error


def _stale() -> Iterator[str]:
    """One line per stale record: id, date and commit."""
    for path in sorted(folder("results").glob("*.json")):
        saved = recorded(path.stem)
        if not saved.current:
            yield f"{saved.id}  {saved.provenance['date']}  {(saved.provenance.get('commit') or 'unknown')[:8]}"


if __name__ == "__main__":
    print(*_stale(), sep="\n")
