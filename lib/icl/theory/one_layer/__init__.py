"""One gated linear attention layer.

- `adversary`: worst-case error under adversarial drift
- `closed_forms`: errors, optimum and optimal forgetting factor
- `population`: population loss in all parameters, and gradient flow
- `separate_qk`: separate key and query matrices, and a learned gate
- `sign_flips`: accuracy on labelled rows whose sign flips
"""

from icl.theory.one_layer import adversary, closed_forms, population, separate_qk, sign_flips
from icl.theory.one_layer.closed_forms import (
    crosstalk,
    error_by_direction,
    identity_error,
    kalman_pole,
    lambda_tilde,
    layer_risk,
    optimal_forgetting,
    optimum,
    position_error,
    position_weights,
    steady_identity_error,
    testing_error,
    training_error,
    xi,
    zero_predictor,
)

__all__ = [
    "adversary",
    "closed_forms",
    "crosstalk",
    "error_by_direction",
    "identity_error",
    "kalman_pole",
    "lambda_tilde",
    "layer_risk",
    "optimal_forgetting",
    "optimum",
    "population",
    "position_error",
    "position_weights",
    "separate_qk",
    "sign_flips",
    "steady_identity_error",
    "testing_error",
    "training_error",
    "xi",
    "zero_predictor",
]
