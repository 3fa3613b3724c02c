"""First-order methods against other ways to the same iterates: scipy, loops by hand, least squares in Krylov spaces."""

import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev as T
from scipy import optimize, sparse

from icl import solvers
from icl.profile import streams

D, BATCH, STEPS, LOW, HIGH = 6, 4, 5, 0.3, 5.0
ETA, BETA = 0.11, 0.7


def problems(seed=0, dtype=torch.float64):
    """H with eigenvalues in [LOW, HIGH], both ends taken, b = H w* and w_0 that are not special, and an M."""
    g = streams("solver oracles", seed=seed)
    Q = torch.linalg.qr(torch.randn(BATCH, D, D, generator=g, dtype=torch.float64))[0]
    values = LOW + (HIGH - LOW) * torch.rand(BATCH, D, generator=g, dtype=torch.float64)
    values[:, 0], values[:, 1] = LOW, HIGH
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
    middle, half = (HIGH + LOW) / 2, (HIGH - LOW) / 2
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
    "Chebyshev": (solvers.chebyshev(LOW, HIGH), semi_iteration),
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
        sparse.linalg.cg(
            H[k].numpy(),
            b[k].numpy(),
            path[0],
            rtol=0,
            maxiter=STEPS,
            M=one,
            callback=lambda w, path=path: path.append(w.copy()),
        )
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

    The tolerance of the latter, 1e-3, is that of the grid: its points are (HIGH - LOW) / 400 apart.
    """
    z = torch.linspace(LOW, HIGH, 400, dtype=torch.float64)
    H, w_star = z[:, None, None], torch.ones(400, 1, dtype=torch.float64)
    p = 1 - solvers.run_solver(solvers.chebyshev(LOW, HIGH), H, H[..., 0] * w_star, 6)[..., 0]
    middle, half = (HIGH + LOW) / 2, (HIGH - LOW) / 2
    for k in range(7):
        unit = [0] * k + [1]
        expected = T.chebval((middle - z.numpy()) / half, unit) / T.chebval(middle / half, unit)
        np.testing.assert_allclose(p[:, k].numpy(), expected, rtol=0, atol=1e-9 * np.abs(expected).max())
        # Least t with |1 + sum_j c_j z^j| <= t, unknown t and c.
        powers = (z.numpy()[:, None] / HIGH) ** np.arange(1, k + 1)
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
    eta, beta = (array.numpy() for array in solvers.chebyshev_scalars(LOW, HIGH, 60))
    assert eta.shape == beta.shape == (60,)
    assert beta[0] == 0

    def method(gradient, A, w):
        v = np.zeros_like(w)
        for e, m in zip(eta, beta, strict=True):
            v = m * v - e * gradient(w)
            w = w + v
            yield w

    agrees(solvers.run_solver(solvers.chebyshev(LOW, HIGH), H, b, STEPS, w_0), by_hand(method, H, b, w_0))
    np.testing.assert_allclose((eta[-1], beta[-1]), solvers.tuned_momentum(LOW, HIGH), rtol=1e-9)


def radius(kind, eta, beta, points=2001):
    """Largest factor by which errors shrink a step, in the long run, over eigenvalues that fill [LOW, HIGH]."""
    z = np.linspace(LOW, HIGH, points)
    shrink = 1 - eta * z
    both = np.zeros((points, 2, 2))
    both[:, 0, 0] = shrink + beta if kind == "momentum" else (1 + beta) * shrink
    both[:, 0, 1] = -beta if kind == "momentum" else -beta * shrink
    both[:, 1, 0] = 1
    return np.abs(np.linalg.eigvals(both)).max()


@pytest.mark.parametrize("kind", ["momentum", "nesterov"])
def test_tuned_settings_are_the_best(kind):
    """They have the rate that is claimed of them; all settings 1 % off, and a search over all, do no better.

    The rate is of a double eigenvalue, which numpy finds to the root of rounding: tolerance 1e-6.
    """
    eta, beta = getattr(solvers, f"tuned_{kind}")(LOW, HIGH)
    rate = radius(kind, eta, beta)
    c = (3 * HIGH / LOW + 1) ** 0.5
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
