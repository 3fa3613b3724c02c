"""Pictures within a page become files beside it: a phone loads the page, and the pictures that it comes near."""

import base64
import hashlib
import re
from collections.abc import Callable
from pathlib import Path

EMBEDDED = re.compile(r'src="data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)"')
FOLDER = "_images"


def beside(html: str, page: str, site: Path, uri: Callable[[str], str]) -> str:
    """Write the embedded SVG pictures of a page into the site, those it had before removed; return the page without.

    Args:
        html: the page's body.
        page: its name, such as `book/adaptation/depth`.
        site: the folder of the built site.
        uri: address, from the page, of a file of the site.
    """
    folder, written = f"{FOLDER}/{page}", set[str]()

    def moved(match: re.Match[str]) -> str:
        picture = base64.b64decode(match[1])
        name = f"{hashlib.sha256(picture).hexdigest()[:16]}.svg"
        (site / folder).mkdir(parents=True, exist_ok=True)
        (site / folder / name).write_bytes(picture)
        written.add(name)
        return f'src="{uri(f"{folder}/{name}")}"'

    html = EMBEDDED.sub(moved, html)
    for old in (site / folder).glob("*.svg"):
        if old.name not in written:
            old.unlink()
    return html
