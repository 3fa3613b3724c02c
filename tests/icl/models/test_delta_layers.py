"""The layers of `icl.models.delta_layers` against filters, operators and loops that compute the same elsewhere.

Everything is in float64. Values are products and sums over at most 40 tokens, so that 1e-12 of the largest covers the
rounding of a layer without a matrix to solve for; the others have their own bound, stated where it is used.
"""

import math

import chance
import mpmath
import numpy as np
import pytest
import shared
import torch
from scipy import stats

from icl import filters
from icl.experiments.evaluation import one_step_ahead
from icl.models import operators
from icl.models.delta_layers import LFOM, DeltaRule, GatedDelta, Kalman, Longhorn, Mesa
from icl.models.fast_weights import GLA, Gate, LengthGate, LinearGate, Weights
from icl.models.memformer import FixedBlocks, Memformer, OneRegister
from icl.profile import make_generator
from icl.tasks import DriftingRegression, Prompt
from icl.theory.lfom import polynomial_floor

F64 = {"dtype": torch.float64}
ROUNDING = 1e-12
D = 4


def data():
    return shared.sequences("fast weights", D, 40, 6, seed=D)


def answers(layer, x, y):
    with torch.no_grad():
        return y - layer.errors(x, y)


def close(got, expected, rounding=ROUNDING):
    return got.shape == expected.shape and bool((got - expected).abs().max() <= rounding * expected.abs().max())


DRIFT = DriftingRegression(d=D, n=39, gamma=0.93, sigma_e=0.2)
PEERS = {
    "GLA": (GLA(D, lam=0.9, mu=0.11, **F64), filters.gla(0.11 * np.eye(D), lam=0.9)),
    "GLA, a setting a channel": (
        GLA(D, lam=[0.9] * D, mu=[0.1, 0.2, 0.3, 0.4], **F64),
        filters.gla(np.diag([0.1, 0.2, 0.3, 0.4]), lam=0.9),
    ),
    "delta rule": (DeltaRule(D, lam=0.95, mu=0.12, **F64), filters.delta_rule(0.12, lam=0.95)),
    "gated delta rule, no gates": (
        GatedDelta(D, Gate(), Gate(), lam=0.95, beta=0.7, **F64),
        filters.normalised_delta_rule(0.7, lam=0.95, eps=0),
    ),
    "Longhorn": (Longhorn(D, lam=0.95, eps=0.3, **F64), filters.normalised_delta_rule(1.0, lam=0.95, eps=0.3)),
    # Two ways of solving systems whose condition number, at most trace / eps, stays below 1e3 here.
    "Mesa": (Mesa(D, lam=0.9, eps=0.2, **F64), filters.faded_ridge(0.9, eps=0.2)),
    # The filter updates P in Joseph's form.
    "Kalman": (
        Kalman(D, gamma=0.93, sigma_e=0.2, sigma_y=0.3, P_0=0.93**2 + 0.2**2, **F64),
        filters.kalman(DRIFT, sigma_y=0.3),
    ),
}


@pytest.mark.parametrize("name", PEERS)
def test_layers_equal_their_filters(name):
    """A layer with the settings of a filter of `icl.filters` gives its predictions, at every position; an input of 0
    is answered 0, and teaches nothing where a write is over its length.
    """
    layer, peer = PEERS[name]
    x, y = data()
    x[:, 7] = 0
    assert close(answers(layer, x, y), filters.run_filter(peer, x, y))


def test_the_gated_delta_rule_is_the_field_s_operator():
    """GatedDelta's answers are `delta.recurrent` on keys and queries x / |x| and values y / |x|, its gates given."""
    x, y = data()
    layer = GatedDelta(D, LinearGate(D, **F64), LengthGate(D, **F64), lam=0.9, beta=0.8, **F64)
    shared.stirred(layer, 0.4)
    length = x.square().sum(-1).sqrt()
    with torch.no_grad():
        gates = [torch.stack([g(a, b) for a, b in zip(x, y, strict=True)]) for g in (layer.lam, layer.beta)]
    key = (x / length.unsqueeze(-1)).unsqueeze(2)
    read = operators.delta_recurrent(key, key, (y / length)[..., None, None], *(g.unsqueeze(-1) for g in gates))
    assert gates[0].std() > 0.01
    assert gates[1].std() > 0.01
    assert close(answers(layer, x, y), length * read[:, :, 0, 0])


def test_longhorn_takes_the_proximal_step():
    """What Longhorn writes before it fades is the least of |v - w|^2 + (y - v'x)^2 / eps: the gradient of that is 0."""
    layer = Longhorn(D, lam=0.8, eps=0.3, **F64)
    x, y = data()
    state = Weights(x[:, 3])
    with torch.no_grad():
        v = layer.step(state, x[:, 0], y[:, 0]).w_hat / layer.lam
    gradient = (v - state.w_hat) - x[:, 0] * ((y[:, 0] - (v * x[:, 0]).sum(-1)) / 0.3).unsqueeze(-1)
    assert gradient.abs().max() < 1e-11


def test_mesa_is_the_least_of_its_objective():
    """Mesa's answer is c v'x for the v at which the gradient of sum_i lam^(n+1-i) (y_i - v'x_i)^2 + eps v'v is 0."""
    layer = Mesa(D, lam=0.8, eps=0.3, **F64)
    with torch.no_grad():
        layer.c.fill_(0.7)
    x, y = data()
    ages = 0.8 ** torch.arange(39, 0, -1, **F64)
    X, Y = x[:, :-1] * ages.sqrt()[:, None], y[:, :-1] * ages.sqrt()
    rows = torch.cat([X, math.sqrt(0.3) * torch.eye(D, **F64).expand(len(x), D, D)], dim=1)
    v = torch.linalg.lstsq(rows, torch.cat([Y, torch.zeros(len(x), D, **F64)], dim=1).unsqueeze(-1)).solution
    assert close(answers(layer, x, y)[:, -1], 0.7 * (v.squeeze(-1) * x[:, -1]).sum(-1), 1e-11)


@pytest.mark.parametrize("layers", [1, 2, 3, 5])
def test_a_first_order_method_is_a_memformer(layers):
    """With the coefficients of the best polynomial, LFOM predicts what a Memformer of so many layers does whose one
    register has the best numbers, at the length that they are best for and at others.

    A polynomial with alternating signs, summed in powers there and in steps here: 1e-11 of the largest.
    """
    n = 12
    alpha, gamma = polynomial_floor.optimal_registers(D, n, layers)
    memory = OneRegister(layers)
    with torch.no_grad():
        memory.alpha.copy_(torch.as_tensor(alpha))
        memory.gamma.copy_(torch.as_tensor(gamma[1:]))
    peer = Memformer(FixedBlocks(torch.eye(D, **F64).repeat(layers, 1, 1)), memory)
    layer = LFOM(D, c=-polynomial_floor.optimal_polynomial(D, n, layers)[1:], **F64)
    x, y = data()
    for examples in (1, 5, n, 39):
        prompt = Prompt(x[:, : examples + 1], y[:, : examples + 1], torch.zeros_like(x[:, : examples + 1]))
        with torch.no_grad():
            assert close(layer(prompt), peer(prompt), 1e-11), examples


def test_a_first_order_method_is_its_sum_of_powers():
    """LFOM answers x' sum_k c_k H^k b, H and b means over the examples so far; before the first, 0."""
    c = (0.7, -0.4, 0.2)
    x, y = data()
    got = answers(LFOM(D, c=c, **F64), x, y)
    assert bool((got[:, 0] == 0).all())
    for n in (1, 2, 17, 39):
        H, b = x[:, :n].mT @ x[:, :n] / n, (x[:, :n] * y[:, :n, None]).mean(1).unsqueeze(-1)
        w = sum(weight * torch.linalg.matrix_power(H, k) @ b for k, weight in enumerate(c)).squeeze(-1)
        assert close(got[:, n], (w * x[:, n]).sum(-1)), n


def test_the_caller_s_coefficients_stay_as_they_are():
    """Training changes no number but the layer's own: not the array that c came from, nor another layer's from it."""
    c = np.array([0.5, -0.1])
    one, other = LFOM(D, c=c, **F64), LFOM(D, c=c, **F64)
    x, y = data()
    one.errors(x, y).square().mean().backward()
    torch.optim.SGD(one.parameters(), lr=0.1).step()
    assert c.tolist() == other.c.tolist() == [0.5, -0.1]
    assert bool((one.c != other.c).all())


@pytest.mark.statistical(2)
@pytest.mark.usefixtures("as_installed")
def test_training_leaves_the_truth_where_it_is():
    """At the drift's own law the Kalman layer's gradient, over 2000 prompts, is 0 in gamma and in the share of noise;
    off it, at gamma - .1, it is not. Means over 40 prompts are nearly normal, and of 50 of them Student's t.

    sigma_e, sigma_y and P_0 have a direction in which they do nothing to the answers: the two deviations
    twice as large and the variance four times. In it the gradient is 0 up to rounding.
    """
    task = DriftingRegression(d=3, n=15, gamma=0.9, sigma_e=0.3, sigma_w=1.0)
    prompt = task.sample(2000, generator=make_generator("truth"), dtype=torch.float64)
    noise = 0.5 * torch.randn(prompt.y.shape, generator=make_generator("truth noise"), **F64)
    noisy = Prompt(prompt.x, prompt.y + noise, prompt.w)

    def z(gamma):
        layer = Kalman(3, gamma=gamma, sigma_e=0.3, sigma_y=0.5, P_0=0.9**2 + 0.3**2, **F64)
        gradients = []
        for part in zip(*(t.split(40) for t in (noisy.x, noisy.y, noisy.w)), strict=True):
            layer.zero_grad()
            layer.loss(Prompt(*part)).backward()
            gradients.append([p.grad.item() for p in (layer.log_gamma, layer.log_sigma_e, layer.log_sigma_y)])
            assert abs(sum(gradients[-1][1:]) + 2 * layer.log_P_0.grad.item()) < 1e-10
        return np.array(gradients)

    chance.assert_p(stats.ttest_1samp(z(0.9), 0).pvalue)
    chance.assert_above(-z(0.8)[:, 0], by=20)


def test_layers_are_predictors():
    """`evaluation.one_step_ahead` reads a layer as it reads the filter that it is."""
    prompt = DRIFT.sample(5, generator=make_generator("as predictors"), dtype=torch.float64)
    layer, peer = (one_step_ahead(each, prompt) for each in PEERS["delta rule"])
    assert close(layer, peer)


def rational_kalman(x, y, gamma, sigma_e, sigma_y, P_0):
    """Errors of the Kalman filter by its textbook recursion in 60 digits, prompt by prompt."""
    mpmath.mp.dps = 60
    gamma, q, r = mpmath.mpf(gamma), mpmath.mpf(sigma_e) ** 2, mpmath.mpf(sigma_y) ** 2
    errors, size = np.zeros(y.shape), x.shape[-1]
    for b in range(len(x)):
        w, P = mpmath.zeros(size, 1), mpmath.mpf(P_0) * mpmath.eye(size)
        for t in range(x.shape[1]):
            key = mpmath.matrix(x[b, t].tolist())
            error = mpmath.mpf(y[b, t].item()) - (w.T * key)[0]
            errors[b, t], Px = error, P * key
            s = (key.T * Px)[0] + r
            w = gamma * (w + Px * (error / s))
            P = gamma**2 * (P - Px * Px.T / s) + q * mpmath.eye(size)
    return errors


@pytest.mark.parametrize("sigma_y", [0.1, 0.01, 1e-3])
@pytest.mark.parametrize("P_0", [1.0, 1e2, 1e4, 1e6])
def test_a_diffuse_start_keeps_the_digits_of_the_filter(P_0, sigma_y):
    """In float32, within 1e-3 of the rms error of the recursion in 60 digits, and of the filter in float64. In bfloat16
    finite.
    """
    law = {"gamma": 0.999, "sigma_e": 1e-3}
    task = DriftingRegression(d=D, n=39, **law)
    prompt = task.sample(2, generator=make_generator("diffuse"), dtype=torch.float32)
    x = prompt.x
    y = prompt.y + sigma_y * torch.randn(prompt.y.shape, generator=make_generator("diffuse noise"))
    layer = Kalman(D, **law, sigma_y=sigma_y, P_0=P_0)
    errors = layer.errors(x, y)
    errors.square().mean().backward()
    assert all(p.grad.dtype == torch.float32 and bool(p.grad.isfinite()) for p in layer.parameters())
    assert errors.dtype == torch.float32
    right = rational_kalman(x, y, **law, sigma_y=sigma_y, P_0=P_0)
    filtered = y - filters.run_filter(filters.kalman(task, sigma_y=sigma_y, P_0=P_0), x.double(), y.double())
    rms = (right[:, D + 4 :] ** 2).mean() ** 0.5
    for peer in (right, filtered.numpy()):
        assert np.abs(errors.detach().double().numpy() - peer).max() <= 1e-3 * rms
    half = layer.bfloat16()
    assert bool(half.errors(x.bfloat16(), y.bfloat16()).isfinite().all())


@pytest.mark.parametrize(("P_0", "sigma_y"), [(1e10, 0.1), (1e12, 1.0)])
def test_the_widest_start_is_finite(P_0, sigma_y):
    """At the bound of P_0 errors are finite in float32 and in bfloat16; beyond it P_0 is refused by name."""
    task = DriftingRegression(d=D, n=299, gamma=0.999, sigma_e=1e-3)
    prompt = task.sample(16, generator=make_generator("widest"), dtype=torch.float32)
    layer = Kalman(D, gamma=0.999, sigma_e=1e-3, sigma_y=sigma_y, P_0=P_0)
    for dtype in (torch.float32, torch.bfloat16):
        errors = layer.to(dtype).errors(prompt.x.to(dtype), prompt.y.to(dtype))
        assert bool(errors.isfinite().all())
    with pytest.raises(ValueError, match=r"P_0 must be at most 1e12 sigma_y\^2"):
        Kalman(D, gamma=0.999, sigma_e=1e-3, sigma_y=sigma_y, P_0=2 * P_0)


def test_wide_states_work_where_layers_do():
    """The covariance in float64 goes along under vmap, which gives the errors prompt by prompt, and under autocast,
    which changes none.
    """
    x, y = (t.float() for t in data())
    for layer in (Kalman(D, gamma=0.99, sigma_e=0.1, sigma_y=0.1, P_0=1e6), Mesa(D, lam=0.9, eps=1e-6)):
        with torch.no_grad():
            expected = layer.errors(x, y)
            each = torch.vmap(lambda a, b, layer=layer: layer.errors(a[None], b[None])[0])(x, y)
            with torch.autocast("cpu", torch.bfloat16):
                cast = layer.errors(x, y)
        assert torch.equal(cast, expected)
        assert close(each, expected, 1e-6)


@pytest.mark.parametrize("eps", [1e-1, 1e-3, 1e-6, 1e-9])
def test_a_weakly_regularised_mesa_is_the_ridge_regression(eps):
    """In float32, within 1e-5 of the largest answer of the faded ridge regression of the same examples in 60 digits."""
    mpmath.mp.dps = 60
    x, y = (t.float()[:2, :20] for t in data())
    right = np.zeros(y.shape)
    for b in range(len(x)):
        G, v = mpmath.zeros(D, D), mpmath.zeros(D, 1)
        for t in range(x.shape[1]):
            key = mpmath.matrix(x[b, t].tolist())
            right[b, t] = (mpmath.lu_solve(G + mpmath.mpf(eps) * mpmath.eye(D), v).T * key)[0]
            G, v = (G + key * key.T) * mpmath.mpf(0.9), (v + y[b, t].item() * key) * mpmath.mpf(0.9)
    assert close(answers(Mesa(D, lam=0.9, eps=eps), x, y).double(), torch.as_tensor(right), 1e-5)
