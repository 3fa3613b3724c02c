"""What would lose a mask or an imaginary part, or pass for a truth, is refused by name, in whatever room.

Several rooms at once: what one refuses the others refuse in the same words.
"""

import os
import re

import numpy as np
import pytest
import torch

from icl import _checks, filters, solvers
from icl.models.memformer import Full, Memory
from icl.models.one_layer import OneLayerGLA
from icl.models.paper_conventions import LITERAL, FullStack
from icl.models.s6 import S6, FixedStep, S6Stack, Selective
from icl.models.scalar_heads import ScalarHeads
from icl.profile import make_generator
from icl.tasks import DriftingRegression, HeavyTailedDrift, UnknownDrift, quadratics, sentences
from icl.tasks.components import GaussianComponents
from icl.tasks.core import square_root
from icl.theory import floors, lfom, moments, one_layer
from icl.theory.floors import label_rule
from icl.theory.one_layer import adversary, population, sign_flips
from icl.theory.steady import cheap_covariance, fast_weights
from icl.theory.steady import lms_family as lms
from icl_bench.catalogue import Lstm, Softmax
from icl_bench.sequence import Block, InContext, Projected
from icl_book import claims

TASK = DriftingRegression(2, 4, 0.9)
LAMS = np.ma.array([0.5, 0.6], mask=[False, True])
EYE = np.ma.array(np.eye(2), mask=[[False, True], [True, False]])
MASKED = {
    "training_error": lambda: one_layer.training_error(TASK, lam=LAMS),
    "recursion": lambda: moments.recursion(LAMS, gamma=0.9, n=4),
    "expected_errors": lambda: floors.expected_errors(np.ma.ones((1, 5, 2)), TASK),
    "best_linear_errors": lambda: floors.best_linear_errors(np.ma.ones((1, 5, 2)), TASK),
    "genie_errors": lambda: floors.genie_errors(
        np.ones((1, 5, 2)), HeavyTailedDrift(2, 4, 0.9), np.ones((1, 5)), np.ma.zeros((1, 5), dtype=bool)
    ),
    "errors": lambda: lms.errors(TASK, LAMS),
    "pack": lambda: population.pack(np.ma.ones((3, 3)), np.eye(3)),
    "value": lambda: population.layer_loss(TASK, lam=0.9).value(np.ma.ones((3, 3))),
    "path_error": lambda: adversary.path_error(np.ma.ones((3, 2)), lam=0.9, a=0.1),
    "Lambda": lambda: DriftingRegression(2, 4, 0.9, Lambda=EYE),
    "square_root": lambda: square_root(EYE),
    "regression": lambda: quadratics.regression(EYE, 4),
    "gla": lambda: filters.gla(EYE, lam=0.9),
    "M": lambda: solvers._preconditioner(EYE),
    "gamma": lambda: DriftingRegression(2, 4, np.ma.masked),
}


@pytest.mark.parametrize("call", MASKED.values(), ids=MASKED)
def test_masked_arrays_are_refused(call, as_installed):
    """What a mask hides is not computed with: a masked array is refused wherever an array is taken."""
    with pytest.raises(ValueError, match="must not be a masked array"):
        call()


@pytest.mark.parametrize("place", [0, 1])
def test_an_imaginary_part_is_not_dropped(place, as_installed):
    """Merged weights, and what a claim compares, are real."""
    both = [np.eye(3), np.eye(3)]
    both[place] = both[place] * 1j
    with pytest.raises(ValueError, match="must be real"):
        population.pack(*both)
    with pytest.raises(ValueError, match="must be real"):
        population.layer_loss(TASK, lam=0.9).hessian(both[place]) if place else floors.expected_errors(
            np.ones((1, 5, 2)) * 1j, TASK
        )
    with pytest.raises(ValueError, match="must be real"):
        claimed("relative").agrees(*both)


def claimed(kind):
    limit = True if kind == "truth" else 0.1
    return claims.Claim(
        *("gla.test", "paper", "paper", "it is so", "by test", "reproduced", "because", {kind: limit}), chapter="book/x"
    )


TRUTHY = [
    [False],
    [True],
    "False",
    "no",
    float("nan"),
    1,
    0,
    1.0,
    np.array([True]),
    torch.tensor(True),
    (lambda: False),
]


@pytest.mark.parametrize(
    "value", TRUTHY, ids=lambda value: "a function" if callable(value) and not hasattr(value, "shape") else repr(value)
)
def test_what_is_merely_truthy_proves_nothing(value, as_installed):
    """A list, a text, NaN, a number, a tensor or a function is no outcome of a check, and no flag of a formula."""
    truth = claimed("truth")
    for call in (
        lambda: truth.holds(value, note=""),
        lambda: truth.holds(True, note="", caveat=value),
        lambda: truth.holds(False, note="", instead=value),
        lambda: claimed("relative").agrees(1.0, 1.0, caveat=value),
        lambda: _checks.flag("it", value),
        lambda: lms.errors(TASK, 0.1, normalised=value),
        lambda: lms.steady_error(TASK, 0.1, normalised=value),
        lambda: lms.best_steady(TASK, normalised=value),
    ):
        with pytest.raises(ValueError, match="must be True or False"):
            call()
    with pytest.raises(ValueError, match="condition must be True or False, got None"):
        truth.holds(None, note="")


@pytest.mark.parametrize("value", [True, np.True_])
def test_truths_are_truths(value, as_installed):
    """True of Python and of numpy are taken, and are the same."""
    assert claimed("truth").holds(value, note="").verdict == "reproduced"
    assert _checks.flag("it", value) is True
    np.testing.assert_array_equal(lms.errors(TASK, 0.1, normalised=value), lms.errors(TASK, 0.1, normalised=True))


TOO_LARGE = {
    "layers": lambda: lfom.gradient_descent_table(0.1, 10**6),
    "d": lambda: DriftingRegression(10**7, 3, 0.9),
    "batch": lambda: DriftingRegression(10, 10**13, 0.9).sample(5, generator=make_generator("x")),
    "nodes": lambda: fast_weights.squared_lengths(3, nodes=10**7),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_no_memory_holds_is_refused(name, as_installed):
    """By the setting's name and with the bytes, before anything is computed."""
    with pytest.raises(
        ValueError, match=rf"^{name} must be smaller, \d+ takes at least \S+ bytes and there are \S+, got"
    ):
        TOO_LARGE[name]()


FAST = HeavyTailedDrift(2, 4, 0.9)
SPEEDS = UnknownDrift(2, 4, (0.5, 0.9), 0.3)
CLUSTERS = GaussianComponents(2, 4, [2.5, -1], [0.5, 2], [0.2, 0.8])
S6_LAYER = S6(*(Selective(3, 4) for _ in range(2)), FixedStep(0.1), -torch.ones(4, dtype=torch.float64))
#: Settings by name, calls with them, and the bytes of their largest array.
BYTES = {
    "a task's prompts": ("batch", lambda: TASK.sample(7, generator=make_generator("x")), 8 * 7 * 5 * 2),
    "steps revealed": ("batch", lambda: FAST.reveal(7, generator=make_generator("x")), 8 * 7 * 5 * 2),
    "speeds revealed": ("batch", lambda: SPEEDS.reveal(7, generator=make_generator("x")), 8 * 7 * 5 * 2),
    "components": ("batch", lambda: CLUSTERS.sample(7, generator=make_generator("x")), 8 * 7 * 5 * 2),
    "a rotation": ("d", lambda: quadratics.rotation(30, generator=make_generator("x")), 8 * 30**2),
    "one layer": ("d", lambda: OneLayerGLA(30, lam=0.9, scale=0.1, generator=make_generator("x")), 8 * 30**2),
    "a reading": (
        "d",
        lambda: FullStack(30, 3, reading=LITERAL, scale=0.1, generator=make_generator("x")),
        16 * 3 * 30**2,
    ),
    "S6 layers": ("d_e", lambda: S6Stack([S6_LAYER], 30), 8 * 30**2),
    "scalar heads": ("layers", lambda: ScalarHeads(1, 30, 6), 8 * 30**2),
    "matrices of a memformer": ("d", lambda: Full(30, 3), 8 * 3 * 30**2),
    "a memory": ("layers", lambda: Memory(30), 8 * 30**2),
    "gradient descent": ("layers", lambda: lfom.gradient_descent_table(0.1, 30), 8 * 30**2),
    "the heavy ball": ("layers", lambda: lfom.momentum_table(0.1, 0.9, 30), 8 * 30**2),
    "Nesterov's method": ("layers", lambda: lfom.nesterov_table(0.1, 0.9, 30), 8 * 30**2),
    "nodes of a quadrature": ("nodes", lambda: fast_weights.squared_lengths(3, nodes=30), 8 * 30**2),
    "softmax attention": ("width", lambda: Softmax(32), 4 * 32**2),
    "an LSTM": ("width", lambda: Lstm(32), 4 * 32**2),
    "a block": ("width", lambda: Block(32, torch.nn.Identity()), 4 * 32**2),
    "projections": ("width", lambda: Projected(lambda q, k, v: v, 32), 4 * 32**2),
    "a model in context": ("width", lambda: InContext(3, 32, torch.nn.Identity()), 4 * 32**2),
}


CIRCLE = adversary.great_circle(3, 2, R=1.0, delta=0.1)
LAYER = {"lam": 0.8, "a": 0.1}
ROWS = sentences.LabelledRows(np.array([[1.0], [-1.0]]), np.array([1.0, -1.0]))
ONE = DriftingRegression(1, 3, 0.9)
UNHELD = {
    "a radius": (lambda R: adversary.step_angle(R, 0.1), "R must be finite and >= 1e-150", [1e300, 1e-300]),
    "a ball": (lambda R: adversary.upper_bound(CIRCLE, R=R, delta=0.1, **LAYER), "R must be", [1e300, 1e-300]),
    "a sphere": (lambda R: adversary.minimax_on_sphere(3, 2, R=R, delta=0.1), "R must be", [1e300, 1e-300]),
    "a search": (lambda R: adversary.worst_path(CIRCLE, R=R, delta=0.1, **LAYER), "R must be", [1e300, 1e-300]),
    "a step": (lambda s: adversary.upper_bound(CIRCLE, R=1.0, delta=s, **LAYER), "delta must be", [1e300]),
    "a path": (lambda w: adversary.best_layer(w * CIRCLE), "w must be finite and >= -1e", [1e300]),
    "its error": (lambda w: adversary.path_error(w * CIRCLE, **LAYER), "w must be finite and >= -1e", [1e300]),
    "a trap": (lambda lam: population.trap_curvature(TASK, lam=lam), "lam must keep Lambda~", [1e-300]),
    "signs": (lambda lam: sign_flips.sign_layer(ROWS, lam=lam, flip=0.1, n=3), "lam must keep D1", [1e150, 1e-300]),
    "a grid": (
        lambda s: label_rule.positive_probability(np.ones((1, 3, 1)), np.ones((1, 3), bool), ONE, sigma_y=s),
        "sigma_y must leave widths less unequal",
        [1e-160, 1e-300, 5e-324],
    ),
}


@pytest.mark.parametrize("what", UNHELD)
@pytest.mark.filterwarnings("error")
def test_what_float64_does_not_hold_is_refused_by_name(what, as_installed):
    """No OverflowError, ZeroDivisionError or NaN, and no warning of what is then refused."""
    call, message, values = UNHELD[what]
    for value in values:
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            call(value)


def test_labels_of_boundless_noise_tell_nothing():
    """An even chance each, where the noise's square leaves float64."""
    x, positive, rule = np.ones((1, 3, 1)), np.ones((1, 3), dtype=bool), DriftingRegression(1, 3, 0.5, sigma_e=0.8)
    np.testing.assert_allclose(label_rule.positive_probability(x, positive, rule, sigma_y=1e300), 0.5, rtol=1e-9)


def test_a_spread_is_what_it_tends_to_where_squares_leave_float64():
    """s (1 - eps) (eps + v) / eps^2 - 1 tends to -s - 1 as eps grows and to s v / eps^2 as it falls."""
    assert cheap_covariance.spread_needed(1e300, 0.1, 0.1) == pytest.approx(-1.1, rel=1e-12, abs=0)
    assert cheap_covariance.spread_needed(1e-170, 1e-100, 1e-60) == pytest.approx(1e180, rel=1e-12, abs=0)


@pytest.mark.parametrize("what", BYTES)
def test_what_memory_just_holds_is_taken(what, monkeypatch, as_installed):
    """On a machine with as many bytes as the largest array has; with one less it is refused."""
    name, call, size = BYTES[what]
    memory = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": size}
    monkeypatch.setattr(os, "sysconf", memory.__getitem__)
    call()
    memory["SC_PHYS_PAGES"] -= 1
    with pytest.raises(
        ValueError, match=rf"^{name} must be smaller, \d+ takes at least {re.escape(f'{size:.3g}')} bytes"
    ):
        call()


@pytest.mark.parametrize("value", [np.float64(np.nan), np.float32(np.inf), np.array([1.0, -3.0]), [1.0, -np.inf]])
def test_messages_print_plain_numbers(value, as_installed):
    """A number of numpy is told as Python's own, without its type."""
    for check in (
        lambda: _checks.real("lam", value, above=0),
        lambda: filters.delta_rule(value, lam=0.9),
        lambda: _checks.integer("n", np.int64(-2), at_least=1),
    ):
        with pytest.raises(ValueError, match=r"got (nan|inf|-inf|-3\.0|-2)$"):
            check()
