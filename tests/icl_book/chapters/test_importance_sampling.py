"""Rare prompts drawn more often, and risks with a control: against densities, exact risks and plain sampling."""

import chance
import numpy as np
import pytest
import torch
from scipy import stats

from icl.models.memformer import error_matrices
from icl.profile import make_generator
from icl.theory import lfom
from icl.theory.lfom import polynomial_floor
from icl_book.chapters.importance_sampling import SCALES, _dual_errors, corrected_risks, sample_scaled

n, d, L = 6, 3, 3
Gamma = torch.as_tensor(lfom.registers(*polynomial_floor.optimal_registers(d, n, L)))


def normal(*shape, name):
    return torch.randn(shape, generator=make_generator(f"rare, {name}"), dtype=torch.float64)


@pytest.mark.parametrize("scales", [SCALES, (1.0,), (0.5, 2.0), (1.0, 1.5, 3.0, 1.0)])
def test_weights_are_densities_over_densities(scales):
    """v is the density of N(0, I) over that of the mixture, number by number, to 1e-9; inputs are the drawn ones,
    times sqrt(c) in turn. Planted: c for sqrt(c), and nd for nd/2, are seen.
    """
    drawn = normal(8, n, d, name="inputs")
    Z, v = sample_scaled(drawn, scales)
    for at, (one, weight) in enumerate(zip(Z, v, strict=True)):
        # To rounding: processors differ in the last bit of a square root.
        torch.testing.assert_close(one, drawn[at] * scales[at % len(scales)] ** 0.5, rtol=1e-15, atol=0.0)
        z = one.flatten().numpy()
        of = [np.exp(stats.norm(scale=c**0.5).logpdf(z).sum()) for c in scales]
        truth = np.exp(stats.norm.logpdf(z).sum())
        assert weight.item() == pytest.approx(truth / np.mean(of), rel=1e-9)
    if 1.0 in scales:
        assert v.max() <= len(scales) / scales.count(1.0)


@pytest.mark.statistical(2)
def test_weighed_means_are_those_of_plain_prompts():
    """Over 60,000 prompts the means of v and of v |z|^2 are 1 and nd.

    Planted: prompts that are weighed by 1 are seen.
    """
    Z, v = sample_scaled(normal(60_000, n, d, name="many"))
    for values, truth in ((v, 1.0), (v * Z.square().sum((1, 2)), n * d)):
        # The three scales take turns: a mean over the three is of one law.
        chance.assert_mean(values.view(-1, 3).mean(1), truth)


def test_multiples_of_the_identity_are_exact():
    """Where A_l = a_l I nothing is measured: risks are those of the closed form, and errors are 0 up to rounding."""
    a = torch.tensor([0.9, 1.1, 0.7], dtype=torch.float64)
    risks, error = corrected_risks(
        a[:, None, None] * torch.eye(d).double(), Gamma, n, 50, generator=make_generator("exact")
    )
    np.testing.assert_allclose(risks, lfom.table_risks(Gamma.numpy(), d, n, a.numpy())[1:], rtol=1e-9)
    assert error.max() < 1e-12


def test_the_slope_is_that_of_finite_differences():
    """The derivative of M_l along E is the central difference, to 1e-8 of its size. Planted: E for E' is seen."""
    E, X = normal(L, d, d, name="E"), normal(4, n, d, name="slope")
    H, A = X.mT @ X / n, normal(L, d, d, name="at") / 2
    M, slope = _dual_errors(H, A, E, Gamma)
    after, before = (error_matrices(H, A + step * E, Gamma) for step in (1e-5, -1e-5))
    torch.testing.assert_close(M, error_matrices(H, A, Gamma), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(slope, (after - before) / 2e-5, rtol=0, atol=1e-8 * slope.abs().max().item())


@pytest.mark.statistical
def test_risks_are_those_of_plain_sampling():
    """Full matrices, 4,000 prompts with the control against 100,000 without, at each of three layers; the control's
    error is below a seventh of the plain one's for as many prompts.

    Planted: weights left out, and the first order left in or added twice, are seen.
    """
    A = torch.eye(d).double() + 0.15 * torch.randn(L, d, d, generator=chance.fixed("rare, A"), dtype=torch.float64)
    # Small steps: a quarter of the mean of the best ones' risks is in one prompt of a thousand.
    table = torch.as_tensor(lfom.momentum_table(0.3, 0.3, L))
    risks, error = corrected_risks(A, table, n, 4_000, generator=make_generator("controlled"))
    X = normal(100_000, n, d, name="plain")
    squares = error_matrices(X.mT @ X / n, A, table).square().sum((-2, -1))[:, 1:]
    plain = squares.std(0).numpy() / len(X) ** 0.5
    chance.assert_z((risks - squares.mean(0).numpy()) / np.hypot(error, plain), skewed=0.01)
    assert (error < plain * (len(X) / 4_000) ** 0.5 / 7).all()


def test_a_generator_decides():
    """The same stream gives the same numbers, and blocks of prompts are cut from one stream."""
    A = torch.eye(d).double() + 0.1 * normal(L, d, d, name="A")
    first, again = (corrected_risks(A, Gamma, n, 2_001, generator=make_generator("again")) for _ in range(2))
    np.testing.assert_array_equal(first, again)


@pytest.mark.usefixtures("as_installed")
def test_bad_input_is_refused_by_name():
    A = torch.eye(2).double().expand(2, 2, 2)
    for given, said in (
        ({"A": A[0]}, "A must have shape"),
        ({"A": A[:0], "Gamma": torch.zeros(0, 0).double()}, "A must hold at least one matrix"),
        ({"Gamma": torch.eye(3).double()}, r"Gamma must have shape \(2, 2\) to match A"),
        ({"Gamma": torch.eye(2)}, "Gamma must have dtype torch.float64 to match A"),
        ({"n": 0}, "n must be"),
        ({"count": 1}, "count must be"),
        ({"generator": None}, "generator must be a torch.Generator"),
    ):
        right = {"A": A, "Gamma": torch.eye(2).double(), "n": 3, "count": 4, "generator": make_generator("bad")}
        with pytest.raises(ValueError, match=said):
            corrected_risks(**(right | given))
    for given, said in (
        ({"scales": ()}, "scales must hold at least one"),
        ({"scales": (1.0, 0.0)}, "scales must be"),
        ({"Z": torch.ones(2, 3)}, "Z must have shape"),
    ):
        with pytest.raises(ValueError, match=said):
            sample_scaled(**({"Z": torch.ones(2, 3, 2)} | given))


@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
def test_risks_that_overflow_are_refused():
    """Matrices so large that a risk, or its standard error, is not finite."""
    for size in (1e100, 1e160):
        with pytest.raises(FloatingPointError, match="risks must be finite, got"):
            corrected_risks(
                size * normal(2, 3, 3, name="large"),
                torch.ones(2, 2).double(),
                5,
                20,
                generator=make_generator("overflow"),
            )
