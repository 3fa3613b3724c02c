"""One layer against paths that are not random: its error by enumeration, and bounds that hold for every path."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icl.tasks.core import LAPLACE, UNIFORM
from icl.tasks.drifts import sinusoids
from icl.theory import one_layer
from icl.theory.one_layer import adversary


def three_points(kurtosis):
    """A symmetric law of variance 1 on -s, 0, s: (value, probability)."""
    s = np.sqrt(kurtosis)
    return [(-s, 0.5 / kurtosis), (0.0, 1 - 1 / kurtosis), (s, 0.5 / kurtosis)]


@pytest.mark.parametrize("kurtosis", [1.0, 1.8, 3.0, 6.0])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 3), (3, 1), (3, 2)])
def test_path_error_by_enumeration(n, d, kurtosis):
    """The error is the mean over every input that a law of three points can draw, written as the layer predicts.

    Up to 3^6 prompts, each weighted with its probability; the query's white input is averaged over by its covariance.
    rtol 1e-12; with a crosstalk of another kurtosis it would be 1e-3 off and more (planted).
    """
    w = np.random.default_rng(n + d).normal(size=(n + 1, d))
    lam, a = 0.7, 0.4
    expected = 0.0
    for cells in itertools.product(three_points(kurtosis), repeat=n * d):
        x = np.array([value for value, _ in cells]).reshape(n, d)
        y = (w[:-1] * x).sum(1)
        guess = a * (lam ** np.arange(n, 0, -1) * y) @ x
        expected += np.prod([p for _, p in cells]) * ((guess - w[-1]) ** 2).sum()
    found = adversary.path_error(w, lam=lam, a=a, kurtosis=kurtosis)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    wrong = adversary.path_error(w, lam=lam, a=a, kurtosis=kurtosis + 0.5)
    assert abs(wrong - expected) > 1e-3 * expected


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("inputs", [None, UNIFORM, LAPLACE])
@pytest.mark.parametrize(("n", "d", "delta"), [(1, 2, 0.3), (20, 2, 0.1), (100, 10, 0.05), (30, 4, 1.2)])
def test_the_rotation_costs_on_average_what_the_circle_does(n, d, delta, inputs):
    """A rotation of random phase and amplitude has the error of the great circle for every layer, and so the same best.

    R^2 = d variance; exact, rtol 1e-12. lam to 1e-4, as the valley is flat, its floor to 1e-9.
    """
    R, law = 1.7, {} if inputs is None else {"inputs": inputs}
    kurtosis = 3.0 if inputs is None else inputs.kurtosis
    w = adversary.great_circle(n, d, R=R, delta=delta)
    task = sinusoids(d, n, omega=adversary.step_angle(R, delta), variance=R**2 / d, **law)
    for lam, a in ((0.9, 0.05), (1.0, 0.1), (0.3, -2.0)):
        found = one_layer.layer_risk(a * np.eye(d), task, lam=lam)
        np.testing.assert_allclose(adversary.path_error(w, lam=lam, a=a, kurtosis=kurtosis), found, rtol=1e-12)
    layer = adversary.best_layer(w, kurtosis=kurtosis)
    lam = one_layer.optimal_forgetting(task)
    np.testing.assert_allclose(layer.value, one_layer.training_error(task, lam=lam), rtol=1e-9)
    np.testing.assert_allclose(
        adversary.path_error(w, lam=layer.lam, a=layer.a, kurtosis=kurtosis), layer.value, rtol=1e-12
    )
    if n > 1 and layer.lam > 1 / 400:
        assert abs(layer.lam - lam) < 1e-4


def lengths(w):
    return np.linalg.norm(w, axis=1), np.linalg.norm(np.diff(w, axis=0), axis=1)


def test_paths_keep_their_limits():
    """Circle and line end at R e_1, move delta a step and no more, and never leave the ball; the circle, the sphere."""
    for delta, d in itertools.product((0.0, 0.05, 0.7, 2.0, 5.0), (1, 2, 5)):
        paths = [adversary.straight_line(40, d, R=1.5, delta=delta)]
        if d > 1:
            circle = adversary.great_circle(40, d, R=1.5, delta=delta)
            np.testing.assert_allclose(lengths(circle)[0], 1.5, rtol=1e-14)
            np.testing.assert_allclose(lengths(circle)[1], min(delta, 3.0), atol=1e-14)
            half = adversary.great_circle(40, d, R=1.5, delta=delta, turn=np.pi)
            if 40 * adversary.step_angle(1.5, delta) >= np.pi:
                np.testing.assert_allclose(half[0], -half[-1], atol=1e-14)
            paths += [circle, half]
        for w in paths:
            assert w.shape == (41, d)
            np.testing.assert_array_equal(w[-1], 1.5 * np.eye(d)[0])
            assert lengths(w)[0].max() <= 1.5 * (1 + 1e-14)
            assert lengths(w)[1].max() <= delta + 1e-14


def wander(seed, n, d, R, delta, on_sphere):
    """A path within the limits with nothing special about it."""
    rng = np.random.default_rng(seed)
    w = np.empty((n + 1, d))
    w[-1] = rng.normal(size=d)
    w[-1] *= R / np.linalg.norm(w[-1])
    angle, turn = adversary.step_angle(R, delta), rng.normal(size=d)
    for i in range(n - 1, -1, -1):
        turn = rng.uniform() * turn + rng.normal(size=d)
        if on_sphere:
            side = turn - (turn @ w[i + 1]) / R**2 * w[i + 1]
            side /= max(np.linalg.norm(side), 1e-9)
            by = angle * rng.choice([1.0, rng.uniform()])
            w[i] = np.cos(by) * w[i + 1] + R * np.sin(by) * side
        else:
            w[i] = w[i + 1] + delta * turn / np.linalg.norm(turn)
            w[i] /= max(1.0, np.linalg.norm(w[i]) / R)
    return w


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 12),
    st.integers(1, 5),
    st.floats(0.02, 2.5),
    st.floats(0.0, 1.0),
    st.floats(-0.5, 1.0),
    st.sampled_from([1.0, 3.0, 6.0]),
)
def test_no_path_is_above_the_bounds(seed, n, d, delta, lam, a, kurtosis):
    """No path of the ball has an error above `upper_bound`, and none of the sphere above `sphere_bound`.

    Whichever path the bounds were made from: a random one, the line and, but for d = 1, the circle. Tolerance 1e-10.
    """
    layer = {"lam": lam, "a": a, "kurtosis": kurtosis}
    limits = {"R": 1.3, "delta": delta}
    on_sphere = [wander(seed, n, d, **limits, on_sphere=True)] if d > 1 else []
    in_ball = [wander(seed, n, d, **limits, on_sphere=False), adversary.straight_line(n, d, **limits), *on_sphere]
    candidates = [in_ball[0], in_ball[1]]
    if d > 1:
        on_sphere.append(adversary.great_circle(n, d, **limits))
        candidates.append(on_sphere[-1])
    for w in candidates:
        for paths, bound in ((in_ball, adversary.upper_bound), (on_sphere, adversary.sphere_bound)):
            limit = bound(w, **limits, **layer)
            for path in paths:
                assert adversary.path_error(path, **layer) <= limit * (1 + 1e-10) + 1e-10


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("n", "d", "delta"), [(1, 3, 0.5), (5, 2, 0.5), (20, 2, 0.1), (20, 10, 0.1), (100, 10, 0.01), (100, 30, 0.02)]
)
def test_the_circle_is_the_worst_path_on_the_sphere(n, d, delta):
    """Where n steps turn 2.5 radians and less, the layer best against the great circle is minimax on the sphere.

    Its error there equals a bound on all paths of the sphere, to 1e-9; and it is a saddle: layers nearby do worse on
    the circle.
    """
    limits = {"R": 1.0, "delta": delta}
    assert n * adversary.step_angle(**limits) < 2.6
    layer, bound = adversary.minimax_on_sphere(n, d, **limits)
    assert abs(bound - layer.value) < 1e-9
    w = adversary.great_circle(n, d, **limits)
    for lam, a in ((0.9 * layer.lam, layer.a), (layer.lam, 1.1 * layer.a), (layer.lam, 0.9 * layer.a)):
        assert adversary.path_error(w, lam=lam, a=a) > layer.value


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(("n", "d", "delta"), [(100, 10, 0.05), (100, 10, 0.1), (100, 2, 0.2), (20, 3, 0.5)])
def test_beyond_half_a_turn_stopping_is_worse(n, d, delta):
    """Where n steps make more than half a turn, a path that waits and turns less is worse than the circle, but not by
    much: 3e-3 of R^2 at most, which no path on the sphere exceeds.
    """
    limits = {"R": 1.0, "delta": delta}
    assert n * adversary.step_angle(**limits) > np.pi
    layer, bound = adversary.minimax_on_sphere(n, d, **limits)
    turned = [adversary.great_circle(n, d, **limits, turn=turn) for turn in np.linspace(2.5, np.pi, 30)]
    worst = max(adversary.path_error(w, lam=layer.lam, a=layer.a) for w in turned)
    assert layer.value + 1e-6 < worst <= bound + 1e-12 < layer.value + 3e-3


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(("n", "d", "delta"), [(50, 10, 0.1), (50, 30, 0.1), (60, 30, 0.2)])
def test_the_line_is_the_worst_path_in_the_ball(n, d, delta):
    """Here the layer that is best against the straight line has no worse path in the ball: it is minimax, to 1e-9.

    And the line is worse than the circle for the layer that is best against the circle.
    """
    limits = {"R": 1.0, "delta": delta}
    layer, bound = adversary.minimax_in_ball(n, d, **limits)
    assert abs(bound - layer.value) < 1e-9
    of_circle, _ = adversary.minimax_on_sphere(n, d, **limits)
    line = adversary.straight_line(n, d, **limits)
    assert adversary.path_error(line, lam=of_circle.lam, a=of_circle.a) > of_circle.value + 1e-2
    assert layer.value > of_circle.value


def test_in_the_ball_one_path_may_not_decide():
    """For short steps the layer best against the line does worse on the circle: its value is no bound, as the second
    number says.
    """
    layer, bound = adversary.minimax_in_ball(100, 10, R=1.0, delta=0.01)
    circle = adversary.great_circle(100, 10, R=1.0, delta=0.01)
    assert layer.value + 0.05 < adversary.path_error(circle, lam=layer.lam, a=layer.a) < bound


@pytest.mark.one_draw("one start of a search")
@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("d", [2, 3, 10])
def test_the_search_finds_the_line(d):
    """From the circle, from random walks and from noise the search climbs to the straight line, as far as its bound.

    Paths it returns keep the limits and are no better than where they began; none is above the bound of the line.
    Within 1e-3 of it, from a mean of 0.5 and more below.
    """
    n, limits = 20, {"R": 1.0, "delta": 0.1}
    circle, line = adversary.great_circle(n, d, **limits), adversary.straight_line(n, d, **limits)
    layer = adversary.best_layer(circle)
    against = {"lam": layer.lam, "a": layer.a}
    bound = adversary.upper_bound(line, **limits, **against)
    np.testing.assert_allclose(bound, adversary.path_error(line, **against), rtol=1e-9)
    rng = np.random.default_rng(0)
    walks = [wander(seed, n, d, **limits, on_sphere=False) for seed in range(3)]
    for start in (circle, line, *walks, rng.normal(size=(n + 1, d))):
        found = adversary.worst_path(start, **limits, **against)
        assert lengths(found)[0].max() <= 1 + 1e-12
        assert lengths(found)[1].max() <= 0.1 + 1e-12
        error = adversary.path_error(found, **against)
        assert error <= bound + 1e-12
        assert error > bound - 1e-3
        if start is not line and lengths(start)[1].max() <= 0.1 + 1e-12:
            assert error > adversary.path_error(start, **against) + 1e-3


def test_the_search_climbs_by_the_right_slope():
    """The slope that the search follows is the error's: with it wrong L-BFGS stops early. Here for d = 1, where a path
    of signs is a corner of the limits (delta = 2 R): from any start within the limits none of 2^6 corners is better.
    """
    lam, a, n = 0.6, 0.5, 5
    corners = np.array(list(itertools.product([-1.0, 1.0], repeat=n + 1)))[..., None]
    worst = adversary.path_error(corners, lam=lam, a=a).max()
    rng = np.random.default_rng(1)
    found = [
        adversary.path_error(
            adversary.worst_path(rng.uniform(-1, 1, size=(n + 1, 1)), R=1.0, delta=2.0, lam=lam, a=a), lam=lam, a=a
        )
        for _ in range(20)
    ]
    assert max(found) <= worst + 1e-12
    np.testing.assert_allclose(max(found), worst, rtol=1e-9)


@pytest.mark.parametrize(
    "w", [np.zeros((7, 3)), adversary.great_circle(6, 3, R=1.0, delta=0.1)], ids=["zero", "inside"]
)
@pytest.mark.parametrize("lam", [0.0, 0.8, 1.1])
def test_a_path_that_touches_no_limit_bounds_all_the_same(w, lam):
    """No multiplier is asked of it, so that alpha_i is G's largest eigenvalue throughout: R^2 (n + 1) of it. SciPy's
    least squares without a column ended the process. With delta = 0 paths stand still and all touch that limit.
    """
    layer = {"lam": lam, "a": 0.1}
    c = 0.1 * lam ** np.arange(6.0, 0, -1)
    G = np.outer([*c, -1], [*c, -1]) + np.diag([*(4 * c**2), 0])
    found = adversary.upper_bound(w, R=2.0, delta=0.2, **layer)
    np.testing.assert_allclose(found, 4 * 7 * np.linalg.eigvalsh(G)[-1], rtol=1e-12)
    line = adversary.straight_line(6, 3, R=2.0, delta=0.2)
    assert adversary.path_error(line, **layer) <= found
    assert adversary.upper_bound(np.zeros((7, 3)), R=2.0, delta=0.0, **layer) >= adversary.path_error(
        np.full((7, 3), 2 / 3**0.5), **layer
    )
