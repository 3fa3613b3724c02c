"""The S6 layer: its forms agree, the future never changes the past, and what collapses is the layer.

Tolerances. Outputs and gradients are sums of at most 40 x 5 products of at most 45 factors below 1, computed in
float64: rounding is within 1e-12 of the same sums over absolute values, which for outputs is `scan` of |u|, |B|, |C|.
Gradients of A and Delta are differences of such sums, and are held to 1e-9 of the largest entry or of the same gradient
at absolute values, whichever is larger.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from icl.models import operators, s6
from icl.models.s6 import S6, FixedStep, Selective, Static, Step
from icl.profile import streams
from icl.tasks import StationaryRegression

ROUNDING = 1e-12
LENGTHS = st.one_of(st.integers(1, 40), st.sampled_from([1, 2, 15, 16, 17, 31, 32, 33]))


@st.composite
def inputs(draw, rates=("one", "many"), lengths=LENGTHS):
    """(u, A, B, C, Delta) of awkward sizes; steps from 1e-3 to 10, one row for all prompts or one each."""
    batch, time = draw(st.integers(1, 3)), draw(lengths)
    channels, d_h = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    generator = streams("s6", seed=draw(st.integers(0, 2**20)))

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    A = -torch.exp(normal(1 if draw(st.sampled_from(rates)) == "one" else d_h))
    rows = draw(st.sampled_from([1, batch]))
    Delta = 10 ** (4 * torch.rand(rows, time, generator=generator, dtype=torch.float64) - 3)
    return normal(batch, time, channels), A, normal(batch, time, d_h), normal(batch, time, d_h), Delta


def forms(arguments, size):
    found = [s6.scan_chunked(*arguments), s6.scan_chunked(*arguments, size=size)]
    return [*found, s6.dual(*arguments)] if arguments[1].shape == (1,) else found


@given(inputs(), st.integers(1, 50))
def test_forms_agree(arguments, size):
    """`chunked`, at its own size and at any other, and for one rate `dual`, give what `scan` gives.

    Tolerance: rounding, see the file's head.
    """
    u, A, B, C, Delta = arguments
    expected = s6.scan(*arguments)
    limit = ROUNDING * s6.scan(u.abs(), A, B.abs(), C.abs(), Delta)
    for found in forms(arguments, size):
        assert ((found - expected).abs() <= limit).all()


def gradients(form, arguments, seen):
    leaves = [a.clone().requires_grad_() for a in arguments]
    return torch.autograd.grad((form(*leaves) * seen).sum(), leaves)


@given(inputs(), st.integers(1, 50))
def test_gradients_agree(arguments, size):
    """The forms agree in the gradients of all five arguments too. Tolerance: see the file's head."""
    u, A, B, C, Delta = arguments
    seen = torch.randn(u.shape, generator=streams("seen"), dtype=torch.float64)
    expected = gradients(s6.scan, arguments, seen)
    limits = gradients(s6.scan, (u.abs(), A, B.abs(), C.abs(), Delta), seen.abs())
    several = [s6.scan_chunked, lambda *a: s6.scan_chunked(*a, size=size)]
    for form in [*several, s6.dual] if A.shape == (1,) else several:
        for got, want, limit in zip(gradients(form, arguments, seen), expected, limits, strict=True):
            assert torch.isfinite(got).all()
            assert (got - want).abs().max() <= 1e-9 * max(want.abs().max(), limit.abs().max())


@given(inputs(), st.data())
def test_the_future_never_changes_the_past(arguments, data):
    """Replacing every token after time t, steps included, leaves outputs up to t as they were, bit for bit."""
    u, A, B, C, Delta = (a.clone() for a in arguments)
    t = data.draw(st.integers(1, u.shape[1]))
    for a in (u, B, C):
        a[:, t:] = 100 * torch.randn(a[:, t:].shape, generator=streams("another future"), dtype=a.dtype)
    Delta[:, t:] = 3.0
    for before, after in zip(forms(arguments, 7), forms((u, A, B, C, Delta), 7), strict=True):
        assert torch.equal(before[:, :t], after[:, :t])


@given(inputs(), st.data())
def test_prompts_and_channels_are_independent(arguments, data):
    """Replacing one prompt leaves the others as they were; replacing a channel of u in `scan` leaves the other
    channels. To rounding: the width of a product may change the order of its sums.
    """
    u, A, B, C, Delta = arguments
    row = data.draw(st.integers(0, len(u) - 1))
    channel = data.draw(st.integers(0, u.shape[2] - 1))
    limit = ROUNDING * s6.scan(u.abs(), A, B.abs(), C.abs(), Delta)
    other_row, other_channel = u.clone(), u.clone()
    other_row[row] = 0.5
    other_channel[:, :, channel] = 0.5
    keep = torch.arange(len(u)) != row
    kept = torch.arange(u.shape[2]) != channel
    for before, rows, channels in zip(
        forms(arguments, 5),
        forms((other_row, A, B, C, Delta), 5),
        forms((other_channel, A, B, C, Delta), 5),
        strict=True,
    ):
        assert ((before - rows).abs() <= limit)[keep].all()
        assert ((before - channels).abs() <= limit)[..., kept].all()


@pytest.mark.parametrize("size", [1, 5, 16, 40])
def test_blocks_are_as_long_as_asked_for(size, monkeypatch):
    """With one rate, too, `chunked` works in blocks of the size it is given, 16 by default."""
    asked = []
    inner = operators.chunked
    monkeypatch.setattr(
        operators, "chunked", lambda *a, size: (asked.append(size), inner(*a, size=size))[1], raising=True
    )
    u = torch.ones(1, 20, 2, dtype=torch.float64)
    arguments = (u, -torch.ones(1, dtype=torch.float64), u, u, torch.ones(1, 20, dtype=torch.float64))
    s6.scan_chunked(*arguments, size=size)
    s6.scan_chunked(*arguments)
    assert asked == [size, 16]


@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 20), st.floats(0.01, 3), st.floats(-3, -0.1), st.data())
def test_what_collapses_is_the_layer(d, d_h, N, Delta, A, data):
    """`collapsed` and `read` give what the layer gives, biases included, whatever the sizes, step and rate.

    Tolerance 1e-9 of the largest output.
    """
    generator = streams("collapse", seed=data.draw(st.integers(0, 2**20)))
    layer = S6(Selective(d + 1, d_h), Selective(d + 1, d_h), FixedStep(Delta), torch.tensor([A], dtype=torch.float64))
    with torch.no_grad():
        for part in (layer.B, layer.C):
            part.W.copy_(torch.randn(part.W.shape, generator=generator, dtype=torch.float64))
            part.b.copy_(torch.randn(part.b.shape, generator=generator, dtype=torch.float64))
    prompt = StationaryRegression(d, N).sample(3, generator=generator, dtype=torch.float64)
    u = prompt.tokens()
    whole = layer(u)
    limit = 1e-9 * whole.abs().max()
    assert (s6.collapsed(layer, u, s6.s6_features(u, layer)) - whole).abs().max() <= limit
    assert (s6.read_out(layer, s6.statistics(prompt, layer)) - layer.predictions(prompt)).abs().max() <= limit


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", [s6.scan, s6.dual, s6.scan_chunked])
def test_dtype_is_kept(form, dtype):
    """Outputs and gradients have the dtype of the inputs; a layer's have that of its parameters."""
    u = torch.ones(2, 20, 3, dtype=dtype)
    arguments = (u, -torch.ones(1, dtype=dtype), u, u, torch.ones(1, 20, dtype=dtype))
    assert form(*arguments).dtype == dtype
    assert {g.dtype for g in gradients(form, arguments, 1)} == {dtype}
    layer = S6(
        Static(4, dtype=dtype), Selective(3, 4, dtype=dtype), Step(3, 0.1, dtype=dtype), -torch.ones(4, dtype=dtype)
    )
    assert layer(u).dtype == dtype
    assert s6.assumed(2, 3, 4, generator=streams("x"), dtype=dtype)(u).dtype == dtype
