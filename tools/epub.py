"""Bind the built site as an e-book: dist/learning-to-adapt.epub, EPUB 3 with formulas in MathML and without scripts.

    python tools/epub.py                 the whole book (`make book` first)
    python tools/epub.py --to my.epub    elsewhere

It has the pages of the PDF, a file each; hints and solutions stand at the end of their chapter. In Chromium, MathJax
turns the formulas into MathML, and HTML becomes XHTML. Nothing is asked of any network.
"""

import argparse
import base64
import hashlib
import html
import json
import posixpath
import re
import sys
import unicodedata
import uuid
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

from bs4 import BeautifulSoup, Tag
from playwright.sync_api import Browser, Error
from pygments.formatters import HtmlFormatter

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))

import chapters
import chromium
import dates
import descriptions
import pdf

LICENCE = "https://creativecommons.org/licenses/by/4.0/"
KINDS = {".svg": "image/svg+xml", ".png": "image/png", ".xhtml": "application/xhtml+xml", ".css": "text/css"}
_MATHML = "http://www.w3.org/1998/Math/MathML"
_FORMULA = re.compile(r"\s*(?:\\\((?P<inline>.*)\\\)|\\\[(?P<display>.*)\\\])\s*", re.S)
_MARK = "\ue000{}\ue001"  # holds a formula's place while its page becomes XHTML
_MARKS = re.compile("\ue000(\\d+)\ue001")
#: Formulas (TeX, displayed or not) as MathML.
_TO_MATHML = """async formulas => {
    await MathJax.startup.promise;
    const made = [];
    for (const [tex, display] of formulas) made.push(await MathJax.tex2mmlPromise(tex, {display}));
    return made;
}"""
#: Widths of formulas in MathML, in their letters' height.
_WIDTHS = """formulas => {
    document.body.innerHTML = formulas.map(formula => `<div style="width: max-content">${formula}</div>`).join("");
    return [...document.body.children].map(box => box.offsetWidth / 16);
}"""
PHONE = 21  # width of a phone's page in its letters' height
_TO_XHTML = 'text => new XMLSerializer().serializeToString(new DOMParser().parseFromString(text, "text/html"))'

#: Elements that do nothing without a script, or bring something from elsewhere.
_MOVING = {"script", "button", "input", "select", "form", "iframe", "object", "embed", "audio", "video"}
Files = dict[str, bytes]

ElementTree.register_namespace("", _MATHML)


def answers_last(document: BeautifulSoup, body: Tag) -> Tag:
    """Take hints and solutions out of a chapter, linked from their exercises; return them as a section for its end.

    Broken if one stands before any exercise.
    """
    section = document.new_tag("section")
    heading = document.new_tag("h2", string="Hints and solutions")
    section.append(heading)
    exercise = links = None
    for number, block in enumerate(body.select("div.exercise, div.solution, details.sd-dropdown")):
        if "exercise" in block["class"]:
            exercise, links = block, None
            continue
        hint = block.name == "details"
        if hint and not block.summary.get_text(strip=True).startswith("Hint"):
            continue
        if exercise is None:
            raise chapters.Broken(f"{block.get_text(' ', strip=True)[:60]}: it stands before any exercise")
        block.extract()
        block["id"] = f"answer-{number}"
        if hint:
            block.name = "div"
            title = document.new_tag("p", attrs={"class": "admonition-title"}, string="Hint for ")
            title.append(document.new_tag("a", href=f"#{exercise['id']}", string=_words(exercise.p)))
            block.summary.replace_with(title)
        block["class"] = ["admonition"]
        section.append(block)
        if links is None:
            links = document.new_tag("p", attrs={"class": "answers"})
            exercise.append(links)
        else:
            links.append(" · ")
        links.append(document.new_tag("a", href=f"#{block['id']}", string="Hint" if hint else "Solution"))
    return section


def _words(tag: Tag) -> str:
    return " ".join(tag.get_text().split())


def prepare(document: BeautifulSoup, body: Tag) -> None:
    """Leave of an article what a reader without scripts can show; hints and solutions last."""
    for script in body.find_all("script"):  # the charts' specifications
        script.decompose()
    last = answers_last(document, body)
    pdf.strip(document, body)
    if len(last.contents) > 1:
        pdf.strip(document, last)
        (body.section or body).append(last)


def place_formulas(body: Tag, formulas: dict[tuple[str, bool], int]) -> None:
    """Put a mark in place of each formula, and number those that are new."""
    for place in body.select(".math"):
        number = place.select_one(".eqno")
        if number is not None:
            number.extract()
        if not (match := _FORMULA.fullmatch(place.get_text())):
            raise chapters.Broken(f"{_words(place)[:60]}: it should be a formula, and has no marks around it")
        display = match["display"] is not None
        tex = " ".join((match["display"] if display else match["inline"]).split())
        mark = _MARK.format(formulas.setdefault((tex, display), len(formulas)))
        if place.name == "div":
            place.string = mark
            if number is not None:
                place.append(number)
        else:
            place.replace_with(mark)


def place_pictures(body: Tag, page: str, site: Path) -> dict[str, bytes]:
    """Have a page show pictures of the e-book's own, each kept once; return them by name."""
    pictures = dict[str, bytes]()
    for picture in body.find_all("img"):
        path = site / posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(picture["src"])))
        data = pdf.built_file(path).read_bytes()
        name = f"pictures/{hashlib.sha256(data).hexdigest()[:16]}{path.suffix}"
        pictures[name] = data
        picture["src"] = name
        for attribute in ("loading", "width", "height"):  # a picture has its size, and a page its width
            del picture[attribute]
    return pictures


def core_mathml(mathml: str, tex: str) -> str:
    """MathJax's MathML as readers take it: letters as characters of their own, columns by CSS, tags in a last column.

    MathML Core, which browsers implement, knows no `mathvariant` but `normal`, no `columnalign`, and no `mlabeledtr`.
    """
    root = ElementTree.fromstring(mathml)
    if root.find(f".//{{{_MATHML}}}merror") is not None:
        raise chapters.Broken(f"MathJax cannot read {tex[:80]}")
    for node in root.iter():
        for name in [name for name in node.attrib if name.startswith("data-")]:
            del node.attrib[name]
        variant = node.get("mathvariant", "normal")
        if variant != "normal" and node.text and all(styled := [_styled(letter, variant) for letter in node.text]):
            node.text = "".join(styled)
            del node.attrib["mathvariant"]
    for row in list(root.iter(f"{{{_MATHML}}}mlabeledtr")):
        row.tag, row[:] = f"{{{_MATHML}}}mtr", [*row[1:], row[0]]
    for table in root.iter(f"{{{_MATHML}}}mtable"):
        _align(table)
    root.set("alttext", tex)
    return ElementTree.tostring(root, encoding="unicode")


def _align(table: ElementTree.Element) -> None:
    """Align a table's columns, and space them, by CSS."""
    sides = table.attrib.pop("columnalign", "center").split()
    gaps = [float(gap.removesuffix("em")) for gap in table.attrib.pop("columnspacing", "0.8em").split()]
    nth: Callable[[Sequence, int], object] = lambda listed, n: listed[min(n, len(listed) - 1)]  # noqa: E731
    for row in table:
        for n, cell in enumerate(row):
            left, right = (nth(gaps, n - 1) if n else 0), (nth(gaps, n) if n + 1 < len(row) else 0)
            cell.set("style", f"text-align: {nth(sides, n)}; padding: 0.5ex {right / 2:g}em 0.5ex {left / 2:g}em")


def _styled(letter: str, variant: str) -> str:
    """The mathematical character for a letter in a style such as `bold`; empty if Unicode has none."""
    style = variant.upper().replace("BOLD-", "BOLD ")
    name = re.sub(r"^(LATIN|GREEK) | LETTER|LUNATE ", "", unicodedata.name(letter, ""))
    for full_name in (f"MATHEMATICAL {style} {name}", f"{style} {name}"):
        try:
            return unicodedata.lookup(full_name)
        except KeyError:
            continue
    return ""


def as_html(page: str, title: str, body: Tag) -> str:
    """A page as HTML; its own style sheets go to its head, without those that say what the book's says."""
    for tag in body.select("table, tr, th, td"):
        for attribute in ("border", "halign", "valign"):  # of HTML that is no more
            del tag[attribute]
    for drawing in body.find_all("svg"):
        del drawing["role"]
        for link in drawing.find_all("a"):
            link.insert(0, BeautifulSoup(f"<title>{html.escape(_words(link))}</title>", "html.parser"))
    styles = [style.extract().get_text() for style in body.find_all("style")]
    sheets = "".join(f"<style>{style}</style>" for style in dict.fromkeys(styles) if "#" in style)
    return (
        f'<!DOCTYPE html><html lang="en" xml:lang="en"><head><title>{html.escape(title)}</title>'
        f'<link rel="stylesheet" type="text/css" href="book.css">{sheets}</head>'
        f'<body><section id="{pdf.key(page)}">{body.decode_contents()}</section></body></html>'
    )


class Converter:
    """MathJax of the site, with the site's settings, in a tab of Chromium."""

    def __init__(self, browser: Browser, site: Path, documents: Sequence[BeautifulSoup]) -> None:
        """Open a page that has nothing but MathJax.

        Args:
            browser: Chromium.
            site: folder of the built site.
            documents: pages of the site, for MathJax's settings.
        """
        script = pdf.built_file(site / "_static" / "mathjax" / "tex-chtml.js")
        settings = pdf.mathjax(documents) | {"startup": {"typeset": False}}
        page = site.parent / "pdf" / "mathjax.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(
            f'<!DOCTYPE html><meta charset="utf-8"><script>window.MathJax = {json.dumps(settings)}</script>'
            f'<script src="{script.as_uri()}"></script>',
            encoding="utf-8",
        )
        self.tab = browser.new_page(viewport={"width": 800, "height": 1200}, color_scheme="light")
        self.tab.set_default_timeout(600_000)
        self.tab.goto(page.as_uri())

    def mathml(self, formulas: Iterable[tuple[str, bool]]) -> list[str]:
        """Formulas, each as TeX and whether it is displayed, in MathML; Broken if MathJax cannot read one.

        One that is wider than a phone has a class that says which part of its size fits, in tenths.
        """
        listed = list(formulas)
        markup = self.tab.evaluate(_TO_MATHML, listed)
        markup = [core_mathml(text, tex) for text, (tex, _) in zip(markup, listed, strict=True)]
        tenths = [max(5, int(10 * PHONE / max(width, 1))) for width in self.tab.evaluate(_WIDTHS, markup)]
        return [
            text.replace("<math ", f'<math class="fit-{part}" ', 1) if part < 10 else text
            for text, part in zip(markup, tenths, strict=True)
        ]

    def xhtml(self, text: str) -> str:
        """A page of HTML as XHTML."""
        return '<?xml version="1.0" encoding="UTF-8"?>\n' + self.tab.evaluate(_TO_XHTML, text)

    def picture(self, text: str) -> bytes:
        """A page of HTML as it looks, in PNG."""
        self.tab.set_content(text, wait_until="load")
        return self.tab.screenshot()


def bind(parts: Sequence[pdf.Part], site: Path, open_converter: Callable[[Sequence[BeautifulSoup]], Any]) -> Files:
    """All files of the e-book by their names; Broken if one of them is not as e-readers take it."""
    documents = {page: pdf.article(site, page) for part in parts for page in part.pages}
    formulas, files = dict[tuple[str, bool], int](), dict[str, bytes]()
    for document, body in documents.values():
        prepare(document, body)
    bodies = {page: body for page, (_, body) in documents.items()}
    pdf.connect(bodies, lambda page: f"{pdf.key(page)}.xhtml")
    titles = {page: _words(body.h1) for page, body in bodies.items()}
    for page, body in bodies.items():
        place_formulas(body, formulas)
        files |= place_pictures(body, page, site)
    converter = open_converter([document for document, _ in documents.values()])
    mathml = converter.mathml(formulas)
    for page, body in bodies.items():
        text = converter.xhtml(as_html(page, titles[page], body))
        files[f"{pdf.key(page)}.xhtml"] = _MARKS.sub(lambda mark: mathml[int(mark[1])], text).encode()
    front = title_page()
    css = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    files["title.xhtml"] = converter.xhtml(front).encode()
    files["cover.png"] = converter.picture(cover(front, css, files[next(iter(bodies.values())).img["src"]]))
    files["book.css"] = (css + HtmlFormatter(style="a11y-high-contrast-light").get_style_defs(".highlight")).encode()
    files["nav.xhtml"] = contents(parts, titles).encode()
    reading = ["title.xhtml", "nav.xhtml", *(f"{pdf.key(page)}.xhtml" for page in bodies)]
    files["content.opf"] = package(files, reading).encode()
    if wrong := faults(files):
        raise chapters.Broken(f"the e-book is not as readers take it: {'; '.join(wrong[:5])}")
    return files


def faults(files: Mapping[str, bytes]) -> list[str]:
    """Problems of an e-book: what is not XML, moves or asks, lies outside, or leads nowhere."""
    wrong, trees = list[str](), dict[str, ElementTree.Element]()
    for name in files:
        if name.endswith((".xhtml", ".svg", ".opf")):
            try:
                trees[name] = ElementTree.fromstring(files[name])
            except ElementTree.ParseError as error:
                wrong.append(f"{name} is not XML ({error})")
    ids = {name: [node.get("id") for node in tree.iter() if "id" in node.attrib] for name, tree in trees.items()}
    wrong += [
        f"{name} has two #{one}"
        for name, ids_of_page in ids.items()
        for one in set(ids_of_page)
        if ids_of_page.count(one) > 1
    ]
    for name, node in ((name, node) for name, tree in trees.items() for node in tree.iter()):
        kind = node.tag.rpartition("}")[2]
        if kind in _MOVING or any(attribute.startswith("on") for attribute in node.attrib):
            wrong.append(f"{name} has a {kind} that needs a script")
        if kind == "img" and (node.get("src") not in files or not node.get("alt")):
            wrong.append(f"{name} has a picture that is not there, or without a description: {node.get('src')}")
        address = node.get("href", node.get("{http://www.w3.org/1999/xlink}href", ""))
        file, _, fragment = address.partition("#")
        if kind == "a" and re.match(r"https?:|mailto:", address):
            continue
        if address and ((file or name) not in files or (fragment and fragment not in ids[file or name])):
            wrong.append(f"{name} links to {address}, which is not there")
    return wrong


def cover(front: str, css: str, figure: bytes) -> str:
    """The cover as HTML: the title page with the first figure (SVG) in place of its note."""
    style = ".front-note { display: none } html { border-left: 24px solid #0b5f9e; height: 100% } "
    style += "body { margin: 0 60px; font-family: sans-serif }"
    address = f"data:image/svg+xml;base64,{base64.b64encode(figure).decode()}"
    front = front.replace("</head>", f"<style>{css}{style}</style></head>")
    return front.replace("</section>", f'<img alt="" style="margin-top: 120px" src="{address}"></section>')


def title_page() -> str:
    """The title page as HTML."""
    imprint = pdf.imprint()
    lines = {name: imprint[name] for name in ("title", "subtitle", "authors")} | {
        "version": f"Version {imprint['version']}, {imprint['day']}"
    }
    paragraphs = "".join(f'<p class="front-{name}">{html.escape(text)}</p>' for name, text in lines.items())
    return f"""<!DOCTYPE html><html lang="en" xml:lang="en"><head><title>{html.escape(imprint["title"])}</title>
<link rel="stylesheet" type="text/css" href="book.css"></head><body><section class="front">{paragraphs}
<div class="front-note"><p>© {html.escape(imprint["copyright"])}.</p><p>This is the still form of a book that runs: its
site has the same chapters with sliders under the figures, with all code, and as notebooks. Here figures stand as they
first appear, with what one finds by moving them. Hints and solutions stand at the end of each chapter. Code that the
site folds away, the reference of the library and the table of tests are left out.</p></div></section></body></html>"""


def contents(parts: Sequence[pdf.Part], titles: Mapping[str, str]) -> str:
    """The table of contents as readers show it in their menu."""
    listed = ""
    for part in parts:
        pages = "".join(f'<li><a href="{pdf.key(p)}.xhtml">{html.escape(titles[p])}</a></li>' for p in part.pages)
        listed += f"<li><span>{html.escape(part.title)}</span><ol>{pages}</ol></li>" if part.title and pages else pages
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" lang="en" xml:lang="en">
<head><title>Contents</title><link rel="stylesheet" type="text/css" href="book.css"/></head>
<body><nav epub:type="toc" id="toc"><h1>Contents</h1><ol>{listed}</ol></nav></body></html>
"""


def package(files: Mapping[str, bytes], reading: Iterable[str]) -> str:
    """The package document: what the book is, its files, and in which order they are read."""
    facts, moment = pdf.imprint(), dates.moment()
    name = uuid.uuid5(uuid.NAMESPACE_URL, f"{facts['title']} {facts['version']} {moment.isoformat()}")
    marks = {"nav.xhtml": "nav", "cover.png": "cover-image"}

    def item(file: str) -> str:
        holds = [kind for kind, mark in (("mathml", b"<math "), ("svg", b"<svg ")) if mark in files[file]]
        properties = marks.get(file) or (" ".join(holds) if file.endswith(".xhtml") else "")
        attribute = f' properties="{properties}"' if properties else ""
        return f'<item id="{_id(file)}" href="{file}" media-type="{KINDS[Path(file).suffix]}"{attribute}/>'

    access = "".join(
        f'<meta property="schema:{key}">{value}</meta>'
        for key, value in (
            ("accessMode", "textual"),
            ("accessMode", "visual"),
            ("accessModeSufficient", "textual"),
            ("accessibilityFeature", "MathML"),
            ("accessibilityFeature", "alternativeText"),
            ("accessibilityFeature", "structuralNavigation"),
            ("accessibilityFeature", "tableOfContents"),
            ("accessibilityHazard", "none"),
        )
    )
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="book" xml:lang="en">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/">
<dc:identifier id="book">urn:uuid:{name}</dc:identifier>
<dc:title>{html.escape(facts["title"])}: {html.escape(facts["subtitle"].lower())}</dc:title>
<dc:creator>{html.escape(facts["authors"])}</dc:creator>
<dc:language>en</dc:language>
<dc:date>{moment:%Y-%m-%d}</dc:date>
<dc:description>{html.escape(descriptions.description("book/index"))}</dc:description>
<dc:rights>{html.escape(facts["copyright"])}, {LICENCE}</dc:rights>
<meta property="dcterms:modified">{moment:%Y-%m-%dT%H:%M:%SZ}</meta>
{access}
</metadata>
<manifest>{"".join(map(item, sorted(files)))}</manifest>
<spine>{"".join(f'<itemref idref="{_id(file)}"/>' for file in reading)}</spine>
</package>
"""


def _id(file: str) -> str:
    return "f-" + re.sub(r"[^a-zA-Z0-9.-]", "-", file)


_CONTAINER = """<?xml version="1.0" encoding="UTF-8"?>
<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0"><rootfiles>
<rootfile full-path="OEBPS/content.opf" media-type="application/oebps-package+xml"/></rootfiles></container>
"""


def write(target: Path, files: Mapping[str, bytes]) -> None:
    """Write an e-book of these files, dated as all that is built."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f"{target.name}.part")
    day = dates.moment().timetuple()[:6]
    everything = {"mimetype": b"application/epub+zip", "META-INF/container.xml": _CONTAINER.encode()}
    everything |= {f"OEBPS/{name}": data for name, data in sorted(files.items())}
    with zipfile.ZipFile(draft, "w") as book:
        for name, data in everything.items():
            how = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
            entry = zipfile.ZipInfo(name, day)
            entry.external_attr = 0o644 << 16
            book.writestr(entry, data, how)
    draft.replace(target)


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and bind; return an exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=Path, default=chapters.ROOT / "dist" / "learning-to-adapt.epub")
    options = parser.parse_args(arguments)

    def work() -> int:
        try:
            with chromium.launched() as browser:
                site = chapters.built() / "html"
                files = bind(pdf.parts_of(chapters.ROOT / "_toc.yml"), site, partial(Converter, browser, site))
        except (RuntimeError, Error) as fault:
            print(str(fault).splitlines()[0], file=sys.stderr)
            return 1
        write(options.to.resolve(), files)
        formulas = sum(data.count(b"<math ") for data in files.values())
        pictures = sum(name.startswith("pictures/") for name in files)
        print(f"{formulas} formulas, {pictures} pictures, {options.to.stat().st_size / 1e6:.1f} MB. Open {options.to}")
        return 0

    return chapters.run_command(work)


if __name__ == "__main__":
    sys.exit(main())
