"""Figures in use: sliders, themes, downloads, search."""

import csv
import io
import itertools
import json
import re

import chapters
import pytest

HTML = chapters.ROOT / "_build" / "html"
FORGET = "book/adaptation/how-much-to-forget"
FIRST_ORDER = "book/memory/first-order-methods"


def test_charts_are_drawn_as_they_come_near(visit):
    """A chart far below waits for its reader; and where a browser draws no frames, as behind another window, and tells
    of no scrolling, it is drawn still.
    """
    still = """
        const listen = EventTarget.prototype.addEventListener;
        EventTarget.prototype.addEventListener = function (kind, ...rest) {
            if (kind !== 'scroll') return listen.call(this, kind, ...rest);
        };
        window.requestAnimationFrame = () => 0;
    """
    watched = visit(FIRST_ORDER, script=still)
    page = watched.page
    figures = page.locator(".icl-chart")
    assert figures.count() > 2
    page.locator(".icl-chart[data-drawn=light]").first.wait_for()
    assert figures.last.evaluate("figure => figure.getBoundingClientRect().top > 3 * innerHeight")
    assert figures.last.get_attribute("data-drawn") is None
    assert figures.last.locator("img").is_visible()
    figures.last.evaluate("figure => figure.scrollIntoView()")
    page.wait_for_function(
        "[...document.querySelectorAll('.icl-chart')].at(-1).dataset.drawn === 'light'", polling=50, timeout=10_000
    )
    figure = page.locator(".icl-chart:has(.icl-controls)").first
    before = watched.shown(figure)
    figure.locator("input[type=range]").first.evaluate(
        "input => { input.stepDown(3); input.dispatchEvent(new Event('input')); }"
    )
    watched.redrawn(figure, before)


def test_a_star_stands_where_its_axis_goes(forms):
    """At every corner of the sliders of every explorable, and at their first values, no star is beside the chart."""
    beside, stars = [], 0
    for page in sorted(HTML.rglob("*.html")):
        for written in re.findall(
            r'id="explore-.*?<script type="application/json">(.*?)</script>', page.read_text(), re.S
        ):
            spec = json.loads(written.replace("<\\/", "</"))
            axes = [each["encoding"]["x"] for each in spec["layer"] if (each.get("data") or {}).get("name") == "stars"]
            if not axes:
                continue
            explorable = spec["usermeta"]["icl"]["explorable"]
            values = {c["name"]: c["value"] for c in explorable["controls"]}
            ends = [[(c["name"], c[end]) for end in ("min", "max")] for c in explorable["controls"] if "min" in c]
            corners = [values, *(values | dict(corner) for corner in itertools.product(*ends))]
            found = forms.evaluate(
                """async ([name, corners, constants]) => Promise.all(
                    corners.map(async at => (await icl.explorables[name](at, constants)).datasets.stars ?? []))""",
                [explorable["function"], corners, explorable["constants"]],
            )
            (low, high), field = axes[0]["scale"]["domain"], axes[0]["field"]
            stars += sum(map(len, found))
            beside += [
                (page.stem, explorable["function"], at, star)
                for at, there in zip(corners, found, strict=True)
                for star in there
                if not low <= star[field] <= high
            ]
    assert beside == []
    assert stars > 100


def test_the_first_chart_does_not_wait_for_the_end_of_the_page(visit, site):
    """While a script that the page's end waits for has not come, the first chart is drawn and can be moved; when the
    rest of the page has come it stands as it was, at the width that it had. What lies far below is not drawn yet.
    """
    drawn = """
        window.drawn = [];
        new MutationObserver(all => all.forEach(({target}) => {
            if (target.dataset.drawn) drawn.push([target.id, document.readyState != 'complete', target.clientWidth]);
        })).observe(document, {subtree: true, attributeFilter: ['data-drawn']});
    """
    held = []
    for width in (390, 1280, 1600):
        page = visit("404", width=width, script=drawn).page
        page.route("**/tex-chtml.js*", lambda route: held.append(route))
        page.goto(f"{site}/book/adaptation/adaptive-filters.html", wait_until="commit")
        figure = page.locator("#explore-filters")
        figure.locator("input[name=gamma]").wait_for()
        assert page.evaluate("document.readyState") != "complete"
        held.pop().continue_()
        page.wait_for_load_state()
        page.evaluate("MathJax.startup.promise.then(() => new Promise(done => setTimeout(done, 500)))")
        assert page.evaluate("drawn") == [["explore-filters", True, figure.evaluate("f => f.clientWidth")]]


@pytest.mark.parametrize("place", ["served", "folder"])
def test_the_address_says_the_setting(visit, place):
    """A slider that a finger moves changes the address; whoever opens that address, or the link of the figure, finds
    the figure as it was. Reset takes it back. The address keeps what else it said. A number off the scale stands at its
    end; what is no number, and no slider of the figure, is passed over.
    """
    options = {"has_touch": True, "origin": HTML.as_uri() if place == "folder" else None}
    page = visit("book/adaptation/adaptive-filters", query="?from=lecture", width=390, **options).page
    figure = page.locator("#explore-filters")
    slider = lambda name: figure.locator(f"input[name={name}]")  # noqa: E731
    readout = lambda: figure.locator(".icl-readout").text_content()  # noqa: E731
    slider("gamma").wait_for()
    first, value = readout(), slider("gamma").input_value()
    box = slider("gamma").bounding_box()
    slider("gamma").tap(position={"x": box["width"] / 4, "y": box["height"] / 2})
    page.wait_for_function("location.search.includes('filters.gamma')", polling=50)
    moved, told = slider("gamma").input_value(), readout()
    assert float(moved) < float(value)
    assert told != first
    link = figure.get_by_role("link", name="Link to this setting").get_attribute("href")
    assert page.url == link
    assert link.endswith(f"?from=lecture&filters.gamma={moved}#explore-filters")
    page.goto("about:blank")
    page.goto(link, wait_until="commit")
    slider("gamma").wait_for()
    assert (slider("gamma").input_value(), readout()) == (moved, told)
    figure.get_by_role("button", name="Reset").tap()
    page.wait_for_function("!location.search.includes('forgetting')", polling=50)
    assert (slider("gamma").input_value(), readout()) == (value, first)
    page.goto("about:blank")
    page.goto(link.split("?")[0] + "?filters.gamma=99&filters.d=many&filters.none=1", wait_until="commit")
    slider("gamma").wait_for()
    assert slider("gamma").input_value() == slider("gamma").get_attribute("max")
    assert slider("d").input_value() == "10"


def test_figures_follow_the_switch_and_hand_out_their_data(visit):
    """Pressing the theme switch redraws the figures in the other theme's colours, without a reload; a figure's buttons
    save a CSV with its curves, a Vega-Lite specification and an SVG.
    """
    watched = visit(FORGET)
    watched.read_through()
    page = watched.page
    # At a fixed width: a resized figure is drawn again in any case.
    page.evaluate("document.querySelectorAll('.icl-chart').forEach(f => { f.style.width = f.clientWidth + 'px'; })")
    before = page.locator(".icl-chart__view svg").first.inner_html()
    while page.evaluate("document.documentElement.dataset.theme") != "dark":
        page.locator("button.theme-switch-button").first.click()
    watched.settle("dark")
    assert page.locator(".icl-chart__view svg").first.inner_html() != before
    curves = page.locator(".icl-chart:not(:has(.icl-controls))", has_text="The slower the drift, the less to forget")
    bar = curves.locator(".icl-chart__bar")

    def saved(label):
        with page.expect_download() as waiting:
            bar.get_by_role("button", name=label).click()
        with open(waiting.value.path(), encoding="utf-8") as file:
            return file.read()

    rows = list(csv.DictReader(io.StringIO(saved("Data"))))
    assert len({row["by"] for row in rows}) == 6
    assert json.loads(saved("Specification"))["$schema"].startswith("https://vega.github.io/schema/vega-lite/")
    assert saved("Picture").startswith("<svg")
    assert not watched.faults


def test_a_saved_picture_is_for_paper(visit):
    """Saved on a dark page, a figure is dark on white, its curves stand where a slider has moved them, and its font is
    in the file.
    """
    watched = visit(FORGET, theme="dark")
    page, figure = watched.page, watched.page.locator("#explore-forgetting")
    slider = figure.locator("input[name=gamma]")
    slider.wait_for()
    before = watched.shown(figure)
    slider.evaluate("input => { input.stepDown(3); input.dispatchEvent(new Event('input')); }")
    watched.redrawn(figure, before)
    curves = """root => [...root.querySelectorAll('path[aria-roledescription="line mark"]')]
        .map(path => path.getAttribute('d'))"""
    moved = figure.evaluate(curves)
    with page.expect_download() as waiting:
        figure.get_by_role("button", name="Picture").click()
    with open(waiting.value.path(), encoding="utf-8") as file:
        page.set_content(file.read())
    picture = page.locator("body > svg")
    assert picture.evaluate(curves) == moved
    assert picture.locator("rect").first.get_attribute("fill") == "white"
    texts = picture.evaluate("svg => [...svg.querySelectorAll('text')].map(text => getComputedStyle(text).fill)")
    assert max(map(brightness, texts)) < 0.15
    assert page.evaluate("document.fonts.load('12px \"Chart Sans\"').then(found => found.length)") == 1
    assert not watched.faults


def test_no_curve_is_lost_on_a_dark_page(visit):
    """Every curve is three times as bright as the page, those in a pale sister of another's colour too."""
    watched = visit("book/memory/more-layers", theme="dark")
    watched.read_through()
    curves = """[...document.querySelectorAll('.icl-chart__view path[aria-roledescription="line mark"]')]
        .map(curve => getComputedStyle(curve).stroke).concat(getComputedStyle(document.body).backgroundColor)"""
    *found, page = map(brightness, watched.page.evaluate(curves))
    assert len(found) > 20
    assert min(found) + 0.05 > 0.99 * 3 * (page + 0.05)


def brightness(colour):
    """Relative luminance of `rgb(...)`, as the guidelines for accessible pages have it."""
    gamma = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in gamma]
    return sum(a * b for a, b in zip([0.2126, 0.7152, 0.0722], linear, strict=True))


def test_search_finds_a_term(visit):
    """Searching for a word of a chapter lists that chapter."""
    watched = visit("search", query="?q=pseudo-observations")
    # Results come in one after another.
    watched.page.wait_for_selector("#search-results li a[href*='how-much-to-forget']", timeout=10_000)
    assert not watched.faults


def test_charts_are_drawn_anew_for_another_width(visit):
    """All of a page's, when a window that was wide becomes as narrow as a phone."""
    watched = visit("book/adaptation/depth")
    watched.read_through()
    watched.page.set_viewport_size({"width": 390, "height": 900})
    watched.page.wait_for_function(
        """() => [...document.querySelectorAll('.icl-chart__view')].every(view =>
            view.querySelector('svg').getAttribute('width') < 390)""",
        polling=100,
    )
