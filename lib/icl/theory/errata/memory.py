"""Displayed equations of the Memformer paper, as printed and corrected [Dutta & Sra 2025, sec. 2 to 4, App. A and D].

Each erratum is about a quantity that can be computed three ways: by the display as printed, by the display corrected,
and by reading it off the tokens of the model that the display describes. :func:`deviation` compares one of the first
two with the third. A printed form can be off in number, have another shape, or not be computable at all. When one
erratum is tested, all others are corrected.

Arrays are in columns here, as the paper writes them: x_i is X[:, i], and y_l of all tokens the last row of Z_l.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Float

from icl import _checks
from icl._bounds import validate_fields, validated
from icl.theory.errata.erratum import Erratum, Statement


@dataclass(frozen=True, eq=False)
class Problem:
    """One prompt and the parameters of a few layers. Errata show where A is not symmetric and n > d.

    Attributes:
        X: (d, n) inputs of the examples, n > d of full rank.
        x: (d,) the query's input.
        w: (d,) weights w* behind the labels X'w*.
        A: (L, d, d) blocks of (2.8), L < n + 1.
        Gamma: (L, L) lower triangular; Gamma[l, j] stands in every entry of Gamma_j^l (3.4).
    """

    X: Float[np.ndarray, "d n"]
    x: Float[np.ndarray, " d"]
    w: Float[np.ndarray, " d"]
    A: Float[np.ndarray, "L d d"]
    Gamma: Float[np.ndarray, "L L"]

    def __post_init__(self) -> None:
        """Validate that the shapes match."""
        validate_fields(self)
        (d, n), layers = self.X.shape, len(self.A)
        if not 0 < d < n:
            raise ValueError(f"X must have shape (d, n) with 0 < d < n, got {self.X.shape}")
        if not 0 < layers < n + 1:
            raise ValueError(f"A must have from 1 to n = {n} layers, got {layers}")

    @property
    def n(self) -> int:
        """Number of examples."""
        return self.X.shape[1]

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.A)


@dataclass(frozen=True, eq=False)
class Tokens:
    """Token states of the models on a problem: all layers, (L + 1, d + 1, n + 1) each.

    Attributes:
        plain: the linear transformer (2.5), (2.8).
        labelled: the same, started with the query's true label in its place instead of 0.
        registers: the Memformer (3.3), (3.4).
    """

    plain: Float[np.ndarray, "states width time"]
    labelled: Float[np.ndarray, "states width time"]
    registers: Float[np.ndarray, "states width time"]


@dataclass(frozen=True)
class Display(Erratum):
    """An executable erratum.

    Attributes:
        quantity: what `form` computes and `seen` reads off the tokens.
        form: (problem, mended) -> the display's value.
        seen: (problem, tokens) -> the same from the token model.
    """

    quantity: str
    form: Callable[[Problem, bool], Any]
    seen: Callable[[Problem, Tokens], Any]


def _gradient(p: Problem, w: np.ndarray) -> np.ndarray:
    """Gradient of R (2.11)."""
    return p.X @ (p.X.T @ (w - p.w)) / p.n


def _descent(p: Problem, *, first: int = 0, transposed: bool = True, factor: float = 1.0) -> np.ndarray:
    """w_L by (2.10) from w_0 = 0, layers from `first` on."""
    w = np.zeros_like(p.w)
    for A in p.A[first:]:
        w = w - factor * (A.T if transposed else A) @ _gradient(p, w)
    return w


def _labels(p: Problem, slot: float = 0.0) -> np.ndarray:
    """All labels Y_0 .. Y_L by (A.1), (L + 1, n + 1); `slot` is the query's at the start."""
    inputs = np.column_stack([p.X, p.x])
    Y = [np.append(p.X.T @ p.w, slot)]
    for A in p.A:
        Y.append(Y[-1] - Y[-1][:-1] @ p.X.T @ A @ inputs / p.n)
    return np.array(Y)


def _weights_from_labels(p: Problem, states: np.ndarray) -> np.ndarray:
    """w_l of every state, from the residual labels <w* - w_l, x_i> of the examples."""
    return p.w - np.linalg.lstsq(p.X.T, states[:, -1, :-1].T)[0].T


def _last_weights(p: Problem, tokens: Tokens) -> np.ndarray:
    return np.asarray(_weights_from_labels(p, tokens.plain)[-1])


def _empirical(p: Problem, mended: bool) -> Any:
    """R of (2.11) after the first layer, with X as sec. 2.1 has it or as (2.11) does."""
    X = p.X if mended else np.column_stack([p.X, p.x]).T
    w = p.A[0].T @ (p.X @ (p.X.T @ p.w)) / p.n
    return ((X.T @ w - X.T @ p.w) ** 2).sum() / (2 * p.n)


def _objective(p: Problem, mended: bool) -> Any:
    """Square in (2.7), with (2.6) for TF."""
    TF = -_labels(p)[-1, -1]
    return (TF - p.w @ p.x if mended else TF + p.w @ p.x) ** 2


def _history(p: Problem, mended: bool) -> np.ndarray:
    """w_L by (3.5), a sum over all past gradients, with the coefficients of the layers' updates."""
    coefficients = p.Gamma.cumsum(0) if mended else p.Gamma
    w, steps = [np.zeros_like(p.w)], list[np.ndarray]()
    for layer, A in enumerate(p.A):
        steps.append(A.T @ _gradient(p, w[-1]))
        w.append(w[0] - coefficients[layer, : layer + 1] @ np.array(steps))
    return w[-1]


def _hadamard(p: Problem, mended: bool) -> np.ndarray:
    """Z_1 of (3.4), with Gamma in the shape of the sketch of Theorem 3.2 or in the tokens' own."""
    d, n = p.X.shape
    Z = np.vstack([np.column_stack([p.X, p.x]), _labels(p)[0]])
    R = np.vstack([np.zeros((d, n + 1)), -Z[-1, :-1] @ p.X.T @ p.A[0] @ Z[:-1]])
    return Z + np.full((d + 1, n + 1) if mended else (n + 1, d + 1), p.Gamma[0, 0]) * R / n


def _in_context(p: Problem, mended: bool) -> Any:
    """Objective minimised in sec. 3.3."""
    left = _descent(p) - p.w
    return (left @ p.x) ** 2 if mended else ((p.X.T @ left) ** 2).sum() / (2 * p.n)


def _curvature(p: Problem, mended: bool) -> np.ndarray:
    """Hessian of (2.11), applied to w*."""
    return p.X @ (p.X.T @ p.w) / (p.n if mended else 1)


def _indices(p: Problem, mended: bool) -> Any:
    """Query's label after one layer, y with n + 1 below and 1 above; the line before has the layer below."""
    Y = _labels(p)
    return Y[1, p.n] if mended else Y[p.n + 1, 1]


def _sums(p: Problem, mended: bool) -> np.ndarray:
    """Examples' labels after one layer; in print the sum is over i, and j stays free."""
    y = p.X.T @ p.w
    terms = (p.X.T @ p.A[0].T @ p.X) * y
    return y - terms.sum(1) / p.n if mended else y[:, None] - terms.sum(0) / p.n


def _induction(p: Problem, mended: bool) -> np.ndarray:
    """g(x, y, k) - y for all k, by the display that the induction is to establish."""
    return _labels(p)[:, -1] if mended else np.zeros(p.layers + 1)


def _query_update(p: Problem, mended: bool) -> Any:
    """Query's label after one layer by (A.2); Y is a row."""
    Y = (p.X.T @ p.w)[None]
    return -(p.A[0].T @ p.X @ Y.T if mended else p.A[0].T @ p.X.T @ Y)[:, 0] @ p.x / p.n


def _theta_update(p: Problem, mended: bool) -> np.ndarray:
    """<theta_L, x> by (A.3); theta is a column and Y_0 a row."""
    Y = (p.X.T @ p.w)[None]
    theta = np.zeros((len(p.w), 1))
    for A in p.A:
        theta = theta - A.T @ p.X @ (p.X.T @ theta + (Y.T if mended else Y)) / p.n
    return theta.T @ p.x


def _conclusion(p: Problem, mended: bool) -> Any:
    """g(x, y, L) from theta_L = -w_L, at the query's true label y."""
    y, theta = p.w @ p.x, -_descent(p)
    return y + theta @ p.x if mended else y - theta @ p.x


def _loop(p: Problem, mended: bool) -> np.ndarray:
    """Iterate of the loop of App. A.2 after d passes; as printed w_1 can only be w_0."""
    H, w = p.X @ p.X.T / p.n, np.zeros_like(p.w)
    r = -_gradient(p, w)
    s = np.zeros_like(r) if mended else r
    for step in range(len(w)):
        before, r = r, -_gradient(p, w)
        if not r.any():
            break
        gamma = 0.0 if mended and step == 0 else (r @ r) / (before @ before)
        s = r + gamma * s
        w = w + (r @ r) / (s @ H @ s) * s
    return w


def _memformer_labels(p: Problem, *, per_layer: bool = True, free: bool = False) -> np.ndarray:
    """Labels of all tokens after L layers of (3.4).

    Args:
        p: the problem.
        per_layer: every register is that of its own layer j; otherwise all are the present layer's.
        free: in the last layer's sum the index of the summands is not the one that runs.
    """
    inputs = np.column_stack([p.X, p.x])
    Y, registers = np.append(p.X.T @ p.w, 0.0), list[np.ndarray]()
    for layer, A in enumerate(p.A):
        registers.append(-Y[:-1] @ p.X.T @ A @ inputs)
        parts = [p.Gamma[layer, j] * (R if per_layer else registers[-1]) for j, R in enumerate(registers)]
        if free and layer + 1 == p.layers:
            return np.array([Y + p.layers * part / p.n for part in parts])
        Y = Y + np.sum(parts, axis=0) / p.n
    return Y


def _gated(p: Problem, mended: bool) -> np.ndarray:
    """Z_1 of one head (3.4) under a gate of 1: one number a head, or one a coordinate."""
    d = len(p.w)
    inputs = np.column_stack([p.X, p.x])
    Z = np.vstack([inputs, np.append(p.X.T @ p.w, 0.0)])
    R = np.vstack([np.zeros((d, p.n + 1)), -Z[-1, :-1] @ p.X.T @ p.A[0] @ inputs])
    return Z + (np.array(1.0) if mended else np.ones(d + 1)) * (p.Gamma[0, 0] * R / p.n)


def _preconditioned(p: Problem, mended: bool) -> np.ndarray:
    """w_1 from 0 with A_0 = Sigma^-1 or A_0 = Sigma, for the Sigma = X X' / n of the prompt."""
    Sigma = p.X @ p.X.T / p.n
    return np.asarray((np.linalg.inv(Sigma) if mended else Sigma) @ Sigma @ p.w)


def _element_of_S(p: Problem, mended: bool) -> np.ndarray:
    """All labels after L layers, with an element of S as the layers' blocks; as printed it is a pair (A, B)."""
    element = p.A if mended else np.stack([p.A, np.zeros_like(p.A)])
    inputs, Y = np.column_stack([p.X, p.x]), np.append(p.X.T @ p.w, 0.0)
    for A in element:
        Y = Y - Y[..., :-1] @ p.X.T @ A @ inputs / p.n
    return Y


_LIST = (
    Display(
        "clash",
        r"sec. 2.1 and (2.11), the matrix $\mathbf X$",
        r"\mathbf X\in\mathbb R^{(n+1)\times d} \text{ in sec. 2.1}",
        r"\mathbf X\in\mathbb R^{d\times n} \text{ from (2.11) on}",
        "R of (2.11) after one layer",
        _empirical,
        lambda p, tokens: (tokens.plain[1, -1, :-1] ** 2).mean() / 2,
    ),
    Display(
        "misprint",
        "(2.7), sign; the output (2.6) is the prediction itself",
        r"(\mathrm{TF}_L(\mathbf Z_0)+\mathbf w^{*\top}\mathbf x(n+1))^2",
        r"(\mathrm{TF}_L(\mathbf Z_0)-\mathbf w^{*\top}\mathbf x(n+1))^2",
        "the squared error at the query",
        _objective,
        lambda p, tokens: tokens.labelled[-1, -1, -1] ** 2,
    ),
    Display(
        "misprint",
        "Lemma 2.1, the layers of (2.10)",
        r"\ell=1,\dots,L-1",
        r"\ell=0,\dots,L-1",
        "w_L",
        lambda p, mended: _descent(p, first=0 if mended else 1),
        _last_weights,
    ),
    Display(
        "misprint",
        "(2.10), and App. A.1 after (A.1): the preconditioner, unless it is symmetric",
        r"\mathbf A_\ell\nabla R_{\mathbf w^*}(\mathbf w_\ell)",
        r"\mathbf A_\ell^\top\nabla R_{\mathbf w^*}(\mathbf w_\ell)",
        "w_L",
        lambda p, mended: _descent(p, transposed=mended),
        _last_weights,
    ),
    Display(
        "clash",
        r"App. A.3, $\Lambda_j^k$ in steps from $\mathbf w_k$, then in (3.5), a sum from $\mathbf w_0$",
        r"\mathbf w_{k+1}=\mathbf w_0+\textstyle\sum_j\Lambda_j^k\nabla R_{\mathbf w^*}(\mathbf w_j)",
        r"\mathbf w_{k+1}=\mathbf w_0-\textstyle\sum_j\sum_{\ell=j}^{k}\Lambda_j^\ell"
        r"\nabla R_{\mathbf w^*}(\mathbf w_j)",
        "w_L of the Memformer (3.4)",
        _history,
        lambda p, tokens: _weights_from_labels(p, tokens.registers)[-1],
    ),
    Display(
        "misprint",
        r"sketch of Theorem 3.2, shape of $\Gamma_j^\ell$",
        r"\mathbb R^{(n+1)\times(d+1)}",
        r"\mathbb R^{(d+1)\times(n+1)}",
        "Z_1 of the Memformer (3.4)",
        _hadamard,
        lambda p, tokens: tokens.registers[1],
    ),
    Display(
        "misprint",
        "sec. 3.3, setup",
        r"\text{in-context loss (2.11)}",
        r"\text{in-context loss (2.7)}",
        "the squared error at the query",
        _in_context,
        lambda p, tokens: tokens.labelled[-1, -1, -1] ** 2,
    ),
    Display(
        "misprint",
        "sec. 3.3, the Hessian of (2.11)",
        r"\mathbf X\mathbf X^\top",
        r"\tfrac1n\mathbf X\mathbf X^\top",
        "the Hessian times w*",
        _curvature,
        lambda p, tokens: np.linalg.solve(p.A[0].T, _weights_from_labels(p, tokens.plain)[1]),
    ),
    Display(
        "clash",
        r"App. A.1, indices of $\mathbf y$ (those of the first kind have the token above)",
        r"\mathbf y_k^{(i)} \text{ beside } \mathbf y_{n+1}^{(k)}",
        r"\mathbf y_k^{(i)} \text{ and } \mathbf y_k^{(n+1)}",
        "the query's label after one layer",
        _indices,
        lambda p, tokens: tokens.plain[1, -1, -1],
    ),
    Display(
        "misprint",
        "App. A.1, sums below (A.1), three of four",
        r"\textstyle\sum_{i=1}^n \mathbf x^{(i)\top}A_k\mathbf x^{(j)}\mathbf y_k^{(j)}",
        r"\textstyle\sum_{j=1}^n \mathbf x^{(i)\top}A_k^\top\mathbf x^{(j)}\mathbf y_k^{(j)}",
        "the examples' labels after one layer",
        _sums,
        lambda p, tokens: tokens.plain[1, -1, :-1],
    ),
    Display(
        "misprint",
        "App. A.1, end of the first point",
        r"g(\mathbf x,\mathbf y,k+1)-\mathbf y=g(\mathbf x,\mathbf y,k)-\mathbf y",
        r"g(\mathbf x,\mathbf y,k+1)-\mathbf y=g(\mathbf x,0,k+1)",
        "g(x, y, k) - y for k = 0 .. L",
        _induction,
        lambda p, tokens: tokens.labelled[:, -1, -1] - p.w @ p.x,
    ),
    Display(
        "misprint",
        "(A.2), and the same in App. A.3",
        r"A_k\bar{\mathbf X}^\top\bar{\mathbf Y}_k",
        r"A_k^\top\bar{\mathbf X}\bar{\mathbf Y}_k^\top",
        "the query's label after one layer",
        _query_update,
        lambda p, tokens: tokens.plain[1, -1, -1],
    ),
    Display(
        "misprint",
        "(A.3)",
        r"\bar{\mathbf X}^\top\theta_k+\bar{\mathbf Y}_0",
        r"\bar{\mathbf X}^\top\theta_k+\bar{\mathbf Y}_0^\top",
        "<theta_L, x>",
        _theta_update,
        lambda p, tokens: tokens.plain[-1, -1, -1:],
    ),
    Display(
        "misprint",
        r"(A.5), (A.6), (A.10), and the update of $\mathbf w$ in App. A.3",
        r"\tfrac1n A_k\nabla R_{\mathbf w^*}",
        r"A_k^\top\nabla R_{\mathbf w^*}",
        "w_L",
        lambda p, mended: _descent(p, factor=1.0 if mended else 1 / p.n),
        _last_weights,
    ),
    Display(
        "misprint",
        "App. A.1, last display",
        r"\mathbf y_{n+1}-\langle\theta,\mathbf x_{n+1}\rangle"
        r"=\mathbf y_{n+1}+\langle\mathbf w_k,\mathbf x_{n+1}\rangle",
        r"\mathbf y_{n+1}+\langle\theta_k,\mathbf x_{n+1}\rangle"
        r"=\mathbf y_{n+1}-\langle\mathbf w_k,\mathbf x_{n+1}\rangle",
        "g(x, y, L)",
        _conclusion,
        lambda p, tokens: tokens.labelled[-1, -1, -1],
    ),
    Display(
        "misprint",
        r"App. A.2, the loop of conjugate gradients: no step is taken along $\mathbf s_0$",
        r"\text{for } n=1,2,\dots",
        r"\text{for } n=0,1,2,\dots \text{ with } \gamma_0=0",
        "w after d passes",
        _loop,
        lambda p, tokens: np.linalg.lstsq(p.X.T, tokens.plain[0, -1, :-1])[0],
    ),
    Display(
        "misprint",
        "(A.12)",
        r"\textstyle\sum_{i=0}^{\ell}\Gamma_j^\ell\odot\mathbf R_j",
        r"\textstyle\sum_{j=0}^{\ell}\Gamma_j^\ell\odot\mathbf R_j",
        "Y_L of the Memformer (3.4)",
        lambda p, mended: _memformer_labels(p, free=not mended),
        lambda p, tokens: tokens.registers[-1, -1],
    ),
    Display(
        "misprint",
        r"App. A.3, update of $\mathbf Y$",
        r"\textstyle\sum_j\Gamma_j^k\vert_{d+1}\odot(\mathbf Y_kM\mathbf X_0^\top A_k\mathbf X_0)",
        r"\textstyle\sum_j\Gamma_j^k\vert_{d+1}\odot(\mathbf Y_jM\mathbf X_0^\top A_j\mathbf X_0)",
        "Y_L of the Memformer (3.4)",
        lambda p, mended: _memformer_labels(p, per_layer=mended),
        lambda p, tokens: tokens.registers[-1, -1],
    ),
    Display(
        "clash",
        "sec. 4.2, how the gate scales a head, in two sentences that follow each other",
        r"\text{coordinate-wise}",
        r"\text{one number per head, }\alpha_i",
        "Z_1 of a head with gate 1",
        _gated,
        lambda p, tokens: tokens.registers[1],
    ),
    Display(
        "misprint",
        "App. D, its heading: where the blocks go, by its own Theorem 3 and figures",
        r"A_\ell\to\Sigma",
        r"A_\ell\to a_\ell\,\Sigma^{-1}",
        "w_1 for the prompt's own Sigma",
        _preconditioned,
        lambda p, tokens: _weights_from_labels(p, 0 * tokens.plain)[0],
    ),
    Display(
        "clash",
        r"App. D, Theorem 3: the set $S\subset\mathbb R^{L\times d\times d}$ of blocks $A$, then of pairs",
        r"f(A,B),\ (A,B)\in S",
        r"f(A),\ A\in S",
        "all labels after L layers",
        _element_of_S,
        lambda p, tokens: tokens.plain[-1, -1],
    ),
)
#: By number, in the paper's order, but for those of sec. 4.2 and App. D at the end.
MEMORY = MappingProxyType(dict(enumerate(_LIST, start=1)))

#: Statements that do not hold.
MEMORY_STATEMENTS = (
    Statement(
        "Theorem 3.2, for methods whose coefficients are diagonal matrices",
        r"Memformers run $k$ steps of any linear first-order method with diagonal $\Lambda_i^k$",
        r"they do with one number $\Lambda_i^k$ for each pair of layers; diagonal matrices take $d$ layers a step",
        "mem.thm3.2.diagonal",
    ),
    Statement(
        r"App. A.3, the step from $\Gamma_j^k\vert_{d+1}$ to $\Lambda_j^k\in\mathbb R^d$, on which (3.5) rests",
        r"a row of weights on $n+1$ labels scales the $d$ coordinates of the gradient",
        r"it scales inner products with the gradient: the query's by one number, the examples' by one each",
        "mem.thm3.2.diagonal",
    ),
    Statement(
        "App. A.3, note",
        r"with blocks $A_j$ other than multiples of $\mathbf I$ the updates lie in a class richer than (3.5)",
        "at equal depth neither class contains the other",
        "mem.open.richer-class",
    ),
    Statement(
        "Theorem 4.1, footnote 2",
        r"$\sum_h\alpha_{m,h}=1$ makes a convex combination of the heads",
        r"it makes an affine one; a convex one needs $\alpha_{m,h}\ge0$ as well",
        "mem.thm4.1",
    ),
    Statement(
        "App. A.5, note",
        "bounded or sub-Gaussian losses are typical where data are sub-Gaussian and the loss is a square",
        r"for Gaussian prompts the loss is a polynomial of degree $4L+4$ in Gaussian numbers, "
        "neither bounded nor sub-Gaussian",
        "mem.thm5.1.conditions",
    ),
)


@validated
def deviation(number: int, problem: Problem, tokens: Tokens, *, mended: bool) -> float:
    """Deviation of a display from the tokens: largest difference, relative to the tokens' largest entry.

    Args:
        number: of the erratum.
        problem: what to compute it on.
        tokens: what the token models make of it.
        mended: with the erratum corrected, or as printed; all others are corrected.

    Returns:
        the deviation; infinite if a printed form cannot be computed or has another shape.
    """
    _checks.one_of("number", number, MEMORY)
    d, n = problem.X.shape
    for name, states in vars(tokens).items():
        value = np.asarray(_checks.real(name, states))
        _checks.shape(name, value, (problem.layers + 1, d + 1, n + 1), "to match problem")
    erratum = MEMORY[number]
    expected = np.asarray(erratum.seen(problem, tokens))
    if not (scale := np.abs(expected).max()) > 0:
        raise ValueError(f"tokens must show {erratum.quantity} other than 0, got 0")
    try:
        value = np.asarray(erratum.form(problem, mended))
    except (ValueError, IndexError):
        if mended:
            raise
        return math.inf
    if value.shape != expected.shape:
        return math.inf
    return float(np.abs(value - expected).max() / scale)
