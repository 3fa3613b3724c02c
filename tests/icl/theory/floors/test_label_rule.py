"""The floor of a drifting label rule against orthant probabilities, and what no answer may depend on."""

import itertools
import re

import numpy as np
import pytest

from icl.tasks import DriftingRegression
from icl.theory.floors import label_rule


def orthants(x, labels, rule, sigma_y):
    """P(label t is positive | labels before it) for three labels, by the arcsine law: scores are jointly Gaussian.

    P(all three of given signs) = 1/8 + (asin r_12 + asin r_13 + asin r_23) / 4 pi, r the correlations of signed scores.
    """
    K = rule.weight_kernel()[:3, :3] * (x @ x.T) + sigma_y**2 * np.eye(3)
    R = K / np.sqrt(np.outer(np.diag(K), np.diag(K)))
    angle = np.arcsin(R) / np.pi

    def two(signs):
        return 1 / 4 + signs[0] * signs[1] * angle[0, 1] / 2

    def three(signs):
        pairs = itertools.combinations(range(3), 2)
        return 1 / 8 + sum(signs[i] * signs[j] * angle[i, j] for i, j in pairs) / 4

    signs = np.where(labels, 1, -1)
    return np.array([0.5, two([signs[0], 1]) / 0.5, three([*signs[:2], 1]) / two(signs[:2])])


@pytest.mark.parametrize(
    ("d", "gamma", "sigma_w", "sigma_e"),
    [(1, 0.9, 1.0, 0.4), (1, 1.0, 0.7, 0.0), (2, 0.9, 1.0, 0.5), (2, 1.0, 1.0, 0.0), (2, 1.1, 0.5, 0.6), (2, 0, 3, 1)],
)
def test_three_labels_by_the_arcsine_law(d, gamma, sigma_w, sigma_e):
    """rtol 1e-9, all eight labellings of three sentences, one of them met twice; drift, standing still, growth."""
    rule = DriftingRegression(d=d, n=4, gamma=gamma, sigma_w=sigma_w, sigma_e=sigma_e)
    rng = np.random.default_rng(d)
    x = np.repeat(rng.normal(size=(1, 3, d)), 8, axis=0)
    x[:, 2] = x[:, 0]
    labels = np.array(list(itertools.product([False, True], repeat=3)))
    found = label_rule.positive_probability(x, labels, rule, sigma_y=0.6, spacing=0.8)
    want = [orthants(x[0], row, rule, 0.6) for row in labels]
    np.testing.assert_allclose(found, want, rtol=1e-9)
    coarse = label_rule.positive_probability(x, labels, rule, sigma_y=0.6, spacing=0.95)
    np.testing.assert_allclose(coarse, found, rtol=0, atol=1e-7)


@pytest.mark.parametrize("shortest", [0.02, 0.1, 0.3, 1.0])
def test_a_grid_wider_than_a_step_of_the_rule_is_refused(shortest):
    """Short sentences leave wide beliefs, whose grid a slow rule's steps fell through: answers were off by up to 0.03.

    Refused with the spacing that will do, and that has the promised 1e-7 (1e-9 with 0.8 of it).
    """
    rule = DriftingRegression(d=1, n=4, gamma=0.9, sigma_w=1.0, sigma_e=0.1)
    x = np.repeat(shortest * np.array([[[1.0], [-0.5], [1.0]]]), 8, axis=0)
    labels = np.array(list(itertools.product([False, True], repeat=3)))
    with pytest.raises(ValueError, match=r"spacing must be at most .* steps, sigma_e = 0\.1,") as refused:
        label_rule.positive_probability(x, labels, rule, sigma_y=0.6)
    most = float(re.search(r"at most (\S+) ", str(refused.value))[1])
    want = [orthants(x[0], row, rule, 0.6) for row in labels]
    for share, near in ((1.0, 1e-7), (0.8, 1e-9)):
        found = label_rule.positive_probability(x, labels, rule, sigma_y=0.6, spacing=share * most)
        np.testing.assert_allclose(found, want, rtol=0, atol=near)


RULE = DriftingRegression(d=2, n=6, gamma=0.9, sigma_w=1.0, sigma_e=0.19**0.5)


def test_what_an_answer_depends_on():
    """Not on its own label and later ones (exactly); labels turned round, or meanings, turn answers round; a turn of
    the plane changes nothing (1e-7); prompts do not look at each other; a sentence without meaning is a toss.
    """
    rng = np.random.default_rng(4)
    x, labels = rng.normal(size=(5, 7, 2)), rng.random((5, 7)) > 0.5
    x[3, 4] = 0

    def answers(x, labels):
        return label_rule.positive_probability(x, labels, RULE, sigma_y=0.5, spacing=0.8)

    p = answers(x, labels)
    later = labels.copy()
    later[:, 3:] ^= True
    np.testing.assert_array_equal(answers(x, later)[:, :4], p[:, :4])
    assert (answers(x, later)[:, 5:] != p[:, 5:]).all()
    np.testing.assert_allclose(answers(x, ~labels), 1 - p, atol=1e-9)
    flipped = x.copy()
    flipped[:, -1] *= -1
    np.testing.assert_allclose(answers(flipped, labels)[:, -1], 1 - p[:, -1], atol=1e-9)
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    np.testing.assert_allclose(answers(x @ turn, labels), p, atol=1e-7)
    # The grid is made for the longest meaning of a batch.
    np.testing.assert_allclose(answers(x[:2], labels[:2]), p[:2], atol=1e-7)
    np.testing.assert_allclose(p[3, 4], 0.5, atol=1e-12)


def test_prompts_are_answered_block_by_block(monkeypatch):
    """As many at a time as fit: prompts of blocks of their own are answered as together."""
    rule = DriftingRegression(d=1, n=4, gamma=0.9, sigma_w=1.0, sigma_e=0.4)
    rng = np.random.default_rng(6)
    x, labels = rng.normal(size=(3, 5, 1)), rng.random((3, 5)) > 0.5
    together = label_rule.positive_probability(x, labels, rule, sigma_y=0.6)
    monkeypatch.setattr(label_rule, "_ENTRIES", 1)
    np.testing.assert_allclose(label_rule.positive_probability(x, labels, rule, sigma_y=0.6), together, rtol=1e-12)


def test_one_prompt_alone_is_answered_as_among_its_copies():
    """Of a rule that grows, so that the grid has to reach for the last sentence's; no prompts have no answers."""
    rule = DriftingRegression(d=1, n=11, gamma=1.2, sigma_w=0.5, sigma_e=0.5)
    rng = np.random.default_rng(5)
    x, labels = rng.normal(size=(1, 12, 1)), rng.random((1, 12)) > 0.5
    for count in (0, 1, 12, 20):
        copies = (np.repeat(each, count, axis=0) for each in (x, labels))
        found = label_rule.positive_probability(*copies, rule, sigma_y=0.6, spacing=0.5)
        alone = label_rule.positive_probability(x, labels, rule, sigma_y=0.6, spacing=0.5)
        assert found.shape == (count, 12)
        np.testing.assert_allclose(found, np.repeat(alone, count, axis=0), rtol=1e-12)
