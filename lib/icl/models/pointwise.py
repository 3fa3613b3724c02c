"""Memformers with a pointwise nonlinearity: registers hold gradients of losses other than squares.

Not in the paper, whose sec. 6 asks for it [Dutta & Sra 2025]. A token holds (x_i, y_i, s_i): input, label, and the
prediction s_i = <w_l, x_i> so far, 0 at first. A layer's attention is linear, with the mask of (2.3), but the value of
example i is one function of its own label and prediction, psi(y_i, s_i):

    R_l = Attn(Z_l) with values psi(y, s),                                                                         (3.3)
    Z_{l+1} = Z_l + 1/n sum_{j<=l} Gamma_j^l R_j                                                                   (3.4)

With P = e_s e_s' and Q = -I on the inputs, R_l holds at token i -<sum_j psi(y_j, s_j) x_j, x_i>: n times the gradient
of sum_j phi(y_j, <w, x_j>) / n for psi = d phi / d s, read out at x_i. With a ridge the layer adds a multiple of each
token's own prediction, a skip connection with no attention in it. So for weights the layers are

    w_{l+1} = w_l - sum_{j<=l} Gamma_j^l grad f(w_j),    w_0 = 0,

first-order methods on f (:mod:`icl.tasks.objectives`), whatever the loss. :func:`mapped_registers` has the tokens, and
:func:`mapped_iterates` the d numbers that they amount to. For psi = s - y they are the layers of
:mod:`icl.models.memformer`, where one slot, y_i - s_i, is enough.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks
from icl._bounds import Count, NonNegative, validated
from icl.models.memformer import Memory
from icl.tasks import Prompt

_Slope = Callable[[Tensor, Tensor], Tensor]


@validated
def mapped_tokens(prompt: Prompt) -> Float[Tensor, "batch time width"]:
    """Tokens (x_i, y_i, 0): input, label, and a slot for the prediction; 0 in place of the query's label too."""
    Z = prompt.tokens()
    return torch.cat([Z, torch.zeros_like(Z[..., :1])], dim=-1)


@validated
def mapped_parameters(
    A: Float[Tensor, "L d d"],
) -> tuple[Float[Tensor, "L width width"], Float[Tensor, "L width width"]]:
    """The blocks P and Q for tokens (x, y, s), width d + 2: (2.8), with the prediction's slot in the label's place.

    Args:
        A: blocks of Q, which enter with a minus sign; the identity for plain gradients.

    Raises:
        ValueError: if the matrices are not square.
    """
    layers, d, _ = A.shape
    P, Q = A.new_zeros(layers, d + 2, d + 2), A.new_zeros(layers, d + 2, d + 2)
    P[:, -1, -1] = 1
    Q[:, :d, :d] = -A
    return P, Q


def _psi(psi: _Slope, y: Tensor, s: Tensor) -> Tensor:
    """Apply the map to labels and predictions; check the shape of its result."""
    values = psi(y, s)
    _checks.shape("psi(y, s)", values, tuple(s.shape), "to match s")
    return values


@validated
def mapped_attention(
    Z: Float[Tensor, "batch time width"],
    P: Float[Tensor, "width width"],
    Q: Float[Tensor, "width width"],
    psi: _Slope,
) -> Float[Tensor, "batch time width"]:
    """Linear attention with values psi(y, s) in place of s; without the 1/n of (2.5).

    With X the examples' tokens, and V the same with the last column mapped, it is Z Q' X'V P'.

    Args:
        Z: tokens (x, y, s), the query's last.
        P: value block.
        Q: merged key and query block.
        psi: from labels and predictions, tensors of one shape, to a tensor of that shape.

    Raises:
        ValueError: if shapes or dtypes do not match.
    """
    if Z.shape[-1] < 3:
        raise ValueError(f"Z must hold inputs, a label and a prediction, at least 3 numbers, got {Z.shape[-1]}")
    examples = Z[:, :-1]
    values = _psi(psi, examples[..., -2], examples[..., -1])
    mapped = torch.cat([examples[..., :-1], values.unsqueeze(-1)], dim=-1)
    return Z @ Q.T @ (examples.transpose(1, 2) @ mapped) @ P.T


@validated
def mapped_registers(
    Z: Float[Tensor, "batch time width"],
    P: Float[Tensor, "L width width"],
    Q: Float[Tensor, "L width width"],
    Gamma: Float[Tensor, "L L"] | Float[Tensor, "#batch L L"],
    psi: _Slope,
    ridge: NonNegative = 0.0,
) -> Float[Tensor, "batch states time width"]:
    """All states Z_0 .. Z_L, token by token: the query's prediction is their last number, <w_l, x_q>.

    Args:
        Z: tokens Z_0 as :func:`mapped_tokens` makes them, the query's last.
        P: value blocks.
        Q: merged key and query blocks.
        Gamma: Gamma[l, j] weighs layer j's register at layer l >= j; for all prompts, or a table for each.
        psi: from labels and predictions to the examples' values.
        ridge: share of its own prediction that a token subtracts.

    Raises:
        ValueError: if shapes or dtypes do not match.
    """
    _checks.has_query(Z)
    layers, n = len(P), Z.shape[1] - 1
    self_weight = torch.zeros(Z.shape[-1], dtype=Z.dtype, device=Z.device)
    self_weight[-1] = n * ridge
    states, registers = [Z], list[Tensor]()
    for layer in range(layers):
        registers.append(mapped_attention(states[-1], P[layer], Q[layer], psi) - self_weight * states[-1])
        total = sum((Gamma[..., layer, j, None, None] * R for j, R in enumerate(registers)), torch.zeros_like(Z))
        states.append(states[-1] + total / n)
    return torch.stack(states, dim=1)


@validated
def mapped_iterates(
    prompt: Prompt,
    Gamma: Float[Tensor, "L L"] | Float[Tensor, "#batch L L"],
    psi: _Slope,
    ridge: NonNegative = 0.0,
) -> Float[Tensor, "batch states d"]:
    """Iterates w_0 = 0 .. w_L equivalent to :func:`mapped_registers` with A = I: layer l predicts <w_l, x_q>.

    Args:
        prompt: its query is not used.
        Gamma: Gamma[l, j] weighs the gradient at w_j in the step of layer l >= j; for all prompts, or a table for each.
        psi: from labels and predictions to the examples' values, such as :meth:`~icl.tasks.objectives.Objective.slope`.
        ridge: of the objective.

    Raises:
        ValueError: if shapes or dtypes do not match.
    """
    _checks.dtype("Gamma", Gamma, prompt.x.dtype, "to match prompt")
    if Gamma.dim() == 3 and len(Gamma) not in (1, prompt.batch):
        raise ValueError(f"Gamma must have {prompt.batch} or 1 tables to match prompt, got {len(Gamma)}")
    layers = Gamma.shape[-1]
    X, y = prompt.x[:, :-1], prompt.y[:, :-1]
    states, registers = [torch.zeros_like(X[:, 0])], list[Tensor]()
    for layer in range(layers):
        s = (X @ states[-1].unsqueeze(-1)).squeeze(-1)
        gradient = (_psi(psi, y, s).unsqueeze(1) @ X).squeeze(1) / prompt.n
        registers.append(gradient + ridge * states[-1])
        step = sum((Gamma[..., layer, j, None] * R for j, R in enumerate(registers)), torch.zeros_like(states[0]))
        states.append(states[-1] - step)
    return torch.stack(states, dim=1)


class EqualSteps(Memory):
    """Gradient descent: one trained step size for all layers; it starts at 1.

    Args:
        layers: L.
        dtype: of the parameters.
    """

    @validated
    def __init__(self, layers: Count, *, dtype: torch.dtype = torch.float64) -> None:
        """Start with steps of 1."""
        super().__init__(layers)
        self.eta = nn.Parameter(torch.ones((), dtype=_checks.precision("dtype", dtype)))

    def Gamma(self) -> Float[Tensor, "L L"]:
        """eta on the diagonal."""
        return self.eta * torch.eye(self.layers, dtype=self.eta.dtype, device=self.eta.device)


class HeavyBall(Memory):
    """Heavy-ball momentum: one step size and one momentum, both trained; starts as :class:`EqualSteps`.

    Args:
        layers: L.
        dtype: of the parameters.
    """

    @validated
    def __init__(self, layers: Count, *, dtype: torch.dtype = torch.float64) -> None:
        """Start with steps of 1 and no momentum."""
        super().__init__(layers)
        self.eta = nn.Parameter(torch.ones((), dtype=_checks.precision("dtype", dtype)))
        self.beta = nn.Parameter(torch.zeros((), dtype=dtype))

    def Gamma(self) -> Float[Tensor, "L L"]:
        """eta beta^(l - j)."""
        lag = torch.arange(self.layers, device=self.eta.device)
        lag = lag[:, None] - lag
        # Powers are taken below the diagonal only: elsewhere their gradient would not be finite.
        return torch.where(lag >= 0, self.eta * self.beta ** lag.clamp(min=0), 0.0)


class StepALayer(Memory):
    """Gradient descent with a trained step size for each layer; starts as :class:`EqualSteps`.

    Args:
        layers: L.
        dtype: of the parameters.
    """

    @validated
    def __init__(self, layers: Count, *, dtype: torch.dtype = torch.float64) -> None:
        """Start with steps of 1."""
        super().__init__(layers)
        self.eta = nn.Parameter(torch.ones(layers, dtype=_checks.precision("dtype", dtype)))

    def Gamma(self) -> Float[Tensor, "L L"]:
        """The steps on the diagonal."""
        return self.eta.diag()


class Mapped(nn.Module):
    """Memformer with a pointwise nonlinearity, A = I.

    Args:
        memory: weights of the registers: this file's, or a :class:`~icl.models.memformer.FullTable` or
            :class:`~icl.models.memformer.OneRegister` of :mod:`icl.models.memformer`.
        psi: from labels and predictions to the examples' values.
        ridge: of the objective.

    Attributes:
        layers: L.
    """

    @validated
    def __init__(self, memory: Memory, psi: _Slope, ridge: NonNegative = 0.0) -> None:
        """Keep the parts."""
        super().__init__()
        if memory.Gamma().dim() != 2:
            raise ValueError(f"memory must have a weight for each pair of layers, got {tuple(memory.Gamma().shape)}")
        self.memory, self.psi, self.ridge = memory, psi, float(ridge)
        self.layers = memory.layers

    @validated
    def iterates(self, prompt: Prompt) -> Float[Tensor, "batch states d"]:
        """Iterates w_0 = 0 .. w_L."""
        return mapped_iterates(prompt, self.memory.Gamma().to(prompt.x), self.psi, self.ridge)

    @validated
    def states(self, prompt: Prompt) -> Float[Tensor, "batch states time width"]:
        """All token states, by the literal token equations."""
        Z = mapped_tokens(prompt)
        A = torch.eye(prompt.d, dtype=Z.dtype, device=Z.device).repeat(self.layers, 1, 1)
        return mapped_registers(Z, *mapped_parameters(A), self.memory.Gamma().to(Z), self.psi, self.ridge)

    @validated
    def forward(self, prompt: Prompt) -> Float[Tensor, " batch"]:
        """Predict the query's label: <w_L, x_q>, as a score for labels +1 and -1."""
        return (self.iterates(prompt)[:, -1] * prompt.x[:, -1]).sum(-1)
