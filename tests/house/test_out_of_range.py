"""What would lose a mask or an imaginary part, or pass for a truth, is refused by name, in whatever room.

Several rooms at once: what one refuses the others refuse in the same words.
"""

import numpy as np
import pytest
import torch

from icl import _checks, filters, solvers
from icl.page import claims
from icl.profile import streams
from icl.tasks import DriftingRegression, HeavyTailedDrift, quadratics, square_root
from icl.theory import adversary, floors, lfom, moments, one_layer, population, steady
from icl.theory import lms_family as lms
from icl.theory.errata import memory

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
        lambda: memory.deviation(1, None, None, mended=value),
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
    "batch": lambda: DriftingRegression(10, 10**13, 0.9).sample(5, generator=streams("x")),
    "nodes": lambda: steady.squared_lengths(3, nodes=10**7),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_no_memory_holds_is_refused(name, as_installed):
    """By the setting's name and with the bytes, before anything is computed."""
    with pytest.raises(
        ValueError, match=rf"^{name} must be smaller, \d+ takes at least \S+ bytes and there are \S+, got"
    ):
        TOO_LARGE[name]()
