"""One layer with separate key and query matrices and a learned gate: plateaus of its gradient flow, escape rates.

:mod:`icl.theory.one_layer.population` has the loss over the merged matrix W_KQ = W_K' W_Q, at a given gate. Here W_K,
(r, d+1), and the first d columns of W_Q, (r, d), are weights of their own (r is the width of the head), and so is lam.
With W_K = (K, k),

    U = K' Q,    q = Q' k,    A = v U + p q' = (v K + k p')' Q,    of rank r at most.

Two families of stationary points, with their curvatures in closed form: :func:`plateau` (p = k = 0) and
:func:`separate_trap` (v = 0, K = 0). That layers with separate matrices and no gate wait at points of every rank is in
Zhang, Singh, Latham and Saxe (2025); saddles whose Hessian has no negative eigenvalue are known of deep linear networks
(Kawaguchi 2016; Achour, Malgouyres and Gerchinovitz 2024). The gate and the second family are our own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.integrate import solve_ivp
from scipy.optimize import minimize_scalar

from icl import _checks
from icl._bounds import Count, NonNegative, Positive, Reals, validated
from icl.tasks import Task
from icl.theory import moments
from icl.theory.one_layer import closed_forms
from icl.theory.one_layer._canonical import canonical_eigenvectors
from icl.theory.one_layer.population import PopulationLoss, layer_loss, rank_one_trap

# Step of differences that are exact but for rounding: of medium size, against cancellation and overflow.
_STEP = 0.01


@dataclass(frozen=True)
class SeparateLoss:
    """Population loss L(z) = E (y_hat - y)^2 / 2 over weights and gate, from :func:`separate_loss`. Values in y^2.

    A vector z holds the row (p, v), then W_K row after row, then W_Q row after row, then lam.

    Attributes:
        merged: the loss over merged weights at some gate, whose moments each z replaces.
        kernel: covariances of a weight's coordinate over time, (n+1, n+1).
        width: rows of W_K and of W_Q.
    """

    merged: PopulationLoss
    kernel: Float[np.ndarray, "time time"]
    width: int

    @property
    def d(self) -> int:
        """Dimension of the inputs."""
        return self.merged.d

    @property
    def size(self) -> int:
        """Number of weights, the gate included."""
        return self.d + 2 + self.width * (2 * self.d + 1)

    @validated
    def join(self, row: Reals, keys: Reals, queries: Reals, *, lam: Positive) -> Float[np.ndarray, " weights"]:
        """Return z of the row (p, v), (d+1,), the keys W_K, (width, d+1), the queries W_Q, (width, d), and the gate."""
        shapes = {"row": (self.d + 1,), "keys": (self.width, self.d + 1), "queries": (self.width, self.d)}
        flat = []
        for (name, shape), value in zip(shapes.items(), (row, keys, queries), strict=True):
            value = np.asarray(_checks.real(name, value), dtype=np.float64)
            _checks.shape(name, value, shape)
            flat.append(value.ravel())
        return np.concatenate([*flat, [float(lam)]])

    @validated
    def split(self, z: Float[np.ndarray, " weights"]) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """Split z into copies of the row (p, v), the keys, the queries and the gate."""
        z = np.array(_checks.real("z", z), dtype=np.float64)
        _checks.shape("z", z, (self.size,))
        d, r = self.d, self.width
        row, keys, queries, lam = np.split(z, np.cumsum([d + 1, r * (d + 1), r * d]))
        return row, keys.reshape(r, d + 1), queries.reshape(r, d), float(lam[0])

    @validated
    def theta(self, z: Float[np.ndarray, " weights"]) -> Float[np.ndarray, "tokens tokens"]:
        """Merged weights of z, as in :mod:`icl.theory.one_layer.population`."""
        row, keys, queries, _ = self.split(z)
        return np.concatenate([keys.T @ queries, row[:, None]], axis=1)

    @validated
    def value(self, z: Float[np.ndarray, " weights"]) -> float:
        """Loss L(z)."""
        return float(self._loss(self._at(self.split(z)[-1])[0]).value(self.theta(z)))

    @validated
    def gradient(self, z: Float[np.ndarray, " weights"]) -> Float[np.ndarray, " weights"]:
        """Gradient of L, the gate's entry last."""
        _, keys, queries, lam = self.split(z)
        theta, (now, change, _) = self.theta(z), self._at(lam)
        slope, gate = self._loss(now).gradient(theta), self._along(now, change, lambda loss: loss.value(theta))
        merged = slope[:, :-1]
        return np.concatenate([slope[:, -1], (queries @ merged.T).ravel(), (keys @ merged).ravel(), [gate]])

    @validated
    def hessian(self, z: Float[np.ndarray, " weights"]) -> Float[np.ndarray, "weights weights"]:
        """Hessian of L: the merged one by the product rule, the gate's rows by differentiating the moments."""
        _, keys, queries, lam = self.split(z)
        theta, d, r, tokens = self.theta(z), self.d, self.width, self.d + 1
        now, change, second = self._at(lam)
        loss = self._loss(now)
        merged = loss.gradient(theta)[:, :-1]
        jacobian = np.zeros((tokens, tokens, self.size - 1))
        H = np.zeros((self.size, self.size))
        jacobian[:, -1, :tokens] = np.eye(tokens)
        for f in range(r):
            ours = tokens + f * tokens + np.arange(tokens)
            theirs = tokens + r * tokens + f * d + np.arange(d)
            for i in range(tokens):
                jacobian[i, :-1, ours[i]] = queries[f]
                jacobian[i, np.arange(d), theirs] = keys[f, i]
            # W_K' W_Q bends: the slope of the merged loss times its second derivative.
            H[np.ix_(ours, theirs)] = merged
            H[np.ix_(theirs, ours)] = merged.T
        chain = jacobian.reshape(tokens * tokens, -1)
        H[:-1, :-1] += chain.T @ loss.hessian(theta) @ chain
        cross = self._along(now, change, lambda loss: loss.gradient(theta)).ravel() @ chain
        H[-1, :-1] = H[:-1, -1] = cross
        ends = sum(self._loss(now + h * change).value(theta) for h in (-_STEP, _STEP))
        bend = (ends - 2 * loss.value(theta)) / _STEP**2
        H[-1, -1] = bend + self._along(now, second, lambda loss: loss.value(theta))
        return (H + H.T) / 2

    def _at(self, lam: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Eight moments in the loss, and their first two derivatives in lam."""
        kernel, R = self.kernel, self.merged.R
        past, k, query = kernel[:-1, :-1], kernel.diagonal()[:-1], kernel[:-1, -1]
        trace, square = np.trace(R @ R), ((R @ R) ** 2).sum()
        age = np.arange(len(k), 0, -1.0)
        a = lam**age
        a1 = age * a / lam
        a2 = (age - 1) * a1 / lam

        def single(a: np.ndarray) -> np.ndarray:
            return np.array([a @ query, 0, 0, 0, a.sum(), 0, a @ k, 0])

        def pairs(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            D2, total = (a * b) @ k, (past @ a) @ b
            apart = (a @ k) * (b @ k) * trace**2 + 2 * ((past**2 @ a) @ b) * square
            same = 2 * (a * b) @ k**2 * (trace**2 + 2 * square)
            return np.array([0, D2, total - D2, 0, 0, a @ b, 0, apart + same])

        now = single(a) + pairs(a, a)
        now[3] = kernel[-1, -1]
        return now, single(a1) + 2 * pairs(a, a1), single(a2) + 2 * pairs(a1, a1) + 2 * pairs(a, a2)

    def _loss(self, values: np.ndarray) -> PopulationLoss:
        """Loss with these moments."""
        # Of the loss, which the residual does not enter.
        D = moments.Moments(*(np.asarray(value) for value in (*values[:4], np.nan)))
        Lambda = self.merged.R @ self.merged.R
        tilde = D.D2 * (2 * Lambda + np.trace(Lambda) * np.eye(self.d)) + D.D3 * Lambda
        S1, S2, E1, E2 = (float(value) for value in values[4:])
        return PopulationLoss(D, self.merged.R, tilde, S1, S2, E1, E2)

    def _along(self, now: np.ndarray, change: np.ndarray, of: Callable[[PopulationLoss], Any]) -> Any:
        """Directional derivative in the moments, by exact differences as the function is quadratic in them."""
        return (of(self._loss(now + _STEP * change)) - of(self._loss(now - _STEP * change))) / (2 * _STEP)


@validated
def separate_loss(task: Task, *, width: Count) -> SeparateLoss:
    """Return the population loss with separate keys and queries of that width, and the gate as a parameter.

    Raises:
        ValueError: if the inputs are not Gaussian, or width is no positive integer.
    """
    return SeparateLoss(layer_loss(task, lam=0.5), np.asarray(task.weight_kernel()), width)


@dataclass(frozen=True)
class SeparateFlow:
    """Trajectory of gradient flow over separate weights.

    Attributes:
        time: (steps,), in units of 1/y^2.
        z: (steps, weights).
        loss: L along the path, (steps,).
        settled: whether it stopped because the gradient's norm fell below the tolerance, not by loss or time.
    """

    time: Float[np.ndarray, " steps"]
    z: Float[np.ndarray, "steps weights"]
    loss: Float[np.ndarray, " steps"]
    settled: bool


@validated
def separate_flow(
    loss: SeparateLoss,
    start: Float[np.ndarray, " weights"],
    *,
    learn_gate: bool = True,
    until: Positive = 1e6,
    slope: Positive = 1e-7,
    rtol: Positive = 1e-6,
    below: NonNegative = 0.0,
) -> SeparateFlow:
    """Integrate dz / dt = -grad L from `start`, with a trainable or a fixed gate.

    Args:
        loss: from :func:`separate_loss`.
        start: initial z.
        learn_gate: whether lam moves.
        until: time at which to stop.
        slope: norm of the gradient below which a point counts as stationary; the path ends there.
        rtol: error of the solver in each step, relative to z.
        below: loss at which to stop, once it has fallen so far; 0 for never.

    Raises:
        ValueError: for a start of another shape or not finite.
        RuntimeError: if the solver fails.
    """
    _checks.shape("start", _checks.real("start", start), (loss.size,))
    moves = np.append(np.ones(loss.size - 1), float(_checks.flag("learn_gate", learn_gate)))

    def downhill(_: float, z: np.ndarray) -> np.ndarray:
        return -moves * loss.gradient(z)

    def curvature(_: float, z: np.ndarray) -> np.ndarray:
        return -moves[:, None] * loss.hessian(z)

    def still_moving(_: float, z: np.ndarray) -> float:
        return float(np.linalg.norm(downhill(0.0, z))) - slope

    def above(_: float, z: np.ndarray) -> float:
        return loss.value(z) - below

    still_moving.terminal = above.terminal = True  # type: ignore[attr-defined]
    z = np.asarray(start, dtype=np.float64)
    if still_moving(0.0, z) <= 0:
        return SeparateFlow(np.zeros(1), z[None], np.array([loss.value(z)]), True)
    path = solve_ivp(
        downhill,
        (0.0, until),
        z,
        method="BDF",
        jac=curvature,
        events=[still_moving, above],
        rtol=rtol,
        atol=rtol / 1e3,
    )
    if path.status < 0:
        raise RuntimeError(f"gradient flow stopped at time {path.t[-1]:g}: {path.message}")
    return SeparateFlow(
        path.t,
        path.y.T,
        np.array([loss.value(z) for z in path.y.T]),
        path.t_events is not None and len(path.t_events[0]) > 0,
    )


def _directions(task: Task, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues of Lambda, descending, and their eigenvectors."""
    if _checks.integer("rank", rank, at_least=0) > task.d:
        raise ValueError(f"rank must be at most d = {task.d}, got {rank}")
    s, vectors = canonical_eigenvectors(task.Lambda)
    return s[::-1], vectors[:, ::-1]


@validated
def gate_at_rank(task: Task, *, rank: Count) -> float:
    """Optimal gate while only the first `rank` eigendirections of Lambda are learned, the largest first.

    Least D4 tr(Lambda) - sum over these directions of D1^2 s_j^2 / s~_j. For Lambda = I it is the same at every rank,
    :func:`~icl.theory.one_layer.closed_forms.optimal_forgetting`; at rank d always.

    Raises:
        ValueError: if rank is not in 1 .. d.
    """
    _directions(task, rank)

    def error(lam: Any) -> Any:
        # Eigenvalues ascend there: the last ones are learned.
        return closed_forms.error_by_direction(task, lam=lam)[..., task.d - rank :].sum(-1)

    grid = np.linspace(0, 1, 401)[1:]
    near = int(error(grid).argmin())
    bounds = (grid[max(near - 1, 0)] / 2, grid[min(near + 1, len(grid) - 1)])
    optimum = minimize_scalar(lambda lam: float(error(lam)), bounds=bounds, method="bounded", options={"xatol": 1e-11})
    return float(1.0 if error(1.0) <= optimum.fun else optimum.x)


def _plateau_values(task: Task, rank: int, lam: float) -> tuple[np.ndarray, np.ndarray, float]:
    """s_j and A_j = D1 / s~_j, largest s_j first, and the balanced v, the cube root of the sum of the learned A_j."""
    s, vectors = _directions(task, rank)
    A = np.einsum("ij,ik,kj->j", vectors, closed_forms.optimum(task, lam=lam).A, vectors)
    return s, A, float(np.cbrt(A[:rank].sum()))


@validated
def plateau(task: Task, *, rank: Count, width: Count, lam: Positive) -> Float[np.ndarray, " weights"]:
    """Stationary point with p = k = 0 and the first `rank` eigendirections learned, one a row of the head.

    A_jj = D1 / s~_j in these and 0 in the others; balanced, as a small start leaves it: in each row keys and queries
    are of one length, and v^2 is the sum of their squares. In lam it is stationary at :func:`gate_at_rank`.

    Raises:
        ValueError: if rank is not in 1 .. d or larger than width, or Lambda~ is singular.
    """
    loss = separate_loss(task, width=width)
    _, vectors = _directions(task, rank)
    if rank > width:
        raise ValueError(f"rank must be at most the width, {width}, got {rank}")
    _, A, v = _plateau_values(task, rank, lam)
    row, keys, queries = np.zeros(task.d + 1), np.zeros((width, task.d + 1)), np.zeros((width, task.d))
    row[-1] = v
    queries[:rank] = np.sqrt(A[:rank] / v)[:, None] * vectors[:, :rank].T
    keys[:, :-1] = queries
    return loss.join(row, keys, queries, lam=lam)


@validated
def escape_rates(task: Task, *, rank: Count, lam: Positive) -> Float[np.ndarray, " left"]:
    """Escape rates from a balanced plateau of that rank, by unlearned eigendirection, the fastest first.

    Minus the Hessian's negative eigenvalues while a row of the head is free: v D1 s_j^2, v the cube root of the sum of
    the learned D1 / s~_i. No gate removes this escape direction as long as D1 > 0, which positive kernels have.

    Raises:
        ValueError: if rank is not in 1 .. d, or Lambda~ is singular.
    """
    s, _, v = _plateau_values(task, rank, lam)
    return v * float(moments.task_moments(task, lam).D1) * s[rank:] ** 2


@validated
def separate_trap(task: Task, *, width: Count, lam: Positive) -> Float[np.ndarray, " weights"]:
    """Spurious stationary point (`population.rank_one_trap`) with separate matrices: q in one row, K = 0, v = 0.

    In lam it is stationary at :func:`gate_at_rank` of rank 1.
    """
    loss, theta = separate_loss(task, width=width), rank_one_trap(task, lam=lam)
    q = theta[-1, :-1]
    keys, queries = np.zeros((width, task.d + 1)), np.zeros((width, task.d))
    keys[0, -1] = np.sqrt(np.linalg.norm(q))
    queries[0] = q / keys[0, -1]
    return loss.join(np.append(theta[:-1, -1], 0.0), keys, queries, lam=lam)


@validated
def trap_form(task: Task, *, lam: Positive) -> Float[np.ndarray, "numbers numbers"]:
    """Quadratic form of 2 L that decides at the spurious stationary point, for any Lambda, (d+1, d+1).

    Over v and the diagonal of U in the eigendirections of Lambda, that of p and q first, then the others, the largest
    s_j first. To v nothing else of U couples, and there the curvature is never negative. With a = p'p = q'q:

        v, v          a s_1 E s^2
        v, U_11       a s_1^2 (E s S1 + 2 D2 s_1 + 3 E s)
        v, U_jj       a s_1 s_j E s - D1 s_j^2
        U_ii, U_jj    a s_1 s_i s_j (1 + [i = j] (S2 + 2) + ([i = 1] + [j = 1]) (S1 + 2) + [i = j = 1] T)

    where T = S1^2 + S2 + 4 S1 + 8.

    Raises:
        ValueError: if lam is not positive, the inputs are not Gaussian, or Lambda~ is singular.
    """
    loss = layer_loss(task, lam=lam)
    s, _ = _directions(task, 0)
    a = float(_plateau_values(task, 1, lam)[1][0])
    D1, D2, labels = float(loss.D.D1), float(loss.D.D2), loss.E1 * s.sum()  # labels: E s
    e1 = np.eye(task.d)[0]
    form = np.empty((task.d + 1, task.d + 1))
    form[0, 0] = a * s[0] * loss.E2
    form[0, 1:] = a * s[0] * s * (labels + e1 * (labels * loss.S1 + 2 * D2 * s[0] + 2 * labels)) - (1 - e1) * D1 * s**2
    form[1:, 0] = form[0, 1:]
    inner = (loss.S2 + 2) * np.eye(task.d) + 1 + (loss.S1 + 2) * (e1[:, None] + e1)
    inner[0, 0] += loss.S1**2 + loss.S2 + 4 * loss.S1 + 8
    form[1:, 1:] = a * s[0] * np.outer(s, s) * inner
    return form


@validated
def head_curvature(task: Task, *, width: Count, lam: Positive) -> float:
    """Curvature that decides between local minimum and saddle there, for a head of that width and Lambda = I.

    One row makes q; only width - 1 of the other d - 1 directions can be opened at once. Returned is the least
    eigenvalue of :func:`trap_form` over v, U_11 and one common entry in min(width, d) - 1 directions. Where it is
    positive the point is a local minimum, where it is negative a saddle; from width d on it is
    :func:`~icl.theory.one_layer.population.trap_curvature`.

    Raises:
        ValueError: if Lambda is not I, or width is no positive integer.
    """
    form = trap_form(task, lam=lam)
    if not np.array_equal(task.Lambda, np.eye(task.d)):
        raise ValueError("Lambda must be the identity for three numbers to decide")
    opened = min(width, task.d) - 1
    numbers = np.zeros((task.d + 1, 2 + (opened > 0)))
    numbers[0, 0] = numbers[1, 1] = 1
    if opened:
        numbers[2 : 2 + opened, 2] = 1 / np.sqrt(opened)
    return float(np.linalg.eigvalsh(numbers.T @ form @ numbers)[0])
