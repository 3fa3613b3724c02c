"""Problem sets: well formed, gradable, and nothing of their solutions and tests is handed out.

The way through nbgrader itself takes minutes and is a check of its own, `tools/course/nbgrader_round_trip.py`. Its
class of students is graded here in this process, apart from those whose answers never end.
"""

import ast
import inspect
import re
import shutil

import chance
import nbformat
import numpy as np
import pytest
import torch
import yaml
from course import assignments, nbgrader_round_trip

from icl import filters, solvers
from icl.models import one_layer, operators, s6, stacks, token_form
from icl.tasks import DriftingRegression, Prompt
from icl.theory import lfom
from icl.theory import one_layer as closed
from icl.theory.lfom import polynomial_floor
from icl.theory.steady import lms_family
from icl_book import grading

SETS = assignments.names()
EXERCISES = [(name, exercise) for name in SETS for exercise in assignments.points(name)]
#: Too slow for here: they wait for a limit of time, or replace a module that this process goes on to use.
ELSEWHERE = {"endless", "stubborn", "hangs", "tampers", "shadows"}


@pytest.fixture(scope="module")
def solved():
    """The solution of an exercise as a function."""
    kept = {}

    def get(name, exercise):
        if (name, exercise) not in kept:
            kept[name, exercise] = assignments.function(name, exercise)
        return kept[name, exercise]

    return get


def test_there_are_four_sets_of_twenty_points():
    """Sixteen exercises in all, of the points that they say: an answer, a test in sight and two hidden ones or more."""
    assert SETS == ["ps1", "ps2", "ps3", "ps4"]
    assert len(EXERCISES) == len({exercise for _, exercise in EXERCISES}) == 16
    for name in SETS:
        worth = assignments.points(name)
        assert sum(worth.values()) == 20
        statement = "\n".join(cell.source for cell in assignments.notebook(name).cells if cell.cell_type == "markdown")
        assert [int(said) for said in re.findall(r"^## \d\. .* \((\d) points\)$", statement, re.M)] == [*worth.values()]
        for exercise in worth:
            roles = [cell.role for cell in assignments.cells(name) if cell.exercise == exercise]
            assert roles[:2] == ["answer", "shown"]
            assert set(roles[2:]) == {"hidden"}
            assert len(roles) >= 4


def test_each_set_names_the_chapters_that_the_syllabi_have_before_it():
    """By their titles, in that order."""
    orders = yaml.safe_load((assignments.ROOT / "book" / "course" / "syllabi.yml").read_text(encoding="utf-8"))
    for name in SETS:
        first = assignments.notebook(name).cells[0].source
        said = re.findall(r"\*([^*]+)\*", re.search(r"^Read (.*) first\.", first, re.M)[1])
        sources = map(assignments.chapters.source, [f"book/{page}" for page in orders["problem_sets"][name]])
        assert said == [re.search(r"^# (.*)$", source, re.M)[1] for source in sources]


@pytest.mark.parametrize("name", SETS)
def test_cells_are_nbgraders(name):
    """Schema 3 throughout, ids used once; answers are open and all else locked, and hidden tests alone have points."""
    cells = assignments.notebook(name).cells
    settings = [cell.metadata["nbgrader"] for cell in cells]
    assert len({one["grade_id"] for one in settings}) == len({cell["id"] for cell in cells}) == len(cells)
    for cell, one in zip(cells, settings, strict=True):
        assert one["schema_version"] == 3
        assert one["solution"] == (not one["locked"]) == ("### BEGIN SOLUTION" in cell.source)
        assert one["grade"] == ("points" in one) == (assignments.BEGIN in cell.source)
        assert re.fullmatch(r"[\w-]+", one["grade_id"])


@pytest.mark.parametrize("name", SETS)
def test_hidden_tests_are_seeded_alike_and_say_what_they_are(name):
    """Each hidden test draws from a seed of its own, says its points in its first line, which stays, and does not allow
    what the test in sight and the statement do not."""
    labels = []
    text = (assignments.SOURCES / f"{name}.md").read_text(encoding="utf-8")
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        exercise = re.search(r":answer: (\w+)", section)[1]
        said = re.search(r"^Not allowed: (.*)\.$", section, re.M)
        assert (re.findall(r"`([^`]+)`", said[1]) if said else []) == assignments.not_allowed(name, exercise)
    for cell in assignments.cells(name):
        if cell.role != "hidden":
            continue
        assert re.match(rf"# {cell.points} points?: .*\.\n{assignments.BEGIN}\n", cell.source)
        assert f"{assignments.RELOAD}\n{assignments.CANARY}\n" in cell.source
        labels += re.findall(r'grading\.seeded\("(.*?)"\)', cell.source)
        assert labels[-1].startswith(f"{name}/{cell.exercise}/")
        barred = set(assignments.not_allowed(name, cell.exercise))
        own = ast.parse(cell.source.replace(assignments.CANARY, ""))
        lists = [node for node in ast.walk(own) if isinstance(node, ast.List)]
        strings = {frozenset(e.value for e in node.elts if isinstance(e, ast.Constant)) for node in lists}
        calls = [node for node in ast.walk(own) if isinstance(node, ast.Call)]
        (earned,) = [call for call in calls if ast.unparse(call.func) == "grading.earn"]
        assert ast.unparse(earned.args[0]) == cell.exercise
        assert any(word.arg in ("not_allowed", None) for word in earned.keywords) == bool(barred)
        written = [found for found in strings if found and all(isinstance(e, str) and "." in e for e in found)]
        assert all(found == barred for found in written)
    assert len(labels) == len(set(labels)) == sum(cell.role == "hidden" for cell in assignments.cells(name))


@pytest.mark.parametrize("name", SETS)
def test_a_class_earns_what_it_is_due(name, monkeypatch):
    """Solutions earn all points and stubs none, a copied case none, a forbidden call costs its exercise by every way,
    and answers of 0 earn nothing however the grader is attacked.

    Of those who call only what they call is graded here, and the rest with the solutions.
    """
    for student in nbgrader_round_trip.students(name):
        if student.name not in ELSEWHERE:
            only = [nbgrader_round_trip.FORBIDDEN[name][0]] if student.name.startswith("calls") else [*student.due]
            with monkeypatch.context() as restored:
                for function in ("allclose", "prod", "where"):
                    restored.setattr(np, function, getattr(np, function))
                restored.setattr(grading, "_fault", grading._fault)
                earned = assignments.graded(name, student.answers, student.added, only)
            assert earned == {exercise: student.due[exercise] for exercise in only}, student.name


@pytest.mark.parametrize("name", SETS)
def test_solutions_are_right_whatever_the_secret(name, monkeypatch):
    """All points with another secret, and in sight too; a stub is told that it is not written."""
    monkeypatch.setenv(grading.SECRET_VARIABLE, "another class")
    assert assignments.graded(name) == assignments.points(name)
    assert all(outcome.passed for outcome in assignments.shown(name).values())
    stubs = {exercise: assignments.released(source) for exercise, source in assignments.solutions(name).items()}
    for outcome in assignments.shown(name, stubs).values():
        assert (outcome.passed, outcome.message) == (False, "not yet: it is not written")


def test_an_endless_answer_costs_its_own_points(monkeypatch):
    """With the limit of a test at a twentieth of a second; so does a loop that catches what is raised in it."""
    for function in (grading.judge, grading.earn):
        monkeypatch.setitem(inspect.unwrap(function).__kwdefaults__, "seconds", 0.05)
    student = next(one for one in nbgrader_round_trip.students("ps4") if one.name == "endless")
    first, *_ = student.due
    assert assignments.graded("ps4", student.answers, only=[first, "gated_delta"]) == {first: 0, "gated_delta": 5}


@pytest.mark.parametrize("name", SETS)
def test_nothing_leaks(name):
    """Of what is released no line of a solution and of a hidden test; of what is written all of them are found."""
    whole = [cell.source for cell in assignments.notebook(name).cells]
    released = "\n".join(map(assignments.released, whole))
    assert nbgrader_round_trip.leaks(name, released) == []
    assert len(nbgrader_round_trip.leaks(name, "\n".join(whole))) > 40
    for word in ("### BEGIN", "### END", "seeded", "grading.earn", "reload"):
        assert word in "\n".join(whole)
        assert word not in released
    assert released.count(assignments.STUB) == len(assignments.points(name))


def test_a_grader_that_passes_everything_gives_no_marks(monkeypatch):
    """Where a cell puts another function in the place of `earn`, and of what would reload it, every hidden test says
    so: its own lines try an answer known to be wrong.
    """
    monkeypatch.setattr(grading, "earn", lambda *given, **named: None)
    assert not any(assignments.graded("ps1").values())


def test_a_copied_answer_is_the_one_in_sight():
    """The student who copies passes in sight: without hidden cases that would be full marks."""
    for name in SETS:
        copied = {exercise: nbgrader_round_trip.copied(name, exercise) for exercise in assignments.points(name)}
        assert all(outcome.passed for outcome in assignments.shown(name, copied).values())


def test_forbidden_answers_are_right_but_forbidden(monkeypatch):
    """Allowed to, the answers of those who call what they may not would earn points: it is the call that costs them."""
    monkeypatch.setattr(grading, "_targets", lambda names: {})
    for name in SETS:
        exercise, source, added = nbgrader_round_trip.forbidden(name, "by name")
        assert assignments.graded(name, {exercise: source}, added, [exercise])[exercise] >= 2


def test_a_cell_that_does_not_say_what_it_is_is_refused(tmp_path, monkeypatch):
    """And one whose markers or points do not fit what it says."""
    text = (assignments.SOURCES / "ps1.md").read_text(encoding="utf-8")
    monkeypatch.setattr(assignments, "SOURCES", tmp_path)
    for old, new in (
        (":given: true\n", ""),
        (":points: 1\n", ""),
        ("### END HIDDEN TESTS\n", ""),
        ("### BEGIN SOLUTION\n", "\n"),
        (":shown: gated_memory\n", ":shown: gated_memory\n:points: 1\n"),
    ):
        assert old in text
        (tmp_path / "ps1.md").write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(assignments.chapters.Broken, match=r"^ps1: "):
            assignments.notebook("ps1")


def test_the_course_folder_is_the_same_each_time(tmp_path):
    """Equal bytes twice; the notebooks are valid, the README names each exercise, the settings hand out the stub."""
    first = assignments.make(tmp_path / "a")
    second = assignments.make(tmp_path / "b")
    assert [path.relative_to(tmp_path / "a") for path in first] == [path.relative_to(tmp_path / "b") for path in second]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert sorted(path for path in (tmp_path / "a").rglob("*") if path.is_file()) == sorted(first)
    for name in SETS:
        nbformat.validate(nbformat.read(tmp_path / "a" / "source" / name / f"{name}.ipynb", as_version=4))
    readme = (tmp_path / "a" / "README.md").read_text(encoding="utf-8")
    assert "{" not in readme
    assert all(
        f"| {name} | `{exercise}` | {assignments.points(name)[exercise]} |" in readme for name, exercise in EXERCISES
    )
    assert repr(assignments.STUB) in (tmp_path / "a" / "nbgrader_config.py").read_text(encoding="utf-8")
    shutil.rmtree(tmp_path / "a")


def test_what_grading_needs_is_pinned_and_not_in_the_lock():
    """nbgrader and what comes with it have one version each, and readers' lock has none of them."""
    lines = (assignments.SOURCES / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert pins[0] == "nbgrader==0.9.6"
    assert all(re.fullmatch(r"[\w-]+==\d+(\.\d+)+", pin) for pin in pins)
    lock = (assignments.ROOT / "requirements.lock").read_text(encoding="utf-8").lower().splitlines()
    assert {pin.split("==")[0].lower() for pin in pins} & {line.split("==")[0] for line in lock} == set()


# The solutions against the library, each in the part of its range that the library has.


def close(mine, library, rtol=1e-9):
    np.testing.assert_allclose(mine, library, rtol=rtol, atol=1e-12)


def test_gated_memory_is_the_layers(solved):
    draw = np.random.default_rng(0)
    X, y = draw.normal(size=(20, 3)), draw.normal(size=20)
    x = torch.tensor(np.vstack([X, np.zeros((1, 3))]))[None]
    prompt = Prompt(x, torch.tensor(np.append(y, 0.0))[None], torch.zeros_like(x))
    close(solved("ps1", "gated_memory")(X, y, np.full((20, 3), 0.8)), one_layer.features(prompt, 0.8)[0])


def test_errors_and_factors_are_the_theorys(solved):
    task = DriftingRegression(d=4, n=15, gamma=0.9, sigma_w=1.0, sigma_e=(1 - 0.81) ** 0.5)
    error = solved("ps1", "mean_error")(task.weight_kernel(), 0.7, 0.1, 4, 0.0)
    close(error, closed.layer_risk(0.1 * np.eye(4), task, lam=0.7))
    factor = solved("ps1", "best_factor")(0.9, 15, 4, 0.0)
    assert abs(factor - closed.optimal_forgetting(task)) < 1e-4


@pytest.mark.statistical
def test_noise_is_what_is_drawn(solved):
    """100,000 prompts with noise against the formula."""
    draw, count = chance.rng(1), 100_000
    K, lam, scale, d, noise = np.array([[1.0, 0.6, 0.3], [0.6, 2.0, 0.9], [0.3, 0.9, 1.5]]), 0.8, 0.15, 2, 0.7
    w = np.einsum("ij,sjd->sid", np.linalg.cholesky(K), draw.normal(size=(count, 3, d)))
    x = draw.normal(size=(count, 3, d))
    y = (w * x).sum(-1)
    noisy = y[:, :2] + noise**0.5 * draw.normal(size=(count, 2))
    estimate = scale * np.einsum("i,si,sid->sd", lam ** np.array([2, 1]), noisy, x[:, :2])
    errors = ((estimate * x[:, 2]).sum(-1) - y[:, 2]) ** 2
    chance.assert_mean(errors, solved("ps1", "mean_error")(K, lam, scale, d, noise))


def test_filters_are_the_librarys(solved):
    draw = np.random.default_rng(2)
    X, y = draw.normal(size=(25, 3)), draw.normal(size=25)
    task = DriftingRegression(d=3, n=25, gamma=0.9, sigma_w=1.0, sigma_e=0.3**0.5)
    kalman = filters.kalman(task, sigma_y=0.5, P_0=1.0)
    library = filters.run_filter(kalman, torch.tensor(X), torch.tensor(y))
    close(solved("ps2", "kalman_with_gaps")(X, y, 0.9, 0.3, 0.25), library)
    lms = filters.run_filter(filters.lms(0.1), torch.tensor(X), torch.tensor(y))
    close(solved("ps4", "descend_in_blocks")(X, y, 1, 0.1, 1.0), lms)
    curve = solved("ps2", "learning_curve")(3, 25, 0.9, 0.6, 0.95)
    steady = DriftingRegression(d=3, n=25, gamma=0.9, sigma_w=1.0, sigma_e=(1 - 0.81) ** 0.5)
    close(curve, lms_family.errors(steady, 0.6, lam=0.95, normalised=True))


def test_one_scale_is_the_theorys(solved):
    a, error = solved("ps2", "one_scale_for_all")(np.array([0.9, 0.5]), np.array([1.0, 1.5]), [0.3, 0.7], 12, 3, 0.8)
    tasks = [
        DriftingRegression(d=3, n=12, gamma=g, sigma_w=1.0, sigma_e=(1 - g**2) ** 0.5, Lambda=s**2 * np.eye(3))
        for g, s in ((0.9, 1.0), (0.5, 1.5))
    ]

    def mean(a):
        return sum(p * closed.layer_risk(a * np.eye(3), t, lam=0.8) for p, t in zip((0.3, 0.7), tasks, strict=True))

    close(error, mean(a))
    assert min(mean(a * 1.001), mean(a * 0.999)) > error


def test_layers_are_the_librarys(solved):
    draw = np.random.default_rng(3)
    x, y = draw.normal(size=(12, 4)), draw.normal(size=12)
    stack = stacks.Stack(4, 1, lam=0.9, dtype=torch.float64)
    with torch.no_grad():
        stack.s_y.fill_(0.7)
        library = stack.errors(torch.tensor(x)[None], torch.tensor(y)[None])[0]
    close(solved("ps2", "stack_of_heads")(x, y, np.array([[0.9]]), np.array([[0.7 * (1 - 0.9)]])), library)
    Z, (P, Q) = draw.normal(size=(9, 3)), draw.normal(size=(2, 1, 3, 3))
    whole = token_form.transformer(*(torch.tensor(z) for z in (Z[None], P, Q)))[0, -1, -1]
    close(solved("ps3", "causal_transformer")(Z, P, Q)[-1], whole)
    u, B, C = draw.normal(size=10), *draw.normal(size=(2, 10, 3))
    A, Delta = -draw.uniform(0.2, 2, 3), draw.uniform(0.1, 1, 10)
    scanned = s6.scan(*(torch.tensor(z) for z in (u[None, :, None], A, B[None], C[None], Delta[None])))[0, :, 0]
    close(solved("ps4", "s6_channel")(u, A, B, C, Delta), scanned)
    q, k, v = draw.normal(size=(3, 10, 4))
    k /= np.linalg.norm(k, axis=1, keepdims=True)
    g, beta = draw.uniform(0.5, 1, 10), draw.uniform(0, 1, 10)
    heads = [torch.tensor(z)[None, :, None] for z in (q, k, v, g, beta)]
    close(solved("ps4", "gated_delta")(q, k, v, g, beta), operators.delta_recurrent(*heads)[0, :, 0])


def test_methods_are_the_librarys(solved):
    close(solved("ps3", "schedule_table")(np.full(6, 0.3), np.full(6, 0.8)), lfom.momentum_table(0.3, 0.8, 6))
    eta, beta = (z.numpy() for z in solvers.chebyshev_scalars(0.5, 4.0, 5))
    table = solved("ps3", "schedule_table")(eta, beta)
    close(solved("ps3", "least_peak")(0.5, 4.0, 5), lfom.polynomials(table)[-1])
    # For one prompt's eigenvalues the greedy register is best of all in its first layer.
    t = np.random.default_rng(4).gamma(3, 0.4, 50)
    alpha = solved("ps3", "greedy_register")(t, np.zeros(1))
    first, _ = polynomial_floor.fitted_registers(np.diag(t)[None], np.eye(50), 1)[:2]
    close(np.abs(alpha), np.abs(np.asarray(first).ravel()[:1]), rtol=1e-6)
