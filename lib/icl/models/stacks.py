"""Deep stacks: gated linear attention reduced to three scalars a layer, with gates, and with the delta rule.

Tokens are (x_j, y_j); layer by layer every token reads the memory of earlier tokens and subtracts a share of the read:

    x_j <- x_j - s_x (1 - lam) sum_{i<j} lam^(j-i) (x_j'x_i) x_i
    y_j <- y_j - s_y (1 - lam) sum_{i<j} lam^(j-i) (x_j'x_i) y_i

The readout is the negative of a query's label channel after the last layer, which started at 0. With the label itself
in that channel, it ends as the error y_j - y_hat_j, at every position in one causal pass, because the sums are strict
and keys do not hold labels. The factor 1 - lam makes a step's size independent of its time constant.

:class:`Stack` is (5) with the residual, W_V = -diag(s_x, .., s_x, s_y) (1 - lam) and W_KQ = diag(1, .., 1, 0): the
reduction of (5) by rotational symmetry for isotropic inputs, except for labels in keys.
:mod:`icl.models.paper_conventions` has the full matrices and the other conventions. A stack is linear in the labels,
and an L-layer stack is a polynomial in x of a degree that grows as 3^L: :class:`~icl.models.causal.Normalised`
normalises the inputs' lengths, so that rare long inputs do not make deep stacks diverge.

:class:`GatedStack` lets decays and write strengths depend on the token, its label included: a gate acts on later reads
only, and the model stays causal. :class:`DeltaStack` and :class:`GatedDeltaStack` write errors in place of values.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from annotated_types import Gt, Lt
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks
from icl._bounds import Count, validated
from icl.models import operators
from icl.models.causal import Causal
from icl.models.operators import delta_chunked
from icl.tasks import Prompt


class DeltaStack(Causal):
    """Stack of delta-rule layers with decay: the stack of :mod:`icl.models.stacks` with errors in place of values.

    Every layer has two memories over the same keys x, one of labels and one of the inputs themselves, and every token
    subtracts a share of its reads:

        y_j <- y_j - s_y (label memory)(x_j),    x_j <- x_j - s_x (input memory)(x_j)

    The write strength is beta_t = mu / ||x_t||^2: with mu = 1 and keys of any length the newest pair is fitted
    exactly. Linear in the labels, and errors scale with the inputs: f(c X, c y) = c f(X, y). One layer with s_y = 1 is
    the normalised delta rule of :mod:`icl.filters`. The last layer needs no memory of inputs and has none.

    Args:
        d: dimension of the inputs.
        layers: L.
        lam: initial forgetting factors of both memories, one number or one a layer.
        dtype: of the parameters.
    """

    @validated
    def __init__(
        self,
        d: Count,
        layers: Count,
        *,
        lam: Annotated[float | Sequence[float], Gt(0), Lt(1)] = 0.95,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Initialise near the optimum of one layer: a long memory and half a projection."""
        super().__init__()
        self.d = d
        self.layers = layers
        start = torch.logit(factors(layers, lam, dtype)).expand(layers)
        # The memory of labels, then, in all layers but the last, the memory of inputs.
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
        """Decays of a layer's memories, given its labels: of labels and, except in the last layer, of inputs."""
        odds = [self.log_odds[layer], *self.log_odds_x[layer : layer + 1]]
        return [torch.sigmoid(one).view(1, 1, 1) for one in odds]

    @validated
    def errors(self, x: Float[Tensor, "batch time d"], y: Float[Tensor, "batch time"]) -> Float[Tensor, "batch time"]:
        """y_j - y_hat_j at every position."""
        self.checked(x, y)
        for layer in range(self.layers):
            decays = self.decays(layer, y)
            # On unit keys, with values in proportion, beta = mu / |x|^2 becomes mu, and x = 0 has a gradient.
            length = torch.linalg.vector_norm(x, dim=-1)
            length = torch.where(length > 0, length, 1.0)
            key = (x / length.unsqueeze(-1)).unsqueeze(2)
            value = (y / length)[..., None, None]
            # Write strengths are >= 0 in the delta rule: clamped at 0, without a gradient.
            read = delta_chunked(key, key, value, decays[0], self.mu[layer].clamp(min=0).view(1, 1, 1))
            if layer < self.layers - 1:
                recalled = delta_chunked(key, key, key, decays[1], self.mu_x[layer].clamp(min=0).view(1, 1, 1))
                x = x - self.s_x[layer] * length.unsqueeze(-1) * recalled[:, :, 0]
            y = y - self.s_y[layer] * length * read[:, :, 0, 0]
        return y


class GatedDeltaStack(DeltaStack):
    """Delta stack with decays gated by the layer's label channel, in deeper layers the error of the layers before.

        g_t = sigmoid(a + c log(1 + y_t^2)),    the same for the memory of inputs with a, c of its own

    A large error can then clear a stale memory at once. It starts as the delta stack, c = 0; for c != 0 it is not
    linear in the labels. The gate acts after its token was read: the model stays causal.

    Args:
        d, layers, lam, dtype: see :class:`DeltaStack`.
    """

    @validated
    def __init__(
        self,
        d: Count,
        layers: Count,
        *,
        lam: Annotated[float | Sequence[float], Gt(0), Lt(1)] = 0.95,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Start as the delta stack."""
        super().__init__(d, layers, lam=lam, dtype=dtype)
        self.c = nn.Parameter(torch.zeros(layers, dtype=dtype))
        self.c_x = nn.Parameter(torch.zeros(layers - 1, dtype=dtype))

    def decays(self, layer: int, y: Tensor) -> list[Float[Tensor, "#batch #time 1"]]:
        """Decays of a layer's memories at each token, given its labels."""
        surprise = torch.log1p(y.square()).unsqueeze(-1)
        pairs = [(self.log_odds[layer], self.c[layer])]
        pairs += zip(self.log_odds_x[layer : layer + 1], self.c_x[layer : layer + 1], strict=True)
        return [torch.sigmoid(odds + c * surprise) for odds, c in pairs]


@validated
def read_strictly(
    q: Float[Tensor, "batch time heads key"],
    k: Float[Tensor, "batch time heads key"],
    v: Float[Tensor, "batch time heads value"],
    decay: Float[Tensor, "#batch #time #heads"],
) -> Float[Tensor, "batch time heads value"]:
    """Strictly causal reads of gated linear attention: o_t = S_{t-1} q_t with S_t = g_t S_{t-1} + v_t k_t' (5).

    With one decay lam for all this is sum_{i<t} lam^(t-1-i) (q_t'k_i) v_i. Layout of :mod:`icl.models.operators`.
    """
    # The state after token t - 1 is read with the query of token t; the first token reads 0.
    later = torch.cat([q[:, 1:], q[:, :1]], dim=1)
    read = operators.chunked(later, k, v, decay)
    return torch.cat([torch.zeros_like(read[:, :1]), read[:, :-1]], dim=1)


class GatedStack(Causal):
    """Stack with gates: data-dependent or channel-wise decays, and a data-dependent write strength.

        g_t   = sigmoid(a + b (||x_t||^2 / d - 1) + c log(1 + y_t^2)),    one a layer, or one a channel of the keys
        v_t   -> v_t (||x_t||^2 / d)^-p

    x_t and y_t are the layer's own tokens, so that deeper layers see errors in place of labels. It starts as the plain
    stack, b = c = p = 0; a parameter frozen there (`requires_grad_(False)`) leaves that gate out. With c = 0 it is
    linear in the labels.

    Args:
        d: dimension of the inputs.
        layers: L.
        channels: 1, or d for a decay of each channel of the keys (of each input coordinate, here).
        lam: initial forgetting factors (:class:`Stack`).
        dtype: of the parameters.
    """

    @validated
    def __init__(
        self,
        d: Count,
        layers: Count,
        *,
        channels: Count = 1,
        lam: Annotated[float | Sequence[float], Gt(0), Lt(1)] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Start as the plain stack."""
        super().__init__()
        self.d = d
        self.layers = layers
        if channels not in (1, d):
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
        """Gates g_t of one layer, given its tokens."""
        surprise = self.b[layer] * (x.square().mean(-1) - 1) + self.c[layer] * torch.log1p(y.square())
        return torch.sigmoid(self.a[layer] + surprise.unsqueeze(-1))

    @validated
    def errors(self, x: Float[Tensor, "batch time d"], y: Float[Tensor, "batch time"]) -> Float[Tensor, "batch time"]:
        """y_j - y_hat_j at every position."""
        self.checked(x, y)
        for layer in range(self.layers):
            # A key of 0 writes nothing at any strength; 1 has finite powers and gradients.
            power = x.square().mean(-1)
            strength = torch.where(power > 0, power, 1.0).pow(-self.p[layer])
            written = torch.cat([x, y.unsqueeze(-1)], dim=-1) * strength.unsqueeze(-1)
            # A channel is a head with a scalar key; reads of heads are summed.
            keys = x.unsqueeze(2) if self.channels == 1 else x.unsqueeze(3)
            values = written.unsqueeze(2).expand(-1, -1, self.channels, -1)
            lam = self.lam[layer].unsqueeze(-1)
            total = (read_strictly(keys, keys, values, self.gates(x, y, layer)) * lam * (1 - lam)).sum(2)
            if layer < self.layers - 1:
                x = x - self.s_x[layer] * total[..., :-1]
            y = y - self.s_y[layer] * total[..., -1]
        return y


#: Tokens in a block of the chunked form. Fastest of 13 .. 51 at d = 10.
_BLOCK = 17


class _Layer(torch.autograd.Function):
    """One layer in chunked form, Z -> Z - c * O, with its derivative by hand.

    O_j = sum_{i<j} lam^(j-i) (x_j'x_i) z_i. Autograd's derivative would take many times the memory.
    """

    @staticmethod
    def forward(ctx: Any, Z: Tensor, lam: Tensor, c: Tensor, d: int) -> Tensor:
        batch, count, size, width = Z.shape
        factor = float(lam) if _checks.is_readable(lam) else lam.double()
        inside = torch.arange(size, device=Z.device)
        mask = _powers(factor, inside[:, None] - inside[None] - 1, Z.dtype) * factor
        # The state at a block's start is read at its token j after j more steps, written at token i before size - i.
        age = _powers(factor, inside, Z.dtype)[:, None]
        worth = _powers(factor, size - inside, Z.dtype)[:, None]
        flat = Z.reshape(batch * count, size, width)
        X = flat[..., :d]
        scores = torch.bmm(X, X.transpose(1, 2)).mul_(mask)
        read = torch.bmm(scores, flat)
        P, carry = None, None
        if count > 1:
            block = torch.arange(count, device=Z.device)
            carry = _powers(factor**size, block[:, None] - block[None] - 1, Z.dtype)
            written = torch.bmm((X * worth).transpose(1, 2), flat)
            P = (carry @ written.reshape(batch, count, d * width)).reshape(batch * count, d, width)
            read.baddbmm_(X * age, P)
        ctx.save_for_backward(flat, scores, read, c)
        ctx.rest = (mask, age, worth, carry, P, d, factor, (batch, count, size, width))
        return torch.addcmul(Z, read.view_as(Z), c, value=-1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        flat, scores, read, c = ctx.saved_tensors
        mask, age, worth, carry, P, d, factor, (batch, count, size, width) = ctx.rest
        X = flat[..., :d]
        G = grad.reshape(batch * count, size, width)
        dO = G * -c
        pairs = torch.bmm(dO, flat.transpose(1, 2)).mul_(mask)
        dZ = torch.bmm(scores.transpose(1, 2), dO)
        dX = torch.bmm(pairs + pairs.transpose(1, 2), X)
        if count > 1:
            dP = torch.bmm((X * age).transpose(1, 2), dO)
            dS = (carry.T @ dP.reshape(batch, count, d * width)).reshape(batch * count, d, width)
            dX += torch.bmm(dO, P.transpose(1, 2)).mul_(age) + torch.bmm(flat, dS.transpose(1, 2)).mul_(worth)
            dZ.baddbmm_(X * worth, dS)
        # d lam^(j-i) / d lam = (j - i) lam^(j-i) / lam, and both its sums are available: no third matrix product.
        when = torch.arange(count * size, dtype=grad.dtype, device=grad.device) - count * size / 2
        share = ((dO * read).sum(-1) - (flat * dZ).sum(-1)).view(batch, -1).sum(0)
        least = factor.clamp(min=1e-300).to(grad) if isinstance(factor, Tensor) else max(factor, 1e-300)
        dZ += G
        dZ[..., :d] += dX
        return dZ.view(batch, count, size, width), share @ when / least, -(G * read).sum((0, 1)), None


def _powers(base: float | Tensor, exponents: Tensor, dtype: torch.dtype) -> Tensor:
    """Powers base^exponents, 0 where the exponent is negative; formed in float64."""
    raised = base ** exponents.clamp(min=0).to(torch.float64)
    return torch.where(exponents >= 0, raised, 0.0).to(dtype)


class Stack(Causal):
    """Layers of gated linear attention, reduced by symmetry to three scalars each: s_x, s_y and lam.

    Args:
        d: dimension of the inputs.
        layers: L.
        lam: initial forgetting factors, one a layer; or one for all layers, which they then share.
            By default .7 to .9 in equal steps (.8 for one layer). Steps start at s_x = 1 / (2 L), s_y = 1 / L.
        dtype: of the parameters.
    """

    @validated
    def __init__(
        self,
        d: Count,
        layers: Count,
        *,
        lam: Annotated[float | Sequence[float], Gt(0), Lt(1)] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Initialise so that deep stacks train."""
        super().__init__()
        self.d = d
        self.layers = layers
        start = factors(layers, lam, dtype)
        self.log_odds = nn.Parameter(torch.logit(start))
        # No layer reads the last layer's x: its s_x has no effect.
        self.s_x = nn.Parameter(torch.full((layers - 1,), 0.5 / layers, dtype=dtype))
        self.s_y = nn.Parameter(torch.full((layers,), 1.0 / layers, dtype=dtype))

    @property
    def lam(self) -> Float[Tensor, " layers"]:
        """Forgetting factor of each layer."""
        return torch.sigmoid(self.log_odds).expand(self.layers)

    def _run(self, Z: Tensor, lam: Tensor, layers: int, time: int) -> Tensor:
        """Run the first layers on tokens Z, (batch, time, width): x, y, then zeros."""
        batch, _, width = Z.shape
        size = min(_BLOCK, time)
        count = -(-time // size)
        blocks = nn.functional.pad(Z, (0, 0, 0, count * size - time)).view(batch, count, size, width)
        for layer in range(layers):
            s_x = self.s_x[layer] if layer < self.layers - 1 else self.s_y.new_zeros(())
            steps = torch.cat([s_x.expand(self.d), self.s_y[layer : layer + 1]])
            c = nn.functional.pad(steps * (1 - lam[layer]), (0, width - self.d - 1))
            blocks = _Layer.apply(blocks, lam[layer], c, self.d)  # type: ignore[no-untyped-call]
        return blocks.reshape(batch, count * size, width)[:, :time]

    def _tokens(self, x: Tensor, y: Tensor) -> Tensor:
        """Tokens (x, y, 0..), padded to a width that is a multiple of 4, for faster matrix products."""
        return nn.functional.pad(torch.cat([x, y.unsqueeze(-1)], dim=-1), (0, -(self.d + 1) % 4))

    @validated
    def errors(self, x: Float[Tensor, "batch time d"], y: Float[Tensor, "batch time"]) -> Float[Tensor, "batch time"]:
        """y_j - y_hat_j at every position."""
        self.checked(x, y)
        return self._run(self._tokens(x, y), self.lam, self.layers, x.shape[1])[..., self.d]

    @validated
    def forward(self, prompt: Prompt) -> Float[Tensor, " batch"]:
        """Predict the query's label; the last layer reads there only."""
        Z = prompt.tokens()
        self.checked(Z[..., :-1], Z[..., -1])
        lam = self.lam
        if self.layers > 1:
            Z = self._run(self._tokens(Z[..., :-1], Z[..., -1]), lam, self.layers - 1, prompt.n + 1)
        last = lam[-1]
        scores = (Z[:, :-1, : self.d] @ Z[:, -1, : self.d, None]).squeeze(-1)
        weights = last ** torch.arange(prompt.n, 0, -1, dtype=Z.dtype, device=Z.device)
        read = (scores * weights * Z[:, :-1, self.d]).sum(-1)
        return self.s_y[-1] * (1 - last) * read - Z[:, -1, self.d]


@validated
def factors(
    layers: Count, lam: Annotated[float | Sequence[float], Gt(0), Lt(1)] | None, dtype: torch.dtype
) -> Float[Tensor, " count"]:
    """Initial forgetting factors: the default spread, one for all, or one a layer."""
    if lam is None:
        return torch.linspace(0.7, 0.9, layers, dtype=dtype) if layers > 1 else torch.full((1,), 0.8, dtype=dtype)
    _checks.real("lam", lam, above=0)
    values = torch.as_tensor(lam, dtype=dtype).reshape(-1)
    if len(values) not in (1, layers) or not bool((values < 1).all()):
        raise ValueError(f"lam must be one number or {layers}, each in (0, 1), got {lam!r}")
    return values
