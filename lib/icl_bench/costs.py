"""Cost of a contestant: parameters, FLOPs and time per token, state size in bytes.

A prompt of n examples is 2 n + 1 tokens, a query before each example (:mod:`icl_bench.sequence`), and every cost is per
token. A layer of the book reads a query and an example in one step: its step is two tokens.

**FLOPs** are those of one forward pass over a prompt of the budget's length, divided by its tokens: the cost of a batch
of three less that of a batch of two, so that masks and decays shared by all prompts are not counted. They are counted
during execution. Matrix products, convolutions and attention follow torch's own rules (`torch.utils.flop_counter`):
2 m n k, and all attention scores, masked ones included. A pointwise operation, exponentials included, counts one for
every element of its output; a sum, mean or norm one for every element of its input; a softmax five. Data movement and
comparisons are free. Operations without a rule are listed in the notes and not counted. For the book's
:class:`~icl.models.fast_weights.FastWeights` the number is the book's count, :func:`~icl.models.flops.cost`, halved,
because its step is one read and one update.

**State** is the memory carried from one token to the next, in bytes. For :class:`~icl.models.fast_weights.FastWeights`
and filters it is the size of the initial state; for a transformers model, its own cache after a prompt of the budget's
length; for any other layer, the return value of its method `state_numel(time)`, the numbers carried after `time` tokens
of one sequence. Without such a method the state is unknown: None.

**Time** is the median over several forward passes in evaluation mode, on the device the model is trained on; if that is
the CPU, on one thread.
"""

import statistics
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from icl import _checks
from icl._bounds import Count, validated
from icl.experiments.evaluation import Predictor, one_step_ahead
from icl.experiments.tuning import Tunable
from icl.filters import Filter
from icl.models.causal import Causal
from icl.models.fast_weights import FastWeights
from icl.models.flops import cost
from icl.tasks import Prompt
from icl_bench.entries import Contestant, Shape, in_the_middle, torch_seeded
from icl_bench.sequence import Block, BlockStack, InContext

_REPEATS = 5
_BATCH = 8


@dataclass(frozen=True)
class MeasuredCost:
    """Measured cost of a contestant.

    Attributes:
        parameters: number of trained parameters, or of tuned settings.
        flops: operations per token.
        state_bytes: state after a prompt of the budget's length; None if unknown.
        state_grows: True if it grows with the length of the prompt; None if unknown.
        us_per_token: microseconds per token of a forward pass.
        notes: costs that the numbers omit.
    """

    parameters: int
    flops: float
    state_bytes: int | None
    state_grows: bool | None
    us_per_token: float
    notes: tuple[str, ...] = ()


@validated
def measure_cost(contestant: Contestant, shape: Shape, *, batch: Count = _BATCH, device: str = "cpu") -> MeasuredCost:
    """Measure a contestant's cost at a budget's sizes; the module's docstring defines the measures.

    Args:
        contestant: the contestant.
        shape: sizes.
        batch: prompts in a timed forward pass.
        device: of a module; filters run on the CPU.

    Raises:
        ValueError: if it cannot be built.

    >>> from icl_bench.entries import Shape, resolve
    >>> cost = measure_cost(resolve("softmax"), Shape(d=2, n=8, width=16, depth=1, longest=33))
    >>> cost.parameters, cost.state_bytes, cost.state_grows
    (2241, 2176, True)
    """
    with torch_seeded(device=device):
        built = contestant.build(shape)
    predictor: Predictor = in_the_middle(built, shape) if isinstance(built, Tunable) else built
    parameters = len(built.axes) + len(built.linear) if isinstance(built, Tunable) else _parameter_count(predictor)
    like = next(predictor.parameters(), None) if isinstance(predictor, nn.Module) else None
    dtype = torch.float64 if like is None else like.dtype
    if isinstance(predictor, nn.Module):
        predictor.eval().to(device)
    else:
        device = "cpu"
    answer: Callable[[Prompt], Any] = partial(one_step_ahead, predictor)
    if isinstance(predictor, Causal):
        answer = predictor.predictions
    tokens = 2 * shape.n + 1
    notes: tuple[str, ...] = ()
    if isinstance(predictor, FastWeights) and (counted := _fast_weights_flops(predictor)) is not None:
        flops = counted / 2
    else:
        two, three = (count(partial(answer, _prompts(shape, some, dtype, device))) for some in (2, 3))
        flops = (three.flops - two.flops) / tokens
        notes = tuple(f"{name} is not in the operations: there is no rule for it" for name in sorted(three.unknown))
    state, more = (_state_numel(predictor, shape, examples) for examples in (shape.n, (shape.longest - 1) // 2))
    return MeasuredCost(
        parameters,
        flops,
        None if state is None else state * dtype.itemsize,
        None if state is None or more is None else more > state,
        1e6 * _seconds(partial(answer, _prompts(shape, batch, dtype, device)), device) / (batch * tokens),
        notes,
    )


def _parameter_count(predictor: Any) -> int:
    if not isinstance(predictor, nn.Module):
        return 0
    return sum(parameter.numel() for parameter in predictor.parameters() if parameter.requires_grad)


def _prompts(shape: Shape, batch: int, dtype: torch.dtype, device: str) -> Prompt:
    x = torch.ones(batch, shape.n + 1, shape.d, dtype=dtype, device=device)
    return Prompt(x, torch.zeros_like(x[..., 0]), torch.zeros_like(x))


def _fast_weights_flops(layer: FastWeights[Any]) -> int | None:
    try:
        return cost(layer).flops
    except NotImplementedError:
        return None


def _state_numel(predictor: Any, shape: Shape, examples: int) -> int | None:
    """State size, in numbers, after so many examples of one prompt."""
    if isinstance(predictor, Filter):
        return _total_numel(vars(predictor.init(torch.zeros(shape.d, 1, dtype=torch.float64))).values())
    if isinstance(predictor, FastWeights):
        return _total_numel(vars(predictor.start(1)).values())
    tokens = 2 * examples + 1
    if not isinstance(predictor, InContext):
        return _layer_state(predictor, tokens)
    layers = [predictor.body]
    if isinstance(predictor.body, BlockStack):
        layers = [block.mixer for block in predictor.body if isinstance(block, Block)]
    sizes = [_layer_state(layer, tokens) for layer in layers]
    return None if None in sizes else sum(each for each in sizes if each is not None)


def _total_numel(parts: Iterable[Any]) -> int:
    return sum(part.numel() for part in parts if isinstance(part, torch.Tensor))


def _layer_state(layer: Any, tokens: int) -> int | None:
    """State size from the layer's `state_numel`; None without such a method."""
    count = getattr(layer, "state_numel", None)
    if count is None:
        return None
    numbers = count(tokens)
    return None if numbers is None else _checks.integer(f"{type(layer).__name__}.state_numel", numbers, at_least=0)


def _seconds(run: Callable[[], Any], device: str) -> float:
    """Median time of a call, after one warm-up call."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        taken = []
        with torch.no_grad(), torch_seeded(device=device):
            for _ in range(_REPEATS + 1):
                begun = time.perf_counter()
                run()
                if device.startswith("cuda"):
                    torch.cuda.synchronize(device)
                taken.append(time.perf_counter() - begun)
    finally:
        torch.set_num_threads(threads)
    return statistics.median(taken[1:])


class _PeakBytes(TorchDispatchMode):
    """Dispatch mode that records the peak bytes of live tensors allocated under it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **dict(kwargs or {}))
        for each in out if isinstance(out, tuple | list) else (out,):
            if isinstance(each, torch.Tensor) and (place := each.untyped_storage())._cdata not in self._known:
                self._known.add(place._cdata)
                self.now += place.nbytes()
                self.most = max(self.most, self.now)
                weakref.finalize(place, self._forget, place._cdata, place.nbytes())
        return out

    def _forget(self, place: int, size: int) -> None:
        self._known.discard(place)
        self.now -= size


@validated
def step_bytes(contestant: Contestant, shape: Shape, batch: Count) -> int:
    """Estimated peak memory of a training step, in bytes of tensors; 0 if nothing is trained.

    Measured on the CPU for steps on one prompt and on two, and extrapolated linearly; includes the parameters, AdamW's
    two moments of each, and the two copies of all these that a training keeps
    (:func:`~icl.experiments.training.fit`). Processes were observed to use 1.3 to 1.6 times as much, beside Python and
    torch.

    Args:
        contestant: the contestant.
        shape: sizes.
        batch: prompts a step.

    Raises:
        ValueError: if it cannot be built.
    """
    if not contestant.trained:
        return 0
    with torch_seeded():
        model: Any = contestant.build(shape)
        parameters = [each for each in model.parameters() if each.requires_grad]
        most = []
        for prompts in (1, 2):
            model.zero_grad(set_to_none=True)
            with _PeakBytes() as held:
                model.loss(_prompts(shape, prompts, parameters[0].dtype, "cpu"), since=1).backward()
            most.append(held.most)
    state = 9 * sum(each.numel() * each.element_size() for each in parameters)
    return int(most[0] + (batch - 1) * (most[1] - most[0]) + state)


class _FlopCounter(TorchDispatchMode):
    """Dispatch mode that sums the FLOPs of every operation run under it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0
        self.unknown: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        out = func(*args, **kwargs)
        packet = func.overloadpacket
        name = packet.__name__
        plain = name.removesuffix("_")
        if name in _RULES:
            self.flops += _RULES[name](out, args)
        elif packet in flop_registry:
            self.flops += int(flop_registry[packet](*args, **kwargs, out_val=out))
        elif plain in _FREE or func.is_view:
            pass
        elif torch.Tag.pointwise in func.tags or plain in _POINTWISE:
            self.flops += _elements(out)
        elif torch.Tag.reduction in func.tags or plain in _READING:
            self.flops += _elements(args[0])
        else:
            self.unknown.add(name)
        return out


@validated
def count(run: Callable[[], Any]) -> _FlopCounter:
    """Count a call's FLOPs: `flops`, and in `unknown` the names of operations without a rule.

    Args:
        run: a function without arguments.
    """
    with torch.no_grad(), torch_seeded(), _FlopCounter() as counting:
        run()
    return counting


def _elements(what: Any) -> int:
    if isinstance(what, tuple | list):
        return sum(map(_elements, what))
    return int(what.numel()) if isinstance(what, torch.Tensor) else 0


def _attention(out: Any, args: Sequence[Any]) -> int:
    """FLOPs of softmax attention: scores, softmax and weighted values, over all pairs of tokens."""
    q, k, v = args[:3]
    pairs = q.shape[:-1].numel() * k.shape[-2]
    return int(pairs * (2 * q.shape[-1] + 5 + 2 * v.shape[-1]))


def _triangular(out: Any, args: Sequence[Any]) -> int:
    # n^2 per right-hand side: a product and a difference for each pair, a division for each row.
    return int(out.numel() * args[0].shape[-1])


def _solve(out: Any, args: Sequence[Any]) -> int:
    n = args[0].shape[-1]
    systems = args[0][..., 0, 0].numel()
    return int(systems * n * (n - 1) * (4 * n + 1) // 6 + out[0].numel() * (2 * n - 1))


def _lstm(out: Any, args: Sequence[Any]) -> int:
    """FLOPs of an LSTM: four gates from input and hidden state, and ten operations per number of the state."""
    inputs, hidden = args[0], out[0].shape[-1]
    steps = inputs.shape[:-1].numel()
    return int(steps * (8 * hidden * (inputs.shape[-1] + hidden + 1) + 10 * hidden))


_RULES: dict[str, Callable[[Any, Sequence[Any]], int]] = {
    # CPU and GPU kernels; torch's own rule for the latter omits the softmax.
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention": _attention,
    "_scaled_dot_product_efficient_attention": _attention,
    "_scaled_dot_product_cudnn_attention": _attention,
    "mkldnn_rnn_layer": _lstm,
    "_safe_softmax": lambda out, args: 5 * _elements(out),
    "_softmax": lambda out, args: 5 * _elements(out),
    "_log_softmax": lambda out, args: 5 * _elements(out),
    "native_layer_norm": lambda out, args: 7 * _elements(args[0]),
    "_fused_rms_norm": lambda out, args: 4 * _elements(args[0]),
    "linalg_solve_triangular": _triangular,
    "_linalg_solve_ex": _solve,
    "addcmul": lambda out, args: 2 * _elements(out),
    "mv": lambda out, args: 2 * _elements(args[0]),
    "addmv": lambda out, args: 2 * _elements(args[1]),
    "dot": lambda out, args: 2 * _elements(args[0]),
}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Names without the underscore of in-place operations: allocation, data movement, comparisons and draws are free.
_FREE = _names(
    """
    clone copy _to_copy where masked_fill masked_scatter tril triu fill zero zeros ones full empty
    empty_like zeros_like ones_like full_like new_zeros new_ones new_full new_empty empty_strided
    new_empty_strided scalar_tensor arange linspace eye triu_indices tril_indices lift_fresh
    lift_fresh_copy cat stack repeat repeat_interleave flip roll gather index index_select index_put
    scatter constant_pad_nd embedding im2col clamp clamp_min clamp_max eq ne gt lt ge le isfinite isnan
    isinf logical_and logical_or logical_not bitwise_and bitwise_or bitwise_not any all aminmax
    _local_scalar_dense _linalg_check_errors detach alias set resize _unsafe_view _reshape_alias
    slice_scatter select_scatter diag_embed sort topk argsort argmax argmin bernoulli rand randn
    rand_like randn_like randint uniform normal native_dropout
    """
)
_POINTWISE = _names(
    """
    softplus leaky_relu silu gelu elu addcdiv lerp mish hardtanh hardswish _prelu_kernel
    """
)
_READING = _names(
    """
    cumsum cumprod logcumsumexp cummax cummin linalg_vector_norm native_group_norm native_batch_norm
    avg_pool1d
    """
)
