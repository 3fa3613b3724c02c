"""One-page HTML report: ranking against the floor, uncertainty, learning-rate sweep, cost, provenance.

The page is self-contained and needs no network: figures are inline SVG, it follows the reader's light or dark theme,
and it works on a phone and in print. All external text, names above all, is escaped.
"""

import math
import numbers
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from icl import _checks, _files
from icl._bounds import validated
from icl_bench import _markup as markup
from icl_bench import results as tables
from icl_bench._markup import Html
from icl_bench.results import ZERO, BenchResults
from icl_book import charts

_FLOOR_COLOUR = "#3b4a56"
_GROUP_COLOURS = {"trained on": "#0b6fb8", "shifted": "#c9711a", "longer": "#b0357f"}
_COLOURS = ("#0b6fb8", "#c9711a", "#2a8a4a", "#b0357f", "#7a5bb5", "#c0392b", "#6b8e00", "#664e08")
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
#: Plus or minus, with non-breaking spaces.
_TIED = "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"
#: Largest number of contestants that one figure tells apart by colour.
_FEW = 6


@validated
def page(results: BenchResults, *, against: str | None = None) -> str:
    """Render the report as one self-contained HTML page.

    Args:
        results: of one run, or of several :func:`~icl_bench.results.concat`.
        against: name of a contestant with which all others are compared too, prompt by prompt.
    """
    if against is not None and against not in results.contestants:
        raise ValueError(f"against must be one of {', '.join(results.contestants)}, got {against!r}")
    overall = tables.aggregate(results)
    names = _order(results, overall)
    warnings = list(caveats(results))
    title = names[0] if len(names) == 1 else f"{len(names)} contestants"
    count = f"{len(warnings)} warnings" if len(warnings) > 1 else "1 warning"
    body = "".join(
        (
            markup.tag("p", f"icl-bench, budget {results.meta['budget']['name']}", class_="kicker"),
            markup.tag("h1", f"How far from the best possible: {title}"),
            markup.tag("p", _answer(overall, names).replace(" ± ", _TIED), class_="answer"),
            markup.tag("p", markup.tag("a", f"{count}, below", href="#warnings"), class_="note") if warnings else "",
            _across(overall, names),
            _by_task(results, names),
            _paired_section(results, names, against) if against is not None else "",
            _sweep(results),
            _cost(results, names),
            _budget(results),
            _reading_guide(overall),
            _warnings(warnings),
            _provenance(results),
        )
    )
    paints = (_FLOOR_COLOUR, *_GROUP_COLOURS.values(), *_COLOURS)
    return markup.document(f"icl-bench: {', '.join(names[:3])}", Html(body), paints)


@validated
def write_report(path: Path, results: BenchResults, *, against: str | None = None) -> None:
    """Write the report to a file, atomically.

    Args:
        path: of the file.
        results: of one run, or of several :func:`~icl_bench.results.concat`.
        against: see :func:`page`.
    """
    _files.write(path, page(results, against=against).encode())


@validated
def ranked(results: BenchResults) -> list[str]:
    """Contestants by error on the tasks trained on, or else on the available tests, best first, without `ZERO`."""
    return _order(results, tables.aggregate(results))


def _order(results: BenchResults, overall: pd.DataFrame) -> list[str]:
    first = overall[overall["contestant"] != ZERO].groupby("contestant", sort=False)["ratio"].first()
    rated = list(first.fillna(math.inf).sort_values(kind="stable").index)
    return rated + [name for name in results.contestants if name not in (*rated, ZERO)]


@validated
def answer(results: BenchResults) -> str:
    """Result in a sentence or two, without markup: the best contestant on each group of tests, then others."""
    overall = tables.aggregate(results)
    return _answer(overall, _order(results, overall))


def _answer(overall: pd.DataFrame, names: Sequence[str]) -> str:
    names = [name for name in names if name in set(overall["contestant"])]
    if not names:
        return "No contestant has results that can be compared with a floor."
    multiples = []
    for _, row in _rows_of(overall, names[0]).iterrows():
        place = _PLACES[row["group"]].format(n="the one task" if row["tasks"] == 1 else f"{row['tasks']} tasks")
        if math.isinf(row["ratio"]):
            multiples.append(f"beyond all numbers, as a training diverged, {place}")
        else:
            of = "" if any("times" in part for part in multiples) else f" {_measure(row['reference'])}"
            multiples.append(f"{plain(row['ratio'], row['ratio_se'])} times{of} {place}")
    sentence = f"{names[0]} errs {_join_words(multiples)}."
    if len(names) > 1:
        rest = [_rows_of(overall, name).iloc[0] for name in names[1:]]
        phrases = [f"{row['contestant']} at {plain(row['ratio'], row['ratio_se'])}" for row in rest]
        if len(phrases) > 4:
            phrases = [*phrases[:3], f"last of {len(names)} {phrases[-1]}"]
        sentence += f" Next come {_join_words(phrases)}." if len(phrases) > 1 else f" Next comes {phrases[0]}."
    return sentence


@validated
def caveats(results: BenchResults) -> Iterable[str]:
    """Caveats of the results, a sentence each."""
    summary = tables.summary(results)
    for name, facts in results.meta["contestants"].items():
        for warning in facts.get("warnings", []):
            yield f"{name}: {warning}"
    for name in [name for name in results.contestants if name != ZERO]:
        rows = summary[summary["contestant"] == name]
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
    """Number with its standard error, to significant digits: 1.43 ± 0.02; inf is "diverged", NaN a dash."""
    for name, given in (("value", value), ("error", error)):
        _checks.instance(name, given, numbers.Real)
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "diverged"
    if math.isnan(error) or error <= 0:
        return f"{value:.2f}"
    places = min(max(-math.floor(math.log10(error)), 2 if abs(value) < 10 else 1), 3)
    return f"{value:.{places}f} ± {error:.{places}f}"


# Sections of the page, in order.


def _across(overall: pd.DataFrame, names: Sequence[str]) -> Html:
    """Section on every contestant over all tasks."""
    rows = _finite_rows(overall[overall["contestant"].isin(names)])
    if rows.empty:
        return Html("")
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
        alt=f"Dots, a row for each contestant, error in multiples of {of}: {_join_words(points)}.",
        floors={of: 1.0},
        colours={**_GROUP_COLOURS, of: _FLOOR_COLOUR},
        log_x=True,
    )
    note = "Dots are geometric means over tasks; a bar reaches from the least to the greatest task trained on."
    return markup.picture(figure, title, note)


def _by_task(results: BenchResults, names: Sequence[str]) -> Html:
    """Section by task: a dot plot if contestants are few, and the full table."""
    table = tables.per_task(results)
    titles = {name: str(task["title"]) for name, task in results.meta["tasks"].items()}
    drawn = _finite_rows(table[table["contestant"].isin(names) & (table["variant"] == "same")])
    picture = Html("")
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
        in_order = drawn.sort_values("ratio", kind="stable")
        best, worst = in_order.iloc[0], in_order.iloc[-1]
        title = f"Furthest from the floor: {worst['label']} on {worst['row']}"
        ends = [f"{row['label']} on {row['row']}, {plain(row['ratio'], row['ratio_se'])}" for row in (best, worst)]
        labels = list(dict.fromkeys(drawn["label"]))
        figure = charts.dots(
            drawn,
            x="ratio",
            y="row",
            by="label",
            x_title="error, in multiples of the floor",
            title=title,
            alt=f"Dots, a row for each task. The least is {ends[0]}, the greatest {ends[1]}. The table has all.",
            floors={"the floor": 1.0},
            colours={label: _COLOURS[place % len(_COLOURS)] for place, label in enumerate(labels)}
            | {"the floor": _FLOOR_COLOUR},
            log_x=True,
        )
        picture = markup.picture(
            figure, title, "Prompts as long as in training; bars are one standard error to each side."
        )
    shown = [*names, *([ZERO] if ZERO in set(table["contestant"]) else [])]
    return markup.section("tasks", "Task by task", picture, _heat(results, table, shown, titles))


def _heat(results: BenchResults, table: pd.DataFrame, names: Sequence[str], titles: dict[str, str]) -> Html:
    """Heat-map table of ratios to the floor: a row for each test, a column for each contestant."""
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
    least = tables.floor_table(results)
    floors = {(f["task"], f["variant"]): f for _, f in least[least["is_reference"]].iterrows()}
    head = [markup.tag("th", "task", scope="col"), markup.tag("th", "floor, its error", scope="col")]
    head += [
        markup.tag("th", f"{n}, {t}" if n in several else n, scope="col", title=f"trained on {t}") for n, t in columns
    ]
    bodies = []
    for group, heading in _HEADS.items():
        tests = table.loc[table["group"] == group, ["task", "variant"]].drop_duplicates()
        lines = []
        for task, variant in tests.itertuples(index=False, name=None):
            floor = floors.get((task, variant))
            floor_text = "none known" if floor is None else f"{floor['floor']} {floor['risk']:.3g}"
            line = [markup.tag("th", titles.get(task, task), scope="row"), markup.tag("td", floor_text)]
            for column in columns:
                value, error = cells.get((*column, group, task), (math.nan, math.nan))
                shade = min(max(math.log(value) / math.log(8), 0), 1) if 0 < value < math.inf else float(value > 0)
                # Light enough for the number to stay legible.
                line.append(markup.tag("td", plain(value, error), style=f"--heat:{42 * shade:.0f}%", class_="heat"))
            lines.append(markup.tag("tr", *line))
        if lines:
            across = markup.tag("th", heading, scope="rowgroup", colspan=str(len(head)))
            bodies.append(markup.tag("tbody", markup.tag("tr", across, class_="group"), *lines))
    caption = "Error in multiples of the floor, ± one standard error. Darker is further from the floor."
    return markup.scroll(
        markup.tag(
            "table",
            markup.tag("caption", caption),
            markup.tag("thead", markup.tag("tr", *head)),
            *bodies,
            class_="heats",
        ),
        caption,
    )


def _paired_section(results: BenchResults, names: Sequence[str], against: str) -> Html:
    """Section of paired ratios to one contestant."""
    table = tables.aggregate(results, against=against)
    groups = [group for group in tables.GROUPS if group in set(table["group"])]
    rows = []
    for name in [name for name in names if name != against]:
        ratios = _rows_of(table, name).drop_duplicates("group").set_index("group")
        cells = [""] * len(groups)
        for place, group in enumerate(groups):
            if group in ratios.index:
                one, error = float(ratios["ratio"][group]), float(ratios["ratio_se"][group])
                clear = abs(one - 1) > 2 * error
                cells[place] = markup.tag("strong", plain(one, error)) if clear else plain(one, error)
        rows.append((name, *cells))
    text = (
        f"Errors on the same prompts are divided, so that what makes a prompt hard for both does not count. Less than "
        f"1 is less error than {against}; bold is more than two standard errors away from 1."
    )
    caption = f"Error in multiples of that of {against}"
    table_ = markup.html_table(("contestant", *(_HEADS[group] for group in groups)), rows, caption)
    return markup.section("against", f"Compared with {against}", markup.tag("p", text), table_)


def _sweep(results: BenchResults) -> Html:
    """Section on the learning-rate sweep, with a note where the best rate lies at an edge."""
    tried = {
        (name, trained_on): {float(rate): _number(loss) for rate, loss in rates.items()}
        for name, facts in results.meta["contestants"].items()
        for trained_on, rates in facts.get("rates", {}).items()
        if rates
    }
    if not tried:
        return Html("")
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
    finite = {
        name: {rate: loss for rate, loss in sorted(losses.items()) if 0 < loss < math.inf}
        for (name, _), losses in tried.items()
    }
    points = [(loss, rate, name) for name, losses in finite.items() for rate, loss in losses.items()]
    if not several and len(tried) <= _FEW and len({rate for _, rate, _ in points}) > 1:
        _, rate, name = min(points)
        drawn = {name: (list(losses), list(losses.values())) for name, losses in finite.items() if losses}
        title = f"Least on the choosing prompts: {name} at rate {rate:g}"
        figure = charts.curves(
            rates,
            drawn,
            best=list(drawn),
            x_title="learning rate",
            y_title="mean squared error",
            title=title,
            alt="Lines of mean squared error by learning rate, with a star at the best rate of each contestant.",
            colours={name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(drawn)},
            log_x=True,
            log_y=True,
        )
        for layer in figure.spec["layer"]:
            layer["encoding"]["x"]["axis"] = {"values": rates, "format": "~g"}
        parts.append(markup.picture(figure, title, "Seed 0 at each rate, on prompts that nobody is tested on."))
    caption = "Mean squared error of seed 0 at each learning rate; * is the rate that was chosen."
    parts.append(markup.html_table(("contestant", *(f"{rate:g}" for rate in rates)), rows, caption))
    if edges:
        shown = edges if len(edges) <= 8 else [*edges[:8], f"{len(edges) - 8} more"]
        text = (
            f"The best rate is at an edge of what was tried for {_join_words(shown)}. A rate beyond the edge may be "
            f"better still, so that the numbers above may say too little for it."
        )
        parts.append(markup.tag("p", markup.tag("strong", "At the edge. "), text, class_="warning"))
    return markup.section("rates", "Learning rates", *parts)


def _cost(results: BenchResults, names: Sequence[str]) -> Html:
    rows = []
    for name in names:
        facts = results.meta["contestants"].get(name)
        if facts is None:
            continue
        state = _count(facts.get("state_bytes"))
        if facts.get("state_grows"):
            state = "grows with the prompt" if facts.get("state_bytes") is None else f"{state}, and grows"
        rows.append(
            (
                name,
                str(facts.get("kind", "")),
                _count(facts.get("parameters")),
                _count(facts.get("flops")),
                state,
                _decimal(facts.get("us_per_token")),
                _decimal(facts.get("seconds")),
            )
        )
    heads = ("contestant", "kind", "parameters", "FLOPs per token", "state, bytes", "µs per token", "training, s")
    where = "on one thread" if results.meta.get("device", "cpu") == "cpu" else "on a GPU, of what is trained"
    caption = f"What each costs: forward pass a token {where}; training is the sum of all its trainings."
    return markup.section("cost", "What each costs", markup.html_table(heads, rows, caption)) if rows else Html("")


def _budget(results: BenchResults) -> Html:
    b = results.meta["budget"]
    rates = _join_words([f"{rate:g}" for rate in b["rates"]])
    trained = [name for name, task in results.meta["tasks"].items() if not task["shifted"]]
    how = {"all": f"on {len(trained)} tasks at once", "each": "on each task by itself"}
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
    table = markup.html_table(("name", "task", "", "what it is"), listed, "The tasks", words=True)
    return markup.section(
        "budget", "What was trained, and how", *(markup.tag("p", s) for s in sentences), markup.fold("The tasks", table)
    )


def _reading_guide(overall: pd.DataFrame) -> Html:
    zero = _rows_of(overall, ZERO)
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
    return markup.section(
        "reading", "How to read it", markup.tag("ol", *(markup.tag("li", sentence) for sentence in sentences))
    )


def _warnings(warnings: Sequence[str]) -> Html:
    if not warnings:
        return markup.section("warnings", "Warnings", markup.tag("p", "None."))
    return markup.section(
        "warnings", "Warnings", markup.tag("ul", *(markup.tag("li", warning) for warning in warnings), class_="warning")
    )


def _provenance(results: BenchResults) -> Html:
    meta = results.meta
    rows = [("library, hash of its code", meta.get("library", "")), ("device", meta.get("device", ""))]
    rows += list(meta.get("versions", {}).items())
    versions = markup.html_table(("", "version"), [(name, str(each)) for name, each in rows], "Made with", words=True)
    origins = [
        (name, str(each.get("spec", "")), str(each.get("source", ""))[:16], str(each.get("about", "")))
        for name, each in meta["contestants"].items()
    ]
    who = markup.html_table(
        ("contestant", "asked for as", "hash of source", "what it is"), origins, "Contestants", words=True
    )
    prompts = [
        (name, variant, str(each))
        for name, task in meta["tasks"].items()
        for variant, each in task.get("prompts", {}).items()
    ]
    tests = markup.html_table(("task", "prompts", "hash"), prompts, "Test prompts", words=True)
    return markup.section("provenance", "Where it comes from", versions, who, markup.fold("Test prompts", tests))


# Formatting.


def _rows_of(overall: pd.DataFrame, name: str) -> pd.DataFrame:
    return overall[overall["contestant"] == name]


def _finite_rows(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["ratio"].map(lambda value: 0 < value < math.inf)].copy()


def _labels(rows: pd.DataFrame) -> list[str]:
    """Row labels: names, with the training where one contestant has several."""
    ways = rows.groupby("contestant")["trained_on"].nunique()
    pairs = zip(rows["contestant"], rows["trained_on"], strict=True)
    return [f"{name}, trained on {way}" if ways[name] > 1 else name for name, way in pairs]


def _measure(reference: str) -> str:
    return {"floor": "the floor", ZERO: "the error of answering 0"}.get(reference, f"the error of {reference}")


def _join_words(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _count(value: Any) -> str:
    return "not known" if value is None else f"{value:,.0f}"


def _decimal(value: Any) -> str:
    return "not known" if value is None or not math.isfinite(value) else f"{value:,.1f}"


def _number(value: Any) -> float:
    return math.inf if value is None or math.isnan(value) else float(value)
