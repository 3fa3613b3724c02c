"""Linear first-order methods on random quadratics.

- `gated_floor`: floors at other variances, with gates, and of fitted coefficients
- `learnability`: how many prompts teach the coefficients: bounds
- `polynomial_floor`: the lowest risk of any method with prompt-independent coefficients
- `tables`: methods as tables of coefficients and as polynomials
"""

from icl.theory.lfom.tables import (
    cumulative,
    gradient_descent_table,
    limit_table_risks,
    momentum_table,
    nesterov_table,
    polynomials,
    registers,
    table_risks,
)

__all__ = [
    "cumulative",
    "gradient_descent_table",
    "limit_table_risks",
    "momentum_table",
    "nesterov_table",
    "polynomials",
    "registers",
    "table_risks",
]
