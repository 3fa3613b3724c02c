"""Tasks with drifts other than AR(1): higher order, regime switching, heavy tails (not in the papers).

Each is a :class:`~icl.tasks.core.Regression`: a frozen dataclass with its kernel and the drawing of its weights.
:class:`LinearDrift` is Gaussian with a hidden state of any order; :class:`RegimeSwitching` and
:class:`HeavyTailedDrift` are not Gaussian, and `reveal` returns their latent variables.

A model whose answer is linear in the labels, y_hat = sum_i c_i y_i with c_i = c_i(x_1 .. x_{n+1}) (one layer of linear
attention with any gates on inputs, ridge regression, RLS, LMS, and every filter whose gain looks at inputs alone), sees
of any of these laws nothing but the kernel. Proof: with c_{n+1} = -1 its error is sum_i c_i <w_i, x_i>, and inputs and
weights are independent, so that

    E (y_hat - y)^2 = E_x sum_ij c_i c_j x_i' E[w_i w_j'] x_j = sum_ij k_ij E_x[c_i c_j x_i'x_j]

whenever E[w_i w_j'] = k_ij I, as it is for every task here. Heavy tails and switches neither help nor hurt such a model
beyond their kernel; what they cost is that it is not the posterior mean (:mod:`icl.theory.floors.filtering`).
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Ge, Gt, Le
from jaxtyping import Bool, Float
from torch import Tensor

from icl import _checks
from icl._bounds import Count, NonNegative, Real, UnitInterval, validated
from icl.tasks._draws import ar1, normal
from icl.tasks.core import DriftingRegression, Prompt, Regression, square_root


def _factor(matrix: np.ndarray) -> np.ndarray:
    """Symmetric square root without its zero columns, so that no unused normal number is drawn."""
    return square_root(matrix)[:, matrix.diagonal() > 0]


@dataclass(frozen=True, eq=False)
class LinearDrift(Regression):
    """Gaussian drift of any order: every coordinate of w_i is h's_i, with a hidden state s_i = F s_{i-1} + N(0, Q).

    The state has r numbers a coordinate of the weights, s_0 ~ N(0, P_0); coordinates are independent and alike. The
    prompt holds w_1 .. w_{n+1}. With r = 1 it is :class:`~icl.tasks.core.DriftingRegression`: F = gamma, Q = sigma_e^2,
    P_0 = sigma_w^2, h = 1. :func:`ar2`, :func:`two_timescales` and :func:`sinusoids` make the common ones.

    Sizes and inputs are those of every :class:`~icl.tasks.core.Regression`.

    Attributes:
        F: (r, r) transition of the state, dimensionless if all its numbers have the units of h's.
        Q: (r, r) covariance of what is added to it at each step.
        h: (r,) what of it is the weight.
        P_0: (r, r) covariance of s_0.
    """

    F: Any
    Q: Any
    h: Any
    P_0: Any

    def __post_init__(self) -> None:
        """Validate sizes, matrices and covariances."""
        super().__post_init__()
        for name in ("F", "h"):
            object.__setattr__(self, name, np.array(_checks.real(name, getattr(self, name)), dtype=np.float64))
        if self.h.ndim != 1 or not self.h.size:
            raise ValueError(f"h must have shape (r,) with r >= 1, got {self.h.shape}")
        r = len(self.h)
        _checks.shape("F", self.F, (r, r), "to match h")
        for name in ("Q", "P_0"):
            if getattr(self, name) is None:
                raise ValueError(f"{name} must be a ({r}, {r}) covariance, got None")
            object.__setattr__(self, name, _checks.covariance(name, getattr(self, name), r))

    def weight_kernel(self) -> Float[np.ndarray, "time time"]:
        """k_ij = h'F^(i-j) C_j h for i >= j, with C_i = F C_{i-1} F' + Q the covariance of s_i and C_0 = P_0."""
        kernel = np.zeros((self.n + 1, self.n + 1))
        # Column j of `past` is the covariance of the state now with w_j.
        C, past = self.P_0, np.zeros((len(self.h), self.n + 1))
        for i in range(self.n + 1):
            C = self.F @ C @ self.F.T + self.Q
            past = self.F @ past
            past[:, i] = C @ self.h
            kernel[i, : i + 1] = kernel[: i + 1, i] = self.h @ past[:, : i + 1]
        return kernel

    def _weights(self, batch: int, generator: torch.Generator, dtype: torch.dtype, device: Any) -> Tensor:
        _checks.well_scaled("P_0", self.P_0)
        _checks.well_scaled("Q", self.Q)
        start, push = _factor(self.P_0), _factor(self.Q)
        drawn = normal((start.shape[1], batch, self.d), generator, dtype, device)
        F, h, A, B = (torch.as_tensor(array).to(drawn) for array in (self.F, self.h, start, push))
        # States in columns: a product of small matrices per token costs less than a tensordot.
        s = A @ drawn.flatten(1)
        w = drawn.new_empty((self.n + 1, batch * self.d))
        noise = normal((self.n + 1, push.shape[1], batch, self.d), generator, dtype, device).flatten(2)
        for i in range(self.n + 1):
            s = F @ s
            if push.shape[1]:
                s += B @ noise[i]
            w[i] = h @ s
        w = w.view(self.n + 1, batch, self.d)
        return w.transpose(0, 1).contiguous()


@validated
def ar2(
    d: Count,
    n: Count,
    *,
    rho: UnitInterval,
    omega: Annotated[float, Ge(0), Le(np.pi)],
    variance: NonNegative = 1.0,
    **inputs: Any,
) -> LinearDrift:
    """Oscillating AR(2) drift from its stationary distribution: w_i = a_1 w_{i-1} + a_2 w_{i-2} + e_i.

    Its poles are rho exp(+- i omega): a_1 = 2 rho cos(omega), a_2 = -rho^2. The innovations have the variance
    (1 + a_2) ((1 - a_2)^2 - a_1^2) / (1 - a_2) of the weights' own [Box et al. 2015, sec. 3.2.4]: none for rho = 1,
    which is :func:`sinusoids`; everything for rho = 0.

    Args:
        d: dimension of the inputs.
        n: labelled examples a prompt.
        rho: radius of the poles, dimensionless.
        omega: their angle, in radians a step; 2 pi / omega is the period.
        variance: of each coordinate of each w_i, in (y/x)^2.
        inputs: Lambda and inputs, as for LinearDrift.

    >>> from icl.tasks.drifts import ar2
    >>> ar2(d=2, n=8, rho=0.9, omega=0.785).weight_kernel()[0].round(2)
    array([ 1.  ,  0.7 ,  0.09, -0.46, -0.66, -0.46, -0.06,  0.3 ,  0.43])
    """
    a_1, a_2 = 2 * rho * np.cos(omega), -(rho**2)
    # (1 - a_2)^2 - a_1^2 = (1 - rho^2)^2 + (2 rho sin omega)^2, written so that it cannot come out below 0.
    pushed = (1 + a_2) * ((1 + a_2) ** 2 + (2 * rho * np.sin(omega)) ** 2) / (1 - a_2)
    lag = a_1 / (1 - a_2)
    return LinearDrift(
        d,
        n,
        F=[[a_1, a_2], [1.0, 0.0]],
        Q=[[pushed * variance, 0.0], [0.0, 0.0]],
        h=[1.0, 0.0],
        P_0=variance * np.array([[1.0, lag], [lag, 1.0]]),
        **inputs,
    )


@validated
def two_timescales(d: Count, n: Count, *, gammas: Any, variances: Any = (0.5, 0.5), **inputs: Any) -> LinearDrift:
    """Sum of a slow and a fast AR(1) drift, independent, each from its stationary distribution.

    Args:
        d: dimension of the inputs.
        n: labelled examples a prompt.
        gammas: the two autoregressive coefficients, each in [0, 1]; 1 is a part that does not move.
        variances: of a coordinate of each part, >= 0, in (y/x)^2; the weights' own is their sum.
        inputs: Lambda and inputs, as for LinearDrift.
    """
    parts = {}
    for name, value, bounds in (("gammas", gammas, {"at_most": 1.0}), ("variances", variances, {})):
        array = np.array(_checks.real(name, value, at_least=0, **bounds), dtype=np.float64)
        _checks.shape(name, array, (2,))
        parts[name] = array
    g, v = parts["gammas"], parts["variances"]
    return LinearDrift(d, n, F=np.diag(g), Q=np.diag((1 - g**2) * v), h=np.ones(2), P_0=np.diag(v), **inputs)


@validated
def sinusoids(d: Count, n: Count, *, omega: Real, variance: NonNegative = 1.0, **inputs: Any) -> LinearDrift:
    """Sinusoids of random phase and amplitude: w_i = a cos(omega i) + b sin(omega i) with a, b ~ N(0, variance I).

    Nothing is added on the way: 2 d labels in general position tell all that follows. k_ij = variance cos(omega (i-j)),
    which is that of the great circle of radius^2 = d variance (:mod:`icl.theory.one_layer.adversary`) but for the
    factor d.

    Args:
        d: dimension of the inputs.
        n: labelled examples a prompt.
        omega: angle a step, in radians.
        variance: of each coordinate of each w_i, in (y/x)^2.
        inputs: Lambda and inputs, as for LinearDrift.
    """
    cos, sin = np.cos(omega), np.sin(omega)
    return LinearDrift(
        d,
        n,
        F=[[cos, sin], [-sin, cos]],
        Q=np.zeros((2, 2)),
        h=[1.0, 0.0],
        P_0=variance * np.eye(2),
        **inputs,
    )


@dataclass(frozen=True)
class DrawnSteps:
    """Latent variables of a prompt's steps; given them w_i = (0 or gamma) w_{i-1} + N(0, variance_i I) is Gaussian.

    Attributes:
        variance: of what is added at position i to each coordinate, (batch, time), in (y/x)^2.
        restart: whether position i forgets what was before it, (batch, time).
    """

    variance: Float[Tensor, "batch time"]
    restart: Bool[Tensor, "batch time"]


@dataclass(frozen=True, eq=False)
class _Stepping(Regression):
    """Base class of conditionally Gaussian drifts that can reveal the latent variables of their steps."""

    @abstractmethod
    def _steps(
        self, batch: int, generator: torch.Generator, dtype: torch.dtype, device: Any
    ) -> tuple[Tensor, DrawnSteps]:
        """Draw the weights, as `_weights`, and the latent variables of their steps."""

    def _weights(self, batch: int, generator: torch.Generator, dtype: torch.dtype, device: Any) -> Tensor:
        return self._steps(batch, generator, dtype, device)[0]

    @validated
    def reveal(
        self,
        batch: Count,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> tuple[Prompt, DrawnSteps]:
        """Draw the prompts that `sample` draws, with the latent variables of their steps."""
        _checks.fits_memory("batch", batch, 8 * batch * (self.n + 1) * self.d)
        w, steps = self._steps(batch, generator, dtype, device)
        return self._prompt(w, generator, device), steps


@dataclass(frozen=True, eq=False)
class RegimeSwitching(_Stepping):
    """AR(1) drift with random restarts, all coordinates at once.

    At each step, the one to w_1 included, w_i ~ N(0, sigma_w^2 I) anew with probability `switch`, and
    w_i = gamma w_{i-1} + N(0, sigma_e^2 I) otherwise; w_0 ~ N(0, sigma_w^2 I). With switch = 0 it is
    :class:`~icl.tasks.core.DriftingRegression`. `reveal` returns the switches, with variance sigma_w^2.

    Sizes and inputs are those of every :class:`~icl.tasks.core.Regression`.

    Attributes:
        gamma: autoregressive coefficient within a regime, dimensionless.
        sigma_w: standard deviation of each coordinate of w_0 and of every new start, in units of y/x.
        sigma_e: standard deviation of each coordinate of the innovations within a regime, in units of y/x.
        switch: probability of a new start at each step.

    >>> from icl.profile import make_generator
    >>> from icl.tasks import RegimeSwitching
    >>> task = RegimeSwitching(d=2, n=50, gamma=1.0, switch=0.1)
    >>> prompt, steps = task.reveal(4, generator=make_generator("example"))
    >>> steps.restart.sum(1)
    tensor([8, 3, 9, 5])
    """

    gamma: NonNegative
    sigma_w: NonNegative = 1.0
    sigma_e: NonNegative = 0.1
    switch: UnitInterval = 0.02

    def weight_kernel(self) -> Float[np.ndarray, "time time"]:
        """k_ij = ((1 - switch) gamma)^|i-j| k_mm, m = min(i, j): weights before and after a switch are independent.

        k_ii = switch sigma_w^2 + (1 - switch) (gamma^2 k_{i-1,i-1} + sigma_e^2), from k_00 = sigma_w^2.
        """
        kernel = np.zeros((self.n + 2, self.n + 2))
        kernel[0, 0] = self.sigma_w**2
        stay = 1 - self.switch
        for i in range(1, self.n + 2):
            kernel[i, :i] = kernel[:i, i] = stay * self.gamma * kernel[i - 1, :i]
            variance = self.gamma**2 * kernel[i - 1, i - 1] + self.sigma_e**2
            kernel[i, i] = self.switch * self.sigma_w**2 + stay * variance
        return kernel[1:, 1:]

    def _steps(
        self, batch: int, generator: torch.Generator, dtype: torch.dtype, device: Any
    ) -> tuple[Tensor, DrawnSteps]:
        _checks.scales(dtype, sigma_w=self.sigma_w, sigma_e=self.sigma_e)
        w = normal((self.n + 2, batch, self.d), generator, dtype, device)
        # In float64 on the generator's own device, so that the switch times do not depend on dtype or device.
        drawn = torch.rand((self.n + 1, batch), generator=generator, dtype=torch.float64, device=generator.device)
        restart = (drawn < self.switch).to(w.device)
        # torch.where of two Python numbers is float32.
        fresh, pushed, decay = (w.new_full((), value) for value in (self.sigma_w, self.sigma_e, self.gamma))
        scale, decay = torch.where(restart, fresh, pushed), torch.where(restart, 0.0, decay)
        w[0].mul_(self.sigma_w)
        w[1:].mul_(scale[..., None])
        for i in range(1, self.n + 2):
            w[i].addcmul_(w[i - 1], decay[i - 1, :, None])
        return w[1:].transpose(0, 1).contiguous(), DrawnSteps(scale.square().T.contiguous(), restart.T.contiguous())


@dataclass(frozen=True, eq=False)
class HeavyTailedDrift(_Stepping):
    """AR(1) drift with Student-t innovations: w_i = gamma w_{i-1} + e_i, w_0 ~ N(0, sigma_w^2 I).

    e_i = sigma_e sqrt((nu - 2) / c_i) N(0, I) with c_i chi-square of nu degrees of freedom, one for all coordinates of
    a step: a multivariate t of variance sigma_e^2 in each coordinate [Kotz & Nadarajah 2004, (1.2)]. Its kernel is that
    of :class:`~icl.tasks.core.DriftingRegression`, which is its limit for nu -> infinity. Fourth moments are finite for
    nu > 4 only: below, squared errors have a mean but no variance, and their averages converge slowly. `reveal` returns
    the variance sigma_e^2 (nu - 2) / c_i of each step; none starts afresh.

    Sizes and inputs are those of every :class:`~icl.tasks.core.Regression`.

    Attributes:
        gamma: autoregressive coefficient, dimensionless.
        sigma_w: standard deviation of each coordinate of w_0, in units of y/x.
        sigma_e: standard deviation of each coordinate of the innovations, in units of y/x.
        nu: degrees of freedom.
    """

    gamma: NonNegative
    sigma_w: NonNegative = 1.0
    sigma_e: NonNegative = 0.1
    nu: Annotated[float, Gt(2)] = 3.0

    def weight_kernel(self) -> Float[np.ndarray, "time time"]:
        """Kernel of the AR(1) drift with the same variances, as a covariance depends on these alone."""
        return DriftingRegression(self.d, self.n, self.gamma, self.sigma_w, self.sigma_e).weight_kernel()

    def _steps(
        self, batch: int, generator: torch.Generator, dtype: torch.dtype, device: Any
    ) -> tuple[Tensor, DrawnSteps]:
        _checks.scales(dtype, sigma_w=self.sigma_w, sigma_e=self.sigma_e)
        w = normal((self.n + 2, batch, self.d), generator, dtype, device)
        # Half a chi-square of nu degrees of freedom is a gamma number of shape nu / 2; in float64 it is never 0.
        shape = torch.full((self.n + 1, batch), self.nu / 2, dtype=torch.float64, device=generator.device)
        half = torch._standard_gamma(shape, generator=generator)
        variance = (self.sigma_e**2 * (self.nu / 2 - 1) / half).to(dtype=dtype, device=w.device)
        w[0].mul_(self.sigma_w)
        w[1:].mul_(variance.sqrt()[..., None])
        variance = variance.T.contiguous()
        return ar1(w, self.gamma), DrawnSteps(variance, torch.zeros_like(variance, dtype=torch.bool))
