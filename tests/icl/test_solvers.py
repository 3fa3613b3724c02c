"""First-order methods against other ways to the same iterates (scipy, loops by hand, least squares in Krylov spaces),
and laws that they keep whatever the problem, its size and the settings.
"""

import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import chebyshev as T
from scipy import optimize, sparse

from icl import solvers
from icl.profile import make_generator

# Oracles

D, BATCH, STEPS, LEAST, GREATEST = 6, 4, 5, 0.3, 5.0
ETA, BETA = 0.11, 0.7


def problems(seed=0, dtype=torch.float64):
    """H with eigenvalues in [LEAST, GREATEST], both ends taken, b = H w* and w_0 that are not special, and an M."""
    g = make_generator("solver oracles", seed=seed)
    Q = torch.linalg.qr(torch.randn(BATCH, D, D, generator=g, dtype=torch.float64))[0]
    values = LEAST + (GREATEST - LEAST) * torch.rand(BATCH, D, generator=g, dtype=torch.float64)
    values[:, 0], values[:, 1] = LEAST, GREATEST
    H = (Q * values[:, None]) @ Q.mT
    b, w_0 = torch.randn(2, BATCH, D, generator=g, dtype=torch.float64)
    F = torch.randn(BATCH, D, D, generator=g, dtype=torch.float64)
    return (H + H.mT) / 2, b, w_0, F @ F.mT / D + torch.eye(D)


def agrees(w, expected, rtol=1e-9):
    """Iterates equal to `rtol` of the largest entry of the problem's."""
    expected = np.asarray(expected)
    assert w.shape == expected.shape
    assert (np.abs(w.numpy() - expected).max((1, 2)) <= rtol * np.abs(expected).max((1, 2))).all()


def by_hand(method, H, b, w_0, steps=STEPS):
    """Iterates of a method written for one problem in numpy: `method(gradient, H, w_0)` yields them."""
    answers = []
    for A, c, w in zip(H.numpy(), b.numpy(), w_0.numpy(), strict=True):
        iterates = method(lambda w, A=A, c=c: A @ w - c, A, w)
        answers.append([w, *(next(iterates) for _ in range(steps))])
    return np.array(answers)


def descent(gradient, H, w):
    while True:
        w = w - ETA * gradient(w)
        yield w


def heavy_ball(gradient, H, w):
    """In two terms of w, where the library keeps a velocity."""
    before = w
    while True:
        w, before = w - ETA * gradient(w) + BETA * (w - before), w
        yield w


def accelerated(gradient, H, w):
    before = w
    while True:
        v = w + BETA * (w - before)
        w, before = v - ETA * gradient(v), w
        yield w


def conjugate(gradient, H, w):
    """(2.13) with gradients computed anew and a line search that asks for no orthogonality."""
    s, g_before = np.zeros_like(w), None
    while True:
        g = gradient(w)
        s = -g + (0.0 if g_before is None else (g @ g) / (g_before @ g_before)) * s
        w, g_before = w - (g @ s) / (s @ H @ s) * s, g
        yield w


def semi_iteration(gradient, H, w):
    """The three-term recurrence of Chebyshev's polynomials themselves: p_k = T_k(m(z)) / T_k(m(0))."""
    middle, half = (GREATEST + LEAST) / 2, (GREATEST - LEAST) / 2
    t, before, k = [1.0, middle / half], w, 1
    w = w - gradient(w) / middle
    yield w
    while True:
        t.append(2 * middle / half * t[-1] - t[-2])
        # T_(k+1) p_(k+1) = 2 m T_k p_k - T_(k-1) p_(k-1), applied to the error, whose m is (middle - H) / half.
        w, before = (2 * t[k] * (middle * w - gradient(w)) / half - t[k - 1] * before) / t[k + 1], w
        k += 1
        yield w


BY_HAND = {
    "gradient descent": (solvers.gradient_descent(ETA), descent),
    "momentum": (solvers.momentum(ETA, BETA), heavy_ball),
    "Nesterov": (solvers.nesterov(ETA, BETA), accelerated),
    "conjugate gradients": (solvers.conjugate_gradients(), conjugate),
    "Chebyshev": (solvers.chebyshev(LEAST, GREATEST), semi_iteration),
}


@pytest.mark.parametrize(("solver", "method"), BY_HAND.values(), ids=BY_HAND)
def test_each_method_is_its_definition(solver, method):
    """Every iterate of every method is that of a loop over one problem in numpy, from w_0 and from 0."""
    H, b, w_0, _ = problems()
    agrees(solvers.run_solver(solver, H, b, STEPS, w_0), by_hand(method, H, b, w_0))
    agrees(solvers.run_solver(solver, H, b, STEPS), by_hand(method, H, b, torch.zeros_like(b)))


@pytest.mark.parametrize("kind", ["none", "one for all", "one each"])
def test_conjugate_gradients_are_scipys(kind):
    """Every iterate is that of scipy.sparse.linalg.cg, with and without a preconditioner."""
    H, b, w_0, Ms = problems(1)
    M = {"none": None, "one for all": Ms[0], "one each": Ms}[kind]
    expected = []
    for k in range(BATCH):
        path = [w_0[k].numpy()]
        one = {"none": None, "one for all": Ms[0].numpy(), "one each": Ms[k].numpy()}[kind]
        kept = {"callback": lambda w, path=path: path.append(w.copy())}
        sparse.linalg.cg(H[k].numpy(), b[k].numpy(), path[0], rtol=0, maxiter=STEPS, M=one, **kept)
        expected.append(path)
    agrees(solvers.run_solver(solvers.conjugate_gradients(M), H, b, STEPS, w_0), expected)


@pytest.mark.parametrize("preconditioned", [False, True])
def test_conjugate_gradients_minimise_over_krylov_spaces(preconditioned):
    """Iterate k is the w in w_0 + span(M r, M H M r, ..) that is nearest to w* in the norm of H: by least squares over
    an orthonormal basis of that space, its inner product having nothing to do with H.
    """
    H, b, w_0, M = problems(2)
    M = M if preconditioned else torch.eye(D, dtype=torch.float64).expand_as(M)
    w = solvers.run_solver(solvers.conjugate_gradients(M), H, b, STEPS, w_0)
    expected = np.empty(w.shape)
    for i in range(BATCH):
        A, P = H[i].numpy(), M[i].numpy()
        start, root = w_0[i].numpy(), np.linalg.cholesky(A).T
        error = np.linalg.solve(A, b[i].numpy()) - start
        basis, direction = np.empty((D, 0)), P @ A @ error
        expected[i, 0] = start
        for k in range(1, STEPS + 1):
            basis = np.linalg.qr(np.column_stack([basis, direction]))[0]
            direction = P @ A @ basis[:, -1]
            expected[i, k] = start + basis @ np.linalg.lstsq(root @ basis, root @ error)[0]
    agrees(w, expected)


@pytest.mark.parametrize("preconditioned", [False, True])
def test_the_scalars_are_those_of_the_iterates(preconditioned):
    """A loop in the Memformer's form, r <- -M g + gamma r and w <- w + alpha r, with the scalars of each problem is the
    run from 0; their first gamma is 0, and d steps later both are 0.
    """
    H, b, _, M = problems(3)
    M = M if preconditioned else None
    alpha, gamma = solvers.conjugate_scalars(H, b, 3 * D, M)
    assert alpha.shape == gamma.shape == (BATCH, 3 * D)
    assert (alpha[:, :D] > 0).all()
    assert (gamma[:, 0] == 0).all()
    assert (gamma[:, 1:D] > 0).all()
    assert not alpha[:, 2 * D :].any()
    assert not gamma[:, 2 * D :].any()
    run = solvers.run_solver(solvers.conjugate_gradients(M), H, b, STEPS)
    w = r = torch.zeros_like(b)
    for k in range(STEPS):
        g = torch.einsum("bij,bj->bi", H, w) - b
        r = -(g if M is None else torch.einsum("bij,bj->bi", M, g)) + gamma[:, k, None] * r
        w = w + alpha[:, k, None] * r
        agrees(w[:, None], run[:, k + 1 : k + 2].numpy())


def test_chebyshevs_residual_is_the_polynomial_that_is_least():
    """On diagonal problems w - w* is -p_k(z) at each eigenvalue z, p_k being T_k scaled to p_k(0) = 1; and no
    polynomial of the degree has a smaller largest value on the interval, by linear programming on 400 points of it.

    The tolerance of the latter, 1e-3, is that of the grid: its points are (GREATEST - LEAST) / 400 apart.
    """
    z = torch.linspace(LEAST, GREATEST, 400, dtype=torch.float64)
    H, w_star = z[:, None, None], torch.ones(400, 1, dtype=torch.float64)
    p = 1 - solvers.run_solver(solvers.chebyshev(LEAST, GREATEST), H, H[..., 0] * w_star, 6)[..., 0]
    middle, half = (GREATEST + LEAST) / 2, (GREATEST - LEAST) / 2
    for k in range(7):
        unit = [0] * k + [1]
        expected = T.chebval((middle - z.numpy()) / half, unit) / T.chebval(middle / half, unit)
        np.testing.assert_allclose(p[:, k].numpy(), expected, rtol=0, atol=1e-9 * np.abs(expected).max())
        # Least t with |1 + sum_j c_j z^j| <= t, unknown t and c.
        powers = (z.numpy()[:, None] / GREATEST) ** np.arange(1, k + 1)
        ones = -np.ones((400, 1))
        bound = optimize.linprog(
            [1.0] + [0.0] * k,
            np.vstack([np.hstack([ones, powers]), np.hstack([ones, -powers])]),
            np.concatenate([-np.ones(400), np.ones(400)]),
            bounds=[(0, None)] + [(None, None)] * k,
        )
        np.testing.assert_allclose(p[:, k].abs().max().item(), bound.fun, rtol=1e-3)


def test_chebyshevs_steps_are_momentum_with_these_scalars():
    """The eta and beta of each step, in a loop of momentum, give the run; they tend to Polyak's fixed ones."""
    H, b, w_0, _ = problems(4)
    eta, beta = (array.numpy() for array in solvers.chebyshev_scalars(LEAST, GREATEST, 60))
    assert eta.shape == beta.shape == (60,)
    assert beta[0] == 0

    def method(gradient, A, w):
        v = np.zeros_like(w)
        for e, m in zip(eta, beta, strict=True):
            v = m * v - e * gradient(w)
            w = w + v
            yield w

    agrees(solvers.run_solver(solvers.chebyshev(LEAST, GREATEST), H, b, STEPS, w_0), by_hand(method, H, b, w_0))
    np.testing.assert_allclose((eta[-1], beta[-1]), solvers.tuned_momentum(LEAST, GREATEST), rtol=1e-9)


def radius(kind, eta, beta, points=2001):
    """Largest factor by which errors shrink a step, in the long run, over eigenvalues that fill [LEAST, GREATEST]."""
    z = np.linspace(LEAST, GREATEST, points)
    shrink = 1 - eta * z
    both = np.zeros((points, 2, 2))
    both[:, 0, 0] = shrink + beta if kind == "momentum" else (1 + beta) * shrink
    both[:, 0, 1] = -beta if kind == "momentum" else -beta * shrink
    both[:, 1, 0] = 1
    return np.abs(np.linalg.eigvals(both)).max()


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("kind", ["momentum", "nesterov"])
def test_tuned_settings_are_the_best(kind):
    """They have the rate that is claimed of them; all settings 1 % off, and a search over all, do no better.

    The rate is of a double eigenvalue, which numpy finds to the root of rounding: tolerance 1e-6.
    """
    eta, beta = getattr(solvers, f"tuned_{kind}")(LEAST, GREATEST)
    rate = radius(kind, eta, beta)
    c = (3 * GREATEST / LEAST + 1) ** 0.5
    np.testing.assert_allclose(rate, beta**0.5 if kind == "momentum" else 1 - 2 / c, rtol=1e-6)
    nudged = [radius(kind, eta * e, beta * m) for e in (0.99, 1, 1.01) for m in (0.99, 1, 1.01) if (e, m) != (1, 1)]
    assert min(nudged) > rate + 1e-5
    etas, betas = np.linspace(0, 2 * eta, 41)[1:], np.linspace(0, 1, 41)
    assert min(radius(kind, e, m, 21) for e in etas for m in betas) > rate - 1e-6


def test_tuned_settings_of_several_problems():
    """Tensors of bounds give the numbers of each."""
    low, high = torch.tensor([0.5, 1.0], dtype=torch.float64), torch.tensor([2.0, 1.0], dtype=torch.float64)
    for tuned in (solvers.tuned_momentum, solvers.tuned_nesterov):
        one = [tuned(a, b) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
        np.testing.assert_allclose(np.array(tuned(low, high)).T, one, rtol=1e-14)
        assert one[1] == (1.0, 0.0)


# Properties

#: A dozen laws times seven methods, so a few examples for each pair, of up to a dozen problems at once.
few = settings(max_examples=6)
LOW, HIGH = 0.2, 4.0
METHODS = {
    "gradient descent": lambda M: solvers.gradient_descent(2 / (LOW + HIGH)),
    "momentum": lambda M: solvers.momentum(*solvers.tuned_momentum(LOW, HIGH)),
    "heavy ball, all kept": lambda M: solvers.momentum(0.1, 1.0),
    "Nesterov": lambda M: solvers.nesterov(*solvers.tuned_nesterov(LOW, HIGH)),
    "Chebyshev": lambda M: solvers.chebyshev(LOW, HIGH),
    "conjugate gradients": lambda M: solvers.conjugate_gradients(),
    "preconditioned": solvers.conjugate_gradients,
}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
CONVERGENT = {name: method for name, method in METHODS.items() if name != "heavy ball, all kept"}


def orthogonal(shape, g):
    return torch.linalg.qr(torch.randn(shape, generator=g, dtype=torch.float64))[0]


@st.composite
def quadratics(draw, least=1):
    """(H, b, w_0, w*, M, a generator) of awkward sizes; H's eigenvalues lie in [LOW, HIGH], those of M in [1/2, 2]."""
    d, batch = draw(st.integers(least, 6)), draw(st.integers(1, 12))
    g = make_generator("solver laws", seed=draw(st.integers(0, 2**20)))
    values = torch.rand(batch, 2, 1, d, generator=g, dtype=torch.float64)
    Q = orthogonal((batch, 2, d, d), g)
    H = (Q[:, 0] * (LOW + (HIGH - LOW) * values[:, 0])) @ Q[:, 0].mT
    M = (Q[:, 1] * (0.5 + 1.5 * values[:, 1])) @ Q[:, 1].mT
    w_star, w_0 = torch.randn(2, batch, d, generator=g, dtype=torch.float64)
    return (H + H.mT) / 2, times(H, w_star), w_0, w_star, (M + M.mT) / 2, g


def times(H, w):
    return torch.einsum("bij,b...j->b...i", H, w)


def gap(H, w, w_star):
    """The norm of w - w* in H, of every iterate."""
    e = w - w_star[:, None]
    return (e * times(H, e)).sum(-1).clamp(min=0).sqrt()


def close(one, other, rtol=1e-9):
    """Arrays equal to `rtol` of the largest entry of either."""
    assert one.shape == other.shape
    assert ((one - other).abs() <= rtol * torch.maximum(one.abs().max(), other.abs().max())).all()


@pytest.mark.usefixtures("as_installed")
@every_method
@few
@given(quadratics())
def test_turned_problems_have_turned_iterates(method, problem):
    """In other orthonormal coordinates, an own choice for every problem, the iterates are the same points."""
    H, b, w_0, _, M, g = problem
    steps = H.shape[-1]
    U = orthogonal(H.shape, g)
    turned = solvers.run_solver(method(U @ M @ U.mT), U @ H @ U.mT, times(U, b), steps, times(U, w_0))
    close(turned, times(U, solvers.run_solver(method(M), H, b, steps, w_0)))


@pytest.mark.usefixtures("as_installed")
@every_method
@few
@given(quadratics(), st.floats(-3, 3), st.floats(0.1, 10))
def test_iterates_are_affine_in_the_problem(method, problem, shift, scale):
    """Moving solution and start moves all iterates alike, and scaling both scales them."""
    H, b, w_0, _, M, g = problem
    steps = H.shape[-1]
    w = solvers.run_solver(method(M), H, b, steps, w_0)
    t = shift * torch.randn(b.shape, generator=g, dtype=torch.float64)
    close(solvers.run_solver(method(M), H, b + times(H, t), steps, w_0 + t), w + t[:, None])
    close(solvers.run_solver(method(M), H, -scale * b, steps, -scale * w_0), -scale * w)


@few
@given(quadratics())
def test_a_preconditioner_is_a_stretch(problem):
    """Conjugate gradients with M are those without, on the problem stretched by any S with S S' = M."""
    H, b, w_0, _, M, g = problem
    S = torch.linalg.cholesky(M) @ orthogonal(M.shape, g)
    steps = H.shape[-1]
    stretched = solvers.run_solver(
        solvers.conjugate_gradients(), S.mT @ H @ S, times(S.mT, b), steps, torch.linalg.solve(S, w_0)
    )
    close(solvers.run_solver(solvers.conjugate_gradients(M), H, b, steps, w_0), times(S, stretched))


@pytest.mark.usefixtures("as_installed")
@every_method
@few
@given(quadratics(), st.integers(0, 3))
def test_problems_do_not_see_one_another(method, problem, seed):
    """Changing one problem of a batch changes no bit of the others' iterates."""
    H, b, w_0, _, M, _ = problem
    changed = seed % len(H)
    rest = [k for k in range(len(H)) if k != changed]
    before = solvers.run_solver(method(M), H, b, 12, w_0)
    H, b, w_0 = (array.index_fill(0, torch.tensor(changed), 0.0) for array in (H, b, w_0))
    after = solvers.run_solver(method(M), H, b, 12, w_0)
    assert torch.equal(before[rest], after[rest])
    assert not after[changed].any()


PER_PROBLEM = {
    "gradient descent": (solvers.gradient_descent, ["eta"]),
    "momentum": (solvers.momentum, ["eta", "beta"]),
    "Nesterov": (solvers.nesterov, ["eta", "beta"]),
    "Chebyshev": (solvers.chebyshev, ["low", "high"]),
}


@pytest.mark.parametrize(("make", "names"), PER_PROBLEM.values(), ids=PER_PROBLEM)
@few
@given(quadratics())
def test_settings_of_each_problem(make, names, problem):
    """A tensor of settings does to each problem what its number would; one may be for all and the other not."""
    H, b, w_0, _, _, g = problem
    drawn = torch.rand(2, len(H), generator=g, dtype=torch.float64)
    values = {"eta": 0.1 + 0.3 * drawn[0], "beta": drawn[1], "low": 0.1 + 0.1 * drawn[0], "high": 4 + drawn[1]}
    given = {name: values[name] for name in names}
    mixed = given | {names[0]: given[names[0]][0].item()}
    for arguments in (given, mixed):
        w = solvers.run_solver(make(**arguments), H, b, 6, w_0)
        for k in range(len(H)):
            one = {n: v if isinstance(v, float) else v[k].item() for n, v in arguments.items()}
            close(w[k : k + 1], solvers.run_solver(make(**one), H[k : k + 1], b[k : k + 1], 6, w_0[k]), rtol=1e-12)


@pytest.mark.usefixtures("as_installed")
@few
@given(quadratics(), st.floats(0.01, 0.5))
def test_without_memory_all_are_gradient_descent(problem, eta):
    """Momentum and Nesterov's method with beta = 0, and Chebyshev on an interval of one point, are gradient descent."""
    H, b, w_0, _, _, _ = problem
    expected = solvers.run_solver(solvers.gradient_descent(eta), H, b, 8, w_0)
    for solver in (solvers.momentum(eta, 0.0), solvers.nesterov(eta, 0.0), solvers.chebyshev(1 / eta, 1 / eta)):
        close(solvers.run_solver(solver, H, b, 8, w_0), expected, rtol=1e-12)


@given(quadratics(), st.booleans())
def test_conjugate_gradients_end_in_d_steps(problem, preconditioned):
    """After d steps nothing is left but rounding, 1e-9 of what there was in the norm of H; and they never step back."""
    H, b, w_0, w_star, M, _ = problem
    solver = solvers.conjugate_gradients(M if preconditioned else None)
    left = gap(H, solvers.run_solver(solver, H, b, b.shape[1], w_0), w_star)
    assert (left[:, -1] <= 1e-9 * left[:, 0]).all()
    assert (left.diff() <= 1e-9 * left[:, :1]).all()


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("name", [name for name in METHODS if name != "preconditioned"])
@few
@given(quadratics())
def test_no_method_is_nearer_than_conjugate_gradients(name, problem):
    """At every step, in the norm of H, from the same start: all are in the affine space over which CG minimises."""
    H, b, w_0, w_star, _, _ = problem
    best, other = (
        gap(H, solvers.run_solver(solver, H, b, 9, w_0), w_star)
        for solver in (solvers.conjugate_gradients(), METHODS[name](None))
    )
    assert (best <= other + 1e-9 * best[:, :1]).all()


@every_method
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_kept(method, dtype):
    """Iterates and scalars have the dtype of the problem, the first iterate is the start, and no steps are none."""
    H, b = torch.eye(3, dtype=dtype).repeat(2, 1, 1), torch.ones(2, 3, dtype=dtype)
    w = solvers.run_solver(method(torch.eye(3, dtype=torch.float64)), H, b, 4, torch.arange(3, dtype=dtype))
    assert w.dtype == dtype
    assert w.shape == (2, 5, 3)
    assert (w[:, 0] == torch.arange(3)).all()
    assert torch.equal(solvers.run_solver(method(None), H, b, 0), torch.zeros(2, 1, 3, dtype=dtype))
    assert all(scalar.dtype == dtype for scalar in solvers.conjugate_scalars(H, b, 2))


@pytest.mark.parametrize("name", CONVERGENT)
@few
@given(quadratics())
@pytest.mark.usefixtures("as_installed")
def test_long_runs_arrive_and_stay(name, problem):
    """After 400 steps all iterates are at the solution, and the last 50 no further apart than rounding.

    Gradient descent is the slowest: 1 - 2 / (HIGH / LOW + 1) a step leaves 1e-17 of what there was.
    """
    H, b, w_0, w_star, M, _ = problem
    w = solvers.run_solver(CONVERGENT[name](M), H, b, 400, w_0)[:, -50:]
    close(w[:, -1], w_star, rtol=1e-12)
    close(w, w[:, -1:].expand_as(w), rtol=1e-14 if "co" in name else 1e-13)


SINGULAR = [(1, 1, 0), (5, 20, 0), (5, 5, 0), (6, 1, 0), (20, 7, 0), (20, 7, 2), (40, 12, 3)]


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(("d", "n", "decades"), SINGULAR)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_conjugate_gradients_stay_where_they_arrive(d, n, decades, dtype):
    """Least squares of n examples in d dimensions, singular for n < d and badly conditioned for n = d and with
    `decades` between the inputs' sizes: 8 d steps end in a point that no further step moves, with no scalar that is not
    finite, and it is as good as any before it in the norm of H. On the singular ones it is the solution that is
    nearest to 0, to a thousand roundings times the ratio of the inputs' sizes: they have no drift along what H does not
    see, where they were seen to go up to 0.6 of the solution's size with a slack of a tenth.
    """
    eps = torch.finfo(dtype).eps
    x = torch.randn(200, n, d, generator=make_generator("past the end", seed=d), dtype=torch.float64)
    x = (x * torch.logspace(0, -decades, d, dtype=torch.float64)).to(dtype)
    w_star = torch.randn(200, d, generator=make_generator("past the end, weights", seed=d), dtype=torch.float64)
    w_star = w_star.to(dtype)
    H = x.mT @ x / n
    b = times(H, w_star)
    w = solvers.run_solver(solvers.conjugate_gradients(), H, b, 8 * d)
    moved = (w[:, 1:] != w[:, :-1]).any(-1)
    assert not moved[:, -1].any()
    assert not (moved[:, 1:] & ~moved[:, :-1]).any()
    alpha, gamma = solvers.conjugate_scalars(H, b, 8 * d)
    assert (alpha.isfinite() & (alpha >= 0) & gamma.isfinite() & (gamma >= 0)).all()
    X = x.double()
    # Of X e, not by e'H e: where H does not see e, the root of that is the root of rounding.
    left = times(X, w.double() - w_star.double()[:, None]).norm(dim=-1)
    assert (left[:, -1] <= left.min(-1).values + 100 * d * eps * left[:, 0]).all()
    if n < d:
        nearest = times(torch.linalg.pinv(X), times(X, w_star.double()))
        off = (w[:, -1].double() - nearest).norm(dim=-1) / nearest.norm(dim=-1)
        assert off.max() <= 1000 * d * 10**decades * eps


@pytest.mark.parametrize("M", [None, np.diag([1.0, 2.0, 4.0])], ids=["plain", "preconditioned"])
def test_a_solved_problem_is_not_touched(M):
    """From the solution, from b = 0 = w_0, without curvature (H = 0, b out of its range) and with less of it than
    rounding, no step is taken; problems beside them go on.
    """
    H = torch.diag_embed(torch.tensor([[1, 2, 3], [1, 2, 3], [0, 0, 0], [1, 2, 3]], dtype=torch.float64))
    b = torch.tensor([[1, 2, 3], [0, 0, 0], [1, 0, 0], [1, 1, 1]], dtype=torch.float64)
    w_0 = torch.tensor([[1, 1, 1], [0, 0, 0], [5, 5, 5], [0, 0, 0]], dtype=torch.float64)
    w = solvers.run_solver(solvers.conjugate_gradients(M), H, b, 7, w_0)
    assert torch.equal(w[:3], w_0[:3, None].expand(3, 8, 3))
    close(w[3, -1], 1 / torch.tensor([1, 2, 3], dtype=torch.float64))
    alpha, gamma = solvers.conjugate_scalars(H[1:3], b[1:3], 3, M)
    assert not alpha.any()
    assert not gamma.any()


@few
@given(quadratics())
def test_a_rounded_solution_is_one(problem):
    """From w* in the machine's numbers, whose residual is rounding of b and not 0, no step is taken."""
    H, b, _, w_star, _, _ = problem
    w = solvers.run_solver(solvers.conjugate_gradients(), H, b * (1 + 2**-52), 5, w_star)
    assert torch.equal(w, w_star[:, None].expand_as(w))


def test_what_has_stopped_does_not_start_again():
    """With b out of the range of H the second direction, (0, 2), has no curvature: there it ends, at step 1 for good,
    though r + gamma p formed once more would have some.
    """
    H, b = torch.diag(torch.tensor([2.0, 0.0], dtype=torch.float64))[None], torch.ones(1, 2, dtype=torch.float64)
    w = solvers.run_solver(solvers.conjugate_gradients(), H, b, 6)
    assert torch.equal(w[0, 1:], torch.ones(6, 2, dtype=torch.float64))


@pytest.mark.parametrize("size", [1e-250, 1e250])
def test_units_do_not_matter(size):
    """Problems in units in which squares of their numbers are no numbers of the machine are solved as well as any."""
    H = torch.diag(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))[None]
    b = torch.ones(1, 3, dtype=torch.float64)
    expected = solvers.run_solver(solvers.conjugate_gradients(), H, b, 6)
    close(solvers.run_solver(solvers.conjugate_gradients(), size * H, b, 6) * size, expected, rtol=1e-12)
    close(solvers.run_solver(solvers.conjugate_gradients(), H, size * b, 6) / size, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "solver", [solvers.gradient_descent(1e9), solvers.momentum(1e9, 0.5), solvers.nesterov(1e9, 0.5)]
)
def test_a_run_that_diverges_says_where(solver):
    """Iterates that grow until they are no numbers stop the run, with the first step that had one; before, they may."""
    H, b = torch.eye(2, dtype=torch.float64)[None], torch.ones(1, 2, dtype=torch.float64)
    assert solvers.run_solver(solver, H, b, 10).abs().max() > 1e50
    with pytest.raises(FloatingPointError, match=r"diverged: its iterate after step \d\d is not finite") as refused:
        solvers.run_solver(solver, H, b, 100)
    step = int(str(refused.value).split("step ")[1].split()[0])
    assert solvers.run_solver(solver, H, b, step - 1).isfinite().all()
    with pytest.raises(FloatingPointError):
        solvers.run_solver(solver, H, b, step)


def test_conjugate_scalars_that_overflow_are_refused():
    """An H whose product with a direction is not finite gives no scalars: the error says so, and the run's does."""
    H, b = torch.full((1, 2, 2), 1e308, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64)
    with pytest.raises(FloatingPointError, match="overflowed"):
        solvers.conjugate_scalars(H, b, 2)
    with pytest.raises(FloatingPointError, match="diverged"):
        solvers.run_solver(solvers.conjugate_gradients(), H, b, 2)


@pytest.mark.parametrize("rule", [solvers.momentum, solvers.nesterov])
@pytest.mark.parametrize("name", ["eta", "beta"])
def test_settings_for_other_problems_are_refused(rule, name):
    """A step or a momentum for each of two problems does not fit three, whichever of them it is."""
    H = torch.eye(2, dtype=torch.float64).repeat(3, 1, 1)
    both = {"eta": 0.1, "beta": 0.5} | {name: torch.full((2,), 0.2, dtype=torch.float64)}
    with pytest.raises(ValueError, match=f"{name} must have one number for each of 3 problems, got 2"):
        rule(**both).init(H, torch.ones(3, 2, dtype=torch.float64), torch.zeros(3, 2, dtype=torch.float64))


INDEFINITE = {
    "negative": ([[-1.0, 0], [0, -2]], [1.0, 1]),
    "one of two": ([[1.0, 0], [0, -1]], [2.0, 1]),
    "no curvature but a slope": ([[1.0, 0], [0, -1]], [1.0, 1]),
    "none on its diagonal": ([[0.0, 1], [1, 0]], [1.0, 0]),
}


@pytest.mark.parametrize("M", [None, np.diag([1.0, 3.0])], ids=["plain", "preconditioned"])
@pytest.mark.parametrize(("H", "b"), INDEFINITE.values(), ids=INDEFINITE)
def test_an_indefinite_H_is_refused(H, b, M):
    """f has no minimum, which the method's own directions prove; it answered (0, 0) and (3.33, 1.67). Which of the
    problems it is, is said, by the run and by the scalars.
    """
    H = torch.stack([torch.eye(2, dtype=torch.float64), torch.tensor(H, dtype=torch.float64)])
    b = torch.tensor([[1.0, 2.0], b], dtype=torch.float64)
    for size in (1.0, 1e-200, 1e200):
        with pytest.raises(ValueError, match=r"H must be positive semi-definite, got s'Hs = .* of problem 1, "):
            solvers.run_solver(solvers.conjugate_gradients(M), size * H, b, 4)
    with pytest.raises(ValueError, match=r"H must be positive semi-definite, got s'Hs = .* of problem 1, "):
        solvers.conjugate_scalars(H, b, 4, M)


def test_one_eigenvalue_below_zero_is_found():
    """In each of 200 random problems of six dimensions with an eigenvalue of -1; with its absolute value, in none."""
    g = make_generator("indefinite")
    Q = orthogonal((200, 6, 6), g)
    values = 0.1 + 3 * torch.rand(200, 6, generator=g, dtype=torch.float64)
    b = torch.randn(200, 6, generator=g, dtype=torch.float64)
    values[:, 0] = 1
    H, indefinite = ((Q * signs[:, None]) @ Q.mT for signs in (values, values.index_fill(1, torch.tensor(0), -1)))
    w = solvers.run_solver(solvers.conjugate_gradients(), (H + H.mT) / 2, b, 12)[:, -1]
    assert (times(H, w) - b).abs().max() < 1e-9
    for each, right in zip((indefinite + indefinite.mT) / 2, b, strict=True):
        with pytest.raises(ValueError, match="H must be positive semi-definite"):
            solvers.run_solver(solvers.conjugate_gradients(), each[None], right[None], 12)


def test_hilberts_matrix_is_semi_definite():
    """Its condition is 1e16 in 12 dimensions: solved as far as b tells, and not taken for indefinite."""
    i = torch.arange(1, 13, dtype=torch.float64)
    H = (1 / (i[:, None] + i - 1))[None]
    w = solvers.run_solver(solvers.conjugate_gradients(), H, H.sum(-1), 40)[:, -1]
    assert (times(H, w) - H.sum(-1)).abs().max() < 1e-12


@pytest.mark.parametrize(("low", "high"), [(5e-324, 1.0), (1.0, 1e300), (1e307, 1.5e308), (1e-290, 1e-280), (0.2, 3.0)])
def test_settings_at_the_ends_of_float64(low, high):
    """The formulas in 60 digits, to 1e-14, where squares, sums and ratios of low and high leave float64."""
    with mp.workdps(60):
        least, most = mp.mpf(low), mp.mpf(high)
        root, c = mp.sqrt(most) + mp.sqrt(least), mp.sqrt(3 * most / least + 1)
        heavy = (4 / root**2, ((mp.sqrt(most) - mp.sqrt(least)) / root) ** 2)
        ahead = (4 / (3 * most + least), (c - 2) / (c + 2))
        double, square = least + most, ((most - least) / 2) ** 2
        eta, beta, ratio = [2 / double], [mp.mpf(0)], 2 / double
        for _ in range(4):
            after = 1 / (double - square * ratio)
            eta, beta, ratio = [*eta, 2 * after], [*beta, square * after * ratio], after
    np.testing.assert_allclose(solvers.tuned_momentum(low, high), np.array(heavy, dtype=float), rtol=1e-14)
    np.testing.assert_allclose(solvers.tuned_nesterov(low, high), np.array(ahead, dtype=float), rtol=1e-14)
    found = solvers.chebyshev_scalars(low, high, 5)
    np.testing.assert_allclose(torch.stack(found), np.array([eta, beta], dtype=float), rtol=1e-14)


def test_an_interval_without_steps_is_refused():
    for tuned in (solvers.tuned_momentum, solvers.tuned_nesterov, solvers.chebyshev):
        with pytest.raises(ValueError, match=r"high must be finite and >= 1e-300, got .*1e-310"):
            tuned(1e-320, 1e-310)
