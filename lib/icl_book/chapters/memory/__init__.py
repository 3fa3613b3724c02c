"""Experiments of the chapters of Part II, a module each.

- `polynomial_floor`: models with shared coefficients next to their floor
"""
