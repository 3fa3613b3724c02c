"""One layer on labelled rows whose sign turns: against descent on its error, simulated prompts, and enumeration."""

import itertools

import chance
import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import ndtr

from icl import theory
from icl.models import one_layer
from icl.profile import make_generator
from icl.tasks.sentences import Demonstrations, LabelledRows, shuffled
from icl.theory import moments
from icl.theory.one_layer import sign_flips


def invented(rows=60, d=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, d)) * [1.0, 0.5, 2.0] + 0.1
    return LabelledRows(x, np.where(x @ [1.0, 0.6, -0.2] + 0.7 * rng.standard_normal(rows) > 0, 1.0, -1.0))


TABLE, ASKED = invented(), invented(30, seed=1)
SETTINGS = [(1.0, 0.0), (0.9, 0.0), (0.8, 0.05), (0.5, 0.3)]


@pytest.mark.parametrize(("lam", "flip"), SETTINGS)
def test_the_layer_is_where_its_error_is_least(lam, flip):
    """A quasi-Newton search over all matrices, from a random one, ends at the closed form's error, to 1e-9, which is
    the formula's; and its matrix predicts alike.
    """
    task = Demonstrations(TABLE, 7, flip=flip)

    def error(a):
        return float(sign_flips.sign_layer_error(a.reshape(3, 3), task, lam=lam))

    found = minimize(error, np.random.default_rng(0).standard_normal(9) * 0.1, method="BFGS", options={"gtol": 1e-9})
    A = sign_flips.sign_layer(TABLE, lam=lam, flip=flip, n=7)
    least = sign_flips.sign_error(sign_flips.sign_moments(lam, flip=flip, n=7), TABLE.explained)
    np.testing.assert_allclose([error(A.ravel()), found.fun], least, rtol=1e-9)
    np.testing.assert_allclose(found.x.reshape(3, 3), A, atol=1e-4)


@pytest.mark.statistical
@pytest.mark.parametrize(("lam", "flip"), SETTINGS)
def test_errors_are_those_of_prompts(lam, flip):
    """The exact error on other queries than trained for, against 40,000 prompts."""
    task = Demonstrations(TABLE, 7, ASKED, flip=flip)
    A = sign_flips.sign_layer(TABLE, lam=lam, flip=flip, n=7)
    prompt = task.sample(40_000, generator=make_generator(f"flips {lam} {flip}"), dtype=torch.float64)
    y_hat = one_layer.predict_from_features(one_layer.features(prompt, lam), A, prompt.x[:, -1])
    squares = (y_hat - prompt.y[:, -1]).square()
    chance.assert_mean(squares, sign_flips.sign_layer_error(A, task, lam=lam))


def test_it_has_the_valley_of_the_papers_formula_in_one_dimension():
    """The explained share of (16) for one input of the kurtosis 1 / rho is the layer's over rho, to 1e-12; the best
    forgetting factor of a long prompt is the Kalman pole at crosstalk 1 / rho - 1, to 1e-6.
    """
    lams, rho = np.array([0.3, 0.8, 1.0]), 0.4
    for flip in (0.0, 0.1, 0.5):
        m = sign_flips.sign_moments(lams, flip=flip, n=9)
        drift = sign_flips.sign_drift(flip=flip, n=9, explained=rho)
        expected = 1 - rho * (1 - theory.training_error(drift, lam=lams))
        np.testing.assert_allclose(sign_flips.sign_error(m, rho), expected, rtol=1e-12)
    for flip in (0.02, 0.1):
        pole = theory.kalman_pole(1 - 2 * flip, crosstalk=1 / rho - 1)
        assert sign_flips.sign_forgetting(flip=flip, n=300, explained=rho) == pytest.approx(pole, abs=1e-6)


def test_without_flips_nothing_is_worth_forgetting():
    """lam* is 1 at flip 0, whatever the table and the length; the error falls all the way to 1."""
    lams = np.linspace(0.05, 1, 96)
    for n, rho in itertools.product((2, 20), (0.1, 0.4, 0.9)):
        assert sign_flips.sign_forgetting(flip=0.0, n=n, explained=rho) == 1
        assert (np.diff(sign_flips.sign_error(sign_flips.sign_moments(lams, flip=0.0, n=n), rho)) < 0).all()


@pytest.mark.statistical
def test_shuffling_takes_the_order_away():
    """The kernel after shuffling is that of 200,000 / 5 shuffled sign prompts, of which the share of equal signs is
    binomial; its best lam is 1, and shuffling what has no order changes nothing, to 1e-12.
    """
    task = Demonstrations(TABLE, 5, flip=0.2)
    kernel = sign_flips.reordered(task.sign_kernel())
    prompt = shuffled(task.sample(40_000, generator=make_generator("k")), generator=make_generator("reorder"))
    sign = np.sign((prompt.w @ torch.as_tensor(TABLE.fit, dtype=torch.float32)).numpy())
    one, other = np.triu_indices(6, 1)
    chance.assert_counts((sign[:, one] == sign[:, other]).sum(0), 40_000, (1 + kernel[one, other]) / 2)
    lams = np.linspace(0.1, 1, 91)
    m = moments.from_kernel(lams[:, None] ** np.arange(5, 0, -1), kernel)
    assert (np.diff(sign_flips.sign_error(m, 0.4)) < 0).all()
    still = Demonstrations(TABLE, 5).sign_kernel()
    np.testing.assert_allclose(sign_flips.reordered(still), still, rtol=1e-12)
    np.testing.assert_allclose(sign_flips.reordered(kernel), kernel, rtol=1e-12)


@pytest.mark.parametrize(("n", "flip", "rho"), [(1, 0.1, 0.4), (3, 0.2, 0.3), (8, 0.0, 0.9), (8, 0.05, 0.02)])
def test_memory_right_by_enumeration(n, flip, rho):
    """The chance that the memory has the query's sign, against the sum over all 2^n ways the sign can turn, given which
    the memory is Gaussian; 1e-9.
    """
    for lam in (0.3, 0.9, 1.0):
        a, total = lam ** np.arange(n, 0, -1), 0.0
        for turns in itertools.product((1, -1), repeat=n):
            sign = np.cumprod(turns[::-1])[::-1]  # each demonstration's against the query's
            chance = np.prod([flip if t < 0 else 1 - flip for t in turns])
            total += chance * ndtr(rho * (a @ sign) / np.sqrt((rho - rho**2) * (a @ a)))
        assert sign_flips.memory_right(lam, flip=flip, n=n, explained=rho) == pytest.approx(total, abs=1e-9)


@pytest.mark.statistical
def test_accuracy_of_gaussian_agreement():
    """On a table whose agreement y w'x is nearly Gaussian, 40,000 prompts are right as often as the formula says with
    the table's own accuracy, within half a point and what 40,000 tosses make of it, 1.5 points; and half of them at
    flip 1/2.
    """
    rng = np.random.default_rng(5)
    x = rng.standard_normal((4_000, 2))
    label = np.where(rng.random(4_000) < 0.5, 1.0, -1.0)
    x[:, 0] += 0.8 * label
    table = LabelledRows(x, label)
    task = Demonstrations(table, 6, flip=0.1)
    prompt = task.sample(40_000, generator=make_generator("accuracy"), dtype=torch.float64)
    A = sign_flips.sign_layer(table, lam=0.7, flip=0.1, n=6)
    y_hat = one_layer.predict_from_features(one_layer.features(prompt, 0.7), A, prompt.x[:, -1])
    right = (y_hat * prompt.y[:, -1] > 0).double().numpy()
    known = table.accuracy(table.fit)
    told = sign_flips.sign_accuracy(0.7, flip=0.1, n=6, explained=table.explained, known=known)
    chance.assert_mean(right, np.clip(right.mean(), told - 0.005, told + 0.005))
    assert sign_flips.sign_ceiling(table.explained) == pytest.approx(known, abs=0.02)
    assert sign_flips.sign_accuracy(0.7, flip=0.5, n=6, explained=0.4) == pytest.approx(0.5, abs=1e-12)
