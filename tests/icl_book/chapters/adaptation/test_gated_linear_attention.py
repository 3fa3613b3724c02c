"""What the chapter *Gated linear attention* computes, at small sizes, against definitions and closed forms."""

import chance
import numpy as np
import pytest
import torch

from icl.experiments.evaluation import squared_error
from icl.models.one_layer import OneLayerGLA, features, predict_from_features
from icl.profile import make_generator
from icl.theory import one_layer
from icl_book.chapters.adaptation import gated_linear_attention as chapter
from icl_book.chapters.adaptation.why_stationarity_fails import paper_task, steady_task


def test_best_weights_are_a_gates_after_many_examples():
    """In the steady state every weight is the pole times the next newer one, except near the start of the prompt."""
    weights = chapter.best_weights(steady_task(200, 0.9))
    pole = one_layer.kalman_pole(0.9, crosstalk=11)
    assert weights[0] == 1
    np.testing.assert_allclose(weights[:40], pole ** np.arange(40), rtol=1e-6)


def test_best_weights_solve_the_linear_system_of_the_page():
    """(K + (d + 1) diag K) a is proportional to the covariances with the query, oldest first."""
    task = paper_task(12, d=3, gamma=0.7)
    k = task.weight_kernel()
    past = k[:-1, :-1]
    a = chapter.best_weights(task)[::-1]
    ratio = (past @ a + 4 * np.diag(past) * a) / k[:-1, -1]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-10)


def test_the_trained_layer_computes_15():
    """The literal layer at its optimum is the faded sum of hints, times A, times the query."""
    task = paper_task(20, d=3)
    prompts = task.sample(50, generator=make_generator("some prompts"), dtype=torch.float64)
    expected = predict_from_features(features(prompts, 0.8), one_layer.optimum(task, lam=0.8).A, prompts.x[:, -1])
    torch.testing.assert_close(chapter.trained_layer(task, 0.8)(prompts), expected, rtol=1e-10, atol=1e-12)


def test_unread_entries_are_those_that_9_leaves_out():
    """Zeros for a layer as it is; one gradient for every entry of d rows of W_V and a column of W_KQ."""
    prompts = paper_task(8, d=3).sample(5, generator=make_generator("some prompts"), dtype=torch.float64)
    layer = OneLayerGLA(3, lam=0.9, scale=0.5, generator=make_generator("a layer"), dtype=torch.float64)
    found = chapter.unread_entries(layer, prompts)
    assert found.shape == (3 * 4 + 4 + 5,)
    assert (found == 0).all()
    assert layer.W_V.grad is None


def test_entries_that_are_read_would_be_seen(monkeypatch):
    """With the query's label in its token the last column of W_KQ matters: a gradient and a change."""
    prompts = paper_task(8, d=3).sample(5, generator=make_generator("some prompts"), dtype=torch.float64)
    layer = OneLayerGLA(3, lam=0.9, scale=0.5, generator=make_generator("a layer"), dtype=torch.float64)
    labelled = torch.cat([prompts.x, prompts.y[..., None]], dim=-1)
    monkeypatch.setattr(type(prompts), "tokens", lambda self: labelled)
    found = chapter.unread_entries(layer, prompts)
    assert (found[:12] == 0).all()
    assert (found[12:] != 0).all()


def test_simulated_errors_are_relative_to_the_zero_predictors():
    """The library's squared error on the same prompts, over d sigma_e^2 / (1 - gamma^2)."""
    task = steady_task(3)
    expected = squared_error(chapter.trained_layer(task, 0.8), task, 100, generator=make_generator("errors of 3"))
    found = chapter.simulated_errors([3], 0.8, 100, "errors of")
    np.testing.assert_allclose(np.ravel(found), np.array(expected) / (10 * 0.01 / (1 - 0.95**2)), rtol=1e-10)


@pytest.mark.statistical(4)
def test_simulated_errors_are_the_exact_ones():
    """Two lengths, with a gate and without: 4,000 prompts would show an error that is off by a tenth."""
    for lam in (0.8, 1.0):
        mean, error = chapter.simulated_errors([3, 12], lam, 4_000, "errors of")
        assert error.max() < 0.05
        for z in (mean - chapter.errors_by_length([3, 12], lam)) / error:
            chance.assert_z(z)


def test_sliders_say_the_best_gates():
    """The answer names the library's best gate and the error there, relative to the zero predictor's."""
    made = chapter.gate_sliders(0.8, 40)
    task = paper_task()
    star = one_layer.optimal_forgetting(task)
    share = one_layer.training_error(task, lam=star) / one_layer.zero_predictor(task)
    assert f"near λ = {star:.3f}. There the error is {share:.1%} of" in made.answer
    assert f"γ = 0.8: λ = {one_layer.optimal_forgetting(paper_task(gamma=0.8)):.3f}" in made.answer
    assert [control["name"] for control in made.controls] == ["lam", "gamma", "d"]
    assert made.constants == {"n": 100, "sigma_e": 0.1, "oldest": 40}
