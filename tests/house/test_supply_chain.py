"""What runs elsewhere: actions are pinned by hash, jobs have the least rights, and text from files stays text."""

import json
import re
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "book" / "_ext"), str(ROOT / "tools")]

import chapters  # noqa: E402
import directives  # noqa: E402
import projects  # noqa: E402
import release  # noqa: E402

from icl_book import notation  # noqa: E402

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
#: A commit and the version it is of, or an image by its digest.
PINNED = re.compile(
    r"uses: (?:[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|docker://[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64})"
)
#: Which jobs may do more than read the repository.
MORE = {
    ("check.yml", "publish"): {"pages": "write", "id-token": "write"},
    ("release.yml", "attach"): {"contents": "write"},
}


def unpinned(text: str) -> list[str]:
    """The lines of a workflow that use what is not pinned."""
    used = [line.strip().removeprefix("- ") for line in text.splitlines() if re.match(r"\s*(- )?uses:", line)]
    return [line for line in used if not PINNED.fullmatch(line)]


def too_much(name: str, text: str) -> list[str]:
    """What of a workflow's rights is missing, or more than it needs."""
    told = yaml.safe_load(text)
    least = told.get("permissions") == {"contents": "read"}
    wrong = [] if least else [f"{name}: all jobs should begin with permissions to read contents alone"]
    for job, steps in told["jobs"].items():
        given = steps.get("permissions", told.get("permissions"))  # a job that says nothing has the workflow's
        if given != MORE.get((name, job), {"contents": "read"}):
            wrong.append(f"{name}: {job}: permissions are {given}")
        for step in steps["steps"]:
            keeps = step.get("with", {}).get("persist-credentials", True)
            if step.get("uses", "").startswith("actions/checkout@") and keeps is not False:
                wrong.append(f"{name}: {job}: the checkout leaves its token behind")
    return wrong


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_hash(path):
    """Each `uses:` is a commit with its version, or an image with its digest; one version has one hash."""
    text = path.read_text(encoding="utf-8")
    assert "uses:" in text
    assert not unpinned(text)


def test_one_version_of_an_action_everywhere():
    """No action stands in two versions, and a version never with two hashes."""
    used = {m for path in WORKFLOWS for m in re.findall(r"uses: ([\w./-]+)@(\S+) # (\S+)", path.read_text("utf-8"))}
    assert len({name for name, *_ in used}) == len(used)


@pytest.mark.parametrize(
    "line",
    [
        "actions/checkout@v6",
        "actions/checkout@main # v6.0.2",
        "actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd",
        "actions/checkout@de0fac2 # v6.0.2",
        "docker://rhysd/actionlint:1.7.12",
        "docker://rhysd/actionlint:latest",
    ],
)
def test_a_tag_is_no_pin(line):
    """A tag, a branch, half a hash, a hash of no version and an image by its tag are found."""
    assert unpinned(f"    steps:\n      - uses: {line}\n") == [f"uses: {line}"]
    assert unpinned(f"      - id: one\n        uses: {line}\n") == [f"uses: {line}"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_job_has_the_rights_that_it_needs(path):
    """A workflow begins with reading, a job asks for what it needs, and no checkout leaves its token behind."""
    assert not too_much(path.name, path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("\npermissions:\n  contents: read\n", "\n", "all jobs should begin with"),
        ("\npermissions:\n  contents: read\n", "\npermissions: write-all\n", "all jobs should begin with"),
        ("      contents: read\n", "      contents: write\n", "check: permissions are"),
        ("          persist-credentials: false\n", "          fetch-depth: 0\n", "leaves its token behind"),
    ],
)
def test_more_rights_than_needed_are_found(old, new, told):
    """A planted fault in the workflow of each commit is named."""
    text = (ROOT / ".github" / "workflows" / "check.yml").read_text(encoding="utf-8")
    assert old in text
    assert told in " ".join(too_much("check.yml", text.replace(old, new, 1)))


def test_tools_of_one_job_are_pinned():
    """What a job alone installs, for the audit and the bill of materials, is one version of it."""
    asked = [found for path in WORKFLOWS for found in re.findall(r"pipx run (\S+ \S+)", path.read_text("utf-8"))]
    assert sorted(re.sub(r"==.*", "", each) for each in asked) == ["--spec cyclonedx-bom", "--spec pip-audit"]
    assert all(re.fullmatch(r"--spec [a-z-]+==\d+\.\d+\.\d+", each) for each in asked)


def released(folder, materials):
    """A release of a tiny book with this bill of materials, its files by name."""
    for name in ("site/index.html", "kit/slides/a.pdf", "book.pdf", "one.whl"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    bom = folder / "a.cdx.json"
    bom.write_text(materials)
    (folder / "out").mkdir()
    built = release.Built(folder / "site", folder / "kit", folder / "book.pdf", folder / "one.whl", bom)
    return {path.name: path for path in release.put_together(built, folder / "out", "9.9.9", [])}


MATERIALS = {"bomFormat": "CycloneDX", "components": [{"name": "leaf", "version": "1.0"}]}


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
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))["jobs"]
    runs = [step.get("run", "") for step in jobs["build"]["steps"]]
    bill, together = (next(k for k, run in enumerate(runs) if part in run) for part in ("cyclonedx-py", "make release"))
    assert bill < together
    assert f"--output-file dist/{release.NAME}.cdx.json" in runs[bill]
    assert "--output-reproducible" in runs[bill]
    assert f"grep -q 'cdx[.]json$' dist/release/{release.SUMS}" in runs[together + 1]


#: What does something on a page if it is read as more than words.
HOSTILE = [
    "<script>alert(1)</script>",
    "see <img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}",
    "{raw}`<b>`",
    "[here](javascript:alert(1))",
    "![](http://elsewhere.example/a.png)",
    "first\n```{raw} html\n<b>\n```",
    "first\n::::{raw} html\n<b>\n::::",
    "[a]: javascript:b\n[a]",
    "before $x$ <b onclick=f()> after $y$",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_word_of_the_glossary_is_no_more_than_words(text):
    """HTML, roles, blocks and links by a scheme are refused by name in the words of the glossary and in projects."""
    with pytest.raises(chapters.Broken, match=r"terms\.yml: drift: more than words"):
        directives.only_words(text, "terms.yml: drift")


@pytest.mark.parametrize(
    "text", ["$a<b$", "`{{ x }}` and `<b>`", "*so* [it is](/book/a.md)", "a < b", "$\\{x\\}$ {here}"]
)
def test_words_formulas_code_and_links_pass(text):
    """What the texts are written in passes unchanged."""
    assert directives.only_words(text, "here") == text


@pytest.mark.parametrize("text", HOSTILE)
def test_a_project_is_no_more_than_words(text):
    """A hostile text is named with its project wherever it stands: in its brief, among its pitfalls, in the rubric."""
    source = yaml.safe_load((ROOT / projects.SOURCE).read_text(encoding="utf-8"))
    one = source["projects"][0]
    for plant in ({"brief": text}, {"pitfalls": [text]}, {"words": {"mean": text}}):
        planted = {"projects": [one | plant]}
        with pytest.raises(chapters.Broken, match=f"{one['name']}: more than words"):
            projects.load(yaml.safe_dump(planted))


@pytest.mark.parametrize("text", [*HOSTILE, "a | b", "w* and v* of *x*"])
def test_a_row_of_the_notation_is_text(monkeypatch, text):
    """Meaning, shape, unit and place of a symbol are shown letter for letter; a bar ends no cell."""
    symbol = notation.Symbol("d", "d", text, text, text, text)
    monkeypatch.setattr(notation, "SYMBOLS", [symbol])
    row = directives.Notation.markdown(None).splitlines()[-1]
    cells = re.split(r"(?<!\\)\|", row)[3:-1]
    plain = " ".join(text.split())
    assert [re.sub(r"\\(.)", r"\1", cell.strip()) for cell in cells] == [plain] * 4
    assert all(re.fullmatch(r"(?:[\w\s]|\\[!-/:-@\[-`{-~])*", cell) for cell in cells)
