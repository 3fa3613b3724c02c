"""What a contestant costs: parameters, operations and time a token, bytes of state.

A prompt of n examples is 2 n + 1 tokens, a query before each example (:mod:`icl_bench.sequence`), and all is counted
for one of these. A layer of the book reads a query and an example in one turn: its turn is two tokens.

**Operations** are those of one forward pass over a prompt of the budget's length, divided by its tokens: what a batch
of three costs less what a batch of two costs, so that masks and decays made once for all prompts are no prompt's. They
are counted while they run. Products of matrices, convolutions and attention count by torch's own rules
(`torch.utils.flop_counter`): 2 m n k, and all scores of attention, those behind the mask too. A pointwise operation
counts one for every element that it makes, an exponential too; a sum, mean or norm one for every element that it reads;
a softmax five. Moving and comparing numbers is free. What there is no rule for is named in the notes and not in the
number. Of the book's :class:`~icl.models.fast_weights.FastWeights` it is the count that the book has,
:func:`~icl.models.flops.cost`, halved: its turn is one read and one step.

**State** is what must be carried from one token to the next to go on, in bytes. Of
:class:`~icl.models.fast_weights.FastWeights` and filters it is what they start with; of a model of transformers its own
cache, after a prompt of the budget's length; of any other layer what its method `state_numel(time)` says, the numbers
it carries after so many tokens of one sequence. A layer that has no such method is not guessed at: None.

**Time** is that of a forward pass in evaluation, the median of several: of a model on the device it is trained on, on
the processor on one thread.
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
    """What a contestant costs.

    Attributes:
        parameters: numbers that are trained, or settings that are tuned.
        flops: operations a token.
        state_bytes: what is carried on after a prompt of the budget's length; None where nothing tells it.
        state_grows: whether that is more after a longer prompt; None where nothing tells it.
        us_per_token: microseconds a token of a forward pass.
        notes: what the numbers leave out.
    """

    parameters: int
    flops: float
    state_bytes: int | None
    state_grows: bool | None
    us_per_token: float
    notes: tuple[str, ...] = ()


@validated
def measure_cost(contestant: Contestant, shape: Shape, *, batch: Count = _BATCH, device: str = "cpu") -> MeasuredCost:
    """Weigh a contestant at a budget's sizes; how is in this module's text.

    Args:
        contestant: who.
        shape: sizes.
        batch: prompts of a pass that is timed.
        device: where it runs.

    Raises:
        ValueError: if it cannot be built.
    """
    with torch_seeded(device=device):
        made = contestant.build(shape)
    predictor: Predictor = in_the_middle(made, shape) if isinstance(made, Tunable) else made
    parameters = len(made.axes) + len(made.linear) if isinstance(made, Tunable) else _trained(predictor)
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
    if isinstance(predictor, FastWeights) and (counted := _counted(predictor)) is not None:
        flops = counted / 2
    else:
        two, three = (count(partial(answer, _prompts(shape, some, dtype, device))) for some in (2, 3))
        flops = (three.flops - two.flops) / tokens
        notes = tuple(f"{name} is not in the operations: there is no rule for it" for name in sorted(three.unknown))
    state, more = (_state(predictor, shape, examples) for examples in (shape.n, (shape.longest - 1) // 2))
    return MeasuredCost(
        parameters,
        flops,
        None if state is None else state * dtype.itemsize,
        None if state is None or more is None else more > state,
        1e6 * _seconds(partial(answer, _prompts(shape, batch, dtype, device)), device) / (batch * tokens),
        notes,
    )


def _trained(predictor: Any) -> int:
    if not isinstance(predictor, nn.Module):
        return 0
    return sum(parameter.numel() for parameter in predictor.parameters() if parameter.requires_grad)


def _prompts(shape: Shape, batch: int, dtype: torch.dtype, device: str) -> Prompt:
    x = torch.ones(batch, shape.n + 1, shape.d, dtype=dtype, device=device)
    return Prompt(x, torch.zeros_like(x[..., 0]), torch.zeros_like(x))


def _counted(layer: FastWeights[Any]) -> int | None:
    try:
        return cost(layer).flops
    except NotImplementedError:
        return None


def _state(predictor: Any, shape: Shape, examples: int) -> int | None:
    """Numbers carried on after so many examples of one prompt."""
    if isinstance(predictor, Filter):
        return _numbers(vars(predictor.init(torch.zeros(shape.d, 1, dtype=torch.float64))).values())
    if isinstance(predictor, FastWeights):
        return _numbers(vars(predictor.start(1)).values())
    tokens = 2 * examples + 1
    if not isinstance(predictor, InContext):
        return _declared_state(predictor, tokens)
    layers = [predictor.body]
    if isinstance(predictor.body, BlockStack):
        layers = [block.mixer for block in predictor.body if isinstance(block, Block)]
    found = [_declared_state(layer, tokens) for layer in layers]
    return None if None in found else sum(each for each in found if each is not None)


def _numbers(parts: Iterable[Any]) -> int:
    return sum(part.numel() for part in parts if isinstance(part, torch.Tensor))


def _declared_state(layer: Any, tokens: int) -> int | None:
    """What a layer says of its state, if it says anything."""
    told = getattr(layer, "state_numel", None)
    if told is None:
        return None
    numbers = told(tokens)
    return None if numbers is None else _checks.integer(f"{type(layer).__name__}.state_numel", numbers, at_least=0)


def _seconds(run: Callable[[], Any], device: str) -> float:
    """Median time of a call, after one that does not count."""
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


class _Held(TorchDispatchMode):
    """The most bytes of tensors, of those made below it, that are there at once."""

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
                weakref.finalize(place, self._gone, place._cdata, place.nbytes())
        return out

    def _gone(self, place: int, size: int) -> None:
        self._known.discard(place)
        self.now -= size


@validated
def step_bytes(contestant: Contestant, shape: Shape, batch: Count) -> int:
    """About how many bytes of tensors a step of training has at once; 0 for what is not trained.

    Counted on the processor while a step on one prompt and one on two run, and continued in a line; with the
    parameters, AdamW's two averages of each, and the two copies of all these that a training keeps
    (:func:`~icl.experiments.training.fit`). The system gave processes 1.3 to 1.6 times as much, beside Python and
    torch.

    Args:
        contestant: who.
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
            with _Held() as held:
                model.loss(_prompts(shape, prompts, parameters[0].dtype, "cpu"), since=1).backward()
            most.append(held.most)
    kept = 9 * sum(each.numel() * each.element_size() for each in parameters)
    return int(most[0] + (batch - 1) * (most[1] - most[0]) + kept)


class _Counting(TorchDispatchMode):
    """Adds up what every operation below it costs."""

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
def count(run: Callable[[], Any]) -> _Counting:
    """What a call costs: `flops`, and in `unknown` the names of operations that there is no rule for.

    Args:
        run: a function without arguments.
    """
    with torch.no_grad(), torch_seeded(), _Counting() as counting:
        run()
    return counting


def _elements(what: Any) -> int:
    if isinstance(what, tuple | list):
        return sum(map(_elements, what))
    return int(what.numel()) if isinstance(what, torch.Tensor) else 0


def _attention(out: Any, args: Sequence[Any]) -> int:
    """Scores, their softmax, and the mean of values, of all pairs of tokens."""
    q, k, v = args[:3]
    pairs = q.shape[:-1].numel() * k.shape[-2]
    return int(pairs * (2 * q.shape[-1] + 5 + 2 * v.shape[-1]))


def _triangular(out: Any, args: Sequence[Any]) -> int:
    # n^2 a right-hand side: a product and a difference for each pair, a division for each row.
    return int(out.numel() * args[0].shape[-1])


def _solving(out: Any, args: Sequence[Any]) -> int:
    n = args[0].shape[-1]
    systems = args[0][..., 0, 0].numel()
    return int(systems * n * (n - 1) * (4 * n + 1) // 6 + out[0].numel() * (2 * n - 1))


def _lstm(out: Any, args: Sequence[Any]) -> int:
    """Four gates from input and hidden state, and ten operations for each number of the state."""
    inputs, hidden = args[0], out[0].shape[-1]
    steps = inputs.shape[:-1].numel()
    return int(steps * (8 * hidden * (inputs.shape[-1] + hidden + 1) + 10 * hidden))


_RULES: dict[str, Callable[[Any, Sequence[Any]], int]] = {
    # Of the processor, and of GPUs: torch's own rule for the latter leaves the softmax out.
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
    "_linalg_solve_ex": _solving,
    "addcmul": lambda out, args: 2 * _elements(out),
    "mv": lambda out, args: 2 * _elements(args[0]),
    "addmv": lambda out, args: 2 * _elements(args[1]),
    "dot": lambda out, args: 2 * _elements(args[0]),
}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# By names without the underscore of operations in place: making, moving, comparing and drawing numbers is free.
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
