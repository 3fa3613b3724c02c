"""Eigenvectors, and a choice among ties, that depend on the matrix alone."""

import numpy as np
from jaxtyping import Float


def canonical_eigenvectors(
    matrix: Float[np.ndarray, "d d"],
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
    """Eigenvalues of a symmetric matrix, ascending, and canonical eigenvectors (functions of the matrix alone).

    `numpy.linalg.eigh` leaves their signs, and a rotation within an eigenspace, to LAPACK. Here each eigenspace is
    spanned by the axes' projections on it, the longest first, orthogonalised.
    """
    values, vectors = np.linalg.eigh(matrix)
    edges = np.flatnonzero(np.diff(values) > 1e-10 * np.abs(values).max()) + 1
    chosen = []
    for space in np.split(vectors, edges, axis=1):
        left = space @ space.T
        for _ in range(space.shape[1]):
            along = left[:, first_largest(left.diagonal())]
            chosen.append(along / np.sqrt(along @ along))
            left = left - np.outer(chosen[-1], chosen[-1])
    return values, np.stack(chosen, axis=1)


def first_largest(values: Float[np.ndarray, " n"]) -> int:
    """Index of the largest of some numbers >= 0, ties up to rounding going to the first."""
    return int(np.argmax(values >= (1 - 1e-9) * values.max()))
