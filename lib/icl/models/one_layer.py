"""One layer of gated linear attention as an in-context regressor, in a literal and a fast form.

The literal form runs the operator of :mod:`icl.models.operators` over the tokens and reads the last entry of the last
output (7)-(9). In the fast form the prompt enters only through one weighted Gram matrix of the tokens,

    G = sum_{i=1}^{n+1} lam^(n+1-i) z_i z_i',    y_hat = w_V' G W x_{n+1},                      (9)

(w_V the last row of W_V, W the first d columns of W_KQ), which is formed once by a matrix product and can be reused for
any parameters.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Le
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks
from icl._bounds import Count, NonNegative, OpenUnit, PositiveUnit, validated
from icl.models import operators
from icl.tasks import Prompt


@validated
def decay_weights(lam: Annotated[float | Tensor, Ge(0)], count: Count, *, like: Tensor) -> Float[Tensor, " count"]:
    """Exponential weights lam^(count-1), .., lam, 1, as integer powers: lam = 0 is allowed and has a gradient."""
    _checks.tensor("like", like)
    lam = torch.as_tensor(lam, dtype=like.dtype, device=like.device)
    if lam.dim() != 0 or (_checks.is_readable(lam) and not bool(torch.isfinite(lam))):
        raise ValueError(f"lam must be one finite number >= 0, got {lam}")
    steps = torch.cat([lam.new_ones(1), lam.expand(count - 1)])
    return steps.cumprod(0).flip(0)


@validated
def gram(
    Z: Float[Tensor, "batch time tokens"], lam: Annotated[float | Tensor, Ge(0)]
) -> Float[Tensor, "batch tokens tokens"]:
    """Weighted Gram matrix G = sum_i lam^(time-i) z_i z_i' of tokens Z with rows z_i: a sufficient statistic (9)."""
    weights = decay_weights(lam, Z.shape[1], like=Z)
    return Z.transpose(1, 2) @ (weights[:, None] * Z)


@validated
def predict(
    Z: Float[Tensor, "batch time tokens"],
    W_V: Float[Tensor, "tokens tokens"],
    W_KQ: Float[Tensor, "tokens tokens"],
    lam: Annotated[float | Tensor, Ge(0), Le(1)],
) -> Float[Tensor, " batch"]:
    """Predict by the paper's equations (7)-(9): the last entry of the last output.

    Values are W_V z_i, keys z_i, queries W_KQ z_i. W_KQ is W_K' W_Q, so that keys are the bare tokens. The reference
    for :func:`predict_from_gram`, and slower.

    Args:
        Z: tokens (x_i, y_i), the query's label 0; rows in time.
        W_V, W_KQ: merged weights.
        lam: forgetting factor.

    >>> import torch
    >>> from icl.models.one_layer import gram, predict, predict_from_gram
    >>> Z = torch.tensor([[[1.0, 0.0, 2.0], [0.0, 1.0, -1.0], [3.0, 1.0, 0.0]]])  # query (3, 1)
    >>> W_V, W_KQ = torch.diag(torch.tensor([0.0, 0.0, 1.0])), torch.diag(torch.tensor([1.0, 1.0, 0.0]))
    >>> predict(Z, W_V, W_KQ, 0.5)  # 0.5^2 * 2 * 3 - 0.5 * 1
    tensor([1.])
    >>> predict_from_gram(gram(Z, 0.5), W_V, W_KQ, Z[:, -1, :-1])
    tensor([1.])
    """
    decay = torch.as_tensor(lam, dtype=Z.dtype, device=Z.device)
    if decay.numel() != 1:
        raise ValueError(f"lam must be one number in [0, 1], got {lam}")
    q, k, v = (Z @ W_KQ.T).unsqueeze(2), Z.unsqueeze(2), (Z @ W_V.T).unsqueeze(2)
    return operators.chunked(q, k, v, decay.reshape(1, 1, 1))[:, -1, 0, -1]


@validated
def predict_from_gram(
    G: Float[Tensor, "batch tokens tokens"],
    W_V: Float[Tensor, "tokens tokens"],
    W_KQ: Float[Tensor, "tokens tokens"],
    x_query: Float[Tensor, "batch d"],
) -> Float[Tensor, " batch"]:
    """Predict from the Gram matrix (9), the fast form: w_V' G W x_query."""
    _checks.shape("x_query", x_query, (len(G), G.shape[2] - 1), "to match G")
    return torch.einsum("bi,bi->b", G @ W_V[-1], x_query @ W_KQ[:, :-1].T)


@validated
def features(
    prompt: Prompt, lam: Annotated[float | Sequence[float] | np.ndarray, Ge(0)]
) -> Float[Tensor, "*lams batch d"]:
    """Features g = sum_{i <= n} lam^(n+1-i) y_i x_i, the block of G that the optimum reads: y_hat = g' A x_query.

    For several lam, one matrix product computes them all, and the result has a leading axis for them.
    """
    if np.ndim(_checks.numbers("lam", lam)) > 1:
        raise ValueError(f"lam must be one number or have one axis, got shape {np.shape(lam)}")
    factors = np.atleast_1d(np.asarray(lam, dtype=np.float64))
    powers = torch.as_tensor(factors[:, None] ** np.arange(prompt.n, 0, -1), dtype=prompt.x.dtype).to(prompt.x.device)
    pseudo = prompt.y[:, :-1, None] * prompt.x[:, :-1]
    g = torch.einsum("ln,bnd->lbd", powers, pseudo)
    return g if np.ndim(lam) else g[0]


@validated
def predict_from_features(
    g: Float[Tensor, "*lams batch d"], A: Float[Tensor, "d d"] | np.ndarray, x_query: Float[Tensor, "batch d"]
) -> Float[Tensor, "*lams batch"]:
    """Predict from :func:`features`, (15) and (18): y_hat = g' A x_query, the layer with p = q = 0."""
    if not isinstance(A, Tensor):
        _checks.numbers("A", A)
    A = torch.as_tensor(A, dtype=g.dtype, device=g.device)
    _checks.shape("A", A, (g.shape[-1], g.shape[-1]), "to match g")
    return ((g @ A) * x_query).sum(-1)


class OneLayerGLA(nn.Module):
    """One layer of gated linear attention with merged weights W_V, W_KQ and one forgetting factor.

    Parameters start as Gaussians of standard deviation `scale` (the paper's experiments); :meth:`set_weights`
    overwrites them, for example by the optimum (14).

    Args:
        d: dimension of the inputs.
        lam: forgetting factor.
        scale: standard deviation of the initial weights.
        generator: source of the initial weights.
        dtype: of parameters and predictions.
    """

    @validated
    def __init__(
        self,
        d: Count,
        *,
        lam: PositiveUnit,
        scale: NonNegative,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Draw the initial weights."""
        super().__init__()
        _checks.fits_memory("d", d, 8 * d**2)
        self.lam = float(lam)
        drawn = torch.randn(2, d + 1, d + 1, generator=generator, dtype=dtype, device=generator.device) * scale
        self.W_V, self.W_KQ = nn.Parameter(drawn[0].clone()), nn.Parameter(drawn[1].clone())

    @torch.no_grad()
    def set_weights(self, W_V: np.ndarray | Tensor, W_KQ: np.ndarray | Tensor) -> "OneLayerGLA":
        """Overwrite the weights and return the module."""
        for name, new in (("W_V", W_V), ("W_KQ", W_KQ)):
            parameter = getattr(self, name)
            if not isinstance(new, Tensor):
                _checks.numbers(name, new)
            new = torch.as_tensor(new)
            _checks.shape(name, new, tuple(parameter.shape))
            if _checks.is_readable(new, waits=True) and not bool(torch.isfinite(new).all()):
                raise ValueError(f"{name} must be finite, got {new}")
            parameter.copy_(new)
        return self

    @validated
    def forward(self, prompt: Prompt) -> Float[Tensor, " batch"]:
        """Predict the query's label."""
        G = gram(prompt.tokens(), self.lam)
        return predict_from_gram(G, self.W_V, self.W_KQ, prompt.x[:, -1])


@validated
def window_features(prompt: Prompt, *, lam: OpenUnit, count: Count) -> Float[Tensor, "batch count"]:
    """Features x_q' ((1 - lam) G)^k (1 - lam) g, k = 0 .. count - 1, of first-order methods with forgetting.

    The predictions of every such method are linear combinations of them.

    Args:
        prompt: the query's label is not used.
        lam: forgetting factor.
        count: number of steps of a first-order method.
    """
    if not _checks.number("lam", lam, above=0) < 1:
        raise ValueError(f"lam must be < 1, got {lam!r}")
    x, y, query = prompt.x[:, :-1], prompt.y[:, :-1], prompt.x[:, -1]
    # The oldest of n examples has weight lam^n, the newest lam.
    weights = lam * (1 - lam) * decay_weights(lam, prompt.n, like=x)
    faded = (weights[:, None] * x).mT
    G, vector = faded @ x, (faded @ y.unsqueeze(-1)).squeeze(-1)
    features = []
    for _ in range(count):
        features.append((vector * query).sum(-1))
        vector = (G @ vector.unsqueeze(-1)).squeeze(-1)
    return torch.stack(features, dim=-1)
