"""The floor when nobody tells the speed, by joint Gaussians; one fixed layer, by its recursion and by runs."""

import itertools

import chance
import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from shared import drift_law

from icl import filters
from icl.filters import run_filter
from icl.profile import make_generator
from icl.tasks import DriftingRegression, Noisy, UnknownDrift
from icl.theory import floors
from icl.theory.floors import unknown_drift as ud
from icl.theory.steady import large_d
from icl.theory.steady.fast_weights import DriftLaw, _unit_delta, best_unit_delta, squared_lengths

LAMBDA = np.array([[1.0, 0.3], [0.3, 0.5]])
TASK = UnknownDrift(2, 6, (0.95, 0.5, 0.8), (0.2, 0.9, 0.4), (0.3, 0.1, 0.6), weights=(0.5, 0.2, 0.3), Lambda=LAMBDA)
SIZES = {(d, noise): DriftLaw(d, 0.97, 0.2, noise) for d, noise in itertools.product((3, 10), (0.0, 0.7))}


def prompts(task, batch, name="prompts"):
    prompt, member = task.reveal(batch, generator=make_generator(name), dtype=torch.float64)
    return prompt.x.numpy(), prompt.y.numpy(), prompt.w.numpy(), member.numpy()


def laws(task):
    """The weights' kernel and the labels' noise under each law."""
    lag = np.abs(np.subtract.outer(np.arange(task.n + 1), np.arange(task.n + 1)))
    return [(k0 * gamma**lag, noise) for gamma, k0, noise in zip(task.gammas, task.k0, task.noises, strict=True)]


def joint(x, kernel, noise):
    """Covariance of all labels of one sequence."""
    return kernel * (x @ x.T) + noise**2 * np.eye(len(x))


def conditioned(x, y, kernel, noise, i):
    """Mean and covariance of the weight at position i of one sequence, given the labels before it."""
    c = kernel[i, :i, None] * x[:i]
    gain = np.linalg.solve(joint(x, kernel, noise)[:i, :i], c).T
    return gain @ y[:i], kernel[i, i] * np.eye(x.shape[1]) - gain @ c


@pytest.mark.parametrize("noisy", [True, False])
def test_the_bank_is_bayes_by_brute_force(noisy):
    """Weights by the joint density of all earlier labels under each law, means and expected errors by conditioning the
    joint Gaussian of labels and weights; 3 prompts of 7 positions, 1e-9.
    """
    task = TASK if noisy else UnknownDrift(2, 6, TASK.gammas, TASK.steps, weights=TASK.weights, Lambda=LAMBDA)
    x, y, _, _ = prompts(task, 3)
    found = ud.bank_predictions(x, y, task)
    for b, i in itertools.product(range(3), range(7)):
        log, mean, cov = np.log(task.weights), np.zeros((3, 2)), np.empty((3, 2, 2))
        for j, law in enumerate(laws(task)):
            if i:
                log[j] += multivariate_normal.logpdf(y[b, :i], cov=joint(x[b], *law)[:i, :i])
            mean[j], cov[j] = conditioned(x[b], y[b], *law, i)
        p = np.exp(log - logsumexp(log))
        middle = p @ mean
        apart = mean - middle
        own = np.einsum("ij,kij->k", LAMBDA, cov)
        error = p @ (own + np.einsum("ki,ij,kj->k", apart, LAMBDA, apart))
        np.testing.assert_allclose(found.weights[b, i], p, rtol=1e-9)
        np.testing.assert_allclose(found.each_y_hat[b, i], mean @ x[b, i], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.y_hat[b, i], middle @ x[b, i], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.each_error[b, i], own, rtol=1e-9)
        np.testing.assert_allclose(found.error[b, i], error, rtol=1e-9)
        np.testing.assert_allclose(found.evidence[b, :i].sum(), logsumexp(log), rtol=1e-9, atol=1e-12)


def test_one_member_is_the_kalman_filter():
    """With one law, or several that are the same, predictions are the filter's and errors Riccati's, 1e-9."""
    gamma, sigma_e, noise = 0.9, 0.3, 0.5
    once = UnknownDrift(3, 30, [gamma], [sigma_e], noise)
    law = DriftingRegression(3, 30, gamma, sigma_w=float(np.sqrt(once.k0[0])), sigma_e=sigma_e)
    x, y, _, _ = prompts(once, 4)
    kalman = run_filter(filters.kalman(law, sigma_y=noise), torch.from_numpy(x), torch.from_numpy(y)).numpy()
    errors = floors.kalman_errors(x, DriftLaw(3, gamma, sigma_e, noise))
    for task in (once, UnknownDrift(3, 30, [gamma] * 3, sigma_e, noise, weights=(0.2, 0.5, 0.3))):
        found = ud.bank_predictions(x, y, task)
        np.testing.assert_allclose(found.y_hat, kalman, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.error, errors, rtol=1e-9)
        np.testing.assert_allclose(found.weights, np.broadcast_to(task.weights, found.weights.shape), rtol=1e-9)
        linear, expected = ud.linear_predictions(x, y, task)
        np.testing.assert_allclose(linear, kalman, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(expected, errors, rtol=1e-9)


def test_the_price_of_the_speed_is_the_weight_it_ends_with():
    """On each prompt the bank's log density of the labels is a member's, plus the log of what its weight started with
    over what it ends with: never more than log(1 / start) below; the member's by its joint Gaussian, 1e-9.
    """
    x, y, _, _ = prompts(TASK, 5)
    found = ud.bank_predictions(x, y, TASK)
    total = found.evidence[:, :-1].sum(1)
    for b, (j, law) in itertools.product(range(5), enumerate(laws(TASK))):
        alone = multivariate_normal.logpdf(y[b, :-1], cov=joint(x[b], *law)[:-1, :-1])
        np.testing.assert_allclose(alone - total[b], np.log(found.weights[b, -1, j] / TASK.weights[j]), rtol=1e-8)
        assert alone - total[b] <= np.log(1 / TASK.weights[j])


@pytest.mark.statistical(8)
def test_the_bank_is_the_floor():
    """700 prompts of 60 examples, 4 speeds. Its squared error is what it expects, and below each single member's, the
    best linear predictor's and the layer's.
    """
    speeds = np.array([0.03, 0.2, 0.8, 3.0])
    d = 4
    task = UnknownDrift(d, 60, np.sqrt(1 - speeds / d), np.sqrt(speeds / d), np.sqrt(0.2 * d))
    x, y, w, _ = prompts(task, 700)
    found = ud.bank_predictions(x, y, task)
    clean = (x * w).sum(-1)
    fixed = ud.best_fixed_unit_delta(
        [DriftLaw(d, *law) for law in zip(task.gammas, task.steps, task.noises, strict=True)]
    )
    layer = filters.normalised_delta_rule(1.0, lam=fixed.lam, eps=fixed.eps)
    linear, expected = ud.linear_predictions(x, y, task)
    says = [found.each_y_hat[..., j] for j in range(4)]
    says += [linear, run_filter(layer, torch.from_numpy(x), torch.from_numpy(y)).numpy()]

    def squared(y_hat):
        return ((y_hat - clean)[:, 20:] ** 2).mean(1)

    for other in says:
        chance.assert_above(squared(other) - squared(found.y_hat), by=12)
    chance.assert_mean(squared(found.y_hat) - found.error[:, 20:].mean(1), 0, error=0.035)
    chance.assert_mean(squared(linear) - expected[:, 20:].mean(1), 0, error=0.075)


def test_the_best_linear_predictor_is_the_conditional_mean_of_the_mean_kernel():
    """Against the joint Gaussian of labels and weights with the task's kernel, 1e-9; without noise against
    `floors.gaussian_errors`, which takes any kernel, and in many dimensions below the zero predictor."""
    x, y, _, _ = prompts(TASK, 3)
    found, errors = ud.linear_predictions(x, y, TASK)
    for b, i in itertools.product(range(3), range(1, 7)):
        mean, cov = conditioned(x[b], y[b], TASK.weight_kernel(), TASK.sigma_y, i)
        np.testing.assert_allclose(found[b, i], x[b, i] @ mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(errors[b, i], np.trace(LAMBDA @ cov), rtol=1e-9)
    still = UnknownDrift(2, 6, TASK.gammas, TASK.steps, weights=TASK.weights, Lambda=LAMBDA)
    np.testing.assert_allclose(ud.linear_predictions(x, y, still)[1], floors.gaussian_errors(x, still), rtol=1e-8)


@pytest.mark.parametrize("law", SIZES.values(), ids=map(str, SIZES))
def test_a_layer_at_its_best_settings_has_its_best_error(law):
    """`unit_delta_error` at `best_unit_delta`'s settings is its error, and no smaller beside them; `gates_at` finds
    these settings from p alone, 1e-9.
    """
    best = best_unit_delta(law)
    here = ud.unit_delta_error(law, lam=best.lam, eps=best.eps)
    assert here == pytest.approx(best.error, rel=1e-9)
    for lam, eps in ((best.lam + 0.01, best.eps), (best.lam - 0.01, best.eps), (best.lam, best.eps + 0.5)):
        assert ud.unit_delta_error(law, lam=lam, eps=eps) > here
    assert ud.gates_at(law, best.p) == pytest.approx((best.lam, best.eps), rel=1e-9)
    other = DriftLaw(law.d, 0.0, float(np.sqrt(law.k0)), law.sigma_y)
    assert ud.gates_at(other, best.p) == pytest.approx((best.lam, best.eps), rel=1e-9)


@pytest.mark.statistical
def test_unit_delta_error_is_the_recursion_run_to_its_end():
    """Second moments moved step by step with moments of x x' b drawn by quadrature of their own, 1e-9; and a run of
    4,000 sequences of the filter, which see 4%.
    """
    law, lam, eps = DriftLaw(5, 0.9, 0.4, 0.6), 0.8, 2.0
    r, weight = squared_lengths(5, nodes=60)
    k, C, H = law.k0, 0.0, 0.0
    for _ in range(400):
        miss = k - 2 * C + H
        one, two, noise = (weight @ f / 5 for f in (r / (r + eps), (r / (r + eps)) ** 2, r / (r + eps) ** 2))
        H = lam**2 * (H + 2 * one * (C - H) + two * miss + noise * 0.36)
        C = 0.9 * lam * (C + one * (k - C))
    exact = ud.unit_delta_error(law, lam=lam, eps=eps)
    assert exact == pytest.approx(5 * (k - 2 * C + H), rel=1e-9)
    task = Noisy(DriftingRegression(5, 40, 0.9, sigma_w=float(np.sqrt(k)), sigma_e=0.4), 0.6)
    prompt = task.sample(4_000, generator=make_generator("fixed"), dtype=torch.float64)
    says = run_filter(filters.normalised_delta_rule(1.0, lam=lam, eps=eps), prompt.x, prompt.y)
    off = ((says - (prompt.w * prompt.x).sum(-1))[:, 25:] ** 2).mean(1).numpy()
    chance.assert_mean(off, exact)


@pytest.mark.one_draw("one set of worlds")
@given(
    slow=st.floats(0.0, 0.995),
    faster=st.floats(0.01, 0.99),
    lam=st.floats(0.01, 1.0),
    eps=st.one_of(st.just(0.0), st.floats(1e-300, 50.0)),
    noise=st.one_of(st.just(0.0), st.floats(1e-6, 3.0)),
    d=st.sampled_from([2, 3, 10, 40]),
)
def test_fixed_gates_err_less_in_a_slower_world(slow, faster, lam, eps, noise, d):
    """The theorem of the chapter: at one variance of the weights the error rises from gamma to any smaller one."""
    eps += 1e-9 * (d < 3)
    errors = [
        ud.unit_delta_error(DriftLaw(d, gamma, float(np.sqrt(1 - gamma**2)), noise), lam=lam, eps=eps)
        for gamma in (slow, slow * faster)
    ]
    assert errors[1] >= errors[0] - 1e-12


def test_a_gauge_rests_once():
    """What a layer with the gates of p leaves is above p below its best p, and below p above it: on 3 speeds, 2 noises
    and 12 beliefs each, none nearer than 5% to the rest.
    """
    for s, v in itertools.product((0.05, 0.5, 3.0), (0.1, 1.0)):
        law = drift_law(10, s, v)
        rest = best_unit_delta(law).p
        for p in np.geomspace(0.01, 0.97, 12):
            if abs(p / rest - 1) < 0.05:
                continue
            lam, eps = ud.gates_at(law, float(p))
            left = ud.unit_delta_error(law, lam=lam, eps=eps) / 10
            assert (left > p) == (p < rest)
            assert left > rest


def test_best_fixed_settings():
    """Of one law they are its best layer's; of several no setting on a grid is better, and the mean is what is said."""
    laws = [drift_law(10, s, 0.225) for s in (0.05, 0.5, 3.0)]
    alone = ud.best_fixed_unit_delta(laws[:1])
    assert alone.error == pytest.approx(best_unit_delta(laws[0]).error, rel=1e-8)
    share = np.array([0.6, 0.3, 0.1])
    found = ud.best_fixed_unit_delta(laws, share)

    def mean(lam, eps):
        return share @ [ud.unit_delta_error(law, lam=lam, eps=eps) for law in laws]

    assert found.error == pytest.approx(mean(found.lam, found.eps), rel=1e-9)
    assert found.p == pytest.approx(found.error / 10)
    assert found.error > share @ [best_unit_delta(law).error for law in laws]
    grid = itertools.product(1 - np.geomspace(1e-3, 0.3, 7), np.geomspace(0.5, 50, 7))
    assert all(mean(float(lam), float(eps)) > found.error for lam, eps in grid)


def test_in_many_dimensions_the_genie_is_the_closed_form():
    """The genie's expected error at d = 40, late, within 3% of the large-d floor: 3 sequences (traces hardly vary)."""
    s = 1.0
    task = UnknownDrift(40, 120, np.sqrt(1 - np.array([s, 0.2]) / 40), np.sqrt(np.array([s, 0.2]) / 40), 2.0)
    x, y, _, _ = prompts(task, 3)
    late = ud.bank_predictions(x, y, task).each_error[:, 100:, 0].mean() / 40
    law = DriftLaw(40, float(task.gammas[0]), float(task.steps[0]), 2.0)
    assert late == pytest.approx(large_d.kalman_floor(law) / law.zero_error, rel=0.03)


def test_inputs_of_nothing_tell_nothing_of_the_speed():
    x, y, _, _ = prompts(TASK, 1)
    still = UnknownDrift(2, 6, TASK.gammas, TASK.steps)
    found = ud.bank_predictions(0 * x, 0 * y, still)
    np.testing.assert_allclose(found.weights, np.broadcast_to(still.weights, found.weights.shape), rtol=1e-12)
    assert not found.y_hat.any()


def in_digits(law, lam, eps):
    """`unit_delta_error` with means over lengths in 30 digits, which are Tricomi's U: with r = 2 t, x = eps / 2 and s =
    d / 2, E t^k / (t + x)^p = Gamma(s + k) / Gamma(s) U(p, 1 + p - s - k, x).
    """
    with mp.workdps(30):
        s, x = mp.mpf(law.d) / 2, mp.mpf(eps) / 2

        def mean(k, p):
            return 2 ** (k - p) * mp.rf(s, k) * mp.hyperu(p, 1 + p - s - k, x)

        b1, b2, b3 = (mean(k, p) / law.d for k, p in ((1, 1), (2, 2), (1, 2)))
        g = mp.mpf(law.gamma)
        k = mp.mpf(law.sigma_e) ** 2 / (1 - g**2)
        C = g * lam * b1 * k / (1 - g * lam * (1 - b1))
        H = lam**2 * (2 * b1 * C + b2 * (k - 2 * C) + b3 * law.sigma_y**2) / (1 - lam**2 * (1 - 2 * b1 + b2))
        return float(law.d * (k - 2 * C + H))


NEAR_NOTHING = [(DriftLaw(d, 0.95, 0.3, 0.5 * eps**0.5), 0.95, eps) for d in (1, 3, 10) for eps in (1e-9, 0.1, 10.0)]
HARDLY_MOVES = [(0.9, 1.0, 1e17), (1 - 1e-10, 1.0, 1e6), (1 - 1e-10, 1 - 1e-10, 5.0)]


@pytest.mark.parametrize(
    ("law", "lam", "eps"),
    [*NEAR_NOTHING, *((DriftLaw(5, gamma, 0.3), lam, eps) for gamma, lam, eps in HARDLY_MOVES)],
    ids=str,
)
def test_errors_in_many_digits(law, lam, eps):
    """1e-9 of what special functions in 30 digits say, where eps is next to nothing (128 nodes once were off by 2% in
    one dimension), where the steps are, or where the drift is so slow that little of the weights' variance is left:
    k - 2 C + H was infinite, or off by 6e-8.
    """
    right = in_digits(law, mp.mpf(lam), eps)
    assert ud.unit_delta_error(law, lam=lam, eps=eps) == pytest.approx(right, rel=1e-9, abs=0)


@pytest.mark.parametrize("sigma_y", [1e-6, 0.1, 1.0])
@pytest.mark.parametrize("d", [1, 2, 5, 200])
def test_gates_are_found_again_under_any_noise(d, sigma_y):
    """The p that a law leaves names its gamma, 1e-9, which the error at these gates confirms."""
    law = DriftLaw(d, 0.95, 0.3, sigma_y)
    p = _unit_delta(law)
    lam, eps = ud.gates_at(law, p)
    assert (lam, eps) == pytest.approx((0.95, sigma_y**2 / p), rel=1e-9)
    assert ud.unit_delta_error(law, lam=lam, eps=eps) == pytest.approx(d * p, rel=1e-9)


def test_what_has_no_error_or_is_not_seen_is_refused():
    """Keys of length 1 and noisy labels in up to two dimensions: E 1 / r is infinite, and nodes made 4.4 of it; an eps
    so small that it has few digits.
    """
    for eps in (5e-324, 1e-320):
        with pytest.raises(ValueError, match=f"eps must be 0 or at least 1e-300, got {eps}"):
            ud.unit_delta_error(DriftLaw(3, 0.9, 0.4, 0.1), lam=0.9, eps=eps)
    with pytest.raises(ValueError, match="eps must be > 0 for noisy labels in 2 dimensions"):
        ud.unit_delta_error(DriftLaw(2, 0.95, 0.3, 0.5), lam=0.95, eps=0.0)
    mixed = [DriftLaw(1, 0.95, 0.3)] * 4 + [DriftLaw(1, 0.95, 0.3, 0.35)]
    with pytest.raises(ValueError, match="the quadrature does not see how the eps found"):
        ud.best_fixed_unit_delta(mixed)
    quiet, third = DriftLaw(1, 0.95, 0.3), DriftLaw(3, 0.95, 0.3, 0.5)
    assert ud.unit_delta_error(quiet, lam=0.95, eps=0.0) == pytest.approx(best_unit_delta(quiet).error)
    assert ud.unit_delta_error(third, lam=0.95, eps=0.0) == pytest.approx(in_digits(third, 0.95, 0), rel=1e-9)
