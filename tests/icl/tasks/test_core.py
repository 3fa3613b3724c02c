"""Tasks and prompts: repeatable, hiding what must be hidden, with the kernels they state; and samplers against their
laws.

Under the law that a task states, its weights and inputs can be turned back into independent standard normal numbers,
and everything asserted of them here is exact (no central limit theorem). With N rows and p columns of them:

- every column's sum of squares is chi-square with N degrees of freedom, and that of all of them with N p;
- columns a and b: a'b / |a| is standard normal, because it is so for every fixed a;
- Kolmogorov and Smirnov's statistic of all N p numbers has its exact distribution.

With N = 20,000 that sees one column's variance off by 7 %, those of 40 columns together off by 1 %, a correlation of
two columns of 0.05.
"""

import functools

import chance
import numpy as np
import pytest
import torch
from chance import assert_standard_normal
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from icl.profile import make_generator
from icl.tasks import DriftingRegression, Prompt, SmoothDrift, StationaryRegression, Task, batches
from icl.tasks.core import GAUSSIAN, LAPLACE, RADEMACHER, UNIFORM, InputLaw, square_root
from icl.tasks.drifts import HeavyTailedDrift, RegimeSwitching, ar2, sinusoids, two_timescales

# Properties

UNEQUAL = np.diag([3.0, 2.0, 1.0])
TASKS = {
    "stationary": StationaryRegression(d=3, n=5, Sigma_w=np.diag([1.0, 2.0, 3.0]), Lambda=UNEQUAL),
    "drifting": DriftingRegression(d=3, n=5, gamma=0.9, Lambda=UNEQUAL),
    "without innovations": DriftingRegression(d=3, n=5, gamma=0.9, sigma_e=0.0),
    "smooth": SmoothDrift(d=3, n=5),
    "stationary, Laplace": StationaryRegression(d=3, n=5, Sigma_w=np.diag([1.0, 2.0, 3.0]), inputs=LAPLACE),
    "drifting, uniform": DriftingRegression(d=3, n=5, gamma=0.9, Lambda=UNEQUAL, inputs=UNIFORM),
    "smooth, Laplace": SmoothDrift(d=3, n=5, Lambda=UNEQUAL, inputs=LAPLACE),
    "AR(2)": ar2(3, 5, rho=0.9, omega=0.4, Lambda=UNEQUAL),
    "two timescales": two_timescales(3, 5, gammas=(0.99, 0.5), Lambda=UNEQUAL, inputs=UNIFORM),
    "rotation": sinusoids(3, 5, omega=0.3),
    "switching": RegimeSwitching(d=3, n=5, gamma=0.9, switch=0.3, Lambda=UNEQUAL),
    "heavy tails": HeavyTailedDrift(3, 5, gamma=0.9, nu=2.5, Lambda=UNEQUAL, inputs=LAPLACE),
}
every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
# Signs repeat themselves, so that draws cannot be told apart by their numbers.
WITH_SIGNS = TASKS | {"drifting, signs": DriftingRegression(d=3, n=5, gamma=0.9, inputs=RADEMACHER)}
every_task_and_signs = pytest.mark.parametrize("task", WITH_SIGNS.values(), ids=WITH_SIGNS)


@every_task
def test_same_seed_same_prompt(task):
    """A task drawn twice from the same stream gives the same prompts, bit for bit; from another stream, others."""
    first, again, other = (task.sample(4, generator=make_generator("prompts", seed=s)) for s in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(vars(first).values(), vars(again).values(), strict=True))
    assert not torch.isin(first.x, other.x).any()
    assert not torch.isin(first.w, other.w).any()


@every_task_and_signs
def test_a_task_is_a_task(task):
    """Every task offers what the protocol asks for, and prompts of the sizes it was asked for."""
    assert isinstance(task, Task)
    prompt = task.sample(4, generator=make_generator("sizes"))
    assert (prompt.batch, prompt.n, prompt.d) == (4, 5, 3)
    assert prompt.x.shape == prompt.w.shape == (4, 6, 3)
    assert prompt.y.shape == (4, 6)
    assert task.weight_kernel().shape == (6, 6)


@every_task
def test_rows_of_a_batch_are_different(task):
    """No two prompts of a batch share their inputs or their weights, and no two positions share their inputs."""
    prompt = task.sample(50, generator=make_generator("rows"), dtype=torch.float64)
    assert len(prompt.x.reshape(-1, 3).unique(dim=0)) == 50 * 6
    assert len(prompt.w[:, -1].unique(dim=0)) == 50


@every_task_and_signs
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_device_are_those_asked_for(task, dtype):
    """Prompts have the dtype and the device that were asked for; by default float32, on the generator's device.

    The device is torch's "meta", which every machine has and which holds no numbers.
    """
    for device, expected in ((None, "cpu"), ("cpu", "cpu"), ("meta", "meta")):
        prompt = task.sample(2, generator=make_generator("dtype"), dtype=dtype, device=device)
        for array in (prompt.x, prompt.y, prompt.w, prompt.tokens()):
            assert array.dtype == dtype
            assert array.device.type == expected
    assert task.sample(2, generator=make_generator("dtype")).x.dtype == torch.float32


def test_gaussian_inputs_are_the_two_draws_they_were():
    """Gaussian inputs are normal numbers drawn right after the weights, coloured by the root of Lambda, bit for bit.

    So a task that names no law of its inputs draws what tasks drew before there was a choice, as does one that names
    the Gaussian law.
    """
    Lambda, Sigma_w = np.diag([3.0, 2.0, 1.0]), np.diag([1.0, 2.0, 3.0])
    Lambda[0, 1] = Lambda[1, 0] = 0.7
    values, vectors = np.linalg.eigh(Lambda)
    root = torch.as_tensor((vectors * np.sqrt(values)) @ vectors.T)
    for make, shape in (
        (functools.partial(StationaryRegression, Sigma_w=Sigma_w), (4, 1, 3)),
        (functools.partial(DriftingRegression, gamma=0.9), (7, 4, 3)),
        (SmoothDrift, (4, 8, 3)),
    ):
        for law in ({}, {"inputs": GAUSSIAN}):
            task = make(d=3, n=5, Lambda=Lambda, **law)
            generator = make_generator("before")
            torch.randn(shape, generator=generator, dtype=torch.float64)
            expected = torch.randn((4, 6, 3), generator=generator, dtype=torch.float64) @ root
            drawn = task.sample(4, generator=make_generator("before"), dtype=torch.float64)
            assert torch.equal(drawn.x, expected)


def test_a_law_of_inputs_leaves_the_weights_alone():
    """Tasks that differ in the law of their inputs alone draw the same weights from the same stream, bit for bit."""
    for make in (StationaryRegression, SmoothDrift, functools.partial(DriftingRegression, gamma=0.9)):
        one, *others = (
            make(d=3, n=5, inputs=law).sample(4, generator=make_generator("weights"))
            for law in (GAUSSIAN, UNIFORM, RADEMACHER, LAPLACE)
        )
        for other in others:
            assert torch.equal(other.w, one.w)
            assert not torch.equal(other.x, one.x)


def test_a_law_of_ones_own_is_drawn_from():
    """A law written by the reader is asked for as many numbers as there are inputs, and its numbers become the inputs.

    It gets the generator, the dtype and the device of the sample; here it answers with the numbers 0, 1, 2, ...
    """
    asked = []

    def draw(shape, generator, dtype, device):
        asked.append((shape, generator, dtype, device))
        return torch.arange(np.prod(shape), dtype=dtype).reshape(shape)

    task = SmoothDrift(d=2, n=3, Lambda=np.diag([4.0, 1.0]), inputs=InputLaw("counting", 2.0, draw))
    generator = make_generator("own")
    prompt = task.sample(5, generator=generator, dtype=torch.float64, device="cpu")
    assert asked == [((5, 4, 2), generator, torch.float64, "cpu")]
    white = torch.arange(40, dtype=torch.float64).reshape(5, 4, 2)
    assert torch.equal(prompt.x, white * torch.tensor([2.0, 1.0], dtype=torch.float64))
    torch.testing.assert_close(prompt.y, (prompt.x * prompt.w).sum(-1), rtol=1e-14, atol=1e-12)


def test_signs_are_signs(monkeypatch):
    """Of all numbers that a float32 generator can draw, exactly half become -1 and half +1; none becomes 0.

    torch draws the multiples of 2^-24 in [0, 1), each with the same probability, one half among them, where a sign
    function would answer 0. All 16,777,216 of them are tried, a 64th at a time, and the float64 numbers next to the
    edges.
    """
    size, up, down = 2**18, 0, 0
    for start in range(0, 2**24, size):
        part = torch.arange(start, start + size) / 2**24
        assert part.dtype == torch.float32
        assert part[-1] < 1
        monkeypatch.setattr(torch, "rand", lambda shape, part=part, **options: part)
        signs = RADEMACHER.draw((size,), make_generator("unused"), torch.float32, None)
        assert signs.dtype == torch.float32
        up += int(torch.count_nonzero(signs == 1))
        down += int(torch.count_nonzero(signs == -1))
    assert up == down == 2**23
    edges = torch.tensor([0, 0.5 - 2**-53, 0.5, 1 - 2**-53], dtype=torch.float64)
    monkeypatch.setattr(torch, "rand", lambda shape, **options: edges)
    assert RADEMACHER.draw((4,), make_generator("unused"), torch.float64, None).tolist() == [-1, -1, 1, 1]


@pytest.mark.parametrize(("dtype", "step"), [(torch.float32, 2**-24), (torch.float64, 2**-53)])
def test_edges_of_the_generator_stay_inside_the_laws(monkeypatch, dtype, step):
    """The least and the largest number that a generator draws become uniform inputs within the root of 3, and finite
    Laplace inputs.

    Uniform: -sqrt 3 itself, and one step of the generator, twice sqrt 3, short of sqrt 3. Laplace: the largest is the
    logarithm of that step, over sqrt 2. Tolerance: four roundings of the dtype.
    """
    rounding = 4 * torch.finfo(dtype).eps
    edges = torch.tensor([0.0, 1 - step], dtype=dtype)
    monkeypatch.setattr(torch, "rand", lambda shape, **options: edges.expand(shape))
    low, high = UNIFORM.draw((2,), make_generator("unused"), dtype, None).tolist()
    assert abs(low + 3**0.5) <= rounding
    assert high <= 3**0.5
    assert abs(high - 3**0.5) <= 2 * 3**0.5 * step + rounding
    pairs = torch.tensor([[0.0, 1 - step], [1 - step, 0.0]], dtype=dtype)
    monkeypatch.setattr(torch, "rand", lambda shape, **options: pairs)
    low, high = sorted(LAPLACE.draw((2,), make_generator("unused"), dtype, None).tolist())
    assert low == -high
    np.testing.assert_allclose(high, -np.log(step) / 2**0.5, rtol=rounding)


@pytest.mark.parametrize(("total", "size", "expected"), [(7, 3, [3, 3, 1]), (6, 3, [3, 3]), (2, 3, [2]), (1, 1, [1])])
def test_blocks_add_up_and_do_not_repeat(total, size, expected):
    """Blocks hold as many prompts as were asked for, none twice; other seeds give other blocks."""
    task = TASKS["drifting"]
    drawn = list(batches(task, total, size=size, generator=make_generator("blocks", seed=1)))
    assert [b.batch for b in drawn] == expected
    inputs = torch.cat([b.x for b in drawn]).reshape(-1, 3)
    assert len(inputs.unique(dim=0)) == len(inputs)
    for b, other in zip(
        drawn, batches(task, total, size=size, generator=make_generator("blocks", seed=2)), strict=True
    ):
        assert not torch.isin(b.x, other.x).any()


def test_blocks_pass_on_dtype_and_device():
    """Blocks are drawn in the dtype and on the device asked for."""
    (block,) = batches(TASKS["smooth"], 2, generator=make_generator("blocks"), dtype=torch.float64, device="meta")
    assert (block.x.dtype, block.x.device.type) == (torch.float64, "meta")


def assert_is_a_covariance(kernel):
    np.testing.assert_array_equal(kernel, kernel.T)
    values = np.linalg.eigvalsh(kernel)
    assert values[0] >= -1e-13 * len(kernel) * max(values[-1], 0)


@given(
    st.integers(1, 30), st.sampled_from([0.0, 0.3, 0.9, 1.0, 1.1]) | st.floats(0, 1.2), st.floats(0, 3), st.floats(0, 3)
)
def test_drifting_kernel_is_its_formula(n, gamma, sigma_w, sigma_e):
    """The drift's kernel is gamma^|i-j| k_mm, m = min(i, j), k_mm = gamma^2m sigma_w^2 + sigma_e^2 (1 + .. +
    gamma^(2m-2)).

    It is symmetric and positive semi-definite. rtol 1e-12: at most 60 products and sums of positive terms.
    """
    kernel = DriftingRegression(d=1, n=n, gamma=gamma, sigma_w=sigma_w, sigma_e=sigma_e).weight_kernel()
    k = [gamma ** (2 * m) * sigma_w**2 + sigma_e**2 * sum(gamma ** (2 * j) for j in range(m)) for m in range(1, n + 2)]
    expected = [[gamma ** abs(i - j) * k[min(i, j)] for j in range(n + 1)] for i in range(n + 1)]
    # Numbers too small for float64 to hold in full lose digits; none of them is ever asked for.
    np.testing.assert_allclose(kernel, expected, rtol=1e-12, atol=1e-300)
    assert_is_a_covariance(kernel)


@given(st.integers(1, 30), st.integers(0, 6), st.floats(0, 3))
def test_smooth_kernel_is_its_formula(n, harmonics, sigma_w):
    """The smooth drift's kernel is sigma_w^2 / (K+1) sum_k cos(pi k (i-j) / (n+1)): variance sigma_w^2 everywhere.

    It is symmetric and positive semi-definite, of rank 2 K + 1 at most. Tolerance 1e-14 of sigma_w^2 a harmonic:
    cosines of angles up to pi K, rounded.
    """
    kernel = SmoothDrift(d=1, n=n, harmonics=harmonics, sigma_w=sigma_w).weight_kernel()
    lag = np.subtract.outer(np.arange(n + 1), np.arange(n + 1)) / (n + 1)
    expected = sigma_w**2 / (harmonics + 1) * sum(np.cos(np.pi * k * lag) for k in range(harmonics + 1))
    rounding = 1e-14 * (harmonics + 1) * sigma_w**2
    np.testing.assert_allclose(kernel, expected, rtol=0, atol=rounding)
    np.testing.assert_allclose(np.diag(kernel), sigma_w**2, rtol=0, atol=rounding)
    np.testing.assert_allclose(kernel, kernel.T, rtol=0, atol=rounding)
    values = np.linalg.eigvalsh(kernel)
    assert np.abs(values[: max(n - 2 * harmonics, 0)]).max(initial=0) <= (n + 1) * rounding
    assert values[0] >= -(n + 1) * rounding


def test_stationary_is_the_drift_that_does_not_move():
    """The stationary task's kernel is that of the drift with gamma = 1 and sigma_e = 0, and of smooth
    drift with K = 0.
    """
    expected = StationaryRegression(d=2, n=7).weight_kernel()
    np.testing.assert_array_equal(DriftingRegression(d=2, n=7, gamma=1.0, sigma_e=0.0).weight_kernel(), expected)
    np.testing.assert_array_equal(SmoothDrift(d=2, n=7, harmonics=0).weight_kernel(), expected)


def test_a_task_keeps_its_own_covariance():
    """Changing the array that a task was made with does not change the task."""
    Lambda = np.eye(2)
    task = StationaryRegression(d=2, n=3, Sigma_w=Lambda, Lambda=Lambda)
    Lambda[0, 0] = 9
    np.testing.assert_array_equal(task.Lambda, np.eye(2))
    np.testing.assert_array_equal(task.Sigma_w, np.eye(2))


@given(st.integers(1, 6), st.integers(0, 6), st.integers(0, 2**32 - 1), st.floats(-6, 6))
def test_square_root_is_the_root(d, rank, seed, power):
    """The square root of a covariance, singular ones too, is symmetric, has no negative eigenvalue, and its square is
    the covariance.

    Tolerance 1e-13 of the largest entry for the square; for eigenvalues 1e-8 of the largest, the square root of
    rounding.
    """
    factor = np.random.default_rng(seed).normal(size=(d, rank)) * 10.0**power
    root = square_root(factor @ factor.T)
    square = factor @ factor.T
    np.testing.assert_allclose(root @ root, square, rtol=0, atol=1e-13 * np.abs(square).max())
    np.testing.assert_allclose(root, root.T, rtol=0, atol=1e-13 * np.abs(root).max())
    values = np.linalg.eigvalsh(root)
    assert values[0] >= -1e-8 * abs(values[-1])


def test_tokens_hide_the_querys_label():
    """Tokens are the rows (x_i, y_i) with 0 for the query's label, and share no memory with the prompt's labels."""
    prompt = TASKS["drifting"].sample(4, generator=make_generator("tokens"))
    labels = prompt.y.clone()
    Z = prompt.tokens()
    assert Z.shape == (4, 6, 4)
    assert torch.equal(Z[..., :3], prompt.x)
    assert torch.equal(Z[:, :-1, 3], prompt.y[:, :-1])
    assert not Z[:, -1, 3].any()
    Z.fill_(7)
    assert torch.equal(prompt.y, labels)
    other = Prompt(prompt.x, torch.cat([labels[:, :-1], labels[:, -1:] + 1], 1), prompt.w)
    assert torch.equal(other.tokens(), prompt.tokens())


@pytest.mark.parametrize("m", [1, 2, 5])
def test_last_keeps_the_newest_examples(m):
    """The last m examples and the query are kept, in order; the last n are the prompt itself."""
    prompt = TASKS["drifting"].sample(4, generator=make_generator("last"))
    short = prompt.last(m)
    assert (short.n, short.batch, short.d) == (m, 4, 3)
    for name in ("x", "y", "w"):
        assert torch.equal(getattr(short, name), getattr(prompt, name)[:, 5 - m :])


# Statistics

N = 20_000


def sample(task, name):
    prompt = task.sample(N, generator=make_generator(name), dtype=torch.float64)
    return prompt.x.numpy(), prompt.y.numpy(), prompt.w.numpy()


def whitened(rows, covariance):
    """Rows in the covariance's own directions, scaled to variance one: (the directions it has, the others unscaled)."""
    values, vectors = np.linalg.eigh(covariance)
    turned, lives = rows @ vectors, values > 1e-12 * values.max()
    return turned[..., lives] / np.sqrt(values[lives]), turned[..., ~lives]


KINDS = {
    "stationary": functools.partial(StationaryRegression, d=3, n=4),
    "drifting": functools.partial(DriftingRegression, d=3, n=4, gamma=0.9),
    "smooth": functools.partial(SmoothDrift, d=3, n=4),
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
# d x d, with unequal variances and correlated coordinates; the second lacks a direction.
ANISOTROPIC = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.4]])
SINGULAR = np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 3.0]])


@pytest.mark.statistical
@pytest.mark.parametrize(("gamma", "sigma_w"), [(0.0, 1.5), (0.9, 1.5), (1.0, 1.5), (1.02, 1.5), (0.9, 0.0)])
def test_innovations_are_exact(gamma, sigma_w):
    """The drift has the law it states: w_i - gamma w_(i-1) is N(0, sigma_e^2 I), w_1 is N(0, (gamma^2 sigma_w^2 +
    sigma_e^2) I).

    Innovations are independent of each other, of w_1, which is one if sigma_w = 0, and of the inputs. 20,000 prompts;
    exact chi-square and normal limits; sees all variances off by 1 %, one off by 7 %, a correlation of 0.05.
    """
    task = DriftingRegression(d=3, n=6, gamma=gamma, sigma_w=sigma_w, sigma_e=0.3)
    x, _, w = sample(task, f"drift {gamma}")
    first = w[:, :1] / np.sqrt(gamma**2 * sigma_w**2 + 0.3**2)
    innovations = (w[:, 1:] - gamma * w[:, :-1]) / 0.3
    assert_standard_normal(np.concatenate([first, innovations, x], axis=1).reshape(N, -1))


@pytest.mark.statistical
def test_a_drift_without_innovations_is_deterministic():
    """With sigma_e = 0 the weights decay exactly, w_i = gamma w_(i-1), from w_1 = gamma w_0 of the stated variance.

    Decay to rounding (one product a step); the start by the limits of the file's head.
    """
    _, _, w = sample(DriftingRegression(d=3, n=6, gamma=0.8, sigma_w=1.5, sigma_e=0.0), "no innovations")
    np.testing.assert_allclose(w[:, 1:], 0.8 * w[:, :-1], rtol=1e-14)
    assert_standard_normal(w[:, 0] / (0.8 * 1.5))


def test_nothing_drifts_when_nothing_moves():
    """With sigma_w = sigma_e = 0 weights and labels are zero; with gamma = 1 and sigma_e = 0 the
    weights stand still.
    """
    _, y, w = sample(DriftingRegression(d=2, n=3, gamma=1.0, sigma_w=0.0, sigma_e=0.0), "nothing")
    assert not w.any()
    assert not y.any()
    _, _, w = sample(DriftingRegression(d=2, n=3, gamma=1.0, sigma_w=1.0, sigma_e=0.0), "still")
    assert (w == w[:, :1]).all()


@pytest.mark.statistical
@pytest.mark.parametrize("covariance", [None, ANISOTROPIC, SINGULAR], ids=["identity", "anisotropic", "singular"])
def test_stationary_weights_have_their_covariance(covariance):
    """Stationary weights are N(0, Sigma_w), one vector for the whole prompt, and independent of the inputs.

    A direction that Sigma_w lacks stays empty to the square root of rounding, as its eigenvalue is zero only to
    rounding. 20,000 prompts, the limits of the file's head.
    """
    x, _, w = sample(StationaryRegression(d=3, n=4, Sigma_w=covariance), "stationary weights")
    assert (w == w[:, :1]).all()
    z, empty = whitened(w[:, 0], np.eye(3) if covariance is None else covariance)
    assert np.abs(empty).max(initial=0) < 1e-7
    assert_standard_normal(np.concatenate([z, x.reshape(N, -1)], axis=1))


@pytest.mark.statistical
@pytest.mark.parametrize("covariance", [ANISOTROPIC, SINGULAR], ids=["anisotropic", "singular"])
@every_kind
def test_inputs_have_their_covariance(kind, covariance):
    """Inputs are N(0, Lambda), independent from one position to the next, in every task.

    A direction that Lambda lacks stays empty to the square root of rounding. 20,000 prompts, the limits of the file's
    head.
    """
    x, _, _ = sample(kind(Lambda=covariance), "inputs")
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


@pytest.mark.statistical
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@every_kind
def test_inputs_have_their_law(kind, law):
    """Inputs of another law are independent numbers of that law, scaled by the root of Lambda's diagonal, in every
    task.

    Numbers of a continuous law become standard normal ones by its distribution function and the normal quantile (both
    laws being symmetric, each half from its own tail, without cancellation), and these, beside the weights, pass the
    limits of the file's head: 20,000 prompts. The Kolmogorov-Smirnov distance of the 300,000
    inputs from their law is below 0.007, and that of a Laplace law from a normal one of equal variance is 0.06.
    """
    task = kind(Lambda=np.diag(DIAGONAL), inputs=law)
    x, _, w = sample(task, f"inputs {law.name}")
    white = x / np.sqrt(DIAGONAL)
    z = np.copysign(special.ndtri(LAWS[law].cdf(-np.abs(white))), white)
    assert np.isfinite(z).all()
    # One weight a coordinate, scaled to variance one: those of a prompt depend on each other.
    alone = w[:, :1] / np.sqrt(task.weight_kernel()[0, 0])
    assert_standard_normal(np.concatenate([z, alone], axis=1).reshape(N, -1))


@pytest.mark.statistical(4)
@every_kind
def test_signs_are_balanced_and_independent(kind):
    """Signs are -1 and +1 exactly, as often the one as the other, and no two of a prompt know of each other.

    The number of +1 in each of the 15 columns, in all, and in each product of two columns is binomial with
    probability 1/2, with exact limits. 20,000 prompts; sees a sign that
    comes up 54 % of the time, and two that agree that often.
    """
    x, _, w = sample(kind(Lambda=np.diag(DIAGONAL), inputs=RADEMACHER), "signs")
    signs = (x / np.sqrt(DIAGONAL)).reshape(N, -1)
    assert set(np.unique(signs)) == {-1.0, 1.0}
    columns = signs.shape[1]
    pairs = np.array([signs[:, i] * signs[:, j] for i in range(columns) for j in range(i)])
    # The signs of one weight a coordinate are as good as inputs' to be independent of.
    others = np.array([signs[:, i] * np.sign(w[:, 0, c]) for i in range(columns) for c in range(3)])
    for products in (signs.T, signs.reshape(1, -1), pairs, others):
        chance.assert_within((products > 0).sum(1), stats.binom(products.shape[1], 0.5))


def test_laplace_inputs_take_two_numbers_each():
    """Differences of two exponentials, rtol 1e-12; what is drawn after them begins at the third."""
    ours, by_hand = make_generator("laplace"), make_generator("laplace")
    drawn = LAPLACE.draw((3, 4), ours, torch.float64, None)
    u, v = torch.rand((2, 3, 4), generator=by_hand, dtype=torch.float64)
    torch.testing.assert_close(drawn, (torch.log1p(-v) - torch.log1p(-u)) / 2**0.5, rtol=1e-12, atol=0)
    assert torch.equal(ours.get_state(), by_hand.get_state())


@pytest.mark.statistical
@pytest.mark.parametrize("law", [*LAWS, RADEMACHER], ids=lambda law: law.name)
def test_laws_of_inputs_state_their_kurtosis(law):
    """The kurtosis that a law of inputs states is that of the distribution it is drawn from, whose variance is 1.

    Exactly so by scipy's moments (rtol 1e-14), the law having been tested above. And the draws themselves: uniform
    inputs lie within the root of 3, so that by Hoeffding's inequality the mean square and the mean fourth power of
    300,000 of them are within 0.019 and 0.056 of 1 and 9/5; root 2 |z| of
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
        off = np.abs([(x**2).mean() - 1, (x**4).mean() - law.kurtosis])
        # P(|mean - E| > t) <= 2 exp(-2 N t^2 / range^2).
        chance.assert_p(2 * np.exp(-2 * total * (off / [3, 9]) ** 2))
    if law is LAPLACE:
        chance.assert_within(2 * 2**0.5 * np.abs(x).sum(), stats.chi2(2 * total))


@pytest.mark.statistical
@pytest.mark.parametrize("harmonics", [0, 1, 3])
def test_smooth_drift_is_its_coefficients(harmonics):
    """A smooth drift is a curve of 2 (K + 1) coefficients and nothing else, and they are independent N(0, I).

    The curves are fitted by the stated cosines and sines; what the fit leaves is rounding (of a fit whose condition
    number is below 1000). The coefficients so found (b_0 multiplies sin 0 and is never seen) pass the limits of the
    file's head.
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


@pytest.mark.statistical
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
    file's head; directions that the kernel lacks are empty.
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
        *TASKS.values(),
    ):
        x, y, w = sample(task, "labels")
        assert (np.abs(y - np.einsum("bti,bti->bt", w, x)) <= 1e-15 * 4 * np.abs(w * x).sum(-1)).all()


# Bad input


def test_prompts_hold_finite_labels():
    """A prompt whose labels are not finite is none."""
    x = torch.ones(1, 3, 2)
    for bad in (torch.nan, torch.inf):
        with pytest.raises(ValueError, match="y must be finite in torch"):
            Prompt(x, torch.tensor([[0.0, bad, 1.0]]), x)
