"""What is asked: prompts, the laws that draw them, their noise, and a real series as one prompt.

- `core`: prompts, tasks, laws of inputs; stationary, AR(1) and smooth drift
- `drifts`: drifts of higher order, regime switching, heavy tails
- `noise`: labels with noise
- `quadratics`: quadratics: the problems that first-order methods run on
- `series`: a real series as one prompt, its drift by likelihood
"""

from icl.tasks import core, drifts, noise, quadratics, series
from icl.tasks.core import (
    GAUSSIAN,
    LAPLACE,
    RADEMACHER,
    UNIFORM,
    DriftingRegression,
    InputLaw,
    Prompt,
    Regression,
    SmoothDrift,
    StationaryRegression,
    Task,
    blocks,
    square_root,
)
from icl.tasks.drifts import DrawnSteps, HeavyTailedDrift, LinearDrift, RegimeSwitching, ar2, sinusoids, two_timescales
from icl.tasks.noise import Noisy, clean
from icl.tasks.quadratics import SECTION_3_3, SQUARED, covariance, hessians, regression, rotation, sample_hessians
from icl.tasks.series import Drift, Series, WeightPath, filtered, mean_and_error, most_likely, prepare, smoothed

__all__ = [
    "GAUSSIAN",
    "LAPLACE",
    "RADEMACHER",
    "SECTION_3_3",
    "SQUARED",
    "UNIFORM",
    "DrawnSteps",
    "Drift",
    "DriftingRegression",
    "HeavyTailedDrift",
    "InputLaw",
    "LinearDrift",
    "Noisy",
    "Prompt",
    "RegimeSwitching",
    "Regression",
    "Series",
    "SmoothDrift",
    "StationaryRegression",
    "Task",
    "WeightPath",
    "ar2",
    "blocks",
    "clean",
    "core",
    "covariance",
    "drifts",
    "filtered",
    "hessians",
    "mean_and_error",
    "most_likely",
    "noise",
    "prepare",
    "quadratics",
    "regression",
    "rotation",
    "sample_hessians",
    "series",
    "sinusoids",
    "smoothed",
    "square_root",
    "two_timescales",
]
