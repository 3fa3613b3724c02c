"""Test-time adaptation: only the named part of a copy moves, and k prompts of the training law leave the optimum."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from icl.experiments.training_variants import THEN
from icl.models.experts import ConvexGate, FreeGate, MultiHead
from icl.models.memformer import FullTable, Memformer, ScaledBlocks
from icl.profile import make_generator
from icl.tasks.quadratics import regression
from icl.theory import lfom
from icl.theory.lfom import polynomial_floor
from icl_book.chapters.distribution_shift import Given, adapt, query_loss, rescale

D, N, L = 3, 12, 2
SHORT = replace(THEN, steps=5)


def experts(gate=None):
    memory = FullTable(L)
    with torch.no_grad():
        memory.weights.copy_(torch.as_tensor(lfom.registers(*polynomial_floor.optimal_registers(D, N, L))))
    eye = torch.eye(D, dtype=torch.float64)
    return MultiHead([Memformer(ScaledBlocks(eye / s, L), memory) for s in (1.0, 2.0)], gate or FreeGate(2))


def prompts(k, variance=1.0, name="adapting"):
    return regression(variance * np.eye(D), N).sample(k, generator=make_generator(name), dtype=torch.float64)


def risk(model, variance=1.0):
    A = sum(g * head.preconditioner.A() for g, head in zip(model.gate.alpha, model.heads, strict=True))
    table = model.heads[0].memory.Gamma().detach().numpy()
    return lfom.table_risks(table, D, N, variance * A[:, 0, 0].detach().numpy())[-1]


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("names", [("gate",), ("memory",), ("gate", "memory"), ()])
@pytest.mark.parametrize("config", [SHORT, None])
def test_only_the_named_part_of_a_copy_moves(names, config):
    """Bit for bit: the model given stays, the copy moves where it is named; and twice is the same. The loss falls.

    Planted: no copy, and a name compared as a whole, are seen.
    """
    model, met = experts(), prompts(20, 2.5)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    done = adapt(model, met, names, config=config)
    after = dict(done.model.named_parameters())
    for name, value in model.named_parameters():
        assert torch.equal(value, before[name])
        assert value.requires_grad
        named = not names or any(part in name for part in names)
        assert after[name].requires_grad == named
        assert torch.equal(after[name], value) != named
    assert done.numbers == sum(p.numel() for p in done.model.parameters() if p.requires_grad)
    assert query_loss(done.model, met) < done.losses[0]
    again = adapt(model, met, names, config=config)
    assert all(torch.equal(a, b) for a, b in zip(again.model.parameters(), after.values(), strict=True))


@pytest.mark.one_draw("one sample")
def test_prompts_of_the_training_law_leave_the_optimum():
    """4,000 labels of the law that the gates are best for: by L-BFGS the exact risk rises by less than 1 %.

    The excess is C/N with C below 5 times the floor: 0.1 % is expected; the start is 20 % off.
    """
    model = experts()
    with torch.no_grad():
        model.gate.alpha.copy_(torch.tensor([1.0, 0.0]))
    floor = polynomial_floor.optimal_risks(D, N, L)[-1]
    assert risk(model) == pytest.approx(floor, rel=1e-9)
    with torch.no_grad():
        model.gate.alpha.copy_(torch.tensor([0.7, 0.0]))
    assert risk(model) > 1.2 * floor
    assert risk(adapt(model, prompts(4_000), ["gate"]).model) < 1.01 * floor


def test_a_rescaled_gate_is_at_the_new_variance():
    """Gates for variance 1, rescaled by 5,000 prompts' inputs of variance 3.5: the floor there to 0.1 %; and in closed
    form for one prompt. Planted: the sum of squares for their mean, and made_for left out, are seen.
    """
    model = experts()
    with torch.no_grad():
        model.gate.alpha.copy_(torch.tensor([1.0, 0.0]))
    met = prompts(5_000, 3.5, "rescale").x[:, :-1]
    floor = polynomial_floor.optimal_risks(D, N, L)[-1]
    assert risk(rescale(model, met, made_for=1.0), 3.5) == pytest.approx(floor, rel=1e-3)
    assert risk(model, 3.5) > 1.5 * floor
    one = rescale(model, met[:1], made_for=2.0)
    trace = torch.trace(met[0].T @ met[0] / N) / D
    torch.testing.assert_close(one.gate.alpha.detach(), torch.tensor([1.0, 0.0]).double() * 2 / trace)
    assert torch.equal(model.gate.alpha.detach(), torch.tensor([1.0, 0.0]).double())


def test_prompts_given_are_handed_out():
    met = prompts(4)
    task, generator = Given(met), make_generator("given")
    assert task.sample(4, generator=generator, dtype=torch.float64) is met
    with pytest.raises(ValueError, match=r"batch must be 4 in torch\.float64, the prompts given, got 5"):
        task.sample(5, generator=generator, dtype=torch.float64)
    with pytest.raises(ValueError, match="device must be cpu"):
        task.sample(4, generator=generator, dtype=torch.float64, device="meta")


@pytest.mark.usefixtures("as_installed")
def test_bad_input_is_refused_by_name():
    model, met = experts(), prompts(4)
    for names in ("gate", ["gates"], ["nothing"]):
        with pytest.raises(ValueError, match="names must be a sequence of parts of"):
            adapt(model, met, names)
    with pytest.raises(ValueError, match=r"config must be an [\w.]*Config or None"):
        adapt(model, met, config="adam")
    with pytest.raises(ValueError, match="model must have shape"):
        query_loss(Constant(), met)
    with pytest.raises(ValueError, match="model must have a FreeGate"):
        rescale(experts(ConvexGate(2)), met.x[:, :-1], made_for=1.0)
    with pytest.raises(ValueError, match="X must hold inputs of at least one prompt"):
        rescale(model, 0 * met.x[:, :-1], made_for=1.0)


class Constant(torch.nn.Module):
    def forward(self, prompt):
        return prompt.y
