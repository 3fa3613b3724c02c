"""The built site, served on this machine only, and a Chromium that may reach nothing else."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
sys.path[:0] = [str(ROOT / "book" / "_ext"), str(ROOT / "tools")]  # for `chapters`, and for `chromium`

import chromium  # noqa: E402

WAIT = 120_000  # milliseconds, for a page or an element; half a minute, the default, a busy machine may need for a page


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    """Address of the built site."""
    with chromium.served(HTML) as address:
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser a worker."""
    with chromium.launched() as instance:
        yield instance


# Resolves when both parts of a figure are no longer what they were; fails if that takes more than ten seconds.
REDRAWN = """(figure, [drawing, readout]) => new Promise((done, fail) => {
    const view = figure.querySelector('.icl-chart__view');
    const words = figure.querySelector('.icl-readout');
    const late = setTimeout(() => fail(new Error(
        `unchanged: ${view.innerHTML === drawing ? 'drawing' : ''} ${words.textContent === readout ? 'readout' : ''}`,
    )), 10_000);
    const look = () => {
        if (view.innerHTML === drawing || words.textContent === readout) return;
        clearTimeout(late);
        done();
    };
    const watch = new MutationObserver(look);
    for (const part of [view, words]) {
        watch.observe(part, {subtree: true, childList: true, characterData: true, attributes: true});
    }
    look();
})"""


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
        # A page that is left gives up its icon if it is still on its way; an icon that is not there has a status.
        left = lambda r: r.failure == "net::ERR_ABORTED" and r.url.endswith("/favicon.svg")  # noqa: E731
        page.on("requestfailed", lambda r: None if left(r) else self.faults.append(f"failed: {r.url}"))
        page.on("response", lambda r: self.faults.append(f"status {r.status}: {r.url}") if r.status >= 400 else None)
        own = (origin, "data:", "blob:")
        page.on("request", lambda r: None if r.url.startswith(own) else self.faults.append(f"external: {r.url}"))

    def read_through(self) -> None:
        """Stop at each figure until it is drawn, as a reader does, and wait for the formulas."""
        self._settle(read=True)

    def turn(self, theme: str) -> None:
        """Ask for the theme, as a reader's system does, and wait until it is there."""
        self.page.emulate_media(color_scheme=theme)
        self.settle(theme)

    def settle(self, theme: str) -> None:
        """Wait until the page and every figure is in the theme, and no colour on its way to another."""
        self._settle(theme=theme)

    def shown(self, figure: Locator) -> list[str]:
        """The drawing of a figure with sliders, and what it reads out."""
        return [figure.locator(".icl-chart__view").inner_html(), figure.locator(".icl-readout").text_content()]

    def redrawn(self, figure: Locator, before: list[str]) -> None:
        """Wait until both are no longer what they were."""
        figure.evaluate(REDRAWN, before)

    def _settle(self, **how: object) -> None:
        """Wait for events only, not for a frame: a browser on a busy machine may draw none for half a minute."""
        unsettled = self.page.evaluate(
            """async ({read, theme}) => {
                const deadline = new Promise(done => setTimeout(done, 60_000));
                // What an element's attribute has come to be, at once or after any number of changes.
                const becomes = (element, attribute, holds) => Promise.race([deadline, new Promise(done => {
                    const look = () => { if (holds()) done(); };
                    new MutationObserver(look).observe(element, {attributeFilter: [attribute]});
                    look();
                })]);
                const figures = [...document.querySelectorAll('.icl-chart')], root = document.documentElement;
                const drawn = ({dataset: {drawn}}) => drawn === 'failed' || (theme ? drawn === theme : drawn);
                if (theme) await becomes(root, 'data-theme', () => root.dataset.theme === theme);
                for (const figure of figures) {
                    if (read) {
                        // A chart waits for its reader, in a fold or not; no frame need be drawn for it to know of one.
                        for (let up = figure; up; up = up.parentElement?.closest('details:not([open])')) up.open = true;
                        figure.scrollIntoView();
                        dispatchEvent(new Event('scroll'));
                    }
                    await becomes(figure, 'data-drawn', () => drawn(figure));
                }
                if (read) {
                    await Promise.race([deadline, window.MathJax?.startup?.promise]);
                    scrollTo(0, root.scrollHeight);
                }
                // A colour on its way arrives now.
                document.getAnimations().filter(a => a instanceof CSSTransition).forEach(a => a.finish());
                return [
                    ...theme && root.dataset.theme !== theme ? [`the page's theme is ${root.dataset.theme}`] : [],
                    ...figures.filter(figure => !drawn(figure)).map(figure => [
                        figure.id || figure.querySelector('img')?.alt.slice(0, 40), `view ${!!figure.view}`,
                        `bundle ${!!window.vegaEmbed}`, document.visibilityState].join()),
                ];
            }""",
            how,
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
        context.set_default_timeout(WAIT)
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
