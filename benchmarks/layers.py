"""Time a token of every fast-weight layer, beside what it counts to. Part of `make bench`; half a minute.

python benchmarks/layers.py              print the table
python benchmarks/layers.py --record     also write book/results/layers-speed.json
"""

import argparse
import time
from functools import partial

import pandas as pd
import torch
from run import median_ms

from icl.models import delta_layers, flops
from icl.models import fast_weights as fw
from icl.models.causal import Normalised
from icl.models.s6 import S6, Selective, Step
from icl.models.stacks import GatedDeltaStack, Stack
from icl.models.streaming_stacks import LayeredDelta, LayeredGLA, Selected
from icl.profile import make_generator
from icl.tasks import DriftingRegression
from icl_book import records

BATCH, N, D, ROUNDS = 256, 199, 10, 8


def layers(d: int) -> dict[str, fw.FastWeights]:
    """Each layer at settings that any of the book's drifts might ask for; times do not depend on them."""
    gates = partial(fw.LengthGate, d)
    B, C = (Selective(d + 1, 16, dtype=torch.float32) for _ in range(2))
    return {
        "linear attention": fw.LinearAttention(d, mu=0.01),
        "RetNet": fw.RetNet(d, lam=fw.retention(4), mu=0.05),
        "GLA": fw.GLA(d, lam=0.9, mu=0.06),
        "Mamba-2": fw.Mamba2(d, gates(), A=1.0, Delta=0.1, mu=0.5),
        "delta rule": delta_layers.DeltaRule(d, lam=0.95, mu=0.08),
        "gated delta": delta_layers.GatedDelta(d, gates(), gates(), lam=0.95, beta=0.9),
        "Longhorn": delta_layers.Longhorn(d, lam=0.95, eps=0.5),
        "Mesa": delta_layers.Mesa(d, lam=0.8, eps=0.5),
        "Kalman": delta_layers.Kalman(d, gamma=0.95, sigma_e=0.1, sigma_y=0.3, P_0=0.1),
        "LFOM": delta_layers.LFOM(d, c=[1.0, -1.0, 0.5, -0.1]),
        "S6": Selected(S6(B, C, Step(d + 1, 0.03, dtype=torch.float32), -torch.ones(1))),
        "GLA, 6 layers": LayeredGLA(Normalised(Stack(d, 6))),
        "gated delta, 4 layers": LayeredDelta(GatedDeltaStack(d, 4)),
    }


def speeds() -> pd.DataFrame:
    """Forward pass of 256 prompts of 200 tokens, token by token, d = 10, float32; and one token of one prompt alone."""
    prompt = DriftingRegression(D, N, 0.95).sample(BATCH, generator=make_generator("layers"))
    x, y = prompt.x[:1, 0], prompt.y[:1, 0]
    torch.set_num_threads(1)
    made = layers(D)
    together, alone = ({name: float("inf") for name in made} for _ in range(2))

    def token(layer: fw.FastWeights, state: object) -> None:
        layer.read(state, x)
        layer.step(state, x, y)

    # In rounds, the least of each: what else the machine does falls on all layers alike.
    with torch.no_grad():
        for _ in range(ROUNDS):
            for name, layer in made.items():
                # Token by token, those too that answer a prompt at once.
                pass_ = partial(fw.FastWeights.errors, layer, prompt.x, prompt.y)
                together[name] = min(together[name], median_ms(pass_, seconds=0.3))
                alone[name] = min(alone[name], median_ms(partial(token, layer, layer.start(1)), seconds=0.1))
    rows = []
    for name, layer in made.items():
        counted = flops.cost(layer)
        row = {"layer": name, "parameters": counted.parameters, "state": counted.state, "flops": counted.flops}
        row |= {"ns_together": 1e6 * together[name] / (BATCH * (N + 1)), "us_alone": 1e3 * alone[name]}
        rows.append(row)
    table = pd.DataFrame(rows)
    table["times_gla"] = table["ns_together"] / table.set_index("layer").loc["GLA", "ns_together"]
    return table.round(2)


def main() -> None:
    """Measure, print, and record on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write book/results/layers-speed.json")
    start = time.monotonic()
    record = parser.parse_args().record
    table = speeds()
    print(table.to_string(index=False))
    if record:
        config = {"batch": BATCH, "tokens": N + 1, "d": D, "rounds": ROUNDS, "dtype": "float32", "threads": 1}
        command = "python benchmarks/layers.py --record"
        records.record("layers-speed", table, config=config, seconds=time.monotonic() - start, command=command)


if __name__ == "__main__":
    main()
