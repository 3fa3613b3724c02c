"""Build time: the commit's, so that builds are reproducible.

A release (`ICL_RELEASE=1`) also leaves out what was measured of the machine: seconds, and how many cores it has.
"""

import datetime
import os
import subprocess

import chapters
import yaml


def moment() -> datetime.datetime:
    """The time that all that is built carries: SOURCE_DATE_EPOCH, or the commit's; in a copy without, the release's."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not given:
        given = _commit_seconds()
    if not given:
        day = yaml.safe_load(chapters.words(chapters.ROOT / "CITATION.cff"))["date-released"]
        return datetime.datetime.fromisoformat(f"{day}T00:00:00+00:00")
    return datetime.datetime.fromtimestamp(int(given), tz=datetime.UTC)


def _commit_seconds() -> str:
    """Seconds of the commit that is checked out; empty where there is none, or no git."""
    command = ["git", "log", "-1", "--format=%ct"]
    try:
        return subprocess.run(command, cwd=chapters.ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def settle() -> None:
    """Have Sphinx take this time for now."""
    os.environ["SOURCE_DATE_EPOCH"] = str(int(moment().timestamp()))


def of_release() -> bool:
    """True for a release build, whose pages do not mention the machine."""
    return os.environ.get("ICL_RELEASE", "") == "1"
