"""Prompts of text: labelled sentences in sequence, each followed by its label word [gated linear attention, sec. 4].

A prompt is n demonstrations and a query in one form, `text, cue, word, end`; the query is the last of n+1 places. Every
place is also a query with the demonstrations before it, since a causal model reads nothing after it: one pass over a
prompt of 20 demonstrations has an answer at each of K = 0 .. 20.

Prompts have no padding, and one number of tokens. The n+1 places share out the lengths `shortest .. longest` as evenly
as can be, in an order that is drawn for each batch and is the same for all its prompts; a place takes a text of its
length, whole. A cut would lose words that carry the label. So a prompt of n demonstrations has the same number of
tokens in training and testing, which matters to a model that adds up all it reads. The price: texts of other lengths
are left out, and :attr:`InContextText.rows` says how many are left.

Nothing here knows a tokenizer: :func:`encoded` takes the function that makes tokens of a text.
"""

import functools
import importlib
import itertools
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from icl._bounds import Count, Natural, UnitInterval, validate_fields, validated

#: Names the folder that holds the corpora.
_FOLDER = "ICL_DATA"
#: Classes of each corpus, in the order of their numbers.
TEXT_CLASSES = {"sst2": ("negative", "positive"), "mnli": ("entailment", "neutral", "contradiction")}
#: Files of each corpus and part in the folder, those that are there are read one after another.
_FILES = {
    ("sst2", "train"): ("sst2/train.tsv",),
    ("sst2", "validation"): ("sst2/dev.tsv",),
    ("mnli", "train"): ("mnli/train.jsonl", "mnli/train_sample_9k.json", "mnli/train_sample_1k.json"),
    ("mnli", "validation"): ("mnli/dev_matched.jsonl",),
}
_COLUMNS = {"sst2": ("sentence",), "mnli": ("premise", "hypothesis")}


@dataclass(frozen=True)
class LabelledTexts:
    """Texts with their classes.

    Attributes:
        texts: of each row its parts: one sentence, or a premise and a hypothesis.
        labels: the class of each row, from 0.
        classes: their names.
    """

    texts: tuple[tuple[str, ...], ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        """Validate that rows have texts, equally many parts, and known classes."""
        if not self.texts or len({len(parts) for parts in self.texts}) != 1 or not self.texts[0]:
            raise ValueError(f"texts must be rows of equally many parts, at least one row, got {len(self.texts)} rows")
        if len(self.labels) != len(self.texts):
            raise ValueError(f"labels must be one a row, {len(self.texts)}, got {len(self.labels)}")
        if len(self.classes) < 2 or not set(self.labels) <= set(range(len(self.classes))):
            raise ValueError(f"labels must lie in [0, {len(self.classes)}), of two classes at least")


@validated
def labelled_texts(corpus: str, part: str) -> LabelledTexts:
    """Read a corpus, in the order of its rows, without rows that lack a gold label.

    Args:
        corpus: "sst2" [Socher et al. 2013] or "mnli" [Williams et al. 2018], the matched validation set.
        part: "train" or "validation".

    Raises:
        ValueError: for another corpus or part, and for a file that is none of it.
        FileNotFoundError: if neither the folder that `ICL_DATA` names nor the cache of the `datasets` library has it.
    """
    if (corpus, part) not in _FILES:
        raise ValueError(f"corpus and part must be one of {sorted(_FILES)}, got {(corpus, part)!r}")
    folder = os.environ.get(_FOLDER)
    paths = [path for name in _FILES[corpus, part] if folder and (path := Path(folder) / name).is_file()]
    rows = [row for path in paths for row in _rows(path, corpus)] if paths else _read_cached(corpus, part)
    rows = [(parts, label) for parts, label in rows if 0 <= label < len(TEXT_CLASSES[corpus])]
    return LabelledTexts(tuple(parts for parts, _ in rows), tuple(label for _, label in rows), TEXT_CLASSES[corpus])


def _rows(path: Path, corpus: str) -> list[tuple[tuple[str, ...], int]]:
    """Parts and class of each row of a file; -1 for a row without a gold label."""
    numbers = {name: number for number, name in enumerate(TEXT_CLASSES[corpus])}
    content = path.read_text(encoding="utf-8")
    try:
        if path.suffix == ".tsv":
            # A sentence may hold quotation marks; nothing is quoted in these files.
            lines = [line.split("\t") for line in content.split("\n")[1:] if line]
            return [((text.strip(),), int(label)) for label, text in lines]
        if path.suffix == ".json":
            records = list(json.loads(content).values())
            columns: tuple[str, ...] = ("text_a", "text_b")
        else:
            records = [json.loads(line) for line in content.split("\n") if line]
            columns = _COLUMNS[corpus]
        return [
            (tuple(row[name].strip() for name in columns), numbers.get(row.get("label", row.get("gold_label")), -1))
            for row in records
        ]
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise ValueError(f"{path} must hold rows of {corpus}, label and text, got {error!r}") from error


def _read_cached(corpus: str, part: str) -> list[tuple[tuple[str, ...], int]]:
    """Read the corpus through the datasets library, from its cache if it is there."""
    try:
        datasets = importlib.import_module("datasets")
        name = f"{part}_matched" if (corpus, part) == ("mnli", "validation") else part
        table = datasets.load_dataset("nyu-mll/glue", corpus, split=name)
    except Exception as error:
        raise FileNotFoundError(
            f"{corpus} was not found: set {_FOLDER} to a folder that holds {' or '.join(_FILES[corpus, part])}, "
            "or install the `datasets` library (pip install datasets) and let it download nyu-mll/glue once"
        ) from error
    return [(tuple(row[name].strip() for name in _COLUMNS[corpus]), int(row["label"])) for row in table]


@dataclass(frozen=True, eq=False)
class TextPrompt:
    """Batch of prompts of text. Places are 0 .. n: the demonstrations and the query.

    Attributes:
        tokens: (batch, time); the last token is the query's cue.
        at: (batch, places) positions whose next token is the label's word.
        labels: (batch, places) classes of the texts.
        words: (batch, places, classes) tokens that stand for the classes at each place.
        rows: (batch, places) rows of the table that the texts are from.
    """

    tokens: Int[Tensor, "batch time"]
    at: Int[Tensor, "batch places"]
    labels: Int[Tensor, "batch places"]
    words: Int[Tensor, "batch places classes"]
    rows: Int[Tensor, "batch places"]

    @property
    def targets(self) -> Int[Tensor, "batch places"]:
        """Tokens of the label words, the next tokens after the positions `at`."""
        return self.words.gather(2, self.labels[..., None]).squeeze(2)

    @validated
    def alone(self, K: Natural) -> "TextPrompt":
        """Prompts with K demonstrations only: truncated after the cue of place K, which is then the query."""
        places = self.labels.shape[1]
        if places <= K:
            raise ValueError(f"K must be at most {places - 1}, got {K}")
        end = int(self.at[0, K]) + 1
        shown = slice(K + 1)
        return TextPrompt(
            self.tokens[:, :end], self.at[:, shown], self.labels[:, shown], self.words[:, shown], self.rows[:, shown]
        )


@validated
def encoded(
    texts: LabelledTexts,
    encode: Callable[[str], Sequence[int]],
    *,
    separator: str = "",
    limit: Count | None = None,
) -> tuple[tuple[int, ...], ...]:
    """Tokens of each row, its parts joined by the tokens of `separator`.

    Args:
        texts: the rows.
        encode: tokens of a text, without tokens for its start or end.
        separator: stands between a premise and a hypothesis.
        limit: rows from which on nothing is encoded, for a quick look; None takes all.
    """
    joint = tuple(encode(separator)) if separator else ()
    rows = []
    for parts in texts.texts[:limit]:
        pieces = [tuple(encode(part)) for part in parts]
        rows.append(tuple(itertools.chain(pieces[0], *(joint + piece for piece in pieces[1:]))))
    return tuple(rows)


@dataclass(frozen=True, eq=False)
class InContextText:
    """Task of text prompts drawn from a tokenised table; samples as tasks do, but has no inputs x and labels y.

    Attributes:
        table: tokens of each text; texts of other lengths than `shortest .. longest` are never drawn.
        labels: class of each text, from 0.
        words: the token of each class, distinct.
        n: demonstrations a prompt: 20 for SST-2, 10 for MNLI in the paper.
        shortest: tokens of the shortest text drawn, at least 1.
        longest: tokens of the longest.
        cue: tokens between a text and its word.
        end: tokens after a demonstration.
        balanced: each place draws its class with equal probabilities, by itself: of equal numbers in a prompt the last
            could be told by counting. Else as the rows of that length have it. Within a prompt no row comes twice.
        random_words: which word stands for which class is drawn for each prompt, all ways with one probability; else
            word c stands for class c.
        flip: probability in [0, 1] with which words change classes before a demonstration, to each other way alike; of
            two classes, they are swapped. It moves with the prompt, as a drift does.
    """

    table: tuple[tuple[int, ...], ...]
    labels: tuple[int, ...]
    words: tuple[int, ...]
    n: Natural
    shortest: Count
    longest: Count
    cue: tuple[int, ...]
    end: tuple[int, ...]
    balanced: bool = True
    random_words: bool = False
    flip: UnitInterval = 0.0

    def __post_init__(self) -> None:
        """Validate that the table has enough texts, and the words and cues."""
        validate_fields(self)
        if self.longest < self.shortest:
            raise ValueError(f"longest must be at least shortest = {self.shortest}, got {self.longest}")
        if len(self.words) < 2 or len(set(self.words)) != len(self.words):
            raise ValueError(f"words must be distinct tokens, at least two, got {self.words!r}")
        if not self.cue:
            raise ValueError(f"cue must hold a token at least, got {self.cue!r}")
        if len(self.labels) != len(self.table):
            raise ValueError(f"labels must be one a text, {len(self.table)}, got {len(self.labels)}")
        if not set(self.labels) <= set(range(len(self.words))):
            raise ValueError(f"labels must lie in [0, {len(self.words)}), one word a class, got {set(self.labels)}")
        needed = math.ceil((self.n + 1) / (self.longest - self.shortest + 1))
        for (length, label), pool in self._pools.items():
            if len(pool) < needed:
                raise ValueError(
                    f"table must have {needed} texts of {length} tokens and class {label} for prompts that never "
                    f"repeat one, got {len(pool)}"
                )

    @functools.cached_property
    def _pools(self) -> dict[tuple[int, int], list[int]]:
        """Eligible rows, by length and class."""
        pools: dict[tuple[int, int], list[int]] = {
            key: [] for key in itertools.product(range(self.shortest, self.longest + 1), range(len(self.words)))
        }
        for row, (text, label) in enumerate(zip(self.table, self.labels, strict=True)):
            if (len(text), label) in pools:
                pools[len(text), label].append(row)
        return pools

    @property
    def rows(self) -> tuple[int, ...]:
        """Number of eligible texts, by class."""
        return tuple(
            sum(len(pool) for (_, c), pool in self._pools.items() if c == label) for label in range(len(self.words))
        )

    @property
    def lengths(self) -> tuple[int, ...]:
        """Numbers of tokens of a prompt's texts, ascending, spread evenly over the places."""
        kinds = self.longest - self.shortest + 1
        return tuple(sorted(self.shortest + place % kinds for place in range(self.n + 1)))

    @property
    def time(self) -> int:
        """Number of tokens in a prompt."""
        return sum(self.lengths) + (self.n + 1) * len(self.cue) + self.n * (1 + len(self.end))

    @validated
    def sample(
        self,
        batch: Count,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> TextPrompt:
        """Draw `batch` prompts from `generator`, on `device` (default: the generator's); tokens have no `dtype`."""

        def draw(high: int, *size: int) -> Any:
            return torch.randint(high, size, generator=generator, device=generator.device).tolist()

        def shuffled(values: Sequence[int]) -> list[int]:
            order = torch.randperm(len(values), generator=generator, device=generator.device)
            return [values[i] for i in order.tolist()]

        places, classes = self.n + 1, len(self.words)
        lengths = shuffled(self.lengths)
        ways = list(itertools.permutations(range(classes)))
        turns = torch.rand(batch, places, generator=generator, device=generator.device) < self.flip
        texts, labels, words, rows = [], [], [], []
        for turn in turns.tolist():
            wanted = draw(classes, places)
            way = draw(len(ways), 1)[0] if self.random_words else 0
            mine: list[int] = []
            tokens: list[int] = []
            named: list[list[int]] = []
            for place, length in enumerate(lengths):
                if self.balanced:
                    pool = self._pools[length, wanted[place]]
                else:
                    pool = [row for c in range(classes) for row in self._pools[length, c]]
                row = pool[draw(len(pool), 1)[0]]
                while row in mine:
                    row = pool[draw(len(pool), 1)[0]]
                if turn[place] and place:
                    way = (way + 1 + draw(len(ways) - 1, 1)[0]) % len(ways)
                mine.append(row)
                named.append([self.words[word] for word in ways[way]])
                tokens += self.table[row] + self.cue
                if place < self.n:
                    tokens += (named[-1][self.labels[row]], *self.end)
            texts.append(tokens)
            rows.append(mine)
            labels.append([self.labels[row] for row in mine])
            words.append(named)
        widths = np.array(lengths) + len(self.cue) + 1 + len(self.end)
        at = np.cumsum(widths) - len(self.end) - 2
        target = device if device is not None else generator.device
        return TextPrompt(
            *(torch.tensor(np.array(array), dtype=torch.int64, device=target) for array in (texts, [at] * batch)),
            *(torch.tensor(array, dtype=torch.int64, device=target) for array in (labels, words, rows)),
        )
