"""Print the built site as one book: dist/learning-to-adapt.pdf, tagged, with bookmarks, contents and page numbers.

    python tools/pdf.py                the whole book (`make book` first)
    python tools/pdf.py --to my.pdf    elsewhere

The articles of all pages become one page of HTML (_build/pdf/book.html), which Chromium prints: once to learn on which
sheets the chapters begin, and once more with these numbers in the contents. Nothing is asked of any network.
"""

import argparse
import html
import io
import json
import posixpath
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import yaml
from bs4 import BeautifulSoup, Tag
from playwright.sync_api import Browser, Error
from pypdf import PdfReader

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))

import chapters
import chromium
import dates

from icl import _files

#: Pages for looking things up while at the computer; they would double the book.
LEFT_OUT = {"book/reference/library", "book/reference/tests"}
WIDTH = 657  # pixels between the margins of print.css: 174 mm
#: What moves, folds, or only links: with it goes everything inside.
SCREEN_ONLY = (
    "script:not(figure script), a.headerlink, .toctree-wrapper, div.solution, .icl-selfcheck, .icl-controls, "
    ".icl-readout, .icl-still, .icl-screen, .icl-chart__view, .icl-chart__bar, .icl-filter, details.hide, "
    "button, input, select"
)


@dataclass(frozen=True)
class Part:
    """A part of the book: its title and the names of its pages."""

    title: str
    pages: tuple[str, ...]


def parts_of(toc: Path) -> list[Part]:
    """The parts that a table of contents lists, the page that leads into the book first; without what is left out."""
    contents = yaml.safe_load(chapters.words(toc))
    listed = [Part(part["caption"], tuple(page["file"] for page in part["chapters"])) for part in contents["parts"]]
    parts = [Part("", (contents["root"],)), *listed]
    return [Part(p.title, tuple(page for page in p.pages if page not in LEFT_OUT)) for p in parts]


def key(page: str) -> str:
    """A page's name within the printed book's links."""
    return page.removeprefix("book/").replace("/", "-")


def built_file(path: Path) -> Path:
    """The same path; Broken if nothing is there."""
    if not path.is_file():
        raise chapters.Broken(f"{path} is not there: the site is not built, or an older one. Run `make book` first")
    return path


def article(site: Path, page: str) -> tuple[BeautifulSoup, Tag]:
    """A built page's document and its article; Broken if the site does not have it."""
    path = built_file(site / f"{page}.html")
    document = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
    element = document.select_one("article.bd-article")
    if element is None:
        raise chapters.Broken(f"{path}: it has no article; run `make book` again")
    return document, element


def strip(document: BeautifulSoup, body: Tag) -> None:
    """Leave of an article what shows without a screen's means: of folds the derivations only."""
    for element in body.select(SCREEN_ONLY):
        if not element.decomposed:
            element.decompose()
    for fold in body.select("details"):
        if fold.decomposed:
            continue
        summary = fold.find("summary")
        title = summary.get_text(" ", strip=True) if summary else ""
        if title.startswith("Hint"):
            fold.decompose()
            continue
        # A derivation, or what one finds with a figure's sliders.
        if summary:
            head = document.new_tag("p", attrs={"class": "print-fold__title"})
            head.extend([child for child in summary.contents if child.get_text(strip=True)])
            summary.replace_with(head)
        fold.name, fold.attrs = "div", {"class": "print-fold"}
    for cell in body.select("div.cell"):
        if not cell.get_text(strip=True) and not cell.find(["img", "table"]):
            cell.decompose()
    for corner in body.select("th"):
        if not corner.contents:
            corner.name = "td"


def prepare(document: BeautifulSoup, body: Tag, page: str) -> None:
    """Leave of an article what stands on paper, with headings one level lower."""
    strip(document, body)
    for frame in body.find_all("figure"):
        frame["role"] = "none"  # the picture inside has the description
    for picture in body.find_all("img"):
        del picture["loading"]
        picture["src"] = _beside(picture["src"], page)
    for formula in body.select(".math"):
        # Its letters stand one above another, and cannot be read aloud in a row: its source describes it. In a heading
        # they can, and are what the bookmarks show.
        if formula.find_parent(["h1", "h2", "h3", "h4"]):
            continue
        formula["role"] = "img"
        formula["aria-label"] = source = _bare_tex(formula.get_text())
        # Its letters belong to style sheets, which a tag cannot hold: too small to be seen, the source stands for them.
        text = document.new_tag("span", attrs={"class": "print-tex tex2jax_ignore mathjax_ignore"}, string=source)
        formula.append(text)
    for level in range(5, 0, -1):
        for heading in body.find_all(f"h{level}"):
            heading.name = f"h{level + 1}"
            heading["class"] = f"print-h{level}"
            for text in heading.find_all(string=True):
                text.replace_with(re.sub(r"\s+", " ", text))


def _bare_tex(source: str) -> str:
    """A formula's TeX without the marks around it."""
    return " ".join(re.sub(r"^\s*\\[(\[]|\\[)\]]\s*$", "", source).split())


def connect(bodies: dict[str, Tag], file: Callable[[str], str] = lambda page: "") -> None:
    """Turn links between pages into links within the book, and links to what it leaves out into words.

    Args:
        bodies: the articles by the names of their pages.
        file: name of the file that a page has to itself, if it has one.
    """
    anchors = {(page, tag["id"]) for page, body in bodies.items() for tag in body.select("[id]")}
    used = set[tuple[str, str]]()
    for page, body in bodies.items():
        for link in body.select("a[href]"):
            target = urlsplit(urljoin(f"/{page}.html", link["href"]))
            if target.scheme in ("http", "https", "mailto"):
                continue
            name, fragment = target.path.removeprefix("/").removesuffix(".html"), unquote(target.fragment)
            if name not in bodies:
                link.unwrap()
            elif (name, fragment) in anchors:
                used.add((name, fragment))
                link["href"] = f"{file(name)}#{key(name)}--{fragment}"
            else:
                link["href"] = f"{file(name)}#{key(name)}"
    for page, body in bodies.items():
        styles = " ".join(style.get_text() for style in body.find_all("style"))
        for tag in body.select("[id]"):
            if (page, tag["id"]) in used:
                tag["id"] = f"{key(page)}--{tag['id']}"
            elif f"#{tag['id']}" not in styles:
                del tag["id"]
        for attribute in ("aria-labelledby", "aria-describedby", "tabindex"):
            for tag in body.select(f"[{attribute}]"):
                del tag[attribute]


def assemble(parts: Sequence[Part], site: Path, front: str) -> str:
    """The whole book as one page of HTML, for the folder beside the site's."""
    documents = {page: article(site, page) for part in parts for page in part.pages}
    for page, (document, body) in documents.items():
        prepare(document, body, page)
    bodies = {page: body for page, (_, body) in documents.items()}
    connect(bodies)
    titles = {page: _title(body, page) for page, body in bodies.items()}
    begins = next(iter(documents))
    heads = [(document, page) for page, (document, _) in documents.items()]
    return "\n".join(
        [
            '<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8">',
            f"<title>{html.escape(titles[begins])}</title>",
            *_styles(*heads[0]),
            f"<style>{_running(titles)}</style>",
            f"<script>window.MathJax = {json.dumps(mathjax([document for document, _ in heads]))}</script>",
            *dict.fromkeys(script for head in heads for script in _scripts(*head)),
            '</head><body class="print-book"><div class="bd-container print-book"><main class="bd-main">',
            '<div class="bd-content"><div class="bd-article-container"><article class="bd-article">',
            front,
            _contents(parts, titles),
            *_printed(parts, bodies, titles),
            "</article></div></div></main></div></body></html>",
        ]
    )


def _title(body: Tag, page: str) -> str:
    heading = body.select_one(".print-h1")
    if heading is None:
        raise chapters.Broken(f"{page}: it has no heading")
    return heading.get_text(" ", strip=True)


def _beside(address: str, page: str) -> str:
    """An address on a page of the site, as one from the folder beside the site."""
    if urlsplit(address).scheme:  # a picture within the page
        return address
    return posixpath.normpath(posixpath.join("../html", posixpath.dirname(page), address))


def _styles(document: BeautifulSoup, page: str) -> Iterator[str]:
    """The site's style sheets, then the book's own."""
    for link in document.select("link[rel=stylesheet]"):
        yield f'<link rel="stylesheet" href="{html.escape(_beside(link["href"], page))}">'
    yield f"<style>{Path(__file__).with_suffix('.css').read_text(encoding='utf-8')}</style>"


def mathjax(documents: Sequence[BeautifulSoup]) -> dict[str, object]:
    """The site's settings of MathJax, without what only a screen needs; a page without formulas has none."""
    setting = re.compile(r"window\.MathJax = (\{.*\})\s*$")
    configurations = [
        m[1] for document in documents for script in document.find_all("script") if (m := setting.match(script.text))
    ]
    settings = json.loads(configurations[0]) if configurations else {}
    quiet = {"menuOptions": {"settings": {"assistiveMml": False}}, "enableMenu": False, "enableAssistiveMml": False}
    return settings | {"options": settings.get("options", {}) | quiet}


def _scripts(document: BeautifulSoup, page: str) -> Iterator[str]:
    """Scripts that typeset the formulas and draw the charts in Chromium's fonts, as wide as they print."""
    for script in document.select("script[src]"):
        address = _beside(script["src"], page)
        if match := re.search(r"/(mathjax/|vega-bundle\.js|explorables\.js|charts\.js)", address):
            when = "defer" if match[1] == "mathjax/" else 'type="text/plain"'  # of charts, when the formulas are set
            yield f'<script {when} src="{html.escape(address)}"></script>'


def _running(titles: dict[str, str]) -> str:
    """A chapter's title at the head of its sheets."""
    quoted = {page: json.dumps(title, ensure_ascii=False) for page, title in titles.items()}
    return "\n".join(
        f"@page p-{key(page)} {{ @top-right {{ content: {quoted[page]} }} }} .p-{key(page)} {{ page: p-{key(page)} }}"
        for page in titles
    )


def _contents(parts: Sequence[Part], titles: dict[str, str]) -> str:
    """The table of contents; the numbers come when they are known."""
    line = '<li><a href="#{0}"><span>{1}</span></a><span class="print-number" data-of="{0}"></span></li>'
    blocks = []
    for part in parts:
        if part.title and part.pages:
            blocks.append(f'<p class="print-contents__part">{html.escape(part.title)}</p>')
        blocks.append("<ul>" + "".join(line.format(key(p), html.escape(titles[p])) for p in part.pages) + "</ul>")
    return f'<nav class="print-contents"><h1>Contents</h1>{"".join(blocks)}</nav>'


def _printed(parts: Sequence[Part], bodies: dict[str, Tag], titles: dict[str, str]) -> Iterator[str]:
    """The parts, each with a sheet of its own before its pages."""
    for part in parts:
        if part.title and part.pages:
            inside = "".join(f"<li>{html.escape(titles[page])}</li>" for page in part.pages)
            yield f'<section class="print-part"><h1>{html.escape(part.title)}</h1><ul>{inside}</ul></section>'
        for page in part.pages:
            inside, name = bodies[page].decode_contents(), key(page)
            yield f'<section class="print-page p-{name}" id="{name}">{inside}</section>'


def imprint() -> dict[str, str]:
    """What a title page says of the book: title, subtitle, authors, copyright, version, and the day it was built of."""
    config = yaml.safe_load(chapters.words(chapters.ROOT / "_config.yml"))
    cited = yaml.safe_load(chapters.words(chapters.ROOT / "CITATION.cff"))
    subtitle, built = cited["title"].partition(": ")[2], dates.moment()
    return {
        "title": config["title"],
        "subtitle": subtitle[:1].upper() + subtitle[1:],
        "authors": config["author"],
        "copyright": str(config["copyright"]),
        "version": str(cited["version"]),
        "day": f"{built.day} {built:%B %Y}",
    }


def front(site: Path) -> str:
    """The title page, and what a reader of paper should know."""
    built_file(site / "index.html")
    facts = imprint()
    lines = {name: facts[name] for name in ("title", "subtitle", "authors")}
    lines["version"] = f"Version {facts['version']}, printed from the site built on {facts['day']}"
    paragraphs = "".join(f'<p class="print-{name}">{html.escape(text)}</p>' for name, text in lines.items())
    return f"""<section class="print-front"><div>{paragraphs}</div>
<div class="print-note"><p>© {html.escape(facts["copyright"])}.</p>
<p>The book runs: <code>make book</code> executes every chapter and builds a site, and this is its print. On paper
there are no sliders: figures stand as they first appear, with what one finds by moving them. Code that the site folds
away, hints, and solutions of the exercises are left out, and so are the reference of the library and the table of
tests, which would double its length: all of them are in the site.</p></div></section>"""


def print_(page: Path, browser: Browser) -> bytes:
    """Print a book's HTML, its contents numbered after a first print; Broken if anything is cut off or missing."""
    faults = list[str]()
    tab = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
    tab.set_default_timeout(600_000)
    tab.emulate_media(media="print")
    tab.on("pageerror", lambda error: faults.append(f"an error of a script: {error}"))
    tab.on("requestfailed", lambda request: faults.append(f"not to be had: {request.url}"))
    try:
        print("Formulas and charts", flush=True)
        tab.goto(page.as_uri())
        tab.add_script_tag(path=Path(__file__).with_suffix(".js"))
        tab.evaluate("book.ready()")
        faults += tab.evaluate("book.draw()")
        tab.evaluate("book.ready()")
    except Error as error:
        faults.append(str(error).splitlines()[0])
    if errors := [*faults, *tab.locator("mjx-merror").all_inner_texts()]:
        raise chapters.Broken(f"{page}: cannot be printed: {'; '.join(errors[:5])}")
    if cut := tab.evaluate("book.fit()"):
        raise chapters.Broken(f"{page}: wider than a sheet: {'; '.join(cut[:5])}")
    printed = lambda **how: tab.pdf(prefer_css_page_size=True, print_background=True, **how)  # noqa: E731
    print("First print, for the contents", flush=True)
    numbers = targets(printed())
    # Where a block only just fits on a sheet, Chromium lays the same page out in two ways by turns: so a second look.
    # And numbers may make a line of the contents longer.
    for _ in range(2):
        tab.evaluate("numbers => book.number(numbers)", numbers)
        for _ in range(2):
            print("Print with numbers", flush=True)
            pdf = printed(tagged=True, outline=True)
            if (new_numbers := targets(pdf)) == numbers:
                tab.close()
                return outlined(pdf)
        numbers = new_numbers
    raise chapters.Broken(f"{page}: its sheets turn whenever the contents get their numbers")


def targets(pdf: bytes) -> dict[str, int]:
    """The sheet, from 1, on which each target of a link lies."""
    return targets_of(PdfReader(io.BytesIO(pdf)))


def targets_of(reader: PdfReader) -> dict[str, int]:
    """The same, of a file that is read."""
    return {
        unquote(name.removeprefix("/")): number + 1
        for name, place in reader.named_destinations.items()
        if (number := reader.get_destination_page_number(place)) is not None
    }


def outlined(pdf: bytes) -> bytes:
    """The same file with the words of every bookmark once: of a heading that moves to the next sheet Chromium writes
    them twice, as it was laid out on both. No byte moves, so that the file's own table of its objects stays right.
    """
    once = lambda m: (m[1] + m[2] + m[4]).ljust(len(m[0]))  # noqa: E731
    pdf = re.sub(rb"(/Title \()((?:[^()\\\n]|\\.){4,}?)(\2)+(\))", once, pdf)
    return re.sub(rb"(/Title <FEFF)((?:[0-9A-F]{4}){4,}?)(\2)+(>)", once, pdf)


def make(parts: Sequence[Part], site: Path, target: Path) -> int:
    """Write the book of these parts; return its sheets."""
    page = site.parent / "pdf" / "book.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(assemble(parts, site, front(site)), encoding="utf-8")
    with chromium.launched() as browser:
        pdf = print_(page, browser)
    target.parent.mkdir(parents=True, exist_ok=True)
    _files.write(target, pdf)
    return len(re.findall(rb"/Type /Page\b", pdf))


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and print; return an exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=Path, default=chapters.ROOT / "dist" / "learning-to-adapt.pdf")
    options = parser.parse_args(arguments)

    def work() -> int:
        try:
            sheets = make(parts_of(chapters.ROOT / "_toc.yml"), chapters.built() / "html", options.to.resolve())
        except RuntimeError as fault:
            print(fault, file=sys.stderr)
            return 1
        print(f"{sheets} pages, {options.to.stat().st_size / 1e6:.1f} MB. Open {options.to}")
        return 0

    # A build that is at work empties the site that is to be printed.
    return chapters.run_command(work)


if __name__ == "__main__":
    sys.exit(main())
