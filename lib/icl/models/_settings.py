"""Settings of layers as trainable parameters, checked where a layer is made."""

from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from icl import _checks

_Gate = TypeVar("_Gate", bound=nn.Module)


def log_parameter(name: str, value: Any, dtype: torch.dtype, shape: tuple[int, ...] = ()) -> nn.Parameter:
    """Logarithm of a positive setting: one number, or one a coordinate."""
    return nn.Parameter(positive_setting(name, value, dtype, shape).log())


def log_odds_parameter(
    name: str, value: Any, dtype: torch.dtype, shape: tuple[int, ...] = (), *, most: float = 1.0
) -> nn.Parameter:
    """Log-odds of a setting in (0, most): one number, or one a coordinate."""
    setting = positive_setting(name, value, dtype, shape)
    if not bool((setting < most).all()):
        raise ValueError(f"{name} must lie in (0, {most:g}), got {value!r}")
    return nn.Parameter(torch.logit(setting / most))


def positive_setting(name: str, value: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """A positive setting as a tensor, of no axes or of a shape."""
    _checks.precision("dtype", dtype)
    array = np.asarray(_checks.real(name, value, above=0), dtype=np.float64)
    if array.shape not in ((), shape):
        wanted = f"one number{f' or have shape {shape}' if shape else ''}"
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
    return torch.as_tensor(array, dtype=dtype)


def gate_of_size(name: str, gate: _Gate, d: int) -> _Gate:
    """Return a gate if it takes inputs of dimension d; ValueError otherwise."""
    if gate.d not in (None, d):
        raise ValueError(f"{name} must be for inputs of dimension {d}, got one for {gate.d}")
    return gate


def nonzero_power(x: Tensor) -> Tensor:
    """x'x, and 1 where that is 0."""
    power = x.square().sum(-1)
    return torch.where(power > 0, power, 1.0)
