"""Built-in contestants: full-width layers, the book's layers, tuned recurrences, models of other packages.

Four families, distinguished by their names:

- `gla`, `softmax` and others without a prefix are full-width layers between embedding, norms, MLPs and read-out, as
  a user's own layer is;
- `gpt2`, `mambapy` and the like are models of another package, which replace all blocks;
- `book-gla` and others of that prefix are the book's layers, applied to inputs and labels directly, without an
  embedding; their few parameters are initialised as in the chapter *One benchmark on drifting tasks*;
- `tuned-gla` and others of that prefix are the same recurrences with one or two hyperparameters, tuned on the task by
  grid search instead of trained.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks, filters
from icl._bounds import Count, validated
from icl.experiments.tuning import LAYERS
from icl.models import operators
from icl.models.causal import Causal, Normalised
from icl.models.convolved import Convolved
from icl.models.delta_layers import LFOM, DeltaRule, GatedDelta, Kalman, Longhorn, Mesa
from icl.models.fast_weights import GLA, LengthGate, LinearAttention, Mamba2, RetNet, retention
from icl.models.stacks import DeltaStack, GatedDeltaStack, Stack
from icl.models.streaming_stacks import LayeredDelta, LayeredGLA, selected_at_random
from icl_bench.adapters import MambaPy, hugging_face
from icl_bench.sequence import Projected, heads_for

_Sequence = Float[Tensor, "batch tokens width"]
_Heads = Float[Tensor, "batch heads tokens dim"]


class Softmax(nn.Module):
    """Causal softmax attention without positional encoding.

    Args:
        width: numbers a token, a multiple of heads.
        heads: number of heads; None is one for each sixteen numbers of the width.
    """

    @validated
    def __init__(self, width: Count, heads: Count | None = None) -> None:
        """Initialise the projections."""
        super().__init__()
        _checks.fits_memory("width", width, 4 * width**2)
        self.heads = heads_for(width) if heads is None else heads
        if width % self.heads:
            raise ValueError(f"width must be a multiple of heads, got {width} and {self.heads}")
        self.width = width
        self.inward = nn.Linear(width, 3 * width, bias=False)
        self.outward = nn.Linear(width, width, bias=False)

    @validated
    def state_numel(self, time: Count) -> int:
        """Size of the key-value cache."""
        return 2 * time * self.width

    def forward(self, h: _Sequence) -> _Sequence:
        """Causal attention output at every token."""
        batch, time, width = h.shape
        q, k, v = self.inward(h).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        out: Tensor = self.outward(self._attend(q, k, v).transpose(1, 2).reshape(batch, time, width))
        return out

    def _attend(self, q: _Heads, k: _Heads, v: _Heads) -> _Heads:
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Alibi(Softmax):
    """Causal softmax attention with linear biases (ALiBi): scores fall by m_h per token [Press et al. 2022].

    m_h = 2^(-8 h / heads) for h = 1 .. heads.
    """

    def _attend(self, q: _Heads, k: _Heads, v: _Heads) -> _Heads:
        time = q.shape[-2]
        place = torch.arange(time, device=q.device)
        back = (place.unsqueeze(-1) - place).to(q.dtype)
        slope = 2.0 ** (-8 / self.heads * torch.arange(1, self.heads + 1, device=q.device, dtype=q.dtype))
        # Explicit batch axis: without it torch takes a path several times slower.
        bias = torch.where(back >= 0, -slope[:, None, None] * back, -torch.inf).unsqueeze(0)
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)


class Rotary(Softmax):
    """Causal softmax attention with rotary position embedding (RoPE) of q and k [Su et al. 2021]."""

    def _attend(self, q: _Heads, k: _Heads, v: _Heads) -> _Heads:
        time, dim = q.shape[-2:]
        if dim % 2:
            raise ValueError(f"width must give each head an even number of dimensions, got {dim}")
        rate = 10_000.0 ** (-torch.arange(0, dim, 2, device=q.device, dtype=q.dtype) / dim)
        angle = torch.arange(time, device=q.device, dtype=q.dtype).unsqueeze(-1) * rate
        cos, sin = angle.cos(), angle.sin()

        def rotate(u: Tensor) -> Tensor:
            a, b = u[..., : dim // 2], u[..., dim // 2 :]
            return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)

        return super()._attend(rotate(q), rotate(k), v)


class Lstm(nn.Module):
    """One LSTM layer, torch's own [Hochreiter & Schmidhuber 1997].

    Args:
        width: of the token, of the hidden and of the cell state.
    """

    @validated
    def __init__(self, width: Count) -> None:
        """Initialise the layer."""
        super().__init__()
        self.width = width
        _checks.fits_memory("width", width, 4 * width**2)
        self.lstm = nn.LSTM(width, width, batch_first=True)

    @validated
    def state_numel(self, time: Count) -> int:
        """Size of hidden and cell state."""
        return 2 * self.width

    def forward(self, h: _Sequence) -> _Sequence:
        """Hidden state after every token."""
        out: Tensor = self.lstm(h)[0]
        return out


def _matrix_state(q: Tensor) -> Tensor:
    return q.new_ones(1, 1, 1)


def linear(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Linear attention without forgetting: S <- S + v k' [Katharopoulos et al. 2020].

    Args:
        q: queries, (batch, time, heads, dim).
        k: keys, the same.
        v: values, the same.
    """
    return operators.chunked(q, k, v, _matrix_state(q))


def delta(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """Delta rule: S <- S + beta (v - S k) k' [Schlag et al. 2021].

    Args:
        q: queries, (batch, time, heads, dim).
        k: keys, the same.
        v: values, the same.
        beta: write strengths, (batch, time, heads).
    """
    return operators.delta_chunked(q, k, v, _matrix_state(q), beta)


def _project(operator: Callable[..., Tensor]) -> Callable[..., nn.Module]:
    def build(width: int, heads: int) -> nn.Module:
        # State of one dim x dim matrix per head.
        return Projected(operator, width, heads=heads, state=lambda time: width * width // heads)

    return build


@dataclass(frozen=True, eq=False)
class Known:
    """Catalogue entry: a built-in contestant.

    Attributes:
        kind: as :class:`~icl_bench.entries.Contestant` has it.
        about: one plain sentence.
        factory: factory, or the object itself.
        needs: required packages.
    """

    kind: str
    about: str
    factory: Any
    needs: tuple[str, ...] = ()


def _layer(operator: Callable[..., Tensor], about: str) -> Known:
    return Known("operator", about, _project(operator))


def _external_model(about: str, config: str, *needs: str, **settings: Any) -> Known:
    factory = hugging_face(config, **settings)
    return Known("transformers", f"transformers' {about}.", factory, ("transformers", *needs))


_FULL = {
    "softmax": Known("layer", "Softmax attention without positions.", Softmax),
    "softmax-alibi": Known("layer", "Softmax attention that prefers what is near (ALiBi).", Alibi),
    "softmax-rotary": Known("layer", "Softmax attention with rotary positions.", Rotary),
    "linear-attention": _layer(linear, "Linear attention, which forgets nothing."),
    "gla": _layer(operators.chunked, "Gated linear attention: a gate per token and head says how much is held."),
    "delta-rule": _layer(delta, "The delta rule: writes what the state got wrong."),
    "gated-delta": _layer(operators.delta_chunked, "The delta rule with a gate per token and head."),
    "lstm": Known("layer", "torch's LSTM.", Lstm),
}

_OTHERS = {
    "gpt2": _external_model("GPT-2, learned positions", "GPT2Config"),
    "llama": _external_model("Llama, rotary positions", "LlamaConfig"),
    # Without GPU kernels, mambapy's scan trains twice as fast as transformers' loop.
    "mamba": _external_model("Mamba", "MambaConfig", "mambapy", use_mambapy=True),
    "mamba2": _external_model("Mamba-2", "Mamba2Config"),
    "mambapy": Known("model", "mambapy's Mamba, whose scan is parallel in time.", MambaPy, ("mambapy",)),
}


def _generator() -> torch.Generator:
    """Random stream seeded from torch's global one, which the caller has seeded."""
    return torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=torch.default_generator).item()))


def _s6(d: int) -> Causal:
    return selected_at_random(d, generator=_generator())


def _lfom(d: int) -> Causal:
    """LFOM of four gradient-descent steps of size s: sum_j s (1 - s H)^j, expanded in powers of H."""
    s = 0.3
    return LFOM(d, c=[4 * s, -6 * s**2, 4 * s**3, -(s**4)])


def _convolution(d: int) -> Causal:
    return Convolved(d, width=4, generator=_generator())


def _gated_delta(d: int) -> Causal:
    return GatedDelta(d, LengthGate(d), LengthGate(d), lam=0.95, beta=0.9)


#: Single layers are initialised as in `icl_bench.comparison`, and the others likewise.
_BOOK: dict[str, tuple[str, Callable[[int], Causal]]] = {
    "linear-attention": ("w <- w + mu y x", lambda d: LinearAttention(d, mu=0.01)),
    "gla": ("w <- lam (w + mu y x)", lambda d: GLA(d, lam=0.9, mu=0.06)),
    "retnet": ("four of these at fixed lam, read together", lambda d: RetNet(d, lam=retention(4), mu=0.03)),
    "mamba2": ("lam and mu from the length of x", lambda d: Mamba2(d, LengthGate(d), A=1.0, Delta=0.1, mu=0.5)),
    "delta-rule": ("w <- lam (w + mu (y - w'x) x)", lambda d: DeltaRule(d, lam=0.95, mu=0.07)),
    "gated-delta": ("the same on keys of length 1, gated by the length of x", _gated_delta),
    "longhorn": ("w <- lam (w + (y - w'x) x / (eps + x'x))", lambda d: Longhorn(d, lam=0.95, eps=0.5)),
    "lfom": ("four steps on the mean of all examples, none forgotten", _lfom),
    "mesa": ("ridge regression that fades its examples", lambda d: Mesa(d, lam=0.95, eps=1.0)),
    "kalman": (
        "the Kalman filter of a first-order drift",
        lambda d: Kalman(d, gamma=0.95, sigma_e=0.1, sigma_y=0.2, P_0=0.1),
    ),
    "s6": ("the S6 layer of Mamba, a state of 16", _s6),
    "gla-6": ("six layers of it on normalised inputs", lambda d: LayeredGLA(Normalised(Stack(d, 6)))),
    "delta-rule-4": ("four layers of it", lambda d: LayeredDelta(DeltaStack(d, 4))),
    "convolved": ("a delta rule whose gates see the newest four inputs", _convolution),
    "gated-delta-4": ("four layers of it", lambda d: LayeredDelta(GatedDeltaStack(d, 4))),
}

#: All built-in contestants, in display order.
CONTESTANTS: dict[str, Known] = {
    **_FULL,
    **_OTHERS,
    **{f"book-{name}": Known("causal", f"The book's layer: {about}.", made) for name, (about, made) in _BOOK.items()},
    **{
        f"tuned-{name.lower().replace(' ', '-')}": Known(
            "tunable", f"{name}, its settings searched on the task.", layer
        )
        for name, layer in LAYERS.items()
    },
    "answer-0": Known("filter", "Answers 0 to everything.", filters.zero),
}
