"""Results of a run: a table with a row for each contestant, seed and test, and the run's metadata.

A row holds one error per test prompt. Test prompts depend on task, variant and budget alone, so comparisons are paired
by prompt, even between runs made at different times.

- Standard errors follow a two-way random-effects model, prompts by seeds. Errors are averaged over seeds first, as
  seeds share the prompts. The prompt component is the standard error of these averages over prompts; the seed component
  is the standard deviation of the seeds' means over the root of their number. They are added in quadrature, less the
  prompt-by-seed interaction, which both contain. With one seed, its component is unknown and omitted.
- A ratio is a ratio of means; its standard error is by the delta method, with the covariance over the shared prompts.
- Over tasks, ratios are averaged geometrically. Every task has its own prompts, drawn independently; a seed is the same
  training on all tasks, so the seed component is the spread of the seeds' own geometric means.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from icl import _checks, _files
from icl._bounds import validate_fields, validated

#: Version of the format of table and meta, stored in `meta`.
FORMAT = "icl-bench 2"
#: Columns of a table, in order. A row is a contestant, one training (rate and seed), and one test.
COLUMNS = ("contestant", "kind", "trained_on", "rate", "seed", "task", "variant", "errors")
#: Name of the zero predictor, the baseline of ratios where no floor is known.
ZERO = "answer 0"
#: Test groups of `aggregate`, in order (tasks trained on, held-out tasks, longer prompts of those trained on).
GROUPS = ("trained on", "shifted", "longer")

_FLOOR = "floor"
_ALL = "all"
_KEY, _CHECKSUM = b"icl-bench", b"icl-bench-checksum"
_TEXT = ("contestant", "kind", "trained_on", "task", "variant")


@dataclass(frozen=True)
class BenchResults:
    """Results table of a run, with its metadata.

    Attributes:
        table: columns :data:`COLUMNS`; `kind` is "floor" for limits, whose contestant is then "genie", "Bayes" or "best
            linear"; `trained_on` is "all", a task's name, or "" where nothing is trained; `rate` is then NaN; `errors`
            are squared errors against the clean label, averaged over the last positions, one a test prompt, and
            infinite where a training diverged.
        meta: budget, tasks, contestants and surroundings, as JSON holds them; its "format" is :data:`FORMAT`.

    Raises:
        ValueError: if columns are missing, errors are no valid errors, or meta has another format.
    """

    table: pd.DataFrame
    meta: dict[str, Any]

    def __post_init__(self) -> None:
        """Check table and meta; errors name the field."""
        validate_fields(self)
        if tuple(self.table.columns) != COLUMNS:
            raise ValueError(f"table must have the columns {', '.join(COLUMNS)}, got {', '.join(self.table.columns)}")
        if self.meta.get("format") != FORMAT:
            raise ValueError(f"meta must be of the format {FORMAT!r}, got {self.meta.get('format')!r}")
        object.__setattr__(self, "table", self.table.reset_index(drop=True))

    @property
    def floors(self) -> pd.DataFrame:
        """Rows of the known floors."""
        return self.table[self.table["kind"] == _FLOOR]

    @property
    def contestants(self) -> list[str]:
        """Names of the contestants, in order."""
        return list(dict.fromkeys(self.table.loc[self.table["kind"] != _FLOOR, "contestant"]))


@validated
def write_results(path: Path, results: BenchResults) -> None:
    """Write results as one Parquet file, atomically, with meta in the file's metadata under "icl-bench".

    A checksum of both is stored too, so that a damaged file is detected.

    Raises:
        ValueError: if a row is not as :class:`BenchResults` requires, or the meta is not JSON-serialisable.
        ImportError: without the package pyarrow.
        OSError: naming the path, if the disk refuses.
    """
    arrow, parquet = _pyarrow()
    try:
        meta = json.dumps(results.meta, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"meta must be what JSON holds: {error}") from error
    columns = {name: results.table[name].tolist() for name in COLUMNS}
    columns["errors"] = [np.asarray(each, dtype=np.float64).tolist() for each in columns["errors"]]
    kinds = {"rate": arrow.float64(), "seed": arrow.int64(), "errors": arrow.list_(arrow.float64())}
    schema = arrow.schema([(name, kinds.get(name, arrow.string())) for name in COLUMNS])
    try:
        table = arrow.table(columns, schema=schema)
    except (arrow.ArrowException, TypeError, ValueError) as error:
        raise ValueError(f"table must hold names, numbers and lists of errors: {error}") from error
    table = table.replace_schema_metadata({_KEY: meta.encode(), _CHECKSUM: _files.checksum([columns, meta]).encode()})
    buffer = arrow.BufferOutputStream()
    # Dictionary encoding for names only: it would not distinguish 0 from -0.
    parquet.write_table(table, buffer, compression="zstd", use_dictionary=list(_TEXT))
    _files.write(path, buffer.getvalue().to_pybytes())


@validated
def read_results(path: Path) -> BenchResults:
    """Read a file of :func:`write_results`, bitwise equal to the results written.

    Raises:
        ValueError: if there is no such file, or it is damaged, edited, foreign or of another format: with its path and
            the remedy.
        ImportError: without the package pyarrow.
    """
    arrow, parquet = _pyarrow()
    if not path.is_file():
        raise ValueError(f"{path} is no file: give the results.parquet of a run")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    if content[:4] != b"PAR1":
        raise ValueError(f"{path} is no Parquet file: give the results.parquet of a run")
    try:
        table = parquet.read_table(arrow.BufferReader(content), use_threads=False)
        columns = {name: table.column(name).to_pylist() for name in table.column_names}
    except (arrow.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise ValueError(
            f"{path} is damaged or cut short: make it again by the run that wrote it, which takes seconds"
        ) from error
    held = table.schema.metadata or {}
    if _KEY not in held:
        raise ValueError(f"{path} was not written by icl-bench: give the results.parquet of a run")
    changed = f"{path} is damaged or was changed by hand: make it again by the run that wrote it, which takes seconds"
    try:
        meta = json.loads(held[_KEY])
        form = meta.get("format")
    except (ValueError, AttributeError) as error:
        raise ValueError(changed) from error
    if form != FORMAT:
        raise ValueError(
            f"{path} is of the format {form!r}, and this version of icl-bench reads {FORMAT!r}: use the version that "
            f"wrote it, or make the results again"
        )
    try:
        checksum = held.get(_CHECKSUM, b"").decode()
        intact = list(columns) == list(COLUMNS) and checksum == _files.checksum([columns, held[_KEY].decode()])
    except (TypeError, ValueError) as error:  # numbers in place of names
        raise ValueError(changed) from error
    if not intact:
        raise ValueError(changed)
    return BenchResults(pd.DataFrame(columns, columns=list(COLUMNS)), meta)


@validated
def summary(results: BenchResults) -> pd.DataFrame:
    """Risk and ratio to the floor of every contestant on every test, without the floors' own rows.

    Columns: contestant, kind, trained_on, task, variant; risk, the mean squared error, and se; ratio, risk over that of
    the reference on the same prompts, and ratio_se; low and high, the smallest and largest ratio of a single seed;
    reference, the ratio's denominator: a floor, :data:`ZERO` where none is known, or "" where that is missing too and
    the ratio NaN; seeds, their number; group, one of :data:`GROUPS`. The risk is infinite if a seed diverged, and its
    standard error NaN.
    """
    tests = _Tests(results)
    rows = []
    for (contestant, trained_on, task, variant), test in tests.taken.items():
        reference, against = tests.reference(task, variant)
        ratio = _geometric([((task, variant), test, against)]) if against else _Mean(*[math.nan] * 4)
        where = (contestant, test.kind, trained_on, task, variant)
        group = tests.group(trained_on, task, variant)
        rows.append((*where, *_risk(test), *astuple(ratio), reference, len(test.seeds), group))
    names = "contestant kind trained_on task variant risk se ratio ratio_se low high reference seeds group"
    return pd.DataFrame(rows, columns=names.split())


@validated
def floor_table(results: BenchResults) -> pd.DataFrame:
    """Known floors of every test, in columns task, variant, floor, risk on the test prompts, se, is_reference."""
    tests = _Tests(results)
    rows = []
    for (floor, task, variant), test in tests.floors.items():
        rows.append((task, variant, floor, *_risk(test), floor == tests.reference(task, variant)[0]))
    return pd.DataFrame(rows, columns=["task", "variant", "floor", "risk", "se", "is_reference"])


@validated
def aggregate(results: BenchResults, *, against: str | None = None) -> pd.DataFrame:
    """Geometric mean of every contestant's ratios over the tasks of a group.

    Columns: contestant, kind, trained_on ("each" for one training a task), group (one of :data:`GROUPS`); tasks, their
    number; ratio and ratio_se; low and high, the smallest and largest ratio of a task; reference, "floor" for each
    task's own, or :data:`ZERO` if no task of the group has one. If some tasks have a floor, those without are left out
    of the mean.

    Args:
        results: of one run, or of several :func:`concat`.
        against: name of a contestant as the reference in place of the floors; reference is then this name.
    """
    if against is not None:
        _check_contestant(results, "against", against)
    tests = _Tests(results)
    rows = []
    for (contestant, training, group), pairs in _group_tests(tests, against, by_task=False).items():
        terms = [term for term, reference in pairs if reference != ZERO or against == ZERO]
        of = (against or "floor") if terms else ZERO
        terms = terms or [term for term, _ in pairs]
        mean = _geometric(terms)
        with np.errstate(divide="ignore"):
            ratios = [float(one.errors.mean() / other.errors.mean()) for _, one, other in terms]
        where = (contestant, terms[0][1].kind, training, group, len({place for place, _, _ in terms}))
        rows.append((*where, mean.ratio, mean.ratio_se, min(ratios), max(ratios), of))
    who = {name: place for place, name in enumerate(results.contestants)}
    rows.sort(key=lambda row: (who[row[0]], row[2], GROUPS.index(row[3])))
    names = "contestant kind trained_on group tasks ratio ratio_se low high reference"
    return pd.DataFrame(rows, columns=names.split())


@validated
def per_task(results: BenchResults, *, against: str | None = None) -> pd.DataFrame:
    """Ratio of every contestant on every test: the geometric mean over its trainings.

    Columns: contestant, kind, trained_on ("each" for one training a task), group, task, variant; ratio and ratio_se;
    reference, the ratio's denominator.

    Args:
        results: of one run, or of several :func:`concat`.
        against: name of a contestant as the reference in place of the floors.
    """
    if against is not None:
        _check_contestant(results, "against", against)
    rows = []
    for (contestant, training, group, *place), pairs in _group_tests(_Tests(results), against, by_task=True).items():
        terms = [term for term, _ in pairs]
        mean = _geometric(terms)
        where = (contestant, terms[0][1].kind, training, group, *place)
        rows.append((*where, mean.ratio, mean.ratio_se, pairs[0][1]))
    names = "contestant kind trained_on group task variant ratio ratio_se reference"
    return pd.DataFrame(rows, columns=names.split())


@validated
def paired_comparison(results: BenchResults, one: str, other: str) -> pd.DataFrame:
    """Paired comparison of two contestants, prompt by prompt, on each test that both have taken.

    Columns: trained_on, task, variant; ratio, risk of `one` over that of `other`, and ratio_se; difference of the two
    risks, and difference_se; group, one of :data:`GROUPS`. If both have the same seeds, which train on the same
    prompts, they are paired by seed too: the spread is that of the seeds' own ratios and differences.

    Raises:
        ValueError: if one of them is not in the results, or they have no test in common.

    >>> test = ["layer", "all", 0.01, 0, "drift", "same"]
    >>> rows = [["GLA", *test, np.array([2.0, 4.0])], ["softmax", *test, np.array([3.0, 5.0])]]
    >>> results = BenchResults(pd.DataFrame(rows, columns=list(COLUMNS)), {"format": FORMAT})
    >>> round(float(paired_comparison(results, "softmax", "GLA").ratio[0]), 3)
    1.333
    """
    _check_contestant(results, "one", one)
    _check_contestant(results, "other", other)
    tests = _Tests(results)
    rows = []
    for (contestant, trained_on, task, variant), test in tests.taken.items():
        against = tests.matching(other, trained_on, task, variant) if contestant == one else None
        if against is not None:
            ratio = _geometric([((task, variant), test, against)])
            numbers = (ratio.ratio, ratio.ratio_se, *_difference(test, against))
            rows.append((trained_on, task, variant, *numbers, tests.group(trained_on, task, variant)))
    if not rows:
        raise ValueError(f"{one} and {other} have no test in common: run them on the same tasks, trained alike")
    names = "trained_on task variant ratio ratio_se difference difference_se group"
    return pd.DataFrame(rows, columns=names.split())


@validated
def concat(runs: Sequence[BenchResults]) -> BenchResults:
    """Concatenate runs into one table, without duplicates.

    Raises:
        ValueError: if they cannot be compared, because budgets, test prompts, floors or the tasks that "all" means
            differ, or if two different contestants have one name. The message says which.
    """
    if not runs:
        raise ValueError("runs must be at least one, got none")
    for run in runs:
        _checks.instance("runs", run, BenchResults)
    on_all = [bool((run.table["trained_on"] == _ALL).any()) for run in runs]
    meta = _merge_run_metadata([run.meta for run in runs], on_all)
    rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for run in runs:
        for row in run.table.itertuples(index=False, name=None):
            contestant, kind, trained_on, _, seed, task, variant, errors = row
            key = contestant, kind == _FLOOR, trained_on, seed, task, variant
            same = rows.setdefault(key, row)
            if same is row:
                continue
            if not np.array_equal(errors, same[-1]):
                if kind == _FLOOR:
                    raise ValueError(f"runs must have the same floors, got others of {task}, {variant}: {_AGAIN}")
                raise ValueError(f"runs must not have other results of {contestant} on {task}, {variant}: {_NAME}")
    return BenchResults(pd.DataFrame(list(rows.values()), columns=list(COLUMNS)), meta)


@validated
def rename(results: BenchResults, names: Mapping[str, str]) -> BenchResults:
    """Rename contestants, so that two of the same name can be in one table.

    Args:
        results: of a run.
        names: new ones by old ones.

    Raises:
        ValueError: if an old name is missing, or a new one is taken.
    """
    for old in names:
        _check_contestant(results, "names", old)
    after = [names.get(name, name) for name in results.contestants]
    if taken := [name for name in names.values() if after.count(name) > 1]:
        raise ValueError(f"names must not give a name that is taken, got {taken[0]}")
    table = results.table.copy()
    mine = table["kind"] != _FLOOR
    table.loc[mine, "contestant"] = [names.get(name, name) for name in table.loc[mine, "contestant"]]
    facts = {names.get(name, name): each for name, each in results.meta.get("contestants", {}).items()}
    return BenchResults(table, results.meta | {"contestants": facts})


_Where = tuple[str, str, str, str]
_Pair = tuple[str, str]


@dataclass(frozen=True)
class _Test:
    """Errors of all seeds, (seeds, prompts), on the prompts of one test."""

    kind: str
    seeds: tuple[int, ...]
    errors: np.ndarray


_Term = tuple[_Pair, _Test, _Test]


class _Tests:
    """Results indexed by test, with the reference of each test."""

    @validated
    def __init__(self, results: BenchResults) -> None:
        """Index the rows, and check that they are paired by prompt."""
        self._meta = results.meta
        #: By contestant, trained on, task and variant, in the order of the table.
        self.taken: dict[_Where, _Test] = {}
        #: By floor, task and variant.
        self.floors: dict[tuple[str, str, str], _Test] = {}
        grouped_rows: dict[tuple[bool, _Where], list[tuple[int, str, Any]]] = {}
        for row in results.table.itertuples(index=False, name=None):
            contestant, kind, trained_on, _, seed, task, variant, errors = row
            grouped_rows.setdefault((kind == _FLOOR, (contestant, trained_on, task, variant)), []).append(
                (seed, kind, errors)
            )
        sizes: dict[_Pair, int] = {}
        for (is_floor, where), rows in grouped_rows.items():
            rows.sort(key=lambda row: row[0])
            errors = [np.asarray(values, dtype=np.float64) for _, _, values in rows]
            size = sizes.setdefault(where[2:], errors[0].size)
            what = f"{where[0]} on {where[2]}, {where[3]}"
            if size < 2 or any(part.shape != (size,) for part in errors):
                raise ValueError(f"table must hold one error for each of at least 2 prompts, of {what} it does not")
            seeds = tuple(seed for seed, _, _ in rows)
            if len(set(seeds)) < len(seeds):
                raise ValueError(f"table must hold a seed once, of {what} it holds {seeds}")
            test = _Test(rows[0][1], seeds, np.stack(errors))
            if is_floor:
                self.floors[where[0], where[2], where[3]] = test
            else:
                self.taken[where] = test

    def reference(self, task: str, variant: str) -> tuple[str, _Test | None]:
        """Denominator of ratios: the task's floor if it is known and above 0, or else the zero predictor."""
        name = self._meta.get("tasks", {}).get(task, {}).get("reference", "")
        floor = self.floors.get((name, task, variant))
        if floor is not None and floor.errors.mean() > 0:
            return name, floor
        zero = self.taken.get((ZERO, "", task, variant))
        return (ZERO, zero) if zero is not None else ("", None)

    def matching(self, other: str, trained_on: str, task: str, variant: str) -> _Test | None:
        """Errors of another contestant with the same training, or untrained, on the same prompts; None if missing."""
        alike = [trained_on, ""] if trained_on else ["", _ALL, task]
        return next((self.taken[key] for t in alike if (key := (other, t, task, variant)) in self.taken), None)

    def training(self, contestant: str, trained_on: str) -> str:
        """Label of a training across tasks."""
        if trained_on in ("", _ALL):
            return trained_on
        trainings = {where[1] for where in self.taken if where[0] == contestant} - {"", _ALL}
        return trained_on if len(trainings) == 1 else "each"

    def group(self, trained_on: str, task: str, variant: str) -> str:
        """Group of a test: task trained on, shifted task, or longer prompts."""
        if variant != "same":
            return "longer"
        # Untrained contestants are grouped as the trained ones are.
        trained_on = trained_on or str(self._meta.get("train", _ALL))
        shifted = bool(self._meta.get("tasks", {}).get(task, {}).get("shifted", False))
        home = not shifted if trained_on in (_ALL, "each") else trained_on == task
        return "trained on" if home else "shifted"


def _group_tests(tests: _Tests, against: str | None, *, by_task: bool) -> dict[Any, list[tuple[_Term, str]]]:
    """Group tests and their references by contestant, training and group; with `by_task`, by task and variant too."""
    groups: dict[Any, list[tuple[_Term, str]]] = {}
    for (contestant, trained_on, task, variant), test in tests.taken.items():
        if against is None:
            reference, other = tests.reference(task, variant)
        else:
            reference, other = against, tests.matching(against, trained_on, task, variant)
        if other is not None:
            group = tests.group(trained_on, task, variant)
            key = (contestant, tests.training(contestant, trained_on), group, *((task, variant) if by_task else ()))
            groups.setdefault(key, []).append((((task, variant), test, other), reference))
    return groups


@dataclass(frozen=True)
class _Mean:
    ratio: float
    ratio_se: float
    low: float
    high: float


def _geometric(terms: Sequence[_Term]) -> _Mean:
    """Geometric mean over terms of the ratio of two paired risks, its standard error, and the seeds' range.

    Delta method: a prompt with errors a and b, of a test with risks A and B, contributes (a / A - b / B) /
    (terms * prompts) to its logarithm. Terms that share prompts, one test of several trainings, are added up first.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        paired_ = _paired_by_seed(*terms[0][1:])
        influence: dict[_Pair, list[Any]] = {}
        ones, references = [], []
        for place, one, other in terms:
            a, b = (test.errors / test.errors.mean() / len(terms) for test in (one, other))
            before = influence.get(place, [0.0, 0.0])
            parts = [a - b] if paired_ else [a, -b]
            influence[place] = [total + part for total, part in zip(before, parts, strict=False)]
            ones.append(np.log(one.errors.mean(1)))
            references.append(np.log(other.errors.mean(1)))
        both = math.fsum(_interaction(part) for parts in influence.values() for part in parts)
        by_prompt = [sum(part.mean(0) for part in parts) for parts in influence.values()]
        risks = [(one.errors.mean(), other.errors.mean()) for _, one, other in terms]
        mean = float(np.exp(np.mean([np.log(A / B) for A, B in risks])))
        prompts = mean**2 * math.fsum(errors.var(ddof=1) / errors.size for errors in by_prompt)
        # A seed is one training on all tasks: average over tasks before taking the spread over seeds.
        first, second = np.exp(np.mean(ones, axis=0)), np.exp(np.mean(references, axis=0))
        ratios = first / second if paired_ else first / second.mean()
        seeds = _spread(ratios) if paired_ else _spread(ratios) + _spread(first.mean() / second)
    return _Mean(mean, _standard_error(prompts, seeds, mean**2 * both), float(ratios.min()), float(ratios.max()))


def _risk(test: _Test) -> tuple[float, float]:
    """Mean squared error and its standard error."""
    with np.errstate(invalid="ignore"):
        errors = test.errors
        prompts = errors.mean(0).var(ddof=1) / errors.shape[1]
        return float(errors.mean()), _standard_error(prompts, _spread(errors.mean(1)), _interaction(errors))


def _difference(one: _Test, other: _Test) -> tuple[float, float]:
    """Difference of two risks and its standard error."""
    with np.errstate(invalid="ignore"):
        gaps = one.errors.mean(0) - other.errors.mean(0)
        parts = [one.errors - other.errors] if _paired_by_seed(one, other) else [one.errors, other.errors]
        seeds = math.fsum(_spread(part.mean(1)) for part in parts)
        both = math.fsum(_interaction(part) for part in parts)
        return float(gaps.mean()), _standard_error(gaps.var(ddof=1) / gaps.size, seeds, both)


def _paired_by_seed(one: _Test, other: _Test) -> bool:
    """True if two are paired by seed: both have the same seeds, or one of them has a single seed."""
    return one.seeds == other.seeds or 1 in (len(one.seeds), len(other.seeds))


def _spread(values: np.ndarray) -> float:
    """Variance of the mean over seeds; 0 for one seed, where it is unknown."""
    return float(values.var(ddof=1) / len(values)) if len(values) > 1 else 0.0


def _interaction(errors: np.ndarray) -> float:
    """Seed-by-prompt interaction: its share of the variance of the mean over seeds and prompts.

    The interaction mean square of a two-way layout; the spread over prompts and that over seeds both contain it.
    """
    seeds, prompts = errors.shape
    if seeds == 1:
        return 0.0
    left = errors - errors.mean(0) - errors.mean(1, keepdims=True) + errors.mean()
    return float((left**2).sum() / ((seeds - 1) * (prompts - 1)) / errors.size)


def _standard_error(prompts: float, seeds: float, both: float) -> float:
    """Standard error from prompt and seed variances less their interaction; at least that of the prompts alone."""
    return math.sqrt(prompts + max(seeds - both, 0.0)) if math.isfinite(seeds) else math.nan


def _check_contestant(results: BenchResults, argument: str, name: str) -> None:
    if name not in results.contestants:
        raise ValueError(f"{argument} must be one of {', '.join(results.contestants)}, got {name!r}")


_AGAIN = "make one of them again with this version of icl-bench"
_NAME = "give one of them another name"


def _merge_run_metadata(metas: Sequence[Mapping[str, Any]], all_: Sequence[bool]) -> dict[str, Any]:
    """Merge the metadata of several runs; runs that are not comparable are an error."""
    first = dict(metas[0])
    for meta in metas[1:]:
        for name in sorted({*first["budget"], *meta["budget"]}):
            mine, other = first["budget"].get(name), meta["budget"].get(name)
            if mine != other:
                raise ValueError(
                    f"runs must have the same budget, got {name} {mine} and {other}: run one of them again"
                )
    tasks: dict[str, Any] = {}
    contestants: dict[str, Any] = {}
    # Runs that train on all tasks first: only they determine which tasks are shifted.
    for meta in [meta for meta, on_all in sorted(zip(metas, all_, strict=True), key=lambda pair: not pair[1])]:
        for name, task in meta["tasks"].items():
            earlier = tasks.setdefault(name, task)
            if earlier is task:
                continue
            for variant in earlier["prompts"].keys() & task["prompts"].keys():
                if earlier["prompts"][variant] != task["prompts"][variant]:
                    raise ValueError(f"runs must have the same test prompts, got others of {name}, {variant}: {_AGAIN}")
            if earlier["reference"] != task["reference"]:
                raise ValueError(f"runs must have the same floors, got others of {name}: {_AGAIN}")
            tasks[name] = earlier | {"prompts": task["prompts"] | earlier["prompts"]}
    for meta in metas:
        for name, facts in meta["contestants"].items():
            earlier = contestants.setdefault(name, facts)
            if earlier is facts:
                continue
            for what in ("source", "kind"):
                if earlier.get(what) != facts.get(what):
                    raise ValueError(f"runs must not have two contestants called {name}, of different {what}: {_NAME}")
            contestants[name] = _merge_metadata(earlier, facts)
    trained = [
        {name for name, task in meta["tasks"].items() if not task["shifted"]}
        for meta, on_all in zip(metas, all_, strict=True)
        if on_all
    ]
    for other in trained[1:]:
        if apart := sorted(trained[0] ^ other):
            raise ValueError(f'runs must train "all" on the same tasks, got {", ".join(apart)} in one of them only')
    both = {name: _join_distinct(meta.get(name) for meta in metas) for name in ("library", "device")}
    names = dict.fromkeys(name for meta in metas for name in meta["versions"])
    versions = {name: _join_distinct(meta["versions"].get(name) for meta in metas) for name in names}
    train = {meta.get("train", _ALL) for meta in metas}
    joined = first | both | {"tasks": tasks, "contestants": contestants, "versions": versions}
    return joined | {"train": train.pop() if len(train) == 1 else _ALL}


def _merge_metadata(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a contestant's metadata of two runs."""
    joined = dict(other) | dict(one)
    for name in ("rates", "rate", "settings"):
        if name in joined:
            joined[name] = {**other.get(name, {}), **one.get(name, {})}
    shared = set(one.get("rates", {})) & set(other.get("rates", {}))
    seconds = [each.get("seconds", 0.0) for each in (one, other)]
    warnings = [*one.get("warnings", []), *other.get("warnings", [])]
    return joined | {"seconds": max(seconds) if shared else sum(seconds), "warnings": list(dict.fromkeys(warnings))}


def _join_distinct(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value))


def _pyarrow() -> tuple[Any, Any]:
    """Import pyarrow lazily: only Parquet files need it."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(
            "results are kept as Parquet, by the package pyarrow: pip install 'icl-book[bench]'"
        ) from error
    return pyarrow, parquet
