"""Resolve model specifications: a built-in name, file.py:Class, or module:Class.

:func:`resolve` takes a built-in name (`CONTESTANTS`) or a user's own object, `my_layer.py:MyLayer` or
`package.module:Name`; `called=my_layer.py:MyLayer` gives it another name. The kinds, and how they are recognised:

    layer         a subclass of nn.Module, or a function that returns a module; called once a block with the width
    model         the same, with a parameter called depth: called once, in place of all blocks
    operator      a function with parameters called q, k and v (:class:`~icl_bench.sequence.Projected`)
    transformers  a configuration of transformers, a function that returns one, a class of either, or of models
    causal        a class of :class:`~icl.models.causal.Causal`, or a function that returns one
    filter        an :class:`~icl.filters.Filter`, or a function that returns one; used without training
    tunable       an :class:`~icl.experiments.tuning.Tunable`; tuned by :func:`~icl.experiments.tuning.tune`

Layers and models get the width as `width` if they have a parameter of that name, and as their first argument otherwise.
They also get these by name, if they have such a parameter: `depth`, blocks; `longest`, the maximum sequence length in
tokens; `heads`, one for each sixteen numbers of the width. Causal models, filters and tunables get `d`, the inputs'
dimension, which a Causal class may also take as its first argument; `n`, examples a prompt; and `longest`, here the
largest number of examples, if they have such parameters. A function whose signature does not determine its kind is
called once.
"""

import contextlib
import hashlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import nn

from icl import _checks
from icl._bounds import Count, Natural, validate_fields, validated
from icl.experiments.evaluation import Predictor
from icl.experiments.tuning import Tunable
from icl.filters import Filter
from icl.models.causal import Causal
from icl_bench import adapters, imports
from icl_bench.catalogue import CONTESTANTS
from icl_bench.sequence import BlockStack, InContext, Projected, heads_for, operator_gates

KINDS = ("layer", "model", "operator", "transformers", "causal", "filter", "tunable")
_UNTRAINED = ("filter", "tunable")
_WANTED = (
    "a class of nn.Module or a function that returns one, an operator of q, k, v, a configuration of transformers, a "
    "FastWeights or Causal class, a Filter or a Tunable"
)


@dataclass(frozen=True)
class Shape:
    """Sizes that a contestant is built for.

    Attributes:
        d: dimension of the inputs.
        n: labelled examples a prompt.
        width: of a layer, numbers a token.
        depth: blocks of one layer each.
        longest: maximum sequence length, in tokens.
    """

    d: Count
    n: Count
    width: Count
    depth: Count
    longest: Count

    def __post_init__(self) -> None:
        """Check sizes; errors name the field."""
        validate_fields(self)
        _checks.integer("longest", self.longest, at_least=2 * self.n + 1)


#: Sizes for the trial call of a function whose signature does not determine its kind.
_TRIED = Shape(5, 64, 32, 2, 257)


@dataclass(frozen=True, eq=False)
class Contestant:
    """A contestant: a resolved model specification.

    Attributes:
        name: its name in results; a valid file name.
        spec: the specification as given.
        kind: one of `KINDS`.
        about: one plain sentence.
        build: builds it for a shape, initialised from torch's global random stream.
        trained: False for filters, which are used as they are, and tunables, which are tuned.
        source: hash of its source: the user's files, or names and versions of installed packages.
        path: folder to put on `sys.path` in another process to resolve the same spec, "" for none.
        depth_inside: True for a whole model: it gets the budget's depth, or has its own.
    """

    name: str
    spec: str
    kind: str
    about: str
    build: Callable[[Shape], Causal | Filter | Tunable]
    trained: bool
    source: str
    path: str
    depth_inside: bool


@validated
def torch_seeded(seed: Natural = 0, *, device: str = "cpu") -> contextlib.AbstractContextManager[None]:
    """Seed torch's global random streams within a context, and restore them afterwards; user modules draw from these.

    Args:
        seed: >= 0.
        device: device whose stream is restored too, "cpu" or as "cuda:1".
    """
    _checks.text("device", device, "cpu, or one as cuda:1")
    return _torch_seeded(seed, device)


@contextlib.contextmanager
def _torch_seeded(seed: int, device: str) -> Iterator[None]:
    with torch.random.fork_rng(devices=[device] if device.startswith("cuda") else []):
        if device.startswith("cuda"):
            torch.manual_seed(seed)
        else:
            # As torch.manual_seed, but that defers seeding of GPUs, and records a traceback at every call.
            torch.default_generator.manual_seed(seed)
        yield


@validated
def resolve(spec: str, *, kind: str | None = None) -> Contestant:
    """Resolve a model specification to a contestant.

    Args:
        spec: a name of `CONTESTANTS`, `file.py:Name` or `package.module:Name`; a prefix `called=` renames it.
        kind: one of `KINDS`; None infers it.

    Raises:
        ValueError: if it is not found or cannot take part: what was given, what is wrong, what to change. An error of
            somebody's own code is its cause.
    """
    given: Any = spec
    if not isinstance(given, str) or not given.strip():
        raise ValueError(f"spec must be a name, file.py:Name or package.module:Name, got {given!r}")
    if kind is not None and kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    called, equals, where = spec.rpartition("=")
    called, where = called.strip(), where.strip()
    if equals and not re.fullmatch(r"[A-Za-z0-9][\w.-]*", called, re.ASCII):
        raise ValueError(f"spec must have letters, digits, dots and dashes before its =, got {called!r} in {spec!r}")
    if ":" not in where:
        return _builtin(where, spec, called, kind)
    what, file = imports.load(where)
    name = where.rpartition(":")[2]
    resolved_kind = _kind_of(what, where) if kind is None else _as_kind(what, where, kind)
    _callable(what, name, resolved_kind)
    origin = hashlib.sha256(f"{name}\0{imports.source_hash(file)}".encode()).hexdigest()
    return _contestant(called or name, spec, resolved_kind, _about(what), what, origin, _path(where, file))


@validated
def in_the_middle(tunable: Tunable, shape: Shape) -> Predictor:
    """Untuned predictor of a tunable: every setting at the middle of its grid, and 0.1 where it is solved for.

    Args:
        tunable: any.
        shape: gives the dimension.
    """
    settings = {axis: float(values[len(values) // 2]) for axis, values in tunable.axes.items()}
    return tunable.build(shape.d, **settings | dict.fromkeys(tunable.linear, 0.1))


def _builtin(name: str, spec: str, called: str, kind: str | None) -> Contestant:
    if name not in CONTESTANTS:
        if name.endswith(".py") or "/" in name:
            raise ValueError(f"spec must say what in the file is meant, as {name}:MyLayer, got {spec!r}")
        if "." in name:
            raise ValueError(f"spec must say what in the module is meant, as {name}:MyLayer, got {spec!r}")
        near = imports.nearest(name, list(CONTESTANTS))
        raise ValueError(
            f"spec must be file.py:Name, package.module:Name or a name that the tool has, got {spec!r}"
            f"{near or '; the names are ' + ', '.join(CONTESTANTS)}"
        )
    builtin = CONTESTANTS[name]
    if kind not in (None, builtin.kind):
        raise ValueError(f"kind must be {builtin.kind} for {name}, or left out, got {kind!r}")
    for package in builtin.needs:
        if not adapters.is_installed(package):
            raise ValueError(f"{name} needs the package {package}, which is not here: pip install {package}")
    # The run's own hash covers this library's code.
    versions = "".join(f"\0{package} {metadata.version(package)}" for package in builtin.needs)
    origin = hashlib.sha256(f"{name} of icl{versions}".encode()).hexdigest()
    return _contestant(called or name, spec, builtin.kind, builtin.about, builtin.factory, origin, "")


def _path(where: str, file: Path) -> str:
    """Folder from which a spec resolves again: the base of a relative file, or the parent of a module's package."""
    path = Path(where.rpartition(":")[0]).expanduser()
    if path.suffix == ".py" and not path.is_absolute():
        for folder in (str(Path.cwd()), *sys.path):
            if (Path(folder) / path).resolve() == file:
                return str(Path(folder).resolve())
    return str(imports.package_root(file))


def _about(what: Any) -> str:
    """First line of an object's own docstring, not an inherited one."""
    if not isinstance(what, type) and not inspect.isroutine(what):
        return ""
    text = (vars(what) if isinstance(what, type) else {"__doc__": what.__doc__}).get("__doc__")
    return inspect.cleandoc(text).partition("\n")[0][:120] if isinstance(text, str) else ""


def _contestant(name: str, spec: str, kind: str, about: str, what: Any, source: str, path: str) -> Contestant:
    builders: dict[str, Callable[[Any, str, Shape], Causal | Filter | Tunable]] = {
        "layer": _build_layer,
        "operator": _build_operator,
        "model": _build_model,
        "transformers": _build_transformers,
        "causal": _build_causal,
        "filter": _build_filter,
        "tunable": _build_tunable,
    }
    builder = builders[kind]
    return Contestant(
        name,
        spec,
        kind,
        about or f"{spec}, as {kind}",
        lambda shape: builder(what, name, shape),
        kind not in _UNTRAINED,
        source,
        path,
        kind in ("model", "transformers", "causal"),
    )


def _build_layer(what: Any, name: str, shape: Shape) -> Causal:
    mixers = [_module(_with_width(what, name, shape), name) for _ in range(shape.depth)]
    return InContext(shape.d, shape.width, BlockStack(shape.width, mixers))


def _build_operator(what: Any, name: str, shape: Shape) -> Causal:
    if _parameters(what).keys() >= {"q", "k", "v"}:
        mixers: list[nn.Module] = [Projected(what, shape.width) for _ in range(shape.depth)]
        return InContext(shape.d, shape.width, BlockStack(shape.width, mixers))
    return _build_layer(what, name, shape)


def _build_model(what: Any, name: str, shape: Shape) -> Causal:
    config = adapters.dataclass_config(what)
    if config is not None:
        parameter, width, depth, settings = config
        sizes = {width: shape.width} | ({depth: shape.depth} if depth else {})
        model = _run(what, name, (), {parameter: _run(settings, name, (), sizes)})
    else:
        model = _with_width(what, name, shape)
    return InContext(shape.d, shape.width, _module(model, name))


def _build_transformers(what: Any, name: str, shape: Shape) -> Causal:
    if adapters.is_model_class(what):
        model = _run(what, name, (_configuration(what.config_class, name, shape),), {})
    elif adapters.is_config_class(what):
        model = _configuration(what, name, shape)
    elif adapters.is_config(what):
        model = what
    else:
        model = _with_width(what, name, shape, needs_width=False)
    if not adapters.is_config(model) and not adapters.is_model(model):
        raise ValueError(f"{name} must return a configuration or a model of transformers, got {type(model).__name__}")
    try:
        body = adapters.body_of(model, longest=shape.longest)
    except Exception as error:
        raise ValueError(f"{name} could not be made: {_error_text(error)}") from error
    return InContext(shape.d, body.width, body)


def _configuration(kind: type, name: str, shape: Shape) -> Any:
    try:
        return adapters.build_config(kind, width=shape.width, depth=shape.depth, longest=shape.longest)
    except Exception as error:
        raise ValueError(
            f"{name} could not be configured for width {shape.width} and depth {shape.depth}: {_error_text(error)}; "
            "write a "
            "function of width, depth and longest that returns the configuration"
        ) from error


def _build_causal(what: Any, name: str, shape: Shape) -> Causal:
    model = _with_d(what, name, shape)
    if not isinstance(model, Causal):
        raise ValueError(f"{name} must return an icl.models.causal.Causal, got {type(model).__name__}")
    if model.d != shape.d:
        raise ValueError(
            f"{name} must be for inputs of dimension {shape.d}, got one for {model.d}: take d as an argument"
        )
    return model


def _build_filter(what: Any, name: str, shape: Shape) -> Filter:
    filter_ = what if isinstance(what, Filter) else _with_d(what, name, shape)
    if not isinstance(filter_, Filter):
        raise ValueError(f"{name} must return an icl.filters.Filter, got {type(filter_).__name__}")
    if filter_.settings:
        raise ValueError(
            f"{name} must try one setting, got {filter_.settings} at once: make an icl.experiments.tuning.Tunable"
        )
    return filter_


def _build_tunable(what: Any, name: str, shape: Shape) -> Tunable:
    tunable = what if isinstance(what, Tunable) else _with_d(what, name, shape)
    if not isinstance(tunable, Tunable):
        raise ValueError(f"{name} must return an icl.experiments.tuning.Tunable, got {type(tunable).__name__}")
    return tunable


def _callable(what: Any, name: str, kind: str) -> None:
    """Check that every required parameter has an argument, before anything is built."""
    if kind == "operator":
        try:
            operator_gates(what)
        except ValueError as error:
            raise ValueError(f"{name} cannot be an operator: {error}") from error
    elif kind in ("layer", "model") and not adapters.dataclass_config(what):
        _arguments(what, name, "width", _TRIED, True)
    elif kind in ("causal", "filter", "tunable") and not isinstance(what, Filter | Tunable):
        _arguments(what, name, "d", _TRIED, False)


def _module(model: Any, name: str) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise ValueError(f"{name} must return a torch.nn.Module, got {type(model).__name__}")
    return model


def _parameters(what: Any) -> dict[str, inspect.Parameter]:
    """Parameters of a callable; none if it has no readable signature."""
    try:
        parameters = dict(inspect.signature(what).parameters)
    except (TypeError, ValueError):
        return {}
    return {name: each for name, each in parameters.items() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)}


def _with_width(what: Any, name: str, shape: Shape, *, needs_width: bool = True) -> Any:
    return _run(what, name, *_arguments(what, name, "width", shape, needs_width))


def _with_d(what: Any, name: str, shape: Shape) -> Any:
    return _run(what, name, *_arguments(what, name, "d", shape, False))


def _arguments(
    what: Any, name: str, first: str, shape: Shape, needs_first: bool
) -> tuple[tuple[int, ...], dict[str, int]]:
    """Arguments for a call: `first` by name or else as the first argument, the other sizes by name."""
    sizes = {"d": shape.d, "n": shape.n, "longest": (shape.longest - 1) // 2}
    if first == "width":
        sizes = {"width": shape.width, "depth": shape.depth, "longest": shape.longest, "heads": heads_for(shape.width)}
    parameters = _parameters(what)
    given = {each: value for each, value in sizes.items() if each in parameters}
    places: tuple[int, ...] = ()
    front = next(iter(parameters.values()), None)
    takes_place = front is not None and front.name not in sizes and front.kind is not front.KEYWORD_ONLY
    if takes_place and first not in parameters and (first == "width" or _is_causal(what)):
        places = (sizes[first],)
    elif first in given and parameters[first].kind is inspect.Parameter.POSITIONAL_ONLY:
        places = (given.pop(first),)
    if needs_first and first not in given and not places:
        raise ValueError(
            f"{name} must take the {first}, as a parameter called {first} or its first, got {_signature(what)}: write "
            f"a function of {first} that makes it"
        )
    covered = set(given) | ({front.name} if places and front else set())
    lacking = [each for each, p in parameters.items() if p.default is p.empty and each not in covered]
    if lacking:
        raise ValueError(
            f"{name} needs {', '.join(lacking)}, which the tool does not tell it (only {', '.join(sizes)}), got "
            f"{_signature(what)}: give a default, or write a function of {first} that makes it"
        )
    return places, given


def _is_causal(what: Any) -> bool:
    return isinstance(what, type) and issubclass(what, Causal)


def _signature(what: Any) -> str:
    called = getattr(what, "__name__", type(what).__name__)
    try:
        return f"{called}{inspect.signature(what)}"[:200]
    except (TypeError, ValueError):
        return f"{called}(?)"


def _run(what: Any, name: str, places: tuple[Any, ...], given: dict[str, Any]) -> Any:
    try:
        return what(*places, **given)
    except Exception as error:
        call = ", ".join([*map(_short, places), *(f"{each}={_short(value)}" for each, value in given.items())])
        called = getattr(what, "__name__", type(what).__name__)
        raise ValueError(f"{name} could not be made: {called}({call}) raised {_error_text(error)}") from error


def _short(value: Any) -> str:
    return repr(value) if isinstance(value, int) else f"{type(value).__name__}(..)"


def _error_text(error: BaseException) -> str:
    """One-line description of an error in user code: type, message, last line of the traceback."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    at = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {str(error) or 'without a message'}{at}"


def _kind_of(what: Any, where: str) -> str:
    """Infer an object's kind from its type, its signature or the value it returns."""
    for kind, is_one in (
        ("tunable", isinstance(what, Tunable)),
        ("filter", isinstance(what, Filter)),
        ("transformers", adapters.is_config(what) or adapters.is_config_class(what) or adapters.is_model_class(what)),
    ):
        if is_one:
            return kind
    if isinstance(what, nn.Module):
        raise ValueError(
            f"{where} is a {type(what).__name__} that is made already, and every seed needs a new one: name its class, "
            "or a function of width that makes it"
        )
    if not callable(what):
        raise ValueError(f"{where} must be {_WANTED}, got {type(what).__name__} {what!r:.60}")
    parameters = _parameters(what)
    if isinstance(what, type):
        if _is_causal(what):
            return "causal"
        if not issubclass(what, nn.Module):
            raise ValueError(f"{where} must be {_WANTED}, got a class that is no nn.Module: let it be one")
        return "model" if "depth" in parameters or adapters.dataclass_config(what) else "layer"
    if {"q", "k", "v"} <= parameters.keys():
        return "operator"
    return _kind_by_call(what, where, parameters)


def _kind_by_call(what: Any, where: str, parameters: dict[str, inspect.Parameter]) -> str:
    """Infer a function's kind from one trial call, with d if it has that parameter, else with a width."""
    tries = (_with_d, _with_width) if "d" in parameters and "width" not in parameters else (_with_width,)
    built: Any = None
    for each in tries:
        with torch_seeded():
            built = (
                each(what, where, _TRIED) if each is _with_d else _with_width(what, where, _TRIED, needs_width=False)
            )
        for kind, is_one in (
            ("causal", isinstance(built, Causal)),
            ("filter", isinstance(built, Filter)),
            ("tunable", isinstance(built, Tunable)),
            ("transformers", adapters.is_config(built) or adapters.is_model(built)),
        ):
            if is_one:
                return kind
    if isinstance(built, nn.Module):
        return "model" if "depth" in parameters else "layer"
    raise ValueError(f"{where} must be {_WANTED}; it is a function that returned {type(built).__name__} {built!r:.60}")


def _as_kind(what: Any, where: str, kind: str) -> str:
    """Check that an object can be used as the requested kind, and return that kind."""
    fits = {
        "filter": isinstance(what, Filter) or callable(what),
        "tunable": isinstance(what, Tunable) or callable(what),
        "transformers": adapters.is_config(what) or callable(what),
        "operator": callable(what) and {"q", "k", "v"} <= _parameters(what).keys(),
    }.get(kind, callable(what) and not isinstance(what, nn.Module))
    if not fits:
        raise ValueError(f"{where} cannot be taken as {kind}: it is {type(what).__name__} {what!r:.60}")
    return kind
