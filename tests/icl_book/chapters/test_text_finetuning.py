"""Training and testing language models in context, on tiny random ones: the loss, each K in one pass, errors, units.

No data set, no weights: texts are random tokens.
"""

import itertools
import json
import re
from dataclasses import replace

import chance
import numpy as np
import pytest
import torch
from shared import marked_texts as texts
from shared import tiny_llama as tiny

pytest.importorskip("transformers", reason="the language extra is not installed")

from icl.experiments.training import AdamW, Config
from icl.models import with_attention
from icl.profile import make_generator
from icl.tasks.text import TEXT_CLASSES
from icl_book.chapters import text_finetuning
from icl_book.chapters.text_finetuning import (
    JudgedText,
    answered,
    commonest,
    fine_tune,
    judge_text,
    label_logits,
    label_loss,
    text_tasks,
)

FAST = AdamW(lr=1e-2)


def course(steps, batch=1):
    return Config(steps, batch, FAST)


@pytest.mark.parametrize("lam", [None, 1.0, 0.9])
def test_one_pass_answers_at_each_K(lam):
    """Logits at place K of a long prompt are those of the prompt that ends there: what comes after changes nothing.

    In bfloat16, to its rounding: 3 digits. Those of the next place differ by ten times that.
    """
    model, prompt = with_attention(tiny(), lam=lam), texts().sample(3, generator=make_generator("one pass"))
    with torch.inference_mode():
        together = label_logits(model, prompt)
        for K in range(5):
            alone = label_logits(model, prompt.alone(K))
            torch.testing.assert_close(alone[:, -1], together[:, K], rtol=0.05, atol=0.05)
            assert (alone[:, -1] - together[:, (K + 1) % 5]).abs().max() > 0.5


def test_the_loss_is_that_of_label_tokens_alone():
    """Minus the mean log-probability of the tokens that stand behind the positions, from logits at all positions."""
    model, prompt = tiny(), texts(random_words=True).sample(3, generator=make_generator("loss"))
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        whole = model(prompt.tokens, use_cache=False).logits.float().log_softmax(-1)
    picked = [
        whole[b, prompt.at[b, k], prompt.targets[b, k]].item() for b in range(3) for k in range(prompt.at.shape[1])
    ]
    assert label_loss(model, prompt).item() == pytest.approx(-np.mean(picked), rel=1e-2)


def test_training_teaches_what_marks_a_class_and_survives_a_kill(tmp_path):
    """40 steps bring a model that is at chance to nine answers in ten, on texts that it was not trained on. Killed
    after 6 of 9 steps and started again, it ends on the same weights, to the bit.
    """

    def run(steps, **options):
        model = with_attention(tiny(), lam=0.9)
        fine_tune(model, texts(), course(steps, 4), generator=make_generator("train"), **options)
        return model

    asked = {"prompts": 40, "generator": make_generator("judge")}
    model = run(40)
    assert answered(judge_text(model, texts(seed=1), **asked), "accuracy", range(5))[0] > 0.9
    assert answered(judge_text(tiny(), texts(seed=1), **asked), "accuracy", range(5))[0] < 0.75

    class Killed(Exception):
        pass

    calls = []

    def killed(model, prompt):
        calls.append(prompt)
        if len(calls) > 6:
            raise Killed
        return label_loss(model, prompt)

    kept = {"checkpoint": tmp_path / "state", "checkpoint_every": 4}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_finetuning, "label_loss", killed)
        with pytest.raises(Killed):
            run(9, **kept)
    assert len(calls) == 7
    whole, again = run(9), run(9, **kept)
    assert all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), again.state_dict().values(), strict=True))


def crossed(draw, prompts=150, places=6, texts=None):
    """Two models' answers: some prompts are hard, and some texts; texts come back in other prompts, or never."""
    rows = np.arange(prompts * places).reshape(prompts, places)
    if texts is not None:
        rows = draw.integers(texts, size=(prompts, places))
    ease = draw.normal(0.5, 1, (prompts, 1)) + draw.normal(0, 1, rows.max() + 1)[rows]
    both = []
    for _ in range(2):
        chance = 1 / (1 + np.exp(-ease - draw.normal(0, 0.7, rows.max() + 1)[rows]))
        sure = 0.5 + 0.5 * chance * draw.uniform(size=rows.shape)
        right = draw.uniform(size=rows.shape) < chance
        both.append(JudgedText(right, sure, rows, right.astype(int)))
    return both


def test_the_commonest_answer_shows_a_collapsed_model():
    """A model that answers one label has a share of 1 and the accuracy of that label; which label it is may change with
    K, and the share is of the answers together.
    """
    rows, labels = np.arange(12).reshape(4, 3), np.array([[0, 1, 1], [0, 0, 1], [1, 1, 0], [0, 1, 1]])
    one = np.array([[0, 1, 1]] * 4)
    judged = JudgedText(one == labels, np.full((4, 3), 0.6), rows, one)
    assert [commonest(judged, [K]) for K in range(3)] == [1.0, 1.0, 1.0]
    assert [answered(judged, "accuracy", [K])[0] for K in range(3)] == [0.75, 0.75, 0.75]
    assert commonest(judged, range(3)) == 8 / 12
    model, asked = tiny(), {"prompts": 8, "generator": make_generator("commonest")}
    seen = judge_text(model, texts(), **asked)
    assert seen.chosen.shape == seen.correct.shape
    assert set(np.unique(seen.chosen)) <= {0, 1}


@pytest.mark.statistical(4)
def test_numbers_are_means_and_their_errors_those_of_prompts_drawn_again():
    """Shares of answers, and confidence of correct ones; where no text comes twice, errors are those of 4,000
    resamplings of prompts, to 10 %; for two models, of the same prompts. Resampled numbers are nearly normal.

    Planted: answers taken for independent, and prompts of two models resampled apart, are 20 % and more off.
    """
    draw = np.random.default_rng(3)
    one, two = crossed(draw)
    K = (1, 3, 4, 5)

    def number(judged, what, at=slice(None)):
        right, sure = judged.correct[at][:, K], judged.confidence[at][:, K]
        return right.mean() if what == "accuracy" else sure[right].mean()

    resampling = chance.rng(4)
    resampled = [resampling.integers(150, size=150) for _ in range(4000)]
    for what in ("accuracy", "confidence"):
        mean, error = answered(one, what, K)
        more, more_error = answered(one, what, K, beside=two)
        assert mean == pytest.approx(number(one, what))
        assert more == pytest.approx(number(one, what) - number(two, what))
        again = np.array([[number(each, what, at) for each in (one, two)] for at in resampled])
        for numbers, told in ((again[:, 0], error), (again[:, 0] - again[:, 1], more_error)):
            low, high = chance.assert_errors(numbers, np.full(4000, told**2), order=0.04)
            assert 0.9**2 < low < high < 1.1**2
    assert np.isnan(answered(replace(one, correct=one.correct & False), "confidence", K)).all()
    with pytest.raises(ValueError, match="beside must be judged on the same prompts"):
        answered(one, "accuracy", K, beside=replace(two, rows=one.rows + 1))
    with pytest.raises(ValueError, match="what must be 'accuracy' or 'confidence', got 'loss'"):
        answered(one, "loss", K)


@pytest.mark.statistical(4)
def test_errors_count_texts_that_come_back():
    """500 times 60 prompts about 40 texts: mean squared errors are the variance of numbers to 40 %. Over prompts alone,
    which is planted, they are a half and less.
    """
    draw = chance.rng(5)
    for what in ("accuracy", "confidence"):
        found = []
        for _ in range(500):
            one, two = crossed(draw, 60, 6, 40)
            found.append([*answered(one, what, range(6)), *answered(one, what, range(6), beside=two)])
        mean, error, more, more_error = np.array(found).T
        for numbers, told in ((mean, error), (more, more_error)):
            low, _ = chance.assert_errors(numbers, told**2, order=0.1)
            assert low > 0.6


@pytest.mark.parametrize(
    ("corpus", "asked", "n"), [("sst2", None, 20), ("sst2", 6, 6), ("mnli", None, 10), ("mnli", 3, 3)]
)
def test_prompts_of_a_corpus_are_its_rows_with_their_words(tmp_path, monkeypatch, corpus, asked, n):
    """The paper's number of demonstrations, or what is asked for: a row of the part and its label's word each."""
    monkeypatch.setenv("ICL_DATA", str(tmp_path))
    (tmp_path / corpus).mkdir()
    shortest, longest = text_finetuning.TEXT_LENGTHS[corpus]
    rows = {}
    for part, name in (("train", "train"), ("validation", "dev" if corpus == "sst2" else "dev_matched")):
        of = itertools.product(range(shortest, longest + 1), enumerate(TEXT_CLASSES[corpus]), range(3))
        made = [(f"{part}-{length}-{word}-{k}" + " of" * (length - 4), c, word) for length, (c, word), k in of]
        if corpus == "sst2":
            rows[part] = [(f"{text} the last words", c) for text, c, _ in made]
            lines = ["label\tsentence", *(f"{c}\t{text}" for text, c in rows[part])]
            (tmp_path / f"sst2/{name}.tsv").write_text("\n".join(lines))
        else:
            rows[part] = [(f"{text}\nand so", c) for text, c, _ in made]
            told = [{"premise": text, "hypothesis": "and so", "label": word} for text, _, word in made]
            (tmp_path / f"mnli/{name}.jsonl").write_text("\n".join(map(json.dumps, told)))
    known = []

    def encode(text):
        pieces = re.findall(r" ?[^ \n]+|\n", text)
        known.extend(piece for piece in pieces if piece not in known)
        return [known.index(piece) for piece in pieces]

    for part, task in text_tasks(corpus, encode, demonstrations=asked).items():
        for tokens in task.sample(3, generator=make_generator("corpus")).tokens:
            text = "".join(known[token] for token in tokens)
            words = text_finetuning.LABEL_WORDS[corpus]
            assert sum(f"{row} ->{words[c]}\n" in text for row, c in rows[part]) == task.n == n
            assert sum(f"{row} ->" in text for row, _ in rows[part]) == n + 1


def test_a_model_that_diverged_is_not_judged():
    """NaN is the largest logit to `argmax`, and would be an answer like any other."""
    model: torch.nn.Module = with_attention(tiny(), lam=0.9)
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    with pytest.raises(FloatingPointError, match="logits of the class words must be finite"):
        judge_text(model, texts(), prompts=4, generator=make_generator("diverged"))


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="prompts must be a multiple of batch = 4, got 6"):
        judge_text(tiny(), texts(), prompts=6, generator=make_generator("judge"))
