"""A benchmark gives the same numbers however it is worked through, and refuses what is not its own."""

import json
import sys
from pathlib import Path

import cloudpickle
import joblib
import numpy as np
import pandas as pd
import pytest
import torch

from icl import _identity, filters
from icl.runs import grid as benchmark
from icl.runs.grid import CellFailed, Expected, Grid, run_grid
from icl.tasks import DriftingRegression, InputLaw, Noisy

# Worker processes cannot import a test: they are handed its functions whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

TASKS = {f"γ = {g}": DriftingRegression(d=3, n=8, gamma=g) for g in (0.8, 0.95)}
FORGETTING = 0.9


def least_squares(task):
    return filters.rls(FORGETTING)


def delta(task):
    return filters.delta_rule(0.2, lam=task.gamma)


MAKERS = {"Kalman": filters.kalman, "RLS": least_squares, "delta": delta}


def grid(**changes):
    return Grid(
        **{"tasks": TASKS, "makers": MAKERS, "seeds": 2, "batch": 6, "last": 3, "reference": "Kalman"} | changes
    )


@pytest.fixture(autouse=True)
def _program(monkeypatch):
    """These tests as the program that runs; under pytest it is pytest's own."""
    text = Path(__file__).read_text(encoding="utf-8")
    monkeypatch.setattr(_identity, "running", lambda: [text])


@pytest.fixture(scope="module")
def alone():
    return run_grid(grid()).table


@pytest.fixture
def importable(monkeypatch):
    """Worker processes find the library under test."""
    monkeypatch.setenv("PYTHONPATH", str(Path(benchmark.__file__).parents[1]))


def same(table, expected):
    pd.testing.assert_frame_equal(table, expected, check_exact=True)


def test_two_processes_give_the_same_bits(alone, importable, tmp_path):
    same(run_grid(grid(), tmp_path, jobs=2).table, alone)
    same(run_grid(grid(), tmp_path).table, alone)


def test_a_dask_cluster_gives_the_same_bits(importable):
    """The same call inside `parallel_config(backend="dask")` goes to a local cluster of two worker processes."""
    from distributed import Client, LocalCluster

    # The library's own functions, which Dask finds by their names.
    given = grid(makers={"Kalman": filters.kalman, "steady": filters.steady_kalman})
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        with joblib.parallel_config(backend="dask"):
            found = run_grid(given).table
        # The work was done there and not here.
        known = client.run(lambda: "icl.runs.grid" in __import__("sys").modules)
        assert len(known) == 2
        assert any(known.values())
    same(found, run_grid(given).table)


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
    (tmp_path / "γ = 0.8.0.json.part").write_text('{"task": ')
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
def test_a_damaged_or_foreign_cell_is_refused_by_name(tmp_path, spoil, message):
    """Refused with its path and the reason, before any work is done; and left as it is."""
    run_grid(grid(), tmp_path)
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


def test_another_grid_in_the_same_folder_is_refused(tmp_path):
    run_grid(grid(), tmp_path)
    with pytest.raises(ValueError, match="another grid, library or version"):
        run_grid(grid(batch=7), tmp_path)


def fails(task):
    if task.gamma > 0.9:
        raise ArithmeticError("no such thing")
    return filters.rls(0.9)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_predictor_that_fails_is_named(importable, tmp_path, jobs):
    """With task, seed and its own message, from another process too; cells that were finished stay."""
    message = r"broken failed on γ = 0.95, seed 0: ArithmeticError: no such thing"
    with pytest.raises(CellFailed, match=message):
        run_grid(grid(makers=MAKERS | {"broken": fails}, seeds=1), tmp_path, jobs=jobs)
    if jobs == 1:
        assert [path.name for path in tmp_path.iterdir()] == ["%CE%B3 = 0.8.0.json"]


@pytest.mark.parametrize(
    ("maker", "message"),
    [
        (lambda task: 3, "Type.*Error"),
        (lambda task: Expected(lambda prompt: np.zeros(2)), r"errors must have shape \(6, 9\)"),
        (lambda task: Expected(lambda prompt: np.full(prompt.y.shape, np.nan)), "errors must be finite"),
        (lambda task: filters.rls(torch.tensor([[0.8], [0.9]])), r"errors must have shape \(6, 9\)"),
        (lambda task: filters.lms(1e90), "FloatingPointError"),
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
    """The program that runs counts, its comments and layout do not; so does what it reaches in the library."""
    program = "from icl import filters\nmake = lambda task: filters.rls(0.9)"
    prints = {}
    for name, text in (
        ("as it is", program),
        ("laid out", program.replace("filters.rls(0.9)", "filters.rls(\n    0.9)  # why")),
        ("another number", program.replace("0.9", "0.8")),
    ):
        monkeypatch.setattr(_identity, "running", lambda text=text: [text])
        prints[name] = grid().fingerprint("γ = 0.8")
    identity = _identity.identity
    monkeypatch.setattr(_identity, "running", lambda: [program])
    monkeypatch.setattr(_identity, "identity", lambda name: "new" if name == "icl.filters.rls" else identity(name))
    prints["another library"] = grid().fingerprint("γ = 0.8")
    assert prints["as it is"] == prints["laid out"]
    assert len(set(prints.values())) == 3


def test_cells_of_an_unknown_program_are_not_kept(monkeypatch, tmp_path):
    """Where nothing says what the makers do, no folder is taken: its cells could be another program's."""
    monkeypatch.setattr(_identity, "running", list)
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
        there = benchmark._surroundings() | change
        with monkeypatch.context() as patch:
            patch.setattr(benchmark, "_surroundings", lambda there=there: there)
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
