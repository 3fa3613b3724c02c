"""The two profiles: what the environment asks for and nothing else."""

import pytest
import torch

from icl import profile


def test_quick_is_the_default(monkeypatch):
    """Without ICL_PROFILE the profile is quick: small sizes, on the CPU."""
    monkeypatch.delenv("ICL_PROFILE", raising=False)
    assert profile.current() == "quick"
    assert profile.pick(quick=1, paper=2) == 1
    assert profile.device() == torch.device("cpu")


@pytest.mark.parametrize(("gpu", "expected"), [(True, "cuda"), (False, "cpu")])
def test_paper_takes_a_gpu_if_there_is_one(monkeypatch, gpu, expected):
    """The profile paper takes the papers' sizes, and a GPU exactly if there is one; quick never does."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setenv("ICL_PROFILE", "paper")
    assert profile.pick(quick=1, paper=2) == 2
    assert profile.device().type == expected
    monkeypatch.setenv("ICL_PROFILE", "quick")
    assert profile.device().type == "cpu"
