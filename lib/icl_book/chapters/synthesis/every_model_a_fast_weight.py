"""Layers run against the one equation of their steady error; gates, heads, momentum and chunks; the floor and Mesa in
many dimensions; the map of layers (*Every model is a decayed fast weight*).

Closed forms are those of `icl.theory.steady`; :mod:`icl.experiments.optimal_filters` has the layers at their best.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from icl import filters
from icl.experiments.evaluation import clean_risk
from icl.experiments.optimal_filters import OPTIMAL_FILTERS, steady_task
from icl.experiments.tuning import simplex
from icl.profile import make_generator
from icl.tasks import DriftingRegression, Prompt
from icl.theory import floors
from icl.theory.steady import fast_weights as fw
from icl.theory.steady import large_d, spectra
from icl.theory.steady import linear_layers as ll
from icl.theory.steady.mesa import CHEAP_LAYERS, best_mesa, least_noise, mesa_over_floor
from icl_book.charts import Explorable, explorable, slider

#: Colours of the chapter's layers that the book has no fixed colour for.
COLOURS = {"GLA, gates of |x|": "#b0563b", "Longhorn": "#2f8f83", "Mesa": "#a818f0"}
#: Colours of the areas of the map.
AREAS = {"GLA": "#0b6fb8", "gates of the key": "#2f8f83", "Mesa": "#a818f0"}
#: Persistence of the drifts of the tables.
FIVE_DRIFTS = (0.8, 0.9, 0.95, 0.975, 0.99)
#: The layers that one equation describes, by their names in :data:`~icl.experiments.optimal_filters.OPTIMAL_FILTERS`.
SIX_LAYERS = tuple(name for name in OPTIMAL_FILTERS if name != "a gate per channel")

_Curve = Float64[np.ndarray, " points"]
_Error = tuple[float, float]
_Areas = dict[str, tuple[np.ndarray, np.ndarray]]


def law(d: int, s: float, v: float = 0.0) -> fw.DriftLaw:
    """Drift of weights of variance 1 with s dimensions over memory, and labels with v of noise over signal."""
    return fw.DriftLaw(d, (1 - s / d) ** 0.5, (s / d) ** 0.5, (v * d) ** 0.5)


def layer_errors(drift: fw.DriftLaw) -> dict[str, float]:
    """Steady errors of layers at their best and of the Kalman filter (a fit), relative to the zero predictor's."""
    errors = {
        "GLA": fw.best_gla(drift).error,
        "GLA, gates of |x|": fw.free_gates(drift).error,
        "delta rule": fw.best_delta(drift).error,
        "Longhorn": fw.best_unit_delta(drift).error,
        "Kalman": large_d.kalman_floor(drift),
    }
    return {name: float(error / drift.zero_error) for name, error in errors.items()}


def over_floor(drift: fw.DriftLaw) -> dict[str, float]:
    """Errors of :func:`layer_errors`, and the zero predictor's, in multiples of the floor."""
    errors = layer_errors(drift) | {"zero predictor": 1.0}
    return {name: error / errors["Kalman"] for name, error in errors.items()}


def drift_sliders(d: int, log_s: float, grid: _Curve) -> Explorable:
    """Sliders of the chapter's first figure: the drift, the labels' noise, the dimension.

    Args:
        d: dimension at first.
        log_s: logarithm of s at first, to base 10.
        grid: values of s at which curves are drawn.
    """
    slow, fast, noisy = (over_floor(law(d, 10**u, v)) for u, v in ((-1.3, 0.0), (0.6, 0.0), (-1.3, 0.5)))
    return explorable(
        "fastWeights",
        slider("log_s", -1.3, 0.6, value=log_s, step=0.1, words="log₁₀ s, dimensions over memory"),
        slider("v", 0.0, 2.0, value=0.0, step=0.05) | {"label": "v, label noise over signal"},
        slider("d", 5, 100, value=d, step=5),
        question="Let the drift be slow, log₁₀ s at its lowest: how much is gained by writing corrections? Then raise "
        "v, the noise of the labels: from what v on do corrections hardly pay?",
        answer=f"At the lowest s, without noise, GLA has {slow['GLA']:.1f} times the error of the Kalman filter, the "
        f"delta rule {slow['delta rule']:.2f}, Longhorn {slow['Longhorn']:.2f}. At the highest s, all are within "
        f"{100 * (max(fast.values()) - 1):.0f}% of the floor. Noise of half the signal, v = 0.5, brings the "
        f"ratios at the lowest s down to {noisy['GLA']:.2f}, {noisy['delta rule']:.2f} and {noisy['Longhorn']:.2f}, "
        "because all of them hear the same noise.",
        grid=[float(s) for s in grid],
    )


def one_prompt(drift: fw.DriftLaw, n: int = 600) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys (n, d), labels (n,) and weights (n, d) of one prompt in steady state."""
    task = steady_task(drift, n)
    prompt = task.sample(1, generator=make_generator("one slow drift"), dtype=torch.float64)
    return prompt.x[0].numpy(), prompt.y[0].numpy(), prompt.w[0].numpy()


# Layers run over prompts


def _sample(drift: fw.DriftLaw, name: str, prompts: int, length: int) -> Prompt:
    stream = f"{name}, {drift.d}, {drift.gamma:.4f}, {drift.sigma_y:.4f}"
    task = steady_task(drift, length - 1)
    return task.sample(prompts, generator=make_generator(stream), dtype=torch.float64)


def eight_drifts() -> list[fw.DriftLaw]:
    """Two dimensions, two speeds, with and without noise on the labels."""
    return [fw.DriftLaw(d, g, 0.1, y) for d in (6, 12) for g in (0.8, 0.95) for y in (0, 0.3)]


def against_the_equation(drifts: Sequence[fw.DriftLaw], prompts: int) -> pd.DataFrame:
    """Six layers at the settings that the equation calls best, run over prompts.

    Columns: layer; d; gamma; sigma_y; error; se; equation (the error that it gives).

    Args:
        drifts: drifts and noises.
        prompts: number for each; all layers read the same ones.
    """
    rows = []
    for drift in drifts:
        data = _sample(drift, "one equation", prompts, 300)
        for name in SIX_LAYERS:
            layer, expected = OPTIMAL_FILTERS[name](drift)
            error, se = clean_risk(layer, data, last=150)
            rows.append([name, drift.d, drift.gamma, drift.sigma_y, float(error), float(se), expected])
    return pd.DataFrame(rows, columns=["layer", "d", "gamma", "sigma_y", "error", "se", "equation"])


def channel_gates_run(gammas: Sequence[float], prompts: int) -> dict[float, float]:
    """Deviation of layers with a gate per channel from their closed form, in standard errors, by gamma."""
    deviations = {}
    for gamma in gammas:
        drift = fw.DriftLaw(10, gamma, 0.1)
        layer, expected = OPTIMAL_FILTERS["a gate per channel"](drift)
        error, se = clean_risk(layer, _sample(drift, "channels", prompts, 300), last=150)
        deviations[gamma] = float((error - expected) / se)
    return deviations


def _mesa_filter(drift: fw.DriftLaw, s: float, v: float) -> filters.Filter:
    best = best_mesa(s, v)
    return filters.faded_ridge(np.exp(-best.theta / drift.d), eps=drift.d * best.ridge)


def run_layers(d: int, s: float, v: float, prompts: int) -> dict[str, _Error]:
    """Errors of layers at their best, run over prompts, relative to the zero predictor's, with standard errors.

    Mesa has the settings that are best in many dimensions; the Kalman filter is told the drift and the noise.
    """
    drift = law(d, s, v)
    task = DriftingRegression(d, 399, drift.gamma, sigma_w=drift.k0**0.5, sigma_e=drift.sigma_e)
    names = {"GLA": "GLA, RetNet head", "GLA, gates of |x|": "best gates"}
    names |= {name: name for name in ("delta rule", "Longhorn")}
    layers = {name: OPTIMAL_FILTERS[optimal](drift)[0] for name, optimal in names.items()}
    layers["Mesa"] = _mesa_filter(drift, drift.drift_rate, drift.noise_ratio)
    layers["Kalman"] = filters.kalman(task, sigma_y=drift.sigma_y)
    data = _sample(drift, "against the floor", prompts, 400)
    errors = {name: clean_risk(layer, data, last=200) for name, layer in layers.items()}
    return {
        name: (float(error) / drift.zero_error, float(se) / drift.zero_error) for name, (error, se) in errors.items()
    }


# Gates, heads, momentum, chunks


def gains_of_gates() -> pd.DataFrame:
    """Share of GLA's error that gates of the current key save on the five drifts, clean labels, d = 10.

    Columns are values of gamma. The last row saves it by feedback in place of gates.
    """
    gain = {}
    for gamma in FIVE_DRIFTS:
        drift = fw.DriftLaw(10, gamma, 0.1)
        better = {
            "Mamba-2's form": fw.zoh_gates(drift).error,
            "one gate that sees |x|": fw.free_gates(drift).error,
            "a gate per channel that sees x": fw.channel_gates_error(drift),
            "corrections in place of labels": fw.best_delta(drift).error,
        }
        gain[gamma] = {name: 1 - error / fw.best_gla(drift).error for name, error in better.items()}
    return pd.DataFrame(gain).rename_axis(index="error below GLA's, by", columns="γ")


def _sigmoid(z: ArrayLike) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-np.asarray(z))))


def _heads(z: np.ndarray) -> ll.LinearLayer:
    return ll.attention_heads(_sigmoid(z))


def _momentum(z: np.ndarray) -> ll.LinearLayer:
    return ll.heavy_ball(z[0], z[2], eta=z[1])


def _delta(z: np.ndarray) -> ll.LinearLayer:
    return ll.heavy_ball(z[0], z[1])


def _turning(z: np.ndarray) -> ll.LinearLayer:
    return ll.turning_head(float(_sigmoid(z[0])), z[1])


def _tuned_error(
    make: Callable[[np.ndarray], ll.LinearLayer],
    start: Sequence[float],
    *,
    F: np.ndarray,
    q: float,
    over: float = 1.0,
    evaluations: int = 400,
    unit: bool = False,
) -> float:
    """Least steady error of a layer in ten dimensions, in units of `over`, searched over its settings."""

    def error(z: np.ndarray) -> float:
        return ll.settled_error(make(z), F, q=q, d=10, unit=unit) / over

    return simplex(error, np.array(start), evaluations=evaluations)[1]


def _random_layer_error(drift: fw.DriftLaw, seed: int) -> float:
    """Steady error of a layer of one to three states with random coefficients of a plausible size."""
    rng = np.random.default_rng(seed)
    K = 1 + seed % 3
    keep = np.diag(rng.uniform(0.5, 0.97, K)) + 0.05 * rng.standard_normal((K, K))
    correct = -rng.uniform(0, 0.2, (K, K)) / drift.d * 3
    layer = ll.LinearLayer(keep, rng.standard_normal(K), correct)
    return ll.settled_error(layer, np.array([[drift.gamma]]), q=drift.q, d=drift.d)


def fixed_layers(drift: fw.DriftLaw, random_layers: int = 240, chunks: Sequence[int] = (1, 8, 32, 128)) -> pd.Series:
    """Steady errors of layers with fixed coefficients, tuned, and of Longhorn; exact, ten dimensions, clean labels.

    Args:
        drift: first-order drift of ten dimensions.
        random_layers: how many layers are drawn.
        chunks: lengths of the chunks at whose first state gradients are taken.
    """
    tuned = partial(_tuned_error, F=np.array([[drift.gamma]]), q=drift.q)

    def chunk(size: int) -> float:
        def error(z: np.ndarray) -> float:
            return ll.chunked_error(drift, size, lam=z[0], mu=z[1])

        return simplex(error, np.array([0.9, 0.05]), evaluations=60)[1]

    errors = {
        f"{random_layers} layers at random, the best": min(
            _random_layer_error(drift, seed) for seed in range(random_layers)
        ),
        "GLA, one head": tuned(_heads, [2.0]),
        "two heads": tuned(_heads, [1.0, 3.0]),
        "heavy ball": tuned(_momentum, (0.94, 0.1, 0.06)),
        **{f"chunks of {size}": chunk(size) for size in chunks},
        "Longhorn": fw.best_unit_delta(drift).error,
    }
    return pd.Series(errors, name="error").rename_axis("layer")


def second_order_errors(coefficients: tuple[float, float]) -> dict[str, float]:
    """Errors of tuned layers on weights w_i = phi_1 w_(i-1) + phi_2 w_(i-2) + e_i, relative to the zero predictor's."""
    F, (phi_1, phi_2) = np.array([coefficients, (1.0, 0.0)]), coefficients
    variance = (1 - phi_2) / ((1 + phi_2) * ((1 - phi_2) ** 2 - phi_1**2))
    tuned = partial(_tuned_error, F=F, q=1.0, over=10 * variance)

    def matched(z: np.ndarray) -> ll.LinearLayer:
        return ll.forward_model(F, z)

    return {
        "one head": tuned(_heads, [2.0]),
        "two heads": tuned(_heads, [1.0, 2.5]),
        "two heads, complex decay": tuned(_turning, [2.0, 0.2]),
        "delta rule": tuned(_delta, (0.9, 0.05)),
        "heavy ball": tuned(_momentum, (0.9, 0.1, 0.05), evaluations=800),
        "state that moves as the weights do": tuned(matched, (0.05, 0.05)),
        "delta rule, unit keys": tuned(_delta, (0.9, 0.05), unit=True),
        "that state, unit keys": tuned(matched, (0.05, 0.05), unit=True),
    }


def errors_from_spectrum(poles: Sequence[complex]) -> dict[str, float]:
    """Least errors of three kinds of layer on drift with these poles, by Wiener's formula, d = 10, variance 1."""
    kinds = {"GLA, any heads": "gla", "corrections, raw keys": "delta", "corrections, unit keys": "key-gated"}
    spectrum = spectra.pole_spectrum(np.array(poles))
    return {name: float(spectra.layer_error(spectrum, 10, layer=kind)) / 10 for name, kind in kinds.items()}


def table_of_errors() -> pd.DataFrame:
    """Errors of the layers on the five drifts of Part I, clean labels and noisy ones, after an endless prompt."""
    rows = {}
    for noise in (0.0, np.sqrt(0.1)):
        for gamma in FIVE_DRIFTS:
            drift = fw.DriftLaw(10, gamma, 0.1, noise)
            rows[f"{noise**2:.1f}", gamma] = {
                "zero predictor, linear attention": drift.zero_error,
                "GLA at λ*": fw.best_gla(drift).error,
                "Mamba-2 form, best α(r)": fw.zoh_gates(drift).error,
                "best scalar gates a(r), b(r)": fw.free_gates(drift).error,
                "GLA writing yx/r": fw.best_normalised_gla(drift).error,
                "delta rule": fw.best_delta(drift).error,
                "Longhorn": fw.best_unit_delta(drift).error,
                "Kalman floor (fit)": large_d.kalman_floor(drift),
            }
    return pd.DataFrame(rows).rename_axis(index="error", columns=["σ_y²", "γ"])


def unequal_inputs(gammas: Sequence[float], sequences: int = 24) -> pd.DataFrame:
    """Errors for inputs of condition number 16 in ten dimensions, one decay or gain against one per channel.

    The floor is a mean over drawn inputs.
    """
    spectrum = 16 ** np.linspace(0, 1, 10)
    spectrum *= 10 / spectrum.sum()
    errors = {}
    for gamma in gammas:
        drift = fw.DriftLaw(10, gamma, 0.1)
        x = torch.randn((sequences, 900, 10), generator=make_generator(f"unequal {gamma}"), dtype=torch.float64)
        floor = floors.kalman_errors(x.numpy() * np.sqrt(spectrum), drift, spectrum)[:, 500:]
        errors[gamma] = {
            "GLA, one fade": fw.gla_shared(drift, spectrum)[0],
            "GLA, a fade per channel": fw.gla_per_channel(drift, spectrum),
            "delta rule, one gain": fw.delta_shared(drift, spectrum)[0],
            "delta rule, a gain per channel": fw.delta_diagonal(drift, spectrum),
            "Kalman (drawn inputs)": floor.mean(),
        }
    return pd.DataFrame(errors).rename_axis(index="error, condition number 16", columns="γ")


# Many dimensions: the floor and Mesa


@dataclass(frozen=True)
class Extrapolation:
    """Weighted least squares fit of a polynomial in 1/d.

    Attributes:
        coefficients: constant (the limit d -> infinity) first.
        se: standard error of the limit.
    """

    coefficients: Float64[np.ndarray, " powers"]
    se: float

    @property
    def limit(self) -> float:
        """Value at 1/d = 0."""
        return float(self.coefficients[0])

    def at(self, inverse: _Curve) -> _Curve:
        """Value of the fit at these 1/d."""
        return np.asarray(np.vander(inverse, len(self.coefficients), increasing=True) @ self.coefficients)


def extrapolate(sizes: Sequence[int], means: Sequence[float], errors: Sequence[float], *, powers: int) -> Extrapolation:
    """Fit of means with standard errors over dimensions, with powers of 1/d from 0 up to `powers` - 1."""
    weights = 1 / np.asarray(errors)
    design = np.vander(1 / np.asarray(sizes), powers, increasing=True) * weights[:, None]
    spread = np.linalg.inv(design.T @ design)
    return Extrapolation(spread @ design.T @ (np.asarray(means) * weights), float(spread[0, 0] ** 0.5))


def floor_by_size(
    s: float, v: float, sequences: Mapping[int, int], late: int = 600
) -> tuple[list[int], list[float], list[float]]:
    """Floor by Riccati's recursion on drawn inputs, relative to the zero predictor: dimensions, means, standard errors.

    Args:
        s: dimensions over memory.
        v: label noise over signal.
        sequences: number of them by dimension.
        late: positions averaged after the first 6 d.
    """
    means, errors = [], []
    for d, batch in sequences.items():
        drift, stream = law(d, s, v), make_generator(f"Riccati, {d}, {s}, {v}")
        x = torch.randn((batch, 6 * d + late, d), generator=stream, dtype=torch.float64)
        each = floors.kalman_errors(x.numpy(), drift)[:, 6 * d :].mean(1) / drift.zero_error
        means.append(float(each.mean()))
        errors.append(float(each.std(ddof=1) / batch**0.5))
    return list(sequences), means, errors


def mesa_run(d: int, s: float, v: float, prompts: int) -> _Error:
    """Mesa's error late in prompts at the limit's best settings, relative to the zero predictor's, and its se."""
    drift = law(d, s, v)
    length = 12 * d + 100
    data = _sample(drift, "Mesa alone", prompts, length)
    error, se = clean_risk(_mesa_filter(drift, s, v), data, last=length - 8 * d)
    return float(error) / drift.zero_error, float(se) / drift.zero_error


def mesa_by_size(s: float, v: float, prompts: Mapping[int, int]) -> dict[str, float]:
    """Mesa's error by dimension, its limit by extrapolation in 1/d, and the formula's.

    Args:
        s: dimensions over memory.
        v: label noise over signal.
        prompts: number of them by dimension.
    """
    means, errors = zip(*(mesa_run(d, s, v, count) for d, count in prompts.items()), strict=True)
    fit, formula = extrapolate(list(prompts), means, errors, powers=2), best_mesa(s, v).error
    by_size = {f"d = {d}": mean for d, mean in zip(prompts, means, strict=True)}
    return by_size | {
        "extrapolated": fit.limit,
        "± s.e.": fit.se,
        "formula": formula,
        "z": (fit.limit - formula) / fit.se,
        "slope in 1/d": float(fit.coefficients[1]),
    }


def random_walk_errors(noises: Sequence[float]) -> pd.DataFrame:
    """Errors over d^2 q on a random walk as d grows, by the noise nu = sigma_y^2 / (d^2 q)."""
    errors = {
        nu: {
            "delta rule": large_d.delta_random_walk(nu),
            "RLS at its best λ": min(large_d.rls_random_walk(nu, t) for t in np.geomspace(0.2, 3, 60)),
            "Kalman": large_d.kalman_random_walk(nu),
        }
        for nu in noises
    }
    return pd.DataFrame(errors).rename_axis(index="error / (d² q), d → ∞", columns="ν = σ_y² / (d² q)")


# The map of layers


@dataclass(frozen=True)
class LayerMap:
    """Borders between the areas of the cheapest layers within a tenth of the floor, in many dimensions.

    Attributes:
        s: dimensions over memory, (m,).
        v: noises of the table, (n,).
        mesa: Mesa's error over the floor's, (m, n).
        borders: least noise from which on a layer is near enough, (m,) by layer, the cheapest first.
        log_s, log_v: where the star stands at first.
    """

    s: Float64[np.ndarray, " m"]
    v: Float64[np.ndarray, " n"]
    mesa: Float64[np.ndarray, "m n"]
    borders: dict[str, Float64[np.ndarray, " m"]]
    log_s: float = -0.5
    log_v: float = -1.0

    @property
    def star(self) -> tuple[float, float]:
        """Its s and v at first."""
        return 10**self.log_s, 10**self.log_v

    def times_at_star(self) -> dict[str, float]:
        """Errors over the floor's at the star."""
        s, v = self.star
        errors = large_d.eps_gla(s, v), large_d.eps_delta(s, v), best_mesa(s, v).error
        floor = large_d.kalman_large_d(s, v)
        return {name: float(error / floor) for name, error in zip(CHEAP_LAYERS, errors, strict=True)}

    def enough(self) -> str:
        """Cheapest layer within a tenth of the floor at the star."""
        return next((name for name, times in self.times_at_star().items() if times <= 1.1), "Kalman")

    def areas(self) -> tuple[_Areas, _Areas]:
        """Lower borders `(s, v)` of the areas that are not empty, and their lower and upper ends."""
        lines, ends = {}, {}
        high = np.full(self.s.shape, self.v[-1])
        for layer, border in [*self.borders.items(), ("Kalman", np.full(self.s.shape, self.v[0]))]:
            low = np.minimum(border, high)
            open_ = high > low
            # An area ends where its two lines meet.
            drawn = open_ | np.concatenate([[False], open_[:-1]])
            lines[layer], ends[layer] = (self.s[drawn], border[drawn]), (low[drawn], high[drawn])
            high = low
        return lines, ends

    def sliders(self) -> Explorable:
        """Sliders of the map: your drift, your noise, and what is near enough."""
        times, (s, v) = self.times_at_star(), self.star
        return explorable(
            "layerMap",
            slider("log_s", -1.5, 0.9, value=self.log_s, step=0.05, words="log₁₀ s, your dimensions over memory"),
            slider("log_v", -3.0, 1.0, value=self.log_v, step=0.05, words="log₁₀ v, your noise over signal"),
            slider("percent", 2, 50, value=10, words="near enough, per cent above the floor"),
            question="Leave the star where it is and ask for more, 2%: which layer is enough now? Then be content with "
            "20%: whose area goes altogether, and who keeps the corner?",
            answer=f"At the star, s = {s:.2f} and v = {v:g}, gates of the key have {times['gates of the key']:.2f} "
            f"times the floor and Mesa {times['Mesa']:.2f}: only the Kalman filter is within 2% of it. At 20% Kalman's "
            f"area is empty, because Mesa never has more than {worst_mesa():.2f} times the floor. Mesa keeps the "
            f"corner: there, gates of the key have up to {worst_delta():.2f} times the floor.",
            s=self.s.tolist(),
            v=self.v.tolist(),
            mesa=self.mesa.round(5).tolist(),
        )


def map_of_layers(points: int = 73, coarse: int = 25) -> LayerMap:
    """The map for s from 0.03 to 8 and v from 0.001 to 10.

    Args:
        points: values of s at which borders are drawn.
        coarse: values of s at which Mesa's error is computed.
    """
    knots, v = np.geomspace(0.03, 8, coarse), np.geomspace(0.001, 10, 11)
    s = np.geomspace(0.03, 8, points)
    excess = np.log(mesa_over_floor(knots, v).T - 1)
    mesa = 1 + np.exp([np.interp(np.log(s), np.log(knots), row) for row in excess]).T
    return LayerMap(s, v, mesa, least_noise(s, 0.1, v, mesa))


_FINE = np.geomspace(0.01, 10, 1_500)


def excess(eps_of: Callable[[_Curve, float], _Curve], v: float) -> _Curve:
    """Error of a layer over the floor's along s from 0.01 to 10, in many dimensions."""
    return np.asarray(eps_of(_FINE, v) / large_d.kalman_large_d(_FINE, v))


def clean_border(eps_of: Callable[[_Curve, float], _Curve]) -> float:
    """The s below which a layer is more than a tenth above the floor, without noise."""
    return float(_FINE[excess(eps_of, 0.0) > 1.1].max())


def noise_from(times: Callable[[float], float], low: float, high: float) -> float:
    """Noise from which on `times` is at most 1.1, rounded up to a hundredth, between two guesses."""
    return float(np.ceil(100 * brentq(lambda v: times(v) - 1.1, low, high)) / 100)


def mesa_at_worst(v: float) -> float:
    """Mesa's largest error over the floor's along s, at one noise."""
    return float(mesa_over_floor(np.geomspace(0.05, 0.6, 9), np.array([v])).max())


def delta_at_worst(v: float) -> float:
    """The delta rule's (and Longhorn's) largest error over the floor's along s, at one noise."""
    return float(excess(large_d.eps_delta, v).max())


def worst_mesa() -> float:
    """Mesa's largest error over the floor's anywhere: that of recursive least squares on a clean random walk."""
    walk = min(large_d.rls_random_walk(0.0, theta) for theta in np.linspace(1.5, 2.5, 101))
    return walk / (math.e / 4)


def worst_delta() -> float:
    """Largest error of gates of the key over the floor's without noise, at s = 0.01."""
    return float(excess(large_d.eps_delta, 0.0)[0])
