"""Cost of a layer: floating-point operations and state size per token, counted while it runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from icl._bounds import validated
from icl.models.fast_weights import FastWeights


@dataclass(frozen=True)
class Cost:
    """Cost of a layer.

    Attributes:
        parameters: number of trainable parameters.
        state: numbers in the state, carried from one example to the next.
        flops: floating-point operations a token: one `read` and one `step`.
    """

    parameters: int
    state: int
    flops: int


@validated
def cost(layer: FastWeights[Any]) -> Cost:
    """Count a layer's parameters, state and operations, by running one read and one step of it.

    A token's operations are the difference between a batch of three and one of two, so that operations done once for
    all prompts (a decay from its log-odds) do not count. Every element of a result costs one operation, an elementary
    function too, except for four kinds of operations:

        a sum of n numbers           n - 1
        addcmul, a + b c             2
        a product of matrices        2 n - 1 for each entry of the result, n terms each
        a linear system of size n    n (n-1) (4n+1) / 6 + 2 n^2 - n, elimination and two triangular solves

    Moving numbers, and comparing them, is free.

    Raises:
        NotImplementedError: if the layer uses an operation that this count has no rule for, by its name.

    >>> from icl.models.fast_weights import GLA
    >>> from icl.models.flops import cost
    >>> cost(GLA(10, lam=0.9, mu=0.1))
    Cost(parameters=2, state=10, flops=50)
    """
    two, three = _count(layer, 2), _count(layer, 3)
    trained = sum(parameter.numel() for parameter in layer.parameters() if parameter.requires_grad)
    return Cost(trained, three[0] - two[0], three[1] - two[1])


@torch.no_grad()
def _count(layer: FastWeights[Any], batch: int) -> tuple[int, int]:
    """State size of a batch of prompts, and operations of one token each."""
    state = layer.start(batch)
    state_size = sum(part.numel() for part in vars(state).values())
    x = torch.ones_like(next(layer.parameters())).new_ones(batch, layer.d)
    with _Counting() as counting:
        layer._read(state, x)
        layer._write(state, x, x[:, 0])
    return state_size, counting.flops


class _Counting(TorchDispatchMode):
    """Dispatch mode that sums the cost of every operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name not in _RULES:
            raise NotImplementedError(f"cost has no rule for the operation {name}")
        self.flops += _RULES[name](out, args)
        return out


def _one(out: Any, args: Sequence[Any]) -> int:
    return int(out.numel())


def _free(out: Any, args: Sequence[Any]) -> int:
    return 0


def _product(out: Any, args: Sequence[Any]) -> int:
    return int(out.numel()) * (2 * args[0].shape[-1] - 1)


def _solving(out: Any, args: Sequence[Any]) -> int:
    n = args[0].shape[-1]
    eliminating, substituting = n * (n - 1) * (4 * n + 1) // 6, 2 * n**2 - n
    systems, sides = args[0][..., 0, 0].numel(), out[0].numel() // args[0][..., 0].numel()
    return systems * (eliminating + sides * substituting)


_RULES: dict[str, Callable[[Any, Sequence[Any]], int]] = {
    **dict.fromkeys(("add", "add_", "sub", "rsub", "mul", "div", "neg", "reciprocal"), _one),
    **dict.fromkeys(("pow", "sqrt", "rsqrt", "exp", "expm1", "log1p", "sigmoid", "softplus"), _one),
    **dict.fromkeys(
        ("unsqueeze", "slice", "select", "diagonal", "repeat", "clone", "detach", "view", "_to_copy"), _free
    ),
    **dict.fromkeys(("expand", "unbind", "stack", "cat", "clamp", "t", "transpose", "permute", "_unsafe_view"), _free),
    **dict.fromkeys(("mm", "bmm", "mv"), _product),
    **dict.fromkeys(("zeros_like", "new_zeros", "where", "scalar_tensor", "_linalg_check_errors"), _free),
    **dict.fromkeys(("gt", "ge", "lt", "bitwise_and", "all", "_local_scalar_dense"), _free),
    "sum": lambda out, args: int(args[0].numel() - out.numel()),
    "addcmul": lambda out, args: 2 * int(out.numel()),
    "_linalg_solve_ex": _solving,
}
