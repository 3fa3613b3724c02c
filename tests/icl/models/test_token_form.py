"""Memformers token by token: the paper's equations on columns, and its lemma on one head.

Tolerances. Everything is in float64. Values are sums of products over at most 20 tokens and five layers, so that 1e-10
of the largest value (at least 1) covers the rounding.
"""

import functools

import numpy as np
import pytest
import shared
import torch

from icl.models import token_form

ROUNDING = 1e-10
close = functools.partial(shared.close, rounding=ROUNDING)
normal, prompts = shared.normal, shared.memory_prompts
L = 3
# (d, n): n + 1 other than d, more and fewer examples than dimensions, one dimension.
every_size = pytest.mark.parametrize(("d", "n"), [(3, 7), (4, 2), (1, 4)])


def columns(attend, Z, layers):
    """States of one prompt from its rows of tokens, `attend(Z, layer)` being what a layer adds to its columns."""
    states = [Z.numpy().T]
    for layer in range(layers):
        states.append(states[-1] + attend(states[-1], layer))
    return np.stack(states).swapaxes(1, 2)


def attention(Z, P, Q):
    """(2.4) with the mask of (2.3), on columns."""
    M = np.diag([1.0] * (Z.shape[1] - 1) + [0.0])
    return P @ Z @ M @ (Z.T @ Q @ Z)


def arrays(*tensors):
    return [tensor.detach().numpy() for tensor in tensors]


@every_size
@pytest.mark.parametrize("dense", [False, True])
def test_the_states_are_the_papers_equations_on_columns(d, n, dense):
    """`transformer`, `one_register` and `many_registers` are (2.4), (2.5), (3.1) to (3.4), prompt by prompt in numpy.

    Blocks as in (2.8), A and B not symmetric, and dense ones, whose attention mixes inputs and labels; scalars of one
    register shared and a prompt each; a weight for every token and row of a register. Planted: the mask left out, P or
    Q not transposed, alpha read a layer late, registers not kept, Gamma[j, l] for Gamma[l, j] are seen.
    """
    Z = normal(3, n + 1, d + 1)
    if dense:
        P, Q = normal(2, L, d + 1, d + 1, name="dense") / (2 * d + 2)
    else:
        P, Q = token_form.parameters(*(normal(2, L, d, d, name="blocks") / (2 * d)))
        A, B = arrays(*(normal(2, L, d, d, name="blocks") / (2 * d)))
        zero = np.zeros((d, 1))
        for layer in range(L):
            np.testing.assert_array_equal(P[layer], np.block([[B[layer], zero], [zero.T, np.ones((1, 1))]]))
            np.testing.assert_array_equal(Q[layer], -np.block([[A[layer], zero], [zero.T, np.zeros((1, 1))]]))
    Gamma = normal(L, L, n + 1, d + 1, name="Gamma")
    alphas, gammas = normal(2, 3, L, name="scalars")
    p, q, table = arrays(P, Q, Gamma)

    plain = token_form.transformer(Z, P, Q)
    many = token_form.many_registers(Z, P, Q, Gamma)
    own = token_form.one_register(Z, P, Q, alphas, gammas)
    one = token_form.one_register(Z, P, Q, alphas[0], gammas[0])
    for i, tokens in enumerate(Z):
        assert close(plain[i], columns(lambda S, layer: attention(S, p[layer], q[layer]) / n, tokens, L))

        kept = []

        def registers(S, layer, kept=kept):
            kept.append(attention(S, p[layer], q[layer]))
            return sum(table[layer, j].T * R for j, R in enumerate(kept)) / n

        assert close(many[i], columns(registers, tokens, L))
        for states, alpha, gamma in ((own, alphas[i], gammas[i]), (one, alphas[0], gammas[0])):
            R, expected = np.zeros((d + 1, n + 1)), [tokens.numpy().T]
            for layer in range(L):
                R = attention(expected[-1], p[layer], q[layer]) + gamma[layer].item() * R
                expected.append(expected[-1] + alpha[layer].item() / n * R)
            assert close(states[i], np.stack(expected).swapaxes(1, 2))


def test_several_heads_are_the_papers_equations_on_columns():
    """`many_heads` is (3.3), (3.4) summed over heads with gates, prompt by prompt in numpy: dense blocks, a weight for
    each head, token and row, gates for all prompts and for each; without gates they are 1. Planted: gates squared, one
    head's Q for all, and registers that are not kept are seen.
    """
    d, n, heads = 3, 4, 2
    Z = normal(3, n + 1, d + 1)
    P, Q = normal(2, heads, L, d + 1, d + 1, name="dense heads") / (2 * d + 2)
    Gamma = normal(heads, L, L, n + 1, d + 1, name="Gamma")
    p, q, table = arrays(P, Q, Gamma)
    for gates in (None, normal(1, heads, name="gates"), normal(3, heads, name="gates")):
        states = token_form.many_heads(Z, P, Q, Gamma, gates)
        alpha = np.ones((3, heads)) if gates is None else np.broadcast_to(gates.numpy(), (3, heads))
        for i, tokens in enumerate(Z):
            kept = []

            def added(S, layer, kept=kept, alpha=alpha[i]):
                kept.append([attention(S, p[h, layer], q[h, layer]) for h in range(heads)])
                each = ((h, j, R) for j, row in enumerate(kept) for h, R in enumerate(row))
                return sum(alpha[h] * table[h, layer, j].T * R for h, j, R in each) / n

            assert close(states[i], columns(added, tokens, L))


def test_lemma_2_1():
    """The query's token is additive in its label and linear in its input, and holds -<w_l, x_q> of descent along A'.

    Descent written out in numpy, with A_l that are not symmetric; descent along A_l itself, as the lemma is printed,
    is off by a tenth and more. The states of the examples do not depend on the query. Planted: Q without its minus
    sign is seen.
    """
    d, n = 3, 6
    prompt, A = prompts(d, n), normal(L, d, d, name="A") / 3
    Z, (P, Q) = prompt.tokens(), token_form.parameters(A)
    states = token_form.transformer(Z, P, Q)

    labelled = Z.clone()
    labelled[:, -1, -1] = torch.tensor([3.0, -1.0, 0.5, 2.0])
    shift = labelled[:, None, -1, -1]
    assert close(token_form.transformer(labelled, P, Q)[:, :, -1, -1], states[:, :, -1, -1] + shift)

    other = Z.clone()
    other[:, -1, :-1] = normal(len(Z), d, name="query")
    mixed = 2 * Z - 3 * other
    mixed[:, :-1] = Z[:, :-1]
    there, between = (token_form.transformer(tokens, P, Q) for tokens in (other, mixed))
    assert close(between[:, :, -1], 2 * states[:, :, -1] - 3 * there[:, :, -1])
    assert torch.equal(there[:, :, :-1], states[:, :, :-1])

    for transpose in (True, False):
        found = []
        for x, y in zip(*arrays(prompt.x, prompt.y), strict=True):
            w, X = [np.zeros(d)], x[:n].T
            for matrix in A.numpy():
                gradient = X @ (X.T @ w[-1] - y[:n]) / n
                w.append(w[-1] - (matrix.T if transpose else matrix) @ gradient)
            found.append(np.array(w) @ x[n])
        off = (torch.tensor(np.array(found)) + states[:, :, -1, -1]).abs().max()
        assert off <= ROUNDING if transpose else off > 0.1
