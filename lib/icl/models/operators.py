"""Sequence operators: linear attention with decay, and the delta rule, in equivalent recurrent and parallel forms.

    S_t = g_t S_{t-1} + v_t k_t',    o_t = S_t q_t                                             (5)

:func:`recurrent` is the definition, :func:`parallel` one masked matrix product, :func:`chunked` parallel inside blocks
of time and recurrent between them: its cost grows linearly with time and it keeps the hardware busy. All three have the
same arguments and results and agree in value and gradient; reads have the dtype of v, under autocast too, where
products of matrices are formed in its dtype. Decay 1 everywhere is plain linear attention. Products of decays are
formed as products (never as exponentials of summed logarithms), so that 0 is an ordinary value, gradient included.

The delta rule writes the prediction error, not the value itself [Schlag et al. 2021; Yang et al. 2024]:

    e_t = v_t - S_{t-1} k_t,    S_t = g_t (S_{t-1} + beta_t e_t k_t'),    o_t = S_{t-1} q_t

Its reads are strict, as in :func:`~icl.filters.delta_rule`, whose recurrence this is with v = y and k = q = x.
:func:`delta_recurrent` is the definition. :func:`delta_chunked` takes a block of time at once: inside it the errors
solve a unit triangular system,

    (I + M) E = V - aged K S',    M_ti = (g_i .. g_{t-1}) beta_i k_i'k_t for i < t, 0 otherwise.

Layout: q, k (batch, time, heads, key), v (batch, time, heads, value); decay g and write strength beta >= 0 broadcast to
(batch, time, heads), so that (1, 1, heads) is a fixed factor per head and (batch, time, heads) a gate per token.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from icl import _checks
from icl._bounds import Count, validated

_Keys = Float[Tensor, "batch time heads key"]
_Values = Float[Tensor, "batch time heads value"]
_Gate = Float[Tensor, "#batch #time #heads"]


def _gate(q: Tensor, gate: Tensor, name: str = "decay", *, at_most: float = 1.0) -> Tensor:
    """Check a gate's range and expand it to (batch or 1, time, heads).

    A batch axis of one is kept, so that the masks of a fixed decay are shared by all prompts.
    """
    if q.shape[1] == 0:
        raise ValueError("q must hold at least one position in time, got 0")
    _checks.gate(name, gate, at_most=at_most)
    return gate.expand(-1, q.shape[1], q.shape[2])


@validated
def recurrent(q: _Keys, k: _Keys, v: _Values, decay: _Gate) -> _Values:
    """Linear attention with decay (5), recurrent form, the reference: a state of (value, key) numbers a head."""
    decay = _gate(q, decay)
    state = q.new_zeros(q.shape[0], q.shape[2], v.shape[3], q.shape[3])
    outputs = []
    # Unbound once, not indexed step by step: the backward pass of an index fills a tensor of full length.
    for qt, kt, vt, gt in zip(q.unbind(1), k.unbind(1), v.unbind(1), decay.unbind(1), strict=True):
        state = gt[..., None, None] * state + vt.unsqueeze(-1) * kt.unsqueeze(-2)
        outputs.append((state @ qt.unsqueeze(-1)).squeeze(-1))
    return torch.stack(outputs, dim=1).to(v)


def _mask(decay: Tensor) -> Tensor:
    """Decay mask M_ij = g_{j+1} ... g_i for i >= j, else 0; (batch, time, heads) -> (batch, heads, time, time)."""
    g = decay.transpose(1, 2)
    time = g.shape[-1]
    below = torch.ones(time, time, dtype=torch.bool, device=g.device).tril(-1)
    factors = torch.where(below, g.unsqueeze(-1), 1.0)
    return factors.cumprod(dim=-2).tril()


@validated
def parallel(q: _Keys, k: _Keys, v: _Values, decay: _Gate) -> _Values:
    """Linear attention with decay, parallel form (6): o_i = sum_{j <= i} (g_{j+1} ... g_i) (q_i'k_j) v_j.

    Cost and memory grow with time^2.
    """
    decay = _gate(q, decay)
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * _mask(decay)
    return torch.einsum("bhij,bjhd->bihd", scores, v).to(v)


@validated
def chunked(q: _Keys, k: _Keys, v: _Values, decay: _Gate, *, size: Count = 32) -> _Values:
    """Linear attention with decay (5), chunked form [Yang et al. 2023, sec. 4].

    Parallel inside blocks of `size` tokens, recurrent in the state between them.

    Raises:
        ValueError: if size is no positive integer, or for arguments that do not fit together.

    >>> import torch
    >>> from icl.models.operators import chunked, parallel, recurrent
    >>> from icl.profile import make_generator
    >>> q, k, v = torch.randn(3, 2, 50, 4, 8, generator=make_generator("example"), dtype=torch.float64)
    >>> decay = torch.tensor([[[0.5, 0.9, 0.99, 1.0]]], dtype=torch.float64)  # one a head
    >>> reads = [recurrent(q, k, v, decay), parallel(q, k, v, decay), chunked(q, k, v, decay, size=16)]
    >>> reads[0].shape, all(torch.allclose(reads[0], each) for each in reads)
    (torch.Size([2, 50, 4, 8]), True)
    """
    decay = _gate(q, decay)
    state = q.new_zeros(q.shape[0], q.shape[2], v.shape[3], q.shape[3])
    outputs = []
    # Split once, not sliced block by block: the backward pass of a slice fills a tensor of full length.
    for qb, kb, vb, gb in zip(*(t.split(size, dim=1) for t in (q, k, v, decay)), strict=True):
        mask = _mask(gb)
        # The state before the block has decayed by g_1 ... g_i when token i reads it; g_1 is not in the mask.
        age = gb.cumprod(dim=1)
        scores = torch.einsum("bihd,bjhd->bhij", qb, kb) * mask
        past = torch.einsum("bihk,bhvk->bihv", qb, state) * age.unsqueeze(-1)
        outputs.append(torch.einsum("bhij,bjhd->bihd", scores, vb) + past)
        decayed = kb * mask[..., -1, :].transpose(1, 2).unsqueeze(-1)
        state = age[:, -1, :, None, None] * state + torch.einsum("bjhv,bjhk->bhvk", vb, decayed)
    return torch.cat(outputs, dim=1).to(v)


@validated
def delta_recurrent(q: _Keys, k: _Keys, v: _Values, decay: _Gate, beta: _Gate) -> _Values:
    """Delta rule with decay, recurrent form, the reference."""
    decay, beta = _gate(q, decay), _gate(q, beta, "beta", at_most=math.inf)
    state = q.new_zeros(q.shape[0], q.shape[2], v.shape[3], q.shape[3])
    outputs = []
    for qt, kt, vt, gt, bt in zip(*(t.unbind(1) for t in (q, k, v, decay, beta)), strict=True):
        outputs.append((state @ qt.unsqueeze(-1)).squeeze(-1))
        error = vt - (state @ kt.unsqueeze(-1)).squeeze(-1)
        state = gt[..., None, None] * (state + bt[..., None, None] * error.unsqueeze(-1) * kt.unsqueeze(-2))
    return torch.stack(outputs, dim=1).to(v)


@validated
def delta_chunked(q: _Keys, k: _Keys, v: _Values, decay: _Gate, beta: _Gate, *, size: Count = 32) -> _Values:
    """Delta rule with decay, chunked form: a triangular system inside blocks of `size` tokens, a state between them.

    Raises:
        ValueError: if size is no positive integer, or for arguments that do not fit together.

    >>> import torch
    >>> from icl.models.operators import delta_chunked
    >>> x, y = torch.eye(2).repeat(3, 1).reshape(1, 6, 1, 2), torch.tensor([2.0, -1.0] * 3).reshape(1, 6, 1, 1)
    >>> one, half = torch.ones(1, 1, 1), torch.full((1, 1, 1), 0.5)
    >>> delta_chunked(x, x, y, one, half).flatten()  # LMS with mu = 0.5: the error halves
    tensor([ 0.0000,  0.0000,  1.0000, -0.5000,  1.5000, -0.7500])
    """
    decay, beta = _gate(q, decay), _gate(q, beta, "beta", at_most=math.inf)
    _checks.precision("dtype", q.dtype)  # no system is solved in another
    state = q.new_zeros(q.shape[0], q.shape[2], v.shape[3], q.shape[3])
    outputs = []
    for Q, K, V, g, b in zip(*(t.transpose(1, 2).split(size, dim=2) for t in (q, k, v, decay, beta)), strict=True):
        length = g.shape[-1]
        # When token t reads, the state has decayed by g_{t-1} and earlier gates, not by g_t.
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
        # At the block's end: written at i, decayed by g_i to the last.
        end = g.flip(-1).cumprod(dim=-1).flip(-1)
        state = end[..., :1, None] * state + error.transpose(-1, -2) @ (K * (end * b).unsqueeze(-1))
    return torch.cat(outputs, dim=1).to(v)
