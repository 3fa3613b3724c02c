"""Valid calls and refusals by hand: training and tuning."""

from math import inf as INF
from math import nan as NAN
from pathlib import Path

import numpy as np
import torch
from house.calls.base import entry, rows
from house.calls.models import FIXTURES

from icl import filters, profile
from icl.experiments import training, training_variants, tuning

entry(
    training.Config,
    given={"steps": 4},
    also=[
        ({"warm_up": 5}, "warm_up must be at most steps = 4"),
        ({"clip": np.array([INF])}, "clip must be one number"),
        *rows("clip", "must be finite and > 0", 0.0),
    ],
)
PLAN = training.Config(steps=4, batch=2)
FIXTURES |= {training.Config: lambda: PLAN}
entry((training.Config, "step_size"), also=[({"step": 5}, "step must be at most steps = 4")])
MODELS = torch.zeros(2, 3, 3)
entry(
    training_variants.train_side_by_side,
    given={"theta": MODELS, "lam": np.array([0.9, 1.0]), "steps": 1, "optimiser": training.AdamW()},
    also=[
        ({"theta": torch.zeros(2, 4, 4)}, r"theta must have shape \(any, 3, 3\) to match the task"),
        *(
            ({"theta": MODELS + value}, "theta must hold at least one model, every entry finite")
            for value in (NAN, INF)
        ),
        *(
            (
                {"theta": MODELS.to(kind)},
                "theta must have a floating dtype|dtype must be torch.float32 or torch.float64",
            )
            for kind in (torch.int64, torch.float16, torch.complex64)
        ),
        *(({"lam": np.array([0.9, value])}, "lam must be finite and > 0") for value in (0.0,)),
    ],
)
NET = torch.nn.Linear(2, 1, bias=False)
LOSS = lambda model, prompt: (model(prompt.x[:, -1])[:, 0] - prompt.y[:, -1]).square().mean()  # noqa: E731
FROZEN = torch.nn.Linear(2, 1).requires_grad_(False)
MIXED = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Linear(1, 1, dtype=torch.float64))
EXTRA = type("Extra", (torch.nn.Linear,), {"get_extra_state": lambda self: "more"})(2, 1)


def unsteady():
    """A loss of two shapes, one after the other."""
    lengths = iter([2, 1])
    return lambda model, prompt: model.weight[0, : next(lengths)]


entry(
    training.fit,
    given={"model": NET, "loss": LOSS},
    also=lambda call: [
        *rows("model", "must be a torch.nn.Module", LOSS, None),
        *rows("model", "must have parameters to train", torch.nn.Identity(), FROZEN),
        ({"model": MIXED}, "model must have parameters to train, of one dtype"),
        ({"model": EXTRA}, "model must hold its state in tensors"),
        ({"model": torch.nn.Linear(2, 1, dtype=torch.bfloat16)}, "dtype must be torch.float32 or torch.float64"),
        ({"loss": None}, "loss must be a function"),
        ({"task": None}, r"task must be an [\w.]*Samples"),
        ({"config": None}, "config must be an icl.*Config"),
        *rows(
            "extra_generators",
            "must (map names to torch.Gen|be a .*Mapping)",
            profile.make_generator("x"),
            {"noise": 3},
        ),
        *rows(
            "extra_generators",
            "must name its generators, and none 'generator'",
            *({name: profile.make_generator("x")} for name in ("generator", "", 3)),
        ),
        *rows("checkpoint", "must be a pathlib.Path", "a/path", Path("no such folder/file")),
        ({"loss": lambda model, prompt: 1.0}, "loss must return a scalar"),
        ({"loss": lambda model, prompt: model.weight}, "loss must return a scalar"),
        ({"loss": lambda model, prompt: model.weight[0, :0]}, "loss must return a scalar"),
        ({"loss": lambda model, prompt: torch.tensor(1.0)}, "loss must return a scalar"),
        ({"loss": unsteady()}, "loss must return the shape of its steps before"),
    ],
)
TUNABLE = tuning.Tunable(lambda d, lam: filters.rls(lam, eps=0.01), {"lam": [0.9, 0.8]})
GRID_RESULT = tuning.GridResult({"lam": [0.9, 0.8]}, torch.zeros(2, 2, 4))
FIXTURES |= {tuning.Tunable: lambda: TUNABLE, tuning.GridResult: lambda: GRID_RESULT}
AXES = [
    ({"axes": {"": [0.9]}}, "axes must have settings' names for keys, got ''"),
    ({"axes": {3: [0.9]}}, "axes must have settings' names for keys, got 3"),
    *(({"axes": {"lam": value}}, "lam must be at least one value to try") for value in ([], 0.9, [[0.9]])),
    ({"axes": {"lam": [NAN]}}, "lam must be finite"),
    ({"axes": {"lam": "0.9"}}, "lam must be real"),
]
NAMES = "must be a tuple of settings' names, got"
TUPLES = ("linear", "log_scale", "at_once")
entry(
    tuning.Tunable,
    given={"build": TUNABLE.build, "axes": {"lam": [0.9]}},
    also=[
        *AXES,
        *(({name: value}, f"{name} {NAMES}") for name in TUPLES for value in ("mu", [3], (3,))),
        *(({name: ("mu",)}, f"{name} must be among the axes, lam, got") for name in TUPLES[1:]),
        ({"linear": ("lam",)}, "linear must name settings that are not among the axes"),
        ({"linear": ("mu",), "at_once": ("lam",)}, "at_once must be empty where settings are solved for"),
        ({"axes": {}}, "axes must hold a setting to try"),
    ],
)
entry(
    tuning.GridResult,
    given={"axes": GRID_RESULT.axes, "answers": GRID_RESULT.answers},
    also=[*AXES, *rows("answers", r"must have shape \(2, any, any\) to match", None, torch.zeros(3, 2, 4))],
)
LABELS = {"truth": torch.zeros(2, 4)}
POSITIONS = [
    *rows("positions", "must be a slice", None, 3, [0, 1]),
    ({"positions": slice(4, None)}, "positions must leave some of 4"),
    *rows("truth", r"must have shape \(2, 4\) to match the answers", torch.zeros(2, 5)),
    ({"truth": LABELS["truth"].double()}, "truth must have dtype torch.float32 to match the answers"),
]
for method in ("losses", "best"):
    entry((tuning.GridResult, method), given=LABELS, also=POSITIONS)
entry((tuning.GridResult, "only"), given={})
entry(
    tuning.tune,
    also=[
        *(each for each in POSITIONS if each[0] != {"truth": None}),
        (
            {"rounds": 2, "tunable": tuning.Tunable(TUNABLE.build, {"lam": [0.5, 1.0]}, log_scale=("lam",))},
            "lam, or what",
        ),
    ],
)
entry(
    tuning.simplex,
    given={"error": lambda z: float(z @ z), "start": [1.0, 2.0]},
    also=[*rows("start", "must be", [], np.ones((2, 2)))],
)
