"""Drift with unknown parameters: every prompt draws its own from a list (not in the papers).

:class:`UnknownDrift` is :class:`~icl.tasks.core.DriftingRegression` with labels' noise, one member of a list a prompt.
Members with the same steady variance of the weights have the same law of every single example, so that only how
examples go together tells how fast the weights move. Kernel and noise are means over the members, which is all that a
predictor linear in the labels sees of it (:mod:`icl.tasks.drifts`); the best predictor of all is in
:mod:`icl.theory.floors.unknown_drift`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from icl import _checks
from icl._bounds import Count, NonNegatives, validated
from icl.tasks._draws import normal
from icl.tasks.core import Prompt, Regression


@dataclass(frozen=True, eq=False)
class UnknownDrift(Regression):
    """AR(1) drift with one of m parameter sets, drawn for each prompt; weights start in steady state.

        w_i = gamma_j w_{i-1} + N(0, sigma_e_j^2 I),    y_i = <w_i, x_i> + N(0, sigma_y_j^2),    j drawn once a prompt

    Sizes and inputs are those of every :class:`~icl.tasks.core.Regression`.

    Attributes:
        gammas: autoregressive coefficient of each member, in [0, 1), dimensionless.
        steps: standard deviation of a coordinate of its innovations, > 0, in units of y/x; one number for all, too.
        noises: standard deviation of the noise in its labels, >= 0, in units of y; one number for all, too.
        weights: probability of each member; None is the same for all.
    """

    gammas: NonNegatives
    steps: Any
    noises: Any = 0.0
    weights: Any = None

    def __post_init__(self) -> None:
        """Validate stationary members, lists of equal lengths, and probabilities."""
        super().__post_init__()
        gammas = np.array(self.gammas, dtype=np.float64)
        if gammas.ndim != 1 or not len(gammas) or gammas.max() >= 1:
            raise ValueError(f"gammas must be at least one number in [0, 1), in one row, got {self.gammas!r}")
        object.__setattr__(self, "gammas", gammas)
        for name, bound in (("steps", {"above": 0.0}), ("noises", {"at_least": 0.0})):
            given = np.array(_checks.real(name, getattr(self, name), **bound), dtype=np.float64)
            given = np.full(len(gammas), given) if not given.ndim else given
            _checks.shape(name, given, (len(gammas),), "to match gammas")
            object.__setattr__(self, name, given)
        weights = np.ones(len(gammas)) / len(gammas) if self.weights is None else self.weights
        weights = np.array(_checks.real("weights", weights, above=0), dtype=np.float64)
        _checks.shape("weights", weights, (len(gammas),), "to match gammas")
        if abs(weights.sum() - 1) > 1e-9:
            raise ValueError(f"weights must add up to 1, got {weights.sum():.6g}")
        object.__setattr__(self, "weights", weights)

    @property
    def k0(self) -> Float[np.ndarray, " members"]:
        """Steady-state variance of a weight's coordinate under each member, in (y/x)^2."""
        return self.steps**2 / (1 - self.gammas**2)

    @property
    def sigma_y(self) -> float:
        """Root mean square over members of the label noise's standard deviation, in units of y."""
        return float(np.sqrt(self.weights @ self.noises**2))

    def weight_kernel(self) -> Float[np.ndarray, "time time"]:
        """k_ij = sum_m weight_m k0_m gamma_m^|i-j|, the mean over the members."""
        lag = np.arange(self.n + 1)
        apart = np.abs(lag[:, None] - lag)
        return np.asarray((self.weights * self.k0 * self.gammas ** apart[..., None]).sum(-1))

    def _weights(self, batch: int, generator: torch.Generator, dtype: torch.dtype, device: Any) -> Tensor:
        return self._draw(batch, generator, dtype, device)[0]

    def _draw(
        self, batch: int, generator: torch.Generator, dtype: torch.dtype, device: Any
    ) -> tuple[Tensor, Int[Tensor, " batch"]]:
        """Draw the weights, with the member of each prompt."""
        for sigma_e, sigma_y in zip(self.steps.tolist(), self.noises.tolist(), strict=True):
            _checks.scales(dtype, steps=sigma_e, noises=sigma_y)
        w = normal((self.n + 2, batch, self.d), generator, dtype, device)
        # In float64, so that a prompt's member does not depend on its dtype.
        u = torch.rand(batch, generator=generator, dtype=torch.float64, device=generator.device)
        edges = torch.as_tensor(self.weights.cumsum()[:-1], device=u.device)
        member = torch.bucketize(u, edges, right=True).to(w.device)
        gamma, spread, start = (
            torch.as_tensor(value).to(w)[member][:, None] for value in (self.gammas, self.steps, np.sqrt(self.k0))
        )
        w[0].mul_(start)
        w[1:].mul_(spread)
        for i in range(1, self.n + 2):
            w[i].addcmul_(w[i - 1], gamma)
        return w[1:].transpose(0, 1).contiguous(), member

    @validated
    def reveal(
        self,
        batch: Count,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> tuple[Prompt, Int[Tensor, " batch"]]:
        """Draw the prompts that :meth:`sample` draws, with the member of each."""
        _checks.fits_memory("batch", batch, 8 * batch * (self.n + 1) * self.d)
        w, member = self._draw(batch, generator, dtype, device)
        prompt = self._prompt(w, generator, device)
        if not self.noises.any():
            return prompt, member
        noise = normal(tuple(prompt.y.shape), generator, dtype, device)
        spread = torch.as_tensor(self.noises).to(noise)[member][:, None]
        return Prompt(prompt.x, prompt.y + spread * noise, prompt.w), member

    @validated
    def sample(
        self,
        batch: Count,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> Prompt:
        """Draw `batch` independent prompts from `generator`, in `dtype`, on `device` (default: the generator's)."""
        return self.reveal(batch, generator=generator, dtype=dtype, device=device)[0]
