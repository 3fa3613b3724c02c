"""Where you start: what the best known methods reach where weights switch, and the floor, on the same prompts."""

import torch

from icl import profile
from icl.experiments.evaluation import clean_risk, one_step_ahead
from icl.tasks import clean
from icl.theory import floors
from icl_bench.comparison import makers
from icl_bench.tasks import drifting_tasks, told_kalman
from icl_book.records import recorded

NAME = "switches"
DEEP = "gated delta, 4 layers, one for all"
PROMPTS, LAST = 800, 50


def baseline() -> dict[str, float]:
    """Errors against the clean label over the last positions: the Kalman filter's, a deep gated layer's, the floor."""
    task = drifting_tasks()[NAME]
    prompt = task.sample(PROMPTS, generator=profile.make_generator("project: switches"), dtype=torch.float64)
    deep = makers(task, NAME, recorded("synthesis-tuned").table)[DEEP](task)
    kalman = told_kalman(task)
    risk, error = clean_risk(kalman, prompt, last=LAST)
    risk_deep, error_deep = clean_risk(deep, prompt, last=LAST)
    least = floors.switching_predictions(prompt.x.numpy(), prompt.y.numpy(), task)[1][:, -LAST:].mean(1)
    squares = [(one_step_ahead(p, prompt) - clean(prompt)).square()[:, -LAST:].mean(1) for p in (deep, kalman)]
    gap = squares[0] - squares[1]
    return {
        "mean": float(risk),
        "standard error": float(error),
        "floor": float(least.mean()),
        "floor, s.e.": float(least.std() / PROMPTS**0.5),
        "deep layer": float(risk_deep),
        "deep layer, s.e.": float(error_deep),
        "gap": float(gap.mean()),
        "gap, s.e.": float(gap.std() / PROMPTS**0.5),
    }


if __name__ == "__main__":
    print(baseline())
