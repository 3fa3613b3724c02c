"""Demonstrations drawn from a table of labelled features, such as sentences under a frozen encoder.

Rows of a table are drawn independently of each other, so that no order of a prompt's demonstrations is special, unless
the task says what moves: the sign of all labels turns now and then (`flip`), or topics last (`turn`).
"""

import base64
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Le
from jaxtyping import Float, Int
from torch import Tensor

from icl import _checks
from icl._bounds import Count, PositiveUnit, validate_fields, validated
from icl.tasks.core import Prompt

#: Features are kept in steps of one sixteenth, in eight bits: from -7.9375 to 7.9375.
_STEPS = 16


@validated
def packed(features: Float[np.ndarray, "rows d"]) -> str:
    """Encode features as text, one byte each: rounded to sixteenths, clipped at 127 of them, base64 [RFC 4648]."""
    return base64.b64encode(np.rint(features * _STEPS).clip(-127, 127).astype(np.int8).tobytes()).decode()


@validated
def unpacked(text: str, *, d: Count) -> Float[np.ndarray, "rows d"]:
    """Decode the text of :func:`packed` into rows of d features; ValueError if it is not such a text."""
    if not isinstance(text, str) or not text:  # type: ignore[redundant-expr]
        raise ValueError(f"text must be base64, got {text!r}")
    try:
        array = np.frombuffer(base64.b64decode(text, validate=True), dtype=np.int8)
    except ValueError as error:
        raise ValueError(f"text must be base64, got {text!r}") from error
    if len(array) % d:
        raise ValueError(f"text must hold rows of d = {d} numbers, got {len(array)} numbers")
    return array.reshape(-1, d).astype(np.float64) / _STEPS


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Table of features with labels, and its least-squares linear classifier, without intercept.

    Attributes:
        features: (rows, d), in any units; no column a sum of others.
        labels: (rows,), each 1 or -1.
        topics: (rows,) integers from 0, each up to the largest in use; None where rows have none.
    """

    features: Float[np.ndarray, "rows d"]
    labels: Float[np.ndarray, " rows"]
    topics: Int[np.ndarray, " rows"] | None = None

    def __post_init__(self) -> None:
        """Validate shapes, labels of +1 or -1, and linearly independent columns."""
        validate_fields(self)
        features, labels = self.features, self.labels
        if not (np.abs(labels) == 1).all():
            raise ValueError(f"labels must be 1 or -1, got {labels[np.abs(labels) != 1][0]}")
        if not len(features) or np.linalg.matrix_rank(features) < features.shape[1]:
            raise ValueError(f"features must have independent columns, got rows and columns {features.shape}")
        if self.topics is None:
            return
        _checks.detached("topics", self.topics)
        topics = np.asarray(self.topics)
        _checks.shape("topics", topics, (len(features),), "to match features")
        if topics.dtype.kind not in "iu" or not np.bincount(topics.clip(min=0)).all() or (topics < 0).any():
            raise ValueError(f"topics must be integers from 0, each in use, got {np.unique(topics)}")
        object.__setattr__(self, "topics", topics.astype(np.int64))

    @property
    def d(self) -> int:
        """Number of features."""
        return self.features.shape[1]

    @cached_property
    def second_moment(self) -> Float[np.ndarray, "d d"]:
        """Second moment Lambda, the mean of x x' over the rows."""
        return self.features.T @ self.features / len(self.features)

    @cached_property
    def product(self) -> Float[np.ndarray, " d"]:
        """Mean m of y x over the rows."""
        return self.labels @ self.features / len(self.features)

    @cached_property
    def fit(self) -> Float[np.ndarray, " d"]:
        """Least-squares fit of the labels, Lambda^-1 m."""
        return np.linalg.solve(self.second_moment, self.product)

    @cached_property
    def explained(self) -> float:
        """Explained variance rho of the fit, m' Lambda^-1 m, from 0 to 1."""
        return float(self.product @ self.fit)

    @validated
    def accuracy(self, w: Float[np.ndarray, " d"]) -> float:
        """Share of the rows whose label is the sign of w'x."""
        _checks.shape("w", w, (self.d,), "to match features")
        return float((self.features @ w * self.labels > 0).mean())


@dataclass(frozen=True, eq=False)
class Demonstrations:
    """Prompts of n rows of a table and a query, drawn with replacement; a prompt's labels may flip sign.

    With s_1 = 1, or either sign at random, s_i is -s_{i-1} with probability `flip` and s_{i-1} otherwise, and the label
    at position i is s_i times its row's. The weights of a prompt are s_i times the table's `fit`: what labels differ
    from <w_i, x_i> by is the part that is not linear. It samples as tasks do and is no :class:`~icl.tasks.core.Task`:
    its inputs are rows of a table and follow no :class:`~icl.tasks.core.InputLaw`.

    Attributes:
        rows: where demonstrations come from.
        n: demonstrations a prompt.
        queries: where queries come from, in the same features; None is `rows`.
        flip: probability that the sign turns from one position to the next, the query's included; at one
            half labels say nothing of each other.
        either_sign: whether a prompt begins with either sign, or with 1.
        turn: probability that a position's topic is drawn anew, from that of any row; otherwise it is the last one's.
            Rows of the topic are equally likely. At 1 rows are independent and need no topics.
    """

    rows: LabelledRows
    n: Count
    queries: LabelledRows | None = None
    flip: Annotated[float, Ge(0), Le(0.5)] = 0.0
    either_sign: bool = True
    turn: PositiveUnit = 1.0

    def __post_init__(self) -> None:
        """Validate that the tables match, and the probabilities."""
        validate_fields(self)
        if self.queries is None:
            object.__setattr__(self, "queries", self.rows)
        assert self.queries is not None
        if self.queries.d != self.rows.d:
            raise ValueError(f"queries must have the features of rows, {self.rows.d}, got {self.queries.d}")
        if self.turn < 1:
            for name, table in (("rows", self.rows), ("queries", self.queries)):
                if table.topics is None:
                    raise ValueError(f"{name} must have topics where these last, turn = {self.turn!r}")
            assert self.rows.topics is not None
            assert self.queries.topics is not None
            if self.rows.topics.max() != self.queries.topics.max():
                raise ValueError("queries must have the topics of rows")

    @property
    def d(self) -> int:
        """Dimension of the inputs."""
        return self.rows.d

    def sign_kernel(self) -> Float[np.ndarray, "time time"]:
        """Mean of s_i s_j: (1 - 2 flip)^|i-j|, the sign flipping independently at every step."""
        steps = np.abs(np.subtract.outer(np.arange(self.n + 1), np.arange(self.n + 1)))
        return np.asarray((1 - 2 * self.flip) ** steps)

    @validated
    def sample(
        self,
        batch: Count,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> Prompt:
        """Draw `batch` independent prompts from `generator`, in `dtype`, on `device` (default: the generator's)."""
        assert self.queries is not None

        def uniform() -> Tensor:
            # In float64 on the generator's own device, so that the rows drawn do not depend on dtype or device.
            shape = (batch, self.n + 1)
            return torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device).cpu()

        sign = torch.where(uniform() < self.flip, -1.0, 1.0)
        sign[:, 0] = torch.where(uniform()[:, 0] < 0.5, -1.0, 1.0) if self.either_sign else 1.0
        sign = sign.cumprod(1)
        place = uniform()
        if self.turn < 1:
            topic = self._topics(uniform(), uniform())
            shown, queries = (_row_at_quantile(table, place, topic) for table in (self.rows, self.queries))
        else:
            shown, queries = ((place * len(table.labels)).long() for table in (self.rows, self.queries))
        parts = []
        for name in ("features", "labels"):
            part = torch.as_tensor(getattr(self.rows, name))[shown]
            part[:, -1] = torch.as_tensor(getattr(self.queries, name))[queries[:, -1]]
            parts.append(part)
        w = sign[..., None] * torch.as_tensor(self.rows.fit)
        place_of = generator.device if device is None else device
        x, y, w = (part.to(dtype=dtype, device=place_of) for part in (parts[0], parts[1] * sign, w))
        return Prompt(x, y, w)

    def _topics(self, first: Tensor, second: Tensor) -> Tensor:
        """Topic of each position: that of its most recent redraw."""
        anew = first < self.turn
        anew[:, 0] = True
        drawn = torch.as_tensor(self.rows.topics)[(second * len(self.rows.labels)).long()]
        since = torch.where(anew, torch.arange(anew.shape[1]), 0).cummax(1).values
        return drawn.gather(1, since)


def _row_at_quantile(table: LabelledRows, place: Tensor, topic: Tensor) -> Tensor:
    """Row of each topic at the quantile `place` of its rows."""
    assert table.topics is not None
    sizes = torch.as_tensor(np.bincount(table.topics))
    order = torch.as_tensor(np.argsort(table.topics, kind="stable"))
    begin = sizes.cumsum(0) - sizes
    return order[begin[topic] + (place * sizes[topic]).long()]


@validated
def shuffled(prompt: Prompt, *, generator: torch.Generator) -> Prompt:
    """Prompts with their demonstrations in uniformly random order; queries stay last."""
    _checks.check_generator(generator, prompt.x.dtype)
    keys = torch.rand((prompt.batch, prompt.n), generator=generator, dtype=torch.float64, device=generator.device)
    order = torch.cat([keys.argsort(1), torch.full((prompt.batch, 1), prompt.n, device=keys.device)], 1).to(
        prompt.x.device
    )
    wide = order[..., None].expand_as(prompt.x)
    return Prompt(prompt.x.gather(1, wide), prompt.y.gather(1, order), prompt.w.gather(1, wide))
