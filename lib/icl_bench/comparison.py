"""Paired comparison with oracle, tuned or trained hyperparameters, for the chapter *One benchmark on drifting tasks*.

Tasks, floors and the oracle Kalman filter are in :mod:`icl_bench.tasks`. :func:`tuned_for` tunes any layer for one task
(:mod:`icl.experiments.tuning`); :func:`trainable_layers` are models that share one setting across tasks, and
:func:`train_on` trains them on all tasks at once. :func:`compare` compares all of them with the floor. A user's own
layer enters as a :class:`~icl.experiments.tuning.Tunable` or as a model, in a
:class:`~icl.experiments.grid.Grid` beside `contestants`; or from the command line, in :mod:`icl_bench.runner`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
from annotated_types import Ge
from torch.nn.utils import vector_to_parameters

from icl import _checks, filters, profile
from icl._bounds import Count, validated
from icl.experiments.evaluation import Predictor
from icl.experiments.grid import Expected, Grid, run_grid
from icl.experiments.training import AdamW, Config, Run, fit
from icl.experiments.tuning import LAYERS, Tunable, Tuned, tune
from icl.models.causal import Causal, Normalised
from icl.models.delta_layers import DeltaRule, GatedDelta, Kalman, Longhorn
from icl.models.fast_weights import GLA, LengthGate, Mamba2
from icl.models.stacks import GatedDeltaStack, Stack
from icl.models.streaming_stacks import LayeredDelta, LayeredGLA, selected_at_random
from icl.tasks import Mixture, Prompt, Task
from icl_bench.tasks import best_possible, told_kalman

# The chapter's training configurations, for single layers and for models with more parameters.
SHORT = Config(100, 64, AdamW(lr=4e-2, weight_decay=0.0), anneal_to=0.05, clip=1.0)
LONG = Config(600, 64, AdamW(lr=2e-2, weight_decay=0.0, beta2=0.99), warm_up=50, anneal_to=0.05, clip=1.0)

#: Suffix for contestants with one setting for all tasks.
FOR_ALL = ", one for all"
_Maker = Callable[[Task], Predictor | Expected]
_ALL = "all"
_COLUMNS = ["task", "method", "setting", "value"]


@validated
def tuned_for(
    task: Task,
    tunable: Tunable,
    *,
    prompts: Count = 100,
    last: Count = 50,
    rounds: Count = 2,
    stream: str = "benchmark, tuning",
) -> Tuned:
    """Tune a layer for a task on separate prompts, in float64, by the clean error at the last positions.

    Args:
        task: where prompts come from.
        tunable: any layer (:data:`~icl.experiments.tuning.LAYERS`, or a user's own).
        prompts: number of prompts.
        last: number of final positions over which the error is averaged.
        rounds: number of grid refinements, each twice as fine as the one before it.
        stream: name of the random stream; the same prompts for every layer of a task.
    """
    if last > task.n + 1:
        raise ValueError(f"last must be at most the {task.n + 1} positions of the task, got {last}")
    if not stream:
        raise ValueError(f"stream must be a non-empty string, got {stream!r}")
    prompt = task.sample(prompts, generator=profile.make_generator(stream), dtype=torch.float64)
    return tune(tunable, prompt, positions=slice(-last, None), rounds=rounds)


@validated
def trainable_layers(d: Count = 10) -> dict[str, tuple[Callable[[], Causal], Config]]:
    """Factories and training configurations by name, float32: single layers with sensible initial settings, two deep
    stacks, an S6 layer.

    Args:
        d: dimension of the inputs.
    """
    return {
        "GLA": (lambda: GLA(d, lam=0.9, mu=0.06), SHORT),
        "Mamba-2": (lambda: Mamba2(d, LengthGate(d), A=1.0, Delta=0.1, mu=0.5), SHORT),
        "delta rule": (lambda: DeltaRule(d, lam=0.95, mu=0.07), SHORT),
        "gated delta": (lambda: GatedDelta(d, LengthGate(d), LengthGate(d), lam=0.95, beta=0.9), SHORT),
        "Longhorn": (lambda: Longhorn(d, lam=0.95, eps=0.5), SHORT),
        "Kalman": (lambda: Kalman(d, gamma=0.95, sigma_e=0.1, sigma_y=0.2, P_0=0.1), SHORT),
        "GLA, 6 layers": (lambda: LayeredGLA(Normalised(Stack(d, 6))), LONG),
        "gated delta, 4 layers": (lambda: LayeredDelta(GatedDeltaStack(d, 4)), LONG),
        "S6": (lambda: selected_at_random(d, generator=profile.make_generator("benchmark, start of S6")), LONG),
    }


@validated
def train_on(model: Causal, tasks: Sequence[Task], config: Config, *, generator: torch.Generator) -> Run:
    """Train a model in place on all tasks at once, an equal share of prompts each; the loss is the squared error on the
    noisy labels in the second half of the prompts.

    Args:
        model: any that predicts every position of a prompt.
        tasks: at least one, all of one d and n.
        config: its batch has to be a multiple of the number of tasks.
        generator: the stream that prompts are drawn from.
    """
    mixture = Mixture(tasks)

    def loss(trained: torch.nn.Module, prompt: Prompt) -> torch.Tensor:
        assert isinstance(trained, Causal)
        return trained.loss(prompt, since=mixture.n // 2)

    return fit(model, loss, mixture, config, generator=generator)


@validated
def tuned_settings(tasks: Mapping[str, Task], *, prompts: Count = 100, last: Count = 50) -> pd.DataFrame:
    """Tuned settings of every layer of `icl.experiments.tuning.LAYERS` (:func:`tuned_for`), in columns task, method,
    setting, value.

    Args:
        tasks: by name.
        prompts: number of prompts a task.
        last: number of final positions over which errors are averaged.
    """
    rows = []
    for name, task in _check_tasks(tasks).items():
        for method, layer in LAYERS.items():
            settings = tuned_for(task, layer, prompts=prompts, last=last).settings
            rows += [(name, method, setting, value) for setting, value in settings.items()]
    return pd.DataFrame(rows, columns=_COLUMNS)


@validated
def trained_settings(
    tasks: Mapping[str, Task], models: Mapping[str, tuple[Callable[[], Causal], Config]]
) -> pd.DataFrame:
    """Parameters of models that :func:`train_on` trained on all tasks, in columns task ("all"), method, setting, value.

    Args:
        tasks: by name.
        models: by name, how one is made and trained (:func:`trainable_layers`); prompts come from streams of these
            names.
    """
    rows = []
    for method, (build, config) in models.items():
        model = build()
        generator = profile.make_generator(f"benchmark, training {method}")
        train_on(model, list(_check_tasks(tasks).values()), config, generator=generator)
        for name, parameter in model.named_parameters():
            values = parameter.detach().flatten().tolist()
            rows += [(_ALL, method, f"{name} {i}", value) for i, value in enumerate(values)]
    return pd.DataFrame(rows, columns=_COLUMNS)


@validated
def makers(task: Task, name: str, settings: pd.DataFrame) -> dict[str, _Maker]:
    """Factories of every method compared on a task, at its tuned settings; the floor first.

    Args:
        task: gives the dimension.
        name: its name in the settings.
        settings: rows of :func:`tuned_settings` and :func:`trained_settings`.
    """
    _checks.text("name", name)
    held = _check_settings(settings)

    def settings_of(whose: str, method: str) -> dict[str, float]:
        rows = held[(held["task"] == whose) & (held["method"] == method)]
        if rows.empty:
            raise ValueError(f"settings must hold {method} for {whose}, got none")
        return dict(zip(rows["setting"], rows["value"], strict=True))

    makers_by_name: dict[str, _Maker] = {"floor": best_possible, "answer 0": lambda task: filters.zero()}
    for method, layer in LAYERS.items():
        makers_by_name[method] = _from_tunable(layer, settings_of(name, method))
    makers_by_name["Kalman"] = told_kalman
    for method, (start, _) in trainable_layers(task.d).items():
        numbers = list(settings_of(_ALL, method).values())
        makers_by_name[method + FOR_ALL] = _constant_factory(_with_numbers(start(), method, numbers))
    return makers_by_name


def _from_tunable(layer: Tunable, settings: dict[str, float]) -> _Maker:
    return lambda task: layer.build(task.d, **settings)


def _constant_factory(model: Causal) -> _Maker:
    return lambda task: model


@validated
def compare(
    tasks: Mapping[str, Task],
    settings: pd.DataFrame,
    *,
    batch: Annotated[int, Ge(2)] = 400,
    seeds: Count = 4,
    last: Count = 50,
    folder: Path | None = None,
) -> pd.DataFrame:
    """Compare all contestants with the floor on these tasks, pooled over seeds (`icl.experiments.grid.Results.pooled`).

    Args:
        tasks: by name.
        settings: rows of :func:`tuned_settings` and :func:`trained_settings`.
        batch: prompts a task and seed.
        seeds: number of cells a task.
        last: number of final positions that are averaged.
        folder: cache of finished cells, in one subfolder per version of the program; None caches nothing.
    """
    if folder is not None:
        _checks.instance("folder", folder, Path)
    tables = []
    for name, task in _check_tasks(tasks).items():
        grid = Grid({name: task}, makers(task, name, settings), seeds, batch, last, "floor", "one benchmark")
        tables.append(run_grid(grid, folder / grid.fingerprint(name) if folder else None).pooled())
    return pd.concat(tables, ignore_index=True)


def _check_tasks(tasks: object) -> Mapping[str, Task]:
    if not isinstance(tasks, Mapping) or not tasks or not all(isinstance(name, str) and name for name in tasks):
        raise ValueError(f"tasks must map names to tasks, at least one, got {tasks!r}")
    for name, task in tasks.items():
        if isinstance(task, type) or not isinstance(task, Task):
            raise ValueError(f"tasks must be tasks, got {task!r} for {name!r}")
    return tasks


def _check_settings(settings: object) -> pd.DataFrame:
    if not isinstance(settings, pd.DataFrame) or not set(_COLUMNS) <= set(settings.columns):
        raise ValueError(f"settings must be a table with {', '.join(_COLUMNS)}, got {settings!r:.200}")
    return settings


def _with_numbers(model: Causal, method: str, values: list[float]) -> Causal:
    """Set the model's parameters, in order, to these values, in float64."""
    wanted = sum(parameter.numel() for parameter in model.parameters())
    if len(values) != wanted:
        raise ValueError(f"settings must hold the {wanted} numbers of {method}, got {len(values)}")
    vector_to_parameters(torch.tensor(values), model.parameters())
    return model.double()
