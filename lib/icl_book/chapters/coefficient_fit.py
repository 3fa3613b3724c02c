"""Coefficients of a first-order method fitted to a few prompts, and their generalisation to others.

A method with the error matrix M (:mod:`icl.models.first_order`) is asked for numbers on each prompt, rows M start, all
of which should be 0. What is asked decides how many equations a prompt gives:

- :func:`label_targets`: that the query's label is met. One.
- :func:`value_targets`: that f of [Dutta & Sra 2025, (2.11)] is small. d of them, on the scale of the examples.
- :func:`risk_targets`: that the expected squared error over query and w* is. d^2.

Scalar coefficients make M a polynomial of H with p(0) = 1: the loss is quadratic in its coefficients, and
:func:`fit_polynomial` is one least-squares problem. With diagonal ones it is a polynomial of degree 2 L in them, and
:func:`fit_diagonals` descends by Gauss-Newton steps in a trust region.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import least_squares
from torch import Tensor

from icl import _checks
from icl._bounds import Count, validate_fields, validated
from icl.models.first_order import diagonal_errors, diagonal_jacobian
from icl.tasks import Prompt
from icl.tasks.quadratics import hessians


@dataclass(frozen=True, eq=False)
class Target:
    """Fitting target: residuals rows M start of every prompt, whose squares are the loss.

    Attributes:
        H: curvatures X'X / n, in x^2.
        rows: left factor, which measures the error.
        start: initial error, to which M is applied.
    """

    H: Float[Tensor, "batch d d"]
    rows: Float[Tensor, "batch rows d"]
    start: Float[Tensor, "batch d columns"]

    def __post_init__(self) -> None:
        """Check that shapes and dtypes agree."""
        validate_fields(self)
        _checks.precision("dtype", self.H.dtype)
        for name, value in vars(self).items():
            if not value.numel() or not bool(torch.isfinite(value).all()):
                raise ValueError(f"{name} must hold numbers, all of them finite, got {value}")


@validated
def label_targets(prompt: Prompt) -> Target:
    """Target: the query's label of each prompt, by the error <w_L - w*, x_q> from w_0 = 0; one equation a prompt."""
    H = hessians(prompt)
    return Target(H, prompt.x[:, -1:], _weights(prompt))


@validated
def value_targets(prompt: Prompt) -> Target:
    """Target: f(w_L) = (w_L - w*)' H (w_L - w*) / 2 of every prompt (2.11), w_0 = 0, in y^2; d equations a prompt."""
    H = hessians(prompt)
    _checks.precision("dtype", H.dtype)
    values, vectors = torch.linalg.eigh(H)
    return Target(H, (vectors * (values.clamp(min=0) / 2).sqrt()[:, None]) @ vectors.mT, _weights(prompt))


@validated
def risk_targets(H: Float[Tensor, "batch d d"], Sigma: Any) -> Target:
    """Target: E <w_L - w*, x_q>^2 over x_q ~ N(0, Sigma), w* ~ N(0, Sigma^-1) (`icl.models.memformer.risks`), in y^2.

    Args:
        H: curvatures X'X / n of the prompts, in x^2.
        Sigma: (d, d) covariance of the inputs, positive definite, in x^2.
    """
    Sigma = _checks.positive_definite("Sigma", Sigma)
    values, vectors = np.linalg.eigh(Sigma)
    root, inverse = (torch.from_numpy((vectors * values**power) @ vectors.T).to(H) for power in (0.5, -0.5))
    if H.shape[1:] != root.shape:
        raise ValueError(f"Sigma must have shape {tuple(H.shape[1:])} to match H, got {Sigma.shape}")
    return Target(H, root.expand_as(H), inverse.expand_as(H))


def _weights(prompt: Prompt) -> Tensor:
    w = prompt.w[:, :1]
    if not torch.equal(w.expand_as(prompt.w), prompt.w):
        raise ValueError(f"prompt must have weights that stay, got some that move by {(prompt.w - w).abs().max():.3g}")
    return w.mT


@validated
def prompt_losses(problem: Target, Lambda: Float[Tensor, "L L d"]) -> Float[Tensor, " batch"]:
    """Sum of squares of rows M_L start, per prompt.

    Args:
        problem: the fitting target.
        Lambda: coefficients as in :func:`~icl.models.first_order.diagonal_errors`.
    """
    if not bool(torch.isfinite(Lambda).all()):
        raise ValueError(f"Lambda must be finite, got {Lambda[~torch.isfinite(Lambda)][0].item()}")
    return (problem.rows @ diagonal_errors(problem.H, Lambda, problem.start)[:, -1]).square().sum((1, 2))


def _powers(problem: Target, layers: int) -> list[Tensor]:
    """Products rows H^k start for k = 0 .. layers, in float64."""
    moved = [problem.start.double()]
    for _ in range(layers):
        moved.append(problem.H.double() @ moved[-1])
    return [problem.rows.double() @ each for each in moved]


@validated
def polynomial_losses(problem: Target, p: Float[np.ndarray, "depths"]) -> Float[Tensor, " batch"]:
    """Sum of squares of rows p(H) start, per prompt: the loss of scalar coefficients.

    Args:
        problem: the fitting target.
        p: ascending coefficients, at least one.
    """
    if not len(p):
        raise ValueError("p must have at least one coefficient, got none")
    terms = (float(c) * power for c, power in zip(p, _powers(problem, len(p) - 1), strict=True))
    return torch.stack(list(terms)).sum(0).square().sum((1, 2))


@validated
def fit_polynomial(problem: Target, layers: Count) -> Float[np.ndarray, "depths"]:
    """Least-squares fit of scalar coefficients: ascending (1, c_1 .. c_L) of M = p(H) with the least mean loss.

    Where prompts give fewer equations than there are coefficients it is the solution of least norm.

    Args:
        problem: the fitting target.
        layers: degree L.
    """
    powers = _powers(problem, layers)
    target, *features = (power.flatten().numpy(force=True) for power in powers)
    return np.append(1.0, np.linalg.lstsq(np.stack(features, axis=1), -target, rcond=None)[0])


@dataclass(frozen=True, eq=False)
class CoefficientFit:
    """Result of a fit of diagonal coefficients.

    Attributes:
        Lambda: the coefficients.
        loss: mean over the prompts of the fit, in units of y^2.
        gradient: Euclidean norm of that mean's gradient there.
        evaluations: number of evaluations of the loss.
    """

    Lambda: Float[Tensor, "L L d"]
    loss: float
    gradient: float
    evaluations: int


@validated
def fit_diagonals(problem: Target, Lambda: Float[Tensor, "L L d"], *, evaluations: Count = 200) -> CoefficientFit:
    """Fit diagonal coefficients to a local minimum of the mean loss over the prompts, from a given start.

    Gauss-Newton steps in a trust region (`scipy.optimize.least_squares`), with
    :func:`~icl.models.first_order.diagonal_jacobian`. Where equations are fewer than coefficients it ends on a solution
    near the start, for the steps are of least norm.

    Args:
        problem: the fitting target, in float64.
        Lambda: where to start; not at 0, where only the last step is felt.
        evaluations: at most so many of the loss.

    Raises:
        ValueError: if arguments do not fit together, or dtypes are not float64.
    """
    _checks.dtype("problem", problem.H, torch.float64)
    _checks.detached("Lambda", Lambda)
    first = prompt_losses(problem, Lambda)
    if not bool(torch.isfinite(first).all()):
        raise ValueError(f"Lambda must start at a finite loss, got {first.mean().item()}")
    free = torch.ones(Lambda.shape[:2], dtype=torch.bool, device=Lambda.device).tril()

    def table(values: np.ndarray) -> Tensor:
        full = torch.zeros_like(Lambda)
        full[free] = torch.from_numpy(values).to(full).view(-1, Lambda.shape[-1])
        return full

    def residuals(values: np.ndarray) -> np.ndarray:
        M = diagonal_errors(problem.H, table(values), problem.start)[:, -1]
        return (problem.rows @ M).flatten().numpy(force=True)

    def jacobian(values: np.ndarray) -> np.ndarray:
        every = diagonal_jacobian(problem.H, table(values), problem.start, problem.rows)
        return every[..., free, :].flatten(0, 2).flatten(1).numpy(force=True)

    end = least_squares(
        residuals,
        Lambda[free].flatten().numpy(force=True),
        jac=jacobian,
        max_nfev=evaluations,
        ftol=1e-12,
        xtol=1e-12,
        gtol=1e-12,
    )
    batch = len(problem.H)
    return CoefficientFit(table(end.x), 2 * end.cost / batch, 2 * float(np.linalg.norm(end.grad)) / batch, end.nfev)
