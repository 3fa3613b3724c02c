"""The closed forms that the browser computes, against the library's; on a page that holds nothing else."""

import itertools
import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, stats
from shared import drift_law

from icl import solvers
from icl.models import memformer
from icl.models.causal import Normalised
from icl.models.stacks import Stack
from icl.profile import make_generator
from icl.tasks import DriftingRegression
from icl.theory import floors, lfom, one_layer, s6
from icl.theory import steady as fast_weights
from icl.theory.floors import unknown_drift
from icl.theory.lfom import gated_floor, polynomial_floor
from icl.theory.one_layer import population, sign_flips
from icl.theory.steady import cheap_covariance, large_d, lms_family, mesa, spectra


def numbers(sentence):
    """The numbers of a sentence, in order."""
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", sentence)]


def rounded(number, form=".3g"):
    """A number as a sentence writes it."""
    return float(f"{number:{form}}")


@dataclass
class Drawing:
    """What a figure with sliders draws and says at their values."""

    values: dict
    rows: list
    stars: list | None
    readout: str

    @property
    def said(self):
        """The numbers of its sentence."""
        return numbers(self.readout)

    @property
    def star(self):
        """Its only star."""
        (star,) = self.stars
        return star

    @property
    def names(self):
        """Its curves, in order."""
        return list(dict.fromkeys(row["by"] for row in self.rows))

    def points(self, name):
        """Places and heights along a curve."""
        return [(row["x"], row["y"]) for row in self.rows if row["by"] == name]

    def heights(self, name):
        """Heights along a curve."""
        return [height for _, height in self.points(name)]

    def at(self, place):
        """The height of each curve at a place."""
        return {row["by"]: row["y"] for row in self.rows if row["x"] == place}

    def has(self, places, curves, *, rtol, atol=0.0, unit=1.0):
        """Its curves have these heights, or one height throughout, in a unit, at these places and no others."""
        for name, heights in curves.items():
            found, told = np.reshape(self.points(name), (-1, 2)), f"{name} {self.values}"
            heights = np.full(len(places), heights) if np.ndim(heights) == 0 else heights
            np.testing.assert_allclose(found[:, 0], places, rtol=1e-12, err_msg=told)
            np.testing.assert_allclose(found[:, 1] * unit, heights, rtol=rtol, atol=atol, err_msg=told)


@pytest.fixture
def explore(forms):
    """Draw a figure at values of its sliders, with the constants that its page gives it."""

    def drawn(name, values, *constants):
        ask = "([name, ...given]) => icl.explorables[name](...given)"
        figure = forms.evaluate(ask, [name, values, *constants])
        datasets = figure["datasets"]
        return Drawing(values, datasets["curve"], datasets.get("stars"), figure["readout"])

    return drawn


def grid(**ranges):
    """Points of the sliders' ranges, each combination of what they are given."""
    return [dict(zip(ranges, values, strict=True)) for values in itertools.product(*ranges.values())]


def task_of(point, **more):
    """The library's task at a point of the sliders, without the layer's forgetting factor."""
    return DriftingRegression(**{name: value for name, value in point.items() if name != "lam"}, **more)


def sampled_floor(task, count, stream="browser floor"):
    """The library's floor after each example, over sampled sequences."""
    x = task.sample(count, generator=make_generator(stream)).x.numpy()
    return floors.kalman_risk(task, x)[0]


# Edges of the sliders are among the points of each list.
SETTINGS = grid(
    gamma=(0.5, 0.95, 1.0), d=(1, 10, 40), n=(2, 100, 300), sigma_e=(0.01, 1.0), sigma_w=(1.0,), lam=(0.4, 0.9, 1.0)
)
TRAININGS = [
    {"lam": lam, "gamma": g, "n": n, "sigma_e": s, "sigma_w": w}
    for lam, g, n, (s, w) in itertools.product((0.5, 1.0), (0.6, 0.95), (10, 100), ((0.1, 1.0), (0.5, 0.5)))
]
#: d is the test's; three forgetting factors follow each other in one test.
TESTS = grid(gamma=(0.5, 1.0), n=(5, 300), sigma_e=(0.1,), sigma_w=(1.0,), d=(1, 10), lam=(0.3, 0.9, 1.0))
SIGNS = grid(flip=(0.0, 0.05, 0.5), rho=(0.05, 0.4, 0.9), n=(1, 20, 60))
METHODS = grid(steps=(1, 2, 10, 30), eta=(0.05, 1.0, 2.0), beta=(0.0, 0.7, 0.95), kappa=(2, 100, 1000))
#: One drift is beyond the random walk.
DRIFTS = grid(gamma=(0.0, 0.5, 0.95, 0.995, 1.0, 1.02), sigma_e=(0.01, 0.1, 0.5), sigma_w=(0.0, 1.0, 2.0), n=(149,))


def test_closed_forms_are_the_librarys(forms):
    """Errors, zero predictor and least error computed in the browser equal the library's to 1e-6."""
    ours = forms.evaluate(
        """points => points.map(p => [
            icl.trainingError(p), icl.zeroPredictor(p), icl.trainingError({...p, lam: icl.optimalForgetting(p)}),
        ])""",
        SETTINGS,
    )
    for point, values in zip(SETTINGS, ours, strict=True):
        task = task_of(point)
        expected = [
            one_layer.training_error(task, lam=point["lam"]),
            one_layer.zero_predictor(task),
            one_layer.training_error(task, lam=one_layer.optimal_forgetting(task)),
        ]
        np.testing.assert_allclose(values, np.array(expected, dtype=float), rtol=1e-6, err_msg=str(point))


def test_best_forgetting_is_the_librarys(forms):
    """lambda* from the browser's golden section equals the library's to 1e-6, where the valley is not flat."""
    points = [p for p in SETTINGS if p["n"] == 100 and p["gamma"] < 1 and p["lam"] == 0.9]
    for point, found in zip(points, forms.evaluate("ps => ps.map(icl.optimalForgetting)", points), strict=True):
        task = task_of(point)
        # A minimum is known only to the square root of the rounding of the function: 1e-7 here.
        assert found == pytest.approx(one_layer.optimal_forgetting(task), abs=1e-6)


def test_kalman_floor_is_near_the_librarys(forms):
    """The browser's Riccati floor, over its own 40 random sequences, is within 4% of the library's over 400."""
    for gamma, d in ((0.8, 10), (0.95, 10), (0.95, 3)):
        point = {"d": d, "n": 60, "gamma": gamma, "sigma_w": 1, "sigma_e": 0.1}
        expected = sampled_floor(DriftingRegression(d=d, n=60, gamma=gamma), 400)[-1]
        assert forms.evaluate("task => icl.kalmanFloor(task)", point) == pytest.approx(expected, rel=0.04)


def test_errors_after_a_shift_are_the_librarys(forms):
    """The error (19) of a layer trained elsewhere, computed in the browser, equals the library's to 1e-6.

    384 pairs of training and test; where both are the same it is the training error, to 1e-6 too.
    """
    ask = "([a, b]) => a.map(train => b.map(test => icl.testingError(train, test)))"
    for training, row in zip(TRAININGS, forms.evaluate(ask, [TRAININGS, TESTS]), strict=True):
        for test, values in zip(TESTS[::3], np.reshape(row, (-1, 3)), strict=True):
            train, task = task_of(training, d=test["d"]), task_of(test)
            expected = one_layer.testing_error(train, task, lam=training["lam"], test_lam=np.array([0.3, 0.9, 1.0]))
            np.testing.assert_allclose(values, expected, rtol=1e-6, err_msg=f"{training} {test}")
    alike = forms.evaluate("points => points.map(p => [icl.testingError(p, p), icl.trainingError(p)])", SETTINGS)
    np.testing.assert_allclose(*np.array(alike).T, rtol=1e-6)


def test_a_shift_draws_the_librarys_curves(explore, forms):
    """What the figure of a shifted test draws and says at its sliders' first values and at two corners is the
    library's, and its star is on the lowest point of the curve.

    Curves and levels to 1e-6, in multiples of the browser's own floor, which another test holds; numbers in the
    sentence are rounded to three digits, those of the floor to two, the best forgetting factor to two decimals.
    """
    constants = {"d": 10, "n": 100, "gamma": 0.95, "sigma_e": 0.1}
    for lam, m, gamma in ((0.5, 5, 0.5), (0.9, 50, 0.95), (1.0, 300, 1.0)):
        shifted = constants | {"n": m, "gamma": gamma}
        train, test = DriftingRegression(**constants), DriftingRegression(**shifted)
        drawn = explore("shift", {"lam": lam, "m": m, "gamma": gamma}, constants)
        floor = forms.evaluate("test => icl.kalmanFloor(test)", shifted)
        at, zero = np.linspace(0.3, 1.0, 141), one_layer.zero_predictor(test)
        curves = {
            "GLA": one_layer.testing_error(train, test, lam=lam, test_lam=at),
            "GLA, trained for the test": one_layer.training_error(test, lam=at),
        }
        levels = {"zero predictor": zero, "Kalman": floor}
        drawn.has(at, curves, rtol=1e-6, unit=floor)
        drawn.has(at[[0, -1]], levels, rtol=1e-6, unit=floor)
        assert set(drawn.names) == {*curves, *levels}
        star = drawn.star
        assert star == min((row for row in drawn.rows if row["by"] == "GLA"), key=lambda row: row["y"])
        kept = one_layer.testing_error(train, test, lam=lam, test_lam=lam)
        own = one_layer.training_error(test, lam=one_layer.optimal_forgetting(test))
        best = [rounded(star["x"], ".2f"), star["y"] * floor]
        assert drawn.said == [lam, *map(rounded, (kept, *best, own, 0, zero)), rounded(floor, ".2g")]


def test_errors_and_accuracies_of_turning_signs_are_the_librarys(forms):
    """Error, accuracy, what the known rule has and the best forgetting factor from the browser equal the library's, to
    1e-6; the factor where the valley is not flat, at more than one demonstration and fewer flips than one in two.
    """
    lams = [0.3, 0.9, 1.0]
    found = forms.evaluate(
        """([tasks, lams]) => tasks.map(task => [
            lams.map(lam => icl.signError(lam, task)), lams.map(lam => icl.signAccuracy(lam, task)),
            icl.signCeiling(task.rho), icl.signForgetting(task),
        ])""",
        [SIGNS, lams],
    )
    for task, (error, right, known, best) in zip(SIGNS, found, strict=True):
        flip, rho, n = task.values()
        m = sign_flips.sign_moments(np.array(lams), flip=flip, n=n)
        np.testing.assert_allclose(error, sign_flips.sign_error(m, rho), rtol=1e-6, err_msg=str(task))
        ours = sign_flips.sign_accuracy(np.array(lams), flip=flip, n=n, explained=rho)
        np.testing.assert_allclose(right, ours, rtol=1e-6, err_msg=str(task))
        assert known == pytest.approx(sign_flips.sign_ceiling(rho), rel=1e-6)
        if n > 1 and flip < 0.5:
            assert best == pytest.approx(sign_flips.sign_forgetting(flip=flip, n=n, explained=rho), abs=1e-6)


def test_turning_signs_draw_the_librarys_curves(explore):
    """Curve, levels, star and sentence of the explorable at its first values and at two corners, to 1e-6; numbers in
    the sentence are rounded to three and one decimals.
    """
    lams = [round(0.3 + 0.02 * i, 2) for i in range(36)]
    for flip, rho, n in ((0.05, 0.4, 20), (0.0, 0.05, 1), (0.3, 0.9, 60)):
        drawn = explore("flips", {"flip": flip, "rho": rho, "n": n}, {"lams": lams})

        def right(at, flip=flip, rho=rho, n=n):
            return 100 * sign_flips.sign_accuracy(np.array(at), flip=flip, n=n, explained=rho)

        drawn.has(lams, {"one layer": right(lams)}, rtol=1e-6)
        known, star = 100 * float(sign_flips.sign_ceiling(rho)), drawn.star
        drawn.has([lams[0], lams[-1]], {"chance": 50, "the rule known": known}, rtol=1e-6)
        np.testing.assert_allclose(star["y"], right(star["x"]), rtol=1e-6)
        expected = [star["x"], star["y"], 0.9, float(right(0.9)), 1, float(right(1.0)), known]
        np.testing.assert_allclose(drawn.said, expected, atol=0.0501)


def steady(gamma, d, sigma_e=1.0):
    """The task in its steady state from the start; its prompt is as good as endless for any memory of the sliders."""
    return DriftingRegression(d=d, n=9000, gamma=gamma, sigma_w=sigma_e / (1 - gamma**2) ** 0.5, sigma_e=sigma_e)


def errors_by_memory(task, memory):
    """The library's error of each filter at memories in examples."""
    step, fading = lms_family.steady_error, {"lam": task.gamma}
    return {
        "LMS": step(task, 1 / memory),
        "NLMS": step(task, task.d / memory, normalised=True),
        "GLA": one_layer.training_error(task, lam=1 - 1 / memory),
        "delta rule": step(task, 1 / memory, **fading),
        "normalised delta rule": step(task, task.d / memory, **fading, normalised=True),
    }


def test_errors_of_filters_are_the_librarys(forms):
    """Steady errors of five filters computed in the browser equal the library's to 1e-6, infinite at the same points.

    Thirty-two tasks, the sliders' edges among them, at nine memories, of which a hundred errors and more are infinite;
    and steps and fading that the figure does not use, none at all among them.
    """
    memory = np.array([2.0, 2.5, 5.7, 6.5, 12.0, 17.5, 33.0, 100.0, 300.0])
    # JSON has no infinity: null stands for it.
    ask = """([task, memories]) => Object.fromEntries(Object.entries(icl.filters).map(
        ([name, f]) => [name, memories.map(m => f(task, m)).map(e => e < Infinity ? e : null)]))"""
    unsettled = 0
    for gamma, d in itertools.product((0.5, 0.8, 0.95, 0.99), (1, 3, 10, 30)):
        for sigma_e in (0.1, 1.0):
            found = forms.evaluate(ask, [{"gamma": gamma, "d": d, "sigma_e": sigma_e}, memory.tolist()])
            expected = errors_by_memory(steady(gamma, d, sigma_e), memory)
            assert list(found) == list(expected)
            for name, values in found.items():
                values = np.array([np.inf if e is None else e for e in values])
                np.testing.assert_allclose(values, expected[name], rtol=1e-6, err_msg=f"{name} {gamma} {d}")
                unsettled += np.isinf(values).sum()
    assert unsettled >= 100
    cases = [(mu, lam, normalised) for mu in (0.0, 0.05, 0.15) for lam in (0.5, 0.9, 1.0) for normalised in (0, 1)]
    ask = "points => points.map(([mu, lam, n]) => icl.steadyError({gamma: 0.9, d: 7}, mu, {lam, normalised: !!n}))"
    for (mu, lam, normalised), value in zip(cases, forms.evaluate(ask, cases), strict=True):
        expected = lms_family.steady_error(steady(0.9, 7), mu, lam=lam, normalised=bool(normalised))
        assert value == pytest.approx(expected, rel=1e-6)


def test_steady_floor_is_near_the_librarys(forms):
    """The browser's Riccati floor in the steady state, over its own 20 random sequences, is within 0.5% of the
    library's over 200.

    In one dimension a single label tells the weight, and the floor is sigma_e^2 exactly.
    """
    ask = "([gamma, d, sigma_e]) => icl.steadyFloor({gamma, d, sigma_e})"
    for gamma, d, sigma_e in ((0.5, 10, 1.0), (0.95, 3, 1.0), (0.95, 10, 0.1), (0.99, 10, 1.0), (0.99, 30, 1.0)):
        task = replace(steady(gamma, d, sigma_e), n=299)
        expected = sampled_floor(task, 200 if d < 30 else 40, "browser steady floor")[-100:].mean()
        assert forms.evaluate(ask, [gamma, d, sigma_e]) == pytest.approx(expected, rel=0.005)
    assert forms.evaluate(ask, [0.9, 1, 0.3]) == pytest.approx(0.09, rel=1e-12)


def test_filters_draw_the_librarys_curves(explore, forms):
    """What the figure of the filters draws and says at its sliders' first values and at four corners is the library's.

    Curves, levels and stars to 1e-6, in multiples of the browser's own floor, which another test holds; points that do
    not settle, or are worse than twice the zero predictor, are left out. Stars are no higher than any point of a curve
    of 401 nor of 201 more about its lowest; where the optimum is inside the range their memories are within 0.1% of it,
    a valley being flat. Numbers in the sentence are rounded to two decimals, memories to three digits.
    """
    at, wide = np.geomspace(2, 300, 120), np.geomspace(2, 300, 401)
    for gamma, d in ((0.95, 10), (0.5, 1), (0.5, 30), (0.99, 1), (0.99, 30)):
        task, zero, values = steady(gamma, d), d / (1 - gamma**2), {"gamma": gamma, "d": d}
        curves = errors_by_memory(task, at)
        drawn = explore("filters", values, {"methods": list(curves)})
        floor, best = forms.evaluate("task => icl.steadyFloor(task)", values), drawn.stars
        for name, expected in curves.items():
            shown = expected <= 2 * zero
            drawn.has(at[shown], {name: expected[shown]}, rtol=1e-6, unit=floor)
        drawn.has([2, 300], {"zero predictor": zero / floor, "Kalman": 1.0}, rtol=1e-12)
        assert set(drawn.names) == {*curves, "zero predictor", "Kalman"}
        said = drawn.readout.split(": ", 1)[1]
        everywhere = errors_by_memory(task, wide)
        assert [star["by"] for star in best] == list(everywhere)
        stars = errors_by_memory(task, np.array([star["x"] for star in best]))
        lowest = {name: error.argmin() for name, error in everywhere.items()}
        about = {n: np.geomspace(wide[max(k - 1, 0)], wide[min(k + 1, 400)], 201) for n, k in lowest.items()}
        near = errors_by_memory(task, np.concatenate(list(about.values())))
        for i, star in enumerate(best):
            name, own = star["by"], slice(201 * i, 201 * (i + 1))
            here, least = stars[name][i], near[name][own]
            assert star["y"] * floor == pytest.approx(here, rel=1e-6)
            assert here <= min(everywhere[name].min(), least.min()) * (1 + 1e-9)
            assert star["x"] == pytest.approx(about[name][least.argmin()], rel=1e-3)
            where = f"{star['x']:.3g}"
            where = "300 or more" if star["x"] > 299.9 else "2 or less" if star["x"] < 2.001 else where
            assert f"{star['by']} {star['y']:.2f} at {where}" in said.replace(". ", "; ").split("; ")
        assert said.endswith(f"Zero predictor: {zero / floor:.2f}.")


def what_is_left(eta, beta, kappa, steps, z):
    """The size of each method's error along eigenvectors of eigenvalues z, from runs of the library's solvers."""
    methods = {
        "gradient descent": solvers.gradient_descent(eta),
        "momentum": solvers.momentum(eta, beta),
        "Nesterov": solvers.nesterov(eta, beta),
        "Chebyshev": solvers.chebyshev(1 / kappa, 1.0),
    }
    H = torch.as_tensor(z)[:, None, None]
    runs = {name: solvers.run_solver(method, H, H[..., 0], steps) for name, method in methods.items()}
    return {name: np.abs(1 - run[:, -1, 0].numpy()) for name, run in runs.items()}


def test_what_methods_leave_is_the_librarys(forms):
    """What each method leaves of an error, computed in the browser, is what a run of the library's solver leaves, to
    1e-9 of it or of 1, and up to two steps the polynomial of the method's table; so are Chebyshev's step sizes.

    108 settings at five eigenvalues, the ends of the figure among them; iterates that grow are among the settings.
    """
    z = np.array([1e-3, 0.01, 0.3, 0.77, 1.0])
    ask = """([points, z]) => points.map(point => Object.fromEntries(Object.entries(icl.methods).map(
        ([name, method]) => [name, z.map(method(point))])))"""
    grown = 0
    for point, found in zip(METHODS, forms.evaluate(ask, [METHODS, z.tolist()]), strict=True):
        expected = what_is_left(**point, z=z)
        assert list(found) == list(expected)
        for name, values in found.items():
            np.testing.assert_allclose(np.abs(values), expected[name], rtol=1e-9, atol=1e-9, err_msg=f"{name} {point}")
            grown += max(expected[name]) > 100
        steps, eta, beta, kappa = point.values()
        if steps > 2:
            continue
        etas, betas = (values.numpy() for values in solvers.chebyshev_scalars(1 / kappa, 1.0, steps))
        scalars = forms.evaluate("([low, steps]) => icl.chebyshevScalars(low, 1, steps)", [1 / kappa, steps])
        np.testing.assert_allclose(np.transpose(scalars), [etas, betas], rtol=1e-12)
        tables = {
            "gradient descent": lfom.gradient_descent_table(eta, steps),
            "momentum": lfom.momentum_table(eta, beta, steps),
            "Nesterov": lfom.nesterov_table(eta, beta, steps),
            "Chebyshev": lfom.registers(etas, np.append(0.0, betas[1:] * etas[:-1] / etas[1:])),
        }
        for name, table in tables.items():
            p = np.polynomial.polynomial.polyval(z, lfom.polynomials(table)[-1])
            np.testing.assert_allclose(found[name], p, rtol=1e-12, atol=1e-12)
    assert grown >= 10


def test_first_order_methods_draw_the_librarys_curves(explore):
    """What the figure of first-order methods draws and says at its sliders' first values and at four other points is
    the library's: curves to 1e-9; each star at the largest of 400 eigenvalues from 1/kappa to 1, left out where it lies
    above the figure; and the sentence, to three digits or as below a millionth, with 1 / T_k((kappa + 1) / (kappa - 1))
    for the limit.
    """
    z, top = np.geomspace(1e-3, 1, 50), 1.1
    points = [(1.0, 0.7, 100, 10), (0.05, 0.0, 2, 1), (2.0, 0.95, 1000, 30), (2.0, 0.0, 2, 30), (1.5, 0.8, 1000, 7)]
    above = tiny = 0
    for eta, beta, kappa, steps in points:
        values = {"eta": eta, "beta": beta, "kappa": kappa, "steps": steps}
        drawn = explore("firstOrder", values, {"eigenvalues": z.tolist(), "top": top, "points": 400})
        stars = {row["by"]: row for row in drawn.stars}
        largest = what_is_left(**values, z=np.geomspace(1 / kappa, 1, 400))
        expected = what_is_left(**values, z=z)
        drawn.has(z, expected, rtol=1e-9, atol=1e-9)
        for name in expected:
            worst = largest[name].max()
            above += worst > top
            assert (name in stars) == (worst <= top)
            if name in stars:
                assert stars[name]["y"] == pytest.approx(worst, rel=1e-6, abs=1e-9)
                here = np.array([stars[name]["x"]], dtype=float)
                assert what_is_left(**values, z=here)[name] == pytest.approx(worst, rel=1e-6, abs=1e-9)
                assert 1 / kappa * (1 - 1e-12) <= here[0] <= 1
        assert drawn.heights("1/κ") == [0, top]
        assert [x for x, _ in drawn.points("1/κ")] == pytest.approx([1 / kappa] * 2, rel=1e-12)
        assert set(drawn.names) == {*expected, "1/κ"}
        limit = 1 / np.polynomial.chebyshev.chebval((kappa + 1) / (kappa - 1), [0] * steps + [1])
        left = [largest[name].max() for name in ("gradient descent", "momentum", "Nesterov")]
        shown = [rounded(v) if v >= 1e-6 else 1e-6 for v in (*left, limit)]
        assert drawn.said == pytest.approx([1, kappa, 1, steps, *shown], rel=1e-9)
        tiny += shown.count(1e-6)
    assert above >= 2
    assert tiny


def test_how_many_tokens_draws_the_librarys_curves(explore, forms):
    """What the figure of lengths draws and says at its sliders' first values, at the ends of all sliders and between is
    the library's: curves and star to 1e-9, the sentence to three digits, with the sharper bound of the library where
    one half is left and never below the loss where another share is.
    """
    lengths = [1, 2, 7, 50, 1000]
    points = [(4, 20, 0.5), *itertools.product((1, 30), (2, 200), (0.02, 0.98)), (10, 80, 0.5)]
    for d, N0, kept in points:
        drawn = explore("howManyTokens", {"d": d, "N0": N0, "kept": kept}, {"lengths": lengths})
        alpha = kept ** (1 / N0)
        beta, least = s6.optimal_beta(d, N0, alpha)
        expected = {
            "S6, as trained": [s6.shifted_loss(d, n, alpha, beta) for n in lengths],
            "S6, gain set anew": [s6.least_loss(d, n, alpha) for n in lengths],
            "S6, step made for N": [s6.least_loss(d, n, kept ** (1 / n)) for n in lengths],
            "linear attention": [s6.linear_attention_loss(d, n) for n in lengths],
            "the paper's bound": [s6.bound(d, n) for n in lengths],
            "zero predictor": d / 2,
        }
        assert drawn.names == list(expected)
        drawn.has(lengths, expected, rtol=1e-9)
        assert drawn.star["x"] == N0
        assert drawn.star["y"] == pytest.approx(least, rel=1e-9)
        said = [float(v.replace(",", "")) for v in re.findall(r"(?<![A-Za-z])\d[\d,]*(?:\.\d+)?", drawn.readout)]
        sharper = forms.evaluate("([d, n, kept]) => icl.mambaSharper(d, n, kept)", [d, N0, kept])
        assert sharper >= least * (1 - 1e-12)
        if kept == 0.5:
            assert sharper == pytest.approx(s6.sharper_bound(d, N0), rel=1e-12)
        shown = [s6.effective_samples(N0, alpha), least, sharper, s6.bound(d, N0), s6.linear_attention_loss(d, N0)]
        # Three digits: off by half a unit of the third at most.
        last = expected["S6, as trained"][-1]
        assert said == pytest.approx([N0, *shown, 0, d / 2, lengths[-1], last], rel=0.0051)


def best_plain_steps(c, layers):
    """The least that any k of the best plain steps leave, k = 0 to all, from the library's tables."""
    steps = polynomial_floor.limit_steps(c, layers)
    tables = lambda k: (  # noqa: E731
        lfom.limit_table_risks(np.eye(k), c, steps[list(some)])[-1] for some in itertools.combinations(range(layers), k)
    )
    return [1.0, *(min(tables(k)) for k in range(1, layers + 1))]


def test_the_polynomial_floor_is_the_librarys(forms):
    """Floors, registers, steps and equal steps in high dimension, computed in the browser, equal the library's to 1e-9;
    so does what a register leaves after each layer, its own numbers or others, and what the best sets of steps leave.

    Fewer examples than dimensions, as many, and up to four times as many; one layer and eight.
    """
    ask = """([ratio, layers]) => {
        const c = 1 / ratio, scalars = icl.limitRegisters(c, layers), equal = icl.limitEqualSteps(c, layers);
        return {
            risks: icl.limitRisks(c, layers), scalars: scalars.map(({alpha, gamma}) => [alpha, gamma]),
            steps: icl.limitSteps(c, layers), equal: [equal.step, ...equal.risks],
            register: icl.registerRisks(c, scalars), sets: icl.bestSets(c, icl.limitSteps(c, layers)),
            heavy: icl.registerRisks(c, scalars.map((_, k) => ({alpha: 0.5, gamma: 0.3}))),
        };
    }"""
    for ratio, layers in itertools.product((0.5, 0.9, 1.0, 1.3, 4.0), (1, 8)):
        c = 1 / ratio
        step, equal = polynomial_floor.limit_equal_steps(c, layers)
        floor = polynomial_floor.limit_risks(c, layers)
        heavy = lfom.registers(np.full(layers, 0.5), np.full(layers, 0.3))
        expected = {
            "risks": floor,
            "scalars": np.transpose(polynomial_floor.limit_registers(c, layers)),
            "steps": polynomial_floor.limit_steps(c, layers),
            "equal": [step, *equal],
            "register": floor,
            "sets": best_plain_steps(c, layers),
            "heavy": lfom.limit_table_risks(heavy, c),
        }
        found = forms.evaluate(ask, [ratio, layers])
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-9, atol=1e-15, err_msg=f"{name} {ratio} {layers}")


def test_the_polynomial_floor_draws_the_librarys_curves(explore):
    """What the figure of the floor draws and says, at the first values, at the ends of all sliders and between, with a
    register and without, is the library's: curves and star to 1e-9, the sentence to three digits.
    """
    for ratio, layers, register in [*itertools.product((0.5, 4), (1, 8), (False, True)), (1, 2, False), (2.3, 5, True)]:
        drawn = explore("polynomialFloor", {"ratio": ratio, "layers": layers, "register": register}, {"deepest": 8})
        c = 1 / ratio
        step, equal = polynomial_floor.limit_equal_steps(c, 8)
        floor = polynomial_floor.limit_risks(c, 8)
        model = floor[: layers + 1] if register else best_plain_steps(c, layers)
        for name, values in {"equal steps": equal, "the model": model, "polynomial floor": floor}.items():
            drawn.has(range(len(values)), {name: values}, rtol=1e-9)
        assert len(drawn.rows) == 2 * 9 + layers + 1
        assert (drawn.star["x"], drawn.star["by"]) == (layers, "the model")
        assert drawn.star["y"] == pytest.approx(floor[layers], rel=1e-9)
        early = layers - 1
        times = [early] if register else [early, model[early] / floor[early], early]
        shown = [layers, 100 * floor[layers]]
        shown += [early, *times, step, equal[layers] / floor[layers], layers] if early else [step]
        assert drawn.readout.startswith("With a register" if register else "Without a register")
        assert drawn.said == pytest.approx(shown, rel=0.0051)


def gates_constants(d=5, n=20, deepest=4):
    """What the figure of gated experts is given, with a density of two bins."""
    own = [gated_floor.least_by_trace(d, n, layers) for layers in range(1, deepest + 1)]
    return {
        "polynomials": [polynomial_floor.optimal_polynomial(d, n, k).tolist() for k in range(1, deepest + 1)],
        "byTrace": [each.polynomial.tolist() for each in own],
        "traceRisks": [each.risks[-1].item() for each in own],
        "moments": polynomial_floor.wishart_moments(d, n, 2 * deepest).tolist(),
        "trained": [1.0, 2.0, 3.0],
        "density": [0.0, 3.0, 1.0, 0.0],
        "step": 0.5,
        "grid": [0.0, 0.4, 1.0, 2.5, 7.0],
    }


def test_gated_risks_are_the_librarys(forms):
    """The risk of a rescaled polynomial, and the best risk of a convex gate, computed in the browser, equal the
    library's to 1e-9: experts above, below and around the variance, one expert, and one layer.
    """
    ask = """([p, moments, s, trained]) => {
        const r = icl.simplexRatio(p, moments, s, trained);
        return [r, icl.rescaledRisk(p, moments, r), icl.rescaledRisk(p, moments, s)];
    }"""
    cases = itertools.product(((5, 20, 4), (3, 4, 1)), (0.25, 0.9, 1.0, 2.2, 3.05, 9.0), ([1.0, 2.0, 3.0], [1.5]))
    for (d, n, layers), s, trained in cases:
        p = polynomial_floor.optimal_polynomial(d, n, layers)
        moments = polynomial_floor.wishart_moments(d, n, 2 * layers)
        risk, alpha = gated_floor.simplex_gate(s, trained, d, n, layers)
        found = forms.evaluate(ask, [p.tolist(), moments.tolist(), s, trained])
        expected = [s * (alpha / trained).sum(), risk, gated_floor.rescaled_risk(s, d, n, layers).item()]
        assert found == pytest.approx(expected, rel=1e-9), (d, s, trained)


def test_gated_experts_draw_the_librarys_curves(explore):
    """What the figure of gated experts draws and says, with each gate, at variances within and beyond the experts', is
    the library's: polynomials to 1e-9, the density's peak 1, numbers of the sentence to two decimals or three digits.
    """
    constants = gates_constants()
    value, t = np.polynomial.polynomial.polyval, np.array(constants["grid"])
    gates = ((False, False), (True, False), (False, True))
    for s, layers, (free, reads) in itertools.product((0.25, 1.5, 4.0), (1, 4), gates):
        drawn = explore("gatedExperts", {"s": s, "layers": layers, "free": free, "reads": reads}, constants)
        p, own = polynomial_floor.optimal_polynomial(5, 20, layers), gated_floor.least_by_trace(5, 20, layers)
        floor = polynomial_floor.optimal_risks(5, 20, layers)[-1]
        risk, alpha = gated_floor.simplex_gate(s, constants["trained"], 5, 20, layers)
        r = 1.0 if free else s * (alpha / constants["trained"]).sum()
        risk = own.risks[-1] if reads else floor if free else risk
        expected = {
            "density of eigenvalues": np.interp(t / s, 0.5 * np.arange(4), constants["density"], right=0) / 3,
            "made for this variance": value(t / s, p),
            "the gated heads": value(t / s, own.polynomial) if reads else value(r * t / s, p),
        }
        drawn.has(t, expected, rtol=1e-9, atol=1e-12)
        shown = [s, layers, -np.log(risk), risk / floor, -np.log(floor)]
        shown = [r, *shown] if not (reads or free or r == 1) else shown
        # A minus sign is none of the sentence's numbers.
        assert drawn.said == pytest.approx(np.abs(shown), rel=0.0051, abs=0.0051)
        assert drawn.readout.startswith("A gate that reads" if reads else "A free" if free else "A convex")


def test_three_steps_leave_the_librarys_risks(explore):
    """Risks after each of three steps chosen by hand, their star and their sentence, at the ends of all sliders, at
    equal steps and at the best ones, are the library's: to 1e-9, in the sentence to two decimals or three digits. What
    is known is drawn as it was given, and a star above the picture is left out.
    """
    floor = polynomial_floor.optimal_risks(5, 20, 3)
    given = [{"x": 0, "y": 1.0, "by": "known", "piece": 0}]
    constants = {"known": given, "floor": floor.tolist(), "highest": 2.0}
    constants["moments"] = polynomial_floor.wishart_moments(5, 20, 6).tolist()
    best = polynomial_floor.optimal_steps(5, 20, 3).tolist()
    cases = [*itertools.product((0.1, 2.5), repeat=3), (0.6, 0.6, 0.6), best, best[::-1]]
    missing = 0
    for a in cases:
        drawn = explore("threeSteps", {f"a{j}": step for j, step in enumerate(a)}, constants)
        risks = lfom.table_risks(np.eye(3), 5, 20, np.array(a))
        assert drawn.rows[:1] == given
        found = [(row["x"], row["y"]) for row in drawn.rows[1:]]
        np.testing.assert_allclose(found, list(enumerate(np.log(risks))), rtol=1e-9)
        high = bool(np.log(risks[3]) > 2)
        missing += high
        assert [(star["x"], star["y"]) for star in drawn.stars] == [found[3]] * (not high)
        times = risks[3] / floor[3]
        shown = [*a, *np.abs(np.log(risks[1:])), times, -np.log(floor[3])]
        assert drawn.said == pytest.approx(shown, rel=0.0051, abs=0.0051)
    assert 0 < missing < len(cases)
    assert times == pytest.approx(1, rel=1e-9)


def test_moved_inputs_are_the_librarys(explore, forms):
    """What GD++ with numbers a and b leaves of the error, and the risk, spreads and curves that the figure draws and
    says, equal the library's matrices on diagonal Hessians: to 1e-9, without B too; percentages and logarithms as
    rounded.
    """
    t = np.array([0.05, 0.4, 1.0, 1.7, 2.6])
    weights = np.array([0.2, 1.0, 2.0, 1.5, 0.3])
    steps, bends = [[0.54, 1.01], [0.38, 1.38, 0.97]], [[0.89, 0.49], [0.9, 0.35, 0.4]]
    floor = polynomial_floor.optimal_risks(5, 20, 3)
    constants = {"steps": steps, "bends": bends, "nodes": t.tolist(), "weights": weights.tolist()}
    constants |= {"grid": t.tolist(), "floor": floor.tolist()}

    def matrices(own, moved):
        """Errors, and what the layers see of t in units of what they see of 1, by the library's model."""
        one, a = 1.0, []
        for step, b in zip(own, moved, strict=True):
            a.append(step / one**2)
            one *= 1 - b * step
        eye = torch.eye(len(t), dtype=torch.float64)
        A, B = (torch.tensor(v, dtype=torch.float64)[:, None, None] * eye for v in (a, moved))
        H = torch.diag(torch.tensor(t))[None]
        M = memformer.error_matrices(H, A, torch.eye(len(a), dtype=torch.float64), B)[0].diagonal(dim1=1, dim2=2)
        # A layer's factor is 1 - a h: what it sees, wherever something is left to be seen.
        h = (1 - M[1:] / M[:-1]).numpy() / np.array(a)[:, None]
        return M[-1].numpy(), h / h[:, t == 1.0]

    for layers, step, bend in [*itertools.product((2, 3), (0.5, 1.2), (0.0, 1.2)), (3, 1.0, 1.0), (2, 0.95, 0.45)]:
        own, moved = (np.array(v[layers - 2]) for v in (steps, bends))
        drawn = explore("plusPlus", {"layers": layers, "step": step, "bend": bend}, constants)
        ask = "given => icl.movedInputs(...given).p"
        p = forms.evaluate(ask, [t.tolist(), (step * own).tolist(), (bend * moved).tolist()])
        left, seen = matrices(step * own, (bend * moved).tolist())
        plain, _ = matrices(step * own, (0 * moved).tolist())
        np.testing.assert_allclose(p, left, rtol=1e-9, atol=1e-12)
        drawn.has(t, {f"layer {k + 1}": h for k, h in enumerate(seen)}, rtol=1e-7, atol=1e-9)
        assert [(row["x"], row["y"]) for row in drawn.rows[len(t) * layers :]] == [(t[0], 1), (t[-1], 1)]
        mean = seen @ weights / weights.sum()
        spreads = 100 * np.sqrt((seen**2 @ weights / weights.sum()) / mean**2 - 1)
        risks = [np.abs(np.log(weights @ v**2)) for v in (left, plain)]
        said = drawn.said
        assert said[: layers + 1] == pytest.approx([layers, *spreads], rel=0.051)
        assert said[layers + 1 :] == pytest.approx([*risks, layers, abs(np.log(floor[layers]))], abs=0.0051)


def test_the_price_of_sharing_is_what_it_was_given(explore):
    """The figure of shared numbers draws the tables that it is given, at the setting of its sliders and no other, and
    the library's limit, to 1e-9; the sentence says the last layer's shares and what sharing leaves times as much, to
    three digits.
    """
    sizes, ratios, layers = [5, 10, 15], [2, 3], 4
    floor = [[polynomial_floor.optimal_risks(d, r * d, layers) / d for r in ratios] for d in sizes]
    # Any other table will do for what prompts choose for themselves.
    own = np.array(floor) ** (1 + 0.1 * np.arange(6).reshape(3, 2, 1))
    constants = {"sizes": sizes, "ratios": ratios, "floor": np.array(floor).tolist(), "own": own.tolist()}
    for (i, d), (j, ratio) in itertools.product(enumerate(sizes), enumerate(ratios)):
        drawn = explore("sharing", {"d": d, "ratio": ratio}, constants)
        expected = {
            "polynomial floor": floor[i][j],
            "preconditioned CG": own[i, j],
            "floor in high dimension": polynomial_floor.limit_risks(1 / ratio, layers),
        }
        drawn.has(range(layers + 1), expected, rtol=1e-9)
        assert len(drawn.rows) == 3 * (layers + 1)
        shared, told, limit = expected.values()
        shown = [d, ratio * d, layers, 100 * shared[-1], 100 * told[-1], shared[-1] / told[-1], shared[1] / told[1]]
        assert drawn.said == pytest.approx([*shown, 100 * limit[-1]], rel=0.0051)


def test_a_cheaper_covariance_draws_the_librarys_curves(explore):
    """What the figure of summaries draws and says is the library's: curves to 1e-6, numbers to two digits."""
    shares = [0.0, 0.3, 1.0]
    for log_s, v in ((-0.5, 0.0), (-2.0, 1.0), (0.3, 0.1)):
        drawn = explore("cheapCovariance", {"log_s": log_s, "v": v}, {"shares": shares})
        s = 10**log_s
        floor, top = large_d.kalman_large_d(s, v), large_d.eps_delta(s, v)
        for share in shares:
            expected = {
                "blocks": cheap_covariance.eps_blocks(share, s, v) / floor,
                "best known directions": cheap_covariance.eps_low_rank(share / 2, s, v) / floor,
                "Longhorn": top / floor,
                "Kalman": 1.0,
            }
            assert drawn.at(share) == pytest.approx(expected, rel=1e-6)
        errors = [
            curve(share, s, v)
            for half in (0.1, 0.5)
            for curve, share in ((cheap_covariance.eps_low_rank, half / 2), (cheap_covariance.eps_blocks, half))
        ]
        gains = [100 * (top - eps) / (top - floor) for eps in errors]
        assert drawn.said == pytest.approx([s, v, top / floor, *gains], rel=0.0051)


def test_a_drawn_spectrum_draws_the_librarys_levels(explore):
    """What the figure of bands draws and says is the library's: levels and bands to 1e-9, numbers to two or three
    digits. Of ten weights a tenth of the frequencies is one number a label; how often a power occurs is what counts.
    """
    edges = [0.02, 0.1, 0.3, 1.0, 3.0]
    width, ones = np.diff([0.0, *edges[1:]]), np.ones(10)
    readers = {
        "GLA": spectra.gla_large_d,
        "gates of the key": spectra.key_gated_large_d,
        "Kalman": spectra.filter_error,
        "smoother": spectra.smoother_error,
    }
    for bands, log_v in (((4, 4, 2, 1), -1.0), ((10, 0, 0, 1), -2.0), ((0, 3, 0, 10), 0.3)):
        values = dict(zip(("slow", "middling", "quick", "fast"), bands, strict=True)) | {"log_v": log_v}
        drawn = explore("drawnSpectrum", values, {"edges": edges})
        v, height = 10**log_v, np.array(bands) / sum(bands) / width
        f = 10 * np.repeat([*height, 0.0], np.rint([*(100 * width), 700]).astype(int))
        errors = {m: error(f, ones, sigma_y=np.sqrt(10 * v)) / 10 for m, error in readers.items()}
        drawn.has([edges[0], edges[-1]], {name: error + v for name, error in errors.items()}, rtol=1e-9)
        assert drawn.heights("the drift") == pytest.approx(np.repeat(height.clip(0.011), 2), rel=1e-9)
        shown = [100 * error for error in errors.values()]
        ratios = [errors["Kalman"] / errors["smoother"], errors["gates of the key"] / errors["Kalman"]]
        assert drawn.said == pytest.approx([*shown, *ratios], rel=0.0051, abs=0.051)


def test_every_model_draws_the_librarys_curves(explore):
    """What the figure of fast weights draws and says, at the ends of all sliders and between, is the library's: curves
    and stars to 1e-6, numbers in the sentence to two decimals or three digits.
    """
    at = [0.05, 0.4, 1.5, 4.0]
    for d, v, log_s in [(10, 0.1, 0.0), *itertools.product((5, 100), (0.0, 2.0), (-1.3, 0.6)), (50, 0.5, -0.5)]:
        drawn = explore("fastWeights", {"d": d, "v": v, "log_s": log_s}, {"grid": at})

        def expected(s, d=d, v=v):
            law = drift_law(d, s, v)
            errors = {
                "GLA": fast_weights.best_gla(law).error,
                "delta rule": fast_weights.best_delta(law).error,
                "Longhorn": fast_weights.best_unit_delta(law).error,
                "Kalman": large_d.kalman_floor(law),
            }
            floor = errors["Kalman"]
            return {name: error / floor for name, error in errors.items()}, law.zero_error / floor, floor

        for s in at:
            times, zero, _ = expected(s)
            assert drawn.at(s) == pytest.approx(times | {"zero predictor": zero}, rel=1e-6)
        s = 10**log_s
        times, zero, floor = expected(s)
        assert {row["by"]: row["y"] for row in drawn.stars} == pytest.approx(times, rel=1e-6)
        shown = [s, 2 * d / s, *list(times.values())[:3], zero, 100 * floor / d]
        assert drawn.said == pytest.approx(shown, rel=0.0051, abs=0.0051)


def test_the_map_of_layers_draws_the_librarys_borders(explore):
    """The map's borders are `mesa.least_noise` to 1e-6, its areas lie between neighbouring borders, and the numbers of
    the sentence are the library's at the sliders' ends and between, Mesa's where its table has them.
    """
    s, v = np.geomspace(0.03, 8, 5), np.geomspace(0.001, 10, 5)
    table = mesa.mesa_over_floor(s, v)
    constants = {"s": s.tolist(), "v": v.tolist(), "mesa": table.tolist()}
    for i, j, percent in itertools.product((0, 2, 4), (0, 2, 4), (2, 10, 50)):
        values = {"log_s": float(np.log10(s[i])), "log_v": float(np.log10(v[j])), "percent": percent}
        drawn = explore("layerMap", values, constants)
        borders = mesa.least_noise(s, percent / 100, v, table)
        for name in mesa.CHEAP_LAYERS:
            found, expected = dict(drawn.points(name)), dict(zip(s.tolist(), borders[name], strict=True))
            assert found == pytest.approx({at: expected[at] for at in found}, rel=1e-6)
        for at in s.tolist():
            here = [row for row in drawn.rows if row["x"] == at]
            assert here[0]["high"] == v[-1]
            assert [row["low"] for row in here] == [*(row["high"] for row in here[1:]), pytest.approx(v[0])]
        floor = large_d.kalman_large_d(s[i], v[j])
        times = [large_d.eps_gla(s[i], v[j]) / floor, large_d.eps_delta(s[i], v[j]) / floor, table[i, j]]
        near = [name for name, ratio in zip(mesa.CHEAP_LAYERS, times, strict=True) if ratio <= 1 + percent / 100]
        assert drawn.star["by"] == [*near, "Kalman"][0]
        shown = [s[i], v[j], *times, percent, 100 * floor]
        assert drawn.said == pytest.approx(shown, rel=0.0051, abs=0.0051)


def test_earlier_keys_are_read_between_the_records(explore):
    """At a table's numbers of keys the figure has its errors, between them numpy's line in log (1 + keys); 1e-12."""
    windows, errors = [0, 1, 4, 8], {"8": [1.0, 0.9, 0.78, 0.75], "16": [1.0, 0.95, 0.83, 0.76]}
    constants = {"windows": windows, "errors": errors, "floors": {"8": 0.74, "16": 0.7}, "last": 8}
    for keys, log_d in itertools.product((0, 1, 3, 8), (3, 4)):
        drawn = explore("earlierKeys", {"keys": keys, "log_d": log_d}, constants)
        row, least = errors[str(2**log_d)], constants["floors"][str(2**log_d)]
        expected = np.interp(np.log2(1 + np.arange(9)), np.log2(1 + np.array(windows)), row)
        curves = {"gates that see earlier keys": expected, "gates of the current key": 1.0, "Kalman": least}
        drawn.has(range(9), curves, rtol=1e-12)
        assert drawn.stars[0]["y"] == pytest.approx(expected[keys], rel=1e-12)
        gained = 100 * (1 - expected[keys]) / (1 - least)
        shown = [2**log_d, keys, expected[keys], least, gained]
        assert drawn.said == pytest.approx(shown, rel=0.0011, abs=0.51)


def test_a_gauge_reads_what_the_library_says(explore):
    """What the gauge's figure draws is the library's, to 1e-6 of each reading; its star is where a root finder finds
    the rest, and the sentence says what is left there and what the best layer leaves, to three digits.
    """
    at = [0.03, 0.1, 0.4, 0.95]
    for log_s, v, told in ((-1.0, 0.3, 1.0), (-1.5, 1.0, 0.25), (0.5, 0.05, 2.0), (-0.3, 0.5, 0.8)):
        drawn = explore("gauge", {"log_s": log_s, "v": v, "told": told}, {"d": 10, "grid": at})
        s = 10**log_s
        law = drift_law(10, s, v)
        believed = replace(law, sigma_y=float(np.sqrt(10 * v * told)))

        def left(p, law=law, believed=believed):
            lam, eps = unknown_drift.gates_at(believed, float(p))
            return unknown_drift.unit_delta_error(law, lam=lam, eps=eps) / 10

        def reads(p, left=left, v=v, told=told):
            return left(p) + v * (1 - told)

        readings = dict(drawn.points("the gauge reads"))
        for p in at:
            assert readings[p] == pytest.approx(np.clip(reads(p), at[0], at[-1]), rel=1e-6)
        rest = at[0] if reads(at[0]) < at[0] else at[-1]
        if reads(at[0]) > at[0] and reads(at[-1]) < at[-1]:
            rest = optimize.brentq(lambda p, reads=reads: reads(p) - p, at[0], at[-1])
        assert drawn.stars[0]["x"] == pytest.approx(rest, rel=1e-6)
        best = fast_weights.best_unit_delta(law).p
        assert drawn.said == pytest.approx([s, v, v * told, rest, left(rest), best], rel=0.0051)


def test_drift_spread_is_the_kernel(forms):
    """The variances behind the drifting weight's dashed lines are the diagonal of the library's kernel, to 1e-9."""
    found = forms.evaluate("points => points.map(icl.weightVariances)", DRIFTS)
    for point, values in zip(DRIFTS, found, strict=True):
        expected = DriftingRegression(d=1, **point).weight_kernel().diagonal()
        np.testing.assert_allclose(values, [point["sigma_w"] ** 2, *expected], rtol=1e-9, err_msg=str(point))


def first_forgotten(gamma, sigma_e, sigma_w, n=1700):
    """The first position at which the start's part of the library's kernel is below 1 %; None if there is none."""
    variance = DriftingRegression(d=1, n=n, gamma=gamma, sigma_e=sigma_e, sigma_w=sigma_w).weight_kernel().diagonal()
    # Without a start, and in white noise, the first weight has forgotten it already.
    below = gamma ** (2.0 * np.arange(1, n + 2)) * sigma_w**2 < 0.01 * variance
    return below.argmax() + 1 if below.any() else None


def test_drift_readout_is_the_kernels(forms):
    """The browser finds the start forgotten where its part of the library's kernel falls below 1 %, if it ever does,
    and correlations halved where the kernel's halve."""
    points = [
        {name: p[name] for name in ("gamma", "sigma_e", "sigma_w")}
        for p in DRIFTS
        if p["gamma"] < 1 or p["sigma_e"] == 0.5
    ]
    # JSON has no infinity: null stands for it.
    found = forms.evaluate("ps => ps.map(p => icl.startForgotten(p)).map(i => i < Infinity ? i : null)", points)
    assert None in found
    for point, position in zip(points, found, strict=True):
        assert position == first_forgotten(**point), point
    for gamma, half in zip((0.5, 0.95), forms.evaluate("[0.5, 0.95].map(icl.halfLife)"), strict=True):
        assert gamma**half == pytest.approx(0.5, rel=1e-12)


def test_a_drift_draws_the_law_it_names(explore):
    """What the figure of a drifting weight draws and says is definition (1) run with the noise it is given and the
    library's kernel: weights, labels and dashed lines to 1e-9, numbers in the sentence to three digits.

    Of three examples only, where the query's spread is not yet that of the example before it; four kinds of drift.
    """
    n, generator = 3, np.random.default_rng(0)
    e, x = generator.standard_normal((2, n + 2, 3))
    for gamma, sigma_e, sigma_w in ((0.0, 0.5, 1.0), (0.6, 0.5, 2.0), (1.0, 0.5, 1.0), (1.02, 0.1, 1.0)):
        law = {"gamma": gamma, "sigma_e": sigma_e, "sigma_w": sigma_w}
        drawn = explore("drifting", law, {"n": n, "e": e.tolist(), "x": x.tolist()})
        w = [sigma_w * e[0]]
        for noise in e[1:]:
            w.append(gamma * w[-1] + sigma_e * noise)
        kernel = DriftingRegression(d=1, n=n, **law).weight_kernel()
        deviation = np.sqrt([sigma_w**2, *kernel.diagonal()])
        expected = {f"w{name}": path for name, path in zip("₁₂₃", np.transpose(w), strict=True)}
        expected |= {"+2 s.d.": 2 * deviation, "−2 s.d.": -2 * deviation}
        expected |= {"label y": [np.nan, *(wi @ xi for wi, xi in zip(w[1:-1], x[1:-1], strict=True)), np.nan]}
        assert set(drawn.names) == set(expected)
        for name, values in expected.items():
            (times,) = np.nonzero(~np.isnan(values))
            drawn.has(times, {name: np.array(values)[times]}, rtol=1e-9)
        # "below 1%" is said whether it happens or not.
        shown = [deviation[-1], 1, *filter(None, [first_forgotten(**law)])]
        if 0 < gamma < 1:
            shown = [sigma_e / np.sqrt(1 - gamma**2), np.log(0.5) / np.log(gamma), *shown]
        assert drawn.said == pytest.approx(shown, rel=0.0051)
        assert f"{deviation[-1]:.3g}" != f"{deviation[-2]:.3g}" or gamma == 0


def test_sentences_of_memory_are_the_librarys(explore, forms):
    """What the figures of forgetting and of tracking say, at two settings each, is the library's: errors to three
    digits, the best forgetting factor to three decimals, what not forgetting costs to two digits; the floor is the
    browser's own, which another test holds.
    """
    for gamma, d, n, sigma_e in ((0.95, 10, 100, 0.1), (0.7, 3, 20, 0.5)):
        task = DriftingRegression(d=d, n=n, gamma=gamma, sigma_e=sigma_e)
        point = {"gamma": gamma, "d": d, "n": n, "sigma_e": sigma_e}
        floor = forms.evaluate("point => icl.kalmanFloor({...point, sigma_w: 1})", point)
        best = one_layer.optimal_forgetting(task)
        least, worst = one_layer.training_error(task, lam=np.array([best, 1.0]))
        shown = [rounded(best, ".3f"), rounded(least), 1, rounded(worst), rounded(100 * (worst / least - 1), ".2g")]
        assert explore("forgetting", point).said == [*shown, rounded(floor, ".2g")]
        lam, noise = 0.8, np.ones((n + 2, d)).tolist()
        constants = {"d": d, "n": n, "sigma_e": sigma_e, "sigma_w": 1, "x": noise, "e": noise}
        own = one_layer.training_error(task, lam=lam)
        shown = [lam, 5, rounded(own), rounded(rounded(best, ".3f")), rounded(least), rounded(floor, ".2g")]
        assert explore("tracking", {"gamma": gamma, "lam": lam}, constants).said == shown


def test_lengths_are_few_and_chi_square(forms):
    """The squared lengths over which the figure of fast weights averages have the moments of the chi-square law, and
    the means that the figure takes of them, to 1e-9; and they are at most 160.

    Each move of a slider passes over all of them thousands of times: a finer rule would say nothing more, later.
    """
    for d in (5, 10, 30, 100):
        rule = forms.evaluate("d => icl.squaredLengths(d)", d)
        r, weight = np.array(rule["r"]), np.array(rule["weight"])
        assert len(r) <= 160
        assert [weight @ r, weight @ r**2] == pytest.approx([d, d * (d + 2)], rel=1e-9)
        for noise in (0.1, 1.0, 100.0):
            mean = stats.chi2(d).expect(lambda r, noise=noise: r / (r + noise), epsabs=1e-13, epsrel=1e-12, limit=500)
            assert weight @ (r / (r + noise)) == pytest.approx(mean, rel=1e-9)


def drawn_prompt(n, d, by):
    """A prompt of a fixed weight, as the explorable of long examples takes it."""
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((n, d)), rng.standard_normal(d)
    return {"x": x.tolist(), "y": (x @ w).tolist(), "w": w.tolist(), "stretches": by, "ruin": 10}


def wrong_by(prompt, layers, steps, long, by, *, normalised=False):
    """Error over all queries of the library's stack on a prompt with its newest examples stretched, over that of 0."""
    x, y, w = (torch.tensor(prompt[name], dtype=torch.float64) for name in "xyw")
    n, d = x.shape
    stack = Stack(d, layers, dtype=torch.float64)
    scale = torch.where(torch.arange(n) >= n - long, by, 1.0)
    asked = torch.cat([(scale[:, None] * x).expand(d, n, d), torch.eye(d, dtype=torch.float64)[:, None]], 1)
    told = torch.cat([(scale * y).expand(d, n), torch.zeros(d, 1, dtype=torch.float64)], 1)
    with torch.no_grad():
        stack.s_x *= steps
        stack.s_y *= steps
        answer = -(Normalised(stack) if normalised else stack).errors(asked, told)[:, -1]
    return float((answer - w).norm() / w.norm())


def test_stretched_stacks_are_the_librarys(explore):
    """The errors of stacks of one to eight layers on stretched examples, computed in the browser, equal the library's
    to 1e-6 at the edges of all sliders, and on normalised tokens whatever the stretch.

    The star is where the error first comes to ten times that of answering 0, to 1e-4, and the sentence says it.
    """
    prompt = drawn_prompt(9, 4, [1.0, 1.5, 2.0, 4.0])
    starred = 0
    for layers, steps, long in itertools.product((1, 2, 4, 8), (0.5, 4.0), (1, 4, 9)):
        drawn = explore("stretched", {"layers": layers, "steps": steps, "long": long}, prompt)
        said, at = drawn.readout, {}
        for method, depth in (("one layer", 1), ("the stack", layers)):
            expected = np.array([wrong_by(prompt, depth, steps, long, by) for by in prompt["stretches"]])
            shown = expected < 1e300
            drawn.has(np.array(prompt["stretches"])[shown], {method: expected[shown]}, rtol=1e-6)
            ruined = [by for by, e in zip(prompt["stretches"], expected, strict=True) if not e < 10]
            at[method] = ruined[0] if ruined else np.inf
        flat = wrong_by(prompt, layers, steps, long, 4.0, normalised=True)
        drawn.has(prompt["stretches"], {"the stack, normalised": flat, "zero predictor": 1.0}, rtol=1e-6)
        assert f"on normalised tokens it is {flat:.3g} " in said
        assert len(drawn.stars) == (1 < at["the stack"] < np.inf)
        for star in drawn.stars:
            starred += 1
            assert star["x"] <= at["the stack"]
            edges = [wrong_by(prompt, layers, steps, long, star["x"] + off) for off in (-1e-4, 1e-4)]
            assert min(edges) < 10 < max(edges)
            assert f"wrong as answering 0 at {star['x']:.2f} times" in said
        assert ("at no length" in said) == (np.inf in at.values())
    assert starred >= 6


def products(X, Y):
    """What the browser gets of a layer's weights."""
    return {"XX": (X.T @ X).tolist(), "YY": (Y.T @ Y).tolist(), "K": (Y.T @ X).tolist()}


def test_descent_with_parts_taken_away_is_the_librarys(explore):
    """Descent by products alone, as the browser does it, has the losses of descent by the library's gradient to 1e-6,
    whichever parts select and are trained, at the edges of the sliders; and the sentence has the last of them.
    """
    d, d_h, eta, steps, every = 2, 5, 0.02, 20, 5
    rng = np.random.default_rng(5)
    X, Y = rng.standard_normal((d_h, d + 2)), rng.standard_normal((d_h, d + 1))  # with biases
    constants = products(X, Y) | {"d": d, "eta": eta, "steps": steps, "every": every}
    switches = ("selectB", "selectC", "trainB", "trainC")
    corners = list(itertools.product((2, 100), (0.1, 1.0)))
    for k, on in enumerate(itertools.product((True, False), repeat=len(switches))):
        N, start = corners[(k + k // 4) % 4]
        values = {"N": N, "start": start} | dict(zip(switches, on, strict=True))
        drawn = explore("selection", values, constants)
        known = s6.Coefficients(d, N, s6.assumed_alpha(N))
        for method, (select_b, select_c, train_b, train_c) in (("this layer", on), ("whole layer", [True] * 4)):
            # What is not static: all columns; what is: the last, the bias.
            kept_b, kept_c = np.arange(d + 2) >= (d + 1) * (not select_b), np.arange(d + 1) >= d * (not select_c)
            B, C = start * X * kept_b, start * Y * kept_c
            losses = []
            for step in range(steps + 1):
                weights = s6.S6Weights(B[:, :-1], np.column_stack([C[:, :-1], 0 * C[:, 0]]), B[:, -1], C[:, -1])
                if step % every == 0:
                    losses.append(s6.population_loss(weights, known))
                slope = s6.gradient(weights, known)
                to_b = np.column_stack([slope.W_B, slope.b_B])
                to_c = np.column_stack([slope.W_C[:, :-1], slope.b_C])
                B, C = B - eta * to_b * kept_b * train_b, C - eta * to_c * kept_c * train_c
            drawn.has(range(0, steps + 1, every), {method: losses}, rtol=1e-6)
            if method == "this layer":
                said = losses[-1]
        least = s6.least_loss(d, N, known.alpha)
        levels = {row["by"]: row["y"] for row in drawn.rows}
        assert levels["L*"] == pytest.approx(least, rel=1e-6)
        assert levels["zero predictor"] == d / 2
        assert drawn.said[:2] == [steps, rounded(said, ".4g")]


def test_descents_come_down_at_the_librarys_rate(explore):
    """Distances along descents from starts of several sizes, and the rates that the weights foretell, computed in the
    browser by products alone, equal those of the library's descent to 1e-6, at the edges of the sliders.
    """
    d, d_h, steps, every = 2, 12, 600, 50
    rng = np.random.default_rng(7)
    drawn = [(rng.standard_normal((d_h, d + 1)), rng.standard_normal((d_h, d))) for _ in range(3)]
    starts = [products(X, Y) for X, Y in drawn]
    constants = {"d": d, "d_h": d_h, "starts": starts, "steps": steps, "every": every}
    predicted = said = 0
    for c, start, N in itertools.product((0.1, 0.5, 1.0, 4.0), (0.2, 1.2), (2, 200)):
        figure = explore("convergence", {"c": c, "start": start, "N": N}, constants)
        rows, known, eta = figure.rows, s6.Coefficients(d, N, s6.assumed_alpha(N)), c / (d**2 * d_h)
        lost, rates = 0, []
        for run, (X, Y) in enumerate(drawn):
            name, zero = f"{c} {start} {N} {run}", np.zeros(d_h)
            weights = s6.S6Weights(start * X, np.column_stack([start * Y, zero]), zero, zero)
            found = {row["x"]: row["y"] for row in rows if row["piece"] == f"a{run}"}
            try:
                path = s6.descend(weights, known, eta, steps, every=every)
            except FloatingPointError:
                lost += 1
                continue
            kept = [k for k, far in enumerate(path.distances) if (path.distances[: k + 1] > 1e-10).all()]
            assert list(found) == [every * k for k in kept]
            np.testing.assert_allclose(list(found.values()), path.distances[kept], rtol=1e-6, atol=1e-12, err_msg=name)
            line = [(row["x"], row["y"]) for row in rows if row["piece"] == f"b{run}"]
            if line:
                (near, left), (last, end) = line
                rates.append(s6.rate(path.weights, known, eta))
                assert last == steps
                assert left == found[near] < 0.1
                assert np.log(left / end) / (last - near) == pytest.approx(rates[-1], rel=1e-6)
                predicted += 1
        proof = [row["y"] for row in rows if row["piece"] == "c"]
        assert np.log(proof[0] / proof[1]) / steps == pytest.approx(eta * known.beta1 * d_h / 2, rel=1e-6)
        assert (f"{lost} of 3 descents diverge" in figure.readout) == (lost > 0)
        if "predicted" in figure.readout:
            span = dict.fromkeys(f"{rate:.3g}" for rate in (min(rates), max(rates)))
            assert f"predicted {' to '.join(span)}." in figure.readout
            said += 1
    assert min(predicted, 3 * said) >= 10


def test_a_gate_draws_the_librarys_weights(explore, forms):
    """Best weights on positions and their error, computed in the browser, equal the library's to 1e-6 over the sliders'
    ranges; curves and sentence of the figure are the library's.
    """
    ages, constants = np.arange(41), {"n": 100, "sigma_e": 0.1, "oldest": 40}
    for gamma, d in itertools.product((0.5, 0.95, 1.0), (1, 10, 40)):
        task = DriftingRegression(d=d, n=100, gamma=gamma)
        best, zero = one_layer.position_weights(task)[0, ::-1], one_layer.zero_predictor(task)
        star = one_layer.optimal_forgetting(task)
        found = forms.evaluate("task => icl.positionWeights(task)", {"d": d, "n": 100, "gamma": gamma})
        np.testing.assert_allclose(found["weights"], best, rtol=1e-6, atol=1e-12)
        assert found["error"] == pytest.approx(one_layer.position_error(task), rel=1e-6)
        for lam in (0.5, 0.9, 1.0):
            figure = explore("gate", {"gamma": gamma, "d": d, "lam": lam}, constants)
            expected = {"GLA": lam**ages, "linear attention": 1.0, "best possible": best[ages] / best[0]}
            figure.has(ages, expected, rtol=1e-6, atol=1e-12)
            assert all(ages.tolist() == [x for x, _ in figure.points(name)] for name in expected)
            errors = [one_layer.training_error(task, lam=each) for each in (lam, star)]
            shares = [100 * float(error) / zero for error in (*errors, one_layer.position_error(task))]
            said = figure.said
            assert said[:2] == [lam, 100]
            assert said[2] == pytest.approx((lam ** np.arange(100)).sum(), rel=0.006)
            assert [said[3], said[5], said[6]] == pytest.approx(shares, abs=0.051)
            assert said[4] == pytest.approx(star, abs=0.00051)


def test_unlearning_draws_the_librarys_curves(explore):
    """Errors of an average and of a gated layer against the prompt's length equal the library's to 1e-6, and the floor
    the library's over 400 sequences within 4%; the star is the least of the average over all lengths.
    """
    lengths = [1, 2, 5, 20, 300]
    for gamma, lam in itertools.product((0.6, 0.95, 0.99), (0.5, 0.9, 1.0)):
        tasks = {
            n: DriftingRegression(d=10, n=n, gamma=gamma, sigma_w=0.1 * (1 - gamma**2) ** -0.5)
            for n in {*lengths, *(range(1, 61) if lam == 1 else ())}
        }
        missed = lambda n, lam, tasks=tasks: float(  # noqa: E731
            one_layer.training_error(tasks[n], lam=lam) / one_layer.zero_predictor(tasks[n])
        )
        figure = explore("unlearning", {"gamma": gamma, "lam": lam}, {"d": 10, "sigma_e": 0.1, "lengths": lengths})
        rows = {(row["by"], row["x"]): row["y"] for row in figure.rows}
        for n in lengths:
            assert rows["linear attention", n] == pytest.approx(missed(n, 1.0), rel=1e-6)
            assert rows["GLA", n] == pytest.approx(missed(n, lam), rel=1e-6)
            assert rows["zero predictor", n] == 1
        said = figure.said
        shares = [100 * rows[name, 300] for name in ("linear attention", "GLA", "Kalman")]
        assert [said[4], said[6], said[10]] == pytest.approx(shares, abs=0.51)
        assert said[11] == pytest.approx(np.log(2) / -np.log(gamma), rel=0.006)
        if lam == 1:
            best = one_layer.optimal_forgetting(tasks[300])
            assert said[9] == pytest.approx(best, abs=0.00051)
            assert said[8] == pytest.approx(100 * missed(300, best), abs=0.51)
            average = [missed(n, 1.0) for n in range(1, 61)]
            assert figure.star["x"] == said[0] == 1 + int(np.argmin(average))
            assert figure.star["y"] == pytest.approx(min(average), rel=1e-6)
            floor = sampled_floor(tasks[300], 400) / one_layer.zero_predictor(tasks[300])
            np.testing.assert_allclose([rows["Kalman", n] for n in lengths], floor[lengths], rtol=0.04)


def reduced(d, v, alpha, beta, p, q):
    """theta with p and q along the first direction, and U of one entry along it and another across it."""
    theta = np.diag(np.r_[alpha, np.full(d - 1, beta), v])
    theta[0, -1], theta[-1, 0] = p, q
    return theta


def test_loss_of_the_trap_is_the_librarys(forms):
    """2 L and the flow's velocity at 20 points of five numbers equal the library's to 1e-6 for all entries of theta, so
    that the five numbers stay among themselves; so do the levels of optimum and trap, and the curvature that decides.
    """
    points = np.random.default_rng(3).normal(scale=0.4, size=(20, 5))
    for gamma, lam, d in itertools.product((0.6, 0.8, 0.95), (0.5, 0.74, 0.95), (3, 10)):
        task = DriftingRegression(d=d, n=100, gamma=gamma)
        loss = population.layer_loss(task, lam=lam)
        found = forms.evaluate(
            """([task, points]) => {
                const {error, velocity, trap, best, zero, curvature} = icl.populationLoss(task);
                return [points.map(error), points.map(velocity), [trap, best, zero, curvature]];
            }""",
            [{"d": d, "n": 100, "gamma": gamma, "lam": lam}, points.tolist()],
        )
        thetas = np.stack([reduced(d, *point) for point in points])
        np.testing.assert_allclose(found[0], 2 * loss.value(thetas), rtol=1e-6)
        flow = np.stack([reduced(d, *velocity) for velocity in found[1]])
        np.testing.assert_allclose(flow, -loss.gradient(thetas), rtol=1e-6, atol=1e-9)
        at_rest = population.rank_one_trap(task, lam=lam), population.global_minimum(task, lam=lam)
        levels = [2 * loss.value(theta) for theta in at_rest] + [one_layer.zero_predictor(task)]
        np.testing.assert_allclose(found[2], [*levels, population.trap_curvature(task, lam=lam)], rtol=1e-6, atol=1e-12)


def test_flows_near_the_trap_are_the_librarys(explore):
    """Errors along the figure's two flows equal those of the library's loss, followed by another method, to 1e-6; the
    sentence says where they end. One start falls in, one is on the safe side, one meets a saddle.
    """
    times = np.geomspace(0.1, 600, 25)
    constants = {"d": 10, "n": 100, "sigma_e": 0.1, "U": 0.03, "times": times.tolist()}
    for lam, pq, v, kind, end in (
        (0.74, 0.3, 0.1, "a minimum", "At time 600 it is in the trap"),
        (0.74, 0.15, 0.1, "a minimum", "At time 600 it reaches the best layer"),
        (0.85, 0.5, -0.3, "a saddle", "At time 600 it reaches the best layer"),
    ):
        task = DriftingRegression(d=10, n=100, gamma=0.8)
        loss, zero = population.layer_loss(task, lam=lam), one_layer.zero_predictor(task)
        figure = explore("trap", {"lam": lam, "gamma": 0.8, "pq": pq, "v": v}, constants)

        def downhill(_, five, loss=loss):
            slope = loss.gradient(reduced(10, *five))
            return -np.array([slope[-1, -1], slope[0, 0], slope[1, 1], slope[0, -1], slope[-1, 0]])

        for name, size in (("the start", pq), ("the same with p = q = 0", 0.0)):
            start = [v, 0.03, 0.03, size, size]
            path = integrate.solve_ivp(downhill, (0, 600), start, "LSODA", times, rtol=1e-10, atol=1e-12)
            left = 2 * loss.value(np.stack([reduced(10, *five) for five in path.y.T])) / zero
            shown = left <= 1.05
            figure.has(times[shown], {name: left[shown]}, rtol=1e-6)
        assert f"the trap is {kind}." in figure.readout
        assert f"{end}; with p = q = 0 it reaches the best layer." in figure.readout
        begins = 200 * loss.value(reduced(10, v, 0.03, 0.03, pq, pq)) / zero
        assert figure.said[0] == pytest.approx(begins, rel=0.0006)
        best, trap = figure.said[-2:]
        at_rest = population.global_minimum(task, lam=lam), population.rank_one_trap(task, lam=lam)
        assert [best, trap] == pytest.approx([200 * loss.value(theta) / zero for theta in at_rest], abs=0.051)


def test_noisy_labels_draw_the_librarys_risks(explore):
    """Without noise the figure of noisy labels has the library's risks of LMS and of the layer; with it, those of
    second moments carried example by example and of the bowl's moments with the noise added: to 1e-6, at the edges of
    the sliders. The best step is the best of a grid, the floor the table's, the star where LMS first gets worse.
    """
    d, sigmas, lengths = 4, [0.0, 0.5, 1.0, 2.0], [5, 50]
    ridge = [[0.0, 0.1, 0.2, 0.3], [0.0, 0.01, 0.02, 0.03]]
    constants = {"d": d, "sigmas": sigmas, "lengths": lengths, "ridge": ridge}

    def lms(N, mu):
        """Risks of LMS, its mean squared distance from the weights carried from one example to the next."""
        left = np.full(len(sigmas), float(d))
        for _ in range(N):
            left = left - 2 * mu * left + mu**2 * ((d + 2) * left + d * np.square(sigmas))
        return left / 2

    for N, step in itertools.product(lengths, (0.05, 0.35, 1.0, 1.5)):
        drawn = explore("noisy", {"N": N, "step": step}, constants)
        known = s6.Coefficients(d, N, s6.assumed_alpha(N))
        heard = known.beta1 + known.kappa * np.square(sigmas)
        expected = {
            "S6, trained for the noise": d / 2 * (1 - known.beta3**2 / heard),
            "LMS": lms(N, step / (d + 2)),
            "LMS, best step": np.min([lms(N, mu) for mu in np.geomspace(1e-3, 1 / (d + 2), 400)], axis=0),
            "ridge regression": ridge[lengths.index(N)],
        }
        assert expected["LMS"][0] == pytest.approx(s6.lms_loss(d, N, step / (d + 2)), rel=1e-9)
        drawn.has(sigmas, expected, rtol=1e-6)
        worse = np.flatnonzero(expected["LMS"] > expected["S6, trained for the noise"])
        stars = [(star["x"], star["by"]) for star in drawn.stars]
        assert stars == [(sigmas[k], "LMS") for k in worse[:1]]
        # Where averaging is better: it is one stretch of noises.
        assert len(worse) == 0 or (np.diff(worse) == 1).all()
        said = "up to a noise of 2" if len(worse) == 0 else f"{sigmas[worse[0]]:g}" if worse[0] else "any noise"
        if len(worse) and worse[-1] < len(sigmas) - 1:
            said = f"up to a noise of {sigmas[worse[-1]]:g}"
        assert said in drawn.readout.partition(". ")[0]
        for name, risks in expected.items():
            assert f"{name} {float(f'{risks[2]:.3g}'):g}" in drawn.readout
