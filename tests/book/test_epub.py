"""The e-book of a site of two pages: what it has of them, what it leaves out, and what is refused."""

import zipfile
from xml.etree import ElementTree

import chapters
import epub
import pdf
import pytest
from bs4 import BeautifulSoup

PARTS = [pdf.Part("", ("book/index",)), pdf.Part("One", ("book/one/first",))]
INDEX = """<h1>A book</h1><p>See <a href="one/first.html#ex-a">an exercise</a>, <a href="one/first.html">all of it</a>
and <a href="reference/library.html">what is left out</a>.</p>
<figure class="icl-chart"><img alt="A line." width="9" height="9" loading="lazy" src="../_images/a.svg"/>
<script type="application/json">{}</script></figure>"""
FIRST = r"""<section id="first"><h1>First<a class="headerlink" href="#first">#</a></h1>
<p>Let <span class="math">\(x &lt; 1\)</span>.</p>
<div class="math" id="equation-a"><span class="eqno">(1)</span>\[y\]</div>
<figure class="icl-chart"><img alt="The same line." src="../../_images/a.svg"/><button>Picture</button></figure>
<div class="exercise admonition" id="ex-a"><p class="admonition-title">Exercise 1 (A name)</p><p>Do it.</p></div>
<details class="sd-dropdown"><summary>Hint</summary><p>Think.</p></details>
<div class="solution admonition" id="book/one/first-solution-1"><p class="admonition-title">Solution to
<a href="#ex-a">Exercise 1 (A name)</a></p><p>Done: <span class="math">\(x &lt; 1\)</span>.</p></div>
<details class="sd-dropdown"><summary>A derivation</summary><p>So.</p></details>
<h2>Going further</h2><p><a href="https://example.org/">Elsewhere</a></p></section>"""
MATH = '<math xmlns="http://www.w3.org/1998/Math/MathML">{}</math>'


class StandIn:
    """Converts what is simple enough to need no browser."""

    def mathml(self, formulas):
        return [epub.core_mathml(MATH.format("<mi>x</mi>"), tex) for tex, _ in formulas]

    def xhtml(self, text):
        return text.replace("<html ", '<html xmlns="http://www.w3.org/1999/xhtml" ').replace('.css">', '.css"/>')

    def picture(self, text):
        return text.encode()


@pytest.fixture
def site(tmp_path):
    for name, body in (("index", INDEX), ("one/first", FIRST)):
        path = tmp_path / f"html/book/{name}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'<html><body><article class="bd-article">{body}</article></body></html>')
    (tmp_path / "html/_images").mkdir()
    (tmp_path / "html/_images/a.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    return tmp_path / "html"


@pytest.fixture
def files(site):
    return epub.bind(PARTS, site, lambda documents: StandIn())


def page(files, name):
    return BeautifulSoup(files[f"{name}.xhtml"], "html.parser")


def test_formulas_are_mathml(files):
    """All of them, with their TeX as description, beside the number of an equation; the same one is converted once."""
    first = page(files, "one-first")
    assert [formula["alttext"] for formula in first.find_all("math")] == ["x < 1", "y", "x < 1"]
    assert first.select_one("div.math").get_text() == "x(1)"
    assert "\\(" not in first.get_text()


def test_pictures_are_still(files):
    """A picture of two pages is kept once; nothing of what moves or draws it is left."""
    pictures = [name for name in files if name.startswith("pictures/")]
    assert len(pictures) == 1
    for name in ("index", "one-first"):
        assert page(files, name).img["src"] == pictures[0]
        assert not page(files, name).select("script, button, [loading], a.headerlink")


def test_answers_stand_last(files):
    """Hint and solution follow the text in the order of their exercises, linked both ways; a derivation stays."""
    first = page(files, "one-first")
    *_, text, last = first.find_all("h2")
    assert (text.get_text(), last.get_text()) == ("Going further", "Hints and solutions")
    assert [block.p.get_text(" ", strip=True) for block in last.find_next_siblings("div")] == [
        "Hint for Exercise 1 (A name)",
        "Solution to Exercise 1 (A name)",
    ]
    exercise = first.select_one("div.exercise")
    assert exercise.get_text().endswith("Do it.Hint · Solution")
    for link, block in zip(exercise.select(".answers a"), last.find_next_siblings("div"), strict=True):
        assert link["href"] == f"one-first.xhtml#{block['id']}"
        assert block.a["href"] == f"one-first.xhtml#{exercise['id']}"
    assert first.select_one(".print-fold").get_text() == "A derivationSo."


def test_links_lead_to_files(files):
    """To a page, to a place on it, to the web; what is left out becomes words."""
    index = page(files, "index")
    exercise = page(files, "one-first").select_one("div.exercise")["id"]
    assert [link["href"] for link in index.select("a")] == [f"one-first.xhtml#{exercise}", "one-first.xhtml#one-first"]
    assert "what is left out" in index.get_text()
    assert page(files, "one-first").select("a")[-3]["href"] == "https://example.org/"


def test_the_package_lists_all(files, tmp_path):
    """Every file once, with what it holds; read from the title on; and the first entry of the archive is its kind."""
    name = {"o": "http://www.idpf.org/2007/opf", "dc": "http://purl.org/dc/elements/1.1/"}
    told = ElementTree.fromstring(files["content.opf"])
    items = {item.get("href"): item for item in told.iterfind(".//o:item", name)}
    assert set(items) == set(files) - {"content.opf"}
    assert items["one-first.xhtml"].get("properties") == "mathml"
    assert [items[f"{page}.xhtml"].get("id") for page in ("title", "nav", "index", "one-first")] == [
        item.get("idref") for item in told.iterfind(".//o:itemref", name)
    ]
    assert told.findtext(".//dc:language", "", name) == "en"
    assert told.findtext(".//dc:creator", "", name)
    assert epub.LICENCE in told.findtext(".//dc:rights", "", name)
    menu = page(files, "nav").ol
    assert [link["href"] for link in menu.select("a")] == ["index.xhtml", "one-first.xhtml"]
    assert menu.span.get_text() == "One"
    epub.write(tmp_path / "a.epub", files)
    first, *others = zipfile.ZipFile(tmp_path / "a.epub").infolist()
    assert (first.filename, first.compress_type, first.extra) == ("mimetype", zipfile.ZIP_STORED, b"")
    assert {entry.filename for entry in others} == {"META-INF/container.xml", *(f"OEBPS/{each}" for each in files)}


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        ("<p>", "is not XML"),
        ("<script/>", "has a script that needs a script"),
        ('<p onclick="f()"/>', "has a p that needs a script"),
        ('<img src="gone.svg" alt="A line."/>', "has a picture that is not there"),
        ('<a href="gone.xhtml">a</a>', "links to gone.xhtml, which is not there"),
        ('<a href="one-first.xhtml#gone">a</a>', "links to one-first.xhtml#gone, which is not there"),
        ('<p id="index"/>', "has two #index"),
        ('<link href="https://example.org/a.css"/>', "links to https://example.org/a.css"),
    ],
)
def test_what_readers_do_not_take_is_found(files, planted, told):
    """Before the e-book is written."""
    assert epub.faults(files) == []
    files["index.xhtml"] = files["index.xhtml"].replace(b"</section>", planted.encode() + b"</section>")
    (fault,) = epub.faults(files)
    assert fault.startswith("index.xhtml ")
    assert told in fault


def test_what_cannot_be_bound_is_refused(site):
    """A solution without exercise, a formula without marks, and one that MathJax cannot read, by name."""
    path = site / "book/one/first.html"
    text = path.read_text()
    for old, new, told in (
        ('class="exercise admonition"', 'class="admonition"', "Hint Think.: it stands before any exercise"),
        (r"\[y\]", "y", "y: it should be a formula"),
    ):
        path.write_text(text.replace(old, new))
        with pytest.raises(chapters.Broken, match=told):
            epub.bind(PARTS, site, lambda documents: StandIn())
    with pytest.raises(chapters.Broken, match=r"cannot read \\wrong"):
        epub.core_mathml(MATH.format("<merror><mtext>no</mtext></merror>"), "\\wrong")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('<mi mathvariant="bold">w</mi>', "𝐰"),
        ('<mi mathvariant="bold">Λ</mi>', "𝚲"),
        ('<mi mathvariant="bold">ϵ</mi>', "𝛜"),
        ('<mn mathvariant="bold">10</mn>', "𝟏𝟎"),
        ('<mi mathvariant="double-struck">R</mi>', "ℝ"),
        ('<mi mathvariant="double-struck">E</mi>', "𝔼"),
        ('<mi mathvariant="script">L</mi>', "ℒ"),
        ('<mi mathvariant="script">N</mi>', "𝒩"),
        ('<mi mathvariant="normal">d</mi>', "d"),
    ],
)
def test_letters_have_their_style(written, read):
    """As characters: browsers know no style of a letter in MathML but the upright one."""
    formula = ElementTree.fromstring(epub.core_mathml(MATH.format(written), "x"))
    assert "".join(formula.itertext()) == read
    assert formula[0].get("mathvariant", "normal") == "normal"


def test_columns_and_tags_of_an_equation():
    """A tag is a last column, and columns are aligned by CSS: browsers know neither in MathML."""
    cells = "".join(f"<mtd><mi>{letter}</mi></mtd>" for letter in "lab")
    table = f'<mtable columnalign="right left" columnspacing="0em"><mlabeledtr>{cells}</mlabeledtr></mtable>'
    formula = ElementTree.fromstring(epub.core_mathml(MATH.format(table), "x"))
    assert "".join(formula.itertext()) == "abl"
    assert [cell.get("style").partition(";")[0] for cell in formula[0][0]] == [
        f"text-align: {side}" for side in ("right", "left", "left")
    ]
