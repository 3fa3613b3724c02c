"""Bad arguments are refused at the door, by name. Longer than most: an entry for all that a signature cannot say.

The refusals are derived, one test a public function, class or method, found by walking the library. Each has one valid
call, made from its annotations and a table of fixtures; then each argument is given what its annotation and its
declared bound exclude, and the call has to raise ValueError that names the argument and says what it got. A failure
lists every wrong value that was let in, or refused in other words.

A bound is declared in the annotation (`lam: PositiveUnit`, `mu: Annotated[float, Gt(0)]`); a number whose annotation
declares none turns its test red.

The hook that checks annotations is stood down here, so that the library's own checks speak.
"""

import collections.abc
import functools
import importlib
import inspect
import json
import math
import pkgutil
import re
import tempfile
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path

import jaxtyping
import numpy as np
import pandas as pd
import pytest
import torch

import icl
import icl_bench
import icl_book
from icl import _bounds, convex, filters, linear_gaussian, profile, self_tuning, solvers
from icl.experiments import checkpoint, evaluation, grid, training, training_variants, tuning
from icl.models import (
    causal,
    convolved,
    delta_layers,
    experts,
    fast_weights,
    first_order,
    flops,
    loading,
    memformer,
    one_layer,
    operators,
    paper_conventions,
    pointwise,
    scalar_heads,
    stacks,
    streaming_stacks,
    surgery,
    token_form,
)
from icl.models import s6 as mamba
from icl.tasks import components, core, drifts, mixtures, noise, objectives, quadratics, rules, sentences, series, text
from icl.tasks import unknown_drift as unknown_drift_task
from icl.theory import floors, lfom, moments
from icl.theory import s6 as closed
from icl.theory.errata import adaptation, erratum, memory
from icl.theory.floors import gaussian_mixtures, joint, label_rule, unknown_drift
from icl.theory.gates import finite_key_gates, key_gates
from icl.theory.lfom import gated_floor, learnability, polynomial_floor
from icl.theory.one_layer import adversary, population, separate_qk, sign_flips
from icl.theory.one_layer import closed_forms as theory_one_layer
from icl.theory.steady import cheap_covariance, large_d, linear_layers, mesa, spectra
from icl.theory.steady import fast_weights as fast
from icl.theory.steady import lms_family as exact
from icl_bench import (
    adapters,
    budgets,
    catalogue,
    command,
    comparison,
    costs,
    custom_task,
    entries,
    imports,
    leaderboard,
    report,
    results,
    runner,
    sequence,
    training_jobs,
    validation,
)
from icl_bench import floors as bench_floors
from icl_bench import tasks as bench_tasks
from icl_book import charts, claims, closure, exercises, grading, notation, prose, records
from icl_book.chapters import (
    attention_swap,
    coefficient_fit,
    distribution_shift,
    importance_sampling,
    key_gated_layers,
    rule_models,
    text_finetuning,
)

pytestmark = pytest.mark.usefixtures("as_installed")

NAN, INF = float("nan"), float("inf")
OURS = ("icl.", "icl_bench.", "icl_book.")
PERHAPS = None  # in place of a message: what may be taken, and if not is refused by name


def described(documented):
    """What a docstring says of each argument; a class's fields may be said by its bases."""
    said, names, inside = {}, [], False
    if inspect.isclass(documented):
        for base in reversed(documented.__bases__):
            said |= described(base) if base.__module__.startswith(OURS) else {}
    for line in inspect.cleandoc(documented.__doc__ or "").splitlines():
        if re.fullmatch(r"\w+:", line):
            names, inside = [], line in ("Args:", "Attributes:")
        elif inside and (found := re.match(r"    (\w+(?:, \w+)*): (.*)", line)):
            names = found[1].split(", ")
            said |= dict.fromkeys(names, found[2])
        elif inside and line.strip():
            said |= {name: f"{said[name]} {line.strip()}" for name in names}
    return said


# What is public.


def public():
    """Every public function and class of the library and every public method, by dotted name: what, and of which class.

    A class has the methods of its bases too.
    """
    found = {}
    rooms = [
        room
        for package in (icl, icl_bench, icl_book)
        for room in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    for room in rooms:
        for name, thing in vars(importlib.import_module(room.name)).items():
            where = getattr(thing, "__module__", "")
            if name.startswith("_") or not where.startswith(OURS) or "._" in where:
                continue
            dotted = f"{where}.{getattr(thing, '__qualname__', '')}"
            if inspect.isfunction(thing):
                found[dotted] = thing, None
            elif inspect.isclass(thing) and not issubclass(thing, Exception):
                found[dotted] = thing, None
                for method in dir(thing):
                    function = inspect.getattr_static(thing, method)
                    own = inspect.isfunction(function) and function.__module__.startswith(OURS)
                    if own and not method.startswith("_") and len(inspect.signature(function).parameters) > 1:
                        found[f"{dotted}.{method}"] = function, thing
    return found


# One valid call.


@dataclass
class Entry:
    """What a signature cannot say.

    given:  arguments of the valid call, where annotation and name lead to others, or a function of the method's object.
    sizes:  of named axes, where they differ from SIZES.
    also:   refusals that no annotation implies: changed arguments, and how the message begins.
    free:   what is let through. "all" of an argument; or of an array "nan", numbers that are not looked at, "dtype",
            "empty", or the name of an axis whose length need not agree; or the repr of a value.
    """

    given: typing.Any = field(default_factory=dict)
    sizes: dict = field(default_factory=dict)
    also: typing.Any = ()
    free: dict = field(default_factory=dict)


ENTRIES: dict[typing.Any, Entry] = {}


def entry(*functions, **special):
    """Keep what is special about these functions and classes, and (class, name of a method)."""
    for function in functions:
        assert function not in ENTRIES, function
        ENTRIES[function] = Entry(**special)


def rows(name, message, *values):
    """Refusals of one argument for one reason."""
    return [({name: value}, f"{name} {message}") for value in values]


@dataclass
class Call:
    """A callable, arguments that it takes, and what is known of each."""

    function: typing.Any
    given: dict
    parameters: dict
    entry: Entry
    said: dict
    hints: dict
    finite: bool
    owner: typing.Any

    def __call__(self, **changes):
        """Call it; a generator is drawn from, because its checks run only then."""
        result = self.function(**self.given | changes)
        return list(result) if inspect.isgenerator(result) else result

    def has_tensors_beside(self, name):
        """Whether other tensors, or a model's, have to share the dtype of this one."""
        others = [value for key, value in self.given.items() if key != name]
        return any(isinstance(value, torch.Tensor) for value in others) or isinstance(self.owner, torch.nn.Module)

    def has_sizes(self):
        """Whether a task, a law or a model among its arguments, or whose method it is, says the size of inputs."""
        return any(hasattr(value, "d") for value in (self.owner, *self.given.values()))


def members(annotation):
    """The members of a union, or the one annotation; of one with a bound what it bounds."""
    if typing.get_origin(annotation) is typing.Annotated:
        return members(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [member for part in typing.get_args(annotation) for member in members(part)]
    return [annotation]


def is_array(annotation):
    """Whether an annotation has a shape."""
    return inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray)


def call_of(function, kind):
    """The valid call of a function or class, or of a method of a class."""
    special = ENTRIES.get((kind, function.__name__)) or ENTRIES.get(function) or Entry()
    instance = made(kind) if kind else None
    target = getattr(instance, function.__name__) if kind else function
    hints = typing.get_type_hints(function.__init__ if inspect.isclass(function) else function, include_extras=True)
    parameters = {
        name: parameter.replace(annotation=hints.get(name, parameter.annotation))
        for name, parameter in inspect.signature(target).parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    given = dict(special.given(instance) if inspect.isfunction(special.given) else special.given)
    for name, parameter in parameters.items():
        shaped = any(is_array(option) for option in members(parameter.annotation))
        if name not in given and (parameter.default is parameter.empty or shaped):
            given[name] = value_of(name, parameter, special, instance)
    said = (described(kind) if kind else {}) | described(function)
    finite = not function.__module__.startswith(icl.models.__name__)
    return Call(target, given, parameters, special, said, hints, finite, instance)


def made(kind):
    """A valid object of a class."""
    return FIXTURES[kind]() if kind in FIXTURES else call_of(kind, None)()


def value_of(name, parameter, special, instance):
    """A valid argument: by its annotation where that is enough, by its name, which means one thing here, elsewhere."""
    for option in members(parameter.annotation):
        if is_array(option):
            return array_of(name, option, special, instance)
    if name in NAMED:
        return NAMED[name](instance) if inspect.isfunction(NAMED[name]) else NAMED[name]
    for option in members(parameter.annotation):
        option = typing.get_origin(option) or option
        if option in FIXTURES or (inspect.isclass(option) and option.__module__.startswith(OURS)):
            return made(option)
        if option is int:
            return SIZES.get(name, 2)
        if option is bool:
            return False
    raise LookupError(f"no valid value for {name}: {parameter.annotation}; an entry has to give one")


def axes_of(annotation):
    """The named axes of an array, without their signs; those of any number are left out."""
    return [axis.lstrip("#") for axis in annotation.dim_str.split() if "*" not in axis and axis != "..."]


def array_of(name, annotation, special, instance):
    """Normal numbers of the annotated shape; the identity where a matrix has to be symmetric."""
    shape = [(SIZES | special.sizes)[axis] for axis in axes_of(annotation)]
    values = np.random.default_rng(0).standard_normal(shape)
    if name in SYMMETRIC:
        values = np.eye(shape[-1]) + np.zeros(shape)
    if name in POSITIVE:
        values = abs(values)
    if annotation.dtype is jaxtyping.Bool:
        values = values > 9
    if annotation.array_type is torch.Tensor:
        tensor = torch.from_numpy(values)
        return tensor if values.dtype == bool else tensor.to(dtype_of(instance))
    return values


def dtype_of(instance):
    """The dtype of a model's numbers; float32 without a model."""
    kept = [*instance.parameters(), *instance.buffers()] if isinstance(instance, torch.nn.Module) else []
    return kept[0].dtype if kept else torch.float32


# What has to be refused.


def refusals(call):
    """All that has to be refused: what is wrong, the changed arguments, and the pattern of the message."""
    for name, parameter in call.parameters.items():
        if name == "device":  # torch's own to refuse
            continue
        free = call.entry.free.get(name, ())
        free = (free,) if isinstance(free, str) else free
        if "all" not in free:
            for what, value, message in wrong(name, parameter, call, free):
                if what not in free:
                    yield f"{name} {what}", {name: value}, message
    also = call.entry.also(call) if inspect.isfunction(call.entry.also) else call.entry.also
    for changes, message in also:
        yield ", ".join(f"{name} = {value!r:.40}" for name, value in changes.items()), changes, f"^{message}"


def wrong(name, parameter, call, free):
    """What one argument must not be."""
    options = members(parameter.annotation)
    own = rf"^{name}\b.* (must|needs|has) "
    if types.NoneType not in options and parameter.default is not None and typing.Any not in options:
        yield "None", None, own
    shaped = [option for option in options if is_array(option)]
    if shaped:
        yield from wrong_arrays(name, shaped[0], call, free, own)
    elif bound := bound_of(name, options, call):
        yield from wrong_numbers(options, bound, own)
    elif covariance := COVARIANCE.search(call.said.get(name, "")):
        yield from wrong_covariances(own, singular="positive definite" in covariance.string)
    yield from wrong_kinds(call.given.get(name), shaped)
    for option in options:
        origin = typing.get_origin(option) or option
        if origin is bool:
            values = (1, "no")
        elif origin is torch.dtype:
            values = (torch.float16, torch.int64)
        elif origin is str:
            values = (3, "")
        elif origin is torch.Generator:
            values = (0, np.random.default_rng(0))
        elif origin in (
            collections.abc.Callable,
            collections.abc.Mapping,
            collections.abc.Sequence,
            Path,
            pd.DataFrame,
        ):
            values = (1.5, object()) if not {int, float} & set(options) and not shaped else ()
        elif inspect.isclass(origin) and (origin in FIXTURES or origin.__module__.startswith(OURS)):
            values = (0, "text", origin)
        else:
            values = ()
        yield from ((f"{value!r:.40}", value, own) for value in values)


def wrong_kinds(good, shaped):
    """Numbers in another container than the annotation's: taken or refused by name, but never stumbled over."""
    if shaped and good is not None:
        array = np.asarray(good.detach() if torch.is_tensor(good) else good)
        yield "as a list", array.tolist(), PERHAPS
        yield "of the other library", array if torch.is_tensor(good) else torch.as_tensor(array), PERHAPS
        if array.dtype.kind == "f":
            yield "that waits for a gradient", torch.as_tensor(array).clone().requires_grad_(), PERHAPS
    for value in ([1.0], object(), torch.eye(2, requires_grad=True)):
        yield f"{value!r:.40}", value, PERHAPS


def bound_of(name, options, call):
    """The bound that an annotation declares of a number, None for what is none; LookupError if none is declared."""
    if declared := _bounds.bound_of(call.hints.get(name)):
        return declared[1]
    if {int, float} & set(options):
        raise LookupError(f"no bound of {name} is declared in its annotation")
    return None


COVARIANCE = re.compile(r"\((\w), \1\) covariance.*")


def quoted(value):
    """A number or a text as a message quotes it."""
    return ".*got .*" + re.escape(str(value))


def outside(bound):
    """Numbers that are out of a bound: an end that is, and two beyond each."""
    for end, inside, sign in ((bound.low, bound.low_in, -1), (bound.high, bound.high_in, 1)):
        if math.isfinite(end):
            yield from ([] if inside else [end])
            yield from (end + 0.1 * sign, end + sign)


def wrong_numbers(options, bound, own):
    """What is no number within the bound."""
    if int in options and float not in options:
        least = int(bound.low if bound.low_in else bound.low + 1)
        says = rf"{own}be an integer >= {least}"
        for value in (least - 1, float(least), str(least), True, NAN, *outside(bound)):
            yield repr(value), value, says + quoted(value)
        yield "a list", [least], says
        return
    for value in (NAN, INF, -INF, 1j, "0.5", True, *outside(bound)):
        yield repr(value), value, own + quoted(value)
    kinds = {option for option in options if option is not types.NoneType}
    if kinds == {float}:
        yield "an array", np.array([0.5, 0.6]), own
    if typing.Any in kinds or np.ndarray in kinds:
        for value in (NAN, *outside(bound)):
            yield f"an array with {value!r}", np.array([0.5, value]), own
    if torch.Tensor in kinds:
        for value in (NAN, *outside(bound)):
            yield f"a tensor with {value!r}", torch.tensor([[0.5], [value]], dtype=torch.float64), own
    else:
        yield "a tensor of a gradient", torch.tensor(0.5, requires_grad=True), own


def wrong_covariances(own, *, singular):
    """What is no covariance of two numbers."""
    yield "of three", np.eye(3), own
    yield "a vector", np.ones(2), own
    yield "not square", np.ones((2, 3)), own
    yield "asymmetric", [[1.0, 0.5], [0.4, 1.0]], own + "be symmetric, its largest asymmetry is 0.1"
    yield "indefinite", [[1.0, 2.0], [2.0, 1.0]], own + ".*eigenvalue is -1"
    yield "with nan", [[NAN, 0.0], [0.0, 1.0]], own + "be finite, got"
    yield "with inf", [[INF, 0.0], [0.0, 1.0]], own + "be finite, got"
    yield "complex", np.eye(2) * 1j, own
    yield "a text", "identity", own
    yield "a tensor of a gradient", torch.eye(2, requires_grad=True), own
    if singular:
        yield "singular", [[1.0, 1.0], [1.0, 1.0]], own


def wrong_arrays(name, annotation, call, free, own):
    """What an array of named axes must not be."""
    good = call.given[name]
    somewhere = rf"\b({'|'.join(call.parameters)})\b.* must "  # of two that disagree either may be named
    for value in ("text", 1.0, object, [[1.0, "a"]]):
        yield repr(value), value, own
    variadic = "..." in annotation.dim_str or "*" in annotation.dim_str
    if not variadic:
        yield "with an axis more", good[None], own
    if good.ndim:
        if not variadic:
            yield "with an axis less", good[0], somewhere
        yield "empty", good[:0], PERHAPS
    if isinstance(good, torch.Tensor):
        cast = torch.as_tensor
        if good.is_floating_point():
            if call.has_tensors_beside(name):
                yield (
                    "of another dtype",
                    good.to(torch.float64 if good.dtype != torch.float64 else torch.float32),
                    somewhere,
                )
            yield "of integers", good.long(), PERHAPS
    else:
        cast = np.asarray
        if good.dtype != bool:
            yield "complex", good * 1j, own
            yield "of text", good.astype(str), own
    if good.dtype not in (bool, torch.bool) and "nan" not in free and call.finite:
        for value in (NAN, INF):
            spoilt = cast(good).detach().clone() if isinstance(good, torch.Tensor) else good.copy()
            spoilt[(-1,) * good.ndim] = value
            yield f"with {value}", spoilt, own + ".*finite"
    axes = axes_of(annotation)
    known = [axis for other in call.parameters for axis in call_axes(call, other)]
    for place, axis in enumerate(axes):
        if known.count(axis) > 1 or (axis in ("d", "tokens") and call.has_sizes()):
            at = place - len(axes)
            longer = np.concatenate([np.asarray(good.detach() if torch.is_tensor(good) else good)] * 7, axis=at)
            yield f"with {axis} seven times at {at}", cast(longer), somewhere


def call_axes(call, name):
    """The axes of an argument that is given."""
    options = [option for option in members(call.parameters[name].annotation) if is_array(option)]
    return axes_of(options[0]) if options and call.given.get(name) is not None else []


# The table.

# Lengths of axes by name, and of what an int counts.
SIZES = {"d": 2, "n": 3, "N": 3, "batch": 2, "time": 4, "tokens": 3, "width": 3, "channels": 3, "d_e": 3, "d_h": 4}
SIZES |= {"heads": 1, "key": 2, "value": 2, "L": 2, "layers": 2, "K": 2, "m": 2, "kinds": 3, "looks": 2, "phases": 1}
SIZES |= {"models": 2, "lams": 1, "1": 1, "rows": 20, "columns": 2, "steps": 2, "total": 3, "count": 2, "size": 2}
SYMMETRIC = {"H", "Sigma", "kernel", "M"}
POSITIVE = {"decay", "variance", "spectrum"}

# What a name stands for, in every signature: a number, or a function of the object whose method is called.
NAMED = {
    **{"lam": 0.9, "gamma": 0.9, "sigma_w": 1.0, "sigma_e": 0.1, "sigma_y": 0.1, "mu": 0.1, "eps": 0.1, "eta": 0.1},
    **{"beta": 0.5, "alpha": 0.9, "kurtosis": 3.0, "R": 1.0, "delta": 0.1, "a": 0.1, "scale": 0.1, "omega": 0.5},
    **{"rho": 0.9, "s": 1.0, "v": 0.1, "zeta": 1.0, "nu": 0.1, "theta": 1.0, "q": 0.1, "s2": 0.1},
    **{"test_lam": 0.9, "low": 1.0, "high": 2.0, "sigma": 0.5, "D1": 1.0, "Delta": 0.1, "P_0": 1.0},
    "dtype": torch.float32,
    "generator": lambda _: profile.make_generator("x"),
    "state": lambda layer: layer.start(2),
}
PLAIN = core.DriftingRegression(d=2, n=3, gamma=0.9)
SKEWED = core.StationaryRegression(d=2, n=3, Sigma_w=np.diag([4.0, 1.0]))
STILL = core.DriftingRegression(d=2, n=3, gamma=0.9, sigma_w=0.0, sigma_e=0.0)
DARK = core.DriftingRegression(d=2, n=3, gamma=0.9, Lambda=np.zeros((2, 2)))
FLAT = core.DriftingRegression(d=2, n=3, gamma=0.9, Lambda=np.diag([2.0, 0.0]))
TILTED = core.DriftingRegression(d=2, n=3, gamma=0.9, Lambda=np.diag([2.0, 1.0]))
WALK = core.DriftingRegression(d=2, n=3, gamma=1.0)
WIDE = core.DriftingRegression(d=3, n=3, gamma=0.9)
SMOOTH = core.SmoothDrift(d=2, n=3)
SWINGING = drifts.ar2(2, 3, rho=0.9, omega=0.5)


def prompt_of(given):
    """Two prompts of a task."""
    return given.sample(2, generator=profile.make_generator("x"))


def s6(d=2, dtype=torch.float32, **changes):
    """One S6 layer for inputs of dimension d, its rate and step fixed."""
    parts = {name: mamba.Selective(d + 1, 4, dtype=dtype) for name in "BC"}
    return mamba.S6(**parts | {"step": mamba.FixedStep(0.1, dtype=dtype), "A": -torch.ones(1, dtype=dtype)} | changes)


# An object of each class that a signature asks for, and that is not simply made from numbers.
FIXTURES = {
    core.Task: lambda: PLAIN,
    core.DriftingRegression: lambda: PLAIN,
    core.InputLaw: lambda: core.GAUSSIAN,
    core.Prompt: lambda: prompt_of(PLAIN),
    torch.Generator: lambda: profile.make_generator("x"),
    torch.nn.Module: lambda: torch.nn.Linear(2, 1, bias=False),
    filters.Filter: lambda: filters.lms(0.1),
    solvers.Solver: lambda: solvers.gradient_descent(0.1),
    training_variants.FixedBatch: lambda: training_variants.FixedBatch(PLAIN, 99),
    causal.Causal: lambda: stacks.Stack(2, 2),
    fast_weights.Gate: lambda: fast_weights.LinearGate(2),
    fast_weights.FastWeights: lambda: delta_layers.DeltaRule(2, lam=0.9, mu=0.1),
    mamba.S6: s6,
    mamba.Statistics: lambda: mamba.statistics(prompt_of(PLAIN), s6()),
    memformer.Memory: lambda: memformer.Shared(2),
    paper_conventions.Convention: lambda: paper_conventions.BEST,
    moments.Moments: lambda: moments.task_moments(PLAIN, 0.9),
    population.PopulationLoss: lambda: population.layer_loss(PLAIN, lam=0.9),
    separate_qk.SeparateLoss: lambda: separate_qk.separate_loss(PLAIN, width=2),
    memory.Tokens: lambda: memory.Tokens(*3 * (np.zeros((2, 3, 4)),)),
    closed.S6Weights: lambda: closed.S6Weights(0.1 * np.ones((4, 3)), 0.1 * np.ones((4, 3)), np.zeros(4), np.zeros(4)),
}

# Not asked: results and states that the library makes itself, and what other tests hold.
MADE_HERE = {
    *(
        grid.Expected,
        grid.Results,
        drifts.DrawnSteps,
        bench_floors.RevealedPrompt,
        training_jobs.Job,
        training_jobs.JobResult,
        training_jobs.JobSpec,
        catalogue.Known,
        entries.Contestant,
        runner.Plan,
        costs.MeasuredCost,
        claims.Check,
        claims.Claim,
        records.Record,
    ),
    *(
        exercises.SelfCheck,
        training_variants.Minimum,
        distribution_shift.Adapted,
        components.ComponentPrompt,
        gaussian_mixtures.InputNodes,
        notation.Symbol,
        coefficient_fit.CoefficientFit,
        series.Series,
        series.WeightPath,
    ),
    *(filters.Filter, filters.Estimate, filters.LeastSquares, filters.Window, filters.Projection, filters.FadedSums),
    *(self_tuning.Gauged, self_tuning.Meta, self_tuning.Mixed, self_tuning.KalmanBank, unknown_drift.Bank),
    *(filters.Track, solvers.Solver, solvers.Iterate, solvers.Velocity, solvers.LookAhead, solvers.SemiIteration),
    *(solvers.Conjugate, fast_weights.Weights, fast_weights.Heads, fast_weights.MesaState, fast_weights.LFOMState),
    *(fast_weights.S6State, fast_weights.KalmanState, fast_weights.Memories, flops.Cost, mamba.Statistics),
    *(
        adversary.Layer,
        memory.Tokens,
        erratum.Erratum,
        memory.Display,
        fast.SteadyOptimum,
        fast.Gates,
        mesa.BestMesa,
        key_gates.GateBound,
        cheap_covariance.Tracked,
        theory_one_layer.Optimum,
        gated_floor.LeastRisk,
        gated_floor.Bracket,
        closed.DescentPath,
    ),
    *(
        moments.Moments,
        population.PopulationLoss,
        population.Flow,
        separate_qk.SeparateLoss,
        separate_qk.SeparateFlow,
        training.Run,
        tuning.Tuned,
    ),
    *(checkpoint.checkpoint_error, profile.by_profile),
    *(surgery.TextState, surgery.AllTokens, loading.Sizes),
    *(
        rules.WordPrompt,
        rule_models.Trained,
        text.TextPrompt,
        attention_swap.SwapVariant,
        attention_swap.SwapStage,
        text_finetuning.JudgedText,
    ),
}
ELSEWHERE = {
    *(charts.Explorable, charts.Figure, charts.lines, charts.heatmap, charts.dots),  # the tests of charts
    *(exercises.seal, prose.Said, grading.earn),  # of exercises, of prose, of graded exercises
    *(checkpoint.write, checkpoint.read, checkpoint.check_compatible),  # of checkpoints
    # of language models, which take seconds to import
    *(surgery.with_attention, surgery.forgetting, surgery.logits_at, surgery.generate),
    *(loading.pretrained, loading.untrained, loading.sizes),
    *(rule_models.blank_model, rule_models.train_variant, rule_models.compare_variants),
    *(rule_models.rule_logits, rule_models.rule_loss, rule_models.model_answers),
    *(
        text_finetuning.label_logits,
        text_finetuning.label_loss,
        text_finetuning.fine_tune,
        text_finetuning.judge_text,
        attention_swap.swap,
    ),
    *(
        attention_swap.swap_unit,
        attention_swap.gate_unit,
        attention_swap.gates_learned,
        attention_swap.match_scale,
        attention_swap.first_layers,
        attention_swap.shorten_gate_memory,
        attention_swap.GateVariant,
        attention_swap.compare_attentions,
        text_finetuning.answered,
    ),
    *(text.LabelledTexts, text.labelled_texts, text.encoded, text.InContextText),  # of prompts of text
    *(records.record, records.recorded, claims.Claim.agrees, claims.Claim.holds, records.Record.covers),
    *(closure.modules, closure.digest, closure.file_hash),  # of a build, which Python itself refuses
    claims.Claim.limit,
    claims.residue,
    charts.Figure.svg,
    *(leaderboard.row, leaderboard.write_row, leaderboard.submit),  # of rows, which are of whole runs
    # of models of transformers, which take seconds to import
    *(adapters.Body, adapters.Body.state_numel, adapters.body_of, adapters.configured, adapters.MambaPy),
    adapters.MambaPy.state_numel,
}
# A base that only its subclasses make whole; they have its methods.
BASES = {
    core.Task,
    training.Samples,
    core.Regression,
    objectives.Objective,
    causal.Causal,
    fast_weights.FastWeights,
    fast_weights.Gate,
    memformer.Memory,
}
# Parts that a model, a filter or a floor asks while it runs, with tensors that its own door has looked at.
INSIDE = {
    *(causal.Causal.checked, stacks.DeltaStack.decays, stacks.GatedDeltaStack.decays, stacks.GatedStack.gates),
    *(fast_weights.LinearGate.forward, fast_weights.LengthGate.forward, fast_weights.Mamba2.Delta),
    *(delta_layers.GatedDelta.lam, delta_layers.GatedDelta.beta),
    *(surgery.FadingMemory.setting, surgery.FadingMemory.forward, surgery.FadingMemory.carry),
    *(surgery.SoftmaxMemory.forward, surgery.SoftmaxMemory.carry),
    *(
        mamba.Selective.forward,
        mamba.Static.forward,
        mamba.Step.forward,
        mamba.FixedStep.forward,
        mamba.zero_order_hold,
    ),
    *(sequence.Block.forward, sequence.Projected.forward, adapters.Body.forward, adapters.MambaPy.forward),
    *(catalogue.Softmax.forward, catalogue.Lstm.forward, catalogue.linear, catalogue.delta),
    *(linear_gaussian.innovation, linear_gaussian.downdate, linear_gaussian.kalman_update),
}


PUBLIC = public()

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
        *rows("h", r"must have shape \(r,\)", 1.0, np.ones((2, 2)), np.ones(0)),
        *rows("F", r"must have shape \(2, 2\) to match h", np.eye(3), 1.0),
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
    free={"gammas": "all", "variances": "all"},
    also=[
        *mixed,
        *(({name: v}, rf"{name} must (have|be) .*{says}") for name in ("gammas", "variances") for v, says in PAIRS),
        ({"gammas": (1.1, 0.5)}, "gammas must be .* got .*1.1"),
    ],
)

entry(core.InputLaw, given={"name": "x", "draw": core.UNIFORM.draw}, free={"name": "all", "draw": "all"})
X, Y = torch.zeros(2, 4, 2), torch.zeros(2, 4)
entry(
    core.Prompt,
    free=dict.fromkeys("xyw", "nan"),  # a batch of any numbers: what reads it says what it cannot use
    also=[
        ({"x": X[:, :1], "y": Y[:, :1], "w": X[:, :1]}, "x must hold at least one example and the"),
        ({"y": Y.double()}, "y must have dtype torch.float32 to match x"),
        ({"w": X.double()}, "w must have dtype torch.float32 to match x"),
    ],
)
SAMPLES = rows("task", "must be an icl.tasks.core.Task, or sample as one does", None, 0, "text", core.SmoothDrift)
entry(core.batches, given={"task": PLAIN}, also=SAMPLES)
entry(core.Prompt.last, also=[({"m": 4}, "m must be at most n = 3.*got 4")])
entry(
    core.square_root,
    given={"matrix": np.eye(2)},
    also=[
        ({"matrix": 1.0}, r"matrix must have shape \(1, 1\)"),
        ({"matrix": None}, "matrix must be real"),
        ({"matrix": np.ones((3, 2))}, r"matrix must have shape \(3, 3\)"),
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
        *rows("tasks", "must be at least one icl.tasks.core.Task", [], [PLAIN, 3], [core.DriftingRegression]),
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


entry((training_variants.FixedBatch, "sample"), free={"batch": "all"}, also=held)

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
    free=dict.fromkeys(("means", "covariances", "shares"), "all"),
    also=[
        *rows("means", "must", NAN, [1.0], [[1.0], [2.0]], ["1", "2"], None),
        *rows("covariances", "must", NAN, [1.0, 0.0], [1.0, -1.0], [np.eye(3)] * 2, [np.ones((2, 2))] * 2, None),
        *rows("shares", "must", NAN, [1.0], [1.0, 0.0], [1.0, -1.0], ["1", "2"]),
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
entry(
    rules.RuleLanguage,
    given={"vectors": np.eye(2)},
    free={"vectors": "all"},
    also=rows("vectors", "must", np.ones((1, 2)), np.ones((2, 3)), np.ones(2), NAN, "words", None),
)
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
        *rows("answers", "must", ANSWERS + 1, -ANSWERS),
        *rows("exact", "must", ANSWERS + 1, -ANSWERS),
    ],
)
entry(rule_models.best_one_layer, given={"since": 1}, also=[({"since": 4}, "since must be at most n = 3, got 4")])
entry(
    quadratics.covariance,
    given={"D": [1.0, 2.0]},
    free={"D": "all", "U": "all"},
    also=[
        *rows("D", "must be", NAN, INF, "0.5", None, 1j, -0.5, [1.0, 0.0], [1.0, NAN], [1.0, -0.5]),
        *rows("D", r"must have shape \(d,\)", 1.0, [], np.ones((2, 2))),
        ({"U": np.eye(3)}, r"U must have shape \(2, 2\) to match D"),
        ({"U": np.ones(2)}, r"U must have shape \(2, 2\) to match D"),
        ({"U": [[1.0, 0.1], [0.0, 1.0]]}, "U must be orthogonal"),
        ({"U": np.full((2, 2), NAN)}, "U must be finite"),
        ({"U": np.eye(2) * 1j}, "U must be real"),
    ],
)
SIGMA = [({"Sigma": value}, r"Sigma must be a \(d, d\) cov") for value in (None, "identity", np.ones(2))]
entry(
    quadratics.regression,
    quadratics.sample_hessians,
    given={"Sigma": np.eye(2)},
    free={"Sigma": "of three"},
    also=SIGMA,
)
entry(
    *(quadratics.mean_curvature, quadratics.weighted_curvature, quadratics.largest_curvature),
    also=[({"H": torch.zeros(shape)}, r"H must have shape \(batch, d, d\) with d") for shape in ((2, 1, 2), (2, 0, 0))],
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
entry(
    *(series.filtered, series.smoothed),
    also=[
        ({"drift": series.Drift(0.9, 0.1, 0.1, scale=(1.0, 1.0, 1.0))}, r"drift.scale must broadcast to \(2,\)"),
        ({"drift": series.Drift(1.0, 0.0, 1e-30)}, "drift must have s2 of at least 1e-20"),
    ],
)
entry(series.most_likely, also=[({"y": np.zeros(4)}, "y must not be 0 throughout")])
entry(series.Drift, also=rows("scale", "must be one number or one for each weight", np.ones((2, 2))))
entry(series.mean_and_error, given={"lags": 1}, also=[({"lags": 4}, "lags must be less than the 4 rows")])

# --- objectives, and what minimises them
ELEMENTS = {"y": torch.zeros(2), "s": torch.zeros(2)}
for objective in (objectives.Square, objectives.Logistic, objectives.Huber, objectives.Cauchy, objectives.Quartic):
    for name in ("loss", "slope", "bend"):
        entry(
            (objective, name),
            given=ELEMENTS,
            free={"y": "nan", "s": "nan"},
            also=[({"s": torch.zeros(3)}, r"s must broadcast with y, \(2,\), got \(3,\)")],
        )
    for name in ("value", "gradient"):
        entry(
            (objective, name),
            given={"w": torch.zeros(2, 2)},
            free={"w": "nan"},
            also=[
                *rows(
                    "w",
                    r"must have shape \(2, ..., 2\) to match prompt",
                    torch.zeros(2, 3),
                    torch.zeros(3, 2),
                    torch.zeros(2),
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
entry(
    unknown_drift_task.UnknownDrift,
    given=UNTOLD,
    free=dict.fromkeys((*UNTOLD, "weights"), "all"),
    also=[*mixed[:2], *WRONG_PRIORS],
)
SPEEDS = unknown_drift_task.UnknownDrift(2, 3, **UNTOLD)
FIXTURES |= {unknown_drift_task.UnknownDrift: lambda: SPEEDS}
CREEPING = (
    {"task": unknown_drift_task.UnknownDrift(2, 3, [1 - 1e-9], [0.1])},
    "task must have gammas of at most 1 - 1e-8",
)
entry(unknown_drift.bank_predictions, unknown_drift.linear_predictions, also=[CREEPING])
STEADY = fast.DriftLaw(2, 0.6, 0.8, 0.5)
entry(unknown_drift.unit_delta_error, given={"law": STEADY})
entry(unknown_drift.gates_at, given={"law": STEADY, "p": 0.5}, also=rows("p", "must be at most the weights", 1.5))
entry(
    unknown_drift.best_fixed_unit_delta,
    given={"laws": [STEADY, STEADY]},
    free={"laws": "all", "weights": "all"},
    also=[
        *rows("laws", "must be", None, [], [None], STEADY),
        ({"laws": [STEADY, fast.DriftLaw(3, 0.6, 0.8)]}, r"laws must have one d, got \[2, 3\]"),
        *rows("weights", "must", "1", (1.0,), (1.0, 0.0), (1.0, NAN)),
    ],
)
LAYERS_TOLD = {"p": (0.1, 0.5), "lam": (0.9, 0.5)}
WRONG_TABLES = [
    *rows("p", "must", None, "0.5", 0.5, (0.1,), (0.5, 0.1), (0.1, 0.1), (0.0, 0.5), (0.1, NAN)),
    *rows("lam", "must", None, "0.5", 0.5, (0.5,), (0.5, 1.1), (0.5, -0.1), (0.5, NAN)),
]
TOLD_FREE = dict.fromkeys(("p", "lam"), "all")
entry(self_tuning.gauged_delta, self_tuning.meta_delta, given=LAYERS_TOLD, free=TOLD_FREE, also=WRONG_TABLES)
entry(
    self_tuning.mixed_deltas,
    given=LAYERS_TOLD,
    free=TOLD_FREE | {"sigma_y": "all"},
    also=[*WRONG_TABLES, *rows("sigma_y", "must", None, "0.5", (0.1,), -0.1, (0.1, -0.1), NAN)],
)

# --- filters and solvers
A_TRIAL = lambda name: [  # noqa: E731
    ({name: torch.full(shape, 0.5)}, rf"{name} must be one number or have shape \(\*settings, 1\)")
    for shape in ((2,), (3, 2), (1, 2))
]
entry(filters.lms, also=A_TRIAL("mu"))
entry(filters.nlms, filters.apa, also=A_TRIAL("mu"))
entry(
    filters.delta_rule,
    filters.normalised_delta_rule,
    also=[
        *(A_TRIAL("mu") + A_TRIAL("lam")),
        ({"mu": torch.ones(3, 1), "lam": torch.ones(2, 1)}, r"lam and mu must broadcast .* got \(2, 1\) and \(3, 1\)"),
    ],
)
entry(filters.rls, also=A_TRIAL("lam"))
entry(filters.faded_ridge, also=A_TRIAL("lam") + A_TRIAL("eps"))
UNLIKE = [({"task": SKEWED}, r"task must be an? [\w.]*DriftingRegression")]
entry(
    filters.kalman,
    free={"P_0": ("an array with nan", "an array with -0.1", "an array with -1.0")},
    also=[
        *UNLIKE,
        ({"P_0": np.eye(3)}, r"P_0 must have shape \(2, 2\)"),
        ({"P_0": np.ones(2)}, r"P_0 must have shape \(2, 2\)"),
        ({"P_0": [[1.0, 0.5], [0.4, 1.0]]}, "P_0 must be symmetric, its largest asymmetry is 0.1"),
        ({"P_0": [[1.0, 2.0], [2.0, 1.0]]}, "P_0 must be positive semi-definite, its smallest eigenvalue is -1"),
        ({"P_0": [[NAN, 0.0], [0.0, 1.0]]}, "P_0 must be finite, got"),
        ({"P_0": [[INF, 0.0], [0.0, 1.0]]}, "P_0 must be finite, got"),
        ({"P_0": np.eye(2) * 1j}, "P_0 must be real"),
        ({"P_0": "identity"}, "P_0 must be real"),
    ],
)
entry(
    filters.steady_kalman,
    also=[
        *UNLIKE,
        *(
            (
                {"task": core.DriftingRegression(**{"d": 2, "n": 3, "gamma": 0.9} | changed)},
                "gamma must be < 1 and sigma_e > 0",
            )
            for changed in ({"gamma": 1.0}, {"gamma": 1.1}, {"sigma_e": 0.0})
        ),
        *(({"task": given}, "Lambda must be positive definite for a steady state") for given in (FLAT, DARK)),
    ],
)
entry(
    filters.gla,
    given={"A": np.eye(2)},
    also=[
        *(
            ({"A": np.ones(shape)}, r"A must have shape \((3, 3|1, 1|2, 2)\)")
            for shape in ((3, 2), (3,), (), (2, 2, 2))
        ),
        *rows("A", "must be finite", np.full((2, 2), NAN), [[INF, 0.0], [0.0, 1.0]]),
        *rows("A", "must be real", np.eye(2) * 1j, "identity", None),
    ],
)
X64, Y64 = X.double(), Y.double()
AXES = r"x must have shape \(\*trials, time, d\)"
RUN = [
    ({"y": Y64[None]}, r"y must have shape \(2, 4\) to match x"),
    ({"y": Y64[:1]}, r"y must have shape \(2, 4\) to match x"),
    ({"x": X64 + 0j, "y": Y64 + 0j}, "x must have a floating dtype, got torch.complex128"),
    ({"x": X64[0, 0], "y": Y64[0, 0]}, AXES),
    ({"x": X64[:, :0], "y": Y64[:, :0]}, AXES),
    ({"x": X64[:0], "y": Y64[:0]}, AXES),
    ({"x": X64[..., :0], "w_0": None}, AXES),
    ({"x": X64 + NAN}, "x must be finite, got nan"),
    ({"x": X64 + INF}, "x must be finite, got inf"),
    ({"y": Y64 - INF}, "y must be finite, got -inf"),
    ({"y": Y64 + NAN}, "y must be finite, got nan"),
    *(
        ({"w_0": torch.zeros(shape).double()}, r"w_0 must have shape \(\*trials, 2\) with trials that broadcast to")
        for shape in ((1,), (), (2, 4, 2), (5, 2))
    ),
    ({"w_0": torch.full((2,), NAN).double()}, "w_0 must be finite, got nan"),
    ({"w_0": torch.full((2,), -INF).double()}, "w_0 must be finite, got -inf"),
]
RUN = [
    (changes | {"filter": made}, says)
    for changes, says in RUN
    for made in (filters.rls(0.9, eps=0.01), filters.window(2, eps=0.01), filters.lms(0.1))
]
RUN += [
    ({"filter": made, "x": torch.zeros(2, 4, 3), "y": Y, "w_0": None}, r"x must have shape \(2, any\) as")
    for made in (filters.kalman(PLAIN), filters.steady_kalman(PLAIN), filters.gla(np.eye(2), lam=0.9))
]
THREE = filters.lms(torch.tensor([[0.1], [0.2], [0.3]]))
RUN += [
    (
        {"filter": THREE, "x": torch.zeros(shape), "y": torch.zeros(shape[:-1]), "w_0": None},
        r"x must broadcast against the filter's settings \(3,\), got " + re.escape(str(shape)),
    )
    for shape in ((2, 2, 4, 3), (4, 2, 2, 4, 3))
]
entry(
    filters.run_filter,
    filters.track,
    given={"x": X64, "y": Y64, "w_0": torch.zeros(2).double()},
    free={"w_0": "with an axis less"},
    also=RUN,
)
SEVERAL = [
    ({"high": torch.tensor([3.0, 3.0, 3.0]), "low": torch.tensor([1.0, 2.0])}, "low and high must be for the same")
]
AROUND = [({"low": 2.0, "high": 1.0}, "low must be at most high")]
COLUMN = ({"eta": torch.ones(2, 1)}, "eta must be one number or have")
entry(solvers.gradient_descent, solvers.momentum, solvers.nesterov, also=[COLUMN])
entry(solvers.chebyshev, also=AROUND + SEVERAL)
entry(solvers.tuned_momentum, solvers.tuned_nesterov, also=AROUND)
entry(solvers.chebyshev_scalars, also=[*AROUND, ({"low": torch.tensor([1.0, 2.0])}, "low must be one number")])
M_OF = [
    *(({"M": np.ones(shape)}, r"M must have shape \(d, d\) or") for shape in ((1, 1, 2, 2), (2,), (2, 3), (0, 0))),
    ({"M": torch.tensor([[1.0, 0.5], [0.4, 1.0]])}, "M must be symmetric, got entries that differ by 0.1"),
    *rows("M", "must be positive definite", [[1.0, 2.0], [2.0, 1.0]], [[1, 0], [0, 0]]),
    ({"M": np.full((2, 2), NAN)}, "M must be finite"),
    *rows("M", "must be real", np.eye(2) * 1j, "identity"),
]
entry(solvers.conjugate_gradients, free={"M": "all"}, also=M_OF)
H, B = torch.eye(2).repeat(3, 1, 1), torch.ones(3, 2)
BOWL = [
    *(({name: np.ones((3, 2))}, f"{name} must be a torch.Tensor") for name in ("H", "b")),
    ({"H": torch.ones(3, 2, 1)}, r"H must have shape \(batch, d, d\)"),
    ({"H": torch.ones(0, 2, 2), "b": torch.ones(0, 2)}, r"H must have shape \(batch, d, d\)"),
    ({"H": torch.ones(3, 2, 2, dtype=torch.int64)}, "H must have a floating dtype"),
    ({"H": torch.full((3, 2, 2), NAN)}, "H must be finite"),
    ({"H": H / torch.tensor([[1.0, INF], [INF, 0.0]])}, "H must be finite"),
    ({"H": torch.tensor([[1.0, 0.5], [0.0, 1.0]]).repeat(3, 1, 1)}, "H must be symmetric"),
    ({"b": torch.ones(2, 2)}, r"b must have shape \(3, 2\) to match H"),
    ({"b": torch.full((3, 2), INF)}, "b must be finite"),
]
TWO = torch.tensor([0.1, 0.2])
entry(
    solvers.run_solver,
    given={"H": H, "b": B, "w_0": torch.zeros(2)},
    also=[
        *BOWL,
        *(({"w_0": torch.ones(shape)}, r"w_0 must have shape \(2\) or \(3, 2\)") for shape in ((3,), (2, 2), ())),
        ({"w_0": torch.full((2,), NAN)}, "w_0 must be finite"),
        *(
            ({"solver": made}, rf"{name} must have one number for each of 3 problems")
            for name, made in (
                ("eta", solvers.gradient_descent(TWO)),
                ("eta", solvers.momentum(TWO, 0.5)),
                ("beta", solvers.momentum(0.1, TWO)),
                ("beta", solvers.nesterov(0.1, TWO)),
                ("low", solvers.chebyshev(TWO, 1.0)),
                ("high", solvers.chebyshev(0.05, TWO)),
            )
        ),
        ({"solver": solvers.conjugate_gradients(np.eye(3))}, r"M must have shape \(2, 2\) to match H"),
        (
            {"solver": solvers.conjugate_gradients(torch.eye(2).repeat(2, 1, 1))},
            r"M must have shape \(3, 2, 2\) to match H",
        ),
    ],
)
entry(solvers.conjugate_scalars, given={"H": H, "b": B}, free={"M": "all"}, also=BOWL + M_OF)

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
    also=[
        ({"A": torch.zeros(0, 2, 2), "Gamma": torch.zeros(0, 0)}, "A must hold at least one matrix"),
    ],
)
entry(
    evaluation.squared_error,
    given={"predict": lambda p: 0 * p.y[:, -1], "task": PLAIN},
    also=[
        *SAMPLES,
        ({"predict": lambda p: p.y.sum()}, FITS),
        ({"predict": lambda p: p.y[1:, -1]}, FITS),
        ({"predict": lambda p: p.y[:, -1:]}, FITS),
        ({"predict": lambda p: p.y}, FITS),
        ({"predict": lambda p: p.y[:, -1] * NAN}, "predict must return finite numbers"),
        ({"predict": lambda p: p.y.T + INF}, "predict must return finite numbers"),
        ({"predict": lambda p: p.y.T + 1e200}, "predict must return finite numbers"),
    ],
)
ANSWERS = r"predictor must return .*"
entry(
    evaluation.one_step_ahead,
    also=[
        ({"predictor": lambda p: p.y.sum()}, ANSWERS + r"\(\*settings, 2\) for 2 prompts, got \(\) with 1 example"),
        ({"predictor": lambda p: p.y[1:, -1]}, ANSWERS + r"\(\*settings, 2\) for 2 prompts, got \(1,\) with 1"),
        ({"predictor": lambda p: p.y[:, -1:]}, ANSWERS + r"\(\*settings, 2\) for 2 prompts, got \(2, 1\) with 1"),
        ({"predictor": lambda p: p.y.T[: p.n]}, ANSWERS + r"got \(2, 2\) with 2 example"),
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
entry(grid.run_grid, free={"folder": "all"})
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
entry(coefficient_fit.prompt_losses, given={"asked": TWO_ASKED, "Lambda": TABLE}, also=AHEAD)
entry(
    coefficient_fit.fit_diagonals,
    given={"asked": TWO_ASKED, "Lambda": TABLE},
    also=[*AHEAD, ({"Lambda": 1e200 * TABLE}, "Lambda must start at a finite loss")],
)
entry(coefficient_fit.polynomial_losses, given={"asked": TWO_ASKED, "p": np.ones(2)}, sizes={"depths": 2})

# --- what a chapter shows
entry(
    checkpoint.to_jsonable,
    given={"value": 1.0},
    free={"value": "all"},
    also=[({"value": value}, "value must be numbers, text, arrays") for value in (object(), {"a": {1}})],
)
entry(
    claims.claim,
    given={"id": "gla.eq3.random-walk"},
    free={"id": "all"},
    also=[({"id": "gla.nothing"}, "no claim 'gla.nothing'")],
)
entry(claims.readable, given={"text": "lambda < 1"}, free={"text": "all"})
entry(
    claims.folder, given={"name": "claims"}, free={"name": "all"}, also=[({"name": "nothing"}, "no folder 'nothing'")]
)
entry(
    exercises.check,
    given={"attempt": lambda: 1.0, "answer": lambda: 1.0, "cases": [{}]},
    free=dict.fromkeys(("attempt", "answer", "cases", "rtol", "atol", "name"), "all"),
    also=[
        ({"cases": []}, "cases must hold at least one dict"),
        ({"answer": "ex-nothing"}, "no answers are sealed as 'ex-nothing'"),
    ],
)
ANYTHING = dict.fromkeys(("attempt", "cases", "right", "not_allowed", "name", "label", "secret"), "all")
entry(
    grading.judge,
    given={"attempt": lambda: 1.0, "cases": [{}], "right": [1.0]},
    free=ANYTHING,
    also=[
        ({"cases": []}, "cases must hold at least one dict"),
        ({"right": []}, "right must hold 1 answers"),
        ({"not_allowed": ["numpy.nothing"]}, "not_allowed must name functions"),
    ],
)
entry(grading.breach, given={"attempt": lambda: 1.0}, free=ANYTHING)
entry(grading.barred, free=ANYTHING)
entry(grading.seeded, given={"label": "ps", "secret": "x"}, free=ANYTHING)
entry(
    prose.said,
    given={"words": "so it is"},
    free=dict.fromkeys(("words", "condition"), "all"),
    also=[({"words": " "}, "words must not be empty"), ({"condition": 1}, "condition must be True or False, got 1")],
)
entry(profile.make_generator, given={"name": "x"})

# --- models: one layer of gated attention, and recurrences
ONE_NUMBER = [({"lam": torch.tensor([0.5, 0.5])}, "lam must be one ")]
entry(one_layer.decay_weights, given={"like": X}, free={"like": "all"}, also=ONE_NUMBER)
entry(one_layer.gram, also=ONE_NUMBER)
entry(one_layer.predict, also=ONE_NUMBER)
entry(one_layer.predict_from_features, free={"A": "of another dtype"})
entry(
    (one_layer.OneLayerGLA, "set_weights"),
    given={"W_V": np.eye(3), "W_KQ": np.eye(3)},
    also=[
        (({name: value}), rf"{name} must {says}")
        for name in ("W_V", "W_KQ")
        for value, says in (
            (np.eye(2), r"have shape \(3, 3\)"),
            (np.full((3, 3), NAN), "be finite"),
            ("text", "be real"),
            (None, "be real"),
        )
    ],
)
entry(
    (one_layer.OneLayerGLA, "forward"),
    also=[
        (
            {"prompt": PLAIN.sample(2, generator=profile.make_generator("x"), dtype=torch.float64)},
            "W_V must have dtype torch.float64 to match",
        ),
        ({"prompt": prompt_of(WIDE)}, r"W_V must have shape \(4, 4\) to match"),
    ],
)
Q, V, OPEN = torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 4, 6), torch.ones(1, 1, 1)
TOKENS = {"q": Q, "k": Q, "v": V, "decay": OPEN}
GATES = [
    ({"q": Q[:, :0], "k": Q[:, :0], "v": V[:, :0]}, "q must hold at least one position in time"),
    *(({"decay": OPEN * value}, r"decay must lie in \[0, 1\]") for value in (-0.1, 1.1, NAN)),
]
entry(
    *(operators.recurrent, operators.parallel, operators.chunked, stacks.read_strictly),
    given=TOKENS,
    also=[*GATES, ({"decay": OPEN + 1e-6}, r"decay must lie in \[0, 1\]")],
)
entry(
    *(operators.delta_recurrent, operators.delta_chunked),
    given=TOKENS | {"beta": OPEN},
    also=[*GATES, *(({"beta": OPEN * value}, r"beta must lie in \[0, ") for value in (-0.1, NAN, INF))],
)

# --- models: stacks
TWO_LAYERS = [({"lam": value}, "lam must be ") for value in ([0.5, 0.6, 0.7], [], [0.5, 1.0], [0.5, 0.0], [0.5, NAN])]
SPREAD = {"lam": "None"}  # the default spread of a `Stack`
entry(stacks.Stack, also=TWO_LAYERS)
entry(stacks.DeltaStack, free=SPREAD, also=TWO_LAYERS)
entry(stacks.GatedDeltaStack, free=SPREAD, also=TWO_LAYERS)
entry(paper_conventions.FullStack, also=TWO_LAYERS)
entry(convolved.Convolved, also=rows("sees", "must be 'keys' or 'tokens'", "labels"))
entry(
    stacks.GatedStack,
    also=[
        *TWO_LAYERS,
        *(({"channels": value}, "channels must be .*got " + repr(value)) for value in (3, "d", 1.0, None, True)),
    ],
)
entry(stacks.factors, given={"lam": 0.5}, free={"lam": ("0.5", "True"), "layers": "all"})
entry(
    paper_conventions.Convention,
    given={"sign": 1},
    free={"sign": "all"},
    also=[
        *(({"sign": value}, f"sign must be .*got {value!r}") for value in (0, 2, "-")),
        *(({"residual": value}, f"residual must be .*got {value!r}") for value in (1, None)),
        ({"strict": None}, "strict must be .*got None"),
    ],
)
MERGED = torch.zeros(2, 3, 3)
entry(
    paper_conventions.predictions,
    given={"W_V": MERGED, "W_KQ": MERGED, "lam": torch.full((2,), 0.5)},
    sizes={"tokens": 3},
    also=[
        (dict.fromkeys(("W_V", "W_KQ"), MERGED[:, 1:, 1:]), r"W_V must have shape \(any, 3, 3\) to match the tokens"),
        *(({"lam": torch.tensor([0.5, value])}, r"lam must lie in \[0, 1\]") for value in (1.1, -0.1, NAN)),
    ],
)
# What all that answer at every position are asked.
ERRORS = [
    ({"x": X.double(), "y": Y.double()}, "x must have dtype torch.float32 to match the model"),
    ({"x": X[:, :0], "y": Y[:, :0]}, "x must hold at least one position in time"),
]
FOREIGN = [
    ({"prompt": core.Prompt(X.double(), Y.double(), X.double())}, "x must"),
    ({"prompt": core.Prompt(X[..., 1:], Y, X[..., 1:])}, "x must have shape"),
]
COUNTED = {"also": [*FOREIGN, ({"since": 4}, "since must be at most n = 3")]}
ANSWERING = [thing for thing, kind in PUBLIC.values() if kind and issubclass(kind, causal.Causal) and kind not in BASES]
for function in ANSWERING:
    if function.__name__ in ("errors", "forward", "predictions", "loss") and function not in ENTRIES:
        entry(function, **{"errors": {"also": ERRORS}, "loss": COUNTED}.get(function.__name__, {"also": FOREIGN}))


# --- models: fast weights
def gates(*names):
    """Gates for inputs of another size."""
    return [
        ({name: fast_weights.LengthGate(3)}, f"{name} must be for inputs of dimension 2.*got one for 3")
        for name in names
    ]


def lists(*names):
    """What is neither one number nor one a channel."""
    return [row for name in names for row in rows(name, "must be one number", [0.5] * 3, [[0.5, 0.6]], [])]


entry(fast_weights.GLA, delta_layers.DeltaRule, also=lists("lam", "mu"))
entry(fast_weights.Mamba2, given={"A": 1.0}, also=gates("gate"))
entry(delta_layers.GatedDelta, also=gates("forget", "write"))
entry(
    fast_weights.RetNet,
    given={"lam": [0.9, 0.8]},
    free={"lam": "all"},
    also=rows("lam", "must ", 0.9, [], [[0.9]], [0.9, 1.0], [0.9, 0.0], [0.9, NAN], None, "0.9"),
)
entry(
    delta_layers.LFOM,
    given={"c": [0.5, -0.1]},
    free={"c": "all"},
    also=rows("c", "must ", 0.5, [], [[0.5]], np.ones((2, 1)), [0.5, NAN], [INF], None, [None], "0.5", ["a"], [1j]),
)
DEEP, DEEP_DELTA, OF_GATES = stacks.Stack(2, 2), stacks.DeltaStack(2, 2), stacks.GatedStack(2, 2)
GLA_LAYER = fast_weights.GLA(2, lam=0.9, mu=0.1)
entry(
    streaming_stacks.LayeredGLA,
    also=[
        *rows(
            "model",
            "must be a Stack or a Normalised",
            None,
            stacks.Stack,
            GLA_LAYER,
            OF_GATES,
            DEEP_DELTA,
            streaming_stacks.LayeredGLA(DEEP),
        ),
        *(
            ({"model": causal.Normalised(value)}, "model must be a Stack or a Normalised one")
            for value in (DEEP_DELTA, causal.Normalised(DEEP), OF_GATES)
        ),
    ],
)
SEVERAL_RATES, STATIC = {"A": -torch.ones(4)}, {name: mamba.Static(4, dtype=torch.float32) for name in "BC"}
entry(
    streaming_stacks.Selected,
    also=[
        *rows(
            "layer",
            "must be an icl.*S6",
            None,
            mamba.S6,
            mamba.S6Stack([s6()], 3),
            torch.nn.Linear(3, 3),
            streaming_stacks.Selected(s6()),
        ),
        *(({"layer": s6(**{name: STATIC[name]})}, "layer must have Selective B and C") for name in "BC"),
        ({"layer": s6(**SEVERAL_RATES)}, "layer must have one rate.*got 4"),
    ],
)
KIND = "state must be a (Weights|MesaState|LFOMState|Memories|S6State|Heads|KalmanState), as start and step return it"


def states(call):
    """States that are another layer's, or of other prompts."""
    layer = call.function.__self__
    alien = delta_layers.LFOM(2, c=[0.5]) if not isinstance(layer, delta_layers.LFOM) else GLA_LAYER
    yield {"state": alien.start(2)} if type(alien.start(2)) is not type(layer.start(2)) else {"state": None}, KIND
    yield {"state": layer.start(1)}, r"state\.\w+ must have shape .* to match the layer and x"
    if isinstance(layer, streaming_stacks.LayeredGLA | streaming_stacks.LayeredDelta):
        deeper = streaming_stacks.LayeredGLA(stacks.Stack(2, 4)).start(2)
        yield {"state": deeper}, r"state.labels must have shape \(2, 2, 2\) to match"


for function in {thing for thing, kind in PUBLIC.values() if kind and issubclass(kind, fast_weights.FastWeights)}:
    if function.__name__ in ("step", "read") and function not in ENTRIES:
        entry(function, also=states)

# --- models: memformers
RESIDUAL = objectives.Square(2, 3).slope
NARROW = [
    (
        {"Z": torch.zeros(2, 4, 2)} | dict.fromkeys("PQ", torch.eye(2)),
        "Z must hold inputs, a label and a prediction, at least 3 numbers, got 2",
    )
]
entry(pointwise.mapped_attention, given={"psi": RESIDUAL}, also=NARROW)
# A table for each prompt has an axis more.
TABLES = {"given": {"psi": RESIDUAL, "Gamma": torch.eye(2)}, "free": {"Gamma": "with an axis more"}}
MORE_TABLES = {"Gamma": torch.zeros(3, 2, 2)}
MORE_AXES = ({"Gamma": torch.zeros(2, 2, 2, 2)}, "Gamma must have shape")
PSI_SHAPE = [({"psi": lambda y, s: s[:, 0]}, r"psi\(y, s\) must have shape \(2, 3\) to match s, got \(2,\)")]
entry(
    pointwise.mapped_registers,
    **TABLES,
    also=[MORE_AXES, *PSI_SHAPE, (MORE_TABLES, r"Gamma must have shape \(2, 2\) or \(2 or 1, 2, 2\) to match Z and P")],
)
entry(
    pointwise.mapped_iterates,
    **TABLES,
    also=[
        MORE_AXES,
        *PSI_SHAPE,
        (MORE_TABLES, "Gamma must have 2 or 1 tables to match prompt, got 3"),
        ({"Gamma": torch.eye(2).double()}, r"Gamma must have dtype torch\.float32 to match prompt"),
    ],
)
entry(
    pointwise.Mapped,
    given={"psi": RESIDUAL},
    also=[
        *rows(
            "memory",
            r"must be an [\w.]*Memory",
            None,
            memformer.NoMemory,
            0,
        ),
        ({"memory": memformer.TokenWise(2, 3)}, "memory must have a weight for each pair of layers, got"),
    ],
)
entry(
    *(first_order.diagonal_errors, first_order.diagonal_jacobian),
    given={"Lambda": torch.eye(2)[..., None].repeat(1, 1, 2)},
    also=[({"Lambda": torch.ones(2, 2, 2)}, "Lambda must be 0 where i > k")],
)
entry(token_form.transformer, also=[({"Z": torch.zeros(2, 1, 3)}, "Z must hold at least one example and the query")])
SCALARS = torch.zeros(2)
entry(token_form.one_register, given={"alpha": SCALARS, "gamma": SCALARS})
TABLE = torch.zeros(2, 2)
entry(token_form.many_registers, given={"Gamma": torch.zeros(2, 2, 4, 3)})
entry(
    *(token_form.token_errors, token_form.token_iterates),
    given={"X": torch.zeros(2, 3, 2), "Gamma": torch.zeros(2, 2, 4)},
    also=[
        *(
            ({"Gamma": torch.zeros(shape)}, r"Gamma must have shape \(2, 2, 4\) or \(2 or 1, 2, 2, 4 or 1, 3 or 1\)")
            for shape in ((2, 2), (2, 2, 1), (2, 2, 3), (2, 2, 2, 4), (3, 2, 2, 4, 1), (1, 2, 2, 3, 1), (1, 2, 2, 4, 2))
        ),
    ],
)
entry(
    surgery.FadingMemory,
    given={"lam": [0.9, 0.5]},
    also=[
        *rows("lam", r"must have shape \(any\)", 0.9, np.full((1, 2), 0.9)),
        ({"beta": 0.5}, r"beta must have shape \(2\) to match lam"),
        ({"beta": [0.5]}, r"beta must have shape \(2\) to match lam"),
        ({"beta": [0.5, 0.5], "normalised": True}, "normalised must be False with the delta rule"),
        ({"beta": [0.5, 0.5], "form": "parallel"}, "form must be 'recurrent' or 'chunked' with the delta rule"),
        ({"lam": [0.5, 1.0], "learned": True}, "lam must be < 1 to be learned"),
    ],
)
BLOCKS = torch.zeros(1, 2, 3, 3)
entry(
    token_form.many_heads,
    given={"Gamma": torch.zeros(1, 2, 2, 4, 3)},
    also=[
        (
            dict.fromkeys("PQ", BLOCKS[:0]) | {"Gamma": torch.zeros(0, 2, 2, 1, 1), "gates": None},
            "P must have at least",
        ),
    ],
)
SHAPES = ((2,), (2, 3), (3, 3), (2, 2, 2), (2, 2, 4), (3, 2, 2, 1), (2, 2, 2, 2), (1, 2, 2, 2, 1))
entry(
    *(memformer.error_matrices, memformer.iterates),
    given={"Gamma": TABLE},
    also=[
        *(({"Gamma": torch.zeros(shape)}, r"Gamma must have shape \(2, 2\), \(2, 2, 1 or 3\)") for shape in SHAPES),
    ],
)
LOPSIDED = [
    ({"Sigma": np.diag([1.0, 0.0])}, "Sigma must be pos"),
    ({"Sigma": torch.diag(torch.tensor([1.0, 1e-13]))}, "Sigma must be pos"),
    ({"Sigma": [[1.0, 0.5], [0.4, 1.0]]}, "Sigma must be symmetric, its largest asymmetry is 0.1"),
    ({"Sigma": [[1.0, 2.0], [2.0, 1.0]]}, "Sigma must be positive semi-definite, its smallest eigenvalue is -1"),
    ({"Sigma": np.eye(3)}, r"Sigma must have shape \(2, 2\)"),
    ({"Sigma": np.ones(2)}, r"Sigma must have shape \(2, 2\)"),
    *(({"Sigma": np.diag([1.0, value])}, "Sigma must be finite, got") for value in (NAN, INF)),
    *rows("Sigma", "must be real", np.eye(2) * 1j, "identity"),
]
entry(
    memformer.risks,
    given={"Sigma": np.eye(2)},
    free={"Sigma": "all"},
    also=[*LOPSIDED, *rows("M", r"must have shape \(\*batch, d, d\)", torch.zeros(2, 1, 2), torch.zeros(2))],
)
entry((memformer.Memformer, "risks"), given={"Sigma": np.eye(2)}, free={"Sigma": "all"}, also=LOPSIDED)
entry(
    memformer.FixedBlocks,
    free={"A": "of another dtype"},
    also=[
        ({"A": torch.zeros(0, 2, 2)}, "A must hold at least one matrix"),
        ({"A": torch.zeros(2, 2, 2).half()}, "dtype must be torch.float32 or torch.float64"),
    ],
)
entry(
    memformer.ScaledBlocks,
    free={"matrix": "of another dtype"},
    also=[({"matrix": torch.eye(2).half()}, "dtype must be torch.float32 or")],
)
FULL = memformer.Full(2, 2, dtype=torch.float32)
entry(
    memformer.Memformer,
    given={"preconditioner": FULL, "memory": memformer.NoMemory(2)},
    free=dict.fromkeys(("preconditioner", "memory", "curvature"), "all"),
    also=[
        *rows("memory", r"must be an [\w.]*Memory", None, memformer.NoMemory, 0),
        *rows("preconditioner", "must be an .*FixedBlocks or .*ScaledBlocks or .*Full", None, MERGED),
        ({"curvature": MERGED}, "curvature must be an .*FixedBlocks or .*ScaledBlocks or .*Full"),
        ({"memory": memformer.NoMemory(3)}, "preconditioner must have 3 layers to match memory"),
        ({"curvature": memformer.Full(2, 3)}, "curvature must have 2 layers to match memory"),
        (
            {"curvature": memformer.Full(3, 2, dtype=torch.float32)},
            r"curvature must have shape \(2, 2, 2\) to match pre",
        ),
        ({"curvature": memformer.Full(2, 2)}, "curvature must have dtype torch.float32 to match preconditioner"),
    ],
)
entry(
    memformer.init_normal_,
    given={"model": memformer.Full(2, 1)},
    also=[
        ({"model": memformer.Full(2, 1).half()}, "dtype must be torch.float32 or torch.float64"),
        ({"model": None}, "model must be a torch.nn"),
        *(
            ({"names": value}, "names must be a sequence of parts of matrices.*got " + re.escape(repr(value)))
            for value in ("matrices", ("alpha",), ("matrices", "alpha"))
        ),
    ],
)

HEAD = memformer.Memformer(FULL, memformer.NoMemory(2))
WIDER = memformer.Memformer(memformer.Full(3, 2, dtype=torch.float32), memformer.NoMemory(2))
ONE_BY_ONE = memformer.Memformer(FULL, memformer.TokenWise(2, 3, dtype=torch.float32))
FIXTURES |= {
    experts.MultiHead: lambda: experts.MultiHead([HEAD]),
    experts.OutputMixture: lambda: experts.OutputMixture([HEAD]),
    experts.PromptGate: lambda: experts.PromptGate(torch.ones(1), torch.ones(1), quadratics.mean_curvature),
}
UNLIKE_HEADS = [
    *rows("heads", "must be at least one icl.models.memformer", [], [memformer.Memformer], [HEAD, None]),
    ({"heads": [HEAD, WIDER]}, "heads must have one number of layers, one d and one dtype"),
]
MIXED = [
    *rows("gate", "must be a FreeGate, ConvexGate or", 0, experts.FreeGate, torch.nn.Identity()),
    ({"gate": experts.FreeGate(2)}, "gate must have 1 heads to match heads, got 2"),
    ({"gate": experts.FreeGate(1)}, "gate must have dtype torch.float32 to match heads"),
    *UNLIKE_HEADS,
]
entry(
    experts.PromptGate,
    given={"scale": quadratics.mean_curvature},
    also=[
        ({"u": torch.ones(0), "v": torch.ones(0)}, "u must have at least one head"),
        (dict.fromkeys("uv", torch.ones(1).half()), "dtype must be torch.float32 or torch.float64"),
    ],
)
entry(
    (experts.PromptGate, "forward"), also=[({"H": -torch.ones(1, 2, 2)}, "scale must be > 0 for each prompt, got -1")]
)
entry(experts.OutputMixture, given={"heads": [HEAD]}, free={"gate": "all"}, also=MIXED)
entry(
    experts.MultiHead,
    given={"heads": [HEAD]},
    free={"gate": "all"},
    also=[
        *MIXED,
        (
            {"heads": [ONE_BY_ONE, memformer.Memformer(FULL, memformer.TokenWise(2, 4))]},
            r"heads must have TokenWise memories for one number of examples, got \[3, 4\]",
        ),
    ],
)
for kind in (experts.MultiHead, experts.OutputMixture):
    entry((kind, "risks"), given={"Sigma": np.eye(2)}, free={"Sigma": "all"}, also=LOPSIDED)
entry(
    experts.merge,
    given={"heads": [HEAD]},
    also=[*UNLIKE_HEADS, ({"heads": [ONE_BY_ONE]}, "heads must not have a TokenWise memory")],
)

SCALARS, WEIGHED = torch.ones(2, 3), torch.ones(2, 4)
FIXTURES |= {scalar_heads.ScalarHeads: lambda: scalar_heads.ScalarHeads(1, 2, 3, tokens=1, dtype=torch.float32)}
entry(scalar_heads.ScalarHeads, given={"tokens": 1}, also=[({"tokens": 2}, "tokens must be 0, 1 or n . 1 = 4, got 2")])
entry(
    (scalar_heads.ScalarHeads, "forward"),
    given={"prompt": ALONG.sample(2, generator=profile.make_generator("x"))},
    also=[({"prompt": prompt_of(PLAIN)}, r"x must have shape \(any, 4, 1\) to match the model")],
)
entry((scalar_heads.ScalarHeads, "errors"), given={"X": torch.ones(2, 3, 1)})
entry(
    scalar_heads.scalar_weights,
    given={"X": SCALARS, "y": SCALARS, "c": WEIGHED},
    also=[
        ({"X": SCALARS[0]}, r"X must have shape \(\*models, batch, n\)"),
        (dict.fromkeys("Xy", SCALARS[:, :0]), r"X must have shape \(..., batch, n\) with n >= 1"),
        ({"c": WEIGHED[:, :3]}, r"c must have shape \(..., layers, 1 or 4\) to match X"),
        ({"c": WEIGHED[None]}, r"c must have shape \(L, tokens\) to match X"),
    ],
)

# --- models: S6
U, STATES, STEPS = torch.ones(2, 5, 3), torch.ones(2, 5, 4), torch.ones(1, 5)
SCAN = [
    (
        {"u": U[:, :0], "B": STATES[:, :0], "C": STATES[:, :0], "Delta": STEPS[:, :0]},
        "u must hold at least one position in time",
    ),
    ({"A": -torch.ones(3)}, r"(A must have shape \(1\)|B must have shape \(2, 5, 3\) to match u and A)"),
    *(({"A": torch.full((1,), value)}, "A must be finite and < 0") for value in (0.0, NAN, -INF)),
    ({"Delta": torch.ones(3, 5)}, r"Delta must have shape \(2 or 1, 5\) to match u"),
    *(({"Delta": value * STEPS}, "Delta must be finite and >= 0") for value in (-1, NAN, INF)),
]
SCANNED = {"u": U, "A": -torch.ones(1), "B": STATES, "C": STATES, "Delta": STEPS}
entry(mamba.scan, mamba.scan_chunked, given=SCANNED, also=SCAN)
entry(mamba.dual, given=SCANNED, also=[*SCAN, ({"A": -torch.ones(4)}, r"A must have shape \(1\), got")])
PARTS = {name: mamba.Selective(3, 4) for name in "BC"} | {"step": mamba.FixedStep(0.1), "A": -torch.ones(1).double()}
entry(
    mamba.S6,
    given=PARTS,
    free=dict.fromkeys(PARTS, "all"),
    also=[
        *(
            ({name: value}, f"{name} must be one of icl.*s6's")
            for name in ("B", "C", "step")
            for value in (None, torch.ones(4), torch.nn.Linear(3, 4), mamba.Selective)
        ),
        ({"C": mamba.Selective(3, 5)}, "C must have states of size 4 to match B"),
        ({"C": mamba.Selective(2, 4)}, "B, C and step must be for tokens of one width"),
        ({"step": mamba.Step(2, 0.1)}, "B, C and step must be for tokens of one width"),
        ({"A": -torch.ones(3)}, r"A must be finite and < 0 and have shape \(1,\) or \(4,\)"),
        *rows("A", "must be finite and < 0", torch.zeros(4), torch.full((4,), -INF), torch.full((1,), NAN)),
        *rows("A", "must be a torch.Tensor", None, -1.0),
    ],
)
ONE_RATE = [
    *(
        ({"layer": s6(**change)}, "layer must have a FixedStep and one rate")
        for change in ({"step": mamba.Step(3, 0.1, dtype=torch.float32)}, SEVERAL_RATES)
    ),
    ({"layer": None}, r"layer must be an [\w.]*S6"),
]
UNSELECTIVE = [({"layer": s6(**{name: STATIC[name]})}, "layer must have Selective B") for name in "BC"]
entry(mamba.weights, mamba.statistics, mamba.s6_features, also=ONE_RATE)
entry(mamba.read_out, free={"known": "all"}, also=ONE_RATE + UNSELECTIVE)
entry(mamba.collapsed, given={"u": U, "states": mamba.s6_features(U, s6())}, also=ONE_RATE + UNSELECTIVE)
entry(
    mamba.S6Stack,
    given={"layers": [s6()], "dtype": torch.float32},
    also=[
        *rows("layers", "must be S6 layers", [], [torch.nn.Linear(3, 3)], [None]),
        ({"networks": [torch.nn.Identity()] * 2}, "networks must be none or 1, one a layer"),
    ],
)
entry(
    training.Config,
    given={"steps": 4},
    free={"clip": "all"},
    also=[
        ({"warm_up": 5}, "warm_up must be at most steps = 4"),
        *rows("optimiser", "must be an icl.*AdamW", torch.optim.AdamW, 0.1),
        ({"clip": np.array([INF])}, "clip must be one number"),
        *rows("clip", "must be finite and > 0", 0.0, -1.0, NAN, -INF),
    ],
)
PLAN = training.Config(steps=4, batch=2)
FIXTURES |= {training.Config: lambda: PLAN}
entry((training.Config, "step_size"), also=[({"step": 5}, "step must be at most steps = 4")])
MODELS = torch.zeros(2, 3, 3)
entry(
    training_variants.train_side_by_side,
    given={"theta": MODELS, "lam": np.array([0.9, 1.0]), "steps": 1, "optimiser": training.AdamW()},
    free={"theta": "of another dtype", "callback": "all"},
    also=[
        ({"theta": torch.zeros(2, 4, 4)}, r"theta must have shape \(any, 3, 3\) to match the task"),
        ({"theta": MODELS[:0]}, "theta must hold at least one model"),
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
        *rows("lam", r"must have shape \(2\) to match theta", np.array([0.9]), 0.9, np.full((2, 1), 0.9)),
        *(({"lam": np.array([0.9, value])}, "lam must be finite and > 0") for value in (0.0, NAN)),
        ({"lam": "0.9"}, "lam must be real"),
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
    free=dict.fromkeys(("callback", "checkpoint", "extra_generators"), "all"),
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
    free=dict.fromkeys(TUPLES, "all"),
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
    free={"linear": "all", "answers": "all"},
    also=[*AXES, *rows("answers", r"must have shape \(2, any, any\) to match", None, torch.zeros(3, 2, 4), [[0.0]])],
)
LABELS = {"truth": torch.zeros(2, 4)}
POSITIONS = [
    *rows("positions", "must be a slice", None, 3, [0, 1]),
    ({"positions": slice(4, None)}, "positions must leave some of 4"),
    *rows("truth", r"must have shape \(2, 4\) to match the answers", torch.zeros(2, 5), torch.zeros(3, 4), None),
    ({"truth": LABELS["truth"].double()}, "truth must have dtype torch.float32 to match the answers"),
]
for method in ("losses", "best"):
    entry((tuning.GridResult, method), given=LABELS, free=dict.fromkeys(("truth", "positions"), "all"), also=POSITIONS)
entry((tuning.GridResult, "only"), given={})
entry(
    tuning.tune,
    free=dict.fromkeys(("truth", "positions"), "all"),
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
    free={"start": "all"},
    also=[
        *rows("start", "must be", [], np.ones((2, 2)), "1", [NAN], None),
        ({"error": 1.0}, "error must be a function"),
    ],
)

# --- the benchmark
SETTLED_LAW = fast.DriftLaw(2, 0.9, 0.1)
BEHIND = {"model": convolved.Convolved(2, width=2, generator=profile.make_generator("x")), "law": SETTLED_LAW}
OF_FOUR = [({"law": fast.DriftLaw(4, 0.9, 0.1)}, "model must have d = 4, to match law, got 2")]
ONE_LAYER = {"layer": "delta rule", "fed": "one filter", "law": SETTLED_LAW, "prompts": 20}
ONE_STEP = {"recipe": training.Config(1, 1), "lr": 0.01}
entry(key_gated_layers.gated_layer, given={"layer": "Mamba-2", "fed": "own filter"})
entry(key_gated_layers.train_gated, given=BEHIND | ONE_STEP, also=OF_FOUR)
NOISY_LAW = [({"law": fast.DriftLaw(2, 0.9, 0.1, 0.1)}, "law must have labels without noise")]
entry(key_gated_layers.over_bound, given=BEHIND, also=OF_FOUR + NOISY_LAW)
entry(key_gated_layers.gated_run, given=ONE_LAYER | ONE_STEP)
entry(
    key_gated_layers.compare_gated, given={"law": SETTLED_LAW, "prompts": 20, "seeds": 1, "recipe": ONE_STEP["recipe"]}
)
SHORT_TASKS = {"t": bench_tasks.drifting_tasks(2, 4)["AR(1), γ = 0.9"]}
TAUGHT = {"GLA": (lambda: fast_weights.GLA(2, lam=0.9, mu=0.1), training.Config(1, 2))}
TASK_NAMES = [
    *rows("tasks", "must (map names to tasks, at least one|be a .*Mapping)", {}, {"": PLAIN}, {3: PLAIN}, [PLAIN]),
    ({"tasks": {"t": 3}}, "tasks must be tasks, got 3 for 't'"),
]
FOUND = pd.DataFrame(columns=["task", "method", "setting", "value"])
entry(bench_floors.known_floors, given={"task": PLAIN}, free={"task": "all"})
FIXTURES |= {bench_tasks.BenchTask: lambda: bench_tasks.BENCH_TASKS["leaps"]}
entry(bench_tasks.BenchTask, given={"name": "t", "title": "t", "about": "t", "make": lambda d, n: PLAIN})
NO_TASK = [({"task": 3}, r"task must be an [\w.]*Task, got 3")]
entry(bench_tasks.BenchTask.floors, given={"task": PLAIN}, free={"task": "all"}, also=NO_TASK)
entry(bench_tasks.BenchTask.reference, given={"task": PLAIN}, free={"task": "all"}, also=NO_TASK)
entry(bench_tasks.find_tasks, given={"names": ["all"]}, also=rows("names", "must be", [], "all", ["lleaps"], [3]))
FIXTURES |= {bench_tasks.SeveralTasks: lambda: bench_tasks.mixture([PLAIN])}
OF_OTHER_SIZES = rows("tasks", "must be at least one, of one d and one n", [], [PLAIN, WIDE])
entry(bench_tasks.SeveralTasks, bench_tasks.mixture, given={"tasks": [PLAIN]}, also=OF_OTHER_SIZES)
entry(
    custom_task.CustomTask,
    given={"name": "t", "task": PLAIN},
    free={"task": "all"},
    also=[({"task": WIDE}, "task must have d = 2"), ({"task": None}, "task must have d = 2, .*got 'none' of t")],
)


class Floored(core.DriftingRegression):
    """A task that knows its floor."""

    floor = staticmethod(lambda prompt: prompt.y**2)


FIXTURES |= {custom_task.CustomTask: lambda: custom_task.CustomTask("t", Floored(2, 3, 0.9), 2, 3)}
entry(imports.nearest, given={"name": "a", "known": ["a"]}, free={"name": "all", "known": "all"})
entry(imports.load, given={"spec": "json:JSONDecoder"}, also=rows("spec", "must be", "a", "a.py", ":b"))
entry(imports.package_root, imports.source_hash, given={"file": Path(json.__file__)})

# --- the benchmark's tool
TINY_BUDGET = budgets.Budget("tiny", 2, 8, 8, 1, 2, 4, (1e-3,), 1, 5, 8, 4)
IDLE = entries.resolve("answer-0")
FIXTURES |= {
    budgets.Budget: lambda: TINY_BUDGET,
    entries.Shape: lambda: TINY_BUDGET.shape,
    entries.Contestant: lambda: IDLE,
    training_jobs.Job: lambda: training_jobs.Job(
        training_jobs.JobSpec(IDLE.spec, IDLE.kind, IDLE.name, IDLE.path, IDLE.source),
        TINY_BUDGET,
        "all",
        ("ar1-0.9",),
        (),
        NAN,
        0,
    ),
    runner.Plan: lambda: runner.plan(["answer-0"], tasks=["ar1-0.9"], only_tested=[], budget=TINY_BUDGET),
    results.BenchResults: lambda: IDLE_RESULTS(),
    sequence.InContext: lambda: sequence.InContext(2, 3, torch.nn.Identity()),
    catalogue.Softmax: lambda: catalogue.Softmax(4, 2),
    catalogue.Rotary: lambda: catalogue.Rotary(4, 2),
}


@functools.cache
def IDLE_RESULTS():
    """A run of two that answer 0, which takes a moment."""
    asked = {"tasks": ["ar1-0.9"], "only_tested": [], "budget": TINY_BUDGET, "quiet": True}
    return runner.run(["answer-0", "again=answer-0"], **asked)


def somewhere(name):
    """A path in a folder of its own."""
    return Path(tempfile.mkdtemp()) / name


def written():
    """A file of results."""
    path = somewhere("results.parquet")
    results.write_results(path, IDLE_RESULTS())
    return path


BUDGET_RATES = rows("rates", "must be at least one learning rate, rising", (), (0.1, 0.01))
entry(
    budgets.Budget,
    given={"name": "tiny", "d": 2, "n": 8, "rates": (1e-3,), "prompts": 5, "last": 4},
    also=[*BUDGET_RATES, ({"last": 10}, "last must be at most the 9 positions")],
)
entry(budgets.Budget.config, given={"rate": 0.1, "tasks": 2})
entry(entries.Shape, given={"n": 3, "longest": 7})
entry(entries.resolve, given={"spec": "answer-0"}, also=rows("spec", "must be", "glaa", ":b"))
entry(adapters.is_config, adapters.is_model, given={"what": 3}, free={"what": "all"})
entry(adapters.is_config_class, adapters.is_model_class, given={"what": 3}, free={"what": "all"})
entry(adapters.dataclass_config, given={"kind": 3}, free={"kind": "all"})
entry(adapters.is_installed, given={"package": "numpy"})
entry(adapters.hugging_face, given={"name": "GPT2Config"})
entry(sequence.tokens, free=dict.fromkeys("xy", ("nan", "of another dtype")))
NO_OPERATOR = rows("operator", "must", lambda x: x, lambda q, k: q)
NO_OPERATOR += [({"operator": lambda q, k, v, a: v}, "operator is told q, k, v")]
entry(sequence.operator_gates, given={"operator": lambda q, k, v: v}, also=NO_OPERATOR)
entry(
    sequence.Projected,
    given={"operator": lambda q, k, v: v, "width": 4},
    also=[*NO_OPERATOR, ({"heads": 3}, "width must be a multiple of heads")],
)
entry(sequence.BlockStack, given={"mixers": [torch.nn.Linear(3, 3)]}, also=rows("mixers", "must", [], 3))
entry(sequence.InContext, given={"body": torch.nn.Identity()})
entry(sequence.InContext.answers, (sequence.InContext, "errors"), free=dict.fromkeys("xy", "nan"))
entry(catalogue.Softmax, catalogue.Alibi, catalogue.Rotary, given={"width": 4, "heads": 2})
entry(
    training_jobs.prompts_for,
    given={"name": "ar1-0.9", "variant": "same"},
    also=rows("variant", "must be one of same, longer", "shorter"),
)
entry(training_jobs.squared_errors, given={"predictor": filters.lms(0.1)}, free={"predictor": "all"})
entry((training_jobs.Job, "files"), given={"folder": Path("x")})
entry(training_jobs.run_job, given={"tests": {}, "folder": None})
entry((runner.Plan, "tests"), given={"trained_on": "all"})
entry((runner.Plan, "seconds"), given={"us_per_token": {"answer-0": 1.0}})
ONE_RUN = {"asked": ["answer-0"], "tasks": ["ar1-0.9"], "only_tested": [], "budget": TINY_BUDGET}
entry(runner.plan, given=ONE_RUN)
entry(runner.run, given=ONE_RUN | {"quiet": True})
entry(validation.validate_model, given={"made": filters.lms(0.1), "name": "lms"})
entry(costs.count, given={"run": lambda: None})
entry(command.main, given={"argv": ["--version"]})
entry(results.BenchResults, given=lambda _: {"table": IDLE_RESULTS().table, "meta": IDLE_RESULTS().meta})
entry(results.write_results, given=lambda _: {"path": somewhere("results.parquet")})
entry(results.read_results, given=lambda _: {"path": written()})
entry(results.paired_comparison, given={"one": "answer-0", "other": "again"})
entry(results.aggregate, results.per_task, report.page, also=rows("against", "must", "nobody"))
entry(results.concat, given=lambda _: {"runs": [IDLE_RESULTS()]}, also=rows("runs", "must", [], [3]))
entry(results.renamed, given={"names": {"again": "other"}}, also=rows("names", "must", {"nobody": "x"}))
entry(report.write_report, given=lambda _: {"path": somewhere("report.html")})
entry(report.plain, given={"value": 1.0, "error": 0.1}, free={"value": "all", "error": "all"})
entry(leaderboard.by_task, leaderboard.board, given={"rows": []})
entry(
    leaderboard.read_rows,
    given={"folder": "nowhere"},
    also=rows("budget", "must be one of small", "huge"),
)
entry(bench_tasks.told_kalman, given={"task": bench_tasks.drifting_tasks(2, 3)["leaps, t with ν = 3"]})
entry(
    comparison.tuned_for,
    given={"task": SHORT_TASKS["t"], "prompts": 2, "last": 2},
    also=[({"last": 6}, "last must be at most the 5 positions of the task, got 6")],
)
entry(
    comparison.train_on,
    given={"tasks": [PLAIN], "config": training.Config(1, 2)},
    also=[({"tasks": []}, "tasks must be at least one")],
)
entry(comparison.tuned_settings, given={"tasks": SHORT_TASKS, "prompts": 2, "last": 2}, also=TASK_NAMES)
entry(comparison.trained_settings, given={"tasks": SHORT_TASKS, "models": TAUGHT}, also=TASK_NAMES)
SETTLED = None


def settled():
    """Settings of all contestants of one task, found once in this file, as it takes a second."""
    global SETTLED
    if SETTLED is None:
        models = {name: (made, training.Config(1, 1)) for name, (made, _) in comparison.trainable_layers(2).items()}
        tuned = comparison.tuned_settings(SHORT_TASKS, prompts=2, last=2)
        # Looked through again and again: for that, objects are quicker than pandas' own texts.
        SETTLED = pd.concat([tuned, comparison.trained_settings(SHORT_TASKS, models)]).astype(object)
    return SETTLED


TABLE = ({"settings": FOUND.drop(columns="task")}, "settings must be a table with task, method, setting, value")
entry(
    comparison.makers,
    given=lambda _: {"task": SHORT_TASKS["t"], "name": "t", "settings": settled()},
    free={"name": "all", "task": "all"},
    also=[
        TABLE,
        ({"name": "u"}, "settings must hold linear attention for u, got none"),
        ({"settings": FOUND}, "settings must hold linear attention for t, got none"),
        ({"task": None}, r"task must be an [\w.]*Task"),
        ({"task": WIDE}, r"settings must hold the \d+ numbers of .*, got"),
    ],
)
entry(
    comparison.compare,
    given=lambda _: {"tasks": SHORT_TASKS, "settings": settled(), "batch": 2, "seeds": 1, "last": 2},
    free={"folder": "all"},
    also=[*TASK_NAMES, TABLE, ({"last": 6}, "last must be at most the 5 positions")],
)
entry(training_variants.memformer_recipe, given={"model": NET, "loss": LOSS, "steps": 1, "batch": 1})
entry(
    training_variants.minimise,
    given={"model": NET, "loss": lambda: NET.weight.square().sum(), "iterations": 1},
    also=[
        ({"model": None}, "model must be a torch.nn.Module"),
        *rows("model", "must have a parameter that requires a gradient", torch.nn.Identity(), FROZEN),
        ({"loss": 1.0}, "loss must be a function"),
        ({"loss": lambda: 1.0}, "loss must return a scalar that depends on the parameters"),
        ({"loss": lambda: NET.weight.square()}, "loss must return a scalar that depends"),
        ({"loss": lambda: torch.zeros(())}, "loss must return a scalar that depends on the parameters"),
    ],
)

FIXTURES |= {distribution_shift.Given: lambda: distribution_shift.Given(prompt_of(PLAIN))}
TRAINED = experts.MultiHead([HEAD], experts.FreeGate(1, dtype=torch.float32))
entry(
    (distribution_shift.Given, "sample"),
    free={"batch": "all"},
    also=[
        ({"batch": 3}, "batch must be 2 in torch.float32, the prompts given, got 3"),
        ({"dtype": torch.float64}, "batch must be 2 in torch.float32, the prompts given, got 2 in torch.float64"),
        ({"device": "meta"}, "device must be cpu"),
    ],
)
entry(distribution_shift.query_loss, given={"model": TRAINED})
entry(
    distribution_shift.adapt,
    given={"model": TRAINED, "prompt": prompt_of(PLAIN), "iterations": 1},
    also=[
        *rows("names", "must be a sequence of parts of", "gate", ["nothing"]),
        ({"config": "adam"}, r"config must be an [\w.]*Config"),
        ({"model": torch.nn.Identity()}, "names must be a sequence of parts of no name"),
    ],
)
entry(
    distribution_shift.rescale,
    given={"model": TRAINED, "X": torch.ones(2, 3, 2), "made_for": 1.0},
    also=[
        ({"model": experts.MultiHead([HEAD])}, "model must have a FreeGate"),
        ({"X": torch.zeros(2, 3, 2)}, "X must hold inputs of at least one prompt"),
    ],
)

# --- theory: labels as one vector, linear layers
SAME = core.StationaryRegression(d=1, n=3)
entry(joint.label_errors, also=[({"task": SKEWED}, "Sigma_w must be the"), ({"task": SAME}, "x must have shape")])
entry(
    joint.misspecified_errors,
    given={"tasks": FLAT_TASKS, "kernel": np.eye(4), "noise": 0.1},
    also=[
        ({"last": 5}, "last must be at most the 4 positions of the tasks, got 5"),
        ({"tasks": []}, "tasks must be at least one, got none"),
        ({"tasks": [PLAIN, 3]}, r"task must be an [\w.]*Task, got 3"),
        ({"kernel": np.ones((4, 4)), "noise": 0.0}, "labels must not follow from those before them"),
    ],
)
entry(
    linear_layers.LinearLayer,
    given={"keep": np.eye(2), "write": np.ones(2), "correct": np.eye(2)},
    free=dict.fromkeys(("keep", "write", "correct"), ("empty",)),
)
entry(linear_layers.attention_heads, given={"fades": np.array([0.5, 0.9])})
entry(linear_layers.turning_head, given={"radius": 0.9, "angle": 0.3})
entry(linear_layers.heavy_ball, given={"keep": 0.9})
entry(linear_layers.forward_model, given={"F": np.eye(2), "gain": np.ones(2)})
STEADY = fast.DriftLaw(3, 0.9, 0.1)
FIXTURES |= {linear_layers.LinearLayer: lambda: linear_layers.heavy_ball(0.9, 0.1)}
entry(
    linear_layers.settled_error,
    given={"F": np.array([[0.9]])},
    also=[
        ({"unit": True}, "unit must be False for noisy labels and below d = 3"),
        ({"unit": True, "d": 10, "sigma_y": 0.1}, "unit must be False for noisy labels"),
    ],
)
GATED = key_gates.per_coordinate(np.array([[0.9]]), q=0.2, d=2, sigma_y=0.1)
FIXTURES |= {key_gates.MovingWeights: lambda: GATED}
entry(
    key_gates.MovingWeights,
    given={"F": np.eye(2), "H": np.eye(2), "Q": np.eye(2), "Lambda": np.eye(2)},
)
entry(key_gates.per_coordinate, given={"F": np.array([[0.9]]), "spectrum": np.ones(3), "d": 3})
entry(key_gates.from_drift_law, given={"spectrum": np.ones(3)})
entry(key_gates.ratio_moments, given={"sizes": np.ones(3), "noise": 0.1})
for checked in (
    (key_gates.MovingWeights, "error"),
    key_gates.averaged_step,
    key_gates.data_free_step,
    key_gates.best_layer_answers,
):
    entry(checked, given={"P": np.eye(2)}, sizes={"d": 2})
entry(key_gates.windowed_errors, given={"prior": np.eye(2)}, sizes={"d": 2})
TABLES = {"n": 3, "N": 2, "d": 2}
entry(finite_key_gates.finite_bound, finite_key_gates.finite_ladder, sizes=TABLES)
entry(finite_key_gates.gated_error, given={"A": np.stack([0.3 * np.eye(2)] * 3)}, sizes=TABLES)
entry(finite_key_gates.search_gates, given={"start_A": np.stack([0.3 * np.eye(2)] * 3)}, sizes=TABLES)
entry(
    fast.channel_gates_error,
    also=[
        ({"law": law}, "law must have d > 1 and labels")
        for law in (fast.DriftLaw(1, 0.9, 0.1), fast.DriftLaw(3, 0.9, 0.1, 0.2))
    ],
)
entry(
    moments.from_kernel,
    given={"weights": np.ones(3)},
    free={"weights": "all", "kernel": "with an axis less"},
    also=[
        ({"weights": np.ones(4)}, "weights must have 3 entries on their last"),
        ({"weights": [1.0, 1.0, NAN]}, "weights must be finite"),
        ({"weights": "one"}, "weights must be real"),
        ({"kernel": np.ones((4, 2))}, r"kernel must have shape \(4, 4\)"),
        ({"kernel": np.ones(4)}, r"kernel must have shape \(4, 4\)"),
    ],
)
CORRELATED = ({"task": SKEWED}, "Sigma_w must be the")
entry(moments.task_moments, also=[CORRELATED])
SINGULAR = [({"task": given}, "Lambda~ is singular for this task") for given in (STILL, DARK)]
entry(theory_one_layer.optimum, also=SINGULAR)
entry(theory_one_layer.layer_risk, given={"A": np.eye(2)})
entry(theory_one_layer.identity_error, also=[({"task": TILTED}, "Lambda must be the")])
entry(
    theory_one_layer.testing_error,
    also=[({"test": WIDE}, "test must have the d of train, 2.*got 3"), ({"train": STILL}, "Lambda~ is")],
)
DIRECTION = ({"task": FLAT}, "Lambda must be positive definite here, its smallest eigenvalue is 0")
entry(theory_one_layer.crosstalk, also=[DIRECTION, CORRELATED])
SIGNED = core.StationaryRegression(d=1, n=3, inputs=core.RADEMACHER)
entry(
    theory_one_layer.position_weights,
    theory_one_layer.position_error,
    also=[
        DIRECTION,
        CORRELATED,
        *(({"task": given}, r"K \+ c diag K is singular for this task") for given in (STILL, SIGNED)),
    ],
)
SIGNED_TABLE = sentences.LabelledRows(np.array([[1.0, 0.5], [-0.5, 1.0], [0.3, -1.0]]), np.array([1.0, -1.0, 1.0]))
FIXTURES |= {
    sentences.LabelledRows: lambda: SIGNED_TABLE,
    sentences.Demonstrations: lambda: sentences.Demonstrations(SIGNED_TABLE, 3),
}
entry(
    sentences.LabelledRows,
    given={"features": SIGNED_TABLE.features, "labels": SIGNED_TABLE.labels, "topics": np.array([0, 1, 0])},
    free={"topics": "all"},
    also=[
        *rows("labels", "must be 1 or -1", np.zeros(3)),
        *rows("features", "must have independent columns", np.ones((3, 2))),
        *rows("topics", "must be integers from 0, each in use", np.array([0, 2, 0]), np.array([0, -1, 0])),
    ],
)
entry(
    sentences.Demonstrations,
    given={"rows": SIGNED_TABLE, "n": 3, "queries": SIGNED_TABLE},
    also=[({"turn": 0.5}, "rows must have topics where these last")],
)
entry(
    sentences.unpacked, given={"text": sentences.packed(SIGNED_TABLE.features)}, also=rows("text", "must", "no", "AAAA")
)
entry(
    sign_flips.sign_layer_error,
    given={"A": np.eye(2)},
    also=[({"A": np.eye(3)}, r"A must have shape \(2, 2\) to match the task")],
)
SIGNED_ROWS = {"flip": 0.1, "n": 3, "explained": 0.4}
for signed in (sign_flips.sign_drift, sign_flips.sign_forgetting):
    entry(signed, given=SIGNED_ROWS)
for signed in (sign_flips.memory_right, sign_flips.sign_accuracy):
    entry(signed, given=SIGNED_ROWS, also=rows("explained", "must be .*< 1", 1.0))
entry(sign_flips.sign_layer, given={"flip": 0.1, "n": 3})
entry(sign_flips.sign_moments, given={"flip": 0.1, "n": 3})
entry(sign_flips.sign_error, given={"m": moments.recursion(0.9, gamma=0.9, n=3), "explained": 0.4})
entry(sign_flips.sign_ceiling, given={"explained": 0.4})
entry(sign_flips.reordered, also=rows("kernel", "must hold at least one demonstration", np.eye(1)))
entry(theory_one_layer.kalman_pole, given={"crosstalk": 2.0})
entry(
    theory_one_layer.steady_identity_error,
    also=[({"task": TILTED}, "Lambda must be the"), ({"task": WALK}, "gamma must be < 1.*got 1.0")],
)
NO_POLE = [({"lam": 0.5, "gamma": 2.0}, r"lam \* gamma must differ from 1"), ({"gamma": 1.0}, "gamma must .*1.0")]
MEND = ({"mend": {9}}, "mend must be one of 1, 2, 3, 4, 5, 6, 7, got 9")
entry(adaptation.D1, given={"lam": 0.5}, also=NO_POLE)
entry(adaptation.D2, adaptation.D3, given={"lam": 0.5}, free={"mend": "all"}, also=[*NO_POLE, MEND])
entry(adaptation.D4, also=NO_POLE[1:])
MADE_HERE |= {
    adaptation.printed_identity_error,
    adaptation.printed_training_error,
    adaptation.printed_testing_error,
}  # of numbers that `moments` checked

# --- theory: the population loss
entry(
    population.layer_loss,
    also=[
        CORRELATED,
        *(
            (
                {"task": core.DriftingRegression(d=2, n=3, gamma=0.9, inputs=law)},
                f"inputs must be Gaussian.*got {law.name}",
            )
            for law in (core.UNIFORM, core.RADEMACHER, core.LAPLACE)
        ),
    ],
)
entry(population.global_minimum, population.rank_one_trap, also=[CORRELATED, *SINGULAR])
entry(
    population.trap_curvature,
    also=[
        CORRELATED,
        ({"task": core.DriftingRegression(d=1, n=3, gamma=0.9)}, "d must be 2 or more"),
        (
            {"task": core.DriftingRegression(d=2, n=3, gamma=0.9, Lambda=np.diag([1.0, 2.0]))},
            "Lambda must be the identity",
        ),
    ],
)


def square(name, least):
    """What is no square matrix of at least that size."""
    return [
        *(({name: value}, rf"{name} must have shape \(any, any\)") for value in (1.0, np.ones(3), np.ones((2, 3, 3)))),
        *(
            ({name: np.ones(shape)}, rf"{name} must be square, \({least}, {least}\) or larger")
            for shape in ((3, 2), (least - 1, least - 1))
        ),
        *(({name: np.full((3, 3), value)}, f"{name} must be finite") for value in (NAN, INF)),
    ]


entry(
    population.pack,
    also=[*square("W_V", 2), *square("W_KQ", 2), ({"W_KQ": np.eye(4)}, r"W_KQ must have shape \(3, 3\) to match W_V")],
)
entry(population.unpack, also=square("theta", 2))
entry(population.sigma_bound, also=[*square("matrix", 1), ({"matrix": np.zeros((3, 3))}, "matrix must not be 0")])
entry(population.assumption_1, also=[*square("Theta", 1), ({"Theta": np.zeros((3, 3))}, "Theta must not be 0")])
entry(
    *(population.PopulationLoss.parts, population.PopulationLoss.value, population.PopulationLoss.gradient),
    free={"theta": ("nan", "complex")},
)
entry(population.PopulationLoss.hessian, free={"theta": "nan"})
entry(population.gradient_flow, given={"start": np.eye(3), "until": 0.1})
entry(
    population.linear_rate,
    given={"minimum": population.global_minimum(PLAIN, lam=0.9)},
    also=[
        *(({"minimum": np.zeros(shape)}, r"minimum must have shape \(3, 3\)") for shape in ((2, 2), (2, 3, 3), (3,))),
        ({"minimum": np.zeros((3, 3))}, "minimum must have a positive semi-definite Hessian"),
    ],
)
RANK = ({"rank": 3}, "rank must be at most d = 2, got 3")
entry(separate_qk.separate_loss, also=[CORRELATED])
entry(separate_qk.separate_flow, given={"start": np.full(14, 0.5), "until": 0.01})
entry(
    *(separate_qk.SeparateLoss.split, separate_qk.SeparateLoss.theta, separate_qk.SeparateLoss.value),
    *(separate_qk.SeparateLoss.gradient, separate_qk.SeparateLoss.hessian),
    given={"z": np.full(14, 0.5)},
    sizes={"weights": 14},
)
entry(
    separate_qk.SeparateLoss.join,
    given={"row": np.zeros(3), "keys": np.zeros((2, 3)), "queries": np.zeros((2, 2))},
    also=[({"keys": np.zeros((2, 2))}, r"keys must have shape \(2, 3\)")],
)
entry(separate_qk.gate_at_rank, also=[CORRELATED, RANK])
entry(separate_qk.plateau, given={"rank": 1, "width": 2}, also=[CORRELATED, RANK, *SINGULAR])
entry(separate_qk.escape_rates, given={"rank": 1}, also=[CORRELATED, RANK, *SINGULAR])
entry(separate_qk.separate_trap, given={"width": 2}, also=[CORRELATED, *SINGULAR])
entry(separate_qk.trap_form, also=[CORRELATED, *SINGULAR])
entry(separate_qk.head_curvature, given={"width": 2}, also=[CORRELATED, *SINGULAR[:1]])

# --- theory: Kalman, floors, filters
XS = np.zeros((2, 4, 2))
entry(floors.kalman_risk, also=[({"x": XS[:1]}, "x must hold at least two sequences.*got 1")])
SHORT = ({"x": XS[:, 1:]}, r"x must have shape \(any, 4, 2\)")
entry(floors.query_errors, also=[SHORT, CORRELATED])
entry(floors.riccati, given={"start": 1.0, "gain": 0.9, "added": 0.1}, free={"Lambda": "all", "gain": "all"})
entry(
    floors.best_linear_errors,
    also=[SHORT, CORRELATED, *rows("task", "must have a kernel of first order.*got one that is not", SMOOTH, SWINGING)],
)
TOLD = np.ones((2, 4))
entry(floors.genie_errors, given={"restart": TOLD > 2})
CERTAIN = {
    name: drifts.RegimeSwitching(**{"d": 2, "n": 3, "gamma": 0.9} | {name: 0.0}) for name in ("sigma_w", "sigma_e")
}
entry(
    floors.switching_predictions,
    also=[({"task": given}, f"{name} must be > 0 for labels that have a density") for name, given in CERTAIN.items()],
)
FADE = [
    ({"mu": [0.5, NAN]}, "mu must be finite.*nan"),
    *(({"task": given, "normalised": True}, "Lambda must be a multiple of the identity") for given in (TILTED, DARK)),
    ({"mu": np.ones(2), "lam": np.ones(3)}, r"mu and lam must broadcast .* got \(2,\), \(3,\)"),
    *UNLIKE,
]
GROWING = [({"task": core.DriftingRegression(2, 3, gamma)}, f"gamma must be < 1.*{gamma}") for gamma in (1.0, 1.1)]
entry(exact.errors, also=FADE)
entry(exact.steady_error, also=FADE + GROWING)
SCALED = core.DriftingRegression(d=2, n=3, gamma=0.9, Lambda=2 * np.eye(2))
entry(
    exact.best_steady,
    also=[*UNLIKE, *GROWING, *(({"task": given}, "Lambda must be the id") for given in (TILTED, SCALED))],
)

# --- theory: an adversary's paths
PATH = adversary.great_circle(3, 2, R=1.0, delta=0.1)


def paths(name, *, several=True):
    """What is no path of at least two positions."""
    wrong = [
        *(({name: value}, rf"{name} must have shape \(..., n \+ 1, d\)") for value in (PATH[0], PATH[:1], PATH[:, :0])),
        ({name: PATH * NAN}, f"{name} must be finite"),
    ]
    return wrong + [({name: PATH[None]}, rf"{name} must have shape \(any, any\)")] * several


entry(adversary.path_error, given={"w": PATH}, also=paths("w", several=False))
entry(adversary.upper_bound, given={"w": PATH}, also=paths("w"))
entry(adversary.sphere_bound, given={"w": PATH}, also=paths("w"))
entry(adversary.worst_path, given={"start": PATH}, also=paths("start"))
entry(adversary.best_layer, given={"w": PATH}, also=paths("w"))
entry(adversary.great_circle, free={"turn": "all"}, also=rows("turn", "must be finite and >= 0", -0.1, NAN))

# --- theory: displays of the Memformer's paper
EXAMPLE = {"X": np.eye(2, 3), "x": np.ones(2), "w": np.ones(2), "A": np.zeros((1, 2, 2)), "Gamma": np.eye(1)}
FIXTURES |= {memory.Problem: lambda: memory.Problem(**EXAMPLE)}
entry(
    memory.Problem,
    given=EXAMPLE,
    also=[
        *(
            ({name: value[None]}, rf"{name} must have shape \(.*\) to match X and A")
            for name, value in EXAMPLE.items()
            if name != "X"
        ),
        *(({"X": np.ones(shape)}, r"X must have shape \(d, n\) with 0 < d < n") for shape in ((2, 2), (0, 3))),
        ({"X": np.ones(3)}, r"X must have shape \(any, any\)"),
        *(
            ({"A": np.zeros((layers, 2, 2)), "Gamma": np.eye(layers)}, f"A must have from 1 to n = 3 layers.*{layers}")
            for layers in (0, 4)
        ),
    ],
)
SHOWN = {name: np.random.default_rng(0).standard_normal((2, 3, 4)) for name in ("plain", "labelled", "registers")}
entry(
    memory.deviation,
    given={"number": 2, "tokens": memory.Tokens(**SHOWN), "mended": True},
    free={"number": "all"},
    also=lambda call: [
        *rows("number", "must be one of 1, 2", 0, 99, True, "1", None),
        ({"tokens": memory.Tokens(*3 * (np.zeros((2, 3, 4)),))}, "tokens must show the squared error at the query"),
        *(
            ({"tokens": memory.Tokens(**SHOWN | {name: value})}, f"{name} must {says}")
            for name in SHOWN
            for value, says in (
                (SHOWN["plain"] * NAN, "be finite"),
                (SHOWN["plain"][:1], r"have shape \(2, 3, 4\) to match problem"),
            )
        ),
    ],
)
entry(
    *(
        polynomial_floor.best_single_step,
        polynomial_floor.optimal_risks,
        polynomial_floor.optimal_polynomial,
        polynomial_floor.optimal_steps,
        polynomial_floor.optimal_registers,
        polynomial_floor.shared_floor,
    )
)
entry(polynomial_floor.limit_risks, given={"c": 0.25})
entry(
    *(polynomial_floor.limit_registers, polynomial_floor.limit_steps, polynomial_floor.limit_equal_steps),
    given={"c": 0.25},
)
HS = np.eye(2)[None].repeat(3, axis=0)
HESSIANS = [
    *rows("H", r"must have shape \(any, any, any\)", HS[0], 1.0),
    ({"H": HS[:, :1]}, "H must be square"),
    *rows("H", "must hold at least", HS[:0], HS[:, :0, :0]),
    ({"H": HS + np.array([[0, 0.1], [0, 0]])}, "H must be symmetric, its largest asymmetry is 0.1"),
    ({"Sigma": np.diag([1.0, 0.0])}, "Sigma must be positive definite, its smallest eigenvalue is 0"),
    *rows("Sigma", r"must have shape \(2, 2\)", np.eye(3), np.ones(2)),
    ({"Sigma": np.array([[1.0, 0.5], [0.4, 1.0]])}, "Sigma must be symmetric, its largest asymmetry is 0.1"),
    (
        {"Sigma": np.array([[1.0, 2.0], [2.0, 1.0]])},
        "Sigma must be positive semi-definite, its smallest eigenvalue is -1",
    ),
]
entry(
    polynomial_floor.floor,
    given={"H": HS},
    also=[
        *HESSIANS,
        ({"H": HS[:1]}, "H must hold at least 2 matrices"),
        ({"A": np.eye(3)}, r"A must have shape \(2, 2\) to match H"),
    ],
)
entry(
    polynomial_floor.fitted_registers,
    given={"H": HS},
    also=[*HESSIANS, ({"H": -HS}, "H must be positive semi-definite, its smallest whitened eigenvalue is -1")],
)
METHOD = {"eta": "> 0"}
entry(
    lfom.registers,
    given={"alpha": np.ones(2), "gamma": np.ones(2)},
    also=[
        ({"alpha": 1.0}, r"alpha must have shape \(any\)"),
        ({"alpha": np.ones(0)}, "alpha must have at least one layer"),
        *rows("gamma", r"must have shape \(2\) to match alpha", 1.0, np.ones(3)),
    ],
)
LOWER = [
    *rows("Gamma", r"must have shape \(any, any\)", np.ones(2), 1.0),
    ({"Gamma": np.zeros((3, 2))}, "Gamma must be square"),
    ({"Gamma": np.ones((0, 0))}, "Gamma must be square, with at least one layer"),
    ({"Gamma": np.ones((2, 2))}, r"Gamma must be lower triangular .*, got 1\.0 above the diagonal"),
]
entry(lfom.cumulative, given={"Gamma": np.eye(2)}, also=LOWER)
STEPS = {
    "also": [
        *LOWER,
        *(({"a": np.ones(shape)}, r"a must have shape \(2\) to have one number a layer") for shape in ((3,), (2, 1))),
    ],
}
entry(lfom.polynomials, lfom.table_risks, given={"Gamma": np.eye(2)}, **STEPS)
entry(lfom.limit_table_risks, given={"Gamma": np.eye(2), "c": 0.25}, **STEPS)

SEVERAL_NUMBERS = (1.0, [], [[1.0]], [1.0, 0.0], [1.0, -1.0], [NAN], ["1"], [INF], None)
entry(gated_floor.rescaled_risk, given={"ratio": 0.5})
EXPERTS = {
    "given": {"variance": 0.5, "trained": [1.0, 2.0]},
    "free": {"trained": "all"},
    "also": rows("trained", "must", *SEVERAL_NUMBERS),
}
entry(gated_floor.simplex_gate, **EXPERTS)
entry(gated_floor.output_gate, **EXPERTS)
entry(
    gated_floor.least_over_variances,
    given={"variances": [1.0, 2.0], "weights": np.ones(2)},
    free={"variances": "all"},
    also=[
        *rows("variances", "must", *SEVERAL_NUMBERS),
        ({"weights": np.ones(3)}, r"weights must have shape \(2,\) to match variances"),
        ({"weights": np.array([1.0, 0.0])}, "weights must be finite and > 0, got"),
    ],
)
FOUR = np.eye(2)[None].repeat(4, axis=0)
CURVED = [
    *rows("H", r"must have shape \(any, any, any\)", FOUR[0], 1.0),
    *rows("H", "must hold at least", FOUR[:, :1], FOUR[:1], FOUR[:, :0, :0]),
    ({"H": FOUR + np.array([[0, 0.1], [0, 0]])}, "H must be symmetric, its largest asymmetry is 0.1"),
]
LAWS_OF = [
    *(({name: np.eye(3)}, rf"{name} must have shape \(2, 2\) or \(4, 2, 2\) to match H") for name in ("S_x", "S_w")),
    *(({name: FOUR[:3]}, rf"{name} must have shape \(2, 2\) or \(4, 2, 2\) to") for name in ("S_x", "S_w")),
    *(({name: np.array([[1.0, 0.5], [0.4, 1.0]])}, f"{name} must be symmetric") for name in ("S_x", "S_w")),
    ({"S_x": np.diag([1.0, 0.0])}, "S_x must be positive definite, its smallest eigenvalue is 0"),
    ({"S_w": np.diag([1.0, -1.0])}, "S_w must be positive semi-definite, its smallest eigenvalue is -1"),
    ({"scale": np.array([1.0, 1.0, 1.0, 0.0])}, "scale must be finite and > 0, got"),
    ({"A": np.eye(3)}, r"A must have shape \(2, 2\) to match H"),
]
entry(
    gated_floor.least_by_sample,
    given={"H": FOUR, "scale": np.ones(4), "S_x": np.eye(2), "S_w": FOUR},
    also=CURVED + LAWS_OF,
)
entry(gated_floor.least_by_spectrum, given={"H": FOUR}, also=CURVED)
FLOORS = (gaussian_mixtures.curvature_moments, gaussian_mixtures.least_over_components)
WIDE_TASK = ({"task": PARTED}, "task must have d = 1 here, got d = 2")
entry(*FLOORS, gaussian_mixtures.least_shared_over_components, given={"task": ALONG}, also=[WIDE_TASK])
BY_TOKEN = components.GaussianComponents(1, 3, [1.0, -1.0], [0.5, 2.0], per_token=True)
entry(
    gaussian_mixtures.input_nodes,
    given={"task": ALONG},
    also=[
        WIDE_TASK,
        ({"task": BY_TOKEN}, "task must have a component a prompt and n >= 2"),
        ({"nodes": 171}, "nodes must be at most 170"),
    ],
)
entry(
    gaussian_mixtures.component_posterior,
    given={"task": ALONG, "nodes": gaussian_mixtures.input_nodes(ALONG, 3)},
    also=[WIDE_TASK],
)
COVER = {"parameters": 2, "radius": 1.0, "largest": 1.0, "slope": 1.0, "delta": 0.1}
entry(learnability.covering_excess, given=COVER | {"N": 10})
entry(learnability.prompts_needed, given=COVER | {"excess": 1.0})
entry(
    learnability.worst_losses,
    given={"features": np.ones((2, 3))},
    also=rows("features", "must", np.ones((2, 1)), np.ones(2)),
)

# --- theory: one S6 layer
DECAY = {"alpha": "in [1e-100, 1)"}
ARRAYS = {"W_B": np.ones((4, 3)), "W_C": np.ones((4, 3)), "b_B": np.ones(4), "b_C": np.ones(4)}
entry(
    closed.S6Weights,
    given=ARRAYS,
    also=[
        *(({name: value[1:]}, f"{name} must") for name, value in ARRAYS.items() if name != "W_B"),
        *(({"W_B": np.ones(shape)}, r"W_B must have shape \(d_h, d") for shape in ((4, 1), (0, 3), (0, 0))),
    ],
)
OTHER_D = ({"coefficients": closed.Coefficients(3, 3, 0.9)}, "weights must have 4 columns to match coefficients")
entry(closed.population_loss, closed.gradient, also=[OTHER_D])
entry(closed.descend, also=[OTHER_D])
TIMES = ([], [0.0], [1.0, 1.0], [2.0, 1.0], [[1.0]], [-1.0, 1.0], [NAN], ["1"], 1.0)
entry(closed.flow, given={"time": np.ones(1)}, also=[OTHER_D, *(({"time": value}, "time must be") for value in TIMES)])
EYE = closed.S6Weights(np.eye(3, 3), np.eye(3, 3), np.zeros(3), np.zeros(3))
entry(closed.rate, given={"eta": 1e-3}, also=[OTHER_D, ({"weights": EYE, "eta": 100.0}, "eta must be < ")])

# --- theory: every fast weight in steady state
LAW = fast.DriftLaw(3, 0.9, 0.1)
LAWS_BELOW_FIVE = [({"law": LAW}, "law must have d >= 5 for this fit, got d = 3")]
entry(large_d.kalman_floor, mesa.mesa_for, given={"law": fast.DriftLaw(5, 0.9, 0.1)}, also=LAWS_BELOW_FIVE)
FIXTURES |= {fast.DriftLaw: lambda: LAW}
entry(
    fast.best_normalised_gla,
    also=[
        ({"law": fast.DriftLaw(d, 0.9, 0.1, noise_of)}, f"d must be > 1, and > 2 for noisy labels.*{d}")
        for d, noise_of in ((1, 0.0), (2, 0.1))
    ],
)
entry(fast.gla_error, also=[({"lam": 1.0}, "updates must settle.*got ")])
SPECTRUM = np.array([0.5, 1.0, 2.0])
entry(*(fast.gla_per_channel, fast.gla_shared, fast.delta_shared, fast.delta_diagonal), given={"spectrum": SPECTRUM})
entry(floors.kalman_errors, given={"spectrum": SPECTRUM}, sizes={"d": 3})
RATIO = {"s": "> 0", "v": ">= 0"}
BROADCAST = ({"s": np.ones(2), "v": np.ones(3)}, r"s and v must broadcast .* got \(2,\), \(3,\)")
entry(
    large_d.eps_gla,
    large_d.eps_delta,
    large_d.touching_point,
    large_d.smoother_large_d,
    large_d.kalman_large_d,
    also=[BROADCAST],
)
HEARD = {"f": np.linspace(0.1, 2.0, 8)}
entry(spectra.frequencies, given={"n": 8})
entry(
    spectra.pole_spectrum,
    given={"poles": [0.5], "n": 64},
    free={"poles": "all"},
    also=[
        *rows("poles", "must be a list of finite numbers", ["a"], [[0.5]], [NAN]),
        *rows("poles", "must be inside the unit circle", [1.0], [-1.5]),
        *rows("poles", "must be real or in conjugate pairs", [0.5j]),
        ({"poles": [0.999]}, "n must be larger for a pole of size 0.999, got 64"),
    ],
)
entry(spectra.log_gain, spectra.predicted, spectra.smoothed_weight, given=HEARD | {"R": 1.0})
entry(
    spectra.layer_error,
    given=HEARD | {"layer": "gla"},
    also=rows("layer", "must be (one of gla, delta, key-gated|a str)", "mesa", None),
)
NOTHING = ({"f": np.zeros(8)}, "f must be one spectrum")
OF_SPECTRA = (spectra.smoother_error, spectra.filter_error, spectra.key_gated_large_d, spectra.gla_large_d)
entry(*OF_SPECTRA, spectra.log_det_bias, given=HEARD | {"spectrum": SPECTRUM}, also=[NOTHING])
entry(
    spectra.corrected_floor,
    given={"spectrum": SPECTRUM, "n": 512},
    also=[({"n": 16}, "n must be larger for a pole of size 0.9, got 16")],
)
MOVES = {"F": 0.5 * np.eye(2), "Q": np.eye(2), "h": np.ones(2)}
entry(
    spectra.state_space_errors,
    given=MOVES,
    sizes={"r": 2},
    also=[({"F": np.eye(2)}, "F must have a spectral radius below 1")],
)
entry(
    mesa.mesa_large_d,
    given={"ridge": 0.1},
    also=[({"s": np.ones(2), "v": np.ones(3)}, "s and v and theta and ridge must broadcast")],
)
entry(mesa.mesa_over_floor, given={"s": np.array([0.3, 1.0]), "v": np.array([0.1, 1.0])})
entry(
    mesa.least_noise,
    given={"s": np.array([0.3, 1.0]), "within": 0.1, "v": np.array([0.1, 1.0]), "mesa": np.full((2, 2), 1.2)},
)
entry(cheap_covariance.Frozen, given={"variances": (1.0,)}, free={"variances": ("1.0",)})
entry(cheap_covariance.eps_blocks, cheap_covariance.eps_low_rank, cheap_covariance.eps_thinned, given={"share": 0.5})
entry(cheap_covariance.eps_spread, given={"spread": 0.5})
for checked in (cheap_covariance.errors_with_gains, cheap_covariance.summary_errors):
    entry(checked, given={"Lambda": np.eye(3)}, sizes={"d": 3})
ONE = np.eye(2)
UPDATE = {"keep": 0.5 * ONE, "look": 0 * ONE, "noise": ONE}
entry(fast.Update, given=UPDATE)
entry(fast.update, given={"keep": 0.5 * ONE, "write": np.ones(2), "correct": 0 * ONE})
STEP = fast.Update(**UPDATE)
entry(
    fast.second_moments,
    given={"updates": [STEP]},
    also=[
        *rows("updates", "must be a non-empty sequence", [], [ONE]),
        ({"updates": [fast.Update(**UPDATE | {"keep": ONE})]}, "updates must settle"),
        ({"updates": [STEP, fast.Update(np.eye(1) / 2, np.zeros((1, 1)), np.eye(1))]}, "updates must have shape"),
    ],
)
entry(
    fast.readout_errors,
    given={"moments": ONE[None]},
    also=[({"hidden": 2}, "hidden must leave a state"), ({"moments": np.ones((1, 3, 2))}, "moments must have shape")],
)
# The tests.

ASKED_OF = {
    name: (function, kind)
    for name, (function, kind) in PUBLIC.items()
    if function not in MADE_HERE | ELSEWHERE | INSIDE | BASES
    and kind not in BASES | {filters.Filter}
    and inspect.signature(function).parameters
}


# What torch does not yet give numpy 2 is between the two.
@pytest.mark.filterwarnings("ignore:__array:DeprecationWarning")
@pytest.mark.parametrize("name", ASKED_OF)
def test_bad_input_is_refused_by_name(name):
    """Each wrong value of each argument raises ValueError with the argument's name and what it got."""
    call = call_of(*ASKED_OF[name])
    call()
    failures = []
    for what, changes, message in refusals(call):
        try:
            call(**changes)
        except ValueError as refusal:
            if not re.search(message or " must ", str(refusal), re.DOTALL):
                failures.append(f"{what}: refused in other words: {refusal!s:.150}")
        except Exception as error:
            failures.append(f"{what}: {type(error).__name__}: {error!s:.150}")
        else:
            failures += [f"{what}: let in"] * (message is not PERHAPS)
    assert not failures, f"{name}:\n" + "\n".join(failures)


def test_every_exception_is_of_something_public():
    """What is excepted or has an entry is there: nothing is left of what has gone or has another name."""
    known = {function for function, _ in PUBLIC.values()}
    assert known >= MADE_HERE | ELSEWHERE | INSIDE | BASES
    asked = {function for function, _ in ASKED_OF.values()}
    methods = {(kind, function.__name__) for function, kind in ASKED_OF.values()}
    assert ENTRIES.keys() <= asked | methods


def test_a_generator_cannot_be_left_out():
    """What is random takes a generator by keyword, and has no default for it: without one Python itself refuses."""
    asked = {
        name: parameter
        for name, (function, kind) in ASKED_OF.items()
        for parameter in call_of(function, kind).parameters.values()
        if parameter.annotation is torch.Generator
    }
    assert len(asked) > 20
    assert not [n for n, p in asked.items() if p.kind is not p.KEYWORD_ONLY or p.default is not p.empty]


LAWS = [
    name
    for name, (kind, _) in PUBLIC.items()
    if inspect.isclass(kind) and issubclass(kind, core.Regression) and kind is not core.Regression
]


@pytest.mark.parametrize("inputs", [core.UNIFORM, core.RADEMACHER, core.LAPLACE], ids=lambda law: law.name)
@pytest.mark.parametrize("kind", LAWS)
def test_every_law_of_inputs_refuses_what_normal_numbers_refuse(kind, inputs):
    """A task with other inputs than Gaussian ones asks for a generator and a dtype as well."""
    call = call_of(*PUBLIC[kind])
    for bad in ({"generator": None}, {"dtype": torch.float16}, {"dtype": torch.int64}, {"dtype": None}):
        with pytest.raises(ValueError, match=f"^{next(iter(bad))} must be"):
            call(inputs=inputs).sample(2, **{"generator": profile.make_generator("x")} | bad)
