"""A run of the benchmark: the same numbers to the bit in one process, in two, after kills; nothing half-made is taken
for whole; what does not fit is refused before anything is trained.
"""

import math
import os
import signal
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from shared import same_runs, started

from icl_bench import runner, training_jobs
from icl_bench.budgets import Budget
from icl_bench.entries import resolve
from icl_bench.results import read_results

TINY = Budget("tiny", 2, 8, 8, 1, 12, 4, (1e-3, 1e-2), 2, 5, 8, 4)
TASKS = ["ar1-0.9", "ar1-0.95-noise"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, written):
    """A run of it in one process that nothing stopped, and its folder."""
    place = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        return runner.run([written(place)], folder=place / "out", **settings()), place / "out"


def settings(**change):
    return {"tasks": TASKS, "budget": TINY, "only_tested": [], "quiet": True} | change


def test_a_run_has_every_row_once_and_chooses_the_better_rate(whole):
    """Two seeds at the rate of least validation error, a filter once, floors and answer 0; the file reads back."""
    found, folder = whole
    own = found.table[found.table.contestant == "Mine"]
    assert len(own) == 2 * 2 * 2  # seeds, tasks, variants
    told = found.meta["contestants"]["Mine"]
    tried = {float(rate): error for rate, error in told["rates"]["all"].items()}
    assert set(own.rate) == {min(tried, key=tried.get)} == {float(told["rate"]["all"])}
    assert set(found.table[found.table.kind == "floor"].contestant) <= {"genie", "Bayes", "best linear"}
    assert all(len(errors) == TINY.prompts for errors in found.table.errors)
    same_runs(read_results(folder / "results.parquet").table, found.table)
    assert any("rate tried" in warning for warning in told["warnings"])


@pytest.mark.parametrize("at", [1, 7, 20, 31])
def test_a_run_that_was_killed_ends_where_it_would_have(mine, whole, tmp_path, monkeypatch, at):
    """Stopped at some step of some training, state kept at every second step: the same bits, dropout and all."""
    monkeypatch.setattr(training_jobs, "_EVERY", 2)
    count, loss = [0], training_jobs._loss

    def die(model, prompt):
        count[0] += 1
        if count[0] == at:
            raise KeyboardInterrupt
        return loss(model, prompt)

    monkeypatch.setattr(training_jobs, "_loss", die)
    with pytest.raises(KeyboardInterrupt):
        runner.run([mine], folder=tmp_path / "out", **settings())
    assert not (tmp_path / "out" / "results.parquet").exists()
    monkeypatch.setattr(training_jobs, "_loss", loss)
    same_runs(runner.run([mine], folder=tmp_path / "out", **settings()).table, whole[0].table)


def test_a_killed_process_leaves_nothing_half_made(mine, tmp_path, monkeypatch):
    """kill -9 in the middle of a training; the same call then gives the table of a run that was left alone."""
    monkeypatch.setattr(training_jobs, "_EVERY", 2)  # there too
    budget = replace(TINY, steps=60, rates=(1e-3,), seeds=1)
    asked = settings(budget=budget)
    process = started(lambda: runner.run([mine], folder=tmp_path / "out", **asked))
    state = None
    until = time.monotonic() + 60
    while time.monotonic() < until and process.is_alive():
        state = next(iter((tmp_path / "out").glob("*/*.safetensors")), None)
        if state:
            break
        time.sleep(0.002)
    assert state is not None
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (tmp_path / "out" / "results.parquet").exists()
    after = runner.run([mine], folder=tmp_path / "out", **asked)
    same_runs(after.table, runner.run([mine], **asked).table)


def test_a_worker_ends_with_the_process_that_shared_the_cells_out(monkeypatch):
    """Killed with SIGKILL, a run leaves no worker that trains on, though nobody could tell it.

    Planted: without the watch, two workers of `--jobs 2` trained on after kill -9, in a folder no longer theirs.
    """
    monkeypatch.setattr(training_jobs, "_program", dict)
    monkeypatch.setattr(runner, "time", SimpleNamespace(sleep=lambda seconds: time.sleep(seconds / 50)))
    heard, say = os.pipe()
    if not (asker := os.fork()):
        try:
            asker = os.getpid()
            if not os.fork():
                runner._worker(lambda to, _: os.write(to, b"."), (say,), Path(), 0, asker)
            time.sleep(60)
        finally:
            os._exit(0)
    os.close(say)
    with os.fdopen(heard) as pipe:
        assert pipe.read(1) == "."
        os.kill(asker, signal.SIGKILL)
        os.waitpid(asker, 0)
        began = time.monotonic()
        assert pipe.read() == ""  # once nobody is left who could write to it
    assert time.monotonic() - began < 30


def test_a_worker_that_was_killed_ends_the_run_in_a_sentence(mine, tmp_path, monkeypatch):
    """With what to do, and what was done is kept."""

    def killed(*_, **__):
        raise BrokenProcessPool("a worker process was abruptly terminated")

    monkeypatch.setattr(runner.joblib, "Parallel", lambda **_: killed)
    with pytest.raises(ChildProcessError, match=f"the run in {tmp_path}/out was killed, .* want of memory.* goes on"):
        runner.run([mine], folder=tmp_path / "out", **settings())


def test_a_quiet_run_says_nothing_and_another_has_one_bar(mine, tmp_path, capfd):
    """Nothing on either stream; and not the bar of each training beside that of the run."""
    runner.run([mine], folder=tmp_path / "out", **settings())
    assert capfd.readouterr() == ("", "")
    runner.run([mine], folder=tmp_path / "two", **settings(quiet=False))
    out, complained = capfd.readouterr()
    assert out == ""
    assert "36/36" in complained  # three trainings of twelve steps


# What does not fit


def test_another_layer_of_the_same_name_is_not_taken_for_it(mine, tmp_path):
    """A character changed in the file, and everything is trained anew; the old table is replaced."""
    before = runner.run([mine], folder=tmp_path / "out", **settings())
    path = tmp_path / "mine.py"
    path.write_text(path.read_text().replace("0.2", "0.1"))
    other = resolve(f"{path}:Mine")
    after = runner.run([other], folder=tmp_path / "out", **settings())
    assert other.source != mine.source
    assert list(before.table.errors.iloc[-1]) != list(after.table.errors.iloc[-1])
    assert len(before.table) == len(after.table)


def test_a_second_contestant_joins_the_table(mine, tmp_path):
    """Rows of both, floors once; and not if the budget is another, with the file's name."""
    runner.run([mine], folder=tmp_path / "out", **settings())
    both = runner.run([replace(mine, name="again")], folder=tmp_path / "out", **settings())
    assert set(both.table.contestant) >= {mine.name, "again", runner.tables.ZERO}
    assert not both.table.drop(columns="errors").duplicated().any()
    with pytest.raises(ValueError, match=r"results.parquet holds results of another budget"):
        runner.run([mine], folder=tmp_path / "out", **settings(budget=replace(TINY, steps=13)))


def test_a_damaged_cell_is_named(mine, tmp_path):
    """One digit changed in a finished cell: refused with its path and what to do."""
    runner.run([mine], folder=tmp_path / "out", **settings())
    path = sorted((tmp_path / "out" / mine.name).glob("*.json"))[0]
    text = path.read_text()
    path.write_text(text[:-20] + ("1" if text[-20] != "1" else "2") + text[-19:])
    (tmp_path / "out" / "results.parquet").unlink()
    with pytest.raises(ValueError, match=rf"{path.name} cannot be used .*remove it and run again"):
        runner.run([mine], folder=tmp_path / "out", **settings())


def test_a_folder_has_one_run_at_a_time(mine, tmp_path):
    """The second is refused at once."""
    with (
        runner._home(tmp_path / "out"),
        pytest.raises(ValueError, match="in use by another run"),
    ):
        runner.run([mine], folder=tmp_path / "out", **settings())


def test_a_training_that_diverges_is_a_result(mine):
    """A rate that throws it out of all bounds: its errors are infinite, a warning says why, and the run ends."""
    found = runner.run([mine], **settings(budget=replace(TINY, rates=(1e-2, 1e30), seeds=1)))
    assert found.meta["contestants"][mine.name]["rates"]["all"]["1e+30"] == math.inf
    found = runner.run([mine], **settings(budget=replace(TINY, rates=(1e30,), seeds=1)))
    own = found.table[found.table.contestant == mine.name]
    assert all(np.isinf(errors).all() for errors in own.errors)
    warnings = found.meta["contestants"][mine.name]["warnings"]
    assert any("diverged" in warning for warning in warnings)
    assert not any("rate tried" in warning for warning in warnings)  # of one rate none is at the edge


def test_what_does_not_fit_is_refused_before_anything_is_trained(mine, monkeypatch):
    """By name, with what may be given instead."""
    monkeypatch.setattr(runner, "_PATIENCE", 0.1)
    for asked, change, words in (
        ([], {}, "at least one contestant"),
        ([mine, mine], {}, "two contestants are called"),
        ([mine], {"budget": "huge"}, "budget must be one of small, medium, large"),
        ([mine], {"train": "smooth-noise"}, "train must be all, each, or one of ar1-0.9"),
        ([mine], {"only_tested": ["ar1-0.9"]}, "only_tested must not name tasks that are trained on, got ar1-0.9"),
        ([mine], {"device": "tpu"}, "device must be cpu or cuda"),
        ([mine], {"tasks": ["ar1-0.93"]}, "ar1-0.9"),
    ):
        with pytest.raises(ValueError, match=words):
            runner.run(asked, **settings(**change))
    with pytest.raises(ValueError, match="cannot be written to"):
        runner.run([mine], folder=Path(os.devnull) / "x", **settings())
    with pytest.raises(ValueError, match=r"no Dask scheduler answers|dask needs"):
        runner.run([mine], dask="tcp://127.0.0.1:9", **settings())


def test_trainings_and_tests_are_counted_and_told():
    """One training on all tasks is tested on those nobody trains on too; each by itself on its own."""
    plan = runner.plan(["gla"], tasks=["ar1-0.9", "switches"], only_tested=["ar1-0.6"], budget="small")
    assert plan.trainings == 3 + 2
    assert plan.tests("all") == {"ar1-0.9": ("same", "longer"), "switches": ("same", "longer"), "ar1-0.6": ("same",)}
    each = replace(plan, train="each")
    assert each.trained_on == {"ar1-0.9": ("ar1-0.9",), "switches": ("switches",)}
    assert each.tests("switches") == {"switches": ("same", "longer"), "ar1-0.6": ("same",)}
    assert plan.test_sets == 3 * 5
    assert math.isclose(plan.seconds({"gla": 1.0}, 2), 3.5e-6 * 32 * 129 * plan.budget.steps * 5 / 2)
