"""Adaptive filters against other ways to the same estimate.

Each filter's predictions are compared with what its definition says when it is computed differently: least squares
solved afresh at every position instead of recursions, one trial after another, in numpy.
"""

import functools

import numpy as np
import pytest
import torch

from icl import filters
from icl.profile import streams
from icl.tasks import DriftingRegression

EVERY = {
    "LMS": functools.partial(filters.lms, 0.05),
    "NLMS": functools.partial(filters.nlms, 0.7),
    "APA": functools.partial(filters.apa, 0.5, K=2),
    "RLS": functools.partial(filters.rls, 0.9),
}
every_filter = pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)


def prompts(n=39, d=3, batch=5, dtype=torch.float64):
    """Inputs and labels of a few drifting tasks: n + 1 positions each."""
    task = DriftingRegression(d=d, n=n, gamma=0.95, sigma_e=0.3, Lambda=np.diag(np.linspace(0.5, 2, d)))
    p = task.sample(batch, generator=streams("filters"), dtype=dtype)
    return p.x, p.y


def followed(move, x, y):
    """A-priori predictions of one trial: `move` gives the estimate from the old one and all examples so far."""
    w_hat, y_hat = np.zeros(x.shape[1]), np.zeros(len(y))
    for i in range(len(y)):
        y_hat[i] = w_hat @ x[i]
        w_hat = move(w_hat, x[: i + 1], y[: i + 1])
    return y_hat


def by_hand(move, x, y):
    """`followed` for each trial of a batch."""
    return np.stack([followed(move, *trial) for trial in zip(x.numpy(), y.numpy(), strict=True)])


def agrees(y_hat, expected, rtol=1e-9):
    """Predictions that are equal to `rtol` of the largest of them in the trial."""
    expected = np.asarray(expected)
    limit = rtol * np.abs(expected).max(-1, keepdims=True)
    assert (np.abs(y_hat.numpy() - expected) <= limit).all()


def lms_move(w_hat, x, y, *, mu):
    return w_hat + [mu * (y[-1] - sum(w_hat * x[-1])) * xj for xj in x[-1]]


def nlms_move(w_hat, x, y, *, mu, eps):
    return w_hat + [mu * (y[-1] - sum(w_hat * x[-1])) * xj / (eps + sum(x[-1] ** 2)) for xj in x[-1]]


def apa_move(w_hat, x, y, *, mu, K, eps):
    """A share mu of the way to the ridge regression, around the old estimate, on the last K examples there are."""
    X, miss = x[-K:], y[-K:] - x[-K:] @ w_hat
    rows = np.concatenate([X, np.sqrt(eps) * np.eye(len(w_hat))])
    return w_hat + mu * np.linalg.lstsq(rows, np.concatenate([miss, 0 * w_hat]))[0]


def ridge_move(w_hat, x, y, *, lam, eps):
    """The least of sum_i lam^(t-i) (y_i - w'x_i)^2 + lam^t eps |w|^2, whatever the old estimate was."""
    ages = np.sqrt(lam ** np.arange(len(y) - 1, -1, -1))
    rows = np.concatenate([ages[:, None] * x, np.sqrt(lam ** len(y) * eps) * np.eye(len(w_hat))])
    return np.linalg.lstsq(rows, np.concatenate([ages * y, 0 * w_hat]))[0]


@pytest.mark.parametrize("mu", [0.01, 0.1])
def test_lms_is_its_loop(mu):
    """LMS predicts what a loop over trials, positions and coordinates predicts, w <- w + mu (y - w'x) x from w = 0.

    5 trials of 40 positions in 3 dimensions; rtol 1e-9 of a trial's largest prediction.
    """
    x, y = prompts()
    agrees(filters.run(filters.lms(mu), x, y), by_hand(functools.partial(lms_move, mu=mu), x, y))


@pytest.mark.parametrize("eps", [0.0, 0.1])
@pytest.mark.parametrize("mu", [0.3, 1.0, 1.7])
def test_nlms_is_its_loop(mu, eps):
    """NLMS predicts what a loop over trials, positions and coordinates predicts, without regularisation too.

    5 trials of 40 positions in 3 dimensions; rtol 1e-9 of a trial's largest prediction.
    """
    x, y = prompts()
    move = functools.partial(nlms_move, mu=mu, eps=eps)
    agrees(filters.run(filters.nlms(mu, eps=eps), x, y), by_hand(move, x, y))


@pytest.mark.parametrize(("K", "eps"), [(1, 1e-3), (2, 1e-3), (3, 1e-3), (4, 0.1), (50, 0.1)])
@pytest.mark.parametrize("mu", [0.3, 1.0])
def test_apa_is_ridge_regression_on_the_last_examples(mu, K, eps):
    """Affine projection goes a share mu of the way to the ridge regression on the last K examples around the old
    estimate.

    Solved afresh at every position in the d coordinates, where the library solves in the K examples, and with only
    those examples that there are: K = 4 and 50 are more than the 3 dimensions, 50 more than the 40 positions. rtol 1e-9
    of a trial's largest prediction; planted: with one example less the predictions are a tenth of it away.
    """
    x, y = prompts()
    y_hat = filters.run(filters.apa(mu, K=K, eps=eps), x, y)
    agrees(y_hat, by_hand(functools.partial(apa_move, mu=mu, K=K, eps=eps), x, y))
    if 1 < K <= len(y[0]):
        less = by_hand(functools.partial(apa_move, mu=mu, K=K - 1, eps=eps), x, y)
        assert np.abs(y_hat.numpy() - less).max() > 0.1 * np.abs(less).max()


@pytest.mark.parametrize("eps", [1e-2, 1.0])
@pytest.mark.parametrize("lam", [0.5, 0.9, 0.99, 1.0])
def test_rls_is_discounted_ridge_regression(lam, eps):
    """RLS predicts with the weights of least discounted squares, sum_i lam^(t-i) (y_i - w'x_i)^2 + lam^t eps |w|^2,
    at every position.

    These are solved afresh at each of 40 positions by orthogonal factorisation, lam = 1, plain ridge regression, among
    them. rtol 1e-9 of a trial's largest prediction; planted: the regularisation kept at eps instead of lam^t eps is
    seen wherever lam < 1.
    """
    x, y = prompts()
    y_hat = filters.run(filters.rls(lam, eps=eps), x, y)
    agrees(y_hat, by_hand(functools.partial(ridge_move, lam=lam, eps=eps), x, y))
    kept = by_hand(lambda w, x, y: ridge_move(w, x, y, lam=lam, eps=eps / lam ** len(y)), x, y)
    assert (np.abs(y_hat.numpy() - kept).max() > 1e-3 * np.abs(kept).max()) == (lam < 1)


def test_rls_that_forgets_nothing_takes_examples_in_any_order():
    """With lam = 1, RLS is ridge regression, (X'X + eps I)^-1 X'y, and the order of the examples is irrelevant.

    39 examples in 3 dimensions and the 40th predicted; rtol 1e-9.
    """
    x, y = prompts()
    order = torch.cat([torch.randperm(39, generator=streams("order")), torch.tensor([39])])
    one, other = (filters.run(filters.rls(1.0, eps=0.5), *data)[:, -1] for data in ((x, y), (x[:, order], y[:, order])))
    X, Y, query = x[:, :-1].numpy(), y[:, :-1].numpy(), x[:, -1].numpy()
    gram = np.einsum("bti,btj->bij", X, X) + 0.5 * np.eye(3)
    ridge = np.linalg.solve(gram, np.einsum("bti,bt->bi", X, Y)[..., None])[..., 0]
    np.testing.assert_allclose(one, (ridge * query).sum(-1), rtol=1e-9)
    np.testing.assert_allclose(other, one, rtol=1e-9)


@pytest.mark.parametrize("lam", [0.9, 0.99, 1.0])
def test_rls_stays_right_in_the_long_run(lam):
    """After 1,500 examples in 10 dimensions, RLS's P is still symmetric and the inverse of the discounted sum of x x',
    and its estimate still that of a fresh regression.

    P symmetric bit for bit; rtol 1e-9 of the largest entry of each.
    """
    x, y = prompts(n=1499, d=10, batch=3)
    filter = filters.rls(lam)
    state = filter.init(torch.zeros(3, 10, dtype=torch.float64))
    for i in range(1500):
        state = filter.step(state, x[:, i], y[:, i])
    assert torch.equal(state.P, state.P.mT)
    ages = lam ** np.arange(1499, -1, -1)
    for w_hat, P, X, Y in zip(*(a.numpy() for a in (state.w_hat, state.P, x, y)), strict=True):
        inverse = np.linalg.inv((ages[:, None] * X).T @ X + lam**1500 * 1e-2 * np.eye(10))
        np.testing.assert_allclose(P, inverse, rtol=0, atol=1e-9 * inverse.max())
        fresh = ridge_move(np.zeros(10), X, Y, lam=lam, eps=1e-2)
        np.testing.assert_allclose(w_hat, fresh, rtol=0, atol=1e-9 * np.abs(fresh).max())


@pytest.mark.parametrize("mu", [0.3, 1.0, 1.7])
def test_apa_of_one_example_is_nlms(mu):
    """Affine projection onto the last example alone is NLMS, at every position.

    rtol 1e-9 of a trial's largest prediction; planted: two examples give other predictions.
    """
    x, y = prompts()
    one = filters.run(filters.apa(mu, K=1, eps=0.1), x, y)
    agrees(one, filters.run(filters.nlms(mu, eps=0.1), x, y))
    assert not torch.allclose(one, filters.run(filters.apa(mu, K=2, eps=0.1), x, y))


@pytest.mark.parametrize("eps", [0.0, 1e-6, 0.1])
@pytest.mark.parametrize("mu", [0.3, 1.0])
def test_nlms_leaves_a_known_share_of_the_error(mu, eps):
    """After its step, NLMS misses the label it has just seen by 1 - mu x'x / (eps + x'x) of what it missed before:
    at mu = 1 by nothing as eps goes to 0.

    Tolerance 1e-12 of the size of label and prediction.
    """
    x, y = prompts()
    filter = filters.nlms(mu, eps=eps)
    state = filter.init(torch.zeros_like(x[:, 0]))
    for i in range(y.shape[1]):
        before = y[:, i] - (state.w_hat * x[:, i]).sum(-1)
        state = filter.step(state, x[:, i], y[:, i])
        after = y[:, i] - (state.w_hat * x[:, i]).sum(-1)
        square = x[:, i].square().sum(-1)
        assert (
            (after - (1 - mu * square / (eps + square)) * before).abs() <= 1e-12 * (y[:, i].abs() + before.abs())
        ).all()
        if mu == 1.0:
            assert (after.abs() <= eps / square * before.abs() + 1e-12 * (y[:, i].abs() + before.abs())).all()


def test_apa_ends_on_the_last_labels():
    """With mu = 1 and eps near 0, affine projection onto 2 examples misses neither after its step, and onto one it does
    miss the older.

    Not by more than eps over the smallest eigenvalue of X X' times what it missed before, as (eps I + X X')^-1 eps
    leaves.
    """
    x, y = prompts()
    missed = {}
    for K in (1, 2):
        filter = filters.apa(1.0, K=K, eps=1e-9)
        state = filter.init(torch.zeros_like(x[:, 0]))
        for i in range(y.shape[1]):
            last = slice(max(i - 1, 0), i + 1)
            before = y[:, last] - (x[:, last] @ state.w_hat[..., None])[..., 0]
            state = filter.step(state, x[:, i], y[:, i])
            after = y[:, last] - (x[:, last] @ state.w_hat[..., None])[..., 0]
            smallest = torch.linalg.eigvalsh(x[:, last] @ x[:, last].mT)[:, 0]
            missed[K] = after.norm(dim=-1) / (before.norm(dim=-1) / smallest * 1e-9 + 1e-12)
            assert K == 1 or (missed[K] <= 1).all()
    assert (missed[1] > 1e3).all()


@pytest.mark.parametrize(
    ("make", "rescaled"),
    [
        (filters.lms(0.05), filters.lms(0.05 / 16)),
        (filters.nlms(0.7, eps=0.1), filters.nlms(0.7, eps=0.1 * 16)),
        (filters.apa(0.5, K=2, eps=0.1), filters.apa(0.5, K=2, eps=0.1 * 16)),
        (filters.rls(0.9, eps=0.1), filters.rls(0.9, eps=0.1 * 16)),
    ],
    ids=EVERY,
)
def test_settings_have_the_units_they_say(make, rescaled):
    """Inputs in other units give the same predictions once LMS's mu is divided, and every eps multiplied, by the square
    of the unit.

    Bit for bit, because the unit is 4 and a power of two costs no rounding; and labels in other units give predictions
    in these units.
    """
    x, y = prompts()
    y_hat = filters.run(make, x, y)
    assert torch.equal(filters.run(rescaled, 4 * x, y), y_hat)
    assert torch.equal(filters.run(make, x, 4 * y), 4 * y_hat)
    assert not torch.allclose(filters.run(make, 4 * x, y), y_hat)


@every_filter
def test_the_first_prediction_is_zero(make):
    """Before any example every filter predicts exactly 0, and after it something else."""
    x, y = prompts()
    y_hat = filters.run(make(), x, y)
    assert y_hat.shape == y.shape
    assert not y_hat[:, 0].any()
    assert y_hat[:, 1:].all()


@every_filter
def test_the_future_never_changes_the_past(make):
    """Other labels from position 20 on leave the predictions up to position 20 as they were, bit for bit, and so do
    other inputs from position 21 on.

    All predictions after position 20 change.
    """
    x, y = prompts()
    before = filters.run(make(), x, y)
    labels, inputs = y.clone(), x.clone()
    labels[:, 20:], inputs[:, 21:] = 7.0, 0.5
    for after in (filters.run(make(), x, labels), filters.run(make(), inputs, y)):
        assert torch.equal(after[:, :21], before[:, :21])
        assert (after[:, 21:] != before[:, 21:]).all()


@every_filter
def test_trials_are_independent(make):
    """Replacing one trial leaves the predictions for the others as they were, bit for bit; a trial alone, without an
    axis for trials, and trials on two axes are predicted alike.

    rtol 1e-12 of a trial's largest prediction for other numbers of trials, which may be added up in another order.
    """
    x, y = prompts(batch=6)
    before = filters.run(make(), x, y)
    inputs, labels = x.clone(), y.clone()
    inputs[2], labels[2] = torch.flip(x[2], [0]), 1.0
    after, others = filters.run(make(), inputs, labels), torch.arange(6) != 2
    assert torch.equal(after[others], before[others])
    assert (after[2, 1:] != before[2, 1:]).all()
    agrees(filters.run(make(), x[3], y[3]), before[3], rtol=1e-12)
    agrees(filters.run(make(), x.reshape(2, 3, 40, 3), y.reshape(2, 3, 40)), before.reshape(2, 3, 40), rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (filters.lms, [0.01, 0.05, 0.1]),
        (functools.partial(filters.nlms, eps=0.1), [0.3, 1.0, 1.5]),
        (functools.partial(filters.apa, K=3), [0.3, 1.0, 1.5]),
        (filters.rls, [0.5, 0.9, 1.0]),
    ],
    ids=EVERY,
)
def test_many_settings_at_once_are_each_of_them(make, values):
    """Settings as a tensor (settings, 1) give predictions (settings, trials, time), each those of a run of its own; one
    setting a trial works too.

    rtol 1e-12 of a trial's largest prediction.
    """
    x, y = prompts(batch=3)
    together = filters.run(make(torch.tensor(values, dtype=torch.float64)[:, None]), x[None], y[None])
    assert together.shape == (3, 3, 40)
    each = filters.run(make(torch.tensor(values, dtype=torch.float64)), x, y)
    for i, value in enumerate(values):
        alone = filters.run(make(value), x, y)
        agrees(together[i], alone, rtol=1e-12)
        agrees(each[i], alone[i], rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@every_filter
def test_dtype_is_kept(make, dtype):
    """Predictions and every part of the state have the inputs' dtype, also with settings in float64; RLS refuses
    float32 and says why.
    """
    filter, (x, y) = make(), prompts(dtype=dtype)
    if make is EVERY["RLS"] and dtype == torch.float32:
        with pytest.raises(ValueError, match=r"x must have dtype torch.float64 for RLS.*got torch.float32"):
            filters.run(filter, x, y)
        return
    assert filters.run(filter, x, y).dtype == dtype
    state = filter.step(filter.init(torch.zeros_like(x[:, 0])), x[:, 0], y[:, 0])
    assert {part.dtype for part in vars(state).values()} == {dtype}
    several = type(make)(make.func, torch.tensor([[0.5], [0.6]], dtype=torch.float64), **make.keywords)
    assert filters.run(several(), x[None], y[None]).dtype == dtype


@pytest.mark.parametrize("K", [1, 2, 5, 20])
def test_apa_in_single_precision(K):
    """In float32 affine projection predicts what it does in float64, with more examples than dimensions too.

    5 trials of 40 positions in 3 dimensions, the inputs rounded beforehand and 5 times larger, so that float32 cannot
    tell x'x from x'x + eps; rtol 1e-3 of a trial's largest prediction, 1 / (2 sqrt(eps)) = 500 times the rounding of
    the labels being 3e-5 of theirs. Planted: solved in float32 it meets a singular matrix at K = 5 and errs at 20.
    """
    x, y = ((a * factor).float() for a, factor in zip(prompts(), (5, 1), strict=True))
    agrees(filters.run(filters.apa(0.5, K=K), x, y), filters.run(filters.apa(0.5, K=K), x.double(), y.double()), 1e-3)


@pytest.mark.parametrize(
    ("filter", "move"),
    [
        (filters.lms(1e40), functools.partial(lms_move, mu=1e40)),
        (filters.nlms(1e40, eps=0.1), functools.partial(nlms_move, mu=1e40, eps=0.1)),
    ],
    ids=["LMS", "NLMS"],
)
def test_divergence_is_named_by_its_position(filter, move):
    """A filter that diverges raises an error with the first position, over all trials, whose prediction is not finite:
    the one at which the loop by hand overflows.

    One trial without an axis for it, all five, and all five with an axis for settings; cut short before that position
    there is no error.
    """
    x, y = prompts()
    with np.errstate(all="ignore"):
        first = (~np.isfinite(by_hand(move, x, y))).argmax(-1)
    assert 2 < first.min() < 39
    for inputs, labels, position in ((x[0], y[0], first[0]), (x, y, first.min()), (x[None], y[None], first.min())):
        with pytest.raises(FloatingPointError, match=rf"diverged: its prediction at position {position} is not finite"):
            filters.run(filter, inputs, labels)
        filters.run(filter, inputs[..., :position, :], labels[..., :position])


def test_divergence_of_one_setting_is_named():
    """Where one of two settings diverges, of affine projection and RLS as well, the run stops and names the position.

    5 trials of 500 positions; the other setting of each is harmless.
    """
    x, y = prompts(n=499)
    big = torch.tensor([[0.5], [1e40]], dtype=torch.float64)
    for filter in (filters.lms(big / 100), filters.nlms(big), filters.apa(big, K=2), filters.rls(1 / (1 + big))):
        with pytest.raises(FloatingPointError, match=r"diverged: its prediction at position \d+ is not finite"):
            filters.run(filter, x[None], y[None])
