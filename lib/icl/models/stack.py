"""Gated linear attention in layers: the symmetry-reduced model, three scalars a layer, fast.

Tokens are (x_j, y_j); layer by layer every token reads what earlier tokens have written and takes a share of it away:

    x_j <- x_j - s_x (1 - lam) sum_{i<j} lam^(j-i) (x_j'x_i) x_i
    y_j <- y_j - s_y (1 - lam) sum_{i<j} lam^(j-i) (x_j'x_i) y_i

The read-out is the negative of what the last layer left in a query's label channel, which started at 0. With the label
itself in that channel, what is left is the error y_j - y_hat_j, at every position in one causal pass, because the sums
are strict and keys do not hold labels. The factor 1 - lam keeps a step's size when its memory is changed.

This is (5) with the residual, W_V = -diag(s_x, .., s_x, s_y) (1 - lam) and W_KQ = diag(1, .., 1, 0), and all that
rotations of the inputs leave of it when their covariance is the identity, labels in keys apart. `icl.models.streams`
has the full matrices and the other ways of reading the paper. A stack is linear in the labels, and an L-layer stack is
a polynomial in x of a degree that grows as 3^L: `Normalised` takes the inputs' lengths out, which keeps rare long
inputs from blowing deep stacks up.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks
from icl.models.causal import Causal
from icl.tasks import Prompt

#: Tokens in a block of time: inside a block all pairs, between blocks one state. Fastest of 13 .. 51 at d = 10.
_BLOCK = 17


class _Layer(torch.autograd.Function):
    """One layer on tokens in blocks, Z -> Z - c * O, with its derivative written out.

    O_j = sum_{i<j} lam^(j-i) (x_j'x_i) z_i. Autograd's own derivative would keep and fill many times the memory.
    """

    @staticmethod
    def forward(ctx: Any, Z: Tensor, lam: Tensor, c: Tensor, d: int) -> Tensor:
        batch, count, size, width = Z.shape
        factor = float(lam)
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
        # d lam^(j-i) / d lam = (j - i) lam^(j-i) / lam, and both sums of it are at hand: no third matrix product.
        when = torch.arange(count * size, dtype=grad.dtype, device=grad.device) - count * size / 2
        share = ((dO * read).sum(-1) - (flat * dZ).sum(-1)).view(batch, -1).sum(0)
        dZ += G
        dZ[..., :d] += dX
        return dZ.view(batch, count, size, width), share @ when / max(factor, 1e-300), -(G * read).sum((0, 1)), None


def _powers(base: float, exponents: Tensor, dtype: torch.dtype) -> Tensor:
    """base^exponents, 0 where the exponent is negative; formed in float64."""
    raised = base ** exponents.clamp(min=0).to(torch.float64)
    return torch.where(exponents >= 0, raised, 0.0).to(dtype)


class Stack(Causal):
    """Layers of gated linear attention, reduced by symmetry to three scalars each: s_x, s_y and lam.

    Args:
        d: dimension of the inputs.
        layers: L, at least 1.
        lam: where the forgetting factors start, one a layer, in (0, 1); or one for all layers, which they then share.
            By default .7 to .9 in equal steps (.8 for one layer). Steps start at s_x = 1 / (2 L), s_y = 1 / L.
        dtype: of the parameters.
    """

    def __init__(
        self, d: int, layers: int, *, lam: float | Sequence[float] | None = None, dtype: torch.dtype = torch.float32
    ) -> None:
        """Start where deep stacks train."""
        super().__init__()
        self.d = _checks.integer("d", d, at_least=1)
        self.layers = _checks.integer("layers", layers, at_least=1)
        start = factors(layers, lam, dtype)
        self.log_odds = nn.Parameter(torch.logit(start))
        # The last layer's tokens are read by no one: what it does to x does not matter.
        self.s_x = nn.Parameter(torch.full((layers - 1,), 0.5 / layers, dtype=dtype))
        self.s_y = nn.Parameter(torch.full((layers,), 1.0 / layers, dtype=dtype))

    @property
    def lam(self) -> Float[Tensor, " layers"]:
        """Forgetting factor of each layer."""
        return torch.sigmoid(self.log_odds).expand(self.layers)

    def _run(self, Z: Tensor, lam: Tensor, layers: int, time: int) -> Tensor:
        """Tokens after so many layers; Z is (batch, time, width), x first, then y, then zeros."""
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
        """(x, y, 0..): products of widths that are multiples of 4 are faster by more than the zeros cost."""
        return nn.functional.pad(torch.cat([x, y.unsqueeze(-1)], dim=-1), (0, -(self.d + 1) % 4))

    def errors(self, x: Float[Tensor, "batch time d"], y: Float[Tensor, "batch time"]) -> Float[Tensor, "batch time"]:
        """y_j - y_hat_j at every position."""
        self.checked(x, y)
        return self._run(self._tokens(x, y), self.lam, self.layers, x.shape[1])[..., self.d]

    def forward(self, prompt: Prompt) -> Float[Tensor, " batch"]:
        """Predict the query's label; the last layer reads there only."""
        _checks.instance("prompt", prompt, Prompt)
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


def factors(layers: int, lam: float | Sequence[float] | None, dtype: torch.dtype) -> Float[Tensor, " count"]:
    """Forgetting factors to start from: the default spread, one for all, or as many as layers."""
    _checks.precision(dtype)
    if lam is None:
        return torch.linspace(0.7, 0.9, layers, dtype=dtype) if layers > 1 else torch.full((1,), 0.8, dtype=dtype)
    _checks.real("lam", lam, above=0)
    values = torch.as_tensor(lam, dtype=dtype).reshape(-1)
    if len(values) not in (1, layers) or not bool((values < 1).all()):
        raise ValueError(f"lam must be one number or {layers}, each in (0, 1), got {lam!r}")
    return values
