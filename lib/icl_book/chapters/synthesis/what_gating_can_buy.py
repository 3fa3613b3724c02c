"""What gates that depend on keys can gain: runs of layers, searches over gates, earlier keys, trained layers (*What
gating can buy*).

Bounds are :mod:`icl.theory.gates.key_gates`'s; the trained layers are :mod:`icl_book.chapters.key_gated_layers`'s.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64

from icl.experiments.evaluation import clean_risk
from icl.experiments.optimal_filters import OPTIMAL_FILTERS, steady_task
from icl.profile import make_generator
from icl.theory import floors
from icl.theory import steady as fw
from icl.theory.gates import finite_key_gates
from icl.theory.gates import key_gates as kg
from icl.theory.steady import large_d
from icl_book.chapters import key_gated_layers
from icl_book.charts import Explorable, explorable, slider

#: Numbers of earlier keys at which the error is recorded.
WINDOWS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
#: Sizes of the recorded run.
LADDERS = {"sequences, d = 8 and 16": 400, "sequences, d = 32": 160}
_BOUND, _EARLIER = "#2f8f83", "#b0563b"
#: Colours of what the chapter's figures show.
COLOURS = {
    "gates that see earlier keys": _EARLIER,
    "one earlier key": _EARLIER,
    "gates of the current key": _BOUND,
    "gates that do not see the key": "#664e08",
    "bound": _BOUND,
    "bound for gates of the current key": _BOUND,
    "run over prompts": "#0b6fb8",
    "exact": _EARLIER,
    "N = 2": "#c9711a",
    "N = 4": "#0b6fb8",
    "N = 6": "#6000c0",
    "d = 8": "#6ab350",
    "d = 16": "#1fa08e",
    "d = 32": "#2a78b8",
    "d → ∞, extrapolated": "#250733",
    "e / 4": "#3b4a56",
    "width 1": "#0b6fb8",
    "width 2": _EARLIER,
    "width 4": "#a818f0",
}
#: Transition matrix of a random walk.
WALK = np.array([[1.0]])

_Keys = Float64[np.ndarray, "sequences time d"]


def draw_keys(d: int, sequences: int, length: int, name: str) -> _Keys:
    """Standard normal keys, one sequence of d times `length` a row, from the stream of this name."""
    shape = (sequences, length * d, d)
    return torch.randn(shape, generator=make_generator(f"{name}, {d}"), dtype=torch.float64).numpy()


# Earlier keys, independent


def _steady(errors: Float64[np.ndarray, "sequences time"], d: int) -> Float64[np.ndarray, " sequences"]:
    """Mean over the positions from 6 d on, in units of d^2."""
    return np.asarray(errors[:, 6 * d :].mean(1) / d**2)


def ladder(d: int, windows: Sequence[int], sequences: int, priors: Mapping[int, float] | None = None) -> pd.DataFrame:
    """Errors of the restarted layer by the number of earlier keys that its gates see, on a clean random walk.

    Columns: d; keys (-1 stands for the Kalman filter); prior (variance over d at which Riccati's recursion starts);
    error (over d^2 q, the bound for gates of the current key, which is d^2 q); se.

    Args:
        d: dimension of the keys.
        windows: numbers of earlier keys.
        sequences: how many are drawn.
        priors: by number of keys; what is missing is the best of three on keys of its own, and matters little.
    """
    walk, rows = kg.per_coordinate(WALK, q=1.0, d=d), []
    few, x = draw_keys(d, 24, 9, "prior of a window"), draw_keys(d, sequences, 12, "ladder")

    def errors(x: _Keys, window: int, share: float) -> Float64[np.ndarray, " sequences"]:
        return _steady(kg.windowed_errors(x, walk, window, share * d * np.eye(d)), d)

    def best_prior(window: int) -> float:
        tried = (0.6, 0.75, 0.9)
        return tried[int(np.argmin([errors(few, window, share).mean() for share in tried]))]

    for window in windows:
        prior = (priors or {}).get(window) or best_prior(window)
        sequence_errors = errors(x, window, prior)
        rows.append([d, window, prior, sequence_errors.mean(), sequence_errors.std(ddof=1) / sequences**0.5])
    sequence_errors = _steady(floors.riccati(x, np.eye(d), start=np.sqrt(0.7 * d), gain=1.0, added=1.0, noise=0.0), d)
    rows.append([d, -1, 0.0, sequence_errors.mean(), sequence_errors.std(ddof=1) / sequences**0.5])
    return pd.DataFrame(rows, columns=["d", "keys", "prior", "error", "se"])


def long_ladders() -> tuple[pd.DataFrame, float]:
    """The recorded run: :func:`ladder` in 8, 16 and 32 dimensions, and the seconds that it took."""
    start = time.monotonic()
    few, many = LADDERS
    sizes = {8: few, 16: few, 32: many}
    rows = [ladder(d, sorted({*WINDOWS, 2 * d}), LADDERS[name]) for d, name in sizes.items()]
    return pd.concat(rows, ignore_index=True), time.monotonic() - start


@dataclass(frozen=True)
class Ladders:
    """Errors over the bound by dimension and number of earlier keys.

    Attributes:
        table: error and se, indexed by d and keys, as :func:`ladder` has them.
        errors: by d, at :data:`WINDOWS`; exact for no key and for one.
        floors: the Kalman filter's, by d.
    """

    table: pd.DataFrame
    errors: dict[int, list[float]]
    floors: dict[int, float]

    @classmethod
    def of(cls, table: pd.DataFrame) -> "Ladders":
        """From rows of :func:`ladder`."""
        rungs = table.set_index(["d", "keys"]).sort_index()
        dims = sorted(table["d"].unique().tolist())
        errors = {d: [1.0, kg.one_earlier_key(d, 1.0, 1.0) / d**2] for d in dims}
        for d in dims:
            errors[d] += [float(rungs.error[d, keys]) for keys in WINDOWS[2:]]
        return cls(rungs, errors, {d: float(rungs.error[d, -1]) for d in dims})

    def at(self, keys: int, d: int) -> float:
        """Error at any number of earlier keys, linear in log (1 + keys) between the recorded ones."""
        return float(np.interp(np.log2(1 + keys), np.log2(1 + np.array(WINDOWS)), self.errors[d]))

    def gained(self, keys: int, d: int) -> float:
        """Share of what the whole past buys."""
        return (1 - self.at(keys, d)) / (1 - self.floors[d])

    def by_share(self, d: int) -> tuple[Float64[np.ndarray, " m"], Float64[np.ndarray, " m"]]:
        """Earlier keys over d, up to 2, and errors there, as recorded but for no key."""
        keys = [K for K in sorted({*WINDOWS, 2 * d}) if 2 * d >= K]
        errors = [1.0 if K == 0 else float(self.table.error[d, K]) for K in keys]
        return np.array(keys) / d, np.array(errors)

    def largest_se(self) -> float:
        """Largest standard error with one earlier key or more."""
        return float(self.table.se[self.table.index.get_level_values("keys") > 0].max())

    def extrapolated(self) -> tuple[Float64[np.ndarray, " m"], Float64[np.ndarray, " m"], float]:
        """Keys over d, errors extrapolated from d = 16 and 32 to many dimensions, linearly in 1/d, and the s.e. of the
        last.
        """
        keys = (0, 2, 4, 6, 8, 12, 16, 24, 32, 64)
        at = [1.0, *(float(2 * self.table.error[32, K] - self.table.error[16, K // 2]) for K in keys[1:])]
        return np.array(keys) / 32, np.array(at), float(np.hypot(2 * self.table.se[32, 64], self.table.se[16, 32]))


def earlier_keys_sliders(found: Ladders) -> Explorable:
    """Sliders of the chapter's first figure: the number of earlier keys, and the dimension."""
    half = min(range(WINDOWS[-1] + 1), key=lambda K: abs(found.gained(K, 16) - 0.5))
    return explorable(
        "earlierKeys",
        slider("keys", 0, WINDOWS[-1], value=4, words="K, earlier keys that the gates see"),
        slider("log_d", 3, 5, value=4, words="log₂ d, where d is the dimension of the keys (16 at first)"),
        question="In 16 dimensions, how many earlier keys buy half of what the whole past buys? And how does that "
        "number change with d?",
        answer=f"{half} keys buy {found.gained(half, 16):.0%} of it, and {half + 1} already "
        f"{found.gained(half + 1, 16):.0%}. In 8 dimensions 4 keys leave {found.at(4, 8):.2f}, in 32 "
        f"dimensions {found.at(4, 32):.2f}: what counts is the number of keys over d. With as many keys as dimensions "
        "little is left to gain.",
        windows=list(WINDOWS),
        errors={str(d): row for d, row in found.errors.items()},
        floors={str(d): value for d, value in found.floors.items()},
        last=WINDOWS[-1],
    )


# Gates of the current key


def layers_over_bound(law: fw.DriftLaw, prompts: int) -> dict[str, tuple[float, float]]:
    """Errors of five layers at their best, run over prompts, in units of the bound, and their standard errors."""
    bound = kg.key_gated_bound(kg.from_drift_law(law)).error
    stream = make_generator("six layers")
    data = steady_task(law, 299).sample(prompts, generator=stream, dtype=torch.float64)
    names = {
        "RetNet": "GLA, RetNet head",
        "Mamba-2": "best gates",
        "GLA": "a gate per channel",
        "DeltaNet": "delta rule",
        "Longhorn": "Longhorn",
    }
    errors = {}
    for layer, name in names.items():
        mean, se = clean_risk(OPTIMAL_FILTERS[name](law)[0], data, last=150)
        errors[layer] = (float(mean / bound), float(se / bound))
    return errors


def least_errors(d: int, s: Sequence[float]) -> dict[str, Float64[np.ndarray, " m"]]:
    """Least errors of five classes of layers over the Kalman filter's, clean labels, by the speed of the drift.

    Args:
        d: dimension of the keys.
        s: d (1 - gamma^2).
    """
    rows = []
    for speed in s:
        law = fw.DriftLaw(d, np.sqrt(1 - speed / d), np.sqrt(speed / d))
        drift, floor = kg.from_drift_law(law), large_d.kalman_floor(law)
        levels = {
            "GLA": fw.best_gla(law).error,
            "gates that do not see the key": kg.data_free_bound(drift).error,
            "gates of the current key": kg.key_gated_bound(drift).error,
            "one earlier key": kg.one_earlier_key(d, law.gamma, law.q),
            "Kalman": floor,
        }
        rows.append({name: error / floor for name, error in levels.items()})
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


# Searches over all gates

_SWINGING = np.array([[1.6, -0.8], [1.0, 0.0]])
#: Settings of the searches by name: dimension, numbers in the state, keys and drift, noise.
SEARCHES = {
    f"d = {d}, N = {N}, {kind}{', noise' * bool(noise)}": (d, N, kind, noise)
    for d, N in ((2, 2), (2, 4), (2, 6), (3, 3), (3, 6))
    for kind in ("white keys", "uneven keys", "swinging weights")
    for noise in (0.0, 0.3)
    if kind != "swinging weights" or (d == 2 and N >= 4)
}


def search_gates(name: str, evaluations: Sequence[int]) -> Float64[np.ndarray, " m"]:
    """Error over the bound of a search over all gates: at its random start, and after so many evaluations.

    Args:
        name: one of :data:`SEARCHES`. Twelve equally likely keys are drawn, and the gates are a table of as many
            matrices A and vectors b, all free.
        evaluations: how many of the error and its gradient.
    """
    d, N, kind, noise = SEARCHES[name]
    rng = np.random.default_rng(sum(map(ord, name)))
    F = _SWINGING if kind == "swinging weights" else np.array([[0.9]])
    drift = kg.per_coordinate(F, q=0.19, d=d, sigma_y=noise)
    keys = rng.standard_normal((12, d))
    keys[:, 0] *= 3 if kind == "uneven keys" else 1
    A = 0.5 * np.eye(N) + 0.1 * rng.standard_normal((12, N, N))
    b = 0.3 * rng.standard_normal((12, N))
    errors = [finite_key_gates.gated_error(A, b, keys, drift)[0]]
    errors += [finite_key_gates.search_gates(keys, drift, A, b, evaluations=n) for n in evaluations]
    return np.array(errors) / finite_key_gates.finite_bound(keys, drift).error


# Other keys, other drifts


def six_tasks() -> dict[str, kg.MovingWeights]:
    """Drifts and keys in ten dimensions, in units in which the zero predictor's error is 1."""
    fading, even = np.array([[0.95]]), np.ones(10)
    swinging = np.array([[1.9 * np.cos(0.3), -(0.95**2)], [1, 0]])
    settings = {
        "γ = 0.95": (fading, even, 0.0),
        "noisy labels": (fading, even, 1.0),
        "uneven keys": (fading, np.geomspace(0.1, 4, 10), 0.0),
        "γ = 0.99": (np.array([[0.99]]), even, 0.0),
        "smooth drift": (np.array([[1.75, -0.76], [1, 0]]), even, 0.0),
        "swinging drift": (swinging, even, 0.0),
    }
    tasks = {}
    for name, (F, spectrum, noise) in settings.items():
        zero = _zero_error(kg.per_coordinate(F, q=1.0, d=10, spectrum=spectrum))
        tasks[name] = kg.per_coordinate(F, q=1.0 / zero, d=10, spectrum=spectrum, sigma_y=float(np.sqrt(noise)))
    return tasks


def _zero_error(drift: kg.MovingWeights) -> float:
    """Error of the zero predictor."""
    P = drift.Q
    for _ in range(3_000):
        P = drift.F @ P @ drift.F.T + drift.Q
    return drift.error(P)


def worth_of_sight(sequences: int) -> pd.DataFrame:
    """Least errors on :func:`six_tasks` without sight of the key, with sight of the current one, and of all.

    Args:
        sequences: over which the Kalman filter's error is averaged.
    """
    rows = {}
    for name, drift in six_tasks().items():
        bound = kg.key_gated_bound(drift)
        x = draw_keys(10, sequences, 30, f"floor, {name}")[:, :120] * np.sqrt(np.diag(drift.Lambda))
        rows[name] = {
            "gates that do not see the key": kg.data_free_bound(drift).error,
            "gates of the current key": bound.error,
            "Kalman": kg.windowed_errors(x, drift, 120, bound.P)[:, 60:].mean(),
        }
    return pd.DataFrame(rows).T


# Earlier keys, correlated


def correlated_keys(d: int, sequences: int, length: int, rho: float) -> _Keys:
    """Keys of one length, whose directions are those of a first-order Gaussian process of correlation rho."""
    z = draw_keys(d, sequences, length, f"rho = {rho}")
    for t in range(1, z.shape[1]):
        z[:, t] = rho * z[:, t - 1] + np.sqrt(1 - rho**2) * z[:, t]
    return np.asarray(z * np.sqrt(d) / np.linalg.norm(z, axis=2, keepdims=True))


def _gain(R: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Kalman's gain for a clean label at covariance R."""
    Rx = np.einsum("bij,bj->bi", R, x)
    return np.asarray(Rx / (Rx * x).sum(1, keepdims=True))


def _walk(P: np.ndarray, x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Covariance after a step with gain g on a random walk of q = 1."""
    P_new = P - g[:, :, None] * np.einsum("bi,bij->bj", x, P)[:, None]
    P_new = P_new - np.einsum("bij,bj->bi", P_new, x)[:, :, None] * g[:, None]
    return np.asarray(P_new + np.eye(x.shape[1]))


def errors_at_next_key(x: _Keys, window: int | None) -> Float64[np.ndarray, " sequences"]:
    """Error at the next key over d^2 q on a clean random walk, of the restarted layer with this many earlier keys.

    Args:
        x: keys.
        window: number of earlier keys; None is the Kalman filter.
    """
    d, errors = x.shape[2], []
    P = np.broadcast_to(d * np.eye(d), (len(x), d, d))
    for i in range(x.shape[1]):
        errors.append(np.einsum("bi,bij,bj->b", x[:, i], P, x[:, i]))
        R = P
        if window is not None:
            R = np.broadcast_to(0.9 * d * np.eye(d), P.shape)
            for j in range(max(0, i - window), i):
                R = _walk(R, x[:, j], _gain(R, x[:, j]))
        P = _walk(P, x[:, i], _gain(R, x[:, i]))
    return np.asarray(np.array(errors)[len(errors) // 2 :].mean(0) / d**2)


def worth_of_correlated_keys(
    sizes: Sequence[tuple[int, int, int]] = ((16, 40, 60), (64, 6, 60)), rhos: Sequence[float] = (0.0, 0.5, 0.9)
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Means of :func:`errors_at_next_key` and their standard errors, by d and rho, and by what the gates see.

    At rho = 0.9 the start is forgotten after some 25 d tokens, and the second half of a sequence is judged.

    Args:
        sizes: d, sequences, and their length over d.
        rhos: correlations from token to token.
    """
    seen = {"current key": 0, "1 earlier": 1, "3 earlier": 3, "all (Kalman)": None}
    means, ses = {}, {}
    for d, sequences, length in sizes:
        for rho in rhos:
            x = correlated_keys(d, sequences, length, rho)
            errors = {name: errors_at_next_key(x, window) for name, window in seen.items()}
            means[d, rho] = {name: e.mean() for name, e in errors.items()}
            ses[d, rho] = {name: e.std(ddof=1) / sequences**0.5 for name, e in errors.items()}
    tables = [pd.DataFrame(rows).T for rows in (means, ses)]
    for table in tables:
        table.index.names = ["d", "ρ"]
    return tables[0], tables[1]


# Trained layers

#: Sizes of the recorded trainings: starts of each layer, and prompts on which it is judged.
STARTS, JUDGED = 3, 20_000
TRAININGS = {
    "steps": key_gated_layers.GATED_RECIPE.steps,
    "batch": key_gated_layers.GATED_RECIPE.batch,
    "starts": STARTS,
    "prompts": JUDGED,
}


def gentle_drift() -> fw.DriftLaw:
    """Drift of the trainings: four dimensions, gamma = 0.98, weights of variance 1, clean labels."""
    return fw.DriftLaw(4, 0.98, float(np.sqrt(1 - 0.98**2)))


def short_training(prompts: int) -> pd.DataFrame:
    """One of the layers after a fifth of its training, cheap enough for every build, as a row of seed 0."""
    recipe = replace(key_gated_layers.GATED_RECIPE, steps=160)
    row = key_gated_layers.gated_run(gentle_drift(), "delta rule", "own filter", 2, 1, 0.03, prompts, recipe=recipe)
    return pd.DataFrame([row | {"seed": 0}])


def long_trainings() -> tuple[pd.DataFrame, float]:
    """The recorded run: all layers, three starts each, and :func:`short_training`; and the seconds that it took."""
    start = time.monotonic()
    comparison = key_gated_layers.compare_gated(gentle_drift(), seeds=STARTS, prompts=JUDGED)
    table = pd.concat([comparison, short_training(JUDGED)], ignore_index=True)
    return table, time.monotonic() - start


def pool_starts(trained: pd.DataFrame) -> pd.DataFrame:
    """Mean ratio to the bound by layer, use of the convolution and width; se is of the starts and of the prompts."""
    pooled = trained.groupby(["layer", "fed", "width"], sort=False)
    table = pooled.agg(ratio=("ratio", "mean"), spread=("ratio", "std"), se=("se", "max"), starts=("ratio", "size"))
    # The starts differ, and all are judged on the same prompts.
    return table.assign(se=np.hypot(table.spread / table.starts**0.5, table.se))


@dataclass(frozen=True)
class Allowed:
    """Errors over the bound that theory allows on :func:`gentle_drift`, on prompts of the trained layers' length.

    Attributes:
        by_width: by tokens under the convolution: the bound, its exact form for one earlier key, and the restarted
            layer with three, which is not the best possible.
        kalman: the Kalman filter's.
        se: standard error of the last two, as ratios on the same keys.
    """

    by_width: dict[int, float]
    kalman: float
    se: float


def allowed(prompts: int = 1_000) -> Allowed:
    """What theory allows the trained layers, on the first keys that they are judged on."""
    law = gentle_drift()
    drift, at_bound = kg.from_drift_law(law), fw.best_unit_delta(law)
    task = steady_task(law, key_gated_layers.GATED_POSITIONS - 1)
    keys = task.sample(prompts, generator=make_generator("gating, judging")).x.double().numpy()
    last, start = slice(-key_gated_layers.GATED_LAST, None), at_bound.p * np.eye(law.d)
    current, by_hand = (
        kg.windowed_errors(keys, drift, window, share * start)[:, last].mean(1)
        for window, share in ((0, 1.0), (3, 0.75))
    )
    kalman = floors.kalman_errors(keys, law)[:, last].mean(1)
    ratios = {name: float(e.mean() / current.mean()) for name, e in (("by hand", by_hand), ("Kalman", kalman))}
    ses = [
        (e - ratios[name] * current).std() / current.mean() / prompts**0.5
        for name, e in (("by hand", by_hand), ("Kalman", kalman))
    ]
    by_width = {
        1: kg.key_gated_bound(drift).error / at_bound.error,
        2: kg.one_earlier_key(law.d, law.gamma, law.q) / at_bound.error,
        4: ratios["by hand"],
    }
    return Allowed(by_width, ratios["Kalman"], float(max(ses)))


#: Names in the text of layers and filters of the recorded run.
_LAYERS = {"delta rule": "DeltaNet", "gated delta": "gated DeltaNet"}
_FILTERS = {"one filter": "fixed filter", "own filter": "computed filter", "own filter, labels": "and labels"}


def by_width(pooled: pd.DataFrame, theory: Allowed) -> dict[str, dict[str, float | tuple[float, float]]]:
    """Rows of the figure of trained layers: what theory reaches, then every layer that writes corrections."""
    rows: dict[str, dict[str, float | tuple[float, float]]] = {
        "reached by theory": {f"width {width}": ratio for width, ratio in theory.by_width.items()}
    }
    deltas = pooled.drop("Mamba-2")
    for (layer, fed, width), ratio, se in zip(deltas.index, deltas.ratio, deltas.se, strict=True):
        rows.setdefault(f"{_LAYERS[layer]}, {_FILTERS[fed]}", {})[f"width {width}"] = (float(ratio), float(se))
    return rows
