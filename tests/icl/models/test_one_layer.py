"""The one-layer model: its fast form, its literal form and the formulas they are; features of a window; the law that
weights start from.

Tolerances. A prediction is a sum of products w_V[a] z[a] z[b] W_KQ[b, c] x[c] over tokens; in float64 its error is at
most (number of terms) x eps x (the sum over absolute values), which is the same prediction of absolute values. With up
to 50 tokens of 5 numbers 1e-12 of it covers the rounding. For features of windows it is 1e-11 of the largest value.
"""

import functools

import chance
import numpy as np
import pytest
import shared
import torch
from scipy import stats

from icl.models import one_layer
from icl.models.one_layer import (
    OneLayerGLA,
    decay_weights,
    features,
    gram,
    predict,
    predict_from_features,
    predict_from_gram,
    window_features,
)
from icl.models.stacks import Stack
from icl.profile import make_generator
from icl.tasks import DriftingRegression, Prompt, StationaryRegression
from icl.theory import one_layer as theory

# Oracles

ROUNDING = 1e-12
LAMBDA = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.4]])
several_lam = pytest.mark.parametrize("lam", [0.0, 0.3, 0.9, 1.0])
positive_lam = pytest.mark.parametrize("lam", [0.3, 0.9, 1.0])
every_task = pytest.mark.parametrize(
    "task",
    [DriftingRegression(d=3, n=20, gamma=0.9, Lambda=LAMBDA), StationaryRegression(d=3, n=20, Lambda=LAMBDA)],
    ids=["drifting", "stationary"],
)


def prompt(n=45, dtype=torch.float64):
    task = DriftingRegression(d=3, n=n, gamma=0.9, sigma_e=0.5)
    return task.sample(6, generator=make_generator("one layer"), dtype=dtype)


def weights():
    return torch.randn(2, 4, 4, generator=make_generator("weights"), dtype=torch.float64).unbind()


@several_lam
@pytest.mark.parametrize("n", [1, 2, 31, 32, 45])
def test_fast_form_is_the_literal_layer(n, lam):
    """The prediction from the Gram matrix is the layer read off the paper, for any weights, all entries filled.

    Lengths around the literal form's chunk of 32, and lam = 0 and 1. Tolerance: rounding, see the file's head.
    """
    p, (W_V, W_KQ) = prompt(n), weights()
    Z = p.tokens()
    fast = predict_from_gram(gram(Z, lam), W_V, W_KQ, p.x[:, -1])
    size = predict_from_gram(gram(Z.abs(), lam), W_V.abs(), W_KQ.abs(), p.x[:, -1].abs())
    assert ((predict(Z, W_V, W_KQ, lam) - fast).abs() <= ROUNDING * size).all()


@several_lam
def test_gram_is_its_sum(lam):
    """G is the sum over tokens of lam^(n+1-i) z_i z_i', added one by one; the query's own token has weight 1.

    Tolerance: rounding, see the file's head.
    """
    Z = prompt(n=9).tokens().numpy()
    expected, size = np.zeros((2, 6, 4, 4))
    for i in range(10):
        term = lam ** (9 - i) * Z[:, i, :, None] * Z[:, i, None, :]
        expected, size = expected + term, size + np.abs(term)
    assert (np.abs(gram(torch.as_tensor(Z), lam).numpy() - expected) <= ROUNDING * size).all()


def test_decay_weights_are_powers():
    """The weights are lam^(count-1), .., lam, 1; at lam = 0 the last alone is left and the gradient is that of the
    power.

    rtol 1e-13: products of at most 40 factors.
    """
    like = torch.zeros(1, dtype=torch.float64)
    for lam in (0.0, 0.5, 0.97, 1.0, 1.1):
        expected = torch.tensor([lam**k for k in range(39, -1, -1)], dtype=torch.float64)
        torch.testing.assert_close(decay_weights(lam, 40, like=like), expected, rtol=1e-13, atol=0)
        leaf = torch.tensor(lam, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(decay_weights(leaf, 40, like=like).sum(), leaf)
        exact = torch.tensor(sum(k * lam ** (k - 1) for k in range(1, 40)), dtype=torch.float64)
        torch.testing.assert_close(slope, exact, rtol=1e-12, atol=0)


@several_lam
def test_the_forgetting_factor_has_a_gradient(lam):
    """The derivative of the prediction by lam is sum over tokens of k lam^(k-1) times the token's share, in both forms.

    lam = 0 and 1 included, where it is one-sided. Tolerance: rounding, see the file's head.
    """
    p, (W_V, W_KQ) = prompt(n=9), weights()
    Z, query = p.tokens(), p.x[:, -1]
    slopes = [k * lam ** max(k - 1, 0) for k in range(9, -1, -1)]
    shares = (Z @ W_V[-1]) * torch.einsum("bti,bi->bt", Z, query @ W_KQ[:, :-1].T)
    terms = torch.tensor(slopes, dtype=torch.float64) * shares
    size = (Z.abs() @ W_V[-1].abs()) * torch.einsum("bti,bi->bt", Z.abs(), query.abs() @ W_KQ[:, :-1].T.abs())
    limit = ROUNDING * (torch.tensor(slopes, dtype=torch.float64) * size).sum()
    leaf = torch.tensor(lam, dtype=torch.float64, requires_grad=True)
    for y_hat in (predict(Z, W_V, W_KQ, leaf), predict_from_gram(gram(Z, leaf), W_V, W_KQ, query)):
        (slope,) = torch.autograd.grad(y_hat.sum(), leaf)
        assert (slope - terms.sum()).abs() <= limit


@pytest.mark.parametrize("lam", [0.0, 0.3, 1.0, 1.1])
def test_features_are_a_block_of_gram(lam):
    """The features are the block of the Gram matrix where inputs meet labels; several lam at once are each of them.

    Tolerance: rounding, see the file's head.
    """
    p = prompt()
    block, size = gram(p.tokens(), lam)[:, :3, 3], gram(p.tokens().abs(), lam)[:, :3, 3]
    assert ((features(p, lam) - block).abs() <= ROUNDING * size).all()
    together = features(p, [0.5, lam, 0.9])
    assert together.shape == (3, 6, 3)
    assert ((together[1] - block).abs() <= ROUNDING * size).all()
    assert torch.equal(features(p, np.array([0.5, lam, 0.9])), together)
    assert features(p, [lam]).shape == (1, 6, 3)


@positive_lam
@every_task
def test_the_optimum_predicts_as_formula_15(task, lam):
    """With the weights (14) the model is (15), y_hat = sum_i lam^(n+1-i) y_i x_i' A x_(n+1), A = D1 Lambda~^-1.

    It is also one gradient step from zero on the weighted squares, preconditioned by A. rtol 1e-9 of the sum over
    absolute values: A is an inverse.
    """
    optimum = theory.optimum(task, lam=lam)
    p = task.sample(7, generator=make_generator("formula 15"), dtype=torch.float64)
    model = OneLayerGLA(3, lam=lam, scale=1.0, generator=make_generator("start"), dtype=torch.float64)
    assert model.set_weights(optimum.W_V, optimum.W_KQ) is model
    x, y = p.x.numpy(), p.y.numpy()
    terms = lam ** np.arange(20, 0, -1) * y[:, :-1] * np.einsum("bti,ij,bj->bt", x[:, :-1], optimum.A, x[:, -1])
    limit = 1e-9 * np.abs(terms).sum(1)
    assert (np.abs(model(p).detach().numpy() - terms.sum(1)) <= limit).all()

    w = torch.zeros(7, 3, dtype=torch.float64, requires_grad=True)
    residuals = p.y[:, :-1] - torch.einsum("bi,bti->bt", w, p.x[:, :-1])
    loss = (lam ** torch.arange(20, 0, -1, dtype=torch.float64) * residuals**2).sum() / 2
    (gradient,) = torch.autograd.grad(loss, w)
    step = -torch.einsum("bi,ij,bj->b", gradient, torch.as_tensor(optimum.A), p.x[:, -1])
    assert (np.abs(step.numpy() - terms.sum(1)) <= limit).all()


@positive_lam
@every_task
def test_features_predict_as_the_optimal_layer(task, lam):
    """Predictions from the features, g' A x_query, are those of the model with the weights (14), at the forgetting
    factor it was trained with and at others.

    All factors go through at once, and each alone gives the same; A comes as numpy has it or as a tensor. Tolerance
    1e-9 of the sum over absolute values: A is an inverse. Planted: A transposed, for an A that is not symmetric, is
    seen.
    """
    optimum = theory.optimum(task, lam=lam)
    p, lams = task.sample(7, generator=make_generator("features"), dtype=torch.float64), [0.2, lam, 0.95]
    query = p.x[:, -1]
    together = predict_from_features(features(p, lams), optimum.A, query)
    size = predict_from_features(features(Prompt(p.x.abs(), p.y.abs(), p.w), lams), np.abs(optimum.A), query.abs())
    assert together.shape == (3, 7)
    for at, y_hat, limit in zip(lams, together, 1e-9 * size, strict=True):
        model = OneLayerGLA(3, lam=at, scale=1.0, generator=make_generator("start"), dtype=torch.float64)
        model.set_weights(optimum.W_V, optimum.W_KQ)
        assert ((model(p) - y_hat).abs() <= limit).all()
        for A in (optimum.A, torch.as_tensor(optimum.A)):
            assert ((predict_from_features(features(p, at), A, query) - y_hat).abs() <= limit).all()
    skewed = np.triu(np.ones((3, 3)))
    expected = np.einsum("lbi,ij,bj->lb", features(p, lams).numpy(), skewed, query.numpy())
    np.testing.assert_allclose(predict_from_features(features(p, lams), skewed, query), expected, rtol=1e-9)
    assert not np.allclose(predict_from_features(features(p, lams), skewed.T, query), expected)


@several_lam
def test_unused_entries_have_no_gradient(lam):
    """Only the last row of W_V and the first d columns of W_KQ reach the prediction: every other gradient is exactly 0.

    So in the literal form and in the model; and filling the other entries with anything moves no bit of the fast form.
    """
    p = prompt(n=8)
    W_V, W_KQ = (W.requires_grad_() for W in weights())
    model = OneLayerGLA(3, lam=max(lam, 0.1), scale=1.0, generator=make_generator("start"), dtype=torch.float64)
    for prediction, V, KQ in (
        (predict(p.tokens(), W_V, W_KQ, lam), W_V, W_KQ),
        (model(p), model.W_V, model.W_KQ),
    ):
        of_V, of_KQ = torch.autograd.grad((prediction**2).sum(), (V, KQ))
        assert not of_V[:-1].any()
        assert not of_KQ[:, -1].any()
        assert of_V[-1].any()
        assert of_KQ[:, :-1].any()
    G, query = gram(p.tokens(), lam), p.x[:, -1]
    before = predict_from_gram(G, W_V, W_KQ, query)
    with torch.no_grad():
        W_V[:-1], W_KQ[:, -1] = 1e3, -1e3
    assert torch.equal(predict_from_gram(G, W_V, W_KQ, query), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_kept(dtype):
    """Weights that are set have the model's dtype, and predictions that of the features, whatever A comes in."""
    p, model = prompt(dtype=dtype), OneLayerGLA(3, lam=0.9, scale=0.1, generator=make_generator("start"), dtype=dtype)
    for A in (np.eye(3), torch.eye(3)):
        assert predict_from_features(features(p, 0.9), A, p.x[:, -1]).dtype == dtype
    for W in (model.W_V, model.W_KQ, *model.set_weights(np.eye(4), np.eye(4)).parameters()):
        assert W.dtype == dtype


def test_the_querys_label_is_never_seen():
    """Changing the label of the query, or its weights, leaves the model's prediction as it was, bit for bit."""
    p = prompt()
    y, w = p.y.clone(), p.w.clone()
    y[:, -1], w[:, -1] = 1e6, 1e6
    model = OneLayerGLA(3, lam=0.9, scale=1.0, generator=make_generator("start"), dtype=torch.float64)
    assert torch.equal(model(p), model(Prompt(p.x, y, w)))
    assert torch.equal(features(p, 0.9), features(Prompt(p.x, y, w), 0.9))


def test_prompts_of_a_batch_are_independent():
    """Replacing one prompt of a batch leaves the predictions for the others as they were, bit for bit."""
    p = prompt()
    x, y = p.x.clone(), p.y.clone()
    x[2], y[2] = 1.0, -1.0
    model = OneLayerGLA(3, lam=0.9, scale=1.0, generator=make_generator("start"), dtype=torch.float64)
    before, after = model(p), model(Prompt(x, y, p.w))
    others = torch.arange(6) != 2
    assert torch.equal(before[others], after[others])
    assert before[2] != after[2]


def test_initial_weights_come_from_the_generator():
    """The same stream starts the same model, another stream another; W_V and W_KQ differ and are trained apart."""
    one, same, other = (
        OneLayerGLA(3, lam=0.9, scale=0.1, generator=make_generator("start", seed=s)) for s in (1, 1, 2)
    )
    assert torch.equal(one.W_V, same.W_V)
    assert torch.equal(one.W_KQ, same.W_KQ)
    assert not torch.isin(one.W_V, torch.cat([other.W_V, other.W_KQ, one.W_KQ])).any()
    assert [name for name, _ in one.named_parameters()] == ["W_V", "W_KQ"]
    assert one.W_V.untyped_storage().data_ptr() != one.W_KQ.untyped_storage().data_ptr()


close = functools.partial(shared.close, rounding=1e-11)


def test_window_features_are_matrix_powers():
    """The features are x_q' ((1 - lam) G)^k (1 - lam) g with G and g summed example by example; the first is the
    prediction of one layer; the query's label is not read.

    Tolerance: see the file's head. Planted: weights from lam^(n-1) to 1.
    """
    p, lam = shared.deep_prompt(15), 0.8
    found = window_features(p, lam=lam, count=4)
    weights = np.array([lam ** (15 - i) for i in range(15)]) * (1 - lam)
    expected = np.zeros((5, 4))
    for b in range(5):
        x, y = p.x[b].numpy(), p.y[b].numpy()
        G = sum(w * np.outer(a, a) for w, a in zip(weights, x[:-1], strict=True))
        g = sum(w * c * a for w, c, a in zip(weights, y[:-1], x[:-1], strict=True))
        expected[b] = [x[-1] @ np.linalg.matrix_power(G, k) @ g for k in range(4)]
    assert close(found, expected)
    layer = one_layer.predict_from_features(one_layer.features(p, lam), (1 - lam) * np.eye(3), p.x[:, -1])
    assert close(found[:, 0], layer)
    other = p.y.clone()
    other[:, -1] = 1e6
    assert torch.equal(window_features(Prompt(p.x, other, p.w), lam=lam, count=4), found)


def left_over(basis, answers):
    """The part of answers that no fixed combination of the basis gives, relative to all of them."""
    coefficients = torch.linalg.lstsq(basis, answers.unsqueeze(-1)).solution
    return float((answers - (basis @ coefficients).squeeze(-1)).norm() / answers.norm())


def test_gradient_descent_on_the_window_is_a_combination_of_features():
    """L steps of gradient descent on the window's squares, of any step sizes, with momentum or without, are one fixed
    combination of L features for all prompts, and of no fewer.

    40 prompts; what is left over is below 1e-9, and above 1e-3 with one feature less. A stack is not among them: with
    one factor and no steps on x, its tokens read only what was before them, so that two layers leave above 5 % over
    even of four features. One layer is the first feature.
    """
    p, lam = shared.deep_prompt(15, batch=40), 0.8
    weights = (1 - lam) * torch.tensor([lam ** (15 - i) for i in range(15)], dtype=torch.float64)
    x, y, query = p.x[:, :-1], p.y[:, :-1], p.x[:, -1]
    for etas, momentum in (([0.3] * 3, 0.0), ([0.1, 0.5, 0.2, 0.4], 0.0), ([0.2, 0.3, 0.4], 0.5)):
        w = step = torch.zeros(40, 3, dtype=torch.float64)
        for eta in etas:
            residuals = y - torch.einsum("bnd,bd->bn", x, w)
            step = momentum * step + eta * torch.einsum("bn,bnd->bd", weights * residuals, x)
            w = w + step
        answers, basis = (w * query).sum(-1), window_features(p, lam=lam, count=len(etas))
        assert left_over(basis, answers) < 1e-9
        assert left_over(basis[:, :-1], answers) > 1e-3

    basis = window_features(p, lam=lam, count=4)
    for layers, low, high in ((1, 0, 1e-9), (2, 0.05, 1)):
        model = Stack(3, layers, lam=lam, dtype=torch.float64)
        with torch.no_grad():
            model.s_x.zero_()
        assert low <= left_over(basis, model(p).detach()) < high


# Statistics


@pytest.mark.statistical
def test_initial_weights_have_the_stated_spread():
    """A new model's weights are N(0, scale^2): their sum of squares is within exact chi-square limits.

    2 x 101 x 101 numbers; sees a scale off by 3 %.
    """
    model = OneLayerGLA(100, lam=0.9, scale=0.3, generator=make_generator("initial weights"), dtype=torch.float64)
    z = torch.cat([model.W_V, model.W_KQ]).detach().numpy() / 0.3
    chance.assert_within((z**2).sum(), stats.chi2(z.size))
