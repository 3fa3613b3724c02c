"""Every name that the tool has is tried; its layers are what they are said to be."""

import pytest
import torch

from icl.experiments.tuning import LAYERS, Tunable
from icl.filters import Filter
from icl.models import operators
from icl.models.causal import Causal
from icl_bench.catalogue import CONTESTANTS, Alibi, Rotary, Softmax, delta, linear
from icl_bench.costs import measure_cost
from icl_bench.entries import KINDS, Shape, resolve
from icl_bench.validation import validate

pytestmark = pytest.mark.usefixtures("as_installed")

SHAPE = Shape(d=3, n=6, width=16, depth=2, longest=25)


@pytest.mark.parametrize("name", [name for name, known in CONTESTANTS.items() if not known.needs])
def test_every_name_is_built_examined_and_weighed(name):
    contestant = resolve(name)
    assert (contestant.name, contestant.spec, contestant.path) == (name, name, "")
    assert contestant.kind == CONTESTANTS[name].kind
    assert contestant.about.endswith(".")
    assert validate(contestant, SHAPE) == ()
    made, weight = contestant.build(SHAPE), measure_cost(contestant, SHAPE, batch=2)
    assert contestant.trained == isinstance(made, Causal)
    assert weight.notes == ()
    assert weight.flops > 0
    assert weight.us_per_token > 0
    # The one causal model of the book without a recurrence written out.
    assert (weight.state_bytes is None) == (name == "book-convolved")
    if isinstance(made, Causal):
        assert weight.parameters > 0
        assert {parameter.dtype for parameter in made.parameters()} == {torch.float32}
    else:
        assert isinstance(made, Filter if contestant.kind == "filter" else Tunable)


def test_there_are_fifteen_layers_of_the_book_and_all_that_are_tuned():
    assert sum(name.startswith("book-") for name in CONTESTANTS) == 15
    assert {id(known.factory) for known in CONTESTANTS.values()} >= {id(layer) for layer in LAYERS.values()}
    assert {known.kind for known in CONTESTANTS.values()} <= set(KINDS)


@pytest.mark.parametrize("name", ["gla", "lstm", "book-s6", "book-convolved"])
def test_a_start_is_decided_by_the_global_stream(name):
    made = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        made.append(torch.cat([p.detach().flatten() for p in resolve(name).build(SHAPE).parameters()]))
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def attention_by_loops(layer, h, score):
    """Softmax attention written out: a token reads itself and those before it."""
    q, k, v = (layer.inward.weight[i * 32 : (i + 1) * 32] @ h.mT for i in range(3))
    q, k, v = (each.mT.reshape(-1, 2, 16) for each in (q, k, v))
    out = torch.zeros_like(v)
    for head in range(2):
        for i in range(len(h)):
            scores = torch.stack([score(q[i, head], k[j, head], i, j, head) for j in range(i + 1)])
            out[i, head] = torch.softmax(scores, 0) @ v[: i + 1, head]
    return out.reshape(-1, 32) @ layer.outward.weight.T


def turned(u, place):
    rate = torch.tensor([10_000 ** (-2 * i / 16) for i in range(8)], dtype=u.dtype)
    pairs = torch.complex(u[:8], u[8:]) * torch.exp(1j * place * rate)
    return torch.cat([pairs.real, pairs.imag])


@pytest.mark.parametrize(
    ("kind", "score"),
    [
        (Softmax, lambda q, k, i, j, head: q @ k / 4),
        (Alibi, lambda q, k, i, j, head: q @ k / 4 - 2.0 ** (-4 * (head + 1)) * (i - j)),
        (Rotary, lambda q, k, i, j, head: turned(q, i) @ turned(k, j) / 4),
    ],
)
def test_attention_is_what_its_text_says(kind, score):
    torch.manual_seed(0)
    layer, h = kind(32).double(), torch.randn(6, 32, dtype=torch.float64)
    torch.testing.assert_close(layer(h[None])[0], attention_by_loops(layer, h, score), rtol=1e-9, atol=1e-12)


def test_rotary_scores_depend_on_distance_alone():
    torch.manual_seed(0)
    q, k = torch.randn(2, 16, dtype=torch.float64)
    torch.testing.assert_close(turned(q, 9) @ turned(k, 4), turned(q, 25) @ turned(k, 20))


def test_rotary_attention_turns_pairs():
    with pytest.raises(ValueError, match="even number of dimensions"):
        Rotary(15, 5)(torch.zeros(1, 2, 15))


def test_operators_without_gates_hold_everything():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 40, 2, 4, dtype=torch.float64)
    beta, held = torch.rand(2, 40, 2, dtype=torch.float64) / 8, torch.ones(2, 40, 2, dtype=torch.float64)
    torch.testing.assert_close(linear(q, k, v), operators.recurrent(q, k, v, held))
    torch.testing.assert_close(delta(q, k, v, beta), operators.delta_recurrent(q, k, v, held, beta))
