"""One cell: a contestant trained at one rate from one seed, and tested on the prompts that everybody is tested on.

What a cell holds depends on nothing but its description, hashed in its `fingerprint`: contestant and its source, sizes,
tasks, rate, seed, the library's code and versions. It is the name of the cell's files, so that a run that was killed
goes on where it was, one that is asked for again does no work, and a changed layer is never taken for the old one. On
one kind of machine one process, several, a killed run and a cluster give the same numbers to the bit.
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

#: A test is of prompts as long as those trained on, or twice as long.
VARIANTS = ("same", "longer")
_FORMAT = "icl-bench cell 2"
_CHUNK = 100
_EVERY, _TOLD = 50, 10


@dataclass(frozen=True)
class JobSpec:
    """A contestant as another process can find it again.

    Attributes:
        spec: what was asked for.
        kind: as which it is taken.
        name: under which its results stand.
        path: folder to look in, "" for none.
        source: hash of what it is; a process that finds another refuses.
    """

    spec: str
    kind: str
    name: str
    path: str
    source: str

    def found(self) -> entries.Contestant:
        """The contestant, in this process.

        Raises:
            ValueError: if it is not there, or is not the one that was asked for.
        """
        _reachable(self.path)
        there = entries.resolve(self.spec, kind=self.kind)
        if there.source != self.source:
            raise ValueError(
                f"{self.spec} has another source here than where the run was started: let all workers see the same "
                f"files and the same versions of packages"
            )
        return there


@functools.cache
def _program() -> dict[str, Any]:
    """What every cell depends on beside what it is of: the library's files and this tool's, and versions."""
    versions = {name: metadata.version(name) for name in ("torch", "numpy", "scipy")}
    return {
        "library": _source.digest("icl", "icl_bench"),
        "versions": versions | {"python": platform.python_version()},
    }


def _reachable(path: str) -> None:
    """Let this process find modules of a folder, as the one that was started does."""
    if path and path not in sys.path:
        sys.path.insert(0, path)


@dataclass(frozen=True)
class Job:
    """What one cell is of.

    Attributes:
        asked: the contestant.
        budget: sizes, steps, how many prompts.
        trained_on: name of what it is trained on: "all", or a task's.
        training: names of the tasks it is trained on, as `icl_bench.tasks.find_tasks` knows them.
        paths: folders to look in for tasks of one's own.
        rate: learning rate; NaN where nothing is trained.
        seed: of start and training prompts.
        device: "cpu", "cuda", "cuda:1".
    """

    asked: JobSpec
    budget: Budget
    trained_on: str
    training: tuple[str, ...]
    paths: tuple[str, ...]
    rate: float
    seed: int
    device: str = "cpu"

    def described(self) -> dict[str, Any]:
        """All that its numbers depend on, as JSON holds it; tests apart, which say for themselves what they are of."""
        budget = self.budget.described()
        kept = ("d", "n", "width", "depth", "steps", "batch", "choosing", "last")
        return {
            "format": _FORMAT,
            "source": self.asked.source,
            "kind": self.asked.kind,
            "budget": {name: budget[name] for name in kept},
            "trained_on": {name: _taste(name, task) for name, task in self._training_tasks().items()},
            "rate": repr(self.rate),
            "seed": self.seed,
            "device": self.device.partition(":")[0],
        } | _program()

    @property
    def trained(self) -> bool:
        """Whether its contestant is trained at all."""
        return not math.isnan(self.rate)

    @validated
    def files(self, folder: Path) -> Path:
        """Where its files are in a run's folder: all have this name, and endings of their own."""
        return folder / self.asked.name / _hashed(self.described())

    def _training_tasks(self) -> dict[str, Any]:
        for path in self.paths:
            _reachable(path)
        found = tasks_of.find_tasks(self.training)
        return {name: task.make(self.budget.d, self.budget.n) for name, task in found.items()}

    def mixture(self) -> Any:
        """What it is trained on."""
        return tasks_of.mixture(list(self._training_tasks().values()))


def _taste(name: str, task: Any) -> str:
    """Hash of a few prompts of a task: what it does tells more of it than what it is called."""
    return _digest(task.sample(2, generator=profile.make_generator(f"icl-bench/taste/{name}")))


def _hashed(described: Mapping[str, Any]) -> str:
    """Hash of what JSON holds."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


def _digest(prompt: Prompt) -> str:
    """Hash of prompts to six decimals: their last bits belong to one kind of processor."""
    parts = (getattr(prompt, part).numpy(force=True).astype(np.float64).round(6) + 0.0 for part in "xyw")  # no -0
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16]


@validated
def prompts_for(name: str, variant: str, budget: Budget) -> tuple[Any, Prompt]:
    """A task at the sizes of a variant, and the prompts of it that everybody is tested on, float64.

    Args:
        name: of the task.
        variant: one of `VARIANTS`.
        budget: sizes, and how many prompts.
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
    """Squared error against the clean label, averaged over the last positions, one a prompt; infinite where an answer
    is not finite.

    Args:
        predictor: as `icl.experiments.evaluation.one_step_ahead` takes it; a model reads in its own precision.
        prompt: float64.
        last: how many positions, counted from the end.
    """
    _checks.precision("dtype", prompt.x.dtype)
    found = []
    for start in range(0, prompt.batch, _CHUNK):
        some = slice(start, start + _CHUNK)
        part = Prompt(prompt.x[some], prompt.y[some], prompt.w[some])
        answers = _answers(predictor, part)
        squares = (answers - clean(part)).square()[:, -last:].mean(-1)
        found.append(torch.where(squares.isfinite(), squares, math.inf))
    return torch.cat(found).numpy(force=True)


def _answers(predictor: Predictor, prompt: Prompt) -> torch.Tensor:
    if isinstance(predictor, Filter) or not isinstance(predictor, nn.Module):
        return one_step_ahead(predictor, prompt)
    like = next(predictor.parameters())
    own = Prompt(*(part.to(like) for part in (prompt.x, prompt.y, prompt.w)))
    assert isinstance(predictor, Causal)
    with torch.no_grad():
        # Not one_step_ahead, which refuses what is not finite: here that is a result.
        answers = predictor.predictions(own).to(prompt.y)
    answers[:, 0] = 0
    return answers


@dataclass(frozen=True)
class _Source:
    """Prompts to train on, written down in a checkpoint as what they are rather than how they are made."""

    tastes: tuple[str, ...]
    task: InitVar[Any]

    def __post_init__(self, task: Any) -> None:
        # Not a field: a task of one's own need not be of a kind that can be written down.
        object.__setattr__(self, "sample", task.sample)


@dataclass(frozen=True)
class JobResult:
    """What a cell found.

    Attributes:
        validation: mean squared error against clean labels at the last positions, on prompts that rates are chosen on;
            infinite where the training diverged.
        seconds: of training, from its first step on, wherever it was interrupted.
        errors: by task and variant, one squared error a test prompt; empty where nothing was tested.
        settings: what a tunable was tuned to.
        trouble: what went wrong, "" if nothing did.
    """

    validation: float
    seconds: float
    errors: dict[tuple[str, str], np.ndarray]
    settings: dict[str, float]
    trouble: str = ""


@validated
def run_job(cell: Job, tests: Mapping[str, tuple[str, ...]], folder: Path | None) -> JobResult:
    """Train, choose and test, or read what was done before.

    Args:
        cell: what of.
        tests: variants by task; empty where the cell is only there to choose a rate.
        folder: where its files are kept; None keeps nothing.

    Raises:
        ValueError: if contestant or tasks are not here, or a file of the cell is damaged.
    """
    if folder is not None:
        _checks.instance("folder", folder, Path)
    threads = torch.get_num_threads()
    # One thread: sums are then added in one order, wherever the cell is worked on.
    torch.set_num_threads(1)
    try:
        return _run_job(cell, tests, folder)
    finally:
        torch.set_num_threads(threads)


def _run_job(cell: Job, tests: Mapping[str, tuple[str, ...]], folder: Path | None) -> JobResult:
    what = cell.described()
    file = None if folder is None else cell.files(folder)
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
    known = _outcome(_kept(file.with_suffix(".json"), what)) if file else None
    wanted = [(task, variant) for task, variants in tests.items() for variant in variants]
    if known and all(len(known.errors.get(pair, ())) == cell.budget.prompts for pair in wanted):
        return known
    predictor, outcome = _trained(cell, int(_hashed(what), 16), file)
    for pair in wanted:
        prompt = prompts_for(*pair, cell.budget)[1]
        diverged = np.full(prompt.batch, math.inf)
        outcome.errors[pair] = diverged if predictor is None else squared_errors(predictor, prompt, cell.budget.last)
    if file:
        content = asdict(outcome) | {"errors": [[*pair, errors.tolist()] for pair, errors in outcome.errors.items()]}
        _keep(file.with_suffix(".json"), what, content)
    return outcome


def _trained(cell: Job, base: int, file: Path | None) -> tuple[Predictor | None, JobResult]:
    """The contestant at the end of its training, None if it diverged, and what was found on the way."""
    contestant, budget = cell.asked.found(), cell.budget
    mixture = cell.mixture()
    count = len(cell.training)
    choosing = mixture.sample(
        -(-budget.choosing // count) * count,
        generator=profile.make_generator(f"icl-bench/choosing/{cell.trained_on}"),
        dtype=torch.float64,
    )
    begun = time.monotonic()
    made = _built(contestant, budget, cell.seed)
    if isinstance(made, Tunable):
        found = tune(made, choosing, positions=slice(-budget.last, None), rounds=2)
        return found.predictor, JobResult(found.loss, time.monotonic() - begun, {}, dict(found.settings))
    if isinstance(made, Filter):
        return made, JobResult(float(squared_errors(made, choosing, budget.last).mean()), 0.0, {}, {})
    model = made.to(cell.device)
    source = _Source(tuple(_taste(name, task) for name, task in cell._training_tasks().items()), mixture)

    def callback(step: int, _: nn.Module) -> None:
        # Dropout and the like draw from torch's own stream: set anew at each step, it is the same after a kill.
        torch.manual_seed((base >> 2) + step)
        if file and step % _TOLD == 0:
            file.with_suffix(".steps").write_text(str(step))

    try:
        with torch.random.fork_rng(devices=[cell.device] if cell.device.startswith("cuda") else []):
            run = fit(
                model,
                _loss,
                source,  # type: ignore[arg-type]  # its sample is set when it is made
                budget.config(cell.rate, count),
                generator=profile.make_generator(f"icl-bench/training/{cell.trained_on}", seed=cell.seed),
                checkpoint=file.with_suffix(".safetensors") if file else None,
                checkpoint_every=_EVERY,
                snapshot_every=10,
                callback=callback,
                progress=False,  # a run has one over all of its trainings, in whichever process they are, or none
            )
    except Diverged as error:
        return None, JobResult(math.inf, time.monotonic() - begun, {}, {}, str(error)[:200])
    model.eval()
    return model, JobResult(float(squared_errors(model, choosing, budget.last).mean()), run.seconds, {}, {})


def _loss(model: nn.Module, prompt: Prompt) -> torch.Tensor:
    """Squared error of what it sees, the noisy labels, at every position but the first."""
    assert isinstance(model, Causal)
    return model.loss(prompt, since=1)


def _built(contestant: entries.Contestant, budget: Budget, seed: int) -> Any:
    """A contestant from its start at this seed, whatever was drawn before."""
    with entries.torch_seeded(profile.make_generator("icl-bench/start", seed=seed).initial_seed()):
        return contestant.build(budget.shape)


def _keep(path: Path, what: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    """Write what was found for a description, whole or not at all."""
    whole: dict[str, Any] = {"format": _FORMAT, "what": what, "found": content}
    whole["checksum"] = _files.checksum(whole)
    _files.write(path, f"{json.dumps(whole)}\n".encode())


def _kept(path: Path, what: Mapping[str, Any]) -> dict[str, Any] | None:
    """Read what was found for a description; None if nothing was.

    Raises:
        ValueError: if the file is damaged, or of something else, with its path and what to do.
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


def _outcome(found: dict[str, Any] | None) -> JobResult | None:
    if found is None:
        return None
    errors = {(task, variant): np.array(values) for task, variant, values in found["errors"]}
    return JobResult(**found | {"errors": errors})
