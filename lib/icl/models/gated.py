"""Gates that look at the token: the stack with decays and write strengths that depend on the data.

    S_t = g_t S_{t-1} + beta_t v_t k_t',    o_t = S_{t-1} q_t                                    (5), read strictly

with k = q = x and v = (x, y), layer by layer as in `icl.models.stack`, which this equals when gates are constant. A
gate may look at its own token, label included: it acts on what is read later, and the model stays causal.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks
from icl.models import linear_attention
from icl.models.causal import Causal
from icl.models.stack import factors


def read_strictly(
    q: Float[Tensor, "batch time heads key"],
    k: Float[Tensor, "batch time heads key"],
    v: Float[Tensor, "batch time heads value"],
    decay: Float[Tensor, "#batch #time #heads"],
) -> Float[Tensor, "batch time heads value"]:
    """o_t = S_{t-1} q_t with S_t = g_t S_{t-1} + v_t k_t' (5): token t reads what those before it have left.

    With one decay lam for all this is sum_{i<t} lam^(t-1-i) (q_t'k_i) v_i. Layout of `icl.models.linear_attention`.
    """
    _checks.shape("q", q, (None, None, None, None))
    # The state after token t - 1 is asked with the query of token t; the first token finds nothing.
    later = torch.cat([q[:, 1:], q[:, :1]], dim=1)
    read = linear_attention.chunked(later, k, v, decay)
    return torch.cat([torch.zeros_like(read[:, :1]), read[:, :-1]], dim=1)


class GatedStack(Causal):
    """The stack with gates: decay by token, by channel or both, and a write strength by token.

        g_t   = sigmoid(a + b (||x_t||^2 / d - 1) + c log(1 + y_t^2)),    one a layer, or one a channel of the keys
        v_t   -> v_t (||x_t||^2 / d)^-p

    x_t and y_t are the layer's own tokens, so that deeper layers see errors in place of labels. It starts as the plain
    stack, b = c = p = 0; a parameter frozen there (`requires_grad_(False)`) leaves that gate out. With c = 0 it is
    linear in the labels.

    Args:
        d: dimension of the inputs.
        layers: L, at least 1.
        channels: 1, or d for a decay of each channel of the keys (of each input coordinate, here).
        lam: where forgetting factors start (`icl.models.stack.Stack`).
        dtype: of the parameters.
    """

    def __init__(
        self,
        d: int,
        layers: int,
        *,
        channels: int = 1,
        lam: float | Sequence[float] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Start as the plain stack starts."""
        super().__init__()
        self.d = _checks.integer("d", d, at_least=1)
        self.layers = _checks.integer("layers", layers, at_least=1)
        if _checks.integer("channels", channels, at_least=1) not in (1, d):
            raise ValueError(f"channels must be 1 or d = {d}, got {channels!r}")
        self.channels = channels
        start = torch.logit(factors(layers, lam, dtype)).expand(layers)
        self.a = nn.Parameter(start.unsqueeze(1).repeat(1, channels))
        self.b, self.c, self.p = (nn.Parameter(torch.zeros(layers, dtype=dtype)) for _ in range(3))
        self.s_x = nn.Parameter(torch.full((layers - 1,), 0.5 / layers, dtype=dtype))
        self.s_y = nn.Parameter(torch.full((layers,), 1.0 / layers, dtype=dtype))

    @property
    def lam(self) -> Float[Tensor, "layers channels"]:
        """Decay of each layer and channel at a token of ordinary length whose label is 0."""
        return torch.sigmoid(self.a)

    def gates(self, x: Tensor, y: Tensor, layer: int) -> Float[Tensor, "batch time channels"]:
        """g_t of one layer, given its tokens."""
        surprise = self.b[layer] * (x.square().mean(-1) - 1) + self.c[layer] * torch.log1p(y.square())
        return torch.sigmoid(self.a[layer] + surprise.unsqueeze(-1))

    def errors(self, x: Float[Tensor, "batch time d"], y: Float[Tensor, "batch time"]) -> Float[Tensor, "batch time"]:
        """y_j - y_hat_j at every position."""
        self.checked(x, y)
        for layer in range(self.layers):
            # With a key of 0 nothing is written at any strength, and 1 has a power and a gradient.
            power = x.square().mean(-1)
            strength = torch.where(power > 0, power, 1.0).pow(-self.p[layer])
            written = torch.cat([x, y.unsqueeze(-1)], dim=-1) * strength.unsqueeze(-1)
            # A channel is a head whose key is one number: reads of heads add up.
            keys = x.unsqueeze(2) if self.channels == 1 else x.unsqueeze(3)
            values = written.unsqueeze(2).expand(-1, -1, self.channels, -1)
            lam = self.lam[layer].unsqueeze(-1)
            total = (read_strictly(keys, keys, values, self.gates(x, y, layer)) * lam * (1 - lam)).sum(2)
            if layer < self.layers - 1:
                x = x - self.s_x[layer] * total[..., :-1]
            y = y - self.s_y[layer] * total[..., -1]
        return y
