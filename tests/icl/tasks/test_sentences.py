"""Demonstrations from a table: which rows, which signs and which topics are drawn, and what a table's fit explains."""

import chance
import numpy as np
import pytest
import torch

from icl.profile import make_generator
from icl.tasks import DriftingRegression
from icl.tasks.sentences import Demonstrations, LabelledRows, packed, shuffled, unpacked


def invented(rows=40, d=3, topics=None, seed=0):
    """A table in which each row is told from the others by its first feature, and labels lean on the second."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, d))
    x[:, 0] = np.arange(rows) / rows
    labels = np.where(x[:, 1] + rng.standard_normal(rows) > 0, 1.0, -1.0)
    return LabelledRows(x, labels, None if topics is None else np.minimum(np.arange(rows) % (topics + 2), topics - 1))


TABLE, ASKED = invented(topics=4), invented(24, topics=4, seed=1)


def rows_of(table, x):
    """Which row each input is, by its first feature."""
    return (x[..., 0] * len(table.labels)).round().long()


def test_the_fit_is_least_squares():
    """The fit, what it explains and its accuracy against a least-squares solver and its residual, rtol 1e-9."""
    w, residual, *_ = np.linalg.lstsq(TABLE.features, TABLE.labels)
    np.testing.assert_allclose(TABLE.fit, w, rtol=1e-9)
    np.testing.assert_allclose(1 - TABLE.explained, residual[0] / len(TABLE.labels), rtol=1e-9)
    assert TABLE.accuracy(w) == np.mean(np.sign(TABLE.features @ w) == TABLE.labels)


def test_a_prompt_is_rows_with_signs():
    """Inputs are rows of their tables, labels those of the rows times a sign, weights the fit times the same sign."""
    task = Demonstrations(TABLE, 6, ASKED, flip=0.3)
    prompt = task.sample(200, generator=make_generator("rows"), dtype=torch.float64)
    for table, keep in ((TABLE, slice(0, 6)), (ASKED, slice(6, 7))):
        x, y, w = prompt.x[:, keep], prompt.y[:, keep], prompt.w[:, keep]
        which = rows_of(table, x)
        np.testing.assert_array_equal(x, table.features[which])
        sign = y * torch.as_tensor(table.labels)[which]
        np.testing.assert_array_equal(w, sign[..., None] * torch.as_tensor(TABLE.fit))


def test_sizes_and_draws_do_not_hang_on_the_dtype():
    task = Demonstrations(TABLE, 5, flip=0.2, turn=0.5)
    wide, narrow = (task.sample(9, generator=make_generator("dtype"), dtype=t) for t in (torch.float64, torch.float32))
    assert narrow.x.dtype == narrow.y.dtype == torch.float32
    assert torch.equal(wide.y.float(), narrow.y)
    assert wide.x.shape == (9, 6, 3)
    assert task.d == 3


@pytest.mark.statistical(2)
@pytest.mark.parametrize("flip", [0.0, 0.05, 0.5])
def test_signs_have_the_kernel_of_the_papers_drift(flip):
    """The sign kernel is that of (3) in its steady spread with gamma = 1 - 2 flip, to 1e-12; and 20,000 prompts' signs
    have it: 15 products, of which the share that are 1 is binomial.
    """
    task = Demonstrations(TABLE, 5, flip=flip)
    gamma = 1 - 2 * flip
    drift = DriftingRegression(1, 5, gamma, sigma_w=1.0, sigma_e=(1 - gamma**2) ** 0.5)
    np.testing.assert_allclose(task.sign_kernel(), drift.weight_kernel(), atol=1e-12)
    prompt = task.sample(20_000, generator=make_generator(f"signs {flip}"), dtype=torch.float64)
    sign = (prompt.y * torch.as_tensor(TABLE.labels)[rows_of(TABLE, prompt.x)]).numpy()
    assert (np.abs(sign) == 1).all()
    one, other = np.triu_indices(6, 1)
    alike = (sign[:, one] == sign[:, other]).sum(0)
    chance.assert_counts(alike, 20_000, (1 + task.sign_kernel()[one, other]) / 2)
    chance.assert_counts((sign[:, 0] > 0).sum(), 20_000, 0.5)


def test_signs_begin_as_they_are_told():
    """One sign for all prompts without flips and with either_sign off."""
    prompt = Demonstrations(TABLE, 4, either_sign=False).sample(
        50, generator=make_generator("told"), dtype=torch.float64
    )
    np.testing.assert_array_equal(prompt.y, TABLE.labels[rows_of(TABLE, prompt.x)])


@pytest.mark.statistical(2)
def test_rows_are_drawn_alike():
    """Each of 40 rows is drawn equally often in 24,000 places, and each of 24 queries in 4,000: binomial counts."""
    prompt = Demonstrations(TABLE, 6, ASKED).sample(4_000, generator=make_generator("alike"))
    for table, x in ((TABLE, prompt.x[:, :-1]), (ASKED, prompt.x[:, -1])):
        rows = len(table.labels)
        counts = np.bincount(rows_of(table, x).flatten(), minlength=rows)
        chance.assert_counts(counts, counts.sum(), 1 / rows)


@pytest.mark.statistical(2)
def test_topics_last():
    """A topic of share q is the next one's with probability 1 - turn + turn q, the query's in its own table too; 20,000
    prompts, in the mean over topics. Where topics do not last, rows are independent.
    """
    share = np.bincount(TABLE.topics) / 40
    assert len(set(share)) > 1
    for turn in (0.1, 1.0):
        task = Demonstrations(TABLE, 3, ASKED, turn=turn)
        prompt = task.sample(20_000, generator=make_generator(f"topics {turn}"))
        topic = TABLE.topics[rows_of(TABLE, prompt.x[:, :-1])]
        of_query = ASKED.topics[rows_of(ASKED, prompt.x[:, -1:])]
        same = np.diff(topic if turn == 1 else np.concatenate([topic, of_query], 1)) == 0
        expected = 1 - turn + turn * (share**2).sum()
        chance.assert_counts(same.sum(0), 20_000, expected)


@pytest.mark.statistical
def test_shuffled_prompts_hold_the_same_demonstrations():
    """Queries stay, demonstrations are those of the prompt in another order, and each place is as likely as another:
    the first demonstration of 6,000 prompts in 6 places, binomial counts.
    """
    prompt = Demonstrations(TABLE, 6, flip=0.2).sample(6_000, generator=make_generator("before"), dtype=torch.float64)
    other = shuffled(prompt, generator=make_generator("shuffle"))
    assert torch.equal(other.x[:, -1], prompt.x[:, -1])
    assert torch.equal(other.y[:, -1], prompt.y[:, -1])
    told = [
        torch.cat([p.x, p.y[..., None], p.w], -1)[:, :-1] @ torch.arange(1.0, 8.0, dtype=torch.float64)
        for p in (prompt, other)
    ]
    np.testing.assert_allclose(told[0].sort(1).values, told[1].sort(1).values, rtol=1e-12)
    distinct = (told[0][:, 1:] != told[0][:, :1]).all(1)
    place = (told[1][distinct] - told[0][distinct, :1]).abs().argmin(1)
    counts = np.bincount(place, minlength=6)
    chance.assert_counts(counts, counts.sum(), 1 / 6)


def test_packed_features_come_back_to_a_sixteenth():
    """Within half a step where they fit into eight bits, cut where they do not; rows come one after another, however
    they lie in memory.
    """
    x = np.random.default_rng(3).standard_normal((50, 4))
    assert np.abs(unpacked(packed(x), d=4) - x).max() <= 1 / 32
    assert np.abs(unpacked(packed(x.T), d=50) - x.T).max() <= 1 / 32
    np.testing.assert_array_equal(unpacked(packed(np.array([[9.0, -9.0]])), d=2), [[127 / 16, -127 / 16]])


def test_bad_tables_and_tasks_are_refused_by_name():
    x, y = TABLE.features, TABLE.labels
    with pytest.raises(ValueError, match=r"queries must have the features of rows, 3, got 2"):
        Demonstrations(TABLE, 4, LabelledRows(x[:, :2], y))
    with pytest.raises(ValueError, match="queries must have topics where these last"):
        Demonstrations(TABLE, 4, LabelledRows(x, y), turn=0.5)
    with pytest.raises(ValueError, match="queries must have the topics of rows"):
        Demonstrations(TABLE, 4, invented(topics=2), turn=0.5)
    with pytest.raises(ValueError, match="text must hold rows of d = 3 numbers, got 4 numbers"):
        unpacked(packed(np.ones((2, 2))), d=3)
    with pytest.raises(ValueError, match="text must be base64"):
        unpacked("no, not at all", d=1)
