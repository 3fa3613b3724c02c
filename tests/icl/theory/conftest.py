"""Prompts that tests of the S6 layer and of its errata share."""

import pytest
import torch

from icl.models import s6 as model
from icl.profile import make_generator
from icl.tasks import StationaryRegression, batches


@pytest.fixture(scope="session")
def s6_prompts():
    """Statistics and labels of 100,000 prompts, to seven digits; they do not depend on the weights."""
    layer = model.assumed(4, 6, 50, generator=make_generator("unused")).to(torch.float32)
    known, labels = [], []
    for prompt in batches(StationaryRegression(4, 50), 100_000, generator=make_generator("S6"), dtype=torch.float32):
        known.append(model.statistics(prompt, layer))
        labels.append(prompt.y[:, -1])
    joint = (torch.cat([getattr(k, name) for k in known]).double() for name in ("g", "s", "e"))
    return model.Statistics(*joint), torch.cat(labels).double()
