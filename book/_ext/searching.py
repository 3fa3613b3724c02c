"""The site's search knows symbols: whoever types λ, lambda, σ_w, \\sigma_w or D₃ finds the pages that write it.

Pages write symbols as TeX, as Greek letters or as names in code; readers type any of the three. Both are brought to one
spelling, `lambda`, `sigma_w`, `D3`, `lambda_star`: pages by `words`, queries by `SPLITTER`, which Sphinx lays beside
its stemmer. Both drop accents, so Ribiere finds Ribière. Rows of the notation table and terms of the glossary that have
a letter are entries of the search's index too, so that a symbol's first hit says what it is.
"""

import contextlib
import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import chapters
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

from icl_book import notation

NOTATION, GLOSSARY = "book/start/notation", "book/start/glossary"
#: Greek letters and their names in TeX.
LETTERS = {
    letter: unicodedata.name(letter).split()[-1].lower().replace("lamda", "lambda")
    for code in range(0x391, 0x3CA)
    if unicodedata.name(letter := chr(code), "LETTER WITH").startswith("GREEK")
    and "WITH" not in unicodedata.name(letter)
} | {"ϕ": "phi", "ϵ": "epsilon", "ϑ": "theta"}
_LOW = dict(zip("₀₁₂₃₄₅₆₇₈₉ₐₑᵢⱼₖₗₘₙₜₓ", "0123456789aeijklmntx", strict=True))
_ACCENT = re.compile(r"[\u0300-\u036f]")
_NAMES = "|".join(sorted(set(LETTERS.values()), key=lambda name: (-len(name), name)))
_FONT = r"\\(?:math[a-z]+|boldsymbol|text|operatorname|bar|tilde|hat|wide[a-z]+)(?![a-z])\s*"
_BRACES = r"\{\s*(\\?\w+)\s*\}"
_STAR = r" ?\^ ?\{?\\?(?:star|ast|\*|⋆)\}?| ?[*⋆]"
_SYMBOL = re.compile(rf"\\(?:var)?({_NAMES})(?![a-z]) ?(?:_([a-z0-9]+))?({_STAR})?", re.I)
#: A letter and its number, with a line between: D_3.
_NUMBERED = re.compile(r"(?<![A-Za-z_\\])([A-Za-z])_([0-9])(?!\d)")


def words(text: str) -> list[str]:
    """The words of a piece of text, of code or of TeX, as the search's index has them."""
    if not (text.isascii() and "\\" not in text and "_" not in text):
        text = _ACCENT.sub("", unicodedata.normalize("NFD", re.sub(_FONT, "", text)))
        text = "".join(f"_{_LOW[c]}" if c in _LOW else f"\\{LETTERS[c]} " if c in LETTERS else c for c in text)
        for _ in range(2):
            text = re.sub(_BRACES, r"\1 ", text)
        text = _SYMBOL.sub(_all_spelt, text)
        text = _NUMBERED.sub(r" \1\2 ", text)
        text = re.sub(r"\\[A-Za-z]{2,}", " ", text)
    return re.findall(r"\w+", text)


def _all_spelt(symbol: re.Match[str]) -> str:
    name, below, star = symbol.groups()
    spelt = [name, _spelt(name, below), _spelt(name, below, star)]
    return f" {' '.join(dict.fromkeys(map(str.lower, spelt)))} "


def _spelt(name: str, below: str | None, star: str | None = None) -> str:
    low = "" if below is None else below if below.isdigit() else f"_{below}"
    return f"{name.lower()}{low}{'_star' if star else ''}"


#: The same for what a reader types; here a letter needs no backslash, and only the whole symbol is asked for.
SPLITTER = f"""
function splitQuery(query) {{
  const letters = {json.dumps(LETTERS, ensure_ascii=False)}, low = {json.dumps(_LOW, ensure_ascii=False)};
  let found = [], rest = query.normalize("NFD").replace(/[\\u0300-\\u036f]/g, "");
  rest = rest.replace(/{_FONT}/g, "").replace(/ς/g, "σ");
  rest = rest.replace(new RegExp(`[${{Object.keys(low).join("")}}]`, "g"), c => "_" + low[c]);
  rest = rest.replace(new RegExp(`([${{Object.keys(letters).join("")}}])([a-z0-9])?`, "gi"),
    (_, c, next) => "\\\\" + letters[c] + (next ? "_" + next : ""));
  for (let turn = 0; turn < 2; turn++) rest = rest.replace(/{_BRACES}/g, "$1 ");
  rest = rest.replace(/(^|[^a-z0-9_])(?:var)?({_NAMES})(?![a-z]) ?(?:_([a-z0-9]+)|([0-9]))?({_STAR})?/gi,
    (_, before, name, below, digit, star) => {{
      below = below ?? digit ?? "";
      found.push(name.toLowerCase() + (below && isNaN(below) ? "_" : "") + below + (star ? "_star" : ""));
      return before;
    }});
  rest = rest.replace(/(^|[^a-z_\\\\])([a-z])_([0-9])(?![0-9])/gi, "$1$2$3").replace(/\\\\[a-z]{{2,}}/gi, " ");
  return found.concat(rest.split(/[^\\p{{Letter}}\\p{{Number}}_]+/gu).filter(word => word));
}}
// Many a field and method of a class is named gamma: chapters come before those.
if (typeof Scorer !== "undefined")
  Scorer.score = ([,,, kind, score]) =>
    score - (/^Python (attribute|property)/.test(kind) ? 13 : /^Python method/.test(kind) ? 4 : 0);
"""


class Symbols(SearchEnglish):
    """Sphinx's English, with one spelling for each symbol."""

    js_splitter_code = SPLITTER

    def split(self, input: str) -> list[str]:
        """The words of a piece of text."""
        return words(input)


def forms(tex: str, code: str = "") -> list[str]:
    """The ways in which readers may type a symbol, in lower case: as a letter, by its name, by its name in code."""
    written, code = [word.lower() for word in words(tex)], code.lower()
    name = next((word for word in written if word in LETTERS.values()), None)
    spellings = {code}
    if name and not re.search(r"\\(bar|tilde|hat)", tex):
        command = code if code in written else name
        letter = next(letter for letter, called in LETTERS.items() if called == name).lower()
        spellings |= {command, f"\\{command}", letter + command.removeprefix(name)}
    return sorted((spellings | {re.sub(r"(\d)$", r"_\1", form) for form in spellings}) - {""})


def anchor(code: str) -> str:
    """The place of a symbol's row in the notation table; a capital letter is another one than the small."""
    return f"symbol-{'capital-' if code[0].isupper() else ''}{code.lower().replace('_', '-')}"


def _say_what_it_is(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Have the search list symbols with their places; when pages are read, the book's index would list them too."""
    entries: list[tuple[str, str]] = []
    if page == NOTATION:
        entries = [(form, anchor(s.code)) for s in notation.SYMBOLS for form in forms(s.latex, s.code)]
    elif page == GLOSSARY:
        for entry in chapters.loaded(chapters.words(chapters.ROOT / "book/start/terms.yml")):
            place = nodes.make_id(f"term-{entry['term']}")
            entries += [(form, place) for form in forms(entry.get("letter", ""))]
    if entries:
        doctree += addnodes.index(entries=[("single", form, place, "main", None) for form, place in entries])


def _know_again(app: Sphinx, environment: Any) -> list[str]:
    """Give Sphinx back the index entries of pages that it does not write again: of all that its search knew of them, it
    forgets these alone. The two that list symbols are written again, for what they list is said here.
    """
    entries = environment._search_index_index_entries
    entries.clear()  # Sphinx keeps those that it was given by the build before
    # A damaged one Sphinx itself complains of.
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
        written = (Path(app.outdir) / "searchindex.js").read_text(encoding="utf-8")
        index = json.loads(written.removeprefix("Search.setIndex(").removesuffix(")"))
        page_entries = [
            (index["docnames"][number], (entry, place, "main" if first else ""))
            for entry, places in index["indexentries"].items()
            for number, place, first in places
        ]
        for page, one in sorted(set(page_entries)):
            if page in environment.all_docs:
                entries.setdefault(page, []).append(one)
    return [page for page in (NOTATION, GLOSSARY) if page in environment.found_docs]


def setup(app: Sphinx) -> None:
    """Register it in place of Sphinx's own English."""
    app.add_search_language(Symbols)
    app.connect("env-updated", _know_again)
    app.connect("doctree-resolved", _say_what_it_is)
