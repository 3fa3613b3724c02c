"""What takes time: training, judging, comparing.

- `checkpoint`: the state of a training in one file
- `grid`: tasks x predictors x seeds, in any number of processes
- `judging`: how wrong is it? one-step-ahead predictions, squared errors, risk curves
- `recipes`: recipes on it: as published, L-BFGS, many one-layer models at once
- `training`: the one training loop
"""

from icl.runs import checkpoint, grid, judging, recipes, training
from icl.runs.checkpoint import agree, described, read, refused, write
from icl.runs.grid import CellFailed, Expected, Grid, Maker, Results, run_grid
from icl.runs.judging import Predictor, one_step_ahead, risk_curve, settled_risk, squared_error
from icl.runs.recipes import DESCRIBED, FIRST, THEN, Held, Minimum, as_published, minimise, train_side_by_side
from icl.runs.training import AdamW, Config, Diverged, Run, deep, fit

__all__ = [
    "DESCRIBED",
    "FIRST",
    "THEN",
    "AdamW",
    "CellFailed",
    "Config",
    "Diverged",
    "Expected",
    "Grid",
    "Held",
    "Maker",
    "Minimum",
    "Predictor",
    "Results",
    "Run",
    "agree",
    "as_published",
    "checkpoint",
    "deep",
    "described",
    "fit",
    "grid",
    "judging",
    "minimise",
    "one_step_ahead",
    "read",
    "recipes",
    "refused",
    "risk_curve",
    "run_grid",
    "settled_risk",
    "squared_error",
    "train_side_by_side",
    "training",
    "write",
]
