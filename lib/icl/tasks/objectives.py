"""In-context problems with general losses: least squares, logistic, Huber, quartic and Cauchy regression.

A prompt of n examples is the problem of minimising

    f(w) = sum_i phi(y_i, <w, x_i>) / n + ridge w'w / 2

with phi(y, s) the loss of the prediction s where the label is y. Its gradient is sum_i psi(y_i, <w, x_i>) x_i / n +
ridge w with psi = d phi / d s, one number an example: the slope. Squares have psi = s - y, and are the problems of
[Dutta & Sra 2025, (2.11)]; the others are those of their sec. 6. Inputs are white, x ~ N(0, I), and the weights behind
the labels w* ~ N(0, I).

An :class:`Objective` is the law of such prompts and the loss; it is no :class:`~icl.tasks.core.Task`, whose labels are
linear in the weights. What minimises it is in :mod:`icl.convex`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from icl import _checks
from icl._bounds import Count, NonNegative, Positive, UnitInterval, validate_fields, validated
from icl.tasks._draws import normal
from icl.tasks.core import Prompt


@dataclass(frozen=True, eq=False)
class Objective(ABC):
    """Base class of objectives: sizes, a loss with its two derivatives, and its mean over the examples.

    Attributes:
        d: dimension of the inputs, at least 1.
        n: labelled examples a prompt, at least 1.
        ridge: weight of w'w / 2, >= 0, in units of the loss times x^2 / y^2.
    """

    d: Count
    n: Count
    ridge: NonNegative = field(default=0.05, kw_only=True)
    #: Whether the loss is convex in the prediction.
    convex: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate the sizes."""
        validate_fields(self)

    @abstractmethod
    def _loss(self, y: Tensor, s: Tensor) -> Tensor: ...

    @abstractmethod
    def _slope(self, y: Tensor, s: Tensor) -> Tensor: ...

    @abstractmethod
    def _bend(self, y: Tensor, s: Tensor) -> Tensor: ...

    @abstractmethod
    def _labels(self, s: Tensor, generator: torch.Generator) -> Tensor:
        """Labels of examples at predictions s of the true weights."""

    @validated
    def loss(self, y: Float[Tensor, "..."], s: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Loss phi(y, s) of the prediction s at the label y, entry by entry."""
        return self._loss(*_check_pair(y, s))

    @validated
    def slope(self, y: Float[Tensor, "..."], s: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """psi(y, s), the derivative of the loss in the prediction; times x, a token's term of the gradient."""
        return self._slope(*_check_pair(y, s))

    @validated
    def bend(self, y: Float[Tensor, "..."], s: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Second derivative of the loss in the prediction."""
        return self._bend(*_check_pair(y, s))

    @validated
    def value(self, prompt: Prompt, w: Float[Tensor, "batch *states d"]) -> Float[Tensor, "batch *states"]:
        """Objective f(w) of each prompt, over its n examples without the query.

        Args:
            prompt: of this d.
            w: weights of each prompt, one row or several.

        Raises:
            ValueError: if w does not match the prompts.
        """
        X, y = self.examples(prompt)
        s = self._predictions(X, w)
        return self._loss(_align_labels(y, s), s).mean(-1) + self.ridge / 2 * w.square().sum(-1)

    @validated
    def gradient(self, prompt: Prompt, w: Float[Tensor, "batch *states d"]) -> Float[Tensor, "batch *states d"]:
        """Gradient of f at w: sum_i psi(y_i, <w, x_i>) x_i / n + ridge w.

        Args:
            prompt: of this d.
            w: weights of each prompt, one row or several.

        Raises:
            ValueError: if w does not match the prompts.
        """
        X, y = self.examples(prompt)
        s = self._predictions(X, w)
        return torch.einsum("b...n,bnd->b...d", self._slope(_align_labels(y, s), s), X) / X.shape[1] + self.ridge * w

    @validated
    def examples(self, prompt: Prompt) -> tuple[Float[Tensor, "batch n d"], Float[Tensor, "batch n"]]:
        """Inputs and labels of the examples, without the query's; ValueError for prompts of another d."""
        if prompt.d != self.d:
            raise ValueError(f"prompt must have d = {self.d}, got {prompt.d}")
        return prompt.x[:, :-1], prompt.y[:, :-1]

    def _predictions(self, X: Tensor, w: Tensor) -> Tensor:
        """<w, x_i>, (batch, *states, n)."""
        if w.dim() < 2 or len(w) != len(X) or w.shape[-1] != self.d:
            raise ValueError(f"w must have shape ({len(X)}, ..., {self.d}) to match prompt, got {tuple(w.shape)}")
        _checks.dtype("w", w, X.dtype, "to match prompt")
        return torch.einsum("bnd,b...d->b...n", X, w)

    @validated
    def sample(self, batch: Count, *, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Prompt:
        """Draw `batch` independent prompts on the generator's device; `w` are the weights behind the labels."""
        w = normal((batch, 1, self.d), generator, dtype, None)
        x = normal((batch, self.n + 1, self.d), generator, dtype, None)
        return Prompt(x=x, y=self._labels((w * x).sum(-1), generator), w=w.expand_as(x))


def _check_pair(y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Check that labels and predictions are of float32 or float64, and broadcast."""
    _checks.precision("dtype", y.dtype)
    try:
        torch.broadcast_shapes(y.shape, s.shape)
    except RuntimeError as error:
        raise ValueError(f"s must broadcast with y, {tuple(y.shape)}, got {tuple(s.shape)}") from error
    return y, s


def _align_labels(y: Tensor, s: Tensor) -> Tensor:
    """Labels (batch, n), reshaped to broadcast against predictions (batch, *states, n)."""
    return y.view(len(y), *(1,) * (s.dim() - 2), y.shape[-1])


def _uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(like.shape, generator=generator, dtype=like.dtype, device=generator.device)


@dataclass(frozen=True, eq=False)
class Square(Objective):
    """Least squares, phi = (s - y)^2 / 2 and psi = s - y, with labels <w*, x> [Dutta & Sra 2025, (2.11)].

    Attributes are those of every :class:`Objective`.
    """

    def _loss(self, y: Tensor, s: Tensor) -> Tensor:
        return (s - y).square() / 2

    def _slope(self, y: Tensor, s: Tensor) -> Tensor:
        return s - y

    def _bend(self, y: Tensor, s: Tensor) -> Tensor:
        return torch.ones_like(s - y)

    def _labels(self, s: Tensor, generator: torch.Generator) -> Tensor:
        return s


@dataclass(frozen=True, eq=False)
class Logistic(Objective):
    """Logistic regression: labels +1 or -1 with P(+1) = 1 / (1 + exp(-<w*, x>)).

    phi = ln(1 + exp(-y s)) and psi = -y / (1 + exp(y s)), which lies between -1 and 1.

    Attributes are those of every :class:`Objective`.
    """

    def _loss(self, y: Tensor, s: Tensor) -> Tensor:
        return torch.nn.functional.softplus(-y * s)

    def _slope(self, y: Tensor, s: Tensor) -> Tensor:
        return -y * torch.sigmoid(-y * s)

    def _bend(self, y: Tensor, s: Tensor) -> Tensor:
        return y.square() * torch.sigmoid(y * s) * torch.sigmoid(-y * s)

    def _labels(self, s: Tensor, generator: torch.Generator) -> Tensor:
        return torch.where(_uniform(s, generator) < torch.sigmoid(s), 1.0, -1.0).to(s.dtype)


@dataclass(frozen=True, eq=False)
class _Contaminated(Objective):
    """Labels <w*, x>, a share of them with outliers N(0, size^2) added.

    Attributes:
        share: probability that a label is an outlier, in [0, 1].
        size: standard deviation of what is added to it, in units of y.
    """

    share: UnitInterval = field(default=0.2, kw_only=True)
    size: NonNegative = field(default=10.0, kw_only=True)

    def _labels(self, s: Tensor, generator: torch.Generator) -> Tensor:
        outlier = _uniform(s, generator) < self.share
        return s + outlier * self.size * normal(tuple(s.shape), generator, s.dtype, None)


@dataclass(frozen=True, eq=False)
class Huber(_Contaminated):
    """Huber's loss of r = s - y on labels with outliers [Huber 1964]: r^2 / 2 up to delta, linear beyond.

    psi = r, cut off at -delta and delta.

    Attributes:
        delta: where the straight line begins, in units of y.
        share: probability that a label is an outlier.
        size: standard deviation of what is added to it, in units of y.
    """

    delta: Positive = field(default=1.0, kw_only=True)

    def _loss(self, y: Tensor, s: Tensor) -> Tensor:
        r = (s - y).abs()
        inside = r.clamp(max=self.delta)
        return inside * (r - inside / 2)

    def _slope(self, y: Tensor, s: Tensor) -> Tensor:
        return (s - y).clamp(-self.delta, self.delta)

    def _bend(self, y: Tensor, s: Tensor) -> Tensor:
        return ((s - y).abs() <= self.delta).to(s.dtype)


@dataclass(frozen=True, eq=False)
class Cauchy(_Contaminated):
    """Cauchy's loss of r = s - y on labels with outliers, delta^2 / 2 ln(1 + (r / delta)^2): not convex.

    psi = r / (1 + (r / delta)^2), which falls off again for large r: far outliers count for nothing.

    Attributes:
        delta: where psi has its peak, in units of y.
        share: probability that a label is an outlier.
        size: standard deviation of what is added to it, in units of y.
    """

    delta: Positive = field(default=1.0, kw_only=True)
    #: It has no curvature of one sign.
    convex: ClassVar[bool] = False

    def _loss(self, y: Tensor, s: Tensor) -> Tensor:
        return self.delta**2 / 2 * ((s - y) / self.delta).square().log1p()

    def _slope(self, y: Tensor, s: Tensor) -> Tensor:
        return (s - y) / (1 + ((s - y) / self.delta).square())

    def _bend(self, y: Tensor, s: Tensor) -> Tensor:
        square = ((s - y) / self.delta).square()
        return (1 - square) / (1 + square).square()


@dataclass(frozen=True, eq=False)
class Quartic(Objective):
    """Quartic loss of the residual, phi = (s - y)^4 / 4 and psi = (s - y)^3, with labels <w*, x>.

    Attributes are those of every :class:`Objective`.
    """

    def _loss(self, y: Tensor, s: Tensor) -> Tensor:
        return (s - y) ** 4 / 4

    def _slope(self, y: Tensor, s: Tensor) -> Tensor:
        return (s - y) ** 3

    def _bend(self, y: Tensor, s: Tensor) -> Tensor:
        return 3 * (s - y).square()

    def _labels(self, s: Tensor, generator: torch.Generator) -> Tensor:
        return s
