"""One layer of attention on a drifting rule: errors, what its memory holds, and where a gate wins (*Why stationarity
fails*).

Errors are relative to those of always predicting 0. Closed forms are :mod:`icl.theory.one_layer.closed_forms`'s.
"""

import itertools
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64, Int

from icl.profile import make_generator
from icl.tasks import DriftingRegression
from icl.theory import moments, one_layer
from icl.theory.floors.filtering import kalman_risk
from icl_book.charts import Explorable, explorable, slider


def paper_task(n: int = 100, **changes: Any) -> DriftingRegression:
    """Drift with the paper's default parameters; weights start at sigma_w = 1."""
    return DriftingRegression(**({"d": 10, "n": n, "gamma": 0.95, "sigma_w": 1.0, "sigma_e": 0.1} | changes))


def steady_task(n: int = 100, gamma: float = 0.95, **changes: Any) -> DriftingRegression:
    """The same drift in its steady state: weights start with the variance sigma_e^2 / (1 - gamma^2) that it keeps."""
    return paper_task(n, **({"gamma": gamma, "sigma_w": 0.1 / np.sqrt(1 - gamma**2)} | changes))


def frozen_task(n: int = 100, **changes: Any) -> DriftingRegression:
    """One rule throughout a prompt: gamma = 1, no innovations."""
    return paper_task(n, **({"gamma": 1.0, "sigma_e": 0.0} | changes))


def relative_error(task: DriftingRegression, lam: float) -> float:
    """Error of the layer that was trained for this task with this forgetting factor."""
    return float(one_layer.training_error(task, lam=lam)) / one_layer.zero_predictor(task)


def best_relative_error(task: DriftingRegression) -> float:
    """The same at the best forgetting factor."""
    return relative_error(task, one_layer.optimal_forgetting(task))


def mismatched_error(trained: DriftingRegression, tested: DriftingRegression, lam: float = 1.0) -> float:
    """Relative error on one task of the layer that was trained on another."""
    A = one_layer.optimum(trained, lam=lam).A
    return float(one_layer.layer_risk(A, tested, lam=lam)) / one_layer.zero_predictor(tested)


def kalman_floor(task: DriftingRegression, sequences: int) -> Float64[np.ndarray, " positions"]:
    """The Kalman filter's relative error after 0, 1, ..., n examples, a mean over input sequences."""
    x = task.sample(sequences, generator=make_generator("floor")).x.numpy()
    return np.asarray(kalman_risk(task, x)[0] / one_layer.zero_predictor(task))


def best_length(gamma: float) -> int:
    """Number of examples, at most 100, with which linear attention has its lowest error."""
    return 1 + int(np.argmin([relative_error(steady_task(n, gamma), 1.0) for n in range(1, 101)]))


def memory_shares(task: DriftingRegression, lam: float) -> dict[str, float]:
    """Shares of the memory's variance that are still true, stale, and crosstalk."""
    D = moments.task_moments(task, lam)
    total = (task.d + 2) * D.D2 + D.D3
    true, crosstalk = float(D.D1**2 / D.D4 / total), float((task.d + 1) * D.D2 / total)
    return {"still true": true, "no longer true": 1 - true - crosstalk, "crosstalk": crosstalk}


def simulated_share(
    task: DriftingRegression, lam: float, prompts: int, generator: torch.Generator
) -> tuple[float, float]:
    """Share of the memory's variance that is still true, from simulated prompts, and its standard error."""
    prompt = task.sample(prompts, generator=generator, dtype=torch.float64)
    a = lam ** torch.arange(task.n, 0, -1, dtype=torch.float64)
    memory = torch.einsum("i,bi,bid->bd", a, prompt.y[:, :-1], prompt.x[:, :-1])
    now = prompt.w[:, -1]
    both, m, v = (product.mean(1) for product in (memory * now, memory**2, now**2))  # over coordinates
    share = both.mean() ** 2 / (m.mean() * v.mean())
    influence = share * (2 * both / both.mean() - m / m.mean() - v / v.mean())  # delta method
    return float(share), float(influence.std()) / prompts**0.5


def training_gains() -> pd.DataFrame:
    """Share of linear attention's training error that the best gate removes, over a grid of tasks.

    Columns: weights (the kind of drift), gain. Weights start at sigma_w = 1.
    """
    fading, several = (0.3, 0.5, 0.8, 0.9, 0.95, 0.99), (2, 5, 20, 100)
    kinds: dict[str, tuple[tuple[float, ...], tuple[float, ...], tuple[int, ...]]] = {
        "fading weights, 0 < γ < 1": (fading, (0.0, 0.01, 0.1, 1.0), several),
        "random walk, γ = 1": ((1.0,), (0.1, 1.0), several),
        "a single example": (fading, (0.1, 1.0), (1,)),
        "unrelated weights, γ = 0": ((0.0,), (0.1, 1.0), several),
        "constant weights": ((1.0,), (0.0,), several),
        "growing weights, γ = 1.02": ((1.02,), (0.01, 0.1, 1.0), several),
    }
    rows = []
    for kind, (gammas, noises, lengths) in kinds.items():
        for n, d, gamma, sigma_e in itertools.product(lengths, (1, 2, 10, 50), gammas, noises):
            task = paper_task(n, d=d, gamma=gamma, sigma_e=sigma_e)
            lams = np.array([one_layer.optimal_forgetting(task), 1.0])
            gated, plain = one_layer.training_error(task, lam=lams)
            rows.append({"weights": kind, "gain": 1 - gated / plain})
    return pd.DataFrame(rows)


def shifted_tests() -> pd.DataFrame:
    """Errors of two layers trained at five drifts and tested on others.

    Columns: what changes; trained at γ; tested at γ; n; σₑ; linear attention; GLA; GLA, λ reset (the best forgetting
    factor for the test, all other parameters unchanged).
    """
    homes, lengths, noises = (0.8, 0.85, 0.9, 0.95, 0.975), (5, 20, 50, 200, 500), (0.03, 0.3, 1.0)
    gammas = (0.5, 0.8, 0.85, 0.9, 0.95, 0.975, 1.0)
    rows = []
    for home in homes:
        away = [gamma for gamma in gammas if gamma != home]
        changes: dict[str, list[dict[str, Any]]] = {
            "nothing": [{}],
            "the length": [{"n": n} for n in lengths],
            "the innovations": [{"sigma_e": s} for s in noises],
            "the drift": [{"gamma": g} for g in away],
            "all three": [{"gamma": g, "n": n, "sigma_e": s} for g, n, s in itertools.product(away, lengths, noises)],
            "the drift stops": [{"gamma": 1.0, "n": n, "sigma_e": 0.0} for n in (100, *lengths)],
        }
        for what, settings in changes.items():
            rows += [{"what changes": what} | shifted_test(home, **setting) for setting in settings]
    return pd.DataFrame(rows)


def shifted_test(trained_at: float, **test: Any) -> dict[str, float]:
    """One such test: relative errors of both layers, trained on the paper's task at one drift, on a changed task."""
    home = paper_task(gamma=trained_at)
    task = paper_task(**({"gamma": trained_at} | test))
    lam, zero = one_layer.optimal_forgetting(home), one_layer.zero_predictor(task)
    gated = one_layer.optimum(home, lam=lam).A
    reset = one_layer.layer_risk(gated, task, lam=np.linspace(0, 1, 101)).min()
    return {
        "trained at γ": trained_at,
        "tested at γ": task.gamma,
        "n": task.n,
        "σₑ": task.sigma_e,
        "linear attention": mismatched_error(home, task),
        "GLA": float(one_layer.layer_risk(gated, task, lam=lam)) / zero,
        "GLA, λ reset": float(reset) / zero,
    }


def slope_by_ages(task: DriftingRegression) -> float:
    """d ln(share still true) / d lambda at lambda = 1, as twice a difference of two mean ages."""
    k, age = task.weight_kernel(), np.arange(task.n, 0, -1)
    true = k[:-1, -1]
    stored = (task.d + 1) * np.diag(k)[:-1] + k[:-1, :-1].sum(1)
    return float(2 * (age @ true / true.sum() - age @ stored / stored.sum()))


def slope_by_difference(task: DriftingRegression, step: float = 1e-5) -> float:
    """The same slope from a central difference."""
    up, down = (memory_shares(task, 1 + change)["still true"] for change in (step, -step))
    return float((np.log(up) - np.log(down)) / (2 * step))


def window_share(m: Float64[np.ndarray, "*any"], gamma: float, d: int) -> Float64[np.ndarray, "*any"]:
    """Share still true in the memory of the last m examples, without a gate, in the steady state.

    Args:
        m: window lengths; real numbers are taken as well.
    """
    true = (gamma * (1 - gamma**m) / (1 - gamma)) ** 2
    agreeing = m * (1 + gamma) / (1 - gamma) - 2 * gamma * (1 - gamma**m) / (1 - gamma) ** 2
    return np.asarray(true / ((d + 1) * m + agreeing))


def best_window(gamma: float, d: int, longest: int = 2000) -> int:
    """Number of last examples that maximises :func:`window_share`."""
    return 1 + int(np.argmax(window_share(np.arange(1.0, longest + 1), gamma, d)))


def window_of_many_dimensions() -> tuple[float, float]:
    """Best window in half-lives as d grows without limit, and its share over that of the best gate."""
    spent = np.linspace(0.01, 5, 100_000)  # m ln(1 / gamma)
    shares = 2 * (1 - np.exp(-spent)) ** 2 / spent
    return float(spent[shares.argmax()] / np.log(2)), float(shares.max())


def unlearning_sliders(lengths: Int[np.ndarray, " m"], level: float) -> Explorable:
    """Sliders of the chapter's first figure: persistence of the rule, and the gated layer's forgetting factor.

    Args:
        lengths: numbers of examples, increasing.
        level: where the gated layer levels off at first.
    """
    turns = {gamma: best_length(gamma) for gamma in (0.8, 0.95, 0.99)}
    return explorable(
        "unlearning",
        slider("gamma", 0.6, 0.99, value=0.95, words="how much of the rule is kept"),
        slider("lam", 0.5, 1.0, value=0.9, words="how much of its memory the gated layer keeps"),
        question="After how many pairs does more reading begin to hurt linear attention? Move γ and watch the star. "
        "Can you choose λ so that the gated layer is not hurt?",
        answer=f"Linear attention is at its best with {turns[0.95]} examples at γ = 0.95, with fewer if the rule "
        f"drifts faster ({turns[0.8]} at γ = 0.8), with more if it drifts more slowly ({turns[0.99]} at γ = 0.99). "
        f"With λ = 0.9 the gated layer levels off at {level:.2f} of the zero predictor's error; with λ = 1 it is "
        "linear attention again.",
        d=10,
        sigma_e=0.1,
        lengths=lengths.tolist(),
    )
