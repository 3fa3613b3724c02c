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
        commit: one with the older form.
        cases: statements that leave in `results` what the definition computes: arrays, numbers, texts, nested freely.
    """

    definition: str
    before: str
    now: str
    commit: str
    cases: str


#: A commit of the library in its rooms, before any of these rewrites.
_ROOMS = "70d0f59657a8fc5ccc3d09d43d35f06085d823b4"

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


_FILTERS = """
import numpy as np
import torch
from icl import filters
from icl.tasks import DriftingRegression
task = DriftingRegression(3, 12, 0.9)
prompt = task.sample(2000, generator=torch.Generator().manual_seed(1))
steps = torch.tensor([[0.01], [0.05], [0.1]], dtype=torch.float64)
every = [
    filters.lms(0.05), filters.lms(steps), filters.nlms(steps), filters.delta_rule(0.05, lam=0.9),
    filters.normalised_delta_rule(0.5, lam=1 - steps), filters.apa(0.5, K=4), filters.window(5), filters.rls(0.95),
    filters.rls(1 - steps), filters.ridge(0.1), filters.faded_ridge(0.9, eps=steps), filters.kalman(task),
    filters.steady_kalman(task), filters.gla(0.02 * np.eye(3), lam=0.9), filters.zero(),
]
results = []
for one in every:
    for x, y in ((prompt.x, prompt.y), (prompt.x.double(), prompt.y.double())):
        results.append(filters.run_filter(one, x, y))
        results.append(vars(filters.track(one, x[:7], y[:7], w_0=torch.ones(3, dtype=x.dtype))))
        results.append(vars(filters.track(one, x[0], y[0])))
        if not one.settings:
            results.append(filters.run_filter(one, x.reshape(20, 100, 13, 3), y.reshape(20, 100, 13)))
            if x.dtype is torch.float32:  # more trials than one block holds
                results.append(filters.run_filter(one, x[:100].repeat(400, 2, 1), y[:100].repeat(400, 2)))
"""


_GRID = """
from icl import filters
from icl.runs import Grid, run_grid
from icl.tasks import DriftingRegression, Noisy
tasks = {"slow": DriftingRegression(2, 12, 0.95), "noisy": Noisy(DriftingRegression(3, 12, 0.8), 0.3)}
makers = {
    "zero": lambda task: filters.zero(),
    "RLS": lambda task: filters.rls(0.9),
    "window": lambda task: filters.window(4),
}
found = run_grid(Grid(tasks, makers, 2, 40, 5, "zero", "rewrites"))
results = [[found.table[name].tolist() for name in found.table], str(found.pooled().to_dict())]
"""


_FLOORS = """
import numpy as np
from icl.theory import polynomial_floor as floors
rng, results = np.random.default_rng(1), []
for d, n in ((1, 1), (5, 20), (3, 2), (4, 200)):
    results.append([str(v) for v in floors._traces(d, n, 16)])
    for layers in (1, 4, 8):
        best = floors._exact(d, n, layers)
        parts = best.risks, best.alpha, best.gamma, best.norms, best.residual
        results.append([[str(v) for v in part] for part in parts])
    X = rng.normal(size=(41, d, n))
    H, A = X @ X.swapaxes(1, 2) / n, rng.normal(size=(d, d))
    results.append(floors._squares(A @ H, np.arange(41) < 20, 4))
    results.append(floors.floor(H, np.diag(1.0 + np.arange(d)), 5, A))
"""


_TABLES = """
import numpy as np
from icl.theory import lfom
rng, results = np.random.default_rng(1), []
for d, n, layers in ((1, 1, 2), (5, 20, 4), (3, 2, 8), (4, 200, 12)):
    for _ in range(5):
        Gamma = np.tril(rng.normal(size=(layers, layers)))
        results.append(lfom.table_risks(Gamma, d, n))
        results.append(lfom.table_risks(Gamma, d, n, rng.normal(size=layers)))
"""


def _drift(name: str, before: str, now: str, tasks: str) -> Rewrite:
    """One sampler for all drifts (`tasks.core.Regression`); each had its own."""
    return Rewrite(f"icl.tasks.{name}", before, now, _ROOMS, f"{_LOOK}look({tasks})")


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
    # What is checked, how trials are cut into blocks, and the running of one block stand apart.
    Rewrite("icl.filters._scan", "89c74b71ad09bba6", "0831e59629fe5d66", _ROOMS, _FILTERS),
    # How a fingerprint is made is no part of what is computed: `_identity` counts by name.
    Rewrite("icl.runs.grid.Grid", "aa8dab89e7ebf248", "c6a4b2c3012cbb59", _ROOMS, _GRID),
    Rewrite("icl.runs.grid.run_grid", "422a1348f84ce760", "5fb71b0a1a2e5582", _ROOMS, _GRID),
    # Products of traces, the recursion under any measure and another start than the identity stand apart.
    Rewrite("icl.theory.polynomial_floor._traces", "ed3337b0b06ae203", "79081fcfe5eeb8be", _ROOMS, _FLOORS),
    Rewrite("icl.theory.polynomial_floor._exact", "3e00388645094eea", "d3230ce3dfc0e1ba", _ROOMS, _FLOORS),
    Rewrite("icl.theory.polynomial_floor._squares", "f33c6bd2af0b57a3", "4889373dfabdb3ed", _ROOMS, _FLOORS),
    # The squares above the floor serve the limit of many dimensions too.
    Rewrite("icl.theory.lfom.table_risks", "d9df505e95326047", "e5db09f654e84dee", _ROOMS, _TABLES),
)
