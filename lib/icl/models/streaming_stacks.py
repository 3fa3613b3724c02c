"""Deep stacks and S6 in recurrent form: one token at a time, with a state of fixed size.

:class:`~icl.models.stacks.Stack` and :class:`~icl.models.stacks.DeltaStack` predict all positions of a prompt at once.
On a stream the same models keep two memories per layer, both read with the layer's own x: one of labels and, in all
layers but the last, one of the inputs themselves. A token passes through the layers; in each it reads, is updated by
its reads, and the layer's input is written. A query passes through as well and writes nothing. Predictions equal the
stacks', to rounding.

:class:`Selected` is the S6 layer with every position a query. An example (x, y) writes to the state and a query (x, 0)
reads it, both with the vectors and the step computed from that token; the query writes nothing, since its label channel
is 0.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from icl._bounds import Count, validated
from icl.models.causal import Causal, Normalised
from icl.models.fast_weights import FastWeights, Memories, S6State
from icl.models.memformer import init_normal_
from icl.models.s6 import S6, Selective, Step, zero_order_hold
from icl.models.stacks import DeltaStack, Stack, read_strictly


class _Layered(FastWeights[Memories]):
    """Base class of stacks in recurrent form; subclasses define a layer's read and write."""

    layers: int
    model: Causal

    @validated
    def errors(self, x: Float[Tensor, "batch time d"], y: Float[Tensor, "batch time"]) -> Float[Tensor, "batch time"]:
        """y_j - y_hat_j at every position, by the stack itself, all at once."""
        return self.model.errors(x, y)

    def _start(self, w_hat: Tensor) -> Memories:
        labels = w_hat.unsqueeze(1).repeat(1, self.layers, 1)
        return Memories(labels, labels[:, 1:, :, None].repeat(1, 1, 1, self.d))

    def _reads(self, state: Memories, layer: int, key: Tensor) -> tuple[Tensor, Tensor | None]:
        """Read a layer's memories by a key: a label and, except in the last layer, an input."""
        label = (state.labels[:, layer] * key).sum(-1)
        last = layer == self.layers - 1
        return label, None if last else (state.inputs[:, layer] * key.unsqueeze(-1)).sum(-2)

    def _stack_memories(self, state: Memories, labels: list[Tensor], inputs: list[Tensor]) -> Memories:
        """Stack the layers' new memories into one state."""
        return Memories(torch.stack(labels, dim=1), torch.stack(inputs, dim=1) if inputs else state.inputs)


class LayeredGLA(_Layered):
    """Recurrent form of :class:`~icl.models.stacks.Stack`, or of the same on normalised prompts.

    In each layer, with b and B its memories of labels and inputs,

        y <- y - s_y (1 - lam) b'x,    x <- x - s_x (1 - lam) B'x,    b <- lam (b + y x),    B <- lam (B + x x')

    where the x and y written are the inputs of the layer.

    Args:
        model: the stack, or :class:`~icl.models.causal.Normalised` of it; its parameters are shared, not copied.
    """

    model: Stack | Normalised

    @validated
    def __init__(self, model: Stack | Normalised) -> None:
        """Keep the model."""
        inner = model.model if isinstance(model, Normalised) else model
        if not isinstance(inner, Stack):
            raise ValueError(f"model must be a Stack or a Normalised one, got {model!r}")
        super().__init__(inner.d)
        self.model, self.layers = model, inner.layers

    def _write(self, state: Memories, x: Tensor, y: Tensor) -> Memories:
        length = self._length(x)
        if length is not None:
            x, y = x / length.unsqueeze(-1), y / length
        labels, inputs = [], []
        for layer, lam in enumerate(self._stack.lam):
            label, seen = self._reads(state, layer, x)
            labels.append(lam * torch.addcmul(state.labels[:, layer], x, y.unsqueeze(-1)))
            y = y - self._stack.s_y[layer] * (1 - lam) * label
            if seen is not None:
                inputs.append(lam * torch.addcmul(state.inputs[:, layer], x.unsqueeze(-1), x.unsqueeze(-2)))
                x = x - self._stack.s_x[layer] * (1 - lam) * seen
        return self._stack_memories(state, labels, inputs)

    def _read(self, state: Memories, x: Tensor) -> Tensor:
        length, answer = self._length(x), torch.zeros_like(x[:, 0])
        if length is not None:
            x = x / length.unsqueeze(-1)
        for layer, lam in enumerate(self._stack.lam):
            label, seen = self._reads(state, layer, x)
            answer = answer + self._stack.s_y[layer] * (1 - lam) * label
            if seen is not None:
                x = x - self._stack.s_x[layer] * (1 - lam) * seen
        return answer if length is None else answer * length

    @property
    def _stack(self) -> Stack:
        inner = self.model.model if isinstance(self.model, Normalised) else self.model
        assert isinstance(inner, Stack)
        return inner

    def _length(self, x: Tensor) -> Tensor | None:
        """Scale that divides the first layer's x and y and multiplies the prediction."""
        return _lengths(x) / self.d**0.5 if isinstance(self.model, Normalised) else None


class LayeredDelta(_Layered):
    """Recurrent form of :class:`~icl.models.stacks.DeltaStack` or :class:`~icl.models.stacks.GatedDeltaStack`.

    In each layer, with r the length of x, u = x / r, and b and B its memories of labels and inputs,

        y <- y - s_y r b'u,    b <- lam (b + mu (y / r - b'u) u),
        x <- x - s_x r B'u,    B <- lam_x (B + mu_x u (u - B'u)')

    where the x and y written are the inputs of the layer.

    Args:
        model: the stack; its parameters are shared, not copied.
    """

    model: DeltaStack

    @validated
    def __init__(self, model: DeltaStack) -> None:
        """Keep the model."""
        super().__init__(model.d)
        self.model, self.layers = model, model.layers

    def _write(self, state: Memories, x: Tensor, y: Tensor) -> Memories:
        labels, inputs = [], []
        for layer in range(self.layers):
            length = _lengths(x)
            u = x / length.unsqueeze(-1)
            # `decays` takes whole prompts: a token is a prompt of length 1.
            fades = [fade[:, 0] for fade in self.model.decays(layer, y.unsqueeze(1))]
            label, seen = self._reads(state, layer, u)
            error = self.model.mu[layer].clamp(min=0) * (y / length - label)
            labels.append(fades[0] * torch.addcmul(state.labels[:, layer], u, error.unsqueeze(-1)))
            y = y - self.model.s_y[layer] * length * label
            if seen is not None:
                residual = self.model.mu_x[layer].clamp(min=0) * (u - seen)
                written = torch.addcmul(state.inputs[:, layer], u.unsqueeze(-1), residual.unsqueeze(-2))
                inputs.append(fades[1].unsqueeze(-1) * written)
                x = x - self.model.s_x[layer] * length.unsqueeze(-1) * seen
        return self._stack_memories(state, labels, inputs)

    def _read(self, state: Memories, x: Tensor) -> Tensor:
        answer = torch.zeros_like(x[:, 0])
        for layer in range(self.layers):
            length = _lengths(x)
            label, seen = self._reads(state, layer, x / length.unsqueeze(-1))
            answer = answer + self.model.s_y[layer] * length * label
            if seen is not None:
                x = x - self.model.s_x[layer] * length.unsqueeze(-1) * seen
        return answer


def _lengths(x: Tensor) -> Tensor:
    """Length of x, or 1 where that is 0, with a gradient in either case."""
    power = x.square().sum(-1)
    return torch.where(power > 0, power, 1.0).sqrt()


class Selected(FastWeights[S6State]):
    """One S6 layer with a prediction at every position.

    Args:
        layer: an S6 layer with selective B and C, one rate, and tokens (x, y); its parameters are shared, not copied.
    """

    @validated
    def __init__(self, layer: S6) -> None:
        """Keep the layer."""
        if not isinstance(layer.B, Selective) or not isinstance(layer.C, Selective):
            raise ValueError(f"layer must have Selective B and C, got {layer!r}")
        if len(layer.log_rate) != 1:
            raise ValueError(f"layer must have one rate, got {len(layer.log_rate)}")
        d_h, width = layer.B.W.shape
        super().__init__(width - 1)
        self.layer, self.d_h = layer, d_h

    @validated
    def errors(self, x: Float[Tensor, "batch time d"], y: Float[Tensor, "batch time"]) -> Float[Tensor, "batch time"]:
        """y_j - y_hat_j at every position, all at once."""
        self.checked(x, y)
        token, query = _tokens(x, y), _tokens(x, torch.zeros_like(y))
        decay, gain = zero_order_hold(self.layer.A, self.layer.step(token))
        written = (gain * self.layer.B(token)).unsqueeze(2)
        read = read_strictly(self.layer.C(query).unsqueeze(2), written, y[..., None, None], decay)
        return y - zero_order_hold(self.layer.A, self.layer.step(query))[0][..., 0] * read[..., 0, 0]

    def _start(self, w_hat: Tensor) -> S6State:
        return S6State(w_hat[:, :1].repeat(1, self.d_h))

    def _write(self, state: S6State, x: Tensor, y: Tensor) -> S6State:
        token = _tokens(x, y).unsqueeze(1)
        decay, gain = zero_order_hold(self.layer.A, self.layer.step(token))
        written = (gain * self.layer.B(token))[:, 0]
        return S6State(torch.addcmul(decay[:, 0] * state.h, written, y.unsqueeze(-1)))

    def _read(self, state: S6State, x: Tensor) -> Tensor:
        query = _tokens(x, torch.zeros_like(x[:, 0])).unsqueeze(1)
        decay = zero_order_hold(self.layer.A, self.layer.step(query))[0][:, 0, 0]
        return decay * (state.h * self.layer.C(query)[:, 0]).sum(-1)


@validated
def selected_at_random(d: Count, d_h: Count = 16, *, generator: torch.Generator) -> Selected:
    """Randomly initialised S6 layer, float32, with a prediction at every position.

    Entries of W_B and W_C are N(0, 0.3^2), since both gradients vanish where both are 0; the step is initially 0.03 at
    every token, and the one rate is 1.

    Args:
        d: dimension of the inputs.
        d_h: size of the state.
        generator: the stream that the entries are drawn from.
    """
    parts = {name: Selective(d + 1, d_h, dtype=torch.float32) for name in "BC"}
    layer = S6(**parts, step=Step(d + 1, 0.03, dtype=torch.float32), A=-torch.ones(1))
    init_normal_(layer, 0.3, generator=generator, names=["W"])
    return Selected(layer)


def _tokens(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x, y.unsqueeze(-1)], dim=-1)
