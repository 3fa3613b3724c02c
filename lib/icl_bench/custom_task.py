"""User-defined tasks: a class, or a function, of (d, n) with `sample`; every draw is checked::

    class Steps:
        def __init__(self, d, n):
            self.d, self.n = d, n

        def sample(self, batch, *, generator, dtype, device):
            ...                       # n + 1 positions a prompt, the last of them the query
            return x, y, clean        # or x, y where labels carry no noise; or an icl.tasks.core.Prompt

        def floor(self, prompt):      # optional, the least expected error: (batch, n + 1)
            ...

Labels need not be linear in x: a prompt stores the clean label as weights that reproduce it, w = clean x / x'x.
"""

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl import _checks
from icl._bounds import Count, validate_fields, validated
from icl.tasks import Prompt


@dataclass(frozen=True, eq=False)
class CustomTask:
    """A user-defined task at given sizes; draws are validated and converted to :class:`~icl.tasks.core.Prompt`.

    Attributes:
        name: its specification, for error messages.
        task: an object with d, n, sample and optionally floor.
        d: requested dimension of the inputs.
        n: requested number of labelled examples a prompt.
    """

    name: str
    task: Any
    d: Count
    n: Count

    def __post_init__(self) -> None:
        """Check sizes, the method `sample` and a first draw; errors name the task."""
        validate_fields(self)
        _checks.text("name", self.name)
        for size in ("d", "n"):
            if getattr(self.task, size, None) != getattr(self, size):
                raise ValueError(
                    f"task must have {size} = {getattr(self, size)}, as it was asked for, got "
                    f"{getattr(self.task, size, 'none')!r} of {self.name}: keep (d, n) in self.d and self.n"
                )
        sample = getattr(self.task, "sample", None)
        if isinstance(self.task, type) or not callable(sample):
            raise ValueError(f"task must have a method sample, got {self.name} without one")
        try:
            inspect.signature(sample).bind(2, generator=None, dtype=None, device=None)
        except TypeError as error:
            raise ValueError(
                f"task must have sample(batch, *, generator, dtype, device), got {self.name} with "
                f"sample{inspect.signature(sample)}: {error}"
            ) from error
        once, again = (self.sample(2, generator=torch.Generator().manual_seed(1)) for _ in range(2))
        if not all(torch.equal(getattr(once, part), getattr(again, part)) for part in "xyw"):
            raise ValueError(
                f"task must draw from the generator alone, so that equal ones give equal prompts, got {self.name} with "
                f"two that differ: pass generator=generator to each torch.randn and torch.rand"
            )
        if self.has_floor:
            self.floor(once)

    @property
    def has_floor(self) -> bool:
        """True if its least expected error is known."""
        return callable(getattr(self.task, "floor", None))

    @validated
    def sample(
        self,
        batch: Count,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> Prompt:
        """Draw `batch` independent prompts from `generator`, in `dtype`, on `device` (default: the generator's).

        Raises:
            ValueError: if `sample` gives anything else than finite prompts of these sizes, or raises an error.
        """
        try:
            drawn = self.task.sample(batch, generator=generator, dtype=dtype, device=device)
        except Exception as error:
            raise ValueError(f"{self.name}.sample must draw prompts, got {type(error).__name__}: {error}") from error
        if isinstance(drawn, Prompt):
            x, y, third = self._parts(batch, {"x": drawn.x, "y": drawn.y, "w": drawn.w}, dtype, device)
            # Keep the prompt itself where it is valid: a subclass may hold more than these tensors.
            return drawn if x is drawn.x and y is drawn.y and third is drawn.w else Prompt(x, y, third)
        if not isinstance(drawn, tuple | list) or len(drawn) not in (2, 3):
            raise ValueError(
                f"{self.name}.sample must give an icl.tasks.core.Prompt, (x, y) or (x, y, clean), "
                f"got {_describe(drawn)}"
            )
        x, y, wanted = self._parts(
            batch, dict(zip(("x", "y", "clean"), [*drawn, drawn[1]], strict=False)), dtype, device
        )
        square = x.square().sum(-1)
        dark = (square == 0) & (wanted != 0)
        if bool(dark.any()):
            raise ValueError(f"{self.name}.sample must give inputs other than 0, got x = 0 with a label that is not")
        w = x * (wanted / torch.where(square == 0, 1.0, square))[..., None]
        return Prompt(x, y, w)

    def _parts(
        self, batch: int, given: dict[str, Any], dtype: torch.dtype, device: torch.device | str | None
    ) -> list[Tensor]:
        parts = []
        for name, part in given.items():
            if not isinstance(part, Tensor):
                raise ValueError(f"{self.name}.sample must give {name} as a torch tensor, got {_describe(part)}")
            shape = (batch, self.n + 1, *((self.d,) if name in "xw" else ()))
            if tuple(part.shape) != shape:
                words = "(batch, n + 1, d)" if name in "xw" else "(batch, n + 1)"
                hint = ": the query is a position too" if tuple(part.shape[:2]) == (batch, self.n) else ""
                raise ValueError(
                    f"{self.name}.sample must give {name} of shape {words} = {shape}, got {tuple(part.shape)}{hint}"
                )
            if not part.is_floating_point() or not bool(torch.isfinite(part).all()):
                worst = part if not part.is_floating_point() else part[~torch.isfinite(part)][0].item()
                raise ValueError(
                    f"{self.name}.sample must give {name} in finite real numbers, got "
                    f"{worst if isinstance(worst, float) else part.dtype}"
                )
            parts.append(part.detach().to(dtype=dtype, device=part.device if device is None else device))
        return parts

    @validated
    def floor(self, prompt: Prompt) -> Float[np.ndarray, "batch time"]:
        """Least expected squared error against the clean label, by the task's own `floor`, at every position.

        Args:
            prompt: one that it drew.

        Raises:
            ValueError: if it has no `floor`, or if that returns anything but numbers >= 0, one a prompt and position.
        """
        _checks.precision("dtype", prompt.x.dtype)
        if not self.has_floor:
            raise ValueError(f"task must have a method floor, got {self.name} without one")
        try:
            floor = self.task.floor(prompt)
        except Exception as error:
            raise ValueError(f"{self.name}.floor must give errors, got {type(error).__name__}: {error}") from error
        errors = floor.detach().numpy(force=True) if isinstance(floor, Tensor) else np.asarray(floor)
        wanted = tuple(prompt.y.shape)
        if errors.dtype.kind not in "fiu" or errors.shape != wanted:
            raise ValueError(
                f"{self.name}.floor must give real numbers of shape (batch, n + 1) = {wanted}, got {errors.dtype} of "
                f"shape {errors.shape}"
            )
        errors = errors.astype(np.float64)
        wrong = ~(np.isfinite(errors) & (errors >= 0))
        if wrong.any():
            raise ValueError(f"{self.name}.floor must give finite errors >= 0, got {errors[wrong][0]}")
        return errors


def _describe(given: Any) -> str:
    if isinstance(given, tuple | list):
        return f"{len(given)} values" if given else "nothing in it"
    return f"{type(given).__module__}.{type(given).__qualname__}".removeprefix("builtins.")
