"""The command line: `icl-bench run | compare | tasks | layers | show | submit`.

A user's error ends with a sentence or two on stderr and exit code 2; an unexpected error with a sentence and exit
code 1; an interruption with advice on how to resume, and 130. `--debug`, or ICL_DEBUG=1, prints the traceback.
"""

import argparse
import contextlib
import errno
import math
import os
import shlex
import sys
import textwrap
import traceback
from collections.abc import Iterable, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from icl import filters
from icl._bounds import validated
from icl_bench import catalogue, costs, entries, leaderboard, report, runner, training_jobs
from icl_bench import results as tables
from icl_bench import tasks as tasks_of
from icl_bench.budgets import BUDGETS
from icl_bench.results import ZERO, BenchResults

_WIDE = 79
_TABLE, _PAGE = "results.parquet", "report.html"
#: Seconds above which a run asks for confirmation, on an interactive terminal.
_LONG = 30 * 60
#: ASCII replacements for terminals without these letters.
_SIMPLER = str.maketrans({"±": "+-", "–": "-", "µ": "u", "γ": "gamma", "ν": "nu", "²": "^2", "×": "x"})


class _Usage(ValueError):
    """Invalid command line."""


class _Parser(argparse.ArgumentParser):
    """Argument parser with one-sentence errors."""

    def error(self, message: str) -> NoReturn:
        """Raise; `main` prints the sentence."""
        raise _Usage(f"{message}; `{self.prog} --help` says what there is")


@validated
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `icl-bench`.

    Args:
        argv: its arguments; None is `sys.argv[1:]`.

    Returns:
        0 on success, 2 on a user's error, 1 on an unexpected error, 130 if interrupted.
    """
    if argv is not None and (isinstance(argv, str) or not isinstance(argv, Sequence)):
        raise ValueError(f"argv must be words in a list, got {argv!r}")
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words or os.environ.get("ICL_DEBUG", "") not in ("", "0")
    try:
        arguments = _parser().parse_args(words)
        arguments.do(arguments)
        sys.stdout.flush()
    except SystemExit as done:  # --help and --version
        return int(done.code or 0)
    except KeyboardInterrupt:
        again = f" The same command goes on where it was: icl-bench {shlex.join(words)}" if words[:1] == ["run"] else ""
        _complain(f"Stopped.{again}")
        return 130
    except BrokenPipeError:
        # The reader closed the pipe; without this, Python would complain when it flushes stdout at exit.
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.close()
        return 0
    except (ValueError, OSError, ImportError) as error:
        if debug:
            traceback.print_exc()
        _complain(f"icl-bench: {_sentence(error)}")
        return 2
    except Exception as error:
        if debug:
            traceback.print_exc()
        _complain(
            f"icl-bench: something went wrong that was not foreseen, {type(error).__name__}: {_sentence(error)} "
            f"With --debug it says where."
        )
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="icl-bench",
        description="Does a sequence layer adapt when the task moves, and how far is it from what is possible?",
        epilog="A first run: icl-bench run gla --budget small --tasks ar1-0.95 switches",
    )
    parser.add_argument("--version", action="version", version=f"icl-bench {metadata.version('icl-book')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, do: Any, text: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=text, description=text)
        one.add_argument("--debug", action="store_true", help="show where an error comes from")
        one.set_defaults(do=do)
        return one

    run = command("run", _run, "train, test and report contestants")
    run.add_argument(
        "specs",
        nargs="+",
        metavar="SPEC",
        help="a name that `icl-bench layers` lists, file.py:Name, or package.module:Name; name=SPEC calls it so",
    )
    run.add_argument("--budget", default="small", metavar="NAME", help=f"{', '.join(BUDGETS)}; default small")
    run.add_argument("--tasks", nargs="+", default=["all"], metavar="TASK", help="to train and test on; default all")
    run.add_argument("--only-tested", nargs="+", metavar="TASK", help="to test on only; `none` for none")
    run.add_argument("--train", default="all", metavar="HOW", help="all tasks at once, each by itself, or one's name")
    run.add_argument("--seeds", type=int, metavar="N", help="trainings at the best rate; default the budget's")
    run.add_argument("--jobs", type=int, default=1, metavar="N", help="processes on this machine; default 1")
    run.add_argument("--dask", metavar="ADDRESS", help="of a Dask scheduler, whose workers are then used")
    run.add_argument(
        "--device", default="cpu", metavar="DEVICE", help="cpu, cuda (all GPUs in turn) or one, as cuda:1; default cpu"
    )
    run.add_argument("--out", type=Path, default=Path("results"), metavar="FOLDER", help="default results")
    run.add_argument("--kind", metavar="KIND", help=f"take it as {', '.join(entries.KINDS)}")
    run.add_argument("--name", metavar="NAME", help="under which a single contestant's results stand")
    run.add_argument("--html", action=argparse.BooleanOptionalAction, default=True, help=f"write {_PAGE}; default yes")
    run.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    run.add_argument("--yes", action="store_true", help="do not ask before a long run")
    run.add_argument("--quiet", action="store_true", help="no bar")

    compare = command("compare", _compare, "put several runs into one table, prompt by prompt")
    compare.add_argument("paths", nargs="+", type=Path, metavar="PATH", help=f"folders of runs, or their {_TABLE}")
    compare.add_argument("--html", nargs="?", type=Path, const=Path(_PAGE), metavar="FILE", help=f"default {_PAGE}")
    compare.add_argument("--against", metavar="NAME", help="compare all with this contestant")

    command("tasks", _tasks, "list the tasks")
    command("layers", _layers, "list the contestants that have names")
    show = command("show", _show, "say what a task is, and what is known of the least error on it")
    show.add_argument("task", metavar="TASK", help="a name that `icl-bench tasks` lists, or file.py:Name")
    show.add_argument("--budget", default="small", metavar="NAME", help=f"{', '.join(BUDGETS)}; default small")

    submit = command("submit", _submit, "write a row for the leaderboard")
    submit.add_argument("path", type=Path, metavar="PATH", help=f"folder of a run, or its {_TABLE}")
    submit.add_argument("contestant", metavar="CONTESTANT", help="its name in the run")
    submit.add_argument("--commit", required=True, metavar="HASH", help="of the code that was run")
    submit.add_argument("--link", default="", metavar="URL", help="where that code is")
    submit.add_argument("--by", default="", metavar="NAME", help="who ran it")
    submit.add_argument("--out", type=Path, default=Path(), metavar="FOLDER", help="default the one you are in")
    return parser


# Commands.


def _run(arguments: argparse.Namespace) -> None:
    if arguments.name and len(arguments.specs) > 1:
        raise _Usage(f"--name is for one contestant, got {len(arguments.specs)}; write NAME=SPEC for each")
    specs = [f"{arguments.name}={arguments.specs[0]}"] if arguments.name else arguments.specs
    budget = _budget(arguments.budget)
    if arguments.seeds is not None:
        if arguments.seeds < 1:
            raise _Usage(f"--seeds must be at least 1, got {arguments.seeds}")
        budget = budget.with_seeds(arguments.seeds)
    if arguments.jobs < 1:
        raise _Usage(f"--jobs must be at least 1, got {arguments.jobs}")
    if arguments.only_tested == ["none"]:
        arguments.only_tested = []
    plan = runner.plan(
        [entries.resolve(spec, kind=arguments.kind) for spec in specs],
        tasks=_split(arguments.tasks),
        only_tested=None if arguments.only_tested is None else _split(arguments.only_tested),
        budget=budget,
        train=arguments.train,
        device=arguments.device,
    )
    seconds = _estimate_seconds(plan, arguments.jobs)
    _describe(plan, arguments, seconds)
    if arguments.dry_run:
        _say("This was a dry run: nothing was done.")
        return
    if seconds > _LONG and not arguments.yes and sys.stdin.isatty() and sys.stdout.isatty():
        with contextlib.suppress(EOFError):
            if input("Begin? [Y/n] ").strip().lower() in ("n", "no"):
                _say("Nothing was done.")
                return
    quiet = arguments.quiet or not sys.stderr.isatty()
    results = runner.run(plan, folder=arguments.out, jobs=arguments.jobs, dask=arguments.dask, quiet=quiet)
    _say("")
    _print_overall(results)
    _say(f"Table: {arguments.out / _TABLE}")
    if arguments.html:
        page = arguments.out / _PAGE
        report.write_report(page, results)
        _say(f"Report: {page}")


def _compare(arguments: argparse.Namespace) -> None:
    results = tables.concat(
        _disambiguate([(_label(path), tables.read_results(_table(path))) for path in arguments.paths])
    )
    names = [name for name in report.ranked(results) if name != ZERO]
    if arguments.against is not None and arguments.against not in results.contestants:
        raise _Usage(f"--against must be one of {', '.join(results.contestants)}, got {arguments.against!r}")
    against = arguments.against or (names[-1] if len(names) == 2 else None)
    _print_overall(results)
    if against is not None:
        _print_paired(results, names, against)
    if arguments.html is not None:
        report.write_report(arguments.html, results, against=against)
        _say(f"Report: {arguments.html}")


def _tasks(_: argparse.Namespace) -> None:
    for shifted, heading in ((False, "To train and test on (all):"), (True, "To test on only (shifted):")):
        _say(heading)
        _rows([(task.name, task.title) for task in tasks_of.BENCH_TASKS.values() if task.shifted == shifted])
        _say("")
    _say("icl-bench show TASK says more of one. A task of your own is file.py:Name.")


def _layers(_: argparse.Namespace) -> None:
    rows = []
    for name, builtin in catalogue.CONTESTANTS.items():
        missing = [package for package in builtin.needs if find_spec(package) is None]
        needs = f" Needs pip install {' '.join(missing)}." if missing else ""
        rows.append((name, f"{builtin.about}{needs}"))
    _rows(rows)
    _say("")
    _say("A layer of your own is file.py:Name or package.module:Name.")


def _show(arguments: argparse.Namespace) -> None:
    budget = _budget(arguments.budget)
    tasks = tasks_of.find_tasks([arguments.task])
    if len(tasks) != 1:
        raise _Usage(f"show is of one task, got {arguments.task}, which is {len(tasks)}; `icl-bench tasks` lists them")
    ((name, task),) = tasks.items()
    _say(f"{name}: {task.title}")
    _say(task.about)
    _say("It is tested on only: nobody is trained on it." if task.shifted else "It is trained and tested on.")
    _say("")
    _say(
        f"Budget {budget.name}: {budget.d} dimensions, the last {budget.last} positions of {budget.prompts} test "
        f"prompts; errors are squared, against the label without noise."
    )
    _say("")
    # The variant "longer" of a held-out task is not tested.
    for variant in training_jobs.VARIANTS[:1] if task.shifted else training_jobs.VARIANTS:
        instance, prompt = training_jobs.prompts_for(name, variant, budget)
        rows = [
            (floor, np.asarray(expected.errors(prompt))[:, -budget.last :].mean(1))
            for floor, expected in task.floors(instance).items()
        ]
        rows.append((ZERO, training_jobs.squared_errors(filters.zero(), prompt, budget.last)))
        examples = budget.n if variant == "same" else 2 * budget.n
        _say(f"Prompts of {examples} examples")
        _rows([(n, report.plain(e.mean(), e.std(ddof=1) / math.sqrt(len(e)))) for n, e in rows])
        reference = task.reference(instance)
        _say("")
    measured = f"Multiples are of {reference}." if reference else f"No floor is known: multiples are of {ZERO}."
    _say(
        f"{measured} Bayes is the least expected error that anybody can have; best linear is the least of predictors "
        f"that are linear in the labels; the genie is told what the task hides, and nobody reaches it for sure. After "
        f"± stands the standard error over prompts."
    )


def _submit(arguments: argparse.Namespace) -> None:
    results = tables.read_results(_table(arguments.path))
    path = leaderboard.submit(
        results,
        arguments.contestant,
        commit=arguments.commit,
        link=arguments.link,
        by=arguments.by,
        folder=arguments.out,
    )
    _say(f"Row: {path}")
    _say("Open a pull request with it; the chapter on the leaderboard says where it goes.")


# Parts of the commands.


def _budget(name: str) -> Any:
    if name not in BUDGETS:
        raise _Usage(f"--budget must be one of {', '.join(BUDGETS)}, got {name!r}")
    return BUDGETS[name]


def _split(names: Iterable[str]) -> list[str]:
    """Split names at spaces and commas."""
    return [part for name in names for part in name.split(",") if part]


def _estimate_seconds(plan: runner.Plan, jobs: int) -> float:
    """Estimated seconds of a run; NaN if a model cannot be timed before it is validated."""
    times: dict[str, float] = {}
    for contestant in plan.contestants:
        if contestant.trained:
            # Validation will report the error, in better words.
            try:
                times[contestant.name] = costs.measure_cost(
                    contestant, plan.budget.shape, device=plan.device
                ).us_per_token
            except Exception:
                return math.nan
    return plan.seconds(times, jobs)


def _describe(plan: runner.Plan, arguments: argparse.Namespace, seconds: float) -> None:
    """Print the plan of a run."""
    b = plan.budget
    _say(f"Contestants: {', '.join(c.name for c in plan.contestants)}")
    _say(
        f"Budget {b.name}: width {b.width}, depth {b.depth}, {b.steps:,} steps of {b.batch} prompts of {b.n} examples, "
        f"{b.d} dimensions"
    )
    how = {"all": f"{len(plan.training)} tasks at once", "each": f"each of {len(plan.training)} tasks by itself"}
    _say(
        f"Trainings: {plan.trainings} in all, on {how.get(plan.train, plan.train)}; {len(b.rates)} learning rates, "
        f"then {b.seeds} {'seed' if b.seeds == 1 else 'seeds'} at the best"
    )
    _say(
        f"Tests: {plan.test_sets} in all, on {len(plan.training)} tasks, on {len(plan.only_tested)} that nobody is "
        f"trained on, and on prompts twice as long"
    )
    where = (
        f"the workers of {arguments.dask}"
        if arguments.dask
        else f"{arguments.jobs} process{'es' * (arguments.jobs > 1)}"
    )
    if not math.isnan(seconds):
        _say(f"Time: about {_duration(seconds)} on {where}{', as measured on this machine' if arguments.dask else ''}")
    if memory := _memory(plan):
        _say(f"Memory: about {memory} a process, beside Python's own")
    _say(f"What is done stays in {arguments.out}; the same command goes on after a stop")


def _memory(plan: runner.Plan) -> str:
    """Largest memory of a training step, and of which model; "" if that cannot be measured before validation."""
    tasks = max(map(len, plan.trained_on.values()))
    most: dict[str, int] = {}
    for contestant in plan.contestants:
        # Validation will report the error, in better words.
        with contextlib.suppress(Exception):
            batch = plan.budget.config(plan.budget.rates[0], tasks).batch
            most[contestant.name] = costs.step_bytes(contestant, plan.budget.shape, batch)
    name = max(most, key=lambda each: most[each], default="")
    if not most.get(name):
        return ""
    # With the allocator's overhead.
    return f"{max(1.6 * most[name] / 2**20, 1):,.0f} MiB for {name}"


def _duration(seconds: float) -> str:
    """Human-readable duration."""
    if seconds < 90:
        return f"{max(round(seconds, -1), 10):.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _table(path: Path) -> Path:
    """Path of a run's results table, given its folder or the file."""
    table = path / _TABLE if path.is_dir() else path
    if not table.exists():
        raise _Usage(f"there is no {table}; give the folder of a run that is done, or its {_TABLE}")
    return table


def _label(path: Path) -> str:
    return path.resolve().name if path.is_dir() else path.resolve().parent.name


def _disambiguate(runs: Sequence[tuple[str, BenchResults]]) -> list[BenchResults]:
    """Runs with unambiguous names: a name that means different contestants gets its run's label appended."""
    taken: dict[str, list[tuple[Any, dict[Any, Any]]]] = {}
    renamed = []
    for place, (label, results) in enumerate(runs, 1):
        names = {}
        for name in results.contestants:
            source = results.meta["contestants"].get(name, {}).get("source")
            rows = results.table[(results.table["contestant"] == name) & (results.table["kind"] != "floor")]
            errors = {
                key: values
                for *key_, values in rows[["trained_on", "seed", "task", "variant", "errors"]].itertuples(index=False)
                for key in [tuple(key_)]
            }
            before = taken.setdefault(name, [])
            same = all(
                source == other
                and all(np.array_equal(errors[key], other_errors[key]) for key in errors.keys() & other_errors.keys())
                for other, other_errors in before
            )
            if name != ZERO and not same:
                new = f"{name} ({label})"
                names[name] = new if new not in taken else f"{name} ({label}, {place})"
                taken[names[name]] = []
            before.append((source, errors))
        renamed.append(tables.rename(results, names))
    return renamed


# Output.


def _print_overall(results: BenchResults) -> None:
    """Print a row for each contestant, a column for each group of tests."""
    overall = tables.aggregate(results)
    groups = [group for group in tables.GROUPS if group in set(overall["group"])]
    rows = [("error, times the floor", *groups)]
    for name in (*report.ranked(results), *([ZERO] if ZERO in results.contestants else [])):
        means = overall[overall["contestant"] == name]
        for trained_on in dict.fromkeys(means["trained_on"]):
            ratios = means[means["trained_on"] == trained_on].set_index("group")
            label = name if means["trained_on"].nunique() == 1 else f"{name}, on {trained_on}"
            rows.append((label, *(_number(ratios, group) for group in groups)))
    _columns(rows)
    if (overall["reference"] == ZERO).any():
        _say(f"No floor is known of some tests: theirs are multiples of the error of {ZERO}.")
    _say("Geometric means over tasks, each with one standard error.")
    _say("")
    for warning in report.caveats(results):
        _say(f"Warning: {warning}.")


def _print_paired(results: BenchResults, names: Sequence[str], against: str) -> None:
    """Print every contestant's paired ratio to one of them."""
    overall = tables.aggregate(results, against=against)
    groups = [group for group in tables.GROUPS if group in set(overall["group"])]
    rows = [(f"error, times {against}'s", *groups)]
    for name in names:
        means = overall[overall["contestant"] == name]
        for trained_on in dict.fromkeys(means["trained_on"] if name != against else []):
            ratios = means[means["trained_on"] == trained_on].set_index("group")
            rows.append((name, *(_number(ratios, group) for group in groups)))
    _columns(rows)
    _say("On the same prompts; less than 1 is less error.")
    _say("")


def _number(ratios: pd.DataFrame, group: str) -> str:
    return report.plain(ratios["ratio"][group], ratios["ratio_se"][group]) if group in ratios.index else ""


def _columns(rows: Sequence[Sequence[str]]) -> None:
    """Print a table: first column left-aligned and truncated, the others right-aligned."""
    wide = [max(len(_encode(row[place])) for row in rows) for place in range(1, len(rows[0]))]
    first = min(max(len(_encode(row[0])) for row in rows), _WIDE - sum(wide) - 2 * len(wide))
    for row in rows:
        head = _encode(row[0])
        head = head if len(head) <= first else f"{head[: first - 3]}..."
        cells_ = "".join(f"  {_encode(cell):>{w}}" for cell, w in zip(row[1:], wide, strict=True))
        print(f"{head:<{first}}{cells_}".rstrip())
    print()


def _rows(rows: Sequence[tuple[str, str]]) -> None:
    """Print names, each with its description."""
    wide = max((len(name) for name, _ in rows), default=0) + 4
    for name, text in rows:
        print(
            textwrap.fill(
                _encode(text), _WIDE, initial_indent=f"  {name}".ljust(wide), subsequent_indent=" " * wide, **_WORDS
            )
        )


_WORDS: Any = {"break_long_words": False, "break_on_hyphens": False}


def _say(text: str) -> None:
    print(textwrap.fill(_encode(text), _WIDE, subsequent_indent="  ", **_WORDS) if text else "")


def _complain(text: str) -> None:
    print(textwrap.fill(_encode(text, sys.stderr), _WIDE, **_WORDS), file=sys.stderr)


def _encode(text: str, to: Any = None) -> str:
    """Text in the terminal's encoding."""
    encoding = getattr(to or sys.stdout, "encoding", None) or "ascii"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_SIMPLER).encode(encoding, "replace").decode(encoding)
    return text


def _sentence(error: BaseException) -> str:
    """Message of an error, in full sentences."""
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        if error.errno == errno.ENOSPC:
            text += "; free some, and the same command goes on from what is done"
    else:
        text = " ".join(str(error).split()) or type(error).__name__
    return text if text.endswith((".", "!", "?")) else f"{text}."
