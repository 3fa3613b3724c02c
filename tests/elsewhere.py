"""A second device without its hardware: tensors that live elsewhere, with numbers in them, as those of a GPU do.

An `Elsewhere` is a tensor whose device is `THERE` and whose numbers are those of a tensor of the processor inside it.
What a GPU refuses is refused here: an operation on tensors of two devices, a generator of another device than the
numbers drawn, a view of the numbers in numpy. What a GPU does slowly is counted while a `Watch` is on: copies from one
device to the other, and reads of single numbers, for which the program waits.

The operations themselves are the processor's, so that all numbers are the same to the bit wherever a program asks for
the same operations on both devices. That a GPU's own operations round alike is not shown by this.
"""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

# Torch runs the backward pass of this device in the caller's thread, and asks for no driver.
THERE = torch.device("meta", 0)


class Elsewhere(torch.Tensor):
    """A tensor on the second device."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "Elsewhere":
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=THERE,
        )
        made.inner = inner
        return made

    def __repr__(self) -> str:
        return f"Elsewhere({self.inner})"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == torch.Tensor.is_meta.__get__:
            return False  # it has numbers
        if func is torch.Tensor.tolist:
            return args[0].detach().cpu().tolist()
        if func == torch.Tensor.new_tensor:
            return torch.tensor(args[1], dtype=kwargs.get("dtype", args[0].dtype)).to(THERE)
        if func in (torch.Tensor.numpy, torch.Tensor.__array__):
            if not kwargs.get("force", False):
                raise TypeError("a tensor of another device cannot be looked at in numpy: copy it to the processor")
            return args[0].detach().cpu().numpy()
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {}, None)


class Generator(torch.Generator):
    """A generator of the second device, with the numbers that the processor's would draw."""

    @property
    def device(self) -> torch.device:
        """Where it draws."""
        return THERE


class TwoDevices(RuntimeError):
    """An operation on tensors of two devices, which a GPU refuses, or which copies without being asked."""


# A single number of the processor goes along with an operation as an argument of it, where the operation takes one.
_TAKES_A_NUMBER = {"add", "sub", "rsub", "mul", "div", "pow", "where", "maximum", "minimum", "lerp", "xlogy", "atan2"}
_TAKES_A_NUMBER |= {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "fill", "masked_fill", "remainder"}
# The program waits for how many there are, or for whether a system could be solved.
_COUNTS = {"nonzero", "masked_select", "unique_dim", "_unique2", "equal", "_linalg_check_errors"}


def _run(func: Any, args: Any, kwargs: dict[str, Any], watch: "Watch | None") -> Any:
    tensors = [*_tensors(args), *_tensors(kwargs.values())]
    there = [each for each in tensors if isinstance(each, Elsewhere)]
    here = [each for each in tensors if not isinstance(each, Elsewhere)]
    name = func.overloadpacket.__name__.removesuffix("_")
    asked = kwargs.get("device")
    leads_there = bool(there) if asked is None else torch.device(asked).type == THERE.type
    if any(each.device.type == THERE.type for each in here):
        raise AssertionError(f"{name} made a tensor without numbers: a gap of this second device")
    copies = name == "copy" or (name == "_to_copy" and asked is not None)
    if there and here and not copies:
        one_number = all(each.dim() == 0 for each in here) and name in _TAKES_A_NUMBER
        if not one_number:
            raise TwoDevices(
                f"{name} is asked of tensors of two devices, of shapes {[tuple(t.shape) for t in tensors]}"
            )
    if kwargs.get("generator") is not None and _Made.draws_there != leads_there:
        raise TwoDevices(f"{name} draws on one device from a generator of another")
    if watch is not None:
        if copies and (bool(here) != (not leads_there) or (there and here)):
            watch.copies.append(name)
        if there and (name == "_local_scalar_dense" or name in _COUNTS or _masked(name, args)):
            watch.reads.append(name)
    if asked is not None:
        kwargs = kwargs | {"device": torch.device("cpu")}
    out = func(*_each(args, _inside), **{name: _each(value, _inside) for name, value in kwargs.items()})
    if not leads_there:
        return out
    known = {id(each.inner): each for each in there}
    # What an operation in place returns is what it was given.
    return _each(out, lambda each: known[id(each)] if id(each) in known else Elsewhere(each))


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for each in values:
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, list | tuple):
            yield from _tensors(each)


def _each(value: Any, change: Any) -> Any:
    """The same with every tensor in it changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    return type(value)(_each(each, change) for each in value) if isinstance(value, list | tuple) else value


def _inside(each: torch.Tensor) -> torch.Tensor:
    return each.inner if isinstance(each, Elsewhere) else each


def _masked(name: str, args: Any) -> bool:
    if name not in ("index", "index_put"):
        return False
    return any(each is not None and each.dtype == torch.bool for each in args[1])


class Watch(TorchDispatchMode):
    """While it is on, tensors can be made on the second device, and its copies and reads are counted.

    Attributes:
        copies: of tensors from one device to the other, by name of the operation.
        reads: of single numbers by the program, or of how many there are.
    """

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[str] = []
        self.reads: list[str] = []
        self._made = _Made()

    def __enter__(self) -> "Watch":
        self._made.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._made.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {}, self)


class _Made(TorchFunctionMode):
    """Numbers of Python and numpy are made into tensors on the processor first, and then copied."""

    #: Whether the generator of the call under way is of the second device: torch does not hand it on as it is.
    draws_there = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        asked = kwargs.get("device")
        _Made.draws_there = isinstance(kwargs.get("generator"), Generator)
        makes = func in (torch.tensor, torch.as_tensor, torch.asarray)
        if makes and asked is not None and torch.device(asked).type == THERE.type:
            del kwargs["device"]
            return func(*args, **kwargs).to(THERE)
        return func(*args, **kwargs)


def changed(value: Any, change: Any) -> Any:
    """A copy of something with `change` of every model, tensor and generator in it: prompts, states, what holds such.

    Settings inside of functions stay as they are.
    """
    if isinstance(value, torch.nn.Module | torch.Tensor | torch.Generator):
        return change(value)
    if isinstance(value, dict):
        return {name: changed(each, change) for name, each in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(changed(each, change) for each in value)
    if type(value).__module__.startswith(("icl.", "icl_bench.", "icl_book.")) and hasattr(value, "__dict__"):
        made = copy.copy(value)
        for name, each in vars(value).items():
            object.__setattr__(made, name, changed(each, change))
        return made
    return value


def moved(value: Any, device: torch.device = THERE) -> Any:
    """A copy of something with all its tensors on a device; generators begin anew."""

    def move(each: Any) -> Any:
        if isinstance(each, torch.Generator):
            return torch.Generator().manual_seed(each.initial_seed())
        if isinstance(each, torch.Tensor):
            return each.detach().clone().to(device).requires_grad_(each.requires_grad)
        return copy.deepcopy(each).to(device)

    return changed(value, move)


def parts(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor, array and number in a result, with its place in it."""
    if isinstance(value, torch.nn.Module):
        value = dict(value.state_dict())
    if isinstance(value, torch.Tensor | np.ndarray | np.generic | float | int | str):
        yield where, value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from parts(each, f"{where}.{name}")
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield from parts(each, f"{where}[{place}]")
    elif type(value).__module__.startswith(("icl.", "icl_bench.", "icl_book.")) and hasattr(value, "__dict__"):
        yield from parts(vars(value), where)


def numbers(value: Any) -> np.ndarray:
    """What is in a tensor or array, on the processor."""
    if isinstance(value, Elsewhere):
        value = value.inner
    with contextlib.suppress(AttributeError):
        value = value.detach().cpu()
    return np.asarray(value)
