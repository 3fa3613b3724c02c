"""Linear first-order methods on random quadratics.

- `gated_floor`: floors at other input variances, with gates, and with fitted coefficients
- `learnability`: sample complexity of learning the coefficients
- `polynomial_floor`: the lowest risk of any method with prompt-independent coefficients
- `tables`: methods as coefficient tables and as polynomials
"""

from icl.theory.lfom import gated_floor, learnability, polynomial_floor, tables
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
    "gated_floor",
    "gradient_descent_table",
    "learnability",
    "limit_table_risks",
    "momentum_table",
    "nesterov_table",
    "polynomial_floor",
    "polynomials",
    "registers",
    "table_risks",
    "tables",
]
