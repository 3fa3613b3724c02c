"""Maximum likelihood of a drift: many settings of the variances, run through the rows side by side.

With covariances, where `_state_space` has roots: a search compares likelihoods, and is in a hurry.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from icl.tvp._state_space import Array, Model


def innovations(model: Model, x: Array, y: Array, elapsed: Array) -> tuple[Array, Array]:
    """Innovations and their variances (rows, labels, settings) of many settings of each label; NaN without a label.

    Covariance and mean are one matrix (P, w): the label takes from both the same multiple of P x. Inputs and elapsed
    times have an axis of labels, of length 1 if all share them.
    """
    noise, prior = model.noise, model.prior
    K, shape = prior.shape[-1], prior.shape[:-1]
    A = np.zeros((*shape, K, K + 1))
    i, elapsed = np.arange(K), elapsed[..., None, None]
    A[..., i, i] = prior
    flat = A.reshape(*shape, -1)
    diagonal = flat[..., :: K + 2]
    errors, variances = np.empty((2, len(y), *shape))
    taken, even = np.empty_like(A), bool((elapsed[1:] == elapsed[1:2]).all())
    keep, gain = model.drift(elapsed[-1])
    here: Any = np.isfinite(y)
    full = here.all(1)
    for t in range(len(y)):
        if t:
            if not even:
                keep, gain = model.drift(elapsed[t])
            if keep is not None:
                A[..., :K] *= keep[..., None, :]
                A *= keep[..., None]
            diagonal += gain
        g = np.matmul(x[t], A)[..., 0, :]
        S = np.matmul(g[..., None, :K], x[t].mT)[..., 0, 0] + noise
        g[..., K] -= y[t][:, None]
        errors[t], variances[t] = g[..., K], S
        if not full[t]:
            S = np.where(here[t][:, None], S, np.inf)
            g[..., K] = np.where(here[t][:, None], g[..., K], 0.0)
        u = g[..., :K] / S[..., None]
        np.multiply(u[..., None], g[..., None, :], out=taken)
        A -= taken
    return errors, variances


class Likeliest:
    """Maximum-likelihood variances of each label, by Fisher scoring on their logarithms.

    One pass of the filter runs the neighbours of all labels' settings side by side: central differences of the errors
    and of their variances give the score and the expected information [Harvey 1989, sec. 3.4.5], and the next step is
    Levenberg and Marquardt's.

    Args:
        x: standardised inputs (rows, k), with their intercept.
        y: standardised labels (rows, labels).
        elapsed: units of time since the row before (rows,).
        drift: "per coefficient", "shared", "none", or variances (labels, k).
        stationary: whether the drift is.
        gamma: what a stationary drift keeps a unit of time, if it is given.
        prior: variance of coefficients before the first row.
        noise: variance of labels (labels,) if it is given.
    """

    DIFFERENCE = 1e-3  # in logarithms
    VARIANCE = (1e-12, 10.0)  # that a standardised coefficient gains a unit of time
    RATE = (1e-5, 5.0)  # of gamma = exp(-rate)
    NOISE = (1e-10, 10.0)

    def __init__(
        self,
        x: Array,
        y: Array,
        elapsed: Array,
        drift: Any,
        stationary: bool,
        prior: float,
        noise: Array | None,
        gamma: float | None = None,
    ) -> None:
        """Lay out the parameters: variances, the rate, the noise, as far as they are learnt."""
        self.x, self.y, self.elapsed = x[:, None, None, None], y, elapsed[:, None]
        if stationary:
            self.x = np.concatenate([self.x, self.x], axis=-1)
        here: Any = np.isfinite(y)
        self.here = here[:, :, None]
        self.drift, self.stationary, self.prior, self.noise = drift, stationary, prior, noise
        self.rate = None if gamma is None else -np.log(gamma)
        self.k, self.settled = x.shape[1], np.ones(y.shape[1], bool)
        self.variances = {"per coefficient": self.k, "shared": 1}.get(drift, 0) if isinstance(drift, str) else 0
        bounds = [self.VARIANCE] * self.variances
        self.rates = int(stationary and gamma is None)
        bounds += [self.RATE] * self.rates + [self.NOISE] * (noise is None)
        self.bounds = np.log(bounds).reshape(-1, 2)

    @classmethod
    def join(cls, searches: "Sequence[Likeliest]") -> "Likeliest":
        """One search over the labels of several, each with rows of its own; the shorter go on without labels."""

        def pad_and_join(name: str, **pad: Any) -> Array:
            parts = []
            for each in searches:
                part = getattr(each, name)
                part = np.broadcast_to(part, (len(part), each.y.shape[1], *part.shape[2:]))
                parts.append(np.pad(part, [(0, rows - len(part))] + [(0, 0)] * (part.ndim - 1), **pad))
            return np.concatenate(parts, axis=1)

        rows, search = max(len(each.y) for each in searches), copy.copy(searches[0])
        search.x, search.elapsed = pad_and_join("x"), pad_and_join("elapsed", mode="edge")
        search.y, search.here = pad_and_join("y", constant_values=np.nan), pad_and_join("here")
        search.settled = np.concatenate([each.settled for each in searches])
        for name in ("drift", "noise"):
            if isinstance(getattr(search, name), np.ndarray):
                setattr(search, name, np.concatenate([getattr(each, name) for each in searches]))
        return search

    def of_labels(self, which: Any) -> "Likeliest":
        """Search of some of the labels, by a mask."""
        search = copy.copy(self)
        for name in ("x", "y", "here", "elapsed"):
            if (part := getattr(self, name)).shape[1] > 1:
                setattr(search, name, part[:, which])
        for name in ("drift", "noise", "settled"):
            if isinstance(part := getattr(self, name), np.ndarray):
                setattr(search, name, part[which])
        return search

    def model(self, theta: Array) -> Model:
        """Model of parameters (labels, ..., parameters): logarithms of variances, of the rate, and of the noise.

        A stationary drift is searched by what it gains a unit of time, which rows tell even where its rate is near 0
        and its stationary variance is not to be told.
        """
        shape, settings = theta.shape[:-1], np.exp(theta)
        ones = (1,) * (len(shape) - 1)
        q = np.zeros((*shape, self.k))
        if self.variances:
            q += settings[..., : self.variances]
        elif not isinstance(self.drift, str):
            q += self.drift.reshape(-1, *ones, self.k)
        prior, gamma = np.full_like(q, self.prior), None
        if self.stationary:
            rate = settings[..., self.variances] if self.rates else np.full(shape, self.rate)
            gamma = np.exp(-rate)
            if self.variances:
                q = q / -np.expm1(-2 * rate[..., None])
            q, prior = np.concatenate([q, 0 * q], axis=-1), np.concatenate([q, prior], axis=-1)
        noise = settings[..., -1] if self.noise is None else np.zeros(shape) + self.noise.reshape(-1, *ones)
        return Model(q, gamma, noise, prior)

    def run(self, theta: Array) -> tuple[Array, Array, Array]:
        """Log-likelihoods (labels, settings), innovations and variances of parameters (labels, settings, ...)."""
        errors, variances = innovations(self.model(theta), self.x, self.y, self.elapsed)
        errors = np.where(self.here, errors, 0.0)
        terms = np.where(self.here, np.log(2 * np.pi * variances), 0.0) + errors**2 / variances
        return -terms.sum(0) / 2, errors, variances

    def start(self) -> Array:
        """Best of a coarse grid, the noise of each point from its own errors."""
        low, high = self.bounds.T
        axes = [np.log(10.0 ** np.arange(-7, 1))] if self.variances else [np.zeros(1)]
        axes += [np.log([0.003, 0.03, 0.3])] * self.rates
        grid = np.stack([each.ravel() for each in np.meshgrid(*axes)], -1)
        theta = np.zeros((self.y.shape[1], len(grid), len(low)))
        theta[..., : self.variances] = grid[:, :1]
        if self.rates:
            theta[..., self.variances] = grid[:, 1]
        if self.noise is None:
            # Drift as a share of the noise; the likeliest noise then is the mean of error^2 / variance.
            _, errors, variances = self.run(theta)
            scale = np.log((errors**2 / variances).sum(0) / self.here.sum(0))
            theta[..., : self.variances] += scale[..., None]
            theta[..., -1] = scale
        theta = np.clip(theta, low, high)
        value, _, _ = self.run(theta)
        return np.asarray(theta[np.arange(len(theta)), value.argmax(1)])

    def climb(self, theta: Array, most: int = 100) -> tuple[Array, Array]:
        """Likeliest parameters (labels, parameters) uphill of a start, and their log-likelihoods."""
        labels, p = theta.shape
        low, high = self.bounds.T
        around = self.DIFFERENCE * np.concatenate([np.zeros((1, p)), np.eye(p), -np.eye(p)])
        plus, minus = slice(1, 1 + p), slice(1 + p, None)
        best, damping = np.full(labels, -np.inf), np.full(labels, 1e-3)
        score, information, proposed = np.zeros((labels, p)), np.zeros((labels, p, p)), theta
        search, at, ended, reached = self, np.arange(labels), np.empty_like(theta), np.empty(labels)
        for _ in range(most):
            value, errors, variances = search.run(proposed[:, None] + around)
            better = value[:, 0] > best
            slope = (errors[..., plus] - errors[..., minus]) / np.sqrt(variances[..., :1])
            growth = np.log(variances[..., plus] / variances[..., minus]) * search.here
            curvature = np.einsum("tmi,tmj->mij", slope, slope) + np.einsum("tmi,tmj->mij", growth, growth) / 2
            curvature /= (2 * self.DIFFERENCE) ** 2
            rise = (value[:, plus] - value[:, minus]) / (2 * self.DIFFERENCE)
            curvature = _bfgs_update(
                curvature, proposed - theta, np.where(np.isfinite(best)[:, None], score - rise, 0.0)
            )
            information = np.where(better[:, None, None], curvature, information)
            score, theta = np.where(better[:, None], rise, score), np.where(better[:, None], proposed, theta)
            best, damping = np.where(better, value[:, 0], best), np.where(better, damping / 10, damping * 10)
            # At a bound that the score points through, a parameter stays.
            free = ~((theta <= low) & (score < 0) | (theta >= high) & (score > 0))
            matrix = information * free[:, None] * free[:, :, None]
            diagonal = np.einsum("mii->mi", matrix)
            diagonal += damping[:, None] * diagonal + 1e-14 + ~free
            step = np.linalg.solve(matrix, (score * free)[..., None])[..., 0]
            # Scoring on the variances themselves has the same step, relative to them: one that is 0 falls 50-fold.
            proposed = np.clip(theta + np.log1p(np.clip(step, -0.98, 20)), low, high)
            left = abs(score * (proposed - theta)).sum(1)
            ended[at], reached[at], self.settled[at] = theta, best, left < 1e-3
            # A label that has arrived stays, whatever the others do.
            if not (going := left >= 1e-6).any():
                break
            if not going.all():
                search, at = search.of_labels(going), at[going]
                state = best, damping, score, information, theta, proposed
                best, damping, score, information, theta, proposed = (part[going] for part in state)
        return ended, reached

    def find(self) -> tuple[Array, Array]:
        """Likeliest parameters, and twice the log-likelihood that each drift wins over none (labels, k)."""
        if not len(self.bounds):
            theta = np.zeros((self.y.shape[1], 0))
            return theta, np.full((len(theta), 0), np.inf)
        theta, best = self.climb(self.start())
        without = np.repeat(theta[:, None], self.variances, axis=1)
        without[:, np.arange(self.variances), np.arange(self.variances)] = -np.inf
        ratio = 2 * (best[:, None] - self.run(without)[0]) if self.variances else np.zeros((len(theta), 0))
        theta[:, : self.variances][ratio < 1e-6] = -np.inf
        return theta, ratio

    def at_bounds(self, theta: Array) -> list[tuple[int, str]]:
        """Labels, and what of theirs the search could not make smaller or larger, or did not finish."""
        messages = []
        for label, row in enumerate(theta):
            if self.noise is None and row[-1] <= self.bounds[-1, 0] + 1e-6:
                least = np.sqrt(self.NOISE[0])
                messages.append((label, f"The noise is the least that is searched, {least:.0e} of the labels' spread"))
            if (row[: self.variances] >= self.bounds[: self.variances, 1] - 1e-6).any():
                messages.append((label, "A drift is the largest that is searched: rows may tell nothing of the next"))
            if not self.settled[label]:
                messages.append((label, "The search for the likeliest variances did not settle"))
        return messages


def _bfgs_update(information: Array, step: Array, fall: Array) -> Array:
    """Information after Broyden, Fletcher, Goldfarb and Shanno's update: along the last step it is what the score fell.

    The expected information is too large where rows tell little, and steps by it alone too short.
    """
    step = np.where(abs(fall) > 1e-6, step, 0.0)  # a variance near 0 may go far and change nothing
    along = (step * fall).sum(1)
    moved = np.einsum("mij,mj->mi", information, step)
    length = (step * moved).sum(1)
    sound = (along > 1e-8 * length) & (length > 0) & (abs(step).max(1) < 1)
    along, length = np.where(sound, along, 1.0), np.where(sound, length, 1.0)
    gained = fall[:, :, None] * fall[:, None] / along[:, None, None]
    lost = moved[:, :, None] * moved[:, None] / length[:, None, None]
    return np.where(sound[:, None, None], information + gained - lost, information)
