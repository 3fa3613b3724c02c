"""Run downloads again, with the package as a reader installs it, and compare them with their pages to the bit.

    python tools/check_reproducible.py         two chapters, which the commit draws, so that all get their turn
    python tools/check_reproducible.py --all   every chapter

Compared is everything that the cells put out: chart specifications, tables, verdicts and printed text. The two runs
share nothing but the code, so an unseeded draw in a chapter shows here.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))

import chapters
import notebooks
import runs

SAMPLE = 2


def shuffled(pages: list[str], commit: str) -> list[str]:
    """Chapters in an order that depends on the commit alone."""
    return sorted(pages, key=lambda page: hashlib.sha256(f"{commit} {page}".encode()).digest())


def sample(pages: list[str], commit: str) -> list[str]:
    """The chapters whose turn it is at a commit."""
    return shuffled(pages, commit)[:SAMPLE]


def commit() -> str:
    """The commit that is checked out; empty without git."""
    command = ["git", "rev-parse", "HEAD"]
    done = subprocess.run(command, cwd=chapters.ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def built_download(page: str, name: str) -> nbformat.NotebookNode:
    """A download that lies beside a built page; Broken if it is not there."""
    path = chapters.built() / "html" / "_sources" / f"{name}.ipynb"
    if not path.exists():
        raise chapters.Broken(f"{page}.md: its download is not built: run `make book`")
    return nbformat.read(path, as_version=4)


def difference(page: str, again: nbformat.NotebookNode, solutions: bool) -> str:
    """First difference between a download, executed with or without solutions, and the chapter's run; "" if none."""
    run = runs.cached(page)
    if run is None:
        return "It was not run as it is now: run `make book`."
    mine, other = (notebooks.page_cells(n) for n in (run, again))
    if not solutions:
        download = notebooks.page_cells(runs.download(page))
        mine = [cell for cell, twin in zip(mine, download, strict=True) if not notebooks.solves(twin)]
    if [c.source for c in mine] != [c.source for c in other]:
        return "The download has other cells than the page."
    for number, (cell, twin) in enumerate(zip(mine, other, strict=True), 1):
        ours, theirs = _plain(cell), _plain(twin)
        if ours != theirs:
            at = next((k for k, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), 0)
            part = slice(max(at - 60, 0), at + 60)
            return f"Code cell {number} put out\n  {ours[part]}\non the page, and in its download\n  {theirs[part]}"
    return ""


def outputs(cell: nbformat.NotebookNode) -> list[dict[str, Any]]:
    """A cell's outputs without their numbers, printed text in one piece: how it is cut depends on when it was sent."""
    pieces: list[dict[str, Any]] = []
    for output in cell.outputs:
        if pieces and output.output_type == "stream" and pieces[-1].get("name") == output.name:
            pieces[-1]["text"] += output.text
        else:
            pieces.append({key: value for key, value in output.items() if key != "execution_count"})
    return pieces


def without_addresses(text: str) -> str:
    """A text without the addresses of objects in memory, which differ from run to run."""
    return re.sub(r" at 0x\w+", "", text)


def _plain(cell: nbformat.NotebookNode) -> str:
    return without_addresses(json.dumps(outputs(cell), sort_keys=True))


def again(pages: list[str]) -> int:
    """Run the downloads of these chapters as the site offers them; return an exit status."""
    owner, wrong = {name: page for page in pages for name in notebooks.files(page)}, 0
    work = {name: built_download(page, name) for name, page in owner.items()}
    with runs.unpacked_wheel() as package:
        for name, notebook, _, error in runs.execute_in_parallel(work, runs.kernel_environment(package=package)):
            page = owner[name]
            if not error and (error := difference(page, notebook, solutions=name != page)):
                print(f"{name}: {error}", flush=True)
            wrong += bool(error)
    return int(bool(wrong))


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every chapter, not only those whose turn it is")
    everything = parser.parse_args(arguments).all
    pages = chapters.with_cells()
    return chapters.run_command(lambda: again(pages if everything else sample(pages, commit())))


if __name__ == "__main__":
    sys.exit(main())
