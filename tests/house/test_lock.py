"""The lock is exact and complete, and it is the one file that set-up, CI, conda and Binder read."""

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ASKED_FOR = [Requirement(line) for line in sum(PROJECT["optional-dependencies"].values(), PROJECT["dependencies"])]
LINES = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
PINS = {pin.name: pin for pin in map(Requirement, LINES)}

# torch from PyPI names the exact versions of these itself, so the lock leaves them out.
CUDA = ("cuda-", "nvidia-", "triton")


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


def test_every_line_is_an_exact_pin():
    for line in LINES:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*==[0-9][a-z0-9.]*( ; .+)?", line), line
    assert list(PINS) == sorted(PINS)
    assert len(PINS) == len(LINES)


def test_no_line_is_bound_to_one_build_of_torch():
    assert not [name for name in PINS if name.startswith(CUDA)]
    assert not [line for line in LINES if "+" in line]


def test_every_pin_has_its_hashes():
    """The list of hashes is of this lock, pin by pin, but for PyTorch, whose builds come from more than one index."""
    stanzas = re.split(r"\n(?=[^ ])", (ROOT / "requirements.hashes").read_text().rstrip("\n"))
    listed = {}
    for stanza in (each for each in stanzas if not each.startswith("#")):
        pin, *hashes = re.split(r" *\\\n +", stanza)
        assert hashes, pin
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), pin
        assert len(set(hashes)) == len(hashes)
        listed[pin] = hashes
    assert [*listed] == [line for line in LINES if not line.startswith("torch==")]


def test_what_is_installed_is_what_the_lock_says():
    installed = {name: Version(distribution(name).version).public for name in needed()}
    pinned = {name: str(pin.specifier).removeprefix("==") for name, pin in PINS.items() if applies(pin)}
    assert installed == {name: pinned.get(name) for name in installed}


def test_the_lock_holds_nothing_that_is_not_needed():
    # Elsewhere others may be needed, on another platform or Python; those carry a marker.
    assert {name for name, pin in PINS.items() if pin.marker is None} <= needed()


@pytest.mark.parametrize("asked", ASKED_FOR, ids=lambda r: r.name)
def test_the_lock_is_within_the_projects_ranges(asked):
    (pin,) = PINS[canonicalize_name(asked.name)].specifier
    assert asked.specifier.contains(pin.version)


def test_the_lock_is_for_the_oldest_python_too():
    ours = Requirement(f"x{PROJECT['requires-python']}").specifier
    assert [ours.contains(version) for version in ("3.10.19", "3.11.0", "3.12.9", "3.13.2", "3.14.0")] == [False] + [
        True
    ] * 4
    for name in needed():
        python = distribution(name).metadata.get("Requires-Python")
        assert python is None or Requirement(f"x{python}").specifier.contains("3.11.2"), (name, python)


def test_conda_and_binder_install_the_lock_and_the_package():
    dependencies = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (pip,) = [d["pip"] for d in dependencies if isinstance(d, dict)]
    assert "-r requirements.lock" in pip
    assert "-e ." in pip
    # Nothing beside the lock chooses a version.
    assert all(line.startswith("-") for line in pip)


def workflow(name: str) -> list[dict]:
    """The steps of a workflow that builds the book or tests it: the audit reads the lock and installs nothing of it."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())["jobs"]
    return [step for name, job in jobs.items() for step in job["steps"] if name != "audit"]


def test_set_up_ci_and_publication_go_through_the_lock():
    makefile = (ROOT / "Makefile").read_text()
    for target in (
        "book",
        "page",
        "again",
        "portable",
        "test",
        "check",
        "course",
        "release",
        "browser",
        "lab",
        "bench",
        "paper",
        "mutants",
    ):
        assert re.search(rf"^{target}: setup\b", makefile, re.MULTILINE), target

    ci = (ROOT / ".ci" / "run").read_text()
    steps = re.search(r"set -- ([a-z ]+);", ci)[1].split()
    assert steps == ["check", "test", "book", "again", "portable", "course", "browser"]
    for name in steps:
        assert re.search(rf"^{name}: setup\b", makefile, re.MULTILINE), name
    each, weekly = ([step["run"] for step in workflow(name) if "run" in step] for name in ("check.yml", "weekly.yml"))
    assert not re.search(r"\bpip\b", ci + "".join(each + weekly))
    assert all(run.startswith("bash .ci/run ") for run in each + weekly)
    assert sorted(" ".join(run.removeprefix("bash .ci/run ") for run in each).split()) == sorted(steps)


def test_the_lock_is_audited_each_week():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "weekly.yml").read_text())["jobs"]
    (run,) = [step["run"] for step in jobs["audit"]["steps"] if "run" in step]
    assert run.split()[4:] == ["pip-audit", "--requirement", "requirements.lock", "--no-deps", "--disable-pip"]
    assert "if" not in jobs["audit"]
    assert "continue-on-error" not in jobs["audit"]


def test_nothing_is_published_that_did_not_pass():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "check.yml").read_text())["jobs"]
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}
    assert all(job["timeout-minutes"] <= 20 for job in jobs.values())
    deploys = [p.name for p in (ROOT / ".github" / "workflows").iterdir() if "deploy-pages" in p.read_text()]
    assert deploys == ["check.yml"]


def test_ci_and_binder_agree_on_the_python():
    steps = workflow("check.yml")
    pythons = [step["with"]["python-version"] for step in steps if "python-version" in step.get("with", {})]
    assert pythons == ["3.11"] * 3
    assert "python=3.11" in yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
