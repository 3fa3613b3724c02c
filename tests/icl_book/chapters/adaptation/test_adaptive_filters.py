"""Experiments of *Adaptive filters and the Kalman floor*, at small sizes, against closed forms and the record."""

import itertools

import chance
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import chi2

from icl import filters
from icl.profile import make_generator
from icl.theory import one_layer
from icl.theory.steady import lms_family
from icl_book.chapters.adaptation import adaptive_filters as chapter
from icl_book.claims import claim
from icl_book.records import recorded


@pytest.fixture(scope="module")
def printed():
    """The paper's five errors of either filter."""
    return {name: np.array(claim(f"gla.{name.lower()}.table").printed[name]) for name in ("LMS", "RLS")}


@pytest.fixture(scope="module")
def simulated():
    """Errors of six filters on 200 sequences."""
    return chapter.simulated_curves(200)


@pytest.mark.statistical
def test_the_layer_is_a_filter_with_the_error_of_theorem_2():
    """Predictions of a hundred sequences; the best forgetting factor and its matrix."""
    task = chapter.long_task(0.9, n=60)
    p = task.sample(4_000, generator=make_generator("layer as a filter"), dtype=torch.float64)
    squares = (filters.run_filter(chapter.layer(task), p.x, p.y) - p.y)[:, -1] ** 2
    exact = one_layer.training_error(task, lam=one_layer.optimal_forgetting(task))
    chance.assert_z((squares.mean().item() - exact) / (squares.std().item() / 4_000**0.5))


def test_errors_by_memory_have_their_minima_at_the_closed_forms():
    """The delta rules' at windows of d + 2 and d, attention's at the pole; LMS diverges at short windows."""
    task, windows = chapter.endless_task(0.95), np.geomspace(2, 300, 4001)
    found = chapter.errors_by_memory(task, windows)
    best = {name: windows[errors.argmin()] for name, errors in found.items()}
    assert best["delta rule"] == pytest.approx(12, rel=2e-3)
    assert best["normalised delta rule"] == pytest.approx(10, rel=2e-3)
    assert 1 - 1 / best["GLA"] == pytest.approx(one_layer.kalman_pole(0.95, crosstalk=11), abs=1e-3)
    assert found["delta rule"].min() == pytest.approx(lms_family.best_steady(task)[2], rel=1e-5)
    assert np.isinf(found["LMS"][windows < 6]).all()
    lowest = chapter.lowest_errors(0.95)
    assert lowest["delta rule"] == pytest.approx(found["delta rule"].min(), rel=1e-4)
    assert chapter.steady_floor(task) < min(lowest.values())


def test_sliders_answer_their_question():
    """Their answer names where the two change places, and the figure's methods."""
    sliders = chapter.filter_sliders()
    assert sliders.function == "filters"
    assert sliders.constants == {"methods": ["LMS", "GLA", "delta rule"]}
    lowest = {gamma: chapter.lowest_errors(gamma) for gamma in (0.8, 0.99)}
    for gamma, word in ((0.8, "below"), (0.99, "above")):
        ratio = abs(lowest[gamma]["GLA"] / lowest[gamma]["LMS"] - 1)
        assert f"{ratio:.0%} {word}" in sliders.answer


def test_estimates_of_one_sequence_are_further_off_than_kalmans():
    """The figures say by how much."""
    tracks, missed = chapter.one_sequence()
    assert {track.shape for track in tracks.values()} == {(300, 10)}
    for name, off in missed.items():
        by_hand = (tracks[name] - tracks["true weight"])[100:].numpy()
        assert off == pytest.approx(np.sqrt((by_hand**2).mean()))
    assert missed["Kalman"] < min(missed["LMS"], missed["GLA"])


def test_exact_curves_settle_at_the_closed_forms():
    """After one example filters with a small step are near the zero predictor, after 299 at their best."""
    curves, task = chapter.exact_curves(np.array([1, 299]), 50), chapter.endless_task(0.95)
    zero = one_layer.zero_predictor(task)
    for name in ("LMS", "NLMS", "delta rule", "normalised delta rule"):
        assert 0.8 < curves[name][0] < 1
        assert curves[name][1] * zero == pytest.approx(chapter.lowest_errors(0.95)[name], rel=1e-3)
    assert curves["GLA"][1] * zero == pytest.approx(one_layer.steady_identity_error(task), rel=1e-4)
    assert curves["Kalman"][1] < min(c[1] for n, c in curves.items() if n != "Kalman")


@pytest.mark.statistical
def test_simulated_curves_are_the_exact_ones(simulated):
    """Four filters at 60 positions; means over 200 sequences detect a third of an error."""
    at = np.arange(5, 300, 5)
    exact, table = chapter.exact_curves(at, 2), simulated.set_index(["method", "position"])
    z = [(table.risk[n][at] - exact[n]) / table.se[n][at] for n in ("LMS", "NLMS", "delta rule")]
    chance.assert_z(np.concatenate(z))


def test_a_smoothed_curve_of_what_is_exact_is_exact(simulated):
    """The normalised delta rule's distance from itself is 0: what is left is a mean over neighbours."""
    at = np.array([7, 40, 200])
    curve = np.append(1.0, chapter.exact_curves(np.arange(1, 300), 2)["normalised delta rule"])
    means = [curve[i - i // 8 : i + i // 8 + 1].mean() for i in at]
    np.testing.assert_allclose(chapter.smoothed(simulated, "normalised delta rule", at), means)


def test_the_ladder_goes_down_to_the_floor():
    """Every rung is above 1 and below the one before; their ratio is that of the closed forms."""
    rungs = chapter.ladder((0.8, 0.95), 40)
    assert (rungs["GLA"] > rungs["delta rule"]).all()
    assert (rungs["delta rule"] > rungs["normalised delta rule"]).all()
    assert (rungs["normalised delta rule"] > 1).all()
    ratio = (1 - 0.95**2 * (1 - 1 / 10)) / (1 - 0.95**2 * (1 - 1 / 12))
    assert (rungs["delta rule"] / rungs["normalised delta rule"])[0.95] == pytest.approx(ratio)


def test_tuning_finds_the_known_optimum():
    """The step of LMS with the lowest exact error is that of the lowest error on forty sequences, within a fifth."""
    (mu,) = chapter.tuned(0.975, 40, ("LMS",))["LMS"]
    steps = np.linspace(0.005, 0.15, 500)
    best = steps[lms_family.steady_error(chapter.endless_task(0.975), steps).argmin()]
    assert mu == pytest.approx(best, rel=0.2)
    assert set(chapter.recorded_settings(0.95)) == set(chapter.TUNABLE)
    for name, setting in chapter.recorded_settings(0.95).items():
        assert isinstance(chapter.build(name, setting), filters.Filter)


@pytest.mark.statistical(3)
def test_a_comparison_is_the_recorded_one():
    """Thirty sequences at one drift, against ten thousand; the layer and the delta rule against their formulas."""
    found = chapter.compare_filters({0.95: chapter.recorded_settings(0.95)}, 30).set_index("method")
    assert set(found.index) == set(chapter.METHODS)
    was = recorded("gla-filters").table.query("γ == 0.95").set_index("method")
    names = list(chapter.METHODS)
    chance.assert_z(((found.risk - was.risk) / np.hypot(found.se, was.se))[names].to_numpy())
    for name, exact in (
        ("GLA", one_layer.steady_identity_error(chapter.endless_task(0.95))),
        ("delta rule", lms_family.best_steady(chapter.endless_task(0.95))[2]),
    ):
        chance.assert_z((found.risk[name] - exact) / found.se[name])


def test_comparison_with_the_layer_is_in_per_cent_of_its_error():
    """Two methods, two drifts, made up."""
    table = pd.DataFrame(
        {
            "γ": [0.8, 0.8, 0.9, 0.9],
            "method": ["GLA", "LMS", "GLA", "LMS"],
            "risk": [2.0, 3.0, 4.0, 3.0],
            "difference": [0.0, 1.0, 0.0, -1.0],
            "difference_se": [np.nan, 0.1, np.nan, 0.5],
        }
    )
    found = chapter.compared_with_layer(table).loc["LMS"]
    np.testing.assert_allclose(found, [[50, 5, 10], [-25, 12.5, -2]])


@pytest.mark.statistical
def test_layer_errors_are_between_the_floor_and_the_zero_predictor():
    """At every drift; the record has them within its standard errors."""
    table = recorded("gla-filters").table.set_index(["method", "γ"])
    errors = np.array(chapter.layer_errors())
    for gamma, error in zip(chapter.FIVE_DRIFTS, errors, strict=True):
        assert table.risk["Kalman", gamma] < error < table.risk["zero predictor", gamma]
    recorded_errors = table.loc["GLA"].loc[list(chapter.FIVE_DRIFTS)]
    chance.assert_z((recorded_errors.risk.to_numpy() - errors) / recorded_errors.se.to_numpy())


@pytest.mark.statistical
def test_a_fitted_layer_has_the_error_of_its_matrix():
    """Fitted to and tested on 4,000 sequences; no better than the optimum."""
    found = chapter.fitted_layer(4_000)
    chance.assert_z((found["error"] - found["theory"]) / found["se"])
    assert found["theory"] >= found["optimum"]


def test_a_gamma_that_many_sequences_choose_costs_little():
    """Less than one chosen on a single sequence, and the choice is near the truth."""
    found = chapter.choose_gamma(test=20)
    assert list(found["γ"]) == list(chapter.FIVE_DRIFTS)
    assert (np.abs(found.found - found["γ"]) < 0.03).all()
    assert found["error added, from 60"].mean() < found["error added, from 1"].mean() < 0.02


def test_conventions_of_lms_are_exact_and_of_rls_simulated(printed):
    """Sixteen and 48; the last error of LMS before its label is that of the steady state, after it a fixed share."""
    table = chapter.conventions(printed, 2)
    assert table["filter"].value_counts().to_dict() == {"RLS": 48, "LMS": 16}
    last = table.query("filter == 'LMS' and start == 'settled' and over == 'last'").set_index("error").ours
    for at, gamma in enumerate(chapter.FIVE_DRIFTS):
        steady = lms_family.steady_error(chapter.endless_task(gamma), 0.01)
        assert last["before"][at] == pytest.approx(steady, rel=1e-3)
        assert last["after"][at] / last["before"][at] == pytest.approx(1 - 0.02 * 12 + 1e-4 * 12 * 14)
    for row in table.sample(8, random_state=0).itertuples():
        away = np.array(row.ours) / printed[row.filter] - 1
        assert row.off == pytest.approx(np.sqrt((away**2).mean()))
        assert row.worst == pytest.approx(np.abs(away).max())


def test_the_closest_conventions_come_first(printed):
    """A convention that prints what was printed is off by nothing."""
    rows = [
        {
            "filter": "LMS",
            "start": "1",
            "error": "before",
            "over": "last",
            "1/P₀": np.nan,
            "ours": list(ours),
            "off": off,
        }
        for ours, off in ((2 * printed["LMS"], 1.0), (printed["LMS"], 0.0), (printed["LMS"], 0.0))
    ]
    rows.append(rows[0] | {"filter": "RLS", "1/P₀": 0.01, "ours": list(printed["RLS"])})
    table = chapter.closest_conventions(pd.DataFrame(rows), printed)
    assert list(table[""]) == ["LMS, printed", "LMS", "LMS", "RLS, printed", "RLS"]
    assert list(table["off by"]) == ["", "0.0%", "100.0%", "", "100.0%"]
    assert table["P₀"].iloc[-1] == "100"


def test_single_sequences_scatter_as_the_mean_of_their_errors(printed):
    """The gap of an error that is printed as it is found is nothing; LMS and RLS go together on one sequence."""
    gaps, together = chapter.single_sequences(printed, 40)
    assert len(gaps) == 2 * 2 * 5
    assert gaps.sequence.between(0.01, 0.5).all()
    last, all_late = (gaps[gaps.span == span].sequence.mean() for span in ("last 100", "last 900"))
    assert last > 2 * all_late  # means over fewer errors scatter more
    assert (together.correlation > 0.9).all()
    own = {
        n: printed[n] / (1 + gaps[(gaps["filter"] == n) & (gaps.span == "last 900")].gap.to_numpy()) for n in printed
    }
    again, _ = chapter.single_sequences(own, 40)
    assert np.abs(again[again.span == "last 900"].gap).max() < 1e-12


def test_probability_of_a_scatter_is_chi_squareds():
    """Five gaps of one standard deviation each."""
    columns = {"filter": "LMS", "span": "last 900", "gap": [0.1, -0.1] * 2 + [0.1], "sequence": 0.1}
    found = chapter.probabilities_of_scatter(pd.DataFrame(columns))["LMS, last 900"]
    assert found["1"] == pytest.approx(chi2.sf(5, 5))
    assert found["10"] == pytest.approx(chi2.sf(50, 5))
    assert found.is_monotonic_decreasing


def test_scaling_the_answers_of_lms_helps():
    """It is never worse than LMS, nor better than the best rule that fades."""
    for gamma, d in itertools.product((0.8, 0.95), (3, 10)):
        task = chapter.endless_task(gamma, d)
        plain = lms_family.steady_error(task, np.linspace(1e-4, 2 / (d + 2), 5001)[:-1]).min()
        scaled = chapter.error_of_scaled_lms(gamma, d)
        assert lms_family.best_steady(task)[2] < scaled < plain


def test_at_home_a_method_is_as_good_as_tuned_there():
    """And elsewhere the ratio is that of its two errors."""
    found = chapter.tuned_elsewhere(10)
    assert (found[found["γ"] == 0.925].times == 1).all()
    np.testing.assert_allclose(found.times, found.here / found.own)
    away = found[found["γ"] == 0.8].set_index("method").times
    assert away["GLA"] > 1
    assert away["Kalman"] > 1


def test_costs_name_the_state_of_every_filter():
    """A filter with a matrix keeps d squared numbers, the others d."""
    state = chapter.costs().set_index("filter").state
    assert state["LMS"] == state["GLA"] == state["delta rule"] == "d"
    assert all("²" in state[name] for name in ("RLS", "Kalman", "faded ridge", "APA, K = 4"))
