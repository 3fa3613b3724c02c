"""A layer in its place: against the same model written out token by token, and what is refused."""

import math

import pytest
import torch
from torch import nn

from icl.models import operators
from icl.tasks import DriftingRegression
from icl_bench.sequence import BlockStack, InContext, Projected, _same_shape, heads_for, operator_gates, tokens

D, N, WIDTH = 3, 4, 4
TASK = DriftingRegression(D, N, 0.9, sigma_w=0.5, sigma_e=0.2)


def prompt_of(batch=3, seed=0):
    return TASK.sample(batch, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Fading(nn.Module):
    """s <- a s + V h, the layer's output: as one product with powers of a."""

    def __init__(self, width):
        super().__init__()
        self.V = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.a = nn.Parameter(torch.tensor(0.7))

    def forward(self, h):
        place = torch.arange(h.shape[1])
        age = place[:, None] - place
        powers = torch.where(age >= 0, self.a ** age.clamp(min=0), 0.0)
        return powers @ (h @ self.V.T)


class Pair(Fading):
    """Returns a tuple, as layers with a cache do."""

    def forward(self, h):
        return super().forward(h), "cache"


def model_of(mixer=Fading, depth=2):
    torch.manual_seed(1)
    return InContext(D, WIDTH, BlockStack(WIDTH, [mixer(WIDTH) for _ in range(depth)])).double()


def normed(norm, h):
    return [norm.weight[i] * h[i] / math.sqrt(sum(v * v for v in h) / len(h) + 2**-52) for i in range(len(h))]


def product(linear, h):
    return [sum(linear.weight[i, j] * h[j] for j in range(len(h))) + linear.bias[i] for i in range(len(linear.bias))]


def one_by_one(model, x, y):
    """Answers of a prompt, a token after another, in plain loops: the module's text, read literally."""
    states = [[torch.zeros((), dtype=torch.float64)] * WIDTH for _ in model.body]
    answers = []
    for i in range(len(y)):
        asked = [*x[i], torch.tensor(0.0), torch.tensor(0.0)]
        shown = [*x[i], y[i], torch.tensor(1.0)]
        for token in (asked, shown):
            h = product(model.embedding, token)
            for number, block in enumerate(model.body):
                u = normed(block.norm, h)
                written = [sum(block.mixer.V[i, j] * u[j] for j in range(WIDTH)) for i in range(WIDTH)]
                states[number] = [block.mixer.a * s + w for s, w in zip(states[number], written, strict=True)]
                h = [a + b for a, b in zip(h, states[number], strict=True)]
                u = product(block.mlp[1], normed(block.mlp[0], h))
                u = [v * (1 + torch.erf(v / math.sqrt(2))) / 2 for v in u]
                h = [a + b for a, b in zip(h, product(block.mlp[3], u), strict=True)]
            if token is asked:
                answers.append(product(model.readout, normed(model.norm, h))[0])
    return torch.stack(answers)


def test_the_model_is_its_text_read_token_by_token(as_installed):
    model, prompt = model_of(), prompt_of(1)
    with torch.no_grad():
        literal = one_by_one(model, prompt.x[0], prompt.y[0])
        torch.testing.assert_close(model.predictions(prompt)[0], literal, rtol=1e-9, atol=1e-12)


def test_tokens_are_a_query_before_each_example():
    prompt = prompt_of()
    made = tokens(prompt.x, prompt.y)
    assert made.shape == (3, 2 * N + 1, D + 2)
    for i in range(N + 1):
        assert torch.equal(made[:, 2 * i], torch.cat([prompt.x[:, i], torch.zeros(3, 2)], 1))
        if i < N:
            shown = torch.cat([prompt.x[:, i], prompt.y[:, i, None], torch.ones(3, 1)], 1)
            assert torch.equal(made[:, 2 * i + 1], shown)


def test_errors_loss_and_query_are_those_of_its_answers():
    model, prompt = model_of(), prompt_of()
    answers = model.predictions(prompt)
    torch.testing.assert_close(model.errors(prompt.x, prompt.y), prompt.y - answers)
    torch.testing.assert_close(model.loss(prompt, since=2), (prompt.y - answers)[:, 2:].square().mean())
    torch.testing.assert_close(model(prompt), answers[:, -1])


def test_no_label_enters_its_own_answer_to_the_bit():
    model, prompt = model_of(), prompt_of()
    changed = prompt.y.clone()
    changed[:, -1] += 1e3
    assert torch.equal(model.answers(prompt.x, prompt.y), model.answers(prompt.x, changed))


def test_of_a_tuple_the_first_item_counts():
    prompt = prompt_of()
    assert torch.equal(model_of(Pair).predictions(prompt), model_of(Fading).predictions(prompt))


def test_a_whole_model_stands_in_place_of_the_blocks():
    torch.manual_seed(0)
    body = nn.Sequential(Fading(WIDTH), nn.Tanh())
    model, prompt = InContext(D, WIDTH, body).double(), prompt_of()
    h = body(model.embedding(tokens(prompt.x, prompt.y)))
    torch.testing.assert_close(model.predictions(prompt), model.readout(model.norm(h))[:, ::2, 0])


def test_a_layer_learns_in_context(as_installed):
    """Gated linear attention halves what answering 0 errs on a drift in 60 steps, from a fixed start."""
    torch.manual_seed(0)
    task = DriftingRegression(2, 12, 0.98, sigma_w=0.7, sigma_e=0.14)
    layers = [Projected(operators.chunked, 16) for _ in range(2)]
    model = InContext(2, 16, BlockStack(16, layers))
    generator = torch.Generator().manual_seed(3)
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(60):
        prompt = task.sample(32, generator=generator, dtype=torch.float32)
        loss = model.loss(prompt, since=1)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    prompt = task.sample(300, generator=generator, dtype=torch.float32)
    assert model.loss(prompt, since=6) < 0.5 * prompt.y[:, 6:].square().mean()


def fading(q, k, v, g):
    state, out = torch.zeros_like(v[:, 0].unsqueeze(-1) * k[:, 0].unsqueeze(-2)), []
    for t in range(q.shape[1]):
        state = g[:, t, :, None, None] * state + v[:, t].unsqueeze(-1) * k[:, t].unsqueeze(-2)
        out.append((state @ q[:, t].unsqueeze(-1)).squeeze(-1))
    return torch.stack(out, 1)


def test_projections_and_gates_around_an_operator_are_what_the_text_says():
    torch.manual_seed(0)
    layer, h = Projected(fading, 32).double(), torch.randn(2, 7, 32, dtype=torch.float64)
    q, k, v = (layer.inward.weight[32 * part : 32 * (part + 1)] @ h.mT for part in range(3))
    q, k, v = (each.mT.reshape(2, 7, 2, 16) for each in (q, k, v))
    g = torch.sigmoid(h @ layer.gate.weight.T + layer.gate.bias)
    expected = fading(q / 4, k, v, g).reshape(2, 7, 32) @ layer.outward.weight.T
    torch.testing.assert_close(layer(h), expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(torch.sigmoid(layer.gate.bias), torch.full((2,), 0.952574, dtype=torch.float64))


def test_the_names_g_and_decay_are_one():
    def same(q, k, v, decay):
        return fading(q, k, v, decay)

    h = torch.randn(2, 5, 16)
    made = []
    for operator in (fading, same):
        torch.manual_seed(0)
        made.append(Projected(operator, 16)(h))
    assert torch.equal(*made)


def test_with_beta_keys_and_queries_have_length_one_and_beta_starts_at_a_half():
    seen = {}

    def spy(q, k, v, beta, decay):
        seen.update(q=q, k=k, beta=beta, decay=decay)
        return v

    torch.manual_seed(0)
    layer, h = Projected(spy, 32), torch.randn(2, 5, 32)
    layer(h)
    for name in "qk":
        torch.testing.assert_close(seen[name].norm(dim=-1), torch.ones(2, 5, 2))
    opened = torch.sigmoid(h @ layer.gate.weight.T)
    assert opened.shape == (2, 5, 4)
    torch.testing.assert_close(seen["beta"], opened[..., 2:])
    assert seen["decay"].shape == (2, 5, 2)
    assert operator_gates(spy) == ("decay", "beta")


def test_heads_are_one_for_each_sixteen_numbers():
    assert [heads_for(width) for width in (1, 16, 31, 32, 128)] == [1, 1, 1, 2, 8]


def test_state_is_told_where_it_is_known():
    assert Projected(fading, 16).state_numel(9) is None
    assert Projected(fading, 16, state=lambda time: 256 + time).state_numel(9) == 265


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (torch.zeros(2, 1, 4), r"must return \(batch, time, width\) = \(2, 3, 4\) as it was given, got \(2, 1, 4\)"),
        (torch.zeros(2, 3, 4, dtype=torch.float64), "must return torch.float32 as it was given, got torch.float64"),
        (None, "must return a tensor, or a tuple with one in front, got NoneType"),
        ((), "must return a tensor"),
    ],
)
def test_what_would_be_stretched_to_fit_is_refused(out, message):
    with pytest.raises(ValueError, match=f"Mine {message}"):
        _same_shape("Mine", out, torch.zeros(2, 3, 4))


def test_a_layer_of_another_width_is_refused_by_its_name():
    model = InContext(D, WIDTH, BlockStack(WIDTH, [nn.Linear(WIDTH, 2 * WIDTH)])).double()
    with pytest.raises(ValueError, match="Linear must return"):
        model.predictions(prompt_of())
