"""Adaptive filters beside one layer of gated attention: errors, tuning, printed numbers (*Adaptive filters and the
Kalman floor*).

Closed forms are :mod:`icl.theory.steady.lms_family`'s and :mod:`icl.theory.one_layer.closed_forms`'s; the filters are
:mod:`icl.filters`'s.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64, Int
from scipy.special import chdtrc
from torch import Tensor

from icl import filters, profile
from icl.experiments.evaluation import risk_curve, settled_risk
from icl.experiments.tuning import LAYERS, Tunable, tune
from icl.models import one_layer as layer_model
from icl.profile import make_generator
from icl.tasks import DriftingRegression, batches
from icl.theory import one_layer
from icl.theory.floors import expected_errors, kalman_risk
from icl.theory.steady import lms_family
from icl_book.chapters.adaptation.how_much_to_forget import FIVE_DRIFTS
from icl_book.chapters.adaptation.why_stationarity_fails import paper_task, steady_task
from icl_book.charts import Explorable, explorable, slider
from icl_book.records import recorded

_Errors = dict[str, Float64[np.ndarray, " m"]]
#: Methods in the order of the chapter's tables, from those that learn least.
METHODS = (
    *("zero predictor", "ridge regression", "LMS, 0.01", "RLS, 0.98", "LMS", "NLMS", "APA", "RLS"),
    *("sliding window", "GLA", "delta rule", "normalised delta rule", "faded ridge", "Kalman"),
)
#: Filters of 1960 to 1984, whose estimates do not fade.
CLASSICAL = ("LMS", "NLMS", "APA", "RLS")
_MU, _NORMALISED_MU = np.geomspace(1e-3, 0.12, 22), np.geomspace(0.01, 1.3, 22)
#: Filters whose hyperparameters are searched for, with the values tried.
TUNABLE: dict[str, Tunable] = {
    "LMS": Tunable(lambda d, mu: filters.lms(mu), {"mu": _MU}, at_once=("mu",)),
    "NLMS": Tunable(lambda d, mu: filters.nlms(mu), {"mu": _NORMALISED_MU}, at_once=("mu",)),
    "APA": Tunable(
        lambda d, K, mu: filters.apa(mu, K=int(K), eps=1e-6), {"K": [2, 4, 8], "mu": _NORMALISED_MU}, at_once=("mu",)
    ),
    "RLS": replace(LAYERS["RLS"], axes={"lam": 1 - np.geomspace(2e-3, 0.4, 22)}),
    "sliding window": Tunable(
        lambda d, K, eps: filters.window(int(K), eps=eps), {"K": [2, 3, 4, 6, 8, 12, 16], "eps": [0.3, 1.0, 3.0, 10.0]}
    ),
    "faded ridge": replace(
        LAYERS["Mesa"],
        axes={"lam": np.array([0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9]), "eps": [0.1, 0.3, 1.0, 3.0]},
    ),
}
#: Positions over which a training error may have been averaged, in sequences of 1000.
WINDOWS = {"all 1000": slice(None), "last 100": slice(-100, None), "last": slice(-1, None), "first 100": slice(100)}


def long_task(gamma: float = 0.95, n: int = 999, **changes: Any) -> DriftingRegression:
    """The paper's setting for filters: sequences of 1000 labels in ten dimensions, weights starting at sigma_w = 1."""
    return paper_task(n, gamma=gamma, **changes)


def layer(task: DriftingRegression) -> filters.Filter:
    """One layer of gated attention at its optimum for a task, as a filter."""
    lam = one_layer.optimal_forgetting(task)
    return filters.gla(one_layer.optimum(task, lam=lam).A, lam=lam)


def endless_task(gamma: float, d: int = 10) -> DriftingRegression:
    """A drift that has been in its steady state for longer than any method remembers."""
    return steady_task(5000, gamma, d=d)


def errors_by_memory(task: DriftingRegression, memories: Float64[np.ndarray, " m"]) -> _Errors:
    """Exact steady-state errors of five methods against their effective windows, in examples.

    The window is 1 / (1 - lam) for attention and 1 / mu, or d / mu if normalised, for filters; infinite where a filter
    diverges. The delta rules fade by gamma.
    """
    step, gamma, d = lms_family.steady_error, task.gamma, task.d
    return {
        "LMS": step(task, 1 / memories),
        "NLMS": step(task, d / memories, normalised=True),
        "GLA": one_layer.training_error(task, lam=1 - 1 / memories),
        "delta rule": step(task, 1 / memories, lam=gamma),
        "normalised delta rule": step(task, d / memories, lam=gamma, normalised=True),
    }


def steady_floor(task: DriftingRegression, sequences: int = 20) -> float:
    """The Kalman filter's steady-state error, a mean over 400 positions of random input sequences."""
    x = replace(task, n=499).sample(sequences, generator=make_generator("steady floor")).x.numpy()
    return float(kalman_risk(task, x)[0][-400:].mean())


def lowest_errors(gamma: float) -> dict[str, float]:
    """Lowest error of the five methods of :func:`errors_by_memory` over windows from 2 to 300 examples."""
    by_method = errors_by_memory(endless_task(gamma), np.geomspace(2, 300, 4001)[::20])
    return {name: float(errors.min()) for name, errors in by_method.items()}


def filter_sliders() -> Explorable:
    """Sliders of the chapter's first figure: the drift and its dimensions."""
    lowest = {gamma: lowest_errors(gamma) for gamma in (0.8, 0.95, 0.96, 0.965, 0.99)}
    ahead = {gamma: 1 - errors["GLA"] / errors["LMS"] for gamma, errors in lowest.items()}
    if not ahead[0.96] > 0 > ahead[0.965]:
        raise AssertionError("attention and LMS change places elsewhere")
    if any(min(errors["GLA"], errors["LMS"]) < errors["delta rule"] for errors in lowest.values()):
        raise AssertionError("the delta rule is not the lowest of the three")
    return explorable(
        "filters",
        slider("gamma", 0.5, 0.99, value=0.95, step=0.005, words="persistence of the drift"),
        slider("d", 1, 30, value=10, words="dimensions"),
        question="Attention or LMS: who is ahead when the drift is fast, and at which γ do they change places? "
        "Is there a γ at which either of them beats the delta rule?",
        answer=f"With d = 10 attention is ahead up to γ = 0.96, and LMS from 0.965 on. With each method at its best "
        f"window, attention's error is {ahead[0.8]:.0%} below that of LMS at γ = 0.8 and {ahead[0.95]:.0%} below it at "
        f"0.95; at 0.99 it is {-ahead[0.99]:.0%} above. Neither ever beats the delta rule, which has what each of "
        "them lacks.",
        methods=["LMS", "GLA", "delta rule"],
    )


def one_sequence() -> tuple[dict[str, Tensor], dict[str, float]]:
    """Weights of one slowly drifting sequence, three estimates of them, and the estimates' errors.

    Returns:
        The tracks, of shape (300, 10), and the root mean square of a weight's error over the last 200 positions.
    """
    task = long_task(0.975, n=299)
    one = task.sample(1, generator=make_generator("one sequence"), dtype=torch.float64)
    followers = {"LMS": filters.lms(0.07), "GLA": layer(task), "Kalman": filters.kalman(task)}
    tracks = {n: filters.track(f, one.x[0], one.y[0]).w_hat[:-1] for n, f in followers.items()}
    errors = {n: float((t - one.w[0])[100:].square().mean().sqrt()) for n, t in tracks.items()}
    return {"true weight": one.w[0]} | tracks, errors


def steady_steps() -> dict[str, float]:
    """Steps of LMS and NLMS with the lowest steady-state error at gamma = 0.95, and the recorded factor of RLS."""
    memories = np.geomspace(2, 300, 4001)
    errors = errors_by_memory(endless_task(0.95), memories)
    return {
        "LMS": 1 / memories[errors["LMS"].argmin()],
        "NLMS": 10 / memories[errors["NLMS"].argmin()],
        "RLS": recorded_settings(0.95)["RLS"][0],
    }


def exact_curves(at: Int[np.ndarray, " lengths"], sequences: int) -> _Errors:
    """Errors after so many examples (one or more), relative to the zero predictor's.

    gamma = 0.95, weights in their steady state, every method at its best for long prompts. All are exact but Kalman's,
    a mean over input sequences.
    """
    task = steady_task(299)
    steps, lam = steady_steps(), one_layer.optimal_forgetting(steady_task(999))
    A = one_layer.optimum(steady_task(999), lam=lam).A
    x = task.sample(sequences, generator=make_generator("learning curves, floor")).x.numpy()
    curves = {
        "LMS": lms_family.errors(task, steps["LMS"])[at],
        "NLMS": lms_family.errors(task, steps["NLMS"], normalised=True)[at],
        "delta rule": lms_family.errors(task, 1 / 12, lam=0.95)[at],
        "normalised delta rule": lms_family.errors(task, 1.0, lam=0.95, normalised=True)[at],
        "GLA": np.array([one_layer.layer_risk(A, replace(task, n=int(i)), lam=lam) for i in at]),
        "Kalman": kalman_risk(task, x)[0][at],
    }
    return {name: errors / one_layer.zero_predictor(task) for name, errors in curves.items()}


def simulated_curves(sequences: int) -> pd.DataFrame:
    """Errors of six filters at positions 0 to 299 on the same sequences, relative to the zero predictor's.

    Columns: method, position, risk, se, and difference, from the normalised delta rule.
    """
    task, steps = steady_task(299), steady_steps()
    table = risk_curve(
        {
            "LMS": filters.lms(steps["LMS"]),
            "NLMS": filters.nlms(steps["NLMS"]),
            "delta rule": filters.delta_rule(1 / 12, lam=0.95),
            "normalised delta rule": filters.normalised_delta_rule(1.0, lam=0.95),
            "RLS": filters.rls(steps["RLS"], eps=1.0),
            "faded ridge": filters.faded_ridge(steps["RLS"], eps=1.0),
        },
        task,
        sequences,
        generator=make_generator("learning curves"),
        against="normalised delta rule",
    )
    columns = ["risk", "se", "difference"]
    table[columns] /= one_layer.zero_predictor(task)
    return table[["method", "position", *columns]]


def smoothed(simulated: pd.DataFrame, method: str, at: Int[np.ndarray, " lengths"]) -> Float64[np.ndarray, " lengths"]:
    """A filter's error without a closed form, by its distance from the normalised delta rule's, which has one.

    On the same sequences the distance scatters less than the error; a mean over neighbouring positions less again.
    """
    exact = lms_family.errors(steady_task(299), 1.0, lam=0.95, normalised=True) / one_layer.zero_predictor(
        steady_task()
    )
    distance = simulated[simulated.method == method].set_index("position").difference
    error = exact[:300] + distance
    return np.array([error.loc[i - i // 8 : i + i // 8].mean() for i in at])


def ladder(gammas: Iterable[float], sequences: int) -> pd.DataFrame:
    """Steady-state errors over the Kalman floor of attention and the two delta rules, indexed by gamma.

    The first is that of an endless prompt at the best forgetting factor; the floor is a mean over input sequences.
    """
    rows = {}
    for gamma in gammas:
        task = steady_task(400, gamma)
        x = task.sample(sequences, generator=make_generator("ladder")).x.numpy()
        floor = expected_errors(x, task)[:, 200:].mean()
        rows[gamma] = {
            "GLA": one_layer.steady_identity_error(task) / floor,
            "delta rule": lms_family.best_steady(task)[2] / floor,
            "normalised delta rule": lms_family.best_steady(task, normalised=True)[2] / floor,
        }
    return pd.DataFrame(rows).T.rename_axis("γ")


def build(name: str, setting: Iterable[float]) -> Any:
    """A filter of :data:`TUNABLE` in ten dimensions with the values of its hyperparameters."""
    return TUNABLE[name].build(10, **dict(zip(TUNABLE[name].axes, setting, strict=True)))


def tuned(gamma: float, sequences: int, names: Iterable[str] = tuple(TUNABLE)) -> dict[str, tuple[float, ...]]:
    """Settings with the lowest error over the last 200 positions of sequences used for nothing else."""
    prompt = long_task(gamma, n=399).sample(sequences, generator=make_generator(f"tuning {gamma}"), dtype=torch.float64)
    results = {name: tune(TUNABLE[name], prompt, positions=slice(-200, None)) for name in names}
    return {name: tuple(result.settings.values()) for name, result in results.items()}


def recorded_settings(gamma: float) -> dict[str, tuple[float, ...]]:
    """Settings that the recorded run found by :func:`tuned`."""
    table = recorded("gla-filters").table
    shown = table[table["γ"] == gamma].set_index("method").setting[list(TUNABLE)]
    return {str(name): tuple(float(v) for v in text.split(", ")) for name, text in shown.items()}


def compare_filters(settings: Mapping[float, Mapping[str, tuple[float, ...]]], sequences: int) -> pd.DataFrame:
    """Errors of all methods over the last 500 of 1000 positions, on the same test sequences for every drift.

    Args:
        settings: by gamma, those of the tuned filters.
        sequences: test sequences a drift.

    Returns:
        The columns of :func:`icl.experiments.evaluation.settled_risk`, with differences from the layer, and γ, setting.
    """
    rows = []
    for gamma, chosen in settings.items():
        task = long_task(gamma)
        methods = {
            "zero predictor": filters.zero(),
            "LMS, 0.01": filters.lms(0.01),
            "RLS, 0.98": filters.rls(0.98, eps=0.01),
            "ridge regression": filters.ridge(1.0),
            "GLA": layer(task),
            "delta rule": filters.delta_rule(1 / 12, lam=gamma),
            "normalised delta rule": filters.normalised_delta_rule(1.0, lam=gamma),
            "Kalman": filters.kalman(task),
        } | {name: build(name, setting) for name, setting in chosen.items()}
        table = settled_risk(
            methods,
            task,
            sequences,
            last=500,
            generator=make_generator(f"audit {gamma} {profile.current()}"),
            against="GLA",
        )
        shown = {name: ", ".join(f"{v:.3g}" for v in np.atleast_1d(setting)) for name, setting in chosen.items()}
        table.insert(0, "γ", gamma)
        table["setting"] = table.method.map(shown).fillna("")
        rows.append(table)
    return pd.concat(rows, ignore_index=True)


def compared_with_layer(table: pd.DataFrame) -> pd.DataFrame:
    """Excess of every method's error over the layer's, from :func:`compare_filters`, indexed by method and γ.

    Columns: more (in per cent of the layer's error), se (of it), and z (in standard errors of the paired difference).
    """
    layers = table[table.method == "GLA"].set_index("γ").risk
    at = table.set_index(["method", "γ"])
    risk = layers.loc[at.index.get_level_values("γ")].to_numpy()
    columns = {"more": 100 * at.difference / risk, "se": 100 * at.difference_se / risk}
    return pd.DataFrame(columns | {"z": at.difference / at.difference_se})


def layer_errors() -> Float64[np.ndarray, " 5"]:
    """Training errors of the layer at its best forgetting factor, on the five drifts."""
    tasks = [long_task(gamma) for gamma in FIVE_DRIFTS]
    return np.array([one_layer.training_error(t, lam=one_layer.optimal_forgetting(t)).item() for t in tasks])


def fitted_layer(sequences: int) -> dict[str, float]:
    """A layer fitted by least squares to sequences of a hundred examples, on as many fresh ones.

    Returns:
        Error on fresh sequences, its standard error se, the exact error of the fitted matrix (theory), and of the best
        matrix (optimum).
    """
    task = long_task(0.95, n=100)
    lam = one_layer.optimal_forgetting(task)

    def products(name: str) -> tuple[np.ndarray, np.ndarray]:
        p = task.sample(sequences, generator=make_generator(name))
        g, x, y = (part.double().numpy() for part in (layer_model.features(p, lam), p.x[:, -1], p.y[:, -1]))
        return np.einsum("bi,bj->bij", g, x).reshape(sequences, -1), y

    A = np.linalg.lstsq(*products("sequences to fit"), rcond=None)[0]
    fresh, labels = products("fresh sequences")
    squares = (labels - fresh @ A) ** 2
    return {
        "error": float(squares.mean()),
        "se": float(squares.std()) / sequences**0.5,
        "theory": float(one_layer.layer_risk(A.reshape(10, 10), task, lam=lam)),
        "optimum": float(one_layer.training_error(task, lam=lam)),
    }


def choose_gamma(test: int) -> pd.DataFrame:
    """Cost of choosing the Kalman filter's gamma, of twelve values, on other sequences.

    Args:
        test: sequences a drift on which the choice is tested; sixty others serve to choose.

    Returns:
        A row a drift: γ, found (what sixty sequences suggest), and the relative error added when 60, 5 or 1 suggest it.
    """
    candidates, rows = 1 - np.geomspace(0.3, 0.01, 12), []
    sequences = [
        long_task(gamma, n=299).sample(
            60 + test, generator=make_generator(f"finding gamma {gamma}"), dtype=torch.float64
        )
        for gamma in FIVE_DRIFTS
    ]

    def steady(gamma: float, x: Tensor, y: Tensor) -> np.ndarray:
        """Mean squared error of every sequence beyond its first hundred labels, for a filter with this gamma."""
        error = filters.run_filter(filters.kalman(long_task(gamma)), x, y) - y
        return np.asarray(error[:, 100:].square().mean(1).numpy())

    x, y = torch.cat([p.x for p in sequences]), torch.cat([p.y for p in sequences])
    tries = np.array([steady(g, x, y) for g in candidates])
    for gamma, p, errors in zip(FIVE_DRIFTS, sequences, np.split(tries, len(FIVE_DRIFTS), axis=1), strict=True):
        to_choose, added = errors[:, :60], errors[:, 60:].mean(1)
        added = added / steady(gamma, p.x[60:], p.y[60:]).mean() - 1
        row = {"γ": gamma, "found": candidates[to_choose.mean(1).argmin()]}
        for size in (60, 5, 1):
            groups = to_choose.reshape(len(candidates), -1, size).mean(2)
            row[f"error added, from {size}"] = added[groups.argmin(0)].mean()
        rows.append(row)
    return pd.DataFrame(rows)


def _error_after(mu: float = 0.01, d: int = 10) -> float:
    """Squared error of LMS after its step over that before."""
    return 1 - 2 * mu * (d + 2) + mu**2 * (d + 2) * (d + 4)


def _starting(gamma: float, start: str) -> DriftingRegression:
    return long_task(gamma, sigma_w=1.0 if start == "1" else 0.1 / np.sqrt(1 - gamma**2))


def conventions(printed: Mapping[str, Float64[np.ndarray, " 5"]], sequences: int) -> pd.DataFrame:
    """Training errors of LMS (step 0.01) and RLS (factor 0.98) on the five drifts under every convention tried.

    The weights start at variance 1 or in the steady state, errors are taken before or after the label is seen, averages
    are over one of :data:`WINDOWS`, and RLS has one of three initial covariances. Those of LMS are exact.

    Args:
        printed: the paper's five errors of either filter.
        sequences: simulated for RLS, a drift.

    Returns:
        Columns: filter, start, error, over, 1/P₀, ours (five errors), off (root mean square of the relative deviations
        from the printed ones), worst (the largest of them).
    """
    starts, rows = ("1", "settled"), []
    for start in starts:
        curves = [lms_family.errors(_starting(g, start), 0.01) for g in FIVE_DRIFTS]
        for (label, factor), (window, at) in product((("before", 1.0), ("after", _error_after())), WINDOWS.items()):
            row = {"filter": "LMS", "start": start, "error": label, "over": window, "1/P₀": np.nan}
            rows.append(row | {"ours": [factor * float(c[at].mean()) for c in curves]})
    for (start, eps, label, window), ours in _rls_errors(starts, sequences).items():
        rows.append({"filter": "RLS", "start": start, "error": label, "over": window, "1/P₀": eps, "ours": ours})
    table = pd.DataFrame(rows)
    away = [np.array(r.ours) / printed[str(r.filter)] - 1 for r in table.itertuples()]
    return table.assign(off=[np.sqrt((a**2).mean()) for a in away], worst=[np.abs(a).max() for a in away])


def _rls_errors(starts: tuple[str, ...], sequences: int) -> dict[tuple[str, float, str, str], list[float]]:
    errors: dict[tuple[str, float, str, str], list[float]]
    errors = {key: [] for key in product(starts, (0.01, 1.0, 100.0), ("before", "after"), WINDOWS)}
    for gamma in FIVE_DRIFTS:
        total = dict.fromkeys(errors, 0.0)
        streams = [
            batches(
                _starting(gamma, start),
                sequences,
                generator=make_generator(f"table {gamma}"),
                size=500,
                dtype=torch.float64,
            )
            for start in starts
        ]
        for one, other in zip(*streams, strict=True):  # a filter reads the sequences of both starts at once
            x, y = torch.cat([one.x, other.x]), torch.cat([one.y, other.y])
            for eps in (0.01, 1.0, 100.0):
                track = filters.track(filters.rls(0.98, eps=eps), x, y)
                after = y - (track.w_hat[:, 1:] * x).sum(-1)
                squares = {"before": track.error.square(), "after": after.square()}
                for label, window in product(squares, WINDOWS):
                    mean = squares[label][:, WINDOWS[window]].mean(1)
                    for start, part in zip(starts, mean.chunk(2), strict=True):
                        total[start, eps, label, window] += part.sum().item()
        for key in errors:
            errors[key].append(total[key] / sequences)
    return errors


def closest_conventions(
    table: pd.DataFrame, printed: Mapping[str, Float64[np.ndarray, " 5"]], shown: int = 3
) -> pd.DataFrame:
    """The printed errors and those of the conventions closest to them, equal ones once, as a table to show."""
    rows = []
    for name, values in printed.items():
        rows.append([f"{name}, printed", "", "", "", "", *values, ""])
        of_filter = table[table["filter"] == name]
        different = ~of_filter.ours.map(lambda ours: str(np.round(ours, 4))).duplicated()
        for r in of_filter[different].sort_values("off", kind="stable").head(shown).to_dict("records"):
            P_0 = "" if name == "LMS" else f"{1 / r['1/P₀']:g}"
            rows.append([name, r["start"], r["error"], r["over"], P_0, *r["ours"], f"{r['off']:.1%}"])
    heads = ["", "start", "error", "over", "P₀", *(f"γ = {g}" for g in FIVE_DRIFTS), "off by"]
    return pd.DataFrame(rows, columns=heads)


def single_sequences(
    printed: Mapping[str, Float64[np.ndarray, " 5"]], sequences: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scatter of a single sequence's mean squared error, beside the printed errors' distance from its mean.

    Args:
        printed: the paper's five errors of either filter.
        sequences: a drift.

    Returns:
        Two tables. γ, filter, span, gap (printed over ours, less 1), sequence (relative standard deviation of one
        sequence's mean). And, a row a drift: correlation of the two filters' errors on the same sequences, and z, the
        printed ratio's distance from theirs in standard deviations.
    """
    spans, rows, together = {"last 900": slice(100, None), "last 100": slice(-100, None)}, [], []
    for at, gamma in enumerate(FIVE_DRIFTS):
        p = long_task(gamma).sample(sequences, generator=make_generator(f"single {gamma}"))
        squares = {
            name: (filters.run_filter(f, p.x, p.y) - p.y).square().double()
            for name, f in {"LMS": filters.lms(0.01), "RLS": filters.rls(0.98, eps=0.01)}.items()
        }
        for name, span in product(squares, spans):
            means = squares[name][:, spans[span]].mean(1)
            gap, scatter = printed[name][at] / means.mean().item() - 1, (means.std() / means.mean()).item()
            rows.append({"γ": gamma, "filter": name, "span": span, "gap": gap, "sequence": scatter})
        one, other = (squares[n][:, 100:].mean(1).log() for n in ("LMS", "RLS"))
        quotient, ratio = np.log(printed["LMS"][at] / printed["RLS"][at]), one - other
        correlation = torch.corrcoef(torch.stack([one, other]))[0, 1].item()
        z = (quotient - ratio.mean().item()) / ratio.std().item()
        together.append({"γ": gamma, "correlation": correlation, "z": z})
    return pd.DataFrame(rows), pd.DataFrame(together)


def probabilities_of_scatter(gaps: pd.DataFrame) -> pd.DataFrame:
    """Probability of gaps as large as the printed errors', by filter and span, if they were means over n sequences.

    Indexed by n; chi-squared with five degrees of freedom. Takes the first table of :func:`single_sequences`.
    """
    probabilities = {
        f"{name}, {span}": {
            f"{n:,}": chdtrc(5, n * ((g["gap"] / g["sequence"]) ** 2).sum()) for n in (1, 2, 5, 10, 10_000)
        }
        for (name, span), g in gaps.groupby(["filter", "span"])
    }
    return pd.DataFrame(probabilities).rename_axis(index="sequences")


def error_of_scaled_lms(gamma: float, d: int = 10) -> float:
    """Lowest error of LMS over its step when every prediction is multiplied by the best constant."""
    mu, k = np.linspace(1e-4, 2 / (d + 2), 5001)[:-1], 0.01 / (1 - gamma**2)
    c = gamma * mu * k / (1 - gamma * (1 - mu))
    a = (2 * c + mu * (d + 2) * (k - 2 * c)) / (2 - mu * (d + 2))
    return float(d * (k - c**2 / a).min())


def _tuned_for(gamma: float) -> dict[str, Any]:
    settings = recorded_settings(gamma)
    return {
        **{n: build(n, settings[n]) for n in ("LMS", "RLS", "faded ridge")},
        "GLA": layer(long_task(gamma)),
        "normalised delta rule": filters.normalised_delta_rule(1.0, lam=gamma),
        "Kalman": filters.kalman(long_task(gamma)),
    }


def tuned_elsewhere(sequences: int, home: float = 0.925) -> pd.DataFrame:
    """Errors on the five drifts of methods tuned for one of them, and of the same methods tuned for each.

    Columns: γ, method, here (error when tuned for `home`), own (error when tuned for γ), times (their ratio).
    """
    rows = []
    for gamma in FIVE_DRIFTS:
        both = {f"{n}, here": f for n, f in _tuned_for(home).items()}
        if gamma != home:
            both |= {f"{n}, own": f for n, f in _tuned_for(gamma).items()}
        task, stream = long_task(gamma, n=399), make_generator("travel")
        risk = settled_risk(both, task, sequences, last=200, generator=stream).set_index("method")["risk"]
        for n in _tuned_for(home):
            here = float(risk[f"{n}, here"])
            tuned_error = float(risk.get(f"{n}, own", here))
            rows.append({"γ": gamma, "method": n, "here": here, "own": tuned_error, "times": here / tuned_error})
    return pd.DataFrame(rows)


def costs() -> pd.DataFrame:
    """The recorded costs of a sequence, with what every filter keeps between examples."""
    state = {"APA, K = 4": "Kd + K²", "RLS": "d + d²", "faded ridge": "2d + d²", "Kalman": "d + d²"}
    table = recorded("filter-speed").table
    return table.assign(state=table["filter"].map(state).fillna("d"))
