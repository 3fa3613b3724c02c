"""Speed of the S6 layer's forms, against mambapy's parallel scan. Part of `make bench`; half a minute.

python benchmarks/mamba.py              print the table
python benchmarks/mamba.py --record     also write book/results/mamba-speed.json
"""

import argparse
import time
from functools import partial

import pandas as pd
import torch
from mambapy.mamba import MambaBlock, MambaConfig
from run import forward_backward, median_ms
from torch import Tensor

from icl.models import s6
from icl.profile import make_generator
from icl.tasks import StationaryRegression
from icl_book import records

BATCH, N, D, D_H = 512, 50, 4, 80


def forms() -> pd.DataFrame:
    """Forward and backward of one layer of Assumption 4.1 on new prompts: 512 of 50 examples, d = 4, d_h = 80, float32.

    All forms compute the output of every token but the last, which computes the prediction alone.
    """
    layer = s6.assumed(D, D_H, N, generator=make_generator("benchmark"), dtype=torch.float32)
    prompt = StationaryRegression(D, N).sample(BATCH, generator=make_generator("benchmark prompts"))
    u = prompt.tokens()
    block = MambaBlock(MambaConfig(d_model=D + 1, n_layers=1, d_state=D_H, expand_factor=1))

    def peer() -> Tensor:
        step = layer.step(u).unsqueeze(-1).expand(BATCH, N + 1, D + 1)
        rate = layer.A.expand(D + 1, D_H)
        # It holds by Euler's rule; this makes it zero-order hold.
        B = layer.B(u) * (torch.expm1(layer.step(u) * layer.A) / (layer.step(u) * layer.A)).unsqueeze(-1)
        return block.selective_scan(u, step.clone(), rate.clone(), B, layer.C(u), torch.zeros(D + 1))

    def parts() -> tuple[Tensor, ...]:
        return u, layer.A, layer.B(u), layer.C(u), layer.step(u)

    ways = {
        "mambapy": peer,
        "token loop": lambda: s6.scan(*parts()),
        "dual": lambda: s6.dual(*parts()),
        "chunked": lambda: s6.scan_chunked(*parts()),
        "collapsed": lambda: s6.collapsed(layer, u, s6.s6_features(u, layer)),
        "statistics, last token only": lambda: s6.read_out(layer, s6.statistics(prompt, layer)),
    }
    rows = []
    for name, way in ways.items():
        out = way().detach()
        exact = peer().detach()
        if (out - (exact if out.dim() == 3 else exact[:, -1, -1])).abs().max() > 1e-3 * exact.abs().max():
            raise ValueError(f"{name} does not compute what mambapy does")
        row: dict[str, object] = {"form": name}
        for threads in (1, 2):
            torch.set_num_threads(threads)
            row[f"ms_{threads}"] = median_ms(partial(forward_backward, way), seconds=2)
        rows.append(row)
        print("  " + ", ".join(f"{k} {v:.2f}" if isinstance(v, float) else str(v) for k, v in row.items()), flush=True)
    table = pd.DataFrame(rows)
    for threads in (1, 2):
        table[f"times_{threads}"] = table[f"ms_{threads}"].iloc[0] / table[f"ms_{threads}"]
    return table.round(3)


def main() -> None:
    """Measure, print, and record on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write book/results/mamba-speed.json")
    start = time.monotonic()
    record = parser.parse_args().record
    table = forms()
    print(table.to_string(index=False))
    if record:
        config = {"batch": BATCH, "N": N, "d": D, "d_h": D_H, "dtype": "float32"}
        command = "python benchmarks/mamba.py --record"
        records.record("mamba-speed", table, config=config, seconds=time.monotonic() - start, command=command)


if __name__ == "__main__":
    main()
