"""Memformers by their token equations [Dutta & Sra 2025, sec. 2 and 3]: the literal form, the tests' reference.

The paper's equations run on tokens: rows z_i = (x_i, y_i) of Z (the paper writes columns), and all of them change from
layer to layer. :mod:`icl.models.memformer` has their reduction to d numbers of the prompt's regression problem.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from icl import _checks
from icl._bounds import validated


@validated
def attention(
    Z: Float[Tensor, "batch time width"], P: Float[Tensor, "width width"], Q: Float[Tensor, "width width"]
) -> Float[Tensor, "batch time width"]:
    """Linear attention with the query's token masked (2.3), (2.4); without the 1/n of (2.5).

    With tokens as rows, and X those of the examples, it is Z Q' X'X P'.

    Args:
        Z: tokens, the query's last.
        P: value block.
        Q: merged key and query block.

    Raises:
        ValueError: if shapes or dtypes do not match.
    """
    examples = Z[:, :-1]
    return Z @ Q.T @ (examples.transpose(1, 2) @ examples) @ P.T


@validated
def parameters(
    A: Float[Tensor, "L d d"], B: Float[Tensor, "L d d"] | None = None
) -> tuple[Float[Tensor, "L width width"], Float[Tensor, "L width width"]]:
    """Blocks P and Q of (2.8), width d + 1. The preconditioner is A', the transpose: y_i reads x_j' A x_i.

    Args:
        A: blocks of Q, which enter with a minus sign.
        B: blocks of P, which move the inputs from layer to layer (GD++); None is 0.

    Raises:
        ValueError: if the matrices are not square, or B does not match A.
    """
    layers, d, _ = A.shape
    P, Q = A.new_zeros(layers, d + 1, d + 1), A.new_zeros(layers, d + 1, d + 1)
    P[:, d, d] = 1
    Q[:, :d, :d] = -A
    if B is not None:
        P[:, :d, :d] = B
    return P, Q


@validated
def transformer(
    Z: Float[Tensor, "batch time width"], P: Float[Tensor, "L width width"], Q: Float[Tensor, "L width width"]
) -> Float[Tensor, "batch states time width"]:
    """All states Z_0 .. Z_L of the linear transformer (2.5). Its output (2.6) is -Z_L[-1, -1] = <w_L, x_q>.

    Args:
        Z: tokens Z_0, the query's last.
        P: value blocks.
        Q: merged key and query blocks.

    Raises:
        ValueError: if shapes or dtypes do not match.
    """
    _checks.has_query(Z)
    states = [Z]
    for P_layer, Q_layer in zip(P, Q, strict=True):
        states.append(states[-1] + attention(states[-1], P_layer, Q_layer) / (Z.shape[1] - 1))
    return torch.stack(states, dim=1)


@validated
def one_register(
    Z: Float[Tensor, "batch time width"],
    P: Float[Tensor, "L width width"],
    Q: Float[Tensor, "L width width"],
    alpha: Float[Tensor, " L"] | Float[Tensor, "batch L"],
    gamma: Float[Tensor, " L"] | Float[Tensor, "batch L"],
) -> Float[Tensor, "batch states time width"]:
    """All states of the Memformer with one memory register (3.1), (3.2).

    Args:
        Z: tokens Z_0, the query's last.
        P: value blocks.
        Q: merged key and query blocks.
        alpha: steps along the register, one a layer: for all prompts, or a row for each.
        gamma: share of the register that a layer keeps; the first has no effect, since the register starts at 0.

    Raises:
        ValueError: if shapes or dtypes do not match.
    """
    _checks.has_query(Z)
    states, R = [Z], torch.zeros_like(Z)
    for layer, (P_layer, Q_layer) in enumerate(zip(P, Q, strict=True)):
        R = attention(states[-1], P_layer, Q_layer) + gamma[..., layer, None, None] * R
        states.append(states[-1] + alpha[..., layer, None, None] / (Z.shape[1] - 1) * R)
    return torch.stack(states, dim=1)


@validated
def many_registers(
    Z: Float[Tensor, "batch time width"],
    P: Float[Tensor, "L width width"],
    Q: Float[Tensor, "L width width"],
    Gamma: Float[Tensor, "L L #time #width"],
) -> Float[Tensor, "batch states time width"]:
    """All states of the Memformer with a register a layer (3.3), (3.4).

    Args:
        Z: tokens Z_0, the query's last.
        P: value blocks.
        Q: merged key and query blocks.
        Gamma: Gamma[l, j] weighs layer j's register at layer l >= j; (L, L, time or 1, width or 1).

    Raises:
        ValueError: if shapes or dtypes do not match.
    """
    _checks.has_query(Z)
    states, registers = [Z], list[Tensor]()
    for layer in range(len(P)):
        registers.append(attention(states[-1], P[layer], Q[layer]))
        total = sum((Gamma[layer, j] * R for j, R in enumerate(registers)), torch.zeros_like(Z))
        states.append(states[-1] + total / (Z.shape[1] - 1))
    return torch.stack(states, dim=1)


@validated
def many_heads(
    Z: Float[Tensor, "batch time width"],
    P: Float[Tensor, "heads L width width"],
    Q: Float[Tensor, "heads L width width"],
    Gamma: Float[Tensor, "heads L L #time #width"],
    gates: Float[Tensor, "#batch heads"] | None = None,
) -> Float[Tensor, "batch states time width"]:
    """All states of the Memformer with several heads and a gate for each [Dutta & Sra 2025, sec. 4.1, 4.2].

    Z_{l+1} = Z_l + 1/n sum_h alpha_h sum_{j<=l} Gamma_j^{h,l} R_j^h, where all heads read the same Z.

    Args:
        Z: tokens Z_0, the query's last.
        P: value blocks.
        Q: merged key and query blocks.
        Gamma: Gamma[h, l, j] weighs layer j's register at layer l >= j; (heads, L, L, time or 1, width or 1).
        gates: alpha_h, for all prompts or a row for each; None is 1.

    Raises:
        ValueError: if shapes or dtypes do not match.
    """
    heads, layers = P.shape[:2]
    if not heads:
        raise ValueError(f"P must have at least one head, got {tuple(P.shape)}")
    _checks.has_query(Z)
    if gates is None:
        gates = Z.new_ones(1, heads)
    states, registers = [Z], list[list[Tensor]]()
    for layer in range(layers):
        registers.append([attention(states[-1], P[h, layer], Q[h, layer]) for h in range(heads)])
        total = torch.zeros_like(Z)
        for j, each in enumerate(registers):
            for h, R in enumerate(each):
                total = total + gates[:, h, None, None] * Gamma[h, layer, j] * R
        states.append(states[-1] + total / (Z.shape[1] - 1))
    return torch.stack(states, dim=1)


@validated
def token_errors(
    X: Float[Tensor, "batch n d"],
    A: Float[Tensor, "L d d"],
    Gamma: Float[Tensor, "..."],
    B: Float[Tensor, "L d d"] | None = None,
) -> Float[Tensor, "batch states d d"]:
    """Error matrices M_0 .. M_L with token-wise weights Gamma[l, j, i], the query's last; see `error_matrices`.

    No single w_l describes all examples then, and their n label residuals are propagated; with B their inputs too,
    since each token moves by weights of its own. The query's error is still linear in its input and in w*, by M_l.

    Args:
        X: inputs of the n examples, without the query's.
        A: preconditioners as in (2.8).
        Gamma: Gamma[l, j, i] weighs layer j's register at layer l >= j and token i: (L, L, n + 1); or (batch or 1, L,
            L, n + 1 or 1, d + 1 or 1), others a prompt, and a weight for each row of a register.
        B: the blocks that make it GD++; None is 0.

    Raises:
        ValueError: if shapes or dtypes do not match.
    """
    eye = torch.eye(X.shape[-1], dtype=X.dtype, device=X.device)
    # Row i: the label residual of example i as a linear function of w*.
    return _propagate(X, X, eye.expand(len(X), *eye.shape), A, Gamma, B)


@validated
def token_iterates(
    X: Float[Tensor, "batch n d"],
    y: Float[Tensor, "batch n"],
    A: Float[Tensor, "L d d"],
    Gamma: Float[Tensor, "..."],
    B: Float[Tensor, "L d d"] | None = None,
) -> Float[Tensor, "batch states d"]:
    """Iterates w_0 = 0 .. w_L with token-wise weights: layer l predicts <w_l, x_q>; see `iterates`.

    Args:
        X: inputs of the n examples, without the query's.
        y: their labels.
        A: preconditioners as in (2.8).
        Gamma: weights as in :func:`token_errors`.
        B: the blocks that make it GD++; None is 0.

    Raises:
        ValueError: if shapes or dtypes do not match.
    """
    none = torch.zeros(len(X), X.shape[-1], 1, dtype=X.dtype, device=X.device)
    return -_propagate(X, y.unsqueeze(-1), none, A, Gamma, B).squeeze(-1)


def _propagate(X: Tensor, left: Tensor, M: Tensor, A: Tensor, Gamma: Tensor, B: Tensor | None) -> Tensor:
    """Propagate label residuals of the examples, (batch, n, columns), and of the query, x_q' M_l."""
    batch, n, d = X.shape
    layers = len(A)
    # Axes: prompt, layer, register, its token and its rows, the last of them for the labels.
    weights = Gamma[None, ..., None] if Gamma.dim() == 3 else Gamma
    prompts, *pair, tokens, rows = weights.shape if weights.dim() == 5 else (0, 0, 0, 0)
    if (
        pair != [layers, layers]
        or prompts not in (1, batch)
        or tokens not in ((n + 1,) if Gamma.dim() == 3 else (1, n + 1))
        or rows not in (1, d + 1)
    ):
        raise ValueError(
            f"Gamma must have shape ({layers}, {layers}, {n + 1}) or ({batch} or 1, {layers}, {layers}, {n + 1} or 1, "
            f"{d + 1} or 1) to match A and X, got {tuple(Gamma.shape)}"
        )
    weights = weights.expand(-1, -1, -1, n + 1, -1)
    labels, inputs = weights[..., -1, None], weights[..., : max(1, rows - 1)]
    states, registers, added = [M], list[Tensor](), list[tuple[Tensor, Tensor]]()
    if B is not None:
        # The query's input is T x_q, where T depends on the examples only.
        T, turned, moved = torch.eye(d, dtype=X.dtype, device=X.device).expand(batch, d, d), [], []
    for layer in range(layers):
        step = A[layer].T @ (X.transpose(1, 2) @ left) / n
        added.append((X, step))
        registers.append(step if B is None else T.transpose(1, 2) @ step)
        if B is not None:
            block = A[layer].T @ (X.transpose(1, 2) @ X) @ B[layer].T / n
            moved.append(X @ block)
            turned.append(block.transpose(1, 2) @ T)
            terms = (inputs[:, layer, j, -1, :, None] * shift for j, shift in enumerate(turned))
            T = T - sum(terms, torch.zeros_like(T))
            terms = (inputs[:, layer, j, :-1] * shift for j, shift in enumerate(moved))
            X = X - sum(terms, torch.zeros_like(X))
        terms = (labels[:, layer, j, -1, None] * R for j, R in enumerate(registers))
        M = M - sum(terms, torch.zeros_like(M))
        terms = (labels[:, layer, j, :-1] * (place @ past) for j, (place, past) in enumerate(added))
        left = left - sum(terms, torch.zeros_like(left))
        states.append(M)
    return torch.stack(states, dim=1)
