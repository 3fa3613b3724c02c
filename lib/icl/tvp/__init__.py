"""Regression with time-varying coefficients, for a table of one's own.

- `comparison`: its predictions beside those of simpler methods
- `likelihood`: the search for the likeliest variances
- `regression`: the class `TVPRegression`
- `state_space`: the filter, on square roots of covariances
"""

from icl.tvp.regression import TVPRegression

__all__ = ["TVPRegression"]
