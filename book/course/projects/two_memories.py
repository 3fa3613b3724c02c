"""Where you start: the best single memory where a slow and a fast part of the weights drift together."""

import torch

from icl import profile
from icl.experiments.evaluation import one_step_ahead
from icl.experiments.tuning import LAYERS
from icl.tasks import clean
from icl.tasks.drifts import two_timescales
from icl.theory import floors
from icl_bench.comparison import tuned_for

D, N, PROMPTS, LAST = 10, 200, 400, 50
TASK = two_timescales(D, N, gammas=(0.999, 0.9), variances=(0.5 / D, 0.5 / D))


def baseline() -> dict[str, float]:
    """Errors over the last positions: Longhorn, a vector; Mesa, a matrix; both tuned; the floor."""
    prompt = TASK.sample(PROMPTS, generator=profile.make_generator("project: two memories"), dtype=torch.float64)
    squares = []
    for name in ("Longhorn", "Mesa"):
        layer = tuned_for(TASK, LAYERS[name], prompts=60, last=LAST, stream="project: two memories, tuning")
        squares.append((one_step_ahead(layer.predictor, prompt) - clean(prompt)).square()[:, -LAST:].mean(1))
    floor = floors.linear_drift_errors(prompt.x.numpy(), TASK)[:, -LAST:].mean(1)
    gap = squares[0] - torch.as_tensor(floor)
    return {
        "mean": float(squares[0].mean()),
        "standard error": float(squares[0].std() / PROMPTS**0.5),
        "floor": float(floor.mean()),
        "floor, s.e.": float(floor.std() / PROMPTS**0.5),
        "Mesa": float(squares[1].mean()),
        "Mesa, s.e.": float(squares[1].std() / PROMPTS**0.5),
        "gap": float(gap.mean()),
        "gap, s.e.": float(gap.std() / PROMPTS**0.5),
    }


if __name__ == "__main__":
    print(baseline())
