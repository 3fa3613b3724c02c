"""Mutants of the exercises' solutions: python tools/solution_mutants.py [label ...] [--survivors] [--jobs 2]

A mutant is a chapter's solution with one small fault (`tools/faults.py`). A self-check whose cases are well chosen
refuses it. Those that pass stand with a reason in `book/course/mutants.yml`; the tool counts all, and its status is 1
if one passes that is not listed, or one is listed that is refused. Those of the library: `tools/library_mutants.py`.
"""

import argparse
import copy
import os
import random
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))

import attempts
import chapters
import numpy as np
import yaml
from faults import Mutant, mutants

#: Mutants that pass, by label and reason.
LISTED = chapters.ROOT / "book/course/mutants.yml"
#: Seconds of the processor after which a mutant is taken to run for ever.
LIMIT = 1.0


class Endless(BaseException):  # no `except Exception` on its way stops it
    """A mutant has run for as long as one may."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise Endless in what takes longer."""

    def stop(*_: Any) -> None:
        raise Endless(f"not done in {seconds} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def passes(page: attempts.Page, label: str, mutant: Mutant, limit: float = LIMIT) -> bool:
    """Whether a self-check takes a mutant for right."""
    try:
        with limited(limit):
            return page.outcome(label, mutant.source).passed
    except Endless:
        return False


def sample(source: str, size: int, seed: str) -> list[Mutant]:
    """Some mutants of a function, the same for the same seed."""
    found = mutants(source)
    return random.Random(seed).sample(found, min(size, len(found)))


def reasons(label: str) -> dict[str, str]:
    """Why mutants of an exercise's solution pass, by their changes."""
    return {change: why for why, changes in listed().get(label, {}).items() for change in changes}


@cache
def listed() -> dict[str, dict[str, list[str]]]:
    """Changes of the mutants that pass, by label and reason."""
    read: dict[str, dict[str, list[str]]] = yaml.safe_load(LISTED.read_text(encoding="utf-8"))
    return read


def tells_apart(page: attempts.Page, label: str, mutant: Mutant, draws: int = 20) -> bool | None:
    """Whether a mutant and the solution differ on cases near the self-check's own; None if the solution takes none."""
    rng, right, wrong = (
        np.random.default_rng(0),
        *(page.attempt(label, source) for source in (page.source(label), mutant.source)),
    )
    tried = False
    for case in page.cases(label) * draws:
        near = {name: _near(value, rng) for name, value in case.items()}
        with warnings.catch_warnings(), limited(LIMIT):
            warnings.simplefilter("ignore")
            try:
                one = np.asarray(right(**copy.deepcopy(near)), dtype=np.float64)
            except (Exception, Endless):
                continue
            tried = True
            try:
                other = np.asarray(wrong(**copy.deepcopy(near)), dtype=np.float64)
            except (Exception, Endless):
                return True
        if one.shape != other.shape or not np.allclose(one, other, rtol=1e-6, atol=1e-12, equal_nan=True):
            return True
    return False if tried else None


def _near(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return max(1, int(value + rng.integers(-1, 3)))
    if isinstance(value, float):
        return float(value * rng.uniform(0.6, 1.0 if 0.5 < value < 1 else 1.6))
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        if value.ndim > 1 and value.shape[-1] == value.shape[-2] and np.allclose(value, np.swapaxes(value, -1, -2)):
            sizes = rng.uniform(0.8, 1.2, value.shape[-1])
            return value * np.multiply.outer(sizes, sizes)  # symmetric still
        return value * (1 + 0.3 * rng.uniform(-1, 1, value.shape))
    return value


@dataclass(frozen=True)
class Count:
    """Of one exercise: mutants tried, the changes of those that pass, and seconds."""

    label: str
    tried: int
    passed: list[tuple[str, bool | None]]
    seconds: float


def of_page(name: str, labels: list[str], look: bool) -> list[Count]:
    """The counts of a page's exercises."""
    page, counts = attempts.Page(name), []
    for label in labels:
        start, tried, passed = time.monotonic(), 0, []
        spent = time.process_time()
        page.outcome(label, page.source(label))
        limit = LIMIT + 5 * (time.process_time() - spent)
        for mutant in mutants(page.source(label)):
            tried += 1
            if passes(page, label, mutant, limit):
                passed.append((mutant.change, tells_apart(page, label, mutant) if look else None))
        counts.append(Count(label, tried, passed, time.monotonic() - start))
    return counts


def main() -> int:
    """Count; return an exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("labels", nargs="*", metavar="label", help="such as ex-kernel; all if none is given")
    parser.add_argument("--survivors", action="store_true", help="show those that pass, and whether near cases tell")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    pages = {
        page: [label for label in labels if not given.labels or label in given.labels]
        for page, labels in attempts.labels().items()
    }
    pages = {page: labels for page, labels in pages.items() if labels}
    status, total = 0, Counter[str]()
    with ProcessPoolExecutor(given.jobs) as pool:
        for count in chain.from_iterable(pool.map(of_page, pages, pages.values(), repeat(given.survivors))):
            known = reasons(count.label)
            passed = [change for change, _ in count.passed]
            strange, gone = sorted(set(passed) - set(known)), sorted(set(known) - set(passed))
            total.update(tried=count.tried, passed=len(passed), strange=sum(change in strange for change in passed))
            refused = count.tried - len(passed)
            numbers = f"{count.tried:4} tried {refused:4} refused {len(passed):3} pass {count.seconds:5.0f} s"
            print(f"{count.label:20} {numbers}")
            for change, told in count.passed if given.survivors else ():
                print(f"    {'?' if told is None else 'told apart near by' if told else 'the same near by'}: {change}")
            for kind, changes in (("passes without a reason", strange), ("listed, but does not pass", gone)):
                for change in changes:
                    print(f"    {kind}: {change}")
                    status = 1
            sys.stdout.flush()
    refused = total["tried"] - total["passed"]
    print(
        f"{total['tried']} mutants, {refused} refused ({100 * refused / max(1, total['tried']):.1f}%), "
        f"{total['passed'] - total['strange']} pass with a reason, {total['strange']} without"
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
