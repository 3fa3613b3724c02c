"""What a chapter's kernel finds around it: the package as a reader installs it, one thread, no progress bars."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import chapters

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def quick() -> dict[str, str]:
    """For the pages: the package from its wheel, made now; nothing of the repository's `lib` can be imported."""
    return _around("quick", _installed())


def paper() -> dict[str, str]:
    """For records: the repository's own library, which writes them into the repository."""
    return _around("paper", chapters.ROOT / "lib")


def sealing() -> dict[str, str]:
    """For sealed answers: the repository's own library, which writes them into the repository."""
    return _around("quick", chapters.ROOT / "lib") | {"ICL_SEAL": "1"}


def _around(profile: str, package: Path) -> dict[str, str]:
    # One thread a kernel: two chapters run side by side, and sums come out the same on any number of cores.
    # A page shows what a chapter found; bars are for those who wait, and tqdm reads this in each kernel.
    own = {"ICL_PROFILE": profile, "TQDM_DISABLE": "1", "PYTHONPATH": str(package)}
    return os.environ | dict.fromkeys(THREADS, "1") | own


def _installed() -> Path:
    """The package's wheel, built and unpacked."""
    folder = chapters.built() / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(command, cwd=chapters.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise chapters.Broken(f"pyproject.toml: the package cannot be built: {done.stderr.strip()[-500:]}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"
