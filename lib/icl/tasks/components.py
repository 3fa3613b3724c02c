"""Prompts from a Gaussian mixture whose components differ in mean and covariance [Dutta & Sra 2025, sec. 4.2, Thm 4.1].

Component m has inputs x ~ N(mu_m, Sigma_m) and weights w* ~ N(mu_m, Sigma_m^-1). :mod:`icl.tasks.mixtures` has mixtures
of drifts, in equal parts and about 0; here a component is drawn for each prompt, or for each token, and is kept beside
it.

What a linear model's risk needs of a component are second moments about 0, not covariances:

    S_x = E x x' = Sigma + mu mu',        S_w = E w* w*' = Sigma^-1 + mu mu'
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from icl import _checks
from icl._bounds import Count, Natural, Reals, validate_fields, validated
from icl.tasks._draws import normal
from icl.tasks.core import Prompt


@dataclass(frozen=True, eq=False)
class ComponentPrompt(Prompt):
    """Batch of prompts with the mixture component of each.

    Attributes:
        component: of the weights of each prompt, (batch,), from 0.
        of_inputs: of each input, (batch, time); that of the weights unless components are drawn for each token.
    """

    component: Int[Tensor, " batch"]
    of_inputs: Int[Tensor, "batch time"]

    def __post_init__(self) -> None:
        """Validate that the arrays describe the same prompts."""
        super().__post_init__()
        for name, value, shape in (
            ("component", self.component, (len(self.x),)),
            ("of_inputs", self.of_inputs, tuple(self.x.shape[:2])),
        ):
            _checks.shape(name, value, shape, "to match x")
            _checks.dtype(name, value, torch.int64)


def _matrices(name: str, values: Any, d: int) -> np.ndarray:
    """Positive definite matrices, from multiples of the identity or as given: (components, d, d), float64."""
    array = np.asarray(_checks.real(name, values), dtype=np.float64)
    if array.ndim == 1:
        array = array[:, None, None] * np.eye(d)
    if array.ndim != 3 or array.shape[1:] != (d, d) or not len(array):
        raise ValueError(f"{name} must have shape (components,) or (components, {d}, {d}), got {array.shape}")
    for matrix in array:
        least, *_, largest = np.linalg.eigvalsh(_checks.covariance(name, matrix, d))[[0, -1]]
        if not least > 1e-12 * largest:
            raise ValueError(f"{name} must be positive definite, the smallest eigenvalue is: got {least:.3g}")
    return (array + array.swapaxes(1, 2)) / 2


@dataclass(frozen=True, eq=False)
class GaussianComponents:
    """Noiseless regression on a mixture of Gaussians: x ~ N(mu_m, Sigma_m), w* ~ N(mu_m, Sigma_m^-1), y = <w*, x>.

    Samples as tasks do. It is no :class:`~icl.tasks.core.Task`: weights have a mean, and no kernel says their law.

    Attributes:
        d: dimension of the inputs.
        n: labelled examples a prompt.
        means: mu_m: (components,) multiples of the vector of ones, or (components, d) vectors; in units of x.
        covariances: Sigma_m: (components,) multiples of the identity, > 0, or (components, d, d) matrices, positive
            definite; in x^2.
        shares: (components,) of prompts, or of tokens, > 0; they are divided by their sum. None is equal shares.
        per_token: every input has a component of its own, independent of that of w*; the inputs then say nothing of
            w*'s. Else a prompt has one, for its inputs and w*.
    """

    d: Count
    n: Count
    means: Reals
    covariances: Any
    shares: Any = None
    per_token: bool = False

    def __post_init__(self) -> None:
        """Validate sizes, distributions and shares."""
        validate_fields(self)
        covariances = _matrices("covariances", self.covariances, self.d)
        count = len(covariances)
        means = np.asarray(self.means, dtype=np.float64)
        if means.shape == (count,):
            means = means[:, None] * np.ones(self.d)
        if means.shape != (count, self.d):
            raise ValueError(
                f"means must have shape ({count},) or ({count}, {self.d}) to match covariances, got {means.shape}"
            )
        given = np.ones(count) if self.shares is None else self.shares
        shares = np.asarray(_checks.real("shares", given, above=0), dtype=np.float64)
        if shares.shape != (count,):
            raise ValueError(f"shares must have shape ({count},) to match covariances, got {shares.shape}")
        for name, value in (("means", means), ("covariances", covariances), ("shares", shares / shares.sum())):
            object.__setattr__(self, name, value)

    @property
    def count(self) -> int:
        """Number of components."""
        return len(self.shares)

    @property
    def S_x(self) -> Float[np.ndarray, "components d d"]:
        """Second moment of the query, by the component of its weights; with `per_token` that of the mixture."""
        each = self.covariances + self.means[:, :, None] * self.means[:, None]
        if self.per_token:
            each = np.broadcast_to(np.tensordot(self.shares, each, 1), each.shape)
        return np.array(each)

    @property
    def S_w(self) -> Float[np.ndarray, "components d d"]:
        """Second moment of the weights, by component."""
        inverses = np.linalg.inv(self.covariances)
        return (inverses + inverses.swapaxes(1, 2)) / 2 + self.means[:, :, None] * self.means[:, None]

    @validated
    def only(self, component: Natural) -> "GaussianComponents":
        """Task of a single component, 0 .. count - 1."""
        m = component
        if m >= self.count:
            raise ValueError(f"component must be at most {self.count - 1}, got {component}")
        return GaussianComponents(self.d, self.n, self.means[[m]], self.covariances[[m]])

    @validated
    def sample(
        self,
        batch: Count,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> ComponentPrompt:
        """Draw `batch` independent prompts from `generator`, in `dtype`, on `device` (default: the generator's)."""
        _checks.fits_memory("batch", batch, 8 * batch * (self.n + 1) * self.d)
        shares = torch.as_tensor(self.shares, dtype=torch.float64, device=generator.device)

        def drawn(*shape: int) -> Tensor:
            flat = torch.multinomial(shares, int(np.prod(shape)), replacement=True, generator=generator)
            return flat.view(shape).to(generator.device if device is None else device)

        component = drawn(batch)
        of_inputs = drawn(batch, self.n + 1) if self.per_token else component[:, None].repeat(1, self.n + 1)
        means, covariances = (torch.as_tensor(value) for value in (self.means, self.covariances))
        root = torch.linalg.cholesky(covariances)
        # w* = mu + L'^-1 z has the covariance (L L')^-1.
        inverse = torch.linalg.inv(root).mT

        def coloured(white: Tensor, roots: Tensor, which: Tensor) -> Tensor:
            means_here, roots_here = means.to(white), roots.to(white)
            if self.count == 1:
                return means_here[0] + white @ roots_here[0].T
            return means_here[which] + (roots_here[which] @ white.unsqueeze(-1)).squeeze(-1)

        w = coloured(normal((batch, self.d), generator, dtype, device), inverse, component)
        x = coloured(normal((batch, self.n + 1, self.d), generator, dtype, device), root, of_inputs)
        _checks.finite_weights(self, w)
        w = w.unsqueeze(1)
        return ComponentPrompt(x, (w * x).sum(-1), w.expand_as(x), component, of_inputs)

    @validated
    def posterior(self, X: Float[Tensor, "batch n d"]) -> Float[Tensor, "batch components"]:
        """Posterior probability of every component given a prompt's inputs alone, without labels.

        Args:
            X: inputs of the examples, any number of them.

        Returns:
            probabilities, rows of sum 1. With `per_token` the inputs say nothing of the weights: the shares.
        """
        _checks.shape("X", X, (None, None, self.d), "to match the task")
        _checks.precision("dtype", X.dtype)
        if not bool(torch.isfinite(X).all()):
            raise ValueError(f"X must be finite, got {X[~torch.isfinite(X)][0].item()}")
        log_p = torch.as_tensor(self.shares).log().to(X).expand(len(X), -1)
        if not self.per_token:
            roots = torch.linalg.cholesky(torch.as_tensor(self.covariances)).to(X)
            # Components before prompts: each whitens all inputs.
            off = X.unsqueeze(0) - torch.as_tensor(self.means).to(X)[:, None, None]
            white = torch.linalg.solve_triangular(roots[:, None], off.mT, upper=False)
            scale = roots.diagonal(dim1=1, dim2=2).log().sum(-1)
            log_p = log_p - (white.square().sum((-2, -1)) / 2).T - X.shape[1] * scale
        return log_p.softmax(-1)
