"""One layer with separate keys and queries and a learned gate: its loss, slopes and curvatures against torch's own
differentiation of the loss written out once more; its stationary points; where flows from near them go.

The loss over merged weights is held against brute force in `test_population`.
"""

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch.autograd.functional import hessian as curvatures

from icl.tasks import DriftingRegression
from icl.theory import one_layer
from icl.theory.one_layer import population, separate_qk

EQUAL = DriftingRegression(d=4, n=12, gamma=0.9, sigma_e=0.3)
UNEQUAL = DriftingRegression(d=3, n=8, gamma=0.9, sigma_e=0.3, Lambda=np.diag([2.0, 1.0, 0.5]))
ROOT = np.random.default_rng(3).normal(size=(3, 3))
TURNED = DriftingRegression(d=3, n=8, gamma=0.8, sigma_e=0.2, Lambda=ROOT @ ROOT.T / 3 + 0.3 * np.eye(3))


def anywhere(loss, seed):
    z = 0.5 * np.random.default_rng(seed).normal(size=loss.size)
    z[-1] = 0.8
    return z


def written_out(task, width):
    """L(z) in torch, from the moments of Gaussian vectors: Wick's pairings as sums over matrices."""
    d, n = task.d, task.n
    kernel, S = (torch.as_tensor(np.array(m), dtype=torch.float64) for m in (task.weight_kernel(), task.Lambda))
    past, k = kernel[:-1, :-1], kernel.diagonal()[:-1]

    def loss(z):
        p, v = z[:d], z[d]
        W_K, Q = (
            z[d + 1 : d + 1 + width * (d + 1)].reshape(width, d + 1),
            z[d + 1 + width * (d + 1) : -1].reshape(width, d),
        )
        U, q = W_K[:, :-1].T @ Q, Q.T @ W_K[:, -1]
        a = z[-1] ** torch.arange(n, 0, -1, dtype=torch.float64)
        t, t2 = S.trace(), (S @ S).trace()
        # E g g' = D2 (2 S^2 + t S) + D3 S^2, and E g y x' = D1 S^2.
        D1, D2, whole = a @ kernel[:-1, -1], a**2 @ k, a @ past @ a
        gg = D2 * (S @ S + t * S) + whole * S @ S
        A = v * U + torch.outer(p, q)
        odd = (A.T @ gg @ A @ S).trace() - 2 * D1 * (A @ S @ S).trace() + kernel[-1, -1] * t
        # Even: f = p'H u + p'x x'u + v s q'x with u = U x, H = sum a_i x_i x_i'.
        S1, S2, Es = a.sum(), a @ a, a @ k * t
        HpH = (S1**2 + S2) * torch.outer(S @ p, S @ p) + S2 * (p @ S @ p) * S
        ss = (a @ k) ** 2 * t**2 + 2 * (a @ past**2 @ a) * t2 + 2 * (a**2 @ k**2) * (t**2 + 2 * t2)
        sH = (a @ k) * S1 * t * S + 2 * D2 * S @ S
        V, M = (U + U.T) / 2, torch.outer(p, p)
        Hu = (U.T @ HpH @ U @ S).trace()

        def fourth(B, C):
            """E (x'Bx)(x'Cx), both symmetric."""
            return (B @ S).trace() * (C @ S).trace() + 2 * (B @ S @ C @ S).trace()

        cross = S1 * torch.outer(S @ p, p) @ torch.eye(d, dtype=torch.float64)
        up = U.T @ cross  # (E p'H U x)(p'x) = x' U' E[H] p p' x
        quadratic = fourth((up + up.T) / 2, V)
        # E (p'x)^2 (x'Ux)^2, six Gaussians: Isserlis for three symmetric matrices.
        BS, CS = M @ S, V @ S
        tr = torch.trace
        six = tr(BS) * tr(CS) ** 2 + 2 * tr(BS) * tr(CS @ CS) + 4 * tr(CS) * tr(BS @ CS) + 8 * tr(BS @ CS @ CS)
        pq = (torch.outer(p, q) + torch.outer(q, p)) / 2
        even = Hu + 2 * quadratic + six + v**2 * ss * (q @ S @ q)
        even = even + 2 * v * ((p @ sH @ U @ S @ q) + Es * fourth(pq, V))
        return (odd + even) / 2

    return loss


@pytest.mark.parametrize("task", [EQUAL, UNEQUAL, TURNED], ids=["equal", "unequal", "turned"])
def test_loss_slopes_and_curvatures_are_those_of_the_loss_written_out(task):
    """Value, gradient and Hessian over all weights and the gate, against torch's differentiation; rtol 1e-9 of the
    largest entry.
    """
    loss = separate_qk.separate_loss(task, width=2)
    z = anywhere(loss, 0)
    oracle, at = written_out(task, 2), torch.as_tensor(z)
    np.testing.assert_allclose(loss.value(z), oracle(at).item(), rtol=1e-12)
    merged = population.layer_loss(task, lam=z[-1]).value(loss.theta(z))
    np.testing.assert_allclose(loss.value(z), merged, rtol=1e-12)
    slope, curved = torch.func.grad(oracle)(at).numpy(), curvatures(oracle, at).numpy()
    assert np.abs(loss.gradient(z) - slope).max() < 1e-9 * np.abs(slope).max()
    assert np.abs(loss.hessian(z) - curved).max() < 1e-9 * np.abs(curved).max()


def test_weights_are_joined_and_split():
    """What `join` puts together `split` gives back, in copies, and theta is W_K' W_Q beside the row."""
    loss = separate_qk.separate_loss(UNEQUAL, width=2)
    z = anywhere(loss, 0)
    row, keys, queries, lam = loss.split(z)
    np.testing.assert_array_equal(loss.join(row, keys, queries, lam=lam), z)
    np.testing.assert_array_equal(loss.theta(z)[:, :-1], keys.T @ queries)
    row[0] += 1
    assert loss.split(z)[0][0] != row[0]


@pytest.mark.parametrize("task", [EQUAL, UNEQUAL, TURNED], ids=["equal", "unequal", "turned"])
def test_plateaus_are_stationary_and_left_at_the_stated_rates(task):
    """At each rank below d the plateau's slope is 0 (1e-6 of that at twice the weights: the gate is found to 1e-8) and
    its negative eigenvalues are minus `escape_rates`, each once a free row, rtol 1e-6; at rank d there are none.

    Without a free row and with the largest directions learnt none is left.
    """
    for rank in range(1, task.d + 1):
        lam = separate_qk.gate_at_rank(task, rank=rank)
        for width in {rank, task.d}:
            loss = separate_qk.separate_loss(task, width=width)
            z = separate_qk.plateau(task, rank=rank, width=width, lam=lam)
            assert np.abs(loss.gradient(z)).max() < 1e-6 * np.abs(loss.gradient(2 * z)).max()
            values = np.linalg.eigvalsh(loss.hessian(z))
            down = np.repeat(separate_qk.escape_rates(task, rank=rank, lam=lam), width - rank)
            found = -values[values < -1e-6 * values[-1]]
            np.testing.assert_allclose(np.sort(found), np.sort(down), rtol=1e-6)
            row, keys, queries, _ = loss.split(z)
            np.testing.assert_allclose(row[-1] ** 2, (keys**2).sum(), rtol=1e-12)
            np.testing.assert_array_equal(keys[:, :-1], queries)


def test_a_smaller_direction_learnt_first_is_left():
    """With one row, on a plateau of the second direction, the row turns: the 2 x 2 block of the chapter has the one
    negative eigenvalue, rtol 1e-6.
    """
    lam = 0.7
    loss = separate_qk.separate_loss(UNEQUAL, width=1)
    s, A = np.array([2.0, 1.0, 0.5]), np.diag(one_layer.optimum(UNEQUAL, lam=lam).A)
    v = np.cbrt(A[1])
    queries = np.sqrt(A[1] / v) * np.eye(3)[1:2]
    z = loss.join(np.r_[np.zeros(3), v], np.c_[queries, 0.0], queries, lam=lam)
    tilde = np.diag(one_layer.lambda_tilde(UNEQUAL, lam=lam))
    D1 = A[0] * tilde[0]
    block = v * D1 * np.array([[s[1] * s[0] * tilde[0] / tilde[1], -(s[0] ** 2)], [-(s[0] ** 2), s[1] * s[0]]])
    values = np.linalg.eigvalsh(loss.hessian(z)[:-1, :-1])
    assert (values < -1e-9).sum() == 1
    np.testing.assert_allclose(values[0], np.linalg.eigvalsh(block)[0], rtol=1e-6)


def test_the_gate_of_a_rank():
    """For Lambda = I it is lam* at each rank; else it grows with the rank, to lam* at rank d."""
    star = one_layer.optimal_forgetting(EQUAL)
    np.testing.assert_allclose([separate_qk.gate_at_rank(EQUAL, rank=m) for m in (1, 2, 4)], star, atol=1e-7)
    gates = [separate_qk.gate_at_rank(UNEQUAL, rank=m) for m in (1, 2, 3)]
    assert gates[0] < gates[1] < gates[2]
    np.testing.assert_allclose(gates[2], one_layer.optimal_forgetting(UNEQUAL), atol=1e-7)
    fast = DriftingRegression(d=2, n=12, gamma=0.2, sigma_e=1.0)
    assert one_layer.optimal_forgetting(fast) < 0.4
    np.testing.assert_allclose(separate_qk.gate_at_rank(fast, rank=1), one_layer.optimal_forgetting(fast), atol=1e-7)


@pytest.mark.parametrize("task", [EQUAL, UNEQUAL, TURNED], ids=["equal", "unequal", "turned"])
def test_the_form_at_the_trap(task):
    """The form is the Hessian's block of v and U's diagonal in the eigendirections, to 1e-12 of the largest entry; it
    decides for the whole block of v and U, and no other block mixes with that one.
    """
    d = task.d
    own = population.rank_one_trap(task, lam=0.9)[:-1, -1]
    vectors = np.linalg.eigh(task.Lambda)[1][:, ::-1]
    mine = np.argmax(np.abs(own @ vectors))
    vectors = vectors[:, [mine, *(j for j in range(d) if j != mine)]]
    for lam in (0.5, 0.9):
        hessian = population.layer_loss(task, lam=lam).hessian(population.rank_one_trap(task, lam=lam))
        axes = np.zeros((d + 1, d + 1, d + 1))
        axes[0, -1, -1] = 1
        for j in range(d):
            axes[j + 1, :-1, :-1] = np.outer(vectors[:, j], vectors[:, j])
        axes = axes.reshape(d + 1, -1)
        form = separate_qk.trap_form(task, lam=lam)
        assert np.abs(axes @ hessian @ axes.T - form).max() < 1e-12 * np.abs(form).max()
        inside = np.zeros((d + 1, d + 1), dtype=bool)
        inside[:-1, :-1] = inside[-1, -1] = True
        block = np.linalg.eigvalsh(hessian[np.ix_(inside.ravel(), inside.ravel())])
        assert (block[0] < 0) == (np.linalg.eigvalsh(form)[0] < 0)
        assert np.abs(hessian[np.ix_(inside.ravel(), ~inside.ravel())]).max() < 1e-12 * block[-1]


@pytest.mark.parametrize("task", [EQUAL, UNEQUAL, TURNED], ids=["equal", "unequal", "turned"])
def test_factors_hide_the_way_out(task):
    """At its own gate the trap is stationary (1e-6, as above), and its Hessian over separate weights has no negative
    eigenvalue (1e-10 of the largest) at this gate and at 0.97, though with equal variances the merged one has there.
    """
    own = separate_qk.gate_at_rank(task, rank=1)
    loss = separate_qk.separate_loss(task, width=task.d)
    z = separate_qk.separate_trap(task, width=task.d, lam=own)
    assert np.abs(loss.gradient(z)).max() < 1e-6 * np.abs(loss.gradient(1.1 * z)).max()
    for lam in (own, 0.97):
        z = separate_qk.separate_trap(task, width=task.d, lam=lam)
        curved = loss.hessian(z)
        # Away from its own gate the point is stationary in all weights but the gate.
        weights = curved if lam == own else curved[:-1, :-1]
        values = np.linalg.eigvalsh(weights)
        assert values[0] > -1e-10 * values[-1]
    assert task is not EQUAL or np.linalg.eigvalsh(separate_qk.trap_form(task, lam=0.97))[0] < 0


def test_the_width_decides():
    """From d rows on the curvature is that of the merged matrix, it falls with the rows, one row is always closed; and
    no U of rank 1 or 2 in the other directions, of a thousand at random, has less than `head_curvature` says.
    """
    for lam in (0.6, 0.9):
        merged = population.trap_curvature(EQUAL, lam=lam)
        by_width = [separate_qk.head_curvature(EQUAL, width=r, lam=lam) for r in range(1, 7)]
        np.testing.assert_allclose(by_width[3:], merged, rtol=1e-12, atol=1e-12)
        assert by_width[0] > by_width[1] > by_width[2] > by_width[3]
        assert by_width[0] > 0
    loss, trap = population.layer_loss(EQUAL, lam=0.9), population.rank_one_trap(EQUAL, lam=0.9)
    hessian, draw = loss.hessian(trap), np.random.default_rng(0)
    e = np.argmax(np.abs(trap[:-1, -1]))
    others = np.flatnonzero(np.arange(4) != e)
    for rank in (1, 2):
        steps = np.zeros((1000, 5, 5))
        blocks = draw.normal(size=(1000, 3, rank)) @ draw.normal(size=(1000, rank, 3))
        steps[np.ix_(range(1000), others, others)] = blocks
        steps[:, e, e], steps[:, -1, -1] = draw.normal(size=(2, 1000)) * 2
        steps = steps.reshape(1000, -1)
        rayleigh = np.einsum("bi,ij,bj->b", steps, hessian, steps) / (steps**2).sum(1)
        assert rayleigh.min() > separate_qk.head_curvature(EQUAL, width=rank + 1, lam=0.9)


def balanced(task, width, lam, size):
    """The trap with a small step along the way out, keys and queries alike."""
    loss, z = separate_qk.separate_loss(task, width=width), separate_qk.separate_trap(task, width=width, lam=lam)
    row, keys, queries, _ = loss.split(z)
    row[-1], out = size**2, size * np.linalg.svd(queries[:1])[2][1:width]
    keys[1:width, :-1] += out
    queries[1:width] += out
    return loss, loss.value(z), loss.join(row, keys, queries, lam=lam)


@pytest.mark.parametrize("width", [2, 3])
def test_flows_leave_where_the_form_is_negative(width, as_installed):
    """From a step of 0.1 along the way out, 0.04 in lam to the right of the border, the flow leaves; 0.04 to its left
    it ends where it was, loss to 1e-6. The gate is held.
    """
    task = DriftingRegression(d=3, n=10, gamma=0.95)
    border = brentq(lambda lam: separate_qk.head_curvature(task, width=width, lam=lam), 0.6, 0.95)
    for off in (-0.04, 0.04):
        loss, trap, start = balanced(task, width, border + off, 0.1)
        flow = separate_qk.separate_flow(
            loss, start, learn_gate=False, until=2e3, slope=1e-9, rtol=1e-3, below=trap * (1 - 1e-4)
        )
        assert (flow.loss[-1] < trap * (1 - 0.9e-4)) == (off > 0)
        assert off > 0 or abs(flow.loss[-1] / trap - 1) < 1e-6
        assert flow.z[-1, -1] == border + off
        assert not flow.settled or off < 0


def test_the_wait_grows_as_one_over_the_square(as_installed):
    """From balanced steps of 0.04 and 0.02 the times to leave are as 1 to 4, within a fifth."""
    task = DriftingRegression(d=2, n=10, gamma=0.95)
    loss, trap, _ = balanced(task, 2, 0.9, 0.1)
    noise, waits = np.random.default_rng(0).normal(size=loss.size), []
    for size in (0.04, 0.02):
        start = balanced(task, 2, 0.9, size)[2] + 0.1 * size * noise
        start[-1] = 0.9
        flow = separate_qk.separate_flow(loss, start, learn_gate=False, slope=1e-12, rtol=1e-3, below=0.98 * trap)
        assert not flow.settled
        waits.append(flow.time[-1])
    assert 3.2 < waits[1] / waits[0] < 4.8


def test_a_learned_gate_frees_the_layer_where_its_best_is_right_of_the_border(as_installed):
    """Begun in the trap at lam = 0.6, with 0.1 of noise: at gamma = 0.95 the flow ends at the best layer (loss to
    1e-6), at 0.5 in the trap at lam*.
    """
    for gamma, free in ((0.95, True), (0.5, False)):
        task = DriftingRegression(d=3, n=10, gamma=gamma)
        loss, star = separate_qk.separate_loss(task, width=3), one_layer.optimal_forgetting(task)
        start = separate_qk.separate_trap(task, width=3, lam=0.6)
        start[:-1] += 0.1 * np.random.default_rng(0).normal(size=loss.size - 1)
        flow = separate_qk.separate_flow(loss, start, rtol=1e-3, slope=1e-6)
        assert (separate_qk.head_curvature(task, width=3, lam=star) < 0) == free
        goal = one_layer.training_error(task, lam=star) / 2
        trap = loss.value(separate_qk.separate_trap(task, width=3, lam=star))
        np.testing.assert_allclose(flow.loss[-1], goal if free else trap, rtol=1e-6)
        np.testing.assert_allclose(flow.z[-1, -1], star, atol=3e-3)


def test_a_flow_is_as_exact_as_it_is_asked_to_be(as_installed):
    """At rtol = 1e-2 a flow ends 5e-4 to 1e-2 from where it ends at 1e-5."""
    loss = separate_qk.separate_loss(DriftingRegression(d=1, n=3, gamma=0.9), width=1)
    start = 0.3 + 0.1 * np.arange(loss.size)
    tight, loose = (separate_qk.separate_flow(loss, start, until=0.5, rtol=rtol).z[-1] for rtol in (1e-5, 1e-2))
    assert 5e-4 < np.abs(loose - tight).max() < 1e-2


def test_a_flow_that_need_not_move():
    """At a stationary point the path is that point."""
    loss = separate_qk.separate_loss(EQUAL, width=2)
    z = separate_qk.separate_trap(EQUAL, width=2, lam=separate_qk.gate_at_rank(EQUAL, rank=1))
    flow = separate_qk.separate_flow(loss, z, slope=1e-3)
    assert flow.settled
    assert len(flow.time) == len(flow.loss) == 1
    np.testing.assert_array_equal(flow.z[0], z)
