"""What steps of gradient descent on one decayed window can reach: polynomials of its Gram matrix.

L steps of any first-order method from 0 on the window's least squares, sum_i lam^(n+1-i) (y_i - w'x_i)^2, give a
prediction x_q' p(G) g with p of degree L - 1, G = sum_i lam^(n+1-i) x_i x_i' and g = sum_i lam^(n+1-i) y_i x_i. With
the best coefficients for all prompts this bounds every such method with fixed steps: plain, Chebyshev's, or learnt.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from icl import _checks
from icl.models.gla import decay_weights
from icl.tasks import Prompt


def window_features(prompt: Prompt, *, lam: float, count: int) -> Float[Tensor, "batch count"]:
    """x_q' ((1 - lam) G)^k (1 - lam) g for k = 0 .. count - 1: predictions are their combinations.

    Args:
        prompt: the query's label is not used.
        lam: forgetting factor in (0, 1).
        count: how many steps of a first-order method, at least 1.
    """
    _checks.instance("prompt", prompt, Prompt)
    if not _checks.number("lam", lam, above=0) < 1:
        raise ValueError(f"lam must be < 1, got {lam!r}")
    _checks.integer("count", count, at_least=1)
    x, y, query = prompt.x[:, :-1], prompt.y[:, :-1], prompt.x[:, -1]
    # The oldest of n examples has weight lam^n, the newest lam.
    weights = lam * (1 - lam) * decay_weights(lam, prompt.n, like=x)
    vector = torch.einsum("n,bn,bnd->bd", weights, y, x)
    features = []
    for _ in range(count):
        features.append((vector * query).sum(-1))
        vector = torch.einsum("bnd,bn->bd", x, weights * torch.einsum("bnd,bd->bn", x, vector))
    return torch.stack(features, dim=-1)
