"""A release: nothing of this computer, no solution for students, sums that tell."""

import datetime
import functools
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import chapters
import dates
import directives
import measurements
import pdf
import pytest
import release
import yaml

ROOT = Path(__file__).resolve().parents[2]

FILES = {
    "site/index.html": "<p>A site</p>",
    "site/_static/a.js": "let a = 1",
    "site/.buildinfo": "config: 1",
    "kit/notebooks/student/adaptation/depth.ipynb": '{"cells": []}',
    "kit/notebooks/instructor/adaptation/depth.ipynb": '{"cells": ["def layer_solution(x): ..."]}',
    "kit/slides/lecture-1.pdf": "%PDF",
    "kit/slides/lecture-1/index.html": "<p>notes</p>",
    "book.pdf": "%PDF-1.4",
    "book.epub": "PK",
    "icl_book-9.9.9-py3-none-any.whl": "wheel",
    "LICENSE": "MIT",
}


def built(folder):
    """What a build of a tiny book leaves in a folder."""
    for name, words in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(words, encoding="utf-8")
    wheel = folder / "icl_book-9.9.9-py3-none-any.whl"
    return release.Built(folder / "site", folder / "kit", folder / "book.pdf", folder / "book.epub", wheel)


def made(folder):
    """A release of the tiny book, its files by name."""
    out = folder / "out"
    out.mkdir(parents=True)
    files = release.put_together(built(folder), out, "9.9.9", [folder / "LICENSE"])
    assert sorted(files) == sorted(out.iterdir())
    return {path.name: path for path in files}


@pytest.fixture(autouse=True)
def few_words(monkeypatch):
    """The syllabi are the book's; here two words stand for them."""
    monkeypatch.setattr(release, "syllabi", lambda: b"# Syllabi\n")


def test_each_gets_their_own(tmp_path):
    """Students get their notebooks, slides on paper, licence and plan; teachers the whole kit; the site is a folder."""
    files = made(tmp_path)
    names = {
        whom: [
            name.partition("/")[2] for name in zipfile.ZipFile(files[f"learning-to-adapt-9.9.9-{whom}.zip"]).namelist()
        ]
        for whom in ("students", "teachers", "site")
    }
    assert all(listed == sorted(listed) for listed in names.values())
    assert files["learning-to-adapt-9.9.9.epub"].read_text() == FILES["book.epub"]
    words = ["LICENSE", "README.md", "syllabi.md"]
    assert names["students"] == [*words[:2], "notebooks/adaptation/depth.ipynb", "slides/lecture-1.pdf", words[2]]
    kit = {name.removeprefix("kit/") for name in FILES if name.startswith("kit/")}
    assert set(names["teachers"]) == {*words, *kit}
    assert names["site"] == ["LICENSE", "_static/a.js", "index.html"]
    inside = zipfile.ZipFile(files["learning-to-adapt-9.9.9-students.zip"])
    assert b"icl_book-9.9.9-py3-none-any.whl" in inside.read("learning-to-adapt-9.9.9-students/README.md")


@pytest.mark.parametrize(
    ("name", "words", "says"),
    [
        ("notebooks/student/a.ipynb", "def layer_solution(x): ...", "holds a solution"),
        ("projects/p1/a.ipynb", "### BEGIN HIDDEN TESTS", "holds a solution"),
        ("notebooks/student/depth-instructor.ipynb", "{}", "a teacher's file by its name"),
        ("projects/p1/answers.md", "x", "a teacher's file by its name"),
    ],
)
def test_students_get_no_solution(tmp_path, name, words, says):
    """A solution, a hidden test, or a teacher's file among what students would get stops the release."""
    folder = tmp_path / "kit" / name
    folder.parent.mkdir(parents=True)
    folder.write_text(words, encoding="utf-8")
    with pytest.raises(chapters.Broken, match=says):
        made(tmp_path)


def test_a_path_of_this_computer_is_refused(tmp_path):
    """Whatever names the folder in which it was built could not be built anywhere else."""
    (tmp_path / "site" / "book").mkdir(parents=True)
    (tmp_path / "site" / "book" / "a.html").write_text(f"<p>{ROOT}/lib</p>", encoding="utf-8")
    with pytest.raises(chapters.Broken, match=r"site\.zip: book/a\.html names a path of this computer"):
        made(tmp_path)


def test_sums_tell(tmp_path):
    """Right as made; a changed byte, a lost file and one that nobody summed are named."""
    files = made(tmp_path)
    out = tmp_path / "out"
    assert release.verify(out) == []
    lines = (out / "SHA256SUMS").read_text().splitlines()
    assert len(lines) == len(files) - 1
    if sys.platform == "linux":
        assert subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=out, check=False).returncode == 0
    pdf = out / "learning-to-adapt-9.9.9.pdf"
    pdf.write_bytes(pdf.read_bytes() + b"\n")
    (out / "more").write_text("x")
    files["icl_book-9.9.9-py3-none-any.whl"].unlink()
    assert release.verify(out) == [
        "icl_book-9.9.9-py3-none-any.whl is missing",
        "more has no sum",
        "learning-to-adapt-9.9.9.pdf has changed",
    ]
    (out / "SHA256SUMS").unlink()
    assert release.verify(out) == ["SHA256SUMS is not there"]


def test_what_is_not_built_is_named(tmp_path):
    """Without a site or a kit there is no release, and the message says how to get them."""
    with pytest.raises(chapters.Broken, match="run `make book course pdf epub` first"):
        release.files_in(tmp_path / "site")
    (tmp_path / "kit/slides.part").mkdir(parents=True)
    (tmp_path / "kit/slides.part/deck.pdf").touch()
    with pytest.raises(chapters.Broken, match=r"kit/slides\.part/deck\.pdf is of a command that was cut off: run"):
        release.files_in(tmp_path / "kit")


def sources(folder, *, package="1.2.3", cited="1.2.3", day="2026-05-04", change="1.2.3] - 2026-05-04"):
    """A repository's three files that name the version."""
    (folder / "pyproject.toml").write_text(f'[project]\nname = "a"\nversion = "{package}"\n')
    (folder / "CITATION.cff").write_text(f'version: {cited}\ndate-released: "{day}"\n')
    (folder / "CHANGELOG.md").write_text(f"# Changelog\n\n## [Unreleased]\n\n## [{change}\n")
    return folder


def test_a_release_that_fails_leaves_the_last_one(tmp_path, monkeypatch):
    """It is made beside the folder: until it is whole, what is there stays, and nothing is left of what was begun."""
    monkeypatch.setattr(chapters, "ROOT", tmp_path)
    monkeypatch.setattr(release, "version", lambda: "9.9.9")
    (tmp_path / "dist").mkdir()
    (tmp_path / f"dist/{release.NAME}.pdf").touch()
    with pytest.raises(chapters.Broken, match=r"learning-to-adapt\.epub is not there: run `make epub` first"):
        release.release(tmp_path / "dist/release")
    (tmp_path / f"dist/{release.NAME}.epub").touch()

    def one(out, *words, fails=False):
        (out / release.SUMS).write_text("sums")
        if fails:
            raise chapters.Broken("a path of this computer")
        return [out / release.SUMS]

    monkeypatch.setattr(release, "_build_release", one)
    out = tmp_path / "dist/release"
    assert release.release(out) == [out / release.SUMS]
    (out / "last").touch()
    monkeypatch.setattr(release, "_build_release", functools.partial(one, fails=True))
    with pytest.raises(chapters.Broken, match="this computer"):
        release.release(out)
    assert {path.name for path in out.iterdir()} == {release.SUMS, "last"}
    assert list(out.parent.glob("*.part")) == []


def test_version_and_day_are_the_same_everywhere():
    """The book's own: package, citation and changelog name one version, and the day is a day."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert release.version() == str(cited["version"])
    assert datetime.date.fromisoformat(cited["date-released"]) > datetime.date(2026, 1, 1)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"cited": "1.2.4"}, "CITATION.cff says version 1.2.4, pyproject.toml 1.2.3"),
        ({"day": "soon"}, "date-released is no day"),
        ({"change": "1.2.3] - 2026-05-05"}, "should be of 2026-05-04, or unreleased"),
        ({"change": "1.2.2] - 2026-05-04"}, "should be of 2026-05-04, or unreleased"),
    ],
)
def test_versions_that_differ_are_refused(tmp_path, changed, says):
    """Another version or day in one of them, and the release is not made."""
    assert release.version(sources(tmp_path)) == "1.2.3"
    with pytest.raises(chapters.Broken, match=says):
        release.version(sources(tmp_path, **changed))


def test_a_tag_is_the_version(tmp_path):
    """`v` and the version, with a day in the changelog; anything else is refused."""
    release.tagged("v1.2.3", sources(tmp_path))
    for tag in ("1.2.3", "v1.2.4", "v1.2", "main"):
        with pytest.raises(chapters.Broken, match="they should be the same"):
            release.tagged(tag, tmp_path)
    with pytest.raises(chapters.Broken, match="is unreleased"):
        release.tagged("v1.2.3", sources(tmp_path, change="1.2.3] - unreleased"))


def test_a_build_has_the_time_of_its_commit(monkeypatch):
    """SOURCE_DATE_EPOCH if it is given, else the commit's; never the clock's."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert dates.moment() == datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC)
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    monkeypatch.setattr(time, "time", lambda: 0.0)
    log = ["git", "log", "-1", "--format=%ct"]
    asked = subprocess.run(log, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    if asked:
        assert dates.moment().timestamp() == int(asked)
    monkeypatch.setattr(chapters, "ROOT", Path("/"))
    monkeypatch.setattr(chapters, "words", lambda path: 'date-released: "2026-05-04"')
    assert dates.moment() == datetime.datetime(2026, 5, 4, tzinfo=datetime.UTC)


def test_a_release_says_nothing_of_the_machine(monkeypatch):
    """Pages of a release have no seconds and no cores, which no other computer would repeat."""
    measured = {"book/a": {"seconds": 3.25, "checks": [], "charts": 2}}
    monkeypatch.setattr(measurements, "of_all", lambda: measured)
    page = object.__new__(directives.Timings)
    monkeypatch.delenv("ICL_RELEASE", raising=False)
    assert "| [](/book/a.md) | 3.2 | 0 | 2 |" in page.markdown()
    monkeypatch.setenv("ICL_RELEASE", "1")
    assert "| [](/book/a.md) | 0 | 2 |" in page.markdown()
    assert not [words for words in ("3.2", "cores", "seconds") if words in page.markdown()]


def test_the_workflow_refuses_other_tags():
    """A tag starts it; it may write a release and nothing else; the tag is checked before anything is built."""
    flow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    assert flow[True] == {"push": {"tags": ["v*"]}}  # YAML reads `on` as true
    assert flow["permissions"] == {"contents": "read"}
    writing = {name: job["permissions"] for name, job in flow["jobs"].items() if "permissions" in job}
    assert writing == {"attach": {"contents": "write"}}
    steps = [step["run"] for step in flow["jobs"]["build"]["steps"] if "run" in step]
    assert "release.py --check --tag" in steps[0]
    assert flow["jobs"]["attach"]["needs"] == "build"


def test_a_bookmark_has_its_words_once():
    """Words that Chromium has written twice, in letters or in code points, stand once; no byte moves, and no other word
    changes.
    """
    twice = (
        b"<</Title (A heading \\(so\\)A heading \\(so\\)) /A 1>> <</Title <FEFF0041006200630064"
        + b"0041006200630064> >>"
    )
    once = pdf.outlined(twice)
    assert len(once) == len(twice)
    assert b" ".join(once.split()) == b"<</Title (A heading \\(so\\)) /A 1>> <</Title <FEFF0041006200630064> >>"
    assert pdf.outlined(b"<</Title (A heading, or a headline)>>") == b"<</Title (A heading, or a headline)>>"
