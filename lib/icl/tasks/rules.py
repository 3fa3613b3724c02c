"""A synthetic language whose label words follow a rule that drifts from sentence to sentence (not in the papers).

Each of its words has a hidden vector, drawn once. A sentence is a few words, and its meaning x_t the sum of their
vectors over the root of their number. After each sentence stands one of two label words,

    positive if  <w_t, x_t> + N(0, sigma_y^2) > 0,  negative otherwise,

and w_t is the rule: the weights of any regression task, for (3) :class:`~icl.tasks.core.DriftingRegression`. A model
sees numbers of tokens alone, and has to learn what words mean, and from each prompt what the rule is now. Where the
best answer stands is known: :mod:`icl.theory.floors.label_rule`.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from icl import _checks
from icl._bounds import Count, NonNegative, Reals, validate_fields, validated
from icl.tasks._draws import normal
from icl.tasks.core import Prompt, Task


@dataclass(frozen=True, eq=False)
class WordPrompt(Prompt):
    """Batch of prompts in words; `time` sentences each, a label word after each.

    What regression calls inputs, labels and weights is hidden behind the words: x the meanings, y the scores, whose
    sign the label word says, w the rules.

    Attributes:
        text: (batch, time (length + 1)), numbers of tokens, sentence after sentence: its words, then its label word.
    """

    text: Int[Tensor, "batch tokens"]

    def __post_init__(self) -> None:
        """Validate that the arrays describe the same prompts."""
        super().__post_init__()
        _checks.shape("text", self.text, (len(self.x), None), "to match x")
        _checks.dtype("text", self.text, torch.int64)
        if self.text.shape[1] % self.x.shape[1] or self.text.shape[1] < 2 * self.x.shape[1]:
            raise ValueError(
                f"text must be as many for each of {self.x.shape[1]} sentences, two or more, got {self.text.shape[1]}"
            )

    @property
    def positive(self) -> Bool[Tensor, "batch time"]:
        """Boolean mask of positive label words; the last is the query's, hidden from models."""
        return self.y > 0

    @property
    def ends(self) -> Int[Tensor, " time"]:
        """Positions of the sentences' last words, where a causal model predicts the label word."""
        size = self.text.shape[1] // self.x.shape[1]
        return torch.arange(size - 2, self.text.shape[1], size, device=self.text.device)


@validated
def word_vectors(words: Count, d: Count, *, generator: torch.Generator) -> Float[np.ndarray, "words d"]:
    """Word embeddings: vectors of length sqrt(d) with uniformly distributed directions.

    Args:
        words: how many.
        d: dimension.
        generator: random stream.
    """
    drawn = normal((words, d), generator, torch.float64, "cpu").numpy()
    return np.asarray(drawn * np.sqrt(d / (drawn**2).sum(1, keepdims=True)))


@dataclass(frozen=True, eq=False)
class RuleLanguage:
    """Task of prompts of labelled sentences, with a sampler like a regression task's.

    It is no :class:`~icl.tasks.core.Task`: its labels are words, not <w, x>.

    Attributes:
        rule: the law of w_t, and how many labelled sentences a prompt has; its inputs are not used.
        vectors: (words, d), embedding of each word, in units of x (:func:`word_vectors`).
        length: words a sentence.
        sigma_y: standard deviation of the noise in scores, in units of y.
    """

    rule: Task
    vectors: Reals
    length: Count = 2
    sigma_y: NonNegative = 0.3

    def __post_init__(self) -> None:
        """Validate the task, the embeddings and the sizes."""
        validate_fields(self)
        vectors = np.array(self.vectors, dtype=np.float64)
        _checks.shape("vectors", vectors, (None, self.rule.d), "to match rule")
        if len(vectors) < 2:
            raise ValueError(f"vectors must be of two words or more, got {len(vectors)}")
        object.__setattr__(self, "vectors", vectors)

    @property
    def d(self) -> int:
        """Dimension of the word embeddings."""
        return self.rule.d

    @property
    def n(self) -> int:
        """Number of labelled sentences."""
        return self.rule.n

    @property
    def words(self) -> int:
        """Number of words; the label words have the two indices after theirs, the negative one first."""
        return len(self.vectors)

    @validated
    def sample(
        self,
        batch: Count,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> WordPrompt:
        """Draw `batch` independent prompts from `generator`; embeddings, scores and rules in `dtype`, on `device`."""
        w = self.rule.sample(batch, generator=generator, dtype=dtype, device=device).w
        shape = (batch, self.n + 1, self.length)
        drawn = torch.randint(self.words, shape, generator=generator, device=generator.device).to(w.device)
        x = torch.as_tensor(self.vectors / self.length**0.5, dtype=dtype, device=w.device)[drawn].sum(2)
        noise = normal((batch, self.n + 1), generator, dtype, device)
        y = torch.add((w * x).sum(-1), noise, alpha=self.sigma_y)
        labels = self.words + (y > 0).long()
        return WordPrompt(x, y, w, torch.cat([drawn, labels.unsqueeze(-1)], dim=-1).flatten(1))
