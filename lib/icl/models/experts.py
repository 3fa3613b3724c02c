"""Multi-head Memformers, mixtures of experts, and their gates [Dutta & Sra 2025, sec. 4].

Heads h = 1 .. H have blocks and weights of their own, each a :class:`~icl.models.memformer.Memformer`. Gates alpha_h
weight them in one of two ways:

- on layers (:class:`MultiHead`): all heads read the same tokens, and their outputs are summed (sec. 4.1, gated in sec.
  4.2),

      Z_{l+1} = Z_l + 1/n sum_h alpha_h sum_{j<=l} Gamma_j^{h,l} R_j^h,    R_j^h = Attn_{P_j^h, Q_j^h}(Z_j)

- on outputs (:class:`OutputMixture`): every head runs alone, and predictions are summed, sum_h alpha_h Head_h(Z_0) (Thm
  4.1)

Gates are free numbers (:class:`FreeGate`), convex (:class:`ConvexGate`), or computed from the prompt's inputs
(:class:`PromptGate`).

Two facts, not in the paper. A multi-head Memformer is one Memformer of H L layers: layer l's registers, one a head, are
H layers of which only the last moves the tokens. It is computed that way here; the recursion is that of
:mod:`icl.models.memformer`. And where B = 0, H heads with proportional weights are one head of L layers,

    Gamma_j^{h,l} = g_j^h c_j^l  =>  A_j = sum_h alpha_h g_j^h A_j^h with the weights c_j^l,

since a head's output is linear in A. :func:`merge` finds it.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks
from icl._bounds import Count, validated
from icl.models.memformer import (
    Full,
    FullTable,
    Memformer,
    TokenWise,
    error_matrices,
    iterates,
    risks,
)
from icl.models.token_form import many_heads, parameters, token_errors, token_iterates
from icl.tasks import Prompt

#: Tolerance of :func:`merge`, in units of the dtype's precision times the largest entry.
_ROUNDING = 1e3


class FreeGate(nn.Module):
    """Free gates: any numbers, the same for every prompt; they start at 1/heads.

    Args:
        heads: H.
        dtype: of the parameters.
    """

    @validated
    def __init__(self, heads: Count, *, dtype: torch.dtype = torch.float64) -> None:
        """Start with the mean of the heads."""
        super().__init__()
        self.heads = heads
        self.alpha = nn.Parameter(torch.full((heads,), 1 / heads, dtype=_checks.precision("dtype", dtype)))

    @validated
    def forward(self, H: Float[Tensor, "batch d d"]) -> Float[Tensor, "1 heads"]:
        """Gates; H is not used."""
        _checks.dtype("H", H, self.alpha.dtype, "to match the gate")
        return self.alpha.unsqueeze(0)


class ConvexGate(nn.Module):
    """Convex gates alpha = softmax(logits), >= 0 with sum 1, the same for every prompt; they start at 1/heads.

    A sum of 1 alone, as in footnote 2 of the paper, makes an affine combination, which may leave the heads' hull.

    Args:
        heads: H.
        dtype: of the parameters.
    """

    @validated
    def __init__(self, heads: Count, *, dtype: torch.dtype = torch.float64) -> None:
        """Start with the mean of the heads."""
        super().__init__()
        self.heads = heads
        self.logits = nn.Parameter(torch.zeros(heads, dtype=_checks.precision("dtype", dtype)))

    @validated
    def forward(self, H: Float[Tensor, "batch d d"]) -> Float[Tensor, "1 heads"]:
        """Gates, a softmax; H is not used."""
        _checks.dtype("H", H, self.logits.dtype, "to match the gate")
        return self.logits.softmax(0).unsqueeze(0)


class PromptGate(nn.Module):
    """Prompt-dependent gates, a function of one scale of the curvature H: alpha = link(u ln scale(H) + v).

    With link = exp, u = -1 and v = 0 a head trained on inputs of variance 1 is divided by the scale: the error
    polynomial p(t) of its layers is p(t / scale), whatever the variance. Labels are not used.

    Args:
        u: (heads,) initial slopes; dimensionless.
        v: (heads,) initial offsets, to match u.
        scale: function of H that returns a number > 0 for each prompt, in x^2, such as
            :func:`~icl.tasks.quadratics.mean_curvature`.
        link: function of the (batch, heads) numbers, such as torch.exp; its result has the same shape.
    """

    @validated
    def __init__(
        self,
        u: Float[Tensor, " heads"],
        v: Float[Tensor, " heads"],
        scale: Callable[[Tensor], Tensor],
        link: Callable[[Tensor], Tensor] = torch.exp,
    ) -> None:
        """Keep copies of the initial values."""
        super().__init__()
        if not len(u):
            raise ValueError(f"u must have at least one head, got shape {tuple(u.shape)}")
        _checks.precision("dtype", u.dtype)
        self.heads, self.scale, self.link = len(u), scale, link
        self.u, self.v = nn.Parameter(u.detach().clone()), nn.Parameter(v.detach().clone())

    @validated
    def forward(self, H: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch heads"]:
        """Gates of each prompt."""
        _checks.dtype("H", H, self.u.dtype, "to match the gate")
        scale = self.scale(H)
        _checks.shape("scale", scale, (len(H),), "to have a number for each prompt")
        # NaN fails the comparison as well.
        if _checks.is_readable(scale) and not bool((scale > 0).all()):
            raise ValueError(f"scale must be > 0 for each prompt, got {scale[~(scale > 0)][0].item()}")
        gates = self.link(scale.log().unsqueeze(-1) * self.u + self.v)
        _checks.shape("link", gates, (len(H), self.heads), "to have a gate for each prompt and head")
        return gates


def _check_heads(heads: Any, gate: Any) -> tuple[int, int, torch.dtype]:
    """Check that heads and gate match; return their layers, d and dtype."""
    if not heads or not all(isinstance(head, Memformer) for head in heads):
        raise ValueError(f"heads must be at least one icl.models.memformer.Memformer, got {heads!r:.200}")
    sizes = [(head.layers, head.d, head.preconditioner.A().dtype) for head in heads]
    if len(set(sizes)) > 1:
        raise ValueError(f"heads must have one number of layers, one d and one dtype, got {sizes}")
    layers, d, dtype = sizes[0]
    if gate is not None:
        if not isinstance(gate, FreeGate | ConvexGate | PromptGate):
            raise ValueError(f"gate must be a FreeGate, ConvexGate or PromptGate of icl.models.experts, got {gate!r}")
        if gate.heads != len(heads):
            raise ValueError(f"gate must have {len(heads)} heads to match heads, got {gate.heads}")
        _checks.dtype("gate", next(gate.parameters()).dtype, dtype, "to match heads")
    return layers, d, dtype


class _Gated(nn.Module):
    """Base class of both kinds of mixtures: heads and a gate."""

    @validated
    def __init__(self, heads: Sequence[Memformer], gate: FreeGate | ConvexGate | PromptGate | None = None) -> None:
        super().__init__()
        self.layers, self.d, _ = _check_heads(heads, gate)
        self.heads, self.gate = nn.ModuleList(heads), gate

    def _members(self) -> list[Memformer]:
        """Heads, typed: `nn.ModuleList` holds plain modules."""
        return [cast(Memformer, head) for head in self.heads]

    def _check_dtype(self, name: str, value: Tensor) -> None:
        """Refuse another dtype than the heads' present one."""
        _checks.dtype(name, value, self._members()[0].preconditioner.A().dtype, "to match the model")

    @validated
    def gates(self, H: Float[Tensor, "batch d d"]) -> Float[Tensor, "prompts heads"]:
        """alpha_h, a row for all prompts or one for each; ones without a gate."""
        _checks.shape("H", H, (None, self.d, self.d), "to match the model")
        self._check_dtype("H", H)
        return H.new_ones(1, len(self.heads)) if self.gate is None else self.gate(H)

    def _curvatures(self, name: str, X: Tensor) -> Tensor:
        """H of inputs that match the model."""
        _checks.shape(name, X, (None, None, self.d), "to match the model")
        self._check_dtype(name, X)
        return X.transpose(1, 2) @ X / X.shape[1]

    def errors(self, X: Float[Tensor, "batch n d"]) -> Float[Tensor, "batch states d d"]:
        """Error matrices M_0 .. M_L, w_l - w* = -M_l w*, from the inputs of the n examples."""
        raise NotImplementedError

    @validated
    def risks(self, X: Float[Tensor, "batch n d"], Sigma: Any) -> Float[Tensor, "batch states"]:
        """Expected squared error over query and w* after 0 .. L layers, by prompt (`icl.models.memformer.risks`)."""
        return risks(self.errors(X), Sigma)


class MultiHead(_Gated):
    """Multi-head Memformer: heads read the same tokens, and their gated outputs are summed at every layer.

    Heads that are given the same memory object share and train it together. Where in addition B = 0 and the gates are
    the same for all prompts, they are summed before the layers run, at the cost of one head. Where a head's memory is
    token-wise, the labels of the examples are propagated one by one (:func:`~icl.models.token_form.token_errors`).

    Args:
        heads: at least one, of as many layers and the same d and dtype; token-wise memories are for the same n.
        gate: the alpha_h; None is 1 for each head, plain multi-head attention.

    Attributes:
        layers: L.
        d: dimension of the inputs.
    """

    @validated
    def __init__(self, heads: Sequence[Memformer], gate: FreeGate | ConvexGate | PromptGate | None = None) -> None:
        """Check that the heads fit together."""
        super().__init__(heads, gate)
        sizes = {head.memory.weights.shape[-1] - 1 for head in heads if isinstance(head.memory, TokenWise)}
        if len(sizes) > 1:
            raise ValueError(f"heads must have TokenWise memories for one number of examples, got {sorted(sizes)}")

    @validated
    def blocks(self, H: Float[Tensor, "batch d d"]) -> tuple[Tensor, Tensor, Tensor | None]:
        """A, Gamma and B of the equivalent Memformer (the module's head), of heads times L layers.

        Gamma is as :func:`~icl.models.memformer.error_matrices` takes it, or as
        :func:`~icl.models.token_form.token_errors` does where a memory is token-wise.
        """
        gates, parts = self.gates(H), self._parts()
        curved = any(B is not None for _, _, B in parts)
        if not curved and len(gates) == 1:
            summed = dict[int, tuple[Tensor, Tensor, None]]()
            for alpha, head, (A, Gamma, _) in zip(gates[0], self._members(), parts, strict=True):
                before = summed.get(id(head.memory), (torch.zeros_like(A), Gamma, None))
                summed[id(head.memory)] = before[0] + alpha * A, Gamma, None
            parts, gates = list(summed.values()), gates.new_ones(1, len(summed))
        count = len(parts)
        A = torch.stack([A for A, _, _ in parts], dim=1).flatten(0, 1)
        B = None
        if curved:
            B = torch.stack([torch.zeros_like(A) if B is None else B for A, _, B in parts], dim=1).flatten(0, 1)
        # Axes: prompt, layer, register, its head, its token and its rows.
        each = [Gamma for _, Gamma, _ in parts]
        tokens, rows = (max(Gamma.shape[axis] for Gamma in each) for axis in (2, 3))
        tables = [Gamma.expand(-1, -1, tokens, rows) for Gamma in each]
        weights = gates[:, None, None, :, None, None] * torch.stack(tables, dim=2)
        # Only the last of a layer's heads moves the tokens, by the registers of all.
        still = weights.new_zeros(1).expand(len(gates), self.layers, count - 1, self.layers, count, tokens, rows)
        size = self.layers * count
        Gamma = torch.cat([still, weights.unsqueeze(2)], dim=2).reshape(len(gates), size, size, tokens, rows)
        return A, Gamma.squeeze(3) if tokens == 1 else Gamma, B

    def _parts(self) -> list[tuple[Tensor, Tensor, Tensor | None]]:
        """A, Gamma with an axis for tokens and one for rows, and B of each head."""
        blocks = ((head.memory, *head.blocks()) for head in self._members())
        return [(A, memory.table(Gamma), B) for memory, A, Gamma, B in blocks]

    @validated
    def errors(self, X: Float[Tensor, "batch n d"]) -> Float[Tensor, "batch states d d"]:
        """Error matrices M_0 .. M_L, w_l - w* = -M_l w*, from the inputs of the n examples."""
        H = self._curvatures("X", X)
        A, Gamma, B = self.blocks(H)
        M = error_matrices(H, A, Gamma, B) if Gamma.dim() == 4 else token_errors(X, A, Gamma, B)
        return M[:, :: len(A) // self.layers]

    @validated
    def states(self, prompt: Prompt) -> Float[Tensor, "batch states time width"]:
        """All token states, by the paper's literal equations."""
        gates = self.gates(self._curvatures("x", prompt.x[:, :-1]))
        parts = self._parts()
        P, Q = (torch.stack(blocks) for blocks in zip(*(parameters(A, B) for A, _, B in parts), strict=True))
        tokens = max(Gamma.shape[2] for _, Gamma, _ in parts)
        tables = [Gamma.expand(-1, -1, tokens, self.d + 1) for _, Gamma, _ in parts]
        return many_heads(prompt.tokens(), P, Q, torch.stack(tables), gates)

    @validated
    def forward(self, prompt: Prompt) -> Float[Tensor, " batch"]:
        """Predict the query's label, <w_L, x_q>."""
        X, y = prompt.x[:, :-1], prompt.y[:, :-1]
        H, b = self._curvatures("x", X), (y.unsqueeze(1) @ X).squeeze(1) / prompt.n
        A, Gamma, B = self.blocks(H)
        w = iterates(H, b, A, Gamma, B) if Gamma.dim() == 4 else token_iterates(X, y, A, Gamma, B)
        return (w[:, -1] * prompt.x[:, -1]).sum(-1)


class OutputMixture(_Gated):
    """Mixture of experts: heads run alone, and their gated predictions are summed [Dutta & Sra 2025, Thm 4.1].

    With M_l^h those of a head, M_l = I - sum_h alpha_h (I - M_l^h).

    Args:
        heads: at least one, of as many layers and the same d and dtype.
        gate: the alpha_h; None is 1 for each head.

    Attributes:
        layers: L.
        d: dimension of the inputs.
    """

    @validated
    def errors(self, X: Float[Tensor, "batch n d"]) -> Float[Tensor, "batch states d d"]:
        """Error matrices M_0 .. M_L, w_l - w* = -M_l w*, of the sum of the heads' states after l layers."""
        gates = self.gates(self._curvatures("X", X))
        eye = torch.eye(self.d, dtype=X.dtype, device=X.device)
        each = torch.stack([eye - head.errors(X) for head in self._members()], dim=1)
        return eye - (gates[:, :, None, None, None] * each).sum(1)

    @validated
    def forward(self, prompt: Prompt) -> Float[Tensor, " batch"]:
        """Predict the query's label."""
        gates = self.gates(self._curvatures("x", prompt.x[:, :-1]))
        return (gates * torch.stack([head(prompt) for head in self._members()], dim=1)).sum(1)


@validated
def merge(heads: Sequence[Memformer], alpha: Float[Tensor, " heads"] | None = None) -> Memformer:
    """Merge the heads of `MultiHead(heads)` with gates alpha into one equivalent head, where one exists.

    Without B there is one when each layer's sum_h alpha_h Gamma_j^{h,.} A_j^h, a table of weights times matrices, is
    one column times one matrix: heads of equal weights (then A = sum_h alpha_h A^h, exactly, with their memory), of
    proportional weights, or of proportional matrices. With B, inputs move by sum_h alpha_h B^h X X' A^h, and labels by
    sum_h alpha_h A^h: weights must be equal, with a single B that fits A = sum_h alpha_h A^h. For multiples b_h of
    one B and a_h of one A, alpha_h = 1, it is that of sum_h a_h b_h / sum_h a_h; for others there is none in general.

    Adam's steps on the A^h of H heads of equal weights, all of rate eta, are those on their sum of rate H eta: each
    head's gradient is the sum's.

    Args:
        heads: at least one, of as many layers and the same d and dtype; no memory is token-wise.
        alpha: gates; None is 1 for each head.

    Returns:
        A Memformer with trainable (:class:`~icl.models.memformer.Full`) blocks and the heads' memory if their weights
        are equal, else a :class:`~icl.models.memformer.FullTable` one. It shares no parameters with the heads.

    Raises:
        ValueError: if arguments do not fit together, or no single head is equivalent.
    """
    layers, d, dtype = _check_heads(heads, None)
    if any(isinstance(head.memory, TokenWise) for head in heads):
        raise ValueError("heads must not have a TokenWise memory")
    parts = [head.blocks() for head in heads]
    if alpha is None:
        alpha = parts[0][0].new_ones(len(heads))
    _checks.shape("alpha", alpha, (len(heads),), "to match heads")
    _checks.dtype("alpha", alpha, dtype, "to match heads")
    curved = any(B is not None for _, _, B in parts)
    rounding = _ROUNDING * torch.finfo(dtype).eps
    with torch.no_grad():
        A = alpha[:, None, None, None] * torch.stack([A for A, _, _ in parts])
        first = parts[0][1]
        if all(Gamma.shape == first.shape and torch.equal(Gamma, first) for _, Gamma, _ in parts):
            memory, summed = copy.deepcopy(heads[0].memory), A.sum(0)
        elif curved:
            raise ValueError("heads must have equal weights beside a curvature for one head to be their sum")
        else:
            tables = torch.stack([Gamma if Gamma.dim() == 2 else Gamma[..., -1] for _, Gamma, _ in parts])
            memory = FullTable(layers, dtype=dtype).to(A.device)
            summed = A.new_zeros(layers, d, d)
            # Layer j's register at all later layers: a row a layer, a column an entry of the matrix.
            for j in range(layers):
                U, sizes, V = torch.linalg.svd(torch.einsum("hl,he->le", tables[:, :, j], A[:, j].flatten(1)), False)
                if len(sizes) > 1 and sizes[1] > rounding * sizes[0]:
                    raise ValueError(
                        "heads must have weights or matrices in proportion for one head to be their sum: "
                        f"layer {j} has two parts, of {sizes[0]:.3g} and {sizes[1]:.3g}"
                    )
                # The first of the largest entries, up to rounding, so that the sign does not depend on rounding.
                reach = U[:, 0].abs()
                largest = int((reach > (1 - rounding) * reach.max()).nonzero()[0])
                memory.weights[:, j] = U[:, 0] / U[largest, 0]
                summed[j] = (sizes[0] * U[largest, 0] * V[0]).reshape(d, d)
        blocks, curvature = Full(d, layers, dtype=dtype).to(A.device), None
        blocks.matrices.copy_(summed)
        if curved:
            B = torch.stack([torch.zeros_like(A) if B is None else B for A, _, B in parts])
            moved = torch.einsum("hlab,hlce->labce", B, A)
            fitted = torch.einsum("labce,lce->lab", moved, summed) / summed.square().sum((1, 2))[:, None, None]
            left = (moved - torch.einsum("lab,lce->labce", fitted, summed)).abs().max()
            if not left <= rounding * moved.abs().max():
                raise ValueError(
                    "heads must move the inputs as one head does for one head to be their sum: "
                    f"{left:.3g} of {moved.abs().max():.3g} is left"
                )
            curvature = Full(d, layers, dtype=dtype).to(A.device)
            curvature.matrices.copy_(fitted)
    return Memformer(blocks, memory, curvature)
