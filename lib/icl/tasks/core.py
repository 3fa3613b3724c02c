"""Prompts, and the distributions they are drawn from.

A prompt is n labelled examples and a query, y_i = <w_i, x_i> (2); a task says how the weights w_i arise. Tokens are
rows here (the papers write columns). Every task is a frozen dataclass with

    .sample(batch, generator=..., dtype=..., device=...)   a Prompt
    .weight_kernel()                                       k_ij, the covariance of w_i and w_j in each coordinate

so that a sampler and its covariance stand side by side. :class:`Regression` samples for all of them: a
drift says how its weights are drawn, and what their kernel is. Tasks hold arrays, so each equals only itself. Inputs
are Gaussian unless a task is given another :class:`InputLaw`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
import torch
from annotated_types import Ge
from jaxtyping import Float
from torch import Tensor

from icl import _checks
from icl._bounds import Count, Natural, NonNegative, validate_fields, validated
from icl.tasks._draws import ar1, laplace, normal, signs, uniform


@dataclass(frozen=True, eq=False)
class Prompt:
    """Batch of prompts; `time` is n + 1, the query being the last position.

    Attributes:
        x: inputs, (batch, time, d).
        y: labels <w_i, x_i>, (batch, time); the last is the query's, which no model may see.
        w: the weights behind them, (batch, time, d).
    """

    x: Float[Tensor, "batch time d"]
    y: Float[Tensor, "batch time"]
    w: Float[Tensor, "batch time d"]

    def __post_init__(self) -> None:
        """Validate that the arrays describe the same prompts."""
        validate_fields(self)
        if _checks.is_readable(self.y) and not bool(torch.isfinite(self.y).all()):
            raise ValueError(f"y must be finite in {self.y.dtype}, got {self.y[~torch.isfinite(self.y)][0].item()}")
        if self.x.shape[1] < 2:
            raise ValueError(f"x must hold at least one example and the query, got {self.x.shape[1]} position(s)")

    @property
    def batch(self) -> int:
        """Number of prompts."""
        return self.x.shape[0]

    @property
    def n(self) -> int:
        """Number of labelled examples in each prompt."""
        return self.x.shape[1] - 1

    @property
    def d(self) -> int:
        """Dimension of the inputs."""
        return self.x.shape[2]

    def tokens(self) -> Float[Tensor, "batch time tokens"]:
        """Return the prompt matrix Z of (4): rows z_i = (x_i, y_i), with 0 in place of the query's label.

        >>> from icl.profile import make_generator
        >>> from icl.tasks import StationaryRegression
        >>> prompt = StationaryRegression(d=2, n=3).sample(1, generator=make_generator("example"))
        >>> prompt.tokens().shape, prompt.tokens()[0, -1, -1]
        (torch.Size([1, 4, 3]), tensor(0.))
        """
        labels = self.y.clone()
        labels[:, -1] = 0
        return torch.cat([self.x, labels.unsqueeze(-1)], dim=-1)

    @validated
    def last(self, m: Count) -> "Prompt":
        """Return the prompt truncated to the last m examples and the query."""
        if m > self.n:
            raise ValueError(f"m must be at most n = {self.n}, got {m}")
        keep = slice(self.n - m, None)
        return Prompt(self.x[:, keep], self.y[:, keep], self.w[:, keep])


@runtime_checkable
class Task(Protocol):
    """Protocol of a task: sizes, weight covariance and sampler."""

    @property
    def d(self) -> int:
        """Dimension of the inputs."""
        ...

    @property
    def n(self) -> int:
        """Number of labelled examples."""
        ...

    @property
    def Lambda(self) -> Any:
        """Covariance of the inputs, (d, d)."""
        ...

    @property
    def inputs(self) -> "InputLaw":
        """Distribution of the white inputs, before colouring by Lambda."""
        ...

    def weight_kernel(self) -> Float[np.ndarray, "time time"]:
        """Covariance of w_i and w_j in each coordinate, i, j = 1 .. n+1."""
        ...

    def sample(
        self,
        batch: int,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> Prompt:
        """Draw a batch of independent prompts."""
        ...


@dataclass(frozen=True)
class InputLaw:
    """Distribution of white inputs: independent coordinates, symmetric about 0, of variance 1.

    One layer of linear attention sees of it only the kurtosis: what is exact for Gaussian inputs is exact for all of
    them once the 2 that comes from E z^4 - 1 = 2 is replaced by kurtosis - 1
    (:mod:`icl.theory.one_layer.closed_forms`).

    Attributes:
        name: for tables and figures.
        kurtosis: the fourth moment E z^4; 3 for Gaussian inputs.
        draw: (shape, generator, dtype, device) -> white inputs.
    """

    name: str
    kurtosis: Annotated[float, Ge(1)]
    draw: Callable[[tuple[int, ...], torch.Generator, torch.dtype, Any], Tensor]

    def __post_init__(self) -> None:
        """Validate the kurtosis, which is at least 1 at variance 1."""
        validate_fields(self)


GAUSSIAN = InputLaw("Gaussian", 3.0, normal)
UNIFORM = InputLaw("uniform", 9 / 5, uniform)
RADEMACHER = InputLaw("signs", 1.0, signs)
LAPLACE = InputLaw("Laplace", 6.0, laplace)


def square_root(matrix: np.ndarray) -> np.ndarray:
    """Symmetric square root of a covariance, which may be singular.

    The one root that depends on the matrix alone: a root built from eigenvectors also depends on the signs, and on the
    rotation within an eigenspace, that LAPACK happens to choose on a machine.
    """
    _checks.detached("matrix", matrix)
    matrix = np.asarray(matrix)
    values, vectors = np.linalg.eigh(_checks.covariance("matrix", matrix, len(np.atleast_1d(matrix))))
    # Zero eigenvalues come out as rounding, whose root would be 1e-8. Rounding is relative to the variances that an
    # eigenvalue is a difference of, not to the largest eigenvalue.
    values[values <= 1e-14 * (vectors**2).T @ matrix.diagonal()] = 0
    return (vectors * np.sqrt(values)) @ vectors.T


def _colour(white: Tensor, matrix: np.ndarray) -> Tensor:
    """Give white rows the covariance `matrix`; for the identity return them unchanged."""
    if np.array_equal(matrix, np.eye(len(matrix))):
        return white
    return white @ torch.as_tensor(square_root(matrix), dtype=white.dtype, device=white.device)


@dataclass(frozen=True, eq=False)
class Regression(ABC):
    """Base class of the drifts: sizes, input distribution and sampler; a subclass adds its settings and two methods.

    To add a drift, write a frozen dataclass of this class with :meth:`weight_kernel`, and `_weights`, which draws
    w_1 .. w_{n+1} (one for all positions if they do not move) from good arguments alone; they are drawn before the
    inputs.

    Attributes:
        d: dimension of the inputs, at least 1.
        n: labelled examples a prompt, at least 1.
        Lambda: (d, d) covariance of the inputs; None is the identity.
        inputs: law of the white inputs that Lambda colours; it must be diagonal where they are not Gaussian.
    """

    d: Count
    n: Count
    Lambda: Any = field(default=None, kw_only=True)
    inputs: InputLaw = field(default=GAUSSIAN, kw_only=True)

    def __post_init__(self) -> None:
        """Validate sizes, covariance and input distribution."""
        validate_fields(self)
        validate_fields(self)
        object.__setattr__(self, "Lambda", _checks.covariance("Lambda", self.Lambda, self.d))
        # Colouring would mix the coordinates of another law than the Gaussian.
        if self.inputs.kurtosis != GAUSSIAN.kurtosis and not np.array_equal(self.Lambda, np.diag(np.diag(self.Lambda))):
            law = self.inputs.name
            raise ValueError(f"Lambda must be diagonal for inputs that are not Gaussian ({law}), got {self.Lambda}")

    @abstractmethod
    def weight_kernel(self) -> Float[np.ndarray, "time time"]:
        """Covariance of w_i and w_j in each coordinate, i, j = 1 .. n+1."""

    @abstractmethod
    def _weights(self, batch: int, generator: torch.Generator, dtype: torch.dtype, device: Any) -> Tensor:
        """Draw the weights, (batch, n+1, d), or (batch, 1, d) if they are constant."""

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
        _checks.fits_memory("batch", batch, 8 * batch * (self.n + 1) * self.d)
        return self._prompt(self._weights(batch, generator, dtype, device), generator, device)

    def _prompt(self, w: Tensor, generator: torch.Generator, device: Any) -> Prompt:
        """Draw inputs for these weights and label them."""
        _checks.finite_weights(self, w[:, -1])
        x = _colour(self.inputs.draw((len(w), self.n + 1, self.d), generator, w.dtype, device), self.Lambda)
        return Prompt(x=x, y=(w * x).sum(-1), w=w.expand_as(x))


@dataclass(frozen=True, eq=False)
class StationaryRegression(Regression):
    """Regression with constant weights: w_i = w ~ N(0, Sigma_w), x_i ~ N(0, Lambda).

    The classical setting of in-context regression [Garg et al. 2022; Zhang et al. 2024], and (3) with gamma = 1 and
    sigma_e = 0.

    Sizes and inputs are those of every :class:`Regression`.

    Attributes:
        Sigma_w: (d, d) covariance of the weights; None is the identity.
    """

    Sigma_w: Any = None

    def __post_init__(self) -> None:
        """Validate sizes and covariances."""
        super().__post_init__()
        object.__setattr__(self, "Sigma_w", _checks.covariance("Sigma_w", self.Sigma_w, self.d))

    def weight_kernel(self) -> Float[np.ndarray, "time time"]:
        """k_ij = 1: the covariance of w_i and w_j is Sigma_w itself, whatever i and j."""
        return np.ones((self.n + 1, self.n + 1))

    def _weights(self, batch: int, generator: torch.Generator, dtype: torch.dtype, device: Any) -> Tensor:
        return _colour(normal((batch, 1, self.d), generator, dtype, device), self.Sigma_w)


@dataclass(frozen=True, eq=False)
class DriftingRegression(Regression):
    """First-order autoregressive drift (3): w_i = gamma w_{i-1} + e_i with w_0 ~ N(0, sigma_w^2 I).

    The innovations are e_i ~ N(0, sigma_e^2 I), the inputs x_i ~ N(0, Lambda), all independent.
    gamma < 1 forgets its start and converges to the variance sigma_e^2 / (1 - gamma^2); gamma = 1 is a random walk;
    gamma > 1 grows without bound. The prompt holds w_1 .. w_{n+1}; w_0 is never observed.

    Sizes and inputs are those of every :class:`Regression`.

    Attributes:
        gamma: autoregressive coefficient, dimensionless.
        sigma_w: standard deviation of each coordinate of w_0, in units of y/x.
        sigma_e: standard deviation of each coordinate of the innovations e_i, in units of y/x.

    >>> from icl.profile import make_generator
    >>> from icl.tasks import DriftingRegression
    >>> task = DriftingRegression(d=2, n=3, gamma=0.9, sigma_e=0.1)
    >>> prompt = task.sample(8, generator=make_generator("example"))
    >>> prompt.x.shape, prompt.y.shape, task.weight_kernel().diagonal().round(3)
    (torch.Size([8, 4, 2]), torch.Size([8, 4]), array([0.82 , 0.674, 0.556, 0.46 ]))
    """

    gamma: NonNegative
    sigma_w: NonNegative = 1.0
    sigma_e: NonNegative = 0.1

    def weight_kernel(self) -> Float[np.ndarray, "time time"]:
        """k_ij = gamma^|i-j| k_min(i,j),min(i,j) with k_ii = gamma^2 k_{i-1,i-1} + sigma_e^2 and k_00 = sigma_w^2."""
        kernel = np.zeros((self.n + 2, self.n + 2))
        kernel[0, 0] = self.sigma_w**2
        for i in range(1, self.n + 2):
            kernel[i, :i] = kernel[:i, i] = self.gamma * kernel[i - 1, :i]
            kernel[i, i] = self.gamma**2 * kernel[i - 1, i - 1] + self.sigma_e**2
        return kernel[1:, 1:]

    def _weights(self, batch: int, generator: torch.Generator, dtype: torch.dtype, device: Any) -> Tensor:
        _checks.scales(dtype, sigma_w=self.sigma_w, sigma_e=self.sigma_e)
        w = normal((self.n + 2, batch, self.d), generator, dtype, device).mul_(self.sigma_e)
        if self.sigma_e:
            w[0].mul_(self.sigma_w / self.sigma_e)
        else:
            w[0] = self.sigma_w * normal((batch, self.d), generator, dtype, device)
        return ar1(w, self.gamma)


@dataclass(frozen=True, eq=False)
class SmoothDrift(Regression):
    """Deterministic smooth drift: w_i = w(i / (n+1)), a smooth curve in rescaled time drawn once a prompt (sec. 2).

        w(u) = sigma_w / sqrt(K + 1) * sum_{k=0}^{K} [a_k cos(pi k u) + b_k sin(pi k u)],   a_k, b_k ~ N(0, I)

    Given its coefficients the curve is not random at all: nothing is added on the way from one example to the next.
    Over prompts its coordinates have variance sigma_w^2 at every u, and covariance
    k(u, v) = sigma_w^2 / (K + 1) * sum_k cos(pi k (u - v)).

    Sizes and inputs are those of every :class:`Regression`.

    Attributes:
        harmonics: K; 0 is the stationary task, more bend faster.
        sigma_w: standard deviation of each coordinate of w(u), in units of y/x.
    """

    harmonics: Natural = 3
    sigma_w: NonNegative = 1.0

    def _phases(self) -> np.ndarray:
        """pi k u for u = 1/(n+1) .. 1 and k = 0 .. K, shape (n+1, K+1)."""
        u = np.arange(1, self.n + 2) / (self.n + 1)
        return np.pi * np.outer(u, np.arange(self.harmonics + 1))

    def weight_kernel(self) -> Float[np.ndarray, "time time"]:
        """k(u_i, u_j) at u_i = i / (n+1)."""
        phases = self._phases()
        return self.sigma_w**2 / (self.harmonics + 1) * np.cos(phases[:, None] - phases[None]).sum(-1)

    def _weights(self, batch: int, generator: torch.Generator, dtype: torch.dtype, device: Any) -> Tensor:
        _checks.scales(dtype, sigma_w=self.sigma_w)
        phases = self._phases()
        basis = np.concatenate([np.cos(phases), np.sin(phases)], axis=1) * self.sigma_w / np.sqrt(self.harmonics + 1)
        coefficients = normal((batch, basis.shape[1], self.d), generator, dtype, device)
        return torch.as_tensor(basis, dtype=dtype, device=coefficients.device) @ coefficients


@validated
def batches(
    task: Any,
    total: Count,
    *,
    generator: torch.Generator,
    size: Count = 20_000,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Iterator[Prompt]:
    """Yield `total` prompts of `task` in batches of at most `size`, to bound memory."""
    # Any object with `sample` will do.
    if isinstance(task, type) or not callable(getattr(task, "sample", None)):
        raise ValueError(f"task must be an icl.tasks.core.Task, or sample as one does, got {task!r}")
    for start in range(0, total, size):
        yield task.sample(min(size, total - start), generator=generator, dtype=dtype, device=device)
