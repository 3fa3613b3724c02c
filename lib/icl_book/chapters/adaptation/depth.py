"""Stacks of layers: trainings, outliers, ablations, the two-layer landscape, convergence (*Depth*).

Layers are :mod:`icl.models.stacks`'s. A training is told from the recorded ones by the spread of their seeds.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.optimize import brentq, minimize
from torch import Tensor

from icl import filters, profile, theory
from icl.experiments.evaluation import settled_risk
from icl.experiments.training import AdamW, Config, Diverged, deep, fit
from icl.models import one_layer
from icl.models.causal import Normalised
from icl.models.paper_conventions import BEST, LITERAL, Convention, FullStack
from icl.models.stacks import DeltaStack, GatedStack, Stack, read_strictly
from icl.profile import by_profile, make_generator
from icl.tasks import DriftingRegression, Prompt, batches
from icl.tasks.drifts import two_timescales
from icl_book.charts import Explorable, explorable, slider
from icl_book.records import record

Models = dict[str, Any]
Polynomial = dict[tuple[int, ...], Tensor]
Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]
Example = tuple[np.ndarray, np.ndarray, np.ndarray]

#: The chapter's drifts.
GAMMAS = (0.8, 0.95, 0.975)
#: Forgetting factors that layers shared.
FACTORS = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99)
#: Drifts that are the sum of a slow and a fast part.
TWO = {"slow and fast": (0.99, 0.8), "very slow and very fast": (0.999, 0.5)}
#: Readings of (5) to (9) as a layer of a stack.
READINGS: dict[str, Convention] = {
    "literal (5)": LITERAL,
    "(5), residual": Convention(residual=True, strict=False, sign=1),
    "(5), residual, minus": Convention(residual=True, strict=False, sign=-1),
    "strict": Convention(residual=False, strict=True, sign=1),
    "strict, residual": Convention(residual=True, strict=True, sign=1),
    "strict, residual, minus": BEST,
}
#: Standard error over prompts from which on a few of them rule the mean.
RULED = 0.05
#: Names of the records in the page's words.
SHOWN = {"delta rule": "normalised delta rule"}
#: Families of models by the number of layers.
FAMILIES: dict[str, Callable[[int], Any]] = {
    "GLA": lambda layers: Stack(10, layers),
    "normalised GLA": lambda layers: Normalised(Stack(10, layers)),
    "delta rule": lambda layers: DeltaStack(10, layers),
}


def by_depth(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Mean excess over seeds and its standard error: that of the test prompts, shared by all, and the seeds' own.

    Where the standard error over prompts is above `RULED` for a seed, or the seed has no average, the mean is left out;
    `ruled` counts such seeds.
    """
    groups = table.groupby(columns)
    ruled = groups.excess_se.agg(lambda se: (~(se < RULED)).sum())
    mean, seeds = groups.excess.mean(), groups.excess.std(ddof=1) / groups.size() ** 0.5
    se = np.hypot(groups.excess_se.mean(), seeds.fillna(0.0))
    excess = pd.DataFrame({"excess": mean, "se": se}).where(ruled == 0)
    return excess.assign(ruled=ruled)


def over_kalman(law: pd.DataFrame, outliers: pd.DataFrame, gamma: float = 0.95) -> dict[str, pd.Series]:
    """Error of every family by depth, in multiples of Kalman's; GLA with two layers and more without outliers.

    Args:
        law: the record of :func:`depth_law`.
        outliers: the record of :func:`tails`.
        gamma: the drift.
    """
    here = law[law["γ"] == gamma]
    floor = here[here.family == "Kalman"].risk.iloc[0]
    by_family = by_depth(here[here.family != "Kalman"], ["family", "layers"]).excess
    excess = {name: by_family[name].dropna() for name in FAMILIES}
    without = by_depth(outliers, ["family", "layers"]).excess["GLA"]
    excess["GLA"] = pd.concat([excess["GLA"].loc[[1]], without])
    return {SHOWN.get(name, name): 1 + e / floor for name, e in excess.items()}


def percent_above(depth: pd.DataFrame, floor: pd.Series) -> pd.DataFrame:
    """Excess of :func:`by_depth` and its standard error in percent of Kalman's error, by γ, family and layers."""
    percent = depth.copy()
    percent[["excess", "se"]] = 100 * depth[["excess", "se"]].div(floor, axis=0, level="γ")
    return percent.rename(index=SHOWN, level="family")


def learnt_factors(law: pd.DataFrame, gamma: float = 0.95, deepest: int = 6) -> pd.DataFrame:
    """Forgetting factors that GLA learnt, by layers and seed, one column a layer."""
    here = law[(law["γ"] == gamma) & (law.family == "GLA") & (law.layers <= deepest)]
    learnt = here.set_index(["layers", "seed"])["λ by layer"].str.split(expand=True).astype(float)
    return learnt.rename(columns=lambda k: f"layer {k + 1}")


def bracketed(row: pd.Series) -> str:
    """A mean with two decimals, its standard error in brackets, in units of the last digit; or how many have none."""
    if row.ruled:
        return f"no mean ({row.ruled:.0f} of 5)"
    return f"{row.excess:.2f}({row.se * 100:.0f})"


def drifting(gamma: float, n: int = 100) -> DriftingRegression:
    """The paper's drift, begun where it settles."""
    settled = 0.1 / (1 - gamma**2) ** 0.5
    return DriftingRegression(d=10, n=n, gamma=gamma, sigma_w=settled)


def late(model: Any, prompt: Prompt) -> Tensor:
    """The two-stream loss, over queries with 50 examples and more."""
    return model.loss(prompt, since=50)


def trained(
    model: Any,
    task: Any,
    *,
    seed: int = 0,
    name: str = "depth",
    config: Config | None = None,
    of: str | None = None,
) -> float:
    """Train in place; the training loss at the end, or NaN for a training that was lost.

    Each profile draws its own prompts, unless `of` names the profile whose prompts are drawn.
    """
    layers = getattr(model, "layers", None) or model.model.layers
    stream = make_generator(f"{name} {of or profile.current()}", seed=seed)
    model.to(profile.device())
    try:
        losses = fit(model, late, task, config or deep(layers), generator=stream).losses
    except Diverged:
        losses = np.full(50, np.nan)
    model.cpu()
    return losses[-50:].mean()


def finite_or_none(table: pd.DataFrame) -> pd.DataFrame:
    """What overflowed or was lost is no number: an empty cell of the record."""
    table = table.replace([np.inf, -np.inf], np.nan)
    return table.astype(object).where(table.notna(), None)


def rerun(name: str, compute: Callable[[], pd.DataFrame], **config: Any) -> None:
    """Record a run, at the profile paper only."""
    if profile.current() == "paper":
        began = time.monotonic()
        table = finite_or_none(compute())
        record(name, table, config=config, seconds=time.monotonic() - began)


def _errors(models: Models, task: Any, total: int, name: str) -> tuple[Tensor, dict[str, tuple[Tensor, bool]]]:
    """Kalman's and the models' last ten errors on the same prompts, and whether a model's are finite everywhere.

    At either profile the prompts are the record's, on which a training is told from the recorded ones by the spread of
    seeds.
    """
    stream = make_generator(f"test {name} paper")
    best: list[Tensor] = []
    by_model: dict[str, list[Tensor]] = {key: [] for key in models}
    finite = dict.fromkeys(models, True)
    for p in batches(task, total, generator=stream, size=2_000, dtype=torch.float64):
        best.append((filters.run_filter(filters.kalman(task), p.x, p.y) - p.y)[:, -10:])
        with torch.no_grad():
            for key, model in models.items():
                errors = model.double().errors(p.x, p.y)
                finite[key] &= bool(errors.isfinite().all())
                by_model[key].append(errors[:, -10:])
    return torch.cat(best), {key: (torch.cat(parts), finite[key]) for key, parts in by_model.items()}


def _mean(values: Tensor) -> tuple[float, float]:
    """Mean and standard error."""
    return values.mean().item(), values.std().item() / max(len(values), 1) ** 0.5


def against_kalman(models: Models, task: Any, total: int, *, name: str) -> pd.DataFrame:
    """Risks with 91 to 100 examples, and what they exceed Kalman's by on the same prompts.

    A model that overflows on one of them has no risk to speak of: its row is empty.
    """
    best, by_model = _errors(models, task, total, name)
    exact = best.square().mean(1)
    risk, se = _mean(exact)
    rows = {"Kalman": {"risk": risk, "se": se, "excess": 0.0, "excess_se": 0.0}}
    for key, (errors, finite) in by_model.items():
        rows[key] = dict.fromkeys(rows["Kalman"], np.nan)
        if finite:
            squares = errors.square().mean(1)
            rows[key] = dict(zip(rows[key], (*_mean(squares), *_mean(squares - exact)), strict=True))
    return pd.DataFrame(rows).T


def but_for_outliers(models: Models, task: Any, total: int, *, name: str) -> pd.DataFrame:
    """Errors with 91 to 100 examples, and what they exceed Kalman's by, but for outliers.

    An outlier is a prompt on which one of these ten errors is 20 or more, or no number. Excess and risk are those of
    all other prompts; the Kalman filter reads the same ones.
    """
    best, by_model = _errors(models, task, total, name)
    exact = best.square()
    level = exact.mean().item()
    rows = {"Kalman": {"risk": level, "excess": 0.0, "excess_se": 0.0, "outliers": 0}}
    for key, (errors, _) in by_model.items():
        well = (errors.abs() < 20).all(1)
        excess, se = _mean((errors.square() - exact)[well].mean(1))
        rows[key] = {
            "risk": level + excess,
            "excess": excess,
            "excess_se": se,
            "outliers": int((~well).sum()),
            "worst": min(errors.abs().nan_to_num(nan=torch.inf).max().item(), 1e300),
        }
    return pd.DataFrame(rows).T


def agrees(live: pd.DataFrame, record: Any, columns: list[str], value: str = "excess") -> float:
    """Distance of a live training from the recorded ones on the same prompts, at most; more than 5 is an error.

    In standard errors, which are the spread of the record's seeds: the live training is one of them, or one more.
    """
    seeds = record.table.groupby(columns)[value].agg(["mean", "std", "size"])
    seeds = seeds.rename(columns={"mean": value, "std": "spread"}).reset_index()
    now = live.merge(seeds[[*columns, "spread"]], on=columns, how="left")
    seeds["spread"] /= seeds["size"] ** 0.5
    return replace(record, table=seeds).covers(now, on=columns, value=value, standard_error="spread")


def reading_runs(
    plan: Mapping[tuple[str, float], Sequence[int]], seeds: int, total: int, steps: int, *, batch: int = 64
) -> pd.DataFrame:
    """The paper's optimiser on full matrices, a few readings; lam fixed, gradients clipped."""
    task, rows, models = drifting(0.95), [], {}
    for (name, lam), depths in plan.items():
        for layers in depths:
            for seed in range(seeds):
                full = FullStack(
                    10,
                    layers,
                    reading=READINGS[name],
                    scale=0.1,
                    generator=make_generator("start of full matrices", seed=seed),
                    lam=lam,
                )
                full.log_odds.requires_grad_(False)
                config = Config(steps, batch, AdamW(), clip=0.5)
                end = trained(full, task, seed=seed, name="readings", config=config)
                models[f"{name}/{lam}/{layers}/{seed}"] = full
                rows.append(
                    {
                        "reading": name,
                        "λ": lam,
                        "layers": layers,
                        "seed": seed,
                        "lost": bool(np.isnan(end)),
                    }
                )
    table = but_for_outliers(models, task, total, name="readings")
    measured = table.loc[list(models), ["risk", "excess", "excess_se", "outliers"]]
    return pd.concat([pd.DataFrame(rows), measured.reset_index(drop=True)], axis=1)


def tails(plan: Mapping[str, Sequence[int]], seeds: int, total: int) -> pd.DataFrame:
    """Prompts on which a trained model is wrong by 20 and more, and what it is worth on all the others."""
    task, models, lost = drifting(0.95), {}, {}
    for family, depths in plan.items():
        for layers in depths:
            for seed in range(seeds):
                model = models[f"{family}/{layers}/{seed}"] = FAMILIES[family](layers)
                end = trained(model, task, seed=seed, name="tails")
                lost[f"{family}/{layers}/{seed}"] = bool(np.isnan(end))
    table = but_for_outliers(models, task, total, name="tails").drop("Kalman")
    table["lost"] = pd.Series(lost)
    table[["family", "layers", "seed"]] = [key.split("/") for key in table.index]
    table = table.astype({"layers": int, "seed": int}).reset_index(drop=True)
    return table


def depth_law(gamma: float, plan: Mapping[str, Sequence[int]], seeds: int, total: int) -> pd.DataFrame:
    """Train every depth of every family from several seeds; one row a model."""
    task, models, ends, rows = drifting(gamma), {}, {}, []
    for family, depths in plan.items():
        for layers in depths:
            for seed in range(seeds):
                key = f"{family}/{layers}/{seed}"
                models[key] = FAMILIES[family](layers)
                ends[key] = trained(models[key], task, seed=seed)
    table = against_kalman(models, task, total, name=f"depth {gamma}")
    for key, model in models.items():
        family, depth, number = key.split("/")
        core = getattr(model, "model", model)
        decays = " ".join(f"{lam:.3f}" for lam in core.lam.tolist())
        rows.append(
            {
                "γ": gamma,
                "family": family,
                "layers": int(depth),
                "seed": int(number),
                "lost": bool(np.isnan(ends[key])),
                "risk": table.risk[key],
                "excess": table.excess[key],
                "excess_se": table.excess_se[key],
                "λ by layer": decays,
            }
        )
    floor = {"family": "Kalman", "layers": 0, "seed": 0, "lost": False, "excess": 0.0}
    floor |= {"risk": table.risk["Kalman"], "excess_se": table.se["Kalman"]}
    rows.append({"γ": gamma, "λ by layer": "", **floor})
    return pd.DataFrame(rows)


def shared_factor(
    gamma: float, factors: Sequence[float], depths: Sequence[int], seeds: int, total: int
) -> pd.DataFrame:
    """One forgetting factor for all layers, held fixed: errors by depth and factor, one row a model.

    A layer with one step to learn ends so near the least error that another seed of it is no measure: it is the
    record's own at either profile.
    """
    task, models, ends = drifting(gamma), {}, {}
    for lam in factors:
        for layers in depths:
            for seed in range(seeds):
                stack = Stack(10, layers, lam=lam)
                stack.log_odds.requires_grad_(False)
                key = f"{lam}/{layers}/{seed}"
                models[key], ends[key] = (
                    stack,
                    trained(stack, task, seed=seed, name="shared", of="paper"),
                )
    table = against_kalman(models, task, total, name=f"shared {gamma}")
    short = against_kalman(models, drifting(gamma, n=20), total, name=f"short {gamma}")
    return pd.DataFrame(
        {
            "γ": gamma,
            "λ": float(key.split("/")[0]),
            "layers": int(key.split("/")[1]),
            "seed": int(key.split("/")[2]),
            "training loss": ends[key],
            "risk": table.risk[key],
            "excess": table.excess[key],
            "excess_se": table.excess_se[key],
            "risk at 11 to 20": short.risk[key],
            "Kalman": table.risk["Kalman"],
            "Kalman at 11 to 20": short.risk["Kalman"],
        }
        for key in models
    )


def frozen(model: Any, *names: str) -> Any:
    """Hold parameters where they start; inputs' steps at 0."""
    for name in names:
        parameter = getattr(model, name).requires_grad_(False)
        if name == "s_x":
            parameter.zero_()
    return model


#: Stacks with a part taken away or added.
VARIANTS: dict[str, Callable[[int], Any]] = {
    "the stack": lambda layers: Stack(10, layers),
    "one λ for all layers": lambda layers: Stack(10, layers, lam=0.85),
    "inputs left alone": lambda layers: frozen(Stack(10, layers), "s_x"),
    "gate sees the length of x": lambda layers: frozen(GatedStack(10, layers), "c", "p"),
    "gate sees x and y": lambda layers: frozen(GatedStack(10, layers), "p"),
    "write gate": lambda layers: frozen(GatedStack(10, layers), "b", "c"),
    "tokens normalised": lambda layers: Normalised(Stack(10, layers)),
    "errors written (delta rule)": lambda layers: DeltaStack(10, layers),
}


def ablation(plan: Mapping[str, Sequence[int]], seeds: int, total: int) -> pd.DataFrame:
    """What each part is worth at gamma = .95."""
    task, models = drifting(0.95), {}
    for name, depths in plan.items():
        for layers in depths:
            for seed in range(seeds):
                model = models[f"{name}/{layers}/{seed}"] = VARIANTS[name](layers)
                trained(model, task, seed=seed, name="ablation")
    table = but_for_outliers(models, task, total, name="ablation")
    return pd.DataFrame(
        {
            "variant": key.split("/")[0],
            "layers": int(key.split("/")[1]),
            "seed": int(key.split("/")[2]),
            "risk": table.risk[key],
            "excess": table.excess[key],
            "excess_se": table.excess_se[key],
            "outliers": table.outliers[key],
        }
        for key in models
    )


def two_speeds(names: Iterable[str], depths: Sequence[int], seeds: int, total: int) -> pd.DataFrame:
    """Drift that is the sum of a slow and a fast part: error by depth, less that of one layer."""
    tables = []
    for name in names:
        task = two_timescales(10, 100, gammas=TWO[name])
        models = {}
        for layers in depths:
            for seed in range(seeds):
                stack = Stack(10, layers)
                trained(stack, task, seed=seed, name="two speeds")
                models[f"{layers}/{seed}"] = stack.double()
        table = settled_risk(
            models,
            task,
            total,
            last=10,
            generator=make_generator("test two speeds paper"),
            against="1/0",
            size=2_000,
        )
        # The live sample compares risks: of its floor it needs no more than a few.
        x = task.sample(
            by_profile(quick=10, paper=1_000),
            generator=make_generator("floor of two speeds"),
            dtype=torch.float64,
        ).x
        errors = theory.floors.linear_drift_errors(x.numpy(), task)[:, -10:].mean(1)
        table["drift"], table["floor"] = name, errors.mean()
        table["floor_se"] = errors.std(ddof=1) / len(errors) ** 0.5
        table["λ by layer"] = [" ".join(f"{lam:.3f}" for lam in models[key].lam.tolist()) for key in table.method]
        tables.append(table)
    table = pd.concat(tables, ignore_index=True)
    table[["layers", "seed"]] = table.method.str.split("/", expand=True).astype(int)
    return table.drop(columns="method")


def memories_of_one_layer(gammas: Iterable[float], n: int = 100) -> pd.DataFrame:
    """Exact errors of one layer, by γ: with its best forgetting factor, and with the best weights on positions.

    Args:
        gammas: drifts, one a row.
        n: examples before the query.
    """
    rows = []
    for gamma in gammas:
        task = drifting(gamma, n)
        one = theory.one_layer.training_error(task, lam=theory.one_layer.optimal_forgetting(task))
        rows.append({"γ": gamma, "one λ": one, "any weights on positions": theory.one_layer.position_error(task)})
    return pd.DataFrame(rows).set_index("γ")


def gap_closed(speeds: pd.DataFrame, law: pd.DataFrame, gammas: Iterable[float] = GAMMAS[1:]) -> pd.DataFrame:
    """Errors by drift, and shares of one layer's gap to the floor that another memory and a second layer close.

    Args:
        speeds: the record of :func:`two_speeds`, drifts that are a sum of two.
        law: the record of :func:`depth_law`, for drifts of one speed.
        gammas: those drifts.
    """
    rows = []
    for name, pair in TWO.items():
        task = two_timescales(10, 100, gammas=pair)
        here = speeds[speeds.drift == name]
        risk, floor = here.groupby("layers").risk.mean(), here.floor.iloc[0]
        best = theory.one_layer.training_error(task, lam=theory.one_layer.optimal_forgetting(task))
        by_memory = (best - theory.one_layer.position_error(task)) / (best - floor)
        rows.append((f"{pair[0]} and {pair[1]}", *risk[[1, 2, 4]], floor, by_memory))
    memories = memories_of_one_layer(gammas)
    mean = by_depth(law[law.family == "GLA"], ["γ", "layers"]).excess
    for gamma, best, with_memory in memories.itertuples():
        floor = law[(law["γ"] == gamma) & (law.family == "Kalman")].risk.iloc[0]
        by_memory = (best - with_memory) / mean[gamma, 1]
        rows.append((f"{gamma} alone", *(floor + mean[gamma][[1, 2, 4]]), floor, by_memory))
    columns = ["drift", "one layer", "two", "four", "floor", "closed by any memory"]
    table = pd.DataFrame(rows, columns=columns).set_index("drift")
    one, two = table["one layer"], table["two"]
    return table.assign(**{"closed by a second layer": (one - two) / (one - table.floor)})


def errors_by_examples(task: DriftingRegression, lengths: Iterable[int]) -> dict[str, np.ndarray]:
    """Exact errors of one layer and of the Kalman filter after so many examples, over the zero predictor's."""
    lengths = np.asarray(list(lengths))
    shorter = [replace(task, n=int(n)) for n in lengths]
    longest = replace(task, n=int(lengths.max()))
    x = longest.sample(400, generator=make_generator("floor")).x.numpy()
    best = [theory.one_layer.training_error(t, lam=theory.one_layer.optimal_forgetting(t)) for t in shorter]
    errors = {
        "zero predictor": np.full(len(lengths), theory.one_layer.zero_predictor(task)),
        "linear attention": np.array([theory.one_layer.training_error(t, lam=1.0) for t in shorter]),
        "GLA": np.array(best),
        "Kalman": theory.floors.kalman_risk(longest, x)[0][lengths],
    }
    return {name: e / theory.one_layer.zero_predictor(task) for name, e in errors.items()}


def stacks_by_examples(table: pd.DataFrame, task: DriftingRegression, longest: int = 300) -> dict[str, pd.Series]:
    """Errors of trained stacks by the number of examples, over the zero predictor's; means over seeds.

    Args:
        table: the record *gla-beyond-contexts*: differences from Kalman's error.
        task: its task.
        longest: the most examples.
    """
    table = table.assign(stack=table.method.str.split("/").str[0])[table.position <= longest]
    errors = {}
    for name, shown in (("GLA, 4 layers",) * 2, ("delta rule, 2 layers", "normalised delta rule, 2 layers")):
        excess = table[table["stack"] == name].groupby("position").difference.mean()
        x = replace(task, n=longest).sample(400, generator=make_generator("floor")).x.numpy()
        floor = theory.floors.kalman_risk(replace(task, n=longest), x)[0][excess.index]
        errors[shown] = (excess + floor) / theory.one_layer.zero_predictor(task)
    return errors


def steps_down(table: pd.DataFrame, column: str, gamma: float) -> tuple[float, float, float]:
    """Falls from one layer to the next: least of all, its z, and least z of the means over factors, over seeds."""
    by_seed = table[table["γ"] == gamma].pivot_table(index="seed", columns=["layers", "λ"], values=column)
    falls = pd.concat({k: by_seed[k] - by_seed[k + 1] for k in (1, 2, 3)}, axis=1)
    means = falls.T.groupby(level=0).mean().T

    def z(fall: pd.DataFrame) -> float:
        return float((fall.mean() / (fall.std(ddof=1) / len(fall) ** 0.5)).min())

    return falls.mean().min(), z(falls), z(means)


def kalman_covariances(task: DriftingRegression, prompt: Prompt) -> Tensor:
    """Covariance of what is not known yet of the weights at the query, one matrix a prompt."""
    kalman = filters.kalman(task)
    state = kalman.init(prompt.x.new_zeros(prompt.x.shape[2], prompt.batch))
    for x, y in zip(prompt.x.permute(1, 2, 0)[:-1], prompt.y.T[:-1], strict=True):
        state = kalman.step(state, x, y, (state.w_hat * x).sum(0))
    P: Tensor = state.P.permute(2, 0, 1)
    return P


def cosine(A: Tensor, B: Tensor) -> Tensor:
    """Cosine between matrices from which their multiple of the identity is subtracted, one a prompt."""
    identity = torch.eye(A.shape[-1], dtype=A.dtype)
    rest_A, rest_B = (M - M.diagonal(dim1=1, dim2=2).mean(1)[:, None, None] * identity for M in (A, B))
    return (rest_A * rest_B).sum((1, 2)) / (rest_A.norm(dim=(1, 2)) * rest_B.norm(dim=(1, 2)))


def moments(prompt: Prompt, first_factor: float, second_factors: Sequence[float]) -> list[np.ndarray]:
    """Second moments of y and of the seven numbers that a two-layer prediction is made of, for each second_factor."""
    x, y = prompt.x, prompt.y.clone()
    y[:, -1] = 0.0
    keys = x.unsqueeze(2)
    v = torch.cat([x, y.unsqueeze(-1)], dim=-1).unsqueeze(2)
    first = read_strictly(keys, keys, v, torch.full((1, 1, 1), first_factor, dtype=x.dtype))
    first = first[:, :, 0] * first_factor * (1 - first_factor)
    a, h = first[..., :-1], first[..., -1]
    scores = [
        x[:, :-1] @ x[:, -1, :, None],
        a[:, :-1] @ x[:, -1, :, None] + x[:, :-1] @ a[:, -1, :, None],
        a[:, :-1] @ a[:, -1, :, None],
    ]
    each = torch.stack([s.squeeze(-1) * of[:, :-1] for of in (y, h) for s in scores])
    age = torch.arange(prompt.n, 0, -1, dtype=x.dtype)
    matrices = []
    for second_factor in second_factors:
        read = each @ ((1 - second_factor) * second_factor**age)
        parts = torch.cat([torch.stack([prompt.y[:, -1], h[:, -1]]), read]).double()
        matrices.append((parts @ parts.T / prompt.batch).numpy())
    return matrices


def combined(steps: Any) -> np.ndarray:
    """Coefficients of those numbers in y - y_hat, from the steps s_x, s_1, s_2."""
    s_x, s_1, s_2 = steps
    powers = np.array([1.0, -s_x, s_x**2])
    return np.concatenate([[1.0, -s_1], -s_2 * powers, s_1 * s_2 * powers])


def _slopes(steps: np.ndarray) -> np.ndarray:
    """Derivatives of :func:`combined` in s_x, s_1 and s_2, one row each."""
    s_x, s_1, s_2 = steps
    powers, slopes, none = np.array([1.0, -s_x, s_x**2]), np.array([0.0, -1.0, 2 * s_x]), np.zeros(3)
    return np.array(
        [
            np.concatenate([[0.0, 0.0], -s_2 * slopes, s_1 * s_2 * slopes]),
            np.concatenate([[0.0, -1.0], none, s_2 * powers]),
            np.concatenate([[0.0, 0.0], -powers, s_1 * powers]),
        ]
    )


def least(M: np.ndarray) -> Any:
    """The least loss over the three steps, from a few starts."""

    def loss(steps: Any) -> Any:
        c = combined(steps)
        return c @ M @ c, 2 * _slopes(steps) @ M @ c

    starts = [(0.5, 0.4, 1.0), (0.2, 0.6, 0.3), (0.0, 0.5, 0.5)]
    return min((minimize(loss, start, jac=True) for start in starts), key=lambda fit: fit.fun)


def bounds(gamma: float, factors: Sequence[float], count: int, total: int) -> pd.DataFrame:
    """Least excess over Kalman at the query, by steps: best factor, best polynomial."""
    task = drifting(gamma)
    fitted = task.sample(total, generator=make_generator("windows"), dtype=torch.float64)
    fresh = task.sample(total, generator=make_generator("windows, test"), dtype=torch.float64)
    best = filters.run_filter(filters.kalman(task), fresh.x, fresh.y)[:, -1]
    floor = (best - fresh.y[:, -1]).square()
    rows = []
    changes: dict[str, Callable[[Prompt], tuple[Prompt, Any]]] = {"plain": lambda p: (p, 1.0), "normalised": unit}
    for name, change in changes.items():
        (one, size), (two, scale) = change(fitted), change(fresh)
        for lam in factors:
            F = one_layer.window_features(one, lam=lam, count=count).numpy()
            G = one_layer.window_features(two, lam=lam, count=count).numpy()
            for steps in range(1, count + 1):
                weights = np.broadcast_to(size, len(F))[:, None]
                a = np.linalg.lstsq(F[:, :steps] * weights, fitted.y[:, -1].numpy(), rcond=1e-12)[0]
                y_hat = (G[:, :steps] @ a) * scale
                excess = (torch.as_tensor(y_hat) - fresh.y[:, -1]).square() - floor
                rows.append(
                    {
                        "tokens": name,
                        "λ": lam,
                        "steps": steps,
                        "excess": excess.mean().item(),
                        "se": (excess.std() / total**0.5).item(),
                    }
                )
    table = pd.DataFrame(rows)
    return table.loc[table.groupby(["tokens", "steps"]).excess.idxmin()]


def unit(prompt: Prompt) -> tuple[Prompt, np.ndarray]:
    """The prompt with inputs of length sqrt(d), and what to multiply predictions by."""
    size = prompt.x.norm(dim=-1) / 10**0.5
    return (
        Prompt(prompt.x / size[..., None], prompt.y / size, prompt.w),
        size[:, -1].numpy(),
    )


def layer_gradients(lam: float, seeds: int) -> np.ndarray:
    """Norm of the gradient of each layer's matrices at random starts, one row a seed."""
    rows = []
    for seed in range(seeds):
        full = FullStack(
            10,
            4,
            reading=BEST,
            scale=0.02,
            generator=make_generator("gradients", seed=seed),
            lam=lam,
            dtype=torch.float64,
        )
        batch = drifting(0.95).sample(
            64,
            generator=make_generator("gradients' prompts", seed=seed),
            dtype=torch.float64,
        )
        grads = torch.autograd.grad(late(full, batch), (full.W_V, full.W_KQ))
        both = torch.cat([g.flatten(1) for g in grads], dim=1)
        rows.append(both.norm(dim=1).tolist())
    return np.array(rows)


def objective(layers: int, fixed_prompts: Prompt) -> tuple[Objective, np.ndarray]:
    """Loss and gradient of a stack's steps on the fixed prompts, and where the recipe starts."""
    stack = Stack(10, layers, lam=0.85, dtype=torch.float64)
    stack.log_odds.requires_grad_(False)
    free = [p for p in (stack.s_x, stack.s_y) if p.numel()]
    cuts = np.cumsum([p.numel() for p in free])[:-1]

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        for p, part in zip(free, np.split(theta, cuts), strict=False):
            p.data = torch.as_tensor(part)
        value = stack.loss(fixed_prompts, since=50)
        grads = torch.autograd.grad(value, free)
        return value.item(), torch.cat(grads).numpy()

    return loss, torch.cat([p.detach() for p in free]).numpy()


def product(one: Polynomial, other: Polynomial, combine: Callable[[Tensor, Tensor], Tensor]) -> Polynomial:
    """Of two polynomials: their coefficients are tensors, kept by exponents."""
    terms: dict[tuple[int, ...], Any] = {}
    for (e, a), (f, b) in itertools.product(one.items(), other.items()):
        key = tuple(np.add(e, f).tolist())
        terms[key] = terms.get(key, 0) + combine(a, b)
    return terms


def less(tokens: Polynomial, step: int, read: Polynomial) -> Polynomial:
    """tokens - step read, with `step` the number of a variable."""
    terms = dict(tokens)
    for e, a in read.items():
        key = tuple(v + (k == step) for k, v in enumerate(e))
        terms[key] = terms.get(key, 0) - a
    return terms


def as_polynomial(layers: int, fixed_prompts: Prompt, lam: float = 0.85) -> Objective:
    """The same loss and gradient: the errors, as polynomials in the steps, are written out once."""
    ages = torch.arange(101)[:, None] - torch.arange(101)
    mask = (1 - lam) * lam ** ages.clamp(min=0).double() * (ages > 0)
    one = (0,) * (2 * layers - 1)
    x, y = {one: fixed_prompts.x}, {one: fixed_prompts.y[..., None]}
    for layer in range(layers):
        scores = product(x, x, lambda a, b: (a @ b.mT) * mask)
        y = less(y, layers - 1 + layer, product(scores, y, torch.matmul))
        if layer < layers - 1:
            x = less(x, layer, product(scores, x, torch.matmul))
    E = np.array(list(y))
    F = torch.stack([e[:, 50:].flatten() for e in y.values()])
    M = (F @ F.T / F.shape[1]).numpy()

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        c = np.prod(theta**E, 1)
        lower = (E - row for row in np.eye(len(theta), dtype=int))
        slopes = [E[:, k] * np.prod(theta ** e.clip(min=0), 1) for k, e in enumerate(lower)]
        return c @ M @ c, 2 * np.array(slopes) @ (M @ c)

    return loss


def descend(loss: Objective, theta: np.ndarray, eta: float, steps: int) -> np.ndarray:
    """Losses along plain gradient descent."""
    values = []
    for _ in range(steps):
        value, gradient = loss(theta)
        values.append(value)
        theta = theta - eta * gradient
    return np.array(values)


def hessian(loss: Objective, at: np.ndarray, step: float = 1e-4) -> np.ndarray:
    """Second derivatives, by central differences of the gradient."""
    moves = step * np.eye(len(at))
    H = np.array([(loss(at + e)[1] - loss(at - e)[1]) / (2 * step) for e in moves])
    return (H + H.T) / 2


def minimum(loss: Any, start: Any) -> Any:
    """Where BFGS ends, begun twice."""
    options: Any = {"gtol": 1e-12, "maxiter": 1_000}
    first = minimize(loss, start, jac=True, method="BFGS", options=options)
    return minimize(loss, first.x, jac=True, method="BFGS", options=options)


def convergence(fixed_prompts: Prompt, steps: Mapping[int, int]) -> tuple[pd.DataFrame, dict[int, pd.Series]]:
    """Condition of the Hessian, slope of the log excess under gradient descent, and the excess along the path.

    Args:
        fixed_prompts: the training set.
        steps: of gradient descent, by the number of layers; 0 for the Hessian alone.

    Returns:
        One row per number of layers: slopes along the path with one and two layers, near the minimum with more; how
        straight the path is against its step and against the step's logarithm. And the paths, down to 1e-9.
    """
    rows, paths = [], {}
    for layers, count in steps.items():
        loss, start = objective(layers, fixed_prompts)
        if count:
            loss = as_polynomial(layers, fixed_prompts)
        best = minimum(loss, start)
        h, directions = np.linalg.eigh(hessian(loss, best.x))
        row = {"layers": layers, "h least": h[0], "h largest": h[-1], "condition": h[-1] / h[0]}
        rows.append(row)
        if not count:
            continue
        eta = 0.5 / h[-1]
        far = descend(loss, start, eta, count) - best.fun
        paths[layers] = pd.Series(far)[far > 1e-9]
        if layers < 3:
            path, seen = far, np.flatnonzero(far > 1e-9)
            late = seen[far[seen] < 1e-4 * far[0]]
            seen = late if len(late) > 2 else seen[-3:]
        else:
            # The end of the path, without waiting for it: near the minimum, along its slowest direction.
            slowest = directions[:, 0] * np.sign(directions[:, 0].sum())
            path = descend(loss, best.x + 1e-2 * slowest, eta, 200) - best.fun
            seen = np.flatnonzero(path > 1e-12)
        row["slope"] = np.polyfit(seen, np.log(path[seen]), 1)[0]
        row["2 ln(1 - h least / 2 h largest)"] = 2 * np.log(1 - eta * h[0])
        if layers > 1:
            k = np.flatnonzero(far > 1e-9)[2:]
            row["R² of a line"] = np.corrcoef(k, np.log(far[k]))[0, 1] ** 2
            row["R² of a power law"] = np.corrcoef(np.log(k), np.log(far[k]))[0, 1] ** 2
    return pd.DataFrame(rows).set_index("layers"), paths


def landscape(sample: Prompt, factors: Sequence[float], floor: float) -> pd.DataFrame:
    """Least excess error of two layers, and the steps that have it, for every pair of factors."""
    rows = []
    # Seven digits are plenty for what a layer reads; the moments are summed with more.
    single = Prompt(*(part.float() for part in (sample.x, sample.y, sample.w)))
    for first_factor in factors:
        for second_factor, M in zip(factors, moments(single, first_factor, factors), strict=True):
            best = least(M)
            steps = dict(zip(("s_x", "s_1", "s_2"), best.x, strict=True))
            rows.append({"first": first_factor, "second": second_factor, "excess": best.fun - floor} | steps)
    return pd.DataFrame(rows)


def stretched_prompt(n: int = 30) -> Example:
    """The last examples of a prompt, to three digits, and the weights then."""
    prompt = drifting(0.95).sample(8, generator=make_generator("equal"), dtype=torch.float64)
    x, y, w = (part[1].numpy().round(3) for part in (prompt.x, prompt.y, prompt.w))
    return x[-n - 1 : -1], y[-n - 1 : -1], w[-1]


def stretched_errors(model: Any, prompt: Example, by: Any, newest: int | None = None) -> np.ndarray:
    """Error over all queries with the newest examples that many times as long; answering 0 has 1."""
    x, y, w = prompt
    n, d = x.shape
    each, queries = len(by), torch.eye(d).double().expand(len(by), d, d)
    scale = torch.ones(each, n).double()
    scale[:, n - (newest or n) :] = torch.as_tensor(by)[:, None]
    X = (scale[..., None] * torch.from_numpy(x))[:, None].expand(each, d, n, d)
    Y = (scale * torch.from_numpy(y))[:, None].expand(each, d, n)
    inputs = torch.cat([X, queries[:, :, None]], 2).flatten(0, 1)
    labels = torch.nn.functional.pad(Y, (0, 1)).flatten(0, 1)
    with torch.no_grad():
        answers = -model.errors(inputs, labels)[:, -1].view(each, d)
    return np.asarray(((answers - torch.from_numpy(w)).norm(dim=1) / np.linalg.norm(w)).numpy())


def starting(layers: int, steps: float = 1.0, d: int = 10) -> Stack:
    """A stack as it starts training, or with steps that many times as long."""
    stack = Stack(d, layers, dtype=torch.float64)
    with torch.no_grad():
        stack.s_x.mul_(steps)
        stack.s_y.mul_(steps)
    return stack


def edge(stack: Stack, prompt: Example, stretches: np.ndarray, ruin: float = 10) -> float:
    """The first stretch at which it is that many times as wrong as answering 0."""
    ruined = stretched_errors(stack, prompt, stretches) >= ruin
    if ruined[0] or not ruined.any():
        raise ValueError(
            f"stretches must begin before a stack of {stack.layers} layers is {ruin:g} times as wrong as answering 0, "
            f"and end after that; got {stretches[0]:g} to {stretches[-1]:g}"
        )
    at = np.argmax(ruined)
    low, high = stretches[at - 1 : at + 1]
    return float(brentq(lambda by: np.log(stretched_errors(stack, prompt, [by])[0] / ruin), low, high))


def stretching_sliders(prompt: Example, stretches: np.ndarray) -> Explorable:
    """Sliders of the figure of long examples: layers, the length of their steps, how many examples are stretched."""
    x, y, w = prompt
    settings = ((1, 1), (4, 1), (8, 1), (8, 2), (4, 3), (8, 3))
    # Farther than is drawn: of fewer examples a stack bears longer ones.
    farther = np.linspace(1, 10, 91)
    at = {(k, s): edge(starting(k, s), prompt, farther) for k, s in settings}
    one, four = (stretched_errors(starting(k), prompt, stretches[-1:])[0] for k in (1, 4))
    alone = stretched_errors(starting(4), prompt, stretches, newest=1).max()
    return explorable(
        "stretched",
        slider("layers", 1, 8, value=4, words="L, layers of the stack"),
        slider("steps", 0.5, 4, step=0.25, value=1, words="length of its steps, over that at the start of training"),
        slider("long", 1, len(x), value=len(x), words="how many of the newest examples are stretched"),
        question="How much longer than usual may examples be before a stack is ruined? What changes with more layers, "
        "what with longer steps? Is a single long example enough?",
        answer=f"Four layers are ten times as wrong as answering 0 when examples are {at[4, 1]:.1f} times as long, one "
        f"layer at {at[1, 1]:.1f} times, eight at {at[8, 1]:.1f}. Eight break later than four because each of their "
        f"steps starts half as long; with steps of equal length, twice those at the start, they break at "
        f"{at[8, 2]:.1f}. But one layer goes wrong by degrees, a deep stack at once: at {stretches[-1]:g} times one "
        f"layer is wrong by {one:.0f}, four layers by 10 to the power {np.log10(four):.0f}. Steps three times as long "
        f"bring the edge to {at[4, 3]:.1f} for four layers and {at[8, 3]:.1f} for eight. One long example, the newest, "
        f"takes four layers no higher than {alone:.2f}. On normalised tokens lengths do not matter.",
        x=x.tolist(),
        y=y.tolist(),
        w=w.tolist(),
        stretches=stretches.tolist(),
        ruin=10,
    )
