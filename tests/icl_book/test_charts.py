"""Figures say what they show, show it twice the same way, and carry nothing that could break the page."""

import base64
import colorsys
import functools
import io
import itertools
import json
import re
from html import unescape
from html.parser import HTMLParser
from xml.etree import ElementTree

import altair
import numpy as np
import pandas as pd
import pytest
import vl_convert
from fontTools.ttLib import TTFont

from icl_book import charts

ALT = "Error against the forgetting factor: two curves, U-shaped, the lower one below 0.7 at its floor."
LAM = [0.5, 0.75, 1.0]
ERRORS = {"GLA": [0.9, 0.7, 0.8], "Kalman": [0.5, 0.4, 0.6]}
BANDS = {"GLA": ([0.8, 0.6, 0.7], [1.0, 0.8, 0.9]), "Kalman": ([0.4, 0.3, 0.5], [0.6, 0.5, 0.7])}
POINT = {"GLA": ([0.75], [0.71], [0.01])}
STAR = {"GLA": (0.75, 0.71)}


def curves(ys=ERRORS, x=LAM, **options):
    settings = {"bands": BANDS, "x_title": "λ", "y_title": "error", "title": "A floor", "alt": ALT, "direct": True}
    return charts.curves(x, ys, **(settings | options))


@pytest.mark.parametrize("log_y", [False, True])
def test_limits_hold_whatever_is_drawn(log_y):
    """Titles, scales and limits of the heights are those asked for; lines beyond them are cut, not followed."""
    for ys in (ERRORS, {name: 10 * np.array(heights) for name, heights in ERRORS.items()}):
        encoding = curves(ys, log_y=log_y, y_domain=(0.3, 1.1)).spec["layer"][1]["encoding"]
        assert (encoding["x"]["title"], encoding["y"]["title"]) == ("λ", "error")
        assert encoding["y"]["scale"]["domain"] == [0.3, 1.1]
        assert encoding["y"]["scale"]["type"] == ("log" if log_y else "linear")


ASKED = {"question": "Where is it <least>?", "answer": "It is least at 0.9 & nowhere else."}


def full(**options):
    """A figure with everything that a figure can have."""
    controls = [{"name": "gamma", "label": "γ", "min": 0.5, "max": 1.0, "step": 0.05, "value": 0.9}]
    explorable = charts.Explorable("error_curve", controls, {"n": 100}, **ASKED)
    settings = {"points": POINT, "best": STAR, "floors": ["Kalman"], "subtitle": "d = 10\nn = 100", "log_y": True}
    return curves(**(settings | {"explorable": explorable} | options))


TILES = pd.DataFrame({"lam": [0.7, 0.75, 1.0] * 2, "m": [4] * 3 + [16] * 3, "times": 2.0 ** np.arange(6)})
MARKS = TILES[["lam", "m"]].iloc[[0, 4]]


def heatmap(data=TILES, **options):
    """Six tiles, 1 to 32 times the least of them, in two rows of three."""
    titles = {"x_title": "λ", "y_title": "m", "value_title": "error", "title": "A valley", "alt": ALT}
    return charts.heatmap(data, **({"x": "lam", "y": "m", "value": "times"} | titles | options))


def full_heatmap(**options):
    """A heat map with everything that one can have."""
    return heatmap(**({"stars": MARKS, "domain": (2.0, 16.0), "subtitle": "d = 10\nn = 100", "height": 200} | options))


NAMED = pd.DataFrame({"model": ["two layers", "least squares"], "error": [0.5, 0.4], "method": ["GLA", "RLS"]})


def dots(data=NAMED, **options):
    """Two models, named in the order of their table."""
    titles = {"x_title": "error", "title": "Named", "alt": ALT}
    return charts.dots(data, **({"x": "error", "y": "model", "by": "method"} | titles | options))


def full_dots(**options):
    """A chart of dots with everything that one can have."""
    ranged = NAMED.assign(low=NAMED.error - 0.05, high=NAMED.error + 0.05)
    settings = {"floors": {"Kalman": 0.3, "zero predictor": 0.7}, "log_x": True, "subtitle": "d = 10\nn = 100"}
    return dots(**({"data": ranged} | settings | options))


either = pytest.mark.parametrize("draw", [curves, heatmap, dots])
either_in_full = pytest.mark.parametrize("draw", [full, full_heatmap, full_dots])


def test_an_empty_table_is_refused():
    """With nothing to draw, every chart says so by name."""
    with pytest.raises(ValueError, match=r"^ys must hold at least one curve, got none$"):
        curves({}, bands=None)
    for draw, table, options in ((dots, NAMED, {}), (heatmap, TILES, {}), (heatmap, TILES, {"domain": (1.0, 2.0)})):
        with pytest.raises(ValueError, match=r"^data must have at least one row, got none$"):
            draw(table.iloc[:0], **options)


def test_tables_of_marks_may_be_empty():
    """No points and no stars are no fault."""
    for figure in (curves(points={}, best={}), heatmap(stars=MARKS.iloc[:0])):
        assert "<svg" in figure.svg()


class Page(HTMLParser):
    """The elements of a figure's HTML with their attributes, and the text of its script."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.script, self.open = [], "", []
        self.feed(text)
        self.close()

    @property
    def tags(self):
        """The elements' names, in order."""
        return [tag for tag, _ in self.elements]

    def first(self, tag):
        """Attributes of the first element of a name."""
        return next(attributes for name, attributes in self.elements if name == tag)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if "script" in self.open:
            self.script += data


@functools.cache
def built(draw):
    """(a figure with everything, its bundle for a page), drawn once for all that look at it."""
    figure = draw()
    return figure, figure._repr_mimebundle_()


def shown(figure, bundle=None):
    """(the elements, the specification, the picture) of a figure as a page has them."""
    page = Page((bundle or figure._repr_mimebundle_())["text/html"])
    head, picture = page.first("img")["src"].split(",")
    assert head == "data:image/svg+xml;base64"
    return page, json.loads(page.script), base64.b64decode(picture).decode()


@either
@pytest.mark.parametrize("alt", ["", "   ", "A chart.", "Error against lam for two methods here."])
def test_a_figure_without_a_description_is_refused(draw, alt):
    """A figure whose description is missing or shorter than eight words is refused."""
    with pytest.raises(ValueError, match="alt must describe the figure in at least eight words"):
        draw(alt=alt)
    with pytest.raises(TypeError, match="alt"):
        charts.Figure(altair.Chart(NAMED).mark_point(), title="A floor")


@either
@pytest.mark.parametrize("title", ["", " "])
def test_a_figure_without_a_title_is_refused(draw, title):
    """A figure whose title is empty is refused."""
    with pytest.raises(ValueError, match="title must say the finding"):
        draw(title=title)


def test_methods_keep_their_colours():
    """A method has the same colour whatever else is in the figure, and no figure may give it another."""
    with pytest.raises(ValueError, match=r"colours must not change \['GLA'\]"):
        curves(colours={"GLA": "#123456"})

    def colour(figure, method):
        scale = figure.spec["layer"][-1]["encoding"]["color"]["scale"]
        return dict(zip(scale["domain"], scale["range"], strict=True))[method]

    alone = curves({"Kalman": ERRORS["Kalman"]}, bands=None)
    assert colour(alone, "Kalman") == colour(curves(), "Kalman") == charts.METHODS["Kalman"]
    for options in ({"points": {"stranger": ([0.7], [0.5])}}, {"best": {"stranger": (0.7, 0.5)}}):
        assert colour(curves(**options, colours={"stranger": "#123456"}), "stranger") == "#123456"


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("place", "options"),
    [
        ("ys and bands", lambda bad: {"ys": ERRORS | {"GLA": [0.9, bad, 0.8]}}),
        ("ys and bands", lambda bad: {"ys": ERRORS | {"GLA": ([0.5, bad, 1.0], [0.9, 0.7, 0.8])}}),
        ("ys and bands", lambda bad: {"ys": ERRORS | {"GLA": [(LAM, [0.9, 0.7, 0.8]), ([0.1], [bad])]}, "bands": None}),
        ("ys and bands", lambda bad: {"bands": {"GLA": ([0.8, bad, 0.7], [1.0, 0.8, 0.9])}}),
        ("ys and bands", lambda bad: {"bands": {"GLA": ([0.8, 0.6, 0.7], [1.0, 0.8, bad])}}),
        ("points", lambda bad: {"points": {"GLA": ([bad], [0.7])}}),
        ("points", lambda bad: {"points": {"GLA": ([0.7], [bad])}}),
        ("points", lambda bad: {"points": {"GLA": ([0.7], [0.7], [bad])}}),
        ("best", lambda bad: {"best": {"GLA": (bad, 0.7)}}),
        ("best", lambda bad: {"best": {"GLA": (0.7, bad)}}),
    ],
)
def test_numbers_that_cannot_be_drawn_are_refused(place, options, number):
    """NaN and infinity in anything that is to be drawn are refused: a chart would leave a gap and not say so."""
    with pytest.raises(ValueError, match=rf"{place} must hold finite numbers only, which \['GLA'\] do not"):
        curves(**options(number))


@pytest.mark.parametrize("name", ["log_x", "log_y"])
def test_an_axis_is_logarithmic_or_not(as_installed, name):
    """What is merely truthy is refused by name."""
    with pytest.raises(ValueError, match=f"{name} must be True or False, got 'no'"):
        curves(**{name: "no"})


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_logarithmic_axis_takes_positive_numbers_alone(value):
    """A curve that touches zero is refused on a logarithmic axis, with the number that cannot be drawn."""
    with pytest.raises(ValueError, match=rf"logarithmic axis needs positive values, got {value:g}"):
        curves(ERRORS | {"GLA": [0.9, value, 0.8]}, log_y=True)


@pytest.mark.parametrize("log_y", [False, True])
def test_labels_at_the_ends_do_not_overlap(log_y):
    """Labels of curves that end together are moved apart by a line of text, 15 pixels, and stay in the order of the
    curves.

    Three curves end within a pixel at the upper edge. Tolerance 1e-6 of a pixel. The label of a fourth, which has room,
    stays where its curve ends.
    """
    names = ["GLA", "Kalman", "linear attention"]
    ends = {"RLS": 0.2} | {name: 0.9 + i / 1e4 for i, name in enumerate(names)}
    spec = curves({name: [0.1, end] for name, end in ends.items()}, [0.5, 1.0], bands=None, log_y=log_y).spec
    low, high = spec["layer"][0]["encoding"]["y"]["scale"]["domain"]
    (labels,) = (layer for layer in spec["layer"] if layer.get("name") == "labels")
    rows = pd.DataFrame(spec["datasets"][labels["data"]["name"]]).set_index("by")
    scale = np.log if log_y else np.asarray
    pixels = 320 * (scale(rows.y[names]) - scale(low)) / (scale(high) - scale(low))
    assert (np.diff(pixels) > 15 - 1e-6).all()
    assert (pixels < 320 + 1e-6).all()
    assert rows.y["RLS"] == pytest.approx(0.2, rel=1e-9)


@either_in_full
def test_two_builds_are_identical(draw):
    """A figure built twice has the same specification and the same picture, to the last byte, whatever was drawn
    between.
    """
    first, before = built(draw)
    curves(direct=False).svg()
    second = draw()
    assert json.dumps(second.spec) == json.dumps(first.spec)
    assert second._repr_mimebundle_() == before


def test_a_figure_draws_the_numbers_it_was_given():
    """The specification holds every number, unrounded, and the picture is drawn from it."""
    expected = [
        {"x": x, "y": y, "low": low, "high": high, "by": name}
        for name, heights in ERRORS.items()
        for x, y, low, high in zip(LAM, heights, *BANDS[name], strict=True)
    ]
    figure = curves()
    assert next(iter(figure.spec["datasets"].values())) == expected
    assert json.loads(json.dumps(full().spec))["layer"][0]["data"]["values"] == expected
    _, _, picture = shown(figure)
    assert picture.startswith("<svg")
    assert "A floor" in picture


@either_in_full
def test_the_picture_has_the_description(draw):
    """The picture's text alternative is the description, and the specification's description too, blanks squeezed."""
    figure = draw(alt=f"  {ALT}\n   It says so.  ")
    readings = READINGS if draw is full else ""
    bundle = figure._repr_mimebundle_()
    page, spec, _ = shown(figure, bundle)
    assert page.first("img")["alt"] == spec["description"] == bundle["text/plain"] == f"{ALT} It says so.{readings}"
    assert [tag for tag in page.tags if tag in ("figure", "img", "script")] == ["figure", "img", "script"]
    assert page.first("figure")["class"] == "icl-chart"
    assert page.first("script") == {"type": "application/json"}


READINGS = (
    " GLA: falls from 0.9 at 0.5 to 0.7 at 0.75, then rises to 0.8 at 1."
    " Kalman: falls from 0.5 at 0.5 to 0.4 at 0.75, then rises to 0.6 at 1."
)
MARKUP = ["</script><b>", "<!--<script>", "</SCRIPT >", '"><b>', "'&quot;", "<svg onload=x>", "\\u003c"]


@pytest.mark.parametrize(("draw", "text"), [*(("curves", text) for text in MARKUP), ("heatmap", " ".join(MARKUP))])
def test_text_in_a_figure_is_text(draw, text):
    """Markup and quotes in the data, the titles or the description stay text: the page has three elements and no other.

    The specification read back from the page is the figure's own, whatever stood in it; nothing in the script looks
    like the end of a script or the beginning of a comment.
    """
    words = {"title": f"Title {text}", "x_title": text, "alt": f"{ALT} {text}"}
    if draw == "curves":
        figure = curves({"GLA": ERRORS["GLA"], text: ERRORS["Kalman"]}, bands=None, **words)
    else:
        figure = heatmap(value_title=text, **words)
    page, spec, _ = shown(figure)
    assert page.tags == ["figure", "img", "script"]
    assert spec == figure.spec
    image = page.first("img")
    assert set(image) == {"alt", "src", "width", "height", "loading"}
    assert image["alt"].startswith(f"{ALT} {text}")
    assert not re.search(r"<(/script|!--|script)", page.script, re.IGNORECASE)


def test_an_explorable_asks_and_answers():
    """The question stands above the picture and the answer below it, folded; markup in them is text. The figure has an
    address of its own, and the specification tells the browser of sliders and constants alone.
    """
    figure, bundle = built(full)
    html = bundle["text/html"]
    parts = ['id="explore-error_curve"', "Where is it &lt;least&gt;?", "here it stands still", "<img ", "<script"]
    parts += ["<details", "0.9 &amp; nowhere"]
    assert sorted(parts, key=html.index) == parts
    assert set(figure.spec["usermeta"]["icl"]["explorable"]) == {"function", "controls", "constants"}
    plain = full(explorable=None)._repr_mimebundle_()["text/html"]
    assert not any(part in plain for part in ("explore-", "icl-question", "icl-still", "<details"))


@pytest.mark.parametrize(
    ("words", "fault"),
    [({"question": " "}, "question"), ({"question": "It falls."}, "question"), ({"answer": "It does."}, "answer")],
)
def test_an_explorable_without_a_question_or_an_answer_is_refused(words, fault):
    """What does not ask, or says nothing, is refused by name."""
    with pytest.raises(ValueError, match=f"{fault} must"):
        charts.Explorable("error_curve", [], **(ASKED | words))


@either_in_full
def test_the_page_s_picture_is_the_picture_in_fewer_letters(draw):
    """What the page shows has the elements and texts of the full drawing, in the same order and to a hundredth of a
    pixel; but for empty paths, names of marks, and attributes that say what is so without them.
    """
    figure, bundle = built(draw)
    picture, drawing = (ElementTree.fromstring(svg) for svg in (shown(figure, bundle)[2], figure.svg()))
    idle = {"opacity": "1", "stroke-width": "1", "stroke-dasharray": "1,0", "transform": "translate(0,0)"}
    idle["font-family"] = picture.find("{*}g").attrib.pop("font-family")
    number = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
    elements = [each for each in drawing.iter() if each.get("d") not in ("", "M0,0h0v0h0Z")]
    for found, full_drawing in zip(picture.iter(), elements, strict=True):
        assert (found.tag, found.text) == (full_drawing.tag, full_drawing.text)
        for name, value in full_drawing.attrib.items():
            if name in ("role", "pointer-events") or name.startswith("aria-"):
                continue
            short = found.attrib.pop(name, idle.get(name, ""))
            assert number.sub("", short) == number.sub("", value)
            assert np.allclose(*([float(part) for part in number.findall(each)] for each in (short, value)), 0, 0.006)
        assert not found.attrib


@pytest.mark.parametrize("weight", [400, 500])
def test_a_text_is_as_wide_as_the_converter_draws_it(weight):
    """The width by which titles are broken and legends get their columns is that of the drawn text, to a pixel."""
    text = "Error of λ̄ → ∞, σₑ = 0.15: cᵢ′bⱼ ≤ ½ ‖UᵀDU‖, γ² − 1"
    mark = {"type": "text", "text": text, "fontSize": 40, "font": charts._FONT, "fontWeight": weight, "align": "left"}
    spec = {"data": {"values": [{}]}, "mark": mark, "encoding": {"x": {"value": 0}}, "width": 1}
    charts.register_fonts()
    svg = vl_convert.vegalite_to_svg(spec, vl_version=charts._VEGALITE)
    drawn = float(re.search(r'width="([\d.]+)"', svg)[1]) - 10  # 5 pixels of padding on either side
    assert charts._text_width(text, 40, weight) == pytest.approx(drawn, abs=1)


@either_in_full
def test_a_picture_has_the_letters_that_it_shows(draw):
    """The font inside a picture has every character of its texts, in the weight in which they stand, and no more."""
    svg = built(draw)[0].svg()
    faces = dict(re.findall(r"font-weight:(\d+);src:url\(data:font/ttf;base64,([^)]*)\)", svg))
    fonts = {weight: TTFont(io.BytesIO(base64.b64decode(font))).getBestCmap() for weight, font in faces.items()}
    used = {weight: set() for weight in fonts}
    for attributes, text in re.findall(r"<text([^>]*)>(.*?)</text>", svg):
        weight = "500" if re.search('font-weight="(500|600|bold)"', attributes) else "400"
        used[weight] |= {ord(letter) for letter in unescape(re.sub("<[^>]*>", "", text))}
    assert {weight: set(font) for weight, font in fonts.items()} == used
    assert all(used.values())


@either_in_full
def test_a_figure_needs_no_network(draw):
    """The HTML and the picture in it name no address but those of the schema and of SVG's name spaces."""
    figure, bundle = built(draw)
    page, spec, picture = shown(figure, bundle)
    known = {spec["$schema"], "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert re.fullmatch(r"https://vega\.github\.io/schema/vega-lite/v6[.\d]*\.json", spec["$schema"])
    assert set(re.findall(r"https?://[^\"'\s<>)]+", page.script + picture)) <= known
    html = bundle["text/html"]
    assert not re.search(r"https?://", html.replace(spec["$schema"], ""))
    assert not re.search(r"(src|href|url)\s*[=(]\s*[\"']?(?!data:|#|url)\w", picture)


def test_an_explorable_carries_what_its_function_needs():
    """The specification hands the page the function's name, its sliders and its constants, and names the data it
    replaces.
    """
    spec = built(full)[0].spec
    explorable = spec["usermeta"]["icl"]["explorable"]
    assert explorable["function"] == "error_curve"
    assert explorable["controls"][0]["name"] == "gamma"
    assert explorable["constants"] == {"n": 100}
    assert {layer["data"]["name"] for layer in spec["layer"] if layer["data"].get("name") == "curve"} == {"curve"}
    assert curves().spec["usermeta"] == {"icl": {}}


def test_an_explorables_logarithmic_axis_follows_its_curves():
    """The y axis finds its limits in the curves, a little beyond them and not at powers of ten, with few ticks.

    The least error stands 14 pixels above the lower end, of 320, and the greatest 14 below the upper: to the pixel.
    """
    figure = full(bands=None, points=None, best={})
    assert "domain" not in figure.spec["layer"][0]["encoding"]["y"]["scale"]
    svg = figure.svg()
    paths = re.findall(r'line mark" d="([^"]*)"', svg)
    heights = [float(y) for path in paths for y in re.findall(r",([\d.]+)", path)]
    assert min(heights) == pytest.approx(14, abs=1)
    assert max(heights) == pytest.approx(320 - 14, abs=1)
    labels = re.findall(r'<text text-anchor="end"[^>]*>([\d.]+)</text>', svg)
    assert {"0.4", "0.9"} <= set(labels)
    assert len(labels) <= 8


@pytest.mark.parametrize("draw", [functools.partial(curves, direct=False), heatmap], ids=["curves", "heatmap"])
def test_a_width_is_kept(draw):
    """The picture has the width asked for where the figure follows its page."""
    figure = draw()
    for width in (400, 900):
        found = float(re.search(r'<svg[^>]* width="([\d.]+)"', figure.svg(width=width))[1])
        assert found == width


@either_in_full
def test_a_figure_has_the_books_theme(draw):
    """Every kind of figure carries the shared configuration, its title and its subtitle, line by line."""
    spec = built(draw)[0].spec
    assert spec["config"]["view"]["stroke"] is None
    assert spec["config"] | {"view": None} == charts.theme() | {"view": None}
    assert spec["title"]["subtitle"] == ["d = 10", "n = 100"]
    assert spec["width"] == "container"


@pytest.mark.parametrize(
    ("draw", "place", "table", "column"),
    [
        *((heatmap, "data", TILES, column) for column in TILES),
        *((heatmap, "stars", MARKS, column) for column in MARKS),
        *((dots, "data", NAMED, column) for column in NAMED),
    ],
)
def test_tables_without_their_columns_are_refused(draw, place, table, column):
    """A table that lacks a column it is drawn by is refused, by the column's name; stars need no value."""
    heatmap(stars=MARKS)
    with pytest.raises(ValueError, match=rf"{place} must have the columns \['{column}'\]"):
        draw(**{place: table.drop(columns=column)})


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", ["lam", "m", "times"])
def test_tiles_that_cannot_be_drawn_are_refused(column, number):
    """NaN and infinity among a heat map's places and values are refused, with the column that holds them."""
    with pytest.raises(ValueError, match=f"data must hold finite numbers only in '{column}'"):
        heatmap(TILES.astype(float).assign(**{column: TILES[column].where(TILES.index != 1, number)}))


@pytest.mark.parametrize("value", [0.0, -1.0])
@pytest.mark.parametrize("domain", [None, (2.0, 16.0)])
def test_a_heat_map_takes_positive_values_alone(domain, value):
    """A value that has no logarithm is refused, also where a domain is given: a tile of -1 would leave the whole
    picture empty.
    """
    with pytest.raises(ValueError, match=f"data must hold positive numbers only in 'times', got {value:g}"):
        heatmap(TILES.assign(times=TILES.times.where(TILES.index != 1, value)), domain=domain)


def test_rows_are_named_and_floors_too():
    """Rows stand in the table's order, under their names; each floor is a dashed line with its name inside the plot."""
    svg = built(full_dots)[0].svg()
    rows = [svg.index(f">{name}<") for name in NAMED.model]
    assert rows == sorted(rows)
    for name in ("Kalman", "zero predictor", "GLA", "RLS"):
        assert f">{name}<" in svg
    assert svg.count("stroke-dasharray") >= 2
    alone = dots(NAMED.assign(method="GLA")).svg()
    assert ">GLA<" not in alone


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_dots_that_cannot_be_drawn_are_refused(number):
    """NaN and infinity among the values, ends of ranges or floors are refused; so is a floor of 0 on a log axis."""
    ranged = NAMED.assign(low=0.1, high=1.0)
    for column in ("error", "low", "high"):
        with pytest.raises(ValueError, match=f"data must hold finite numbers only in '{column}'"):
            dots(ranged.assign(**{column: [number, 0.5]}))
    with pytest.raises(ValueError, match="data must hold finite numbers only in 'floors'"):
        dots(floors={"Kalman": number})
    with pytest.raises(ValueError, match="a logarithmic axis needs positive values, got 0"):
        dots(floors={"Kalman": 0.0}, log_x=True)


def test_dots_that_would_hide_one_another_stand_apart():
    """One above the other in the order of the legend, with their ranges; those that are apart stay in the middle, and
    where all are, nothing is added to the data. On a logarithmic axis a distance is a ratio.
    """
    near = {"a": [1.01, 1.0, 1.02], "b": [1.0, 2.0, 3.0], "c": [100.0, 1.0, 101.0]}
    table = pd.DataFrame([(k, m, v) for k, row in near.items() for m, v in zip("xyz", row, strict=True)])
    table.columns = ["model", "method", "error"]
    table = table.assign(low=table.error / 1.1, high=table.error * 1.1).iloc[::-1]
    colours = dict(zip("xyz", charts.SEQUENCE, strict=False))

    def lanes(data, **options):
        chart = dots(data, colours=colours, **options).chart
        return chart.data.set_index(["model", "method"])["_lane"].to_dict(), chart

    found, chart = lanes(table, log_x=True)
    assert [found["a", name] for name in "zyx"] == [-1, 0, 1]  # the table, and so the legend, is from z to x
    assert [found["b", name] for name in "xyz"] == [0, 0, 0]
    assert [found["c", name] for name in "zyx"] == [-0.5, 0, 0.5]
    assert [layer["encoding"]["yOffset"]["field"] for layer in chart.to_dict()["layer"]] == ["_lane", "_lane"]
    assert lanes(table)[0]["b", "x"] != 0  # 1 and 2 are near on an axis to 100
    kinds = pd.Categorical(table.method, categories=["y", "x", "z"])  # the legend is in the table's order all the same
    assert lanes(table.assign(method=kinds), log_x=True)[0] == found
    alone = dots(table[table.model == "b"], colours=colours).chart
    assert "_lane" not in alone.data
    assert all("yOffset" not in layer["encoding"] for layer in alone.to_dict()["layer"])
    assert max(charts._lanes(pd.Series([0.5] * 5), pd.Series(["a"] * 5), pd.Series(range(5)))) == 2


def test_floors_of_dots_are_lit_on_a_dark_page():
    """A floor's line and name have their colour in the mark, where a dark page turns it, and none in the data, which it
    leaves alone. Planted: a column of colours, drawn without a scale.
    """
    layers = dots(floors={"Kalman": 0.5}).chart.to_dict()["layer"]
    marks = [layer["mark"] for layer in layers if layer["mark"]["type"] in ("rule", "text")]
    assert [mark["color"] for mark in marks] == [charts.METHODS["Kalman"]] * 2


def test_tiles_that_lie_on_each_other_are_refused():
    """Two values for one place are refused, equal or not."""
    for value in (1.0, 2.0):
        with pytest.raises(ValueError, match="data must hold one row for each pair of 'lam' and 'm'"):
            heatmap(pd.concat([TILES, TILES.iloc[:1].assign(times=value)]))


@pytest.mark.parametrize("domain", [(2.0, 1.0), (1.0, 1.0), (0.0, 1.0), (-1.0, 1.0), (np.nan, 1.0), (1.0, np.inf)])
def test_a_domain_that_is_none_is_refused(domain):
    """Ends of a colour scale that are not two positive, finite numbers, the smaller first, are refused, and so is a
    surface of one value without them.
    """
    with pytest.raises(ValueError, match=r"domain must be two positive numbers, the smaller first, got \("):
        heatmap(domain=domain)
    with pytest.raises(ValueError, match=r"domain must be two positive numbers.* got \(3.0, 3.0\)"):
        heatmap(TILES.assign(times=3.0))
    heatmap(TILES.assign(times=3.0), domain=(1.0, 3.0))


@pytest.mark.parametrize("place", [{"lam": 0.8}, {"m": 5}, {"lam": np.nan}, {"lam": 1.0 + 1e-15}])
def test_stars_beyond_the_tiles_are_refused(place):
    """A star between the tiles is refused with its place: an axis of names would make room for a row of its own."""
    with pytest.raises(ValueError, match=r"stars must mark tiles of data, got \[\("):
        heatmap(stars=MARKS.assign(**place))


def drawn(figure, mark):
    """What the picture has of one kind of mark: (label, x, y, colour), x and y in pixels of the plot, y downwards."""
    group = re.search(rf'<g class="mark-{mark}[^>]*>(.*?)</g>', figure.svg())[1]
    found = []
    for path in re.findall("<path [^>]*>", group):
        label, colour = (re.search(rf'{name}="([^"]*)"', path)[1] for name in ("aria-label", "fill"))
        if moved := re.search(r"translate\(([\d.]+),([\d.]+)\)", path):
            x, y = map(float, moved.groups())
        else:
            left, top, wide, high = map(float, re.search(r'd="M([\d.]+),([\d.]+)h([\d.]+)v([\d.]+)', path).groups())
            x, y = left + wide / 2, top + high / 2
        found.append((label, x, y, colour))
    return found


def test_a_heat_map_draws_the_numbers_it_was_given():
    """The specification holds every row of both tables, unrounded, and the picture has a tile a row: columns ascending
    to the right, rows upwards, all of one size; stars stand in the middle of their tiles.

    Tiles of a third of the width by 100 pixels; the order of the rows in the table does not matter.
    """
    thirds = TILES.assign(times=TILES.times / 3)
    for data in (thirds, thirds.sample(frac=1, random_state=0)):
        figure = heatmap(data, stars=MARKS, height=200)
        tiles, stars = figure.spec["layer"]
        rows = figure.spec["datasets"]
        pd.testing.assert_frame_equal(pd.DataFrame(rows[tiles["data"]["name"]]), data.reset_index(drop=True))
        pd.testing.assert_frame_equal(pd.DataFrame(rows[stars["data"]["name"]]), MARKS.reset_index(drop=True))
        found = drawn(figure, "rect")
        half = min(x for _, x, _, _ in found)
        places = {(round(x / half, 6), y) for _, x, y, _ in found}
        assert places == {(1 + 2 * i, 50 + 100 * j) for i in range(3) for j in range(2)}
        for label, x, y, _ in found:
            value, column = (float(re.search(rf"{name}: ([\d.]+)", label)[1]) for name in ("times", "lam"))
            k = round(np.log2(3 * value))
            assert (x, y) == (pytest.approx(half + 2 * half * (k % 3)), 150 - 100 * (k // 3))
            assert column == (0.7, 0.75, 1.0)[k % 3]
        assert {(round(x / half, 6), y) for _, x, y, _ in drawn(figure, "symbol")} == {(1, 150), (3, 50)}


def test_a_heat_map_is_dark_where_values_are_large():
    """Colours run from light to dark with the logarithm of the value, through the colours of a sequence; beyond a given
    domain tiles keep the colour of its end.

    Values 1, 2 .. 32 meet the six colours exactly; between 2 and 16 the middle four fall off the ends.
    """

    def colours(figure):
        rgb = [tuple(map(int, re.findall(r"\d+", colour))) for _, _, _, colour in drawn(figure, "rect")]
        return ["#{:02x}{:02x}{:02x}".format(*c) for c in rgb]

    whole, cut = colours(heatmap()), colours(heatmap(domain=(2.0, 16.0)))
    assert whole[1:] == list(charts.SEQUENCE)
    assert list(map(lightness, whole)) == sorted(map(lightness, whole), reverse=True)
    assert cut[0] == cut[1] == whole[0]
    assert cut[4] == cut[5] == whole[5]
    assert len(set(cut)) == 4


def test_every_colour_is_one():
    """Every colour of a method or a sequence is written as six hexadecimal digits."""
    for colour in (*charts.METHODS.values(), *charts.SEQUENCE):
        assert re.fullmatch(r"#[0-9a-f]{6}", colour)


#: Linear red, green and blue as a reader sees them who has no cones for red, or none for green (Machado et al. 2009).
SIGHTS = {
    "all cones": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}


def linear(colour):
    """Linear red, green and blue of a colour, 0 to 1."""
    gamma = np.array(list(bytes.fromhex(colour[1:]))) / 255
    return np.where(gamma <= 0.04045, gamma / 12.92, ((gamma + 0.055) / 1.055) ** 2.4)


def lab(colour, sight="all cones"):
    """CIELAB coordinates of a colour as it is seen."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(np.array(SIGHTS[sight]) @ linear(colour), 0, 1) / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def lightness(colour):
    """How light a colour is, 0 to 100."""
    return lab(colour)[0]


@pytest.mark.parametrize("sight", SIGHTS)
def test_a_sequence_can_be_told_apart(sight):
    """No two shades of a sequence are closer than 20 in CIELAB, for colour-blind readers too; its five blues were."""
    apart = lambda shades: min(  # noqa: E731
        np.linalg.norm(lab(a, sight) - lab(b, sight)) for a, b in itertools.combinations(shades, 2)
    )
    assert apart(charts.SEQUENCE) > 20
    assert apart(("#6aa9d6", "#4590c9", "#2376b8", "#125a94", "#06335a")) < 13


def turned(colour):
    """What `turned` of book/_assets/charts.js makes of a colour on a dark page."""
    hue, light, strength = colorsys.rgb_to_hls(*(part / 255 for part in bytes.fromhex(colour[1:])))
    shade = 0.95 - 0.8 * light
    while True:
        parts = colorsys.hls_to_rgb(hue, shade, 0.9 * strength)
        found = "#" + bytes(round(255 * part) for part in parts).hex()
        if light >= 0.93 or brightness(found) + 0.05 >= 3 * (brightness("#121212") + 0.05):
            return found
        shade += 0.01


def brightness(colour):
    """Relative luminance of a colour, as the guidelines for accessible pages have it."""
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("sight", SIGHTS)
def test_methods_can_be_told_apart(sight):
    """Colours of two methods that are not the same are 12 and more apart in CIELAB, 9 on a dark page, for colour-blind
    readers too. Older ones were not: a green of faded ridge beside linear attention's orange, a blue of ridge
    regression beside NLMS's violet, a violet of NLMS beside the layer's blue. Those that a reader compares most, a
    method and its floor, a rule and its normalised form, differ by 35, on a dark page by 25: a brown floor beside an
    orange line did not.
    """
    apart = lambda a, b: np.linalg.norm(lab(a, sight) - lab(b, sight))  # noqa: E731
    pairs = list(itertools.combinations(dict.fromkeys(charts.METHODS.values()), 2))
    assert min(apart(a, b) for a, b in pairs) > 12
    assert min(apart(turned(a), turned(b)) for a, b in pairs) > 9
    if sight == "no red":
        alike = (("#6b8e00", "linear attention"), ("#1c22b4", "NLMS"), ("#7a5bb5", "GLA"))
        assert all(apart(older, charts.METHODS[other]) < 8 for older, other in alike)
    if sight == "all cones":
        compared = [("linear attention", "Kalman"), ("GLA", "Kalman"), ("delta rule", "normalised delta rule")]
        compared += [("delta rule", other) for other in ("LMS", "GLA", "linear attention", "RLS", "Kalman")]
        for one, other in compared:
            colours = charts.METHODS[one], charts.METHODS[other]
            assert apart(*colours) > 35
            assert apart(*map(turned, colours)) > 25
        assert apart("#8a5a00", charts.METHODS["linear attention"]) < 28


def test_pieces_of_one_curve_stay_apart():
    """A list of pairs is drawn as so many lines of one colour, described together; one array as one line."""
    pieces = {"GLA": [(LAM, [0.9, 0.7, 0.8]), ([0.6, 0.7], [0.5, 0.3])], "Kalman": [0.5, 0.4, 0.6]}
    figure = curves(pieces, bands=None, direct=False)
    assert figure.svg().count('aria-roledescription="line mark"') == 3
    assert "GLA: 2 lines between 0.3 and 0.9. Kalman: falls" in figure.alt
    rows = next(iter(figure.spec["datasets"].values()))
    assert [(r["by"], r["piece"], r["y"]) for r in rows][2:6] == [
        ("GLA", 0, 0.8), ("GLA", 1, 0.5), ("GLA", 1, 0.3), ("Kalman", 0, 0.5)
    ]  # fmt: skip
    assert curves(direct=False).svg().count('aria-roledescription="line mark"') == 2


@pytest.mark.parametrize(("times", "powers"), [(1e5, False), (1e9, True)])
def test_large_numbers_are_powers_of_ten(times, powers):
    """A logarithmic axis that goes beyond ten million names all its ticks as powers of ten: "1e+10", not ten zeros
    below it and an exponent above.
    """
    figure = curves({"GLA": [1.0, times]}, [1, 2], bands=None, log_y=True)
    axis = figure.spec["layer"][0]["encoding"]["y"].get("axis")
    assert axis == ({"format": "~e"} if powers else None)


@pytest.mark.parametrize(("shift", "counted"), [(0, True), (0.5, False)])
def test_what_is_counted_has_no_ticks_between(shift, counted):
    """An axis of whole numbers, as of layers, is labelled at whole numbers only; so it is where sliders move curves."""
    layers, falling = np.arange(4) + shift, {"GLA": [4.0, 2.0, 1.0, 0.5]}
    expected = {"values": [0, 1, 2, 3], "format": "d"} if counted else None
    for layer in curves(falling, layers, bands=None).spec["layer"]:
        assert layer["encoding"]["x"].get("axis") == expected
    many = curves(falling, 30 * layers + shift, bands=None)
    assert ("tickMinStep" in json.dumps(many.spec)) == counted
    switch = charts.Explorable("error_curve", [{"name": "on", "label": "on", "value": True}], **ASKED)
    moved = full(ys=falling, x=layers, bands=None, points=None, best={}, floors=(), explorable=switch)
    assert moved.spec["layer"][0]["encoding"]["x"].get("axis") == expected
    assert moved.spec["usermeta"]["icl"]["explorable"]["controls"][0]["value"] is True


def test_a_band_keeps_the_limits_asked_for():
    """Where y has limits its band has the same: an area's own would widen the axis to 0."""
    spec = full(points=None, best={}, y_domain=(0.35, 0.7)).spec
    domains = [layer["encoding"]["y"].get("scale", {}).get("domain") for layer in spec["layer"][:2]]
    assert domains == [[0.35, 0.7]] * 2
