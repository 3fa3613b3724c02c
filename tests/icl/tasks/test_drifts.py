"""Drifts beyond the first order: with the kernels they state, and their samplers against their laws; test_core.py has
what every task keeps to.

As in test_core.py, what is drawn is turned back into independent standard normal numbers, whose laws are exact, and
each statistical test fails by chance with probability 1e-9 at most. With 20,000 prompts it sees one column's variance
off by 7 %, all together off by 1 %, a correlation of 0.05. What would leave a dtype's range is refused, for tasks of
the first order and with noise too.
"""

import chance
import numpy as np
import pytest
import torch
from chance import assert_standard_normal
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from icl.models.one_layer import features
from icl.profile import make_generator
from icl.tasks import (
    DriftingRegression,
    HeavyTailedDrift,
    LinearDrift,
    Noisy,
    RegimeSwitching,
    SmoothDrift,
    StationaryRegression,
    batches,
)
from icl.tasks.core import LAPLACE, RADEMACHER
from icl.tasks.drifts import ar2, sinusoids, two_timescales
from icl.theory import one_layer

# Properties


@pytest.mark.parametrize(
    "task",
    [
        RegimeSwitching(3, 5, gamma=0.9, switch=0.3, Lambda=np.diag([3.0, 2.0, 1.0])),
        HeavyTailedDrift(3, 5, gamma=0.9, nu=2.5, Lambda=np.diag([3.0, 2.0, 1.0]), inputs=LAPLACE),
        *(kind(d=2, n=4, gamma=0.9, inputs=RADEMACHER) for kind in (RegimeSwitching, HeavyTailedDrift)),
    ],
    ids=["switching", "heavy tails", "switching, signs", "heavy tails, signs"],
)
def test_what_is_revealed_belongs_to_the_prompts_that_sample_draws(task):
    """`reveal` draws what `sample` draws, bit for bit, and tells of each position; signs as inputs draw no less."""
    prompt, hidden = task.reveal(7, generator=make_generator("reveal"))
    drawn = task.sample(7, generator=make_generator("reveal"))
    assert all(torch.equal(a, b) for a, b in zip(vars(prompt).values(), vars(drawn).values(), strict=True))
    assert hidden.variance.shape == hidden.restart.shape == prompt.y.shape
    assert hidden.variance.dtype == torch.float32
    assert hidden.restart.dtype == torch.bool


def test_where_switches_fall_does_not_hang_on_the_dtype():
    """Switches are drawn in float64 whatever the dtype: as probable as stated, and none at all for probability 0."""
    for dtype in (torch.float32, torch.float64):
        for switch, expected in ((0.0, False), (1.0, True)):
            task = RegimeSwitching(d=1, n=50, gamma=0.9, sigma_w=2.0, switch=switch)
            _, hidden = task.reveal(200, generator=make_generator("edges"), dtype=dtype)
            assert (hidden.restart == expected).all()
            np.testing.assert_allclose(hidden.variance.numpy(), 4.0 if expected else 0.01, rtol=1e-6)


@pytest.mark.parametrize("P_0", [[[1.0, 0.6, 0.0], [0.6, 1.0, 0.0], [0.0, 0.0, 0.0]], 2 * np.eye(3) - 0.5])
def test_a_sample_is_a_function_of_its_covariances(monkeypatch, P_0):
    """Another LAPACK's eigenvectors, with other signs and turned within each eigenspace, give the same prompts.

    The covariances: one with a zero variance, one with a repeated eigenvalue. Tolerance 1e-12: rounding of a few
    products. A factor of eigenvectors would draw prompts that differ by about 1.
    """
    eigh, rng = np.linalg.eigh, np.random.default_rng(0)
    task = LinearDrift(2, 4, F=0.9 * np.eye(3), Q=P_0, h=[1.0, -0.5, 2.0], P_0=P_0)

    def turned(matrix):
        values, vectors = eigh(matrix)
        alike = np.isclose(values[:, None], values, rtol=0, atol=1e-9)
        turns = np.linalg.qr(rng.normal(size=alike.shape) * alike)[0] * rng.choice([-1, 1], len(values))
        return values, vectors @ turns

    one = task.sample(3, generator=make_generator("turned"), dtype=torch.float64)
    monkeypatch.setattr(np.linalg, "eigh", turned)
    other = task.sample(3, generator=make_generator("turned"), dtype=torch.float64)
    for name in ("x", "y", "w"):
        torch.testing.assert_close(getattr(other, name), getattr(one, name), rtol=0, atol=1e-12)


def assert_is_a_covariance(kernel):
    np.testing.assert_array_equal(kernel, kernel.T)
    values = np.linalg.eigvalsh(kernel)
    assert values[0] >= -1e-12 * len(kernel) * max(values[-1], 0)


lags = np.abs(np.subtract.outer(np.arange(21), np.arange(21)))


@given(st.floats(0, 1), st.floats(0, np.pi), st.just(0.0) | st.floats(1e-6, 9))
def test_second_order_drift_obeys_yule_and_walker(rho, omega, variance):
    """Its kernel depends on the lag alone, c(l) = a_1 c(l-1) + a_2 c(l-2), with variance c(0) and c(1) = a_1 c(0) +
    a_2 c(1). Tolerance 1e-11 of the variance: fifty steps of a recursion that forgets nothing for rho = 1.
    """
    a_1, a_2 = 2 * rho * np.cos(omega), -(rho**2)
    c = [variance, variance * a_1 / (1 - a_2)]
    for _ in range(19):
        c.append(a_1 * c[-1] + a_2 * c[-2])
    kernel = ar2(1, 20, rho=rho, omega=omega, variance=variance).weight_kernel()
    np.testing.assert_allclose(kernel, np.array(c)[lags], rtol=0, atol=1e-11 * variance)
    assert_is_a_covariance(kernel)


@given(st.floats(0, np.pi), st.just(0.0) | st.floats(1e-6, 9))
def test_a_pole_on_the_circle_is_a_rotation(omega, variance):
    """Second-order drift with rho = 1 has the kernel of the rotation, variance cos(omega lag), and no innovations.

    Tolerance 1e-11 of the variance.
    """
    expected = variance * np.cos(omega * lags)
    turned = sinusoids(1, 20, omega=omega, variance=variance)
    assert not turned.Q.any()
    for task in (turned, ar2(1, 20, rho=1.0, omega=omega, variance=variance)):
        np.testing.assert_allclose(task.weight_kernel(), expected, rtol=0, atol=1e-11 * variance)
        np.testing.assert_allclose(task.Q, 0, atol=1e-13 * variance)


@given(st.tuples(st.floats(0, 1), st.floats(0, 1)), st.tuples(st.floats(0, 4), st.floats(0, 4)))
def test_two_timescales_add_up(gammas, variances):
    """Its kernel is the sum of two first-order ones in their stationary law, variance gamma^lag each. rtol 1e-12."""
    expected = sum(v * g**lags for g, v in zip(gammas, variances, strict=True))
    kernel = two_timescales(1, 20, gammas=gammas, variances=variances).weight_kernel()
    np.testing.assert_allclose(kernel, expected, rtol=0, atol=1e-12 * max(sum(variances), 1e-300))
    assert_is_a_covariance(kernel)


@given(st.floats(0, 1.2), st.floats(0, 3), st.floats(0, 3), st.floats(2.01, 50))
def test_first_order_laws_share_their_kernel(gamma, sigma_w, sigma_e, nu):
    """Heavy tails, switches of probability 0 and a hidden state of one number have the kernel of the drift (3)."""
    scales = {"sigma_w": sigma_w, "sigma_e": sigma_e}
    expected = DriftingRegression(d=1, n=20, gamma=gamma, **scales).weight_kernel()
    state = LinearDrift(1, 20, F=[[gamma]], Q=[[sigma_e**2]], h=[1.0], P_0=[[sigma_w**2]])
    for task in (
        HeavyTailedDrift(1, 20, gamma, **scales, nu=nu),
        RegimeSwitching(1, 20, gamma, **scales, switch=0.0),
        state,
    ):
        np.testing.assert_allclose(task.weight_kernel(), expected, rtol=1e-12, atol=1e-300)


@given(st.floats(0, 1.2), st.floats(0, 3), st.floats(0, 3), st.floats(0, 1))
def test_switching_kernel_is_its_formula(gamma, sigma_w, sigma_e, switch):
    """k_ij = ((1-s) gamma)^lag k_mm, and k_mm the mean over when the last switch was; rtol 1e-11, terms >= 0."""
    kernel = RegimeSwitching(1, 20, gamma, sigma_w, sigma_e, switch).weight_kernel()
    own = []
    for m in range(1, 22):
        ran = [gamma ** (2 * t) * sigma_w**2 + sigma_e**2 * sum(gamma ** (2 * j) for j in range(t)) for t in range(22)]
        chance = [switch * (1 - switch) ** t for t in range(m)] + [(1 - switch) ** m]
        own.append(np.dot(chance, ran[: m + 1]))
    expected = [[((1 - switch) * gamma) ** abs(i - j) * own[min(i, j)] for j in range(21)] for i in range(21)]
    np.testing.assert_allclose(kernel, expected, rtol=1e-11, atol=1e-300)
    assert_is_a_covariance(kernel)


def test_a_task_keeps_its_own_matrices():
    """Changing the arrays that a task was made with does not change the task."""
    F, h, P = np.eye(2), np.ones(2), np.eye(2)
    task = LinearDrift(2, 3, F=F, Q=P, h=h, P_0=P)
    F[0, 0], h[0], P[0, 0] = 9, 9, 9
    np.testing.assert_array_equal(task.F, np.eye(2))
    np.testing.assert_array_equal(task.h, np.ones(2))
    np.testing.assert_array_equal(task.P_0, np.eye(2))
    np.testing.assert_array_equal(task.Q, np.eye(2))


# Statistics

N = 20_000


GENERAL = LinearDrift(
    2,
    5,
    F=[[0.9, 0.3, 0.0], [-0.2, 0.7, 0.1], [0.0, 0.5, 1.0]],
    Q=[[0.4, 0.2, 0.0], [0.2, 0.1, 0.0], [0.0, 0.0, 0.3]],
    h=[1.0, -0.5, 2.0],
    P_0=np.diag([1.0, 0.0, 2.0]),
)
LINEAR = {
    "three numbers": GENERAL,
    "AR(2)": ar2(2, 5, rho=0.9, omega=0.8, variance=2.0),
    "two timescales": two_timescales(2, 5, gammas=(0.99, 0.3)),
    "rotation": sinusoids(2, 5, omega=0.9, variance=2.0),
}


@pytest.mark.statistical
@pytest.mark.parametrize("task", LINEAR.values(), ids=LINEAR)
def test_linear_drifts_have_their_kernel(task):
    """Coordinates turned by their kernel's eigenvectors and scaled are standard normal, both coordinates and the inputs
    independent; directions that the kernel lacks are empty, as all but two of a rotation are.
    """
    prompt = task.sample(N, generator=make_generator("linear"), dtype=torch.float64)
    values, vectors = np.linalg.eigh(task.weight_kernel())
    lives = values > 1e-12 * values[-1]
    turned = np.einsum("btc,tk->bkc", prompt.w.numpy(), vectors)
    assert np.abs(turned[:, ~lives]).max(initial=0) < 1e-6
    z = turned[:, lives] / np.sqrt(values[lives])[:, None]
    assert lives.sum() == (2 if not task.Q.any() else 6)
    assert_standard_normal(np.concatenate([z, prompt.x.numpy()[:, :3]], axis=1).reshape(N, -1))


def innovations(task, name):
    """(innovations over their revealed standard deviation, inputs, what is hidden), w_0 being unknown at position 1."""
    prompt, hidden = task.reveal(N, generator=make_generator(name), dtype=torch.float64)
    w, variance, restart = prompt.w.numpy(), hidden.variance.numpy(), hidden.restart.numpy()
    kept = np.where(restart, 0.0, task.gamma)[..., None]
    first = np.sqrt(variance[:, :1, None] + kept[:, :1] ** 2 * task.sigma_w**2)
    z = np.concatenate([w[:, :1] / first, (w[:, 1:] - kept[:, 1:] * w[:, :-1]) / np.sqrt(variance[:, 1:, None])], 1)
    return z, prompt.x.numpy(), variance, restart


@pytest.mark.statistical(4)
@pytest.mark.parametrize("switch", [0.05, 0.5])
def test_switches_are_as_revealed(switch):
    """Given where it switched, each step is w_i = N(0, sigma_w^2 I) or gamma w_(i-1) + N(0, sigma_e^2 I), as it says.

    And switches at each position, together and at pairs of positions are binomial, with exact limits. Sees a switch of
    probability 0.5 that is 0.022 off.
    """
    task = RegimeSwitching(d=2, n=5, gamma=0.9, sigma_w=1.5, sigma_e=0.3, switch=switch)
    z, x, variance, restart = innovations(task, f"switch {switch}")
    np.testing.assert_allclose(variance, np.where(restart, 1.5**2, 0.3**2), rtol=1e-14)
    assert_standard_normal(np.concatenate([z, x], axis=1).reshape(N, -1))
    pairs = np.array([restart[:, i] & restart[:, j] for i in range(6) for j in range(i)])
    for counted, probability in ((restart.T, switch), (restart.reshape(1, -1), switch), (pairs, switch**2)):
        chance.assert_within(counted.sum(1), stats.binom(counted.shape[1], probability))


@pytest.mark.statistical(2)
@pytest.mark.parametrize("nu", [2.2, 3.0, 8.0])
def test_heavy_tails_are_as_revealed(nu):
    """Given their variances innovations are normal; sigma_e^2 (nu - 2) over them is chi-square of nu, independently.

    The chi-square numbers become normal ones by their distribution function, each half from its own tail, and these are
    independent of each other and of the directions. An innovation's coordinate is Student's t: Kolmogorov and Smirnov's
    test of one a prompt.
    """
    task = HeavyTailedDrift(d=2, n=5, gamma=0.9, sigma_w=1.5, sigma_e=0.3, nu=nu)
    z, x, variance, restart = innovations(task, f"tails {nu}")
    assert not restart.any()
    c = 0.3**2 * (nu - 2) / variance
    below, above = stats.chi2.cdf(c, nu), stats.chi2.sf(c, nu)
    scores = np.where(below < 0.5, stats.norm.ppf(below), stats.norm.isf(above))
    columns = np.concatenate([z.reshape(N, -1), x.reshape(N, -1), scores], axis=1)
    assert_standard_normal(columns)
    drawn = z[:, 3, 0] * np.sqrt(variance[:, 3]) / (0.3 * np.sqrt((nu - 2) / nu))
    chance.assert_p(stats.kstest(drawn, stats.t(nu).cdf).pvalue)


def test_a_drift_without_innovations_has_no_tails():
    """With sigma_e = 0 weights decay exactly, w_i = gamma w_(i-1), whatever nu and whatever the scales."""
    task = HeavyTailedDrift(d=3, n=6, gamma=0.8, sigma_e=0.0, nu=2.1)
    w = task.sample(50, generator=make_generator("none"), dtype=torch.float64).w
    torch.testing.assert_close(w[:, 1:], 0.8 * w[:, :-1], rtol=1e-14, atol=0)


@pytest.mark.statistical
@pytest.mark.parametrize(
    "task",
    [
        RegimeSwitching(d=2, n=12, gamma=0.95, switch=0.02),
        RegimeSwitching(d=2, n=12, gamma=0.95, switch=0.2),
        HeavyTailedDrift(d=2, n=12, gamma=0.95, nu=9.0),
        ar2(2, 12, rho=0.95, omega=0.2),
    ],
    ids=["switching", "switching often", "heavy tails", "AR(2)"],
)
def test_one_layer_pays_for_the_kernel_alone(task):
    """(16), which knows the kernel alone, is the mean squared error of one layer on 100,000 prompts of each law.

    The layer is the best for it (nu = 9 leaves squared errors a third moment and more). A standard error is below
    1.5 %, so that an error 10 % off is seen. Where weights switch, the drift (3) without switches would be 40 % off.
    """
    lam = one_layer.optimal_forgetting(task)
    A = torch.as_tensor(one_layer.optimum(task, lam=lam).A)
    squares = np.concatenate(
        [
            (((features(p, lam) @ A) * p.x[:, -1]).sum(-1) - p.y[:, -1]).numpy() ** 2
            for p in batches(task, 100_000, size=10_000, generator=make_generator("kernel alone"), dtype=torch.float64)
        ]
    )
    expected = one_layer.training_error(task, lam=lam)
    chance.assert_mean(squares, expected, error=0.015 * expected)
    if isinstance(task, RegimeSwitching):
        unaware = DriftingRegression(d=2, n=12, gamma=0.95)
        assert abs(one_layer.layer_risk(A.numpy(), unaware, lam=lam) - expected) > 0.4 * expected


# Bad input

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
        task.sample(5, generator=make_generator("beyond"), dtype=dtype)


def test_samples_near_the_end_of_their_dtype_are_drawn():
    """Close to the limits samples are finite, and in proportion to those of ordinary size, to rounding."""
    ordinary = DriftingRegression(2, 50, 0.9).sample(20, generator=make_generator("near"))
    for scale in (1e-16, 1e16):
        task = DriftingRegression(2, 50, 0.9, sigma_w=scale, sigma_e=0.1 * scale)
        prompt = task.sample(20, generator=make_generator("near"))
        torch.testing.assert_close(prompt.w, ordinary.w * scale, rtol=1e-5, atol=1e-6 * scale)
    drawn = two_timescales(1, 3, gammas=(0.9, 0.5), variances=(1.0, 0.0)).sample(5, generator=make_generator("near"))
    assert torch.isfinite(drawn.w).all()
