"""The build: what it runs and in which order, what it keeps, how it stops, and what it says when it cannot go on."""

import contextlib
import errno
import gc
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import alone
import book_site
import build
import chapters
import environments
import kernels
import keys
import nbformat
import pytest
import runs
from jupyter_client.channels import AsyncZMQSocketChannel

from icl_book import closure, records

ROOT = Path(__file__).resolve().parents[2]
#: Tests that look at other processes.
sees_processes = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of processes in /proc")


def executed(page):
    """A chapter run for its page, which need not be rendered."""
    return build.run([page])[page]


@pytest.fixture
def here(monkeypatch):
    """Cells that only print are run in this process: for tests of what is kept of a run, and not of kernels."""

    def execute(notebook, folder, environment, timeout, after=None):
        names = {}
        notebook.metadata["language_info"] = {"name": "python"}  # which a kernel tells, and a page needs
        for cell in notebook.cells:
            if cell.cell_type == "code":
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(cell.source, names)
                cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=out.getvalue())]
        return 0.1, None

    monkeypatch.setattr(kernels, "execute", execute)


def printed(notebook):
    """What a notebook's cells printed."""
    return "".join(o.text for c in notebook.cells if c.cell_type == "code" for o in c.outputs)


def test_the_download_is_what_runs(tiny):
    """A chapter's run is its download, executed in an empty folder; the page has its outputs cell by cell."""
    tiny.chapters(a=["import os\nprint(os.listdir())", "print(2 + 2)", "x = 1"])
    run = executed("book/a")
    download = runs.download("book/a")
    assert [c.source for c in run.cells] == [c.source for c in download.cells]
    assert printed(run) == "[]\n4\n"
    page = runs.as_page(chapters.source("book/a"), "book/a")
    assert [c.outputs for c in page.cells if c.cell_type == "code"] == [
        c.outputs for c in runs.cached("book/a").cells if c.cell_type == "code"
    ]
    assert printed(page) == printed(run)
    assert not any(c.get("outputs") for c in download.cells)


def test_the_package_is_the_wheels(tmp_path):
    """A kernel imports the package from the wheel that the build made, and profile and thread are as they should be."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(chapters, "built", lambda: tmp_path)
        around = environments.quick()
    code = "import icl, os; print(icl.__file__); print(os.environ['ICL_PROFILE'], os.environ['OMP_NUM_THREADS'])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=around, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == [str(tmp_path / "wheel/site/icl/__init__.py"), "quick 1"]
    assert around["TQDM_DISABLE"] == "1"  # what a page shows does not depend on how long its cells took
    assert environments.paper()["PYTHONPATH"] == str(ROOT / "lib")
    assert environments.paper()["ICL_PROFILE"] == "paper"


@pytest.mark.usefixtures("here")
def test_a_chapter_runs_again_when_it_changed(tiny, monkeypatch, capsys):
    """Prose may change; a cell, a record, a ledger row, the library or the lock makes the chapter run again."""
    tiny.chapters(a=["import icl\nrecorded = claim = str", "recorded('r')", "claim('gla.x')"])
    executed("book/a")
    capsys.readouterr()
    assert "executed" not in (build.run(["book/a"]) and capsys.readouterr().out)
    path = tiny.root / "book/a.md"
    text = path.read_text()
    path.write_text(text.replace("Some prose.", "Other prose."))
    assert runs.cached("book/a") is not None
    path.write_text(text.replace("'gla.x'", "'gla.x' "))
    assert runs.cached("book/a") is None
    path.write_text(text)
    for name in ("book/results/r.json", "book/claims/gla.yml", "requirements.lock"):
        file = tiny.root / name
        before = file.read_bytes() if file.exists() else None
        file.write_text("- {id: gla.x, verdict: misprint}\n" if name.endswith("yml") else "x = 1\n")
        assert runs.cached("book/a") is None, name
        file.unlink() if before is None else file.write_bytes(before)
        assert runs.cached("book/a") is not None, name
    monkeypatch.setattr(closure, "digest", lambda code: "another")
    assert runs.cached("book/a") is None


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("damage", ["cut short", "garbled", "altered", "another's", "empty"])
def test_a_damaged_run_is_thrown_away(tiny, capsys, damage):
    """A stored run that is not whole is named in one line, and the chapter is run again."""
    tiny.chapters(a=["print('as it was')"])
    executed("book/a")
    path = runs.place("book/a")
    whole = path.read_text()
    broken = {
        "cut short": whole[: len(whole) // 2],
        "garbled": whole.replace("{", "\x00"),
        "altered": whole.replace("as it was", "as it is not", 1).replace('"as it was', '"as it is not'),
        "another's": '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}',
        "empty": "",
    }[damage]
    assert broken != whole
    path.write_text(broken)
    capsys.readouterr()
    assert runs.cached("book/a") is None
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert "_build/runs/book/a.ipynb is thrown away" in said
    assert not path.exists()
    assert printed(executed("book/a")) == "as it was\n"
    assert runs.cached("book/a") is not None


@pytest.mark.usefixtures("here")
def test_an_altered_output_is_not_shown(tiny):
    """Text altered in the store never reaches a page."""
    tiny.chapters(a=["print('right')"])
    executed("book/a")
    notebook = nbformat.read(runs.place("book/a"), as_version=4)
    next(c for c in notebook.cells if c.cell_type == "code").outputs[0].text = "wrong\n"
    nbformat.write(notebook, runs.place("book/a"))
    with pytest.raises(chapters.Broken, match=re.escape("book/a.md: it was not run as it is now")):
        runs.as_page(chapters.source("book/a"), "book/a")


def test_the_longest_runs_first(tiny, monkeypatch):
    """By the seconds of the last run, or the size of the cells where there was none."""
    tiny.chapters(a=["x = 1"], b=["x = 1"], c=["# " + 100 * "long "], d=["x = 1"])
    seconds = {"book/a": 3.0, "book/b": 0.5}
    monkeypatch.setattr(runs, "seconds_of", seconds.get)
    begun = []

    def each(one, pages, **options):
        begun.extend(pages)
        return []

    monkeypatch.setattr(kernels, "each", each)
    build.run(["book/a", "book/b", "book/c", "book/d"])
    assert begun == ["book/a", "book/c", "book/b", "book/d"]


def test_long_chapters_are_named(tiny, monkeypatch, capsys):
    """A chapter of more than half a minute is named in a line; it fails nothing."""
    tiny.chapters(a=["x = 1"], b=["x = 2"])
    monkeypatch.setattr(build, "render", lambda target, **_: True)
    for page, seconds in (("book/a", 31.0), ("book/b", 29.0)):
        runs.store(page, runs.download(page), keys.key(chapters.source(page)), seconds)
    assert build.main([]) == 0
    assert "Longer than 30 s: book/a 31 s\n" in capsys.readouterr().out


# What a kernel does before it is one.
DIES = """
import os, pathlib
count = pathlib.Path({count!r})
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
if number <= {times}:
    os._exit(1)
"""


def test_a_kernel_that_does_not_start_is_started_again(tiny, tmp_path, capsys, monkeypatch):
    """A kernel that dies before it replies is started again twice; after that the chapter has failed, by its name."""
    # Whether one that says nothing is dead is looked up ten times a second, not once: nothing else takes time here.
    patient = AsyncZMQSocketChannel.get_msg
    quick = lambda self, timeout=None: patient(self, timeout and min(timeout, 0.1))  # noqa: E731
    monkeypatch.setattr(AsyncZMQSocketChannel, "get_msg", quick)
    tiny.chapters(twice=["print('here')"], always=["print('here')"])
    notebooks = {page: runs.download(page) for page in ("book/twice", "book/always")}
    counts = {}
    for page, times in (("book/twice", 2), ("book/always", 9)):
        site = tmp_path / page
        site.mkdir()
        counts[page] = site / "count"
        (site / "sitecustomize.py").write_text(DIES.format(count=str(counts[page]), times=times))

    def one(page):
        return kernels.execute(notebooks[page], tmp_path, {**os.environ, "PYTHONPATH": str(tmp_path / page)}, 600)

    assert kernels.each(one, list(notebooks), workers=2) == ["book/twice"]
    said = capsys.readouterr().out
    assert [int(count.read_text()) for count in counts.values()] == [3, 3]
    assert printed(notebooks["book/twice"]) == "here\n"
    assert re.search(r"FAILED .* book/always\nIts kernel did not start: Kernel died", said)
    assert said.count("FAILED") == 1


def test_a_failing_cell_names_its_chapter(tiny, capsys):
    """A failing cell, a kernel that dies under one or after the last, fail the chapter by its name; others are kept."""
    dies = "get_ipython().kernel.shell_handlers['kernel_info_request'] = lambda *_: os.kill(os.getpid(), 9)"
    after = f"import os\n{dies}\nprint(1)"  # once it is asked anything more
    tiny.chapters(a=["print(1 / 0)"], b=["import os\nos.kill(os.getpid(), 9)"], c=["x = 1"], d=["x = 1", after])
    assert build.main([]) == 1
    said, complained = capsys.readouterr()
    assert re.search(r"FAILED .* book/a\n(?s:.*)ZeroDivisionError", said)
    assert re.search(r"FAILED .* book/b\nThe kernel died", said)
    assert re.search(r"FAILED .* book/d\nThe kernel died", said)
    assert "3 chapter(s) failed" in complained
    assert [runs.cached(f"book/{name}") is not None for name in "abcd"] == [False, False, True, False]


#: A kernel that is still at its answer when whoever asked has it.
LINGERS = """
import time
handlers = get_ipython().kernel.shell_handlers
answer = handlers["kernel_info_request"]
async def linger(*message):
    await answer(*message)
    time.sleep(2)
handlers["kernel_info_request"] = linger
"""


def test_a_kernel_that_has_done_its_work_complains_of_nothing(tiny, capfd):
    """It is not interrupted as it answers the last question, of which it would log an error."""
    tiny.chapters(a=[LINGERS])
    executed("book/a")
    assert capfd.readouterr().err == ""


def test_a_walk_over_all_objects_meets_nothing_that_was_loaded(tiny, monkeypatch):
    """As sphinx_external_toc asks each for its class; one of torch's warns then, and a warning is an error here."""
    import torch.distributed  # noqa: F401

    gc.unfreeze()  # what the harness has frozen

    classes = set()
    monkeypatch.setattr(
        "jupyter_book.sphinx.build_sphinx", lambda *_, **__: classes.update(each.__class__ for each in gc.get_objects())
    )
    build.render(tiny.root / "_build/html")
    assert classes


def test_what_comes_after_is_loaded_as_chapters_run():
    """Until kernels run, nothing is loaded that takes seconds; then all that the site needs.

    Planted: `figures` imported `icl_book`: PyTorch was loaded.
    """
    code = """
import sys
sys.path.insert(0, "tools")
import build, chapters, keys
page = "book/adaptation/depth"
build.examine([page])
keys.key(chapters.source(page))
print({"altair", "pandas", "sphinx", "torch"} & {*sys.modules})
build.load()
print({"altair", "pandas", "sphinx", "book_site", "jupyter_book.sphinx", "measurements"} - {*sys.modules})
build.leave(0)
"""
    around = os.environ | {"PYTHONPATH": str(ROOT / "lib")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=around, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\nset()\n"


def test_meanwhile_is_while_chapters_run(capsys):
    """What is done meanwhile is done once they have begun, before any has ended."""
    begun, done = threading.Event(), threading.Event()

    def one(page):
        begun.set()
        return 1.0, None if done.wait(20) else "It waited in vain."

    def meanwhile():
        assert begun.wait(20)
        done.set()

    assert kernels.each(one, ["book/a"], workers=2, meanwhile=meanwhile) == ["book/a"]
    assert capsys.readouterr().out.count("executed") == 1


def test_what_stops_meanwhile_stops_the_kernels(monkeypatch):
    """Ctrl-C as something is loaded is Ctrl-C."""
    stopped = threading.Event()
    monkeypatch.setattr(kernels, "stop", stopped.set)

    def meanwhile():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kernels.each(lambda page: (1.0, None), ["book/a"], workers=1, meanwhile=meanwhile)
    assert stopped.is_set()


def test_paper_says_how_long_the_records_took():
    """Seconds of all that `make paper` recorded for a chapter; of a page without records none."""
    names = chapters.records_of(chapters.source("book/adaptation/depth"))
    took = [records.recorded(name).provenance for name in names]
    assert len(took) > 5
    expected = sum(each["seconds"] for each in took if each["command"] == "make paper")
    assert build._recorded("book/adaptation/depth") == pytest.approx(expected)
    assert build._recorded("book/start/how-to-run") == 0


SLEEPS = "import os, pathlib, time\npathlib.Path({root!r}, f'{{os.getpid()}}.pid').touch()\n# {long}\ntime.sleep(600)"


@sees_processes
@pytest.mark.parametrize(
    ("options", "number", "status"),
    [([], signal.SIGINT, 130), ([], signal.SIGTERM, 143), (["--profile", "paper"], signal.SIGINT, 130)],
)
def test_it_stops_at_once(tiny, options, number, status):
    """Ctrl-C ends the build within seconds, kernels too; what has finished is kept, what was queued is not begun."""
    sleeps = SLEEPS.format(root=str(tiny.root), long=400 * "long ") + "\n# record('x')"
    if options:
        tiny.chapters(a=[sleeps], b=[sleeps])
    elif number == signal.SIGTERM:
        tiny.chapters(a=[sleeps])
    else:
        tiny.chapters(a=["x = 1\n# " + 900 * "long "], b=[sleeps], c=["y = 1"], d=[sleeps])
    sleeping = 1 if options or number == signal.SIGTERM else 2
    with tiny.building(*options, processes=sleeping) as process:
        os.kill(process.pid, number)
        asked = time.monotonic()
        process.join(60)
    assert process.exitcode == status
    assert time.monotonic() - asked < 30
    assert len(tiny.numbers()) == sleeping
    assert not any(map(tiny.running, tiny.numbers()))
    if number == signal.SIGINT:
        assert "Stopped; what had finished is kept." in tiny.complained()
        assert "Traceback" not in tiny.complained()
    if sleeping == 2:
        assert runs.cached("book/a") is not None
        assert runs.cached("book/c") is None


EXERCISE = b"# A page\n\n```{exercise-start} Title\n:class: dropdown\n:label: one\n```\n"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"book/a.md": ["x = 1", "x = = 1"]}, r"book/a\.md: the cell at line 15 is not plain Python"),
        ({"book/a.md": ["%timeit 1"]}, r"book/a\.md: the cell at line \d+ .* magics"),
        (
            {"book/a.md": ["import warnings\nwarnings.simplefilter('ignore')"]},
            r"book/a\.md: the cell at line \d+ imports",
        ),
        ({"book/a.md": ["from contextlib import redirect_stderr"]}, r"book/a\.md: .* imports redirect_stderr"),
        ({"book/a.md": ["import sys\nsys.stderr = open('x', 'w')"]}, r"book/a\.md: .* in place of sys\.stderr"),
        ({"book/a.md": ["x = 1", "exit()"]}, r"book/a\.md: the cell at line 15 uses exit"),
        ({"book/a.md": ["import os\nos._exit(0)"]}, r"book/a\.md: .* uses _exit"),
        ({"book/a.md": ["from urllib.request import urlopen"]}, r"book/a\.md: the cell at line \d+ imports urllib"),
        ({"book/a.md": ["import subprocess"]}, r"book/a\.md: .* imports subprocess: a chapter needs no network"),
        ({"book/a.md": b"# A\n\n```{code-cell}\nx = 1\n```\n"}, r"book/a\.md: it has cells and no kernelspec"),
        ({"book/a.md": ["charts.lines(x, x_title='x', y_title='%', title='')"]}, r"book/a\.md: the figure '', cell at"),
        ({"book/index.md": b"# A\n\n![](a.png)\n"}, r"book/index\.md: the picture 'a.png' needs words"),
        ({"book/index.md": b"# A\n\n````{note}\nText.\n"}, r"book/index\.md: the fence '````{note}' of line 3"),
        ({"book/index.md": b"# A\n\nBy (61) it is so.\n"}, r"book/index\.md: this page does not show equation \(61\)"),
        ({"book/a.md": ["raise SystemExit"]}, r"book/a\.md: .* uses SystemExit"),
        ({"book/a.md": ["try:\n    1 / 0\nexcept Exception as e:\n    print(e)"]}, r"book/a\.md: .* catches Exception"),
        ({"book/a.md": ["try:\n    1 / 0\nexcept:\n    x = 2"]}, r"book/a\.md: .* catches everything"),
        ({"book/a.md": ["try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass"]}, r"book/a\.md: .* swallows ZeroDiv"),
        ({"book/a.md": b"# Caf\xe9\n"}, r"book/a\.md: byte 5 is not UTF-8"),
        ({"book/a.md": ["---\nx: [\n---\ny = 1"]}, r"book/a\.md: "),
        ({"book/a.md": b"---\nkernelspec:\n  name: python3\n---\n# A\n"}, r"book/a\.md: 'display_name' is a required"),
        ({"_toc.yml": b""}, r"_toc\.yml: not a table of contents"),
        ({"_toc.yml": b"root: [book"}, r"_toc\.yml: not a table of contents"),
        ({"_toc.yml": b"chapters: []"}, r"_toc\.yml: not a table of contents \('root'\)"),
        ({"_toc.yml": b"root: book/index\nchapters: [{file: book/gone}]"}, r"_toc\.yml: book/gone: there is no "),
        ({"_toc.yml": None}, r"_toc\.yml: cannot be read \(No such file"),
        ({"book/claims/gla.yml": b""}, r"book/claims/gla\.yml: not a ledger"),
        ({"book/claims/gla.yml": b"- {id: "}, r"book/claims/gla\.yml: not a ledger"),
        ({"book/claims/gla.yml": b"- just text"}, r"book/claims/gla\.yml: not a ledger"),
        (
            {"book/claims/gla.yml": b"- {id: gla.x, verdict: open, verdict: misprint}\n"},
            r"book/claims/gla\.yml: not a ledger \(line 1: 'verdict' stands there twice\)",
        ),
        ({"book/claims/gla.yml": b"\xff"}, r"book/claims/gla\.yml: byte 0 is not UTF-8"),
        (
            {"book/index.md": EXERCISE, "book/a.md": EXERCISE},
            r"book/a\.md: the exercise label 'one' is taken already, in book/index\.md",
        ),
    ],
)
def test_what_is_broken_is_named(tiny, capsys, files, says):
    """A source that cannot be built ends the build in one line with the file's name, before any chapter runs."""
    tiny.chapters(a=["x = 1"])
    for name, content in files.items():
        path = tiny.root / name
        if content is None:
            path.unlink()
        elif isinstance(content, list):
            path.write_text(tiny.chapter(content))
        else:
            path.write_bytes(content)
    assert build.main([]) == 1
    complained = capsys.readouterr().err
    assert complained.count("\n") == 1
    assert re.match(says, complained), complained
    assert not (tiny.root / "_build/runs").exists()


@pytest.mark.usefixtures("here")
def test_one_page_alone(tiny, monkeypatch, capsys):
    """`--page` runs and renders the chapter it names, and no other; a page that is not there is refused by name."""
    tiny.chapters(a=["x = 1"], b=["x = 2"])
    rendered = []
    monkeypatch.setattr(build, "render", lambda target, *, page=None: rendered.append(page) or True)
    for name in ("a", "book/a", "book/a.md"):
        assert build.main(["--page", name]) == 0
        assert f"Open {tiny.root}/_build/page/html/book/a.html" in capsys.readouterr().out
    assert rendered == ["book/a"] * 3
    assert [runs.cached(f"book/{name}") is not None for name in "ab"] == [True, False]
    assert build.main(["--page", "gone"]) == 1
    assert capsys.readouterr().err == "_toc.yml: it has no page 'book/gone'\n"


@pytest.mark.parametrize(("ends", "status"), [(0, 0), (1, 1), (ValueError("x"), 1), (KeyboardInterrupt(), 130)])
def test_a_site_that_was_not_finished_is_read_anew(tiny, monkeypatch, ends, status):
    """After a warning or a stop, Sphinx does not take pages for read: it would not warn of them again."""
    (tiny.root / "_config.yml").write_text("title: A book\n")
    trees = tiny.root / "_build/.doctrees"
    trees.mkdir(parents=True)
    asked = []

    def build_sphinx(source, target, **options):
        asked.append(options)
        return ends

    monkeypatch.setattr("jupyter_book.sphinx.build_sphinx", build_sphinx)
    assert build.main([]) == status
    assert trees.exists() == (status == 0)
    assert asked[0]["warningiserror"]
    assert asked[0]["confoverrides"]["nitpicky"]


def test_a_site_whose_build_was_killed_is_made_anew(tiny, monkeypatch, capsys):
    """Nothing that a killed build has read or written is built upon, once; a build that ended is.

    Planted: without its mark, a build that was killed after Sphinx had kept what it read left a warning that no later
    build gave again: green.
    """
    (tiny.root / "_config.yml").write_text("title: A book\n")
    site = tiny.root / "_build/html"
    seen = []

    def build_sphinx(source, target, **options):
        places = [Path(options["doctreedir"]), Path(target)]
        seen.append([place.is_dir() for place in places])
        for place in places:
            place.mkdir(parents=True, exist_ok=True)
        return 0

    def killed(source, target, **options):
        build_sphinx(source, target, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    if not (process := os.fork()):
        try:
            monkeypatch.setattr("jupyter_book.sphinx.build_sphinx", killed)
            build.render(site)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    monkeypatch.setattr("jupyter_book.sphinx.build_sphinx", build_sphinx)
    assert site.is_dir()
    assert [build.render(site) for _ in range(2)] == [True, True]
    assert capsys.readouterr().out.count("all of it is made anew") == 1
    assert build.render(site, whole=False)
    assert seen == [[False, False], [True, True], [False, False]]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "some/file"),
            "some/file: No space left on device. Free some",
        ),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), r"/\S+: No space left on device. Free some space, then run"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "a"), "a: Read-only file system. Make it writable, or copy"),
        (OSError(errno.EACCES, os.strerror(errno.EACCES), "a"), "a: Permission denied. Make it yours to write, or"),
        (OSError(errno.EFBIG, os.strerror(errno.EFBIG), "a"), "a: File too large. Allow larger files"),
        (MemoryError(), "No memory is left. Free some, then run the same command again"),
    ],
)
def test_what_the_system_refuses_is_told_with_what_to_do(tiny, capsys, fault, says):
    """A full disk, a folder that may only be read, no memory: a line with the path, the reason and the mend."""

    def work():
        raise fault

    assert build.guarded(work) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert re.match(says, said), said
    assert "what had finished is kept" in said


def test_the_full_folder_is_named(tiny, tmp_path, monkeypatch, capsys):
    """Where the system does not say what it could not write, the folder that is full is named, be it another's."""
    free = {str(tmp_path / "kit"): 0}
    monkeypatch.setattr(build.shutil, "disk_usage", lambda folder: types.SimpleNamespace(free=free.get(str(folder), 9)))
    (tmp_path / "kit").mkdir()

    def work():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert build.guarded(work, tmp_path / "kit") == 1
    assert capsys.readouterr().err.startswith(f"{tmp_path / 'kit'}: No space left on device")


def test_a_fault_of_the_code_keeps_its_trace(tiny):
    """An error that is nobody's disk is not made a sentence of."""

    def work():
        raise FileNotFoundError(errno.ENOENT, "gone")

    with pytest.raises(FileNotFoundError):
        build.guarded(work)


def test_a_second_build_waits_for_the_first(tmp_path, capsys):
    """It says so, and goes on when the first has ended; nobody waits for one that was killed."""
    order = []

    def second():
        with alone.within(tmp_path):
            order.append("second")

    waiting = threading.Thread(target=second)
    with alone.within(tmp_path):
        waiting.start()
        while "waits" not in (said := capsys.readouterr().out) and waiting.is_alive():
            time.sleep(0.01)
        order.append("first")
    waiting.join(60)
    assert order == ["first", "second"]
    assert str(tmp_path) in said
    if not (process := os.fork()):
        with alone.within(tmp_path):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(process, 0)
    with alone.within(tmp_path):
        assert capsys.readouterr().out == ""


@sees_processes
def test_ctrl_c_while_it_loads_leaves_no_trace():
    """What a build imports takes seconds to load; whoever stops it then need not read where that was."""
    command, pipe = [sys.executable, ROOT / "tools/build.py", "--help"], subprocess.PIPE
    with subprocess.Popen(command, cwd="/", stdout=pipe, stderr=pipe, preexec_fn=heeding) as process:
        caught = lambda: int(re.search(r"SigCgt:\s*(\w+)", status.read_text())[1], 16) >> signal.SIGINT - 1 & 1  # noqa: E731
        status = Path(f"/proc/{process.pid}/status")
        for state in (1, 0):  # Python's own way, then the system's
            while caught() != state:
                time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == -signal.SIGINT


def heeding():
    """Be stopped by Ctrl-C, as what a terminal starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("cell", "changed"),
    [
        ("recorded('other')", False),
        ("claim('gla.y')", False),
        ("name = 'r'\nrecorded(name)", True),
        ("tables = map(recorded, ['r'])", True),
        ("from icl_book.records import recorded as read\nread('r')", True),
        ("recorded(f'{1}r')", True),
        ("claim(f'gla.{1}')", True),
    ],
)
def test_what_is_read_by_a_variable_name_may_be_any(tiny, cell, changed):
    """A chapter whose cells do not write out which record or row they read depends on all of them."""
    tiny.chapters(a=[cell])
    text = chapters.source("book/a")
    before = keys.key(text)
    (tiny.root / "book/results/r.json").write_text("{}")
    (tiny.root / "book/claims/gla.yml").write_text("- {id: gla.x, verdict: misprint}\n")
    assert (keys.key(text) != before) == changed


def test_a_page_with_an_older_time_is_read_again(tiny, tmp_path):
    """Words count, and a chapter's run, not the times of files: a copy, or a clock that was set back, may be older."""
    tiny.chapters(a=["x = 1"], b=["x = 1"])
    env = types.SimpleNamespace(found_docs={"book/a", "book/b"}, doc2path=lambda name: tiny.root / f"{name}.md")
    outdated = lambda: book_site._follow_words(None, env, set(), set(), set())  # noqa: E731
    assert outdated() == outdated() == []
    path = tiny.root / "book/a.md"
    path.write_text(path.read_text() + "More.\n")
    os.utime(path, (0, 0))
    assert outdated() == ["book/a"]
    runs.store("book/b", runs.download("book/b"), "key", 1.0)
    assert outdated() == ["book/b"]
    assert outdated() == []
