"""The build as far as it is ours: what runs a chapter again, what ends a build by name, and that it can be stopped."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import book_site
import build
import chapters
import nbformat
import pytest
import runs

ROOT = Path(__file__).resolve().parents[2]
HEAD = "---\nkernelspec:\n  name: python3\n  display_name: Python 3\n---\n\n```{{code-cell}}\n{}\n```\n"


def printed(notebook):
    """What a notebook's cells printed."""
    return "".join(o.text for c in notebook.cells if c.cell_type == "code" for o in c.outputs)


def test_a_chapter_runs_once_as_what_it_is(tiny, capsys):
    """In an empty folder, at the profile quick; again when a cell has changed, and not for a word of its text."""
    tiny.chapters(a=["import os\nprint(os.listdir(), os.environ['ICL_PROFILE'])", "print(2 + 2)"])
    run = runs.run_stale(["book/a"])["book/a"]
    assert printed(run) == "[] quick\n4\n"
    assert "executed" in capsys.readouterr().out
    path = tiny.root / "book/a.md"
    path.write_text(path.read_text() + "More.\n")
    assert printed(runs.run_stale(["book/a"])["book/a"]) == printed(run)
    assert capsys.readouterr().out == ""
    path.write_text(path.read_text().replace("2 + 2", "2 + 3"))
    assert runs.cached("book/a") is None
    assert printed(runs.run_stale(["book/a"])["book/a"]) == "[] quick\n5\n"


def test_page_and_download_have_the_same_code(tiny):
    """The page finds its run by its code cells, and offers them in the notebook."""
    tiny.chapters(a=["x = 1\nx", "print(x)"])
    page, download = runs.as_page(chapters.source("book/a")), runs.download("book/a")
    one, other = ([c.source for c in n.cells if c.cell_type == "code"] for n in (page, download))
    assert one == other == ["x = 1\nx", "print(x)"]


def test_a_failing_cell_names_its_chapter(tiny, capsys):
    """A failing cell, and a kernel that dies, fail the build by the chapter's name; the others' runs are kept."""
    tiny.chapters(a=["print(1 / 0)"], b=["import os\nos.kill(os.getpid(), 9)"], c=["x = 1"])
    with pytest.raises(chapters.Broken, match=r"^book/\w\.md, book/\w\.md: a cell failed"):
        runs.run_stale(["book/a", "book/b", "book/c"])
    said = capsys.readouterr().out
    assert re.search(r"FAILED .* book/a\n(?s:.*)ZeroDivisionError", said)
    assert re.search(r"FAILED .* book/b\nThe kernel died", said)
    assert [runs.cached(f"book/{name}") is not None for name in "abc"] == [False, False, True]


STOPPED = """
import sys; sys.path[:0] = {path!r}
import pathlib, chapters, runs
chapters.ROOT = pathlib.Path({root!r})
sys.exit(chapters.run_command(lambda: len(runs.run_stale(["book/a", "book/b"]))))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_at_once(tiny, number):
    """Ctrl-C ends a build within seconds, and its kernels."""
    leaves = f"pathlib.Path({str(tiny.root)!r}, f'{{os.getpid()}}.pid').touch()"
    sleeps = f"import os, pathlib, time\n{leaves}\ntime.sleep(600)"
    tiny.chapters(a=[sleeps], b=[sleeps])
    command = [sys.executable, "-c", STOPPED.format(path=sys.path, root=str(tiny.root))]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: len(tiny.numbers()) == 2)
        os.killpg(process.pid, number)
        process.wait(60)
    until(lambda: not any(map(tiny.running, tiny.numbers())))
    assert process.returncode != 0


def until(true):
    """Wait for something, a minute at most."""
    limit = time.monotonic() + 60
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_a_run_depends_on_modules_claims_records_answers_and_lock(tiny, monkeypatch):
    """Each of them changes the key of the chapter that uses it; what others use does not."""
    uses = HEAD.format("claim('gla.x')\nrecorded('run')\ncheck(mine, 'ex', [{}])")
    other = uses.replace("gla.x", "gla.y").replace("'run'", "'walk'").replace("'ex'", "'other'")
    row = "- {{id: gla.x, verdict: {}}}\n- {{id: gla.y, verdict: open}}\n"
    (tiny.root / "book/answers").mkdir()

    def write(path, text):
        (tiny.root / path).write_text(text)
        return runs.inputs_digest(uses), runs.inputs_digest(other)

    found = [
        write("book/claims/a.yml", row.format("open")),
        write("book/claims/a.yml", row.format("misprint")),
        write("book/results/run.json", "1"),
        write("book/answers/ex.json", "[1]"),
        write("requirements.lock", "torch==2\n"),
    ]
    monkeypatch.setattr(runs.closure, "digest", lambda code: "another")
    found.append((runs.inputs_digest(uses), runs.inputs_digest(other)))
    assert len({mine for mine, _ in found}) == 6
    assert len({others for _, others in found}) == 3  # lock and modules are everybody's


def test_a_chapter_that_reads_the_leaderboard_depends_on_its_rows(tiny):
    """A row more changes the key of a chapter that reads them, and of no other."""
    texts = HEAD.format("leaderboard.read_rows(1)"), HEAD.format("leaderboard.board(1)")
    before = [runs.inputs_digest(text) for text in texts]
    (tiny.root / "book/results/leaderboard").mkdir()
    (tiny.root / "book/results/leaderboard/a.json").write_text("1")
    assert [runs.inputs_digest(text) != was for text, was in zip(texts, before, strict=True)] == [True, False]


@pytest.mark.parametrize(
    ("cell", "changed"),
    [
        ("recorded('other')", False),
        ("from icl_book.records import recorded\nrecorded('other')", False),
        ("name = 'r'\nrecorded(name)", True),
        ("tables = map(recorded, ['r'])", True),
        ("recorded(f'{1}r')", True),
        ("from icl_book.records import recorded as read\nread('r')", True),
        ("claim('gla.y')", False),
        ("claim(f'gla.{1}')", True),
    ],
)
def test_a_record_or_claim_that_is_not_named_may_be_any(tiny, cell, changed):
    """A chapter that does not write out which record or row it reads depends on all of them."""
    text = HEAD.format(cell)
    before = runs.inputs_digest(text)
    (tiny.root / "book/results/r.json").write_text("{}")
    (tiny.root / "book/claims/gla.yml").write_text("- {id: gla.x, verdict: misprint}\n")
    assert (runs.inputs_digest(text) != before) == changed


@pytest.mark.parametrize("damage", ["gone", "cut short"])
def test_a_damaged_run_is_run_again(tiny, damage):
    """A build that was killed as it stored a run leaves an entry without its notebook, or half of one."""
    tiny.chapters(a=["print(2 + 2)"])
    runs.run_stale(["book/a"])
    (path,) = runs.folder().glob("executed/*/base.ipynb")
    path.unlink() if damage == "gone" else path.write_text(path.read_text()[:-30])
    runs._loaded.cache_clear()
    assert runs.cached("book/a") is None
    assert printed(runs.run_stale(["book/a"])["book/a"]) == "4\n"


def test_kernels_share_no_ports():
    """Each listens in a folder of its own, which goes with it: of two that chose one port, one would die."""
    cell = "import ipykernel.kernelapp as k; print(k.IPKernelApp.instance().transport, k.IPKernelApp.instance().ip)"
    places = set()
    for _ in range(2):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
        done, _, error = runs.execute(notebook, runs.kernel_environment())
        transport, place = done.cells[0].outputs[0].text.split()
        assert (error, transport, Path(place).parent.exists()) == ("", "ipc", False)
        places.add(place)
    assert len(places) == 2


EXERCISE = b"# A page\n\n```{exercise-start} Title\n:class: dropdown\n:label: one\n```\n"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"book/a.md": ["x = 1", "x = = 1"]}, r"the cell at line 15 is not plain Python"),
        ({"book/a.md": ["%timeit 1"]}, r"the cell at line \d+ .* magics"),
        ({"book/a.md": ["import warnings"]}, r"the cell at line \d+ imports"),
        ({"book/a.md": ["from contextlib import redirect_stderr"]}, r".* imports redirect_stderr"),
        ({"book/a.md": ["import sys\nsys.stderr = open('x', 'w')"]}, r".* in place of sys\.stderr"),
        ({"book/a.md": ["x = 1", "exit()"]}, r"the cell at line 15 uses exit"),
        ({"book/a.md": ["import os\nos._exit(0)"]}, r".* uses _exit"),
        ({"book/a.md": ["raise SystemExit"]}, r".* uses SystemExit"),
        ({"book/a.md": ["---\nx: [\n---\ny = 1"]}, r""),
        ({"book/a.md": ["from urllib.request import urlopen"]}, r"the cell at line \d+ imports urllib"),
        ({"book/a.md": ["import subprocess"]}, r".* imports subprocess: a chapter needs no network"),
        ({"book/a.md": b"# A\n\n```{code-cell}\nx = 1\n```\n"}, r"it has cells and no kernelspec"),
        ({"book/a.md": ["charts.curves(x, y, x_title='', y_title='y', title='a')"]}, r"the figure 'a'"),
        ({"book/index.md": b"# A\n\n![](a.png)\n"}, r"the picture 'a.png' needs words"),
        ({"book/index.md": b"# A\n\n````{note}\nText.\n"}, r"the fence '````{note}' of line 3"),
        ({"book/index.md": b"# A\n\nBy (61) it is so.\n"}, r"this page does not show equation \(61\)"),
        ({"book/a.md": ["try:\n    1 / 0\nexcept Exception as e:\n    print(e)"]}, r".* catches Exception"),
        ({"book/a.md": ["try:\n    1 / 0\nexcept:\n    x = 2"]}, r".* catches everything"),
        ({"book/a.md": ["try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass"]}, r".* swallows ZeroDiv"),
        ({"book/a.md": b"# Caf\xe9\n"}, r"byte 5 is not UTF-8"),
        ({"_toc.yml": b""}, r"not a table of contents"),
        ({"_toc.yml": b"root: [book"}, r"not a table of contents"),
        ({"_toc.yml": b"chapters: []"}, r"not a table of contents \('root'\)"),
        ({"_toc.yml": b"root: book/index\nchapters: [{file: book/gone}]"}, r"book/gone: there is no "),
        ({"_toc.yml": None}, r"cannot be read \(No such file"),
        ({"book/claims/gla.yml": b""}, r"not a ledger"),
        ({"book/claims/gla.yml": b"- {id: "}, r"not a ledger"),
        ({"book/claims/gla.yml": b"\xff"}, r"byte 0 is not UTF-8"),
        ({"book/claims/gla.yml": b"- just text"}, r"not a ledger"),
        (
            {"book/index.md": EXERCISE, "book/a.md": EXERCISE},
            r"the exercise label 'one' is taken already, in book/index\.md",
        ),
    ],
)
def test_what_is_broken_is_named(tiny, files, says):
    """A source that cannot be built ends the build with the last file's name, before any chapter runs."""
    tiny.chapters(a=["x = 1"])
    for name, content in files.items():
        path = tiny.root / name
        if content is None:
            path.unlink()
        elif isinstance(content, list):
            path.write_text(tiny.chapter(content))
        else:
            path.write_bytes(content)
    with pytest.raises(chapters.Broken, match=f"^{re.escape(name)}: {says}"):
        book_site._run_chapters(None)
    assert not runs.folder().exists() or not any(runs.folder().glob("executed/*"))


@pytest.mark.parametrize(
    "changed", ["book/a.md", "book/claims/gla.yml", "lib/icl/new.py", "requirements.lock", "_toc.yml"]
)
def test_chapters_are_examined_only_if_something_changed(tiny, monkeypatch, changed):
    """Not by a second build; again after a change of anything they depend on, or for one page alone."""
    tiny.chapters(a=["x = 1"])
    examined = []
    monkeypatch.setattr(chapters, "examine", examined.append)
    for _ in range(2):
        book_site._run_chapters(None)
    assert len(examined) == 1
    path = tiny.root / changed
    path.write_text((path.read_text() if path.exists() else "") + "\n")
    for _ in range(2):
        book_site._run_chapters(None)
    assert len(examined) == 2
    monkeypatch.setenv("ICL_PAGE", "book/a")
    book_site._run_chapters(None)
    assert examined[2] == ["book/a"]


def test_pages_are_read_anew_after_a_build_that_did_not_end_well(tmp_path):
    """One that was cut short, failed or had warnings: Sphinx would not warn a second time of pages it has read."""
    for warnings, fault, again in ((0, None, False), (1, None, True), (0, ValueError("x"), True)):
        trees = tmp_path / ".doctrees"
        app = SimpleNamespace(outdir=tmp_path / "html", doctreedir=trees, _warncount=warnings)
        book_site._discard_unfinished(app, None)
        trees.mkdir()
        book_site._mark_finished(app, fault)
        book_site._discard_unfinished(app, None)
        assert trees.exists() != again
        book_site._mark_finished(SimpleNamespace(outdir=app.outdir, _warncount=0), None)
        if trees.exists():
            trees.rmdir()


def test_one_command_at_a_time(tmp_path, capsys):
    """A second one says that it waits, and begins when the first is done."""
    first, order = chapters.lock(tmp_path), []
    second = threading.Thread(target=lambda: chapters.run_command(lambda: order.append("second") or 0, tmp_path))
    second.start()
    until(lambda: "waits" in capsys.readouterr().out)
    order.append("first")
    first.release()
    second.join(60)
    assert order == ["first", "second"]


def alone(folder, added=""):
    """Run the command of `make page` on a page of the book without cells, with a text added to its source."""
    script = f"import pathlib, build, chapters; chapters.built = lambda: pathlib.Path({str(folder)!r})"
    if added:
        script += f"""
import sphinx.application as sphinx
made = sphinx.Sphinx.__init__
def init(app, *args, **named):
    made(app, *args, **named)
    app.connect("source-read", lambda _, doc, text: doc.endswith("how-to-run") and text.append(text.pop() + {added!r}))
sphinx.Sphinx.__init__ = init"""
    command = f"import sys; sys.path[:0] = {sys.path!r}\n{script}\nsys.exit(build.main(['--page', 'start/how-to-run']))"
    return subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)


def test_a_page_is_built_alone(tmp_path):
    """It complains of nothing, though its links lead to pages that are not built."""
    done = alone(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "<h1>" in (tmp_path / "page/html/book/start/how-to-run.html").read_text(encoding="utf-8")


def test_a_page_alone_is_refused_for_links_to_nothing(tmp_path):
    """As in the whole book: a missing citation, label or page. A label of another page, which is there, is excused."""
    links = "{cite}`nobody1999` [a](#no-label) {ref}`no-target` [b](../no/page.md) [c](#moves-per-token)"
    done = alone(tmp_path, f"\n\n{links}")
    assert done.returncode == 1
    for missing in ("nobody1999", "no-label", "no-target", "../no/page.md"):
        assert missing in done.stderr
    assert "moves-per-token" not in done.stderr


def test_a_page_that_is_not_there_is_refused_by_name(tiny, capsys):
    """`make page PAGE=gone`."""
    tiny.chapters(a=["x = 1"])
    assert build.main(["--page", "gone"]) == 1
    assert capsys.readouterr().err == "_toc.yml: it has no page 'book/gone'\n"


def test_records_are_made_where_they_are_missing_or_stale(tiny, monkeypatch):
    """A chapter runs at the profile paper, in its own folder; one whose records are current does not, unless asked."""
    cell = (
        "import os, pathlib\npathlib.Path('made').write_text(os.environ['ICL_PROFILE'])\n# record({0}), recorded({0})"
    )
    tiny.chapters(a=[cell.format("'old'")], b=["x = 1"])
    made = tiny.root / "book/made"
    monkeypatch.setattr(build, "_stale", lambda name: False)
    assert build.main(["--records"]) == 0
    assert not made.exists()
    for stale, options in ((True, ["--records"]), (False, ["--records", "--all"])):
        monkeypatch.setattr(build, "_stale", lambda name, stale=stale: stale)
        assert build.main(options) == 0
        assert made.read_text() == "paper"
        made.unlink()


@pytest.mark.parametrize(
    ("command", "current", "stale"),
    [("make paper", False, True), ("make paper", True, False), ("python benchmarks/run.py --record", False, False)],
)
def test_a_record_of_a_benchmark_is_not_made_by_make_paper(monkeypatch, command, current, stale):
    """A chapter would run for hours at each call for a record that it does not make; a missing one is to be made."""
    record = SimpleNamespace(provenance={"command": command}, current=current)
    monkeypatch.setattr(build.records, "recorded", lambda name: record)
    assert build._stale("a") == stale
    monkeypatch.undo()
    assert build._stale("no-such-record")
