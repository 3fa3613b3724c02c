"""Results made up, pages without pictures, a layer from a file, and `sys.path` left as it was."""

import sys
import textwrap

import numpy as np
import pandas as pd
import pytest

from icl_bench.entries import resolve
from icl_bench.results import COLUMNS, FORMAT, ZERO, BenchResults
from icl_book import charts

TASKS = {
    "ar1-0.9": ("AR(1), γ = .9", False, "Bayes", 0.2),
    "switches": ("switches", False, "best linear", 0.3),
    "ar1-0.6": ("AR(1), γ = .6", True, "Bayes", 0.6),
}


LAYER = """
    import torch
    from torch import nn


    class Mine(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.key, self.value = nn.Linear(width, width), nn.Linear(width, width)
            self.drop = nn.Dropout(0.2)

        def forward(self, x):
            k = self.drop(self.key(x))
            scores = (x @ k.transpose(1, 2)).tril() / x.shape[-1]
            return scores @ self.value(x)
"""


@pytest.fixture(autouse=True)
def _path_as_it_was(monkeypatch):
    """A file of one's own stays on `sys.path` once it is loaded; the next test's file may have its name."""
    monkeypatch.setattr(sys, "path", list(sys.path))


def _made_up(
    contestants=("gla", "softmax"),
    *,
    seeds=3,
    prompts=40,
    draw=0,
    tasks=None,
    train="all",
    worse=(1.4, 2.2),
    device="cpu",
    warnings=(),
    **meta,
):
    """Results of contestants whose risks are about so many floors; the prompts are the same whatever `draw`."""
    tasks = tasks or TASKS
    shared, own = np.random.default_rng(5), np.random.default_rng(draw)
    rows = []
    for task, (_, shifted, reference, floor) in tasks.items():
        for variant in ("same",) if shifted else ("same", "longer"):
            hard = shared.gamma(4.0, floor / 4, prompts)
            rows.append(("genie", "floor", "", np.nan, 0, task, variant, (0.8 * hard).tolist()))
            if reference:
                rows.append((reference, "floor", "", np.nan, 0, task, variant, hard.tolist()))
            rows.append((ZERO, "filter", "", np.nan, 0, task, variant, (hard + shared.gamma(2, 0.5, prompts)).tolist()))
            for name, factor in zip(contestants, worse, strict=False):
                for seed in range(seeds):
                    errors = hard * factor * (1 + 0.05 * seed) * own.gamma(20.0, 1 / 20, prompts)
                    rows.append((name, "layer", "all", 0.004, seed, task, variant, errors.tolist()))
    about = {
        name: {
            "title": title,
            "about": f"Weights of {title}.",
            "shifted": shifted,
            "reference": reference,
            "prompts": {variant: f"{name} {variant}" for variant in (("same",) if shifted else ("same", "longer"))},
        }
        for name, (title, shifted, reference, _) in tasks.items()
    }
    told = {
        name: {
            "spec": name,
            "kind": "layer",
            "about": f"The layer {name}.",
            "source": "ab" * 32,
            "parameters": 17_000 + place,
            "flops": 34_000.0,
            "state_bytes": 2_048 if place else None,
            "state_grows": True,
            "us_per_token": 7.5,
            "rates": {"all": {"0.001": 0.9, "0.004": 0.5 + place / 10, "0.016": 0.7}},
            "rate": {"all": "0.004"},
            "settings": {},
            "seconds": 123.4,
            "warnings": list(warnings),
        }
        for place, name in enumerate(contestants)
    }
    budget = {"name": "small", "d": 5, "n": 64, "width": 32, "depth": 2, "steps": 600, "batch": 32}
    budget |= {"rates": [0.001, 0.004, 0.016], "seeds": seeds, "prompts": prompts, "choosing": 256, "last": 16}
    known = {
        "format": FORMAT,
        "budget": budget,
        "train": train,
        "tasks": about,
        "contestants": told,
        "device": device,
        "library": "0123456789abcdef",
        "versions": {"torch": "2.7.0", "python": "3.12.1"},
    }
    return BenchResults(pd.DataFrame(rows, columns=list(COLUMNS)), known | meta)


@pytest.fixture
def made_up():
    """The function that makes them."""
    return _made_up


@pytest.fixture
def undrawn(monkeypatch):
    """Empty pictures: to draw a page's takes half a second, and they are no part of its words."""
    monkeypatch.setattr(charts.Figure, "svg", lambda figure, width=680: '<svg width="480" height="100"></svg>')


@pytest.fixture(scope="session")
def written():
    """What writes the layer above into a folder, and finds it there as a contestant.

    It has dropout, so it draws from torch's own stream while it is trained.
    """

    def found(place):
        path = place / "mine.py"
        path.write_text(textwrap.dedent(LAYER))
        return resolve(f"{path}:Mine")

    return found


@pytest.fixture
def mine(tmp_path, written):
    """The layer above, as a contestant."""
    return written(tmp_path)
