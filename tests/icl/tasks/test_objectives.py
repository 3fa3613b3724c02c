"""Losses and their derivatives against formulas written down a second time and automatic ones; the laws of labels."""

import chance
import numpy as np
import pytest
import shared
import torch
from scipy import stats

from icl.profile import make_generator
from icl.tasks import Prompt
from icl.tasks.objectives import Cauchy, Huber, Logistic, Quartic, Square

KINDS = {
    "square": Square(3, 7),
    "logistic": Logistic(3, 7, ridge=0.3),
    "huber": Huber(3, 7, delta=0.7),
    "cauchy": Cauchy(3, 7, delta=1.3),
    "quartic": Quartic(3, 7, ridge=0.0),
}
BY_HAND = {
    "square": lambda y, s: (y - s) ** 2 / 2,
    "logistic": lambda y, s: np.log(1 + np.exp(-y * s)),
    "huber": lambda y, s: np.where(abs(y - s) < 0.7, (y - s) ** 2 / 2, 0.7 * abs(y - s) - 0.7**2 / 2),
    "cauchy": lambda y, s: 1.3**2 / 2 * np.log(1 + ((y - s) / 1.3) ** 2),
    "quartic": lambda y, s: (y - s) ** 4 / 4,
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def drawn(kind, batch=5):
    return KINDS[kind].sample(batch, generator=make_generator(f"objectives {kind}"))


def points(kind):
    """Labels such as they are, and predictions on both sides of them."""
    y = drawn(kind).y
    return y, 2 * shared.normal(*y.shape, name="predictions")


@every_kind
def test_the_loss_is_its_formula(kind):
    y, s = points(kind)
    np.testing.assert_allclose(KINDS[kind].loss(y, s), BY_HAND[kind](y.numpy(), s.numpy()), rtol=1e-12)


@every_kind
def test_slope_and_bend_are_derivatives(kind):
    """Of the loss in the prediction, by automatic differentiation, also where predictions are far off."""
    y, s = points(kind)
    for far in (1, 30):
        at = (far * s).requires_grad_()
        (first,) = torch.autograd.grad(KINDS[kind].loss(y, at).sum(), at, create_graph=True)
        assert shared.close(KINDS[kind].slope(y, at), first, 1e-12)
        (second,) = torch.autograd.grad(first.sum(), at) if first.requires_grad else (torch.ones_like(s),)
        assert shared.close(KINDS[kind].bend(y, at), second, 1e-12)


def test_a_far_prediction_overflows_nowhere():
    y = torch.tensor([1.0, -1.0]).double()
    for far in (1e4, -1e4):
        s = torch.full_like(y, far)
        assert all(bool(torch.isfinite(f(y, s)).all()) for f in (KINDS["logistic"].loss, KINDS["logistic"].bend))
        assert KINDS["logistic"].loss(y, s).tolist() == [max(0.0, -far), max(0.0, far)]


@every_kind
def test_the_objective_is_a_mean_over_the_examples(kind):
    """f written as a loop over one prompt; its gradient by automatic differentiation; several weights at once."""
    objective, prompt = KINDS[kind], drawn(kind)
    w = shared.normal(prompt.batch, 2, 3, name="weights").requires_grad_()
    value = objective.value(prompt, w)
    x, y = prompt.x[1].numpy(), prompt.y[1].numpy()
    one = w[1, 0].detach().numpy()
    by_hand = sum(BY_HAND[kind](y[i], one @ x[i]) for i in range(7)) / 7 + objective.ridge / 2 * (one @ one)
    assert value[1, 0].item() == pytest.approx(by_hand, rel=1e-12)
    (gradient,) = torch.autograd.grad(value.sum(), w)
    assert shared.close(objective.gradient(prompt, w), gradient, 1e-12)
    assert torch.equal(objective.value(prompt, w[:, 0]), value[:, 0])
    assert shared.close(objective.gradient(prompt, w[:, 0]), gradient[:, 0], 1e-15)


@every_kind
def test_the_query_is_not_read(kind):
    objective, prompt = KINDS[kind], drawn(kind)
    x, y = prompt.x.clone(), prompt.y.clone()
    x[:, -1], y[:, -1] = 7.0, -3.0
    other, w = Prompt(x, y, prompt.w), shared.normal(prompt.batch, 3)
    assert torch.equal(objective.value(prompt, w), objective.value(other, w))
    assert torch.equal(objective.gradient(prompt, w), objective.gradient(other, w))


@pytest.mark.statistical
@every_kind
def test_inputs_and_weights_are_white(kind):
    """10,000 prompts. A correlation of 0.09 is found as often as not."""
    prompt = KINDS[kind].sample(10_000, generator=make_generator("white"))
    assert prompt.x.dtype == torch.float64
    assert bool((prompt.w == prompt.w[:, :1]).all())
    chance.assert_standard_normal(torch.cat([prompt.w[:, 0], prompt.x[:, 0], prompt.x[:, -1]], 1).numpy())


@pytest.mark.statistical
def test_logistic_labels_have_their_chances():
    """Sums of y - E y, plain and times s, over 70,000 labels against a normal law.

    Chances that belong to 1.1 s instead of s shift the second by 9 standard deviations.
    """
    prompt = Logistic(3, 7).sample(10_000, generator=make_generator("chances"))
    assert set(prompt.y.unique().tolist()) == {-1.0, 1.0}
    s = (prompt.w * prompt.x).sum(-1)
    off, variance = prompt.y - torch.tanh(s / 2), 1 / torch.cosh(s / 2) ** 2
    weights = (torch.ones_like(s), s)
    chance.assert_z([(weight * off).sum() / (weight.square() * variance).sum().sqrt() for weight in weights])


@pytest.mark.statistical(2)
@pytest.mark.parametrize("law", [Huber, Cauchy])
def test_a_share_of_labels_are_outliers(law):
    """Their number against a binomial, their sizes against a normal law: 80,000 labels."""
    prompt = law(3, 7, share=0.3, size=4.0).sample(10_000, generator=make_generator("outliers"))
    added = (prompt.y - (prompt.w * prompt.x).sum(-1)).flatten().numpy()
    outliers = added[added != 0]
    chance.assert_counts(len(outliers), added.size, 0.3)
    chance.assert_p(stats.kstest(outliers / 4.0, "norm").pvalue)
    clean = law(3, 7, share=0.0).sample(4, generator=make_generator("outliers"))
    assert torch.equal(clean.y, (clean.w * clean.x).sum(-1))


def test_labels_of_squares_and_quartics_are_clean():
    for kind in ("square", "quartic"):
        prompt = drawn(kind)
        assert torch.equal(prompt.y, (prompt.w * prompt.x).sum(-1))


def test_what_is_convex_has_a_bend_of_one_sign():
    y, s = torch.zeros(401).double(), torch.linspace(-9, 9, 401).double()
    for objective in KINDS.values():
        assert bool((objective.bend(y + 1, s) >= 0).all()) == objective.convex
    assert [kind for kind in KINDS if not KINDS[kind].convex] == ["cauchy"]


@pytest.mark.usefixtures("as_installed")
def test_weights_of_another_dtype_are_refused():
    with pytest.raises(ValueError, match=r"w must have dtype torch\.float64 to match prompt"):
        KINDS["square"].gradient(drawn("square"), torch.zeros(5, 3))
    half = torch.ones(2, dtype=torch.half)
    with pytest.raises(ValueError, match=r"dtype must be torch\.float32 or torch\.float64, got torch\.float16"):
        KINDS["square"].loss(half, half)
