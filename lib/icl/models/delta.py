"""The gated delta rule as a layer: what is written is the error of what was read, not the value itself.

    e_t = v_t - S_{t-1} k_t,    S_t = g_t (S_{t-1} + beta_t e_t k_t'),    o_t = S_{t-1} q_t

[Schlag et al. 2021; Yang et al. 2024]. Reads are strict, as in `icl.filters.delta_rule`, whose recurrence this is with
v = y and k = q = x. `recurrent` is the definition. `chunked` takes a block of time at once: inside it the errors solve
a unit triangular system,

    (I + M) E = V - aged K S',    M_ti = (g_i .. g_{t-1}) beta_i k_i'k_t for i < t, 0 otherwise.

Layout: q, k (batch, time, heads, key), v (batch, time, heads, value); decay g in [0, 1] and write strength beta >= 0
broadcast to (batch, time, heads).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks
from icl.models.causal import Causal
from icl.models.stack import factors

_Keys = Float[Tensor, "batch time heads key"]
_Values = Float[Tensor, "batch time heads value"]
_Gate = Float[Tensor, "#batch #time #heads"]


def _checked(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Refuse what does not fit together; return both gates with all their axes."""
    _checks.shape("q", q, (None, None, None, None))
    _checks.shape("k", k, tuple(q.shape), "to match q")
    _checks.shape("v", v, (*q.shape[:3], None), "to match q")
    if q.shape[1] == 0:
        raise ValueError("q must hold at least one position in time, got 0")
    for name, value in (("k", k), ("v", v), ("decay", decay), ("beta", beta)):
        _checks.dtype(name, value, q.dtype, "to match q")
    for name, gate, most in (("decay", decay, 1.0), ("beta", beta, float("inf"))):
        if gate.dim() != 3 or any(a not in (1, b) for a, b in zip(gate.shape, q.shape[:3], strict=True)):
            raise ValueError(
                f"{name} must broadcast to (batch, time, heads) = {tuple(q.shape[:3])}, got {tuple(gate.shape)}"
            )
        low, high = torch.aminmax(gate.detach())
        if not (low >= 0 and high <= most and high < float("inf")):
            raise ValueError(f"{name} must lie in [0, {most:g}], got values from {low.item():g} to {high.item():g}")
    # A batch of one stays one: the masks of a fixed decay are the same for all prompts.
    return decay.expand(-1, *q.shape[1:3]), beta.expand(-1, *q.shape[1:3])


def recurrent(q: _Keys, k: _Keys, v: _Values, decay: _Gate, beta: _Gate) -> _Values:
    """The rule, one token after another: the reference."""
    decay, beta = _checked(q, k, v, decay, beta)
    state = q.new_zeros(q.shape[0], q.shape[2], v.shape[3], q.shape[3])
    outputs = []
    for qt, kt, vt, gt, bt in zip(*(t.unbind(1) for t in (q, k, v, decay, beta)), strict=True):
        outputs.append((state @ qt.unsqueeze(-1)).squeeze(-1))
        error = vt - (state @ kt.unsqueeze(-1)).squeeze(-1)
        state = gt[..., None, None] * (state + bt[..., None, None] * error.unsqueeze(-1) * kt.unsqueeze(-2))
    return torch.stack(outputs, dim=1)


def chunked(q: _Keys, k: _Keys, v: _Values, decay: _Gate, beta: _Gate, *, size: int = 32) -> _Values:
    """The rule in blocks of `size` tokens: a triangular system inside a block, one state handed on.

    Raises:
        ValueError: if size is no positive integer, or for arguments that do not fit together.
    """
    _checks.integer("size", size, at_least=1)
    decay, beta = _checked(q, k, v, decay, beta)
    state = q.new_zeros(q.shape[0], q.shape[2], v.shape[3], q.shape[3])
    outputs = []
    for Q, K, V, g, b in zip(*(t.transpose(1, 2).split(size, dim=2) for t in (q, k, v, decay, beta)), strict=True):
        length = g.shape[-1]
        # What stands in the state when token t reads has been faded by g_{t-1} and those before it, not by g_t.
        before = torch.cat([torch.ones_like(g[..., :1]), g[..., :-1]], dim=-1)
        below = torch.ones(length, length, dtype=torch.bool, device=g.device).tril(-1)
        mask = torch.where(below, before.unsqueeze(-1), 1.0).cumprod(dim=-2).tril(-1) * b.unsqueeze(-2)
        age = before.cumprod(dim=-1).unsqueeze(-1)
        system = (K @ K.transpose(-1, -2)) * mask + torch.eye(length, dtype=g.dtype, device=g.device)
        error = torch.linalg.solve_triangular(
            system, V - age * (K @ state.transpose(-1, -2)), upper=False, unitriangular=True
        )
        read = ((Q @ K.transpose(-1, -2)) * mask) @ error + age * (Q @ state.transpose(-1, -2))
        outputs.append(read.transpose(1, 2))
        # At the block's end: written at i, faded by g_i to the last.
        end = g.flip(-1).cumprod(dim=-1).flip(-1)
        state = end[..., :1, None] * state + error.transpose(-1, -2) @ (K * (end * b).unsqueeze(-1))
    return torch.cat(outputs, dim=1)


class DeltaStack(Causal):
    """Layers of the gated delta rule: the stack of `icl.models.stack` with errors written in place of values.

    Every layer has two memories over the same keys x, one of labels and one of the inputs themselves, and each token
    takes a share of what it reads away:

        y_j <- y_j - s_y (label memory)(x_j),    x_j <- x_j - s_x (input memory)(x_j)

    The write strength is beta_t = mu / ||x_t||^2: with mu = 1 and keys of any length the newest pair is known
    exactly once it is written. Linear in the labels, and errors scale with the inputs: f(c X, c y) = c f(X, y). One
    layer with s_y = 1 is the normalised delta rule of `icl.filters`. The last layer has no use for a memory of inputs
    and has none.

    Args:
        d: dimension of the inputs.
        layers: L, at least 1.
        lam: where both memories' forgetting factors start, one number or one a layer, in (0, 1).
        dtype: of the parameters.
    """

    def __init__(
        self, d: int, layers: int, *, lam: float | Sequence[float] = 0.95, dtype: torch.dtype = torch.float32
    ) -> None:
        """Start where one layer is nearly right: a strong memory and half a projection."""
        super().__init__()
        self.d = _checks.integer("d", d, at_least=1)
        self.layers = _checks.integer("layers", layers, at_least=1)
        start = torch.logit(factors(layers, lam, dtype)).expand(layers)
        # The memory of labels, then, in all layers but the last, that of inputs.
        self.log_odds = nn.Parameter(start.clone())
        self.mu = nn.Parameter(torch.full((layers,), 0.5, dtype=dtype))
        self.s_y = nn.Parameter(torch.ones(layers, dtype=dtype))
        self.log_odds_x = nn.Parameter(start[:-1].clone())
        self.mu_x = nn.Parameter(torch.full((layers - 1,), 0.5, dtype=dtype))
        self.s_x = nn.Parameter(torch.full((layers - 1,), 0.5, dtype=dtype))

    @property
    def lam(self) -> Float[Tensor, " layers"]:
        """Forgetting factor of each layer's memory of labels."""
        return torch.sigmoid(self.log_odds)

    def decays(self, layer: int, y: Tensor) -> list[Float[Tensor, "#batch #time 1"]]:
        """Decays of a layer's memories given its labels: that of labels and, but in the last layer, that of inputs."""
        odds = [self.log_odds[layer], *self.log_odds_x[layer : layer + 1]]
        return [torch.sigmoid(one).view(1, 1, 1) for one in odds]

    def errors(self, x: Float[Tensor, "batch time d"], y: Float[Tensor, "batch time"]) -> Float[Tensor, "batch time"]:
        """y_j - y_hat_j at every position."""
        self.checked(x, y)
        for layer in range(self.layers):
            decays = self.decays(layer, y)
            # With keys of length 1 and values in proportion beta = mu / |x|^2 is mu, and x = 0 has a gradient.
            length = torch.linalg.vector_norm(x, dim=-1)
            length = torch.where(length > 0, length, 1.0)
            key = (x / length.unsqueeze(-1)).unsqueeze(2)
            value = (y / length)[..., None, None]
            # A negative write strength would be no delta rule: below 0 it stays at 0, without a gradient.
            read = chunked(key, key, value, decays[0], self.mu[layer].clamp(min=0).view(1, 1, 1))
            if layer < self.layers - 1:
                kept = chunked(key, key, key, decays[1], self.mu_x[layer].clamp(min=0).view(1, 1, 1))
                x = x - self.s_x[layer] * length.unsqueeze(-1) * kept[:, :, 0]
            y = y - self.s_y[layer] * length * read[:, :, 0, 0]
        return y


class GatedDeltaStack(DeltaStack):
    """The delta stack with gates that look at the layer's label: in deeper layers, at the error of those before.

        g_t = sigmoid(a + c log(1 + y_t^2)),    the same for the memory of inputs with a, c of its own

    A large error can then clear a memory that has become wrong at once. It starts as the delta stack, c = 0, and is no
    longer linear in the labels when c is not. The gate fades after its token was read: the model stays causal.

    Args:
        d, layers, lam, dtype: see `DeltaStack`.
    """

    def __init__(
        self, d: int, layers: int, *, lam: float | Sequence[float] = 0.95, dtype: torch.dtype = torch.float32
    ) -> None:
        """Start as the delta stack starts."""
        super().__init__(d, layers, lam=lam, dtype=dtype)
        self.c = nn.Parameter(torch.zeros(layers, dtype=dtype))
        self.c_x = nn.Parameter(torch.zeros(layers - 1, dtype=dtype))

    def decays(self, layer: int, y: Tensor) -> list[Float[Tensor, "#batch #time 1"]]:
        """Decays of a layer's memories at each token, given its labels."""
        surprise = torch.log1p(y.square()).unsqueeze(-1)
        pairs = [(self.log_odds[layer], self.c[layer])]
        pairs += zip(self.log_odds_x[layer : layer + 1], self.c_x[layer : layer + 1], strict=True)
        return [torch.sigmoid(odds + c * surprise) for odds, c in pairs]
