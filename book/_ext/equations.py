"""Check of equation numbers: (16) in the text must be `\\tag{16}` on this page, or on a page linked from it.

Each part retells one paper and numbers its equations as the paper does. A page names those that it shows itself, and
those of another page that it links in a paragraph where it names them. What is shown nowhere is listed in
`book/equations.yml`, under the page that names it, with what it is.
"""

import posixpath
import re
from typing import Any

import chapters
import prose
import yaml

TAG = re.compile(r"\\tag\{([^}]*)\}")
_NUMBER = r"\d{1,2}(?:\.\d{1,2})?"
#: An equation's number in brackets; after another number, brackets hold a standard error.
_NAMED = re.compile(rf"(?<![\w`\]^}}])(?<!\d )\((?!0\.)({_NUMBER})\)(?!\w)")
_LINK = re.compile(r"\]\(([^)#\s]+)\.md(?:#[^)]*)?\)")


def tagged(texts: dict[str, str]) -> dict[str, set[str]]:
    """Numbers that each page shows."""
    return {page: {number for tag in TAG.findall(text) for number in numbers(tag)} for page, text in texts.items()}


def numbers(tag: str) -> list[str]:
    """Every number of a tag, those between the ends of "2.3 to 2.5" too."""
    if ends := re.fullmatch(r"(\d+)\.(\d+) to \1\.(\d+)", tag):
        return [f"{ends[1]}.{number}" for number in range(int(ends[2]), int(ends[3]) + 1)]
    return re.findall(_NUMBER, tag)


def _references(paragraph: str) -> list[re.Match[str]]:
    return list(_NAMED.finditer(re.sub(r"\$[^$]*\$|`[^`]*`", lambda m: " " * len(m.group()), paragraph)))


def _linked(page: str, paragraph: str) -> list[str]:
    """The pages that a paragraph links."""
    return [posixpath.normpath(f"{posixpath.dirname(page)}/{target}") for target in _LINK.findall(paragraph)]


def faults(texts: dict[str, str], untold: dict[str, dict[str, str]]) -> list[str]:
    """Numbers that a page neither shows nor links, in sentences; `untold` has those shown nowhere, by page."""
    shown, wrong = tagged(texts), list[str]()
    for page, text in texts.items():
        exempt, used = untold.get(page, {}), set[str]()
        parts = prose.paragraphs(text)
        beside = {
            match[1]
            for part in parts
            for match in _references(part)
            if any(match[1] in shown.get(other, ()) for other in _linked(page, part))
        }
        for part in parts:
            for match in _references(part):
                used.add(match[1])
                if match[1] not in shown[page] | beside | set(exempt):
                    around = part[max(0, match.start() - 40) : match.end() + 20]
                    wrong.append(
                        f"{page}.md: this page does not show equation ({match[1]}), nor does one that it links beside "
                        f"the number, in: …{around}…"
                    )
        for number in exempt:
            if number not in used:
                wrong.append(f"book/equations.yml: {page} does not name ({number})")
            elif number in shown[page] | beside:
                wrong.append(f"book/equations.yml: ({number}) of {page} is shown")
    return wrong + [f"book/equations.yml: there is no page {page}" for page in untold if page not in texts]


def untold() -> dict[str, dict[str, str]]:
    """Equations that are spoken of and shown nowhere, by page and number; Broken if the list is not that."""
    path = chapters.ROOT / "book/equations.yml"
    try:
        listed: Any = yaml.safe_load(chapters.words(path)) if path.exists() else {}
    except yaml.YAMLError as error:
        raise chapters.Broken(f"book/equations.yml: {' '.join(str(error).split())}") from error
    if not isinstance(listed, dict) or not all(
        isinstance(numbers, dict) and all(isinstance(each, str) and each for pair in numbers.items() for each in pair)
        for numbers in listed.values()
    ):
        raise chapters.Broken("book/equations.yml: under each page stand numbers, in quotes, and what they are of")
    return {f"book/{page}": numbers for page, numbers in listed.items()}


def examine() -> None:
    """Broken, with all that is wrong, if a page of the book names an equation by a number that it does not show."""
    if problems := faults({page: chapters.source(page) for page in chapters.pages()}, untold()):
        raise chapters.Broken("\n".join(problems))
