"""Ten projects for students, and the directives that show them.

{project}         one of them by its name in `book/course/projects.yml`, with the numbers of its baseline
{project-rubric}  what all of them are marked by

Numbers are those of `book/course/projects/baselines.json`, made by `tools/course/projects.py`: a text names one as
{name:.3f}, and a name that the baseline does not return stops the build.
"""

import json
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import chapters
import courses
import yaml
from directives import Generated, only_words, table
from sphinx.application import Sphinx

SOURCE = "book/course/projects.yml"
FOLDER = "book/course/projects"
BASELINES = f"{FOLDER}/baselines.json"
_FIELDS = {
    "name", "title", "brief", "given", "first_week", "success", "pitfalls", "words", "timed", "chapters", "uses"
}  # fmt: skip
_NUMBER = re.compile(r"\{(?P<key>[^{}:]+):(?P<form>\.\d[f%])\}")
#: The most that a point of the rubric earns.
MOST = 4


@dataclass(frozen=True)
class Project:
    """One project; its texts are Markdown with numbers filled in.

    `words` says what each number is that is shown; `timed` are numbers that are clock times.
    """

    name: str
    title: str
    brief: str
    given: str
    first_week: str
    success: str
    pitfalls: tuple[str, ...]
    words: dict[str, str]
    timed: tuple[str, ...]
    chapters: tuple[str, ...]
    uses: tuple[str, ...]
    numbers: dict[str, float]

    @property
    def start(self) -> Path:
        """The baseline."""
        return chapters.ROOT / FOLDER / f"{self.name}.py"


@dataclass(frozen=True)
class Point:
    """One point of the rubric: what earns nothing, half of it, and all of it."""

    point: str
    none: str
    half: str
    full: str


def _signed(number: str) -> str:
    """A number in front of which a minus is a minus."""
    return number.replace("-", "\N{MINUS SIGN}", 1) if number.startswith("-") else number


def _filled(project: str, text: str, numbers: dict[str, float]) -> str:
    """A text with its numbers."""

    def number(match: re.Match[str]) -> str:
        if match["key"] not in numbers:
            raise chapters.Broken(f"{SOURCE}: {project} asks for a number that there is not: {match['key']}")
        return _signed(format(numbers[match["key"]], match["form"]))

    return _NUMBER.sub(number, text)


def _project(entry: dict[str, Any], numbers: dict[str, dict[str, float]]) -> Project:
    name = entry["name"]
    if wrong := sorted(set(entry) ^ (_FIELDS if "timed" in entry else _FIELDS - {"timed"})):
        raise chapters.Broken(f"{SOURCE}: {name}: too much or missing: {', '.join(wrong)}")
    if name not in numbers:
        raise chapters.Broken(f"{BASELINES}: it has no {name}: run python tools/course/projects.py --measure")
    fill, mine = partial(_filled, name, numbers=numbers[name]), numbers[name]
    if unknown := sorted((set(entry["words"]) | set(entry.get("timed", ()))) - set(mine)):
        raise chapters.Broken(f"{SOURCE}: {name}: its baseline returns no {', '.join(unknown)}")
    return Project(
        name=name,
        title=entry["title"],
        brief=fill(entry["brief"]),
        given=fill(entry["given"]),
        first_week=fill(entry["first_week"]),
        success=fill(entry["success"]),
        pitfalls=tuple(fill(pitfall) for pitfall in entry["pitfalls"]),
        words=entry["words"],
        timed=tuple(entry.get("timed", ())),
        chapters=tuple(f"book/{page}" for page in entry["chapters"]),
        uses=tuple(entry["uses"]),
        numbers=mine,
    )


def _source(text: str | None = None) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(chapters.words(chapters.ROOT / SOURCE) if text is None else text)
    _all_words(content, SOURCE)
    return content


def _all_words(part: Any, where: str) -> None:
    """Broken if a text below this part of the source would be read as more than words."""
    if isinstance(part, str):
        only_words(part, where)
    for inside in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        name = inside.get("name") or inside.get("point") if isinstance(inside, dict) else None
        _all_words(inside, f"{where}: {name}" if name else where)


def load(text: str | None = None) -> dict[str, Project]:
    """All projects by name, in their order; Broken names what does not fit."""
    numbers = json.loads(chapters.words(chapters.ROOT / BASELINES))
    return {entry["name"]: _project(entry, numbers) for entry in _source(text)["projects"]}


def rubric() -> list[Point]:
    """The points that every project is marked by."""
    return [Point(**entry) for entry in _source()["rubric"]]


def shown(value: float, error: float | None = None) -> str:
    """A number to the second digit of its standard error; to four digits without one."""
    if error:
        places = max(0, min(8, 1 - int(f"{error:e}".split("e")[1])))
        return _signed(f"{value:.{places}f}") + f" ± {error:.{places}f}"
    return _signed(f"{value:.4g}")


def numbers_of(project: Project) -> str:
    """The table of where a project starts."""
    rows = []
    for key, words in project.words.items():
        error = project.numbers.get("standard error" if key == "mean" else f"{key}, s.e.")
        rows.append([words, shown(project.numbers[key], error)])
    return table(["where you start", "measured ± standard error"], rows)


def points() -> str:
    """The rubric as a table."""
    rows = [[f"**{p.point}**", p.none, p.half, p.full] for p in rubric()]
    return table(["criterion", "0", "2", str(MOST)], rows)


def text(project: Project, *, linked: bool) -> str:
    """A project in Markdown: for a page of the site with links, or for a file by itself."""
    read = [f"[{courses.title(p)}](/{p}.md)" if linked else f"*{courses.title(p)}*" for p in project.chapters]
    uses = [f"{{py:obj}}`{name}`" if linked else f"`{name}`" for name in project.uses]
    sources = f"**Read:** {', '.join(read)}. **Use:** {', '.join(uses)}."
    success = f"**Success:** {project.success.strip()}"
    start = [
        f"- **Given:** {project.given.strip()}",
        f"- **First week:** {project.first_week.strip()}",
        *(f"- **Pitfall:** {pitfall}" for pitfall in project.pitfalls),
    ]
    if linked:
        start = ["````{dropdown} What is given, the first week, pitfalls", *start, f"- {sources}", "````"]
    else:
        start = [*start, "", sources]
    return "\n".join([project.brief.strip(), "", numbers_of(project), "", success, "", *start])


class _Shown(Generated):
    """Base of directives that depend on the source of projects and their numbers."""

    has_content, optional_arguments = False, 0

    def shown(self) -> list[Path]:
        """The projects, and what their baselines returned."""
        return [Path(__file__), chapters.ROOT / SOURCE, chapters.ROOT / BASELINES]


class ShowProject(_Shown):
    """One project."""

    required_arguments = 1

    def markdown(self) -> str:
        """Of the project that is named."""
        try:
            projects = load()
        except chapters.Broken as fault:
            raise self.error(str(fault)) from fault
        if self.arguments[0] not in projects:
            raise self.error(f"project: none is called {self.arguments[0]!r}; there are {', '.join(projects)}")
        return text(projects[self.arguments[0]], linked=True)


class ShowRubric(_Shown):
    """Rubric of the projects."""

    def markdown(self) -> str:
        """The points."""
        return points()


def setup(app: Sphinx) -> None:
    """Register them."""
    app.add_directive("project", ShowProject)
    app.add_directive("project-rubric", ShowRubric)
