"""What was found out about a text by reading it, kept on disk for the next build, which need not read it again.

A build asks the same of thirty chapters each time, and has most often changed one. What is kept is a function of the
text and of the code that reads it, the library's included: both are in its name, so that nothing kept is ever stale.
What other code said is dropped; what is said of older texts stays until the code changes, for which texts a build asks
of depends on which pages it reads.
Only a build keeps anything (`within`); everywhere else the functions are computed.
"""

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from icl import _files

_ROOT = Path(__file__).resolve().parents[2]
_folder: Path | None = None


@contextlib.contextmanager
def within(folder: Path) -> Iterator[None]:
    """Keep in this folder what is found out meanwhile, and use what was."""
    global _folder
    folder.mkdir(parents=True, exist_ok=True)
    _folder = folder
    try:
        yield
    finally:
        _folder = None


def of(what: str, text: str, find: Callable[[str], Any]) -> Any:
    """What `find` says of a text, in JSON's types: computed, or as it was by the same code of the same text.

    Args:
        what: the name of the question.
        text: what `find` depends on, beside the code in `book/_ext` and `lib`, and the lock.
        find: the answer, for one that is not kept.
    """
    if _folder is None:
        return find(text)
    name = hashlib.sha256(f"{what}\0{text}".encode()).hexdigest()[:24]
    path = _folder / f"{_code()[:12]}-{name}.json"
    # What is not there, or damaged, is found out anew.
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))
    found = find(text)
    _files.write(path, json.dumps(found, ensure_ascii=False).encode())
    return found


def tidy() -> None:
    """Drop what other code said, at the end of a build of the whole book."""
    if _folder is not None:
        for path in _folder.iterdir():
            if not path.name.startswith(_code()[:12]):
                path.unlink()


@cache
def _code() -> str:
    """A digest of all code that may take part in an answer."""
    digest = hashlib.sha256(sys.version.encode())
    parts = [*(_ROOT / "book/_ext").glob("*.py"), *(_ROOT / "lib").rglob("*.py")]
    for path in [*sorted(parts), _ROOT / "requirements.lock"]:
        digest.update(f"\0{path.relative_to(_ROOT).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
