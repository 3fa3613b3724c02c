"""Layers behind a short convolution: the recurrence written out, what a gate may see, and where they start.

Float64. Values are sums of products over at most 30 tokens; 1e-10 of the largest covers the triangular system.
"""

import copy
import functools
import json
from pathlib import Path

import pytest
import shared
import torch

from icl.models.convolved import Convolved, newest
from icl.models.delta_layers import GatedDelta
from icl.models.fast_weights import Gate
from icl.profile import make_generator
from icl_bench import catalogue

ROWS = Path(__file__).resolve().parents[3] / "book" / "results" / "leaderboard"
D, TIME, BATCH = 3, 30, 4
close = functools.partial(shared.close, rounding=1e-10)
KINDS = [
    {"width": 1},
    {"width": 3},
    {"width": 4, "corrects": False},
    {"width": 2, "fades": False, "compares": False},
    {"width": 3, "mixes": False, "compares": False},
    {"width": 2, "sees": "tokens"},
    {"width": 1, "sees": "tokens", "corrects": False},
]


def layer(stirs=0.3, **kind):
    made = Convolved(D, hidden=8, generator=make_generator("convolved"), dtype=torch.float64, **kind)
    return shared.stirred(made, stirs) if stirs else made


def data(seed=0):
    return shared.sequences("convolved, data", D, TIME, BATCH, seed=seed)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_errors_are_those_of_the_recurrence(kind):
    model = layer(**kind)
    x, y = data()
    with torch.no_grad():
        a, c = model.gates(x, y)
        found = model.errors(x, y)
    length = x.norm(dim=-1)
    u, v = x / length[..., None], y / length
    expected, h = torch.zeros_like(y), torch.zeros_like(x[:, 0])
    for i in range(TIME):
        expected[:, i] = y[:, i] - (h * x[:, i]).sum(-1)
        k = sum(c[:, i, j, None] * u[:, i - j] for j in range(min(i + 1, model.width)))
        said = v[:, i] - (h * u[:, i]).sum(-1) if model.corrects else v[:, i]
        h = a[:, i, None] * (h + said[:, None] * k)
    assert close(found, expected)
    if not model.fades:
        assert bool((a == a[0, 0]).all())


def test_a_window_is_the_newest_tokens_newest_first():
    tokens = torch.arange(8.0).reshape(1, 4, 2)
    found = newest(tokens, 3)
    for i in range(4):
        for j in range(3):
            expected = tokens[0, i - j] if i >= j else torch.zeros(2)
            assert bool((found[0, i, j] == expected).all())


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_gates_see_their_window_and_no_more(kind):
    """What is older than the window, or later, changes no gate; what is in it does; labels only where they are seen."""
    model, at = layer(**kind), 10
    x, y = data()
    with torch.no_grad():
        before = torch.cat([part.reshape(BATCH, TIME, -1) for part in model.gates(x, y)], dim=-1)
        for what in ("keys", "labels"):
            x2, y2 = x.clone(), y.clone()
            (x2 if what == "keys" else y2)[:, at] += 1.0
            after = torch.cat([part.reshape(BATCH, TIME, -1) for part in model.gates(x2, y2)], dim=-1)
            seen = (after != before).flatten(2).any(2).any(0)
            expected = torch.zeros(TIME, dtype=torch.bool)
            if what == "keys" or model.sees == "tokens":
                expected[at : at + model.width] = True
            assert bool((seen == expected).all())


def test_one_that_sees_keys_is_linear_in_its_labels():
    """And one that sees labels is not: the escape from every bound for key-gated layers."""
    x, y = data()
    other = data(seed=1)[1]
    with torch.no_grad():
        for kind in KINDS:
            model = layer(**kind)
            both = model.errors(x, 2 * y - 3 * other)
            apart = 2 * model.errors(x, y) - 3 * model.errors(x, other)
            assert close(both, apart) == (model.sees == "keys")


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_it_starts_as_the_layer_without_gates(kind):
    x, y = data()
    with torch.no_grad():
        found = layer(stirs=0, lam=0.9, beta=0.8, **kind).errors(x, y)
        if kind.get("corrects", True):
            plain = GatedDelta(D, Gate(), Gate(), lam=0.9, beta=0.8, dtype=torch.float64)
            assert close(found, plain.errors(x, y))
        else:
            h, expected = torch.zeros_like(x[:, 0]), []
            for xt, yt in zip(x.unbind(1), y.unbind(1), strict=True):
                expected.append(yt - (h * xt).sum(-1))
                h = 0.9 * (h + 0.8 * yt[:, None] * xt / xt.square().sum(-1, keepdim=True))
            assert close(found, torch.stack(expected, dim=1))


def test_an_input_of_length_0_spoils_nothing():
    x, y = data()
    x[:, 5] = 0
    model = layer(width=3)
    model.errors(x, y).square().mean().backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


def test_every_parameter_is_trained():
    """Each gets a gradient from the loss, but the fade's row where the fade is one number."""
    x, y = data()
    for kind in KINDS:
        model = layer(**kind)
        model.errors(x, y).square().mean().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            moved = parameter.grad[1:] if name == "head" and not model.fades else parameter.grad
            assert bool(moved.any()), name


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_gate_that_closes_forgets_all(kind):
    """Where sigmoid(-120) is 0 in float32, errors are those of float64 to 1e-5 of the largest, gradients finite."""
    model = layer(**kind)
    with torch.no_grad():
        model.log_odds.fill_(-120.0)
    x, y = data()
    single = copy.deepcopy(model).float()
    found = single.errors(x.float(), y.float())
    found.square().mean().backward()
    assert all(bool(p.grad.isfinite().all()) for p in single.parameters() if p.grad is not None)
    assert (found - model.errors(x, y)).abs().max() <= 1e-5 * y.abs().max()


def test_a_layer_has_the_size_of_the_recorded_one():
    """32 channels, unless told otherwise: the leaderboard's row was trained with the layer as the benchmark makes it,
    and names its parameters, here counted by hand.
    """
    row = json.loads((ROWS / "book-convolved.json").read_text(encoding="utf-8"))["row"]
    made = Convolved(5, width=4, generator=make_generator("convolved"))
    seen = 4 * (5 + 1) + 4 * 3 // 2
    assert row["parameters"] == sum(weights.numel() for weights in made.parameters())
    assert row["parameters"] == 32 * (seen + 1) + (1 + 4) * 32 + 1 + 4


def test_a_layer_starts_as_the_benchmarks_gated_delta_rule():
    """Unless told otherwise both begin with a gate of 0.95 and a write strength of 0.9, so that what training makes of
    the convolution is all that tells them apart.
    """
    made = Convolved(5, width=4, generator=make_generator("convolved"), dtype=torch.float64)
    other = catalogue._gated_delta(5).double()
    x, y = shared.sequences("convolved, start", 5, TIME, BATCH, seed=0)
    assert shared.close(made.errors(x, y), other.errors(x, y), 1e-6)  # the other was made in float32
    assert made.log_odds.sigmoid().item() == pytest.approx(0.95, rel=1e-12)
    assert made.filter.tolist() == [0.9, 0.0, 0.0, 0.0]
