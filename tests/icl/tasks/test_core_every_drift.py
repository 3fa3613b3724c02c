"""The weights that a drift draws have the covariance that its kernel states: of every drift, a new one included.

Floors and optima are computed from `weight_kernel`, prompts are drawn by `_weights`; a drift whose two disagree is
judged against a floor that is not its own.
"""

import importlib
import inspect
import pkgutil

import numpy as np
import pytest
import torch
from chance import assert_mean

from icl import tasks
from icl.profile import make_generator
from icl.tasks import (
    DriftingRegression,
    HeavyTailedDrift,
    LinearDrift,
    RegimeSwitching,
    Regression,
    SmoothDrift,
    StationaryRegression,
    UnknownDrift,
)

SIZES = {"d": 2, "n": 5}
#: One of each kind, with settings that do not hide one another: nothing is stationary that need not be.
EXAMPLES = {
    StationaryRegression: StationaryRegression(**SIZES),
    DriftingRegression: DriftingRegression(**SIZES, gamma=0.8, sigma_w=0.7, sigma_e=0.5),
    SmoothDrift: SmoothDrift(**SIZES, harmonics=2, sigma_w=0.7),
    LinearDrift: LinearDrift(
        **SIZES, F=[[0.9, 0.3], [-0.2, 0.5]], Q=[[0.2, 0.1], [0.1, 0.3]], h=[1.0, 0.5], P_0=[[1.0, 0.2], [0.2, 0.4]]
    ),
    RegimeSwitching: RegimeSwitching(**SIZES, gamma=0.8, sigma_w=0.7, sigma_e=0.5, switch=0.3),
    HeavyTailedDrift: HeavyTailedDrift(**SIZES, gamma=0.8, sigma_w=0.7, sigma_e=0.5, nu=30.0),
    UnknownDrift: UnknownDrift(**SIZES, gammas=[0.5, 0.95], steps=[0.5, 0.2], weights=[0.3, 0.7]),
}


def drifts(kind=Regression):
    """Every drift of the library: subclasses of Regression that can be made, whichever module defines them."""
    for module in pkgutil.iter_modules(tasks.__path__, "icl.tasks."):
        importlib.import_module(module.name)
    below = {each for sub in kind.__subclasses__() for each in [sub, *drifts(sub)]}
    ours = (each for each in below if each.__module__.startswith("icl.") and not inspect.isabstract(each))
    return sorted(ours, key=lambda each: each.__name__)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", drifts(), ids=lambda kind: kind.__name__)
def test_weights_have_the_covariance_of_the_kernel(kind):
    """E w_i w_j' = k_ij I for all positions i and j, the second moments of all coordinates being compared.

    With 20,000 prompts a right sampler fails with probability 1e-9. Detected are a variance of one coordinate at one
    position that is off by 8 %, and a correlation between two positions or coordinates that is off by 0.08.
    """
    assert kind in EXAMPLES, f"{kind.__name__} has no example here: give it one with general settings"
    task = EXAMPLES[kind]
    w = task.sample(20_000, generator=make_generator("kernels"), dtype=torch.float64).w.numpy()
    w = w.reshape(len(w), -1)
    rows, columns = np.triu_indices(w.shape[1])
    expected = np.kron(task.weight_kernel(), np.eye(task.d))
    assert_mean(w[:, rows] * w[:, columns], expected[rows, columns])
