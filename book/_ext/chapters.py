"""The chapters as text: which pages the book has, and what their cells say and name."""

import ast
import copy
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import yaml
from filelock import FileLock, Timeout
from myst_nb.core.read import read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig
from sphinx.errors import SphinxError

ROOT = Path(__file__).resolve().parents[2]


#: The quicker one of two that say the same.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Broken(SphinxError):
    """Something among the book's sources cannot be built; the message names the file."""

    category = "Broken"


def built() -> Path:
    """Build folder."""
    return ROOT / "_build"


def lock(folder: Path) -> FileLock:
    """Acquire a folder's lock, which a process may hold twice, and return it as a context manager."""
    folder.mkdir(parents=True, exist_ok=True)
    held = FileLock(folder / ".lock", is_singleton=True)
    try:
        held.acquire(timeout=0)
    except Timeout:
        print(f"Another command is at work in {folder}; this one waits for it.", flush=True)
        held.acquire()
    return held


def run_command(work: Callable[[], int], folder: Path | None = None) -> int:
    """Run a command while holding a folder's lock (`_build`); print what is Broken in one line and return a status."""
    try:
        with lock(folder or built()):
            return work()
    except Broken as fault:
        print(fault, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped; what had finished is kept.", file=sys.stderr)
        return 130


def loaded(text: str) -> Any:
    """Parse YAML."""
    return yaml.load(text, LOADER)


def words(path: Path) -> str:
    """A source file's text; Broken if it is not there or is not UTF-8."""
    name = path.relative_to(ROOT).as_posix()
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise Broken(f"{name}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise Broken(f"{name}: byte {error.start} is not UTF-8 ({error.reason})") from error


def source(page: str) -> str:
    """A page's text."""
    return words(ROOT / f"{page}.md")


def title(page: str) -> str:
    """A page's first heading; Broken if it has none."""
    match = re.search(r"^# (.+)$", re.sub(r"^```.*?^```", "", source(page), flags=re.S | re.M), re.M)
    if match is None:
        raise Broken(f"{page}.md: it has no title")
    return match[1].strip()


def pages() -> list[str]:
    """Document names of the whole book, in the reader's order, from `_toc.yml`; Broken if one has no file."""
    names = _parse_toc(words(ROOT / "_toc.yml"))
    for name in names:
        if not (ROOT / f"{name}.md").is_file():
            raise Broken(f"_toc.yml: {name}: there is no {name}.md")
    return list(names)


@cache
def _parse_toc(text: str) -> tuple[str, ...]:
    """All files that a table of contents names, in its order."""

    def walk(node: Any) -> list[str]:
        if isinstance(node, list):
            return [name for item in node for name in walk(item)]
        here = [node["file"]] if "file" in node else []
        return here + [n for key in ("parts", "chapters", "sections") for n in walk(node.get(key, []))]

    try:
        toc = yaml.safe_load(text)  # as strictly as jupyter-book will
        return (toc["root"], *walk(toc))
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise Broken(f"_toc.yml: not a table of contents ({' '.join(str(error).split())})") from error


def with_cells() -> list[str]:
    """The pages that have cells to run."""
    return [page for page in pages() if is_chapter(source(page))]


def in_parts() -> list[str]:
    """The chapters: pages with cells, but for the landing page and those of the part Start."""
    return [page for page in with_cells() if page.count("/") > 1 and not page.startswith("book/start/")]


def is_chapter(text: str) -> bool:
    """True if a page has cells to run."""
    return text.startswith("---") and "\nkernelspec:" in text.split("\n---", 1)[0]


def code_cells(text: str) -> list[str]:
    """Sources of a chapter's code cells."""
    return [source for source, _ in cells(text)]


@cache
def cells(text: str) -> tuple[tuple[str, int], ...]:
    """Sources of the code cells, and the line before each one's fence."""
    notebook = _read(text)
    lines = notebook.metadata["source_map"]
    return tuple((c.source, line) for c, line in zip(notebook.cells, lines, strict=True) if c.cell_type == "code")


def read(text: str) -> nbformat.NotebookNode:
    """Read a chapter just as myst-nb does."""
    return copy.deepcopy(_read(text))


@cache
def _read(text: str) -> nbformat.NotebookNode:
    config = MdParserConfig(enable_extensions={"colon_fence", "dollarmath", "amsmath"})
    return read_myst_markdown_notebook(text, config, add_source_map=True, path=Path("chapter.md"))


@cache
def nodes(code: str) -> list[ast.AST]:
    """Nodes of a cell in the order of `ast.walk`, in two thirds of its time: a chapter has ten thousand nodes."""
    walked: list[ast.AST] = [ast.parse(code)]
    for node in walked:
        for name in node._fields:
            below = getattr(node, name, None)
            if isinstance(below, list):
                walked += [each for each in below if isinstance(each, ast.AST)]
            elif isinstance(below, ast.AST):
                walked.append(below)
    return walked


def claims_of(text: str) -> list[str]:
    """Ids of the claims that a chapter checks, in order."""
    return [m for cell in code_cells(text) for m in re.findall(r"""\bclaim\(\s*["']([^"']+)["']""", cell)]


def records_of(text: str) -> list[str]:
    """Ids of the records that a chapter reads, each once, in the order of their first reading."""
    ids = [m for cell in code_cells(text) for m in re.findall(r"""\brecorded\(\s*["']([^"']+)["']""", cell)]
    return list(dict.fromkeys(ids))


def answers_of(text: str) -> list[str]:
    """Labels of the sealed answers that a chapter compares attempts with."""
    pattern = r"""\b(?:check\(\s*\w+\s*,|seal\()\s*["']([^"']+)["']"""
    return list(dict.fromkeys(m for cell in code_cells(text) for m in re.findall(pattern, cell)))


def makes_records(text: str) -> bool:
    """True if a chapter records a long run when run with the profile `paper`."""
    return any(re.search(r"\brecord\(", cell) for cell in code_cells(text))


def examine(names: list[str]) -> None:
    """Broken, with the file's name, if a page cannot be read, a cell is no Python or hides what goes wrong, or two
    exercises share a label.
    """
    labels: dict[str, str] = {}
    for page in names:
        text = source(page)
        for label in re.findall(r"^[`:]{3,}\{exercise(?:-start)?\}[^\n]*\n(?::[^\n]*\n)*?:label: *(\S+)", text, re.M):
            if label in labels:
                raise Broken(f"{page}.md: the exercise label {label!r} is taken already, in {labels[label]}.md")
            labels[label] = page
        if not is_chapter(text) and re.search(r"^`{3,}\{code-cell\}", text, re.M):
            raise Broken(f"{page}.md: it has cells and no kernelspec in its head: they would be shown and not run")
        if is_chapter(text) and (fault := _fault(text)):
            raise Broken(f"{page}.md: {fault}")


def _fault(text: str) -> str | None:
    """Why a chapter cannot be read, or a cell is no Python or hides what goes wrong; None if neither."""
    try:
        numbered_cells = cells(text)
    except Exception as error:  # whatever the reader stumbles over, it is over this page
        return " ".join(str(error).split())
    for cell, line in numbered_cells:
        try:
            inside = nodes(cell)
        except (SyntaxError, ValueError) as error:
            shown = f"{error.msg}: {(error.text or '').strip()}" if isinstance(error, SyntaxError) else str(error)
            return f"the cell at line {line} is not plain Python, and magics are not either ({shown})"
        for node in inside:
            if hidden := _hides(node):
                return f"the cell at line {line} {hidden}"
    return None


#: What would keep a warning, an error or the end of a kernel from whoever builds the book.
_SILENT = {"redirect_stderr", "suppress", "exit", "quit", "_exit", "abort", "SystemExit", "seterr", "dup2"}


#: What a chapter has no need of: what it gets or does outside would be another thing on another day.
_OUTSIDE = {"urllib", "requests", "http", "httpx", "aiohttp", "ftplib", "socket", "subprocess", "multiprocessing"}


def _hides(node: ast.AST) -> str | None:
    """Part of a statement that hides an error from the build, if any."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        named = {alias.name for alias in node.names} | {getattr(node, "module", None)}
        if hidden := named & (_SILENT | {"warnings"}):
            return f"imports {', '.join(hidden)}: what goes wrong is for the build to see"
        if outside := {str(name).partition(".")[0] for name in named} & _OUTSIDE:
            return f"imports {', '.join(outside)}: a chapter needs no network and starts no program"
    if isinstance(node, ast.Attribute) and node.attr in ("stderr", "stdout") and isinstance(node.ctx, ast.Store):
        return f"puts something in place of sys.{node.attr}: what goes wrong is for the build to see"
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
        name = node.id if isinstance(node, ast.Name) else node.attr
        if name in _SILENT:
            return f"uses {name}: what goes wrong is for the build to see"
    if isinstance(node, ast.ExceptHandler):
        caught = ast.unparse(node.type) if node.type else "everything"
        if caught in ("everything", "Exception", "BaseException"):
            return f"catches {caught}: name the one error that is meant"
        if all(isinstance(each, ast.Pass | ast.Expr) and not _calls(each) for each in node.body):
            return f"swallows {caught}: say in the handler what holds then"
    return None


def _calls(node: ast.stmt) -> bool:
    return any(isinstance(each, ast.Call) for each in ast.walk(node))
