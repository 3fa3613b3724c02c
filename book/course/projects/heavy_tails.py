"""Where you start: the floor of shared coefficients for Laplace inputs, beside the exact one for Gaussian inputs."""

import torch

from icl import profile
from icl.tasks import StationaryRegression
from icl.tasks.core import LAPLACE
from icl.theory.lfom import gated_floor, polynomial_floor

D, LAYERS, PROMPTS = 10, 3, 40_000
LENGTHS = {"d/n = 1": 10, "d/n = 1/2": 20, "d/n = 1/4": 40}


def baseline() -> dict[str, float]:
    """Least risks at three shapes d/n. `mean` is what coefficients fitted for Laplace inputs reach at d/n = 1/2."""
    found, generator = {}, profile.make_generator("project: heavy tails")
    for shape, n in LENGTHS.items():
        task = StationaryRegression(D, n, inputs=LAPLACE)
        x = task.sample(PROMPTS, generator=generator, dtype=torch.float64).x[:, :n].numpy()
        bracket = gated_floor.least_by_sample(x.swapaxes(1, 2) @ x / n, LAYERS)
        gaussian = float(polynomial_floor.optimal_risks(D, n, LAYERS)[-1])
        if shape == "d/n = 1/2":
            found |= {"mean": float(bracket.upper[-1]), "standard error": float(bracket.upper_error[-1])}
            found |= {"floor": float(bracket.lower[-1]), "floor, s.e.": float(bracket.lower_error[-1])}
        found |= {f"Gaussian, {shape}": gaussian, f"ratio, {shape}": float(bracket.upper[-1]) / gaussian}
        found[f"ratio, {shape}, s.e."] = float(bracket.upper_error[-1]) / gaussian
    return found


if __name__ == "__main__":
    print(baseline())
