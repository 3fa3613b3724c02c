"""Where you start: what it costs that all prompts share their coefficients, and what one number saves of it."""

import numpy as np
import torch

from icl import profile
from icl.tasks import StationaryRegression
from icl.theory.lfom import gated_floor, polynomial_floor

D, N, LAYERS, PROMPTS = 5, 20, 4, 20_000


def baseline() -> dict[str, float]:
    """Least risks with four layers: of coefficients that read one number, of shared ones, of each prompt's own."""
    task = StationaryRegression(D, N)
    x = (
        task.sample(PROMPTS, generator=profile.make_generator("project: one number"), dtype=torch.float64)
        .x[:, :N]
        .numpy()
    )
    H = x.swapaxes(1, 2) @ x / N
    own, error = (float(values[-1]) for values in gated_floor.least_by_spectrum(H, LAYERS))
    top = gated_floor.least_by_sample(H, LAYERS, scale=np.linalg.eigvalsh(H)[:, -1])
    shared = float(polynomial_floor.optimal_risks(D, N, LAYERS)[-1])
    trace = float(gated_floor.least_by_trace(D, N, LAYERS).risks[-1])
    return {
        "mean": float(top.upper[-1]),
        "standard error": float(top.upper_error[-1]),
        "floor": own,
        "floor, s.e.": error,
        "trace": trace,
        "shared": shared,
        "saved": (shared - float(top.upper[-1])) / (shared - own),
        "trace saves": (shared - trace) / (shared - own),
    }


if __name__ == "__main__":
    print(baseline())
