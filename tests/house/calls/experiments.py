"""Valid calls and refusals by hand: evaluation, grids, and what chapters show."""

from math import inf as INF
from math import nan as NAN

import numpy as np
import torch
from house.calls.base import PLAIN, SKEWED, entry, rows
from house.calls.tasks import SAMPLES

from icl import filters, profile
from icl.experiments import checkpoint, evaluation, grid
from icl_book import exercises, grading
from icl_book.chapters import coefficient_fit, importance_sampling, selective_step

# --- judging
NAMED_BY = {"predictors": {"zero": filters.zero()}}
AGAINST = [
    ({"predictors": {}}, "predictors must name at least one predictor.*got none"),
    *(
        (
            {"predictors": {"zero": filters.zero(), "other": filters.zero()}, "against": name},
            f"against must be (one of zero, other.*|a str or None, )got {name!r}",
        )
        for name in ("one", 0, "")
    ),
    (
        {"predictors": {"a": filters.lms(torch.tensor([[0.1], [0.2]])), "zero": filters.zero()}, "against": "a"},
        "against must be one thing or have the settings of",
    ),
]
entry(evaluation.risk_curve, given=NAMED_BY, also=AGAINST)
entry(
    evaluation.settled_risk,
    given=NAMED_BY,
    also=[*AGAINST, ({"last": 5}, "last must be at most the 4 positions.*got 5")],
)
FITS = r"predict must return \(..., 3\) for 3 prompts"
entry(
    evaluation.clean_risk,
    also=[
        ({"last": 5}, "last must be at most the 4 positions of the prompt, got 5"),
        (
            {"prompt": PLAIN.sample(1, generator=profile.make_generator("x"))},
            "prompt must hold at least two prompts.* got 1",
        ),
    ],
)
ONE_SERIES = np.arange(6.0)
entry(
    evaluation.series_risks,
    given={"y": ONE_SERIES, "answers": {"a": 0 * ONE_SERIES}, "since": 1, "against": "a"},
    also=[
        ({"since": 4}, "since must leave at least three of 6 rows, got 4"),
        ({"against": "b"}, "against must be one of a, got 'b'"),
        ({"answers": {"a": np.zeros(5)}}, r"answers\['a'\] must have shape \(6\)"),
        ({"answers": {"a": ONE_SERIES * NAN}}, r"answers\['a'\] must be finite"),
        ({"answers": {"a": "text"}}, r"answers\['a'\] must be real"),
    ],
)
entry(
    importance_sampling.sample_scaled,
    given={"Z": torch.ones(2, 3, 2)},
    also=rows("scales", "must hold at least one number", []),
)
entry(
    importance_sampling.corrected_risks,
    given={"A": torch.zeros(2, 2, 2), "Gamma": torch.eye(2), "n": 3},
    also=[({"A": torch.zeros(0, 2, 2), "Gamma": torch.zeros(0, 0)}, "A must hold at least one matrix")],
)
entry(selective_step.paired_gain, given={"prompts": 3, "N": 2})
entry(
    evaluation.squared_error,
    given={"predict": lambda p: 0 * p.y[:, -1], "task": PLAIN},
    also=[
        *SAMPLES,
        ({"predict": lambda p: p.y.sum()}, FITS),
        ({"predict": lambda p: p.y[1:, -1]}, FITS),
        ({"predict": lambda p: p.y[:, -1] * NAN}, "predict must return finite numbers"),
        ({"predict": lambda p: p.y.T + INF}, "predict must return finite numbers"),
    ],
)
ANSWERS = r"predictor must return .*"
entry(
    evaluation.one_step_ahead,
    also=[
        ({"predictor": lambda p: p.y.sum()}, ANSWERS + r"\(\*settings, 2\) for 2 prompts, got \(\) with 1 example"),
        ({"predictor": lambda p: p.y[1:, -1]}, ANSWERS + r"\(\*settings, 2\) for 2 prompts, got \(1,\) with 1"),
        ({"predictor": lambda p: p.y[:, -1] * NAN}, ANSWERS + "finite numbers, got some that are not with 1 example"),
        ({"predictor": lambda p: p.y[:, -1] + (INF if p.n > 1 else 0)}, ANSWERS + "finite .* with 2 example"),
    ],
)
entry(
    grid.Grid,
    given={"tasks": {"t": PLAIN}, "makers": {"Kalman": filters.kalman}, "last": 1, "reference": "Kalman"},
    also=[
        ({"last": 5}, "last must be at most the 4 positions of the shortest task"),
        *(
            ({name: value}, f"{name} must be at least one")
            for name in ("tasks", "makers")
            for value in ({}, {"": PLAIN}, {1: PLAIN})
        ),
        ({"tasks": {"t": 3}}, "tasks must be tasks.* got 3 for 't'"),
        ({"makers": {"Kalman": 3}}, "makers must be functions.* got 3 for 'Kalman'"),
        ({"reference": "RLS"}, "reference must be one of Kalman"),
    ],
)
entry((grid.Grid, "fingerprint"), given={"task": "t"})
STILL_PROMPT = SKEWED.sample(2, generator=profile.make_generator("x"), dtype=torch.float64)
TWO_ASKED = coefficient_fit.label_targets(STILL_PROMPT)
entry(coefficient_fit.label_targets, coefficient_fit.value_targets, given={"prompt": STILL_PROMPT})
entry(
    coefficient_fit.risk_targets,
    given={"Sigma": np.eye(2)},
    also=[
        ({"Sigma": np.diag([1.0, 0.0])}, "Sigma must be positive definite"),
        ({"Sigma": np.eye(3)}, "Sigma must have"),
    ],
)
TABLE = torch.ones(2, 2, 2, dtype=torch.float64) * torch.eye(2, dtype=torch.float64)[..., None]
AHEAD = [({"Lambda": torch.ones_like(TABLE)}, "Lambda must be 0 where i > k")]
entry(coefficient_fit.prompt_losses, given={"problem": TWO_ASKED, "Lambda": TABLE}, also=AHEAD)
entry(
    coefficient_fit.fit_diagonals,
    given={"problem": TWO_ASKED, "Lambda": TABLE},
    also=[*AHEAD, ({"Lambda": 1e200 * TABLE}, "Lambda must start at a finite loss")],
)
entry(coefficient_fit.polynomial_losses, given={"problem": TWO_ASKED, "p": np.ones(2)}, sizes={"depths": 2})

# --- what a chapter shows
entry(
    checkpoint.to_jsonable,
    given={"value": 1.0},
    also=[({"value": value}, "value must be numbers, text, arrays") for value in (object(), {"a": {1}})],
)
entry(
    exercises.check,
    given={"attempt": lambda: 1.0, "answer": lambda: 1.0, "cases": [{}]},
    also=[
        ({"cases": []}, "cases must hold at least one dict"),
        ({"answer": "ex-nothing"}, "no answers are sealed as 'ex-nothing'"),
    ],
)
ANYTHING = dict.fromkeys(("attempt", "cases", "right", "not_allowed", "name", "label", "secret"), "all")
entry(
    grading.judge,
    given={"attempt": lambda: 1.0, "cases": [{}], "right": [1.0]},
    also=[
        ({"cases": []}, "cases must hold at least one dict"),
        ({"right": []}, "right must hold 1 answers"),
        ({"not_allowed": ["numpy.nothing"]}, "not_allowed must name functions"),
    ],
)
entry(profile.make_generator, given={"name": "x"})
