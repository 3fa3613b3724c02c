"""Error-correcting fast weights: delta rule, Longhorn, first-order methods, Mesa, Kalman.

    delta rule          w <- lam (w + mu (y - w'x) x)               [Widrow & Hoff 1960; Schlag et al. 2021]
    gated delta rule    the same with lam_i, mu_i                   [Yang et al. 2024]
    Longhorn            w <- lam (w + (y - w'x) x / (eps + x'x))    [Liu et al. 2024]
    LFOM                w = sum_k c_k H^k b, with H, b means over all examples [Dutta & Sra 2025]
    Mesa                w = argmin sum_i lam^(n+1-i) (y_i - w'x_i)^2 + eps w'w      [von Oswald et al. 2025]
    Kalman              w = posterior mean under the drift (3)      [Kalman 1960]

The interface and the Hebbian layers are in :mod:`icl.models.fast_weights`.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import torch
from annotated_types import Gt, Lt
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks
from icl._bounds import Count, OpenUnit, Positive, validated
from icl.kalman_updates import downdate, innovation
from icl.models._settings import gate_of_size, log_odds_parameter, log_parameter, nonzero_power
from icl.models.fast_weights import (
    DecayingWeights,
    FastWeights,
    Gate,
    KalmanState,
    LFOMState,
    LinearReadout,
    MesaState,
    Weights,
)


class DeltaRule(DecayingWeights):
    """Delta rule, w <- lam (w + mu (y - w'x) x): gradient descent on (y - w'x)^2 / 2 with weight decay.

    Args:
        d: dimension of the inputs.
        lam: decay, one number or d.
        mu: write strength, in units of 1/x^2, one number or d.
        dtype: of the parameters.

    >>> import torch
    >>> from icl.models.delta_layers import DeltaRule
    >>> layer = DeltaRule(2, lam=0.5, mu=1.0)
    >>> x, y = torch.eye(2)[None].repeat(1, 2, 1), torch.tensor([[2.0, -1.0, 2.0, -1.0]])
    >>> [round(float(e), 2) for e in layer.errors(x, y)[0].detach()]  # written in full, then halved twice
    [2.0, -1.0, 1.5, -0.75]
    """

    def _write(self, state: Weights, x: Tensor, y: Tensor) -> Weights:
        error = (y - self._read(state, x)).unsqueeze(-1)
        return Weights(self.lam * torch.addcmul(state.w_hat, x, self.mu * error))


class GatedDelta(LinearReadout):
    """Gated delta rule on unit keys, w <- lam_i (w + beta_i (y - w'x) x / x'x) [Yang et al. 2024].

    lam_i = sigmoid(logit(lam) + forget(x_i, y_i)), beta_i = 2 sigmoid(logit(beta / 2) + write(x_i, y_i)) in (0, 2),
    the range in which no write increases the newest example's error; with 1 it is fitted exactly. x = 0 has no update.

    Args:
        d: dimension of the inputs.
        forget: gate of the decay.
        write: gate of the write strength.
        lam: initial decay.
        beta: initial write strength, dimensionless.
        dtype: of the parameters; gates have their own.
    """

    @validated
    def __init__(
        self,
        d: Count,
        forget: Gate,
        write: Gate,
        *,
        lam: OpenUnit,
        beta: Annotated[float, Gt(0), Lt(2)],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Start as the ungated rule, if the gates start at 0."""
        super().__init__(d)
        self.forget, self.write = gate_of_size("forget", forget, d), gate_of_size("write", write, d)
        self.log_odds = log_odds_parameter("lam", lam, dtype)
        self.log_odds_beta = log_odds_parameter("beta", beta, dtype, most=2.0)

    def lam(self, x: Float[Tensor, "batch d"], y: Float[Tensor, " batch"]) -> Float[Tensor, "*#batch"]:
        """Decay of each token."""
        return torch.sigmoid(self.log_odds + self.forget(x, y))

    def beta(self, x: Float[Tensor, "batch d"], y: Float[Tensor, " batch"]) -> Float[Tensor, "*#batch"]:
        """Write strength of each token."""
        return 2 * torch.sigmoid(self.log_odds_beta + self.write(x, y))

    def _write(self, state: Weights, x: Tensor, y: Tensor) -> Weights:
        gain = self.beta(x, y) * (y - self._read(state, x)) / nonzero_power(x)
        return Weights(self.lam(x, y).unsqueeze(-1) * torch.addcmul(state.w_hat, x, gain.unsqueeze(-1)))


class Longhorn(LinearReadout):
    """Longhorn, w <- lam (w + (y - w'x) x / (eps + x'x)): argmin over v of ||v - w||^2 + (y - v'x)^2 / eps, decayed.

    Args:
        d: dimension of the inputs.
        lam: decay.
        eps: weight of the proximal term, in units of x^2; near 0 the newest example is fitted exactly.
        dtype: of the parameters.
    """

    @validated
    def __init__(self, d: Count, *, lam: OpenUnit, eps: Positive, dtype: torch.dtype = torch.float32) -> None:
        """Keep both."""
        super().__init__(d)
        self.log_odds, self.log_eps = log_odds_parameter("lam", lam, dtype), log_parameter("eps", eps, dtype)

    @property
    def lam(self) -> Float[Tensor, ""]:
        """Decay."""
        return torch.sigmoid(self.log_odds)

    @property
    def eps(self) -> Float[Tensor, ""]:
        """Weight of the proximal term."""
        return self.log_eps.exp()

    def _write(self, state: Weights, x: Tensor, y: Tensor) -> Weights:
        gain = (y - self._read(state, x)) / (self.eps + x.square().sum(-1))
        return Weights(self.lam * torch.addcmul(state.w_hat, x, gain.unsqueeze(-1)))


class LFOM(FastWeights[LFOMState]):
    """Linear first-order method: x' sum_k c_k H^k b with H and b the means of x x' and y x.

    Its predictions are those of L steps from 0 with free step sizes, or of L layers of a Memformer on white inputs:
    w_L is a polynomial of degree L - 1 in H times b [Dutta & Sra 2025, Theorem 3.1]. All examples have equal weights;
    none is forgotten.

    Args:
        d: dimension of the inputs.
        c: the coefficients, c_k in units of 1/x^(2k+2); one a layer.
        dtype: of the parameters.
    """

    @validated
    def __init__(self, d: Count, *, c: Sequence[float] | np.ndarray, dtype: torch.dtype = torch.float32) -> None:
        """Keep the coefficients."""
        super().__init__(d)
        # A copy, or training would change the caller's numbers.
        coefficients = np.array(_checks.real("c", c), dtype=np.float64)
        if coefficients.ndim != 1 or not len(coefficients):
            raise ValueError(f"c must be one number a layer, at least one, got {c!r}")
        self.c = nn.Parameter(torch.tensor(coefficients, dtype=_checks.precision("dtype", dtype)))

    def _start(self, w_hat: Tensor) -> LFOMState:
        return LFOMState(w_hat.unsqueeze(-1).repeat(1, 1, self.d), w_hat, torch.zeros_like(w_hat[:, 0]))

    def _write(self, state: LFOMState, x: Tensor, y: Tensor) -> LFOMState:
        G = torch.addcmul(state.G, x.unsqueeze(-1), x.unsqueeze(-2))
        return LFOMState(G, torch.addcmul(state.b, x, y.unsqueeze(-1)), state.count + 1)

    def _read(self, state: LFOMState, x: Tensor) -> Tensor:
        count = state.count.clamp(min=1).unsqueeze(-1)
        v = state.b / count
        answer = self.c[0] * (v * x).sum(-1)
        for c in self.c[1:]:
            v = (state.G * v.unsqueeze(-2)).sum(-1) / count
            answer = answer + c * (v * x).sum(-1)
        return answer


class Mesa(FastWeights[MesaState]):
    """Mesa layer, exponentially weighted ridge regression: y_hat = c x'(G + eps I)^-1 b.

        G <- lam (G + x x'),    b <- lam (b + y x)

    Solved directly at every read, where MesaNet iterates [von Oswald et al. 2025]. c, initially 1, can shrink the
    prediction towards 0, the mean of drifting weights. Sums and solution are in float64 in every dtype, because the
    solution magnifies their rounding by up to tr(G) / eps; it keeps 16 - log10(tr(G) / eps) digits.

    Args:
        d: dimension of the inputs.
        lam: forgetting factor.
        eps: regularisation, in units of x^2.
        dtype: of the parameters.

    >>> import torch
    >>> from icl.models.delta_layers import Mesa
    >>> x = torch.tensor([[[1.0, 0.0], [1.0, 1.0], [2.0, -1.0]]])
    >>> e = Mesa(2, lam=0.9, eps=1e-6).errors(x, x @ torch.tensor([2.0, -1.0]))
    >>> abs(round(float(e[0, -1].detach()), 3))  # two clean labels determine two weights
    0.0
    """

    @validated
    def __init__(self, d: Count, *, lam: OpenUnit, eps: Positive, dtype: torch.dtype = torch.float32) -> None:
        """Start as plain ridge regression, c = 1."""
        super().__init__(d)
        self.log_odds, self.log_eps = log_odds_parameter("lam", lam, dtype), log_parameter("eps", eps, dtype)
        self.c = nn.Parameter(torch.ones((), dtype=dtype))

    @property
    def lam(self) -> Float[Tensor, ""]:
        """Forgetting factor."""
        return torch.sigmoid(self.log_odds)

    @property
    def eps(self) -> Float[Tensor, ""]:
        """Regularisation."""
        return self.log_eps.exp()

    def _start(self, w_hat: Tensor) -> MesaState:
        b = w_hat.double()
        return MesaState(b.unsqueeze(-1).repeat(1, 1, self.d), b)

    def _write(self, state: MesaState, x: Tensor, y: Tensor) -> MesaState:
        X = x.double()
        G = torch.addcmul(state.G, X.unsqueeze(-1), X.unsqueeze(-2))
        return MesaState(self.lam * G, self.lam * torch.addcmul(state.b, X, y.double().unsqueeze(-1)))

    def _read(self, state: MesaState, x: Tensor) -> Tensor:
        held = state.G.to(torch.float64, copy=True)
        held.diagonal(dim1=-2, dim2=-1).add_(self.eps)
        # A check for singularity would synchronise a GPU at every step.
        w_hat, _ = torch.linalg.solve_ex(held, state.b.double(), check_errors=_checks.is_readable(held))
        return (self.c * (w_hat * x).sum(-1)).to(x)


class Kalman(FastWeights[KalmanState]):
    """Kalman filter of the drift (3), with the drift's parameters trainable.

        k = P x / (x'P x + sigma_y^2),    w <- gamma (w + k (y - w'x)),    P <- gamma^2 (P - k x'P) + sigma_e^2 I

    and P = P_0 I before the first example. With the drift's own parameters it is optimal: no layer beats it.

    P is in float64 in every dtype: the first examples reduce it from P_0 to about sigma_y^2 / x'x, a difference whose
    relative error is the dtype's rounding times P_0 x'x / sigma_y^2. Hence the bound on P_0, up to which answers are
    right to a few thousandths of the rms error; a smaller P_0 is as uninformative.

    Args:
        d: dimension of the inputs.
        gamma: autoregressive coefficient.
        sigma_e: standard deviation of each coordinate of the innovations, in units of y/x.
        sigma_y: standard deviation of noise in the labels, in units of y.
        P_0: variance of each coordinate of the first weights, at most 1e12 sigma_y^2, in units of y^2/x^2.
        dtype: of the parameters.
    """

    @validated
    def __init__(
        self,
        d: Count,
        *,
        gamma: Positive,
        sigma_e: Positive,
        sigma_y: Positive,
        P_0: Positive,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Keep the parameters; ValueError if float64 has no digits for P_0 beside sigma_y^2."""
        super().__init__(d)
        self.log_gamma, self.log_sigma_e = (
            log_parameter("gamma", gamma, dtype),
            log_parameter("sigma_e", sigma_e, dtype),
        )
        self.log_sigma_y, self.log_P_0 = log_parameter("sigma_y", sigma_y, dtype), log_parameter("P_0", P_0, dtype)
        if 1.000001e12 * sigma_y**2 < P_0:
            raise ValueError(
                f"P_0 must be at most 1e12 sigma_y^2, or float64 loses its digits, got {P_0} and {sigma_y}"
            )

    @property
    def gamma(self) -> Float[Tensor, ""]:
        """Autoregressive coefficient."""
        return self.log_gamma.exp()

    @property
    def sigma_e(self) -> Float[Tensor, ""]:
        """Standard deviation of the innovations."""
        return self.log_sigma_e.exp()

    @property
    def sigma_y(self) -> Float[Tensor, ""]:
        """Standard deviation of noise in the labels."""
        return self.log_sigma_y.exp()

    @property
    def P_0(self) -> Float[Tensor, ""]:
        """Variance of the first weights."""
        return self.log_P_0.exp()

    def _start(self, w_hat: Tensor) -> KalmanState:
        first = self.P_0 * torch.eye(self.d, dtype=torch.float64, device=w_hat.device)
        return KalmanState(w_hat, first.repeat(len(w_hat), 1, 1))

    def _write(self, state: KalmanState, x: Tensor, y: Tensor) -> KalmanState:
        Px, s = innovation(state.P, x.double(), dim=1)
        # Innovation variance below round-off: no information, no update.
        S = torch.where(s > 0, s + self.sigma_y.double().square(), torch.inf)
        error = y - self._read(state, x)
        w_hat = self.gamma * torch.addcmul(state.w_hat, Px.to(x), (error / S).to(x).unsqueeze(-1))
        P = self.gamma.square() * downdate(state.P, Px, S, dim=1)
        P.diagonal(dim1=-2, dim2=-1).add_(self.sigma_e.square())
        return KalmanState(w_hat, P)

    def _read(self, state: KalmanState, x: Tensor) -> Tensor:
        return (state.w_hat * x).sum(-1)
