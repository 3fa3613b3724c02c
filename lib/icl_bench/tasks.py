"""Benchmark tasks by name, with their lower bounds, and user-defined tasks.

:data:`BENCH_TASKS` holds the tasks for training and testing, and the shifted ones that are held out for testing.
Weights are those of :func:`drifting_tasks`, whose clean label has variance 1, and of two more: heavy-tailed inputs, and
drift of unknown speed. :meth:`BenchTask.floors` are the exact lower bounds on the error. :func:`find_tasks` finds tasks
by name, user-defined ones too (:class:`~icl_bench.custom_task.CustomTask`), and :func:`mixture` is the training
distribution of a model for several of them.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icl import _checks, filters
from icl._bounds import Count, NonNegative, validate_fields, validated
from icl.experiments.grid import Expected
from icl.tasks import (
    DriftingRegression,
    HeavyTailedDrift,
    LinearDrift,
    Noisy,
    Prompt,
    RegimeSwitching,
    Regression,
    SmoothDrift,
    Task,
    UnknownDrift,
)
from icl.tasks.core import LAPLACE, InputLaw
from icl.tasks.drifts import ar2
from icl.tasks.noise import noise_level
from icl.theory import floors
from icl.theory.floors import joint
from icl_bench import imports
from icl_bench.custom_task import CustomTask
from icl_bench.floors import known_floors, revealing

#: Noise variance of noisy labels, in units of the clean label's variance: the usual and the loud one.
_NOISE, _LOUD = 0.1, 0.4
#: Drift rates of the task with unknown drift.
_SPEEDS = (0.7, 0.9, 0.97, 0.99, 0.997)


@validated
def drifting_tasks(d: Count = 10, n: Count = 200, *, v: NonNegative = 0.1) -> dict[str, Task]:
    """Drifting tasks at one scale: AR(1), AR(2), smooth, regime-switching and heavy-tailed; clean labels of variance 1.

    Every coordinate of the weights has variance 1/d at all times, and the inputs' covariance has trace d.

    Args:
        d: dimension of the inputs.
        n: labelled examples a prompt.
        v: variance of the noise in noisy labels, in units of y^2.
    """
    k0 = 1 / d
    first = {f"AR(1), γ = {gamma}": _first_order(d, n, gamma) for gamma in (0.8, 0.9, 0.95, 0.975, 0.99)}
    noisy = {f"{name}, noise": Noisy(task, v**0.5) for name, task in first.items()}
    slow = 0.95, math.sqrt(k0), math.sqrt((1 - 0.95**2) * k0)
    spectrum = np.geomspace(1, 16, d)
    return {
        **first,
        **noisy,
        "AR(2), poles .95 and .8": _real_poles(d, n, 0.95, 0.8),
        "AR(2), poles .95 exp(±.3i)": ar2(d, n, rho=0.95, omega=0.3, variance=k0),
        "smooth curves, noise": Noisy(SmoothDrift(d, n, 3, math.sqrt(k0)), v**0.5),
        "switches": RegimeSwitching(d, n, 0.99, math.sqrt(k0), math.sqrt((1 - 0.99**2) * k0), switch=0.02),
        "leaps, t with ν = 3": HeavyTailedDrift(d, n, *slow, nu=3.0),
        "inputs of condition 16": _first_order(d, n, 0.95, Lambda=np.diag(spectrum * d / spectrum.sum())),
    }


def _first_order(d: int, n: int, gamma: float, Lambda: np.ndarray | None = None) -> DriftingRegression:
    """AR(1) drift in steady state, every weight of variance 1/d."""
    push = math.sqrt((1 - gamma**2) / d)
    return DriftingRegression(d, n, gamma, sigma_w=math.sqrt(1 / d), sigma_e=push, Lambda=Lambda)


def _real_poles(d: int, n: int, a: float, b: float) -> LinearDrift:
    """AR(2) drift with poles a and b in steady state, every weight of variance 1/d."""
    one, two, k0 = a + b, -a * b, 1 / d
    lag = one / (1 - two)
    pushed = (1 + two) * ((1 - two) ** 2 - one**2) / (1 - two)
    P_0 = k0 * np.array([[1, lag], [lag, 1]])
    return LinearDrift(d, n, F=[[one, two], [1, 0]], Q=[[pushed * k0, 0], [0, 0]], h=[1, 0], P_0=P_0)


@validated
def best_possible(task: Task) -> Expected:
    """Lower bound on any predictor's error against the clean label: the posterior mean's, given the inputs.

    For :class:`~icl.tasks.drifts.RegimeSwitching` it averages over all possible times of the last switch; otherwise it
    is the error for Gaussian weights with the task's kernel, which for non-Gaussian weights is that of the best
    predictor linear in the labels.
    """
    if isinstance(task, RegimeSwitching):
        return Expected(lambda prompt: floors.switching_predictions(prompt.x.numpy(), prompt.y.numpy(), task)[1])
    return Expected(lambda prompt: joint.label_errors(prompt.x.numpy(), task))


@validated
def told_kalman(task: Task) -> filters.Filter:
    """Oracle Kalman filter for first-order drift, with the task's variance, lag-one correlation and noise.

    It is well specified for first-order drift; on other tasks it shows the cost of misspecification.

    Raises:
        ValueError: if the weights' variance changes along the prompt.
    """
    k = np.asarray(task.weight_kernel())
    k0 = float(k[0, 0])
    if not np.allclose(np.diag(k), k0, rtol=1e-6):
        raise ValueError(f"task must have weights of one variance, got {np.diag(k).min():g} to {np.diag(k).max():g}")
    gamma = min(float(k[1, 0]) / k0, 0.9999)
    law = DriftingRegression(task.d, task.n, gamma, sigma_w=math.sqrt(k0), sigma_e=math.sqrt((1 - gamma**2) * k0))
    return filters.kalman(law, sigma_y=noise_level(task))


@dataclass(frozen=True, eq=False)
class BenchTask:
    """Named benchmark task.

    Attributes:
        name: on the command line.
        title: display title.
        about: one-sentence description.
        make: (d, n) -> the task at these sizes. Of the library's tasks clean labels have variance 1; a prompt of one
            with latent variables is a :class:`~icl_bench.floors.RevealedPrompt`.
        shifted: True for a held-out task.
    """

    name: str
    title: str
    about: str
    make: Callable[[int, int], Any]
    shifted: bool = False

    def __post_init__(self) -> None:
        """Check names and that `make` makes a task."""
        validate_fields(self)
        for name in ("name", "title", "about"):
            given: Any = getattr(self, name)
            if not isinstance(given, str) or not given:
                raise ValueError(f"{name} must be a non-empty string, got {given!r}")
        if not callable(self.make):
            raise ValueError(f"make must be a function of (d, n), got {self.make!r}")

    def floors(self, task: Any) -> dict[str, Expected]:
        """Exact lower bounds: functions from prompts to expected squared errors against the clean label.

        - "genie": given the latent variables of regime switching, heavy-tailed or unknown drift;
        - "Bayes": the posterior mean's, a bound for every predictor; for a user-defined task, its `floor`;
        - "best linear": the best error of a predictor linear in the labels. For Gaussian weights it equals the Bayes
          error, and only that is returned.

        Args:
            task: made by `make`, at any size.
        """
        if isinstance(task, CustomTask):
            return {"Bayes": Expected(task.floor)} if task.has_floor else known_floors(task.task)
        _checks.instance("task", task, Task)
        return known_floors(task)

    def reference(self, task: Any) -> str:
        """Floor used as the denominator of ratios: "Bayes" if it is known, else "best linear"; "" if neither is."""
        task_floors = self.floors(task)
        return next((name for name in ("Bayes", "best linear") if name in task_floors), "")


def _of_chapter(title: str, d: int, n: int) -> Task:
    return revealing(_chapters(d, n)[title])


@cache
def _chapters(d: int, n: int) -> dict[str, Task]:
    """All of the chapter's tasks, cached: a run asks for one at a time, hundreds of times."""
    return drifting_tasks(d, n, v=_NOISE)


def _speed(gamma: float, d: int, n: int) -> Task:
    return _first_order(d, n, gamma)


def _loud(d: int, n: int) -> Task:
    return Noisy(_first_order(d, n, 0.95), math.sqrt(_LOUD))


def _condition(ratio: float, d: int, n: int) -> Task:
    spectrum = np.geomspace(1, ratio, d)
    return _first_order(d, n, 0.95, Lambda=np.diag(spectrum * d / spectrum.sum()))


def _inputs(law: InputLaw, d: int, n: int) -> Task:
    return replace(_first_order(d, n, 0.95), inputs=law)


def _switching(switch: float, d: int, n: int) -> Task:
    within = math.sqrt((1 - 0.99**2) / d)
    return revealing(RegimeSwitching(d, n, 0.99, math.sqrt(1 / d), within, switch=switch))


def _leaping(d: int, n: int) -> Task:
    return revealing(HeavyTailedDrift(d, n, 0.95, math.sqrt(1 / d), math.sqrt((1 - 0.95**2) / d), nu=5.0))


def _swinging(d: int, n: int) -> Task:
    return ar2(d, n, rho=0.95, omega=0.6, variance=1 / d)


def _unknown_speed(d: int, n: int) -> Task:
    gammas = np.array(_SPEEDS)
    return revealing(UnknownDrift(d, n, gammas, np.sqrt((1 - gammas**2) / d), math.sqrt(_NOISE)))


def _students_t(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype, device: Any) -> Tensor:
    """Draw from Student's t with 5 degrees of freedom, scaled to variance 1."""
    normal = torch.randn(shape, generator=generator, dtype=dtype, device=generator.device)
    # Half a chi-square with 5 degrees of freedom is a gamma variate of shape 5/2; in float64 it is never 0.
    halves = torch.full(shape, 5 / 2, dtype=torch.float64, device=generator.device)
    drawn = normal * (1.5 / torch._standard_gamma(halves, generator=generator)).sqrt().to(dtype)
    return drawn if device is None else drawn.to(device)


_STUDENT = InputLaw("Student's t, 5 degrees of freedom", 9.0, _students_t)


def _catalogue() -> Iterator[BenchTask]:
    noise = "noise of a tenth of their variance"
    for noisy in (False, True):
        for gamma in (0.8, 0.9, 0.95, 0.975, 0.99):
            title = f"AR(1), γ = {gamma}{', noise' if noisy else ''}"
            about = (
                f"Each weight is {gamma} times the one before, plus noise; labels carry {noise if noisy else 'none'}."
            )
            yield BenchTask(f"ar1-{gamma}{'-noise' if noisy else ''}", title, about, partial(_of_chapter, title))
    for name, title, about in (
        ("ar2-creep", "AR(2), poles .95 and .8", "Weights have a velocity, and creep from one place to the next."),
        ("ar2-swing", "AR(2), poles .95 exp(±.3i)", "Weights swing, once in about 21 examples."),
        ("smooth-noise", "smooth curves, noise", f"Weights run along a smooth random curve; labels carry {noise}."),
        ("switches", "switches", "Weights hardly move, and all are drawn anew once in about 50 examples."),
        ("condition-16", "inputs of condition 16", "As ar1-0.95, but one input varies 16 times as much as another."),
    ):
        yield BenchTask(name, title, about, partial(_of_chapter, title))
    # Not the chapter's ν = 3: for ν <= 4 squared errors have infinite variance, and one prompt may decide a comparison.
    about = "As ar1-0.95, but most steps are small and some are leaps."
    yield BenchTask("leaps", "leaps, t with ν = 5", about, _leaping)
    yield BenchTask(
        "heavy-inputs",
        "inputs with heavy tails",
        "As ar1-0.95, but inputs have Laplace's law: many are small and some are large.",
        partial(_inputs, LAPLACE),
    )
    slow, fast = _SPEEDS[-1], _SPEEDS[0]
    yield BenchTask(
        "unknown-speed",
        "unknown speed, noise",
        f"AR(1) of one of {len(_SPEEDS)} speeds, γ = {fast} to {slow}, drawn for each prompt; labels carry {noise}.",
        _unknown_speed,
    )
    for name, title, about, make in (
        ("ar1-0.6", "faster: AR(1), γ = 0.6", "Faster than all that is trained on.", partial(_speed, 0.6)),
        ("ar1-0.995", "slower: AR(1), γ = 0.995", "Slower than all that is trained on.", partial(_speed, 0.995)),
        ("loud-noise", "louder: AR(1), γ = 0.95", "As ar1-0.95-noise, with four times the noise.", _loud),
        ("ar2-fast-swing", "AR(2), poles .95 exp(±.6i)", "Weights swing, once in about 10 examples.", _swinging),
        ("switches-rare", "rare switches", "As switches, once in about 200 examples.", partial(_switching, 0.005)),
        ("switches-often", "frequent switches", "As switches, once in about 17 examples.", partial(_switching, 0.06)),
        ("condition-64", "inputs of condition 64", "As condition-16, but 64 times.", partial(_condition, 64.0)),
        (
            "heavier-inputs",
            "inputs with heavier tails",
            "As heavy-inputs, but of Student's t with 5 degrees of freedom.",
            partial(_inputs, _STUDENT),
        ),
    ):
        yield BenchTask(name, title, about, make, shifted=True)


#: All built-in tasks in display order, those for training before the shifted ones.
BENCH_TASKS: dict[str, BenchTask] = {task.name: task for task in _catalogue()}


@validated
def find_tasks(names: Sequence[str]) -> dict[str, BenchTask]:
    """Find tasks by name, without duplicates, in the order given.

    Args:
        names: of :data:`BENCH_TASKS`; "all", those that are not shifted; "shifted", those that are; or `file.py:Name`
            or `package.module:Name` of a user-defined task (:mod:`icl_bench.custom_task`), whose name that is.

    Raises:
        ValueError: if a name is unknown, with close matches.
    """
    given: Any = names
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise ValueError(f'names must be at least one name of a task, such as ["all"], got {given!r}')
    tasks: dict[str, BenchTask] = {}
    for name in given:
        if not isinstance(name, str):
            raise ValueError(f"names must be names of tasks, got {name!r}")
        if name in ("all", "shifted"):
            tasks |= {key: task for key, task in BENCH_TASKS.items() if task.shifted == (name == "shifted")}
        elif ":" in name:
            tasks[name] = _user_task(name)
        elif name in BENCH_TASKS:
            tasks[name] = BENCH_TASKS[name]
        else:
            near = imports.nearest(name, [*BENCH_TASKS, "all", "shifted"])
            raise ValueError(
                f"names must be of tasks of the benchmark, or file.py:Name of one's own, got {name!r}{near} "
                f"(icl-bench tasks lists them)"
            )
    return tasks


def _user_task(spec: str) -> BenchTask:
    maker, _ = imports.load(spec)
    if not callable(maker):
        raise ValueError(f"names must be of classes or functions of (d, n), got {spec!r}, {type(maker).__qualname__}")
    about = (inspect.getdoc(maker) or "").partition("\n")[0] if "__doc__" in vars(maker) else ""
    title = getattr(maker, "title", None)
    return BenchTask(
        spec,
        title if isinstance(title, str) else spec.rpartition(":")[2],
        about or "A task of one's own.",
        partial(_custom_task, spec, maker),
    )


def _custom_task(spec: str, maker: Callable[[int, int], Any], d: int, n: int) -> Any:
    try:
        task = maker(d, n)
    except Exception as error:
        raise ValueError(
            f"{spec} must make a task when called with (d, n), got {type(error).__name__}: {error}"
        ) from error
    custom = CustomTask(spec, task, d, n)
    ready = isinstance(task, Regression | Noisy) and type(task).__module__.startswith("icl.tasks.")
    return revealing(task) if ready else custom


@dataclass(frozen=True, eq=False)
class SeveralTasks:
    """Mixture of tasks of any kinds: batches with an equal share of prompts from each, in task order.

    As :class:`~icl.tasks.mixtures.Mixture`, but the tasks only need d, n and sample: their input laws may differ, and
    they need no kernel.

    Attributes:
        tasks: at least one, all of the same d and n.
    """

    tasks: Sequence[Any]

    def __post_init__(self) -> None:
        """Check that all are tasks of one size."""
        validate_fields(self)
        for task in self.tasks:
            if isinstance(task, type) or not all(hasattr(task, name) for name in ("d", "n", "sample")):
                raise ValueError(f"tasks must have d, n and sample, got {task!r}")
        sizes = {(task.d, task.n) for task in self.tasks}
        if len(sizes) != 1:
            raise ValueError(f"tasks must be at least one, of one d and one n, got {sorted(sizes)}")

    @property
    def d(self) -> int:
        """Dimension of the inputs."""
        return int(self.tasks[0].d)

    @property
    def n(self) -> int:
        """Number of labelled examples."""
        return int(self.tasks[0].n)

    @validated
    def sample(
        self,
        batch: Count,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> Prompt:
        """Draw `batch` prompts, a multiple of the number of tasks, from `generator`, in `dtype`, on `device`."""
        share, rest = divmod(batch, len(self.tasks))
        if rest:
            raise ValueError(f"batch must be a multiple of the {len(self.tasks)} tasks, got {batch}")
        each = [task.sample(share, generator=generator, dtype=dtype, device=device) for task in self.tasks]
        return Prompt(*(torch.cat([getattr(prompt, part) for prompt in each]) for part in "xyw"))


@validated
def mixture(tasks: Sequence[Any]) -> SeveralTasks:
    """Mixture of tasks for training: an equal share of prompts from each.

    Args:
        tasks: at least one, all of one d and n; user-defined ones as :attr:`BenchTask.make` returns them.
    """
    return SeveralTasks(tasks)
