"""What takes time: training, judging, comparing.

- `adapting`: adapting a trained model at test time
- `at_best`: layers at the settings that closed forms call best
- `benchmark`: one benchmark on drifting tasks: tasks, floors, who is told or taught what
- `checkpoint`: the state of a training in one file
- `fitted`: coefficients fitted to a few prompts
- `grid`: tasks x predictors x seeds, in any number of processes
- `judging`: how wrong is it? one-step-ahead predictions, squared errors, risk curves
- `known`: what known methods reach, layer by layer
- `recipes`: recipes on it: as published, L-BFGS, many one-layer models at once
- `training`: the one training loop
- `tuning`: the one tuning of any layer
"""

from icl.runs import adapting, at_best, benchmark, checkpoint, fitted, grid, judging, known, recipes, training, tuning
from icl.runs.adapting import Adapted, Given, adapt, query_loss, rescale
from icl.runs.at_best import AT_BEST, steady_task
from icl.runs.benchmark import (
    FOR_ALL,
    LONG,
    SHORT,
    best_possible,
    compare,
    contestants,
    drifting_tasks,
    taught_numbers,
    teach,
    told_kalman,
    tuned_for,
    tuned_settings,
    untaught,
)
from icl.runs.checkpoint import agree, described, read, refused, write
from icl.runs.fitted import (
    Asked,
    Fitted,
    ask_labels,
    ask_risks,
    ask_values,
    fit_diagonals,
    fit_polynomial,
    polynomial_losses,
    prompt_losses,
)
from icl.runs.grid import CellFailed, Expected, Grid, Maker, Results, run_grid
from icl.runs.judging import (
    Predictor,
    clean_risk,
    one_step_ahead,
    risk_curve,
    series_risks,
    settled_risk,
    squared_error,
)
from icl.runs.known import known_risks
from icl.runs.recipes import DESCRIBED, FIRST, THEN, Held, Minimum, as_published, minimise, train_side_by_side
from icl.runs.training import AdamW, Config, Diverged, Run, deep, fit
from icl.runs.tuning import LAYERS, Attempts, Tunable, Tuned, attempt, simplex, tune

__all__ = [
    "AT_BEST",
    "DESCRIBED",
    "FIRST",
    "FOR_ALL",
    "LAYERS",
    "LONG",
    "SHORT",
    "THEN",
    "AdamW",
    "Adapted",
    "Asked",
    "Attempts",
    "CellFailed",
    "Config",
    "Diverged",
    "Expected",
    "Fitted",
    "Given",
    "Grid",
    "Held",
    "Maker",
    "Minimum",
    "Predictor",
    "Results",
    "Run",
    "Tunable",
    "Tuned",
    "adapt",
    "adapting",
    "agree",
    "as_published",
    "ask_labels",
    "ask_risks",
    "ask_values",
    "at_best",
    "attempt",
    "benchmark",
    "best_possible",
    "checkpoint",
    "clean_risk",
    "compare",
    "contestants",
    "deep",
    "described",
    "drifting_tasks",
    "fit",
    "fit_diagonals",
    "fit_polynomial",
    "fitted",
    "grid",
    "judging",
    "known",
    "known_risks",
    "minimise",
    "one_step_ahead",
    "polynomial_losses",
    "prompt_losses",
    "query_loss",
    "read",
    "recipes",
    "refused",
    "rescale",
    "risk_curve",
    "run_grid",
    "series_risks",
    "settled_risk",
    "simplex",
    "squared_error",
    "steady_task",
    "taught_numbers",
    "teach",
    "told_kalman",
    "train_side_by_side",
    "training",
    "tune",
    "tuned_for",
    "tuned_settings",
    "tuning",
    "untaught",
    "write",
]
