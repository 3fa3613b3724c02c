"""A benchmark's numbers against a second computation of each; they are the same however it is worked through, and what
is not its own is refused.
"""

import functools
import json
import math
import shutil

import numpy as np
import pandas as pd
import pytest
import torch

from icl import _source, filters
from icl.experiments import grid as benchmark
from icl.experiments.evaluation import one_step_ahead, settled_risk
from icl.experiments.grid import CellFailed, Expected, Grid, run_grid
from icl.profile import make_generator
from icl.tasks import DriftingRegression, Noisy, clean
from icl.tasks.core import InputLaw
from icl.theory import floors

# Oracles

DRIFT = DriftingRegression(d=3, n=12, gamma=0.9, sigma_w=0.25)


def zero(task):
    return filters.zero()


def rls(task):
    return filters.rls(0.9, eps=0.01)


def noisy_kalman(task):
    return filters.kalman(task.task, sigma_y=task.sigma_y)


def test_a_cell_is_what_comparison_measures_on_the_same_prompts():
    """Risk, standard error, difference and its standard error, of labels without noise: `evaluation.settled_risk` of
    the stream that the cell names, rtol 1e-9. Two tasks, two seeds.
    """
    makers = {"zero": zero, "RLS": rls, "Kalman": filters.kalman}
    tasks = {"slow": DRIFT, "a / b": DriftingRegression(d=2, n=15, gamma=0.7)}
    found = run_grid(Grid(tasks, makers, seeds=2, batch=40, last=5, reference="Kalman", stream="x"))
    assert list(found.table.columns) == ["task", "method", "seed", "risk", "se", "difference", "difference_se"]
    for (name, seed), rows in found.table.groupby(["task", "seed"]):
        expected = settled_risk(
            {key: maker(tasks[name]) for key, maker in makers.items()},
            tasks[name],
            40,
            last=5,
            generator=make_generator(f"x/{name}", seed=seed),
            against="Kalman",
        )
        assert list(rows["method"]) == list(expected["method"])
        columns = ["risk", "se", "difference", "difference_se"]
        np.testing.assert_allclose(rows[columns], expected[columns], rtol=1e-9, atol=1e-15)


def test_errors_are_against_the_clean_label():
    """With noise of 3, filters read noisy labels and are judged by <w, x>; written out, rtol 1e-12."""
    task = Noisy(DRIFT, 3.0)
    found = run_grid(Grid({"t": task}, {"Kalman": noisy_kalman, "zero": zero}, 1, 30, 4, "zero"))
    prompt = task.sample(30, generator=make_generator("benchmark/t"), dtype=torch.float64)
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
    prompt = DRIFT.sample(20, generator=make_generator("benchmark/t"), dtype=torch.float64)
    floor = floors.expected_errors(prompt.x.numpy(), DRIFT)[:, -3:].mean()
    np.testing.assert_allclose(found.table["risk"][0], floor, rtol=1e-12)
    np.testing.assert_allclose(floor, floors.best_linear_errors(prompt.x.numpy(), DRIFT)[:, -3:].mean(), rtol=1e-9)


def expected_errors(task, prompt):
    return floors.expected_errors(prompt.x.numpy(), task)


def test_seeds_are_pooled_by_their_own_errors():
    """Pooled risk is the mean over all prompts; its standard error, and that of the ratio to the reference, are those
    of independent seeds, the second from the residuals a - r b of every prompt (the delta method written out); 1e-9.
    """
    makers = {"zero": zero, "RLS": rls}
    found = run_grid(Grid({"t": DRIFT}, makers, seeds=3, batch=25, last=5, reference="zero")).pooled()
    errors = {name: [] for name in makers}
    for seed in range(3):
        prompt = DRIFT.sample(25, generator=make_generator("benchmark/t", seed=seed), dtype=torch.float64)
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


# Properties

TASKS = {f"γ = {g}": DriftingRegression(d=3, n=8, gamma=g) for g in (0.8, 0.95)}


def delta(task):
    return filters.delta_rule(0.2, lam=task.gamma)


MAKERS = {"Kalman": filters.kalman, "RLS": rls, "delta": delta}


def grid(**changes):
    return Grid(
        **{"tasks": TASKS, "makers": MAKERS, "seeds": 2, "batch": 6, "last": 3, "reference": "Kalman"} | changes
    )


# What makes these predictors, as a program by itself: this file would be read anew for every fingerprint.
PROGRAM = """
from icl import filters
makers = {
    "Kalman": filters.kalman,
    "RLS": lambda task: filters.rls(0.9, eps=0.01),
    "delta": lambda task: filters.delta_rule(0.2, lam=task.gamma),
}
"""


@pytest.fixture(autouse=True)
def _program(monkeypatch):
    """The program that runs; under pytest it is pytest's own."""
    monkeypatch.setattr(_source, "program", lambda: PROGRAM)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder with all cells of the grid, for tests to copy or to leave as it is; it and the one it is in are new."""
    folder = tmp_path_factory.mktemp("kept") / "grids" / "a"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_source, "program", lambda: PROGRAM)
        run_grid(grid(), folder)
    return folder


@pytest.fixture(scope="module")
def alone():
    return run_grid(grid()).table


def same(table, expected):
    pd.testing.assert_frame_equal(table, expected, check_exact=True)


def test_a_run_that_was_killed_goes_on(alone, tmp_path, monkeypatch):
    """Killed after its second cell, a run keeps these two whole; taken up again, it works on the other two only."""
    written = []
    write = benchmark._write

    def die(*args):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(args[0])
        write(*args)

    monkeypatch.setattr(benchmark, "_write", die)
    with pytest.raises(KeyboardInterrupt):
        run_grid(grid(), tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(written)
    before = {path: path.stat().st_mtime_ns for path in written}

    monkeypatch.setattr(benchmark, "_write", write)
    worked, cell = [], benchmark._cell
    monkeypatch.setattr(benchmark, "_cell", lambda *args: worked.append(args[2]) or cell(*args))
    same(run_grid(grid(), tmp_path).table, alone)
    assert len(worked) == 2
    assert {path: path.stat().st_mtime_ns for path in written} == before
    # And once more, with nothing left to do; then with more seeds, whose first are there.
    same(run_grid(grid(), tmp_path).table, alone)
    assert len(worked) == 2
    more = run_grid(grid(seeds=3), tmp_path).table
    assert len(worked) == 4
    same(more[more["seed"] < 2].reset_index(drop=True), alone)


def test_a_draft_that_was_cut_off_is_no_cell(alone, tmp_path):
    """What a kill leaves in the midst of writing has another name, and is written anew."""
    (tmp_path / "γ = 0.8.0.json.0123abcd.part").write_text('{"task": ')
    same(run_grid(grid(), tmp_path).table, alone)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda text: text[: len(text) // 2], "cannot use the cell .*: "),
        (lambda text: "[]", "cannot use the cell .*: list indices"),
        (lambda text: "{}", "cannot use the cell .*: 'task'"),
        (lambda text: text.replace('"seed": 1', '"seed": 0'), "it holds 'γ = 0.8', seed 0"),
        (lambda text: text.replace('"fingerprint": "', '"fingerprint": "0'), "another grid, library or version"),
        (lambda text: text.replace('"method": "RLS"', '"method": "LMS"'), "it holds other predictors"),
        (lambda text: text.replace('"risk"', '"loss"'), "it holds .*'loss'"),
        (lambda text: text.replace('"difference": 0.0,', '"difference": NaN,'), "difference must be finite, got .*nan"),
    ],
)
def test_a_damaged_or_foreign_cell_is_refused_by_name(kept, tmp_path, spoil, message):
    """Refused with its path and the reason, before any work is done; and left as it is."""
    shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    first, path = sorted(tmp_path.iterdir())[:2]
    first.unlink()
    spoilt = spoil(path.read_text())
    assert spoilt != path.read_text()
    path.write_text(spoilt)
    with pytest.raises(ValueError, match=message) as refusal:
        run_grid(grid(), tmp_path)
    assert path.name in str(refusal.value)
    assert path.read_text() == spoilt
    assert not first.exists()


def test_another_grid_in_the_same_folder_is_refused(kept):
    with pytest.raises(ValueError, match="another grid, library or version"):
        run_grid(grid(batch=7), kept)


def fails(task):
    if task.gamma > 0.9:
        raise ArithmeticError("no such thing")
    return filters.rls(0.9, eps=0.01)


def test_a_predictor_that_fails_is_named(tmp_path):
    """With task, seed and its own message; cells that were finished stay."""
    message = r"broken failed on γ = 0.95, seed 0: ArithmeticError: no such thing"
    with pytest.raises(CellFailed, match=message):
        run_grid(grid(makers=MAKERS | {"broken": fails}, seeds=1), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["%CE%B3 = 0.8.0.json"]


@pytest.mark.parametrize(
    ("maker", "message"),
    [
        (lambda task: 3, "Type.*Error"),
        (lambda task: Expected(lambda prompt: np.zeros(2)), r"errors must have shape \(6, 9\)"),
        (lambda task: Expected(lambda prompt: np.full(prompt.y.shape, np.nan)), "errors must be finite"),
        (
            lambda task: Expected(lambda prompt: np.full(prompt.y.shape, 1e160)),
            r"errors must be finite .*, got 1e\+160",
        ),
        (lambda task: filters.rls(torch.tensor([[0.8], [0.9]]), eps=0.01), r"errors must have shape \(6, 9\)"),
        (lambda task: filters.lms(1e90), "FilterFailure: the filter diverged"),
    ],
)
def test_an_unusable_answer_is_named(maker, message):
    with pytest.raises(CellFailed, match=f"odd failed on γ = 0.8, seed 0: .*{message}"):
        run_grid(grid(makers=MAKERS | {"odd": maker}))


def test_a_worker_with_another_library_is_refused(monkeypatch):
    cell = benchmark._cell
    monkeypatch.setattr(benchmark, "_cell", lambda *args: (*cell(*args)[:2], {"library": "another"}))
    with pytest.raises(ValueError, match=r"workers must have this library .* got {'library': 'another'}"):
        run_grid(grid())


def test_another_program_has_another_fingerprint(monkeypatch):
    """The text of the program that runs counts."""
    before = grid().fingerprint("γ = 0.8")
    assert grid().fingerprint("γ = 0.8") == before
    monkeypatch.setattr(_source, "program", lambda: PROGRAM.replace("0.9", "0.8"))
    assert grid().fingerprint("γ = 0.8") != before


def test_cells_of_an_unknown_program_are_not_kept(monkeypatch, tmp_path):
    """Where nothing says what the makers do, no folder is taken: its cells could be another program's."""
    monkeypatch.setattr(_source, "program", str)
    with pytest.raises(ValueError, match="folder must be None where there is no notebook and no file"):
        run_grid(grid(), tmp_path)
    assert not list(tmp_path.iterdir())
    assert len(run_grid(grid(seeds=1)).table)


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": 7},
        {"last": 4},
        {"stream": "other"},
        {"reference": "RLS"},
        {"makers": dict(reversed(MAKERS.items()))},
        {"tasks": {"γ = 0.8": DriftingRegression(d=3, n=8, gamma=0.81)}},
        {"tasks": {"γ = 0.8": DriftingRegression(d=3, n=8, gamma=0.8, Lambda=np.diag([1.0, 1.0, 1.1]))}},
        {"tasks": {"γ = 0.8": Noisy(TASKS["γ = 0.8"], 0.0)}},
        {"tasks": {"γ = 0.8": DriftingRegression(d=3, n=8, gamma=0.8, inputs=InputLaw("a", 1.0, torch.zeros))}},
    ],
)
def test_another_grid_has_another_fingerprint(changes):
    assert grid(**changes).fingerprint("γ = 0.8") != grid().fingerprint("γ = 0.8")
    assert grid(seeds=9).fingerprint("γ = 0.8") == grid().fingerprint("γ = 0.8")


def test_another_library_or_version_has_another_fingerprint(monkeypatch):
    before = grid().fingerprint("γ = 0.8")
    for change in ({"library": "0"}, {"versions": {"torch": "0"}}):
        there = benchmark._environment() | change
        with monkeypatch.context() as patch:
            patch.setattr(benchmark, "_environment", lambda there=there: there)
            assert grid().fingerprint("γ = 0.8") != before


def test_a_task_that_cannot_be_written_down_is_refused():
    """Rather than a fingerprint that says nothing about it."""

    class Draw:
        def __call__(self, shape, generator, dtype, device):
            return torch.zeros(shape)

    odd = DriftingRegression(d=3, n=8, gamma=0.8, inputs=InputLaw("a", 1.0, Draw()))
    with pytest.raises(ValueError, match="must"):
        grid(tasks={"γ = 0.8": odd}).fingerprint("γ = 0.8")


def test_a_cell_file_says_what_it_is(tmp_path):
    found = run_grid(grid(seeds=1), tmp_path)
    content = json.loads((tmp_path / "%CE%B3 = 0.8.0.json").read_text())
    assert content["task"] == "γ = 0.8"
    assert content["fingerprint"] == found.provenance["fingerprints"]["γ = 0.8"]
    assert set(found.provenance) == {"config", "fingerprints", "library", "versions"}
