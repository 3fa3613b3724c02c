"""The scan against that of mambapy, other people's code: their parallel scan, with a backward pass of its own."""

import pytest
import torch
from mambapy.mamba import MambaBlock, MambaConfig

from icl.models import s6
from icl.profile import streams


@pytest.mark.parametrize(("batch", "time", "channels", "d_h"), [(1, 1, 2, 1), (2, 17, 4, 3), (3, 64, 6, 8)])
@pytest.mark.parametrize("rates", ["one", "several"])
def test_scan_is_mambapys(batch, time, channels, d_h, rates):
    """`scan` and `chunked` are mambapy's selective scan, in value and in the gradients of all five arguments.

    It holds B by Euler's rule, Delta B u: it is given the B for which that is zero-order hold, B (exp(Delta A) - 1) /
    (A Delta), which is a number a state only if rates are one number, and otherwise differs between states as its B
    may. 1e-10 of the largest entry, float64. Planted: given B itself it is hundredths away.
    """
    generator = streams("mambapy", seed=time)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    u, B, C, seen = normal(batch, time, channels), *normal(2, batch, time, d_h), normal(batch, time, channels)
    A = -(normal(1 if rates == "one" else d_h).abs() + 0.2)
    Delta = normal(batch, time).abs() + 0.05
    block = MambaBlock(MambaConfig(d_model=channels, n_layers=1, d_state=d_h, expand_factor=1))

    def theirs(u, A, B, C, Delta):
        exponent = Delta.unsqueeze(-1) * A
        held = B * torch.expm1(exponent) / exponent
        steps, rate = Delta.unsqueeze(-1).expand(-1, -1, channels), A.expand(channels, d_h)
        skipped = torch.zeros(channels, dtype=torch.float64)
        # Their scan works in place on what it is given.
        return block.selective_scan(u, steps.clone(), rate.clone(), held, C, skipped)

    def both(form):
        leaves = [t.clone().requires_grad_() for t in (u, A, B, C, Delta)]
        out = form(*leaves)
        return [out.detach(), *torch.autograd.grad((out * seen).sum(), leaves)]

    expected = both(theirs)
    for form in (s6.scan, s6.scan_chunked):
        for got, want in zip(both(form), expected, strict=True):
            assert want.abs().max() > 1e-3 or time == 1
            assert (got - want).abs().max() <= 1e-10 * want.abs().max()
