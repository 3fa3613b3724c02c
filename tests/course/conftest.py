"""The course kit's modules: `from course import notebooks`, and those of the book as elsewhere."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "book" / "_ext"), str(ROOT / "tools")]
