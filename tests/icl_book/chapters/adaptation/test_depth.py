"""Experiments of *Depth*, at small sizes, against the library's stacks, finite differences and planted tables."""

import numpy as np
import pandas as pd
import pytest
import torch

from icl import filters, theory
from icl.experiments.evaluation import settled_risk
from icl.models.causal import Normalised
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


def test_means_over_seeds_leave_out_what_few_prompts_rule():
    """A mean and both parts of its error; a depth with one wide seed has no mean."""
    table = pd.DataFrame({"layers": [1, 1, 2, 2], "excess": [0.1, 0.3, 1, 2], "excess_se": [0.03, 0.03, 0.01, 9]})
    found = chapter.by_depth(table, ["layers"])
    assert found.excess[1] == pytest.approx(0.2)
    assert found.se[1] == pytest.approx(np.hypot(0.03, 0.1))
    assert np.isnan(found.excess[2])
    assert list(found.ruled) == [0, 1]


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
    with pytest.raises(ValueError, match="stretches must begin before a stack of 4 layers is 10 times as wrong"):
        chapter.edge(stack, prompt, stretches[:3])


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


def law_of(rows, gamma=0.95, risk=2.0):
    """A record of trainings: family, layers and excess over Kalman's risk, two seeds each."""
    table = [
        {"γ": gamma, "family": f, "layers": k, "excess": e + s, "excess_se": 0.01}
        for f, k, e in rows
        for s in (-0.1, 0.1)
    ]
    floor = {"γ": gamma, "family": "Kalman", "layers": 0, "excess": 0.0, "excess_se": 0.01, "risk": risk}
    return pd.DataFrame([*table, floor])


def test_errors_by_depth_are_multiples_of_kalmans():
    """(2 + excess) / 2; deeper GLA is taken from the table without outliers, and the delta rule gets its full name."""
    law = law_of([("GLA", 1, 1.0), ("GLA", 2, 9.0), ("normalised GLA", 1, 0.5), ("delta rule", 1, 0.2)])
    rest = law_of([("GLA", 2, 0.4), ("normalised GLA", 2, 0.3)]).iloc[:-1]
    found = chapter.over_kalman(law, rest)
    assert list(found) == ["GLA", "normalised GLA", "normalised delta rule"]
    assert found["GLA"].to_dict() == pytest.approx({1: 1.5, 2: 1.2})
    assert found["normalised GLA"].to_dict() == pytest.approx({1: 1.25})
    assert found["normalised delta rule"].to_dict() == pytest.approx({1: 1.1})


def test_percents_have_their_error_in_brackets():
    """5% +- 0.5% of a floor of 2; a depth that a few prompts rule has no mean."""
    law = law_of([("delta rule", 1, 0.1), ("GLA", 1, 0.2)])
    law.loc[law.family == "GLA", "excess_se"] = 1.0
    law.loc[law.family == "delta rule", "excess"] = 0.1
    depth = chapter.by_depth(law[law.family != "Kalman"], ["γ", "family", "layers"])
    percent = chapter.percent_above(depth, pd.Series({0.95: 2.0}, name="risk").rename_axis("γ"))
    shown = percent.apply(chapter.bracketed, axis=1)
    assert shown[0.95, "normalised delta rule", 1] == "5.00(50)"
    assert shown[0.95, "GLA", 1] == "no mean (2 of 5)"


def test_a_run_is_recorded_at_the_profile_paper_alone(monkeypatch):
    """With missing values as empty cells, and its settings as they were given."""
    kept = []
    monkeypatch.setattr(chapter, "record", lambda name, table, **facts: kept.append((name, table, facts)))
    monkeypatch.setattr(chapter.profile, "current", lambda: "quick")
    chapter.rerun("a", lambda: pd.DataFrame({"risk": [1.0, np.inf]}), seeds=5)
    assert not kept
    monkeypatch.setattr(chapter.profile, "current", lambda: "paper")
    chapter.rerun("a", lambda: pd.DataFrame({"risk": [1.0, np.inf]}), seeds=5)
    ((name, table, facts),) = kept
    assert (name, facts["config"], list(table.risk)) == ("a", {"seeds": 5}, [1.0, None])
    assert facts["seconds"] >= 0


def test_excess_over_kalman_is_the_librarys():
    """Risk, excess and standard errors of `settled_risk` on the same prompts; a model that overflows has none."""
    task, models = chapter.drifting(0.95, n=60), {"two": chapter.starting(2), "wild": chapter.starting(8, 1e30)}
    found = chapter.against_kalman(models, task, 300, name="tiny")
    everyone = {"Kalman": filters.kalman(task), "two": models["two"]}
    prompts = make_generator("test tiny paper")
    table = settled_risk(everyone, task, 300, last=10, generator=prompts, against="Kalman", size=2_000)
    exact = table.set_index("method").rename(columns={"difference": "excess", "difference_se": "excess_se"})
    columns = ["risk", "se", "excess", "excess_se"]
    np.testing.assert_allclose(found.loc[["Kalman", "two"], columns], exact[columns].loc[["Kalman", "two"]], rtol=1e-9)
    assert found.loc["wild"].isna().all()


def test_one_layer_needs_one_memory():
    """The best powers are no worse than any on a grid, and no other weights on positions are better."""
    table = chapter.memories_of_one_layer([0.8, 0.95])
    grid = theory.one_layer.training_error(chapter.drifting(0.95), lam=np.linspace(0.5, 0.99, 50))
    assert table["one λ"][0.95] <= grid.min() < 1.01 * table["one λ"][0.95]
    np.testing.assert_allclose(table["one λ"], table["any weights on positions"], rtol=1e-6)


def test_gap_closed_is_a_share_of_one_layers_gap():
    """Two layers half way to the floor close half of the gap, of drifts with two speeds and with one."""
    rows = [
        {"drift": name, "layers": k, "floor": 0.5, "risk": 0.5 + 2.0 / k} for name in chapter.TWO for k in (1, 2, 4)
    ]
    law = law_of([("GLA", 1, 0.4), ("GLA", 2, 0.1), ("GLA", 4, 0.05)])
    table = chapter.gap_closed(pd.DataFrame(rows), law, [0.95])
    assert list(table.index) == ["0.99 and 0.8", "0.999 and 0.5", "0.95 alone"]
    np.testing.assert_allclose(table["closed by a second layer"], [0.5, 0.5, 0.75])
    np.testing.assert_allclose(table.loc["0.95 alone", ["one layer", "two", "four", "floor"]], [2.4, 2.1, 2.05, 2.0])
    assert table["closed by any memory"].iloc[0] > 0.01
    assert abs(table["closed by any memory"].iloc[2]) < 1e-6


def test_errors_by_examples_end_on_those_of_whole_prompts():
    """Every length is a task of its own; errors are over the zero predictor's, Kalman's are least."""
    task = chapter.drifting(0.95)
    found = chapter.errors_by_examples(task, [3, 30, 100])
    best = theory.one_layer.training_error(task, lam=theory.one_layer.optimal_forgetting(task))
    zero = theory.one_layer.zero_predictor(task)
    assert found["GLA"][-1] == pytest.approx(best / zero, rel=1e-9)
    assert found["linear attention"][1] == pytest.approx(
        theory.one_layer.training_error(chapter.drifting(0.95, n=30), lam=1.0) / zero, rel=1e-9
    )
    assert (found["zero predictor"] == 1).all()
    assert (found["Kalman"] < found["GLA"]).all()
    assert (found["GLA"] < found["linear attention"]).all()


def test_stacks_are_kalmans_error_and_their_excess():
    """Means over seeds of differences from Kalman's error, put back on it."""
    task = chapter.drifting(0.95)
    rows = [
        {"method": f"{name}/{seed}", "position": n, "difference": excess + 0.01 * seed}
        for name, excess in (("GLA, 4 layers", 0.3), ("delta rule, 2 layers", 0.1), ("Kalman", 0.0))
        for seed in (-1, 1)
        for n in (5, 20, 900)
    ]
    found = chapter.stacks_by_examples(pd.DataFrame(rows), task, longest=20)
    zero = theory.one_layer.zero_predictor(task)
    level = chapter.errors_by_examples(task, [5, 20])["Kalman"]
    np.testing.assert_allclose(found["GLA, 4 layers"], level + 0.3 / zero, rtol=1e-9)
    np.testing.assert_allclose(found["normalised delta rule, 2 layers"], level + 0.1 / zero, rtol=1e-9)
    assert list(found["GLA, 4 layers"].index) == [5, 20]


def test_covariances_are_those_of_the_posterior():
    """Of the weights at the query, given all labels: from the joint Gaussian of weights and labels."""
    task = chapter.drifting(0.9, n=12)
    prompt = task.sample(2, generator=make_generator("posterior"), dtype=torch.float64)
    P = chapter.kalman_covariances(task, prompt)
    kernel = task.weight_kernel()
    for x, found in zip(prompt.x.numpy(), P.numpy(), strict=True):
        seen = x[:-1]
        labels = kernel[:-1, :-1] * (seen @ seen.T)
        across = kernel[-1, :-1] * seen.T  # covariance of the weights at the query with the labels
        exact = kernel[-1, -1] * np.eye(10) - across @ np.linalg.solve(labels, across.T)
        np.testing.assert_allclose(found, exact, atol=1e-9)


def test_cosine_of_matrices_is_blind_to_size_and_identity():
    """A matrix is like its multiples, whatever multiple of the identity is added, and opposite to its negative."""
    A, B = torch.randn(2, 3, 5, 5, generator=make_generator("cosine"), dtype=torch.float64)
    identity = torch.eye(5, dtype=torch.float64)
    ones = torch.ones(3, dtype=torch.float64)
    torch.testing.assert_close(chapter.cosine(A, 3 * A + 7 * identity), ones)
    torch.testing.assert_close(chapter.cosine(A, identity - A), -ones)
    torch.testing.assert_close(chapter.cosine(A, B), chapter.cosine(B, A))
    traceless = A[0] - A[0].trace() / 5 * identity
    by_hand = (traceless * B[0]).sum() / (traceless.norm() * (B[0] - B[0].trace() / 5 * identity).norm())
    torch.testing.assert_close(chapter.cosine(A, B)[0], by_hand)


def test_slopes_of_the_two_layer_loss():
    """Derivatives of the coefficients, by central differences; at the least loss the gradient is none."""
    steps, e = np.array([0.3, 0.6, 0.9]), 1e-6 * np.eye(3)
    differences = [(chapter.combined(steps + d) - chapter.combined(steps - d)) / 2e-6 for d in e]
    np.testing.assert_allclose(chapter._slopes(steps), differences, atol=1e-9)


def test_minimum_and_hessian_of_a_quadratic():
    """Of 1/2 t'Ht - b't: H itself, and H^-1 b."""
    H, b = np.array([[3.0, 1.0], [1.0, 2.0]]), np.array([1.0, -1.0])

    def loss(t):
        return t @ H @ t / 2 - b @ t, H @ t - b

    np.testing.assert_allclose(chapter.hessian(loss, np.ones(2)), H, rtol=1e-9)
    np.testing.assert_allclose(chapter.minimum(loss, np.zeros(2)).x, np.linalg.solve(H, b), rtol=1e-9)


def test_descent_falls_at_the_hessians_rate(prompts):
    """Slopes within 5%; one layer has one step, so its condition number is 1; paths begin at the start's excess."""
    rates, paths = chapter.convergence(prompts, {1: 40, 2: 400, 3: 0})
    exact = rates["2 ln(1 - h least / 2 h largest)"]
    np.testing.assert_allclose(rates.slope[[1, 2]], exact[[1, 2]], rtol=0.05)
    assert rates.condition[1] == pytest.approx(1)
    assert rates.condition[1] < rates.condition[2] < rates.condition[3]
    assert np.isnan(rates.slope[3])
    loss, start = chapter.objective(2, prompts)
    assert paths[2][0] == pytest.approx(loss(start)[0] - chapter.minimum(loss, start).fun, rel=1e-6)
    assert list(paths) == [1, 2]
    assert all((path > 1e-9).all() for path in paths.values())


def test_answer_on_long_examples_is_what_the_stacks_do():
    """Its edges are where stacks are ten times as wrong; longer steps bring them nearer; one example is no ruin."""
    pairs, stretches = chapter.stretched_prompt(), np.linspace(1, 4, 31)
    figure = chapter.stretching_sliders(pairs, stretches)
    edge = {(k, s): chapter.edge(chapter.starting(k, s), pairs, stretches) for k, s in ((1, 1), (4, 1), (8, 1), (8, 2))}
    assert all(f"{at:.1f}" in figure.answer for at in edge.values())
    assert chapter.edge(chapter.starting(4, 3), pairs, stretches) < edge[4, 1] < edge[1, 1]
    # Steps start at one over the number of layers: those of eight are half those of four.
    assert edge[8, 2] < edge[4, 1] < edge[8, 1]
    assert chapter.stretched_errors(chapter.starting(4), pairs, stretches, newest=1).max() < 1
    flat = chapter.stretched_errors(Normalised(chapter.starting(4)), pairs, stretches)
    np.testing.assert_allclose(flat, flat[0], rtol=1e-9)


def test_learnt_factors_have_a_column_a_layer():
    """One drift, one family, no deeper than asked; layers that a stack lacks are empty."""
    rows = [
        (0.95, "GLA", 1, "0.9"),
        (0.95, "GLA", 2, "0.8 0.9"),
        (0.95, "GLA", 8, "0.1 0.2"),
        (0.8, "GLA", 1, "0.5"),
        (0.95, "delta rule", 1, "0.6"),
    ]
    law = pd.DataFrame(rows, columns=["γ", "family", "layers", "λ by layer"]).assign(seed=0)
    found = chapter.learnt_factors(law)
    assert list(found.columns) == ["layer 1", "layer 2"]
    assert list(found.index) == [(1, 0), (2, 0)]
    assert found.loc[(2, 0)].tolist() == [0.8, 0.9]
    assert np.isnan(found.loc[(1, 0), "layer 2"])
