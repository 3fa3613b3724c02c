"""Regression with time-varying coefficients, for a table of one's own."""

from icl.tvp.regression import TVPRegression

__all__ = ["TVPRegression"]
