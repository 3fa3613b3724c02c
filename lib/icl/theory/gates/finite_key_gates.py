"""Exact error and gradient of any layer h <- A(x) h + b(x) y under finitely many keys, and a search for the best.

The bound of :mod:`icl.theory.gates.key_gates` holds for any law of the keys. Under n equally likely keys a gate of the
key is a table of n matrices; second moments and their gradient in every entry of the table are solved for exactly, so
that only the optimisation is numerical. Not in the papers.
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from icl import _checks
from icl._bounds import Count, Natural, Reals, validated
from icl.theory.gates._kalman import joseph_step, kalman_gains, riccati_step
from icl.theory.gates.key_gates import GateBound, MovingWeights


@validated
def _law(keys: Reals, drift: Any) -> np.ndarray:
    _checks.instance("drift", drift, MovingWeights)
    keys = np.asarray(keys, dtype=np.float64)
    _checks.shape("keys", keys, (None, len(drift.H)), "to match drift")
    if not keys.size:
        raise ValueError("keys must be at least one, got none")
    return keys


def _table(keys: np.ndarray, **tables: Any) -> list[np.ndarray]:
    """A and b, checked under the caller's names for them."""
    A, b = (np.asarray(_checks.real(name, value), dtype=np.float64) for name, value in tables.items())
    of_A, of_b = tables
    _checks.shape(of_b, b, (len(keys), None), "to match keys")
    _checks.shape(of_A, A, (len(keys), b.shape[1], b.shape[1]), f"to match {of_b}")
    return [A, b]


@validated
def finite_bound(keys: Float[np.ndarray, "n d"], drift: MovingWeights) -> GateBound:
    """`key_gates.key_gated_bound` for keys drawn uniformly from these; Lambda is their second moment.

    Args:
        keys: (n, d).
        drift: gives F, H, Q and sigma_y.

    Raises:
        ValueError: if 100,000 steps do not converge.
    """
    keys = _law(keys, drift)
    seen = keys @ drift.H
    P = drift.Q
    for _ in range(100_000):
        before = P
        P = joseph_step(
            np.broadcast_to(P, (len(keys), *P.shape)), kalman_gains(P, seen, drift.sigma_y), seen, drift
        ).mean(0)
        if np.abs(P - before).max() <= 1e-15 * np.abs(P).max():
            weigh = seen.T @ seen / len(keys)
            return GateBound(float(np.sum(weigh * P)), P)
    raise ValueError(f"drift must settle under these keys, which it does not with F = {drift.F}")


@validated
def finite_ladder(keys: Float[np.ndarray, "n d"], drift: MovingWeights, window: Natural) -> float:
    """Least error of gates of the current and the `window` previous keys, drawn uniformly from these: exact.

    The error covariance is a table over windows, and the fixed point of

        S(x_2, .., x_(K+1)) <- mean over x_1 of Kalman's step for x_(K+1) at S(x_1, .., x_K).

    Args:
        keys: (n, d), drawn with equal chances; the table has n^window matrices.
        drift: gives F, H, Q and sigma_y.
        window: number of earlier keys the gates depend on.

    Raises:
        ValueError: if the table would have more than a million matrices, or does not converge in 10,000 steps.
    """
    keys = _law(keys, drift)
    n, m = len(keys), len(drift.F)
    if n ** (window + 1) > 1_000_000:
        raise ValueError(f"window must leave at most 1,000,000 tables of keys, got {window} of {n} keys")
    if not window:
        return finite_bound(keys, drift).error
    seen = keys @ drift.H
    now = np.tile(seen, (n**window, 1))
    S = np.broadcast_to(drift.Q, (n**window, m, m))
    for _ in range(10_000):
        before = S
        moved = riccati_step(np.repeat(S, n, axis=0), now, drift)
        S = moved.reshape(n, n**window, m, m).mean(0)
        if np.abs(S - before).max() <= 1e-13 * np.abs(S).max():
            return float(np.sum(seen.T @ seen / n * S.mean(0)))
    raise ValueError(f"drift must settle under these keys, which it does not with F = {drift.F}")


@validated
def gated_error(
    A: Float[np.ndarray, "n N N"], b: Float[np.ndarray, "n N"], keys: Float[np.ndarray, "n d"], drift: MovingWeights
) -> tuple[float, Float[np.ndarray, "n N N"], Float[np.ndarray, "n N"]]:
    """Steady-state error of the best linear readout of h <- A(x) h + b(x) y, and its gradients in A and in b.

    With u = (z, h) a step is u <- M(x) u + noise, and G = E u u' solves G = E M G M' + noise. The gradient is from the
    adjoint: Y = E M'Y M + the error's derivative in G.

    Args:
        A: one matrix a key.
        b: one vector a key.
        keys: (n, d), drawn with equal chances.
        drift: gives F, H, Q and sigma_y.

    Raises:
        ValueError: if arguments do not fit together, or the layer diverges.
    """
    keys = _law(keys, drift)
    A, b = _table(keys, A=A, b=b)
    n, m, size = len(keys), len(drift.F), len(drift.F) + b.shape[1]
    if size == m:
        raise ValueError("b must have at least one state, got none")
    seen, noise = keys @ drift.H, drift.sigma_y**2
    M = np.zeros((n, size, size))
    M[:, :m, :m], M[:, m:, m:], M[:, m:, :m] = drift.F, A, b[:, :, None] * seen[:, None, :]
    transition = np.einsum("nij,nkl->ikjl", M, M).reshape(size**2, size**2) / n
    radius = np.abs(np.linalg.eigvals(transition)).max()
    if not radius < 1:
        raise ValueError(f"A must let the layer settle, got a step of spectral radius {radius:.6g}")
    added = np.zeros((size, size))
    added[:m, :m], added[m:, m:] = drift.Q, noise * b.T @ b / n
    left = np.eye(size**2) - transition
    G = np.linalg.solve(left, added.ravel()).reshape(size, size)
    # The estimation error is z - B h; at the optimal B the gradient in G is that at fixed B (envelope theorem).
    B = G[:m, m:] @ np.linalg.pinv(G[m:, m:], hermitian=True, rcond=1e-13)
    residual = np.hstack([np.eye(m), -B])
    slope_G = residual.T @ (seen.T @ seen / n) @ residual
    Y = np.linalg.solve(left.T, slope_G.ravel()).reshape(size, size)
    slope_M = 2 / n * Y @ M @ G
    of_b = np.einsum("nij,nj->ni", slope_M[:, m:, :m], seen) + 2 * noise / n * b @ Y[m:, m:]
    return float(np.sum(slope_G * G)), slope_M[:, m:, m:], of_b


@validated
def search_gates(
    keys: Float[np.ndarray, "n d"],
    drift: MovingWeights,
    start_A: Float[np.ndarray, "n N N"],
    start_b: Float[np.ndarray, "n N"],
    *,
    evaluations: Count = 2000,
) -> float:
    """Error of the best layer found by L-BFGS over all entries of A and b.

    Args:
        keys: (n, d), drawn with equal chances.
        drift: gives F, H, Q and sigma_y.
        start_A: initial A, at which the layer converges.
        start_b: initial b.
        evaluations: maximum number of error evaluations.
    """
    keys = _law(keys, drift)
    start_A, start_b = _table(keys, start_A=start_A, start_b=start_b)
    wall = 1e3 * gated_error(start_A, start_b, keys, drift)[0]
    n, N = start_b.shape

    def error(numbers: Any) -> tuple[float, Any]:
        try:
            loss, of_A, of_b = gated_error(
                numbers[: n * N * N].reshape(n, N, N), numbers[n * N * N :].reshape(n, N), keys, drift
            )
        except ValueError:
            # Diverges: return a large value, so that the line search steps back.
            return wall, np.zeros_like(numbers)
        return loss, np.concatenate([of_A.ravel(), of_b.ravel()])

    start: Any = np.concatenate([np.ravel(start_A), np.ravel(start_b)])
    options: Any = {"maxfun": evaluations, "maxiter": evaluations, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 30}
    optimum = minimize(error, start, jac=True, method="L-BFGS-B", options=options)
    return float(optimum.fun)
