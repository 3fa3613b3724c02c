"""Benchmark grids: errors of predictors on tasks x seeds, on the same prompts, in any number of processes.

A cell of the grid is one task and one seed. Its prompts come from a stream named after both, all predictors read them,
and errors are against the clean label <w_i, x_i>, averaged over the last positions. A cell's result depends on its own
settings alone, so that one process, several, a resumed run and a cluster give the same numbers to the bit (on one kind
of machine, with the same versions of torch and numpy).

Cells are distributed by joblib. By default `run_grid` runs them one by one; inside

    with joblib.parallel_config(backend="dask"): ...

it sends them to the Dask cluster of the current client, and with `n_jobs=2` to two processes. Makers must be defined in
the library, a notebook or an installed package: Dask pickles a function of any other file by its name, and hangs if a
worker cannot import it.
"""

import functools
import hashlib
import json
import math
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import joblib
import numpy as np
import pandas as pd
import torch
from annotated_types import Ge
from tqdm import tqdm

from icl import _checks, _files, _source, profile
from icl._bounds import Count, validate_fields, validated
from icl.experiments.checkpoint import to_jsonable
from icl.experiments.evaluation import Predictor, one_step_ahead
from icl.tasks import Prompt, Task, clean

_NUMBERS = ("risk", "se", "difference", "difference_se")


class CellFailed(RuntimeError):
    """Failure to build a predictor or to predict; the message names it, the task and the seed."""


@dataclass(frozen=True)
class Expected:
    """A closed-form error in place of a predictor: a theoretical limit beside measured errors.

    Attributes:
        errors: from prompts to expected squared errors against the clean label, (batch, time).
    """

    errors: Callable[[Prompt], Any]


Maker = Callable[[Task], "Predictor | Expected"]


@dataclass(frozen=True, eq=False)
class Grid:
    """Tasks, predictors and sizes of a benchmark.

    Attributes:
        tasks: by name; a cell's prompts are drawn from the stream "<stream>/<task's name>" at its seed.
        makers: by name, functions from a task to its predictor; the name should state its known parameters or its
            tuning.
        seeds: number of cells a task; they are 0 .. seeds - 1.
        batch: prompts a cell.
        last: number of positions, counted from the end, that are averaged.
        reference: name of the predictor that the others are compared with, prompt by prompt.
        stream: first part of the streams' names.
    """

    tasks: Mapping[str, Task]
    makers: Mapping[str, Maker]
    seeds: Count
    batch: Annotated[int, Ge(2)]
    last: Count
    reference: str
    stream: str = "benchmark"

    def __post_init__(self) -> None:
        """Validate names, the reference and sizes."""
        validate_fields(self)
        named: tuple[tuple[str, Any], ...] = (("tasks", self.tasks), ("makers", self.makers))
        for name, given in named:
            if not isinstance(given, Mapping):
                raise ValueError(f"{name} must map names to them, got {given!r}")
            if not given or not all(key and isinstance(key, str) for key in given):
                raise ValueError(f"{name} must be at least one, each with a name, got {list(given)}")
        for name, task in self.tasks.items():
            if not isinstance(task, Task):
                raise ValueError(f"tasks must be tasks, got {task!r} for {name!r}")
        for name, maker in self.makers.items():
            if not callable(maker):
                raise ValueError(f"makers must be functions from a task to a predictor, got {maker!r} for {name!r}")
        _checks.one_of("reference", self.reference, self.makers)
        shortest = min(task.n for task in self.tasks.values()) + 1
        if self.last > shortest:
            raise ValueError(f"last must be at most the {shortest} positions of the shortest task, got {self.last}")
        if not self.stream:
            raise ValueError(f"stream must be a non-empty string, got {self.stream!r}")

    @validated
    def fingerprint(self, task: str) -> str:
        """Hash of everything that determines a cell of this task except its seed: task, sizes, code, versions.

        The makers are represented by the text of the running program (the notebook's cells so far, or the script) and
        the library's files. A changed comment changes the hash too.

        Raises:
            ValueError: if the task refers to something that is not JSON-serialisable.
        """
        _checks.one_of("task", task, self.tasks)
        what = {name: getattr(self, name) for name in ("batch", "last", "reference", "stream")}
        what |= {"name": task, "task": to_jsonable(self.tasks[task]), "makers": list(self.makers)}
        text = json.dumps([what, _source.program(), _environment()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Results:
    """Results of a benchmark.

    Attributes:
        table: tidy rows: task, method, seed; risk, the mean squared error, and se; difference, risk less that of the
            reference on the same prompts, and difference_se. Standard errors are over prompts.
        reference: name of the predictor the others are compared with.
        provenance: sizes, fingerprint of each task, versions and hash of the library's code.
    """

    table: pd.DataFrame
    reference: str
    provenance: dict[str, Any]

    def pooled(self) -> pd.DataFrame:
        """Pool all seeds: task, method, the four numbers, and ratio, risk over that of the reference, and ratio_se.

        Seeds are independent and of one size. With a and b the two risks and r their ratio, var(r) is to first order
        (var(a) - 2 r cov(a, b) + r^2 var(b)) / b^2, and var(a - b) = difference_se^2 determines the covariance.
        """
        order = [self.table[name].drop_duplicates() for name in ("task", "method")]
        groups = self.table.groupby(["task", "method"], sort=False)
        table = groups[["risk", "difference"]].mean()
        for name in ("se", "difference_se"):
            table[name] = groups[name].agg(lambda se: math.sqrt(math.fsum(se**2)) / len(se))
        base = table.xs(self.reference, level="method").reindex(table.index, level="task")
        table["ratio"] = table["risk"] / base["risk"]
        covariance = (table["se"] ** 2 + base["se"] ** 2 - table["difference_se"] ** 2) / 2
        variance = table["se"] ** 2 - 2 * table["ratio"] * covariance + (table["ratio"] * base["se"]) ** 2
        table["ratio_se"] = np.sqrt(variance.clip(lower=0)) / base["risk"]
        table = table.reindex(pd.MultiIndex.from_product(order, names=["task", "method"]))
        return table.reset_index()[["task", "method", *_NUMBERS, "ratio", "ratio_se"]]


@validated
def run_grid(grid: Grid, folder: Path | str | None = None, *, jobs: Count | None = None) -> Results:
    """Run all cells of a grid and return their results.

    Args:
        grid: tasks, predictors and sizes.
        folder: where finished cells are kept, one JSON file each, written atomically; a cell that is there already is
            read and not run again. None keeps nothing.
        jobs: number of processes. None is one, or that of a surrounding `joblib.parallel_config`.

    Raises:
        CellFailed: if a predictor cannot be made or used, by name; finished cells stay.
        ValueError: if the folder holds a cell of another grid, library or version, or one that cannot be read: with its
            path and the reason, and nothing is overwritten; or if a worker has another library or version.

    >>> from icl.experiments.grid import Grid, run_grid
    >>> from icl.filters import kalman, lms
    >>> from icl.tasks import DriftingRegression
    >>> task = DriftingRegression(d=3, n=30, gamma=0.95, sigma_w=1.0, sigma_e=0.3)
    >>> makers = {"LMS": lambda task: lms(0.2), "Kalman, parameters known": kalman}
    >>> grid = Grid({"AR(1)": task}, makers, seeds=2, batch=50, last=10, reference="Kalman, parameters known")
    >>> results = run_grid(grid)
    >>> results.table.shape, bool(results.pooled()["ratio"].min() == 1)  # no predictor beats the Kalman filter
    ((4, 7), True)
    """
    if folder is not None:
        _checks.instance("folder", folder, str, Path)
    if folder is not None and not _source.program():
        raise ValueError("folder must be None where there is no notebook and no file that says what the makers do")
    prints = {task: grid.fingerprint(task) for task in grid.tasks}
    home = None if folder is None else Path(folder)
    cells = [(task, seed) for task in grid.tasks for seed in range(grid.seeds)]
    done: dict[tuple[str, int], list[dict[str, Any]]] = {}
    if home is not None:
        home.mkdir(parents=True, exist_ok=True)
        # Existing cells are read before any work begins, so that a foreign folder is refused at once.
        for cell in cells:
            path = _path(home, *cell)
            if path.exists():
                done[cell] = _read(path, *cell, prints[cell[0]], list(grid.makers))
    todo = [cell for cell in cells if cell not in done]
    work = (
        joblib.delayed(_cell)(
            grid.tasks[t], dict(grid.makers), (t, seed), grid.batch, grid.last, grid.reference, grid.stream
        )
        for t, seed in todo
    )
    with tqdm(total=len(cells), initial=len(done), file=sys.stdout, leave=False, unit=" cells") as bar:
        for cell, rows, environment in (
            joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(work) if todo else ()
        ):
            if environment != _environment():
                raise ValueError(
                    f"workers must have this library and these versions, {_environment()}, got {environment}"
                )
            if home is not None:
                _write(_path(home, *cell), cell, prints[cell[0]], rows)
            done[cell] = rows
            bar.update()
    head = [{"task": task, "seed": seed} | row for task, seed in cells for row in done[task, seed]]
    table = pd.DataFrame(head)[["task", "method", "seed", *_NUMBERS]]
    config = {name: getattr(grid, name) for name in ("seeds", "batch", "last", "reference", "stream")}
    return Results(table, grid.reference, {"config": config, "fingerprints": prints} | _environment())


def _cell(
    task: Task, makers: dict[str, Maker], cell: tuple[str, int], batch: int, last: int, reference: str, stream: str
) -> tuple[tuple[str, int], list[dict[str, Any]], dict[str, Any]]:
    """Run one task and seed: the cell, a row of numbers for every predictor, and the environment."""
    name, seed = cell
    threads = torch.get_num_threads()
    # One thread, so that the order of summation does not depend on the machine.
    torch.set_num_threads(1)
    try:
        prompt = task.sample(
            batch, generator=profile.make_generator(f"{stream}/{name}", seed=seed), dtype=torch.float64
        )
        errors = {method: _errors(maker, task, prompt, last, method, cell) for method, maker in makers.items()}
    finally:
        torch.set_num_threads(threads)
    rows = []
    for method, values in errors.items():
        numbers = (*_mean(values), *_mean(values - errors[reference]))
        rows.append({"method": method} | dict(zip(_NUMBERS, numbers, strict=True)))
    return cell, rows, _environment()


def _errors(maker: Maker, task: Task, prompt: Prompt, last: int, method: str, cell: tuple[str, int]) -> np.ndarray:
    """Squared error of each prompt, averaged over the last positions."""
    try:
        predictor = maker(task)
        if isinstance(predictor, Expected):
            squares = np.asarray(predictor.errors(prompt), dtype=np.float64)
        else:
            squares = (one_step_ahead(predictor, prompt) - clean(prompt)).square().numpy(force=True)
        _checks.shape("errors", squares, tuple(prompt.y.shape), "one a prompt and position")
        _checks.real("errors", squares, at_least=0, at_most=1e150)  # their squares are averaged too
    except Exception as error:
        raise CellFailed(f"{method} failed on {cell[0]}, seed {cell[1]}: {type(error).__name__}: {error}") from error
    return squares[:, -last:].mean(1)


def _mean(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def _path(folder: Path, task: str, seed: int) -> Path:
    # Injective: any task's name becomes a file name, and no two the same.
    return folder / f"{quote(task, safe=' ,=()')}.{seed}.json"


def _write(path: Path, cell: tuple[str, int], fingerprint: str, rows: list[dict[str, Any]]) -> None:
    content = {"task": cell[0], "seed": cell[1], "fingerprint": fingerprint, "rows": rows}
    _files.write(path, (json.dumps(content, indent=1) + "\n").encode())


def _read(path: Path, task: str, seed: int, fingerprint: str, methods: list[str]) -> list[dict[str, Any]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if (content["task"], content["seed"]) != (task, seed):
            raise ValueError(f"it holds {content['task']!r}, seed {content['seed']!r}")
        if content["fingerprint"] != fingerprint:
            raise ValueError("it was made by another grid, library or version; give another folder, or remove it")
        rows = content["rows"]
        if [row["method"] for row in rows] != methods:
            raise ValueError("it holds other predictors")
        for row in rows:
            if set(row) != {"method", *_NUMBERS}:
                raise ValueError(f"it holds {sorted(row)}")
            for name in _NUMBERS:
                _checks.number(name, row[name])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"cannot use the cell {path}: {error}") from error
    return list(rows)


@functools.cache
def _environment() -> dict[str, Any]:
    """Library and versions that every cell depends on, and that workers must share."""
    versions = {name: metadata.version(name) for name in ("torch", "numpy", "scipy")}
    return {"library": _source.digest("icl"), "versions": versions | {"python": platform.python_version()}}
