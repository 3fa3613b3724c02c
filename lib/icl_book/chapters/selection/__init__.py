"""Experiments of the chapters of Part III, a module each.

- `why_selection`: ablation of the selection mechanism, frozen layers on other tasks, what a failure says
"""
