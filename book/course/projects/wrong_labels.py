"""Where you start: the best plain step where one label in twenty is wrong, and the filter that is told which."""

import numpy as np
import torch

from icl import profile
from icl.experiments.evaluation import one_step_ahead
from icl.filters import normalised_delta_rule
from icl.tasks import DriftingRegression, Prompt, clean
from icl.theory import floors
from icl_bench.tasks import drifting_tasks

PROMPTS, LAST, SHARE, SIZE = 400, 50, 0.05, 5.0


def spoilt(task: DriftingRegression, batch: int, stream: str) -> tuple[Prompt, torch.Tensor]:
    """Prompts with N(0, SIZE^2) added to one label in twenty, and where."""
    generator = profile.make_generator(stream)
    prompt = task.sample(batch, generator=generator, dtype=torch.float64)
    wrong = torch.rand(prompt.y.shape, generator=generator, dtype=torch.float64) < SHARE
    noise = SIZE * torch.randn(prompt.y.shape, generator=generator, dtype=torch.float64)
    return Prompt(prompt.x, prompt.y + wrong * noise, prompt.w), wrong


def baseline() -> dict[str, float]:
    """Errors against the clean label over the last positions: the best of 36 plain steps, and the floor of the told."""
    task = drifting_tasks()["AR(1), γ = 0.975"]
    assert isinstance(task, DriftingRegression)
    settings = [(mu, lam) for mu in np.linspace(0.1, 1, 9) for lam in (0.94, 0.96, 0.975, 0.99)]
    mu, lam = (torch.tensor([pair[i] for pair in settings], dtype=torch.float64)[:, None] for i in (0, 1))
    seen, _ = spoilt(task, 100, "project: wrong labels, tuning")
    tried = (one_step_ahead(normalised_delta_rule(mu, lam=lam), seen) - clean(seen)).square()[..., -LAST:]
    step, fade = settings[int(tried.mean((-1, -2)).argmin())]
    best = normalised_delta_rule(step, lam=fade)
    prompt, wrong = spoilt(task, PROMPTS, "project: wrong labels")
    squares = (one_step_ahead(best, prompt) - clean(prompt)).square()[:, -LAST:].mean(1)
    # An input of 0 teaches nothing: so it is for one who knows which labels are wrong.
    told = floors.expected_errors(torch.where(wrong[..., None], 0.0, prompt.x).numpy(), task)[:, -LAST:].mean(1)
    right = floors.expected_errors(prompt.x.numpy(), task)[:, -LAST:].mean(1)
    gap = squares - torch.as_tensor(told)
    return {
        "mean": float(squares.mean()),
        "standard error": float(squares.std() / PROMPTS**0.5),
        "floor": float(told.mean()),
        "floor, s.e.": float(told.std() / PROMPTS**0.5),
        "no wrong labels": float(right.mean()),
        "gap": float(gap.mean()),
        "gap, s.e.": float(gap.std() / PROMPTS**0.5),
    }


if __name__ == "__main__":
    print(baseline())
