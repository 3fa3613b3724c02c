"""The built site, served on this machine only, and a Chromium that may reach nothing else."""

import functools
import http.server
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
sys.path.insert(0, str(ROOT / "book" / "_ext"))  # for `chapters`

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


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    """Address of the built site."""
    if not (HTML / "index.html").exists():
        raise RuntimeError("the site is not built: run `make book` first")
    server = Server(("127.0.0.1", 0), functools.partial(Quiet, directory=str(HTML)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium from the system's packages."""
    binary = next((b for name in ("chromium", "chromium-browser", "google-chrome") if (b := shutil.which(name))), None)
    if binary is None:
        raise RuntimeError("no Chromium found; on Debian and Ubuntu: sudo apt install chromium")
    with sync_playwright() as playwright:
        instance = playwright.chromium.launch(executable_path=binary, args=list(FLAGS))
        yield instance
        instance.close()


class Watched:
    """A page together with everything that went wrong on it."""

    def __init__(self, page: Page, origin: str) -> None:
        """Listen to the page."""
        self.page, self.faults = page, list[str]()
        page.on(
            "console",
            lambda m: self.faults.append(f"console {m.type}: {m.text}") if m.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: self.faults.append(f"uncaught: {error}"))
        page.on("requestfailed", lambda r: self.faults.append(f"failed: {r.url}"))
        page.on("response", lambda r: self.faults.append(f"status {r.status}: {r.url}") if r.status >= 400 else None)
        own = (origin, "data:", "blob:")
        page.on("request", lambda r: None if r.url.startswith(own) else self.faults.append(f"external: {r.url}"))

    def read_through(self) -> None:
        """Scroll to the end, as a reader does, then wait until every figure is drawn.

        It never waits for a frame: a browser on a busy machine may draw none for half a minute.
        """
        self.page.evaluate(
            """async () => {
                for (let y = 0; y < document.documentElement.scrollHeight; y += innerHeight) {
                    scrollTo(0, y);
                    await new Promise(done => setTimeout(done, 20));
                }
            }"""
        )
        self.settle()
        self.page.wait_for_function(
            "!window.MathJax?.startup || MathJax.startup.promise.then(() => true)", timeout=60_000
        )

    def settle(self, theme: str | None = None) -> None:
        """Wait until every figure is drawn, in the theme if one is given, and no colour is on its way to another."""
        unsettled = self.page.evaluate(
            """async theme => {
                const drawn = ({dataset: {drawn}}) => drawn === 'failed' || (theme ? drawn === theme : drawn);
                const unsettled = () => [
                    ...[...document.querySelectorAll('.icl-chart')].filter(f => !drawn(f)).map(f => [
                        f.id || f.querySelector('img')?.alt.slice(0, 40), `top ${f.getBoundingClientRect().top}`,
                        `view ${!!f.view}`, `bundle ${!!window.vegaEmbed}`, document.visibilityState].join()),
                    ...document.getAnimations().filter(a => a instanceof CSSTransition).map(a => a.transitionProperty),
                ];
                for (let k = 0; k < 2400 && unsettled().length; k++) await new Promise(done => setTimeout(done, 25));
                // To the end and a little back: a button shows on the way up only.
                for (const step of [document.documentElement.scrollHeight, -100]) {
                    scrollBy(0, step);
                    await new Promise(done => setTimeout(done, 20));
                }
                return unsettled();
            }""",
            theme,
        )
        assert not unsettled, unsettled


@pytest.fixture
def visit(browser: Browser, site: str) -> Iterator[object]:
    """Open a page of the site at a width and in a theme."""
    contexts = []

    def go(
        name: str,
        *,
        width: int = 1280,
        theme: str = "light",
        origin: str | None = None,
        query: str = "",
        script: str | None = None,
        **options: object,
    ) -> Watched:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, **options)
        contexts.append(context)
        if script:
            context.add_init_script(script)
        base = origin or site
        watched = Watched(context.new_page(), base)
        watched.page.goto(f"{base}/{name}.html{query}")
        return watched

    yield go
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def forms(browser: Browser, site: str) -> Page:
    """A blank page with the site's closed forms and nothing else; they keep no state, so one serves every test."""
    page = browser.new_page()
    page.add_script_tag(url=f"{site}/_static/explorables.js")
    return page
