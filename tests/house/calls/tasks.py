"""Valid calls and refusals by hand: tasks, prompts, objectives and what minimises them."""

from math import inf as INF
from math import nan as NAN

import numpy as np
import torch
from house.calls.base import FIXTURES, PLAIN, SMOOTH, STILL, WIDE, entry, prompt_of, rows

from icl import convex, profile, self_tuning
from icl.experiments import training, training_variants
from icl.tasks import components, core, drifts, mixtures, noise, objectives, quadratics, rules, series, text
from icl.tasks import unknown_drift as unknown_drift_task
from icl.theory.floors import label_rule, unknown_drift
from icl.theory.steady import fast_weights as fast
from icl_book.chapters import rule_models

# --- tasks
for law in (
    core.StationaryRegression,
    core.DriftingRegression,
    core.SmoothDrift,
    drifts.RegimeSwitching,
    drifts.HeavyTailedDrift,
):
    mixed = [
        (
            {"Lambda": [[1.0, 0.1], [0.1, 1.0]], "inputs": other},
            rf"Lambda must be diagonal for .*Gaussian \({other.name}",
        )
        for other in (core.UNIFORM, core.LAPLACE)
    ]
    entry(law, also=[*mixed, *rows("inputs", "must be an", None, core.UNIFORM.draw)])
entry(
    drifts.LinearDrift,
    given={"F": np.eye(2), "Q": np.eye(2), "h": np.ones(2), "P_0": np.eye(2)},
    also=[
        *mixed,
        *rows("h", r"must have shape \(r,\)", 1.0, np.ones((2, 2))),
        *rows("F", r"must have shape \(2, 2\) to match h", np.eye(3)),
        ({"h": np.array([1.0, NAN])}, "h must be finite"),
        ({"h": "one"}, "h must be real"),
        ({"F": np.full((2, 2), INF)}, "F must be finite"),
        ({"F": None}, "F must be real"),
        ({"Q": None}, r"Q must be a \(2, 2\) cov"),
        ({"P_0": None}, r"P_0 must be a \(2, 2\) cov"),
    ],
)
mixed = [*mixed, ({"Lambda": np.eye(3)}, r"Lambda must have shape \(2, 2\)"), ({"inputs": "x"}, "inputs must be an")]
entry(drifts.ar2, also=mixed)
entry(drifts.sinusoids, also=mixed)
PAIRS = [(0.5, "shape"), ((0.5,), "shape"), ((0.1, 0.2, 0.3), "shape"), ((0.5, -0.1), "finite and >= 0.* got .*-0.1")]
PAIRS += [((0.5, NAN), "finite"), ("0.5", "real"), (None, "real"), (1j, "real"), ((0.5, INF), "finite")]
entry(
    drifts.two_timescales,
    given={"gammas": (0.9, 0.5)},
    also=[
        *mixed,
        *(({name: v}, rf"{name} must (have|be) .*{says}") for name in ("gammas", "variances") for v, says in PAIRS),
    ],
)

entry(core.InputLaw, given={"name": "x", "draw": core.UNIFORM.draw})
X, Y = torch.zeros(2, 4, 2), torch.zeros(2, 4)
entry(
    core.Prompt,
    # a batch of any numbers: what reads it says what it cannot use
    also=[({"x": X[:, :1], "y": Y[:, :1], "w": X[:, :1]}, "x must hold at least one example and the")],
)
SAMPLES = rows("task", "must be an icl.tasks.core.Task, or sample as one does", None, 0, "text", core.SmoothDrift)
entry(core.batches, given={"task": PLAIN}, also=SAMPLES)
entry(core.Prompt.last, also=[({"m": 4}, "m must be at most n = 3.*got 4")])
entry(
    core.square_root,
    given={"matrix": np.eye(2)},
    also=[
        ({"matrix": torch.eye(2, requires_grad=True)}, "matrix must be real numbers, detached"),
        ({"matrix": 1.0}, r"matrix must have shape \(1, 1\)"),
        ({"matrix": None}, "matrix must be real"),
        ({"matrix": -np.eye(2)}, "matrix must be positive semi-definite, its smallest eigenvalue is -1"),
        ({"matrix": [[1.0, 0.5], [0.4, 1.0]]}, "matrix must be symmetric, its largest asymmetry is 0.1"),
        ({"matrix": np.full((2, 2), NAN)}, "matrix must be finite, got"),
    ],
)
noisy = noise.Noisy(PLAIN, 0.1)
entry(noise.Noisy, also=[({"task": noisy}, "task must be a Task without noise")])
FLAT_TASKS = [PLAIN, noise.Noisy(PLAIN, 0.1)]
entry(
    mixtures.Mixture,
    given={"tasks": FLAT_TASKS},
    also=[
        *rows("tasks", "must be at least one icl.tasks.core.Task", [], [PLAIN, 3]),
        ({"tasks": [PLAIN, core.SmoothDrift(2, 4)]}, r"tasks must have one d and one n, got \[\(2, 3\), \(2, 4\)\]"),
        ({"tasks": [PLAIN, core.SmoothDrift(2, 3, inputs=core.UNIFORM)]}, "tasks must have one law of white inputs"),
    ],
)
entry(
    (mixtures.Mixture, "sample"),
    given={"batch": 4},
    also=[({"batch": 3}, "batch must be a multiple of the 2 tasks, got 3")],
)


def held(draw):
    """Prompts that are held, asked for with other arguments than those of their draw."""
    draw()
    return [
        ({"batch": 3}, "batch must stay 2 in torch.float32.*got 3 in"),
        ({"dtype": torch.float64}, "batch must stay 2 in torch.float32 while"),
        ({"device": "meta"}, "device must stay cpu while prompts are held"),
    ]


entry((training_variants.FixedBatch, "sample"), also=held)

# --- mixtures with means
PARTED = components.GaussianComponents(2, 3, [1.0, -1.0], [0.5, 2.0])
ALONG = components.GaussianComponents(1, 3, [1.0, -1.0], [0.5, 2.0])
FIXTURES |= {
    components.GaussianComponents: lambda: PARTED,
    components.ComponentPrompt: lambda: PARTED.sample(2, generator=profile.make_generator("x")),
}
entry(
    components.GaussianComponents,
    given={"means": [1.0, -1.0], "covariances": [0.5, 2.0], "shares": [1.0, 2.0]},
    also=[
        *rows("means", "must", [1.0], [[1.0], [2.0]]),
        *rows("covariances", "must", NAN, [1.0, 0.0], [1.0, -1.0], [np.eye(3)] * 2, [np.ones((2, 2))] * 2, None),
        *rows("shares", "must", NAN, [1.0], ["1", "2"]),
    ],
)
entry((components.GaussianComponents, "posterior"), given={"X": torch.ones(2, 3, 2)})
entry(
    (components.GaussianComponents, "only"),
    given={"component": 1},
    also=[({"component": 2}, "component must be at most 1, got 2")],
)

# --- prompts of text
SPELT = text.InContextText(tuple((9, row) for row in range(8)), (0, 1) * 4, (5, 6), 1, 2, 2, (7,), (8,))
FIXTURES |= {
    training.Samples: lambda: PLAIN,
    text.InContextText: lambda: SPELT,
    text.TextPrompt: lambda: SPELT.sample(2, generator=profile.make_generator("x")),
}
entry((text.TextPrompt, "alone"), given={"K": 1}, also=[({"K": 2}, "K must be at most 1, got 2")])

# --- a language with a rule
SPOKEN = rules.RuleLanguage(PLAIN, np.eye(2))
FIXTURES |= {
    rules.RuleLanguage: lambda: SPOKEN,
    rules.WordPrompt: lambda: SPOKEN.sample(2, generator=profile.make_generator("x")),
}
entry(rules.RuleLanguage, given={"vectors": np.eye(2)}, also=rows("vectors", "must", np.ones((1, 2)), np.ones((2, 3))))
entry(
    label_rule.positive_probability,
    also=[
        ({"rule": WIDE}, "rule must have d = 1 or 2"),
        ({"rule": STILL}, "rule must not start at 0"),
        ({"rule": core.DriftingRegression(d=2, n=3, gamma=0.5, sigma_e=0.0)}, "rule must have innovations or"),
        ({"sigma_y": 1e-3}, "sigma_y must leave widths less unequal"),
    ],
)
entry(
    rule_models.exact_answers,
    given={"spacing": 0.5},
    also=[({"language": rules.RuleLanguage(SMOOTH, np.eye(2))}, "rule must be")],
)
ANSWERS = np.full((2, 3), 0.5)
entry(
    rule_models.judge_answers,
    given={"answers": ANSWERS, "exact": ANSWERS, "late": 1},
    also=[
        ({"late": 3}, "late must be at most 2, got 3"),
        *rows("answers", "must", ANSWERS + 1),
        *rows("exact", "must", ANSWERS + 1),
    ],
)
entry(rule_models.best_one_layer, given={"since": 1}, also=[({"since": 4}, "since must be at most n = 3, got 4")])
entry(
    quadratics.covariance,
    given={"D": [1.0, 2.0]},
    also=[
        *rows("D", r"must have shape \(d,\)", 1.0, []),
        ({"U": np.eye(3)}, r"U must have shape \(2, 2\) to match D"),
        ({"U": [[1.0, 0.1], [0.0, 1.0]]}, "U must be orthogonal"),
    ],
)
SIGMA = [({"Sigma": value}, r"Sigma must be a \(d, d\) cov") for value in (None, "identity", np.ones(2))]
entry(quadratics.regression, quadratics.sample_hessians, given={"Sigma": np.eye(2)}, also=SIGMA)
entry(
    *(quadratics.mean_curvature, quadratics.weighted_curvature, quadratics.largest_curvature),
    also=[({"H": torch.zeros(shape)}, r"H must have shape \(batch, d, d\) with d") for shape in ((2, 0, 0),)],
)
COLUMNS = np.random.default_rng(0).standard_normal((20, 2))
entry(
    series.prepare,
    given={"labels": np.arange(20.0), "known": 0.5},
    also=[
        *rows("known", "must leave more rows than columns", 0.1),
        ({"labels": np.ones(20)}, "known must reach rows where every column varies"),
        ({"inputs": np.eye(20)[:, 18:]}, "known must reach rows where every"),
        ({"inputs": np.repeat(COLUMNS[:, :1], 2, 1)}, "known must reach rows that tell inputs apart"),
        ({"inputs": np.column_stack([COLUMNS, np.ones(20)])}, "inputs must have no intercept, column 2 is constant"),
    ],
)
entry(series.mean_and_error, given={"lags": 1}, also=[({"lags": 4}, "lags must be less than the 4 rows")])

# --- objectives, and what minimises them
ELEMENTS = {"y": torch.zeros(2), "s": torch.zeros(2)}
for objective in (objectives.Square, objectives.Logistic, objectives.Huber, objectives.Cauchy, objectives.Quartic):
    for name in ("loss", "slope", "bend"):
        entry(
            (objective, name),
            given=ELEMENTS,
            also=[({"s": torch.zeros(3)}, r"s must broadcast with y, \(2,\), got \(3,\)")],
        )
    for name in ("value", "gradient"):
        entry(
            (objective, name),
            given={"w": torch.zeros(2, 2)},
            also=[
                *rows(
                    "w",
                    r"must have shape \(2, ..., 2\) to match prompt",
                    torch.zeros(2, 3),
                    torch.zeros(3, 2),
                ),
                ({"prompt": prompt_of(WIDE)}, "prompt must have d = 2, got 3"),
            ],
        )
    entry((objective, "examples"), also=[({"prompt": prompt_of(WIDE)}, "prompt must have d = 2, got 3")])
CURVED_TASK = objectives.Logistic(2, 3)
PRECISE = CURVED_TASK.sample(2, generator=profile.make_generator("x"))
NO_MINIMUM = [
    ({"objective": objectives.Cauchy(2, 3)}, "objective must be convex, got a Cauchy"),
    ({"objective": objectives.Logistic(2, 3, ridge=0.0)}, "objective must have a ridge > 0"),
    ({"objective": objectives.Logistic(3, 3)}, "prompt must have d = 3, got 2"),
]
SINGLE = [({"prompt": prompt_of(PLAIN)}, r"prompt must have dtype torch\.float64")]
SOLVED = {"objective": CURVED_TASK, "prompt": PRECISE}
entry(convex.minimiser, given=SOLVED, also=NO_MINIMUM + SINGLE)
entry(convex.newton, convex.nonlinear_conjugate_gradients, given=SOLVED, also=NO_MINIMUM)
entry(
    convex.shared_minimiser,
    given=SOLVED | {"basis": torch.eye(2, dtype=torch.float64).repeat(2, 1, 1)},
    also=[*NO_MINIMUM, *SINGLE, ({"basis": torch.ones(2, 2, 2).double()}, "basis must have independent columns")],
)

# --- a speed that nobody tells
UNTOLD = {"gammas": (0.9, 0.5), "steps": (0.3, 0.5), "noises": (0.1, 0.2)}
WRONG_PRIORS = [
    *rows("gammas", "must", None, "0.5", 0.5, (), (1.0, 0.5), (0.5, -0.1), (0.5, NAN), (0.5, 1j)),
    *rows("steps", "must", None, "0.5", (0.1,), (0.1, 0.0), (0.1, -0.1), (0.1, NAN), (0.1, INF)),
    *rows("noises", "must", None, "0.5", (0.1,), (0.1, -0.1), (0.1, NAN), (0.1, INF)),
    *rows("weights", "must", "0.5", (0.5,), (0.5, 0.6), (1.0, 0.0), (1.5, -0.5), (0.5, NAN), 1.0),
]
entry(unknown_drift_task.UnknownDrift, given=UNTOLD, also=[*mixed[:2], *WRONG_PRIORS])
SPEEDS = unknown_drift_task.UnknownDrift(2, 3, **UNTOLD)
FIXTURES |= {unknown_drift_task.UnknownDrift: lambda: SPEEDS}
CREEPING = (
    {"task": unknown_drift_task.UnknownDrift(2, 3, [1 - 1e-9], [0.1])},
    "task must have gammas of at most 1 - 1e-8",
)
entry(unknown_drift.bank_predictions, unknown_drift.linear_predictions, also=[CREEPING])
STEADY = fast.DriftLaw(2, 0.6, 0.8, 0.5)
entry(unknown_drift.gates_at, given={"law": STEADY, "p": 0.5}, also=rows("p", "must be at most the weights", 1.5))
entry(
    unknown_drift.best_fixed_unit_delta,
    given={"laws": [STEADY, STEADY]},
    also=[
        *rows("laws", "must be", [], [None]),
        ({"laws": [STEADY, fast.DriftLaw(3, 0.6, 0.8)]}, r"laws must have one d, got \[2, 3\]"),
        *rows("weights", "must", "1", (1.0,), (1.0, 0.0)),
    ],
)
LAYERS_TOLD = {"p": (0.1, 0.5), "lam": (0.9, 0.5)}
WRONG_TABLES = [
    *rows("p", "must", None, "0.5", 0.5, (0.1,), (0.5, 0.1), (0.1, 0.1), (0.0, 0.5), (0.1, NAN)),
    *rows("lam", "must", None, "0.5", 0.5, (0.5,), (0.5, 1.1), (0.5, -0.1), (0.5, NAN)),
]
TOLD_FREE = dict.fromkeys(("p", "lam"), "all")
entry(self_tuning.gauged_delta, self_tuning.meta_delta, given=LAYERS_TOLD, also=WRONG_TABLES)
entry(self_tuning.mixed_deltas, given=LAYERS_TOLD, also=[*WRONG_TABLES, *rows("sigma_y", "must", (0.1,))])
