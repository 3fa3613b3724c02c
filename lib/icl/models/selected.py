"""S6 on a stream of examples: the layer of `icl.models.mamba` with every position a query.

An example (x, y) writes to the state and a query (x, 0) reads it, both with the vectors and the step that the layer
makes of that token. Position i is answered from the state that the examples before it left, faded by the query's own
step; the query writes nothing, its label channel being 0. That is what the layer predicts on the prompt of those
examples and that query.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from icl.models.fast_weights import FastWeights, Hidden
from icl.models.gated import read_strictly
from icl.models.mamba import S6, Selective, held


class Selected(FastWeights[Hidden]):
    """One S6 layer that answers at every position.

    Args:
        layer: an S6 layer with selective B and C, one rate, and tokens (x, y); its parameters are shared, not copied.
    """

    def __init__(self, layer: S6) -> None:
        """Keep the layer."""
        if not isinstance(layer, S6):
            raise ValueError(f"layer must be an icl.models.mamba.S6, got {layer!r}")
        if not isinstance(layer.B, Selective) or not isinstance(layer.C, Selective):
            raise ValueError(f"layer must have Selective B and C, got {layer!r}")
        if len(layer.log_rate) != 1:
            raise ValueError(f"layer must have one rate, got {len(layer.log_rate)}")
        d_h, width = layer.B.W.shape
        super().__init__(width - 1)
        self.layer, self.d_h = layer, d_h

    def errors(self, x: Float[Tensor, "batch time d"], y: Float[Tensor, "batch time"]) -> Float[Tensor, "batch time"]:
        """y_j - y_hat_j at every position, all at once."""
        self.checked(x, y)
        token, asked = _tokens(x, y), _tokens(x, torch.zeros_like(y))
        decay, gain = held(self.layer.A, self.layer.step(token))
        written = (gain * self.layer.B(token)).unsqueeze(2)
        read = read_strictly(self.layer.C(asked).unsqueeze(2), written, y[..., None, None], decay)
        return y - held(self.layer.A, self.layer.step(asked))[0][..., 0] * read[..., 0, 0]

    def _start(self, w_hat: Tensor) -> Hidden:
        return Hidden(w_hat[:, :1].repeat(1, self.d_h))

    def _write(self, state: Hidden, x: Tensor, y: Tensor) -> Hidden:
        token = _tokens(x, y).unsqueeze(1)
        decay, gain = held(self.layer.A, self.layer.step(token))
        written = (gain * self.layer.B(token))[:, 0]
        return Hidden(torch.addcmul(decay[:, 0] * state.h, written, y.unsqueeze(-1)))

    def _read(self, state: Hidden, x: Tensor) -> Tensor:
        asked = _tokens(x, torch.zeros_like(x[:, 0])).unsqueeze(1)
        decay = held(self.layer.A, self.layer.step(asked))[0][:, 0, 0]
        return decay * (state.h * self.layer.C(asked)[:, 0]).sum(-1)


def _tokens(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x, y.unsqueeze(-1)], dim=-1)
