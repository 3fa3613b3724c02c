"""One valid call of a public function, class or method, from its annotations and a table of what they leave open."""

import inspect
import typing
from dataclasses import dataclass, field

import jaxtyping
import numpy as np
import torch
from house.public import OURS, is_array, members

from icl import filters, profile, solvers
from icl.experiments import training_variants
from icl.models import causal, delta_layers, fast_weights, memformer, paper_conventions, stacks
from icl.models import s6 as mamba
from icl.tasks import core, drifts
from icl.theory import moments
from icl.theory import s6 as closed
from icl.theory.errata import memory
from icl.theory.one_layer import population, separate_qk


@dataclass
class Entry:
    """What a signature cannot say.

    given:  arguments of the valid call, where annotation and name lead to others, or a function of the method's object.
    sizes:  of named axes, where they differ from SIZES.
    also:   refusals that no annotation implies: changed arguments, and how the message begins.
    """

    given: typing.Any = field(default_factory=dict)
    sizes: dict = field(default_factory=dict)
    also: typing.Any = ()


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
    """A callable, arguments that it takes, their parameters, and what else has to be refused."""

    function: typing.Any
    given: dict
    parameters: dict
    also: typing.Any
    owner: typing.Any

    def __call__(self, **changes):
        """Call it; a generator is drawn from, because its checks run only then."""
        result = self.function(**self.given | changes)
        return list(result) if inspect.isgenerator(result) else result


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
    return Call(target, given, parameters, special.also, instance)


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
    raise LookupError(f"no valid value for {name}: {parameter.annotation}; give one in a table of tests/house/calls")


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
