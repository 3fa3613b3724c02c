"""The measurement update against the joint Gaussian of weights and labels, and the laws that any posterior keeps.

Every form is held to the same: arrays, tensors with their vectors last, and tensors with trials behind the vectors.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from icl.kalman_updates import downdate, innovation, kalman_update


def tensors(move):
    """The update of tensors, for arrays with their vectors last; `move` takes trials before the vectors or behind."""

    def update(*arrays, **changes):
        w, P, x, y, noise = (torch.as_tensor(a) for a in arrays)
        if move:
            w, P, x = w.movedim(0, -1), P.movedim(0, -1), x.movedim(0, -1)
        w, P, error, S = changes.get("update", kalman_update)(w, P, x, y, noise, dim=0 if move else 1)
        return tuple(a.numpy() for a in ((w.movedim(-1, 0), P.movedim(-1, 0)) if move else (w, P)) + (error, S))

    return update


FORMS = {"arrays": kalman_update, "tensors": tensors(move=False), "trials last": tensors(move=True)}
forms = pytest.mark.parametrize("update", FORMS.values(), ids=FORMS)


def problem(seed, d, trials=3, labels=4):
    """Means, covariances, inputs, labels and their noise's variances, of several trials."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(trials, d, d))
    w, x, y = rng.normal(size=(trials, d)), rng.normal(size=(labels, trials, d)), rng.normal(size=(labels, trials))
    return w, root @ root.mT + 0.1 * np.eye(d), x, y, rng.uniform(0.1, 2, size=(labels, trials))


def joint_posterior(w, P, x, y, noise):
    """Of one trial: mean, covariance and log density of its labels, by conditioning N(w, P) on all labels at once."""
    law = stats.multivariate_normal(x @ w, x @ P @ x.T + np.diag(noise))
    gain = np.linalg.solve(law.cov, x @ P).T
    return w + gain @ (y - x @ w), P - gain @ x @ P, law.logpdf(y)


def off_the_posterior(update, d, seed=0):
    """Largest relative error of means, covariances and log densities after four labels."""
    w, P, x, y, noise = problem(seed, d)
    right = [joint_posterior(w[t], P[t], x[:, t], y[:, t], noise[:, t]) for t in range(len(w))]
    log_density = 0.0
    for one in zip(x, y, noise, strict=True):
        w, P, error, S = update(w, P, *one)
        log_density = log_density - (np.log(2 * np.pi * S) + error**2 / S) / 2
    pairs = zip((w, P, log_density), map(np.array, zip(*right, strict=True)), strict=True)
    return max(np.abs(found - exact).max() / np.abs(exact).max() for found, exact in pairs)


@forms
@pytest.mark.parametrize("d", [1, 2, 7])
def test_it_is_the_joint_gaussians_posterior(update, d):
    """Label by label it ends with the mean, the covariance and the density of conditioning on all at once; 1e-9."""
    assert off_the_posterior(update, d) < 1e-9


def without_noise(w, P, x, y, noise, **where):
    return kalman_update(w, P, x, y, 0.0, **where)


def plus_sign(w, P, x, y, noise, **where):
    w, _, error, S = kalman_update(w, P, x, y, noise, **where)
    Px = innovation(P, x, **where)[0]
    return w, 2 * P - downdate(P, Px, S, **where), error, S


@pytest.mark.parametrize("fault", [without_noise, plus_sign])
def test_an_injected_fault_is_seen(fault):
    """Without the noise's term, or with the covariance's sign turned, the posterior is another, in every form."""
    assert off_the_posterior(fault, 3) > 1e-2
    for move in (False, True):
        assert off_the_posterior(lambda *given, m=move: tensors(m)(*given, update=fault), 3) > 1e-2


def test_it_is_P_x_and_not_x_P():
    """For a P that is not symmetric, as rounding leaves one, the product is with its second axis; injected: its
    transpose gives another.
    """
    rng = np.random.default_rng(0)
    P, x = rng.normal(size=(5, 3, 3)), rng.normal(size=(5, 3))
    right = (P @ x[..., None])[..., 0]
    first, behind = torch.as_tensor(P), torch.as_tensor(P).movedim(0, -1)
    X = torch.as_tensor(x)
    found = [innovation(P, x), innovation(first, X, dim=1), innovation(behind, X.T, dim=0)]
    for Px, S in [found[0], found[1], (found[2][0].T, found[2][1])]:
        np.testing.assert_allclose(Px, right, rtol=1e-12)
        np.testing.assert_allclose(S, (right * x).sum(-1), rtol=1e-12)
    assert np.abs(innovation(P.mT, x)[0] - right).max() > 0.1


@forms
@given(seed=st.integers(0, 10_000), d=st.integers(1, 6), scale=st.floats(-6, 6))
def test_a_label_takes_from_the_covariance_and_leaves_one(update, seed, d, scale):
    """P stays symmetric to the last bit; it falls in the Loewner order and stays semi-definite, to rounding."""
    w, P, x, y, noise = problem(seed, d)
    _, after, _, _ = update(w, P, x[0], y[0], 10.0**scale * noise[0])
    assert np.array_equal(after, after.mT)
    size = np.trace(P, axis1=1, axis2=2)
    assert (np.linalg.eigvalsh(P - after)[:, 0] >= -1e-14 * size).all()
    assert (np.linalg.eigvalsh(after)[:, 0] >= -1e-14 * size).all()


@forms
@pytest.mark.parametrize("noise", [1e40, np.inf])
def test_a_label_of_boundless_noise_changes_nothing(update, noise):
    """To the last bit."""
    w, P, x, y, one = problem(1, 4)
    found = update(w, P, x[0], y[0], np.full_like(one[0], noise))
    assert np.array_equal(found[0], w)
    assert np.array_equal(found[1], P)
    assert (found[3] >= 1e40).all()


@forms
def test_what_is_known_teaches_nothing(update):
    """Without noise, an input of 0 and one along a known direction change nothing, and S is inf; with noise S is its
    variance.
    """
    w, P, x, y, one = problem(2, 2)
    x, none = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]), np.zeros_like(one[0])
    P = np.tile(np.diag([0.0, 2.0]), (len(P), 1, 1))
    after_w, after, error, S = update(w, P, x, y[0], none)
    assert np.array_equal(S, [np.inf, np.inf, 2.0])
    assert np.array_equal(after_w[:2], w[:2])
    assert np.array_equal(after[:2], P[:2])
    np.testing.assert_allclose((after_w[2] * x[2]).sum(), y[0, 2], rtol=1e-12)
    np.testing.assert_allclose(error, y[0] - (w * x).sum(1), rtol=1e-12)
    assert np.array_equal(update(w, P, x, y[0], none + 0.3)[3], [0.3, 0.3, 2.3])


@forms
def test_trials_do_not_meet(update):
    """A trial of NaN leaves the others bit for bit; each is what it is alone, to rounding."""
    w, P, x, y, noise = problem(3, 4)
    right = update(w, P, x[0], y[0], noise[0])
    for t in range(len(w)):
        alone = update(*(a[t : t + 1] for a in (w, P, x[0], y[0], noise[0])))
        for found, one in zip(right, alone, strict=True):
            np.testing.assert_allclose(found[t], one[0], rtol=1e-12)
    P = P.copy()
    P[1] = np.nan
    for before, after in zip(right, update(w, P, x[0], y[0], noise[0]), strict=True):
        assert np.array_equal(before[[0, 2]], after[[0, 2]])


def test_several_filters_read_one_input():
    """Members before the vectors, x of one trial for all and noise of one member for all trials: as each alone."""
    rng = np.random.default_rng(4)
    m, d, trials = 3, 4, 5
    root = rng.normal(size=(trials, m, d, d))
    w, P, x = rng.normal(size=(trials, m, d)), root @ root.mT, rng.normal(size=(trials, d))
    y, noise = rng.normal(size=trials), rng.uniform(0.1, 1, size=m)
    right = [kalman_update(w[:, j], P[:, j], x, y, noise[j]) for j in range(m)]
    found = kalman_update(w, P, x[:, None], y[:, None], noise)
    moved = [torch.as_tensor(a).movedim(0, -1) for a in (w, P, x, y)]
    last = kalman_update(moved[0], moved[1], moved[2][None], moved[3], torch.as_tensor(noise)[:, None], dim=1)
    for k in range(4):
        for j in range(m):
            np.testing.assert_allclose(found[k][:, j], right[j][k], rtol=1e-12)
            np.testing.assert_allclose(last[k].movedim(-1, 0)[:, j], right[j][k], rtol=1e-12)


def test_it_maps_over_trials_and_has_gradients():
    """torch's vmap over trials is the update of all; gradients are those of differences."""
    w, P, x, y, noise = (torch.as_tensor(a) for a in problem(5, 3))
    mapped = torch.vmap(kalman_update)(w, P, x[0], y[0], noise[0])
    for one, all_at_once in zip(mapped, kalman_update(w, P, x[0], y[0], noise[0], dim=1), strict=True):
        torch.testing.assert_close(one, all_at_once, rtol=1e-12, atol=1e-12)
    leaves = [a.clone().requires_grad_() for a in (w, P, x[0], y[0], noise[0])]
    assert torch.autograd.gradcheck(lambda *a: kalman_update(*a, dim=1), leaves)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("noise", [0, 0.5])
def test_the_dtype_is_kept(dtype, noise):
    """Of arrays and of tensors, for noise that is a Python number."""
    w, P, x, y, _ = (a.astype(dtype) for a in problem(6, 3))
    assert {a.dtype for a in kalman_update(w, P, x[0], y[0], noise)} == {np.dtype(dtype)}
    given = (torch.as_tensor(a) for a in (w, P, x[0], y[0]))
    assert {a.dtype for a in kalman_update(*given, noise, dim=1)} == {getattr(torch, dtype)}


def test_one_problem_needs_no_trials():
    """A mean (d,) and a covariance (d, d), as arrays and as tensors."""
    w, P, x, y, noise = problem(7, 3)
    right = [a[0] for a in kalman_update(w, P, x[0], y[0], noise[0])]
    given = [w[0], P[0], x[0, 0], y[0, 0], noise[0, 0]]
    found, tensor = kalman_update(*given), kalman_update(*(torch.as_tensor(a) for a in given))
    for k in range(4):
        np.testing.assert_allclose(found[k], right[k], rtol=1e-12)
        np.testing.assert_allclose(tensor[k], right[k], rtol=1e-12)
