"""Valid calls and refusals by hand: the benchmark."""

import functools
import json
import tempfile
from math import nan as NAN
from pathlib import Path

import pandas as pd
import torch
from house.calls.base import PLAIN, WIDE, entry, prompt_of, rows
from house.calls.models import HEAD
from house.calls.training import FIXTURES, FROZEN, LOSS, NET

from icl import filters, profile
from icl.experiments import training, training_variants
from icl.models import convolved, experts, fast_weights
from icl.tasks import core
from icl.theory.steady import fast_weights as fast
from icl_bench import (
    adapters,
    budgets,
    catalogue,
    command,
    comparison,
    costs,
    custom_task,
    entries,
    imports,
    leaderboard,
    report,
    results,
    runner,
    sequence,
    training_jobs,
    validation,
)
from icl_bench import floors as bench_floors
from icl_bench import tasks as bench_tasks
from icl_book.chapters import distribution_shift, key_gated_layers

# --- the benchmark
SETTLED_LAW = fast.DriftLaw(2, 0.9, 0.1)
BEHIND = {"model": convolved.Convolved(2, width=2, generator=profile.make_generator("x")), "law": SETTLED_LAW}
OF_FOUR = [({"law": fast.DriftLaw(4, 0.9, 0.1)}, "model must have d = 4, to match law, got 2")]
ONE_LAYER = {"layer": "delta rule", "fed": "one filter", "law": SETTLED_LAW, "prompts": 20}
ONE_STEP = {"recipe": training.Config(1, 1), "lr": 0.01}
entry(key_gated_layers.gated_layer, given={"layer": "Mamba-2", "fed": "own filter"})
entry(key_gated_layers.train_gated, given=BEHIND | ONE_STEP, also=OF_FOUR)
NOISY_LAW = [({"law": fast.DriftLaw(2, 0.9, 0.1, 0.1)}, "law must have labels without noise")]
entry(key_gated_layers.over_bound, given=BEHIND, also=OF_FOUR + NOISY_LAW)
entry(key_gated_layers.gated_run, given=ONE_LAYER | ONE_STEP)
entry(
    key_gated_layers.compare_gated, given={"law": SETTLED_LAW, "prompts": 20, "seeds": 1, "recipe": ONE_STEP["recipe"]}
)
SHORT_TASKS = {"t": bench_tasks.drifting_tasks(2, 4)["AR(1), γ = 0.9"]}
TAUGHT = {"GLA": (lambda: fast_weights.GLA(2, lam=0.9, mu=0.1), training.Config(1, 2))}
TASK_NAMES = [
    *rows("tasks", "must (map names to tasks, at least one|be a .*Mapping)", {}, {"": PLAIN}, {3: PLAIN}, [PLAIN]),
    ({"tasks": {"t": 3}}, "tasks must be tasks, got 3 for 't'"),
]
FOUND = pd.DataFrame(columns=["task", "method", "setting", "value"])
entry(bench_floors.known_floors, given={"task": PLAIN})
FIXTURES |= {bench_tasks.BenchTask: lambda: bench_tasks.BENCH_TASKS["leaps"]}
entry(bench_tasks.BenchTask, given={"name": "t", "title": "t", "about": "t", "make": lambda d, n: PLAIN})
NO_TASK = [({"task": 3}, r"task must be an [\w.]*Task, got 3")]
entry(bench_tasks.BenchTask.floors, given={"task": PLAIN}, also=NO_TASK)
entry(bench_tasks.BenchTask.reference, given={"task": PLAIN}, also=NO_TASK)
entry(bench_tasks.find_tasks, given={"names": ["all"]}, also=rows("names", "must be", [], "all", ["lleaps"], [3]))
FIXTURES |= {bench_tasks.SeveralTasks: lambda: bench_tasks.mixture([PLAIN])}
OF_OTHER_SIZES = rows("tasks", "must be at least one, of one d and one n", [], [PLAIN, WIDE])
OF_OTHER_SIZES += rows("tasks", "must have d, n and sample", [3])
entry(
    bench_tasks.SeveralTasks,
    bench_tasks.mixture,
    given={"tasks": [PLAIN]},
    also=[*OF_OTHER_SIZES, ({"tasks": [3]}, "tasks must have d")],
)
entry(
    custom_task.CustomTask,
    given={"name": "t", "task": PLAIN},
    also=[({"task": WIDE}, "task must have d = 2"), ({"task": None}, "task must have d = 2, .*got 'none' of t")],
)


class Floored(core.DriftingRegression):
    """A task that knows its floor."""

    floor = staticmethod(lambda prompt: prompt.y**2)


FIXTURES |= {custom_task.CustomTask: lambda: custom_task.CustomTask("t", Floored(2, 3, 0.9), 2, 3)}
entry(imports.nearest, given={"name": "a", "known": ["a"]})
entry(imports.load, given={"spec": "json:JSONDecoder"}, also=rows("spec", "must be", "a", "a.py"))
entry(imports.package_root, imports.source_hash, given={"file": Path(json.__file__)})

# --- the benchmark's tool
TINY_BUDGET = budgets.Budget("tiny", 2, 8, 8, 1, 2, 4, (1e-3,), 1, 5, 8, 4)
IDLE = entries.resolve("answer-0")
FIXTURES |= {
    budgets.Budget: lambda: TINY_BUDGET,
    entries.Shape: lambda: TINY_BUDGET.shape,
    entries.Contestant: lambda: IDLE,
    training_jobs.Job: lambda: training_jobs.Job(
        training_jobs.JobSpec(IDLE.spec, IDLE.kind, IDLE.name, IDLE.path, IDLE.source),
        TINY_BUDGET,
        "all",
        ("ar1-0.9",),
        (),
        NAN,
        0,
    ),
    runner.Plan: lambda: runner.plan(["answer-0"], tasks=["ar1-0.9"], only_tested=[], budget=TINY_BUDGET),
    results.BenchResults: lambda: IDLE_RESULTS(),
    sequence.InContext: lambda: sequence.InContext(2, 3, torch.nn.Identity()),
    catalogue.Softmax: lambda: catalogue.Softmax(4, 2),
    catalogue.Rotary: lambda: catalogue.Rotary(4, 2),
}


@functools.cache
def IDLE_RESULTS():
    """A run of two that answer 0, which takes a moment."""
    asked = {"tasks": ["ar1-0.9"], "only_tested": [], "budget": TINY_BUDGET, "quiet": True}
    return runner.run(["answer-0", "again=answer-0"], **asked)


def somewhere(name):
    """A path in a folder of its own."""
    return Path(tempfile.mkdtemp()) / name


def written():
    """A file of results."""
    path = somewhere("results.parquet")
    results.write_results(path, IDLE_RESULTS())
    return path


BUDGET_RATES = rows("rates", "must be at least one learning rate, rising", (), (0.1, 0.01), (0.1, 0.1))
BUDGET_RATES += rows("rates", "must be finite and > 0", (0.0,))
entry(
    budgets.Budget,
    given={"name": "tiny", "d": 2, "n": 8, "rates": (1e-3,), "prompts": 5, "last": 4},
    also=[*BUDGET_RATES, ({"last": 10}, "last must be at most the 9 positions")],
)
entry(budgets.Budget.config, given={"rate": 0.1, "tasks": 2})
entry(entries.Shape, given={"n": 3, "longest": 7})
entry(entries.resolve, given={"spec": "answer-0"}, also=rows("spec", "must be", "glaa", ":b", " "))
entry(adapters.is_config, adapters.is_model, given={"what": 3})
entry(adapters.is_config_class, adapters.is_model_class, given={"what": 3})
entry(adapters.dataclass_config, given={"kind": 3})
entry(adapters.is_installed, given={"package": "numpy"})
entry(adapters.hugging_face, given={"name": "GPT2Config"})
NO_OPERATOR = rows("operator", "must have parameters named q, k and v, got x", lambda x: x)
NO_OPERATOR += rows("operator", "must have parameters named q, k and v", lambda q, k: q)
NO_OPERATOR += rows("operator", "is told q, k, v", lambda q, k, v, a: v)
NO_OPERATOR += rows("operator", ".*one of g and decay", lambda q, k, v, g, decay: v)
UNEVEN = [({"heads": 3}, "width must be a multiple of heads, got 4 and 3")]
entry(sequence.operator_gates, given={"operator": lambda q, k, v: v}, also=NO_OPERATOR)
entry(
    sequence.Projected,
    given={"operator": lambda q, k, v: v, "width": 4},
    also=[*NO_OPERATOR, *UNEVEN],
)
entry(
    sequence.BlockStack,
    given={"mixers": [torch.nn.Linear(3, 3)]},
    also=rows("mixers", "must hold at least one layer", []),
)
entry(sequence.InContext, given={"body": torch.nn.Identity()})
entry(catalogue.Softmax, catalogue.Alibi, catalogue.Rotary, given={"width": 4, "heads": 2}, also=UNEVEN)
entry(
    training_jobs.prompts_for,
    given={"name": "ar1-0.9", "variant": "same"},
    also=rows("variant", "must be one of same, longer", "shorter"),
)
entry(training_jobs.squared_errors, given={"predictor": filters.lms(0.1)})
entry((training_jobs.Job, "files"), given={"folder": Path("x")})
entry(training_jobs.run_job, given={"tests": {}, "folder": None})
entry((runner.Plan, "tests"), given={"trained_on": "all"})
entry((runner.Plan, "seconds"), given={"us_per_token": {"answer-0": 1.0}})
ONE_RUN = {"contestants": ["answer-0"], "tasks": ["ar1-0.9"], "only_tested": [], "budget": TINY_BUDGET}
entry(runner.plan, given=ONE_RUN)
entry(runner.run, given=ONE_RUN | {"quiet": True})
entry(validation.validate_model, given={"model": filters.lms(0.1), "name": "lms"})
entry(costs.count, given={"run": lambda: None})
entry(command.main, given={"argv": ["--version"]})
entry(results.paired_comparison, given={"one": "answer-0", "other": "again"})
entry(results.aggregate, results.per_task, report.page, also=rows("against", "must be one of", "nobody"))
NO_RUNS = rows("runs", "must be at least one", []) + rows("runs", r"must be an [\w.]*BenchResults", [3])
entry(results.concat, given=lambda _: {"runs": [IDLE_RESULTS()]}, also=NO_RUNS)
entry(results.rename, given={"names": {"again": "other"}}, also=rows("names", "must be one of", {"nobody": "x"}))
entry(report.write_report, given=lambda _: {"path": somewhere("report.html")})
entry(
    leaderboard.read_rows,
    given={"folder": "nowhere"},
    also=rows("budget", "must be one of small, medium, large, got 'huge'", "huge"),
)
entry(bench_tasks.told_kalman, given={"task": bench_tasks.drifting_tasks(2, 3)["leaps, t with ν = 3"]})
entry(
    comparison.tuned_for,
    given={"task": SHORT_TASKS["t"], "prompts": 2, "last": 2},
    also=[({"last": 6}, "last must be at most the 5 positions of the task, got 6")],
)
entry(
    comparison.train_on,
    given={"tasks": [PLAIN], "config": training.Config(1, 2)},
    also=[({"tasks": []}, "tasks must be at least one")],
)
entry(comparison.tuned_settings, given={"tasks": SHORT_TASKS, "prompts": 2, "last": 2}, also=TASK_NAMES)
entry(comparison.trained_settings, given={"tasks": SHORT_TASKS, "models": TAUGHT}, also=TASK_NAMES)
SETTLED = None


def settled():
    """Settings of all contestants of one task, found once in this file, as it takes a second."""
    global SETTLED
    if SETTLED is None:
        models = {name: (made, training.Config(1, 1)) for name, (made, _) in comparison.trainable_layers(2).items()}
        tuned = comparison.tuned_settings(SHORT_TASKS, prompts=2, last=2)
        # Looked through again and again: for that, objects are quicker than pandas' own texts.
        SETTLED = pd.concat([tuned, comparison.trained_settings(SHORT_TASKS, models)]).astype(object)
    return SETTLED


TABLE = ({"settings": FOUND.drop(columns="task")}, "settings must be a table with task, method, setting, value")
entry(
    comparison.makers,
    given=lambda _: {"task": SHORT_TASKS["t"], "name": "t", "settings": settled()},
    also=[
        TABLE,
        ({"name": "u"}, "settings must hold linear attention for u, got none"),
        ({"settings": FOUND}, "settings must hold linear attention for t, got none"),
        ({"task": WIDE}, r"settings must hold the \d+ numbers of .*, got"),
    ],
)
entry(
    comparison.compare,
    given=lambda _: {"tasks": SHORT_TASKS, "settings": settled(), "batch": 2, "seeds": 1, "last": 2},
    also=[*TASK_NAMES, TABLE, ({"last": 6}, "last must be at most the 5 positions")],
)
entry(training_variants.memformer_recipe, given={"model": NET, "loss": LOSS, "steps": 1, "batch": 1})
entry(
    training_variants.minimise,
    given={"model": NET, "loss": lambda: NET.weight.square().sum(), "iterations": 1},
    also=[
        *rows("model", "must have a parameter that requires a gradient", torch.nn.Identity(), FROZEN),
        ({"loss": lambda: 1.0}, "loss must return a scalar that depends on the parameters"),
        ({"loss": lambda: NET.weight.square()}, "loss must return a scalar that depends"),
    ],
)

FIXTURES |= {distribution_shift.Given: lambda: distribution_shift.Given(prompt_of(PLAIN))}
TRAINED = experts.MultiHead([HEAD], experts.FreeGate(1, dtype=torch.float32))
entry(
    (distribution_shift.Given, "sample"),
    also=[
        ({"batch": 3}, "batch must be 2 in torch.float32, the prompts given, got 3"),
        ({"dtype": torch.float64}, "batch must be 2 in torch.float32, the prompts given, got 2 in torch.float64"),
        ({"device": "meta"}, "device must be cpu"),
    ],
)
entry(distribution_shift.query_loss, given={"model": TRAINED})
entry(
    distribution_shift.adapt,
    given={"model": TRAINED, "prompt": prompt_of(PLAIN), "iterations": 1},
    also=[
        *rows("names", "must be a sequence of parts of", "gate", ["nothing"]),
        ({"model": torch.nn.Identity()}, "names must be a sequence of parts of no name"),
    ],
)
entry(
    distribution_shift.rescale,
    given={"model": TRAINED, "X": torch.ones(2, 3, 2), "made_for": 1.0},
    also=[
        ({"model": experts.MultiHead([HEAD])}, "model must have a FreeGate"),
        ({"X": torch.zeros(2, 3, 2)}, "X must hold inputs of at least one prompt"),
    ],
)
