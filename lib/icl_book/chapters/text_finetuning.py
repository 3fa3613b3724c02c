"""Fine-tuning and in-context evaluation of language models [the paper on gated linear attention, sec. 4].

A prompt of n demonstrations is a query at each K = 0 .. n (:mod:`icl.tasks.text`), in training, where the loss is that
of all label tokens, and in testing. Weights and AdamW's state are float32; a pass computes in bfloat16, sums of a
memory apart (:mod:`icl.models.surgery`). Logits are formed at labels only.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from icl import _checks
from icl._bounds import Count, validated
from icl.experiments.training import AdamW, Config, Run, fit
from icl.models import surgery
from icl.tasks.text import InContextText, TextPrompt, encoded, labelled_texts

#: Steps and AdamW as printed; the paper does not say how many prompts a step has.
PRINTED_COURSE = Config(1000, 1, AdamW(lr=5e-5, weight_decay=0.05, momentum=0.9))
#: Demonstrations at which the paper tests.
PRINTED_K = {"sst2": (1, 5, 10, 15, 20), "mnli": (1, 3, 5, 7, 10)}
#: Words of the classes, in their order, with the space that tokenizers join to a word.
LABEL_WORDS = {"sst2": (" negative", " positive"), "mnli": (" yes", " maybe", " no")}
#: Lengths in tokens of the texts that are drawn, short ones, since a step's time goes with the prompt's length.
TEXT_LENGTHS = {"sst2": (7, 13), "mnli": (12, 22)}
_BETWEEN = {"sst2": "", "mnli": "\n"}


@dataclass(frozen=True, eq=False)
class JudgedText:
    """Answers at the label positions of test prompts, after K = 0 .. n demonstrations.

    Attributes:
        correct: True where the label's word has the largest logit of the class words.
        confidence: probability of the most probable class word, among the class words.
        rows: rows of the table asked about.
        chosen: class of the label's word that has the largest logit.
    """

    correct: Bool[np.ndarray, "prompts places"]
    confidence: Float[np.ndarray, "prompts places"]
    rows: Int[np.ndarray, "prompts places"]
    chosen: Int[np.ndarray, "prompts places"]


@validated
def answered(
    answers: JudgedText, what: str, K: Sequence[int], *, beside: JudgedText | None = None
) -> tuple[float, float]:
    """Accuracy or confidence of answers at some K, and its standard error.

    Prompts are drawn, and so are the texts that are asked about; a text stands in many prompts. The error is that of
    both [Cameron, Gelbach & Miller 2011]: variances of sums over prompts and over texts, less that of single answers,
    which is in both; no less than over prompts. Over prompts alone it may be a quarter of that.

    Args:
        answers: the answers.
        what: "accuracy", the share of correct answers, or "confidence", the mean confidence of the correct ones; NaN
            if none is.
        K: numbers of demonstrations, one at least.
        beside: other answers to the same prompts; the number is then how much more `answers` has.

    Raises:
        ValueError: if the prompts are not the same, and for another `what`.
    """
    if what not in ("accuracy", "confidence"):
        raise ValueError(f"what must be 'accuracy' or 'confidence', got {what!r}")
    places = list(K)
    mean, parts = _parts(answers, what, places)
    if beside is not None:
        if not np.array_equal(answers.rows, beside.rows):
            raise ValueError("beside must be judged on the same prompts, got other rows")
        theirs = _parts(beside, what, places)
        mean, parts = mean - theirs[0], parts - theirs[1]
    _, texts = np.unique(answers.rows[:, places], return_inverse=True)
    prompts = np.broadcast_to(np.arange(len(parts))[:, None], parts.shape)
    over_prompts, over_texts = (_variance(parts, of) for of in (prompts, texts))
    both = over_prompts + over_texts - float((parts**2).sum())
    return mean, float(np.sqrt(max(both, over_prompts)))


@validated
def commonest(answers: JudgedText, K: Sequence[int]) -> float:
    """Share of the label that is answered most often at some K; 1 for a model that has collapsed to one label.

    Args:
        answers: the answers.
        K: numbers of demonstrations, one at least.
    """
    counts = np.bincount(answers.chosen[:, list(K)].ravel())
    return float(counts.max() / counts.sum())


def _parts(answers: JudgedText, what: str, places: list[int]) -> tuple[float, np.ndarray]:
    """The estimate, and its influence values: every answer's first-order contribution to the deviation."""
    correct, confidence = answers.correct[:, places].astype(float), answers.confidence[:, places]
    if what == "accuracy":
        return float(correct.mean()), (correct - correct.mean()) / correct.size
    if not correct.any():
        return float("nan"), np.full(correct.shape, np.nan)
    ratio = float((correct * confidence).sum() / correct.sum())
    return ratio, correct * (confidence - ratio) / correct.sum()


def _variance(parts: np.ndarray, of: np.ndarray) -> float:
    """Variance of the sum of all parts, clustered by independent groups."""
    sums = np.bincount(of.ravel(), parts.ravel())
    return float((sums**2).sum() * len(sums) / max(len(sums) - 1, 1))


@validated
def label_logits(model: nn.Module, prompt: TextPrompt) -> Float[Tensor, "batch places words"]:
    """Logits of the whole vocabulary at the places of a prompt, float32; the pass itself in bfloat16."""
    with torch.autocast(prompt.tokens.device.type, torch.bfloat16):
        logits = surgery.logits_at(model, prompt.tokens, prompt.at)
    return logits.float()


@validated
def label_loss(model: nn.Module, prompt: TextPrompt) -> Float[Tensor, ""]:
    """Mean cross-entropy of the label tokens, of query and demonstrations alike, over the whole vocabulary; nats."""
    return F.cross_entropy(label_logits(model, prompt).flatten(0, 1), prompt.targets.flatten())


@validated
def fine_tune(
    model: nn.Module,
    task: InContextText,
    config: Config = PRINTED_COURSE,
    *,
    generator: torch.Generator,
    checkpoint: Path | None = None,
    checkpoint_every: Count = 100,
) -> Run:
    """Fine-tune a transformers causal language model in place by :func:`~icl.experiments.training.fit`, on its device.

    Args:
        model: changed by :func:`~icl.models.surgery.with_attention` or not; float32 parameters.
        task: where prompts come from.
        config: steps, prompts a step, AdamW; the paper's unless told otherwise.
        generator: the stream that prompts are drawn from, on the CPU.
        checkpoint: file to resume from and to write, a dozen bytes a parameter; None writes nothing.
        checkpoint_every: steps between writes, and between copies of the state in memory.
    """
    model.train()
    return fit(
        model,
        label_loss,
        task,
        config,
        generator=generator,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        snapshot_every=checkpoint_every,
        fused=True,
    )


@torch.inference_mode()
@validated
def judge_text(
    model: nn.Module, task: InContextText, *, prompts: Count, generator: torch.Generator, batch: Count = 4
) -> JudgedText:
    """Evaluate a model at all K on sampled prompts.

    Args:
        model: a causal language model of transformers, changed or not.
        task: where prompts come from.
        prompts: a multiple of batch, at least 2.
        generator: the stream that prompts are drawn from, on the CPU.
        batch: prompts a pass, at least 1; those of one pass share the order of their texts' lengths.

    Raises:
        FloatingPointError: if a logit of a class word is not finite.
    """
    if _checks.integer("prompts", prompts, at_least=2) % _checks.integer("batch", batch, at_least=1):
        raise ValueError(f"prompts must be a multiple of batch = {batch}, got {prompts}")
    model.eval()
    device = next(model.parameters()).device
    correct, confidence, rows, answers = [], [], [], []
    for _ in range(prompts // batch):
        prompt = task.sample(batch, generator=generator, device=device)
        chosen = label_logits(model, prompt).gather(2, prompt.words)
        if not bool(chosen.isfinite().all()):
            raise FloatingPointError("logits of the class words must be finite, got some that are not")
        answers.append(chosen.argmax(-1))
        correct.append(answers[-1] == prompt.labels)
        confidence.append(chosen.softmax(-1).amax(-1))
        rows.append(prompt.rows)
    arrays = (torch.cat(each).cpu().numpy() for each in (correct, confidence, rows, answers))
    return JudgedText(*arrays)


@functools.cache
def text_tasks(
    corpus: str, encode: Callable[[str], Sequence[int]], *, demonstrations: int | None = None
) -> dict[str, InContextText]:
    """Tasks of a corpus for training ("train") and testing ("validation"), tokenised for a model.

    Args:
        corpus: "sst2" or "mnli".
        encode: tokens of a text, without tokens for its start or end; the first token of a word stands for its class.
        demonstrations: a prompt; None is the paper's number, 20 or 10.
    """
    n = PRINTED_K[corpus][-1] if demonstrations is None else demonstrations
    words = tuple(encode(word)[0] for word in LABEL_WORDS[corpus])
    tasks = {}
    for part in ("train", "validation"):
        texts = labelled_texts(corpus, part)
        table = encoded(texts, encode, separator=_BETWEEN[corpus])
        tasks[part] = InContextText(
            table, texts.labels, words, n, *TEXT_LENGTHS[corpus], tuple(encode(" ->")), tuple(encode("\n"))
        )
    return tasks
