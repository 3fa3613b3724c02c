"""Gated heads on scalar inputs, with optional token-wise memory: the mixture of [Dutta & Sra 2025, Figs 9, 10].

In one dimension a head's blocks are numbers a_j^h. All heads read the same tokens, and layer j's register holds a_j^h
g_j x_i at token i, g_j = sum_i r_i x_i / n with the label residuals r. So heads and gates enter by one number for each
register and token, and three gated heads cost as much as one head:

    r_i <- r_i - sum_{j<=l} c_{j,i} g_j x_i,        c_{j,i} = sum_h alpha_h Gamma_{j,i}^h a_j^h

(with no memory, layer l's register alone). It is the special case of :class:`~icl.models.experts.MultiHead` in one
dimension, with scalars in place of matrices and models side by side.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks
from icl._bounds import Count, Natural, validated
from icl.tasks import Prompt


@validated
def scalar_weights(
    X: Float[Tensor, "*models batch n"],
    y: Float[Tensor, "*models batch n"],
    c: Float[Tensor, "*models L tokens"],
    *,
    memory: bool,
) -> Float[Tensor, "*models batch"]:
    """Weight w_L of the prediction w_L x_q, by the recursion of the module's head; models run side by side.

    Tokens need not be updated: with s_j = sum_i x_i^2 c_{j,i} / n and k = l - j with memory (a register is used at its
    own layer and at all later ones), else 1,

        g_l = sum_i x_i y_i / n - sum_{j<l} k s_j g_j,        w_L = sum_{j<L} k c_{j,query} g_j  (there l = L)

    Args:
        X: inputs of the examples, scalars.
        y: their labels.
        c: c_{j,i}, one for all tokens or one each, the query's last.
        memory: layers use all earlier registers again.
    """
    n = X.shape[-1]
    if not n:
        raise ValueError(f"X must have shape (..., batch, n) with n >= 1, got {tuple(X.shape)}")
    if c.shape[-1] not in (1, n + 1) or not c.shape[-2]:
        raise ValueError(f"c must have shape (..., layers, 1 or {n + 1}) to match X, got {tuple(c.shape)}")
    examples = c[..., :-1] if c.shape[-1] > 1 else c.expand(*c.shape[:-1], n)
    s, start = X.square() @ examples.mT / n, (X * y).mean(-1)
    g = list[Tensor]()
    for layer in range(c.shape[-2]):
        terms = (s[..., j] * past * (layer - j if memory else 1) for j, past in enumerate(g))
        g.append(start - sum(terms, torch.zeros_like(start)))
    layers = len(g)
    used = (c[..., j, -1, None] * past * (layers - j if memory else 1) for j, past in enumerate(g))
    return sum(used, torch.zeros_like(start))


class ScalarHeads(nn.Module):
    """Gated heads on scalar inputs, with steps a, weights Gamma shared by later layers, and free gates.

    Initialised as the Memformers of :mod:`icl.models.memformer`: a = 1, the first register alone; gates at 1/heads.

    Args:
        heads: H.
        layers: L, at least 1.
        n: examples in a prompt, at least 1.
        tokens: weights a register: 0, no memory (a linear transformer); 1, one for all tokens; n + 1, one a token.
        dtype: of the parameters.

    Attributes:
        layers: L.
        n: examples in a prompt.
    """

    @validated
    def __init__(
        self, heads: Count, layers: Count, n: Count, *, tokens: Natural = 0, dtype: torch.dtype = torch.float64
    ) -> None:
        """Start with the first register alone."""
        super().__init__()
        self.layers = layers
        _checks.fits_memory("layers", layers, 8 * layers**2)
        self.n = n
        if tokens not in (0, 1, n + 1):
            raise ValueError(f"tokens must be 0, 1 or n + 1 = {n + 1}, got {tokens}")
        self.gates = nn.Parameter(torch.full((heads,), 1 / heads, dtype=_checks.precision("dtype", dtype)))
        self.steps = nn.Parameter(torch.ones(heads, layers, dtype=dtype))
        start = torch.eye(layers, dtype=dtype)[0].view(1, layers, 1).repeat(heads, 1, max(tokens, 1))
        self.memory = nn.Parameter(start) if tokens else None

    def coefficients(self) -> Float[Tensor, "L tokens"]:
        """Coefficients c_{j,i} of the module's head: those of the single equivalent head."""
        each = self.gates[:, None] * self.steps
        if self.memory is None:
            return each.sum(0).unsqueeze(-1)
        return (each.unsqueeze(-1) * self.memory).sum(0)

    def _inputs(self, name: str, x: Tensor, time: int) -> Tensor:
        _checks.shape(name, x, (None, time, 1), "to match the model")
        _checks.dtype(name, x, self.steps.dtype, "to match the model")
        return x[..., 0]

    @validated
    def errors(self, X: Float[Tensor, "batch n 1"]) -> Float[Tensor, " batch"]:
        """Error factors M with w_L - w* = -M w* for the query, from the inputs of the n examples."""
        x = self._inputs("X", X, self.n)
        return 1 - scalar_weights(x, x, self.coefficients(), memory=self.memory is not None)

    @validated
    def forward(self, prompt: Prompt) -> Float[Tensor, " batch"]:
        """Predict the query's label."""
        x = self._inputs("x", prompt.x, self.n + 1)
        w = scalar_weights(x[:, :-1], prompt.y[:, :-1], self.coefficients(), memory=self.memory is not None)
        return w * x[:, -1]

    @classmethod
    @validated
    def gathered(cls, heads: Sequence["ScalarHeads"]) -> "ScalarHeads":
        """Combine the heads of separately trained models, with gates at 1/heads; no parameters are shared.

        Args:
            heads: at least one model, of as many layers and tokens, n and dtype; their gates go into their steps.
        """
        if not heads or not all(isinstance(head, cls) for head in heads):
            raise ValueError(f"heads must be at least one ScalarHeads, got {heads!r:.200}")

        def kind(head: Any) -> tuple[Any, ...]:
            return head.layers, head.n, 0 if head.memory is None else head.memory.shape[-1], head.steps.dtype

        kinds = {kind(head) for head in heads}
        if len(kinds) > 1:
            raise ValueError(
                f"heads must have one number of layers, n, tokens and dtype, got {sorted(map(str, kinds))}"
            )
        layers, n, tokens, dtype = kinds.pop()
        joint = cls(sum(len(head.gates) for head in heads), layers, n, tokens=tokens, dtype=dtype)
        with torch.no_grad():
            joint.steps.copy_(torch.cat([head.gates[:, None] * head.steps for head in heads]))
            if joint.memory is not None:
                joint.memory.copy_(torch.cat([head.memory for head in heads if head.memory is not None]))
        return joint
