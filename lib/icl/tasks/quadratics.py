"""Random quadratics for Memformers: one least-squares problem a prompt, identically distributed [Dutta & Sra 2025].

A prompt of n noiseless examples y_i = <w*, x_i> is the quadratic

    R(w) = sum_i (<w, x_i> - y_i)^2 / 2n = (w - w*)' H (w - w*) / 2,    H = sum_i x_i x_i' / n                (2.11)

with x_i ~ N(0, Sigma) and w* ~ N(0, Sigma^-1), so that n H is Wishart of n degrees of freedom. Sec. 3.3 has
Sigma = U' diag(D) U with the D of :data:`SECTION_3_3` and an orthogonal U drawn anew for each run. The prose there
makes D the variances; drawing inputs as U D z makes them D^2, :data:`SQUARED`, and so the problem a worse conditioned
one.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl import _checks
from icl._bounds import Count, Positives, Reals, validated
from icl.tasks._draws import normal
from icl.tasks.core import Prompt, StationaryRegression, square_root

SECTION_3_3 = np.array([1.0, 1.0, 0.5, 0.25, 1.0])
"""The D of sec. 3.3, variances of the inputs in their principal directions."""
SQUARED = SECTION_3_3**2
"""The same numbers taken for standard deviations, hence variances D^2."""
# Numbers drawn at once when only their Hessians are kept: 8 MiB of float64.
_BLOCK = 2**20


@validated
def rotation(d: Count, *, generator: torch.Generator) -> Float[np.ndarray, "d d"]:
    """Draw an orthogonal (d, d) matrix, float64, uniformly (Haar measure), reflections included.

    The Q of a QR decomposition of Gaussian numbers, its columns given the signs of R's diagonal: without them the law
    is that of the decomposition's own habits [Mezzadri 2007].
    """
    _checks.fits_memory("d", d, 8 * d**2)
    Q, R = np.linalg.qr(normal((d, d), generator, torch.float64, "cpu").numpy())
    return Q * np.where(np.diag(R) < 0, -1.0, 1.0)


@validated
def covariance(D: Positives, U: Reals | None = None) -> Float[np.ndarray, "d d"]:
    """Covariance Sigma = U' diag(D) U, float64 and exactly symmetric.

    Args:
        D: (d,) variances in the principal directions, > 0, in x^2; :data:`SECTION_3_3` or :data:`SQUARED` for the
            paper's.
        U: (d, d) orthogonal matrix whose rows are these directions; default the identity.
    """
    D = np.asarray(D, dtype=np.float64)
    if D.ndim != 1 or not D.size:
        raise ValueError(f"D must have shape (d,) with d >= 1, got {D.shape}")
    if U is None:
        return np.diag(D)
    U = np.asarray(U, dtype=np.float64)
    _checks.shape("U", U, (len(D), len(D)), "to match D")
    if (off := np.abs(U @ U.T - np.eye(len(D))).max()) > 1e-9:
        raise ValueError(f"U must be orthogonal, got a matrix whose U U' is {off:.3g} off the identity")
    Sigma = (U.T * D) @ U
    return (Sigma + Sigma.T) / 2


@validated
def regression(Sigma: Any, n: Count) -> StationaryRegression:
    """The paper's task (sec. 3.3): x ~ N(0, Sigma), w* ~ N(0, Sigma^-1), labels without noise of variance d.

    Args:
        Sigma: (d, d) covariance of the inputs, positive definite, in x^2.
        n: labelled examples a prompt.
    """
    Sigma = _checks.positive_definite("Sigma", Sigma)
    inverse = np.linalg.inv(Sigma)
    return StationaryRegression(len(Sigma), n, Sigma_w=(inverse + inverse.T) / 2, Lambda=Sigma)


def _mean_square(x: Tensor) -> Tensor:
    return x.mT @ x / x.shape[-2]


@validated
def hessians(prompt: Prompt) -> Float[Tensor, "batch d d"]:
    """Hessians H = sum_i x_i x_i' / n over the n examples of each prompt (2.11), without the query; in x^2."""
    return _mean_square(prompt.x[:, :-1])


def _curvatures(H: Any) -> Tensor:
    """Check that H is a stack of finite square matrices."""
    _checks.tensor("H", H, 3)
    if H.shape[1] != H.shape[2] or not H.shape[1]:
        raise ValueError(f"H must have shape (batch, d, d) with d >= 1, got {tuple(H.shape)}")
    _checks.precision("dtype", H.dtype)
    if _checks.is_readable(H) and not bool(torch.isfinite(H).all()):
        raise ValueError(f"H must be finite, got {H[~torch.isfinite(H)][0].item()}")
    return H


@validated
def mean_curvature(H: Float[Tensor, "batch d d"]) -> Float[Tensor, " batch"]:
    """Mean eigenvalue tr H / d of each prompt's Hessian, in x^2: an estimate of the variance of its inputs."""
    H = _curvatures(H)
    return H.diagonal(dim1=1, dim2=2).mean(-1)


@validated
def weighted_curvature(H: Float[Tensor, "batch d d"]) -> Float[Tensor, " batch"]:
    """Eigenvalue-weighted mean eigenvalue tr H^2 / tr H of a symmetric H, in x^2; NaN if H is 0."""
    H = _curvatures(H)
    return H.square().sum((1, 2)) / H.diagonal(dim1=1, dim2=2).sum(-1)


@validated
def largest_curvature(H: Float[Tensor, "batch d d"]) -> Float[Tensor, " batch"]:
    """Largest eigenvalue of each prompt's Hessian, in x^2; only the lower triangle of H is read."""
    return torch.linalg.eigvalsh(_curvatures(H))[:, -1]


@validated
def sample_hessians(
    Sigma: Any,
    n: Count,
    batch: Count,
    *,
    generator: torch.Generator,
    dtype: torch.dtype = torch.float64,
) -> Float[Tensor, "batch d d"]:
    """Draw :func:`hessians` for `batch` prompts of `regression(Sigma, n)`, without queries and weights.

    The law is that of a Wishart matrix of n degrees of freedom and scale Sigma, over n. Inputs are drawn some prompts
    at a time, so that a million Hessians need little more memory than they fill.

    Args:
        Sigma: (d, d) covariance of the inputs, positive definite, in x^2.
        n: labelled examples a prompt.
        batch: prompts.
        generator: what to draw from; the result is on its device.
        dtype: torch.float64 or torch.float32.
    """
    Sigma = _checks.positive_definite("Sigma", Sigma)
    d = len(Sigma)
    size = max(1, _BLOCK // (n * d))
    root = torch.as_tensor(square_root(Sigma), dtype=dtype, device=generator.device)
    parts = [
        _mean_square(normal((min(size, batch - start), n, d), generator, dtype, None) @ root)
        for start in range(0, batch, size)
    ]
    return torch.cat(parts)
