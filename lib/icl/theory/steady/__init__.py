"""Steady-state errors of fast-weight layers and filters on AR(1) drift.

- `cheap_covariance`: Kalman filters with a compressed covariance
- `fast_weights`: decayed fast weights: Hebbian, normalised, delta rule, gated
- `large_d`: limits of these errors as d grows, and the Kalman floor
- `linear_layers`: heads, momentum, chunks
- `lms_family`: LMS, NLMS and delta rules
- `mesa`: the Mesa layer as d grows, and its optimal settings
- `spectra`: layers, floor and smoother for a drift of any spectrum
"""

from icl.theory.steady import cheap_covariance, fast_weights, large_d, linear_layers, lms_family, mesa, spectra
from icl.theory.steady.fast_weights import (
    DriftLaw,
    Gates,
    SteadyOptimum,
    best_delta,
    best_gla,
    best_normalised_gla,
    best_unit_delta,
    channel_gates_error,
    delta_error,
    delta_shared,
    free_gates,
    gla_error,
    gla_shared,
    linear_bound,
    readout_errors,
)

__all__ = [
    "DriftLaw",
    "Gates",
    "SteadyOptimum",
    "best_delta",
    "best_gla",
    "best_normalised_gla",
    "best_unit_delta",
    "channel_gates_error",
    "cheap_covariance",
    "delta_error",
    "delta_shared",
    "fast_weights",
    "free_gates",
    "gla_error",
    "gla_shared",
    "large_d",
    "linear_bound",
    "linear_layers",
    "lms_family",
    "mesa",
    "readout_errors",
    "spectra",
]
