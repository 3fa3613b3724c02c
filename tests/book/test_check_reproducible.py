"""Downloads run again: a chapter that differs from its page is named, and every chapter gets its turn."""

import contextlib
import re
import shutil

import chapters
import check_reproducible
import nbformat
import notebooks
import pytest
import runs

CHART = """from IPython.display import HTML
HTML('<script type="application/json">{"mark": 1}</script>')"""


def lay(root, page):
    """A chapter's downloads, in the built site."""
    for name in notebooks.files(page):
        offered = root / "_sources" / f"{name}.ipynb"
        offered.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(runs.offer(page, "Cited so.", solutions=name != page), offered)


@pytest.fixture(autouse=True)
def no_wheel(monkeypatch):
    """The little chapters import nothing of the package, and to build it takes seconds."""
    monkeypatch.setattr(runs, "unpacked_wheel", lambda: contextlib.nullcontext(chapters.ROOT / "lib"))


@pytest.fixture(scope="module")
def built(laid_out, tmp_path_factory):
    """A book of two chapters, built once."""
    with pytest.MonkeyPatch.context() as patch:
        tiny = laid_out(tmp_path_factory.mktemp("built"), patch)
        tiny.chapters(a=["print(2 + 2)", CHART, "2 + 2"], b=["print(object())", CHART])
        runs.run_stale(["book/a", "book/b"])
        for page in ("book/a", "book/b"):
            lay(tiny.root / "_build/html", page)
    return tiny.root


@pytest.fixture
def site(tiny, built):
    """A built book of two chapters, this test's own."""
    shutil.copytree(built, tiny.root, dirs_exist_ok=True)
    return tiny.root / "_build/html"


def test_downloads_equal_their_pages(site, capsys):
    """Two runs put out the same; where an object lies in memory does not count."""
    assert check_reproducible.main([]) == 0
    assert capsys.readouterr().out.count("executed") == 2


def test_a_download_with_other_cells_is_named(site, capsys, monkeypatch):
    """The file that is offered is not the chapter's."""
    monkeypatch.setattr(chapters, "with_cells", lambda: ["book/a"])
    path = site / "_sources/book/a.ipynb"
    path.write_text(path.read_text().replace("print(2 + 2)", "print(4)"))
    assert check_reproducible.main(["--all"]) == 1
    assert re.search(r"book/a: The download has other cells than the page", capsys.readouterr().out)


def test_an_unseeded_draw_is_named(tiny, capsys):
    """A number that no seed fixes, printed, returned or drawn in a chart, shows as a difference of the two runs."""
    draws = {
        "printed": "import random\nprint(random.random())",
        "returned": "import random\nrandom.random()",
        "drawn": CHART.replace("HTML('", "import random\nHTML(f'").replace('{"mark": 1}', "{random.random()}"),
    }
    tiny.chapters(**{name: [CHART, cell] for name, cell in draws.items()})
    pages = [f"book/{name}" for name in draws]
    runs.run_stale(pages)
    for page in pages:
        lay(tiny.root / "_build/html", page)
    assert check_reproducible.main(["--all"]) == 1
    said = capsys.readouterr().out
    for page in pages:
        assert re.search(rf"{page}: Code cell 2 put out", said), page


def test_both_downloads_are_run(tiny, capsys):
    """The one without solutions is compared with the rest of its page; a cell that needs a solution's name fails."""
    solution = "```{{solution-start}} ex-a\n```\n```{{code-cell}}\n{}\n```\n```{{solution-end}}\n```\n"
    for name, cell, wrong in (("a", "print(3)", []), ("b", "x = 3", ["book/b"])):
        tiny.chapters(**{name: [CHART]})
        path = tiny.root / f"book/{name}.md"
        path.write_text(
            f"{path.read_text()}\n{solution.format(cell)}\n```{{code-cell}}\n{'x' * bool(wrong) or 4}\n```\n"
        )
        runs.run_stale([f"book/{name}"])
        lay(tiny.root / "_build/html", f"book/{name}")
        capsys.readouterr()
        assert check_reproducible.main(["--all"]) == bool(wrong)
        said = capsys.readouterr().out
        assert re.findall(r"FAILED +\S+ s +(\S+)", said) == wrong
        assert len(re.findall(rf"s  book/{name}(?:-solutions)?$", said, re.M)) == 2


def test_what_is_not_built_is_named(site, tiny, capsys):
    """A chapter that changed since it was built, and a download that is not there."""
    path = tiny.root / "book/a.md"
    text = path.read_text()
    path.write_text(text.replace("2 + 2", "2 + 3"))
    assert check_reproducible.main([]) == 1
    assert "book/a: It was not run as it is now" in capsys.readouterr().out
    path.write_text(text)
    (site / "_sources/book/b.ipynb").unlink()
    assert check_reproducible.main([]) == 1
    assert "book/b.md: its download is not built" in capsys.readouterr().err


def test_every_chapter_gets_its_turn():
    """The commit decides, the same chapters for the same commit; two hundred commits draw all of them."""
    pages = chapters.with_cells()
    drawn = [tuple(check_reproducible.sample(pages, f"{commit:040x}")) for commit in range(200)]
    assert drawn[7] == tuple(check_reproducible.sample(pages, f"{7:040x}"))
    assert all(len(set(pair)) == 2 for pair in drawn)
    assert {page for pair in drawn for page in pair} == set(pages)
