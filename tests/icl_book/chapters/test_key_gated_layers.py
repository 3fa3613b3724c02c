"""Trained gates against the bound: what the judge measures, and a training small enough for a test."""

from dataclasses import replace

import chance
import numpy as np
import pytest
import torch

from icl.experiments.training import Diverged
from icl.models.convolved import Convolved
from icl.profile import make_generator
from icl.theory import steady
from icl_book.chapters import key_gated_layers

LAW = steady.DriftLaw(4, 0.9, (1 - 0.9**2) ** 0.5)
SHORT = replace(key_gated_layers.GATED_RECIPE, steps=2, warm_up=0, batch=2)


def at_best(**changes):
    """Longhorn as one of the layers: gamma, and keys of length 1 written in full."""
    settings = {"width": 1, "hidden": 2, "lam": LAW.gamma, "beta": 1.0, "dtype": torch.float64}
    return Convolved(LAW.d, generator=make_generator("gating test"), **settings | changes)


def test_the_judge_finds_longhorn_on_the_bound():
    """The difference to itself is rounding of eps = 1e-9."""
    ratio, se = key_gated_layers.over_bound(at_best(), LAW, 50, generator=make_generator("judge"))
    assert ratio == pytest.approx(1, abs=1e-6)
    assert se < 1e-6


@pytest.mark.statistical
def test_the_judge_finds_a_known_error():
    """A constant strength beta on keys of length 1 and fade lam = gamma: p = q + gamma^2 (1 - beta (2 - beta) / d) p.

    1,000 prompts, standard error below 3%.
    """
    beta = 0.5
    ratio, se = key_gated_layers.over_bound(at_best(beta=beta), LAW, 1_000, generator=make_generator("judge"))
    p = LAW.q / (1 - LAW.gamma**2 * (1 - beta * (2 - beta) / LAW.d))
    expected = LAW.d * p / steady.best_unit_delta(LAW).error
    assert abs(expected - 1) > 0.1
    chance.assert_z((ratio - expected) / se, skewed=0.04)
    assert se < 0.03


def test_a_prompt_has_forgotten_its_start_where_it_is_judged():
    """The mean error of the layer on the bound, from k at the first position, is within 2e-4 of the bound there."""
    for law in (LAW, steady.DriftLaw(4, 0.98, (1 - 0.98**2) ** 0.5)):
        p = law.k0
        for _ in range(key_gated_layers.GATED_POSITIONS - key_gated_layers.GATED_LAST):
            p = law.q + law.gamma**2 * p * (1 - 1 / law.d)
        assert p == pytest.approx(steady.best_unit_delta(law).p, rel=2e-4)


def test_training_moves_towards_the_bound():
    """30 steps from a fade of 0.73 halve what is above the bound, judged on the same 100 prompts before and after."""
    recipe = replace(key_gated_layers.GATED_RECIPE, steps=30, batch=16, warm_up=0)
    model = key_gated_layers.gated_layer("delta rule", "one filter", 1, 4, generator=make_generator("start"))
    with torch.no_grad():
        model.log_odds.fill_(1.0)
    before = key_gated_layers.over_bound(model, LAW, 100, generator=make_generator("judge"))[0]
    key_gated_layers.train_gated(model, LAW, 0.1, generator=make_generator("prompts"), recipe=recipe)
    after = key_gated_layers.over_bound(model, LAW, 100, generator=make_generator("judge"))[0]
    assert after - 1 < 0.5 * (before - 1)


def test_a_row_can_be_had_again():
    rows = [
        key_gated_layers.gated_run(LAW, "gated delta", "own filter", 2, 1, 1e-2, 20, recipe=SHORT) for _ in range(2)
    ]
    assert rows[0] == rows[1]
    assert rows[0] != key_gated_layers.gated_run(LAW, "gated delta", "own filter", 2, 2, 1e-2, 20, recipe=SHORT)


def test_what_diverged_is_no_row():
    """A training whose last step leaves finite parameters, and a layer whose errors are not, is refused as its sister
    refuses one that diverges before; the judge refuses any layer whose errors are not finite. A step size of 10 closes
    gates, and closed gates are no divergence: errors of such a layer are large and finite.
    """
    recipe = replace(SHORT, batch=4)
    for layer in ("Mamba-2", "gated delta"):
        row = key_gated_layers.gated_run(LAW, layer, "own filter, labels", 2, 1, 10.0, 20, recipe=recipe)
        assert 1 < row["ratio"] < np.inf
        assert 0 < row["se"] < np.inf
    with pytest.raises(Diverged, match="on the judge's prompts"):
        key_gated_layers.gated_run(LAW, "Mamba-2", "one filter", 2, 1, 1e4, 20, recipe=replace(recipe, steps=1))
    model = key_gated_layers.gated_layer("delta rule", "one filter", 2, 4, generator=make_generator("start"))
    with pytest.raises(Diverged, match="training diverged at step 2"):
        key_gated_layers.train_gated(model, LAW, 1e30, generator=make_generator("prompts"), recipe=recipe)
    broken = at_best()
    with torch.no_grad():
        broken.log_odds.fill_(torch.nan)
    with pytest.raises(Diverged, match="on the judge's prompts"):
        key_gated_layers.over_bound(broken, LAW, 20, generator=make_generator("judge"))


def test_all_are_compared():
    found = key_gated_layers.compare_gated(LAW, seeds=2, prompts=20, widths=(1,), recipe=SHORT)
    assert len(found) == len(key_gated_layers.GATED_LAYERS) * len(key_gated_layers.GATED_FEEDS) * 2
    assert set(found.seed) == {1, 2}
    assert set(found.lr) <= set(key_gated_layers.GATED_RATES)
    assert np.isfinite(found[["ratio", "se"]]).all().all()
    # The step size is the better one of the trial's two.
    row = found.iloc[0]
    tried = [
        key_gated_layers.gated_run(LAW, row.layer, row.fed, 1, 0, lr, 2, recipe=SHORT)["ratio"]
        for lr in key_gated_layers.GATED_RATES
    ]
    assert row.lr == key_gated_layers.GATED_RATES[int(np.argmin(tried))]


def test_what_does_not_fit_is_refused():
    model = at_best()
    with pytest.raises(ValueError, match="layer must be one of Mamba-2, delta rule, gated delta"):
        key_gated_layers.gated_layer("S4", "one filter", 1, 4, generator=make_generator("x"))
    with pytest.raises(ValueError, match="fed must be one of"):
        key_gated_layers.gated_layer("delta rule", "keys", 1, 4, generator=make_generator("x"))
    with pytest.raises(ValueError, match="model must have d = 5, to match law, got 4"):
        key_gated_layers.train_gated(model, replace(LAW, d=5), 1e-2, generator=make_generator("x"))
    with pytest.raises(ValueError, match="law must have labels without noise"):
        key_gated_layers.over_bound(model, replace(LAW, sigma_y=0.1), 4, generator=make_generator("x"))
