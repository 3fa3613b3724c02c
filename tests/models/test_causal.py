"""What the deep models keep to, whatever their parameters and sizes.

Float64. Where a value is said to be the same up to rounding, 1e-11 of the largest value covers it: sums of products
over at most 70 tokens and three layers.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from icl.models import operators
from icl.models.causal import Causal, Normalised
from icl.models.readings import FullStack, Reading, predictions
from icl.models.stacks import DeltaStack, GatedDeltaStack, GatedStack, Stack, read_strictly
from icl.profile import streams
from icl.tasks import Prompt

ROUNDING = 1e-11
READINGS = [Reading(r, s, sign) for r in (False, True) for s in (False, True) for sign in (1, -1)]


def stirred(model, size=0.3):
    """The model with noise on every parameter, so that none has a value that hides it."""
    generator = streams("stir")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return model


def labelless(model):
    """A gated stack whose gates do not look at labels."""
    with torch.no_grad():
        model.c.zero_()
    return model


def models(dtype=torch.float64):
    """One of every model that has one stream, with noise on every parameter."""
    return {
        "one layer": stirred(Stack(3, 1, dtype=dtype)),
        "stack": stirred(Stack(3, 3, dtype=dtype)),
        "normalised": Normalised(stirred(Stack(3, 3, dtype=dtype))),
        "gated": stirred(GatedStack(3, 3, dtype=dtype)),
        "channels": stirred(GatedStack(3, 2, channels=3, dtype=dtype)),
        "labelless": labelless(stirred(GatedStack(3, 3, channels=3, dtype=dtype))),
        "delta": stirred(DeltaStack(3, 3, dtype=dtype)),
        "gated delta": stirred(GatedDeltaStack(3, 3, dtype=dtype)),
        "normalised gated": Normalised(stirred(GatedStack(3, 2, dtype=dtype))),
    }


NAMES = list(models())
LINEAR = ["one layer", "stack", "normalised", "labelless", "delta"]


def data(time=41, batch=4, seed=0, dtype=torch.float64):
    generator = streams("deep data", seed=seed)
    x = torch.randn(batch, time, 3, generator=generator, dtype=dtype)
    return x, torch.randn(batch, time, generator=generator, dtype=dtype)


def close(got, expected, rounding=ROUNDING):
    """Whether two arrays are the same up to rounding of their largest value."""
    return bool((got - expected).abs().max() <= rounding * expected.abs().max().clamp(min=1))


@st.composite
def rule(draw, lengths):
    """(q, k, v, decay, beta) of awkward sizes; gates fixed or free a token, exact zeros and ones among them.

    Write strengths up to 1.5 / |k|^2: beyond 2 the rule itself diverges.
    """
    batch, heads = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    key, value, time = draw(st.integers(1, 5)), draw(st.integers(1, 5)), draw(lengths)
    generator = streams("delta rule", seed=draw(st.integers(0, 2**20)))
    q, k = torch.randn(2, batch, time, heads, key, generator=generator, dtype=torch.float64)
    k = k / torch.linalg.vector_norm(k, dim=-1, keepdim=True)
    v = torch.randn(batch, time, heads, value, generator=generator, dtype=torch.float64)
    gates = []
    for top in (1.0, 1.5):
        shape = draw(st.sampled_from([(1, 1, 1), (1, 1, heads), (1, time, heads), (batch, time, heads), (batch, 1, 1)]))
        gate = top * torch.rand(shape, generator=generator, dtype=torch.float64)
        edge = torch.rand(shape, generator=generator)
        zeros, ones = draw(st.booleans()), draw(st.booleans())
        gate = torch.where((edge < 0.3) & zeros, 0.0, gate)
        gates.append(torch.where((edge > 0.7) & ones, 1.0, gate))
    return q, k, v, *gates


LENGTHS = st.one_of(st.integers(1, 70), st.sampled_from([1, 2, 31, 32, 33, 64, 65]))


@given(rule(LENGTHS), st.integers(1, 80))
def test_two_forms_of_the_delta_rule_agree(arguments, size):
    """The recurrent and the chunked form give the same outputs, whatever the length, the chunk and the gates.

    Decays and write strengths of exactly 0 and 1 are among them. Tolerance: see the file's head. Planted: errors not
    aged by the decay between the blocks.
    """
    expected = operators.delta_recurrent(*arguments)
    assert close(operators.delta_chunked(*arguments), expected)
    assert close(operators.delta_chunked(*arguments, size=size), expected)


@given(rule(st.sampled_from([2, 5, 33])), st.sampled_from([1, 2, 7, 32]))
def test_gradients_of_the_delta_rule_agree(arguments, size):
    """So do the gradients by q, k, v, decay and write strength; none is NaN, at gates of 0 and 1 either."""
    weights = torch.randn(arguments[2].shape, generator=streams("weights"), dtype=torch.float64)
    found = []
    for form in (operators.delta_recurrent, lambda *a: operators.delta_chunked(*a, size=size)):
        leaves = [a.clone().requires_grad_() for a in arguments]
        found.append(torch.autograd.grad((form(*leaves) * weights).sum(), leaves))
    for want, got in zip(*found, strict=True):
        assert torch.isfinite(want).all()
        assert close(got, want)


@given(rule(LENGTHS), st.data())
def test_the_delta_rules_future_never_changes_its_past(arguments, draw):
    """Other values, decays and write strengths from token t on, and other keys and queries after it, leave what is read
    up to t as it was, bit for bit.
    """
    shape = arguments[0].shape[:3]
    original = [*(a.contiguous() for a in arguments[:3]), *(a.expand(shape).contiguous() for a in arguments[3:])]
    changed = [a.clone() for a in original]
    t = draw.draw(st.integers(0, shape[1] - 1))
    for a, at in zip(changed, (t + 1, t + 1, t, t, t), strict=True):
        a[:, at:] = 0.25
    for form in (operators.delta_recurrent, operators.delta_chunked):
        assert torch.equal(form(*original)[:, : t + 1], form(*changed)[:, : t + 1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("j", [0, 1, 16, 17, 31, 32, 40])
def test_the_future_never_changes_the_past(name, j):
    """Other labels from position j on and other inputs after it leave earlier errors as they were, bit for bit, and the
    prediction at j up to the rounding of its own label, which stands in the sum that the prediction is taken from.

    Bit for bit because what is masked is multiplied by 0 and adds nothing; positions around the blocks of 17 and 32
    tokens. Own label: 8 float64 roundings of its size. Planted: a mask that lets the token itself through.
    """
    model, (x, y) = models()[name], data()
    other_x, other_y = x.clone(), y.clone()
    other_x[:, j + 1 :], other_y[:, j:] = 0.5, 100.0
    with torch.no_grad():
        before, after = model.errors(x, y), model.errors(other_x, other_y)
    assert torch.equal(before[:, :j], after[:, :j])
    own = (y - before)[:, j] - (other_y - after)[:, j]
    assert (own.abs() <= 8 * torch.finfo(x.dtype).eps * (100 + y[:, j].abs() + before[:, j].abs())).all()
    if j < 40:
        assert (before[:, j + 1 :] != after[:, j + 1 :]).all()


@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_the_streams_never_leak(reading):
    """Other labels from position j on, or other inputs after it, change no prediction at or before j, bit for bit: the
    query's stream never holds a label, and examples are read strictly.

    Eight readings, three layers with full matrices, positions around the block of 32; labels of 1e6, of which any
    rounding would show. Planted: a label read and taken away again.
    """
    x, y = data()
    W_V, W_KQ = 0.3 * torch.randn(2, 3, 4, 4, generator=streams("weights"), dtype=torch.float64)
    lam = torch.tensor([0.7, 0.9, 1.0], dtype=torch.float64)
    before = predictions(x, y, W_V, W_KQ, lam, reading)
    for j in (0, 1, 31, 32, 33, 40):
        other = y.clone()
        other[:, j:] = 1e6
        after = predictions(x, other, W_V, W_KQ, lam, reading)
        assert torch.equal(after[:, : j + 1], before[:, : j + 1])
        assert j == 40 or not torch.equal(after[:, j + 1 :], before[:, j + 1 :])
        other = x.clone()
        other[:, j + 1 :] = -3.0
        after = predictions(other, y, W_V, W_KQ, lam, reading)
        assert torch.equal(after[:, : j + 1], before[:, : j + 1])
        assert j == 40 or not torch.equal(after[:, j + 1 :], before[:, j + 1 :])


def everything():
    """All models, full matrices included."""
    full = {
        str(reading): FullStack(3, 2, reading=reading, scale=0.3, generator=streams("start"), dtype=torch.float64)
        for reading in READINGS
    }
    return models() | full


@pytest.mark.parametrize("name", everything())
def test_prompts_of_a_batch_are_independent(name):
    """Replacing one prompt leaves the errors of the others as they were, bit for bit; prompts in another order have
    their errors in that order, and the same loss.

    Order: up to 1e-12, since a matrix product may be cut otherwise.
    """
    model, (x, y) = everything()[name], data(batch=6)
    before = model.errors(x, y)
    other_x, other_y = x.clone(), y.clone()
    other_x[2], other_y[2] = 1.0, -1.0
    others = torch.arange(6) != 2
    assert torch.equal(model.errors(other_x, other_y)[others], before[others])
    order = torch.randperm(6, generator=streams("order"))
    assert close(model.errors(x[order], y[order]), before[order], rounding=1e-12)
    assert close(model.loss(Prompt(x[order], y[order], x)), model.loss(Prompt(x, y, x)), rounding=1e-12)


@pytest.mark.parametrize("name", everything())
def test_the_loss_starts_where_it_is_told(name):
    """The loss is the mean of squared errors over prompts and positions since .. n, by default all of them, and at n
    the query alone.

    rtol 1e-12. Planted: one position late.
    """
    model, (x, y) = everything()[name], data()
    p = Prompt(x, y, x)
    squares = model.errors(x, y).detach() ** 2
    assert close(model.loss(p), sum(squares.flatten()) / squares.numel(), rounding=1e-12)
    for since in (0, 1, 17, 40):
        expected = sum(squares[:, t].sum() for t in range(since, 41)) / (4 * (41 - since))
        assert close(model.loss(p, since=since), expected, rounding=1e-12)
    assert close(model.loss(p, since=40), (model(p) - y[:, -1]).square().mean(), rounding=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_errors_are_linear_in_the_labels(name):
    """Errors of a y + b y' are a times those of y and b times those of y', up to 1e-12 of the largest, for every model
    but one with gates that look at labels, which is off by more than 1e-3.
    """
    model, (x, y) = models()[name], data()
    other = data(seed=1)[1]
    together = model.errors(x, 0.7 * y - 1.9 * other)
    apart = 0.7 * model.errors(x, y) - 1.9 * model.errors(x, other)
    if name in LINEAR:
        assert close(together, apart, rounding=1e-12)
    else:
        assert (together - apart).abs().max() > 1e-3


@pytest.mark.parametrize("c", [-2.0, 1e-6, 0.3, 1e6])
@pytest.mark.parametrize("name", ["normalised", "delta", "normalised gated"])
def test_errors_scale_with_the_prompt(name, c):
    """f(c X, c y) = c f(X, y) for what sees inputs at one length, up to rounding; a plain stack is nothing like it.

    Planted: a length with 0.01 added to it.
    """
    model, (x, y) = models()[name], data()
    assert close(model.errors(c * x, c * y) / c, model.errors(x, y))
    stack = models()["stack"]
    assert not close(stack.errors(c * x, c * y) / c, stack.errors(x, y), rounding=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_normalising_leaves_inputs_of_one_length(name):
    """On inputs of length sqrt(d) a normalised model is the model itself, and with each input and label stretched by a
    number of its own its errors are stretched by the same.

    Tolerance: see the file's head. Planted: length 1 in place of sqrt(d).
    """
    model, (x, y) = models()[name], data()
    x = x * 3**0.5 / torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    expected = model.errors(x, y)
    assert close(Normalised(model).errors(x, y), expected)
    stretch = 0.1 + torch.rand(y.shape, generator=streams("stretch"), dtype=torch.float64)
    assert close(Normalised(model).errors(x * stretch.unsqueeze(-1), y * stretch) / stretch, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", everything())
def test_an_input_of_zero_is_harmless(name, dtype):
    """A prompt with inputs of 0, first, last and in between, has finite errors and finite gradients by its inputs, its
    labels and every parameter. Where tokens are read by their inputs alone, nothing is predicted for it, and nothing
    written: only gates that look at labels see its label.

    Gated stacks also with write strengths |x|^-2.1 and |x|^3. Planted: 1 / (|x|^2 + tiny), whose square overflows.
    """
    for p in (None, 1.05, -1.5):
        model, (x, y) = everything()[name].to(dtype), data(dtype=dtype)
        for module in model.modules():
            if isinstance(module, GatedStack) and p is not None:
                torch.nn.init.constant_(module.p, p)
        nothing = [0, 7, 20, 40]
        x[:, nothing], y[:, nothing] = 0, 30
        x.requires_grad_()
        y.requires_grad_()
        errors = model.errors(x, y)
        assert torch.isfinite(errors).all()
        leaves = [x, y, *(q for q in model.parameters() if q.numel())]
        for gradient in torch.autograd.grad(errors[:, 1:].square().mean(), leaves):
            assert torch.isfinite(gradient).all()
        if name in NAMES:
            assert torch.equal(errors[:, nothing], y[:, nothing])
        if name in LINEAR:
            other = y.detach().clone()
            other[:, nothing] = -5
            rest = torch.ones(41, dtype=torch.bool)
            rest[nothing] = False
            assert torch.equal(model.errors(x, other)[:, rest], errors[:, rest])


def test_a_model_without_parameters_is_a_model():
    """A causal model with nothing to train takes prompts of either dtype, alone and normalised."""

    class Zero(Causal):
        d = 3

        def errors(self, x, y):
            self.checked(x, y)
            return y.clone()

    for dtype in (torch.float32, torch.float64):
        x, y = data(dtype=dtype)
        for model in (Zero(), Normalised(Zero())):
            torch.testing.assert_close(model.errors(x, y), y)


@given(st.integers(1, 70), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**20))
def test_reads_are_strict(time, heads, key, seed):
    """What a token reads does not hold the token itself: values from t on and keys from t on change nothing at t, bit
    for bit, and the first token reads 0.
    """
    generator = streams("strict", seed=seed)
    q, k = torch.randn(2, 2, time, heads, key, generator=generator, dtype=torch.float64)
    v = torch.randn(2, time, heads, 2, generator=generator, dtype=torch.float64)
    decay = torch.rand(2, time, heads, generator=generator, dtype=torch.float64)
    before = read_strictly(q, k, v, decay)
    t = seed % time
    k[:, t:], v[:, t:], decay[:, t:] = 1e6, 1e6, 0.5
    assert torch.equal(read_strictly(q, k, v, decay)[:, : t + 1], before[:, : t + 1])
    assert not before[:, 0].any()
