"""Regression with time-varying coefficients, for a table of one's own.

- `estimator`: the class `TVPRegression`
"""

from icl.tvp.estimator import TVPRegression

__all__ = ["TVPRegression"]
