"""The contest: who is told or taught what has the numbers that were found; and all of it once, small."""

import pandas as pd
import pytest
import torch

from icl.experiments.evaluation import clean_risk, one_step_ahead
from icl.experiments.grid import Grid, run_grid
from icl.experiments.training import AdamW, Config
from icl.experiments.tuning import LAYERS, tune
from icl.models.fast_weights import GLA
from icl.profile import make_generator
from icl_bench import comparison
from icl_bench.comparison import makers, train_on, trainable_layers
from icl_bench.tasks import drifting_tasks

TASKS = drifting_tasks(3, 12)
PLAN = Config(2, 16, AdamW(lr=0.01, weight_decay=0.0))


def test_a_layer_is_tuned_on_prompts_of_its_own():
    """It is `tune` on the stream's prompts at the last positions, up to rounding: sums go by where memory begins."""
    task = TASKS["AR(1), γ = 0.9, noise"]
    found = comparison.tuned_for(task, LAYERS["GLA"], prompts=6, last=5, stream="own")
    prompt = task.sample(6, generator=make_generator("own"), dtype=torch.float64)
    own = tune(LAYERS["GLA"], prompt, positions=slice(-5, None), rounds=2).settings
    assert found.settings == pytest.approx(own, rel=1e-12)
    other = tune(LAYERS["GLA"], prompt, positions=slice(-6, None), rounds=2).settings
    assert found.settings != pytest.approx(other, rel=1e-6)


def test_teaching_lowers_the_error_of_all_tasks_at_once():
    """After 60 steps a layer errs less on every one of two tasks in the second half of the prompts than before."""
    tasks, layer = [TASKS["AR(1), γ = 0.9"], TASKS["AR(1), γ = 0.95, noise"]], GLA(3, lam=0.2, mu=0.01)
    prompts = [task.sample(200, generator=make_generator("judge")) for task in tasks]
    before = [clean_risk(layer, prompt, last=6)[0] for prompt in prompts]
    train_on(layer, tasks, Config(60, 32, AdamW(lr=0.05, weight_decay=0.0)), generator=make_generator("teach"))
    after = [clean_risk(layer, prompt, last=6)[0] for prompt in prompts]
    assert all(now < then for now, then in zip(after, before, strict=True))


@pytest.fixture(scope="module")
def small():
    """Two tasks, tuned and taught in a moment, and what is then compared."""
    tasks = {name: TASKS[name] for name in ("AR(1), γ = 0.9", "AR(1), γ = 0.9, noise")}
    models = {name: (made, PLAN) for name, (made, _) in trainable_layers(3).items()}
    tuned = comparison.tuned_settings(tasks, prompts=5, last=4)
    settings = pd.concat([tuned, comparison.trained_settings(tasks, models)], ignore_index=True)
    return tasks, models, settings


@pytest.mark.usefixtures("as_installed")
def test_contestants_have_the_numbers_that_were_found(small):
    """Each answers as the layer made of its row does, and as the model that was taught, float32 numbers in float64."""
    tasks, models, settings = small
    (name, task), *_ = tasks.items()
    made = makers(task, name, settings)
    assert list(made) == [
        *("floor", "answer 0", *LAYERS, "Kalman"),
        *(f"{model}{comparison.FOR_ALL}" for model in models),
    ]
    prompt = task.sample(3, generator=make_generator("contestants"), dtype=torch.float64)
    found = comparison.tuned_for(task, LAYERS["Mesa"], prompts=5, last=4).predictor
    assert torch.equal(one_step_ahead(made["Mesa"](task), prompt), one_step_ahead(found, prompt))
    for method in ("GLA", "gated delta, 4 layers", "S6"):
        make, config = models[method]
        model = make()
        train_on(model, list(tasks.values()), config, generator=make_generator(f"benchmark, training {method}"))
        own = one_step_ahead(made[method + comparison.FOR_ALL](task), prompt)
        torch.testing.assert_close(own, one_step_ahead(model.double(), prompt), rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("as_installed")
def test_the_comparison_is_a_grid_for_each_task(small, tmp_path):
    """Its rows are those of `run_grid` on one task after another, to the bit; the floor is the reference."""
    tasks, _, settings = small
    found = comparison.compare(tasks, settings, batch=3, seeds=1, last=4)
    for name, task in tasks.items():
        grid = Grid({name: task}, makers(task, name, settings), 1, 3, 4, "floor", "one benchmark")
        own = found[found.task == name].reset_index(drop=True)
        pd.testing.assert_frame_equal(own, run_grid(grid).pooled(), check_exact=True)
    assert (found[found.method == "floor"].ratio == 1).all()


@pytest.mark.usefixtures("as_installed")
def test_a_layer_of_ones_own_stands_beside_them(small):
    """A maker more in the grid, tuned by the same function; it answers what it answers alone."""
    tasks, _, settings = small
    (name, task), *_ = tasks.items()
    mine = comparison.tuned_for(task, LAYERS["RLS"], prompts=5, last=4)
    made = makers(task, name, settings) | {"mine": lambda task: mine.predictor}
    table = run_grid(Grid({name: task}, made, 1, 3, 4, "floor", "one benchmark")).pooled().set_index("method")
    assert table.risk["mine"] == table.risk["RLS"]


@pytest.mark.usefixtures("as_installed")
def test_settings_that_are_not_there_are_refused_by_name(small):
    tasks, _, settings = small
    (name, task), *_ = tasks.items()
    with pytest.raises(ValueError, match="settings must hold Mesa for AR"):
        makers(task, name, settings[settings.method != "Mesa"])
    short = settings[~((settings.task == "all") & (settings.method == "S6") & (settings.setting == "layer.B.W 0"))]
    with pytest.raises(ValueError, match=r"settings must hold the \d+ numbers of S6, got"):
        makers(task, name, short)
