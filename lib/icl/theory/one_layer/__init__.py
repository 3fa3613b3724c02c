"""One gated linear attention layer.

- `adversary`: its worst-case error, the weights moved by an adversary
- `closed_forms`: its errors, optimum and best forgetting factor
- `population`: its population loss in all parameters, and the gradient flow
- `separate_qk`: the same with separate keys and queries, and a learned gate
- `sign_flips`: its accuracy on labelled rows whose sign flips
"""

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
    "crosstalk",
    "error_by_direction",
    "identity_error",
    "kalman_pole",
    "lambda_tilde",
    "layer_risk",
    "optimal_forgetting",
    "optimum",
    "position_error",
    "position_weights",
    "steady_identity_error",
    "testing_error",
    "training_error",
    "xi",
    "zero_predictor",
]
