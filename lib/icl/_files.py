"""Files that are whole or not there: a draft beside the old one, on the disk in full, then renamed."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO


def write(path: Path, content: bytes) -> None:
    """Write a file in place of what stands there, which stays untouched until the new one is on the disk.

    A draft, `<name>.part`, is never read, and removed if it cannot be finished. Of several that write the same file,
    each has the draft for itself; the last one's stands in the end.

    Raises:
        OSError: naming the path, if the disk refuses; `path` is then as it was.
        NotImplementedError: on Windows, as `lock` does.
    """
    draft = path.with_name(f"{path.name}.part")
    try:
        with _own(draft) as out:
            try:
                out.truncate()
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
                draft.replace(path)
            except OSError:
                with contextlib.suppress(OSError):
                    draft.unlink()
                raise
    except OSError as error:
        # The operating system does not always say which file it could not write.
        raise OSError(error.errno, error.strerror, str(path)) from error
    # The new name is on the disk once its folder is.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def lock(file: IO[Any], *, wait: bool = True) -> None:
    """Lock an open file against other processes; the system gives the lock back when this one ends, however it ends.

    Raises:
        BlockingIOError: if another process has the lock and this one is not to wait for it.
        NotImplementedError: on Windows, which has no locks of this kind.
    """
    try:
        import fcntl
    except ModuleNotFoundError:
        raise NotImplementedError("files are written under POSIX locks: on Windows, use WSL") from None
    fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def _own(draft: Path) -> Iterator[BinaryIO]:
    """A draft, open, that nobody else writes to; a lock ends with its process, however that ends."""
    while True:
        # Not emptied before it is ours.
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT, 0o666), "wb") as out:
            lock(out)
            there = os.fstat(out.fileno())
            # Whoever had it may have given it its name meanwhile, or removed it.
            if there.st_nlink and _is(draft, there):
                yield out
                return


def _is(path: Path, there: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), there)
    except FileNotFoundError:
        return False
