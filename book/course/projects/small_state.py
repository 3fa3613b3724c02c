"""Where you start: a layer that keeps a vector and one that keeps a matrix, both tuned, on the same prompts."""

import torch

from icl import profile
from icl.experiments.evaluation import one_step_ahead
from icl.experiments.tuning import LAYERS
from icl.tasks import clean
from icl.theory.floors import joint
from icl_bench.comparison import tuned_for
from icl_bench.tasks import drifting_tasks

PROMPTS, LAST, TUNING = 400, 50, 50


def baseline() -> dict[str, float]:
    """Errors against the clean label over the last positions: Longhorn (d numbers), Mesa (d^2 and d), the floor."""
    task = drifting_tasks()["AR(1), γ = 0.95"]
    prompt = task.sample(PROMPTS, generator=profile.make_generator("project: small state"), dtype=torch.float64)
    squares = {}
    for name in ("Longhorn", "Mesa"):
        layer = tuned_for(task, LAYERS[name], prompts=TUNING, last=LAST, stream="project: small state, tuning")
        squares[name] = (one_step_ahead(layer.predictor, prompt) - clean(prompt)).square()[:, -LAST:].mean(1)
    floor = joint.label_errors(prompt.x.numpy(), task)[:, -LAST:].mean(1)
    gap = squares["Longhorn"] - squares["Mesa"]
    return {
        "mean": float(squares["Longhorn"].mean()),
        "standard error": float(squares["Longhorn"].std() / PROMPTS**0.5),
        "floor": float(floor.mean()),
        "floor, s.e.": float(floor.std() / PROMPTS**0.5),
        "Mesa": float(squares["Mesa"].mean()),
        "Mesa, s.e.": float(squares["Mesa"].std() / PROMPTS**0.5),
        "gap": float(gap.mean()),
        "gap, s.e.": float(gap.std() / PROMPTS**0.5),
    }


if __name__ == "__main__":
    print(baseline())
