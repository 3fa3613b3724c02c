"""How wrong is it? Predictions one step ahead, errors at the query, risk curves, and differences on the same trials.

:func:`one_step_ahead` makes any filter or model the same thing: a causal predictor of every label of a prompt. A filter
reads on, and a causal model answers everywhere in one pass; a model that answers a query only is asked anew at every
position, with the examples before it as its prompt. :func:`squared_error` measures the error at a prompt's query,
:func:`risk_curve` and :func:`settled_risk` take every label as a query.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from annotated_types import Ge
from jaxtyping import Float
from torch import Tensor

from icl import _checks, filters
from icl._bounds import Count, Natural, validated
from icl.models.causal import Causal
from icl.tasks import Prompt, Task, batches, clean
from icl.tasks.series import mean_and_error

Predictor = filters.Filter | Callable[[Prompt], Tensor]
"""A filter; or a model or function from prompts to predictions of their queries' labels, the batch's axis last."""


@validated
def one_step_ahead(predictor: Predictor, prompt: Prompt) -> Float[Tensor, "*settings batch time"]:
    """Prediction of each label from the examples before it; the first, which has none, is 0.

    A filter and a :class:`~icl.models.causal.Causal` read the prompt once. Any other model reads n prompts of 1 to n
    examples: exact for any model, and n / 2 times the work of one that keeps a state; such a model is better written as
    a filter (as :func:`~icl.filters.gla` is).

    Args:
        predictor: a :class:`~icl.filters.Filter`, which may try several settings, or a model that maps a prompt to
            predictions of its query's label.
        prompt: a batch of prompts; the last label is read by no one (in a :class:`~icl.models.causal.Causal`, it enters
            by rounding).

    Raises:
        ValueError: if a model's predictions do not fit the prompt or are not finite.
        FloatingPointError: if a filter diverges.
    """
    if isinstance(predictor, type) or not (isinstance(predictor, filters.Filter) or callable(predictor)):
        raise ValueError(f"predictor must be a Filter or a model of prompts, got {predictor!r}")
    if isinstance(predictor, filters.Filter):
        return filters.run_filter(predictor, prompt.x, prompt.y)
    if isinstance(predictor, Causal):
        with torch.no_grad():
            y_hat = predictor.predictions(prompt)
        # A model that reads its own token may have an answer to no example at all.
        y_hat[:, 0] = 0
        if not bool(torch.isfinite(y_hat).all()):
            raise ValueError("predictor must return finite numbers, got some that are not")
        return y_hat
    answers = []
    with torch.no_grad():
        for i in range(1, prompt.n + 1):
            seen = slice(0, i + 1)
            answers.append(predictor(Prompt(prompt.x[:, seen], prompt.y[:, seen], prompt.w[:, seen])))
            if answers[-1].shape[-1:] != (prompt.batch,) or answers[-1].shape != answers[0].shape:
                raise ValueError(
                    f"predictor must return (*settings, {prompt.batch}) for {prompt.batch} prompts, "
                    f"got {tuple(answers[-1].shape)} with {i} example(s)"
                )
            if not bool(torch.isfinite(answers[-1]).all()):
                raise ValueError(f"predictor must return finite numbers, got some that are not with {i} example(s)")
    return torch.stack([torch.zeros_like(answers[0]), *answers], dim=-1)


def _finite(name: str, *numbers: np.ndarray | np.generic) -> None:
    """Refuse risks and standard errors that overflowed: they would go on as inf and NaN."""
    if not all(bool(np.isfinite(each).all()) for each in numbers):
        raise FloatingPointError(f"squared errors of {name} overflow, or their squares do: no risk, no standard error")


@validated
def clean_risk(
    predictor: Predictor, prompt: Prompt, *, last: Count
) -> tuple[Float[np.ndarray, "*settings"], Float[np.ndarray, "*settings"]]:
    """Mean squared error against the clean labels over the last positions, and its standard error over prompts.

    Args:
        predictor: a filter, which may try several settings, or a model.
        prompt: at least two prompts; labels may carry noise, errors are against <w_i, x_i>.
        last: how many positions, counted from the end, are averaged.

    Raises:
        ValueError: if the prompts are too few or too short, or predictions do not fit them.
        FloatingPointError: if a filter diverges, or errors are so large that their squares overflow.
    """
    _checks.precision("dtype", prompt.x.dtype)
    if prompt.batch < 2:
        raise ValueError(f"prompt must hold at least two prompts for a standard error, got {prompt.batch}")
    if last > prompt.n + 1:
        raise ValueError(f"last must be at most the {prompt.n + 1} positions of the prompt, got {last}")
    squares = (one_step_ahead(predictor, prompt) - clean(prompt)).square()[..., -last:].mean(-1)
    mean, error = (each.numpy(force=True) for each in (squares.mean(-1), squares.std(-1) / prompt.batch**0.5))
    _finite("the predictor", mean, error)
    return mean, error


def _risks(
    predictors: Mapping[str, Predictor],
    task: Task,
    total: Annotated[int, Ge(2)],
    measure: Callable[[Tensor], Tensor],
    *,
    generator: torch.Generator,
    against: str | None,
    size: int,
    dtype: torch.dtype,
) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Mean and standard error of each predictor's measure, and of its difference from `against`, over trials."""
    if not predictors:
        raise ValueError("predictors must name at least one predictor, got none")
    if against is not None:
        _checks.one_of("against", against, predictors)
    # The reference first: the others' differences are taken in the block at hand.
    order = sorted(predictors, key=lambda name: name != against)
    sums: dict[str, list[np.ndarray]] = {name: [np.zeros(())] * 4 for name in order}
    for prompt in batches(task, total, generator=generator, size=size, dtype=dtype):
        reference: Tensor | float = 0.0
        for name in order:
            values = measure((one_step_ahead(predictors[name], prompt) - prompt.y).square())
            reference = values if name == against else reference
            if isinstance(reference, Tensor) and reference.shape[:-2] not in ((), values.shape[:-2]):
                raise ValueError(
                    f"against must be one thing or have the settings of {name}, {tuple(values.shape[:-2])}, "
                    f"got {against!r} with {tuple(reference.shape[:-2])}"
                )
            terms = (values, values.square(), values - reference, (values - reference).square())
            # Over the batch, the last axis but one, whatever axes settings have put before it.
            sums[name] = [s + t.sum(-2).numpy(force=True) for s, t in zip(sums[name], terms, strict=True)]
            _finite(name, *sums[name])

    def error(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.sqrt(np.maximum(second / total - (first / total) ** 2, 0) / (total - 1))

    return {n: (s[0] / total, error(s[0], s[1]), s[2] / total, error(s[2], s[3])) for n, s in sums.items()}


def _table(
    risks: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]], names: list[str], against: str | None
) -> pd.DataFrame:
    """Tidy rows, one a predictor, setting and position, from arrays (*settings, positions)."""
    rows = []
    for name in names:
        arrays = risks[name]
        for *setting, position in np.ndindex(arrays[0].shape):
            numbers = [float(array[(*setting, position)]) for array in arrays]
            row = {"method": name, "setting": tuple(setting), "position": position}
            row |= dict(zip(("risk", "se", "difference", "difference_se"), numbers, strict=True))
            rows.append(row)
    table = pd.DataFrame(rows)
    table = table if table["setting"].map(len).any() else table.drop(columns="setting")
    return table if against is not None else table.drop(columns=["difference", "difference_se"])


@validated
def risk_curve(
    predictors: Mapping[str, Predictor],
    task: Task,
    total: Annotated[int, Ge(2)],
    *,
    generator: torch.Generator,
    against: str | None = None,
    size: Count = 5_000,
    dtype: torch.dtype = torch.float64,
) -> pd.DataFrame:
    """Mean squared error of one-step-ahead predictions at every position, over `total` fresh trials.

    All predictors read the same trials, so that differences between them are known much better than the errors.

    Args:
        predictors: filters and models by name.
        task: where trials come from, of n + 1 positions.
        total: number of trials.
        generator: random stream.
        against: name of the predictor that the others are compared with, trial by trial.
        size: trials held in memory at once.
        dtype: of trials and predictions.

    Returns:
        Tidy rows: method, position (0 is the first, predicted from nothing), risk and its standard error se; with
        `against`, also difference (risk less that predictor's) and difference_se. A filter with several settings has a
        row for each, named in the column setting by its index, a tuple.

    Raises:
        ValueError: if total is less than 2, there are no predictors, or `against` is none of them or has settings that
            another has not.
        FloatingPointError: if a filter diverges, or errors are so large that squares of their squares overflow.
    """
    risks = _risks(
        predictors,
        task,
        total,
        lambda squares: squares,
        generator=generator,
        against=against,
        size=size,
        dtype=dtype,
    )
    return _table(risks, list(predictors), against)


@validated
def settled_risk(
    predictors: Mapping[str, Predictor],
    task: Task,
    total: Annotated[int, Ge(2)],
    *,
    last: Count,
    generator: torch.Generator,
    against: str | None = None,
    size: Count = 5_000,
    dtype: torch.dtype = torch.float64,
) -> pd.DataFrame:
    """:func:`risk_curve` averaged over the last positions of each trial, once the start is forgotten.

    Neighbouring positions of a trial are not independent; its average is one number, and standard errors are those of
    independent trials.

    Args:
        predictors: filters and models by name.
        task: where trials come from.
        total: number of trials.
        last: how many positions, counted from the end, are averaged.
        generator: random stream.
        against: name of the predictor that the others are compared with.
        size: trials held in memory at once.
        dtype: of trials and predictions.

    Returns:
        The columns of :func:`risk_curve` without position.
    """
    if last > task.n + 1:
        raise ValueError(f"last must be at most the {task.n + 1} positions of the task, got {last}")
    risks = _risks(
        predictors,
        task,
        total,
        lambda squares: squares[..., -last:].mean(-1, keepdim=True),
        generator=generator,
        against=against,
        size=size,
        dtype=dtype,
    )
    return _table(risks, list(predictors), against).drop(columns="position")


@validated
def squared_error(
    predict: Callable[[Prompt], Float[Tensor, "*predictors batch"]],
    task: Any,
    total: Annotated[int, Ge(2)],
    *,
    generator: torch.Generator,
    size: Count = 20_000,
    dtype: torch.dtype = torch.float64,
) -> tuple[Float[np.ndarray, "*predictors"] | np.float64, Float[np.ndarray, "*predictors"] | np.float64]:
    """Mean squared error at the query over `total` fresh prompts, and its standard error.

    Args:
        predict: from prompts to predictions of the query's label. Leading axes hold several predictors, which are then
            compared on the same prompts.
        task: where prompts come from.
        total: number of prompts.
        generator: random stream.
        size: prompts held in memory at once.
        dtype: of prompts and predictions.

    Raises:
        ValueError: if total is less than 2 or a prediction does not fit the prompts or is not finite.
        FloatingPointError: if errors are so large that squares of their squares overflow.
    """
    first, second = np.zeros(()), np.zeros(())
    for prompt in batches(task, total, generator=generator, size=size, dtype=dtype):
        with torch.no_grad():
            y_hat = predict(prompt)
        if y_hat.shape[-1:] != (prompt.batch,):
            raise ValueError(f"predict must return (..., {prompt.batch}) for {prompt.batch} prompts, got {y_hat.shape}")
        squares = (y_hat - prompt.y[:, -1]).square()
        if not bool(torch.isfinite(squares).all()):
            raise ValueError("predict must return finite numbers, got some that are not")
        first = first + squares.sum(-1).numpy(force=True)
        second = second + squares.square().sum(-1).numpy(force=True)
        _finite("predict", first, second)
    mean = first / total
    # The same error in every prompt has variance 0, and rounding may put the difference below it.
    return mean, np.sqrt(np.maximum(second / total - mean**2, 0) / (total - 1))


@validated
def series_risks(
    y: Float[np.ndarray, " time"] | Any, answers: Mapping[str, Any], *, since: Natural, against: str
) -> pd.DataFrame:
    """Errors on one series from some row on, and differences from those of one method, neighbours being alike.

    Standard errors are :func:`~icl.tasks.series.mean_and_error`, with neighbours up to 1.5 n^(1/3) of n rows apart; two
    methods are compared by the differences of their squared errors, row by row [Diebold & Mariano 1995].

    Args:
        y: labels.
        answers: by method, the predictions of all rows.
        since: the first row that counts; at least three have to.
        against: name of the method that the others are compared with.

    Returns:
        By method: error, the mean squared error, and its standard error; neighbours, the correlation of an error with
        the next; gap, the difference from the error of `against`, and its standard error. Columns error, s.e.,
        neighbours, gap, gap s.e.
    """
    y = _checks.numbers("y", y)
    _checks.shape("y", _checks.real("y", y), (None,))
    if since > len(y) - 3:
        raise ValueError(f"since must leave at least three of {len(y)} rows, got {since}")
    _checks.one_of("against", against, answers)
    errors = {}
    for method, y_hat in answers.items():
        y_hat = _checks.numbers(name := f"answers[{method!r}]", y_hat)
        _checks.shape(name, _checks.real(name, y_hat), (len(y),))
        errors[method] = (y - y_hat)[since:]
    base, rows = errors[against] ** 2, {}
    lags = int(1.5 * len(base) ** (1 / 3))
    for method, e in errors.items():
        mean, error = mean_and_error(e**2, lags=lags)
        gap, gap_error = mean_and_error(e**2 - base, lags=lags)
        rows[method] = mean, error, np.corrcoef(e[1:], e[:-1])[0, 1], gap, gap_error
    columns = ["error", "s.e.", "neighbours", "gap", "gap s.e."]
    return pd.DataFrame(rows, index=columns).T.rename_axis("method")
