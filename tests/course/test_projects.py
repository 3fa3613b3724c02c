"""The projects: their fields, links and numbers, and two baselines run again."""

import ast
import importlib
import json
import re

import chance
import chapters
import courses
import numpy as np
import projects
import pytest
import torch
from course import projects as kit
from scipy.stats import multivariate_normal

from icl import profile
from icl.experiments.evaluation import one_step_ahead
from icl.filters import kalman, track
from icl.tasks import clean
from icl.theory import floors
from icl_bench.tasks import drifting_tasks, told_kalman

PROJECTS = projects.load()
PAGE = chapters.source("book/course/projects")
#: The fastest; the others are run by `python tools/course/projects.py --check`.
QUICK = ("another_claim", "one_number")


def test_ten_projects_each_with_all_its_parts():
    assert len(PROJECTS) == 10
    assert list(PROJECTS) == kit.names()
    for project in PROJECTS.values():
        words = [project.title, project.brief, project.given, project.first_week, project.success, *project.pitfalls]
        assert all(text.strip() for text in words)
        assert not re.search(r"\{.*?:", " ".join(words))
        assert all(text.strip().endswith((".", "?")) for text in words[1:])
        assert len(project.pitfalls) >= 2
        assert len(project.chapters) >= 2
        assert len(project.uses) >= 3


def test_no_baseline_and_no_number_without_the_other():
    """Files, committed numbers and projects have the same names, in the order of the alphabet."""
    held = json.loads(chapters.words(chapters.ROOT / projects.BASELINES))
    assert list(held) == sorted(PROJECTS)
    assert {path.stem for path in (chapters.ROOT / projects.FOLDER).glob("*.py")} == set(PROJECTS)


@pytest.mark.parametrize("project", PROJECTS.values(), ids=lambda project: project.name)
def test_a_project_is_whole(project):
    """Its chapters and functions are there, and its baseline returns what the committed numbers are called."""
    assert set(project.chapters) <= set(courses.taught_chapters())
    for name in project.uses:
        module, _, part = name.rpartition(".")
        assert hasattr(importlib.import_module(module), part), name
    tree = ast.parse(chapters.words(project.start))
    made = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "baseline"]
    assert [ast.unparse(node.returns) for node in made] == ["dict[str, float]"]
    assert {"mean", "standard error", "floor"} <= set(project.numbers)
    assert "mean" in project.words
    assert "floor" in project.words
    # Each error is that of a number, and that of the mean small enough to work with.
    for key in project.numbers:
        assert not key.endswith(", s.e.") or key.removesuffix(", s.e.") in project.numbers
    if not project.timed:
        assert project.numbers["standard error"] < 0.25 * project.numbers["mean"]


def test_a_floor_is_below_what_stands_on_it():
    """Where the floor was measured on the same prompts the mean is above it by three of its errors."""
    for project in PROJECTS.values():
        if project.name == "heavy_tails":  # two estimates of one floor, from below and from above
            assert project.numbers["floor"] < project.numbers["mean"]
        else:
            n = project.numbers
            assert n["mean"] > n["floor"] + 3 * n["standard error"], project.name
    paired = {name: p.numbers for name, p in PROJECTS.items() if "gap" in p.numbers and name != "own_series"}
    assert len(paired) == 5
    assert all(n["gap"] > 3 * n["gap, s.e."] for n in paired.values())


def test_the_rubric_has_five_points_of_four():
    points = projects.rubric()
    assert len(points) == 5
    assert projects.MOST * len(points) == 20
    assert "0 to 4, 20 in all" in kit.marks()
    assert all(len({p.none, p.half, p.full}) == 3 for p in points)


def test_the_page_shows_all_ten_under_their_titles():
    found = re.findall(r"^## (\d+)\. (.+)\n\n```\{project\} (\w+)\n```$", PAGE, re.M)
    assert found == [(str(i), p.title, name) for i, (name, p) in enumerate(PROJECTS.items(), start=1)]
    assert "```{project-rubric}" in PAGE


def test_no_result_is_typed():
    """Texts of projects have no decimals of their own but settings."""
    source = chapters.words(chapters.ROOT / projects.SOURCE)
    settings = {"0.95"}
    assert set(re.findall(r"(?<![\w{.])\d*\.\d+", re.sub(r"\{[^{}]*\}", "", source))) <= settings
    assert not re.findall(r"\d\.\d", PAGE)


def test_the_page_is_read_in_a_quarter_of_an_hour():
    whole = PAGE + projects.points() + "".join(projects.text(p, linked=True) for p in PROJECTS.values())
    assert courses._reading(whole) <= 15


def test_faults_are_named():
    text = chapters.words(chapters.ROOT / projects.SOURCE)
    with pytest.raises(chapters.Broken, match="switches asks for a number that there is not: maen"):
        projects.load(text.replace("{mean:.3f} by three", "{maen:.3f} by three", 1))
    with pytest.raises(chapters.Broken, match="rates: its baseline returns no tolled"):
        projects.load(text.replace('told: "bound', 'tolled: "bound', 1))
    with pytest.raises(chapters.Broken, match="chunks: too much or missing: first_week"):
        projects.load(text[: text.rindex("    first_week")] + text[text.rindex("    success") :])
    with pytest.raises(chapters.Broken, match="it has no swatches"):
        projects.load(text.replace("name: switches", "name: swatches", 1))


def test_numbers_are_shown_to_the_second_digit_of_their_error():
    assert projects.shown(0.343882, 0.00747691) == "0.3439 ± 0.0075"
    assert projects.shown(12.34, 2.5) == "12.3 ± 2.5"
    assert projects.shown(1234.0, 25.0) == "1234 ± 25"
    assert projects.shown(5e-16) == "5e-16"
    assert projects.shown(-0.228, 0.107) == "\N{MINUS SIGN}0.23 ± 0.11"
    assert projects.shown(0.06) == "0.06"


def test_drift_is_told():
    held = {"mean": 1.0, "standard error": 0.1, "floor": 0.5, "gap": 0.2, "gap, s.e.": 0.01}
    assert kit.drifted(held | {"mean": 1.09, "standard error": 9.0, "gap": 0.209, "floor": 0.5004}, held) == []
    assert kit.drifted(held | {"mean": 1.11}, held) == ["mean is 1.11, committed is 1"]
    assert kit.drifted(held | {"floor": 0.501}, held) == ["floor is 0.501, committed is 0.5"]
    assert kit.drifted(held | {"gap": float("nan")}, held) == ["gap is nan, committed is 0.2"]
    assert kit.drifted({"mean": 1.0}, held) == ["returns floor, gap, gap, s.e., standard error in one of two only"]
    assert kit.drifted(held | {"mean": 2.9}, held, timed=["mean"]) == []
    assert kit.drifted(held | {"mean": 3.1}, held, timed=["mean"]) != []


def test_the_floor_of_unknown_speed_rests_on_the_kalman_filter():
    """The oracle of `rates`: under each law alone its mean is the Kalman filter's, its density SciPy's."""
    rates = kit.program("rates")
    for task in list(rates.TASKS.values())[::4]:
        prompt = task.sample(3, generator=profile.make_generator("test: rates"), dtype=torch.float64)
        answer, density = rates.gaussian(prompt, task)
        np.testing.assert_allclose(answer, one_step_ahead(told_kalman(task), prompt).numpy(), atol=1e-8)
        assert density.shape == answer.shape
        seen = 7
        x, y = prompt.x[0, :seen].numpy(), prompt.y[0, :seen].numpy()
        law = multivariate_normal(cov=(x @ x.T) * task.weight_kernel()[:seen, :seen])
        assert density[0, seen] - seen / 2 * np.log(2 * np.pi) == pytest.approx(law.logpdf(y), abs=1e-8)


@pytest.mark.statistical
def test_who_is_told_of_wrong_labels_reaches_the_bound():
    """The oracle of `wrong_labels`: a Kalman filter that reads 0 in place of spoilt inputs."""
    wrong = kit.program("wrong_labels")
    task = drifting_tasks(4, 60)["AR(1), γ = 0.975"]
    prompt, at = wrong.spoilt(task, 400, "test: wrong labels")
    x = torch.where(at[..., None], 0.0, prompt.x)
    told = (torch.as_tensor(track(kalman(task), x, prompt.y).w_hat[:, :-1]) * prompt.x).sum(-1)
    squares = (told - clean(prompt)).square()[:, 1:].mean(1)
    bound = floors.expected_errors(x.numpy(), task)[:, 1:].mean(1)
    chance.assert_mean(squares.numpy() - bound, 0, error=0.0033)
    assert bound.mean() > 1.02 * floors.expected_errors(prompt.x.numpy(), task)[:, 1:].mean()


@pytest.mark.parametrize("name", QUICK)
def test_a_baseline_returns_the_committed_numbers(name):
    assert kit.drifted(kit.baseline(name), PROJECTS[name].numbers, PROJECTS[name].timed) == []


def test_the_kit_holds_a_folder_a_project(tmp_path):
    """Two runs give equal bytes; nothing for the site alone is in it."""
    one, two = (kit.make(tmp_path / name) for name in "ab")
    assert len(one) == 40
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
    assert {p for p in (tmp_path / "a").rglob("*") if p.is_file()} == set(one)
    for path in one:
        content = path.read_text(encoding="utf-8")
        assert path.suffix == ".py" or not re.search(r"\{[\w ,/=]+:\.|\{[\w:]+\}`|\]\(/|book/", content), path
    assert one[0].parent.name == "01-switches"
