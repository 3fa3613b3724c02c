"""Every page, wide and narrow, light and dark: what a reader would stumble over."""

import json
import re
from collections import defaultdict

import chapters
import pytest
from axe_playwright_python.base import AXE_SCRIPT

HTML = chapters.ROOT / "_build" / "html"
# A source page stands for all: one template makes them.
MADE = ["404", "genindex", "py-modindex", "search", "_modules/index", "_modules/icl/filters"]
PAGES = [*chapters.pages(), *MADE]
ILLUSTRATED = [page for page in PAGES if 'class="icl-chart' in (HTML / f"{page}.html").read_text(encoding="utf-8")]
# One page of each kind that a template or a generator makes: axe sees these in both themes at both widths.
KINDS = {
    "book/index",
    "book/adaptation/gated-linear-attention",
    "book/evidence/claims",
    "book/reference/library/filters-and-solvers",
    "book/reference/bibliography",
    *MADE,
}
# What axe finds depends on the theme in contrast only, and on the width in what scrolls: the rest is in the markup.
SEEN = ["color-contrast", "scrollable-region-focusable"]

# Contrast is what takes axe its time, and it is the same for all text of one look: three of each are enough, on the
# first page that has it. A look is what stands behind the text (of its ancestors those that put something there, or
# change it) and the text's own style. Of a single character, of punctuation and of hidden text axe does not say that
# its contrast is too low. And it need not look for regions that scroll among elements that hold no more than they
# show. Each element takes it time as well: until axe is done code without new looks is its text alone, formulas, which
# one program makes, are boxes of their size where the page is not one of `KINDS`, and drawings without new looks are
# empty where axe has `only` these two to judge.
AXE = """async ([only, enough, whole]) => {
    const TRANSPARENT = {
        position: 'static', backgroundColor: 'rgba(0, 0, 0, 0)', backgroundImage: 'none', opacity: '1',
        mixBlendMode: 'normal', filter: 'none',
    };
    const PUNCTUATION = /[\\u2000-\\u206F\\u2E00-\\u2E7F\\\\'!"#$%&£¢¥§€()*+,\\-.\\/:;<=>?@\\[\\]^_`{|}~±]/g;
    // A cell of a table is one of its kind, and the page the same when it has scrolled.
    const kind = e => e === document.body ? '' : `${e.getAttribute('class')}`.replace(/\\d+/g, '');
    const stood = new Map(), judged = new Set(enough), met = new Map();
    // Two hashes of 32 bits stand for a look.
    const numberOf = look => [31, 131].map(factor => {
        let hash = 7;
        for (let i = 0; i < look.length; i++) hash = Math.imul(hash, factor) + look.charCodeAt(i) | 0;
        return hash;
    }).join();
    const behind = e => {
        if (e && !stood.has(e)) {
            const style = getComputedStyle(e), above = behind(e.parentElement);
            const puts = Object.keys(TRANSPARENT).filter(s => style[s] !== TRANSPARENT[s]).map(s => style[s]);
            stood.set(e, puts.length ? numberOf([above, e.localName, kind(e), ...puts].join()) : above);
        }
        return stood.get(e);
    };
    // What a fold hides need not even be laid out.
    const folded = e => e.localName !== 'summary' && e.parentElement?.matches('details:not([open])');
    const seen = document.createTreeWalker(document.body, NodeFilter.SHOW_ELEMENT,
        e => folded(e) ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
    for (let e = seen.root; e; e = seen.nextNode()) {
        if (e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight) e.dataset.more = '';
        const text = [...e.childNodes].map(n => n.nodeType === Node.TEXT_NODE ? n.data : '').join('').trim();
        if (text.length < 2 || !text.replace(PUNCTUATION, '').trim()) continue;
        if (!e.checkVisibility() || e.closest('mjx-assistive-mml')) continue;
        const {display, color, textShadow, fontSize, fontWeight} = getComputedStyle(e);
        const own = [e.localName, kind(e), e.disabled];
        const look = numberOf([behind(e), own, display, color, textShadow, fontSize, fontWeight].join());
        if (judged.has(look)) continue;
        met.set(look, (met.get(look) ?? 0) + 1);
        if (met.get(look) <= 3) e.dataset.look = '';
    }
    const aside = ['pre', ...whole ? [] : ['mjx-container'], ...only ? ['.icl-chart__view svg'] : []].join();
    const boxes = [...document.querySelectorAll(aside)]
        .filter(box => !box.querySelector('[data-look]'))
        .map(box => ({
            box, parts: [...box.childNodes], size: box.matches('mjx-container') && box.getBoundingClientRect(),
        }));
    for (const {box, size} of boxes) {
        box.replaceChildren(...box.matches('pre') ? [box.textContent] : []);
        if (!size) continue;
        const filler = box.appendChild(document.createElement('span'));
        filler.style.cssText = `display: inline-block; width: ${size.width}px; height: ${size.height}px`;
    }
    axe.configure({rules: [
        {id: 'color-contrast', selector: '[data-look]'},
        {id: 'scrollable-region-focusable', selector: '[data-more]:not(select,textarea)'},
    ]});
    const rules = only ? {runOnly: only} : {};
    const {violations} = await axe.run({...rules, resultTypes: ['violations'], preload: {assets: ['media']}});
    boxes.forEach(({box, parts}) => box.replaceChildren(...parts));
    document.querySelectorAll('[data-look]').forEach(e => delete e.dataset.look);
    document.querySelectorAll('[data-more]').forEach(e => delete e.dataset.more);
    return {
        found: violations.map(v => `${v.id} (${v.impact}): ${v.nodes[0].html.slice(0, 160)} [${v.nodes.length}]`),
        looks: [...met.keys()],
    };
}"""
#: Looks that axe has judged, by theme and width.
JUDGED = defaultdict[tuple[str, int], set[str]](set)
STATE = """() => ({
    width: document.documentElement.scrollWidth,
    errors: document.querySelectorAll('mjx-merror').length,
    untyped: document.querySelectorAll('.math').length - document.querySelectorAll('mjx-container').length,
    figures: [...document.querySelectorAll('.icl-chart')].map(
        figure => [figure.dataset.drawn, figure.querySelectorAll('.icl-chart__view svg path').length > 0]),
    cut: [...document.querySelectorAll('.bd-article :is(.icl-scroll, div.math)')].filter(
        box => box.scrollWidth > box.clientWidth + 1).map(box => box.textContent.trim().slice(0, 40)),
    uncued: [...document.querySelectorAll('.bd-article :is(.icl-scroll, div.math, pre, .icl-long)')].filter(
        box => box.scrollWidth > box.clientWidth + 1 &&
            !['--on', '--from'].some(edge => parseFloat(getComputedStyle(box).getPropertyValue(edge)) > 0)
    ).map(box => box.textContent.trim().slice(0, 40)),
    beyond: [...document.querySelectorAll('.bd-article :is(figure.icl-chart svg, pre, mjx-container, table)')].filter(
        e => e.checkVisibility() && !e.closest('.icl-scroll, div.math, .highlight') &&
            e.getBoundingClientRect().right > document.querySelector('.bd-article').getBoundingClientRect().right + 1
    ).map(e => e.textContent.trim().slice(0, 40)),
    clipped: [...document.querySelectorAll('.icl-chart__view svg')].flatMap(svg => {
        const box = svg.getBoundingClientRect();
        return [...svg.querySelectorAll('text')].filter(text => {
            const {left, right, bottom, width} = text.getBoundingClientRect();
            const shown = width && text.textContent.trim() && text.checkVisibility({opacityProperty: true});
            return shown && (left < box.left - 2 || right > box.right + 2 || bottom > box.bottom + 2);
        }).map(text => text.textContent.slice(0, 40));
    }),
})"""


#: Faults of a drawing by Vega, in words.
FAULTS = """drawing => {
    const frame = drawing.getBoundingClientRect(), box = element => element.getBoundingClientRect();
    const seen = text => text.textContent.trim() && !text.closest('[opacity="0"], [display="none"]');
    const all = (inside, selector) => [...inside.querySelectorAll(selector)];
    const past = ({left, right, top, bottom}) =>
        Math.min(left - frame.left, frame.right - right, top - frame.top, frame.bottom - bottom) < -0.5;
    const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5 &&
        Math.abs(a.top + a.bottom - b.top - b.bottom) < 12; // in one row
    const found = all(drawing, 'text').filter(text => seen(text) && past(box(text)))
        .map(text => `past the edge: ${text.textContent}`);
    for (const legend of all(drawing, '.role-legend')) {
        const labels = all(legend, '.role-legend-label text').filter(seen);
        const others = [...labels, ...all(legend, '.role-legend-symbol path')];
        for (const label of labels) {
            if (label.textContent.endsWith('…')) found.push(`cut in the legend: ${label.textContent}`);
            if (others.some(other => other !== label && meet(box(label), box(other)))) {
                found.push(`runs into its neighbour: ${label.textContent}`);
            }
        }
    }
    const plot = box(drawing.querySelector('.root path.background'));
    const atEnd = tick => {
        const {left, right, top, bottom, width, height} = box(tick), [x, y] = [(left + right) / 2, (top + bottom) / 2];
        const [at, low, high] = width < height ? [x, plot.left, plot.right] : [y, plot.top, plot.bottom];
        return Math.min(Math.abs(at - low), Math.abs(at - high)) < 1.5;
    };
    for (const axis of all(drawing, '.role-axis')) {
        const labels = all(axis, '.role-axis-label text'), ticks = all(axis, '.role-axis-tick line');
        if (!labels.some(seen)) continue;
        for (const i of [0, labels.length - 1]) {
            const {textContent} = labels[i]; // on a logarithmic axis most ticks have none
            if (textContent && !seen(labels[i]) && (!ticks.length || atEnd(ticks[i]))) {
                found.push(`no label at the end of an axis: ${textContent}`);
            }
        }
    }
    return found;
}"""

#: Of the static pictures, which a page from a server may look into.
STATIC = """async source => {
    const measured = eval(source);
    const found = await Promise.all([...document.querySelectorAll('.icl-chart img')].map(async image => {
        const frame = Object.assign(document.createElement('iframe'), {src: image.src, width: 1000, height: 1000});
        document.body.append(frame);
        await new Promise(done => { frame.onload = done; });
        frame.contentDocument.documentElement.getBoundingClientRect();
        await frame.contentDocument.fonts.ready;
        const faults = measured(frame.contentDocument.documentElement);
        frame.remove();
        return faults.map(fault => `picture, ${image.alt.slice(0, 60)}: ${fault}`);
    }));
    return found.flat();
}"""

#: Of the live charts, at the window's width.
LIVE = """faults => [...document.querySelectorAll('.icl-chart')].flatMap(figure =>
    eval(faults)(figure.querySelector('.icl-chart__view svg')).map(
        fault => `${innerWidth} wide, ${figure.querySelector('img').alt.slice(0, 60)}: ${fault}`))"""


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("place", ["served, wide", "folder, narrow"])
def test_page(visit, subtests, name, place):
    """Nothing from elsewhere, cut off or scrolling sideways, no error, all drawn, axe content: light and dark. Narrow,
    what has sliders moves.

    In each picture and each live chart no text is past the edge, no label of a legend is cut or reaches the next
    symbol, and a tick at the end of an axis has its label.

    Wide pages come from a server, start light and turn dark; narrow ones are opened as files and are dark. Axe judges a
    page once in each theme, and what neither theme nor width decides when it is wide. How theme and width act together
    the style sheets decide, and no page's text: one page of each kind is judged in full, and turns at both widths, the
    button that leads back to the top shown where there is one.
    """
    origin = HTML.as_uri() if place.startswith("folder") else None
    width, themes = (1280, ["light", "dark"]) if "wide" in place else (390, ["dark", "light"])
    themes = themes if "wide" in place or name in KINDS else themes[:1]
    watched = visit(name, width=width, theme=themes[0], origin=origin)
    page = watched.page
    watched.read_through()
    with subtests.test(pictures="whole"):
        assert (page.evaluate(STATIC, FAULTS) if origin is None else []) + page.evaluate(LIVE, FAULTS) == []
    page.evaluate(AXE_SCRIPT)
    if name in KINDS and page.evaluate("document.documentElement.scrollHeight > 2 * innerHeight"):
        page.wait_for_function(
            "() => { scrollBy(0, -10); return document.querySelector('#pst-back-to-top').style.display === 'block'; }",
            polling=50,
        )
    for theme in themes:
        with subtests.test(theme=theme):
            if theme != themes[0]:
                watched.turn(theme)
            assert not watched.faults
            state = page.evaluate(STATE)
            assert state["width"] <= width
            assert state["errors"] == 0
            # Formulas, tables and figures fit a screen; on a phone they may scroll, and code anywhere: edges show it.
            assert width == 390 or not state["cut"]
            assert not state["uncued"]
            assert not state["beyond"]
            assert not state["clipped"]
            assert state["untyped"] <= 0
            assert all(figure == [theme, True] for figure in state["figures"]), state["figures"]
            if theme == themes[0] or name in KINDS:
                judged, only = JUDGED[theme, width], None if "wide" in place or name in KINDS else SEEN
                told = page.evaluate(AXE, [only, list(judged), name in KINDS])
                assert not told["found"], "\n".join(told["found"])
                judged.update(told["looks"])
    if "narrow" in place:
        with subtests.test(sliders="move"):
            each_moves(watched)
        with subtests.test(width=320):  # a page of 1280 pixels at four times its size
            page.set_viewport_size({"width": 320, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= 320


def each_moves(watched):
    """Of a page's figures with sliders each is, at its first values, what Python drew into the page; then moving any
    slider, by keyboard, changes the drawn curve, the readout and the slider's number. So does a switch, by keyboard and
    by its words. Each has the name that the page says.
    """
    for figure in watched.page.locator(".icl-chart:has(.icl-controls)").all():
        starts_as_python_left_it(figure)
        assert figure.locator(".icl-still").is_hidden()  # what a notebook says
        sliders = figure.locator("input[type=range]")
        for slider in sliders.all():
            before, number = watched.shown(figure), slider.input_value()
            slider.focus()
            way = "ArrowRight" if number == slider.get_attribute("min") else "ArrowLeft"
            for _ in range(6):
                watched.page.keyboard.press(way)
            watched.redrawn(figure, before)
            assert slider.input_value() != number
            if slider.input_value() == slider.get_attribute("min"):  # all at their ends, the next might have no say
                before = watched.shown(figure)
                for _ in range(3):
                    watched.page.keyboard.press("ArrowRight")
                watched.redrawn(figure, before)
        switches = figure.locator("input[role=switch]")
        for switch in switches.all():
            words = figure.get_by_text(_label(switch), exact=True)
            for turn in (lambda switch=switch: switch.press("Space"), words.click):
                before, on = watched.shown(figure), switch.is_checked()
                turn()
                watched.redrawn(figure, before)
                assert switch.is_checked() != on
        for kind, controls in (("slider", sliders), ("switch", switches)):
            for control in controls.all():
                assert figure.get_by_role(kind, name=_label(control), exact=True).count() == 1
    assert not watched.faults


def _label(control):
    """What a control's label says, but for its number."""
    return control.locator("xpath=..").locator("span").text_content()


# Names of a curve's columns: what it runs along, and what it shows.
KEYS = [
    "time",
    "lam",
    "memory",
    "eigenvalue",
    "examples",
    "keys",
    "share",
    "u",
    "p",
    "s",
    "t",
    "step",
    "stretch",
    "sigma",
]
KEYS += ["x", "layer"]  # a number in one figure, a name in another
VALUES = ["weight", "times", "left", "loss", "value", "level", "reads", "high", "y"]


def starts_as_python_left_it(figure):
    """The curve that the browser computed is the one in the page."""
    spec = json.loads(figure.locator("script[type='application/json']").text_content())
    drawn = next(v["values"] for v in _nodes(spec) if v.get("name") == "curve")
    live = figure.evaluate("f => f.view.data('curve').map(row => ({...row}))")
    key = next(key for key in KEYS if key in drawn[0])
    value = next(value for value in VALUES if value in drawn[0])
    line = next(line for line in ("by", "method", "curve", "of", "layer") if line in drawn[0])
    of_floor = "multiples of the Kalman floor" in json.dumps(spec)
    drawn, live = ({(row[line], row[key]): row[value] for row in rows} for rows in (drawn, live))
    assert len(drawn) == len(live)
    for (method, at), number in live.items():
        # In multiples of a floor over other random inputs: see test_kalman_floor_is_near_the_librarys.
        # A border of the map is read off a table that the page has rounded.
        drifts = value == "times" or of_floor or (value, method) in (("left", "Kalman"), ("y", "Kalman"))
        loose = 0.04 if drifts else 1e-3 if value == "high" else 1e-6
        python = min(drawn.items(), key=lambda item: (item[0][0] != method, abs(item[0][1] - at)))[1]
        assert python == pytest.approx(number, rel=loose, abs=1e-9)


def _nodes(node):
    if isinstance(node, dict):
        yield node
        for child in node.values():
            yield from _nodes(child)
    elif isinstance(node, list):
        for child in node:
            yield from _nodes(child)


@pytest.mark.parametrize("name", sorted(KINDS & set(ILLUSTRATED)))
def test_without_javascript(visit, name):
    """Without JavaScript every figure is a picture."""
    figures = visit(name, java_script_enabled=False).page.locator(".icl-chart")
    assert figures.count() > 0
    for figure in figures.all():
        picture = figure.locator("img")
        assert picture.is_visible()
        assert picture.bounding_box()["height"] > 100


def test_every_figure_is_a_picture_with_a_description():
    """What is shown without JavaScript stands in each page: of that size, and with words for who does not see it."""
    figures = [
        figure
        for name in ILLUSTRATED
        for figure in re.findall(
            r'<figure class="icl-chart.*?</figure>',
            (HTML / f"{name}.html").read_text(encoding="utf-8"),
            re.S,
        )
    ]
    assert len(figures) > 3 * len(ILLUSTRATED)
    for figure in figures:
        (picture,) = re.findall(r"<img [^>]*>", figure)
        said = dict(re.findall(r'([a-z]+)="([^"]*)"', picture))
        assert len(said["alt"].split()) >= 8
        assert int(said["height"]) > 100
        assert said["src"]
