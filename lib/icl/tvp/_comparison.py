"""One-step predictions of a fitted regression beside those of simpler methods, on rows that none has learnt from."""

import warnings
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from icl.tasks.series import mean_and_error
from icl.tvp._state_space import FACTORS, Array

_Setting = TypeVar("_Setting")
#: Two-sided standard normal quantile of a 90% interval.
NINETY = 1.6448536269514722
#: Numbers in windows that are factorised at once.
_BLOCK = 200_000


def compare_methods(model: Any, inputs: Array, labels: Array, times: Array, count: int) -> pd.DataFrame:
    """Table of methods by errors and coverage.

    Args:
        model: the regression, whose settings are learnt anew on the known rows.
        inputs: (rows, columns), in the table's units.
        labels: (rows,), NaN where missing.
        times: (rows,).
        count: how many rows are known.
    """
    here, k = np.isfinite(labels), inputs.shape[1] + bool(model.fit_intercept)
    known = np.arange(len(labels)) < count
    tried, test = here & known & (np.arange(len(labels)) > 2 * k), here & ~known
    if test.sum() < 3 or tried.sum() < 3:
        raise ValueError(f"known must leave labels to judge on, {tried.sum()} before and {test.sum()} after {count}")

    def fitted(rows: int = len(labels), **changes: Any) -> tuple[Array, Array]:
        settings = model.get_params() | {"known": count, "keep_path": True} | changes
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the model's own fit has said it
            again = type(model)(**settings).fit(inputs[:rows], labels[:rows], times[:rows])
        return again.predictions_, again.predictions_sd_

    def best(candidates: Iterable[_Setting], method: Callable[[_Setting, int], tuple[Array, Array]]) -> _Setting:
        # A prediction of a known row needs no later one.
        return min(
            candidates, key=lambda setting: np.mean((labels[:count] - method(setting, count)[0])[tried[:count]] ** 2)
        )

    def window(length: int, rows: int = len(labels)) -> tuple[Array, Array]:
        return rolling(x[:rows], labels[:rows], length)

    def faded(factor: float, rows: int = len(labels)) -> tuple[Array, Array]:
        return fitted(rows, **plain | {"forgetting": factor})

    plain: dict[str, Any] = {"drift": "none", "process": "random walk", "noise": None}
    last = pd.Series(labels).shift().ffill().to_numpy()
    jump = np.sqrt(np.nanmean((labels - last)[known] ** 2))
    x = np.column_stack([np.ones(len(inputs)), inputs]) if model.fit_intercept else inputs
    lengths = np.unique(np.geomspace(k + 2, max(count // 2, k + 3), 12).astype(int))
    length, factor = best(lengths.tolist(), window), best(FACTORS[1:], faded)
    methods = {
        "last label": ("", (last, np.full(len(labels), jump))),
        "constant coefficients": ("", fitted(**plain | {"forgetting": None})),
        "rolling window": (length, window(length)),
        "forgetting factor": (factor, faded(factor)),
        "self-tuned forgetting": ("", fitted(**plain | {"forgetting": "self-tuned"})),
        "this model": ("", fitted()),
    }
    rows, variance = {}, np.nanvar(labels[known])
    reference = (labels - methods["this model"][1][0])[test]
    for name, (setting, (mean, sd)) in methods.items():
        error = (labels - mean)[test]
        inside = (abs(error) <= NINETY * sd[test]).astype(float)
        lags = int(1.5 * len(error) ** (1 / 3))
        rows[name] = (
            *mean_and_error(error**2 / variance, lags=lags),
            *mean_and_error((error**2 - reference**2) / variance, lags=lags),
            *mean_and_error(inside, lags=lags),
            setting,
        )
    columns = ["error", "error s.e.", "gap", "gap s.e.", "coverage", "coverage s.e.", "setting"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("method")


def rolling(x: Array, y: Array, length: int) -> tuple[Array, Array]:
    """Least squares on the last labelled rows: predictions and their standard deviations (rows,)."""
    here, k = np.isfinite(y), x.shape[1]
    xs, ys, seen = x[here], y[here], np.cumsum(here) - here
    scale = np.sqrt((xs**2).mean(0))
    scale[scale == 0] = 1.0
    mean, sd = np.full(len(y), np.nanmean(y[: k + 3])), np.full(len(y), np.nanstd(y))
    size, xs = np.minimum(seen, length), xs / scale
    for n in np.unique(size[seen >= k + 2]):
        full = np.flatnonzero(size == n)
        for t in np.array_split(full, -(-len(full) * n * k // _BLOCK)):
            rows = seen[t, None] - n + np.arange(n)
            U, s, V = np.linalg.svd(xs[rows], full_matrices=False)
            nonzero = s > 1e-9 * s[:, :1]
            U, inverse = U * nonzero[:, None], np.divide(1.0, s, out=np.zeros_like(s), where=nonzero)
            pull = (U @ (inverse[..., None] * (V @ (x[t] / scale)[..., None])))[..., 0]
            fit = (U @ (U.mT @ ys[rows][..., None]))[..., 0]
            noise = ((ys[rows] - fit) ** 2).sum(1) / np.maximum(n - nonzero.sum(1), 1)
            mean[t] = (pull * ys[rows]).sum(1)
            sd[t] = np.sqrt(noise * (1 + (pull**2).sum(1)))
    return mean, sd
