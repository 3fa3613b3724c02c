"""The package as a reader installs it, without the repository around it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_wheel_holds_ledger_and_records(installed):
    """Ledger and records travel with the package: a downloaded notebook has no repository to read them from."""
    for kind, suffix in (("claims", "yml"), ("results", "json")):
        there = {p.name for p in (ROOT / "book" / kind).glob(f"*.{suffix}")}
        assert {p.name for p in (installed / "icl_book" / kind).glob(f"*.{suffix}")} == there
        assert there


def test_the_science_stands_by_itself(installed, tmp_path):
    """`icl` imports without the other two packages and without what only they need."""
    others = ["icl_bench", "icl_book", "altair", "vl_convert", "yaml", "IPython", "grimp", "pyarrow"]
    script = f"import sys; sys.modules |= dict.fromkeys({others}); import icl.experiments, icl.theory, icl.self_tuning"
    command, around = [sys.executable, "-c", script], {"PYTHONPATH": str(installed)}
    done = subprocess.run(command, cwd=tmp_path, env=around, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]


def test_the_installed_package_stands_by_itself(installed, tmp_path):
    """In an empty folder the unpacked package reads its own ledger and records; and every room can be imported without
    what plain `pip install icl-book` does not bring.
    """
    extras = ["IPython", "jupyter_book", "nbclient", "grimp", "pyarrow", "dask", "transformers"]
    script = (
        f"import pathlib, sys; sys.modules |= dict.fromkeys({extras});"
        "import icl, icl_bench, icl_book, icl.experiments, icl.models, icl.theory, icl.tasks;"
        "from icl_book import claims, records;"
        f"assert pathlib.Path(icl.__file__).is_relative_to({str(installed)!r}), icl.__file__;"
        "assert len(claims.ledger()) > 100;"
        "[records.recorded(p.stem) for p in claims.folder('results').glob('*.json')]"
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
