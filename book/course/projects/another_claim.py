"""Where you start: one claim judged, a textbook's formula for the error that LMS keeps, with noise in the labels."""

import numpy as np
import torch

from icl import filters, profile
from icl.experiments.evaluation import one_step_ahead
from icl.tasks import Noisy, StationaryRegression, clean

D, N, NOISE, PROMPTS, LAST = 10, 800, 0.3, 400, 200
STEPS = {"small step": 0.01, "large step": 0.08}


def claimed(mu: float) -> float:
    """mu s2 tr R / (2 - mu tr R), x'x and error taken for independent [Sayed 2011, ch. 16]; here tr R = d."""
    return mu * NOISE**2 * D / (2 - mu * D)


def exact(mu: float) -> float:
    """The same without the assumption, for Gaussian inputs: E (x'x) x x' = (d + 2) I puts d + 2 in d's place."""
    return mu * NOISE**2 * D / (2 - mu * (D + 2))


def baseline() -> dict[str, float]:
    """Excess error of LMS at two step sizes, as printed, exact, and measured; `mean` is measured at the large one."""
    prompt = Noisy(StationaryRegression(D, N), NOISE).sample(
        PROMPTS, generator=profile.make_generator("project: another claim"), dtype=torch.float64
    )
    found = {}
    for name, mu in STEPS.items():
        squares = (one_step_ahead(filters.lms(mu), prompt) - clean(prompt)).square()[:, -LAST:].mean(1).numpy()
        found |= {f"{name}, measured": float(np.mean(squares)), f"{name}, printed": claimed(mu)}
        found |= {f"{name}, measured, s.e.": float(squares.std(ddof=1) / PROMPTS**0.5), f"{name}, exact": exact(mu)}
    least = (one_step_ahead(filters.ridge(NOISE**2), prompt) - clean(prompt)).square()[:, -LAST:].mean(1)
    return {
        "mean": found["large step, measured"],
        "standard error": found["large step, measured, s.e."],
        "floor": float(least.mean()),
        "floor, s.e.": float(least.std() / PROMPTS**0.5),
        **found,
    }


if __name__ == "__main__":
    print(baseline())
