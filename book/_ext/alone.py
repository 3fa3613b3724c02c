"""One at a time: whoever works in a folder has it to himself, and whoever comes second waits."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def within(folder: Path) -> Iterator[None]:
    """Have a folder, made if it is not there; the lock ends with its process, however that ends.

    A build empties folders that another one's kernels import from, and records are told by who else wrote none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(
                f"Another command is at work in {folder}; this one waits for it. Ctrl-C ends the waiting.", flush=True
            )
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
