"""Laws that first-order methods keep whatever the problem, its size and the settings."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icl import solvers
from icl.profile import streams

#: A dozen laws times seven methods, so a few examples for each pair.
few = settings(max_examples=15)
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
    d, batch = draw(st.integers(least, 6)), draw(st.integers(1, 4))
    g = streams("solver laws", seed=draw(st.integers(0, 2**20)))
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


@every_method
@few
@given(quadratics(), st.integers(0, 3))
def test_problems_do_not_see_one_another(method, problem, seed):
    """Changing one problem of a batch changes no bit of the others' iterates."""
    H, b, w_0, _, M, _ = problem
    changed = seed % len(H)
    rest = [k for k in range(len(H)) if k != changed]
    other = (array.index_fill(0, torch.tensor(changed), 0.0) for array in (H, b, w_0))
    before = solvers.run_solver(method(M), H, b, 12, w_0)
    after = solvers.run_solver(method(M), *(next(other) for _ in range(2)), 12, next(other))
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
    left = gap(
        H, solvers.run_solver(solvers.conjugate_gradients(M if preconditioned else None), H, b, b.shape[1], w_0), w_star
    )
    assert (left[:, -1] <= 1e-9 * left[:, 0]).all()
    assert (left.diff() <= 1e-9 * left[:, :1]).all()


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
    x = torch.randn(200, n, d, generator=streams("past the end", seed=d), dtype=torch.float64)
    x = (x * torch.logspace(0, -decades, d, dtype=torch.float64)).to(dtype)
    w_star = torch.randn(200, d, generator=streams("past the end, weights", seed=d), dtype=torch.float64).to(dtype)
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
    H = torch.stack(
        [torch.diag(torch.tensor(h, dtype=torch.float64)) for h in ([1, 2, 3], [1, 2, 3], [0] * 3, [1, 2, 3])]
    )
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
