"""Each fault is planted once and refused in its own words; what is sound passes."""

import re

import pytest
import torch
from torch import nn

from icl import filters
from icl.experiments.tuning import Tunable
from icl.models.fast_weights import GLA
from icl_bench.catalogue import Alibi, Softmax
from icl_bench.entries import Contestant, Shape, resolve
from icl_bench.sequence import BlockStack, InContext
from icl_bench.validation import InvalidModel, validate, validate_model

pytestmark = pytest.mark.usefixtures("as_installed")

SHAPE = Shape(d=3, n=7, width=8, depth=1, longest=33)


class Mean(nn.Module):
    """The mean of all values so far: sound, and what the faulty ones are made of."""

    def __init__(self, width):
        super().__init__()
        self.v = nn.Linear(width, width)

    def forward(self, h):
        return self.over(self.v(h))

    def over(self, v):
        return v.cumsum(1) / torch.arange(1, v.shape[1] + 1)[:, None]


class Unmasked(Softmax):
    def _attend(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v)


class Roll(Mean):
    def over(self, v):
        return v.roll(-1, 1)


class Centred(Mean):
    def over(self, v):
        return nn.functional.avg_pool1d(v.mT, 3, stride=1, padding=1).mT


class OverTime(Mean):
    """Divides by the length of the whole sequence: no token is seen ahead, but how many there are."""

    def over(self, v):
        return v.cumsum(1) / v.shape[1]


class Hidden(Unmasked):
    """Looks ahead behind a matrix that starts at 0."""

    def __init__(self, width):
        super().__init__(width)
        nn.init.zeros_(self.outward.weight)


class Norm(Mean):
    def __init__(self, width):
        super().__init__(width)
        self.norm = nn.BatchNorm1d(width)

    def over(self, v):
        return self.norm(super().over(v).mT).mT


class OverBatch(Mean):
    def over(self, v):
        return super().over(v) - v.mean(0)


class Squeezed(Mean):
    def over(self, v):
        return super().over(v.squeeze(0) if len(v) > 1 else 0 * v)


class Nan(Mean):
    def over(self, v):
        return super().over(v) / (torch.arange(v.shape[1]) > 0)[:, None]


class NanGradient(Mean):
    """The root of 0: a value, and no gradient."""

    def over(self, v):
        return super().over(v) + (0 * v).sqrt()


class Wide(Mean):
    def over(self, v):
        return torch.cat([v, v], -1)


class Stretched(Mean):
    def over(self, v):
        return v[:, :1]


class Double(Mean):
    def over(self, v):
        return super().over(v).double()


class Dropped(Mean):
    def over(self, v):
        return nn.functional.dropout(super().over(v), 0.1)


class Kept(Mean):
    """A state in place that the next call goes on from."""

    def __init__(self, width):
        super().__init__(width)
        self.register_buffer("state", torch.zeros(width))

    def over(self, v):
        out = super().over(v) + self.state
        self.state += v.detach().mean((0, 1))
        return out


class KeptGraph(Mean):
    state = 0.0

    def over(self, v):
        out = super().over(v) + self.state
        self.state = 0 * out.mean()
        return out


class Short(Mean):
    """Has places for as many tokens as prompts have in training."""

    def __init__(self, width):
        super().__init__(width)
        self.place = nn.Parameter(torch.zeros(2 * SHAPE.n + 1, width))

    def over(self, v):
        return super().over(v + self.place[: v.shape[1]])


def contestant_of(mixer, name="mine"):
    def build(shape):
        return InContext(shape.d, shape.width, BlockStack(shape.width, [mixer(shape.width)]))

    return Contestant(name, name, "layer", "", build, True, "", "", False)


FAULTS = {
    Unmasked: r"mine looks ahead: .* the label of position \d and what comes after it; usually attention without its",
    Roll: r"mine looks ahead: .* what comes after it",
    Centred: r"mine looks ahead: .* a convolution padded on both sides",
    OverTime: r"mine looks ahead: .* in a prompt of \d positions than in the same one continued to 8: usually the",
    Hidden: r"mine looks ahead: .* \[with noise of 0.03 on its parameters",
    Norm: r"mine answers prompt [01] differently, .* prompts mix; usually a batch norm.* in training mode\]",
    OverBatch: r"mine answers prompt [01] differently, by [\d.e-]+ at position \d, when other prompts of its",
    Squeezed: r"mine answers a prompt alone differently than in a batch of 6.*usually a squeeze or reshape",
    Nan: r"mine answers (nan|-?inf) at position 0 of 8 of prompt 0: usually a division by 0",
    NanGradient: r"mine has a gradient that is not finite, in .*: usually a division by 0",
    Wide: r"mine fails on a batch of 6, 8 positions \(15 tokens\): ValueError: Wide must return .* got \(6, 15, 16\)",
    Stretched: r"Stretched must return .* got \(6, 1, 8\)",
    Double: r"Double must return torch.float32 as it was given, got torch.float64",
    Dropped: r"mine answers the same prompts differently each time, .* in evaluation: usually dropout",
    Kept: r"mine answers the same prompts differently after other prompts, by .* it keeps state from call to call",
    KeptGraph: r"mine has no gradient: RuntimeError: .*second time.*state kept from an earlier call",
    Short: r"mine fails on a batch of 6, 17 positions \(33 tokens\)",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_refused_in_its_own_words(fault):
    with pytest.raises(InvalidModel) as refused:
        validate(contestant_of(fault), SHAPE)
    assert re.search(FAULTS[fault], str(refused.value), re.DOTALL), refused.value


@pytest.mark.parametrize("mixer", [Mean, Softmax, Alibi])
def test_what_is_sound_passes_without_a_warning(mixer):
    assert validate(contestant_of(mixer), SHAPE) == ()


class Training(Mean):
    """Dropout as it should be: in training alone."""

    def __init__(self, width):
        super().__init__(width)
        self.drop = nn.Dropout(0.2)

    def over(self, v):
        return self.drop(super().over(v))


def test_dropout_in_training_alone_is_welcome():
    assert validate(contestant_of(Training), SHAPE) == ()


class Spectral(Mean):
    """A decay over time by Fourier transforms, padded: causal, up to rounding."""

    def over(self, v):
        time = v.shape[1]
        powers = 0.9 ** torch.arange(time)
        return torch.fft.irfft(torch.fft.rfft(v.mT, 2 * time) * torch.fft.rfft(powers, 2 * time))[..., :time].mT


def test_rounding_is_not_taken_for_a_fault():
    """Rounding of a Fourier transform lets the future through by some 1e-7, which is let through here too."""
    model = Spectral(8)
    h = torch.randn(1, 15, 8)
    changed = torch.cat([h[:, :9], 3 * torch.randn(1, 6, 8)], 1)
    leak = (model(h) - model(changed))[:, :9].abs().max().item()
    assert 0 < leak < 1e-5
    assert validate(contestant_of(Spectral), SHAPE) == ()


def test_what_is_only_odd_comes_back_as_a_warning():
    class Idle(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.unused = nn.Linear(width, width)

        def forward(self, h):
            return 0 * h

    idle, deaf = validate(contestant_of(Idle), SHAPE)
    assert "no gradient reaches" in idle
    assert "body.0.mixer.unused.weight, body.0.mixer.unused.bias: no training will move it" in idle
    assert "do not depend on any label" in deaf


def test_the_global_stream_and_the_model_are_left_as_they_were():
    torch.manual_seed(5)
    model = contestant_of(Norm).build(SHAPE).eval()
    before, state = torch.get_rng_state(), {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(InvalidModel):
        validate_model(model, "mine", SHAPE)
    assert torch.equal(torch.get_rng_state(), before)
    assert not model.training
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_filters_tunables_and_fast_weights_are_examined_too():
    shape = Shape(d=3, n=7, width=8, depth=1, longest=33)
    assert validate(resolve("answer-0"), shape) == ()
    assert validate_model(filters.rls(0.9, eps=0.01), "mine", shape) == ()
    assert validate_model(GLA(3, lam=0.9, mu=0.1), "mine", shape) == ()
    tunable = Tunable(lambda d, mu: filters.lms(mu), {"mu": [0.01, 0.05, 0.1]})
    assert validate_model(tunable, "mine", shape) == ()
    faulty = Tunable(lambda d, mu: lambda prompt: prompt.y[:, -1] * mu, {"mu": [0.01, 0.05, 0.1]})
    with pytest.raises(InvalidModel, match="mine looks ahead"):
        validate_model(faulty, "mine", shape)
    broken = Tunable(lambda d, mu: filters.lms(-mu), {"mu": [0.01, 0.05, 0.1]})
    with pytest.raises(InvalidModel, match="mine cannot be made for d = 3 at middle settings: ValueError: mu must"):
        validate_model(broken, "mine", shape)


def test_a_layer_in_double_precision_is_examined_in_it():
    assert validate_model(GLA(3, lam=0.9, mu=0.1, dtype=torch.float64), "mine", SHAPE) == ()


def test_an_error_of_the_layers_own_keeps_its_traceback():
    class Breaks(Mean):
        def over(self, v):
            raise RuntimeError("out of luck")

    with pytest.raises(InvalidModel, match=r"mine fails on a batch of 6.*RuntimeError: out of luck") as refused:
        validate(contestant_of(Breaks), SHAPE)
    assert isinstance(refused.value.__cause__, RuntimeError)
