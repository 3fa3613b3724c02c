"""Experiments of the chapters of Part I, a module each.

- `adaptive_filters`: filters beside a layer, tuning, the paper's printed errors, costs
- `depth`: trainings of stacks, outliers, parts taken away, two layers with every pair of factors
- `gated_linear_attention`: weights by age, unused parameters, errors of the layer on prompts
- `how_much_to_forget`: the best forgetting factor, printed formulas, simulations, filters
- `why_stationarity_fails`: errors, shares of the memory, tests at another drift
"""
