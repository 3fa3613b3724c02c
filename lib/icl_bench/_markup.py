"""HTML for the report: escaped elements, tables, figures, style sheet."""

import colorsys
import hashlib
import html
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any


class Html(str):
    """Safe markup; any other string is escaped when inserted into a page."""

    __slots__ = ()


def tag(name: str, *inside: str, **attributes: str) -> Html:
    """HTML element. In attribute names a trailing underscore is dropped, and other underscores become dashes."""
    pairs = "".join(f' {key.rstrip("_").replace("_", "-")}="{html.escape(each)}"' for key, each in attributes.items())
    within = "".join(part if isinstance(part, Html) else html.escape(part) for part in inside)
    return Html(f"<{name}{pairs}>{within}</{name}>")


def section(place: str, heading: str, *inside: str) -> Html:
    """Section of the page, with its heading."""
    return tag("section", tag("h2", heading), *inside, id=place)


def scroll(table: Html, label: str) -> Html:
    """Horizontally scrollable, focusable container for a wide table."""
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str, *, words: bool = False) -> Html:
    """Table with a row header in the first column."""
    head = tag("thead", tag("tr", *(tag("th", each, scope="col") if each else tag("td") for each in heads)))
    lines = (tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows)
    table = tag("table", tag("caption", caption), head, tag("tbody", *lines), class_="words" if words else "numbers")
    return scroll(table, caption)


def fold(summary: str, inside: Html) -> Html:
    """Collapsed content (`details`) under a summary."""
    return tag("details", tag("summary", summary), inside)


#: SVG attributes to strip: accessible names within the figure, whose own description covers it, and invisible parts.
_HIDDEN_ATTRIBUTES = re.compile(r' (?:role|aria-[a-z]+|pointer-events)="[^"]*"| opacity="1"')
_EMPTY = re.compile(r'<path class="(?:background|foreground)"[^>]*/>|<rect [^>]*fill="white"/>')
_PAINT = re.compile(r'(fill|stroke)="(#[0-9a-fA-F]{3,6}|black)"')
#: Widths of the page's column and of a phone's, in pixels.
_WIDTHS = {"wide": 800, "narrow": 360}


def picture(figure: Any, title: str, note: str) -> Html:
    """Figure with a title, rendered for desktop and phone widths, in theme-dependent colours.

    Args:
        figure: an `icl_book.charts.Figure`, whose specification is used up.
        title: caption above the figure; a title within it would not wrap.
        note: legend of its marks.
    """
    spec = figure.spec
    spec.pop("title", None)
    drawn = []
    for place, width in _WIDTHS.items():
        for layer in spec["layer"] if place == "narrow" else ():
            axis = layer.get("encoding", {}).get("y", {}).get("axis")
            if axis and "labelLimit" in axis:
                axis["labelLimit"] = 130
        drawn.append(tag("div", _apply_theme(figure.svg(width), place, figure.alt), class_=f"picture {place}"))
    return tag("figure", tag("figcaption", tag("strong", title), " ", tag("span", note)), *drawn)


def _apply_theme(svg: str, place: str, alt: str) -> Html:
    """SVG with theme colours and alternative text."""
    width, height = _size(svg)
    # Within tags only: text between them stays as it is.
    svg = re.sub(r"<[^>]*>", lambda match: _apply_theme_to_tag(match[0]), svg)
    # Ids must be unique across the figures of a page.
    key = f"{place}-{hashlib.sha256(svg.encode()).hexdigest()[:8]}-"
    svg = re.sub(r'(id="|url\(#)', rf"\g<1>{key}", svg)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{html.escape(alt)}" '
    head += f'width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
    return Html(re.sub(r"^<svg [^>]*>", lambda _: head, svg))


def _apply_theme_to_tag(text: str) -> str:
    if _EMPTY.fullmatch(text):
        return ""
    text = _PAINT.sub(lambda match: f'style="{match[1]}:var(--{_paint(match[2])})"', _HIDDEN_ATTRIBUTES.sub("", text))
    # A second style attribute on one element would be dropped.
    return re.sub(r'style="([^"]*)"(.*?) style="([^"]*)"', r'style="\1;\3"\2', text)


def _size(svg: str) -> tuple[int, int]:
    width, height = re.findall(r'(?:width|height)="([\d.]+)"', svg)[:2]
    return math.ceil(float(width)), math.ceil(float(height))


def _paint(colour: str) -> str:
    """CSS variable for a figure's colour; black and axis greys map to the page's own."""
    page = {"#000": "text", "black": "text", "#ddd": "line", "#888": "muted"}
    return page.get(colour, f"paint-{colour.lstrip('#')}")


def _invert_lightness(colour: str) -> str:
    """Dark-theme colour: same hue, inverted lightness, as on the book's pages."""
    hue, light, full = colorsys.rgb_to_hls(*(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)))
    again = colorsys.hls_to_rgb(hue, 0.95 - 0.8 * light, 0.9 * full)
    return "#" + "".join(f"{round(255 * part):02x}" for part in again)


def document(title: str, body: Html, paints: Iterable[str]) -> str:
    """Complete HTML page.

    Args:
        title: of the browser tab.
        body: visible content.
        paints: colours of its figures, as #rrggbb.
    """
    # Content security policy: even a malicious name can load nothing.
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; font-src data:"
    head = tag(
        "head",
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        tag("title", title),
        Html(f"<style>{_style(list(dict.fromkeys(paints)))}</style>"),
    )
    switch = Html('<button class="switch" type="button" hidden>Dark</button>')
    page = tag("html", head, tag("body", switch, tag("main", body), Html(f"<script>{_SCRIPT}</script>")), lang="en")
    return f"<!doctype html>\n{page}\n"


def _style(paints: Sequence[str]) -> str:
    light = _LIGHT + "".join(f"--{_paint(colour)}:{colour};" for colour in paints)
    dark = _DARK + "".join(f"--{_paint(colour)}:{_invert_lightness(colour)};" for colour in paints)
    return (
        f":root{{{light}}}:root[data-theme=dark]{{{dark}}}"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}{_STYLE}"
    )


_LIGHT = (
    "--text:#222832;--muted:#48566b;--back:#fff;--soft:#f4f6f8;--line:#dcdfe4;--accent:#0b5f9e;--warm:#e8953f;"
    "--notice:#b8860b;color-scheme:light;"
)
_DARK = (
    "--text:#ced6dd;--muted:#9ca4af;--back:#14181e;--soft:#1d2126;--line:#3a4048;--accent:#7cbcf0;--warm:#b5651d;"
    "--notice:#d4a72c;color-scheme:dark;"
)
_STYLE = """
* { box-sizing: border-box; }
html {
  background: var(--back); color: var(--text); -webkit-text-size-adjust: 100%;
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
body { margin: 0; }
main { max-width: 54rem; margin: 0 auto; padding: 1.2rem 1.2rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; font-weight: 650; letter-spacing: -0.01em; margin: 0.2rem 0 1rem; }
h2 { font-size: 1.35rem; font-weight: 600; margin: 2.6rem 0 0.7rem; }
h2 { padding-top: 1rem; border-top: 1px solid var(--line); }
p { margin: 0.5rem 0 0.9rem; max-width: 46rem; }
h1, p, li, figcaption { overflow-wrap: anywhere; }
a { color: var(--accent); text-underline-offset: 0.18em; }
.kicker, .note { color: var(--muted); font-size: 0.92rem; margin: 0.3rem 0; }
.kicker { padding-right: 5rem; }
.answer { font-size: 1.12rem; border-left: 3px solid var(--accent); background: var(--soft); padding: 0.8rem 1.1rem; }
figure { margin: 1.4rem 0 1.6rem; }
figcaption { margin-bottom: 0.5rem; }
figcaption strong { display: block; font-weight: 600; }
figcaption span { color: var(--muted); font-size: 0.9rem; }
.picture svg { display: block; max-width: 100%; height: auto; }
.narrow { display: none; }
.scroll { overflow-x: auto; margin: 0.6rem 0 1.2rem; }
.scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
table { border-collapse: collapse; font-size: 0.88rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--muted); padding-bottom: 0.4rem; caption-side: top; white-space: nowrap; }
th, td { padding: 0.28rem 0.7rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: baseline; }
th, td { white-space: nowrap; }
thead th { font-weight: 600; vertical-align: bottom; }
th:first-child { text-align: left; font-weight: 500; position: sticky; left: 0; background: var(--back); }
thead th:first-child { font-weight: 600; }
.numbers thead th, .heats thead th { white-space: normal; overflow-wrap: break-word; max-width: 9rem; }
td.word { text-align: left; }
.words td, .words th { text-align: left; }
.words td { white-space: normal; }
.words td:last-child { min-width: 14rem; }
tr.group th { padding-top: 0.9rem; color: var(--muted); font-weight: 600; }
.heat { background: color-mix(in srgb, var(--warm) var(--heat), transparent); }
.warning { border-left: 3px solid var(--notice); background: var(--soft); padding: 0.6rem 1rem; }
ul.warning { padding-left: 2rem; }
li { margin: 0.35rem 0; }
summary { color: var(--accent); cursor: pointer; padding: 0.3rem 0; }
.switch {
  position: absolute; top: 1rem; right: 1rem; min-width: 4.4rem; min-height: 2.5rem; padding: 0.3rem 0.7rem;
  border: 1px solid var(--line); border-radius: 0.4rem; background: var(--soft); color: var(--text);
  font: inherit; font-size: 0.85rem; cursor: pointer;
}
@media (max-width: 640px) {
  main { padding: 1rem 0.9rem 3rem; }
  h1 { font-size: 1.5rem; }
  .wide { display: none; }
  .narrow { display: block; }
  caption { white-space: normal; max-width: 20rem; }
  th:first-child { max-width: 9.5rem; white-space: normal; overflow-wrap: break-word; }
  tr.group th:first-child { max-width: none; white-space: nowrap; }
}
@media print {
  .switch { display: none; }
  .scroll { overflow: visible; }
  figure, tr { break-inside: avoid; }
}
"""
_SCRIPT = """
(() => {
  const root = document.documentElement, button = document.querySelector(".switch");
  const asked = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ?? (asked.matches ? "dark" : "light")) === "dark";
  const show = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `${button.textContent} theme`);
  };
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; show(); });
  asked.addEventListener("change", show);
  button.hidden = false;
  show();
})();
"""
