"""Training and evaluation.

- `baselines`: risks of known first-order methods, layer by layer
- `checkpoint`: the state of a training in one file
- `evaluation`: one-step-ahead predictions, squared errors, risk curves
- `grid`: tasks x predictors x seeds, in any number of processes
- `optimal_filters`: filters at their analytically optimal hyperparameters
- `training`: the training loop
- `training_variants`: the Memformer paper's recipe, L-BFGS, many one-layer models at once
- `tuning`: tuning of any layer's hyperparameters
"""

from icl.experiments.baselines import baseline_risks
from icl.experiments.evaluation import clean_risk, risk_curve, series_risks, settled_risk, squared_error
from icl.experiments.grid import run_grid
from icl.experiments.training import AdamW, Config, fit
from icl.experiments.tuning import tune

__all__ = [
    "AdamW",
    "Config",
    "baseline_risks",
    "clean_risk",
    "fit",
    "risk_curve",
    "run_grid",
    "series_risks",
    "settled_risk",
    "squared_error",
    "tune",
]
