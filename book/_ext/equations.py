"""Whether a number of an equation is one that a page shows: (16) in the text is `\\tag{16}` on a page of the same part.

Each part retells one paper and numbers its equations as the paper does. Those that are spoken of and shown nowhere are
listed in `book/equations.yml` with what they are.
"""

import re
from typing import Any

import chapters
import prose
import yaml

_TAG = re.compile(r"\\tag\{([^}]*)\}")
_NUMBER = r"\d{1,2}(?:\.\d{1,2})?"
#: An equation's number in brackets, and what follows it; after another number, brackets hold a standard error.
_NAMED = re.compile(rf"(?<![\w`\]^}}])(?<!\d )\((?!0\.)({_NUMBER})\)(?!\w)(?P<of> of \[)?")
#: Pages that speak of every paper.
_OF_ALL = ("evidence", "synthesis", "start", "course", "reference")


def tagged(texts: dict[str, str]) -> dict[str, set[str]]:
    """Numbers that the pages of each part show, by the part's folder."""
    found: dict[str, set[str]] = {}
    for page, text in texts.items():
        for tag in _TAG.findall(text):
            found.setdefault(_part(page), set()).update(_numbers(tag))
    return found


def _part(page: str) -> str:
    return page.split("/")[1] if page.count("/") > 1 else ""


def _numbers(tag: str) -> list[str]:
    """Every number of a tag, those between the ends of "2.3 to 2.5" too."""
    if ends := re.fullmatch(r"(\d+)\.(\d+) to \1\.(\d+)", tag):
        return [f"{ends[1]}.{number}" for number in range(int(ends[2]), int(ends[3]) + 1)]
    return re.findall(_NUMBER, tag)


def faults(texts: dict[str, str], untold: dict[str, dict[str, str]]) -> list[str]:
    """Numbers that no page of the part shows, in sentences; `untold` has those shown nowhere, by part and number."""
    shown = tagged(texts)
    wrong, told = list[str](), {part: set(numbers) for part, numbers in untold.items()}
    anywhere = set().union(*shown.values(), *told.values())
    for page, text in texts.items():
        part = _part(page)
        of_all = part in _OF_ALL or part not in shown
        known = anywhere if of_all else shown[part] | told.get(part, set())
        words = re.sub(r"\$[^$]*\$|`[^`]*`", " ", prose.text_of(text))
        for found in _NAMED.finditer(words):
            if found[1] not in (anywhere if found["of"] else known):
                around = words[max(0, found.start() - 40) : found.end() + 20]
                wrong.append(f"{page}.md: no page of this part shows equation ({found[1]}), in: …{around}…")
    for part, numbers in told.items():
        wrong += [f"book/equations.yml: ({number}) of {part} is shown" for number in numbers & shown.get(part, set())]
    return wrong


def untold() -> dict[str, dict[str, str]]:
    """Equations that are spoken of and shown nowhere, by part and number; Broken if the list is not that."""
    path = chapters.ROOT / "book/equations.yml"
    try:
        listed: Any = yaml.safe_load(chapters.words(path)) if path.exists() else {}
    except yaml.YAMLError as error:
        raise chapters.Broken(f"book/equations.yml: {' '.join(str(error).split())}") from error
    if not isinstance(listed, dict) or not all(
        isinstance(numbers, dict) and all(isinstance(each, str) and each for pair in numbers.items() for each in pair)
        for numbers in listed.values()
    ):
        raise chapters.Broken("book/equations.yml: under each part stand numbers, in quotes, and what they are of")
    return listed


def examine() -> None:
    """Broken, with all that is wrong, if a page of the book names an equation by a number that nobody shows."""
    if found := faults({page: chapters.source(page) for page in chapters.pages()}, untold()):
        raise chapters.Broken("\n".join(found))
