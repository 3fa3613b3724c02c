"""Bad arguments are refused at the door, by name.

A table of calls, one a row: where, what is wrong, the call, and how the refusal begins. Every row has to raise
ValueError with the argument's name and what it got. The hook that checks annotations is stood down here, so that it is
the library's own checks that speak.
"""

import ast
import functools
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import icl
from icl import filters, profile, solvers
from icl.models import counting, estimating, memformer, operators, token_form
from icl.models import layers as fast_weights
from icl.models import one_layer as model
from icl.models import readings as two_streams
from icl.models import s6 as mamba
from icl.models.causal import Normalised
from icl.models.layered import LayeredDelta, LayeredGLA, Selected
from icl.models.stacks import DeltaStack, GatedDeltaStack, GatedStack, Stack, factors, read_strictly
from icl.page import claims, exercises
from icl.runs import checkpoint, recipes, training
from icl.runs.grid import Grid, run_grid
from icl.runs.judging import one_step_ahead, risk_curve, settled_risk, squared_error
from icl.runs.recipes import Held, as_published, minimise
from icl.tasks import (
    LAPLACE,
    RADEMACHER,
    UNIFORM,
    DriftingRegression,
    HeavyTailedDrift,
    InputLaw,
    LinearDrift,
    Noisy,
    Prompt,
    RegimeSwitching,
    SmoothDrift,
    StationaryRegression,
    ar2,
    blocks,
    quadratics,
    sinusoids,
    square_root,
    two_timescales,
)
from icl.tasks.series import Drift, filtered, mean_and_error, most_likely, prepare, smoothed
from icl.theory import adversary, floors, large_d, lfom, moments, one_layer, polynomial_floor, population
from icl.theory import lms_family as exact
from icl.theory import s6 as closed
from icl.theory import steady as fast
from icl.theory.errata import adaptation, memory, selection

pytestmark = pytest.mark.usefixtures("as_installed")

NAN, INF = float("nan"), float("inf")
NOT_REAL = {"NaN": NAN, "infinite": INF, "text": "0.5", "None": None, "complex": 1j}
# Where one number is asked for.
NOT_A_NUMBER = NOT_REAL | {"an array": np.array([0.5, 0.6])}

ROWS = []


def row(where, wrong, call, message, got=r".* got "):
    ROWS.append(pytest.param(call, f"^{message}.*{got}", id=f"{where}: {wrong}"))


def numbers(where, call, name, *, wrong=NOT_A_NUMBER, outside=()):
    """Rows for one number: what is none, and what is out of range. `call` takes the argument by keyword."""
    for label, value in (wrong | {str(v): v for v in outside}).items():
        row(where, f"{name} {label}", functools.partial(call, **{name: value}), f"{name} must ", re.escape(said(value)))


def said(value):
    """How a refused value is quoted: arrays by their worst entry, so that any word will do."""
    return "" if isinstance(value, np.ndarray) or value is None else str(value).strip("'")


def integers(where, call, name, *, least):
    for value in (least - 1, float(least), str(least), None, True, NAN):
        row(
            where,
            f"{name} {value!r}",
            functools.partial(call, **{name: value}),
            f"{name} must be an integer >= {least}",
        )


def covariances(where, call, name):
    for label, matrix, message in (
        ("wrong shape", np.eye(3), r"must have shape \(2, 2\)"),
        ("a vector", np.ones(2), r"must have shape \(2, 2\)"),
        ("asymmetric", [[1.0, 0.5], [0.4, 1.0]], "must be symmetric, its largest asymmetry is 0.1"),
        ("indefinite", [[1.0, 2.0], [2.0, 1.0]], "must be positive semi-definite, its smallest eigenvalue is -1"),
        ("NaN", [[NAN, 0.0], [0.0, 1.0]], "must be finite, got"),
        ("infinite", [[INF, 0.0], [0.0, 1.0]], "must be finite, got"),
        ("complex", np.eye(2) * 1j, "must be real"),
        ("text", "identity", "must be real"),
    ):
        row(where, f"{name} {label}", functools.partial(call, **{name: matrix}), f"{name} {message}", "")


def draws(where, call):
    for value in (None, 0, np.random.default_rng(0)):
        row(
            where,
            f"generator {value!r}",
            functools.partial(call, generator=value),
            "generator must be a torch.Generator",
        )
    for value in (torch.float16, torch.int64, None):
        row(
            where,
            f"dtype {value}",
            functools.partial(call, generator=profile.streams("x"), dtype=value),
            "dtype must be torch.float32 or torch.float64",
        )


sizes = {"d": 2, "n": 3}
drift = functools.partial(DriftingRegression, **sizes | {"gamma": 0.9})
stationary = functools.partial(StationaryRegression, **sizes)
smooth = functools.partial(SmoothDrift, **sizes)
task = drift()

state = {"F": np.eye(2), "Q": np.eye(2), "h": np.ones(2), "P_0": np.eye(2)}
linear = functools.partial(LinearDrift, **sizes | state)
switching = functools.partial(RegimeSwitching, **sizes | {"gamma": 0.9})
tails = functools.partial(HeavyTailedDrift, **sizes | {"gamma": 0.9})
swinging = functools.partial(ar2, **sizes | {"rho": 0.9, "omega": 0.5})
two_speeds = functools.partial(two_timescales, **sizes | {"gammas": (0.9, 0.5)})
turning = functools.partial(sinusoids, **sizes | {"omega": 0.5})
KINDS = (
    *(("DriftingRegression", drift), ("StationaryRegression", stationary), ("SmoothDrift", smooth)),
    *(("LinearDrift", linear), ("RegimeSwitching", switching), ("HeavyTailedDrift", tails)),
    *(("ar2", swinging), ("two_timescales", two_speeds), ("rotation", turning)),
)
for where, make in KINDS:
    integers(where, make, "d", least=1)
    integers(where, make, "n", least=1)
    covariances(where, make, "Lambda")
    for law in (UNIFORM, LAPLACE):
        row(
            where,
            f"Lambda that mixes {law.name} inputs",
            functools.partial(make, Lambda=[[1.0, 0.1], [0.1, 1.0]], inputs=law),
            r"Lambda must be diagonal for inputs that are not Gaussian \(" + law.name,
        )
    for value in ("uniform", None, 3.0, UNIFORM.draw, InputLaw):
        row(where, f"inputs {value!r}", functools.partial(make, inputs=value), "inputs must be an InputLaw")
    for inputs in ({}, {"inputs": UNIFORM}, {"inputs": RADEMACHER}, {"inputs": LAPLACE}):
        draws(f"{where}.sample {inputs}", functools.partial(make(**inputs).sample, 2))
    integers(f"{where}.sample", functools.partial(make().sample, generator=profile.streams("x")), "batch", least=1)
covariances("StationaryRegression", stationary, "Sigma_w")
for name in ("gamma", "sigma_w", "sigma_e"):
    numbers("DriftingRegression", drift, name, outside=[-0.1])
integers("SmoothDrift", smooth, "harmonics", least=0)
numbers("SmoothDrift", smooth, "sigma_w", outside=[-1.0])

for name in ("Q", "P_0"):
    covariances("LinearDrift", linear, name)
    row("LinearDrift", f"{name} None", functools.partial(linear, **{name: None}), rf"{name} must be a \(2, 2\) cov")
for name, value, message in (
    ("h", 1.0, r"h must have shape \(r,\)"),
    ("h", np.ones((2, 2)), r"h must have shape \(r,\)"),
    ("h", np.ones(0), r"h must have shape \(r,\)"),
    ("h", np.array([1.0, NAN]), "h must be finite"),
    ("h", "one", "h must be real"),
    ("F", np.eye(3), r"F must have shape \(2, 2\) to match h"),
    ("F", 1.0, r"F must have shape \(2, 2\) to match h"),
    ("F", np.full((2, 2), INF), "F must be finite"),
    ("F", None, "F must be real"),
):
    row("LinearDrift", f"{name} {value}", functools.partial(linear, **{name: value}), message)
for where, make in (("RegimeSwitching", switching), ("HeavyTailedDrift", tails)):
    for name in ("gamma", "sigma_w", "sigma_e"):
        numbers(where, make, name, outside=[-0.1])
    draws(f"{where}.reveal", functools.partial(make().reveal, 2))
    integers(f"{where}.reveal", functools.partial(make().reveal, generator=profile.streams("x")), "batch", least=1)
numbers("RegimeSwitching", switching, "switch", outside=[-0.1, 1.1])
numbers("HeavyTailedDrift", tails, "nu", outside=[2.0, 1.0])
numbers("ar2", swinging, "rho", outside=[-0.1, 1.1])
numbers("ar2", swinging, "omega", outside=[-0.1, 3.2])
numbers("rotation", turning, "omega")
for where, make in (("ar2", swinging), ("rotation", turning)):
    numbers(where, make, "variance", outside=[-0.1])
for name in ("gammas", "variances"):
    numbers("two_timescales", two_speeds, name, wrong=NOT_REAL)
    for value in (0.5, (0.5,), (0.1, 0.2, 0.3)):
        wrong = functools.partial(two_speeds, **{name: value})
        row("two_timescales", f"{name} {value}", wrong, rf"{name} must have shape \(2\)")
    row(
        "two_timescales", f"{name} < 0", functools.partial(two_speeds, **{name: (0.5, -0.1)}), f"{name} must be", "-0.1"
    )
row("two_timescales", "gammas > 1", lambda: two_speeds(gammas=(1.1, 0.5)), "gammas must be", "1.1")

for label, matrix, message in (
    ("of no axis", 1.0, r"must have shape \(1, 1\)"),
    ("None", None, "must be real"),
    ("not square", np.ones((3, 2)), r"must have shape \(3, 3\)"),
    ("indefinite", -np.eye(2), "must be positive semi-definite, its smallest eigenvalue is -1"),
    ("asymmetric", [[1.0, 0.5], [0.4, 1.0]], "must be symmetric, its largest asymmetry is 0.1"),
    ("NaN", np.full((2, 2), NAN), "must be finite, got"),
):
    row("square_root", f"matrix {label}", functools.partial(square_root, matrix), f"matrix {message}", "")

law = functools.partial(InputLaw, **{"name": "x", "kurtosis": 3.0, "draw": UNIFORM.draw})
numbers("InputLaw", law, "kurtosis", outside=[0.99, -3.0])

x, y = torch.zeros(2, 4, 3), torch.zeros(2, 4)
row("Prompt", "x of two axes", lambda: Prompt(y, y, y), r"x must have shape \(any, any, any\)")
row("Prompt", "y too short", lambda: Prompt(x, y[:, 1:], x), r"y must have shape \(2, 4\) to match x")
row("Prompt", "w of another batch", lambda: Prompt(x, y, x[1:]), r"w must have shape \(2, 4, 3\) to match x")
row(
    "Prompt", "only the query", lambda: Prompt(x[:, :1], y[:, :1], x[:, :1]), "x must hold at least one example and the"
)
row("Prompt", "y of another dtype", lambda: Prompt(x, y.double(), x), "y must have dtype torch.float32 to match x")
row("Prompt", "w of another dtype", lambda: Prompt(x, y, x.double()), "w must have dtype torch.float32 to match x")
integers("Prompt.last", Prompt(x, y, x).last, "m", least=1)
row("Prompt.last", "m beyond n", lambda: Prompt(x, y, x).last(4), "m must be at most n = 3", "got 4")
pieces = functools.partial(blocks, task)
integers("blocks", lambda total: list(pieces(total=total, generator=profile.streams("x"))), "total", least=1)
integers("blocks", lambda size: list(pieces(total=2, size=size, generator=profile.streams("x"))), "size", least=1)
draws("blocks", lambda **options: list(pieces(total=2, **options)))

recursion = functools.partial(moments.recursion, **{"lam": 0.9, "gamma": 0.9, "n": 3})
for name in ("lam", "gamma", "sigma_w", "sigma_e"):
    numbers("recursion", recursion, name, wrong=NOT_REAL, outside=[-0.1])
    row(
        "recursion",
        f"{name} with a bad entry",
        functools.partial(recursion, **{name: [0.5, NAN]}),
        f"{name} must ",
        "nan",
    )
integers("recursion", recursion, "n", least=1)
from_kernel = functools.partial(moments.from_kernel, **{"weights": np.ones(2), "kernel": np.eye(3)})
row(
    "from_kernel",
    "too many weights",
    lambda: from_kernel(weights=np.ones(3)),
    "weights must have 2 entries on their last",
)
row("from_kernel", "NaN weights", lambda: from_kernel(weights=[1.0, NAN]), "weights must be finite")
row("from_kernel", "kernel not square", lambda: from_kernel(kernel=np.ones((3, 2))), r"kernel must have shape \(3, 3\)")
row("from_kernel", "kernel of one axis", lambda: from_kernel(kernel=np.ones(3)), r"kernel must have shape \(3, 3\)")
row("from_kernel", "kernel NaN", lambda: from_kernel(kernel=np.full((3, 3), NAN)), "kernel must be finite")
numbers("of", functools.partial(moments.task_moments, task), "lam", wrong=NOT_REAL, outside=[-0.1])
skewed = stationary(Sigma_w=np.diag([4.0, 1.0]))
row("of", "weights with a covariance", lambda: moments.task_moments(skewed, 0.9), "Sigma_w must be the identity", "")

for function in (one_layer.lambda_tilde, one_layer.optimum):
    numbers(function.__name__, functools.partial(function, task), "lam", outside=[-0.1, 0.0])
for function in (one_layer.xi, one_layer.identity_error):
    numbers(function.__name__, functools.partial(function, task), "lam", wrong=NOT_REAL, outside=[-0.1, 0.0])
for function in (one_layer.training_error, one_layer.error_by_direction):
    numbers(function.__name__, functools.partial(function, task), "lam", wrong=NOT_REAL, outside=[-0.1])
numbers("risk", functools.partial(one_layer.layer_risk, np.eye(2), task), "lam", wrong=NOT_REAL, outside=[-0.1])
row("risk", "A of another size", lambda: one_layer.layer_risk(np.eye(3), task, lam=0.9), r"A must have shape \(2, 2\)")
row("risk", "A NaN", lambda: one_layer.layer_risk(np.full((2, 2), NAN), task, lam=0.9), "A must be finite")
still = drift(sigma_w=0.0, sigma_e=0.0)
row("optimum", "no weights at all", lambda: one_layer.optimum(still, lam=0.9), "Lambda~ is singular for this task", "")
row(
    "optimum",
    "no inputs at all",
    lambda: one_layer.optimum(drift(Lambda=np.zeros((2, 2))), lam=0.9),
    "Lambda~ is singular",
    "",
)
for function in (one_layer.optimal_forgetting, one_layer.forgetting_by_direction):
    numbers(function.__name__, functools.partial(function, task), "upper", outside=[-0.1, 0.0])
shifted = functools.partial(one_layer.testing_error, task, task, **{"lam": 0.9, "test_lam": 0.9})
numbers("testing_error", shifted, "lam", outside=[-0.1, 0.0])
numbers("testing_error", shifted, "test_lam", wrong=NOT_REAL, outside=[-0.1])
row(
    "testing_error",
    "tasks of two sizes",
    lambda: one_layer.testing_error(task, drift(d=3), lam=0.9, test_lam=0.9),
    "test must have the d of train, 2",
    "got 3",
)
row(
    "testing_error", "no weights", lambda: one_layer.testing_error(still, task, lam=0.9, test_lam=0.9), "Lambda~ is", ""
)
flat = drift(Lambda=np.diag([2.0, 0.0]))
for function in (one_layer.crosstalk, one_layer.position_weights, one_layer.position_error):
    singular = "Lambda must be positive definite here, its smallest eigenvalue is 0"
    row(function.__name__, "a direction without inputs", functools.partial(function, flat), singular, "")
    row(function.__name__, "weights with a covariance", functools.partial(function, skewed), "Sigma_w must be the")
for function in (one_layer.position_weights, one_layer.position_error):
    for label, nothing in (
        ("no weights at all", still),
        ("weights that one sign tells", stationary(d=1, inputs=RADEMACHER)),
    ):
        unique = r"K \+ c diag K is singular for this task"
        row(function.__name__, label, functools.partial(function, nothing), unique, "")
pole = functools.partial(one_layer.kalman_pole, **{"gamma": 0.9, "crosstalk": 2.0})
numbers("kalman_pole", pole, "gamma", wrong=NOT_REAL, outside=[-0.1, 0.0, 1.0, 1.1])
numbers("kalman_pole", pole, "crosstalk", wrong=NOT_REAL, outside=[-1.0, 0.0])
tilted = drift(Lambda=np.diag([2.0, 1.0]))
for function in (one_layer.steady_identity_error, functools.partial(one_layer.identity_error, lam=0.9)):
    row(
        "the identity's errors",
        f"anisotropic {function}",
        functools.partial(function, tilted),
        "Lambda must be the",
        "",
    )
row(
    "steady_error",
    "no steady state",
    lambda: one_layer.steady_identity_error(drift(gamma=1.0)),
    "gamma must be < 1",
    "got 1.0",
)

xs = np.zeros((2, 4, 2))
for function in (lambda x: floors.expected_errors(x, task), lambda x: floors.kalman_risk(task, x)):
    row("kalman", "x of two axes", functools.partial(function, xs[0]), r"x must have shape \(any, any, 2\)")
    row(
        "kalman",
        "x of another d",
        functools.partial(function, np.zeros((2, 4, 3))),
        r"x must have shape \(any, any, 2\)",
    )
    row("kalman", "x NaN", functools.partial(function, xs + NAN), "x must be finite")
row(
    "kalman.risk",
    "one sequence",
    lambda: floors.kalman_risk(task, xs[:1]),
    "x must hold at least two sequences",
    "got 1",
)

row(
    "query_errors",
    "x of two axes",
    lambda: floors.query_errors(xs[0], task),
    r"x must have shape \(any, 4, 2\) to match the task",
)
row("query_errors", "x of another n", lambda: floors.query_errors(xs[:, 1:], task), r"x must have shape \(any, 4, 2\)")
row(
    "query_errors", "x of another d", lambda: floors.query_errors(xs[..., 1:], task), r"x must have shape \(any, 4, 2\)"
)
row("query_errors", "x NaN", lambda: floors.query_errors(xs + NAN, task), "x must be finite")
row("query_errors", "weights with a covariance", lambda: floors.query_errors(xs, skewed), "Sigma_w must be the")

ys, told = np.zeros((2, 4)), np.ones((2, 4))
told_of = {
    "linear_drift_errors": lambda x: floors.linear_drift_errors(x, linear()),
    "genie_errors": lambda x: floors.genie_errors(x, switching(), told),
    "best_linear_errors": lambda x: floors.best_linear_errors(x, switching()),
    "switching_predictions": lambda x: floors.switching_predictions(x, ys, switching()),
}
for name, function in told_of.items():
    row(name, "x of two axes", functools.partial(function, xs[0]), r"x must have shape \(any, .*, 2\)")
    row(name, "x of another d", functools.partial(function, np.zeros((2, 4, 3))), r"x must have shape \(any, .*, 2\)")
    row(name, "x NaN", functools.partial(function, xs + NAN), "x must be finite")
row(
    "best_linear_errors",
    "x of another n",
    lambda: floors.best_linear_errors(xs[:, 1:], switching()),
    r"x must have shape \(any, 4, 2\) to match the task",
)
for label, other in (("smooth", smooth()), ("second order", swinging())):
    unfit = functools.partial(floors.best_linear_errors, xs, other)
    row(
        "best_linear_errors",
        f"a {label} kernel",
        unfit,
        "task must have a kernel of first order",
        "got one that is not",
    )
row("best_linear_errors", "a covariance", lambda: floors.best_linear_errors(xs, skewed), "Sigma_w must be the")
genie = functools.partial(floors.genie_errors, xs, tails())
row("genie_errors", "variance < 0", lambda: genie(-told), "variance must be finite and >= 0")
row("genie_errors", "variance NaN", lambda: genie(told * NAN), "variance must be finite")
row("genie_errors", "variance too short", lambda: genie(told[:, 1:]), r"variance must have shape \(2, 4\) to match x")
row("genie_errors", "restart of numbers", lambda: genie(told, told), "restart must have dtype bool")
row(
    "genie_errors", "restart too short", lambda: genie(told, told[1:] > 0), r"restart must have shape \(2, 4\) to match"
)
bank = functools.partial(floors.switching_predictions, xs)
row(
    "switching_predictions", "y too short", lambda: bank(ys[:, 1:], switching()), r"y must have shape \(2, 4\) to match"
)
row("switching_predictions", "y NaN", lambda: bank(ys + NAN, switching()), "y must be finite")
for name in ("sigma_w", "sigma_e"):
    certain = functools.partial(bank, ys, switching(**{name: 0.0}))
    row("switching_predictions", f"{name} 0", certain, f"{name} must be > 0 for labels that have a density")

limits, layer_of = {"R": 1.0, "delta": 0.1}, {"lam": 0.9, "a": 0.1}
walk = adversary.great_circle(3, 2, **limits)
path_calls = {
    "path_error": functools.partial(adversary.path_error, **{"w": walk, **layer_of}),
    "upper_bound": functools.partial(adversary.upper_bound, **{"w": walk, **limits, **layer_of}),
    "sphere_bound": functools.partial(adversary.sphere_bound, **{"w": walk, **limits, **layer_of}),
    "best_layer": functools.partial(adversary.best_layer, **{"w": walk}),
    "worst_path": functools.partial(adversary.worst_path, **{"start": walk, **limits, **layer_of}),
}
for name, call in path_calls.items():
    argument = "start" if name == "worst_path" else "w"
    for label, value, message in (
        ("of one axis", walk[0], rf"{argument} must have shape \(..., n \+ 1, d\)"),
        ("of one position", walk[:1], rf"{argument} must have shape \(..., n \+ 1, d\)"),
        ("of no d", walk[:, :0], rf"{argument} must have shape \(..., n \+ 1, d\)"),
        ("NaN", walk * NAN, f"{argument} must be finite"),
    ):
        row(name, f"{argument} {label}", functools.partial(call, **{argument: value}), message)
    if name != "path_error":
        several = functools.partial(call, **{argument: walk[None]})
        row(name, f"several {argument}", several, rf"{argument} must have shape \(any, any\)")
    numbers(name, call, "kurtosis", outside=[0.9])
    if name != "best_layer":
        numbers(name, call, "lam", outside=[-0.1])
        numbers(name, call, "a")
integers("worst_path", path_calls["worst_path"], "steps", least=1)
moves = {
    "great_circle": functools.partial(adversary.great_circle, **{"n": 3, "d": 2, **limits}),
    "straight_line": functools.partial(adversary.straight_line, **{"n": 3, "d": 2, **limits}),
    "minimax_on_sphere": functools.partial(adversary.minimax_on_sphere, **{"n": 3, "d": 2, **limits}),
    "minimax_in_ball": functools.partial(adversary.minimax_in_ball, **{"n": 3, "d": 2, **limits}),
}
for name, call in moves.items():
    integers(name, call, "n", least=1)
    integers(name, call, "d", least=2 if name in ("great_circle", "minimax_on_sphere") else 1)
    if "minimax" in name:
        numbers(name, call, "kurtosis", outside=[0.9])
for value in (NAN, -0.1):
    row("great_circle", f"turn {value}", functools.partial(moves["great_circle"], turn=value), "turn must be >= 0")
bounded = {name: call for name, call in path_calls.items() if name not in ("path_error", "best_layer")}
for name, call in (moves | bounded | {"step_angle": functools.partial(adversary.step_angle, **limits)}).items():
    numbers(name, call, "R", outside=[0.0, -1.0])
    numbers(name, call, "delta", outside=[-0.1, 0.0] if name == "worst_path" else [-0.1])

for function in (population.layer_loss, population.global_minimum, population.rank_one_trap):
    name = f"population.{function.__name__}"
    numbers(name, functools.partial(function, task), "lam", outside=[-0.1, 0.0])
    row(name, "weights with a covariance", functools.partial(function, skewed, lam=0.9), "Sigma_w must be the", "")
for law in (UNIFORM, RADEMACHER, LAPLACE):
    other = functools.partial(population.layer_loss, drift(inputs=law), lam=0.9)
    row("population.of", f"{law.name} inputs", other, "inputs must be Gaussian", f"got {law.name}")
for label, nothing in (("no weights at all", still), ("no inputs at all", drift(Lambda=np.zeros((2, 2))))):
    for function in (population.global_minimum, population.rank_one_trap):
        unique = "Lambda~ is singular for this task"
        row(function.__name__, label, functools.partial(function, nothing, lam=0.9), unique, "")

three = np.eye(3)
pack = functools.partial(population.pack, **{"W_V": three, "W_KQ": three})
bound = functools.partial(population.sigma_bound, **{"D1": 1.0, "matrix": three})
begin = functools.partial(population.assumption_1, **{"Theta": three, "sigma": 0.5})
for where, call, name, least in (
    ("pack", pack, "W_V", 2),
    ("pack", pack, "W_KQ", 2),
    ("unpack", population.unpack, "theta", 2),
    ("sigma_bound", bound, "matrix", 1),
    ("assumption_1", begin, "Theta", 1),
):
    for label, value, message in (
        ("of no axis", 1.0, r"must have shape \(any, any\)"),
        ("of one axis", np.ones(3), r"must have shape \(any, any\)"),
        ("of three axes", np.ones((2, 3, 3)), r"must have shape \(any, any\)"),
        ("not square", np.ones((3, 2)), rf"must be square, \({least}, {least}\) or larger"),
        ("too small", np.ones((least - 1, least - 1)), rf"must be square, \({least}, {least}\) or larger"),
        ("NaN", three * NAN, "must be finite"),
        ("infinite", np.where(three, INF, 0), "must be finite"),
    ):
        row(where, f"{name} {label}", functools.partial(call, **{name: value}), f"{name} {message}")
row("pack", "W_KQ of another size", lambda: pack(W_KQ=np.eye(4)), r"W_KQ must have shape \(3, 3\) to match W_V")
row("sigma_bound", "matrix 0", lambda: bound(matrix=0 * three), "matrix must not be 0")
row("assumption_1", "Theta 0", lambda: begin(Theta=0 * three), "Theta must not be 0")
numbers("sigma_bound", bound, "D1", outside=[-0.1, 0.0])
numbers("assumption_1", begin, "sigma", outside=[-0.1, 0.0])
loss = population.layer_loss(task, lam=0.9)
for function in (loss.parts, loss.value, loss.gradient):
    for theta in (np.zeros(3), np.zeros((2, 2)), np.zeros((5, 3, 4)), 1.0):
        where = f"PopulationLoss.{function.__name__}"
        wrong = functools.partial(function, theta)
        row(where, f"theta of shape {np.shape(theta)}", wrong, r"theta must have shape \(..., 3, 3\)")
for theta in (np.zeros((2, 2)), np.zeros((2, 3, 3))):
    wrong = functools.partial(loss.hessian, theta)
    row("PopulationLoss.hessian", f"theta of shape {theta.shape}", wrong, r"theta must have shape \(3, 3\)")
flow = functools.partial(population.gradient_flow, loss, three)
for name in ("until", "slope", "rtol"):
    numbers("gradient_flow", flow, name, outside=[-0.1, 0.0])
for where, name, call in (
    ("gradient_flow", "start", functools.partial(population.gradient_flow, loss)),
    ("linear_rate", "minimum", functools.partial(population.linear_rate, loss)),
):
    for shape in ((2, 2), (2, 3, 3), (3,)):
        wrong = functools.partial(call, np.zeros(shape))
        row(where, f"{name} of shape {shape}", wrong, rf"{name} must have shape \(3, 3\)")
    row(where, f"{name} NaN", functools.partial(call, three * NAN), f"{name} must be finite")
row(
    "linear_rate",
    "no minimum",
    lambda: population.linear_rate(loss, 0 * three),
    "minimum must have a positive semi-definite Hessian",
)

settings = functools.partial(training.AdamW)
numbers("AdamW", settings, "lr", outside=[-0.1, 0.0])
numbers("AdamW", settings, "weight_decay", outside=[-0.1])
for name in ("momentum", "beta2"):
    numbers("AdamW", settings, name, outside=[-0.1, 1.0, 1.1])
fixed = {"lam": np.array([0.9, 1.0]), "steps": 1, "batch": 2, "optimiser": settings()}
two = torch.zeros(2, 3, 3)
training_of = functools.partial(recipes.train_side_by_side, task, **fixed)
side_by_side = functools.partial(training_of, generator=profile.streams("x"))
for label, theta, message in (
    ("of two axes", two[0], r"must have shape \(any, 3, 3\) to match the task"),
    ("of another d", torch.zeros(2, 4, 4), r"must have shape \(any, 3, 3\) to match the task"),
    ("without models", two[:0], "must hold at least one model"),
    ("NaN", two * NAN, "must hold at least one model, every entry finite"),
    ("infinite", two + INF, "must hold at least one model, every entry finite"),
):
    row("one_layer", f"theta {label}", functools.partial(side_by_side, theta), f"theta {message}")
for dtype in (torch.int64, torch.float16, torch.complex64):
    wrong = functools.partial(side_by_side, two.to(dtype))
    row("one_layer", f"theta of {dtype}", wrong, "dtype must be torch.float32 or torch.float64")
for label, lam, message in (
    ("one for two models", np.array([0.9]), r"must have shape \(2\) to match theta"),
    ("a number", 0.9, r"must have shape \(2\) to match theta"),
    ("a matrix", np.full((2, 1), 0.9), r"must have shape \(2\) to match theta"),
    ("with 0", np.array([0.9, 0.0]), "must be finite and > 0"),
    ("with NaN", np.array([0.9, NAN]), "must be finite and > 0"),
    ("text", "0.9", "must be real"),
):
    row("one_layer", f"lam {label}", functools.partial(side_by_side, two, lam=lam), f"lam {message}")
for name in ("steps", "batch"):
    integers("one_layer", functools.partial(side_by_side, two), name, least=1)
for value in (None, 0, np.random.default_rng(0)):
    wrong = functools.partial(training_of, two, generator=value)
    row("one_layer", f"generator {value!r}", wrong, "generator must be a torch.Generator")

plan = functools.partial(training.Config, **{"steps": 4, "batch": 2})
integers("Config", plan, "steps", least=1)
integers("Config", plan, "batch", least=1)
integers("Config", plan, "warm_up", least=0)
row("Config", "a warm-up without end", lambda: plan(warm_up=5), "warm_up must be at most steps = 4")
for value in (None, torch.optim.AdamW, 0.1):
    row(
        "Config",
        f"optimiser {value!r}",
        functools.partial(plan, optimiser=value),
        "optimiser must be an icl.runs.training",
    )
numbers("Config", plan, "anneal_to", outside=[-0.1, 1.1])
numbers("Config", plan, "clip", wrong={k: v for k, v in NOT_A_NUMBER.items() if k != "infinite"}, outside=[-0.1, 0.0])
row("Config", "clip infinitely many", lambda: plan(clip=np.array([INF])), "clip must be one number")
integers("deep", training.deep, "layers", least=1)
integers("Config.step_size", plan().step_size, "step", least=1)
row("Config.step_size", "past the end", lambda: plan().step_size(5), "step must be at most steps = 4")

net = torch.nn.Linear(2, 1, bias=False)
error_of = lambda model, prompt: (model(prompt.x[:, -1])[:, 0] - prompt.y[:, -1]).square().mean()  # noqa: E731
whole = {"model": net, "loss": error_of, "task": task, "config": plan()}
train = functools.partial(training.fit, **whole, generator=profile.streams("x"))
mixed = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Linear(1, 1, dtype=torch.float64))
extra = type("Extra", (torch.nn.Linear,), {"get_extra_state": lambda self: "more"})(2, 1)
for label, model_given, message in (
    ("a function", error_of, "must be a torch.nn.Module"),
    ("None", None, "must be a torch.nn.Module"),
    ("without parameters", torch.nn.Identity(), "must have parameters to train"),
    ("all frozen", torch.nn.Linear(2, 1).requires_grad_(False), "must have parameters to train"),
    ("of two dtypes", mixed, "must have parameters to train, of one dtype"),
    ("with state that is no tensor", extra, "must hold its state in tensors"),
):
    row("fit", f"model {label}", functools.partial(train, model=model_given), f"model {message}")
wrong = functools.partial(train, model=torch.nn.Linear(2, 1, dtype=torch.bfloat16))
row("fit", "model of bfloat16", wrong, "dtype must be torch.float32 or torch.float64")
for name, said_of in (("loss", "a function"), ("task", "one of icl.tasks"), ("config", "an icl.runs.training.Config")):
    row("fit", f"{name} None", functools.partial(train, **{name: None}), f"{name} must be {said_of}")
for value in (None, 0, np.random.default_rng(0)):
    wrong = functools.partial(train, generator=value)
    row("fit", f"generator {value!r}", wrong, "generator must be a torch.Generator")
for label, also in (("a generator", profile.streams("x")), ("numbers", {"noise": 3})):
    row("fit", f"also {label}", functools.partial(train, also=also), "also must map names to torch.Generators")
for name in ("generator", "", 3):
    wrong = functools.partial(train, also={name: profile.streams("x")})
    row("fit", f"also {name!r}", wrong, "also must name its streams, and none 'generator'")
numbers("fit", train, "floor", wrong={k: v for k, v in NOT_A_NUMBER.items() if k != "None"}, outside=[0.0, -1.0])
for value in ("a/path", Path("no such folder/file")):
    row("fit", f"checkpoint {value!r}", functools.partial(train, checkpoint=value), "checkpoint must be a pathlib.Path")
integers("fit", train, "every", least=1)
for label, returned in (
    ("a number", lambda model, prompt: 1.0),
    ("a matrix", lambda model, prompt: model.weight),
    ("nothing", lambda model, prompt: model.weight[0, :0]),
    ("a constant", lambda model, prompt: torch.tensor(1.0)),
):
    row("fit", f"loss returns {label}", functools.partial(train, loss=returned), "loss must return a scalar")
lengths = iter([2, 1])
wrong = functools.partial(train, loss=lambda model, prompt: model.weight[0, : next(lengths)])
row("fit", "loss changes its shape", wrong, "loss must return the shape of its steps before")

row("write", "notes with NaN", lambda: checkpoint.write(Path("x"), {}, {"a": NAN}), "notes must be what JSON can hold")
row(
    "write",
    "notes with arrays",
    lambda: checkpoint.write(Path("x"), {}, {"a": two}),
    "notes must be what JSON can hold",
)
row("described", "an object", lambda: checkpoint.described(object()), "value must be numbers, text, arrays")
row("described", "a set", lambda: checkpoint.described({"a": {1}}), "value must be numbers, text, arrays")

form = {"lam": 0.5, "gamma": 0.9, "n": 3, "sigma_w": 1.0, "sigma_e": 0.1}
for name, function in (("D1", adaptation.D1), ("D2", adaptation.D2), ("D3", adaptation.D3)):
    numbers(name, functools.partial(function, **form), "lam", outside=[0.0, -0.5])
for name, function in (("D1", adaptation.D1), ("D2", adaptation.D2), ("D3", adaptation.D3), ("D4", adaptation.D4)):
    known = {key: value for key, value in form.items() if name != "D4" or key != "lam"}
    numbers(name, functools.partial(function, **known), "gamma", outside=[-0.5, 0.0, 1.0])
    numbers(name, functools.partial(function, **known), "sigma_w", outside=[-1.0])
    numbers(name, functools.partial(function, **known), "sigma_e", outside=[-1.0])
    integers(name, functools.partial(function, **known), "n", least=1)
    if name != "D4":
        row(
            name,
            "lam gamma = 1",
            functools.partial(function, **form | {"gamma": 2.0}),
            r"lam \* gamma must differ from 1",
        )
for name, function in (("D2", adaptation.D2), ("D3", adaptation.D3)):
    row(name, "no such erratum", functools.partial(function, **form, mend={9}), "mend must hold numbers of errata", "9")

example = {"X": np.eye(2, 3), "x": np.ones(2), "w": np.ones(2), "A": np.zeros((1, 2, 2)), "Gamma": np.eye(1)}
shown = functools.partial(memory.Problem, **example)
for name, value in example.items():
    row("Problem", f"{name} NaN", functools.partial(shown, **{name: value * NAN}), f"{name} must be finite", "nan")
    if name != "X":
        unlike = functools.partial(shown, **{name: value[None]})
        row("Problem", f"{name} of another shape", unlike, rf"{name} must have shape \(.*\) to match X and A")
for label, X in (("too few", np.ones((2, 2))), ("no rows", np.ones((0, 3)))):
    row("Problem", f"X {label}", functools.partial(shown, X=X), r"X must have shape \(d, n\) with 0 < d < n")
row("Problem", "X a vector", functools.partial(shown, X=np.ones(3)), r"X must have shape \(any, any\)")
for layers in (0, 4):
    deep_one = functools.partial(shown, A=np.zeros((layers, 2, 2)), Gamma=np.eye(layers))
    row("Problem", f"{layers} layers", deep_one, "A must have from 1 to n = 3 layers", str(layers))
dark = memory.Tokens(*3 * (np.zeros((2, 3, 4)),))
judged = functools.partial(memory.deviation, problem=shown(), tokens=dark, mended=True)
for number in (0, 99, True, "1", None):
    row("deviation", f"number {number!r}", functools.partial(judged, number), "number must be one of the errata", "")
row("deviation", "tokens of nothing", functools.partial(judged, 2), "tokens must show the squared error at the query")
for name in vars(dark):
    for label, states, message in (
        ("NaN", dark.plain * NAN, "must be finite"),
        ("of other layers", dark.plain[:1], r"must have shape \(2, 3, 4\) to match problem"),
    ):
        mixed = vars(dark) | {name: states}
        row(
            "deviation",
            f"{name} {label}",
            lambda mixed=mixed: judged(2, tokens=memory.Tokens(**mixed)),
            f"{name} {message}",
        )

q, v, one = torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 4, 6), torch.ones(1, 1, 1)
for name in ("recurrent", "parallel", "chunked"):
    function = getattr(operators, name)
    for wrong, arguments, message in (
        ("q of three axes", (q[0], q[0], v[0], one), r"q must have shape \(any, any, any, any\)"),
        ("k of another size", (q, q[..., 1:], v, one), r"k must have shape \(2, 3, 4, 5\) to match q"),
        ("v of another time", (q, q, v[:, 1:], one), r"v must have shape \(2, 3, 4, any\) to match q"),
        ("no time", (q[:, :0], q[:, :0], v[:, :0], one), "q must hold at least one position in time"),
        ("dtypes mixed", (q, q, v.double(), one), "q, k, v and decay must share a dtype"),
        ("decay of another dtype", (q, q, v, one.double()), "q, k, v and decay must share a dtype"),
        ("decay of two axes", (q, q, v, one[0]), r"decay must broadcast to \(batch, time, heads\) = \(2, 3, 4\)"),
        ("decay of another size", (q, q, v, torch.ones(1, 2, 1)), r"decay must broadcast to \(batch, time, heads\)"),
        ("decay negative", (q, q, v, -one), r"decay must lie in \[0, 1\]"),
        ("decay above 1", (q, q, v, one + 1e-6), r"decay must lie in \[0, 1\]"),
        ("decay NaN", (q, q, v, one * NAN), r"decay must lie in \[0, 1\]"),
    ):
        row(name, wrong, functools.partial(function, *arguments), message)
integers("chunked", functools.partial(operators.chunked, q, q, v, one), "size", least=1)

Z, W, G = torch.zeros(2, 4, 3), torch.zeros(3, 3), torch.zeros(2, 3, 3)
for lam in (-0.1, NAN, INF, torch.tensor([0.5, 0.5])):
    row(
        "decay_weights",
        f"lam {lam}",
        lambda lam=lam: model.decay_weights(lam, 3, like=Z),
        "lam must be one finite number",
    )
    row("gram", f"lam {lam}", lambda lam=lam: model.gram(Z, lam), "lam must be one finite number >= 0")
for lam in (-0.1, NAN, INF, 1.1, torch.tensor([0.5, 0.5])):
    row("predict", f"lam {lam}", lambda lam=lam: model.predict(Z, W, W, lam), r"lam must be one number in \[0, 1\]")
integers("decay_weights", lambda count: model.decay_weights(0.5, count, like=Z), "count", least=1)
row("gram", "Z of two axes", lambda: model.gram(W, 0.5), r"Z must have shape \(any, any, any\)")
row("predict", "Z of two axes", lambda: model.predict(W, W, W, 0.5), r"Z must have shape \(any, any, any\)")
row(
    "predict_from_gram",
    "G of two axes",
    lambda: model.predict_from_gram(W, W, W, W),
    r"G must have shape \(any, any, any\)",
)
query = torch.zeros(2, 2)
for name, call in (
    ("predict", lambda W_V=W, W_KQ=W: model.predict(Z, W_V, W_KQ, 0.5)),
    ("predict_from_gram", lambda W_V=W, W_KQ=W: model.predict_from_gram(G, W_V, W_KQ, query)),
):
    for weights in ("W_V", "W_KQ"):
        shape = rf"{weights} must have shape \(3, 3\) to match the tokens"
        row(name, f"{weights} of another size", functools.partial(call, **{weights: W[1:]}), shape)
        dtype = f"{weights} must have dtype torch.float32 to match the tokens"
        row(name, f"{weights} of another dtype", functools.partial(call, **{weights: W.double()}), dtype)
row(
    "predict_from_gram",
    "query of another size",
    lambda: model.predict_from_gram(G, W, W, query[:, 1:]),
    r"x_query must have shape \(2, 2\) to match the tokens",
)
row(
    "predict_from_gram",
    "query of another dtype",
    lambda: model.predict_from_gram(G, W, W, query.double()),
    "x_query must have dtype torch.float32 to match the tokens",
)
numbers("features", functools.partial(model.features, Prompt(x, y, x)), "lam", wrong=NOT_REAL, outside=[-0.1])

layer = functools.partial(model.OneLayerGLA, **{"d": 2, "lam": 0.9, "scale": 0.1})
seeded = functools.partial(layer, generator=profile.streams("x"))
integers("OneLayerGLA", seeded, "d", least=1)
numbers("OneLayerGLA", seeded, "lam", outside=[-0.1, 0.0, 1.1])
numbers("OneLayerGLA", seeded, "scale", outside=[-0.1])
draws("OneLayerGLA", layer)
trained = seeded()
for name in ("W_V", "W_KQ"):
    put = functools.partial(trained.set_weights, **{"W_V": np.eye(3), "W_KQ": np.eye(3)})
    row(
        "set_weights",
        f"{name} of another size",
        functools.partial(put, **{name: np.eye(2)}),
        rf"{name} must have shape \(3, 3\)",
    )
    row("set_weights", f"{name} NaN", functools.partial(put, **{name: np.full((3, 3), NAN)}), f"{name} must be finite")
other = drift().sample(2, generator=profile.streams("x"), dtype=torch.float64)
row("OneLayerGLA", "a prompt of another dtype", lambda: trained(other), "W_V must have dtype torch.float64 to match")
row("OneLayerGLA", "a prompt of another d", lambda: trained(Prompt(x, y, x)), r"W_V must have shape \(4, 4\) to match")

sizes_of_layers = {"d": 2, "layers": 3}
full = functools.partial(
    two_streams.FullStack,
    **sizes_of_layers | {"reading": two_streams.BEST, "scale": 0.1, "generator": profile.streams("x")},
)
for where, make in (
    ("Stack", functools.partial(Stack, **sizes_of_layers)),
    ("GatedStack", functools.partial(GatedStack, **sizes_of_layers)),
    ("DeltaStack", functools.partial(DeltaStack, **sizes_of_layers)),
    ("GatedDeltaStack", functools.partial(GatedDeltaStack, **sizes_of_layers)),
    ("FullStack", full),
):
    integers(where, make, "d", least=1)
    integers(where, make, "layers", least=1)
    outside = [-0.1, 0.0, 1.0, 1.1]
    numbers(where, make, "lam", wrong={k: v for k, v in NOT_REAL.items() if k != "None"}, outside=outside)
    for value in ([0.5, 0.6], [], [0.5, 0.6, 1.0], [0.5, 0.6, 0.0], [0.5, NAN, 0.6]):
        row(where, f"lam {value}", functools.partial(make, lam=value), "lam must be ")
    for value in (torch.float16, torch.int64, None):
        row(where, f"dtype {value}", functools.partial(make, dtype=value), "dtype must be torch.float32 or torch.float")
numbers("factors", lambda lam: factors(3, lam, torch.float32), "lam", wrong={"NaN": NAN}, outside=[0.0, 1.0])
for value in (0, 3, 1.0, "d", None, True):
    several = functools.partial(GatedStack, **sizes_of_layers, channels=value)
    row("GatedStack", f"channels {value!r}", several, "channels must be ", "got " + re.escape(repr(value)))
numbers("FullStack", full, "scale", outside=[-0.1])
draws("FullStack", full)
row("FullStack", "no reading", functools.partial(full, reading="literal"), "reading must be a Reading")
for name, value in (("sign", 0), ("sign", 2), ("sign", "-"), ("residual", 1), ("strict", None)):
    reading = functools.partial(two_streams.Reading, **{"residual": True, "strict": True, "sign": 1} | {name: value})
    row("Reading", f"{name} {value!r}", reading, f"{name} must be ", re.escape(f"got {value!r}"))
for value in (None, trained, Stack):
    row("Normalised", f"model {value!r}", functools.partial(Normalised, value), "model must be a Causal")

layer_of_one = {"lam": 0.9, "mu": 0.1}
open_gate = fast_weights.LinearGate(2)
LAYERS = {
    "LinearAttention": {"mu": 0.1},
    "GLA": layer_of_one,
    "Mamba2": {"gate": open_gate, "A": 1.0, "Delta": 0.1, "mu": 1.0},
    "GatedGLA": {"forget": open_gate, "write": open_gate, **layer_of_one},
    "DeltaRule": layer_of_one,
    "GatedDelta": {"forget": open_gate, "write": open_gate, "lam": 0.9, "beta": 0.5},
    "Longhorn": {"lam": 0.9, "eps": 0.1},
    "Mesa": {"lam": 0.9, "eps": 0.1},
    "Kalman": {"gamma": 0.9, "sigma_e": 0.1, "sigma_y": 0.1, "P_0": 1.0},
}
for where, given in LAYERS.items():
    make = functools.partial(getattr(fast_weights, where), 2, **given)
    integers(where, lambda d, where=where, given=given: getattr(fast_weights, where)(d, **given), "d", least=1)
    for name, value in given.items():
        if isinstance(value, fast_weights.Gate):
            for wrong in (None, 0.1, torch.nn.Identity(), fast_weights.LinearGate):
                row(where, f"{name} {wrong!r}", functools.partial(make, **{name: wrong}), f"{name} must be a Gate")
            unfit = functools.partial(make, **{name: fast_weights.LengthGate(3)})
            row(where, f"{name} of another d", unfit, f"{name} must be for inputs of dimension 2", "got one for 3")
            continue
        below = {"lam": [1.0, 1.1], "beta": [2.0]}.get(name, [])
        numbers(where, make, name, wrong=NOT_REAL, outside=[-0.1, 0.0, *below])
        shapes = [[0.5] * 3, [[0.5, 0.6]], []] + [[0.5, 0.6]] * (where not in ("GLA", "DeltaRule"))
        for wrong in shapes:
            row(where, f"{name} {wrong}", functools.partial(make, **{name: wrong}), f"{name} must be one number")
    for value in (torch.float16, torch.int64, None):
        row(where, f"dtype {value}", functools.partial(make, dtype=value), "dtype must be torch.float32 or torch.float")
retnet = functools.partial(fast_weights.RetNet, 2, lam=[0.9, 0.8], mu=0.1)
integers("RetNet", lambda d: fast_weights.RetNet(d, lam=[0.9], mu=0.1), "d", least=1)
integers("retention", fast_weights.retention, "heads", least=1)
numbers("RetNet", retnet, "mu")
for value in (0.9, [], [[0.9]], [0.9, 1.0], [0.9, 0.0], [0.9, NAN], None, "0.9"):
    row("RetNet", f"lam {value!r}", functools.partial(retnet, lam=value), "lam must ")
row("RetNet", "dtype float16", functools.partial(retnet, dtype=torch.float16), "dtype must be torch.float32 or torch")
first_order = functools.partial(estimating.LFOM, 2, c=[0.5, -0.1])
integers("LFOM", lambda d: estimating.LFOM(d, c=[0.5]), "d", least=1)
for value in (0.5, [], [[0.5]], np.ones((2, 1)), [0.5, NAN], [INF], None, [None], "0.5", ["a"], [1j]):
    row("LFOM", f"c {value!r}", functools.partial(first_order, c=value), "c must ")
for value in (torch.float16, torch.int64, None):
    row("LFOM", f"dtype {value}", functools.partial(first_order, dtype=value), "dtype must be torch.float32 or torch.f")
deep, deep_delta = Stack(3, 2), DeltaStack(3, 2)
for value in (None, Stack, fast_weights.GLA(3, **layer_of_one), GatedStack(3, 2), deep_delta, LayeredGLA(deep)):
    row("LayeredGLA", f"model {value!r}", functools.partial(LayeredGLA, value), "model must be a Stack or a Normalised")
for value in (deep_delta, Normalised(deep), GatedStack(3, 2)):
    inside = functools.partial(LayeredGLA, Normalised(value))
    row("LayeredGLA", f"model Normalised {value!r}", inside, "model must be a Stack or a Normalised one")
for value in (None, DeltaStack, estimating.DeltaRule(3, **layer_of_one), deep, Normalised(deep_delta)):
    row("LayeredDelta", f"model {value!r}", functools.partial(LayeredDelta, value), "model must be a DeltaStack")


def s6_of(d, **changes):
    """A selective S6 layer for inputs of dimension d, in float32."""
    parts = {name: mamba.Selective(d + 1, 4, dtype=torch.float32) for name in "BC"}
    return mamba.S6(
        **{**parts, "step": mamba.Step(d + 1, 0.1, dtype=torch.float32), "A": -torch.ones(1), **changes},
    )


for value in (None, mamba.S6, mamba.S6Stack([s6_of(3)], 4), torch.nn.Linear(4, 4), Selected(s6_of(3))):
    row("Selected", f"layer {value!r}", functools.partial(Selected, value), "layer must be an icl.models.s6.S6")
for name in "BC":
    unselective = s6_of(3, **{name: mamba.Static(4, dtype=torch.float32)})
    row("Selected", f"static {name}", functools.partial(Selected, unselective), "layer must have Selective B and C")
several_rates = s6_of(3, A=-torch.ones(4))
row("Selected", "several rates", functools.partial(Selected, several_rates), "layer must have one rate", "got 4")

for gate in ("LinearGate", "LengthGate"):
    integers(gate, getattr(fast_weights, gate), "d", least=1)
    half = functools.partial(getattr(fast_weights, gate), 2, dtype=torch.float16)
    row(gate, "dtype float16", half, "dtype must be torch.float32 or torch.float64")
for value in (None, trained, fast_weights.GLA, Stack(3, 2)):
    row("UnitKeys", f"layer {value!r}", functools.partial(estimating.UnitKeys, value), "layer must be one of icl.")
    row("cost", f"layer {value!r}", functools.partial(counting.cost, value), "layer must be one of icl.models.fast")
for where, asked in (
    ("GLA", fast_weights.GLA(3, **layer_of_one)),
    ("UnitKeys", estimating.UnitKeys(estimating.Mesa(3, lam=0.9, eps=0.1))),
    ("LFOM", estimating.LFOM(3, c=[0.5, -0.1])),
    ("LayeredGLA", LayeredGLA(deep)),
    ("LayeredDelta", LayeredDelta(deep_delta)),
    ("Selected", Selected(s6_of(3))),
):
    kind = "state must be a (Weights|Sums|Counted|Memories|Hidden), as start and step return it"
    integers(f"{where}.start", asked.start, "batch", least=1)
    begun, one_x, one_y = asked.start(2), x[:, 0], y[:, 0]
    foreign = fast_weights.Heads(torch.zeros(2, 1, 3))
    for label, arguments, message in (
        ("x of three axes", (begun, x, one_y), r"x must have shape \(any, 3\) to match the layer"),
        ("x of another d", (begun, one_x[:, 1:], one_y), r"x must have shape \(any, 3\) to match the layer"),
        ("x of another dtype", (begun, one_x.double(), one_y), "x must have dtype torch.float32 to match the layer"),
        ("y of another batch", (begun, one_x, one_y[:1]), r"y must have shape \(2\) to match x"),
        ("y of another dtype", (begun, one_x, one_y.double()), "y must have dtype torch.float32 to match x"),
        ("another layer's state", (foreign, one_x, one_y), kind),
        ("no state", (None, one_x, one_y), kind),
        (
            "a state of other prompts",
            (asked.start(1), one_x, one_y),
            "state.(w_hat|G|labels|h) must have shape .* to match the layer and x",
        ),
    ):
        row(f"{where}.step", label, functools.partial(asked.step, *arguments), message)
        if not label.startswith("y"):
            row(f"{where}.read", label, functools.partial(asked.read, *arguments[:2]), message)
deeper = LayeredGLA(Stack(3, 4)).start(2)
for where, asked in (("LayeredGLA", LayeredGLA(deep)), ("LayeredDelta", LayeredDelta(deep_delta))):
    for name, call in (
        ("step", lambda f=asked.step: f(deeper, one_x, one_y)),
        ("read", lambda f=asked.read: f(deeper, one_x)),
    ):
        row(f"{where}.{name}", "a state of more layers", call, r"state.labels must have shape \(2, 2, 3\) to match")

for where, made in (
    ("Stack", Stack(3, 2)),
    ("GatedStack", GatedStack(3, 2)),
    ("DeltaStack", DeltaStack(3, 2)),
    ("GatedDeltaStack", GatedDeltaStack(3, 2)),
    ("FullStack", full(d=3)),
    ("Normalised", Normalised(Stack(3, 2))),
    ("FastWeights", fast_weights.GLA(3, **layer_of_one)),
    ("LFOM", estimating.LFOM(3, c=[0.5, -0.1])),
    ("LayeredGLA", LayeredGLA(deep)),
    ("LayeredGLA, normalised", LayeredGLA(Normalised(deep))),
    ("LayeredDelta", LayeredDelta(deep_delta)),
    ("Selected", Selected(s6_of(3))),
):
    for label, of_x, of_y, message in (
        ("x of two axes", x[0], y[0], r"x must have shape \(any, any, 3\) to match the model"),
        ("x of another d", x[..., 1:], y, r"x must have shape \(any, any, 3\) to match the model"),
        ("y too short", x, y[:, 1:], r"y must have shape \(2, 4\) to match x"),
        ("y of another dtype", x, y.double(), "y must have dtype torch.float32 to match x"),
        ("another dtype", x.double(), y.double(), "x must have dtype torch.float32 to match the model"),
        ("no position", x[:, :0], y[:, :0], "x must hold at least one position in time"),
    ):
        row(f"{where}.errors", label, functools.partial(made.errors, of_x, of_y), message)
    row(f"{where}()", "another dtype", functools.partial(made, Prompt(x.double(), y.double(), x.double())), "x must")
    row(f"{where}()", "another d", functools.partial(made, Prompt(x[..., 1:], y, x[..., 1:])), "x must have shape")
    integers(f"{where}.loss", functools.partial(made.loss, Prompt(x, y, x)), "since", least=0)
    row(
        f"{where}.loss",
        "since beyond n",
        lambda f=made.loss: f(Prompt(x, y, x), since=4),
        "since must be at most n = 3",
    )

merged = torch.zeros(2, 4, 4)
read_off = functools.partial(
    two_streams.predictions,
    **{"x": x, "y": y, "W_V": merged, "W_KQ": merged, "lam": torch.full((2,), 0.5), "reading": two_streams.BEST},
)
for label, arguments, message in (
    ("x of two axes", {"x": x[0]}, r"x must have shape \(any, any, any\)"),
    ("y too short", {"y": y[:, 1:]}, r"y must have shape \(2, 4\) to match x"),
    ("W_V of another size", {"W_V": merged[:, 1:, 1:]}, r"W_V must have shape \(any, 4, 4\) to match the tokens"),
    ("W_KQ of fewer layers", {"W_KQ": merged[1:]}, r"W_KQ must have shape \(2, 4, 4\) to match W_V"),
    ("one lam too few", {"lam": torch.ones(1)}, r"lam must have shape \(2\) to match W_V"),
    ("lam above 1", {"lam": torch.tensor([0.5, 1.1])}, "lam must be finite and >= 0 and <= 1"),
    ("lam NaN", {"lam": torch.tensor([0.5, NAN])}, "lam must be finite and >= 0 and <= 1"),
    ("y of another dtype", {"y": y.double()}, "y must have dtype torch.float32 to match x"),
    ("W_V of another dtype", {"W_V": merged.double()}, "W_V must have dtype torch.float32 to match x"),
    ("lam of another dtype", {"lam": torch.ones(2).double()}, "lam must have dtype torch.float32 to match x"),
):
    row("streams.predictions", label, functools.partial(read_off, **arguments), message)

asked_for, gate = torch.zeros(2, 4, 1, 3), torch.ones(1, 1, 1)
for form in (operators.delta_recurrent, operators.delta_chunked, read_strictly):
    where = f"{form.__module__.split('.')[-1]}.{form.__name__}"
    good = {"q": asked_for, "k": asked_for, "v": asked_for, "decay": gate} | (
        {"beta": gate} if form is not read_strictly else {}
    )
    wrong = [
        ("q of three axes", {"q": asked_for[0]}, r"q must have shape \(any, any, any, any\)"),
        ("k of another key", {"k": asked_for[..., 1:]}, r"k must have shape \(2, 4, 1, 3\) to match q"),
        ("v of another time", {"v": asked_for[:, 1:]}, r"v must have shape \(2, 4, 1, any\) to match q"),
        (
            "no position",
            {"q": asked_for[:, :0], "k": asked_for[:, :0], "v": asked_for[:, :0]},
            "q must hold at least one position in time",
        ),
        ("another dtype", {"v": asked_for.double()}, "(q, k, v and decay must share a|v must have) dtype"),
    ]
    for name, gates in (("decay", [-0.1, 1.1, NAN]), ("beta", [-0.1, NAN, INF])):
        if name in good:
            wrong += [(f"{name} {at}", {name: gate * at}, rf"{name} must lie in \[0, ") for at in gates]
            wrong += [
                (f"{name} of two axes", {name: gate[0]}, f"{name} must broadcast to"),
                (f"{name} of another time", {name: torch.ones(1, 3, 1)}, f"{name} must broadcast to"),
            ]
    for label, arguments, message in wrong:
        row(where, label, functools.partial(form, **good | arguments), message)
integers(
    "delta.chunked",
    functools.partial(operators.delta_chunked, asked_for, asked_for, asked_for, gate, gate),
    "size",
    least=1,
)

window = functools.partial(model.window_features, Prompt(x, y, x), **{"lam": 0.9, "count": 2})
numbers("window_features", window, "lam", outside=[-0.1, 0.0, 1.0, 1.1])
integers("window_features", window, "count", least=1)

g, drawn = torch.zeros(3, 2, 2), torch.zeros(2, 2)
from_features = functools.partial(model.predict_from_features, **{"g": g, "A": np.eye(2), "x_query": drawn})
for label, arguments, message in (
    ("query of another batch", {"x_query": drawn[1:]}, r"x_query must have shape \(2, 2\) to match g"),
    ("query of another d", {"x_query": drawn[:, 1:]}, r"x_query must have shape \(2, 2\) to match g"),
    ("query of another dtype", {"x_query": drawn.double()}, "x_query must have dtype torch.float32 to match g"),
    ("A of another size", {"A": np.eye(3)}, r"A must have shape \(2, 2\) to match g"),
    ("A of one axis", {"A": torch.ones(2)}, r"A must have shape \(2, 2\) to match g"),
):
    row("predict_from_features", label, functools.partial(from_features, **arguments), message)

for where, make, name, outside in (
    ("lms", filters.lms, "mu", [-0.1, 0.0]),
    ("nlms", filters.nlms, "mu", [-0.1, 0.0]),
    ("delta_rule", functools.partial(filters.delta_rule, lam=0.9), "mu", [-0.1, 0.0]),
    ("delta_rule", functools.partial(filters.delta_rule, 0.1), "lam", [-0.1, 0.0]),
    ("normalised_delta_rule", functools.partial(filters.normalised_delta_rule, lam=0.9), "mu", [-0.1, 0.0]),
    ("normalised_delta_rule", functools.partial(filters.normalised_delta_rule, 0.1), "lam", [-0.1, 0.0]),
    ("apa", functools.partial(filters.apa, K=2), "mu", [-0.1, 0.0]),
    ("rls", filters.rls, "lam", [-0.1, 0.0, 1.1]),
    ("faded_ridge", functools.partial(filters.faded_ridge, eps=0.1), "lam", [-0.1, 0.0, 1.1]),
    ("faded_ridge", functools.partial(filters.faded_ridge, 0.9), "eps", [-0.1, 0.0]),
):
    numbers(where, make, name, wrong=NOT_REAL | {"true": True}, outside=outside)
    for entry in (NAN, *outside):
        several = functools.partial(make, **{name: torch.tensor([[0.5], [entry]], dtype=torch.float64)})
        row(where, f"{name} with an entry {entry}", several, f"{name} must be finite and > 0", re.escape(f"({entry})"))
    for shape in ((2,), (3, 2), (1, 2)):
        a_trial = functools.partial(make, **{name: torch.full(shape, 0.5)})
        row(
            where,
            f"{name}, one a trial {shape}",
            a_trial,
            rf"{name} must be one number or have shape \(\*settings, 1\)",
        )
for where, make, least in (
    ("nlms", functools.partial(filters.nlms, 0.5), []),
    ("normalised_delta_rule", functools.partial(filters.normalised_delta_rule, 0.5, lam=0.9), []),
    ("apa", functools.partial(filters.apa, 0.5, K=2), [0.0]),
    ("window", functools.partial(filters.window, 2), [0.0]),
    ("rls", functools.partial(filters.rls, 0.9), [0.0]),
    ("ridge", filters.ridge, [0.0]),
):
    numbers(where, make, "eps", outside=[-0.1, *least])
integers("apa", functools.partial(filters.apa, 0.5), "K", least=1)
integers("window", filters.window, "K", least=1)
optimal = functools.partial(filters.kalman, task)
numbers("kalman", optimal, "sigma_y", outside=[-0.1])
numbers("kalman", optimal, "P_0", wrong={k: v for k, v in NOT_REAL.items() if k != "None"}, outside=[-0.1])
covariances("kalman", optimal, "P_0")
for label, wrong, message in (
    ("a random walk", drift(gamma=1.0), "gamma must be < 1 and sigma_e > 0 for a steady state"),
    ("growing weights", drift(gamma=1.1), "gamma must be < 1 and sigma_e > 0 for a steady state"),
    ("weights that settle at 0", drift(sigma_e=0.0), "gamma must be < 1 and sigma_e > 0 for a steady state"),
):
    row("steady_kalman", label, functools.partial(filters.steady_kalman, wrong), message)
for label, Lambda in (("a direction without inputs", np.diag([2.0, 0.0])), ("no inputs at all", np.zeros((2, 2)))):
    wrong = functools.partial(filters.steady_kalman, drift(Lambda=Lambda))
    row("steady_kalman", label, wrong, "Lambda must be positive definite for a steady state", "")
attention = functools.partial(filters.gla, **{"A": np.eye(2), "lam": 0.9})
numbers("filters.gla", attention, "lam", outside=[-0.1, 0.0])
for label, A, message in (
    ("not square", np.ones((3, 2)), r"must have shape \(3, 3\)"),
    ("of one axis", np.ones(3), r"must have shape \(3, 3\)"),
    ("of no axis", 1.0, r"must have shape \(1, 1\)"),
    ("of three axes", np.ones((2, 2, 2)), r"must have shape \(2, 2\)"),
    ("NaN", np.full((2, 2), NAN), "must be finite"),
    ("infinite", [[INF, 0.0], [0.0, 1.0]], "must be finite"),
    ("complex", np.eye(2) * 1j, "must be real"),
    ("text", "identity", "must be real"),
    ("None", None, "must be real"),
):
    row("filters.gla", f"A {label}", functools.partial(attention, A=A), f"A {message}")
for function in (filters.run_filter, filters.track):
    for name, filter in (("LMS", filters.lms(0.1)), ("RLS", filters.rls(0.9)), ("window", filters.window(2))):
        inputs, labels, where = x.double(), y.double(), f"{function.__name__} {name}"
        for label, of_x, of_y, message in (
            ("y too short", inputs, labels[:, 1:], r"y must have shape \(2, 4\) to match x"),
            ("y with an axis more", inputs, labels[None], r"y must have shape \(2, 4\) to match x"),
            ("y of another batch", inputs, labels[:1], r"y must have shape \(2, 4\) to match x"),
            ("y of another dtype", inputs, y, "y must have dtype torch.float64 to match x"),
            ("x of integers", inputs.long(), labels.long(), "x must have a floating dtype, got torch.int64"),
            ("x complex", inputs + 0j, labels + 0j, "x must have a floating dtype, got torch.complex128"),
            (
                "x of one axis",
                inputs[0, 0],
                labels[0, 0],
                r"x must have shape \(\*trials, time, d\) with none of them 0",
            ),
            (
                "no position",
                inputs[:, :0],
                labels[:, :0],
                r"x must have shape \(\*trials, time, d\) with none of them 0",
            ),
            ("no trial", inputs[:0], labels[:0], r"x must have shape \(\*trials, time, d\) with none of them 0"),
            ("no dimension", inputs[..., :0], labels, r"x must have shape \(\*trials, time, d\) with none of them 0"),
            ("x NaN", inputs + NAN, labels, "x must be finite, got nan"),
            ("x infinite", inputs + INF, labels, "x must be finite, got inf"),
            ("y infinite", inputs, labels - INF, "y must be finite, got -inf"),
            ("y NaN", inputs, labels + NAN, "y must be finite, got nan"),
        ):
            row(where, label, functools.partial(function, filter, of_x, of_y), message, "")
        begun = functools.partial(function, filter, inputs, labels)
        start = torch.zeros(3, dtype=torch.float64)
        for label, w_0, message in (
            ("of another d", start[1:], r"w_0 must broadcast to \(2, 3\), got \(2,\)"),
            ("of no axis", start[0], r"w_0 must broadcast to \(2, 3\), got \(\)"),
            ("one a position", inputs, r"w_0 must broadcast to \(2, 3\), got \(2, 4, 3\)"),
            ("of another batch", torch.zeros(5, 3).double(), r"w_0 must broadcast to \(2, 3\), got \(5, 3\)"),
            ("of another dtype", start.float(), "w_0 must have dtype torch.float64 to match x"),
            ("NaN", start + NAN, "w_0 must be finite, got nan"),
            ("infinite", start - INF, "w_0 must be finite, got -inf"),
        ):
            row(where, f"w_0 {label}", functools.partial(begun, w_0=w_0), message, "")
for where, filter in (
    ("kalman", filters.kalman(task)),
    ("steady_kalman", filters.steady_kalman(task)),
    ("filters.gla", filters.gla(np.eye(2), lam=0.9)),
):
    why = r"x must have shape \(2, any, any\) as \(d, \*trials\)"
    row(where, "run on inputs of another d", functools.partial(filters.run_filter, filter, x, y), why[:26])

tries = torch.tensor([[0.1], [0.2], [0.3]])
for function in (filters.run_filter, filters.track):
    for shape in ((2, 2, 4, 3), (4, 2, 2, 4, 3)):
        unfit = functools.partial(function, filters.lms(tries), torch.zeros(shape), torch.zeros(shape[:-1]))
        message = rf"x must broadcast against the filter's settings \(3,\), got {re.escape(str(shape))}"
        row(function.__name__, f"x of shape {shape} for three settings", unfit, message, "")
for where, make in (("delta_rule", filters.delta_rule), ("normalised_delta_rule", filters.normalised_delta_rule)):
    unfit = functools.partial(make, tries, lam=tries[:2])
    row(where, "lam for two, mu for three", unfit, r"lam and mu must broadcast .* got \(2, 1\) and \(3, 1\)", "")

for function in (exact.errors, exact.steady_error):
    where = f"theory.filters.{function.__name__}"
    numbers(where, functools.partial(function, task), "mu", wrong=NOT_REAL, outside=[-0.1])
    numbers(where, functools.partial(function, task, 0.1), "lam", wrong=NOT_REAL, outside=[-0.1, 0.0])
    row(where, "mu with a bad entry", functools.partial(function, task, [0.5, NAN]), "mu must be finite", "nan")
    unlike = functools.partial(function, tilted, 0.1, normalised=True)
    row(where, "normalised for unequal directions", unlike, "Lambda must be a multiple of the identity")
    dark = functools.partial(function, drift(Lambda=np.zeros((2, 2))), 0.1, normalised=True)
    row(where, "normalised without inputs", dark, "Lambda must be a multiple of the identity")
for where, function in (
    ("theory.filters.errors", functools.partial(exact.errors, mu=0.1)),
    ("theory.filters.steady_error", functools.partial(exact.steady_error, mu=0.1)),
    ("theory.filters.best_steady", exact.best_steady),
    ("kalman", filters.kalman),
    ("steady_kalman", filters.steady_kalman),
):
    row(where, "weights that do not drift", functools.partial(function, skewed), "task must be a DriftingRegression")
for function in (exact.errors, exact.steady_error):
    unfit = functools.partial(function, task, np.ones(2), lam=np.ones(3))
    where = f"theory.filters.{function.__name__}"
    row(where, "two mu, three lam", unfit, r"mu and lam must broadcast .* got \(2,\), \(3,\)", "")
for gamma in (1.0, 1.1):
    for where, settled in (
        ("steady_error", functools.partial(exact.steady_error, mu=0.1)),
        ("best", exact.best_steady),
    ):
        growing = functools.partial(settled, drift(gamma=gamma))
        row(f"theory.filters.{where}", f"gamma {gamma}", growing, "gamma must be < 1", str(gamma))
row("best_steady", "unequal directions", lambda: exact.best_steady(tilted), "Lambda must be the identity", "")
row("best_steady", "another scale", lambda: exact.best_steady(drift(Lambda=2 * np.eye(2))), "Lambda must be the id", "")

integers("wishart_moments", functools.partial(polynomial_floor.wishart_moments, **sizes, degree=2), "d", least=1)
integers("wishart_moments", functools.partial(polynomial_floor.wishart_moments, **sizes, degree=2), "n", least=1)
integers("wishart_moments", functools.partial(polynomial_floor.wishart_moments, **sizes), "degree", least=0)
integers("one_layer", functools.partial(polynomial_floor.best_single_step, n=3), "d", least=1)
integers("one_layer", functools.partial(polynomial_floor.best_single_step, d=2), "n", least=1)
for function in (
    *(
        polynomial_floor.optimal_risks,
        polynomial_floor.optimal_polynomial,
        polynomial_floor.optimal_steps,
        polynomial_floor.optimal_registers,
        polynomial_floor.shared_floor,
    ),
):
    for name in ("d", "n", "layers"):
        integers(function.__name__, functools.partial(function, **sizes | {"layers": 2}), name, least=1)
H = np.eye(2)[None].repeat(3, axis=0)
for function in (polynomial_floor.floor, polynomial_floor.fitted_registers):
    where, call = function.__name__, functools.partial(function, **{"H": H, "Sigma": None, "layers": 2})
    integers(where, call, "layers", least=1)
    covariances(where, call, "Sigma")
    flat = functools.partial(call, Sigma=np.diag([1.0, 0.0]))
    row(where, "Sigma singular", flat, "Sigma must be positive definite, its smallest eigenvalue is 0", "")
    for label, value, message in (
        ("one matrix alone", H[0], r"H must have shape \(any, any, any\)"),
        ("a number", 1.0, r"H must have shape \(any, any, any\)"),
        ("not square", H[:, :1], "H must be square"),
        ("no matrices", H[:0], "H must hold at least"),
        ("matrices of nothing", H[:, :0, :0], "H must hold at least"),
        ("NaN", H * NAN, "H must be finite"),
        ("complex", H * 1j, "H must be real"),
    ):
        row(where, f"H {label}", functools.partial(call, H=value), message)
    skew = functools.partial(call, H=H + np.array([[0, 0.1], [0, 0]]))
    row(where, "H asymmetric", skew, "H must be symmetric, its largest asymmetry is 0.1", "")
row("floor", "one prompt", lambda: polynomial_floor.floor(H[:1], None, 2), "H must hold at least 2 matrices")
for label, matrix, message in (
    ("of another d", np.eye(3), r"A must have shape \(2, 2\) to match H"),
    ("NaN", np.eye(2) * NAN, "A must be finite"),
    ("complex", np.eye(2) * 1j, "A must be real"),
):
    row("floor", f"A {label}", functools.partial(polynomial_floor.floor, H, None, 2, matrix), message)
row(
    "fitted_registers",
    "H indefinite",
    lambda: polynomial_floor.fitted_registers(-H, None, 2),
    "H must be positive semi-definite, its smallest whitened eigenvalue is -1",
    "",
)
method = {"eta": 0.1, "beta": 0.5, "layers": 2}
for function in (lfom.gradient_descent_table, lfom.momentum_table, lfom.nesterov_table):
    given = {k: v for k, v in method.items() if k != "beta" or function is not lfom.gradient_descent_table}
    call = functools.partial(function, **given)
    numbers(function.__name__, call, "eta", outside=[0.0, -0.1])
    integers(function.__name__, call, "layers", least=1)
    if "beta" in given:
        numbers(function.__name__, call, "beta", outside=[-0.1])
held = {"alpha": np.ones(2), "gamma": np.ones(2)}
for name, value, message in (
    ("alpha", 1.0, r"alpha must have shape \(any\)"),
    ("alpha", np.ones(0), "alpha must have at least one layer"),
    ("alpha", np.ones(2) * NAN, "alpha must be finite"),
    ("alpha", np.ones(2) * 1j, "alpha must be real"),
    ("gamma", 1.0, r"gamma must have shape \(2\) to match alpha"),
    ("gamma", np.ones(3), r"gamma must have shape \(2\) to match alpha"),
    ("gamma", np.ones(2) * INF, "gamma must be finite"),
    ("gamma", None, "gamma must be real"),
):
    row("registers", f"{name} {value}", functools.partial(lfom.registers, **held | {name: value}), message)
for where, call in (
    ("cumulative", lfom.cumulative),
    ("polynomials", lfom.polynomials),
    ("lfom.risks", functools.partial(lfom.table_risks, **sizes)),
):
    for label, table, message in (
        ("a row", np.ones(2), r"Gamma must have shape \(any, any\)"),
        ("a number", 1.0, r"Gamma must have shape \(any, any\)"),
        ("not square", np.zeros((3, 2)), "Gamma must be square"),
        ("of no layers", np.ones((0, 0)), "Gamma must be square, with at least one layer"),
        ("NaN", np.eye(2) * NAN, "Gamma must be finite"),
        ("complex", np.eye(2) * 1j, "Gamma must be real"),
        ("that reads ahead", np.ones((2, 2)), r"Gamma must be lower triangular .*, got 1\.0 above the diagonal"),
    ):
        row(where, f"Gamma {label}", functools.partial(call, table), message, "")
    if where != "cumulative":
        numbers(where, functools.partial(call, np.eye(2)), "a", wrong=NOT_REAL)
        for value in (np.ones(3), np.ones((2, 1))):
            several = functools.partial(call, np.eye(2), a=value)
            row(where, f"a {value.shape}", several, r"a must have shape \(2\) to have one number a layer")
for name in ("d", "n"):
    integers("lfom.risks", functools.partial(lfom.table_risks, np.eye(2), **sizes), name, least=1)

for name, call in (("risk_curve", risk_curve), ("settled_risk", functools.partial(settled_risk, last=2))):
    compared = functools.partial(call, {"zero": filters.zero()}, task)
    integers(name, functools.partial(compared, generator=profile.streams("x")), "total", least=2)
    integers(name, functools.partial(compared, total=3, generator=profile.streams("x")), "size", least=1)
    draws(name, functools.partial(compared, total=3))
    short = functools.partial(call, task=task, total=3, generator=profile.streams("x"))
    row(name, "no predictors", functools.partial(short, {}), "predictors must name at least one predictor", "got none")
    for against in ("one", 0, ""):
        none_of_them = functools.partial(short, {"zero": filters.zero(), "other": filters.zero()}, against=against)
        row(name, f"against {against!r}", none_of_them, "against must be one of zero, other", re.escape(repr(against)))
    several = functools.partial(short, {"a": filters.lms(torch.tensor([[0.1], [0.2]])), "zero": filters.zero()})
    row(
        name,
        "against many",
        functools.partial(several, against="a"),
        "against must be one thing or have the settings of",
    )
settling = functools.partial(settled_risk, {"zero": filters.zero()}, task, 3, generator=profile.streams("x"))
integers("settled_risk", settling, "last", least=1)
row(
    "settled_risk",
    "last beyond the positions",
    lambda: settling(last=5),
    "last must be at most the 4 positions",
    "got 5",
)

asked = drift().sample(2, generator=profile.streams("x"))
for label, model_of, message in (
    (
        "one number",
        lambda p: p.y.sum(),
        r"predictor must return \(\*settings, 2\) for 2 prompts, got \(\) with 1 example",
    ),
    ("too few", lambda p: p.y[1:, -1], r"predictor must return \(\*settings, 2\) for 2 prompts, got \(1,\) with 1"),
    ("a column", lambda p: p.y[:, -1:], r"predictor must return \(\*settings, 2\) for 2 prompts, got \(2, 1\) with 1"),
    ("another shape later", lambda p: p.y.T[: p.n], r"predictor must return .* got \(2, 2\) with 2 example"),
    ("NaN", lambda p: p.y[:, -1] * NAN, "predictor must return finite numbers, got some that are not with 1 example"),
    (
        "infinite, later",
        lambda p: p.y[:, -1] + (INF if p.n > 1 else 0),
        "predictor must return finite .* with 2 example",
    ),
):
    row("one_step_ahead", label, functools.partial(one_step_ahead, model_of, asked), message, "")

integers("quadratics.rotation", functools.partial(quadratics.rotation, generator=profile.streams("x")), "d", least=1)
for value in (None, 0, np.random.default_rng(0)):
    wrong = functools.partial(quadratics.rotation, 2, generator=value)
    row("quadratics.rotation", f"generator {value!r}", wrong, "generator must be a torch.Generator")
numbers(
    "quadratics.covariance",
    quadratics.covariance,
    "D",
    wrong=NOT_REAL | {"holding 0": np.array([1.0, 0.0]), "holding NaN": np.array([1.0, NAN])},
    outside=[-0.5, 0.0],
)
for label, D in (("a number", 1.0), ("empty", []), ("a matrix", np.ones((2, 2)))):
    row("quadratics.covariance", f"D {label}", functools.partial(quadratics.covariance, D), r"D must have shape \(d,\)")
for label, U, message in (
    ("of another size", np.eye(3), r"must have shape \(2, 2\) to match D"),
    ("a vector", np.ones(2), r"must have shape \(2, 2\) to match D"),
    ("not orthogonal", [[1.0, 0.1], [0.0, 1.0]], "must be orthogonal"),
    ("NaN", np.full((2, 2), NAN), "must be finite"),
    ("complex", np.eye(2) * 1j, "must be real"),
):
    row("quadratics.covariance", f"U {label}", functools.partial(quadratics.covariance, [1, 2], U), f"U {message}")
hessians_of = functools.partial(quadratics.sample_hessians, n=3, batch=2, generator=profile.streams("x"))
for where, call in (
    ("quadratics.regression", functools.partial(quadratics.regression, n=3)),
    ("sample_hessians", hessians_of),
):
    for label, Sigma, message in (
        ("None", None, r"must be a \(d, d\) covariance"),
        ("a vector", np.ones(2), r"must be a \(d, d\) covariance"),
        ("not square", np.ones((2, 3)), "must have shape"),
        ("asymmetric", [[1.0, 0.5], [0.4, 1.0]], "must be symmetric, its largest asymmetry is 0.1"),
        ("indefinite", [[1.0, 2.0], [2.0, 1.0]], "must be positive semi-definite, its smallest eigenvalue is -1"),
        ("singular", [[1.0, 1.0], [1.0, 1.0]], "must be positive definite, its smallest eigenvalue: got"),
        ("NaN", [[NAN, 0.0], [0.0, 1.0]], "must be finite, got"),
        ("complex", np.eye(2) * 1j, "must be real"),
        ("text", "identity", r"must be a \(d, d\) covariance"),
    ):
        row(where, f"Sigma {label}", functools.partial(call, Sigma), f"Sigma {message}", "")
integers("quadratics.regression", functools.partial(quadratics.regression, np.eye(2)), "n", least=1)
for name in ("n", "batch"):
    integers("sample_hessians", functools.partial(hessians_of, np.eye(2)), name, least=1)
draws("sample_hessians", functools.partial(quadratics.sample_hessians, np.eye(2), 3, 2))
row(
    "hessians",
    "not of a prompt",
    lambda: quadratics.hessians(torch.zeros(2, 4, 2)),
    "prompt must be an icl.tasks.core.Prompt",
)

recorded_rows = {"inputs": np.random.default_rng(0).standard_normal((20, 2)), "labels": np.arange(20.0), "known": 0.5}
prepared = functools.partial(prepare, **recorded_rows)
numbers("prepare", prepared, "known", outside=[-0.1, 0.0, 1.1])
for value in (0.1, 1.0):
    row(
        "prepare", f"known {value}", functools.partial(prepared, known=value), "known must leave more rows than columns"
    )
for name, size in (("inputs", (20, 2)), ("labels", (20,))):
    for label, value in NOT_REAL.items():
        row("prepare", f"{name} {label}", functools.partial(prepared, **{name: value}), f"{name} must be ")
    row("prepare", f"{name} NaN", functools.partial(prepared, **{name: np.full(size, NAN)}), f"{name} must be finite")
row("prepare", "inputs a vector", lambda: prepared(inputs=np.ones(20)), r"inputs must have shape \(any, any\)")
row("prepare", "labels too few", lambda: prepared(labels=np.ones(19)), r"labels must have shape \(20\) to match inputs")
row("prepare", "labels alike", lambda: prepared(labels=np.ones(20)), "known must reach rows where every column varies")
row("prepare", "an input alike", lambda: prepared(inputs=np.eye(20)[:, 18:]), "known must reach rows where every")
twice = np.repeat(recorded_rows["inputs"][:, :1], 2, 1)
row("prepare", "an input twice", lambda: prepared(inputs=twice), "known must reach rows that tell inputs apart")
parameters = functools.partial(Drift, **{"gamma": 0.9, "q": 0.1, "s2": 0.1})
numbers("Drift", parameters, "gamma", outside=[-0.1, 1.1])
numbers("Drift", parameters, "q", outside=[-0.1])
numbers("Drift", parameters, "s2", outside=[-0.1, 0.0])
for where, call in (
    ("filtered", functools.partial(filtered, drift=parameters())),
    ("smoothed", functools.partial(smoothed, drift=parameters())),
    ("most_likely", most_likely),
):
    row(where, "x a vector", functools.partial(call, np.ones(3), np.ones(3)), r"x must have shape \(any, any\)")
    row(where, "y too short", functools.partial(call, np.ones((3, 2)), np.ones(2)), r"y must have shape \(3\) to match")
    row(where, "x NaN", functools.partial(call, np.full((3, 2), NAN), np.ones(3)), "x must be finite")
    row(where, "y NaN", functools.partial(call, np.ones((3, 2)), np.full(3, NAN)), "y must be finite")
for where, call in (("filtered", filtered), ("smoothed", smoothed)):
    for value in (None, 0.9, (0.9, 0.1, 0.1), Drift):
        wrong = functools.partial(call, np.ones((3, 2)), np.ones(3), value)
        row(where, f"drift {value!r}", wrong, "drift must be an icl.tasks.series.Drift")
integers("mean_and_error", functools.partial(mean_and_error, np.ones(3)), "lags", least=0)
row(
    "mean_and_error",
    "lags 3 of 3 rows",
    lambda: mean_and_error(np.ones(3), lags=3),
    "lags must be less than the 3 rows",
)
row("mean_and_error", "z a matrix", lambda: mean_and_error(np.ones((3, 1)), lags=1), r"z must have shape \(any\)")
row("mean_and_error", "z NaN", lambda: mean_and_error(np.array([1.0, NAN]), lags=1), "z must be finite")

POSITIVE = [-0.1, 0.0, torch.tensor([0.5, -0.1]), torch.tensor([NAN])]
for where, call, name, outside in (
    ("gradient_descent", solvers.gradient_descent, "eta", POSITIVE),
    ("momentum", functools.partial(solvers.momentum, beta=0.5), "eta", POSITIVE),
    ("momentum", functools.partial(solvers.momentum, 0.1), "beta", [-0.1, 1.1]),
    ("nesterov", functools.partial(solvers.nesterov, beta=0.5), "eta", POSITIVE),
    ("nesterov", functools.partial(solvers.nesterov, 0.1), "beta", [-0.1, 1.1]),
    ("chebyshev", functools.partial(solvers.chebyshev, high=2.0), "low", POSITIVE),
    ("chebyshev", functools.partial(solvers.chebyshev, 1.0), "high", POSITIVE),
    ("tuned_momentum", functools.partial(solvers.tuned_momentum, high=2.0), "low", POSITIVE),
    ("tuned_momentum", functools.partial(solvers.tuned_momentum, 1.0), "high", POSITIVE),
    ("tuned_nesterov", functools.partial(solvers.tuned_nesterov, high=2.0), "low", POSITIVE),
    ("tuned_nesterov", functools.partial(solvers.tuned_nesterov, 1.0), "high", POSITIVE),
    ("chebyshev_scalars", functools.partial(solvers.chebyshev_scalars, high=2.0, steps=3), "low", [-0.1, 0.0]),
    ("chebyshev_scalars", functools.partial(solvers.chebyshev_scalars, 1.0, steps=3), "high", [-0.1, 0.0]),
):
    for label, value in NOT_REAL.items():
        row(where, f"{name} {label}", functools.partial(call, **{name: value}), f"{name} must be ")
    for value in outside:
        row(where, f"{name} {value}", functools.partial(call, **{name: value}), f"{name} must be finite and ")
for where, call in (
    ("chebyshev", solvers.chebyshev),
    ("tuned_momentum", solvers.tuned_momentum),
    ("tuned_nesterov", solvers.tuned_nesterov),
    ("chebyshev_scalars", functools.partial(solvers.chebyshev_scalars, steps=3)),
):
    row(where, "low above high", functools.partial(call, 2.0, 1.0), "low must be at most high")
bounds = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 3.0, 3.0])
row("chebyshev", "bounds of other problems", lambda: solvers.chebyshev(*bounds), "low and high must be for the same")
row(
    "gradient_descent", "a column", lambda: solvers.gradient_descent(torch.ones(2, 1)), "eta must be one number or have"
)
row("chebyshev_scalars", "an array", lambda: solvers.chebyshev_scalars(bounds[0], 3.0, 2), "low must be one number")
integers("chebyshev_scalars", functools.partial(solvers.chebyshev_scalars, 1.0, 2.0), "steps", least=0)
bowl = {"H": torch.eye(2).repeat(3, 1, 1), "b": torch.ones(3, 2)}
for label, M, message in (
    ("of three axes too many", np.ones((1, 1, 2, 2)), r"must have shape \(d, d\) or"),
    ("a vector", np.ones(2), r"must have shape \(d, d\) or"),
    ("not square", np.ones((2, 3)), r"must have shape \(d, d\) or"),
    ("empty", np.ones((0, 0)), r"must have shape \(d, d\) or"),
    ("asymmetric", torch.tensor([[1.0, 0.5], [0.4, 1.0]]), "must be symmetric, got entries that differ by 0.1"),
    ("indefinite", [[1.0, 2.0], [2.0, 1.0]], "must be positive definite"),
    ("singular", [[1, 0], [0, 0]], "must be positive definite"),
    ("NaN", np.full((2, 2), NAN), "must be finite"),
    ("complex", np.eye(2) * 1j, "must be real"),
    ("text", "identity", "must be real"),
):
    row("conjugate_gradients", f"M {label}", functools.partial(solvers.conjugate_gradients, M), f"M {message}", "")
    scalars = functools.partial(solvers.conjugate_scalars, **bowl, steps=2, M=M)
    row("conjugate_scalars", f"M {label}", scalars, f"M {message}", "")
for where, descend in (
    ("solvers.run", functools.partial(solvers.run_solver, solvers.conjugate_gradients())),
    ("conjugate_scalars", solvers.conjugate_scalars),
):
    call = functools.partial(descend, **bowl, steps=2)
    integers(where, call, "steps", least=0)
    for name in ("H", "b"):
        row(
            where,
            f"{name} an array",
            functools.partial(call, **{name: np.ones((3, 2))}),
            f"{name} must be a torch.Tensor",
        )
        row(where, f"{name} None", functools.partial(call, **{name: None}), f"{name} must be a torch.Tensor")
    for label, changed, message in (
        ("H one matrix", {"H": torch.eye(2)}, r"H must have shape \(batch, d, d\)"),
        ("H not square", {"H": torch.ones(3, 2, 1)}, r"H must have shape \(batch, d, d\)"),
        ("no problem", {"H": torch.ones(0, 2, 2), "b": torch.ones(0, 2)}, r"H must have shape \(batch, d, d\)"),
        ("integer H", {"H": torch.ones(3, 2, 2, dtype=torch.int64)}, "H must have a floating dtype"),
        ("H NaN", {"H": torch.full((3, 2, 2), NAN)}, "H must be finite"),
        ("H infinite", {"H": bowl["H"] / torch.tensor([[1.0, INF], [INF, 0.0]])}, "H must be finite"),
        ("H asymmetric", {"H": torch.tensor([[1.0, 0.5], [0.0, 1.0]]).repeat(3, 1, 1)}, "H must be symmetric"),
        ("b of other problems", {"b": torch.ones(2, 2)}, r"b must have shape \(3, 2\) to match H"),
        ("b a column", {"b": torch.ones(3, 2, 1)}, r"b must have shape \(3, 2\) to match H"),
        (
            "b of another dtype",
            {"b": torch.ones(3, 2, dtype=torch.float64)},
            "b must have dtype torch.float32 to match H",
        ),
        ("b infinite", {"b": torch.full((3, 2), INF)}, "b must be finite"),
    ):
        row(where, label, functools.partial(call, **changed), message)
for label, w_0, message in (
    ("of another d", torch.ones(3), r"must have shape \(2,\) or \(3, 2\)"),
    ("of other problems", torch.ones(2, 2), r"must have shape \(2,\) or \(3, 2\)"),
    ("a number", torch.tensor(1.0), r"must have shape \(2,\) or \(3, 2\)"),
    ("an array", np.ones(2), "must be a torch.Tensor"),
    ("of another dtype", torch.ones(2, dtype=torch.float64), "must have dtype torch.float32 to match H"),
    ("NaN", torch.full((2,), NAN), "must be finite"),
):
    wrong = functools.partial(solvers.run_solver, solvers.gradient_descent(0.1), **bowl, steps=2, w_0=w_0)
    row("solvers.run", f"w_0 {label}", wrong, f"w_0 {message}")
two_settings = torch.tensor([0.1, 0.2])
for label, solver, message in (
    (
        "eta of gradient descent",
        solvers.gradient_descent(two_settings),
        "eta must have one number for each of 3 problems",
    ),
    ("eta of momentum", solvers.momentum(two_settings, 0.5), "eta must have one number for each of 3 problems"),
    ("beta of momentum", solvers.momentum(0.1, two_settings), "beta must have one number for each of 3 problems"),
    ("beta of Nesterov", solvers.nesterov(0.1, two_settings), "beta must have one number for each of 3 problems"),
    ("low", solvers.chebyshev(two_settings, 1.0), "low must have one number for each of 3 problems"),
    ("high", solvers.chebyshev(0.05, two_settings), "high must have one number for each of 3 problems"),
    ("one M", solvers.conjugate_gradients(np.eye(3)), r"M must have shape \(2, 2\) to match H"),
    (
        "M of each",
        solvers.conjugate_gradients(torch.eye(2).repeat(2, 1, 1)),
        r"M must have shape \(3, 2, 2\) to match H",
    ),
):
    wrong = functools.partial(solvers.run_solver, solver, **bowl, steps=2)
    row("solvers.run", f"{label} for other problems", wrong, message)

measured = functools.partial(squared_error, lambda p: 0 * p.y[:, -1], task)
integers("squared_error", functools.partial(measured, generator=profile.streams("x")), "total", least=2)
integers("squared_error", functools.partial(measured, total=2, generator=profile.streams("x")), "size", least=1)
draws("squared_error", functools.partial(measured, total=2))
for label, predicts, message in (
    ("one number", lambda p: p.y.sum(), r"predict must return \(..., 5\) for 5 prompts"),
    ("too few", lambda p: p.y[1:, -1], r"predict must return \(..., 5\) for 5 prompts"),
    ("a column", lambda p: p.y[:, -1:], r"predict must return \(..., 5\) for 5 prompts"),
    ("predictors last", lambda p: p.y, r"predict must return \(..., 5\) for 5 prompts"),
    ("NaN", lambda p: p.y[:, -1] * NAN, "predict must return finite numbers"),
    ("infinite", lambda p: p.y.T + INF, "predict must return finite numbers"),
    ("too large to square", lambda p: p.y.T + 1e200, "predict must return finite numbers"),
):
    wrong = functools.partial(squared_error, predicts, task, 5, generator=profile.streams("x"))
    row("squared_error", f"predictions: {label}", wrong, message)

two_layers, tokens_of = torch.zeros(2, 3, 3), torch.zeros(2, 4, 4)
P_of, Q_of = token_form.parameters(two_layers)
scalars_of, table_of, grams = torch.zeros(2), torch.zeros(2, 2), torch.zeros(2, 3, 3)
attending = functools.partial(token_form.attention, **{"Z": tokens_of, "P": P_of[0], "Q": Q_of[0]})
layered = {"Z": tokens_of, "P": P_of, "Q": Q_of}
reduced = {"H": grams, "A": two_layers, "Gamma": table_of}
forms = {
    "attention": attending,
    "transformer": functools.partial(token_form.transformer, **layered),
    "one_register": functools.partial(token_form.one_register, **layered, alpha=scalars_of, gamma=scalars_of),
    "many_registers": functools.partial(token_form.many_registers, **layered, Gamma=table_of[..., None, None]),
    "memformer.errors": functools.partial(memformer.error_matrices, **reduced),
    "iterates": functools.partial(memformer.iterates, **reduced, b=torch.zeros(2, 3)),
    "token_errors": functools.partial(token_form.token_errors, x, two_layers, torch.zeros(2, 2, 5)),
}
for where, label, arguments, message in (
    ("attention", "Z of two axes", {"Z": tokens_of[0]}, r"Z must have shape \(any, any, any\)"),
    ("attention", "P of another width", {"P": P_of[0, 1:]}, r"P must have shape \(4, 4\) to match Z"),
    ("attention", "Q of another dtype", {"Q": Q_of[0].double()}, "Q must have dtype torch.float32 to match Z"),
    ("transformer", "Z of two axes", {"Z": tokens_of[0]}, r"Z must have shape \(any, any, any\)"),
    ("transformer", "only the query", {"Z": tokens_of[:, :1]}, "Z must hold at least one example and the query"),
    ("transformer", "one P", {"P": P_of[0]}, r"P must have shape \(any, any, any\)"),
    ("transformer", "P not square", {"P": P_of[:, 1:]}, r"P must have shape \(any, 3, 3\)"),
    ("transformer", "fewer Q", {"Q": Q_of[1:]}, r"Q must have shape \(2, 4, 4\) to match P"),
    ("transformer", "Z of another width", {"Z": tokens_of[..., 1:]}, r"P must have shape \(3, 3\) to match Z"),
    ("transformer", "Z of another dtype", {"Z": tokens_of.double()}, "P must have dtype torch.float64 to match Z"),
    ("one_register", "fewer Q", {"Q": Q_of[1:]}, r"Q must have shape \(2, 4, 4\) to match P"),
    ("one_register", "one alpha too few", {"alpha": scalars_of[1:]}, r"alpha must have shape \(2,\) or \(2, 2\)"),
    ("one_register", "gamma of prompts", {"gamma": torch.zeros(3, 2)}, r"gamma must have shape \(2,\) or \(2, 2\)"),
    ("one_register", "gamma of float64", {"gamma": scalars_of.double()}, "gamma must have dtype torch.float32"),
    ("many_registers", "fewer Q", {"Q": Q_of[1:]}, r"Q must have shape \(2, 4, 4\) to match P"),
    ("many_registers", "Gamma of two axes", {"Gamma": table_of}, r"Gamma must have shape \(2, 2, 4 or 1, 4 or 1\)"),
    ("many_registers", "Gamma of rows", {"Gamma": torch.zeros(2, 2, 1, 3)}, r"Gamma must have shape \(2, 2, 4 or 1, 4"),
    ("many_registers", "Gamma of time", {"Gamma": torch.zeros(2, 2, 3, 1)}, r"Gamma must have shape \(2, 2, 4 or 1, 4"),
    ("many_registers", "more layers", {"Gamma": torch.zeros(3, 3, 1, 1)}, r"Gamma must have shape \(2, 2, 4 or 1, 4"),
    ("many_registers", "Gamma of float64", {"Gamma": table_of[..., None, None].double()}, "Gamma must have dtype"),
    ("iterates", "b of another batch", {"b": torch.zeros(1, 3)}, r"b must have shape \(2, 3\) to match H"),
    ("iterates", "b of another dtype", {"b": torch.zeros(2, 3).double()}, "b must have dtype torch.float32 to match H"),
    ("token_errors", "X of two axes", {"X": x[0]}, r"X must have shape \(any, any, any\)"),
    ("token_errors", "A of another d", {"A": two_layers[:, 1:, 1:]}, r"A must have shape \(any, 3, 3\) to match X"),
    ("token_errors", "A of another dtype", {"A": two_layers.double()}, "A must have dtype torch.float32 to match X"),
    ("token_errors", "Gamma of n", {"Gamma": torch.zeros(2, 2, 4)}, r"Gamma must have shape \(2, 2, 5\) to match"),
    ("token_errors", "Gamma of float64", {"Gamma": torch.zeros(2, 2, 5).double()}, "Gamma must have dtype"),
):
    keywords = (
        {"X": x, "A": two_layers, "Gamma": torch.zeros(2, 2, 5)} if where == "token_errors" else forms[where].keywords
    )
    row(where, label, functools.partial(forms[where].func, **keywords | arguments), message)
for where in ("memformer.errors", "iterates"):
    for label, arguments, message in (
        ("H of two axes", {"H": grams[0]}, r"H must have shape \(any, any, any\)"),
        ("H not square", {"H": grams[:, 1:]}, r"H must have shape \(any, 2, 2\)"),
        ("A of another d", {"A": two_layers[:, 1:, 1:]}, r"A must have shape \(any, 3, 3\) to match H"),
        ("A of another dtype", {"A": two_layers.double()}, "A must have dtype torch.float32 to match H"),
        ("B of fewer layers", {"B": two_layers[1:]}, r"B must have shape \(2, 3, 3\) to match A"),
        ("B of another dtype", {"B": two_layers.double()}, "B must have dtype torch.float32 to match A"),
        ("Gamma of another dtype", {"Gamma": table_of.double()}, "Gamma must have dtype torch.float32 to match H"),
        *(
            (
                f"Gamma of shape {shape}",
                {"Gamma": torch.zeros(shape)},
                r"Gamma must have shape \(2, 2\), \(2, 2, 1 or 4\)",
            )
            for shape in ((2,), (2, 3), (3, 3), (2, 2, 3), (2, 2, 5), (3, 2, 2, 1), (2, 2, 2, 2), (1, 2, 2, 2, 1))
        ),
    ):
        row(where, label, functools.partial(forms[where], **arguments), message)
for label, arguments, message in (
    ("A of two axes", {"A": two_layers[0]}, r"A must have shape \(any, any, any\)"),
    ("A not square", {"A": two_layers[:, :, :1]}, r"A must have shape \(any, 3, 3\)"),
    ("B of fewer layers", {"B": two_layers[1:]}, r"B must have shape \(2, 3, 3\) to match A"),
    ("B of another dtype", {"B": two_layers.double()}, "B must have dtype torch.float32 to match A"),
):
    row("parameters", label, functools.partial(token_form.parameters, **{"A": two_layers} | arguments), message)
covariances("memformer.risks", lambda Sigma: memformer.risks(torch.zeros(1, 2, 2), Sigma), "Sigma")
for label, Sigma in (
    ("singular", np.diag([1.0, 0.0])),
    ("as good as singular", torch.diag(torch.tensor([1.0, 1e-13]))),
):
    row(
        "memformer.risks",
        f"Sigma {label}",
        lambda S=Sigma: memformer.risks(grams[:, 1:, 1:], S),
        "Sigma must be pos",
        "",
    )
row(
    "memformer.risks",
    "M not square",
    lambda: memformer.risks(grams[:, 1:], np.eye(3)),
    r"M must have shape \(..., d, d",
)
row(
    "memformer.risks",
    "M of one axis",
    lambda: memformer.risks(grams[0, 0], np.eye(3)),
    r"M must have shape \(..., d, d",
)

parts = {
    "Full": functools.partial(memformer.Full, **{"d": 3, "layers": 2}),
    "Scaled": functools.partial(memformer.Scaled, torch.eye(3), **{"layers": 2}),
    "Without": functools.partial(memformer.Without, **{"layers": 2}),
    "Memory": functools.partial(memformer.Memory, **{"layers": 2}),
    "OneRegister": functools.partial(memformer.OneRegister, **{"layers": 2}),
    "Shared": functools.partial(memformer.Shared, **{"layers": 2}),
    "Free": functools.partial(memformer.Free, **{"layers": 2}),
    "TokenWise": functools.partial(memformer.TokenWise, **{"layers": 2, "n": 3}),
}
for where, make in parts.items():
    integers(where, make, "layers", least=1)
    if where not in ("Scaled", "Without", "Memory"):
        for value in (torch.float16, torch.int64, None):
            row(
                where,
                f"dtype {value}",
                functools.partial(make, dtype=value),
                "dtype must be torch.float32 or torch.float",
            )
integers("Full", parts["Full"], "d", least=1)
integers("Free", parts["Free"], "rows", least=1)
integers("TokenWise", parts["TokenWise"], "n", least=1)
row("Fixed", "A of two axes", lambda: memformer.Fixed(torch.eye(3)), r"A must have shape \(any, any, any\)")
row("Fixed", "A not square", lambda: memformer.Fixed(two_layers[:, 1:]), r"A must have shape \(any, 2, 2\)")
row("Fixed", "no A", lambda: memformer.Fixed(two_layers[:0]), "A must hold at least one matrix")
row(
    "Fixed", "A of integers", lambda: memformer.Fixed(two_layers.long()), "dtype must be torch.float32 or torch.float64"
)
row("Scaled", "matrix not square", lambda: memformer.Scaled(two_layers[0, 1:], 2), r"matrix must have shape \(2, 2\)")
row("Scaled", "matrix of three axes", lambda: memformer.Scaled(two_layers, 2), r"matrix must have shape \(2, 2\)")
row("Scaled", "matrix of integers", lambda: memformer.Scaled(torch.eye(2).long(), 2), "dtype must be torch.float32 or")

full_of, without = memformer.Full(3, 2), memformer.Without(2)
build = functools.partial(memformer.Memformer, **{"preconditioner": full_of, "memory": without})
for label, arguments, message in (
    ("no memory", {"memory": None}, "memory must be one of icl.models.memformer's"),
    ("memory, a class", {"memory": memformer.Without}, "memory must be one of icl.models.memformer's"),
    ("preconditioner None", {"preconditioner": None}, "preconditioner must be a Fixed, Scaled or Full"),
    ("preconditioner, a tensor", {"preconditioner": two_layers}, "preconditioner must be a Fixed, Scaled or Full"),
    ("curvature, a tensor", {"curvature": two_layers}, "curvature must be a Fixed, Scaled or Full"),
    ("more memory", {"memory": memformer.Without(3)}, "preconditioner must have 3 layers to match memory"),
    ("more curvature", {"curvature": memformer.Full(3, 3)}, "curvature must have 2 layers to match memory"),
    (
        "curvature of another d",
        {"curvature": memformer.Full(2, 2)},
        r"curvature must have shape \(2, 3, 3\) to match pre",
    ),
    (
        "curvature of another dtype",
        {"curvature": memformer.Full(3, 2, dtype=torch.float32)},
        "curvature must have dtype torch.float64 to match preconditioner",
    ),
    (
        "token-wise with curvature",
        {"curvature": full_of, "memory": memformer.TokenWise(2, 3)},
        "memory must not be TokenWise beside a curvature",
    ),
):
    row("Memformer", label, functools.partial(build, **arguments), message, "")
small_one = memformer.Memformer(memformer.Full(3, 2, dtype=torch.float32), memformer.TokenWise(2, 3))
for label, model_given, inputs, message in (
    ("of another d", build(), x.double()[..., 1:], r"must have shape \(any, any, 3\) to match the model"),
    ("of another dtype", build(), x, "must have dtype torch.float64 to match the model"),
    ("of another n", small_one, x[:, :2], r"must have shape \(any, ., 3\) to match the model"),
):
    asks = Prompt(inputs, inputs[..., 0], inputs)
    row("Memformer()", f"x {label}", functools.partial(model_given, asks), f"x {message}")
    row("Memformer.states", f"x {label}", functools.partial(model_given.states, asks), f"x {message}")
    row("Memformer.errors", f"X {label}", functools.partial(model_given.errors, inputs), f"X {message}")
    row("Memformer.risks", f"X {label}", lambda m=model_given, i=inputs: m.risks(i, np.eye(3)), f"X {message}")

scattering = functools.partial(memformer.scatter, memformer.Full(2, 1), **{"scale": 0.1})
numbers("scatter", functools.partial(scattering, generator=profile.streams("x")), "scale", outside=[-0.1, 0.0])
for value in (None, 0, np.random.default_rng(0)):
    row(
        "scatter",
        f"generator {value!r}",
        functools.partial(scattering, generator=value),
        "generator must be a torch.Gen",
    )
halves = memformer.Full(2, 1).half()
row(
    "scatter",
    "a model of float16",
    lambda: memformer.scatter(halves, 0.1, generator=profile.streams("x")),
    "dtype must be torch.float32 or torch.float64",
)
row(
    "scatter",
    "no model",
    lambda: memformer.scatter(None, 0.1, generator=profile.streams("x")),
    "model must be a torch.nn",
)
for value in ("matrices", ("alpha",), ("matrices", "alpha")):
    picked = functools.partial(scattering, generator=profile.streams("x"), names=value)
    row(
        "scatter",
        f"names {value}",
        picked,
        "names must be a sequence of parts of matrices",
        re.escape(f"got {value!r}"),
    )

integers("Held", functools.partial(Held, task), "every", least=1)
for value in (None, DriftingRegression, Prompt(x, y, x)):
    row("Held", f"task {value!r:.20}", functools.partial(Held, value, 2), "task must be one of icl.tasks")


def held_then(**changes):
    """Ask for prompts that are held with other arguments than those of the draw."""
    held, asked_of = Held(task, 9), {"batch": 2, "generator": profile.streams("x"), "dtype": torch.float32}
    held.sample(**asked_of)
    return held.sample(**asked_of | changes)


row("Held.sample", "another batch", lambda: held_then(batch=3), "batch must stay 2 in torch.float32", "got 3 in")
row("Held.sample", "another dtype", lambda: held_then(dtype=torch.float64), "batch must stay 2 in torch.float32 while")
row("Held.sample", "another device", lambda: held_then(device="meta"), "device must stay cpu while prompts are held")
integers("Held.sample", functools.partial(Held(task, 2).sample, generator=profile.streams("x")), "batch", least=1)
draws("Held.sample", lambda **options: Held(task, 2).sample(2, **options))

learner = torch.nn.Linear(2, 1)
publish = functools.partial(
    as_published,
    **{"model": learner, "loss": lambda m, p: m(p.x).mean(), "task": task, "generator": profile.streams("x")},
)
integers("as_published", functools.partial(publish, batch=2), "steps", least=1)
integers("as_published", functools.partial(publish, steps=2), "batch", least=1)
for label, arguments, message in (
    ("no model", {"model": None}, "model must be a torch.nn.Module"),
    ("no loss", {"loss": 1.0}, "loss must be a function of model and prompt"),
    ("no task", {"task": None}, "task must be one of icl.tasks"),
    ("no generator", {"generator": 0}, "generator must be a torch.Generator"),
):
    row("as_published", label, functools.partial(publish, **arguments), message)

descent = functools.partial(minimise, **{"model": learner, "loss": lambda: learner.weight.square().sum()})
integers("minimise", descent, "iterations", least=1)
numbers("minimise", descent, "tolerance", outside=[-0.1, 0.0])
for label, arguments, message in (
    ("no model", {"model": None}, "model must be a torch.nn.Module"),
    ("nothing to train", {"model": torch.nn.Identity()}, "model must have a parameter that requires a gradient"),
    ("all frozen", {"model": torch.nn.Linear(2, 1).requires_grad_(False)}, "model must have a parameter that requires"),
    ("no loss", {"loss": 1.0}, "loss must be a function without arguments"),
    ("a loss that is a number", {"loss": lambda: 1.0}, "loss must return a scalar that depends on the parameters"),
    ("a loss of several", {"loss": lambda: learner.weight.square()}, "loss must return a scalar that depends"),
    (
        "a loss of nothing",
        {"loss": lambda: torch.zeros(())},
        "loss must return a scalar that depends on the parameters",
    ),
):
    row("minimise", label, functools.partial(descent, **arguments), message)

row("streams", "no name", lambda: profile.streams(""), "name must be a non-empty string")
integers("streams", functools.partial(profile.streams, "x"), "seed", least=0)
row("check", "no cases", lambda: exercises.check(len, len, []), "cases must hold at least one dict", "")
row("claim", "of no such name", lambda: claims.claim("gla.nothing"), "no claim 'gla.nothing'", "")
row("folder", "of no such name", lambda: claims.folder("nothing"), "no folder 'nothing'", "")


def s6_layer_rows():
    """Rows of `models.s6`; in a function, so that its many names stay its own."""
    tokens, vectors, steps = torch.ones(2, 5, 3), torch.ones(2, 5, 4), torch.ones(1, 5)
    one_rate = -torch.ones(1)
    for where, form in (("mamba.scan", mamba.scan), ("mamba.dual", mamba.dual), ("mamba.chunked", mamba.scan_chunked)):
        s6 = functools.partial(form, **{"u": tokens, "A": one_rate, "B": vectors, "C": vectors, "Delta": steps})
        for name, value, message in (
            ("u", torch.ones(2, 5), "u must have shape"),
            ("u", torch.ones(2, 0, 3), "u must hold at least one position in time"),
            ("B", torch.ones(2, 4, 4), r"B must have shape \(2, 5, any\) to match u"),
            ("B", vectors.double(), "B must have dtype torch.float32 to match u"),
            ("C", torch.ones(2, 5, 3), r"C must have shape \(2, 5, 4\) to match B"),
            ("C", vectors.double(), "C must have dtype torch.float32 to match u"),
            ("A", -torch.ones(3), r"A must have shape \(1,\)"),
            ("A", -torch.ones(4, 4), r"A must have shape \(1,\)"),
            ("A", one_rate.double(), "A must have dtype torch.float32 to match u"),
            ("A", 0 * one_rate, "A must be finite and < 0"),
            ("A", NAN * one_rate, "A must be finite and < 0"),
            ("A", INF * one_rate, "A must be finite and < 0"),
            ("Delta", torch.ones(5), r"Delta must have shape \(2 or 1, 5\) to match u"),
            ("Delta", torch.ones(3, 5), r"Delta must have shape \(2 or 1, 5\) to match u"),
            ("Delta", torch.ones(1, 4), r"Delta must have shape \(2 or 1, 5\) to match u"),
            ("Delta", steps.double(), "Delta must have dtype torch.float32 to match u"),
            ("Delta", 0 * steps, "Delta must be finite and > 0"),
            ("Delta", NAN * steps, "Delta must be finite and > 0"),
            ("Delta", INF * steps, "Delta must be finite and > 0"),
        ):
            row(
                where,
                f"{name} {message} {value.dtype} {value.ravel()[:1]}",
                functools.partial(s6, **{name: value}),
                message,
            )
    row(
        "mamba.dual",
        "several rates",
        lambda: mamba.dual(tokens, -torch.ones(4), vectors, vectors, steps),
        r"A must have shape \(1,\): one rate",
    )
    integers(
        "mamba.chunked",
        functools.partial(mamba.scan_chunked, tokens, one_rate, vectors, vectors, steps),
        "size",
        least=1,
    )
    for name in ("d_e", "d_h"):
        integers("Selective", functools.partial(mamba.Selective, **{"d_e": 3, "d_h": 4}), name, least=1)
    integers("Static", mamba.Static, "d_h", least=1)
    integers("Step", functools.partial(mamba.Step, Delta=0.1), "d_e", least=1)
    numbers("Step", functools.partial(mamba.Step, 3), "Delta", outside=[0.0, -1.0])
    numbers("FixedStep", mamba.FixedStep, "Delta", outside=[0.0, -1.0])
    held_parts = {
        "B": mamba.Selective(3, 4),
        "C": mamba.Selective(3, 4),
        "step": mamba.FixedStep(0.1),
        "A": -torch.ones(1, dtype=torch.float64),
    }
    s6 = functools.partial(mamba.S6, **held_parts)
    for name in ("B", "C", "step"):
        for value in (None, torch.ones(4), torch.nn.Linear(3, 4), mamba.Selective):
            row(
                "S6",
                f"{name} {value!r}",
                functools.partial(s6, **{name: value}),
                f"{name} must be one of icl.models.s6's",
            )
    for name, value, message in (
        ("C", mamba.Selective(3, 5), "C must have states of size 4 to match B"),
        ("C", mamba.Selective(2, 4), "B, C and step must be for tokens of one width"),
        ("step", mamba.Step(2, 0.1), "B, C and step must be for tokens of one width"),
        ("A", -torch.ones(3), r"A must be finite and < 0 and have shape \(1,\) or \(4,\)"),
        ("A", torch.zeros(4), "A must be finite and < 0"),
        ("A", torch.full((4,), -INF), "A must be finite and < 0"),
        ("A", torch.full((1,), NAN), "A must be finite and < 0"),
    ):
        row("S6", f"{name} {value}", functools.partial(s6, **{name: value}), message)
    for name in ("d", "d_h", "N"):
        assumed = functools.partial(mamba.assumed, **{"d": 2, "d_h": 4, "N": 3, "generator": profile.streams("x")})
        integers("mamba.assumed", assumed, name, least=1)
    numbers("mamba.assumed", assumed, "scale", outside=[-1.0])
    draws("mamba.assumed", functools.partial(mamba.assumed, 2, 4, 3))

    s6_prompt = stationary().sample(2, generator=profile.streams("x"), dtype=torch.float64)
    s6_tokens = s6_prompt.tokens()
    known = mamba.statistics(s6_prompt, s6())
    states = mamba.s6_features(s6_tokens, s6())
    by_layer = (
        ("mamba.weights", lambda layer: mamba.weights(3, layer)),
        ("mamba.statistics", lambda layer: mamba.statistics(s6_prompt, layer)),
        ("mamba.read", lambda layer: mamba.read_out(layer, known)),
        ("mamba.features", lambda layer: mamba.s6_features(s6_tokens, layer)),
        ("mamba.collapsed", lambda layer: mamba.collapsed(layer, s6_tokens, states)),
    )
    for where, call in by_layer:
        for label, layer, message in (
            ("a step that selects", s6(step=mamba.Step(3, 0.1)), "layer must have a FixedStep and one rate"),
            ("several rates", s6(A=-torch.ones(4, dtype=torch.float64)), "layer must have a FixedStep and one rate"),
            ("None", None, "layer must be an S6"),
        ):
            row(where, label, functools.partial(call, layer), message)
    for where, call in (by_layer[2], by_layer[4]):
        for name in "BC":
            row(
                where,
                f"static {name}",
                functools.partial(call, s6(**{name: mamba.Static(4)})),
                "layer must have Selective B",
            )
    integers("mamba.weights", functools.partial(mamba.weights, layer=s6()), "N", least=1)
    for label, layers in (("none", []), ("no S6", [torch.nn.Linear(3, 3)]), ("None", [None])):
        row("mamba.Stack", f"layers {label}", functools.partial(mamba.S6Stack, layers, 3), "layers must be S6 layers")
    integers("mamba.Stack", functools.partial(mamba.S6Stack, [s6()]), "d_e", least=1)
    row(
        "mamba.Stack",
        "a network too many",
        lambda: mamba.S6Stack([s6()], 3, [torch.nn.Identity()] * 2),
        "networks must be none or 1, one a layer",
    )


def s6_theory_rows():
    """Rows of `theory.s6`."""
    NO_DECAY = [0.0, -0.5, 1e-101, 1.0, 1.5]
    setting = {"d": 2, "N": 3, "alpha": 0.9}
    for where, call in (
        ("Coefficients", closed.Coefficients),
        ("printed_beta2", selection.printed_beta2),
        ("mamba.optimum", closed.optimal_beta),
        ("least_loss", closed.least_loss),
    ):
        call = functools.partial(call, **setting)
        for name in ("d", "N"):
            integers(where, call, name, least=1)
        numbers(where, call, "alpha", outside=NO_DECAY)
    integers("assumed_alpha", closed.assumed_alpha, "N", least=1)
    integers("effective_samples", functools.partial(closed.effective_samples, alpha=0.9), "N", least=1)
    numbers("effective_samples", functools.partial(closed.effective_samples, 3), "alpha", outside=NO_DECAY)
    for value in (0, 1.0, "2", True):
        row(
            "least_loss",
            f"d_h {value!r}",
            functools.partial(closed.least_loss, 2, 3, 0.9, value),
            "d_h must be an integer",
        )
    for where, call in (
        ("mamba.bound", closed.bound),
        ("sharper_bound", closed.sharper_bound),
        ("linear_attention_loss", closed.linear_attention_loss),
        ("lms_loss", closed.lms_loss),
    ):
        for name in ("d", "N"):
            integers(where, functools.partial(call, **{"d": 2, "N": 3}), name, least=1)
    without_none = {label: value for label, value in NOT_A_NUMBER.items() if value is not None}
    numbers("lms_loss", functools.partial(closed.lms_loss, 2, 3), "mu", wrong=without_none, outside=[-0.1])
    shifted = functools.partial(closed.shifted_loss, **{"d": 2, "N_test": 3, "alpha": 0.9, "beta": 1.0})
    for name in ("d", "N_test"):
        integers("shifted_loss", shifted, name, least=1)
    numbers("shifted_loss", shifted, "alpha", outside=NO_DECAY)
    numbers("shifted_loss", shifted, "beta")

    arrays = {"W_B": np.ones((4, 3)), "W_C": np.ones((4, 3)), "b_B": np.ones(4), "b_C": np.ones(4)}
    four = functools.partial(closed.S6Weights, **arrays)
    for name, value in arrays.items():
        numbers("Weights", four, name, wrong={label: bad for label, bad in NOT_REAL.items()})
        for label, bad in (("NaN in it", NAN * value), ("an axis more", value[None]), ("one short", value[1:])):
            if (name, label) == ("W_B", "one short"):
                continue  # then the others do not match it
            row("Weights", f"{name} {label}", functools.partial(four, **{name: bad}), f"{name} must")
    for shape in ((4, 1), (0, 3), (0, 0)):
        row("Weights", f"W_B {shape}", functools.partial(four, W_B=np.ones(shape)), r"W_B must have shape \(d_h, d")
    found, moments_of = four(), closed.Coefficients(**setting)
    for where, call in (
        ("mamba.population_loss", closed.population_loss),
        ("mamba.gradient", closed.gradient),
        ("descend", functools.partial(closed.descend, eta=0.1, steps=2)),
        ("flow", functools.partial(closed.flow, time=np.ones(1))),
        ("mamba.rate", functools.partial(closed.rate, eta=1e-3)),
    ):
        row(where, "weights None", functools.partial(call, None, moments_of), "weights must be Weights")
        row(where, "coefficients None", functools.partial(call, found, None), "coefficients must be Coefficients")
        other = closed.Coefficients(3, 3, 0.9)
        row(
            where,
            "another d",
            functools.partial(call, found, other),
            "weights must have 4 columns to match coefficients",
        )
    descend = functools.partial(closed.descend, found, moments_of, **{"eta": 0.1, "steps": 2})
    numbers("descend", descend, "eta", outside=[0.0, -0.1])
    for name in ("steps", "every"):
        integers("descend", descend, name, least=1)
    flow = functools.partial(closed.flow, found, moments_of, time=np.ones(1))
    numbers("flow", flow, "rtol", outside=[0.0, -1.0])
    for time in (1.0, [], [0.0], [1.0, 1.0], [2.0, 1.0], [[1.0]], [-1.0, 1.0], [NAN], ["1"]):
        row("flow", f"time {time}", functools.partial(flow, time=time), "time must be")
    numbers("mamba.rate", functools.partial(closed.rate, found, moments_of), "eta", outside=[0.0, -0.1])
    steep = closed.S6Weights(np.eye(3, 3), np.eye(3, 3), np.zeros(3), np.zeros(3))
    row("mamba.rate", "eta too large", functools.partial(closed.rate, steep, moments_of, 100.0), "eta must be < ")


def fast_weights_rows():
    """Rows of `theory.steady`."""
    setting = {"d": 3, "gamma": 0.9, "sigma_e": 0.1, "sigma_y": 0.2}
    steady = functools.partial(fast.Steady, **setting)
    integers("Steady", steady, "d", least=1)
    numbers("Steady", steady, "gamma", outside=[-0.1])
    for gamma in (1.0, 1.5):
        row("Steady", f"gamma {gamma}", functools.partial(steady, gamma=gamma), "gamma must be < 1", str(gamma))
    numbers("Steady", steady, "sigma_e", outside=[0.0, -0.1])
    numbers("Steady", steady, "sigma_y", outside=[-0.1])
    law, spectrum, one = steady(), np.array([0.5, 1.0, 2.0]), np.eye(2)
    of_law = (
        fast.best_gla,
        fast.best_normalised_gla,
        fast.best_delta,
        fast.best_unit_delta,
        fast.linear_bound,
        large_d.kalman_floor,
    )
    of_law += (fast.free_gates, fast.zoh_gates)
    for function in of_law:
        row(function.__name__, "no law", functools.partial(function, drift()), "law must be a Steady")
    for d, noise in ((1, 0.0), (2, 0.1)):
        unfit = functools.partial(fast.best_normalised_gla, fast.Steady(d, 0.9, 0.1, noise))
        row("normalised_gla", f"d {d}, noise {noise}", unfit, "d must be > 1, and > 2 for noisy labels", str(d))
    for name in ("d", "nodes"):
        integers("squared_lengths", functools.partial(fast.squared_lengths, **{"d": 3, "nodes": 8}), name, least=1)
    for function in (fast.gla_error, fast.delta_error):
        call = functools.partial(function, law, **{"lam": 0.5, "mu": 0.1})
        row(function.__name__, "no law", functools.partial(function, None, lam=0.5, mu=0.1), "law must be a Steady")
        numbers(function.__name__, call, "lam", outside=[-0.1])
        numbers(function.__name__, call, "mu", outside=[-0.1])
    row("gla_error", "lam 1", functools.partial(fast.gla_error, law, lam=1.0, mu=0.1), "updates must settle", "got ")
    for function in (fast.gla_per_channel, fast.gla_shared, fast.delta_shared, fast.delta_diagonal):
        where, call = function.__name__, functools.partial(function, law)
        row(where, "no law", functools.partial(function, None, spectrum), "law must be a Steady")
        for label, bad in NOT_REAL.items():
            row(where, f"spectrum {label}", functools.partial(call, bad), "spectrum must")
        row(where, "spectrum with 0", functools.partial(call, 0 * spectrum), "spectrum must be finite and > 0")
        row(where, "spectrum of another d", functools.partial(call, spectrum[1:]), r"spectrum must have shape \(3\)")
    x = np.ones((2, 4, 3))
    row("kalman_errors", "no law", functools.partial(fast.kalman_errors, x, None), "law must be a Steady")
    row("kalman_errors", "another d", functools.partial(fast.kalman_errors, x[..., 1:], law), "x must have shape")
    row("kalman_errors", "NaN", functools.partial(fast.kalman_errors, NAN * x, law), "x must be finite")
    row(
        "kalman_errors",
        "another spectrum",
        functools.partial(fast.kalman_errors, x, law, spectrum[1:]),
        "spectrum must have shape",
    )
    for function in (large_d.eps_gla, large_d.eps_delta, large_d.touching_point, large_d.kalman_large_d):
        where, call = function.__name__, functools.partial(function, **{"s": 1.0, "v": 0.1})
        numbers(where, call, "s", wrong=NOT_REAL, outside=[0.0, -1.0])
        numbers(where, call, "v", wrong=NOT_REAL, outside=[-0.1])
        unfit = functools.partial(function, np.ones(2), np.ones(3))
        row(where, "two s, three v", unfit, r"s and v must broadcast .* got \(2,\), \(3,\)", "")
    touching = functools.partial(large_d.touching, **{"zeta": 1.0, "eps": 0.5, "s": 1.0, "v": 0.1})
    for name in ("zeta", "eps", "s"):
        numbers("touching", touching, name, wrong=NOT_REAL, outside=[0.0, -1.0])
    numbers("touching", touching, "v", wrong=NOT_REAL, outside=[-0.1])
    for function in (large_d.kalman_random_walk, large_d.delta_random_walk):
        numbers(function.__name__, function, "nu", wrong=NOT_REAL, outside=[-0.1])
    walk = functools.partial(large_d.rls_random_walk, **{"nu": 0.1, "theta": 1.0})
    numbers("rls_random_walk", walk, "nu", outside=[-0.1])
    numbers("rls_random_walk", walk, "theta", outside=[0.0, -1.0])

    made = functools.partial(fast.Update, **{"keep": 0.5 * one, "look": 0 * one, "noise": one})
    recurrence = functools.partial(fast.update, law, **{"keep": 0.5 * one, "write": np.ones(2), "correct": 0 * one})
    row("update", "no law", functools.partial(fast.update, None, one, np.ones(2), one), "law must be a Steady")
    for where, call, names in (
        ("Update", made, ("keep", "look", "noise")),
        ("update", recurrence, ("keep", "correct")),
    ):
        for name in names:
            row(where, f"{name} NaN", functools.partial(call, **{name: NAN * one}), f"{name} must be finite")
            row(where, f"{name} text", functools.partial(call, **{name: "one"}), f"{name} must be real")
            row(where, f"{name} not square", functools.partial(call, **{name: one[:, :1]}), f"{name} must have shape")
    row("update", "write of three", functools.partial(recurrence, write=np.ones(3)), r"write must have shape \(2\)")
    row("second_moments", "none", lambda: fast.second_moments([], 3), "updates must be a non-empty sequence")
    row("second_moments", "not updates", lambda: fast.second_moments([one], 3), "updates must be a non-empty sequence")
    row("second_moments", "growing", lambda: fast.second_moments([made(keep=one)], 3), "updates must settle")
    small = fast.Update(np.eye(1) / 2, np.zeros((1, 1)), np.eye(1))
    row("second_moments", "unlike", lambda: fast.second_moments([made(), small], 3), "updates must have shape")
    integers("second_moments", functools.partial(fast.second_moments, [made()]), "d", least=1)
    read = functools.partial(fast.readout_errors, **{"moments": one[None], "d": 3})
    integers("readout_errors", read, "d", least=1)
    integers("readout_errors", read, "hidden", least=1)
    row("readout_errors", "no state", functools.partial(read, hidden=2), "hidden must leave a state")
    row("readout_errors", "moments NaN", functools.partial(read, moments=NAN * one[None]), "moments must be finite")
    row("readout_errors", "not square", functools.partial(read, moments=np.ones((1, 3, 2))), "moments must have shape")


s6_layer_rows()
s6_theory_rows()
fast_weights_rows()


noisy = functools.partial(Noisy, task=task)
numbers("Noisy", noisy, "sigma_y", outside=(-0.1,))
for value in (None, "a task", Noisy(task, 0.1)):
    row("Noisy", f"task {value!r}", lambda value=value: Noisy(value, 0.1), "task must be a Task without noise")
draws("Noisy", functools.partial(Noisy(task, 0.1).sample, 2))
integers("Noisy", lambda batch: Noisy(task, 0.1).sample(batch, generator=profile.streams("x")), "batch", least=1)

compared = {"tasks": {"t": task}, "makers": {"Kalman": filters.kalman}, "seeds": 1, "batch": 2, "last": 1}
grid = functools.partial(Grid, **compared | {"reference": "Kalman"})
integers("Grid", grid, "seeds", least=1)
integers("Grid", grid, "batch", least=2)
integers("Grid", grid, "last", least=1)
row("Grid", "last", lambda: grid(last=5), "last must be at most the 4 positions of the shortest task")
for name in ("tasks", "makers"):
    for value in ({}, {"": task}, {1: task}):
        row("Grid", f"{name} {value}", functools.partial(grid, **{name: value}), f"{name} must be at least one")
row("Grid", "no task", lambda: grid(tasks={"t": 3}), "tasks must be tasks", ".* got 3 for 't'")
row("Grid", "no maker", lambda: grid(makers={"Kalman": 3}), "makers must be functions", ".* got 3 for 'Kalman'")
row("Grid", "reference", lambda: grid(reference="RLS"), "reference must be one of Kalman")
row("Grid", "stream", lambda: grid(stream=""), "stream must be a non-empty string")
for value in (0, 1.5, True, "2"):
    row("run", f"jobs {value!r}", lambda value=value: run_grid(grid(), jobs=value), "jobs must be an integer >= 1")


@pytest.mark.parametrize(("call", "message"), ROWS)
def test_bad_input_is_refused_by_name(call, message):
    """A bad argument raises ValueError that begins with the argument's name, says what is allowed and what it got.

    Several hundred calls: NaN, infinity, text, None, wrong shapes, sizes, ranges and dtypes, for every public function
    and class of the library.
    """
    with pytest.raises(ValueError, match=re.compile(message, re.DOTALL)):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: task.sample(2),
        lambda: stationary().sample(2),
        lambda: smooth().sample(2),
        lambda: linear().sample(2),
        lambda: switching().sample(2),
        lambda: tails().reveal(2),
        lambda: quadratics.rotation(2),
        lambda: quadratics.sample_hessians(np.eye(2), 3, 2),
        lambda: blocks(task, 2),
        lambda: layer(),
        lambda: two_streams.FullStack(2, 1, reading=two_streams.BEST, scale=0.1),
        lambda: training_of(two),
        lambda: training.fit(**whole),
        lambda: memformer.scatter(learner, 0.1),
        lambda: Held(task, 2).sample(2),
        lambda: as_published(learner, error_of, task),
        lambda: measured(2),
        lambda: risk_curve({"zero": filters.zero()}, task, 2),
        lambda: settled_risk({"zero": filters.zero()}, task, 2, last=1),
    ],
    ids=[
        *("DriftingRegression", "StationaryRegression", "SmoothDrift", "LinearDrift", "RegimeSwitching"),
        *("HeavyTailedDrift", "rotation", "sample_hessians", "blocks", "OneLayerGLA", "FullStack", "one_layer", "fit"),
        *("scatter", "Held", "as_published"),
        *("squared_error", "risk_curve", "settled_risk"),
    ],
)
def test_a_generator_cannot_be_left_out(call):
    """What is random takes a generator by keyword, and has no default for it: without one Python itself refuses."""
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'generator'"):
        call()


def test_the_profile_is_one_of_two(monkeypatch):
    """An unknown ICL_PROFILE is refused wherever the profile is asked for, with what it said."""
    monkeypatch.setenv("ICL_PROFILE", "fast")
    for ask in (profile.current, lambda: profile.pick(quick=1, paper=2), profile.device):
        with pytest.raises(ValueError, match="ICL_PROFILE must be 'quick' or 'paper', got 'fast'"):
            ask()


# Held by other files, or with nothing to refuse: arguments that are never looked into, records made by the library.
ELSEWHERE = {
    "drifts": {"Hidden"},
    "benchmark": {"CellFailed", "Expected", "Results"},
    "charts": {"theme", "Explorable", "Figure", "lines", "heatmap"},  # contract/test_charts.py
    "checkpoint": {"read", "agree", "refused"},  # contract/test_checkpoints.py
    "evidence": {
        "Claim",
        "ledger",
        "record",
        "recorded",
        "VerdictChanged",
        "Check",
        "Record",
        "library_hash",
        "sources",
    },  # test_evidence.py
    "exercises": {"SelfCheck"},
    "fitting": {"Minimum"},
    "filters": {"Filter", "Estimate", "Window", "Projection", "LeastSquares", "Sums", "Track", "zero"},
    "models.causal": {"Causal"},  # in the rows of those that are one
    "models.fast_weights": {
        *("Weights", "Heads", "Sums", "Counted", "Hidden", "Belief", "Memories", "Gate", "Cost"),  # states and results
    },
    "models.mamba": {"held", "Statistics"},  # for arguments that `scan` has looked at; made by `statistics`
    "noise": {"clean"},
    "notation": {"Symbol"},  # contract/test_notation.py
    "profile": {"current", "pick", "device"},  # above
    "series": {"Series", "Path"},  # made by the library
    "solvers": {"Solver", "Iterate", "Velocity", "LookAhead", "SemiIteration", "Conjugate"},
    "tasks": {"Task"},
    "training": {"Run", "Diverged"},
    "theory.adversary": {"Layer"},
    "theory.displays": {"Tokens", "Erratum"},
    "theory.fast_weights": {"Optimum", "Gates"},
    "theory.gla": {"Optimum", "zero_predictor"},
    "theory.mamba": {"Path"},
    "theory.moments": {"Moments"},
    "theory.population": {"Flow"},
    "theory.printed": {
        "identity_error",
        "training_error",
        "testing_error",
    },  # formulas of numbers that `moments` has checked
}
IN_ROWS = {
    "benchmark": {"Grid", "run"},
    "noise": {"Noisy"},
    "checkpoint": {"write", "described", "scratch"},
    "drifts": {"LinearDrift", "RegimeSwitching", "HeavyTailedDrift", "ar2", "two_timescales", "rotation"},
    "comparison": {"risk_curve", "settled_risk"},
    "evaluation": {"squared_error"},
    "evidence": {"claim", "folder"},
    "exercises": {"check"},
    "fitting": {"Held", "as_published", "minimise"},
    "filters": {
        *("lms", "nlms", "delta_rule", "normalised_delta_rule", "apa", "window", "rls", "ridge", "faded_ridge"),
        *("kalman", "steady_kalman", "gla", "run", "track"),
    },
    "models.gla": {
        *("decay_weights", "gram", "predict", "predict_from_gram", "features", "predict_from_features", "OneLayerGLA"),
    },
    "models.causal": {"Normalised"},
    "models.delta": {"recurrent", "chunked", "DeltaStack", "GatedDeltaStack"},
    "models.fast_weights": {
        *("LinearGate", "LengthGate", "LinearAttention", "GLA", "retention", "RetNet", "Mamba2", "GatedGLA"),
        *("DeltaRule", "GatedDelta", "Longhorn", "LFOM", "Mesa", "Kalman", "UnitKeys", "cost", "FastWeights"),
    },
    "models.gated": {"read_strictly", "GatedStack"},
    "models.layered": {"LayeredGLA", "LayeredDelta"},
    "models.linear_attention": {"recurrent", "parallel", "chunked"},
    "models.memformer": {
        *("attention", "parameters", "transformer", "one_register", "many_registers", "errors", "iterates"),
        *("token_errors", "risks", "Fixed", "Scaled", "Full", "Memory", "Without", "OneRegister", "Shared", "Free"),
        *("TokenWise", "Memformer", "scatter"),
    },
    "models.mamba": {
        *("scan", "dual", "chunked", "Selective", "Static", "Step", "FixedStep", "S6", "assumed"),
        *("weights", "statistics", "read", "features", "collapsed", "Stack"),
    },
    "models.polynomial": {"window_features"},
    "models.selected": {"Selected"},
    "models.stack": {"Stack", "factors"},
    "models.streams": {"Reading", "predictions", "FullStack"},
    "predictors": {"one_step_ahead"},
    "profile": {"streams"},
    "quadratics": {"rotation", "covariance", "regression", "hessians", "sample_hessians"},
    "series": {"prepare", "Drift", "filtered", "smoothed", "most_likely", "mean_and_error"},
    "solvers": {
        *("gradient_descent", "momentum", "nesterov", "tuned_momentum", "tuned_nesterov"),
        *("chebyshev", "chebyshev_scalars", "conjugate_gradients", "run", "conjugate_scalars"),
    },
    "tasks": {
        "Prompt",
        "InputLaw",
        "DriftingRegression",
        "StationaryRegression",
        "SmoothDrift",
        "blocks",
        "square_root",
    },
    "theory.adversary": {
        *("path_error", "step_angle", "great_circle", "straight_line", "upper_bound", "sphere_bound", "worst_path"),
        *("best_layer", "minimax_on_sphere", "minimax_in_ball"),
    },
    "theory.displays": {"Problem", "deviation"},
    "theory.fast_weights": {
        *("Steady", "gla", "normalised_gla", "delta", "unit_delta", "linear_bound", "squared_lengths", "free_gates"),
        *("zoh_gates", "Update", "update", "second_moments", "readout_errors", "gla_error", "delta_error"),
        *("gla_per_channel", "gla_shared", "delta_shared", "delta_diagonal", "kalman_errors", "eps_gla", "eps_delta"),
        *("touching_point", "touching", "kalman_large_d", "kalman", "kalman_random_walk", "delta_random_walk"),
        "rls_random_walk",
    },
    "theory.filters": {"errors", "steady_error", "best_steady"},
    "theory.floors": {"linear_drift_errors", "genie_errors", "best_linear_errors", "switching_predictions"},
    "theory.gla": {
        *("lambda_tilde", "optimum", "risk", "training_error", "identity_error", "xi"),
        *("optimal_forgetting", "kalman_pole", "steady_error"),
        *("testing_error", "error_by_direction", "forgetting_by_direction"),
        *("crosstalk", "position_weights", "position_error"),
    },
    "theory.kalman": {"expected_errors", "risk", "query_errors"},
    "theory.lfom": {
        *("wishart_moments", "optimal_risks", "optimal_polynomial", "optimal_steps", "optimal_registers", "one_layer"),
        *("floor", "fitted_registers", "gradient_descent", "momentum", "nesterov", "registers", "cumulative"),
        *("polynomials", "risks", "shared_floor"),
    },
    "theory.mamba": {
        *(
            "assumed_alpha",
            "Coefficients",
            "printed_beta2",
            "Weights",
            "population_loss",
            "gradient",
            "descend",
            "flow",
        ),
        *("effective_samples", "optimum", "least_loss", "bound", "sharper_bound", "linear_attention_loss"),
        *("lms_loss", "shifted_loss", "rate"),
    },
    "theory.moments": {"recursion", "from_kernel", "of"},
    "theory.population": {
        *("pack", "unpack", "PopulationLoss", "of", "optimum", "rank_one_trap", "sigma_bound", "assumption_1"),
        *("gradient_flow", "linear_rate"),
    },
    "theory.printed": {"D1", "D2", "D3", "D4"},
    "training": {"AdamW", "Config", "deep", "fit", "one_layer"},
}


def test_no_function_of_the_library_is_forgotten():
    """Every public function and class of the library is in the table of bad calls, or named as held by another test."""
    root = Path(icl.__file__).parent
    public = {}
    for path in root.rglob("[!_]*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {
            n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_")
        }
        public[".".join(path.relative_to(root).with_suffix("").parts)] = names
    covered = {
        file: IN_ROWS.get(file, set()) | ELSEWHERE.get(file, set()) for file in IN_ROWS.keys() | ELSEWHERE.keys()
    }
    assert public == covered
