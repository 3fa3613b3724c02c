"""Filters against those of padasip and filterpy on the same data: other people's code, one trial at a time."""

import numpy as np
import padasip
import pytest
import torch
from filterpy.kalman import KalmanFilter

from icl import filters
from icl.profile import make_generator
from icl.tasks import DriftingRegression

DATA = [(1, 30, 0), (3, 100, 1), (8, 200, 2)]
on_several = pytest.mark.parametrize(("d", "n", "seed"), DATA)


def sequence(d, n, seed, sigma_y=0.1):
    """Inputs and noisy labels of one drifting task, for us and for them."""
    task = DriftingRegression(d=d, n=n - 1, gamma=0.95, sigma_e=0.3)
    p = task.sample(1, generator=make_generator("peers", seed=seed), dtype=torch.float64)
    noise = torch.randn(n, generator=make_generator("peers' noise", seed=seed), dtype=torch.float64)
    x, y = p.x[0], p.y[0] + sigma_y * noise
    return task, x, y, x.numpy(), y.numpy()


def agrees(ours, theirs, rtol=1e-12):
    """Predictions that are equal to `rtol` of the largest of them."""
    assert np.abs(theirs).max() > 0.1
    assert np.abs(ours.numpy() - theirs).max() <= rtol * np.abs(theirs).max()


@on_several
def test_lms_and_nlms_are_padasips(d, n, seed):
    """LMS and NLMS predict what padasip's FilterLMS and FilterNLMS do, from weights 0.

    1 to 8 dimensions, 30 to 200 positions; 1e-12 of the largest prediction.
    """
    _, x, y, X, Y = sequence(d, n, seed)
    agrees(filters.run_filter(filters.lms(0.05), x, y), padasip.filters.FilterLMS(d, mu=0.05, w="zeros").run(Y, X)[0])
    theirs = padasip.filters.FilterNLMS(d, mu=0.7, eps=0.1, w="zeros")
    track = filters.track(filters.nlms(0.7, eps=0.1), x, y)
    y_hat, error, w_hat = theirs.run(Y, X)
    agrees(track.y_hat, y_hat)
    agrees(track.error, error)
    agrees(track.w_hat[:-1], w_hat)
    agrees(track.w_hat[-1], theirs.w)


@pytest.mark.parametrize(("K", "eps"), [(1, 0.01), (2, 0.01), (5, 0.1)])
@on_several
def test_apa_is_padasips(d, n, seed, K, eps):
    """Affine projection predicts what padasip's FilterAP does, whose `order` is K and whose `ifc` is eps.

    With more examples than dimensions too. 1e-12 of the largest prediction; planted: with one example less it is a
    hundredth away.
    """
    _, x, y, X, Y = sequence(d, n, seed)
    theirs = padasip.filters.FilterAP(d, order=K, mu=0.5, ifc=eps, w="zeros").run(Y, X)[0]
    agrees(filters.run_filter(filters.apa(0.5, K=K, eps=eps), x, y), theirs)
    if K > 1:
        less = filters.run_filter(filters.apa(0.5, K=K - 1, eps=eps), x, y).numpy()
        assert np.abs(less - theirs).max() > 0.01 * np.abs(theirs).max()


@pytest.mark.parametrize("lam", [0.8, 0.95, 1.0])
@pytest.mark.parametrize(("d", "n", "seed"), [*DATA, (8, 700, 3)])
def test_rls_is_padasips(d, n, seed, lam):
    """RLS predicts what padasip's FilterRLS does, whose `mu` is lam and whose R starts at I / eps.

    1e-11 of the largest prediction, where 5e-13 is seen, in the long run too: theirs starts at 100 I and takes away
    R x x'R, ours u u', and the first d steps lose two digits and more to that, which later ones do not add to.
    """
    _, x, y, X, Y = sequence(d, n, seed)
    theirs = padasip.filters.FilterRLS(d, mu=lam, eps=0.01, w="zeros").run(Y, X)[0]
    agrees(filters.run_filter(filters.rls(lam, eps=0.01), x, y), theirs, rtol=1e-11)


@pytest.mark.parametrize("start", ["the task's", "a matrix"])
@pytest.mark.parametrize("sigma_y", [0.0, 0.2])
@on_several
def test_kalman_is_filterpys(d, n, seed, sigma_y, start):
    """The Kalman filter's predictions, estimates and covariances are those of filterpy's KalmanFilter, with
    F = gamma I, Q = sigma_e^2 I, H = x' and R = sigma_y^2, predict before update.

    So filterpy starts from the covariance of w_0, sigma_w^2 I or a matrix V, and we from gamma^2 V + sigma_e^2 I; with
    and without noise in the labels. 1e-12 of the largest prediction and estimate.
    """
    task, x, y, X, Y = sequence(d, n, seed, sigma_y)
    root = np.random.default_rng(seed).normal(size=(d, d))
    V = root @ root.T if start == "a matrix" else task.sigma_w**2 * np.eye(d)
    P_0 = task.gamma**2 * V + task.sigma_e**2 * np.eye(d) if start == "a matrix" else None
    peer = KalmanFilter(dim_x=d, dim_z=1)
    peer.F, peer.Q, peer.R, peer.P = task.gamma * np.eye(d), task.sigma_e**2 * np.eye(d), sigma_y**2 * np.eye(1), V
    y_hat, w_hat = np.zeros(n), np.zeros((n, d))
    for i in range(n):
        peer.predict()
        w_hat[i], y_hat[i] = peer.x[:, 0], X[i] @ peer.x[:, 0]
        peer.update(Y[i], H=X[i : i + 1])
    track = filters.track(filters.kalman(task, sigma_y=sigma_y, P_0=P_0), x, y)
    agrees(track.y_hat, y_hat)
    agrees(track.w_hat[:-1], w_hat)
    peer.predict()
    agrees(track.w_hat[-1], peer.x[:, 0])
