"""The course kit: what a teacher takes, made from the chapters' own files.

A part is a module here with a function `make(out: Path) -> list[Path]`: it writes below `out`, its own folder, and
returns every file that it wrote. `python tools/course` runs them.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_HERE = str(Path(__file__).resolve().parent)

# This folder itself is not searched: its modules share names with the book's (`notebooks`).
sys.path[:] = [entry for entry in sys.path if entry != _HERE]
for _folder in (str(ROOT / "tools"), str(ROOT / "book" / "_ext")):
    if _folder not in sys.path:
        sys.path.insert(0, _folder)


class Missing(Exception):
    """Missing dependency of a part; the message names it and says how to get it."""
