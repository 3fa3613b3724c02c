"""Cells on a Dask cluster, a run's of the benchmark and a grid's: one cluster for both, as its start takes long."""

from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest

from icl import filters
from icl.bench import running
from icl.bench.budgets import Budget
from icl.runs import grid
from icl.tasks import DriftingRegression

TINY = Budget("tiny", 2, 8, 8, 1, 4, 4, (1e-3, 1e-2), 2, 5, 8, 4)


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes that find the library under test."""
    import dask
    from distributed import LocalCluster
    from distributed.utils import get_mp_context

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(grid.__file__).parents[2]))
        with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
            # What both import, they are copies of a process that has; the test's own modules are not in it.
            get_mp_context().set_forkserver_preload(["distributed", "torch", "pandas"])
            with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as made:
                yield made


def test_a_grid_gives_the_same_bits(cluster):
    """The same call inside `parallel_config(backend="dask")` goes to the cluster's processes."""
    from distributed import Client

    # The library's own functions, which Dask finds by their names.
    makers = {"Kalman": filters.kalman, "steady": filters.steady_kalman}
    tasks = {"slow": DriftingRegression(d=3, n=8, gamma=0.95), "fast": DriftingRegression(d=2, n=8, gamma=0.8)}
    given = grid.Grid(tasks, makers, seeds=2, batch=6, last=3, reference="Kalman")
    with Client(cluster) as client:
        with joblib.parallel_config(backend="dask"):
            found = grid.run_grid(given).table
        # The work was done there and not here.
        known = client.run(lambda: "icl.runs.grid" in __import__("sys").modules)
    assert len(known) == 2
    assert any(known.values())
    pd.testing.assert_frame_equal(found, grid.run_grid(given).table, check_exact=True)


def test_a_run_gives_the_same_bits(cluster, tmp_path):
    """A layer of one's own, found by its file, by the scheduler's address; one process here gives the same table."""
    path = tmp_path / "mine.py"
    path.write_text("from torch import nn\n\n\ndef mine(width):\n    return nn.Linear(width, width)\n")
    asked = {"tasks": ["ar1-0.9", "switches"], "only_tested": [], "budget": TINY, "quiet": True}
    there = running.run([f"{path}:mine"], dask=cluster.scheduler_address, folder=tmp_path / "out", **asked).table
    here = running.run([f"{path}:mine"], **asked).table
    pd.testing.assert_frame_equal(there.drop(columns="errors"), here.drop(columns="errors"), check_exact=True)
    for one, other in zip(there["errors"], here["errors"], strict=True):
        np.testing.assert_array_equal(one, other)
    # The states of its trainings were written by the workers.
    assert len(list((tmp_path / "out" / "mine").glob("*.safetensors"))) == 3
