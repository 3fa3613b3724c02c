"""Make the course kit in dist/course, or some of its parts.

    python tools/course                    every part that there is, in the order of PARTS
    python tools/course notebooks slides   these
    python tools/course --to elsewhere     into another folder

Each part has a folder of its own, dist/course/<part>, made anew. A part that cannot be made does not stop
the others; it is named, and the exit status says so.
"""

import argparse
import importlib
import importlib.util
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "book" / "_ext"))

import chapters

from course import ROOT, Missing

PARTS = ("notebooks", "assignments", "slides", "questions", "projects")


def is_written(part: str) -> bool:
    """True if a part is written."""
    return importlib.util.find_spec(f"course.{part}") is not None


def make_part(part: str, out: Path) -> list[Path] | str:
    """Make one part anew in a folder: its files, or why there are none.

    It is made beside the folder and put in its place when it is whole; until then, what is there stays.
    """
    draft = out.with_name(f"{out.name}.part")
    try:
        make: Callable[[Path], list[Path]] = importlib.import_module(f"course.{part}").make
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        files = make(draft)
        shutil.rmtree(out, ignore_errors=True)
        draft.rename(out)
        return [out / path.relative_to(draft) for path in files]
    except ModuleNotFoundError as error:
        return f"needs the package {error.name}, which is not installed"
    except FileNotFoundError as error:
        return f"needs {_shown(Path(error.filename))}, which is not there" if error.filename else str(error)
    except subprocess.CalledProcessError as error:
        command = error.cmd if isinstance(error.cmd, str) else " ".join(map(str, error.cmd))
        return f"{command} ended with {error.returncode}"
    except (Missing, chapters.Broken) as error:
        return str(error)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def _size(paths: Sequence[Path]) -> str:
    size = sum(path.stat().st_size for path in paths)
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"


def _report(files: Sequence[Path], out: Path) -> None:
    """Every file of a part of few, the folders of one of many."""
    files = sorted(files)
    if len(files) > 12:
        folders = sorted({path.parent for path in files})
        if len(folders) > 12:
            folders = sorted({out / path.relative_to(out).parts[0] for path in files})
        for folder in folders:
            inside = [path for path in files if path.is_relative_to(folder)]
            print(f"    {_size(inside):>9}  {_shown(folder)}, {len(inside)} files")
    else:
        for path in files:
            print(f"    {_size([path]):>9}  {_shown(path)}")


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and make the parts."""
    parser = argparse.ArgumentParser(prog="course", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)}; all if none is named")
    parser.add_argument("--to", type=Path, default=ROOT / "dist" / "course", help="a folder, dist/course by default")
    options = parser.parse_args(arguments)
    if unknown := [part for part in options.parts if part not in PARTS or not is_written(part)]:
        parser.error(f"there is no part {unknown[0]!r}: there are {', '.join(filter(is_written, PARTS))}")
    parts = [part for part in PARTS if (part in options.parts if options.parts else is_written(part))]
    to = options.to.resolve()

    return chapters.run_command(lambda: kit(parts, to))


def kit(parts: Sequence[str], to: Path) -> int:
    """Make these parts below a folder, with a line for each; return an exit status."""
    failed = []
    for part in parts:
        began = time.monotonic()
        done = make_part(part, to / part)
        seconds = time.monotonic() - began
        if isinstance(done, str):
            failed.append(part)
            print(f"{part}: not made: {done}", flush=True)
        else:
            print(f"{part}: {len(done)} files, {_size(done)}, {seconds:.1f} s", flush=True)
            _report(done, to / part)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
