"""One plain sentence that says what a page is about: for its head, for previews, and at the foot of its neighbours.

It is the first sentence of the page's *In short*, or of its first paragraph, and the next one if both are short. A page
where that does not serve has its own in its front matter: `description: ...`.
"""

import re
from functools import cache

import chapters
import searching

LONGEST, SHORT = 200, 90  # characters
_RAISED = str.maketrans("0123456789+-−n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻ⁿ")
_SIGNS = {
    "le": " ≤ ", "ge": " ≥ ", "to": " → ", "infty": "∞", "cdot": "·", "times": "×", "approx": "≈", "sqrt": "√",
    "ell": "ℓ", "star": "*", "in": " ∈ ", "top": "'", "lvert": "|", "rvert": "|", "ldots": "…", "quad": " ",
}  # fmt: skip
_LETTERS = {called: letter for letter, called in searching.LETTERS.items() if letter not in "ϑϕϵς"}


def description(page: str) -> str:
    """One sentence on a page, of at most 200 characters, in plain text."""
    return _describe(chapters.source(page))


@cache  # a page is described in its own head and by its neighbours
def _describe(source: str) -> str:
    head = re.match(r"---\n(.*?)\n---\n", source, re.S)
    if head and (field := re.search(r"^description: (.*)$", head[1], re.M)):
        return field[1].strip('"')
    text = source[head.end() :] if head else source
    return _first(_paragraph(text.partition("\n## In short\n")[2]) or _paragraph(text))


def _paragraph(text: str) -> str:
    """The first paragraph that is neither heading nor directive."""
    text = re.sub(r"^([`:]{3,})\{.*?^\1$", "", text, flags=re.S | re.M)
    text = re.sub(r"^(#.*|%.*|\(.*\)=|[`:]{3,}.*)$", "\n", text, flags=re.M)
    return next((" ".join(p.split()) for p in re.split(r"\n\s*\n", text) if p.strip()), "")


def plain(markdown: str) -> str:
    """Markdown without its marks, and formulas in plain letters."""
    text = re.sub(r"\$([^$]+)\$", lambda m: _plain_tex(m[1]), markdown)
    text = re.sub(r"\s*\{(?:cite|numref)[\w:]*\}`[^`]*`", "", text)
    text = re.sub(r"\{[\w:-]+\}`([^`<]*?)\s*(?:<[^`>]*>)?`", r"\1", text)
    text = re.sub(r"\s*\(?\[\]\([^)]*\)\)?", "", text)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(re.sub(r"[*`]", "", text).split())


def _plain_tex(tex: str) -> str:
    tex = re.sub(r"\\(?:math[a-z]+|boldsymbol|text|operatorname|left|right)(?![a-z])\s*", " ", tex)
    tex = re.sub(r"\\[,;!]|(?<![a-z]) ", "", tex)
    tex = re.sub(r"\\frac\s*\{?([^{}])\}?\s*\{?([^{}])\}?", r"\1/\2", tex)
    tex = re.sub(r"\\var(?=epsilon|phi|theta)", r"\\", tex)
    tex = re.sub(r"\\([A-Za-z]+) ?", lambda m: _sign(m[1]), tex)
    tex = re.sub(r"\^\{?([\d+−n-]+)\}?", lambda m: m[1].translate(_RAISED), tex)
    return re.sub(r"[{}\\]", "", tex).replace("^*", "*")


def _sign(name: str) -> str:
    letter = _LETTERS.get(name.lower())
    return _SIGNS.get(name, name) if letter is None else letter.upper() if name[0].isupper() else letter.lower()


def _first(paragraph: str) -> str:
    """Its first sentence, and the next if there is room; of one that is too long, the first clauses."""
    sentences = [plain(sentence) for sentence in re.split(r"(?<=[.?!])\s+(?=[A-Z`])", paragraph)]
    summary = sentences[0]
    if len(summary) > LONGEST:
        ends = [m.start() for m in re.finditer(r"[;:] ", summary[:LONGEST])]
        return f"{summary[: ends[-1]]}." if ends else f"{summary[: LONGEST - 2].rpartition(' ')[0]} …"
    if len(summary) < SHORT and len(sentences) > 1 and len(summary) + len(sentences[1]) < LONGEST:
        summary += f" {sentences[1]}"
    return summary
