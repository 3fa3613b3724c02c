"""Link previews (Open Graph): title, description and picture, in the head of every page.

The picture is the chapter's first figure under its title, drawn once and kept as long as neither changes; pages without
a figure share one. Addresses are whole where the build knows the public one, and relative elsewhere.
"""

import base64
import hashlib
import io
import os
import re
import textwrap
from html import escape, unescape
from pathlib import Path
from typing import Any

import chapters
import descriptions
import runs
import vl_convert
from PIL import Image
from sphinx.application import Sphinx

from icl_book import charts

BOOK, SUBTITLE = "Learning to Adapt", "In-context learning as filtering and optimisation"
FOLDER, COMMON, SIZE = "_images/previews", "book", (1200, 630)
_EMBEDDED = re.compile(r'<img [^>]*?src="data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)"[^>]*>')


def first_figure(page: str) -> tuple[str, str] | None:
    """A chapter's first figure, as SVG, and what it shows, in words; None if it has none."""
    run = runs.cached(page) if page in chapters.with_cells() else None
    for html in runs.outputs(run, "text/html") if run else []:
        if match := _EMBEDDED.search(html):
            alt = re.search(r'alt="([^"]*)"', match[0])
            return base64.b64decode(match[1]).decode(), unescape(alt[1]) if alt else ""
    return None


def card(title: str, figure: str | None) -> str:
    """The picture as SVG: the title, then the book, and beside them the figure."""
    text = '<text x="60" y="{}" font-family="Chart Sans" font-size="{}" fill="{}" font-weight="{}">{}</text>'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{SIZE[0]}" height="{SIZE[1]}">']
    parts.append('<rect width="1200" height="630" fill="#fff"/><rect width="14" height="630" fill="#0b5f9e"/>')
    if figure is None:
        parts.append(text.format(300, 84, "#14181e", 500, escape(title)))
        parts.append(text.format(370, 36, "#4a5058", 400, escape(SUBTITLE)))
    else:
        head, width, height = _opening(figure)
        for line, words in enumerate(textwrap.wrap(title, 15)):
            parts.append(text.format(110 + 54 * line, 44, "#14181e", 500, escape(words)))
        place = f'x="440" y="34" width="730" height="562" viewBox="0 0 {width:g} {height:g}"'
        parts.append(f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" {place}>{figure[head:]}')
        parts.append(text.format(590, 28, "#4a5058", 400, escape(BOOK)))
    return "".join([*parts, "</svg>"])


def _opening(svg: str) -> tuple[int, float, float]:
    """End of the root element's opening tag, and its width and height."""
    tag = re.search(r"<svg\b[^>]*>", svg)
    sizes = [float(re.search(rf'\b{side}="([\d.]+)', tag[0])[1]) for side in ("width", "height")]
    return tag.end(), sizes[0], sizes[1]


def png(svg: str) -> bytes:
    """The picture with as many colours as charts need, which makes it small."""
    charts.register_fonts()
    drawn = Image.open(io.BytesIO(vl_convert.svg_to_png(svg, scale=1))).convert("RGB")
    out = io.BytesIO()
    drawn.quantize(64, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def lay(site: Path, name: str, svg: str) -> str:
    """Have a picture in the site, drawn unless it is there; return its path."""
    stem = name.removeprefix("book/").replace("/", "-")
    path = site / FOLDER / f"{stem}.{hashlib.sha256(svg.encode()).hexdigest()[:12]}.png"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.glob(f"{stem}.*.png"):
            old.unlink(missing_ok=True)
        draft = path.with_suffix(f".{os.getpid()}.part")  # pages are written side by side
        draft.write_bytes(png(svg))
        draft.replace(path)
    return f"{FOLDER}/{path.name}"


def _head(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Put the lines into the page's head."""
    title = unescape(re.sub(r"<[^>]+>", "", context.get("title") or BOOK))
    about = descriptions.description(page) if (chapters.ROOT / f"{page}.md").exists() else ""
    figure = first_figure(page) if about else None
    picture = lay(Path(app.outdir), page if figure else COMMON, card(title if figure else BOOK, figure and figure[0]))
    root = app.config.html_baseurl
    address = (lambda path: f"{root}{path}") if root else (lambda path: context["pathto"](path, 1))
    lines = {
        "description": about or f"{title}: a page of {BOOK}.",
        "og:site_name": BOOK,
        "og:type": "article" if page in chapters.with_cells() else "website",
        "og:title": title,
        "og:description": about or f"{title}: a page of {BOOK}.",
        "og:url": address(f"{page}.html") if root else "",
        "og:image": address(picture),
        "og:image:width": str(SIZE[0]),
        "og:image:height": str(SIZE[1]),
        "og:image:alt": textwrap.shorten(figure[1], 300) if figure else f"{BOOK}. {SUBTITLE}",
        "twitter:card": "summary_large_image",
    }
    context["metatags"] = context.get("metatags", "") + "".join(
        f'\n<meta {"property" if name.startswith("og:") else "name"}="{name}" content="{escape(words)}" />'
        for name, words in lines.items()
        if words
    )


def setup(app: Sphinx) -> None:
    """Register it."""
    app.connect("html-page-context", _head)
