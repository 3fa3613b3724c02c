"""Where you start: one Kalman filter for prompts of five speeds of drift, and the floor of those who are not told."""

import numpy as np
import torch

from icl import profile
from icl.experiments.evaluation import one_step_ahead
from icl.tasks import Mixture, Prompt, Task, clean
from icl.theory.floors import joint
from icl_bench.tasks import drifting_tasks, told_kalman

D, N, LAST, PROMPTS = 10, 100, 50, 500
TASKS = {name: task for name, task in drifting_tasks(D, N).items() if "γ" in name and "noise" not in name}


def gaussian(prompt: Prompt, task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean of each label under one law, and log density of all labels before it."""
    x, y = prompt.x.numpy(), prompt.y.numpy()
    K = (x @ x.transpose(0, 2, 1)) * np.asarray(task.weight_kernel())
    L = np.linalg.cholesky(K)
    z, spread = np.linalg.solve(L, y[..., None])[..., 0], np.diagonal(L, axis1=1, axis2=2)
    density = np.cumsum(-(z**2) / 2 - np.log(spread), axis=1)
    return y - z * spread, np.concatenate([np.zeros((len(y), 1)), density[:, :-1]], axis=1)


def mixed(prompt: Prompt) -> np.ndarray:
    """The posterior mean where each law is as likely: the floor, by a matrix that grows with the prompt."""
    answers, densities = map(np.stack, zip(*(gaussian(prompt, task) for task in TASKS.values()), strict=True))
    weights = np.exp(densities - densities.max(0))
    return (weights * answers).sum(0) / weights.sum(0)


def baseline() -> dict[str, float]:
    """Errors over the last positions: one filter with the law of the mean kernel, each with its own, and the floor."""
    mixture = Mixture(list(TASKS.values()))
    prompt = mixture.sample(PROMPTS, generator=profile.make_generator("project: rates"), dtype=torch.float64)
    truth = clean(prompt).numpy()
    one = one_step_ahead(told_kalman(mixture), prompt).numpy()
    told = [joint.label_errors(part.numpy(), t) for part, t in zip(prompt.x.chunk(5), TASKS.values(), strict=True)]
    squares = [((answer - truth) ** 2)[:, -LAST:].mean(1) for answer in (one, mixed(prompt))]
    gap = squares[0] - squares[1]
    return {
        "mean": float(squares[0].mean()),
        "standard error": float(squares[0].std() / PROMPTS**0.5),
        "floor": float(squares[1].mean()),
        "floor, s.e.": float(squares[1].std() / PROMPTS**0.5),
        "told": float(np.concatenate(told)[:, -LAST:].mean()),
        "gap": float(gap.mean()),
        "gap, s.e.": float(gap.std() / PROMPTS**0.5),
    }


if __name__ == "__main__":
    print(baseline())
