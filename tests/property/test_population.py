"""What holds of the population loss whatever the parameters: its squares, its symmetry.

Tolerances. Every term of the loss is a product of parameters and of moments that are not negative while Lambda is
diagonal and the kernel positive; at the parameters' absolute values all terms but those with D1 are positive, so that
the loss there, with D1 turned round, is the sum of their sizes. Rounding is at most 1e-13 of it.
"""

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icl.tasks import DriftingRegression
from icl.theory import population

ROUNDING = 1e-13


@st.composite
def cases(draw):
    """Numbers for a task and for parameters: d to 4, n to 8, variances from 0, entries 0 or of sizes 1e-3 to 1e3."""
    d = draw(st.integers(1, 4))
    entry = st.just(0.0) | st.builds(lambda sign, power: sign * 10**power, st.sampled_from([-1, 1]), st.floats(-3, 3))
    return {
        "n": draw(st.integers(1, 8)),
        "gamma": draw(st.floats(0, 1.2)),
        "sigma_e": draw(st.floats(0, 2)),
        "lam": draw(st.floats(0.1, 1.2)),
        "variances": draw(st.lists(st.just(0.0) | st.floats(1e-3, 3), min_size=d, max_size=d)),
        "entries": draw(st.lists(entry, min_size=(d + 1) ** 2, max_size=(d + 1) ** 2)),
    }


def made(case):
    """The loss, the parameters, and the loss whose parts at absolute values are the sizes of all terms."""
    d = len(case["variances"])
    task = DriftingRegression(
        d=d, n=case["n"], gamma=case["gamma"], sigma_e=case["sigma_e"], Lambda=np.diag(case["variances"])
    )
    loss = population.layer_loss(task, lam=case["lam"])
    sizes = dataclasses.replace(loss, D=dataclasses.replace(loss.D, D1=np.asarray(-loss.D.D1)))
    return loss, np.array(case["entries"]).reshape(d + 1, d + 1), sizes


@given(cases())
def test_squares_are_never_negative(case):
    """Both parts of the loss are means of squares: never negative, beyond rounding.

    At p = q = 0 the second, what p and q add to the loss, is exactly 0, whatever v and U.
    """
    loss, theta, sizes = made(case)
    for part, size in zip(loss.parts(theta), sizes.parts(np.abs(theta)), strict=True):
        assert part >= -ROUNDING * size
    theta[:-1, -1] = theta[-1, :-1] = 0
    assert loss.parts(theta)[1] == 0


@given(cases(), st.floats(-2, 2), st.sampled_from([-1, 1]))
def test_rescaling_values_and_keys_changes_nothing(case, power, sign):
    """(r, W) -> (c r, W / c) leaves both parts of the loss as they are, for c between -100 and 100, 0 left out.

    The gradient's columns go the other way, as 1 / c and c. To ten times the rounding.
    """
    loss, theta, sizes = made(case)
    c = sign * 10.0**power
    scale = np.append(np.full(loss.d, 1 / c), c)
    same = zip(loss.parts(theta), loss.parts(theta * scale), sizes.parts(np.abs(theta)), strict=True)
    for before, after, size in same:
        assert abs(after - before) <= 10 * ROUNDING * size
    before, after = loss.gradient(theta), loss.gradient(theta * scale) * scale
    assert (np.abs(after - before) <= 10 * ROUNDING * sizes.gradient(np.abs(theta))).all()


@given(cases())
def test_turning_labels_round_changes_nothing(case):
    """(p, q) -> (-p, -q) leaves both parts of the loss as they are: it predicts -y_hat where the labels are -y.

    To ten times the rounding.
    """
    loss, theta, sizes = made(case)
    turned = theta.copy()
    turned[:-1, -1] *= -1
    turned[-1, :-1] *= -1
    same = zip(loss.parts(theta), loss.parts(turned), sizes.parts(np.abs(theta)), strict=True)
    for before, after, size in same:
        assert abs(after - before) <= 10 * ROUNDING * size
