"""Downloads: notebooks that say what they are, hold the page's code, text and outputs, and spoil no exercise."""

import ast
import builtins
import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import chapters
import nbconvert
import nbformat
import notebooks
import pytest
import runs

import icl

PAGES = chapters.with_cells()
KEYS = re.findall(r"^@\w+\{([^,]+),", chapters.words(chapters.ROOT / "book/references.bib"), re.M)
SITE = "https://book.example/"


def text_of(notebook):
    """All text of a notebook."""
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def unfolded(text):
    """What of a text is seen while its folds are shut; a fold has a blank line on both sides of what it hides."""
    fold = re.compile(r"<details><summary>[^<\n]+</summary>\n\n(?:(?!<details>).)*?\n\n</details>", re.S)
    while fold.search(text):
        text = fold.sub("", text)
    return text


def dead(notebook):
    """Links that lead to no notebook beside it, no heading of it and no page of the site."""
    text = text_of(notebook)
    there = {f"{Path(name).name}.ipynb" for page in PAGES for name in notebooks.files(page)}
    there |= {f"{SITE}_sources/{name}.ipynb" for page in PAGES for name in notebooks.files(page)}
    there |= {f"#{heading.replace(' ', '-')}" for heading in re.findall(r"^#+ (.+)$", text, re.M)}
    there |= {f"{SITE}{page}.html" for page in chapters.pages()}
    links = re.findall(r"\]\(([^)\s]*)\)", text)
    own = [link for link in links if link.startswith(SITE) or not link.startswith("http")]
    return [link for link in own if link not in there and link.partition("#")[0] not in there]


@pytest.mark.parametrize("page", PAGES)
def test_a_download_stands_alone(page):
    """Valid, with the page's cells and its text without MyST; it cites by author and year, and every link leads on."""
    notebook = notebooks.handed_on(notebooks.notebook(page), page, "Cited so.", solutions=True)
    nbformat.validate(notebook)
    assert [cell.source for cell in notebooks.page_cells(notebook)] == chapters.code_cells(chapters.source(page))
    text = text_of(notebook)
    assert not re.findall(r"^ *[`:]{3,}\{.*|\{[\w:-]+\}`|^\([\w:.-]+\)=", text, flags=re.M)
    assert not re.findall(rf"\b(?:{'|'.join(KEYS)})\b", text)
    assert dead(notebook) == []
    assert text.startswith(f"# {chapters.title(page)}, with solutions\n\nCited so.\n")
    assert notebook.metadata.language_info.file_extension == ".py"


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_a_published_book(page):
    """If the book has an address, all links to its pages lead there, and so does the line in place of a table."""
    notebook = notebooks.handed_on(notebooks.notebook(page, site=SITE), page, "Cited so.", SITE)
    assert dead(notebook) == []
    assert not re.findall(r"\]\((?!https:)[^)]*\.ipynb|\(in the book\)|, in the book\)", text_of(notebook))
    assert text_of(notebook).count("*(The table of ") == text_of(notebook).count(f"]({SITE}{page}.html) in the book.)*")


@pytest.mark.parametrize("page", PAGES)
def test_a_download_spoils_no_exercise(page):
    """A link to each solution stands in its place, and of a hint only that there is one; all else is there."""
    whole = notebooks.notebook(page)
    solutions = [cell for cell in whole.cells if notebooks.solves(cell)]
    rest = [cell.source for cell in whole.cells if not notebooks.solves(cell)]
    made = notebooks.handed_on(whole, page, "Cited so.")
    nbformat.validate(made)
    text, source = text_of(made), chapters.source(page)
    links = re.findall(r"^\[Solution of Exercise [\d.]+\]\((\S+)\.ipynb#Solution-of-Exercise-[\d.]+\)$", text, re.M)
    assert links == [f"{Path(page).name}-solutions"] * source.count("{solution-start}")
    assert bool(links) == (len(notebooks.files(page)) == 2)
    there = [cell.source for cell in made.cells if not cell.source.startswith("[Solution of")]
    assert there[-len(rest) + 1 :] == rest[1:]
    assert not {cell.source for cell in solutions} & set(there)
    assert not re.search(r"\bHint\b", unfolded(text))
    assert text.count("<summary>Hint</summary>") == source.count("{dropdown} Hint")


def brought(extras):
    """Distributions that the package asks for with these extras."""
    project = tomllib.loads(chapters.words(chapters.ROOT / "pyproject.toml"))["project"]
    asked = sum((project["optional-dependencies"][extra] for extra in extras), project["dependencies"])
    return {re.match(r"[\w-]+", each)[0].lower() for each in asked} | {"icl-book", "ipython"}  # with Jupyter


@pytest.mark.parametrize("page", PAGES)
def test_what_a_download_imports_comes_with_what_it_says_to_install(page):
    """All that its cells import at their margin is of Python, of the package or of the extra that it names."""
    said = re.search(r"pip install '?\.(?:\[([\w,]+)\])?", notebooks.how_to_run(page))[1]
    code = "\n".join(chapters.code_cells(chapters.source(page)))
    names, homes = set(re.findall(r"^(?:import|from) (\w+)", code, re.M)), packages_distributions()
    there = brought(said.split(",") if said else [])
    assert not [name for name in names if name in homes and not there & {home.lower() for home in homes[name]}]


def test_exercises_have_the_numbers_of_the_page():
    """The chapter's number and the exercise's within it, and its title."""
    headings = re.findall(r"^#### (.*)$", text_of(notebooks.notebook("book/adaptation/how-much-to-forget")), re.M)
    assert headings[:2] == ["Exercise 4.1 (The recursion)", "Solution of Exercise 4.1"]


def test_notebooks_have_names_of_their_own():
    """Downloads lie side by side in one folder."""
    assert len({Path(page).name for page in PAGES}) == len(PAGES)


def test_conversion_of_each_construct():
    """Mathematics, roles, admonitions, exercises, folds and generated tables become what plain Jupyter shows."""
    source = (
        "(a-label)=\n```{note} Mind\ntext {py:func}`icl.x`\n```\n````{exercise-start} Title\n:label: ex\n````\n"
        "```{claims}\n```\n```{math}\na=b\n```\n[words](other.md), "
        "{cite}`kalman1960,learning2026` and {cite:t}`kalman1960`;\n"
        "[](book/memory/depth.md), [](book/adaptation/depth.md), {doc}`the claims </book/evidence/claims>`\n"
        "```{dropdown} Hint\n$a$\n```"
    )
    assert notebooks.plain(source) == (
        "> **Mind**\n>\n> text `icl.x`\n#### Exercise (Title)\n"
        "*(The table of claims and verdicts is on this chapter's page in the book.)*\n$$\na=b\n$$\n"
        "words, (Kalman, 1960; Qin et al., 2026) and Kalman (1960);\n"
        ", [Depth](depth.ipynb), the claims (*The claims*, in the book)\n"
        "<details><summary>Hint</summary>\n\n$a$\n\n</details>"
    )


TEXT = """---
kernelspec:
  display_name: Python 3
  name: python3
---

# A chapter

It follows {cite:t}`kalman1960`.

```{code-cell}
x = 1
```

```{code-cell}
x = 1
```

```{exercise-start} More
:class: dropdown
:label: ex-more
```
Do more.
```{exercise-end}
```

```{solution-start} ex-more
```
This is more.

```{code-cell}
x + 1
```
```{solution-end}
```

The end.
"""


@pytest.fixture
def one(tiny):
    """A book of one chapter."""
    (tiny.root / "book/references.bib").write_text(
        "@book{kalman1960, author = {Kalman, Rudolf}, title = {A Filter}, year = 1960, publisher = {ASME}}\n"
    )
    tiny.contents("book/index", "book/a")
    (tiny.root / "book/a.md").write_text(TEXT)
    return tiny.root / "book/a.md"


def ids(text, path):
    path.write_text(text)
    return [cell.id for cell in notebooks.notebook("book/a").cells]


def test_a_cells_id_stays_when_others_change(one):
    """A paragraph or an exercise more changes the ids of the cells that it stands in, and no others."""
    before = ids(TEXT, one)
    assert len(before) == len(set(before)) == 8
    assert before[3:5] == ["ex-more", "ex-more-solution"]
    after = ids(TEXT.replace("It follows", "First, this.\n\nIt follows"), one)
    assert after[1:] == before[1:]
    assert after[0] != before[0]
    above = (
        "```{exercise-start} First\n:label: ex-first\n```\nDo it.\n```{exercise-end}\n```\n\n```{exercise-start} More"
    )
    assert ids(TEXT.replace("```{exercise-start} More", above), one) == [*before[:3], "ex-first", *before[3:]]


def test_works_are_listed_at_the_end(one):
    """Those that the text cites, formatted from the book's list."""
    last = notebooks.notebook("book/a").cells[-1]
    assert last.source.replace("\\", "") == "## References\n\n- Rudolf Kalman. *A Filter*. ASME, 1960."


def test_a_download_holds_the_run(one):
    """Printed text, tables and pictures of the run; no specification of a figure, and nothing of the build's own."""
    cell = (
        "from IPython.display import HTML, display\nprint(2)\n"
        f"display({{'{runs.SAID}': 'So.', 'text/html': '<!-- checked -->'}}, raw=True)\n"
        f"display({{'{runs.CHECK}': {{}}, 'text/html': '<p>Right.</p>'}}, raw=True)\n"
        f"display({{'{runs.GLUED}': '1'}}, raw=True, metadata={{'scrapbook': {{'name': 'x'}}}})\n"
        'HTML(\'<img alt="a"><script type="application/json">{"mark": 1}</script>\')'
    )
    one.write_text(TEXT.replace("x = 1", cell, 1))
    with pytest.raises(chapters.Broken, match=r"book/a\.md: it was not run"):
        runs.offer("book/a", "Cited so.")
    run = runs.run_stale(["book/a"])["book/a"]
    made = runs.offer("book/a", "Cited so.")
    nbformat.validate(made)
    first, *_ = notebooks.page_cells(made)
    assert first.execution_count == 1
    assert first.outputs[0].text == "2\n"
    assert [output.data.get("text/html") for output in first.outputs[1:]] == ["<p>Right.</p>", '<img alt="a">']
    assert not [mime for output in first.outputs for mime in output.get("data", {}) if "vnd.icl" in mime]
    assert made.metadata.language_info == run.metadata.language_info
    assert "{cite" not in text_of(made)
    assert nbconvert.ScriptExporter().from_notebook_node(made)[1]["output_extension"] == ".py"
    assert runs.SAID in nbformat.writes(runs.cached("book/a"))  # the cache keeps all of it


def test_a_download_names_both_versions(one, monkeypatch):
    """With the library of another version its first code cell stops, and says of which both are and what to do."""
    made = notebooks.handed_on(notebooks.notebook("book/a"), "book/a", "Cited so.")
    title, check, *_ = made.cells
    assert title.source.startswith("# A chapter\n\nCited so.\n\n")
    for needed in ("Python 3.11 or newer", "icl_book-1.2-py3-none-any.whl", "CC BY 4.0", "MIT"):
        assert needed in title.source
    assert check.metadata.tags == [notebooks.CHECK]
    assert check not in notebooks.page_cells(made)
    monkeypatch.setattr(icl, "__version__", "1.2")
    exec(check.source, {})
    monkeypatch.setattr(icl, "__version__", "1.1")
    with pytest.raises(ImportError, match=r"version 1\.2 .* version 1\.1\. Install version 1\.2 "):
        exec(check.source, {})


def unbound(notebook):
    """Names that a notebook's code reads and nothing in it binds."""
    tree = ast.parse("\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code"))
    nodes = list(ast.walk(tree))
    bound = {name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef)) for name in [node.name]}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ExceptHandler):
            bound.add(node.name)
    read = {node.id for node in nodes if isinstance(node, ast.Name)}
    return read - bound - set(dir(builtins)) - {"display"}


@pytest.mark.parametrize("page", chapters.with_cells())
def test_a_download_needs_none_of_its_solutions(page):
    """Two pages imported a module in a solution alone: their notebooks without solutions stopped where they used it."""
    assert unbound(notebooks.handed_on(notebooks.notebook(page), page, "Cited so.")) == set()
