"""What the chapter *Why selection matters* computes, against the library, closed forms and simulation."""

import math

import chance
import numpy as np
import pytest
import torch

from icl.models import s6
from icl.profile import make_generator
from icl.tasks import StationaryRegression
from icl.theory import s6 as theory
from icl_book.chapters.selection import why_selection as chapter

D, D_H, N = 2, 12, 6


@pytest.fixture(scope="module")
def known():
    return theory.Coefficients(D, N, theory.assumed_alpha(N))


@pytest.fixture(scope="module")
def trained(known):
    return chapter.ablation(known, D_H)


def library_weights(X, Y):
    return theory.S6Weights(X[:, :-1], np.column_stack([Y[:, :D], np.zeros(len(Y))]), X[:, -1], Y[:, -1])


def test_risk_and_slope_are_the_librarys(known):
    """Of every pair of a stack, biases and the label's column included."""
    risk, (X, Y) = chapter.Risk(known), chapter.random_weights(D, D_H, biases=0.7, starts=3)
    K = Y.mT @ X
    for at, slope, x, y in zip(risk(K), risk.slope(K), X, Y, strict=True):
        theirs = library_weights(x, y)
        assert at == pytest.approx(theory.population_loss(theirs, known), rel=1e-12)
        np.testing.assert_allclose(
            y @ slope,
            np.column_stack([theory.gradient(theirs, known).W_B, theory.gradient(theirs, known).b_B]),
            rtol=1e-9,
            atol=1e-9,
        )


def test_starts_have_the_sizes_asked_for():
    """A tenth of the entries' size, no biases, the same stream by name."""
    X, Y = chapter.random_weights(3, 400, scale=0.1, starts=2)
    assert (X.shape, Y.shape) == ((2, 400, 5), (2, 400, 4))
    assert X[..., :-1].std() == pytest.approx(0.1, rel=0.1)
    assert not X[..., -1].any()
    assert not Y[..., -1].any()
    again, other = (chapter.random_weights(3, 400, scale=0.1, starts=2, name=name)[0] for name in ("weights", "x"))
    np.testing.assert_array_equal(again, X)
    assert (other != X)[..., :-1].all()


def test_descent_is_the_librarys(known):
    """Weights and risks after twenty steps, for every start of a stack."""
    risk, (X, Y) = chapter.Risk(known), chapter.random_weights(D, D_H, biases=0.5, starts=2)
    looks, *ends = chapter.descend(X, Y, risk.slope, 0.01, 20, 5)
    for k in range(2):
        path = theory.descend(library_weights(X[k], Y[k]), known, 0.01, 20, every=5)
        np.testing.assert_allclose(risk(looks)[:, k], path.losses, rtol=1e-9)
        np.testing.assert_allclose(ends[0][k][:, :-1], path.weights.W_B, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(ends[1][k][:, -1], path.weights.b_C, rtol=1e-9, atol=1e-12)


def test_masked_weights_stay_and_clipped_steps_are_short(known):
    """What is not trained is what it was; no step is longer than the rate times the clip, whatever the start."""
    risk, (X, Y) = chapter.Risk(known), chapter.random_weights(D, D_H, starts=3)
    _, frozen, moved = chapter.descend(X, Y, risk.slope, 0.01, 3, trains=(0.0, 1.0))
    np.testing.assert_array_equal(frozen, X)
    assert (moved != Y)[..., :-1].all()
    _, X1, Y1 = chapter.descend(X, Y, risk.slope, 0.01, 1, clip=0.5)
    lengths = np.sqrt(((X1 - X) ** 2).sum((1, 2)) + ((Y1 - Y) ** 2).sum((1, 2)))
    np.testing.assert_allclose(lengths, 0.005, rtol=1e-9)


def test_ablation_ends_where_theory_says(known, trained):
    """d/2 without a half, L* with both of which one may be frozen, neither if both are."""
    least = theory.least_loss(D, N, known.alpha)
    for name in ("B static", "C static", "both static (S4)"):
        np.testing.assert_allclose(trained.final(name), D / 2, atol=1e-6)
    for name in ("whole layer", "biases held at 0", "B blind to labels", "B frozen as drawn", "C frozen as drawn"):
        np.testing.assert_allclose(trained.final(name), least, atol=5e-3)
    assert (trained.final("both frozen as drawn") > D).all()
    assert len(trained.steps) == len(trained.risks["whole layer"])


def test_static_halves_are_the_librarys(known):
    """The variant with both halves static predicts as the library's layer of S4."""
    (keep_B, keep_C), _ = chapter.variants(D)["both static (S4)"]
    X, Y = (stack[0] for stack in chapter.random_weights(D, D_H, biases=1.0, starts=1))
    prompt = StationaryRegression(D, N).sample(20, generator=make_generator("few"), dtype=torch.float64)
    parts = s6.Static(D_H), s6.Static(D_H)
    with torch.no_grad():
        for part, bias in zip(parts, (X[:, -1], Y[:, -1]), strict=True):
            part.b.copy_(torch.from_numpy(bias))
    s4 = s6.S6(*parts, s6.FixedStep(math.log(2) / N), -torch.ones(1, dtype=torch.float64))
    ours = chapter.layer(X * keep_B, Y * keep_C, N).predictions(prompt)
    torch.testing.assert_close(ours, s4.predictions(prompt), rtol=1e-9, atol=1e-9)


def test_a_linear_fit_of_the_right_numbers_is_found():
    """Where the label is one of the numbers of the prompt, least squares finds it; entries leave it out."""
    prompt = StationaryRegression(1, 2).sample(50, generator=make_generator("entries"), dtype=torch.float64)
    assert chapter.entries(prompt).shape == (50, 6)  # two examples, the query's input, a 1
    assert (chapter.entries(prompt)[:, -1] == 1).all()
    same = type(prompt)(prompt.x, torch.cat([prompt.y[:, :-1], prompt.x[:, -1]], dim=1), prompt.w)
    assert chapter.linear_fit_risk(same, same, 50)[0] == pytest.approx(0, abs=1e-9)


@pytest.mark.statistical(1)
def test_a_linear_fit_does_no_better_than_the_zero_predictor():
    """20,000 prompts each: a risk a twentieth off d/2 would be seen; the fit costs 13 coefficients of 20,000."""
    fitted, fresh = (
        StationaryRegression(D, 4).sample(20_000, generator=make_generator(f"fit {k}"), dtype=torch.float64)
        for k in "ab"
    )
    risk, se = chapter.linear_fit_risk(fitted, fresh, 20_000)
    chance.assert_z((risk - D / 2 * (1 + 13 / 20_000)) / se)


@pytest.mark.statistical(9)
def test_the_frozen_layer_has_the_exact_risks(known, trained):
    """Nine other tasks, 8,000 prompts each (2,000 of the longest): a tenth of a risk would be seen in each."""
    moved = chapter.on_other_tasks(chapter.layer(*(s[0] for s in trained.weights["whole layer"]), N), known, 8_000)
    for z in (moved["measured"] - moved["exact"]) / moved["s.e."]:
        chance.assert_z(z)
    assert (moved["exact"] >= moved["trained for it"] * (1 - 1e-12)).all()


def test_symptoms_of_the_healthy_and_of_the_ill(known, trained):
    """Healthy layers are aligned and near L*; layers without selection are not aligned, and no better than 0."""
    ill = chapter.symptoms(known, D_H, trained)
    healthy = ill.loc["L*, K = (βI, 0)"]
    for name in ("whole layer", "B frozen as drawn", "C frozen as drawn"):
        np.testing.assert_allclose(ill.loc[name], healthy, atol=0.02)
    for name in ("selection absent: B static", "healthy layer, labels quadratic in x"):
        assert abs(ill.loc[name, "cosine"]) < 0.1
        assert ill.loc[name, "risk"] > D / 2 - 1e-6


def test_runs_are_counted_as_they_end(known):
    """A large start at a large rate diverges, a small one at a small rate is not there yet; all five are counted."""
    table = chapter.starts_and_rates(known, d_h=6, steps=300)
    assert table.loc["σ = 5", "c = 5"] == "5 diverged"
    assert table.loc["σ = 0.001", "c = 0.05"] == "5 above L*"
    assert "diverged" not in table.loc["σ = 5, clipped", "c = 5"]
    counts = table.map(lambda cell: sum(int(part.split()[0]) for part in cell.split(", ")))
    assert (counts == 5).all(axis=None)
    assert chapter._outcome(np.array([1, 1.0005, 2, np.inf, np.nan]), 1.0) == "2 arrived, 2 diverged, 1 above L*"


def test_a_lower_rate_cures_noise_and_divergence_alone():
    """In the chapter's own setting, where a rate of c = 10 diverges."""
    known = theory.Coefficients(4, 20, theory.assumed_alpha(20))
    rests, least = chapter.plateaus(known), theory.least_loss(4, 20, known.alpha)
    excess = (rests["rate η"] - least).where(np.isfinite(rests["rate η"]), np.inf)
    cured = rests["η/5, 5 × the steps"] - least < 0.5 * excess
    assert list(rests.index[cured]) == ["noise: 8 prompts a step", "diverged: c = 10"]
    assert rests.loc["too few states: d_h = 2", "rate η"] > theory.least_loss(4, 20, known.alpha, 2) - 1e-9


def test_more_sequences_generalise_better(known):
    """The gap to the sequences of the training closes as they grow, and no layer is below L*."""
    sizes = chapter.states_and_sequences(known, steps=400)
    table = sizes.pivot(index="d_h", columns="sequences", values="gap")
    assert (table[3_000] < table[50]).all()
    assert (sizes["low"] >= theory.least_loss(D, N, known.alpha) - 1e-12).all()
    assert (sizes["low"] <= sizes["risk"]).all()
    assert (sizes["risk"] <= sizes["high"]).all()


def test_switches_say_what_the_layers_end_at(known, trained):
    made = chapter.switches(known, D_H, trained, until=3_000)
    end = {name: risks[60, 0] for name, risks in trained.risks.items()}
    assert f"at {end['B frozen as drawn']:.3f} if B stays" in made.answer
    assert f"at {end['C frozen as drawn']:.3f} if C does" in made.answer
    assert [c["name"] for c in made.controls] == ["selectB", "selectC", "trainB", "trainC", "N", "start"]
    assert [c["value"] for c in made.controls] == [True, True, False, True, N, 1]
