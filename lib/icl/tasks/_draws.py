"""White draws of variance 1, made where the generator is, and the recurrence that makes a drift of them."""

from typing import Any

import torch
from torch import Tensor


def normal(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype, device: Any) -> Tensor:
    drawn = torch.randn(shape, generator=generator, dtype=dtype, device=generator.device)
    return drawn if device is None else drawn.to(device)


def uniform(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype, device: Any) -> Tensor:
    drawn = torch.rand(shape, generator=generator, dtype=dtype, device=generator.device)
    drawn = (2 * drawn - 1) * 3**0.5
    return drawn if device is None else drawn.to(device)


def signs(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype, device: Any) -> Tensor:
    # Not sign(), which is 0 at 0: there torch draws a float32 once in 2^24.
    return 1 - 2 * (uniform(shape, generator, dtype, device) < 0).to(dtype)


def laplace(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype, device: Any) -> Tensor:
    # The difference of two exponentials, each of variance 1/2; log1p(-u) keeps the tail, and u < 1 keeps it finite.
    drawn = torch.rand((2, *shape), generator=generator, dtype=dtype, device=generator.device)
    drawn = torch.log1p(-drawn).diff(dim=0)[0] / 2**0.5
    return drawn if device is None else drawn.to(device)


def ar1(w: Tensor, gamma: float) -> Tensor:
    """AR(1) recurrence w_i = gamma w_{i-1} + e_i, in place, time first; returns w_1 .. w_{n+1}, prompts first."""
    # Time first and in place: the recurrence then costs far less than drawing its noise.
    for i in range(1, len(w)):
        w[i].add_(w[i - 1], alpha=gamma)
    return w[1:].transpose(0, 1).contiguous()
