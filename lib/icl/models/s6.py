"""The S6 layer of Mamba on regression prompts [Jiang et al. 2025, sec. 3]: selection, zero-order hold, recurrence.

Every channel i of the tokens u_l has a state h_l of d_h numbers that decays and is written to,

    h_l = exp(Delta_l A) h_{l-1} + A^-1 (exp(Delta_l A) - I) B_l u_l[i],    o_l[i] = C_l' h_l,            (1), (2)
    B_l = W_B u_l + b_B,    C_l = W_C u_l + b_C,    Delta_l = softplus(w_Delta' u_l + b_Delta),           (3) - (5)

with A diagonal and negative and h_0 = 0. The prediction is the last channel at the last token, where the query's label
would be. :func:`scan` implements these equations literally. When all states decay at one rate, C_l'B_j is the
attention score, as q'k in linear attention, whose forms (:mod:`icl.models.operators`) then compute the layer.
:func:`scan_chunked` is linear in length for any rates.

If moreover the step is fixed, states of the tokens' own products are sufficient statistics of the prompt, whatever the
layer's weights (:func:`statistics`, :func:`s6_features`): d_h drops out of the cost.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks
from icl._bounds import Count, NonNegative, Positive, validated
from icl.models import operators
from icl.tasks import Prompt

_Tokens = Float[Tensor, "batch time channels"]
_States = Float[Tensor, "batch time d_h"]
_Steps = Float[Tensor, "#batch time"]


def _check_tokens(u: Tensor) -> None:
    if u.shape[1] == 0:
        raise ValueError("u must hold at least one position in time, got 0")


def zero_order_hold(A: Float[Tensor, "#d_h"], Delta: _Steps) -> tuple[Float[Tensor, "#batch time #d_h"], ...]:
    """Zero-order hold (2): decay exp(Delta A) and gain (exp(Delta A) - 1) / A of a diagonal A.

    Raises:
        ValueError: if A is not < 0 or Delta not >= 0 throughout, or one of them is not finite, where they may be read.
    """
    if _checks.is_readable(A) and not bool(((A < 0) & (-math.inf < A)).all()):
        raise ValueError(f"A must be finite and < 0, got {A.min().item():g} to {A.max().item():g}")
    if _checks.is_readable(Delta) and not bool(((Delta >= 0) & (Delta < math.inf)).all()):
        raise ValueError(f"Delta must be finite and >= 0, got {Delta.min().item():g} to {Delta.max().item():g}")
    exponent = Delta.unsqueeze(-1) * A
    return exponent.exp(), torch.expm1(exponent) / A


@validated
def scan(u: _Tokens, A: Float[Tensor, "#d_h"], B: _States, C: _States, Delta: _Steps) -> _Tokens:
    """S6 recurrence (1), (2), one token after another: the reference.

    Args:
        u: tokens.
        A: diagonal, < 0: one number a state, or one for all.
        B: input vectors, before zero-order hold.
        C: output vectors.
        Delta: step of each token, >= 0; one row for all prompts or one each. A token of step 0 has no effect.
    """
    _check_tokens(u)
    decay, gain = zero_order_hold(A, Delta)
    state = u.new_zeros(len(u), u.shape[2], B.shape[2])
    outputs = []
    steps = (t.unbind(1) for t in (u, decay, gain * B, C))
    for ut, factor, written, read in zip(*steps, strict=True):
        state = factor.unsqueeze(1) * state + ut.unsqueeze(-1) * written.unsqueeze(1)
        outputs.append((state @ read.unsqueeze(-1)).squeeze(-1))
    return torch.stack(outputs, dim=1).to(u)  # under autocast products have its dtype


@validated
def dual(u: _Tokens, A: Float[Tensor, "1"], B: _States, C: _States, Delta: _Steps) -> _Tokens:
    """Dual form of :func:`scan` for one rate A: masked attention [Dao & Gu 2024]; cost grows with time^2."""
    return operators.parallel(*_as_attention(u, A, B, C, Delta)).squeeze(2)


def _as_attention(u: Tensor, A: Tensor, B: Tensor, C: Tensor, Delta: Tensor) -> tuple[Tensor, ...]:
    """Queries, keys, values and decay, with one head."""
    _check_tokens(u)
    decay, gain = zero_order_hold(A, Delta)
    return C.unsqueeze(2), (gain * B).unsqueeze(2), u.unsqueeze(2), decay


@validated
def scan_chunked(
    u: _Tokens, A: Float[Tensor, "#d_h"], B: _States, C: _States, Delta: _Steps, *, size: Count = 16
) -> _Tokens:
    """Chunked form of :func:`scan`: all pairs inside blocks of `size` tokens, a state between them; linear in time."""
    if A.shape == (1,):
        return operators.chunked(*_as_attention(u, A, B, C, Delta), size=size).squeeze(2)
    _check_tokens(u)
    gain = zero_order_hold(A, Delta)[1]
    state = u.new_zeros(len(u), u.shape[2], B.shape[2])
    outputs = []
    blocks = (t.split(size, dim=1) for t in (u, gain * B, C, Delta))
    for ub, written, read, step in zip(*blocks, strict=True):
        time = step.shape[1]
        seen = torch.ones(time, time, dtype=torch.bool, device=u.device).tril()
        # Sums of the steps between two tokens, never a difference of sums from the start: after one long step that
        # would leave little of the short ones. And never a ratio of powers: those overflow.
        ago = torch.where(seen.tril(-1), step.unsqueeze(-1), 0.0).cumsum(1)
        decay = (ago.unsqueeze(-1) * A).exp() * seen.unsqueeze(-1)
        scores = torch.einsum("bls,bjs,bljs->blj", read, written, decay.expand(len(u), -1, -1, -1))
        age = (step.cumsum(1).unsqueeze(-1) * A).exp()
        outputs.append(scores @ ub + torch.einsum("bls,bcs->blc", read * age, state))
        state = age[:, -1].unsqueeze(1) * state + torch.einsum("bjc,bjs->bcs", ub, written * decay[:, -1])
    return torch.cat(outputs, dim=1).to(u)


class Selective(nn.Module):
    """Selective input or output vectors W u_l + b, a function of the token (3), (4). Starts at 0.

    Args:
        d_e: channels of the tokens.
        d_h: size of the state.
        dtype: of the parameters.
    """

    @validated
    def __init__(self, d_e: Count, d_h: Count, *, dtype: torch.dtype = torch.float64) -> None:
        """Start at 0."""
        super().__init__()
        sizes = d_h, d_e
        self.W, self.b = nn.Parameter(torch.zeros(sizes, dtype=dtype)), nn.Parameter(torch.zeros(d_h, dtype=dtype))

    def forward(self, u: _Tokens) -> _States:
        """One vector a token."""
        return u @ self.W.T + self.b


class Static(nn.Module):
    """Constant input or output vector, as in S4. Starts at 0.

    Args:
        d_h: size of the state.
        dtype: of the parameters.
    """

    @validated
    def __init__(self, d_h: Count, *, dtype: torch.dtype = torch.float64) -> None:
        """Start at 0."""
        super().__init__()
        self.b = nn.Parameter(torch.zeros(d_h, dtype=dtype))

    def forward(self, u: _Tokens) -> _States:
        """One vector for all tokens."""
        return self.b.expand(*u.shape[:2], -1)


class Step(nn.Module):
    """Selective step Delta_l = softplus(w_Delta' u_l + b_Delta), (5).

    Args:
        d_e: channels of the tokens.
        Delta: initial step; w_Delta starts at 0.
        dtype: of the parameters.
    """

    @validated
    def __init__(self, d_e: Count, Delta: Positive, *, dtype: torch.dtype = torch.float64) -> None:
        """Start with the same step at every token."""
        super().__init__()
        start = Delta + math.log(-math.expm1(-Delta))
        self.w = nn.Parameter(torch.zeros(d_e, dtype=dtype))
        self.b = nn.Parameter(torch.tensor(start, dtype=dtype))

    def forward(self, u: _Tokens) -> _Steps:
        """One step a token."""
        # Torch takes softplus(z) for z above a threshold; past its default of 20 that is still 2e-9 off.
        return nn.functional.softplus(u @ self.w + self.b, threshold=40)


class FixedStep(nn.Module):
    """Constant step, not trained (Assumption 4.1).

    Args:
        Delta: the step.
        dtype: of the step.
    """

    @validated
    def __init__(self, Delta: Positive, *, dtype: torch.dtype = torch.float64) -> None:
        """Keep the step."""
        super().__init__()
        self.register_buffer("Delta", torch.tensor(float(Delta), dtype=dtype))

    def forward(self, u: _Tokens) -> _Steps:
        """One row of steps for all prompts."""
        return self.get_buffer("Delta").expand(1, u.shape[1])


class S6(nn.Module):
    """One S6 layer, tokens to tokens. With :class:`Static` B and C and a :class:`FixedStep` it is S4.

    Args:
        B: input vectors.
        C: output vectors.
        step: step of the zero-order hold.
        A: diagonal, < 0, (1,) or (d_h,). Kept as log(-A), a parameter that is frozen by default; to train it:
            `layer.log_rate.requires_grad_(True)`.

    >>> import torch
    >>> from icl.models.s6 import S6, Selective, Step
    >>> from icl.profile import make_generator
    >>> from icl.tasks import StationaryRegression
    >>> d_e, d_h = 4, 8  # tokens (x, y) with d = 3
    >>> A = -torch.linspace(0.5, 2, d_h, dtype=torch.float64)
    >>> layer = S6(Selective(d_e, d_h), Selective(d_e, d_h), Step(d_e, Delta=0.1), A)
    >>> prompt = StationaryRegression(d=3, n=20).sample(8, generator=make_generator("example"), dtype=torch.float64)
    >>> layer.predictions(prompt).shape, layer(prompt.tokens()).shape
    (torch.Size([8]), torch.Size([8, 21, 4]))
    """

    @validated
    def __init__(self, B: Selective | Static, C: Selective | Static, step: Step | FixedStep, A: Tensor) -> None:
        """Keep the parts."""
        super().__init__()
        for name, part, kinds in (
            ("B", B, Selective | Static),
            ("C", C, Selective | Static),
            ("step", step, Step | FixedStep),
        ):
            if not isinstance(part, kinds):
                raise ValueError(f"{name} must be one of icl.models.s6's parts, got {part!r}")
        if len(B.b) != len(C.b):
            raise ValueError(f"C must have states of size {len(B.b)} to match B, got {len(C.b)}")
        widths = {part.W.shape[1] for part in (B, C) if isinstance(part, Selective)}
        widths |= {len(step.w)} if isinstance(step, Step) else set()
        if len(widths) > 1:
            raise ValueError(f"B, C and step must be for tokens of one width, got {sorted(widths)}")
        _checks.tensor("A", A)
        wrong = _checks.is_readable(A, waits=True) and not bool(((A < 0) & A.isfinite()).all())
        if tuple(A.shape) not in ((1,), (len(B.b),)) or wrong:
            raise ValueError(f"A must be finite and < 0 and have shape (1,) or ({len(B.b)},), got {A}")
        self.B, self.C, self.step = B, C, step
        self.log_rate = nn.Parameter((-A).log(), requires_grad=False)

    @property
    def A(self) -> Float[Tensor, " rates"]:
        """The diagonal of A."""
        return -self.log_rate.exp()

    @validated
    def forward(self, u: _Tokens) -> _Tokens:
        """The layer's output at every token."""
        _checks.dtype("u", u, self.B.b.dtype, "to match the layer")
        return scan_chunked(u, self.A, self.B(u), self.C(u), self.step(u))

    @validated
    def predictions(self, prompt: Prompt) -> Float[Tensor, " batch"]:
        """Predict the query's label: the last channel at the last token."""
        return self(prompt.tokens())[:, -1, -1]


@validated
def assumed(
    d: Count,
    d_h: Count,
    N: Count,
    *,
    generator: torch.Generator,
    scale: NonNegative = 1.0,
    dtype: torch.dtype = torch.float64,
) -> S6:
    """Layer of Assumption 4.1: A = -1, Delta = ln(2) / N, so alpha = exp(-Delta) = 2^(-1/N); W ~ N(0, scale^2).

    Args:
        d: dimension of the inputs; tokens have d + 1 channels.
        d_h: size of the state.
        N: number of examples, which determines the step.
        generator: for W_B and W_C.
        scale: standard deviation of their entries; 1 in the paper.
        dtype: of all parameters.
    """
    parts = Selective(d + 1, d_h, dtype=dtype), Selective(d + 1, d_h, dtype=dtype)
    with torch.no_grad():
        for part in parts:
            drawn = torch.randn(part.W.shape, generator=generator, dtype=dtype, device=generator.device)
            part.W.copy_(scale * drawn)
    return S6(*parts, FixedStep(math.log(2) / N, dtype=dtype), -torch.ones(1, dtype=dtype))


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sufficient statistics of prompts for layers with one rate and one fixed step, whatever their weights.

    Attributes:
        g: sum_l omega_l y_l e_l over the examples, (batch, d_e), omega_l = (1 - alpha) alpha^(N+1-l) for A = -1.
        s: sum_l omega_l y_l, (batch,).
        e: the query's token, (batch, d_e).
    """

    g: Float[Tensor, "batch d_e"]
    s: Float[Tensor, " batch"]
    e: Float[Tensor, "batch d_e"]


@validated
def weights(N: Count, layer: S6) -> Float[Tensor, " N"]:
    """Weights omega_1 .. omega_N: the share of every example's write that remains at the query."""
    decay, gain = _decay_and_gain(layer)
    ages = torch.arange(N, 0, -1, dtype=decay.dtype, device=decay.device)
    return gain * decay**ages


@validated
def statistics(prompt: Prompt, layer: S6) -> Statistics:
    """Sufficient statistics of prompts for layers of this rate and step."""
    x, y = prompt.x, prompt.y[:, :-1]
    weighted = weights(prompt.n, layer).to(y) * y
    # Sums, not products of tiny matrices, and no tokens: it takes two thirds of the time.
    g = torch.cat([(weighted.unsqueeze(-1) * x[:, :-1]).sum(1), (weighted * y).sum(1, keepdim=True)], dim=1)
    return Statistics(g, weighted.sum(1), nn.functional.pad(x[:, -1], (0, 1)))


@validated
def read_out(layer: S6, known: Statistics) -> Float[Tensor, " batch"]:
    """Prediction (W_C e_q + b_C)' (W_B g + s b_B) from statistics; equals `layer.predictions`.

    The statistics must be those for the layer's own rate and step.
    """
    return (_readout(layer, known.e) * torch.cat([known.g, known.s.unsqueeze(1)], dim=1)).sum(1)


@validated
def s6_features(u: _Tokens, layer: S6) -> Float[Tensor, "batch time channels kinds"]:
    """Features of every token, states of the tokens' own products: S_l = decay S_{l-1} + gain u_l (u_l, 1)'.

    The layer's output is o_l = S_l M (u_l, 1) with M = [W_B b_B]' [W_C b_C], (d_e + 1)^2 numbers: :func:`collapsed`.
    """
    decay, gain = _decay_and_gain(layer)
    time = torch.arange(u.shape[1], device=u.device)
    ago = time[:, None] - time
    mask = torch.where(ago >= 0, gain * decay ** ago.clamp(min=0), 0.0).to(u)
    products = u.unsqueeze(-1) * _with_one(u).unsqueeze(-2)
    # One product of (time, time) with all prompts side by side.
    return (mask @ products.flatten(2)).view_as(products)


@validated
def collapsed(layer: S6, u: _Tokens, states: Float[Tensor, "batch time channels kinds"]) -> _Tokens:
    """Output of the layer from :func:`s6_features` of the same tokens; equals `layer(u)`."""
    _checks.shape("states", states, (*u.shape, u.shape[2] + 1), "to match u")
    if not isinstance(layer.B, Selective) or not isinstance(layer.C, Selective):
        raise ValueError(f"layer must have Selective B and C, got {layer!r}")
    _checks.dtype("u", u, layer.B.b.dtype, "to match the layer")
    return (states @ _readout(layer, u).unsqueeze(-1)).squeeze(-1)


def _readout(layer: S6, u: Float[Tensor, "... channels"]) -> Float[Tensor, "... kinds"]:
    """Readout vectors [W_B b_B]' [W_C b_C] (u, 1) of tokens; the product over d_h is formed first."""
    write, look = (torch.cat([part.W, part.b.unsqueeze(1)], dim=1) for part in _selective(layer))
    return _with_one(u) @ (look.T @ write)


def _with_one(u: Tensor) -> Tensor:
    return nn.functional.pad(u, (0, 1), value=1.0)


def _selective(layer: S6) -> tuple[Selective, Selective]:
    """B and C of a layer; ValueError unless `statistics` and `s6_features` are sufficient for it."""
    _decay_and_gain(layer)
    if not isinstance(layer.B, Selective) or not isinstance(layer.C, Selective):
        raise ValueError(f"layer must have Selective B and C, got {layer.B!r} and {layer.C!r}")
    return layer.B, layer.C


def _decay_and_gain(layer: S6) -> tuple[Tensor, Tensor]:
    """Decay and gain of a layer; ValueError unless it has one rate and one fixed step."""
    if not isinstance(layer.step, FixedStep) or layer.log_rate.shape != (1,):
        raise ValueError(
            f"layer must have a FixedStep and one rate, got {layer.step!r} and {len(layer.log_rate)} rates"
        )
    step: Tensor = layer.step.get_buffer("Delta")
    exponent = step * layer.A[0]
    return exponent.exp(), torch.expm1(exponent) / layer.A[0]


class S6Stack(nn.Module):
    """S6 layers with residual, u <- u + W S6(u), optionally each with a token-wise network, u <- u + f(u).

    W starts at 0, except for the last row's last entry, which starts at 1: at first only labels change.

    Args:
        layers: the layers, all for tokens of the same width.
        d_e: channels of the tokens.
        networks: one a layer, tokens to tokens; none by default.
        dtype: of W.
    """

    @validated
    def __init__(
        self,
        layers: Sequence[S6],
        d_e: Count,
        networks: Sequence[nn.Module] = (),
        *,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        """Keep the layers."""
        super().__init__()
        for name, given in (("layers", layers), ("networks", networks)):
            if not isinstance(given, Sequence):
                raise ValueError(f"{name} must be a sequence, got {given!r}")
        if not layers or not all(isinstance(layer, S6) for layer in layers):
            raise ValueError(f"layers must be S6 layers, at least one, got {layers!r}")
        for network in networks:
            _checks.instance("networks", network, nn.Module)
        if networks and len(networks) != len(layers):
            raise ValueError(f"networks must be none or {len(layers)}, one a layer, got {len(networks)}")
        self.layers, self.networks = nn.ModuleList(layers), nn.ModuleList(networks)
        _checks.fits_memory("d_e", d_e, 8 * d_e**2)
        mix = torch.zeros(len(layers), d_e, d_e, dtype=dtype)
        mix[:, -1, -1] = 1
        self.W = nn.Parameter(mix)

    @validated
    def forward(self, u: _Tokens) -> _Tokens:
        """Tokens after all layers."""
        for index, layer in enumerate(self.layers):
            u = u + layer(u) @ self.W[index].T
            if len(self.networks):
                u = u + self.networks[index](u)
        return u

    @validated
    def predictions(self, prompt: Prompt) -> Float[Tensor, " batch"]:
        """Predict the query's label: the last channel at the last token, initially 0."""
        return self(prompt.tokens())[:, -1, -1]
