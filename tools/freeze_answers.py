"""Write the sealed answers of chapters' exercises anew: python tools/freeze_answers.py adaptation/depth ...

Each chapter's cells run as they are, with the repository's own library; `seal` writes `book/answers/<label>.json`. Then
the numbers of the wrong answers in `book/course/misconceptions.yml` are written beside the right ones. With `--wrong`
these alone are written anew, of all chapters if none is named: so little of a chapter runs that it takes a second.
"""

import argparse
import itertools
import os
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))

import runs
import solutions

from icl_book import exercises


def main() -> int:
    """Seal the answers of the chapters named; return an exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", metavar="page", help="such as adaptation/depth")
    parser.add_argument("--wrong", action="store_true", help="wrong answers only")
    given = parser.parse_args()
    labels = solutions.labels()
    pages = [f"book/{name.removeprefix('book/').removesuffix('.md')}" for name in given.pages] or [*labels]
    if not (given.pages or given.wrong) or not set(pages) <= set(labels):
        parser.error("name pages with sealed answers")
    os.environ["ICL_SEAL"], status = "1", 0
    for page in pages:
        seconds, error = 0.0, ""
        if not given.wrong:
            _, seconds, error = runs.execute(runs.download(page), runs.kernel_environment(), timeout=600)
        if not error:
            try:
                seal_wrong(page, labels[page])
            except Exception as fault:
                error = f"{type(fault).__name__}: {fault}"
        print(f"{'FAILED' if error else 'sealed'} {seconds:6.1f} s  {page}", *filter(None, [error]), flush=True)
        status |= bool(error)
    return status


def seal_wrong(name: str, labels: list[str]) -> None:
    """Write wrong answers' numbers beside the right ones that are sealed."""
    page, mistakes = solutions.Page(name), solutions.mistakes()
    for label in labels:
        wrong = {
            why: page.attempt(label, solutions.replaced(page.source(label), *texts))
            for why, texts in mistakes.get(label, {}).items()
        }
        cases = page.cases(label)
        right = itertools.cycle(exercises._read_sealed(label, len(cases)).right)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a wrong answer may divide by zero
            exercises.seal(label, lambda right=right, **_: next(right), cases, wrong)


if __name__ == "__main__":
    sys.exit(main())
