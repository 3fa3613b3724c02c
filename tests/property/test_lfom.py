"""Laws that first-order methods keep whatever their numbers and the sizes.

Tables have up to five layers, entries up to 3 in size; d to 8, n to 40. Where a risk can equal its floor the tolerance
is 1e-9 of the risk.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from icl.theory import lfom, polynomial_floor

few = settings(max_examples=20)
dims, examples = st.integers(1, 8), st.integers(1, 40)


@st.composite
def tables(draw):
    """A lower-triangular table of any numbers, and a number a layer."""
    layers = draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    return np.tril(rng.uniform(-3, 3, size=(layers, layers))), rng.uniform(-2, 2, size=layers)


def hankel(d, n, layers):
    moments = polynomial_floor.wishart_moments(d, n, 2 * layers)
    return np.array([[moments[i + j] for j in range(layers + 1)] for i in range(layers + 1)])


@given(tables(), dims, examples)
def test_no_table_is_below_the_floor(drawn, d, n):
    """At every layer the risk, as the quadratic form of the moments in the coefficients, is at least the least of that
    degree; and `risks` says the same. To 1e-9 of the form at the coefficients' absolute values, which bounds rounding.
    """
    Gamma, a = drawn
    p, form = lfom.polynomials(Gamma, a), hankel(d, n, len(Gamma))
    values = np.einsum("li,ij,lj->l", p, form, p)
    rounding = 1e-9 * np.einsum("li,ij,lj->l", abs(p), form, abs(p))
    assert (values >= polynomial_floor.optimal_risks(d, n, len(Gamma)) - rounding).all()
    assert (np.abs(lfom.table_risks(Gamma, d, n, a) - values) <= rounding).all()


@given(dims, examples)
@few
def test_least_risks_fall(d, n):
    """The floor starts at d and falls strictly with every layer and with every example; it is never 0, nor below
    d - n, of what n < d inputs cannot show.
    """
    risks = polynomial_floor.optimal_risks(d, n, 6)
    assert risks[0] == d
    assert (np.diff(risks) < 0).all()
    assert (risks > max(d - n, 0)).all()
    assert (polynomial_floor.optimal_risks(d, n + 1, 6)[1:] < risks[1:]).all()


@given(dims)
@few
def test_floors_vanish_with_many_examples(d):
    """As n grows the floor of degree L goes to 0 as n^-L: ten times the examples, 10^-L of the risk, to 2 % at
    n = 10^6, four layers; all steps and roots go to 1.
    """
    ratio = polynomial_floor.optimal_risks(d, 10**7, 4) / polynomial_floor.optimal_risks(d, 10**6, 4)
    np.testing.assert_allclose(ratio, 10.0 ** -np.arange(5), rtol=0.02)
    np.testing.assert_allclose(polynomial_floor.optimal_steps(d, 10**7, 4), 1, atol=0.01)


@given(dims, examples, st.integers(1, 4))
@few
def test_shared_floor_lies_between(d, n, layers):
    """Scalars that all layers share are never below the floor, equal to it at depth 1, above it from depth 2 on, and
    never worse with a layer more; what they reach is theirs: `risks` of their table.
    """
    risks, c = polynomial_floor.shared_floor(d, n, layers)
    floor = polynomial_floor.optimal_risks(d, n, layers)
    np.testing.assert_allclose(risks[:2], floor[:2], rtol=1e-9)
    assert (risks[2:] > floor[2:]).all()
    assert (np.diff(risks) <= 1e-9 * risks[:-1]).all()
    np.testing.assert_allclose(lfom.table_risks(np.tri(layers) * c, d, n)[-1], risks[-1], rtol=1e-9)


@given(tables(), st.floats(-2, 2))
def test_tables_and_their_sums(drawn, scale):
    """`cumulative` is undone by differences, is linear, and every residual polynomial is 1 at 0 with the slope that the
    sum of all steps so far gives.
    """
    Gamma, a = drawn
    Lambda = lfom.cumulative(Gamma)
    np.testing.assert_allclose(np.diff(Lambda, axis=0, prepend=0.0), Gamma, atol=1e-12)
    np.testing.assert_allclose(lfom.cumulative(scale * Gamma), scale * Lambda, atol=1e-12)
    p = lfom.polynomials(Gamma, a)
    assert (p[:, 0] == 1).all()
    np.testing.assert_allclose(p[1:, 1], -(Lambda * a).sum(1), atol=1e-12)


@given(st.integers(1, 4), st.integers(1, 8), st.integers(1, 4), st.integers(0, 2**20))
@few
def test_fitted_registers_do_not_depend_on_coordinates(d, n, layers, seed):
    """Prompts in other coordinates, H -> T H T' with Sigma -> T Sigma T', have the same register, to 1e-6: T has
    condition numbers to 10, and there are 12 prompts, so that four layers do not solve them.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(12, d, n))
    T = np.linalg.qr(rng.normal(size=(d, d)))[0] * rng.uniform(0.3, 3, size=d)
    H = X @ X.swapaxes(1, 2) / n
    moved = T @ H @ T.T
    for one, other in zip(
        polynomial_floor.fitted_registers(H, None, layers),
        polynomial_floor.fitted_registers((moved + moved.swapaxes(1, 2)) / 2, T @ T.T, layers),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)
