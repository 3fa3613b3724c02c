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

#: Reads libraries and {definition: cases}, and prints for each library a hash of what each leaves in `results`;
#: everything is hashed by value. Each library has a process of its own, a copy of one that has loaded what both import.
PROGRAM = """
import hashlib, json, os, sys
import numpy as np
import pandas, scipy.linalg, scipy.optimize, torch, torch._dynamo

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
libraries, everything = json.load(sys.stdin)
for library in libraries:
    if copy := os.fork():
        assert os.waitpid(copy, 0)[1] == 0
        continue
    assert not any(name.split(".")[0] == "icl" for name in sys.modules)
    sys.path.insert(0, library)
    digests = {}
    for cases in set(everything.values()):  # definitions that are proved by the same cases share them
        space = {}
        exec(cases, space)
        digests[cases] = [hashlib.sha256(told(result)).hexdigest() for result in space["results"]]
    digests = {name: digests[cases] for name, cases in everything.items()}
    print(json.dumps([sys.modules["icl"].__file__, digests]), flush=True)
    break
"""


def computed(libraries, cases):
    """Digests of what these cases compute with each of some libraries."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([list(map(str, libraries)), cases]),
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [place for place, _ in found] == [str(library / "icl" / "__init__.py") for library in libraries]
    return [digests for _, digests in found]


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
    before, now = computed([older(commit, tmp_path), ROOT / "lib"], cases)
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
