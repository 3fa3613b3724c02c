"""The built site, served on this machine only, and a Chromium that may reach nothing else."""

import contextlib
import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a line for each."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Server(http.server.ThreadingHTTPServer):
    """Holds as many waiting connections as a page opens at once.

    Of five, the default, a sixth is dropped and tried again after 1, 2, 4, ... seconds: a page may take half a minute.
    """

    request_queue_size = 128


@contextlib.contextmanager
def served(site: Path) -> Iterator[str]:
    """The address of a built site on this machine."""
    if not (site / "index.html").exists():
        raise RuntimeError("the site is not built: run `make book` first")
    server = Server(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@contextlib.contextmanager
def launched() -> Iterator[Browser]:
    """Headless Chromium from the system's packages."""
    binary = next((b for name in ("chromium", "chromium-browser", "google-chrome") if (b := shutil.which(name))), None)
    if binary is None:
        raise RuntimeError("no Chromium found; on Debian and Ubuntu: sudo apt install chromium")
    with sync_playwright() as playwright:
        instance = playwright.chromium.launch(executable_path=binary, args=list(FLAGS))
        yield instance
        instance.close()
