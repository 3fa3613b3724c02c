"""Costs against counts by hand."""

import pytest
import torch
from torch import nn

from icl.experiments.tuning import LAYERS, Tunable
from icl.models.flops import cost
from icl_bench import costs
from icl_bench.catalogue import CONTESTANTS, Softmax
from icl_bench.costs import MeasuredCost, count, measure_cost
from icl_bench.entries import Contestant, Shape, resolve
from icl_bench.sequence import BlockStack, InContext

pytestmark = pytest.mark.usefixtures("as_installed")

D, N, WIDTH, DEPTH = 3, 6, 16, 2
SHAPE = Shape(D, N, WIDTH, DEPTH, 25)
TOKENS = 2 * N + 1


def contestant_of(mixer):
    def build(shape):
        return InContext(
            shape.d, shape.width, BlockStack(shape.width, [mixer(shape.width) for _ in range(shape.depth)])
        )

    return Contestant("mine", "mine", "layer", "", build, True, "", "", False)


class Map(nn.Linear):
    """A linear map of each token, which carries nothing on and says so."""

    def __init__(self, width):
        super().__init__(width, width, bias=False)

    def state_numel(self, time):
        return 0


def around(d, width, depth):
    """Operations a token of everything around the layers, counted by hand."""
    # Square, mean, root of mean + eps, times that, times the weight.
    norm = width + width + 2 + width + width
    block = norm + width + norm + 2 * width * 2 * width + 2 * width + 2 * 2 * width * width + width
    query = (norm + 2 * width) * (N + 1) / TOKENS
    return 2 * (d + 2) * width + depth * block + query


def test_the_operations_of_a_whole_model_are_those_counted_by_hand():
    weight = measure_cost(contestant_of(Map), SHAPE)
    assert weight.flops == pytest.approx(around(D, WIDTH, DEPTH) + DEPTH * 2 * WIDTH**2, rel=1e-12)
    assert weight.notes == ()
    inside = DEPTH * (WIDTH**2 + 2 * WIDTH + 4 * WIDTH**2 + 3 * WIDTH)
    assert weight.parameters == (D + 3) * WIDTH + inside + 2 * WIDTH + 1
    assert (weight.state_bytes, weight.state_grows) == (0, False)


def test_softmax_attention_counts_every_pair_of_tokens():
    weight = measure_cost(resolve("softmax"), SHAPE)
    attention = 2 * WIDTH * 4 * WIDTH + TOKENS * (2 * WIDTH + 5 + 2 * WIDTH)
    assert weight.flops == pytest.approx(around(D, WIDTH, DEPTH) + DEPTH * attention, rel=1e-12)
    assert weight.state_bytes == DEPTH * 2 * TOKENS * WIDTH * 4
    assert weight.state_grows is True


@pytest.mark.parametrize("name", ["book-gla", "book-kalman", "book-mesa", "book-gated-delta-4"])
def test_fast_weights_keep_the_books_count_halved(name):
    contestant = resolve(name)
    layer = contestant.build(SHAPE)
    counted, weight = cost(layer), measure_cost(contestant, SHAPE)
    assert weight.flops == counted.flops / 2
    assert weight.state_bytes == 4 * counted.state
    assert weight.parameters == counted.parameters
    assert weight.state_grows is False


def test_filters_carry_what_they_start_with_and_tunables_have_settings():
    weight = measure_cost(resolve("tuned-rls"), SHAPE)
    assert (weight.parameters, weight.state_bytes) == (1, 8 * (D + D * D))
    assert measure_cost(resolve("answer-0"), SHAPE).parameters == 0
    # Of LFOM, which is a layer, it is the layer's own.
    assert measure_cost(resolve("tuned-lfom"), SHAPE).state_bytes == 8 * (D * D + D + 1)


def test_a_layer_that_does_not_tell_its_state_is_not_guessed_at():
    weight = measure_cost(contestant_of(lambda width: nn.Linear(width, width)), SHAPE)
    assert (weight.state_bytes, weight.state_grows) == (None, None)


def test_a_state_that_is_no_number_is_refused():
    class Wrong(Map):
        def state_numel(self, time):
            return 1.5

    with pytest.raises(ValueError, match=r"Wrong\.state_numel must be an integer >= 0, got 1.5"):
        measure_cost(contestant_of(Wrong), SHAPE)


@pytest.mark.parametrize(
    ("run", "flops"),
    [
        (lambda x: x @ x.T, 2 * 4 * 3 * 4),
        (lambda x: x.exp() + 1, 24),
        (lambda x: x.sum() + x.cumsum(0).mean(), 12 + 12 + 12 + 1),
        (lambda x: torch.softmax(x, -1), 60),
        (lambda x: x.add_(1).mul_(2), 24),
        (lambda x: torch.where(x > 0, x, 0.0).transpose(0, 1).reshape(-1).clone(), 0),
        (lambda x: torch.stack([x, x])[0].clamp(min=0), 0),
        (lambda x: torch.addcmul(x, x, x), 24),
        (lambda x: nn.functional.conv1d(x[None], x[:, None, :2], groups=4), 2 * 4 * 2 * 2),
        (lambda x: torch.linalg.solve_triangular(x[:, :1] * torch.eye(4), x, upper=False), 16 + 12 * 4),
        (lambda x: torch.linalg.solve(torch.eye(4), x), 4 * 3 * 17 // 6 + 12 * 7),
        (lambda x: torch.linalg.solve(torch.ones(4, 1, 1), x[:, None]), 12),
        (lambda x: nn.functional.softplus(x), 12),
    ],
)
def test_each_kind_of_operation_counts_as_the_text_says(run, flops):
    counted = count(lambda: run(torch.randn(4, 3)))
    # Of randn, which is free.
    assert (counted.flops, counted.unknown) == (flops, set())


def test_an_lstm_counts_four_gates():
    counted = count(lambda: nn.LSTM(5, 7, batch_first=True)(torch.zeros(2, 3, 5)))
    assert counted.flops == 2 * 3 * (8 * 7 * (5 + 7 + 1) + 10 * 7)
    assert counted.unknown <= {"uniform_"}


def test_what_has_no_rule_is_named():
    class Strange(Map):
        def forward(self, h):
            return torch.linalg.qr(h.mT @ h)[0][:, :1] + super().forward(h)

    (note,) = measure_cost(contestant_of(Strange), SHAPE).notes
    assert note == "linalg_qr is not in the operations: there is no rule for it"


def test_time_is_measured_on_one_thread_and_threads_come_back(monkeypatch):
    seen = []
    threads = torch.get_num_threads()

    class Seeing(Softmax):
        def forward(self, h):
            seen.append(torch.get_num_threads())
            return super().forward(h)

    assert measure_cost(contestant_of(Seeing), SHAPE).us_per_token > 0
    assert seen[-1] == 1
    assert torch.get_num_threads() == threads


def test_a_tunable_of_ones_own_and_the_names_that_the_tool_has_agree():
    assert set(LAYERS.values()) <= {
        known.factory for known in CONTESTANTS.values() if isinstance(known.factory, Tunable)
    }


def test_a_weight_can_be_made_without_notes():
    assert MeasuredCost(1, 2.0, None, None, 3.0).notes == ()


@pytest.mark.parametrize("name", ["softmax", "delta-rule", "book-gla"])
def test_memory_of_a_step_is_told_from_two_prompts(name):
    """Against the count of the whole batch: what a batch takes once is within a seventh, and nothing is left out.

    Measured once beside it: processes that took two steps of `gla` and `softmax` at budgets small and medium grew by
    1.3 to 1.6 times what is told without the copies.
    """
    contestant, batch = resolve(name), 12
    model = contestant.build(SHAPE)
    size = sum(each.numel() * each.element_size() for each in model.parameters())
    with costs._PeakBytes() as held:
        model.loss(costs._prompts(SHAPE, batch, torch.float32, "cpu"), since=1).backward()
    told = costs.step_bytes(contestant, SHAPE, batch) - 9 * size
    assert held.most * 0.98 <= told <= held.most * 8 / 7
    assert costs.step_bytes(contestant, SHAPE, 2 * batch) - 9 * size > 1.5 * told


def test_tensors_are_counted_while_they_are_there():
    """A tensor that goes makes room for the next; a view takes nothing; what is not trained has no step."""
    with costs._PeakBytes() as held:
        for _ in range(3):
            one = torch.zeros(250)
            one.view(10, 25).sum()
            del one
        assert held.now == 0
        assert held.most == 1000 + 4
    assert costs.step_bytes(resolve("answer-0"), SHAPE, 4) == 0
