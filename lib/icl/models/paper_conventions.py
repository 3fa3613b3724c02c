"""Stacked gated linear attention with full matrices, and the conventions that the paper leaves open.

The paper gives one layer: values W_V z, keys z, queries W_KQ z, read-out of the last entry (5)-(9). For more layers it
names neither a residual connection, nor whether a token reads itself, nor the read-out's sign. :class:`Convention`
states them.

Here every position is a query. That takes two streams: examples (x_j, y_j), which write and read, and queries (x_j, 0),
which only read, from the examples before them. Position j of the query stream equals the last token of the prompt
(x_1, y_1), .., (x_{j-1}, y_{j-1}), (x_j, 0).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Gt, Lt
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks
from icl._bounds import Count, NonNegative, validate_fields, validated
from icl.models.causal import Causal
from icl.models.stacks import factors, read_strictly


@dataclass(frozen=True)
class Convention:
    """Convention for stacked layers, which (5)-(9) leave open.

    Attributes:
        residual: add a layer's output to its input; otherwise replace the input.
        strict: tokens read earlier tokens only; otherwise themselves as well, as in (5).
        sign: the prediction is this times the last entry of the last token: +1 as in (9), or -1.
    """

    residual: bool
    strict: bool
    sign: int

    def __post_init__(self) -> None:
        """Validate the fields."""
        validate_fields(self)
        _checks.one_of("sign", self.sign, (1, -1))


#: (5)-(9), applied repeatedly.
LITERAL = Convention(residual=False, strict=False, sign=1)
#: The convention that trains best, reduced by symmetry in `icl.models.stacks`.
BEST = Convention(residual=True, strict=True, sign=-1)


@validated
def predictions(
    x: Float[Tensor, "batch time d"],
    y: Float[Tensor, "batch time"],
    W_V: Float[Tensor, "layers tokens tokens"],
    W_KQ: Float[Tensor, "layers tokens tokens"],
    lam: Float[Tensor, " layers"],
    reading: Convention,
) -> Float[Tensor, "batch time"]:
    """Predictions y_hat at every position, each from the examples before it."""
    size = x.shape[2] + 1
    _checks.shape("W_V", W_V, (None, size, size), "to match the tokens")
    _checks.precision("dtype", x.dtype)
    _checks.gate("lam", lam, at_most=1)
    examples = torch.cat([x, y.unsqueeze(-1)], dim=-1)
    queries = torch.cat([x, torch.zeros_like(y).unsqueeze(-1)], dim=-1)
    for layer, (value, key_query, factor) in enumerate(zip(W_V, W_KQ, lam, strict=True), 1):
        if layer < len(lam):
            # Both streams read the examples: two heads with the same keys and values.
            query_tokens = stream = torch.stack([examples, queries], dim=2)
        else:
            # Of the last layer only the queries' labels are read.
            query_tokens = queries.unsqueeze(2)
            stream, value = query_tokens[..., -1:], value[-1:]
        q = query_tokens @ key_query.T
        k = examples.unsqueeze(2).expand_as(q)
        v = (examples @ value.T).unsqueeze(2).expand_as(stream)
        # Read before the label is written: subtracting it afterwards would leave its rounding.
        read = read_strictly(q, k, v, factor.view(1, 1, 1)) * factor
        if not reading.strict:
            # A token reads itself: the query its own token, without a label, not the example's.
            read = read + (q * query_tokens).sum(-1, keepdim=True) * (query_tokens @ value.T)
        changed = stream + read if reading.residual else read
        examples, queries = changed[:, :, 0], changed[:, :, -1]
    return reading.sign * queries[..., -1]


class FullStack(Causal):
    """Layers with full W_V and W_KQ and a forgetting factor each, under a given convention.

    Args:
        d: dimension of the inputs.
        layers: L.
        reading: the convention.
        scale: standard deviation of the initial Gaussian weights (the paper's experiments).
        generator: source of the initial weights.
        lam: initial forgetting factors (:class:`~icl.models.stacks.Stack`); freeze `log_odds` to hold them there.
        dtype: of the parameters.
    """

    @validated
    def __init__(
        self,
        d: Count,
        layers: Count,
        *,
        reading: Convention,
        scale: NonNegative,
        generator: torch.Generator,
        lam: Annotated[float | Sequence[float], Gt(0), Lt(1)] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Draw the initial weights."""
        super().__init__()
        self.d = d
        self.layers = layers
        _checks.fits_memory("d", d, 16 * layers * d**2)
        self.reading = reading
        self.log_odds = nn.Parameter(torch.logit(factors(layers, lam, dtype)))
        shape = (2, layers, d + 1, d + 1)
        drawn = torch.randn(shape, generator=generator, dtype=dtype, device=generator.device) * scale
        self.W_V, self.W_KQ = nn.Parameter(drawn[0].clone()), nn.Parameter(drawn[1].clone())

    @property
    def lam(self) -> Float[Tensor, " layers"]:
        """Forgetting factor of each layer."""
        return torch.sigmoid(self.log_odds).expand(self.layers)

    @validated
    def errors(self, x: Float[Tensor, "batch time d"], y: Float[Tensor, "batch time"]) -> Float[Tensor, "batch time"]:
        """y_j - y_hat_j at every position."""
        self.checked(x, y)
        return y - predictions(x, y, self.W_V, self.W_KQ, self.lam, self.reading)
