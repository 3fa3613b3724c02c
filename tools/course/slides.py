"""The course's slides: each deck of book/course/slides as a presentation that needs no network, and as a PDF.

A deck is written for reveal.js as sphinx-revealjs bundles it, and shares with the others one folder of scripts: the
book's own charts and figures with sliders, and the MathJax and Vega of its pages. What a deck shows and says is
borrowed from the chapters' runs (`decks.py`); a chapter that was not run as it is now is an error.

    S  opens the speaker's view: notes, clock, next slide       T  turns between light and dark       ?  lists the keys
"""

import html
import importlib.metadata
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import assets
import chapters
import chromium
import numbering
import runs
import transclude
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from playwright.sync_api import Browser
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from course import ROOT, Missing, decks

#: Where the decks' scripts and styles lie, beside them.
SHARED = "_shared"
REVEAL = ("dist/reveal.js", "dist/reveal.css", "dist/reset.css", "plugin/notes/notes.js", "LICENSE")
OWN = ("slides.css", "slides.js")
SIZE = (1280, 720)
#: Letters of a chart, in pixels of a slide of this size: what the last row of a room can read.
LETTERS = 20


def make(out: Path, *, printed: bool = True, notes: bool = True) -> list[Path]:
    """Write every deck below `out`: `<deck>/index.html` with the scripts they share, and `<deck>.pdf`.

    Args:
        out: the folder.
        printed: whether to print them too, which takes Chromium and some seconds a deck.
        notes: whether each slide's teaching note has to be there; without, the speaker sees what is said alone.
    """
    written = share(out / SHARED)
    pages = [write(decks.read(name), out, notes=notes) for name in decks.names()]
    if printed:
        try:
            with chromium.launched() as browser:
                written += [print_(page, browser) for page in pages]
        except RuntimeError as error:
            raise Missing(str(error)) from error
    return written + pages


def share(folder: Path) -> list[Path]:
    """Copy the files that all decks load to one folder."""
    packed = importlib.metadata.files("sphinx-revealjs") or []
    licence = next(Path(str(file.locate())) for file in packed if str(file).endswith("_static/revealjs/LICENSE"))
    for name in REVEAL:
        _copy(licence.parent / name, folder / "reveal" / name)
    for name in OWN:
        _copy(Path(__file__).with_name(name), folder / name)
    for name in ("charts.js", "explorables.js", "favicon.svg"):
        _copy(ROOT / "book" / "_assets" / name, folder / name)
    bundle = chapters.built() / "html" / "_static" / "vega" / "vega-bundle.js"
    if bundle.is_file():  # making it anew takes seconds; it is told by its first line whether it is the right one
        _copy(bundle, folder / "vega" / "vega-bundle.js")
    assets._vega(folder / "vega" / "vega-bundle.js")
    assets._mathjax(folder / "mathjax")
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _copy(origin: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(origin, target)


def write(deck: decks.Deck, out: Path, *, notes: bool = True) -> Path:
    """Write one deck; Broken, with all that is wrong with it, if anything is."""
    executed = decks.runs_of(deck)
    if wrong := decks.faults(deck, executed, notes=notes):
        raise chapters.Broken("\n".join(wrong))
    path = out / deck.name / "index.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document(deck, executed, notes=notes), encoding="utf-8")
    return path


def document(deck: decks.Deck, executed: dict[str, Any], *, notes: bool = True) -> str:
    """A deck's page."""
    begins, sections = 0.0, []
    for number, slide in enumerate(deck.slides):
        sections.append(_section(deck, slide, executed, first=number == 0, begins=begins, notes=notes))
        begins += slide.minutes
    settings = {"chtml": {"matchFontHeight": False}, "options": {"enableMenu": False, "ignoreHtmlClass": "highlight"}}
    colours = HtmlFormatter(style="a11y-high-contrast-light").get_style_defs(".highlight")
    dark = HtmlFormatter(style="a11y-high-contrast-dark").get_style_defs("[data-theme=dark] .highlight")
    return f"""<!DOCTYPE html>
<html lang="en" data-theme="light"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{html.escape(deck.title)}</title>
<link rel="icon" href="../{SHARED}/favicon.svg">
<link rel="stylesheet" href="../{SHARED}/reveal/dist/reset.css">
<link rel="stylesheet" href="../{SHARED}/reveal/dist/reveal.css">
<link rel="stylesheet" href="../{SHARED}/slides.css">
<style>{colours}
{dark}</style>
<script>window.MathJax = {json.dumps(settings)}</script>
<script defer src="../{SHARED}/mathjax/tex-chtml.js"></script>
</head><body>
<main><div class="reveal"><div class="slides">
{"".join(sections)}
</div></div></main>
<script src="../{SHARED}/reveal/dist/reveal.js"></script>
<script src="../{SHARED}/reveal/plugin/notes/notes.js"></script>
<script src="../{SHARED}/slides.js"></script>
<script src="../{SHARED}/vega/vega-bundle.js"></script>
<script src="../{SHARED}/explorables.js"></script>
<script src="../{SHARED}/charts.js"></script>
</body></html>
"""


def _section(
    deck: decks.Deck, slide: decks.Slide, executed: dict[str, Any], *, first: bool, begins: float, notes: bool
) -> str:
    aside: list[str] = [_plan(deck)] if first else []
    aside.append(f"<p><b>Minute {begins:g} to {begins + slide.minutes:g}</b>, {slide.kind}</p>")
    aside += [_markdown(one.text) for one in slide.blocks("say")]

    def shown(match: re.Match[str]) -> str:
        one = decks.block(match)
        if one.name == "say":
            return ""
        if one.name == "answer":
            return f'<div class="fragment answer">{_markdown(one.text)}</div>'
        if one.name == "code-of":
            page = decks.page_of(one.argument)
            source = decks.code(page, one.options["from"], int(one.options.get("lines", "1")))
            return str(highlight(source, PythonLexer(), HtmlFormatter(cssclass="highlight")))
        if one.name == "exercise-of":
            page = decks.page_of(one.argument)
            head = decks.exercise(page, one.options["label"])
            number = numbering.exercises(page)[one.options["label"]]
            where = (
                f"Goes on in Exercise {number}, “{html.escape(head)}”, of <i>{html.escape(chapters.title(page))}</i>"
            )
            return f'<div class="exercise">{_markdown(one.text)}<p class="place">{where}</p></div>'
        page = decks.page_of(one.argument)
        drawn = transclude.figure(page, one.options["which"], executed[page])
        aside.extend(_question_and_answer(drawn.html))
        return _figure(drawn, page, int(one.options.get("height", "0")))

    # Blocks stand in the text under a mark while the rest is read as Markdown.
    blocks: list[str] = []

    def keep(match: re.Match[str]) -> str:
        blocks.append(shown(match))
        return f"\n\nBLOCK{len(blocks) - 1}END\n\n" if blocks[-1] else ""

    body = _markdown(decks._BLOCK.sub(keep, slide.text))
    body = re.sub(r"<p>BLOCK(\d+)END</p>", lambda m: blocks[int(m[1])].strip(), body)
    if slide.notes and notes:
        aside.append(f"<h2>{html.escape(slide.notes)}</h2>{_markdown(decks.note(slide.notes))}")
    title = _inline(slide.title)
    looks = [f"is-{slide.kind}", "shows" if slide.blocks("figure-of") else "tells"]
    if first:
        looks.append("first")
        titles = " · ".join(html.escape(chapters.title(decks.page_of(name))) for name in deck.chapters)
        body += (
            f'<p class="from">{deck.minutes:g} minutes, from the chapters {titles}. Text and figures: CC BY 4.0.</p>'
        )
        head = f"<h1>{html.escape(deck.title)}</h1><p class='subtitle'>{_inline(deck.subtitle)}</p><h2>{title}</h2>"
    else:
        long = f"{slide.minutes:g} minutes"
        mark = {
            "question": "One minute" if slide.minutes <= 3 else long,
            "play": "Predict, then play",
            "exercise": long,
        }
        tag = f'<span class="kind">{mark[slide.kind]}</span>' if slide.kind in mark else ""
        head = f"{tag}<h2>{title}</h2>"
    return (
        f'<section class="{" ".join(looks)}" data-minutes="{slide.minutes:g}" '
        f'data-timing="{slide.minutes * 60:g}">{head}\n{body}<aside class="notes">{"".join(aside)}</aside></section>\n'
    )


def _plan(deck: decks.Deck) -> str:
    """Plan of a lecture, for the notes of its first slide."""
    sums = {kind: sum(s.minutes for s in deck.slides if s.kind == kind) for kind in decks.KINDS}
    parts = ", ".join(f"{kind} {minutes:g}" for kind, minutes in sums.items() if minutes)
    return f"<p><b>{deck.minutes:g} minutes on {len(deck.slides)} slides:</b> {parts}.</p>"


def _question_and_answer(figure: str) -> list[str]:
    """Question and answer of an interactive figure, for the speaker notes."""
    question = re.search(r'<p class="icl-question">(.*?)</p>', figure, re.S)
    answer = re.search(r'<details class="icl-answer"><summary>.*?</summary><p>(.*?)</p></details>', figure, re.S)
    return [f"<p><b>Ask:</b> {question[1]}</p><p><b>One finds:</b> {answer[1]}</p>"] if question and answer else []


_READER = MarkdownIt("commonmark", {"html": True}).enable("table").use(dollarmath_plugin, renderer=None)


def _math(_self: Any, tokens: Any, at: int, *_: Any) -> str:
    return rf'<span class="math">\({html.escape(tokens[at].content)}\)</span>'


def _display(_self: Any, tokens: Any, at: int, *_: Any) -> str:
    return rf'<div class="math">\[{html.escape(tokens[at].content)}\]</div>'


_READER.add_render_rule("math_inline", _math)
_READER.add_render_rule("math_inline_double", _display)
_READER.add_render_rule("math_block", _display)


def _fill_roles(text: str) -> str:
    """Roles as their words, which say from where they are."""

    def words(role: re.Match[str]) -> str:
        proof = decks.proof(role["name"], role["body"])
        place = html.escape(chapters.title(transclude.page_of(proof)))
        return f'<span class="proved" title="{place}">{proof.words}</span>'

    return transclude._ROLE.sub(words, runs.filled(text))


def _markdown(text: str) -> str:
    return _together(str(_READER.render(_fill_roles(text))))


def _inline(text: str) -> str:
    return _together(str(_READER.renderInline(_fill_roles(text))))


def _together(page: str) -> str:
    """A formula and the stop behind it on one line."""
    return re.sub(r'(<span class="math">[^<]*</span>)([,.;:?!]+)', r'<span class="together">\1\2</span>', page)


def enlarged(spec: dict[str, Any], height: int = 0) -> dict[str, Any]:
    """A figure's specification for a room: its title goes, for the slide has one; letters and lines are larger.

    Args:
        spec: the specification as the chapter drew it.
        height: of the plot in pixels; 0 for what a slide has room for.
    """
    drawing: dict[str, Any] = json.loads(json.dumps(spec))
    drawing.pop("title", None)
    usual = int(spec.get("height", 320))
    scale = (height or (400 if usual >= 300 else 330)) / usual

    def enlarge(node: Any) -> None:
        if isinstance(node, list):
            for child in node:
                enlarge(child)
        elif isinstance(node, dict):
            for key, value in node.items():
                if key in ("datasets", "values", "usermeta"):
                    continue
                if key == "labelLimit":
                    node[key] = 420
                elif re.search("fontSize|FontSize", key) and isinstance(value, int | float):
                    node[key] = max(LETTERS, value)
                elif key == "strokeWidth" and isinstance(value, int | float):
                    node[key] = value * 1.4
                elif key == "size" and isinstance(value, int | float) and isinstance(node.get("type"), str):
                    node[key] = value * 1.6
                else:
                    enlarge(value)

    enlarge(drawing)
    if isinstance(drawing.get("height"), int | float):
        drawing["height"] = round(drawing["height"] * scale)
    for layer in drawing.get("layer", ()):
        if layer.get("name") == "labels":
            _spread(drawing, layer)
    _break(drawing, drawing.get("height", usual))
    config = drawing["config"]
    config["text"] = {**config.get("text", {}), "fontSize": LETTERS}
    config["axis"] = {
        **config.get("axis", {}),
        "labelFontSize": LETTERS,
        "titleFontSize": LETTERS,
        "titlePadding": 10,
    }
    config["axisX"] = {**config.get("axisX", {}), "tickCount": 6}
    config["axisY"] = {**config.get("axisY", {}), "tickCount": 6, "minExtent": 60, "labelLimit": 420}
    config["legend"] = {
        **config.get("legend", {}), "labelFontSize": LETTERS, "titleFontSize": LETTERS, "symbolSize": 300, "columns": 6,
    }  # fmt: skip
    return drawing


def _break(drawing: dict[str, Any], height: float) -> None:
    """Have the names of upright axes in two lines where one would be longer than the axis."""
    for layer in drawing.get("layer", [drawing]):
        channel = layer.get("encoding", {}).get("y", {})
        words = channel.get("title")
        if isinstance(words, str) and len(words) * 0.5 * LETTERS > height and " " in words:
            spaces = [at for at, letter in enumerate(words) if letter == " "]
            middle = min(spaces, key=lambda at: abs(at - len(words) / 2))
            channel["title"] = [words[:middle], words[middle + 1 :]]


def _spread(drawing: dict[str, Any], layer: dict[str, Any]) -> None:
    """Move the names at the ends of lines apart: their letters are larger here than where the chapter placed them."""
    field, scale = layer["encoding"]["y"]["field"], layer["encoding"]["y"]["scale"]
    rows = drawing["datasets"][layer["data"]["name"]] if "name" in layer["data"] else layer["data"]["values"]
    if "domain" not in scale or len(rows) < 2:
        return
    turn, back = (math.log, math.exp) if scale.get("type") == "log" else (float, float)
    low, high = (turn(float(end)) for end in scale["domain"])
    least = 1.1 * LETTERS / drawing["height"] * (high - low)
    rows.sort(key=lambda row: row[field])
    at = [turn(row[field]) for row in rows]
    for i in range(1, len(at)):
        at[i] = max(at[i], at[i - 1] + least)
    at[-1] = min(at[-1], high)
    for i in range(len(at) - 2, -1, -1):
        at[i] = min(at[i], at[i + 1] - least)
    for row, place in zip(rows, at, strict=True):
        row[field] = back(place)


def _figure(drawn: transclude.Drawn, page: str, height: int) -> str:
    """A chapter's figure, alive, with its description and what its subtitle says."""
    picture = re.search(r"<img[^>]*>", drawn.html)
    if picture is None:
        raise chapters.Broken(f"{page}: a figure has no picture: {runs.heading(drawn.spec)}")
    title = drawn.spec["title"]
    subtitle = title.get("subtitle", "") if isinstance(title, dict) else ""
    text = re.sub(r"([;:,.]) · ", r"\1 ", " · ".join([subtitle] if isinstance(subtitle, str) else subtitle))
    spec = json.dumps(enlarged(drawn.spec, height), ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    function = transclude.function(drawn.spec)
    place = f' id="explore-{function}"' if function else ""
    # A chart's own words have no subscripts: they are written with an underscore.
    text = re.sub(r"\b([^\W\d_])_(\w)\b", r"\1<sub>\2</sub>", html.escape(text))
    caption = f'<p class="caption">{text}</p>' if text else ""
    source = html.escape(chapters.title(page))
    image = picture[0].replace(' loading="lazy"', "")
    return (
        f'<figure class="icl-chart"{place} data-from="{page}">{image}'
        f'<script type="application/json">{spec}</script></figure>'
        f'<div class="under">{caption}<p class="source">{source}</p></div>'
    )


def print_(page: Path, browser: Browser) -> Path:
    """Print a deck, a slide a sheet, beside its folder; Broken if a figure cannot be drawn or a sheet is missing."""
    tab = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme="light")
    tab.set_default_timeout(120_000)
    faults: list[str] = []
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.on("requestfailed", lambda request: faults.append(f"not to be had: {request.url}"))
    tab.goto(f"{page.as_uri()}?print-pdf")
    tab.wait_for_function("document.querySelectorAll('.pdf-page').length > 0", polling=100)
    faults += tab.evaluate("slides.printed()")
    slides = tab.locator(".pdf-page").count()
    sheets = tab.pdf(prefer_css_page_size=True, print_background=True, tagged=True, outline=True)
    tab.close()
    number = len(re.findall(rb"/Type /Page\b", sheets))
    if faults or number != slides:
        raise chapters.Broken(f"{page}: {number} sheets of {slides} slides; {'; '.join(faults[:5])}")
    target = page.parent.with_suffix(".pdf")
    target.write_bytes(sheets)
    return target
