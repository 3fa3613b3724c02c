"""Speed of the library's filters against their peers, as ratios within one run. Part of `make bench`; 3 minutes.

python benchmarks/filters.py              print the table
python benchmarks/filters.py --record     also write book/results/filter-speed.json
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import filterpy.kalman
import numpy as np
import padasip
import pandas as pd
import torch
from run import median_ms

from icl import filters
from icl.profile import make_generator
from icl.tasks import DriftingRegression
from icl_book import records

TRIALS, STEPS = 10_000, 1_000


def peak_mb(run: Callable[[], object]) -> float:
    """Memory that a call takes at its peak beyond what was there before, in MB; Linux keeps the count."""

    def status(field: str) -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))

    if not Path("/proc/self/clear_refs").exists():
        return float("nan")
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    run()
    return status("VmHWM") - before


def filterpy_kalman(x: np.ndarray, y: np.ndarray, task: DriftingRegression) -> None:
    """One trial of filterpy's Kalman filter; it wants some noise in the labels."""
    kalman = filterpy.kalman.KalmanFilter(dim_x=task.d, dim_z=1)
    kalman.F, kalman.Q, kalman.R = task.gamma * np.eye(task.d), task.sigma_e**2 * np.eye(task.d), np.array([[1e-3]])
    for xt, yt in zip(x, y, strict=True):
        kalman.predict()
        kalman.H = xt[None]
        kalman.update(yt)


def filter_speed() -> pd.DataFrame:
    """Microseconds a trial of our filters, side by side, and of their peers, one after another; d = 10, float64."""
    task = DriftingRegression(d=10, n=STEPS - 1, gamma=0.95)
    prompt = task.sample(TRIALS, generator=make_generator("benchmark"), dtype=torch.float64)
    # Trials last in memory, as the filters read them; `as sampled` is what it costs to find them first.
    x, y = prompt.x.permute(1, 2, 0).contiguous().permute(2, 0, 1), prompt.y.T.contiguous().T
    X, Y = prompt.x[0].numpy(), prompt.y[0].numpy()
    peers = padasip.filters
    pairs = {
        "LMS": (filters.lms(0.01), lambda: peers.FilterLMS(n=10, mu=0.01, w="zeros").run(Y, X)),
        "NLMS": (filters.nlms(0.5), lambda: peers.FilterNLMS(n=10, mu=0.5, w="zeros").run(Y, X)),
        "APA, K = 4": (
            filters.apa(0.5, K=4, eps=1e-6),
            lambda: peers.FilterAP(n=10, order=4, mu=0.5, w="zeros").run(Y, X),
        ),
        "RLS": (filters.rls(0.98, eps=0.01), lambda: peers.FilterRLS(n=10, mu=0.98, w="zeros").run(Y, X)),
        "Kalman": (filters.kalman(task, sigma_y=1e-3**0.5), partial(filterpy_kalman, X, Y, task)),
        "GLA": (filters.gla(0.05 * np.eye(10), lam=0.9), None),
        "delta rule": (filters.delta_rule(1 / 12, lam=0.95), None),
        "faded ridge": (filters.faded_ridge(0.7, eps=0.3), None),
    }
    rows = []
    for name, (ours, peer) in pairs.items():
        row: dict[str, Any] = {"filter": name, "peer_us": 1e3 * median_ms(peer) if peer else float("nan")}
        for threads in (1, 2):
            torch.set_num_threads(threads)
            run = partial(filters.run_filter, ours, x, y)
            row[f"us_{threads}"] = 1e3 * median_ms(run, seconds=3) / TRIALS
            row[f"times_{threads}"] = row["peer_us"] / row[f"us_{threads}"]
        torch.set_num_threads(1)
        row["us_as_sampled"] = (
            1e3 * median_ms(partial(filters.run_filter, ours, prompt.x, prompt.y), seconds=3) / TRIALS
        )
        row["peak_mb"] = peak_mb(run)
        rows.append(row)
        print(f"  {name}: " + ", ".join(f"{k} {v:.1f}" for k, v in row.items() if k != "filter"), flush=True)
    table = pd.DataFrame(rows).round(4)
    return table.astype(object).where(table.notna(), None)


def main() -> None:
    """Measure, print, and record on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write book/results/filter-speed.json")
    record = parser.parse_args().record
    torch.set_num_threads(1)
    start = time.monotonic()
    print(f"Filters, microseconds a trial of {STEPS} steps, {TRIALS} trials:")
    table = filter_speed()
    if record:
        config = {"trials": TRIALS, "steps": STEPS, "d": 10, "dtype": "float64", "threads": "1 and 2"}
        seconds = time.monotonic() - start
        path = records.record(
            "filter-speed", table, config=config, seconds=seconds, command="python benchmarks/filters.py --record"
        )
        print(f"\nWrote {path}")


if __name__ == "__main__":
    main()
