"""Figures in use: sliders, themes, downloads, and the browser's closed forms against the library's."""

import csv
import io
import itertools
import json

import numpy as np
import pytest

from icl import theory
from icl.profile import streams
from icl.tasks import DriftingRegression

FORGET = "book/adaptation/how-much-to-forget"
VARY = "book/adaptation/time-varying-regression"


def settings():
    """Points of the sliders' ranges, edges included."""
    return [
        {"gamma": g, "d": d, "n": n, "sigma_e": s, "sigma_w": 1.0, "lam": lam}
        for g, d, n, s, lam in itertools.product(
            (0.5, 0.95, 1.0), (1, 10, 40), (2, 100, 300), (0.01, 1.0), (0.4, 0.9, 1.0)
        )
    ]


def test_closed_forms_are_the_librarys(visit):
    """Errors, zero predictor and least error computed in the browser equal the library's to 1e-6."""
    page = visit(FORGET).page
    ours = page.evaluate(
        """points => points.map(p => [
            icl.trainingError(p), icl.zeroPredictor(p), icl.trainingError({...p, lam: icl.optimalForgetting(p)}),
        ])""",
        settings(),
    )
    for point, values in zip(settings(), ours, strict=True):
        task = DriftingRegression(**{k: v for k, v in point.items() if k != "lam"})
        expected = [
            theory.gla.training_error(task, lam=point["lam"]),
            theory.gla.zero_predictor(task),
            theory.gla.training_error(task, lam=theory.gla.optimal_forgetting(task)),
        ]
        np.testing.assert_allclose(values, np.array(expected, dtype=float), rtol=1e-6, err_msg=str(point))


def test_best_forgetting_is_the_librarys(visit):
    """lambda* from the browser's golden section equals the library's to 1e-6, where the valley is not flat."""
    page = visit(FORGET).page
    points = [p for p in settings() if p["n"] == 100 and p["gamma"] < 1 and p["lam"] == 0.9]
    for point, found in zip(points, page.evaluate("ps => ps.map(icl.optimalForgetting)", points), strict=True):
        task = DriftingRegression(**{k: v for k, v in point.items() if k != "lam"})
        # A minimum is known only to the square root of the rounding of the function: 1e-7 here.
        assert found == pytest.approx(theory.gla.optimal_forgetting(task), abs=1e-6)


def test_kalman_floor_is_near_the_librarys(visit):
    """The browser's Riccati floor, over its own 40 random sequences, is within 4% of the library's over 400."""
    page = visit(FORGET).page
    for gamma, d in ((0.8, 10), (0.95, 10), (0.95, 3)):
        task = DriftingRegression(d=d, n=60, gamma=gamma)
        x = task.sample(400, generator=streams("browser floor")).x.numpy()
        expected = theory.kalman.risk(task, x)[0][-1]
        found = page.evaluate(
            "task => icl.kalmanFloor(task)", {"d": d, "n": 60, "gamma": gamma, "sigma_w": 1, "sigma_e": 0.1}
        )
        assert found == pytest.approx(expected, rel=0.04)


def drifts():
    """Points of the drifting weight's sliders, edges included, and one beyond the random walk."""
    return [
        {"gamma": g, "sigma_e": e, "sigma_w": w, "n": 149}
        for g, e, w in itertools.product((0.0, 0.5, 0.95, 0.995, 1.0, 1.02), (0.01, 0.1, 0.5), (0.0, 1.0, 2.0))
    ]


def test_drift_spread_is_the_kernel(visit):
    """The variances behind the drifting weight's dashed lines are the diagonal of the library's kernel, to 1e-9."""
    found = visit(VARY).page.evaluate("points => points.map(icl.weightVariances)", drifts())
    for point, values in zip(drifts(), found, strict=True):
        expected = DriftingRegression(d=1, **point).weight_kernel().diagonal()
        np.testing.assert_allclose(values, [point["sigma_w"] ** 2, *expected], rtol=1e-9, err_msg=str(point))


def test_drift_readout_is_the_kernels(visit):
    """The browser finds the start forgotten where its part of the library's kernel falls below 1 %, if it ever does,
    and correlations halved where the kernel's halve."""
    page = visit(VARY).page
    points = [p | {"n": 5000} for p in drifts() if p["gamma"] < 1 or p["sigma_e"] == 0.5]
    # JSON has no infinity: null stands for it.
    found = page.evaluate("ps => ps.map(p => icl.startForgotten(p)).map(i => i < Infinity ? i : null)", points)
    assert None in found
    for point, position in zip(points, found, strict=True):
        i = np.arange(1, point["n"] + 2)
        # Without a start, and in white noise, the first weight has forgotten it already.
        variance = DriftingRegression(d=1, **point).weight_kernel().diagonal()
        below = point["gamma"] ** (2.0 * i) * point["sigma_w"] ** 2 < 0.01 * variance
        assert position == (below.argmax() + 1 if below.any() else None), point
    for gamma, half in zip((0.5, 0.95), page.evaluate("[0.5, 0.95].map(icl.halfLife)"), strict=True):
        assert gamma**half == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize("name", ["book/index", FORGET, VARY])
def test_every_slider_moves_a_curve(visit, name):
    """Moving any slider, by keyboard, changes the drawn curve, the readout and the slider's number."""
    watched = visit(name, width=390)
    watched.read_through()
    figure = watched.page.locator(".icl-chart:has(.icl-controls)").first
    state = lambda: (figure.locator(".icl-chart__view").inner_html(), figure.locator(".icl-readout").inner_text())  # noqa: E731
    sliders = figure.locator("input[type=range]")
    assert sliders.count() >= 2
    for slider in sliders.all():
        before, number = state(), slider.input_value()
        slider.focus()
        for _ in range(6):
            watched.page.keyboard.press("ArrowLeft")
        watched.page.wait_for_function(
            "old => document.querySelector('.icl-readout').textContent !== old", arg=before[1]
        )
        watched.page.wait_for_timeout(100)
        drawing, readout = state()
        assert slider.input_value() != number
        assert drawing != before[0]
        assert readout != before[1]
    assert not watched.faults


def test_figures_start_where_python_left_them(visit):
    """What the browser computes at the sliders' first values is what Python drew into the page."""
    for name in ("book/index", FORGET, VARY):
        watched = visit(name)
        watched.read_through()
        figure = watched.page.locator(".icl-chart:has(.icl-controls)").first
        spec = json.loads(figure.locator("script[type='application/json']").inner_text())
        drawn = next(v["values"] for v in _nodes(spec) if v.get("name") == "curve")
        live = figure.evaluate("f => f.view.data('curve').map(row => ({...row}))")
        key = "time" if "time" in drawn[0] else "lam"
        value = "weight" if "weight" in drawn[0] else "times"
        drawn, live = ({(row["method"], row[key]): row[value] for row in rows} for rows in (drawn, live))
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


def test_charts_follow_the_theme_switch(visit):
    """Pressing the theme switch redraws the figures in the other theme's colours, without a reload."""
    watched = visit(FORGET)
    watched.read_through()
    page = watched.page
    # At a fixed width: a resized figure is drawn again in any case.
    page.evaluate("document.querySelectorAll('.icl-chart').forEach(f => { f.style.width = f.clientWidth + 'px'; })")
    before = page.locator(".icl-chart__view svg").first.inner_html()
    while page.evaluate("document.documentElement.dataset.theme") != "dark":
        page.locator("button.theme-switch-button").first.click()
    page.wait_for_function("[...document.querySelectorAll('.icl-chart')].every(f => f.dataset.drawn === 'dark')")
    assert page.locator(".icl-chart__view svg").first.inner_html() != before
    assert not watched.faults


def test_downloads_hold_the_figures_data(visit):
    """A figure's buttons save a CSV with its curves, a Vega-Lite specification and an SVG."""
    watched = visit(FORGET)
    watched.read_through()
    bar = watched.page.locator(".icl-chart__downloads").nth(1)

    def saved(label):
        with watched.page.expect_download() as waiting:
            bar.get_by_role("button", name=label).click()
        with open(waiting.value.path(), encoding="utf-8") as file:
            return file.read()

    rows = list(csv.DictReader(io.StringIO(saved("Data"))))
    assert len({row["drift"] for row in rows}) == 6
    assert json.loads(saved("Specification"))["$schema"].startswith("https://vega.github.io/schema/vega-lite/")
    assert saved("Picture").startswith("<svg")


def test_search_finds_a_term(visit):
    """Searching for a word of a chapter lists that chapter."""
    watched = visit("search", query="?q=pseudo-observations")
    # Results come in one after another.
    watched.page.wait_for_selector("#search-results li a[href*='how-much-to-forget']", timeout=10_000)
    assert not watched.faults
