"""The one-layer theory against derivations of its own: quadrature, autograd, linear systems, limits."""

import functools
import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from icl.models import gla as model
from icl.tasks import DriftingRegression, Prompt, SmoothDrift, StationaryRegression
from icl.theory import gla, moments, printed


def covariance(d, seed):
    """A random covariance with unequal eigenvalues and correlated coordinates."""
    root = np.random.default_rng(seed).normal(size=(d, d))
    return root @ root.T / d


def tasks(d, n, seed=0):
    Lambda = covariance(d, seed)
    return [
        StationaryRegression(d=d, n=n, Lambda=Lambda),
        DriftingRegression(d=d, n=n, gamma=0.9, sigma_w=1.0, sigma_e=0.3, Lambda=Lambda),
        DriftingRegression(d=d, n=n, gamma=1.0, sigma_w=1.0, sigma_e=0.3, Lambda=Lambda),
        DriftingRegression(d=d, n=n, gamma=1.1, sigma_w=0.5, sigma_e=0.3, Lambda=Lambda),
        SmoothDrift(d=d, n=n, harmonics=2, sigma_w=1.5, Lambda=Lambda),
    ]


def name(task):
    return f"{type(task).__name__}, gamma = {task.gamma}" if hasattr(task, "gamma") else type(task).__name__


several_tasks = pytest.mark.parametrize("task", tasks(4, 12), ids=name)


@several_tasks
@pytest.mark.parametrize("lam", [0.5, 0.9, 1.0])
def test_training_error_is_printed_16(task, lam):
    """The reduced training error is (16) as the paper prints it, traces of matrix products, for a random covariance.

    It is also the risk at the optimum's A. rtol 1e-9: inverses of matrices whose condition number is below 1e3.
    """
    m, tilde = moments.of(task, lam), gla.lambda_tilde(task, lam=lam)
    assert np.linalg.cond(tilde) < 1e3
    literal = printed.training_error(m, task.Lambda, tilde)
    np.testing.assert_allclose(gla.training_error(task, lam=lam), literal, rtol=1e-9)
    A = gla.optimum(task, lam=lam).A
    np.testing.assert_allclose(gla.risk(A, task, lam=lam), literal, rtol=1e-9)


def test_a_singular_covariance_is_taken():
    """The error for inputs that lack a direction is that of the same task in the directions they have. rtol 1e-9."""
    Lambda = np.diag([2.0, 1.0, 0.0])
    flat = DriftingRegression(d=3, n=8, gamma=0.9, Lambda=Lambda)
    full = DriftingRegression(d=2, n=8, gamma=0.9, Lambda=Lambda[:2, :2])
    lam = np.array([0.4, 0.9, 1.0])
    np.testing.assert_allclose(gla.training_error(flat, lam=lam), gla.training_error(full, lam=lam), rtol=1e-9)


def test_arrays_of_forgetting_factors_are_taken():
    """Errors, risks and xi of an array of lam are those of its entries. rtol 1e-13: the order of short sums."""
    task = DriftingRegression(d=3, n=6, gamma=0.9)
    lams, A = np.array([0.2, 0.7, 1.0]), covariance(3, 5)
    for function in (gla.training_error, gla.identity_error, gla.xi, functools.partial(gla.risk, A)):
        each = [function(task, lam=lam) for lam in lams]
        np.testing.assert_allclose(function(task, lam=lams), each, rtol=1e-13)


@several_tasks
def test_optimum_minimises_the_risk(task):
    """The optimum's A is where the risk's gradient vanishes and from where every direction leads up.

    The risk is written here once more, from the moments of Gaussian inputs, and differentiated by torch.
    Gradient below 1e-12 of the sum of its two cancelling terms; at 50 random perturbations the risk is larger, by the
    positive quadratic form that the second derivative promises (rtol 1e-6, as it is a difference of two risks).
    """
    lam = 0.9
    optimum = gla.optimum(task, lam=lam)
    kernel, Lambda = torch.as_tensor(task.weight_kernel()), torch.as_tensor(task.Lambda)
    a = lam ** torch.arange(task.n, 0, -1, dtype=torch.float64)
    pairs = a[:, None] * a * kernel[:-1, :-1]
    repeated = pairs.diagonal().sum()
    # E v v' for v = sum_i a_i y_i x_i: E (x x' x x') = 2 Lambda^2 + tr(Lambda) Lambda, and Lambda^2 for different x.
    second = repeated * (2 * Lambda @ Lambda + Lambda.trace() * Lambda) + (pairs.sum() - repeated) * Lambda @ Lambda
    linear = (a * kernel[:-1, -1]).sum() * Lambda @ Lambda

    def risk(A):
        return torch.trace(A @ Lambda @ A.T @ second) - 2 * torch.trace(A @ linear)

    A = torch.tensor(optimum.A, requires_grad=True)
    (gradient,) = torch.autograd.grad(risk(A), A)
    assert gradient.abs().max() < 1e-12 * 2 * linear.abs().sum()

    generator = np.random.default_rng(0)
    for _ in range(50):
        step = generator.normal(size=(4, 4)) * 10.0 ** generator.uniform(-2, 1)
        curvature = np.trace(step @ task.Lambda @ step.T @ second.numpy())
        assert curvature > 0
        rise = gla.risk(optimum.A + step, task, lam=lam) - gla.risk(optimum.A, task, lam=lam)
        np.testing.assert_allclose(rise, curvature, rtol=1e-6)


@several_tasks
def test_optimum_has_the_stated_shape(task):
    """(14): W_V has one entry, in its corner; W_KQ one block, Lambda~^-1 scaled; they balance and multiply to A.

    Balance means W_V's corner squared equals the squared norm of W_KQ. rtol 1e-12.
    """
    o = gla.optimum(task, lam=0.8)
    corner, block = o.W_V[-1, -1], o.W_KQ[:-1, :-1]
    assert np.count_nonzero(o.W_V) == 1
    assert not o.W_KQ[-1].any()
    assert not o.W_KQ[:, -1].any()
    np.testing.assert_allclose(corner * block, o.A, rtol=1e-12)
    np.testing.assert_allclose(corner**2, (block**2).sum(), rtol=1e-12)
    D1 = float(moments.of(task, 0.8).D1)
    unit = D1 * np.eye(4)
    np.testing.assert_allclose(o.A @ gla.lambda_tilde(task, lam=0.8), unit, rtol=0, atol=1e-12 * D1)


def gaussian_nodes(factors, points):
    """Gauss-Hermite nodes and weights for `factors` independent standard normal numbers: a product rule."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    grid = np.array(list(itertools.product(nodes, repeat=factors)))
    mass = np.array(list(itertools.product(weights / weights.sum(), repeat=factors))).prod(-1)
    return grid, mass


def expected_square(task, lam, predict):
    """E (y_hat - y)^2 over x and w by quadrature, exact for what is polynomial of degree 5 in x and 3 in w."""
    d, n = task.d, task.n
    x_nodes, x_mass = gaussian_nodes((n + 1) * d, 3)
    w_nodes, w_mass = gaussian_nodes((n + 1) * d, 2)
    values, vectors = np.linalg.eigh(task.Lambda)
    x = x_nodes.reshape(-1, n + 1, d) @ (vectors * np.sqrt(values)).T
    values, vectors = np.linalg.eigh(task.weight_kernel())
    w = np.einsum("ij,bjd->bid", vectors * np.sqrt(values.clip(min=0)), w_nodes.reshape(-1, n + 1, d))
    total = 0.0
    for weights, mass in zip(w, w_mass, strict=True):
        y = np.einsum("bti,ti->bt", x, weights)
        total += mass * (x_mass @ (predict(x, y) - y[:, -1]) ** 2)
    return total


@pytest.mark.parametrize("lam", [0.7, 1.0])
@pytest.mark.parametrize(("d", "n"), [(1, 1), (1, 3), (2, 2)])
def test_risk_is_a_brute_force_expectation(d, n, lam):
    """The risk of any A is E (y_hat - y)^2, as an exact quadrature over every input and every weight finds it.

    The squared error is a polynomial: of degree 4 in each input, 2 in each weight, so that 3 and 2 Gauss-Hermite nodes
    a number integrate it without error. A is random, not the optimum; the covariance anisotropic. rtol 1e-9: sums of
    up to 50,000 positive terms.
    """
    A = np.random.default_rng(3).normal(size=(d, d))
    for task in tasks(d, n, seed=7):
        a = lam ** np.arange(n, 0, -1)

        def predict(x, y, a=a):
            return np.einsum("t,bt,bti,ij,bj->b", a, y[:, :-1], x[:, :-1], A, x[:, -1])

        np.testing.assert_allclose(gla.risk(A, task, lam=lam), expected_square(task, lam, predict), rtol=1e-9)


def test_training_error_is_what_the_model_makes():
    """The paper's layer with the optimal weights (14) has exactly the training error (16), by the same quadrature.

    Here the prediction is that of the model over the tokens, attention step by step. rtol 1e-9.
    """
    lam = 0.8
    task = DriftingRegression(d=2, n=2, gamma=0.9, sigma_w=1.0, sigma_e=0.3, Lambda=covariance(2, 7))
    optimum = gla.optimum(task, lam=lam)
    W_V, W_KQ = torch.as_tensor(optimum.W_V), torch.as_tensor(optimum.W_KQ)

    def predict(x, y):
        inputs = torch.as_tensor(x)
        prompt = Prompt(inputs, torch.as_tensor(y), inputs)
        return model.predict(prompt.tokens(), W_V, W_KQ, lam).numpy()

    np.testing.assert_allclose(gla.training_error(task, lam=lam), expected_square(task, lam, predict), rtol=1e-9)


@pytest.mark.parametrize("task", [*tasks(3, 50), DriftingRegression(d=10, n=100, gamma=0.95)], ids=name)
@pytest.mark.parametrize("upper", [0.7, 1.0, 1.2])
def test_optimal_forgetting_is_the_grid_minimum(task, upper):
    """lam* is within one step of the best of 20,001 forgetting factors in (0, upper], and its error no larger than
    theirs.

    "No larger" leaves 1e-12 for rounding.
    """
    grid = np.linspace(0, upper, 20_002)[1:]
    errors = gla.training_error(task, lam=grid)
    best = gla.optimal_forgetting(task, upper=upper)
    assert 0 < best <= upper
    assert abs(best - grid[errors.argmin()]) <= grid[0] * (1 + 1e-9)
    assert gla.training_error(task, lam=best) <= errors.min() * (1 + 1e-12)


def test_growing_weights_want_more_than_one():
    """For gamma > 1 the best forgetting factor is above 1 once that is allowed, and 1 itself while it is not.

    One example alone gives lam nothing to do: the error does not depend on it, and the largest lam is returned.
    """
    task = DriftingRegression(d=10, n=100, gamma=1.02)
    assert gla.optimal_forgetting(task) == 1.0
    assert gla.optimal_forgetting(task, upper=1.1) > 1.0
    assert gla.optimal_forgetting(DriftingRegression(d=10, n=1, gamma=0.9), upper=0.8) == 0.8


def stationary_drift(d, n, gamma, Lambda=None):
    """A drift that starts with the variance it keeps."""
    sigma_e = 0.1
    return DriftingRegression(
        d=d, n=n, gamma=gamma, sigma_w=sigma_e / np.sqrt(1 - gamma**2), sigma_e=sigma_e, Lambda=Lambda
    )


@pytest.mark.parametrize("d", [1, 10])
@pytest.mark.parametrize("gamma", [0.5, 0.8, 0.95, 0.99])
def test_kalman_pole_is_the_limit(gamma, d):
    """For n = 2000 the best forgetting factor is the closed form's pole with crosstalk d + 1.

    lam^2000 < 1e-10 here, so that n is infinite to that many digits. Tolerance 1e-6: a minimum of a function known to
    1e-15 is known to the square root of that, times its width.
    """
    pole = gla.kalman_pole(gamma, crosstalk=d + 1)
    assert pole**2000 < 1e-10
    assert abs(gla.optimal_forgetting(stationary_drift(d, 2000, gamma)) - pole) < 1e-6


def test_kalman_pole_solves_its_equation():
    """The pole is the root of lam^2 - b lam + 1 = 0 below one, and below gamma; arrays broadcast.

    rtol 1e-12, against the residual's largest term; gamma = 0.9999 included, where the roots nearly meet.
    """
    gamma = np.array([1e-3, 0.5, 0.9, 0.9999])[:, None]
    crosstalk = np.array([1.0, 2.0, 11.0, 1e4])
    lam = gla.kalman_pole(gamma, crosstalk=crosstalk)
    assert lam.shape == (4, 4)
    assert (lam > 0).all()
    assert (lam < gamma).all()
    b = ((1 + gamma**2) + (1 - gamma**2) / crosstalk) / gamma
    np.testing.assert_allclose(lam**2 + 1, b * lam, rtol=1e-12)


def test_an_anisotropic_input_wants_a_pole_a_direction():
    """In an eigendirection of Lambda with eigenvalue s, the best forgetting factor is the pole with crosstalk 1 + tr /
    s.

    The error (16) is a sum over directions; each is minimised alone here, at n = 2000. The one shared lam* lies between
    the poles. Tolerance 1e-6, as for equal directions.
    """
    s = np.array([0.2, 1.0, 3.0])
    task = stationary_drift(3, 2000, 0.9, Lambda=np.diag(s))
    poles = gla.kalman_pole(0.9, crosstalk=1 + s.sum() / s)
    for direction, pole in zip(s, poles, strict=True):

        def error(lam, direction=direction):
            m = moments.of(task, lam)
            tilde = m.D2 * (2 * direction + s.sum()) + m.D3 * direction
            return float(m.D4 * direction - (direction * m.D1) ** 2 / tilde)

        found = minimize_scalar(error, bounds=(0.3, 0.95), method="bounded", options={"xatol": 1e-10})
        assert abs(found.x - pole) < 1e-6
    assert poles.min() < gla.optimal_forgetting(task) < poles.max()


@pytest.mark.parametrize("d", [1, 10])
@pytest.mark.parametrize("gamma", [0.5, 0.8, 0.95, 0.99])
def test_steady_error_is_the_limit(gamma, d):
    """For n = 2000 the error at the best forgetting factor is the closed form. rtol 1e-9: lam^2000 < 1e-10, and it is
    squared.
    """
    task = stationary_drift(d, 2000, gamma)
    error = gla.training_error(task, lam=gla.optimal_forgetting(task))
    np.testing.assert_allclose(gla.steady_error(task), error, rtol=1e-9)


def test_best_positions_are_exponential():
    """Among all weightings of the past, exponential ones are best, with the pole for their ratio.

    The best weights solve a linear system: the error d (D4 - D1^2 / ((d + 2) D2 + D3)) is least where
    [K + (d + 1) diag(K)] a is proportional to the query's column of K. For a stationary start their ratios from one
    position to the next are the pole, except near the far end of the past (the last 150 of 400 positions are looked
    at, ratio to the power of 250 below 1e-18); their error is that of lam* and the closed form. rtol 1e-9.
    """
    d, n, gamma = 10, 400, 0.9
    task = stationary_drift(d, n, gamma)
    kernel = task.weight_kernel()
    past = kernel[:n, :n]
    weights = np.linalg.solve(past + (d + 1) * np.diag(np.diag(past)), kernel[:n, n])
    pole = gla.kalman_pole(gamma, crosstalk=d + 1)
    np.testing.assert_allclose(weights[-151:-1] / weights[-150:], pole, rtol=1e-9)
    m = moments.from_kernel(weights, kernel)
    error = d * (m.D4 - m.D1**2 / ((d + 2) * m.D2 + m.D3))
    np.testing.assert_allclose(error, gla.training_error(task, lam=gla.optimal_forgetting(task)), rtol=1e-9)
    np.testing.assert_allclose(error, gla.steady_error(task), rtol=1e-9)


@several_tasks
def test_nothing_remembered_is_the_zero_predictor(task):
    """At lam = 0 the error is that of answering zero, which is the risk of A = 0 at every lam: E y^2. rtol 1e-13."""
    zero = task.weight_kernel()[-1, -1] * np.trace(task.Lambda)
    np.testing.assert_allclose(gla.zero_predictor(task), zero, rtol=1e-13)
    np.testing.assert_allclose(gla.training_error(task, lam=0.0), zero, rtol=1e-13)
    np.testing.assert_allclose(gla.risk(np.zeros((4, 4)), task, lam=0.7), zero, rtol=1e-13)
    np.testing.assert_allclose(gla.risk(covariance(4, 1), task, lam=0.0), zero, rtol=1e-13)
    assert (gla.training_error(task, lam=np.linspace(0.05, 1.0, 20)) < zero).all()


@pytest.mark.parametrize("d", [1, 3, 10])
def test_identity_covariance_simplifies(d):
    """For Lambda = I the error is d (D4 - D1^2 / a) with a = (d + 2) D2 + D3, and xi = D1^2 / D2 is its limit for large
    d.

    What is explained, d D1^2 / a, is xi d / (d + 2 + D3 / D2): below xi, and towards it as d grows. rtol 1e-12.
    """
    task = DriftingRegression(d=d, n=20, gamma=0.9)
    lam = np.array([0.3, 0.8, 1.0])
    np.testing.assert_allclose(gla.identity_error(task, lam=lam), gla.training_error(task, lam=lam), rtol=1e-12)
    m = moments.of(task, lam)
    explained = gla.zero_predictor(task) - gla.training_error(task, lam=lam)
    np.testing.assert_allclose(explained, gla.xi(task, lam=lam) * d / (d + 2 + m.D3 / m.D2), rtol=1e-12)


def test_shifted_tasks_are_the_risk_of_another_tasks_optimum():
    """(19): trained on one task and tested on another, the error is above the other's own and equals it for itself."""
    trained, tested = (DriftingRegression(d=3, n=20, gamma=g, Lambda=covariance(3, 2)) for g in (0.8, 0.95))
    A = gla.optimum(trained, lam=0.9).A
    own = gla.training_error(tested, lam=0.9)
    assert gla.risk(A, tested, lam=0.9) > own * (1 + 1e-3)
    np.testing.assert_allclose(gla.risk(A, trained, lam=0.9), gla.training_error(trained, lam=0.9), rtol=1e-9)


def test_stationary_weights_must_be_isotropic():
    """The theory is for weights with independent, equal coordinates: a stationary task with another Sigma_w is refused.

    Taken silently, diag(4, 1) would be given the error of the identity.
    """
    task = StationaryRegression(d=2, n=5, Sigma_w=np.diag([4.0, 1.0]))
    for function in (gla.training_error, gla.optimum, gla.lambda_tilde, gla.identity_error, gla.xi):
        with pytest.raises(ValueError, match="Sigma_w"):
            function(task, lam=0.9)
    with pytest.raises(ValueError, match="Sigma_w"):
        gla.risk(np.eye(2), task, lam=0.9)
    with pytest.raises(ValueError, match="Sigma_w"):
        gla.zero_predictor(task)
    with pytest.raises(ValueError, match="Sigma_w"):
        gla.optimal_forgetting(task)
