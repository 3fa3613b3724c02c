"""A language whose label rule drifts: tokens say what was drawn, and what was drawn has the law that is said."""

import chance
import numpy as np
import pytest
import torch

from icl.profile import make_generator
from icl.tasks import DriftingRegression, StationaryRegression
from icl.tasks.rules import RuleLanguage, WordPrompt, word_vectors

RULE = DriftingRegression(d=2, n=5, gamma=0.9, sigma_w=1.0, sigma_e=0.19**0.5)
VECTORS = word_vectors(7, 2, generator=make_generator("words"))
LANGUAGE = RuleLanguage(RULE, VECTORS, length=3, sigma_y=0.4)


def test_tokens_say_what_was_drawn():
    """Meanings are read back from the tokens, word by word (1e-12); label words are the signs of scores, at places 3,
    7, 11, .. of sentences of three words; `ends` are the places before them; scores without noise are <w, x>.
    """
    drawn = LANGUAGE.sample(40, generator=make_generator("read"), dtype=torch.float64)
    assert drawn.text.shape == (40, 6 * 4)
    parts = drawn.text.view(40, 6, 4)
    assert parts[..., :3].min() == 0
    assert parts[..., :3].max() == 6
    x = VECTORS[parts[..., :3].numpy()].sum(2) / 3**0.5
    np.testing.assert_allclose(drawn.x.numpy(), x, rtol=0, atol=1e-12)
    assert torch.equal(parts[..., 3], 7 + drawn.positive.long())
    assert drawn.ends.tolist() == [2, 6, 10, 14, 18, 22]
    assert torch.equal(drawn.text[:, drawn.ends + 1] == 8, drawn.positive)
    exact = RuleLanguage(RULE, VECTORS, sigma_y=0).sample(40, generator=make_generator("read"), dtype=torch.float64)
    torch.testing.assert_close(exact.y, (exact.w * exact.x).sum(-1), rtol=1e-12, atol=1e-12)
    assert exact.ends.tolist() == [1, 4, 7, 10, 13, 16]


def test_the_rule_is_the_task_s_own():
    """Rules are, to the bit, those that the task draws from the same generator; they stand still where it does."""
    for rule in (RULE, StationaryRegression(d=2, n=5)):
        drawn = RuleLanguage(rule, VECTORS).sample(9, generator=make_generator("rule"))
        assert torch.equal(drawn.w, rule.sample(9, generator=make_generator("rule")).w)


@pytest.mark.statistical
def test_words_are_of_one_length_and_look_everywhere():
    """Lengths are sqrt(d) (1e-12); of 4,000 words in three dimensions the covariance is I, entry by entry.

    The trace is exact, the diagonal's third entry what the others leave.
    """
    for words, d in ((1, 1), (7, 2), (4_000, 3)):
        vectors = word_vectors(words, d, generator=make_generator("moments"))
        np.testing.assert_allclose((vectors**2).sum(1), d, rtol=1e-12)
    chance.assert_mean(vectors[:, :, None] * vectors[:, None], np.eye(3))


@pytest.mark.statistical(2)
def test_shares_of_label_words():
    """Each word comes equally often, and labels of neighbouring equal sentences agree as the arcsine law says.

    Of 40,000 prompts with one word and clean scores, P(two labels agree | same word) = 1/2 + asin(gamma) / pi. Each
    share is binomial; a gamma wrong by .01 would be seen.
    """
    plain = RuleLanguage(RULE, np.array([[1.0, 0.5], [-0.3, 2.0]]), length=1, sigma_y=0)
    drawn = plain.sample(40_000, generator=make_generator("shares"))
    words = drawn.text.view(-1, 6, 2)[..., 0]
    chance.assert_counts(words.sum(), words.numel(), 0.5)
    same = words[:, 0] == words[:, 1]
    agree = (drawn.positive[:, 0] == drawn.positive[:, 1])[same]
    chance.assert_counts(agree.sum(), len(agree), 0.5 + np.arcsin(0.9) / np.pi)


def test_tokens_fit_sentences(as_installed):
    """Tokens that are no whole sentences, or sentences without words, are refused."""
    drawn = LANGUAGE.sample(2, generator=make_generator("fit"))
    for count in (0, 6, 13):
        with pytest.raises(ValueError, match=r"^text must be as many"):
            WordPrompt(drawn.x, drawn.y, drawn.w, drawn.text[:, :1].expand(2, count))
    with pytest.raises(ValueError, match=r"^text must have shape \(2, any\) to match x, got \(1, 24\)"):
        WordPrompt(drawn.x, drawn.y, drawn.w, drawn.text[:1])
