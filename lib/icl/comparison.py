"""How predictors compare: mean squared error one step ahead, position by position, on the same trials.

`icl.evaluation` measures the error at a prompt's query; here every label is a query.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from icl import _checks
from icl.predictors import Predictor, one_step_ahead
from icl.tasks import Task, blocks


def _risks(
    predictors: Mapping[str, Predictor],
    task: Task,
    total: int,
    measure: Callable[[Tensor], Tensor],
    *,
    generator: torch.Generator,
    against: str | None,
    size: int,
    dtype: torch.dtype,
) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Mean and standard error of each predictor's measure, and of its difference from `against`, over trials."""
    _checks.integer("total", total, at_least=2)
    if not isinstance(predictors, Mapping):
        raise ValueError(f"predictors must map names to predictors, got {predictors!r}")
    if not predictors:
        raise ValueError("predictors must name at least one predictor, got none")
    if against is not None and against not in predictors:
        raise ValueError(f"against must be one of {', '.join(predictors)}, got {against!r}")
    # The reference first: the others' differences are taken in the block at hand.
    order = sorted(predictors, key=lambda name: name != against)
    sums: dict[str, list[np.ndarray]] = {name: [np.zeros(())] * 4 for name in order}
    for prompt in blocks(task, total, generator=generator, size=size, dtype=dtype):
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


def risk_curve(
    predictors: Mapping[str, Predictor],
    task: Task,
    total: int,
    *,
    generator: torch.Generator,
    against: str | None = None,
    size: int = 5_000,
    dtype: torch.dtype = torch.float64,
) -> pd.DataFrame:
    """Mean squared error of one-step-ahead predictions at every position, over `total` fresh trials.

    All predictors read the same trials, so that differences between them are known much better than the errors.

    Args:
        predictors: filters and models by name.
        task: where trials come from, of n + 1 positions.
        total: number of trials, at least 2.
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


def settled_risk(
    predictors: Mapping[str, Predictor],
    task: Task,
    total: int,
    *,
    last: int,
    generator: torch.Generator,
    against: str | None = None,
    size: int = 5_000,
    dtype: torch.dtype = torch.float64,
) -> pd.DataFrame:
    """`risk_curve` averaged over the last positions of each trial, once the start is forgotten.

    Neighbouring positions of a trial are not independent; its average is one number, and standard errors are those of
    independent trials.

    Args:
        predictors: filters and models by name.
        task: where trials come from.
        total: number of trials, at least 2.
        last: how many positions, counted from the end, are averaged.
        generator: random stream.
        against: name of the predictor that the others are compared with.
        size: trials held in memory at once.
        dtype: of trials and predictions.

    Returns:
        The columns of `risk_curve` without position.
    """
    _checks.integer("last", last, at_least=1)
    _checks.instance("task", task, Task)
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
