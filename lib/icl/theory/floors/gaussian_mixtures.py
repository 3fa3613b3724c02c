"""Exact floors of a Gaussian mixture with scalar inputs: of shared coefficients, and component posteriors.

Of one dimension a prompt of :class:`~icl.tasks.components.GaussianComponents` has the curvature h = sum_i x_i^2 / n,
and an error polynomial p with p(0) = 1 the risk, exact over query and w*,

    sum_m pi_m S_x S_w E p(h)^2,        S_x = v_m + mu_m^2,  S_w = 1/v_m + mu_m^2

h is a noncentral chi-square number times v_m/n: all its moments are rational in mu_m and v_m, and so are the floor and
its register (:mod:`icl.theory.lfom.polynomial_floor`, under this measure). None of it is in the paper, whose sec. 4.2
has the mixture. For more dimensions :func:`~icl.theory.lfom.gated_floor.least_by_sample` has brackets.
"""

import sys
from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import least_squares
from scipy.special import roots_genlaguerre, roots_hermitenorm

from icl import _checks
from icl._bounds import Count, Natural, validated
from icl.tasks.components import GaussianComponents
from icl.theory.lfom._recursion import least_risk_recursion, register_basis, rounded
from icl.theory.lfom.gated_floor import LeastRisk


def _scalar(task: Any) -> GaussianComponents:
    _checks.instance("task", task, GaussianComponents)
    if task.d != 1:
        raise ValueError(
            f"task must have d = 1 here, got d = {task.d} (see icl.theory.lfom.gated_floor.least_by_sample)"
        )
    return task


def _powers(mean: Fraction, variance: Fraction, degree: int) -> list[Fraction]:
    """E x^(2k), k = 0 .. degree, of x ~ N(mean, variance): E x^j = mean E x^(j-1) + (j-1) variance E x^(j-2)."""
    moments = [Fraction(1), mean]
    for j in range(2, 2 * degree + 1):
        moments.append(mean * moments[-1] + (j - 1) * variance * moments[-2])
    return moments[::2]


def _means(single: list[Fraction], n: int) -> list[Fraction]:
    """Moments of the mean of n i.i.d. numbers, from those of one, by cumulants."""
    cumulants = [Fraction()]
    for k in range(1, len(single)):
        lower = sum((comb(k - 1, j - 1) * cumulants[j] * single[k - j] for j in range(1, k)), Fraction())
        cumulants.append(single[k] - lower)
    total = [Fraction(1)]
    for k in range(1, len(single)):
        total.append(sum((comb(k - 1, j - 1) * n * cumulants[j] * total[k - j] for j in range(1, k + 1)), Fraction()))
    return [moment / n**k for k, moment in enumerate(total)]


def _laws(task: GaussianComponents, degree: int) -> list[tuple[Fraction, list[Fraction]]]:
    """pi_m S_x S_w and E h^k, k = 0 .. degree, for each component."""
    numbers = zip(task.means[:, 0].tolist(), task.covariances[:, 0, 0].tolist(), task.shares.tolist(), strict=True)
    laws = [tuple(Fraction(value) for value in each) for each in numbers]
    total = sum(share for _, _, share in laws)
    shares = [share / total for _, _, share in laws]
    most = max(degree, 1)  # E x^2 is asked for in any case
    single = [_powers(mean, variance, most) for mean, variance, _ in laws]
    if task.per_token:
        mixed = [
            sum((s * each[k] for s, each in zip(shares, single, strict=True)), Fraction()) for k in range(most + 1)
        ]
        single = [mixed] * len(laws)
    return [
        (share * one[1] * (1 / variance + mean**2), _means(one[: degree + 1], task.n))
        for share, one, (mean, variance, _) in zip(shares, single, laws, strict=True)
    ]


@validated
def curvature_moments(task: GaussianComponents, degree: Natural) -> Float[np.ndarray, "components powers"]:
    """E h^k of each component's prompts, k = 0 .. degree; in x^(2k), each rounded once.

    Args:
        task: of one dimension.
        degree: largest power.
    """
    laws = _laws(_scalar(task), degree)
    if max(max(moments) for _, moments in laws) > sys.float_info.max:
        raise ValueError(f"degree must leave moments that float64 holds, got {degree}")
    return np.array([[float(moment) for moment in moments] for _, moments in laws])


@validated
def least_over_components(task: GaussianComponents, layers: Count) -> LeastRisk:
    """Least risk of prompt-independent coefficients on the mixture: its polynomial floor, exact.

    Heads with gates that are the same for all prompts, their weights and memory whatever they are, are one set of
    coefficients too. Components alone: `task.only(m)`.

    Args:
        task: of one dimension.
        layers: largest degree.

    Returns:
        Risks of degrees 0 .. layers in units of y^2, polynomial in h, and register, whose alpha is in 1/x^2.
    """
    laws = _laws(_scalar(task), 2 * layers)
    moments = [sum((w * m[k] for w, m in laws), Fraction()) for k in range(2 * layers + 1)]
    return LeastRisk(*rounded(least_risk_recursion(moments)))


@validated
def least_shared_over_components(task: GaussianComponents, layers: Count) -> tuple[float, Float[np.ndarray, " layers"]]:
    """Least risk of `layers` layers with scalars Gamma_j shared by all later layers, the heavy ball with beta = 1.

    p_{l+1} = p_l + (p_l - p_{l-1}) - c_l h p_l with c_l = Gamma_l a_l
    (:func:`~icl.theory.lfom.polynomial_floor.shared_floor`, for one law about 0). Levenberg and Marquardt's method from
    8 starts a layer: should all have missed the least, what is returned is a bound from above.

    Args:
        task: of one dimension.
        layers: depth.

    Returns:
        the risk, in units of y^2, and the c that has it, in 1/x^2.
    """
    from scipy.stats import qmc  # slow to import and rarely needed

    laws = _laws(_scalar(task), 2 * layers)
    optimum = least_risk_recursion([sum((w * m[k] for w, m in laws), Fraction()) for k in range(2 * layers + 1)])
    times, alpha, norms = register_basis(optimum)
    roots, unit = np.sqrt(norms), float(optimum.alpha[0])

    def excess(c: np.ndarray) -> np.ndarray:
        """Square roots of the summands of the excess over the floor."""
        now = np.eye(layers + 1)[0].astype(c.dtype)
        change = np.zeros_like(now)
        for step in unit * c:
            change = change - step * (times @ now)
            now = now + change
        return (now[1:] - alpha) * roots

    def jacobian(c: np.ndarray) -> np.ndarray:
        # Complex-step derivative: exact for a real polynomial.
        return np.stack([excess(c + 1e-30j * one).imag / 1e-30 for one in np.eye(layers)], axis=1)

    starts = 4 * qmc.Halton(layers, scramble=False).random(8 * layers + 1)[1:] - 1
    best = min(
        (least_squares(excess, start, jacobian, method="lm", max_nfev=200) for start in starts),
        key=lambda run: float(run.cost),
    )
    return float(optimum.risks[-1]) + 2 * float(best.cost), unit * best.x


@dataclass(frozen=True, eq=False)
class InputNodes:
    """Quadrature nodes and weights over a prompt's scalar inputs, given its component.

    Attributes:
        h: sum x_i^2 / n, (components, nodes).
        mean: sum x_i / n, of the same shape.
        weight: probabilities, rows of sum 1.
    """

    h: Float[np.ndarray, "components nodes"]
    mean: Float[np.ndarray, "components nodes"]
    weight: Float[np.ndarray, "components nodes"]


@validated
def input_nodes(task: GaussianComponents, nodes: Count = 64) -> InputNodes:
    """Gauss quadrature over a Gaussian's sufficient statistics, the mean and spread of its inputs.

    mean ~ N(mu, v/n) and sum (x_i - mean)^2 / v is chi-square with n - 1 degrees of freedom, independent of it. Exact
    for polynomials in both of degree 2 nodes - 1. A posterior over components is a function of the two.

    Args:
        task: of one dimension, a component a prompt, n >= 2.
        nodes: of each of the two rules; 170 at most.
    """
    _scalar(task)
    if task.per_token or task.n < 2:
        raise ValueError(f"task must have a component a prompt and n >= 2, got per_token={task.per_token}, n={task.n}")
    if nodes > 170:
        raise ValueError(f"nodes must be at most 170, got {nodes}")
    z, z_weight = roots_hermitenorm(nodes)
    # The generalised rule's weights have the sum Gamma((n-1)/2), which may overflow where shares do not.
    half, half_weight = roots_genlaguerre(nodes, (task.n - 3) / 2)
    weight = np.outer(z_weight / z_weight.sum(), half_weight / half_weight.sum()).ravel()
    mu, v = task.means, task.covariances[:, 0]
    mean = mu + np.sqrt(v / task.n) * np.repeat(z, nodes)
    h = mean**2 + v * np.tile(2 * half, nodes) / task.n
    return InputNodes(h, mean, np.broadcast_to(weight, h.shape).copy())


@validated
def component_posterior(task: GaussianComponents, nodes: InputNodes) -> Float[np.ndarray, "components nodes likely"]:
    """Component probabilities at each node, given the inputs: `GaussianComponents.posterior`, from two statistics."""
    _scalar(task)
    mu, v = task.means[:, 0], task.covariances[:, 0, 0]
    square = nodes.h[..., None] - 2 * mu * nodes.mean[..., None] + mu**2
    weights = np.log(task.shares) - task.n / 2 * (square / v + np.log(v))
    weights = np.exp(weights - weights.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))
