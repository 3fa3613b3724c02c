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
VARY = "book/adaptation/time-varying-regression"
SHIFT = "book/adaptation/when-the-test-differs"
FILTERS = "book/adaptation/adaptive-filters"
FIRST_ORDER = "book/memory/first-order-methods"
TOKENS = "book/selection/how-many-tokens"
FAST = "book/synthesis/every-model-a-fast-weight"
FLOOR = "book/memory/polynomial-floor"
GATES = "book/memory/heads-and-experts"
SHARING = "book/memory/one-register"
MOVED = "book/memory/gd-plus-plus"
STEPS = "book/memory/preconditioners"
TEXT = "book/adaptation/when-text-drifts"
DEPTH = "book/adaptation/depth"
WHY = "book/adaptation/why-stationarity-fails"
GATED = "book/adaptation/gated-linear-attention"
FLOW = "book/adaptation/gradient-flow"
SELECTS = "book/selection/why-selection"
RATES = "book/selection/exponential-convergence"
NOISY = "book/selection/online-gradient-descent"

# Resolves when both parts of a figure are no longer what they were; fails if that takes more than ten seconds.
REDRAWN = """([drawing, readout]) => new Promise((done, fail) => {
    const view = document.querySelector('.icl-controls ~ .icl-chart__view');
    const words = document.querySelector('.icl-readout');
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


@pytest.mark.parametrize(
    "name",
    [
        "book/index",
        FORGET,
        VARY,
        SHIFT,
        FILTERS,
        TEXT,
        WHY,
        GATED,
        FLOW,
        FIRST_ORDER,
        TOKENS,
        FAST,
        FLOOR,
        GATES,
        SHARING,
        MOVED,
        STEPS,
        DEPTH,
        SELECTS,
        RATES,
        NOISY,
    ],
)
def test_explorable(visit, name):
    """What the browser computes at the sliders' first values is what Python drew into the page; then moving any slider,
    by keyboard, changes the drawn curve, the readout and the slider's number. So does a switch, by keyboard and by its
    words. Each has the name that the page says.
    """
    watched = visit(name, width=390)
    watched.read_through()
    figure = watched.page.locator(".icl-chart:has(.icl-controls)").first
    starts_as_python_left_it(figure)
    assert figure.locator(".icl-still").is_hidden()  # what a notebook says
    state = lambda: [figure.locator(".icl-chart__view").inner_html(), figure.locator(".icl-readout").text_content()]  # noqa: E731
    sliders = figure.locator("input[type=range]")
    assert sliders.count() >= 2
    for slider in sliders.all():
        before, number = state(), slider.input_value()
        slider.focus()
        way = "ArrowRight" if number == slider.get_attribute("min") else "ArrowLeft"
        for _ in range(6):
            watched.page.keyboard.press(way)
        watched.page.evaluate(REDRAWN, before)
        assert slider.input_value() != number
    switches = figure.locator("input[role=switch]")
    for switch in switches.all():
        for turn in (lambda switch=switch: switch.press("Space"), figure.get_by_text(_said(switch), exact=True).click):
            before, on = state(), switch.is_checked()
            turn()
            watched.page.evaluate(REDRAWN, before)
            assert switch.is_checked() != on
    for kind, controls in (("slider", sliders), ("switch", switches)):
        for control in controls.all():
            assert figure.get_by_role(kind, name=_said(control), exact=True).count() == 1
    assert not watched.faults


def _said(control):
    """What a control's label says, but for its number."""
    return control.locator("xpath=..").locator("span").text_content()


def starts_as_python_left_it(figure):
    """The curve that the browser computed is the one in the page."""
    spec = json.loads(figure.locator("script[type='application/json']").text_content())
    drawn = next(v["values"] for v in _nodes(spec) if v.get("name") == "curve")
    live = figure.evaluate("f => f.view.data('curve').map(row => ({...row}))")
    key = next(
        key
        for key in ("time", "lam", "memory", "eigenvalue", "examples", "layer", "s", "t", "step", "stretch", "sigma")
        if key in drawn[0]
    )
    value = next(value for value in ("weight", "times", "left", "loss", "value") if value in drawn[0])
    line = "method" if "method" in drawn[0] else "curve"
    drawn, live = ({(row[line], row[key]): row[value] for row in rows} for rows in (drawn, live))
    assert len(drawn) == len(live)
    for (method, at), number in live.items():
        # In multiples of a floor over other random inputs: see test_kalman_floor_is_near_the_librarys.
        loose = value == "times" or (value, method) == ("left", "Kalman")
        python = min(drawn.items(), key=lambda item: (item[0][0] != method, abs(item[0][1] - at)))[1]
        assert python == pytest.approx(number, rel=0.04 if loose else 1e-6, abs=1e-9)


def _nodes(node):
    if isinstance(node, dict):
        yield node
        for child in node.values():
            yield from _nodes(child)
    elif isinstance(node, list):
        for child in node:
            yield from _nodes(child)


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
    page = visit(FIRST_ORDER, script=still).page
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
    before = [figure.locator(".icl-chart__view").inner_html(), figure.locator(".icl-readout").text_content()]
    figure.locator("input[type=range]").first.evaluate(
        "input => { input.stepDown(3); input.dispatchEvent(new Event('input')); }"
    )
    page.evaluate(REDRAWN, before)


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


def test_the_first_chart_does_not_wait_for_the_end_of_the_page(visit):
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
        page = visit("book/index", width=width, script=drawn).page
        page.route("**/tex-chtml.js*", lambda route: held.append(route))
        page.goto(page.url.replace("index", FORGET.removeprefix("book/")), wait_until="commit")
        figure = page.locator("#explore-forgetting")
        figure.locator("input[name=gamma]").wait_for()
        assert page.evaluate("document.readyState") != "complete"
        held.pop().continue_()
        page.wait_for_load_state()
        page.evaluate("MathJax.startup.promise.then(() => new Promise(done => setTimeout(done, 500)))")
        assert page.evaluate("drawn") == [["explore-forgetting", True, figure.evaluate("f => f.clientWidth")]]


@pytest.mark.parametrize("place", ["served", "folder"])
def test_the_address_says_the_setting(visit, place):
    """A slider that a finger moves changes the address; whoever opens that address, or the link of the figure, finds
    the figure as it was. Reset takes it back. The address keeps what else it said. A number off the scale stands at its
    end; what is no number, and no slider of the figure, is passed over.
    """
    options = {"has_touch": True, "origin": HTML.as_uri() if place == "folder" else None}
    page = visit(FORGET, query="?from=lecture", width=390, **options).page
    figure = page.locator("#explore-forgetting")
    slider = lambda name: figure.locator(f"input[name={name}]")  # noqa: E731
    readout = lambda: figure.locator(".icl-readout").text_content()  # noqa: E731
    slider("gamma").wait_for()
    first, value = readout(), slider("gamma").input_value()
    box = slider("gamma").bounding_box()
    slider("gamma").tap(position={"x": box["width"] / 4, "y": box["height"] / 2})
    page.wait_for_function("location.search.includes('forgetting.gamma')", polling=50)
    moved, told = slider("gamma").input_value(), readout()
    assert float(moved) < float(value)
    assert told != first
    link = figure.get_by_role("link", name="Link to this setting").get_attribute("href")
    assert page.url == link
    assert link.endswith(f"?from=lecture&forgetting.gamma={moved}#explore-forgetting")
    page.goto("about:blank")
    page.goto(link)
    slider("gamma").wait_for()
    assert (slider("gamma").input_value(), readout()) == (moved, told)
    figure.get_by_role("button", name="Reset").tap()
    page.wait_for_function("!location.search.includes('forgetting')", polling=50)
    assert (slider("gamma").input_value(), readout()) == (value, first)
    page.goto("about:blank")
    page.goto(link.split("?")[0] + "?forgetting.gamma=99&forgetting.d=many&forgetting.none=1")
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
    assert len({row["drift"] for row in rows}) == 6
    assert json.loads(saved("Specification"))["$schema"].startswith("https://vega.github.io/schema/vega-lite/")
    assert saved("Picture").startswith("<svg")
    assert not watched.faults


def test_search_finds_a_term(visit):
    """Searching for a word of a chapter lists that chapter."""
    watched = visit("search", query="?q=pseudo-observations")
    # Results come in one after another.
    watched.page.wait_for_selector("#search-results li a[href*='how-much-to-forget']", timeout=10_000)
    assert not watched.faults
