"""Build the book: run the chapters that changed, two at a time, then render the site strictly.

    python tools/build.py                     the whole book
    python tools/build.py --profile paper     make the recorded runs instead (book/results/), chapter by chapter: those
                                              that did not run here to their end since they or the library changed
    python tools/build.py --profile paper --all     all of them anew, their checkpoints thrown away

A failing cell, any warning of Sphinx and anything a cell writes to standard error fails the build.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import chapters  # noqa: E402

TIMEOUT = {"quick": 120, "paper": 24 * 3600}


def bring_up_to_date(profile: str, *, anew: bool) -> int:
    """Run what is not in the cache, or not recorded, with a line of progress a chapter; return how many failed."""
    names = [p for p in chapters.pages() if chapters.is_chapter((ROOT / f"{p}.md").read_text(encoding="utf-8"))]
    if profile == "paper":
        names = [p for p in names if chapters.makes_records((ROOT / f"{p}.md").read_text(encoding="utf-8"))]
        done = {} if anew else {p: seconds for p in names if (seconds := chapters.recording(p)) is not None}
    else:
        done = {p: chapters.seconds_of(p) for p in names if chapters.cached(p) is not None}
    for page, seconds in done.items():
        print(f"{'recorded' if profile == 'paper' else 'cached':>9}  {seconds:6.1f} s  {page}", flush=True)
    stale = [p for p in names if p not in done]
    failed = 0
    workers = 1 if profile == "paper" else 2
    # Read here, not in the threads: CPython 3.11's parser is not safe to use in several at once.
    notebooks = {page: chapters.prepared(page) for page in stale}
    with ThreadPoolExecutor(workers) as pool:
        if profile == "paper":
            jobs = {pool.submit(chapters.execute_recording, p, notebooks[p], TIMEOUT[profile]): p for p in stale}
        else:
            jobs = {pool.submit(chapters.execute, notebooks[p], (ROOT / p).parent, TIMEOUT[profile]): p for p in stale}
        for job in as_completed(jobs):
            page = jobs[job]
            seconds, error = job.result()
            if error:
                failed += 1
                print(f"   FAILED  {seconds:6.1f} s  {page}\n{error}", flush=True)
            else:
                print(f" executed  {seconds:6.1f} s  {page}", flush=True)
                if profile == "quick":
                    chapters.store(page, notebooks[page], seconds)
    return failed


def main() -> int:
    """Parse the command line and build."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", choices=("quick", "paper"), default="quick")
    parser.add_argument("--all", action="store_true", help="with the profile paper: also what is recorded already")
    arguments = parser.parse_args()
    profile = arguments.profile
    if arguments.all and profile != "paper":
        parser.error("--all is for the profile paper; `make clean` forgets what was built")
    if arguments.all:
        shutil.rmtree(ROOT / "_build" / "checkpoints", ignore_errors=True)
    # One thread a kernel: two chapters run side by side, and sums come out the same on any number of cores.
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["ICL_PROFILE"] = profile
    # A page shows what a chapter found; bars are for those who wait, and tqdm reads this in each kernel.
    os.environ["TQDM_DISABLE"] = "1"
    start = time.monotonic()
    print(f"Chapters (profile {profile}):", flush=True)
    if failed := bring_up_to_date(profile, anew=arguments.all):
        print(f"{failed} chapter(s) failed; the site was not built.", file=sys.stderr)
        return 1
    if profile == "paper":
        print("Records are in book/results/. Run `make book` to see them.")
        return 0
    chapters.collect()
    ran = time.monotonic() - start
    command = ["jupyter-book", "build", ".", "-W", "-n", "--keep-going", "--quiet"]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if done.returncode:
        # Sphinx would remember these pages as read, and the next build would not warn again.
        shutil.rmtree(ROOT / "_build" / ".doctrees", ignore_errors=True)
        print("The site was not built: see the warnings above.", file=sys.stderr)
        return done.returncode
    print(f"Chapters {ran:.0f} s, site {time.monotonic() - start - ran:.0f} s.")
    print(f"Open {ROOT / '_build' / 'html' / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
