"""Kalman's gain and steps of the error covariance, for `key_gates.MovingWeights` and rows s = H'x."""

from typing import Any

import numpy as np

from icl.kalman_updates import downdate, innovation


def kalman_gains(P: np.ndarray, seen: np.ndarray, sigma_y: float) -> np.ndarray:
    """Kalman gain P s / (s'P s + sigma_y^2) for each row s = H'x, one P for all rows or one each; 0 where s'P s is."""
    Ps, S = innovation(P, seen, sigma_y**2)
    return Ps / np.where(S > 0, S, np.inf)[..., None]


def joseph_step(P: np.ndarray, k: np.ndarray, seen: np.ndarray, drift: Any) -> np.ndarray:
    """Error covariance after a step with any gain k (Joseph form)."""
    A = drift.F @ (np.eye(P.shape[-1]) - k[:, :, None] * seen[:, None, :])
    b = k @ drift.F.T
    return np.asarray(A @ P @ A.transpose(0, 2, 1) + drift.sigma_y**2 * b[:, :, None] * b[:, None, :] + drift.Q)


def riccati_step(P: np.ndarray, seen: np.ndarray, drift: Any) -> np.ndarray:
    """Error covariance after a step with the Kalman gain (Riccati step)."""
    Ps, S = innovation(P, seen, drift.sigma_y**2)
    return np.asarray(drift.F @ downdate(P, Ps, np.where(S > 0, S, np.inf)) @ drift.F.T + drift.Q)
