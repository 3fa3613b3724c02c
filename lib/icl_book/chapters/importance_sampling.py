"""Risks dominated by rare prompts: importance sampling of long inputs, with a control variate.

The risk of a Memformer of several layers is dominated by prompts with unusually long inputs, which are rare in a plain
sample (not in the papers). Two remedies, in white coordinates, where inputs are N(0, I).

*Importance sampling.* A part of the prompts each has inputs longer by sqrt(c), and a prompt is weighed by its density
in truth over its density so drawn: with nd numbers z of squared length s,

    1 / v(z) = mean over c of c^(-nd/2) exp((1 - 1/c) s / 2)

*A control variate.* The model with a_l I for A_l, a_l = tr A_l / d, has an exact risk
(:func:`~icl.theory.lfom.tables.table_risks`), and the traceless rest adds nothing to it in the mean to first order.
So the second order and what is beyond it is measured, which is small where A_l is nearly a multiple of I.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge
from jaxtyping import Float
from torch import Tensor

from icl import _checks
from icl._bounds import Count, validated
from icl.models.memformer import error_matrices
from icl.theory import lfom

#: Squared scales of the inputs, each for a third of the prompts. As 1 is among them, no weight exceeds 3.
SCALES = (1.0, 1.25, 1.6)
_AT_ONCE = 2_000


def _finite(name: str, values: Tensor) -> None:
    if not bool(torch.isfinite(values).all()):
        raise ValueError(f"{name} must be finite, got {values[~torch.isfinite(values)][0].item()}")


@validated
def sample_scaled(
    Z: Float[Tensor, "batch n d"], scales: Sequence[float] = SCALES
) -> tuple[Float[Tensor, "batch n d"], Float[Tensor, " batch"]]:
    """Rescale inputs N(0, I) by sqrt(c), for each c of `scales` in turn; return them and their importance weights v.

    Means of anything times v over these prompts are, in expectation, its means over prompts as they were drawn.

    Args:
        Z: standard normal inputs of the examples.
        scales: the c, > 0; at least one.
    """
    _checks.precision("dtype", Z.dtype)
    _finite("Z", Z)
    if not scales:
        raise ValueError("scales must hold at least one number, got none")
    c = torch.tensor([_checks.number("scales", each, above=0) for each in scales], dtype=Z.dtype, device=Z.device)
    Z = Z * c[torch.arange(len(Z), device=Z.device) % len(c)].sqrt()[:, None, None]
    size = Z.square().sum((1, 2))[:, None]
    ratio = (1 - 1 / c) * size / 2 - Z.shape[1] * Z.shape[2] / 2 * c.log()
    return Z, 1 / ratio.exp().mean(1)


def _dual_errors(H: Tensor, A: Tensor, E: Tensor, Gamma: Tensor) -> tuple[Tensor, Tensor]:
    """M_l at A and its derivative along E, by dual numbers: matrices [[a, a'], [0, a]]."""
    d = H.shape[-1]
    twice = torch.eye(2, dtype=H.dtype, device=H.device)
    both = torch.kron(twice, A)
    # The transpose of A is what multiplies.
    both[:, d:, :d] = E
    M = error_matrices(torch.kron(twice, H), both, Gamma)
    return M[..., :d, :d], M[..., :d, d:]


@validated
def corrected_risks(
    A: Float[Tensor, "L d d"],
    Gamma: Float[Tensor, "L L"],
    n: Count,
    count: Annotated[int, Ge(2)],
    *,
    generator: torch.Generator,
) -> tuple[Float[np.ndarray, " L"], Float[np.ndarray, " L"]]:
    """Population risk after 1 .. L layers, with full matrices and prompt-independent coefficients, by control variate.

    Args:
        A: preconditioners in white coordinates, Sigma^(1/2) A_l Sigma^(1/2).
        Gamma: Gamma[l, j] weighs layer j's register at layer l >= j.
        n: examples in a prompt.
        count: prompts drawn.
        generator: the stream to draw from, in A's dtype.

    Returns:
        Risks in units of y^2, and their standard errors: 0 where A_l are multiples of I.

    Raises:
        FloatingPointError: if A is so large that the risks overflow.
    """
    for name, value in (("A", A), ("Gamma", Gamma)):
        _checks.detached(name, value)
    d = A.shape[-1]
    if not len(A):
        raise ValueError(f"A must hold at least one matrix, got {tuple(A.shape)}")
    _finite("A", A)
    _checks.check_generator(generator, A.dtype)
    a = A.diagonal(dim1=1, dim2=2).mean(1)
    flat, parts = a[:, None, None] * torch.eye(d).to(A), list[Tensor]()
    for at in range(0, count, _AT_ONCE):
        shape = min(_AT_ONCE, count - at), n, d
        Z, v = sample_scaled(torch.randn(shape, generator=generator, dtype=A.dtype, device=generator.device).to(A))
        H = Z.mT @ Z / n
        p, first = _dual_errors(H, flat, A - flat, Gamma)
        rest = error_matrices(H, A, Gamma).square() - p.square() - 2 * p * first
        parts.append(v[:, None] * rest.sum((-2, -1))[:, 1:])
    rest = torch.cat(parts)
    exact = lfom.table_risks(Gamma.tril().cpu().numpy(), d, n, a.cpu().numpy())[1:]
    risks, errors = exact + rest.mean(0).cpu().numpy(), (rest.std(0) / len(rest) ** 0.5).cpu().numpy()
    if not (np.isfinite(risks).all() and np.isfinite(errors).all()):
        raise FloatingPointError(f"risks must be finite, got {risks.tolist()} with errors {errors.tolist()}")
    return risks, errors
