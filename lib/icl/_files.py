"""Files that are whole or not there: a draft beside the old one, on the disk in full, then renamed."""

import contextlib
import os
from pathlib import Path


def write(path: Path, content: bytes) -> None:
    """Write a file in place of what stands there, which stays untouched until the new one is on the disk.

    A draft, `<name>.part`, is never read, and removed if it cannot be finished.

    Raises:
        OSError: naming the path, if the disk refuses; `path` is then as it was.
    """
    draft = path.with_name(f"{path.name}.part")
    try:
        with draft.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        # The operating system does not always say which file it could not write.
        raise OSError(error.errno, error.strerror, str(path)) from error
    # The new name is on the disk once its folder is.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
