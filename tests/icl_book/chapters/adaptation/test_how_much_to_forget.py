"""Grids, simulations and printed formulas of *How much to forget*, at small sizes, against closed forms."""

import chance
import numpy as np
import pytest

from icl.profile import make_generator
from icl.tasks import DriftingRegression
from icl.theory import moments, one_layer
from icl_book.chapters.adaptation import how_much_to_forget as chapter
from icl_book.chapters.adaptation.why_stationarity_fails import paper_task
from icl_book.records import recorded


def test_best_factor_is_the_pole_for_long_prompts():
    """Its closed form is exact as n grows; here n = 400."""
    for gamma, d in ((0.8, 2), (0.95, 10)):
        pole = one_layer.kalman_pole(gamma, crosstalk=d + 1)
        assert chapter.best_factor(gamma=gamma, d=d, n=400) == pytest.approx(pole, abs=1e-5)


def test_errors_at_gates_are_theorem_2_between_the_limits():
    """d (D4 - D1^2 / V) at each of the three forgetting factors, above Kalman and below the zero predictor."""
    table = chapter.errors_at_gates()
    for row in table.to_dict("records"):
        D = moments.task_moments(paper_task(gamma=row["γ"]), np.array([row["λ*"], row["γ"], 1.0]))
        expected = 10 * (D.D4 - D.D1**2 / (12 * D.D2 + D.D3))
        np.testing.assert_allclose([row["at λ*"], row["at λ = γ"], row["at λ = 1"]], expected, rtol=1e-10)
        assert row["Kalman"] < row["at λ*"] < row["at λ = γ"] < row["at λ = 1"] < row["zero predictor"]
    assert chapter.cost_of_no_gate(0.95) == pytest.approx(
        (table["at λ = 1"] / table["at λ*"] - 1)[table["γ"] == 0.95].item(), rel=1e-9
    )


def test_a_window_of_the_best_length_costs_nothing():
    """And the further off, the more."""
    assert chapter.cost_of_window(1.0) == 0
    assert 0 < chapter.cost_of_window(1.2) < chapter.cost_of_window(2.0)


def test_best_factors_are_one_where_nothing_fades():
    """Constant weights; fading ones have it below 1."""
    found = chapter.best_factors()
    assert len(found["fading"]) == 375
    assert (found["fading"] < 1).all()
    assert (found["constant"] == 1).all()


def test_sums_never_fall():
    """D1, D2 and D3, on all 48 tasks."""
    found = chapter.growth_of_sums()
    assert len(found) == 3 * 4 * 3 * 4
    assert (found >= 0).all()


def test_xi_peaks_at_gamma_in_every_setting():
    """As Cauchy and Schwarz say."""
    found = chapter.xi_peaks_at_gamma()
    assert len(found) == 60
    assert all(found)


def test_a_prompt_of_two_examples_can_be_convex_and_one_of_a_hundred_is_not():
    """The table says what the function says."""
    table = chapter.convex_settings()
    assert not chapter.is_convex(paper_task())
    assert table[table.n == 2].convex.any()
    for row in table.sample(5, random_state=0).itertuples():
        assert chapter.is_convex(paper_task(row.n, d=row.d, gamma=row.gamma, sigma_e=row.sigma_e)) == row.convex


def test_a_valley_is_told_from_what_is_none():
    """A hill, two slopes and waves."""
    x = np.linspace(0, 1, 50)
    assert chapter.is_valley((x - 0.3) ** 2)
    for other in (-((x - 0.3) ** 2), x, -x, np.cos(20 * x)):
        assert not chapter.is_valley(other)
    assert len(chapter.training_and_test_errors()) == 10


def test_errors_against_gamma_end_at_the_innovations_alone():
    """At gamma = 0 the error is that of the zero predictor, d sigma_e^2."""
    errors, zeros = chapter.errors_against_gamma((0.7, 1.0))
    assert errors.shape == (2, 101)
    # Without memory of the weights nothing can be predicted: both errors are d sigma_e^2.
    np.testing.assert_allclose(errors[:, 0], 0.1, rtol=1e-12)
    assert zeros[0] == pytest.approx(0.1)


@pytest.mark.statistical
@pytest.mark.parametrize("tasks", [chapter.unequal_tasks, chapter.tasks_out_of_range])
def test_prompts_agree_with_theorem_2(tasks):
    """Means over 20,000 prompts a task; detects a twentieth of an error."""
    table, seconds = chapter.against_prompts("test", tasks(), 20_000)
    assert list(table.setting) == list(tasks())
    chance.assert_z(table.z.to_numpy())
    np.testing.assert_allclose(table.z, (table.simulated - table["(16)"]) / table["s.e."])
    assert seconds > 0


@pytest.mark.statistical
def test_second_moments_are_the_effective_covariance():
    """Means over 100,000 prompts; detects a tenth of an entry."""
    task = DriftingRegression(d=4, n=30, gamma=0.9, sigma_w=1.0, sigma_e=0.1, Lambda=np.diag([4.0, 1.0, 0.5, 0.1]))
    mean, se = chapter.second_moments(task, 0.85, 100_000, make_generator("test of second moments"))
    expected = task.Lambda @ one_layer.lambda_tilde(task, lam=0.85)
    chance.assert_z((mean - expected) / se)
    assert np.abs(chapter.slopes_at_optimum(task, 0.85)).max() < 1e-9


@pytest.mark.parametrize(
    ("name", "case", "right"),
    [
        *(("D1", case, True) for case in ("λ = 1", "λ = γ", "λ ≠ γ")),
        *(("D2", case, case != "λ = γ") for case in ("λ = 1", "λ = γ", "λ ≠ γ")),
        *(("D3", case, case != "λ ≠ γ") for case in ("λ = 1", "λ = γ", "λ ≠ γ")),
    ],
)
def test_printed_sums_agree_once_corrected(name, case, right):
    """With the errata corrected all do; as printed only those without."""
    corrected, exact = chapter.printed_sums(name, case)
    np.testing.assert_allclose(corrected, exact, rtol=1e-8)
    if name != "D1":  # which has no misprint to leave
        printed, _ = chapter.printed_sums(name, case, corrected=())
        assert np.allclose(printed, exact, rtol=1e-8) == right


def test_each_misprint_matters():
    """One left uncorrected spoils the sum; the isotropic form is wrong as printed; no layer beats the best."""
    assert set(chapter.deviation_with_one_misprint()) == {2, 3, 4, 5}
    assert min(chapter.deviation_with_one_misprint().values()) > 1e-4
    forms = chapter.isotropic_forms()
    np.testing.assert_allclose(forms.corrected, forms.exact, rtol=1e-10)
    assert (forms.printed > 1.01 * forms.exact).all()
    cost = chapter.cost_of_misprints()
    assert len(cost) == 40
    assert (cost.excess > -1e-12).all()  # no layer is better than the best
    assert cost.excess.is_monotonic_decreasing


@pytest.mark.one_draw("4,000 prompts")
def test_least_squares_layers_are_near_the_best_layer():
    """An estimated matrix has a larger error than the best one, by about d^2 / prompts of it."""
    task = paper_task(20, d=3)
    errors = chapter.least_squares_layers(task, (0.8, 0.9), 4_000)
    excess = errors / one_layer.training_error(task, lam=np.array([0.8, 0.9])) - 1
    assert (excess > 0).all()
    assert excess.max() < 0.05


def test_trained_layers_are_at_best_as_good_as_theorem_2():
    """Nor are fitted ones better."""
    table = chapter.trained_layers(recorded("gla-adamw").table)
    assert len(table) == 90
    assert (table.error > table.exact * (1 - 1e-9)).all()
    assert sorted(table[table.best]["γ"].unique()) == list(chapter.FIVE_DRIFTS)
    three = chapter.three_ways(table, 500)
    assert len(three) == 30
    np.testing.assert_array_equal(
        three.groupby("γ")["AdamW, median"].min() > three.groupby("γ")["closed form"].min(), True
    )
    assert (three["least squares"] > three["closed form"]).all()


def test_long_prompts_lie_above_the_floor():
    """Kalman below the gated layer, below linear attention."""
    table, level = chapter.long_prompts(20)
    assert (table["Kalman"] < table["GLA"]).all()
    assert (table["GLA"] <= table["linear attention"]).all()
    assert level == pytest.approx(table["Kalman"].iloc[-1], rel=0.3)


def test_weights_of_any_shape_are_at_least_as_good_as_exponential_ones():
    """And Kalman is better than both."""
    table = chapter.best_weights()
    assert (table["any shape"] <= table["exponential"] * (1 + 1e-12)).all()
    assert (table["Kalman"] < table["any shape"]).all()


@pytest.mark.one_draw("40 sequences")
def test_the_sweep_of_lms_is_its_closed_form():
    """Means over 40 sequences of a hundred predictions, within eight of their estimated standard errors."""
    table = chapter.sweep_filters(40, gammas=(0.95,), n=200)
    assert set(table["filter"]) == {"LMS", "NLMS", "APA", "RLS"}
    lms = table[(table["filter"] == "LMS") & (table.window < 100)]
    exact = [chapter.lms_error(0.95, step) for step in lms.setting]
    assert ((lms.error - exact) / lms["s.e."]).abs().max() < 8
    for _, of in table.groupby("filter"):
        assert of.window.is_monotonic_increasing
    tuned = chapter.tune_filters(table)
    np.testing.assert_array_equal(tuned.error, table.groupby("filter").error.min())
    assert (tuned.place == "inside").all()
    shortest = table.groupby("filter", as_index=False).first()
    assert (chapter.tune_filters(shortest).place == "shortest").all()


def test_sliders_start_at_the_papers_task():
    """So the figure starts as it was drawn."""
    start = {control["name"]: control["value"] for control in chapter.forgetting_sliders().controls}
    assert start == {"gamma": 0.95, "d": 10, "n": 100, "sigma_e": 0.1}
