"""Cells in other processes, a run's of the benchmark and a grid's: two of joblib's, two of a Dask cluster.

They are here together because processes take a while to start: both use the same four.
"""

import contextlib
import importlib
import os
import sys
from multiprocessing import forkserver, popen_forkserver, resource_tracker

import cloudpickle
import joblib
import pandas as pd
import pytest
from joblib.externals import loky
from joblib.externals.loky.backend.process import LokyProcess
from shared import same_runs

from icl import _source, filters
from icl.experiments import grid
from icl.tasks import DriftingRegression
from icl_bench import runner, training_jobs
from icl_bench.budgets import Budget

TINY = Budget("tiny", 2, 8, 8, 1, 4, 4, (1e-3, 1e-2), 2, 5, 8, 4)
ASKED = {"tasks": ["ar1-0.9", "switches"], "only_tested": [], "budget": TINY, "quiet": True}


def copied(path, given, descriptors):
    """Start a fork server: a copy of this process, in place of a new program that has all to import."""
    if process := os.fork():
        return process
    try:
        kept = {0, 1, 2, resource_tracker.getfd(), *descriptors}
        for other in {int(name) for name in os.listdir("/dev/fd")} - kept:
            with contextlib.suppress(OSError):
                os.close(other)
        exec(given[-1])
    finally:
        os._exit(0)


@pytest.fixture(scope="module", autouse=True)
def _quick():
    """Processes of joblib are copies of this one as it was before any test here: see `copied`.

    Dask's are new programs: a copy of a process that has run other tests could die of what those had left.

    What cells need is imported before; a layer of one's own is not. And such a layer's file does not stay on the path.
    """
    importlib.import_module("distributed")
    importlib.import_module("torch._dynamo")
    resource_tracker.ensure_running()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forkserver.util, "spawnv_passfds", copied)
        forkserver.ensure_running()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(LokyProcess, "_Popen", staticmethod(popen_forkserver.Popen))
        yield
        loky.get_reusable_executor().shutdown(kill_workers=True)
    forkserver._forkserver._stop()


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes of Dask; its dashboard takes any free port, for another program may have the usual one."""
    import dask
    from distributed import LocalCluster

    with (
        dask.config.set({"distributed.worker.multiprocessing-method": "spawn"}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as made,
    ):
        yield made


@pytest.fixture(scope="module")
def layer(tmp_path_factory):
    """A layer of one's own, found by its file; it has dropout, so it draws from torch's own stream."""
    path = tmp_path_factory.mktemp("layer") / "mine.py"
    made = "nn.Sequential(nn.Linear(width, width), nn.Dropout(0.2))"
    path.write_text(f"from torch import nn\n\n\ndef mine(width):\n    return {made}\n")
    return f"{path}:mine"


@pytest.fixture(scope="module")
def here(layer):
    """A run in this process."""
    return runner.run([layer], **ASKED).table


# Processes of joblib cannot import a test: they are handed its functions whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def lms(task):
    return filters.lms(0.1)


def fails(task):
    if task.gamma > 0.9:
        raise ArithmeticError("no such thing")
    return lms(task)


# The library's own functions, which Dask finds by their names.
MAKERS = {"Kalman": filters.kalman, "steady": filters.steady_kalman}
TASKS = {"slow": DriftingRegression(d=3, n=8, gamma=0.95), "fast": DriftingRegression(d=2, n=8, gamma=0.8)}


def asked(makers, *, seeds=2):
    return grid.Grid(TASKS, makers, seeds=seeds, batch=6, last=3, reference="Kalman")


def test_a_run_in_two_processes_gives_the_same_bits_and_a_second_trains_nothing(layer, here, tmp_path, monkeypatch):
    """Then `fit` is taken away: all is read."""
    same_runs(runner.run([layer], folder=tmp_path, jobs=2, **ASKED).table, here)
    monkeypatch.setattr(training_jobs, "fit", None)
    same_runs(runner.run([layer], folder=tmp_path, **ASKED).table, here)


def test_a_grid_in_two_processes_gives_the_same_bits(tmp_path, monkeypatch):
    """Its makers may be a notebook's own: they are sent as they are."""
    # The program that runs; under pytest it is pytest's own.
    monkeypatch.setattr(_source, "program", lambda: "makers = ...")
    given = asked(MAKERS | {"LMS": lms, "RLS": lambda task: filters.rls(task.gamma, eps=0.01)})
    alone = grid.run_grid(given).table
    pd.testing.assert_frame_equal(grid.run_grid(given, tmp_path, jobs=2).table, alone, check_exact=True)
    pd.testing.assert_frame_equal(grid.run_grid(given, tmp_path).table, alone, check_exact=True)


def test_a_predictor_that_fails_in_another_process_is_named():
    """With task, seed and its own message."""
    with pytest.raises(grid.CellFailed, match="broken failed on slow, seed 0: ArithmeticError: no such thing"):
        grid.run_grid(asked(MAKERS | {"broken": fails}, seeds=1), jobs=2)


def test_a_grid_on_a_cluster_gives_the_same_bits(cluster):
    """The same call inside `parallel_config(backend="dask")` goes to the cluster's processes."""
    from distributed import Client

    with Client(cluster) as client:
        with joblib.parallel_config(backend="dask"):
            found = grid.run_grid(asked(MAKERS)).table
        # The work was done there and not here: who works on a cell says with what it was made.
        worked = client.run(
            lambda: __import__("icl.experiments.grid").experiments.grid._environment.cache_info().currsize
        )
    assert len(worked) == 2
    assert any(worked.values())
    pd.testing.assert_frame_equal(found, grid.run_grid(asked(MAKERS)).table, check_exact=True)


def test_a_run_on_a_cluster_gives_the_same_bits(cluster, layer, here, tmp_path):
    """By the scheduler's address."""
    same_runs(runner.run([layer], dask=cluster.scheduler_address, folder=tmp_path / "out", **ASKED).table, here)
    # The states of its trainings were written by the workers.
    assert len(list((tmp_path / "out" / "mine").glob("*.safetensors"))) == 3
