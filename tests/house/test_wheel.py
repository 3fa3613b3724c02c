"""The package as a reader installs it, without the repository around it."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


#: Folders of `book/` that the package reads: `folder("answers")`.
READ = {name for path in ROOT.glob("lib/**/*.py") for name in re.findall(r'\bfolder\("(\w+)', path.read_text("utf-8"))}


def test_the_wheel_holds_all_that_the_package_reads(installed):
    """Ledger, records, rows of the leaderboard and sealed answers travel with the package, every file as it is: a
    downloaded notebook has no repository to read them from.
    """
    assert {"answers", "claims", "results"} <= READ
    for name in READ:
        there = {p.relative_to(ROOT / "book"): p.read_bytes() for p in (ROOT / "book" / name).rglob("*") if p.is_file()}
        assert there
        for path, content in there.items():
            assert (installed / "icl_book" / path).is_file(), f"book/{path} is not in the wheel"
            assert (installed / "icl_book" / path).read_bytes() == content


#: A self-check's label, and the number of its cases.
LABEL, CASES = next((p.stem, len(json.loads(p.read_text())["right"])) for p in sorted(ROOT.glob("book/answers/*.json")))


def test_the_science_stands_by_itself(installed, tmp_path):
    """`icl` imports without the other two packages and without what only they need."""
    others = ["icl_bench", "icl_book", "altair", "vl_convert", "yaml", "IPython", "grimp", "pyarrow"]
    script = f"import sys; sys.modules |= dict.fromkeys({others}); import icl.experiments, icl.theory, icl.self_tuning"
    command, around = [sys.executable, "-c", script], {"PYTHONPATH": str(installed)}
    done = subprocess.run(command, cwd=tmp_path, env=around, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]


def test_the_installed_package_stands_by_itself(installed, tmp_path):
    """In an empty folder the unpacked package reads its own ledger, records and sealed answers; and every room can be
    imported without what plain `pip install icl-book` does not bring.
    """
    extras = ["IPython", "jupyter_book", "nbclient", "grimp", "pyarrow", "dask", "transformers"]
    script = (
        f"import pathlib, sys; sys.modules |= dict.fromkeys({extras});"
        "import icl, icl_bench, icl_book, icl.experiments, icl.models, icl.theory, icl.tasks;"
        "from icl_book import claims, exercises, records;"
        f"assert pathlib.Path(icl.__file__).is_relative_to({str(installed)!r}), icl.__file__;"
        "assert len(claims.ledger()) > 100;"
        "[records.recorded(p.stem) for p in claims.folder('results').glob('*.json')];"
        f"assert exercises.check(print, {LABEL!r}, {[{}] * CASES}).message.startswith('not yet')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
