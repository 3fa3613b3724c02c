"""How heavy the built pages are, and how soon a figure is drawn: the ten heaviest, in Chromium on this machine.

    python benchmarks/pages.py [--width 390] [--slower 4]

Weights are of the page and the pictures beside it, in thousands of bytes, as they lie and compressed as hosts send
them; scripts and styles that all pages share are not counted. Times are from the request to the first figure, the
median of five visits with an empty cache; `--slower 4` has the browser compute as a phone does.
"""

import argparse
import gzip
import statistics
import sys
from pathlib import Path

from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[1]
HTML = ROOT / "_build" / "html"
sys.path[:0] = [str(ROOT / "book" / "_ext"), str(ROOT / "tools")]

import chromium  # noqa: E402
import pictures  # noqa: E402

VISITS = 5
#: Milliseconds from the request to the first chart that is drawn, and that can be moved where it has sliders.
FIRST = """() => new Promise(done => {
    const look = () => {
        if (document.querySelector('.icl-chart[data-drawn]')) { clearInterval(clock); done(performance.now()); }
    };
    const clock = setInterval(look, 5);
})"""


def weight(page: Path) -> tuple[int, int]:
    """Bytes of a page and of its pictures, and of both compressed."""
    own = HTML / pictures.FOLDER / page.relative_to(HTML).with_suffix("")
    files = [path.read_bytes() for path in (page, *own.glob("*.svg"))]
    return sum(map(len, files)), sum(len(gzip.compress(content)) for content in files)


def first_figure(browser: Browser, url: str, width: int, slower: float) -> float:
    """Milliseconds until the first figure is drawn."""
    times = []
    for _ in range(VISITS):
        context = browser.new_context(viewport={"width": width, "height": 900})
        page = context.new_page()
        if slower != 1:
            context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": slower})
        page.goto(url, wait_until="commit")
        times.append(page.evaluate(FIRST))
        context.close()
    return statistics.median(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--slower", type=float, default=1)
    asked = parser.parse_args()
    heaviest = sorted(HTML.rglob("*.html"), key=weight, reverse=True)[:10]
    with chromium.served(HTML) as site, chromium.launched() as browser:
        print(f"{'kB':>6} {'gzip':>6} {'ms':>6}  page")
        for page in heaviest:
            name, (plain, packed) = page.relative_to(HTML), weight(page)
            drawn = 'class="icl-chart' in page.read_text(encoding="utf-8")
            ms = f"{first_figure(browser, f'{site}/{name}', asked.width, asked.slower):.0f}" if drawn else "-"
            print(f"{plain / 1e3:6.0f} {packed / 1e3:6.0f} {ms:>6}  {name}")


if __name__ == "__main__":
    main()
