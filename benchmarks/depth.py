"""Speed of training deep gated linear attention, against its own recurrence. Part of `make bench`; 5 minutes.

python benchmarks/depth.py              print the tables
python benchmarks/depth.py --record     also write book/results/depth-speed.json and depth-length.json
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from icl.models import operators
from icl.models.stacks import Stack
from icl.profile import make_generator
from icl.tasks import DriftingRegression, Prompt
from icl_book import records


def printed(stack: Stack, prompt: Prompt) -> Tensor:
    """The query's prediction by (5) as the paper prints it: matrices W_V and W_KQ a layer, one token after another."""
    Z, d = prompt.tokens(), stack.d
    W_KQ = torch.diag(torch.cat([Z.new_ones(d), Z.new_zeros(1)]))
    for layer, lam in enumerate(stack.lam):
        s_x = stack.s_x[layer] if layer < stack.layers - 1 else torch.zeros(())
        W_V = -torch.diag(torch.cat([s_x.expand(d), stack.s_y[layer : layer + 1]])) * (1 - lam) * lam
        values, queries = Z @ W_V.T, Z @ W_KQ.T
        S, read = Z.new_zeros(len(Z), d + 1, d + 1), []
        for t in range(Z.shape[1]):
            read.append((S @ queries[:, t].unsqueeze(-1)).squeeze(-1))
            S = lam * S + values[:, t].unsqueeze(-1) * Z[:, t].unsqueeze(-2)
        Z = Z + torch.stack(read, dim=1)
    return -Z[:, -1, -1]


def naive(stack: Stack, prompt: Prompt) -> Tensor:
    """The same after the matrices have been reduced to three numbers: still a loop over tokens."""
    Z, d = prompt.tokens(), stack.d
    for layer, lam in enumerate(stack.lam):
        state, read = Z.new_zeros(len(Z), d + 1, d), []
        for t in range(Z.shape[1]):
            read.append(torch.einsum("bed,bd->be", state, Z[:, t, :d]))
            state = lam * (state + torch.einsum("be,bd->bed", Z[:, t], Z[:, t, :d]))
        s_x = stack.s_x[layer] if layer < stack.layers - 1 else torch.zeros(())
        Z = Z - (1 - lam) * torch.cat([s_x.expand(d), stack.s_y[layer : layer + 1]]) * torch.stack(read, dim=1)
    return -Z[:, -1, -1]


def careful(stack: Stack, prompt: Prompt) -> Tensor:
    """The same loop by `icl.models.operators.recurrent`, whose backward pass copies nothing of full length."""
    Z = prompt.tokens()
    for layer, lam in enumerate(stack.lam):
        keys = Z[..., None, :-1]
        read = operators.recurrent(keys, keys, Z.unsqueeze(2), lam.view(1, 1, 1))[:, :, 0]
        s_x = stack.s_x[layer] if layer < stack.layers - 1 else torch.zeros(())
        steps = torch.cat([s_x.expand(stack.d), stack.s_y[layer : layer + 1]])
        Z = Z - (1 - lam) * steps * (read - (keys * keys).sum(-1) * Z)
    return -Z[:, -1, -1]


def step(stack: Stack, rule: torch.optim.Optimizer, predict: object, task: DriftingRegression, batch: int) -> None:
    """One step of training: fresh prompts, the loss at the query, Adam."""
    prompt = task.sample(batch, generator=step.generator)  # type: ignore[attr-defined]
    loss = (predict(prompt) - prompt.y[:, -1]).square().mean()  # type: ignore[operator]
    rule.zero_grad(set_to_none=True)
    loss.backward()
    rule.step()


step.generator = make_generator("benchmark")  # type: ignore[attr-defined]


def timed(
    layers: int, n: int, batch: int, *, threads: int, loops: dict[str, Callable[..., Tensor]], seconds: float
) -> dict[str, float]:
    """Median milliseconds of a training step, by the stack itself ("ms") and by loops over tokens.

    Steps take turns, so that what else the machine does falls on all alike; as many turns as fit, at least three.
    """
    torch.set_num_threads(threads)
    stack = Stack(10, layers)
    rule = torch.optim.Adam(stack.parameters(), lr=1e-3)
    task = DriftingRegression(d=10, n=n, gamma=0.95, sigma_w=0.1 / (1 - 0.95**2) ** 0.5)
    ways = {"ms": stack} | {name: partial(loop, stack) for name, loop in loops.items()}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for predict in ways.values():
        step(stack, rule, predict, task, batch)
    begun = time.perf_counter()
    while len(times["ms"]) < 3 or time.perf_counter() - begun < seconds:
        for name, predict in ways.items():
            start = time.perf_counter()
            step(stack, rule, predict, task, batch)
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: float(np.median(taken)) for name, taken in times.items()}


def against_recurrence() -> pd.DataFrame:
    """A step at batch 512, n = 100, by the number of layers, with one thread and with two."""
    rows, loops = [], {"printed_ms": printed, "naive_ms": naive, "careful_ms": careful}
    for layers in (1, 2, 4, 6):
        row: dict[str, float] = {"layers": layers}
        for threads in (1, 2):
            ms = timed(layers, 100, 512, threads=threads, loops=loops, seconds=20)
            row |= {f"{name}_{threads}": value for name, value in ms.items()}
            row[f"times_{threads}"] = ms["printed_ms"] / ms["ms"]
        rows.append(row)
        print("  " + ", ".join(f"{k} {v:.1f}" for k, v in row.items()), flush=True)
    return pd.DataFrame(rows).round(2)


def by_length() -> pd.DataFrame:
    """A step of two layers at batch 16, by the length of the prompts, one thread."""
    rows = []
    for n in (63, 127, 255, 511, 1023, 2047, 4095):
        ms = timed(2, n, 16, threads=1, loops={"recurrence_ms": naive}, seconds=4)
        rows.append({"n": n, **ms, "times": ms["recurrence_ms"] / ms["ms"], "us_a_token": 1e3 * ms["ms"] / n / 16})
        print("  " + ", ".join(f"{k} {v:.2f}" for k, v in rows[-1].items()), flush=True)
    return pd.DataFrame(rows).round(3)


def main() -> None:
    """Measure, print, and record on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write book/results/depth-{speed,length}.json")
    record = parser.parse_args().record
    command = "python benchmarks/depth.py --record"
    for name, measure, config in (
        ("depth-speed", against_recurrence, {"batch": 512, "n": 100, "d": 10, "dtype": "float32"}),
        ("depth-length", by_length, {"batch": 16, "layers": 2, "d": 10, "dtype": "float32", "threads": 1}),
    ):
        start = time.monotonic()
        print(f"{name}, {config}:")
        table = measure()
        if record:
            records.record(name, table, config=config, seconds=time.monotonic() - start, command=command)


if __name__ == "__main__":
    main()
