"""Files that are whole or not there, and the checksum by which a reader knows."""

import contextlib
import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any


def write(path: Path, content: bytes) -> None:
    """Write a file in place of what stands there, which stays untouched until the new one is on the disk.

    The draft beside it has a name of its own, `<name>.<random>.part`: writers at once do not meet.

    Raises:
        OSError: naming the path, if the disk refuses; `path` is then as it was.
    """
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with draft.open("xb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(path)
    except OSError as error:
        # The operating system does not always say which file it could not write.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def checksum(content: Any) -> str:
    """Return a hash of what JSON makes of a value: the same before writing and after reading, in any layout."""
    # Read back first: of a dict's keys JSON makes strings, and sorts numbers as numbers.
    plain = json.dumps(json.loads(json.dumps(content)), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()[:32]
