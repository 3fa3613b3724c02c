"""Filters that choose among layers by their own errors: each against a loop over examples, and what it settles at."""

import chance
import numpy as np
import pytest
import torch

from icl import filters, self_tuning
from icl.filters import run_filter
from icl.profile import make_generator
from icl.tasks import UnknownDrift
from icl.theory.floors.unknown_drift import bank_predictions
from icl.theory.steady.fast_weights import DriftLaw, best_unit_delta

D, V = 5, 0.3  # noise of a variance that is not its root
SPEEDS = np.array([0.05, 0.4, 3.0])
TASK = UnknownDrift(D, 60, np.sqrt(1 - SPEEDS / D), np.sqrt(SPEEDS / D), np.sqrt(V * D))
NOISE = float(np.sqrt(V * D))
BEST = [best_unit_delta(DriftLaw(D, *law)) for law in zip(TASK.gammas, TASK.steps, TASK.noises, strict=True)]
P, LAM = np.array([best.p for best in BEST]), np.array([best.lam for best in BEST])


def prompts(batch, task=TASK, name="self-tuning"):
    prompt, member = task.reveal(batch, generator=make_generator(name), dtype=torch.float64)
    return prompt, member


def row(p):
    return np.interp(p, P, LAM), NOISE**2 / p


def gauge(x, y, beta, start):
    w, size, says = np.zeros(D), D * start + NOISE**2, []
    for key, label in zip(x, y, strict=True):
        lam, eps = row(np.clip((size - NOISE**2) / D, P[0], P[-1]))
        says.append(w @ key)
        error = label - says[-1]
        w = lam * (w + error * key / (key @ key + eps))
        size = size + beta * (error**2 - size)
    return says


def weighed(x, y, keep):
    w, score, says = np.zeros((3, D)), np.zeros(3), []
    for key, label in zip(x, y, strict=True):
        p = np.exp(score - score.max())
        says.append(p @ w @ key / p.sum())
        r, error = key @ key, label - w @ key
        s = r * P + NOISE**2
        score = keep * score - (np.log(s) + error**2 / s) / 2
        w = LAM[:, None] * (w + (error * P / s)[:, None] * key)
    return says


def answer_of(log_ps, x, y):
    """The estimate after all examples, of layers whose row is given at each: what `meta_delta` differentiates."""
    w = torch.zeros(D, dtype=torch.float64)
    p_s, lams = torch.as_tensor(np.log(P)), torch.as_tensor(LAM)
    for log_p, key, label in zip(log_ps, x, y, strict=True):
        i = int((log_p >= p_s[1]).item())
        lam = lams[i] + (lams[i + 1] - lams[i]) * (log_p - p_s[i]) / (p_s[i + 1] - p_s[i])
        w = lam * (w + (label - w @ key) * key / (key @ key + NOISE**2 / log_p.exp()))
    return w


def test_the_gauge_and_the_mixture_are_their_loops():
    """Predictions over 60 examples against loops in numpy, 1e-9, with two settings each; one trial alone too."""
    prompt, _ = prompts(4)
    x, y = prompt.x.numpy(), prompt.y.numpy()
    for beta, start in ((0.1, 0.3), (1.0, float(P[0]))):
        rule = self_tuning.gauged_delta(P, LAM, sigma_y=NOISE, beta=beta, start=start)
        says = run_filter(rule, prompt.x, prompt.y).numpy()
        np.testing.assert_allclose(
            says, [gauge(*one, beta, start) for one in zip(x, y, strict=True)], rtol=1e-9, atol=1e-12
        )
        np.testing.assert_array_equal(run_filter(rule, prompt.x[0], prompt.y[0]), says[0])
    for keep in (1.0, 0.9):
        rule = self_tuning.mixed_deltas(P, LAM, sigma_y=NOISE, keep=keep)
        says = run_filter(rule, prompt.x, prompt.y).numpy()
        np.testing.assert_allclose(says, [weighed(*one, keep) for one in zip(x, y, strict=True)], rtol=1e-9, atol=1e-12)


def test_the_meta_gradient_is_the_derivative_of_its_own_estimate():
    """The slope it carries is, by autograd through all its updates, the change of its estimate when every row it used
    is moved by the same small share; and it moves log p by theta e x'slope / s, or not at all at theta = 0.
    """
    prompt, _ = prompts(1)
    x, y, theta = prompt.x[0, :12], prompt.y[0, :12], 0.2
    rule = self_tuning.meta_delta(P, LAM, sigma_y=NOISE, theta=theta, start=0.3)
    state, rows = rule.init(torch.zeros(D, 1, dtype=torch.float64)), []
    for key, label in zip(x, y, strict=True):
        says = (state.w_hat * key[:, None]).sum(0)
        after = rule.step(state, key[:, None], label[None], says)
        pull = (label - says) * (key @ state.slope) / (key @ key * state.log_p.exp() + NOISE**2)
        expected = (state.log_p + theta * pull).clamp(np.log(P[0]), np.log(P[-1]))
        torch.testing.assert_close(after.log_p, expected, rtol=1e-12, atol=0)
        state = after
        rows.append(float(state.log_p))

    def moved(by):
        return answer_of([torch.tensor(row, dtype=torch.float64) + by for row in rows], x, y)

    zero = torch.zeros((), dtype=torch.float64)
    slope = torch.autograd.functional.jacobian(moved, zero)
    torch.testing.assert_close(state.w_hat[:, 0], moved(zero), rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(state.slope[:, 0], slope, rtol=1e-9, atol=1e-14)
    still = self_tuning.meta_delta(P, LAM, sigma_y=NOISE, theta=0.0, start=float(P[1]))
    layer = filters.normalised_delta_rule(1.0, lam=LAM[1], eps=BEST[1].eps)
    torch.testing.assert_close(run_filter(still, x, y), run_filter(layer, x, y), rtol=1e-9, atol=1e-12)


def test_the_bank_is_the_posterior_mean():
    """The filter's predictions are `theory.unknown_drift.bank_predictions`', written apart from it: 1e-8, with noise
    that differs by member and without, a label of an input that is 0 among them; in float32 to 1e-3.
    """
    noisy = UnknownDrift(D, 60, TASK.gammas, TASK.steps, (0.1, 1.0, 0.5), weights=(0.2, 0.5, 0.3))
    for task in (TASK, noisy, UnknownDrift(D, 60, TASK.gammas, TASK.steps)):
        prompt, _ = prompts(3, task)
        x, y = prompt.x.clone(), prompt.y.clone()
        x[0, 5], y[0, 5] = 0.0, 0.0
        expected = bank_predictions(x.numpy(), y.numpy(), task).y_hat
        says = run_filter(self_tuning.bank(task), x, y)
        np.testing.assert_allclose(says, expected, rtol=1e-8, atol=1e-10)
        short = run_filter(self_tuning.bank(task), x.float(), y.float())
        assert short.dtype == torch.float32
        np.testing.assert_allclose(short, expected, rtol=1e-3, atol=1e-3)


def test_an_input_of_0_teaches_nothing():
    """With and without noise, no filter answers anything but 0 after labels of inputs that are 0."""
    x, y = torch.zeros(4, D, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    x[3] = 1.0
    for noise in (NOISE, 0.0):
        rules = [
            self_tuning.gauged_delta(P, LAM, sigma_y=noise, beta=0.1),
            self_tuning.meta_delta(P, LAM, sigma_y=noise, theta=0.1),
            self_tuning.mixed_deltas(P, LAM, sigma_y=noise),
        ]
        for rule in rules:
            assert not run_filter(rule, x, y).any()


@pytest.mark.statistical(6)
def test_each_finds_the_speed():
    """1,500 prompts of 60 examples in the slowest and the fastest of the worlds. At each end the gauge, the gradient
    and the mixture err less than the layer of the other end, by paired differences.
    """
    rules = {
        "gauge": self_tuning.gauged_delta(P, LAM, sigma_y=NOISE, beta=0.05),
        "gradient": self_tuning.meta_delta(P, LAM, sigma_y=NOISE, theta=0.1),
        "mixture": self_tuning.mixed_deltas(P, LAM, sigma_y=NOISE),
    }
    for mine, other in ((0, 2), (2, 0)):
        task = UnknownDrift(D, 60, TASK.gammas[[mine]], TASK.steps[[mine]], NOISE)
        prompt, _ = prompts(1_500, task)
        clean = (prompt.x * prompt.w).sum(-1)
        wrong = filters.normalised_delta_rule(1.0, lam=LAM[other], eps=BEST[other].eps)

        def late(rule, prompt=prompt, clean=clean):
            return (run_filter(rule, prompt.x, prompt.y) - clean)[:, 30:].square().mean(1)

        for rule in rules.values():
            chance.assert_above(late(wrong) - late(rule), by=10)


def test_a_search_begins_midway():
    """A filter that moves log p begins, unless told otherwise, as many factors above the slowest row as below the
    fastest: at the geometric mean of the ends. So with weights in another unit, where each p is 1e6 times as large, it
    predicts 1e3 times the numbers; an arithmetic mean would pass that too, but begins near the fastest row.
    """
    zero = torch.zeros(D, 1, dtype=torch.float64)
    midway = (np.log(P[0]) + np.log(P[-1])) / 2
    meta = self_tuning.meta_delta(P, LAM, sigma_y=NOISE, theta=0.1).init(zero)
    np.testing.assert_allclose(meta.log_p, midway, rtol=1e-12)
    gauged = self_tuning.gauged_delta(P, LAM, sigma_y=NOISE, beta=0.1).init(zero)
    np.testing.assert_allclose((gauged.size - NOISE**2) / D, np.exp(midway), rtol=1e-12)
    prompt, _ = prompts(3)
    for make, how in ((self_tuning.meta_delta, {"theta": 0.1}), (self_tuning.gauged_delta, {"beta": 0.1})):
        one = run_filter(make(P, LAM, sigma_y=NOISE, **how), prompt.x, prompt.y)
        other = run_filter(make(1e6 * P, LAM, sigma_y=1e3 * NOISE, **how), prompt.x, 1e3 * prompt.y)
        np.testing.assert_allclose(other, 1e3 * one, rtol=1e-9)


def test_a_mixture_keeps_all_it_was_told():
    """The default forgets nothing, for then the weights are Bayes': after n labels in proportion to the product of
    every row's n normal densities, taken by a loop. With `keep` = 0.99 they are others.
    """
    prompt, _ = prompts(1)
    x, y = prompt.x[0].numpy(), prompt.y[0].numpy()
    said = np.zeros(len(P))
    for j, (p, lam) in enumerate(zip(P, LAM, strict=True)):
        w = np.zeros(D)
        for key, label in zip(x, y, strict=True):
            r = key @ key
            error, s = label - w @ key, r * p + NOISE**2
            said[j] -= (np.log(2 * np.pi * s) + error**2 / s) / 2
            w = lam * (w + error * key * p / s)
    expected = np.exp(said - said.max())

    def weights(**keep):
        rule = self_tuning.mixed_deltas(P, LAM, sigma_y=NOISE, **keep)
        state = rule.init(torch.zeros(D, 1, dtype=torch.float64))
        for key, label in zip(prompt.x[0], prompt.y[0], strict=True):
            state = rule.step(state, key[:, None], label[None], (state.w_hat * key[:, None]).sum(0))
        return state.log_weight.exp()[:, 0].numpy()

    np.testing.assert_allclose(weights(), expected / expected.sum(), rtol=1e-9)
    assert abs(weights(keep=0.99) / weights() - 1).max() > 1e-3


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: self_tuning.gauged_delta(P[:1], LAM[:1], sigma_y=0.1, beta=0.1), "p must be at least two numbers"),
        (
            lambda: self_tuning.gauged_delta(P[::-1], LAM, sigma_y=0.1, beta=0.1),
            "p must be at least two numbers that rise",
        ),
        (lambda: self_tuning.mixed_deltas(P, LAM[:2], sigma_y=0.1), r"lam must have shape \(3\) to match p"),
        (lambda: self_tuning.meta_delta(P, LAM + 1, sigma_y=0.1, theta=0.1), "lam must be finite and >= 0 and <= 1"),
        (lambda: self_tuning.mixed_deltas(P, LAM, sigma_y=np.ones(2)), r"sigma_y must have shape \(3\)"),
    ],
)
def test_tables_that_are_none_are_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_a_bank_for_other_inputs_is_refused():
    prompt, _ = prompts(2)
    with pytest.raises(ValueError, match=r"x must have shape \(5, any\) as \(d, \*trials\) to match the task"):
        run_filter(self_tuning.bank(TASK), prompt.x[..., :3], prompt.y)
