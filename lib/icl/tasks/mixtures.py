"""Mixtures of tasks: several tasks in equal parts, or drift and noise drawn for every prompt.

:class:`Mixture` is a task whose kernel, covariance and variance of noise are means, which is all that a predictor
linear in the labels sees of it; what is more than second moments is not Gaussian. :class:`ManyDrifts` samples as tasks
do, and that is all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from icl._bounds import Count, validate_fields, validated
from icl.tasks.core import InputLaw, Prompt, Task


@dataclass(frozen=True, eq=False)
class Mixture:
    """Prompts of several tasks in equal parts, in one batch, task after task.

    Attributes:
        tasks: at least one, all of the same d and n.
    """

    tasks: Sequence[Task]

    def __post_init__(self) -> None:
        """Validate that all are tasks of the same sizes."""
        validate_fields(self)
        if not self.tasks or any(isinstance(task, type) or not isinstance(task, Task) for task in self.tasks):
            raise ValueError(f"tasks must be at least one icl.tasks.core.Task, got {self.tasks!r}")
        sizes = {(task.d, task.n) for task in self.tasks}
        if len(sizes) > 1:
            raise ValueError(f"tasks must have one d and one n, got {sorted(sizes)}")
        laws = {task.inputs.name for task in self.tasks}
        if len(laws) > 1:
            raise ValueError(f"tasks must have one law of white inputs, got {sorted(laws)}")

    @property
    def d(self) -> int:
        """Dimension of the inputs."""
        return self.tasks[0].d

    @property
    def n(self) -> int:
        """Number of labelled examples."""
        return self.tasks[0].n

    @property
    def Lambda(self) -> Float[np.ndarray, "d d"]:
        """Covariance of the inputs over prompts of all tasks, the mean of theirs."""
        return np.mean([task.Lambda for task in self.tasks], axis=0)

    @property
    def inputs(self) -> InputLaw:
        """Distribution of the white inputs, before every task's own colouring."""
        return self.tasks[0].inputs

    @property
    def sigma_y(self) -> float:
        """Root mean square over tasks of the label noise's standard deviation, in units of y."""
        return float(np.sqrt(np.mean([getattr(task, "sigma_y", 0.0) ** 2 for task in self.tasks])))

    def weight_kernel(self) -> Float[np.ndarray, "time time"]:
        """Covariance of w_i and w_j in each coordinate over prompts of all tasks: the mean of their kernels."""
        return np.mean([task.weight_kernel() for task in self.tasks], axis=0)

    @validated
    def sample(
        self,
        batch: Count,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> Prompt:
        """Draw `batch` prompts, a multiple of the number of tasks, from `generator`, in `dtype`, on `device`."""
        share, rest = divmod(batch, len(self.tasks))
        if rest:
            raise ValueError(f"batch must be a multiple of the {len(self.tasks)} tasks, got {batch}")
        each = [task.sample(share, generator=generator, dtype=dtype, device=device) for task in self.tasks]
        return Prompt(*(torch.cat([getattr(prompt, part) for prompt in each]) for part in "xyw"))


@dataclass(frozen=True, eq=False)
class ManyDrifts:
    """AR(1) drift with rate and noise drawn for every prompt; labels have variance 1.

    w_i = gamma w_{i-1} + N(0, (1 - gamma^2) k I) from its steady spread k = (1 - v) / d, y_i = <w_i, x_i> + N(0, v),
    with 1 - gamma between 0.1 and 0.001 and v between 0.8 and 0.003, both uniform in their logarithms. Inputs are
    N(0, I) but for the first, which is 1, as that of a series is (:func:`~icl.tasks.series.prepare`).

    Attributes:
        d: dimension of the inputs.
        n: labelled examples a prompt.
    """

    d: Count
    n: Count

    def __post_init__(self) -> None:
        """Validate the sizes."""
        validate_fields(self)

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

        def drawn(draw: Any, *shape: int) -> torch.Tensor:
            values: torch.Tensor = draw(shape, generator=generator, dtype=dtype, device=generator.device)
            return values if device is None else values.to(device)

        gamma = 1 - 10 ** (-1 - 2 * drawn(torch.rand, batch, 1))
        noise = 10 ** (-0.1 - 2.4 * drawn(torch.rand, batch, 1))
        variance = (1 - noise) / self.d
        w = [variance.sqrt() * drawn(torch.randn, batch, self.d)]
        push = (variance * (1 - gamma**2)).sqrt()
        for _ in range(self.n):
            w.append(gamma * w[-1] + push * drawn(torch.randn, batch, self.d))
        x, weights = drawn(torch.randn, batch, self.n + 1, self.d), torch.stack(w, 1)
        x[..., 0] = 1
        y = (weights * x).sum(-1) + noise.sqrt() * drawn(torch.randn, batch, self.n + 1)
        return Prompt(x, y, weights)
