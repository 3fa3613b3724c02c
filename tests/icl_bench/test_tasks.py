"""The benchmark's tasks: the chapter's sixteen and those beside them, of one scale; found by name, one's own too."""

import math
import re

import chance
import numpy as np
import pytest
import torch
from scipy import stats

from icl import filters
from icl.experiments.evaluation import one_step_ahead
from icl.experiments.grid import Expected
from icl.profile import make_generator
from icl.tasks import (
    DriftingRegression,
    LinearDrift,
    Mixture,
    Noisy,
    Prompt,
    RegimeSwitching,
    Task,
    UnknownDrift,
    clean,
)
from icl.tasks.noise import noise_level
from icl.theory import floors
from icl.theory.floors import joint
from icl_bench.custom_task import CustomTask
from icl_bench.tasks import (
    BENCH_TASKS,
    BenchTask,
    _catalogue,
    best_possible,
    drifting_tasks,
    find_tasks,
    mixture,
    told_kalman,
)

TASKS = drifting_tasks(3, 12)


@pytest.mark.parametrize("name", TASKS)
def test_tasks_have_one_scale(name):
    """A weight has variance 1/d at every position and the inputs' covariance has trace d, so that the clean label has
    variance 1; rtol 1e-9.
    """
    task = TASKS[name]
    np.testing.assert_allclose(np.diag(task.weight_kernel()), 1 / 3, rtol=1e-9)
    assert np.trace(task.Lambda) == pytest.approx(3, rel=1e-12)
    assert (task.d, task.n, noise_level(task)) == (3, 12, math.sqrt(0.1) if name.endswith("noise") else 0)


def test_there_are_sixteen_and_half_of_first_order_is_noisy():
    assert len(TASKS) == 16
    assert [type(task) for task in TASKS.values()].count(Noisy) == 6
    assert all(isinstance(TASKS[f"AR(1), γ = {g}"], DriftingRegression) for g in (0.8, 0.9, 0.95, 0.975, 0.99))


def test_real_poles_are_the_roots_of_the_recursion():
    """Eigenvalues of F are the two poles; and weights start in the steady state, P_0 = F P_0 F' + Q, rtol 1e-12."""
    task = TASKS["AR(2), poles .95 and .8"]
    assert isinstance(task, LinearDrift)
    np.testing.assert_allclose(sorted(np.linalg.eigvals(task.F)), [0.8, 0.95], rtol=1e-12)
    np.testing.assert_allclose(task.F @ task.P_0 @ task.F.T + task.Q, task.P_0, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", TASKS)
def test_the_floor_is_the_posterior_means(name):
    """For switches that of all times at which the last can have been, otherwise that of the joint Gaussian law."""
    task = TASKS[name]
    prompt = task.sample(3, generator=make_generator("floor"), dtype=torch.float64)
    errors, x = best_possible(task).errors(prompt), prompt.x.numpy()
    if isinstance(task, RegimeSwitching):
        expected = floors.switching_predictions(x, prompt.y.numpy(), task)[1]
    else:
        expected = joint.label_errors(x, task)
    np.testing.assert_array_equal(errors, expected)
    assert errors.mean() < 1.5


@pytest.mark.parametrize("noise", ["", ", noise"])
def test_kalman_is_told_the_law(noise):
    """On first-order drift it is the filter of the task's own numbers, rtol 1e-9; a variance that moves is refused."""
    name = f"AR(1), γ = 0.9{noise}"
    task, drift = TASKS[name], TASKS["AR(1), γ = 0.9"]
    prompt = task.sample(2, generator=make_generator("told"), dtype=torch.float64)
    own = one_step_ahead(filters.kalman(drift, sigma_y=noise_level(task)), prompt)
    torch.testing.assert_close(one_step_ahead(told_kalman(task), prompt), own, rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="task must have weights of one variance, got"):
        told_kalman(DriftingRegression(3, 12, 0.9, sigma_w=5.0))


# --- by name


def test_the_chapters_come_first_under_their_titles():
    """In the chapter's order and with its numbers: the same prompts from the same stream, to the bit. All but leaps,
    which are of nu = 5 here and 3 there.
    """
    first = list(BENCH_TASKS.values())[:15]
    assert [task.title for task in _catalogue()] == [task.title for task in BENCH_TASKS.values()]
    assert [task.title for task in first] == [title for title in TASKS if not title.startswith("leaps")]
    assert BENCH_TASKS["leaps"].make(3, 12).nu == 5
    for task in first:
        ours = task.make(3, 12).sample(2, generator=make_generator("same"))
        theirs = TASKS[task.title].sample(2, generator=make_generator("same"))
        assert all(torch.equal(getattr(ours, part), getattr(theirs, part)) for part in "xyw"), task.name


def test_names_are_for_a_command_line():
    """Letters, digits, dots and dashes; a title and one sentence each; what is shifted comes last; the law that a name
    states is the task's.
    """
    for name, task in BENCH_TASKS.items():
        assert task.name == name
        assert re.fullmatch(r"[a-z0-9.-]+", name)
        assert re.fullmatch(r"[A-Z].*\.", task.about)
        assert task.title
    assert len({task.title for task in BENCH_TASKS.values()}) == len(BENCH_TASKS) == 26
    shifted = [task.shifted for task in BENCH_TASKS.values()]
    assert shifted == sorted(shifted)
    for name, task in BENCH_TASKS.items():
        made = task.make(2, 4)
        if number := re.match(r"ar1-([\d.]+)", name):
            inner = made.task if isinstance(made, Noisy) else made
            assert (inner.gamma, noise_level(made) > 0) == (float(number[1]), name.endswith("noise"))
        if number := re.match(r"condition-(\d+)", name):
            assert np.linalg.cond(made.Lambda) == pytest.approx(int(number[1]))
    chances = [BENCH_TASKS[name].make(2, 4).switch for name in ("switches-rare", "switches", "switches-often")]
    assert chances == sorted(chances)
    assert noise_level(BENCH_TASKS["loud-noise"].make(2, 4)) == pytest.approx(2 * math.sqrt(0.1))
    unknown = BENCH_TASKS["unknown-speed"].make(2, 4)
    assert isinstance(unknown, UnknownDrift)
    assert f"{unknown.gammas[0]} to {unknown.gammas[-1]}" in BENCH_TASKS["unknown-speed"].about


@pytest.mark.parametrize("name", BENCH_TASKS)
def test_clean_labels_have_variance_1(name):
    """At every position, by the kernel and Lambda, rtol 1e-9; at other sizes too; the noise is a tenth, or four."""
    for d, n in ((1, 3), (4, 9)):
        task = BENCH_TASKS[name].make(d, n)
        assert (task.d, task.n) == (d, n)
        np.testing.assert_allclose(np.diag(task.weight_kernel()) * np.trace(task.Lambda), 1, rtol=1e-9)
        wanted = 0.4 if name == "loud-noise" else 0.1 * (name.endswith("noise") or name == "unknown-speed")
        assert noise_level(task) ** 2 == pytest.approx(wanted)
        assert BENCH_TASKS[name].reference(task) == ("best linear" if name == "leaps" else "Bayes")


@pytest.mark.statistical(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_heavier_inputs_have_the_moments_that_are_declared(dtype):
    """Student's t with 5 degrees of freedom: 400,000 numbers of variance 1; |z| on average 0.7351, as its density says;
    an average of 4th powers never settles: the 8th is infinite. Its square has no third moment: by distribution,
    exactly.
    """
    law = BENCH_TASKS["heavier-inputs"].make(2, 3).inputs
    z = law.draw((400_000,), make_generator("student"), dtype, None).double()
    assert law.kurtosis == 9
    # E|t| of nu = 5: 2 sqrt(5) Gamma(3) / (Gamma(5/2) 4 sqrt(pi)), over the standard deviation sqrt(5/3).
    expected = 2 * math.sqrt(5) * math.gamma(3) / (math.gamma(2.5) * 4 * math.sqrt(math.pi)) / math.sqrt(5 / 3)
    chance.assert_mean(z.abs(), expected)
    chance.assert_p(stats.kstest(z.numpy() * math.sqrt(5 / 3), stats.t(5).cdf).pvalue)


def test_tasks_are_found_by_name():
    """In the order asked for, each once; "all" are those that are not shifted, and "shifted" the others."""
    assert list(find_tasks(["leaps", "ar1-0.9", "leaps"])) == ["leaps", "ar1-0.9"]
    everything = find_tasks(["all"])
    assert list(everything) == [name for name, task in BENCH_TASKS.items() if not task.shifted]
    assert set(find_tasks(["shifted"])) == set(BENCH_TASKS) - set(everything)
    assert all(task is BENCH_TASKS[name] for name, task in everything.items())


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "names must be at least one name of a task"),
        ("leaps", r'at least one name of a task, such as \["all"\], got \'leaps\''),
        ([3], "names must be names of tasks, got 3"),
        (["leap"], r"got 'leap'; did you mean leaps\? \(icl-bench tasks lists them\)"),
        (["ar1-0.96"], "got 'ar1-0.96'; did you mean .*ar1-0.9"),
        (["zzz"], r"or file.py:Name of one's own, got 'zzz' \(icl-bench"),
        (["nowhere.py:Task"], "spec must name a file that is there, got 'nowhere.py:Task'"),
        (["math:pi"], "names must be of classes or functions of|written in a file"),
    ],
)
def test_names_that_are_none_are_refused_with_the_nearest(names, message):
    with pytest.raises(ValueError, match=message):
        find_tasks(names)


# --- several at once


def test_a_mixture_is_equal_parts_of_all():
    """Where `icl.tasks.mixtures.Mixture` takes the tasks, its prompts to the bit; it also takes several laws of inputs,
    and tasks that have nothing but d, n and sample.
    """
    three = [BENCH_TASKS[name].make(2, 4) for name in ("ar1-0.9", "ar2-swing", "smooth-noise")]
    ours, theirs = (kind(three).sample(6, generator=make_generator("mixed")) for kind in (mixture, Mixture))
    assert all(torch.equal(getattr(ours, part), getattr(theirs, part)) for part in "xyw")
    both = [BENCH_TASKS["heavy-inputs"].make(2, 4), BENCH_TASKS["leaps"].make(2, 4), CustomTask("mine", three[0], 2, 4)]
    found = mixture(both).sample(6, generator=make_generator("mixed"), dtype=torch.float64)
    assert (found.batch, found.d, found.n, found.x.dtype) == (6, 2, 4, torch.float64)
    assert (mixture(both).d, mixture(both).n) == (2, 4)


@pytest.mark.usefixtures("as_installed")
def test_a_mixture_refuses_what_does_not_go_together():
    one, other = (BENCH_TASKS["ar1-0.9"].make(2, n) for n in (4, 5))
    with pytest.raises(ValueError, match=r"tasks must be at least one, of one d and one n, got \[\(2, 4\), \(2, 5\)\]"):
        mixture([one, other])
    with pytest.raises(ValueError, match="batch must be a multiple of the 2 tasks, got 3"):
        mixture([one, one]).sample(3, generator=make_generator("mixed"))


# --- of one's own

OWN = '''
import torch
from icl.tasks import DriftingRegression, HeavyTailedDrift, Noisy


class Mine:
    """Signs of a sum.

    And more of it."""

    title = "signs"

    def __init__(self, d, n):
        self.d, self.n = d, n

    def sample(self, batch, *, generator, dtype, device):
        x = torch.randn(batch, self.n + 1, self.d, generator=generator, dtype=dtype)
        return x, x.sum(-1).sign()

    def floor(self, prompt):
        return 0 * prompt.y


def slow(d, n):
    return Noisy(DriftingRegression(d, n, 0.97, d**-0.5, 0.2), 0.3)


def leaping(d, n):
    return HeavyTailedDrift(d, n, 0.9, d**-0.5, 0.2)


def small(d, n):
    return Mine(d, 3)


def fails(d):
    return Mine(d, 3)


constant = 3
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "own_tasks.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder", "as_installed")
def test_a_task_of_ones_own_is_found_by_its_file():
    """It keeps what was asked for as its name; its floor is Bayes'; a drift of the library has the floors it has, and
    a genie where there is one.
    """
    ((name, task),) = find_tasks(["own_tasks.py:Mine"]).items()
    assert isinstance(task, BenchTask)
    assert (name, task.name, task.title, task.about) == (name, name, "signs", "Signs of a sum.")
    made = task.make(2, 5)
    prompt = made.sample(3, generator=make_generator("own"))
    assert isinstance(prompt, Prompt)
    torch.testing.assert_close(clean(prompt), prompt.y)
    assert not isinstance(made, Task)
    assert task.reference(made) == "Bayes"
    (floor,) = task.floors(made).values()
    assert isinstance(floor, Expected)
    assert not np.asarray(floor.errors(prompt)).any()

    slow = find_tasks(["own_tasks.py:slow"])["own_tasks.py:slow"]
    made, about = slow.make(2, 5), slow.about
    prompt = made.sample(3, generator=make_generator("own"), dtype=torch.float64)
    expected = joint.label_errors(prompt.x.numpy(), made)
    np.testing.assert_allclose(slow.floors(made)["Bayes"].errors(prompt), expected, rtol=1e-9)
    assert about == "A task of one's own."
    leaping = find_tasks(["own_tasks.py:leaping"])["own_tasks.py:leaping"]
    made = leaping.make(2, 5)
    assert (list(leaping.floors(made)), leaping.reference(made)) == (["genie", "best linear"], "best linear")


@pytest.mark.usefixtures("folder", "as_installed")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("small", "task must have n = 5, as it was asked for, got 3 of own_tasks.py:small"),
        ("fails", r"own_tasks.py:fails must make a task when called with \(d, n\), got TypeError"),
        ("constant", r"names must be of classes or functions of \(d, n\), got 'own_tasks.py:constant', int"),
    ],
)
def test_what_makes_no_task_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        find_tasks([f"own_tasks.py:{name}"])[f"own_tasks.py:{name}"].make(2, 5)
