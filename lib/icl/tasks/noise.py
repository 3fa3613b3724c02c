"""Label noise for any task (not in the papers, whose labels have none)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl._bounds import Count, NonNegative, validate_fields, validated
from icl.tasks._draws import normal
from icl.tasks.core import InputLaw, Prompt, Task


@validated
def clean(prompt: Prompt) -> Float[Tensor, "batch time"]:
    """Noise-free labels <w_i, x_i>; bit for bit the labels themselves if the task has no noise."""
    return (prompt.w * prompt.x).sum(-1)


@validated
def noise_level(task: Task) -> float:
    """Standard deviation of a task's label noise, in units of y; 0 without noise.

    Of prompts of several tasks (:class:`~icl.tasks.mixtures.Mixture`) that of all labels together.
    """
    # Wrappers keep the wrapped task as `task`, and have its noise.
    while not hasattr(task, "sigma_y") and hasattr(task, "task"):
        task = task.task
    return float(getattr(task, "sigma_y", 0.0))


@dataclass(frozen=True, eq=False)
class Noisy:
    """Task with Gaussian label noise: y_i = <w_i, x_i> + N(0, sigma_y^2), independent.

    Inputs and weights are, to the bit, those that the task draws from the same generator, whatever sigma_y: noise is
    drawn after them, and none for sigma_y = 0. :meth:`weight_kernel` is that of the weights and does not know the
    noise: theory that reads nothing but the kernel is for clean labels.

    Attributes:
        task: where inputs and weights come from.
        sigma_y: standard deviation of the noise, in units of y.

    >>> from icl.profile import make_generator
    >>> from icl.tasks import Noisy, StationaryRegression, clean
    >>> prompt = Noisy(StationaryRegression(d=2, n=99), sigma_y=0.5).sample(100, generator=make_generator("example"))
    >>> round(float((prompt.y - clean(prompt)).std()), 1)
    0.5
    """

    task: Task
    sigma_y: NonNegative

    def __post_init__(self) -> None:
        """Validate the task, which must be noise-free, and the noise level."""
        validate_fields(self)
        given: Any = self.task
        if isinstance(given, type) or not isinstance(given, Task) or isinstance(given, Noisy):
            raise ValueError(f"task must be a Task without noise, got {given!r}")

    @property
    def d(self) -> int:
        """Dimension of the inputs."""
        return self.task.d

    @property
    def n(self) -> int:
        """Number of labelled examples."""
        return self.task.n

    @property
    def Lambda(self) -> Any:
        """Covariance of the inputs, (d, d)."""
        return self.task.Lambda

    @property
    def inputs(self) -> InputLaw:
        """Distribution of the white inputs, before colouring by Lambda."""
        return self.task.inputs

    def weight_kernel(self) -> Float[np.ndarray, "time time"]:
        """Covariance of w_i and w_j in each coordinate, without the noise."""
        return self.task.weight_kernel()

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
        prompt = self.task.sample(batch, generator=generator, dtype=dtype, device=device)
        if not self.sigma_y:
            return prompt
        noise = normal(tuple(prompt.y.shape), generator, dtype, device)
        return Prompt(prompt.x, torch.add(prompt.y, noise, alpha=self.sigma_y), prompt.w)
