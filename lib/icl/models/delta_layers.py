"""Fast weights that write what they got wrong, or that solve for the best estimate.

    delta rule          w <- lam (w + mu (y - w'x) x)               [Widrow & Hoff 1960; Schlag et al. 2021]
    gated delta rule    the same with lam_i, mu_i                   [Yang et al. 2024]
    Longhorn            w <- lam (w + (y - w'x) x / (eps + x'x))    [Liu et al. 2024]
    LFOM                w = sum_k c_k H^k b of all examples alike, H, b their means [Dutta & Sra 2025]
    Mesa                w = argmin sum_i lam^(n+1-i) (y_i - w'x_i)^2 + eps w'w      [von Oswald et al. 2025]
    Kalman              w = posterior mean under the drift (3)      [Kalman 1960]

The interface and the rest is in :mod:`icl.models.fast_weights`.
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
from icl.linear_gaussian import downdate, innovation
from icl.models.fast_weights import (
    FastWeights,
    Gate,
    KalmanState,
    LFOMState,
    MesaState,
    Weights,
    _Estimating,
    _Fading,
    _floating,
    _gate,
    _Inputs,
    _Labels,
    _log,
    _log_odds,
    _power,
)


class DeltaRule(_Fading):
    """w <- lam (w + mu (y - w'x) x): gradient descent on (y - w'x)^2 / 2 with weight decay.

    Args:
        d: dimension of the inputs.
        lam: decay, one number or d.
        mu: write strength, in units of 1/x^2, one number or d.
        dtype: of the parameters.
    """

    def _write(self, state: Weights, x: Tensor, y: Tensor) -> Weights:
        error = (y - self._read(state, x)).unsqueeze(-1)
        return Weights(self.lam * torch.addcmul(state.w_hat, x, self.mu * error))


class GatedDelta(_Estimating):
    """w <- lam_i (w + beta_i (y - w'x) x / x'x): the delta rule on keys of length 1, gated [Yang et al. 2024].

    lam_i = sigmoid(logit(lam) + forget(x_i, y_i)), beta_i = 2 sigmoid(logit(beta / 2) + write(x_i, y_i)) in (0, 2),
    between which no write makes the newest example worse; with 1 it is known exactly. x = 0 teaches nothing.

    Args:
        d: dimension of the inputs.
        forget: gate of the decay.
        write: gate of the write strength.
        lam: decay to start from.
        beta: write strength to start from, dimensionless.
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
        """Start as the rule without gates, if they start at 0."""
        super().__init__(d)
        self.forget, self.write = _gate("forget", forget, d), _gate("write", write, d)
        self.log_odds = _log_odds("lam", lam, dtype)
        self.log_odds_beta = _log_odds("beta", beta, dtype, most=2.0)

    def lam(self, x: _Inputs, y: _Labels) -> Float[Tensor, "*#batch"]:
        """Decay of each token."""
        return torch.sigmoid(self.log_odds + self.forget(x, y))

    def beta(self, x: _Inputs, y: _Labels) -> Float[Tensor, "*#batch"]:
        """Write strength of each token."""
        return 2 * torch.sigmoid(self.log_odds_beta + self.write(x, y))

    def _write(self, state: Weights, x: Tensor, y: Tensor) -> Weights:
        gain = self.beta(x, y) * (y - self._read(state, x)) / _power(x)
        return Weights(self.lam(x, y).unsqueeze(-1) * torch.addcmul(state.w_hat, x, gain.unsqueeze(-1)))


class Longhorn(_Estimating):
    """w <- lam (w + (y - w'x) x / (eps + x'x)): the least of (v - w)'(v - w) + (y - v'x)^2 / eps over v, with decay.

    Args:
        d: dimension of the inputs.
        lam: decay.
        eps: weight of staying, in units of x^2; near 0 the newest example is known exactly.
        dtype: of the parameters.
    """

    @validated
    def __init__(self, d: Count, *, lam: OpenUnit, eps: Positive, dtype: torch.dtype = torch.float32) -> None:
        """Keep both."""
        super().__init__(d)
        self.log_odds, self.log_eps = _log_odds("lam", lam, dtype), _log("eps", eps, dtype)

    @property
    def lam(self) -> Float[Tensor, ""]:
        """Decay."""
        return torch.sigmoid(self.log_odds)

    @property
    def eps(self) -> Float[Tensor, ""]:
        """Weight of staying."""
        return self.log_eps.exp()

    def _write(self, state: Weights, x: Tensor, y: Tensor) -> Weights:
        gain = (y - self._read(state, x)) / (self.eps + x.square().sum(-1))
        return Weights(self.lam * torch.addcmul(state.w_hat, x, gain.unsqueeze(-1)))


class LFOM(FastWeights[LFOMState]):
    """x' sum_k c_k H^k b with H and b the means of x x' and y x: what L layers of a Memformer can say on white inputs.

    L steps of a linear first-order method from 0, its step sizes free: w_L is a polynomial of degree L - 1 in H times b
    [Dutta & Sra 2025, Theorem 3.1]. It takes all examples alike and forgets none.

    Args:
        d: dimension of the inputs.
        c: the coefficients, c_k in units of 1/x^(2k+2); as many as layers.
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
        self.c = nn.Parameter(torch.tensor(coefficients, dtype=_floating(dtype)))

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
    """c x'(G + eps I)^-1 b with G <- lam (G + x x'), b <- lam (b + y x): ridge regression that fades its examples.

    Solved when it is read, directly, where MesaNet iterates [von Oswald et al. 2025]. c, at first 1, can shrink the
    answer towards 0, where drifting weights are on average. Sums and solution are in float64 in every dtype, because
    the solution magnifies their rounding by up to tr(G) / eps; it keeps 16 - log10(tr(G) / eps) digits.

    Args:
        d: dimension of the inputs.
        lam: forgetting factor.
        eps: regularisation, in units of x^2.
        dtype: of the parameters.
    """

    @validated
    def __init__(self, d: Count, *, lam: OpenUnit, eps: Positive, dtype: torch.dtype = torch.float32) -> None:
        """Keep both; the answer is the ridge regression's own."""
        super().__init__(d)
        self.log_odds, self.log_eps = _log_odds("lam", lam, dtype), _log("eps", eps, dtype)
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
        # Asking whether a matrix is singular would keep a GPU waiting at every step.
        w_hat, _ = torch.linalg.solve_ex(held, state.b.double(), check_errors=_checks.is_readable(held))
        return (self.c * (w_hat * x).sum(-1)).to(x)


class Kalman(FastWeights[KalmanState]):
    """The Kalman filter of the drift (3) with its law as parameters: k = P x / (x'P x + sigma_y^2), then

        w <- gamma (w + k (y - w'x)),    P <- gamma^2 (P - k x'P) + sigma_e^2 I

    and P = P_0 I before the first example. No layer beats it on its own drift, if the parameters are the drift's.

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
        """Keep the law; ValueError if float64 has no digits for P_0 beside sigma_y^2."""
        super().__init__(d)
        self.log_gamma, self.log_sigma_e = _log("gamma", gamma, dtype), _log("sigma_e", sigma_e, dtype)
        self.log_sigma_y, self.log_P_0 = _log("sigma_y", sigma_y, dtype), _log("P_0", P_0, dtype)
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
        # Where rounding has left no variance, a direction is known as far as P has digits: no update.
        S = torch.where(s > 0, s + self.sigma_y.double().square(), torch.inf)
        error = y - self._read(state, x)
        w_hat = self.gamma * torch.addcmul(state.w_hat, Px.to(x), (error / S).to(x).unsqueeze(-1))
        P = self.gamma.square() * downdate(state.P, Px, S, dim=1)
        P.diagonal(dim1=-2, dim2=-1).add_(self.sigma_e.square())
        return KalmanState(w_hat, P)

    def _read(self, state: KalmanState, x: Tensor) -> Tensor:
        return (state.w_hat * x).sum(-1)
