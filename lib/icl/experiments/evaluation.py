"""Evaluation: one-step-ahead predictions, error at the query, risk curves, paired differences.

:func:`one_step_ahead` turns any filter or model into a causal predictor of every label of a prompt. A filter runs
sequentially, and a causal model predicts all positions in one pass; a model that predicts only at the query is run
again at every position, with the examples before it as its prompt. :func:`squared_error` measures the error at a
prompt's query; :func:`risk_curve` and :func:`settled_risk` treat every label as a query.
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
    """Predict each label from the examples before it; the first prediction, without examples, is 0.

    A filter and a :class:`~icl.models.causal.Causal` read the prompt once. Any other model reads n prompts of 1 to n
    examples: exact for any model, at n / 2 times the cost of a recurrent one, which is better written as a filter (as
    :func:`~icl.filters.gla` is).

    Args:
        predictor: a :class:`~icl.filters.Filter`, possibly with several settings, or a model from a prompt to
            predictions of its query's label.
        prompt: a batch of prompts; the last label is not used (in a :class:`~icl.models.causal.Causal`, it may enter
            through rounding).

    Raises:
        ValueError: if a model's predictions do not fit the prompt or are not finite.
        FloatingPointError: if a filter diverges.

    >>> import torch
    >>> from icl.filters import nlms
    >>> from icl.tasks import Prompt
    >>> x = torch.tensor([[[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]])
    >>> w = torch.tensor([2.0, 1.0]).expand(1, 3, 2)
    >>> one_step_ahead(nlms(1.0), Prompt(x, (w * x).sum(-1), w))
    tensor([[0.0000, 2.0000, 0.5000]])
    """
    if isinstance(predictor, type) or not (isinstance(predictor, filters.Filter) or callable(predictor)):
        raise ValueError(f"predictor must be a Filter or a model of prompts, got {predictor!r}")
    if isinstance(predictor, filters.Filter):
        return filters.run_filter(predictor, prompt.x, prompt.y)
    if isinstance(predictor, Causal):
        with torch.no_grad():
            y_hat = predictor.predictions(prompt)
        # A model that reads its own token may not have a prediction of 0 without examples.
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
    """Check for overflow: raise FloatingPointError instead of returning inf or NaN."""
    if not all(bool(np.isfinite(each).all()) for each in numbers):
        raise FloatingPointError(f"squared errors of {name} overflow, or their squares do: no risk, no standard error")


@validated
def clean_risk(
    predictor: Predictor, prompt: Prompt, *, last: Count
) -> tuple[Float[np.ndarray, "*settings"], Float[np.ndarray, "*settings"]]:
    """Mean squared error against the clean labels over the last positions, and its standard error over prompts.

    Args:
        predictor: a filter, possibly with several settings, or a model.
        prompt: at least two prompts; labels may carry noise, errors are against <w_i, x_i>.
        last: number of final positions that are averaged.

    Raises:
        ValueError: if the prompts are too few or too short, or predictions do not fit them.
        FloatingPointError: if a filter diverges, or errors are so large that their squares overflow.

    >>> import torch
    >>> from icl.filters import nlms
    >>> from icl.profile import make_generator
    >>> from icl.tasks import DriftingRegression
    >>> task = DriftingRegression(d=4, n=100, gamma=0.99)
    >>> prompts = task.sample(200, generator=make_generator("example"), dtype=torch.float64)
    >>> risk, se = clean_risk(nlms(0.5), prompts, last=50)
    >>> bool(risk < clean_risk(nlms(0.01), prompts, last=50)[0])
    True
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
    """Mean and standard error over trials of every predictor's measure, and of its paired difference from `against`."""
    if not predictors:
        raise ValueError("predictors must name at least one predictor, got none")
    if against is not None:
        _checks.one_of("against", against, predictors)
    # The reference first: paired differences are formed block by block.
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
            # Sum over the batch, the last axis but one, behind any settings axes.
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

    All predictors are run on the same trials, so paired differences have much smaller standard errors than the errors.

    Args:
        predictors: filters and models by name.
        task: where trials come from, of n + 1 positions.
        total: number of trials.
        generator: random stream.
        against: name of the reference predictor, for paired differences.
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

    >>> from icl.filters import nlms
    >>> from icl.profile import make_generator
    >>> from icl.tasks import DriftingRegression
    >>> task = DriftingRegression(d=4, n=20, gamma=0.99)
    >>> curve = risk_curve({"NLMS": nlms(0.5)}, task, 200, generator=make_generator("example"))
    >>> len(curve), bool(curve.risk.iloc[-1] < curve.risk.iloc[0])
    (21, True)
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
    """Steady-state risk: :func:`risk_curve` averaged over the last positions of each trial.

    Neighbouring positions of a trial are dependent, so each trial contributes one average, and standard errors are over
    independent trials.

    Args:
        predictors: filters and models by name.
        task: where trials come from.
        total: number of trials.
        last: number of final positions that are averaged.
        generator: random stream.
        against: name of the reference predictor, for paired differences.
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
        predict: from prompts to predictions of the query's label. Leading axes hold several predictors, evaluated on
            the same prompts.
        task: where prompts come from.
        total: number of prompts.
        generator: random stream.
        size: prompts held in memory at once.
        dtype: of prompts and predictions.

    Raises:
        ValueError: if total is less than 2 or a prediction does not fit the prompts or is not finite.
        FloatingPointError: if errors are so large that squares of their squares overflow.

    The zero predictor's error is the clean label's variance:

    >>> from icl.profile import make_generator
    >>> from icl.tasks import DriftingRegression
    >>> task = DriftingRegression(d=4, n=20, gamma=1.0, sigma_e=0.0)
    >>> mse, se = squared_error(lambda p: 0 * p.y[:, -1], task, 2_000, generator=make_generator("example"))
    >>> bool(abs(mse - 4) < 5 * se)
    True
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
    # Equal errors in all prompts have variance 0, which rounding may make negative.
    return mean, np.sqrt(np.maximum(second / total - mean**2, 0) / (total - 1))


@validated
def series_risks(
    y: Float[np.ndarray, " time"] | Any, answers: Mapping[str, Any], *, since: Natural, against: str
) -> pd.DataFrame:
    """Errors on one autocorrelated series, and paired differences from a reference method.

    Standard errors account for autocorrelation (:func:`~icl.tasks.series.mean_and_error`), with lags up to
    1.5 n^(1/3) for n rows; two methods are compared by their loss differentials, row by row [Diebold & Mariano 1995].

    Args:
        y: labels.
        answers: predictions of all rows, by method.
        since: the first row that counts; at least three have to.
        against: name of the reference method.

    Returns:
        By method: error, the mean squared error, and its standard error; neighbours, the lag-one autocorrelation of
        errors; gap, the difference from the error of `against`, and its standard error. Columns error, s.e.,
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
