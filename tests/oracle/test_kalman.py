"""The floor against the posterior itself."""

import functools

import numpy as np
import pytest
import torch
from scipy import stats

from icl.models.one_layer import features
from icl.profile import streams
from icl.tasks import DriftingRegression, SmoothDrift, StationaryRegression
from icl.theory import floors, one_layer

LAMBDA = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.4]])


def posterior(x, kernel):
    """Gain and covariance of w_i given the labels before it, for each i: Gaussian conditioning on all of them at once.

    Written over the stacked weights, cov(w_i, y_j) = k_ij x_j and cov(y_j, y_l) = k_jl x_j'x_l; the pseudo-inverse
    takes labels that repeat what others said.
    """
    time, d = x.shape
    for i in range(time):
        cross = (kernel[i, :i, None] * x[:i]).T
        labels = kernel[:i, :i] * (x[:i] @ x[:i].T)
        gain = cross @ np.linalg.pinv(labels, rcond=1e-10, hermitian=True)
        yield gain, kernel[i, i] * np.eye(d) - gain @ cross.T


@pytest.mark.parametrize("sigma_e", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 1.0, 1.02])
def test_floor_is_the_brute_force_posterior(gamma, sigma_e):
    """The floor at every position is the trace of Lambda times the posterior covariance of its weight given all labels
    before.

    The posterior conditions one joint Gaussian on all labels at once. With sigma_e = 0 everything is known after d
    examples. Tolerance 1e-9 of the error before any label: both sides are differences from it.
    """
    task = DriftingRegression(d=3, n=7, gamma=gamma, sigma_w=1.5, sigma_e=sigma_e, Lambda=LAMBDA)
    x = task.sample(5, generator=streams("floor"), dtype=torch.float64).x.numpy()
    floor = floors.expected_errors(x, task)
    kernel = task.weight_kernel()
    for row, errors in zip(x, floor, strict=True):
        expected = [np.trace(LAMBDA @ P) for _, P in posterior(row, kernel)]
        np.testing.assert_allclose(errors, expected, rtol=0, atol=1e-9 * max(np.diag(kernel)) * np.trace(LAMBDA))
    if sigma_e == 0:
        assert (floor[:, 3:] <= 1e-9 * floor[:, :1]).all()


@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_an_input_that_repeats_teaches_nothing(gamma):
    """With sigma_e = 0, an input along a direction already known changes nothing: the error is that of the other two.

    2,000 random directions, each seen 12 times at random lengths. rtol 1e-14: one factor gamma^2 a step, and no
    rounding taken for news, which would cost a hundred times as much.
    """
    task = DriftingRegression(d=3, n=11, gamma=gamma, sigma_w=2.0, sigma_e=0.0)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(2000, 1, 3)) * generator.normal(size=(2000, 12, 1))
    unknown = np.where(np.arange(12) == 0, 3, 2) * 4.0 * gamma ** (2 * np.arange(1, 13))
    errors = floors.expected_errors(x, task)
    np.testing.assert_allclose(errors, np.broadcast_to(unknown, errors.shape), rtol=1e-14)


def test_the_floor_knows_the_past_inputs_alone():
    """The floor at a position does not depend on the inputs from there on, nor on other sequences, bit for bit."""
    task = DriftingRegression(d=3, n=7, gamma=0.9, Lambda=LAMBDA)
    x = task.sample(4, generator=streams("past"), dtype=torch.float64).x.numpy()
    changed = x.copy()
    changed[:, 4:] = 7.0
    changed[2] = 1.0
    before, after = floors.expected_errors(x, task), floors.expected_errors(changed, task)
    np.testing.assert_array_equal(before[[0, 1, 3], :5], after[[0, 1, 3], :5])
    assert (before[:, 5:] != after[:, 5:]).all()
    mean, error = floors.kalman_risk(task, x)
    np.testing.assert_allclose(mean, before.mean(0), rtol=1e-14)
    np.testing.assert_allclose(error**2 * 4 * 3, ((before - before.mean(0)) ** 2).sum(0), rtol=1e-9, atol=1e-30)


@pytest.mark.parametrize("sigma_e", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 1.0, 1.02])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_query_errors_are_the_floor_at_the_query(gamma, sigma_e, n):
    """For the drift, the error at the query from one linear system is what Riccati's recursion ends with.

    Tolerance 1e-9 of the error before any label. With sigma_e = 0 everything is known after d examples: 1e-20 of it.
    """
    task = DriftingRegression(d=3, n=n, gamma=gamma, sigma_w=1.5, sigma_e=sigma_e, Lambda=LAMBDA)
    x = task.sample(20, generator=streams("query"), dtype=torch.float64).x.numpy()
    errors, before = floors.query_errors(x, task), task.weight_kernel()[-1, -1] * np.trace(LAMBDA)
    assert errors.shape == (20,)
    np.testing.assert_allclose(errors, floors.expected_errors(x, task)[:, -1], rtol=0, atol=1e-9 * before)
    assert (errors >= 0).all()
    if sigma_e == 0 and n >= 3:
        assert (errors <= 1e-20 * before).all()


def waves(task):
    """The cosines and sines of a smooth drift at each position, (n + 1, 2 K + 2): w_i is their product with N(0, I)."""
    angles = np.pi * np.outer(np.arange(1, task.n + 2) / (task.n + 1), np.arange(task.harmonics + 1))
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * task.sigma_w / np.sqrt(task.harmonics + 1)


@pytest.mark.parametrize("n", [2, 7, 20, 40])
@pytest.mark.parametrize("harmonics", [0, 1, 3, 6])
def test_query_errors_of_a_smooth_drift(harmonics, n):
    """For smooth drift, the error at the query is the posterior variance of a regression on the curve's own
    coefficients.

    Labels are linear in the 2 (K + 1) d coefficients, standard normal beforehand: afterwards they vary in the
    directions that the design lacks, and in no other. Tolerance 1e-9 of the error before any label, 6 harmonics
    included, whose 13 directions have a condition number of 1e9; with d (2 K + 1) labels or more, as many as there are
    unknowns, the curve is known and the error 0, to 1e-15 of it.
    """
    task = SmoothDrift(d=3, n=n, harmonics=harmonics, sigma_w=1.5, Lambda=LAMBDA)
    x = task.sample(10, generator=streams("smooth query"), dtype=torch.float64).x.numpy()
    basis, before = waves(task), 1.5**2 * np.trace(LAMBDA)
    errors = floors.query_errors(x, task)
    for row, error in zip(x, errors, strict=True):
        design = (basis[:-1, :, None] * row[:-1, None, :]).reshape(n, -1)
        _, size, directions = np.linalg.svd(design)
        unseen = directions[(size > 1e-10 * size[0]).sum() :].reshape(-1, basis.shape[1], 3)
        query = np.einsum("k,ukc->uc", basis[-1], unseen)
        np.testing.assert_allclose(error, np.trace(query @ LAMBDA @ query.T), rtol=0, atol=1e-9 * before)
    assert (errors >= 0).all()
    assert (errors <= before).all()
    if n >= 3 * (2 * harmonics + 1):
        assert (errors <= 1e-15 * before).all()


@pytest.mark.parametrize(
    "task",
    [StationaryRegression(d=3, n=2, Lambda=LAMBDA), SmoothDrift(d=3, n=7, harmonics=1, sigma_w=1.5, Lambda=LAMBDA)],
    ids=["stationary", "smooth"],
)
def test_query_errors_are_the_brute_force_posterior(task):
    """The error at the query is the trace of Lambda times the posterior covariance of its weight given all labels.

    The posterior conditions one joint Gaussian. Tolerance 1e-9 of the error before any label; planted: without the
    oldest label it is more than a thousandth of that larger.
    """
    x = task.sample(10, generator=streams("joint"), dtype=torch.float64).x.numpy()
    kernel = task.weight_kernel()
    before = kernel[-1, -1] * np.trace(LAMBDA)
    for row, error in zip(x, floors.query_errors(x, task), strict=True):
        *_, (_, P) = posterior(row, kernel)
        np.testing.assert_allclose(error, np.trace(LAMBDA @ P), rtol=0, atol=1e-9 * before)
        *_, (_, P) = posterior(row[1:], kernel[1:, 1:])
        assert np.trace(LAMBDA @ P) > error + 1e-3 * before


def test_query_errors_know_the_past_inputs_alone():
    """The error at the query does not depend on its own input, nor on other sequences; labels do not enter at all.

    Bit for bit in the query's input, rtol 1e-12 in the company.
    """
    task = SmoothDrift(d=3, n=7, Lambda=LAMBDA)
    x = task.sample(4, generator=streams("past"), dtype=torch.float64).x.numpy()
    changed = x.copy()
    changed[:, -1] = 7.0
    before = floors.query_errors(x, task)
    np.testing.assert_array_equal(floors.query_errors(changed, task), before)
    np.testing.assert_allclose(floors.query_errors(x[2:3], task), before[2:3], rtol=1e-12)
    changed[:, 0] = 1.0
    assert (floors.query_errors(changed, task) != before).all()


def test_query_errors_without_anything_to_learn():
    """Weights that are all 0 are known; inputs that are all 0 tell nothing; inputs without variance ask for nothing."""
    x = np.random.default_rng(0).normal(size=(3, 5, 2))
    still = DriftingRegression(d=2, n=4, gamma=0.9, sigma_w=0.0, sigma_e=0.0)
    assert not floors.query_errors(x, still).any()
    task = DriftingRegression(d=2, n=4, gamma=0.9)
    np.testing.assert_allclose(floors.query_errors(0 * x, task), [one_layer.zero_predictor(task)] * 3, rtol=1e-12)
    dark = DriftingRegression(d=2, n=4, gamma=0.9, Lambda=np.zeros((2, 2)))
    assert not floors.query_errors(x, dark).any()


def test_query_errors_refuse_weights_with_a_covariance():
    """A stationary task whose weights have another covariance than the identity is refused, not given the identity's
    error.
    """
    task = StationaryRegression(d=2, n=3, Sigma_w=np.diag([4.0, 1.0]))
    with pytest.raises(ValueError, match="Sigma_w must be the identity"):
        floors.query_errors(np.ones((2, 4, 2)), task)


@functools.cache
def simulated(gamma):
    """(prompts, floor at their queries) of a small task, 50,000 of them."""
    task = DriftingRegression(d=3, n=10, gamma=gamma, sigma_w=1.0, sigma_e=0.3, Lambda=LAMBDA)
    prompt = task.sample(50_000, generator=streams(f"floor {gamma}"), dtype=torch.float64)
    return task, prompt, floors.expected_errors(prompt.x.numpy(), task)[:, -1]


def z_of_excess(errors, floor):
    """Mean of squared error less floor, in its standard errors."""
    excess = errors**2 - floor
    return excess.mean() / (excess.std(ddof=1) / np.sqrt(len(excess)))


@pytest.mark.parametrize("gamma", [0.8, 1.0])
def test_the_posterior_mean_attains_the_floor(gamma):
    """The posterior mean's squared error on simulated prompts is the floor: the floor is not only a bound.

    50,000 prompts, each one's floor as its control; |z| below the normal quantile 6.1, which by the central limit
    theorem fails by chance with probability 1e-9; it sees a floor that is off by 7 %.
    """
    task, prompt, floor = simulated(gamma)
    x, y = prompt.x.numpy(), prompt.y.numpy()
    kernel = task.weight_kernel()
    past = kernel[:-1, :-1] * np.einsum("bti,bsi->bts", x[:, :-1], x[:, :-1])
    cross = kernel[-1, :-1] * np.einsum("bti,bi->bt", x[:, :-1], x[:, -1])
    y_hat = (np.linalg.solve(past, y[:, :-1, None])[..., 0] * cross).sum(-1)
    z = z_of_excess(y_hat - y[:, -1], floor)
    assert abs(z) < stats.norm.isf(1e-9 / 2)


@pytest.mark.parametrize("gamma", [0.8, 1.0])
def test_no_predictor_beats_it(gamma):
    """Gated linear attention at its best, ridge regression and answering zero are all above the floor.

    50,000 simulated prompts, each one's floor as its control. Not below it: z above the normal quantile -6.0, failing
    by chance with probability 1e-9. Indeed above it: z beyond +6.0 in these tasks, where they lose 10 % at least.
    """
    task, prompt, floor = simulated(gamma)
    x, y = prompt.x.numpy(), prompt.y.numpy()
    lam = one_layer.optimal_forgetting(task)
    A = one_layer.optimum(task, lam=lam).A
    attention = np.einsum("bi,ij,bj->b", features(prompt, lam).numpy(), A, x[:, -1])
    gram = np.einsum("bti,btj->bij", x[:, :-1], x[:, :-1]) + 0.3 * np.eye(3)
    ridge = np.linalg.solve(gram, np.einsum("bt,bti->bi", y[:, :-1], x[:, :-1])[..., None])[..., 0]
    for y_hat in (attention, (ridge * x[:, -1]).sum(-1), np.zeros(len(y))):
        assert z_of_excess(y_hat - y[:, -1], floor) > stats.norm.isf(1e-9)
