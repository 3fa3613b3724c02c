"""Filters with a summary of P: against the Kalman filter, brute force, their own belief, and their large-d curves."""

import functools
from itertools import pairwise

import chance
import numpy as np
import pytest
from shared import drift_law

from icl.theory import floors
from icl.theory import steady as fw
from icl.theory.steady import cheap_covariance as cc
from icl.theory.steady import large_d


def keys(batch, time, d, seed=0, rng=np.random.default_rng):
    return rng(seed).standard_normal((batch, time, d))


@pytest.mark.parametrize("v", [0.0, 0.2])
def test_with_nothing_lost_it_is_the_kalman_filter(v):
    """rtol 1e-9 of `floors.kalman_errors` at d = 6 for one block, all directions, each key taken in, and no restart.

    The belief is the error. Planted: the least known direction dropped as the best known one.
    """
    law = drift_law(6, 0.5, v)
    x = keys(3, 80, 6)
    floor = floors.kalman_errors(x, law)
    for kind in (cc.Blocks(6), cc.Blocks(9), cc.LowRank(5), cc.LowRank(8), cc.Thinned(1), cc.Restarted(100)):
        found = cc.summary_errors(x, law, kind)
        np.testing.assert_allclose(found.errors, floor, rtol=1e-9)
        np.testing.assert_allclose(found.believed, floor, rtol=1e-9)
    np.testing.assert_allclose(cc.summary_errors(x, law, cc.Rounded(50)).errors, floor, rtol=1e-9)


@pytest.mark.statistical(6)
@pytest.mark.usefixtures("as_installed")
def test_with_nothing_kept_it_is_unit_keys():
    """No directions, or a fixed p I, settle at `steady.best_unit_delta`, noise or none.

    300 sequences of 120 positions after 100 at d = 8; standard errors are .1 %, so that 1 % is seen. Planted: gamma^2
    before the update of Sigma alone.
    """
    for v in (0.0, 0.3):
        law = drift_law(8, 0.4, v)
        best = fw.best_unit_delta(law)
        x = keys(300, 220, 8, 1, chance.rng)
        for kind in (cc.LowRank(0), cc.Frozen((best.p,)), cc.Restarted(1)):
            each = cc.summary_errors(x, law, kind).errors[:, 100:].mean(1)
            chance.assert_mean(each, best.error, normal=True)


def test_diagonal_by_hand():
    """rtol 1e-9 of the definition in d = 2, P and the true covariance as matrices, one step at a time; so has
    `errors_with_gains` with these gains.
    """
    law, x = drift_law(2, 0.3, 0.1), keys(1, 40, 2, seed=2)
    P = Sigma = law.k0 * np.eye(2)
    gains, errors = [], []
    for key in x[0]:
        errors.append(np.trace(Sigma))
        S = key @ P @ key + law.sigma_y**2
        g = P @ key / S
        gains.append(g)
        move = law.gamma * (np.eye(2) - np.outer(g, key))
        Sigma = move @ Sigma @ move.T + law.gamma**2 * law.sigma_y**2 * np.outer(g, g) + law.q * np.eye(2)
        P = law.gamma**2 * np.diag(np.diag(P - np.outer(P @ key, P @ key) / S)) + law.q * np.eye(2)
    np.testing.assert_allclose(cc.summary_errors(x, law, cc.Blocks(1)).errors[0], errors, rtol=1e-9)
    np.testing.assert_allclose(cc.errors_with_gains(x, np.array([gains]), law)[0], errors, rtol=1e-9)


def test_low_rank_is_the_dense_projection():
    """rtol 1e-8 of P formed whole at each step, its r least eigenvalues kept and the others put to their mean.

    d = 7, 60 steps, noise or none. Planted: others - 1 without its 1 in the mean of the rest.
    """
    for r, v in ((1, 0.0), (3, 0.2), (5, 0.0)):
        law, x = drift_law(7, 0.6, v), keys(1, 60, 7, seed=r)
        P, believed = law.k0 * np.eye(7), []
        for key in x[0]:
            believed.append(np.trace(P))
            P = P - np.outer(P @ key, P @ key) / (key @ P @ key + law.sigma_y**2)
            own, V = np.linalg.eigh(P)
            own[r:] = own[r:].mean()
            P = law.gamma**2 * (V * own) @ V.T + law.q * np.eye(7)
        np.testing.assert_allclose(cc.summary_errors(x, law, cc.LowRank(r)).believed[0], believed, rtol=1e-8)


@pytest.mark.statistical(6)
@pytest.mark.usefixtures("as_installed")
def test_belief_is_the_error_on_average():
    """Mean belief minus mean error over 200 sequences of 80 positions after 60 at d = 6, for each kind.

    Differences of 1 % of the error would be seen. Planted: a rest that drops the least known direction and keeps p.
    """
    law, x = drift_law(6, 0.5, 0.05), keys(200, 140, 6, 3, chance.rng)
    for kind in (cc.Blocks(1), cc.Blocks(3), cc.LowRank(1), cc.LowRank(3), cc.Restarted(4), cc.Restarted(11)):
        found = cc.summary_errors(x, law, kind)
        off = (found.believed - found.errors)[:, 60:].mean(1)
        chance.assert_mean(off, 0, normal=True)


@pytest.mark.statistical(15)
@pytest.mark.usefixtures("as_installed")
def test_more_memory_is_less_error():
    """On the same keys the mean error falls from unit keys to Kalman in blocks, rank, restarts, thinning and bits.

    48 sequences of 90 positions after 70 at d = 8; steps are 25 standard errors of their paired differences and more.
    """
    law, x = drift_law(8, 0.3), keys(48, 160, 8, 4, chance.rng)

    @functools.cache
    def mean(kind):
        return cc.summary_errors(x, law, kind).errors[:, 70:].mean(1)

    ladders = [
        [cc.Frozen((1.0,)), cc.Blocks(1), cc.Blocks(2), cc.Blocks(4), cc.Blocks(8)],
        [cc.LowRank(r) for r in (0, 1, 2, 4, 7)],
        [cc.Restarted(m) for m in (1, 4, 16)] + [cc.Blocks(8)],
        [cc.Frozen((1.0,)), cc.Thinned(4), cc.Thinned(2), cc.Thinned(1)],
        [cc.Rounded(8), cc.Rounded(12)],
    ]
    for ladder in ladders:
        for more, less in pairwise(map(mean, ladder)):
            chance.assert_above(more - less, by=20)


@pytest.mark.one_draw("one set of inputs")
@pytest.mark.usefixtures("as_installed")
def test_curves_in_many_dimensions():
    """The belief at d = 16 and 32, extrapolated in 1/d, is within 1.5 % of the large-d curve, s = 0.3 and 1, v = 0, .1.

    The share of the matrix's gain that is at stake is some 30 to 60 % of a gain of 8 to 31 % of the error. Planted: the
    rest's share (1 - share) left out of the low-rank resolvent; the other blocks' noise of all blocks.
    """
    for s, v in ((0.3, 0.0), (1.0, 0.1)):
        for curve, kind, share in (
            (cc.eps_blocks, cc.Blocks, 0.5),
            (cc.eps_low_rank, cc.LowRank, 0.25),
            (cc.eps_thinned, lambda m: cc.Thinned(2), 0.5),
        ):
            at_d = []
            for d in (16, 32):
                law = drift_law(d, s, v)
                found = cc.summary_errors(keys(10, 240, d, seed=d), law, kind(int(share * d)))
                at_d.append(
                    (found.errors if curve is cc.eps_thinned else found.believed)[:, 160:].mean() / law.zero_error
                )
            assert abs((2 * at_d[1] - at_d[0]) / curve(share, s, v) - 1) < 0.015


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(("s", "v"), [(0.003, 0.0), (0.3, 0.0), (1.0, 0.1), (4.0, 0.02), (10.0, 3.0)])
def test_curves_run_from_the_delta_rule_to_kalman(s, v):
    """Ends within 1e-9 of the delta rule and the floor, monotone between, and a small rank has the slope of its spread.

    A small share r of directions that a clean label has just shown has the spread r. Low rank is ahead of blocks, per
    number kept too.
    """
    top, floor = large_d.eps_delta(s, v), large_d.kalman_large_d(s, v)
    for curve in (cc.eps_blocks, cc.eps_low_rank, cc.eps_thinned):
        np.testing.assert_allclose([curve(0, s, v), curve(1, s, v)], [top, floor], rtol=1e-9)
        values = [curve(share, s, v) for share in (0, 1e-3, 0.1, 0.3, 0.6, 0.9, 0.999, 1)]
        assert all(high > low - 1e-9 for high, low in pairwise(values))
    if not v:
        np.testing.assert_allclose(top - cc.eps_low_rank(1e-4, s, v), top - cc.eps_spread(1e-4, s, v), rtol=0.01)
    for share in (0.1, 0.3):
        assert cc.eps_low_rank(share / 2, s, v) < cc.eps_blocks(share, s, v)


def test_spread():
    """The spread undoes itself, 0 is the delta rule, and the floor's tends to 4 / e - 1 for slow drift, 1e-9.

    A matrix of drawn inputs has it: at d = 40 the mean of tr P^2 tr 1 / (tr P)^2 - 1 over positions is within 6 % of
    what the floor needs.
    """
    for s, v in ((0.01, 0.0), (0.3, 0.0), (1.0, 2.0), (5.0, 0.1)):
        np.testing.assert_allclose(cc.eps_spread(0, s, v), large_d.eps_delta(s, v), rtol=1e-12)
        for spread in (0.01, 0.4):
            np.testing.assert_allclose(cc.spread_needed(cc.eps_spread(spread, s, v), s, v), spread, rtol=1e-9)
    s = 1e-7
    np.testing.assert_allclose(cc.spread_needed(large_d.kalman_large_d(s, 0), s, 0), 4 / np.e - 1, rtol=1e-5)
    law, P, found = drift_law(40, 0.3), np.eye(40), []
    for i, key in enumerate(keys(1, 500, 40)[0]):
        u = P @ key / np.sqrt(key @ P @ key)
        P = law.gamma**2 * (P - np.outer(u, u)) + law.q * np.eye(40)
        if i > 200:
            found.append(40 * (P**2).sum() / np.trace(P) ** 2 - 1)
    assert abs(np.mean(found) / cc.spread_needed(large_d.kalman_large_d(0.3, 0), 0.3, 0) - 1) < 0.06


@pytest.mark.statistical
@pytest.mark.parametrize("v", [0.0, 0.1])
def test_a_diagonal_gains_one_over_d(v):
    """d times the relative gain of a diagonal P over unit keys, extrapolated in 1/d, is that of `diagonal_spread`.

    Beliefs of 256 filters over 32 memories after 8, at d = 16 and 32: the standard error is 0.5 % without noise and 2 %
    with it, what is left of order 1/d^2 about 1 %. Planted: s + h for s + 2 h; h = 1 under noise.
    """
    ratio, error = [], []
    for d in (16, 32):
        law, memory, rng = drift_law(d, 0.5, v), int(d / 0.5), chance.rng(d)
        P, believed = np.full((256, d), law.k0), np.zeros(256)
        for i in range(40 * memory):
            believed += P.mean(1) / (32 * memory) if i >= 8 * memory else 0.0
            key = rng.standard_normal((256, d)) ** 2
            P = law.gamma**2 * (P - P**2 * key / ((P * key).sum(1, keepdims=True) + law.sigma_y**2)) + law.q
        gain = 1 - believed / fw.best_unit_delta(law).p
        gain /= 1 - cc.eps_spread(cc.diagonal_spread(d, 0.5, v), 0.5, v) / large_d.eps_delta(0.5, v)
        ratio.append(gain.mean())
        error.append(gain.std(ddof=1) / 16)
    off = abs(2 * ratio[1] - ratio[0] - 1)
    chance.assert_z(max(0, off - 0.01) / np.hypot(2 * error[1], error[0]), of=256)


def test_rounded_variances_are_multiples_of_a_step():
    """With b bits a step is 2 k0 / 2^b: 2^b of them reach from -k0 to k0."""
    law = drift_law(6, 0.5)
    believed = cc.summary_errors(keys(4, 60, 6), law, cc.Rounded(8)).believed[:, 1:]
    steps = believed / (2 * law.k0 / 2**8)
    np.testing.assert_allclose(steps, steps.round(), atol=1e-9)


def test_numbers_kept():
    """Counts by hand at d = 6: entries of blocks, vectors of a rank, of a restart, the whole matrix."""
    counts = {
        cc.Blocks(1): 6, cc.Blocks(2): 9, cc.Blocks(4): 13, cc.Blocks(6): 21, cc.LowRank(0): 1, cc.LowRank(2): 15,
        cc.LowRank(5): 21, cc.Restarted(1): 1, cc.Restarted(3): 13, cc.Restarted(9): 21, cc.Thinned(3): 21,
        cc.Rounded(8): 21, cc.Frozen((1.0,)): 1,
    }  # fmt: skip
    assert {kind: cc.numbers_kept(kind, 6) for kind in counts} == counts


@pytest.mark.statistical(2)
def test_unequal_keys():
    """With its own spectrum nothing lost is `floors.kalman_errors`, rtol 1e-9, whichever the axes; a turn of the axes
    changes what a diagonal sees and nothing else.
    """
    law, spectrum = drift_law(4, 0.4), np.array([0.2, 0.5, 1.1, 3.2])
    x = keys(60, 300, 4, 6, chance.rng) * np.sqrt(spectrum)
    turn = np.linalg.qr(np.random.default_rng(7).standard_normal((4, 4)))[0]
    floor = floors.kalman_errors(x, law, spectrum)
    Lambda = turn @ np.diag(spectrum) @ turn.T
    whole = cc.summary_errors(x @ turn.T, law, cc.Blocks(4), Lambda).errors
    np.testing.assert_allclose(whole, floor, rtol=1e-9)
    np.testing.assert_allclose(
        cc.summary_errors(x[:2], law, cc.LowRank(3), np.diag(spectrum)).believed, floor[:2], rtol=1e-8
    )
    along = cc.summary_errors(x, law, cc.Blocks(1), np.diag(spectrum)).errors[:, 100:].mean(1)
    across = cc.summary_errors(x @ turn.T, law, cc.Blocks(1), Lambda).errors[:, 100:].mean(1)
    chance.assert_above(along - floor[:, 100:].mean(1), by=20)
    chance.assert_above(across - along, by=20)


def test_bad_input():
    with pytest.raises(ValueError, match=r"^v must be finite and >= 0 and <= 1e\+06, got"):
        cc.eps_spread(0.5, 0.5, 1e6 + 0.5)
    law, x = drift_law(3, 0.3), keys(2, 5, 3)
    with pytest.raises(ValueError, match=r"^variances must be one or 3 to match law, got 2"):
        cc.summary_errors(x, law, cc.Frozen((1.0, 2.0)))
    with pytest.raises(ValueError, match=r"^kind must keep errors bounded and P positive on these keys, got Rounded"):
        cc.summary_errors(keys(2, 400, 16), drift_law(16, 0.1), cc.Rounded(4))
    with pytest.raises(ValueError, match=r"^gains must keep all errors within float64"), np.errstate(all="ignore"):
        cc.errors_with_gains(keys(1, 99, 3), 1e9 * keys(1, 99, 3), law)
