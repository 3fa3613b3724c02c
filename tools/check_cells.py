"""Lint and format the code cells of the chapters with ruff, as the notebook each chapter is.

python tools/check_cells.py          report findings and cells that are not formatted, by chapter and line
python tools/check_cells.py --fix    mend what ruff can, and format them in place
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from jupytext.myst import myst_to_notebook

ROOT = Path(__file__).parent.parent
BOOK = ROOT / "book"
LINE = "88"  # what fits beside the site's navigation without scrolling


def code_cells(chapter: Path) -> list[tuple[int, str]]:
    """The line before each code cell's first line of code, and the code."""
    text = chapter.read_text(encoding="utf-8")
    if "{code-cell}" not in text:
        return []
    lines = text.splitlines()
    notebook = myst_to_notebook(text, add_source_map=True)
    cells = []
    for cell, fence in zip(notebook.cells, notebook.metadata.pop("source_map"), strict=True):
        if cell.cell_type == "code" and cell.source:
            # Between the fence and the code may stand options, of any number of lines.
            code = cell.source.splitlines()
            start = next(i for i in range(fence, len(lines)) if lines[i : i + len(code)] == code)
            cells.append((start, cell.source))
    return cells


def hidden(path: Path) -> bool:
    """True if a path lies in a folder like .ipynb_checkpoints, which JupyterLab leaves behind."""
    return any(part.startswith(".") for part in path.relative_to(BOOK).parts)


def ruff(command: str, scratch: str, *options: str) -> str:
    """Run ruff over the scratch notebooks; return what it prints."""
    full = [sys.executable, "-m", "ruff", command, "--no-cache", *options, "book"]
    done = subprocess.run(full, cwd=scratch, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        raise SystemExit(done.stderr)
    return done.stdout


def main() -> int:
    """Check or fix every chapter; return how many things are wrong, as an exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fix", action="store_true", help="write the formatted cells back into the chapters")
    fix = parser.parse_args().fix
    chapters = {
        path: cells for path in sorted(BOOK.rglob("[!.]*.md")) if not hidden(path) and (cells := code_cells(path))
    }
    if not chapters:
        raise SystemExit("no chapter has a code cell")
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        copies = {}
        for chapter, cells in chapters.items():
            copy = Path(scratch, chapter.relative_to(ROOT)).with_suffix(".ipynb")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copies[copy.resolve()] = chapter
            # Ids of our own: nbformat draws them at random.
            code = [nbformat.v4.new_code_cell(source, id=f"cell-{n}") for n, (_, source) in enumerate(cells)]
            language = {"language_info": {"name": "python"}}
            nbformat.write(nbformat.v4.new_notebook(cells=code, metadata=language), copy)
        # Ruff finds the settings for a path below the folder of its configuration, so that goes along.
        Path(scratch, "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())

        if fix:
            ruff("check", scratch, "--fix-only", "--quiet")
        for finding in json.loads(ruff("check", scratch, "--output-format", "json")):
            chapter = copies[Path(finding["filename"]).resolve()]
            start, _ = chapters[chapter][finding["cell"] - 1]
            place = f"{chapter.relative_to(ROOT)}:{start + finding['location']['row']}:{finding['location']['column']}"
            print(f"{place}: {finding['code']} {finding['message']}")
            wrong += 1

        ruff("format", scratch, "--line-length", LINE)
        for copy, chapter in copies.items():
            lines = chapter.read_text(encoding="utf-8").splitlines()
            formatted = nbformat.read(copy, as_version=4).cells
            # From the last cell to the first, so that line numbers still hold.
            for (start, old), cell in reversed(list(zip(chapters[chapter], formatted, strict=True))):
                if cell.source == old:
                    continue
                if fix:
                    lines[start : start + len(old.splitlines())] = cell.source.splitlines()
                else:
                    print(f"{chapter.relative_to(ROOT)}:{start + 1}: cell is not formatted (make format)")
                    wrong += 1
            if fix:
                chapter.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(chapters)} chapters, {sum(map(len, chapters.values()))} code cells, {wrong} findings")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
