"""Budgets: what is equal for everybody, what a training of one looks like, and sizes that cannot be."""

import pytest

from icl.experiments.training import AdamW
from icl_bench.budgets import BUDGETS, Budget

TINY = Budget("tiny", 2, 8, 8, 1, 24, 4, (1e-3, 1e-2), 2, 5, 8, 4)


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
def test_a_budget_has_what_the_comparison_needs(budget):
    """At least three seeds, three rates that rise, and the better of them not by the number of prompts alone."""
    assert BUDGETS[budget.name] is budget
    assert budget.seeds >= 3
    assert len(budget.rates) >= 3
    assert budget.prompts >= 400
    assert budget.choosing >= 256
    assert budget.last <= budget.n // 2


def test_budgets_rise():
    """In every size a larger one is larger."""
    sizes = ("d", "n", "width", "depth", "steps", "batch", "prompts", "choosing")
    for one, next_ in zip(list(BUDGETS.values()), list(BUDGETS.values())[1:], strict=False):
        assert all(getattr(one, size) < getattr(next_, size) for size in sizes)


@pytest.mark.parametrize(("tasks", "batch"), [(1, 4), (2, 4), (3, 6), (4, 4), (5, 5), (18, 18)])
def test_a_step_has_as_many_prompts_of_each_task(tasks, batch):
    """The least multiple of the tasks that is the budget's batch or more."""
    config = TINY.config(1e-2, tasks)
    assert config.batch == batch
    assert config.steps == 24
    assert config.warm_up == 2
    assert config.optimiser == AdamW(lr=1e-2, weight_decay=0.0, beta2=0.99)


def test_a_step_size_rises_and_falls_to_a_twentieth():
    """After the warm-up it is the rate, at the end a twentieth of it."""
    config = TINY.config(1e-2, 1)
    assert config.step_size(2) == pytest.approx(1e-2)
    assert config.step_size(TINY.steps) == pytest.approx(1e-2 / 20)
    assert config.step_size(1) == pytest.approx(1e-2 / 2)


def test_the_shape_is_the_longest_that_is_read():
    """Prompts twice as long: an example is two tokens, the query one."""
    assert TINY.shape.longest == 2 * 16 + 1
    assert (TINY.shape.d, TINY.shape.n, TINY.shape.width, TINY.shape.depth) == (2, 8, 8, 1)


def test_a_budget_with_other_seeds_is_the_same_else():
    assert TINY.with_seeds(5).to_dict() == TINY.to_dict() | {"seeds": 5}
