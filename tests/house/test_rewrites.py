"""Rewritten definitions that keep their identity: each still stands, and computes what its older form computed."""

import hashlib
import multiprocessing
import os
import subprocess
import sys
import tarfile
import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from shared import started

from icl import _identity
from icl._rewrites import REWRITES

ROOT = Path(__file__).resolve().parents[2]
NAMES = [rewrite.definition for rewrite in REWRITES]
#: So many of the proofs are computed anew at a commit, others at each; with ALL in the environment all are, as weekly.
SAMPLE = 2


def told(value):
    """A result as bytes, by value."""
    if isinstance(value, dict):
        return told([(key, value[key]) for key in sorted(value)])
    if isinstance(value, list | tuple):
        return b"(" + b",".join(map(told, value)) + b")"
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
    assert isinstance(value, int | float | str) or value is None, type(value)
    return repr(value).encode()


def _work(library, everything, answers):
    """Compute cases with a library that stands in a folder, in a process of its own.

    It is a copy of this one, which has torch loaded; what it has of the library, and with whose annotations checked,
    is forgotten.
    """
    for name in [name for name in sys.modules if name.split(".")[0] == "icl"]:
        del sys.modules[name]
    sys.meta_path[:] = [each for each in sys.meta_path if not type(each).__module__.startswith("jaxtyping")]
    sys.path.insert(0, str(library))
    warnings.resetwarnings()
    digests = {}
    for cases in everything:
        space = {}
        exec(cases, space)
        digests[cases] = [hashlib.sha256(told(result)).hexdigest() for result in space["results"]]
    answers.send((sys.modules["icl"].__file__, digests))


def computed(libraries):
    """Digests of what cases compute, {cases: digests} for each of some libraries; `libraries` is (folder, cases)."""
    found = []
    for folder, cases in libraries:
        here, there = multiprocessing.Pipe(duplex=False)
        process = started(_work, folder, cases, there)
        there.close()
        place, digests = here.recv()
        process.join()
        assert place == str(folder / "icl" / "__init__.py")
        found.append(digests)
    return found


def older(commit, folder):
    """The library as it was at a commit, from the repository's history; None where that does not reach back so far."""
    done = subprocess.run(["git", "archive", commit, "lib"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        return None
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "lib"


def turns(commit, everything):
    """The rewrites whose turn it is at a commit; all of them where that is asked for, or no commit is known."""
    proofs = dict.fromkeys((rewrite.commit, rewrite.cases) for rewrite in REWRITES)
    order = sorted(proofs, key=lambda proof: hashlib.sha256(f"{commit} {proof}".encode()).digest())
    taken = order if everything or not commit else order[:SAMPLE]
    return [rewrite for rewrite in REWRITES if (rewrite.commit, rewrite.cases) in taken]


def head():
    """The commit that is checked out; empty without git."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


TURN = turns(head(), os.environ.get("ALL"))


def test_the_turn_comes_to_each():
    """A commit has a part of the proofs, another one others, and over a few hundred commits each had its turn."""
    parts = [turns(f"{number:040x}", None) for number in range(200)]
    assert all(SAMPLE <= len(part) < len(REWRITES) for part in parts)
    assert {rewrite.definition for part in parts for rewrite in part} == set(NAMES)
    assert turns("a", "1") == turns("", None) == list(REWRITES)


@pytest.fixture(scope="module")
def before_and_now(tmp_path_factory):
    """{commit: digests} of each commit's cases as the library was, and the digests of all of them as it is."""
    cases = {}  # what several definitions are proved by is computed once
    for rewrite in TURN:
        cases.setdefault(rewrite.commit, {})[rewrite.cases] = None
    folders = {commit: older(commit, tmp_path_factory.mktemp("older")) for commit in cases}
    there = [commit for commit, folder in folders.items() if folder]
    libraries = [(folders[commit], list(cases[commit])) for commit in there]
    libraries.append((ROOT / "lib", [each for commit in there for each in cases[commit]]))
    *before, now = computed(libraries)
    return dict(zip(there, before, strict=True)), now


@pytest.mark.parametrize("rewrite", TURN, ids=[rewrite.definition for rewrite in TURN])
def test_a_rewritten_definition_computes_what_it_did(before_and_now, rewrite):
    """Every byte of every case agrees between the library of that commit and this one."""
    before, now = before_and_now
    if rewrite.commit not in before:
        pytest.skip(f"the history does not reach back to {rewrite.commit[:8]}")
    assert before[rewrite.commit][rewrite.cases]
    assert before[rewrite.commit][rewrite.cases] == now[rewrite.cases]


@pytest.mark.parametrize("rewrite", REWRITES, ids=NAMES)
def test_a_rewritten_definition_keeps_its_identity(monkeypatch, rewrite):
    """A row speaks of a definition as it stands; it is not one that nothing matches any longer."""
    assert _identity.identity(rewrite.definition) == rewrite.before
    monkeypatch.setattr(_identity, "_known", {})
    own = dict(_identity._kept)
    del own[rewrite.now]
    monkeypatch.setattr(_identity, "_kept", own)
    assert _identity.identity(rewrite.definition) == rewrite.now
