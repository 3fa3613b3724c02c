"""A report of one page: who is how far from what is possible, how sure that is, and what was done to find it.

Longer than most files, as it holds the page's style too. The page needs nothing but itself, and no network: pictures
are drawn into it, it follows the reader's light or dark theme, and is read on a phone and on paper too. All that comes
from outside, names first of all, is text in it and never markup.
"""

import colorsys
import hashlib
import html
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from icl import _checks, _files
from icl.bench import results as tables
from icl.bench.results import ZERO, Results
from icl.page import charts
from icl.page.charts import Figure

_FLOOR_COLOUR = "#8a5a00"
_GROUP_COLOURS = {"trained on": "#0b6fb8", "shifted": "#c9711a", "longer": "#7a5bb5"}
_COLOURS = ("#0b6fb8", "#c9711a", "#2a8a4a", "#b0357f", "#7a5bb5", "#c0392b", "#6b8e00", "#643030")
_PLACES = {
    "trained on": "on {n} trained on",
    "shifted": "on {n} never trained on",
    "longer": "on prompts twice as long",
}
_HEADS = {
    "trained on": "tasks trained on",
    "shifted": "shifted tasks, never trained on",
    "longer": "prompts twice as long, of tasks trained on",
}
#: Most contestants that colours tell apart in one picture.
_FEW = 6


def page(results: Results, *, against: str | None = None) -> str:
    """The report as one self-contained page of HTML.

    Args:
        results: of one run, or of several `icl.bench.results.together`.
        against: name of a contestant that all others are compared with too, prompt by prompt.
    """
    _checks.instance("results", results, Results)
    overall = tables.overall(results)
    names = ranked(results)
    warnings = list(warned(results))
    title = names[0] if len(names) == 1 else f"{len(names)} contestants"
    count = f"{len(warnings)} warnings" if len(warnings) > 1 else "1 warning"
    body = _tag(
        "main",
        _tag("p", f"icl-bench, budget {results.meta['budget']['name']}", class_="kicker"),
        _tag("h1", f"How far from the best possible: {title}"),
        _tag("p", answer(results), class_="answer"),
        _tag("p", _tag("a", f"{count}, below", href="#warnings"), class_="note") if warnings else "",
        _across(overall, names),
        _by_task(results, names),
        _against(results, names, against) if against is not None else "",
        _sweep(results),
        _cost(results, names),
        _budget(results),
        _reading(overall),
        _warnings(warnings),
        _provenance(results),
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    head = _tag(
        "head",
        _Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        _Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        _tag("title", f"icl-bench: {', '.join(names[:3])}"),
        _Html(f"<style>{_STYLE}{_palette()}</style>"),
    )
    script = _Html(f"<script>{_SCRIPT}</script>")
    return f"<!doctype html>\n{_tag('html', head, _tag('body', _Html(_SWITCH), body, script), lang='en')}\n"


def write_report(path: Path, results: Results, *, against: str | None = None) -> None:
    """Write the report, whole or not at all.

    Args:
        path: of the file.
        results: of one run, or of several `icl.bench.results.together`.
        against: see `page`.
    """
    _checks.instance("path", path, Path)
    _files.write(path, page(results, against=against).encode())


def ranked(results: Results) -> list[str]:
    """Contestants, the least error first, as over the tasks trained on or else over what there is; `ZERO` left out."""
    overall = tables.overall(results)
    first = overall[overall["contestant"] != ZERO].groupby("contestant", sort=False)["ratio"].first()
    rated = list(first.fillna(math.inf).sort_values(kind="stable").index)
    return rated + [name for name in results.contestants if name not in (*rated, ZERO)]


def answer(results: Results) -> str:
    """What was found, in a sentence or two without markup: the best contestant on each group of tests, then others."""
    overall = tables.overall(results)
    names = [name for name in ranked(results) if name in set(overall["contestant"])]
    if not names:
        return "No contestant has results that can be compared with a floor."
    found = []
    for _, row in _of(overall, names[0]).iterrows():
        place = _PLACES[row["group"]].format(n="the one task" if row["tasks"] == 1 else f"{row['tasks']} tasks")
        if math.isinf(row["ratio"]):
            found.append(f"beyond all numbers, as a training diverged, {place}")
        else:
            of = "" if any("times" in part for part in found) else f" {_measure(row['reference'])}"
            found.append(f"{plain(row['ratio'], row['ratio_se'])} times{of} {place}")
    sentence = f"{names[0]} errs {_listed(found)}."
    if len(names) > 1:
        rest = [_of(overall, name).iloc[0] for name in names[1:]]
        told = [f"{row['contestant']} at {plain(row['ratio'], row['ratio_se'])}" for row in rest]
        if len(told) > 4:
            told = [*told[:3], f"last of {len(names)} {told[-1]}"]
        sentence += f" Next come {_listed(told)}." if len(told) > 1 else f" Next comes {told[0]}."
    return sentence


def warned(results: Results) -> Iterable[str]:
    """What to know before believing a number, a sentence each."""
    summary = tables.summary(results)
    for name, told in results.meta["contestants"].items():
        for warning in told.get("warnings", []):
            yield f"{name}: {warning}"
    for name, rows in summary[summary["contestant"] != ZERO].groupby("contestant", sort=False):
        broken = int((~rows["risk"].map(math.isfinite)).sum())
        if broken:
            yield f"{name}: a training diverged, so its error is not finite on {broken} of {len(rows)} tests"
        for _, row in rows.iterrows():
            if row["reference"] in ("Bayes", "genie") and row["ratio"] + 4 * row["ratio_se"] < 1:
                yield (
                    f"{name}: on {row['task']} it errs {plain(row['ratio'], row['ratio_se'])} times the least error "
                    f"that is possible, which cannot be; does it see labels that it should not?"
                )
        if (rows["trained_on"] != "").any() and rows["seeds"].max() == 1:
            yield f"{name}: one seed only; standard errors leave out what another training would change"
    for name in dict.fromkeys(summary.loc[summary["reference"] == ZERO, "task"]):
        yield f"{name}: no floor is known, so its numbers are multiples of the error of answering 0"


def plain(value: float, error: float) -> str:
    """A number and its standard error to the digits that it bears: 1.43 ± 0.02; inf is "diverged", NaN a dash."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "diverged"
    if math.isnan(error) or error <= 0:
        return f"{value:.2f}"
    places = min(max(-math.floor(math.log10(error)), 1), 3)
    return f"{value:.{places}f} ± {error:.{places}f}"


# Sections of the page, in its order.


def _across(overall: pd.DataFrame, names: Sequence[str]) -> str:
    """Every contestant over all tasks."""
    rows = _drawable(overall[overall["contestant"].isin(names)])
    if rows.empty:
        return _Html("")
    rows = rows.assign(label=_labels(rows))
    for end in ("low", "high"):
        usable = (rows["group"] == "trained on") & rows[end].map(lambda value: 0 < value < math.inf)
        rows[end] = rows[end].where(usable, rows["ratio"])
    order = {name: place for place, name in enumerate(names)}
    rows = rows.sort_values("contestant", key=lambda column: column.map(order), kind="stable")
    first = rows.iloc[0]
    of, times = _measure(first["reference"]), plain(first["ratio"], first["ratio_se"])
    title = f"{first['label']} {'comes closest' if len(names) > 1 else 'over all tasks'}: {times} times {of}"
    points = [f"{row['label']} {plain(row['ratio'], row['ratio_se'])} ({row['group']})" for _, row in rows.iterrows()]
    figure = charts.dots(
        rows,
        x="ratio",
        y="label",
        by="group",
        x_title=f"error, in multiples of {of}",
        title=title,
        alt=f"Dots, a row for each contestant, error in multiples of {of}: {_listed(points)}.",
        floors={of: 1.0},
        colours={**_GROUP_COLOURS, of: _FLOOR_COLOUR},
        log_x=True,
    )
    note = "Dots are geometric means over tasks; a bar reaches from the least to the greatest task trained on."
    return _figure(figure, title, note)


def _by_task(results: Results, names: Sequence[str]) -> str:
    """Dots for each task where contestants are few, and the table of all."""
    table = tables.by_task(results)
    titles = {name: str(task["title"]) for name, task in results.meta["tasks"].items()}
    drawn = _drawable(table[table["contestant"].isin(names) & (table["variant"] == "same")])
    picture: str = _Html("")
    if len(names) <= _FEW and not drawn.empty:
        rows = [titles.get(task, task) for task in drawn["task"]]
        rows = [
            f"{row}, shifted" if group == "shifted" else row for row, group in zip(rows, drawn["group"], strict=True)
        ]
        drawn = drawn.assign(
            label=_labels(drawn),
            row=rows,
            low=(drawn["ratio"] - drawn["ratio_se"].fillna(0)).clip(lower=drawn["ratio"] / 2),
            high=drawn["ratio"] + drawn["ratio_se"].fillna(0),
        )
        worst, best = drawn.loc[drawn["ratio"].idxmax()], drawn.loc[drawn["ratio"].idxmin()]
        title = f"Furthest from the floor: {worst['label']} on {worst['row']}"
        told = [f"{row['label']} on {row['row']}, {plain(row['ratio'], row['ratio_se'])}" for row in (best, worst)]
        labels = list(dict.fromkeys(drawn["label"]))
        figure = charts.dots(
            drawn,
            x="ratio",
            y="row",
            by="label",
            x_title="error, in multiples of the floor",
            title=title,
            alt=f"Dots, a row for each task. The least is {told[0]}, the greatest {told[1]}. The table has all of them.",
            floors={"the floor": 1.0},
            colours={label: _COLOURS[place % len(_COLOURS)] for place, label in enumerate(labels)}
            | {"the floor": _FLOOR_COLOUR},
            log_x=True,
        )
        picture = _figure(figure, title, "Prompts as long as in training; bars are one standard error to each side.")
    shown = [*names, *([ZERO] if ZERO in set(table["contestant"]) else [])]
    return _section("tasks", "Task by task", picture, _heat(results, table, shown, titles))


def _heat(results: Results, table: pd.DataFrame, names: Sequence[str], titles: dict[str, str]) -> str:
    """Multiples of the floor: a row for each test, a column for each contestant, darker where they are greater."""
    columns = [
        (name, trained_on)
        for name in names
        for trained_on in dict.fromkeys(table.loc[table["contestant"] == name, "trained_on"])
    ]
    several = {name for name, _ in columns if sum(name == other for other, _ in columns) > 1}
    cells = {
        (row["contestant"], row["trained_on"], row["group"], row["task"]): (row["ratio"], row["ratio_se"])
        for _, row in table.iterrows()
    }
    least = tables.least(results)
    floors = {(f["task"], f["variant"]): f for _, f in least[least["is_reference"]].iterrows()}
    head = [_tag("th", "task", scope="col"), _tag("th", "floor, its error", scope="col")]
    head += [_tag("th", f"{n}, {t}" if n in several else n, scope="col", title=f"trained on {t}") for n, t in columns]
    bodies = []
    for group, heading in _HEADS.items():
        tests = table.loc[table["group"] == group, ["task", "variant"]].drop_duplicates()
        lines = []
        for task, variant in tests.itertuples(index=False, name=None):
            floor = floors.get((task, variant))
            known = "none known" if floor is None else f"{floor['floor']} {floor['risk']:.3g}"
            line = [_tag("th", titles.get(task, task), scope="row"), _tag("td", known)]
            for column in columns:
                value, error = cells.get((*column, group, task), (math.nan, math.nan))
                shade = min(max(math.log(value) / math.log(8), 0), 1) if 0 < value < math.inf else float(value > 0)
                # Never so dark that the number is hard to read.
                line.append(_tag("td", plain(value, error), style=f"--heat:{42 * shade:.0f}%", class_="heat"))
            lines.append(_tag("tr", *line))
        if lines:
            across = _tag("th", heading, scope="rowgroup", colspan=str(len(head)))
            bodies.append(_tag("tbody", _tag("tr", across, class_="group"), *lines))
    caption = "Error in multiples of the floor, ± one standard error. Darker is further from the floor."
    return _scroll(_tag("table", _tag("caption", caption), _tag("thead", _tag("tr", *head)), *bodies), caption)


def _against(results: Results, names: Sequence[str], against: str) -> str:
    """All others over one of them, prompt by prompt."""
    table = tables.overall(results, against=against)
    rows = []
    for name in [name for name in names if name != against]:
        for _, row in _of(table, name).iterrows():
            one, error = row["ratio"], row["ratio_se"]
            apart = (
                "less error" if one + 2 * error < 1 else "more error" if one - 2 * error > 1 else "no clear difference"
            )
            rows.append((name, row["group"], str(row["tasks"]), plain(one, error), apart))
    heads = ("contestant", "tests", "tasks", f"times the error of {against}", "which is")
    text = (
        f"Errors on the same prompts are divided, so that what makes a prompt hard for both does not count. Less than 1 "
        f"is less error than {against}; a difference under two standard errors is called no clear difference."
    )
    return _section("against", f"Compared with {against}", _tag("p", text), _table(heads, rows, f"Over {against}"))


def _sweep(results: Results) -> str:
    """Error along the learning rates tried, and whether the best one lies at an edge."""
    tried = {
        (name, trained_on): {float(rate): _number(loss) for rate, loss in rates.items()}
        for name, told in results.meta["contestants"].items()
        for trained_on, rates in told.get("rates", {}).items()
        if rates
    }
    if not tried:
        return _Html("")
    rates = sorted({rate for each in tried.values() for rate in each})
    rows, edges = [], []
    several = len({trained_on for _, trained_on in tried}) > 1
    for (name, trained_on), losses in tried.items():
        best = min(losses, key=lambda rate: losses[rate])
        edge = len(losses) > 1 and best in (min(losses), max(losses))
        who = f"{name}, trained on {trained_on}" if several else name
        edges += [f"{who} ({best:g})"] if edge else []
        cells = ["–" if r not in losses else "diverged" if math.isinf(losses[r]) else f"{losses[r]:.3g}" for r in rates]
        cells = [f"{cell} *" if rate == best else cell for rate, cell in zip(rates, cells, strict=True)]
        rows.append((who, *cells))
    parts = []
    points = pd.DataFrame(
        [(key[0], rate, loss) for key, each in tried.items() for rate, loss in each.items() if 0 < loss < math.inf],
        columns=["contestant", "rate", "loss"],
    )
    if not several and len(tried) <= _FEW and points["rate"].nunique() > 1:
        names = list(dict.fromkeys(points["contestant"]))
        stars = points.loc[points.groupby("contestant", sort=False)["loss"].idxmin()]
        low = stars.loc[stars["loss"].idxmin()]
        best_rates = [f"{star['contestant']} at {star['rate']:g}" for _, star in stars.iterrows()]
        title = f"Least on the choosing prompts: {low['contestant']} at rate {low['rate']:g}"
        figure = charts.lines(
            points,
            x="rate",
            y="loss",
            by="contestant",
            x_title="learning rate",
            y_title="mean squared error",
            title=title,
            alt=f"Lines of mean squared error by learning rate, stars at the best: {_listed(best_rates)}.",
            stars=stars,
            colours={name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(names)},
            log_x=True,
            log_y=True,
            labels="legend",
            height=240,
        )
        parts.append(_figure(figure, title, "Seed 0 at each rate, on prompts that nobody is tested on."))
    caption = "Mean squared error of seed 0 at each learning rate; * is the rate that was chosen."
    parts.append(_table(("contestant", *(f"{rate:g}" for rate in rates)), rows, caption))
    if edges:
        shown = edges if len(edges) <= 8 else [*edges[:8], f"{len(edges) - 8} more"]
        text = (
            f"The best rate is at an edge of what was tried for {_listed(shown)}. A rate beyond the edge may be better "
            f"still, so that the numbers above may say too little for it."
        )
        parts.append(_tag("p", _tag("strong", "At the edge. "), text, class_="warning"))
    return _section("rates", "Learning rates", *parts)


def _cost(results: Results, names: Sequence[str]) -> str:
    rows = []
    for name in names:
        told = results.meta["contestants"].get(name)
        if told is None:
            continue
        state = _count(told.get("state_bytes"))
        if told.get("state_grows"):
            state = "grows with the prompt" if told.get("state_bytes") is None else f"{state}, and grows"
        rows.append(
            (
                name,
                str(told.get("kind", "")),
                _count(told.get("parameters")),
                _count(told.get("flops")),
                state,
                _decimal(told.get("us_per_token")),
                _decimal(told.get("seconds")),
            )
        )
    heads = ("contestant", "kind", "parameters", "FLOPs a token", "state, bytes", "µs a token", "training, s")
    caption = "What each costs: forward pass a token on one thread; training is the sum of all its trainings."
    return _section("cost", "What each costs", _table(heads, rows, caption)) if rows else _Html("")


def _budget(results: Results) -> str:
    b = results.meta["budget"]
    rates = _listed([f"{rate:g}" for rate in b["rates"]])
    own = [name for name, task in results.meta["tasks"].items() if not task["shifted"]]
    how = {"all": f"on {len(own)} tasks at once", "each": "on each task by itself"}
    train = str(results.meta.get("train", "all"))
    sentences = (
        f"Each contestant was trained {how.get(train, f'on {train}')}: {b['steps']:,} steps of at least {b['batch']} "
        f"prompts, of {b['n']} examples in {b['d']} dimensions, at width {b['width']} and depth {b['depth']}.",
        f"The learning rate was chosen among {rates} with the first seed, on {b['choosing']} prompts of their own; "
        f"then it was trained with {b['seeds']} seeds at that rate, the first included."
        if b["seeds"] > 1
        else f"The learning rate was chosen among {rates}, on {b['choosing']} prompts of their own; there is one seed.",
        f"Each was tested on the same {b['prompts']} prompts a task, and on prompts twice as long. An error is that of "
        f"the answer against the label without noise, squared, averaged over the last {b['last']} positions.",
    )
    listed = [
        (name, str(task["title"]), "only tested" if task["shifted"] else "trained on", str(task["about"]))
        for name, task in results.meta["tasks"].items()
    ]
    table = _table(("name", "task", "", "what it is"), listed, "The tasks", words=True)
    return _section(
        "budget", "What was trained, and how", *(_tag("p", s) for s in sentences), _fold("The tasks", table)
    )


def _reading(overall: pd.DataFrame) -> str:
    zero = _of(overall, ZERO)
    level = f" Answering 0 to everything errs {zero.iloc[0]['ratio']:.1f} times the floor here." if len(zero) else ""
    sentences = (
        "1 is the floor: the least expected error of anybody who knows how the task's weights move. Where that is not "
        "known exactly, it is the least error of a predictor that is linear in the labels.",
        f"A number of 1.4 is an error 40% above the floor; the nearer to 1, the better.{level}",
        "After ± stands one standard error: of the test prompts, and of the seeds where there are several. Two numbers "
        "less than two standard errors apart are not to be called different without comparing them prompt by prompt.",
        "Shifted tasks and longer prompts show whether a contestant learnt to adapt or learnt the tasks by heart: "
        "then its numbers there are far greater.",
        "All had the same budget. A contestant that is last here may be first with another width, rate or more steps.",
    )
    return _section("reading", "How to read it", _tag("ol", *(_tag("li", sentence) for sentence in sentences)))


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return _section("warnings", "Warnings", _tag("p", "None."))
    return _section(
        "warnings", "Warnings", _tag("ul", *(_tag("li", warning) for warning in warnings), class_="warning")
    )


def _provenance(results: Results) -> str:
    meta = results.meta
    rows = [("library, hash of its code", meta.get("library", "")), ("device", meta.get("device", ""))]
    rows += list(meta.get("versions", {}).items())
    versions = _table(("", "version"), [(name, str(each)) for name, each in rows], "Made with", words=True)
    told = [
        (name, str(each.get("spec", "")), str(each.get("source", ""))[:16], str(each.get("about", "")))
        for name, each in meta["contestants"].items()
    ]
    who = _table(("contestant", "asked for as", "hash of source", "what it is"), told, "Contestants", words=True)
    prompts = [
        (name, variant, str(each))
        for name, task in meta["tasks"].items()
        for variant, each in task.get("prompts", {}).items()
    ]
    tests = _table(("task", "prompts", "hash"), prompts, "Test prompts", words=True)
    return _section("provenance", "Where it comes from", versions, who, _fold("Test prompts", tests))


# Words and numbers.


def _of(overall: pd.DataFrame, name: str) -> pd.DataFrame:
    return overall[overall["contestant"] == name]


def _drawable(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["ratio"].map(lambda value: 0 < value < math.inf)].copy()


def _labels(rows: pd.DataFrame) -> list[str]:
    """Names, with what they were trained on where one contestant was trained in several ways."""
    ways = rows.groupby("contestant")["trained_on"].nunique()
    pairs = zip(rows["contestant"], rows["trained_on"], strict=True)
    return [f"{name}, trained on {way}" if ways[name] > 1 else name for name, way in pairs]


def _measure(reference: str) -> str:
    return {"floor": "the floor", ZERO: "the error of answering 0"}.get(reference, f"the error of {reference}")


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _count(value: Any) -> str:
    return "not known" if value is None else f"{value:,.0f}"


def _decimal(value: Any) -> str:
    return "not known" if value is None or not math.isfinite(value) else f"{value:,.1f}"


def _number(value: Any) -> float:
    return math.inf if value is None or math.isnan(value) else float(value)


# Markup.


class _Html(str):
    """What is markup already; all other text is escaped when it is put into a page."""

    __slots__ = ()


def _tag(name: str, *inside: str, **attributes: str) -> _Html:
    told = "".join(f' {key.rstrip("_").replace("_", "-")}="{html.escape(each)}"' for key, each in attributes.items())
    within = "".join(part if isinstance(part, _Html) else html.escape(part) for part in inside)
    return _Html(f"<{name}{told}>{within}</{name}>")


def _section(place: str, heading: str, *inside: str) -> _Html:
    return _tag("section", _tag("h2", heading), *inside, id=place)


def _scroll(table: _Html, label: str) -> _Html:
    """A table that is wider than a phone moves within itself; the keyboard reaches it."""
    return _tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str, *, words: bool = False) -> _Html:
    head = _tag("thead", _tag("tr", *(_tag("th", each, scope="col") if each else _tag("td") for each in heads)))
    lines = (_tag("tr", _tag("th", row[0], scope="row"), *(_tag("td", cell) for cell in row[1:])) for row in rows)
    table = _tag("table", _tag("caption", caption), head, _tag("tbody", *lines), class_="words" if words else "numbers")
    return _scroll(table, caption)


def _fold(summary: str, inside: _Html) -> _Html:
    return _tag("details", _tag("summary", summary), inside)


_TOLD = re.compile(r' (?:role|aria-[a-z]+|pointer-events|font-family)="[^"]*"| opacity="1"')
_EMPTY = re.compile(r'<path class="(?:background|foreground)"[^>]*/>|<rect [^>]*fill="white"/>')
_PAINT = re.compile(r'(fill|stroke)="(#[0-9a-fA-F]{3,6}|black|gr[ae]y)"')


def _figure(figure: Figure, title: str, note: str) -> _Html:
    """A picture with its title above it, drawn for wide pages and for phones, in colours that follow the theme."""
    drawn = []
    for place, most in (("wide", 760), ("narrow", 370)):
        spec = figure.spec
        # The page writes the title itself: in a picture it would not wrap.
        spec.pop("title", None)
        if place == "narrow":
            spec["config"]["legend"]["columns"] = 1
            for layer in spec["layer"]:
                axis = layer.get("encoding", {}).get("y", {}).get("axis")
                if axis and "labelLimit" in axis:
                    axis["labelLimit"] = 150
        beside = _width(figure.svg(380)) - 300
        svg = figure.svg(max(most - beside, 150) + 80)
        svg = _EMPTY.sub("", _TOLD.sub("", svg))
        svg = _PAINT.sub(lambda m: f'style="{m[1]}:var(--{_paint(m[2])})"', svg)
        # A second style of one element would be dropped: they are written as one.
        svg = re.sub(r'style="([^"]*)"([^>]*?) style="([^"]*)"', r'style="\1;\3"\2', svg)
        # Pictures of one page must not share the names of their parts.
        key = f"{place}-{hashlib.sha256(svg.encode()).hexdigest()[:8]}"
        svg = re.sub(r'(id="|url\(#)', lambda m: f"{m[1]}{key}-", svg)
        alt = html.escape(figure.alt)
        svg = svg.replace("<svg ", f'<svg role="img" aria-label="{alt}" ', 1)
        drawn.append(_tag("div", _Html(svg), class_=f"picture {place}"))
    return _tag("figure", _tag("figcaption", _tag("strong", title), " ", _tag("span", note)), *drawn)


def _width(svg: str) -> int:
    return math.ceil(float(re.findall(r'width="([\d.]+)"', svg)[0]))


#: What pictures are painted with, on a light page and on a dark one; other colours keep their hue.
_NAMED = {
    "#000": ("text", "#222832", "#ced6dd"),
    "black": ("text", "#222832", "#ced6dd"),
    "#ddd": ("line", "#dcdfe4", "#3a4048"),
    "#888": ("muted", "#48566b", "#9ca4af"),
}


def _paint(colour: str) -> str:
    return _NAMED[colour][0] if colour in _NAMED else f"paint-{colour.lstrip('#')}"


def _turned(colour: str) -> str:
    """A colour as it is on a dark page: of the same hue, its lightness turned over, as the book's pages do."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, light, full = colorsys.rgb_to_hls(red, green, blue)
    again = colorsys.hls_to_rgb(hue, 0.95 - 0.8 * light, 0.9 * full)
    return "#" + "".join(f"{round(255 * part):02x}" for part in again)


def _palette() -> str:
    """The pictures' colours as variables of the page."""
    known = dict.fromkeys([_FLOOR_COLOUR, *_GROUP_COLOURS.values(), *_COLOURS])
    light = "".join(f"--{_paint(colour)}:{colour};" for colour in known)
    dark = "".join(f"--{_paint(colour)}:{_turned(colour)};" for colour in known)
    return (
        f":root{{{light}}}:root[data-theme=dark]{{{dark}}}"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
    )


_LIGHT = (
    "--text:#222832;--muted:#48566b;--back:#fff;--soft:#f4f6f8;--line:#dcdfe4;--accent:#0b5f9e;--warm:#c9711a;"
    "--notice:#b8860b;color-scheme:light;"
)
_DARK = (
    "--text:#ced6dd;--muted:#9ca4af;--back:#14181e;--soft:#1d2126;--line:#3a4048;--accent:#7cbcf0;--warm:#d9822b;"
    "--notice:#d4a72c;color-scheme:dark;"
)
_STYLE = (
    f"""
:root{{{_LIGHT}}}:root[data-theme=dark]{{{_DARK}}}
@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{_DARK}}}}}
"""
    + """
*{box-sizing:border-box}
html{background:var(--back);color:var(--text);font:16px/1.6 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}
body{margin:0}
main{max-width:54rem;margin:0 auto;padding:1.2rem 1.2rem 4rem}
h1{font-size:1.9rem;line-height:1.2;font-weight:650;letter-spacing:-.01em;margin:.2rem 3rem 1rem 0;overflow-wrap:anywhere}
h2{font-size:1.35rem;font-weight:600;margin:2.6rem 0 .7rem;padding-top:1rem;border-top:1px solid var(--line)}
p{margin:.5rem 0 .9rem;max-width:46rem}
a{color:var(--accent);text-underline-offset:.18em}
.kicker,.note{color:var(--muted);font-size:.92rem;margin:.3rem 0}
.answer{font-size:1.12rem;border-left:3px solid var(--accent);background:var(--soft);padding:.8rem 1.1rem;overflow-wrap:anywhere}
figure{margin:1.4rem 0 1.6rem}
figcaption{margin-bottom:.5rem;overflow-wrap:anywhere}
figcaption strong{display:block;font-weight:600}
figcaption span{color:var(--muted);font-size:.9rem}
.picture svg{display:block;max-width:100%;height:auto;overflow:visible}
.picture text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}
.narrow{display:none}
.scroll{overflow-x:auto;margin:.6rem 0 1.2rem}
.scroll:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--muted);padding-bottom:.4rem;caption-side:top}
th,td{padding:.28rem .7rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap;vertical-align:baseline}
thead th{font-weight:600;vertical-align:bottom}
th:first-child{text-align:left;font-weight:500;position:sticky;left:0;background:var(--back)}
thead th:first-child{font-weight:600}
.words td{text-align:left;white-space:normal;overflow-wrap:anywhere}
.words th{text-align:left}
tr.group th{padding-top:.9rem;color:var(--muted);font-weight:600}
.heat{background:color-mix(in srgb,var(--warm) var(--heat),transparent)}
.warning{border-left:3px solid var(--notice);background:var(--soft);padding:.6rem 1rem}
ul.warning{padding-left:2rem}
li{margin:.35rem 0;overflow-wrap:anywhere}
summary{color:var(--accent);cursor:pointer;padding:.3rem 0}
.switch{position:absolute;top:1rem;right:1rem;min-width:2.6rem;min-height:2.6rem;border:1px solid var(--line);border-radius:.4rem;background:var(--soft);color:var(--text);font:inherit;font-size:.85rem;padding:.3rem .7rem;cursor:pointer}
@media (max-width:640px){
main{padding:1rem .9rem 3rem}h1{font-size:1.5rem;margin-right:5rem}.wide{display:none}.narrow{display:block}
th:first-child{max-width:9.5rem;white-space:normal}
}
@media print{.switch{display:none}.scroll{overflow:visible}section{break-inside:auto}figure{break-inside:avoid}}
"""
)
_SWITCH = '<button class="switch" type="button" hidden>Dark</button>'
_SCRIPT = """
(() => {
  const root = document.documentElement, button = document.querySelector(".switch");
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const show = () => { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-label", `${button.textContent} theme`); };
  button.hidden = false;
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; show(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
})();
"""
