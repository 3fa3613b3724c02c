"""Baselines: risks of known first-order methods on the Memformer paper's prompts, by number of layers.

Errors are those of :mod:`icl.theory.lfom.tables` with Sigma^-1 as preconditioner, which are the same for every Sigma:
the inputs may be taken as white.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize, minimize_scalar

from icl import solvers
from icl._bounds import Count, validated
from icl.tasks import quadratics
from icl.theory import lfom
from icl.theory.lfom import polynomial_floor


@validated
def baseline_risks(
    d: Count, n: Count, layers: Count, prompts: Count = 20_000, *, generator: torch.Generator
) -> dict[str, Float[np.ndarray, "depths"]]:
    """Mean squared error after 0 .. layers steps of four methods with preconditioner Sigma^-1, in y^2; d first.

    At every depth gradient descent has its optimal constant step, and momentum its optimal step and beta; both risks
    are exact, minimised numerically. The polynomial floor is exact. Conjugate gradients adapt their coefficients to
    each prompt; their risk is a mean over sampled prompts.

    Args:
        d: dimension.
        n: examples in a prompt.
        layers: largest number of steps.
        prompts: for conjugate gradients.
        generator: random stream of these prompts.

    Returns:
        by name: "gradient descent", "momentum", "polynomial floor" and "preconditioned CG".

    >>> from icl.profile import make_generator
    >>> risks = baseline_risks(2, 10, 2, 100, generator=make_generator("example"))
    >>> [round(float(risk), 3) for risk in risks["polynomial floor"]]
    [2.0, 0.462, 0.161]
    """
    floor = polynomial_floor.optimal_risks(d, n, layers)
    steps, heavy = [floor[0]], [floor[0]]
    for depth in range(1, layers + 1):

        def equal(eta: float, depth: int = depth) -> float:
            return float(lfom.table_risks(lfom.gradient_descent_table(eta, depth), d, n)[-1])

        def two(at: Any, depth: int = depth) -> float:
            eta, beta = np.exp(at)
            return float(lfom.table_risks(lfom.momentum_table(eta, beta, depth), d, n)[-1])

        # Below 1: the optimal step is n/(n+d+1) for one step, and n/(n+d) for any number in the limit of large d.
        best = minimize_scalar(equal, bounds=(1e-6, 1), method="bounded")
        starts = [(np.log(best.x), np.log(beta)) for beta in (0.05, 0.3)]
        ends = [minimize(two, at, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-12}) for at in starts]
        steps.append(best.fun)
        heavy.append(min(end.fun for end in ends))
    H = quadratics.sample_hessians(np.eye(d), n, prompts, generator=generator)
    w = torch.randn(prompts, d, generator=generator, dtype=H.dtype, device=H.device)
    walk = solvers.run_solver(solvers.conjugate_gradients(), H, (H @ w[..., None])[..., 0], layers)
    conjugate = (walk - w[:, None]).square().sum(-1).mean(0).numpy(force=True)
    conjugate[0] = d  # before the first step the mean is exact
    return {
        "gradient descent": np.array(steps),
        "momentum": np.array(heavy),
        "polynomial floor": floor,
        "preconditioned CG": conjugate,
    }
