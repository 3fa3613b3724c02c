"""Definitions that were rewritten and do what they did, to the bit: they keep the identity that records know.

A row is proved whenever the tests run (`tests/house/test_rewrites.py`): the library as it was at `commit` is taken from
the repository's history, `cases` are computed in both, and every byte has to agree. A row whose definition changes
again stops counting by itself, because `now` is then the hash of nothing.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rewrite:
    """One definition, before and after.

    Attributes:
        definition: its dotted name now.
        before: the identity it keeps.
        now: the hash of what it does now, with all that it uses.
        commit: the last commit with the older form.
        cases: statements that leave in `results` what the definition computes: arrays, numbers, texts, nested freely.
    """

    definition: str
    before: str
    now: str
    commit: str
    cases: str


_LOOK = """
import itertools
import numpy as np
import torch
from icl.tasks import *
Lambda = np.diag([1.0, 2.0, 3.0])
results = []
def look(*tasks):
    for task, dtype, seed in itertools.product(tasks, (torch.float32, torch.float64), range(3)):
        draw = {"generator": torch.Generator().manual_seed(seed), "dtype": dtype}
        results.append((task.Lambda, task.inputs.name, task.weight_kernel(), vars(task.sample(50, **draw))))
        if hasattr(task, "reveal"):
            prompt, steps = task.reveal(50, **draw)
            results.append((vars(prompt), vars(steps)))
"""


def _drift(name: str, before: str, now: str, tasks: str) -> Rewrite:
    """One sampler for all drifts (`tasks.core.Regression`); each had its own."""
    return Rewrite(
        f"icl.tasks.{name}", before, now, "31e294c29a4a383a73bf9388eb726534b595f4af", f"{_LOOK}look({tasks})"
    )


REWRITES: tuple[Rewrite, ...] = (
    _drift(
        "core.StationaryRegression",
        "c52ea9b879062412",
        "ad4d33c11379c273",
        "StationaryRegression(3, 7), StationaryRegression(3, 20, Sigma_w=Lambda, Lambda=Lambda, inputs=UNIFORM)",
    ),
    _drift(
        "core.DriftingRegression",
        "7047ff6b1e3b0655",
        "aaa257248cd224fa",
        "DriftingRegression(3, 7, 0.9), DriftingRegression(3, 20, 1.1, 0.5, 0.2, Lambda=Lambda, inputs=LAPLACE), "
        "DriftingRegression(3, 7, 0.9, 0.5, 0.0), DriftingRegression(3, 7, 0.9, 0.0, 0.5)",
    ),
    _drift(
        "core.SmoothDrift",
        "022ce5217069b2bc",
        "b700295a5dce139d",
        "SmoothDrift(3, 7), SmoothDrift(3, 20, 0, 2.0, Lambda=Lambda, inputs=RADEMACHER)",
    ),
    _drift(
        "drifts.LinearDrift",
        "7bbe4569243cec7d",
        "1f729ccda15446f5",
        "ar2(3, 7, rho=0.9, omega=0.4), sinusoids(3, 20, omega=0.3, Lambda=Lambda), "
        "two_timescales(3, 7, gammas=(0.5, 1.0)), LinearDrift(3, 7, [[0.9]], [[0.1]], [1.0], [[0.0]])",
    ),
    _drift(
        "drifts.RegimeSwitching",
        "1d4724afc93e4095",
        "54d82515b1180e8f",
        "RegimeSwitching(3, 7, 0.9), RegimeSwitching(3, 20, 1.0, 0.5, 0.2, 0.3, Lambda=Lambda)",
    ),
    _drift(
        "drifts.HeavyTailedDrift",
        "639a0dc676f4c708",
        "bb30fb75c584d566",
        "HeavyTailedDrift(3, 7, 0.9), HeavyTailedDrift(3, 20, 1.0, 0.5, 0.2, 2.5, Lambda=Lambda)",
    ),
)
