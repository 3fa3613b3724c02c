"""What the chapter *What gating can buy* computes, at small sizes, against closed forms and exact tables."""

import chance
import numpy as np
import pandas as pd
import pytest

from icl.theory import steady as fw
from icl.theory.gates import key_gates as kg
from icl_book.chapters import key_gated_layers
from icl_book.chapters.synthesis import what_gating_can_buy as chapter
from icl_book.records import recorded


@pytest.fixture(scope="module")
def found():
    return chapter.Ladders.of(recorded("gates-earlier-keys").table)


@pytest.mark.one_draw("4,000 entries")
def test_keys_are_standard_normal_and_have_a_stream_by_name():
    """The same name and dimension give the same keys; 4,000 entries of mean 0 and variance 1."""
    x = chapter.draw_keys(4, 10, 25, "test")
    assert x.shape == (10, 100, 4)
    np.testing.assert_array_equal(chapter.draw_keys(4, 10, 25, "test"), x)
    assert (chapter.draw_keys(4, 10, 25, "other") != x).all()
    assert abs(x.mean()) < 0.1
    assert x.var() == pytest.approx(1, abs=0.15)


@pytest.mark.statistical(2)
def test_the_ladder_has_the_exact_error_at_its_ends():
    """d^2 q without an earlier key; the exact form with one, which the restarted layer attains from the variance across
    that key, less q; the Kalman filter with all. 100 sequences in five dimensions: an error 3% off would be seen.
    """
    exact = kg.one_earlier_key(5, 1.0, 1.0)
    across = (exact - 1) / 4
    table = chapter.ladder(5, [0, 1, 60], 100, priors={0: 1.0, 1: (across - 1) / 5, 60: 0.7}).set_index("keys")
    chance.assert_z((table.error[0] - 1) / table.se[0], of=100, skewed=0.03)
    chance.assert_z((table.error[1] - exact / 25) / table.se[1], of=100, skewed=0.03)
    assert table.se.max() < 0.01
    assert table.error[60] == pytest.approx(table.error[-1], rel=1e-7)
    assert table.error[0] > table.error[1] > table.error[60]


def test_the_prior_is_the_best_of_three():
    """On keys of its own: the same whatever sequences are judged, and no other has a lower error there."""
    few = chapter.draw_keys(4, 24, 9, "prior of a window")
    walk = kg.per_coordinate(chapter.WALK, q=1.0, d=4)
    error = {s: kg.windowed_errors(few, walk, 2, s * 4 * np.eye(4))[:, 24:].mean() for s in (0.6, 0.75, 0.9)}
    table = chapter.ladder(4, [2], 8)
    assert table.prior[0] == min(error, key=error.get)


def test_the_record_is_read_in_units_of_the_bound(found):
    """Exact for no key and for one, falling to the Kalman filter, linear in log (1 + keys) in between."""
    for d in (8, 16, 32):
        assert found.at(0, d) == 1
        assert found.at(1, d) == pytest.approx(kg.one_earlier_key(d, 1.0, 1.0) / d**2, rel=1e-12)
        assert found.at(6, d) == found.table.error[d, 6]
        assert (np.diff(found.errors[d]) < 0).all()
        assert found.gained(0, d) == 0
        assert found.gained(32, d) == pytest.approx(1, abs=0.02)
    between = (np.log2(6) - np.log2(5)) / (np.log2(7) - np.log2(5))
    expected = (1 - between) * found.at(4, 16) + between * found.at(6, 16)
    assert found.at(5, 16) == pytest.approx(expected, rel=1e-12)
    assert found.largest_se() == found.table.drop(index=[0, -1], level="keys").se.max()


def test_an_error_that_is_linear_in_1_over_d_is_extrapolated_exactly():
    """A made-up table: error = f(keys / d) + 3 / d."""
    rows = [
        [d, K, 0.7, np.exp(-K / d) + 3 / d, 0.01] for d in (8, 16, 32) for K in sorted({-1, *chapter.WINDOWS, 2 * d})
    ]
    made = chapter.Ladders.of(pd.DataFrame(rows, columns=["d", "keys", "prior", "error", "se"]))
    share, limit, se = made.extrapolated()
    np.testing.assert_allclose(limit[1:], np.exp(-share[1:]), rtol=1e-12)
    assert se == pytest.approx(0.01 * 5**0.5)
    for d in (8, 16, 32):
        share, errors = made.by_share(d)
        assert share[-1] == 2
        np.testing.assert_allclose(errors[1:], np.exp(-share[1:]) + 3 / d, rtol=1e-12)
        assert errors[0] == 1


def test_sliders_start_where_the_figure_is_drawn_and_say_what_is_recorded(found):
    made = chapter.earlier_keys_sliders(found)
    assert {c["name"]: (c["min"], c["max"], c["value"]) for c in made.controls} == {
        "keys": (0, 32, 4),
        "log_d": (3, 5, 4),
    }
    assert f"4 keys leave {found.at(4, 8):.2f}" in made.answer
    half = int(made.answer.split()[0])
    off = [abs(found.gained(K, 16) - 0.5) for K in range(33)]
    assert off[half] == min(off)
    assert made.constants["errors"]["16"] == found.errors[16]


@pytest.mark.statistical
def test_longhorn_is_on_the_bound_and_the_others_are_above():
    """800 prompts; an error of Longhorn's a sixth off the bound would be seen, the others are further from it."""
    layers = chapter.layers_over_bound(fw.DriftLaw(4, 0.98, 0.1), 800)
    assert list(layers) == ["RetNet", "Mamba-2", "GLA", "DeltaNet", "Longhorn"]
    times, se = layers["Longhorn"]
    chance.assert_z((times - 1) / se, of=800, skewed=0.04)
    assert se < 0.02
    assert layers["RetNet"][0] > layers["Mamba-2"][0] > layers["DeltaNet"][0] > times


def test_least_errors_are_ordered():
    """GLA, gates that do not see the key, gates of the current key, one earlier key, Kalman; and the bound is d p."""
    levels = chapter.least_errors(10, [0.1, 1.0, 4.0])
    stacked = np.array(list(levels.values()))
    assert (np.diff(stacked, axis=0) < 0).all()
    np.testing.assert_array_equal(levels["Kalman"], 1.0)
    gamma2, q = 1 - 0.1 / 10, 0.1 / 10
    ratio = levels["gates of the current key"][0] / levels["one earlier key"][0]
    expected = 10 * q / (1 - gamma2 * 0.9) / kg.one_earlier_key(10, gamma2**0.5, q)
    assert ratio == pytest.approx(expected, rel=1e-9)


def test_searches_cover_the_cases_and_come_down():
    """24 settings, noise and weights of second order among them; never below the bound, and lower with more looks."""
    assert len(chapter.SEARCHES) == 24
    assert {noise for *_, noise in chapter.SEARCHES.values()} == {0.0, 0.3}
    for name in ("d = 2, N = 2, white keys", "d = 2, N = 4, swinging weights, noise"):
        start, few, many = chapter.search_gates(name, [3, 30])
        assert start > few > many > 1 - 1e-9


def test_six_tasks_are_in_units_of_the_zero_predictor():
    """Variance of the state in closed form for first order; by noise of variance 1 over signal of variance 1."""
    tasks = chapter.six_tasks()
    assert len(tasks) == 6
    for name in ("γ = 0.95", "γ = 0.99"):
        gamma, q = tasks[name].F[0, 0], tasks[name].Q[0, 0]
        assert 10 * q / (1 - gamma**2) == pytest.approx(1, rel=1e-9)
    assert tasks["noisy labels"].sigma_y == 1
    assert tasks["uneven keys"].Lambda[9, 9] == pytest.approx(4)


@pytest.mark.one_draw("two sequences a task")
def test_more_sight_is_worth_something_on_every_task():
    """Without sight of the key above the bound, Kalman below it."""
    table = chapter.worth_of_sight(2)
    assert list(table.index) == list(chapter.six_tasks())
    assert (table["gates that do not see the key"] > table["gates of the current key"]).all()
    assert (table["gates of the current key"] > table["Kalman"]).all()
    assert (table < 1).all(axis=None)


@pytest.mark.one_draw("2,000 pairs of keys")
def test_correlated_keys_have_one_length_and_their_correlation():
    """Cosine of neighbours: rho, less what the lengths of a Gaussian process in 50 dimensions take."""
    x = chapter.correlated_keys(50, 20, 2, 0.9)
    np.testing.assert_allclose((x**2).sum(-1), 50, rtol=1e-12)
    cosine = (x[:, 1:] * x[:, :-1]).sum(-1) / 50
    assert cosine.mean() == pytest.approx(0.9, abs=0.02)
    assert cosine[:, 0].mean() == pytest.approx(0.9, abs=0.04)  # from the first pair on


@pytest.mark.one_draw("four sequences")
def test_errors_at_the_next_key_are_those_of_single_steps():
    """With the whole past on the list the restarted layer has Kalman's recursion; the current key alone is Longhorn,
    whose error after two keys is found by hand.
    """
    x = chapter.correlated_keys(3, 2, 2, 0.5)
    u, v = (x[:, i] / np.linalg.norm(x[:, i], axis=1)[:, None] for i in (0, 1))
    P = 3 * np.eye(3)
    expected = []
    for a, b in zip(u, v, strict=True):
        after = (np.eye(3) - np.outer(a, a)) @ P @ (np.eye(3) - np.outer(a, a)) + np.eye(3)
        expected.append((3 * b @ after @ b) / 9)
    for window in (0, 1, None):
        found = chapter.errors_at_next_key(x[:, :3], window)  # the mean over the positions 1 and 2
        two = chapter.errors_at_next_key(x[:, :2], window)  # position 1 alone
        np.testing.assert_allclose(two, expected, rtol=1e-12)
        assert (found > 0).all()
    x = chapter.correlated_keys(3, 4, 20, 0.0)
    assert chapter.errors_at_next_key(x, None).mean() < chapter.errors_at_next_key(x, 1).mean()
    assert chapter.errors_at_next_key(x, 1).mean() < chapter.errors_at_next_key(x, 0).mean()


@pytest.mark.one_draw("six sequences")
def test_correlated_keys_are_worth_more():
    """Small sizes: means and standard errors of what the function of one list gives."""
    means, ses = chapter.worth_of_correlated_keys([(8, 6, 10)], (0.0, 0.9))
    assert means.shape == ses.shape == (2, 4)
    errors = chapter.errors_at_next_key(chapter.correlated_keys(8, 6, 10, 0.9), 1)
    assert means["1 earlier"][8, 0.9] == pytest.approx(errors.mean(), rel=1e-12)
    assert ses["1 earlier"][8, 0.9] == pytest.approx(errors.std(ddof=1) / 6**0.5, rel=1e-12)
    saved = 1 - means["1 earlier"] / means["current key"]
    assert saved[8, 0.9] > 2 * saved[8, 0.0]


def test_starts_are_pooled_with_their_spread():
    """Three starts of ratios 1, 2, 3, all judged on the same prompts."""
    rows = [["delta rule", "one filter", 1, ratio, 0.1] for ratio in (1.0, 2.0, 3.0)]
    pooled = chapter.pool_starts(pd.DataFrame(rows, columns=["layer", "fed", "width", "ratio", "se"]))
    (row,) = pooled.to_dict("records")
    assert (row["ratio"], row["starts"]) == (2, 3)
    assert row["se"] == pytest.approx(np.hypot(1 / 3**0.5, 0.1))


@pytest.mark.one_draw("100 sequences")
def test_what_theory_allows_falls_with_the_width():
    """The bound is 1 in its own units; exact for one key; Kalman below all; and rows of the figure hold them."""
    theory, law = chapter.allowed(100), chapter.gentle_drift()
    assert theory.by_width[1] == pytest.approx(1, rel=1e-9)
    expected = kg.one_earlier_key(4, 0.98, law.q) * (1 - 0.98**2 * 0.75) / (4 * law.q)
    assert theory.by_width[2] == pytest.approx(expected, rel=1e-9)
    assert theory.by_width[1] > theory.by_width[2] > theory.by_width[4] > theory.kalman > 0
    assert 0 < theory.se < 0.01
    pooled = chapter.pool_starts(recorded("gating-trained").table.query("seed > 0"))
    rows = chapter.by_width(pooled, theory)
    assert list(rows)[:2] == ["reached by theory", "DeltaNet, fixed filter"]
    assert len(rows) == 7
    assert rows["reached by theory"]["width 2"] == theory.by_width[2]
    assert rows["gated DeltaNet, computed filter"]["width 4"][0] == pooled.ratio["gated delta", "own filter", 4]
    assert (pooled.starts == chapter.STARTS).all()


@pytest.mark.one_draw("160 steps on two prompts")
def test_a_short_training_is_a_row_of_the_record(monkeypatch):
    """Two steps in place of 160: the layer, its width and its seed are those that the record names."""
    recipe = key_gated_layers.GATED_RECIPE
    short = type(recipe)(160, 2, recipe.optimiser, 0, recipe.anneal_to, recipe.clip)
    monkeypatch.setattr(key_gated_layers, "GATED_RECIPE", short)
    (row,) = chapter.short_training(20).to_dict("records")
    key = ["layer", "fed", "width", "seed"]
    table = recorded("gating-trained").table
    assert tuple(row[k] for k in key) in set(table[key].itertuples(index=False, name=None))
    assert row["ratio"] > 0.5
