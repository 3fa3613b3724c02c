"""Every chapter has all its parts, and the build knows what each depends on."""

import ast
import re
from pathlib import Path

import chapters
import pytest

ROOT = Path(__file__).resolve().parents[2]

TEXTS = {page: (ROOT / f"{page}.md").read_text(encoding="utf-8") for page in chapters.pages()}
CHAPTERS = {page: TEXTS[page] for page in chapters.in_parts()}


def missing(text: str) -> list[str]:
    """The parts of BOOK's list that a chapter lacks."""
    exercises = re.findall(r"\{exercise-start\}.*\n:label: (\S+)", text)
    solutions = re.findall(r"\{solution-start\} (\S+)", text)
    cells = "\n".join(chapters.code_cells(text))
    parts = {
        "a page card": "```{page-card}" in text,
        "a citation": "{cite" in text,
        "a link to the library": "{py:func}" in text,
        "a link to a test": "{test}" in text,
        "a figure": re.search(r"\bcharts\.\w+\(", cells) is not None,
        "a claim": bool(chapters.claims_of(text)),
        "the table of claims": "```{claims}" in text,
        "going further": bool(re.search(r"^## Going further", text, re.M)),
        "three exercises": len(exercises) >= 3,
        "a solution for each exercise": sorted(exercises) == sorted(solutions),
        "a hint for each exercise": text.count("```{dropdown} Hint") >= len(exercises),
        "an end for each exercise and solution": re.fullmatch(
            "(exercise-start exercise-end solution-start solution-end )*",
            "".join(f"{kind} " for kind in re.findall(r"\{((?:exercise|solution)-(?:start|end))\}", text)),
        )
        is not None,
        "self-checks": len(re.findall(r"^check\(", cells, re.M)) >= 4,
    }
    return [part for part, there in parts.items() if not there]


@pytest.mark.parametrize("page", CHAPTERS)
def test_chapter_has_all_its_parts(page):
    """Card, citations, links to library and tests, figures, claims, going further, exercises with hint and solution."""
    assert missing(CHAPTERS[page]) == []


def test_a_missing_part_is_named():
    """Taking the card or a hint out of a chapter is noticed."""
    text = CHAPTERS["book/adaptation/gated-linear-attention"]
    assert missing(text.replace("```{page-card}", "```{note}")) == ["a page card"]
    assert missing(text.replace("{dropdown} Hint", "{note}", 1)) == ["a hint for each exercise"]
    assert missing(text.replace("{solution-end}", "{note}", 1)) == ["an end for each exercise and solution"]


def test_every_page_is_in_the_table_of_contents():
    """Every Markdown file under book/ is a page of the book, but for those that the course kit is made from."""
    kit = ROOT / "book" / "course"
    files = [path for path in (ROOT / "book").rglob("*.md") if kit not in path.parent.parents]
    there = {path.relative_to(ROOT).with_suffix("").as_posix() for path in files}
    there = {page for page in there if "/." not in page}  # JupyterLab's checkpoints
    assert there == set(TEXTS)


@pytest.mark.parametrize("page", [p for p, t in TEXTS.items() if chapters.is_chapter(t)])
def test_chapters_draw_through_the_library(page):
    """No chapter imports Altair itself: only the library's figures carry a description and work without a network."""
    for source in chapters.code_cells(TEXTS[page]):
        for node in ast.walk(ast.parse(source)) if "altair" in source else ():
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "altair" for name in names)


def skipped(source):
    """Tests of a file that do not run everywhere: marked to be skipped or to fail, or skipping themselves."""
    if not re.search(r"\b(skip|skipif|xfail)\b", source):
        return []
    tests = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return [
        test.name
        for test in tests
        if re.search(r"\bmark\.(skip|skipif|xfail)\b|\bpytest\.(skip|xfail)\(", ast.unparse(test))
    ]


def test_cited_tests_run():
    """A test that a page names as holding an equation is run: it is not skipped, and not expected to fail."""
    cited = {name for text in TEXTS.values() for name in re.findall(r"\{test\}`([^`]+)`", text)}
    assert len(cited) > 100
    asleep = {
        f"{path.relative_to(ROOT / 'tests').as_posix()}::{name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in skipped(path.read_text(encoding="utf-8"))
    }
    assert not cited & asleep
    marks = "@pytest.mark.skip\ndef test_a(): ...\ndef test_b():\n    pytest.xfail('x')\ndef test_c(): ..."
    assert skipped(marks) == ["test_a", "test_b"]


@pytest.mark.parametrize("page", [p for p, t in TEXTS.items() if chapters.is_chapter(t)])
def test_no_tag_hides_a_failure(page):
    """Cells may fold their code away, and no more: other tags let errors pass, skip a cell or drop what it put out."""
    if "tags" in TEXTS[page].replace("\n:tags: [hide-input]\n", "\n"):  # to read a page as the build does takes long
        cells = chapters.read(TEXTS[page]).cells
        assert {tag for cell in cells for tag in cell.metadata.get("tags", [])} <= {"hide-input"}


def test_a_record_that_is_read_twice_is_named_once():
    """A page's card names each record once, in the order in which the chapter first reads them."""
    cells = ['a = recorded("later")', 'b = recorded("sooner")', 'c = recorded("later")']
    text = "".join(f"```{{code-cell}}\n{cell}\n```\n\n" for cell in cells)
    assert chapters.records_of(text) == ["later", "sooner"]
