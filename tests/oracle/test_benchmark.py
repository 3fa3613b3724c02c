"""A benchmark's numbers against a second computation of each."""

import functools
import math

import numpy as np
import pandas as pd
import pytest
import torch

from icl import filters
from icl.profile import streams
from icl.runs.grid import Expected, Grid, run_grid
from icl.runs.judging import one_step_ahead, settled_risk
from icl.tasks import DriftingRegression, Noisy, clean
from icl.theory import floors

DRIFT = DriftingRegression(d=3, n=12, gamma=0.9, sigma_w=0.25)
ZERO = filters.Filter(filters.Estimate, lambda state, x, y, y_hat: state)


def zero(task):
    return ZERO


def least_squares(task):
    return filters.rls(0.9)


def noisy_kalman(task):
    return filters.kalman(task.task, sigma_y=task.sigma_y)


def test_a_cell_is_what_comparison_measures_on_the_same_prompts():
    """Risk, standard error, difference and its standard error, of labels without noise: `runs.judging.settled_risk` of
    the stream that the cell names, rtol 1e-9. Two tasks, two seeds.
    """
    makers = {"zero": zero, "RLS": least_squares, "Kalman": filters.kalman}
    tasks = {"slow": DRIFT, "a / b": DriftingRegression(d=2, n=15, gamma=0.7)}
    found = run_grid(Grid(tasks, makers, seeds=2, batch=40, last=5, reference="Kalman", stream="x"))
    assert list(found.table.columns) == ["task", "method", "seed", "risk", "se", "difference", "difference_se"]
    for (name, seed), rows in found.table.groupby(["task", "seed"]):
        expected = settled_risk(
            {key: maker(tasks[name]) for key, maker in makers.items()},
            tasks[name],
            40,
            last=5,
            generator=streams(f"x/{name}", seed=seed),
            against="Kalman",
        )
        assert list(rows["method"]) == list(expected["method"])
        columns = ["risk", "se", "difference", "difference_se"]
        np.testing.assert_allclose(rows[columns], expected[columns], rtol=1e-9, atol=1e-15)


def test_errors_are_against_the_clean_label():
    """With noise of 3, filters read noisy labels and are judged by <w, x>; written out, rtol 1e-12."""
    task = Noisy(DRIFT, 3.0)
    found = run_grid(Grid({"t": task}, {"Kalman": noisy_kalman, "zero": zero}, 1, 30, 4, "zero"))
    prompt = task.sample(30, generator=streams("benchmark/t"), dtype=torch.float64)
    y_hat = one_step_ahead(noisy_kalman(task), prompt)
    own = ((y_hat - (prompt.w * prompt.x).sum(-1)) ** 2)[:, -4:].mean(1).numpy()
    other = ((prompt.w * prompt.x).sum(-1) ** 2)[:, -4:].mean(1).numpy()
    expected = [f(v) for v in (own, own - other) for f in (np.mean, lambda v: np.std(v, ddof=1) / math.sqrt(30))]
    row = found.table.iloc[0]
    np.testing.assert_allclose([row[c] for c in ("risk", "se", "difference", "difference_se")], expected, rtol=1e-12)


def test_a_limit_stands_beside_what_is_measured():
    """`Expected` puts errors in closed form in a row of their own: the floor given inputs, by Riccati, rtol 1e-12."""
    limit = Expected(functools.partial(expected_errors, DRIFT))
    found = run_grid(Grid({"t": DRIFT}, {"floor": lambda task: limit, "zero": zero}, 1, 20, 3, "floor"))
    prompt = DRIFT.sample(20, generator=streams("benchmark/t"), dtype=torch.float64)
    floor = floors.expected_errors(prompt.x.numpy(), DRIFT)[:, -3:].mean()
    np.testing.assert_allclose(found.table["risk"][0], floor, rtol=1e-12)
    np.testing.assert_allclose(floor, floors.best_linear_errors(prompt.x.numpy(), DRIFT)[:, -3:].mean(), rtol=1e-9)


def expected_errors(task, prompt):
    return floors.expected_errors(prompt.x.numpy(), task)


def test_seeds_are_pooled_by_their_own_errors():
    """Pooled risk is the mean over all prompts; its standard error, and that of the ratio to the reference, are those
    of independent seeds, the second from the residuals a - r b of every prompt (the delta method written out); 1e-9.
    """
    makers = {"zero": zero, "RLS": least_squares}
    found = run_grid(Grid({"t": DRIFT}, makers, seeds=3, batch=25, last=5, reference="zero")).pooled()
    errors = {name: [] for name in makers}
    for seed in range(3):
        prompt = DRIFT.sample(25, generator=streams("benchmark/t", seed=seed), dtype=torch.float64)
        for name, maker in makers.items():
            squares = (one_step_ahead(maker(DRIFT), prompt) - clean(prompt)) ** 2
            errors[name].append(squares[:, -5:].mean(1).numpy())
    a, b = np.array(errors["RLS"]), np.array(errors["zero"])
    r = a.mean() / b.mean()

    def se(values):
        return math.sqrt((values.var(1, ddof=1) / 25).sum()) / 3

    row = found.set_index("method").loc["RLS"]
    got = row[["risk", "se", "difference", "difference_se", "ratio", "ratio_se"]].astype(float)
    expected = [a.mean(), se(a), (a - b).mean(), se(a - b), r, se(a - r * b) / b.mean()]
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    reference = found.set_index("method").loc["zero"]
    assert (reference["ratio"], reference["difference"]) == (1.0, 0.0)
    assert reference["ratio_se"] == pytest.approx(0, abs=1e-9)


def test_noise_is_drawn_after_the_prompt():
    """Inputs and weights are the task's own to the bit, whatever the noise; labels differ by sigma_y times one draw."""
    plain = DRIFT.sample(6, generator=streams("n"), dtype=torch.float64)
    drawn = {}
    for sigma_y in (0.0, 0.5, 2.0):
        prompt = Noisy(DRIFT, sigma_y).sample(6, generator=streams("n"), dtype=torch.float64)
        assert torch.equal(prompt.x, plain.x)
        assert torch.equal(prompt.w, plain.w)
        assert torch.equal(clean(prompt), plain.y)
        drawn[sigma_y] = prompt.y - plain.y
    assert not drawn[0.0].any()
    torch.testing.assert_close(drawn[2.0], 4 * drawn[0.5], rtol=1e-9, atol=1e-12)
    pd.testing.assert_frame_equal(
        pd.DataFrame(Noisy(DRIFT, 1.0).weight_kernel()), pd.DataFrame(DRIFT.weight_kernel()), check_exact=True
    )
