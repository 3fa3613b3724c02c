"""Wrong arguments are refused at the door, by name: derived from the annotations of all that is public.

`@validated` checks an argument before Python binds the others, and `validate_fields` comes first in `__post_init__`: a
wrong value alone has to raise what the argument's declared check says, and no valid call is needed. What these checks
refuse is tested in tests/icl/test_bounds.py and test_axes.py; what no annotation can say, in test_refusals.py.

The hook that checks annotations is stood down here, so that the library's own checks speak.
"""

import dataclasses
import inspect
import itertools
import math
import re
import typing

import numpy as np
import pytest
import torch
from house.public import INSIDE, OTHERS, PUBLIC, RESULTS, is_array, members, named

from icl import _axes, _bounds

pytestmark = pytest.mark.usefixtures("as_installed")

NAN, INF = math.nan, math.inf


class Door:
    """A public function, method, class or dataclass with what its annotations declare."""

    def __init__(self, thing):
        self.thing, self.fields = thing, dataclasses.is_dataclass(thing)
        own = thing.__init__ if inspect.isclass(thing) and not self.fields else thing
        hints = typing.get_type_hints(own, include_extras=True)
        parameters = inspect.signature(own).parameters
        self.parameters = {name: p for name, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
        self.hints = {name: hints[name] for name in self.parameters if name in hints}
        self.checks = {name: check for name, hint in self.hints.items() if (check := _bounds.check_of(hint))}
        self.arrays = _axes.shaped(parameters, typing.get_type_hints(own))

    def refusal(self, given):
        """What the annotations say of these arguments; None if nothing."""
        try:
            values = {name: self.checks[name](name, v) if name in self.checks else v for name, v in given.items()}
            _axes.agree(self.arrays, (), values)
        except ValueError as refusal:
            return str(refusal)
        return None

    def __call__(self, given):
        """Call it with these arguments alone; of a dataclass, validate an instance that has only these fields."""
        if self.fields:
            instance = object.__new__(self.thing)
            vars(instance).update(given)
            self.thing.__post_init__(instance)
        elif inspect.isclass(self.thing):
            self.thing.__init__(**given)
        elif inspect.isgenerator(result := self.thing(**given)):
            next(result)


UNLIKELY = [
    *(None, object(), "text", "", 1, -1, 1.5, -1.5, NAN, INF, -INF, 1j, True, [1.0], [[1.0, "a"]], torch.Generator),
    *(np.array([0.5, NAN]), np.ones((2, 2)) * 1j, np.ma.masked, torch.ones(2, requires_grad=True)),
    *(torch.tensor([1, 2]), torch.float16, np.random.default_rng(0)),
]


def ends(hint):
    """An open end of a declared bound, and numbers beyond each end."""
    if declared := _bounds.bound_of(hint):
        bound = declared[1]
        for end, inside, sign in ((bound.low, bound.low_in, -1), (bound.high, bound.high_in, 1)):
            if math.isfinite(end):
                yield from (end + 0.1 * sign, end + sign) if inside else (end, end + 0.1 * sign, end + sign)


def lengths(axes, size):
    """A shape with axes of this length; of any number of axes, one."""
    shape = [name if isinstance(name, int) else size for name, _ in (*axes.first, *axes.last)]
    return shape[: len(axes.first)] + [size] * (axes.several is not None) + shape[len(axes.first) :]


def array(argument, size, dtype=torch.float32):
    """An array of ones for an argument."""
    shape = lengths(argument.options[0], size)
    return torch.ones(shape, dtype=dtype) if argument.kind is torch.Tensor else np.ones(shape)


def candidates(door):
    """Arguments that annotations may refuse: one value alone, an axis more or less, two arrays that disagree."""
    if door.fields:
        yield dict.fromkeys(door.hints, object())
        return
    arrays = {each.name: each for each in door.arrays}
    for name in door.checks | arrays:
        yield from ({name: value} for value in (*UNLIKELY, *ends(door.hints[name]), *members(door.hints[name])))
    for name, each in arrays.items():
        yield from ({name: value} for value in (array(each, 2)[None], array(each, 2).ravel(), array(each, 2).sum()))
    for one, other in itertools.combinations(door.arrays, 2):
        yield {one.name: array(one, 2), other.name: array(other, 3)}
        yield {one.name: array(one, 2), other.name: array(other, 2, torch.float64)}


_LEFT_OUT = {PUBLIC[name][0] for name in RESULTS | INSIDE | OTHERS}
#: A method that is inherited is asked once, by its first name.
_FIRST = {thing: name for name, (thing, _) in reversed(PUBLIC.items()) if thing not in _LEFT_OUT}
CHECKED = {name: Door(thing) for thing, name in _FIRST.items()}


# What torch does not yet give numpy 2 is between the two.
@pytest.mark.filterwarnings("ignore:__array:DeprecationWarning")
@pytest.mark.parametrize("name", CHECKED)
def test_what_annotations_exclude_is_refused_by_name(name):
    """Whatever an argument's declared check refuses, the door refuses in the same words, before anything else."""
    door, refused = CHECKED[name], set()
    for given in candidates(door):
        if expected := door.refusal(given):
            with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
                door(given)
            refused.add(re.match(r"\w+", expected)[0])
    assert door.fields or refused >= door.checks.keys() | {each.name for each in door.arrays}


#: Arguments whose check is written by hand: test_refusals.py.
BY_HAND = named("""
    icl.experiments.evaluation.series_risks: y
    icl.experiments.training.Config: clip
    icl.tasks.series.mean_and_error: z
    icl.experiments.training_variants.FixedBatch.sample: batch
    icl.models.delta_layers.LFOM: c
    icl.models.fast_weights.RetNet: lam
    icl.experiments.tuning.GridResult: answers
    icl.filters.run_filter: mask
    icl.filters.track: mask
    icl.models.one_layer.OneLayerGLA.set_weights: W_KQ W_V
    icl.models.s6.S6: A
    icl.models.memformer.risks: Sigma
    icl.models.one_layer.decay_weights: like
    icl.models.one_layer.predict_from_features: A
    icl.models.paper_conventions.Convention: sign
    icl.models.surgery.logits_at: at tokens
    icl.models.surgery.generate: tokens
    icl.tasks.core.square_root: matrix
    icl.tasks.sentences.LabelledRows: topics
    icl.tasks.series.prepare: inputs labels
    icl.theory.errata.memory.deviation: number
    icl.theory.one_layer.adversary.great_circle: turn
    icl.theory.one_layer.population.PopulationLoss.gradient: theta
    icl.theory.one_layer.population.PopulationLoss.parts: theta
    icl.theory.one_layer.population.PopulationLoss.value: theta
    icl_bench.report.plain: error value
    icl_book.chapters.lm_init.match_scale: tokens
""")


@pytest.mark.parametrize("name", CHECKED)
def test_every_number_flag_generator_and_array_declares_a_check(name):
    """An argument that may be one of these and declares no check is red, unless it is checked by hand."""
    door = CHECKED[name]
    found = {argument for argument, hint in door.hints.items() if any(map(is_checkable, members(hint)))}
    undeclared = found - door.checks.keys() - {each.name for each in door.arrays}
    assert undeclared == {argument for argument in door.hints if f"{name}.{argument}" in BY_HAND}


@pytest.mark.parametrize("name", sorted(RESULTS))
def test_a_dataclass_that_checks_nothing_declares_no_bound(name):
    """Whoever declares a field's bound validates it."""
    hints = typing.get_type_hints(PUBLIC[name][0], include_extras=True)
    assert not [field for field, hint in hints.items() if _bounds.bound_of(hint)]


def is_checkable(kind):
    """Whether a kind of argument has to be bounded, or has a shape."""
    return is_array(kind) or kind in (int, float, bool, torch.Tensor, np.ndarray, torch.Generator, torch.dtype)


def test_nothing_is_excepted_that_is_not_there():
    """An exception goes with what it is of."""
    assert {f"{name}.{argument}" for name, door in CHECKED.items() for argument in door.hints} >= BY_HAND


def test_a_generator_cannot_be_left_out():
    """What is random takes a generator by keyword, and has no default for it: without one Python itself refuses."""
    given = {
        f"{name}.{argument}": door.parameters[argument]
        for name, door in CHECKED.items()
        for argument, hint in door.hints.items()
        if hint is torch.Generator
    }
    assert len(given) > 20
    assert not [name for name, p in given.items() if p.kind is not p.KEYWORD_ONLY or p.default is not p.empty]
