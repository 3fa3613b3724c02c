"""Floors: each is the theory's for the task's own law, they lie in order, and who is at best measures them."""

import itertools
from dataclasses import dataclass, replace

import chance
import numpy as np
import pytest
import torch

from icl import filters
from icl.experiments.evaluation import one_step_ahead
from icl.profile import make_generator
from icl.tasks import (
    DriftingRegression,
    HeavyTailedDrift,
    ManyDrifts,
    Mixture,
    Noisy,
    Prompt,
    RegimeSwitching,
    Regression,
    StationaryRegression,
    UnknownDrift,
    clean,
)
from icl.tasks.drifts import sinusoids
from icl.theory import floors
from icl.theory.floors import joint, unknown_drift
from icl_bench.floors import RevealedPrompt, known_floors, revealing
from icl_bench.tasks import BENCH_TASKS, told_kalman

pytestmark = pytest.mark.usefixtures("as_installed")
SWITCHES = RegimeSwitching(2, 6, 0.9, 1.0, 0.3, switch=0.2)
LEAPS = HeavyTailedDrift(2, 6, 0.9, 1.0, 0.3, nu=3.0)
SPEEDS = UnknownDrift(2, 6, [0.5, 0.95], [0.8, 0.2], [0.3, 0.1])
FIRST = DriftingRegression(2, 6, 0.9)


@pytest.mark.parametrize("task", [SWITCHES, LEAPS, SPEEDS], ids=lambda task: type(task).__name__)
def test_prompts_are_the_tasks_and_know_what_decided_them(task):
    """To the bit, inputs, labels and weights, and what `reveal` tells of the same stream."""
    assert isinstance(revealing(task), type(task))
    prompt = revealing(task).sample(3, generator=make_generator("told"), dtype=torch.float64)
    own, told = task.reveal(3, generator=make_generator("told"), dtype=torch.float64)
    assert isinstance(prompt, RevealedPrompt)
    assert all(torch.equal(getattr(prompt, part), getattr(own, part)) for part in "xyw")
    if isinstance(told, torch.Tensor):
        assert torch.equal(prompt.latent, told)
    else:
        assert torch.equal(prompt.latent.variance, told.variance)
        assert torch.equal(prompt.latent.restart, told.restart)


def test_what_hides_nothing_stays_as_it_is():
    assert revealing(FIRST) is FIRST
    assert revealing(revealing(SPEEDS)).gammas.tolist() == [0.5, 0.95]


def errors(task, prompt):
    return {name: np.asarray(floor.errors(prompt)) for name, floor in known_floors(task).items()}


def test_floors_are_those_of_the_tasks_own_law():
    """Each is the theory's function on the same numbers, to the bit; from float32 prompts too, to their rounding."""
    task = revealing(SWITCHES)
    prompt = task.sample(300, generator=make_generator("floors"), dtype=torch.float64)
    x, y, told = prompt.x.numpy(), prompt.y.numpy(), prompt.latent
    found = errors(task, prompt)
    genie = floors.genie_errors(x, SWITCHES, told.variance.numpy(), told.restart.numpy())
    np.testing.assert_array_equal(found["genie"], genie)
    np.testing.assert_array_equal(found["Bayes"], floors.switching_predictions(x, y, SWITCHES)[1])
    np.testing.assert_allclose(found["best linear"], joint.label_errors(x, SWITCHES), rtol=1e-9)

    task = revealing(SPEEDS)
    prompt = task.sample(5, generator=make_generator("floors"), dtype=torch.float64)
    bank, found = unknown_drift.bank_predictions(prompt.x.numpy(), prompt.y.numpy(), SPEEDS), errors(task, prompt)
    assert set(prompt.latent.tolist()) == {0, 1}
    for i, member in enumerate(prompt.latent.tolist()):
        np.testing.assert_array_equal(found["genie"][i], bank.each_error[i, :, member])
    np.testing.assert_array_equal(found["Bayes"], bank.error)
    np.testing.assert_allclose(found["best linear"], joint.label_errors(prompt.x.numpy(), SPEEDS), rtol=1e-9)
    with pytest.raises(ValueError, match=r"x must have shape \(any, 7, 2\) to match the task, got \(5, 4, 2\)"):
        known_floors(task)["best linear"].errors(prompt.last(3))


@pytest.mark.parametrize("name", ["ar1-0.95", "smooth-noise", "leaps"])
def test_floors_are_the_same_on_any_number_of_threads(name):
    """To the bit, at a size at which factors are shared out between threads: runs are compared by them."""
    task = BENCH_TASKS[name].make(3, 200)
    prompt = task.sample(2, generator=make_generator("threads"), dtype=torch.float64)
    found, before = [], torch.get_num_threads()
    for threads in (1, 4):
        torch.set_num_threads(threads)
        found.append(errors(task, prompt))
        assert torch.get_num_threads() == threads
    torch.set_num_threads(before)
    for floor, once in found[0].items():
        np.testing.assert_array_equal(once, found[1][floor])


@pytest.mark.parametrize("name", [name for name in BENCH_TASKS if name != "leaps"])
def test_best_linear_floors_are_the_joint_laws(name):
    """By `icl.theory.floors.joint`, rtol 1e-9; those of leaps, which know how large they were, have their own test."""
    task = BENCH_TASKS[name].make(2, 9)
    prompt = task.sample(3, generator=make_generator("joint"), dtype=torch.float64)
    found = errors(task, prompt)
    linear = found.get("best linear", found["Bayes"])
    np.testing.assert_allclose(linear, joint.label_errors(prompt.x.numpy(), task), rtol=1e-9)


def responses(predictor, prompt):
    """R with y - y_hat = R y, of a predictor that is linear in the labels: told one label at a time."""
    batch, time, _ = prompt.x.shape
    one = torch.eye(time, dtype=prompt.y.dtype).repeat(batch, 1)
    x = prompt.x.repeat_interleave(time, 0)
    answers = one_step_ahead(predictor, Prompt(x, one, torch.zeros_like(x)))
    return np.eye(time) - answers.reshape(batch, time, time).swapaxes(1, 2).numpy()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_floors_of_leaps_are_those_of_the_filters_given_the_steps(dtype):
    """The labels' covariance is that of weights written as sums of their steps, and R that of the filter of first-order
    drift, told one label at a time; the genie's errors are what is left of a label by regression on those before it.
    rtol 1e-9. The genie's is below in each prompt and position.
    """
    task = revealing(LEAPS)
    prompt = task.sample(4, generator=make_generator("floors"), dtype=dtype)
    found = errors(task, prompt)
    variance = prompt.latent.variance.double().numpy()
    prompt = Prompt(prompt.x.double(), prompt.y.double(), prompt.w.double())
    R = responses(filters.kalman(DriftingRegression(2, 6, LEAPS.gamma, LEAPS.sigma_w, LEAPS.sigma_e)), prompt)
    ages = np.subtract.outer(np.arange(7), np.arange(7))
    steps = np.where(ages >= 0, LEAPS.gamma ** np.maximum(ages, 0), 0.0)
    for i, x in enumerate(prompt.x.numpy()):
        start = LEAPS.gamma ** np.arange(1, 8) * LEAPS.sigma_w
        K = ((steps * variance[i]) @ steps.T + np.outer(start, start)) * (x @ x.T)
        np.testing.assert_allclose(found["best linear"][i], np.diag(R[i] @ K @ R[i].T), rtol=1e-9)
        for t in range(1, 7):
            left = K[t, t] - K[t, :t] @ np.linalg.solve(K[:t, :t], K[:t, t])
            np.testing.assert_allclose(found["genie"][i, t], left, rtol=1e-9)
    assert (found["genie"] <= found["best linear"] * (1 + 1e-12)).all()


def test_floors_are_the_same_in_blocks(monkeypatch):
    """Prompts are worked on some at a time; each is itself, whatever its block."""
    for task, size in ((FIRST, 3 * 49), (revealing(LEAPS), 2 * 49)):
        prompt = task.sample(7, generator=make_generator("blocks"), dtype=torch.float64)
        whole = errors(task, prompt)
        with monkeypatch.context() as patch:
            patch.setattr("icl_bench.floors._TOGETHER", size)
            for name, each in errors(task, prompt).items():
                np.testing.assert_array_equal(each, whole[name])


def settled(task, prompts, last, **streamed):
    prompt = task.sample(prompts, generator=make_generator("settled", **streamed), dtype=torch.float64)
    return prompt, {name: each[:, -last:].mean(1) for name, each in errors(task, prompt).items()}


@pytest.mark.statistical(2)
@pytest.mark.parametrize(("name", "prompts"), [("switches-often", 1_500), ("unknown-speed", 12_000), ("leaps", 1_500)])
def test_floors_lie_in_order(name, prompts):
    """genie < Bayes < best linear, by paired differences, which are of 12 standard errors and more; those of leaps have
    no variance, and genie is below in most prompts.
    """
    _, found = settled(BENCH_TASKS[name].make(3, 12), prompts, 6)
    levels = list(found.values())
    assert list(found) == (["genie", "best linear"] if name == "leaps" else ["genie", "Bayes", "best linear"])
    for lower, upper in itertools.pairwise(levels):
        if name == "leaps":
            chance.assert_mostly(upper > lower, by=12)
        else:
            chance.assert_above(upper - lower, by=9)


def squares(predicted, prompt, last):
    return (predicted - clean(prompt)).square()[:, -last:].mean(1).numpy()


@pytest.mark.statistical(3)
@pytest.mark.parametrize("name", ["ar1-0.95-noise", "condition-64", "heavy-inputs"])
def test_the_kalman_filter_meets_the_floor(name):
    """Where drift is of first order, the filter that is told its law errs as much as the floor says: 6,000 prompts of
    16, by the paired difference; a floor that is 20% too high or too low is caught.
    """
    task = BENCH_TASKS[name].make(3, 16)
    prompt, found = settled(task, 6_000, 8)
    measured = squares(one_step_ahead(told_kalman(task), prompt), prompt, 8)
    chance.assert_mean(measured - found["Bayes"], 0, error=0.014 * found["Bayes"].mean())
    for way, wrong in ((1, 0.8), (-1, 1.2)):
        chance.assert_above(way * (measured - wrong * found["Bayes"]), by=10)


@pytest.mark.statistical(4)
def test_who_is_at_best_meets_the_floor():
    """The posterior mean of switches, by their run lengths, and of unknown speeds, by the bank of filters; and the best
    linear predictor of switches, the Kalman filter of their kernel: 5,000 and 3,000 prompts of 12. Of switches, the
    genie's floor is told from the right one.
    """
    task = BENCH_TASKS["switches-often"].make(2, 12)
    prompt, found = settled(task, 5_000, 6)
    y_hat = floors.switching_predictions(prompt.x.numpy(), prompt.y.numpy(), task)[0]
    measured = squares(torch.as_tensor(y_hat), prompt, 6)
    chance.assert_mean(measured - found["Bayes"], 0, error=0.0095)
    chance.assert_above(found["Bayes"] - found["genie"], by=20)
    linear = squares(one_step_ahead(told_kalman(task), prompt), prompt, 6)
    chance.assert_mean(linear - found["best linear"], 0, error=0.0105)

    task = BENCH_TASKS["unknown-speed"].make(2, 12)
    prompt, found = settled(task, 3_000, 6)
    y_hat = unknown_drift.bank_predictions(prompt.x.numpy(), prompt.y.numpy(), task).y_hat
    chance.assert_mean(squares(torch.as_tensor(y_hat), prompt, 6) - found["Bayes"], 0, error=0.0095)


@pytest.mark.one_draw("the squares have no variance")
def test_the_kernels_filter_is_best_linear_on_leaps():
    """3,000 prompts of 12 of one draw: squares of leaps have no variance, and no other draw is sure to agree."""
    task = BENCH_TASKS["leaps"].make(2, 12)
    prompt, found = settled(task, 3_000, 6)
    linear = squares(one_step_ahead(told_kalman(task), prompt), prompt, 6)
    gap = linear - found["best linear"]
    assert abs(gap.mean()) < 4 * gap.std() / 3_000**0.5


@dataclass(frozen=True, eq=False)
class Halves(Regression):
    """A drift of one's own, known by its kernel."""

    def weight_kernel(self):
        return 0.5 * np.eye(self.n + 1) + 0.5

    def _weights(self, batch, generator, dtype, device):
        shape = (batch, self.n + 2, self.d)
        drawn = torch.randn(shape, generator=generator, dtype=dtype, device=generator.device)
        return 0.5**0.5 * (drawn[:, 1:] + drawn[:, :1])


@dataclass(frozen=True, eq=False)
class Sampled(Halves):
    """One whose prompts are not drawn as its kernel says."""

    def sample(self, batch, *, generator, dtype=torch.float32, device=None):
        return super().sample(batch, generator=generator, dtype=dtype, device=device)


def test_what_is_not_known_is_not_said():
    """Noise on switches leaves the best linear floor alone; without what a genie is told there is no genie; labels that
    follow from others have no floor, nor has what is no drift or not known by its kernel.
    """
    gaussian = [FIRST, Noisy(FIRST, 0.1), StationaryRegression(2, 1), sinusoids(2, 3, omega=0.3)]
    assert [list(known_floors(task)) for task in gaussian] == [["Bayes"]] * 4
    assert list(known_floors(Noisy(SWITCHES, 0.1))) == ["best linear"]
    assert list(known_floors(Noisy(revealing(LEAPS), 0.1))) == ["best linear"]
    assert list(known_floors(revealing(replace(SWITCHES, sigma_e=1e-5)))) == ["genie", "best linear"]
    assert list(known_floors(SWITCHES)) == ["Bayes", "best linear"]
    assert list(known_floors(Halves(2, 6))) == list(known_floors(Noisy(Halves(2, 6), 0.1))) == ["best linear"]
    nothing = [
        *(StationaryRegression(2, 2), sinusoids(2, 4, omega=0.3), StationaryRegression(2, 1, Sigma_w=2 * np.eye(2))),
        *(Noisy(SPEEDS, 0.1), Mixture([FIRST, FIRST]), ManyDrifts(2, 6), Sampled(2, 6), None, FIRST.sample),
    ]
    assert [known_floors(task) for task in nothing] == [{}] * len(nothing)


def test_a_genie_needs_a_prompt_that_knows():
    """The same numbers without what decided them are refused, by name."""
    task = revealing(SWITCHES)
    prompt = SWITCHES.sample(2, generator=make_generator("told"), dtype=torch.float64)
    with pytest.raises(ValueError, match="prompt must be one that the task drew, which knows what decided it, got"):
        known_floors(task)["genie"].errors(prompt)
