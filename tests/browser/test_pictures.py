"""Pictures are whole: in the static ones and in the live charts of every page, no text is cut or runs into another."""

import chapters
import pytest

HTML = chapters.ROOT / "_build" / "html"
PAGES = sorted(
    str(path.relative_to(HTML).with_suffix(""))
    for path in HTML.rglob("*.html")
    if 'class="icl-chart"' in path.read_text(encoding="utf-8")
)

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

STATIC = """async source => {
    const measured = eval(source), found = [];
    for (const image of document.querySelectorAll('.icl-chart img')) {
        const frame = Object.assign(document.createElement('iframe'), {src: image.src, width: 1000, height: 1000});
        document.body.append(frame);
        await new Promise(done => { frame.onload = done; });
        frame.contentDocument.documentElement.getBoundingClientRect();
        await frame.contentDocument.fonts.ready;
        const faults = measured(frame.contentDocument.documentElement);
        found.push(...faults.map(fault => `picture, ${image.alt.slice(0, 60)}: ${fault}`));
        frame.remove();
    }
    return found;
}"""

LIVE = """faults => [...document.querySelectorAll('.icl-chart')].flatMap(figure =>
    eval(faults)(figure.querySelector('.icl-chart__view svg')).map(
        fault => `${innerWidth} wide, ${figure.querySelector('img').alt.slice(0, 60)}: ${fault}`))"""

DRAWN_ANEW = """() => [...document.querySelectorAll('.icl-chart__view')].every(view =>
    view.querySelector('svg').getAttribute('width') < 390)"""


@pytest.mark.parametrize("name", PAGES)
def test_every_text_of_every_figure_can_be_read(visit, name):
    """In each picture and each live chart, on a screen and on a phone, no text is past the edge, no label of a legend
    is cut or reaches the next symbol, and a tick at the end of an axis has its label.
    """
    watched = visit(name)
    watched.read_through()
    found = watched.page.evaluate(STATIC, FAULTS) + watched.page.evaluate(LIVE, FAULTS)
    watched.page.set_viewport_size({"width": 390, "height": 900})
    watched.page.wait_for_function(DRAWN_ANEW, polling=100)
    found += watched.page.evaluate(LIVE, FAULTS)
    assert found == []
