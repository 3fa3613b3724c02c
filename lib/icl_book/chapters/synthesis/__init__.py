"""Experiments of the chapters of Part IV, a module each.

- `what_gating_can_buy`: bounds for gates of keys against layers, searches and trainings; the worth of earlier keys
"""
