"""The measurement update of a linear-Gaussian model: one scalar label y = w'x + N(0, noise) of weights w ~ N(m, P).

    S = x'P x + noise,    m <- m + P x (y - m'x) / S,    P <- P - P x x'P / S        [Anderson & Moore 1979, ch. 3]

Shared by filters, layers and floors; the drift between labels is the caller's. Arguments are not checked here, in the
loops, but by the functions that run them.

Arrays have the axes of vectors last, x (..., d) and P (..., d, d). Tensors have them at `dim` of x and at `dim` and
`dim` + 1 of P, behind which trials may lie, as in :mod:`icl.filters`. The two have an implementation each, because
theory judges filters and layers: numpy's contraction without a temporary, torch's fused multiply-add with gradients.
"""

from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

_Array = TypeVar("_Array", np.ndarray, Tensor)


def innovation(P: _Array, x: _Array, noise: Any = None, *, dim: int = 0) -> tuple[_Array, Any]:
    """P x and the innovation variance S = x'P x + noise.

    Where S <= 0 the label is known already, as far as rounding can tell: give :func:`downdate` inf in its place.

    Args:
        P: covariance of the weights.
        x: input; broadcasts against P.
        noise: variance of the label's noise, one or one for each; None leaves it to a caller that looks at x'P x first.
        dim: axis of a tensor's vectors.
    """
    if isinstance(P, Tensor):
        Px = (P * x.unsqueeze(dim)).sum(dim + 1)
        s: Any = (Px * x).sum(dim)
    else:
        Px = np.einsum("...ij,...j->...i", P, x)
        s = np.einsum("...i,...i->...", Px, x)
    return Px, s if noise is None else s + noise


def downdate(P: _Array, Px: _Array, S: Any, *, dim: int = 0) -> _Array:
    """Covariance after the label, P - (P x)(P x)' / S; P itself where S is inf.

    Written u u', symmetric to the last bit: what P lacks in symmetry would grow. It is a difference, which loses the
    digits that P has more than the result; :func:`~icl.filters.kalman` has Joseph's form, and
    :func:`~icl.theory.floors.filtering.riccati` a root of P, where that matters.

    Args:
        P: covariance before the label, symmetric.
        Px: P x, with S from :func:`innovation`.
        S: innovation variance, > 0.
        dim: axis of a tensor's vectors.
    """
    if isinstance(P, Tensor):
        u = Px * S.rsqrt().unsqueeze(dim)
        return torch.addcmul(P, u.unsqueeze(dim + 1), u.unsqueeze(dim), value=-1)
    u = Px / np.sqrt(S)[..., None]
    taken = np.einsum("...i,...j->...ij", u, u)
    return np.subtract(P, taken, out=taken)


def kalman_update(
    w: _Array, P: _Array, x: _Array, y: Any, noise: Any = 0.0, *, dim: int = 0
) -> tuple[_Array, _Array, Any, Any]:
    """Mean and covariance of the weights after the label, its error y - w'x, and S.

        w <- w + P x (y - w'x) / S,    P <- P - (P x)(P x)' / S,    log density of y = -(log(2 pi S) + error^2 / S) / 2

    S is inf where it is not above 0: such a label changes nothing, and has no density.

    >>> w, P, error, S = kalman_update(np.zeros(2), np.eye(2), np.array([1.0, 0.0]), 3.0, 0.5)
    >>> w, P.diagonal(), error, S
    (array([2., 0.]), array([0.33333333, 1.        ]), np.float64(3.0), array(1.5))

    Args:
        w: mean before the label.
        P: covariance before the label, symmetric.
        x: input; broadcasts against w.
        y: label.
        noise: variance of the label's noise, one or one for each.
        dim: axis of a tensor's vectors.
    """
    Px, S = innovation(P, x, noise, dim=dim)
    if isinstance(P, Tensor):
        S = torch.where(S > 0, S, torch.inf)
        error = y - (w * x).sum(dim)
        w = torch.addcmul(w, Px, (error / S).unsqueeze(dim))
    else:
        S = np.where(S > 0, S, np.inf)
        error = y - np.vecdot(w, x)
        w = w + Px * (error / S)[..., None]
    return w, downdate(P, Px, S, dim=dim), error, S
