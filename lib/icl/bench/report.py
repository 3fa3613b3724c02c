"""A report of one page: who is how far from what is possible, how sure that is, and what was done to find it.

The page needs nothing but itself, no network either: its pictures are drawn into it, it follows the reader's light or
dark theme, and it is read on a phone and on paper too. All that comes from outside, names first of all, is text.
"""

import html
import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from icl import _checks, _files
from icl.bench import results as tables
from icl.bench.results import GROUPS, ZERO, Results
from icl.page import charts
from icl.page.charts import Figure

#: Colours on light and on dark, of tests and of contestants.
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
    "longer": "prompts twice as long",
}


def page(results: Results, *, against: str | None = None) -> str:
    """The report as one self-contained page of HTML.

    Args:
        results: of one run, or of several `together`.
        against: name of a contestant that all others are compared with too, prompt by prompt.
    """
    _checks.instance("results", results, Results)
    overall = tables.overall(results)
    names = _ranked(overall)
    warnings = list(warned(results))
    budget = results.meta["budget"]
    title = names[0] if len(names) == 1 else f"{len(names)} contestants"
    parts = [
        _tag("p", f"icl-bench, budget {budget['name']}", class_="kicker"),
        _tag("h1", f"How far from the best possible: {title}"),
        _tag("p", answer(results), class_="answer"),
        _pointer(warnings),
        _across(overall, names),
        _by_task(results, names),
        _against(results, names, against) if against else "",
        _sweep(results),
        _cost(results, names),
        _budget(results),
        _reading(overall),
        _warnings(warnings),
        _provenance(results),
    ]
    body = _tag("main", *parts)
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'; img-src data:\">"
        f"{_tag('title', f'icl-bench: {", ".join(names[:3])}')}<style>{_STYLE}{_palette()}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{_SWITCH}{body}<script>{_SCRIPT}</script></body></html>\n'


def write_report(path: Path, results: Results, *, against: str | None = None) -> None:
    """Write the report, whole or not at all.

    Args:
        path: of the file.
        results, against: see `page`.
    """
    _checks.instance("path", path, Path)
    _files.write(path, page(results, against=against).encode())


def answer(results: Results) -> str:
    """What was found, in a few sentences without markup: the best contestant on each group of tests, and the others."""
    overall = tables.overall(results)
    names = _ranked(overall)
    if not names:
        return "No contestant has results here."
    found = []
    for _, row in _of(overall, names[0]).iterrows():
        tasks = "1 task" if row["tasks"] == 1 else f"{row['tasks']} tasks"
        place = _PLACES[row["group"]].format(n=tasks)
        times = _ratio(row) if math.isinf(row["ratio"]) else f"{_ratio(row)} times {_measure(row['reference'])}"
        found.append(f"{times} {place}")
    sentence = f"{names[0]} is at {_listed(found)}."
    if len(names) > 1:
        rest = []
        for name in names[1:]:
            row = _of(overall, name).iloc[0]
            rest.append(f"{name} at {_ratio(row)}")
        shown = rest if len(rest) <= 4 else [*rest[:3], f"the last of {len(names)}, {rest[-1]}"]
        sentence += f" After it come {_listed(shown)}." if len(rest) > 1 else f" After it comes {shown[0]}."
    return sentence


def warned(results: Results) -> Iterable[str]:
    """What a reader has to know before believing a number, one sentence each."""
    summary = tables.summary(results)
    for name, told in results.meta["contestants"].items():
        for warning in told["warnings"]:
            yield f"{name}: {warning}"
    for name, rows in summary.groupby("contestant", sort=False):
        if name == ZERO:
            continue
        broken = rows[rows["risk"].map(math.isinf)]
        if len(broken):
            yield f"{name}: a training diverged, so that its error is not finite on {len(broken)} of {len(rows)} tests"
        for _, row in rows.iterrows():
            if row["reference"] in ("Bayes", "genie") and row["ratio"] + 4 * row["ratio_se"] < 1:
                yield (
                    f"{name}: below the least possible error on {row['task']} ({_ratio(row)} times {row['reference']}), "
                    f"which cannot be: look for labels that it should not see"
                )
        if (rows["trained_on"] != "").any() and rows["seeds"].max() == 1:
            yield f"{name}: one seed only, so that standard errors leave out what another training would change"
    for name, rows in summary[summary["reference"] == ZERO].groupby("task", sort=False):
        yield f"{name}: no floor is known, so that numbers are multiples of the error of answering 0"
        del rows


# -- sections --


def _across(overall: pd.DataFrame, names: Sequence[str]) -> str:
    """The figure: every contestant over all tasks."""
    rows = overall[overall["contestant"].isin(names) & overall["ratio"].map(math.isfinite)].copy()
    rows = rows[rows["ratio"] > 0]
    if rows.empty:
        return ""
    wide = rows["group"] == "trained on"
    rows["label"] = [_label(row["contestant"], row["trained_on"], rows) for _, row in rows.iterrows()]
    for end in ("low", "high"):
        usable = wide & rows[end].map(lambda value: math.isfinite(value) and value > 0)
        rows[end] = rows[end].where(usable, rows["ratio"])
    order = {name: place for place, name in enumerate(names)}
    rows = rows.sort_values("contestant", key=lambda column: column.map(order), kind="stable")
    first = rows.iloc[0]
    reference = first["reference"]
    title = f"{first['contestant']} comes closest" if len(names) > 1 else f"{first['contestant']} over all tasks"
    alt = "Dots, one row a contestant, error in multiples: " + "; ".join(
        f"{row['label']}, {row['group']}, {_ratio(row)}" for _, row in rows.iterrows()
    )
    figure = charts.dots(
        rows,
        x="ratio",
        y="label",
        by="group",
        x_title=f"error, times {_measure(reference)}",
        title=title,
        alt=alt,
        floors={_measure(reference): 1.0},
        colours={**_GROUP_COLOURS, _measure(reference): _FLOOR_COLOUR},
        log_x=True,
    )
    note = "Dots are geometric means over tasks. Bars reach from the least to the greatest of the tasks trained on."
    return _figure(figure, title, note)


def _by_task(results: Results, names: Sequence[str]) -> str:
    """Dots a task if contestants are few, and the table of all."""
    table = tables.by_task(results)
    titles = {name: task["title"] for name, task in results.meta["tasks"].items()}
    shown = table[table["contestant"].isin(names)]
    parts = [_tag("h2", "Task by task")]
    drawn = shown[shown["ratio"].map(lambda value: math.isfinite(value) and value > 0) & (shown["variant"] == "same")]
    if 0 < len(names) <= 6 and not drawn.empty:
        drawn = drawn.assign(
            label=[_label(row["contestant"], row["trained_on"], shown) for _, row in drawn.iterrows()],
            title=[
                f"{titles.get(t, t)}{' (shifted)' if g == 'shifted' else ''}"
                for t, g in drawn[["task", "group"]].values
            ],
        )
        worst = drawn.loc[drawn["ratio"].idxmax()]
        title = f"Furthest from the floor: {worst['label']} on {titles.get(worst['task'], worst['task'])}"
        alt = f"Dots, one row a task, one colour a contestant; the greatest is {_ratio(worst)}, {worst['label']} on {worst['title']}. The table below has all numbers."
        labels = list(dict.fromkeys(drawn["label"]))
        colours = {label: _COLOURS[place % len(_COLOURS)] for place, label in enumerate(labels)}
        figure = charts.dots(
            drawn.assign(
                low=(drawn["ratio"] - drawn["ratio_se"]).clip(lower=drawn["ratio"] / 2),
                high=drawn["ratio"] + drawn["ratio_se"],
            ),
            x="ratio",
            y="title",
            by="label",
            x_title="error, times what it is measured by",
            title=title,
            alt=alt,
            floors={"the floor": 1.0},
            colours={"the floor": _FLOOR_COLOUR, **colours},
            log_x=True,
        )
        parts.append(_figure(figure, title, "Bars are one standard error to each side."))
    parts.append(_heat(results, table, [*names, *({ZERO} & set(table["contestant"]))], titles))
    return "".join(parts)
