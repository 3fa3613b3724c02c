"""Rewritten definitions that keep their identity: each still stands, and computes what its older form computed."""

import json
import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from icl import _identity
from icl._rewrites import REWRITES

ROOT = Path(__file__).resolve().parents[2]
NAMES = [rewrite.definition for rewrite in REWRITES]

#: Reads {definition: cases} and prints a hash of what each leaves in `results`; everything is hashed by value.
PROGRAM = """
import hashlib, json, sys
import numpy as np
import torch

def told(value):
    if isinstance(value, dict):
        return told([(key, value[key]) for key in sorted(value)])
    if isinstance(value, (list, tuple)):
        return b"(" + b",".join(map(told, value)) + b")"
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
    assert isinstance(value, (int, float, str)) or value is None, type(value)
    return repr(value).encode()

torch.set_num_threads(1)
digests = {}
for name, cases in json.load(sys.stdin).items():
    space = {}
    exec(cases, space)
    digests[name] = [hashlib.sha256(told(result)).hexdigest() for result in space["results"]]
json.dump(digests, sys.stdout)
"""


def computed(library, cases):
    """Digests of what these cases compute with a library."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(cases),
        env=os.environ | {"PYTHONPATH": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def older(commit, folder):
    """The library as it was at a commit, from the repository's history."""
    done = subprocess.run(["git", "archive", commit, "lib"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"the history does not reach back to {commit[:8]}")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "lib"


@pytest.mark.parametrize("commit", sorted({rewrite.commit for rewrite in REWRITES}))
def test_a_rewritten_definition_computes_what_it_did(tmp_path, commit):
    """Every byte of every case agrees between the library of that commit and this one."""
    cases = {rewrite.definition: rewrite.cases for rewrite in REWRITES if rewrite.commit == commit}
    before, now = computed(older(commit, tmp_path), cases), computed(ROOT / "lib", cases)
    assert all(before.values())
    assert {name for name in cases if before[name] != now[name]} == set()


@pytest.mark.parametrize("rewrite", REWRITES, ids=NAMES)
def test_a_rewritten_definition_keeps_its_identity(monkeypatch, rewrite):
    """A row speaks of a definition as it stands; it is not one that nothing matches any longer."""
    assert _identity.identity(rewrite.definition) == rewrite.before
    monkeypatch.setattr(_identity, "_known", {})
    own = dict(_identity._kept)
    del own[rewrite.now]
    monkeypatch.setattr(_identity, "_kept", own)
    assert _identity.identity(rewrite.definition) == rewrite.now
