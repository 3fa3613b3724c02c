"""Floors: the lowest error of any method on a task.

- `filtering`: Kalman filter, oracle of the regimes, best linear predictor
- `gaussian_mixtures`: Gaussian mixtures with scalar inputs
- `joint`: all labels of a prompt as one Gaussian vector
- `label_rule`: a language whose label rule drifts
- `unknown_drift`: drift with unknown parameters, and the best fixed layer
"""

from icl.theory.floors import filtering, gaussian_mixtures, joint, label_rule, unknown_drift
from icl.theory.floors.filtering import (
    best_linear_errors,
    expected_errors,
    gaussian_errors,
    genie_errors,
    kalman_errors,
    kalman_risk,
    linear_drift_errors,
    query_errors,
    riccati,
    switching_predictions,
)

__all__ = [
    "best_linear_errors",
    "expected_errors",
    "filtering",
    "gaussian_errors",
    "gaussian_mixtures",
    "genie_errors",
    "joint",
    "kalman_errors",
    "kalman_risk",
    "label_rule",
    "linear_drift_errors",
    "query_errors",
    "riccati",
    "switching_predictions",
    "unknown_drift",
]
