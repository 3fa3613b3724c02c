"""Linear recurrences behind a short causal convolution: gates see a window of the newest tokens.

Published layers put a convolution of width 2 to 4 in front of their gates and keys [Fu et al. 2022; Dao & Gu 2024;
Yang et al. 2024]: the gates of step i then see the tokens i - width + 1 .. i. With r the length of x, u = x / r
and v = y / r, the layers here are

    h <- a_i (h + e_i k_i),    k_i = sum_j c_ij u_{i-j} over j < width,    answer h'x,
    e_i = v_i - h'u_i where a layer corrects its errors (delta rules), v_i where it adds labels (Mamba-2).

a_i and c_ij come from a small network on the window. At width 1 they are functions of the present token alone. What
the network sees is said by `sees`: keys only, so that the layer is linear in its labels, or whole tokens, labels
included.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks
from icl._bounds import Count, OpenUnit, Positive, validated
from icl.models.causal import Causal


@validated
def newest(tokens: Float[Tensor, "batch time channels"], width: Count) -> Float[Tensor, "batch time width channels"]:
    """Sliding window over tokens, newest first, zero-padded at the start.

    Args:
        tokens: a batch of sequences.
        width: tokens in the window.
    """
    padded = nn.functional.pad(tokens, (0, 0, width - 1, 0))
    # unfold puts the oldest first, on a last axis of its own.
    return padded.unfold(1, width, 1).flip(-1).transpose(-1, -2)


class Convolved(Causal):
    """A gated layer with a short causal convolution in front of its gates and its written key.

    The network has one hidden layer, a convolution of this width, SiLU, and is initialised to have no effect: a_i = lam
    and k_i = beta u_i. With `mixes` it computes a filter c at every step; without, c is one trained filter, as
    published, times a gate. Erasing and reading use the present key, not a filtered one: on white inputs no other fits
    the present label.

    Args:
        d: dimension of the inputs.
        width: tokens that the convolution covers.
        sees: "keys", or "tokens": keys with their labels, that of step i included.
        corrects: write the error (delta rule); otherwise the label (Hebbian).
        fades: a_i is a gate; otherwise one trained number.
        mixes: compute a filter at every step.
        compares: the network sees the inner products of the window's directions too.
        hidden: channels of the convolution.
        lam: initial a.
        beta: initial write strength, dimensionless.
        generator: source of the convolution's initial weights.
        dtype: of the parameters.
    """

    @validated
    def __init__(
        self,
        d: Count,
        *,
        width: Count,
        sees: str = "keys",
        corrects: bool = True,
        fades: bool = True,
        mixes: bool = True,
        compares: bool = True,
        hidden: Count = 32,
        lam: OpenUnit = 0.95,
        beta: Positive = 0.9,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Draw the convolution; its readout is initialised to 0."""
        super().__init__()
        self.d = d
        self.width = width
        if sees not in ("keys", "tokens"):
            raise ValueError(f"sees must be 'keys' or 'tokens', got {sees!r}")
        self.sees = sees
        self.corrects, self.fades = _checks.flag("corrects", corrects), _checks.flag("fades", fades)
        self.mixes, self.compares = _checks.flag("mixes", mixes), _checks.flag("compares", compares)
        if not 0 < _checks.number("lam", lam) < 1:
            raise ValueError(f"lam must lie in (0, 1), got {lam!r}")
        seen = width * (d + 1 + (sees == "tokens")) + (width * (width - 1) // 2 if compares else 0)
        drawn = torch.randn(hidden, seen, generator=generator, dtype=dtype, device=generator.device)
        self.convolution = nn.Parameter(drawn / math.sqrt(seen))
        self.offset = nn.Parameter(torch.zeros_like(drawn[:, 0]))
        # Rows: log-odds of the decay, then the filter's entries, or the log of the write strength.
        self.head = nn.Parameter(drawn.new_zeros(1 + (width if mixes else 1), hidden))
        self.log_odds = nn.Parameter(torch.logit(drawn.new_tensor(lam)))
        self.filter = nn.Parameter(drawn.new_tensor([beta] + [0.0] * (width - 1)))

    @validated
    def gates(
        self, x: Float[Tensor, "batch time d"], y: Float[Tensor, "batch time"]
    ) -> tuple[Float[Tensor, "batch time"], Float[Tensor, "batch time width"]]:
        """a_i and c_i of every step.

        Args:
            x: inputs.
            y: their labels, used only where the layer sees tokens.
        """
        self.checked(x, y)
        return self._gates(*_unit(x, y))

    @validated
    def errors(self, x: Float[Tensor, "batch time d"], y: Float[Tensor, "batch time"]) -> Float[Tensor, "batch time"]:
        """y_j - y_hat_j at every position, all at once, by a triangular system."""
        self.checked(x, y)
        u, v, length = _unit(x, y)
        a, c = self._gates(u, v, length)
        written = torch.einsum("btj,btjd->btd", c, newest(u, self.width))
        # Written at i and read at t > i: decayed by a_i .. a_{t-1}, whose product may be 0.
        before = torch.cat([torch.ones_like(a[:, :1]), a[:, :-1]], dim=1)
        later = torch.ones(a.shape[1], a.shape[1], dtype=torch.bool, device=a.device).tril(-1)
        faded = torch.where(later, before.unsqueeze(2), 1.0).cumprod(1).tril(-1)
        coupling = (u @ written.transpose(1, 2)) * faded
        if not self.corrects:
            return length * (v - torch.einsum("bti,bi->bt", coupling, v))
        _checks.precision("dtype", coupling.dtype)  # no system is solved in another
        system = coupling + torch.eye(coupling.shape[-1], dtype=coupling.dtype, device=coupling.device)
        residuals = torch.linalg.solve_triangular(system, v.unsqueeze(-1), upper=False, unitriangular=True)
        return length * residuals.squeeze(-1)

    def _gates(self, u: Tensor, v: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        """The gates, from directions, labels in their units and lengths."""
        keys = newest(u, self.width)
        parts = [keys.flatten(2), newest(length.log().unsqueeze(-1), self.width).flatten(2)]
        if self.sees == "tokens":
            parts.append(newest(v.unsqueeze(-1), self.width).flatten(2))
        if self.compares and self.width > 1:
            one, other = torch.triu_indices(self.width, self.width, 1, device=u.device)
            # Times d^1/2, so that on white inputs they are of the size of the other channels.
            parts.append((keys @ keys.transpose(-1, -2))[..., one, other] * self.d**0.5)
        hidden = nn.functional.silu(torch.cat(parts, dim=-1) @ self.convolution.T + self.offset)
        fade, *rest = (hidden @ self.head.T).unbind(-1)
        a = torch.sigmoid(self.log_odds + (fade if self.fades else torch.zeros_like(fade)))
        if self.mixes:
            return a, self.filter + torch.stack(rest, dim=-1)
        return a, self.filter * rest[0].exp().unsqueeze(-1)


def _unit(x: Any, y: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Unit inputs, labels over lengths, lengths; an input of length 0 counts as one of length 1."""
    power = x.square().sum(-1)
    length = torch.where(power > 0, power, 1.0).sqrt()
    return x / length.unsqueeze(-1), y / length, length
