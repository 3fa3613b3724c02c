"""Leaderboard: one JSON file a contestant, validated for internal consistency.

A row holds a contestant's results on each task, in multiples of the floor with standard errors, its cost, its training
settings, and the commit and link of its code. Rows are comparable because all were tested on the same prompts: a row
holds hashes of the prompts and of the floors on them, which must equal those of the other rows; `read_rows` can
recompute them. An error well below the least possible one is refused, be it typed or leaked. A checksum shows that a
file is intact, not that it is true: to verify a row, run its commit again.
"""

import datetime
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from icl import _checks, _files
from icl._bounds import validated
from icl_bench import results as tables
from icl_bench import tasks as tasks_of
from icl_bench import training_jobs
from icl_bench.budgets import BUDGETS, Budget
from icl_bench.results import BenchResults

_FORMAT = "icl-bench row 1"
#: Test groups of the geometric means (tasks trained on, held-out tasks, and prompts twice as long).
MEANS = tables.GROUPS
#: References below which no model's expected error can be.
_LEAST = ("Bayes", "genie")
_NUMBERS = ("floor", "risk", "se", "ratio", "ratio_se", "low", "high")
_COSTS = ("parameters", "flops", "state_bytes", "us_per_token", "seconds")
_WORDS = ("contestant", "kind", "about", "spec", "source", "by", "link", "commit", "date", "device", "library")
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")


@validated
def row(results: BenchResults, contestant: str, *, commit: str, link: str = "", by: str = "") -> dict[str, Any]:
    """Make one contestant's leaderboard row from a run.

    Args:
        results: of a run on all tasks at once at one of `icl_bench.budgets.BUDGETS`, with the shifted ones.
        contestant: its name there.
        commit: of the code that was run, at least seven digits of its hash.
        link: where that code is, https://...
        by: name of the submitter.

    Raises:
        ValueError: if the run has no such contestant, or is not comparable; the message says what is missing.
    """
    for name, value in (("contestant", contestant), ("commit", commit), ("link", link), ("by", by)):
        if not isinstance(value, str):
            raise ValueError(f"{name} must be a string, got {value!r}")
    meta = results.meta
    facts = meta.get("contestants", {}).get(contestant)
    if facts is None:
        names = ", ".join(meta.get("contestants", {})) or "none"
        raise ValueError(f"contestant must be one of the run's, {names}, got {contestant!r}")
    summary = tables.summary(results)
    summary = summary[summary["contestant"] == contestant]
    least = tables.floor_table(results)
    floors = least[least["is_reference"]].set_index(["task", "variant"])["risk"]
    by_task = [
        {
            "task": each.task,
            "variant": each.variant,
            "shifted": bool(meta["tasks"][each.task]["shifted"]),
            "reference": each.reference,
            "prompts": meta["tasks"][each.task]["prompts"][each.variant],
            "floor": _number(floors.get((each.task, each.variant))),
        }
        | {name: _number(getattr(each, name)) for name in _NUMBERS[1:]}
        for each in summary.itertuples()
    ]
    entry = {
        "contestant": contestant,
        "kind": facts["kind"],
        "about": facts["about"],
        # Only the file name, not its path on the user's machine.
        "spec": facts["spec"].replace("\\", "/").rpartition("/")[2],
        "source": facts["source"],
        "by": by,
        "link": link,
        "commit": commit,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": str(meta["device"]),
        "library": meta["library"],
        "versions": meta["versions"],
        "budget": meta["budget"],
        "train": meta["train"],
        "rates": {rate: _number(loss) for rate, loss in facts["rates"].get("all", {}).items()},
        "rate": facts["rate"].get("all", ""),
        "warnings": list(facts["warnings"]),
        "tasks": by_task,
        "means": _means(results, contestant, by_task),
    } | {name: _number(facts[name]) for name in _COSTS}
    _examine(entry, "this run")
    return entry


def _number(value: Any) -> float | int | None:
    """JSON number; infinity and NaN become null."""
    if value is None or not math.isfinite(value):
        return None
    return int(value) if isinstance(value, int | np.integer) else float(value)


def _means(results: BenchResults, contestant: str, by_task: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Geometric means over the three test groups, with the run's standard errors."""
    means = tables.aggregate(results)
    errors = means[means["contestant"] == contestant].set_index("group")["ratio_se"]
    return {name: {"ratio": _geometric(_tests_of(by_task, name)), "se": _number(errors.get(name))} for name in MEANS}


def _tests_of(by_task: Sequence[Mapping[str, Any]], mean: str) -> list[Mapping[str, Any]]:
    """Tests of a group."""
    kind = {"trained on": ("same", False), "shifted": ("same", True), "longer": ("longer", False)}[mean]
    return [each for each in by_task if (each["variant"], each["shifted"]) == kind]


def _geometric(tests: Sequence[Mapping[str, Any]]) -> float | None:
    ratios = [each["ratio"] for each in tests]
    if not ratios or any(ratio is None for ratio in ratios):
        return None
    return math.exp(math.fsum(math.log(ratio) for ratio in ratios) / len(ratios))


@validated
def write_row(entry: Mapping[str, Any], folder: Path | str = ".") -> Path:
    """Write a row as `<contestant>.json` with its checksum, atomically.

    Args:
        entry: a row of `row`.
        folder: created if missing.

    Raises:
        ValueError: if its numbers are inconsistent, or the folder cannot be written to.
    """
    _examine(entry, "this row")
    path = _place(folder) / f"{entry['contestant']}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"format": _FORMAT, "checksum": _files.checksum(entry), "row": entry}
        text = json.dumps(content, indent=1, ensure_ascii=False)
        _files.write(path, f"{text}\n".encode())
    except OSError as error:
        raise ValueError(f"folder {folder} cannot be written to: {error.strerror}") from error
    return path


@validated
def submit(
    results: BenchResults, contestant: str, *, commit: str, link: str = "", by: str = "", folder: Path | str = "."
) -> Path:
    """Write the file for a pull request: `row`, then `write_row`.

    Args:
        results: of a run on all tasks at once at one of `icl_bench.budgets.BUDGETS`, with the shifted ones.
        contestant: its name there.
        commit: of the code that was run, at least seven digits of its hash.
        link: where that code is, https://...
        by: name of the submitter.
        folder: where to write it.

    Raises:
        ValueError: if the run is not comparable (the message says what is missing), or the folder cannot be written to.
    """
    return write_row(row(results, contestant, commit=commit, link=link, by=by), folder)


def _place(folder: Path | str) -> Path:
    return Path(_checks.text("folder", str(folder) if isinstance(folder, Path) else folder, "a path"))


@validated
def read_rows(folder: Path | str, *, budget: str = "small", again: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Read and validate all rows of a folder, sorted by name.

    Args:
        folder: holds `<contestant>.json` files of `write_row`; without files, no rows are returned.
        budget: name of the budget that all rows must have.
        again: names of tasks whose test prompts and floors are recomputed and compared, for both variants.

    Raises:
        ValueError: with the file and the reason: another checksum, format or budget, numbers that do not follow
            from one another, prompts or floors that are not this library's or not those of the other rows, no commit.
    """
    place = _place(folder)
    if isinstance(again, str) or not isinstance(again, Sequence):
        raise ValueError(f"again must be names of tasks, in a list, got {again!r}")
    _checks.one_of("budget", budget, BUDGETS)
    rows: list[dict[str, Any]] = []
    for path in sorted(place.glob("*.json")):
        try:
            rows.append(_read(path, budget))
            _same_tests(rows[0], rows[-1])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else error
            raise ValueError(f"{path} is no row of this leaderboard: {reason}") from error
        if rows[-1]["contestant"] != path.stem:
            raise ValueError(f"{path} is no row of this leaderboard: it is of {rows[-1]['contestant']}")
    if rows:
        _check_prompts(rows[0], again, BUDGETS[budget], place)
    return rows


def _read(path: Path, budget: str) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    if content["format"] != _FORMAT:
        raise ValueError(f"it has the format {content['format']!r}, not {_FORMAT!r}")
    entry: dict[str, Any] = content["row"]
    if content["checksum"] != _files.checksum(entry):
        raise ValueError("its checksum is not that of its row: it is not as it was written")
    _examine(entry, path.name)
    if entry["budget"]["name"] != budget:
        raise ValueError(f"it is of the budget {entry['budget']['name']}, and this leaderboard of {budget}")
    return entry


def _no_number(name: str) -> float:
    raise ValueError(f"it says {name} where a number or null must stand")


def _examine(entry: Mapping[str, Any], who: str) -> None:
    """Validate a row: required fields, and consistency of its numbers."""
    for name in _WORDS:
        if not isinstance(entry[name], str):
            raise ValueError(f"{who}: {name} must be a string, got {entry[name]!r}")
    if not _NAME.fullmatch(entry["contestant"]):
        raise ValueError(f"{who}: contestant must be a name that a file can have, got {entry['contestant']!r}")
    if not re.fullmatch(r"[0-9a-f]{7,64}", entry["commit"]):
        raise ValueError(
            f"{who}: commit must be the hash of the code that was run, seven hexadecimal digits or more, "
            f"got {entry['commit']!r}"
        )
    if entry["link"] and not re.fullmatch(r"https://\S+", entry["link"]):
        raise ValueError(f"{who}: link must begin with https://, or be left out, got {entry['link']!r}")
    budget = BUDGETS.get(entry["budget"].get("name", ""))
    if budget is None or budget.to_dict() != entry["budget"]:
        raise ValueError(f"{who}: budget must be one of {', '.join(BUDGETS)} as this library has it")
    if entry["train"] != "all":
        raise ValueError(f"{who}: it must be trained on all tasks at once, got train {entry['train']!r}")
    _examine_rates(entry, budget, who)
    _examine_tests(entry, who)
    _examine_means(entry, who)
    for name in _COSTS:
        if entry[name] is not None and not (math.isfinite(entry[name]) and entry[name] >= 0):
            raise ValueError(f"{who}: {name} must be a number >= 0 or null, got {entry[name]!r}")


def _examine_rates(entry: Mapping[str, Any], budget: Budget, who: str) -> None:
    """Check that a trained contestant was swept over every rate and continued at the best."""
    tried = {float(rate): math.inf if loss is None else loss for rate, loss in entry["rates"].items()}
    if tried and set(tried) != set(budget.rates):
        raise ValueError(f"{who}: rates must be those of the budget, {budget.rates}, got {tuple(tried)}")
    if tried and tried.get(float(entry["rate"] or "nan")) != min(tried.values()):
        raise ValueError(f"{who}: rate must be the one with the least error, got {entry['rate']}")


def _examine_tests(entry: Mapping[str, Any], who: str) -> None:
    """Check for every task and variant once, ratios equal to risk over floor, and none below what is possible."""
    pairs = [(each["task"], each["variant"]) for each in entry["tasks"]]
    wanted = [
        (name, variant)
        for name, task in tasks_of.BENCH_TASKS.items()
        for variant in (training_jobs.VARIANTS[:1] if task.shifted else training_jobs.VARIANTS)
    ]
    if sorted(pairs) != sorted(wanted):
        odd = sorted(set(pairs) ^ set(wanted)) or sorted(pair for pair in pairs if pairs.count(pair) > 1)
        raise ValueError(f"{who}: it must have every task of the benchmark once a variant; look at {odd[:4]}")
    for each in entry["tasks"]:
        at = f"{who}: {each['task']}, {each['variant']}"
        for name in _NUMBERS:
            value = each[name]
            if value is not None and not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
                raise ValueError(f"{at}: {name} must be a number >= 0, or null where it diverged, got {value!r}")
        if each["shifted"] != tasks_of.BENCH_TASKS[each["task"]].shifted:
            raise ValueError(f"{at}: shifted must say whether nobody is trained on it, got {each['shifted']}")
        if each["floor"] is None or not each["floor"] > 0:
            raise ValueError(f"{at}: floor must be above 0, got {each['floor']!r}")
        if (each["risk"] is None) != (each["ratio"] is None):
            raise ValueError(f"{at}: risk and ratio must both be there, or both null")
        if each["ratio"] is None:
            continue
        if not math.isclose(each["ratio"], each["risk"] / each["floor"], rel_tol=1e-9):
            raise ValueError(
                f"{at}: ratio must be risk / floor, {each['risk'] / each['floor']:.6g}, got {each['ratio']!r}"
            )
        ends = [each["low"], each["high"]]
        if None not in ends and not ends[0] * (1 - 1e-9) <= each["ratio"] <= ends[1] * (1 + 1e-9):
            raise ValueError(f"{at}: ratio must lie between low and high, got {each['ratio']:.6g} and {ends}")
        if each["reference"] in _LEAST and each["ratio"] + 5 * (each["ratio_se"] or 0.0) < 1:
            raise ValueError(
                f"{at}: ratio must not lie 5 standard errors below the least error that is possible: "
                f"got {each['ratio']:.4g} with {each['ratio_se']!r} of {each['reference']}'; either the numbers are "
                "wrong, or the model saw what it had to predict"
            )


def _examine_means(entry: Mapping[str, Any], who: str) -> None:
    """Check geometric means against the ratios, and their standard errors against an upper bound."""
    for name in MEANS:
        mean, tests = entry["means"][name], _tests_of(entry["tasks"], name)
        right = _geometric(tests)
        if (mean["ratio"] is None) != (right is None) or (
            right is not None and not math.isclose(mean["ratio"], right, rel_tol=1e-9)
        ):
            raise ValueError(f"{who}: the mean {name!r} must be {right}, as its multiples say, got {mean['ratio']}")
        if right is None or mean["se"] is None:
            continue
        # For any correlation of the tests, a mean's relative error is to first order at most the mean of theirs.
        most = 1.5 * right * float(np.mean([each["ratio_se"] / each["ratio"] for each in tests]))
        if not 0 <= mean["se"] <= most:
            raise ValueError(f"{who}: the mean {name!r} must have a standard error up to {most:.4g}, got {mean['se']}")


def _same_tests(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Check that two rows share test prompts and floors."""
    theirs = {(each["task"], each["variant"]): each for each in one["tasks"]}
    for each in other["tasks"]:
        first = theirs[each["task"], each["variant"]]
        at = f"{each['task']}, {each['variant']}"
        if each["prompts"] != first["prompts"]:
            raise ValueError(f"{at}: its test prompts are not those of {one['contestant']}")
        if each["reference"] != first["reference"] or not math.isclose(each["floor"], first["floor"], rel_tol=1e-9):
            raise ValueError(f"{at}: its floor is not that of {one['contestant']}, {first['floor']!r}")


def _check_prompts(entry: Mapping[str, Any], again: Sequence[str], budget: Budget, folder: Path) -> None:
    """Recompute test prompts and floors of some tasks and compare them with one row, which stands for all."""
    for name, task in tasks_of.find_tasks(again).items() if again else ():
        for each in (each for each in entry["tasks"] if each["task"] == name):
            sized, prompt = training_jobs.prompts_for(name, each["variant"], budget)
            reference = task.reference(sized)
            floor = np.asarray(task.floors(sized)[reference].errors(prompt))[:, -budget.last :].mean()
            at = f"{folder}: {name}, {each['variant']}"
            if training_jobs._digest(prompt) != each["prompts"]:
                raise ValueError(f"{at}: the rows' test prompts are not this library's")
            if reference != each["reference"] or not math.isclose(floor, each["floor"], rel_tol=1e-9):
                raise ValueError(f"{at}: the rows' floor, {each['floor']!r}, is not this library's, {float(floor)!r}")


def _only_rows(rows: Any) -> None:
    """Check that rows come from `read_rows`."""
    _checks.instance("rows", rows, Sequence)
    for row in rows:
        _checks.instance("rows", row, Mapping)


@validated
def by_task(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Table of all tests of all rows, one a line: contestant, task, variant, shifted, reference and the numbers.

    Args:
        rows: as `read_rows` returned them.
    """
    _only_rows(rows)
    lines = [{"contestant": entry["contestant"]} | dict(each) for entry in rows for each in entry["tasks"]]
    columns = ["contestant", "task", "variant", "shifted", "reference", *_NUMBERS]
    return _fill_nulls(pd.DataFrame(lines, columns=columns))


@validated
def board(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Ranked table of contestants, the nearest to the floor first.

    For each of `MEANS` the geometric mean of its ratios to the floor and then its standard error; infinite if an error
    is. Then its cost, the chosen learning rate, the number of warnings, and the source.

    Args:
        rows: as `read_rows` returned them.
    """
    _only_rows(rows)
    lines = []
    for entry in rows:
        line = {"contestant": entry["contestant"], "kind": entry["kind"], "about": entry["about"]}
        for name in MEANS:
            line |= {name: entry["means"][name]["ratio"], f"{name}, se": entry["means"][name]["se"]}
        line |= {name: entry[name] for name in (*_COSTS, "rate")} | {"warnings": len(entry["warnings"])}
        lines.append(line | {name: entry[name] for name in ("device", "by", "commit", "link", "date")})
    means = [part for name in MEANS for part in (name, f"{name}, se")]
    columns = ["contestant", "kind", "about", *means, *_COSTS, "rate", "warnings"]
    columns += ["device", "by", "commit", "link", "date"]
    table = _fill_nulls(pd.DataFrame(lines, columns=columns), MEANS)
    return table.sort_values([MEANS[0], "contestant"], ignore_index=True)


def _fill_nulls(table: pd.DataFrame, infinite: Sequence[str] = ("risk", "ratio", "high")) -> pd.DataFrame:
    """Table with null replaced: by infinity in columns that can diverge, else by NaN."""
    for name in table.columns:
        if name in infinite:
            table[name] = table[name].astype(float).fillna(math.inf)
        elif name in (*_NUMBERS, *_COSTS) or name.endswith(", se"):
            table[name] = table[name].astype(float)
    return table
