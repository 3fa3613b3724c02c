"""Transclusion of chapters' results (figures, words, verdicts) on other pages; no number is typed.

A page names a chapter's figure (`{figure-of}`), repeats words that a cell of a chapter says (`{said}`) or that a check
measured (`{measured}`), and leads to the chapter that shows it (`{door}`). A number outside those roles has to stand
in `book/prose/<page>.yml` under a reason, as in a chapter.
"""

import json
import re
import subprocess
import sys
from typing import Any, NamedTuple

import chapters
import nbformat
import prose
import runs

from icl_book import claims

#: Directives and roles by which a page borrows.
_BORROWS = re.compile(r"\{(?:figure-of|door)\}|\{(?:said|measured)\}`|\{glue:text\}`[\w/-]+::")
_DIRECTIVE = re.compile(
    r"^(?P<fence>`{3,}|:{3,})\{(?P<name>figure-of|door)\}[ ]*(?P<page>[^\n]*)\n(?P<body>.*?)^(?P=fence)[ ]*$",
    re.M | re.S,
)
_ROLE = re.compile(r"\{(?P<name>said|measured)\}`(?P<body>[^`]*)`")
_BODY = re.compile(r"(?P<words>.*?)\s*<(?P<where>[^<>]+)>\s*", re.S)
#: Stricter than in a chapter, which has its computation beside it: any number; S6 is a name.
NUMBER = re.compile(r"(?<!\w)\d[\d.,]*(?<![.,])")
#: What is not the page's own word: borrowed words, and targets of links. A number in code or in a formula is its own.
_ROLES = _ROLE.pattern.replace("?P<name>", "?:").replace("?P<body>", "?:")
_ASIDE = re.compile(rf"\{{(?:glue:text|claim|cite[\w:]*)\}}`[^`]*`|{_ROLES}|\]\([^)]*\)", re.S)
_LAYOUT = re.compile(r"^:{3,}\{grid\}.*$", re.M)


class Proof(NamedTuple):
    """Words of a page that stand elsewhere.

    Attributes:
        role: `said`, by a cell of a chapter, or `measured`, by a check.
        words: what the page repeats.
        where: the chapter, such as book/adaptation/depth, or the claim.
    """

    role: str
    words: str
    where: str


def borrows(source: str) -> bool:
    """True if a page transcludes chapters' results."""
    return _BORROWS.search(source) is not None


def chapter(name: str) -> str:
    """The document name of a chapter that a page calls by its room and file; Broken if the book has none."""
    page = f"book/{name.strip().strip('/').removeprefix('book/').removesuffix('.md')}"
    if page not in chapters.pages() or not chapters.is_chapter(chapters.source(page)):
        raise chapters.Broken(f"the book has no chapter {name.strip()!r}")
    return page


def proof(role: str, body: str) -> Proof:
    """Words and place of a role's text, `words <place>`; Broken if it is not that."""
    match = _BODY.fullmatch(body)
    if match is None or not match["words"].strip():
        raise chapters.Broken(f"{{{role}}}`{body}` must be words, then their place in angle brackets")
    where = match["where"].strip()
    if role == "said":
        return Proof(role, match["words"], chapter(where))
    if where not in claims.ledger():
        raise chapters.Broken(f"no claim {where!r} in the ledger (book/claims/)")
    if not claims.ledger()[where].chapter:
        raise chapters.Broken(f"no chapter checks {where!r}")
    return Proof(role, match["words"], where)


def page_of(found: Proof) -> str:
    """The chapter whose run proves it."""
    return found.where if found.role == "said" else str(claims.ledger()[found.where].chapter)


def proofs(source: str) -> list[Proof]:
    """Citations of proofs in a text, in order."""
    return [proof(role["name"], role["body"]) for role in _ROLE.finditer(source)]


def lenders(source: str) -> list[str]:
    """The chapters of which a page shows or says something, each once."""
    named = [chapter(block["page"]) for block in _DIRECTIVE.finditer(source)]
    named += [page_of(proved) for proved in proofs(source)] + [page for page in runs.glued_pages(source) if page]
    return list(dict.fromkeys(named))


def run_of(page: str) -> nbformat.NotebookNode:
    """A chapter's run; Broken if it was not run as it is now."""
    run = runs.cached(page)
    if run is None:
        raise chapters.Broken(f"{page}.md: it was not run as it is now")
    return run


def sentence(found: Proof, run: nbformat.NotebookNode) -> str:
    """The whole of what is said or measured there; Broken, with the words, if they are not among it."""
    words = prose.flat(found.words)
    cut = re.compile(rf"(?<![\w.,]){re.escape(words)}(?![\w%]|[.,]\d)")
    if found.role == "said":
        sentences = runs.outputs(run, runs.SAID)
    else:
        settled = [check for check in runs.outputs(run, runs.CHECK) if check["id"] == found.where]
        sentences = [text for check in settled for text in (check["measured"], check["samples"]) if text]
    for text in sentences:
        if cut.search(prose.flat(text)):
            return str(text)
    who = f"no cell of {found.where} says" if found.role == "said" else f"the check of {found.where} did not measure"
    raise chapters.Broken(f"{who} {words!r}")


class Drawn(NamedTuple):
    """A chapter's figure.

    Attributes:
        html: what its cell put out, whole.
        spec: its specification.
    """

    html: str
    spec: dict[str, Any]


def function(spec: dict[str, Any]) -> str | None:
    """The name of what moves a figure; None for one that does not move."""
    explorable = spec.get("usermeta", {}).get("icl", {}).get("explorable")
    return explorable["function"] if explorable else None


def figure(page: str, which: str, run: nbformat.NotebookNode) -> Drawn:
    """The figure that moves by this function, or whose title starts so; Broken if a chapter has not just one."""
    drawn = [
        Drawn(html, json.loads(spec))
        for html in runs.outputs(run, "text/html")
        if len(specs := runs.specifications(html)) == 1
        for spec in specs
    ]
    query = which.strip()
    matching = [one for one in drawn if query and query == function(one.spec)]
    matching = matching or [one for one in drawn if query and runs.heading(one.spec).startswith(query)]
    if len(matching) != 1:
        available = "; ".join(function(one.spec) or runs.heading(one.spec) for one in drawn)
        raise chapters.Broken(f"{page} has {len(matching) or 'no'} figure {query!r}; it has: {available}")
    return matching[0]


def option(block: str, name: str) -> str:
    """An option of a directive's body, empty if it is not there."""
    match = re.search(rf"^:{name}:[ ]*(.*)$", block, re.M)
    return match[1].strip() if match else ""


def visible_text(source: str) -> str:
    """Visible text of a page: roles as their words, counts as one; without settings, figures and doors."""
    text = re.sub(r"\A---\n.*?\n---\n|\{reading\}(?=`)", "", _DIRECTIVE.sub("", source), flags=re.S)
    return _ROLE.sub(lambda role: body["words"] if (body := _BODY.fullmatch(role["body"])) else role["body"], text)


def pictures(source: str) -> int:
    """Number of figures that a page transcludes at full size."""
    blocks = [block for block in _DIRECTIVE.finditer(source) if block["name"] == "figure-of"]
    return sum(not re.search(r"^:small:", block["body"], re.M) for block in blocks)


def faults(page: str, source: str, executed: dict[str, nbformat.NotebookNode]) -> list[str]:
    """Problems of a page's transclusions, in sentences; `executed` are runs by chapter."""
    wrong = []

    def attempt(check: Any, *arguments: Any) -> Any:
        try:
            return check(*arguments)
        except chapters.Broken as fault:
            wrong.append(str(fault))

    def run(lender: str) -> nbformat.NotebookNode:
        return executed[lender] if lender in executed else run_of(lender)

    def shown(block: re.Match[str]) -> None:
        lender = chapter(block["page"])
        if block["name"] == "figure-of":
            figure(lender, option(block["body"], "which"), run(lender))

    for block in _DIRECTIVE.finditer(source):
        attempt(shown, block)
    for role in _ROLE.finditer(source):
        if proved := attempt(proof, role["name"], role["body"]):
            attempt(lambda proved=proved: sentence(proved, run(page_of(proved))))
    sayings = runs.outputs(executed[page], runs.SAID) if page in executed else []
    return wrong + _unproved(page, source, sayings)


def _unproved(page: str, source: str, sayings: list[str]) -> list[str]:
    """Numbers that no chapter says, nor a cell of the page, and no reason covers."""
    text = prose.text_of(_LAYOUT.sub("", _DIRECTIVE.sub("", source)))
    listed = prose.reasons(page)
    wrong = [f"{piece!r} has a reason but is not in the text" for piece in listed if prose.flat(piece) not in text]
    numbers = list(NUMBER.finditer(_ASIDE.sub(lambda m: " " * len(m.group()), text)))
    return wrong + [
        f"no chapter says {number!r} in: …{around}…"
        for number, around in prose.uncovered(text, numbers, [*listed, *sayings])
    ]


def examine(pages: list[str], executed: dict[str, nbformat.NotebookNode]) -> None:
    """Broken, with all that is wrong, if a page shows or says what no chapter found."""
    problems = []
    for page in pages:
        if borrows(source := chapters.source(page)):
            problems += [f"{page}.md: {fault}" for fault in faults(page, source, executed)]
    if problems:
        raise chapters.Broken("\n".join(problems))


def small(spec: dict[str, Any]) -> dict[str, Any]:
    """A figure's specification for a picture of a card's width: no title, no legend, no names of axes."""
    drawing: dict[str, Any] = json.loads(json.dumps(spec))
    drawing.pop("title", None)
    drawing.pop("usermeta", None)

    def strip(node: Any) -> None:
        for layer in node.get("layer", ()):
            strip(layer)
        for name, channel in (node.get("encoding") or {}).items():
            if not isinstance(channel, dict):
                continue
            if name in ("x", "y"):
                channel["title"] = None
                channel["axis"] = {"labels": False, "ticks": False, "gridOpacity": 0.35, "domain": False}
            elif name in ("color", "strokeDash", "shape"):
                channel["legend"] = None
        node["layer"] = [layer for layer in node["layer"] if layer.get("name") != "labels"] if "layer" in node else None
        if node["layer"] is None:
            del node["layer"]

    strip(drawing)
    drawing |= {"width": 280, "height": 165, "autosize": {"type": "fit", "contains": "padding"}}
    drawing["config"] = {**drawing["config"], "background": "transparent", "axisY": {}, "axisX": {}}
    return drawing


#: Draws a specification of Vega-Lite, read from standard input.
_DRAW = "import json, sys, vl_convert; print(vl_convert.vegalite_to_svg(json.load(sys.stdin), vl_version=sys.argv[1]))"


def small_picture(spec: dict[str, Any]) -> str:
    """A figure as a small picture, in SVG."""
    return _svg(json.dumps(small(spec), sort_keys=True))


def _svg(drawing: str) -> str:
    """Draw in a process of its own: in the forked processes that read pages the drawing library waits for ever.

    So its names of clip paths and gradients are the same each time, too: it counts them over all that it has drawn.
    """
    version = re.search(r"/v(\d+\.\d+)", json.loads(drawing)["$schema"])
    command = [sys.executable, "-c", _DRAW, version[1] if version else ""]
    done = subprocess.run(command, input=drawing, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise chapters.Broken(f"a small picture cannot be drawn: {done.stderr.strip()[-300:]}")
    return done.stdout.strip()
