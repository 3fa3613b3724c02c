"""Tasks: prompts, the distributions they are drawn from, label noise, and a real series as one prompt.

- `components`: Gaussian mixtures with component means
- `core`: prompts, tasks, input distributions; stationary, AR(1) and smooth drift
- `drifts`: drifts of higher order, regime switching, heavy tails
- `mixtures`: prompts of several tasks in one batch
- `noise`: label noise
- `objectives`: problems with general losses
- `quadratics`: quadratic problems for first-order methods
- `rules`: a synthetic language with a drifting label rule
- `sentences`: demonstrations from a table of labelled features
- `series`: a real series as one prompt, its drift by maximum likelihood
- `text`: prompts of labelled sentences, in the tokens of a language model
- `unknown_drift`: drift with parameters drawn for every prompt
"""

from icl.tasks.core import (
    DriftingRegression,
    Prompt,
    Regression,
    SmoothDrift,
    StationaryRegression,
    Task,
    batches,
)
from icl.tasks.drifts import HeavyTailedDrift, LinearDrift, RegimeSwitching
from icl.tasks.mixtures import ManyDrifts, Mixture
from icl.tasks.noise import Noisy, clean
from icl.tasks.unknown_drift import UnknownDrift

__all__ = [
    "DriftingRegression",
    "HeavyTailedDrift",
    "LinearDrift",
    "ManyDrifts",
    "Mixture",
    "Noisy",
    "Prompt",
    "RegimeSwitching",
    "Regression",
    "SmoothDrift",
    "StationaryRegression",
    "Task",
    "UnknownDrift",
    "batches",
    "clean",
]
