"""Best forgetting factor of one layer of attention: grids, simulations, printed formulas, filters (*How much to
forget*).

Closed forms are :mod:`icl.theory.one_layer.closed_forms`'s; :mod:`icl.theory.errata.adaptation` holds the formulas as
the paper prints them.
"""

import itertools
import time
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64

from icl import filters, profile
from icl.experiments.evaluation import squared_error
from icl.models.one_layer import features, predict_from_features
from icl.profile import make_generator
from icl.tasks import DriftingRegression, Prompt, batches
from icl.theory import moments, one_layer
from icl.theory.errata import adaptation
from icl.theory.floors import kalman_risk
from icl.theory.steady import lms_family
from icl_book.chapters.adaptation.why_stationarity_fails import kalman_floor, paper_task
from icl_book.charts import Explorable, explorable, slider

#: Persistence of the five drifts of the paper's Figure 1a.
FIVE_DRIFTS = (0.8, 0.85, 0.925, 0.95, 0.975)
#: Grid of forgetting factors in (0, 1].
FACTORS = np.linspace(0.005, 1, 200)
#: Scales (sigma_w, sigma_e) on which formulas are compared.
SCALES = ((1.0, 0.1), (0.5, 1.0), (1.0, 0.0), (0.0, 0.3))


def best_factor(**changes: Any) -> float:
    """Best forgetting factor for the paper's default task with changes."""
    return one_layer.optimal_forgetting(paper_task(**changes))


def floor(task: DriftingRegression, sequences: int = 400) -> float:
    """Kalman's error at the query, a mean over input sequences."""
    return one_layer.zero_predictor(task) * float(kalman_floor(task, sequences)[-1])


def cost_of_no_gate(gamma: float) -> float:
    """Relative excess of the error without forgetting over that of the best forgetting factor."""
    task = paper_task(gamma=gamma)
    best, none = one_layer.training_error(task, lam=np.array([one_layer.optimal_forgetting(task), 1.0]))
    return float(none / best - 1)


def forgetting_sliders() -> Explorable:
    """Sliders of the chapter's first figure: the drift, its dimensions, and the length of the prompt."""
    fast, usual, walk = (best_factor(gamma=gamma) for gamma in (0.5, 0.95, 1.0))
    return explorable(
        "forgetting",
        slider("gamma", 0.5, 1.0, value=0.95, step=0.005, words="persistence of the drift"),
        slider("d", 1, 40, value=10, words="dimensions"),
        slider("n", 2, 300, value=100, words="examples"),
        slider("sigma_e", 0.01, 1.0, value=0.1, step=0.01, words="size of the innovations"),
        question="How much should you forget when the drift is slow? Move γ to 1 and see where the star goes. Then "
        "press Reset and move d, then σₑ: which of the two moves the star?",
        answer=f"The slower the drift, the less to forget: the star is at λ = {fast:.3f} for γ = 0.5, at {usual:.3f} "
        f"for 0.95 and at {walk:.3f} for 1. Without forgetting (λ = 1) the error is {cost_of_no_gate(0.5):.0%}, "
        f"{cost_of_no_gate(0.95):.0%} and {cost_of_no_gate(1.0):.0%} larger. From γ = 0.95, d = 40 moves the star to "
        f"{best_factor(d=40):.3f}; σₑ = 1 leaves it at {best_factor(sigma_e=1.0):.3f}.",
    )


def errors_at_gates() -> pd.DataFrame:
    """Errors on the five drifts at the best forgetting factor, at lambda = gamma and without forgetting, and limits."""
    rows = []
    for gamma in FIVE_DRIFTS:
        task, best = paper_task(gamma=gamma), best_factor(gamma=gamma)
        at_best, at_gamma, none = one_layer.training_error(task, lam=np.array([best, gamma, 1.0]))
        limits = {"zero predictor": one_layer.zero_predictor(task), "Kalman": floor(task)}
        rows.append({"γ": gamma, "λ*": best, "at λ*": at_best, "at λ = γ": at_gamma, "at λ = 1": none} | limits)
    return pd.DataFrame(rows)


def cost_of_window(factor: float) -> float:
    """Largest relative cost, over the five drifts, of an effective window 1 / (1 - lambda) too long or too short."""
    costs = []
    for gamma in FIVE_DRIFTS:
        best = best_factor(gamma=gamma)
        lams = np.array([best, 1 - (1 - best) * factor, 1 - (1 - best) / factor])
        least, *off = one_layer.training_error(paper_task(gamma=gamma), lam=lams)
        costs.append(max(off) / least - 1)
    return float(max(costs))


def best_factors() -> dict[str, Float64[np.ndarray, " settings"]]:
    """Best forgetting factors over a grid of lengths, dimensions and drifts, by the kind of weights."""
    lengths, dims, noises = (2, 5, 10, 50, 100), (1, 2, 5, 10, 50), (0.01, 0.1, 1.0)
    grid = itertools.product(lengths, dims, (0.5, 0.8, 0.9, 0.95, 0.99), noises)
    return {
        "fading": np.array([best_factor(n=n, d=d, gamma=g, sigma_e=s) for n, d, g, s in grid]),
        "constant": np.array([best_factor(n=n, gamma=1.0, sigma_e=0.0) for n in (2, 10, 100)]),
        "growing": np.array([best_factor(gamma=1.02, sigma_e=s) for s in noises]),
    }


def growth_of_sums() -> Float64[np.ndarray, " curves"]:
    """Smallest increase of D1, D2 and D3 from one forgetting factor to the next, over a grid of tasks."""
    grid = itertools.product((0.3, 0.8, 0.95, 1.0), (2, 10, 100), SCALES)
    sums = [moments.recursion(FACTORS, gamma=gamma, n=n, sigma_w=w, sigma_e=e) for gamma, n, (w, e) in grid]
    return np.array([np.diff(getattr(D, name)).min() for name in ("D1", "D2", "D3") for D in sums])


def xi_peaks_at_gamma() -> list[bool]:
    """For every task of a grid, True if D1^2 / D2 rises up to lambda = gamma and falls beyond it."""
    peaks_at_gamma = []
    for gamma, n, (w, e) in itertools.product((0.3, 0.5, 0.8, 0.9, 0.95), (2, 5, 100), SCALES):
        score = one_layer.xi(paper_task(n, gamma=gamma, sigma_w=w, sigma_e=e), lam=FACTORS)
        slope, rounding = np.diff(score), 1e-12 * score.max()
        rises = (slope[FACTORS[1:] <= gamma + 1e-9] > -rounding).all()
        peaks_at_gamma.append(bool(rises and (slope[FACTORS[:-1] >= gamma - 1e-9] < rounding).all()))
    return peaks_at_gamma


def is_convex(task: DriftingRegression) -> bool:
    """True if the error is convex in the forgetting factor, on a grid over (0, 1]."""
    return bool((np.diff(one_layer.training_error(task, lam=FACTORS), 2) > -1e-12).all())


def convex_settings() -> pd.DataFrame:
    """A grid of tasks, and for each whether its error is convex in the forgetting factor."""
    lengths, dims = (2, 3, 5, 8, 10, 20, 50, 100), (1, 2, 5, 10)
    grid = list(itertools.product(lengths, dims, (0.5, 0.8, 0.9, 0.95, 1.0), (0.1, 1.0)))
    table = pd.DataFrame(grid, columns=["n", "d", "gamma", "sigma_e"])
    return table.assign(convex=[is_convex(paper_task(n, d=d, gamma=g, sigma_e=s)) for n, d, g, s in grid])


def is_valley(errors: Float64[np.ndarray, " m"]) -> bool:
    """True if a curve falls to one minimum inside and rises from there."""
    turn = int(errors.argmin())
    falls, rises = np.diff(errors[: turn + 1]), np.diff(errors[turn:])
    return bool(0 < turn < len(errors) - 1 and (falls < 0).all() and (rises > 0).all())


def training_and_test_errors() -> list[Float64[np.ndarray, " factors"]]:
    """Error against the forgetting factor on the five drifts: in training, and in tests of the layer of 0.9."""
    curves = []
    for gamma in FIVE_DRIFTS:
        task = paper_task(gamma=gamma)
        curves.append(one_layer.training_error(task, lam=FACTORS))
        curves.append(one_layer.layer_risk(one_layer.optimum(task, lam=0.9).A, task, lam=FACTORS))
    return curves


def errors_against_gamma(
    lams: Iterable[float],
) -> tuple[Float64[np.ndarray, "lams gammas"], Float64[np.ndarray, " gammas"]]:
    """Errors at fixed forgetting factors against gamma from 0 to 1, in steps of 0.01, and the zero predictor's."""
    tasks = [paper_task(gamma=gamma) for gamma in np.linspace(0.0, 1.0, 101)]
    errors = np.array([[one_layer.training_error(task, lam=lam) for task in tasks] for lam in lams])
    return errors, np.array([one_layer.zero_predictor(task) for task in tasks])


def unequal_tasks() -> dict[str, tuple[DriftingRegression, float]]:
    """Five tasks with unequal input variances, each with a forgetting factor."""
    mild, extreme = np.diag([2.0, 1.0, 0.6, 0.4]), np.diag([10.0, 1.0, 0.1, 0.01])
    return {
        "slow, mild": (paper_task(50, d=4, Lambda=mild), 0.9),
        "slow, extreme": (paper_task(50, d=4, Lambda=extreme), 0.9),
        "fast": (paper_task(30, d=5, gamma=0.7, sigma_e=0.5, Lambda=np.diag([3.0, 2.0, 1.0, 1.0, 0.5])), 0.6),
        "λ = γ": (paper_task(d=3, gamma=0.9, Lambda=np.diag([1.0, 0.5, 0.25])), 0.9),
        "no gate": (paper_task(40, d=8, gamma=0.98, Lambda=np.diag(np.linspace(0.2, 2.0, 8))), 1.0),
    }


def tasks_out_of_range() -> dict[str, tuple[DriftingRegression, float]]:
    """Tasks and forgetting factors for which Theorem 2 is not stated: random walks, growing weights, lambda above 1."""
    task = partial(paper_task, d=4, Lambda=np.diag([2.0, 1.0, 0.6, 0.4]))
    growing = task(40, gamma=1.03, sigma_w=0.2)
    return {
        "γ = 1, λ < 1": (task(40, gamma=1.0), 0.9),
        "γ = λ = 1": (task(40, gamma=1.0), 1.0),
        "γ > 1, λ < 1": (growing, 0.97),
        "γ > 1, λ > 1": (growing, 1.02),
        "γ < 1, λ = 1/γ": (task(20), 1 / 0.95),
    }


def _predict(prompt: Prompt, A: np.ndarray, lam: float) -> torch.Tensor:
    return predict_from_features(features(prompt, lam), A, prompt.x[:, -1])


def against_prompts(
    name: str, tasks: Mapping[str, tuple[DriftingRegression, float]], prompts: int
) -> tuple[pd.DataFrame, float]:
    """Theorem 2 beside the mean squared error on simulated prompts, one row a task; and the seconds that it took.

    Args:
        name: of the record, which names the random streams.
        tasks: tasks with their forgetting factors.
        prompts: number for each task.
    """
    start, rows = time.monotonic(), []
    for setting, (task, lam) in tasks.items():
        mean, se = squared_error(
            partial(_predict, A=one_layer.optimum(task, lam=lam).A, lam=lam),
            task,
            prompts,
            generator=make_generator(f"{name}, {setting}, {profile.current()}"),
            dtype=torch.float32,
        )
        formula = float(one_layer.training_error(task, lam=lam))
        z = (float(mean) - formula) / float(se)
        rows.append({"setting": setting, "(16)": formula, "simulated": float(mean), "s.e.": float(se), "z": z})
    return pd.DataFrame(rows), time.monotonic() - start


def second_moments(
    task: DriftingRegression, lam: float, prompts: int, generator: torch.Generator
) -> tuple[Float64[np.ndarray, "d d"], Float64[np.ndarray, "d d"]]:
    """Second moments of the memory sum_i a_i y_i x_i over simulated prompts, and their standard errors."""
    sums, squares = np.zeros((task.d, task.d)), np.zeros((task.d, task.d))
    for prompt in batches(task, prompts, generator=generator, dtype=torch.float32):
        g = features(prompt, lam).double().numpy()
        outer = g[:, :, None] * g[:, None, :]
        sums, squares = sums + outer.sum(0), squares + (outer**2).sum(0)
    mean = sums / prompts
    return mean, np.sqrt((squares / prompts - mean**2) / prompts)


def slopes_at_optimum(task: DriftingRegression, lam: float, step: float = 1e-4) -> Float64[np.ndarray, " entries"]:
    """Slope of the error in every entry of A at its optimum, by central differences."""
    A = one_layer.optimum(task, lam=lam).A
    changes = step * np.eye(A.size).reshape(A.size, *A.shape)
    risk = partial(one_layer.layer_risk, task=task, lam=lam)
    return np.array([risk(A + change) - risk(A - change) for change in changes]) / (2 * step)


def _printed_cases() -> dict[str, list[dict[str, Any]]]:
    grid = [
        {"gamma": gamma, "n": n, "sigma_w": w, "sigma_e": e}
        for gamma, n, (w, e) in itertools.product((0.3, 0.8, 0.9, 0.95), (2, 5, 20, 100), SCALES)
    ]
    pairs = itertools.product(grid, (0.5, 0.7, 0.85, 0.99))
    return {
        "λ = 1": [{"lam": 1.0, **setting} for setting in grid],
        "λ = γ": [{"lam": setting["gamma"], **setting} for setting in grid],
        "λ ≠ γ": [{"lam": lam, **setting} for setting, lam in pairs if lam != setting["gamma"]],
    }


def printed_sums(
    name: str, *cases: str, corrected: Collection[int] | None = None
) -> tuple[Float64[np.ndarray, " settings"], Float64[np.ndarray, " settings"]]:
    """Printed closed form of one of D1, D2, D3 over a grid of tasks, and its value by the recursion.

    Args:
        name: "D1", "D2" or "D3".
        cases: "λ = 1", "λ = γ", "λ ≠ γ".
        corrected: numbers of the errata to correct; None for all.
    """
    settings = [setting for case in cases for setting in _printed_cases()[case]]
    options = {} if corrected is None else {"mend": corrected}
    printed = np.array([getattr(adaptation, name)(**setting, **options) for setting in settings])
    return printed, np.array([float(getattr(moments.recursion(**setting), name)) for setting in settings])


def deviation_with_one_misprint() -> dict[int, float]:
    """Median relative deviation of the third form of D3 with one of its errata left uncorrected, by its number."""
    deviations = {}
    for number in (2, 3, 4, 5):
        nearly, exact = printed_sums("D3", "λ ≠ γ", corrected={2, 3, 4, 5} - {number})
        deviations[number] = float(np.median(np.abs(nearly / exact - 1)))
    return deviations


def cost_of_misprints() -> pd.DataFrame:
    """Consequences of the printed sums, at settings near and far from lambda = gamma, the worst first.

    Columns: γ; λ; excess (of the error of the layer built from them, relative to the best layer); (16) over the truth
    (the error formula evaluated with them); over the baseline (that layer's error over the zero predictor's).
    """
    rows = []
    for gamma in (0.8, 0.85, 0.9, 0.95, 0.975):
        task = paper_task(gamma=gamma)
        for lam in (0.7, 0.85, 0.9, 0.95, 0.96, 0.97, 0.99, gamma):
            setting: dict[str, Any] = {"lam": lam, "gamma": gamma, "n": 100, "sigma_w": 1.0, "sigma_e": 0.1}
            D1 = adaptation.D1(**setting)
            V = 12 * adaptation.D2(**setting, mend=()) + adaptation.D3(**setting, mend=())
            truth = float(one_layer.training_error(task, lam=lam))
            built = float(one_layer.layer_risk(D1 / V * np.eye(10), task, lam=lam))
            formula = 10 * (float(moments.recursion(**setting).D4) - D1**2 / V)
            baseline = built / one_layer.zero_predictor(task)
            rows.append([gamma, lam, built / truth - 1, formula / truth, baseline])
    columns = ["γ", "λ", "excess", "(16) over the truth", "over the baseline"]
    return pd.DataFrame(rows, columns=columns).sort_values("excess", ascending=False)


def isotropic_forms() -> pd.DataFrame:
    """The paper's formula for isotropic inputs at lambda = 0.9, as printed and corrected, beside Theorem 2."""
    rows = []
    for d, gamma in itertools.product((2, 5, 10, 50), (0.8, 0.95)):
        task = paper_task(d=d, gamma=gamma)
        D, exact = moments.task_moments(task, 0.9), float(one_layer.training_error(task, lam=0.9))
        printed = adaptation.printed_identity_error(D, d=d, mend=())
        rows.append([d, gamma, printed, adaptation.printed_identity_error(D, d=d), exact])
    return pd.DataFrame(rows, columns=["d", "γ", "printed", "corrected", "exact"])


def trained_layers(runs: pd.DataFrame) -> pd.DataFrame:
    """Layers trained by AdamW from small random starts, of the record `gla-adamw`.

    Columns: γ, λ, error, exact (of Theorem 2), best (True at the best forgetting factor).
    """
    runs = runs[(runs.step == runs.step.max()) & (runs.kind == "Gaussian, 0.02")]
    table = runs[["γ", "λ", "error"]].reset_index(drop=True)
    tasks = [paper_task(gamma=gamma) for gamma in table["γ"]]
    exact = [float(one_layer.training_error(task, lam=lam)) for task, lam in zip(tasks, table["λ"], strict=True)]
    best = {gamma: best_factor(gamma=gamma) for gamma in table["γ"].unique()}
    return table.assign(exact=exact, best=np.isclose(table["λ"], table["γ"].map(best)))


def least_squares_layers(
    task: DriftingRegression, lams: Collection[float], prompts: int
) -> Float64[np.ndarray, " lams"]:
    """Exact errors of layers whose matrix is the least-squares fit of the query's label, one a forgetting factor."""
    prompt = task.sample(prompts, generator=make_generator(f"regression, γ = {task.gamma}"))
    x, y, errors = prompt.x[:, -1].double(), prompt.y[:, -1].double(), []
    for lam, g in zip(lams, features(prompt, list(lams)).double(), strict=True):
        inputs = torch.einsum("bi,bj->bij", g, x).flatten(1)
        fit = torch.linalg.solve(inputs.T @ inputs, inputs.T @ y)
        errors.append(float(one_layer.layer_risk(fit.reshape(task.d, task.d).numpy(), task, lam=lam)))
    return np.array(errors)


def three_ways(trained: pd.DataFrame, prompts: int) -> pd.DataFrame:
    """Error of one layer at the forgetting factors of :func:`trained_layers`: formula, least squares, AdamW.

    Columns: γ, λ, closed form, least squares (fitted to this many prompts), AdamW, median; best, as there.
    """
    tables = []
    for gamma in FIVE_DRIFTS:
        median = (
            trained[trained["γ"] == gamma]
            .groupby("λ")
            .agg(exact=("exact", "first"), error=("error", "median"), best=("best", "first"))
        )
        task, lams = paper_task(gamma=gamma), median.index.to_numpy()
        fitted = least_squares_layers(task, lams.tolist(), prompts)
        columns = {"closed form": median["exact"].to_numpy(), "least squares": fitted}
        columns |= {"AdamW, median": median["error"].to_numpy(), "best": median["best"].to_numpy()}
        tables.append(pd.DataFrame({"γ": gamma, "λ": lams} | columns))
    return pd.concat(tables, ignore_index=True)


def long_prompts(sequences: int) -> tuple[pd.DataFrame, float]:
    """Errors against the length of the prompt, up to 1,000 examples, and Kalman's over the last hundred positions."""
    task = paper_task(1000)
    x = task.sample(sequences, generator=make_generator("long floor")).x.numpy()
    limit, rows = kalman_risk(task, x)[0], []
    for n in np.unique(np.geomspace(5, 1000, 30).astype(int)):
        shorter = paper_task(int(n))
        best, none = one_layer.training_error(shorter, lam=np.array([one_layer.optimal_forgetting(shorter), 1.0]))
        zero = one_layer.zero_predictor(shorter)
        rows.append({"n": n, "zero predictor": zero, "linear attention": none, "GLA": best, "Kalman": limit[n]})
    return pd.DataFrame(rows).set_index("n"), float(limit[-100:].mean())


def best_weights() -> pd.DataFrame:
    """Errors on the five drifts of the best exponential weights, of the best weights of any shape, and of Kalman."""
    rows = []
    for gamma in FIVE_DRIFTS:
        task = paper_task(gamma=gamma)
        exponential = float(one_layer.training_error(task, lam=one_layer.optimal_forgetting(task)))
        rows.append([gamma, exponential, one_layer.position_error(task), floor(task)])
    return pd.DataFrame(rows, columns=["γ", "exponential", "any shape", "Kalman"])


def filter_settings() -> dict[str, Float64[np.ndarray, " settings"]]:
    """Step sizes of LMS, NLMS and affine projection, and forgetting factors of RLS, from short to long windows."""
    return {
        "LMS": np.geomspace(0.1, 1e-3, 14),
        "NLMS": np.geomspace(1.5, 1e-2, 14),
        "APA": np.geomspace(1, 1e-2, 14),
        "RLS": 1 - np.geomspace(0.25, 3e-3, 14),
    }


def _window(name: str, settings: np.ndarray) -> np.ndarray:
    """Effective window, in examples, for ten dimensions and, for APA, four examples."""
    return 1 / (1 - settings) if name == "RLS" else {"LMS": 1, "NLMS": 10, "APA": 2.5}[name] / settings


def sweep_filters(sequences: int, gammas: Iterable[float] = FIVE_DRIFTS, n: int = 400) -> pd.DataFrame:
    """Steady-state errors of adaptive filters at many settings.

    Columns: γ, filter, setting, window (effective, in examples), error (of a-priori predictions over the second half of
    n examples), s.e., over the baseline (the zero predictor's error after n examples).
    """
    make: dict[str, Any] = {
        "LMS": filters.lms,
        "NLMS": filters.nlms,
        "APA": partial(filters.apa, K=4, eps=1e-6),
        "RLS": partial(filters.rls, eps=0.01),
    }
    tables = []
    for gamma in gammas:
        task = paper_task(n, gamma=gamma)
        p = task.sample(sequences, generator=make_generator("filters"), dtype=torch.float64)
        for name, settings in filter_settings().items():
            y_hat = filters.run_filter(make[name](torch.as_tensor(settings.copy())[:, None]), p.x, p.y)
            tail = (y_hat - p.y)[..., n // 2 :].square().mean(-1)
            error, se = tail.mean(-1).numpy(), tail.std(-1).numpy() / sequences**0.5
            columns = {"setting": settings, "window": _window(name, settings), "error": error, "s.e.": se}
            columns["over the baseline"] = error / one_layer.zero_predictor(task)
            tables.append(pd.DataFrame({"γ": gamma, "filter": name} | columns))
    return pd.concat(tables, ignore_index=True)


def tune_filters(swept: pd.DataFrame) -> pd.DataFrame:
    """Rows of :func:`sweep_filters` with the lowest error for every drift and filter.

    Adds a column `place`: "inside" the range of settings, or the "shortest" or "longest" window tried.
    """
    best = swept.loc[swept.groupby(["γ", "filter"]).error.idxmin()]
    ends = swept.groupby("filter").window.agg(["min", "max"]).loc[best["filter"]].to_numpy()
    place = np.select([best.window == ends[:, 0], best.window == ends[:, 1]], ["shortest", "longest"], "inside")
    return best.assign(place=place)


def lms_error(gamma: float, step: float = 1e-6) -> float:
    """Exact steady-state error of LMS on the paper's drift, by default at its first step away from 0."""
    return float(lms_family.steady_error(paper_task(gamma=gamma), step))
