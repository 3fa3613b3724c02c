"""Numbers that a loop asks for at every step, and that reach another device once."""

from typing import Any

import torch
from torch import Tensor

from icl._checks import is_readable


class DeviceCache:
    """A tensor, with its copies in the dtypes and on the devices that were asked for.

    `to(like)` is what the tensor's own is, without another copy at every step of a filter or a solver: each would keep
    a GPU waiting. Numbers that were changed in place are copied anew, and of those with a gradient nothing is kept, nor
    of a copy that lives no longer than where it was made: inference mode, `torch.func`, a compiled graph.
    """

    def __init__(self, numbers: Any) -> None:
        """Keep numbers of Python, of numpy or of torch."""
        self.numbers = torch.as_tensor(numbers)
        self._copies: dict[tuple[torch.dtype, torch.device], tuple[int, Tensor]] = {}

    @property
    def shape(self) -> torch.Size:
        """Shape of the numbers."""
        return self.numbers.shape

    def to(self, like: Tensor) -> Tensor:
        """The numbers in the dtype and on the device of another tensor."""
        numbers = self.numbers
        if torch.compiler.is_compiling() or numbers.requires_grad or numbers.is_inference():
            return numbers.to(like)
        key = like.dtype, like.device
        version, copy = self._copies.get(key, (-1, numbers))
        if version != numbers._version:
            copy = numbers.to(like)
            if is_readable(copy, waits=True) and not copy.is_inference():
                self._copies[key] = numbers._version, copy
        return copy
