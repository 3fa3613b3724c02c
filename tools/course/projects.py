"""Projects for students: a folder each, with brief, rubric, numbers, and a baseline to start from.

    python tools/course/projects.py --measure   run the baselines and write book/course/projects/baselines.json
    python tools/course/projects.py --check     run them and compare with it; half a minute on one core

A number has drifted if it is further from the committed one than its standard error, or than a thousandth where it has
none. Equal streams give equal numbers on one machine; others round differently. Clock times may differ by 3 times.
"""

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "book" / "_ext"))

import chapters
import projects
import yaml

#: How many times slower or faster another machine may be.
TIMES = 3.0
DIGITS = 6


def names() -> list[str]:
    """The projects, in their order."""
    source = yaml.safe_load(chapters.words(chapters.ROOT / projects.SOURCE))
    return [entry["name"] for entry in source["projects"]]


def program(name: str) -> ModuleType:
    """A project's baseline as a module."""
    path = chapters.ROOT / projects.FOLDER / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"project_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def baseline(name: str) -> dict[str, float]:
    """Result of a project's baseline, run here."""
    return {key: float(value) for key, value in program(name).baseline().items()}


def drifted(found: dict[str, float], held: dict[str, float], timed: Sequence[str] = ()) -> list[str]:
    """Differences of a baseline from the committed numbers, in words."""
    if set(found) != set(held):
        return [f"returns {', '.join(sorted(set(found) ^ set(held)))} in one of two only"]
    wrong = []
    for key, value in held.items():
        if key == "standard error" or key.endswith(", s.e."):
            continue
        error = held["standard error"] if key == "mean" else held.get(f"{key}, s.e.", 0.0)
        if key in timed:
            fine = value / TIMES <= found[key] <= value * TIMES
        else:
            # The last is for what is 0 but for rounding.
            fine = abs(found[key] - value) <= max(error, 1e-3 * abs(value), 1e-12)
        if not fine:
            wrong.append(f"{key} is {found[key]:.6g}, committed is {value:.6g}")
    return wrong


def measure() -> Path:
    """Run all baselines and write their numbers."""
    rounded = {
        name: {key: float(f"{value:.{DIGITS}g}") for key, value in baseline(name).items()} for name in sorted(names())
    }
    path = chapters.ROOT / projects.BASELINES
    path.write_text(json.dumps(rounded, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return path


def check(only: Sequence[str] = ()) -> list[str]:
    """Run baselines and say what has drifted."""
    wrong = []
    for name, project in projects.load().items():
        if only and name not in only:
            continue
        began = time.monotonic()
        faults = drifted(baseline(name), project.numbers, project.timed)
        wrong += [f"{name}: {fault}" for fault in faults]
        print(f"{name}: {'; '.join(faults) or 'as committed'}, {time.monotonic() - began:.1f} s", flush=True)
    return wrong


def marks() -> str:
    """The rubric as a file."""
    most = projects.MOST * len(projects.rubric())
    return "\n".join(
        [
            "# How a project is marked",
            "",
            f"Each point earns 0 to {projects.MOST}, {most} in all; 1 and 3 lie between what is written.",
            "",
            projects.points(),
            "",
        ]
    )


def make(out: Path) -> list[Path]:
    """Write a folder for each project: brief.md, rubric.md, numbers.json and baseline.py."""
    written = []
    for place, (name, project) in enumerate(projects.load().items(), start=1):
        folder = out / f"{place:02}-{name.replace('_', '-')}"
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in {
            "brief.md": f"# {project.title}\n\n{projects.text(project, linked=False)}\n\n"
            "`python baseline.py` prints these numbers; it needs the book's package. `rubric.md` says how the project "
            "is marked.\n",
            "rubric.md": marks(),
            "numbers.json": json.dumps(project.numbers, indent=1, sort_keys=True) + "\n",
            "baseline.py": chapters.words(project.start),
        }.items():
            (folder / file).write_text(content, encoding="utf-8", newline="\n")
            written.append(folder / file)
    return written


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="projects", description=__doc__.splitlines()[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--measure", action="store_true", help="run the baselines and write their numbers")
    action.add_argument("--check", action="store_true", help="run them and compare")
    parser.add_argument("names", nargs="*", help="with --check: these projects only")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(names())):
        parser.error(f"there is no project {unknown[0]!r}: there are {', '.join(names())}")
    if options.measure:
        print(measure())
        return 0
    return int(bool(check(options.names)))


if __name__ == "__main__":
    sys.exit(main())
