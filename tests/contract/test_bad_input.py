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
from icl import evidence, exercises, filters, profile, training
from icl.evaluation import squared_error
from icl.models import gla as model
from icl.models import linear_attention
from icl.tasks import (
    LAPLACE,
    RADEMACHER,
    UNIFORM,
    DriftingRegression,
    InputLaw,
    Prompt,
    SmoothDrift,
    StationaryRegression,
    blocks,
    square_root,
)
from icl.theory import gla, kalman, moments, population, printed

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

for where, make in (("DriftingRegression", drift), ("StationaryRegression", stationary), ("SmoothDrift", smooth)):
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
numbers("of", functools.partial(moments.of, task), "lam", wrong=NOT_REAL, outside=[-0.1])
skewed = stationary(Sigma_w=np.diag([4.0, 1.0]))
row("of", "weights with a covariance", lambda: moments.of(skewed, 0.9), "Sigma_w must be the identity", "")

for function in (gla.lambda_tilde, gla.optimum):
    numbers(function.__name__, functools.partial(function, task), "lam", outside=[-0.1, 0.0])
for function in (gla.xi, gla.identity_error):
    numbers(function.__name__, functools.partial(function, task), "lam", wrong=NOT_REAL, outside=[-0.1, 0.0])
for function in (gla.training_error, gla.error_by_direction):
    numbers(function.__name__, functools.partial(function, task), "lam", wrong=NOT_REAL, outside=[-0.1])
numbers("risk", functools.partial(gla.risk, np.eye(2), task), "lam", wrong=NOT_REAL, outside=[-0.1])
row("risk", "A of another size", lambda: gla.risk(np.eye(3), task, lam=0.9), r"A must have shape \(2, 2\)")
row("risk", "A NaN", lambda: gla.risk(np.full((2, 2), NAN), task, lam=0.9), "A must be finite")
still = drift(sigma_w=0.0, sigma_e=0.0)
row("optimum", "no weights at all", lambda: gla.optimum(still, lam=0.9), "Lambda~ is singular for this task", "")
row(
    "optimum",
    "no inputs at all",
    lambda: gla.optimum(drift(Lambda=np.zeros((2, 2))), lam=0.9),
    "Lambda~ is singular",
    "",
)
for function in (gla.optimal_forgetting, gla.forgetting_by_direction):
    numbers(function.__name__, functools.partial(function, task), "upper", outside=[-0.1, 0.0])
shifted = functools.partial(gla.testing_error, task, task, **{"lam": 0.9, "test_lam": 0.9})
numbers("testing_error", shifted, "lam", outside=[-0.1, 0.0])
numbers("testing_error", shifted, "test_lam", wrong=NOT_REAL, outside=[-0.1])
row(
    "testing_error",
    "tasks of two sizes",
    lambda: gla.testing_error(task, drift(d=3), lam=0.9, test_lam=0.9),
    "test must have the d of train, 2",
    "got 3",
)
row("testing_error", "no weights", lambda: gla.testing_error(still, task, lam=0.9, test_lam=0.9), "Lambda~ is", "")
flat = drift(Lambda=np.diag([2.0, 0.0]))
for function in (gla.crosstalk, gla.position_weights, gla.position_error):
    singular = "Lambda must be positive definite here, its smallest eigenvalue is 0"
    row(function.__name__, "a direction without inputs", functools.partial(function, flat), singular, "")
    row(function.__name__, "weights with a covariance", functools.partial(function, skewed), "Sigma_w must be the")
for function in (gla.position_weights, gla.position_error):
    for label, nothing in (
        ("no weights at all", still),
        ("weights that one sign tells", stationary(d=1, inputs=RADEMACHER)),
    ):
        unique = r"K \+ c diag K is singular for this task"
        row(function.__name__, label, functools.partial(function, nothing), unique, "")
pole = functools.partial(gla.kalman_pole, **{"gamma": 0.9, "crosstalk": 2.0})
numbers("kalman_pole", pole, "gamma", wrong=NOT_REAL, outside=[-0.1, 0.0, 1.0, 1.1])
numbers("kalman_pole", pole, "crosstalk", wrong=NOT_REAL, outside=[-1.0, 0.0])
tilted = drift(Lambda=np.diag([2.0, 1.0]))
for function in (gla.steady_error, functools.partial(gla.identity_error, lam=0.9)):
    row(
        "the identity's errors",
        f"anisotropic {function}",
        functools.partial(function, tilted),
        "Lambda must be the",
        "",
    )
row("steady_error", "no steady state", lambda: gla.steady_error(drift(gamma=1.0)), "gamma must be < 1", "got 1.0")

xs = np.zeros((2, 4, 2))
for function in (lambda x: kalman.expected_errors(x, task), lambda x: kalman.risk(task, x)):
    row("kalman", "x of two axes", functools.partial(function, xs[0]), r"x must have shape \(any, any, 2\)")
    row(
        "kalman",
        "x of another d",
        functools.partial(function, np.zeros((2, 4, 3))),
        r"x must have shape \(any, any, 2\)",
    )
    row("kalman", "x NaN", functools.partial(function, xs + NAN), "x must be finite")
row("kalman.risk", "one sequence", lambda: kalman.risk(task, xs[:1]), "x must hold at least two sequences", "got 1")

row(
    "query_errors",
    "x of two axes",
    lambda: kalman.query_errors(xs[0], task),
    r"x must have shape \(any, 4, 2\) to match the task",
)
row("query_errors", "x of another n", lambda: kalman.query_errors(xs[:, 1:], task), r"x must have shape \(any, 4, 2\)")
row(
    "query_errors", "x of another d", lambda: kalman.query_errors(xs[..., 1:], task), r"x must have shape \(any, 4, 2\)"
)
row("query_errors", "x NaN", lambda: kalman.query_errors(xs + NAN, task), "x must be finite")
row("query_errors", "weights with a covariance", lambda: kalman.query_errors(xs, skewed), "Sigma_w must be the")

for function in (population.of, population.optimum, population.rank_one_trap):
    name = f"population.{function.__name__}"
    numbers(name, functools.partial(function, task), "lam", outside=[-0.1, 0.0])
    row(name, "weights with a covariance", functools.partial(function, skewed, lam=0.9), "Sigma_w must be the", "")
for law in (UNIFORM, RADEMACHER, LAPLACE):
    other = functools.partial(population.of, drift(inputs=law), lam=0.9)
    row("population.of", f"{law.name} inputs", other, "inputs must be Gaussian", f"got {law.name}")
for label, nothing in (("no weights at all", still), ("no inputs at all", drift(Lambda=np.zeros((2, 2))))):
    for function in (population.optimum, population.rank_one_trap):
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
loss = population.of(task, lam=0.9)
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
training_of = functools.partial(training.one_layer, task, **fixed)
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

form = {"lam": 0.5, "gamma": 0.9, "n": 3, "sigma_w": 1.0, "sigma_e": 0.1}
for name, function in (("D1", printed.D1), ("D2", printed.D2), ("D3", printed.D3)):
    numbers(name, functools.partial(function, **form), "lam", outside=[0.0, -0.5])
for name, function in (("D1", printed.D1), ("D2", printed.D2), ("D3", printed.D3), ("D4", printed.D4)):
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
for name, function in (("D2", printed.D2), ("D3", printed.D3)):
    row(name, "no such erratum", functools.partial(function, **form, mend={9}), "mend must hold numbers of errata", "9")

q, v, one = torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 4, 6), torch.ones(1, 1, 1)
for name in ("recurrent", "parallel", "chunked"):
    function = getattr(linear_attention, name)
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
integers("chunked", functools.partial(linear_attention.chunked, q, q, v, one), "size", least=1)

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
    ("apa", functools.partial(filters.apa, K=2), "mu", [-0.1, 0.0]),
    ("rls", filters.rls, "lam", [-0.1, 0.0, 1.1]),
):
    numbers(where, make, name, wrong=NOT_REAL | {"true": True}, outside=outside)
    for entry in (NAN, *outside):
        several = functools.partial(make, torch.tensor([[0.5], [entry]], dtype=torch.float64))
        row(where, f"{name} with an entry {entry}", several, f"{name} must be finite and > 0", re.escape(f"({entry})"))
numbers("nlms", functools.partial(filters.nlms, 0.5), "eps", outside=[-0.1])
numbers("apa", functools.partial(filters.apa, 0.5, K=2), "eps", outside=[-0.1, 0.0])
numbers("rls", functools.partial(filters.rls, 0.9), "eps", outside=[-0.1, 0.0])
integers("apa", functools.partial(filters.apa, 0.5), "K", least=1)
for where, filter in (("run", filters.lms(0.1)), ("run RLS", filters.rls(0.9))):
    inputs, labels = x.double(), y.double()
    for label, of_x, of_y, message in (
        ("y too short", inputs, labels[:, 1:], r"y must have shape \(2, 4\) to match x"),
        ("y with an axis more", inputs, labels[None], r"y must have shape \(2, 4\) to match x"),
        ("y of another batch", inputs, labels[:1], r"y must have shape \(2, 4\) to match x"),
        ("y of another dtype", inputs, y, "y must have dtype torch.float64 to match x"),
        ("x of one axis", inputs[0, 0], labels[0, 0], r"x must have shape \(\*trials, time, d\) with time >= 1"),
        ("no position", inputs[:, :0], labels[:, :0], r"x must have shape \(\*trials, time, d\) with time >= 1"),
        ("x NaN", inputs + NAN, labels, "x must be finite, got nan"),
        ("y infinite", inputs, labels - INF, "y must be finite, got -inf"),
    ):
        row(where, label, functools.partial(filters.run, filter, of_x, of_y), message, "")
row("run RLS", "float32", lambda: filters.run(filters.rls(0.9), x, y), "x must have dtype torch.float64 for RLS")

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

row("streams", "no name", lambda: profile.streams(""), "name must be a non-empty string")
integers("streams", functools.partial(profile.streams, "x"), "seed", least=0)
row("check", "no cases", lambda: exercises.check(len, len, []), "cases must hold at least one dict", "")
row("claim", "of no such name", lambda: evidence.claim("gla.nothing"), "no claim 'gla.nothing'", "")
row("folder", "of no such name", lambda: evidence.folder("nothing"), "no folder 'nothing'", "")


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
        lambda: blocks(task, 2),
        lambda: layer(),
        lambda: training_of(two),
        lambda: measured(2),
    ],
    ids=[
        *("DriftingRegression", "StationaryRegression", "SmoothDrift", "blocks", "OneLayerGLA", "one_layer"),
        "squared_error",
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
    "charts": {"theme", "Explorable", "Figure", "lines", "heatmap"},  # contract/test_charts.py
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
    "filters": {"Filter", "Estimate", "Window", "LeastSquares"},
    "notation": {"Symbol"},  # contract/test_notation.py
    "profile": {"current", "pick", "device"},  # above
    "tasks": {"Task"},
    "theory.gla": {"Optimum", "zero_predictor"},
    "theory.moments": {"Moments"},
    "theory.population": {"Flow"},
    "theory.printed": {
        "identity_error",
        "training_error",
        "testing_error",
    },  # formulas of numbers that `moments` has checked
}
IN_ROWS = {
    "evaluation": {"squared_error"},
    "evidence": {"claim", "folder"},
    "exercises": {"check"},
    "filters": {"lms", "nlms", "apa", "rls", "run"},
    "models.gla": {
        *("decay_weights", "gram", "predict", "predict_from_gram", "features", "predict_from_features", "OneLayerGLA"),
    },
    "models.linear_attention": {"recurrent", "parallel", "chunked"},
    "profile": {"streams"},
    "tasks": {
        "Prompt",
        "InputLaw",
        "DriftingRegression",
        "StationaryRegression",
        "SmoothDrift",
        "blocks",
        "square_root",
    },
    "theory.gla": {
        *("lambda_tilde", "optimum", "risk", "training_error", "identity_error", "xi"),
        *("optimal_forgetting", "kalman_pole", "steady_error"),
        *("testing_error", "error_by_direction", "forgetting_by_direction"),
        *("crosstalk", "position_weights", "position_error"),
    },
    "theory.kalman": {"expected_errors", "risk", "query_errors"},
    "theory.moments": {"recursion", "from_kernel", "of"},
    "theory.population": {
        *("pack", "unpack", "PopulationLoss", "of", "optimum", "rank_one_trap", "sigma_bound", "assumption_1"),
        *("gradient_flow", "linear_rate"),
    },
    "theory.printed": {"D1", "D2", "D3", "D4"},
    "training": {"AdamW", "one_layer"},
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
