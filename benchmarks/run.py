"""Speed of the library's forms against one another, as ratios within one run. `make bench`; takes about two minutes.

python benchmarks/run.py              print the tables
python benchmarks/run.py --record     also write book/results/{operator,predictor}-speed.json
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from icl.models import one_layer, operators
from icl.profile import make_generator
from icl.tasks import DriftingRegression
from icl_book import records


def median_ms(run: Callable[[], object], *, seconds: float = 1.5) -> float:
    """Median milliseconds of a call: one to warm up, then as many as fit into `seconds`, at least three."""
    run()
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def forward_backward(run: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
    """A forward pass and the gradient of the sum of its outputs."""
    run(*inputs).sum().backward()


def copies(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Touch each tensor once: the least that any form could do."""
    return [tensor.detach().clone() for tensor in tensors]


def operator_speed() -> pd.DataFrame:
    """Forward and backward of the three forms of gated linear attention, by length; batch 8, 2 heads of 32, float32."""
    generator, rows = make_generator("benchmark"), []
    for length in (64, 128, 256, 512, 1024, 2048, 4096):
        q, k, v = (torch.randn(8, length, 2, 32, generator=generator).requires_grad_() for _ in range(3))
        decay = torch.tensor([0.9, 0.99]).reshape(1, 1, 2).requires_grad_()
        row: dict[str, float] = {"time": length}
        for form in (operators.recurrent, operators.parallel, operators.chunked):
            row[form.__name__] = median_ms(partial(forward_backward, form, q, k, v, decay))
        row["copy"] = median_ms(partial(copies, q, k, v, v, q, k, v, v), seconds=0.3)
        rows.append(row)
        print(
            f"  {length:5d} tokens: " + ", ".join(f"{n} {t:.2f} ms" for n, t in row.items() if n != "time"), flush=True
        )
    return pd.DataFrame(rows).round(4)


def predictor_speed() -> pd.DataFrame:
    """The one-layer predictor, from the step loop to the sufficient statistic; batch 512, n = 100, d = 10."""
    prompt = DriftingRegression(d=10, n=100, gamma=0.95).sample(512, generator=make_generator("benchmark"))
    model = one_layer.OneLayerGLA(10, lam=0.9, scale=0.1, generator=make_generator("benchmark weights"))
    Z, x_query = prompt.tokens(), prompt.x[:, -1]
    G = one_layer.gram(Z, 0.9)

    def step_loop() -> None:
        q, k, v = (Z @ model.W_KQ.T).unsqueeze(2), Z.unsqueeze(2), (Z @ model.W_V.T).unsqueeze(2)
        operators.recurrent(q, k, v, torch.full((1, 1, 1), 0.9))[:, -1, 0, -1].sum().backward()

    rows = {
        "step loop": median_ms(step_loop),
        "literal layer, chunked": median_ms(lambda: one_layer.predict(Z, model.W_V, model.W_KQ, 0.9).sum().backward()),
        "Gram matrix": median_ms(lambda: model(prompt).sum().backward()),
        "Gram matrix, formed before": median_ms(
            lambda: one_layer.predict_from_gram(G, model.W_V, model.W_KQ, x_query).sum().backward()
        ),
    }
    return (
        pd.DataFrame({"form": list(rows), "ms": list(rows.values())})
        .assign(times_faster=lambda t: t.ms.iloc[0] / t.ms)
        .round(4)
    )


def main() -> None:
    """Measure, print, and record on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write book/results/*-speed.json")
    record = parser.parse_args().record
    torch.set_num_threads(1)
    start = time.monotonic()
    print("Gated linear attention, forward and backward:")
    table = operator_speed()
    seconds = time.monotonic() - start
    start, forms = time.monotonic(), table
    print("\nOne-layer predictor, forward and backward:")
    table = predictor_speed()
    print(table.to_string(index=False, float_format="{:.2f}".format))
    if record:
        config = {"batch": 8, "heads": 2, "dim": 32, "dtype": "float32", "threads": 1, "chunk": 32}
        records.record(
            "operator-speed", forms, config=config, seconds=seconds, command="python benchmarks/run.py --record"
        )
        config = {"batch": 512, "n": 100, "d": 10, "dtype": "float32", "threads": 1}
        seconds = time.monotonic() - start
        path = records.record(
            "predictor-speed", table, config=config, seconds=seconds, command="python benchmarks/run.py --record"
        )
        print(f"\nWrote to {path.parent}")


if __name__ == "__main__":
    main()
