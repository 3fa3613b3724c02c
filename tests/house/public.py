"""All that is public in the library, and what annotations are made of."""

import dataclasses
import importlib
import inspect
import pkgutil
import re
import types
import typing

import jaxtyping

import icl
import icl_bench
import icl_book

OURS = ("icl.", "icl_bench.", "icl_book.")
#: Modules of one page each, icl_book.chapters.<part>.<page>: no door of the library, their caller is the page.
PAGES = re.compile(r"icl_book\.chapters\.\w+\.\w+")


def public():
    """Every public function and class of the library and every public method, by dotted name: what, and of which class.

    A class has the methods of its bases too.
    """
    found = {}
    rooms = [
        room
        for package in (icl, icl_bench, icl_book)
        for room in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not PAGES.fullmatch(room.name)
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


PUBLIC = public()


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


def named(text):
    """Names of doors, written in lines as `module: names`."""
    lines = (line.split(": ") for line in text.strip().splitlines())
    return {f"{module.strip()}.{name}" for module, names in lines for name in names.split()}


#: Results, states and records: dataclasses that check nothing, for the library itself makes them.
RESULTS = {
    name
    for name, (thing, _) in PUBLIC.items()
    if dataclasses.is_dataclass(thing) and not hasattr(thing, "__post_init__")
}
#: Parts that a model or filter calls at every step, with tensors that its own door has checked.
INSIDE = named("""
    icl.filters.Filter: update
    icl.kalman_updates: downdate innovation kalman_update
    icl.models.causal.Causal: checked errors
    icl.models.delta_layers.GatedDelta: beta lam
    icl.models.fast_weights.Gate: forward
    icl.models.fast_weights.LengthGate: forward
    icl.models.fast_weights.LinearGate: forward
    icl.models.fast_weights.Mamba2: Delta
    icl.models.s6: zero_order_hold
    icl.models.s6.FixedStep: forward
    icl.models.s6.Selective: forward
    icl.models.s6.Static: forward
    icl.models.s6.Step: forward
    icl.models.stacks.DeltaStack: decays
    icl.models.stacks.GatedDeltaStack: decays
    icl.models.stacks.GatedStack: gates
    icl.models.surgery.FadingMemory: carry forward setting
    icl.models.surgery.SoftmaxMemory: carry forward
    icl_bench.adapters: Body
    icl_bench.adapters.Body: forward
    icl_bench.adapters.MambaPy: forward
    icl_bench.catalogue: delta linear
    icl_bench.catalogue.Lstm: forward
    icl_bench.catalogue.Rotary: forward
    icl_bench.sequence.Block: forward
    icl_bench.sequence.InContext: checked
    icl_bench.sequence.Projected: forward
""")
#: Bases and protocols; what the library adds to prompts; an error's own text; and of the book figures, claims and
#: records, checked by hand or by the build.
OTHERS = named("""
    icl.experiments.checkpoint: checkpoint_error
    icl.experiments.training.Samples: sample
    icl.models.loading: pretrained
    icl.tasks.components: ComponentPrompt
    icl.tasks.core: Regression
    icl.tasks.core.Task: sample
    icl.tasks.objectives: Objective
    icl.tasks.rules: WordPrompt
    icl_bench.floors: RevealedPrompt
    icl_book.chapters.attention_swap: GateVariant
    icl_book.charts: Explorable Figure curves dots explorable font_face heatmap intervals slider strip tiles
    icl_book.charts.Figure: svg
    icl.tvp.estimator: TVPRegression
    icl_book.claims: Claim claim folder readable residue
    icl_book.claims.Claim: agrees holds limit
    icl_book.closure: digest file_hash modules
    icl_book.notation: letter
    icl_book.prose: glue said
    icl_book.records: record recorded
    icl_book.records.Record: covers
""")
