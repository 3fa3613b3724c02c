"""Linear first-order methods with diagonal coefficients: their errors and Jacobians.

The methods of [Dutta & Sra 2025, (1.1), (3.5)] on the quadratics of :mod:`icl.tasks.quadratics`: every step starts anew
at w_0 and sums all gradients so far, each coordinate with a weight of its own,

    w_{k+1} = w_0 - sum_{i<=k} Lambda[k, i] o grad f(w_i),    grad f(w) = H (w - w*)

with the sign that descends: the paper's Lambda_i^k is -Lambda[k, i]. The errors are w_k - w* = M_k (w_0 - w*) with

    M_0 = I,    M_{k+1} = I - sum_{i<=k} diag(Lambda[k, i]) H M_i

A row of equal numbers is a scalar coefficient: :func:`~icl.theory.lfom.tables.cumulative` has the tables of known
methods. Of the d L (L + 1) / 2 coefficients of L steps L (L - 1) / 2 are redundant: scaling M_i by a number can be
undone by its own row.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from icl import _checks
from icl._bounds import validated


def _triangle(Lambda: Tensor) -> None:
    """Refuse an empty table, and one with entries above the diagonal."""
    if not len(Lambda):
        raise ValueError(f"Lambda must have shape (L, L, d) with L >= 1, got {tuple(Lambda.shape)}")
    if _checks.is_readable(Lambda):
        ahead = Lambda[torch.ones(Lambda.shape[:2], dtype=torch.bool).triu(1)]
        if bool((ahead != 0).any()):
            worst = ahead[ahead != 0][0].item()
            raise ValueError(f"Lambda must be 0 where i > k (no step reads a later one), got {worst}")


def _errors(H: Tensor, Lambda: Tensor, start: Tensor) -> list[Tensor]:
    states = [start]
    for row in Lambda:
        moved = (weights[:, None] * (H @ M) for weights, M in zip(row, states, strict=False))
        states.append(start - sum(moved, torch.zeros_like(start)))
    return states


@validated
def diagonal_errors(
    H: Float[Tensor, "batch d d"], Lambda: Float[Tensor, "L L d"], start: Float[Tensor, "batch d columns"]
) -> Float[Tensor, "batch states d columns"]:
    """Errors M_0 start .. M_L start of the module's head: for start = w_0 - w*, one column, w_k - w*.

    Args:
        H: X'X / n of each prompt.
        Lambda: Lambda[k, i] weighs the gradient at w_i in w_{k+1}, coordinate by coordinate; 0 where i > k.
        start: right factor of the matrices, such as the identity.

    Raises:
        ValueError: if shapes or dtypes do not match.
    """
    _triangle(Lambda)
    return torch.stack(_errors(H, Lambda, start), dim=1)


@validated
def diagonal_jacobian(
    H: Float[Tensor, "batch d d"],
    Lambda: Float[Tensor, "L L d"],
    start: Float[Tensor, "batch d columns"],
    rows: Float[Tensor, "batch rows d"],
) -> Float[Tensor, "batch rows columns L L d"]:
    """Jacobian of rows M_L start with respect to the coefficients; 0 for those where i > k.

    With the adjoints R_L = rows and R_i = -sum_{k>=i} R_{k+1} diag(Lambda[k, i]) H of M_i start, the derivative by
    Lambda[k, i, c] is the column c of -R_{k+1} times the row c of H M_i start.

    Arguments as in :func:`diagonal_errors`; rows: left factor of the error, such as the query.

    Raises:
        ValueError: if shapes or dtypes do not match.
    """
    _triangle(Lambda)
    L = len(Lambda)
    moved = [H @ M for M in _errors(H, Lambda, start)[:-1]]
    felt = [rows] * (L + 1)
    for i in range(L - 1, 0, -1):
        felt[i] = sum((-(felt[k + 1] * Lambda[k, i]) @ H for k in range(i, L)), torch.zeros_like(rows))
    jacobian = H.new_zeros(*rows.shape[:2], start.shape[-1], *Lambda.shape)
    for k in range(L):
        for i in range(k + 1):
            jacobian[..., k, i, :] = -torch.einsum("brd,bdc->brcd", felt[k + 1], moved[i])
    return jacobian
