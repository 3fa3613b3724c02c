"""Check of a page's Markdown: unclosed fences, images without alternative text, raw HTML.

Sphinx and MyST say nothing of any of these. A fence that is not closed runs to the end of what it stands in; a picture
without a text is told by its file's name; and where raw HTML leads, or what it loads, nobody looks after.
"""

import re

import chapters

_FENCE = re.compile(r"^ {0,3}(?P<fence>`{3,}|:{3,}|~{3,})(?P<info>.*)$")
#: Directives whose content is no Markdown.
_VERBATIM = re.compile(r"\{(code-cell|code|code-block|math|bibliography|eval-rst|literalinclude|door|figure-of)\}")
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]*)[^)]*\)")
_TAG = re.compile(r"<(?:[A-Za-z][\w-]*(?=[\s/>])[^>]*|!--.*?--|/[A-Za-z][\w-]*\s*)>", re.S)
#: What the build itself lays beside the page of claims; Markdown could not find links to it among the sources.
LAID = ("claims.json", "claims.csv")
_LAID = re.compile(rf'<a href="(?:{"|".join(map(re.escape, LAID))})" download>|</a>')
#: What a reader does not see, or what turns the order of what is seen: text and code would not be what they seem.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\xad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
LEAST = 3  # words that tell what a picture shows


def faults(text: str) -> list[str]:
    """Problems of a page's Markdown, in sentences with line numbers."""
    lines = text.split("\n")
    head = lines.index("---", 1) + 1 if lines[0] == "---" and "---" in lines[1:] else 0
    wrong, words = list[str](), list[str]()
    for number, line in enumerate(lines, 1):
        wrong += [f"line {number} has the invisible character U+{ord(sign):04X}" for sign in _INVISIBLE.findall(line)]
    _walk(lines, head, len(lines), wrong, words)
    plain = re.sub(r"\$\$.*?\$\$|\$[^$\n]*\$|(`+)(?!`).+?(?<!`)\1(?!`)", " ", "\n".join(words), flags=re.S)
    for alt, file in _PICTURE.findall(plain):
        name = file.rsplit("/", 1)[-1]
        if re.match(r"[a-z]+:|//", file):
            wrong.append(f"the picture {file!r} is from elsewhere: pages need no network, put it beside the page")
        if alt.strip() in (file, name, name.rsplit(".", 1)[0]) or len(alt.split()) < LEAST:
            wrong.append(f"the picture {file!r} needs words for those who cannot see it, got {alt!r}")
    for tag in _TAG.findall(plain):
        if not _LAID.fullmatch(tag):
            wrong.append(f"raw HTML, whose links nobody follows: write {' '.join(tag.split())!r} in Markdown")
    return wrong


def _walk(lines: list[str], at: int, end: int, wrong: list[str], words: list[str]) -> None:
    """Collect what is read as Markdown of some lines, and fences that have no end there."""
    while at < end:
        opening = _FENCE.match(lines[at])
        if not opening or (opening["fence"][0] == "`" and "`" in opening["info"]):
            words.append(lines[at])
            at += 1
            continue
        fence, info = opening["fence"], opening["info"].strip()
        closes = re.compile(rf" {{0,3}}{re.escape(fence[0])}{{{len(fence)},}}\s*")
        close = next((i for i in range(at + 1, end) if closes.fullmatch(lines[i])), None)
        if not info and fence[0] == ":":
            wrong.append(f"line {at + 1} closes a fence that is not open")
            close = at
        elif close is None:
            wrong.append(f"the fence {lines[at].strip()!r} of line {at + 1} has no end")
            close = end
        elif info.startswith("{") and not _VERBATIM.match(info):
            if re.match(r"\{(image|figure)\}", info) and not _has_alt(lines[at + 1 : close]):
                wrong.append(f"the picture of line {at + 1} needs words for those who cannot see it, as :alt:")
            _walk(lines, at + 1, close, wrong, words)
        at = close + 1


def _has_alt(options: list[str]) -> bool:
    alt = next((line.split(":alt:", 1)[1] for line in options if line.strip().startswith(":alt:")), "")
    return len(alt.split()) >= LEAST


def examine(pages: list[str]) -> None:
    """Broken, with all that is wrong, if one of these pages would lose something."""
    problems = [f"{page}.md: {fault}" for page in pages for fault in faults(chapters.source(page))]
    if problems:
        raise chapters.Broken("\n".join(problems))
