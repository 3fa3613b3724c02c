"""The two profiles, what the environment asks for and nothing else; and streams of random numbers, which repeat."""

import pytest
import torch

from icl import profile
from icl.profile import make_generator

# Properties


def test_quick_is_the_default(monkeypatch):
    """Without ICL_PROFILE the profile is quick: small sizes, on the CPU."""
    monkeypatch.delenv("ICL_PROFILE", raising=False)
    assert profile.current() == "quick"
    assert profile.by_profile(quick=1, paper=2) == 1
    assert profile.device() == torch.device("cpu")


@pytest.mark.parametrize(("gpu", "expected"), [(True, "cuda"), (False, "cpu")])
def test_paper_takes_a_gpu_if_there_is_one(monkeypatch, gpu, expected):
    """The profile paper takes the papers' sizes, and a GPU exactly if there is one; quick never does."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setenv("ICL_PROFILE", "paper")
    assert profile.by_profile(quick=1, paper=2) == 2
    assert profile.device().type == expected
    monkeypatch.setenv("ICL_PROFILE", "quick")
    assert profile.device().type == "cpu"


def draw(*arguments, **named):
    return torch.randn(8, generator=make_generator(*arguments, **named))


def test_streams_repeat_and_do_not_overlap():
    """A stream's draws depend on its name and its seed and on nothing else: same name and seed, same draws; else
    others.

    Names that end in a number and seeds that continue them are told apart.
    """
    assert torch.equal(draw("prompts"), draw("prompts", seed=0))
    names = ["prompts", "weights", "prompts/1", "prompts/", "p"]
    drawn = torch.stack([draw(name, seed=seed) for name in names for seed in (0, 1, 2, 10, 11, 12)])
    assert len(drawn.flatten().unique()) == drawn.numel()


def test_streams_are_the_same_everywhere():
    """A stream starts at the same seed in every process and on every machine: at this one."""
    assert make_generator("prompts", seed=3).initial_seed() == 2658786049282718546


# Bad input


@pytest.mark.usefixtures("as_installed")
def test_the_profile_is_one_of_two(monkeypatch):
    """An unknown ICL_PROFILE is refused wherever the profile is asked for, with what it said."""
    monkeypatch.setenv("ICL_PROFILE", "fast")
    for ask in (profile.current, lambda: profile.by_profile(quick=1, paper=2), profile.device):
        with pytest.raises(ValueError, match="ICL_PROFILE must be 'quick' or 'paper', got 'fast'"):
            ask()
