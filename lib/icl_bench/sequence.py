"""In-context model around any sequence layer: tokenised prompts, embedding, blocks, read-out.

A prompt of n examples and a query is a sequence of 2 n + 1 tokens, each example preceded by its query:

    (x_1, 0, 0), (x_1, y_1, 1), (x_2, 0, 0), (x_2, y_2, 1), ..., (x_{n+1}, 0, 0)

    h = E token + e
    h <- h + mixer(RMSNorm(h)),    h <- h + MLP(RMSNorm(h)),    `depth` times, the MLP of width 2 * width with GELU
    answer = r'RMSNorm(h) + c at the queries

:class:`InContext` is that model around any layer. A causal layer predicts every label from the tokens before it, in one
pass; :mod:`icl_bench.validation` tests causality. :class:`Projected` makes a layer of a bare operator on queries, keys,
values and gates. Tokens have no positional encoding: a layer that needs one brings its own.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks
from icl._bounds import Count, validated
from icl.models.causal import Causal
from icl.tasks import Prompt

_Sequence = Float[Tensor, "batch tokens width"]
_Labels = Float[Tensor, "batch time"]

#: Head dimension of attention.
HEAD = 16
#: Initial gate bias: sigmoid(a'h + 3) starts at 0.95, an effective window of twenty tokens.
_HOLDS = 3.0


@validated
def heads_for(width: Count) -> int:
    """Number of heads of a layer of this width: one for each sixteen numbers, at least one.

    Args:
        width: of the layer.
    """
    return max(1, width // HEAD)


@validated
def tokens(x: Float[Tensor, "batch time d"], y: _Labels) -> Float[Tensor, "batch tokens d+2"]:
    """Tokenise prompts to 2 time - 1 tokens: queries (x_i, 0, 0) at even indices, examples (x_i, y_i, 1) at odd ones.

    Args:
        x: inputs.
        y: their labels; the last is ignored.
    """
    _checks.shape("x", x, (None, None, None))
    _checks.shape("y", y, tuple(x.shape[:2]), "to match x")
    _checks.dtype("y", y, x.dtype, "that of x")
    batch, time, d = x.shape
    out = x.new_zeros(batch, 2 * time - 1, d + 2)
    out[:, ::2, :d] = x
    out[:, 1::2, :d] = x[:, :-1]
    out[:, 1::2, d] = y[:, :-1]
    out[:, 1::2, d + 1] = 1
    return out


def _same_shape(who: str, out: Any, h: Tensor) -> Tensor:
    """Check that a layer's output, or its first item, has the shape and dtype of its input.

    Args:
        who: name of the layer in messages.
        out: its output.
        h: its input.

    Raises:
        ValueError: if it is no tensor of that shape and dtype; broadcasting would hide the error.
    """
    first = out[0] if isinstance(out, tuple | list) and out else out
    if not isinstance(first, Tensor):
        raise ValueError(f"{who} must return a tensor, or a tuple with one in front, got {type(first).__name__}")
    if first.shape != h.shape:
        raise ValueError(
            f"{who} must return (batch, time, width) = {tuple(h.shape)} as it was given, got {tuple(first.shape)}"
        )
    if first.dtype != h.dtype:
        raise ValueError(f"{who} must return {h.dtype} as it was given, got {first.dtype}")
    return first


class Block(nn.Module):
    """Pre-norm residual block: h + mixer(RMSNorm h), then h + MLP(RMSNorm h).

    Args:
        width: numbers a token.
        mixer: the layer, (batch, time, width) to the same; if it returns a tuple, the first item is used.
    """

    @validated
    def __init__(self, width: Count, mixer: nn.Module) -> None:
        """Wrap the layer with norms and an MLP."""
        super().__init__()
        _checks.fits_memory("width", width, 4 * width**2)
        self.norm, self.mixer = nn.RMSNorm(width), mixer
        self.mlp = nn.Sequential(nn.RMSNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, h: _Sequence) -> _Sequence:
        """Output of the block."""
        normed = self.norm(h)
        h = h + _same_shape(type(self.mixer).__name__, self.mixer(normed), normed)
        out: Tensor = h + self.mlp(h)
        return out


class BlockStack(nn.Sequential):
    """Stack of blocks, one per layer.

    Args:
        width: numbers a token.
        mixers: the layers, at least one.
    """

    @validated
    def __init__(self, width: Count, mixers: Sequence[nn.Module]) -> None:
        """Wrap every layer in a block."""
        blocks = [Block(width, mixer) for mixer in mixers]
        if not blocks:
            raise ValueError("mixers must hold at least one layer, got none")
        super().__init__(*blocks)


class InContext(Causal):
    """In-context regression model around any sequence-to-sequence module.

    Args:
        d: dimension of the inputs.
        width: numbers a token.
        body: :class:`BlockStack` of layers, or a whole model in their place, (batch, time, width) to the same; if it
            returns a tuple, the first item is used.
    """

    @validated
    def __init__(self, d: Count, width: Count, body: nn.Module) -> None:
        """Add the embedding and the read-out."""
        super().__init__()
        self.d = d
        self.width = width
        _checks.fits_memory("width", width, 4 * width**2)
        self.embedding = nn.Linear(d + 2, width)
        self.body = body
        self.norm, self.readout = nn.RMSNorm(width), nn.Linear(width, 1)

    @validated
    def answers(self, x: Float[Tensor, "batch time d"], y: _Labels) -> _Labels:
        """Predict y_hat_j at every position, from the tokens up to its query; the last label is ignored."""
        self.checked(x, y)
        h = self.embedding(tokens(x, y))
        h = _same_shape(type(self.body).__name__, self.body(h), h)
        read: Tensor = self.readout(self.norm(h[:, ::2])).squeeze(-1)
        return read

    @validated
    def errors(self, x: Float[Tensor, "batch time d"], y: _Labels) -> _Labels:
        """Prediction errors y_j - y_hat_j at every position."""
        return y - self.answers(x, y)

    @validated
    def predictions(self, prompt: Prompt) -> _Labels:
        """Predict every label without using it, not even through rounding."""
        return self.answers(prompt.x, prompt.y)


_OPERATOR = ("q", "k", "v", "g", "decay", "beta")


@validated
def operator_gates(operator: Callable[..., Any]) -> tuple[str, ...]:
    """Gate parameters of an operator: "g" (or its synonym "decay") and "beta", those that it has.

    Args:
        operator: a function of q, k, v.

    Raises:
        ValueError: if it is no such function, or has another required parameter.
    """
    parameters = inspect.signature(operator).parameters
    if not {"q", "k", "v"} <= set(parameters):
        raise ValueError(f"operator must have parameters named q, k and v, got {', '.join(parameters) or 'none'}")
    if {"g", "decay"} <= set(parameters):
        raise ValueError("operator must have one of g and decay, which are the same, got both")
    lacking = [
        name
        for name, each in parameters.items()
        if name not in _OPERATOR
        and each.default is each.empty
        and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if lacking:
        raise ValueError(
            f"operator is told q, k, v and, if it asks for them, g (or decay) and beta, but it needs "
            f"{', '.join(lacking)}: give a default, or write a function of these that calls it (g.log() is the "
            "logarithm of a gate)"
        )
    return tuple(name for name in ("g", "decay", "beta") if name in parameters)


class Projected(nn.Module):
    """Layer around a bare operator: input and output projections, and gates if it has parameters for them.

    q, k, v = three linear maps of h, (batch, time, heads, dim) with heads * dim = width; the operator's output has the
    shape of v and goes through an output projection. Gates are (batch, time, heads), one number a token and head, each
    a sigmoid of a linear map of h and so strictly between 0 and 1:

    - g (or decay) is the forgetting factor of the state at this token; 1 keeps all. It is not a logarithm. It is about
      0.95 at initialisation;
    - beta is the write strength of the token; about 0.5 at initialisation.

    Scales: q is divided by sqrt(dim); with beta, as in a delta rule, q and k are normalised to length 1 instead.

    Args:
        operator: a function with parameters named q, k, v and, if it wants them, g or decay, and beta.
        width: numbers a token, a multiple of heads.
        heads: number of heads; None is one for each sixteen numbers of the width.
        state: the operator's state size after so many tokens, if known.

    Raises:
        ValueError: if the operator lacks a parameter q, k or v, or has another required one.
    """

    @validated
    def __init__(
        self,
        operator: Callable[..., Any],
        width: Count,
        *,
        heads: Count | None = None,
        state: Callable[[int], int] | None = None,
    ) -> None:
        """Initialise the projections."""
        super().__init__()
        self.gates = operator_gates(operator)
        _checks.fits_memory("width", width, 4 * width**2)
        self.heads = heads_for(width) if heads is None else heads
        if width % self.heads:
            raise ValueError(f"width must be a multiple of heads, got {width} and {self.heads}")
        if state is not None and not callable(state):
            raise ValueError(f"state must be a function of the number of tokens, got {state!r}")
        self.operator, self.state = operator, state
        # Fused projection: one product of three times the width is faster than three.
        self.inward = nn.Linear(width, 3 * width, bias=False)
        self.gate = nn.Linear(width, len(self.gates) * self.heads) if self.gates else None
        if self.gate is not None:
            holds = [_HOLDS if name != "beta" else 0.0 for name in self.gates]
            with torch.no_grad():
                self.gate.bias.copy_(torch.tensor(holds).repeat_interleave(self.heads))
        self.outward = nn.Linear(width, width, bias=False)

    @validated
    def state_numel(self, time: Count) -> int | None:
        """State size after so many tokens, if known."""
        return None if self.state is None else self.state(time)

    def forward(self, h: _Sequence) -> _Sequence:
        """Project, operate, project back."""
        batch, time, width = h.shape
        q, k, v = self.inward(h).view(batch, time, 3, self.heads, -1).unbind(2)
        gates: dict[str, Tensor] = {}
        if self.gate is not None:
            opened = torch.sigmoid(self.gate(h)).view(batch, time, len(self.gates), self.heads)
            gates = dict(zip(self.gates, opened.unbind(2), strict=True))
        if "beta" in gates:
            q, k = nn.functional.normalize(q, dim=-1), nn.functional.normalize(k, dim=-1)
        else:
            q = q * (width // self.heads) ** -0.5
        out = _same_shape(getattr(self.operator, "__name__", "the operator"), self.operator(q=q, k=k, v=v, **gates), v)
        outputs: Tensor = self.outward(out.reshape(batch, time, width))
        return outputs
