"""The report: what it says is what was measured, all of it is text, it needs nothing but itself."""

import html.parser
import math
import re

import pytest

from icl_bench import report
from icl_bench import results as tables
from icl_bench.results import ZERO, BenchResults

EVIL = '<script>alert("x")</script><img src="http://x.y/z" onerror=alert(1)> & role="b"'


class Reader(html.parser.HTMLParser):
    """What a browser makes of a page: its elements, closed in order, and its text."""

    VOID = ("meta", "br", "img", "link", "input")

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self._open = [], [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if not self._open or self._open[-1] not in ("script", "style"):
            self.text.append(data)

    def all(self, name):
        return [attrs for tag, attrs in self.elements if tag == name]

    @property
    def words(self):
        return " ".join(" ".join(self.text).replace("\N{NO-BREAK SPACE}", " ").split())


@pytest.fixture(scope="module")
def pages():
    """Pages by what they are of: drawing them takes a while."""
    return {}


@pytest.fixture
def read(pages, made_up):
    """The page of some results, read."""

    def of(name, results, **settings):
        if name not in pages:
            text = report.page(results, **settings)
            pages[name] = text, Reader(text)
        return pages[name]

    return of


def test_it_says_what_was_measured(read, made_up):
    """The first sentence has the three means of the best, and every number of the table by task is in the table."""
    results = made_up()
    _, page = read("two", results, against="softmax")
    means = tables.aggregate(results).set_index(["contestant", "group"])
    told = [report.plain(*means.loc[("gla", group), ["ratio", "ratio_se"]]) for group in tables.GROUPS]
    assert report.answer(results) == (
        f"gla errs {told[0]} times the floor on 2 tasks trained on, {told[1]} times on the one task never trained on "
        f"and {told[2]} times on prompts twice as long. Next comes softmax at "
        f"{report.plain(*means.loc[('softmax', 'trained on'), ['ratio', 'ratio_se']])}."
    )
    assert report.answer(results) in page.words
    for _, row in tables.per_task(results).iterrows():
        assert report.plain(row["ratio"], row["ratio_se"]) in page.words
    for _, row in tables.aggregate(results, against="softmax").iterrows():
        if row["contestant"] == "gla":
            assert report.plain(row["ratio"], row["ratio_se"]) in page.words
    for word in ("grows with the prompt", "2,048, and grows"):
        assert word in page.words
    for word in ("17,000", "34,000", "123.4", "0123456789abcdef", "2.7.0", "width 32", "AR(1), γ = .9"):
        assert word in page.words


def test_it_needs_nothing_but_itself(read, made_up):
    """No address of anything to load, no picture and script from elsewhere, and a policy that forbids them."""
    text, page = read("two", made_up(), against="softmax")
    assert {tag for tag, _ in page.elements} & {"link", "img", "iframe", "object", "base", "form"} == set()
    assert all("src" not in attrs for _, attrs in page.elements)
    assert [a["href"] for a in page.all("a")] == []
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|url\((?!#|data:font/ttf)", text)
    policy = page.all("meta")[2]["content"]
    assert policy.startswith("default-src 'none'")
    assert len(text) < 200_000


def test_it_can_be_read_by_everybody(read, made_up):
    """Language, one h1, headings that skip no level, heads of tables with scope, pictures with descriptions."""
    text, page = read("two", made_up(), against="softmax")
    assert page.all("html") == [{"lang": "en"}]
    headings = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert headings[0] == 1
    assert set(headings[1:]) == {2}
    assert all("scope" in cell for cell in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))
    pictures = page.all("svg")
    assert len(pictures) == 6  # three, for wide pages and for phones
    assert all(len(svg["aria-label"].split()) > 8 and svg["role"] == "img" for svg in pictures)
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    for used in re.findall(r"url\(#([^)]+)\)", text):
        assert used in ids


def test_its_colours_follow_the_theme(read, made_up):
    """Every colour of a picture is a variable that the style sets for light and for dark."""
    text, page = read("two", made_up(), against="softmax")
    style = re.search(r"<style>(.*?)</style>", text, re.S)[1]
    light, dark = (
        re.search(rf"{re.escape(start)}{{(.*?)}}", style)[1] for start in (":root", ":root[data-theme=dark]")
    )
    used = set(re.findall(r"var\((--[\w-]+)\)", text))
    for names in (light, dark):
        assert used <= set(re.findall(r"(--[\w-]+):", names)) | {"--heat"}
    assert {a.get("fill", "none") for t, a in page.elements if t in ("path", "text", "rect")} <= {"none"}
    assert {a.get("stroke", "none") for t, a in page.elements if t in ("path", "line")} <= {"none", "transparent"}

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one, other):
        high, low = sorted((luminance(one), luminance(other)), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for names in (light, dark):
        known = dict(re.findall(r"(--[\w-]+):(#\w+)", names))
        known = {name: c if len(c) == 7 else "#" + "".join(2 * x for x in c[1:]) for name, c in known.items()}
        for name in ("--text", "--muted", "--accent"):
            assert contrast(known[name], known["--back"]) > 4.5
            assert contrast(known[name], known["--soft"]) > 4.5
        for name, colour in known.items():
            if name.startswith("--paint"):
                assert contrast(colour, known["--back"]) > 3
        # Numbers on the darkest tile.
        tile = [
            0.42 * int(known["--warm"][i : i + 2], 16) + 0.58 * int(known["--back"][i : i + 2], 16) for i in (1, 3, 5)
        ]
        assert contrast(known["--text"], "#" + "".join(f"{round(part):02x}" for part in tile)) > 4.5


def test_names_are_text_wherever_they_stand(read, made_up):
    """A contestant, a task, its title, a warning and a device that are markup: shown letter for letter, and inert."""
    results = made_up((EVIL, "softmax"), warnings=(EVIL,), device=EVIL)
    results.meta["tasks"]["switches"] |= {"title": EVIL, "about": EVIL}
    results.meta["contestants"][EVIL] |= {"about": EVIL, "spec": EVIL}
    _, page = read("evil", results, against=EVIL)
    assert len(page.all("script")) == 1
    assert not page.all("img")
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert page.text.count(EVIL) >= 8
    # In pictures too, where what screens do not show is left out of tags but not of names.
    assert len([part for part in page.text if part == EVIL]) >= 8


def test_many_contestants_are_one_page_below_a_megabyte(made_up):
    """25 contestants on 22 tasks: no picture of 25 colours, all numbers in the table."""
    tasks = {
        f"t{i}": (f"AR(1), γ = .{i}, noise", i > 16, "Bayes" if i % 2 else "best linear", 0.1 + i / 40)
        for i in range(22)
    }
    names = [f"layer-{i:02d}" for i in range(25)]
    results = made_up(names, worse=[1.2 + 0.1 * i for i in range(25)], tasks=tasks, seeds=1, prompts=3)
    text = report.page(results)
    page = Reader(text)
    assert len(text) < 1_000_000
    assert len(page.all("svg")) == 2
    assert len([a for a in page.all("td") if a.get("class") == "heat"]) == 26 * (17 + 5 + 17)
    order = report.ranked(results)
    assert f"Next come {order[1]} at" in page.words
    assert f"and last of 25 {order[-1]} at" in page.words


@pytest.mark.usefixtures("undrawn")
def test_a_rate_at_the_edge_is_pointed_at(made_up):
    """Only where it is one; a sweep of one rate has no edge."""
    results = made_up()
    assert "At the edge." not in Reader(report.page(results)).words
    results.meta["contestants"]["softmax"]["rates"]["all"]["0.016"] = 0.1
    results.meta["contestants"]["gla"]["rates"]["all"] = {"0.004": 0.5}
    words = Reader(report.page(results)).words
    assert "The best rate is at an edge of what was tried for softmax (0.016)." in words
    assert "gla (" not in words[words.index("At the edge.") :].partition("What each costs")[0]


def test_warnings_say_what_to_know_before_believing(made_up):
    """What runs warn of; divergence; errors below what is possible; one seed; tasks without a floor."""
    assert list(report.caveats(made_up())) == []
    assert next(iter(report.caveats(made_up(warnings=("its gradient is large",))))) == "gla: its gradient is large"
    low = list(report.caveats(made_up(worse=(0.5, 2.0), prompts=400)))
    assert len(low) == 3  # below Bayes, not below the best linear predictor, where that is possible
    assert "which cannot be" in low[0]
    one = list(report.caveats(made_up(seeds=1)))
    assert one == [
        f"{name}: one seed only; standard errors leave out what another training would change"
        for name in ("gla", "softmax")
    ]
    bare = made_up(tasks={"own.py:Task": ("own", False, "", 0.3)})
    assert list(report.caveats(bare)) == [
        "own.py:Task: no floor is known, so its numbers are multiples of the error of answering 0"
    ]
    assert "times the error of answering 0 on the one task trained on" in report.answer(bare)
    broken = made_up()
    place = broken.table.index[broken.table["contestant"] == "gla"][0]
    broken.table.at[place, "errors"] = [math.inf] * 40
    assert "gla: a training diverged, so its error is not finite on 1 of 5 tests" in list(report.caveats(broken))


def test_what_diverged_is_said_and_not_drawn(read, made_up):
    """The last of all; a page is made even where nothing is finite."""
    results = made_up(seeds=1)
    for place in results.table.index[results.table["kind"] == "layer"]:
        results.table.at[place, "errors"] = [math.inf] * 40
    for told in results.meta["contestants"].values():
        told["rates"]["all"] = dict.fromkeys(told["rates"]["all"], math.inf)
    _, page = read("diverged", results)
    assert "gla errs beyond all numbers, as a training diverged, on 2 tasks trained on" in page.words
    assert page.all("svg") == []
    assert "diverged" in page.words


def test_numbers_have_the_digits_that_their_errors_bear():
    """Between two and three behind the point for what is below 10."""
    cases = {
        (1.4321, 0.0213): "1.43 ± 0.02",
        (1.4321, 0.0043): "1.432 ± 0.004",
        (1.4321, 0.00001): "1.432 ± 0.000",
        (3.14159, 0.13): "3.14 ± 0.13",
        (25.31, 1.52): "25.3 ± 1.5",
        (1.5, 0.0): "1.50",
        (1.5, math.nan): "1.50",
        (math.inf, math.nan): "diverged",
        (math.nan, math.nan): "–",
    }
    assert {case: report.plain(*case) for case in cases} == cases


def test_it_is_written_whole(made_up, tmp_path):
    """As the page of the same name says, and nothing beside it."""
    results = BenchResults(
        made_up().table.query("contestant == @ZERO or kind == 'floor'"), made_up().meta | {"contestants": {}}
    )
    assert ZERO in set(results.table["contestant"])
    report.write_report(tmp_path / "report.html", results)
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == report.page(results)
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
