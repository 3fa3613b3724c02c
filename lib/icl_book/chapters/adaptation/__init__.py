"""Experiments of the chapters of Part I, a module each.

- `why_stationarity_fails`: errors, shares of the memory, tests at another drift
"""
