"""Training job: one contestant, learning rate and seed, tested on the shared prompts.

A job's result depends only on its description, hashed in its `fingerprint`: contestant and its source, sizes, tasks,
rate, seed, the library's code and versions. The hash names the job's files, so a killed run resumes, a repeated run
does no work, and a changed layer never reuses an old result. On one kind of machine, a single process, several, a
resumed run and a cluster give bitwise equal numbers.
"""

import functools
import hashlib
import json
import math
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import InitVar, asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from icl import _checks, _files, _source, profile
from icl._bounds import Count, validated
from icl.experiments.evaluation import Predictor, one_step_ahead
from icl.experiments.training import Diverged, fit
from icl.experiments.tuning import Tunable, tune
from icl.filters import Filter
from icl.models.causal import Causal
from icl.tasks import Prompt, clean
from icl_bench import entries
from icl_bench import tasks as tasks_of
from icl_bench.budgets import Budget

#: Test variants, prompts of the training length, or twice as long.
VARIANTS = ("same", "longer")
_FORMAT = "icl-bench cell 2"
_CHUNK = 100
_EVERY, _TOLD = 50, 10


@dataclass(frozen=True)
class JobSpec:
    """Picklable specification of a contestant, to resolve it in another process.

    Attributes:
        spec: the specification as given.
        kind: its kind.
        name: its name in results.
        path: folder for `sys.path`, "" for none.
        source: hash of its source; a process that finds another raises an error.
    """

    spec: str
    kind: str
    name: str
    path: str
    source: str

    def resolve(self) -> entries.Contestant:
        """Resolve the contestant in this process.

        Raises:
            ValueError: if it is missing, or its source differs.
        """
        _extend_path(self.path)
        contestant = entries.resolve(self.spec, kind=self.kind)
        if contestant.source != self.source:
            raise ValueError(
                f"{self.spec} has another source here than where the run was started: let all workers see the same "
                f"files and the same versions of packages"
            )
        return contestant


@functools.cache
def _program() -> dict[str, Any]:
    """Dependencies common to every job: hashes of this library's and tool's files, and versions."""
    versions = {name: metadata.version(name) for name in ("torch", "numpy", "scipy")}
    return {
        "library": _source.digest("icl", "icl_bench"),
        "versions": versions | {"python": platform.python_version()},
    }


def _extend_path(path: str) -> None:
    """Put a folder on `sys.path`, as in the parent process."""
    if path and path not in sys.path:
        sys.path.insert(0, path)


@dataclass(frozen=True)
class Job:
    """Description of a training job.

    Attributes:
        contestant: the contestant.
        budget: sizes, steps, number of prompts.
        trained_on: name of the training: "all", or a task's.
        training: names of the tasks trained on, for `icl_bench.tasks.find_tasks`.
        paths: import folders of user-defined tasks.
        rate: learning rate; NaN where nothing is trained.
        seed: of initialisation and training prompts.
        device: "cpu", "cuda", "cuda:1".
    """

    contestant: JobSpec
    budget: Budget
    trained_on: str
    training: tuple[str, ...]
    paths: tuple[str, ...]
    rate: float
    seed: int
    device: str = "cpu"

    def to_dict(self) -> dict[str, Any]:
        """JSON-serialisable inputs of the job, except tests, which are described separately."""
        budget = self.budget.to_dict()
        names = ("d", "n", "width", "depth", "steps", "batch", "choosing", "last")
        return {
            "format": _FORMAT,
            "source": self.contestant.source,
            "kind": self.contestant.kind,
            "budget": {name: budget[name] for name in names},
            "trained_on": {name: _task_fingerprint(name, task) for name, task in self._training_tasks().items()},
            "rate": repr(self.rate),
            "seed": self.seed,
            "device": self.device.partition(":")[0],
        } | _program()

    @property
    def trained(self) -> bool:
        """True if its contestant is trained."""
        return not math.isnan(self.rate)

    @validated
    def files(self, folder: Path) -> Path:
        """Path of its files in a run's folder, without the suffix."""
        return folder / self.contestant.name / _hash_json(self.to_dict())

    def _training_tasks(self) -> dict[str, Any]:
        for path in self.paths:
            _extend_path(path)
        tasks = tasks_of.find_tasks(self.training)
        return {name: task.make(self.budget.d, self.budget.n) for name, task in tasks.items()}

    def mixture(self) -> Any:
        """Mixture of tasks that it is trained on."""
        return tasks_of.mixture(list(self._training_tasks().values()))


def _task_fingerprint(name: str, task: Any) -> str:
    """Hash of a few prompts of a task, which identify it better than its name."""
    return _digest(task.sample(2, generator=profile.make_generator(f"icl-bench/taste/{name}")))


def _hash_json(content: Mapping[str, Any]) -> str:
    """Hash of a JSON-serialisable description."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _digest(prompt: Prompt) -> str:
    """Hash of prompts rounded to six decimals, as the last bits vary between processors."""
    parts = (getattr(prompt, part).numpy(force=True).astype(np.float64).round(6) + 0.0 for part in "xyw")  # no -0
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16]


@validated
def prompts_for(name: str, variant: str, budget: Budget) -> tuple[Any, Prompt]:
    """Task at the sizes of a variant, and its shared test prompts, float64.

    Args:
        name: of the task.
        variant: one of `VARIANTS`.
        budget: sizes, and number of prompts.
    """
    _checks.text("name", name, "that of a task")
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, got {variant!r}")
    n = budget.n * (2 if variant == "longer" else 1)
    task = tasks_of.find_tasks([name])[name].make(budget.d, n)
    generator = profile.make_generator(f"icl-bench/test/{name}/{variant}")
    return task, task.sample(budget.prompts, generator=generator, dtype=torch.float64)


@validated
def squared_errors(predictor: Predictor, prompt: Prompt, last: Count) -> np.ndarray:
    """Squared error against the clean label, averaged over the last positions, per prompt; infinite if a prediction is
    not finite.

    Args:
        predictor: as for `icl.experiments.evaluation.one_step_ahead`; a model predicts in its own precision.
        prompt: float64.
        last: number of final positions.
    """
    _checks.precision("dtype", prompt.x.dtype)
    errors = []
    for start in range(0, prompt.batch, _CHUNK):
        some = slice(start, start + _CHUNK)
        part = Prompt(prompt.x[some], prompt.y[some], prompt.w[some])
        answers = _answers(predictor, part)
        squares = (answers - clean(part)).square()[:, -last:].mean(-1)
        errors.append(torch.where(squares.isfinite(), squares, math.inf))
    return torch.cat(errors).numpy(force=True)


def _answers(predictor: Predictor, prompt: Prompt) -> torch.Tensor:
    if isinstance(predictor, Filter) or not isinstance(predictor, nn.Module):
        return one_step_ahead(predictor, prompt)
    like = next(predictor.parameters())
    local = Prompt(*(part.to(like) for part in (prompt.x, prompt.y, prompt.w)))
    assert isinstance(predictor, Causal)
    with torch.no_grad():
        # Not one_step_ahead, which raises on non-finite predictions: here divergence is a result.
        answers = predictor.predictions(local).to(prompt.y)
    answers[:, 0] = 0
    return answers


@dataclass(frozen=True)
class _Source:
    """Training prompts, identified in a checkpoint by content rather than by the task's configuration."""

    tastes: tuple[str, ...]
    task: InitVar[Any]

    def __post_init__(self, task: Any) -> None:
        # Not a field: a user-defined task need not be serialisable.
        object.__setattr__(self, "sample", task.sample)


@dataclass(frozen=True)
class JobResult:
    """Result of a training job.

    Attributes:
        validation: mean squared error against clean labels at the last positions, on the validation prompts; infinite
            if the training diverged.
        seconds: training time from the first step, over all interruptions.
        errors: by task and variant, one squared error a test prompt; empty where nothing was tested.
        settings: tuned settings of a tunable.
        trouble: error message, "" without an error.
    """

    validation: float
    seconds: float
    errors: dict[tuple[str, str], np.ndarray]
    settings: dict[str, float]
    trouble: str = ""


@validated
def run_job(cell: Job, tests: Mapping[str, tuple[str, ...]], folder: Path | None) -> JobResult:
    """Train and test, or read the cached result.

    Args:
        cell: the job.
        tests: variants by task; empty if the job only serves the choice of a rate.
        folder: for its files; None keeps nothing.

    Raises:
        ValueError: if contestant or tasks are missing, or a file of the job is damaged.
    """
    if folder is not None:
        _checks.instance("folder", folder, Path)
    threads = torch.get_num_threads()
    # One thread fixes the order of summation on every machine.
    torch.set_num_threads(1)
    try:
        return _run_job(cell, tests, folder)
    finally:
        torch.set_num_threads(threads)


def _run_job(cell: Job, tests: Mapping[str, tuple[str, ...]], folder: Path | None) -> JobResult:
    what = cell.to_dict()
    file = None if folder is None else cell.files(folder)
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
    stored = _parse_result(_read_entry(file.with_suffix(".json"), what)) if file else None
    wanted = [(task, variant) for task, variants in tests.items() for variant in variants]
    if stored and all(len(stored.errors.get(pair, ())) == cell.budget.prompts for pair in wanted):
        return stored
    predictor, outcome = _train(cell, int(_hash_json(what), 16), file)
    for pair in wanted:
        prompt = prompts_for(*pair, cell.budget)[1]
        diverged = np.full(prompt.batch, math.inf)
        outcome.errors[pair] = diverged if predictor is None else squared_errors(predictor, prompt, cell.budget.last)
    if file:
        content = asdict(outcome) | {"errors": [[*pair, errors.tolist()] for pair, errors in outcome.errors.items()]}
        _write_entry(file.with_suffix(".json"), what, content)
    return outcome


def _train(cell: Job, base: int, file: Path | None) -> tuple[Predictor | None, JobResult]:
    """Train a contestant: the trained predictor, None if it diverged, and the result so far."""
    contestant, budget = cell.contestant.resolve(), cell.budget
    mixture = cell.mixture()
    count = len(cell.training)
    choosing = mixture.sample(
        -(-budget.choosing // count) * count,
        generator=profile.make_generator(f"icl-bench/choosing/{cell.trained_on}"),
        dtype=torch.float64,
    )
    begun = time.monotonic()
    built = _build(contestant, budget, cell.seed)
    if isinstance(built, Tunable):
        tuned = tune(built, choosing, positions=slice(-budget.last, None), rounds=2)
        return tuned.predictor, JobResult(tuned.loss, time.monotonic() - begun, {}, dict(tuned.settings))
    if isinstance(built, Filter):
        return built, JobResult(float(squared_errors(built, choosing, budget.last).mean()), 0.0, {}, {})
    model = built.to(cell.device)
    source = _Source(tuple(_task_fingerprint(name, task) for name, task in cell._training_tasks().items()), mixture)

    def callback(step: int, _: nn.Module) -> None:
        # Dropout draws from torch's global stream: reseeding it at each step makes a resumed training identical.
        torch.manual_seed((base >> 2) + step)
        if file and step % _TOLD == 0:
            file.with_suffix(".steps").write_text(str(step))

    try:
        with torch.random.fork_rng(devices=[cell.device] if cell.device.startswith("cuda") else []):
            run = fit(
                model,
                _loss,
                source,  # type: ignore[arg-type]  # its sample is set in __post_init__
                budget.config(cell.rate, count),
                generator=profile.make_generator(f"icl-bench/training/{cell.trained_on}", seed=cell.seed),
                checkpoint=file.with_suffix(".safetensors") if file else None,
                checkpoint_every=_EVERY,
                snapshot_every=10,
                callback=callback,
                progress=False,  # a run has one bar over all of its trainings, or none
            )
    except Diverged as error:
        return None, JobResult(math.inf, time.monotonic() - begun, {}, {}, str(error)[:200])
    model.eval()
    return model, JobResult(float(squared_errors(model, choosing, budget.last).mean()), run.seconds, {}, {})


def _loss(model: nn.Module, prompt: Prompt) -> torch.Tensor:
    """Squared error on the noisy labels, at every position but the first."""
    assert isinstance(model, Causal)
    return model.loss(prompt, since=1)


def _build(contestant: entries.Contestant, budget: Budget, seed: int) -> Any:
    """Build a contestant, initialised from this seed alone."""
    with entries.torch_seeded(profile.make_generator("icl-bench/start", seed=seed).initial_seed()):
        return contestant.build(budget.shape)


def _write_entry(path: Path, what: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    """Write a result with its description, atomically."""
    entry: dict[str, Any] = {"format": _FORMAT, "what": what, "found": content}
    entry["checksum"] = _files.checksum(entry)
    _files.write(path, f"{json.dumps(entry)}\n".encode())


def _read_entry(path: Path, what: Mapping[str, Any]) -> dict[str, Any] | None:
    """Read the result for a description; None if there is none.

    Raises:
        ValueError: if the file is damaged, or has another description, with its path and the remedy.
    """
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("checksum", None) != _files.checksum(content):
            raise ValueError("it is damaged")
        if (content["format"], content["what"]) != (_FORMAT, what):
            raise ValueError("it is of something else")
        return dict(content["found"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} cannot be used ({error}): remove it and run again") from error


def _parse_result(content: dict[str, Any] | None) -> JobResult | None:
    if content is None:
        return None
    errors = {(task, variant): np.array(values) for task, variant, values in content["errors"]}
    return JobResult(**content | {"errors": errors})
