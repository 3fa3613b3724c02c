"""Where you start: a gated delta rule in chunks, which the library has, against its recurrence at 4,096 tokens."""

import time

import numpy as np
import torch

from icl import profile
from icl.models.operators import delta_chunked, delta_recurrent

TOKENS, HEADS, KEY, REPEATS = 4096, 2, 16, 7


def baseline() -> dict[str, float]:
    """How many times less CPU time chunks take, in the median of pairs; `off` is their largest relative difference."""
    generator = profile.make_generator("project: chunks")
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    q, k, v = (draw(1, TOKENS, HEADS, KEY) for _ in range(3))
    k = k / k.norm(dim=-1, keepdim=True)
    decay, beta = torch.sigmoid(4 + draw(1, TOKENS, HEADS)), torch.sigmoid(draw(1, TOKENS, HEADS))
    ratios, answers = [], []
    for repeat in range(REPEATS + 1):
        seconds = []
        for form in (delta_recurrent, delta_chunked):
            began = time.process_time()
            answers.append(form(q, k, v, decay, beta))
            seconds.append(time.process_time() - began)
        if repeat:  # the first warms up
            ratios.append(seconds[0] / seconds[1])
    off = float((answers[0] - answers[1]).abs().max() / answers[0].abs().max())
    return {
        "mean": float(np.median(ratios)),
        "standard error": float(np.std(ratios, ddof=1) / REPEATS**0.5),
        "floor": 1.0,
        "off": off,
    }


if __name__ == "__main__":
    print(baseline())
