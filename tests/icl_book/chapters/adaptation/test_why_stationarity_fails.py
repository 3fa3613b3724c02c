"""What the chapter *Why stationarity fails* computes, against definitions, closed forms and simulation."""

import chance
import numpy as np
import pytest

from icl.profile import make_generator
from icl.theory import one_layer
from icl_book.chapters.adaptation import why_stationarity_fails as chapter


def test_frozen_errors_are_the_closed_form():
    """(d + 1) / (n + d + 1) of the zero predictor's error, whatever the variance of the weights."""
    for n, d, sigma_w in ((1, 1, 1.0), (20, 10, 0.5), (300, 3, 2.0)):
        task = chapter.frozen_task(n, d=d, sigma_w=sigma_w)
        assert chapter.relative_error(task, 1.0) == pytest.approx((d + 1) / (n + d + 1), rel=1e-12)


def test_a_steady_task_keeps_its_variance():
    """The kernel's diagonal is constant, sigma_e^2 / (1 - gamma^2)."""
    kernel = chapter.steady_task(30, 0.8).weight_kernel()
    np.testing.assert_allclose(np.diag(kernel), 0.01 / (1 - 0.64), rtol=1e-12)


def test_a_mismatched_error_is_at_least_the_matched_one():
    """On its own task it is the trained layer's error; on another it is larger than that of the layer made for it."""
    home, away = chapter.paper_task(20), chapter.paper_task(20, gamma=0.6)
    assert chapter.mismatched_error(home, home, 0.9) == pytest.approx(chapter.relative_error(home, 0.9), rel=1e-9)
    assert chapter.mismatched_error(home, away, 0.9) > chapter.relative_error(away, 0.9)
    assert chapter.best_relative_error(away) <= chapter.relative_error(away, 0.9)


def test_the_floor_lies_below_and_reaches_zero_where_nothing_moves():
    """Ten exact labels tell ten weights; on the drift the floor is below the gated layer."""
    assert chapter.kalman_floor(chapter.frozen_task(12), 2)[10:].max() < 1e-9
    task = chapter.steady_task(60)
    assert chapter.kalman_floor(task, 20)[60] < chapter.best_relative_error(task)


def test_the_best_length_is_the_lowest_of_the_curve():
    errors = [chapter.relative_error(chapter.steady_task(n, 0.8), 1.0) for n in range(1, 40)]
    assert chapter.best_length(0.8) == 1 + int(np.argmin(errors))


@pytest.mark.parametrize(("n", "lam"), [(14, 1.0), (100, 0.9)])
def test_shares_are_shares(n, lam):
    """They sum to 1, and what is still true is what the layer explains, computed from its error."""
    task = chapter.steady_task(n)
    shares = chapter.memory_shares(task, lam)
    assert sum(shares.values()) == pytest.approx(1, rel=1e-12)
    assert shares["still true"] == pytest.approx(1 - chapter.relative_error(task, lam), rel=1e-9)


@pytest.mark.statistical(2)
def test_simulated_shares_are_the_formulas():
    """Two settings, 4,000 prompts of ten coordinates each: a tenth of the share would be seen."""
    for n, lam in ((5, 1.0), (20, 0.9)):
        task = chapter.steady_task(n)
        share, error = chapter.simulated_share(task, lam, 4_000, make_generator(f"shares {n}"))
        chance.assert_z((share - chapter.memory_shares(task, lam)["still true"]) / error)


def test_gains_follow_the_theorem():
    """Some forgetting helps wherever weights fade or wander and there are two examples; never for constant weights."""
    gains = chapter.training_gains().groupby("weights").gain
    assert (gains.min()[["fading weights, 0 < γ < 1", "random walk, γ = 1"]] > 0).all()
    assert gains.max()[["constant weights", "a single example", "unrelated weights, γ = 0"]].max() < 1e-12


def test_shifted_tests_are_of_the_layers_they_name(monkeypatch):
    """One test of 555 computed by hand; with nothing changed the gate of the training is the best of all."""
    asked = []
    with monkeypatch.context() as patched:
        patched.setattr(chapter, "shifted_test", lambda home, **test: asked.append((home, test)) or {"γ": home})
        tests = chapter.shifted_tests()
    assert len(tests) == len({repr(each) for each in zip(tests["what changes"], asked, strict=True)}) == 555
    assert [home for home, test in asked if not test] == [0.8, 0.85, 0.9, 0.95, 0.975]
    assert [home for home, _ in asked] == list(tests["γ"])
    assert [not test for _, test in asked] == list(tests["what changes"] == "nothing")
    for gamma in (0.8, 0.85, 0.9, 0.95, 0.975):
        trained = chapter.best_relative_error(chapter.paper_task(gamma=gamma))
        assert chapter.shifted_test(gamma)["GLA"] == pytest.approx(trained, rel=1e-9)
    one = chapter.shifted_test(0.9, gamma=0.5, n=20)
    home, task = chapter.paper_task(gamma=0.9), chapter.paper_task(20, gamma=0.5)
    expected = one_layer.testing_error(home, task, lam=1.0, test_lam=1.0) / one_layer.zero_predictor(task)
    assert one["linear attention"] == pytest.approx(float(expected), rel=1e-9)
    assert one["GLA, λ reset"] <= one["GLA"] * 1.001


def test_two_slopes_agree():
    for gamma, n in ((0.8, 2), (1.0, 30), (1.02, 100)):
        task = chapter.paper_task(n, gamma=gamma)
        ages, difference = chapter.slope_by_ages(task), chapter.slope_by_difference(task)
        assert ages == pytest.approx(difference, rel=1e-5, abs=1e-8)
        assert (ages > 0) == (gamma > 1)


def test_windows_are_the_layers_of_short_prompts():
    """A window of m examples is a prompt of m examples; many dimensions approach the limit in half-lives."""
    for m, gamma, d in ((1, 0.9, 2), (14, 0.95, 10)):
        task = chapter.paper_task(m, d=d, gamma=gamma, sigma_e=np.sqrt(1 - gamma**2))
        found = chapter.window_share(np.array(float(m)), gamma, d)
        assert found == pytest.approx(1 - chapter.relative_error(task, 1.0), rel=1e-12)
    lives, kept = chapter.window_of_many_dimensions()
    assert chapter.best_window(0.99, 100_000) == pytest.approx(lives * np.log(2) / -np.log(0.99), abs=1)
    assert np.log(2) * lives == pytest.approx(np.expm1(np.log(2) * lives) / 2, rel=1e-3)  # where the derivative is 0
    assert 0.8 < kept < 0.82


def test_sliders_name_the_best_lengths():
    made = chapter.unlearning_sliders(np.array([1, 2, 5]), 0.66)
    assert f"best with {chapter.best_length(0.95)} examples" in made.answer
    assert "0.66 of" in made.answer
    assert [control["name"] for control in made.controls] == ["gamma", "lam"]
