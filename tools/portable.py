"""Run chapters with the numerical kernels of other processors, and compare every value that their pages show.

    python tools/portable.py                          on one other processor as many chapters as a few minutes
                                                      allow, which the commit draws
    python tools/portable.py --page adaptation/depth  these chapters on every processor
    python tools/portable.py --all --tests            all chapters, and the tests, on every processor
    python tools/portable.py --all --on Haswell       on this one only

OpenBLAS (numpy, scipy), ATen and MKL (torch) choose their code by the processor and can be told to take another's:
results then differ by rounding. Sentences, claims, tables and printed text must stay the same, values that a text
inserts to four digits, and the data of figures within a thousandth of their axis. No page shows a time (`make again`
compares bits), so nothing else is left out.
"""

import argparse
import difflib
import html
import itertools
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))

import chapters
import check_reproducible
import measurements
import runs

#: A sample is run on the first that is not like this machine. Prescott's code calls itself Katmai; Zen has Haswell's in
#: the wheels of numpy and scipy. MKL takes AUTO for AVX2 and AVX512 where the processor is not Intel's.
PROCESSORS = {
    "Haswell": {"OPENBLAS_CORETYPE": "Haswell", "ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2"},
    "SkylakeX": {"OPENBLAS_CORETYPE": "SkylakeX", "ATEN_CPU_CAPABILITY": "avx512", "MKL_CBWR": "AVX512"},
    "Prescott": {"OPENBLAS_CORETYPE": "Katmai", "ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"},
    "two-threads": dict.fromkeys(runs.THREADS, "2"),
}
TOLERANCE = 1e-3  # of the length of an axis; of the value, where there is none
SECONDS = 180  # for the chapters of a sample in two workers, as long as they last took
_PROBE = """
import json, numpy, scipy.linalg, threadpoolctl, torch
blas = {library["architecture"] for library in threadpoolctl.threadpool_info() if "architecture" in library}
aten, threads = torch.backends.cpu.get_cpu_capability().lower(), str(torch.get_num_threads())
a, b = numpy.full((64, 64), 0.5), torch.full((64, 64), 0.5)
a @ a, scipy.linalg.solve(a + numpy.eye(64), a), b @ b, b.double() @ b.double(), b.exp().sum(), b.double().log().sum()
print(json.dumps({"OPENBLAS_CORETYPE": "+".join(blas), "ATEN_CPU_CAPABILITY": aten, "OMP_NUM_THREADS": threads}))
"""


def probe(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Ask the libraries what code they choose in this environment; None where the processor cannot run it.

    They take code that the processor lacks without a word and die at the first product, so the probe computes some.
    """
    done = subprocess.run([sys.executable, "-c", _PROBE], env=environment, stdout=subprocess.PIPE, check=False)
    return None if done.returncode else json.loads(done.stdout)


def acting(names: list[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Those of the processors that make a difference here; a line for each of the others."""
    native = probe(environment)
    for name in names:
        wanted, got = PROCESSORS[name], probe(environment | PROCESSORS[name])
        if got is None or any(got[key] != wanted[key] for key in got.keys() & wanted.keys()):
            print(f"{name} is left out: this machine cannot stand in for it.", flush=True)
        elif got == native:
            print(f"{name} is left out: this machine computes like it.", flush=True)
        else:
            yield name


def values(cell: nbformat.NotebookNode) -> Iterator[tuple[str, str]]:
    """Everything that a page shows of a cell's outputs, piece by piece: what it is, and the piece."""
    for output in check_reproducible.outputs(cell):
        data = output.get("data", {})
        if output["output_type"] == "error":
            yield "error", f"{output['ename']}: {output['evalue']}"
        elif runs.SAID in data:
            yield "sentence", data[runs.SAID]
        elif runs.GLUED in data:
            name, value = next(iter(runs.values(nbformat.NotebookNode(cells=[{"outputs": [output]}])).items()))
            yield f"value {name}", f"{value:.4g}" if isinstance(value, float) else str(value)
        elif runs.CHECK in data:
            yield f"claim {data[runs.CHECK]['id']}", "{verdict}: {measured} ({samples})".format(**data[runs.CHECK])
        else:
            for figure in runs.specifications(data.get("text/html", "")):
                yield "figure", figure
            text = data["text/html"] if "text/html" in data else html.escape(output.get("text") or data["text/plain"])
            text = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.S)
            for row in re.split(r"</tr>|</p>" if "<table" in text else r"\n|</p>", text):
                row = html.unescape(re.sub(r"<[^>]*>", "", row.replace("</td>", " | ").replace("</th>", " | ")))
                if row.strip():
                    yield "text", " ".join(check_reproducible.without_addresses(row).split())


def differences(old: nbformat.NotebookNode, new: nbformat.NotebookNode) -> list[str]:
    """A line for every value of a chapter that is another in its second run."""
    lines = []
    mine, other = ([cell for cell in run.cells if cell.cell_type == "code"] for run in (old, new))
    for number, (cell, twin) in enumerate(zip(mine, other, strict=True), 1):
        for (kind, was), (now_kind, now) in itertools.zip_longest(values(cell), values(twin), fillvalue=("", "")):
            if kind == now_kind == "figure":
                title = runs.heading(json.loads(was))
                lines += [f"cell {number}, figure '{title}': {part}" for part in redrawn(was, now)]
            elif (kind, was) != (now_kind, now):
                lines.append(f"cell {number}, {kind or now_kind}: {_changes(was, now)}")
    return lines


def _changes(old: str, new: str) -> str:
    """The words that differ, with those before them."""
    was, now, parts = old.split(), new.split(), []
    for kind, i, j, k, m in difflib.SequenceMatcher(None, was, now, autojunk=False).get_opcodes():
        if kind != "equal":
            parts.append(f"{' '.join(was[max(i - 5, 0) : i])} [{' '.join(was[i:j])} -> {' '.join(now[k:m])}]".strip())
    return " … ".join([" ".join(was[:3]), *parts]) if was else f"nothing -> {new}"


def redrawn(old: str, new: str) -> list[str]:
    """Differences between two charts: the largest change in each column of their data."""
    axes: dict[str, tuple[float, float, bool]] = {}

    def collect(part: dict[str, Any]) -> None:
        match part:
            case {"field": name, "scale": {"domain": [int() | float() as low, int() | float() as high], **scale}}:
                axes[name] = (low, high, scale.get("type") == "log")

    def flat(part: Any) -> Iterator[Any]:
        for each in part if isinstance(part, list | tuple) else ():
            yield from flat(each)
        if not isinstance(part, list | tuple):
            yield part

    json.loads(old, object_hook=lambda part: collect(part) or part)
    mine, other = (list(flat(json.loads(text, object_pairs_hook=list))) for text in (old, new))
    if len(mine) != len(other):
        return [f"{len(mine)} -> {len(other)} parts"]
    worst, name = dict[str, tuple[float, str]](), ""
    for was, now in zip(mine, other, strict=True):
        gap = 0.0
        if isinstance(was, str) and isinstance(now, str):
            gap = math.inf if was != now and not was.startswith("data-") else 0.0  # data are named by a hash
        elif was != now:
            gap = _gap(was, now, axes.get(name)) if was is not None and now is not None else math.inf
        if gap > max(TOLERANCE, worst.get(name, (0.0, ""))[0]):
            worst[name] = gap, f"{name} {_changes(str(was), str(now))}"
        name = was if isinstance(was, str) else name
    return [line for _, line in worst.values()]


def _gap(was: float, now: float, axis: tuple[float, float, bool] | None) -> float:
    """Distance of two values, as a share of their axis."""
    if axis is None:
        return abs(was - now) / max(abs(was), abs(now))
    low, high, log = axis
    ends = (min(max(value, low), high) for value in (was, now))
    low, high, was, now = (math.log(value) if log else value for value in (low, high, *ends))
    return abs(was - now) / (high - low)


def compare(pages: list[str], environment: Mapping[str, str]) -> list[str]:
    """Run chapters in this environment; return those that are not as their pages, with a line for every value."""
    here, work = runs.run_stale(pages), {page: runs.download(page) for page in pages}
    for notebook in work.values():
        for cell in notebook.cells:  # a failure is a difference, and so may be what comes after it
            cell.metadata.setdefault("tags", []).append("raises-exception")
    # Two threads of two chapters on two cores would wait for one another.
    workers, wrong = 2 // int(environment["OMP_NUM_THREADS"]), []
    # What is compared are values: how long a cell takes is this machine's, and who else computes on it.
    limit = 5 * runs.TIMEOUT["quick"]
    for page, notebook, _, error in runs.execute_in_parallel(work, environment, workers, timeout=limit):
        if lines := [error] if error else differences(here[page], notebook):
            print("\n".join(lines), flush=True)
            wrong.append(page)
    return wrong


def fitting(pages: list[str], commit: str, seconds: float) -> list[str]:
    """Of the chapters, in an order that the commit draws, as many as two workers run in these seconds."""
    drawn = check_reproducible.shuffled(pages, commit)
    ends = itertools.accumulate(measurements.of(page)["seconds"] for page in drawn)
    return [page for page, end in zip(drawn, ends, strict=True) if end <= 2 * seconds]


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every chapter")
    parser.add_argument("--page", nargs="+", help="these chapters, such as adaptation/depth")
    parser.add_argument("--on", nargs="+", choices=PROCESSORS, help="these processors only")
    parser.add_argument("--tests", action="store_true", help="the tests too, but for those of the browser")
    options = parser.parse_args(arguments)

    def work() -> int:
        environment, wrong = runs.kernel_environment(), []
        pages = [f"book/{page.removeprefix('book/')}" for page in options.page or ()] or chapters.with_cells()
        names = acting(options.on or list(PROCESSORS), environment)
        if not (options.all or options.page):
            pages, names = fitting(pages, check_reproducible.commit(), SECONDS), itertools.islice(names, 1)
        for name in names:
            print(f"Chapters on {name}:", flush=True)
            wrong += [f"{page} on {name}" for page in compare(pages, environment | PROCESSORS[name])]
            if options.tests:
                tests = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", "--ignore=tests/browser"]
                around = os.environ | PROCESSORS[name]
                if subprocess.run(tests, cwd=chapters.ROOT, env=around, check=False).returncode:
                    wrong.append(f"the tests on {name}")
        if wrong:
            print(f"Not as on this machine: {', '.join(wrong)}", file=sys.stderr)
        return int(bool(wrong))

    return chapters.run_command(work)


if __name__ == "__main__":
    sys.exit(main())
