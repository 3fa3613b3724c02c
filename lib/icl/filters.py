"""Adaptive filters as (init, step) pairs, batched over trials; one scan, `run`, runs any of them.

All estimate the weights behind y_i = <w_i, x_i> while reading, and are judged by their a-priori predictions
y_hat_i = w_hat_i' x_i, made before y_i is seen. Notation of [Sayed 2011]. Settings may be tensors that broadcast
against the trials, so that one scan tries many of them on the same data.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from icl import _checks

_Setting = float | Tensor


@dataclass(frozen=True)
class Filter:
    """A filter: where it starts and what one example does to it.

    Attributes:
        init: from zeros of the estimate's shape (..., d) to a state: any dataclass with the estimate `w_hat`.
        step: from a state, x (..., d) and y (...) to the state after that example.
    """

    init: Callable[[Tensor], Any]
    step: Callable[[Any, Tensor, Tensor], Any]


@dataclass(frozen=True)
class Estimate:
    """State of the filters that remember nothing but their estimate."""

    w_hat: Float[Tensor, "*trials d"]


@dataclass(frozen=True)
class Window:
    """State of affine projection: the estimate, and the last K examples, newest first, zeros before the first."""

    w_hat: Float[Tensor, "*#trials d"]
    x: Float[Tensor, "*#trials K d"]
    y: Float[Tensor, "*#trials K"]


@dataclass(frozen=True)
class LeastSquares:
    """State of RLS: the estimate, and P, the inverse of the discounted sum of x x'."""

    w_hat: Float[Tensor, "*trials d"]
    P: Float[Tensor, "*trials d d"]


def _setting(name: str, value: _Setting, *, at_most: float = float("inf"), zero: bool = False) -> Tensor:
    """A setting as a tensor, refused by name when out of range."""
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    _checks.real(name, array, **({"at_least": 0} if zero else {"above": 0}), at_most=at_most)
    return torch.as_tensor(value, dtype=torch.float64)


def _error(w_hat: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return y - (w_hat * x).sum(-1)


def lms(mu: _Setting) -> Filter:
    """Least mean squares: w <- w + mu (y - w'x) x [Sayed 2011, alg. 10.1], from w = 0.

    Args:
        mu: step size, > 0, in units of 1/x^2.
    """
    size = _setting("mu", mu)

    def step(state: Estimate, x: Tensor, y: Tensor) -> Estimate:
        return Estimate(state.w_hat + (size.to(x) * _error(state.w_hat, x, y))[..., None] * x)

    return Filter(Estimate, step)


def nlms(mu: _Setting, *, eps: float = 1e-6) -> Filter:
    """Normalised LMS: w <- w + mu (y - w'x) x / (eps + x'x) [Sayed 2011, alg. 10.2], from w = 0.

    Args:
        mu: step size, > 0, dimensionless; 1 forgets all about the direction of x.
        eps: regularisation, >= 0, in units of x^2.
    """
    size = _setting("mu", mu)
    _checks.number("eps", eps, at_least=0)

    def step(state: Estimate, x: Tensor, y: Tensor) -> Estimate:
        gain = size.to(x) * _error(state.w_hat, x, y) / (eps + x.square().sum(-1))
        return Estimate(state.w_hat + gain[..., None] * x)

    return Filter(Estimate, step)


def apa(mu: _Setting, *, K: int, eps: float = 1e-6) -> Filter:
    """Affine projection onto the last K examples: w <- w + mu X'(eps I + X X')^-1 (y - X w) [Sayed 2011, alg. 13.1].

    Args:
        mu: step size, > 0, dimensionless.
        K: number of examples, >= 1; 1 is NLMS.
        eps: regularisation, > 0, in units of x^2: it also stands in for examples that have not come yet.
    """
    size = _setting("mu", mu)
    _checks.integer("K", K, at_least=1)
    _checks.number("eps", eps, above=0)

    def init(w_hat: Tensor) -> Window:
        return Window(
            w_hat, w_hat.new_zeros(*w_hat.shape[:-1], K, w_hat.shape[-1]), w_hat.new_zeros(*w_hat.shape[:-1], K)
        )

    def step(state: Window, x: Tensor, y: Tensor) -> Window:
        X = torch.cat([x.unsqueeze(-2).expand_as(state.x[..., :1, :]), state.x[..., :-1, :]], dim=-2)
        Y = torch.cat([y.unsqueeze(-1).expand_as(state.y[..., :1]), state.y[..., :-1]], dim=-1)
        # In float64, because more than d examples leave eps alone to tell X X' from a singular matrix.
        rows, miss = X.double(), (Y - (X @ state.w_hat[..., None])[..., 0]).double()
        inner = rows @ rows.mT + eps * torch.eye(K, dtype=rows.dtype, device=rows.device)
        move = (rows.mT @ torch.linalg.solve(inner, miss[..., None]))[..., 0].to(x)
        return Window(state.w_hat + size.to(x)[..., None] * move, X, Y)

    return Filter(init, step)


def rls(lam: _Setting, *, eps: float = 1e-2) -> Filter:
    """Exponentially weighted recursive least squares [Sayed 2011, alg. 30.1], from w = 0 and P = I / eps.

        k = P x / (lam + x'P x);    w <- w + k (y - w'x);    P <- (P - k x'P) / lam

    P is symmetrised in every step; in float64, because in float32 its small eigenvalues drown after some hundred steps.

    Args:
        lam: forgetting factor in (0, 1], dimensionless.
        eps: regularisation of the start, > 0, in units of x^2.
    """
    factor = _setting("lam", lam, at_most=1.0)
    _checks.number("eps", eps, above=0)

    def init(w_hat: Tensor) -> LeastSquares:
        _checks.dtype("x", w_hat, torch.float64, "for RLS, which loses P's small eigenvalues otherwise")
        d = w_hat.shape[-1]
        return LeastSquares(w_hat, (torch.eye(d, dtype=w_hat.dtype, device=w_hat.device) / eps).expand(*w_hat.shape, d))

    def step(state: LeastSquares, x: Tensor, y: Tensor) -> LeastSquares:
        age = factor.to(x)
        Px = (state.P @ x[..., None])[..., 0]
        k = Px / (age + (x * Px).sum(-1))[..., None]
        P = (state.P - k[..., :, None] * Px[..., None, :]) / age[..., None, None]
        return LeastSquares(state.w_hat + k * _error(state.w_hat, x, y)[..., None], (P + P.mT) / 2)

    return Filter(init, step)


def run(
    filter: Filter, x: Float[Tensor, "*#trials time d"], y: Float[Tensor, "*#trials time"]
) -> Float[Tensor, "*#trials time"]:
    """A-priori predictions: position i is predicted from the examples before it; the first is predicted as 0.

    Args:
        filter: such as `lms(0.01)`.
        x: inputs; leading axes are trials. Settings of the filter broadcast against them: with mu of shape
            (settings, 1) and x of shape (1, batch, time, d) the result has shape (settings, batch, time).
        y: labels.

    Raises:
        ValueError: if x and y do not fit together, hold no position or are not finite.
        FloatingPointError: if the filter diverges, with the position where its prediction stopped being finite.
    """
    if x.dim() < 2 or not x.shape[-2]:
        raise ValueError(f"x must have shape (*trials, time, d) with time >= 1, got {tuple(x.shape)}")
    _checks.shape("y", y, tuple(x.shape[:-1]), "to match x")
    _checks.dtype("y", y, x.dtype, "to match x")
    for name, array in (("x", x), ("y", y)):
        if not bool((finite := torch.isfinite(array)).all()):
            raise ValueError(f"{name} must be finite, got {array[~finite][0].item()}")
    state, predictions = filter.init(torch.zeros_like(x[..., 0, :])), []
    for xt, yt in zip(x.unbind(-2), y.unbind(-1), strict=True):
        predictions.append((state.w_hat * xt).sum(-1))
        state = filter.step(state, xt, yt)
    shape = torch.broadcast_shapes(*(p.shape for p in (predictions[0], predictions[-1])))
    y_hat = torch.stack([p.expand(shape) for p in predictions], dim=-1)
    if not bool(torch.isfinite(y_hat).all()):
        first = int((~torch.isfinite(y_hat)).reshape(-1, y_hat.shape[-1]).any(0).nonzero()[0])
        raise FloatingPointError(f"the filter diverged: its prediction at position {first} is not finite")
    return y_hat
