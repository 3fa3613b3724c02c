"""Memformers in reduced form: transformers with registers of their layers' outputs [Dutta & Sra 2025, sec. 2 and 3].

A Memformer's token equations (:mod:`icl.models.token_form`) reduce to d numbers of the prompt's regression problem.
With H = X'X / n, rows of X being the n examples, and the layers' blocks A_l and B_l of (2.8),

    w_{l+1} = w_l - sum_{j<=l} Gamma_j^l T_j' A_j' T_j (H w_j - b),        b = X'y / n,  w_0 = 0,
    T_{l+1} = T_l - sum_{j<=l} Gamma_j^l B_j T_j H T_j' A_j T_j,           T_0 = I,

where token i holds T_l x_i and the residual y_i - <w_l, x_i>. T stays I unless there are B (GD++). Since y holds
<w*, x_i>, w_l - w* = -M_l w* with matrices M_l that depend on the inputs alone: :func:`error_matrices`. From them
:func:`risks` has the expected squared error over query and w* in closed form, so that only the inputs of a prompt are
sampled.

A :class:`Memformer` is a preconditioner (:class:`FixedBlocks`, :class:`ScaledBlocks`, :class:`Full`), a memory
(:class:`NoMemory`, :class:`OneRegister`, :class:`Shared`, :class:`FullTable`, :class:`TokenWise`), and, for GD++, the
blocks B as another preconditioner.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks
from icl._bounds import Count, Positive, validated
from icl.models.token_form import many_registers, parameters, token_errors
from icl.tasks import Prompt


@validated
def error_matrices(
    H: Float[Tensor, "batch d d"],
    A: Float[Tensor, "L d d"],
    Gamma: Float[Tensor, "..."],
    B: Float[Tensor, "L d d"] | None = None,
) -> Float[Tensor, "batch states d d"]:
    """Error matrices M_0 = I .. M_L with w_l - w* = -M_l w*.

    Args:
        H: X'X / n of each prompt.
        A: preconditioners as in (2.8).
        Gamma: Gamma[l, j] weighs layer j's register at layer l >= j: (L, L); or (L, L, d + 1), a weight for each row
            of a register, of which only the last acts without B; or (batch, L, L, 1 or d + 1), others a prompt.
        B: the blocks that make it GD++; None is 0.

    Raises:
        ValueError: if shapes or dtypes do not match.
    """
    start = torch.eye(H.shape[-1], dtype=H.dtype, device=H.device).expand_as(H)
    return _descend(start, lambda M: H @ M, H, A, Gamma, B)


@validated
def iterates(
    H: Float[Tensor, "batch d d"],
    b: Float[Tensor, "batch d"],
    A: Float[Tensor, "L d d"],
    Gamma: Float[Tensor, "..."],
    B: Float[Tensor, "L d d"] | None = None,
) -> Float[Tensor, "batch states d"]:
    """Iterates w_0 = 0 .. w_L of each prompt: layer l predicts <w_l, x_q>, with B or without.

    Args:
        H: X'X / n of each prompt.
        b: X'y / n of each prompt.
        A: preconditioners as in (2.8).
        Gamma: weights as in :func:`error_matrices`.
        B: the blocks that make it GD++; None is 0.

    Raises:
        ValueError: if shapes or dtypes do not match.
    """
    w = _descend(torch.zeros_like(b).unsqueeze(-1), lambda w: H @ w - b.unsqueeze(-1), H, A, Gamma, B)
    return w.squeeze(-1)


def _descend(
    start: Tensor, gradient: Callable[[Tensor], Tensor], H: Tensor, A: Tensor, Gamma: Tensor, B: Tensor | None
) -> Tensor:
    """The recurrence of this file's head on the columns of `start`, (batch, d, columns)."""
    layers, d = len(A), H.shape[-1]
    # Axes: prompt, layer, register and its rows, the last of them for the labels.
    weights = Gamma[None, :, :, None] if Gamma.dim() == 2 else Gamma[None] if Gamma.dim() == 3 else Gamma
    prompts, *rest, rows_given = weights.shape if weights.dim() == 4 else (0, 0)
    if rest != [layers, layers] or prompts not in (1, len(H)) or rows_given not in (1, d + 1):
        raise ValueError(
            f"Gamma must have shape ({layers}, {layers}), ({layers}, {layers}, 1 or {d + 1}) or "
            f"({len(H)}, {layers}, {layers}, 1 or {d + 1}) to match A and H, got {tuple(Gamma.shape)}"
        )
    labels, rows = weights[..., -1, None, None], weights[..., : max(1, rows_given - 1), None]
    states, registers = [start], list[Tensor]()
    if B is not None:
        tokens, moved = [torch.eye(d, dtype=H.dtype, device=H.device).expand_as(H)], list[Tensor]()
    for layer in range(layers):
        step = gradient(states[-1])
        if B is None:
            registers.append(A[layer].T @ step)
        else:
            T = tokens[-1]
            AT = A[layer] @ T
            registers.append(AT.transpose(1, 2) @ (T @ step))
            moved.append(B[layer] @ (T @ H @ T.transpose(1, 2)) @ AT)
            terms = (rows[:, layer, j] * shift for j, shift in enumerate(moved))
            tokens.append(T - sum(terms, torch.zeros_like(T)))
        terms = (labels[:, layer, j] * R for j, R in enumerate(registers))
        states.append(states[-1] - sum(terms, torch.zeros_like(start)))
    return torch.stack(states, dim=1)


@validated
def risks(M: Float[Tensor, "*batch d d"], Sigma: Float[Tensor, "d d"] | Any) -> Float[Tensor, "*batch"]:
    """Expected squared error (<w_l - w*, x_q>)^2 over x_q ~ N(0, Sigma) and w* ~ N(0, Sigma^-1), prompt by prompt.

    In closed form ||Sigma^(1/2) M_l Sigma^(-1/2)||_F^2: no query and no w* need be drawn.

    Args:
        M: matrices with w_l - w* = -M_l w*, as :func:`error_matrices` returns them.
        Sigma: covariance of the inputs; an array or a tensor.

    Raises:
        ValueError: if Sigma is not symmetric and positive definite, or does not match M.
    """
    plain = Sigma.detach().cpu().numpy() if isinstance(Sigma, Tensor) else Sigma
    values, vectors = np.linalg.eigh(_checks.covariance("Sigma", plain, M.shape[-1]))
    # Below this an eigenvalue is indistinguishable from 0.
    if not values[0] > 1e-12 * values[-1]:
        raise ValueError(f"Sigma must be positive definite, its smallest eigenvalue is {values[0]:.3g}")
    root, inverse = (torch.from_numpy((vectors * values**power) @ vectors.T).to(M) for power in (0.5, -0.5))
    return (root @ M @ inverse).square().sum((-2, -1))


class FixedBlocks(nn.Module):
    """Preconditioner of constant matrices A_l, copied and not trained.

    Args:
        A: (L, d, d), at least one of them.
    """

    @validated
    def __init__(self, A: Float[Tensor, "L d d"]) -> None:
        """Keep the matrices."""
        super().__init__()
        if not len(A):
            raise ValueError(f"A must hold at least one matrix, got {tuple(A.shape)}")
        _checks.precision("dtype", A.dtype)
        self.register_buffer("matrices", A.detach().clone())

    def A(self) -> Float[Tensor, "L d d"]:
        """The matrices."""
        return self.get_buffer("matrices")


class ScaledBlocks(nn.Module):
    """Preconditioner A_l = a_l times one constant matrix; the a_l are trained and start at 1.

    Args:
        matrix: (d, d), copied; its dtype is that of the a_l.
        layers: L.
    """

    @validated
    def __init__(self, matrix: Float[Tensor, "d d"], layers: Count) -> None:
        """Start at the matrix itself."""
        super().__init__()
        _checks.precision("dtype", matrix.dtype)
        self.register_buffer("matrix", matrix.detach().clone())
        self.a = nn.Parameter(torch.ones(layers, dtype=matrix.dtype))

    def A(self) -> Float[Tensor, "L d d"]:
        """The matrices."""
        return self.a[:, None, None] * self.get_buffer("matrix")


class Full(nn.Module):
    """Preconditioner of matrices A_l that are trained in every entry, initially the identity.

    Args:
        d: dimension of the inputs.
        layers: L.
        dtype: of the parameters.
    """

    @validated
    def __init__(self, d: Count, layers: Count, *, dtype: torch.dtype = torch.float64) -> None:
        """Start at the identity."""
        super().__init__()
        _checks.fits_memory("d", d, 8 * layers * d**2)
        eye = torch.eye(d, dtype=_checks.precision("dtype", dtype))
        self.matrices = nn.Parameter(eye.repeat(layers, 1, 1))

    def A(self) -> Float[Tensor, "L d d"]:
        """The matrices."""
        return self.matrices


class Memory(nn.Module):
    """Base class of memories: `Gamma()` returns the weights for `error_matrices` or `token_errors`."""

    @validated
    def __init__(self, layers: Count) -> None:
        """Keep the number of layers."""
        super().__init__()
        self.layers = layers
        _checks.fits_memory("layers", layers, 8 * layers**2)

    def Gamma(self) -> Float[Tensor, "L L ..."]:
        """Gamma[l, j], 0 for j > l."""
        raise NotImplementedError

    @validated
    def table(self, Gamma: Float[Tensor, "L L ..."]) -> Float[Tensor, "L L tokens rows"]:
        """Broadcast weights: an axis for tokens and one for a register's rows, of size 1 where they share."""
        return Gamma[:, :, None, None] if Gamma.dim() == 2 else Gamma.unsqueeze(2)


class NoMemory(Memory):
    """No memory, a linear transformer: every layer's output is used once, at that layer (2.5).

    Args:
        layers: L.
    """

    def Gamma(self) -> Float[Tensor, "L L"]:
        """The identity."""
        return torch.eye(self.layers, dtype=torch.float64)


class OneRegister(Memory):
    """One register (3.1), (3.2): Gamma_j^l = alpha_l gamma_{j+1} ... gamma_l; starts as :class:`NoMemory`.

    Args:
        layers: L.
        dtype: of the parameters.
    """

    @validated
    def __init__(self, layers: Count, *, dtype: torch.dtype = torch.float64) -> None:
        """Start with steps of 1 and no memory."""
        super().__init__(layers)
        self.alpha = nn.Parameter(torch.ones(layers, dtype=_checks.precision("dtype", dtype)))
        # gamma_0 multiplies the register while it is still 0.
        self.gamma = nn.Parameter(torch.zeros(layers - 1, dtype=dtype))

    def Gamma(self) -> Float[Tensor, "L L"]:
        """Weights of the equivalent memory with a register a layer."""
        table = [self.alpha.new_ones(1)]
        for layer in range(1, self.layers):
            table.append(torch.cat([table[-1] * self.gamma[layer - 1], self.alpha.new_ones(1)]))
        rows = (nn.functional.pad(row, (0, self.layers - len(row))) for row in table)
        return self.alpha[:, None] * torch.stack(list(rows))


class Shared(Memory):
    """One register per layer, one weight per register: Gamma_j^l = Gamma_j for l >= j (sec. 3.3); starts at (1, 0, ..).

    Args:
        layers: L.
        dtype: of the parameters.
    """

    @validated
    def __init__(self, layers: Count, *, dtype: torch.dtype = torch.float64) -> None:
        """Start with the first register alone."""
        super().__init__(layers)
        self.weights = nn.Parameter(torch.eye(layers, dtype=_checks.precision("dtype", dtype))[0].clone())

    def Gamma(self) -> Float[Tensor, "L L"]:
        """The weights in every row, 0 above the diagonal."""
        return self.weights.expand(self.layers, -1).tril()


class FullTable(Memory):
    """One register per layer, a weight for every pair of layers (3.4); starts as :class:`NoMemory`.

    Args:
        layers: L.
        rows: weights for each pair: 1, or d + 1 for one a row of the register.
        dtype: of the parameters.
    """

    @validated
    def __init__(self, layers: Count, *, rows: Count = 1, dtype: torch.dtype = torch.float64) -> None:
        """Start without memory."""
        super().__init__(layers)
        start = torch.eye(layers, dtype=_checks.precision("dtype", dtype))
        if rows > 1:
            start = start.unsqueeze(-1).repeat(1, 1, rows)
        self.weights = nn.Parameter(start)

    def Gamma(self) -> Float[Tensor, "L L ..."]:
        """The lower triangle of the weights."""
        lower = torch.ones(self.layers, self.layers, dtype=torch.bool, device=self.weights.device).tril()
        return torch.where(lower if self.weights.dim() == 2 else lower.unsqueeze(-1), self.weights, 0.0)


class TokenWise(Memory):
    """One register per layer, a weight per token, the same at all later layers; every token starts as `Shared`.

    Args:
        layers: L.
        n: number of examples; prompts must have as many.
        dtype: of the parameters.
    """

    @validated
    def __init__(self, layers: Count, n: Count, *, dtype: torch.dtype = torch.float64) -> None:
        """Start with the first register alone."""
        super().__init__(layers)
        start = torch.eye(layers, dtype=_checks.precision("dtype", dtype))[0]
        self.weights = nn.Parameter(start[:, None].repeat(1, n + 1))

    def Gamma(self) -> Float[Tensor, "L L time"]:
        """The weights in every row, 0 above the diagonal."""
        lower = torch.ones(self.layers, self.layers, dtype=self.weights.dtype, device=self.weights.device).tril()
        return lower.unsqueeze(-1) * self.weights

    @validated
    def table(self, Gamma: Float[Tensor, "L L n"]) -> Float[Tensor, "L L n rows"]:
        """Broadcast weights: a register's rows share them."""
        return Gamma.unsqueeze(-1)


class Memformer(nn.Module):
    """Layers of linear attention with a memory of their outputs.

    Args:
        preconditioner: the blocks A of (2.8).
        memory: weights of the registers.
        curvature: the blocks B of (2.8), which make it GD++; None is 0.

    Attributes:
        layers: L.
        d: dimension of the inputs.

    >>> import torch
    >>> from icl.models.memformer import FullTable, Memformer, ScaledBlocks
    >>> from icl.profile import make_generator
    >>> from icl.tasks import StationaryRegression
    >>> model = Memformer(ScaledBlocks(0.5 * torch.eye(3), layers=4), FullTable(4))
    >>> prompt = StationaryRegression(d=3, n=20).sample(8, generator=make_generator("example"))
    >>> model(prompt).shape, model.risks(prompt.x[:, :-1], torch.eye(3)).shape  # risks after 0 .. 4 layers
    (torch.Size([8]), torch.Size([8, 5]))
    """

    @validated
    def __init__(
        self,
        preconditioner: FixedBlocks | ScaledBlocks | Full,
        memory: Memory,
        curvature: FixedBlocks | ScaledBlocks | Full | None = None,
    ) -> None:
        """Check that the parts fit together."""
        super().__init__()
        for name, blocks in (("preconditioner", preconditioner), ("curvature", curvature)):
            if blocks is not None and len(blocks.A()) != memory.layers:
                raise ValueError(f"{name} must have {memory.layers} layers to match memory, got {len(blocks.A())}")
        A = preconditioner.A()
        if curvature is not None:
            _checks.shape("curvature", curvature.A(), tuple(A.shape), "to match preconditioner")
            _checks.dtype("curvature", curvature.A(), A.dtype, "to match preconditioner")
        self.preconditioner, self.memory, self.curvature = preconditioner, memory, curvature
        self.layers, self.d = memory.layers, A.shape[-1]

    def blocks(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """A, Gamma and B, in A's dtype and on its device."""
        A = self.preconditioner.A()
        return A, self.memory.Gamma().to(A), None if self.curvature is None else self.curvature.A()

    def _parts(self, name: str, inputs: Tensor, extra: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Check the inputs and return `blocks`; the last `extra` positions are no examples."""
        A, Gamma, B = self.blocks()
        time = Gamma.shape[-1] - 1 + extra if isinstance(self.memory, TokenWise) else None
        _checks.shape(name, inputs, (None, time, self.d), "to match the model")
        _checks.dtype(name, inputs, A.dtype, "to match the model")
        return A, Gamma, B

    @validated
    def errors(self, X: Float[Tensor, "batch n d"]) -> Float[Tensor, "batch states d d"]:
        """Error matrices M_0 .. M_L, w_l - w* = -M_l w*, from the inputs of the n examples."""
        A, Gamma, B = self._parts("X", X, 0)
        if isinstance(self.memory, TokenWise):
            return token_errors(X, A, Gamma, B)
        return error_matrices(X.transpose(1, 2) @ X / X.shape[1], A, Gamma, B)

    @validated
    def risks(self, X: Float[Tensor, "batch n d"], Sigma: Any) -> Float[Tensor, "batch states"]:
        """Expected squared error over query and w* after 0 .. L layers, prompt by prompt (the function `risks`)."""
        return risks(self.errors(X), Sigma)

    @validated
    def states(self, prompt: Prompt) -> Float[Tensor, "batch states time width"]:
        """All token states, by the paper's literal equations."""
        A, Gamma, B = self._parts("x", prompt.x, 1)
        P, Q = parameters(A, B)
        return many_registers(prompt.tokens(), P, Q, self.memory.table(Gamma))

    @validated
    def forward(self, prompt: Prompt) -> Float[Tensor, " batch"]:
        """Predict the query's label, <w_L, x_q>."""
        A, Gamma, B = self._parts("x", prompt.x, 1)
        if isinstance(self.memory, TokenWise):
            return -self.states(prompt)[:, -1, -1, -1]
        X, y = prompt.x[:, :-1], prompt.y[:, :-1]
        H, b = X.transpose(1, 2) @ X / prompt.n, (y.unsqueeze(1) @ X).squeeze(1) / prompt.n
        w = iterates(H, b, A, Gamma, B)[:, -1]
        return (w * prompt.x[:, -1]).sum(-1)


@validated
def init_normal_(model: nn.Module, scale: Positive, *, generator: torch.Generator, names: Sequence[str] = ()) -> None:
    """Initialise parameters from N(0, scale^2) in place: those whose names contain one of `names`, or all.

    Args:
        model: its parameters are drawn, in their own order.
        scale: standard deviation.
        generator: the stream to draw from.
        names: parts of parameters' names, such as ("alpha", "gamma"); empty for all parameters.

    Raises:
        ValueError: if one of the names is part of no parameter's, or an argument is none.
    """
    named = dict(model.named_parameters())
    # A plain string would be taken for its letters.
    if isinstance(names, str) or not all(any(str(part) in name for name in named) for part in names):
        raise ValueError(f"names must be a sequence of parts of {', '.join(named) or 'no name'}, got {names!r}")
    chosen = [p for name, p in named.items() if not names or any(part in name for part in names)]
    for parameter in chosen:
        _checks.check_generator(generator, parameter.dtype)
    with torch.no_grad():
        for p in chosen:
            p.copy_(scale * torch.randn(p.shape, generator=generator, dtype=p.dtype, device=generator.device))
