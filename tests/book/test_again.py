"""Downloads run again: a chapter that differs from its page is named, and every chapter gets its turn."""

import again
import build
import chapters
import nbformat
import pytest
import runs


@pytest.fixture
def site(tiny):
    """A built book of two chapters, its pages reduced to the charts and its downloads as they are offered."""
    chart = 'from IPython.display import HTML\nHTML(\'<script type="application/json">{"mark": 1}</script>\')'
    tiny.chapters(a=["print(2 + 2)", chart], b=["print(object())"])
    build.run(["book/a", "book/b"])
    for page in ("book/a", "book/b"):
        html = tiny.root / "_build/html" / f"{page}.html"
        html.parent.mkdir(parents=True, exist_ok=True)
        charts = runs.charts(runs.cached(page))
        html.write_text("".join(f'<script type="application/json">{chart}</script>' for chart in charts))
        offered = tiny.root / "_build/html/_sources" / f"{page}.ipynb"
        offered.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(runs.download(page), offered)
    return tiny.root / "_build/html"


def test_downloads_equal_their_pages(site, capsys):
    """Two runs put out the same; where an object lies in memory does not count. It says which chapters it ran."""
    assert again.main([]) == 0
    said = capsys.readouterr().out
    assert "Downloads, run again: book/" in said
    assert "book/a" in said
    assert "book/b" in said


PLANTED = {
    "other cells": (lambda html: html / "_sources/book/a.ipynb", "print(2 + 2)", "print(4)", "other cells"),
    "a chart of another run": (lambda html: html / "book/a.html", '"mark": 1', '"mark": 2', "The charts"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_download_that_differs_from_its_page_is_named(site, capsys, fault):
    """Another cell in the file that is offered, or another chart on the page."""
    place, old, new, says = PLANTED[fault]
    path = place(site)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert again.main(["--all"]) == 1
    said = capsys.readouterr().out
    assert "FAILED" in said.split("book/a")[-2]
    assert says in said


@pytest.mark.parametrize(
    "cell",
    [
        "import random\nprint(random.random())",
        "import random\nrandom.random()",
        "import random\nfrom IPython.display import HTML\n"
        "HTML(f'<script type=\"application/json\">{random.random()}</script>')",
    ],
)
def test_an_unseeded_draw_is_named(site, tiny, capsys, cell):
    """A number that no seed fixes, printed, returned or drawn in a chart, shows as a difference of the two runs."""
    tiny.chapters(a=["x = 1", cell])
    run = build.run(["book/a"])["book/a"]
    charts = "".join(f'<script type="application/json">{chart}</script>' for chart in runs.charts(run))
    (site / "book/a.html").write_text(charts)
    nbformat.write(runs.download("book/a"), site / "_sources/book/a.ipynb")
    assert again.main(["--all"]) == 1
    assert "Code cell 2 put out" in capsys.readouterr().out


def test_what_is_not_built_is_named(site, tiny, capsys):
    """A page that is not of the chapter as it is now, and a download that is not there."""
    path = tiny.root / "book/a.md"
    path.write_text(path.read_text().replace("2 + 2", "2 + 3"))
    assert again.main(["--all"]) == 1
    assert "The page is not of the chapter as it is now" in capsys.readouterr().out
    (site / "_sources/book/b.ipynb").unlink()
    assert again.main([]) == 1
    assert "book/b.md: its download is not built" in capsys.readouterr().err


def test_every_chapter_gets_its_turn():
    """The commit decides, the same chapters for the same commit; two hundred commits draw all of them."""
    pages = chapters.with_cells()
    drawn = [tuple(again.sample(pages, f"{commit:040x}")) for commit in range(200)]
    assert drawn[7] == tuple(again.sample(pages, f"{7:040x}"))
    assert all(len(set(pair)) == 2 for pair in drawn)
    assert {page for pair in drawn for page in pair} == set(pages)
