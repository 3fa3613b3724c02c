"""Whether the site is what a build would make: nothing has changed of what it is made of, nor of what was made.

A build takes ten seconds to find that out, for it reads every page's tree. Here bytes are
compared: those of every file that git does not ignore, with what they were when the last build began that came to its
end.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

import chapters
import dates


def sources() -> str | None:
    """A digest of everything a build may read; None where git cannot list it."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=chapters.ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    digest = hashlib.sha256(f"{sys.version} {sys.prefix} {dates.of_release()}".encode())
    for name in sorted(set(listed.stdout.split("\0")) - {""}):
        digest.update(f"\0{name}\0".encode())
        if (path := chapters.ROOT / name).is_file():
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _made(part: str) -> str:
    """A digest of what the build wrote: size and time of each file and folder are enough."""
    digest = hashlib.sha256()
    for path in sorted((chapters.built() / part).rglob("*")):
        about = path.stat()
        digest.update(f"{path}\0{about.st_size}\0{about.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _state(now: str) -> str:
    return f"{now} {_made('runs')} {_made('html')}"


def since_the_last_build(now: str | None) -> bool:
    """Whether a build would make what is there already; `now` are the sources as they are."""
    stamp = _stamp()
    return now is not None and stamp.is_file() and stamp.read_text(encoding="ascii") == _state(now)


def site_is_as_built() -> bool:
    """Whether nothing was lost or altered among the pages since the last build; so it is where none is remembered."""
    stamp = _stamp()
    return not stamp.is_file() or stamp.read_text(encoding="ascii").endswith(f" {_made('html')}")


def remember(before: str | None) -> None:
    """The site is built; `before` are the sources as the build began, for they may have changed meanwhile."""
    if before is None:
        _stamp().unlink(missing_ok=True)
    else:
        _stamp().write_text(_state(before), encoding="ascii")


def _stamp() -> Path:
    return chapters.built() / "state"
