"""Regression with time-varying coefficients, for a table of one's own.

- `comparison`: its predictions beside those of simpler methods
- `likelihood`: the search for the likeliest variances
- `estimator`: the class `TVPRegression`
- `state_space`: the filter, on square roots of covariances
"""

from icl.tvp.estimator import TVPRegression

__all__ = ["TVPRegression"]
