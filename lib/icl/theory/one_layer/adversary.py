"""Worst-case error of one layer of linear attention under adversarial drift (not in the papers).

The layer is y_hat = a sum_i lam^(n+1-i) y_i x_i'x_{n+1}, as (15) with A = a I, on white inputs. The weights are no
longer drawn: a path w_1 .. w_{n+1} is fixed in advance, independently of the inputs, with ||w_i|| <= R and
||w_i - w_{i-1}|| <= delta. With c_i = a lam^(n+1-i) the error at the query is, exactly,

    J(w) = ||sum_i c_i w_i - w_{n+1}||^2 + (d + kurtosis - 2) sum_i c_i^2 ||w_i||^2

Proof: averaging over the query's input leaves ||M - w_{n+1}||^2 with M = sum_i c_i x_i x_i'w_i. Its mean is the first
term's sum. Its summands are independent, and E ||x x'w||^2 = sum_j w_j^2 E[x_j^2 ||x||^2] = (d - 1 + kurtosis) ||w||^2
(the mixed terms vanish by symmetry), less the mean's ||w||^2.

J is the trace of W'G W for the rows W of the path, with G positive semi-definite: a convex function, whose maximum has
to be searched for. But it is linear in the path's inner products, and so the error of all paths has a bound by duality
(:func:`upper_bound`, :func:`sphere_bound`), which tells whether a path that was found is the worst of all. What they
tell (tests/icl/theory/one_layer/test_adversary.py):

- of paths that stay on the sphere, ||w_i|| = R, the great circle at full speed is the worst for the layer that is best
  against it, and that layer is minimax, as long as the n steps turn 2.5 radians at most; close to half a turn the bound
  leaves 1e-4 of the error open, and beyond, stopping near half a turn is worse by a few thousandths at most in what
  was tried, which is as far as the bound allows too;
- of all paths with ||w_i|| <= R a straight line through the origin is worse for that layer than the circle, except for
  steps so long that it is the zero predictor. Where the layer that is best against the line has the line as its worst
  path (d = 10, n = 100, R = 1, delta = 0.1, or large d) it is minimax; elsewhere neither path decides.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le
from jaxtyping import Float
from scipy.optimize import minimize, minimize_scalar, nnls

from icl import _checks
from icl._bounds import Count, NonNegative, Positive, Real, validated


@validated
def _check_limits(R: Annotated[float, Ge(1e-150), Le(1e150)], delta: Annotated[float, Ge(0), Le(1e150)]) -> None:
    """Check that the squares of both, and of paths, are within float64."""


def _path(w: Any, name: str = "w") -> np.ndarray:
    w = np.asarray(_checks.real(name, w, at_least=-1e150, at_most=1e150), dtype=np.float64)
    if w.ndim < 2 or w.shape[-2] < 2 or not w.shape[-1]:
        raise ValueError(f"{name} must have shape (..., n + 1, d) with n, d >= 1, got {w.shape}")
    return w


def _form(n: int, d: int, lam: float, a: float, kurtosis: float) -> np.ndarray:
    """Quadratic form G with J(w) = tr(W'G W), (n + 1, n + 1)."""
    c = a * float(lam) ** np.arange(n, 0, -1)
    v = np.append(c, -1.0)
    return np.outer(v, v) + np.diag(np.append((d + kurtosis - 2) * c**2, 0.0))


@validated
def path_error(
    w: Float[np.ndarray, "*paths time d"], *, lam: NonNegative, a: Real, kurtosis: Annotated[float, Ge(1)] = 3.0
) -> Any:
    """Mean squared error at the query of the layer (lam, A = a I) on weights that follow the path w, for white inputs.

    Args:
        w: path(s), one row a position, the query's last, in units of y/x.
        lam: forgetting factor, dimensionless.
        a: the layer's scale, in 1/x^2.
        kurtosis: of the inputs, :attr:`~icl.tasks.core.InputLaw.kurtosis`; 3 for Gaussian ones.

    Raises:
        ValueError: if w has no two positions, or a number is not finite or out of range.
    """
    w = _path(w)
    c = a * float(lam) ** np.arange(w.shape[-2] - 1, 0, -1)
    apart = np.einsum("i,...id->...d", c, w[..., :-1, :]) - w[..., -1, :]
    crosstalk = (w[..., :-1, :] ** 2).sum(-1) @ c**2
    return (apart**2).sum(-1) + (w.shape[-1] + kurtosis - 2) * crosstalk


@validated
def step_angle(R: Positive, delta: NonNegative) -> float:
    """Angle omega = 2 arcsin(delta / 2 R) that a path on the sphere of radius R turns in a step; pi if delta >= 2 R."""
    _check_limits(R, delta)
    return float(2 * np.arcsin(min(1.0, delta / (2 * R))))


@validated
def great_circle(
    n: Count, d: Annotated[int, Ge(2)], *, R: Positive, delta: NonNegative, turn: float = float("inf")
) -> Float[np.ndarray, "time d"]:
    """Path at full speed on a great circle of radius R, ending at R e_1 after an arc of at most `turn` radians.

    Before that it stands still: with turn = pi it waits opposite its end, and then goes there as fast as it can.

    Args:
        n: number of examples.
        d: dimension.
        R: radius, in units of y/x.
        delta: length of a step, in units of y/x.
        turn: how far it goes in all, >= 0, in radians; default: as far as n steps take it.
    """
    if np.ndim(turn) or turn != np.inf:
        _checks.number("turn", turn, at_least=0)
    angle = np.minimum(step_angle(R, delta) * np.arange(n, -1, -1), turn)
    w = np.zeros((n + 1, d))
    w[:, 0], w[:, 1] = R * np.cos(angle), R * np.sin(angle)
    return w


@validated
def straight_line(n: Count, d: Count, *, R: Positive, delta: NonNegative) -> Float[np.ndarray, "time d"]:
    """Straight path through the origin at full speed, ending at R e_1; it waits at -R e_1 before it starts.

    Args:
        n: number of examples.
        d: dimension.
        R: bound of ||w_i||, in units of y/x.
        delta: length of a step, in units of y/x.
    """
    _check_limits(R, delta)
    w = np.zeros((n + 1, d))
    w[:, 0] = np.maximum(R - delta * np.arange(n, -1, -1), -R)
    return w


def _bound(w: Any, R: float, delta: float, lam: float, a: float, kurtosis: float, *, on_sphere: bool) -> float:
    """Upper bound over the ball or the sphere; there ||w_i|| = R is an equation, whose alpha_i has either sign."""
    _check_limits(R, delta)
    w = _path(w)
    _checks.shape("w", w, (None, None))
    time, d = w.shape
    G, D = _form(time - 1, d, lam, a, kurtosis), np.diff(np.eye(time), axis=0)
    # S W = 0 is linear in the multipliers: alpha_i's column is w_i in row i, beta_i's is D_i' (D_i W).
    radial, along = np.eye(time)[:, :, None] * w[:, None], D[:, :, None] * (D @ w)[:, None]
    touched = ((w**2).sum(1) >= (R * (1 - 1e-6)) ** 2, ((D @ w) ** 2).sum(1) >= (delta * (1 - 1e-6)) ** 2)
    columns = np.concatenate([radial, along, -radial]).reshape(3 * time - 1, -1).T
    use = np.concatenate([*touched, np.full(time, on_sphere)])
    multipliers = np.zeros(3 * time - 1)
    if use.any():  # an interior path touches no limit, and alpha alone has to make S positive semi-definite
        multipliers[use] = nnls(columns[:, use], (G @ w).ravel())[0]
    alpha, beta = multipliers[:time] - multipliers[2 * time - 1 :], multipliers[time : 2 * time - 1]
    lowest = np.linalg.eigvalsh(np.diag(alpha) + (D.T * beta) @ D - G)[0]
    return float(R**2 * (alpha.sum() + time * max(0.0, -lowest)) + delta**2 * beta.sum())


@validated
def upper_bound(
    w: Float[np.ndarray, "time d"],
    *,
    R: Positive,
    delta: NonNegative,
    lam: NonNegative,
    a: Real,
    kurtosis: Annotated[float, Ge(1)] = 3.0,
) -> float:
    """Upper bound on the error of every path, by duality from a candidate w; equal to J(w) if w is provably worst.

    For any alpha, beta >= 0 with S = diag(alpha) + sum_i beta_i (e_i - e_{i-1})(e_i - e_{i-1})' - G positive
    semi-definite, and any path within the limits,

        J = tr(W'G W) = sum_i alpha_i ||w_i||^2 + sum_i beta_i ||w_i - w_{i-1}||^2 - tr(W'S W)
          <= R^2 sum_i alpha_i + delta^2 sum_i beta_i

    For a worst path S W = 0, if only limits that it touches have multipliers. Here alpha and beta are those that come
    nearest to this by least squares, and alpha is then raised until S is positive semi-definite: the bound holds
    whatever w is, to rounding. It does not use that paths have d coordinates, so that where it is attained more of them
    would not help the adversary (d stays in the crosstalk).

    Args:
        w: the candidate.
        R: bound of ||w_i||, in units of y/x.
        delta: bound of ||w_i - w_{i-1}||, in units of y/x.
        lam: forgetting factor.
        a: the layer's scale, in 1/x^2.
        kurtosis: of the inputs.
    """
    return _bound(w, R, delta, lam, a, kurtosis, on_sphere=False)


@validated
def sphere_bound(
    w: Float[np.ndarray, "time d"],
    *,
    R: Positive,
    delta: NonNegative,
    lam: NonNegative,
    a: Real,
    kurtosis: Annotated[float, Ge(1)] = 3.0,
) -> float:
    """:func:`upper_bound` for paths on the sphere, ||w_i|| = R: lower, as alpha may then have either sign."""
    return _bound(w, R, delta, lam, a, kurtosis, on_sphere=True)


def _project_on_ball(z: np.ndarray, radius: float) -> tuple[np.ndarray, float]:
    """Projection of z on the ball, and its scaling factor."""
    length = float(np.sqrt(z @ z))
    shrunk = 1.0 if length <= radius else radius / length
    return z * shrunk, shrunk


def _project_gradient(gradient: np.ndarray, point: np.ndarray, shrunk: float, radius: float) -> np.ndarray:
    """Gradient with respect to z of the projection on the ball that gave `point`."""
    if shrunk == 1.0:
        return gradient
    return shrunk * (gradient - (gradient @ point) / radius**2 * point)


@validated
def worst_path(
    start: Float[np.ndarray, "time d"],
    *,
    R: Positive,
    delta: Positive,
    lam: NonNegative,
    a: Real,
    kurtosis: Annotated[float, Ge(1)] = 3.0,
    steps: Count = 500,
) -> Float[np.ndarray, "time d"]:
    """Search for a path of larger error within the limits from a given one, by L-BFGS ascent.

    Every path within the limits, and no other, is w_{n+1} = B_R(u_{n+1}), w_i = B_R(w_{i+1} + B_delta(u_i)) for some u,
    with B_r the nearest point of the ball of radius r: a point that the large ball pulls back is not taken farther from
    w_{i+1} by that. So the search is free. It ends in a local maximum: take many starts, and :func:`upper_bound` of the
    end.

    Args:
        start: a path, projected on the limits first.
        R: bound of ||w_i||, in units of y/x.
        delta: bound of ||w_i - w_{i-1}||, in units of y/x.
        lam: forgetting factor.
        a: the layer's scale, in 1/x^2.
        kurtosis: of the inputs.
        steps: most iterations.

    Returns: a path whose error is at least that of the projected `start`.
    """
    _check_limits(R, delta)
    start = _path(start, "start")
    time, d = start.shape
    G = _form(time - 1, d, lam, a, kurtosis)

    def walk(u: np.ndarray) -> tuple[np.ndarray, list[tuple[np.ndarray, float, float]]]:
        w, trace = np.empty((time, d)), []
        w[-1], shrunk = _project_on_ball(u[-1] * R, R)
        for i in range(time - 2, -1, -1):
            step, cut = _project_on_ball(u[i] * delta, delta)
            w[i], pulled = _project_on_ball(w[i + 1] + step, R)
            trace.append((step, cut, pulled))
        return w, [(w[-1], shrunk, 1.0), *trace]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        w, trace = walk(flat.reshape(time, d))
        pull = G @ w
        value, slope, carried = float((w * pull).sum()), np.empty((time, d)), np.zeros(d)
        for i, (step, cut, pulled) in zip(range(time - 1), reversed(trace), strict=False):
            carried = _project_gradient(2 * pull[i] + carried, w[i], pulled, R)
            slope[i] = delta * _project_gradient(carried, step, cut, delta)
        slope[-1] = R * _project_gradient(2 * pull[-1] + carried, w[-1], trace[0][1], R)
        return -value / R**2, -slope.ravel() / R**2

    u = np.append(np.diff(start[::-1], axis=0)[::-1] / delta, start[-1:] / R, axis=0)
    begun = walk(u)[0]
    ended = walk(minimize(loss, u.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": steps}).x.reshape(time, d))[
        0
    ]
    return ended if (ended * (G @ ended)).sum() >= (begun * (G @ begun)).sum() else begun


@dataclass(frozen=True)
class Layer:
    """Optimal layer for one path.

    Attributes:
        lam: its forgetting factor.
        a: its scale, in 1/x^2.
        value: its error on the path, in units of y^2.
    """

    lam: float
    a: float
    value: float


@validated
def best_layer(w: Float[np.ndarray, "time d"], *, kurtosis: Annotated[float, Ge(1)] = 3.0) -> Layer:
    """Forgetting factor in [1/400, 1] and scale a >= 0 of least error on the path w.

    With c_i = a lam^(n+1-i) the error is a^2 p - 2 a q + ||w_{n+1}||^2, least at a = q / p; a grid finds lam's valley,
    a bounded search its floor. On :func:`great_circle` it is the optimum of one layer for
    :func:`~icl.tasks.drifts.sinusoids` with variance R^2 / d, whose kernel is the circle's. Where lam comes out as
    1/400 only the last example is of use.
    """
    w = _path(w)
    square = float(w[-1] @ w[-1])

    def best(lam: float) -> tuple[float, float]:
        p = path_error(np.append(w[:-1], 0 * w[-1:], axis=0), lam=lam, a=1.0, kurtosis=kurtosis)
        q = lam ** np.arange(len(w) - 1, 0, -1) @ (w[:-1] @ w[-1])
        a = max(0.0, float(q / p)) if p > 0 else 0.0
        return a, float(a**2 * p - 2 * a * q + square)

    grid = np.linspace(0, 1, 401)[1:]
    at = int(np.argmin([best(lam)[1] for lam in grid]))
    low, high = grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)]
    optimum = minimize_scalar(lambda lam: best(lam)[1], bounds=(low, high), method="bounded", options={"xatol": 1e-10})
    lam = float(grid[at] if best(grid[at])[1] <= optimum.fun * (1 + 1e-13) else optimum.x)
    return Layer(lam, *best(lam))


@validated
def minimax_on_sphere(
    n: Count, d: Annotated[int, Ge(2)], *, R: Positive, delta: NonNegative, kurtosis: Annotated[float, Ge(1)] = 3.0
) -> tuple[Layer, float]:
    """Optimal layer on `great_circle`, and `sphere_bound` for it: a bound on its error on the sphere's paths.

    No layer of this form has a worst error below the first's `value`, as each meets the circle. Where the two agree
    the circle is the worst path on the sphere, the layer is minimax there and `value` the minimax error, proven. They
    agree as long as n steps turn 2.5 radians at most, n :func:`step_angle` <= 2.5; beyond, compare them.

    Args:
        n: number of examples.
        d: dimension.
        R: ||w_i||, in units of y/x.
        delta: bound of ||w_i - w_{i-1}||, in units of y/x.
        kurtosis: of the inputs.
    """
    w = great_circle(n, d, R=R, delta=delta)
    layer = best_layer(w, kurtosis=kurtosis)
    return layer, sphere_bound(w, R=R, delta=delta, lam=layer.lam, a=layer.a, kurtosis=kurtosis)


@validated
def minimax_in_ball(
    n: Count, d: Count, *, R: Positive, delta: NonNegative, kurtosis: Annotated[float, Ge(1)] = 3.0
) -> tuple[Layer, float]:
    """Optimal layer on `straight_line`, and `upper_bound` for it: as on the sphere, for paths in the ball.

    The two agree less often. A layer that bets on the line remembers what a path that stands still, say, makes it pay
    for, and where it does the bound is far above the value: then no single path decides.

    Args:
        n: number of examples.
        d: dimension.
        R: bound of ||w_i||, in units of y/x.
        delta: bound of ||w_i - w_{i-1}||, in units of y/x.
        kurtosis: of the inputs.
    """
    w = straight_line(n, d, R=R, delta=delta)
    layer = best_layer(w, kurtosis=kurtosis)
    return layer, upper_bound(w, R=R, delta=delta, lam=layer.lam, a=layer.a, kurtosis=kurtosis)
