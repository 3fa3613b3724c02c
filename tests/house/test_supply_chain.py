"""What runs elsewhere: every change and every release go through the lock, actions are pinned by hash, jobs have the
least rights, and a release says what it is made with.
"""

import json
import re
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "book" / "_ext"), str(ROOT / "tools")]

import chapters  # noqa: E402
import release  # noqa: E402

TEXTS = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}
WORKFLOWS = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
#: A commit and the version it is of, or an image by its digest.
PINNED = r"uses: (?:[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|docker://[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64})"
#: Which jobs may do more than read the repository.
MORE = {
    ("check.yml", "publish"): {"pages": "write", "id-token": "write"},
    ("release.yml", "attach"): {"contents": "write"},
}


@pytest.mark.parametrize("name", TEXTS)
def test_every_action_is_pinned_by_hash(name):
    """Each `uses:` is a commit with its version, or an image with its digest."""
    used = re.findall(r"^\s*(?:- )?(uses:.*)$", TEXTS[name], re.M)
    assert used
    assert [line for line in used if not re.fullmatch(PINNED, line)] == []


def test_one_version_of_an_action_everywhere():
    """No action stands in two versions, and a version never with two hashes."""
    used = {found for text in TEXTS.values() for found in re.findall(r"uses: ([\w./-]+)@(\S+) # (\S+)", text)}
    assert len({name for name, *_ in used}) == len(used)


def test_tools_of_one_job_are_pinned():
    """What a job alone installs, for the audit and the bill of materials, is one version of it."""
    asked = sorted(found for text in TEXTS.values() for found in re.findall(r"pipx run --spec (\S+)", text))
    assert [re.sub(r"==\d+\.\d+\.\d+$", " by version", each) for each in asked] == [
        "cyclonedx-bom by version",
        "pip-audit by version",
    ]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_each_job_has_the_rights_that_it_needs(name):
    """A workflow begins with reading, a job asks for what it needs, and no checkout leaves its token behind."""
    least = {"contents": "read"}
    assert WORKFLOWS[name]["permissions"] == least
    for job, told in WORKFLOWS[name]["jobs"].items():
        assert told.get("permissions", least) == MORE.get((name, job), least), job
        for step in told["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False, job


def runs(name: str) -> dict[str, list[str]]:
    """The commands of each job of a workflow."""
    return {job: [s["run"] for s in told["steps"] if "run" in s] for job, told in WORKFLOWS[name]["jobs"].items()}


def test_every_step_of_ci_is_set_up_from_the_lock():
    """Steps are targets of make that call the set-up; each change runs all of them, and no workflow calls pip."""
    ci = (ROOT / ".ci" / "run").read_text()
    steps = re.search(r"set -- ([a-z ]+);", ci)[1].split()
    targets = set(re.findall(r"^([a-z]+): setup\b", (ROOT / "Makefile").read_text(), re.M))
    assert {*steps, "page", "lab", "bench", "paper", "release"} <= targets
    each = [run for job in runs("check.yml").values() for run in job]
    weekly = [run for job, commands in runs("weekly.yml").items() if job != "audit" for run in commands]
    assert all(run.startswith("bash .ci/run ") for run in each + weekly)
    assert sorted(" ".join(run.removeprefix("bash .ci/run ") for run in each).split()) == sorted(steps)
    assert not re.search(r"\bpip\b", ci)


def test_nothing_is_published_that_did_not_pass():
    jobs = WORKFLOWS["check.yml"]["jobs"]
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}
    assert all(job["timeout-minutes"] <= 20 for job in jobs.values())
    assert [name for name, text in TEXTS.items() if "deploy-pages" in text] == ["check.yml"]


def test_the_lock_is_audited_each_week():
    """By name and version, PyTorch's among them; a fault that is found turns the run red."""
    names, audit = runs("weekly.yml")["audit"]
    pattern = re.fullmatch(r"grep -oE '(.+)' requirements\.lock >pins\.txt", names)[1]
    lock = (ROOT / "requirements.lock").read_text()
    pins = re.findall(pattern, lock)
    assert len(pins) == len(re.findall(r"^(?:# )?[a-z0-9-]+==", lock, re.M))
    assert any(pin.startswith("torch==") for pin in pins)
    assert audit.split()[4:] == ["pip-audit", "--requirement", "pins.txt", "--no-deps", "--disable-pip"]
    job = WORKFLOWS["weekly.yml"]["jobs"]["audit"]
    assert {"if", "continue-on-error"}.isdisjoint(job)


MATERIALS = {"bomFormat": "CycloneDX", "components": [{"name": "leaf", "version": "1.0"}]}


def released(folder, materials):
    """A release of a tiny book with this bill of materials, its files by name."""
    for name in ("site/index.html", "kit/slides/a.pdf", "book.pdf", "book.epub", "one.whl"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    bom = folder / "a.cdx.json"
    bom.write_text(materials)
    (folder / "out").mkdir()
    built = release.Built(*(folder / name for name in ("site", "kit", "book.pdf", "book.epub", "one.whl")), bom)
    return {path.name: path for path in release.put_together(built, folder / "out", "9.9.9", [])}


def test_a_release_sums_its_bill_of_materials(tmp_path, monkeypatch):
    """It is among the release's files, byte for byte, and in the sums; changed afterwards, it is named."""
    monkeypatch.setattr(release, "syllabi", lambda: b"")
    made = released(tmp_path, json.dumps(MATERIALS))
    mine = made["learning-to-adapt-9.9.9.cdx.json"]
    assert mine.read_text() == json.dumps(MATERIALS)
    assert f"{release.digest(mine)}  {mine.name}\n" in made["SHA256SUMS"].read_text()
    assert not release.verify(mine.parent)
    mine.write_text("{}")
    assert release.verify(mine.parent) == [f"{mine.name} has changed"]


@pytest.mark.parametrize(
    ("materials", "told"),
    [
        ("not JSON", "is no JSON"),
        ("[]", "is no bill"),
        (json.dumps(MATERIALS | {"components": []}), "lists nothing"),
        (json.dumps(MATERIALS | {"bomFormat": "SPDX"}), "is no bill"),
        (json.dumps(MATERIALS | {"metadata": str(chapters.ROOT)}), "names a path of this computer"),
    ],
)
def test_what_is_no_bill_of_materials_is_refused(tmp_path, monkeypatch, materials, told):
    """An empty one, one of another format, and one that names a path of this computer are refused."""
    monkeypatch.setattr(release, "syllabi", lambda: b"")
    with pytest.raises(chapters.Broken, match=told):
        released(tmp_path, materials)


def test_the_release_makes_its_bill_before_it_is_put_together():
    """The workflow makes the file that `tools/release.py` looks for, and stops if the sums do not list it."""
    commands = runs("release.yml")["build"]
    bill, together = (
        next(k for k, run in enumerate(commands) if part in run) for part in ("cyclonedx", "make release")
    )
    assert bill < together
    assert f"--output-file dist/{release.NAME}.cdx.json" in commands[bill]
    assert "--output-reproducible" in commands[bill]
    assert f"grep -q 'cdx[.]json$' dist/release/{release.SUMS}" in commands[together + 1]
