"""Charts from tidy tables: one theme, a fixed colour per method, alternative text for every figure.

No mathematics here and no torch. A :class:`Figure` renders in a notebook as an image with alternative text; in the
built book a script replaces the image by the interactive chart, follows the page's light or dark theme, and offers the
data and the specification for download.
"""

import base64
import functools
import html
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import altair
import numpy as np
import pandas as pd
import vl_convert
from fontTools import subset
from fontTools.ttLib import TTFont
from numpy.typing import ArrayLike

from icl_book import notation

#: Colour of every method, the same in all figures.
METHODS: dict[str, str] = {
    "GLA": "#0b6fb8",
    "linear attention": "#c9711a",
    "zero predictor": "#8a8a8a",
    "LMS": "#b0357f",
    "NLMS": "#6000c0",
    "APA": "#2a8a4a",
    "RLS": "#b83a35",
    "Kalman": "#3b4a56",
    "true weight": "#111111",
    "delta rule": "#664e08",
    "normalised delta rule": "#0e1f39",
    "sliding window": "#3344aa",
    "ridge regression": "#0a007a",
    "faded ridge": "#3a3d00",
    "gradient descent": "#c9711a",
    "momentum": "#b0357f",
    "Nesterov": "#6000c0",
    "conjugate gradients": "#b83a35",
    "preconditioned CG": "#664e08",
    "Chebyshev": "#2a8a4a",
    "Memformer": "#0b6fb8",
    "GD++": "#0e1f39",
    "Newton": "#3a3d00",
    "polynomial floor": "#3b4a56",
    "GLA, 4 layers": "#3a9cc5",
    "normalised GLA": "#2a8a4a",
    "normalised, 4 layers": "#2a8a4a",
    # Layers of the stacks normalise by the squared key length and share the colour of that rule.
    "delta rule, 2 layers": "#0e1f39",
    "gated delta rule, 2 layers": "#de726c",
}
#: Sequential colours for an ordered set of lines (drift slow to fast, say), light to dark with changing hue. Any two
#: differ by at least 20 in CIELAB, also under red-green colour blindness.
SEQUENCE = ("#6ab350", "#1fa08e", "#2a78b8", "#45359a", "#250733")
#: The font that measures and draws every text of a figure; its files lie in `fonts`.
_FONT = "Chart Sans, sans-serif"
_FONTS = Path(__file__).with_name("fonts")
_WEIGHTS = {400: "Regular", 500: "Medium"}
_VEGALITE = "6.4"
#: Smallest distance of two dots in a row, as a share of the axis, at which neither hides the other.
_HIDDEN = 0.025
#: Of a line chart, in pixels; the width is the page's.
_HEIGHT = 320


def theme() -> dict[str, Any]:
    """Return the Vega-Lite configuration shared by every figure."""
    return {
        "background": "transparent",
        "font": _FONT,
        "view": {"stroke": None},
        "title": {"anchor": "start", "fontSize": 15, "fontWeight": 500, "subtitleFontSize": 12.5, "offset": 12},
        "axis": {
            "labelFontSize": 12,
            "titleFontSize": 12.5,
            "titleFontWeight": 400,
            "gridOpacity": 0.5,
            "domain": False,
        },
        # Room for the widest tick labels that sliders produce: the layout is not recomputed when they grow.
        "axisY": {"minExtent": 42, "tickCount": {"expr": "max(2, floor(height / 45))"}},
        # Few enough that no label is dropped, and as many while a figure is fitted to its width.
        "axisX": {
            "labelOverlap": "greedy",
            "labelSeparation": 6,
            "labelFlush": False,
            "tickCount": {"expr": "width < 400 ? 3 : 7"},
        },
        "legend": {
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": 500,
            "labelOverlap": "greedy",
            "orient": "bottom",
            "symbolType": "stroke",
            "symbolOpacity": 1,
            "columns": 3,
        },
        "line": {"strokeWidth": 2.2},
        "text": {"fontSize": 12},
    }


@dataclass(frozen=True)
class Explorable:
    """Interactive figure: a closed form that the browser recomputes when a slider moves.

    Attributes:
        function: its name in `book/_assets/explorables.js`; it maps the sliders' values to the chart's datasets, the
            rows of `curve` and, where there are optima to mark, of `stars`. It names the figure in the page's address
            too, so a page has it once.
        controls: one dict a slider: name, label, min, max, step, value; one whose value is True or False is a switch,
            and has no min, max and step.
        constants: other arguments of the function, JSON-serialisable.
        question: task for the reader, in a sentence or two; shown above the figure.
        answer: the answer, with computed numbers; collapsed below the figure.

    Raises:
        ValueError: if question or answer is missing, or the question has no question mark.
    """

    function: str
    controls: Sequence[dict[str, Any]]
    constants: dict[str, Any] | None = None
    _: KW_ONLY
    question: str
    answer: str

    def __post_init__(self) -> None:
        """Require a question and its answer."""
        if not self.question.strip().endswith("?"):
            raise ValueError(f"question must end in a question mark, got {self.question!r}")
        if len(self.answer.split()) < 4:
            raise ValueError(f"answer must say what one finds in at least four words, got {self.answer!r}")
        labels = [control["label"] for control in self.controls]
        if len(set(labels)) < len(labels):
            raise ValueError(f"controls must have a label each, got {labels}")

    @property
    def program(self) -> dict[str, Any]:
        """JSON-serialisable description for the browser."""
        return {"function": self.function, "controls": self.controls, "constants": self.constants}


def slider(
    name: str, low: float, high: float, *, value: float, step: float | None = None, words: str = ""
) -> dict[str, Any]:
    """One slider of an explorable figure, labelled with its letter and meaning from the notation table.

    Args:
        name: the argument of the figure's function that it moves, as the library spells it: `gamma`, `sigma_e`.
        low, high, value: ends and first value.
        step: None takes 1 between whole numbers, otherwise a round number that divides the range into 50 to 130 steps.
        words: other words than the table's for what it is; all of the label if the table has no such name.

    >>> slider("gamma", 0.6, 0.99, value=0.95, words="persistence of the drift")["label"]
    'γ, persistence of the drift'
    """
    symbols = {symbol.code: symbol for symbol in notation.SYMBOLS}
    if name not in symbols and not words:
        raise ValueError(f"words must label {name!r}, which is not in the notation table")
    letter = f"{notation.letter(symbols[name])}, " if name in symbols else ""
    label = letter + (words or re.split("[;,]", symbols[name].meaning)[0])
    if step is None:
        step = 1 if all(float(end).is_integer() for end in (low, high, value)) else _round_step((high - low) / 50)
    if not low <= value <= high:
        raise ValueError(f"value must lie between {low} and {high}, got {value}")
    return {"name": name, "label": label, "min": low, "max": high, "step": step, "value": value}


def _round_step(most: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that is at most this."""
    power = float(10 ** np.floor(np.log10(most)))
    return float(f"{max(k * power for k in (1, 2, 5) if k * power <= most * (1 + 1e-9)):.6g}")


def explorable(function: str, *sliders: dict[str, Any], question: str, answer: str, **constants: Any) -> Explorable:
    """Sliders for a figure: see :class:`Explorable`, whose controls and constants these are."""
    return Explorable(function, sliders, constants, question=question, answer=answer)


class Figure:
    """Altair chart with title and alternative text; the return type of every chart function here.

    Args:
        chart: any Altair chart without a config; available as `.chart`.
        title: the finding, in a sentence.
        alt: alternative text for readers who cannot see the figure: axes, course of the curves, key numbers.
        readings: values and courses in sentences, added to the alternative text.
        subtitle: setting, units, meaning of error bands.
        explorable: sliders, if it has any.

    Raises:
        ValueError: if title or alt is missing or too short to say anything.
    """

    def __init__(
        self,
        chart: Any,
        *,
        title: str,
        alt: str,
        readings: str = "",
        subtitle: str = "",
        explorable: Explorable | None = None,
    ) -> None:
        """Give the chart its title, theme and description."""
        if not title.strip():
            raise ValueError("title must say the finding, got an empty string")
        if len(alt.split()) < 8:
            raise ValueError(f"alt must describe the figure in at least eight words, got {alt!r}")
        self.alt = " ".join(f"{alt} {readings}".split())
        lines = {"text": title, "subtitle": subtitle.split("\n")} if subtitle else title
        self.explorable = explorable
        usermeta = {"icl": {"explorable": explorable.program}} if explorable else {"icl": {}}
        self.chart = chart.properties(title=lines, description=self.alt, usermeta=usermeta).configure(**theme())

    @functools.cached_property
    def spec(self) -> dict[str, Any]:
        """The Vega-Lite specification, data included."""
        spec: dict[str, Any] = self.chart.to_dict()
        return spec

    def svg(self, width: int = 680) -> str:
        """Draw the chart as a static picture of `width` pixels, with the letters of its font."""
        register_fonts()
        drawing = _fitted(self.spec, width) | {"background": "white"}
        svg = _with_letters(str(vl_convert.vegalite_to_svg(drawing, vl_version=_VEGALITE)))
        # Vega numbers clip paths and gradients per process; figures must not depend on the order of rendering.
        names: dict[str, str] = {}
        counted = re.compile(r'(id="|url\(#)((clip|gradient_)\d+)')
        return counted.sub(lambda m: m[1] + names.setdefault(m[2], f"{m[3]}{len(names) + 1}"), svg)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        svg = _slim(self.svg())
        picture = base64.b64encode(svg.encode()).decode()
        # In JSON, "</script" would end the script element early, and "<!--" would keep it from ending.
        spec = json.dumps(self.spec, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
        width, height = re.findall(r'(?:width|height)="([\d.]+)"', svg)[:2]
        place, above, below = "", "", ""
        if self.explorable:
            question, answer = (
                html.escape(" ".join(t.split())) for t in (self.explorable.question, self.explorable.answer)
            )
            place = f' id="explore-{self.explorable.function}"'
            above = f'<p class="icl-question">{question}</p>{_STILL}'
            below = f'<details class="icl-answer"><summary>Answer</summary><p>{answer}</p></details>'
        return {
            "text/plain": self.alt,
            "text/html": (
                f'<figure class="icl-chart"{place}>{above}<img alt="{html.escape(self.alt)}" '
                f'width="{width}" height="{height}" loading="lazy" src="data:image/svg+xml;base64,{picture}">'
                f'<script type="application/json">{spec}</script>{below}</figure>'
            ),
        }


@functools.cache
def register_fonts() -> None:
    """Let the converter measure and draw with the figures' font."""
    vl_convert.register_font_directory(str(_FONTS))


def font_face(weight: int, letters: str | None = None) -> str:
    """A style sheet's rule that brings one weight of the figures' font.

    Args:
        weight: 400 or 500.
        letters: the characters that it needs; None for all.
    """
    path = _FONTS / f"ChartSans-{_WEIGHTS[weight]}.ttf"
    data = path.read_bytes() if letters is None else _subset(path, letters)
    source = f"url(data:font/ttf;base64,{base64.b64encode(data).decode()})"
    return f'@font-face{{font-family:"Chart Sans";font-weight:{weight};src:{source}}}'


def _subset(path: Path, letters: str) -> bytes:
    font, out = TTFont(path, recalcTimestamp=False), io.BytesIO()
    cut = subset.Subsetter(subset.Options(glyph_names=False, notdef_outline=False, name_IDs=[1]))
    cut.populate(text=letters)
    cut.subset(font)
    font.save(out)
    return out.getvalue()


def _with_letters(svg: str) -> str:
    """The SVG with the letters of its texts inside: what shows it as an image has no other font."""
    used: dict[int, set[str]] = {}
    for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        weight = 500 if text.get("font-weight", "400") in ("500", "600", "700", "bold") else 400
        used.setdefault(weight, set()).update("".join(text.itertext()))
    faces = "".join(font_face(weight, "".join(sorted(letters))) for weight, letters in sorted(used.items()))
    return svg.replace("><", f"><style>{faces}</style><", 1)


@functools.cache
def _advances(weight: int) -> dict[int, float]:
    """Width of every character, in ems."""
    font = TTFont(_FONTS / f"ChartSans-{_WEIGHTS[weight]}.ttf")
    return {code: font["hmtx"][glyph][0] / font["head"].unitsPerEm for code, glyph in font.getBestCmap().items()}


def _text_width(text: str, size: float, weight: int = 400) -> float:
    """Width of a line of text, in pixels."""
    advances = _advances(weight)
    return size * sum(advances.get(ord(character), 0.6) for character in text)


def _wrapped(text: str, width: float, size: float, weight: int = 400) -> list[str]:
    """The text in lines of at most `width` pixels."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and _text_width(longer, size, weight) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _fitted(spec: dict[str, Any], width: int) -> dict[str, Any]:
    """The specification for a picture of this width: title in lines, as many columns in the legend as fit."""
    spec = {**spec, "config": {**spec["config"]}}
    if title := spec.get("title"):
        title = title if isinstance(title, dict) else {"text": title}
        look, room = spec["config"]["title"], width - 16
        spec["title"] = {"text": _wrapped(title["text"], room, look["fontSize"], look["fontWeight"])}
        if lines := title.get("subtitle"):
            size = look["subtitleFontSize"]
            spec["title"]["subtitle"] = [part for line in lines for part in _wrapped(line, room, size)]
    if spec.get("width") != "container":
        return spec
    spec |= {"width": width, "autosize": {"type": "fit-x", "contains": "padding"}}
    encodings = [layer.get("encoding", {}) for layer in spec.get("layer", [])]
    names = [str(name) for each in encodings for name in each.get("color", {}).get("scale", {}).get("domain", ())]
    downs = [each["y"] for each in encodings if each.get("y", {}).get("type") == "nominal"]
    rows = [str(row) for down in downs for row in down.get("sort") or ()]
    legend = spec["config"]["legend"]
    # Left of the plot are the rows' names, or the numbers and the title of the axis.
    left = max((min(_text_width(row, 12), 260) for row in rows), default=55) + 20
    longest = 34 + max((_text_width(name, legend["labelFontSize"]) for name in names), default=0)
    columns = max(1, min(legend["columns"], int((width - left) // longest)))
    spec["config"]["legend"] = {**legend, "columns": columns, "labelLimit": width - left - 34}
    return spec


#: Note in notebooks on the sliders, which only the book's pages and slides have; their styles hide it.
_STILL = '<p class="icl-still"><em>This figure has sliders on the page of the book; here it stands still.</em></p>'
#: Attributes of an SVG that an image element does not expose, or that say what would be without them too.
_IDLE = (
    r' (?:(?:role|aria-[a-z]+|pointer-events)="[^"]*"|(?:opacity|stroke-width)="1"|stroke-dasharray="1,0"'
    rf'|font-family="{_FONT}"|transform="translate\(0,0\)")'
)


def _slim(svg: str) -> str:
    """Minify an SVG for a page with alternative text: no labels per mark, nothing unseen, no superfluous digits."""
    digits = functools.partial(re.sub, r"(?<![\d.])\d+\.\d{3,}(?![\deE])", lambda number: f"{float(number[0]):.2f}")
    slim = lambda tag: digits(re.sub(_IDLE, "", tag[0]))  # noqa: E731
    svg = re.sub(r"<[^>]*>", slim, svg)  # numbers between tags are visible text
    svg = re.sub(r'<path class="(?:back|fore)ground" d="(?:M0,0h0v0h0Z)?"[^>]*>(?:</path>)?', "", svg)
    return svg.replace("<g ", f'<g font-family="{_FONT}" ', 1)


def _colours(names: Sequence[str], colours: dict[str, str] | None) -> altair.Scale:
    palette = {**METHODS, **(colours or {})}
    missing = [name for name in names if name not in palette]
    if missing:
        raise ValueError(f"colours must name {missing}: every method keeps one colour throughout the book")
    if turned := [name for name in names if palette[name] != METHODS.get(name, palette[name])]:
        raise ValueError(f"colours must not change {turned}: every method keeps one colour throughout the book")
    return altair.Scale(domain=list(names), range=[palette[name] for name in names])


def _check_flags(**flags: bool) -> None:
    """What is merely truthy, such as "no", would be taken for True."""
    for name, flag in flags.items():
        if not isinstance(flag, bool | np.bool_):
            raise ValueError(f"{name} must be True or False, got {flag!r}")


def _limits(values: Sequence[pd.Series], log: bool) -> tuple[float, float]:
    """Axis limits: range of the values, with a margin."""
    low, high = min(float(v.min()) for v in values), max(float(v.max()) for v in values)
    if log:
        if low <= 0:
            raise ValueError(f"a logarithmic axis needs positive values, got {low:g}")
        margin = (high / low) ** 0.06 if high > low else 2.0
        return low / margin, high * margin
    margin = 0.06 * (high - low) or max(0.1 * abs(low), 1e-9)
    return low - margin, high + margin


def _label_positions(data: pd.DataFrame, limits: tuple[float, float], log: bool) -> pd.DataFrame:
    """Positions of the curves' end labels, moved apart to avoid overlaps."""
    ends = data.sort_values("x", kind="stable").groupby("by", sort=False).tail(1)[["x", "y", "by"]]
    # Curves whose ends agree up to rounding keep the order of the data.
    ends = ends.sort_values("y", kind="stable", ignore_index=True, key=lambda v: v.map(lambda end: float(f"{end:.9g}")))
    scale: Any = np.log if log else np.asarray
    low, high = scale(limits[0]), scale(limits[1])
    at = ((scale(ends["y"].clip(*limits).to_numpy()) - low) / (high - low) * _HEIGHT).tolist()
    gap = 15  # pixels, a line of text
    for i in range(1, len(at)):
        at[i] = max(at[i], at[i - 1] + gap)
    if at and at[-1] > _HEIGHT:
        at[-1] = _HEIGHT
        for i in range(len(at) - 2, -1, -1):
            at[i] = min(at[i], at[i + 1] - gap)
    moved = low + np.asarray(at) / _HEIGHT * (high - low)
    return ends.assign(y=np.exp(moved) if log else moved)


def _data_source(table: pd.DataFrame, name: str | None) -> Any:
    return table if name is None else altair.Data(name=name, values=table.to_dict(orient="records"))


def _x_axis(values: pd.Series, title: str, *, log: bool) -> altair.X:
    """Encoding of the x axis, from the first value to the last."""
    # Layers and steps are integers: no ticks between them.
    integral = not log and bool((values % 1 == 0).all())
    span = [float(values.min()), float(values.max())]
    # Label all of a few values; among many Vega chooses, and tickMinStep does not keep it from halves.
    few = integral and 0 < span[1] - span[0] <= 16
    named: dict[str, Any] = (
        {"values": list(range(int(span[0]), int(span[1]) + 1)), "format": "d"} if few else {"tickMinStep": 1}
    )
    counted: dict[str, Any] = {"axis": altair.Axis(**named)} if integral else {}
    scale = altair.Scale(type="log" if log else "linear", domain=span, nice=False)
    return altair.X("x:Q", title=title, scale=scale, **counted)


def _y_axis(limits: tuple[float, float], *, log: bool, moves: bool) -> tuple[altair.Scale, dict[str, Any]]:
    """Scale and tick settings of the y axis; the axis of an interactive figure finds its own limits."""
    ends: dict[str, Any] = {"domain": list(limits), "nice": False}
    ticks: dict[str, Any] = {}
    if moves:
        # Limits rounded to powers of ten would leave most of a logarithmic axis empty.
        ends = {"nice": False, "padding": 14} if log else {"zero": False}
    elif log and limits[1] >= 1e7:
        # Over many decades, label ticks as powers of ten.
        ticks = {"axis": altair.Axis(format="~e")}
    return altair.Scale(type="log" if log else "linear", **ends), ticks


def _last(chart: altair.Chart) -> altair.Chart:
    """Last row of every curve, computed in the browser for interactive figures."""
    ranked = chart.transform_window(rank="rank()", sort=[altair.SortField("x", order="descending")], groupby=["by"])
    return ranked.transform_filter("datum.rank == 1")


def dots(
    data: pd.DataFrame,
    *,
    x: str,
    y: str,
    by: str,
    x_title: str,
    title: str,
    alt: str,
    subtitle: str = "",
    floors: dict[str, float] | None = None,
    colours: dict[str, str] | None = None,
    log_x: bool = False,
) -> Figure:
    """Dot plot: one row per name (method, model or task), its values as dots.

    Overlapping dots of a row are stacked, in the order of the legend.

    Args:
        data: tidy table with the columns x, y and by; `low` and `high` too where a range is to be drawn.
        x: column of the values.
        y: column of the rows' names, from the top in the order of the table.
        by: column that colours the dots.
        x_title: title of the axis, units included.
        title, alt, subtitle: see :class:`Figure`.
        floors: limits to draw as dashed lines, by name; the names are printed above them.
        colours: colours of values of `by` and names of floors that :data:`METHODS` does not hold.
        log_x: logarithmic axis.
    """
    _check_flags(log_x=log_x)
    floors = floors or {}
    if absent := {x, y, by} - set(data.columns):
        raise ValueError(f"data must have the columns {sorted(absent)}")
    if data.empty:
        raise ValueError("data must have at least one row, got none")
    ranged = {"low", "high"} <= set(data.columns)
    numbers = [data[column] for column in (x, *(("low", "high") if ranged else ()))]
    limits = pd.Series(floors, dtype=float)
    for name, values in (*((str(column.name), column) for column in numbers), ("floors", limits)):
        if not values.abs().lt(float("inf")).all():
            raise ValueError(f"data must hold finite numbers only in {name!r}")
    rows, names = list(dict.fromkeys(data[y])), list(dict.fromkeys(data[by]))
    # One series needs no legend.
    legend = altair.Legend(title=None, symbolType="circle") if len(names) > 1 else None
    ends = _limits([*numbers, limits], log_x)
    scale = altair.Scale(type="log" if log_x else "linear", domain=list(ends), nice=False)
    across = altair.X(f"{x}:Q", title=x_title, scale=scale)
    down = altair.Y(f"{y}:N", title=None, sort=rows, axis=altair.Axis(labelLimit=260, grid=True))
    colour = altair.Color(f"{by}:N", scale=_colours(names, colours), legend=legend)
    data = data.reset_index(drop=True)
    ruler = np.log([*data[x], *ends]) if log_x else np.array([*data[x], *ends])
    place = pd.Series((ruler[:-2] - ruler[-2]) / (np.ptp(ruler[-2:]) or 1))
    lanes = _lanes(place, data[y], pd.Series([names.index(each) for each in data[by]]))
    deep = int(2 * max(lanes, default=0) + 1)
    where: list[Any] = [colour]
    if deep > 1:
        data = data.assign(_lane=lanes)
        edge = max(deep, 3) / 2
        where.append(altair.YOffset("_lane:Q", scale=altair.Scale(domain=[-edge, edge])))
    chart, layers = altair.Chart(data), []
    if floors:
        floor_colours = _colours(list(floors), colours)["range"]
        marks = pd.DataFrame({x: limits.to_numpy(), "name": list(floors)})
        # Labels above their lines and inside the plot, stacked, because neighbours would overlap. Colours are set on
        # the marks, not in the data, which the dark theme does not recolour.
        for turn, (colour_of, (_, mark)) in enumerate(zip(floor_colours, marks.iterrows(), strict=True)):
            one = altair.Chart(mark.to_frame().T)
            layers.append(one.mark_rule(strokeDash=[5, 4], strokeWidth=1.6, color=colour_of).encode(across))
            late = mark[x] ** 2 > ends[0] * ends[1] if log_x else 2 * mark[x] > ends[0] + ends[1]
            side: Any = "right" if late else "left"
            shift = -4 if late else 4
            text = one.mark_text(align=side, dx=shift, dy=-4 - 14 * turn, baseline="bottom", color=colour_of)
            layers.append(text.encode(across, text="name:N", y=altair.value(0)))
    if ranged:
        least = altair.X("low:Q", title=x_title, scale=scale)
        layers.append(chart.mark_rule(strokeWidth=1.6).encode(least, altair.X2("high:Q"), down, *where))
    hover = [altair.Tooltip(f"{c}:N", title=" ") for c in dict.fromkeys((y, by))]
    hover.append(altair.Tooltip(f"{x}:Q", format=".4~g"))
    layers.append(chart.mark_point(filled=True, size=60, opacity=1).encode(across, down, *where, tooltip=hover))
    layered = altair.layer(*layers).properties(width="container", height=max(120, max(26, 9 * deep) * len(rows)))
    return Figure(layered, title=title, alt=alt, subtitle=subtitle)


def _lanes(place: pd.Series, row: pd.Series, rank: pd.Series) -> pd.Series:
    """Vertical offset of every dot in its row, in lanes, so that overlapping dots are separated.

    Args:
        place: position on the axis, in [0, 1].
        row: row of the dot.
        rank: order of separated dots, from the top.
    """
    lanes: pd.Series = pd.Series(0.0, index=place.index)
    for _, one in place.sort_values(kind="stable").groupby(row, sort=False):
        for _, near in one.groupby((one.diff() > _HIDDEN).cumsum()):
            order = rank[near.index].sort_values(kind="stable").index
            lanes[order] = [turn - (len(order) - 1) / 2 for turn in range(len(order))]
    return lanes


def heatmap(
    data: pd.DataFrame,
    *,
    x: str,
    y: str,
    value: str,
    x_title: str,
    y_title: str,
    value_title: str,
    title: str,
    alt: str,
    subtitle: str = "",
    stars: pd.DataFrame | None = None,
    domain: tuple[float, float] | None = None,
    height: int = 320,
) -> Figure:
    """Heat map: a grid of tiles, light where `value` is small and dark where it is large.

    Args:
        data: tidy table with a row for each pair of x and y.
        x, y, value: its columns; x and y are the tiles' coordinates and need not be evenly spaced.
        x_title, y_title, value_title: titles of the axes and of the colour scale, units included.
        title, alt, subtitle: see :class:`Figure`.
        stars: tiles of data to mark, for example the minimum of each row: columns x and y.
        domain: limits of the logarithmic colour scale; values beyond are clipped. None is the range of the data.
        height: in pixels; the width is the page's.
    """
    for name, table, columns in (("data", data, {x, y, value}), ("stars", stars, {x, y})):
        if table is not None and (absent := columns - set(table.columns)):
            raise ValueError(f"{name} must have the columns {sorted(absent)}")
    if data.empty:
        raise ValueError("data must have at least one row, got none")
    for column in (x, y, value):
        if not data[column].abs().lt(float("inf")).all():
            raise ValueError(f"data must hold finite numbers only in {column!r}")
    if (least := data[value].min()) <= 0:
        raise ValueError(f"data must hold positive numbers only in {value!r}, got {least:g}")
    if data.duplicated([x, y]).any():
        raise ValueError(f"data must hold one row for each pair of {x!r} and {y!r}")
    if stars is not None:
        tiles, marked = (set(zip(table[x], table[y], strict=True)) for table in (data, stars))
        if off := marked - tiles:
            raise ValueError(f"stars must mark tiles of data, got {sorted(off)}")
    low, high = domain or (float(data[value].min()), float(data[value].max()))
    if not 0 < low < high < float("inf"):
        raise ValueError(f"domain must be two positive numbers, the smaller first, got {(low, high)}")
    number = altair.Axis(labelExpr="format(datum.value, '.3~g')", labelAngle=0, ticks=False)
    X = altair.X(f"{x}:O", title=x_title, axis=number)
    Y = altair.Y(f"{y}:O", title=y_title, axis=number, sort="descending")
    shade = altair.Color(
        f"{value}:Q",
        scale=altair.Scale(type="log", domain=[low, high], range=["#f4f8fb", *SEQUENCE], clamp=True),
        legend=altair.Legend(title=value_title, titleLimit=320, gradientLength=240, format=".3~g", tickCount=4),
    )
    hover = [altair.Tooltip(f"{column}:Q", format=".4~g") for column in (x, y, value)]
    layers = [altair.Chart(data).mark_rect().encode(X, Y, shade, tooltip=hover)]
    if stars is not None:
        mark = altair.Chart(stars).mark_point(shape=_STAR, filled=True, size=70, opacity=1, color="#c9711a")
        layers.append(mark.encode(X, Y))
    chart = altair.layer(*layers).properties(width="container", height=height)
    return Figure(chart, title=title, alt=alt, subtitle=subtitle)


#: What `curves` draws: heights over the shared abscissae, one height for all of them, or abscissae and heights.
_Series = ArrayLike | tuple[ArrayLike, ArrayLike]


def curves(
    x: ArrayLike,
    ys: Mapping[str, _Series | list[tuple[ArrayLike, ArrayLike]]],
    *,
    x_title: str,
    y_title: str,
    title: str,
    alt: str,
    subtitle: str = "",
    floors: Sequence[str] = (),
    best: Sequence[str] | Mapping[str, tuple[ArrayLike, ArrayLike]] = (),
    points: Mapping[str, tuple[ArrayLike, ...]] | None = None,
    bands: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
    colours: dict[str, str] | None = None,
    log_x: bool = False,
    log_y: bool = False,
    y_domain: tuple[float, float] | None = None,
    direct: bool = False,
    explorable: Explorable | None = None,
) -> Figure:
    """Curves from arrays, one a name.

    Args:
        x: abscissae of all curves, shape (m,).
        ys: heights by name, shape (m,) or a number; `(x, y)` for a curve that has abscissae of its own; a list of such
            pairs for a curve in several pieces.
        x_title, y_title: axis titles, units included.
        title: the finding, in a sentence.
        alt: what to see, in a sentence; a description of every curve is added to it.
        subtitle: setting, sample size, meaning of bands and bars.
        floors: curves that are limits, drawn dashed.
        best: curves whose lowest point gets a star; or, by name, the point `(x, y)` where a star is to be.
        points: measurements over the curves, `(x, y)` or `(x, y, standard error)` by name; bars are two errors long.
        bands: lower and upper ends of a band by a curve's name, each of shape (m,).
        colours: of names that :data:`METHODS` does not hold; the others take those of :data:`SEQUENCE`, in order.
        log_x, log_y: logarithmic axes.
        y_domain: limits of the y axis; curves are cut there.
        direct: label each curve at its end, in place of a legend.
        explorable: sliders. The browser's function returns rows `{x, y, by}` for `curve`, and for `stars` if `best`;
            where a curve has several pieces, `piece` too.
    """
    if not ys:
        raise ValueError("ys must hold at least one curve, got none")
    _check_flags(log_x=log_x, log_y=log_y)
    tables = {name: _curve(x, values) for name, values in ys.items()}
    for name, (low, high) in (bands or {}).items():
        tables[name] = tables[name].assign(low=np.asarray(low), high=np.asarray(high))
    if bands:
        tables = {n: t if "low" in t else t.assign(low=t["y"], high=t["y"]) for n, t in tables.items()}
    if unknown := {*floors, *(bands or {}), *(() if isinstance(best, Mapping) else best)} - set(tables):
        raise ValueError(f"floors, best and bands must name curves, got {sorted(unknown)}")
    over = {n: pd.DataFrame(dict(zip(("x", "y", "bar"), p, strict=False))) for n, p in (points or {}).items()}
    over = {n: t.assign(bar=2 * t.bar) if "bar" in t else t for n, t in over.items()}
    if isinstance(best, Mapping):
        stars = {n: pd.DataFrame(dict(zip("xy", map(np.atleast_1d, at), strict=True))) for n, at in best.items()}
    else:
        stars = {n: tables[n].loc[[tables[n]["y"].idxmin()], ["x", "y"]] for n in best}
    for place, marks in (("ys and bands", tables), ("points", over), ("best", stars)):
        if broken := [name for name, table in marks.items() if not np.isfinite(table).all(axis=None)]:
            raise ValueError(f"{place} must hold finite numbers only, which {broken} do not")
    chart = _line_chart(
        _concat(tables).fillna({"piece": 0}),
        _concat(over) if over else None,
        _concat(stars) if stars else None,
        colours=_in_sequence([*tables, *over, *stars], colours),
        floors=floors,
        x_title=x_title,
        y_title=y_title,
        log_x=log_x,
        log_y=log_y,
        y_domain=y_domain,
        direct=direct,
        moves=explorable is not None,
    )
    # On a logarithmic axis a curve is seen as well where the others are larger by many powers of ten.
    sizes = {name: float(table["y"].abs().max()) for name, table in tables.items()}
    of = sizes if log_y else dict.fromkeys(sizes, max(sizes.values()))
    readings = " ".join(_describe_curve(name, table, of[name]) for name, table in tables.items())
    return Figure(chart, title=title, alt=alt, readings=readings, subtitle=subtitle, explorable=explorable)


def _curve(x: ArrayLike, values: Any) -> pd.DataFrame:
    """Rows of a curve, or of its pieces, which the column `piece` then counts."""
    if isinstance(values, list) and values and isinstance(values[0], tuple):
        return pd.concat([_curve(x, each).assign(piece=k) for k, each in enumerate(values)], ignore_index=True)
    at, heights = values if isinstance(values, tuple) else (x, values)
    at, heights = np.asarray(at, dtype=float), np.asarray(heights, dtype=float)
    return pd.DataFrame({"x": at, "y": np.broadcast_to(heights, at.shape)})


def _line_chart(
    data: pd.DataFrame,
    points: pd.DataFrame | None,
    stars: pd.DataFrame | None,
    *,
    colours: dict[str, str],
    floors: Sequence[str],
    x_title: str,
    y_title: str,
    log_x: bool,
    log_y: bool,
    y_domain: tuple[float, float] | None,
    direct: bool,
    moves: bool,
) -> Any:
    """Layers of a line chart, from tables with the columns x, y and by."""
    tables = [table for table in (data, points, stars) if table is not None]
    names = list(dict.fromkeys(name for table in tables for name in table["by"]))
    limits = y_domain or _limits([table["y"] for table in tables], log_y)
    legend = None if direct else altair.Legend(title=None)
    dashes = altair.Scale(domain=names, range=[[5, 4] if name in floors else [1, 0] for name in names])
    heights, ticks = _y_axis(limits, log=log_y, moves=moves and not y_domain)
    across = _x_axis(pd.concat([table["x"] for table in tables]), x_title, log=log_x)
    down = altair.Y("y:Q", title=y_title, scale=heights, **ticks)
    colour = altair.Color("by:N", scale=_colours(names, colours), legend=legend)
    dash = altair.StrokeDash("by:N", scale=dashes, legend=legend)
    hover = [altair.Tooltip("by:N", title=" ")] + [altair.Tooltip(f"{each}:Q", format=".4~g") for each in "xy"]
    chart = altair.Chart(_data_source(data, "curve" if moves else None))
    layers = []
    if "low" in data:
        # By default an area mark would extend the axis to its own ends, and to 0.
        low = altair.Y("low:Q", title=y_title, scale=heights) if y_domain else altair.Y("low:Q")
        layers.append(chart.mark_area(opacity=0.18, clip=True).encode(across, low, altair.Y2("high:Q"), colour))
    pieces = {"detail": "piece:N"} if "piece" in data else {}
    layers.append(chart.mark_line(clip=True).encode(across, down, colour, dash, tooltip=hover, **pieces))
    if direct:
        ends = _last(chart) if moves else altair.Chart(_label_positions(data, limits, log_y))
        # The book's script finds this layer by name and replaces it by a legend on narrow pages.
        text = ends.mark_text(align="left", dx=6, fontWeight=500, clip=False).properties(name="labels")
        layers.append(text.encode(across, down, colour, text="by:N"))
    if points is not None:
        dots = altair.Chart(points)
        if "bar" in points:
            bars = dots.transform_calculate(low="datum.y - datum.bar", high="datum.y + datum.bar")
            low = altair.Y("low:Q")
            layers.append(bars.mark_rule(strokeWidth=1.6).encode(across, low, altair.Y2("high:Q"), colour))
        layers.append(dots.mark_point(filled=True, size=42, opacity=1).encode(across, down, colour, tooltip=hover))
    if stars is not None:
        star = altair.Chart(_data_source(stars, "stars" if moves else None)).mark_point(
            shape=_STAR, filled=True, size=110, opacity=1, strokeWidth=0
        )
        layers.append(star.encode(across, down, colour, tooltip=hover))
    return altair.layer(*layers).properties(width="container", height=_HEIGHT)


def _concat(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([table.assign(by=name) for name, table in tables.items()], ignore_index=True)


def _in_sequence(names: Sequence[str], colours: dict[str, str] | None) -> dict[str, str]:
    """The given colours, and of the sequence those that are as far apart as possible for all names without one."""
    given = {**METHODS, **(colours or {})}
    rest = [name for name in dict.fromkeys(names) if name not in given]
    if len(rest) > len(SEQUENCE):
        raise ValueError(f"colours must name some of {rest}: the sequence has {len(SEQUENCE)}")
    steps = np.linspace(0, len(SEQUENCE) - 1, len(rest)).round().astype(int) if len(rest) > 1 else [2]
    return {**(colours or {}), **{name: SEQUENCE[step] for name, step in zip(rest, steps, strict=False)}}


def _three_digits(value: Any) -> str:
    """A number to three digits as one says it: thousands written out."""
    shown = f"{value:.3g}"
    return f"{float(shown):,.0f}" if 1e3 <= abs(float(shown)) < 1e6 else shown


def _describe_curve(name: str, curve: pd.DataFrame, size: float) -> str:
    """Course of a curve in a sentence: ends, direction, and where it turns; of several pieces, where they lie.

    Beside `size` what is below 1e-12 of it is rounding, which differs between computers.
    """
    if "piece" in curve and (count := curve["piece"].nunique()) > 1:
        low, high = curve["y"].min(), curve["y"].max()
        return f"{name}: {count} lines between {_three_digits(low)} and {_three_digits(high)}."
    x, y = (curve.sort_values("x", kind="stable")[column].to_numpy() + 0.0 for column in "xy")  # -0 becomes 0
    first, last, low, high = y[0], y[-1], y.argmin(), y.argmax()
    steps, width = np.diff(y), np.ptp(y)
    still = 1e-9 * max(size, 1e-300)

    def shown(value: float) -> str:
        return "0 but for rounding" if 0 < abs(value) < 1e-12 * size else _three_digits(value)

    at = [_three_digits(value) for value in x]
    ends = f"{shown(first)} at {at[0]}", f"{shown(last)} at {at[-1]}"
    if np.ptp(x) == 0 and len(x) > 1:
        return f"{name}: a vertical line at {at[0]}."
    if width <= still:
        return f"{name}: {shown(first)} throughout."
    if (steps <= still).all() or (steps >= -still).all():
        return f"{name}: {'falls' if last < first else 'rises'} from {ends[0]} to {ends[1]}."
    for turn, way, back in ((low, "falls", "rises"), (high, "rises", "falls")):
        sign = 1 if way == "falls" else -1
        if 0 < turn < len(y) - 1 and (sign * steps[:turn] <= still).all() and (sign * steps[turn:] >= -still).all():
            if abs(last - y[turn]) <= 0.005 * width:  # level, as far as three digits and a picture show
                return f"{name}: {way} from {ends[0]} to {ends[1]}."
            return f"{name}: {way} from {ends[0]} to {shown(y[turn])} at {at[turn]}, then {back} to {ends[1]}."
    return f"{name}: from {ends[0]} to {ends[1]}, between {shown(y[low])} and {shown(y[high])}."


def intervals(
    values: Mapping[str, Any], *, x_title: str, title: str, alt: str, colours: dict[str, str] | None = None, **look: Any
) -> Figure:
    """Values with intervals, one row a name.

    Args:
        values: by row, a number, `(number, standard error)`, or such values by series; bars are two errors long.
        x_title: title of the axis, units included.
        title, alt: see :func:`curves`.
        colours: of the series, if :data:`METHODS` does not hold them; else of :data:`SEQUENCE`.
        look: `subtitle`, `floors` and `log_x`; see :func:`dots`.
    """
    rows = []
    for row, inside in values.items():
        for series, value in (inside if isinstance(inside, Mapping) else {x_title: inside}).items():
            mean, se = value if isinstance(value, tuple) else (value, 0.0)
            rows.append({"row": row, "x": mean, "by": series, "low": mean - 2 * se, "high": mean + 2 * se})
    table = pd.DataFrame(rows)
    if (table["low"] == table["high"]).all():
        table = table.drop(columns=["low", "high"])
    readings = [f"{r.row}{f', {r.by}' if r.by != x_title else ''}: {_three_digits(r.x)}." for r in table.itertuples()]
    series_colours = _in_sequence(list(dict.fromkeys(table["by"])), colours)
    return dots(
        table,
        x="x",
        y="row",
        by="by",
        x_title=x_title,
        title=title,
        alt=f"{alt} {' '.join(readings)}",
        colours=series_colours,
        **look,
    )


def tiles(
    x: ArrayLike, y: ArrayLike, values: ArrayLike, *, value_title: str, alt: str, best: bool = False, **look: Any
) -> Figure:
    """Heat map of a matrix.

    Args:
        x, y: coordinates of columns and rows, shapes (k,) and (m,).
        values: positive numbers, shape (m, k).
        value_title: title of the colour scale.
        alt: see :func:`curves`.
        best: a star on the lowest tile of every row.
        look: `x_title`, `y_title`, `title`, `subtitle`, `domain` and `height`; see :func:`heatmap`.
    """
    across, down, matrix = np.asarray(x), np.asarray(y), np.asarray(values)
    if matrix.shape != (len(down), len(across)):
        raise ValueError(f"values must be of shape ({len(down)}, {len(across)}), got {matrix.shape}")
    columns, rows = np.meshgrid(across, down)
    table = pd.DataFrame({"x": columns.ravel(), "y": rows.ravel(), "value": matrix.ravel()})
    least = np.unravel_index(matrix.argmin(), matrix.shape)
    low, column, row, high = map(_three_digits, (matrix.min(), across[least[1]], down[least[0]], matrix.max()))
    span = f"Values from {low}, at {column} and {row}, to {high}."
    stars = pd.DataFrame({"x": across[matrix.argmin(1)], "y": down}) if best else None
    return heatmap(
        table, x="x", y="y", value="value", value_title=value_title, stars=stars, alt=f"{alt} {span}", **look
    )


def strip(rows: Mapping[str, ArrayLike], *, title: str, alt: str, subtitle: str = "", x_title: str = "") -> Figure:
    """A prompt as strips of tokens, each in as much ink as it has weight.

    Args:
        rows: weights in [0, 1] by the name of a strip, the oldest token first.
        title, alt, subtitle: see :func:`curves`.
        x_title: what the tokens are.
    """
    ink = {name: np.asarray(weights, dtype=float) for name, weights in rows.items()}
    if not all(weights.ndim == 1 and ((weights >= 0) & (weights <= 1)).all() for weights in ink.values()):
        raise ValueError("rows must be lists of weights in [0, 1]")
    table = pd.concat(
        [pd.DataFrame({"token": 1 + np.arange(len(w)), "ink": w, "row": name}) for name, w in ink.items()]
    )
    shown = altair.Opacity("ink:Q", scale=altair.Scale(domain=[0, 1], range=[0, 1]), legend=None)
    across = altair.X("token:O", title=x_title or None, axis=altair.Axis(labels=False, ticks=False, grid=False))
    down = altair.Y("row:N", title=None, sort=list(ink), axis=altair.Axis(grid=False, labelLimit=200))
    frame = altair.Chart(table).mark_rect(filled=False, stroke="#8a8a8a", strokeWidth=0.6).encode(across, down)
    hover = [altair.Tooltip(f"{column}") for column in ("row:N", "token:O", "ink:Q")]
    inked = altair.Chart(table).mark_rect(color="#111111").encode(across, down, shown, tooltip=hover)
    ends = " ".join(f"{name}: {w[0]:.3g} for the oldest, {w[-1]:.3g} for the newest." for name, w in ink.items())
    chart = altair.layer(inked, frame).properties(width="container", height=34 * len(ink))
    return Figure(chart, title=title, alt=f"{alt} {ends}", subtitle=subtitle)


# A five-pointed star, as an SVG path in the unit square around the origin.
_STAR = (
    "M0,-1L0.235,-0.324L0.951,-0.309L0.380,0.124L0.588,0.809"
    "L0,0.4L-0.588,0.809L-0.380,0.124L-0.951,-0.309L-0.235,-0.324Z"
)
