"""Runs, searches and extrapolations of *Every model is a decayed fast weight*, at small sizes, against closed forms."""

import chance
import numpy as np
import pytest

from icl.theory.steady import fast_weights as fw
from icl.theory.steady import large_d, mesa, spectra
from icl_book.chapters.synthesis import every_model_a_fast_weight as chapter

LAW = fw.DriftLaw(10, 0.95, 0.1)


def test_a_law_has_its_two_numbers():
    """And weights of variance 1."""
    law = chapter.law(12, 0.4, 0.25)
    assert (law.drift_rate, law.noise_ratio, law.k0) == pytest.approx((0.4, 0.25, 1.0))


def test_errors_are_ordered_and_solve_the_one_equation():
    """Corrections below gates below labels on slow drift, all between the floor and the zero predictor."""
    law = chapter.law(10, 0.2)
    found = chapter.layer_errors(law)
    powers = {
        "GLA": lambda p: p + 11,
        "GLA, gates of |x|": lambda p: p + 9,
        "delta rule": lambda p: 12 * p,
        "Longhorn": lambda p: 10 * p,
    }
    for name, D in powers.items():
        p = found[name]  # the variance of a weight is 1
        assert p == pytest.approx(law.q + law.gamma**2 * (p - p**2 / D(p)), rel=1e-9)
    assert list(found) == sorted(found, key=found.get, reverse=True)
    times = chapter.over_floor(law)
    assert times["Kalman"] == 1
    assert times["zero predictor"] == pytest.approx(1 / found["Kalman"])


def test_sliders_start_where_the_figure_does():
    """The answer's numbers are those of the laws it names."""
    grid = np.geomspace(0.05, 4, 5)
    sliders = chapter.drift_sliders(10, -0.5, grid)
    assert {c["name"]: c["value"] for c in sliders.controls} == {"log_s": -0.5, "v": 0.0, "d": 10}
    assert sliders.constants == {"grid": grid.tolist()}
    assert f"GLA has {chapter.over_floor(chapter.law(10, 10**-1.3))['GLA']:.1f} times" in sliders.answer


@pytest.mark.statistical(2)
def test_one_prompt_is_a_prompt_of_the_task():
    """Its labels are those of its weights, which move by the drift's innovations; detects a third of their variance."""
    x, y, w = chapter.one_prompt(LAW, n=50)
    assert x.shape == w.shape == (51, 10)
    np.testing.assert_allclose(y, (x * w).sum(1), rtol=1e-12)
    steps = (w[1:] - LAW.gamma * w[:-1]) / LAW.sigma_e
    chance.assert_z(steps)
    chance.assert_z((np.mean(steps**2) - 1) / np.sqrt(2 / steps.size))


@pytest.mark.statistical
def test_layers_obey_the_equation():
    """Six layers at two drifts, 300 prompts each; detects a tenth of an error."""
    table = chapter.against_the_equation([fw.DriftLaw(6, 0.9, 0.1, y) for y in (0, 0.3)], 300)
    assert list(table.layer.unique()) == list(chapter.SIX_LAYERS)
    assert len(table) == 2 * 6
    chance.assert_z(((table.error - table.equation) / table.se).to_numpy())


@pytest.mark.statistical
def test_gates_per_channel_obey_their_closed_form():
    """300 prompts; detects a tenth of an error."""
    chance.assert_z(np.array(list(chapter.channel_gates_run((0.9,), 300).values())))


@pytest.mark.one_draw("100 prompts")
@pytest.mark.parametrize("v", [0.0, 0.3])
def test_layers_run_over_prompts_lie_between_floor_and_zero_predictor(v):
    """Within six standard errors of their closed forms; on the same prompts Kalman is the best."""
    ran, exact = chapter.run_layers(10, 0.4, v, 100), chapter.layer_errors(chapter.law(10, 0.4, v))
    for name, error in exact.items():
        mean, se = ran[name]
        # The floor is a fit, to 1%.
        assert abs(mean - error) < 6 * se + (0.01 * error if name == "Kalman" else 0)
    assert min(ran, key=lambda name: ran[name][0]) == "Kalman"
    assert ran["Mesa"][0] < ran["Longhorn"][0]


def test_gains_are_those_of_the_closed_forms():
    """Any gate gains something, channels more than one gate, and none on slow drift as much as corrections."""
    gain = chapter.gains_of_gates()
    assert list(gain.columns) == list(chapter.FIVE_DRIFTS)
    one, channels = gain.loc["one gate that sees |x|"], gain.loc["a gate per channel that sees x"]
    assert (gain.loc["Mamba-2's form"] > 0).all()
    assert (gain.loc["Mamba-2's form"] <= one).all()
    assert (one < channels).all()
    assert gain[0.99].idxmax() == "corrections in place of labels"
    assert one[0.95] == pytest.approx(1 - fw.free_gates(LAW).error / fw.best_gla(LAW).error)


def test_no_layer_with_fixed_coefficients_gets_below_the_bound():
    """Heads end on GLA, momentum and chunks of one on the delta rule; Longhorn is not of the kind."""
    found = chapter.fixed_layers(LAW, random_layers=12, chunks=(1, 16))
    assert list(found.index) == [
        "12 layers at random, the best",
        *("GLA, one head", "two heads", "heavy ball", "chunks of 1", "chunks of 16", "Longhorn"),
    ]
    bound = fw.linear_bound(LAW)
    assert found.drop("Longhorn").min() > bound * (1 - 1e-9)
    assert found["Longhorn"] < bound
    for name, exact in (("GLA, one head", fw.best_gla(LAW).error), ("two heads", fw.best_gla(LAW).error)):
        assert found[name] == pytest.approx(exact, rel=1e-6)
    for name in ("heavy ball", "chunks of 1"):
        assert found[name] == pytest.approx(bound, rel=1e-4)
    assert bound < found["chunks of 16"] < found["GLA, one head"]


def test_tuned_layers_on_second_order_drift_reach_wieners_formula():
    """A forward model does; heads stay above the limit of any number of them. Large errors, so units matter."""
    poles = (0.95, 0.8)
    found = chapter.second_order_errors((sum(poles), -np.prod(poles)))
    limit = chapter.errors_from_spectrum(poles)
    assert found["state that moves as the weights do"] == pytest.approx(limit["corrections, raw keys"], rel=1e-3)
    assert found["that state, unit keys"] == pytest.approx(limit["corrections, unit keys"], rel=1e-3)
    assert limit["GLA, any heads"] * (1 - 1e-6) < found["two heads"] < found["one head"]
    assert found["one head"] < 1.01 * limit["GLA, any heads"]


def test_one_pole_gives_the_one_equation():
    """On first-order drift."""
    found = chapter.errors_from_spectrum([0.95])
    assert found["GLA, any heads"] == pytest.approx(fw.best_gla(LAW).error / LAW.zero_error, rel=1e-9)
    assert found["corrections, raw keys"] == pytest.approx(fw.best_delta(LAW).error / LAW.zero_error, rel=1e-9)
    spectrum = spectra.pole_spectrum(np.array([0.95]))
    unit = spectra.layer_error(spectrum, 10, layer="key-gated") / 10
    assert found["corrections, unit keys"] == pytest.approx(unit, rel=1e-12)


def test_the_table_has_every_layer_above_the_floor():
    """And noise makes every error larger, but the zero predictor's."""
    table = chapter.table_of_errors()
    assert table.shape == (8, 10)
    assert (table.drop(index="Kalman floor (fit)") > table.loc["Kalman floor (fit)"]).all(axis=None)
    clean, noisy = table["0.0"], table["0.1"]
    assert (noisy.iloc[1:] > clean.iloc[1:]).all(axis=None)
    np.testing.assert_allclose(noisy.iloc[0], clean.iloc[0], rtol=1e-12)


def test_channels_help_on_unequal_inputs_and_nothing_beats_the_floor():
    """A gain or fade per channel is at least as good as one for all."""
    table = chapter.unequal_inputs((0.95,), sequences=4)[0.95]
    assert table["GLA, a fade per channel"] <= table["GLA, one fade"]
    assert table["delta rule, a gain per channel"] <= table["delta rule, one gain"]
    assert table.idxmin() == "Kalman (drawn inputs)"


def test_extrapolation_finds_a_polynomial_and_the_error_of_its_constant():
    """Exact means give their coefficients; a constant's standard error is that of a weighted mean."""
    sizes = [4, 8, 20]
    fit = chapter.extrapolate(sizes, [0.4 + 0.3 / d - 0.1 / d**2 for d in sizes], [0.1, 0.2, 0.3], powers=3)
    np.testing.assert_allclose(fit.coefficients, [0.4, 0.3, -0.1], rtol=1e-9)
    assert fit.limit == pytest.approx(0.4)
    np.testing.assert_allclose(fit.at(np.array([0.0, 0.5])), [0.4, 0.4 + 0.15 - 0.025])
    assert chapter.extrapolate(sizes, [1, 1, 1], [0.2, 0.2, 0.2], powers=1).se == pytest.approx(0.2 / 3**0.5)


@pytest.mark.one_draw("24 sequences")
def test_the_floor_by_size_is_near_its_fit():
    """kalman_floor is right to 1%, the means to a few standard errors."""
    sizes, means, errors = chapter.floor_by_size(1.0, 0.2, {6: 16, 12: 8}, late=200)
    assert sizes == [6, 12]
    for d, mean, se in zip(sizes, means, errors, strict=True):
        law = chapter.law(d, 1.0, 0.2)
        assert abs(mean - large_d.kalman_floor(law) / law.zero_error) < 6 * se + 0.01 * mean
        assert 0 < se < 0.05 * mean


@pytest.mark.one_draw("160 prompts")
def test_mesa_run_is_near_its_formula():
    """At d = 8 the fit for a given dimension; the table's limit is the formula's."""
    law = chapter.law(8, 1.0, 0.0)
    error, se = chapter.mesa_run(8, 1.0, 0.0, 120)
    assert abs(error - mesa.mesa_for(law) / law.zero_error) < 6 * se + 0.03 * error
    table = chapter.mesa_by_size(1.0, 0.0, {8: 24, 12: 16})
    assert table["formula"] == pytest.approx(mesa.best_mesa(1.0, 0.0).error)
    assert table["z"] == pytest.approx((table["extrapolated"] - table["formula"]) / table["± s.e."])
    assert table["d = 8"] == pytest.approx(table["extrapolated"] + table["slope in 1/d"] / 8)


def test_random_walk_without_noise():
    """d^2 q for the delta rule, e / 4 of it for Kalman, RLS between."""
    clean = chapter.random_walk_errors((0.0, 10.0))[0.0]
    assert clean["delta rule"] == pytest.approx(1.0)
    assert clean["Kalman"] == pytest.approx(np.e / 4)
    assert clean["Kalman"] < clean["RLS at its best λ"] < clean["delta rule"]
    assert chapter.worst_mesa() == pytest.approx(clean["RLS at its best λ"] / clean["Kalman"], rel=1e-3)


@pytest.fixture(scope="module")
def small_map():
    return chapter.map_of_layers(points=13, coarse=7)


def test_the_map_has_the_layer_that_is_enough_at_every_point(small_map):
    """Recomputed from the layers' errors, away from the borders."""
    for i, j in ((2, 1), (6, 5), (6, 8), (12, 4), (1, 9)):
        s, v = small_map.s[i], small_map.v[j]
        floor = large_d.kalman_large_d(s, v)
        errors = large_d.eps_gla(s, v), large_d.eps_delta(s, v), small_map.mesa[i, j] * floor
        near = [n for n, e in zip(mesa.CHEAP_LAYERS, errors, strict=True) if e <= 1.1 * floor]
        lines, ends = small_map.areas()
        inside = [
            name
            for name, (low, high) in ends.items()
            for at, below, above in zip(lines[name][0], low, high, strict=True)
            if at == s and below <= v * 1.0001 and v < above
        ]
        assert inside == [[*near, "Kalman"][0]]


def test_areas_do_not_overlap_and_end_where_their_lines_meet():
    """A border above that of a cheaper layer leaves no area; an area is drawn up to the point where it closes."""
    borders = {
        "GLA": np.array([0.5, 0.5, 0.1, 0.1]),
        "gates of the key": np.array([0.3, 0.6, 0.1, 0.1]),
        "Mesa": np.array([0.2, 0.2, 0.2, 0.1]),
    }
    s, v = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.1, 1.0])
    lines, ends = chapter.LayerMap(s, v, np.full((4, 2), 1.2), borders).areas()
    low_and_high = {name: [each.tolist() for each in area] for name, area in ends.items()}
    assert low_and_high == {
        "GLA": [[0.5, 0.5, 0.1, 0.1], [1, 1, 1, 1]],
        "gates of the key": [[0.3, 0.5], [0.5, 0.5]],
        "Mesa": [[0.2, 0.2, 0.1], [0.3, 0.5, 0.1]],
        "Kalman": [[0.1, 0.1, 0.1], [0.2, 0.2, 0.1]],
    }
    assert [len(at) for at, _ in lines.values()] == [4, 2, 3, 3]
    np.testing.assert_array_equal(lines["gates of the key"][1], [0.3, 0.6])


def test_the_star_starts_in_the_area_that_it_names(small_map):
    """Its errors are those of the closed forms; sliders start there."""
    s, v = small_map.star
    times = small_map.times_at_star()
    assert times["gates of the key"] == pytest.approx(large_d.eps_delta(s, v) / large_d.kalman_large_d(s, v))
    assert small_map.enough() == "Mesa"
    assert times["gates of the key"] > 1.1 > times["Mesa"]
    sliders = small_map.sliders()
    assert {c["name"]: c["value"] for c in sliders.controls} == {"log_s": -0.5, "log_v": -1.0, "percent": 10}
    assert sliders.constants.keys() == {"s", "v", "mesa"}


def test_borders_are_where_a_layer_is_a_tenth_above_the_floor():
    """Along s without noise, and along the noise; rounded up."""
    for eps in (large_d.eps_gla, large_d.eps_delta):
        border = chapter.clean_border(eps)
        assert eps(border, 0.0) / large_d.kalman_large_d(border, 0.0) == pytest.approx(1.1, abs=2e-3)
    v = chapter.noise_from(chapter.delta_at_worst, 0.05, 0.5)
    assert chapter.delta_at_worst(v) <= 1.1 < chapter.delta_at_worst(v - 0.01)
    v = chapter.noise_from(chapter.mesa_at_worst, 0.005, 0.1)
    assert chapter.mesa_at_worst(v) <= 1.1 < chapter.mesa_at_worst(v - 0.01)
    assert 0.98 * 4 / np.e < chapter.worst_delta() < 4 / np.e
