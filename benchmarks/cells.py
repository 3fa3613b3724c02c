"""Time a cell of `icl-bench` against the same training written by hand, in turn. Part of `make bench`; a minute.

python benchmarks/cells.py               print the table

Training alone: start, prompts, loss, AdamW, schedule and clipping are the same, and so are the numbers that come out.
What the cell does beside is a state that it can go on from, written every 50 steps, and a look at every loss.
"""

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch
from torch import nn

from icl.profile import make_generator
from icl_bench import runner, training_jobs
from icl_bench.budgets import BUDGETS

NAMES, ROUNDS, STEPS = ("gla", "softmax-alibi"), 5, 120


def by_hand(cell: training_jobs.Job, contestant: object) -> torch.Tensor:
    """The loop that one would write: its last loss."""
    model = training_jobs._build(contestant, cell.budget, cell.seed)
    config = cell.budget.config(cell.rate, len(cell.training))
    rule = torch.optim.AdamW(model.parameters(), lr=cell.rate, betas=(0.9, 0.99), weight_decay=0.0)
    source, generator = cell.mixture(), make_generator(f"icl-bench/training/{cell.trained_on}", seed=cell.seed)
    for step in range(1, config.steps + 1):
        loss = model.loss(source.sample(config.batch, generator=generator), since=1)
        rule.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        rule.param_groups[0]["lr"] = config.step_size(step)
        rule.step()
    return loss.detach()


def seconds(name: str) -> dict[str, object]:
    """Least seconds of both, in turn."""
    budget = replace(BUDGETS["small"], steps=STEPS)
    plan = runner.plan([name], budget=budget)
    contestant = plan.contestants[0]
    asked = training_jobs.JobSpec(contestant.spec, contestant.kind, contestant.name, contestant.path, contestant.source)
    times: dict[str, list[float]] = {"cell": [], "by hand": []}
    for seed in range(ROUNDS):
        cell = training_jobs.Job(asked, budget, "all", plan.training, plan.paths, 4e-3, seed)
        with tempfile.TemporaryDirectory() as folder:
            times["cell"].append(training_jobs.run_job(cell, {}, Path(folder)).seconds)
        begun = time.monotonic()
        by_hand(cell, contestant)
        times["by hand"].append(time.monotonic() - begun)
    ratios = sorted(a / b for a, b in zip(times["cell"], times["by hand"], strict=True))
    least = {way: round(min(each), 2) for way, each in times.items()}
    return {"contestant": name, "steps": STEPS} | least | {"ratio, median": round(ratios[ROUNDS // 2], 3)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(pd.DataFrame([seconds(name) for name in NAMES]).to_string(index=False))
