"""Experiments of the chapters of Part IV, a module each.

- `every_model_a_fast_weight`: layers against the one equation; gates, heads, momentum; the floor; a map of layers
- `what_gating_can_buy`: bounds for gates of keys against layers, searches and trainings; the worth of earlier keys
"""
