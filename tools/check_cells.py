"""Lint the code cells of the chapters with ruff, as the notebook each chapter is, and report chapter and line."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from jupytext.myst import myst_to_notebook

ROOT = Path(__file__).parent.parent
BOOK = ROOT / "book"


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


def main() -> int:
    chapters = {path: cells for path in sorted(BOOK.rglob("*.md")) if (cells := code_cells(path))}
    if not chapters:
        print("no chapter has a code cell yet")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        for chapter, cells in chapters.items():
            notebook = Path(scratch, chapter.relative_to(ROOT)).with_suffix(".ipynb")
            notebook.parent.mkdir(parents=True, exist_ok=True)
            # Ids of our own: nbformat draws them at random.
            code = [nbformat.v4.new_code_cell(source, id=f"cell-{n}") for n, (_, source) in enumerate(cells)]
            language = {"language_info": {"name": "python"}}
            nbformat.write(nbformat.v4.new_notebook(cells=code, metadata=language), notebook)
        # Ruff finds the settings for a path below the folder of its configuration, so that goes along.
        Path(scratch, "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
        command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "json", "book"]
        ruff = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        if ruff.returncode > 1:
            print(ruff.stderr, file=sys.stderr)
            return ruff.returncode
        found = json.loads(ruff.stdout)
        for finding in found:
            notebook = Path(finding["filename"]).resolve().relative_to(Path(scratch).resolve())
            chapter = ROOT / notebook.with_suffix(".md")
            start, _ = chapters[chapter][finding["cell"] - 1]
            place = finding["location"]
            line = f"{chapter.relative_to(ROOT)}:{start + place['row']}:{place['column']}"
            print(f"{line}: {finding['code']} {finding['message']}")
    print(f"{len(chapters)} chapters, {sum(map(len, chapters.values()))} code cells, {len(found)} findings")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
