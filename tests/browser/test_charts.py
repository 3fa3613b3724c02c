"""Figures in use: sliders, themes, downloads, search."""

import csv
import io
import json

import pytest

FORGET = "book/adaptation/how-much-to-forget"
VARY = "book/adaptation/time-varying-regression"
SHIFT = "book/adaptation/when-the-test-differs"
FILTERS = "book/adaptation/adaptive-filters"
FIRST_ORDER = "book/memory/first-order-methods"
TOKENS = "book/selection/how-many-tokens"
FAST = "book/synthesis/every-model-a-fast-weight"
FLOOR = "book/memory/polynomial-floor"
GATES = "book/memory/heads-and-experts"
TEXT = "book/adaptation/when-text-drifts"

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
    "name", ["book/index", FORGET, VARY, SHIFT, FILTERS, TEXT, FIRST_ORDER, TOKENS, FAST, FLOOR, GATES]
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
    key = next(key for key in ("time", "lam", "memory", "eigenvalue", "examples", "layer", "s", "t") if key in drawn[0])
    value = next(value for value in ("weight", "times", "left", "loss", "value") if value in drawn[0])
    line = "method" if "method" in drawn[0] else "curve"
    drawn, live = ({(row[line], row[key]): row[value] for row in rows} for rows in (drawn, live))
    assert len(drawn) == len(live)
    for (method, at), number in live.items():
        # In multiples of a floor over other random inputs: see test_kalman_floor_is_near_the_librarys.
        loose = value == "times"
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


def test_charts_need_no_frames(visit):
    """Where a browser draws no frames, as behind another window, nothing comes into view: charts are drawn still."""
    still = (
        "window.IntersectionObserver = class { observe() {} unobserve() {} }; window.requestAnimationFrame = () => 0;"
    )
    page = visit(FIRST_ORDER, script=still).page
    figures = page.locator(".icl-chart").count()
    assert figures > 1
    page.wait_for_function(
        f"document.querySelectorAll('.icl-chart[data-drawn=light]').length === {figures}", polling=50
    )
    figure = page.locator(".icl-chart:has(.icl-controls)").first
    before = [figure.locator(".icl-chart__view").inner_html(), figure.locator(".icl-readout").text_content()]
    figure.locator("input[type=range]").first.evaluate(
        "input => { input.stepDown(3); input.dispatchEvent(new Event('input')); }"
    )
    page.evaluate(REDRAWN, before)


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
    curves = page.locator(".icl-chart", has_text="The slower the drift, the less to forget")
    bar = curves.locator(".icl-chart__downloads")

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
