"""What every causal model keeps to, stacks and full matrices alike, whatever its parameters and sizes.

Float64 unless said otherwise. Where a value is said to be the same up to rounding, 1e-11 of the largest value covers
it: sums of products over at most 50 tokens and three layers.
"""

import copy
import functools

import pytest
import shared
import torch

from icl.experiments.evaluation import one_step_ahead
from icl.models.causal import Causal, Normalised
from icl.models.delta_layers import DeltaRule
from icl.models.paper_conventions import Convention, FullStack
from icl.models.stacks import DeltaStack, GatedDeltaStack, GatedStack, Stack
from icl.profile import make_generator
from icl.tasks import Prompt

# Oracles

F64 = {"dtype": torch.float64}
prompt = shared.deep_prompt
close = functools.partial(shared.close, rounding=1e-11)
READINGS = [Convention(r, s, sign) for r in (False, True) for s in (False, True) for sign in (1, -1)]


@functools.cache
def single_streams():
    """One of every model that has one stream, with noise on every parameter; no test changes them."""
    models = {
        "one layer": Stack(3, 1, **F64),
        "stack": Stack(3, 3, **F64),
        "shared": Stack(3, 3, lam=0.8, **F64),
        "normalised": Normalised(Stack(3, 3, **F64)),
        "gated": GatedStack(3, 3, **F64),
        "channels": GatedStack(3, 2, channels=3, **F64),
        "labelless": GatedStack(3, 3, channels=3, **F64),
        "delta": DeltaStack(3, 3, **F64),
        "gated delta": GatedDeltaStack(3, 3, **F64),
        "normalised gated": Normalised(GatedStack(3, 2, **F64)),
        "normalised delta": Normalised(DeltaStack(3, 2, **F64)),
    }
    models = {name: shared.stirred(model) for name, model in models.items()}
    with torch.no_grad():
        models["labelless"].c.zero_()  # its gates do not look at labels
    return models


@functools.cache
def everything():
    """All models, full matrices included; no test changes them."""
    given = {"scale": 0.3, "generator": make_generator("start"), **F64}
    return single_streams() | {str(reading): FullStack(3, 2, reading=reading, **given) for reading in READINGS}


NAMES = list(single_streams())
LINEAR = ["one layer", "stack", "shared", "normalised", "labelless", "delta", "normalised delta"]


def data(batch=4, seed=0, dtype=torch.float64):
    return shared.sequences("deep data", 3, 41, batch, seed=seed, dtype=dtype)


@pytest.mark.parametrize("name", everything())
@torch.no_grad()
def test_a_prediction_is_an_error_taken_from_nothing(name):
    """Asked for a query's label, a model gives minus its error there for a label of 0, and the label itself is not
    seen, bit for bit; `predictions` and the label less the error are the same.

    1, 16, 17 and 34 examples. Tolerance: see the file's head. Planted: an error multiplied back by the first input's
    length is seen.
    """
    model = everything()[name]
    for n in (1, 16, 17, 34):
        p = prompt(n)
        Z = p.tokens()
        y_hat = model(p)
        assert close(y_hat, -model.errors(Z[..., :-1], Z[..., -1])[:, -1])
        predictions = model.predictions(p)
        assert close(y_hat, predictions[:, -1])
        assert torch.equal(predictions, p.y - model.errors(p.x, p.y))
        other = p.y.clone()
        other[:, -1] = 1e6
        # Inside `Normalised` the label is divided before it is dropped.
        assert torch.equal(model(Prompt(p.x, other, p.w)), y_hat)


@pytest.mark.parametrize("name", everything())
def test_every_position_is_a_query(name):
    """One step ahead, a causal model in one pass is the same model asked prompt by prompt; the first answer is 0.

    21 positions. Tolerance: see the file's head. Planted: two positions exchanged, and a first answer that is not 0
    (the literal reading has one), are seen.
    """
    model, p = everything()[name], prompt(20)
    together = one_step_ahead(model, p)
    assert close(together, one_step_ahead(lambda seen: model(seen), p))
    assert not together[:, 0].any()
    assert not together.requires_grad


# Properties


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("j", [0, 1, 16, 17, 31, 32, 40])
def test_the_future_never_changes_the_past(name, j):
    """Other labels from position j on and other inputs after it leave earlier errors as they were, bit for bit, and the
    prediction at j up to the rounding of its own label, which stands in the sum that the prediction is taken from.

    Bit for bit because what is masked is multiplied by 0 and adds nothing; positions around the blocks of 17 and 32
    tokens. Own label: 8 float64 roundings of its size. Planted: a mask that lets the token itself through.
    """
    model, (x, y) = single_streams()[name], data()
    other_x, other_y = x.clone(), y.clone()
    other_x[:, j + 1 :], other_y[:, j:] = 0.5, 100.0
    with torch.no_grad():
        before, after = model.errors(x, y), model.errors(other_x, other_y)
    assert torch.equal(before[:, :j], after[:, :j])
    own = (y - before)[:, j] - (other_y - after)[:, j]
    assert (own.abs() <= 8 * torch.finfo(x.dtype).eps * (100 + y[:, j].abs() + before[:, j].abs())).all()
    if j < 40:
        assert (before[:, j + 1 :] != after[:, j + 1 :]).all()


@pytest.mark.parametrize("name", everything())
@torch.no_grad()
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
    order = torch.randperm(6, generator=make_generator("order"))
    assert close(model.errors(x[order], y[order]), before[order], rounding=1e-12)
    assert close(model.loss(Prompt(x[order], y[order], x)), model.loss(Prompt(x, y, x)), rounding=1e-12)


@pytest.mark.parametrize("name", everything())
@torch.no_grad()
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
    model, (x, y) = single_streams()[name], data()
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
    model, (x, y) = single_streams()[name], data()
    assert close(model.errors(c * x, c * y) / c, model.errors(x, y))
    stack = single_streams()["stack"]
    assert not close(stack.errors(c * x, c * y) / c, stack.errors(x, y), rounding=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_normalising_leaves_inputs_of_one_length(name):
    """On inputs of length sqrt(d) a normalised model is the model itself, and with each input and label stretched by a
    number of its own its errors are stretched by the same.

    Tolerance: see the file's head. Planted: length 1 in place of sqrt(d).
    """
    model, (x, y) = single_streams()[name], data()
    x = x * 3**0.5 / torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    expected = model.errors(x, y)
    assert close(Normalised(model).errors(x, y), expected)
    stretch = 0.1 + torch.rand(y.shape, generator=make_generator("stretch"), dtype=torch.float64)
    assert close(Normalised(model).errors(x * stretch.unsqueeze(-1), y * stretch) / stretch, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", everything())
def test_an_input_of_zero_is_harmless(name, dtype):
    """A prompt with inputs of 0, first, last and in between, has finite errors and finite gradients by its inputs, its
    labels and every parameter. Where tokens are read by their inputs alone, nothing is predicted for it, and nothing
    written: only gates that look at labels see its label.

    Gated stacks also with write strengths |x|^-2.1 and |x|^3. Planted: 1 / (|x|^2 + tiny), whose square overflows.
    """
    gated = any(isinstance(module, GatedStack) for module in everything()[name].modules())
    for p in (None, 1.05, -1.5) if gated else (None,):
        model, (x, y) = copy.deepcopy(everything()[name]).to(dtype), data(dtype=dtype)
        for module in model.modules():
            if isinstance(module, GatedStack) and p is not None:
                torch.nn.init.constant_(module.p, p)
        nothing = [0, 7, 20, 40]
        x[:, nothing], y[:, nothing] = 0, 30
        x.requires_grad_()
        y.requires_grad_()
        errors = model.errors(x, y)
        assert errors.dtype == dtype
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
    """A causal model with nothing to train takes prompts of either dtype, alone and normalised; labels that do not
    match are refused where `errors` has no annotations, too.
    """

    class Zero(Causal):
        d = 3

        def errors(self, x, y):
            self.checked(x, y)
            return y.clone()

    for dtype in (torch.float32, torch.float64):
        x, y = data(dtype=dtype)
        for model in (Zero(), Normalised(Zero())):
            torch.testing.assert_close(model.errors(x, y), y)
    with pytest.raises(ValueError, match=r"y must have shape .* to match x"):
        Zero().errors(x, y[:, 1:])
    with pytest.raises(ValueError, match=r"y must have dtype torch.float64 to match x"):
        Zero().errors(x, y.float())


def test_a_parameter_of_another_dtype_is_named():
    """Of a model with one layer in float64 among others in float32, the message names what is float64."""
    model = Normalised(DeltaRule(2, lam=0.9, mu=0.1))
    model.model.log_mu = torch.nn.Parameter(model.model.log_mu.detach().double())
    x, y = torch.ones(1, 3, 2), torch.ones(1, 3)
    with pytest.raises(
        ValueError,
        match=r"x must have dtype torch.float64 to match the model's parameter model.log_mu, got torch.float32",
    ):
        model.errors(x, y)
