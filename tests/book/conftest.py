"""A book of a few lines, of which the build's own code runs every chapter in seconds."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "book" / "_ext"), str(ROOT / "tools")]

HEAD = "---\nkernelspec:\n  display_name: Python 3\n  name: python3\n---\n\n# A chapter\n\n"


def chapter(cells: list[str]) -> str:
    """A page with these cells."""
    return HEAD + "".join(f"```{{code-cell}}\n{cell}\n```\n\nSome prose.\n\n" for cell in cells)


class Tiny:
    """A folder with a table of contents, a lock, a ledger, a library and pages."""

    chapter = staticmethod(chapter)

    def __init__(self, root: Path) -> None:
        """Write all but the pages."""
        self.root = root
        for folder in ("book/claims", "book/results", "lib/icl"):
            (root / folder).mkdir(parents=True)
        (root / "lib/icl/__init__.py").write_text('__version__ = "1.2"\n')
        (root / "pyproject.toml").write_text('[project]\nversion = "1.2"\nrequires-python = ">=3.11"\n')
        (root / "requirements.lock").write_text("torch==1\n")
        (root / "book/claims/gla.yml").write_text("- {id: gla.x, verdict: open}\n")
        (root / "book/index.md").write_text("# A book\n")
        self.contents("book/index")

    def contents(self, *names: str) -> None:
        """Write the table of contents."""
        files = ", ".join(f"{{file: {name}}}" for name in names[1:])
        (self.root / "_toc.yml").write_text(f"format: jb-book\nroot: {names[0]}\nchapters: [{files}]\n")

    def chapters(self, **pages: list[str]) -> None:
        """Write chapters of these cells by name, and the table of contents of all of them, in this order."""
        for name, cells in pages.items():
            (self.root / f"book/{name}.md").write_text(chapter(cells))
        self.contents("book/index", *(f"book/{name}" for name in pages))

    def numbers(self) -> list[str]:
        """Of processes that have left a file with theirs."""
        return [path.stem for path in self.root.glob("*.pid")]

    @staticmethod
    def running(number: str) -> bool:
        """Whether a process is there and is no zombie."""
        try:
            return bool(Path("/proc", number, "cmdline").read_bytes())
        except OSError:
            return False


@pytest.fixture(scope="session")
def laid_out():
    """Lays the little book out in a folder, in place of the real one for as long as a patch lasts."""

    def lay_out(root: Path, patch: pytest.MonkeyPatch) -> Tiny:
        import chapters

        patch.setattr(chapters, "ROOT", root)
        assert "ICL_PROFILE" not in os.environ
        return Tiny(root)

    return lay_out


@pytest.fixture
def tiny(laid_out, tmp_path, monkeypatch) -> Tiny:
    """The little book, in place of the real one; its kernels have this session's environment."""
    return laid_out(tmp_path, monkeypatch)
