"""Train contestants of `icl-bench` on a GPU and on the processor: time, memory, errors. Not part of `make bench`.

python benchmarks/gpu.py              print the table; seven minutes on a machine with an H200
python benchmarks/gpu.py --record     also write book/results/gpu-bench.json

A step is all that a training does in one: prompts drawn on the processor and moved, loss, gradients, AdamW. Errors are
those of the budget small cut to fewer steps, on the prompts that rates are chosen on: "again" from a second training
on the GPU, which need not give the same bits; "moved" from one on the processor whose weights were multiplied by
1 + 1e-7 times normal numbers at its start, which says how much a rounding may come to. Rows of one run are of one
machine; those of several may be put together in one table.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import joblib
import pandas as pd
import torch

from icl.profile import make_generator
from icl_bench import costs, runner, training_jobs
from icl_bench.budgets import BUDGETS
from icl_book import records

NAMES = ("examples/my_layer.py:MyLayer", "softmax", "linear-attention", "gla", "delta-rule", "gated-delta", "lstm")
NAMES += ("book-gla", "book-delta-rule", "book-gla-6")
#: Of a training that is timed, on the processor and on the GPU; 0 where a step would take minutes.
STEPS = {"small": (60, 60), "medium": (4, 20), "large": (0, 4)}
RATE, MIB, MOVED, SHARERS = 8e-3, 2**20, 1e-7, 8


def trained(name: str, budget: str, device: str, steps: int) -> training_jobs.JobResult:
    """The cell of a contestant whose training is so many steps long."""
    cut = replace(BUDGETS[budget], steps=steps)
    plan = runner.plan([name], budget=cut, device=device)
    (contestant,) = plan.contestants
    asked = training_jobs.JobSpec(contestant.spec, contestant.kind, contestant.name, contestant.path, contestant.source)
    return training_jobs.run_job(
        training_jobs.Job(asked, cut, "all", plan.training, plan.paths, RATE, 0, device), {}, None
    )


def milliseconds(name: str, budget: str, device: str, steps: int) -> tuple[float, float]:
    """Of a step, after two that do not count; and the error."""
    trained(name, budget, device, 2)
    result = trained(name, budget, device, steps)
    return 1e3 * result.seconds / steps, result.validation


def moved(name: str, budget: str, steps: int) -> float:
    """The error on the processor, from a start that is nearly the same."""
    built, generator = training_jobs._build, make_generator("moved")

    def nearly(*asked: Any) -> Any:
        model = built(*asked)
        with torch.no_grad():
            for each in model.parameters():
                each *= 1 + MOVED * torch.randn(each.shape, generator=generator)
        return model

    with mock.patch.object(training_jobs, "_built", nearly):
        return trained(name, budget, "cpu", steps).validation


def memory(name: str, budget: str) -> dict[str, float]:
    """In MiB: tensors of a training as counted beforehand; the most that torch held in one and in judging its end."""
    plan = runner.plan([name], budget=budget)
    batch = plan.budget.config(RATE, len(plan.training)).batch
    told = costs.step_bytes(plan.contestants[0], plan.budget.shape, batch)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    trained(name, budget, "cuda:0", 2)
    return {"mib_told": told / MIB, "mib_taken": (torch.cuda.max_memory_allocated() - before) / MIB}


def rows(jobs: int) -> Iterator[dict[str, object]]:
    """A row for each contestant and budget; the processor's are timed in several processes, one thread each."""
    asked = [(name, budget, "cpu", here) for budget, (here, _) in STEPS.items() for name in NAMES if here]
    timings = joblib.Parallel(n_jobs=jobs)(joblib.delayed(milliseconds)(*each) for each in asked)
    here = dict(zip(((name, budget) for name, budget, *_ in asked), timings, strict=True))
    nearly = joblib.Parallel(n_jobs=jobs)(joblib.delayed(moved)(name, "small", STEPS["small"][0]) for name in NAMES)
    for budget, (_, steps) in STEPS.items():
        for name, beside in zip(NAMES, nearly, strict=True):
            if budget == "large" and name.startswith("book-"):
                continue  # token by token, minutes for what little they have
            cpu, error = here.get((name, budget), (float("nan"), float("nan")))
            row: dict[str, object] = {
                "run": 1,
                "contestant": name.split(":")[-1],
                "budget": budget,
                "processes": 1,
                "cpu_ms": cpu,
            }
            try:
                row["gpu_ms"], there = milliseconds(name, budget, "cuda:0", steps)
                row |= memory(name, budget)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                yield row
                continue
            if budget == "small":
                again = trained(name, budget, "cuda:0", steps).validation
                row |= {"error_cpu": error, "error_gpu": there, "error_gpu_again": again, "error_cpu_moved": beside}
            yield row
    asked = [("gla", "medium", "cuda:0", 2 * STEPS["medium"][1])] * SHARERS
    together = joblib.Parallel(n_jobs=SHARERS)(joblib.delayed(milliseconds)(*each) for each in asked)
    yield {
        "run": 1,
        "contestant": "gla",
        "budget": "medium",
        "processes": SHARERS,
        "gpu_ms": max(ms for ms, _ in together),
    }


def main() -> None:
    """Measure, print, and record on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write book/results/gpu-bench.json")
    parser.add_argument("--jobs", type=int, default=6, help="processes that time the processor; default 6")
    asked = parser.parse_args()
    start, made = time.monotonic(), list[dict[str, object]]()
    config: dict[str, object] = {"rate": RATE, "processes on the processor": asked.jobs, "threads": 1}
    config |= {f"steps, {budget}": f"{here} and {there}" for budget, (here, there) in STEPS.items()}
    for row in rows(asked.jobs):
        print({word: f"{each:.6g}" if isinstance(each, float) else each for word, each in row.items()}, flush=True)
        made.append(row)
        if asked.record:  # each time: a lent machine may be gone before the last row
            spent, command = time.monotonic() - start, "python benchmarks/gpu.py --record"
            records.record("gpu-bench", pd.DataFrame(made), config=config, seconds=spent, command=command)


if __name__ == "__main__":
    main()
