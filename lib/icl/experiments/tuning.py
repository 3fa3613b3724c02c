"""Grid search for the hyperparameters of any predictor, with linear ones solved for by least squares.

:class:`Tunable` defines how a predictor is built from its settings and which values to try; :func:`evaluate_grid` runs
all combinations on the same prompts; :meth:`GridResult.best` is the setting of least squared error on chosen positions;
and :func:`tune` repeats this on a finer grid around the best. Any predictor of :mod:`icl.experiments.evaluation` will
do: a filter, a layer of `icl.models`, a function of prompts. :data:`LAYERS` has those of the chapter *One benchmark on
drifting tasks*. Where the error is an exact function of the settings, :func:`simplex` searches without a grid.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from icl import _checks, filters
from icl._bounds import Count, Positive, Reals, validate_fields, validated
from icl.experiments.evaluation import Predictor, one_step_ahead
from icl.models.delta_layers import LFOM
from icl.models.fast_weights import RetNet, retention
from icl.tasks import Prompt, clean

_Axes = Mapping[str, Float[np.ndarray, " settings"]]


@dataclass(frozen=True, eq=False)
class Tunable:
    """A predictor's constructor and the search space of its settings.

    Attributes:
        build: `(d, **settings) -> predictor`, where d is the inputs' dimension.
        axes: by a setting's name, the values to try first, rising or falling.
        linear: settings in which the prediction is linear, solved for by least squares.
        log_scale: settings, such as a forgetting factor lam, whose finer grids are spaced by equal factors in 1 - lam;
            those of other settings are spaced by equal factors in the setting itself.
        at_once: vectorised settings, of which `build` takes many as one tensor (:mod:`icl.filters`).
    """

    build: Callable[..., Predictor]
    axes: Mapping[str, Any] = field(default_factory=dict)
    linear: tuple[str, ...] = ()
    log_scale: tuple[str, ...] = ()
    at_once: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Validate axes, and the names that refer to them."""
        validate_fields(self)
        object.__setattr__(self, "axes", _checked_axes(self.axes))
        for name in ("linear", "log_scale", "at_once"):
            given = getattr(self, name)
            if not isinstance(given, tuple) or not all(isinstance(each, str) and each for each in given):
                raise ValueError(f"{name} must be a tuple of settings' names, got {given!r}")
            if name != "linear" and not set(given) <= set(self.axes):
                raise ValueError(f"{name} must be among the axes, {', '.join(self.axes) or 'none'}, got {given!r}")
        if set(self.linear) & set(self.axes):
            raise ValueError(f"linear must name settings that are not among the axes, got {self.linear!r}")
        if self.linear and self.at_once:
            raise ValueError(f"at_once must be empty where settings are solved for, got {self.at_once!r}")
        if not self.linear and not self.axes:
            raise ValueError("axes must hold a setting to try, or linear name one to solve for, got neither")


@dataclass(frozen=True, eq=False)
class GridResult:
    """Predictions of every combination of settings on the same prompts.

    Attributes:
        axes: by a setting's name, the values tried.
        answers: predictions: an axis for each setting, then batch and time, NaN where a predictor diverged; with
            `linear`, one more axis, of the terms that those settings multiply.
        linear: settings that are solved for.
    """

    axes: Mapping[str, Any]
    answers: Tensor
    linear: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Validate the shape of the predictions."""
        validate_fields(self)
        object.__setattr__(self, "axes", _checked_axes(self.axes))
        sizes = tuple(map(len, self.axes.values()))
        _checks.names("linear", self.linear)
        ends = (None, None) + ((len(self.linear),) if self.linear else ())
        _checks.shape("answers", self.answers, (*sizes, *ends), "to match the axes")

    def only(self, **settings: float) -> "GridResult":
        """Select the combinations with these values of some settings.

        Raises:
            ValueError: if a setting or its value is not among those tried.
        """
        axes, answers = dict(self.axes), self.answers
        for name, value in settings.items():
            if name not in axes:
                raise ValueError(f"settings must be among {', '.join(axes) or 'none'}, got {name!r}")
            at = np.flatnonzero(axes[name] == _checks.number(name, value))
            if not len(at):
                raise ValueError(f"{name} must be one of the values tried, {axes[name].tolist()}, got {value!r}")
            place = list(axes).index(name)
            answers, axes[name] = answers.narrow(place, int(at[0]), 1), axes[name][at[:1]]
        return GridResult(axes, answers, self.linear)

    @validated
    def losses(
        self, truth: Float[Tensor, "batch time"], positions: slice = slice(None)
    ) -> Float[np.ndarray, "*settings"]:
        """Mean squared error of each combination over some positions; NaN where a predictor diverged.

        Args:
            truth: the target labels.
            positions: the positions that count.
        """
        self._fits(truth, positions)
        if not self.linear:
            off = self.answers[..., positions] - truth[:, positions]
            return off.square().mean((-1, -2)).numpy(force=True)
        losses = np.empty(self.answers.shape[:-3])
        for at in np.ndindex(losses.shape):
            off = self.answers[at] @ self._least_squares(at, truth, positions) - truth
            losses[at] = off[:, positions].square().mean().item()
        return losses

    @validated
    def best(
        self, truth: Float[Tensor, "batch time"], positions: slice = slice(None)
    ) -> tuple[dict[str, float], Float[Tensor, "batch time"]]:
        """Return the settings of least error over some positions, linear ones included, and all their predictions.

        Args:
            truth: the target labels.
            positions: the positions that count.

        Raises:
            FloatingPointError: if the predictor diverged with all settings.
        """
        losses = self.losses(truth, positions)
        if np.isnan(losses).all():
            raise FloatingPointError(f"the predictor diverged with all of {losses.size} settings")
        at = np.unravel_index(int(np.nanargmin(losses)), losses.shape)
        settings = {name: float(axis[i]) for (name, axis), i in zip(self.axes.items(), at, strict=True)}
        if not self.linear:
            return settings, self.answers[at]
        coefficients = self._least_squares(at, truth, positions)
        return settings | dict(zip(self.linear, coefficients.tolist(), strict=True)), self.answers[at] @ coefficients

    def _least_squares(self, at: tuple[Any, ...], truth: Tensor, positions: slice) -> Tensor:
        """Linear settings of least error, given the others."""
        parts = self.answers[at][:, positions].flatten(0, 1)
        return torch.linalg.lstsq(parts, truth[:, positions].reshape(-1, 1)).solution[:, 0]

    def _fits(self, truth: Any, positions: Any) -> None:
        sizes = self.answers.shape[:-1] if self.linear else self.answers.shape
        _checks.shape("truth", truth, tuple(sizes[-2:]), "to match the answers")
        _checks.dtype("truth", truth, self.answers.dtype, "to match the answers")
        _checks.precision("dtype", truth.dtype)
        if not isinstance(positions, slice):
            raise ValueError(f"positions must be a slice, got {positions!r}")
        if not len(range(sizes[-1])[positions]):
            raise ValueError(f"positions must leave some of {sizes[-1]}, got {positions!r}")


@dataclass(frozen=True, eq=False)
class Tuned:
    """A tuned predictor and its settings.

    Attributes:
        settings: by name.
        predictor: built from them.
        loss: its mean squared error on the prompts that it was tuned on.
    """

    settings: dict[str, float]
    predictor: Predictor
    loss: float


def _checked_axes(axes: Any) -> dict[str, np.ndarray]:
    checked = {}
    for name, values in axes.items():
        if not name or not isinstance(name, str):
            raise ValueError(f"axes must have settings' names for keys, got {name!r}")
        value = np.asarray(_checks.real(name, values), dtype=np.float64)
        if value.ndim != 1 or not len(value):
            raise ValueError(f"{name} must be at least one value to try, in one row, got {values!r}")
        checked[name] = value
    return checked


@validated
def evaluate_grid(tunable: Tunable, prompt: Prompt) -> GridResult:
    """Run a predictor with every combination of its settings on the same prompts; NaN where a filter fails.

    Args:
        tunable: the predictor and its grid.
        prompt: the prompts, the same for all combinations.

    Raises:
        ValueError: if predictions do not fit the prompts or a model's are not finite.
    """
    sizes = tuple(map(len, tunable.axes.values()))
    tail = (len(tunable.linear),) if tunable.linear else ()
    answers = prompt.y.new_full((*sizes, *prompt.y.shape, *tail), math.nan)
    for at, settings in _combinations(tunable.axes, tunable.at_once):
        if tunable.linear:
            parts = _parts(tunable, prompt.d, settings)
            answers[at] = torch.stack([one_step_ahead(part, prompt) for part in parts], dim=-1)
            continue
        try:
            answers[at] = one_step_ahead(tunable.build(prompt.d, **settings), prompt)
        except filters.FilterFailure as failure:
            failed = failure.y_hat.isnan().any((-2, -1), keepdim=True)
            answers[at] = failure.y_hat.masked_fill(failed, math.nan)
    return GridResult(tunable.axes, answers, tunable.linear)


def _combinations(axes: _Axes, at_once: tuple[str, ...]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Iterate over combinations: index into the predictions, and settings, tensors for the vectorised ones."""
    together = [name for name in axes if name in at_once]
    columns = {
        name: torch.as_tensor(axes[name]).reshape(*[1] * i, -1, *[1] * (len(together) - i))
        for i, name in enumerate(together)
    }
    ranges: list[Any] = [[slice(None)] if name in columns else range(len(axis)) for name, axis in axes.items()]
    for at in itertools.product(*ranges):
        chosen = zip(axes.items(), at, strict=True)
        yield at, {name: columns[name] if name in columns else float(axis[i]) for (name, axis), i in chosen}


def _parts(tunable: Tunable, d: int, settings: dict[str, Any]) -> list[Predictor]:
    """Basis predictors of the linear settings: one setting is 1, the others are 0."""
    units = np.eye(len(tunable.linear)).tolist()
    return [tunable.build(d, **settings, **dict(zip(tunable.linear, unit, strict=True))) for unit in units]


def _refine(tunable: Tunable, settings: dict[str, float]) -> Tunable:
    """Refine the grid: as many values between the neighbours of the best ones, spaced by equal factors."""
    axes = {}
    for name, axis in tunable.axes.items():
        at, size = int(np.flatnonzero(axis == settings[name])[0]), 1 - axis if name in tunable.log_scale else axis
        _checks.real(f"{name}, or what it is less than 1," if name in tunable.log_scale else name, size, above=0)
        values = np.geomspace(size[max(at - 1, 0)], size[min(at + 1, len(axis) - 1)], len(axis))
        axes[name] = 1 - values if name in tunable.log_scale else values
    return replace(tunable, axes=axes)


@validated
def tune(
    tunable: Tunable,
    prompt: Prompt,
    *,
    truth: Float[Tensor, "batch time"] | None = None,
    positions: slice = slice(None),
    rounds: Count = 1,
) -> Tuned:
    """Tune a predictor: the settings of least squared error on some prompts.

    Args:
        tunable: the predictor and its first grid; linear settings are solved for.
        prompt: the prompts, in the predictor's dtype.
        truth: the target labels; None for the clean labels.
        positions: the positions that count.
        rounds: number of grids, each a refinement between the neighbours of the best setting before.

    Raises:
        ValueError: if arguments do not fit together, or a value that a finer grid is to be spaced around is not > 0.
        FloatingPointError: if the predictor diverged with all settings.

    >>> import torch
    >>> from icl.experiments.tuning import Tunable, tune
    >>> from icl.filters import lms
    >>> from icl.profile import make_generator
    >>> from icl.tasks import StationaryRegression
    >>> prompt = StationaryRegression(d=5, n=30).sample(100, generator=make_generator("example"), dtype=torch.float64)
    >>> tuned = tune(Tunable(lambda d, mu: lms(mu), {"mu": [0.01, 0.03, 0.1, 0.3, 1.0]}), prompt, rounds=1)
    >>> tuned.settings
    {'mu': 0.1}
    """
    _checks.precision("dtype", prompt.x.dtype)
    aim = clean(prompt) if truth is None else truth
    for ahead in reversed(range(rounds)):
        settings, answers = evaluate_grid(tunable, prompt).best(aim, positions)
        if ahead:
            tunable = _refine(tunable, settings)
    loss = (answers - aim)[:, positions].square().mean().item()
    return Tuned(settings, tunable.build(prompt.d, **settings), loss)


@validated
def simplex(
    error: Callable[[np.ndarray], float], start: Reals, *, evaluations: Count = 400, ceiling: Positive = 1e3
) -> tuple[Float[np.ndarray, " settings"], float]:
    """Nelder-Mead search for the settings of least error, and that error; for errors known without sampling.

    Args:
        error: from settings to an error; infinite or NaN where there is none.
        start: initial settings, at least one, any numbers.
        evaluations: of the error, at most.
        ceiling: upper limit on the error, so that the search may start beside settings without a steady state.
    """
    first = np.atleast_1d(np.asarray(start, dtype=np.float64))
    if first.ndim != 1 or not len(first):
        raise ValueError(f"start must be at least one number, in one row, got {start!r}")
    options: Any = {"maxfev": evaluations, "xatol": 1e-6, "fatol": 1e-9}

    def capped(z: np.ndarray) -> Any:
        return min(ceiling, float(error(z)))  # min in this order maps NaN to the ceiling

    optimum = minimize(capped, first, method="Nelder-Mead", options=options)
    return np.asarray(optimum.x), float(optimum.fun)


def _retnet(d: int, **c: float) -> RetNet:
    """RetNet with the paper's decays and these readout weights of its heads."""
    model = RetNet(d, lam=retention(len(c)), mu=1.0, dtype=torch.float64)
    with torch.no_grad():
        model.c.copy_(torch.tensor(list(c.values()), dtype=torch.float64))
    return model


_FOUR = tuple(f"c_{k}" for k in range(4))
_FORGET = np.geomspace(0.004, 0.8, 12)
_LAM = {"lam": 1 - np.append(1e-6, _FORGET)}

#: Layers of the chapter *One benchmark on drifting tasks*, for prompts in float64.
LAYERS: dict[str, Tunable] = {
    "linear attention": Tunable(lambda d, mu: filters.gla(mu * np.eye(d), lam=1.0), linear=("mu",)),
    "LFOM": Tunable(lambda d, **c: LFOM(d, c=list(c.values()), dtype=torch.float64), linear=_FOUR),
    "RetNet": Tunable(_retnet, linear=_FOUR),
    "GLA": Tunable(
        lambda d, lam, mu: filters.gla(mu * np.eye(d), lam=lam),
        {"lam": 1 - _FORGET},
        linear=("mu",),
        log_scale=("lam",),
    ),
    "delta rule": Tunable(
        lambda d, lam, mu: filters.delta_rule(mu, lam=lam),
        _LAM | {"mu": np.geomspace(0.01, 0.25, 8)},
        log_scale=("lam",),
        at_once=("lam", "mu"),
    ),
    "Longhorn": Tunable(
        lambda d, lam, eps: filters.normalised_delta_rule(1.0, lam=lam, eps=eps),
        _LAM | {"eps": np.geomspace(0.01, 100, 7)},
        log_scale=("lam",),
        at_once=("lam",),
    ),
    "RLS": Tunable(
        lambda d, lam: filters.rls(lam, eps=0.01),
        {"lam": 1 - np.geomspace(0.002, 0.4, 10)},
        log_scale=("lam",),
        at_once=("lam",),
    ),
    "Mesa": Tunable(
        lambda d, lam, eps: filters.faded_ridge(lam, eps=eps),
        {"lam": 1 - np.geomspace(0.002, 0.8, 7), "eps": np.geomspace(0.03, 30, 6)},
        log_scale=("lam",),
        at_once=("lam", "eps"),
    ),
}
