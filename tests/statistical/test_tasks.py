"""The samplers against their laws.

Under the law that a task states, its weights and inputs can be turned back into independent standard normal numbers,
and everything asserted here is exact for those (no central limit theorem). With N rows and p columns of them:

- every column's sum of squares is chi-square with N degrees of freedom, and that of all of them with N p;
- columns a and b: a'b / |a| is standard normal, because it is so for every fixed a;
- Kolmogorov and Smirnov's statistic of all N p numbers has its exact distribution.

Each test fails by chance with probability 1e-9 at most, shared equally among its assertions. With N = 20,000 it sees
one column's variance off by 7 %, those of 40 columns together off by 1 %, a correlation of two columns of 0.05.
"""

import numpy as np
import pytest
import torch
from scipy import stats

from icl.profile import streams
from icl.tasks import GAUSSIAN, LAPLACE, RADEMACHER, UNIFORM, DriftingRegression, SmoothDrift, StationaryRegression

N = 20_000
FALSE_FAILURE = 1e-9


def assert_standard_normal(z):
    """Refuse z (N, p) as independent standard normal numbers, with probability 1e-9 if they are."""
    rows, columns = z.shape
    # Four kinds of assertion share the failure rate equally, and within a kind the numbers looked at.
    share = FALSE_FAILURE / 4
    squares = (z**2).sum(0)
    low, high = stats.chi2.ppf([share / columns / 2, 1 - share / columns / 2], rows)
    assert low < squares.min()
    assert squares.max() < high
    low, high = stats.chi2.ppf([share / 2, 1 - share / 2], rows * columns)
    assert low < squares.sum() < high
    # a'b / |a| is normal, b'a / |b| too: the upper triangle looks at every pair once.
    pairs = (z.T @ z / np.sqrt(squares)[:, None])[np.triu_indices(columns, 1)]
    if len(pairs):
        assert np.abs(pairs).max() < stats.norm.isf(share / len(pairs) / 2)
    assert stats.kstest(z.ravel(), "norm").pvalue > share


def sample(task, name):
    prompt = task.sample(N, generator=streams(name), dtype=torch.float64)
    return prompt.x.numpy(), prompt.y.numpy(), prompt.w.numpy()


def whitened(rows, covariance):
    """Rows in the covariance's own directions, scaled to variance one: (the directions it has, the others unscaled)."""
    values, vectors = np.linalg.eigh(covariance)
    turned, lives = rows @ vectors, values > 1e-12 * values.max()
    return turned[..., lives] / np.sqrt(values[lives]), turned[..., ~lives]


# d x d, with unequal variances and correlated coordinates; the second lacks a direction.
ANISOTROPIC = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.4]])
SINGULAR = np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 3.0]])


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0, 1.02])
def test_innovations_are_exact(gamma):
    """The drift has the law it states: w_i - gamma w_(i-1) is N(0, sigma_e^2 I), w_1 is N(0, (gamma^2 sigma_w^2 +
    sigma_e^2) I).

    Innovations are independent of each other, of w_1 and of the inputs. 20,000 prompts; exact chi-square and normal
    limits; fails by chance with probability 1e-9; sees all variances off by 1 %, one off by 7 %, a correlation of 0.05.
    """
    task = DriftingRegression(d=3, n=6, gamma=gamma, sigma_w=1.5, sigma_e=0.3)
    x, _, w = sample(task, f"drift {gamma}")
    first = w[:, :1] / np.sqrt(gamma**2 * 1.5**2 + 0.3**2)
    innovations = (w[:, 1:] - gamma * w[:, :-1]) / 0.3
    assert_standard_normal(np.concatenate([first, innovations, x], axis=1).reshape(N, -1))


def test_a_drift_without_innovations_is_deterministic():
    """With sigma_e = 0 the weights decay exactly, w_i = gamma w_(i-1), from w_1 = gamma w_0 of the stated variance.

    Decay to rounding (one product a step); the start by the limits of the file's head, failing by chance with
    probability 1e-9.
    """
    _, _, w = sample(DriftingRegression(d=3, n=6, gamma=0.8, sigma_w=1.5, sigma_e=0.0), "no innovations")
    np.testing.assert_allclose(w[:, 1:], 0.8 * w[:, :-1], rtol=1e-14)
    assert_standard_normal(w[:, 0] / (0.8 * 1.5))


def test_a_drift_from_zero_starts_with_an_innovation():
    """With sigma_w = 0 the first weight is one innovation, N(0, sigma_e^2 I), whatever gamma.

    20,000 prompts, the limits of the file's head, failing by chance with probability 1e-9.
    """
    _, _, w = sample(DriftingRegression(d=3, n=4, gamma=0.9, sigma_w=0.0, sigma_e=0.3), "from zero")
    z = np.concatenate([w[:, :1], w[:, 1:] - 0.9 * w[:, :-1]], axis=1) / 0.3
    assert_standard_normal(z.reshape(N, -1))


def test_nothing_drifts_when_nothing_moves():
    """With sigma_w = sigma_e = 0 weights and labels are zero; with gamma = 1 and sigma_e = 0 the
    weights stand still.
    """
    _, y, w = sample(DriftingRegression(d=2, n=3, gamma=1.0, sigma_w=0.0, sigma_e=0.0), "nothing")
    assert not w.any()
    assert not y.any()
    _, _, w = sample(DriftingRegression(d=2, n=3, gamma=1.0, sigma_w=1.0, sigma_e=0.0), "still")
    assert (w == w[:, :1]).all()


@pytest.mark.parametrize("covariance", [None, ANISOTROPIC, SINGULAR], ids=["identity", "anisotropic", "singular"])
def test_stationary_weights_have_their_covariance(covariance):
    """Stationary weights are N(0, Sigma_w), one vector for the whole prompt, and independent of the inputs.

    A direction that Sigma_w lacks stays empty to the square root of rounding, as its eigenvalue is zero only to
    rounding. 20,000 prompts, the limits of the file's head, failing by chance with probability 1e-9.
    """
    x, _, w = sample(StationaryRegression(d=3, n=4, Sigma_w=covariance), "stationary weights")
    assert (w == w[:, :1]).all()
    z, empty = whitened(w[:, 0], np.eye(3) if covariance is None else covariance)
    assert np.abs(empty).max(initial=0) < 1e-7
    assert_standard_normal(np.concatenate([z, x.reshape(N, -1)], axis=1))


@pytest.mark.parametrize("covariance", [ANISOTROPIC, SINGULAR], ids=["anisotropic", "singular"])
@pytest.mark.parametrize(
    "task",
    [
        lambda Lambda: StationaryRegression(d=3, n=4, Lambda=Lambda),
        lambda Lambda: DriftingRegression(d=3, n=4, gamma=0.9, Lambda=Lambda),
        lambda Lambda: SmoothDrift(d=3, n=4, Lambda=Lambda),
    ],
    ids=["stationary", "drifting", "smooth"],
)
def test_inputs_have_their_covariance(task, covariance):
    """Inputs are N(0, Lambda), independent from one position to the next, in every task.

    A direction that Lambda lacks stays empty to the square root of rounding. 20,000 prompts, the limits of the file's
    head, failing by chance with probability 1e-9.
    """
    x, _, _ = sample(task(covariance), "inputs")
    z, empty = whitened(x, covariance)
    assert np.abs(empty).max(initial=0) < 1e-7
    assert_standard_normal(z.reshape(N, -1))


#: What each law of white inputs is, as scipy has it; signs have a test of their own.
LAWS = {
    GAUSSIAN: stats.norm(),
    UNIFORM: stats.uniform(-(3**0.5), 2 * 3**0.5),
    LAPLACE: stats.laplace(scale=2**-0.5),
}
DIAGONAL = np.array([2.0, 1.0, 0.25])
TASKS = [
    lambda law: StationaryRegression(d=3, n=4, Lambda=np.diag(DIAGONAL), inputs=law),
    lambda law: DriftingRegression(d=3, n=4, gamma=0.9, Lambda=np.diag(DIAGONAL), inputs=law),
    lambda law: SmoothDrift(d=3, n=4, Lambda=np.diag(DIAGONAL), inputs=law),
]
every_kind = pytest.mark.parametrize("task", TASKS, ids=["stationary", "drifting", "smooth"])


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@every_kind
def test_inputs_have_their_law(task, law):
    """Inputs of another law are independent numbers of that law, scaled by the root of Lambda's diagonal, in every
    task.

    Numbers of a continuous law become standard normal ones by its distribution function and the normal quantile
    (each half from its own tail, without cancellation), and these, beside the weights, pass the limits of the file's
    head: 20,000 prompts, failing by chance with probability 1e-9. The Kolmogorov-Smirnov distance of the 300,000
    inputs from their law is below 0.007, and that of a Laplace law from a normal one of equal variance is 0.06.
    """
    x, _, w = sample(task(law), f"inputs {law.name}")
    white = x / np.sqrt(DIAGONAL)
    z = np.where(white < 0, stats.norm.ppf(LAWS[law].cdf(white)), stats.norm.isf(LAWS[law].sf(white)))
    assert np.isfinite(z).all()
    # One weight a coordinate, scaled to variance one: those of a prompt depend on each other.
    alone = w[:, :1] / np.sqrt(task(law).weight_kernel()[0, 0])
    assert_standard_normal(np.concatenate([z, alone], axis=1).reshape(N, -1))


@every_kind
def test_signs_are_balanced_and_independent(task):
    """Signs are -1 and +1 exactly, as often the one as the other, and no two of a prompt know of each other.

    The number of +1 in each of the 15 columns, in all, and in each product of two columns is binomial with
    probability 1/2, with exact limits. 20,000 prompts, failing by chance with probability 1e-9; sees a sign that
    comes up 54 % of the time, and two that agree that often.
    """
    x, _, w = sample(task(RADEMACHER), "signs")
    signs = (x / np.sqrt(DIAGONAL)).reshape(N, -1)
    assert set(np.unique(signs)) == {-1.0, 1.0}
    columns = signs.shape[1]
    pairs = np.array([signs[:, i] * signs[:, j] for i in range(columns) for j in range(i)])
    # The signs of one weight a coordinate are as good as inputs' to be independent of.
    others = np.array([signs[:, i] * np.sign(w[:, 0, c]) for i in range(columns) for c in range(3)])
    for products in (signs.T, signs.reshape(1, -1), pairs, others):
        counts = (products > 0).sum(1)
        share = FALSE_FAILURE / 4 / len(counts)
        low, high = stats.binom.ppf([share / 2, 1 - share / 2], products.shape[1], 0.5)
        assert low <= counts.min()
        assert counts.max() <= high


@pytest.mark.parametrize("law", [*LAWS, RADEMACHER], ids=lambda law: law.name)
def test_laws_of_inputs_state_their_kurtosis(law):
    """The kurtosis that a law of inputs states is that of the distribution it is drawn from, whose variance is 1.

    Exactly so by scipy's moments (rtol 1e-14), the law having been tested above. And the draws themselves: uniform
    inputs lie within the root of 3, so that by Hoeffding's inequality the mean square and the mean fourth power of
    300,000 of them are within 0.019 and 0.056 of 1 and 9/5, failing by chance with probability 1e-9; root 2 |z| of
    Laplace inputs is exponential, so that twice its sum is exactly chi-square, which sees 1.2 %; signs are 1 in every
    power.
    """
    (x, _, _), total = sample(StationaryRegression(d=3, n=4, inputs=law), "kurtosis"), N * 15
    if law is RADEMACHER:
        assert law.kurtosis == 1
        assert (x**2 == 1).all()
        return
    variance, excess = LAWS[law].stats("vk")
    np.testing.assert_allclose([variance, 3 + excess], [1, law.kurtosis], rtol=1e-14)
    if law is UNIFORM:
        assert np.abs(x).max() <= 3**0.5
        # Two assertions share the rate: P(|mean - E| > t) <= 2 exp(-2 N t^2 / range^2).
        limit = np.sqrt(np.log(2 / (FALSE_FAILURE / 2)) / 2 / total)
        assert abs((x**2).mean() - 1) < 3 * limit
        assert abs((x**4).mean() - law.kurtosis) < 9 * limit
    if law is LAPLACE:
        low, high = stats.chi2.ppf([FALSE_FAILURE / 2, 1 - FALSE_FAILURE / 2], 2 * total)
        assert low < 2 * 2**0.5 * np.abs(x).sum() < high


@pytest.mark.parametrize("harmonics", [0, 1, 3])
def test_smooth_drift_is_its_coefficients(harmonics):
    """A smooth drift is a curve of 2 (K + 1) coefficients and nothing else, and they are independent N(0, I).

    The curves are fitted by the stated cosines and sines; what the fit leaves is rounding (of a fit whose condition
    number is below 1000). The coefficients so found (b_0 multiplies sin 0 and is never seen) pass the limits of the
    file's head, failing by chance with probability 1e-9.
    """
    n, sigma_w = 30, 1.5
    x, _, w = sample(SmoothDrift(d=2, n=n, harmonics=harmonics, sigma_w=sigma_w), f"smooth {harmonics}")
    u = np.arange(1, n + 2) / (n + 1)
    waves = [np.cos(np.pi * k * u) for k in range(harmonics + 1)]
    waves += [np.sin(np.pi * k * u) for k in range(1, harmonics + 1)]
    basis = sigma_w / np.sqrt(harmonics + 1) * np.stack(waves, axis=1)
    assert np.linalg.cond(basis) < 1000
    curves = w.transpose(1, 0, 2).reshape(n + 1, -1)
    coefficients = np.linalg.pinv(basis) @ curves
    np.testing.assert_allclose(basis @ coefficients, curves, rtol=0, atol=1e-12 * np.abs(curves).max())
    assert_standard_normal(
        np.concatenate([coefficients.reshape(-1, N, 2).transpose(1, 0, 2), x[:, :3]], 1).reshape(N, -1)
    )


@pytest.mark.parametrize(
    "task",
    [
        DriftingRegression(d=3, n=5, gamma=0.9, sigma_w=1.5, sigma_e=0.3),
        DriftingRegression(d=3, n=5, gamma=1.02),
        StationaryRegression(d=3, n=5),
        SmoothDrift(d=3, n=5, harmonics=3, sigma_w=1.5),
    ],
    ids=["drifting", "growing", "stationary", "smooth"],
)
def test_weights_have_their_kernel(task):
    """The weights that a task draws have the covariance over time that its weight_kernel states.

    The coordinates of 20,000 prompts, turned by the kernel's own eigenvectors and scaled, pass the limits of the
    file's head, failing by chance with probability 1e-9; directions that the kernel lacks are empty.
    """
    _, _, w = sample(task, "kernel")
    z, empty = whitened(w.transpose(0, 2, 1).reshape(-1, task.n + 1), task.weight_kernel())
    assert np.abs(empty).max(initial=0) < 1e-7
    assert_standard_normal(z)


def test_labels_are_products_without_noise():
    """Every label is <w_i, x_i>, the query's included, with nothing added. Tolerance: rounding of a sum
    of d products.
    """
    for task in (
        StationaryRegression(d=3, n=5, Sigma_w=ANISOTROPIC, Lambda=ANISOTROPIC),
        DriftingRegression(d=3, n=5, gamma=0.9, Lambda=ANISOTROPIC),
        SmoothDrift(d=3, n=5, Lambda=ANISOTROPIC),
    ):
        x, y, w = sample(task, "labels")
        assert (np.abs(y - np.einsum("bti,bti->bt", w, x)) <= 1e-15 * 4 * np.abs(w * x).sum(-1)).all()
