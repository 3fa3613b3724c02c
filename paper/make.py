"""Make the paper: every number and figure of paper.tex from the library, then the PDF.

    python paper/make.py              paper/build/numbers.tex, the figures, and paper/build/paper.pdf
    python paper/make.py --numbers    without LaTeX

The text holds no number of its own: it has a macro for each, and NUMBERS says how each is computed (about half a
minute in all). LaTeX is needed for the PDF alone; on Debian and Ubuntu

    sudo apt install latexmk texlive-latex-recommended texlive-latex-extra texlive-fonts-recommended
"""

import argparse
import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

import chapters

from icl import _files
from icl.theory import steady
from icl.theory.gates import finite_key_gates, key_gates
from icl.theory.steady import large_d, mesa, spectra

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"

#: First-order drift of the table in the text: d = 10 and this gamma.
LAW = steady.DriftLaw(10, 0.95, 0.1)
#: Poles of the two drifts of second order, and the dimension they are shown at.
SIZE, ANGLE, OTHER, DIMENSION = 0.95, 0.3, 0.8, 10
POLES = {"Swing": (SIZE * np.exp(1j * ANGLE), SIZE * np.exp(-1j * ANGLE)), "Two": (SIZE, OTHER)}
LAYERS = {"Gla": "gla", "Delta": "delta", "Gated": "key-gated"}
#: Windows of the ladder in the figure, and sequences drawn for each dimension.
LADDER = {8: (0, 1, 2, 3, 4, 6, 8, 12, 16), 16: (0, 1, 2, 4, 6, 8, 12, 16, 24), 32: (0, 1, 2, 4, 8, 16, 32)}
DRAWN = {8: 64, 16: 48, 32: 24}
#: (s, v, d) of the Monte Carlo table.
PLACES = ((1.0, 0.0, 20), (1.0, 0.1, 20), (0.3, 0.1, 40), (3.0, 0.5, 40))
#: s at which the text compares Mesa with the floor.
MESA_AT = {"Slow": 0.1, "Mid": 0.3, "One": 1.0, "Fast": 3.0}
SEED = 20260410


def law_at(s: float, v: float, d: int) -> steady.DriftLaw:
    """First-order drift with these two numbers and weights of variance 1."""
    return steady.DriftLaw(d, np.sqrt(1 - s / d), np.sqrt(s / d), np.sqrt(v * d))


def scientific(value: float) -> str:
    """An upper bound of a small number, as a power of ten: 3e-9 is 10^{-8}."""
    return f"10^{{{int(np.ceil(np.log10(max(value, 1e-15))))}}}"


# The theorem on gates and the proposition on linear writes, by search


class Searched(NamedTuple):
    """Errors that searches ended at over their bound: the least and the largest."""

    least: float
    largest: float


def small_problem(seed: int) -> tuple[np.ndarray, key_gates.MovingWeights]:
    """Five keys in two dimensions and a drift of its own for each seed, with and without label noise."""
    rng = np.random.default_rng(seed)
    keys = rng.normal(size=(5, 2)) * (1.0, 1.0 + seed % 2)
    F = np.diag(rng.uniform(0.7, 0.95, 2)) + 0.05 * rng.normal(size=(2, 2))
    Lambda = keys.T @ keys / len(keys)
    return keys, key_gates.MovingWeights(F, np.eye(2), np.diag(rng.uniform(0.05, 0.3, 2)), Lambda, 0.5 * (seed % 3 > 0))


def start_at(seed: int, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A layer of three states with gates drawn at random for each key."""
    rng = np.random.default_rng([seed, 1])
    A = 0.6 * np.eye(3) + 0.1 * rng.normal(size=(len(keys), 3, 3))
    return A, 0.3 * rng.normal(size=(len(keys), 3))


@functools.cache
def searched() -> Searched:
    """Any gates, by the library's search."""
    ratios = []
    for seed in range(4):
        keys, drift = small_problem(seed)
        best = finite_key_gates.search_gates(keys, drift, *start_at(seed, keys), evaluations=4000)
        ratios.append(best / finite_key_gates.finite_bound(keys, drift).error)
    return Searched(min(ratios), max(ratios))


def linear_write_bound(keys: np.ndarray, drift: key_gates.MovingWeights) -> float:
    """Fixed point of the map of linear writes for keys of a finite law."""
    P = drift.Q
    for _ in range(100_000):
        S = drift.H @ P @ drift.H.T
        fourth = np.einsum("ni,nj,n->ij", keys, keys, np.einsum("ni,ij,nj->n", keys, S, keys)) / len(keys)
        heard = P @ drift.H.T @ drift.Lambda
        taken = heard @ np.linalg.solve(fourth + drift.sigma_y**2 * drift.Lambda, heard.T)
        before, P = P, drift.F @ (P - taken) @ drift.F.T + drift.Q
        if np.abs(P - before).max() <= 1e-15 * np.abs(P).max():
            return drift.error(P)
    raise RuntimeError("the map of linear writes did not settle")


@functools.cache
def searched_writes() -> Searched:
    """Any A(x), but b(x) = B x with one matrix B for all keys."""
    ratios = []
    for seed in range(4):
        keys, drift = small_problem(seed)
        A, b = start_at(seed, keys)
        shape, n = A.shape, A.size
        wall = 1e3 * finite_key_gates.gated_error(A, b, keys, drift)[0]

        def error(
            numbers: Any,
            keys: np.ndarray = keys,
            drift: key_gates.MovingWeights = drift,
            shape: tuple[int, ...] = shape,
            n: int = n,
            wall: float = wall,
        ) -> tuple[float, Any]:
            try:
                value, of_A, of_b = finite_key_gates.gated_error(
                    numbers[:n].reshape(shape), keys @ numbers[n:].reshape(3, 2).T, keys, drift
                )
            except ValueError:
                return wall, np.zeros_like(numbers)
            return value, np.concatenate([of_A.ravel(), (of_b.T @ keys).ravel()])

        start = np.concatenate([A.ravel(), 0.3 * np.random.default_rng([seed, 2]).normal(size=6)])
        options: Any = {"maxfun": 4000, "maxiter": 4000, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 30}
        best = minimize(error, start, jac=True, method="L-BFGS-B", options=options)
        ratios.append(float(best.fun) / linear_write_bound(keys, drift))
    return Searched(min(ratios), max(ratios))


def over(found: Searched) -> str:
    """How far above their bound searches ended; RuntimeError if one got below it."""
    if found.least < 1 - 1e-9:
        raise RuntimeError(f"a search got below its bound, to {found.least:.12f} of it: the theorem, or the code, errs")
    return scientific(found.largest - 1)


# The ladder


@functools.cache
def ladder(d: int) -> dict[int, tuple[float, float]]:
    """Error and its standard error, over d^2 q, for each window: a random walk with clean labels."""
    drift = key_gates.per_coordinate(np.array([[1.0]]), q=1.0, d=d)
    x = np.random.default_rng([SEED, d]).standard_normal((DRAWN[d], 24 * d, d))
    by_window = {}
    for window in LADDER[d]:
        errors = key_gates.windowed_errors(x, drift, window, d * np.eye(d))[:, 12 * d :].mean(1) / d**2
        by_window[window] = float(errors.mean()), float(errors.std(ddof=1) / np.sqrt(len(errors)))
    return by_window


def ladder_z() -> float:
    """The simulated layer with one earlier key against the closed form, d = 16, in standard errors."""
    mean, error = ladder(16)[1]
    return (mean - one_earlier(16)) / error


def one_earlier(d: int) -> float:
    """The exact error with one earlier key over d^2 q."""
    return key_gates.one_earlier_key(d, 1.0, 1.0) / d**2


# One map


@functools.cache
def share(drift: str, layer: str) -> float:
    """Error of a layer at its best over that of answering 0, for a drift of second order."""
    f = spectra.pole_spectrum(POLES[drift], k=1.0, n=4096)
    return spectra.layer_error(f, DIMENSION, layer=LAYERS[layer]) / DIMENSION


@functools.cache
def map_gap() -> float:
    """The map against fixed points of the matrix Riccati maps, d = 3, clean and noisy: the largest relative gap."""
    gaps = []
    for poles in POLES.values():
        first, second = np.real(np.poly(poles))[1:]
        F = np.array([[-first, -second], [1.0, 0.0]])
        f = spectra.pole_spectrum(poles, k=1.0, n=8192)
        # The innovation's variance: exp of the mean log spectrum.
        q = float(np.exp(np.log(f).mean()))
        for sigma_y in (0.0, 0.5):
            drift = key_gates.per_coordinate(F, q=q, d=3, sigma_y=sigma_y)
            for layer, bound in (("key-gated", key_gates.key_gated_bound), ("delta", key_gates.data_free_bound)):
                other = spectra.layer_error(f, 3, layer=layer, sigma_y=sigma_y)
                gaps.append(abs(bound(drift).error / other - 1))
    return max(gaps)


# The floor


class Sampled(NamedTuple):
    """The floor over d k: as d grows, with its 1/d term, and by Riccati's recursion with its standard error."""

    limit: float
    corrected: float
    mean: float
    error: float

    @property
    def rest(self) -> float:
        """What the 1/d term leaves of the sample."""
        return self.mean - self.corrected


@functools.cache
def sampled(s: float, v: float, d: int) -> Sampled:
    """Both formulas and Monte Carlo at one place."""
    law = law_at(s, v, d)
    burn = int(8 * d / min(s, 1.0))
    x = np.random.default_rng([SEED, d, int(100 * s), int(100 * v)]).standard_normal((16, burn + 20 * d, d))
    errors, _ = spectra.state_space_errors(
        x, np.array([[law.gamma]]), np.array([[law.q]]), np.array([1.0]), sigma_y=law.sigma_y
    )
    each = errors[:, burn:].mean(1) / law.zero_error
    return Sampled(
        float(large_d.kalman_large_d(s, v)),
        spectra.corrected_floor(law, n=16384) / law.zero_error,
        float(each.mean()),
        float(each.std(ddof=1) / np.sqrt(len(each))),
    )


def floor_rows() -> str:
    """The table's rows."""
    rows = []
    for s, v, d in PLACES:
        at = sampled(s, v, d)
        rows.append(
            f"${s:g},\\ {v:g},\\ {d}$ & ${at.limit:.4f}$ & ${at.corrected:.4f}$ & "
            f"${at.mean:.4f}\\pm{at.error:.4f}$ & ${at.rest * d**2:.2f}\\pm{at.error * d**2:.2f}$"
        )
    return " \\\\\n".join(rows) + " \\\\"


# Mesa


@functools.cache
def mesa_over_floor(s: float) -> float:
    """Mesa at its best over the floor as d grows, clean labels."""
    return mesa.best_mesa(s, 0.0).error / float(large_d.kalman_large_d(s, 0.0))


def matrix_worth(order: int) -> float:
    """The best gates over the floor for clean slow drift with f ~ omega^(-2 order)."""
    return float((2 * order) ** (2 * order) * np.exp(1 - 2 * order))


#: Every macro of the text and how it is computed.
NUMBERS: dict[str, Callable[[], str]] = {
    "SearchOver": lambda: over(searched()),
    "WriteOver": lambda: over(searched_writes()),
    "MapGap": lambda: scientific(map_gap()),
    "FloorGap": lambda: f"{max(abs(sampled(*place).rest) for place in PLACES):.4f}",
    "FloorRows": floor_rows,
    "GammaShown": lambda: f"{LAW.gamma:g}",
    "DeltaOverBound": lambda: f"{steady.best_delta(LAW).error / steady.best_unit_delta(LAW).error:.2f}",
    "GlaOverBound": lambda: f"{steady.best_gla(LAW).error / steady.best_unit_delta(LAW).error:.2f}",
    "LadderOne": lambda: f"{one_earlier(16):.3f}",
    "LadderZ": lambda: f"{ladder_z():.1f}",
    "LadderSe": lambda: f"{max(error for d in LADDER for _, error in ladder(d).values()):.3f}",
    "PoleSize": lambda: f"{SIZE:g}",
    "PoleAngle": lambda: f"{ANGLE:g}",
    "PoleOther": lambda: f"{OTHER:g}",
    **{
        drift + layer: functools.partial(lambda drift, layer: f"{share(drift, layer):.5f}", drift, layer)
        for drift in POLES
        for layer in LAYERS
    },
    "MatrixOne": lambda: f"{matrix_worth(1):.2f}",
    "MatrixTwo": lambda: f"{matrix_worth(2):.1f}",
    **{f"Mesa{name}": functools.partial(lambda s: f"{mesa_over_floor(s):.2f}", s) for name, s in MESA_AT.items()},
    "MesaAtSlow": lambda: f"{MESA_AT['Slow']:g}",
    "MesaAtMid": lambda: f"{MESA_AT['Mid']:g}",
}


def numbers() -> str:
    """The macros, one a line."""
    return "".join(f"\\newcommand{{\\{name}}}{{{compute()}}}\n" for name, compute in NUMBERS.items())


# Figures


def ladder_figure() -> Any:
    """Error against the window over d, one curve a dimension."""
    from icl_book import charts

    values = {f"d = {d}": ladder(d) for d in LADDER}
    drawn = {
        name: ([max(window / d, 1 / 64) for window in each], [mean for mean, _ in each.values()])
        for d, (name, each) in zip(LADDER, values.items(), strict=True)
    }
    return charts.curves(
        (1 / 64, 2.0),
        drawn | {"Kalman, d large": np.e / 4},
        points=drawn,
        floors=["Kalman, d large"],
        colours={"Kalman, d large": "#8a5a00"},
        log_x=True,
        y_domain=(0.6, 1.02),
        x_title="K / d, earlier keys that gates see over dimension (leftmost: K = 0)",
        y_title="error over d² q",
        title="ladder",
        alt="Error over d squared q against the window over d, falling from 1 to about e / 4.",
    )


def levels_figure() -> Any:
    """Errors over the floor as d grows against s, clean labels."""
    from icl_book import charts

    at = np.geomspace(0.05, 8, 25)
    floor = large_d.kalman_large_d(at, 0.0)
    errors = {
        "GLA": large_d.eps_gla(at, 0.0),
        "gates of the current key": large_d.eps_delta(at, 0.0),
        "Mesa": np.array([mesa.best_mesa(float(s), 0.0).error for s in at]),
        "Kalman": floor,
        "smoother": (np.sqrt(4 + at**2) - 2) / at,
    }
    return charts.curves(
        at,
        {name: error / floor for name, error in errors.items()},
        floors=["Kalman"],
        colours={"gates of the current key": "#2f8f83", "Mesa": "#a818f0", "smoother": "#c9711a"},
        log_x=True,
        log_y=True,
        x_title="s = d (1 − γ²), dimensions over memory",
        y_title="error over that of the Kalman filter",
        title="levels",
        alt="Error over the floor against s, for linear attention, the best gates, Mesa, Kalman and the smoother.",
    )


def pdf_of(figure: Any) -> bytes:
    """A figure of the book as a vector picture without its title, which the caption replaces."""
    import vl_convert

    from icl_book import charts

    drawing = json.loads(json.dumps(figure.spec).replace('"width": "container"', '"width": 380'))
    drawing.pop("title", None)
    drawing["background"] = "white"
    charts.register_fonts()
    return bytes(vl_convert.vegalite_to_pdf(drawing, vl_version="6.4"))


FIGURES: dict[str, Callable[[], Any]] = {"ladder": ladder_figure, "levels": levels_figure}


def typeset() -> int:
    """Run LaTeX; return its exit status."""
    missing = [tool for tool in ("latexmk", "pdflatex", "bibtex") if shutil.which(tool) is None]
    if missing:
        print(f"No {' and no '.join(missing)} here, so no PDF. {__doc__.strip().splitlines()[-1].strip()}")
        return 1
    command = ["latexmk", "-pdf", "-interaction=nonstopmode", "-halt-on-error", "-output-directory=build", "paper.tex"]
    paths = {"BIBINPUTS": f"{HERE}{os.pathsep}", "max_print_line": "1000"}
    done = subprocess.run(command, cwd=HERE, env=os.environ | paths, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout[-3000:], file=sys.stderr)
        return done.returncode
    log = (BUILD / "paper.log").read_text(encoding="latin-1")
    for line in log.splitlines():
        if line.startswith(("Overfull", "LaTeX Warning", "Package natbib Warning")):
            print(line)
    print(f"Open {BUILD / 'paper.pdf'}")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and build; return an exit status."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--numbers", action="store_true", help="numbers and figures only")
    asked = parser.parse_args(arguments)

    def work() -> int:
        _files.write(BUILD / "numbers.tex", numbers().encode())
        for name, draw in FIGURES.items():
            _files.write(BUILD / f"{name}.pdf", pdf_of(draw()))
        return 0 if asked.numbers else typeset()

    return chapters.run_command(work, BUILD)


if __name__ == "__main__":
    sys.exit(main())
