"""Size of an experiment, its device, and its random stream.

The profile comes from the environment variable `ICL_PROFILE`: `quick` (the default: sizes that a laptop's CPU
finishes while the book is built) or `paper` (the papers' sizes, for the recorded runs; a GPU if there is one).
"""

import hashlib
import os
from typing import Literal, TypeVar, cast

import torch

from icl import _checks
from icl._bounds import Natural, validated

Profile = Literal["quick", "paper"]
T = TypeVar("T")


def current() -> Profile:
    """Return the active profile; ValueError if `ICL_PROFILE` is not one of the two."""
    name = os.environ.get("ICL_PROFILE", "quick")
    if name not in ("quick", "paper"):
        raise ValueError(f"ICL_PROFILE must be 'quick' or 'paper', got {name!r}")
    return cast(Profile, name)


def by_profile(*, quick: T, paper: T) -> T:
    """Return the argument for the active profile."""
    return quick if current() == "quick" else paper


def device() -> torch.device:
    """Return the GPU under the profile `paper` if there is one, otherwise the CPU."""
    return torch.device("cuda" if current() == "paper" and torch.cuda.is_available() else "cpu")


@validated
def make_generator(name: str, *, seed: Natural = 0, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a fresh random generator for the stream called `name`.

    Its seed is a hash of the name and of `seed`, so that streams with different names or seeds never overlap, adding an
    experiment changes no other, and the same call always starts the same stream. `seed` numbers replicates.

    >>> import torch
    >>> from icl.profile import make_generator
    >>> draws = [torch.randn(2, generator=make_generator("example", seed=seed)) for seed in (0, 0, 1)]
    >>> torch.equal(draws[0], draws[1]), torch.equal(draws[0], draws[2])
    (True, False)
    """
    _checks.text("name", name, "a text, which tells streams apart")
    digest = hashlib.sha256(f"{name}/{seed}".encode()).digest()
    # 63 bits: torch refuses seeds of 2**64 and above, and a sign bit would be read differently on some devices.
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "big") >> 1)
