"""The operators of fast weights: linear attention with decay in three forms, the delta rule in two.

Tolerances. Every output and every gradient of linear attention is a sum of products; computed in float64, in any
order, its error is at most (number of terms) x eps x (the same sum over absolute values). That last sum is what the
operator gives for |q|, |k|, |v|. With at most 70 x 5 terms, each a product of at most 75 factors, 1e-12 of it covers
the rounding. For the delta rule 1e-11 of the largest value does, over at most 70 tokens.
"""

import functools
import itertools

import numpy as np
import pytest
import shared
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icl.models import operators, s6
from icl.models.operators import chunked, parallel, recurrent
from icl.profile import make_generator

# Oracles

close = functools.partial(shared.close, rounding=1e-11)


def test_the_delta_rule_is_its_equations():
    """The recurrent form of the gated delta rule is the three equations at the head of its file, in numpy.

    Gates of 0 and 1 and a write strength of 0 among them. Tolerance: see the file's head.
    """
    generator = make_generator("delta")
    q, k = torch.randn(2, 2, 30, 2, 3, generator=generator, dtype=torch.float64)
    v = torch.randn(2, 30, 2, 4, generator=generator, dtype=torch.float64)
    decay, beta = torch.rand(2, 2, 30, 2, generator=generator, dtype=torch.float64)
    decay[:, 5], decay[:, 9], beta[:, 7] = 0, 1, 0
    beta = beta / k.square().sum(-1)
    expected = np.zeros(v.shape)
    for b, h in itertools.product(range(2), range(2)):
        S = np.zeros((4, 3))
        for t in range(30):
            key = k[b, t, h].numpy()
            expected[b, t, h] = S @ q[b, t, h].numpy()
            e = v[b, t, h].numpy() - S @ key
            S = decay[b, t, h].item() * (S + beta[b, t, h].item() * np.outer(e, key))
    assert close(operators.delta_recurrent(q, k, v, decay, beta), expected)


# Properties

FORMS = (recurrent, parallel, chunked)
ROUNDING = 1e-12

# Lengths around the default chunk of 32 and its multiples are where blocks are left half full.
LENGTHS = st.one_of(st.integers(1, 70), st.sampled_from([1, 2, 31, 32, 33, 63, 64, 65]))


def awkward(draw, lengths, stream, *, tops):
    """(q, k, v, a gate for each of the tops) of awkward sizes; gates of at most their top, fixed a head or free a
    token, exact zeros and ones among them.
    """
    (batch, heads, key, value), time = (draw(st.integers(1, most)) for most in (3, 3, 5, 5)), draw(lengths)
    generator = make_generator(stream, seed=draw(st.integers(0, 2**20)))
    q, k = torch.randn(2, batch, time, heads, key, generator=generator, dtype=torch.float64)
    v, gates = torch.randn(batch, time, heads, value, generator=generator, dtype=torch.float64), []
    for top in tops:
        shape = draw(st.sampled_from([(1, 1, heads), (1, 1, 1), (1, time, heads), (batch, time, heads), (batch, 1, 1)]))
        gate = top * torch.rand(shape, generator=generator, dtype=torch.float64)
        edge, zeros, ones = torch.rand(shape, generator=generator), draw(st.booleans()), draw(st.booleans())
        gate = torch.where((edge < 0.3) & zeros, 0.0, gate)
        gates.append(torch.where((edge > 0.7) & ones, 1.0, gate))
    return q, k, v, *gates


@st.composite
def inputs(draw, lengths=LENGTHS):
    """(q, k, v, decay)."""
    return awkward(draw, lengths, "linear attention", tops=[1.0])


@st.composite
def rule(draw, lengths=LENGTHS):
    """(q, k, v, decay, beta) with keys of length 1 and write strengths up to 1.5: beyond 2 the rule itself diverges."""
    q, k, *others = awkward(draw, lengths, "delta rule", tops=[1.0, 1.5])
    return q, torch.nn.functional.normalize(k, dim=-1), *others


def scale(q, k, v, decay):
    """What rounding is measured against: the same sums over absolute values."""
    return recurrent(q.abs(), k.abs(), v.abs(), decay)


def gradients(form, arguments, weights, **options):
    leaves = [a.clone().requires_grad_() for a in arguments]
    return torch.autograd.grad((form(*leaves, **options) * weights).sum(), leaves)


@given(inputs(), st.integers(1, 80))
def test_three_forms_agree(arguments, size):
    """The recurrent, the parallel and the chunked form give the same outputs, whatever the length, the chunk and the
    decays.

    Decays of exactly 0 and 1 are among them, fixed a head or free a token. Tolerance: rounding, see the file's head.
    """
    expected, limit = recurrent(*arguments), ROUNDING * scale(*arguments)
    assert ((parallel(*arguments) - expected).abs() <= limit).all()
    assert ((chunked(*arguments) - expected).abs() <= limit).all()
    assert ((chunked(*arguments, size=size) - expected).abs() <= limit).all()


@given(inputs(lengths=st.integers(1, 12)))
def test_every_form_is_the_sum_it_unrolls_to(arguments):
    """Each form gives o_i = sum over j <= i of (g_(j+1) ... g_i) (q_i'k_j) v_j, summed here term by term.

    Tolerance: rounding, see the file's head.
    """
    q, k, v, decay = (a.numpy() for a in arguments)
    g = np.broadcast_to(decay, q.shape[:3])
    expected = np.zeros(v.shape)
    for b, i, h in np.ndindex(*q.shape[:3]):
        for j in range(i + 1):
            expected[b, i, h] += np.prod(g[b, j + 1 : i + 1, h]) * (q[b, i, h] @ k[b, j, h]) * v[b, j, h]
    limit = ROUNDING * scale(*arguments).numpy()
    for form in FORMS:
        assert (np.abs(form(*arguments).numpy() - expected) <= limit).all()


@pytest.mark.parametrize("time", [1, 7, 33])
@pytest.mark.parametrize("gate", ["a head", "a token"])
@pytest.mark.parametrize("lam", [0.0, 0.6, 1.0, "mixed"])
def test_gradients_agree_at_both_edges(time, gate, lam):
    """The gradients with respect to q, k, v and the decay agree between the forms at decay 0, at decay 1 and in
    between.

    None is NaN, and at decay 0 the gradient of the decay is not lost: it is what the forgotten state would have said.
    Tolerance: rounding against the gradient at absolute values, of which every gradient here is a signed sum.
    """
    generator = make_generator("gradients", seed=time)
    q, k = torch.randn(2, 2, time, 2, 3, generator=generator, dtype=torch.float64)
    v, weights = torch.randn(2, 2, time, 2, 4, generator=generator, dtype=torch.float64)
    shape = (1, 1, 2) if gate == "a head" else (2, time, 2)
    mixed = torch.randint(0, 3, shape, generator=generator).double() / 2
    decay = mixed if lam == "mixed" else torch.full(shape, lam, dtype=torch.float64)
    arguments = (q, k, v, decay)
    expected = gradients(recurrent, arguments, weights)
    limits = gradients(recurrent, (q.abs(), k.abs(), v.abs(), decay), weights.abs())
    for form, options in ((parallel, {}), (chunked, {}), (chunked, {"size": 1}), (chunked, {"size": 5})):
        for got, want, limit in zip(gradients(form, arguments, weights, **options), expected, limits, strict=True):
            assert torch.isfinite(got).all()
            assert ((got - want).abs() <= ROUNDING * limit).all()
    if time > 1:
        assert expected[3].abs().max() > 0


def test_gradients_are_those_of_finite_differences():
    """The gradients of the default form are what central differences give, the decay's edges left aside.

    torch.autograd.gradcheck at its own tolerances (1e-6 steps, absolute error 1e-5): it would see a wrong term, while
    the comparison of the three forms to rounding settles the digits.
    """
    generator = make_generator("gradcheck")
    q, k = torch.randn(2, 1, 5, 2, 2, generator=generator, dtype=torch.float64)
    v = torch.randn(1, 5, 2, 3, generator=generator, dtype=torch.float64)
    decay = 0.2 + 0.6 * torch.rand(1, 5, 2, generator=generator, dtype=torch.float64)
    leaves = tuple(a.requires_grad_() for a in (q.clone(), k.clone(), v, decay))
    assert torch.autograd.gradcheck(lambda *a: chunked(*a, size=2), leaves)


def test_one_dtype_under_autocast():
    """All five forms, and the three of S6, return float32 from float32 where products of matrices are in bfloat16, with
    values within 2% of the largest of those in float64: bfloat16 rounds to 0.4%.
    """
    generator = make_generator("autocast")
    q, k, v = (torch.randn(2, 70, 2, 5, generator=generator) for _ in range(3))
    k = torch.nn.functional.normalize(k, dim=-1)
    decay, beta = 0.9 + 0.1 * torch.rand(2, 70, 2, generator=generator), torch.rand(2, 70, 2, generator=generator)
    calls = [(form, (q, k, v, decay)) for form in (recurrent, parallel, chunked)]
    calls += [(form, (q, k, v, decay, beta)) for form in (operators.delta_recurrent, operators.delta_chunked)]
    tokens, steps = (q[:, :, 0], k[:, :, 0]), beta[..., 0]
    for rates in (1, 5):
        rest = -0.1 - torch.rand(rates, generator=generator), *tokens, steps
        calls += [(form, (v[:, :, 1], *rest)) for form in (s6.scan, s6.scan_chunked, *([s6.dual] * (rates == 1)))]
    for form, given_ in calls:
        expected = form(*(each.double() for each in given_))
        with torch.autocast("cpu", torch.bfloat16):
            found = form(*given_)
        assert found.dtype == torch.float32, form
        assert (found - expected).abs().max() <= 0.02 * expected.abs().max(), form


def twice(arguments):
    """The arguments and a copy to change, laid out alike in memory: the order of a sum may depend on that."""
    full = [*arguments[:3], arguments[3].expand(arguments[0].shape[:3])]
    return [a.contiguous().clone() for a in full], [a.contiguous().clone() for a in full]


@given(inputs(), st.data())
def test_the_future_never_changes_the_past(arguments, data):
    """Replacing every token after time t, decays included, leaves the outputs up to t as they were, bit for bit."""
    original, changed = twice(arguments)
    t = data.draw(st.integers(1, original[0].shape[1]))
    generator = make_generator("another future")
    for a in changed[:3]:
        a[:, t:] = 100 * torch.randn(a[:, t:].shape, generator=generator, dtype=a.dtype)
    changed[3][:, t:] = torch.rand(changed[3][:, t:].shape, generator=generator, dtype=torch.float64)
    for form in FORMS:
        assert torch.equal(form(*original)[:, :t], form(*changed)[:, :t])


@given(inputs(), st.data())
def test_batch_rows_and_heads_are_independent(arguments, data):
    """Replacing one row of the batch, or one head, leaves every other row and head as it was, bit for bit."""
    original, changed = twice(arguments)
    batch, _, heads, _ = original[0].shape
    row, head = data.draw(st.integers(0, batch - 1)), data.draw(st.integers(0, heads - 1))
    for a in changed:
        a[row, :, head] = 0.5
    others = torch.ones(batch, heads, dtype=torch.bool)
    others[row, head] = False
    for form in FORMS:
        before, after = (form(*a).transpose(1, 2) for a in (original, changed))
        assert torch.equal(before[others], after[others])


@given(rule(), st.integers(1, 80))
def test_two_forms_of_the_delta_rule_agree(arguments, size):
    """The recurrent and the chunked form give the same outputs, whatever the length, the chunk and the gates.

    Decays and write strengths of exactly 0 and 1 are among them. Tolerance: see the file's head. Planted: errors not
    aged by the decay between the blocks.
    """
    expected = operators.delta_recurrent(*arguments)
    assert close(operators.delta_chunked(*arguments), expected)
    assert close(operators.delta_chunked(*arguments, size=size), expected)


@settings(max_examples=20)
@given(rule(st.sampled_from([2, 5, 33])), st.sampled_from([1, 2, 7, 32]))
def test_gradients_of_the_delta_rule_agree(arguments, size):
    """So do the gradients by q, k, v, decay and write strength; none is NaN, at gates of 0 and 1 either."""
    weights = torch.randn(arguments[2].shape, generator=make_generator("weights"), dtype=torch.float64)
    found = []
    for form in (operators.delta_recurrent, lambda *a: operators.delta_chunked(*a, size=size)):
        leaves = [a.clone().requires_grad_() for a in arguments]
        found.append(torch.autograd.grad((form(*leaves) * weights).sum(), leaves))
    for want, got in zip(*found, strict=True):
        assert torch.isfinite(want).all()
        assert close(got, want)


@given(rule(), st.data())
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


OPERATORS = [*FORMS, operators.delta_recurrent, operators.delta_chunked]


def inputs_of(form, batch=2):
    """Tensors for one form, seven tokens of two heads; gates a token."""
    g = make_generator("forms")
    q, k, v = (torch.randn(batch, 7, 2, 3, generator=g, dtype=torch.float64) for _ in range(3))
    gates = torch.rand(1 + ("delta" in form.__name__), batch, 7, 2, generator=g, dtype=torch.float64)
    return [q, k, v, *gates]


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("form", OPERATORS, ids=lambda form: form.__name__)
def test_no_check_stops_a_transformation(form):
    """vmap over an axis of problems, and torch.compile of the whole as one graph, give the values of a plain call."""
    arguments = inputs_of(form)
    plain = form(*arguments)
    mapped = torch.vmap(form)(*(tensor.unsqueeze(1) for tensor in arguments)).squeeze(1)
    assert close(mapped, plain)
    assert close(torch.compile(form, backend="eager", fullgraph=True)(*arguments), plain)


@pytest.mark.parametrize("form", OPERATORS, ids=lambda form: form.__name__)
def test_no_prompts_give_no_reads(form):
    """A batch of none, as a filtered table may leave, is answered by none."""
    assert form(*inputs_of(form, batch=0)).shape == (0, 7, 2, 3)
