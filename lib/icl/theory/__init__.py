"""Closed forms in float64 NumPy, without sampling: errors, optima, floors.

- `errata`: errata of the papers, as executable formulas
- `floors`: the lowest error of any method: Kalman, oracle, best linear, mixtures
- `gates`: bounds for gates that depend on the current key
- `lfom`: linear first-order methods: tables, polynomials, their floors, sample complexity
- `moments`: D1 .. D4 of a task
- `one_layer`: one gated layer: errors, optimum, optimal forgetting, training dynamics
- `s6`: one S6 layer: loss, gradient flow, rates, bounds
- `steady`: steady-state errors of fast weights and adaptive filters
"""

from icl.theory import errata, floors, gates, lfom, moments, one_layer, s6, steady
from icl.theory.floors import kalman_risk
from icl.theory.one_layer import kalman_pole, optimal_forgetting, testing_error, training_error, zero_predictor
from icl.theory.steady import DriftLaw

__all__ = [
    "DriftLaw",
    "errata",
    "floors",
    "gates",
    "kalman_pole",
    "kalman_risk",
    "lfom",
    "moments",
    "one_layer",
    "optimal_forgetting",
    "s6",
    "steady",
    "testing_error",
    "training_error",
    "zero_predictor",
]
