"""Build the book: run the chapters that changed, two at a time, then render the site strictly.

    python tools/build.py                         the whole book
    python tools/build.py --page adaptation/depth one chapter alone: run if it changed, and rendered without the others
    python tools/build.py --profile paper         make the recorded runs instead (book/results/), chapter by chapter:
                                                  those that did not run here to their end since they or the library
                                                  changed
    python tools/build.py --profile paper --all   all of them anew

A failing cell, any warning of Sphinx and anything a cell writes to standard error fails the build. Ctrl-C stops it at
once; what has finished is kept.
"""

import argparse
import contextlib
import errno
import gc
import importlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))
if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # To load what follows takes seconds. Ctrl-C ends it at once and without a trace; `guarded` takes it from there.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import alone
import chapters
import copies
import environments
import equations
import figures
import kernels
import keys
import markup
import nbformat
import prose
import remembered
import runs
import unchanged
import yaml

TIMEOUT = {"quick": 120, "paper": 24 * 3600}  # seconds a cell
LONG = 30  # seconds; a chapter should take no longer
#: A page alone links to pages that are not there.
ALONE = ["mystnb.unknown_mime_type", "myst.xref_missing", "myst.iref_missing", "ref", "toc", "etoc"]
SECONDS_A_CHARACTER = 1 / 500  # of code, where nothing was measured


def run(pages: list[str], meanwhile: Callable[[], None] = lambda: None) -> dict[str, nbformat.NotebookNode]:
    """Have every one of these chapters run as it is now, the longest first; return those that are.

    `meanwhile` is called as they run, if any has to.
    """
    done = {page: notebook for page in pages if (notebook := runs.cached(page)) is not None}
    for page, notebook in done.items():
        print(f"   cached  {notebook.metadata.icl.seconds:6.1f} s  {page}", flush=True)
    stale = sorted((page for page in pages if page not in done), key=expected, reverse=True)
    if not stale:
        return done
    environment = environments.quick()
    # Read here, not in the threads: CPython 3.11's parser is not safe to use in several at once.
    notebooks = {page: (runs.download(page), keys.key(chapters.source(page))) for page in stale}

    def one(page: str) -> tuple[float, str | None]:
        notebook, key = notebooks[page]
        with tempfile.TemporaryDirectory() as empty:
            seconds, error = kernels.execute(notebook, Path(empty), environment, TIMEOUT["quick"])
        if not error:
            runs.store(page, notebook, key, seconds)
        return seconds, error

    # One or two kernels are sooner there by themselves.
    with copies.made(environment) if copies.SUPPORTED and len(stale) > 2 else contextlib.nullcontext():
        return done | {page: notebooks[page][0] for page in kernels.each(one, stale, workers=2, meanwhile=meanwhile)}


def load() -> None:
    """Load what comes after the chapters: it takes seconds, in which a kernel does not need this process.

    A kernel that starts would wait for PyTorch, which these modules load, were they imported above. What of Sphinx
    cannot be loaded, Sphinx says.
    """
    for name in ("borrowed", "measurements"):
        importlib.import_module(name)
    with contextlib.suppress(Exception):
        from sphinx.application import builtin_extensions

        own = yaml.safe_load(chapters.words(chapters.ROOT / "_config.yml"))["sphinx"]["config"]["extensions"]
        for name in ("jupyter_book.sphinx", *builtin_extensions, *own):
            importlib.import_module(name)


def expected(page: str) -> float:
    """Seconds that a chapter will take: as many as the last time, or by the size of its cells."""
    before = runs.seconds_of(page)
    return SECONDS_A_CHARACTER * sum(map(len, chapters.code_cells(chapters.source(page)))) if before is None else before


def record(pages: list[str], *, anew: bool) -> bool:
    """Make the records of the chapters that have any, one after another; return whether all of them are made."""
    import recordings

    pages = [page for page in pages if chapters.makes_records(chapters.source(page))]
    done = {} if anew else {p: seconds for p in pages if (seconds := recordings.seconds_behind(p)) is not None}
    for page, seconds in done.items():
        print(f" recorded  {seconds:6.1f} s  {page}", flush=True)
    for page in pages:
        if page not in done:
            print(f"  to make  {_recorded(page):6.1f} s  {page} (as its records took so far)", flush=True)
    environment = environments.paper()

    def one(page: str) -> tuple[float, str | None]:
        notebook, folder = runs.download(page), (chapters.ROOT / page).parent
        return recordings.keep(
            page, notebook, lambda after: kernels.execute(notebook, folder, environment, TIMEOUT["paper"], after)
        )

    stale = [page for page in pages if page not in done]
    return len(kernels.each(one, stale, workers=1)) == len(stale)


def _recorded(page: str) -> float:
    """Seconds that the records of a chapter took, wherever they were made; those that are not there count as none."""
    from icl_book import records as evidence

    seconds = 0.0
    for name in chapters.records_of(chapters.source(page)):
        with contextlib.suppress(ValueError):
            provenance = evidence.recorded(name).provenance
            seconds += provenance["seconds"] if provenance["command"] == "make paper" else 0.0
    return seconds


def render(target: Path, *, page: str | None = None, whole: bool = True) -> bool:
    """Render the site into a folder, strictly, or one page of it alone; return whether nothing was wrong with it.

    What is there is built upon if it is `whole`.
    """
    from jupyter_book.sphinx import build_sphinx

    own = {"latex_individualpages": False, "nitpicky": page is None}
    if page:
        own |= {"external_toc_path": str(_contents_of(page, target)), "suppress_warnings": ALONE}
    trees, unfinished = target.parent / ".doctrees", target.parent / ".unfinished"
    if unfinished.exists() or not whole:
        # Sphinx would not warn again of what a killed build had read, and leave a page that was cut short as it is.
        print("The site is not as a build left it that came to its end: all of it is made anew.", flush=True)
        for made in (target, trees):
            shutil.rmtree(made, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished.touch()
    # sphinx_external_toc looks at every object that is not frozen, and one of torch's warns when it is looked at.
    gc.freeze()
    try:
        status = build_sphinx(
            str(chapters.ROOT),
            str(target),
            path_config=chapters.ROOT / "_config.yml",
            noconfig=True,
            confoverrides=own,
            doctreedir=str(trees),
            quiet=True,
            warningiserror=page is None,
            keep_going=True,
            jobs=2,
        )
    except BaseException:
        status = 1
        raise
    finally:
        if status:
            # Sphinx would remember these pages as read, and the next build would not warn again.
            shutil.rmtree(trees, ignore_errors=True)
            for child in multiprocessing.active_children():
                child.terminate()
        unfinished.unlink()
    if isinstance(status, KeyboardInterrupt):
        raise status
    return status == 0


def _contents_of(page: str, target: Path) -> Path:
    """A table of contents with one page, and what it cites."""
    path = target.parent / "_toc.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    cited = [{"file": name} for name in chapters.pages() if name.endswith("/bibliography") and name != page]
    contents = {"format": "jb-book", "root": page, "chapters": cited}
    path.write_text(yaml.safe_dump(contents), encoding="utf-8")
    return path


def examine(pages: list[str]) -> None:
    """Broken if the sources of these pages cannot be built, hide or lose something, or do not say what they show."""
    chapters.examine(pages)
    markup.examine(pages)
    equations.examine()
    with_cells = set(chapters.with_cells())
    figures.examine([page for page in pages if page in with_cells])


def book() -> int:
    """Run what changed and render the site; return an exit status."""
    start, site = time.monotonic(), chapters.built() / "html"
    began_with = unchanged.sources()
    if unchanged.since_the_last_build(began_with):
        print(f"Nothing has changed since it was built. Open {site / 'index.html'}")
        return 0
    examine(chapters.pages())
    names = chapters.with_cells()
    print("Chapters:", flush=True)
    executed = run(names, meanwhile=load)
    if failed := len(names) - len(executed):
        print(f"{failed} chapter(s) failed; the site was not built.", file=sys.stderr)
        return 1
    if slow := [f"{p} {s:.0f} s" for p in names if (s := executed[p].metadata.icl.seconds) > LONG]:
        print(f"Longer than {LONG} s: {', '.join(slow)}", flush=True)
    import borrowed
    import measurements

    prose.examine(names, executed)
    borrowed.examine(chapters.pages(), executed)
    measurements.collect(chapters.pages(), executed)
    ran = time.monotonic() - start
    if not render(site, whole=unchanged.site_is_as_built()):
        print("The site was not built: see the warnings above.", file=sys.stderr)
        return 1
    remembered.tidy()
    unchanged.remember(began_with)
    print(f"Chapters {ran:.0f} s, site {time.monotonic() - start - ran:.0f} s.")
    print(f"Open {site / 'index.html'}")
    return 0


def one_page(name: str) -> int:
    """Run one chapter if it changed, and render its page alone; return an exit status."""
    page = f"book/{name.removeprefix('book/').removesuffix('.md')}"
    if page not in chapters.pages():
        raise chapters.Broken(f"_toc.yml: it has no page {page!r}")
    examine([page])
    import borrowed
    import measurements

    lenders = borrowed.lenders(chapters.source(page)) if borrowed.borrows(chapters.source(page)) else []
    mine = [*([page] if page in chapters.with_cells() else []), *(name for name in lenders if name != page)]
    executed = run(mine)
    if len(executed) < len(mine):
        return 1
    prose.examine([page], executed)
    borrowed.examine([page], executed)
    measurements.collect([page], executed)
    site = chapters.built() / "page" / "html"
    if not render(site, page=page):
        return 1
    print(f"Open {site / page}.html (alone: its links lead nowhere)")
    return 0


def records(*, anew: bool) -> int:
    """Make the recorded runs; return an exit status."""
    examine(chapters.pages())
    print("Chapters that record (profile paper):", flush=True)
    if not record(chapters.with_cells(), anew=anew):
        return 1
    print("Records are in book/results/. Run `make book` to see them.")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and build."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", choices=("quick", "paper"), default="quick")
    parser.add_argument("--all", action="store_true", help="with the profile paper: also what is recorded already")
    parser.add_argument("--page", help="one chapter, such as adaptation/depth")
    asked = parser.parse_args(arguments)
    if asked.all and asked.profile != "paper":
        parser.error("--all is for the profile paper; `make clean` forgets what was built")
    if asked.page and asked.profile == "paper":
        parser.error("--page is for the profile quick")
    # Sphinx reads pages as trees of a million small objects, none of which is garbage before it ends: a third of a
    # build's time went into looking for some.
    gc.set_threshold(1_000_000, 20, 50)
    if asked.profile == "paper":
        return guarded(lambda: records(anew=asked.all))
    return guarded(lambda: one_page(asked.page) if asked.page else book())


#: What the system refuses for reasons that are nobody's mistake in the code, and what to do.
REFUSED = {
    errno.ENOSPC: "Free some space",
    errno.EDQUOT: "Free some space",
    errno.EROFS: "Make it writable, or copy the repository to where you may write",
    errno.EACCES: "Make it yours to write, or copy the repository to where you may write",
    errno.EPERM: "Make it yours to write, or copy the repository to where you may write",
    errno.EFBIG: "Allow larger files (ulimit -f)",
    errno.EMFILE: "Allow more open files (ulimit -n)",
    errno.ENOMEM: "Free some memory",
    errno.EAGAIN: "Allow more processes (ulimit -u)",
}


def guarded(work: Callable[[], int], *folders: Path) -> int:
    """Do it, alone in `_build`, as `told` does."""

    def alone_there() -> int:
        with alone.within(chapters.built()), remembered.within(chapters.built() / "remembered"):
            return work()

    return told(alone_there, *folders)


def told(work: Callable[[], int], *folders: Path) -> int:
    """Do it; what is broken or refused, or whoever stops it, ends it in one line and a status.

    `folders` are those that it writes to beside a build's.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return work()
    except chapters.Broken as fault:
        print(fault, file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        where = error.filename or _fullest(*folders)
        again = "run the same command again: what had finished is kept."
        print(f"{where}: {error.strerror}. {REFUSED[error.errno]}, then {again}", file=sys.stderr)
        return 1
    except MemoryError:
        print(
            "No memory is left. Free some, then run the same command again: what had finished is kept.", file=sys.stderr
        )
        return 1
    except KeyboardInterrupt:
        print("Stopped; what had finished is kept.", file=sys.stderr)
        return 128 + signal.SIGINT


def _fullest(*others: Path) -> str:
    """Of a build's folders and others that with the least space: the system may not say what it could not write."""
    folders = [*others, chapters.built(), chapters.ROOT / "book/results", Path(tempfile.gettempdir())]
    return str(
        min((folder for folder in folders if folder.is_dir()), key=lambda folder: shutil.disk_usage(folder).free)
    )


def leave(status: int) -> NoReturn:
    """End this process. One that has done its work, or was stopped, does not first take apart what it holds.

    The pages of a book are millions of objects: that took four seconds.
    """
    if status in (0, 128 + signal.SIGINT):
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # closed by who called
                stream.flush()
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    leave(main())
