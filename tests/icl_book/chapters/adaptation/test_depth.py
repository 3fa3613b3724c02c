"""Experiments of *Depth*, at small sizes, against the library's stacks, finite differences and planted tables."""

import numpy as np
import pandas as pd
import pytest
import torch

from icl import filters
from icl.models.stacks import Stack
from icl.profile import make_generator
from icl_book.chapters.adaptation import depth as chapter


@pytest.fixture(scope="module")
def prompts():
    """Sixteen prompts of a hundred examples."""
    return chapter.drifting(0.95).sample(16, generator=make_generator("depth prompts"), dtype=torch.float64)


def test_two_layer_loss_is_the_quadratic_form_of_its_moments(prompts):
    """The library's stack has the loss at the query that the seven numbers say."""
    stack = Stack(10, 2, dtype=torch.float64)
    with torch.no_grad():
        stack.s_x.fill_(0.3)
        stack.s_y.copy_(torch.tensor([0.6, 0.9], dtype=torch.float64))
        lam = stack.lam.tolist()
        (M,) = chapter.moments(prompts, lam[0], lam[1:])
        by_moments = chapter.combined([0.3, 0.6, 0.9]) @ M @ chapter.combined([0.3, 0.6, 0.9])
        exact = stack.errors(prompts.x, prompts.y)[:, -1].square().mean().item()
    assert by_moments == pytest.approx(exact, rel=1e-9)
    assert chapter.least(M).fun <= by_moments


def test_errors_written_out_are_the_stacks(prompts):
    """Loss and gradient of two layers, as polynomials and by automatic differentiation."""
    fixed = chapter.drifting(0.95).sample(4, generator=make_generator("few"), dtype=torch.float64)
    loss, start = chapter.objective(2, fixed)
    written = chapter.as_polynomial(2, fixed)
    for one, other in zip(loss(start), written(start), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    falling = chapter.descend(written, start, 1e-3, 4)
    assert (np.diff(falling) < 0).all()


def test_means_over_seeds_leave_out_what_explodes():
    """A mean and both parts of its error; a depth with one wide seed has no mean."""
    table = pd.DataFrame({"layers": [1, 1, 2, 2], "excess": [0.1, 0.3, 1, 2], "excess_se": [0.03, 0.03, 0.01, 9]})
    found = chapter.by_depth(table, ["layers"])
    assert found.excess[1] == pytest.approx(0.2)
    assert found.se[1] == pytest.approx(np.hypot(0.03, 0.1))
    assert np.isnan(found.excess[2])
    assert list(found.exploded) == [0, 1]


def test_outliers_are_counted_and_left_out():
    """Prompts with one of the last ten errors at 20 or more, counted again, and the excess of all others."""
    task, model = chapter.drifting(0.95), chapter.starting(4, 5.0)
    table = chapter.but_for_outliers({"four": model}, task, 200, name="wild")
    prompt = task.sample(200, generator=make_generator("test wild paper"), dtype=torch.float64)
    with torch.no_grad():
        wrong = model.errors(prompt.x, prompt.y)[:, -10:].abs()
    out = (wrong >= 20).any(1)
    exact = (filters.run_filter(filters.kalman(task), prompt.x, prompt.y) - prompt.y)[:, -10:]
    excess = (wrong.square() - exact.square())[~out].mean()
    assert 0 < out.sum() < 200
    assert table.outliers["four"] == out.sum()
    assert table.outliers["Kalman"] == 0
    assert table.excess["four"] == pytest.approx(excess.item(), rel=1e-9)


def test_stretching_by_one_changes_nothing_and_deep_stacks_break_first(prompts):
    """Unstretched examples give the stack's own answers; at the edge it is ten times as wrong as answering 0."""
    prompt = tuple(part[0].numpy() for part in (prompts.x[:, -31:-1], prompts.y[:, -31:-1], prompts.w[:, -1]))
    stack, stretches = chapter.starting(4), np.linspace(1, 4, 31)
    asked = torch.cat([prompts.x[:1, -31:-1].expand(10, -1, -1), torch.eye(10).double()[:, None]], 1)
    told = torch.cat([prompts.y[:1, -31:-1].expand(10, -1), torch.zeros(10, 1).double()], 1)
    with torch.no_grad():
        answers = -stack.errors(asked, told)[:, -1]
    plain = (answers - prompts.w[0, -1]).norm() / prompts.w[0, -1].norm()
    assert chapter.stretched_errors(stack, prompt, [1.0])[0] == pytest.approx(plain.item(), rel=1e-9)
    at = chapter.edge(stack, prompt, stretches)
    assert chapter.stretched_errors(stack, prompt, [at])[0] == pytest.approx(10, rel=1e-6)
    one, every = (chapter.stretched_errors(stack, prompt, [4.0], newest=k)[0] for k in (1, None))
    assert one < every / 100


def test_a_frozen_part_stays_where_it_was():
    """Inputs that are left alone have steps of 0 that do not train."""
    stack = chapter.VARIANTS["inputs left alone"](3)
    assert not stack.s_x.requires_grad
    assert stack.s_x.abs().max() == 0
    assert chapter.VARIANTS["the stack"](3).s_x.requires_grad


def test_a_table_has_the_least_of_its_falls():
    """Errors that fall by 1, 2 and 3 in the mean, least between the first layers."""
    rows = [
        {"γ": 0.95, "seed": seed, "layers": k, "λ": 0.9, "risk": 10 - k * (k + 1) / 2 + 0.01 * seed * k}
        for seed in range(5)
        for k in (1, 2, 3, 4)
    ]
    least, z, _ = chapter.steps_down(pd.DataFrame(rows), "risk", 0.95)
    assert least == pytest.approx(2 - 0.02)
    assert z > 100
