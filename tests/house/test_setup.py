"""The set-up: `make` makes a whole environment or begins anew, from one lock that is exact, complete and hashed."""

import os
import re
import shutil
import subprocess
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ASKED_FOR = [Requirement(line) for line in sum(PROJECT["optional-dependencies"].values(), PROJECT["dependencies"])]
LOCK = (ROOT / "requirements.lock").read_text()
TORCH = re.findall(r"^# (torch==.*)$", LOCK, re.M)
#: A pin's line and its hashes, one entry after another.
ENTRIES = [re.split(r" \\\n +", entry) for entry in re.split(r"\n(?=\S)", LOCK.rstrip()) if not entry.startswith("#")]
PINS = {pin.name: pin for pin in map(Requirement, [*TORCH, *(entry[0] for entry in ENTRIES)])}
#: The build of torch names the exact versions of these itself.
CUDA = ("cuda-", "nvidia-", "triton")

#: A Python whose environments are folders with this script in them, and whose pip does what $PIP_DOES says.
PYTHON = """#!/bin/sh
case "$1 $2" in
    "-m venv") mkdir "$3" "$3/bin" && cp "$0" "$3/bin/python" ;;
    "-m pip") echo "$*" >>pip-calls && eval "${PIP_DOES:-:}" ;;
    "-c import sys;"*) exit "${TOO_OLD:-0}" ;;
esac
"""


class Clone:
    """What `make setup` reads of the repository, in a folder of its own."""

    def __init__(self, root: Path):
        self.root, self.stamp = root / "clone", root / "clone" / ".venv" / ".ready"
        self.root.mkdir()
        for name in ("Makefile", "requirements.lock", "pyproject.toml"):
            os.utime(shutil.copy(ROOT / name, self.root), (1e9, 1e9))
        self.python = root / "python"
        self.python.write_text(PYTHON)
        self.python.chmod(0o755)

    def make(self, *goals: str, **env: str) -> subprocess.CompletedProcess:
        env = {"PATH": os.environ["PATH"], "PYTHON": str(self.python)} | env
        done = subprocess.run(
            ["make", *(goals or ["setup"])], cwd=self.root, env=env, capture_output=True, text=True, check=False
        )
        assert self.stamp.is_file() == (done.returncode == 0), done.stderr
        if done.returncode == 0:
            os.utime(self.stamp, (1.5e9, 1.5e9))  # newer than what it was made from, older than what changes now
        return done

    def calls(self) -> list[str]:
        return [line.partition(" --no-compile ")[2] for line in (self.root / "pip-calls").read_text().splitlines()]


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


@pytest.mark.parametrize("cpu", [False, True])
def test_the_lock_by_its_hashes_torch_by_its_version_then_the_package(clone, cpu):
    """In this order; torch alone from another index, and only if asked. A second call does nothing."""
    clone.make(**({"TORCH": "cpu"} if cpu else {}))
    index = " --index-url https://download.pytorch.org/whl/cpu" if cpu else ""
    lock = "--no-deps --require-hashes -r requirements.lock"
    assert clone.calls() == [lock, TORCH[0] + index, "--no-deps --no-build-isolation --editable ."]
    assert "Nothing to be done" in clone.make().stdout
    assert len(clone.calls()) == 3


@pytest.mark.parametrize("call", [1, 2, 3])
@pytest.mark.parametrize("before", [False, True])
def test_a_set_up_that_was_cut_short_is_made_anew(clone, call, before):
    """Killed in any of its steps, the first time or after the lock has changed, it leaves no stamp."""
    if before:
        clone.make()
        (clone.root / "requirements.lock").touch()
    killed = clone.make(PIP_DOES=f'[ "$(wc -l <pip-calls)" -ne {call + 3 * before} ] || kill -9 $PPID')
    assert killed.returncode
    left = clone.stamp.with_name("left")
    left.touch()
    assert clone.make().returncode == 0
    assert not left.exists()
    assert len(clone.calls()) == call + 3 * before + 3


@pytest.mark.parametrize("changed", ["requirements.lock", "pyproject.toml", "the folder"])
def test_what_it_was_made_from_changes(clone, changed):
    clone.make()
    if changed == "the folder":
        clone.root = clone.root.rename(clone.root.with_name("moved"))
        clone.stamp = clone.root / ".venv" / ".ready"
    else:
        (clone.root / changed).touch()
    clone.make()
    assert len(clone.calls()) == 6


def test_a_python_that_is_too_old_is_named(clone):
    assert "Python 3.11 or newer is needed: make setup PYTHON=" in clone.make(TOO_OLD="1").stderr


def test_every_pin_is_exact_and_has_its_hashes():
    """All but torch's, whose builds differ; and nothing is of one build of it."""
    for pin, *hashes in ENTRIES:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*==[0-9][a-z0-9.]*( ; .+)?", pin)
        assert hashes, pin
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), pin
    assert len(TORCH) == 1
    assert len(PINS) == len(ENTRIES) + 1
    assert not [name for name in PINS if name.startswith(CUDA)]


@pytest.mark.parametrize("asked", ASKED_FOR, ids=lambda r: r.name)
def test_the_lock_is_within_the_projects_ranges(asked):
    (pin,) = PINS[canonicalize_name(asked.name)].specifier
    assert asked.specifier.contains(pin.version)


def applies(requirement: Requirement, extras: frozenset[str] = frozenset()) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate(default_environment() | {"extra": extra}) for extra in {"", *extras})


def needed() -> set[str]:
    """Every distribution that the project's requirements lead to here, by the metadata of what is installed."""
    seen = set()
    ahead = [(canonicalize_name(r.name), frozenset(r.extras)) for r in ASKED_FOR if applies(r)]
    while ahead:
        name, extras = node = ahead.pop()
        if node in seen or name.startswith(CUDA):
            continue
        seen.add(node)
        for line in distribution(name).requires or []:
            if applies(requirement := Requirement(line), extras):
                ahead.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return {name for name, _ in seen}


def test_the_lock_is_complete_and_what_is_installed():
    """Every dependency is pinned and installed in that version, for Python 3.11 too; nothing else is pinned."""
    names = needed()
    pinned = {name: str(pin.specifier).removeprefix("==") for name, pin in PINS.items() if applies(pin)}
    assert {name: Version(distribution(name).version).public for name in names} == {n: pinned.get(n) for n in names}
    # A pin with a marker may be needed elsewhere, on another platform or Python.
    assert {name for name, pin in PINS.items() if pin.marker is None} <= names
    for name in names:
        python = distribution(name).metadata.get("Requires-Python", "")
        assert SpecifierSet(python).contains("3.11.2"), (name, python)
    ours = SpecifierSet(PROJECT["requires-python"])
    assert [ours.contains(version) for version in ("3.10.19", "3.11.0", "3.14.0")] == [False, True, True]


def test_conda_and_binder_install_the_same_lock():
    """In CI's Python, by the same commands: nothing else chooses a version. Texts that name torch's name the lock's."""
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert conda == ["python=3.11", "pip", "make"]
    ci = (ROOT / ".github" / "workflows" / "check.yml").read_text()
    assert set(re.findall(r"python-version: (.*)", ci)) == {'"3.11"'}
    for text in (ROOT / "environment.yml", ROOT / "postBuild"):
        assert "make install PY=python" in text.read_text()
    assert os.access(ROOT / "postBuild", os.X_OK)
    named = {v for path in (ROOT / "book").rglob("*.md") for v in re.findall(r"torch==[\d.]+", path.read_text("utf-8"))}
    assert named == set(TORCH)
