"""Parallel, resumable benchmark runs.

Every contestant is first trained at each learning rate with the first seed, then at its best rate with the other seeds;
then all are tested on the same prompts. :func:`run` distributes the jobs by joblib: to this process, to several on this
machine, or to the workers of a Dask cluster by its address. Workers need access to the contestants' files and the same
package versions; one that differs is an error that names it.
"""

import contextlib
import functools
import json
import math
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import filelock
import joblib
import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from icl import _checks, filters
from icl._bounds import Count, validated
from icl_bench import costs, entries, training_jobs, validation
from icl_bench import results as tables
from icl_bench import tasks as tasks_of
from icl_bench.budgets import BUDGETS, Budget
from icl_bench.entries import Contestant
from icl_bench.results import BenchResults
from icl_bench.training_jobs import Job, JobResult, JobSpec

_ALL = "all"
# Timeout of the scheduler, in seconds.
_PATIENCE = 20


@dataclass(frozen=True)
class Plan:
    """Plan of a run: contestants, budget, tasks, device.

    Attributes:
        contestants: in order.
        budget: sizes, steps, prompts.
        training: names of the tasks that are trained on.
        only_tested: names of the held-out tasks.
        train: "all" for one training on all tasks at once, "each" for one a task, or a task's name.
        device: "cpu", "cuda", "cuda:1".
    """

    contestants: tuple[Contestant, ...]
    budget: Budget
    training: tuple[str, ...]
    only_tested: tuple[str, ...]
    train: str
    device: str
    paths: tuple[str, ...]

    @property
    def trained_on(self) -> dict[str, tuple[str, ...]]:
        """Trainings by name, with the tasks of each."""
        if self.train == _ALL:
            return {_ALL: self.training}
        return {name: (name,) for name in (self.training if self.train == "each" else (self.train,))}

    @validated
    def tests(self, trained_on: str) -> dict[str, tuple[str, ...]]:
        """Test variants by task for a training of this name.

        Of separate trainings each is tested on its own task; any other training on all tasks. Longer prompts are only
        of tasks trained on.
        """
        _checks.one_of("trained_on", trained_on, self.trained_on)
        home = self.trained_on[trained_on]
        away = self.only_tested if self.train == "each" else [*self.training, *self.only_tested]
        return {
            name: training_jobs.VARIANTS if name in home else training_jobs.VARIANTS[:1]
            for name in dict.fromkeys([*home, *away])
        }

    @property
    def trainings(self) -> int:
        """Number of trainings."""
        each = len(self.budget.rates) + self.budget.seeds - 1
        return sum(c.trained for c in self.contestants) * len(self.trained_on) * each

    @property
    def test_sets(self) -> int:
        """Number of tests; a test is a contestant and seed on the prompts of one task and variant."""
        a_seed = sum(len(variants) for name in self.trained_on for variants in self.tests(name).values())
        return a_seed * sum(self.budget.seeds if c.trained else 1 for c in self.contestants)

    @validated
    def seconds(self, us_per_token: Mapping[str, float], jobs: Count = 1) -> float:
        """Estimated seconds on `jobs` processes, given every contestant's time per token (`icl_bench.costs`).

        A backward pass costs about twice a forward pass, and a test reads a quarter of a training's tokens.
        """
        tokens = self.budget.batch * (2 * self.budget.n + 1) * self.budget.steps
        trainings = (len(self.budget.rates) + self.budget.seeds - 1) * len(self.trained_on)
        times = (3.5 * us_per_token[c.name] * 1e-6 * tokens * trainings for c in self.contestants if c.trained)
        return sum(times) / jobs


@validated
def plan(
    contestants: Sequence[str | Contestant],
    *,
    tasks: Sequence[str] = (_ALL,),
    only_tested: Sequence[str] | None = None,
    budget: str | Budget = "small",
    train: str = _ALL,
    device: str = "cpu",
) -> Plan:
    """Plan a run: resolve contestants and tasks without training.

    Args:
        contestants: contestants, or specifications for :func:`~icl_bench.entries.resolve`.
        tasks: names of tasks to train on, and to test on (:func:`~icl_bench.tasks.find_tasks`).
        only_tested: names of held-out tasks; None is all built-in ones if the training is on all tasks, and none
            otherwise.
        budget: one of :data:`~icl_bench.budgets.BUDGETS` by name, or a user's own.
        train: "all", "each", or the name of one of the tasks.
        device: for training: "cpu", "cuda", which is all GPUs in turn, or one of them as "cuda:1". The machine that
            starts the run validates the contestants and measures their cost there, so it needs a GPU of its own too.

    Raises:
        ValueError: if a contestant or a task is not found, or they are incompatible: with the remedy.
    """
    chosen = BUDGETS.get(budget) if isinstance(budget, str) else budget
    if not isinstance(chosen, Budget):
        raise ValueError(f"budget must be one of {', '.join(BUDGETS)}, or an icl_bench.budgets.Budget, got {budget!r}")
    if isinstance(contestants, str) or not contestants:
        raise ValueError(f"contestants must name at least one contestant, in a list, got {contestants!r}")
    resolved = tuple(each if isinstance(each, Contestant) else entries.resolve(each) for each in contestants)
    names = [each.name for each in resolved]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two contestants are called {name}: give one of them another name")
        if name == tables.ZERO:
            raise ValueError(f"no contestant may be called {tables.ZERO}: it is in every run already")
    for name, given in (("tasks", tasks), ("only_tested", () if only_tested is None else only_tested)):
        _checks.instance(name, given, Sequence)
        if isinstance(given, str):
            raise ValueError(f"{name} must be names of tasks, in a list, got {given!r}")
    trained = tasks_of.find_tasks(tasks)
    if only_tested is None:
        everything = list(tasks) == [_ALL]
        only_tested = [n for n, each in tasks_of.BENCH_TASKS.items() if each.shifted] if everything else []
    tested = tasks_of.find_tasks(only_tested) if only_tested else {}
    if overlap := set(trained) & set(tested):
        raise ValueError(f"only_tested must not name tasks that are trained on, got {', '.join(sorted(overlap))}")
    if train not in (_ALL, "each", *trained):
        raise ValueError(f"train must be all, each, or one of {', '.join(trained)}, got {train!r}")
    named = re.fullmatch(r"cpu|cuda(?::(\d+))?", _checks.text("device", device, "cpu or cuda"))
    if not named:
        raise ValueError(f"device must be cpu or cuda, got {device!r}")
    if device != "cpu" and not torch.cuda.is_available():
        raise ValueError(f"device {device} is not here: torch sees no GPU; leave it out to use the processor")
    if named[1] and int(named[1]) >= (count := torch.cuda.device_count()):
        raise ValueError(f"device {device} is not here: torch sees {count} GPU{'s' * (count > 1)}, the first is cuda:0")
    paths = tuple(dict.fromkeys(c.path for c in resolved if c.path))
    return Plan(resolved, chosen, tuple(trained), tuple(tested), train, device, paths)


@validated
def run(
    contestants: Sequence[str | Contestant] | Plan,
    *,
    folder: Path | str | None = None,
    jobs: Count = 1,
    dask: str | None = None,
    quiet: bool = False,
    **planned: Any,
) -> BenchResults:
    """Train, select and test all contestants; return the results table.

    Args:
        contestants: a plan, or contestants, with the further arguments of :func:`plan`.
        folder: for finished jobs and checkpoints, so that the same call resumes an interrupted run; `results.parquet`
            is written there too. None keeps nothing.
        jobs: number of processes on this machine; GPUs are shared among them in turn.
        dask: address of a Dask scheduler, to use its workers in place of processes.
        quiet: show no progress bar.

    Raises:
        ValueError: if something is not found or does not fit, if the folder has a file that is damaged or a table of
            another budget, or is in use by another run.
        icl_bench.validation.InvalidModel: if a contestant fails validation, before any training.
    """
    plan_ = contestants if isinstance(contestants, Plan) else plan(contestants, **planned)
    if isinstance(contestants, Plan) and planned:
        raise ValueError(f"a plan has its settings: leave out {', '.join(planned)}")
    if folder is not None:
        _checks.text("folder", str(folder) if isinstance(folder, Path) else folder, "a path")
    if dask is not None:
        _checks.text("dask", dask, "an address")
    with _on(plan_.device):
        warnings = {
            c.name: list(validation.validate(c, plan_.budget.shape, device=plan_.device)) for c in plan_.contestants
        }
        weights = {c.name: costs.measure_cost(c, plan_.budget.shape, device=plan_.device) for c in plan_.contestants}
    with _home(folder) as home:
        table = home / "results.parquet"
        before = tables.read_results(table) if table.exists() else None
        if before is not None:
            _check_compatible(before, plan_, table)
        with _backend(jobs, dask) as shared:
            job_results, floors = _run_jobs(plan_, home, jobs, shared, quiet)
        results = _results(plan_, job_results, floors, warnings, weights)
        if before is not None:
            results = tables.concat([_without(before, results.meta["contestants"]), results])
        tables.write_results(table, results)
    return results


def _on(device: str) -> contextlib.AbstractContextManager[Any]:
    """Set the current CUDA device: custom kernels may launch there, wherever their tensors are."""
    return torch.cuda.device(device) if device.startswith("cuda") else contextlib.nullcontext()


@contextlib.contextmanager
def _home(folder: Path | str | None) -> Iterator[Path]:
    """Create a run's folder and lock it."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="icl-bench-") as place:
            yield Path(place)
        return
    home = Path(folder)
    lock = filelock.FileLock(home / ".lock")
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise ValueError(f"folder {folder} is in use by another run: wait for it, or give another folder") from error
    except OSError as error:
        raise ValueError(f"folder {folder} cannot be written to: {error.strerror}") from error
    try:
        yield home
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        # The operating system's error does not always name the file.
        raise OSError(error.errno, error.strerror, str(home)) from error
    finally:
        lock.release()


def _check_compatible(before: BenchResults, plan_: Plan, table: Path) -> None:
    """Check that an existing table is comparable with the results to be added."""
    for what, earlier, here in (
        ("budget", before.meta["budget"], plan_.budget.to_dict()),
        ("library", before.meta["library"], training_jobs._program()["library"]),
        ("versions", before.meta["versions"], training_jobs._program()["versions"]),
        ("device", before.meta["device"], plan_.device.partition(":")[0]),
    ):
        if earlier != here:
            raise ValueError(
                f"{table} holds results of another {what} ({json.dumps(earlier)[:80]}): give another folder, or move it"
            )


def _without(before: BenchResults, contestants_: Iterable[str]) -> BenchResults:
    """Drop these contestants' rows, which new ones replace."""
    dropped = set(contestants_)
    remaining = {name: each for name, each in before.meta["contestants"].items() if name not in dropped}
    rows = before.table[~before.table["contestant"].isin(dropped)]
    return BenchResults(rows, before.meta | {"contestants": remaining})


@contextlib.contextmanager
def _backend(jobs: int, dask: str | None) -> Iterator[bool]:
    """Set up joblib's backend; yields True if jobs run in other processes."""
    if dask is None:
        yield jobs > 1
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise ValueError("dask needs the package distributed: pip install distributed") from error
    try:
        client = Client(dask, timeout=_PATIENCE)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise ValueError(
            f"no Dask scheduler answers at {dask}: start one with `dask scheduler`, and workers"
        ) from error
    with client, joblib.parallel_config(backend="dask"):
        yield True


_Key = tuple[str, str, float | None, int]


def _run_jobs(
    plan_: Plan, home: Path, jobs: int, shared: bool, quiet: bool
) -> tuple[dict[_Key, tuple[JobResult, bool]], dict[tuple[str, str], dict[str, Any]]]:
    """Run all jobs: results by contestant, training, rate and seed, each with a flag if selected; and the floors."""
    budget = plan_.budget
    training = [(c, t) for c in plan_.contestants for t in plan_.trained_on]

    def cell(contestant: Contestant, trained_on: str, rate: float, seed: int) -> Job:
        device = plan_.device if contestant.trained else "cpu"
        spec = JobSpec(contestant.spec, contestant.kind, contestant.name, contestant.path, contestant.source)
        names = plan_.trained_on[trained_on]
        return Job(spec, budget, trained_on, names, plan_.paths, rate, seed, device)

    first: list[tuple[Job, dict[str, tuple[str, ...]]]] = [
        (cell(c, t, rate, 0), {}) for c, t in training if c.trained for rate in budget.rates
    ]
    sets = {pair: None for t in plan_.trained_on for pair in _pairs(plan_.tests(t))}
    units = len(first) + sum(budget.seeds - 1 for c, _ in training if c.trained)
    job_results: dict[_Key, tuple[JobResult, bool]] = {}
    with _Bar(home, units * budget.steps, quiet) as bar:
        bar.expect(first)
        for job, outcome in _map_parallel(training_jobs.run_job, first, home, jobs, shared):
            job_results[_key(job)] = outcome, False
            bar.record_job(job)
        second: list[tuple[Job, dict[str, tuple[str, ...]]]] = []
        for c, t in training:
            rates = budget.rates if c.trained else (math.nan,)
            best = min(rates, key=lambda rate: job_results[c.name, t, rate, 0][0].validation) if c.trained else math.nan
            seeds = budget.seeds if c.trained else 1
            second += [(cell(c, t, best, seed), plan_.tests(t)) for seed in range(seeds)]
        bar.expect(second)
        for job, outcome in _map_parallel(training_jobs.run_job, second, home, jobs, shared):
            job_results[_key(job)] = outcome, True
            bar.record_job(job)
        floors = {}
        for pair, floor in _map_parallel(_floors, [(pair, budget, plan_.paths) for pair in sets], home, jobs, shared):
            floors[pair] = floor
    # In the order of the plan, not of completion.
    order = [_key(job) for job, _ in [*first, *second]]
    return {key: job_results[key] for key in order}, {pair: floors[pair] for pair in sets}


def _pairs(tests: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    return [(task, variant) for task, variants in tests.items() for variant in variants]


def _key(cell: Job) -> Any:
    # NaN does not equal itself as a key.
    return cell.contestant.name, cell.trained_on, None if math.isnan(cell.rate) else cell.rate, cell.seed


def _map_parallel(
    function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], home: Path, jobs: int, shared: bool
) -> Iterator[tuple[Any, Any]]:
    """Map a function over argument tuples, yielding results in order of completion."""
    with _quiet_workers() if shared else contextlib.nullcontext():
        parallel = joblib.Parallel(n_jobs=None if shared and jobs == 1 else jobs, return_as="generator_unordered")
        tasks = (
            joblib.delayed(_worker)(function, each, home, place, os.getpid()) for place, each in enumerate(arguments)
        )
        try:
            for given, answer, program in parallel(tasks):
                if program != training_jobs._program():
                    here = training_jobs._program()
                    raise ValueError(f"workers must have this library and these versions, {here}, got {program}")
                yield given, answer
        except BrokenProcessPool as error:
            raise ChildProcessError(
                f"a process of the run in {home} was killed, most likely for want of memory: what was done is kept, "
                f"and the same call goes on from there; with jobs below {jobs} if it was memory"
            ) from error


def _worker(
    function: Callable[..., Any], arguments: tuple[Any, ...], home: Path, place: int, asker: int
) -> tuple[Any, Any, dict[str, Any]]:
    """Run the function in a worker, on one of the GPUs visible there, which may be fewer than at the caller."""
    if os.getppid() == asker:
        _end_with(asker)
    job, *more = arguments
    here = job
    if isinstance(job, Job) and job.device == "cuda":
        count = torch.cuda.device_count()
        if not count:
            raise ValueError("a worker sees no GPU: give each worker one, or leave the device out")
        here = replace(job, device=f"cuda:{place % count}")
    # Training output must not mix with the table that the command prints.
    with contextlib.redirect_stdout(sys.stderr), _on(here.device if isinstance(here, Job) else "cpu"):
        return job, function(here, *more, home), training_jobs._program()


@functools.cache
def _end_with(parent: int) -> None:
    """Exit within a second of the parent's end, even if the parent is killed.

    Otherwise it would go on training, in a folder that another run may have locked by then.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _quiet_workers() -> Iterator[None]:
    """Disable progress bars in child processes."""
    before = os.environ.get("TQDM_DISABLE")
    os.environ["TQDM_DISABLE"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TQDM_DISABLE"]
        else:
            os.environ["TQDM_DISABLE"] = before


class _Bar:
    """Progress bar over the steps of all trainings, those in other processes included."""

    def __init__(self, home: Path, total: int, quiet: bool) -> None:
        self._home, self._total, self._steps, self._over = home, total, dict[Path, int](), threading.Event()
        self._bar = tqdm(total=total, file=sys.stderr, disable=quiet, unit=" steps", smoothing=0.05)
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "_Bar":
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watcher.join()
        self._bar.close()

    def expect(self, jobs: Sequence[tuple[Job, Any]]) -> None:
        """Add jobs to the expected total."""
        for cell, _ in jobs:
            if cell.trained:
                self._steps.setdefault(self._file(cell), 0)

    def record_job(self, cell: Job) -> None:
        """Record a finished job."""
        if cell.trained:
            self._steps[self._file(cell)] = cell.budget.steps
            self._show()

    def _file(self, cell: Job) -> Path:
        return cell.files(self._home).with_suffix(".steps")

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            for path, steps in self._steps.copy().items():
                with contextlib.suppress(OSError, ValueError):
                    self._steps[path] = max(steps, int(path.read_text()))
            self._show()

    def _show(self) -> None:
        self._bar.n = min(sum(self._steps.copy().values()), self._total)
        self._bar.refresh()


def _floors(pair: tuple[str, str], budget: Budget, paths: tuple[str, ...], home: Path) -> dict[str, Any]:
    """Floors of a task on the test prompts of a variant, and a hash of the prompts."""
    for each in paths:
        training_jobs._extend_path(each)
    task, prompt = training_jobs.prompts_for(*pair, budget)
    bench_task = tasks_of.find_tasks(pair[:1])[pair[0]]
    what = {
        "prompts": training_jobs._digest(prompt),
        "last": budget.last,
        "floors of": pair[0],
    } | training_jobs._program()
    path = home / "floors" / f"{training_jobs._hash_json(what)}.json"
    path.parent.mkdir(exist_ok=True)
    content = training_jobs._read_entry(path, what)
    if content is None:
        floors = {name: np.asarray(floor.errors(prompt)) for name, floor in bench_task.floors(task).items()}
        errors = {name: by_position[:, -budget.last :].mean(1) for name, by_position in floors.items()}
        errors[tables.ZERO] = training_jobs.squared_errors(filters.zero(), prompt, budget.last)
        content = {
            "errors": {name: by_prompt.tolist() for name, by_prompt in errors.items()},
            "reference": bench_task.reference(task),
        }
        training_jobs._write_entry(path, what, content)
    return content | {"prompts": what["prompts"]}


def _results(
    plan_: Plan,
    job_results: dict[_Key, tuple[JobResult, bool]],
    floors: dict[tuple[str, str], dict[str, Any]],
    warnings: dict[str, list[str]],
    weights: dict[str, costs.MeasuredCost],
) -> BenchResults:
    """Assemble the results table and its metadata."""
    rows = []
    for (task, variant), entry in floors.items():
        for name, errors in entry["errors"].items():
            kind = "filter" if name == tables.ZERO else "floor"
            rows.append((name, kind, "", math.nan, 0, task, variant, errors))
    facts: dict[str, Any] = {}
    for c in plan_.contestants:
        outcomes = {key[1:]: each for key, each in job_results.items() if key[0] == c.name}
        facts[c.name] = _run_metadata(plan_, c, outcomes, warnings[c.name], weights[c.name])
        for (trained_on, rate, seed), (outcome, counts) in outcomes.items():
            if not counts:
                continue
            for (task, variant), errors in outcome.errors.items():
                if variant in plan_.tests(trained_on).get(task, ()):
                    where = (trained_on if c.trained else "", math.nan if rate is None else rate, seed)
                    rows.append((c.name, c.kind, *where, task, variant, errors.tolist()))
    table = pd.DataFrame(rows, columns=list(tables.COLUMNS))
    known_tasks = tasks_of.find_tasks([*plan_.training, *plan_.only_tested])
    about = {
        name: {
            "title": task.title,
            "about": task.about,
            "shifted": name in plan_.only_tested,
            "reference": {v: entry["reference"] for (t, v), entry in floors.items() if t == name}["same"],
            "prompts": {v: entry["prompts"] for (t, v), entry in floors.items() if t == name},
        }
        for name, task in known_tasks.items()
        if (name, "same") in floors
    }
    meta = {
        "format": tables.FORMAT,
        "budget": plan_.budget.to_dict(),
        "train": plan_.train,
        "tasks": about,
        "contestants": facts,
        "device": plan_.device.partition(":")[0],
    } | training_jobs._program()
    return BenchResults(table, meta)


def _run_metadata(
    plan_: Plan,
    c: Contestant,
    outcomes: dict[Any, tuple[JobResult, bool]],
    warnings: list[str],
    weight: costs.MeasuredCost,
) -> dict[str, Any]:
    """Metadata of a contestant in a run."""
    warnings = list(warnings)
    rates: dict[str, dict[str, float]] = {}
    for (trained_on, rate, seed), (outcome, _) in outcomes.items():
        if rate is not None and seed == 0:
            rates.setdefault(trained_on, {})[repr(rate)] = outcome.validation
        if outcome.trouble:
            warnings.append(f"trained on {trained_on} at rate {rate:g}, seed {seed}: {outcome.trouble}")
    best = {trained_on: min(tried, key=lambda rate: tried[rate]) for trained_on, tried in rates.items()}
    for trained_on, rate in best.items():
        ends = [end for end, at in (("lowest", min), ("highest", max)) if float(rate) == at(plan_.budget.rates)]
        if ends and len(plan_.budget.rates) > 1:
            warnings.append(f"trained on {trained_on} it was best at the {ends[0]} rate tried, {rate}")
    return {
        "spec": c.spec,
        "kind": c.kind,
        "about": c.about,
        "source": c.source,
        "parameters": weight.parameters,
        "flops": weight.flops,
        "state_bytes": weight.state_bytes,
        "us_per_token": weight.us_per_token,
        "rates": rates,
        "rate": best,
        "settings": {key[0]: outcome.settings for key, (outcome, _) in outcomes.items() if outcome.settings},
        "seconds": round(math.fsum(outcome.seconds for outcome, _ in outcomes.values()), 1),
        "warnings": warnings,
    }
