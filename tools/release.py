"""Put what was built together as a release: archives for students and teachers, site, PDF, EPUB, wheel, sums.

Of a bill of materials, dist/learning-to-adapt.cdx.json, a copy is put in if it is there.

    python tools/release.py                what `make book course pdf epub` has built, in dist/release
    python tools/release.py --tag v0.1.0   only if that is the version everywhere
    python tools/release.py --verify       whether dist/release is still what its SHA256SUMS says

A file that names a path of this computer is refused, and so are solutions in the students' archive.
"""

import argparse
import datetime
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))

import chapters
import courses

SUMS = "SHA256SUMS"
NAME = "learning-to-adapt"
#: Which files of dist/course the students get, and where: (pattern, folder of the archive). Teachers get them all.
STUDENTS = (
    ("notebooks/student/**/*", "notebooks"),
    ("slides/*.pdf", "slides"),
    ("questions/*-sheet.pdf", "questions"),
    ("projects/*/*", "projects"),
)
LEGAL = ("LICENSE", "LICENSE-TEXT", "CITATION.cff")
#: What no student should find: a function that solves an exercise, hidden tests, or the teacher's edition by its name.
_SOLVED = re.compile(rb"def \w+_solution\(|BEGIN (?:SOLUTION|HIDDEN TESTS)")
_TEACHERS = re.compile(r"(?:^|[/_.-])(?:instructor|teacher|solutions?|answers?|key|notes)(?:[/_.-]|$)", re.I)


@dataclass(frozen=True)
class Built:
    """Parts of a release.

    Attributes:
        site: the folder of the site.
        kit: the folder of the course kit.
        pdf: the printed book.
        epub: the book for e-readers.
        wheel: the package.
        materials: what it is made with, as CycloneDX has it, where that was made.
    """

    site: Path
    kit: Path
    pdf: Path
    epub: Path
    wheel: Path
    materials: Path | None = None


def version(root: Path = chapters.ROOT) -> str:
    """The version, and the day of its release; Broken where the package and CITATION.cff disagree."""
    package = str(tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
    cited = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    if str(cited["version"]) != package:
        raise chapters.Broken(f"CITATION.cff says version {cited['version']}, pyproject.toml {package}")
    try:
        day = datetime.date.fromisoformat(str(cited["date-released"])).isoformat()
    except ValueError as error:
        raise chapters.Broken(f"CITATION.cff: date-released is no day ({cited['date-released']})") from error
    heads = dict(re.findall(r"^## \[([^\]]+)\] - (\S+)$", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.M))
    if heads.get(package) not in ("unreleased", day):
        raise chapters.Broken(f"CHANGELOG.md: version {package} should be of {day}, or unreleased")
    return package


def tagged(tag: str, root: Path = chapters.ROOT) -> None:
    """Broken unless this tag is the version, and the changelog has its day."""
    current = version(root)
    if tag != f"v{current}":
        raise chapters.Broken(f"the tag is {tag!r}, the version is {current}: they should be the same")
    if f"## [{current}] - unreleased" in (root / "CHANGELOG.md").read_text(encoding="utf-8"):
        raise chapters.Broken(f"CHANGELOG.md: version {current} is unreleased; give it the day of CITATION.cff")


def files_in(folder: Path) -> dict[str, Path]:
    """The files below a folder by their names there; Broken if there are none."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    if not files:
        raise chapters.Broken(f"{folder} is not there or empty: run `make book course pdf epub` first")
    if half := next((name for name in files if ".part/" in name or name.endswith(".part")), None):
        raise chapters.Broken(
            f"{folder / half} is of a command that was cut off: run `make book course pdf epub` again"
        )
    return files


def archive(target: Path, members: Mapping[str, Path | bytes]) -> Path:
    """Write a zip of these members, in a folder of the zip's name."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as zip_file:
        for name, content in sorted(members.items()):
            data = content if isinstance(content, bytes) else content.read_bytes()
            if fault := local(data):
                raise chapters.Broken(f"{target.name}: {name} names a path of this computer: {fault}")
            zip_file.writestr(f"{target.stem}/{name}", data)
    return target


def local(data: bytes) -> str:
    """A path of this computer that these bytes name; nothing if they name none."""
    local_path = next(
        (path for path in (str(chapters.ROOT), str(Path.home())) if len(path) > 5 and path.encode() in data), ""
    )
    return local_path


def for_students(kit: Path) -> dict[str, Path]:
    """The kit's files that students get; Broken if one of them would give a solution away."""
    files = dict[str, Path]()
    for pattern, folder in STUDENTS:
        base = kit / pattern.split("*")[0].rpartition("/")[0]
        for path in kit.glob(pattern):
            if path.is_file():
                files[f"{folder}/{path.relative_to(base).as_posix()}"] = path
    for name, path in files.items():
        if _TEACHERS.search(name):
            raise chapters.Broken(f"{name} is a teacher's file by its name, and not for students")
        if _SOLVED.search(path.read_bytes()):
            raise chapters.Broken(f"{name} holds a solution, and is not for students")
    return files


def syllabi() -> bytes:
    """The syllabi as plain Markdown: what is read for each session, and what is set."""
    lines = [
        "# Syllabi",
        "",
        "Minutes: reading by count, exercises by a rule; the page *Teach with this* explains both.",
    ]
    exercises = courses.every_exercise()
    for syllabus in courses.syllabi().values():
        lines += ["", f"## {syllabus.title}", "", syllabus.whom, ""]
        for session in syllabus.sessions:
            read, work = courses.minutes(session, exercises)
            lines.append(f"- **{session.title}** ({session.time}; reading {read} min, exercises {work} min)")
            lines += [f"  - read *{courses.title(page)}*" for page in session.chapters]
            lines += [
                f"  - exercise {exercises[label].number}, *{exercises[label].title}*" for label in session.exercises
            ]
            lines += [f"  - slides: {deck}" for deck in session.decks]
            lines += [f"  - problem set: {session.problem_set}"] if session.problem_set else []
            lines += [f"  - {session.milestone}"] if session.milestone else []
    return ("\n".join(lines) + "\n").encode()


_START = """# Learning to Adapt, version {version}: {whom}

{what}

## Start

With Python 3.11 or newer, in this folder, and the package's wheel from the same release beside it:

    python3 -m venv env
    env/bin/pip install torch --index-url https://download.pytorch.org/whl/cpu   # Linux without a GPU
    env/bin/pip install icl_book-{version}-py3-none-any.whl jupyterlab
    env/bin/jupyter lab notebooks

A notebook that needs more says so in its first cell.

Without a network, see "In a room without a network" on the page *Teach with this* of the book.

Text and figures: CC BY 4.0 (LICENSE-TEXT). Code: MIT (LICENSE). To cite: CITATION.cff.
"""
_FOR_STUDENTS = """`notebooks/` has a notebook a chapter. Fill in the blanks; the cell below each says "not yet" until
it is right. `slides/` and `questions/` are to be printed, `projects/` to be chosen from; `syllabi.md` has four orders
through the book. Problem sets come from your teacher."""
_FOR_TEACHERS = """The whole kit: each part has a folder, as `make course` made it. `notebooks/instructor` has solutions
and teaching notes, `notebooks/student` neither. `syllabi.md` has four orders through the book, with minutes."""


def _start(release: str, whom: str, what: str) -> dict[str, bytes]:
    """An archive's first page."""
    return {"README.md": _START.format(version=release, whom=whom, what=what).encode()}


def wheel(folder: Path) -> Path:
    """Build the package's wheel there."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(command, cwd=chapters.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise chapters.Broken(f"pyproject.toml: the package cannot be built: {done.stderr.strip()[-500:]}")
    (path,) = folder.glob("*.whl")
    return path


def put_together(built: Built, out: Path, release: str, legal: Iterable[Path]) -> list[Path]:
    """Write a release of what was built into an empty folder, and its sums; return its files."""
    words = {path.name: path for path in legal}
    plan = {"syllabi.md": syllabi()}
    site = {name: path for name, path in files_in(built.site).items() if Path(name).name != ".buildinfo"}
    stem = f"{NAME}-{release}"
    paths = [
        archive(
            out / f"{stem}-students.zip",
            {**words, **plan, **_start(release, "for students", _FOR_STUDENTS), **for_students(built.kit)},
        ),
        archive(
            out / f"{stem}-teachers.zip",
            {**words, **plan, **_start(release, "for teachers", _FOR_TEACHERS), **files_in(built.kit)},
        ),
        archive(out / f"{stem}-site.zip", {**words, **site}),
    ]
    for source, name in ((built.pdf, f"{stem}.pdf"), (built.epub, f"{stem}.epub"), (built.wheel, built.wheel.name)):
        paths.append(shutil.copyfile(source, out / name))
    if built.materials is not None:
        paths.append(bill(built.materials, out / f"{stem}.cdx.json"))
    (out / SUMS).write_text("".join(f"{digest(path)}  {path.name}\n" for path in sorted(paths)), encoding="ascii")
    return [*paths, out / SUMS]


def bill(source: Path, target: Path) -> Path:
    """Copy a software bill of materials; Broken if it is none, lists nothing, or names a path of this computer."""
    data = source.read_bytes()
    try:
        content = json.loads(data)
    except ValueError as error:
        raise chapters.Broken(f"{source.name} is no JSON: {error}") from error
    if not isinstance(content, dict) or content.get("bomFormat") != "CycloneDX" or not content.get("components"):
        raise chapters.Broken(f"{source.name} is no bill of materials in CycloneDX, or lists nothing")
    if fault := local(data):
        raise chapters.Broken(f"{source.name} names a path of this computer: {fault}")
    target.write_bytes(data)
    return target


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(folder: Path) -> list[str]:
    """Verify a release against its checksums: lines for files changed, missing, or not listed."""
    sums = folder / SUMS
    if not sums.is_file():
        return [f"{SUMS} is not there"]
    sums_by_name = {name: one for one, name in (line.split("  ", 1) for line in sums.read_text("ascii").splitlines())}
    files = {path.name: path for path in folder.iterdir() if path.name != SUMS}
    wrong = [f"{name} is missing" for name in sums_by_name if name not in files]
    wrong += [f"{name} has no sum" for name in sorted(files) if name not in sums_by_name]
    return wrong + [
        f"{name} has changed" for name, one in sums_by_name.items() if name in files and digest(files[name]) != one
    ]


def release(out: Path) -> list[Path]:
    """Make a release of what is built, beside its folder: what an earlier one left there stays until it is whole."""
    current = version()
    books = [chapters.ROOT / "dist" / f"{NAME}.{kind}" for kind in ("pdf", "epub")]
    for book in books:
        if not book.is_file():
            raise chapters.Broken(f"{book} is not there: run `make {book.suffix[1:]}` first")
    draft = out.with_name(f"{out.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        paths = _build_release(draft, current, *books)
        shutil.rmtree(out, ignore_errors=True)
        draft.rename(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return [out / path.name for path in paths]


def _build_release(out: Path, current: str, pdf: Path, epub: Path) -> list[Path]:
    dist = chapters.ROOT / "dist"
    with tempfile.TemporaryDirectory() as folder:
        # Made by the release's workflow alone: the tool is no part of the lock.
        materials = dist / f"{NAME}.cdx.json"
        wheel_, sbom = wheel(Path(folder)), materials if materials.is_file() else None
        built = Built(chapters.built() / "html", dist / "course", pdf, epub, wheel_, sbom)
        return put_together(built, out, current, [chapters.ROOT / name for name in LEGAL])


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line; make a release or verify one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=Path, default=chapters.ROOT / "dist" / "release")
    parser.add_argument("--tag", help="refuse unless this is the version everywhere, such as v0.1.0")
    parser.add_argument("--check", action="store_true", help="look at the version and the tag, and make nothing")
    parser.add_argument("--verify", action="store_true", help="compare a release with its sums, and make nothing")
    options = parser.parse_args(arguments)

    def look() -> int:
        if options.verify:
            wrong = verify(options.to.resolve())
            print("\n".join(wrong) or f"As its {SUMS} says.")
            return int(bool(wrong))
        if options.tag is not None:
            tagged(options.tag)
        print(f"Version {version()}.")
        return 0

    def make() -> int:
        if options.tag is not None:
            tagged(options.tag)
        for path in release(options.to.resolve()):
            print(f"{path.stat().st_size / 1e6:8.1f} MB  {path.name}")
        return 0

    if options.verify or options.check:
        return chapters.run_command(look)
    return chapters.run_command(make)


if __name__ == "__main__":
    sys.exit(main())
