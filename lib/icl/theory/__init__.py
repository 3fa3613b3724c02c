"""Closed forms in float64 numpy, one file a result family. No sampling: what is random is handed in."""

from icl.theory import filters, gla, kalman, moments, population, printed

__all__ = ["filters", "gla", "kalman", "moments", "population", "printed"]
