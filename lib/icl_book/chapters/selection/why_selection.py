"""Which parts of an S6 layer's selection are needed, and what the trained layer does elsewhere (*Why selection
matters*).

Risks are 1/2 E (y_hat - y)^2, in units of y^2. At a fixed step the weights X = (B b b_B) and Y = (C b_C) matter only
through their product,

    y_hat = (x_q, 1)' K (g, q, s),    K = Y'X,    g, q, s = sum_l omega_l (y_l x_l, y_l^2, y_l),

and the population risk is a bowl in K. Weights come in stacks, one pair (X, Y) per start.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64

from icl.models import s6
from icl.profile import by_profile, make_generator
from icl.tasks import Prompt, StationaryRegression, batches
from icl.theory import s6 as theory
from icl_book.charts import Explorable, explorable, slider

Writers = Float64[np.ndarray, "starts d_h d_plus_2"]
Readers = Float64[np.ndarray, "starts d_h d_plus_1"]
Products = Float64[np.ndarray, "*starts d_plus_1 d_plus_2"]
Slope = Callable[[Products], Products]
#: Learning rate times d^2 d_h of every training here that does not say otherwise.
RATE = 0.5
STEPS, EVERY = 6_000, 50


class Risk:
    """Population risk as a function of K, for one K or a stack of them.

    Args:
        known: d, N and the decay of the layer's step.
    """

    def __init__(self, known: theory.Coefficients) -> None:
        """Keep the bowl's bottom and its curvatures."""
        self.known = known
        self.target = np.diag([known.beta] * known.d + [0.0]) @ np.eye(known.d + 1, known.d + 2)
        self.curvature = np.append(np.full(known.d, known.beta1), [known.beta2, known.d * known.kappa])
        self.least = theory.least_loss(known.d, known.N, known.alpha)

    def __call__(self, K: Products) -> Any:
        """Risk, one number per K."""
        return self.least + (self.curvature * (K - self.target) ** 2).sum((-2, -1)) / 2

    def slope(self, K: Products) -> Products:
        """Derivative of the risk with respect to K."""
        return np.asarray(self.curvature * (K - self.target))


def random_weights(
    d: int, d_h: int, *, scale: float = 1.0, biases: float = 0.0, starts: int = 5, name: str = "weights"
) -> tuple[Writers, Readers]:
    """Starts (B b b_B) and (C b_C): matrices from N(0, scale^2), biases from N(0, biases^2).

    Args:
        name: of the random streams.
    """
    stacks = []
    for which, columns in (("B", d + 2), ("C", d + 1)):
        streams = [make_generator(f"{name} {which}, d_h={d_h}", seed=seed) for seed in range(starts)]
        entries = [torch.randn(d_h, columns, generator=stream, dtype=torch.float64) for stream in streams]
        stacks.append(torch.stack(entries).numpy() * np.append(np.full(columns - 1, scale), biases))
    return stacks[0], stacks[1]


def descend(
    X: Writers,
    Y: Readers,
    slope: Slope,
    eta: Any,
    steps: int,
    every: int | None = None,
    *,
    trains: tuple[Any, Any] = (1.0, 1.0),
    clip: float = math.inf,
) -> tuple[Float64[np.ndarray, "looks starts d_plus_1 d_plus_2"], Writers, Readers]:
    """Gradient descent on stacks of weights: K after 0, every, 2 every, ... steps, and the weights at the end.

    Args:
        slope: derivative of the loss with respect to K.
        eta: learning rate, one for all or one per start, (starts, 1, 1).
        every: None looks at the start and the end alone.
        trains: masks of the columns of X and of Y, 0 where weights stay as they are.
        clip: largest norm of a start's gradient.
    """
    looks = []
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(steps + 1):
            K = Y.mT @ X
            if step % (every or steps or 1) == 0:
                looks.append(K)
            if step == steps:
                break
            G = slope(K)
            dX, dY = trains[0] * (Y @ G), trains[1] * (X @ G.mT)
            if clip < math.inf:
                norm = np.sqrt((dX**2).sum((1, 2)) + (dY**2).sum((1, 2)))[:, None, None]
                dX, dY = (g * np.minimum(1, clip / norm) for g in (dX, dY))
            X, Y = X - eta * dX, Y - eta * dY
    return np.array(looks), X, Y


def variants(d: int) -> dict[str, tuple[tuple[Any, Any], tuple[Any, Any]]]:
    """The ablation by name: masks of the columns of (B b b_B) and (C b_C) that start, and of those that are trained.

    A static half keeps its bias alone.
    """
    B, C, label = np.arange(d + 2) <= d, np.arange(d + 1) < d, np.arange(d + 2) == d
    all_B, all_C = np.ones(d + 2), np.ones(d + 1)
    return {
        "whole layer": ((all_B, all_C), (all_B, all_C)),
        "B static": ((~B, all_C), (~B, all_C)),
        "C static": ((all_B, ~C), (all_B, ~C)),
        "both static (S4)": ((~B, ~C), (~B, ~C)),
        "biases held at 0": ((B, C), (B, C)),
        "B blind to labels": ((~label, all_C), (~label, all_C)),
        "B frozen as drawn": ((all_B, all_C), (0 * all_B, all_C)),
        "C frozen as drawn": ((all_B, all_C), (all_B, 0 * all_C)),
        "both frozen as drawn": ((all_B, all_C), (0 * all_B, 0 * all_C)),
    }


@dataclass(frozen=True)
class Ablation:
    """Trainings of all variants.

    Attributes:
        steps: at which risks are known.
        risks: by variant, one column per start.
        weights: by variant, (X, Y) after the last step.
    """

    steps: np.ndarray
    risks: dict[str, Float64[np.ndarray, "looks starts"]]
    weights: dict[str, tuple[Writers, Readers]]

    def final(self, name: str) -> Float64[np.ndarray, " starts"]:
        """Risks of a variant after training."""
        return self.risks[name][-1]


def rate(d: int, d_h: int, c: float = RATE) -> float:
    """Learning rate c / (d^2 d_h), in 1/y^2."""
    return c / (d**2 * d_h)


def ablation(known: theory.Coefficients, d_h: int, *, steps: int = STEPS, every: int = EVERY) -> Ablation:
    """Train the variants from the same five starts, biases drawn too, on the population risk."""
    risk, risks, weights = Risk(known), {}, {}
    for name, ((keep_B, keep_C), trains) in variants(known.d).items():
        X, Y = random_weights(known.d, d_h, biases=1.0)
        looks, *ends = descend(X * keep_B, Y * keep_C, risk.slope, rate(known.d, d_h), steps, every, trains=trains)
        risks[name], weights[name] = risk(looks), (ends[0], ends[1])
    return Ablation(np.arange(0, steps + 1, every), risks, weights)


def layer(X: Float64[np.ndarray, "d_h d_plus_2"], Y: Float64[np.ndarray, "d_h d_plus_1"], N: int) -> s6.S6:
    """S6 layer of one pair of weights, with the step made for N examples."""
    d_h, d = X.shape[0], X.shape[1] - 2
    B, C = s6.Selective(d + 1, d_h), s6.Selective(d + 1, d_h)
    with torch.no_grad():
        B.W.copy_(torch.from_numpy(X[:, : d + 1]))
        C.W[:, :d] = torch.from_numpy(Y[:, :d])
        B.b.copy_(torch.from_numpy(X[:, -1]))
        C.b.copy_(torch.from_numpy(Y[:, -1]))
    return s6.S6(B, C, s6.FixedStep(math.log(2) / N), -torch.ones(1, dtype=torch.float64))


def entries(prompt: Prompt) -> torch.Tensor:
    """Every number in a prompt but the label to be predicted, and a 1, as one row a prompt."""
    return torch.nn.functional.pad(prompt.tokens().flatten(1)[:, :-1], (0, 1), value=1.0)


def linear_fit_risk(fitted: Prompt, fresh: Prompt, count: int) -> tuple[float, float]:
    """Risk on fresh prompts, and its standard error, of least squares on all entries of the first `count` prompts."""
    weights = torch.linalg.lstsq(entries(fitted)[:count], fitted.y[:count, -1:]).solution
    halves = ((entries(fresh) @ weights)[:, 0] - fresh.y[:, -1]).square() / 2
    # The last digits of a solution depend on where its numbers lie in memory.
    return round(float(halves.mean()), 9), float(halves.std(correction=0)) / math.sqrt(len(halves))


def measured_risk(model: s6.S6, task: StationaryRegression, prompts: int, name: str) -> tuple[float, float]:
    """Risk of a layer with a fixed step on fresh prompts, and its standard error.

    Args:
        name: of the stream of prompts.
    """
    halves = []
    for prompt in batches(task, prompts, generator=make_generator(name), dtype=torch.float64):
        with torch.no_grad():
            y_hat = s6.read_out(model, s6.statistics(prompt, model))
        halves.append((y_hat - prompt.y[:, -1]).square() / 2)
    each = torch.cat(halves)
    return float(each.mean()), float(each.std(correction=0)) / math.sqrt(prompts)


def other_tasks(known: theory.Coefficients) -> dict[str, tuple[StationaryRegression, float, float]]:
    """Tasks for the frozen layer, K = (beta I, 0): its exact risk, and that of a layer trained for the task.

    Inputs s times as large multiply g by s^2, and the risk becomes d s^2/2 (1 - 2 s^2 beta beta3 + s^4 beta^2 beta1).
    """
    d, N, beta = known.d, known.N, known.beta
    least = theory.least_loss(d, N, known.alpha)
    axis = np.zeros((d, d))
    axis[0, 0] = d
    tasks = {
        "fresh w": (StationaryRegression(d, N), least, least),
        "w three times as long": (StationaryRegression(d, N, Sigma_w=9 * np.eye(d)), 9 * least, 9 * least),
        "w along one axis": (
            StationaryRegression(d, N, Sigma_w=axis),
            least,
            d * known.kappa / (known.beta3**2 + 2 * known.kappa),  # d + 1 becomes 2 in beta1
        ),
    }
    for n in (10, 40, 80, 320):
        trained = theory.least_loss(d, n, theory.assumed_alpha(n))
        tasks[f"N = {n}"] = StationaryRegression(d, n), theory.shifted_loss(d, n, known.alpha, beta), trained
    for s in (0.7, 1.5):
        frozen = d * s**2 / 2 * (1 - 2 * s**2 * beta * known.beta3 + s**4 * beta**2 * known.beta1)
        larger = StationaryRegression(d, N, Lambda=s**2 * np.eye(d))
        tasks[f"inputs {s:g} times as large"] = larger, frozen, s**2 * least
    return tasks


def on_other_tasks(model: s6.S6, known: theory.Coefficients, prompts: int) -> pd.DataFrame:
    """Risks of the trained, frozen layer on :func:`other_tasks`, measured and exact.

    Columns: measured, s.e., exact, trained for it, zero predictor, exact / zero.
    """
    rows = {}
    for name, (task, exact, trained) in other_tasks(known).items():
        total = prompts if task.n < 100 else by_profile(quick=prompts // 4, paper=prompts)
        mean, se = measured_risk(model, task, total, f"test, {name}")
        zero = float(np.trace(task.Sigma_w @ task.Lambda)) / 2
        rows[name] = [mean, se, exact, trained, zero, exact / zero]
    columns = ["measured", "s.e.", "exact", "trained for it", "zero predictor", "exact / zero"]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    table.index.name = f"frozen layer, trained at N = {known.N}"
    return table


def symptoms(known: theory.Coefficients, d_h: int, trained: Ablation) -> pd.DataFrame:
    """Mean cosine between w and the projected state, and risk, of layers that are healthy or ill in different ways.

    Columns: cosine, risk; means over five starts.
    """
    d, N, risk, eta = known.d, known.N, Risk(known), rate(known.d, d_h)
    patients = {name: trained.weights[name] for name in ("whole layer", "B frozen as drawn", "C frozen as drawn")}
    patients["selection not learning: both frozen"] = trained.weights["both frozen as drawn"]
    patients["selection absent: B static"] = trained.weights["B static"]
    for name, scale, states, steps in (
        ("stopped after 30 steps", 1.0, d_h, 30),
        ("started at 0.001", 0.001, d_h, STEPS),
        ("one state, d_h = 1", 1.0, 1, STEPS),
    ):
        _, X, Y = descend(*random_weights(d, states, scale=scale), risk.slope, eta * d_h / states, steps)
        patients[name] = X, Y
    sample = StationaryRegression(d, N).sample(4_000, generator=make_generator("symptoms"), dtype=torch.float64)
    w = sample.w[:, 0].numpy()
    right = _met(sample, N)[1]
    rows = {
        name: {"cosine": _cosine(right @ (Y.mT @ X)[:, :d].mT, w).mean(), "risk": risk(Y.mT @ X).mean()}
        for name, (X, Y) in patients.items()
    }
    # Labels w'(x^2 - 1)/sqrt(2), which have no product y x to learn from.
    bent = Prompt(sample.x, (sample.w * (sample.x**2 - 1)).sum(-1) / math.sqrt(2), sample.w)
    left, right_bent = _met(bent, N)
    X, Y = (stack[0] for stack in trained.weights["whole layer"])
    errors = ((left @ Y.T @ X) * right_bent).sum(1) - bent.y[:, -1].numpy()
    rows["healthy layer, labels quadratic in x"] = {
        "cosine": _cosine(right_bent[:, :d] * known.beta, w).mean(),
        "risk": (errors**2 / 2).mean(),
    }
    rows["L*, K = (βI, 0)"] = {"cosine": _cosine(right[:, :d] * known.beta, w).mean(), "risk": risk.least}
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index.name = "cause, means of five starts"
    return table


def _cosine(h: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.asarray((h * w).sum(-1) / np.linalg.norm(h, axis=-1) / np.linalg.norm(w, axis=-1))


def _met(prompt: Prompt, N: int) -> tuple[np.ndarray, np.ndarray]:
    """What K meets on its left, (x_q, 1), and on its right, (g, q, s), in every prompt."""
    statistics = s6.statistics(prompt, s6.assumed(prompt.x.shape[-1], 1, N, generator=make_generator("its step alone")))
    left = np.column_stack([statistics.e[:, :-1].numpy(), np.ones(len(prompt.y))])
    return left, np.column_stack([statistics.g.numpy(), statistics.s.numpy()])


def starts_and_rates(known: theory.Coefficients, d_h: int = 16, steps: int = STEPS) -> pd.DataFrame:
    """How many of five runs arrive at the least risk, by the size of the start and the rate c / (d^2 d_h).

    Rows: size of the start, with and without gradients clipped at norm 1.
    """
    d, risk = known.d, Risk(known)
    grid = list(itertools.product((0.001, 0.1, 1.0, 5.0), (0.05, 0.5, 5.0)))
    pairs = [random_weights(d, d_h, scale=scale) for scale, _ in grid]
    X, Y = (np.concatenate(stacks) for stacks in zip(*pairs, strict=True))
    eta = np.repeat([rate(d, d_h, c) for _, c in grid], 5)[:, None, None]
    table: dict[str, dict[str, str]] = {}
    for clip in (math.inf, 1.0):
        with np.errstate(over="ignore", invalid="ignore"):
            last = risk(descend(X, Y, risk.slope, eta, steps, clip=clip)[0][-1])
        for k, (scale, c) in enumerate(grid):
            row = table.setdefault(f"σ = {scale:g}" + (", clipped" if clip == 1 else ""), {})
            row[f"c = {c:g}"] = _outcome(last[5 * k : 5 * k + 5], risk.least)
    frame = pd.DataFrame.from_dict(table, orient="index")
    frame.index.name = f"start, d_h = {d_h}"
    return frame


def _outcome(at: np.ndarray, least: float) -> str:
    arrived, diverged = int((at < least + 1e-3).sum()), int((~np.isfinite(at)).sum())
    counts = {"arrived": arrived, "diverged": diverged, "above L*": len(at) - arrived - diverged}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


def _small_batches(known: theory.Coefficients, stream: torch.Generator, size: int = 8) -> Slope:
    """Slope of the loss on one fresh batch of a few prompts after another."""
    task = StationaryRegression(known.d, known.N)

    def supply() -> Iterator[tuple[np.ndarray, ...]]:
        while True:
            prompt = task.sample(size * 1_000, generator=stream, dtype=torch.float64)
            parts = *_met(prompt, known.N), prompt.y[:, -1].numpy()
            yield from zip(*(part.reshape(1_000, size, *part.shape[1:]) for part in parts), strict=True)

    fresh = supply()

    def slope(K: Products) -> Products:
        left, right, answers = next(fresh)
        error = ((left @ K) * right).sum(-1) - answers
        return np.asarray((error[..., None] * left).mT @ right / size)

    return slope


def plateaus(known: theory.Coefficients, d_h: int = 16) -> pd.DataFrame:
    """Where six trainings come to rest: at their rate, at a fifth of it with five times the steps, at five times it.

    Risks are means over five starts and the last tenth of the run; not finite where a run diverged.
    """
    d, risk, base = known.d, Risk(known), rate(known.d, d_h)
    bias = np.append(np.zeros(d + 1), 1.0)
    X, Y = random_weights(d, d_h, biases=1.0)
    runs: dict[str, tuple[tuple[Writers, Readers], float, int, dict[str, Any]]] = {
        "saddle: start at 0.001": (random_weights(d, d_h, scale=0.001), base, 3_000, {}),
        "too few states: d_h = 2": (random_weights(d, 2), rate(d, 2), 1_000, {}),
        "no selection: B static": ((X * bias, Y), base, 1_000, {"trains": (bias, 1.0)}),
        "clipped to 0.001": (random_weights(d, d_h), base, 1_000, {"clip": 1e-3}),
        "noise: 8 prompts a step": (random_weights(d, d_h, scale=0.5), base, 3_000, {}),
        "diverged: c = 10": (random_weights(d, d_h), 20 * base, 3_000, {}),
    }

    def rests(name: str, times: float) -> float:
        stacks, eta, steps, options = runs[name]
        steps *= 5 if times < 1 else 1
        noisy = name.startswith("noise")
        slope = _small_batches(known, make_generator(f"small batches, {times}")) if noisy else risk.slope
        with np.errstate(over="ignore", invalid="ignore"):
            return float(np.mean(risk(descend(*stacks, slope, eta * times, steps, steps // 100, **options)[0][-10:])))

    changes = {"rate η": 1.0, "η/5, 5 × the steps": 0.2, "5η": 5.0}
    table = pd.DataFrame({label: {name: rests(name, times) for name in runs} for label, times in changes.items()})
    table.index.name = "where the risk stays, mean of five starts"
    return table


def states_and_sequences(known: theory.Coefficients, *, steps: int = 4_000) -> pd.DataFrame:
    """Population risk of layers trained on n fixed sequences, by n and by the size of the state; five starts each.

    Columns: sequences, d_h, risk (median), low, high, gap (median of population risk less risk on the sequences).
    """
    d, N, risk, starts, tables = known.d, known.N, Risk(known), 5, []
    counts, sizes = (50, 200, 800, 3_000), (2, 4, 8, 16, 40, 160)
    for n, seed in itertools.product(counts, range(starts)):
        stream = make_generator(f"{n} sequences", seed=seed)
        prompt = StationaryRegression(d, N).sample(n, generator=stream, dtype=torch.float64)
        left, right = _met(prompt, N)
        F, y = (left[:, :, None] * right[:, None, :]).reshape(n, -1), prompt.y[:, -1].numpy()
        tables.append((F.T @ F / n, F.T @ y / n, y @ y / n))
    S, r, yy = (np.stack(parts) for parts in zip(*tables, strict=True))

    def slope(K: Products) -> Products:
        return np.asarray(((S @ K.reshape(len(K), -1, 1))[:, :, 0] - r).reshape(K.shape))

    rows = []
    for d_h in sizes:
        X, Y = (np.tile(s, (len(counts), 1, 1)) for s in random_weights(d, d_h, name="on sequences"))
        K = descend(X, Y, slope, rate(d, d_h, 0.25), steps)[0][-1]
        flat = K.reshape(len(K), -1)
        seen = (np.einsum("ki,kij,kj->k", flat, S, flat) - 2 * (r * flat).sum(1) + yy) / 2
        fresh = risk(K).reshape(-1, starts)
        gaps = np.median(fresh - seen.reshape(-1, starts), axis=1)
        for n, each, gap in zip(counts, fresh, gaps, strict=True):
            rows.append([n, d_h, np.median(each), each.min(), each.max(), gap])
    return pd.DataFrame(rows, columns=["sequences", "d_h", "risk", "low", "high", "gap"])


def switches(known: theory.Coefficients, d_h: int, trained: Ablation, *, until: int, every: int = EVERY) -> Explorable:
    """Switches of the chapter's first figure: which halves select, which are trained; and two sliders.

    Args:
        until: steps that the figure shows.
        every: steps between two points of a curve.
    """
    d, N, risk, eta = known.d, known.N, Risk(known), rate(known.d, d_h)
    end = {name: float(risks[until // every, 0]) for name, risks in trained.risks.items()}
    X, Y = (stack[0] for stack in random_weights(d, d_h, biases=1.0, starts=1))
    small = random_weights(d, d_h, scale=0.1, biases=0.1, starts=1)
    slow = risk(descend(*small, risk.slope, eta, until, 1)[0])[:, 0]
    waits = int(np.argmax(slow < 0.9 * d / 2))
    parts = {
        "selectB": "B selects (off: it is static)",
        "selectC": "C selects (off: it is static)",
        "trainB": "B is trained (off: it stays as drawn)",
        "trainC": "C is trained (off: it stays as drawn)",
    }
    return explorable(
        "selection",
        *({"name": name, "label": label, "value": name != "trainB"} for name, label in parts.items()),
        slider("N", 2, 100, value=N, step=2, words="number of examples in a prompt"),
        slider("start", 0.1, 1, value=1, step=0.1, words="size of the weights' entries at the start"),
        question="Which half must select, and which must be trained? Switch one part off at a time, then two. And what "
        "does a small start do?",
        answer=f"After {until:,} steps the layer is at {end['B frozen as drawn']:.3f} if B stays as it was drawn and "
        f"at {end['C frozen as drawn']:.3f} if C does, next to L* = {risk.least:.3f}: one half need not be trained. If "
        f"neither is trained the risk stays at {end['both frozen as drawn']:,.0f}. Without selection in B, in C or in "
        f"both it ends at {d / 2:g}, like the zero predictor, and more examples do not help. From a start of size 0.1 "
        f"the whole layer needs {waits:,} steps to come below {0.9 * d / 2:g}, because it lingers at the saddle at 0; "
        f"in the end it is at {slow[-1]:.2f}.",
        d=d,
        XX=(X.T @ X).tolist(),
        YY=(Y.T @ Y).tolist(),
        K=(Y.T @ X).tolist(),
        eta=eta,
        steps=until,
        every=every,
    )
