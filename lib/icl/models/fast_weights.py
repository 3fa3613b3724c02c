"""Fast weights: the interface of all layers, their states and gates, and the Hebbian layers.

With the input as key and query and the label as value, each layer keeps an estimate w_hat of the weights behind
y_i = <w_i, x_i> and predicts <w_hat, x> from it. They differ in the update and in its gates:

    linear attention    w <- w + mu y x                             [Katharopoulos et al. 2020]
    GLA                 w <- lam (w + mu y x)                       [Yang et al. 2023]
    RetNet              several of these, at fixed lam              [Sun et al. 2023]
    Mamba-2             w <- a_i w + mu Delta_i y x                 [Dao & Gu 2024]

:mod:`icl.models.delta_layers` has the error-correcting ones. One interface for all, :class:`FastWeights`: a state made
by `start`, advanced by one example by `step`, and read by `read`. They are :class:`~icl.models.causal.Causal` models:
position i is predicted from the examples before it. Parameters are kept in unconstrained form (logarithms, log-odds)
and trained as such; constructors take, and properties show, their natural values. A layer's operations are counted
while it runs, by :func:`~icl.models.flops.cost`.

Decays and write strengths may be one number or one per coordinate of x; the latter is for inputs whose coordinates
differ in scale (a decay per channel, a diagonal gain).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

import numpy as np
import torch
from annotated_types import Gt, Lt
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks
from icl._bounds import Count, Positive, Real, validated
from icl.models._settings import gate_of_size, log_odds_parameter, log_parameter, positive_setting
from icl.models.causal import Causal

_Inputs = Float[Tensor, "batch d"]
_Labels = Float[Tensor, " batch"]
_PerChannel = Float[Tensor, "*#d"]


@dataclass(frozen=True, eq=False)
class Weights:
    """State of the layers that keep their estimate only, in units of y/x."""

    w_hat: Float[Tensor, "batch d"]


@dataclass(frozen=True, eq=False)
class Heads:
    """State of a multi-head layer: an estimate each, in units of y x."""

    w_hat: Float[Tensor, "batch heads d"]


@dataclass(frozen=True, eq=False)
class MesaState:
    """State of Mesa: exponentially weighted sums of x x', in units of x^2, and of y x, both in float64."""

    G: Float[Tensor, "batch d d"]
    b: Float[Tensor, "batch d"]


@dataclass(frozen=True, eq=False)
class LFOMState:
    """State of a first-order method: sums of x x', in units of x^2, and of y x, and the number of examples."""

    G: Float[Tensor, "batch d d"]
    b: Float[Tensor, "batch d"]
    count: Float[Tensor, " batch"]


@dataclass(frozen=True, eq=False)
class S6State:
    """State of an S6 layer (:mod:`icl.models.streaming_stacks`): d_h numbers a prompt, in units of y."""

    h: Float[Tensor, "batch d_h"]


@dataclass(frozen=True, eq=False)
class KalmanState:
    """State of the Kalman layer: its estimate, and P, the covariance of the estimation error, in float64."""

    w_hat: Float[Tensor, "batch d"]
    P: Float[Tensor, "batch d d"]


@dataclass(frozen=True, eq=False)
class Memories:
    """State of a stack of layers (:mod:`icl.models.streaming_stacks`): every layer's memories of labels and inputs.

    For keys x in units of y x and x^2; for unit keys, of y/x and 1.
    """

    labels: Float[Tensor, "batch layers d"]
    inputs: Float[Tensor, "batch layers-1 d d"]


S = TypeVar("S", Weights, Heads, MesaState, LFOMState, S6State, KalmanState, Memories)


class Gate(nn.Module):
    """Data-dependent gate: an additive logit computed from the token (x, y). `Gate` itself adds 0.

    The logit is added to a setting's log or log-odds. As in these layers, it depends on the token, not on the state; it
    starts at 0, so that a gated layer starts as the ungated one.
    """

    d: int | None = None

    def forward(self, x: _Inputs, y: _Labels) -> Float[Tensor, "*#batch"]:
        """One number a token."""
        return x.new_zeros(())


class LinearGate(Gate):
    """Linear gate w'(x, y), that of the papers.

    Args:
        d: dimension of the inputs.
        dtype: of the parameters.
    """

    d: int

    @validated
    def __init__(self, d: Count, *, dtype: torch.dtype = torch.float32) -> None:
        """Start at 0."""
        super().__init__()
        self.d = d
        self.w = nn.Parameter(torch.zeros(d + 1, dtype=_checks.precision("dtype", dtype)))

    def forward(self, x: _Inputs, y: _Labels) -> _Labels:
        """One number a token."""
        return (x * self.w[:-1]).sum(-1) + self.w[-1] * y


class LengthGate(Gate):
    """Length gate c log(1 + x'x / d): even in x, where a linear gate is odd.

    Added to a log it is a power of the length: with c = -1 and x'x well above d a write strength mu / x'x.

    Args:
        d: dimension of the inputs.
        dtype: of the parameter.
    """

    d: int

    @validated
    def __init__(self, d: Count, *, dtype: torch.dtype = torch.float32) -> None:
        """Start at 0."""
        super().__init__()
        self.d = d
        self.c = nn.Parameter(torch.zeros((), dtype=_checks.precision("dtype", dtype)))

    def forward(self, x: _Inputs, y: _Labels) -> _Labels:
        """One number a token."""
        return self.c * torch.log1p(x.square().sum(-1) / self.d)


class FastWeights(Causal, Generic[S]):
    """Base class of recurrent layers: a state of fixed size, updated by every example.

    Subclasses define the initial state, the update and the prediction: `_start`, `_write`, `_read`, whose arguments
    are validated before.

    Args:
        d: dimension of the inputs.
    """

    @validated
    def __init__(self, d: Count) -> None:
        """Keep the dimension."""
        super().__init__()
        self.d = d
        self._state_shapes: tuple[int, type, dict[str, tuple[int, ...]]] = (-1, type(None), {})

    @validated
    def start(self, batch: Count) -> S:
        """Initial state of a batch of prompts, in the dtype and on the device of the parameters."""
        return self._start(next(self.parameters()).new_zeros(batch, self.d))

    @validated
    def step(self, state: S, x: _Inputs, y: _Labels) -> S:
        """Advance the state by one example a prompt.

        Args:
            state: from :meth:`start` or `step`; it is not changed.
            x: inputs.
            y: their labels.
        """
        self._fits(state, x)
        return self._write(state, x, y)

    @validated
    def read(self, state: S, x: _Inputs) -> _Labels:
        """Predict the label of x from a state."""
        self._fits(state, x)
        return self._read(state, x)

    @validated
    def errors(self, x: Float[Tensor, "batch time d"], y: Float[Tensor, "batch time"]) -> Float[Tensor, "batch time"]:
        """y_j - y_hat_j at every position, y_hat_j read from the state before example j."""
        self.checked(x, y)
        state = self._start(x.new_zeros(len(x), self.d))  # an empty batch is allowed
        answers = []
        # Unbound once, not indexed step by step: the backward pass of an index fills a tensor of full length.
        for xt, yt in zip(x.unbind(1), y.unbind(1), strict=True):
            answers.append(self._read(state, xt))
            state = self._write(state, xt, yt)
        return y - torch.stack(answers, dim=1)

    def _fits(self, state: S, x: Tensor) -> None:
        like = next(self.parameters())
        _checks.shape("x", x, (None, self.d), "to match the layer")
        _checks.dtype("x", x, like.dtype, "to match the layer")
        if self._state_shapes[0] != len(x):  # a stream has one batch size
            template = self._start(like.new_zeros(len(x), self.d))
            shapes = {part: tuple(value.shape) for part, value in vars(template).items()}
            self._state_shapes = len(x), type(template), shapes
        _, kind, shapes = self._state_shapes
        if type(state) is not kind:
            raise ValueError(f"state must be a {kind.__name__}, as start and step return it, got {state!r}")
        for part, shape in shapes.items():
            _checks.shape(f"state.{part}", getattr(state, part), shape, "to match the layer and x")

    def _start(self, w_hat: Tensor) -> S:
        raise NotImplementedError

    def _write(self, state: S, x: Tensor, y: Tensor) -> S:
        raise NotImplementedError

    def _read(self, state: S, x: Tensor) -> Tensor:
        raise NotImplementedError


class LinearReadout(FastWeights[Weights]):
    """Base class of layers whose state is the estimate w, read as w'x."""

    def _start(self, w_hat: Tensor) -> Weights:
        return Weights(w_hat)

    def _read(self, state: Weights, x: Tensor) -> Tensor:
        return (state.w_hat * x).sum(-1)


class LinearAttention(LinearReadout):
    """Linear attention, w <- w + mu y x: a Hebbian update, one gradient step on the unbounded loss -y w'x an example.

    Args:
        d: dimension of the inputs.
        mu: write strength, in units of 1/x^2.
        dtype: of the parameters.
    """

    @validated
    def __init__(self, d: Count, *, mu: Positive, dtype: torch.dtype = torch.float32) -> None:
        """Keep the write strength."""
        super().__init__(d)
        self.log_mu = log_parameter("mu", mu, dtype)

    @property
    def mu(self) -> Float[Tensor, ""]:
        """Write strength."""
        return self.log_mu.exp()

    def _write(self, state: Weights, x: Tensor, y: Tensor) -> Weights:
        return Weights(torch.addcmul(state.w_hat, x, (self.mu * y).unsqueeze(-1)))


class DecayingWeights(LinearReadout):
    """Base class of layers with decay lam and write strength mu: one number each, or one a coordinate."""

    @validated
    def __init__(
        self,
        d: Count,
        *,
        lam: Annotated[float | Sequence[float] | np.ndarray, Gt(0), Lt(1)],
        mu: Annotated[float | Sequence[float] | np.ndarray, Gt(0)],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Keep both."""
        super().__init__(d)
        self.log_odds, self.log_mu = log_odds_parameter("lam", lam, dtype, (d,)), log_parameter("mu", mu, dtype, (d,))

    @property
    def lam(self) -> _PerChannel:
        """Forgetting factor."""
        return torch.sigmoid(self.log_odds)

    @property
    def mu(self) -> _PerChannel:
        """Write strength."""
        return self.log_mu.exp()


class GLA(DecayingWeights):
    """Gated linear attention, w <- lam (w + mu y x): one layer (15) with A = mu I.

    Args:
        d: dimension of the inputs.
        lam: forgetting factor, one number or d.
        mu: write strength, in units of 1/x^2, one number or d.
        dtype: of the parameters.

    >>> import torch
    >>> from icl.models.fast_weights import GLA
    >>> layer = GLA(2, lam=0.5, mu=1.0)
    >>> state = layer.step(layer.start(1), torch.tensor([[1.0, 0.0]]), torch.tensor([2.0]))
    >>> round(float(layer.read(state, torch.tensor([[3.0, 1.0]])).detach()), 3)  # 0.5 * 2 * 3
    3.0
    """

    def _write(self, state: Weights, x: Tensor, y: Tensor) -> Weights:
        return Weights(self.lam * torch.addcmul(state.w_hat, x, self.mu * y.unsqueeze(-1)))


@validated
def retention(heads: Count) -> Float[np.ndarray, " heads"]:
    """Decays of RetNet's heads: 1 - 2^(-5-h) for h = 0 .. heads - 1 [Sun et al. 2023, eq. 8]."""
    return 1 - 2.0 ** (-5 - np.arange(heads))


class RetNet(FastWeights[Heads]):
    """RetNet: heads w_h <- lam_h (w_h + y x) with fixed decays; the prediction is sum_h c_h <w_h, x>.

    Args:
        d: dimension of the inputs.
        lam: the decays, one a head, in (0, 1); `retention(heads)` has the paper's.
        mu: initial write strength, c_h = mu / heads for all heads: any number, in units of 1/x^2.
        dtype: of the parameters.
    """

    @validated
    def __init__(
        self, d: Count, *, lam: Sequence[float] | np.ndarray, mu: Real, dtype: torch.dtype = torch.float32
    ) -> None:
        """Keep the decays; start with equal readout weights."""
        super().__init__(d)
        if np.ndim(lam) != 1 or not len(lam):
            raise ValueError(f"lam must be one number a head, at least one, got {lam!r}")
        heads = len(lam)
        decays = torch.sigmoid(log_odds_parameter("lam", lam, dtype, (heads,)).detach())
        self.register_buffer("lam", decays.unsqueeze(-1))
        self.c = nn.Parameter(torch.full((heads,), float(mu) / heads, dtype=dtype))

    def _start(self, w_hat: Tensor) -> Heads:
        return Heads(w_hat.unsqueeze(1).repeat(1, len(self.c), 1))

    def _write(self, state: Heads, x: Tensor, y: Tensor) -> Heads:
        return Heads(self.get_buffer("lam") * (state.w_hat + (x * y.unsqueeze(-1)).unsqueeze(1)))

    def _read(self, state: Heads, x: Tensor) -> Tensor:
        return (self.c * (state.w_hat * x.unsqueeze(1)).sum(-1)).sum(-1)


class Mamba2(LinearReadout):
    """Mamba-2, w <- a_i w + mu Delta_i y x with a_i = exp(-A Delta_i): a data-dependent step size.

    Delta_i = softplus(b + gate(x_i, y_i)). A query is a token with label 0, whose own a decays the state before it is
    read, as in :mod:`icl.models.s6`: that is S6 with one rate, W_B and W_C selecting x, and Euler's rule in place of
    zero-order hold.

    Args:
        d: dimension of the inputs.
        gate: gate of the step; `LinearGate(d)` is the paper's.
        A: rate of decay.
        Delta: initial step.
        mu: scale of the prediction, in units of 1/x^2.
        dtype: of the parameters; the gate has its own.
    """

    @validated
    def __init__(
        self, d: Count, gate: Gate, *, A: Positive, Delta: Positive, mu: Positive, dtype: torch.dtype = torch.float32
    ) -> None:
        """Start with the same step at every token."""
        super().__init__(d)
        self.gate = gate_of_size("gate", gate, d)
        self.log_A, self.log_mu = log_parameter("A", A, dtype), log_parameter("mu", mu, dtype)
        step = positive_setting("Delta", Delta, dtype, ())
        self.b = nn.Parameter(step + torch.log(-torch.expm1(-step)))

    @property
    def A(self) -> Float[Tensor, ""]:
        """Rate of decay."""
        return self.log_A.exp()

    @property
    def mu(self) -> Float[Tensor, ""]:
        """Scale of the prediction."""
        return self.log_mu.exp()

    def Delta(self, x: _Inputs, y: _Labels) -> Float[Tensor, "*#batch"]:
        """Step of each token."""
        # Past torch's default threshold of 20 softplus is still 2e-9 off.
        return nn.functional.softplus(self.b + self.gate(x, y), threshold=40)

    def _write(self, state: Weights, x: Tensor, y: Tensor) -> Weights:
        step = self.Delta(x, y)
        decay = torch.exp(-self.A * step).unsqueeze(-1)
        return Weights(torch.addcmul(decay * state.w_hat, x, (self.mu * (step * y)).unsqueeze(-1)))

    def _read(self, state: Weights, x: Tensor) -> Tensor:
        decay = torch.exp(-self.A * self.Delta(x, torch.zeros_like(x[:, 0])))
        return decay * (state.w_hat * x).sum(-1)
