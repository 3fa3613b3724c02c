"""What would leave a dtype's range, lose a mask or an imaginary part, or pass for a truth, is refused by name."""

import numpy as np
import pytest
import torch

from icl import _checks, filters, solvers
from icl.models import s6
from icl.page import claims
from icl.profile import streams
from icl.tasks import (
    DriftingRegression,
    HeavyTailedDrift,
    LinearDrift,
    Noisy,
    Prompt,
    RegimeSwitching,
    SmoothDrift,
    StationaryRegression,
    quadratics,
    square_root,
    two_timescales,
)
from icl.theory import adversary, floors, moments, one_layer, population
from icl.theory import lms_family as lms
from icl.theory.errata import memory

F32, F64 = torch.float32, torch.float64

BEYOND = {
    "innovations of 1e-40": (DriftingRegression(2, 3, 0.9, sigma_e=1e-40), F32, "sigma_e must be 0 or from 3.4e-18"),
    "a spread of 1e39": (SmoothDrift(2, 3, 1, 1e39), F32, "sigma_w must be 0 or from 3.4e-18"),
    "regimes of 1e-30": (RegimeSwitching(2, 3, 0.9, sigma_e=1e-30), F32, "sigma_e must be 0 or from 3.4e-18"),
    "tails of 1e-23": (HeavyTailedDrift(2, 3, 0.9, sigma_e=1e-23), F32, "sigma_e must be 0 or from 3.4e-18"),
    "tails of 1e-200": (HeavyTailedDrift(2, 3, 0.9, sigma_e=1e-200), F64, "sigma_e must be 0 or from 4.7e-153"),
    "growth": (DriftingRegression(2, 1000, 1.1), F32, "weights must be finite in torch.float32, .* gamma = 1.1"),
    "growing regimes": (RegimeSwitching(2, 1000, 1.1, switch=0.0), F32, "weights must be finite in torch.float32"),
    "growing tails": (HeavyTailedDrift(2, 1000, 1.1), F32, "weights must be finite in torch.float32"),
    "a growing state": (LinearDrift(2, 1000, [[1.1]], [[1.0]], [1.0], [[1.0]]), F32, "weights must be finite in torch"),
    "growth in float64": (DriftingRegression(2, 1000, 3.0), F64, "weights must be finite in torch.float64"),
    "large weights": (
        StationaryRegression(2, 3, Sigma_w=1e90 * np.eye(2)),
        F32,
        "weights must be finite in torch.float",
    ),
    "large inputs": (StationaryRegression(2, 3, Lambda=1e90 * np.eye(2)), F32, "y must be finite in torch.float32"),
    "noise upon growth": (Noisy(DriftingRegression(2, 1000, 1.1), 0.1), F32, "weights must be finite in torch.float32"),
    "scales apart": (two_timescales(2, 3, gammas=(0.9, 0.5), variances=(1e10, 1e-10)), F64, "P_0 must have variances"),
}


@pytest.mark.parametrize(("task", "dtype", "said"), BEYOND.values(), ids=BEYOND)
def test_samples_beyond_their_dtype_are_refused(task, dtype, said):
    """A sample that is not finite, or has lost its innovations to its dtype, is refused by setting and dtype."""
    with pytest.raises(ValueError, match=said):
        task.sample(5, generator=streams("beyond"), dtype=dtype)


def test_samples_near_the_end_of_their_dtype_are_drawn():
    """Close to the limits samples are finite, and in proportion to those of ordinary size, to rounding."""
    ordinary = DriftingRegression(2, 50, 0.9).sample(20, generator=streams("near"))
    for scale in (1e-16, 1e16):
        task = DriftingRegression(2, 50, 0.9, sigma_w=scale, sigma_e=0.1 * scale)
        prompt = task.sample(20, generator=streams("near"))
        torch.testing.assert_close(prompt.w, ordinary.w * scale, rtol=1e-5, atol=1e-6 * scale)
    drawn = two_timescales(1, 3, gammas=(0.9, 0.5), variances=(1.0, 0.0)).sample(5, generator=streams("near"))
    assert torch.isfinite(drawn.w).all()


def test_prompts_hold_finite_labels():
    """A prompt whose labels are not finite is none."""
    x = torch.ones(1, 3, 2)
    for bad in (torch.nan, torch.inf):
        with pytest.raises(ValueError, match="y must be finite in torch"):
            Prompt(x, torch.tensor([[0.0, bad, 1.0]]), x)


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


@pytest.mark.parametrize(("A", "Delta"), [(1.0, 0.1), (0.0, 0.1), (-np.nan, 0.1), (-1.0, 0.0), (-1.0, np.inf)])
def test_a_hold_needs_a_decay(A, Delta):
    """Zero-order hold refuses rates that do not decay and steps that are none."""
    with pytest.raises(ValueError, match="must be finite and"):
        s6.held(torch.tensor([A]), torch.tensor([[Delta]]))


def claimed(kind):
    limit = True if kind == "truth" else 0.1
    return claims.Claim(
        "gla.test", "paper", "it is so", "by test", "reproduced", "because", {kind: limit}, chapter="book/x"
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
